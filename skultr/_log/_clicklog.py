"""A click log as codes and arrays, list by list: the input of rankers and click models.

A :class:`ClickLog` does not depend on the kind of frame, on the types of ids, or on the order of
the rows that it was read from.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._typing import ArrayLike, Bools, Column, Floats, Ints
from ._cells import Cells
from ._documents import FeatureTable
from ._reader import Rows, first_rows, read
from ._segments import (
    TINY,
    encode,
    equal_keys,
    equal_rows,
    hash_columns,
    mix,
    offsets_from_counts,
    offsets_from_sorted,
    pair_codes,
    rows_where,
)

#: Rows to which a few numbers that all documents share are fitted: their errors are then far
#: below those of the rest.
SAMPLE = 1 << 21
BY_ROW = ("version", "user", "position", "bias", "clicks", "weight")
MAY_BE_NONE = ("propensity", "production")


class NeverShown(NamedTuple):
    """Candidates of queries: versions of documents in rows that were not shown.

    Each pair is there once, sorted: how often a log repeats a candidate carries no information,
    because every page of the query could have shown it. Other rows may show it nevertheless.
    """

    query: Ints  # (n_candidates,)
    version: Ints  # (n_candidates,)
    production: Floats | None = None  # (n_candidates,), if it was read

    @classmethod
    def of_rows(
        cls, query: Ints, version: Ints, production: Floats | None, n_versions: int
    ) -> NeverShown:
        """The distinct pairs among rows."""
        pairs = pair_codes(query, version, n_versions)
        if production is None:
            pairs = np.unique(pairs)
        else:
            pairs, first = np.unique(pairs, return_index=True)
            production = production[first]
        query, version = np.divmod(pairs, n_versions)
        return cls(query.astype(np.int32), version.astype(np.int32), production)

    def of_queries(self, keep: Bools) -> NeverShown:
        """Those of the queries for which ``keep``, a bool array by query code, is True."""
        rows = keep[self.query]
        production = None if self.production is None else self.production[rows]
        return NeverShown(self.query[rows], self.version[rows], production)


NOBODY = NeverShown(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32))


@dataclass(frozen=True, eq=False)
class ClickLog:
    """A click log as codes and arrays, sorted by query, list and position.

    Columns are arrays or memory maps of narrow types: codes are int32 (multiply them by
    :func:`~skultr._log._segments.pair_codes`), and constant columns have no memory.

    A document is who was shown: counts, tables and labels go by document. Its features may differ
    between rows: a version is one feature vector of one document, and equal vectors of a document
    are one version. Where features never change, versions are documents.

    All rows were shown. Candidates that were not are a table of their own; where it is read, the
    log has their versions and documents, too.

    Parameters
    ----------
    features : ndarray of shape (n_versions, n_features), float32
        One row per version.
    version, user : ndarray of shape (n_rows,), int
        Codes of each row.
    query_of_list : ndarray of shape (n_lists,), int
        Code of the query of each list.
    doc_of_version : ndarray of shape (n_versions,), int
        Code of the document of each version, ascending.
    position : ndarray of shape (n_rows,), int
        Rank at which the row was shown, from 1.
    bias : ndarray of shape (n_rows,), int
        Code of the bias factor, an index of ``bias_values``.
    clicks : ndarray of shape (n_rows,)
        Weighted number of clicks: click rate times ``weight``.
    weight : ndarray of shape (n_rows,)
        Impressions times sample weight.
    propensity : ndarray of shape (n_rows,) or None
        Known examination probabilities.
    offsets : ndarray of shape (n_lists + 1,)
        First row of each list, and the number of rows.
    query_ids, bias_values, user_ids : ndarray
        Values that the codes stand for.
    doc_ids : Index of shape (n_docs,) or None
        Documents that the codes stand for: pairs (qid, doc), or doc if the ids are global or there
        is one query; None if documents are equal rows of features.
    production : ndarray of shape (n_rows,) or None
        Score of the ranker that served the list; only for readers that ask for the role.
    candidates : NeverShown
        Candidates of the queries, for models of which documents are shown.
    all_lists_differ : bool
        True if no two lists are equal but for users and clicks: there is nothing to merge.
    categorical : tuple of int
        Columns of the features that hold codes of categories, not numbers.
    """

    features: np.ndarray
    version: np.ndarray
    doc_of_version: np.ndarray
    query_of_list: np.ndarray
    user: np.ndarray
    position: np.ndarray
    bias: np.ndarray
    clicks: np.ndarray
    weight: np.ndarray
    propensity: np.ndarray | None
    offsets: np.ndarray
    query_ids: np.ndarray
    bias_values: np.ndarray
    user_ids: np.ndarray
    doc_ids: pd.Index | None
    production: np.ndarray | None = None
    candidates: NeverShown = NOBODY
    all_lists_differ: bool = False
    categorical: tuple[int, ...] = ()

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.version)

    @property
    def n_versions(self) -> int:
        """Number of versions of documents."""
        return len(self.doc_of_version)

    @property
    def n_docs(self) -> int:
        """Number of documents."""
        if not self.n_versions:
            return 0
        return int(self.doc_of_version[-1]) + 1  # the codes ascend

    @cached_property
    def doc(self) -> Ints:
        """Code of the document of each row, shape (n_rows,)."""
        if self.n_versions == self.n_docs:
            return self.version
        return self.doc_of_version[self.version]

    @property
    def n_lists(self) -> int:
        """Number of lists."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Ints:
        """Rows of each list, shape (n_lists,)."""
        return np.diff(self.offsets)

    @cached_property
    def list_(self) -> Ints:
        """Number of the list of each row, shape (n_rows,)."""
        number = np.arange(self.n_lists, dtype=np.int32)
        return np.repeat(number, self.lengths)

    @cached_property
    def query(self) -> Ints:
        """Code of the query of each row, shape (n_rows,)."""
        return np.repeat(self.query_of_list, self.lengths)

    @property
    def query_of_doc(self) -> Ints:
        """Code of the first query of each document, shape (n_docs,); 0 if no row shows it."""
        query = np.zeros(self.n_docs, dtype=np.intp)
        # Backwards, so that the first row of a document is the last one written.
        query[self.doc[::-1]] = self.query[::-1]
        return query

    @property
    def n_impressions(self) -> float:
        """Impressions of all rows, times sample weights."""
        return float(self.weight.sum(dtype=float))

    @cached_property
    def click_rate(self) -> Floats:
        """Clicks over impressions, shape (n_rows,)."""
        return self.clicks / self.weight.astype(np.float64, copy=False)

    def by_document(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values (n_versions, ...) as means by document, weighted by impressions."""
        if self.n_versions == self.n_docs:
            return values
        weight = np.bincount(self.version, self.weight, minlength=self.n_versions)
        # Versions that no row shows (of candidates) have a mean among themselves.
        weight = np.maximum(weight, TINY)
        first = np.flatnonzero(np.diff(self.doc_of_version, prepend=-1))
        # Shares of the document's impressions, of versions that follow one another.
        weight /= np.add.reduceat(weight, first)[self.doc_of_version]
        weight = np.expand_dims(weight, tuple(range(1, values.ndim)))
        return np.add.reduceat(values * weight, first)

    def with_features(self, features: NDArray[Any]) -> ClickLog:
        """The log with one row of features (n_docs, n_features) per document."""
        # Lists of other versions of the same documents are equal now.
        had_one_each = self.n_versions == self.n_docs
        return replace(
            self,
            features=features,
            version=self.doc,
            doc_of_version=np.arange(self.n_docs),
            all_lists_differ=self.all_lists_differ and had_one_each,
        )

    @cached_property
    def cells(self) -> Cells:
        """Clicks and impressions by document and bias factor."""
        return Cells.from_rows(
            self.doc, self.bias, self.clicks, self.weight, self.n_docs, len(self.bias_values)
        )

    def sample(self, max_rows: int = SAMPLE) -> ClickLog:
        """Whole queries of a log that is too long; otherwise the log.

        A handful of numbers, such as the scale of scores, is fitted to millions of rows as well as
        to all. The queries are drawn by a hash of their code: each call gives the same.
        """
        if self.n_rows <= max_rows:
            return self
        n_queries = len(self.query_ids)
        # Queries in the order of their hashes, as many as fit.
        n_rows = np.bincount(self.query_of_list, self.lengths, n_queries)
        hashes = mix(np.arange(n_queries, dtype=np.uint64))
        drawn = np.argsort(hashes, kind="stable")
        fits = np.cumsum(n_rows[drawn]) <= max_rows
        keep = np.zeros(n_queries, dtype=bool)
        keep[drawn[fits]] = True
        if not n_rows[keep].any():  # the first query with rows is longer
            with_rows = drawn[n_rows[drawn] > 0]
            keep[with_rows[:1]] = True
        return self.select_queries(keep)

    def chunks(
        self, max_rows: int = 1 << 19, *, whole_queries: bool = False
    ) -> Iterator[ClickLog]:
        """Logs of consecutive lists, or queries: views of at most ``max_rows`` rows or of one.

        Computations by row need little memory beside the log if done chunk by chunk. A log without
        rows is one chunk.
        """
        if not self.n_lists:
            yield self
        # The first list of each unit that stays together, and where its rows begin.
        bounds = np.arange(self.n_lists + 1)
        if whole_queries:
            bounds = offsets_from_sorted(self.query_of_list)
        begins = self.offsets[bounds]
        first = 0
        while first < len(bounds) - 1:
            # As many units as fit, but one at least.
            most = begins[first] + max_rows
            last = int(np.searchsorted(begins, most, "right")) - 1
            last = max(last, first + 1)
            lists = slice(bounds[first], bounds[last])
            rows = slice(begins[first], begins[last])
            offsets = self.offsets[lists.start : lists.stop + 1] - rows.start
            yield self._columns(rows, offsets, lists)
            first = last

    def by_chunk(
        self, value: Callable[[ClickLog], Any], dtype: Any = np.float64, **chunks: Any
    ) -> NDArray[Any]:
        """A value of each row, shape (n_rows,), by a function of each chunk."""
        found = np.empty(self.n_rows, dtype=dtype)
        first = 0
        for part in self.chunks(**chunks):
            last = first + part.n_rows
            found[first:last] = value(part)
            first = last
        return found

    def by_query(self, values: NDArray[Any]) -> Floats:
        """Sums of one value per row by query, shape (n_queries,)."""
        return np.bincount(self.query_of_list, self.by_list(values), len(self.query_ids))

    def by_list(self, values: NDArray[Any]) -> Floats:
        """Sums of one value per row by list, shape (n_lists,)."""
        # By chunk, because the sums are in double precision and values may be mapped from disk.
        parts = replace(self, clicks=values).chunks()
        sums = []
        for part in parts:
            starts = part.offsets[:-1]
            sums.append(np.add.reduceat(part.clicks, starts, dtype=float))
        return np.concatenate(sums)

    def take_rows(self, rows: NDArray[Any], list_: Ints) -> ClickLog:
        """The log of ``rows``, an index or mask; a new list begins where ``list_`` changes."""
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        offsets = offsets_from_sorted(list_)
        # A list belongs to the query of its first row.
        first_rows = rows[offsets[:-1]]
        lists = np.searchsorted(self.offsets, first_rows, side="right") - 1
        return replace(self._columns(rows, offsets, lists), all_lists_differ=False)

    def without_candidates(self) -> ClickLog:
        """The log without its table of candidates, and the documents that no row shows."""
        if not len(self.candidates.query):
            return self
        # The order of the lists depends on the codes, which change.
        log = replace(self, candidates=NOBODY, all_lists_differ=False)
        return log._with_versions_that_occur()

    def without_propensity(self) -> ClickLog:
        """The log without propensities, by which equal lists may have differed."""
        return replace(self, propensity=None, all_lists_differ=False)

    def fold(self, users: bool = False, patterns: bool = False) -> ClickLog:
        """The log with identical lists merged; their clicks and weights are summed.

        Lists are identical if they show the same versions under the same positions and bias
        factors; with ``users``, also to the same user; with ``patterns``, also with clicks on the
        same rows. Objectives that are linear in the clicks given the list have the same value and
        gradient on the folded log, at a cost that grows with the number of *distinct* lists.
        """
        if self.all_lists_differ:
            return self
        # Lists of a group are merged into its first one.
        group, first = self._identical_lists(users, patterns)
        if len(first) == self.n_lists:
            return self.take_lists(first)
        lengths = self.lengths
        # Cell of a row: the row at its place in the first list of its group.
        new_offsets = np.concatenate(([0], np.cumsum(lengths[first])))
        shift = new_offsets[group] - self.offsets[:-1]
        cell = np.repeat(shift, lengths)
        cell += np.arange(self.n_rows)  # in place: two arrays of rows at once would be many bytes
        n_cells = int(new_offsets[-1])
        clicks = _narrow(np.bincount(cell, self.clicks, n_cells))
        weight = _narrow(np.bincount(cell, self.weight, n_cells))
        del cell
        merged = replace(self, clicks=clicks, weight=weight)  # the log of all rows lacks them
        merged = merged.take_lists(first, but=("clicks", "weight"))
        return replace(merged, clicks=clicks, weight=weight)

    def tempered(self, exponent: float) -> ClickLog:
        """The log with the traffic of each query (its impressions) raised to a power.

        1 keeps the impressions; 0 gives every query the same weight.
        """
        return self.times(self.traffic_factors(exponent))

    def traffic_factors(self, exponent: float) -> Floats:
        """The factors of :meth:`tempered` by query, (n_queries,); their mean over impressions is
        1."""
        traffic = self.by_query(self.weight)
        # The power less one, because the impressions themselves are a factor already.
        power = np.maximum(traffic, TINY) ** (exponent - 1.0)
        factor = np.where(traffic > 0, power, 0.0)
        scale = traffic.sum() / (factor * traffic).sum()
        return factor * scale

    def times(self, numbers: Floats) -> ClickLog:
        """The log with the clicks and weights of each query times a factor, (n_queries,)."""
        clicks = self.by_chunk(lambda part: part.clicks * numbers[part.query])
        weight = self.by_chunk(lambda part: part.weight * numbers[part.query])
        return replace(self, clicks=clicks, weight=weight)

    def comparable(self) -> ClickLog:
        r"""The log with the pages of one row joined, query by query, and exposure as weight.

        Nothing can be compared within a page of one row. Where most clicks of a query fell on
        such pages, all its rows become one list. They differ in their impressions :math:`n`, and
        :math:`\mathrm{E}[c] = n\,o\,r`: a listwise loss has its optimum at relevance if
        :math:`\log n` is added to the scores. Exposure is :math:`n` in joined lists, 1 in others.
        """
        clicks = self.by_list(self.clicks)
        query = self.query_of_list
        n_queries = len(self.query_ids)
        # Clicks of each query, and those of them on pages of one row.
        clicks_alone = np.where(self.lengths == 1, clicks, 0.0)
        alone = np.bincount(query, clicks_alone, n_queries)
        total = np.bincount(query, clicks, n_queries)
        # A single page has nothing to be joined with.
        several = np.bincount(query, minlength=n_queries) > 1
        joined = several & (2 * alone > total)
        if not joined.any():
            ones = np.broadcast_to(np.float32(1), self.n_rows)
            return replace(self, weight=ones)
        # A joined query begins one list, and another query one with each of its lists.
        begins_query = np.diff(query, prepend=-1) != 0
        begins = begins_query | ~joined[query]
        offsets = np.append(self.offsets[:-1][begins], self.n_rows)
        exposure = np.where(joined[self.query], self.weight, 1.0)
        return replace(
            self,
            offsets=offsets,
            query_of_list=query[begins],
            weight=exposure,
            all_lists_differ=False,
        )

    def compared_groups(self) -> Ints:
        """Code of the rows that each row is compared with, shape (n_rows,), rising from 0.

        They are those of its query, where no document of the query changes. Where one does, they
        are those of its page, as :meth:`comparable` has them: pages differ in their users and
        their days, and what changes with these would be taken for what users click for.
        """
        log = self.comparable()
        # Queries with more versions than documents.
        changes = np.zeros(len(log.query_ids), dtype=bool)
        for part in log.chunks(whole_queries=True):
            n_versions = part.count_by_query(part.version)
            changes |= n_versions > part.count_by_query(part.doc)
        query = log.query_of_list
        begins_query = np.diff(query, prepend=-1) != 0
        begins = begins_query | changes[query]
        group_of_list = np.cumsum(begins) - 1
        return group_of_list[log.list_]

    def count_by_query(self, code: Ints) -> Ints:
        """Number of distinct codes of the rows of each query, shape (n_queries,)."""
        n_codes = int(code.max(initial=0)) + 1
        # Each code once per query.
        pairs = np.unique(pair_codes(self.query, code, n_codes))
        return np.bincount(pairs // n_codes, minlength=len(self.query_ids))

    def select_queries(self, keep: Bools) -> ClickLog:
        """The log of the queries for which ``keep``, a bool array by query code, is True."""
        # Candidates go with their query, and codes stay.
        log = replace(self, candidates=self.candidates.of_queries(keep))
        return log.take_lists(np.flatnonzero(keep[self.query_of_list]))

    def with_values(self, role: str, known: NDArray[Any], values: NDArray[Any]) -> ClickLog:
        """The log with other bias factors or users: ``values`` in place of the ``known`` ones.

        Those that are not known must not occur.
        """
        column = getattr(self, role)
        names = "bias_values" if role == "bias" else "user_ids"
        found, code = np.unique(values, return_inverse=True)
        own = pd.Index(getattr(self, names))
        place = pd.Index(known).get_indexer(own)
        new_code = code[place].astype(np.int32)
        # Lists under factors that become one may be equal now.
        merges = role == "bias" and len(found) < len(values)
        return replace(
            self,
            **{role: new_code[column], names: found},
            all_lists_differ=self.all_lists_differ and not merges,
        )

    def part_of(self, queries: Ints) -> ClickLog:
        """The log of some queries (codes, sorted) as it would be read without the others."""
        # True for the queries that stay.
        keep = np.bincount(queries, minlength=len(self.query_ids)) > 0
        lists = np.flatnonzero(keep[self.query_of_list])
        log = self._part_of_lists(lists, keep)
        if not log.all_lists_differ:
            return log
        # The order of the lists of a query is that of their hashes, which depend on the codes.
        first_hash, second_hash = log._list_hashes()
        order = np.lexsort([second_hash, first_hash, log.query_of_list])
        del log
        return self._part_of_lists(lists[order], keep)

    def _part_of_lists(self, lists, keep):
        """The log of some lists, and of the candidates of their queries; codes have no gaps."""
        rest = self.candidates.of_queries(keep)
        log = replace(self.take_lists(lists), candidates=rest)
        log = log._with_versions_that_occur()
        log.features.flags.writeable = False  # no fit may scale in place what the next one reads
        # Queries of candidates alone stay, and users and factors of rows alone.
        queries, query_code = _codes_that_occur(len(self.query_ids), log.query_of_list, rest.query)
        factors, factor_code = _codes_that_occur(len(self.bias_values), log.bias)
        users, user_code = _codes_that_occur(len(self.user_ids), log.user)
        candidates = log.candidates._replace(query=query_code[rest.query])
        return replace(
            log,
            query_of_list=query_code[log.query_of_list],
            bias=factor_code[log.bias],
            user=user_code[log.user],
            query_ids=self.query_ids[queries],
            bias_values=self.bias_values[factors],
            user_ids=self.user_ids[users],
            candidates=candidates,
        )

    def _with_versions_that_occur(self):
        """The log with the versions, and the documents, of its rows and candidates only."""
        rest = self.candidates
        versions, new_code = _codes_that_occur(self.n_versions, self.version, rest.version)
        docs, doc_of_version = np.unique(self.doc_of_version[versions], return_inverse=True)
        doc_ids = None if self.doc_ids is None else self.doc_ids[docs]
        candidates = rest._replace(version=new_code[rest.version])
        return replace(
            self,
            features=self.features[versions],
            version=new_code[self.version],
            doc_of_version=doc_of_version,
            doc_ids=doc_ids,
            candidates=candidates,
        )

    def _identical_lists(self, users, patterns):
        """Group number of each list, and the first list of each set of identical ones."""
        # Lists that differ only in users or clicked rows stay side by side, in whatever way a
        # model tells lists apart.
        keys = [self.query_of_list.astype(np.uint64), *self._list_hashes()]
        if users:
            keys += self._list_hashes(self.user)
        if patterns:
            keys += self._list_hashes(self.clicks > 0)
        return equal_keys(keys[::-1])

    def _list_hashes(self, column=None):
        """Two hashes of each list's versions and places; with 128 bits no collision is expected.

        The first does not depend on the propensity, so that propensities do not change the order
        of the lists, and thereby the model. ``column`` is one that must be equal, too.
        """
        log = self if column is None else replace(self, user=column)
        found = [_hashes_of(part, column is not None) for part in log.chunks()]
        return [np.concatenate(each) for each in zip(*found, strict=True)]

    def take_lists(self, lists: Ints, but: Container[str] = ()) -> ClickLog:
        """The lists of these numbers; ``but`` names columns that are left as they are."""
        # All lists in their order: nothing to copy.
        every = np.arange(self.n_lists)
        if np.array_equal(lists, every):
            return self
        lengths = self.lengths[lists]
        offsets = offsets_from_counts(lengths)
        # Each row of a list is as far from where it was as the first one.
        shift = self.offsets[:-1][lists] - offsets[:-1]
        rows = np.repeat(shift, lengths)
        rows += np.arange(offsets[-1])
        return self._columns(rows, offsets, lists, but)

    def _columns(self, rows, offsets, lists, but=()):
        """The log of some rows; ``lists`` are those that its lists are parts of."""
        columns = {}
        for name in (*BY_ROW, *MAY_BE_NONE):
            column = getattr(self, name)
            if name not in but and column is not None:
                columns[name] = _taken(column, rows)
        return replace(self, **columns, offsets=offsets, query_of_list=self.query_of_list[lists])


def _hashes_of(log, with_users):
    """Two hashes of each list: sums of those of its rows, which hold their places."""
    first_row = np.repeat(log.offsets[:-1], log.lengths)
    place = np.arange(log.n_rows) - first_row
    columns = [place, log.version, log.position, log.bias]
    if with_users:
        columns.append(log.user)
    row = hash_columns(columns)
    if log.propensity is None:
        second = mix(row)
    else:
        propensity = np.asarray(log.propensity, dtype=np.float64)
        second = hash_columns([row.view(np.int64), propensity.view(np.int64)])
    starts = log.offsets[:-1]
    return np.add.reduceat(row, starts), np.add.reduceat(second, starts)


def _taken(column, rows):
    """Rows of a column; a constant one stays without memory."""
    # Strides of 0: one value stands for all rows.
    if isinstance(rows, slice) or column.strides != (0,):
        return column[rows]
    return np.broadcast_to(column[:1], len(rows))


def _narrow(column, whole=np.int32):
    """The same values in the narrow types of a log; a constant column takes no memory."""
    if len(column) and (column[0] == column).all():
        value = _narrow_type(column[:1].copy(), whole)  # a view would keep the column
        return np.broadcast_to(value.reshape(()), len(column))
    return _narrow_type(column, whole)


def _narrow_type(column, whole=np.int32):
    """The same values in a narrow type, if it holds them exactly."""
    dtype = np.float32 if column.dtype.kind == "f" else whole
    with np.errstate(over="ignore"):
        narrow = column.astype(dtype, copy=False)
    return narrow if (narrow == column).all() else column


def _codes_that_occur(n_codes, *columns):
    """The codes that occur in columns, sorted, and the number of each code among them."""
    seen = np.zeros(n_codes, dtype=bool)
    for column in columns:
        seen[column] = True
    new_code = np.cumsum(seen, dtype=np.int32) - np.int32(1)
    return np.flatnonzero(seen), new_code


def make_click_log(
    X: Any,
    features: NDArray[Any],
    y: Column,
    sample_weight: ArrayLike | None = None,
    roles: Mapping[str, Any] | None = None,
) -> ClickLog:
    """The log of X as the user passed it, of which only roles are read, and validated features."""
    # Without a name for the rows, their memory is free when the log has its columns.
    return sort_into_lists(read(X, y, sample_weight, roles), features)


def sort_into_lists(
    rows: Rows,
    features: NDArray[Any],
    *,
    reuse: bool = False,
    table: FeatureTable | None = None,
    candidates: bool = False,
) -> ClickLog:
    """The :class:`ClickLog` of rows that were checked, and of their float32 features.

    With ``reuse`` the memory of ``features`` may hold those of the log, so that both are never in
    memory. A ``table`` has the features of documents in place of those of the rows. With
    ``candidates`` the log has those that were not shown.
    """
    # 1. The documents, and what they are like.
    shown = rows_where(rows.shown)
    known = slice(None) if candidates else shown  # rows whose documents the log has
    if table is None:
        documents = rows.documents(features, known)
        reuse = reuse or not isinstance(known, slice)
        features = features[known]
        # Equal vectors of one document are one version.
        version, first, doc_of_version = _versions_of(documents, features)
    else:
        no_features = np.empty((rows.n_rows, 0), dtype=np.float32)
        documents = rows.documents(no_features, known)
        version = documents.code
        # One row of the table per document: versions are documents.
        first = table.places(documents.ids)
        reuse = False
        doc_of_version = np.arange(len(first))
    doc_ids = documents.ids
    del documents
    # 2. Rows that were shown, and those that were not.
    never = NOBODY
    if candidates:
        never = _never_shown(rows, version, len(first))
        version = version[shown]
    columns = _shown_columns(rows, shown)
    columns["version"] = version
    if table is not None and table.production is not None and "production" not in columns:
        columns["production"] = _narrow(table.production[first][version])
    # 3. Their order by query, list and position.
    place = rows.place()[shown]
    falls = place[1:] < place[:-1]
    order = np.argsort(place, kind="stable") if falls.any() else slice(None)
    # Lists that no row shows have no offsets.
    offsets = offsets_from_sorted(rows.list_[shown][order])
    query_of_row = rows.query[shown][order]
    query = query_of_row[offsets[:-1]]
    query_ids = rows.query_ids
    bias_values = rows.bias[1]
    user_ids = rows.user[1]
    del rows, version, place, falls, query_of_row  # the log needs no more of them
    for name in columns:  # one by one, so that the log is never held twice in memory
        columns[name] = _taken(columns[name], order)
    columns.setdefault("propensity", None)
    return ClickLog(
        **columns,
        features=_select_rows(features, first, reuse),
        doc_of_version=doc_of_version,
        offsets=offsets,
        query_of_list=_narrow_type(query),
        query_ids=query_ids,
        bias_values=bias_values,
        user_ids=user_ids,
        doc_ids=doc_ids,
        candidates=never,
    )


def _never_shown(rows, version, n_versions):
    """The candidates among rows."""
    rest = ~rows.shown
    production = rows["production"]
    if production is not None:
        production = production[rest]
    return NeverShown.of_rows(rows.query[rest], version[rest], production, n_versions)


def _shown_columns(rows, shown):
    """The columns of a log of some rows, in narrow types, but for their versions."""
    columns = {
        "clicks": rows.clicks,
        "user": rows.user[0],
        "position": rows.position,
        "bias": rows.bias[0],
        "weight": rows.weight,
        "propensity": rows["propensity"],
        "production": rows["production"],
    }
    narrow = {}
    for name, values in columns.items():
        if values is not None:
            # Ranks and factors are few.
            whole = np.int16 if name in ("position", "bias") else np.int32
            narrow[name] = _narrow(values[shown], whole)
    return narrow


def _select_rows(features, first, reuse):
    """The rows ``first`` of features; with ``reuse`` in their memory, unless they are few."""
    n_docs = len(first)
    if not reuse or 2 * n_docs < len(features):
        return features[first]
    every = np.arange(len(features))
    if not np.array_equal(first, every):
        step = 16  # features whose rows are moved at a time: a line of a processor's cache
        for start in range(0, features.shape[1], step):
            columns = slice(start, start + step)
            features[:n_docs, columns] = features[first, columns]
    return features[:n_docs]


def _versions_of(documents, features):
    """Code of the feature vector of each row, sorted by document, and first row and document of
    each code."""
    n_docs = len(documents.first)
    # Documents of which a row differs from the first row.
    varies = np.zeros(n_docs, dtype=bool)
    if documents.ids is not None and n_docs < len(features):
        n_features = max(1, features.shape[1])
        step = max(1, (1 << 20) // n_features)  # rows whose copies take a few megabytes
        for start in range(0, len(features), step):
            rows = slice(start, start + step)
            code = documents.code[rows]
            differs = _differ(features[rows], features[documents.first[code]])
            varies[code[differs]] = True
    if not varies.any():
        return documents.code, documents.first, np.arange(n_docs)
    # Only their vectors need codes.
    rows = np.flatnonzero(varies[documents.code])
    vector = np.zeros(len(features), dtype=np.int64)
    vector[rows], _ = equal_rows(features[rows])
    n_vectors = int(vector.max()) + 1
    code, pairs = encode(pair_codes(documents.code, vector, n_vectors))
    return code, first_rows(code, len(pairs)), pairs // n_vectors


def _differ(some, others):
    """True for each row in which two arrays differ; NaN equals NaN."""
    both_missing = np.isnan(some) & np.isnan(others)
    differ = (some != others) & ~both_missing
    return differ.any(axis=1)
