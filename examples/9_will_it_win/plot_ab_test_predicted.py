"""
A/B tests of six rankers, predicted from one log
================================================

**Claim.** One log of an old ranking tells what six new ones would gain or lose:
:func:`~skultr.evaluation.policy_difference` predicts the difference in clicks per page, and the
simulated A/B tests find it. Where the prediction says who wins, the A/B test has the same sign.
Each of the tests needs 40,000 sessions of its own, and shows half of them a ranking that may be
worse; the log served all six predictions, and is already there.

**Limit.** Users are position-based. Six predictions from one log err together. Users who leave
after the first click give the same clicks to any order of these documents; a log of theirs gets
the verdict "cannot tell". The log varied its order: one that does not cannot tell either
(:ref:`next page <sphx_glr_auto_examples_9_will_it_win_plot_log_that_cannot_tell.py>`).
"""

# %%
# The log, and six rankers
# ------------------------
#
# Production is the annotation with noise. It served 60,000 sessions and varied its order a little.
# The new rankers are the annotation with less or more noise.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skultr.datasets import make_ltr
from skultr.evaluation import policy_difference
from skultr.simulation import PlackettLucePolicy, PositionBasedUser, simulate_clicks

documents = make_ltr(n_queries=400, n_documents=10, n_features=5, random_state=0)
rng = np.random.default_rng(0)


def ranker(noise):
    scores = documents["relevance"] + rng.normal(0, noise, len(documents))
    return pd.Series(scores.to_numpy(), index=documents["doc"])


def serve(scores, n_sessions, seed, policy=None):
    """Lists of a ranker, and what users click who examine position k with probability 1 / k."""
    return simulate_clicks(
        documents,
        n_sessions=n_sessions,
        scores=scores,
        policy=policy,
        user=PositionBasedUser(1.0),
        features=False,
        random_state=seed,
    )[:2]


production = ranker(noise=2)
log, clicks = serve(production, 60_000, seed=0, policy=PlackettLucePolicy(temperature=0.5))
rankers = {f"noise {noise:g}": ranker(noise) for noise in (0.5, 1, 1.5, 2.5, 3.5, 6)}

# %%
# What the log predicts
# ---------------------
#
# What positions do to clicks comes from the same log, by documents that it showed at several.
rows = {}
for name, scores in rankers.items():
    scores = log["doc"].map(scores), log["doc"].map(production)
    found = policy_difference(log, clicks, *scores)
    low, high = found.interval
    rows[name] = {"predicted": found.value, "low": low, "high": high, "p": found.p_value}
print(found.verdict)

# %%
# What A/B tests find
# -------------------
#
# Half of the sessions see production, half the new ranker.
for number, (name, scores) in enumerate(rankers.items(), 1):
    arms = serve(scores, 20_000, seed=number), serve(production, 20_000, seed=-number % 100)
    pages = [pd.Series(c).groupby(lists["session"].to_numpy()).sum() for lists, c in arms]
    rows[name]["A/B test"] = pages[0].mean() - pages[1].mean()
    rows[name]["error"] = np.sqrt(sum(of.var() / len(of) for of in pages))
table = pd.DataFrame(rows).T
print(table.round(3).to_string())

# %%
# Both agree
# ----------
table = table.sort_values("A/B test")
sure = table["p"] < 0.05
assert (np.sign(table["predicted"]) == np.sign(table["A/B test"]))[sure].all()
assert sure.sum() >= 4
error = np.hypot((table["high"] - table["low"]) / 3.92, table["error"])
assert ((table["predicted"] - table["A/B test"]).abs() < 2.6 * error).all()

place = np.arange(len(table))
figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
ax.axvline(0, color="0.6", linewidth=0.8)
predicted = ax.errorbar(
    table["predicted"],
    place + 0.12,
    xerr=[table["predicted"] - table["low"], table["high"] - table["predicted"]],
    fmt="o",
    color="#2e86ab",
    markersize=7,
)
tested = ax.errorbar(
    table["A/B test"],
    place - 0.12,
    xerr=1.96 * table["error"],
    fmt="D",
    color="black",
    markerfacecolor="white",
)
style = {"textcoords": "offset points", "ha": "center", "fontweight": "bold"}
top = table.iloc[-1]
ax.annotate("predicted from the log", (top["predicted"], place[-1] + 0.12), xytext=(0, 9),
            color="#2e86ab", **style)  # fmt: skip
ax.annotate("found by the A/B test", (top["A/B test"], place[-1] - 0.12), xytext=(0, -17), **style)
ax.set_yticks(place, table.index)
ax.set_ylim(-0.6, len(table) - 0.3)
ax.set_ylabel("new ranker: annotation plus")
ax.set_xlabel("clicks per page, new ranker minus production (95 % intervals)")
ax.set_title(f"{sure.sum()} of 6 called from the log, all of them right")
ax.spines[["top", "right"]].set_visible(False)
plt.show()
