import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    StandardScaler,
    TargetEncoder,
)
from sklearn.utils.estimator_checks import parametrize_with_checks

from skultr.preprocessing import _SCALERS, OnFeatures


@parametrize_with_checks([OnFeatures(StandardScaler()), OnFeatures(PCA())])
def test_sklearn_checks(estimator, check):
    check(estimator)


@pytest.fixture
def log():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "f0": rng.normal(5, 2, 12),
            "qid": np.repeat(["a", "b", "c"], 4),
            "position": [1, 2, 3, np.nan] * 3,
            "f1": rng.normal(-1, 9, 12),
            "relevance": rng.integers(0, 3, 12),
        },
        index=rng.permutation(100)[:12],
    )


CONVERT = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}


def to_pandas(frame):
    return frame if isinstance(frame, pd.DataFrame) else frame.to_pandas()


@pytest.mark.filterwarnings("ignore:n_quantiles")
@pytest.mark.parametrize("scaler", _SCALERS, ids=lambda scaler: scaler.__name__)
@pytest.mark.parametrize("dtype", ["float32", "float64", "Float64", "int64"])
def test_a_scaler_reads_an_array_of_the_same_numbers(log, scaler, dtype):
    features = ["f0", "f1"]
    X = log.round().astype(dict.fromkeys(features, dtype))
    on_features = OnFeatures(scaler()).fit(X)
    alone = scaler().fit(X[features])
    found = on_features.transform(X)
    np.testing.assert_array_equal(found[features], alone.transform(X[features]))
    # It stays as it was fitted, and checks values and names.
    assert on_features.transformer_.feature_names_in_.tolist() == features
    with pytest.raises(ValueError, match="infinity"):
        on_features.transform(X.assign(f0=np.inf))
    with pytest.raises(ValueError, match="feature names"):
        on_features.transform(X.rename(columns={"f0": "other"}))
    # Names of frames that were asked for.
    on_features.transformer_.set_output(transform="pandas")
    assert on_features.transform(X).columns.tolist()[-2:] == features


@pytest.mark.parametrize("kind", CONVERT)
def test_scales_features_and_keeps_roles(log, kind):
    X = CONVERT[kind](log)
    model = OnFeatures(StandardScaler()).fit(X)
    out = model.transform(X)

    assert type(out) is type(X)
    frame = to_pandas(out).reset_index(drop=True)
    expected = log.reset_index(drop=True)
    assert list(frame.columns) == ["qid", "position", "relevance", "f0", "f1"]
    roles = ["qid", "position", "relevance"]
    pd.testing.assert_frame_equal(frame[roles], expected[roles], check_dtype=False)
    scaled = StandardScaler().fit_transform(expected[["f0", "f1"]])
    np.testing.assert_allclose(frame[["f0", "f1"]], scaled)
    assert model.n_features_in_ == 2
    assert list(model.feature_names_in_) == ["f0", "f1"]
    assert list(model.get_feature_names_out()) == ["f0", "f1"]


def test_pandas_index_is_kept(log):
    out = OnFeatures(StandardScaler()).fit_transform(log)
    assert out.index.equals(log.index)
    twice = pd.concat([log, log])
    assert OnFeatures(StandardScaler()).fit_transform(twice).index.equals(twice.index)


@pytest.mark.parametrize("kind", CONVERT)
def test_serving_frames_lack_or_add_roles(log, kind):
    model = OnFeatures(StandardScaler()).fit(CONVERT[kind](log))
    full = to_pandas(model.transform(CONVERT[kind](log)))
    served = to_pandas(model.transform(CONVERT[kind](log[["f0", "f1"]])))
    np.testing.assert_array_equal(served[["f0", "f1"]], full[["f0", "f1"]])
    more = to_pandas(model.transform(CONVERT[kind](log.assign(session=1))))
    assert "session" in more.columns


