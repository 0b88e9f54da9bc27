"""Each number of the folder that decides something, on both sides.

That an outcome has five rows at least is tested in ``test_faults.py``.
"""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from skultr._log import _lookalikes as evidence
from skultr._log._aggregate import _warn_unless_merged
from skultr._log._click_units import ClickFacts, are_counts
from skultr._log._faults import check_clicked, torn_lists
from skultr._log._reader import read
from skultr._log._thresholds import MANY
from skultr._log._units import units_in
from skultr.exceptions import ClickDataWarning

ON_BOTH_SIDES = pytest.mark.parametrize("is_beyond", [False, True])


def _rows(columns, click=None):
    """Rows that were read, without what reading says of them."""
    roles = ("qid", "session", "doc", "position", "bias", "impressions", "propensity")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read(pd.DataFrame(columns), click, reads=roles)


def _pairs_of_rows(n_lists):
    """The columns of lists of two rows."""
    return {
        "qid": np.repeat(np.arange(n_lists), 2),
        "session": np.repeat(np.arange(n_lists), 2),
        "position": np.tile([1, 2], n_lists),
    }


def _first_in(share, n_lists):
    """For the rows of lists of two: 0, 1 in this share of the lists, else 1, 0."""
    n_first = round(share * n_lists)
    return np.r_[np.tile([0, 1], n_first), np.tile([1, 0], n_lists - n_first)]


# Lists that are merged --------------------------------------------------------------
@pytest.mark.parametrize(
    ("n_rows", "n_merged", "expected"),
    [
        (100_000, 90_000, True),
        (99_999, 99_999, False),
        (100_000, 89_999, False),
    ],
)
def test_a_large_log_of_distinct_lists_is_not_worth_merging(n_rows, n_merged, expected):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _warn_unless_merged(n_rows, n_merged)
    assert [each.category for each in told] == [ClickDataWarning] * expected
    if expected:
        assert "merged 100,000 rows into 90,000: " in str(told[0].message)


# How much evidence there must be ----------------------------------------------------
@ON_BOTH_SIDES
def test_an_outcome_has_twenty_clicked_rows(is_beyond):
    rows = np.arange(1_000)
    clicked = rows < (20 if is_beyond else 19)
    assert evidence.outcomes_of(clicked, rows % 100, clicked[:, None] * 1.0) == [0] * is_beyond


@ON_BOTH_SIDES
def test_a_hundred_clicks_alone_may_be_chance(is_beyond):
    clicks = np.ones(101 if is_beyond else 100)
    if not is_beyond:
        check_clicked(clicks, clicks)
        return
    with pytest.raises(ValueError, match="Every shown row is clicked"):
        check_clicked(clicks, clicks)


@ON_BOTH_SIDES
def test_ties_are_said_of_ten_queries(is_beyond):
    query = np.repeat(np.arange(10 if is_beyond else 9), 2)
    found = evidence.queries_without_order(np.zeros(len(query)), query, "scores", 1.0)
    assert len([*found]) == is_beyond


@ON_BOTH_SIDES
def test_lists_have_one_length_if_more_than_nine_in_ten_have_it(is_beyond):
    list_ = np.r_[np.repeat(np.arange(10 if is_beyond else 9), 2), 10, 10, 10]
    _, list_ = np.unique(list_, return_inverse=True)
    place = np.r_[np.tile([0, 1], list_.max()), 0, 1, 2]
    assert torn_lists(list_, place)[-1] == is_beyond


@ON_BOTH_SIDES
def test_what_lacks_at_the_top_was_no_result_if_nine_in_ten_have_no_gap_below(is_beyond):
    pages = [[2, 3]] * (8 if is_beyond else 9) + [[0, 2]] * (2 if is_beyond else 1)
    list_ = np.repeat(np.arange(10), 2)
    n_torn = torn_lists(list_, np.concatenate(pages))[1]
    assert n_torn == (10 if is_beyond else 1)


@ON_BOTH_SIDES
def test_values_of_one_page_in_a_hundred_may_vary(is_beyond):
    columns = _pairs_of_rows(2_000)
    user = np.repeat(np.arange(2_000), 2)
    user[1 : 2 * (21 if is_beyond else 20) : 2] = 2_000
    rows = _rows(columns)
    rows._values["user"] = user
    rows.from_columns = {"user"}
    assert len([*evidence.users_within_pages(rows)]) == is_beyond


