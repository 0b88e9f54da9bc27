"""Every ranker with its defaults, where its assumptions hold and where they do not.

Documents (made; MQ2008; LightGBM's example; ClueWeb09 with 437 candidates per query; ``--letor``)
x users x production rankers x policies x sizes of log x seeds. All methods learn from the same
clicks; LightGBM and XGBoost from all sessions, one by one (their objectives know no impressions).
nDCG@10 on the labels of other queries. ``--quick`` has 40 cells with three seeds and takes three
quarters of an hour with four ``--jobs``; the full grid has 1,152. A log of 1,000,000 sessions
takes about 10 GB per job; ``--sessions`` leaves larger logs out. Sets of documents whose files are
not in the folder SKULTR_DATA are left out.

Production scores are standard deviations, and so are temperatures. Production of ``1 %`` of the
labels is linear, and the others are trees. That of ``all labels`` has learned the labels of the
very queries that it serves, so that position is nearly relevance in the log, and less so for
other queries; ``hidden signal`` adds to that of 10 % what no feature tells.

The exhibit ``others`` has other cells, of 20,000 sessions: a production ranker of 1 % of labels
and one order per query, where features tell what was examined; a ``clean`` one, trees that have
learned the labels of queries that are neither in the log nor tested; one of ``more features``, of
which the rankers see every fourth; and ``neighbour swaps``. ``COEC`` are trees that learn clicks
over expected clicks of each document, as many teams do.

A cell is judged by its mean over seeds: on one seed, the naive ranker of another seed is more than
.005 away from itself in most cells. Regret is to the best method of the cell, ``below`` counts
cells more than .005 below, ``harm`` those more than .03 below naive, and harm is *silent* if in
some seed no warning of skultr was raised. ``warned`` is the share of all cells with a warning: one
that comes everywhere warns of nothing. Seconds are of the processor.
"""

import os
import time
import warnings
from pathlib import Path

import lightgbm
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xgboost
from sklearn.base import clone

from skultr import exceptions, rankers

from .._study import Exhibit, Page, Study
from ._robustness_worlds import FILES, Cell, World, cells, documents_of, other_cells

ROUNDS = 100
RANKERS = {
    "naive": rankers.NaiveRanker(),
    "naive trees": rankers.LambdaMARTRanker(naive_weight=1.0),
    "ensemble": rankers.EnsembleRanker(),
    "ensemble, no production": rankers.EnsembleRanker(),
    "ensemble of trees": rankers.EnsembleRanker("trees"),
    "IPS": rankers.IPSRanker(),
    "half IPS": rankers.IPSRanker(naive_weight=0.5),
    "user-aware": rankers.UserAwareIPSRanker(),
    "DLA": rankers.DLARanker(),
    "regression-EM": rankers.RegressionEMRanker(),
    "two towers": rankers.TwoTowerRanker(),
    "pair-debias": rankers.PairDebiasRanker(),
    "affine": rankers.AffineRanker(),
    "vectorization": rankers.VectorizationRanker(),
    "CLD": rankers.CLDRanker(),
    "LambdaMART": rankers.LambdaMARTRanker(),
    "half LambdaMART": rankers.LambdaMARTRanker(naive_weight=0.5),
}
#: Those that read the score of the ranker that served.
READ_PRODUCTION = ("ensemble", "ensemble of trees")
PEERS = ("LightGBM", "LightGBM, position", "XGBoost, unbiased", "COEC")
METHODS = ("production", "random", *RANKERS, *PEERS)
#: Rankers that learn from documents that were never shown.
READ_CANDIDATES = ("CLD",)
CELL = list(Cell._fields)
#: What a method is compared with.
REFERENCES = ("production", "naive")
OVER = [f"over {name}" for name in REFERENCES]
MARGIN, HARM = 0.005, 0.03
BELOW, NOT_BELOW = "#d1495b", "#2e86ab"


# --------------------------------------------------------------------------------------
# Methods: functions from a world and a seed to scores of the test documents
# --------------------------------------------------------------------------------------
def methods():
    """Name -> method."""
    found = {"production": lambda world, seed: world.served, "random": _random}
    for name, ranker in RANKERS.items():
        found[name] = _fit_ranker(ranker, name in READ_CANDIDATES, name in READ_PRODUCTION)
    return found | {
        "LightGBM": lambda world, seed: _fit_lightgbm(world, seed),
        "LightGBM, position": lambda world, seed: _fit_lightgbm(world, seed, debias=True),
        "XGBoost, unbiased": _fit_xgboost,
        "COEC": _fit_coec,
    }


def _random(world, seed):
    return np.random.default_rng(seed).random(len(world.test))


def _fit_ranker(ranker, candidates, production):
    def fit(world, seed):
        log, rate = world.lists_and_candidates() if candidates else world.lists
        test = world.test
        if not production:
            log = log.drop(columns="production")
            test = test.drop(columns="production")
        fitted = clone(ranker).set_params(random_state=seed).fit(log, rate)
        return fitted.predict(test)

    return fit


