"""
How many bias factors does a real log support?
==============================================

**Claim.** Position alone is identifiable on the logs of two web search engines: they varied their
results enough. With further columns that may bias clicks, some models stay in one component and
some fall into thousands. The number of factors does not decide. What was clicked above changes
from one visit to the next, so the same document is seen in many such contexts; a class of queries,
however coarse, is fixed for each document and splits the log.

**Limit.** No one knows the truth of these logs. The example shows what they could determine if
clicks were relevance times examination, not that they are. And one component may still be weakly
linked: the verdict says "barely" where the examination of some factors depends on a few clicks.
"""

# %%
# The logs
# --------
#
# Result pages of Yandex (the relevance prediction challenge, sessions of 20 frequent queries) and
# Sogou, one row per shown document, in the folder named by the environment variable
# ``SKULTR_DATA``. Their licences do not let us pass them on: where the folder is absent, the
# figure shows the numbers that this script found in them. A simulated log is measured in any case.
# Ids of documents recur under other queries and mean other documents there: the default of
# every reader (see :ref:`documents`).
import io
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skultr.datasets import make_ltr
from skultr.identifiability import IdentifiabilityGraph
from skultr.simulation import PlackettLucePolicy, simulate_clicks

FILES = {"Yandex": "yandex_wscd_clicks.parquet", "Sogou": "sogou_deepclick_clicks.parquet"}
COLUMNS = ["session", "qid", "doc", "position", "click"]
MEASURED = """\
log,bias factors,number,components,share of largest,verdict
Yandex,position,10,1,1.000,Identifiable
Yandex,position × clicked above,19,1,1.000,Identifiable
Yandex,position × clicks above,55,1,1.000,Identifiable
Yandex,position × last click,55,1,1.000,Identifiable
Yandex,position × query frequency,40,5,0.729,NOT identifiable
Yandex,position × result above,2189,337,0.924,NOT identifiable
Yandex,position × query,200,26,0.573,NOT identifiable
Sogou,position,10,1,1.000,Identifiable
Sogou,position × clicked above,18,1,1.000,Identifiable
Sogou,position × clicks above,54,1,1.000,Identifiable
Sogou,position × last click,54,1,1.000,"Identifiable, but barely"
Sogou,position × query frequency,30,3,0.498,NOT identifiable
Sogou,position × result above,14531,9301,0.153,NOT identifiable
Sogou,position × query,10510,7891,0.047,NOT identifiable
"""


def read_logs():
    """Real logs by name, as far as the folder has them."""
    folder = Path(os.environ.get("SKULTR_DATA", "no such folder"))
    paths = {name: folder / file for name, file in FILES.items()}
    return {
        name: pd.read_parquet(path, columns=COLUMNS)
        for name, path in paths.items()
        if path.exists()
    }


def simulated_log():
    """A log in which documents move a little."""
    documents = make_ltr(n_queries=200, n_documents=15, n_features=10, random_state=0)
    X, clicks, _ = simulate_clicks(
        documents,
        n_sessions=10_000,
        policy=PlackettLucePolicy(temperature=0.1),
        query_weights=1 / np.arange(1, 201),
        features=False,
        random_state=0,
    )
    return X.assign(click=clicks)[COLUMNS]


# %%
# What may bias a click, besides the position
# -------------------------------------------
#
# Each is a column; nothing else is needed.
def with_contexts(log):
    """The log with a column for each context."""
    log = log.sort_values(["session", "qid", "position"], ignore_index=True)
    pages = ["session", "qid"]
    log["clicks above"] = log.groupby(pages)["click"].cumsum() - log["click"]
    log["clicked above"] = log["clicks above"] > 0
    log["last click"] = log["position"].where(log["click"] > 0)
    log["last click"] = log.groupby(pages)["last click"].ffill()
    log["last click"] = log.groupby(pages)["last click"].shift().fillna(0).astype(int)
    log["result above"] = log.groupby(["qid", "doc"]).ngroup()
    log["result above"] = log.groupby(pages)["result above"].shift(fill_value=-1)
    share = log["qid"].map(log["qid"].value_counts(normalize=True))
    log["query frequency"] = np.ceil(np.log10(share)).astype(int)
    return log.assign(query=log["qid"])


CONTEXTS = [
    None,
    "clicked above",
    "clicks above",
    "last click",
    "query frequency",
    "result above",
    "query",
]


def measure(name, log):
    """One row per choice of bias factors."""
    log, rows = with_contexts(log), []
    for context in CONTEXTS:
        bias = ["position"] if context is None else ["position", context]
        graph = IdentifiabilityGraph.from_log(log, bias=bias)
        rows.append(
            {
                "log": name,
                "bias factors": " × ".join(bias),
                "number": graph.n_factors,
                "components": graph.n_components,
                "share of largest": graph.components["impressions_share"].iloc[0],
                "verdict": graph.summary().split(":")[0],
            }
        )
    return pd.DataFrame(rows)


real = pd.read_csv(io.StringIO(MEASURED))
for name, log in read_logs().items():
    pd.testing.assert_frame_equal(
        measure(name, log), real[real["log"] == name].reset_index(drop=True), atol=1e-3
    )
table = pd.concat([real, measure("simulated", simulated_log())], ignore_index=True)
print(table.round(3).to_string(index=False))

# %%
# The figure
# ----------
#
# On the left the number of components; on the right the share of the largest.
COLORS = {"Yandex": "#7251b5", "Sogou": "#bc6c25", "simulated": "#a3b18a"}
figure, (pieces, largest) = plt.subplots(
    1, 2, figsize=(11, 4.2), sharey=True, layout="constrained"
)
names = table["bias factors"].unique()
height = 0.8 / table["log"].nunique()
for number, (name, part) in enumerate(table.groupby("log", sort=False)):
    place = np.arange(len(part)) + (number + 0.5) * height - 0.4
    style = {"height": 0.9 * height, "color": COLORS[name], "label": name}
    # From 0.8, so that a single component shows as a bar.
    pieces.barh(place, part["components"] - 0.8, left=0.8, **style)
    for y, n in zip(place, part["components"], strict=True):
        pieces.text(1.1 * n, y, f"{n:,}", va="center", fontsize=8, color="#5f6368")
    largest.barh(place, part["share of largest"], **style)
pieces.set_xscale("log")
pieces.set_xlim(0.8, 4 * table["components"].max())
pieces.set_yticks(range(len(names)), names)
pieces.invert_yaxis()
pieces.set_xlabel("components")
largest.set_xlabel("share of impressions in the largest component")
figure.legend(*largest.get_legend_handles_labels(), loc="outside upper center", ncols=3)
for axes in (pieces, largest):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The claim, checked
# ------------------
#
# Position alone, and what was clicked above, stay in one component on both engines' logs. Classes
# of queries do not, though there are fewer of them.
one = real.set_index("bias factors")["components"]
for within_pages in ["position", "position × clicked above", "position × clicks above"]:
    assert (one[within_pages] == 1).all()
assert (one["position × query frequency"] > 1).all()
assert one["position × query"].min() > one["position × query frequency"].max()

# %%
# In full
# -------
#
# The summary of a log with many components.
log = with_contexts(simulated_log())
print(IdentifiabilityGraph.from_log(log, bias=["position", "query frequency"]).summary())
