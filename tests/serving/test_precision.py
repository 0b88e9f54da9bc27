"""Features that float32 cannot tell apart are named when a model is exported."""

import warnings

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skultr.exceptions import ClickDataWarning
from skultr.preprocessing import OnFeatures
from skultr.rankers import EnsembleRanker, LambdaMARTRanker, NaiveRanker
from skultr.serving import export_model

from .._worlds import small_log

TREES = LambdaMARTRanker(
    propensity=[1.0, 0.6, 0.4, 0.3], n_estimators=20, early_stopping=False, random_state=0
)
NETWORK = NaiveRanker(max_epochs=1, early_stopping=False, random_state=0)
#: What a column begins at, and its width: an hour in milliseconds, ten minutes in seconds, ids.
LOST = {"milliseconds": (1.7e12, 3.6e6), "seconds": (1.7e9, 600.0), "ids": (2.1e9, 320.0)}
#: Numbers of float32, with a step that it has.
KEPT = {
    "time since the start of the log": (0.0, 3.6e6, 1.0),
    "a year in seconds": (1.7e9, 3.2e7, 1.0),
    "years": (2020.0, 5.0, 1.0),
    "ids far apart": (2.1e9, 10_000.0, 1_024.0),
}


def _log(start, width, step=1.0):
    """A log whose clicks follow a whole-numbered feature."""
    log, _ = small_log(n_queries=60)
    rng = np.random.default_rng(0)
    share = rng.random(240)[log["doc"]]
    log["created"] = start + step * np.round(share * width / step)
    return log, (rng.random(len(log)) < share).astype(float)


def _fitted(ranker, *column):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ranker.fit(*_log(*column))


def _said(model, format, **options):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        export_model(model, format, **options)
    return [str(each.message) for each in found]


@pytest.mark.parametrize("column", LOST)
def test_trees_name_the_column_with_what_is_lost_and_their_remedy_works(column):
    start, width = LOST[column]
    model = _fitted(TREES, start, width)
    values = _log(start, width)[0]["created"]
    before, after = len(values.unique()), len(values.astype(np.float32).unique())
    for format in ("xgboost+json", "xgboost+json+raw", "ranklib", "solr"):
        (said,) = _said(model, format)
        assert f"'created' ({before} different values of the training log become {after}" in said
        if column != "milliseconds":  # 28 values, of which 20 small trees need few
            assert "thresholds of the trees become" in said
        assert "'f0'" not in said
    assert not _said(model, "lightgbm")  # whose engine computes in float64
    assert not _said(model, "elastic")
    query = {"created": {"match_all": {}}}  # whose score is a float32
    assert "'created'" in _said(model, "elastic", queries=query)[0]
    # "Else subtract a constant near the smallest value"
    assert not _said(_fitted(TREES, 0.0, width), "solr")


@pytest.mark.parametrize("column", KEPT)
@pytest.mark.parametrize("ranker", [TREES, NETWORK], ids=["trees", "network"])
def test_columns_that_float32_resolves_are_no_fault(column, ranker):
    pytest.importorskip("onnx", reason="needs skultr[serving]")
    model = _fitted(ranker, *KEPT[column])
    assert not _said(model, "onnx")
    if ranker is TREES:
        assert not _said(model, "ranklib")


@pytest.mark.parametrize(
    ("ranker", "format"),
    [
        (NETWORK, "onnx"),
        (make_pipeline(OnFeatures(StandardScaler()), NETWORK), "onnx"),
        (make_pipeline(OnFeatures(StandardScaler()), TREES), "ranklib"),
        (NaiveRanker(estimator=Ridge()), "linear"),
        (make_pipeline(OnFeatures(StandardScaler()), NaiveRanker(estimator=Ridge())), "solr"),
        (EnsembleRanker([("trees", TREES), ("net", NETWORK)], random_state=0), "onnx"),
    ],
    ids=["network", "scaled-network", "scaled-trees", "linear", "scaled-linear", "ensemble"],
)
def test_networks_linear_models_and_ensembles_name_the_column_too(ranker, format):
    if format == "onnx":
        pytest.importorskip("onnx", reason="needs skultr[serving]")
    model = _fitted(ranker, *LOST["seconds"])
    with pytest.warns(ClickDataWarning, match=r"cannot tell apart values of 'created' \("):
        export_model(model, format)
    assert not any("'f1' (" in said for said in _said(model, format))
