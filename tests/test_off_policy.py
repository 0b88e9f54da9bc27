import pickle

import numpy as np
import polars as pl
import pytest
import sklearn
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skultr import CMIPScorer, IdentifiabilityRepair
from skultr.exceptions import ClickDataWarning
from skultr.metrics import PerplexityScorer, RankingScorer
from skultr.model_selection import OffPolicySelection, QueryKFold
from skultr.rankers import DLARanker

from ._worlds import shuffled_log


def results(folds=None, **scores):
    """Results of a search by mean scores; ``folds`` adds the scores of each fold by name."""
    table = {}
    for name, values in (folds or {}).items():
        table |= {f"split{i}_test_{name}": np.array(of) for i, of in enumerate(values)}
        scores[name] = np.mean(values, axis=0)
    table |= {f"mean_test_{name}": np.array(values) for name, values in scores.items()}
    n = len(next(iter(table.values())))
    return {"params": [{"alpha": i} for i in range(n)], **table}


def test_the_papers_rule():
    """Best by nDCG among those in the best by CMIP and by perplexity, not the best of all."""
    found = results(
        cmip=[-0.5, -0.1, -0.2, -0.05, -0.3],
        perplexity=[-1.1, -1.2, -1.3, -1.6, -1.5],
        ndcg=[0.9, 0.6, 0.7, 0.8, 0.5],
    )
    select = OffPolicySelection({"cmip": 3, "perplexity": 3}, by="ndcg")
    assert select(found) == 2
    table = select.explain(found)
    assert list(table["kept_by_cmip"]) == [False, True, True, True, False]
    assert list(table["kept_by_perplexity"]) == [True, True, True, False, False]
    assert list(table["kept"]) == [False, True, True, False, False]
    assert list(np.flatnonzero(table["chosen"])) == [2]
    assert list(table["ndcg"]) == list(found["mean_test_ndcg"])
    assert table.loc[2, "params"] == {"alpha": 2}
    assert table.index.name == "candidate"


def test_other_strategies():
    found = results(cmip=[-0.3, -0.1, -0.2], perplexity=[-1.1, -1.3, -1.2], ndcg=[0.6, 0.7, 0.8])
    assert OffPolicySelection({}, by="cmip")(found) == 1
    assert OffPolicySelection({"ndcg": 2}, by="perplexity")(found) == 2
    assert OffPolicySelection({"cmip": 4}, by="perplexity")(found) == 0  # fewer than are kept


def test_one_standard_error_is_of_paired_differences():
    """The best leads 1 by .04 ± .02, 2 by .02 ± .02, 3 by far; by itself it spreads more."""
    folds = [[0.9, 0.88, 0.9, 0.1], [0.7, 0.64, 0.66, 0.1]]
    found = results({"ndcg": folds}, cmip=[-0.5, -0.1, -0.2, 0.0])
    select = OffPolicySelection({"ndcg": "1se"})
    assert select(found) == 2
    assert list(select.explain(found)["kept_by_ndcg"]) == [True, False, True, False]


def test_the_default_takes_the_best_perplexity_of_those_within_one_standard_error_by_ndcg():
    """Not of all: the best perplexity and the least CMIP are those of one that ranks badly."""
    ndcg = [[0.9, 0.88, 0.92, 0.1], [0.7, 0.72, 0.64, 0.1]]
    perplexity = [[-1.3, -1.2, -1.22, -1.0], [-1.3, -1.2, -1.19, -1.0]]
    found = results({"ndcg": ndcg, "perplexity": perplexity}, cmip=[-0.2, -0.5, -0.4, 0.0])
    select = OffPolicySelection()
    assert repr(select) == "OffPolicySelection({'ndcg': '1se', 'perplexity': '1se'}, by='cmip')"
    assert select(found) == 2
    table = select.explain(found)
    assert list(table["kept_by_ndcg"]) == [True, True, True, False]
    assert list(table["kept"]) == [False, True, True, False]


def test_one_standard_error_of_candidates_that_failed():
    """NaN in one fold is NaN in the mean, and takes no other candidate along."""
    folds = [[0.9, 0.9, 0.8, 0.2], [np.nan, 0.7, 0.7, 0.1], [0.9, 0.8, 0.9, 0.1]]
    found = results({"ndcg": folds}, cmip=[0.0, -0.4, -0.2, 0.0])
    with pytest.warns(ClickDataWarning, match="'ndcg' is NaN for 1 of 4"):
        assert OffPolicySelection({"ndcg": "1se"})(found) == 2
    # What the first scorer keeps has no second score.
    scores = {"ndcg": [[0.9, 0.1]] * 2, "perplexity": [[np.nan, -1.2]] * 2}
    with (
        pytest.warns(ClickDataWarning, match="'perplexity' is NaN for 1 of 2"),
        pytest.warns(ClickDataWarning, match="None of the 2 candidates is kept by all"),
    ):
        assert OffPolicySelection()(results(scores, cmip=[0.0, -0.1])) == 0


