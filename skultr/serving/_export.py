"""Models in the formats of search engines: one table, format -> what it is written from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Literal

import numpy as np
import pandas as pd

from .._base._sklearn import StrOptions, validate_params
from ._precision import warn_of_lost_digits
from ._served_model import served_model
from ._trees import TREE_FORMATS, Upload, nonnegative, trees_of


def _of(module, name):
    """A function of a module that imports torch, which trees do not need."""

    def called(*given):
        home = import_module(f".{module}", __package__)
        return getattr(home, name)(*given)

    return called


#: What a format can be written from, and the function that writes it.
_FORMATS: dict[str, dict[str, Callable[..., str | bytes]]] = {
    **{format: {"trees": write} for format, write in TREE_FORMATS.items()},
    "linear": {"linear scores": _of("_linear", "write_linear")},
    "onnx": {"networks, coefficients or trees": _of("_linear", "write_onnx")},
}
_FORMATS["solr"]["linear scores"] = _of("_linear", "write_solr_linear")
#: How each is found in a model; None if it has none.
_PARTS: dict[str, Callable[..., Any]] = {
    "trees": trees_of,
    "linear scores": _of("_linear", "linear_of"),
    "networks, coefficients or trees": _of("_linear", "sum_of"),
}
#: What to do where a ranker lacks one of them.
_HINTS = {
    "trees": "DistilledRanker around it has LightGBM's trees.",
    "linear scores": "A network is linear with hidden_layer_sizes=() and scale_features=False, "
    "behind OnFeatures(StandardScaler()): no engine's normalizer computes the signed logarithm of "
    "scale_features=True.",
    "networks, coefficients or trees": "Train a ranker that has a network, or LightGBM's trees.",
}


@validate_params(
    {
        "format": [StrOptions(_FORMATS.keys())],
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
    """Export a fitted ranker in the format that a search engine loads.

    Parameters
    ----------
    ranker : ranker, Pipeline, search, or model of LightGBM or XGBoost
        A fitted model, one of

        - a ranker that scores each document alone,
        - a Pipeline of :class:`~skultr.preprocessing.OnFeatures`,
          :class:`~skultr.IdentifiabilityRepair` and such a ranker,
        - a search over these,
        - a model or booster of LightGBM or XGBoost, such as one that was trained on a cluster.

        Scalers are written into the model.
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
        ``"onnx"``              Vespa: ``files/<name>.onnx``, or any ONNX     networks, linear
                                runtime                                       scores, trees
        ======================  ============================================  ==============

        *Trees* come from :class:`~skultr.rankers.LambdaMARTRanker`, from a LightGBM ``estimator``
        of another ranker, from a LightGBM ``student`` of
        :class:`~skultr.rankers.DistilledRanker`, which can be made of any ranker, or are those of
        a model of LightGBM or XGBoost. *Linear scores* come from linear regressors in these
        places, or from networks with ``hidden_layer_sizes=()`` and ``scale_features=False``. Every
        :class:`~skultr.EnsembleRanker` can be written as ONNX. It can be written as trees
        if all members are trees and production has no weight.
    feature_names : list of str or dict, default=None
        The engine's names of the features: a list in the order of the columns, or a dict from
        the names of the training columns to the engine's. None takes the names of the columns.
        With ``"ranklib"`` and ``"onnx"`` the engine must hold the features in this order. With
        ``"lightgbm"`` the names must be rank features, such as ``bm25(title)``, or functions.
    name : str, default="skultr"
        Name of the model in the engine.
    shift : "nonnegative" or None, default=None
        ``"nonnegative"`` adds one leaf to the trees, which raises all scores alike so that none
        is negative. Lucene refuses negative scores of a query, but not of a rescorer.
    store : str, default=None
        Solr's feature store; None is its default store.
    queries : dict of str to dict, default=None
        For ``"elastic"``: a query for each feature that is the score of a query, by the engine's
        name, such as ``{"title_bm25": {"match": {"title": "{{query}}"}}}``. A feature without a
        query is read from the numeric field of this name in the document.

    Returns
    -------
    model : str or bytes
        JSON, ready to upload; ``"onnx"`` is bytes.

    Raises
    ------
    NotFittedError, TypeError
        If the model is not fitted, or is none of these.
    ValueError
        If names or options do not fit, or if the ranker cannot be written in this format. The
        message says why. Two examples: a score depends on all candidates of a query; a
        transformer makes one column of several.
    ImportError
        If the format is ``"onnx"`` and onnx is missing: ``pip install "skultr[serving]"``.

    Warns
    -----
    ClickDataWarning
        If the engine of the format reads float32, and float32 cannot tell apart the values of a
        feature, such as a time stamp or an id. The message names the features, with the numbers
        of values or thresholds before and after.

    Notes
    -----
    *Trees.* Each document reaches the same leaf of each tree as with ``predict``, also if a
    feature is on a threshold or beside it: thresholds are written for the engine's float32 and
    its rules at a split. Scores differ from ``predict``, of the same numbers in float64, by about
    1e-7, because engines add in float32. Solr adds 1e-6 to a threshold: a few thresholds nearer
    to 0 than 0.01 are off by at most 3e-10, and a few that are less than 1e-6 above a negative
    power of two by one float32 (6e-8 at -1). No format holds splits by categories.

    *Missing features* (NaN) go where ``predict`` sends them:

    - the way that the trees have learned, if the feature had missing values in training;
    - else to the value that an imputer in an ``OnFeatures`` puts there;
    - else the way of 0 (behind a scaler, of the mean).

    If your engine logs 0 for a missing feature, train on 0, too. ``"ranklib"`` and ``"solr"``
    read 0 for every missing feature, and refuse trees that have learned another way. Trees of
    XGBoost do not say whether they have, so that these two formats refuse all of them.

    *Size.* The default student of ``DistilledRanker`` makes files of 10 MB and more. SolrCloud
    keeps models in ZooKeeper, which takes 1 MB by default: use a student of fewer leaves, or name
    the file in a ``DefaultWrapperModel``.

    *ONNX.* The input is ``features``, shape (batch, n_features), and the output ``score``, shape
    (batch, 1), both float32. An ensemble that gives the production ranker a weight has one more
    input, ``production``, shape (batch, 1). The model scales the features itself. NaN is replaced
    by the mean and sets its indicator; with ``scale_features=False`` the score is NaN. A
    ``module`` of your own may have the layers Linear, LayerNorm, BatchNorm1d, Dropout, ELU, ReLU,
    SiLU, Sigmoid and Tanh. Scores equal ``predict`` within 1e-6, relative to scores above 1.
    The difference can be 1e-5

    - for ensembles, which divide scores by their scale;
    - with ``scale_features=False``, far outside the features of training, where ``predict``
      rounds more, as it is in float32.

    *Linear scores.* Linear models of engines have no intercept, so that ``"linear"`` and
    ``"solr"`` leave it out. If a score is a probability, they write its logit. The order of
    documents is the same.

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
    upload = Upload(name, served.names, store, queries)
    _check_options(upload, format)
    # A format that is written from several parts takes the first that the model has: trees first.
    for part, write in _FORMATS[format].items():
        model = _PARTS[part](served)
        if model is None:
            continue
        if shift is not None and part != "trees":
            raise ValueError(
                f"shift adds a leaf to trees, and the format {format!r} is written from "
                f"{part}. Leave it out."
            )
        # Before the shift: its leaf has no threshold to lose.
        warn_of_lost_digits(served, model, format, upload)
        if shift is not None:
            model = nonnegative(model)
        return write(model, upload)
    raise ValueError(
        f"This {type(served.ranker).__name__} has no {' or '.join(_FORMATS[format])}, from which "
        f"the format {format!r} is written. Its formats: {_formats_of(served)} "
        f"{' '.join(map(_HINTS.__getitem__, _FORMATS[format]))}"
    )


def _check_options(upload, format):
    """Refuse options that are of another format, or of other features."""
    # Engines find the model by its name.
    if not upload.name.strip():
        raise ValueError(f"name is {upload.name!r}; expected a text that is not empty.")
    for option, wanted in (("store", "solr"), ("queries", "elastic")):
        if getattr(upload, option) is not None and format != wanted:
            raise ValueError(
                f"{option} is an option of the format {wanted!r}, and format is {format!r}. "
                "Leave it out."
            )
    for name, query in (upload.queries or {}).items():
        if name not in upload.names or not isinstance(query, Mapping):
            raise ValueError(
                f"queries has {name!r}: {query!r}; expected a dict, the query of one of the "
                f"features {upload.names}."
            )


def _formats_of(served):
    """The formats that a model has, in words; if there is none, what forbids it."""
    found = set()
    forbids = ["none."]
    for part, find in _PARTS.items():
        try:
            if find(served) is not None:
                found.add(part)
        # What forbids one part forbids it for a reason that may help: it is told if nothing is
        # left.
        except ValueError as error:
            forbids.append(str(error))
    formats = [format for format, parts in _FORMATS.items() if found & {*parts}]
    return f"{formats}." if formats else " ".join(forbids)
