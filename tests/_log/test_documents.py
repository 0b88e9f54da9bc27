"""What a document is: the pair (qid, doc) at every door, or an id that is declared global."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

from skultr.click_models import (
    CascadeModel,
    DBNModel,
    DCMModel,
    DCTRModel,
    PBMModel,
    RDCTRModel,
    UBMModel,
)
from skultr.exceptions import AssumptionWarning, MissingRoleWarning
from skultr.metrics import (
    ClickLikelihoodScorer,
    CMIPScorer,
    IPSScorer,
    PerplexityScorer,
    RankingScorer,
)
from skultr.propensity import (
    DualLearningPropensity,
    InterventionHarvesting,
    RandomizedPropensity,
    RegressionEMPropensity,
    relevance_labels,
)
from skultr.rankers import (
    DistilledRanker,
    DLARanker,
    IPSRanker,
    RegressionEMRanker,
    TwoTowerRanker,
)

EXAMINATION = 0.8 ** np.arange(4)
N_QUERIES, N_DOCS, N_POSITIONS, N_SESSIONS = 12, 10, 4, 600

pytestmark = pytest.mark.filterwarnings("ignore:.* cascade model has at most one click per list")

TABLES = [
    DLARanker(relevance="embedding", random_state=0),
    RegressionEMRanker(relevance="embedding", random_state=0),
    TwoTowerRanker(relevance="embedding", random_state=0),
]
CLICK_MODELS = [
    *(PBMModel(), UBMModel(), CascadeModel(), DBNModel(), DBNModel(continuation=1)),
    *(DCMModel(), DCTRModel(), RDCTRModel()),
]
PROPENSITIES = [
    InterventionHarvesting(n_bootstrap=5, random_state=0),
    RandomizedPropensity(),
    RegressionEMPropensity(relevance="embedding", random_state=0),
    DualLearningPropensity(relevance="embedding", random_state=0),
]


def of_class(estimators):
    names = [str(estimator).replace("relevance='embedding', ", "") for estimator in estimators]
    return pytest.mark.parametrize("estimator", estimators, ids=names)


@pytest.fixture(scope="module")
def log():
    """Documents 0 to 9 under each query, which are not the same; clicks of a PBM.

    Queries are called so that the pairs sort as the ids that are joined by hand.
    """
    rng = np.random.default_rng(0)
    query = np.repeat(np.arange(N_SESSIONS) % N_QUERIES, N_POSITIONS)
    order = np.argsort(rng.random((N_SESSIONS, N_DOCS)), axis=1)[:, :N_POSITIONS]
    relevance = rng.uniform(0.05, 0.9, (N_QUERIES, N_DOCS))
    X = pd.DataFrame({"qid": [f"q{q:02d}" for q in query], "doc": order.ravel()})
    X["session"] = np.repeat(np.arange(N_SESSIONS), N_POSITIONS)
    X["position"] = np.tile(np.arange(1, N_POSITIONS + 1), N_SESSIONS)
    X["relevance"] = np.round(2 * relevance[query, X["doc"]])
    p = relevance[query, X["doc"]] * EXAMINATION[X["position"] - 1]
    return X, (rng.random(len(X)) < p).astype(float)


def joined(X):
    """The log with ids that tell documents apart by themselves."""
    return X.assign(doc=X["qid"] + "/" + X["doc"].astype(str))


def logs_of_equal_documents(X):
    return joined(X), joined(X).assign(doc_scope="global"), X.assign(doc_scope="query")


# Ids within queries -----------------------------------------------------------------------
@of_class(TABLES)
def test_ids_within_queries_are_ids_joined_by_hand(estimator, log):
    X, y = log
    local = clone(estimator).fit(X, y)
    assert local.relevance_.index.names == ["qid", "doc"]
    assert len(local.relevance_) == N_QUERIES * N_DOCS
    for other in logs_of_equal_documents(X):
        fitted = clone(estimator).fit(other, y)
        assert_array_equal(local.relevance_.to_numpy(), fitted.relevance_.to_numpy())
        assert_array_equal(local.examination_, fitted.examination_)
        assert_array_equal(local.predict(X), fitted.predict(other))
        assert_array_equal(local.predict_click(X), fitted.predict_click(other))
        assert_array_equal(local.rank(X), fitted.rank(other))


# A cascade allows one click per list, and these lists have more.
@pytest.mark.filterwarnings("ignore:The predictions hold")
@of_class(CLICK_MODELS)
def test_click_models_of_ids_within_queries(estimator, log):
    X, y = log
    local = clone(estimator).fit(X, y)
    one_number = isinstance(estimator, RDCTRModel)  # which knows ranks, and no documents
    assert one_number or len(local.documents_) == N_QUERIES * N_DOCS
    for other in logs_of_equal_documents(X):
        fitted = clone(estimator).fit(other, y)
        assert_array_equal(local.predict_click(X, y), fitted.predict_click(other, y))
        assert_array_equal(local.predict(X), fitted.predict(other))
        assert local.score(X, y) == fitted.score(other, y)
        assert_array_equal(local.sample(X, 0), fitted.sample(other, 0))


@of_class(PROPENSITIES)
def test_propensities_of_ids_within_queries(estimator, log):
    X, y = log
    local = clone(estimator).fit(X, y)
    for other in logs_of_equal_documents(X):
        fitted = clone(estimator).fit(other, y)
        assert_array_equal(local.examination_, fitted.examination_)
        assert_array_equal(local.predict(X), fitted.predict(other))


def test_labels_of_ids_within_queries(log):
    X, y = log
    local = relevance_labels(X, y, propensity=EXAMINATION)
    assert len(local) == N_QUERIES * N_DOCS
    other = relevance_labels(joined(X), y, propensity=EXAMINATION)
    assert (local["qid"] + "/" + local["doc"].astype(str) == other["doc"]).all()
    pd.testing.assert_frame_equal(local.drop(columns="doc"), other.drop(columns="doc"))


class ByTable:
    """Predicts the number of a document that is known by query and name."""

    def predict(self, X):
        return np.array([hash((q, str(d)[-1])) % 1000 for q, d in zip(X.qid, X.doc, strict=True)])


@pytest.mark.parametrize(
    "scorer",
    [
        RankingScorer(),
        CMIPScorer(n_repeats=1),
        IPSScorer(propensity=EXAMINATION),
        ClickLikelihoodScorer(propensity=EXAMINATION, scale=1e-3),
    ],
    ids=["ranking", "cmip", "ips", "likelihood"],
)
@pytest.mark.filterwarnings("ignore:CMIP by a classifier has only .* documents")
@pytest.mark.filterwarnings("ignore:Grades of fewer than 20")
@pytest.mark.filterwarnings("ignore:The scores of ByTable explain the clicks no better")
def test_scorers_of_ids_within_queries(scorer, log):
    X, y = log
    for other in logs_of_equal_documents(X):
        assert scorer(ByTable(), X, y) == scorer(ByTable(), other, y)


@pytest.mark.parametrize(
    "scorer",
    [
        RankingScorer(),
        IPSScorer(propensity=EXAMINATION),
        ClickLikelihoodScorer(propensity=EXAMINATION),
        PerplexityScorer(),
    ],
    ids=["ranking", "ips", "likelihood", "perplexity"],
)
@of_class([TABLES[0], CLICK_MODELS[0]])
def test_scorers_hand_the_ids_of_arrays_to_what_predicts(estimator, scorer, log):
    X, y = log
    array = np.zeros((len(X), 1))
    roles = {name: X[name].to_numpy() for name in ("qid", "doc", "session", "position")}
    expected = scorer(clone(estimator).fit(X, y), X, y)
    fitted = clone(estimator).fit(array, y, **roles)
    names = ("qid", "doc") if isinstance(scorer, RankingScorer) else roles
    given = {name: roles[name] for name in names}
    if isinstance(scorer, RankingScorer):
        given["relevance"] = X["relevance"].to_numpy()
    assert scorer(fitted, array, y, **given) == pytest.approx(expected, rel=1e-12)


def test_documents_of_a_log_without_queries_are_their_ids(log):
    X, y = log
    ranker = clone(TABLES[0])
    with pytest.warns(MissingRoleWarning, match="all rows are taken as one query"):
        ranker.fit(joined(X).drop(columns="qid"), y)
    assert ranker.relevance_.index.names == ["doc"]
    assert len(ranker.relevance_) == N_QUERIES * N_DOCS


# Global ids -------------------------------------------------------------------------------
def in_one_query(X):
    return X.assign(qid="q")


@of_class([*TABLES, *CLICK_MODELS])
def test_global_ids_are_joined_over_queries(estimator, log):
    X, y = log
    if isinstance(estimator, PBMModel | UBMModel):  # their default prior knows the query
        estimator = type(estimator)(prior="empirical")
    shared = X.assign(doc_scope="global")
    fitted = clone(estimator).fit(shared, y)
    alone = clone(estimator).fit(in_one_query(X), y)
    assert_allclose(fitted.predict(shared), alone.predict(in_one_query(X)), rtol=1e-6)
    names = getattr(fitted, "documents_", getattr(fitted, "relevance_", None)).index
    if not isinstance(estimator, RDCTRModel):
        assert names.tolist() == list(range(N_DOCS))
    # Documents of another query, and of none, are the documents that are known.
    assert_array_equal(fitted.predict(shared.assign(qid="new")), fitted.predict(shared))
    assert_array_equal(fitted.predict(shared.drop(columns="qid")), fitted.predict(shared))


@pytest.mark.parametrize("scope", ["query", "global"])
def test_a_teacher_knows_the_documents_that_the_log_has(scope, log):
    X, y = log
    X = X.assign(doc_scope=scope, bm25=X["doc"] / 10)
    teacher = clone(TABLES[1]).fit(X, y)
    distilled = DistilledRanker(TABLES[1], LinearRegression(), random_state=0).fit(X, y)
    taught = distilled.teacher_.relevance_
    assert len(taught) == {"query": N_QUERIES * N_DOCS, "global": N_DOCS}[scope]
    assert_allclose(taught.to_numpy(), teacher.relevance_.to_numpy(), rtol=1e-6)
    # Documents that look alike have their names.
    alike = X.assign(bm25=X["doc"] % 2 / 2)
    DistilledRanker(PBMModel(), LinearRegression()).fit(alike, y)


@of_class([*TABLES, *CLICK_MODELS, *PROPENSITIES])
def test_a_scope_is_a_column_or_a_keyword(estimator, log):
    X, y = log
    array = np.zeros((len(X), 1))
    roles = {name: X[name].to_numpy() for name in ("qid", "doc", "session", "position")}
    by_column = clone(estimator).fit(X.assign(doc_scope="global"), y)
    ids = {"qid": roles["qid"], "doc": roles["doc"]}
    place = {"position": roles["position"]}
    for scope in ("global", ["global"] * len(X)):
        by_keyword = clone(estimator).fit(array, y, **roles, doc_scope=scope)
        given = place if estimator in PROPENSITIES else ids
        assert_array_equal(by_column.predict(X), by_keyword.predict(array, **given))
    # A keyword wins over a column.
    again = clone(estimator).fit(X.assign(doc_scope="query"), y, doc_scope="global")
    assert_array_equal(by_column.predict(X), again.predict(X))


@of_class([PROPENSITIES[0], PROPENSITIES[2]])
def test_documents_of_propensities_are_global_where_said(estimator, log):
    """Each query has its documents at positions of its own: only global ids link these."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"qid": np.repeat([0, 1], 2000), "doc": np.tile([0, 1], 2000)})
    X["session"] = np.arange(4000) // 2
    X["position"] = np.where(X["qid"] == 0, X["doc"] + 1, 2 - X["doc"])
    rate = np.array([0.8, 0.4])[X["doc"]] * np.array([1.0, 0.5])[X["position"] - 1]
    y = (rng.random(4000) < rate).astype(float)
    with pytest.raises(ValueError, match=r"[Nn]o document was shown under two"):
        clone(estimator).fit(X, y)
    curve = clone(estimator).fit(X.assign(doc_scope="global"), y).examination_["examination"]
    assert_allclose(curve, [1, 0.5], atol=0.05)


