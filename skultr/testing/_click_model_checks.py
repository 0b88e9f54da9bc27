"""The contract of a click model as small functions, beside those that it shares with rankers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from ..metrics import perplexity_score
from ._check_logs import Check, named, other_frames, quick, run_all
from ._ranker_checks import RANKER_CHECKS, ranker_log

_FEATURES = ["f0", "f1"]
_ROLES = ["qid", "session", "doc", "position"]
_WIDTH = 3
#: Draws of clicks, for rates with a standard error of at most .008; standard errors, at most.
_N_DRAWS, _MAX_ERRORS = 4_000, 5
#: Difference between P(click) before any click and its sum over all clicks above, at most. Exact
#: models have rounding errors; models that average over samples of the clicks above have .02.
_MARGINAL_ERROR = 0.04
#: Checks of rankers whose counterpart for click models stands here.
_REPLACED = {"_check_rank_and_score", "_check_impressions"}


def check_click_model(
    estimator: BaseEstimator, *, generate_only: bool = False
) -> list[Check] | None:
    """Check that a click model keeps the contract of :mod:`skultr.click_models`.

    Parameters
    ----------
    estimator : estimator
        With ``fit``, ``predict`` (relevance), ``predict_click``, ``sample`` and ``score``. If it
        has the parameters ``learning_rate``, ``max_epochs``, ``batch_size``, ``early_stopping``
        and ``random_state``, they are set to a short, seeded training in one batch.
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
    A click model is a ranker by relevance: the checks of :func:`check_ranker` come first, but for
    those of ``rank``, ``score`` and aggregated logs. Then:

    - ``predict_click`` returns one probability per row, 0 for rows that were not shown, whatever
      the order of rows and the other lists, and alike for pandas, Polars, PyArrow and arrays
      with keywords.
    - Given the clicks above, the probability of a row does not depend on the clicks below.
    - The first row has the same probability given the clicks above and before any click.
    - Before any click is known, P(click) is the sum over all clicks above, within 0.04.
    - ``sample`` draws 0 or 1, the same for the same seed, with the rates that
      ``predict_click(conditional=False)`` states, within 5 standard errors of 4,000 draws.
    - ``score`` is minus the perplexity of ``predict_click`` by position.
    - Sessions that are the same, clicks included, are one session with several ``impressions``.

    Examples
    --------
    >>> from skultr.click_models import DCTRModel
    >>> from skultr.testing import check_click_model
    >>> check_click_model(DCTRModel())
    """
    shared = [check for check in RANKER_CHECKS if check.__name__ not in _REPLACED]
    model = quick(estimator)
    own = named(_CHECKS, model, make_log=_small_log)
    return run_all([*named(shared, model, make_log=ranker_log), *own], generate_only)


# The log ------------------------------------------------------------------------------
def _small_log() -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Sessions that show the three documents of a query in random order."""
    rng = np.random.default_rng(0)
    n_sessions, n_queries = 800, 8
    query = rng.integers(n_queries, size=n_sessions)
    place = np.argsort(rng.random((n_sessions, _WIDTH)), axis=1)
    order = np.argsort(place, axis=1)  # documents from the top of each list
    doc = query[:, None] * _WIDTH + order
    relevance = rng.uniform(0.2, 0.9, n_queries * _WIDTH)
    log = pd.DataFrame(
        {
            "qid": np.repeat(query * 3, _WIDTH),
            "session": np.repeat(np.arange(n_sessions), _WIDTH),
            "doc": doc.ravel(),
            "position": np.tile(np.arange(1.0, _WIDTH + 1), n_sessions),
            "f0": relevance[doc].ravel(),
            "f1": rng.lognormal(sigma=2.0, size=len(relevance))[doc].ravel(),
        }
    )
    # Examination falls with the position, and a click makes the next one less likely.
    clicks = np.zeros(doc.shape, dtype=np.int64)
    for k in range(_WIDTH):
        examined = 0.7**k * (0.6 if k == 0 else 1 - 0.5 * clicks[:, k - 1])
        clicks[:, k] = rng.random(n_sessions) < relevance[doc[:, k]] * examined
    return log, clicks.ravel()


def _all_patterns(log: pd.DataFrame) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """The first list, once for every way to click it."""
    patterns = np.array(list(itertools.product([0, 1], repeat=_WIDTH)))
    lists = pd.concat([log.iloc[:_WIDTH]] * len(patterns), ignore_index=True)
    return lists.assign(session=np.repeat(np.arange(len(patterns)), _WIDTH)), patterns


def _assert_probabilities(values: Any, n_rows: int, name: str) -> None:
    assert isinstance(values, np.ndarray), f"{name} returned {type(values).__name__}, not an array"
    assert values.shape == (n_rows,), f"{name} returned the shape {values.shape} for {n_rows} rows"
    good = (values >= 0) & (values <= 1)
    assert good.all(), f"{name} returned {values[~good][0]}, which is no probability"


# Checks -------------------------------------------------------------------------------
def _check_predict_click(estimator, log, clicks):
    fitted = clone(estimator).fit(log, clicks)
    for conditional in (True, False):
        found = fitted.predict_click(log, clicks, conditional=conditional)
        _assert_probabilities(found, len(log), f"predict_click(conditional={conditional})")
    log.loc[log["position"] == _WIDTH, "position"] = np.nan
    found = fitted.predict_click(log, np.where(log["position"].isna(), 0, clicks))
    assert (found[log["position"].isna()] == 0).all(), (
        "predict_click of a row that was not shown must be 0"
    )


