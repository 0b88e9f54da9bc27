"""
Users who look at result pages in their own way
===============================================

**Claim.** From the clicks alone, regression-EM with a curve for each user and k-means over the
curves find the habits behind 200 users with 120 sessions each: everyone joins the right group. A
curve fitted to the clicks of a whole group is nearly exact, where those of its members are off by
0.06 and one curve for all by 0.26.

**Limit.** The users have four clear-cut habits. Real habits shade into each other; groups are then
a summary, not a discovery. With a few dozen sessions per user the groups begin to mix. Shrinking
users toward the common curve (``user_shrinkage``) hardly helps here, as nobody examines pages like
the mean user; it helps where users vary around one habit. All find the same documents relevant:
somebody who clicks less for another reason would count as somebody who looks less.
"""

# %%
# Four habits
# -----------
#
# From those who read the first result only to those who read nearly the whole page: power laws
# with these exponents. Every user also has queries of their own.
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.base import clone

from skultr.datasets import make_ltr
from skultr.exceptions import ClickDataWarning
from skultr.plotting import ExaminationDisplay
from skultr.propensity import RegressionEMPropensity, UserClusters
from skultr.simulation import PlackettLucePolicy, UserPopulation, simulate_clicks

ETAS = np.array([2.0, 1.0, 0.5, 0.1])
N_USERS = 200
habit = np.random.default_rng(0).integers(4, size=N_USERS)
X, clicks, truth = simulate_clicks(
    make_ltr(n_queries=200, n_features=5, random_state=0),
    n_sessions=120 * N_USERS,
    policy=PlackettLucePolicy(temperature=0.1),
    user=UserPopulation(ETAS[habit], decay=1.0),
    gain="linear",
    features=False,
    random_state=0,
)
print(X.head(3).to_string(index=False))

# %%
# A curve each, then groups
# -------------------------
#
# ``UserClusters`` fits the estimator it is given and groups the curves. ``transform`` writes the
# group into the column ``user``, for whatever estimates a curve for each next; in a pipeline, that
# is the ranker's ``propensity=``.
with warnings.catch_warnings():
    # Many users never clicked at some position; the groups did.
    warnings.simplefilter("ignore", ClickDataWarning)
    propensity = RegressionEMPropensity(user="user", relevance="embedding")
    clusters = UserClusters(4, propensity=propensity, random_state=0).fit(X, clicks)
    alone = clone(propensity).set_params(user_shrinkage=0).fit(X, clicks)
grouped = clone(propensity).fit(clusters.transform(X), clicks)
group = clusters.labels_.to_numpy()
print(pd.crosstab(ETAS[habit], group, rownames=["exponent"], colnames=["cluster"]))

# %%
# The curves
# ----------
#
# Left, a line for each user; right, one for each group, with its interval, against the habits.
# Clusters are numbered by how far down they look.
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
ExaminationDisplay.from_estimator(clusters.propensity_, ax=left)
left.set_title("200 users")
habits = np.arange(1, 11) ** -ETAS[:, None]
ExaminationDisplay.from_estimator(grouped, truth=habits, ax=right)
right.set_title("4 clusters of users")
plt.show()

# %%
# Error of the curves
# -------------------
#
# Mean absolute error of examination, relative to position 1, over users and the other positions.
curves = {
    "one curve for all": np.tile(grouped.average_examination_["examination"], (N_USERS, 1)),
    "each user alone": alone.examination_["examination"].unstack(),
    "each user, shrunk": clusters.propensity_.examination_["examination"].unstack(),
    "the user's cluster": grouped.examination_["examination"].unstack().loc[group],
}
errors = {
    name: np.abs(np.asarray(curve) - truth.examination_table)[:, 1:].mean()
    for name, curve in curves.items()
}
print(pd.Series(errors).round(4).to_string())

# %%
# The claim, checked
# ------------------
#
# Each habit is one cluster, and the curve of a cluster is far better than a user's own, and that
# than one for all.
assert (pd.crosstab(ETAS[habit], group) > 0).sum(axis=1).eq(1).all()
assert errors["the user's cluster"] < 0.02
assert errors["the user's cluster"] < errors["each user alone"] / 3
assert errors["each user alone"] < errors["one curve for all"] / 3
