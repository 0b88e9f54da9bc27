"""Users who read down the list: what they see next depends on what they clicked above.

They are the users that the click models of :mod:`skultr.click_models` describe, one a model, and
draw from the same formulas (:mod:`skultr._models._browsing`).
"""

from dataclasses import dataclass
from numbers import Real

import numpy as np

from .._models._browsing import (
    chain_click_probability,
    draw_chain_clicks,
    draw_ubm_clicks,
    ubm_click_probability,
)

__all__ = ["CCMUser", "CascadeUser", "DBNUser", "DCMUser", "UBMUser"]


class SequentialUser:
    """A user who reads down, clicks what attracts, and goes on with a probability.

    Subclasses write ``_going_on(relevance_probability)``: the probabilities to go on to the next
    position after a skip and after a click, which broadcast against the relevance.
    """

    def examination_at(self, n_positions):
        """P(examined) at positions 1, ..., ``n_positions`` as long as nothing is clicked.

        The examination of a user who reads down is no curve: it depends on what stands above.
        This is that of a list without anything to click.

        Parameters
        ----------
        n_positions : int

        Returns
        -------
        examination : ndarray of shape (n_positions,)
        """
        nothing = np.zeros((1, n_positions))
        after_skip = np.broadcast_to(self._going_on(nothing)[0], nothing.shape)[0]
        return np.append(1.0, np.cumprod(after_skip[:-1]))

    def click_probability(self, relevance_probability):
        """P(click) at each position before any click is seen.

        Parameters
        ----------
        relevance_probability : ndarray of shape (n_sessions, n_positions)
            P(clicked | examined) of what each position shows; 0 where it shows nothing.

        Returns
        -------
        probability : ndarray of shape (n_sessions, n_positions)
        """
        return chain_click_probability(
            relevance_probability, *self._going_on(relevance_probability)
        )

    def click(self, relevance_probability, rng):
        """Draw the clicks of sessions.

        Parameters
        ----------
        relevance_probability : ndarray of shape (n_sessions, n_positions)
            P(clicked | examined) of what each position shows; 0 where it shows nothing.
        rng : numpy.random.Generator

        Returns
        -------
        clicks : ndarray of shape (n_sessions, n_positions), bool
        """
        return draw_chain_clicks(
            relevance_probability, *self._going_on(relevance_probability), rng
        )


@dataclass(frozen=True, eq=False)
class DBNUser(SequentialUser):
    """The user of the dynamic Bayesian network: reads down until satisfied or tired.

    An examined document is clicked with its attraction R, its relevance probability. What is
    clicked satisfies with probability S = ``satisfaction`` R, and a satisfied user leaves. One
    who is not goes on to the next position with probability γ, clicked or not.

    The truth of :func:`simulate_clicks` has ``continuation`` (γ), and ``attraction`` and
    ``satisfaction``, of shape (n_documents,); its ``examination`` is γ^(k − 1), that of a list
    without anything to click.

    Parameters
    ----------
    continuation : float in [0, 1], default=0.9
        γ, P(goes on | not satisfied). With 1 this is the user of the simplified DBN.
    satisfaction : float in [0, 1], default=0.5
        S / R: how satisfying the best document is. Deffayet et al. take half, so that a need
        sometimes takes more than one click even on a perfect page.

    Raises
    ------
    ValueError
        If one of them is no probability.

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

    def __post_init__(self):
        check_probability("continuation", self.continuation)
        check_probability("satisfaction", self.satisfaction)

    def truth_at(self, n_positions):
        """What the truth of :func:`simulate_clicks` says about this user.

        Parameters
        ----------
        n_positions : int
            Not used.

        Returns
        -------
        truth : dict
            ``continuation``.
        """
        return {"continuation": self.continuation}

    def document_truth(self, relevance_probability):
        """What the truth of :func:`simulate_clicks` says about documents.

        Parameters
        ----------
        relevance_probability : ndarray of shape (n_documents,)

        Returns
        -------
        truth : dict of str to ndarray of shape (n_documents,)
            ``attraction`` and ``satisfaction``.
        """
        return {
            "attraction": relevance_probability,
            "satisfaction": self.satisfaction * relevance_probability,
        }

    def _going_on(self, relevance_probability):
        unsatisfied = 1 - self.satisfaction * relevance_probability
        return self.continuation, self.continuation * unsatisfied


@dataclass(frozen=True, eq=False)
class CascadeUser(SequentialUser):
    """A user who reads down to the first click and leaves.

    The truth of :func:`simulate_clicks` has the ``examination`` of a list without anything to
    click: 1 everywhere.

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

    def _going_on(self, relevance_probability):
        return 1.0, 0.0


