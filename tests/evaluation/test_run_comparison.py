"""The runner of simulated comparisons: what it runs, keeps, refuses and concludes."""

import json
import pickle
import warnings
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import skultr
from skultr.datasets import make_ltr
from skultr.evaluation import ComparisonTable, _run_comparison, run_comparison
from skultr.evaluation._comparison_file import _described
from skultr.exceptions import ClickDataWarning
from skultr.metrics import ndcg_score
from skultr.model_selection import QueryKFold, train_test_queries
from skultr.rankers import IPSRanker, NaiveRanker
from skultr.simulation import (
    ContextualPositionBasedUser,
    MixturePolicy,
    PlackettLucePolicy,
    PositionBasedUser,
    TrustBiasUser,
    production_scores,
    simulate_clicks,
)

DOCUMENTS = make_ltr(30, n_documents=8, n_features=4, random_state=0)
USERS = {"steep": PositionBasedUser(2.0), "trust": TrustBiasUser()}


class Counting(BaseEstimator):
    """A ranker by one feature that keeps the logs of its fits, and may fail."""

    logs = []

    def __init__(self, sign=1.0, fails_at=(), random_state=None):
        self.sign = sign
        self.fails_at = fails_at
        self.random_state = random_state

    def fit(self, X, y):
        Counting.logs.append((self.random_state, X, y))
        if self.random_state in self.fails_at:
            raise RuntimeError("no memory left\non this machine")
        self.n_rows_ = len(X)
        return self

    def predict(self, X):
        return self.sign * X["feature_000"].to_numpy()


@pytest.fixture(autouse=True)
def fits():
    Counting.logs.clear()
    return Counting.logs


def weak(train, candidates, seed):
    return production_scores(train, fraction=0.01, candidates=candidates, random_state=seed)


def by_feature(feature, train, candidates, seed):
    return candidates[feature].to_numpy()


def by_closure(weight):
    return lambda train, candidates, seed: weight * candidates["feature_001"].to_numpy()


SETTINGS = {
    "users": USERS,
    "production": {"weak": weak, "feature": partial(by_feature, "feature_001")},
    "seeds": 2,
    "n_sessions": 300,
    "n_positions": 5,
    "k": 5,
}


def run(rankers=None, documents=DOCUMENTS, **settings):
    rankers = {"up": Counting(), "down": Counting(-1.0)} if rankers is None else rankers
    return run_comparison(documents, rankers, **(SETTINGS | settings))


def without_seconds(comparison):
    return comparison.cells_.drop(columns="fit_seconds")


# What is run --------------------------------------------------------------------------
def test_each_log_has_a_row_for_each_method_and_for_production(fits):
    cells = run().cells_
    names = [(s, u, p) for s in (0, 1) for u in USERS for p in ("weak", "feature")]
    methods = ("production", "up", "down")
    expected = [(*name, method) for name in names for method in methods]
    assert [*cells[["seed", "user", "production", "method"]].itertuples(index=False)] == expected
    assert len(fits) == 16
    assert cells["ndcg"].between(0, 1).all()


def test_methods_meet_on_one_log_which_is_that_of_simulate_clicks(fits):
    run(users={"steep": USERS["steep"]}, production={"weak": weak}, seeds=[7])
    (seed, X, y), (_, X_other, y_other) = fits
    pd.testing.assert_frame_equal(X, X_other)
    np.testing.assert_array_equal(y, y_other)
    train, _ = train_test_queries(DOCUMENTS, test_size=0.3, random_state=7)
    scores = weak(train, train, 7)
    log, clicks, _ = simulate_clicks(
        train.assign(production=scores),
        n_sessions=300,
        n_positions=5,
        scores=scores,
        user=USERS["steep"],
        random_state=7,
    )
    assert seed == 7
    pd.testing.assert_frame_equal(X, log)
    np.testing.assert_array_equal(y, clicks)


