"""Missing values, categories and lists as features, through every kind of estimator."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from lightgbm import LGBMRanker
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from torch import nn
from xgboost import XGBRegressor

import skultr
from skultr.click_models import PBMModel
from skultr.datasets import make_ltr
from skultr.identifiability import IdentifiabilityGraph, feature_overlap
from skultr.preprocessing import OnFeatures
from skultr.propensity import PowerLawPropensity, RegressionEMPropensity
from skultr.rankers import (
    CLDRanker,
    DistilledRanker,
    DLARanker,
    EnsembleRanker,
    HeckmanRanker,
    IPSRanker,
    LambdaMARTRanker,
    NaiveRanker,
    VectorizationRanker,
)
from skultr.serving import export_model, load_model, save_model
from skultr.simulation import EYE_TRACKING, PlackettLucePolicy, simulate_clicks

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::skultr.exceptions.{kind}")
    for kind in (
        "AssumptionWarning",
        "ClickDataWarning",
        "NotIdentifiableWarning",
        "UnstableWeightsWarning",
    )
]
NAMES = [f"feature_{place:03d}" for place in range(4)]
TREES = LambdaMARTRanker(
    propensity=EYE_TRACKING,
    n_estimators=15,
    num_leaves=6,
    lgbm_params={"lambda_l2": 1.0},
    random_state=0,
)
SMALL = {"n_estimators": 5, "min_child_samples": 5, "n_jobs": 1, "verbosity": -1}


@pytest.fixture(scope="module")
def log():
    """A log whose documents lack some features, have a brand that matters, and its clicks."""
    documents = make_ltr(n_queries=50, n_features=4, random_state=0)
    rng = np.random.default_rng(0)
    brand = rng.integers(0, 6, len(documents))
    documents["relevance"] = (documents["relevance"] + 3 * (brand % 2)).clip(upper=4)
    frame, clicks, _ = simulate_clicks(
        documents.assign(brand=brand), n_sessions=800, policy=PlackettLucePolicy(), random_state=0
    )
    for place in (0, 2):
        other = frame[NAMES[place + 1]]
        frame[NAMES[place]] = frame[NAMES[place]].where(other > other.quantile(0.3))
    frame["brand"] = frame["brand"].map(lambda code: f"brand {int(code)}" if code else None)
    return frame.drop(columns="relevance"), np.asarray(clicks)


def numbers(log):
    return log[0].drop(columns="brand"), log[1]


# Missing values -------------------------------------------------------------------------
RANKERS = {
    "naive": NaiveRanker(max_epochs=3, random_state=0),
    "dla": DLARanker(max_epochs=3, random_state=0),
    "vectorization": VectorizationRanker(max_epochs=2, random_state=0),
    "cld": CLDRanker(propensity=EYE_TRACKING, random_state=0),
    "heckman": HeckmanRanker(hidden_layer_sizes=(), random_state=0),
    "click model": PBMModel(solver="gradient", max_epochs=2, random_state=0),
    "table": PBMModel(),
    "trees": TREES,
    "hist": NaiveRanker(estimator=HistGradientBoostingRegressor(max_iter=5), random_state=0),
    "xgboost": NaiveRanker(estimator=XGBRegressor(n_estimators=5, n_jobs=1), random_state=0),
    "imputed": NaiveRanker(
        estimator=make_pipeline(SimpleImputer(), StandardScaler(), Ridge()), random_state=0
    ),
    "distilled": DistilledRanker(
        NaiveRanker(max_epochs=1), HistGradientBoostingRegressor(max_iter=5), random_state=0
    ),
    "ensemble": EnsembleRanker(
        [("network", NaiveRanker(max_epochs=2)), ("trees", TREES)], random_state=0
    ),
}


@pytest.mark.parametrize("name", RANKERS)
def test_missing_values_are_features(name, log):
    X, y = numbers(log)
    ranker = clone(RANKERS[name]).fit(X, y)
    assert get_tags(ranker).input_tags.allow_nan
    scores = ranker.predict(X)
    assert np.isfinite(scores).all()
    order = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_allclose(ranker.predict(X.iloc[order]), scores[order], rtol=1e-6)
    again = clone(ranker).fit(X.iloc[order], y[order]).predict(X)
    np.testing.assert_allclose(again, scores, rtol=1e-4, atol=1e-5)
    # A feature that was never missing in training may be missing where the model predicts.
    if name != "table":
        assert np.isfinite(ranker.predict(X.assign(feature_003=np.nan))).all()


@pytest.mark.parametrize("make", [pl.from_pandas, pa.Table.from_pandas])
@pytest.mark.parametrize("name", ["naive", "trees"])
def test_null_is_nan(name, make, log):
    X, y = numbers(log)
    scores = clone(RANKERS[name]).fit(X, y).predict(X)
    ranker = clone(RANKERS[name]).fit(make(X), y)
    np.testing.assert_array_equal(ranker.predict(make(X)), scores)
    np.testing.assert_array_equal(ranker.predict(X), scores)


def test_networks_get_one_indicator_for_each_feature_that_was_missing(log):
    X, y = numbers(log)
    ranker = NaiveRanker(hidden_layer_sizes=(), max_epochs=1, random_state=0).fit(X, y)
    assert ranker.network_[1][-1].in_features == 4 + 2
    assert ranker.network_[0].indicated.tolist() == [0, 2]
    assert ranker.n_features_in_ == 4
    # At the mean, with the indicator: the score is that of the mean, and the indicator's weight.
    scale = ranker.network_[0]
    row = X[NAMES].dropna().head(1)
    at_mean = np.expm1(scale.center[0].item())
    given = ranker.predict(row.assign(feature_000=at_mean))[0]
    missing = ranker.predict(row.assign(feature_000=np.nan))[0]
    weight = ranker.network_[1][-1].weight[0, 4].item()
    assert missing == pytest.approx(given + weight, abs=1e-5)


def test_a_module_of_the_user_has_no_indicators_and_a_function_may(log):
    X, y = numbers(log)
    given = NaiveRanker(module=nn.Linear(4, 1), max_epochs=1).fit(X, y)
    assert np.isfinite(given.predict(X)).all()
    made = NaiveRanker(module=lambda n: nn.Linear(n, 1), max_epochs=1).fit(X, y)
    assert made.network_[1].in_features == 6


@pytest.mark.parametrize(
    ("ranker", "why"),
    [
        (NaiveRanker(scale_features=False), "with scale_features=False the network reads"),
        (NaiveRanker(estimator=Ridge()), "Ridge takes no missing values"),
        (DistilledRanker(student=Ridge()), "Ridge takes no missing values"),
        (EnsembleRanker([("ridge", NaiveRanker(estimator=Ridge()))]), "member 'ridge'"),
    ],
    ids=["network", "learner", "student", "member"],
)
def test_who_takes_no_missing_values_says_so(ranker, why, log):
    X, y = numbers(log)
    assert not get_tags(ranker).input_tags.allow_nan
    message = rf"feature columns 'feature_000' \(.*% of the rows\), 'feature_002'.*{why}"
    with pytest.raises(ValueError, match=message):
        clone(ranker).fit(X, y)
    roles = {name: X[name] for name in ("qid", "session", "doc", "position")}
    with pytest.raises(ValueError, match="NaN"):
        clone(ranker).fit(X[NAMES].to_numpy(), y, **roles)


def test_missing_is_equal_to_missing(log):
    X, y = numbers(log)
    X = X.drop(columns="doc")
    other = X.copy()
    bits = np.array([0xFFC00001], dtype=np.uint32).view(np.float32)[0]  # another kind of NaN
    values = other[NAMES].to_numpy(np.float32, copy=True)
    values[np.isnan(values)] = bits
    other[NAMES] = values
    known, found = (PBMModel().fit(each, y) for each in (X, other))
    np.testing.assert_array_equal(known.predict(other), found.predict(X))
    assert len(known.documents_) == X[["qid", *NAMES]].drop_duplicates().shape[0]


def test_a_dataset_holds_missing_values(log, tmp_path):
    X, y = numbers(log)
    path = tmp_path / "log.parquet"
    X.assign(click=y).to_parquet(path)
    dataset = skultr.ClickDataset.from_parquet(path, path=tmp_path / "log")
    for ranker in (clone(RANKERS["naive"]), clone(TREES)):
        scores = clone(ranker).fit(X, y).predict(X)
        np.testing.assert_allclose(ranker.fit(dataset).predict(X), scores, rtol=1e-5, atol=1e-6)


def test_offsets_of_a_feature_that_is_missing_at_times(log):
    X, y = numbers(log)
    late = X.assign(feature_000=1.7e9 + 100 * X["feature_000"].rank())
    settings = {"max_epochs": 2, "learning_rate": 0.001, "random_state": 0}
    ranker = NaiveRanker(**settings).fit(late, y)
    assert ranker._offsets.columns.tolist() == [0]
    low = late["feature_000"].min()
    shifted = late.assign(feature_000=late["feature_000"] - low)
    assert np.ptp(ranker.predict(late)) > 0
    near = NaiveRanker(**settings).fit(shifted, y)
    np.testing.assert_allclose(near.predict(shifted), ranker.predict(late), atol=0.05)


# Categories -----------------------------------------------------------------------------
def as_category(X):
    return X.assign(brand=X["brand"].astype("category"))


KINDS = {
    "pandas": as_category,
    "polars": lambda X: pl.from_pandas(X).with_columns(pl.col("brand").cast(pl.Categorical)),
    "enum": lambda X: pl.from_pandas(X).with_columns(
        pl.col("brand").cast(pl.Enum([f"brand {i}" for i in (5, 3, 1, 4, 2)]))
    ),
    "arrow": lambda X: pa.Table.from_pandas(as_category(X), preserve_index=False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_trees_split_by_categories_in_every_kind_of_frame(kind, log):
    X, y = log
    known = clone(TREES).fit(as_category(X), y)
    assert "==" in {
        node for node in known.booster_.trees_to_dataframe()["decision_type"] if node is not None
    }
    scores = known.predict(as_category(X))
    ranker = clone(TREES).fit(KINDS[kind](X), y)
    np.testing.assert_array_equal(ranker.predict(KINDS[kind](X)), scores)
    np.testing.assert_array_equal(ranker.predict(X), scores)  # text, as of a request
    order = np.random.default_rng(0).permutation(len(X))
    again = clone(TREES).fit(KINDS[kind](X.iloc[order]), y[order])
    np.testing.assert_array_equal(again.predict(KINDS[kind](X)), scores)


def test_an_unseen_category_is_missing(log):
    X, y = log
    ranker = clone(TREES).fit(as_category(X), y)
    few = X.head(20)
    np.testing.assert_array_equal(
        ranker.predict(few.assign(brand="never seen")), ranker.predict(few.assign(brand=None))
    )
    one = ranker.predict(few.head(1))
    assert ranker.predict(few)[0] == one[0]  # codes are not those of the request


def test_learners_of_lightgbm_take_categories(log):
    X, y = log
    for ranker in (
        IPSRanker(propensity=EYE_TRACKING, estimator=LGBMRanker(**SMALL), random_state=0),
        DistilledRanker(random_state=0),
    ):
        ranker.fit(as_category(X), y)
        np.testing.assert_array_equal(ranker.predict(X), ranker.predict(as_category(X)))


def test_categories_that_are_numbers(log):
    X, y = numbers(log)
    X = X.assign(code=X["doc"] % 5)
    ranker = clone(TREES).fit(X.assign(code=X["code"].astype("category")), y)
    scores = ranker.predict(X)
    np.testing.assert_array_equal(ranker.predict(X.assign(code=X["code"].astype(float))), scores)
    with pytest.raises(ValueError, match=r"'code' .* in training categories such as \[0, 1\]"):
        ranker.predict(X.assign(code=X["code"].astype(str)))
    plain = clone(TREES).fit(X, y)
    with pytest.raises(ValueError, match=r"'code' .* in training numbers"):
        plain.predict(X.assign(code=X["code"].astype("category")))
    with pytest.raises(ValueError, match=r"'title' .* in training numbers, or absent"):
        plain.predict(X.assign(title="red"))


def test_saved_models_keep_their_categories(log, tmp_path):
    pytest.importorskip("skops")
    X, y = log
    ranker = clone(TREES).set_params(debiasing="none", propensity=None).fit(as_category(X), y)
    save_model(ranker, tmp_path / "model.zip")
    loaded = load_model(tmp_path / "model.zip")
    np.testing.assert_array_equal(loaded.predict(X), ranker.predict(X))


def test_an_ensemble_of_trees_takes_what_its_members_take(log, tmp_path):
    pytest.importorskip("skops")
    X, y = as_category(log[0]), log[1]
    X["feature_001"] = X["feature_001"].where(X["doc"] % 3 > 0)
    trees = clone(TREES).set_params(propensity=None)
    members = [("naive", clone(trees).set_params(debiasing="none")), ("debiased", trees)]
    ranker = EnsembleRanker(members, random_state=0).fit(X, y)
    for name, tree in ranker.named_estimators_.items():
        decisions = tree.booster_.trees_to_dataframe()["decision_type"]
        assert "==" in set(decisions.dropna()), name
    as_text = X.assign(brand=X["brand"].astype(str))
    np.testing.assert_array_equal(ranker.predict(as_text), ranker.predict(X))
    save_model(ranker, tmp_path / "model.zip")
    np.testing.assert_array_equal(load_model(tmp_path / "model.zip").predict(X), ranker.predict(X))
    with pytest.raises(ValueError, match=r"split '?\w+'? by categories"):
        export_model(ranker, "xgboost+json")
    with_network = EnsembleRanker([*members, ("network", NaiveRanker())])
    with pytest.raises(ValueError, match="'brand'"):
        with_network.fit(X, y)


def test_formats_of_engines_refuse_splits_by_categories(log):
    ranker = clone(TREES).fit(as_category(log[0]), log[1])
    with pytest.raises(ValueError, match=r"split '\w+' by categories"):
        export_model(ranker, "xgboost+json")


def test_all_columns_that_are_no_numbers_are_named_at_once(log):
    X, y = log
    X = as_category(X).assign(title="a b", seen=pd.Timestamp("2026-01-01"))
    for ranker in (NaiveRanker(), EnsembleRanker(), NaiveRanker(estimator=Ridge())):
        with pytest.raises(ValueError, match=r"OnFeatures\(TableVectorizer\(\)\)") as caught:
            ranker.fit(X, y)
        for name in ("brand", "title", "seen"):
            assert repr(name) in str(caught.value)
    with pytest.raises(ValueError, match=r"'title'.*'seen'") as caught:
        clone(TREES).fit(X, y)
    assert "'brand' (" not in str(caught.value)


def test_what_reads_no_features_takes_every_column(log):
    X, y = log
    X = X.assign(title="a b", seen=pd.Timestamp("2026-01-01"))
    plain = X[["qid", "session", "doc", "position"]]
    for model in (PBMModel(), DLARanker(relevance="embedding")):
        scores = clone(model).fit(plain, y).predict(plain)
        np.testing.assert_allclose(clone(model).fit(X, y).predict(X), scores, atol=1e-5)
    curve = RegressionEMPropensity(relevance="embedding").fit(X, y).examination_
    expected = RegressionEMPropensity(relevance="embedding").fit(plain, y).examination_
    pd.testing.assert_frame_equal(curve, expected, rtol=1e-5)
    assert IdentifiabilityGraph.from_log(X).n_components == (
        IdentifiabilityGraph.from_log(plain).n_components
    )
    # Without ids, the documents are the distinct rows of all columns.
    by_values = PBMModel().fit(X.drop(columns="doc"), y)
    assert np.isfinite(by_values.predict(X.drop(columns="doc"))).all()


def test_feature_overlap_puts_missing_values_at_the_mean(log):
    found = feature_overlap(numbers(log)[0])
    assert 0 <= found.overlap <= 1


# Lists in cells -------------------------------------------------------------------------
def with_lists(X, make=list):
    cells = [make(row) for row in X[NAMES[:3]].to_numpy()]
    out = X.drop(columns=[*NAMES[:3], "brand"])
    return out.assign(embedding=pd.Series(cells, index=out.index, dtype=object))


LISTS = {
    "lists": lambda X: with_lists(X),
    "arrays": lambda X: with_lists(X, np.asarray),
    "polars": lambda X: pl.from_pandas(with_lists(X)),
    "polars array": lambda X: pl.from_pandas(with_lists(X)).with_columns(
        pl.col("embedding").cast(pl.Array(pl.Float64, 3))
    ),
    "arrow": lambda X: (
        pl.from_pandas(with_lists(X))
        .with_columns(pl.col("embedding").cast(pl.Array(pl.Float64, 3)))
        .to_arrow()
    ),
}


@pytest.mark.parametrize("kind", LISTS)
def test_lists_of_one_length_are_blocks_of_features(kind, log):
    X, y = log
    order = ["feature_003", *NAMES[:3]]
    plain = X[["qid", "session", "doc", "position", *order]]
    expected = clone(TREES).fit(plain, y).predict(plain)
    listed = LISTS[kind](X)
    ranker = clone(TREES).fit(listed, y)
    assert ranker.feature_names_in_.tolist() == [
        "feature_003",
        *(f"embedding[{place}]" for place in range(3)),
    ]
    assert ranker.n_features_in_ == 4
    np.testing.assert_array_equal(ranker.predict(listed), expected)


def test_lists_of_several_lengths_or_of_text_are_errors(log):
    X, y = log
    X = with_lists(X)
    ragged = X.copy()
    ragged.at[ragged.index[3], "embedding"] = [1.0]
    with pytest.raises(
        ValueError, match=r"'embedding' holds lists of 2 .* such as \[1\] and \[3\]"
    ):
        NaiveRanker().fit(ragged, y)
    ranker = NaiveRanker(max_epochs=1).fit(X, y)
    shorter = X.assign(embedding=X["embedding"].map(lambda cell: cell[:2]))
    with pytest.raises(ValueError, match="seen at fit time, yet now missing"):
        ranker.predict(shorter)
    words = pl.DataFrame({"qid": [1, 1], "position": [1, 2], "tags": [["a"], ["b"]]})
    with pytest.raises(ValueError, match=r"'tags'.*lists of other things than numbers"):
        NaiveRanker().fit(words, [0, 1])


def test_features_may_be_encoded_in_a_pipeline(log):
    X, y = numbers(log)
    imputed = make_pipeline(OnFeatures(SimpleImputer(add_indicator=True)), clone(TREES))
    assert np.isfinite(imputed.fit(X, y).predict(X)).all()


def test_categories_beside_roles_by_keyword_and_propensities_that_are_estimated(log):
    X, y = log
    ranker = clone(TREES).set_params(propensity=PowerLawPropensity(eta=1.0))
    scores = clone(ranker).fit(as_category(X), y).predict(X)
    without = X.drop(columns="position")
    again = clone(ranker).fit(as_category(without), y, position=X["position"])
    np.testing.assert_array_equal(again.predict(X), scores)


def test_documents_with_missing_values_are_simulated():
    documents = make_ltr(n_queries=20, n_features=4, random_state=0)
    documents["feature_000"] = documents["feature_000"].where(documents["feature_001"] > 0.1)
    log, clicks, _ = simulate_clicks(documents, n_sessions=50, random_state=0)
    assert log["feature_000"].isna().any()
    assert LambdaMARTRanker(n_estimators=2).fit(log, clicks).predict(log).shape == (len(log),)
