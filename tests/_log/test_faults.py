"""Faults of containers, names and values beyond those of one role; each at the doors that fit."""

import contextlib
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.linear_model import Ridge

from skultr._log._lookalikes import outcomes_of
from skultr.click_models import PBMModel
from skultr.exceptions import AssumptionWarning, ClickDataWarning, MissingRoleWarning
from skultr.metrics import CMIPScorer, RankingScorer
from skultr.propensity import (
    ContextualPropensity,
    DualLearningPropensity,
    InterventionHarvesting,
    PowerLawPropensity,
    RandomizedPropensity,
    RegressionEMPropensity,
)
from skultr.rankers import NaiveRanker

from .._worlds import FEATURES, random_lists

DOORS = {
    "ranker": lambda: NaiveRanker(estimator=Ridge(solver="svd")),
    "propensity": lambda: InterventionHarvesting(n_bootstrap=0),
    "click model": lambda: PBMModel(prior=(1, 1)),
}
every_door = pytest.mark.parametrize("door", DOORS)


@pytest.fixture(scope="module")
def log():
    return random_lists()


def as_arrays(log, *names):
    """Features as an array, and the roles as keywords."""
    roles = {name: log[name].to_numpy() for name in ("qid", "session", "doc", "position", *names)}
    return log[FEATURES].to_numpy(), roles


def same_model(a, b):
    """Whether two fits of one door learned the same."""
    for name in ("examination_", "documents_"):
        if hasattr(a, name):
            one, other = getattr(a, name), getattr(b, name)
            np.testing.assert_array_equal(one.to_numpy(), other.to_numpy())
            np.testing.assert_array_equal(one.columns, other.columns)
    if hasattr(a, "estimator_"):
        np.testing.assert_array_equal(a.estimator_.coef_, b.estimator_.coef_)


# What X is ------------------------------------------------------------------------------
def _lists_of(column):
    return lambda X: X.assign(**{column: [[value] for value in X[column]]})


FRAMES = {
    "a dict": (lambda X: X.to_dict("list"), TypeError, r"X is a dict; expected a frame"),
    "dicts": (
        lambda X: X.to_dict("records"),
        TypeError,
        "X is a list of dicts; expected",
    ),
    "two features of one name": (
        lambda X: pd.concat([X, X[["f0"]]], axis=1),
        ValueError,
        r"several columns with the same name: \['f0'\]. Expected one column per name; rename",
    ),
    "two roles of one name": (
        lambda X: pd.concat([X, X[["qid"]]], axis=1),
        ValueError,
        r"several columns with the same name: \['qid'\]. Expected one column per name",
    ),
    **{
        f"unhashable {role}": (
            _lists_of(role),
            ValueError,
            rf"The role '{role}' holds values that cannot be ids, such as \[\d+\] .*unhashable",
        )
        for role in ("qid", "session", "doc")
    },
    "bias of hashes": (
        lambda X: X.assign(bias=2**53 + X["position"]),
        ValueError,
        r"whole numbers below 2\*\*53.*found 9007199254740992.* in 600 rows, first in row 0",
    ),
    "another scope": (
        lambda X: X.assign(doc_scope="world"),
        ValueError,
        r"doc_scope holds \['world'\]; expected 'query' in every row .* or 'global' in every row",
    ),
    "two scopes": (
        lambda X: X.assign(doc_scope=np.where(X["qid"] == 0, "global", "query")),
        ValueError,
        r"doc_scope holds \['global', 'query'\]; expected",
    ),
    "a scope with gaps": (
        lambda X: X.assign(doc_scope=X["qid"].map({0: "global"})),
        ValueError,
        r"doc_scope holds \['global', 'nan'\]; expected",
    ),
}


@every_door
@pytest.mark.parametrize("name", FRAMES)
def test_frames_that_are_none(name, door, log):
    change, error, sentence = FRAMES[name]
    with pytest.raises(error, match=sentence):
        DOORS[door]().fit(change(log[0]), log[1])


@every_door
@pytest.mark.parametrize("scope", ["world", ["query", "global"] * 300])
def test_scope_as_a_keyword(scope, door, log):
    X, roles = as_arrays(log[0])
    with pytest.raises(ValueError, match=r"doc_scope holds .*; expected 'query' in every row"):
        DOORS[door]().fit(X, log[1], **roles, doc_scope=scope)