def test_a_seed_of_the_ranker_itself_stays(fits):
    run({"fixed": Counting(random_state=5)}, seeds=[1])
    assert {seed for seed, *_ in fits} == {5}


def test_quality_is_of_test_queries_among_all_and_among_what_production_shows():
    production = {"feature": partial(by_feature, "feature_001")}
    cells = run({"up": Counting()}, production=production, seeds=[3]).cells_
    _, test = train_test_queries(DOCUMENTS, test_size=0.3, random_state=3)
    place = test.groupby("qid")["feature_001"].rank(ascending=False, method="first")
    for documents, column in ((test, "ndcg"), (test[place <= 5], "ndcg_shown")):
        scores = {"production": documents["feature_001"], "up": documents["feature_000"]}
        for method, score in scores.items():
            expected = ndcg_score(documents["relevance"], score, qid=documents["qid"], k=5)
            found = cells.loc[cells["method"] == method, column]
            np.testing.assert_allclose(found, expected)
    assert (cells["ndcg"] != cells["ndcg_shown"]).all()


def test_polars_and_pandas_documents_are_the_same_comparison(tmp_path, fits):
    path = tmp_path / "cells.jsonl"
    first = run(path=path)
    n_fits = len(fits)
    second = run(documents=pl.from_pandas(DOCUMENTS), path=path)
    assert len(fits) == n_fits
    pd.testing.assert_frame_equal(first.cells_, second.cells_)
    third = run(documents=pl.from_pandas(DOCUMENTS))
    pd.testing.assert_frame_equal(without_seconds(first), without_seconds(third))


def test_a_given_split_and_a_function_of_the_seed_are_documents(fits):
    train, test = train_test_queries(DOCUMENTS, test_size=0.3, random_state=0)
    expected = without_seconds(run(seeds=[0]))
    given = run(documents=(train, test), seeds=[0])
    pd.testing.assert_frame_equal(without_seconds(given), expected)
    made = run(documents=lambda seed: DOCUMENTS.assign(qid=DOCUMENTS["qid"] + seed), seeds=[0])
    pd.testing.assert_frame_equal(without_seconds(made), expected)


@pytest.mark.parametrize("is_split", [False, True])
def test_an_array_of_production_has_a_score_for_each_row_of_the_documents(is_split):
    documents = DOCUMENTS.set_index(DOCUMENTS.index[::-1])
    split = train_test_queries(documents, test_size=0.3, random_state=0)
    rows = pd.concat(split) if is_split else documents
    array = {"given": rows["feature_001"].to_numpy()}
    function = {"given": partial(by_feature, "feature_001")}
    given = tuple(split) if is_split else documents
    found = [
        run({"up": Counting()}, documents=given, production=each, seeds=[0])
        for each in (array, function)
    ]
    pd.testing.assert_frame_equal(*map(without_seconds, found))


def test_without_production_the_column_of_the_documents_served_the_log(fits):
    documents = DOCUMENTS.assign(production=DOCUMENTS["feature_001"])
    function = {"default": partial(by_feature, "feature_001")}
    found = [run(documents=documents, production=each) for each in (None, function)]
    pd.testing.assert_frame_equal(*map(without_seconds, found))
    weakly = without_seconds(run(production=None))
    weakly["production"] = "weak"
    expected = without_seconds(run(production={"weak": weak}))
    pd.testing.assert_frame_equal(weakly, expected)


def test_several_rankers_may_share_the_traffic():
    def two(train, candidates, seed):
        return candidates[["feature_001", "feature_002"]].to_numpy()

    cells = run(production={"two": two}, policy=MixturePolicy()).cells_
    assert cells["ndcg"].notna().all()


