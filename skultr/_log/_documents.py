"""Which document of the training log a row to predict holds."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ._faults import check
from ._hashing import match_rows
from ._roles import read_role

__all__ = ["KnownDocuments"]


@dataclass(frozen=True, eq=False)
class KnownDocuments:
    """The documents that a training log showed.

    Parameters
    ----------
    ids : Index of shape (n_docs,) or None
        Pairs (qid, doc), or ids that are told apart by themselves; None where documents are equal
        rows of features.
    features : ndarray of shape (n_docs, n_features)
    """

    ids: pd.Index | None
    features: np.ndarray

    @classmethod
    def of_log(cls, log, known):
        """Those of a log where ``known``, a bool array by document code, is True."""
        if known.all():
            return cls(log.doc_ids, log.features)
        return cls(None if log.doc_ids is None else log.doc_ids[known], log.features[known])

    def __len__(self):
        return len(self.features)

    @property
    def index(self):
        """Index of a table with one row per document."""
        return pd.RangeIndex(len(self)) if self.ids is None else self.ids

    def places(self, X, features=None, *, qid=None, doc=None):
        """Place of the document of each row, -1 where it is not known.

        Parameters
        ----------
        X : frame, array-like or sparse matrix of shape (n_rows, n_columns)
        features : ndarray of shape (n_rows, n_features), default=None
            The features of X, read where the rows name no documents.
        qid, doc : array-like of shape (n_rows,) or None
            Queries and documents of the rows; by default the columns of X.

        Returns
        -------
        places : ndarray of shape (n_rows,), intp
            None where rows name no documents and there are no ``features``.
        names : sequence of shape (n_rows,)
            What to call the documents of the rows in a message.

        Raises
        ------
        ValueError
            If the rows do not say which of several documents they hold.
        """
        if self.ids is not None:
            reads = ("doc",) if self.ids.nlevels == 1 else ("qid", "doc")
            ids = {role: read_role(X, role, {"qid": qid, "doc": doc}[role]) for role in reads}
            ids = {role: values for role, values in ids.items() if values is not None}
            check(ids)
            if "doc" in ids:
                return self._places_by_ids(ids["doc"], ids.get("qid"))
        if features is None:
            return None, None
        return self._places_by_features(features), range(len(features))

    def _places_by_ids(self, doc, qid):
        if self.ids.nlevels == 1:
            return self.ids.get_indexer(_as_level(doc)), doc
        if qid is not None:
            names = pd.MultiIndex.from_arrays([_as_level(qid), _as_level(doc)])
            return self.ids.get_indexer(names), names
        alone = self.ids.get_level_values("doc")
        if alone.has_duplicates:
            raise ValueError(
                "X has no column 'qid' and no qid was passed, but some ids of documents recur "
                f"under several queries of the training log (such as "
                f"{alone[alone.duplicated()][0]!r}): a document is the pair of query and id. Add "
                "the column 'qid', or pass qid=."
            )
        return alone.get_indexer(_as_level(doc)), doc

    def _places_by_features(self, features):
        place, n_equal = match_rows(self.features, features)
        # Two documents may look alike; as long as no row asks for them, nothing is wrong.
        if (n_equal > 1).any():
            row = int(np.argmax(n_equal > 1))
            raise ValueError(
                f"X names no documents, and row {row} has the features of several documents of "
                "the training log: its features do not tell which it is. Name the documents in "
                "a column 'doc', or pass doc=."
            )
        return place


def _as_level(ids):
    return pd.Index(ids, tupleize_cols=False)
