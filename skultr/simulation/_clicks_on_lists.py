"""Clicks of simulated users on result lists that something else made."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from .._log._reader import Rows, read
from .._log._segments import encode
from .._typing import Frame, Ints, RandomState
from ._generate import click_pages
from ._protocols import User, check_instance
from ._users import PositionBasedUser, relevance_probability


def clicks_on_lists(
    X: Frame,
    user: User | None = None,
    *,
    noise: float = 0.1,
    max_grade: float = 4,
    gain: str = "exponential",
    random_state: RandomState = None,
) -> Ints:
    """What simulated users click on lists that are given, such as interleaved ones.

    :func:`simulate_clicks` makes the lists as well.

    Parameters
    ----------
    X : DataFrame of shape (n_rows, n_columns)
        The lists, one row per shown document, with the roles ``qid``, ``session``, ``position``
        (1, 2, ... without gaps in a list; missing where a row was not shown) and ``relevance``.
    user : User, default=None
        By default ``PositionBasedUser()``; without contexts, and not several in one.
    noise, max_grade, gain
        From ``relevance`` to P(found relevant | examined): see :func:`relevance_probability`. If
        ``relevance`` is that probability, pass ``noise=0, max_grade=1, gain="linear"``.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    clicks : ndarray of shape (n_rows,), int8
        1 where the user clicked, else 0.

    Raises
    ------
    ValueError
        If a role is missing or invalid, a list has a gap, a row stands for several impressions,
        or the user has contexts or is a population.
    TypeError
        If ``user`` does not derive from :class:`User`.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.evaluation import Interleaver, interleaving_outcome
    >>> from skultr.simulation import clicks_on_lists
    >>> documents = make_ltr(200, random_state=0)
    >>> documents["new"] = documents["feature_000"] + documents["relevance"]
    >>> lists = Interleaver(random_state=0).interleave(
    ...     documents, ["feature_000", "new"], sessions=2000
    ... )
    >>> lists = lists.merge(documents[["qid", "doc", "relevance"]])
    >>> clicks = clicks_on_lists(lists, random_state=0)
    >>> interleaving_outcome(lists, clicks).verdict.split(":")[0]
    'new beats feature_000'
    """
    user = PositionBasedUser() if user is None else user
    check_instance("user", user, User)
    if user.user_weights is not None or user.context_vectors is not None:
        raise ValueError(
            f"{type(user).__name__} needs the user or the context of each row, which only "
            "simulate_clicks draws; expected one user without contexts."
        )
    names = ("qid", "session", "position", "relevance")
    need = dict.fromkeys(names, "to know what each session saw")
    rows = read(X, reads=[*names, "impressions"], need=need, caller="clicks_on_lists")
    pages, grade = _pages(rows), rows["relevance"]
    probability = relevance_probability(
        np.where(rows.shown, grade, 0.0), noise=noise, max_grade=max_grade, gain=gain
    )
    clicks = np.zeros(rows.n_rows, dtype=np.int8)
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31, size=4))
    clicks[pages[pages >= 0]] = click_pages(user, pages, probability, grade, rng)
    return clicks


def _pages(rows: Rows) -> Ints:
    """Rows that each list shows, of shape (n_lists, n_positions), -1 behind the end of a list."""
    shown = np.flatnonzero(rows.shown)
    list_, position = encode(rows.list_[shown])[0], rows.position[shown]
    length = np.bincount(list_)
    if (rows.impressions[shown] != 1).any() or (position > length[list_]).any():
        raise ValueError(
            "X holds rows of several impressions, or a list with a gap; expected one row per "
            "shown document of a session, and positions 1, 2, ... in each session and query."
        )
    pages = np.full((len(length), length.max(initial=0)), -1)
    pages[list_, position - 1] = shown
    return pages
