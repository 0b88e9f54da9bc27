"""
Examination behind a production ranker that is good
===================================================

**Claim.** Dual learning takes relevance for examination where production ranks well: its curve is
too steep. With ``unconfounded=True`` (Luo et al. 2023) it knows what the production ranker thinks
of each document, and comes closer to the truth, in each of three logs with other documents.

**Limit.** Most of the error stays if production also knows something that the features do not
tell. Documents that stood at two positions show that curve: interventions need no features.
"""

# %%
# Logs of a good production ranker
# --------------------------------
#
# It has learned the labels of its queries; pages of ten are drawn near its order. Users look at
# position k with probability 1 / k. The second kind of log has a *hidden signal*: production also
# knows something about relevance that no feature tells.
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skultr.datasets import make_ltr
from skultr.plotting import ExaminationDisplay
from skultr.propensity import DualLearningPropensity
from skultr.simulation import (
    PlackettLucePolicy,
    PositionBasedUser,
    hidden_signal_scores,
    production_scores,
    simulate_clicks,
)


def served(hidden, seed):
    """A log with its clicks, and the true examination."""
    documents = make_ltr(n_queries=250, n_features=15, random_state=seed)
    if hidden:
        weak = production_scores(documents, fraction=0.02, random_state=seed)
        scores = hidden_signal_scores(weak, documents["relevance"], random_state=seed)
    else:
        scores = production_scores(documents, fraction=1.0, random_state=seed)
    log, clicks, truth = simulate_clicks(
        documents,
        n_sessions=10_000,
        n_positions=10,
        scores=scores,
        policy=PlackettLucePolicy(temperature=0.1),
        user=PositionBasedUser(1.0),
        random_state=seed,
    )
    return log, clicks, truth.examination


# %%
# Two curves for each log
# -----------------------
#
# skultr warns that few documents moved between positions in such logs: that is right, and the
# reason why a network has to tell relevance from examination here.
KINDS = {"knows all labels": False, "has a hidden signal": True}
curves = {}
errors = []
for kind, hidden in KINDS.items():
    for seed in range(3):
        log, clicks, truth = served(hidden, seed)
        fitted = {}
        for name, unconfounded in {"dual learning": False, "unconfounded": True}.items():
            propensity = DualLearningPropensity(unconfounded=unconfounded, random_state=seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                propensity.fit(log, clicks)
            fitted[name] = propensity
            curve = propensity.examination_["examination"].to_numpy()
            # Of the logarithm, because a click is divided by examination.
            error = np.sqrt(np.mean(np.log(curve / truth) ** 2))
            errors.append({"production": kind, "seed": seed, "curve": name, "error": error})
        curves.setdefault(kind, (fitted, truth))

# %%
# The curves of the first log of each kind, and all errors
# --------------------------------------------------------
figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained", width_ratios=(4, 4, 3))
for ax, (kind, (fitted, truth)) in zip(axes, curves.items(), strict=False):
    display = ExaminationDisplay.from_estimators(fitted, truth=truth, ax=ax)
    ax.set_title(f"production {kind}")
    # A ranker divides by examination: ratios count.
    ax.set_ylim(0.05, 1.1)
    ax.set_yscale("log")
    ax.set_yticks([0.05, 0.1, 0.2, 0.5, 1], ["0.05", "0.1", "0.2", "0.5", "1"])
    ax.minorticks_off()

errors = pd.DataFrame(errors)
table = errors.pivot(index=["production", "seed"], columns="curve", values="error")
for name in ("dual learning", "unconfounded"):
    color = display.lines_[name].get_color()
    axes[2].plot(table[name].to_numpy(), range(len(table)), "o", color=color, label=name)
axes[2].hlines(range(len(table)), *table.to_numpy().T, color="tab:gray", zorder=0)
axes[2].set_yticks(range(len(table)), [f"{kind}, log {seed + 1}" for kind, seed in table.index])
axes[2].set_xlabel("error of log examination")
axes[2].set_xlim(left=0)
axes[2].spines[["top", "right"]].set_visible(False)
plt.show()

print(table.round(3).to_string())

# %%
# The claim, checked
# ------------------
#
# The adjustment makes the error smaller in every log, and behind a hidden signal more than half of
# it stays.
assert (table["unconfounded"] < table["dual learning"]).all()
hidden = table.loc["has a hidden signal"]
assert (hidden["unconfounded"] > hidden["dual learning"] / 2).all()

# %%
# A ranker takes it unfitted: ``IPSRanker(propensity=DualLearningPropensity(unconfounded=True))``.
# :ref:`unconfounded` says what the two steps are, and what they were worth in more logs.
