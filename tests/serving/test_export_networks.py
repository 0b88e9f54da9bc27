"""Format "onnx": the scores of the file equal predict, judged by onnxruntime and in NumPy."""

import json
import re
import sys

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from sklearn.base import clone
from sklearn.linear_model import PoissonRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from torch import nn

from skultr.datasets import make_ltr
from skultr.preprocessing import OnFeatures
from skultr.rankers import (
    AffineRanker,
    CLDRanker,
    DistilledRanker,
    DLARanker,
    EnsembleRanker,
    HeckmanRanker,
    IPSRanker,
    LambdaMARTRanker,
    NaiveRanker,
    RegressionEMRanker,
    TwoTowerRanker,
    VectorizationRanker,
)
from skultr.serving import export_model
from skultr.simulation import PlackettLucePolicy, simulate_clicks

from .._discovery import public_rankers
from ._engines import QUIET

pytest.importorskip("onnx", reason="needs skultr[serving]")
runtime = pytest.importorskip("onnxruntime", reason="judges the exported models")

pytestmark = QUIET

NAMES = [f"feature_{i:03d}" for i in range(6)]
EXTREMES = np.array(
    [0, -0.0, 1e-35, 1e-6, -1e-6, 1, 50, -50, 1e6, 1e30, -1e30, 3e38], dtype=np.float32
)
#: What is no sum of networks, coefficients and trees, by the words of the error. What has none of
#: them need not be named: its error says that it has no format.
REFUSED = {
    "RankAggRanker": "all candidates of the query",
    "VectorizationRanker": "student='only'",
}


@pytest.fixture(scope="module")
def log():
    documents = make_ltr(n_queries=40, n_features=6, random_state=0)
    log, clicks, _ = simulate_clicks(
        documents,
        n_sessions=600,
        n_positions=5,
        policy=PlackettLucePolicy(),
        candidates=True,
        random_state=0,
    )
    return log, clicks


@pytest.fixture(scope="module")
def scaled_log(log):
    """The same with features between -2 and 4, for models that do not scale them."""
    log, clicks = log
    return log.assign(**{name: 6 * log[name].rank(pct=True) - 2 for name in NAMES}), clicks


def rows_of(log, n_rows=100_000):
    """Rows of the log; a tenth of their values are extreme, as are all values of some rows."""
    rng = np.random.default_rng(0)
    values = plain_rows(log)[rng.integers(len(log), size=n_rows)]
    values = np.where(rng.random(values.shape) < 0.1, rng.choice(EXTREMES, values.shape), values)
    values[: len(EXTREMES)] = EXTREMES[:, None]
    return values.astype(np.float32)


def plain_rows(log):
    return log[NAMES].to_numpy(dtype=np.float32)


def session_of(model):
    return runtime.InferenceSession(model, providers=["CPUExecutionProvider"])


def scores_of(model, rows):
    return session_of(model).run(["score"], {"features": rows})[0]


def largest_error(found, ranker, rows):
    """Of scores of the file beside those of predict, relative to the score where it is above 1."""
    expected = ranker.predict(pd.DataFrame(rows.astype(float), columns=NAMES))
    assert np.ptp(expected) > 0
    return np.max(np.abs(found - expected) / np.maximum(1, np.abs(expected)))


@pytest.mark.parametrize("ranker", public_rankers(), ids=lambda each: type(each).__name__)
def test_every_ranker_is_exported_or_refused_in_words(ranker, log):
    if "max_epochs" in ranker.get_params():
        ranker.set_params(max_epochs=2)
    if "random_state" in ranker.get_params():
        ranker.set_params(random_state=0)
    ranker.fit(*log)
    exported = None
    said = ""
    try:
        exported = export_model(ranker, "onnx")
    except ValueError as error:
        said = str(error)
    name = type(ranker).__name__
    if exported is None or name in REFUSED:
        assert re.search(REFUSED.get(name, "Its formats: none"), said)
        return
    # Of two linear members, whose scores are divided by small scales, the extremes overflow.
    rows = plain_rows(log[0]) if isinstance(ranker, EnsembleRanker) else rows_of(log[0])
    found = scores_of(exported, rows)
    assert found.shape == (len(rows), 1)
    assert largest_error(found[:, 0], ranker, rows) <= 1e-6


def brief(kind, **settings):
    return kind(max_epochs=2, random_state=0, **settings)


