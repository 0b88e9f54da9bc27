"""Recipes of the page ecosystem, with the tools themselves; and the notebooks of the gallery."""

import re
import runpy
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    AdaBoostRegressor,
    BaggingRegressor,
    StackingRegressor,
    VotingRegressor,
)
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_selection import (
    RFE,
    RFECV,
    SelectFromModel,
    SelectKBest,
    SequentialFeatureSelector,
    VarianceThreshold,
    f_regression,
)
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.linear_model import Ridge
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    cross_val_score,
    learning_curve,
)
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    PolynomialFeatures,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
)

from skultr.metrics import RankingScorer, to_ir_measures
from skultr.model_selection import QueryKFold
from skultr.preprocessing import OnFeatures
from skultr.rankers import LambdaMARTRanker, NaiveRanker, RankAggRanker

from ._worlds import shuffled_log

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*/plot_*.py"))
PROTOCOL = {"cv": QueryKFold(3), "scoring": RankingScorer()}


@pytest.fixture(scope="module")
def world():
    return shuffled_log(60, 2_000, n_documents=10, n_features=5)


@pytest.fixture(scope="module")
def documents(world):
    return world[0]


@pytest.fixture(scope="module")
def log(world):
    return world[1:]


@pytest.fixture(scope="module")
def ranker(log):
    return LambdaMARTRanker(n_estimators=20, random_state=0).fit(*log)


def features_of(documents, ranker):
    return documents[list(ranker.feature_names_in_)].astype(float)


# --------------------------------------------------------------------------------------
# Searches
# --------------------------------------------------------------------------------------
def test_optuna(log, ranker):
    optuna = pytest.importorskip("optuna", reason="needs optuna")
    X, clicks = log

    def objective(trial):
        rate = trial.suggest_float("learning_rate", 0.01, 0.3, log=True)
        candidate = clone(ranker).set_params(learning_rate=rate)
        return cross_val_score(candidate, X, clicks, **PROTOCOL).mean()

    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0)
    )
    study.optimize(objective, n_trials=3)
    values = [trial.value for trial in study.trials]
    assert study.best_value == max(values) > 0.5
    assert len({*values}) > 1


