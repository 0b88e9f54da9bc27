"""Users of pages that are not one list read from the top, which no click model describes.

Click models are misspecified on their logs. They serve to compare which misspecified model still
predicts clicks on another ranking.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from .._models._browsing import chain_click_probability, draw_chain_clicks, power_law_examination
from .._typing import Bools, Floats
from ._given import check_probability
from ._sequential import DBNUser


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

    #: Reading up must begin with the last document shown.
    marks_empty: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability("top_down", self.top_down)

    def examination_at(self, n_positions: int) -> Floats:
        """P(examined) by position where nothing is clicked, averaged over both directions."""
        down = super().examination_at(n_positions)
        return self.top_down * down + (1 - self.top_down) * down[::-1]

    def truth_at(self, n_positions: int) -> Mapping[str, Any]:
        """``continuation`` and ``top_down``; see :meth:`User.truth_at`."""
        return {**super().truth_at(n_positions), "top_down": self.top_down}

    def click_probability(self, relevance_probability: Floats) -> Floats:
        """P(click) by position before any click is known; see :meth:`User.click_probability`."""
        down = chain_click_probability(*self._chain(relevance_probability))
        up = chain_click_probability(*self._chain(relevance_probability[:, ::-1]))[:, ::-1]
        return self.top_down * down + (1 - self.top_down) * up

    def click(self, relevance_probability: Floats, rng: np.random.Generator) -> Bools:
        """Draw the clicks of sessions; see :meth:`User.click`."""
        down = rng.random((len(relevance_probability), 1)) < self.top_down
        as_read = np.where(down, relevance_probability, relevance_probability[:, ::-1])
        clicks = draw_chain_clicks(*self._chain(as_read), rng)
        return np.where(down, clicks, clicks[:, ::-1])

    def _chain(self, relevance_probability: Floats) -> tuple[Floats, ArrayLike, ArrayLike]:
        """Attraction and P(goes on); the user always goes on from an empty place."""
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
        If a probability lies outside [0, 1], ``n_columns`` is no whole number from 1, or ``eta``
        is negative.

    Notes
    -----
    The source chooses a row "according to a PBM" and leaves open what happens if that gives no
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

    #: Empty places do not count in the mean relevance of a row.
    marks_empty: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.n_columns, Integral) and self.n_columns >= 1):
            raise ValueError(f"n_columns must be a whole number from 1, got {self.n_columns!r}.")
        if not (np.isscalar(self.eta) and np.isreal(self.eta) and 0 <= self.eta < np.inf):
            raise ValueError(f"eta must be a finite number of at least 0, got {self.eta!r}.")

    def examination_at(self, n_positions: int) -> Floats:
        """P(examined) of a page whose rows are equally relevant, where nothing is clicked."""
        chosen = self._row_examination(n_positions)
        along = self.continuation ** np.arange(self.n_columns)
        return np.outer(chosen / chosen.sum(), along).ravel()[:n_positions]

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
        page = self._page(relevance_probability)
        there = page >= 0
        shown = np.maximum(there.sum(axis=2), 1)
        mean = np.where(there, page, 0.0).sum(axis=2) / shown
        share = mean * self._row_examination(relevance_probability.shape[1])
        total = share.sum(axis=1, keepdims=True)
        return np.divide(share, total, out=np.zeros_like(share), where=total > 0)

    def click_probability(self, relevance_probability: Floats) -> Floats:
        """P(click) by position before any click is known; see :meth:`User.click_probability`."""
        page = np.maximum(self._page(relevance_probability), 0.0)
        rows = page.reshape(-1, self.n_columns)
        within = chain_click_probability(rows, *self._going_on(rows)).reshape(page.shape)
        chosen = self.choice_probability(relevance_probability)[:, :, None] * within
        return chosen.reshape(len(page), -1)[:, : relevance_probability.shape[1]]

    def click(self, relevance_probability: Floats, rng: np.random.Generator) -> Bools:
        """Draw the clicks of sessions; see :meth:`User.click`."""
        page = np.maximum(self._page(relevance_probability), 0.0)
        cumulated = self.choice_probability(relevance_probability).cumsum(axis=1)
        drawn = rng.random((len(page), 1)) * cumulated[:, -1:]
        row = np.minimum((cumulated <= drawn).sum(axis=1), page.shape[1] - 1)
        session = np.arange(len(page))
        clicks = np.zeros(page.shape, dtype=bool)
        chosen = page[session, row]
        clicks[session, row] = draw_chain_clicks(chosen, *self._going_on(chosen), rng)
        return clicks.reshape(len(page), -1)[:, : relevance_probability.shape[1]]

    def _n_rows(self, n_positions: int) -> int:
        return -(-n_positions // self.n_columns)

    def _row_examination(self, n_positions: int) -> Floats:
        return power_law_examination(self._n_rows(n_positions), self.eta)

    def _page(self, relevance_probability: Floats) -> Floats:
        """Sessions as pages, (n_sessions, n_rows, n_columns); -1 where nothing is shown."""
        n_sessions, n_positions = relevance_probability.shape
        places = self._n_rows(n_positions) * self.n_columns
        page = np.full((n_sessions, places), -1.0)
        page[:, :n_positions] = relevance_probability
        return page.reshape(n_sessions, -1, self.n_columns)
