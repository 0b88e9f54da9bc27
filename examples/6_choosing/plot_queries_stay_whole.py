"""
What a search reports if it splits rows
=======================================

**Claim.** A ranker works with scikit-learn's tools as it is, but their usual folds tear queries
apart: the same query is in training and in test. ``validation_curve`` with folds of rows then
reports a higher nDCG@10 than folds of queries do, and prefers larger trees, which memorise
documents. New queries need no larger trees, and the folds of
:class:`~skultr.model_selection.QueryKFold` say so.

**Limit.** One simulated log, in which queries return. The smaller a log and the larger a model,
the larger the error. The folds of queries train on four fifths of the queries, which is why they
report a little less than new queries do.
"""

# %%
# A log, and queries that it does not have
# ----------------------------------------
import warnings

import matplotlib.pyplot as plt
from sklearn.model_selection import KFold, validation_curve

from skultr.datasets import make_ltr
from skultr.exceptions import ClickDataWarning
from skultr.metrics import RankingScorer
from skultr.model_selection import QueryKFold, train_test_queries
from skultr.rankers import LambdaMARTRanker
from skultr.simulation import PlackettLucePolicy, simulate_clicks

documents = make_ltr(n_queries=900, n_documents=10, n_features=10, random_state=0)
train, new = train_test_queries(documents, test_size=700, random_state=0)
log, clicks, truth = simulate_clicks(
    train, n_sessions=2_000, policy=PlackettLucePolicy(), random_state=0
)

# %%
# scikit-learn's tool, with two kinds of folds
# --------------------------------------------
#
# Trees on the clicks as they are, so that fits differ by leaves and folds alone.
# Fits to folds of rows warn of torn pages, which this page ignores.
warnings.simplefilter("ignore", ClickDataWarning)
LEAVES = [3, 7, 15, 31]
ranker = LambdaMARTRanker(n_estimators=100, naive_weight=1.0, random_state=0)
scorer = RankingScorer(k=10)
folds = {
    "reported by folds of rows": KFold(5, shuffle=True, random_state=0),
    "reported by folds of queries": QueryKFold(5),
}
reported = {}
for name, cv in folds.items():
    _, scores = validation_curve(
        ranker,
        log,
        clicks,
        param_name="num_leaves",
        param_range=LEAVES,
        cv=cv,
        scoring=scorer,
    )
    reported[name] = scores.mean(axis=1)

# %%
# What new queries say
# --------------------
reported["on 700 new queries"] = [
    scorer(ranker.set_params(num_leaves=leaves).fit(log, clicks), new) for leaves in LEAVES
]
for name, values in reported.items():
    print(f"{name:30}", *(f"{value:.3f}" for value in values))

# %%
# The figure
# ----------
#
# The larger dot is the tree size that each curve prefers.
figure, axes = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
for (name, values), color, line in zip(
    reported.items(), ["#d1495b", "#1b998b", "black"], ["-", "-", "--"], strict=True
):
    axes.plot(range(len(LEAVES)), values, line, color=color, marker="o", markersize=4)
    best = max(range(len(LEAVES)), key=values.__getitem__)
    axes.plot(best, values[best], "o", color=color, markersize=10)
    axes.annotate(
        name, (len(LEAVES) - 1, values[-1]), (10, -3), textcoords="offset points", color=color
    )
axes.set_xticks(range(len(LEAVES)), LEAVES)
axes.set_xlim(-0.3, len(LEAVES) + 0.6)
axes.set(xlabel="leaves per tree", ylabel="nDCG@10")
axes.set_title("One log, one ranker, two kinds of folds")
axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The claim, checked
# ------------------
rows, queries, on_new = reported.values()
assert rows[-1] - queries[-1] > 0.02
assert max(on_new) - on_new[0] < 0.002
assert rows.argmax() > 0
assert queries.argmax() == 0

# %%
# What to take from it
# --------------------
#
# - Pass ``cv=QueryKFold(5)`` to every tool that splits, and resample queries, not rows.
# - Models with one parameter per document are the exception: they split by session
#   (:ref:`folds_of_documents`).
