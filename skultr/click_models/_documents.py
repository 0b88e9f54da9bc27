"""Which document of the training log a row holds."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from .._log._hashing import match_rows
from .._log._roles import read_role

__all__ = ["KnownDocuments"]


@dataclass(frozen=True, eq=False)
class KnownDocuments:
    """The documents that a training log showed.

    Parameters
    ----------
    ids : Index or None
        Their names; None where documents are equal rows of features.
    features : ndarray of shape (n_docs, n_features)
    """

    ids: pd.Index | None
    features: np.ndarray

    @classmethod
    def of_log(cls, log, shown):
        """Those of a log where ``shown``, a bool array by document code, is True."""
        ids = None if log.doc_ids is None else pd.Index(log.doc_ids[shown], name="doc")
        return cls(ids, log.features if shown.all() else log.features[shown])

    def __len__(self):
        return len(self.features)

    @property
    def index(self):
        """Index of a table with one row a document."""
        return pd.RangeIndex(len(self)) if self.ids is None else self.ids

    def places(self, X, features, doc):
        """Place of the document of each row, -1 where it is not known.

        Parameters
        ----------
        X : frame, array-like or sparse matrix of shape (n_rows, n_columns)
        features : ndarray of shape (n_rows, n_features)
            The features of X.
        doc : array-like of shape (n_rows,) or None
            Documents of the rows; by default the column ``doc`` of X, and without it the
            documents of equal features.

        Returns
        -------
        places : ndarray of shape (n_rows,), intp
        names : ndarray of shape (n_rows,)
            What to call the rows' documents in a message.
        """
        names = None if self.ids is None else read_role(X, "doc", doc)
        if names is not None:
            return self.ids.get_indexer(names), names
        return self._places_by_features(features), np.arange(len(features))

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
