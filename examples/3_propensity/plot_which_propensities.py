"""
Four ways to an examination curve, on one log
=============================================

**Claim.** An experiment, rankers that disagree, regression-EM and dual learning (DLA) find the
same curve, 1 / position, in the same log: each within 0.03 of it. The click rate, which reports
show, is further off. What differs is the price. The experiment assumes least and reads a small
part of the traffic, so its intervals are the widest; the network of dual learning needs no
document at two positions, and has no interval.

**Limit.** The users are position-based, as all four methods assume: they agree where their common
assumption holds, and agreement does not prove it. The intervals are those of chance, over logs
like this one; an interval of 95 % misses the truth now and then.
"""

# %%
# One log with an experiment in it
# --------------------------------
#
# Three rankers share 150,000 sessions, as in an A/B test. In 50,000 more, the first document and
# another one changed places at random; the column ``arm`` marks the pair.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skultr import aggregate_clicks
from skultr.datasets import make_ltr
from skultr.plotting import ExaminationDisplay
from skultr.propensity import (
    DualLearningPropensity,
    InterventionHarvesting,
    RandomizedPropensity,
    RegressionEMPropensity,
)
from skultr.simulation import (
    MixturePolicy,
    PositionBasedUser,
    SwapPolicy,
    production_scores,
    simulate_clicks,
)

documents = make_ltr(n_queries=500, n_features=10, random_state=0)
rankers = [production_scores(documents, fraction=0.05, random_state=seed) for seed in range(3)]
settings = {"user": PositionBasedUser(1.0), "features": False, "random_state": 0}
test, test_clicks, truth = simulate_clicks(
    documents,
    n_sessions=150_000,
    scores=np.column_stack(rankers),
    policy=MixturePolicy(),
    **settings,
)
swaps, swap_clicks, _ = simulate_clicks(
    documents, n_sessions=50_000, scores=rankers[0], policy=SwapPolicy(), **settings
)
swaps["session"] += 150_000
log = pd.concat([test, swaps], ignore_index=True)
clicks = np.concatenate([test_clicks, swap_clicks])
print(log.tail(10).assign(click=clicks[-10:]).to_string(index=False))

# %%
# Four estimators
# ---------------
#
# Harvesting compares each document with itself at other positions. Regression-EM explains all
# clicks by one relevance per document and one examination per position. Both, and the experiment,
# need no features. Dual learning (DLA) learns relevance from the features by a network; it reads
# the log with its sessions counted, because two million rows with features would be large.
counted, click_rate = aggregate_clicks(log.drop(columns="arm").assign(click=clicks), documents)
estimators = {
    "swap experiment": RandomizedPropensity(arm="arm").fit(log, clicks),
    "harvesting": InterventionHarvesting(random_state=0).fit(log, clicks),
    "regression-EM": RegressionEMPropensity(relevance="embedding").fit(log, clicks),
    "DLA": DualLearningPropensity(random_state=0).fit(counted, click_rate),
}
print(estimators["swap experiment"].examination_.round(3).to_string())

# %%
# ``standard_error`` is that of the *logarithm*; ``lower`` and ``upper`` are the 95 % interval it
# makes. Impressions and clicks are those of the experiment.

# %%
# The curves, and how far they are off
# ------------------------------------
#
# Left, all of them against the truth. They can hardly be distinguished, so the right panel shows
# their differences from the truth, each with its interval.
figure, (curves, errors) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
display = ExaminationDisplay.from_estimators(estimators, truth=truth.examination, ax=curves)
rate = pd.Series(clicks).groupby(log["position"].to_numpy()).mean()
curves.plot(rate / rate[1], ":", color="tab:gray", label="click rate")
curves.legend(frameon=False)

summary = {}
for number, (name, estimator) in enumerate(estimators.items()):
    table = estimator.examination_.drop(1)
    true = truth.examination[table.index - 1]
    error = table["examination"] - true
    bars = [table["examination"] - table["lower"], table["upper"] - table["examination"]]
    style = {"fmt": "osD^"[number], "color": display.lines_[name].get_color()}
    errors.errorbar(table.index + 0.16 * (number - 1.5), error, bars, markersize=4, **style)
    held = (table["lower"] <= true) & (true <= table["upper"])
    summary[name] = {
        "largest error": error.abs().max(),
        "mean width of interval": (table["upper"] - table["lower"]).mean(),
        "intervals that hold": held.mean() if table["lower"].notna().any() else np.nan,
    }
errors.axhline(0, color="black", linestyle="--", linewidth=1)
errors.axhspan(-0.03, 0.03, color="black", alpha=0.05, linewidth=0)
errors.set_xticks(table.index)
errors.set_xlabel("position")
errors.set_ylabel("estimate − truth, with 95 % interval")
errors.spines[["top", "right"]].set_visible(False)
plt.show()

summary["click rate"] = {"largest error": (rate / rate[1] - truth.examination).abs().max()}
found = pd.DataFrame(summary).T
print(found.round(3).to_string())

# %%
# The claim, checked
# ------------------
#
# All four are within 0.03 of the truth, the click rate is not, and the experiment has the widest
# intervals.
largest = found["largest error"]
assert largest.drop("click rate").max() < 0.03 < largest["click rate"]
assert found["mean width of interval"].idxmax() == "swap experiment"

# %%
# The gray area is ±0.03. A ranker takes any of these as ``propensity=``, unfitted:
# ``IPSRanker(propensity=InterventionHarvesting())``. An estimate from an experiment, which is
# another log, is passed fitted: ``IPSRanker(propensity=FrozenEstimator(fitted))``.
