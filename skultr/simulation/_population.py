"""Users who differ: each with an examination and with queries of their own."""

from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np

from .._models._browsing import pbm_click_probability, power_law_examination

__all__ = ["UserPopulation", "draw_sessions"]

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
class UserPopulation:
    """Position-based users, each with an examination curve and a query distribution of their own.

    Users who ask different queries *and* look at result pages differently confound examination
    with the query: one examination curve for all, however well it is known, then leaves a bias in
    the relevance of each query (personalised bias). A user stands for one person or for a cluster
    of people who behave alike. What is relevant is the same for all of them.

    With this user the log of :func:`simulate_clicks` has the role column ``user``, numbered from
    0. The truth has ``examination_table``, ``user_weights`` and ``query_weights``, and its
    ``examination`` is the mean curve.

    Parameters
    ----------
    etas : {5, 10, 20} or array-like of shape (n_users,), default=10
        User u examines position k with probability (1/k)^η_u. A number of users stands for the
        exponents of the paper, such as 2.5, 2, 1, 0.8, 0 for 5 users.
    decay : float, default=1.25
        Each user has on average so many times the sessions of the next one: with the exponents of
        the paper, most sessions are of users who hardly look beyond the top. 1: as many each.
    unasked : float in [0, 1) or None, default=0.5
        Share of the queries that a user never asks, drawn for each user and rounded down. The
        weights of the others are uniform over (0, 1], times the ``query_weights`` of
        :func:`simulate_clicks`. None: all users ask alike, by ``query_weights`` alone, so that
        search is not personalised.
    examination : array-like of shape (n_users, n_positions), default=None
        P(examined) by user and position, in place of ``etas``, which is then ignored.
    random_state : int, default=None
        Seed of who asks what. By default the ``random_state`` of :func:`simulate_clicks` decides;
        pass an int to keep the same users in several logs.

    Attributes
    ----------
    user_weights : ndarray of shape (n_users,)
        P(user), the expected share of each in the sessions.

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

    etas: object = 10
    decay: float = 1.25
    unasked: float | None = 0.5
    examination: object = None
    random_state: object = None

    def __post_init__(self):
        if self.examination is None:
            self._check_etas()
        else:
            self._check_examination()
        if not (isinstance(self.decay, Real) and 0 < self.decay < np.inf):
            raise ValueError(f"decay must be a finite number above 0, got {self.decay!r}.")
        if not (
            self.unasked is None or (isinstance(self.unasked, Real) and 0 <= self.unasked < 1)
        ):
            raise ValueError(
                f"unasked must be a share in [0, 1), or None if all users ask alike; got "
                f"{self.unasked!r}."
            )
        if not (self.random_state is None or isinstance(self.random_state, Integral)):
            raise ValueError(f"random_state must be an int or None, got {self.random_state!r}.")

    def _check_etas(self):
        found = self._exponents()
        # A lone number is refused unless it stands for a set of the paper.
        if found.ndim != 1 or not len(found) or not ((found >= 0) & (found < np.inf)).all():
            raise ValueError(
                "etas must be 5, 10 or 20, the users of the paper, or one exponent of at least 0 "
                f"a user; got {self.etas!r}."
            )

    def _check_examination(self):
        found = _as_floats(self.examination)
        if found.ndim != 2 or not found.size or not ((found >= 0) & (found <= 1)).all():
            raise ValueError(
                "examination must be a table of shape (n_users, n_positions) of probabilities in "
                f"[0, 1]; got the shape {found.shape}"
                + (" with other values." if found.ndim == 2 and found.size else ".")
            )

    def _exponents(self):
        if isinstance(self.etas, Integral) and self.etas in _OF_THE_PAPER:
            return np.array(_OF_THE_PAPER[self.etas], dtype=float)
        return _as_floats(self.etas)

    @property
    def user_weights(self):
        """P(user), the expected share of each user in the sessions."""
        n_users = len(self._exponents() if self.examination is None else self.examination)
        # Relative to the most active user, so that nothing overflows with thousands of users.
        exponent = np.arange(n_users) if self.decay >= 1 else np.arange(n_users) - (n_users - 1)
        weights = float(self.decay) ** -exponent
        return weights / weights.sum()

    def examination_table(self, n_positions):
        """P(examined) by each user at positions 1, ..., ``n_positions``.

        Parameters
        ----------
        n_positions : int

        Returns
        -------
        examination : ndarray of shape (n_users, n_positions)

        Raises
        ------
        ValueError
            If the examination is known for fewer positions.
        """
        if self.examination is None:
            return power_law_examination(n_positions, self._exponents()[:, None])
        table = _as_floats(self.examination)
        if n_positions > table.shape[1]:
            raise ValueError(
                f"The examination is given for {table.shape[1]} positions, but the lists have "
                f"n_positions={n_positions}. Pass examination= with a column for each, or etas=, "
                "the exponents of power laws; or show fewer positions."
            )
        return table[:, :n_positions]

    def examination_at(self, n_positions):
        """P(examined) at positions 1, ..., ``n_positions``, the mean over the sessions.

        Parameters
        ----------
        n_positions : int

        Returns
        -------
        examination : ndarray of shape (n_positions,)
        """
        return self.user_weights @ self.examination_table(n_positions)

    def draw_query_weights(self, query_weights, rng):
        """Draw what each user asks: P(query | user).

        Parameters
        ----------
        query_weights : ndarray of shape (n_queries,)
            P(query) if all users asked alike.
        rng : numpy.random.Generator
            Not used if the population has a ``random_state`` of its own.

        Returns
        -------
        query_weights : ndarray of shape (n_users, n_queries)
            Each row has the sum 1.
        """
        n_users = len(self.user_weights)
        if self.unasked is None:
            return np.tile(query_weights, (n_users, 1))
        if self.random_state is not None:
            rng = np.random.default_rng(self.random_state)
        # A query that nobody asks must not count as one of those that a user leaves out.
        asked = np.flatnonzero(query_weights)
        weights = 1 - rng.random((n_users, len(asked)))
        n_unasked = int(self.unasked * len(asked))
        left_out = rng.random(weights.shape).argsort(axis=1)[:, :n_unasked]
        np.put_along_axis(weights, left_out, 0.0, axis=1)
        table = np.zeros((n_users, len(query_weights)))
        table[:, asked] = weights * query_weights[asked]
        return table / table.sum(axis=1, keepdims=True)

    def click(self, relevance_probability, rng, user):
        """Draw the clicks of sessions.

        Parameters
        ----------
        relevance_probability : ndarray of shape (n_sessions, n_positions)
            P(found relevant | examined) of what each position shows; 0 where it shows nothing.
        rng : numpy.random.Generator
        user : ndarray of shape (n_sessions,), int
            User of each session, from 0.

        Returns
        -------
        clicks : ndarray of shape (n_sessions, n_positions), bool
        """
        examination = self.examination_table(relevance_probability.shape[1])[user]
        probability = pbm_click_probability(relevance_probability, examination)
        return rng.random(probability.shape) < probability


def _as_floats(values):
    """An array of floats; an empty one, which no check lets pass, where they are no numbers."""
    try:
        return np.array(values, dtype=float)
    except (TypeError, ValueError):
        return np.empty(0)


def draw_sessions(user_weights, query_weights, n_sessions, rng):
    """Draw who asks what: a user by P(user), then a query by P(query | user).

    Parameters
    ----------
    user_weights : ndarray of shape (n_users,)
    query_weights : ndarray of shape (n_users, n_queries)
    n_sessions : int
    rng : numpy.random.Generator

    Returns
    -------
    user, query : ndarray of shape (n_sessions,), int32
    """
    n_users, n_queries = query_weights.shape
    user = rng.choice(n_users, size=n_sessions, p=user_weights)
    cumulated = query_weights.cumsum(axis=1)
    # The rows of the table end to end are one rising scale: user u owns the part [u, u + 1).
    scale = (cumulated / cumulated[:, -1:] + np.arange(n_users)[:, None]).ravel()
    drawn = np.minimum(user + rng.random(n_sessions), np.nextafter(user + 1.0, 0))
    place = scale.searchsorted(drawn, side="right")
    return user.astype(np.int32), (place - user * n_queries).astype(np.int32)
