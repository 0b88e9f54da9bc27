"""Which document of the training log a row to predict refers to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._typing import Bools, Column, Ints, Table
from ..exceptions import python_value
from ._faults import check
from ._hashing import equal_rows, match_rows
from ._roles import read_role

if TYPE_CHECKING:
    from ._clicklog import ClickLog


@dataclass(frozen=True, eq=False)
class KnownDocuments:
    """The documents that a training log showed."""

    ids: pd.Index | None  # (n_docs,), (qid, doc) or unique ids; None: rows of features
    features: np.ndarray  # (n_versions, n_features)
    doc_of_version: np.ndarray  # (n_versions,)

    @classmethod
    def of_log(cls, log: ClickLog, known: Bools | None = None) -> KnownDocuments:
        """The documents of a log, or those for which ``known``, by document code, is True."""
        if known is None:
            return cls(log.doc_ids, log.features, log.doc_of_version)
        ids = None if log.doc_ids is None else log.doc_ids[known]
        versions = np.flatnonzero(known[log.doc_of_version])
        place = np.cumsum(known) - 1
        return cls(ids, log.features[versions], place[log.doc_of_version[versions]])

    def __len__(self) -> int:
        return int(self.doc_of_version.max(initial=-1)) + 1

    @property
    def index(self) -> pd.Index:
        """Index of a table with one row per document."""
        return pd.RangeIndex(len(self)) if self.ids is None else self.ids

    def places(
        self,
        X: Table,
        features: NDArray[Any] | None = None,
        *,
        qid: Column | None = None,
        doc: Column | None = None,
    ) -> tuple[Ints | None, Any]:
        """Place of the document of each row, -1 where it is not known."""
        if self.ids is not None:
            reads = ("doc",) if self.ids.nlevels == 1 else ("qid", "doc")
            ids = {role: read_role(X, role, {"qid": qid, "doc": doc}[role]) for role in reads}
            ids = {role: values for role, values in ids.items() if values is not None}
            check(ids)
            if "doc" in ids:
                return self._places_by_ids(ids["doc"], ids.get("qid"))
        if features is None:
            return None, None
        qid = ids.get("qid") if self.ids is not None else None
        version = self._places_by_features(features, qid)
        # A row without a match has the place -1, the last element, which is -1.
        return np.append(self.doc_of_version, -1)[version], range(len(features))

    def _places_by_ids(self, doc, qid):
        if self.ids.nlevels == 1:
            return self.ids.get_indexer(_as_index(doc)), doc
        if qid is not None:
            names = pd.MultiIndex.from_arrays([_as_index(qid), _as_index(doc)])
            return self.ids.get_indexer(names), names
        alone = self.ids.get_level_values("doc")
        if alone.has_duplicates:
            raise ValueError(
                "X has no column 'qid' and no qid was passed, but some ids of documents recur "
                "under several queries of the training log (such as "
                f"{python_value(alone[alone.duplicated()][0])!r}): a document is the pair of "
                "query and id. Add the column 'qid', or pass qid=."
            )
        return alone.get_indexer(_as_index(doc)), doc

    def _places_by_features(self, features, qid):
        place, n_equal = match_rows(self.features, features)
        several = np.flatnonzero(n_equal > 1)
        if len(several) and qid is not None:
            place[several] = self._places_within_queries(features[several], qid[several])
            several = several[place[several] < 0]
        # Documents with equal features are an error only if a row has these features.
        if len(several):
            row = int(several[0])
            raise ValueError(
                f"X names no documents, and row {row} has the features of several documents of "
                "the training log, so that they do not determine which one it is. Name the "
                "documents in a column 'doc', or pass doc=."
            )
        return place

    def _places_within_queries(self, features, qid):
        """Place of the only document of the row's query with its features, -1 if not just one."""
        code, _ = equal_rows(np.concatenate([self.features, features]))
        n_known = len(self.features)
        of_query = self.ids.get_level_values("qid")[self.doc_of_version]
        known = pd.MultiIndex.from_arrays([of_query, code[:n_known]])
        alone = np.flatnonzero(~known.duplicated(keep=False))
        rows = pd.MultiIndex.from_arrays([_as_index(qid), code[n_known:]])
        # A row without a match has the index -1, the last element, which is -1.
        return np.append(alone, -1)[known[alone].get_indexer(rows)]


def _as_index(ids):
    return pd.Index(ids, tupleize_cols=False)
