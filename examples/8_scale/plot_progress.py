"""
How long a fit takes, and where it stops
========================================

**Claim.** A network is trained for a number of epochs that its number of queries decides. With
``early_stopping=True`` it stops ten epochs after the loss of held-out queries was lowest, and the
weights of that epoch are kept. Where steps are alike and their number is known, as in a bootstrap,
the bar of :func:`~skultr.show_progress` has the time left.

**Limit.** The time left assumes that each step takes as long as those before. A busy machine slows
down, so it is an estimate. Seconds depend on your machine. A fit with early stopping has no time
left, because nobody knows in advance where it stops, and an ensemble has none, because its members
are not alike.
"""

# %%
# A log
# -----
#
# Two kinds of devices, which examine pages alike here.
import io
import re
import time
from contextlib import redirect_stderr

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import skultr
from skultr.datasets import make_ltr
from skultr.propensity import ContextualPropensity
from skultr.rankers import NaiveRanker
from skultr.simulation import PlackettLucePolicy, simulate_clicks

documents = make_ltr(n_queries=400, n_features=20, random_state=0)
log, clicks, _ = simulate_clicks(
    documents, n_sessions=4_000, policy=PlackettLucePolicy(), random_state=0
)
log["device"] = np.random.default_rng(0).integers(2, size=len(log))

# %%
# Loss by epoch
# -------------
#
# ``history_`` has one row per epoch, and is there after every fit.
ranker = NaiveRanker(early_stopping=True, random_state=0)
ranker.fit(log.drop(columns="device"), clicks)
losses = ranker.history_
best = losses["valid_loss"].idxmin()
print(losses.loc[[1, best, ranker.n_iter_]].round(3))

# %%
# Time left
# ---------
#
# Twenty resamples, each with a training of its own. What is drawn to ``stderr`` is kept here. That
# is no terminal, so bars must be asked for.
start, lines = time.monotonic(), []


class Keep(io.StringIO):
    """Keeps the seconds since the start, and each line with an estimate of the whole."""

    def write(self, text):
        if "resample" in text and "?" not in text:
            lines.append((time.monotonic() - start, text.strip()))
        return len(text)


skultr.show_progress(True)
with redirect_stderr(Keep()):
    ContextualPropensity(context=["device"], n_bootstrap=20, random_state=0).fit(log, clicks)
skultr.show_progress(False)

total = time.monotonic() - start
for after, text in lines[::4]:
    print(f"{after:4.0f} s  {text}")
times = [(after, *re.search(r"<(\d+):(\d+)", text).groups()) for after, text in lines]
left = pd.DataFrame([(after, 60 * int(minutes) + int(s)) for after, minutes, s in times])

# %%
# The figure
# ----------
#
# Left, losses are relative to those of the first epoch. Right, the line is the time that was
# really left.
figure, (losses_at, time_at) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
COLORS = {"train_loss": "#7251b5", "valid_loss": "#bc6c25"}
NAMES = {"train_loss": "training queries", "valid_loss": "held-out queries"}
for name, color in COLORS.items():
    losses_at.plot(losses[name] / losses[name].iloc[0], color=color, label=NAMES[name])
lowest = losses["valid_loss"].min() / losses["valid_loss"].iloc[0]
losses_at.plot(best, lowest, "o", color=COLORS["valid_loss"])
losses_at.annotate(
    f"epoch {best}: its weights are kept",
    (best, lowest),
    (0, -14),
    ha="center",
    textcoords="offset points",
)
losses_at.set(xlabel="epoch", ylabel="loss, relative to the first epoch")
losses_at.xaxis.get_major_locator().set_params(integer=True)
losses_at.set_title("A fit stops when held-out loss no longer falls")
losses_at.legend(frameon=False, loc="center right")
time_at.plot([0, total], [total, 0], color="black", linewidth=0.8, label="really left")
time_at.plot(left[0], left[1], ".", color="#7251b5", label="reported")
time_at.set(xlabel="seconds since the start", ylabel="seconds left", ylim=(0, None))
time_at.set_title("20 resamples: the reported time left")
time_at.legend(frameon=False)
for axes in (losses_at, time_at):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The claim, checked
# ------------------
assert ranker.n_iter_ == min(best + ranker.n_iter_no_change, ranker.net_.max_epochs)
assert losses["train_loss"].loc[best:].min() < losses["train_loss"].loc[best]
assert len(left) > 1
late = left[left[0] > total / 2]
assert (late[1] - (total - late[0])).abs().max() < max(0.5 * total, 3)

# %%
# What to take from it
# --------------------
#
# - "Epoch 6 of at most 100" is no reason to wait for 100 epochs: most fits stop long before.
# - The time left becomes exact towards the end. Results are the same with and without bars.