def test_aggregated_logs_give_the_same_rankers():
    rankers = {"naive": NaiveRanker(estimator=Ridge()), "IPS": IPSRanker(estimator=Ridge())}
    settings = {"production": {"weak": weak}, "policy": PlackettLucePolicy(), "seeds": [0]}
    raw, merged = (run(rankers, aggregate=each, **settings).cells_ for each in (False, True))
    np.testing.assert_allclose(raw["ndcg"], merged["ndcg"], atol=1e-6)
    np.testing.assert_allclose(raw["ndcg_shown"], merged["ndcg_shown"], atol=1e-6)


def test_contexts_reach_only_rankers_whose_bias_names_them(fits):
    class ReadsContext(Counting):
        def __init__(self, bias=("position", "context"), random_state=None):
            super().__init__(random_state=random_state)
            self.bias = bias

    rankers = {
        "blind": Counting(),
        "reads": ReadsContext(),
        "in a pipeline": make_pipeline("passthrough", ReadsContext(bias="context")),
        "has an intercept": ReadsContext(bias=True),
    }
    cells = run(rankers, users={"contexts": ContextualPositionBasedUser()}, seeds=[0]).cells_
    assert ["context" in X for _, X, _ in fits[:4]] == [False, True, True, False]
    assert (cells["error"] == "").all()


def test_rankers_that_correct_alone_do_not_get_the_score_of_production():
    """Each of their fits would warn that they do not read it."""
    ips = IPSRanker(estimator=Ridge(), propensity=np.ones(10))
    methods = {"ips": ips, "in a pipeline": make_pipeline(ips)}
    # Four times the clicks per query below which each of their fits warns of few clicks.
    cells = run(methods, n_sessions=2_500, seeds=[0]).cells_
    assert (cells["error"] == "").all()
    told = cells.set_index("method")["warning_types"]
    assert "ClickDataWarning" not in " ".join(told[["ips", "in a pipeline"]])


def test_one_order_is_told_by_a_warning_and_another_policy_ends_it():
    """As the guide says, and that is the default."""
    settings = {"production": {"weak": weak}, "seeds": [0], "n_sessions": 2_500}
    methods = {"ips": IPSRanker(estimator=Ridge())}
    for policy, is_told in [({}, True), ({"policy": PlackettLucePolicy()}, False)]:
        cells = run(methods, **settings, **policy).cells_
        told = cells.loc[cells["method"] == "ips", "warning_types"]
        assert told.str.contains("NotIdentifiableWarning").eq(is_told).all()


def test_ids_may_be_text_and_a_search_may_be_a_method():
    text = DOCUMENTS.assign(
        qid="q" + DOCUMENTS["qid"].astype(str), doc=[f"d{i}" for i in range(240)]
    )
    search = GridSearchCV(
        NaiveRanker(estimator=Ridge()), {"estimator__alpha": [1.0, 10.0]}, cv=QueryKFold(2)
    )
    settings = {"production": {"weak": weak}, "seeds": 1}
    numbers, words = (
        run({"search": search}, documents=each, **settings) for each in (DOCUMENTS, text)
    )
    assert (words.cells_["error"] == "").all()
    assert len(numbers.cells_) == len(words.cells_) == 4


def test_workers_get_all_that_a_log_needs(monkeypatch, tmp_path):
    """What processes get, without processes, which take long to start."""
    settings = {"seeds": 1}
    expected = run(**settings)
    run_log = _run_comparison._run_log

    def in_a_worker(*args):
        return run_log(*pickle.loads(pickle.dumps(args)))

    monkeypatch.setattr(_run_comparison, "_run_log", in_a_worker)
    path = tmp_path / "cells.jsonl"
    found = run(**settings, path=path)
    pd.testing.assert_frame_equal(without_seconds(found), without_seconds(expected))
    assert path.read_text().count('"cell"') == len(found.cells_)


def test_progress_counts_logs(capfd):
    skultr.show_progress(True)
    try:
        run()
    finally:
        skultr.show_progress(False)
    drawn = capfd.readouterr().err
    # The logs are alike, and methods are not.
    assert "run_comparison: log:   0%|          | 0/8 [00:00<?, ?it/s]" in drawn
    assert "run_comparison: method:   0%|          | 0/3 [00:00]" in drawn