@every_door
def test_numbers_of_another_byte_order_are_numbers(door, log):
    X, y = log
    roles = ("qid", "session", "doc", "position")
    other = X.assign(**{name: X[name].to_numpy().astype(">i8") for name in roles})
    same_model(DOORS[door]().fit(X, y), DOORS[door]().fit(other, y.astype(">f4")))


# Masked arrays --------------------------------------------------------------------------
def _masked(values, row=3):
    return np.ma.array(values, mask=np.arange(len(values)) == row)


@every_door
def test_masked_features_are_refused(door, log):
    X, roles = as_arrays(log[0])
    masked = np.ma.array(X, mask=X > 1)
    sentence = rf"masked array with {(X > 1).sum()} masked values; .*X.filled\(0\)"
    with pytest.raises(ValueError, match=sentence):
        DOORS[door]().fit(masked, log[1], **roles)
    nothing = np.ma.array(X, mask=False)
    same_model(DOORS[door]().fit(nothing, log[1], **roles), DOORS[door]().fit(X, log[1], **roles))


@every_door
@pytest.mark.parametrize("role", ["qid", "session", "doc"])
def test_a_masked_id_is_a_missing_id(role, door, log):
    X, roles = as_arrays(log[0])
    with pytest.raises(ValueError, match=rf"'{role}' is missing in 1 row, first in row 3"):
        DOORS[door]().fit(X, log[1], **{**roles, role: _masked(roles[role])})


@every_door
def test_a_masked_position_is_a_row_that_was_not_shown(door, log):
    X, roles = as_arrays(log[0])
    clicks = np.where(np.arange(600) == 3, 0, log[1])
    masked = {**roles, "position": _masked(roles["position"])}
    missing = {**roles, "position": np.where(np.arange(600) == 3, np.nan, roles["position"])}
    fitted = DOORS[door]().fit(X, clicks, **masked)
    same_model(fitted, DOORS[door]().fit(X, clicks, **missing))
    if door != "ranker":
        assert fitted.examination_["impressions"].sum() == 599


@every_door
def test_a_masked_click_is_a_missing_click(door, log):
    X, roles = as_arrays(log[0])
    with pytest.raises(ValueError, match="y contains NaN or infinity: found nan in 1 row"):
        DOORS[door]().fit(X, _masked(log[1]), **roles)


# Clicks ---------------------------------------------------------------------------------
@every_door
@pytest.mark.parametrize("convert", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas])
def test_y_names_the_column_of_clicks(convert, door, log):
    X, y = log
    frame = convert(X.assign(click=y))
    fitted = DOORS[door]().fit(frame, "click")
    same_model(fitted, DOORS[door]().fit(convert(X), y))
    if door != "propensity":
        assert fitted.feature_names_in_.tolist() == FEATURES
    # The column is there in held-out rows of the log, and not at serving time.
    np.testing.assert_array_equal(fitted.predict(frame), fitted.predict(convert(X)))


def test_the_column_of_clicks_is_forgotten_by_the_next_fit(log):
    X, y = log
    ranker = NaiveRanker(estimator=Ridge(solver="svd")).fit(X.assign(f3=y), "f3")
    assert ranker.fit(X.assign(f3=X["f0"]), y).n_features_in_ == 4


def test_a_propensity_without_positions_takes_its_clicks_out_as_well(log):
    X, y = log
    X = X.drop(columns="position")
    with pytest.warns(MissingRoleWarning, match="no column 'position'"):
        fitted = InterventionHarvesting(n_bootstrap=0).fit(X.assign(click=y), "click")
    assert (fitted.predict(X.assign(click=y)) == 1).all()
    assert (fitted.predict(X) == 1).all()


@every_door
def test_y_names_no_column(door, log):
    with pytest.raises(ValueError, match=r"X has no column 'clock': its columns are \['session'"):
        DOORS[door]().fit(log[0], "clock")
    X, roles = as_arrays(log[0])
    with pytest.raises(ValueError, match="no column 'click': X is an array and has no columns"):
        DOORS[door]().fit(X, "click", **roles)