@pytest.mark.parametrize(
    "ranker",
    [
        brief(NaiveRanker, normalization="layer", dropout=0.2),
        brief(NaiveRanker, normalization="batch"),
        brief(NaiveRanker, hidden_layer_sizes=()),
        brief(NaiveRanker, hidden_layer_sizes=(), scale_features=False),
        brief(AffineRanker, loss="likelihood"),
        brief(RegressionEMRanker, examination="network"),
        brief(TwoTowerRanker, link="additive"),
        brief(CLDRanker, loss="pointwise", propensity=[1.0] * 5),
        brief(CLDRanker, loss="pointwise", hidden_layer_sizes=(), propensity=[1.0] * 5),
        HeckmanRanker(hidden_layer_sizes=()),
        brief(VectorizationRanker, student="only"),
        DistilledRanker(NaiveRanker(max_epochs=2), Ridge(), random_state=0),
    ],
    ids=str,
)
def test_settings_that_change_the_score(ranker, log, scaled_log):
    scales = getattr(ranker, "scale_features", False)
    ranker.fit(*(log if scales else scaled_log))
    rows = rows_of(log[0], 5_000) if scales else plain_rows(scaled_log[0])
    found = scores_of(export_model(ranker, "onnx"), rows)
    assert largest_error(found[:, 0], ranker, rows) <= 1e-6


def test_layers_of_the_users_module(log):
    layers = [nn.Linear(6, 5, bias=False), nn.LayerNorm(5, elementwise_affine=False), nn.SiLU()]
    layers += [nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Sigmoid())]
    ranker = brief(DLARanker, module=nn.Sequential(*layers, nn.Identity(), nn.Linear(4, 1)))
    ranker.fit(*log)
    rows = rows_of(log[0], 5_000)
    found = scores_of(export_model(ranker, "onnx"), rows)
    assert largest_error(found[:, 0], ranker, rows) <= 1e-6


def test_a_layer_without_operators_is_named(log):
    module = nn.Sequential(nn.Linear(6, 4), nn.Hardswish(), nn.Linear(4, 1))
    ranker = brief(NaiveRanker, module=module).fit(*log)
    with pytest.raises(ValueError, match=r"layer Hardswish\(\).*expected BatchNorm1d.*SiLU"):
        export_model(ranker, "onnx")


@pytest.mark.parametrize(
    "scaler",
    [
        StandardScaler(),
        StandardScaler(with_mean=False),
        StandardScaler(with_std=False),
        MinMaxScaler((-1, 2)),
        MaxAbsScaler(),
        RobustScaler(with_centering=False),
        make_pipeline(RobustScaler(), MinMaxScaler(), StandardScaler()),
    ],
    ids=str,
)
def test_scalers_in_front_are_part_of_the_model(scaler, scaled_log):
    ranker = brief(NaiveRanker, scale_features=isinstance(scaler, MinMaxScaler))
    model = make_pipeline(OnFeatures(scaler), ranker).fit(*scaled_log)
    rows = plain_rows(scaled_log[0])
    found = scores_of(export_model(model, "onnx"), rows)
    assert largest_error(found[:, 0], model, rows) <= 1e-6


@pytest.mark.parametrize("scaler", [QuantileTransformer(n_quantiles=5), MinMaxScaler(clip=True)])
def test_other_transformers_are_refused(scaler, log):
    model = make_pipeline(OnFeatures(scaler), brief(NaiveRanker)).fit(*log)
    name = type(scaler).__name__
    with pytest.raises(ValueError, match=rf"step {name}.*expected StandardScaler"):
        export_model(model, "onnx")


def test_offsets_are_taken_off(log):
    log, clicks = log
    old = log.assign(**{NAMES[2]: 1.7e9 + 1e3 * log[NAMES[2]].rank()})
    ranker = brief(DLARanker).fit(old, clicks)
    assert list(ranker._offsets.columns) == [2]
    rows = plain_rows(old)  # what an engine has of a time stamp
    found = scores_of(export_model(ranker, "onnx"), rows)
    assert largest_error(found[:, 0], ranker, rows) <= 1e-6


def test_tiny_features_keep_their_digits(log):
    log, clicks = log
    tiny = log.assign(**{name: 1e-12 * log[name] for name in NAMES})
    ranker = brief(DLARanker).fit(tiny, clicks)
    rows = plain_rows(tiny)
    found = scores_of(export_model(ranker, "onnx"), rows)
    assert largest_error(found[:, 0], ranker, rows) <= 1e-6