# Resuming -----------------------------------------------------------------------------
def test_a_second_call_fits_nothing(tmp_path, fits):
    path = tmp_path / "not" / "there" / "yet.jsonl"
    first = run(path=path)
    n_fits = len(fits)
    assert n_fits == 16
    second = run(path=str(path))
    assert len(fits) == n_fits
    pd.testing.assert_frame_equal(first.cells_, second.cells_)


def test_a_stopped_run_goes_on_where_it_was(tmp_path, fits, monkeypatch):
    path = tmp_path / "cells.jsonl"
    whole = run()
    fits.clear()
    predict = Counting.predict

    def stop(self, X):
        if len(fits) == 6:
            raise KeyboardInterrupt
        return predict(self, X)

    monkeypatch.setattr(Counting, "predict", stop)
    with pytest.raises(KeyboardInterrupt):
        run(path=path)
    monkeypatch.setattr(Counting, "predict", predict)
    fits.clear()
    resumed = run(path=path)
    assert len(fits) == 16 - 5
    pd.testing.assert_frame_equal(without_seconds(resumed), without_seconds(whole))


def test_a_line_that_was_cut_off_is_run_again(tmp_path, fits):
    path = tmp_path / "cells.jsonl"
    first = run(path=path)
    path.write_bytes(path.read_bytes()[:-10])
    fits.clear()
    second = run(path=path)
    assert len(fits) == 1
    pd.testing.assert_frame_equal(without_seconds(first), without_seconds(second))
    run(path=path)
    assert len(fits) == 1


def test_new_seeds_users_production_and_methods_join(tmp_path, fits):
    path = tmp_path / "cells.jsonl"
    one = {"users": {"steep": USERS["steep"]}, "production": {"weak": weak}, "seeds": 1}
    run({"up": Counting()}, path=path, **one)
    joined = ({"seeds": 2}, {"users": USERS}, {"production": SETTINGS["production"]})
    for more in joined:
        fits.clear()
        cells = run({"up": Counting()}, path=path, **(one | more)).cells_
        assert len(fits) == 1
        assert len(cells) == 4
    fits.clear()
    run(path=path, **one)
    assert [X["feature_000"].dtype for _, X, _ in fits] == [np.float32]
    # What joined is part of the settings of the file from then on.
    with pytest.raises(ValueError, match=r"rankers\['down'\].sign is -1.0 in the file, and 3.0"):
        run({"down": Counting(3.0)}, path=path, **one)


CHANGED = {
    "sessions": ({"n_sessions": 301}, "n_sessions is 300 in the file, and 301 in this call"),
    "depth": ({"n_positions": 4}, "n_positions"),
    "ranks": ({"k": 3}, "k is 5"),
    "test": ({"test_size": 0.4}, "test_size"),
    "noise": ({"noise": 0.2}, "noise is not there in the file, and 0.2"),
    "policy": ({"policy": PlackettLucePolicy(0.5)}, "policy.class"),
    "user": ({"users": {"steep": PositionBasedUser(1.0)}}, r"users\['steep'\].examination is 2.0"),
    "kind of user": ({"users": {"steep": TrustBiasUser()}}, r"users\['steep'\].class"),
    "ranker": ({"rankers": {"up": Counting(2.0)}}, r"rankers\['up'\].sign is 1.0"),
    "part of a ranker": (
        {"rankers": {"naive": NaiveRanker(estimator=Ridge(alpha=2.0))}},
        r"rankers\['naive'\].estimator.alpha is 1.0",
    ),
    "argument": (
        {"production": {"feature": partial(by_feature, "feature_002")}},
        r"production\['feature'\]",
    ),
    "closure": ({"production": {"closure": by_closure(2.0)}}, r"production\['closure'\]"),
    "code": (
        {"production": {"code": lambda train, candidates, seed: np.ones(len(candidates))}},
        r"production\['code'\]",
    ),
    "array": ({"production": {"array": np.arange(240.0)[::-1]}}, r"production\['array'\]"),
    "documents": ({"documents": DOCUMENTS.assign(feature_003=0.0)}, "documents is frame of shape"),
}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("comparison") / "cells.jsonl"
    production = {
        "closure": by_closure(1.0),
        "code": lambda train, candidates, seed: np.zeros(len(candidates)),
        "array": np.arange(240.0),
    }
    rankers = {"up": Counting(), "naive": NaiveRanker(estimator=Ridge())}
    users = {"steep": USERS["steep"]}
    run(rankers, path=path, seeds=1, users=users, production=SETTINGS["production"] | production)
    return path


