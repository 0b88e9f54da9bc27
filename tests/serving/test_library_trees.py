"""Trees that LightGBM and XGBoost trained by themselves: engines score as the library does."""

import json

import lightgbm as lgb
import numpy as np
import pytest
import xgboost

from skultr.datasets import make_ltr
from skultr.serving import export_model

from . import _engines

N_FEATURES = 5
SMALL = {"n_estimators": 12, "learning_rate": 0.2, "n_jobs": 1}
LIGHTGBM = {**SMALL, "num_leaves": 8, "min_child_samples": 5, "verbosity": -1}
XGBOOST = {**SMALL, "max_depth": 3, "ndcg_exp_gain": False}
#: Formats that hold the way of missing values.
FORMATS = ["xgboost+json", "xgboost+json+raw", "elastic", "lightgbm"]


@pytest.fixture(scope="module")
def documents():
    """Documents with holes, zeros and equal values, in float32 numbers."""
    documents = make_ltr(n_queries=60, n_documents=10, n_features=N_FEATURES, random_state=0)
    names = [name for name in documents if name.startswith("feature")]
    documents[names] = documents[names].round(1).astype(np.float32)
    documents.loc[::7, names[0]] = np.nan
    documents.loc[::3, names[1]] = 0
    return documents.rename(columns=dict(zip(names, "abcde", strict=True)))


def lightgbm_ranker(X, grade, qid):
    sizes = qid.value_counts(sort=False)
    return lgb.LGBMRanker(**LIGHTGBM).fit(X, grade.astype(int), group=sizes)


def xgboost_ranker(X, grade, qid):
    return xgboost.XGBRanker(**XGBOOST).fit(X, grade / 4, qid=qid)


def stopped_early(X, grade, qid):
    held_out = {"eval_set": [(X, -grade + 4)], "eval_qid": [qid]}  # each round makes it worse
    ranker = xgboost.XGBRanker(**XGBOOST, early_stopping_rounds=4)
    ranker.fit(X, grade, qid=qid, **held_out, verbose=False)
    assert ranker.best_iteration < ranker.get_booster().num_boosted_rounds() - 1
    return ranker


def xgboost_regressor(X, grade, qid):
    return xgboost.XGBRegressor(**SMALL, max_depth=3).fit(X, grade + 10)


MODELS = {
    "LGBMRanker": lightgbm_ranker,
    "lightgbm.Booster": lambda *given: lightgbm_ranker(*given).booster_,
    "XGBRanker": xgboost_ranker,
    "xgboost.Booster": lambda *given: xgboost_ranker(*given).get_booster(),
    "XGBRegressor": xgboost_regressor,
    "stopped early": stopped_early,
}


def own_scores(model, X):
    if isinstance(model, xgboost.Booster):
        X = xgboost.DMatrix(X)
    return model.predict(X)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", MODELS)
def test_engines_score_as_the_library_does(name, format, documents):
    X = documents[[*"abcde"]]
    model = MODELS[name](X, documents["relevance"], documents["qid"])
    names = {each: f"attribute({each})" for each in X}
    text = export_model(model, format, names)
    _, score = _engines.scores(format, text, X.to_numpy(float), [*names.values()])
    np.testing.assert_allclose(score, own_scores(model, X), atol=1e-5)
    assert len(np.unique(score.round(4))) > 2  # more than one split decides


def test_features_of_true_and_false(documents):
    X = documents[["b", "c"]].assign(in_stock=documents["relevance"] > 2, n=range(len(documents)))
    model = xgboost.XGBRegressor(**SMALL, max_depth=3).fit(X, 2 * X["in_stock"] + X["b"])
    assert model.get_booster().feature_types == ["float", "float", "i", "int"]
    text = export_model(model, "elastic")
    _, score = _engines.scores("elastic", text, X.to_numpy(float), [*X])
    np.testing.assert_allclose(score, model.predict(X), atol=1e-5)
    # The model itself stays as it is.
    assert model.get_booster().feature_types == ["float", "float", "i", "int"]


def test_lightgbm_compares_in_double_where_the_engine_does(documents):
    # Steps of a number that float32 cannot tell apart.
    X = documents[["a"]].assign(b=1e9 + np.arange(len(documents)))
    grade = (np.arange(len(X)) % 20 < 10).astype(int)
    model = lgb.LGBMRegressor(**{**LIGHTGBM, "num_leaves": 60, "n_estimators": 3}).fit(X, grade)
    text = export_model(model, "elastic")
    _, score = _engines.scores("elastic", text, X.to_numpy(float), [*X])
    np.testing.assert_allclose(score, model.predict(X), atol=1e-12)


def test_columns_without_names_need_names(documents):
    X = documents[[*"abcde"]].to_numpy()
    for model in (
        lightgbm_ranker(X, documents["relevance"], documents["qid"]),
        xgboost_ranker(X, documents["relevance"], documents["qid"]),
    ):
        with pytest.raises(ValueError, match="Pass feature_names"):
            export_model(model, "elastic")
        text = export_model(model, "xgboost+json", ["a", "b", "c", "d", "e"])
        _, score = _engines.scores("xgboost+json", text, X, [*"abcde"])
        np.testing.assert_allclose(score, model.predict(X), atol=1e-5)


def test_xgboost_loads_its_own_trees(documents):
    X = documents[[*"abcde"]]
    model = xgboost_ranker(X, documents["relevance"], documents["qid"])
    body = json.loads(export_model(model, "xgboost+json+raw"))
    loaded = xgboost.Booster()
    loaded.load_model(bytearray(body["model"]["model"]["definition"], "utf-8"))
    scores = loaded.predict(xgboost.DMatrix(X), output_margin=True)
    np.testing.assert_allclose(scores, model.predict(X), atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "count:poisson"}, r"objective='count:poisson'.*rank:ndcg"),
        ({"booster": "gblinear"}, r"booster='gblinear'.*gbtree"),
        ({"booster": "gblinear", "early_stopping_rounds": 1}, r"booster='gblinear'.*gbtree"),
        ({"booster": "dart"}, r"booster='dart'.*gbtree"),
    ],
)
def test_what_is_no_sum_of_trees_is_refused(settings, message, documents):
    X = documents[["b", "c"]]
    model = xgboost.XGBRegressor(n_estimators=2, n_jobs=1, **settings)
    model.fit(X, documents["relevance"], eval_set=[(X, documents["relevance"])], verbose=False)
    with pytest.raises(ValueError, match=message):
        export_model(model, "elastic")


def test_several_scores_and_categories_are_refused(documents):
    X = documents[["b", "c"]]
    two = np.stack([documents["relevance"]] * 2, axis=1)
    with pytest.raises(ValueError, match="2 scores per document"):
        export_model(xgboost.XGBRegressor(n_estimators=2, n_jobs=1).fit(X, two), "elastic")
    brand = documents["relevance"].astype(str).astype("category")
    model = xgboost.XGBRegressor(n_estimators=2, n_jobs=1, enable_categorical=True)
    model.fit(X.assign(brand=brand), documents["relevance"])
    with pytest.raises(ValueError, match="split 'brand' by categories"):
        export_model(model, "elastic")


def test_solr_reads_zeros_and_xgboost_does_not_say_whether_it_knows_missing_values(documents):
    model = xgboost_ranker(documents[["b", "c"]], documents["relevance"], documents["qid"])
    with pytest.raises(ValueError, match="Solr reads 0 for a missing feature"):
        export_model(model, "solr")
