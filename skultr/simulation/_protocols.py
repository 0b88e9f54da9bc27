"""What a simulation asks of a policy and of a user: two base classes that hold every hook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._base._typing import Bools, Floats, Ints


class Policy(ABC):
    """Base class of logging policies: who ranked the documents that the users of a log saw.

    A policy of your own derives from it and writes :meth:`rank`. One that experiments overrides
    :meth:`rank_with_arms` as well, which also says what was left to chance.

    Attributes
    ----------
    several_rankers : bool
        Set it to True on the class if ``rank`` takes scores of shape (n_documents, n_rankers),
        one column per ranker, as :class:`MixturePolicy` does.

    Examples
    --------
    A policy that shows the worst documents first:

    >>> import numpy as np
    >>> from skultr.simulation import DeterministicPolicy, Policy
    >>> class WorstFirst(Policy):
    ...     def rank(self, scores, offsets, query, n_positions, rng):
    ...         return DeterministicPolicy().rank(-scores, offsets, query, n_positions, rng)
    >>> scores, offsets = np.array([0.1, 0.9, 0.5, 0.2]), np.array([0, 3, 4])
    >>> WorstFirst().rank(scores, offsets, np.array([0, 1]), 2, np.random.default_rng(0))
    array([[ 0,  2],
           [ 3, -1]], dtype=int32)
    """

    several_rankers: ClassVar[bool] = False

    @abstractmethod
    def rank(
        self,
        scores: Floats,
        offsets: Ints,
        query: Ints,
        n_positions: int,
        rng: np.random.Generator,
    ) -> Ints:
        """Rows of the documents that each session shows.

        Parameters
        ----------
        scores : ndarray of shape (n_documents,)
            Scores of the production ranker, query by query. Of shape (n_documents, n_rankers) if
            ``several_rankers``.
        offsets : ndarray of shape (n_queries + 1,)
            Query q owns the rows ``offsets[q]`` to ``offsets[q + 1] - 1``.
        query : ndarray of shape (n_sessions,), int
            Query of each session, from 0.
        n_positions : int
        rng : numpy.random.Generator
            The only source of randomness.

        Returns
        -------
        rows : ndarray of shape (n_sessions, n_positions), int
            -1 behind the end of a list that is shorter.
        """

    def rank_with_arms(
        self,
        scores: Floats,
        offsets: Ints,
        query: Ints,
        n_positions: int,
        rng: np.random.Generator,
    ) -> tuple[Ints, NDArray[np.floating[Any]] | None]:
        """Rows of the documents that each session shows, and what of it was left to chance.

        Parameters
        ----------
        scores, offsets, query, n_positions, rng
            As for :meth:`rank`.

        Returns
        -------
        rows : ndarray of shape (n_sessions, n_positions), int
            As from :meth:`rank`.
        arm : ndarray of shape (n_sessions, n_positions), float, or None
            Rows of a session with the same number exchanged their documents at random; NaN where
            nothing was left to chance. None (the default) without an experiment.
        """
        return self.rank(scores, offsets, query, n_positions, rng), None


class User(ABC):
    """Base class of users: what is clicked, given what a page shows.

    A user of your own derives from it and writes :meth:`examination_at` and
    :meth:`click_probability`. Every row of a session is then clicked independently of the others,
    with the probability that ``click_probability`` states. Where the clicks of a session depend
    on each other, override :meth:`click` as well; ``click_probability`` is then the probability
    before any click of the session is known. :func:`skultr.testing.check_user` checks the result.

    Everything else is optional:

    - *Another judgement than relevance*: :meth:`read_grades`, see :class:`ClickMatrixUser`.
    - *What the truth should say*: :meth:`truth_at`, :meth:`document_truth`, see
      :class:`DBNUser`.
    - *Pages that end early matter*: ``marks_empty``, see :class:`CarouselUser`.
    - *Contexts*: ``context_vectors`` and :meth:`examination_table`, and, unless all contexts are
      equally likely, :meth:`draw_contexts`. ``click`` and ``click_probability`` then take the
      context of each impression as one more argument, see :class:`ContextualPositionBasedUser`.
    - *Several users in one*: ``user_weights`` and :meth:`examination_table`, and, unless all users
      ask alike, :meth:`draw_query_weights`. ``click`` and ``click_probability`` then take the user
      of each session as one more argument, see :class:`UserPopulation`.

    Attributes
    ----------
    marks_empty : bool
        Set it to True on the class to get -1 instead of 0 where a page shows nothing.
    context_vectors : ndarray of shape (n_contexts, n_context_features) or None
        The contexts; None (the default) without contexts.
    user_weights : ndarray of shape (n_users,) or None
        P(user), which sums to 1; None (the default) where all sessions have the same user.

    Examples
    --------
    A user who looks at the first two positions only:

    >>> import numpy as np
    >>> from skultr.simulation import User
    >>> class HastyUser(User):
    ...     def examination_at(self, n_positions):
    ...         return np.where(np.arange(n_positions) < 2, 1.0, 0.0)
    ...
    ...     def click_probability(self, relevance_probability):
    ...         n_positions = relevance_probability.shape[1]
    ...         return relevance_probability * self.examination_at(n_positions)
    >>> clicks = HastyUser().click(np.full((100_000, 3), 0.5), np.random.default_rng(0))
    >>> clicks.mean(axis=0).round(2).tolist()
    [0.5, 0.5, 0.0]
    """

    marks_empty: ClassVar[bool] = False
    context_vectors: Floats | None = None
    user_weights: Floats | None = None

    @abstractmethod
    def examination_at(self, n_positions: int) -> Floats:
        """P(examined) at positions 1, ..., ``n_positions``.

        Where examination depends on more than the position, the docstring of the user says which
        curve stands for it: that of the neutral context, the mean over users, that of a page
        without clicks.

        Parameters
        ----------
        n_positions : int

        Returns
        -------
        examination : ndarray of shape (n_positions,)

        Raises
        ------
        ValueError
            If the examination is known for fewer positions.
        """

    @abstractmethod
    def click_probability(self, relevance_probability: NDArray[Any]) -> Floats:
        """P(click) at each position before any click of the session is known.

        Parameters
        ----------
        relevance_probability : ndarray of shape (n_sessions, n_positions)
            P(found relevant | examined) of what each position shows; what :meth:`read_grades`
            returned, if that is written. Where a position shows nothing it is 0, or -1 with
            ``marks_empty`` or ``read_grades``; pages end early, so that these are the last
            positions of a session.

        Returns
        -------
        probability : ndarray of shape (n_sessions, n_positions)
            In [0, 1]. Its value where nothing is shown is not read.
        """

    def click(self, relevance_probability: NDArray[Any], rng: np.random.Generator) -> Bools:
        """Draw the clicks of sessions.

        Parameters
        ----------
        relevance_probability : ndarray of shape (n_sessions, n_positions)
            As for :meth:`click_probability`.
        rng : numpy.random.Generator
            The only source of randomness.

        Returns
        -------
        clicks : ndarray of shape (n_sessions, n_positions), bool
            Their value where nothing is shown is not read.
        """
        return draw_clicks(self.click_probability(relevance_probability), rng)

    def read_grades(self, grade: Floats) -> NDArray[Any] | None:
        """What this user judges documents by, in place of the relevance probability.

        Parameters
        ----------
        grade : ndarray of shape (n_documents,)
            Column ``relevance`` of the documents.

        Returns
        -------
        judged : ndarray of shape (n_documents,) or None
            None (the default): the user goes by the relevance probability.
        """
        return None

    def truth_at(self, n_positions: int) -> Mapping[str, Any]:
        """Entries for the truth of :func:`simulate_clicks` about this user.

        Parameters
        ----------
        n_positions : int

        Returns
        -------
        truth : mapping of str to object
            Empty by default.
        """
        return {}

    def document_truth(self, relevance_probability: Floats) -> Mapping[str, Floats]:
        """Entries for the truth of :func:`simulate_clicks` about each document.

        Parameters
        ----------
        relevance_probability : ndarray of shape (n_documents,)

        Returns
        -------
        truth : mapping of str to ndarray of shape (n_documents,)
            Empty by default.
        """
        return {}

    def examination_table(self, n_positions: int) -> Floats:
        """P(examined) in each context, or by each user, at positions 1, ..., ``n_positions``.

        Parameters
        ----------
        n_positions : int

        Returns
        -------
        examination : ndarray of shape (n_contexts or n_users, n_positions)
        """
        raise NotImplementedError(
            f"{type(self).__name__} has contexts or several users, but no examination_table: "
            "write examination_table(n_positions), one row per context or user."
        )

    def draw_contexts(self, shown: Ints, rng: np.random.Generator) -> Ints:
        """Draw the context of each impression; called once for all sessions of a log.

        Parameters
        ----------
        shown : ndarray of shape (n_sessions, n_positions), int
            Row of the document at each position, -1 where there is none.
        rng : numpy.random.Generator

        Returns
        -------
        context : ndarray of shape (n_sessions, n_positions), int
            Row of ``context_vectors``, by default uniformly distributed. A context also stands
            where nothing is shown.
        """
        assert self.context_vectors is not None
        return rng.integers(len(self.context_vectors), size=shown.shape, dtype=np.int32)

    def draw_query_weights(self, query_weights: Floats, rng: np.random.Generator) -> Floats:
        """Draw which queries each user asks: P(query | user).

        Parameters
        ----------
        query_weights : ndarray of shape (n_queries,)
            P(query) if all users asked alike.
        rng : numpy.random.Generator

        Returns
        -------
        query_weights : ndarray of shape (n_users, n_queries)
            Each row sums to 1. By default all users ask alike.
        """
        assert self.user_weights is not None
        return np.tile(query_weights, (len(self.user_weights), 1))


def draw_clicks(probability: Floats, rng: np.random.Generator) -> Bools:
    """Independent clicks with the given probabilities."""
    return rng.random(probability.shape) < probability


def check_instance(name: str, value: object, base: type) -> None:
    """Refuse a policy or user that does not derive from its base class."""
    if isinstance(value, base):
        return
    found = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
    raise TypeError(
        f"{name} is {found}; expected an instance of a class derived from "
        f"skultr.simulation.{base.__name__}, which holds the methods that are optional. "
        f"Write class Mine({base.__name__}): ... and pass {name}=Mine()."
    )
