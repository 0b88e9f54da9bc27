"""
What to watch after the launch
==============================

**Claim.** Each week of a shop is compared with the week before by
:func:`~skultr.evaluation.compare_logs`. Nothing happens in four of nine weeks, and there is no
alarm. In each of the five others the alarm comes at once and names what happened: a new ranker
changes click rates but not users, a redesign changes how far users read, a feature loses values,
a campaign brings new queries, and somebody switches the small changes of order off.

**Limit.** The shop is simulated, with users who examine position k with probability 1 / k and
40,000 pages per week. With a twentieth of these pages the row of examination says "cannot tell",
and so it does here at deep positions.
"""

# %%
# Ten weeks
# ---------
#
# Each of 300 queries has 20 products, of which a page shows ten. Products change places a little,
# so that the log compares positions.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from skultr.datasets import make_ltr
from skultr.evaluation import compare_logs
from skultr.simulation import PlackettLucePolicy, PositionBasedUser, simulate_clicks

shop = make_ltr(300, n_documents=20, n_features=3, random_state=0)
rng = np.random.default_rng(0)
OLD, NEW = (shop["relevance"] + rng.normal(0, noise, len(shop)) for noise in (2, 1))
EXAMINATION = 1 / np.arange(1, 11)
REDESIGN = np.where(np.arange(10) < 2, 1.0, 0.8) * EXAMINATION
EVENTS = {
    3: "new ranker",
    5: "redesign",
    7: "values lost",
    9: "campaign",
    10: "no swaps",
}


def log_of(week):
    """The log of a week; what happened in earlier weeks stays."""
    asked = np.where(np.arange(300) < 240, 1.0, 1.0 if week >= 9 else 0.0)  # from the campaign on
    log, clicks, _ = simulate_clicks(
        shop,
        n_sessions=40_000,
        scores=np.asarray(NEW if week >= 3 else OLD),
        policy=PlackettLucePolicy(temperature=0.5) if week < 10 else None,
        user=PositionBasedUser(REDESIGN if week >= 5 else EXAMINATION),
        query_weights=asked,
        random_state=week,
    )
    log = log.drop(columns="relevance").assign(click=clicks)
    if week >= 7:
        log.loc[rng.random(len(log)) < 0.05, "feature_001"] = np.nan
    return log


# %%
# Each week beside the week before
# --------------------------------
#
# Nine looks are planned, so ``n_looks=9`` keeps the probability of a false alarm for all together.
weeks = {week: log_of(week) for week in range(1, 11)}
found = {week: compare_logs(weeks[week - 1], weeks[week], n_looks=9) for week in range(2, 11)}
for week, comparison in found.items():
    print(f"Week {week} ({EVENTS.get(week, 'nothing happened')}): {comparison.alarm}")
print(found[5].summary())

# %%
# Of rows that are watched at several positions or columns, the picture counts the alarms.
watched = list(dict.fromkeys(found[2].table["watched"]))
alarms = pd.DataFrame(
    {
        week: each.table[each.table["verdict"] == "alarm"]["watched"].value_counts()
        for week, each in found.items()
    },
    index=watched,
).fillna(0)
unsure = pd.DataFrame(
    {
        week: (each.table["verdict"] == "cannot tell").groupby(each.table["watched"]).all()
        for week, each in found.items()
    },
    index=watched,
)
state = np.where(alarms > 0, 2, np.where(unsure, 1, 0))
COLORS = ["#e8eef2", "#f2d9a0", "#b3261e"]
figure, (left, right) = plt.subplots(
    1, 2, figsize=(11, 4.6), layout="constrained", width_ratios=[1.5, 1]
)
left.imshow(state, cmap=ListedColormap(COLORS), vmin=0, vmax=2, aspect="auto")
for row, column in np.argwhere(alarms.to_numpy() > 0):
    left.text(column, row, int(alarms.iat[row, column]), color="white", ha="center", va="center")
left.set_yticks(range(len(watched)), watched)
labels = [f"{week}\n{EVENTS.get(week, '').replace(' ', chr(10))}" for week in found]
left.set_xticks(range(9), labels)
left.tick_params(length=0)
for edge in np.arange(0.5, 12):
    left.axhline(edge, color="white", linewidth=2)
    left.axvline(edge, color="white", linewidth=2)
left.set(xlim=(-0.5, 8.5), ylim=(len(watched) - 0.5, -0.5))
left.set_xlabel("week, and what happened in it")
names = ["no alarm", "cannot tell", "alarm (number)"]
patches = [Patch(color=color, label=name) for color, name in zip(COLORS, names, strict=True)]
left.legend(handles=patches, ncols=3, frameon=False, loc="lower left", bbox_to_anchor=(0, 1))
left.spines[:].set_visible(False)

positions = np.arange(2, 11)
for week, color, marker in ((3, "#2e86ab", "o"), (5, "#b3261e", "s")):
    rows = found[week].table.query("watched == 'examination'")
    shift = 0.12 * (week - 4)
    right.errorbar(
        positions + shift,
        rows["new"],
        [rows["difference"] - rows["lower"], rows["upper"] - rows["difference"]],
        fmt=marker,
        color=color,
        markersize=5,
        label=f"week {week}: {EVENTS[week]}",
    )
right.plot([1.5, 10.4], [1, 1], "--", color="#2e86ab", linewidth=1)
right.plot(positions, REDESIGN[1:] / EXAMINATION[1:], "--", color="#b3261e", linewidth=1)
right.text(10.5, 1, "truth", va="center", color="#2e86ab")
right.text(10.5, 0.8, "truth", va="center", color="#b3261e")
right.set(xlabel="position", xlim=(1.5, 11.3), ylim=(0, 1.7), xticks=positions)
right.set_ylabel("examination over that of the week before,\nrelative to position 1")
right.legend(frameon=False, loc="upper left")
right.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The claim, checked
# ------------------
assert [week for week, each in found.items() if each.alarm] == list(EVENTS)


def names_of(week):
    return set(alarms.index[alarms[week] > 0])


assert "click rate" in names_of(3)
assert "examination" not in names_of(3)
assert {"examination", "click rate"} <= names_of(5)
assert names_of(7) == {"missing"}
assert "new queries" in names_of(9)
assert "moved documents" in names_of(10)
