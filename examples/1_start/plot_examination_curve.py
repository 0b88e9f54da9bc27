"""
Dual learning finds the examination curve
=========================================

**Claim.** :class:`~skultr.DLARanker` is not told how attention falls with the position. It learns
it from the clicks, along with relevance, for a steep curve as well as for a flat one.

**Limit.** A curve is found only up to one factor, so it is shown relative to position 1. The users
here are position-based, and the old ranker is imperfect in ways that the features can explain: a
log whose order agrees with relevance everywhere does not determine the curve. One seed, made
documents; the errors printed below are those of this one run.
"""

# %%
# Two kinds of users
# ------------------
#
# The first examines positions as measured by eye tracking [1]_, the second much deeper:
# examination falls as the square root of the position.
import matplotlib.pyplot as plt
import numpy as np

from skultr import DLARanker, aggregate_clicks
from skultr.datasets import make_ltr
from skultr.simulation import PositionBasedUser, simulate_clicks

documents = make_ltr(n_queries=1200, n_features=30, random_state=0)
users = {
    "steep: eye tracking": PositionBasedUser(),
    "flat: 1 / √position": PositionBasedUser(examination=0.5),
}
curves = {}
for name, user in users.items():
    impressions, clicks, truth = simulate_clicks(
        documents, n_sessions=300_000, user=user, features=False, random_state=0
    )
    log, click_rate = aggregate_clicks(impressions.assign(click=clicks), documents)
    ranker = DLARanker(random_state=0).fit(log, click_rate)
    table = ranker.examination_
    raw = table["clicks"] / table["impressions"]
    curves[name] = {
        "true": truth.examination / truth.examination[0],
        "learned by DLA": table["examination"].to_numpy(),
        "click rate": (raw / raw.iloc[0]).to_numpy(),
    }

# %%
# ``examination_`` is a table: bias factor (here the position), estimated examination, and the
# counts behind it. This is the one of the flat curve.
print(table.round(3).to_string())

# %%
# Truth, estimate, and the click rate that a report of the log would show
# ------------------------------------------------------------------------
#
# The click rate falls faster than examination, because the old ranker puts good documents first:
# it mixes what users look at with what they like.
figure, panels = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for axes, (name, curve) in zip(panels, curves.items(), strict=True):
    position = np.arange(1, len(curve["true"]) + 1)
    axes.plot(position, curve["click rate"], ":", color="#d1495b", label="click rate")
    axes.plot(position, curve["true"], "o-", color="black", label="true examination")
    axes.plot(position, curve["learned by DLA"], "s--", color="#1b998b", label="learned by DLA")
    axes.set_title(name)
    axes.set_xlabel("position")
    axes.set_xticks(position)
    axes.set_ylim(0, 1.05)
    axes.spines[["top", "right"]].set_visible(False)
panels[0].set_ylabel("relative to position 1")
panels[1].legend(frameon=False)
plt.show()

# %%
for name, curve in curves.items():
    error = np.abs(curve["learned by DLA"] - curve["true"])
    print(f"{name}: largest error {error.max():.3f}, at position {error.argmax() + 1}")

# %%
# .. [1] Joachims, Granka, Pan, Hembrooke & Gay (2005). Accurately interpreting clickthrough data
#    as implicit feedback. SIGIR.
