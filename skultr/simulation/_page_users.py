"""Users whose clicks depend on more than a position and its document: on the rest of the page.

Those who read down the list are the users of one click model of :mod:`skultr.click_models` each,
by the same formulas (:mod:`skultr._models._browsing`). On the logs of the others click models are
misspecified: they serve to compare which misspecified model still predicts clicks on another
ranking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from .._base._typing import Bools, Floats
from .._models._browsing import (
    chain_click_probability,
    draw_chain_clicks,
    draw_ubm_clicks,
    power_law_examination,
    trust_affine,
    trust_click_probability,
    ubm_click_probability,
)
from ._users import (
    COUNT,
    NOT_NEGATIVE,
    PROBABILITY,
    PositionBasedUser,
    User,
    are_probabilities,
    as_floats,
    curve_at,
    cut,
    is_exponent_or_curve,
)


def _is_curve(given):
    """True for one probability per position, or one for all."""
    curve = as_floats(given)
    return curve.ndim <= 1 and are_probabilities(curve)


def _is_examination_after(given):
    """True for the exponent of a power law, a curve, or a table of positions and last clicks."""
    values = as_floats(given)
    if values.ndim < 2:
        return is_exponent_or_curve(values)
    square = values.ndim == 2 and values.shape[0] == values.shape[1]
    # Values above the diagonal are not read.
    return square and are_probabilities(np.tril(values))


class SequentialUser(User):
    """A user who reads down, clicks what attracts, and may stop after each row.

    Subclasses write ``_going_on(relevance_probability)``: the probabilities of going on to the
    next position after a skip and after a click, both of a shape that broadcasts to that of the
    relevance.
    """

    def _going_on(self, relevance_probability: Floats) -> tuple[ArrayLike, ArrayLike]:
        """P(goes on) to the next row after a skip and after a click."""
        raise NotImplementedError

    def examination_at(self, n_positions: int) -> Floats:
        """P(examined) by position on a page where nothing is clicked.

        A user who reads down has no examination curve: examination depends on the results above.
        See :meth:`User.examination_at`.
        """
        nothing = np.zeros((1, n_positions))
        # Documents without relevance are never clicked: skips decide about the way down.
        after_skip, _ = self._going_on(nothing)
        # P(examined at k) is the product of going on after the rows 1 to k - 1.
        along = np.broadcast_to(after_skip, nothing.shape)[0]
        return np.append(1.0, np.cumprod(along[:-1]))

    def click_probability(self, relevance_probability: Floats) -> Floats:
        """P(click) by position before any click is known; see :meth:`User.click_probability`."""
        after_skip, after_click = self._going_on(relevance_probability)
        return chain_click_probability(relevance_probability, after_skip, after_click)

    def click(self, relevance_probability: Floats, rng: np.random.Generator) -> Bools:
        """Draw the clicks of sessions; see :meth:`User.click`."""
        after_skip, after_click = self._going_on(relevance_probability)
        return draw_chain_clicks(relevance_probability, after_skip, after_click, rng)


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
    _constraints = {"continuation": PROBABILITY, "satisfaction": PROBABILITY}

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
        # Goes on if not satisfied, with the same probability as after a skip.
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
    _arrays = {
        "continuation": (
            _is_curve,
            "one probability in [0, 1] per position, or one for all positions",
        )
    }

    def truth_at(self, n_positions: int) -> Mapping[str, Any]:
        """``continuation``, λ of shape (n_positions,); see :meth:`User.truth_at`."""
        return {"continuation": curve_at("continuation", self.continuation, n_positions)}

    def _going_on(self, relevance_probability: Floats) -> tuple[ArrayLike, ArrayLike]:
        n_positions = relevance_probability.shape[1]
        return 1.0, curve_at("continuation", self.continuation, n_positions)


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
        One of

        - a number: η;
        - a table of shape (n_positions, n_positions): row k − 1 and column r hold P(examined) at
          position k after the last click at r. Columns from k on are not read;
        - a curve of shape (n_positions,), which makes this user a :class:`PositionBasedUser`.


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
    _arrays = {
        "examination": (
            _is_examination_after,
            "a number of at least 0, the exponent of a power law; or probabilities in [0, 1], one "
            "per position or a square table of positions and last clicks",
        )
    }

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
        # Rows are positions from 1; columns are last clicks from 0, which stands for none.
        position, last = np.ogrid[1 : n_positions + 1, :n_positions]
        if given.ndim == 0:
            # Power law of the distance from the last click.
            distance = np.maximum(position - last, 1)
            table = distance ** -float(given)
        elif given.ndim == 1:
            table = cut("examination", given, n_positions)[:, None]
        else:
            table = cut("examination", given, n_positions)[:n_positions]
        # The last click is above: of others there is no examination.
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


@dataclass(frozen=True, eq=False)
class TrustBiasUser(PositionBasedUser):
    """A user who trusts the ranking: irrelevant documents at the top are clicked as well.

    Position k is examined with probability θ_k. An examined document is clicked with probability
    ε⁺_k if it is relevant and ε⁻_k if it is not; ε⁻ is large at the top of the page. With
    relevance r, P(click) = θ_k (ε⁺_k r + ε⁻_k (1 − r)) = α_k r + β_k: an affine function of
    relevance at each position. Because of β_k the click rates of two positions are not
    proportional, and a model that divides by an examination probability is misspecified.

    The truth of :func:`simulate_clicks` has ``alpha`` and ``beta``, of shape (n_positions,);
    its ``examination`` is θ. The study by Chen et al. uses relevance from 0 to 1, which is
    ``simulate_clicks(noise=0.0)``.

    Parameters
    ----------
    examination : 'eye-tracking', array-like of shape (n_positions,) or float, \
