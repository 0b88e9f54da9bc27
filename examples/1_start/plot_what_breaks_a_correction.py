"""
What breaks a correction for position bias
==========================================

**Claim.** Dividing clicks by examination probabilities, without a bound, gains .05 of nDCG@10 over
clicks as they are where its assumptions hold, and at least as much where users stop at a good
result. Where users trust the top of the page it gains less. Where the logging policy chose what to
show by a signal that the features lack, it gains nothing; where clicks are few, it loses .02; and
given a curve that is far too steep, it loses more than .2. ``fit`` always warned of few clicks,
once in six logs of the steep curve, and never of the others: most broken assumptions leave no
trace in the log.

**Limit.** Six simulated worlds with one kind of documents and a weak logging policy. Each breaks
one assumption, and breaks it hard. The figure cannot tell how much your users break it; the page
:ref:`trust` says how to test for each.
"""

# %%
# Six worlds
# ----------
#
# In the first, users examine position k with probability 1 / k, and the ranker is given that
# curve. Each of the others changes one thing.
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from lightgbm import LGBMRanker

from skultr import aggregate_clicks
from skultr.datasets import make_ltr
from skultr.metrics import ndcg_score
from skultr.model_selection import train_test_queries
from skultr.rankers import IPSRanker, NaiveRanker
from skultr.simulation import (
    DBNUser,
    PositionBasedUser,
    TrustBiasUser,
    hidden_signal_scores,
    production_scores,
    simulate_clicks,
)

AS_ASSUMED = {"user": PositionBasedUser(1.0), "n_sessions": 100_000, "n_positions": 10}
WORLDS = {
    "as assumed": AS_ASSUMED,
    "users stop when satisfied": AS_ASSUMED | {"user": DBNUser(continuation=0.8)},
    "users trust the top": AS_ASSUMED | {"user": TrustBiasUser()},
    "5 shown, chosen by a hidden signal": AS_ASSUMED | {"n_positions": 5, "hidden": True},
    "few clicks: 500 pages": AS_ASSUMED | {"n_sessions": 500},
    "curve too steep: 1 / k²": AS_ASSUMED | {"eta": 2.0},
}
SEEDS = range(6)


def trees():
    return LGBMRanker(objective="rank_xendcg", n_estimators=60, verbosity=-1, n_jobs=1)


def debiased(log, click_rate, curve):
    """The ranker on clicks over examination, and whether its fit warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ranker = IPSRanker(estimator=trees(), propensity=curve, clip=None).fit(log, click_rate)
    return ranker, bool(caught)


def ndcg_in(world, seed):
    """nDCG@10 on new queries of trees on clicks, on debiased clicks, and on true labels."""
    eta, hidden = world.get("eta", 1.0), world.get("hidden", False)
    served = {name: world[name] for name in AS_ASSUMED}
    documents = make_ltr(n_queries=400, n_features=20, random_state=seed)
    train, test = train_test_queries(documents, random_state=0)
    scores = production_scores(train, random_state=seed)
    if hidden:
        scores = hidden_signal_scores(scores, train["relevance"], random_state=seed)
    X, clicks, _ = simulate_clicks(
        train, scores=scores, features=False, random_state=seed, **served
    )
    log, click_rate = aggregate_clicks(X.assign(click=clicks), train)
    naive = NaiveRanker(estimator=trees()).fit(log, click_rate)
    curve = np.arange(1, world["n_positions"] + 1) ** -eta
    ranker, warned = debiased(log, click_rate, curve)
    features = [name for name in test if name.startswith("feature")]
    sizes = train.groupby("qid", sort=False).size()
    skyline = trees().fit(train[features], train["relevance"], group=sizes)
    rankings = {
        "clicks as they are": naive.predict(test),
        "clicks / examination": ranker.predict(test),
        "true labels": skyline.predict(test[features]),
    }
    values = {
        name: ndcg_score(test["relevance"], scores, qid=test["qid"], k=10)
        for name, scores in rankings.items()
    }
    return {**values, "fit warned": warned}


# %%
# Six logs of each
# ----------------
#
# *Gain* is what the correction adds to clicks as they are; *fit warned* is the share of logs.
table = pd.DataFrame(
    [{"world": name, **ndcg_in(world, seed)} for name, world in WORLDS.items() for seed in SEEDS]
)
table["gain"] = table["clicks / examination"] - table["clicks as they are"]
means = table.groupby("world", sort=False).mean()
print(means.round(3).to_string())

# %%
# The figure
# ----------
#
# One dot per log, the bar is their mean.
figure, axes = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
order = list(WORLDS)[::-1]
mean_gain = means["gain"].loc[order]
colors = ["#1b998b" if value > 0 else "#d1495b" for value in mean_gain]
axes.barh(order, mean_gain, color=colors, alpha=0.45)
axes.plot(table["gain"], [order.index(name) for name in table["world"]], ".", color="#3d3d3d")
axes.axvline(0, color="black", linewidth=0.8)
axes.set_xlabel("nDCG@10 gained over clicks as they are, on new queries")
axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The claim, checked
# ------------------
gain = means["gain"]
assert gain["as assumed"] > 0.03
assert gain["users stop when satisfied"] > 0.03
assert 0.01 < gain["users trust the top"] < gain["as assumed"]
assert abs(gain["5 shown, chosen by a hidden signal"]) < 0.03
assert -0.05 < gain["few clicks: 500 pages"] < 0.01
assert gain["curve too steep: 1 / k²"] < -0.15
assert means["fit warned"]["few clicks: 500 pages"] == 1
assert (means["fit warned"].drop("few clicks: 500 pages") < 0.5).all()
