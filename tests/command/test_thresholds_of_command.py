"""Each number that decides something, on both sides."""

import numpy as np
import pandas as pd
import pytest

from skultr import describe_log
from skultr.command._thresholds import MOST_ROWS
from skultr.command._verdict import _compare


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