def test_ties_by_rounding_are_ties():
    ndcg = np.array([0.7, 0.6, 0.65])
    found = results({"ndcg": np.column_stack([ndcg, ndcg - 1e-16])}, cmip=[-0.4, -0.1])
    assert OffPolicySelection({"ndcg": "1se"})(found) == 1


@pytest.mark.parametrize("folds", [{}, {"ndcg": [[0.5, 0.9, 0.8]]}])
def test_one_fold_has_no_standard_error(folds):
    found = results(folds, ndcg=[0.5, 0.9, 0.8], cmip=[0.0, -0.5, -0.1])
    with pytest.warns(ClickDataWarning, match=f"has {len(folds)} folds of the score 'ndcg'"):
        assert OffPolicySelection({"ndcg": "1se"})(found) == 1


def test_fallback_is_the_best_of_all():
    found = results(cmip=[0, -1, -2], perplexity=[-3, -2, -1], ndcg=[0.1, 0.9, 0.2])
    select = OffPolicySelection({"cmip": 1, "perplexity": 1}, by="ndcg")
    with pytest.warns(ClickDataWarning, match="None of the 3 candidates is kept by all"):
        assert select(found) == 1
    table = select.explain(found)
    assert not table["kept"].any()
    assert list(table["chosen"]) == [False, True, False]


def test_fallback_where_the_kept_have_no_score():
    found = results(cmip=[-2.0, -1.0, -3.0], perplexity=[-1.2, np.nan, -1.1])
    select = OffPolicySelection({"cmip": 1}, by="perplexity")
    with (
        pytest.warns(ClickDataWarning, match="'perplexity' is NaN for 1 of 3"),
        pytest.warns(ClickDataWarning, match="kept by all of .* and has a score 'perplexity'"),
    ):
        assert select(found) == 2


def test_nan_is_never_kept():
    nan = np.nan
    found = results(cmip=[nan, -1.0, -2.0], ndcg=[0.9, 0.5, 0.6])
    for number in (2, 3):
        with pytest.warns(ClickDataWarning, match="'cmip' is NaN for 1 of 3 .* candidate 0:"):
            assert OffPolicySelection({"cmip": number}, by="ndcg")(found) == 2
    found = results(cmip=[-1, 0, -0.5], ndcg=[0.5, nan, 0.4])
    with pytest.warns(ClickDataWarning, match="'ndcg' is NaN for 1 of 3"):
        assert OffPolicySelection({"cmip": 2}, by="ndcg")(found) == 2


@pytest.mark.parametrize("failed", ["cmip", "ndcg"])
def test_a_scorer_that_failed_throughout_decides_nothing(failed):
    """A rule must not be dropped in silence because folds have no annotation."""
    found = results(**{"cmip": [0, 1], "ndcg": [0, 1], failed: [np.nan, np.nan]})
    for call in (
        OffPolicySelection({"cmip": 1}, by="ndcg"),
        OffPolicySelection({"cmip": 1}, by="ndcg").explain,
    ):
        with pytest.raises(ValueError, match=f"'{failed}' is NaN for all 2 .*without annotation"):
            call(found)


def test_ties_at_the_cut_are_all_kept():
    found = results(cmip=[-1.0, 0.0, -0.5, -0.5, -0.5], ndcg=[0.9, 0.1, 0.2, 0.3, 0.8])
    select = OffPolicySelection({"cmip": 2}, by="ndcg")
    assert select(found) == 4
    assert list(select.explain(found)["kept"]) == [False, True, True, True, True]
    # What is equal for all says nothing about any.
    found = results(cmip=[0.0] * 4, ndcg=[0.1, 0.3, 0.3, 0.9])
    assert OffPolicySelection({"cmip": 1}, by="ndcg")(found) == 3


def test_of_equals_the_first_wins():
    found = results(cmip=[0.0, -1.0, -2.0], ndcg=[0.1, 0.3, 0.3])
    assert OffPolicySelection({"cmip": 3}, by="ndcg")(found) == 1


