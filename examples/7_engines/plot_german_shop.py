"""
My shop's log, end to end
=========================

**Claim.** A log with sponsored slots, a second page, bots, two devices, prices that change and
customers who prefer brands gives a model that orders new searches better than production and than
LightGBM on the same rows, with or without its ``position``. ``skultr check`` finds the roles of
its German columns, the slots, the bots, and the second page, at whose first place the curve rises.

**Limit.** The shop is simulated: users look at a place by its number and their device alone, and
production, which is weak, varies its order a little. LightGBM has its default settings, and so has
the ensemble. Clicks of a hundred queries held out are too few to compare with production, and some
thousand carts too few to rank by carts.
"""

# %%
# The log in the lake
# -------------------
#
# ``examples/7_engines/german_shop.py`` lets customers search, and writes a folder per day. Another
# size and seed of the shop: ``python plot_german_shop.py 20000 1``.
import sys
import tempfile
from pathlib import Path

import lightgbm
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from german_shop import (
    FEATURES,
    N_BRANDS,
    N_DAYS,
    appeal_of,
    cart_chance,
    examination,
    offers,
    open_german_shop,
    search_shop,
    write_days,
)

from skultr import EnsembleRanker, describe_log
from skultr.evaluation import policy_difference
from skultr.metrics import ndcg_score
from skultr.plotting import method_colors
from skultr.propensity import RegressionEMPropensity
from skultr.serving import export_model, load_model, save_model

N_SEARCHES = int(sys.argv[1]) if len(sys.argv) > 1 else 12_000
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0

shop = open_german_shop(random_state=SEED)
words = shop["Suche"].unique()
known = shop["Suche"].isin(words[:400])
new = shop[~known].reset_index(drop=True)
visits = search_shop(shop[known].reset_index(drop=True), N_SEARCHES, random_state=SEED)

# %%
# Check
# -----
#
# In a terminal this is ``skultr check lake``.
with tempfile.TemporaryDirectory() as folder:
    write_days(visits.log, folder)
    report = describe_log(folder)
print(report.headline)
print(report.rename)
for line in [*report.suspicions, *report.remarks]:
    print("-", line)

# %%
# Roles, slots and bots
# ---------------------
#
# The roles as proposed. Sponsored rows go; results keep the places at which they stood. Customers
# with fifty times the pages of others go, too. Customers are no groups of users who look alike:
# devices are.
raw = visits.log.rename(columns=report.rename)
pages = raw.groupby("user")["session"].nunique()
bots = pages.index[pages > 50 * pages.median()]
is_paid = raw["gesponsert"] == 1
log = raw[~is_paid & ~raw["user"].isin(bots)].drop(columns=["user", "gesponsert", "Zeit"])
print(f"{is_paid.sum():,} paid rows, {len(bots)} bots; {len(log):,} of {len(raw):,} rows are left")

# %%
# How far people look
# -------------------
#
# One curve per device. At place 11 a second page begins.
curves = RegressionEMPropensity(relevance="embedding", user="Gerät").fit(log, "click")
print(curves.examination_["examination"].unstack("user").round(2).T.to_string())

# %%
# Train, beside LightGBM
# ----------------------
#
# A hundred queries of the log are held out, to compare with production by their clicks. LightGBM
# learns from the log as it is, then with its ``position``, then without slots and bots.
held_out = log["qid"].isin(words[300:400])
train = log[~held_out].drop(columns="Gerät")
ranker = EnsembleRanker(random_state=0).fit(train, "click")
trees = EnsembleRanker("trees", random_state=0).fit(train, "click")


def lightgbm_scores(rows, candidates, *, with_position):
    """Scores of a lambdarank with LightGBM's defaults, one group per page."""
    rows = rows.sort_values(["session", "position"])
    position = rows["position"].to_numpy() - 1 if with_position else None
    groups = rows.groupby("session").size()
    data = lightgbm.Dataset(rows[FEATURES], rows["click"], group=groups, position=position)
    settings = {"objective": "lambdarank", "label_gain": [0, 1], "seed": 0}
    settings |= {"num_threads": 1, "verbosity": -1}
    return lightgbm.train(settings, data, 100).predict(candidates[FEATURES])


# %%
# What customers like
# -------------------
#
# A hundred queries that nobody searched, with all their products, on five days for five customers:
# nDCG@10 by the true chance of a click on what is looked at.
rng = np.random.default_rng(SEED)
days = range(N_DAYS, N_DAYS + 5)
candidates = pd.concat(
    [offers(new, rng.integers(N_BRANDS), day, rng).assign(Tag=day) for day in days]
)
candidates = candidates.reset_index(drop=True)
page = candidates["Suche"] + " " + candidates["Tag"].astype(str)
served = (
    candidates[[*FEATURES, "Punkte"]].rename(columns={"Punkte": "production"}).assign(qid=page)
)
as_logged = raw[~raw["qid"].isin(words[300:400])]
scores = {
    "production": candidates["Punkte"],
    "LightGBM": lightgbm_scores(as_logged, candidates, with_position=False),
    "LightGBM, position": lightgbm_scores(as_logged, candidates, with_position=True),
    "the same, no slots and bots": lightgbm_scores(train, candidates, with_position=True),
    'EnsembleRanker("trees")': trees.predict(served),
    "EnsembleRanker()": ranker.predict(served),
}
appeal = appeal_of(candidates)
ndcg = pd.DataFrame(
    {
        name: ndcg_score(appeal, each, qid=page, k=10, gain="linear", per_query=True)["ndcg@10"]
        for name, each in scores.items()
    }
)
# Five days of a query are one case.
ndcg = ndcg.groupby(ndcg.index.str.rpartition(" ").get_level_values(0)).mean()
print(ndcg.mean().round(3).to_string())