@pytest.mark.parametrize(
    ("candidate", "resource", "most"),
    [
        (LambdaMARTRanker(random_state=0), "n_estimators", 30),
        (NaiveRanker(early_stopping=False, random_state=0), "max_epochs", 3),
    ],
)
def test_successive_halving_by_rounds_and_epochs(log, candidate, resource, most):
    search = HalvingGridSearchCV(
        candidate,
        {"learning_rate": [0.003, 0.01, 0.03]},
        resource=resource,
        min_resources=most // 3,
        max_resources=most,
        **PROTOCOL,
    ).fit(*log)
    assert search.n_resources_ == [most // 3, most]
    assert search.best_params_[resource] == most


def test_learning_curve(log, ranker):
    sizes, _, scores = learning_curve(ranker, *log, train_sizes=[0.3, 1.0], **PROTOCOL)
    assert sizes[0] < sizes[1]
    assert scores.shape == (2, 3)
    assert np.isfinite(scores).all()


# --------------------------------------------------------------------------------------
# What a model has learned
# --------------------------------------------------------------------------------------
def test_permutation_importance(documents, ranker):
    importance = permutation_importance(
        ranker, documents, documents["relevance"], scoring=RankingScorer(), random_state=0
    )
    by_column = dict(zip(documents.columns, importance.importances_mean, strict=True))
    assert by_column["feature_000"] > max(0, by_column["feature_004"])
    assert by_column["doc"] == 0


class ScoreOf(RegressorMixin, BaseEstimator):
    def __init__(self, ranker):
        self.ranker = ranker

    def fit(self, X, y):
        self.fitted_ = self.ranker
        return self

    def predict(self, X):
        return self.fitted_.predict(X)


def test_partial_dependence(documents, ranker):
    X = features_of(documents, ranker)
    score = ScoreOf(ranker).fit(X, None)
    curve = partial_dependence(score, X, ["feature_000"], grid_resolution=4)
    at = curve["grid_values"][0]
    by_hand = [ranker.predict(X.assign(feature_000=value)).mean() for value in at]
    np.testing.assert_allclose(curve["average"][0], by_hand)
    with pytest.raises(ValueError, match="regressor"):
        partial_dependence(ranker, X, ["feature_000"])


def test_shap_of_trees(documents, ranker):
    shap = pytest.importorskip("shap", reason="needs shap")
    X = features_of(documents, ranker)
    explainer = shap.TreeExplainer(ranker.booster_)
    values = explainer.shap_values(X)
    assert values.shape == X.shape
    np.testing.assert_allclose(
        explainer.expected_value + values.sum(axis=1), ranker.predict(X), atol=1e-6
    )


# --------------------------------------------------------------------------------------
# Several rankers as one
# --------------------------------------------------------------------------------------
@pytest.mark.parametrize("several", [VotingRegressor, StackingRegressor])
def test_averages_of_scores_are_refused(log, ranker, several):
    with pytest.raises(ValueError, match="LambdaMARTRanker should be a regressor"):
        several([("one", ranker), ("other", ranker)]).fit(*log)


def test_sums_of_ranks_are_what_to_use(log, documents, ranker):
    members = [("slow", ranker), ("fast", clone(ranker).set_params(n_estimators=5))]
    assert RankAggRanker(members).fit(*log).predict(documents).shape == (600,)


# --------------------------------------------------------------------------------------
# Roles on the way through scikit-learn's tools: kept, or an error that prints what keeps them
# --------------------------------------------------------------------------------------
FEATURES = [f"feature_{number:03d}" for number in range(4)]
RANKER = LambdaMARTRanker(n_estimators=10, debiasing="user-aware", random_state=0)
SCALER = StandardScaler()


def as_frame(transformer):
    return clone(transformer).set_output(transform="pandas")


LOSES_ROLES = {
    "scaler": make_pipeline(SCALER, RANKER),
    "scaler, frame": make_pipeline(as_frame(SCALER), RANKER),
    "min-max, frame": make_pipeline(as_frame(MinMaxScaler()), RANKER),
    "robust": make_pipeline(RobustScaler(), RANKER),
    "quantiles": make_pipeline(QuantileTransformer(n_quantiles=20), RANKER),
    "PCA": make_pipeline(PCA(2), RANKER),
    "k best": make_pipeline(SelectKBest(f_regression, k=3), RANKER),
    "k best, frame": make_pipeline(as_frame(SelectKBest(f_regression, k=3)), RANKER),
    "variance": make_pipeline(VarianceThreshold(), RANKER),
    "imputer": make_pipeline(SimpleImputer(), RANKER),
    "products": make_pipeline(PolynomialFeatures(), RANKER),
    "products, frame": make_pipeline(as_frame(PolynomialFeatures(include_bias=False)), RANKER),
    "splines, frame": make_pipeline(as_frame(SplineTransformer(3)), RANKER),
    "function": make_pipeline(FunctionTransformer(np.cbrt), SCALER, RANKER),
    "columns": make_pipeline(
        ColumnTransformer([("s", SCALER, FEATURES)], remainder="passthrough"), RANKER
    ),
    "columns, frame": make_pipeline(
        as_frame(ColumnTransformer([("s", SCALER, FEATURES)], remainder="passthrough")), RANKER
    ),
    "columns, dropped": make_pipeline(ColumnTransformer([("s", SCALER, FEATURES)]), RANKER),
    "columns, roles named": make_pipeline(
        ColumnTransformer([("s", SCALER, FEATURES), ("r", "passthrough", ["qid", "position"])]),
        RANKER,
    ),
    "union": make_pipeline(FeatureUnion([("a", SCALER), ("b", PCA(2))]), RANKER),
    "union, frame": make_pipeline(as_frame(FeatureUnion([("a", SCALER)])), RANKER),
    "named steps": Pipeline([("fill", SimpleImputer()), ("scale", SCALER), ("ltr", RANKER)]),
    "RFE": RFE(RANKER, n_features_to_select=3),
    "RFECV": RFECV(RANKER, cv=2, step=3, min_features_to_select=3),
    "from model": make_pipeline(SelectFromModel(RANKER), RANKER),
    "from regressor": make_pipeline(SelectFromModel(Ridge()), RANKER),
    "sequential": make_pipeline(
        SequentialFeatureSelector(RANKER, n_features_to_select=1, cv=2), RANKER
    ),
    "bagging": BaggingRegressor(RANKER, n_estimators=2),
    "boosting": AdaBoostRegressor(RANKER, n_estimators=2),
    "frozen scaler": make_pipeline(FrozenEstimator(SCALER), RANKER),
    "regressor": Ridge(),
    "scaler, regressor": make_pipeline(SCALER, Ridge()),
    "search": GridSearchCV(
        make_pipeline(SCALER, RANKER), {"standardscaler__with_mean": [True]}, **PROTOCOL
    ),
}
KEEPS_ROLES = {
    "target": TransformedTargetRegressor(RANKER),
    "grid": GridSearchCV(RANKER, {"num_leaves": [31]}, **PROTOCOL),
    "random": RandomizedSearchCV(RANKER, {"num_leaves": [31]}, n_iter=1, **PROTOCOL),
    "imputer, frame": make_pipeline(as_frame(SimpleImputer()), RANKER),
    "variance, frame": make_pipeline(as_frame(VarianceThreshold()), RANKER),
    "columns, plain names": make_pipeline(
        as_frame(
            ColumnTransformer(
                [("s", SimpleImputer(), FEATURES)],
                remainder="passthrough",
                verbose_feature_names_out=False,
            )
        ),
        RANKER,
    ),
    "function of the frame": make_pipeline(FunctionTransformer(), RANKER),
}


@pytest.fixture(scope="module")
def labelled():
    """A log with the human label as a column, and the rows by which models are scored."""
    _, log, clicks = shuffled_log(40, 300, n_documents=8, n_features=4, temperature=3.0)
    is_train = log["qid"] < 20
    return log[is_train], clicks[is_train], log[~is_train]


def honest(labelled):
    train, clicks, test = labelled
    return RankingScorer()(clone(RANKER).fit(train, clicks), test)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of a log this small
@pytest.mark.parametrize("name", LOSES_ROLES)
def test_a_tool_that_loses_roles_is_an_error_whose_line_of_code_works(labelled, name):
    train, clicks, test = labelled
    model = LOSES_ROLES[name]
    if name == "frozen scaler":
        model = make_pipeline(FrozenEstimator(clone(SCALER).fit(train)), RANKER)
    with pytest.raises(ValueError, match="Roles are lost in") as error:
        RankingScorer()(clone(model).fit(train, clicks), test)
    (line,) = set(re.findall(r"^ {4}(?=\S)((?:make_p|P|R|N)\w+\(.*\))$", str(error.value), re.M))
    assert line.isprintable()
    instead = eval(line, {**globals(), "OnFeatures": OnFeatures})
    assert np.isfinite(RankingScorer()(instead.fit(train, clicks), test))


@pytest.mark.filterwarnings("ignore::UserWarning")  # of a log this small
@pytest.mark.parametrize("name", KEEPS_ROLES)
def test_a_tool_that_keeps_roles_scores_what_the_ranker_scores(labelled, name):
    train, clicks, test = labelled
    found = RankingScorer()(clone(KEEPS_ROLES[name]).fit(train, clicks), test)
    assert found == pytest.approx(honest(labelled), abs=0.01)


def test_a_scorer_refuses_a_ranker_that_was_fitted_without_queries(labelled):
    """What a transformer did by hand is seen when the pipeline is scored."""
    train, clicks, test = labelled
    scaler = clone(SCALER).fit(train)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranker = clone(RANKER).fit(scaler.transform(train), clicks)
    for model in (make_pipeline(scaler, ranker), FrozenEstimator(make_pipeline(scaler, ranker))):
        with pytest.raises(ValueError, match=r"OnFeatures\(StandardScaler\(\)\)"):
            RankingScorer()(model, test)
    with pytest.raises(ValueError, match="fitted without queries"):
        RankingScorer()(ranker, test)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of a log this small
def test_a_column_that_is_a_role_by_keyword_is_no_feature(labelled):
    train, clicks, _ = labelled
    roles = {name: train[name].to_numpy() for name in ("qid", "session", "position")}
    with pytest.raises(ValueError, match="equals the role 'position'"):
        clone(RANKER).fit(train[[*FEATURES, "position"]].to_numpy(), clicks, **roles)
    named = make_pipeline(ColumnTransformer([("s", SCALER, FEATURES)]), RANKER)
    named.fit(train, clicks, **{f"lambdamartranker__{name}": roles[name] for name in roles})


def test_a_regressor_on_named_features_is_a_baseline(labelled):
    train, clicks, test = labelled
    model = make_pipeline(ColumnTransformer([("s", SCALER, FEATURES)]), Ridge())
    assert RankingScorer()(model.fit(train, clicks), test) > 0.5


# --------------------------------------------------------------------------------------
# PyTerrier: its frame always, its pipeline where it is installed
# --------------------------------------------------------------------------------------
def as_documents(results, features):
    X = pd.DataFrame(np.stack(results["features"]), columns=features, index=results.index)
    return X.assign(qid=results["qid"], doc=results["docno"])


@pytest.fixture(scope="module")
def results(documents, ranker):
    """Results with features, in another order of rows and with another index than documents."""
    features = features_of(documents, ranker)
    results = pd.DataFrame(
        {
            "qid": documents["qid"].astype(str),
            "query": "words",
            "docno": documents["doc"].astype(str),
            "score": documents["feature_000"],
            "features": list(features.to_numpy()),
        }
    )
    return results.sample(frac=1, random_state=0)


def test_results_of_pyterrier_are_documents(documents, ranker, results):
    X = as_documents(results, list(ranker.feature_names_in_))
    expected = ranker.predict(documents)[results.index]
    np.testing.assert_array_equal(ranker.predict(X), expected)
    np.testing.assert_array_equal(ranker.rank(X), rank_within(expected, results["qid"]))


def rank_within(score, qid):
    ranked = pd.Series(score).groupby(qid.to_numpy()).rank(ascending=False, method="first")
    return ranked.to_numpy()


def test_a_step_of_a_pipeline_of_pyterrier(documents, ranker, results):
    pt = pytest.importorskip("pyterrier", reason="needs pyterrier")

    def rerank(results):
        X = as_documents(results, list(ranker.feature_names_in_))
        return pt.model.add_ranks(results.assign(score=ranker.predict(X)))

    qrels, _ = to_ir_measures(documents, ranker)
    qrels = qrels.rename(columns={"query_id": "qid", "doc_id": "docno", "relevance": "label"})
    first = pt.Transformer.from_df(pt.model.add_ranks(results))
    again = pt.apply.generic(rerank)
    topics = results[["qid", "query"]].drop_duplicates()
    found = pt.Experiment([first, first >> again], topics, qrels, ["ndcg_cut_10"])
    assert found["ndcg_cut_10"].is_monotonic_increasing
    X = as_documents(again(results), list(ranker.feature_names_in_))
    names = {"docno": "doc", "label": "relevance"}
    X = X.merge(qrels.rename(columns=names), on=["qid", "doc"], how="left")
    assert RankingScorer()(ranker, X) == pytest.approx(RankingScorer()(ranker, documents))


# --------------------------------------------------------------------------------------
# MLflow: the code of the page, as it stands
# --------------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore")  # of what MLflow uses
def test_mlflow_keeps_a_ranker(documents, ranker, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="needs mlflow")
    page = (ROOT / "docs/user_guide/ecosystem.rst").read_text()
    (code,) = re.findall(r"^ {4}import mlflow\n(?:(?: {4}.*)?\n)+", page, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/runs.db")
    names = {"ranker": ranker, "documents": documents, "RankingScorer": RankingScorer}
    exec(textwrap.dedent(code), names)
    np.testing.assert_array_equal(names["loaded"].predict(documents), ranker.predict(documents))
    logged = mlflow.get_run(names["run"].info.run_id).data
    assert logged.params["n_estimators"] == "20"
    assert logged.metrics["ndcg"] == pytest.approx(RankingScorer()(ranker, documents))


# --------------------------------------------------------------------------------------
# Notebooks of the gallery
# --------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def gallery():
    """What the documentation tells sphinx-gallery."""
    pytest.importorskip("sphinx_gallery", reason="needs sphinx-gallery")
    from sphinx_gallery.gen_gallery import DEFAULT_GALLERY_CONF

    conf = runpy.run_path(str(ROOT / "docs" / "conf.py"))["sphinx_gallery_conf"]
    return {**DEFAULT_GALLERY_CONF, **conf}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_notebooks_open_and_tell_how_to_install(gallery, example):
    from sphinx_gallery.notebook import jupyter_notebook
    from sphinx_gallery.py_source_parser import split_code_and_text_blocks

    _, blocks = split_code_and_text_blocks(str(example))
    notebook = jupyter_notebook(blocks, gallery, str(example.parent))
    assert notebook["nbformat"] == 4
    for cell in notebook["cells"]:
        assert {"cell_type", "metadata", "source"} <= {*cell}
        if cell["cell_type"] == "code":
            assert {"outputs", "execution_count"} <= {*cell}
            compile("".join(cell["source"]), example.name, "exec")
    assert "pip install" in "".join(notebook["cells"][0]["source"])
