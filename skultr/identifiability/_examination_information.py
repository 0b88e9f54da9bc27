"""What clicks say about examination if relevance may be any function of the features.

Within a result page, the log odds of where a click falls are g(x) + h(t), relevance by features
plus examination by bias factor. What can be predicted of the factor from the features could as
well be relevance; information about h comes from the rest alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from sklearn.utils import check_random_state

from .._typing import Floats, Ints, RandomState

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog


#: Most rows that are compared, taken list by list at random: some hundredths of a second.
_MAX_ROWS = 5_000
#: Most bias factors that are compared: those with the most impressions.
_MAX_FACTORS = 100
#: Most features that are read: those that vary most with the bias factor.
_MAX_FEATURES = 300
#: Random units beside the features themselves, for functions that are not linear.
_N_UNITS = 100
#: Penalties of the regression on standardised features; the best one for other queries is taken.
#: None is smaller: functions that the least one shrinks are those that a network learns late.
_PENALTIES = (0.1, 1.0, 10.0)
_N_FOLDS = 5
#: Standardised features are clipped here, as networks clip them.
_MAX_DEVIATION = 8.0
#: Share of the largest information below which there is none.
_NOTHING = 1e-9


@dataclass(frozen=True, eq=False)
class ExaminationInformation:
    """Information matrices of log examination by bias factor."""

    factors: Ints  # (n_factors,)
    full: Floats  # (n_factors, n_factors), if relevance did not vary with the features
    left: Floats  # (n_factors, n_factors), if it may be any function of them
    n_rows: int

    def pairs(self) -> Floats:
        """Share of the information on each ratio that is left, shape (n_factors, n_factors)."""
        # With a little of the full one, a matrix without information on a ratio is not singular.
        left = self.left + _NOTHING * self.full
        # Of a factor with itself, or with one that no page compares it with.
        with np.errstate(invalid="ignore", divide="ignore"):
            share = _variances(self.full) / _variances(left)
        page = connected_components(np.abs(self.full) > _NOTHING * self.full.max(), False)[1]
        return np.where(page[:, None] == page, np.minimum(share, 1.0), 0.0)

    def least(self, groups: Ints | None = None) -> float:
        """The least share over all contrasts; of groups of factors, whose own ratios are known."""
        if not self.compares(groups):
            return 0.0
        full, left = (_of_contrasts(of, groups) for of in (self.full, self.left))
        return float(np.clip(eigh(left, full, eigvals_only=True).min(initial=1.0), 0.0, 1.0))

    def compares(self, groups: Ints | None = None) -> bool:
        """True if pages compare all groups of factors, be it through others."""
        found = np.linalg.eigvalsh(_of_contrasts(self.full, groups))
        return found.min(initial=1.0) > _NOTHING * found.max(initial=1.0)


def information_of_log(log: ClickLog, random_state: RandomState = 0) -> ExaminationInformation:
    """The information in a log; see :func:`examination_information`."""
    rows = np.flatnonzero(log.shown)
    return examination_information(
        lambda chosen: log.features[log.version[rows[chosen]]],
        log.list_[rows],
        log.query[rows],
        log.bias[rows],
        log.weight[rows],
        random_state,
    )


def examination_information(
    features: Any,
    list_: Ints,
    query: Ints,
    factor: Ints,
    weight: Floats,
    random_state: RandomState = 0,
) -> ExaminationInformation:
    """Information about examination in a sample of the lists of a log.

    The factor of a row is predicted from its features by ridge regression within lists, on
    standardised features and random units of them, fitted to other queries.
    """
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    impressions = np.bincount(factor, weight)
    shown = np.flatnonzero(impressions)
    factors = np.sort(shown[np.argsort(-impressions[shown], kind="stable")[:_MAX_FACTORS]])
    place = np.full(len(impressions), -1)
    place[factors] = np.arange(len(factors))
    rows = np.flatnonzero(place[factor] >= 0)
    rows = rows[_sample_of_lists(list_[rows], rng)]
    lists, queries = (np.unique(of[rows], return_inverse=True)[1] for of in (list_, query))
    # Queries weigh by the square root of their traffic, as for rankers.
    traffic = np.bincount(queries, weight[rows])[queries]
    weight = weight[rows] / np.sqrt(traffic)
    weight /= weight.mean()
    mean = _Means(lists, weight)
    target = mean.taken_off(np.eye(len(factors))[place[factor[rows]]])
    scaled = _scaled(np.asarray(features(rows), dtype=np.float64))
    if scaled.shape[1] > _MAX_FEATURES:
        telling = ((target * weight[:, None]).T @ scaled) ** 2
        scaled = scaled[:, np.sort(np.argsort(-telling.sum(axis=0))[:_MAX_FEATURES])]
    inputs = mean.taken_off(_with_units(scaled, rng))
    rest = _rest(inputs, target, weight, _folds(queries, rng))
    return ExaminationInformation(
        factors=factors,
        full=_product(target, weight),
        left=_product(rest, weight),
        n_rows=len(rows),
    )


# The sample ---------------------------------------------------------------------------
def _sample_of_lists(list_, rng):
    """Rows of random lists, at most ``_MAX_ROWS`` together but at least one list."""
    if len(list_) <= _MAX_ROWS:
        return np.arange(len(list_))
    code, size = np.unique(list_, return_inverse=True, return_counts=True)[1:]
    order = rng.permutation(len(size))
    chosen = np.zeros(len(size), dtype=bool)
    chosen[order[np.cumsum(size[order]) <= _MAX_ROWS]] = True
    chosen[order[0]] = True
    return np.flatnonzero(chosen[code])


def _folds(query, rng):
    """Fold of each row, by query."""
    n_queries = int(query.max()) + 1
    return (rng.permutation(n_queries) % min(_N_FOLDS, n_queries))[query]


class _Means:
    """Weighted means of lists."""

    def __init__(self, list_: Ints, weight: Floats) -> None:
        shape = int(list_.max()) + 1, len(list_)
        share = weight / np.bincount(list_, weight)[list_]
        self._average = csr_array((share, (list_, np.arange(len(list_)))), shape)
        self._list = list_

    def taken_off(self, values: Floats) -> Floats:
        """Values of rows minus the mean of their list."""
        return values - (self._average @ values)[self._list]


# The regression -----------------------------------------------------------------------
def _scaled(features):
    """Signed logarithm, standardised and clipped, as the input of networks is."""
    features = np.sign(features) * np.log1p(np.abs(features))
    centre, spread = features.mean(axis=0), features.std(axis=0)
    constant = spread <= 1e-6 * np.maximum(np.abs(centre), 1e-30)
    scaled = (features - centre) / np.where(constant, 1.0, spread)
    return np.clip(scaled, -_MAX_DEVIATION, _MAX_DEVIATION)


def _with_units(features, rng):
    """Features, and random ELU units of them of the same total variance."""
    n_features = features.shape[1]
    weights = 1.5 * rng.normal(size=(n_features, _N_UNITS)) / np.sqrt(n_features)
    units = features @ weights + rng.normal(size=_N_UNITS)
    units = np.where(units > 0, units, np.expm1(np.minimum(units, 0)))
    spread = units.std(axis=0)
    units = (units - units.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return np.hstack([features, units * np.sqrt(n_features / _N_UNITS)])


def _rest(inputs, target, weight, fold):
    """What ridge regressions that were fitted to the other folds leave of the target."""
    parts = [fold == number for number in range(int(fold.max()) + 1)]
    moments = [_moments(inputs[part], target[part], weight[part]) for part in parts]
    total = [sum(of) for of in zip(*moments, strict=True)]
    best, least = target, np.inf
    for penalty in _PENALTIES:
        rest = np.empty_like(target)
        for part, own in zip(parts, moments, strict=True):
            # With one query there are no others: the prediction is then as good as it can be.
            others = [of - held_out for of, held_out in zip(total, own, strict=True)]
            gram, cross, mass = others if len(parts) > 1 else total
            penalised = gram + penalty * mass * np.eye(len(gram))
            rest[part] = target[part] - inputs[part] @ np.linalg.solve(penalised, cross)
        loss = weight @ (rest**2).sum(axis=1)
        if loss < least:
            best, least = rest, loss
    return best


def _moments(inputs, target, weight):
    weighted = inputs * weight[:, None]
    return weighted.T @ inputs, weighted.T @ target, weight.sum()


# Matrices -----------------------------------------------------------------------------
def _product(values: NDArray[Any], weight: Floats) -> Floats:
    return (values * weight[:, None]).T @ values


def _of_contrasts(matrix, groups):
    """The matrix on contrasts of groups, vectors that sum to zero; (0, 0) for one group."""
    if groups is not None:
        member = (groups[:, None] == np.unique(groups)).astype(float)
        matrix = member.T @ matrix @ member
    contrasts = np.linalg.svd(np.ones((1, len(matrix))))[2][1:].T
    return contrasts.T @ matrix @ contrasts


def _variances(matrix):
    """Variance of each ratio: the effective resistances of an information matrix."""
    inverse = np.linalg.pinv(matrix, rcond=_NOTHING, hermitian=True)
    diagonal = np.diag(inverse)
    return diagonal[:, None] + diagonal - 2 * inverse