def _fit_lightgbm(world, seed, debias=False):
    features, clicks, length, position = world.sessions()
    data = lightgbm.Dataset(features, clicks, group=length, position=position if debias else None)
    settings = {
        "objective": "lambdarank",
        "label_gain": [0, 1],
        "lambdarank_position_bias_regularization": 0.0,
        "verbosity": -1,
        "num_threads": 1,
        "seed": seed,
    }
    booster = lightgbm.train(settings, data, ROUNDS)
    return booster.predict(world.test[world.features].to_numpy())


def _fit_xgboost(world, seed):
    features, clicks, length, _ = world.sessions()
    data = xgboost.QuantileDMatrix(features, clicks, group=length, nthread=1)
    settings = {
        "objective": "rank:ndcg",
        "lambdarank_unbiased": True,
        "lambdarank_pair_method": "topk",
        "lambdarank_num_pair_per_sample": 10,
        "nthread": 1,
        "seed": seed,
    }
    booster = xgboost.train(settings, data, ROUNDS)
    return booster.predict(xgboost.DMatrix(world.test[world.features].to_numpy()))


def _fit_coec(world, seed):
    """Trees of clicks over those that documents at the same positions get on average."""
    features, clicks, _, position = world.sessions()
    expected = (np.bincount(position, clicks) / np.bincount(position))[position]
    document = pd.factorize(world.impressions["doc"])[0]
    row = np.unique(document, return_index=True)[1]
    total = np.maximum(np.bincount(document, expected), 1e-9)
    trees = lightgbm.LGBMRegressor(
        n_estimators=ROUNDS,
        num_leaves=7,
        min_child_samples=5,
        verbosity=-1,
        n_jobs=1,
        random_state=seed,
    )
    trees.fit(features[row], np.bincount(document, clicks) / total, sample_weight=total)
    return trees.predict(world.test[world.features].to_numpy())


# --------------------------------------------------------------------------------------
# Runs
# --------------------------------------------------------------------------------------
DATA = os.environ.get("SKULTR_DATA", "no folder")


def chosen(settings):
    """Cells whose documents are there."""
    every = cells("regular" if settings.quick else "full", letor=settings.letor is not None)
    there = [cell for cell in every if _is_there(cell.documents)]
    most = settings.sessions or 1_000_000
    return [cell._asdict() for cell in there if cell.sessions <= most]


def others(settings):
    """The other cells whose documents are there."""
    return [cell._asdict() for cell in other_cells() if _is_there(cell.documents)]


def _is_there(name):
    return name not in FILES or (Path(DATA) / f"{FILES[name]}.parquet").exists()


def fits(cell, settings, seed):
    """One row for each method; one that fails says why, and the others go on."""
    cell = Cell(**cell)
    world = World(cell, seed, *documents_of(cell.documents, seed, DATA, settings.letor))
    references = {}
    for name, method in methods().items():
        row, start = (
            {"method": name, "ndcg": None, "shown": None, "error": ""},
            time.process_time(),
        )
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            try:
                scores = method(world, seed)
                ndcg = world.ndcg(scores)
                row["ndcg"] = ndcg.mean()
                row["shown"] = world.ndcg(world.shown_first(scores)).mean()
                if name in REFERENCES:
                    references[name] = ndcg
                for other, known in references.items():
                    row[f"error over {other}"] = (ndcg - known).sem()
            except Exception as error:
                row["error"] = f"{type(error).__name__}: {error}"[:300]
        told = {warning.category.__name__ for warning in raised} & set(exceptions.__all__)
        yield {**row, "CPU seconds": time.process_time() - start, "silent": not told}


# --------------------------------------------------------------------------------------
# Summary
# --------------------------------------------------------------------------------------
def compare(rows, keys=CELL):
    """One row per cell and method, with margins to the best, to naive and to production."""
    rows = rows[rows["ndcg"].notna()]
    table = rows.groupby([*keys, "method"], sort=False).agg(
        ndcg=("ndcg", "mean"),
        shown=("shown", "mean"),
        silent=("silent", "any"),
        seconds=("CPU seconds", "mean"),
    )
    wide = table["ndcg"].unstack("method")
    of_cell = table.index.droplevel("method")
    for name in REFERENCES:
        reference = wide.get(name, pd.Series(np.nan, wide.index))
        table[f"over {name}"] = table["ndcg"] - reference.loc[of_cell].to_numpy()
        shown = table["shown"].unstack("method").get(name, pd.Series(np.nan, wide.index))
        table[f"shown over {name}"] = table["shown"] - shown.loc[of_cell].to_numpy()
    table["regret"] = wide.max(axis=1).loc[of_cell].to_numpy() - table["ndcg"]
    return table