def _check_predict_click_by_list(estimator, log, clicks):
    fitted = clone(estimator).fit(log, clicks)
    order = np.random.default_rng(1).permutation(len(log))
    few = np.flatnonzero(log["session"] < 20)
    for conditional in (True, False):
        expected = fitted.predict_click(log, clicks, conditional=conditional)
        for rows, message in (
            (order, "predict_click depends on the order of rows"),
            (few, "predict_click of a list depends on the other lists"),
        ):
            found = fitted.predict_click(log.iloc[rows], clicks[rows], conditional=conditional)
            np.testing.assert_allclose(found, expected[rows], atol=1e-5, err_msg=message)


def _check_clicks_below(estimator, log, clicks):
    fitted = clone(estimator).fit(log, clicks)
    log, patterns = _all_patterns(log)
    found = fitted.predict_click(log, patterns.ravel()).reshape(patterns.shape)
    for k in range(_WIDTH):
        above = patterns[:, :k] @ (2 ** np.arange(k))
        for code in np.unique(above):
            same = found[above == code, k]
            np.testing.assert_allclose(
                same,
                same[0],
                atol=1e-6,
                err_msg=f"P(click at position {k + 1} | clicks above) depends on clicks below",
            )


def _check_first_row(estimator, log, clicks):
    fitted = clone(estimator).fit(log, clicks)
    first = (log["position"] == 1).to_numpy()
    np.testing.assert_allclose(
        fitted.predict_click(log, clicks)[first],
        fitted.predict_click(log, conditional=False)[first],
        atol=1e-5,
        err_msg="no click is above the first row, but conditional=True and False differ there",
    )


def _check_sum_over_clicks_above(estimator, log, clicks):
    fitted = clone(estimator).fit(log, clicks)
    log, patterns = _all_patterns(log)
    given = fitted.predict_click(log, patterns.ravel()).reshape(patterns.shape)
    probability = np.where(patterns, given, 1 - given).prod(axis=1)
    np.testing.assert_allclose(
        fitted.predict_click(log.iloc[:_WIDTH], conditional=False),
        probability @ patterns,
        atol=_MARGINAL_ERROR,
        err_msg="P(click) before any click is not the sum over all ways to click above",
    )


def _check_sample(estimator, log, clicks):
    fitted = clone(estimator).fit(log, clicks)
    log = log.iloc[:_WIDTH]
    many = pd.concat([log] * _N_DRAWS, ignore_index=True)
    many["session"] = np.repeat(np.arange(_N_DRAWS), _WIDTH)
    drawn = fitted.sample(many, random_state=0)
    assert np.isin(drawn, (0, 1)).all(), "sample must draw 0 or 1"
    again = fitted.sample(many, random_state=0)
    np.testing.assert_array_equal(drawn, again, err_msg="the same seed drew other clicks")
    rate = drawn.reshape(_N_DRAWS, _WIDTH).mean(axis=0)
    stated = fitted.predict_click(log, conditional=False)
    error = _MAX_ERRORS * np.sqrt(stated * (1 - stated) / _N_DRAWS) + _MARGINAL_ERROR / 2
    wrong = np.abs(rate - stated) > error
    assert not wrong.any(), (
        f"sample clicks position {np.argmax(wrong) + 1} at the rate {rate[wrong].tolist()}, but "
        f"predict_click states {stated[wrong].tolist()}"
    )


def _check_score(estimator, log, clicks):
    fitted = clone(estimator).fit(log, clicks)
    probability = fitted.predict_click(log, clicks)
    expected = -perplexity_score(clicks, probability, position=log["position"].to_numpy())
    np.testing.assert_allclose(
        fitted.score(log, clicks),
        expected,
        rtol=1e-6,
        err_msg="score is not minus the perplexity of predict_click by position",
    )


def _check_impressions_of_sessions(estimator, log, clicks):
    keys = log.assign(click=clicks).groupby("session")[["doc", "click"]].agg(tuple)
    kept = keys[~keys.duplicated()].index
    times = keys.groupby(["doc", "click"])["doc"].transform("size")
    rows = log["session"].isin(kept).to_numpy()
    table, few = log[rows], clicks[rows]
    impressions = times.loc[table["session"]].to_numpy(dtype=float)
    expected = clone(estimator).fit(log, clicks).predict_click(log, clicks)
    for name, found in (
        ("column", clone(estimator).fit(table.assign(impressions=impressions), few)),
        ("keyword", clone(estimator).fit(table, few, impressions=impressions)),
        ("sample_weight", clone(estimator).fit(table, few, sample_weight=impressions)),
    ):
        np.testing.assert_allclose(
            found.predict_click(log, clicks),
            expected,
            atol=2e-3,
            err_msg=f"sessions with impressions ({name}) are not repeated sessions",
        )


def _check_frames_and_arrays_of_lists(estimator, log, clicks):
    fitted = clone(estimator).fit(log, clicks)
    expected = fitted.predict_click(log, clicks)
    for frame in other_frames(log):
        np.testing.assert_allclose(
            fitted.predict_click(frame, clicks),
            expected,
            atol=1e-6,
            err_msg=f"{type(frame)}: predict_click differs from pandas",
        )
    roles = {role: log[role].to_numpy() for role in _ROLES}
    array = log[_FEATURES].to_numpy()
    again = clone(estimator).fit(array, clicks, **roles)
    np.testing.assert_allclose(
        again.predict_click(array, clicks, **roles),
        expected,
        atol=1e-5,
        err_msg="an array with keywords gave other click probabilities than the frame",
    )


_CHECKS = (
    _check_predict_click,
    _check_predict_click_by_list,
    _check_clicks_below,
    _check_first_row,
    _check_sum_over_clicks_above,
    _check_sample,
    _check_score,
    _check_impressions_of_sessions,
    _check_frames_and_arrays_of_lists,
)
