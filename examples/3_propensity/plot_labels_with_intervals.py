"""
Labels from clicks, with intervals
==================================

**Claim.** Clicks over examinations, the usual unbiased label, rank documents far worse than the
ranker that served them where that ranker is good and clicks are few: a document that was hardly
examined has a label of 0, or a huge one. The posterior mean starts from where production put the
document, and moves as far as the clicks carry it. It is never below production's order or the
click rate here, and 94 to 95 % of the true relevances lie in its 95 % intervals.

**Limit.** Examination is known here. ``PBMModel``, which estimates it from the same documents at
several positions, ranks as well in this world, with slightly wider intervals. With a fixed order
nothing in the log tells examination from relevance, and ``PBMModel`` warns. The intervals hold for
position-based users.
"""

# %%
# A search whose ranker is good
# -----------------------------
#
# Production is trees on the annotation of all queries, served with a little noise. Users examine
# the positions as in an eye-tracking study, the last of ten by 6 %.
import lightgbm as lgb
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skultr.datasets import make_ltr
from skultr.metrics import ndcg_score
from skultr.plotting import method_colors
from skultr.propensity import relevance_labels
from skultr.simulation import PlackettLucePolicy, PositionBasedUser, simulate_clicks

documents = make_ltr(n_queries=200, n_features=20, random_state=10)
features = documents.filter(like="feature").columns
trees = lgb.LGBMRegressor(num_leaves=15, min_child_samples=5, verbose=-1, n_jobs=1)
trees.fit(documents[features], documents["relevance"])
documents["production"] = trees.predict(documents[features])


def labels_of(n_sessions):
    """Labels of the documents that were shown, with their truth."""
    X, clicks, truth = simulate_clicks(
        documents.drop(columns="production"),
        n_sessions=n_sessions,
        policy=PlackettLucePolicy(temperature=0.1),
        user=PositionBasedUser(),
        scores=documents["production"],
        features=False,
        random_state=10,
    )
    true = documents.assign(true=truth.relevance_probability)[["qid", "doc", "relevance", "true"]]
    # The role ``production`` tells the prior more than the mean position.
    X = X.merge(documents[["qid", "doc", "production"]], on=["qid", "doc"])
    labels = relevance_labels(X, clicks, propensity=truth.examination, interval=True)
    labels["click rate"] = labels["clicks"] / labels["impressions"]
    labels["clicks / examinations"] = labels["clicks"] / labels["effective_sample"]
    return labels.merge(true, on=["qid", "doc"]).merge(
        documents[["qid", "doc", "production"]], on=["qid", "doc"]
    )


tables = {n_sessions: labels_of(n_sessions) for n_sessions in (2_000, 20_000, 200_000)}

# %%
# Quality and coverage by the number of sessions
# ----------------------------------------------
#
# nDCG@5 of the documents that were shown, ordered by each label.
names = {
    "production": "production's order",
    "click rate": "click rate",
    "clicks / examinations": "clicks / examinations",
    "label": "posterior mean",
}
rows = {}
for n_sessions, labels in tables.items():
    grade, query = labels["relevance"].to_numpy(), labels["qid"].to_numpy()
    quality = {
        name: ndcg_score(grade, labels[column].to_numpy(), qid=query, k=5)
        for column, name in names.items()
    }
    inside = labels["lower"].le(labels["true"]) & labels["upper"].ge(labels["true"])
    rows[n_sessions] = {**quality, "in the interval": inside.mean()}
print(pd.DataFrame(rows).T.round(3).to_string())

# %%
# One query
# ---------
#
# Its documents in production's order, at 20,000 sessions: 100 for the query. At the top the label
# is what the clicks say. Further down the click rate falls with examination, clicks over
# examinations jump from 0 to twice the truth, and the label stays near the prior mean, with an
# interval that says how little is known. At three of the 16 places it is not wide enough.
PRODUCTION, NAIVE = method_colors(["production", "naive"]).values()
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.6), layout="constrained")
labels = tables[20_000]
counts = labels.groupby("qid")["relevance"].agg(["max", "size"])
qid = counts.index[(counts["max"] == 4) & (counts["size"] >= 14)][0]
one = labels[labels["qid"] == qid].sort_values("production", ascending=False)
place = np.arange(1, len(one) + 1)
error = [one["label"] - one["lower"], one["upper"] - one["label"]]
left.errorbar(
    place, one["label"], error, fmt="o", capsize=3, color="#7251b5", label="label, 95 % interval"
)
left.plot(place, one["true"], "k_", markersize=14, label="true relevance")
left.plot(place, one["click rate"], "s", color=NAIVE, label="click rate")
rate = one["clicks / examinations"]
left.plot(place, rate.clip(upper=1.02), "x", color="#b5838d", label="clicks / examinations")
left.set(xlabel="place in production's order", ylabel="P(relevant)", ylim=(-0.03, 1.05))
left.set_title("one query at 20,000 sessions (x at the top: above 1)")
left.legend(frameon=False)
quality = pd.DataFrame(rows).T
styles = ("--", "s-", "x-", "o-")
colors = (PRODUCTION, NAIVE, "#b5838d", "#7251b5")
for name, style, color in zip(names.values(), styles, colors, strict=True):
    right.plot(quality.index, quality[name], style, color=color, label=name)
right.set(xscale="log", xlabel="sessions", ylabel="nDCG@5", title="order by each label")
right.legend(frameon=False)
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The claim, checked
# ------------------
#
# The posterior mean is never below the click rate or production's order, clicks over examinations
# are far below, and the intervals hold for about as many documents as they should.
order = quality.drop(columns="in the interval")
best = order.drop(columns="posterior mean").max(axis=1)
assert (order["posterior mean"] > best - 0.005).all()
assert (order["clicks / examinations"] < order["production's order"] - 0.03).all()
assert quality["in the interval"].between(0.91, 0.97).all()
