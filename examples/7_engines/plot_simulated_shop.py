"""
From a search engine's log to a served model, with the truth beside it
======================================================================

**Claim.** A simulated shop writes UBI events as OpenSearch does. Read, checked and corrected for
where users look, they give labels that order the documents shown better than their click rate and
than OpenSearch's own click model, COEC, which is below the click rate here. The uploaded model,
evaluated from the very text that the engine gets, ranks new queries better than the search that
wrote the log, and than the same trees on raw clicks. With a million events the labels have nDCG@10
.85 (click rate .78, COEC .75) and the uploaded model .77 (raw clicks .71, production .68).

**Limit.** Users here are position-based, production is weak (trained on the annotation of 1 % of
the queries) and varies its order a little, and the features of the model are those that relevance
was made from. A good production ranker leaves less to gain (:ref:`never_worse`), and a fixed order
leaves nothing to learn from (:ref:`identifiability`).
"""

# %%
# A shop that writes a log
# ------------------------
#
# ``examples/7_engines/simulated_shop.py`` makes products with features, lets users search, and
# writes what OpenSearch writes: a file for its bulk interface, with queries and events. This page
# was built from about 200,000 events: ``python plot_simulated_shop.py 94000`` takes all.
import json
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from simulated_shop import FEATURES, open_shop, serve, write_ndjson

from skultr.click_models import UBMModel
from skultr.datasets import read_ubi
from skultr.identifiability import IdentifiabilityGraph
from skultr.metrics import ndcg_score
from skultr.plotting import ExaminationDisplay
from skultr.propensity import RegressionEMPropensity, relevance_labels
from skultr.rankers import LambdaMARTRanker
from skultr.serving import export_model

N_SEARCHES = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
shop = open_shop(n_queries=500, random_state=0)
words = shop["qid"].unique()
logged, new = shop[shop["qid"].isin(words[:400])], shop[shop["qid"].isin(words[400:])]
visits = serve(logged, N_SEARCHES, random_state=0)
print(f"{visits.n_events:,} events")

# %%
# Read and check
# --------------
#
# The report says what was read, and what was left out and why.
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "ubi.ndjson"
    write_ndjson(visits, file)
    log, report = read_ubi(file)
print(report.summary(), "\n")
print(IdentifiabilityGraph.from_log(log, click="click").summary())

# %%
# Labels
# ------
#
# Examination comes from documents that stood at several positions. Labels are clicks per
# examination, by a model of users who go on from their last click, and start from where production
# put the document. COEC divides clicks by those expected at the *lowest* ordinal that the document
# ever had.
examination = RegressionEMPropensity(relevance="embedding").fit(log, "click")
labels = relevance_labels(log, "click", propensity=UBMModel(), interval=True)

rate = log.groupby("position")["click"].mean()
first = log.groupby(["qid", "doc"])["position"].min().map(rate).rename("expected")
labels = labels.merge(first.reset_index()).merge(logged[["qid", "doc", "relevance", "production"]])
labels["click rate"] = labels["clicks"] / labels["impressions"]
labels["COEC"] = labels["click rate"] / labels["expected"]

judges = {"production's order": "production", "click rate": "click rate", "COEC": "COEC"}
judges |= {"skultr's labels": "label"}
of_labels = {
    name: ndcg_score(labels["relevance"], labels[by], qid=labels["qid"], k=10, per_query=True)
    for name, by in judges.items()
}

# %%
# A model for the engine
# ----------------------
#
# The engine logs features under its own names. The model binds them by name.
rows = log.merge(shop[["qid", "doc", *FEATURES]], on=["qid", "doc"])
ranker = LambdaMARTRanker(propensity=examination, random_state=0).fit(rows, "click")
naive = LambdaMARTRanker(debiasing="none", random_state=0).fit(rows, "click")
upload = export_model(ranker, "xgboost+json", name="shop-1")
print(f"{len(upload) / 1e6:.2f} MB: {upload[:150]}...")

