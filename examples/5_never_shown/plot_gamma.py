"""
What a log determines about gamma
=================================

**Claim.** In a world that follows the model, ``gamma="estimate"`` finds the correlation of the
errors of relevance and selection, with an interval. On a log of the top 5 the likelihood grows to
the bound in both worlds, whether production knew more than the features or not, and so large a
gamma ranks worst. The value that you set is an assumption about production: 0 is best where it
knew nothing but the features, 0.1 to 0.3 where it did.

**Limit.** The clicks do not show which of the two it was: the curves of the likelihood look alike.
The best gamma depends on how strong the hidden signal is; here it is as strong as all features
together, and correlates 0.5 with relevance.
"""

# %%
# A world that follows the model
# ------------------------------
#
# Labels and selection are linear in two features, with normal errors that correlate 0.4. A
# document is shown where a variable of its own passes a threshold.
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skultr import CLDRanker, aggregate_clicks
from skultr.datasets import make_ltr
from skultr.exceptions import NotIdentifiableWarning
from skultr.metrics import ndcg_score
from skultr.simulation import (
    PositionBasedUser,
    hidden_signal_scores,
    production_scores,
    simulate_clicks,
)

#: The published models by rows: linear, fitted in a second.
LINEAR = {"loss": "pointwise", "hidden_layer_sizes": ()}

rng = np.random.default_rng(0)
features = rng.normal(size=(50_000, 2)).astype(np.float32)
errors = rng.multivariate_normal([0, 0], [[1, 0.4], [0.4, 1]], len(features))
tobit = pd.DataFrame(features, columns=["f0", "f1"])
tobit["qid"], tobit["doc"] = np.arange(len(tobit)) // 20, np.arange(len(tobit))
shown = features @ [0.5, 0.8] - 0.3 + errors[:, 1] > 0
place = tobit.assign(shown=shown).groupby(["qid", "shown"]).cumcount() + 1
tobit["position"] = place.where(shown)
tobit["impressions"] = 1e6  # chance in the clicks is left out here
rate = np.where(shown, np.clip(0.5 + features @ [0.05, -0.03] + 0.08 * errors[:, 0], 0, 1), 0.0)
well = CLDRanker(**LINEAR, gamma="estimate", propensity=np.ones(20), alpha=0.0).fit(tobit, rate)
print(
    f"gamma {well.gamma_:.3f}, interval {np.round(well.gamma_interval_, 3)}; the true one is 0.4"
)

# %%
# A log of the top 5
# ------------------
#
# Here a document is shown if it is among the best 5 of its 20, and users click or do not. In one
# such log production went by the features, in the other also by a signal that correlates 0.5
# with relevance.
N_QUERIES = 600
WORLDS = {"by the features": 0.0, "also by a hidden signal": 1.0}
GAMMAS = [0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9]


def top_5_log(training, strength, seed):
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
        n_positions=5,
        scores=scores,
        user=PositionBasedUser(1.0),
        gain="binary",
        candidates=True,
        features=False,
        random_state=seed,
    )
    return *aggregate_clicks(X.assign(click=clicks), training), truth.examination


rows, estimated = [], {}
for seed in range(5):
    documents = make_ltr(2 * N_QUERIES, n_features=30, random_state=seed)
    asked = documents["qid"] < N_QUERIES
    training, test = documents[asked], documents[~asked]
    relevant = (test["relevance"] > 2).astype(int)
    for world, strength in WORLDS.items():
        log, click_rate, examination = top_5_log(training, strength, seed)
        for gamma in GAMMAS:
            ranker = CLDRanker(**LINEAR, propensity=examination, gamma=gamma).fit(log, click_rate)
            value = ndcg_score(relevant, ranker.predict(test), qid=test["qid"], k=3)
            rows.append({"run": seed, "world": world, "gamma": gamma, "nDCG@3": value})
        if seed == 0:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NotIdentifiableWarning)
                ranker = CLDRanker(**LINEAR, propensity=examination, gamma="estimate")
                estimated[world] = ranker.fit(log, click_rate)
for world, ranker in estimated.items():
    low, high = ranker.gamma_interval_
    likeliest = ranker.gamma_profile_["log_likelihood"].idxmax()
    print(f"{world}: gamma {likeliest:.2f}, interval from {low:.2f} to {high:.2f}")
runs = pd.DataFrame(rows)
print(runs.pivot_table(index="world", columns="gamma", values="nDCG@3", sort=False).round(3))

# %%
# The figure
# ----------
#
# Left and middle, the log-likelihood of each gamma minus its maximum; above the dashed line is
# the 95 % interval. Right, the quality of a ranker with that gamma: means over five runs, with
# standard errors. Documents of one run are easier than those of another, whatever gamma is: that
# is left out of the errors.
of_run = runs.groupby(["world", "run"])["nDCG@3"].transform("mean")
runs["less its run"] = runs["nDCG@3"] - of_run + runs.groupby("world")["nDCG@3"].transform("mean")
COLORS = {"by the features": "#7251b5", "also by a hidden signal": "#bc6c25"}
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
profile = well.gamma_profile_["log_likelihood"]
left.plot(profile - profile.max(), "o-", color="#a3b18a", markersize=4)
left.axvline(0.4, color="black", linewidth=0.8)
left.annotate(" the true gamma", (0.4, -21), fontsize=9)
left.set(xlim=(0.2, 0.6), ylim=(-25, 1.5), title="A world that follows the model")
left.axhline(-1.92, color="black", linestyle="--", linewidth=0.8)
for world, ranker in estimated.items():
    profile = ranker.gamma_profile_["log_likelihood"]
    middle.plot(profile - profile.max(), "o-", color=COLORS[world], markersize=4, label=world)
    part = runs[runs["world"] == world]
    point = part.groupby("gamma")["less its run"].agg(["mean", "sem"])
    right.errorbar(
        point.index, point["mean"], point["sem"], color=COLORS[world], marker="o", capsize=3
    )
middle.set_title("Logs of the top 5")
middle.legend(title="production ranked", frameon=False)
right.set(title="Quality there", ylabel="nDCG@3 on other queries")
for axes in (left, middle):
    axes.set_ylabel("log-likelihood minus its maximum")
for axes in (left, middle, right):
    axes.set_xlabel("gamma")
    axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The claim, checked
# ------------------
#
# The interval holds the true gamma in the world that follows the model. On logs of the top 5 the
# likelihood is largest at the bound of gamma in both worlds, where it ranks worst; ``fit`` warns
# and takes what is plausible without a log.
lower, upper = well.gamma_interval_
assert lower < 0.4 < upper
assert abs(well.gamma_ - 0.4) < 0.1
means = runs.pivot_table(index="world", columns="gamma", values="nDCG@3")
for world, ranker in estimated.items():
    assert ranker.gamma_profile_["log_likelihood"].idxmax() > 0.9
    assert round(ranker.gamma_, 1) == 0.1
    assert means.loc[world].idxmin() == 0.9
assert means.loc["by the features"].idxmax() <= 0.1
assert 0.1 <= means.loc["also by a hidden signal"].idxmax() <= 0.3