@pytest.mark.parametrize("changed", CHANGED)
def test_another_design_in_the_same_file_is_refused(changed, file, fits):
    settings, message = CHANGED[changed]
    before = file.read_bytes()
    with pytest.raises(ValueError, match=message):
        run(path=file, **settings)
    assert not fits
    assert file.read_bytes() == before


def test_equal_closures_and_lambdas_are_the_same_design(file, fits):
    same = {
        "closure": by_closure(1.0),
        "code": lambda train, candidates, seed: np.zeros(len(candidates)),
    }
    run({"up": Counting()}, path=file, seeds=1, users={"steep": USERS["steep"]}, production=same)
    assert not fits


class OwnState(np.random.RandomState):
    """A generator of a user's: all its state is NumPy's, none of it an attribute."""


def test_what_decides_is_described_and_nothing_else():
    """Fitted parts, methods, sets and generators: equal where they act alike, in any process."""
    rows = np.arange(6.0)[:, None]

    def frozen(slope):
        return FrozenEstimator(Ridge().fit(rows, slope * rows[:, 0]))

    def drawn(seed):
        return np.random.RandomState(seed)

    for make in (frozen, drawn, OwnState, by_closure, PositionBasedUser, lambda x: {f"a{x}", "b"}):
        assert _described(make(1)) == _described(make(1))
        assert _described(make(1)) != _described(make(2))
    assert _described(np.float64(0.5)) == _described(0.5)
    assert _described(PlackettLucePolicy().rank) != _described(PlackettLucePolicy(0.3).rank)
    assert "0x" not in json.dumps(
        _described([frozen(1), drawn(1), OwnState(1), np.log, weak, Counting])
    )


def test_another_release_is_another_design(file, monkeypatch):
    monkeypatch.setattr("skultr.evaluation._comparison_file.version", lambda name: "99.0")
    with pytest.raises(ValueError, match="release of skultr"):
        run(path=file)


@pytest.mark.parametrize("text", ["seed,ndcg\n0,0.5\n", '{"a": 1}\n', "[1, 2]"])
def test_a_file_of_something_else_is_refused_and_stays(text, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match="did not write"):
        run(path=path)
    assert path.read_text() == text


# Failures -----------------------------------------------------------------------------
def test_a_failing_fit_is_a_row_and_the_others_go_on(tmp_path, fits):
    path = tmp_path / "cells.jsonl"
    rankers = {"fails": Counting(fails_at=[1]), "up": Counting()}
    comparison = run(rankers, path=path)
    cells = comparison.cells_
    failed = (cells["method"] == "fails") & (cells["seed"] == 1)
    assert cells["ndcg"].isna().tolist() == failed.tolist()
    assert (cells.loc[failed, "error"] == "RuntimeError: no memory left\non this machine").all()
    assert (cells.loc[~failed, "error"] == "").all()
    table = comparison.table("up").set_index("method")
    assert table.loc["fails", ["n_pairs", "n_failed"]].tolist() == [4, 4]
    assert table.loc["fails", "difference"] == 0
    # Tried again, the others are not.
    n_fits = len(fits)
    run(rankers, path=path)
    assert len(fits) == n_fits + 4


