"""Models in the formats of search engines: one table, format -> what it is written from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Literal

import numpy as np
import pandas as pd

from .._sklearn import StrOptions, validate_params
from ._served_model import served_model
from ._tree_formats import Upload
from ._trees import nonnegative

__all__ = ["export_model"]

#: What each format is written from, and by which function; the first that a model has counts.
_FORMATS = {
    "xgboost+json": {"trees": "write_xgboost"},
    "xgboost+json+raw": {"trees": "write_xgboost_raw"},
    "ranklib": {"trees": "write_ranklib"},
    "elastic": {"trees": "write_elastic"},
    "solr": {"trees": "write_solr", "linear": "write_solr_linear"},
    "lightgbm": {"trees": "write_lightgbm"},
    "linear": {"linear": "write_linear"},
    "onnx": {"network": "write_onnx"},
}
#: Where these are found in a model, and where their writers are; imported when they are needed,
#: because only networks need torch.
_PARTS = {
    "trees": ("_trees", "trees_of", "_tree_formats"),
    "linear": ("_linear", "linear_of", "_linear"),
    "network": ("_onnx", "network_of", "_onnx"),
}
#: The one format that reads an option.
_OF_FORMAT = {"store": "solr", "queries": "elastic"}


@validate_params(
    {
        "format": [StrOptions(set(_FORMATS))],
        "feature_names": [list, tuple, np.ndarray, pd.Index, Mapping, None],
        "name": [str],
        "shift": [StrOptions({"nonnegative"}), None],
        "store": [str, None],
        "queries": [Mapping, None],
    },
    prefer_skip_nested_validation=True,
)
def export_model(
    ranker: Any,
    format: str,
    feature_names: Sequence[str] | Mapping[str, str] | None = None,
    *,
    name: str = "skultr",
    shift: Literal["nonnegative"] | None = None,
    store: str | None = None,
    queries: Mapping[str, Any] | None = None,
) -> str | bytes:
    """A fitted ranker as the text, or bytes, that a search engine loads.

    Parameters
    ----------
    ranker : ranker, Pipeline or search
        Fitted: a ranker whose score depends on the features of one document, a Pipeline of
        :class:`~skultr.preprocessing.OnFeatures`, :class:`~skultr.IdentifiabilityRepair` and such
        a ranker, or a search over these. Scalers are written into the model.
    format : str
        ======================  ============================================  ==============
        format                  engine, and where the text goes               written from
        ======================  ============================================  ==============
        ``"xgboost+json"``      Elasticsearch and OpenSearch, LTR plugin:     trees
                                ``POST _ltr/_featureset/<set>/_createmodel``
        ``"xgboost+json+raw"``  the same; XGBoost loads its ``definition``    trees
        ``"ranklib"``           the same                                      trees
        ``"linear"``            the same                                      linear scores
        ``"elastic"``           Elasticsearch 8.12 or later, no plugin:       trees
                                ``PUT _ml/trained_models/<name>``
        ``"solr"``              Solr: ``PUT .../schema/model-store``          trees, linear
                                                                              scores
        ``"lightgbm"``          Vespa: a file in ``models/``, used as         trees
                                ``lightgbm("<file>.json")``
        ``"onnx"``              Vespa and others: an ``onnx-model`` with      networks, linear
                                input ``features``, output ``score``          scores
        ======================  ============================================  ==============

        Trees are those of :class:`~skultr.rankers.LambdaMARTRanker`, of a LightGBM ``estimator``
        of another ranker, and of a LightGBM ``student`` of
        :class:`~skultr.rankers.DistilledRanker`, which makes them of any ranker. Linear scores are
        those of networks without hidden layer or ``scale_features``, of linear estimators, and of
        rankers with ``coef_``, without their intercept.
    feature_names : list of str or dict, default=None
        The engine's names of the features: a list in the order of the columns, or a dict from
        the names of the training columns to the engine's. None takes the names of the columns.
        ``"ranklib"`` holds no names: the feature set must have the features in this order. In
        Vespa they are rank features, such as ``bm25(title)`` or ``attribute(price)``.
    name : str, default="skultr"
        Name of the model in the engine.
    shift : "nonnegative" or None, default=None
        Trees get one more leaf, which raises all scores alike so that none is negative. Lucene
        refuses negative scores of a query; those of a rescorer may be negative.
    store : str, default=None
        Solr's feature store; None is its default store.
    queries : dict of str to dict, default=None
        Query of each feature for ``"elastic"``, by the engine's name, such as
        ``{"title_bm25": {"match": {"title": "{{query}}"}}}``. Without them the
        ``feature_extractors`` of the text are empty: add yours before the upload.

    Returns
    -------
    model : str or bytes
        JSON, ready to upload; bytes for ``"onnx"``.

    Raises
    ------
    NotFittedError
        If the ranker is not fitted.
    TypeError
        If there is no ranker of skultr in it.
    ValueError
        If the ranker cannot be written in this format, for example because its score depends on
        all candidates of a query, or a transformer makes a column of several. The message says
        why, and which formats it has. Also if names or options do not fit.

    Notes
    -----
    Engines hold features in float32 and decide at a split by other rules than LightGBM. The
    thresholds are written so that each document reaches the same leaf of each tree, also on a
    threshold and beside it. Scores differ from ``predict``, of the same numbers in float64, only
    as sums in float32 do, by about 1e-7. Solr adds 1e-6 to a threshold: of those nearer to 0 than
    0.01 a few are off by at most 2e-10.

    A missing feature counts as 0 in trees, as engines log it, or as what an imputer in an
    ``OnFeatures`` puts there (not in ``"ranklib"`` and ``"solr"``, which see 0). ``predict`` of a
    ranker refuses NaN.

    Examples
    --------
    >>> import json
    >>> from skultr.datasets import make_ltr
    >>> from skultr.rankers import LambdaMARTRanker
    >>> from skultr.serving import export_model
    >>> from skultr.simulation import EYE_TRACKING, simulate_clicks
    >>> documents = make_ltr(n_queries=100, n_features=5, random_state=0)
    >>> log, clicks, truth = simulate_clicks(documents, n_sessions=5_000, random_state=0)
    >>> ranker = LambdaMARTRanker(propensity=EYE_TRACKING, n_estimators=20, random_state=0)
    >>> ranker = ranker.fit(log, clicks)
    >>> body = export_model(ranker, "solr", {"feature_000": "title_bm25"}, store="shop")
    >>> json.loads(body)["features"][:2]
    [{'name': 'title_bm25'}, {'name': 'feature_001'}]
    """
    served = served_model(ranker, feature_names)
    _check_options(format, {"store": store, "queries": queries}, served.names)
    for part, writer in _FORMATS[format].items():
        model = _find(part, served)
        if model is None:
            continue
        if shift is not None and part != "trees":
            raise ValueError("shift is an option of trees, and this model has none. Leave it out.")
        model = model if shift is None else nonnegative(model)
        write = getattr(import_module(f".{_PARTS[part][2]}", __package__), writer)
        return write(model, Upload(name, served.names, store, queries))
    raise _impossible(served, format)


def _find(part, served):
    """Trees, linear scores or network of a model; None if it has none."""
    home, function, _ = _PARTS[part]
    return getattr(import_module(f".{home}", __package__), function)(served)


def _check_options(format, options, names):
    for option, value in options.items():
        if value is not None and format != _OF_FORMAT[option]:
            raise ValueError(
                f"{option} is an option of the format {_OF_FORMAT[option]!r}, and format is "
                f"{format!r}. Leave it out."
            )
    unknown = sorted(set(options["queries"] or {}) - set(names))
    if unknown:
        raise ValueError(
            f"queries has {unknown[0]!r}, which is no feature; expected keys among {list(names)}."
        )


def _impossible(served, format):
    formats = [each for each, parts in _FORMATS.items() if any(_has(served, x) for x in parts)]
    return ValueError(
        f"This {type(served.ranker).__name__} has no {' or '.join(_FORMATS[format])}, from which "
        f"the format {format!r} is written. Its formats: {', '.join(formats) or 'none'}. "
        "DistilledRanker around it has LightGBM's trees."
    )


def _has(served, part):
    try:
        return _find(part, served) is not None
    except ValueError:
        return False
