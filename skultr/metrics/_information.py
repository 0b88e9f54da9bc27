"""Estimators of the mutual information of scores and logged positions within grades."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import digamma, ndtri

from .._log._segments import offsets_from_counts, offsets_from_sorted
from .._typing import Bools, Floats, Ints

#: Number of neighbours. Measured on normal data: 3 has the same bias and more noise; 10 misses
#: strong dependence in grades of 50 documents.
_N_NEIGHBORS = 5
#: Smaller grades use fewer neighbours, because their fifth neighbour is far away.
_SMALL_GRADE, _N_NEIGHBORS_OF_SMALL = 100, 3
#: Neighbours share neighbours, so that their terms are correlated. Measured: the standard
#: deviation of the value is 1.1 to 1.5 times that of independent terms.
KNN_ERROR_FACTOR = 1.4
_N_FOLDS = 5
#: Odds are clipped to [1/99, 99]: a single impossible pair must not decide the value.
_LARGEST_LOG_ODDS = np.log(0.99 / 0.01)
#: Independent pairs per document, in training and in the normaliser (more pairs: less noise).
_N_TRAINING_PAIRS, _N_PAIRS = 1, 4
_MAX_TREES, _PATIENCE = 300, 20
#: Smallest number of documents for the classifier, which trains on three fifths of them.
FEWEST_FOR_CLASSIFIER = 200


def rows_that_vary(pred: Floats, logging: Floats, grade: Ints) -> Bools:
    """Mask of the documents of grades in which neither variable is constant; sorted by grade.

    In the other grades the information is 0, and an estimate would be noise.
    """
    varies = np.zeros(len(grade), dtype=bool)
    for part in grade_slices(grade):
        varies[part] = np.ptp(pred[part]) > 0 and np.ptp(logging[part]) > 0
    return varies


# --------------------------------------------------------------------------------------
# Nearest neighbours
# --------------------------------------------------------------------------------------
def knn_information(
    pred: Floats, logging: Floats, grade: Ints, n_repeats: int, rng: np.random.RandomState
) -> Floats:
    """Term of each document in the information, in nats; documents are sorted by grade."""
    total = np.zeros(len(pred))
    for _ in range(n_repeats):
        x, y = (
            _normal_scores(_scattered_ranks(values, grade, rng), grade)
            for values in (pred, logging)
        )
        for part in grade_slices(grade):
            total[part] += _neighbor_information(x[part], y[part])
    return total / n_repeats


def _neighbor_information(x, y):
    """Terms of the first estimator of Kraskov et al., one per document.

    ψ(k) + ψ(n) - ψ(n_x) - ψ(n_y), with n_x and n_y the number of values (the document's own
    included) strictly closer in x and in y than the k-th neighbour, in the maximum norm.
    """
    n = len(x)
    k = min(_N_NEIGHBORS if n >= _SMALL_GRADE else _N_NEIGHBORS_OF_SMALL, n - 1)
    points = np.column_stack([x, y])
    distance = cKDTree(points).query(points, k=k + 1, p=np.inf)[0][:, -1]
    # Strictly closer: rounding must not include the k-th neighbour itself.
    distance *= 1 - 1e-10
    closer = [_n_within(values, distance) for values in (x, y)]
    return digamma(k) + digamma(n) - digamma(closer[0]) - digamma(closer[1])


def _n_within(values, distance):
    """Number of values within the given distance of each value, itself included."""
    ordered = np.sort(values)
    above = np.searchsorted(ordered, values + distance, side="right")
    return above - np.searchsorted(ordered, values - distance, side="left")


# --------------------------------------------------------------------------------------
# Classifier
# --------------------------------------------------------------------------------------
def classifier_information(
    pred: Floats, logging: Floats, grade: Ints, n_repeats: int, rng: np.random.RandomState
) -> Floats:
    """Term of each document in the information, in nats; documents are sorted by grade."""
    x, y = (_normal_scores(mean_ranks(values, grade), grade) for values in (pred, logging))
    total = np.zeros(len(pred))
    for _ in range(n_repeats):
        fold = _folds(grade, rng)
        for held_out in range(_N_FOLDS):
            # The next fold is for early stopping, the other three for training.
            stops = fold == (held_out + 1) % _N_FOLDS
            tested = fold == held_out
            trained = ~(stops | tested)
            pairs = [
                _pairs(x[rows], y[rows], grade[rows], n_pairs, rng)
                for rows, n_pairs in (
                    (trained, _N_TRAINING_PAIRS),
                    (stops, _N_TRAINING_PAIRS),
                    (tested, _N_PAIRS),
                )
            ]
            log_odds = _fit_log_odds(pairs[0], pairs[1], seed=rng.randint(2**31 - 1))
            total[tested] += _donsker_varadhan(log_odds, *pairs[2])
    return total / n_repeats


def _folds(grade, rng):
    """Fold of each document; each grade is divided evenly."""
    order = np.lexsort((rng.random_sample(len(grade)), grade))
    fold = np.empty(len(grade), dtype=np.intp)
    fold[order] = np.arange(len(grade)) % _N_FOLDS
    return fold


def _pairs(x, y, grade, n_pairs, rng):
    """Features of the documents, and of pairs of a score and another document's logged position.

    The other document has the same grade.
    """
    order = np.lexsort((rng.random_sample(len(grade)), grade))
    offsets = offsets_from_sorted(grade[order])
    size = np.repeat(np.diff(offsets), np.diff(offsets))
    start = np.repeat(offsets[:-1], np.diff(offsets))
    place = np.arange(len(grade)) - start
    independent = []
    for step in range(n_pairs):
        other = np.empty(len(grade), dtype=np.intp)
        other[order] = order[start + (place + 1 + step % (size - 1)) % size]
        independent.append(_pair_features(x, y[other], grade))
    return _pair_features(x, y, grade), np.concatenate(independent)


def _pair_features(x, y, grade):
    # Trees split along axes: with sums and differences they need no staircase along a diagonal.
    return np.column_stack([x, y, x - y, x + y, x * y, grade])


def _fit_log_odds(train, stop, seed):
    """Function from features of pairs to the log odds that a pair is a document."""
    # Imported here, so that ranking metrics do not import LightGBM.
    import lightgbm as lgb

    data = _labelled(lgb, train)
    settings = {
        "objective": "binary",
        "learning_rate": 0.1,
        "num_leaves": 15,
        "min_data_in_leaf": max(20, len(train[0]) // 100),
        "lambda_l2": 10.0,
        "max_bin": 63,
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
        "seed": seed,
        "verbose": -1,
    }
    model = lgb.train(
        settings,
        data,
        num_boost_round=_MAX_TREES,
        valid_sets=[_labelled(lgb, stop, reference=data)],
        callbacks=[lgb.early_stopping(_PATIENCE, verbose=False)],
    )
    return lambda features: np.clip(
        model.predict(features, raw_score=True), -_LARGEST_LOG_ODDS, _LARGEST_LOG_ODDS
    )


def _labelled(lgb, pairs, reference=None):
    documents, independent = pairs
    label = np.repeat([1.0, 0.0], [len(documents), len(independent)])
    weight = np.where(label > 0, 1.0, len(documents) / len(independent))
    return lgb.Dataset(
        np.concatenate(pairs), label, weight=weight, reference=reference, params={"verbose": -1}
    )


def _donsker_varadhan(log_odds, documents, independent):
    """Terms of the bound E[log odds] - log E_independent[odds], one per document.

    The last term, of mean 0, is the first-order effect of the noise of the normaliser; it enters
    the standard error.
    """
    odds = np.exp(log_odds(independent)).reshape(-1, len(documents)).mean(axis=0)
    return log_odds(documents) - np.log(odds.mean()) - (odds / odds.mean() - 1)


# --------------------------------------------------------------------------------------
# Ranks within grades
# --------------------------------------------------------------------------------------
def grade_slices(grade: Ints) -> list[slice]:
    """Slice of the rows of each grade; rows are sorted by grade."""
    offsets = offsets_from_sorted(grade)
    return [slice(*bounds) for bounds in pairwise(offsets)]


def _scattered_ranks(values, grade, rng):
    """Ranks from 1 within the grade, each moved by up to a half; equal values in random order.

    Independent noise that keeps the order of the values does not change the information. Without
    it, distances would be those of a lattice, nearest neighbours would tie, and small grades would
    appear dependent.
    """
    order = np.lexsort((rng.random_sample(len(values)), values, grade))
    return _ranks_in_order(order, grade) + rng.random_sample(len(values)) - 0.5


def mean_ranks(values: Floats, grade: Ints) -> Floats:
    """Ranks from 1 within the grade; equal values have their mean rank."""
    order = np.lexsort((values, grade))
    rank = _ranks_in_order(order, grade)
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(values[order]) != 0) | (np.diff(grade[order]) != 0)
    run = np.empty(len(order), dtype=np.intp)
    run[order] = np.cumsum(new) - 1
    return (np.bincount(run, rank) / np.bincount(run))[run]


def _ranks_in_order(order, grade):
    offsets = offsets_from_counts(np.bincount(grade))
    rank = np.empty(len(order))
    rank[order] = np.arange(len(order)) - offsets[grade[order]] + 1
    return rank


def _normal_scores(rank, grade):
    """Normal quantiles of ranks within grades, so that both variables are standard normal."""
    return ndtri((rank - 0.5) / np.bincount(grade)[grade])