def test_missing_or_unknown_features_are_refused(log):
    model = OnFeatures(StandardScaler()).fit(log)
    with pytest.raises(ValueError, match="missing"):
        model.transform(log.drop(columns="f1"))
    with pytest.raises(ValueError, match="unseen"):
        model.transform(log.assign(f2=1.0))


@pytest.mark.parametrize("kind", CONVERT)
def test_number_of_columns_may_change(log, kind):
    X = CONVERT[kind](log)
    clicks = np.arange(12) % 2
    assert to_pandas(OnFeatures(PCA(1)).fit_transform(X)).columns[-1] == "pca0"
    best = OnFeatures(SelectKBest(k=1)).fit(X, clicks)
    assert list(best.get_feature_names_out()) == [to_pandas(best.transform(X)).columns[-1]]
    out = OnFeatures(OneHotEncoder(sparse_output=False)).fit_transform(X)
    assert to_pandas(out).shape == (12, 3 + 24)


def test_strings_can_be_features(log):
    X = log.assign(device=["phone", "desk"] * 6).drop(columns=["f0", "f1"])
    out = OnFeatures(OneHotEncoder(sparse_output=False)).fit_transform(pl.from_pandas(X))
    assert out.columns[-2:] == ["device_desk", "device_phone"]


def test_sparse_output_in_a_frame_is_refused(log):
    with pytest.raises(ValueError, match=r"sparse_threshold=0 .*, or sparse_output=False"):
        OnFeatures(OneHotEncoder()).fit_transform(log)


def test_arrays_and_sparse_matrices_pass_through_the_transformer(log):
    values = log[["f0", "f1"]].to_numpy()
    out = OnFeatures(StandardScaler()).fit_transform(values)
    np.testing.assert_array_equal(out, StandardScaler().fit_transform(values))
    out = OnFeatures(MaxAbsScaler()).fit_transform(sparse.csr_array(values))
    assert sparse.issparse(out)


def test_fit_transform_is_that_of_the_transformer(log):
    X = log.assign(f0=np.arange(12) % 3)[["qid", "f0"]]
    target = np.arange(12.0)
    encoder = TargetEncoder(target_type="continuous", cv=KFold(2))
    out = OnFeatures(encoder).fit_transform(X, target)
    np.testing.assert_array_equal(out["f0"], encoder.fit_transform(X[["f0"]], target)[:, 0])


def test_set_output(log):
    model = OnFeatures(StandardScaler()).fit(log)
    assert isinstance(model.set_output(transform="polars").transform(log), pl.DataFrame)
    assert isinstance(clone(model).fit_transform(log), pl.DataFrame)
    assert isinstance(model.set_output(transform="default").transform(log), pd.DataFrame)
    arrays = OnFeatures(StandardScaler()).set_output(transform="pandas")
    out = arrays.fit_transform(log[["f0", "f1"]].to_numpy())
    assert list(out.columns) == ["x0", "x1"]


