"""Estimators of the mutual information of two variables within grades, for CMIP.

By nearest neighbours, by a classifier that tells documents from independent pairs, and by the
classifier of the paper, to the letter.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree
from scipy.special import digamma, ndtri

from .._base._progress import progress
from .._base._typing import Floats, Ints
from .._log._segments import offsets_from_counts, offsets_from_sorted

#: Number of neighbours. Measured on normal data: 3 has the same bias and more noise; 10 misses
#: strong dependence in grades of 50 documents.
_N_NEIGHBORS = 5


# Nearest neighbours -------------------------------------------------------------------
def knn_information(
    pred: Floats, logging: Floats, grade: Ints, cell: Ints, n_repeats: int, rng: Any
) -> Floats:
    """Term of each document in the information, in nats, by neighbours in its cell (a large grade,
    or all small ones); documents are sorted by grade."""
    total = np.zeros(len(pred))
    for _ in range(n_repeats):
        # Scattered ranks are uniform in a grade of any size, so that in the common cell variables
        # are independent if they are so given the grade.
        x = _normal_scores(_scattered_ranks(pred, grade, rng), grade)
        y = _normal_scores(_scattered_ranks(logging, grade, rng), grade)
        # Rows are sorted by cell.
        for first, last in pairwise(offsets_from_sorted(cell)):
            total[first:last] += _neighbor_information(x[first:last], y[first:last])
    return total / n_repeats


def _neighbor_information(x, y):
    """Terms of the first estimator of Kraskov et al., one per document: ψ(k) + ψ(n) - ψ(n_x) -
    ψ(n_y), with the numbers of values strictly closer than the k-th neighbour (maximum norm)."""
    n = len(x)
    # In a small grade the fifth neighbour is far away.
    k = _N_NEIGHBORS if n >= 100 else 3
    k = min(k, n - 1)
    points = np.column_stack([x, y])
    # A point is its own nearest neighbour.
    distances, _ = cKDTree(points).query(points, k=k + 1, p=np.inf)
    # Strictly closer: rounding must not include the k-th neighbour itself.
    closer = distances[:, -1] * (1 - 1e-10)
    n_x = _n_within(x, closer)
    n_y = _n_within(y, closer)
    return digamma(k) + digamma(n) - digamma(n_x) - digamma(n_y)


def _n_within(values, distance):
    """Number of values within the given distance of each value, itself included."""
    ordered = np.sort(values)
    above = np.searchsorted(ordered, values + distance, side="right")
    below = np.searchsorted(ordered, values - distance, side="left")
    return above - below


def shuffled_within(cell: Ints, rng: Any) -> Ints:
    """Rows sorted by their cell, and in random order within it."""
    return np.lexsort((rng.random_sample(len(cell)), cell))


# Ranks within grades ------------------------------------------------------------------
def _scattered_ranks(values, grade, rng):
    """Ranks from 1 within the grade, each moved by up to a half; equal values in random order."""
    # Independent noise that keeps the order does not change the information. Without it, distances
    # are those of a lattice, nearest neighbours tie, and small grades appear dependent.
    order = np.lexsort((rng.random_sample(len(values)), values, grade))
    first = offsets_from_counts(np.bincount(grade))[grade]
    rank = np.argsort(order) - first + 1
    return rank + rng.random_sample(len(values)) - 0.5


def mean_ranks(values: Floats, grade: Ints) -> Floats:
    """Ranks from 1 within the grade; equal values have their mean rank."""
    return pd.Series(values).groupby(grade).rank().to_numpy()


def _normal_scores(rank, grade):
    """Normal quantiles of ranks within grades, so that both variables are standard normal."""
    n_in_grade = np.bincount(grade)[grade]
    return ndtri((rank - 0.5) / n_in_grade)


#: Three folds train a classifier, one stops it, and one is told by it.
_N_FOLDS = 5
#: Odds are clipped to [1/99, 99] for each of the copula and the trees, and twice that together:
#: a single impossible pair must not decide the value.
_LARGEST_LOG_ODDS = np.log(0.99 / 0.01)


# Classifier ---------------------------------------------------------------------------
def classifier_information(
    pred: Floats, logging: Floats, grade: Ints, cell: Ints, n_repeats: int, rng: Any
) -> tuple[Floats, Floats]:
    """Term of each document in the information, in nats, where the classifier has not seen it,
    plus a third of what it gains where it has; and the latter. Sorted by grade."""
    cell = np.unique(cell, return_inverse=True)[1]
    held_out = np.zeros(len(pred))
    trained = np.zeros(len(pred))
    if len(pred) < _N_FOLDS:
        # All other documents are of grades in which a variable is constant.
        return held_out, trained
    for _ in progress(range(n_repeats), "CMIP: repeat"):
        x = _scores_in_cells(pred, grade, cell, rng)
        y = _scores_in_cells(logging, grade, cell, rng)
        # Each cell is divided evenly.
        order = shuffled_within(cell, rng)
        # Documents of a cell are dealt to the folds one after another.
        fold = np.argsort(order) % _N_FOLDS
        for test in progress(range(_N_FOLDS), "fold"):
            # The next fold is for early stopping, the other three are for training.
            tested, stops, seen = (fold == (test + step) % _N_FOLDS for step in range(3))
            log_odds = _fit_log_odds(x, y, cell, ~(tested | stops), stops, rng)
            for total, rows in ((held_out, tested), (trained, seen)):
                # Four independent pairs per document: more pairs, less noise of the normaliser.
                pairs = _pairs(x[rows], y[rows], cell[rows], 4, rng)
                total[rows] += _donsker_varadhan(log_odds, *pairs)
    # Terms of held-out documents are too small, and those of trained ones too large: measured, by
    # twice as much.
    added = 1 / 3 * (trained - held_out) / n_repeats
    return held_out / n_repeats + added, added


def _scores_in_cells(values, grade, cell, rng):
    """Normal scores in the grade; equal values have their mean rank where a cell is one grade."""
    rank = _scattered_ranks(values, grade, rng)
    # Ties need no scatter there: a classifier does not measure distances.
    n_in_cell = np.bincount(cell)[cell]
    n_in_grade = np.bincount(grade)[grade]
    alone = n_in_cell == n_in_grade
    rank = np.where(alone, mean_ranks(values, grade), rank)
    return _normal_scores(rank, grade)


def _pairs(x, y, cell, n_pairs, rng):
    """Features of the documents, and of pairs with the position of another one of the cell."""
    order = shuffled_within(cell, rng)
    offsets = offsets_from_sorted(cell[order])
    sizes = np.diff(offsets)
    # Size and first place of the cell of each document.
    size, start = np.repeat([sizes, offsets[:-1]], sizes, axis=1)
    place = np.arange(len(cell)) - start
    independent = []
    for step in range(n_pairs):
        # Each is paired with one that stands 1, 2, ... places behind it, round its cell. A
        # document alone in its cell of a fold is paired with itself.
        behind = 1 + step % np.maximum(size - 1, 1)
        other = np.empty(len(cell), dtype=np.intp)
        other[order] = order[start + (place + behind) % size]
        independent.append(_pair_features(x, y[other], cell))
    return _pair_features(x, y, cell), np.concatenate(independent)


def _pair_features(x, y, cell):
    # Trees split along axes: with sums and differences they need no staircase along a diagonal.
    return np.column_stack([x, y, x - y, x + y, x * y, cell])


def _fit_log_odds(x, y, cell, trained, stops, rng):
    """Function from features of pairs to the log odds that a pair is a document: of a Gaussian
    copula, and of trees boosted from it, if they predict the fold of early stopping better."""
    rho = _correlations(x[trained], y[trained], cell[trained], cell.max() + 1)
    start = partial(_copula_log_ratio, rho=rho)
    # One independent pair per document.
    train = _pairs(x[trained], y[trained], cell[trained], 1, rng)
    stop = _pairs(x[stops], y[stops], cell[stops], 1, rng)
    settings = {
        "boost_from_average": False,
        "learning_rate": 0.1,
        "num_leaves": 15,
        "min_data_in_leaf": max(20, len(train[0]) // 100),
        "lambda_l2": 10.0,
        "max_bin": 63,
    }
    # At most 300 trees; they stop early.
    model = _boosted(300, rng, train, stop, start, **settings)
    loss_of_trees = model.best_score["valid_0"]["binary_logloss"]
    # Log loss of the copula alone, on documents and on independent pairs.
    losses = [np.logaddexp(0, -start(stop[0])), np.logaddexp(0, start(stop[1]))]
    improves = loss_of_trees < np.concatenate(losses).mean()

    def log_odds(features):
        value = start(features)
        if improves:
            value = value + model.predict(features, raw_score=True)
        return np.clip(value, -2 * _LARGEST_LOG_ODDS, 2 * _LARGEST_LOG_ODDS)

    return log_odds


def _boosted(n_trees, rng, train, stop=None, start=None, **settings):
    """Trees that tell documents from independent pairs; early stopping where pairs are given."""
    # Imported here, so that ranking metrics do not import LightGBM.
    import lightgbm as lgb

    def labelled(pairs, reference=None):
        features = np.concatenate(pairs)
        label = np.repeat([1.0, 0.0], [len(part) for part in pairs])
        known = None if start is None else start(features)
        return lgb.Dataset(
            features, label, init_score=known, reference=reference, params={"verbose": -1}
        )

    # One thread, so that results are the same on every machine.
    settings |= {
        "objective": "binary",
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
        "seed": rng.randint(2**31 - 1),
        "verbose": -1,
    }
    data = labelled(train)
    held_out = {}
    if stop is not None:
        held_out["valid_sets"] = [labelled(stop, reference=data)]
        held_out["callbacks"] = [lgb.early_stopping(20, verbose=False)]
    return lgb.train(settings, data, num_boost_round=n_trees, **held_out)


def _donsker_varadhan(log_odds, documents, independent):
    """Terms of the bound E[log odds] - log E_independent[odds], one per document."""
    odds = np.exp(log_odds(independent))
    # Mean of the pairs of each document.
    odds = odds.reshape(-1, len(documents)).mean(axis=0)
    normaliser = odds.mean()
    # The last term, of mean 0, is the first-order effect of the noise of the normaliser; it enters
    # the standard error.
    return log_odds(documents) - np.log(normaliser) - (odds / normaliser - 1)


# Copula -------------------------------------------------------------------------------
def _copula_log_ratio(features, rho):
    """log of the density of correlated normal scores over that of independent ones, by cell."""
    x = features[:, 0]
    y = features[:, 1]
    cell = features[:, 5].astype(int)
    rho = rho[cell]
    # log of N(0, [[1, ρ], [ρ, 1]]) over N(0, 1) N(0, 1).
    square = rho**2
    form = square * (x**2 + y**2) - 2 * rho * x * y
    exponent = form / (2 * (1 - square))
    log_ratio = -0.5 * np.log1p(-square) - exponent
    return np.clip(log_ratio, -2 * _LARGEST_LOG_ODDS, 2 * _LARGEST_LOG_ODDS)


def _correlations(x, y, cell, n_cells):
    """Correlation in each cell, shrunk to that of all: Fisher's z of n documents has the variance
    1 / (n - 3), and the variance between cells is that of DerSimonian and Laird."""
    xy = np.bincount(cell, x * y, n_cells)
    xx = np.bincount(cell, x * x, n_cells)
    yy = np.bincount(cell, y * y, n_cells)
    size = np.sqrt(xx * yy)
    rho = np.divide(xy, size, out=np.zeros(n_cells), where=size > 0)
    # The z of a perfect correlation is infinite.
    z = np.arctanh(np.clip(rho, -0.995, 0.995))
    weight = np.maximum(np.bincount(cell, minlength=n_cells) - 3.0, 0.0)
    if not weight.any():
        return np.zeros(n_cells)
    total = weight.sum()
    pooled = weight @ z / total
    squares = weight @ (z - pooled) ** 2
    # Cochran's Q less its expected value, over its scale: the variance between cells.
    excess = squares - (np.count_nonzero(weight) - 1)
    scale = total - weight @ weight / total
    between = max(excess / scale, 0.0) if scale > 0 else 0.0
    # How far a cell keeps its own correlation.
    own_share = between * weight / (1 + between * weight)
    return np.tanh(own_share * z + (1 - own_share) * pooled)


# As published -------------------------------------------------------------------------
def published_information(
    pred: Floats, logging: Floats, relevance: Floats, n_repeats: int, rng: Any
) -> float:
    """The estimate of the CMIP paper, section 4.3, in nats."""
    documents = np.column_stack([pred, logging, relevance])
    values = []
    for _ in range(n_repeats):
        exchanged, served = np.array_split(rng.permutation(documents), 2)
        # One half gets the positions of documents of the other half, of the same grade.
        partner = _with_nearest_grade(exchanged[:, 2], served[:, 2], rng)
        exchanged[:, 1] = served[partner, 1]
        # The order is random: every other row trains.
        model = _boosted(100, rng, (served[::2], exchanged[::2]))
        log_odds = []
        for rows in (served, exchanged):  # whose lengths may differ by one
            tested = model.predict(rows[1::2], raw_score=True)
            log_odds.append(tested.clip(-_LARGEST_LOG_ODDS, _LARGEST_LOG_ODDS))
        values.append(log_odds[0].mean() - np.log(np.exp(log_odds[1]).mean()))
    return float(np.mean(values))


def _with_nearest_grade(grades, others, rng):
    """Index of a random document of the others that has the nearest grade, for each grade."""
    values, counts = np.unique(others, return_counts=True)
    # Documents of the nearest grade, from which one is drawn.
    nearest = abs(grades[:, None] - values).argmin(axis=1)
    first = np.cumsum(counts) - counts
    draw = rng.random_sample(len(grades)) * counts[nearest]
    place = first[nearest] + draw.astype(np.intp)
    return np.argsort(others, kind="stable")[place]