@every_door
@pytest.mark.parametrize("dtype", ["datetime64[s]", "timedelta64[s]", "<U1", "object"])
def test_times_and_text_are_no_clicks(dtype, door, log):
    y = log[1].astype(int).astype(dtype) if "64" in dtype else log[1].astype("<U1").astype(dtype)
    with pytest.raises(ValueError, match=rf"y must hold numbers, got {re.escape(dtype)} values"):
        DOORS[door]().fit(log[0], y)


@every_door
@pytest.mark.parametrize("values", [[np.bool_], [Decimal, int]])
def test_clicks_may_be_objects_that_are_numbers(values, door, log):
    y = np.array([values[i % len(values)](int(each)) for i, each in enumerate(log[1])], object)
    same_model(DOORS[door]().fit(log[0], y), DOORS[door]().fit(*log))


@every_door
@pytest.mark.parametrize("path", ["clicks.parquet", Path("clicks.parquet")])
def test_the_name_of_a_file_is_no_log(path, door):
    with pytest.raises(TypeError, match=r"clicks.parquet'\)?; expected a frame .*from_parquet"):
        DOORS[door]().fit(path, "click")


# Features that are none ------------------------------------------------------------------
@pytest.mark.parametrize("door", ["ranker", "click model"])
def test_a_feature_that_is_the_clicks(door, log):
    X, y = log
    X = X.drop(columns="doc")
    sentence = "The feature '{}' equals y in every row: .*Drop the column, or pass its name as y"
    with pytest.warns(ClickDataWarning, match=sentence.format("label")):
        DOORS[door]().fit(X.assign(label=y), y)
    array, roles = as_arrays(log[0])
    del roles["doc"]
    with pytest.warns(ClickDataWarning, match="The feature 3 equals y in every row"):
        DOORS[door]().fit(np.column_stack([array, y]), y, **roles)


def test_a_feature_that_is_almost_the_clicks_is_an_outcome(log):
    X, y = log
    label = np.where(np.arange(600) == 599, 1 - y, y)
    with pytest.warns(ClickDataWarning, match="'label' has one value .* Rename it to 'outcome_la"):
        NaiveRanker(estimator=Ridge(solver="svd")).fit(
            X.drop(columns="doc").assign(label=label), y
        )


@pytest.mark.parametrize("n_rows", [4, 5])
def test_an_outcome_has_five_rows_at_least(n_rows):
    rows = np.arange(1_000)
    found = outcomes_of(rows < 25, rows % 100, (rows < n_rows)[:, None] * 1.0)
    assert found == [0] * (n_rows == 5)


LOOKS_LIKE = {
    **dict.fromkeys(["query", "query_id", "Query_ID"], "qid"),
    "session_id": "session",
    **dict.fromkeys(["doc_id", "docid", "document", "document_id"], "doc"),
    **dict.fromkeys(["rank", "pos"], "position"),
    "user_id": "user",
}


@pytest.mark.parametrize(("name", "role"), LOOKS_LIKE.items())
def test_a_feature_whose_name_is_almost_that_of_a_role(name, role, log):
    X, y = log
    X = X.assign(user=X["session"] % 2, bias=X["position"])
    sentence = rf"The column '{name}' is read as a feature, .* the role '{role}'.*rename it to"
    with pytest.warns(MissingRoleWarning) as caught, contextlib.suppress(ValueError):
        # Without queries or sessions, what follows is an error: the warning comes before it.
        _fit_quietly(X.assign(**{name: X["doc"]}).drop(columns=role), y)
    assert sum(re.search(sentence, str(warning.message)) is not None for warning in caught) == 1
    # Where the log has the role, the column is something else.
    _fit_quietly(X.assign(**{name: X["doc"]}), y)


@pytest.mark.parametrize("name", ["clicks", "clicked", "Click", "ctr", "click_rate"])
def test_a_feature_whose_name_is_that_of_clicks(name, log):
    X, y = log
    sentence = rf"The column '{name}' is read as a feature, .*the clicks.*fit\(X, '{name}'\)"
    with pytest.warns(MissingRoleWarning, match=sentence):
        _fit_quietly(X.assign(**{name: X["doc"]}), y)


def _fit_quietly(X, y):
    return NaiveRanker(estimator=Ridge(solver="svd")).fit(X, y)