# %%
# What the engine computes
# ------------------------
#
# A few lines that do what the engine does with the text: features in float32, left if smaller than
# the threshold. Production, the same trees on raw clicks, and the uploaded model rank 100 queries
# that are not in the log.


def engine_scores(upload, products):
    """Sum of the leaves that each product reaches."""
    trees = json.loads(json.loads(upload)["model"]["model"]["definition"])
    values = {name: products[name].to_numpy(np.float32) for name in FEATURES}

    def leaves(node, rows):
        if "leaf" in node:
            return np.full(len(rows), node["leaf"], dtype=np.float32)
        left = values[node["split"]][rows] < np.float32(node["split_condition"])
        found = np.empty(len(rows), dtype=np.float32)
        for child, side in zip(node["children"], (left, ~left), strict=True):
            found[side] = leaves(child, rows[side])
        return found

    everything = np.arange(len(products))
    return np.sum([leaves(tree, everything) for tree in trees], axis=0, dtype=np.float32)


served = engine_scores(upload, new)
distance = np.abs(served - ranker.predict(new)).max()
print(f"largest difference from predict: {distance:.1g}")
of_models = {
    name: ndcg_score(new["relevance"], scores, qid=new["qid"], k=10, per_query=True)
    for name, scores in {
        "production": new["production"],
        "trees on raw clicks": naive.predict(new),
        "uploaded model": served,
    }.items()
}

# %%
# The figure
# ----------
#
# Left: the curve that the log determines, with 95 % intervals, and the true one. Middle: how well
# each number orders the documents that were shown, and right: how well each model orders new
# queries, with 95 % intervals over queries.
figure, panels = plt.subplots(1, 3, figsize=(12.5, 3.9), layout="constrained")
ExaminationDisplay.from_estimator(
    examination, truth=visits.examination, name="estimated", ax=panels[0]
)
panels[0].set_title("How far users look")
titles = ("Order of the documents shown", "Order of new queries")
for axes, title, found in zip(panels[1:], titles, (of_labels, of_models), strict=True):
    values = pd.DataFrame({name: table["ndcg@10"] for name, table in found.items()})
    place, mean, error = np.arange(len(found))[::-1], values.mean(), 1.96 * values.sem()
    colors = ["#6b7280"] * (len(found) - 1) + ["#2b6cb0"]
    axes.hlines(place, mean - error, mean + error, color=colors, linewidth=2)
    axes.scatter(mean, place, color=colors, s=60, zorder=2)
    for at, value, color in zip(place, mean, colors, strict=True):
        axes.text(value, at + 0.13, f"{value:.3f}", color=color, ha="center", weight="bold")
    axes.set(yticks=place, yticklabels=list(found), xlabel="nDCG@10", title=title)
    axes.set(xlim=(0.6, 0.9), ylim=(-0.5, len(found) - 0.3))
    axes.grid(axis="x", color="#e5e7eb")
    axes.set_axisbelow(True)
plt.show()

# %%
# The claim, checked
# ------------------
#
# The interval of a difference is that of the differences query by query. In two other shops (seeds
# 1 and 2) with 20,000 searches all of this holds too, but for the lead over trees on raw clicks in
# one: +.022, with an interval that reaches below 0.


def ahead(found, one, other):
    """Mean difference of nDCG@10 and the lower end of its 95 % interval."""
    difference = (found[one] - found[other])["ndcg@10"]
    low = difference.mean() - 1.96 * difference.sem()
    print(f"{one} - {other}: {difference.mean():+.3f}, at least {low:+.3f}")
    return low


for other in ("production's order", "click rate", "COEC"):
    assert ahead(of_labels, "skultr's labels", other) > 0
for other in ("production", "trees on raw clicks"):
    assert ahead(of_models, "uploaded model", other) > 0
assert distance < 1e-5
