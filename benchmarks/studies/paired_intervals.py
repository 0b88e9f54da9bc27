"""How often the intervals of ``run_comparison`` hold the true difference, by seed and by log.

Three users, and one or two production rankers. The differences of 60 seeds stand for all seeds:
their mean is the truth, and what a study of 3, 5 or 10 seeds would have found is drawn from them,
1,000 times.
"""

from itertools import product

import numpy as np
import pandas as pd
from lightgbm import LGBMRegressor

from skultr.datasets import make_ltr
from skultr.evaluation import ComparisonTable, run_comparison
from skultr.rankers import IPSRanker, NaiveRanker
from skultr.simulation import PositionBasedUser, TrustBiasUser, production_scores

from .._study import Page, measured

USERS = {
    "eta 1": PositionBasedUser(1.0),
    "trust": TrustBiasUser(),
    "eta 2": PositionBasedUser(2.0),
}
#: Share of the training queries whose labels production has learned.
SHARES = {"weak": 0.01, "strong": 0.5}
PRODUCTION = {"weak": ("weak",), "strong": ("strong",), "both": ("weak", "strong")}
METHODS = ("IPS", "production")
N_SEEDS = (3, 5, 10)
UNITS = ("seed", "log")


def paired_intervals(cell, settings, seed):
    """Shares of intervals that hold the mean, and their widths."""
    trees = LGBMRegressor(
        n_estimators=40, num_leaves=15, min_child_samples=5, verbosity=-1, n_jobs=1
    )
    comparison = run_comparison(
        make_ltr(settings.queries or 300, n_features=10, random_state=seed),
        {
            "naive": NaiveRanker(estimator=trees),
            "IPS": IPSRanker(estimator=trees, propensity=1 / np.arange(1, 11)),
        },
        users=USERS,
        production={name: _served_by(SHARES[name]) for name in PRODUCTION[cell["production"]]},
        seeds=settings.size(quick=30, full=60, tiny=3),
        n_sessions=settings.sessions or 3_000,
    )
    truth = comparison.table("naive").set_index("method")["difference"]
    n_draws = settings.size(quick=200, full=1_000, tiny=2)
    for n_seeds, unit in product(N_SEEDS, UNITS):
        rng = np.random.default_rng(seed)
        tables = [_drawn(comparison.cells_, n_seeds, unit, rng) for _ in range(n_draws)]
        for method in METHODS:
            ends = np.array([table.loc[method, ["lower", "upper"]] for table in tables], float)
            held = (ends[:, 0] <= truth[method]) & (truth[method] <= ends[:, 1])
            width = np.nanmean(ends[:, 1] - ends[:, 0])
            row = {"method": method, "seeds": n_seeds, "unit": unit}
            yield row | {"held": held.mean(), "width": width}


def _drawn(cells, n_seeds, unit, rng):
    """The table that a study of so many seeds would have had."""
    drawn = rng.choice(cells["seed"].unique(), n_seeds)
    parts = [cells[cells["seed"] == seed].assign(seed=i) for i, seed in enumerate(drawn)]
    found = ComparisonTable(pd.concat(parts, ignore_index=True))
    return found.table("naive", unit=unit).set_index("method")


def _served_by(share):
    return lambda train, candidates, seed: production_scores(
        train, fraction=share, candidates=candidates, random_state=seed
    )


PAGE = Page(
    "studies/paired_intervals",
    "Intervals of simulated comparisons",
    (
        measured(
            paired_intervals,
            "Share of intervals of 95 % that hold the mean of all seeds",
            ("held", "width"),
            over={"production": PRODUCTION},
            by=("method", "seeds", "unit"),
            runs=1,
            level=None,
        ),
    ),
)
