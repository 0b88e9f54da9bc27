"""What computes the scores of a fitted ranker or pipeline, with the engine's names of features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

from .._base._typing import Floats
from .._log._estimator import steps_of
from .._log._offsets import NO_OFFSETS, FeatureOffsets
from ..identifiability._repair import IdentifiabilityRepair
from ..preprocessing import OnFeatures
from ..rankers._ranker import BaseRanker
from ._library_trees import LightGBMTrees, XGBoostTrees, library_trees


class ServedModel(NamedTuple):
    """The parts that turn the features of a request into scores."""

    #: The engine's name of each feature that a request holds, in the order of the columns.
    names: tuple[str, ...]
    #: Fitted transformers of the features, in order; a Pipeline of them is taken apart.
    transformers: tuple[Any, ...]
    #: What the ranker takes off its features before it rounds them to float32.
    offsets: FeatureOffsets
    #: The final, fitted ranker, or trees of a library.
    ranker: BaseRanker | LightGBMTrees | XGBoostTrees
    #: What features are rounded to before they are compared.
    dtype: type[np.floating] = np.float32

    def features(self, raw: Floats) -> NDArray[np.floating]:
        """What the ranker scores, shape (n_rows, n_features), for the raw features of requests."""
        # A copy, as transformers with copy=False write into what they get.
        values: Any = np.array(raw, dtype=float)
        for transformer in self.transformers:
            names = getattr(transformer, "feature_names_in_", None)
            values = np.asarray(values, dtype=float)
            if names is not None:
                values = pd.DataFrame(values, columns=names, copy=False)
            values = transformer.transform(values)
        # Once more a copy: offsets are taken off in place.
        values = np.array(values, dtype=float)
        values[:, self.offsets.columns] -= self.offsets.values
        return values.astype(self.dtype)


def served_model(
    ranker: Any, feature_names: Sequence[str] | Mapping[str, str] | None = None
) -> ServedModel:
    """The parts of a fitted ranker, pipeline or search that compute its scores.

    The names and errors are those of ``export_model``. A dict leaves other names as they are.
    """
    trees = library_trees(ranker)
    if trees is not None:
        names = _engine_names(trees, feature_names)
        return ServedModel(names, (), NO_OFFSETS, trees, trees.dtype)
    steps = fitted_steps(ranker)
    final = steps.pop()
    _refuse_what_is_no_function(final)
    if hasattr(final, "_terms"):  # an ensemble, of which each member has to be one
        terms, _ = final._terms()
        for _, _, member in terms:
            _refuse_what_is_no_function(member)
    # A repair changes what a ranker learns from, and not how it scores.
    steps = [step for step in steps if not isinstance(step, IdentifiabilityRepair)]
    for step in steps:
        _check_step(step)
    names = _engine_names(steps[0] if steps else final, feature_names)
    transformers = tuple(part for step in steps for part in parts_of(step.transformer_))
    return ServedModel(names, transformers, final._offsets, final)


def terms_of(
    served: ServedModel,
) -> tuple[list[tuple[float, float, ServedModel]], tuple[float, float]]:
    """A score as a sum: factors, centers and models; and factor and center of production.

    The models are the members of an ensemble; of another ranker it is the model itself.
    """
    if not hasattr(served.ranker, "_terms"):
        return [(1.0, 0.0, served)], (0.0, 0.0)
    terms, production = served.ranker._terms()
    if any(hasattr(ranker, "_terms") for _, _, ranker in terms):
        raise ValueError(
            "A member of the ensemble is an ensemble. Fit one ensemble of all of their members."
        )
    if not terms and not production[0]:
        raise ValueError("All members score all documents alike: there is no order to export.")
    return [(*numbers, served._replace(ranker=each)) for *numbers, each in terms], production


def fitted_steps(model: Any) -> list[Any]:
    """Steps of a pipeline or search, the ranker last; an error if one is not fitted."""
    steps = steps_of(model)
    if not isinstance(steps[-1], BaseRanker):
        raise TypeError(
            f"The model is, or ends in, {steps[-1]!r:.80}; expected a fitted ranker of "
            "skultr.rankers, a Pipeline that ends in one, or a search over these."
        )
    for step in steps:
        check_is_fitted(step)
    return steps


def _check_step(step):
    """Refuse a step before the ranker that is no function of the features alone."""
    if not isinstance(step, OnFeatures):
        raise TypeError(
            f"{type(step).__name__} is a step of the pipeline; expected OnFeatures, which "
            "transforms features alone, or IdentifiabilityRepair. Wrap the step in OnFeatures "
            "and fit again."
        )
    if step.passthrough:
        raise ValueError(
            f"OnFeatures passes the columns {list(step.passthrough)} to the ranker untransformed, "
            "so that every request would need them. Fit the ranker without passthrough."
        )


def parts_of(transformer: Any) -> list[Any]:
    """A transformer of features taken apart, without steps that leave them as they are."""
    if isinstance(transformer, Pipeline):
        return [part for step in steps_of(transformer) for part in parts_of(step)]
    if isinstance(transformer, FunctionTransformer) and transformer.func is None:
        return []
    return [transformer]


def _refuse_what_is_no_function(ranker):
    """Refuse a ranker whose score is no function of the features of one document."""
    name = type(ranker).__name__
    if not ranker._needs_features:
        raise ValueError(
            f"This {name} scores documents by their ids, and an engine has to score by features. "
            "Export DistilledRanker around it, or fit it with relevance='network'."
        )
    for method in (type(ranker).predict, type(ranker)._score):
        if not method.__module__.startswith("skultr."):
            raise ValueError(
                f"{name} computes scores by a method of its own, {method.__qualname__}, which "
                "cannot be written. Export DistilledRanker around it."
            )
    if ranker._reads_whole_queries:
        instead = "student='only'" if hasattr(ranker, "student") else "DistilledRanker around it"
        raise ValueError(
            f"A score of this {name} depends on all candidates of the query, and an engine scores "
            f"one document at a time. Fit and export {instead}."
        )


def _engine_names(first, given):
    """The engine's names of the columns that the first step reads."""
    n_features = first.n_features_in_
    fitted = [str(name) for name in getattr(first, "feature_names_in_", ())]
    is_list = given is not None and not isinstance(given, Mapping)
    names = given if is_list else _renamed(fitted, given or {}, n_features)
    if not all(isinstance(name, str) and name.strip() for name in names):
        raise TypeError(
            f"feature_names is {given!r}; expected a list or a dict of texts that are not empty."
        )
    names = tuple(map(str, names))
    if len(names) != n_features:
        raise ValueError(
            f"feature_names has {len(names)} names, but the ranker was fitted to {n_features} "
            "features. Pass one name per column, in their order, or a dict for some of them."
        )
    _check_places(names, fitted, is_list)
    return names


def _check_places(names, fitted, is_list):
    """Refuse a name that is there twice, and fitted names in another order than that of a fit."""
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ValueError(f"feature_names has {name!r} twice; expected different names.")
        if is_list and name in fitted and name != fitted[place]:
            raise ValueError(
                f"feature_names has {name!r} in place {place}, where the fitted feature is "
                f"{fitted[place]!r}. Pass a list in the order {fitted}, or a dict if one column "
                "is to get the name of another."
            )


def _renamed(fitted, new_names, n_features):
    """The fitted names, with those that a dict gives in place of some."""
    if not fitted:
        raise ValueError(
            f"The ranker was fitted to {n_features} columns without names. Pass feature_names, "
            "a list of the engine's names in the order of the columns."
        )
    for name in new_names:
        if name not in fitted:
            raise ValueError(
                f"feature_names has {name!r}, which is no fitted feature; expected keys among "
                f"{fitted}."
            )
    return [new_names.get(name, name) for name in fitted]
