"""
The fewer were shown, the more it matters who chose
===================================================

**Claim.** If production chose what to show by something that no feature contains, the
documents shown mislead, and causal likelihood decomposition (CLD) with its default ``gamma=0.2``
is ahead of inverse propensities, more so if fewer were shown: by 0.02 of nDCG@3 at two documents,
by 0.01 at ten, by nothing if all are. If production used only the features, CLD loses about as
much: 0.01 at two, 0.02 at five.

**Limit.** Clicks cannot show in which of the two worlds you are. Rankers are linear, fitted to the
same labels with the same penalty; generated documents of 30 features, five runs. With 100 features
and more sessions (``benchmarks/studies/cld.py``) CLD loses nothing in the first world, and
Heckman's method on debiased clicks is as good as CLD in the second; here it falls behind where few
are shown.
"""

# %%
# Two worlds
# ----------
#
# The top *k* of 20 candidates are shown; grades 3 and 4 are relevant; users examine position k
# with probability 1 / k and click one in ten irrelevant documents that they look at. In one world
# production ranked by the features; in the other also by a signal that correlates 0.5 with
# relevance. With ``gamma=0`` the Tobit likelihood is least squares on inverse propensity labels.
import warnings

import matplotlib.pyplot as plt
import pandas as pd

from skultr import CLDRanker, aggregate_clicks
from skultr.datasets import make_ltr
from skultr.exceptions import AssumptionWarning, ClickDataWarning
from skultr.metrics import ndcg_score
from skultr.plotting import method_colors
from skultr.rankers import HeckmanRanker
from skultr.simulation import (
    PositionBasedUser,
    hidden_signal_scores,
    production_scores,
    simulate_clicks,
)

N_QUERIES = 600
#: The published models by rows: linear, fitted in a second.
LINEAR = {"loss": "pointwise", "hidden_layer_sizes": ()}
CUT_OFFS = [2, 3, 5, 10, 20]
WORLDS = {"by the features": 0.0, "also by a hidden signal": 1.0}


def top_k_log(training, k, strength, seed):
    """The log with the candidates that were not shown, its click rates, and the examination."""
    scores = hidden_signal_scores(
        production_scores(training, random_state=seed),
        training["relevance"],
        strength=strength,
        random_state=seed,
    )
    X, clicks, truth = simulate_clicks(
        training,
        n_sessions=30_000,
        n_positions=k,
        scores=scores,
        user=PositionBasedUser(1.0),
        gain="binary",
        candidates=True,
        features=False,
        random_state=seed,
    )
    log, click_rate = aggregate_clicks(X.assign(click=clicks), training)
    return log, click_rate, truth.examination


# %%
# nDCG@3 on queries that nobody asked
# -----------------------------------
#
# At *k* = 20 every candidate is shown, and ``CLDRanker`` warns that there is nothing to correct.
# In two logs with the hidden signal it also warns that clicks contradict the propensities, or that
# production ranked by more than the features; here it is the latter.
rows = []
for seed in range(5):
    documents = make_ltr(2 * N_QUERIES, n_features=30, random_state=seed)
    asked = documents["qid"] < N_QUERIES
    training, test = documents[asked], documents[~asked]
    relevant = (test["relevance"] > 2).astype(int)
    for world, strength in WORLDS.items():
        for k in CUT_OFFS:
            log, click_rate, examination = top_k_log(training, k, strength, seed)
            rankers = {
                "IPS": CLDRanker(**LINEAR, propensity=examination, gamma=0.0),
                "CLD": CLDRanker(**LINEAR, propensity=examination),
                "Heckman": HeckmanRanker(
                    hidden_layer_sizes=(), debias=True, propensity=examination
                ),
            }
            for name, ranker in rankers.items():
                with warnings.catch_warnings():
                    if k == 20:
                        warnings.simplefilter("ignore", ClickDataWarning)
                        warnings.simplefilter("ignore", AssumptionWarning)
                    ranker.fit(log, click_rate)
                value = ndcg_score(relevant, ranker.predict(test), qid=test["qid"], k=3)
                rows.append({"run": seed, "world": world, "k": k, "ranker": name, "nDCG@3": value})
runs = pd.DataFrame(rows)
means = runs.pivot_table(index=["world", "ranker"], columns="k", values="nDCG@3", sort=False)
print(means.round(3).to_string(na_rep=""))

# %%
# The figure
# ----------
#
# Means over five runs, with standard errors. Documents of one run are easier than those of another
# for all rankers; that is left out of the errors.
of_run = runs.groupby(["world", "run"])["nDCG@3"].transform("mean")
runs["less its run"] = runs["nDCG@3"] - of_run + runs.groupby("world")["nDCG@3"].transform("mean")
COLORS = method_colors(["IPS", "CLD", "Heckman"])
figure, panels = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained", sharey=True)
for axes, world in zip(panels, WORLDS, strict=True):
    for name, color in COLORS.items():
        part = runs[(runs["world"] == world) & (runs["ranker"] == name)]
        point = part.groupby("k")["less its run"].agg(["mean", "sem"])
        axes.errorbar(
            point.index,
            point["mean"],
            point["sem"],
            color=color,
            label=name,
            marker="o",
            capsize=3,
        )
    axes.set_title(f"Production ranked {world}")
    axes.set_xscale("log")
    axes.set_xticks(CUT_OFFS, CUT_OFFS)
    axes.minorticks_off()
    axes.set_xlabel("documents shown, of 20")
    axes.spines[["top", "right"]].set_visible(False)
panels[0].set_ylabel("nDCG@3 on other queries")
panels[1].legend(frameon=False)
plt.show()

# %%
# The claim, checked
# ------------------
#
# CLD against inverse propensities (IPS) in both worlds, by the number of documents shown.
gain = means.xs("CLD", level="ranker") - means.xs("IPS", level="ranker")
hidden, features = gain.loc["also by a hidden signal"], gain.loc["by the features"]
assert hidden[2] > 0.01
assert hidden[10] > 0.003
assert abs(hidden[20]) < 0.005
assert features[[2, 3, 5]].max() < -0.004