def per_method(rows):
    """The measures of each method over its cells."""
    found, table = {}, compare(rows)
    for name, of in table.groupby(level="method", sort=False):
        harmed = of["over naive"] < -HARM
        found[name] = {
            "cells": len(of),
            "nDCG@10": of["ndcg"].mean(),
            "regret": of["regret"].mean(),
            "worst to naive": of["over naive"].min(),
            "shown over naive": of["shown over naive"].mean(),
            "worst shown": of["shown over naive"].min(),
            "worst to production": of["over production"].min(),
            "below naive": (of["over naive"] < -MARGIN).mean(),
            "below production": (of["over production"] < -MARGIN).mean(),
            "harm": harmed.mean(),
            "silent harm": (harmed & of["silent"]).mean(),
            "warned": 1 - of["silent"].mean(),
            "seconds": of["seconds"].mean(),
        }
    found = pd.DataFrame(found).T.sort_values("nDCG@10", ascending=False)
    return found.rename_axis("method").reset_index().assign(seed=0)


def margins(rows):
    """Margin over naive of each cell and method, by each factor of the grid."""
    table = compare(rows)["over naive"].rename("over naive").reset_index()
    parts = [table.assign(factor=factor, level=table[factor].astype(str)) for factor in CELL]
    groups = pd.concat(parts).groupby(["method", "factor", "level"], sort=False)["over naive"]
    found = groups.agg(["mean", "min"]).set_axis(["over naive", "worst"], axis=1)
    return found.reset_index().assign(seed=0)


def ensemble(rows):
    """Margins of the ensemble over naive, production and the better of the two, by cell."""
    rows = rows[rows["method"] == "ensemble"].merge(
        compare(rows).reset_index()[[*CELL, "method", *OVER]], on=[*CELL, "method"]
    )
    errors = {f"error {over}": _error_of_mean for over in OVER}
    found = rows.groupby([*CELL, "method"], sort=False).agg(dict.fromkeys(OVER, "mean") | errors)
    margin = found[OVER].min(axis=1)
    found = found.assign(margin=margin, worst=margin.min(), kept=(margin >= -MARGIN) * 1.0)
    return found.reset_index().assign(seed=0)


def _error_of_mean(errors):
    """Standard error of a mean over seeds, from that of each."""
    return np.sqrt((errors**2).sum()) / len(errors)


def draw_cells(rows, table):
    """Margins of the cells over each reference, sorted, with 95 % intervals over queries."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), sharey=True, layout="constrained")
    for axis, over in zip(axes, OVER, strict=True):
        margin = rows.sort_values(over)
        below = (margin[over] < -MARGIN).to_numpy()
        for part, color in ((below, BELOW), (~below, NOT_BELOW)):
            axis.errorbar(
                np.flatnonzero(part) + 1,
                margin.loc[part, over],
                yerr=1.96 * margin.loc[part, f"error {over}"],
                fmt="o",
                ms=4,
                lw=1,
                color=color,
            )
        axis.axhline(0, color="black", lw=0.8)
        axis.set_title(
            f"Ensemble {over}: {margin[over].mean():+.3f} on average,\n"
            f"more than {MARGIN:.3f} below in {below.sum()} of {len(margin)}",
            fontsize=11,
        )
        axis.set_xlabel("simulated settings, sorted")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("difference in nDCG@10")
    return figure


STUDY = Study("fits", fits, chosen, quick_runs=3, full_runs=3)
OTHERS = Study("others", fits, others, quick_runs=2, full_runs=4)
SHARES = ("below naive", "below production", "harm", "silent harm", "warned")
SHOWN = ("shown over naive", "worst shown")
WORST = ("worst to naive", "worst to production")
PAGE = Page(
    "studies/robustness",
    "Every ranker with its defaults",
    (
        Exhibit(
            "methods",
            "Over all cells",
            STUDY,
            ("method",),
            ("cells", "nDCG@10", "regret", *WORST, *SHOWN, *SHARES, "seconds"),
            keep=per_method,
        ),
        Exhibit(
            "margins",
            "nDCG@10 minus naive",
            STUDY,
            ("method", "factor", "level"),
            ("over naive", "worst"),
            keep=margins,
        ),
        Exhibit(
            "others",
            "Weak or clean production, few features, swaps",
            OTHERS,
            ("documents", "user", "production", "policy", "method"),
            ("ndcg",),
            keep=lambda rows: rows[rows["ndcg"].notna()],
            paired=("documents", "user", "production", "policy"),
            draw=lambda rows, table: draw_cells(ensemble(rows), table),
        ),
        Exhibit(
            "ensemble",
            "Over the better of naive and production",
            STUDY,
            ("method",),
            ("margin", "worst", "kept"),
            keep=ensemble,
            draw=draw_cells,
        ),
    ),
)
