"""
The ensemble behind weak and strong production rankers
======================================================

**Claim.** :class:`~skultr.EnsembleRanker` weighs naive and debiased rankers, and the one
that served the log, by the clicks of held-out queries. Behind production rankers from weak to
strong it is level with the better of production and the naive ranker, or above. Dual learning
corrects clicks always: it wins behind weak production, and loses behind strong.

**Limit.** It is no guarantee to be the best: with a sure curve, a corrected ranker can be ahead of
both behind a weak production ranker. Documents and position-based clicks are simulated, one log
for each point, so that differences of .02 may be chance. Production varied its order. Where it
never does, the log cannot tell examination from relevance by documents that moved, and ``fit`` may
warn. Held-out clicks tell nothing about documents that were never shown.
"""

# %%
# Production rankers from weak to strong
# --------------------------------------
#
# Trees that were fitted to the labels of 1 %, 5 % or all of the training queries. They
# served 2,000 sessions, with some random variation of the order. Users look at position k with
# probability 1 / k.
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from lightgbm import LGBMRegressor
from onnxruntime import InferenceSession

from skultr import DLARanker
from skultr.datasets import make_ltr
from skultr.exceptions import ClickDataWarning
from skultr.metrics import ndcg_score
from skultr.model_selection import train_test_queries
from skultr.plotting import method_colors
from skultr.rankers import EnsembleRanker, NaiveRanker
from skultr.serving import export_model
from skultr.simulation import PlackettLucePolicy, PositionBasedUser, simulate_clicks

# Five clicks per query are few for a correction, and dual learning warns.
warnings.simplefilter("ignore", ClickDataWarning)

documents = make_ltr(n_queries=450, n_features=20, random_state=0)
features = [name for name in documents if name.startswith("feature")]
train, test = train_test_queries(documents, random_state=0)
queries = np.random.default_rng(0).permutation(train["qid"].unique())


def served_by(share):
    """Training and test documents with the scores of a production ranker."""
    known = train[train["qid"].isin(queries[: max(3, round(share * len(queries)))])]
    trees = LGBMRegressor(num_leaves=15, min_child_samples=5, n_jobs=1, verbose=-1)
    trees.fit(known[features], known["relevance"])
    return tuple(each.assign(production=trees.predict(each[features])) for each in (train, test))


def ndcg(scores):
    return ndcg_score(test["relevance"], scores, qid=test["qid"], k=10)


# %%
# Four rankers on each log
# ------------------------
#
# The ensemble reads the score of production from the column ``production``; the others get logs
# without it.
SHARES = [0.01, 0.05, 1.0]
rows, weights = [], {}
for share in SHARES:
    logged, candidates = served_by(share)
    log, clicks, _ = simulate_clicks(
        logged,
        n_sessions=2000,
        n_positions=20,
        policy=PlackettLucePolicy(temperature=0.1),
        scores=logged["production"],
        user=PositionBasedUser(1.0),
        random_state=0,
    )
    alone = log.drop(columns="production")
    ensemble = EnsembleRanker(random_state=0).fit(log, clicks)
    weights[f"{share:.0%}"] = ensemble.weights_["weight"]
    rows.append(
        {
            "production": ndcg(candidates["production"]),
            "naive": ndcg(NaiveRanker(random_state=0).fit(alone, clicks).predict(candidates)),
            "DLA": ndcg(DLARanker(random_state=0).fit(alone, clicks).predict(candidates)),
            "ensemble": ndcg(ensemble.predict(candidates)),
        }
    )
table = pd.DataFrame(rows, index=[f"{share:.0%}" for share in SHARES])
print(table.round(3))

# %%
# The ensemble against each
# -------------------------
COLORS = method_colors(table)
WIDTHS = {"ensemble": 3}
fig, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
for name, values in table.items():
    style = {"linewidth": WIDTHS.get(name, 1.5), "color": COLORS[name]}
    ax.plot(table.index, values, "o--" if name == "production" else "o-", label=name, **style)
ax.set_xlabel("labelled queries that production was trained on (weak to strong)")
ax.set_ylabel("nDCG@10 on test queries")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
plt.show()

# %%
# The claim, checked
# ------------------
#
# The ensemble is nowhere clearly below production or the naive ranker, and behind the weakest
# production it gains. Dual learning gains as well there, and loses where production is strong.
assert (table["ensemble"] > table[["production", "naive"]].max(axis=1) - 0.005).all()
assert table["DLA"].iloc[0] > table["naive"].iloc[0] + 0.005
assert table["DLA"].iloc[-1] < table["ensemble"].iloc[-1] - 0.005
assert table["ensemble"].iloc[0] > table["naive"].iloc[0] + 0.005

# %%
# What each member weighs
# -----------------------
#
# Production starts from half of the weight. The stronger it is, the more clicks confirm it.
print(pd.DataFrame(weights).round(2))

# %%
# Why a document is where it is
# -----------------------------
#
# The contributions of the members to a score add up to it.
print(ensemble.explain(candidates).head().round(2))

# %%
# It leaves Python
# ----------------
#
# One ONNX model holds all members. It reads the features and the score of production, and gives
# the scores that ``predict`` gives.
model = InferenceSession(export_model(ensemble, "onnx"))
inputs = {"features": candidates[features], "production": candidates[["production"]]}
arrays = {name: frame.to_numpy(dtype=np.float32) for name, frame in inputs.items()}
(scores,) = model.run(None, {each.name: arrays[each.name] for each in model.get_inputs()})
difference = np.abs(scores[:, 0] - ensemble.predict(candidates)).max()
print(f"largest difference to predict: {difference:.0e}")
assert difference < 1e-4