# Ids and lists --------------------------------------------------------------------------
@every_door
@pytest.mark.parametrize("role", ["qid", "session", "doc"])
def test_an_id_of_minus_one_looks_like_padding(role, door, log):
    X, y = log
    n_rows = (X[role] == 0).sum()
    padded = X.assign(**{role: X[role].where(X[role] != 0, -1)})
    sentence = rf"The role '{role}' is -1 in {n_rows} rows, first in row \d+: .*looks like padding"
    with pytest.warns(ClickDataWarning, match=sentence):
        fitted = DOORS[door]().fit(padded, y)
    same_model(fitted, DOORS[door]().fit(padded.replace({role: {-1: -2}}), y))


@every_door
def test_ids_that_are_hashes_may_be_minus_one(door, log):
    X, y = log
    DOORS[door]().fit(X.assign(doc=X["doc"] - 5), y)
    DOORS[door]().fit(X.assign(doc=(X["doc"] - 1).astype(str)), y)


@pytest.mark.parametrize(
    "estimator",
    [
        PowerLawPropensity(),
        RandomizedPropensity(),
        InterventionHarvesting(n_bootstrap=0),
        RegressionEMPropensity(relevance="embedding"),
        DualLearningPropensity(max_epochs=1),
        ContextualPropensity(context=["f0"]),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_a_row_that_is_twice_in_the_log(estimator, log):
    X, y = log
    sentence = r"Two rows of one list are at position 1 \(query 2, row 600\); expected at most"
    first = X.index[X["qid"] == 2][0]
    twice = pd.concat([X, X.loc[[first]]], ignore_index=True)
    with pytest.raises(ValueError, match=sentence):
        estimator.fit(twice, np.append(y, y[first]))


# Propensities ---------------------------------------------------------------------------
@pytest.mark.parametrize("door", ["ranker", "click model"])
@pytest.mark.parametrize(
    "propensity",
    [
        pytest.param(np.random.default_rng(0).uniform(0.001, 0.1, 600), id="of actions"),
        pytest.param(np.full(600, 0.05), id="of a uniform policy"),
    ],
)
def test_probabilities_of_actions_are_no_examination(propensity, door, log):
    sentence = rf"propensity is at most {propensity.max()!r} and does not depend on the position"
    with pytest.warns(AssumptionWarning, match=sentence.replace("np.float64", "").strip("()")):
        DOORS[door]().fit(log[0].assign(propensity=propensity), log[1])


@pytest.mark.parametrize(
    "propensity",
    [
        pytest.param(lambda X: 0.1 / X["position"], id="low, and falling with the position"),
        pytest.param(lambda X: 0.2 + 0.5 * (X["doc"] % 2), id="as large as examination"),
    ],
)
def test_examination_is_taken_as_it_is(propensity, log):
    _fit_quietly(log[0].assign(propensity=propensity(log[0])), log[1])


def test_all_rows_at_one_position_may_have_any_propensity(log):
    X = log[0].assign(position=1, session=np.arange(600), propensity=0.05)
    _fit_quietly(X, log[1])


# Grades ---------------------------------------------------------------------------------
@pytest.mark.parametrize("scorer", [RankingScorer(), CMIPScorer(estimator="knn")])
@pytest.mark.filterwarnings("ignore:Grades of fewer than 20")
def test_grades_are_not_negative(scorer, log):
    X, y = log
    ranker = _fit_quietly(X, y)
    grades = (X["doc"] % 3).astype(float)
    scorer(ranker, X.assign(relevance=grades))
    sentence = rf"relevance must be .*at least 0.*found -1 in {(grades == 0).sum()} rows"
    with pytest.raises(ValueError, match=sentence):
        scorer(ranker, X.assign(relevance=grades.replace(0, -1)))


@every_door
def test_a_lazy_frame_is_refused(door, log):
    with pytest.raises(TypeError, match=r"X is a lazy frame .*aggregate_clicks"):
        DOORS[door]().fit(pl.from_pandas(log[0]).lazy(), log[1])


@every_door
def test_clicks_that_miss_are_nan(door, log):
    y = pd.Series(log[1] > 0).astype("boolean").mask(np.arange(len(log[1])) == 3)
    with pytest.raises(ValueError, match="NaN or infinity: found nan in 1 row, first in row 3"):
        DOORS[door]().fit(log[0], y)