# Pages --------------------------------------------------------------------------------
@ON_BOTH_SIDES
def test_a_page_of_more_than_two_thousand_rows_lost_its_queries(is_beyond):
    position = 1 + np.arange(2_001 if is_beyond else 2_000)
    if not is_beyond:
        assert _rows({"position": position}).n_rows == 2_000
        return
    with pytest.raises(ValueError, match="one result page has 2001 rows"):
        _rows({"position": position})


@ON_BOTH_SIDES
def test_rows_were_split_if_more_than_half_of_the_lists_are_torn(is_beyond):
    n_torn = 51 if is_beyond else 50
    pages = [[1, 3]] * n_torn + [[1, 2, 3]] * (100 - n_torn)
    qid = np.repeat(np.arange(100), [len(page) for page in pages])
    X = pd.DataFrame({"qid": qid, "position": np.concatenate(pages)})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read(X, reads=("qid", "session", "position"))
    told = [str(warning.message) for warning in caught if "have gaps" in str(warning.message)]
    assert bool(told) == is_beyond
    # The guide of the shop says to leave slots out.
    assert all("keep them, unless they were paid slots" in each for each in told)


# What y counts ------------------------------------------------------------------------
@ON_BOTH_SIDES
def test_how_y_is_read_is_said_if_it_more_than_doubles_the_clicks(is_beyond):
    facts = ClickFacts(1, 3, 0, 0, 0, 0, unclear=10, in_unclear=21 if is_beyond else 20)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert not are_counts(facts, lambda: True)
    assert len(caught) == is_beyond


@ON_BOTH_SIDES
def test_five_impressions_that_were_all_clicked_are_suspicious(is_beyond):
    columns = _pairs_of_rows(200)
    columns["impressions"] = np.tile([1, 5 if is_beyond else 4], 200)
    rows = _rows(columns, np.tile([0.0, 1.0], 200))
    assert len([*evidence.impressions_too_many(rows)]) == is_beyond


@ON_BOTH_SIDES
def test_many_rows_that_were_clicked_in_all_impressions_are_suspicious(is_beyond):
    n_clicked = int(MANY.value) - (not is_beyond)
    columns = _pairs_of_rows(200)
    columns["impressions"] = np.tile([1, 9], 200)
    clicks = np.zeros(400)
    clicks[1 : 2 * n_clicked : 2] = 1.0
    rows = _rows(columns, clicks)
    assert len([*evidence.impressions_too_many(rows)]) == is_beyond


# Features that follow from the click ----------------------------------------------------
def _is_outcome(n_with, of_with, n_without, of_without):
    """Whether a column is an outcome that differs in so many rows with and without a click."""
    n_rows = of_with + of_without
    rows = np.arange(n_rows)
    clicked = rows < of_with
    value = (rows < n_with) | ((rows >= of_with) & (rows < of_with + n_without))
    return bool(evidence.outcomes_of(clicked, rows % 100, value[:, None] * 1.0))


def test_an_outcome_differs_in_two_percent_of_rows_without_a_click_at_most():
    assert _is_outcome(300, 300, 20, 1_000)
    assert not _is_outcome(300, 300, 21, 1_000)


def test_an_outcome_differs_ten_times_as_often_with_a_click():
    assert _is_outcome(100, 1_000, 10, 1_000)
    assert not _is_outcome(99, 1_000, 10, 1_000)


def test_four_fifths_of_the_rows_with_an_outcome_are_clicked():
    assert _is_outcome(40, 1_000, 10, 10_000)
    assert not _is_outcome(40, 1_000, 11, 10_000)


def test_an_outcome_is_a_chance_of_one_in_a_hundred_thousand():
    assert _is_outcome(5, 999, 0, 10_000 - 999)  # .0999 ** 5
    assert not _is_outcome(5, 1_001, 0, 10_000 - 1_001)


