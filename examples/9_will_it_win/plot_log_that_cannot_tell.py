"""
A log in one order cannot tell, and what would
==============================================

**Claim.** From a log that showed every query in one order,
:func:`~skultr.evaluation.policy_difference` gives no number but "cannot tell", by a click model as
well as with the true examination, which this log cannot test. A tenth of the sessions in random
order is enough: the default method then says that the new ranking wins. A fifth of them does
without any formula, and pays with a wide interval. Both intervals hold the true gain.

**Limit.** Users here are position-based. Sessions in random order cost clicks; an
:doc:`experiment that is planned <plot_experiment_planned>` costs fewer.
"""

# %%
# A log in one order
# ------------------
#
# Production is the annotation with noise, the new ranking has half of it. Users examine position k
# with probability 1 / k; the truth is therefore known without any click.
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skultr.click_models import PBMModel
from skultr.datasets import make_ltr
from skultr.evaluation import policy_difference
from skultr.exceptions import NotIdentifiableWarning
from skultr.simulation import PositionBasedUser, ShufflePolicy, simulate_clicks

EXAMINATION = 1 / np.arange(1, 11)
documents = make_ltr(n_queries=400, n_documents=10, n_features=5, random_state=0)
rng = np.random.default_rng(0)


def ranker(noise):
    scores = documents["relevance"] + rng.normal(0, noise, len(documents))
    return pd.Series(scores.to_numpy(), index=documents["doc"])


production, new = ranker(2), ranker(1)


def log_of(share):
    """A log of production that shows a share of the sessions in random order."""
    log, clicks, truth = simulate_clicks(
        documents,
        n_sessions=60_000,
        scores=production,
        policy=ShufflePolicy(share),
        user=PositionBasedUser(1.0),
        features=False,
        random_state=0,
    )
    return log.drop(columns="arm"), clicks, truth.relevance_probability


def difference(log, clicks, **method):
    scores = log["doc"].map(new), log["doc"].map(production)
    return policy_difference(log, clicks, *scores, **method)


# %%
# What the logs answer
# --------------------
#
# (The click model warns, too, that one order does not determine what it estimates.)
warnings.simplefilter("ignore", NotIdentifiableWarning)
log, clicks, relevance = log_of(0)
tenth, tenth_clicks, _ = log_of(0.1)
fifth, fifth_clicks, _ = log_of(0.2)
found = {
    "One order": difference(log, clicks),
    "One order,\nby a click model": difference(log, clicks, method="direct", model=PBMModel()),
    "One order,\nby the true examination": difference(
        log, clicks, method="pbm", propensity=EXAMINATION
    ),
    "1 in 10 sessions\nin random order": difference(tenth, tenth_clicks),
    "1 in 5 sessions in random order,\nby item and position": difference(
        fifth, fifth_clicks, method="item-position"
    ),
}
for name, estimate in found.items():
    print(f"{' '.join(name.split())}: {estimate.verdict}")


# %%
# The truth
# ---------
def expected_clicks(scores):
    """Clicks per page: relevance times examination, summed over the order by these scores."""
    page = documents.assign(scores=scores.to_numpy(), relevance=relevance)
    page = page.sort_values(["qid", "scores"], ascending=[True, False])
    return (page["relevance"].to_numpy().reshape(-1, 10) * EXAMINATION).sum(axis=1).mean()


true = expected_clicks(new) - expected_clicks(production)
silent = [name for name, estimate in found.items() if estimate.verdict.startswith("cannot tell")]
assert silent == list(found)[:3]
for name in list(found)[3:]:
    low, high = found[name].interval
    assert 0 < low < true < high

figure, ax = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
ax.axvline(0, color="0.6", linewidth=0.8)
ax.axvline(true, color="black", linestyle="--")
ax.text(true, -0.86, "true gain", ha="center", va="center", fontweight="bold", backgroundcolor="w")
for place, estimate in enumerate(found.values()):
    low, high = estimate.interval
    if np.isnan(low):
        ax.text(0.004, place, "cannot tell", va="center", color="#8c5e34", fontweight="bold")
        continue
    ax.plot([low, high], [place, place], color="#2e86ab", linewidth=2.5)
    ax.plot(estimate.value, place, "o", color="#2e86ab", markersize=8)
ax.set_yticks(range(len(found)), found)
ax.set_ylim(len(found) - 0.4, -1.0)
ax.set_xlim(-0.01, 0.135)
ax.set_xlabel("clicks per page that the new ranking gains (95 % interval)")
ax.spines[["top", "right"]].set_visible(False)
plt.show()
