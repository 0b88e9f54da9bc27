"""
A small log of real clicks, and what it can tell
================================================

**Claim.** On 3,596 result pages of the TREC 2014 Session Track, the click rate falls from 13.6 %
at position 1 to 1.1 % at position 10. A part of the fall is position bias: positions 4 to 10 have
0.16 of the examination of positions 1 to 3, with a 95 % interval of [0.04, 0.61]. The log is too
small for more: the intervals of single positions are wide, and the order of no two documents of
one query is certain.

**Limit.** The users were paid workers with given topics, and nobody knows their true examination.
The intervals assume position-based users, and cover noise only. Four in five queries were searched
once here. In the log of a shop, queries return. The examination of ten positions is known within a
few hundredths from 35,064 pages of 20 queries
(:ref:`sphx_glr_auto_examples_3_propensity_plot_real_logs.py`).
"""

# %%
# The log
# -------
#
# One line downloads the log (463 kB), and reads it from the disk from then on. If there is no
# connection, as on the machine that built these pages, the figure has the numbers that this script
# found before.
import io

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import skultr
from skultr.datasets import fetch_trec_sessions
from skultr.propensity import InterventionHarvesting, relevance_labels

#: Examination relative to the first factor, its 95 % interval, impressions and clicks.
MEASURED = """\
factor,examination,lower,upper,impressions,clicks
1,1.000,1.000,1.000,3596,488
2,0.475,0.189,1.198,3596,319
3,0.297,0.059,1.486,3596,231
4,0.332,0.069,1.606,3596,161
5,0.123,0.045,0.336,3596,117
6,0.196,0.043,0.893,3596,85
7,0.318,0.090,1.122,3596,70
8,0.092,0.020,0.416,3596,52
9,0.212,0.054,0.840,3596,48
10,0.105,0.008,1.388,3596,39
1–3,1.000,1.000,1.000,10788,1038
4–10,0.163,0.044,0.606,25172,572
"""
measured = pd.read_csv(io.StringIO(MEASURED), index_col="factor")
try:
    log = fetch_trec_sessions()
    print(skultr.describe_log(log))
except OSError:
    log = None
    print("No connection: the log was not downloaded.")

# %%
# Examination
# -----------
#
# A document that was shown at two positions, and clicked more often at one of them, shows where
# users look more. This log has few such documents. So we ask twice: for each position, and for
# positions 1 to 3 against 4 to 10. The column ``bias`` replaces the position as the bias factor;
# its codes are numbers.
if log is not None:
    X, clicks = log.drop(columns="click"), log["click"]
    by_position = InterventionHarvesting(random_state=0).fit(X, clicks)
    blocks = np.where(X["position"] <= 3, 1, 4)
    by_block = InterventionHarvesting(random_state=0).fit(X.assign(bias=blocks), clicks)
    found = pd.concat([by_position.examination_, by_block.examination_])[measured.columns]
    assert np.allclose(found, measured, rtol=0.01, atol=0.001)
print(measured.to_string())

# %%
# What users click, and where they look
# -------------------------------------
#
# The click rate mixes examination with relevance: the search engine puts better documents first.
click_rate = measured["clicks"] / measured["impressions"]
positions = measured.iloc[:10]
figure, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
panels[0].bar(positions.index, 100 * click_rate.iloc[:10], color="tab:gray")
panels[0].set(xlabel="position", ylabel="click rate, %")
for curve, name, color in [
    (positions, "each position", "#7251b5"),
    (measured.iloc[10:], "two groups of positions", "#bc6c25"),
]:
    value = curve["examination"]
    panels[1].errorbar(
        curve.index,
        value,
        [value - curve["lower"], curve["upper"] - value],
        fmt="o",
        color=color,
        label=name,
    )
panels[1].axhline(1, color="black", linewidth=0.8)
panels[1].set(xlabel="position", ylabel="examination, relative to the first")
panels[1].legend(frameon=False)
for axes in panels:
    axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Which of two documents is better?
# ---------------------------------
#
# Labels are click rates corrected for examination. The order of two documents of one query is
# certain if their 95 % intervals have no value in common.
if log is not None:
    labels = relevance_labels(log, "click", propensity=by_position, interval=True)
    pairs = labels.merge(labels, on="qid")
    certain = (pairs["lower_x"] > pairs["upper_y"]).sum()
    n_pairs = (pairs["doc_x"] < pairs["doc_y"]).sum()
    print(f"certain: {certain} of {n_pairs:,} pairs of documents of one query")
    assert certain == 0

# %%
# The claim, checked
# ------------------
assert measured.loc["4–10", "upper"] < 1
assert click_rate.iloc[0] > 0.13
assert click_rate.iloc[9] < 0.012