def test_narrow_features_far_from_0_are_rounded_as_in_training(log):
    log, clicks = log
    narrow = log.assign(**{name: 1e6 * (1 + 0.05 * log[name].rank(pct=True)) for name in NAMES})
    ranker = brief(DLARanker).fit(narrow, clicks)
    assert not len(ranker._offsets.columns)
    rows = plain_rows(narrow)
    found = scores_of(export_model(ranker, "onnx"), rows)[:, 0]
    expected = ranker.predict(pd.DataFrame(rows.astype(float), columns=NAMES))
    # The last bit of a logarithm in float32 depends on the library, in one of a thousand.
    assert np.mean(np.abs(found - expected) > 1e-6) < 0.02


def test_the_models_graph_by_the_reference_of_onnx(log):
    from onnx.reference import ReferenceEvaluator

    ranker = brief(NaiveRanker, normalization="layer").fit(*log)
    rows = rows_of(log[0], 1_000)
    evaluator = ReferenceEvaluator(export_model(ranker, "onnx"))
    (found,) = evaluator.run(None, {"features": rows})
    assert found.dtype == np.float32
    assert largest_error(found[:, 0], ranker, rows) <= 1e-6


def test_what_an_engine_reads_of_the_file(log):
    import onnx

    ranker = brief(NaiveRanker).fit(*log)
    names = ['título, "x"', "bm25(title)", *NAMES[2:]]
    text = export_model(ranker, "onnx", names, name="shop")
    model = onnx.load_from_string(text)
    onnx.checker.check_model(model, full_check=True)
    assert isinstance(text, bytes)
    assert model.graph.name == "shop"
    assert (model.ir_version, [each.version for each in model.opset_import]) == (7, [14])
    assert model.producer_name == "skultr"
    properties = {each.key: each.value for each in model.metadata_props}
    assert json.loads(properties["feature_names"]) == names
    session = session_of(text)
    (given,), (gives,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.type, given.shape) == ("features", "tensor(float)", ["batch", 6])
    assert (gives.name, gives.type, gives.shape) == ("score", "tensor(float)", ["batch", 1])


def test_small_batches(log):
    model = export_model(brief(RegressionEMRanker).fit(*log), "onnx")
    rows = plain_rows(log[0])[:4].copy()
    whole = scores_of(model, rows)
    assert np.array_equal(scores_of(model, rows[2:3]), whole[2:3])
    assert scores_of(model, rows[:0]).shape == (0, 1)


@pytest.mark.parametrize("trained_with_holes", [False, True])
@pytest.mark.parametrize(
    "ranker",
    [brief(RegressionEMRanker), HeckmanRanker(), brief(CLDRanker)],
    ids=lambda each: type(each).__name__,
)
def test_missing_features_are_put_where_predict_puts_them(ranker, trained_with_holes, log):
    frame, clicks = log
    if trained_with_holes:
        low = {name: frame[name].quantile(0.3) for name in NAMES}
        holes = {NAMES[i]: frame[NAMES[i]].where(frame[NAMES[i]] > low[NAMES[i]]) for i in (1, 4)}
        frame = frame.assign(**holes)
    ranker = clone(ranker).fit(frame, clicks)
    rows = rows_of(log[0], 10_000)
    rows[np.random.default_rng(1).random(rows.shape) < 0.2] = np.nan
    found = scores_of(export_model(ranker, "onnx"), rows)
    # Both add up numbers in single precision that are larger than the scores, in another order.
    assert largest_error(found[:, 0], ranker, rows) <= 5e-6


def test_without_scaling_a_missing_feature_has_no_score(scaled_log):
    ranker = brief(NaiveRanker, scale_features=False).fit(*scaled_log)
    rows = plain_rows(scaled_log[0])[:4].copy()
    rows[1, 3] = np.nan
    assert np.isnan(scores_of(export_model(ranker, "onnx"), rows)[:, 0]).tolist() == [0, 1, 0, 0]


def test_without_onnx_the_error_says_what_to_install(log, monkeypatch):
    ranker = brief(NaiveRanker).fit(*log)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r'onnx.*pip install "skultr\[serving\]"'):
        export_model(ranker, "onnx")


def test_regressors_with_a_link_are_refused(scaled_log):
    ranker = IPSRanker(estimator=PoissonRegressor(), propensity=[1.0] * 5).fit(*scaled_log)
    with pytest.raises(ValueError, match="IPSRanker"):
        export_model(ranker, "onnx")


