"""Formats "linear" and "solr" of linear scores: what engines compute from the text is predict.

The evaluators read the written text and add up in float32, as the engines do.
"""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import logit
from sklearn.linear_model import LinearRegression, PoissonRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    RobustScaler,
    StandardScaler,
)

from skultr.preprocessing import OnFeatures
from skultr.rankers import (
    AffineRanker,
    CLDRanker,
    DistilledRanker,
    HeckmanRanker,
    IPSRanker,
    LambdaMARTRanker,
    NaiveRanker,
    RegressionEMRanker,
    VectorizationRanker,
)
from skultr.serving import export_model

from .._worlds import FEATURES, random_lists

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::skultr.exceptions.{kind}")
    for kind in ("AssumptionWarning", "ClickDataWarning", "NotIdentifiableWarning")
]

NAMES = ["título", 'bm25("q", 1)', "price"]
LINEAR = {"hidden_layer_sizes": (), "scale_features": False, "random_state": 0}
KNOWN = {"propensity": [1.0, 0.7, 0.5]}


@pytest.fixture(scope="module")
def log():
    """A log with features of different scales; the last may be far from 0."""
    log, clicks = random_lists(300, n_queries=8)
    return log.assign(f1=5 + 10 * log["f1"], f2=1e6 + 100 * log["f2"]), clicks


def elastic_scores(text, requests):
    """What the LTR plugins of Elasticsearch and OpenSearch make of a body and of requests."""
    body = json.loads(text)["model"]
    assert set(body) == {"name", "model"}
    model = body["model"]
    assert set(model) <= {"type", "definition", "feature_normalizers"}
    assert model["type"] == "model/linear"
    weights = json.loads(model["definition"])
    total = np.zeros(len(requests), dtype=np.float32)
    for name, weight in weights.items():
        values = requests.get(name, pd.Series(0.0, requests.index)).to_numpy(dtype=np.float32)
        if name in model.get("feature_normalizers", {}):
            (kind,) = model["feature_normalizers"][name].items()
            assert (kind[0], set(kind[1])) == ("standard", {"mean", "standard_deviation"})
            values = normalized(values, kind[1]["mean"], kind[1]["standard_deviation"])
        total += np.float32(weight) * values
    return total


def solr_scores(text, requests):
    """What Solr makes of a model of its store and of requests; 0 for what they do not hold."""
    model = json.loads(text)
    assert model["class"] == "org.apache.solr.ltr.model.LinearModel"
    weights = model["params"]["weights"]
    assert list(weights) == [feature["name"] for feature in model["features"]]
    assert all(type(weight) is float for weight in weights.values())
    total = np.zeros(len(requests), dtype=np.float32)
    for feature in model["features"]:
        name = feature["name"]
        values = requests.get(name, pd.Series(0.0, requests.index)).to_numpy(dtype=np.float32)
        if "norm" in feature:
            assert feature["norm"]["class"] == "org.apache.solr.ltr.norm.StandardNormalizer"
            assert all(type(value) is str for value in feature["norm"]["params"].values())
            values = normalized(values, **feature["norm"]["params"])
        total += np.float32(weights[name]) * values
    return total


def normalized(values, avg, std):
    assert float(std) > 0
    return (values - np.float32(avg)) / np.float32(std)


EVALUATORS = {"linear": elastic_scores, "solr": solr_scores}


def check(model, rows, *, unlink=lambda scores: scores, tol=2e-6):
    """Scores of both texts differ from those of predict by a constant."""
    rows = rows[FEATURES].astype(np.float32).astype(float).drop_duplicates()
    expected = unlink(model.predict(rows))
    size = np.ptp(expected)
    assert size > 1e-4
    for format, evaluate in EVALUATORS.items():
        found = evaluate(export_model(model, format, NAMES), rows.set_axis(NAMES, axis=1))
        assert np.ptp(found - expected) <= tol * size


@pytest.mark.parametrize(
    "ranker",
    [
        CLDRanker(loss="listwise", max_epochs=3, **LINEAR, **KNOWN),
        CLDRanker(loss="pointwise", **LINEAR, **KNOWN),
        HeckmanRanker(**LINEAR),
        NaiveRanker(max_epochs=3, dropout=0.1, **LINEAR),
        NaiveRanker(estimator=LinearRegression()),
        IPSRanker(estimator=make_pipeline(RobustScaler(), Ridge()), **KNOWN),
        DistilledRanker(NaiveRanker(max_epochs=2), Ridge(), random_state=0),
        VectorizationRanker(student="only", max_epochs=2, **LINEAR),
    ],
    ids=str,
)
def test_linear_scores_are_those_of_predict_but_for_a_constant(ranker, log):
    log, clicks = log
    log = log.assign(f2=log["f2"] - 1e6)
    check(ranker.fit(log, clicks), log)


