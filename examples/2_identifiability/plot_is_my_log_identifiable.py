"""
Ask a click log what it determines, before training on it
=========================================================

**Claim.** One line of code finds whether the clicks of a log determine relevance. It depends on
which documents were seen under which bias factors, not on the number of clicks. The same number of
sessions determines all of relevance, or nothing, or two halves that cannot be compared.

**Limit.** The verdict is about models in which a click is relevance times examination. It states
what the log determines if such a model holds, not that it does. A network that reads features can
still find relevance in a log that determines nothing (see :ref:`trust`), but then the log cannot
confirm what it found.
"""

# %%
# Three logs of the same documents
# --------------------------------
#
# A ranker that never varies shows each document in one place. One that adds a little randomness
# shows it in several. In the third log half of the queries come from phones, the others from
# desktops: no document was seen on both.
import warnings

import matplotlib.pyplot as plt
import numpy as np

from skultr.datasets import make_ltr
from skultr.exceptions import NotIdentifiableWarning
from skultr.identifiability import IdentifiabilityGraph, IdentifiabilityRepair
from skultr.plotting import IdentifiabilityDisplay
from skultr.simulation import PlackettLucePolicy, simulate_clicks

documents = make_ltr(n_queries=200, n_features=10, random_state=0)


def serve(policy=None):
    """A frame with one row per impression, as a service would log it."""
    X, clicks, _ = simulate_clicks(
        documents, n_sessions=20_000, policy=policy, features=False, random_state=0
    )
    return X[["session", "qid", "doc", "position"]].assign(click=clicks)


always_the_same = serve()
varied = serve(PlackettLucePolicy(temperature=0.5))
device = np.where(varied["qid"] % 2, "phone", "desktop")
by_device = varied.assign(device=device)
print(by_device.head(3).to_string(index=False))

# %%
# The verdict
# -----------
#
# The question for each log is whether its clicks can separate relevance from position; for the
# last one, whether they can if users examine a position differently on a phone.
POSITION_AND_DEVICE = ["position", "device"]
graphs = {
    "a ranker that never varies": IdentifiabilityGraph.from_log(always_the_same),
    "a ranker that varies": IdentifiabilityGraph.from_log(varied),
    "a ranker that varies, users by device": IdentifiabilityGraph.from_log(
        by_device, bias=POSITION_AND_DEVICE
    ),
}
for name, graph in graphs.items():
    print(f"--- {name}\n{graph.summary()}\n")

# %%
# The same as pictures
# --------------------
#
# Each component has a scale of its own: if the relevance of its documents is doubled and the
# examination of its factors halved, no click probability changes.
figure, panels = plt.subplots(
    1, 3, figsize=(12, 5.2), width_ratios=[1, 1, 1.6], layout="constrained"
)
for axes, (name, graph) in zip(panels, graphs.items(), strict=True):
    IdentifiabilityDisplay.from_graph(graph, ax=axes)
    axes.set_title(f"{name}\n{axes.get_title()}")
plt.show()

# %%
# What to do
# ----------
#
# The third log needs one link between its components. Merging assumes that the two most similar
# factors (here: the same position on the other device) are examined alike. ``transform`` writes
# the column ``bias``, which every ranker reads; all other positions stay free on each device.
repair = IdentifiabilityRepair(bias=POSITION_AND_DEVICE)
repaired = repair.fit_transform(by_device, by_device["click"])
print(repair.merges_.round(2).to_string(index=False))
print(IdentifiabilityGraph.from_log(repaired).summary())

# %%
# The claim, checked
# ------------------
#
# Three logs of as many sessions: ten components, one, and two; and one merge joins the two.
assert [graph.n_components for graph in graphs.values()] == [10, 1, 2]
assert IdentifiabilityGraph.from_log(repaired).is_connected

# %%
# Or it plans which page to serve once more, with which two documents swapped or on which device:
# this needs no assumption, but some traffic.
swaps = IdentifiabilityRepair(bias=POSITION_AND_DEVICE, strategy="intervene")
with warnings.catch_warnings():
    # It warns that the log is not connected until then.
    warnings.simplefilter("ignore", NotIdentifiableWarning)
    swaps.fit(by_device, by_device["click"])
print(swaps.interventions_.round(2).to_string(index=False))
print(swaps.intervened_lists_.to_string(index=False))
