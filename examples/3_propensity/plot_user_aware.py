"""
Relevance estimated from clicks: with and without the user
==========================================================

**Claim.** Where users who look further down ask other queries, one examination curve for all
misjudges the relevance of documents, however well the curve is known, by an error that more clicks
do not reduce. Dividing each click by its own user's propensity has no such bias, but the rare
clicks of hasty users low on the page have such heavy weights that noise replaces the bias. The
user-aware estimator divides the clicks of a document by its *mean* propensity among the users of
its query. It gives 81 % of the documents their right grade; the others 62 % and 66 %.

**Limit.** Examination is known here, for every user. The users, ten with power laws of very
different exponents who ask half of the queries each, differ by construction; the less they differ,
the smaller the gain.
"""

# %%
# Ten users who differ in what they ask and how far they look
# -----------------------------------------------------------
#
# The world of Niu et al. (2025) [1]_ on generated documents, 200 sessions per query. Relevance has
# five grades: P(relevant) = 0.1, 0.325, 0.55, 0.775, 1.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.metrics import ConfusionMatrixDisplay

from skultr.datasets import make_ltr
from skultr.propensity import relevance_labels
from skultr.simulation import UserPopulation, simulate_clicks

documents = make_ltr(n_queries=1000, n_features=10, random_state=0)
users = UserPopulation(10)
X, clicks, truth = simulate_clicks(
    documents,
    n_sessions=200_000,
    user=users,
    gain="linear",
    features=False,
    random_state=0,
)
relevance = pd.Series(truth.relevance_probability, documents["doc"])
print(pd.DataFrame(users.examination_table(10).round(2), columns=range(1, 11)).to_string())

# %%
# Three estimates of the relevance of each document
# -------------------------------------------------
#
# They are what the rankers train on: ``IPSRanker`` with one curve, ``IPSRanker`` with a propensity
# for each row, and ``UserAwareIPSRanker``; ``labels_`` of a fitted ranker holds the same.
of_each = X.assign(propensity=truth.examination_table[X["user"], X["position"] - 1])
estimates = {
    "IPS: one curve for all": relevance_labels(X, clicks, propensity=truth.examination),
    "straightforward: each session's own": relevance_labels(of_each, clicks, user_aware=False),
    "user-aware: mean of the query's users": relevance_labels(of_each, clicks),
}

# %%
# Where documents of each true grade end up
# -----------------------------------------
#
# Shares of a row; a perfect estimate has 100 % all along the diagonal. Right of it a document was
# judged too relevant.
levels = np.unique(relevance.round(9))


def grade_of(values):
    """The number of the nearest level."""
    return np.abs(np.subtract.outer(np.asarray(values), levels)).argmin(axis=1)


figure, panels = plt.subplots(1, 3, figsize=(12, 4.6), layout="constrained")
rows = {}
for axes, (name, labels) in zip(panels, estimates.items(), strict=True):
    # Each label counts as the nearest of the five levels.
    true_grade = grade_of(labels["doc"].map(relevance))
    ConfusionMatrixDisplay.from_predictions(
        true_grade,
        grade_of(labels["label"]),
        ax=axes,
        values_format=".0%",
        normalize="true",
        colorbar=False,
        cmap="Blues",
    )
    axes.set(title=name, xlabel="estimated grade", ylabel="true grade" if not rows else "")
    error = labels["label"] - labels["doc"].map(relevance)
    query_error = error.groupby(labels["qid"]).transform("mean")
    rows[name] = {
        "right grade": (true_grade == grade_of(labels["label"])).mean(),
        "MSE": (error**2).mean(),
        "MSE, shared by a query": (query_error**2).mean(),
    }
plt.show()

# %%
# In numbers
# ----------
#
# The last column is the part of the error that all documents of a query have in common: harmless
# for ranking within the query, harmful where queries are compared.
print(pd.DataFrame(rows).T.round(4).to_string())

# %%
# The claim, checked
# ------------------
#
# The user-aware estimate gives most documents the right grade. What is left of the error of one
# curve is bias that all documents of a query share; of the straightforward estimate, noise.
one_curve, straightforward, user_aware = pd.DataFrame(rows).T.itertuples(index=False)
assert user_aware[0] > 0.75 > 0.7 > max(one_curve[0], straightforward[0])
assert one_curve[2] / one_curve[1] > 0.5 > 0.15 > straightforward[2] / straightforward[1]

# %%
# .. [1] Niu, Mei, Yang, Zhao, Yan, Mao & Wen (2025). Addressing personalized bias for unbiased
#    learning to rank.
