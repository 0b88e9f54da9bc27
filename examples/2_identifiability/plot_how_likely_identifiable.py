"""
The more bias factors and features, the less a log determines
=============================================================

**Claim.** Each further bias factor cuts the log into smaller parts, and each further feature makes
documents more distinct, so that fewer are seen twice. From some point on the probability that a
log is identifiable drops from one to zero within a factor of ten: with contexts, with features,
and as the log gets smaller. More factors make a better model only as long as the log supports
them.

**Limit.** Production never varies its order here, so that bias factors are linked only by
documents with the same features. The formula for random logs (dashed) uses only the number of
documents, factors and impressions, not how they were served: it can be far too optimistic. Check
the log itself, as
:class:`~skultr.identifiability.IdentifiabilityGraph` does here a thousand times in seconds.
"""

# %%
# Documents
# ---------
#
# Generated documents, and real ones where they are available: in a folder named by the environment
# variable ``SKULTR_DATA``, MQ2008 (LETOR 4.0) and a sample of MSLR-WEB as Parquet files. A
# document is known by its features; the top ten of each query are shown once, in the order of the
# mean of all features. Generated features are rounded to one decimal; otherwise no two documents
# would be equal.
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skultr.datasets import make_ltr
from skultr.identifiability import IdentifiabilityGraph

REAL = {"MQ2008": "mq2008.parquet", "MSLR-WEB (sample)": "mslr_sample.parquet"}
COLORS = dict(zip(["generated", *REAL], ["#a3b18a", "#7251b5", "#bc6c25"], strict=True))


def read_documents():
    """Documents by name: their query and features, in columns."""
    made = make_ltr(n_queries=1000, n_features=20, random_state=0)
    found = {"generated": made.drop(columns=["doc", "relevance"]).round(1)}
    folder = Path(os.environ.get("SKULTR_DATA", "no such folder"))
    for name, file in REAL.items():
        if (folder / file).exists():
            found[name] = pd.read_parquet(folder / file).drop(columns=["split", "doc", "label"])
        else:
            print(f"{name} left out: SKULTR_DATA names no folder with {file}")
    return found


def show(documents):
    """The ten documents of each query that production shows, and their positions."""
    features = documents.drop(columns="qid")
    score = features.rank(pct=True).mean(axis=1)
    position = score.groupby(documents["qid"]).rank(ascending=False, method="first")
    shown = position <= 10
    return features[shown], position[shown].astype(int)


logs = {name: show(documents) for name, documents in read_documents().items()}


# %%
# Is it connected?
# ----------------
#
# Each shown document gets a random context; the bias factor is the pair of position and context.
# The share of 20 draws in which the log is identifiable, beside the formula.
def chance(features, position, n_contexts, n_repeats=20):
    """Share of connected logs, and what the formula says."""
    doc = features.groupby(features.columns.tolist(), sort=False).ngroup()
    rng = np.random.default_rng(0)
    connected, formula = [], []
    for _ in range(n_repeats):
        context = rng.integers(n_contexts, size=len(doc))
        graph = IdentifiabilityGraph(doc, np.stack([position, context], axis=1))
        connected.append(graph.is_connected)
        formula.append(graph.connection_probability())
    return np.mean(connected), np.mean(formula)


N_FEATURES = {"generated": 5, "MQ2008": 10, "MSLR-WEB (sample)": 10}
CONTEXTS = [1, 2, 5, 10, 20, 30, 50, 70, 100, 200, 500]
by_contexts = {
    name: [chance(features.iloc[:, : N_FEATURES[name]], position, n) for n in CONTEXTS]
    for name, (features, position) in logs.items()
}

measured = {name: np.transpose(curve)[0] for name, curve in by_contexts.items()}
print(pd.DataFrame(measured, index=pd.Index(CONTEXTS, name="contexts")).to_string())

# %%
# The same with a fixed number of contexts (10) and a growing number of features.
FEATURES = [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20]
by_features = {
    name: [chance(features.iloc[:, :n], position, 10) for n in FEATURES]
    for name, (features, position) in logs.items()
}

# %%
# And with positions alone as bias factors, on a random part of the log.
FRACTIONS = np.geomspace(0.001, 1, 13)


def chance_of_parts(features, position, n_features):
    """Share of connected parts of the log, and what the formula says."""
    doc = features.iloc[:, :n_features].groupby(features.columns[:n_features].tolist()).ngroup()
    graph = IdentifiabilityGraph(doc, position)
    connected = graph.subsample_connectivity(FRACTIONS, random_state=0)["connected"]
    return np.stack([connected, graph.connection_probability(FRACTIONS * len(doc))], axis=1)


by_size = {name: chance_of_parts(*log, N_FEATURES[name]) for name, log in logs.items()}

# %%
# The figure
# ----------
#
# On the right, the formula stays at one. If no two documents are equal, a ranker that never varies
# certainly links nothing; the formula assumes that each impression is an independent draw of a
# document and a factor.
figure, panels = plt.subplots(1, 3, figsize=(12, 4), sharey=True, layout="constrained")
sizes = {name: FRACTIONS * len(position) for name, (_, position) in logs.items()}
studies = (
    ("number of contexts", by_contexts, dict.fromkeys(logs, CONTEXTS)),
    ("impressions (positions alone)", by_size, sizes),
    ("number of features (10 contexts)", by_features, dict.fromkeys(logs, FEATURES)),
)
for axes, (label, study, x) in zip(panels, studies, strict=True):
    for name, curves in study.items():
        measured, formula = np.transpose(curves)
        label_once = name if axes is panels[0] else None
        axes.plot(x[name], measured, "o-", color=COLORS[name], markersize=4, label=label_once)
        axes.plot(x[name], formula, "--", color=COLORS[name], alpha=0.6)
    axes.set_xlabel(label)
    axes.spines[["top", "right"]].set_visible(False)
panels[0].set_xscale("log")
panels[1].set_xscale("log")
panels[0].set_ylabel("probability that the log is identifiable")
panels[0].plot([], [], "--", color="#5f6368", label="formula")
figure.legend(loc="outside upper center", ncols=4, frameon=False)
plt.show()

# %%
# The claim, checked
# ------------------
#
# From certain to impossible within a factor of ten in each study of the generated documents, and
# the formula is too optimistic in the last.
for x, study in [(CONTEXTS, by_contexts), (sizes["generated"], by_size), (FEATURES, by_features)]:
    likely, formula = np.transpose(study["generated"])
    certain, impossible = np.asarray(x)[likely > 0.9], np.asarray(x)[likely < 0.1]
    nearest = np.abs(np.log10(certain[:, None] / impossible)).min()
    assert nearest <= 1
assert formula[-1] > 0.9 > likely[-1]