def test_a_class_of_the_user_that_computes_scores_itself_is_refused(log):
    class Doubled(NaiveRanker):
        def _score(self, features):
            return 2 * super()._score(features)

    with pytest.raises(ValueError, match=r"Doubled computes scores .* own, .*Doubled\._score"):
        export_model(brief(Doubled).fit(*log), "onnx")

    class Reversed(LambdaMARTRanker):
        def predict(self, X):
            return -super().predict(X)

    with pytest.raises(ValueError, match=r"Reversed computes .*Reversed\.predict"):
        export_model(Reversed(n_estimators=2, propensity=[1.0] * 5).fit(*log), "onnx")

    class Twice(EnsembleRanker):
        def predict(self, X, **roles):
            return 2 * super().predict(X, **roles)

    members = [("linear", NaiveRanker(estimator=Ridge()))]
    with pytest.raises(ValueError, match=r"Twice computes .*Twice\.predict"):
        export_model(Twice(members, propensity=[1.0] * 5).fit(*log), "onnx")


def test_an_ensemble_is_written_as_the_sum_of_its_members(log):
    """Networks, coefficients and trees, with and without the score of production."""
    log, clicks = log
    members = [
        ("network", brief(NaiveRanker)),
        ("linear", NaiveRanker(estimator=Ridge())),
        ("trees", LambdaMARTRanker(n_estimators=10, propensity=[1.0] * 5, random_state=0)),
    ]
    served = log.assign(production=log[NAMES].to_numpy()[:, 0] * 1e3)
    # A linear member, whose scores are divided by their scale, may carry 3e38 beyond float32.
    rows = np.clip(rows_of(log, 5_000), -1e30, 1e30)
    for X, inputs in ((log, ["features"]), (served, ["features", "production"])):
        ranker = EnsembleRanker(members, propensity=[1.0] * 5, random_state=0).fit(X, clicks)
        assert (ranker.weights_["weight"] > 0).sum() >= 3
        session = session_of(export_model(ranker, "onnx"))
        assert [each.name for each in session.get_inputs()] == inputs
        production = np.linspace(-3e3, 3e3, len(rows), dtype=np.float32)
        given = dict(zip(inputs, (rows, production[:, None]), strict=False))
        found = session.run(["score"], given)[0][:, 0]
        request = pd.DataFrame(rows.astype(float), columns=NAMES)
        request = request.assign(qid=np.arange(len(rows)), production=production)
        expected = ranker.predict(request)
        size = np.maximum(1, np.abs(ranker.explain(request)).sum(axis=1))
        assert np.ptp(expected) > 0
        assert np.max(np.abs(found - expected) / size) <= 5e-6


def test_missing_features_go_where_trees_send_them(log):
    log, clicks = log
    holes = np.random.default_rng(0).random((len(log), len(NAMES))) < 0.2
    log = log.assign(**log[NAMES].mask(holes))
    ranker = LambdaMARTRanker(n_estimators=10, propensity=[1.0] * 5, random_state=0)
    ranker.fit(log, clicks)
    rows = plain_rows(log)
    assert np.isnan(rows).any()
    found = scores_of(export_model(ranker, "onnx"), rows)
    assert largest_error(found[:, 0], ranker, rows) <= 1e-6


def test_ensembles_that_are_no_sum_are_refused_in_words(log):
    inner = EnsembleRanker([("linear", NaiveRanker(estimator=Ridge()))], propensity=[1.0] * 5)
    nested = EnsembleRanker([("inner", inner)], propensity=[1.0] * 5).fit(*log)
    with pytest.raises(ValueError, match="is an ensemble"):
        export_model(nested, "onnx")
    inner.fit(*log).weights_["scale"] = np.inf
    with pytest.raises(ValueError, match="score all documents alike"):
        export_model(inner, "onnx")


def test_trees_of_small_leaves_keep_their_digits(log):
    """Of scores near a constant, the difference is what is ranked by."""
    learner = LGBMRegressor(n_estimators=1, learning_rate=1e-4, n_jobs=1, verbosity=-1)
    members = [
        ("flat", NaiveRanker(estimator=learner)),
        ("network", brief(NaiveRanker)),
        ("only", brief(VectorizationRanker, student="only")),
    ]
    ranker = EnsembleRanker(members, propensity=[1.0] * 5, random_state=0).fit(*log)
    assert ranker.weights_["center"].abs().div(ranker.weights_["scale"]).max() > 1e3
    rows = plain_rows(log[0])
    found = scores_of(export_model(ranker, "onnx"), rows)
    assert largest_error(found[:, 0], ranker, rows) <= 1e-5
