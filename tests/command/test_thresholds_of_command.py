"""Each number that decides something, on both sides."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from skultr import describe_log
from skultr.command._thresholds import MOST_ROWS
from skultr.command._verdict import _compare, _level


def _log(**columns):
    """60 pages of two documents of one query; other columns have a value per page."""
    n_pages = 60
    page = np.repeat(np.arange(n_pages), 2)
    log = pd.DataFrame({"qid": 0, "session": page, "doc": np.tile([0, 1, 1, 0], n_pages // 2)})
    log["position"] = np.tile([1, 2], n_pages)
    log["click"] = np.arange(2 * n_pages) % 3 == 0
    return log.assign(**{name: np.asarray(values)[page] for name, values in columns.items()})


@pytest.mark.parametrize(("n_more", "is_sampled"), [(0, False), (1, True)])
def test_longer_logs_are_sampled(monkeypatch, n_more, is_sampled):
    log = _log()
    most = MOST_ROWS._replace(value=len(log) - n_more)
    monkeypatch.setattr("skultr.command._report.MOST_ROWS", most)
    remarks = describe_log(log.assign(qid=log["session"] // 10)).remarks
    assert any("whole queries drawn" in each for each in remarks) == is_sampled


@pytest.mark.parametrize(("deepest", "is_position"), [(10_000, True), (10_001, False)])
def test_deep_numbers_are_no_positions(deepest, is_position):
    log = _log().rename(columns={"position": "rank"})
    log.loc[5, "rank"] = deepest
    assert ("rank" in describe_log(log).rename) == is_position


@pytest.mark.parametrize(("highest", "is_grade"), [(100, True), (101, False)])
def test_high_numbers_are_no_grades(highest, is_grade):
    log = _log().assign(grade=np.linspace(0, highest, 120))
    assert (describe_log(log).rename.get("grade") == "relevance") == is_grade


@pytest.mark.parametrize(("n_values", "is_factor"), [(20, True), (21, False)])
def test_columns_of_the_page_with_few_values_may_be_bias_factors(n_values, is_factor):
    remarks = describe_log(_log(shelf=np.arange(60) % n_values)).remarks
    assert any("bias=['position', 'shelf']" in each for each in remarks) == is_factor


@pytest.mark.parametrize(("n_values", "is_encoded"), [(1_000, True), (1_001, False)])
def test_text_with_few_values_is_encoded(n_values, is_encoded):
    log = pd.concat(
        [_log().assign(session=lambda log, n=n: log["session"] + 60 * n) for n in range(10)],
        ignore_index=True,
    )
    log["price"] = log["doc"] * 1.5
    log["title"] = [f"title {number % n_values}" for number in range(len(log))]
    assert ("OneHotEncoder" in describe_log(log).code) == is_encoded


class _ByPosition:
    def fit(self, X, click):
        return self

    def predict(self, X):
        return -X["position"].to_numpy(float)


@pytest.mark.parametrize(("n_queries", "is_compared"), [(19, False), (20, True)])
def test_few_queries_compare_no_model(n_queries, is_compared):
    log = pd.concat([_log().assign(qid=query) for query in range(n_queries)], ignore_index=True)
    log["session"] = np.arange(len(log)) // 2
    text, better = _compare(_ByPosition(), log, np.array([1.0, 0.5]))
    assert ("too few queries" not in text) == is_compared
    assert (better is not None) == is_compared


@pytest.mark.parametrize(("n_clicks", "level"), [(62, "chance"), (63, "yes")])
def test_differences_by_chance_support_no_judgments(n_clicks, level):
    """Of 100 clicks on two equally good documents, one has 63 or more in 1 % of logs."""
    judged = pd.DataFrame(
        {"qid": 1, "clicks": [n_clicks, 100 - n_clicks], "relevance": [0.6, 0.4]}
    )
    judged["examinations"] = 99.0
    graph = SimpleNamespace(is_connected=True)
    assert _level("All connected", graph, pd.Series({0: 1, 3: 1}), judged) == level


def _numbered(n_pages=300, lost=0.0):
    """Pages of five of a query's eight documents under names that tell nothing."""
    rng = np.random.default_rng(0)
    query = np.repeat(rng.integers(6, size=n_pages), 5)
    doc = np.concatenate([rng.permutation(8)[:5] for _ in range(n_pages)]) + 8 * query
    place = np.tile(np.arange(1, 6), n_pages)
    click = (rng.random(len(doc)) < 0.8 / place * (1 + doc % 3) / 3).astype(int)
    log = pd.DataFrame({"c1": query, "c2": np.repeat(np.arange(n_pages), 5), "c3": doc})
    log = log.assign(c4=place, c5=click)
    return log[rng.random(len(log)) >= lost].sample(frac=1, random_state=0)


@pytest.mark.parametrize(("n_rows", "is_found"), [(199, False), (200, True)])
def test_few_rows_show_no_roles(n_rows, is_found):
    log = _numbered().sort_values(["c2", "c4"])[:n_rows]
    assert bool(describe_log(log).rename) == is_found


@pytest.mark.parametrize(("lost", "is_found"), [(0.02, True), (0.3, False)])
def test_torn_pages_are_no_pages(lost, is_found):
    assert ("position" in describe_log(_numbered(lost=lost)).rename.values()) == is_found


@pytest.mark.parametrize("is_flat", [True, False])
def test_what_does_not_fall_is_no_click(is_flat):
    log = _numbered()
    if is_flat:
        log["c5"] = np.random.default_rng(1).permutation(log["c5"])
    assert ("c5" in describe_log(log).rename) != is_flat
    # A known name is enough: bots click as often further down.
    assert describe_log(log.rename(columns={"c5": "Klick"})).rename["Klick"] == "click"


@pytest.mark.parametrize("is_shared", [True, False])
def test_documents_of_all_queries_show_no_query(is_shared):
    log = _numbered().assign(c6=lambda log: log["c2"] % 4)
    if is_shared:
        log["c3"] %= 8
    assert ("c1" in describe_log(log).rename) != is_shared


@pytest.mark.parametrize("n_queries", [2, 3])
def test_a_category_of_queries_is_no_query(n_queries):
    """Their documents recur half as often or a third, or nearly as often as those of one."""
    log = _numbered(900).assign(c6=lambda log: log["c1"] // n_queries)
    found = describe_log(log).rename
    assert found["c1"] == "qid"
    assert "c6" not in found


@pytest.mark.parametrize(("n_wrong", "is_production"), [(4, True), (5, False)])
def test_a_score_orders_nearly_all_steps_of_the_pages(n_wrong, is_production):
    """Of 480 steps, one in a hundred is 4.8."""
    log = _log_of_five().assign(col_9=lambda log: -log["position"] - log["session"] % 5 / 10.0)
    pages = np.arange(n_wrong) * 7
    is_second = log["session"].isin(pages) & (log["position"] == 2)
    log.loc[is_second, "col_9"] += 1.5
    assert (describe_log(log).rename.get("col_9") == "production") == is_production


def _log_of_five(n_pages=120):
    """Pages of five documents in an order that varies."""
    rng = np.random.default_rng(0)
    log = pd.DataFrame({"qid": 0, "session": np.repeat(np.arange(n_pages), 5)})
    log["doc"] = np.concatenate([rng.permutation(5) for _ in range(n_pages)])
    log["position"] = np.tile(np.arange(1, 6), n_pages)
    log["click"] = (rng.random(len(log)) < 0.8 / log["position"]).astype(int)
    return log
