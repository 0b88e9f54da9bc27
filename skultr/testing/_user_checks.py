"""The contract of a simulated user as small functions."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..simulation import PlackettLucePolicy, User, simulate_clicks
from ._check_logs import Check, named, run_all

#: Pages that are shown, and how often each, for click rates with a standard error of at most .005.
_N_PAGES, _N_REPEATS = 6, 10_000
#: Standard errors between a click rate and its probability, at most.
_MAX_ERRORS = 5
#: Positional arguments of the methods of a user.
_SIGNATURES = {
    "examination_at": ("n_positions",),
    "examination_table": ("n_positions",),
    "truth_at": ("n_positions",),
    "document_truth": ("relevance_probability",),
    "read_grades": ("grade",),
    "draw_contexts": ("shown", "rng"),
    "draw_query_weights": ("query_weights", "rng"),
    "click_probability": ("relevance_probability",),
    "click": ("relevance_probability", "rng"),
}


def check_user(
    user: User, *, n_positions: int = 5, generate_only: bool = False
) -> list[Check] | None:
    """Check that a user keeps the contract of :class:`skultr.simulation.User`.

    Parameters
    ----------
    user : User
    n_positions : int, default=5
        Length of the longest pages. Pass less for a user whose curve is known for fewer
        positions.
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
    - The user derives from ``User``, and its methods can be called as documented there.
    - ``examination_at`` and ``examination_table`` return probabilities of the documented shapes.
    - ``click_probability`` returns probabilities. Those of a session depend on no other session,
      and not on the empty places behind the end of a shorter page.
    - ``click`` returns booleans, the same for the same ``rng``, and its click rates agree with
      ``click_probability``: within 5 standard errors over 10,000 sessions of each of 6 pages. A
      probability that is wrong by 0.03 is found; a correct user fails with probability 2e-5.
    - Neither changes the arrays that it gets.
    - Contexts, query weights, grades and entries of the truth have the documented shapes.
    - :func:`skultr.simulation.simulate_clicks` gives the same log for the same ``random_state``,
      and no click on a candidate that was not shown.
    - ``pickle`` keeps the user.

    Examples
    --------
    >>> from skultr.simulation import DBNUser
    >>> from skultr.testing import check_user
    >>> check_user(DBNUser(continuation=0.8))
    """
    return run_all(named(_CHECKS, user, n_positions), generate_only)


# Pages --------------------------------------------------------------------------------
def _judged(user: User, grade: NDArray[Any]) -> NDArray[Any]:
    """What the user judges pages of these grades by; -1 is an empty place."""
    shown = grade.ravel() >= 0
    read = user.read_grades(grade.ravel()[shown].astype(float))
    if read is None:
        spread = np.random.default_rng(3).uniform(0.2, 1.0, grade.size)
        judged = np.full(grade.size, -1.0 if user.marks_empty else 0.0)
        judged[shown] = (0.1 + 0.9 * grade.ravel()[shown]) * spread[shown]
    else:
        judged = np.full(grade.size, -1)
        judged[shown] = read
    return judged.reshape(grade.shape)


def _pages(user: User, n_positions: int) -> tuple[NDArray[Any], tuple[NDArray[Any], ...]]:
    """Pages, the last two of them shorter, and the context or user of each."""
    rng = np.random.default_rng(0)
    grade = rng.integers(2, size=(_N_PAGES, n_positions))
    grade[-2:, (n_positions + 1) // 2 :] = -1
    return _judged(user, grade), _about(user, grade, rng)


def _about(user: User, grade: NDArray[Any], rng: np.random.Generator) -> tuple[Any, ...]:
    """What ``click`` gets beside the page: the context of each place, or the user of each page."""
    about = []
    if user.user_weights is not None:
        about.append(rng.integers(len(user.user_weights), size=len(grade)))
    if user.context_vectors is not None:
        about.append(rng.integers(len(user.context_vectors), size=grade.shape))
    return tuple(about)


def _documents() -> pd.DataFrame:
    """Ten queries with 3 to 8 documents of the grades 0 and 1."""
    rng = np.random.default_rng(1)
    qid = np.repeat(np.arange(10), rng.integers(3, 9, size=10))
    return pd.DataFrame(
        {"qid": qid, "doc": np.arange(len(qid)), "relevance": rng.integers(2, size=len(qid))}
    )


def _simulate(user: User, n_positions: int) -> tuple[pd.DataFrame, NDArray[Any], Any]:
    documents = _documents()
    return simulate_clicks(
        documents,
        n_sessions=300,
        n_positions=n_positions,
        scores=documents["relevance"],
        policy=PlackettLucePolicy(1.0),
        user=user,
        max_grade=1,
        candidates=True,
        random_state=0,
    )


def _assert_probabilities(values: Any, shape: tuple[int, ...], name: str) -> None:
    assert isinstance(values, np.ndarray), f"{name} returned {type(values).__name__}, not an array"
    assert values.shape == shape, f"{name} returned the shape {values.shape}, expected {shape}"
    assert values.dtype.kind == "f", f"{name} returned {values.dtype}, expected floats"
    good = (values >= 0) & (values <= 1)
    assert good.all(), f"{name} returned {values[~good].flat[0]}, which is no probability"


# Checks -------------------------------------------------------------------------------
def _check_signatures(user: User, n_positions: int) -> None:
    assert isinstance(user, User), (
        f"{type(user).__name__} is no skultr.simulation.User: derive the class from User"
    )
    about = () if user.user_weights is None else ("user",)
    about += () if user.context_vectors is None else ("context",)
    for name, arguments in _SIGNATURES.items():
        given = (*arguments, *about) if name in ("click_probability", "click") else arguments
        signature = inspect.signature(getattr(user, name))
        try:
            signature.bind(*given)
        except TypeError as error:
            raise AssertionError(
                f"{name}{signature} cannot be called as {name}({', '.join(given)}): {error}"
            ) from None


def _check_examination(user: User, n_positions: int) -> None:
    curve = user.examination_at(n_positions)
    _assert_probabilities(curve, (n_positions,), "examination_at")


def _check_click_probability(user: User, n_positions: int) -> None:
    pages, about = _pages(user, n_positions)
    kept = pages.copy()
    probability = user.click_probability(pages, *about)
    np.testing.assert_array_equal(pages, kept, err_msg="click_probability changed its argument")
    shown = _shown(user, pages)
    _assert_probabilities(
        np.where(shown, probability, 0.0), (_N_PAGES, n_positions), "click_probability"
    )
    order = np.random.default_rng(2).permutation(_N_PAGES)
    np.testing.assert_allclose(
        user.click_probability(pages[order], *(values[order] for values in about)),
        probability[order],
        err_msg="click_probability of a session depends on the other sessions",
    )


def _shown(user: User, pages: NDArray[Any]) -> NDArray[np.bool_]:
    """Where the pages of :func:`_pages` show something."""
    shown = np.ones(pages.shape, dtype=bool)
    shown[-2:, (pages.shape[1] + 1) // 2 :] = False
    return shown


def _check_shorter_pages(user: User, n_positions: int) -> None:
    pages, about = _pages(user, n_positions)
    n_shown = (n_positions + 1) // 2
    short = [values[-2:, :n_shown] if values.ndim == 2 else values[-2:] for values in about]
    np.testing.assert_allclose(
        user.click_probability(pages[-2:], *(values[-2:] for values in about))[:, :n_shown],
        user.click_probability(pages[-2:, :n_shown], *short),
        err_msg=(
            "empty places behind the end of a page change P(click) above them; set "
            "marks_empty = True on the class and pass over places below 0"
        ),
    )


def _check_clicks(user: User, n_positions: int) -> None:
    pages, about = _pages(user, n_positions)
    kept = pages.copy()
    clicks = user.click(pages, np.random.default_rng(0), *about)
    np.testing.assert_array_equal(pages, kept, err_msg="click changed its argument")
    assert clicks.shape == pages.shape, (
        f"click returned the shape {clicks.shape}, expected {pages.shape}"
    )
    assert clicks.dtype == bool, f"click returned {clicks.dtype}, expected bool"
    again = user.click(pages, np.random.default_rng(0), *about)
    np.testing.assert_array_equal(clicks, again, err_msg="the same rng gave other clicks")


def _check_click_rates(user: User, n_positions: int) -> None:
    pages, about = _pages(user, n_positions)
    many = [np.repeat(values, _N_REPEATS, axis=0) for values in (pages, *about)]
    clicks = user.click(many[0], np.random.default_rng(0), *many[1:])
    rate = clicks.reshape(_N_PAGES, _N_REPEATS, n_positions).mean(axis=1)
    stated = user.click_probability(pages, *about)
    error = np.sqrt(np.maximum(stated * (1 - stated), 0.0) / _N_REPEATS)
    wrong = (np.abs(rate - stated) > _MAX_ERRORS * error + 1e-12) & _shown(user, pages)
    if wrong.any():
        page, place = np.argwhere(wrong)[0]
        raise AssertionError(
            f"position {place + 1} of a page was clicked in {rate[page, place]:.4f} of "
            f"{_N_REPEATS} sessions, but click_probability states {stated[page, place]:.4f} "
            f"(standard error {error[page, place]:.4f})"
        )


def _check_contexts(user: User, n_positions: int) -> None:
    if user.context_vectors is None:
        return
    vectors = user.context_vectors
    assert vectors.ndim == 2, f"context_vectors has the shape {vectors.shape}, expected 2 axes"
    table = user.examination_table(n_positions)
    _assert_probabilities(table, (len(vectors), n_positions), "examination_table")
    shown = np.arange(20 * n_positions).reshape(20, n_positions)
    drawn = user.draw_contexts(shown, np.random.default_rng(0))
    assert drawn.shape == shown.shape, (
        f"draw_contexts returned the shape {drawn.shape}, expected {shown.shape}"
    )
    good = drawn.dtype.kind in "iu" and ((drawn >= 0) & (drawn < len(vectors))).all()
    assert good, f"draw_contexts must return rows of context_vectors, 0 to {len(vectors) - 1}"


def _check_several_users(user: User, n_positions: int) -> None:
    if user.user_weights is None:
        return
    weights = np.asarray(user.user_weights)
    _assert_probabilities(weights, (len(weights),), "user_weights")
    np.testing.assert_allclose(weights.sum(), 1, err_msg="user_weights do not sum to 1")
    table = user.examination_table(n_positions)
    _assert_probabilities(table, (len(weights), n_positions), "examination_table")
    drawn = user.draw_query_weights(np.full(8, 1 / 8), np.random.default_rng(0))
    _assert_probabilities(drawn, (len(weights), 8), "draw_query_weights")
    np.testing.assert_allclose(
        drawn.sum(axis=1), 1, err_msg="rows of draw_query_weights do not sum to 1"
    )


def _check_grades(user: User, n_positions: int) -> None:
    read = user.read_grades(np.array([0.0, 1.0, 1.0, 0.0]))
    if read is not None:
        assert np.shape(read) == (4,), (
            f"read_grades returned the shape {np.shape(read)} for 4 documents"
        )
        assert (np.asarray(read) >= 0).all(), "read_grades returned -1, the mark of an empty place"


def _check_truth(user: User, n_positions: int) -> None:
    relevance = np.linspace(0.1, 1.0, 7)
    for name, found in (
        ("truth_at", user.truth_at(n_positions)),
        ("document_truth", user.document_truth(relevance)),
    ):
        good = hasattr(found, "keys") and all(isinstance(key, str) for key in found)
        assert good, f"{name} must return a mapping of names to values, got {found!r}"
    for key, values in user.document_truth(relevance).items():
        assert np.shape(values) == (7,), (
            f"document_truth[{key!r}] has the shape {np.shape(values)} for 7 documents"
        )


def _check_simulation(user: User, n_positions: int) -> None:
    X, clicks, truth = _simulate(user, n_positions)
    again, clicks_again, _ = _simulate(user, n_positions)
    same = X.equals(again) and np.array_equal(clicks, clicks_again)
    assert same, "simulate_clicks with the same random_state gave another log"
    hidden = X["position"].isna().to_numpy()
    assert not clicks[hidden].any(), "a candidate that was not shown was clicked"
    shapes = {"examination": (n_positions,), "relevance_probability": (len(_documents()),)}
    for key, shape in shapes.items():
        _assert_probabilities(truth[key], shape, f"truth.{key}")


def _check_pickle(user: User, n_positions: int) -> None:
    pages, about = _pages(user, n_positions)
    again = pickle.loads(pickle.dumps(user))
    np.testing.assert_array_equal(
        again.click_probability(pages, *about),
        user.click_probability(pages, *about),
        err_msg="pickle changed the user",
    )


_CHECKS = (
    _check_signatures,
    _check_examination,
    _check_grades,
    _check_click_probability,
    _check_shorter_pages,
    _check_clicks,
    _check_click_rates,
    _check_contexts,
    _check_several_users,
    _check_truth,
    _check_simulation,
    _check_pickle,
)
