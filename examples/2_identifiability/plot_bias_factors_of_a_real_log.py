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
# ``SKULTR_DATA``. Where it is absent, a simulated log of the same shape replaces it. Ids of
# documents recur under other queries and mean other documents there, which is the default of every
# reader (see :ref:`documents`).
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


def read_logs():
    """Logs by name."""
    folder = Path(os.environ.get("SKULTR_DATA", "no such folder"))
    paths = {name: folder / file for name, file in FILES.items()}
    logs = {
        name: pd.read_parquet(path, columns=COLUMNS)
        for name, path in paths.items()
        if path.exists()
    }
    if not logs:
        print("SKULTR_DATA names no folder with the real logs: a simulated one replaces them")
        documents = make_ltr(n_queries=200, n_documents=15, n_features=10, random_state=0)
        X, clicks, _ = simulate_clicks(
            documents,
            n_sessions=10_000,
            policy=PlackettLucePolicy(temperature=0.1),
            query_weights=1 / np.arange(1, 201),
            features=False,
            random_state=0,
        )
        logs["made"] = X.assign(click=clicks)[COLUMNS]
    return logs


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
rows, graphs = [], {}
for name, log in read_logs().items():
    log = with_contexts(log)
    for context in CONTEXTS:
        bias = ["position"] if context is None else ["position", context]
        graph = graphs[name, context] = IdentifiabilityGraph.from_log(log, bias=bias)
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
table = pd.DataFrame(rows)
print(table.round(3).to_string(index=False))

# %%
# The figure
# ----------
#
# On the left the number of components; on the right the share of the largest.
COLORS = {"Yandex": "#d1495b", "Sogou": "#2e86ab", "made": "#1b998b"}
figure, (pieces, largest) = plt.subplots(
    1, 2, figsize=(11, 4.2), sharey=True, layout="constrained"
)
names = table["bias factors"].unique()
height = 0.8 / table["log"].nunique()
for number, (name, part) in enumerate(table.groupby("log", sort=False)):
    place = np.arange(len(part)) + (number + 0.5) * height - 0.4
    style = {"height": 0.9 * height, "color": COLORS[name], "label": name}
    # From 0.8, so that a single piece shows as a bar.
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
largest.legend(frameon=False, loc="lower right")
for axes in (pieces, largest):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# In full
# -------
#
# The summary of a log with one component, and of one with many.
for key, graph in graphs.items():
    if key[1] in ("clicks above", "result above"):
        print(f"--- {key[0]}, position × {key[1]}\n{graph.summary()}\n")
