"""Result pages on which a chosen number of documents is shown at two positions."""

from __future__ import annotations

import numpy as np

from .._typing import Ints

#: Rounds at most in which documents that meet themselves on a page are moved to other pages.
_MAX_ROUNDS = 100


def linked_pages(
    n_documents: int, n_links: int, n_queries: int, part: tuple[int, ...], rng: np.random.Generator
) -> Ints:
    """Codes of documents on pages of one component, (n_queries, len(part)): ``n_links`` documents
    are shown once at two positions, all others about equally often at one; a ValueError if
    impossible."""
    width = len(part)
    n_others = n_documents - n_links
    if n_others < width or n_documents + n_links > n_queries * width:
        raise ValueError(
            f"The component of positions {', '.join(map(str, part))} has {n_documents} documents, "
            f"of which {n_links} link its positions, for {n_queries * width} slots. At least one "
            f"document per position must be no link, and all documents with the second showing of "
            "the links must fit. Pass fewer links, other n_documents or more queries."
        )
    shown_at = _choose_positions(n_links, n_others, width, rng)
    columns = [_column(shown, n_links, n_queries, rng) for shown in shown_at]
    return _without_meetings(np.column_stack(columns), rng)


def _choose_positions(n_links, n_others, width, rng):
    """Documents of each position, a list of arrays: about equally many at each."""
    count = np.zeros(width, dtype=np.int64)
    shown_at: list[list[int]] = [[] for _ in range(width)]

    def show(document, place):
        shown_at[place].append(document)
        count[place] += 1

    path = rng.permutation(width)
    for document in range(n_links):
        # The first links form a path through all positions, which connects them.
        both = path[document : document + 2] if document < width - 1 else _emptiest(count, 2, rng)
        for place in both:
            show(document, place)
    for document in range(n_links, n_links + n_others):
        show(document, _emptiest(count, 1, rng)[0])
    return [np.array(documents) for documents in shown_at]


def _emptiest(count, n, rng):
    """The ``n`` positions with the fewest documents, ties at random."""
    return np.lexsort((rng.random(len(count)), count))[:n]


def _column(shown, n_links, n_queries, rng):
    """What is shown at one position, (n_queries,): the links once, the others in turn."""
    links, others = shown[shown < n_links], shown[shown >= n_links]
    rest = np.resize(rng.permutation(others), n_queries - len(links))
    return rng.permutation(np.concatenate([links, rest]))


def _without_meetings(pages, rng):
    """The same columns in another order, so that no page shows a document twice."""
    for _ in range(_MAX_ROUNDS):
        order = np.sort(pages, axis=1)
        meeting = np.flatnonzero((order[:, 1:] == order[:, :-1]).any(axis=1))
        if not len(meeting):
            return pages
        for row in meeting:
            other = rng.integers(len(pages))
            column = rng.integers(pages.shape[1])
            pages[[row, other], column] = pages[[other, row], column]
    raise ValueError(
        f"In {_MAX_ROUNDS} rounds no order of {len(pages)} pages was found in which no page shows "
        "a document twice. Pass fewer links or more queries."
    )
