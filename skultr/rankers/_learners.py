"""Learners of labels, and gradients of ranking losses for trees that take fractional labels.

LightGBM's own ranking objectives take whole grades, and queries of at most 10,000 rows. These take
debiased click rates. Each is an object with the signature of LightGBM's custom objectives,
``objective(y_true, y_pred, weight, group)``, which returns the gradient and the diagonal of the
Hessian, one number per row. The rows of a query are adjacent; ``group`` is the number of rows per
query. All losses are linear in the labels, and therefore unbiased if the labels are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMModel, LGBMRanker
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from .._base._sklearn import seeded_clone
from .._base._threads import ALL, few_threads, share_of_worker
from .._base._typing import Floats, Ints
from .._log._segments import TINY, equal_rows, offsets_from_counts, rectangles

#: Maximum number of cells per rectangle, so that its arrays fit into the cache of one core.
_CELLS = 1 << 15
#: Lower bound of divisors.
_TINY = np.float32(1e-30)
#: Ranks up to which pairs of documents count: LightGBM's default.
_TRUNCATION_LEVEL = 30


@dataclass(frozen=True)
class SoftmaxObjective:
    r"""Listwise cross-entropy of labels, given the number of examinations of each document.

    :math:`-\sum_i w_i y_i \log p_i` with :math:`p_i \propto w_i e^{s_i}` over the documents of a
    query. With ``weight`` the number of impressions (or of examinations) and ``y_true`` clicks
    per impression (or per examination), :math:`w_i y_i` are clicks, and the loss is minus the
    log-likelihood of which documents of a query were clicked. Its minimum is at
    :math:`e^{s_i} \propto y_i`, however unevenly the documents were shown. With equal weights it
    is the usual softmax loss.
    """

    def __call__(
        self, y_true: Floats, y_pred: Floats, weight: Floats | None, group: Ints
    ) -> tuple[Floats, Floats]:
        """Gradient and Hessian, each of shape (n_rows,)."""
        clicks, total, share = _shares(y_true, y_pred, weight, group)
        return total * share - clicks, total * share * (1 - share)

    def loss(self, y_true: Floats, y_pred: Floats, weight: Floats | None, group: Ints) -> float:
        """The loss per click."""
        clicks, _, share = _shares(y_true, y_pred, weight, group)
        clicked = clicks > 0
        # The logarithm of a share that underflows is lost; no ranking depends on such a score.
        log_share = np.log(np.maximum(share[clicked], TINY))
        return float(-(clicks[clicked] @ log_share) / max(clicks.sum(), TINY))


@dataclass(frozen=True)
class LambdaObjective:
    r"""Pairwise logistic loss, weighted by the change of DCG if the pair is exchanged.

    :math:`-\sum_{i,j} w_{ij} |d_i - d_j| \, y_i \log\sigma(s_i - s_j)` with the discounts
    :math:`d = 1 / \log_2(1 + \mathrm{rank})` of nDCG at the current ranks, held fixed. The weight
    of a pair, :math:`w_{ij}`, is the harmonic mean of the weights of its documents.

    Only pairs in which at least one document has a rank up to ``truncation_level`` count; None
    counts all pairs.

    LambdaMART counts a pair once, as a win of the document with the higher label, in proportion to
    the difference of the labels. Noise then always adds wins. Here both documents win, in
    proportion to their labels, so that the sum is linear in the labels and noise averages out.
    LightGBM also divides the loss of a query by its ideal DCG, and that of a pair by the
    difference of its scores. Both increase the effect of noisy labels, and are left out here.

    With ``by_order`` it is LambdaMART's (Burges 2010): a pair is one win, of the document with the
    higher label, times the change of nDCG, whose gains are the labels.
    """

    truncation_level: int | None = _TRUNCATION_LEVEL
    by_order: bool = False

    def __call__(
        self, y_true: Floats, y_pred: Floats, weight: Floats | None, group: Ints
    ) -> tuple[Floats, Floats]:
        """Gradient and Hessian, each of shape (n_rows,)."""
        n_rows = len(y_pred)
        gradient = np.zeros(n_rows)
        hessian = np.zeros(n_rows)
        weight = np.ones(n_rows) if weight is None else weight
        for _, rows in rectangles(offsets_from_counts(group), _CELLS):
            rows, real = _by_rank(y_pred, rows)
            label = _cells(y_true, rows, real)
            slope, curve = _against_lower_ranks(
                _cells(y_pred, rows, real),
                label,
                _cells(weight, rows, real),
                self.truncation_level,
                by_order=self.by_order,
            )
            if self.by_order:
                # The change of nDCG, not of DCG.
                ideal = np.maximum(_ideal_dcg(label), _TINY)
                slope = slope / ideal
                curve = curve / ideal
            gradient[rows[real]] = slope[real]
            hessian[rows[real]] = curve[real]
        return gradient, hessian


@dataclass(frozen=True, eq=False)
class PairObjective:
    r"""Logistic loss of given pairs, weighted by the change of DCG if the pair is exchanged.

    :math:`-\sum_{(i,j)} W_{ij} |d_i - d_j| \log\sigma(s_i - s_j)`, with the discounts of
    :class:`LambdaObjective`.

    ``winner`` and ``loser`` are rows, both of one query; no weight is negative.
    """

    winner: Ints
    loser: Ints
    pair_weight: Floats
    truncation_level: int | None = _TRUNCATION_LEVEL

    def reordered(self, order: Ints) -> PairObjective:
        """The same pairs after the rows have been put in another order."""
        place = np.empty(len(order), dtype=np.intp)
        place[order] = np.arange(len(order))
        return replace(self, winner=place[self.winner], loser=place[self.loser])

    def __call__(
        self, y_true: Floats, y_pred: Floats, weight: Floats | None, group: Ints
    ) -> tuple[Floats, Floats]:
        """Gradient and Hessian, each of shape (n_rows,); labels and weights are not used."""
        n_rows = len(y_pred)
        # A pair counts if one of its documents is among the first ranks.
        discount, is_first = _discounts(y_pred, group, self.truncation_level)
        counted = is_first[self.winner] | is_first[self.loser]
        change = np.abs(discount[self.winner] - discount[self.loser])
        weight = np.where(counted, change * self.pair_weight, 0.0)
        # Chance that the loser is ahead, which is the slope of the logistic loss.
        lost = _logistic(y_pred[self.loser] - y_pred[self.winner])
        slope = weight * lost
        curve = slope * (1 - lost)
        # Summed by document: the winner is pulled up and the loser down by the same amount.
        gradient = np.bincount(self.loser, slope, n_rows)
        gradient -= np.bincount(self.winner, slope, n_rows)
        hessian = np.bincount(self.winner, curve, n_rows)
        hessian += np.bincount(self.loser, curve, n_rows)
        return gradient, hessian


def _shares(y_true, y_pred, weight, group):
    """Clicks of each row, clicks of its query, and predicted share of the row in the latter."""
    starts = offsets_from_counts(group)[:-1]
    query = np.repeat(np.arange(len(group)), group)
    weight = np.ones(len(y_pred)) if weight is None else np.asarray(weight, dtype=float)
    clicks = weight * y_true
    clicks_of_query = np.add.reduceat(clicks, starts)
    # Less the largest of the query, so that no exponential overflows.
    highest = np.maximum.reduceat(y_pred, starts)
    share = np.exp(y_pred - highest[query]) * weight
    total = np.maximum(np.add.reduceat(share, starts), TINY)
    share /= total[query]
    return clicks, clicks_of_query[query], share


def _by_rank(score, rows):
    """The rectangle transposed, one column per list, with rows sorted by decreasing score."""
    real = rows >= 0
    # Padding has the last ranks.
    scores = np.where(real, score[rows], -np.inf)
    order = np.argsort(-scores, axis=1, kind="stable")
    rows = np.take_along_axis(rows, order, axis=1)
    rows = np.ascontiguousarray(rows.T)
    return rows, rows >= 0


def _cells(values, rows, real):
    """Values of rows as a rectangle, 0 at padding."""
    return np.where(real, values[rows], 0).astype(np.float32)


def _ideal_dcg(label):
    """DCG of each column if it were sorted by its labels."""
    return _discount(len(label)) @ -np.sort(-label, axis=0)


def _against_lower_ranks(score, label, weight, truncation_level, *, by_order=False):
    """Gradient and Hessian of cells in the order of their ranks, one column per list.

    Each step compares, in all lists at once, the document at one rank with all documents at lower
    ranks. Memory is linear in the length of a list, and each pair is computed once.
    """
    # Row 0 holds the first document of each list by score; the last has none below it.
    width = len(score)
    gradient = np.zeros_like(score)
    hessian = np.zeros_like(score)
    discount = _discount(width)[:, None]
    for rank in range(min(width - 1, truncation_level or width)):
        # Weight of the pairs: harmonic mean of the weights, times the change of DCG.
        lower = slice(rank + 1, None)
        pair = weight[rank] + weight[lower]
        np.maximum(pair, _TINY, out=pair)
        np.divide(weight[lower], pair, out=pair)
        pair *= discount[rank] - discount[lower]
        pair *= 2 * weight[rank]
        won = _logistic(score[rank] - score[lower])
        first = label[rank]
        second = label[lower]
        if by_order:  # what the higher label is more
            gap = first - second
            first = np.maximum(gap, 0)
            second = np.maximum(-gap, 0)
        # The derivative of the loss of a pair by the score of the first is (y_i + y_j) σ − y_i.
        # In place, because these arrays are most of the memory.
        slope = first + second
        slope *= won
        curve = slope * pair
        slope -= first
        slope *= pair
        curve -= curve * won
        gradient[rank] += slope.sum(axis=0)
        hessian[rank] += curve.sum(axis=0)
        gradient[lower] -= slope
        hessian[lower] += curve
    return gradient, hessian


def _discounts(score, group, truncation_level):
    """Discount of each row at its rank, and True for ranks within the truncation level."""
    discount = np.zeros(len(score))
    first = np.ones(len(score), dtype=bool)
    for _, rows in rectangles(offsets_from_counts(group), _CELLS):
        rows, real = _by_rank(score, rows)
        rank = np.broadcast_to(np.arange(len(rows))[:, None], rows.shape)[real]
        discount[rows[real]] = _discount(len(rows))[rank]
        if truncation_level is not None:
            first[rows[real]] = rank < truncation_level
    return discount, first


def _discount(width):
    """Discounts of DCG, 1 / log2(1 + rank), from rank 1."""
    return (1 / np.log2(2 + np.arange(width))).astype(np.float32)


def _logistic(x):
    """1 / (1 + exp(-x)); the hyperbolic tangent cannot overflow."""
    return 0.5 * np.tanh(0.5 * x) + 0.5


#: LightGBM's names of its listwise objective.
_LISTWISE = frozenset({"rank_xendcg", "xendcg", "xe_ndcg", "xe_ndcg_mart", "xendcg_mart"})


def fit_learner(
    estimator: Any,
    features: NDArray[Any],
    labels: Floats,
    weight: Floats,
    query: Ints,
    *,
    random_state: int,
    columns: Mapping[str, Any] | None = None,
    objective: Callable[..., Any] | None = None,
) -> Any:
    """Fit a clone of an estimator to one (debiased) label per (query, document).

    The estimator is a LightGBM ranker, any regressor whose ``fit`` takes ``sample_weight``, or a
    Pipeline that ends in one of these. A LightGBM ranker compares the documents of a query: its
    objectives ``"lambdarank"`` and ``"rank_xendcg"`` are replaced by :class:`LambdaObjective` and
    :class:`SoftmaxObjective`, which take fractional labels and queries of any length. An
    ``objective``, such as a :class:`PairObjective` of the rows of ``features``, replaces any.
    Labels may be fractional and exceed 1; ``columns`` is what :func:`booster_columns` gives, for a
    LightGBM estimator that is no step of a Pipeline.
    """
    estimator = seeded_clone(estimator, random_state)
    # The learner itself, where transformers stand before it.
    last = _last_step(estimator)
    named = {}
    if columns and takes_columns(estimator):
        named = columns
    with its_own_threads(last), naming_large(features):
        if last is not estimator:
            features = _fit_transformers(estimator, features, labels)
        if isinstance(last, LGBMRanker):
            if objective is None:
                objective = _objective_of(last)
            _fit_ranker(last, features, labels, weight, query, objective, named)
        else:
            _check_regressor(last, objective)
            last.fit(features, labels, sample_weight=weight, **named)
    return estimator


def compares_documents(estimator: Any) -> bool:
    """True if an estimator learns from comparisons of the documents of a query."""
    return isinstance(_last_step(estimator), LGBMRanker)


def _last_step(estimator):
    return estimator[-1] if isinstance(estimator, Pipeline) else estimator


@contextmanager
def naming_large(features: NDArray[np.float32]) -> Iterator[None]:
    """Context in which an error of an estimator says that features are too large, if they are."""
    try:
        yield
    except ValueError as error:
        # Estimators report infinite sums in many words, none of which names the features.
        largest = float(np.nanmax(np.abs(features), initial=0.0))
        if largest**2 * len(features) < np.finfo(np.float32).max:
            raise
        raise ValueError(
            f"The estimator failed: {error}. Features reach {largest:.3g}, and sums of squares "
            "are beyond float32 (3.4e38), in which features are kept. Scale them first: "
            "make_pipeline(OnFeatures(StandardScaler()), ranker)."
        ) from error


def takes_columns(estimator: Any) -> bool:
    """True if the fit of an estimator takes what :func:`booster_columns` gives."""
    return isinstance(estimator, LGBMModel) and has_fit_parameter(estimator, "feature_name")


def takes_missing(estimator: Any) -> str | None:
    """Why missing values are an error for an estimator of scikit-learn, if they are."""
    steps = list(estimator) if isinstance(estimator, Pipeline) else [estimator]
    steps = [step for step in steps if step not in (None, "passthrough")]
    # Only the first step sees the features as they come: a later one has its own error.
    if not steps or get_tags(steps[0]).input_tags.allow_nan:
        return None
    return f"{type(steps[0]).__name__} takes no missing values"


def booster_columns(ranker: Any) -> dict[str, Any]:
    """Names of the features of a ranker, and numbers of those of categories, for LightGBM.

    LightGBM turns blanks into ``_`` silently, refuses characters with a meaning in JSON, and names
    that occur twice.
    """
    given = getattr(ranker, "feature_names_in_", None)
    coded = ranker._feature_categories
    if given is None:  # the columns of a member of an ensemble have numbers
        return {"feature_name": "auto", "categorical_feature": [*coded] or "auto"}
    columns = {"feature_name": _names_for_lightgbm(given)}
    if coded:
        columns["categorical_feature"] = [n for n, name in enumerate(given) if name in coded]
    return columns


def _names_for_lightgbm(given):
    """Names without characters that LightGBM refuses, all different."""
    names: dict[str, None] = {}
    taken = set(given)
    for name in given:
        plain = re.sub(r"[^\w.()/+%-]", "_", name) or "_"
        safe = plain
        number = 1
        # A changed name must be neither that of an earlier feature nor that of a later one.
        while safe in names or (safe != name and safe in taken):
            number += 1
            safe = f"{plain}_{number}"
        names[safe] = None
    return list(names)


def scores_of_learner(estimator: Any, features: NDArray[np.float32]) -> Floats:
    """Predictions of a fitted estimator; those of LightGBM read the names of the features."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None and isinstance(estimator, LGBMModel):
        features = pd.DataFrame(features, columns=names, copy=False)
    if hasattr(estimator, "coef_"):
        # The last bit of a product in float32 depends on the other rows.
        features = features.astype(float)
    return np.asarray(estimator.predict(features), dtype=float)


