"""Features of documents in a frame of their own, beside a log of who was shown where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._typing import Column, Ints
from ..exceptions import python_value
from ._faults import count_of
from ._roles import as_pandas, column_names, feature_columns, is_frame, read_role


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
        self.ids = self._ids_of(frame)
        self.production = read_role(frame, "production")
        if self.ids.has_duplicates:
            example = python_value(self.ids[self.ids.duplicated()][0])
            raise ValueError(
                f"documents has {int(self.ids.duplicated().sum())} rows whose "
                f"{' and '.join(self.ids.names)} another row has too, such as {example!r}; "
                "expected one row for each document."
            )

    def places(self, ids: pd.Index | None) -> Ints:
        """Row of the frame of each document of a log; an error if one is missing."""
        if ids is None:
            raise ValueError(
                "documents= was passed, but X has no column 'doc' and no doc was passed: nothing "
                "links the rows to their features. Add the ids of the documents as 'doc'."
            )
        if ids.nlevels > self.ids.nlevels:
            ids = ids.get_level_values("doc")
        if ids.nlevels < self.ids.nlevels:
            raise ValueError(
                "documents has the column 'qid', but the documents of X are named by 'doc' alone "
                "(X has no queries, or doc_scope is 'global'). Drop 'qid' from documents, or add "
                "it to X."
            )
        place = self.ids.get_indexer(ids)
        lost = np.flatnonzero(place < 0)
        if len(lost):
            types = [str(each.get_level_values("doc").dtype) for each in (ids, self.ids)]
            differ = f" 'doc' holds {types[0]} values in X, and {types[1]} values in documents."
            raise ValueError(
                f"documents is missing {len(lost)} of {count_of(len(ids), 'document')} of the log "
                f"(such as {python_value(ids[lost[0]])!r}); expected one row for each."
                f"{differ if types[0] != types[1] else ''} (In a search, scikit-learn splits a "
                "frame that has as many rows as X: add a row to documents then.)"
            )
        return place

    def covers(self, X: Any) -> bool:
        """True if a frame names documents, and has none of the features of the table."""
        columns = column_names(X)
        return "doc" in columns and not {*columns} & {*feature_columns(self.frame)}

    def rows_of(self, X: Any, qid: Column | None = None, doc: Column | None = None) -> Ints:
        """Row of the frame of the document of each row of X."""
        return self.places(self._ids_of(X, qid, doc))

    def joined(self, X: Any, qid: Column | None = None, doc: Column | None = None) -> Any:
        """The role columns of X and the features of each row, as a frame of pandas."""
        table = as_pandas(self.frame, feature_columns(self.frame))
        columns = as_pandas(X, [name for name in column_names(X) if name not in table.columns])
        features = table.iloc[self.rows_of(X, qid, doc)].reset_index(drop=True)
        return pd.concat([columns, features], axis=1)

    def _ids_of(self, X, qid=None, doc=None):
        """Index of the rows of a frame by (qid, doc), or by doc where there is no qid."""
        found = {"qid": read_role(X, "qid", qid), "doc": read_role(X, "doc", doc)}
        if found["doc"] is None:
            raise ValueError(
                f"documents has the columns {column_names(X)[:10]}; expected 'doc', the ids that "
                "the log has too. Rename the column of the ids."
            )
        levels = {name: values for name, values in found.items() if values is not None}
        level = [pd.Index(values, tupleize_cols=False) for values in levels.values()]
        if len(level) == 1:
            return level[0].rename("doc")
        return pd.MultiIndex.from_arrays(level, names=["qid", "doc"])
