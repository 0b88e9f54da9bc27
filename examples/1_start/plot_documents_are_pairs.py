"""
The same page under another query is another document
=====================================================

**Claim.** A document is the pair of ``qid`` and ``doc``. Declaring page ids global
(``doc_scope="global"``) where they are not links positions that nothing links: the log then looks
identifiable, and a wrong examination curve comes out with narrow intervals and without a warning.
With pairs, the same log is not identifiable, and ``fit`` says so. Where ids really are global, the
declaration is what makes the log identifiable, and the curve is right.

**Limit.** The pages are simulated, and every query always shows its pages in one, correct order:
no pair of query and page moves, so that only recurring ids can link positions. In a log whose
order varies, true and false links are mixed, and the error is smaller. The check at the end needs
many impressions per row.
"""

# %%
# Two worlds
# ----------
#
# 400 queries, each with 5 of 150 pages, each list served 2,000 times. In the first world the
# relevance of a page depends on the query, as in search. In the second it does not, as in
# recommendations. Users look at position k with probability 1 / k in both.
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skultr import DLARanker
from skultr.identifiability import IdentifiabilityGraph

N_QUERIES, N_PAGES, N_SHOWN, N_IMPRESSIONS = 400, 150, 5, 2_000
POSITIONS = np.arange(1, N_SHOWN + 1)
TRUE = 1 / POSITIONS


def make_log(ids_are_global):
    """The log, and the click rate of each row."""
    rng = np.random.default_rng(0)
    of_page = rng.uniform(0.05, 0.9, N_PAGES)
    lists = []
    for qid in range(N_QUERIES):
        pages = rng.choice(N_PAGES, N_SHOWN, replace=False)
        relevance = of_page[pages] if ids_are_global else rng.uniform(0.05, 0.9, N_SHOWN)
        best_first = np.argsort(-relevance)
        clicks = rng.binomial(N_IMPRESSIONS, relevance[best_first] * TRUE)
        lists.append(pd.DataFrame({"qid": qid, "doc": pages[best_first], "clicks": clicks}))
    log = pd.concat(lists, ignore_index=True)
    log["position"] = log.groupby("qid").cumcount() + 1
    log["impressions"] = N_IMPRESSIONS
    return log, log.pop("clicks") / N_IMPRESSIONS


WORLDS = {
    "relevance depends on the query": make_log(ids_are_global=False),
    "relevance belongs to the page": make_log(ids_are_global=True),
}
log, _ = WORLDS["relevance depends on the query"]
print(f"{(log.groupby('doc')['qid'].nunique() > 1).sum()} of {N_PAGES} page ids recur")

# %%
# The verdict
# -----------
#
# It depends on the declaration alone. The graph sees which ids were shown where, and cannot see
# what an id means.
for scope in ("query", "global"):
    graph = IdentifiabilityGraph.from_log(log.assign(doc_scope=scope))
    print(f'doc_scope="{scope}": {graph.summary().splitlines()[0]}')

# %%
# The curve
# ---------
#
# Dual learning with one relevance per document, from four random starts. Where nothing links the
# positions, every start gives another curve, each fit warns, and the standard error of log
# examination is infinite.
SEEDS = range(4)


def learn(log, click_rate, seed):
    """The examination that was learned, its standard error, and the warnings of the fit."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ranker = DLARanker(relevance="embedding", random_state=seed).fit(log, click_rate)
    table = ranker.examination_
    names = [warning.category.__name__ for warning in caught]
    return table["examination"], table["standard_error"], names


curves = {}
for world, (log, click_rate) in WORLDS.items():
    for scope in ("query", "global"):
        found = [learn(log.assign(doc_scope=scope), click_rate, seed) for seed in SEEDS]
        table = pd.concat([curve for curve, *_ in found], axis=1, keys=SEEDS)
        print(f'\n{world}, doc_scope="{scope}": {found[0][2] or "no warning"}')
        print(table.assign(standard_error=found[0][1]).round(3).to_string())
        curves[world, scope] = table

# %%
# The figure
# ----------
#
# On the left the declaration is false: the curve looks smooth and is the same from every start,
# but it falls too steeply. Where a page stands lower, it is also less relevant *to that query*,
# and the model takes this for less examination.
PAIRS, GLOBAL = "#a3b18a", "#7251b5"
figure, panels = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for axes, world in zip(panels, WORLDS, strict=True):
    for seed in SEEDS:
        style = {"color": PAIRS, "lw": 1, "label": None if seed else "pairs: four starts, warned"}
        axes.plot(POSITIONS, curves[world, "query"][seed], **style)
    axes.plot(POSITIONS, TRUE, "o-", color="black", label="truth")
    axes.plot(
        POSITIONS, curves[world, "global"][0], "s--", color=GLOBAL, label="ids declared global"
    )
    axes.set(title=world, xlabel="position", xticks=POSITIONS, ylim=(0, 1.05))
    axes.spines[["top", "right"]].set_visible(False)
panels[0].set_ylabel("examination, relative to position 1")
panels[1].legend(frameon=False)
plt.show()

# %%
# Which world is mine?
# --------------------
#
# If ids are global, a page at one position has one click probability under all queries: click
# rates differ by chance alone, and the variance between queries is that of the binomial
# distribution (ratio 1). Check this before you declare ids global.
ratios = []
for world, (log, click_rate) in WORLDS.items():
    rates = click_rate.groupby([log["doc"], log["position"]])
    chance = rates.mean() * (1 - rates.mean()) / N_IMPRESSIONS
    freedom = rates.size() - 1
    ratio = (rates.var() / chance * freedom).sum() / freedom.sum()
    print(f"{world}: variance of click rates between queries, {ratio:.1f} times that of chance")
    ratios.append(ratio)

# %%
# The claim, checked
# ------------------
#
# A false declaration gives a curve that is the same from every start, and wrong; a true one gives
# the right curve; and pairs give another curve from each start.
false, right = (curves[world, "global"].sub(TRUE, axis=0) for world in WORLDS)
assert false.std(axis=1).max() < 0.01 < 0.05 < false.abs().max().min()
assert right.abs().max().max() < 0.01
assert all(curves[world, "query"].std(axis=1).max() > 0.1 for world in WORLDS)
assert ratios[0] > 10 > 1.2 > ratios[1]
