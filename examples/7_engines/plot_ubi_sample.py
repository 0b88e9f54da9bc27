"""
What OpenSearch's sample log can tell, and what it cannot
=========================================================

**Claim.** The reader accounts for every record of a UBI file: it was used, or left out for one
reason. A log that cannot support judgments gets the verdict that it cannot: the sample of
OpenSearch's demo shop showed too few documents at several positions. Judgments and a model are
written in the formats of the engine nevertheless, so that you can try the upload.

**Limit.** These files show formats, not quality. The sample has no features of products: the model
knows only how often a product was shown and clicked for *other* queries. On a log whose truth is
known, the same steps are judged in :ref:`sphx_glr_auto_examples_7_engines_plot_simulated_shop.py`.
"""

# %%
# Read
# ----
#
# The file is ``ubi_queries_events.ndjson`` of Chorus for OpenSearch, in the folder ``ubi`` of the
# folder named by the environment variable ``SKULTR_DATA``. Where it is absent, as on the machine
# that built these pages, a simulated shop with one fixed order replaces it.
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from simulated_shop import FEATURES, open_shop, serve, write_ndjson

from skultr.datasets import read_ubi
from skultr.identifiability import IdentifiabilityGraph
from skultr.rankers import LambdaMARTRanker
from skultr.serving import click_judgments, export_judgments, export_model

sample = Path(os.environ.get("SKULTR_DATA", "no such folder"), "ubi", "ubi_queries_events.ndjson")
if sample.exists():
    log, report = read_ubi(sample)
else:
    print("SKULTR_DATA names no folder with ubi/: a simulated shop replaces the sample\n")
    shop = open_shop(n_queries=120)
    visits = serve(shop, 200, temperature=1e-6, n_positions=5)
    with tempfile.TemporaryDirectory() as folder:
        write_ndjson(visits, Path(folder, "ubi.ndjson"))
        log, report = read_ubi(Path(folder, "ubi.ndjson"))
print(report.summary())

# %%
# The verdict
# -----------
#
# Without documents at several positions, no number of clicks distinguishes what users like from
# where they look.
graph = IdentifiabilityGraph.from_log(log, click="click")
print(graph.summary())

# %%
# Judgments, under an assumption
# ------------------------------
#
# Examination has to be assumed: here it falls as one over the root of the position. Pairs that
# were looked at less than once are unrated.
examination = 1 / np.sqrt(np.arange(1, log["position"].max() + 1))
judged = click_judgments(log, "click", propensity=examination)
judgments = export_judgments(judged, "opensearch", queries=report.queries)
n_rated = judged["relevance"].notna().sum()
print(f"{judgments[:350]}...\n\nrated: {n_rated} of {len(judged)} pairs")

# %%
# A model, to try the upload
# --------------------------
#
# What the sample says about a product before a query is asked: how often it was shown and clicked
# for other queries. The simulated shop has features.
ids = log[["qid", "doc"]].astype(str)
if sample.exists():
    counts = log[["click"]].assign(shown=1)
    by_product = counts.groupby(ids["doc"]).transform("sum")
    by_pair = counts.groupby([ids["qid"], ids["doc"]]).transform("sum")
    features = (by_product - by_pair).add_suffix("_elsewhere")
else:
    features = ids.merge(shop[["qid", "doc", *FEATURES]], how="left")[FEATURES]
rows = log.join(features)
ranker = LambdaMARTRanker(propensity=examination, n_estimators=20, early_stopping=False)
model = export_model(ranker.fit(rows, "click"), "xgboost+json", name="sample")
print(f"{model[:150]}...")

# %%
# The figure
# ----------
#
# Left: what became of the events. Right: labels of the pairs with the most clicks; the intervals
# reach over several grades, whose limits are the dotted lines.
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.4), layout="constrained")
events = report.counts[report.counts["record"] == "event"]
fates = events.groupby(["fate", "used"])["n"].sum().reset_index().sort_values("n")
colors = np.where(fates["used"], "#2b6cb0", "#9aa0a6")
left.barh(fates["fate"], fates["n"], color=colors)
for place, n in enumerate(fates["n"]):
    left.text(n, place, f" {n:,}", va="center")
left.set(
    xlabel="events",
    title="Events used (blue) or left out (grey)",
    xlim=(0, 1.15 * fates["n"].max()),
)
most = judged.sort_values("relevance", ascending=False).head(30)
place = np.arange(1, len(most) + 1)
right.errorbar(place, most["relevance"], most["standard_error"], fmt="o", color="#2b6cb0")
right.set(xlabel="pair of query and document", ylabel="rating", ylim=(0, None))
right.set_title("The 30 highest ratings, with standard errors")
plt.show()

# %%
# The claim, checked
# ------------------
used, left_out = (report.n_records("event", used=used) for used in (True, False))
assert used + left_out == report.n_records("event")
assert not graph.is_connected
assert n_rated == judgments.count("docId") < len(judged)
