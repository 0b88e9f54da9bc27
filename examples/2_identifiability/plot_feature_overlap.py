"""
Where no document moved: can the features tell?
===============================================

**Claim.** Two logs in which no document ever moved have the same verdict, "NOT identifiable". Dual
learning finds the examination of the one to 0.02 and misses that of the other by about 0.2.
What tells them apart is whether the features give the position away, and
:func:`~skultr.identifiability.feature_overlap` measures it before any training.

**Limit.** The number knows the features only. If production ordered by something that they lack,
what it knew of relevance is taken for examination, however well the features overlap (crosses). No
number from such a log shows that; documents that moved do, or an experiment.
"""

# %%
# Logs
# ----
#
# 150 queries, each with one order of 5 documents, and a feature x that makes them relevant. In the
# first series every document fills a block of columns: its position's own with a given
# probability, else a random one. In the second the order follows the sum of x and a part of
# relevance that no column has.
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skultr import DLARanker
from skultr.exceptions import NotIdentifiableWarning
from skultr.identifiability import feature_overlap

# Every fit warns, and says how far features overlap.
warnings.simplefilter("ignore", NotIdentifiableWarning)
EXAMINATION = np.array([1, 0.6, 0.4, 0.3, 0.2])
N_QUERIES, N_POSITIONS, N_IMPRESSIONS = 150, len(EXAMINATION), 300
SHAPE = N_QUERIES, N_POSITIONS


def to_log(features, relevance, rng):
    """The log and its click rates."""
    log = pd.DataFrame(features.reshape(N_QUERIES * N_POSITIONS, -1)).add_prefix("feature_")
    log["qid"] = np.repeat(np.arange(N_QUERIES), N_POSITIONS)
    log["doc"] = np.arange(len(log))
    log["position"] = np.tile(np.arange(1, N_POSITIONS + 1), N_QUERIES)
    log["impressions"] = N_IMPRESSIONS
    clicks = rng.binomial(N_IMPRESSIONS, relevance * EXAMINATION)
    return log, clicks.ravel() / N_IMPRESSIONS


def probability(utility):
    return 1 / (1 + np.exp(1 - 1.5 * utility))


def blocks(share, rng):
    """Columns of the document's own position with probability ``share``."""
    x = rng.normal(size=(*SHAPE, 4))
    random = rng.integers(0, N_POSITIONS, SHAPE)
    own = np.where(rng.random(SHAPE) < share, np.arange(N_POSITIONS), random)
    block = np.eye(N_POSITIONS)[own]
    columns = (block[..., None] * x[..., None, :]).reshape(*SHAPE, -1)
    return to_log(np.concatenate([columns, block], axis=2), probability(x[..., 0]), rng)


def hidden(size, rng):
    """An order by x and by a part of relevance of this size that is no column."""
    x, unknown = rng.normal(size=(2, *SHAPE))
    order = np.argsort(-(x + size * unknown), axis=1)
    x, unknown = (np.take_along_axis(values, order, axis=1) for values in (x, unknown))
    noise = rng.normal(size=(*SHAPE, 3))
    features = np.concatenate([x[..., None], noise], axis=2)
    return to_log(features, probability(x + size * unknown), rng)


# %%
# Overlap, and the error of dual learning
# ---------------------------------------
SERIES = [
    ("features follow the position", blocks, [0, 0.5, 0.8, 0.9, 0.95, 0.98, 1]),
    ("production knew more", hidden, [0.5, 1, 2]),
]
rows, curves = [], {}
for name, make, strengths in SERIES:
    for strength in strengths:
        for seed in range(2):
            log, clicks = make(strength, np.random.default_rng(seed))
            overlap = feature_overlap(log).overlap
            curve = DLARanker(random_state=seed).fit(log, clicks).examination_["examination"]
            curves[name, strength] = overlap, curve
            error = (curve - EXAMINATION).abs().max()
            rows.append({"log": name, "strength": strength, "overlap": overlap, "error": error})
table = pd.DataFrame(rows)
print(table.groupby(["log", "strength"], sort=False).mean().round(3))

# %%
# The figure
# ----------
#
# On the left each log; on the right the curves of three of them.
COLORS = dict(zip([name for name, *_ in SERIES], ["#7251b5", "#bc6c25"], strict=True))
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
left.axvspan(0, 0.15, color="#f1f3f4")
left.text(0.01, 0.02, "give the\nposition away", fontsize=8, color="#5f6368", va="bottom")
for (name, part), marker in zip(table.groupby("log", sort=False), "ox", strict=True):
    left.scatter(part["overlap"], part["error"], marker=marker, color=COLORS[name], label=name)
left.axhline(0.1, color="#5f6368", linewidth=0.8, linestyle="--")
left.set_xlim(0, 1.02)
left.set_ylim(bottom=0)
left.set_xlabel("feature_overlap(log).overlap")
left.set_ylabel("largest error of dual learning's examination")
left.legend(frameon=False)
position = np.arange(1, N_POSITIONS + 1)
right.plot(position, EXAMINATION, color="black", label="truth")
for (name, strength), style in zip(
    [(SERIES[0][0], 0), (SERIES[0][0], 1), (SERIES[1][0], 2)], ["--o", ":o", ":x"], strict=True
):
    overlap, curve = curves[name, strength]
    label = f"{name}: {strength} (overlap {overlap:.2f})"
    right.plot(position, curve, style, color=COLORS[name], label=label)
right.set_ylim(bottom=0)
right.set_xticks(position)
right.set_xlabel("position")
right.set_ylabel("examination")
right.legend(frameon=False, fontsize=8)
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The claim, checked
# ------------------
#
# Where features overlap, the curve is found; where they give the position away, it is missed; and
# where production knew more, overlap does not tell.
follows, knew_more = (table[table["log"] == name] for name, *_ in SERIES)
assert follows.loc[follows["overlap"] > 0.5, "error"].max() < 0.05
assert follows.loc[follows["overlap"] < 0.15, "error"].mean() > 0.1
assert knew_more["error"].min() > 0.1
assert knew_more["overlap"].max() > 0.7

# %%
# In words
# --------
#
# What ``summary()`` says of two logs of the first series.
for strength in (0.8, 1):
    log, _ = blocks(strength, np.random.default_rng(0))
    print(feature_overlap(log).summary(), end="\n\n")
