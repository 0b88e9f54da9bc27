"""
The same trees, on clicks and on labels without position bias
=============================================================

**Claim.** XGBoost and LightGBM can correct position bias inside their ranking losses. With 40
result pages per query, small trees of XGBoost on the labels of
:func:`~skultr.propensity.debiased_table` are 0.03 nDCG@10 ahead of ``lambdarank_unbiased`` on the
clicks. LightGBM's ``position`` gains more, 0.06, and :class:`~skultr.rankers.LambdaMARTRanker`
most, 0.08. With 2 or 3 pages per query nobody is ahead for sure, and a regressor on labels is
behind: such labels are noise.

**Limit.** Documents and users are simulated. Users click as a position-based model assumes, and
the production ranker varied its order, so that examination can be estimated. All peers have trees
of eight leaves or fewer. With its default size XGBoost is worse in these worlds, and labels bring
it nothing: a table of labels has one row per document, which is little for deep trees.
"""

# %%
# Five ways from clicks to trees
# ------------------------------
#
# XGBoost and LightGBM take one group per result page. Labels have one group per query.
import warnings

import lightgbm
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xgboost
from scipy.stats import t

from skultr.datasets import make_ltr
from skultr.exceptions import ClickDataWarning
from skultr.metrics import ndcg_score
from skultr.model_selection import train_test_queries
from skultr.plotting import method_colors
from skultr.propensity import RegressionEMPropensity, debiased_table
from skultr.rankers import LambdaMARTRanker
from skultr.simulation import PlackettLucePolicy, production_scores, simulate_clicks

# The smallest logs do not confirm a correction, and LambdaMARTRanker warns.
warnings.simplefilter("ignore", ClickDataWarning)

N_SESSIONS, N_WORLDS = [1_000, 4_000, 16_000], 5
BASELINE = "XGBoost, lambdarank_unbiased"
SIZE = {"max_depth": 3, "learning_rate": 0.1, "n_jobs": 1}


def lightgbm_with_position(log, clicks, features):
    """Scores of new documents, from lambdarank with a bias per position."""
    rows = log.assign(click=clicks).sort_values(["session", "position"])
    data = lightgbm.Dataset(
        rows[features],
        rows["click"],
        group=rows.groupby("session").size(),
        position=rows["position"] - 1,
    )
    settings = {"objective": "lambdarank", "label_gain": [0, 1], "num_leaves": 7}
    settings |= {"num_threads": 1, "verbosity": -1, "seed": 0}
    return lightgbm.train(settings, data, 100).predict


def measure(seed, n_sessions):
    """nDCG@10 of each on 200 queries that were not in the log."""
    documents = make_ltr(n_queries=600, n_features=20, random_state=seed)
    train, test = train_test_queries(documents, test_size=200, random_state=seed)
    log, clicks, _ = simulate_clicks(
        train,
        n_sessions=n_sessions,
        policy=PlackettLucePolicy(0.1),
        scores=production_scores(train, random_state=seed),
        random_state=seed,
    )
    features = [name for name in log if name.startswith("feature")]

    unbiased = xgboost.XGBRanker(
        lambdarank_unbiased=True, lambdarank_pair_method="topk", **SIZE
    ).fit(log[features], clicks, qid=log["session"])

    curve = RegressionEMPropensity(relevance="embedding").fit(log, clicks)
    table = debiased_table(log.assign(click=clicks), curve).merge(train, on=["qid", "doc"])
    ranker = xgboost.XGBRanker(ndcg_exp_gain=False, **SIZE)
    ranker.fit(table[features], 15 * table["label"].clip(upper=1), qid=table["group"])
    trees = lightgbm.LGBMRegressor(num_leaves=7, n_jobs=1, verbosity=-1)
    trees.fit(table[features], table["label"], sample_weight=table["weight"])

    predict = {
        BASELINE: unbiased.predict,
        "LightGBM, position": lightgbm_with_position(log, clicks, features),
        "XGBoost, labels": ranker.predict,
        "LightGBM, labels": trees.predict,
        "LambdaMARTRanker": LambdaMARTRanker(random_state=0).fit(log, clicks).predict,
    }
    candidates = test[["qid", *features]]
    scores = {
        name: score(candidates if name == "LambdaMARTRanker" else test[features])
        for name, score in predict.items()
    }
    ndcg = {
        name: ndcg_score(test["relevance"], score, qid=test["qid"], k=10)
        for name, score in scores.items()
    }
    return {"seed": seed, "pages": n_sessions, **ndcg}


# %%
# Five worlds
# -----------
#
# Each world has other documents, another production ranker and other users.
runs = pd.DataFrame([measure(seed, n) for seed in range(N_WORLDS) for n in N_SESSIONS])
runs = runs.set_index(["pages", "seed"])
print(runs.groupby("pages").mean().T.round(3).to_string())

# %%
# The figure
# ----------
#
# Some worlds are easier than others, so each difference is within one world. Lines are 95 %
# intervals over worlds, by Student's t.
ahead = runs.drop(columns=BASELINE).sub(runs[BASELINE], axis=0).groupby("pages")
mean = ahead.mean()
half_width = ahead.sem() * t.ppf(0.975, N_WORLDS - 1)
colors = method_colors(mean.columns)
figure, axes = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
axes.axhline(0, color="black", linewidth=0.8)
axes.text(len(mean) - 0.75, -0.003, BASELINE, ha="right", va="top")
for k, name in enumerate(mean):
    axes.errorbar(
        np.arange(len(mean)) + 0.12 * (k - 1.5),
        mean[name],
        half_width[name],
        fmt="os^D"[k],
        color=colors[name],
        label=name,
    )
axes.set_xticks(range(len(mean)), [f"{n:,}" for n in mean.index])
axes.set_xlabel("result pages of 400 queries")
axes.set_ylabel("nDCG@10 on new queries,\nahead of lambdarank_unbiased")
axes.set_title("Five worlds: mean and 95 % interval")
axes.legend(frameon=False, loc="lower right")
axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The claim, checked
# ------------------
large = mean.index[-1]
certain = mean - half_width > 0
assert certain.loc[large, ["XGBoost, labels", "LightGBM, position", "LambdaMARTRanker"]].all()
assert mean.loc[large].idxmax() == "LambdaMARTRanker"
assert not certain.loc[1_000].any()
assert mean.loc[1_000, "LightGBM, labels"] < 0

# %%
# What to take from it
# --------------------
#
# - With many pages per query, take :class:`~skultr.rankers.LambdaMARTRanker`. To keep XGBoost,
#   give it labels; to keep LightGBM, its ``position`` is no worse than labels here.
# - With few, ``LambdaMARTRanker`` corrects clicks only if held-out clicks confirm it.
# - Labels have one row per document: make trees small (:ref:`from_lambdarank`).