@ON_BOTH_SIDES
def test_what_half_of_the_rows_of_a_document_have_without_a_click_is_a_feature(is_beyond):
    rows = np.arange(2_120)
    clicked = rows < 80
    differs = rows < 80 + (20 if is_beyond else 19)
    doc = np.where(rows < 120, 0, 1)  # of which 40 rows are not clicked
    found = evidence.outcomes_of(clicked, doc, differs[:, None] * 1.0)
    assert found == [0] * (not is_beyond)


# Joins that failed ----------------------------------------------------------------------
@ON_BOTH_SIDES
def test_more_than_one_row_in_a_hundred_must_be_blank(is_beyond):
    columns = np.ones((3, 1_000))
    columns[:, : 11 if is_beyond else 10] = np.nan
    assert len([*evidence.blank_rows(columns)]) == is_beyond


@ON_BOTH_SIDES
def test_blanks_of_two_columns_come_together_from_half_as_much_again_as_the_odds(is_beyond):
    columns = np.ones((2, 1_000))
    n_together = 334 if is_beyond else 333  # 1.5 times the odds of 1 : 3 are 1 : 2
    columns[0, :500] = np.nan
    columns[1, 500 - n_together : 1_000 - n_together] = np.nan
    assert len([*evidence.blank_rows(columns)]) == is_beyond


@ON_BOTH_SIDES
def test_rows_of_zeros_are_blank_in_ten_columns(is_beyond):
    columns = np.ones((10 if is_beyond else 9, 1_000))
    columns[:, :100] = 0
    assert len([*evidence.blank_rows(columns)]) == is_beyond


# Columns named as roles -----------------------------------------------------------------
@ON_BOTH_SIDES
def test_grades_are_at_most_a_hundred(is_beyond):
    values = np.array([0.0, 101.0 if is_beyond else 100.0])
    assert evidence.is_no_grade(values, lambda: None) == is_beyond


@ON_BOTH_SIDES
def test_a_column_of_clicks_denies_one_click_in_twenty_at_most(is_beyond):
    y = np.ones(100)
    column = np.arange(100) >= (6 if is_beyond else 5)
    assert evidence.is_no_click(column * 1.0, lambda: SimpleNamespace(click=y)) == is_beyond


@ON_BOTH_SIDES
def test_a_score_that_ordered_pages_falls_in_more_than_55_percent_of_the_steps(is_beyond):
    columns = _pairs_of_rows(100)
    scores = -_first_in(0.56 if is_beyond else 0.55, 100)
    found = evidence.orders_lists(scores, columns["session"], columns["position"])
    assert found == is_beyond


@ON_BOTH_SIDES
def test_where_documents_explain_positions_a_score_must_order_most_steps(is_beyond):
    columns = _pairs_of_rows(5_000)
    # (2 share - 1)² of the variance of positions is explained: .048, or .051.
    columns["doc"] = _first_in(0.613 if is_beyond else 0.61, 5_000)
    columns["doc_scope"] = "global"
    scores = -_first_in(0.53, 5_000)
    assert evidence.is_no_score(scores, lambda: _rows(columns)) == is_beyond


@ON_BOTH_SIDES
def test_bias_factors_explain_three_tenths_of_the_positions(is_beyond):
    columns = _pairs_of_rows(1_000)
    columns["bias"] = _first_in(0.78 if is_beyond else 0.77, 1_000)
    assert len([*evidence.factors_unrelated(_rows(columns))]) == (not is_beyond)


@ON_BOTH_SIDES
def test_positions_explain_three_hundredths_of_propensities(is_beyond):
    columns = _pairs_of_rows(1_100)
    noise = np.repeat(np.tile(np.linspace(-0.3, 0.3, 11), 100), 2)
    explained = 0.033 if is_beyond else 0.029
    shift = noise.std() * np.sqrt(explained / (1 - explained))
    rest = np.roll(noise, 2) - noise  # of the second row: the same noise, of another list
    second = columns["position"] == 2
    columns["propensity"] = 0.5 + noise + rest * second + shift * np.where(second, -1, 1)
    assert len([*evidence.propensities_unrelated(_rows(columns))]) == (not is_beyond)


@ON_BOTH_SIDES
def test_the_best_position_is_examined_by_one_user_in_five(is_beyond):
    columns = _pairs_of_rows(100)
    columns["propensity"] = 0.2 if is_beyond else 0.199
    assert len([*evidence.propensities_of_actions(_rows(columns))]) == (not is_beyond)