@contextmanager
def its_own_threads(estimator: Any) -> Iterator[None]:
    """Context for the fit of an estimator that the user gave, which chooses its threads itself.

    LightGBM would take all cores within each worker of joblib, too, unless ``n_jobs`` is set.
    """
    # None outside of workers: LightGBM's own choice then stands.
    share = share_of_worker() if isinstance(estimator, LGBMModel) else None
    limited = share is not None and estimator.n_jobs is None
    if limited:
        estimator.set_params(n_jobs=share)
    try:
        with few_threads(ALL):
            yield
    finally:
        if limited:
            estimator.set_params(n_jobs=None)


def order_by_query(features: NDArray[Any], query: Ints) -> tuple[Ints, Ints]:
    """Order of rows by query, then by a hash of the features; and the number of rows per query.

    Before the first tree all scores are tied, and the ranks are the order of the rows. A hash of
    the features depends neither on the labels nor on the ids of the documents.
    """
    code, *_ = equal_rows(np.ascontiguousarray(features, dtype=np.float32))
    order = np.lexsort((code, query))
    _, n_rows = np.unique(query, return_counts=True)
    return order, n_rows


def _fit_transformers(pipeline, features, labels):
    """Fit all steps but the last, without weights; gives the input of the last step."""
    if len(pipeline) == 1:
        return features
    transformers = pipeline[:-1]
    features = transformers.fit_transform(features, labels)
    pipeline.steps[:-1] = transformers.steps  # a Pipeline with a memory fits clones
    return features


