"""
Users who trust the top of the page
===================================

**Claim.** Users who trust the top mislead every ranker that divides by examination alone. Of the
rankers that learn from the clicks, the affine one, which allows for trust, and the one of vectors
come nearest to the skyline, which is trained on the truth. The coefficients that the affine one
learns lie close to the truth, up to the affine map that no log determines. The naive ranker is
behind all others.

**Limit.** Three worlds of 1,200 queries, in which differences of 0.01 are noise: two-dimensional
vectors and the affine ranker differ by less. The log is deterministic, so that features
alone link the positions.
"""

# %%
# The world
# ---------
#
# Users click what is irrelevant too, because it stands high: P(click) = α r + β at each position,
# with a β of 0.44 at the first. No examination curve can make up for that. Production saw the
# labels of 2 % of the queries and never varies its order.
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skultr import DLARanker, VectorizationRanker, aggregate_clicks
from skultr.datasets import make_ltr
from skultr.exceptions import NotIdentifiableWarning
from skultr.metrics import ndcg_score
from skultr.model_selection import train_test_queries
from skultr.plotting import method_colors
from skultr.rankers import AffineRanker, NaiveRanker, RegressionEMRanker
from skultr.simulation import TrustBiasUser, production_scores, simulate_clicks

# One fixed order links no positions. The features do, because they explain relevance here, but the
# log cannot confirm it, and fit would warn.
warnings.simplefilter("ignore", NotIdentifiableWarning)

N_TRAINING, N_SESSIONS, N_RUNS = 1_200, 240_000, 3


def run(seed):
    """nDCG@10 on held-out queries, the fitted affine ranker and the truth."""
    documents = make_ltr(n_queries=N_TRAINING + 800, n_features=30, random_state=seed)
    train, test = train_test_queries(documents, train_size=N_TRAINING, random_state=seed)
    X, clicks, truth = simulate_clicks(
        train,
        n_sessions=N_SESSIONS,
        scores=production_scores(train, fraction=0.02, random_state=seed),
        user=TrustBiasUser(),
        noise=0.0,
        features=False,
        random_state=seed,
    )
    log, click_rate = aggregate_clicks(X.assign(click=clicks), train)
    rankers = {
        "naive": NaiveRanker(random_state=seed),
        "DLA": DLARanker(random_state=seed),
        "regression-EM": RegressionEMRanker(random_state=seed),
        "vectorization": VectorizationRanker(random_state=seed),
        "affine": AffineRanker(random_state=seed),
    }
    for ranker in rankers.values():
        ranker.fit(log, click_rate)
    # The skyline learns from the relevance of every training document, which users click by.
    gain = (2.0 ** train["relevance"] - 1) / 15
    page = train.assign(position=train.groupby("qid").cumcount() + 1)
    rankers["skyline"] = NaiveRanker(random_state=seed).fit(page, gain)
    quality = {
        name: ndcg_score(test["relevance"], ranker.predict(test), qid=test["qid"], k=10)
        for name, ranker in rankers.items()
    }
    return pd.Series(quality), rankers["affine"].trust_, truth


# %%
# Quality
# -------
#
# All rankers with their default settings, in three worlds.
found = [run(seed) for seed in range(N_RUNS)]
runs = pd.DataFrame([quality for quality, _, _ in found]).rename_axis("run")
print(runs.round(4).to_string())
print("\nbehind the skyline\n" + runs.sub(runs["skyline"], axis=0).mean().round(4).to_string())

# %%
# What the affine ranker learned
# ------------------------------
#
# Clicks determine relevance up to an affine map r' = (r - a) / b, under which α' = b α and
# β' = β + a α. The two numbers of the map that brings the estimates nearest to the truth:


def on_the_scale_of(trust, truth):
    """The estimates of α and β for the relevance of the truth."""
    alpha, beta = trust["alpha"].to_numpy(), trust["beta"].to_numpy()
    b = alpha @ truth.alpha / (truth.alpha @ truth.alpha)
    a = (beta - truth.beta) @ alpha / (alpha @ alpha)
    return alpha / b, beta - a * alpha


figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 4.4), layout="constrained")
COLORS = method_colors(runs)
place = np.arange(runs.shape[1])
left.plot(place, runs.T, color="0.85", linewidth=1, zorder=0)
for ranker, (name, values) in enumerate(runs.items()):
    left.plot([ranker] * N_RUNS, values, "o", color=COLORS[name], markersize=4, alpha=0.6)
    left.plot(ranker, values.mean(), "_", color=COLORS[name], markersize=26, markeredgewidth=3)
    left.text(ranker + 0.1, values.mean() + 0.006, f"{values.mean():.3f}", color=COLORS[name])
left.set_xticks(place, runs.columns, rotation=20)
left.set(ylabel="nDCG@10 on held-out queries", title="Mean, and each of three worlds")

truth = found[0][2]
position = np.arange(1, len(truth.alpha) + 1)
for name, true, color in (("α", truth.alpha, "#7251b5"), ("β", truth.beta, "#bc6c25")):
    right.plot(position, true, "--", color=color, label=f"{name}, true")
for number, (_, trust, _) in enumerate(found):
    for name, learned, color, marker in zip(
        "αβ", on_the_scale_of(trust, truth), ("#7251b5", "#bc6c25"), "os", strict=True
    ):
        label = f"{name}, learned" if number == 0 else None
        right.plot(position, learned, marker, color=color, alpha=0.7, label=label)
right.set_xticks(position)
right.set(xlabel="position", ylabel="probability", title="P(click) = α · relevance + β")
right.legend(frameon=False)
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The claim, checked
# ------------------
#
# The naive ranker is last in each world, the rankers that allow for trust are nearest to the
# skyline, and the learned coefficients to the truth.
mean = runs.mean()
assert runs.drop(columns="naive").gt(runs["naive"], axis=0).all(axis=None)
assert mean[["affine", "vectorization"]].min() > mean[["DLA", "regression-EM"]].max()
for _, trust, truth in found:
    alpha, beta = on_the_scale_of(trust, truth)
    assert np.abs(alpha - truth.alpha).max() < 0.15
    assert np.abs(beta - truth.beta).max() < 0.15
