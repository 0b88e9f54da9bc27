import pickle
import re
from typing import get_args, get_type_hints

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.model_selection import GridSearchCV, cross_validate

from skultr.evaluation import compare_rankers
from skultr.metrics import (
    ClickLikelihoodScorer,
    CMIPScorer,
    IPSScorer,
    PerplexityScorer,
    RankingScorer,
    err_score,
    ndcg_score,
)
from skultr.metrics._ranking import RANKING_METRICS
from skultr.model_selection import QueryKFold

from .._worlds import Linear


@pytest.mark.parametrize("taker", [RankingScorer, compare_rankers])
def test_all_metrics_are_named_where_one_is_chosen(taker):
    line = re.search(r"metric : {(.*?)}", taker.__doc__).group(1)
    named = set(re.findall(r'"(\w+)"', line))
    assert named == {*RANKING_METRICS}, f"the docstring of {taker.__name__} names other metrics"


def test_all_metrics_are_declared():
    declared = get_args(get_type_hints(RankingScorer.__init__)["metric"])
    assert {*declared} == {*RANKING_METRICS}


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    n = 60
    return pd.DataFrame(
        {
            "qid": [f"q{i % 6}" for i in range(n)],
            "doc": np.arange(n),
            "position": np.arange(n) // 6 + 1,
            "bm25": rng.permutation(n) / n,
            "pagerank": rng.standard_normal(n),
            "relevance": rng.integers(0, 3, n).astype(float),
        }
    )


def expected_ndcg(frame, **options):
    frame = frame[frame["relevance"].notna()]
    return ndcg_score(frame["relevance"], frame["bm25"], qid=frame["qid"], k=10, **options)


def test_value(frame):
    assert_allclose(RankingScorer()(Linear(), frame), expected_ndcg(frame))
    linear = RankingScorer("ndcg", gain="linear")
    assert_allclose(linear(Linear(), frame), expected_ndcg(frame, gain="linear"))
    err = err_score(frame["relevance"], frame["bm25"], qid=frame["qid"], k=3, max_grade=4)
    assert_allclose(RankingScorer("err", k=3, max_grade=4)(Linear(), frame), err)


@pytest.mark.parametrize("with_doc", [True, False])
def test_a_document_counts_once(frame, with_doc):
    repeated = pd.concat([frame, frame.iloc[:25], frame.iloc[3:9]], ignore_index=True)
    repeated["session"] = np.arange(len(repeated))
    if not with_doc:
        repeated = repeated.drop(columns="doc")
    assert_allclose(RankingScorer()(Linear(), repeated), expected_ndcg(frame))


def test_one_doc_id_in_two_queries_is_two_documents(frame):
    renamed = frame.assign(doc=frame["position"])
    assert_allclose(RankingScorer()(Linear(), renamed), expected_ndcg(frame))


def test_rows_without_annotation_do_not_count(frame):
    frame.loc[::3, "relevance"] = np.nan
    assert_allclose(RankingScorer()(Linear(), frame), expected_ndcg(frame))


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_other_frames(frame, library):
    module = pytest.importorskip(library)
    table = {"polars": "from_pandas", "pyarrow": "Table"}[library]
    make = getattr(module, table)
    other = make.from_pandas(frame) if library == "pyarrow" else make(frame)
    assert_allclose(RankingScorer()(Linear(), other), expected_ndcg(frame))