@pytest.mark.parametrize("kind", [AffineRanker, RegressionEMRanker])
def test_of_a_probability_the_logit_is_written(kind, log):
    settings = {"loss": "likelihood"} if kind is AffineRanker else {}
    ranker = kind(max_epochs=3, **LINEAR, **settings)
    model = make_pipeline(OnFeatures(StandardScaler()), ranker).fit(*log)
    check(model, log[0], unlink=logit)


@pytest.mark.parametrize(
    "scaler",
    [
        StandardScaler(),
        MinMaxScaler(),
        MinMaxScaler((-3, 5)),
        RobustScaler(),
        make_pipeline(MinMaxScaler(), StandardScaler(with_std=False), MaxAbsScaler()),
    ],
    ids=str,
)
def test_scalers_become_normalizers(scaler, log):
    check(make_pipeline(OnFeatures(scaler), HeckmanRanker(**LINEAR)).fit(*log), log[0])


def test_offsets_become_normalizers(log):
    log, clicks = log
    ranker = HeckmanRanker(**LINEAR).fit(log, clicks)
    assert list(ranker._offsets.columns) == [2]
    check(ranker, log)
    text = export_model(ranker, "linear", NAMES)
    assert list(json.loads(text)["model"]["model"]["feature_normalizers"]) == ["price"]


def test_texts_of_a_model_without_normalizers(log):
    log, clicks = log
    log = log.assign(f2=log["f2"] - 1e6)
    ranker = NaiveRanker(estimator=Ridge(alpha=0.1)).fit(log, clicks)
    coef = dict(zip(NAMES, ranker.estimator_.coef_.tolist(), strict=True))
    body = json.loads(export_model(ranker, "linear", NAMES, name="shöp"))
    weights = json.loads(body["model"]["model"].pop("definition"))
    assert body == {"model": {"name": "shöp", "model": {"type": "model/linear"}}}
    assert weights == pytest.approx(coef, rel=1e-7)
    solr = json.loads(export_model(ranker, "solr", NAMES, store="products"))
    assert solr.pop("params")["weights"] == weights
    assert solr == {
        "class": "org.apache.solr.ltr.model.LinearModel",
        "name": "skultr",
        "store": "products",
        "features": [{"name": name} for name in NAMES],
    }


def test_numbers_are_those_that_float32_holds(log):
    model = make_pipeline(OnFeatures(StandardScaler()), HeckmanRanker(**LINEAR)).fit(*log)
    normalizer = json.loads(export_model(model, "linear"))["model"]["model"]["feature_normalizers"]
    mean = model[0].transformer_.mean_[2]
    assert np.float32(normalizer["f2"]["standard"]["mean"]) == np.float32(mean)
    assert len(str(normalizer["f2"]["standard"]["mean"])) <= 10


def test_a_missing_feature_counts_as_zero(log):
    model = make_pipeline(OnFeatures(MinMaxScaler()), HeckmanRanker(**LINEAR)).fit(*log)
    rows = log[0][FEATURES].astype(np.float32)
    whole = rows.assign(f0=np.float32(0)).set_axis(NAMES, axis=1)
    for format, evaluate in EVALUATORS.items():
        text = export_model(model, format, NAMES)
        found = evaluate(text, whole.drop(columns=NAMES[0]))
        assert np.array_equal(found, evaluate(text, whole))


@pytest.mark.parametrize(
    ("ranker", "words"),
    [
        (NaiveRanker(max_epochs=1), r"scale_features=False.*signed logarithm"),
        (NaiveRanker(max_epochs=1, hidden_layer_sizes=()), r"\['onnx'\].*signed logarithm"),
        (NaiveRanker(max_epochs=1, scale_features=False), r"hidden_layer_sizes=\(\)"),
        (IPSRanker(estimator=PoissonRegressor(), **KNOWN), r"IPSRanker has no linear scores"),
        (LambdaMARTRanker(n_estimators=2, **KNOWN), r"'ranklib'.*hidden_layer_sizes"),
    ],
    ids=str,
)
def test_what_is_not_linear_is_refused_in_words(ranker, words, log):
    log, clicks = log
    ranker.fit(log.assign(f2=log["f2"] / 1e6, f1=log["f1"] / 10), clicks)
    with pytest.raises(ValueError, match=words):
        export_model(ranker, "linear")


def test_transformers_that_mix_or_bend_features_are_refused(log):
    model = make_pipeline(OnFeatures(FunctionTransformer(np.tanh)), HeckmanRanker(**LINEAR))
    with pytest.raises(ValueError, match=r"step FunctionTransformer.*StandardScaler"):
        export_model(model.fit(*log), "linear")


def test_shift_belongs_to_trees(log):
    with pytest.raises(ValueError, match="linear scores"):
        export_model(HeckmanRanker(**LINEAR).fit(*log), "linear", shift="nonnegative")
