"""Click logs whose bias factors have a chosen number of connected components."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from operator import index

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils import Bunch, check_random_state

from .._base._sklearn import Interval, validate_params
from .._base._typing import Ints, RandomState
from .._log._cells import factor_components
from .._models._browsing import pbm_click_probability
from ._generate import SimulatedLog
from ._users import PositionBasedUser, relevance_probability

#: The components of ten positions in the study of Chen et al. (2024, figure 5).
_OF_THE_PAPER = {
    2: ((1, 2, 3, 4), (5, 6, 7, 8, 9, 10)),
    3: ((1, 2, 3, 4), (5, 6, 7), (8, 9, 10)),
    4: ((1, 2, 3), (4, 5, 6), (7, 8), (9, 10)),
}
#: Draws of pages at most until their positions are connected: then documents recur too rarely.
_MAX_DEALS = 1_000


@validate_params(
    {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "n_documents": [Interval(Integral, 1, None, closed="left")],
        "n_queries": [Interval(Integral, 1, None, closed="left")],
        "n_positions": [Interval(Integral, 1, None, closed="left")],
        "components": ["array-like", None],
        "n_impressions": [Interval(Integral, 1, 2**53, closed="both"), None],
        "max_grade": [Interval(Integral, 1, 1_000, closed="both")],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_disconnected_log(
    n_components: int = 2,
    *,
    n_documents: int = 10_000,
    n_queries: int = 1_150,
    n_positions: int = 10,
    components: Sequence[Sequence[int]] | None = None,
    n_impressions: int | None = 1_000_000,
    examination: ArrayLike = "eye-tracking",
    noise: float = 0.1,
    max_grade: int = 4,
    random_state: RandomState = None,
) -> SimulatedLog:
    """Simulate a click log whose positions have the given number of connected components.

    Two positions are linked if a document was shown at both. Clicks separate relevance from
    examination only within a component. With one component, relevance is determined up to one
    common factor. With several, all examinations of one component may be halved, and the relevance
    of its documents doubled, without a change of any click rate.

    The defaults are the fully synthetic study of Chen et al. (2024): documents of five grades,
    each known by its id alone, result pages of ten, position-based users.

    Parameters
    ----------
    n_components : int, default=2
        Number of components. With ten positions, 2 to 4 give the components of the paper:
        {1-4}, {5-10}; {1-4}, {5-7}, {8-10}; {1-3}, {4-6}, {7, 8}, {9, 10}. Otherwise the
        positions are cut into runs whose lengths differ by at most 1.
    n_documents : int, default=10_000
        Each is shown at least once, and belongs to one component. A component gets documents in
        proportion to its positions.
    n_queries : int, default=1_150
        Result pages, one per query. There must be more slots (queries times positions) than
        documents, because only documents that recur link positions.
    n_positions : int, default=10
        Documents on each page.
    components : sequence of sequences of int, default=None
        The positions (from 1) of each component; replaces ``n_components`` and ``n_positions``.
        Each position must be in exactly one component.
    n_impressions : int or None, default=1_000_000
        Impressions of each page, and so of each row. None means infinitely many: the click rates
        are then the click probabilities.
    examination : 'eye-tracking', array-like of shape (n_positions,) or float, \
