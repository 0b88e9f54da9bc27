"""
Choosing by the likelihood of held-out clicks
=============================================

**Claim.** :class:`~skultr.metrics.ClickLikelihoodScorer` asks how well scores explain *where* on
a page held-out clicks fell, beyond what examination explains. It reads no annotation and orders
rankers about as annotation does. It divides no click by a propensity and is less noisy than
:class:`~skultr.metrics.IPSScorer`: two rankers that are next to each other differ by about 2.8
standard deviations here, by :class:`~skultr.metrics.IPSScorer` by 1.5.

**Limit.** Both are given the right propensities, and are only as good as these. If the curve is
too steep (on the right of the figure), the score is near 0 for the best and the worst ranker, and
whichever it picks is picked by noise. Users are position-based.
"""

# %%
# A small log, and rankers from bad to good
# -----------------------------------------
#
# 4,000 sessions. Users examine position k with probability 1 / k. The candidates are the
# annotation itself with more and more noise, so that their order of quality is known.
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skultr.datasets import make_ltr
from skultr.exceptions import AssumptionWarning
from skultr.metrics import ClickLikelihoodScorer, IPSScorer, ndcg_score
from skultr.simulation import (
    PlackettLucePolicy,
    PositionBasedUser,
    noisy_oracle_scores,
    simulate_clicks,
)

EXAMINATION = 1 / np.arange(1, 11)
NOISE = np.linspace(0.5, 4, 8)
documents = make_ltr(n_queries=400, n_documents=10, n_features=5, random_state=0)


class Known:
    """A ranker whose scores of the documents are known."""

    def __init__(self, scores):
        self.scores = pd.Series(scores, documents["doc"])

    def predict(self, X):
        return self.scores[X["doc"]].to_numpy()


rng = np.random.default_rng(0)
rankers = [Known(documents["relevance"] + rng.normal(0, s, len(documents))) for s in NOISE]
ndcg = [
    ndcg_score(documents["relevance"], ranker.scores, qid=documents["qid"], k=10)
    for ranker in rankers
]


def log_of(seed):
    return simulate_clicks(
        documents,
        n_sessions=4_000,
        scores=noisy_oracle_scores(documents, random_state=0),
        policy=PlackettLucePolicy(temperature=0.3),
        user=PositionBasedUser(1.0),
        features=False,
        random_state=seed,
    )[:2]


# %%
# Ten logs, two scorers
# ---------------------
#
# Ten logs of the same documents show the noise. A third scorer is given a curve that is too steep:
# that alone explains the clicks, and the scorer warns that the best scale of the scores is 0.
warnings.simplefilter("ignore", AssumptionWarning)
scorers = {
    "ClickLikelihoodScorer": ClickLikelihoodScorer(propensity=EXAMINATION),
    "IPSScorer": IPSScorer(propensity=EXAMINATION),
    "ClickLikelihoodScorer, given 1 / k²": ClickLikelihoodScorer(propensity=EXAMINATION**2),
}
values = {name: np.empty((10, len(rankers))) for name in scorers}
for seed in range(10):
    X, clicks = log_of(seed)
    for name, scorer in scorers.items():
        values[name][seed] = [scorer(ranker, X, clicks) for ranker in rankers]

# %%
# Is one ranker better than the other?
# ------------------------------------
#
# With a ``baseline`` the estimate is a difference, with the standard error of the difference.
found = scorers["ClickLikelihoodScorer"].estimate(rankers[2], X, clicks, baseline=rankers[3])
print(f"gain over the next ranker: {found.value:.4f} nats per click ± {found.standard_error:.4f}")

# %%
# The figure
# ----------
#
# One line per log. ``t`` is the mean difference of two neighbours over its standard deviation
# between logs: how surely one log tells them apart.
figure, panels = plt.subplots(1, 3, figsize=(12.5, 3.9), layout="constrained")
surely = {}
for axes, (name, of) in zip(panels, values.items(), strict=True):
    good = not name.endswith("²")
    axes.plot(ndcg, of.T, ".-", color="#7251b5" if good else "#bc6c25", alpha=0.45, linewidth=1)
    axes.plot(ndcg, of.mean(axis=0), "o-", color="black", markersize=4)
    step = -np.diff(of, axis=1)  # the candidates are sorted from good to bad
    t = surely[name] = np.median(step.mean(axis=0) / step.std(axis=0, ddof=1))
    right = f"right order of neighbours: {np.mean(step > 0):.0%}"
    axes.set_title(f"{name}\n{right}; median t = {t:.1f}", fontsize=10)
    axes.set_xlabel("nDCG@10 by annotation")
    axes.spines[["top", "right"]].set_visible(False)
panels[0].set_ylabel("score by held-out clicks")
plt.show()

# %%
# The claim, checked
# ------------------
#
# The likelihood tells neighbours apart more surely than the estimated DCG does, and a curve that
# is too steep leaves it nothing.
likelihood, ips, steep = surely.values()
assert likelihood > 1.3 * ips > 0
assert steep < likelihood / 2
