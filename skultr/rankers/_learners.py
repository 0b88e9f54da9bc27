"""Any estimator as the learner of a ranker: labels per document in, a fitted clone out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import pandas as pd
from lightgbm import LGBMModel, LGBMRanker
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from .._log._hashing import equal_rows
from .._sklearn import seeded_clone
from .._threads import ALL, few_threads, share_of_worker
from .._typing import Floats, Ints
from ._tree_objectives import LambdaObjective, PairObjective, SoftmaxObjective

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

    Parameters
    ----------
    estimator : estimator
        A LightGBM ranker, any regressor whose ``fit`` takes ``sample_weight``, or a Pipeline that
        ends in one of these. A LightGBM ranker compares the documents of a query: its objectives
        ``"lambdarank"`` and ``"rank_xendcg"`` are replaced by :class:`LambdaObjective` and
        :class:`SoftmaxObjective`, which take fractional labels and queries of any length.
    features : ndarray of shape (n_rows, n_features)
    labels, weight : ndarray of shape (n_rows,)
        Labels may be fractional and exceed 1.
    query : ndarray of shape (n_rows,), int
        Codes, in any order.
    random_state : int
        Seed of the estimator, or of the steps of the Pipeline, unless they have one of their own.
    columns : dict, default=None
        What :func:`booster_columns` gives: names and categories of the features for a LightGBM
        estimator that is no step of a Pipeline.
    objective : callable, default=None
        Objective of a LightGBM ranker that replaces its own, such as a :class:`PairObjective`
        whose rows are those of ``features``.

    Returns
    -------
    estimator : estimator

    Raises
    ------
    ValueError
        If the estimator is a classifier, if its ``fit`` takes no ``sample_weight``, or if there is
        an ``objective`` and it is not a LightGBM ranker.
    """
    estimator = seeded_clone(estimator, random_state)
    last = estimator
    if isinstance(estimator, Pipeline):
        last = estimator[-1]
    with its_own_threads(last):
        if last is not estimator:
            features = _fit_transformers(estimator, features, labels)
        named = (columns or {}) if takes_columns(estimator) else {}
        if isinstance(last, LGBMRanker):
            objective = objective or _objective_of(last)
            _fit_ranker(last, features, labels, weight, query, objective, named)
        else:
            _check_regressor(last, objective)
            last.fit(features, labels, sample_weight=weight, **named)
    return estimator


def takes_columns(estimator: Any) -> bool:
    """True if the fit of an estimator takes what :func:`booster_columns` gives."""
    return isinstance(estimator, LGBMModel) and has_fit_parameter(estimator, "feature_name")


def takes_missing(estimator: Any) -> str | None:
    """Why missing values are an error for an estimator of scikit-learn, if they are."""
    steps = list(estimator) if isinstance(estimator, Pipeline) else [estimator]
    first = next((step for step in steps if step not in (None, "passthrough")), None)
    if first is None or get_tags(first).input_tags.allow_nan:
        return None  # a later step has its own error
    return f"{type(first).__name__} takes no missing values"


def booster_columns(ranker: Any) -> dict[str, Any]:
    """Names of the features of a ranker, and numbers of those of categories, for LightGBM."""
    coded = ranker._feature_categories
    if not coded:
        return {"feature_name": booster_names(ranker)}
    numbers = [n for n, name in enumerate(ranker.feature_names_in_) if name in coded]
    return {"feature_name": booster_names(ranker), "categorical_feature": numbers}


def scores_of_learner(estimator: Any, features: NDArray[np.float32]) -> Floats:
    """Predictions of a fitted estimator; those of LightGBM read the names of the features."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None and isinstance(estimator, LGBMModel):
        features = pd.DataFrame(features, columns=names, copy=False)
    return np.asarray(estimator.predict(features), dtype=float)


def booster_names(ranker: Any) -> list[str] | Literal["auto"]:
    """Names of the features of a ranker that LightGBM takes; "auto" if it has none.

    LightGBM turns blanks into ``_`` silently, refuses characters with a meaning in JSON, and names
    that occur twice.
    """
    given = getattr(ranker, "feature_names_in_", None)
    if given is None:
        return "auto"
    names: dict[str, None] = {}
    taken = set(given)
    for name in given:
        safe = plain = re.sub(r"[^\w.()/+%-]", "_", name) or "_"
        number = 1
        while safe in names or (safe != name and safe in taken):
            number += 1
            safe = f"{plain}_{number}"
        names[safe] = None
    return list(names)


@contextmanager
def its_own_threads(estimator: Any) -> Iterator[None]:
    """Context for the fit of an estimator that the user gave, which chooses its threads itself.

    LightGBM would take all cores within each worker of joblib, too, unless ``n_jobs`` is set.
    """
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
    order = np.lexsort((equal_rows(np.ascontiguousarray(features, dtype=np.float32))[0], query))
    return order, np.unique(query, return_counts=True)[1]


def _fit_transformers(pipeline, features, labels):
    """Fit all steps but the last, without weights, which some transformers do not take.

    Returns
    -------
    features : ndarray
        The input of the last step.
    """
    if len(pipeline) == 1:
        return features
    transformers = pipeline[:-1]
    features = transformers.fit_transform(features, labels)
    pipeline.steps[:-1] = transformers.steps  # a Pipeline with a memory fits clones
    return features


def _fit_ranker(ranker, features, labels, weight, query, objective, named):
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
    if own in (None, "lambdarank"):
        return LambdaObjective(ranker.get_params().get("lambdarank_truncation_level", 30))
    return SoftmaxObjective() if own in _LISTWISE else own


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