def test_inside_a_pipeline(log):
    pipeline = make_pipeline(OnFeatures(StandardScaler()), OnFeatures(PCA(1)))
    assert "onfeatures-1__transformer__with_mean" in pipeline.get_params()
    pipeline.set_output(transform="pandas")
    out = pipeline.fit_transform(log)
    assert list(out.columns) == ["qid", "position", "relevance", "pca0"]
    assert list(pipeline.get_feature_names_out()) == ["pca0"]
    single = make_pipeline(OnFeatures(StandardScaler()))
    single.set_params(onfeatures__transformer__with_mean=False).fit(log)
    assert single[0].transformer_.mean_ is not None
    assert not single[0].transformer_.with_mean


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.from_pandas], ids=["pandas", "polars"])
def test_columns_that_a_later_step_reads_are_passed_through(log, frame):
    X = frame(log.assign(market=["a", "b"] * (len(log) // 2) + ["a"] * (len(log) % 2)))
    model = OnFeatures(StandardScaler(), passthrough=["market"]).fit(X)
    out = model.transform(X)
    assert list(out["market"]) == list(X["market"])
    assert model.n_features_in_ == 2
    served = frame(log[["f0", "f1"]])
    assert list(model.transform(served).columns) == ["f0", "f1"]


@pytest.mark.parametrize("kind", CONVERT)
def test_rows_that_are_lost_are_an_error(log, kind):
    X = CONVERT[kind](log)
    with pytest.raises(ValueError, match="FunctionTransformer gave 2 rows for the 12 rows of X"):
        OnFeatures(FunctionTransformer(lambda X: X[:2])).fit_transform(X)
    values = log[["f0", "f1"]].to_numpy()
    with pytest.raises(ValueError, match="gave 2 rows for the 12"):
        OnFeatures(FunctionTransformer(lambda X: X[:2])).fit_transform(values)


@pytest.mark.parametrize("kind", ["pandas", "pyarrow"])
@pytest.mark.parametrize(
    "change",
    [
        lambda X: X.sort_values("f0"),
        lambda X: X[::-1],
        lambda X: X.sort_index(ascending=False),
        lambda X: X.set_index("f1"),
    ],
)
def test_rows_in_another_order_are_an_error(log, kind, change):
    for X in (log, log.reset_index(drop=True)):
        with pytest.raises(ValueError, match=r"in another order.*index begins with \["):
            OnFeatures(FunctionTransformer(change)).fit_transform(CONVERT[kind](X))


def test_rows_that_are_numbered_anew_keep_their_order(log):
    X = log.set_index(np.arange(12)[::-1])
    out = OnFeatures(FunctionTransformer(lambda X: X.reset_index(drop=True))).fit_transform(X)
    pd.testing.assert_frame_equal(out[log.columns], X)


@pytest.mark.parametrize("kind", CONVERT)
def test_arrays_without_names_are_numbered(log, kind):
    model = OnFeatures(FunctionTransformer(lambda X: 2 * np.asarray(X)))
    out = to_pandas(model.fit_transform(CONVERT[kind](log)))
    assert out.columns.tolist() == ["qid", "position", "relevance", "f0", "f1"]
    np.testing.assert_array_equal(out[["f0", "f1"]], 2 * log[["f0", "f1"]])


@pytest.mark.parametrize("kind", CONVERT)
@pytest.mark.parametrize("name", ["qid", "session", "market"])
def test_features_named_like_a_role_are_an_error(log, kind, name):
    model = OnFeatures(
        FunctionTransformer(lambda X: pd.DataFrame({name: np.arange(len(X))})),
        passthrough=["market"],
    )
    with pytest.raises(ValueError, match=f"gave the column '{name}', which is the name of a role"):
        model.fit_transform(CONVERT[kind](log))


@pytest.mark.parametrize("kind", CONVERT)
def test_passthrough_leaves_features_as_they_are(log, kind):
    X = CONVERT[kind](log)
    model = clone(OnFeatures("passthrough")).fit(X)
    out = model.transform(X)
    assert type(out) is type(X)
    expected = log.reset_index(drop=True)
    found = to_pandas(out).reset_index(drop=True)[log.columns.tolist()]
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    assert model.get_feature_names_out().tolist() == ["f0", "f1"]
    values = sparse.csr_array(log[["f0", "f1"]].to_numpy())
    assert OnFeatures("passthrough").fit_transform(values) is values


@pytest.mark.parametrize("transformer", ["drop", None])
def test_what_is_no_transformer_is_refused(log, transformer):
    with pytest.raises(TypeError, match="must have fit and transform, or be 'passthrough'"):
        OnFeatures(transformer).fit(log)


def test_unfitted(log):
    with pytest.raises(NotFittedError):
        OnFeatures(StandardScaler()).transform(log)
    with pytest.raises(NotFittedError):
        OnFeatures(StandardScaler()).get_feature_names_out()


def test_lazy_frames_are_refused(log):
    with pytest.raises(TypeError, match="lazy"):
        OnFeatures(StandardScaler()).fit(pl.from_pandas(log).lazy())


def test_the_column_of_clicks_is_no_feature():
    log = pd.DataFrame({"qid": 1, "f0": [1.0, 2, 3], "ctr": [0.1, 0.4, 0.1]})
    scaled = OnFeatures(StandardScaler()).fit(log, "ctr")
    assert scaled.transform(log)["ctr"].tolist() == [0.1, 0.4, 0.1]
    assert scaled.transform(log.drop(columns="ctr")).columns.tolist() == ["qid", "f0"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64], ids=np.dtype)
@pytest.mark.parametrize(
    "transformer",
    [
        StandardScaler(),
        make_pipeline(SimpleImputer(), MinMaxScaler()),
        OneHotEncoder(sparse_output=False),
        "passthrough",
    ],
    ids=lambda transformer: type(transformer).__name__,
)
def test_polars_features_have_the_type_of_pandas_features(transformer, dtype):
    log = pd.DataFrame({"qid": [1, 1, 2], "a": np.array([1, 2, 3], dtype=dtype)})
    expected = OnFeatures(transformer).fit_transform(log)
    found = OnFeatures(transformer).fit_transform(pl.from_pandas(log))
    assert isinstance(found, pl.DataFrame)
    pd.testing.assert_frame_equal(found.to_pandas(), expected)


def test_functions_get_polars_frames():
    log = pl.DataFrame({"qid": [1, 2], "a": [1.0, 4.0]})
    root = FunctionTransformer(lambda X: X.with_columns(pl.col("a").sqrt()))
    for transformer in (root, make_pipeline(root)):
        assert OnFeatures(transformer).fit_transform(log)["a"].to_list() == [1.0, 2.0]


def test_a_name_of_columns_stays_in_its_frame():
    class Named(StandardScaler):
        def fit(self, X, y=None):
            seen.append(X.columns.name)
            X.columns.name = "features"
            return super().fit(X, y)

    Named.__module__ = "sklearn.preprocessing"  # what reads Polars by pandas
    seen = []
    for _ in range(2):
        OnFeatures(Named()).fit(pl.DataFrame({"a": [1.0, 2.0], "b": [3.0, 5.0]}))
    assert seen == [None, None]


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_functions_that_change_their_frame_change_no_other(kind):
    def with_total(frame):
        if isinstance(frame, pd.DataFrame):
            frame["total"] = frame["a"] + frame["b"]
            return frame
        return frame.insert_column(2, (frame["a"] + frame["b"]).alias("total"))

    X = kind({"a": [1.0, 2.0], "b": [3.0, 5.0]})
    totals = OnFeatures(FunctionTransformer(with_total)).fit(X)
    for _ in range(2):
        assert list(totals.transform(X)["total"]) == [4.0, 7.0]
    assert list(X.columns) == ["a", "b"]


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_a_frame_of_roles_alone_keeps_its_rows(kind):
    X = kind({"qid": [1, 2, 3], "doc": [1, 2, 3]})
    ones = OnFeatures(FunctionTransformer(lambda X: np.ones((X.shape[0], 1))))
    assert ones.fit_transform(X).shape == (3, 3)


@pytest.mark.parametrize("first", ["qid", "a"])
def test_a_transformer_that_writes_to_its_input_leaves_the_roles_frame(first):
    """The features are a block of columns, or not."""
    X = pd.DataFrame({"a": [1.0, 2.0], "qid": [1.0, 1.0], "b": [3.0, 5.0]})
    X = X[["qid", "a", "b"] if first == "qid" else ["a", "qid", "b"]]
    before = X.copy()
    OnFeatures(StandardScaler(copy=False)).fit_transform(X)
    pd.testing.assert_frame_equal(X, before)