# %%
# What the log says of it
# -----------------------
#
# Clicks of the queries held out compare the ranker with production. Devices are read to different
# depths, which is said. Prices change, so each product gets its last score. So few pages cannot
# tell: a longer log, or an experiment (:ref:`will_it_win`), would.
clicks = log[held_out]
ids = [clicks["qid"], clicks["doc"]]
predicted = pd.Series(ranker.predict(clicks.drop(columns="Gerät")), clicks.index)
predicted = predicted.groupby(ids).transform("last")
of_production = clicks.groupby(["qid", "doc"])["production"].transform("mean")
found = policy_difference(
    clicks,
    "click",
    predicted,
    of_production,
    names=("the ensemble", "production"),
    context="Gerät",
)
print(found.verdict)

# %%
# Carts and purchases
# -------------------
#
# ``y`` names what counts; how far people look comes from the clicks. Here the value of a page is
# the mean chance that its first three products are put into the cart by who looks at them. Carts
# are few, and the clicks are as good a teacher.
by_carts = EnsembleRanker("trees", random_state=0).fit(train, "outcome_warenkorb")
value = pd.Series(appeal * cart_chance(candidates))


def carts_of_first_three(scores):
    """Mean chance of a cart of the first three products, relative to the best order."""
    rank = pd.Series(np.asarray(scores)).groupby(page.to_numpy()).rank(ascending=False)
    best = value.groupby(page.to_numpy()).nlargest(3).sum()
    return value[rank <= 3].sum() / best


carts = {
    "learned from clicks": carts_of_first_three(trees.predict(served)),
    "learned from carts": carts_of_first_three(by_carts.predict(served)),
}
print(f"{train['outcome_warenkorb'].sum():,} carts, {train['click'].sum():,} clicks")
print({name: round(float(share), 3) for name, share in carts.items()})

# %%
# Serve
# -----
#
# The ensemble goes into one file for a service of your own, and one of trees into an engine.
with tempfile.TemporaryDirectory() as folder:
    save_model(ranker, Path(folder) / "shop.zip")
    loaded = load_model(Path(folder) / "shop.zip")
model = export_model(trees, "solr", name="shop-1")
print(f"Solr gets {len(model) / 1e3:.0f} kB")

# %%
# The figure
# ----------
#
# Left: how far people look on each device, with 95 % intervals, and the truth. The rise at place
# 11 is the second page. Prices and stock change what a product draws, which these intervals do not
# count: in three shops they hold the truth at 70 to 90 % of the places of a device. Right: 95 %
# intervals are over queries.
colors = method_colors(scores)
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
place = np.arange(1, 21)
for device, color, marker in (("Rechner", "#2e86ab", "o"), ("Handy", "#c0392b", "s")):
    curve = curves.examination_.loc[device]
    error = [curve["examination"] - curve["lower"], curve["upper"] - curve["examination"]]
    left.errorbar(
        place, curve["examination"], error, fmt=marker, color=color, markersize=4, label=device
    )
    truth = examination(place, [device] * len(place))
    for page_of in (slice(0, 10), slice(10, 20)):
        left.plot(place[page_of], truth[page_of], color=color, linewidth=1)
left.axvline(10.5, color="0.7", linewidth=0.8)
left.text(10.7, 1.03, "second page", color="0.4", va="center")
left.set(xlabel="place", ylabel="looked at", ylim=(0, 1.12), xticks=[1, 5, 11, 15, 20])
left.set_title("How far people look: found (marks), true (lines)")
left.legend(frameon=False)
mean, error = ndcg.mean()[::-1], 1.96 * ndcg.sem()[::-1]
rows = np.arange(len(mean))
for row, name in enumerate(mean.index):
    right.errorbar(mean[name], row, xerr=error[name], fmt="o", color=colors[name])
    right.text(mean[name], row + 0.16, f"{mean[name]:.3f}", color=colors[name], ha="center")
right.set(yticks=rows, yticklabels=mean.index, ylim=(-0.5, len(mean) - 0.3))
right.set_xlabel("nDCG@10 of new queries, by what customers like")
right.set_title("Who orders new searches best")
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The claim, checked
# ------------------
#
# Differences are within queries, and their intervals are over queries.
assert report.rename["Platz"] == "position"
assert report.rename["Punkte"] == "production"
assert {*bots} == {*visits.bots}
assert any("rise at position 11" in line for line in report.suspicions)
for device in ("Handy", "Rechner"):
    curve = curves.examination_.loc[device]
    truth = examination(place, [device] * len(place))
    inside = (curve["lower"] <= truth) & (truth <= curve["upper"])
    assert inside.mean() >= 0.65
    assert curve["lower"].loc[11] > curve["upper"].loc[10]
for other in ("production", "LightGBM", "LightGBM, position", "the same, no slots and bots"):
    ahead = ndcg["EnsembleRanker()"] - ndcg[other]
    print(f"ahead of {other}: {ahead.mean():.3f} +- {1.96 * ahead.sem():.3f}")
    assert ahead.mean() > 1.96 * ahead.sem()
assert not found.verdict.startswith("production gets more")
assert min(carts.values()) > 0.75
assert (loaded.predict(served) == scores["EnsembleRanker()"]).all()
