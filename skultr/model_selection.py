"""Splitters that keep queries whole.

A query's rows share its documents: with some of them in training and some in the test set, a
model is tested on what it has seen. The splitters here read the queries from the frame itself.
"""

import numpy as np
from sklearn.model_selection import GroupKFold, GroupShuffleSplit

from ._constraints import safe_indexing
from ._roles import is_frame, read_role
from ._segments import encode

__all__ = ["QueryKFold", "QueryShuffleSplit", "train_test_queries"]


class QueryKFold(GroupKFold):
    """K folds of whole queries.

    Without shuffling, folds are balanced by number of rows (the longest query goes to the
    shortest fold, and so on), and the same queries give the same folds in whatever order the
    rows come. With shuffling, folds have equal numbers of random queries instead.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds, at least 2.
    shuffle : bool, default=False
        Whether queries go to folds at random.
    random_state : int, RandomState instance or None, default=None
        Seed of the shuffle.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.model_selection import QueryKFold
    >>> X = pd.DataFrame({"qid": ["a", "b", "a", "c"], "bm25": [0.1, 0.2, 0.3, 0.4]})
    >>> for train, test in QueryKFold(n_splits=2).split(X):
    ...     print(train, test)
    [1 3] [0 2]
    [0 2] [1 3]
    """

    # So that a search over arrays hands on the `qid` that its ranker takes anyway.
    __metadata_request__split = {"groups": True, "qid": True}  # noqa: RUF012

    def split(self, X, y=None, groups=None, *, qid=None):
        """Row numbers of the training and test set of each fold.

        Parameters
        ----------
        X : frame, array-like or sparse matrix of shape (n_rows, n_columns)
            A frame with a column ``qid``, unless ``groups`` or ``qid`` is given.
        y : ignored
        groups, qid : array-like of shape (n_rows,), default=None
            Query ids; they win over the column.

        Yields
        ------
        train, test : ndarray of int

        Raises
        ------
        ValueError
            Without query ids, or with fewer queries than folds.
        """
        codes = _query_codes(X, groups, qid)
        n_queries = int(codes.max()) + 1
        if n_queries < self.n_splits:
            raise ValueError(
                f"Cannot split {n_queries} queries into n_splits={self.n_splits} folds: queries "
                "are never cut. Use fewer folds or more queries."
            )
        yield from super().split(codes, None, codes)

    def get_n_splits(self, X=None, y=None, groups=None, *, qid=None):
        """Return the number of folds; all arguments are ignored."""
        return super().get_n_splits()


class QueryShuffleSplit(GroupShuffleSplit):
    """Random splits by whole queries.

    Parameters
    ----------
    n_splits : int, default=10
        Number of splits.
    test_size, train_size : float or int, default=None
        Share or number of *queries* (not rows) in each set. By default the test set has 0.2 of
        them and the training set the rest.
    random_state : int, RandomState instance or None, default=None
        Seed of the draw.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.model_selection import QueryShuffleSplit
    >>> X = pd.DataFrame({"qid": ["a", "b", "a", "c"], "bm25": [0.1, 0.2, 0.3, 0.4]})
    >>> splitter = QueryShuffleSplit(n_splits=1, test_size=1, random_state=0)
    >>> for train, test in splitter.split(X):
    ...     print(train, test)
    [0 1 2] [3]
    """

    __metadata_request__split = {"groups": True, "qid": True}  # noqa: RUF012

    def __init__(self, n_splits=10, *, test_size=None, train_size=None, random_state=None):
        super().__init__(
            n_splits=n_splits,
            test_size=test_size,
            train_size=train_size,
            random_state=random_state,
        )

    def split(self, X, y=None, groups=None, *, qid=None):
        """Row numbers of the training and test set of each split.

        Parameters
        ----------
        X : frame, array-like or sparse matrix of shape (n_rows, n_columns)
            A frame with a column ``qid``, unless ``groups`` or ``qid`` is given.
        y : ignored
        groups, qid : array-like of shape (n_rows,), default=None
            Query ids; they win over the column.

        Yields
        ------
        train, test : ndarray of int

        Raises
        ------
        ValueError
            Without query ids, or if a set would have no query.
        """
        codes = _query_codes(X, groups, qid)
        n_queries = int(codes.max()) + 1
        if n_queries < 2:
            raise ValueError(
                "Cannot split 1 query into a training and a test set: queries are never cut. "
                "Expected at least 2; check the column 'qid'."
            )
        yield from super().split(codes, None, codes)

    def get_n_splits(self, X=None, y=None, groups=None, *, qid=None):
        """Return the number of splits; all arguments are ignored."""
        return super().get_n_splits()


def train_test_queries(*arrays, test_size=None, train_size=None, random_state=None, qid=None):
    """Split frames and arrays into a training and a test part, by whole queries.

    As :func:`sklearn.model_selection.train_test_split`; the parts keep the order of the rows.

    Parameters
    ----------
    *arrays : frames, arrays, lists or sparse matrices of one length
        pandas, Polars and PyArrow tables come back as they are.
    test_size, train_size : float or int, default=None
        Share or number of *queries* in each part; by default 0.25 in the test part.
    random_state : int, RandomState instance or None, default=None
        Seed of the draw.
    qid : array-like of shape (n_rows,), default=None
        Query ids; by default the column ``qid`` of the first frame that has it.

    Returns
    -------
    parts : list of length 2 * len(arrays)
        Training and test part of each array in turn.

    Raises
    ------
    ValueError
        Without arrays, without query ids, or if lengths differ.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.model_selection import train_test_queries
    >>> X = pd.DataFrame({"qid": ["a", "b", "a", "c"], "bm25": [0.1, 0.2, 0.3, 0.4]})
    >>> X_train, X_test, y_train, y_test = train_test_queries(X, [1, 0, 0, 1], random_state=0)
    >>> list(X_train["qid"]), y_test
    (['a', 'b', 'a'], [1])
    """
    if not arrays:
        raise ValueError("train_test_queries got nothing to split; expected at least one array.")
    lengths = [_n_rows(array) for array in arrays]
    if len(set(lengths)) > 1:
        raise ValueError(
            f"The arrays have {lengths} rows; expected the same number in each of them."
        )
    if test_size is None and train_size is None:
        test_size = 0.25
    splitter = QueryShuffleSplit(
        n_splits=1, test_size=test_size, train_size=train_size, random_state=random_state
    )
    train, test = next(splitter.split(_carrier(arrays, qid), qid=qid))
    return [safe_indexing(array, rows) for array in arrays for rows in (train, test)]


def _carrier(arrays, qid):
    """The first frame with a column ``qid``, else the first array."""
    if qid is None:
        for array in arrays:
            if is_frame(array) and read_role(array, "qid") is not None:
                return array
    return arrays[0]


def _n_rows(array):
    return array.shape[0] if hasattr(array, "shape") else len(array)


def _query_codes(X, groups, qid):
    given = groups if qid is None else qid
    ids = read_role(X, "qid", given)
    if ids is None:
        raise ValueError(
            "X has no column 'qid' and neither groups= nor qid= was passed: there are no queries "
            "to keep whole. Rename the query column of X to 'qid', or pass one of them (in a "
            "search: sklearn.set_config(enable_metadata_routing=True))."
        )
    if not len(ids):
        raise ValueError("X has no rows; expected at least one query for each part.")
    return np.asarray(encode(ids)[0])