@ON_BOTH_SIDES
def test_small_propensities_depend_on_the_position_from_a_correlation_of_a_tenth(is_beyond):
    columns = _pairs_of_rows(1_000)
    columns["propensity"] = 0.1 - 0.05 * _first_in(0.551 if is_beyond else 0.549, 1_000)
    assert len([*evidence.propensities_of_actions(_rows(columns))]) == (not is_beyond)


@ON_BOTH_SIDES
def test_one_value_of_y_per_position_is_no_chance_in_ten_rows_of_each(is_beyond):
    n_rows = 110 if is_beyond else 109
    rows = np.arange(n_rows)
    columns = {"qid": rows // 11, "position": rows % 11 + 1}
    found = evidence.y_follows_position(_rows(columns, 1 / columns["position"]))
    assert len([*found]) == is_beyond


@ON_BOTH_SIDES
def test_places_are_said_of_lists_of_three_rows(is_beyond):
    places = [2.0, 3.0, 1.0] if is_beyond else [2.0, 1.0]
    n_rows = len(places)
    columns = {
        "qid": np.repeat(np.arange(30), n_rows),
        "position": np.tile(np.arange(n_rows) + 1, 30),
    }
    assert len([*evidence.y_of_places(_rows(columns, np.tile(places, 30)))]) == is_beyond


# Features that name ---------------------------------------------------------------------
def _named(name, values):
    sample = evidence.FeatureSample({name: np.asarray(values, dtype=float)}, {}, in_order=False)
    return [found["what"] for found in evidence.features_that_name(sample)]


def test_what_is_named_as_a_time_is_one_from_a_thousand_on():
    ages = np.arange(999, 1_099)
    assert _named("created_at", ages + 1) == ["a time stamp"]
    assert _named("created_at", ages) == []


def test_ids_lie_beyond_32_bits():
    values = 2**31 + 10_000_000 * np.arange(-150, 151)
    assert _named("value", values + 1) == ["an id"]
    assert _named("value", values) == []


@ON_BOTH_SIDES
def test_nine_tenths_of_the_upper_half_of_ids_lie_below_two_and_a_half_medians(is_beyond):
    median = 10**10
    high = 25 * 10**9 - (0 if is_beyond else 10)
    values = np.r_[median - np.arange(100) - 1, median + np.arange(90), high + np.arange(11)]
    assert _named("value", values) == ([] if is_beyond else ["an id"])


@ON_BOTH_SIDES
def test_a_feature_in_which_three_documents_differ_is_not_constant(is_beyond):
    column = np.arange(100) < (3 if is_beyond else 2)
    found = evidence.features_that_are_constant([column * 1.0], ["price"])
    assert len([*found]) == (not is_beyond)


def test_documents_that_differ_in_a_constant_feature_are_counted():
    columns = [np.ones(100), np.zeros(100)]
    (found,) = evidence.features_that_are_constant(columns, ["price", "stock"])
    assert found["but"] == ""
    columns[1][:2] = 7.0
    (found,) = evidence.features_that_are_constant(columns, ["price", "stock"])
    assert "but for 2 of 100 documents" in found["but"]


def _findings(reads, n_without_order):
    """Sentences on a ranking of 30 queries, some of which have one score for all documents."""
    query = np.repeat(np.arange(30), 4)
    scores = np.random.default_rng(0).normal(size=len(query))
    scores[query < n_without_order] = 0.0
    return [message for _, message in units_in(reads, scores, query, "'new'")]


@pytest.mark.parametrize(("n_without_order", "is_told"), [(2, False), (3, True)])
def test_rankings_that_lack_scores_are_told(n_without_order, is_told):
    found = _findings("scores", n_without_order)
    assert any("is chance" in each for each in found) == is_told


@pytest.mark.parametrize(("n_without_order", "is_told"), [(26, False), (27, True)])
def test_rankers_that_learned_nothing_are_told(n_without_order, is_told):
    found = _findings("fitted", n_without_order)
    assert any("nothing that orders them was learned" in each for each in found) == is_told
