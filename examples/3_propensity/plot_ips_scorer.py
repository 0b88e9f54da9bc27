"""
Choosing a model by clicks, without being fooled by them
========================================================

**Claim.** A search over models that scores them by held-out clicks picks the one that copies
production: clicks are where documents were shown. The same search with
:class:`~skultr.metrics.IPSScorer`, which divides each click by its examination probability, picks
the model that human annotation would pick, or the next one, without reading any annotation.

**Limit.** The scorer is given the propensities, and its verdict is as good as they are. Documents
that were never shown count as irrelevant. The estimate is noisy: it cannot distinguish models that
differ by less than its standard error. Users are position-based.
"""

# %%
# Logs, and nine models
# ---------------------
#
# Users examine position k with probability 1 / k. The models correct for it more or less: they
# assume (1 / k) ** η. With η = 0 nothing is corrected (the naive ranker); 1 is right; 2 is too
# much.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from lightgbm import LGBMRanker
from sklearn.model_selection import GridSearchCV

from skultr import aggregate_clicks
from skultr.datasets import make_ltr
from skultr.metrics import IPSScorer, RankingScorer
from skultr.model_selection import QueryKFold
from skultr.plotting import method_colors
from skultr.propensity import PowerLawPropensity
from skultr.rankers import IPSRanker
from skultr.simulation import PositionBasedUser, simulate_clicks

ETAS = np.arange(0, 2.01, 0.25)
SCORERS = {
    "annotation (nDCG)": RankingScorer(),
    "IPSScorer": IPSScorer(propensity=1 / np.arange(1, 11)),
    "raw clicks": IPSScorer(propensity=np.ones(10)),
}


def search(seed):
    """Mean test score of each model by each scorer."""
    documents = make_ltr(n_queries=500, n_features=20, random_state=seed)
    X, clicks, _ = simulate_clicks(
        documents,
        user=PositionBasedUser(1.0),
        n_sessions=50_000,
        features=False,
        random_state=seed,
    )
    log, click_rate = aggregate_clicks(X.assign(click=clicks), documents)
    trees = LGBMRanker(objective="rank_xendcg", n_estimators=50, verbosity=-1, n_jobs=1)
    found = GridSearchCV(
        IPSRanker(estimator=trees),
        {"propensity": [PowerLawPropensity(eta) for eta in ETAS]},
        cv=QueryKFold(3),
        scoring=SCORERS,
        refit=False,
    ).fit(log, click_rate)
    scores = {name: found.cv_results_[f"mean_test_{name}"] for name in SCORERS}
    return pd.DataFrame(scores, index=pd.Index(ETAS, name="η"))


# %%
# Five searches, three ways to score
# ----------------------------------
#
# One search per log scores the models in all three ways, on queries that were held out. A scorer
# with propensity 1 is the DCG of the raw clicks.
searches = [search(seed) for seed in range(5)]
for seed, scores in enumerate(searches):
    picks = ", ".join(f"{name}: η = {scores[name].idxmax()}" for name in scores)
    print(f"log {seed}: picks by {picks}")
print(searches[0].round(3).to_string())

# %%
# The figure
# ----------
#
# The scorers have different units, so scores are drawn between the worst (0) and the best (1) of
# their search. Circles mark what a search picks; the dashed line is the truth.
figure, panels = plt.subplots(1, 3, figsize=(11, 3.8), sharey=True, layout="constrained")
COLORS = dict(zip(SCORERS, method_colors(["skyline", "IPS", "naive"]).values(), strict=True))
for axes, name in zip(panels, SCORERS, strict=True):
    for scores in searches:
        lowest, highest = scores[name].min(), scores[name].max()
        relative = (scores[name] - lowest) / (highest - lowest)
        axes.plot(relative, ".-", color=COLORS[name], alpha=0.7)
        axes.plot(relative.idxmax(), 1, "o", markersize=11, fillstyle="none", color=COLORS[name])
    axes.set_title(f"scored by {name}")
    axes.set_xticks(ETAS[::2])
    axes.set_xlabel("assumed η")
    axes.axvline(1.0, color="black", linestyle="--", linewidth=0.8, zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
panels[0].set_ylabel("score, from worst to best")
plt.show()

# %%
# What a pick costs
# -----------------
#
# The nDCG by annotation of the model that each scorer picks, mean over the searches.
annotation = "annotation (nDCG)"
costs = {
    name: np.mean([scores[annotation][scores[name].idxmax()] for scores in searches])
    for name in SCORERS
}
print(pd.Series(costs, name="nDCG of the pick").round(4).to_string())

# %%
# The claim, checked
# ------------------
#
# Raw clicks pick no correction or next to none. IPSScorer picks what annotation picks, or a
# neighbour in the mean, and loses next to nothing by it.
picks = pd.DataFrame([scores.idxmax() for scores in searches])
assert picks["raw clicks"].max() <= 0.25
assert (picks["IPSScorer"] - picks[annotation]).abs().mean() <= 0.25
assert costs[annotation] - costs["IPSScorer"] < 0.01 < costs[annotation] - costs["raw clicks"]
