"""
Five habits that report a wrong nDCG
====================================

**Claim.** Folds of rows report an nDCG@10 of .87 for trees whose nDCG@10 on new queries is .66;
counting queries without a relevant document as 1 reports .79, and leaving out ``qid`` .45. A model
that gives all documents the same score reaches 1 if ties are ordered as the file is, and a weak
logging policy (.52) is at .94 if its own clicks are the labels. None of the five raises an error.

**Limit.** How far each habit is off depends on the data. Here a third of the queries has nothing
relevant, and the annotation file is sorted by grade within each query. The scorers of this package
take none of the five by default.
"""

# %%
# Trees on annotated documents
# ----------------------------
#
# 300 queries of 20 documents with grades 0 to 4. The folds keep queries whole.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from lightgbm import LGBMRegressor
from sklearn.model_selection import KFold, cross_val_predict

from skultr.datasets import make_ltr
from skultr.metrics import ndcg_score
from skultr.model_selection import QueryKFold
from skultr.simulation import PositionBasedUser, production_scores, simulate_clicks

documents = make_ltr(n_queries=300, n_documents=20, n_features=20, random_state=0)
documents.loc[documents["qid"] % 3 == 0, "relevance"] = 0
documents = documents.sort_values(["qid", "relevance"], ascending=[True, False], ignore_index=True)
features, grade, qid = documents.filter(like="feature"), documents["relevance"], documents["qid"]

trees = LGBMRegressor(n_estimators=100, min_child_samples=5, n_jobs=1, verbosity=-1)
scores = cross_val_predict(trees, features, grade, cv=list(QueryKFold(5).split(documents)))
right = ndcg_score(grade, scores, qid=qid, k=10)
reported = {}

# %%
# Habit 1: folds of rows
# ----------------------
#
# Each query is then both in training and in test, and what is ranked is a fifth of its documents.
rows = KFold(5, shuffle=True, random_state=0)
leaked = cross_val_predict(trees, features, grade, cv=rows)
wrong = np.mean(
    [
        ndcg_score(grade[test], leaked[test], qid=qid[test], k=10)
        for _, test in rows.split(features)
    ]
)
reported["folds of rows"] = wrong, right

# %%
# Habit 2: queries without a relevant document count as 1
# -------------------------------------------------------
wrong = ndcg_score(grade, scores, qid=qid, k=10, no_relevant=1)
reported["queries without a relevant\ndocument count as 1"] = wrong, right

# %%
# Habit 3: no query ids
# ---------------------
#
# All documents are then one list.
wrong = ndcg_score(grade, scores, qid=np.zeros(len(qid)), k=10)
reported["no qid"] = wrong, right

# %%
# Habit 4: ties in the order of the rows
# --------------------------------------
#
# A model that gives every document the same score knows nothing. By default a tie is the mean over
# all orders of the documents tied.
constant = np.zeros(len(qid))
reported["constant scores, ties\nin the order of the file"] = (
    ndcg_score(grade, constant, qid=qid, k=10, ties="stable"),
    ndcg_score(grade, constant, qid=qid, k=10),
)

# %%
# Habit 5: clicks as labels
# -------------------------
#
# The logging policy learned from 1 % of the labels. Its clicks are where it put documents.
production = production_scores(documents, random_state=0)
log, clicks, _ = simulate_clicks(
    documents,
    n_sessions=50_000,
    n_positions=20,
    scores=production,
    user=PositionBasedUser(1.0),
    features=False,
    random_state=0,
)
n_clicks = log.assign(click=clicks).groupby("doc")["click"].sum()
n_clicks = documents["doc"].map(n_clicks).fillna(0)
reported["production's order,\nclicks as labels"] = (
    ndcg_score(n_clicks, production, qid=qid, k=10, gain="linear"),
    ndcg_score(grade, production, qid=qid, k=10),
)

# %%
# The figure
# ----------
table = pd.DataFrame(reported, index=["reported", "true"]).T
print(table.round(3).to_string())

figure, axes = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
places = np.arange(len(table))[::-1]
axes.hlines(places, table["true"], table["reported"], color="#c8c8c8", linewidth=3, zorder=0)
axes.plot(table["true"], places, "o", color="#3d3d3d", label="true")
axes.plot(table["reported"], places, "D", color="#d1495b", label="reported")
axes.set_yticks(places, table.index)
axes.set_xlim(0, 1.02)
axes.set_ylim(-0.6, len(table) - 0.5)
axes.set_xlabel("nDCG@10")
axes.legend(frameon=False, loc="lower left")
axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The claim, checked
# ------------------
off = table["reported"] - table["true"]
assert off["folds of rows"] > 0.15
assert off["no qid"] < -0.15
assert (off.drop(["folds of rows", "no qid"]) > 0.1).all()
