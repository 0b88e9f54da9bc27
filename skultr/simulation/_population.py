"""Users who differ: each has an examination curve and a query distribution."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike

from .._models._browsing import pbm_click_probability, power_law_examination
from .._typing import Bools, Floats, Ints
from ._given import are_probabilities, as_floats, check_seed, cut
from ._protocols import User, draw_clicks

#: Exponents of the power laws of Niu et al., sections 4.1 and 4.4, by number of users.
_OF_THE_PAPER = {
    5: (2.5, 2, 1, 0.8, 0),
    10: (2.5, 2.0, 1.8, 1.5, 1.2, 1.0, 0.8, 0.5, 0.2, 0),
    20: (
        *(2.5, 2.4, 2.2, 2, 1.9, 1.8, 1.6, 1.5, 1.4, 1.2),
        *(1.1, 1, 0.9, 0.8, 0.6, 0.5, 0.4, 0.2, 0.1, 0),
    ),
}


@dataclass(frozen=True, eq=False)
class UserPopulation(User):
    """Position-based users, each with an examination curve and a query distribution.

    Users who ask different queries *and* look at result pages differently confound examination
    with the query. One examination curve for all users, however well it is known, then leaves a
    bias in the relevance of each query (personalised bias). A user is one person or a cluster of
    people who behave alike. Relevance is the same for all users.

    With this user the log of :func:`simulate_clicks` has the role column ``user``, numbered from
    0. The truth has ``examination_table``, ``user_weights`` and ``query_weights``, and its
    ``examination`` is the mean curve.

    Parameters
    ----------
    etas : {5, 10, 20} or array-like of shape (n_users,), default=10
        User u examines position k with probability (1/k)^η_u. A number of users means the
        exponents of the paper, such as 2.5, 2, 1, 0.8, 0 for 5 users.
    decay : float, default=1.25
        Ratio of the expected sessions of a user to those of the next user. With the exponents of
        the paper, users who hardly look beyond the top have most sessions. With 1 all users have
        equally many.
    never_asked : float in [0, 1) or None, default=0.5
        Share of the queries that a user never asks, drawn for each user and rounded down. The
        weights of the other queries are uniform over (0, 1], times the ``query_weights`` of
        :func:`simulate_clicks`. None: all users ask alike, by ``query_weights`` alone.
    examination : array-like of shape (n_users, n_positions), default=None
        P(examined) by user and position; replaces ``etas``.
    random_state : int, default=None
        Seed of the queries that each user asks. By default the ``random_state`` of
        :func:`simulate_clicks` decides; pass an int to keep the same users in several logs.

    Attributes
    ----------
    user_weights : ndarray of shape (n_users,)
        P(user), the expected share of each user in the sessions.

    References
    ----------
    Z. Niu, L. Mei, L. Yang, Z. Zhao, Q. Yan, J. Mao and J.-R. Wen. Addressing personalized bias
    for unbiased learning to rank. Section 4.1, equations 10 and 11.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.simulation import UserPopulation, simulate_clicks
    >>> users = UserPopulation(5)
    >>> users.user_weights.round(2)
    array([0.3 , 0.24, 0.19, 0.15, 0.12])
    >>> users.examination_table(3).round(2)
    array([[1.  , 0.18, 0.06],
           [1.  , 0.25, 0.11],
           [1.  , 0.5 , 0.33],
           [1.  , 0.57, 0.42],
           [1.  , 1.  , 1.  ]])
    >>> documents = make_ltr(50, n_features=4, random_state=0)
    >>> X, clicks, truth = simulate_clicks(
    ...     documents, scores=documents["relevance"], user=users, n_sessions=100, random_state=0
    ... )
    >>> X.columns[:5].tolist()
    ['session', 'user', 'qid', 'doc', 'position']
    >>> truth.query_weights.shape, (truth.query_weights == 0).sum(axis=1).tolist()
    ((5, 50), [25, 25, 25, 25, 25])

    The examination probability of each impression, for an estimator that may know it:

    >>> propensity = truth.examination_table[X["user"], X["position"] - 1]
    """

    etas: ArrayLike = 10
    decay: float = 1.25
    never_asked: float | None = 0.5
    examination: ArrayLike | None = None
    random_state: int | None = None
    user_weights: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.examination is None:
            self._check_etas()
        else:
            self._check_examination()
        if not (isinstance(self.decay, Real) and 0 < self.decay < np.inf):
            raise ValueError(f"decay must be a finite number above 0, got {self.decay!r}.")
        if not (
            self.never_asked is None
            or (isinstance(self.never_asked, Real) and 0 <= self.never_asked < 1)
        ):
            raise ValueError(
                f"never_asked must be a share in [0, 1), or None if all users ask alike; got "
                f"{self.never_asked!r}."
            )
        check_seed(self.random_state)
        object.__setattr__(self, "user_weights", self._weights())

    def _check_etas(self) -> None:
        found = self._exponents()
        # A single number is refused unless it means a set of exponents of the paper.
        if found.ndim != 1 or not len(found) or not ((found >= 0) & (found < np.inf)).all():
            raise ValueError(
                "etas must be 5, 10 or 20, the users of the paper, or one exponent of at least 0 "
                f"per user; got {self.etas!r}."
            )

    def _check_examination(self) -> None:
        found = as_floats(self.examination)
        if found.ndim != 2 or not are_probabilities(found):
            raise ValueError(
                "examination must be a table of shape (n_users, n_positions) of probabilities in "
                f"[0, 1]; got the shape {found.shape}"
                + (" with other values." if found.ndim == 2 and found.size else ".")
            )

    def _exponents(self) -> Floats:
        if isinstance(self.etas, Integral) and self.etas in _OF_THE_PAPER:
            return np.array(_OF_THE_PAPER[int(self.etas)], dtype=float)
        return as_floats(self.etas)

    def _weights(self) -> Floats:
        given = self._exponents() if self.examination is None else as_floats(self.examination)
        n_users = len(given)
        # Relative to the most active user, so that nothing overflows with thousands of users.
        exponent = np.arange(n_users) if self.decay >= 1 else np.arange(n_users) - (n_users - 1)
        weights = float(self.decay) ** -exponent
        return weights / weights.sum()

    def examination_table(self, n_positions: int) -> Floats:
        """P(examined) by each user and position; see :meth:`User.examination_table`."""
        if self.examination is None:
            return power_law_examination(n_positions, self._exponents()[:, None])
        table = as_floats(self.examination)
        return cut("The examination", table, n_positions, "etas=, the exponents of power laws")

    def examination_at(self, n_positions: int) -> Floats:
        """P(examined) by position, the mean over the sessions; see :meth:`User.examination_at`."""
        return self.user_weights @ self.examination_table(n_positions)

    def draw_query_weights(self, query_weights: Floats, rng: np.random.Generator) -> Floats:
        """Draw which queries each user asks; see :meth:`User.draw_query_weights`.

        ``rng`` is not used if the population has a ``random_state``.
        """
        if self.never_asked is None:
            return super().draw_query_weights(query_weights, rng)
        if self.random_state is not None:
            rng = np.random.default_rng(self.random_state)
        # A query that nobody asks must not count among the queries that a user never asks.
        asked = np.flatnonzero(query_weights)
        weights = 1 - rng.random((len(self.user_weights), len(asked)))
        n_left_out = int(self.never_asked * len(asked))
        left_out = rng.random(weights.shape).argsort(axis=1)[:, :n_left_out]
        np.put_along_axis(weights, left_out, 0.0, axis=1)
        table = np.zeros((len(weights), len(query_weights)))
        table[:, asked] = weights * query_weights[asked]
        return table / table.sum(axis=1, keepdims=True)

    def click_probability(self, relevance_probability: Floats, user: Ints | None = None) -> Floats:
        """P(click) at each position of a user's page; see :meth:`User.click_probability`.

        Parameters
        ----------
        relevance_probability : ndarray of shape (n_sessions, n_positions)
        user : ndarray of shape (n_sessions,), int, default=None
            User of each session, from 0. None: the mean over users.

        Returns
        -------
        probability : ndarray of shape (n_sessions, n_positions)
        """
        n_positions = relevance_probability.shape[1]
        if user is None:
            examination = self.examination_at(n_positions)
        else:
            examination = self.examination_table(n_positions)[user]
        return pbm_click_probability(relevance_probability, examination)

    def click(
        self,
        relevance_probability: Floats,
        rng: np.random.Generator,
        user: Ints | None = None,
    ) -> Bools:
        """Draw clicks with the probabilities of :meth:`click_probability`.

        Without ``user`` each session draws its user by P(user).
        """
        if user is None:
            n_users = len(self.user_weights)
            user = rng.choice(n_users, size=len(relevance_probability), p=self.user_weights)
        return draw_clicks(self.click_probability(relevance_probability, user), rng)


def draw_sessions(
    user_weights: Floats, query_weights: Floats, n_sessions: int, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Draw the user of each session by P(user), then its query by P(query | user)."""
    n_users, n_queries = query_weights.shape
    user = rng.choice(n_users, size=n_sessions, p=user_weights)
    cumulated = query_weights.cumsum(axis=1)
    # The rows of the table one after another increase: user u has the interval [u, u + 1).
    scale = (cumulated / cumulated[:, -1:] + np.arange(n_users)[:, None]).ravel()
    drawn = np.minimum(user + rng.random(n_sessions), np.nextafter(user + 1.0, 0))
    place = scale.searchsorted(drawn, side="right")
    return user.astype(np.int32), (place - user * n_queries).astype(np.int32)