@pytest.mark.parametrize("as_matrix", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("with_doc", [True, False])
def test_arrays_with_keywords(frame, as_matrix, with_doc):
    X = as_matrix(frame[["bm25", "pagerank"]].to_numpy())
    roles = ["qid", "relevance", "doc"] if with_doc else ["qid", "relevance"]
    value = RankingScorer()(Linear(), X, **{role: frame[role] for role in roles})
    assert_allclose(value, expected_ndcg(frame))


def test_grid_search_over_a_frame(frame):
    search = GridSearchCV(Linear(), {"factor": [1, -1]}, cv=QueryKFold(3), scoring=RankingScorer())
    search.fit(frame, np.zeros(len(frame)))
    folds = [expected_ndcg(frame.iloc[test]) for _, test in QueryKFold(3).split(frame)]
    index = search.cv_results_["params"].index({"factor": 1})
    assert_allclose(search.cv_results_["mean_test_score"][index], np.mean(folds))


def test_metadata_is_routed_without_a_request(frame):
    X = frame[["bm25", "pagerank"]].to_numpy()
    by_frame = GridSearchCV(
        Linear(), {"factor": [1, -1]}, cv=QueryKFold(3), scoring=RankingScorer()
    ).fit(frame, np.zeros(len(frame)))
    roles = {role: frame[role].to_numpy() for role in ("qid", "relevance", "doc")}
    with sklearn.config_context(enable_metadata_routing=True):
        for scoring, refit in (
            (RankingScorer(), True),
            ({"a": RankingScorer("rr"), "b": RankingScorer()}, "b"),
        ):
            search = GridSearchCV(
                Linear(), {"factor": [1, -1]}, cv=QueryKFold(3), scoring=scoring, refit=refit
            ).fit(X, np.zeros(len(X)), **roles)
            assert_allclose(search.best_score_, by_frame.best_score_)


def test_several_scorers_in_two_processes(frame):
    scoring = {"ndcg": RankingScorer(), "err": RankingScorer("err", max_grade=2), "r2": "r2"}
    found = cross_validate(
        Linear(), frame, np.arange(60.0), cv=QueryKFold(3), scoring=scoring, n_jobs=2
    )
    folds = [expected_ndcg(frame.iloc[test]) for _, test in QueryKFold(3).split(frame)]
    assert_allclose(found["test_ndcg"], folds)


@pytest.mark.parametrize(
    ("scorer", "text"),
    [
        (RankingScorer(k=3, gain="linear"), "RankingScorer('ndcg', k=3, gain='linear')"),
        (
            CMIPScorer(logging="mean", estimator="knn", n_repeats=2, random_state=1),
            "CMIPScorer(logging='mean', arm=None, estimator='knn', n_repeats=2, random_state=1)",
        ),
        (PerplexityScorer(), "PerplexityScorer(conditional=True)"),
        (
            IPSScorer("arp", propensity="column"),
            "IPSScorer('arp', k=10, propensity='column', clip=None, normalize=False)",
        ),
        (
            ClickLikelihoodScorer(propensity="column"),
            "ClickLikelihoodScorer(propensity='column', scale='fit')",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_repr_and_copies_of_all_scorers(scorer, text):
    search = sklearn.clone(GridSearchCV(Linear(), {}, scoring=scorer))
    for copy in (scorer, pickle.loads(pickle.dumps(scorer)), search.scoring):
        assert repr(copy) == text
        assert vars(copy) == vars(scorer)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("auc",), {}, "no metric 'auc'; expected one of"),
        ((), {"gian": "linear"}, "no option 'gian'; expected some of"),
        (("rr",), {"gain": "linear"}, "no option 'gain'"),
        ((), {"per_query": True}, "no option 'per_query'"),
        ((), {"k": [5, 10]}, "one number"),
    ],
)
def test_errors_when_made(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        RankingScorer(*arguments, **options)


def test_errors_when_called(frame):
    scorer = RankingScorer()
    for role in ("relevance", "qid"):
        with pytest.raises(ValueError, match=f"no column '{role}' and no {role}= was passed"):
            scorer(Linear(), frame.drop(columns=role))
    with pytest.raises(ValueError, match="None of the 60 rows is annotated"):
        scorer(Linear(), frame.assign(relevance=np.nan))
    twice = pd.concat([frame, frame.iloc[[4]].assign(relevance=9)], ignore_index=True)
    with pytest.raises(ValueError, match="Rows 4 and 60 show one document"):
        scorer(Linear(), twice)
