"""
Which two positions to merge: those that are examined alike
===========================================================

**Claim.** Any pair of positions across the gap makes a log with two components formally
identifiable. How good the result is depends on how differently the two are examined, because all
of that difference goes into relevance. The pair that
:class:`~skultr.IdentifiabilityRepair` chooses, the two that face each other across
the gap, is the best of all 24.

**Limit.** The choice uses distance, not examination, which the log does not determine across the
gap: that close positions are examined alike is an assumption, true for the eye-tracking curve
here. With other bias factors (devices, layouts) you have to define what makes two of them alike,
by ``bias_features``.
"""

# %%
# Every pair across the gap
# -------------------------
#
# Positions 1 to 4 share no document with positions 5 to 10. To merge two positions is to give
# them the same code in the column ``bias``.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skultr import DLARanker
from skultr.identifiability import IdentifiabilityRepair
from skultr.simulation import make_disconnected_log

UPPER, LOWER = [1, 2, 3, 4], [5, 6, 7, 8, 9, 10]


def quality(log, click_rate, truth):
    """Correlation of estimated and true relevance."""
    ranker = DLARanker(relevance="embedding", random_state=0).fit(log, click_rate)
    true = truth.relevance_probability.loc[ranker.relevance_.index]
    return np.corrcoef(ranker.relevance_, true)[0, 1]


runs = []
for seed in range(3):
    X, click_rate, truth = make_disconnected_log(2, random_state=seed)
    for a in UPPER:
        for b in LOWER:
            merged = X.assign(bias=X["position"].replace(b, a))
            runs.append((a, b, quality(merged, click_rate, truth)))
table = pd.DataFrame(runs, columns=["upper", "lower", "MCC"])
table = table.groupby(["upper", "lower"])["MCC"].mean().unstack()
print(table.round(3).to_string())

# %%
# The choice of the repair, before anything is trained. ``estimated_error`` is a guess at the
# difference between the logarithms of the two examinations, from where examination changes fast
# within the components; the truth is log(0.34 / 0.28), which is less.
chosen = IdentifiabilityRepair().fit(X, click_rate).merges_
print(chosen.round(3).to_string(index=False))
print(f"true difference: {np.log(truth.examination[3] / truth.examination[4]):.3f}")

# %%
# The figure
# ----------
#
# Left, the quality after each merge; framed, the choice. Right, the same 24 numbers by how
# different the merged positions really are: this is what counts.
figure, (grid, curve) = plt.subplots(1, 2, figsize=(11, 3.9), layout="constrained")
grid.imshow(table, cmap="YlGn", vmin=0.5, vmax=1.05, aspect="auto")
for row, a in enumerate(UPPER):
    for column, b in enumerate(LOWER):
        grid.text(column, row, f"{table.loc[a, b]:.2f}", ha="center", va="center")
a, b = sorted(chosen.loc[0, ["from", "into"]])
place = (LOWER.index(b) - 0.5, UPPER.index(a) - 0.5)
grid.add_patch(plt.Rectangle(place, 1, 1, fill=False, edgecolor="#7251b5", lw=3))
grid.set_xticks(range(len(LOWER)), LOWER)
grid.set_yticks(range(len(UPPER)), UPPER)
grid.set(xlabel="merged with position", ylabel="position")
grid.set_title("correlation with true relevance")

ratio = np.divide.outer(truth.examination[:4], truth.examination[4:])
curve.plot(ratio.ravel(), table.to_numpy().ravel(), "o", color="#a3b18a")
curve.plot(ratio[a - 1, b - 5], table.loc[a, b], "o", color="#7251b5", markersize=9)
curve.annotate(
    f"positions {a} and {b}",
    (ratio[a - 1, b - 5], table.loc[a, b]),
    (12, -4),
    textcoords="offset points",
)
curve.set_xscale("log")
curve.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
curve.minorticks_off()
curve.set(xlabel="ratio of the true examinations", ylabel="correlation with true relevance")
curve.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The claim, checked
# ------------------
#
# The repair chose the best of the 24 pairs, and quality falls as the two differ more.
assert table.stack().idxmax() == (a, b)
assert np.corrcoef(np.log(ratio.ravel()), table.to_numpy().ravel())[0, 1] < -0.7
