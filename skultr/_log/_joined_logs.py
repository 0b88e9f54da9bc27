"""Two logs as one, so that a table of counts learns of a new day what it would from both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._sklearn import safe_indexing
from .._base._typing import Floats, Ints
from ..exceptions import python_value
from ._cells import READS, Cells, count_cells
from ._clicklog import ClickLog
from ._dataset_frames import rows_of
from ._pickles import NotPickled, SlimPickles
from ._reader import features_of, read


class Kept(NamedTuple):
    """What a later log is added to, and whether pickles hold it."""

    counts: LogCounts | CellCounts
    is_pickled: bool


class AddsLogs(SlimPickles):
    """Mixin of tables of counts, whose ``partial_fit`` is ``fit`` to the lists of all logs."""

    _kept = NotPickled("the counts of the log", when=lambda kept: not kept.is_pickled)

    def _joined(self, new: LogCounts | CellCounts) -> tuple[pd.DataFrame, Floats]:
        """Rows and click rates of the logs so far and of a new one."""
        if "_kept" not in vars(self):
            raise ValueError(
                f"This {type(self).__name__} holds no counts that a log could be added to: "
                "pickles leave out those of fit, and a log whose cells do not fit into memory has "
                "none. Start with partial_fit, which keeps them in pickles, or fit to the logs of "
                "all days together, such as a ClickDataset."
            )
        return join_logs(self._kept.counts.rows(), new.rows())


@dataclass(frozen=True, eq=False)
class LogCounts:
    """The lists of a log; features only where they tell the documents apart."""

    log: ClickLog

    @classmethod
    def of(cls, log: ClickLog) -> LogCounts:
        """The counts of a log, whose features are freed if documents have ids."""
        if log.doc_ids is None:
            return cls(log)
        return cls(log.with_features(np.empty((log.n_docs, 0), dtype=np.float32)))

    def rows(self) -> tuple[pd.DataFrame, Floats]:
        """The log as rows with click rates."""
        X, rate = rows_of(self.log, ("bias", "user"), _names(self.log.features))
        return X.drop(columns="propensity", errors="ignore"), np.minimum(rate, 1.0)


@dataclass(frozen=True, eq=False)
class CellCounts:
    """The cells of a log, and what their codes stand for."""

    cells: Cells
    query_ids: np.ndarray
    #: Name of the column of users; None where all are one.
    user: str | None
    #: Features of the documents where nothing else tells them apart, (n_docs, n_features).
    features: np.ndarray | None

    @classmethod
    def read(
        cls, X: Any, y: Any, sample_weight: Any, roles: Any, name: str | None, users: Any
    ) -> tuple[CellCounts, Ints]:
        """The counts of a log, and the factor of each row as :func:`read_cells` gives it."""
        rows = read(X, y, sample_weight, roles, reads=READS)
        cells, row_factor = count_cells(rows, user=users)
        has_ids = cells.doc_ids is not None
        features = None if has_ids else features_of(safe_indexing(X, cells.doc_row))
        return cls(cells, rows.query_ids, name, features), row_factor

    def rows(self) -> tuple[pd.DataFrame, Floats]:
        """One row per cell with click rates."""
        cells, ids = self.cells, self.cells.doc_ids
        columns = {"qid": self.query_ids[cells.doc_query][cells.doc]}
        if ids is not None:
            columns["doc"] = ids.get_level_values(-1).to_numpy()[cells.doc]
            if not isinstance(ids, pd.MultiIndex):
                columns["doc_scope"] = "global"
        columns["bias"] = cells.factors.bias[cells.factor]
        if self.user is not None:
            columns[self.user] = cells.factors.user[cells.factor]
        columns |= {"impressions": cells.weight, "session": np.arange(len(cells.doc))}
        X = pd.DataFrame(columns)
        if self.features is not None:
            features = pd.DataFrame(self.features[cells.doc], columns=_names(self.features))
            X = pd.concat([X, features], axis=1)
        return X, np.minimum(cells.clicks / cells.weight, 1.0)


def join_logs(
    first: tuple[pd.DataFrame, Floats], second: tuple[pd.DataFrame, Floats]
) -> tuple[pd.DataFrame, Floats]:
    """The rows and click rates of two logs, whose lists are different ones."""
    (X, rate), (X_new, rate_new) = first, second
    before, now = _identity_of(X), _identity_of(X_new)
    if before != now:
        raise ValueError(
            f"The documents of this log are identified by {now}, and those of the earlier ones by "
            f"{before}. Pass qid, doc and doc_scope as before."
        )
    if ("production" in X) != ("production" in X_new):
        raise ValueError(
            "Only one of the logs has the role 'production'. Pass it with every log, or with none."
        )
    X_new = X_new.assign(session=X_new["session"] + X["session"].max() + 1)
    return pd.concat([X, X_new], ignore_index=True), np.concatenate([rate, rate_new])


def _identity_of(X):
    if "doc" not in X:
        return "the values of the features"
    return "doc alone" if "doc_scope" in X else "the pair (qid, doc)"


def _names(features):
    return [f"feature {place}" for place in range(features.shape[1])]


def with_bias_values(log: ClickLog, known: NDArray[Any]) -> ClickLog:
    """The log with the codes of ``known`` bias factors, which must include its own."""
    code = pd.Index(known, tupleize_cols=False).get_indexer(
        pd.Index(log.bias_values, tupleize_cols=False)
    )
    if (code < 0).any():
        unknown = [python_value(each) for each in log.bias_values[code < 0][:3]]
        raise ValueError(
            f"{int((code < 0).sum())} bias factor(s) of the log, such as "
            f"{', '.join(map(repr, unknown))}, were not in the log that the estimator was fitted "
            "to, which has no examination for them. Fit to a log that shows all bias factors, or "
            "leave out these rows."
        )
    return replace(log, bias=code[log.bias], bias_values=known)