default='eye-tracking'
        P(examined) by position, as in :class:`PositionBasedUser`.
    noise : float in [0, 1], default=0.1
        Probability that an examined document of grade 0 is found relevant.
    max_grade : int, default=4
        Grades are 0, ..., ``max_grade``, equally frequent; see :func:`relevance_probability`.
    random_state : int, RandomState instance or None, default=None
        Pass an int to get the same log in every call. Grades, pages and clicks have separate
        random streams. So with the same int, another ``n_impressions`` gives the same pages, and
        another ``n_components`` the same grades.

    Returns
    -------
    X : pandas.DataFrame of shape (n_queries * n_positions, 6)
        The log, one row per document on a page, sorted by query and position: ``qid``, ``doc``,
        ``position`` (from 1), ``impressions``, ``doc_scope`` ("global": an id names the same
        document under all queries) and ``relevance`` (the grade, which no model reads in
        ``fit``). There are no features.
    clicks : ndarray of shape (n_queries * n_positions,)
        Click rate of each row.
    truth : Bunch
        - ``relevance_probability`` and ``relevance``, Series of shape (n_documents,) indexed by
          ``doc``: P(found relevant | examined) and the grade;
        - ``examination``, ndarray of shape (n_positions,);
        - ``click_probability``, ndarray of shape (n_queries * n_positions,), of each row;
        - ``components``, tuple of tuples of positions.

    Raises
    ------
    ValueError
        If ``components`` is not a partition of the positions, if the documents are too few to
        fill a page, or if they are so many that too few recur and link the positions.

    See Also
    --------
    simulate_clicks : Logs of documents with features, from any policy and user.

    References
    ----------
    M. Chen, C. Liu, Z. Liu, Z. Li and J. Sun (2024). Identifiability matters: revealing the
    hidden recoverable condition in unbiased learning to rank. ICML.

    Examples
    --------
    >>> from skultr.simulation import make_disconnected_log
    >>> X, click_rate, truth = make_disconnected_log(2, random_state=0)
    >>> truth.components
    ((1, 2, 3, 4), (5, 6, 7, 8, 9, 10))
    >>> X.columns.tolist(), len(X), X["doc"].nunique()
    (['qid', 'doc', 'position', 'impressions', 'doc_scope', 'relevance'], 11500, 10000)

    No document was shown in both components:

    >>> bool((X.groupby("doc")["position"].agg(lambda k: k.le(4).nunique()) == 1).all())
    True
    """
    if components is None:
        components = _default_components(n_components, n_positions)
    components = _check_components(components)
    # Components that were given decide about the length of a page.
    n_positions = sum(len(part) for part in components)
    # Streams of their own, so that grades do not depend on the pages, nor pages on clicks.
    seeds = check_random_state(random_state).randint(2**31 - 1, size=4)
    grades_rng, pages_rng, clicks_rng = np.random.default_rng(seeds).spawn(3)

    grade = grades_rng.integers(max_grade + 1, size=n_documents)
    relevance = relevance_probability(grade, noise=noise, max_grade=max_grade)
    # The truth: who clicks with which probability.
    curve = PositionBasedUser(examination).examination_at(n_positions)
    pages = _fill_pages(components, n_documents, n_queries, pages_rng)
    # P(click) = o_k r of each slot; the rows of the log are the slots, page by page.
    probability = pbm_click_probability(relevance[pages], curve).ravel()
    documents = pd.RangeIndex(n_documents, name="doc")
    truth = Bunch(
        relevance_probability=pd.Series(relevance, documents, name="relevance_probability"),
        relevance=pd.Series(grade, documents, name="relevance"),
        examination=curve,
        click_probability=probability,
        components=components,
    )
    doc = pages.ravel()
    X = pd.DataFrame(
        {
            "qid": np.repeat(np.arange(n_queries), n_positions),
            "doc": doc,
            "position": np.tile(np.arange(1, n_positions + 1), n_queries),
            "impressions": n_impressions or 1,
            # A document recurs under other queries: without this word its id would count within a
            # query.
            "doc_scope": "global",
            "relevance": grade[doc],
        }
    )
    if n_impressions is None:
        # Without noise of clicks, a rate is its probability.
        return SimulatedLog(X, probability.copy(), truth)
    # One draw per row stands for all of its impressions.
    clicks = clicks_rng.binomial(n_impressions, probability)
    return SimulatedLog(X, clicks / n_impressions, truth)


# Components ---------------------------------------------------------------------------
def _default_components(n_components, n_positions):
    if n_components > n_positions:
        raise ValueError(
            f"n_components={n_components} positions cannot be drawn from n_positions="
            f"{n_positions}: each component has at least one. Show more positions."
        )
    if n_positions == 10 and n_components in _OF_THE_PAPER:
        return _OF_THE_PAPER[n_components]
    return np.array_split(np.arange(1, n_positions + 1), n_components)


def _check_components(components):
    """The components as a tuple of tuples of int; an error unless they partition 1, ..., n."""
    try:
        # `index` refuses floats, of which 1.5 is no position.
        found = tuple(tuple(sorted(map(index, part))) for part in components)
    except TypeError:
        raise ValueError(
            "components must hold the positions of each component, such as "
            f"[[1, 2, 3], [4, 5]]; got {components!r}."
        ) from None
    positions = sorted(position for part in found for position in part)
    all_once = positions == list(range(1, len(positions) + 1))
    if not positions or not all(found) or not all_once:
        raise ValueError(
            f"components={components!r} is not a partition of positions: expected each of "
            "1, ..., n_positions in exactly one component, and no component empty."
        )
    return found


# Pages --------------------------------------------------------------------------------
def _fill_pages(components, n_documents, n_queries, rng):
    """Documents on the pages, (n_queries, n_positions), with exactly the given components."""
    # Each component has documents of its own, which no other one shows.
    # In proportion to the slots, so that all components show their documents about as often.
    sizes = np.array([len(part) for part in components])
    shares = _share(n_documents, sizes)
    for part, n_own in zip(components, shares, strict=True):
        _check_room(part, int(n_own), n_queries, n_documents)
    # Shuffled, so that ids and their order do not depend on the component.
    ends = np.cumsum(shares)
    documents = np.split(rng.permutation(n_documents), ends[:-1])
    pages = np.empty((n_queries, sizes.sum()), dtype=np.int64)
    for part, own in zip(components, documents, strict=True):
        # Positions count from 1, and columns from 0.
        columns = np.array(part) - 1
        pages[:, columns] = own[_connected_pages(len(own), n_queries, part, rng)]
    return pages


def _share(n_documents, sizes):
    """Number of documents per component, in proportion to its positions (largest remainders)."""
    # Rounded down; the documents left over go where most was cut off.
    exact = n_documents * sizes / sizes.sum()
    shares = np.floor(exact).astype(np.int64)
    missing = n_documents - shares.sum()
    by_remainder = np.argsort(shares - exact, kind="stable")
    shares[by_remainder[:missing]] += 1
    return shares


def _check_room(part, n_own, n_queries, n_documents):
    """An error if these documents cannot fill the component, or cannot link its positions."""
    width = len(part)
    n_slots = width * n_queries
    # To link `width` positions, `width - 1` slots must show a document again.
    n_most = n_slots - (width - 1)
    where = f"The component of positions {', '.join(map(str, part))}"
    if n_own < width:
        raise ValueError(
            f"{where} has {n_own} of n_documents={n_documents} documents, but a page shows "
            f"{width} different documents there. Pass more documents."
        )
    if n_own > n_most:
        raise ValueError(
            f"{where} has {n_own} of n_documents={n_documents} documents for {n_slots} slots "
            f"(n_queries={n_queries} pages). Each is shown at least once, and documents shown "
            f"again must link the positions: at most {n_most} fit. Pass fewer "
            "documents or more queries."
        )


def _connected_pages(n_documents, n_queries, part, rng):
    """Codes of documents on pages of one component whose positions are connected."""
    width = len(part)
    # The bias factor of each slot is its position within the component.
    factor = np.tile(np.arange(width), n_queries)
    for _ in range(_MAX_DEALS):
        # Documents that recur at other positions of the component link these.
        dealt = _deal(n_documents, n_queries, width, rng)
        n_components, *_ = factor_components(dealt.ravel(), factor, width)
        if n_components == 1:
            return dealt
    n_slots = n_queries * width
    raise ValueError(
        f"The positions {', '.join(map(str, part))} were not linked in any of {_MAX_DEALS} draws: "
        f"{n_documents} documents recur in only {n_slots - n_documents} of {n_slots} slots. Pass "
        "fewer documents or more queries."
    )


def _deal(n_documents, n_queries, width, rng):
    """Documents of each page, (n_queries, width): shuffled decks, dealt one after another.

    The impressions of two documents differ by at most one, and no page shows a document twice:
    where a page takes the end of a deck and the beginning of the next, documents that the page
    already shows are moved behind the others.
    """
    n_slots = n_queries * width
    dealt = 0
    # Each document once, before one is shown again.
    decks: list[Ints] = []
    while dealt < n_slots:
        deck = rng.permutation(n_documents)
        begun = dealt % width
        if begun:
            # The last page shows the end of the deck before: fill it with other documents.
            on_page = np.isin(deck, decks[-1][-begun:])
            # The first of this deck that the page does not show yet, one for each place left on
            # it.
            top = np.flatnonzero(~on_page)[: width - begun]
            rest = np.delete(deck, top)
            deck = np.concatenate([deck[top], rest])
        decks.append(deck)
        dealt += n_documents
    pages = np.concatenate(decks)[:n_slots].reshape(n_queries, width)
    # Shuffled, because the first pages hold the first deck.
    return rng.permutation(pages)
