"""Result pages of rows to predict: the shown rows, list by list."""

from dataclasses import dataclass

import numpy as np

from ._checks import check_positions, list_codes, query_codes
from ._roles import count_rows, read_role
from ._segments import offsets_from_sorted, rectangles

__all__ = ["ServedLists", "read_lists"]


@dataclass(frozen=True, eq=False)
class ServedLists:
    """The shown rows of X, list by list from the top down.

    Parameters
    ----------
    rows : ndarray of shape (n_shown,)
        Row numbers in X.
    position, bias : ndarray of shape (n_shown,)
        Position and bias factor of each of them.
    offsets : ndarray of shape (n_lists + 1,)
        Where each list begins.
    """

    rows: np.ndarray
    position: np.ndarray
    bias: np.ndarray
    offsets: np.ndarray

    def __iter__(self):
        """Rectangles (place, inside): places in ``rows``, and where a list has a row."""
        for _, place in rectangles(self.offsets):
            yield place, place >= 0


def read_lists(X, roles):
    """The lists of rows to predict, from the columns of X and keywords.

    Parameters
    ----------
    X : frame, array-like or sparse matrix of shape (n_rows, n_columns)
    roles : dict of str to array-like
        Keyword metadata ``qid``, ``session``, ``position``, ``bias``, which win over columns.

    Returns
    -------
    lists : ServedLists

    Raises
    ------
    ValueError
        If two rows of one list stand at one position.
    """
    roles = {role: read_role(X, role, roles.get(role)) for role in ("qid", "session", *_PLACES)}
    list_ = list_codes(query_codes(roles["qid"], count_rows(X))[0], roles["session"])
    position = check_positions(roles["position"], list_)
    rows = np.flatnonzero(position > 0)
    rows = rows[np.lexsort((position[rows], list_[rows]))]
    list_, position = list_[rows], position[rows]
    same = (list_[1:] == list_[:-1]) & (position[1:] == position[:-1])
    if same.any():
        place = int(np.argmax(same))
        raise ValueError(
            f"Rows {rows[place]} and {rows[place + 1]} of one list stand at position "
            f"{position[place]}; expected one row a position. If a query was served several "
            "times, name each result page in a column 'session', or pass session=."
        )
    bias = position if roles["bias"] is None else roles["bias"][rows]
    return ServedLists(rows, position, bias, offsets_from_sorted(list_))


_PLACES = ("position", "bias")
