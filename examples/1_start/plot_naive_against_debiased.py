"""
More clicks do not help a ranker that takes them at face value
==============================================================

**Claim.** A ranker that takes clicks as labels learns where documents stood as well as what they
are worth. More sessions do not cure it: its quality stays flat. Dividing clicks by examination
(IPS), or learning examination along with relevance (dual learning), gets better with every
session and comes close to a ranker that knows the truth.

**Limit.** The documents are made, and the users click as a position-based model says: that is
the assumption of both corrections, so they are well specified here. IPS is given the true
examination, which nobody has for a real log. With few sessions IPS is *worse* than the naive
ranker, because its weights are noisy.
"""

# %%
# The documents and the old ranker
# --------------------------------
#
# Half of the queries write the log, the other half test. The old ("production") ranker has seen
# the labels of 2 % of the training queries; it decides which document stands where.
import matplotlib.pyplot as plt
import pandas as pd

from skultr import DLARanker, aggregate_clicks
from skultr.datasets import make_ltr
from skultr.metrics import ndcg_score
from skultr.model_selection import train_test_queries
from skultr.rankers import IPSRanker, NaiveRanker
from skultr.simulation import production_scores, relevance_probability, simulate_clicks

N_SESSIONS = [1_000, 3_000, 10_000, 30_000, 100_000, 300_000]


def measure(seed):
    """nDCG@10 on held-out queries, one row a (ranker, number of sessions)."""
    documents = make_ltr(n_queries=1200, n_features=30, random_state=seed)
    train, test = train_test_queries(documents, test_size=0.5, random_state=seed)
    production = {"fraction": 0.02, "random_state": seed}
    shown_by = production_scores(train, **production)
    old = production_scores(train, **production, candidates=test)
    rows = []
    for n_sessions in N_SESSIONS:
        impressions, clicks, truth = simulate_clicks(
            train, n_sessions=n_sessions, scores=shown_by, features=False, random_state=seed
        )
        log, click_rate = aggregate_clicks(impressions.assign(click=clicks), train)
        ips = IPSRanker(propensity=truth.examination, random_state=seed)
        # The skyline reads the truth where the others read clicks.
        relevance = relevance_probability(log["relevance"])
        scores = {
            "production": old,
            "naive": NaiveRanker(random_state=seed).fit(log, click_rate).predict(test),
            "IPS": ips.fit(log, click_rate).predict(test),
            "DLA": DLARanker(random_state=seed).fit(log, click_rate).predict(test),
            "skyline": NaiveRanker(random_state=seed).fit(log, relevance).predict(test),
        }
        for ranker, score in scores.items():
            ndcg = ndcg_score(test["relevance"], score, qid=test["qid"], k=10)
            rows.append({"ranker": ranker, "sessions": n_sessions, "nDCG@10": ndcg})
    return pd.DataFrame(rows)


# %%
# Three worlds
# ------------
#
# Each seed makes other documents, another old ranker and other users.
runs = pd.concat([measure(seed).assign(seed=seed) for seed in range(3)])
table = runs.groupby(["ranker", "sessions"])["nDCG@10"].agg(["mean", "min", "max"])
print(table["mean"].unstack().round(3).to_string())

# %%
# The figure
# ----------
#
# Lines are means over the three seeds, bands reach from the worst to the best of them.
STYLE = {
    "skyline": ("#3d3d3d", "-"),
    "IPS": ("#2e86ab", "-"),
    "DLA": ("#1b998b", "--"),
    "naive": ("#d1495b", "-"),
    "production": ("#9aa0a6", ":"),
}
figure, axes = plt.subplots(figsize=(7.5, 4.5), layout="constrained")
for ranker, (color, line) in STYLE.items():
    curve = table.loc[ranker]
    axes.plot(curve.index, curve["mean"], line, color=color, marker="o", markersize=4,
              label=ranker)  # fmt: skip
    axes.fill_between(curve.index, curve["min"], curve["max"], color=color, alpha=0.12, lw=0)
axes.set_xscale("log")
axes.set_xlabel("simulated sessions")
axes.set_ylabel("nDCG@10 on held-out queries")
axes.set_title("Quality learned from the same clicks")
axes.spines[["top", "right"]].set_visible(False)
axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
plt.show()

# %%
# What to take from it
# --------------------
#
# - Compare the naive line with the others on the right: the distance is bias, not noise.
# - Compare IPS with the naive line on the left: with little data, the correction costs more than
#   it brings. ``IPSRanker(clip=...)`` trades one against the other.
# - The skyline is not 1: the features do not tell everything about relevance.