def _fit_ranker(ranker, features, labels, weight, query, objective, named):
    # LightGBM takes queries as numbers of adjacent rows.
    order, group = order_by_query(features, query)
    if isinstance(objective, PairObjective):
        objective = objective.reordered(order)
    own = ranker.objective
    # By default LightGBM prepares its nDCG, which does not allow fractional labels. And a custom
    # objective fails if the filter removes all features, as with few rows.
    ranker.set_params(objective=objective, metric="None", feature_pre_filter=False)
    weight = weight[order]
    ranker.fit(features[order], labels[order], sample_weight=weight, group=group, **named)
    # Restore the user's parameter; the fitted trees no longer need the objective.
    return ranker.set_params(objective=own)


def _objective_of(ranker):
    """The objective for fractional labels that replaces that of a LightGBM ranker."""
    own = ranker.objective
    # None is LightGBM's default, which is lambdarank.
    if own in (None, "lambdarank"):
        return lambda_objective(ranker.get_params())
    return SoftmaxObjective() if own in _LISTWISE else own


def lambda_objective(settings: Mapping[str, Any], *, by_order: bool = False) -> LambdaObjective:
    """The pairwise objective, with the truncation level that settings of LightGBM may hold."""
    level = settings.get("lambdarank_truncation_level", _TRUNCATION_LEVEL)
    return LambdaObjective(level, by_order=by_order)


def _check_regressor(estimator, objective):
    name = type(estimator).__name__
    if objective is not None:
        raise ValueError(
            f"{name} cannot learn from pairs of documents; expected lightgbm.LGBMRanker, or a "
            "Pipeline that ends in one. Leave estimator=None for a network."
        )
    if is_classifier(estimator):
        raise ValueError(
            f"{name} is a classifier, but debiased labels are fractions, not classes. Use the "
            "corresponding regressor, or lightgbm.LGBMRanker."
        )
    if not has_fit_parameter(estimator, "sample_weight"):
        raise ValueError(
            f"The fit of {name} takes no sample_weight, which is the precision of each label. "
            "Use another regressor, such as Ridge, HistGradientBoostingRegressor or "
            "lightgbm.LGBMRegressor, or lightgbm.LGBMRanker."
        )
