"""Policies that experiment (swaps, shuffles), and several rankers that share the traffic."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._typing import Floats, Ints
from ._given import as_floats
from ._policies import DeterministicPolicy
from ._protocols import Policy

#: Disjoint pairs of positions (from 0), each of which is swapped with probability 1/2.
Layout = list[tuple[int, int]]
#: All positions in random order.
SHUFFLE: Layout = []

#: Lists shuffled at a time, so that memory does not grow with the number of sessions.
_CHUNK = 65_536


@dataclass(frozen=True)
class SwapPolicy(Policy):
    """Documents by falling score, but in some sessions two of them may be exchanged.

    This experiment measures examination at little cost to the users: the same documents are
    shown at both positions of a pair, equally often, so that the click rates differ by the
    examination alone. Each session of the experiment draws one pair of positions, and exchanges
    the documents at the two with probability 1/2.

    With this policy the log of :func:`simulate_clicks` has a column ``arm``: the deeper position
    of the pair on its two rows, *whether or not they were exchanged*, and NaN on all other rows.
    The column has no role. It is for estimators that read the experiment; a ranker would take it
    for a feature of the document.

    Parameters
    ----------
    swaps : {'pivot', 'adjacent'}, default='pivot'
        Pairs to draw from. 'pivot': the first position and position k; 'adjacent': positions
        k - 1 and k. With n documents shown, k is uniform over 2, ..., n, so that a list of one
        document is never part of the experiment.
    share : float in [0, 1], default=1.0
        Probability that a session is part of the experiment.

    References
    ----------
    T. Joachims, A. Swaminathan and T. Schnabel (2017). Unbiased learning-to-rank with biased
    feedback. WSDM. (Swaps with the first position.)

    N. Craswell, O. Zoeter, M. Taylor and B. Ramsey (2008). An experimental comparison of click
    position-bias models. WSDM. (Swaps of neighbours.)

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.simulation import SwapPolicy
    >>> scores, offsets, sessions = np.array([3.0, 2.0, 1.0]), np.array([0, 3]), np.zeros(3, int)
    >>> rng = np.random.default_rng(1)
    >>> rows, arm = SwapPolicy().rank_with_arms(scores, offsets, sessions, 3, rng)
    >>> rows
    array([[2, 1, 0],
           [0, 1, 2],
           [1, 0, 2]], dtype=int32)
    >>> arm
    array([[ 3., nan,  3.],
           [ 3., nan,  3.],
           [ 2.,  2., nan]], dtype=float32)

    In the second session the first and the third document could have been exchanged, but were not.
    """

    swaps: str = "pivot"
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.swaps not in ("pivot", "adjacent"):
            raise ValueError(f"swaps must be 'pivot' or 'adjacent', got {self.swaps!r}.")
        _check_share(self.share)

    def rank(
        self,
        scores: Floats,
        offsets: Ints,
        query: Ints,
        n_positions: int,
        rng: np.random.Generator,
    ) -> Ints:
        """Rows of the documents that each session shows; see :meth:`Policy.rank`."""
        return self.rank_with_arms(scores, offsets, query, n_positions, rng)[0]

    def rank_with_arms(
        self,
        scores: Floats,
        offsets: Ints,
        query: Ints,
        n_positions: int,
        rng: np.random.Generator,
    ) -> tuple[Ints, NDArray[np.float32]]:
        """Rows shown, and the deeper position of the pair; see :meth:`Policy.rank_with_arms`."""
        rows = DeterministicPolicy().rank(scores, offsets, query, n_positions, rng)
        session = _draw_experiment(rows, self.share, rng)
        length = np.count_nonzero(rows[session] >= 0, axis=1)
        deeper = rng.integers(2, length, endpoint=True)
        upper = deeper - 1 if self.swaps == "adjacent" else np.ones_like(deeper)
        arm = np.full(rows.shape, np.nan, dtype=np.float32)
        arm[session, upper - 1] = arm[session, deeper - 1] = deeper
        swapped = rng.random(len(session)) < 0.5
        session, upper, deeper = session[swapped], upper[swapped] - 1, deeper[swapped] - 1
        first = rows[session, upper]
        rows[session, upper] = rows[session, deeper]
        rows[session, deeper] = first
        return rows, arm


@dataclass(frozen=True)
class ShufflePolicy(Policy):
    """Documents by falling score, but some sessions show them in random order.

    Among shuffled lists of one length, examination is proportional to the click rate by position.
    A shuffle costs users more than a swap; unlike :class:`UniformPolicy` it shows the documents
    with the best scores.

    With this policy the log of :func:`simulate_clicks` has a column ``arm``: 0 on all rows of a
    shuffled list, NaN on the other lists; see :class:`SwapPolicy`. A list of
    one document is never part of the experiment.

    Parameters
    ----------
    share : float in [0, 1], default=1.0
        Probability that a session is part of the experiment.

    References
    ----------
    X. Wang, M. Bendersky, D. Metzler and M. Najork (2016). Learning to rank with selection bias
    in personal search. SIGIR.

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.simulation import ShufflePolicy
    >>> scores, offsets, sessions = np.arange(9.0), np.array([0, 9]), np.zeros(3, int)
    >>> rng = np.random.default_rng(3)
    >>> rows, arm = ShufflePolicy(share=0.5).rank_with_arms(scores, offsets, sessions, 3, rng)
    >>> rows
    array([[7, 6, 8],
           [7, 8, 6],
           [8, 7, 6]], dtype=int32)
    >>> arm
    array([[ 0.,  0.,  0.],
           [ 0.,  0.,  0.],
           [nan, nan, nan]], dtype=float32)
    """

    share: float = 1.0

    def __post_init__(self) -> None:
        _check_share(self.share)

    def rank(
        self,
        scores: Floats,
        offsets: Ints,
        query: Ints,
        n_positions: int,
        rng: np.random.Generator,
    ) -> Ints:
        """Rows of the documents that each session shows; see :meth:`Policy.rank`."""
        return self.rank_with_arms(scores, offsets, query, n_positions, rng)[0]

    def rank_with_arms(
        self,
        scores: Floats,
        offsets: Ints,
        query: Ints,
        n_positions: int,
        rng: np.random.Generator,
    ) -> tuple[Ints, NDArray[np.float32]]:
        """Rows shown, and 0 on shuffled rows; see :meth:`Policy.rank_with_arms`."""
        rows = DeterministicPolicy().rank(scores, offsets, query, n_positions, rng)
        session = _draw_experiment(rows, self.share, rng)
        arm = np.full(rows.shape, np.nan, dtype=np.float32)
        for start in range(0, len(session), _CHUNK):
            chunk = session[start : start + _CHUNK]
            there = rows[chunk] >= 0
            order = np.where(there, rng.random(there.shape), np.inf).argsort(axis=1)
            rows[chunk] = np.take_along_axis(rows[chunk], order, axis=1)
            arm[chunk] = np.where(there, np.float32(0), np.float32(np.nan))
        return rows, arm


@dataclass(frozen=True, eq=False)
class MixturePolicy(Policy):
    """Several rankers share the traffic: one of them ranks each session.

    The log is that of an A/B test, or of a product whose ranker was replaced from time to time.
    Where rankers disagree, a document is shown at several positions for a reason that does not
    depend on the user, which intervention harvesting needs.

    Pass ``scores`` of shape (n_documents, n_rankers) to :func:`simulate_clicks`, one column per
    ranker; every ranker shows documents by falling score. :func:`production_scores` with several
    seeds (and several values of ``fraction``, for rankers of different quality) makes different
    rankers.

    Parameters
    ----------
    weights : array-like of shape (n_rankers,) or (n_queries, n_rankers), default=None
        Shares of the traffic, or of that of each query (by rising id), in any unit. By default
        all rankers have the same.

    References
    ----------
    A. Agarwal, I. Zaitsev, X. Wang, C. Li, M. Najork and T. Joachims (2019). Estimating position
    bias without intrusive interventions. WSDM.

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.datasets import make_ltr
    >>> from skultr.simulation import MixturePolicy, production_scores, simulate_clicks
    >>> documents = make_ltr(200, random_state=0)
    >>> scores = np.column_stack(
    ...     [production_scores(documents, random_state=seed) for seed in range(3)]
    ... )
    >>> X, clicks, truth = simulate_clicks(
    ...     documents,
    ...     scores=scores,
    ...     policy=MixturePolicy([0.5, 0.25, 0.25]),
    ...     n_sessions=10_000,
    ...     features=False,
    ...     random_state=0,
    ... )
    >>> bool(X.groupby("doc")["position"].nunique().max() == 3)
    True
    """

    several_rankers: ClassVar[bool] = True

    weights: ArrayLike | None = None

    def __post_init__(self) -> None:
        if self.weights is None:
            return
        found = as_floats(self.weights)
        valid = found.ndim in (1, 2) and (np.isfinite(found) & (found >= 0)).all()
        if not valid or not found.any(axis=-1).all():
            raise ValueError(
                "weights must be the shares of the rankers in the traffic (or in that of each "
                "query), one finite number of at least 0 per ranker and not all 0; got "
                f"{self.weights!r}."
            )

    def rank(
        self,
        scores: Floats,
        offsets: Ints,
        query: Ints,
        n_positions: int,
        rng: np.random.Generator,
    ) -> Ints:
        """Rows of the documents that each session shows; see :meth:`Policy.rank`."""
        n_rankers, n_queries = scores.shape[1], len(offsets) - 1
        shares = np.ones(n_rankers) if self.weights is None else as_floats(self.weights)
        if shares.shape[-1] != n_rankers:
            raise ValueError(
                f"MixturePolicy has {shares.shape[-1]} weights, but scores has {n_rankers} "
                "columns; expected one weight per ranker."
            )
        if shares.ndim == 2 and len(shares) != n_queries:
            raise ValueError(
                f"MixturePolicy has weights of {len(shares)} queries, but there are {n_queries}; "
                "expected one row per query."
            )
        ranker = _draw_action(shares / shares.sum(axis=-1, keepdims=True), query, rng)
        queries = np.arange(n_queries)
        lists = [
            DeterministicPolicy().rank(column, offsets, queries, n_positions, rng)
            for column in scores.T
        ]
        return np.stack(lists)[np.minimum(ranker, n_rankers - 1), query]  # up to rounding


@dataclass(frozen=True, eq=False)
class LayoutPolicy(Policy):
    """Swaps and shuffles in shares of the pages of each query; others are as of production.

    The column ``arm`` numbers the pairs of positions of swaps; it is 0 on shuffled rows.
    """

    shares: Floats  # (n_queries, n_layouts)
    layouts: list[Layout]  # disjoint pairs of positions, from 0; or SHUFFLE
    depth: int  # positions that a shuffle reorders
    production: Policy

    def rank(
        self,
        scores: Floats,
        offsets: Ints,
        query: Ints,
        n_positions: int,
        rng: np.random.Generator,
    ) -> Ints:
        """Rows of the documents that each session shows; see :meth:`Policy.rank`."""
        return self.rank_with_arms(scores, offsets, query, n_positions, rng)[0]

    def rank_with_arms(
        self,
        scores: Floats,
        offsets: Ints,
        query: Ints,
        n_positions: int,
        rng: np.random.Generator,
    ) -> tuple[Ints, NDArray[np.float32]]:
        """Rows shown, and the number of the pair; see :meth:`Policy.rank_with_arms`."""
        rows = self.production.rank(scores, offsets, query, n_positions, rng).copy()
        arm = np.full(rows.shape, np.nan, dtype=np.float32)
        drawn = _draw_action(self.shares, query, rng)
        for number, pairs in enumerate(self.layouts):
            chosen = np.flatnonzero(drawn == number)
            if pairs == SHUFFLE:
                page = rows[chosen, : self.depth]
                order = np.where(page >= 0, rng.random(page.shape), np.inf).argsort(axis=1)
                rows[chosen, : self.depth] = np.take_along_axis(page, order, axis=1)
                arm[chosen, : self.depth] = np.where(page >= 0, 0, np.nan)
            for i, j in (pair for pair in pairs if pair[1] < n_positions):
                of = chosen[rows[chosen, j] >= 0]
                arm[of, i] = arm[of, j] = i * self.depth + j
                of = of[rng.random(len(of)) < 0.5]
                rows[of, i], rows[of, j] = rows[of, j], rows[of, i]
        return rows, arm


def _draw_action(shares: Floats, query: Ints, rng: np.random.Generator) -> Ints:
    """Number of the action of each session, from shares (by query); behind the last for none."""
    ends = shares.cumsum(axis=-1)
    return (rng.random((len(query), 1)) >= (ends[query] if ends.ndim == 2 else ends)).sum(axis=1)


def _check_share(share: float) -> None:
    if not (isinstance(share, Real) and 0 <= share <= 1):
        raise ValueError(
            f"share must be a number in [0, 1], the share of the sessions that are part of the "
            f"experiment; got {share!r}."
        )


def _draw_experiment(rows: Ints, share: float, rng: np.random.Generator) -> Ints:
    """Sessions that are part of the experiment, each with at least two documents."""
    drawn = rng.random(len(rows)) < share
    return np.flatnonzero(drawn & (np.count_nonzero(rows >= 0, axis=1) >= 2))
