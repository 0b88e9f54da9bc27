"""
Ranking by purchases, with the curve of clicks
==============================================

**Claim.** What appeals is not what sells. Trees that learn from purchases show three documents
that sell far more than those of trees that learn from clicks. Position bias is the same for both,
because nobody buys what nobody looked at: it is best learned from the clicks, of which there are
fifteen times as many.

**Limit.** Position-based users, who buy only what they clicked. Sales are means of two shops,
which differ: with the largest log, purchases bring .03 in one and .29 in the other, where taste
has less to do with appeal. Differences of .03 between the other lines may be chance.
"""

# %%
# A shop
# ------
#
# Users click what appeals to them, among what they examine: position k with probability 1 / k².
# They buy some of what they clicked, by other features than those that appeal. The shop ranks by
# appeal, in nearly the same order each time.
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skultr.datasets import make_ltr
from skultr.plotting import method_colors
from skultr.propensity import RegressionEMPropensity
from skultr.rankers import LambdaMARTRanker
from skultr.simulation import (
    PlackettLucePolicy,
    PositionBasedUser,
    relevance_probability,
    simulate_clicks,
)


def make_shop(seed):
    documents = make_ltr(n_queries=300, n_documents=12, n_features=10, random_state=seed)
    features = documents.filter(like="feature_").to_numpy()
    taste = features @ np.random.default_rng(seed).normal(size=features.shape[1])
    taste = (taste - taste.mean()) / taste.std()
    appeal = relevance_probability(documents["relevance"])
    return documents, appeal, 0.24 / (1 + np.exp(1.5 - 1.5 * taste))


def serve(documents, buys, n_sessions, seed):
    rng = np.random.default_rng(seed)
    log, clicks, _ = simulate_clicks(
        documents,
        n_sessions=n_sessions,
        n_positions=8,
        scores=documents["relevance"] + rng.normal(0, 0.5, len(documents)),
        policy=PlackettLucePolicy(temperature=0.3),
        user=PositionBasedUser(2.0),
        random_state=seed,
    )
    chance = pd.Series(buys, pd.MultiIndex.from_frame(documents[["qid", "doc"]]))
    chance = chance.loc[pd.MultiIndex.from_frame(log[["qid", "doc"]])].to_numpy()
    log["click"] = clicks
    log["outcome_purchase"] = (clicks * (rng.random(len(log)) < chance)).astype(int)
    return log.drop(columns="relevance", errors="ignore")


# %%
# Four things to learn from
# -------------------------
#
# ``y`` names the outcome or weighs several, and the column ``click`` tells how far people look.
# Without that column the purchases are taken for the clicks.
targets = {
    "clicks": "click",
    "purchases alone": None,
    "purchases, curve of clicks": "outcome_purchase",
    "clicks + 20 purchases": {"click": 1.0, "outcome_purchase": 20.0},
}


def fit(estimator, log, target):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few purchases: no curve can be learned from them
        if target is None:
            return estimator.fit(log.drop(columns="click"), log["outcome_purchase"].to_numpy())
        return estimator.fit(log, target)


def value_at_3(ranker, documents, value):
    """Purchases per examination among the first three, relative to the best order."""
    rank = ranker.rank(documents)
    best = pd.Series(value).groupby(documents["qid"].to_numpy()).nlargest(3).sum()
    return value[rank <= 3].sum() / best


rows = []
for seed in (0, 1):
    documents, appeal, buys = make_shop(seed)
    new = (documents["qid"].rank(method="dense") > 200).to_numpy()
    for n_sessions in (2_000, 8_000, 32_000):
        log = serve(documents[~new], buys[~new], n_sessions, seed)
        for name, target in targets.items():
            ranker = fit(LambdaMARTRanker(random_state=0), log, target)
            value = value_at_3(ranker, documents[new], (appeal * buys)[new])
            rows.append((n_sessions, name, log["outcome_purchase"].sum(), value))
table = pd.DataFrame(rows, columns=["sessions", "learned from", "purchases", "value"])
table = table.groupby(["sessions", "learned from"], sort=False).mean()
print(table.round(3).to_string())

# %%
# The curve: from clicks, and from purchases
# ------------------------------------------
#
# Both estimate the same curve, of the last log.
curves = {}
for name, y in (("clicks", "click"), ("purchases", None)):
    estimator = RegressionEMPropensity(relevance="embedding")
    curves[name] = fit(estimator, log, y).examination_
truth = 1 / np.arange(1, 9) ** 2.0
errors = {
    name: float(np.sqrt(np.nanmean((np.log(curve["examination"]) - np.log(truth)) ** 2)))
    for name, curve in curves.items()
}
print({name: round(error, 2) for name, error in errors.items()})

colors = method_colors(targets)
markers = dict(zip(targets, "osD^", strict=True))
styles = {name: (colors[name], markers[name]) for name in targets}
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.plot(range(1, 9), truth, color="black", linewidth=1, label="truth")
marks = ("clicks", -0.1, "clicks"), ("purchases", 0.1, "purchases alone")
for name, shift, style in marks:
    curve, (color, marker) = curves[name], styles[style]
    found, low, high = (curve[each] for each in ("examination", "lower", "upper"))
    left.errorbar(
        curve.index + shift,
        found,
        yerr=[(found - low).clip(lower=0), (high - found).clip(lower=0)],
        color=color,
        marker=marker,
        linestyle="none",
        label=f"from {name}",
    )
left.set(yscale="log", ylim=(0.003, 2), xlabel="position", ylabel="examination (95 % intervals)")
left.set_title("One curve for clicks and purchases")
left.legend(frameon=False)
for name, (color, marker) in styles.items():
    values = table.xs(name, level="learned from")["value"]
    right.plot(values.index, values, color=color, marker=marker, label=name)
right.set(xscale="log", ylim=(0, 1), xlabel="sessions", ylabel="sales of the top 3, best = 1")
right.set_xticks([2_000, 8_000, 32_000], ["2,000", "8,000", "32,000"])
right.minorticks_off()
right.set_title("New queries, ranked by trees")
right.legend(title="learned from", frameon=False)
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The claim, checked
# ------------------
by_name = table["value"].unstack()
assert by_name.loc[32_000, "purchases, curve of clicks"] > by_name.loc[32_000, "clicks"] + 0.1
assert errors["clicks"] < 0.5 * errors["purchases"]
