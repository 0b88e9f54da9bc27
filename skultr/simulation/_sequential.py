"""Users who read down the list: what they examine next depends on what they clicked above.

Each is the user of one click model of :mod:`skultr.click_models`, and both use the same formulas
(:mod:`skultr._models._browsing`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._models._browsing import (
    chain_click_probability,
    draw_chain_clicks,
    draw_ubm_clicks,
    ubm_click_probability,
)
from .._typing import Bools, Floats
from ._given import are_probabilities, as_floats, check_probability, curve_at, cut
from ._protocols import User


class SequentialUser(User):
    """A user who reads down, clicks what attracts, and may stop after each row.

    Subclasses write ``_going_on(relevance_probability)``: the probabilities of going on to the
    next position after a skip and after a click, both of a shape that broadcasts to that of the
    relevance.
    """

    def _going_on(self, relevance_probability: Floats) -> tuple[ArrayLike, ArrayLike]:
        raise NotImplementedError

    def examination_at(self, n_positions: int) -> Floats:
        """P(examined) by position on a page where nothing is clicked.

        A user who reads down has no examination curve: examination depends on what stands above.
        See :meth:`User.examination_at`.
        """
        nothing = np.zeros((1, n_positions))
        after_skip = np.broadcast_to(self._going_on(nothing)[0], nothing.shape)[0]
        return np.append(1.0, np.cumprod(after_skip[:-1]))

    def click_probability(self, relevance_probability: Floats) -> Floats:
        """P(click) by position before any click is known; see :meth:`User.click_probability`."""
        return chain_click_probability(
            relevance_probability, *self._going_on(relevance_probability)
        )

    def click(self, relevance_probability: Floats, rng: np.random.Generator) -> Bools:
        """Draw the clicks of sessions; see :meth:`User.click`."""
        return draw_chain_clicks(
            relevance_probability, *self._going_on(relevance_probability), rng
        )


@dataclass(frozen=True, eq=False)
class DBNUser(SequentialUser):
    """The user of the dynamic Bayesian network: reads down until satisfied or tired.

    An examined document is clicked with probability R, its attraction, which is its relevance
    probability. A clicked document satisfies with probability S = ``satisfaction`` R, and a
    satisfied user leaves. A user who is not satisfied goes on to the next position with
    probability γ, after a click and after a skip.

    The truth of :func:`simulate_clicks` has ``continuation`` (γ), and ``attraction`` and
    ``satisfaction``, of shape (n_documents,); its ``examination`` is γ^(k − 1), the examination
    of a page where nothing is clicked.

    Parameters
    ----------
    continuation : float in [0, 1], default=0.9
        γ, P(goes on | not satisfied). With 1 this is the user of the simplified DBN.
    satisfaction : float in [0, 1], default=0.5
        S / R: P(satisfied | clicked) of a document with R = 1. Deffayet et al. use 0.5, so that
        a user sometimes needs more than one click even on a perfect page.

    Raises
    ------
    ValueError
        If a parameter is no probability.

    References
    ----------
    O. Chapelle and Y. Zhang (2009). A dynamic Bayesian network click model for web search
    ranking. WWW.

    R. Deffayet, P. Hager, J.-M. Renders and M. de Rijke (2023). An offline metric for the
    debiasedness of click models. SIGIR. Section 5.1.4.

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.simulation import DBNUser
    >>> user = DBNUser(continuation=0.5, satisfaction=1.0)
    >>> user.click_probability(np.array([[0.8, 0.5]]))
    array([[0.8 , 0.09]])
    >>> clicks = user.click(np.tile([0.8, 0.5], (100_000, 1)), np.random.default_rng(0))
    >>> clicks.mean(axis=0).round(2).tolist()
    [0.8, 0.09]
    """

    continuation: float = 0.9
    satisfaction: float = 0.5

    def __post_init__(self) -> None:
        check_probability("continuation", self.continuation)
        check_probability("satisfaction", self.satisfaction)

    def truth_at(self, n_positions: int) -> Mapping[str, Any]:
        """``continuation``; see :meth:`User.truth_at`."""
        return {"continuation": self.continuation}

    def document_truth(self, relevance_probability: Floats) -> Mapping[str, Floats]:
        """``attraction`` and ``satisfaction``; see :meth:`User.document_truth`."""
        return {
            "attraction": relevance_probability,
            "satisfaction": self.satisfaction * relevance_probability,
        }

    def _going_on(self, relevance_probability: Floats) -> tuple[ArrayLike, ArrayLike]:
        unsatisfied = 1 - self.satisfaction * relevance_probability
        return self.continuation, self.continuation * unsatisfied


@dataclass(frozen=True, eq=False)
class CascadeUser(SequentialUser):
    """A user who reads down to the first click and leaves.

    The ``examination`` in the truth of :func:`simulate_clicks` is 1 everywhere, the examination
    of a page where nothing is clicked.

    References
    ----------
    N. Craswell, O. Zoeter, M. Taylor and B. Ramsey (2008). An experimental comparison of click
    position-bias models. WSDM.

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.simulation import CascadeUser
    >>> CascadeUser().click_probability(np.array([[0.5, 0.5, 0.5]]))
    array([[0.5  , 0.25 , 0.125]])
    """

    def _going_on(self, relevance_probability: Floats) -> tuple[ArrayLike, ArrayLike]:
        return 1.0, 0.0


@dataclass(frozen=True, eq=False)
class DCMUser(SequentialUser):
    """The user of the dependent click model: a cascade that may go on after a click.

    After a click at position k the user goes on with probability λ_k; after a skip always. The
    truth of :func:`simulate_clicks` has ``continuation``, λ of shape (n_positions,).

    Parameters
    ----------
    continuation : float in [0, 1] or array-like of shape (n_positions,), default=0.5
        λ, P(goes on | clicked) by position, or one number for all positions. With 0 this is
        :class:`CascadeUser`.

    Raises
    ------
    ValueError
        If it does not hold probabilities, or is not known as deep as the lists.

    References
    ----------
    F. Guo, C. Liu and Y. M. Wang (2009). Efficient multiple-click models in web search. WSDM.

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.simulation import DCMUser
    >>> DCMUser([0.6, 0.2, 0.2]).click_probability(np.array([[0.5, 0.5, 0.5]]))
    array([[0.5 , 0.4 , 0.24]])
    """

    continuation: ArrayLike = 0.5

    def __post_init__(self) -> None:
        curve = as_floats(self.continuation)
        if curve.ndim > 1 or not are_probabilities(curve):
            raise ValueError(
                "continuation must be one probability in [0, 1] per position, or one for all "
                f"positions; got {self.continuation!r}."
            )

    def truth_at(self, n_positions: int) -> Mapping[str, Any]:
        """``continuation``, λ of shape (n_positions,); see :meth:`User.truth_at`."""
        return {"continuation": curve_at("continuation", self.continuation, n_positions)}

    def _going_on(self, relevance_probability: Floats) -> tuple[ArrayLike, ArrayLike]:
        n_positions = relevance_probability.shape[1]
        return 1.0, curve_at("continuation", self.continuation, n_positions)


@dataclass(frozen=True, eq=False)
class CCMUser(SequentialUser):
    """The user of the click chain model: reading on after a click depends on what was found.

    An examined document is clicked with its relevance probability r. The user goes on with
    probability τ₁ after a skip, and with probability τ₂ (1 − r) + τ₃ r after a click.

    The truth of :func:`simulate_clicks` has ``continuation``, the array (τ₁, τ₂, τ₃).

    Parameters
    ----------
    after_skip : float in [0, 1], default=0.9
        τ₁.
    after_irrelevant, after_relevant : float in [0, 1], default=0.8 and 0.4
        τ₂ and τ₃, P(goes on) after a click on an irrelevant and on a relevant document.

    Raises
    ------
    ValueError
        If a parameter is no probability.

    References
    ----------
    F. Guo, C. Liu, A. Kannan, T. Minka, M. Taylor, Y. M. Wang and C. Faloutsos (2009). Click
    chain model in web search. WWW.

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.simulation import CCMUser
    >>> CCMUser(after_skip=0.8).click_probability(np.array([[0.5, 0.5]]))
    array([[0.5 , 0.35]])
    """

    after_skip: float = 0.9
    after_irrelevant: float = 0.8
    after_relevant: float = 0.4

    def __post_init__(self) -> None:
        for name in ("after_skip", "after_irrelevant", "after_relevant"):
            check_probability(name, getattr(self, name))

    def truth_at(self, n_positions: int) -> Mapping[str, Any]:
        """``continuation``, the array (τ₁, τ₂, τ₃); see :meth:`User.truth_at`."""
        tau = [self.after_skip, self.after_irrelevant, self.after_relevant]
        return {"continuation": np.array(tau)}

    def _going_on(self, relevance_probability: Floats) -> tuple[ArrayLike, ArrayLike]:
        r = relevance_probability
        return self.after_skip, self.after_irrelevant * (1 - r) + self.after_relevant * r


@dataclass(frozen=True, eq=False)
class UBMUser(User):
    """The user of the user browsing model: examination by position and by the last click above.

    Position k is examined with a probability that depends on k and on the position r of the last
    click above it (0: no click). By default it is (1 / (k − r))^η, a power law of the distance
    to the last click.

    The truth of :func:`simulate_clicks` has ``examination_after``, of shape
    (n_positions, n_positions): row k − 1, column r; its ``examination`` is column 0, the
    examination of a page where nothing is clicked.

    Parameters
    ----------
    examination : float or array-like, default=1.0
        η; or a table of shape (n_positions, n_positions), whose row k − 1 and column r hold
        P(examined) at position k after the last click at r (columns from k on are not read); or
        a curve of shape (n_positions,), which makes this user a :class:`PositionBasedUser`.

    Raises
    ------
    ValueError
        If it does not hold probabilities, or is not known as deep as the lists.

    References
    ----------
    G. E. Dupret and B. Piwowarski (2008). A user browsing model to predict search engine click
    data from past observations. SIGIR.

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.simulation import UBMUser
    >>> user = UBMUser()
    >>> user.examination_after(3).round(2)
    array([[1.  , 0.  , 0.  ],
           [0.5 , 1.  , 0.  ],
           [0.33, 0.5 , 1.  ]])
    >>> user.click_probability(np.array([[0.5, 0.5]]))
    array([[0.5  , 0.375]])
    """

    examination: ArrayLike = 1.0

    def __post_init__(self) -> None:
        given = as_floats(self.examination)
        if not given.ndim:
            good = bool(0 <= given < np.inf)
        else:
            square = given.ndim == 1 or (given.ndim == 2 and given.shape[0] == given.shape[1])
            # Values above the diagonal are not read.
            good = square and are_probabilities(given if given.ndim == 1 else np.tril(given))
        if not good:
            raise ValueError(
                "examination must be a number of at least 0, the exponent of a power law; or "
                "probabilities in [0, 1], one per position or a square table of positions and "
                f"last clicks; got {self.examination!r}."
            )

    def examination_after(self, n_positions: int) -> Floats:
        """P(examined) by position and last click above.

        Parameters
        ----------
        n_positions : int

        Returns
        -------
        examination : ndarray of shape (n_positions, n_positions)
            Row k − 1, column r: position k after the last click at r, 0 for none. 0 where r ≥ k,
            which cannot be.

        Raises
        ------
        ValueError
            If the examination is known for fewer positions.
        """
        given = as_floats(self.examination)
        position, last = np.ogrid[1 : n_positions + 1, :n_positions]
        if given.ndim == 0:
            table = np.maximum(position - last, 1) ** -float(given)
        elif given.ndim == 1:
            table = cut("examination", given, n_positions)[:, None]
        else:
            table = cut("examination", given, n_positions)[:n_positions]
        return np.where(last < position, table, 0.0)

    def examination_at(self, n_positions: int) -> Floats:
        """P(examined) by position where nothing is clicked; see :meth:`User.examination_at`."""
        return self.examination_after(n_positions)[:, 0]

    def truth_at(self, n_positions: int) -> Mapping[str, Any]:
        """``examination_after``; see :meth:`User.truth_at`."""
        return {"examination_after": self.examination_after(n_positions)}

    def click_probability(self, relevance_probability: Floats) -> Floats:
        """P(click) by position before any click is known; see :meth:`User.click_probability`."""
        examination = self.examination_after(relevance_probability.shape[1])
        return ubm_click_probability(relevance_probability, examination)

    def click(self, relevance_probability: Floats, rng: np.random.Generator) -> Bools:
        """Draw the clicks of sessions; see :meth:`User.click`."""
        examination = self.examination_after(relevance_probability.shape[1])
        return draw_ubm_clicks(relevance_probability, examination, rng)