def test_index_is_an_int_that_searches_take():
    index = OffPolicySelection({"cmip": 1}, by="ndcg")(results(cmip=[0, 1], ndcg=[1, 0]))
    assert index == 1
    assert type(index) is int


def test_errors():
    with pytest.raises(ValueError, match=r"no scorer 'perplexity'; it has \['cmip', 'ndcg'\]"):
        OffPolicySelection()(results(cmip=[0], ndcg=[0]))
    with pytest.raises(ValueError, match="no scorer 'ndcg'"):
        OffPolicySelection({"cmip": 1}, by="ndcg")(results(cmip=[0]))
    for keep in ([4], {3: 4}):
        with pytest.raises(ValueError, match="keep must be a dict"):
            OffPolicySelection(keep)
    for number in (0, 1.5, True, "2se"):
        with pytest.raises(ValueError, match=r"keep\['cmip'\] must be a whole number"):
            OffPolicySelection({"cmip": number}, by="ndcg")
    with pytest.raises(ValueError, match="by must be the name"):
        OffPolicySelection(by=None)


def test_pickle_clone_repr():
    select = OffPolicySelection({"cmip": 2}, by="perplexity")
    assert repr(select) == "OffPolicySelection({'cmip': 2}, by='perplexity')"
    search = sklearn.clone(GridSearchCV(DLARanker(), {}, refit=select))
    for copy in (pickle.loads(pickle.dumps(select)), search.refit):
        assert repr(copy) == repr(select)


@pytest.mark.parametrize(
    "convert", [lambda frame: frame, pl.from_pandas], ids=["pandas", "polars"]
)
def test_a_whole_search(convert, callbacks, capsys):
    _, log, clicks = shuffled_log(60, 900, temperature=3.0, n_documents=8, n_features=6)
    log["device"] = np.where(log["session"] % 2, "phone", "desktop")
    log["relevance"] = log["relevance"].clip(upper=2).where(log["qid"] % 4 > 0)
    ranker = make_pipeline(
        IdentifiabilityRepair(bias=["position", "device"]),
        DLARanker(examination="network", max_epochs=2, random_state=0),
    )
    search = GridSearchCV(
        ranker,
        {"dlaranker__learning_rate": [0.0001, 0.01, 0.05]},
        cv=QueryKFold(2),
        scoring={
            "cmip": CMIPScorer(estimator="knn"),
            "ndcg": RankingScorer(),
            "perplexity": PerplexityScorer(),
        },
        refit=OffPolicySelection({"cmip": 2, "perplexity": 2}, by="ndcg"),
        error_score="raise",
    )
    search.set_callbacks(callbacks.ProgressBar())
    X = convert(log)
    search.fit(X, clicks)
    table = search.refit.explain(search.cv_results_)
    assert search.best_index_ == int(np.flatnonzero(table["chosen"])[0])
    assert search.best_params_ == table["params"][search.best_index_]
    chosen = search.best_estimator_.named_steps["dlaranker"].learning_rate
    assert chosen == search.best_params_["dlaranker__learning_rate"]
    assert search.predict(X).shape == (len(log),)
    assert len(set(table["perplexity"])) == 3
    assert (table["perplexity"] < -1).all()


@pytest.mark.filterwarnings("ignore:The scores of DLARanker explain the clicks no better")
def test_a_search_over_networks_that_learned_nothing():
    """They have the least CMIP; the default takes one that ranks well."""
    _, log, clicks = shuffled_log(150, 3000, n_documents=10, n_features=12)
    known = log["relevance"]
    log["relevance"] = known.clip(upper=2).where(log["qid"] % 2 == 0)
    search = GridSearchCV(
        DLARanker(examination="network", optimizer="adam", max_epochs=5, random_state=0),
        {"weight_decay": [0.0, 0.1, 1.0, 10.0, 1000.0]},
        cv=QueryKFold(2),
        scoring={
            "cmip": CMIPScorer(estimator="knn"),
            "ndcg": RankingScorer(k=5),
            "perplexity": PerplexityScorer(),
            "ndcg of all": lambda ranker, X, y: RankingScorer(k=5)(
                ranker, X.assign(relevance=known[X.index])
            ),
        },
        refit=OffPolicySelection(),
    ).fit(log, clicks)
    true = search.cv_results_["mean_test_ndcg of all"]
    assert true[OffPolicySelection({}, by="cmip")(search.cv_results_)] < true.max() - 0.05
    assert true[search.best_index_] > true.max() - 0.015
