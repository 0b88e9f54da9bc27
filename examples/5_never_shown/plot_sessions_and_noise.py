"""
More sessions, and more careless clicks
=======================================

**Claim.** Where production also used a hidden signal, more sessions do not help against it:
with 100,000 of them inverse propensities are no better than clicks as they are, and CLD is ahead
of both. Clicks on irrelevant documents cost rankers that divide by propensities little: up to one
in two of them costs CLD 0.004 of nDCG@3, Heckman's method on debiased clicks 0.005, and inverse
propensities 0.007. Where clicks are taken as they are, it is 0.06.

**Limit.** With 1,000 sessions, or two per query, taking clicks as they are is best: CLD divides by
propensities too, and has their variance. One world, 30 features, five runs; CLD and inverse
propensities differ by one to two of the standard errors drawn.
"""

# %%
# A log of the top 5
# ------------------
#
# Production shows the top 5 of 20 candidates, by features and by a signal that correlates 0.5
# with relevance. Position k is examined with probability 1 / k, and the rankers know that. Click
# noise is the share of irrelevant documents that get a click from whoever looks at them.
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skultr import CLDRanker, aggregate_clicks
from skultr.datasets import make_ltr
from skultr.exceptions import AssumptionWarning
from skultr.metrics import ndcg_score
from skultr.plotting import method_colors
from skultr.rankers import HeckmanRanker
from skultr.simulation import (
    PositionBasedUser,
    hidden_signal_scores,
    production_scores,
    simulate_clicks,
)

# "Clicks as they are" assumes that all positions are examined alike. fit warns that the clicks
# contradict this, which is the point.
warnings.simplefilter("ignore", AssumptionWarning)

N_QUERIES = 600
#: The published models by rows: linear, fitted in a second.
LINEAR = {"loss": "pointwise", "hidden_layer_sizes": ()}
CURVE = 1 / np.arange(1.0, 6.0)
STUDIES = {
    "sessions": [1_000, 3_000, 10_000, 30_000, 100_000],
    "click noise": [0.0, 0.1, 0.2, 0.35, 0.5],
}
USUAL = {"sessions": 30_000, "click noise": 0.1}
RANKERS = {
    "naive": CLDRanker(**LINEAR, propensity=np.ones(5), gamma=0.0),
    "IPS": CLDRanker(**LINEAR, propensity=CURVE, gamma=0.0),
    "CLD": CLDRanker(**LINEAR, propensity=CURVE),
    "Heckman, naive": HeckmanRanker(hidden_layer_sizes=()),
    "Heckman": HeckmanRanker(hidden_layer_sizes=(), debias=True, propensity=CURVE),
}


def top_5_log(training, seed, setting):
    """The log with the candidates that were not shown, and its click rates."""
    scores = hidden_signal_scores(
        production_scores(training, random_state=seed),
        training["relevance"],
        random_state=seed,
    )
    X, clicks, _ = simulate_clicks(
        training,
        n_sessions=setting["sessions"],
        n_positions=5,
        scores=scores,
        user=PositionBasedUser(1.0),
        noise=setting["click noise"],
        gain="binary",
        candidates=True,
        features=False,
        random_state=seed,
    )
    return aggregate_clicks(X.assign(click=clicks), training)


# %%
# nDCG@3 on queries that nobody asked
# -----------------------------------
rows = []
for seed in range(5):
    documents = make_ltr(2 * N_QUERIES, n_features=30, random_state=seed)
    asked = documents["qid"] < N_QUERIES
    training, test = documents[asked], documents[~asked]
    relevant = (test["relevance"] > 2).astype(int)
    for study, values in STUDIES.items():
        for value in values:
            log, click_rate = top_5_log(training, seed, {**USUAL, study: value})
            for name, ranker in RANKERS.items():
                scores = ranker.fit(log, click_rate).predict(test)
                quality = ndcg_score(relevant, scores, qid=test["qid"], k=3)
                row = {"run": seed, "study": study, "value": value, "ranker": name}
                rows.append({**row, "nDCG@3": quality})
runs = pd.DataFrame(rows)
for study, part in runs.groupby("study", sort=False):
    means = part.pivot_table(index="ranker", columns="value", values="nDCG@3", sort=False)
    print(means.rename_axis(columns=study).round(3).to_string(), end="\n\n")

# %%
# The figure
# ----------
#
# Means over five runs, with standard errors. Documents of one run are easier than those of another
# for all rankers; that is left out of the errors.
of_run = runs.groupby("run")["nDCG@3"].transform("mean")
runs["less its run"] = runs["nDCG@3"] - of_run + runs["nDCG@3"].mean()
COLORS = method_colors(["naive", "IPS", "CLD", "Heckman"]) | {"Heckman, naive": "#a3b18a"}
figure, panels = plt.subplots(1, 2, figsize=(10, 4.8), layout="constrained", sharey=True)
for axes, study in zip(panels, STUDIES, strict=True):
    for name, color in COLORS.items():
        part = runs[(runs["study"] == study) & (runs["ranker"] == name)]
        point = part.groupby("value")["less its run"].agg(["mean", "sem"])
        axes.errorbar(
            point.index,
            point["mean"],
            point["sem"],
            color=color,
            label=name,
            marker="o",
            capsize=3,
        )
    axes.spines[["top", "right"]].set_visible(False)
panels[0].set_xscale("log")
panels[0].set_xlabel("sessions of 600 queries, click noise 0.1")
panels[1].set_xlabel("click noise, 30,000 sessions")
panels[1].set_xticks(STUDIES["click noise"])
panels[0].set_title("More sessions")
panels[1].set_title("More clicks on what is irrelevant")
panels[0].set_ylabel("nDCG@3 on other queries")
figure.legend(
    *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False
)
plt.show()

# %%
# The claim, checked
# ------------------
#
# With many sessions CLD is ahead of both, with few the naive ranker is; and careless clicks cost
# only those rankers much that take clicks as they are.
means = runs.pivot_table(index=["study", "ranker"], columns="value", values="nDCG@3")
sessions, noise = (means.loc[study].dropna(axis=1) for study in STUDIES)
assert sessions[100_000].idxmax() == "CLD"
assert abs(sessions.loc["IPS", 100_000] - sessions.loc["naive", 100_000]) < 0.015
assert sessions[1_000].idxmax() == "naive"
cost = noise[0.0] - noise[0.5]
assert cost[["CLD", "IPS", "Heckman"]].max() < 0.02 < 0.04 < cost["naive"]
