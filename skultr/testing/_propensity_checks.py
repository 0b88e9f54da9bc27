"""The contract of a propensity estimator as small functions."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import Ridge

from ..rankers import IPSRanker
from ._check_logs import Check, named, other_frames, quick, relabelled, run_all

_FEATURES = ["f0", "f1"]
_ROLES = ["qid", "session", "doc", "position", "user"]
#: Examination of the users of the log.
_EXAMINATION = np.array([1.0, 0.5, 0.25])


def check_propensity(
    estimator: BaseEstimator, *, generate_only: bool = False
) -> list[Check] | None:
    """Check that a propensity estimator keeps the contract of :mod:`skultr.propensity`.

    Parameters
    ----------
    estimator : estimator
        With ``fit(X, y)`` and ``predict(X)``. If it has the parameters ``learning_rate``,
        ``max_epochs``, ``batch_size``, ``early_stopping`` and ``random_state``, they are set to
        a short, seeded training in one batch.
    generate_only : bool, default=False
        Return the checks as (name, callable) pairs instead of running them, for use with
        ``pytest.mark.parametrize``.

    Returns
    -------
    checks : list of (str, callable)
        Only with ``generate_only=True``.

    Raises
    ------
    AssertionError
        By the first check that fails; its name is in the traceback.

    Notes
    -----
    The log of the checks shows three documents per query, shuffled in every session, to two
    users. It has an experiment column ``arm``, which is 0 everywhere, and two features.

    - ``examination_`` is a frame with a column ``examination`` of positive numbers, indexed by
      bias factor (and user).
    - ``predict`` returns one number in (0, 1] per shown row, 0 for rows that were not shown, and
      does not depend on the other rows.
    - A position that the training log did not show is a ``ValueError``, unless it gets a number.
    - Rows that were not shown have no effect on ``fit``, and neither have the annotation
      ``relevance``, the order of rows and the values of ids.
    - An aggregated log gives the estimate of the raw log; a keyword ``impressions`` and
      ``sample_weight`` are the column ``impressions``.
    - pandas, Polars and PyArrow frames and arrays with keywords give the same estimate (frames
      that are not installed are left out; arrays only if no column is read by its name).
    - The same seed gives the same estimate; ``clone`` and ``pickle`` keep it.
    - It serves as the ``propensity`` of an :class:`skultr.rankers.IPSRanker`.

    Examples
    --------
    >>> from skultr.propensity import InterventionHarvesting
    >>> from skultr.testing import check_propensity
    >>> check_propensity(InterventionHarvesting(n_bootstrap=0))
    """
    return run_all(named(_CHECKS, quick(estimator), make_log=_small_log), generate_only)


# The log ------------------------------------------------------------------------------
def _small_log() -> tuple[pd.DataFrame, NDArray[np.float64]]:
    """Sessions that show the three documents of a query in random order."""
    rng = np.random.default_rng(0)
    n_sessions, n_queries, width = 1_500, 12, len(_EXAMINATION)
    query = rng.integers(n_queries, size=n_sessions)
    place = np.argsort(rng.random((n_sessions, width)), axis=1)
    relevance = rng.uniform(0.3, 0.9, n_queries * width)
    doc = np.repeat(query * width, width) + np.tile(np.arange(width), n_sessions)
    log = pd.DataFrame(
        {
            "qid": np.repeat(query * 3, width),
            "session": np.repeat(np.arange(n_sessions), width),
            "doc": doc,
            "position": place.ravel() + 1.0,
            "user": np.repeat(rng.integers(2, size=n_sessions), width),
            "arm": 0.0,
            "relevance": doc % 5,
            "f0": relevance[doc],
            "f1": rng.lognormal(sigma=2.0, size=len(relevance))[doc],
        }
    )
    chance = relevance[doc] * _EXAMINATION[place.ravel()]
    return log, (rng.random(len(log)) < chance).astype(float)


def _aggregated(log: pd.DataFrame, clicks: ArrayLike) -> tuple[pd.DataFrame, NDArray[np.float64]]:
    """One session per distinct list and user, with impressions and click rates."""
    log = log.assign(click=clicks)
    order = log.groupby("session")["position"].transform(lambda place: hash(tuple(place)))
    list_ = log.assign(order=order).groupby(["qid", "user", "order"]).ngroup()
    groups = log.assign(session=list_).groupby(["session", "doc"], as_index=False)
    table = groups.first().drop(columns="click")
    counts = groups["click"].agg(["sum", "count"])
    return (
        table.assign(impressions=counts["count"].astype(float)),
        (counts["sum"] / counts["count"]).to_numpy(),
    )


def _propensities(
    estimator: BaseEstimator, log: Any, clicks: ArrayLike, **fit_params: Any
) -> NDArray[np.float64]:
    """Propensities of the rows of the small log by a clone fitted to another one."""
    return clone(estimator).fit(log, clicks, **fit_params).predict(_small_log()[0])


def _assert_same(actual: ArrayLike, expected: ArrayLike, message: str) -> None:
    """Equal up to the order of summation, and of the steps of a solver."""
    np.testing.assert_allclose(actual, expected, rtol=1e-3, err_msg=message)


# Checks -------------------------------------------------------------------------------
def _check_examination(estimator, log, clicks):
    fitted = clone(estimator).fit(log, clicks)
    table = getattr(fitted, "examination_", None)
    good = isinstance(table, pd.DataFrame) and "examination" in table
    assert good, "examination_ must be a DataFrame with a column 'examination'"
    assert "bias" in table.index.names, (
        f"examination_ is indexed by {list(table.index.names)}, expected 'bias' among the names"
    )
    known = table["examination"].dropna()
    assert len(known) > 0, "examination_ knows no bias factor, although all are linked"
    assert (known > 0).all(), "examination_ holds a number that is not positive"


def _check_predict(estimator, log, clicks):
    fitted = clone(estimator).fit(log, clicks)
    found = fitted.predict(log)
    assert isinstance(found, np.ndarray), f"predict returned {type(found).__name__}, not an array"
    assert found.shape == (len(log),), (
        f"predict returned the shape {found.shape} for {len(log)} rows"
    )
    good = (found > 0) & (found <= 1)
    assert good.all(), f"predict returned {found[~good][0]}; expected numbers in (0, 1]"
    some = np.random.default_rng(2).choice(len(log), size=20, replace=False)
    np.testing.assert_allclose(
        fitted.predict(log.iloc[some]),
        found[some],
        rtol=1e-5,
        err_msg="the propensity of a row depends on the other rows",
    )
    other = log.assign(session=log["session"] + 7, relevance=9)
    np.testing.assert_allclose(
        fitted.predict(other), found, rtol=1e-5, err_msg="predict reads 'session' or 'relevance'"
    )


def _check_rows_that_were_not_shown(estimator, log, clicks):
    # One more candidate for the sessions of every other query.
    hidden = log[~log["session"].duplicated() & (log["qid"] % 2 == 0)]
    hidden = hidden.assign(doc=hidden["qid"] + 1_000, position=np.nan, f0=0.5, f1=1.0)
    both = pd.concat([log, hidden], ignore_index=True)
    fitted = clone(estimator).fit(both, np.append(clicks, np.zeros(len(hidden))))
    _assert_same(
        fitted.predict(log),
        _propensities(estimator, log, clicks),
        "rows that were not shown changed the estimate",
    )
    found = fitted.predict(both)[len(log) :]
    assert (found == 0).all(), "the propensity of a row that was not shown must be 0"


def _check_unknown_position(estimator, log, clicks):
    fitted = clone(estimator).fit(log, clicks)
    try:
        found = fitted.predict(log[:3].assign(position=99.0))
    except ValueError:
        return
    good = (found > 0) & (found <= 1)
    assert good.all(), (
        "a position that the training log did not show must raise a ValueError or get a "
        f"propensity in (0, 1], not {found[~good][0]}"
    )


def _check_annotation_is_not_read(estimator, log, clicks):
    other = log.assign(relevance=log["relevance"].to_numpy()[::-1])
    np.testing.assert_array_equal(
        _propensities(estimator, other, clicks),
        _propensities(estimator, log, clicks),
        err_msg="fit read the annotation 'relevance'",
    )


def _check_row_order(estimator, log, clicks):
    order = np.random.default_rng(1).permutation(len(log))
    _assert_same(
        _propensities(estimator, log.iloc[order], clicks[order]),
        _propensities(estimator, log, clicks),
        "shuffled rows gave another estimate",
    )


def _check_relabelled_ids(estimator, log, clicks):
    other = log.assign(**{role: relabelled(log[role]) for role in ("qid", "session", "doc")})
    _assert_same(
        _propensities(estimator, other, clicks),
        _propensities(estimator, log, clicks),
        "other ids gave another estimate",
    )


def _check_impressions(estimator, log, clicks):
    raw = _propensities(estimator, log, clicks)
    table, rate = _aggregated(log, clicks)
    _assert_same(
        _propensities(estimator, table, rate),
        raw,
        "an aggregated log gave another estimate than the raw log",
    )
    counts = table.pop("impressions").to_numpy()
    for name in ("impressions", "sample_weight"):
        _assert_same(
            _propensities(estimator, table, rate, **{name: counts}),
            raw,
            f"the keyword {name!r} is not the column 'impressions'",
        )


def _check_frames_and_arrays(estimator, log, clicks):
    named_columns = getattr(estimator, "columns_read", set)()
    log = log[[*_ROLES, *sorted(named_columns - set(_FEATURES)), *_FEATURES]]
    fitted = clone(estimator).fit(log, clicks)
    expected = fitted.predict(log)
    for frame in other_frames(log):
        found = clone(estimator).fit(frame, clicks).predict(frame)
        _assert_same(found, expected, f"{type(frame)}: another estimate than pandas")
    if named_columns:
        return
    roles = {role: log[role].to_numpy() for role in _ROLES}
    array = log[_FEATURES].to_numpy()
    fitted = clone(estimator).fit(array, clicks, **roles)
    found = fitted.predict(array, position=roles["position"], user=roles["user"])
    _assert_same(found, expected, "an array with keywords gave another estimate than the frame")


def _check_keywords_win(estimator, log, clicks):
    wrong = log.assign(impressions=1 + 10 * (log["doc"] % 2))
    _assert_same(
        _propensities(estimator, wrong, clicks, impressions=np.ones(len(log))),
        _propensities(estimator, log, clicks),
        "a keyword does not win over the column of its name",
    )


def _check_same_seed(estimator, log, clicks):
    np.testing.assert_array_equal(
        _propensities(estimator, log, clicks),
        _propensities(estimator, log, clicks),
        err_msg="two fits with the same random_state gave different propensities",
    )


def _check_pickle(estimator, log, clicks):
    fitted = clone(estimator).fit(log, clicks)
    expected = fitted.predict(log)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(
        again.predict(log), expected, err_msg="pickle changed the propensities"
    )
    np.testing.assert_array_equal(
        clone(fitted).fit(log, clicks).predict(log),
        expected,
        err_msg="a fitted clone has other propensities",
    )


def _check_serves_a_ranker(estimator, log, clicks):
    log = log.drop(columns=sorted({"arm"} - getattr(estimator, "columns_read", set)()))
    ranker = IPSRanker(propensity=estimator, estimator=Ridge()).fit(log, clicks)
    scores = ranker.predict(log)
    assert np.isfinite(scores).all(), "an IPSRanker with these propensities has infinite scores"
    assert np.ptp(scores) > 0, "an IPSRanker with these propensities scores all documents alike"


_CHECKS = (
    _check_examination,
    _check_predict,
    _check_rows_that_were_not_shown,
    _check_unknown_position,
    _check_annotation_is_not_read,
    _check_row_order,
    _check_relabelled_ids,
    _check_impressions,
    _check_frames_and_arrays,
    _check_keywords_win,
    _check_same_seed,
    _check_pickle,
    _check_serves_a_ranker,
)
