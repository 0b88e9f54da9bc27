"""Mutual information within grades by classifiers that tell documents from independent pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._log._segments import offsets_from_sorted
from .._progress import progress
from .._typing import Bools, Floats, Ints
from ._information import mean_ranks, normal_scores, scattered_ranks

#: Smallest number of documents for a classifier, which trains on three fifths of them.
FEWEST_FOR_CLASSIFIER = 200
_N_FOLDS = 5
#: Odds are clipped to [1/99, 99] for each of the copula and the trees, and twice that together:
#: a single impossible pair must not decide the value.
_LARGEST_LOG_ODDS = np.log(0.99 / 0.01)
#: Independent pairs per document, in training and in the normaliser (more pairs: less noise).
_N_TRAINING_PAIRS, _N_PAIRS = 1, 4
_MAX_TREES, _PATIENCE = 300, 20
_LARGEST_CORRELATION = 0.995
#: Weight of a document's term where its fold trained the classifier. Terms of held-out documents
#: alone are too small, those of trained ones too large; measured, by twice as much.
_TRAINED_WEIGHT = 1 / 3


# --------------------------------------------------------------------------------------
# Classifier
# --------------------------------------------------------------------------------------
def classifier_information(
    pred: Floats,
    logging: Floats,
    grade: Ints,
    cell: Ints,
    n_repeats: int,
    rng: np.random.RandomState,
) -> tuple[Floats, Floats]:
    """Term of each document in the information, in nats, and what training added to it.

    Documents are sorted by grade, and compared within cells. The terms are those of documents
    that the classifier has not seen, plus a third of what they gain where it has.
    """
    cell = np.unique(cell, return_inverse=True)[1]
    held_out, trained = np.zeros((2, len(pred)))
    if len(pred) < _N_FOLDS:
        # All other documents are of grades in which a variable is constant.
        return held_out, trained
    for _ in progress(range(n_repeats), "CMIP: repeat"):
        x, y = (_scores_in_cells(values, grade, cell, rng) for values in (pred, logging))
        fold = _folds(cell, rng)
        for test in progress(range(_N_FOLDS), "fold"):
            # The next fold is for early stopping, the other three are for training.
            part = [(fold == (test + step) % _N_FOLDS) for step in range(3)]
            tested, stops, seen = part
            log_odds = _fit_log_odds(x, y, cell, ~(tested | stops), stops, rng)
            for total, rows in ((held_out, tested), (trained, seen)):
                pairs = _pairs(x[rows], y[rows], cell[rows], _N_PAIRS, rng)
                total[rows] += _donsker_varadhan(log_odds, *pairs)
    added = _TRAINED_WEIGHT * (trained - held_out) / n_repeats
    return held_out / n_repeats + added, added


def _scores_in_cells(values, grade, cell, rng):
    """Normal scores in the grade; equal values have their mean rank where a cell is one grade."""
    rank = scattered_ranks(values, grade, rng)
    alone = np.bincount(cell)[cell] == np.bincount(grade)[grade]
    return normal_scores(np.where(alone, mean_ranks(values, grade), rank), grade)


def _folds(cell, rng):
    """Fold of each document; each cell is divided evenly."""
    order = np.lexsort((rng.random_sample(len(cell)), cell))
    fold = np.empty(len(cell), dtype=np.intp)
    fold[order] = np.arange(len(cell)) % _N_FOLDS
    return fold


def _pairs(x, y, cell, n_pairs, rng):
    """Features of the documents, and of pairs of a score and another document's logged position.

    The other document is in the same cell.
    """
    order = np.lexsort((rng.random_sample(len(cell)), cell))
    offsets = offsets_from_sorted(cell[order])
    size = np.repeat(np.diff(offsets), np.diff(offsets))
    start = np.repeat(offsets[:-1], np.diff(offsets))
    place = np.arange(len(cell)) - start
    independent = []
    for step in range(n_pairs):
        other = np.empty(len(cell), dtype=np.intp)
        # A document alone in its cell of a fold is paired with itself.
        other[order] = order[start + (place + 1 + step % np.maximum(size - 1, 1)) % size]
        independent.append(_pair_features(x, y[other], cell))
    return _pair_features(x, y, cell), np.concatenate(independent)


def _pair_features(x, y, cell):
    # Trees split along axes: with sums and differences they need no staircase along a diagonal.
    return np.column_stack([x, y, x - y, x + y, x * y, cell])


def _fit_log_odds(x, y, cell, trained: Bools, stops: Bools, rng):
    """Function from features of pairs to the log odds that a pair is a document.

    Trees are boosted from the log density ratio of a Gaussian copula, which few documents suffice
    for, and dropped if they do not predict the fold of early stopping better than it does.
    """
    # Imported here, so that ranking metrics do not import LightGBM.
    import lightgbm as lgb

    start = _CopulaLogRatio(x[trained], y[trained], cell[trained], n_cells=cell.max() + 1)
    train, stop = (
        _pairs(x[rows], y[rows], cell[rows], _N_TRAINING_PAIRS, rng) for rows in (trained, stops)
    )
    data = _labelled(lgb, train, start)
    settings: dict[str, Any] = {
        "objective": "binary",
        "boost_from_average": False,
        "learning_rate": 0.1,
        "num_leaves": 15,
        "min_data_in_leaf": max(20, len(train[0]) // 100),
        "lambda_l2": 10.0,
        "max_bin": 63,
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
        "seed": rng.randint(2**31 - 1),
        "verbose": -1,
    }
    model = lgb.train(
        settings,
        data,
        num_boost_round=_MAX_TREES,
        valid_sets=[_labelled(lgb, stop, start, reference=data)],
        callbacks=[lgb.early_stopping(_PATIENCE, verbose=False)],
    )
    improves = model.best_score["valid_0"]["binary_logloss"] < _log_loss(start, *stop)

    def log_odds(features):
        value = start(features)
        if improves:
            value = value + model.predict(features, raw_score=True)
        return np.clip(value, -2 * _LARGEST_LOG_ODDS, 2 * _LARGEST_LOG_ODDS)

    return log_odds


def _labelled(lgb, pairs, start, reference=None):
    documents, independent = pairs
    features = np.concatenate(pairs)
    label = np.repeat([1.0, 0.0], [len(documents), len(independent)])
    return lgb.Dataset(
        features, label, init_score=start(features), reference=reference, params={"verbose": -1}
    )


def _log_loss(log_odds, documents, independent):
    """Mean log loss of documents and as many independent pairs."""
    losses = np.logaddexp(0, -log_odds(documents)), np.logaddexp(0, log_odds(independent))
    return np.concatenate(losses).mean()


def _donsker_varadhan(log_odds, documents, independent):
    """Terms of the bound E[log odds] - log E_independent[odds], one per document.

    The last term, of mean 0, is the first-order effect of the noise of the normaliser; it enters
    the standard error.
    """
    odds = np.exp(log_odds(independent)).reshape(-1, len(documents)).mean(axis=0)
    return log_odds(documents) - np.log(odds.mean()) - (odds / odds.mean() - 1)


# --------------------------------------------------------------------------------------
# Copula
# --------------------------------------------------------------------------------------
class _CopulaLogRatio:
    """log of the density of correlated normal scores over that of independent ones, by cell."""

    def __init__(self, x, y, cell, n_cells):
        self.rho = _correlations(x, y, cell, n_cells)

    def __call__(self, features):
        x, y, rho = features[:, 0], features[:, 1], self.rho[features[:, 5].astype(int)]
        square = rho**2
        exponent = (square * (x**2 + y**2) - 2 * rho * x * y) / (2 * (1 - square))
        ratio = -0.5 * np.log1p(-square) - exponent
        return np.clip(ratio, -2 * _LARGEST_LOG_ODDS, 2 * _LARGEST_LOG_ODDS)


def _correlations(x, y, cell, n_cells):
    """Correlation in each cell, shrunk to that of all.

    Fisher's z of a cell of n documents has variance 1 / (n - 3); the variance between cells is
    that of DerSimonian and Laird. If cells differ by no more than chance, all get the pooled one.
    """
    products = (np.bincount(cell, values, n_cells) for values in (x * y, x * x, y * y))
    xy, xx, yy = products
    size = np.sqrt(xx * yy)
    rho = np.divide(xy, size, out=np.zeros(n_cells), where=size > 0)
    z = np.arctanh(np.clip(rho, -_LARGEST_CORRELATION, _LARGEST_CORRELATION))
    weight = np.maximum(np.bincount(cell, minlength=n_cells) - 3.0, 0.0)
    if not weight.any():
        return np.zeros(n_cells)
    pooled = weight @ z / weight.sum()
    excess = weight @ (z - pooled) ** 2 - (np.count_nonzero(weight) - 1)
    scale = weight.sum() - weight @ weight / weight.sum()
    between = max(excess / scale, 0.0) if scale > 0 else 0.0
    own = between * weight / (1 + between * weight)
    return np.tanh(own * z + (1 - own) * pooled)


# --------------------------------------------------------------------------------------
# As published
# --------------------------------------------------------------------------------------
def published_information(
    pred: Floats, logging: Floats, relevance: Floats, n_repeats: int, rng: np.random.RandomState
) -> float:
    """The estimate of the CMIP paper, section 4.3, in nats."""
    documents = np.column_stack([pred, logging, relevance])
    return float(np.mean([_published_once(documents, rng) for _ in range(n_repeats)]))


def _published_once(documents, rng):
    first, second = np.array_split(rng.permutation(documents), 2)
    exchanged = first.copy()
    exchanged[:, 1] = second[_with_nearest_grade(first[:, 2], second[:, 2], rng), 1]
    # The order is random: every other row trains.
    log_odds = _published_log_odds(second[::2], exchanged[::2], rng)
    of_documents, of_exchanged = log_odds(second[1::2]), log_odds(exchanged[1::2])
    return of_documents.mean() - np.log(np.exp(of_exchanged).mean())


def _published_log_odds(documents, exchanged, rng):
    """Log odds by LightGBM as it comes."""
    import lightgbm as lgb

    label = np.repeat([1.0, 0.0], [len(documents), len(exchanged)])
    settings = {
        "objective": "binary",
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
        "seed": rng.randint(2**31 - 1),
        "verbose": -1,
    }
    data = lgb.Dataset(np.concatenate([documents, exchanged]), label, params={"verbose": -1})
    model = lgb.train(settings, data, num_boost_round=100)
    return lambda features: np.clip(
        model.predict(features, raw_score=True), -_LARGEST_LOG_ODDS, _LARGEST_LOG_ODDS
    )


def _with_nearest_grade(grades, others, rng):
    """Index of a random document of the others that has the nearest grade, for each grade."""
    values, counts = np.unique(others, return_counts=True)
    nearest = abs(grades[:, None] - values).argmin(axis=1)
    first = np.cumsum(counts) - counts
    draw = (rng.random_sample(len(grades)) * counts[nearest]).astype(np.intp)
    return np.argsort(others, kind="stable")[first[nearest] + draw]