@dataclass(frozen=True, eq=False)
class DCMUser(SequentialUser):
    """The user of the dependent click model: a cascade that may go on after a click.

    After a click at position k the user goes on with probability λ_k; after a skip always. The
    truth of :func:`simulate_clicks` has ``continuation``, λ of shape (n_positions,).

    Parameters
    ----------
    continuation : float in [0, 1] or array-like of shape (n_positions,), default=0.5
        λ, P(goes on | clicked) by position, or one number for all. With 0 this is
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

    continuation: object = 0.5

    def __post_init__(self):
        _check_curve("continuation", self.continuation)

    def truth_at(self, n_positions):
        """What the truth of :func:`simulate_clicks` says about this user.

        Parameters
        ----------
        n_positions : int

        Returns
        -------
        truth : dict of str to ndarray
            ``continuation``, of shape (n_positions,).
        """
        return {"continuation": _curve_at("continuation", self.continuation, n_positions)}

    def _going_on(self, relevance_probability):
        n_positions = relevance_probability.shape[1]
        return 1.0, _curve_at("continuation", self.continuation, n_positions)


@dataclass(frozen=True, eq=False)
class CCMUser(SequentialUser):
    """The user of the click chain model: a click tells them whether to read on.

    An examined document is clicked with its relevance probability r. The user goes on with
    probability τ₁ after a skip, and after a click with τ₂ (1 − r) + τ₃ r: a good find ends the
    search sooner.

    The truth of :func:`simulate_clicks` has ``continuation``, the array (τ₁, τ₂, τ₃).

    Parameters
    ----------
    after_skip : float in [0, 1], default=0.9
        τ₁.
    after_irrelevant, after_relevant : float in [0, 1], default=0.8 and 0.4
        τ₂ and τ₃, P(goes on) after a click on what is not, or is, relevant.

    Raises
    ------
    ValueError
        If one of them is no probability.

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

    def __post_init__(self):
        for name in ("after_skip", "after_irrelevant", "after_relevant"):
            check_probability(name, getattr(self, name))

    def truth_at(self, n_positions):
        """What the truth of :func:`simulate_clicks` says about this user.

        Parameters
        ----------
        n_positions : int
            Not used.

        Returns
        -------
        truth : dict of str to ndarray
            ``continuation``, of shape (3,).
        """
        tau = [self.after_skip, self.after_irrelevant, self.after_relevant]
        return {"continuation": np.array(tau)}

    def _going_on(self, relevance_probability):
        r = relevance_probability
        return self.after_skip, self.after_irrelevant * (1 - r) + self.after_relevant * r


