"""
Dual learning finds the examination curve
=========================================

**Claim.** :class:`~skultr.DLARanker` is not given how attention falls with the position. It learns
this from the clicks, along with relevance, for a steep curve as well as for a flat one.

**Limit.** The curve is found only up to one factor, so it is shown relative to position 1. The
users here are position-based. And the network must learn relevance well enough: relevance that it
cannot explain, it takes for attention. The table at the end shows how the error grows when the log
has fewer queries. The documents are generated. Each query is always shown in the same order: no
document links two positions, so that the features alone determine the curve, which a real log
could not confirm (see :ref:`identifiability`).
"""

# %%
# Two kinds of users
# ------------------
#
# The first examines positions as measured by eye tracking [1]_, the second much deeper:
# examination falls as the square root of the position.
import warnings

import matplotlib.pyplot as plt
import pandas as pd

from skultr import DLARanker, aggregate_clicks
from skultr.datasets import make_ltr
from skultr.exceptions import NotIdentifiableWarning
from skultr.plotting import method_colors
from skultr.simulation import PositionBasedUser, simulate_clicks

# One fixed order links no positions. The features do, because they explain relevance here, but the
# log cannot confirm it, and fit would warn.
warnings.simplefilter("ignore", NotIdentifiableWarning)

USERS = {
    "steep: eye tracking": PositionBasedUser(),
    "flat: 1 / √position": PositionBasedUser(examination=0.5),
}


def learn(user, n_queries, seed=0):
    """The table of examination that DLA learned, with the truth beside it."""
    documents = make_ltr(n_queries=n_queries, n_features=30, random_state=seed)
    impressions, clicks, truth = simulate_clicks(
        documents, n_sessions=300_000, user=user, features=False, random_state=seed
    )
    log, click_rate = aggregate_clicks(impressions.assign(click=clicks), documents)
    ranker = DLARanker(random_state=seed)
    table = ranker.fit(log, click_rate).examination_
    rate = table["clicks"] / table["impressions"]
    return table.assign(
        true=truth.examination / truth.examination[0], click_rate=rate / rate.iloc[0]
    )


# %%
# ``examination_`` is a table: bias factor (here the position), estimated examination, the standard
# error of its logarithm (infinite, as no document links two positions), and the counts behind it.
# The last two columns are added here; the click rate, too, is relative to position 1.
curves = {name: learn(user, 2500) for name, user in USERS.items()}
print(curves["steep: eye tracking"].round(3).to_string())

# %%
# Truth, estimate, and the click rate that a report of the log would show
# ------------------------------------------------------------------------
#
# The click rate falls faster than examination, because production puts good documents first:
# it mixes what users look at with what they like.
DLA = method_colors(["DLA"])["DLA"]
figure, panels = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for axes, (name, curve) in zip(panels, curves.items(), strict=True):
    axes.plot(curve["click_rate"], ":", color="tab:gray", label="click rate")
    axes.plot(curve["true"], "o-", color="black", label="true examination")
    axes.plot(curve["examination"], "s--", color=DLA, label="learned by DLA")
    axes.set_title(name)
    axes.set_xlabel("position")
    axes.set_xticks(curve.index)
    axes.set_ylim(0, 1.05)
    axes.spines[["top", "right"]].set_visible(False)
panels[0].set_ylabel("relative to position 1")
panels[1].legend(frameon=False)
plt.show()

# %%
# How far off, and why it can be
# ------------------------------
#
# The same number of sessions over fewer queries: the network sees fewer documents and knows less
# about relevance. Three seeds each, users of the steep kind.
errors = {}
for n_queries in (300, 2500):
    for seed in range(3):
        curve = learn(PositionBasedUser(), n_queries, seed)
        errors[seed, n_queries] = (curve["examination"] - curve["true"]).abs().max()
errors = pd.Series(errors).rename_axis(["seed", "queries"]).unstack()
print("largest error of the curve, by seed and number of queries")
print(errors.round(3).to_string())

# %%
# The claim, checked
# ------------------
#
# The learned curve is nearer to the truth than the click rate at every seed, and more queries make
# it better.
for curve in curves.values():
    wrong = curve[["examination", "click_rate"]].sub(curve["true"], axis=0).abs().max()
    assert wrong["examination"] < 0.06 < wrong["click_rate"]
assert (errors[2500] < errors[300]).all()

# %%
# .. [1] Joachims, Granka, Pan, Hembrooke & Gay (2005). Accurately interpreting clickthrough data
#    as implicit feedback. SIGIR.
