"""Several logs as one: equal ids, documents and versions get one code.

Files of a dataset and shards of an engine become one log, and a table of counts learns of a new
day what it would from both.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._progress import progress
from .._base._sklearn import safe_indexing
from .._base._typing import Floats, Ints
from ..exceptions import python_value
from . import _cells
from ._cells import READS, Cells, Factors, count_cells
from ._clicklog import BY_ROW, ClickLog, make_click_log
from ._counted import CellCount
from ._documents import id_columns
from ._estimator import NotPickled, SlimPickles
from ._faults import NO_CLICKS, NO_ROW_SHOWN
from ._reader import features_of, read
from ._segments import encode, equal_keys, offsets_from_counts, pair_codes, row_hashes


class Union:
    """The ids that several logs have together, sorted as in one log, and the codes of each log.

    With ``hashes`` of the features of its versions, shape (2, n_versions), for each log, logs may
    have documents in common; without ids, documents are those of equal hashes.
    """

    def __init__(
        self, logs: Sequence[ClickLog], hashes: Sequence[NDArray[np.uint64]] | None = None
    ) -> None:
        self.query_ids, self._query = _encoded([log.query_ids for log in logs])
        self.bias_values, self._bias = _encoded([log.bias_values for log in logs])
        self.user_ids, self._user = _encoded([log.user_ids for log in logs])
        self.doc_ids, doc_codes = _united_documents(logs)
        # The document, in codes of the union, of each version of all logs.
        doc = np.concatenate(
            [code[log.doc_of_version] for code, log in zip(doc_codes, logs, strict=True)]
        )
        # Without a document in two logs, all versions differ.
        vectors = [np.arange(len(doc))] if hashes is None else np.concatenate(hashes, axis=1)
        version, first = equal_keys([*vectors, doc])
        self._version = _split(version.astype(np.int32), [log.doc_of_version for log in logs])
        if self.doc_ids is None:  # versions are documents
            self.doc_of_version = np.arange(len(first), dtype=np.int32)
        else:
            self.doc_of_version = doc[first]

    def codes(self, name: str, number: int) -> Ints:
        """The code in the union for each code of ``name`` (such as "query") in one of the logs."""
        return getattr(self, f"_{name}")[number]

    def recoded(self, log: ClickLog, number: int) -> ClickLog:
        """One of the logs, by its number, with the codes and ids of the union."""
        query = self._query[number]
        version = self._version[number]
        user = self._user[number]
        bias = self._bias[number]
        rest = log.candidates
        candidates = rest._replace(query=query[rest.query], version=version[rest.version])
        return replace(
            log,
            version=version[log.version],
            query_of_list=query[log.query_of_list],
            user=user[log.user],
            bias=bias[log.bias],
            doc_of_version=self.doc_of_version,
            query_ids=self.query_ids,
            bias_values=self.bias_values,
            user_ids=self.user_ids,
            doc_ids=self.doc_ids,
            candidates=candidates,
        )


def joined(logs: Sequence[ClickLog]) -> ClickLog:
    """The log of several logs, whose lists are different ones; without propensities."""
    union = Union(logs, [row_hashes(log.features) for log in logs])
    parts = [union.recoded(log, number) for number, log in enumerate(logs)]
    n_features = logs[0].features.shape[1]
    # Of a version in several logs, all have the same features.
    features = np.empty((len(union.doc_of_version), n_features), dtype=np.float32)
    for number, log in enumerate(logs):
        features[union.codes("version", number)] = log.features
    # The lists one after the other, log by log.
    columns = {}
    for name in (*BY_ROW, "production", "query_of_list"):
        if getattr(parts[0], name) is not None:
            columns[name] = np.concatenate([getattr(part, name) for part in parts])
    lengths = np.concatenate([part.lengths for part in parts])
    log = replace(
        parts[0],
        **columns,
        features=features,
        propensity=None,
        all_lists_differ=False,
        offsets=offsets_from_counts(lengths),
    )
    # The lists of a query, of whichever logs, follow each other.
    return log.take_lists(np.argsort(log.query_of_list, kind="stable"))


def _encoded(values: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], list[Ints]]:
    """The distinct values of several arrays, sorted, and the codes of those of each array."""
    # All values are coded together, and the codes cut where the arrays end.
    code, found = encode(np.concatenate(values))
    return found, _split(code.astype(np.int32), values)


def _split(code: Ints, like: Sequence[Any]) -> list[Ints]:
    """Parts of an array that are as long as other arrays."""
    lengths = [len(each) for each in like]
    return np.split(code, np.cumsum(lengths)[:-1])


def _united_documents(logs: Sequence[ClickLog]) -> tuple[pd.Index | None, list[Ints]]:
    """All documents, sorted as in one log, and the codes of those of each log; 0 without ids."""
    ids = [log.doc_ids for log in logs]
    if ids[0] is None:
        return None, [np.zeros(log.n_docs, dtype=np.int32) for log in logs]
    names = list(ids[0].names)
    levels = []
    codes = []
    for name in names:
        values, code = _encoded([each.get_level_values(name).to_numpy() for each in ids])
        levels.append(pd.Index(values, tupleize_cols=False))
        codes.append(code)
    if len(names) == 1:
        return levels[0].rename(names[0]), codes[0]
    # Of all pairs (qid, doc), those that occur.
    n_ids = len(levels[1])
    pairs = [pair_codes(query, doc, n_ids) for query, doc in zip(*codes, strict=True)]
    found, code = _encoded(pairs)
    query, doc = np.divmod(found, n_ids)
    return pd.MultiIndex(levels, [query, doc], names=names), code


# Shards of an engine ------------------------------------------------------------------
# Of a log whose cells are too many to be collected at once.


def number_of_shards(count: CellCount) -> int:
    """Number of shards such that each has at most ``MAX_CELLS`` cells; 1 if all have."""
    n_shards = -(-count.n_rows // _cells.MAX_CELLS)  # rounded up
    if n_shards <= 1:
        return 1
    # There are fewer cells than rows: how many fewer, one shard says. A tenth of the room is left
    # free, because other shards may have more.
    _, rate = count.cells((0, n_shards))
    n_cells = n_shards * len(rate)
    return 1 if n_cells <= 0.9 * _cells.MAX_CELLS else n_shards


def log_of_count(
    count: CellCount, read: Callable[[Any, Floats], ClickLog]
) -> tuple[ClickLog, Any, Any]:
    """The log of the cells of a count, and the last frame and click rates that it was read from.

    ``read(X, click_rate)`` is the log of a frame of cells; frames of shards share no document.
    """
    n_shards = number_of_shards(count)
    if n_shards == 1:
        X, rate = count.cells(in_order=True)
        return read(X, rate), X, rate
    logs = []
    with warnings.catch_warnings():  # what is said of one part need not hold for the log
        warnings.simplefilter("ignore")
        for number in progress(range(n_shards), "shard"):
            # A shard of few documents may have no cell.
            X, rate = count.cells((number, n_shards))
            if len(rate):
                logs.append(read(X, rate))
    if not logs:
        NO_ROW_SHOWN.report()
    log = joined(logs)
    # Of the whole log, what no shard could say.
    if not log.clicks.any():
        NO_CLICKS.report()
    return log, X, rate


def cells_of_count(count: CellCount) -> tuple[Cells | Any, Floats | None, dict[str, Any]]:
    """A frame of cells, click rates, and the texts that ids in the frame are codes of; cells and
    None where the frame would be too large."""
    if number_of_shards(count) == 1:
        return count.coded_cells()

    def read(X, rate):
        no_features = np.empty((len(rate), 0), dtype=np.float32)
        return make_click_log(X, no_features, rate)

    # Cells of all shards fit into memory; as a frame they would not.
    log, _, _ = log_of_count(count, read)
    factors = Factors(log.bias_values, None)
    cells = replace(log.cells, factors=factors, doc_query=log.query_of_doc, doc_ids=log.doc_ids)
    return cells, None, {}


# Logs of several days -----------------------------------------------------------------
class Kept(NamedTuple):
    """What a later log is added to, and whether pickles hold it."""

    counts: ClickLog | CellCounts
    is_pickled: bool


class AddsLogs(SlimPickles):
    """Mixin of tables of counts, whose ``partial_fit`` is ``fit`` to the lists of all logs."""

    _kept = NotPickled("the counts of the log", when=lambda kept: not kept.is_pickled)

    def _joined(self, new: ClickLog | CellCounts) -> Any:
        """The log of the logs so far and of a new one; rows and click rates of their cells."""
        if "_kept" not in vars(self):
            raise ValueError(
                f"This {type(self).__name__} holds no counts that a log could be added to: "
                "pickles leave out those of fit, and fit keeps none of a log in an engine of "
                "which it drew some queries, or whose cells do not fit into memory. Start with "
                "partial_fit, which keeps them in pickles, or fit to the logs of all days "
                "together, such as a ClickDataset."
            )
        kept = self._kept.counts
        # Days with other ids would not meet in one document.
        before = _identity(kept.doc_ids)
        now = _identity(new.doc_ids)
        if before != now:
            raise ValueError(
                f"The documents of this log are identified by {now}, and those of the earlier "
                f"ones by {before}. Pass qid, doc and doc_scope as before."
            )
        if isinstance(new, CellCounts):
            X, rate = kept.rows()
            X_new, rate_new = new.rows()
            X_new["session"] += len(X)  # cells of one day are not those of another
            X_all = pd.concat([X, X_new], ignore_index=True)
            return X_all, np.concatenate([rate, rate_new])
        if (kept.production is None) != (new.production is None):
            raise ValueError(
                "Only one of the logs has the role 'production'. Pass it with every log, or with "
                "none."
            )
        return joined([kept, new])


def counts_of(log: ClickLog) -> ClickLog:
    """The log, with features only where they tell the documents apart."""
    if log.doc_ids is None:
        return log
    return log.with_features(np.empty((log.n_docs, 0), dtype=np.float32))


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
        # Without ids, features tell which documents of two days are one.
        has_ids = cells.doc_ids is not None
        features = None if has_ids else features_of(safe_indexing(X, cells.doc_row))
        return cls(cells, rows.query_ids, name, features), row_factor

    def named(self, ids: Mapping[str, pd.Index]) -> CellCounts:
        """The counts with ids in place of their codes, by name."""
        if not ids:  # they have the ids of the log, or none at all
            return self
        query_ids = self.query_ids
        if "qid" in ids:
            query_ids = np.asarray(ids["qid"].take(query_ids))
        named = _named(self.cells.doc_ids, ids)
        return replace(self, query_ids=query_ids, cells=replace(self.cells, doc_ids=named))

    @property
    def doc_ids(self) -> pd.Index | None:
        """Ids of the documents."""
        return self.cells.doc_ids

    def rows(self) -> tuple[pd.DataFrame, Floats]:
        """One row per cell with click rates."""
        cells = self.cells
        columns = {
            "qid": self.query_ids[cells.doc_query][cells.doc],
            **id_columns(cells.doc_ids, cells.doc),
            "bias": cells.factors.bias[cells.factor],
        }
        if self.user is not None:
            columns[self.user] = cells.factors.user[cells.factor]
        columns |= {"impressions": cells.weight, "session": np.arange(len(cells.doc))}
        X = pd.DataFrame(columns)
        if self.features is not None:
            features = pd.DataFrame(self.features[cells.doc]).add_prefix("feature ")
            X = pd.concat([X, features], axis=1)
        return X, np.minimum(cells.clicks / cells.weight, 1.0)


def _named(codes, ids):
    """An index of documents with ids in place of codes."""
    named = [
        pd.Index(ids[name].take(level) if name in ids else level, name=name, tupleize_cols=False)
        for name, level in zip(codes.names, getattr(codes, "levels", [codes]), strict=True)
    ]
    if not isinstance(codes, pd.MultiIndex):
        return named[0]
    return pd.MultiIndex(named, codes.codes, names=codes.names, verify_integrity=False)


def _identity(ids):
    """What tells documents apart."""
    if ids is None:
        return "the values of the features"
    return "doc alone" if ids.nlevels == 1 else "the pair (qid, doc)"


def with_bias_values(log: ClickLog, known: NDArray[Any]) -> ClickLog:
    """The log with the codes of ``known`` bias factors, which must include its own."""
    given = pd.Index(log.bias_values, tupleize_cols=False)
    code = pd.Index(known, tupleize_cols=False).get_indexer(given)
    unknown = log.bias_values[code < 0]
    if len(unknown):
        some = ", ".join(repr(python_value(each)) for each in unknown[:3])
        raise ValueError(
            f"{len(unknown)} bias factor(s) of the log, such as {some}, were not in the log that "
            "the estimator was fitted to, which has no examination for them. Fit to a log that "
            "shows all bias factors, or leave out these rows."
        )
    return replace(log, bias=code[log.bias], bias_values=known)
