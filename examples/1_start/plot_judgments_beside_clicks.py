"""
Judgments beside the clicks
===========================

**Claim.** A few queries that people have judged, and many clicks on others, rank better together
than clicks alone: :class:`~skultr.EnsembleRanker` trains one member on the judgments, and
held-out clicks and held-out judgments weigh it. Where half of the judgments are wrong, this member
loses half of its weight.

**Limit.** Documents, clicks and judges are simulated, one log, so that differences of .01 may be
chance. With the seeds 0 to 6, both together are ahead of clicks alone by .009, .016, .024 and .033
on average (15, 30, 60 and 120 judged queries), and of the better of the two by .009, .011, .008
and .004; in one of the seven logs they are behind clicks with 15 and 30 queries. The judge makes
errors at random; a judge with a taste of its own (a language model that prefers long texts) is not
found out by its own held-out judgments.
"""

# %%
# A log, and queries with judgments
# ---------------------------------
#
# A production ranker of trees served 10,000 sessions with some variation of the order. Users look
# at position k with probability 1 / k. All documents of up to 120 of the 300 queries were judged.
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from lightgbm import LGBMRegressor

from skultr import EnsembleRanker
from skultr.datasets import make_ltr
from skultr.exceptions import ClickDataWarning
from skultr.metrics import ndcg_score
from skultr.plotting import method_colors
from skultr.simulation import (
    PlackettLucePolicy,
    PositionBasedUser,
    production_scores,
    simulate_clicks,
)

warnings.simplefilter("ignore", ClickDataWarning)

SEED = 1
documents = make_ltr(n_queries=500, n_features=20, random_state=SEED)
features = [name for name in documents if name.startswith("feature")]
is_logged = documents["qid"] < 300
trees = LGBMRegressor(num_leaves=15, min_child_samples=5, n_jobs=1, verbose=-1)
documents["production"] = production_scores(
    documents[~is_logged & (documents["qid"] < 330)],
    fraction=1.0,
    estimator=trees,
    candidates=documents,
    random_state=SEED,
)
logged = documents[is_logged]
test = documents[documents["qid"] >= 330]
log, clicks, _ = simulate_clicks(
    logged,
    n_sessions=10_000,
    policy=PlackettLucePolicy(),
    scores=logged["production"],
    user=PositionBasedUser(1.0),
    random_state=SEED,
)
# fit would not read the column: judgments train only where they are passed.
log = log.drop(columns="relevance")


def ndcg(scores):
    return ndcg_score(test["relevance"], scores, qid=test["qid"], k=10)


# %%
# Clicks alone, judgments alone, and both
# ---------------------------------------
#
# Judgments are a table of ``qid``, ``doc`` and ``relevance``. This one has the features, too,
# because the log does not have documents that were never shown.
queries = np.random.default_rng(SEED).permutation(logged["qid"].unique())
judgments = logged[["qid", "doc", "relevance", "production", *features]]


def fitted(judged):
    return EnsembleRanker("trees", random_state=0).fit(log, clicks, judgments=judged)


NUMBERS = [15, 30, 60, 120]
by_clicks = ndcg(fitted(None).predict(test))
rows = []
weights = {}
for number in NUMBERS:
    judged = judgments[judgments["qid"].isin(queries[:number])]
    ensemble = fitted(judged)
    weights[number] = ensemble.weights_["weight"]
    teacher = ensemble.named_estimators_["judged"]
    rows.append(
        {
            "clicks alone": by_clicks,
            "judgments alone": ndcg(teacher.predict(test[features].to_numpy())),
            "both": ndcg(ensemble.predict(test)),
        }
    )
table = pd.DataFrame(rows, index=pd.Index(NUMBERS, name="judged queries"))
print(table.round(3))

# %%
# With 15 judged queries clicks are the better teacher, and from 60 on judgments are. The ensemble
# is nowhere more than .01 behind the better one.
COLORS = method_colors(table)
fig, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
for name, values in table.items():
    width = 3 if name == "both" else 1.5
    ax.plot(table.index, values, "o-", label=name, color=COLORS[name], linewidth=width)
ax.set_xscale("log")
ax.set_xticks(NUMBERS, NUMBERS)
ax.minorticks_off()
ax.set_xlabel("judged queries beside 10,000 pages with clicks")
ax.set_ylabel("nDCG@10 on other queries")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)
plt.show()

# %%
# What each member weighs
# -----------------------
print(pd.DataFrame(weights).round(2))

# %%
# Wrong judgments
# ---------------
#
# Half of the grades of 60 queries are now those of other documents.
judged = judgments[judgments["qid"].isin(queries[:60])]
rng = np.random.default_rng(0)
grades = judged["relevance"].to_numpy()
wrong = np.where(rng.random(len(grades)) < 0.5, rng.permutation(grades), grades)
careless = fitted(judged.assign(relevance=wrong))
print(careless.weights_["weight"].round(2))
print(f"clicks alone: {by_clicks:.3f}, with wrong judgments: {ndcg(careless.predict(test)):.3f}")

# %%
# The claim, checked
# ------------------
best = table[["clicks alone", "judgments alone"]].max(axis=1)
assert (table["both"] > best - 0.01).all()
assert (table["both"] - table["clicks alone"]).mean() > 0.01
assert ndcg(careless.predict(test)) > by_clicks - 0.03
assert careless.weights_["weight"]["judged"] < weights[60]["judged"] / 1.5