# Predicting by ids ------------------------------------------------------------------------
@of_class(TABLES[:1])
def test_ids_that_recur_need_their_query(estimator, log):
    X, y = log
    ranker = clone(estimator).fit(X, y)
    sentence = "no column 'qid' .* recur under several queries .*such as 0.*the column 'qid', or"
    with pytest.raises(ValueError, match=sentence):
        ranker.predict(X.drop(columns="qid"))
    alone = X.drop(columns="qid")
    assert_array_equal(ranker.predict(alone, qid=X["qid"]), ranker.predict(X))
    # Ids that do not recur say it all.
    ranker = clone(estimator).fit(joined(X), y)
    assert_array_equal(ranker.predict(joined(X).drop(columns="qid")), ranker.predict(joined(X)))


def test_a_known_id_of_another_query_is_an_unknown_document(log):
    X, y = log
    with pytest.raises(ValueError, match=r"not shown in the training log \(first: doc \('new'"):
        clone(TABLES[0]).fit(X, y).predict(X.assign(qid="new"))
    with pytest.warns(AssumptionWarning, match=r"in 2400 of 2400 rows \(first: \('new', \d\)\)"):
        DCTRModel().fit(X, y).predict(X.assign(qid="new"))


def test_features_of_several_documents_are_told_apart_by_the_query(log):
    X, y = log
    X = X.assign(bm25=X["doc"] / 10)  # the same under each query
    model = DCTRModel().fit(X, y)
    candidates = X.drop(columns="doc")
    assert_array_equal(model.predict(candidates), model.predict(X))
    alone = candidates[["bm25"]]
    assert_array_equal(model.predict(alone, qid=X["qid"]), model.predict(X))
    several = "row 0 has the features of several documents"
    for unknown in (candidates.drop(columns="qid"), candidates.assign(qid="new")):
        with pytest.raises(ValueError, match=several):
            model.predict(unknown)
    twins = DCTRModel().fit(X.assign(bm25=0.0), y)
    with pytest.raises(ValueError, match=several):
        twins.predict(candidates.assign(bm25=0.0))


def test_documents_of_other_queries_may_have_other_features(log):
    X, y = log
    features = np.random.default_rng(0).normal(size=(N_QUERIES, N_DOCS))
    code = X["qid"].str[1:].astype(int)
    X = X.assign(bm25=features[code, X["doc"]])
    ranker = IPSRanker(propensity=EXAMINATION, max_epochs=2, random_state=0)
    local = clone(ranker).fit(X, y)
    assert_array_equal(local.predict(X), clone(ranker).fit(joined(X), y).predict(X))
    as_one = DCTRModel().fit(X.assign(doc_scope="global"), y)  # one document, several versions
    assert len(as_one.documents_) == N_DOCS