@dataclass(frozen=True, eq=False)
class UBMUser:
    """The user of the user browsing model: examination by position and by the last click above.

    Position k is examined with a probability that depends on k and on the rank r of the last
    click above it (0: none). By default it is (1 / (k − r))^η, the power law counted from the
    last click: attention falls with every skip, and a click brings it back.

    The truth of :func:`simulate_clicks` has ``examination_after``, of shape
    (n_positions, n_positions): row k − 1, column r; its ``examination`` is the column 0, that of
    a list without a click.

    Parameters
    ----------
    examination : float or array-like, default=1.0
        η; or a table of shape (n_positions, n_positions) with P(examined) of position k after the
        last click at r in row k − 1 and column r (columns from k on are not read); or a curve of
        shape (n_positions,) for a user without memory, who is :class:`PositionBasedUser`.

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

    examination: object = 1.0

    def __post_init__(self):
        given = _as_array(self.examination)
        if not given.ndim:
            good = 0 <= given < np.inf
        else:
            square = given.ndim == 1 or (given.ndim == 2 and given.shape[0] == given.shape[1])
            # Infinities above the diagonal are as good as anything: nobody reads them.
            read = given if given.ndim == 1 else np.tril(given)
            good = square and given.size and ((read >= 0) & (read <= 1)).all()
        if not good:
            raise ValueError(
                "examination must be a number of at least 0, the exponent of a power law; or "
                "probabilities in [0, 1], one a position or a square table of positions and last "
                f"clicks; got {self.examination!r}."
            )

    def examination_after(self, n_positions):
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
        given = _as_array(self.examination)
        if given.ndim and n_positions > len(given):
            raise _too_short("examination", len(given), n_positions)
        if given.ndim:
            table = given[:n_positions, None] if given.ndim == 1 else given[:n_positions]
            table = np.broadcast_to(table, (n_positions, table.shape[1]))[:, :n_positions]
            table = np.broadcast_to(table, (n_positions, n_positions))
            return np.where(np.tri(n_positions, dtype=bool), table, 0.0)
        position, last = np.ogrid[1 : n_positions + 1, :n_positions]
        distance = np.maximum(position - last, 1)
        return np.where(last < position, distance ** -float(given), 0.0)

    def examination_at(self, n_positions):
        """P(examined) at positions 1, ..., ``n_positions`` as long as nothing is clicked.

        Parameters
        ----------
        n_positions : int

        Returns
        -------
        examination : ndarray of shape (n_positions,)
        """
        return self.examination_after(n_positions)[:, 0]

    def truth_at(self, n_positions):
        """What the truth of :func:`simulate_clicks` says about this user.

        Parameters
        ----------
        n_positions : int

        Returns
        -------
        truth : dict of str to ndarray
            ``examination_after``.
        """
        return {"examination_after": self.examination_after(n_positions)}

    def click_probability(self, relevance_probability):
        """P(click) at each position before any click is seen.

        Parameters
        ----------
        relevance_probability : ndarray of shape (n_sessions, n_positions)
            P(clicked | examined) of what each position shows; 0 where it shows nothing.

        Returns
        -------
        probability : ndarray of shape (n_sessions, n_positions)
        """
        examination = self.examination_after(relevance_probability.shape[1])
        return ubm_click_probability(relevance_probability, examination)

    def click(self, relevance_probability, rng):
        """Draw the clicks of sessions.

        Parameters
        ----------
        relevance_probability : ndarray of shape (n_sessions, n_positions)
            P(clicked | examined) of what each position shows; 0 where it shows nothing.
        rng : numpy.random.Generator

        Returns
        -------
        clicks : ndarray of shape (n_sessions, n_positions), bool
        """
        examination = self.examination_after(relevance_probability.shape[1])
        return draw_ubm_clicks(relevance_probability, examination, rng)


# --------------------------------------------------------------------------------------
# What the user gave
# --------------------------------------------------------------------------------------
def check_probability(name, value):
    """Refuse what is no probability."""
    if isinstance(value, bool) or not (isinstance(value, Real) and 0 <= value <= 1):
        raise ValueError(f"{name} must be a number in [0, 1], got {value!r}.")


def _as_array(given):
    """Numbers as an array; what is not numbers as an array that no check lets pass."""
    try:
        return np.array(given, dtype=float)
    except (TypeError, ValueError):
        return np.empty(0)


def _check_curve(name, given):
    curve = _as_array(given)
    if curve.ndim > 1 or not curve.size or not ((curve >= 0) & (curve <= 1)).all():
        raise ValueError(
            f"{name} must be one probability in [0, 1] a position, or one for all positions; got "
            f"{given!r}."
        )


def _curve_at(name, given, n_positions):
    curve = _as_array(given)
    if not curve.ndim:
        return np.full(n_positions, curve)
    if n_positions > len(curve):
        raise _too_short(name, len(curve), n_positions)
    return curve[:n_positions]


def _too_short(name, known, n_positions):
    return ValueError(
        f"{name} is given for {known} positions, but the lists have n_positions={n_positions}. "
        "Pass a value for each, or one number; or show fewer positions."
    )