def test_scores_that_are_missing_are_a_failure():
    class Silent(Counting):
        def predict(self, X):
            return np.full(len(X), np.nan)

    cells = run({"silent": Silent()}, seeds=1).cells_.set_index("method").loc["silent"]
    assert cells["error"].str.contains("NaN").all()


def test_warnings_are_counted_and_not_shown():
    class Warns(Counting):
        def fit(self, X, y):
            for text in ("few clicks", "few clicks", "no order"):
                warnings.warn(text, ClickDataWarning, stacklevel=1)
            return self

        def predict(self, X):
            warnings.warn("few clicks", stacklevel=1)
            return super().predict(X)

    cells = run({"warns": Warns(), "up": Counting()}, seeds=1).cells_
    assert cells["warnings"].tolist() == [0, 3, 0] * 4
    assert set(cells["warning_types"]) == {"", "ClickDataWarning, UserWarning"}


BAD = {
    "no rankers": ({"rankers": {}}, ValueError, "rankers has the names"),
    "numbered": ({"rankers": {1: Counting()}}, ValueError, "rankers has the names"),
    "reserved": ({"rankers": {"production": Counting()}}, ValueError, "Choose another name"),
    "user": ({"users": {"a": 3}}, TypeError, "users"),
    "seeds": ({"seeds": [0, 0]}, ValueError, "seeds is"),
    "negative": ({"seeds": [-1]}, ValueError, "seeds is"),
    "unknown": ({"temperature": 1}, TypeError, "temperature"),
    "length": ({"production": {"a": np.ones(7)}}, ValueError, "240 rows of documents"),
    "infinite": ({"production": {"a": np.full(240, np.inf)}}, ValueError, "infinite"),
    "list": ({"documents": [1, 2]}, ValueError, "documents is list"),
    "no grades": (
        {"documents": DOCUMENTS.drop(columns="relevance")},
        ValueError,
        "no column 'relevance'",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_is_wrong_with_the_arguments_is_said(bad):
    settings, error, message = BAD[bad]
    with pytest.raises(error, match=message):
        run(**settings)


# The table ----------------------------------------------------------------------------
def table_of(**ndcg):
    """A comparison of methods with these values on logs of one user, half as much if shown."""
    rows = [
        {"seed": seed, "user": "u", "production": f"p{seed % 2}", "method": method, "ndcg": value}
        for method, values in ndcg.items()
        for seed, value in enumerate(values)
    ]
    cells = pd.DataFrame(rows)
    return ComparisonTable(
        cells.assign(
            ndcg_shown=cells["ndcg"] / 2,
            fit_seconds=1.0,
            warnings=np.arange(len(cells)) % 2,
            warning_types="",
            error=np.where(cells["ndcg"].isna(), "ValueError: no", ""),
        )
    )


def test_interval_is_students_of_paired_differences():
    comparison = table_of(production=[0.1, 0.5, 0.2, 0.6], new=[0.2, 0.55, 0.4, 0.65])
    table = comparison.table(confidence_level=0.9).set_index("method")
    # 0.1, 0.05, 0.2, 0.05: their mean is 0.1, their squares around it 0.0025 (twice), 0, 0.01.
    half = stats.t.ppf(0.95, 3) * np.sqrt(0.015 / 3 / 4)
    expected = [0.45, 0.1, 0.1 - half, 0.1 + half]
    found = table.loc["new", ["ndcg", "difference", "lower", "upper"]].astype(float)
    np.testing.assert_allclose(found, expected)
    shown = table.loc["new", ["difference_shown", "lower_shown", "upper_shown"]].astype(float)
    np.testing.assert_allclose(shown, np.array(expected[1:]) / 2)
    assert table.loc["new", "n_pairs"] == 4
    assert table.loc["new", "warned"] == 0.5


def test_the_unit_of_an_interval_is_the_seed_or_the_log():
    cells = pd.concat(
        [
            table_of(production=[0.1] * 3, new=values).cells_.assign(user=user)
            for user, values in {"a": [0.2, 0.3, 0.4], "b": [0.1, 0.4, 0.6]}.items()
        ]
    )
    comparison = ComparisonTable(cells)
    # By seed 0.05, 0.25, 0.4: their mean is 0.7 / 3.
    differences = {"seed": [0.05, 0.25, 0.4], "log": [0.1, 0.2, 0.3, 0.0, 0.3, 0.5]}
    for unit, values in differences.items():
        row = comparison.table(unit=unit).set_index("method").loc["new"]
        half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
        mean = 0.7 / 3
        found = row[["difference", "lower", "upper"]].astype(float)
        np.testing.assert_allclose(found, [mean, mean - half, mean + half])
        assert row[["n_pairs", "n_units"]].tolist() == [6, len(values)]


def test_fewer_than_three_pairs_or_the_same_difference_cannot_tell():
    nan = np.nan
    comparison = table_of(
        production=[0.1, 0.2, 0.3, 0.4],
        two=[0.2, nan, 0.1, nan],
        three=[0.2, nan, 0.1, 0.4],
        same=[0.1, 0.2, 0.3, 0.4],
        shifted=[0.2, 0.3, 0.4, 0.5],
        none=[nan] * 4,
    )
    table = comparison.table().set_index("method")
    assert table.index[table["lower"].notna()].tolist() == ["three"]
    assert table.index[table["upper"].notna()].tolist() == ["three"]
    assert table.loc["shifted", "difference"] == pytest.approx(0.1)
    assert table.loc["two", "n_pairs"] == 2
    assert table.loc["two", "difference"] == pytest.approx(-0.05)
    assert table.loc["none", "n_failed"] == 4


def test_parts_of_the_table_pair_within_themselves():
    comparison = table_of(production=[0.1] * 6, new=[0.2, 0.1, 0.3, 0.1, 0.4, 0.1])
    table = comparison.table(by="production")
    new = table[table["method"] == "new"]
    assert new["production"].tolist() == ["p0", "p1"]
    np.testing.assert_allclose(new["difference"], [0.2, 0.0], atol=1e-12)
    assert new["n_pairs"].tolist() == [3, 3]
    both = comparison.table(by=["user", "production"])
    assert both.columns[:3].tolist() == ["user", "production", "method"]
    np.testing.assert_allclose(both["lower"], table["lower"])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"baseline": "old"}, "baseline='old' is no method"),
        ({"by": "method"}, "is not among"),
        ({"by": ["user", "user"]}, "at most once"),
        ({"unit": "query"}, "unit='query' is unknown"),
        ({"confidence_level": 95}, "between 0 and 1"),
    ],
)
def test_the_table_refuses_what_is_not_there(asked, message):
    with pytest.raises(ValueError, match=message):
        table_of(production=[0.1, 0.2], new=[0.2, 0.3]).table(**asked)


def test_figure_has_two_marks_for_each_method_but_the_baseline():
    pytest.importorskip("matplotlib").use("Agg")
    comparison = table_of(
        production=[0.1, 0.2, 0.3], new=[0.3, 0.3, 0.5], old=[0.0, 0.3, 0.2], none=[np.nan] * 3
    )
    ax = comparison.plot()
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["none (failed)", "old", "new"]
    assert len(ax.containers) == 2 * 3
    assert "minus that of production, paired over 3 logs" in ax.get_xlabel()
    assert comparison.plot("new", ax=ax) is ax


def test_the_file_is_lines_of_json_with_what_made_them(file):
    lines = [json.loads(line) for line in file.read_text().splitlines() if line]
    assert list(lines[0]) == ["settings"]
    assert lines[0]["settings"]["users"]["steep"]["examination"] == "2.0"
    assert all(line["cell"]["error"] == "" for line in lines[1:])
