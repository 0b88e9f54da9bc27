"""Documents by their ids: those of a training log, and features in a frame of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._typing import Bools, Column, Ints, Table
from ..exceptions import python_value
from ._faults import check, count_of
from ._roles import as_pandas, column_names, feature_columns, is_frame, read_role
from ._segments import as_index_values, equal_rows, match_rows, naming_ids


@dataclass(frozen=True, eq=False)
class KnownDocuments:
    """The documents that a training log showed."""

    ids: pd.Index | None  # (n_docs,), (qid, doc) or unique ids; None: rows of features
    features: np.ndarray  # (n_versions, n_features)
    doc_of_version: np.ndarray  # (n_versions,)

    @classmethod
    def of_log(cls, log: Any, known: Bools | None = None) -> KnownDocuments:
        """The documents of a log, or those for which ``known``, by document code, is True."""
        if known is None or known.all():
            return cls(log.doc_ids, log.features, log.doc_of_version)
        ids = None if log.doc_ids is None else log.doc_ids[known]
        versions = np.flatnonzero(known[log.doc_of_version])
        # The new code of each document that stays.
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
            # Ids that are global need no query.
            reads = ("doc",) if self.ids.nlevels == 1 else ("qid", "doc")
            ids = _ids_of(X, reads, qid, doc)
            check(ids)
            if "doc" in ids:
                return self._places_by_ids(ids)
        if features is None:
            return None, None
        qid = None if self.ids is None else ids.get("qid")
        version = self._places_by_features(features, qid)
        # A row without a match has the place -1, the last element, which is -1.
        place_of_version = np.append(self.doc_of_version, -1)
        return place_of_version[version], range(len(features))

    def _places_by_ids(self, ids):
        """Place of each row and its id; a doc alone will do if it is that of one query only."""
        index = _index_of(ids)
        # Both are pairs, or both are ids alone.
        if index.nlevels == self.ids.nlevels:
            return self.ids.get_indexer(index), index
        alone = self.ids.get_level_values("doc")
        if alone.has_duplicates:
            raise ValueError(
                "X has no column 'qid' and no qid was passed, but some ids of documents recur "
                "under several queries of the training log (such as "
                f"{python_value(alone[alone.duplicated()][0])!r}): a document is the pair of "
                "query and id. Add the column 'qid', or pass qid=."
            )
        return alone.get_indexer(index), index

    def _places_by_features(self, features, qid):
        """Version of each row, -1 if it is not known."""
        # By equal features, where nothing names the documents.
        place, n_equal = match_rows(self.features, features)
        several = np.flatnonzero(n_equal > 1)
        if len(several) and qid is not None:
            # Of documents with equal features, the query of a row may tell which it is.
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
        # Versions and rows are pairs of a query and a code of features.
        query = self.ids.get_level_values("qid")[self.doc_of_version]
        known = pd.MultiIndex.from_arrays([query, code[:n_known]])
        rows = pd.MultiIndex.from_arrays([pd.Index(qid, tupleize_cols=False), code[n_known:]])
        alone = np.flatnonzero(~known.duplicated(keep=False))
        found = known[alone].get_indexer(rows)
        # A row without a match has the index -1, the last element, which is -1.
        return np.append(alone, -1)[found]


class FeatureTable:
    """One row of features per document, by ``doc`` or by the pair (``qid``, ``doc``)."""

    #: Rows of ``frame`` as the estimator reads them, once it has.
    features: NDArray[np.float32]

    def __init__(self, frame: Any) -> None:
        if not is_frame(frame):
            raise TypeError(
                f"documents is a {type(frame).__name__}; expected a frame with the column 'doc' "
                "(and 'qid', where ids are unique within a query only) and the features."
            )
        self.frame = frame
        self.ids = self._index(frame)
        self.production = read_role(frame, "production")
        repeated = self.ids[self.ids.duplicated()]
        # One document with two rows of features: nothing says which ones count.
        if len(repeated):
            raise ValueError(
                f"documents has {len(repeated)} rows whose {' and '.join(self.ids.names)} another "
                f"row has too, such as {python_value(repeated[0])!r}; expected one row for each "
                "document."
            )

    def places(self, ids: pd.Index | None) -> Ints:
        """Row of the frame of each document of a log; an error if one is missing."""
        if ids is None:
            raise ValueError(
                "documents= was passed, but X has no column 'doc' and no doc was passed: nothing "
                "links the rows to their features. Add the ids of the documents as 'doc'."
            )
        # A table by doc alone serves all queries.
        if ids.nlevels > self.ids.nlevels:
            ids = ids.get_level_values("doc")
        if ids.nlevels < self.ids.nlevels:
            raise ValueError(
                "documents has the column 'qid', but the documents of X are named by 'doc' alone "
                "(X has no queries, or doc_scope is 'global'). Drop 'qid' from documents, or add "
                "it to X."
            )
        # Documents that the log does not show are passed over.
        place = self.ids.get_indexer(ids)
        lost = np.flatnonzero(place < 0)
        if len(lost):
            self._report_lost(ids, lost)
        return place

    def _report_lost(self, ids, lost):
        """Raise the error that documents are missing, with the reason if it is seen."""
        in_log = str(ids.get_level_values("doc").dtype)
        in_table = str(self.ids.get_level_values("doc").dtype)
        reason = ""
        if in_log != in_table:
            reason = f" 'doc' holds {in_log} values in X, and {in_table} values in documents."
        raise ValueError(
            f"documents is missing {len(lost)} of {count_of(len(ids), 'document')} of the log "
            f"(such as {python_value(ids[lost[0]])!r}); expected one row for each.{reason} (In a "
            "search, scikit-learn splits a frame that has as many rows as X: add a row to "
            "documents then.)"
        )

    def covers(self, X: Any) -> bool:
        """True if a frame names documents, and has none of the features of the table."""
        columns = column_names(X)
        features = feature_columns(self.frame)
        return "doc" in columns and not {*columns} & {*features}

    def rows_of(self, X: Any, qid: Column | None = None, doc: Column | None = None) -> Ints:
        """Row of the frame of the document of each row of X."""
        return self.places(self._index(X, qid, doc))

    def joined(self, X: Any, qid: Column | None = None, doc: Column | None = None) -> Any:
        """The role columns of X and the features of each row, as a frame of pandas."""
        table = as_pandas(self.frame, feature_columns(self.frame))
        # Features of the table stand in place of those of X.
        others = [name for name in column_names(X) if name not in table.columns]
        columns = as_pandas(X, others)
        rows = self.rows_of(X, qid, doc)
        features = table.iloc[rows].reset_index(drop=True)
        return pd.concat([columns, features], axis=1)

    def _index(self, X, qid=None, doc=None):
        """Index of the rows of a frame by (qid, doc), or by doc where there is no qid."""
        found = _ids_of(X, ("qid", "doc"), qid, doc)
        if "doc" not in found:
            raise ValueError(
                f"documents has the columns {column_names(X)[:10]}; expected 'doc', the ids that "
                "the log has too. Rename the column of the ids."
            )
        return _index_of(found)


def _ids_of(X, reads, qid, doc):
    """Those of the roles ``reads`` that X has, or that were passed."""
    given = {"qid": qid, "doc": doc}
    ids = {}
    for role in reads:
        values = read_role(X, role, given[role])
        if values is not None:
            ids[role] = values
    return ids


def id_columns(ids: pd.Index | None, doc: Ints) -> dict[str, Any]:
    """The columns ``doc`` and, of ids that need no query, ``doc_scope``; none without ids."""
    if ids is None:
        return {}
    columns = {"doc": ids.get_level_values(-1).to_numpy()[doc]}
    if not isinstance(ids, pd.MultiIndex):
        columns["doc_scope"] = "global"
    return columns


def _index_of(ids):
    """Index of ids by (qid, doc), or by one of them."""
    levels = []
    for name, values in ids.items():
        # A tuple is one id, and no pair of columns.
        level = pd.Index(as_index_values(values), tupleize_cols=False)
        with naming_ids(f"The role {name!r}", level):
            _ = level.is_unique  # makes the table of hashes that look-ups read
        levels.append(level)
    if len(levels) == 1:
        return levels[0].rename(*ids)
    return pd.MultiIndex.from_arrays(levels, names=[*ids])