default='eye-tracking'
        θ, P(examined) by position; see :class:`PositionBasedUser`.
    trust_positive : array-like of shape (n_positions,) or float, default=None
        ε⁺, P(clicked | examined, relevant) by position, or one number for all positions. By
        default 1 − (k + 1) / 100 at position k: 0.98, 0.97, 0.96, ...
    trust_negative : array-like of shape (n_positions,) or float, default=None
        ε⁻, P(clicked | examined, not relevant), at most ε⁺. By default 0.65 / k: 0.65, 0.325,
        0.217, ...

    Raises
    ------
    ValueError
        If a probability lies outside [0, 1], if ε⁻ lies above ε⁺, or if a curve is not known as
        deep as the lists. The default ε⁺ ends at position 98: deeper it would be below ε⁻.

    Notes
    -----
    With ``trust_positive=1.0`` and ``trust_negative=0.0`` this is :class:`PositionBasedUser`,
    click for click.

    References
    ----------
    A. Agarwal, X. Wang, C. Li, M. Bendersky and M. Najork (2019). Addressing trust bias for
    unbiased learning-to-rank. WWW.

    A. Vardasbi, H. Oosterhuis and M. de Rijke (2020). When inverse propensity scoring does not
    work: affine corrections for unbiased learning to rank. CIKM.

    M. Chen, C. Liu, Z. Liu and J. Sun (2022). Scalar is not enough: vectorization-based unbiased
    learning to rank. KDD. Equations 12 to 14.

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.simulation import TrustBiasUser
    >>> alpha, beta = TrustBiasUser().affine_at(4)
    >>> alpha.round(3), beta.round(3)
    (array([0.224, 0.393, 0.357, 0.268]), array([0.442, 0.198, 0.104, 0.055]))

    An irrelevant document at the top is clicked more often than a relevant one at position 4:

    >>> clicks = TrustBiasUser().click(
    ...     np.tile([0.0, 0.0, 0.0, 1.0], (100_000, 1)), np.random.default_rng(0)
    ... )
    >>> clicks.mean(axis=0).round(2).tolist()
    [0.44, 0.2, 0.1, 0.32]
    """

    trust_positive: ArrayLike | None = None
    trust_negative: ArrayLike | None = None
    _arrays = PositionBasedUser._arrays | dict.fromkeys(
        ("trust_positive", "trust_negative"),
        (
            lambda given: given is None or _is_curve(given),
            "one probability in [0, 1] per position, one for all positions, or None for the "
            "default curve",
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        # Compared as deep as both curves are known: the lists may be shorter.
        depths = (*np.shape(self.trust_positive), *np.shape(self.trust_negative))
        self._trust_at(min(depths, default=1))

    def affine_at(self, n_positions: int) -> tuple[Floats, Floats]:
        """α and β at positions 1, ..., ``n_positions``, where P(click) = α_k r + β_k.

        Parameters
        ----------
        n_positions : int

        Returns
        -------
        alpha, beta : ndarray of shape (n_positions,)

        Raises
        ------
        ValueError
            If the examination or the trust is known for fewer positions.
        """
        positive, negative = self._trust_at(n_positions)
        return trust_affine(self.examination_at(n_positions), positive, negative)

    def truth_at(self, n_positions: int) -> Mapping[str, Any]:
        """``alpha`` and ``beta`` of :meth:`affine_at`; see :meth:`User.truth_at`."""
        alpha, beta = self.affine_at(n_positions)
        return {"alpha": alpha, "beta": beta}

    def click_probability(self, relevance_probability: Floats) -> Floats:
        """P(click) = α_k r + β_k at each position; see :meth:`User.click_probability`."""
        n_positions = relevance_probability.shape[1]
        examination = self.examination_at(n_positions)
        positive, negative = self._trust_at(n_positions)
        return trust_click_probability(relevance_probability, examination, positive, negative)

    def _trust_at(self, n_positions: int) -> tuple[Floats, Floats]:
        """ε⁺ and ε⁻ at positions 1, ..., n_positions."""
        position = np.arange(1, n_positions + 1)
        # Chen et al. (2022), equations 12 to 14: ε⁺ = 1 - (k + 1) / 100 and ε⁻ = 0.65 / k.
        by_default = 1 - (position + 1) / 100
        positive = curve_at("trust_positive", self.trust_positive, n_positions, by_default)
        by_default = 0.65 / position
        negative = curve_at("trust_negative", self.trust_negative, n_positions, by_default)
        below = positive < negative
        if below.any():
            k = int(below.argmax())
            raise ValueError(
                f"At position {k + 1} trust_positive is {positive[k]:g} and trust_negative "
                f"{negative[k]:g}; expected trust_positive to be at least trust_negative. "
                "Otherwise irrelevant documents would be clicked more often than relevant ones. "
                "Pass both curves, or show fewer positions."
            )
        return positive, negative


@dataclass(frozen=True, eq=False)
class MixtureDBNUser(DBNUser):
    """A user who reads down the list in some sessions and up the list in others.

    The user is a :class:`DBNUser` in both directions; reading up begins with the last document
    shown. It is a model of pages whose results lie side by side. The truth of
    :func:`simulate_clicks` has the entries of :class:`DBNUser`, and ``top_down``.

    Parameters
    ----------
    continuation : float in [0, 1], default=0.9
        P(goes on | not satisfied).
    satisfaction : float in [0, 1], default=0.5
        P(satisfied | clicked) divided by the relevance probability.
    top_down : float in [0, 1], default=0.7
        Share of the sessions that are read from the top.

    Raises
    ------
    ValueError
        If a parameter is no probability.

    References
    ----------
    R. Deffayet, P. Hager, J.-M. Renders and M. de Rijke (2023). An offline metric for the
    debiasedness of click models. SIGIR. Section 5.1.4.

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.simulation import MixtureDBNUser
    >>> user = MixtureDBNUser(continuation=0.5, satisfaction=0.0, top_down=0.7)
    >>> user.click_probability(np.array([[0.8, 0.8]]))
    array([[0.68, 0.52]])
    """

    top_down: float = 0.7
    _constraints = DBNUser._constraints | {"top_down": PROBABILITY}

    #: Reading up must begin with the last document shown.
    marks_empty: ClassVar[bool] = True

    def examination_at(self, n_positions: int) -> Floats:
        """P(examined) by position where nothing is clicked, averaged over both directions."""
        down = super().examination_at(n_positions)
        return self.top_down * down + (1 - self.top_down) * down[::-1]

    def truth_at(self, n_positions: int) -> Mapping[str, Any]:
        """``continuation`` and ``top_down``; see :meth:`User.truth_at`."""
        return {**super().truth_at(n_positions), "top_down": self.top_down}

    def click_probability(self, relevance_probability: Floats) -> Floats:
        """P(click) by position before any click is known; see :meth:`User.click_probability`."""
        # Reading up is reading down a page that is turned over.
        reversed_ = relevance_probability[:, ::-1]
        down = chain_click_probability(*self._chain(relevance_probability))
        up = chain_click_probability(*self._chain(reversed_))[:, ::-1]
        return self.top_down * down + (1 - self.top_down) * up

    def click(self, relevance_probability: Floats, rng: np.random.Generator) -> Bools:
        """Draw the clicks of sessions; see :meth:`User.click`."""
        down = rng.random((len(relevance_probability), 1)) < self.top_down
        # Pages in the order in which each session reads them.
        as_read = np.where(down, relevance_probability, relevance_probability[:, ::-1])
        clicks = draw_chain_clicks(*self._chain(as_read), rng)
        # Back in the order of the page.
        return np.where(down, clicks, clicks[:, ::-1])

    def _chain(self, relevance_probability: Floats) -> tuple[Floats, ArrayLike, ArrayLike]:
        """Attraction and P(goes on); the user always goes on from an empty place."""
        # An empty place is passed over: nothing there attracts, and nobody stops.
        there = relevance_probability >= 0
        attraction = np.where(there, relevance_probability, 0.0)
        after_skip, after_click = self._going_on(attraction)
        return attraction, np.where(there, after_skip, 1.0), after_click


@dataclass(frozen=True, eq=False)
class CarouselUser(DBNUser):
    """A user of a page of carousels: chooses one row of documents and reads along it.

    The page has rows of ``n_columns`` documents: positions 1, ..., 5 are the first row, and so
    on. The user chooses one row, with a probability proportional to (1/row)^η times the mean
    relevance probability of its documents, and is a :class:`DBNUser` inside. The other rows are
    not examined.

    Show as many positions as the page has places: ``simulate_clicks(n_positions=25)``, with at
    least 25 documents per query. The truth of :func:`simulate_clicks` has the entries of
    :class:`DBNUser`, and ``row_examination``, (1/row)^η of shape (n_rows,). Its ``examination``
    is that of a page whose rows are equally relevant and where nothing is clicked.

    Parameters
    ----------
    continuation : float in [0, 1], default=0.9
        P(goes on along the row | not satisfied).
    satisfaction : float in [0, 1], default=0.5
        P(satisfied | clicked) divided by the relevance probability.
    n_columns : int, default=5
        Documents per row.
    eta : float, default=1.0
        η, the exponent by which the choice of a row falls with its number.

    Raises
    ------
    ValueError
        If a probability lies outside [0, 1], if ``n_columns`` is no whole number from 1, or if
        ``eta`` is negative.

    Notes
    -----
    The paper chooses a row "according to a PBM" and does not say what happens if that gives no
    row, or two. Here exactly one row is chosen, in proportion to the probabilities of the PBM.

    References
    ----------
    R. Deffayet, P. Hager, J.-M. Renders and M. de Rijke (2023). An offline metric for the
    debiasedness of click models. SIGIR. Section 5.1.4.

    B. Rahdari, B. Kveton and P. Brusilovsky (2022). From ranked lists to carousels: a carousel
    click model. arXiv:2209.13426.

    Examples
    --------
    Two rows of two documents. The second row is as relevant as the first, and chosen in a third
    of the sessions:

    >>> import numpy as np
    >>> from skultr.simulation import CarouselUser
    >>> user = CarouselUser(continuation=0.5, satisfaction=0.0, n_columns=2)
    >>> user.click_probability(np.array([[0.6, 0.6, 0.6, 0.6]]))
    array([[0.4, 0.2, 0.2, 0.1]])
    """

    n_columns: int = 5
    eta: float = 1.0
    _constraints = DBNUser._constraints | {"n_columns": COUNT, "eta": NOT_NEGATIVE}

    #: Empty places do not count in the mean relevance of a row.
    marks_empty: ClassVar[bool] = True

    def examination_at(self, n_positions: int) -> Floats:
        """P(examined) of a page whose rows are equally relevant, where nothing is clicked."""
        examination = self._row_examination(n_positions)
        # One row is chosen, and read from left to right.
        chosen = examination / examination.sum()
        along = self.continuation ** np.arange(self.n_columns)
        return np.outer(chosen, along).ravel()[:n_positions]

    def truth_at(self, n_positions: int) -> Mapping[str, Any]:
        """``continuation`` and ``row_examination``; see :meth:`User.truth_at`."""
        rows = self._row_examination(n_positions)
        return {**super().truth_at(n_positions), "row_examination": rows}

    def choice_probability(self, relevance_probability: Floats) -> Floats:
        """P(chosen) of each row of the page.

        Parameters
        ----------
        relevance_probability : ndarray of shape (n_sessions, n_positions)
            -1 where nothing is shown.

        Returns
        -------
        probability : ndarray of shape (n_sessions, n_rows)
            0 in all rows of a page without anything relevant.
        """
        # Means over documents, so that a shorter last row is not punished.
        page = self._page(relevance_probability)
        there = page >= 0
        total = np.where(there, page, 0.0).sum(axis=2)
        # An empty row has no document, and no relevance.
        mean = total / np.maximum(there.sum(axis=2), 1)
        # Rows are chosen in proportion to relevance and to how often they are seen.
        share = mean * self._row_examination(relevance_probability.shape[1])
        total = share.sum(axis=1, keepdims=True)
        return np.divide(share, total, out=np.zeros_like(share), where=total > 0)

    def click_probability(self, relevance_probability: Floats) -> Floats:
        """P(click) by position before any click is known; see :meth:`User.click_probability`."""
        page = np.maximum(self._page(relevance_probability), 0.0)
        # Each row is a list of its own to the user of the base class.
        rows = page.reshape(-1, self.n_columns)
        within = super().click_probability(rows).reshape(page.shape)
        chosen = self.choice_probability(relevance_probability)
        clicked = chosen[:, :, None] * within
        # The last row may be longer than the page.
        n_positions = relevance_probability.shape[1]
        return clicked.reshape(len(page), -1)[:, :n_positions]

    def click(self, relevance_probability: Floats, rng: np.random.Generator) -> Bools:
        """Draw the clicks of sessions; see :meth:`User.click`."""
        page = np.maximum(self._page(relevance_probability), 0.0)
        # The row that each session reads; sessions without relevance read the last.
        # Inverse of the distribution function: the first row whose cumulated share is above the
        # draw.
        cumulated = self.choice_probability(relevance_probability).cumsum(axis=1)
        drawn = rng.random((len(page), 1))
        drawn = drawn * cumulated[:, -1:]
        # A draw at the end of the last row, by rounding, is in it.
        n_before = (cumulated <= drawn).sum(axis=1)
        row = np.minimum(n_before, page.shape[1] - 1)
        session = np.arange(len(page))
        chosen = page[session, row]
        clicks = np.zeros(page.shape, dtype=bool)
        clicks[session, row] = super().click(chosen, rng)
        n_positions = relevance_probability.shape[1]
        return clicks.reshape(len(page), -1)[:, :n_positions]

    def _row_examination(self, n_positions: int) -> Floats:
        n_rows = -(-n_positions // self.n_columns)  # rounded up
        return power_law_examination(n_rows, self.eta)

    def _page(self, relevance_probability: Floats) -> Floats:
        """Sessions as pages, (n_sessions, n_rows, n_columns); -1 where nothing is shown."""
        n_sessions, n_positions = relevance_probability.shape
        # Empty places fill the last row.
        n_missing = -n_positions % self.n_columns
        page = np.pad(relevance_probability, ((0, 0), (0, n_missing)), constant_values=-1.0)
        return page.reshape(n_sessions, -1, self.n_columns)
