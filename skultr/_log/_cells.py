"""Clicks and impressions by document and bias factor: all that estimates of examination read.

No lists are built and no rows are sorted here, and the features of the documents are read only
where nothing else tells the documents apart: a log of ten million rows takes seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from .._base._typing import Column, Floats, Ints
from ._faults import count_of
from ._reader import first_rows, read
from ._roles import read_role
from ._segments import TINY, encode, pair_codes, rows_where

#: Rows or cells that are held in memory at once.
MAX_CELLS = 4_000_000
#: Rows of each part of a log of more rows.
PART_ROWS = 2_000_000
#: Rows whose columns a processor's cache holds.
_CHUNK = 1 << 18
#: What cells say of factors and documents.
_NAMES = ("factors", "doc_query", "doc_row", "doc_ids", "doc_weight")
#: Types of documents, factors, clicks and weight in files.
_TYPES = (np.int32, np.int32, np.float64, np.float64)
#: Roles that estimates of examination read.
READS = ("qid", "session", "doc", "doc_scope", "position", "bias", "impressions")


@dataclass(frozen=True, eq=False)
class Factors:
    """The bias factors of a log, each of them for one user where users are told apart."""

    bias: np.ndarray  # (n_factors,), position or code of the bias factor
    user: np.ndarray | None  # (n_factors,); None where all users are one

    def __len__(self):
        return len(self.bias)

    @property
    def index(self):
        """Labels of the factors, as tables have them."""
        if self.user is None:
            return pd.Index(self.bias, name="bias")
        return pd.MultiIndex.from_arrays([self.user, self.bias], names=["user", "bias"])


@dataclass(frozen=True, eq=False)
class Cells:
    """Clicks and impressions of the distinct (document, bias factor) cells of a log."""

    # By cell: codes (of arms, where documents were shuffled: what has one relevance), and counts.
    doc: np.ndarray
    factor: np.ndarray
    clicks: np.ndarray
    weight: np.ndarray  # impressions, times sample weights
    n_docs: int
    n_factors: int
    factors: Factors | None = None
    # By document: query, first row of X, id (None: documents are equal rows), number of copies.
    doc_query: np.ndarray | None = None
    doc_row: np.ndarray | None = None
    doc_ids: pd.Index | np.ndarray | None = None
    doc_weight: np.ndarray | None = None
    #: First document and first cell of each part, where cells do not fit into memory: the columns
    #: are then files.
    bounds: tuple[Ints, Ints] | None = None

    @classmethod
    def from_rows(cls, doc, factor, clicks, weight, n_docs=None, n_factors=None, **names):
        """Sums of the rows with weight by cell; ``names`` is what is known of codes."""
        if n_docs is None:
            n_docs = int(doc.max(initial=-1)) + 1
        if n_factors is None:
            n_factors = int(factor.max(initial=-1)) + 1
        if len(weight) > MAX_CELLS and n_docs > 1:
            parts = cls._parts_of_rows(doc, factor, clicks, weight, n_docs, n_factors)
            return cls.joined(parts, n_factors, **names)
        # A table of all cells is quickest, where it is smaller than a chunk.
        count = _count_in_table if n_docs * n_factors <= _CHUNK else _count_sparsely
        columns = count(doc, factor, clicks, weight, (n_docs, n_factors))
        return cls(*columns, n_docs, n_factors, **names)

    @classmethod
    def _parts_of_rows(cls, doc, factor, clicks, weight, n_docs, n_factors):
        """The cells of parts of rows, each of further documents, which count from 0."""
        for first, n_docs_of_part, rows in _rows_by_documents(doc, n_docs):
            columns = (doc[rows] - first, factor[rows], clicks[rows], weight[rows])
            yield cls.from_rows(*columns, n_docs_of_part, n_factors)

    @classmethod
    def joined(cls, parts, n_factors, **names):
        """The cells of parts, each of further documents; in files if they are too many."""
        first_doc = [0]  # of each part, and the number of documents
        first_cell = [0]
        held = []  # the columns of parts that no file has yet
        files = []
        for part in parts:
            doc = part.doc + first_doc[-1]
            held.append((doc, part.factor, part.clicks, part.weight))
            first_doc.append(first_doc[-1] + part.n_docs)
            first_cell.append(first_cell[-1] + len(part.doc))
            if first_cell[-1] > MAX_CELLS:
                # From here on, each further part goes to the files at once.
                files = files or [TemporaryFile(prefix="skultr-") for _ in _TYPES]  # noqa: SIM115
                columns = zip(*held, strict=True)
                for file, dtype, values in zip(files, _TYPES, columns, strict=True):
                    np.concatenate(values, dtype=dtype).tofile(file)
                held = []
        n_docs = first_doc[-1]
        if not files:
            columns = [np.concatenate(values) for values in zip(*held, strict=True)]
            return cls(*columns, n_docs, n_factors, **names)
        # The files are gone with the last array that maps them.
        columns = map(_mapped, files, _TYPES)
        bounds = (np.array(first_doc), np.array(first_cell))
        return cls(*columns, n_docs, n_factors, **names, bounds=bounds)

    # In parts ---------------------------------------------------------------------------
    @property
    def n_parts(self):
        """Number of parts; 1 if the cells fit into memory."""
        return 1 if self.bounds is None else len(self.bounds[0]) - 1

    def parts(self):
        """Documents of each part, a slice, and its cells; they follow one another."""
        if self.bounds is None:
            yield slice(None), self
            return
        first_doc, first_cell = self.bounds
        for number in range(self.n_parts):
            docs = slice(first_doc[number], first_doc[number + 1])
            cells = slice(first_cell[number], first_cell[number + 1])
            part = Cells(
                self.doc[cells].astype(np.intp) - docs.start,
                self.factor[cells].astype(np.intp),
                self.clicks[cells],
                self.weight[cells],
                docs.stop - docs.start,
                self.n_factors,
                self.factors,
            )
            yield docs, part

    def total(self, value):
        """Sum over the parts of a function of each."""
        return sum(value(part) for _, part in self.parts())

    def of_documents(self, value):
        """Value of each document, shape (..., n_docs), by ``value(documents, part)`` of parts."""
        values = [value(docs, part) for docs, part in self.parts()]
        return np.concatenate(values, axis=-1)

    def changed(self, change, n_factors=None, **names):
        """The cells of which each part is what a function makes of it."""
        if self.bounds is None:
            return replace(change(self), **names)
        names = {name: getattr(self, name) for name in _NAMES} | names
        # One part in memory at a time.
        changed = (change(part) for _, part in self.parts())
        return Cells.joined(changed, n_factors or self.n_factors, **names)

    def take(self, rows):
        """Some of the cells of one part, of the same documents and factors."""
        return replace(
            self,
            doc=self.doc[rows],
            factor=self.factor[rows],
            clicks=self.clicks[rows],
            weight=self.weight[rows],
        )

    def by_doc(self, values):
        """Sums of one value per cell by document."""
        sums = np.bincount(self.doc, values, minlength=self.n_docs)
        return sums.astype(float, copy=False)  # without a row, NumPy counts in integers

    def by_factor(self, values):
        """Sums of one value per cell by bias factor."""
        sums = np.bincount(self.factor, values, minlength=self.n_factors)
        return sums.astype(float, copy=False)

    @cached_property
    def clicks_of_factors(self):
        """Clicks by bias factor."""
        return self.total(lambda part: part.by_factor(part.clicks))

    @cached_property
    def weight_of_factors(self):
        """Impressions by bias factor."""
        return self.total(lambda part: part.by_factor(part.weight))

    @cached_property
    def component_of_factors(self):
        """Component of each bias factor, shape (n_factors,); documents link their factors."""
        return self.components()

    def components(self, linked=lambda part: slice(None)):
        """The same, where documents link factors by the ``linked`` cells of a part only."""
        labels = []
        for _, part in self.parts():
            rows = linked(part)
            _, label = factor_components(part.doc[rows], part.factor[rows], self.n_factors)
            labels.append(label)
        if len(labels) == 1:
            return labels[0]
        # What one part connects is like a document that was shown under all of it.
        documents = [label + self.n_factors * number for number, label in enumerate(labels)]
        factor = np.tile(np.arange(self.n_factors), len(labels))
        _, label = factor_components(np.concatenate(documents), factor, self.n_factors)
        return label

    def comparable(self, clicked):
        """Component of each factor, within which ``clicked`` cells bound ratios of examinations.

        A document with clicks under factor a that was shown under factor b without clicks bounds
        the ratio o_a / o_b from below, and not from above. The maximum-likelihood estimate of a
        ratio is finite exactly within the strong components of the directed graph with an edge
        from factor to document for "was shown under" and one from document to factor for "was
        clicked under" (the condition of Ford 1957 for paired comparisons).
        """
        if self.bounds is not None:
            # In parts: an edge between factors for each path of two edges through a document.
            def links_of(part):
                was_clicked = part.take(clicked(part)).matrix()
                return part.matrix().T @ was_clicked

            links = self.total(links_of)
            return connected_components(links, connection="strong")[1]
        rows = clicked(self)
        node = self.n_docs + self.factor  # documents first, then factors
        start = np.concatenate([node, self.doc[rows]])
        end = np.concatenate([self.doc, node[rows]])
        size = self.n_docs + self.n_factors
        labels = _components(start, end, size, connection="strong")
        return labels[self.n_docs :]

    def matrix(self, values=None):
        """One value per cell, by default 1, as a sparse matrix (n_docs, n_factors)."""
        if values is None:
            values = np.ones(len(self.doc))
        places = (self.doc, self.factor)
        return csr_array((values, places), (self.n_docs, self.n_factors))

    def of_all_users(self):
        """The same clicks with all users as one."""
        bias, code = np.unique(self.factors.bias, return_inverse=True)
        names = {name: getattr(self, name) for name in _NAMES}
        names["factors"] = Factors(bias, None)
        return replace(self.pooled(code), **names)

    def pooled(self, group):
        """The same clicks with one factor per group, without names of documents and factors."""
        n_groups = int(group.max()) + 1

        def pool(part):
            factor = group[part.factor]
            counts = (part.clicks, part.weight)
            return Cells.from_rows(part.doc, factor, *counts, part.n_docs, n_groups)

        return self.changed(pool, n_groups, factors=None)

    def reweighted(self, weight_of_doc):
        """Clicks and impressions times one number per document, as a bootstrap draws it."""
        factor = weight_of_doc[self.doc]
        return replace(
            self,
            clicks=self.clicks * factor,
            weight=self.weight * factor,
            doc_weight=weight_of_doc,
        )

    def without_empty(self):
        """The cells with impressions: those of documents that a resample left out say nothing."""
        # Mostly there is none, and nothing is copied.
        if not self.total(lambda part: np.count_nonzero(part.weight <= 0)):
            return self
        return self.changed(lambda part: part.take(part.weight > 0))

    def has_few_clicks(self, least):
        """True if documents with clicks have fewer than ``least`` clicks on average."""
        # Documents with a click.
        n_clicked = self.total(lambda part: np.count_nonzero(part.by_doc(part.clicks)))
        return self.clicks_of_factors.sum() < least * n_clicked

    def with_half_clicks(self, group=None):
        """The same clicks, and half a click for each factor (or ``group`` of them) without one."""
        # It is spread where clicks are to be expected, so that the examination of the factor is
        # small and finite, and nothing that is linked through it is lost.
        group = np.arange(self.n_factors) if group is None else group
        unclicked = np.bincount(group, self.clicks_of_factors) == 0
        if not unclicked.any():
            return self

        def expected(part):
            """Clicks of the cells without examination: impressions times the document's rate."""
            impressions = np.maximum(part.by_doc(part.weight), TINY)
            rate = part.by_doc(part.clicks) / impressions
            is_without = unclicked[group[part.factor]]
            return np.where(is_without, part.weight * rate[part.doc], 0.0)

        expected_by_factor = self.total(lambda part: part.by_factor(expected(part)))
        total_by_group = np.bincount(group, expected_by_factor)

        def add(part):
            total = total_by_group[group[part.factor]]
            half = 0.5 * expected(part)
            added = np.divide(half, total, out=np.zeros_like(total), where=total > 0)
            return replace(part, clicks=part.clicks + added)

        return self.changed(add)


# Counting -------------------------------------------------------------------------------
def _rows_with_weight(weight, start, stop):
    """Numbers of the rows with weight between two rows."""
    return start + np.flatnonzero(weight[start:stop] > 0)


def _count_in_table(doc, factor, clicks, weight, shape):
    """Document, factor, clicks and weight of each cell, by a table of all that might be."""
    n_docs, n_factors = shape
    n_cells = n_docs * n_factors
    clicks_of_cell = np.zeros(n_cells)
    weight_of_cell = np.zeros(n_cells)
    for start in range(0, len(weight), _CHUNK):
        rows = _rows_with_weight(weight, start, start + _CHUNK)
        cell = pair_codes(doc[rows], factor[rows], n_factors)
        clicks_of_cell += np.bincount(cell, clicks[rows], n_cells)
        weight_of_cell += np.bincount(cell, weight[rows], n_cells)
    seen = np.flatnonzero(weight_of_cell)
    docs, factors = np.divmod(seen, n_factors)
    return docs, factors, clicks_of_cell[seen], weight_of_cell[seen]


def _count_sparsely(doc, factor, clicks, weight, shape):
    """Document, factor, clicks and weight of each cell, by sums of sparse matrices."""
    table = csr_array(shape, dtype=complex)
    start = 0
    while start < len(weight):
        # As many rows as the table has cells: a sum goes through all of these, too.
        stop = start + max(_CHUNK, table.nnz)
        rows = _rows_with_weight(weight, start, stop)
        start = stop
        # One sparse sum of both, several times faster than sorting: clicks are imaginary.
        values = weight[rows] + 1j * clicks[rows].astype(float)
        chunk = coo_array((values, (doc[rows], factor[rows])), shape).tocsr()
        table = table + chunk if table.nnz else chunk
    table = table.tocoo()
    docs = table.row.astype(np.intp)
    factors = table.col.astype(np.intp)
    return docs, factors, table.data.imag.copy(), table.data.real.copy()


def _mapped(file, dtype):
    """The numbers in a temporary file, which is closed: what maps it keeps it alive."""
    with file:
        return np.memmap(file, dtype, mode="r").view(np.ndarray)


def _rows_by_documents(doc, n_docs):
    """First document, number of documents and rows of each part; all rows of a document in one."""
    n_rows = np.zeros(n_docs, dtype=np.intp)
    for start in range(0, len(doc), PART_ROWS):  # in parts, because counting copies narrow codes
        n_rows += np.bincount(doc[start : start + PART_ROWS], minlength=n_docs)
    ends = np.cumsum(n_rows)
    first = 0
    while first < n_docs:
        before = ends[first - 1] if first else 0
        # As many documents as fit, but one at least.
        last = int(np.searchsorted(ends, before + PART_ROWS, side="right"))
        last = max(last, first + 1)
        yield first, last - first, np.flatnonzero((doc >= first) & (doc < last))
        first = last


def read_cells(X, y, sample_weight=None, roles=None, *, user=None, arm=None, reads=READS):
    """Cells of the shown rows of a log, and the factor of each row, -1 where it was not shown.

    ``user`` is whose curve a row belongs to. Rows with the same ``arm`` (or "list length") have
    one relevance in place of documents, because these were shuffled; rows without it are left out.
    """
    return count_cells(read(X, y, sample_weight, roles, reads=reads), user=user, arm=arm)


def count_cells(rows, *, user=None, arm=None):
    """As :func:`read_cells`, from rows that were read."""
    shown = rows.shown
    if isinstance(arm, str):  # "list length"
        n_lists = int(rows.list_.max()) + 1
        n_shown = np.bincount(rows.list_, shown, minlength=n_lists)
        arm = n_shown[rows.list_]
    # Rows without an arm were not randomised.
    if arm is not None:
        shown = shown & ~pd.isna(arm)
        if not shown.any():
            raise ValueError(
                "No row that was shown was randomised: the arm is missing in all of them. "
                "Expected the arm of each randomised list."
            )
    at = rows_where(shown)
    if rows.has_places:
        bias, bias_values = rows.bias
    else:  # nothing says where a row was shown: all rows are under one bias factor
        bias = np.zeros(rows.n_rows, dtype=np.intp)
        bias_values = np.ones(1, dtype=int)
    user_of_row = None if user is None else user[at]
    factor, factors = _code_factors(bias[at], bias_values, user_of_row)
    query = rows.query[at]
    if arm is None:
        doc, first, doc_ids = rows.documents(rows=at)
    else:  # a "document" is an arm of a query
        code, ids = encode(arm[at])
        doc, key = encode(pair_codes(query, code, len(ids)))
        first = first_rows(doc, len(key))
        doc_ids = ids[key % len(ids)]
    first_row = first if isinstance(at, slice) else at[first]
    names = {"doc_query": query[first], "doc_row": first_row, "doc_ids": doc_ids}
    clicks = rows.clicks[at]
    weight = rows.weight[at]
    sizes = (len(first), len(factors))
    cells = Cells.from_rows(doc, factor, clicks, weight, *sizes, factors=factors, **names)
    row_factor = np.full(rows.n_rows, -1, dtype=np.intp)
    row_factor[at] = factor
    return cells, row_factor


def _code_factors(bias, bias_values, user):
    """Code of the factor of each row, and what the codes stand for."""
    if user is None:
        return bias, Factors(bias_values, None)
    code, user_ids = encode(user)
    # Each user has factors of its own.
    factor, pairs = encode(code * len(bias_values) + bias)
    user, bias = np.divmod(pairs, len(bias_values))
    return factor, Factors(bias_values[bias], user_ids[user])


# Components ---------------------------------------------------------------------------
def factor_components(doc: Ints, factor: Ints, n_factors: int) -> tuple[int, Ints]:
    """Component of each bias factor; a document links the factors it was shown under."""
    n_docs = int(doc.max(initial=-1)) + 1
    _, labels = bipartite_components(doc, factor, n_docs, n_factors)
    found, labels = np.unique(labels, return_inverse=True)
    return len(found), labels


def bipartite_components(
    doc: Ints, factor: Ints, n_docs: int, n_factors: int
) -> tuple[Ints, Ints]:
    """Component of each document and of each bias factor in their bipartite graph."""
    # Factors are connected exactly as in the graph that links every two factors of a document,
    # whose size would be quadratic in these.
    labels = _components(doc, n_docs + factor, n_docs + n_factors, directed=False)
    return labels[:n_docs], labels[n_docs:]


def _components(start, end, size, **settings):
    # Floats, because repeated edges are summed: small integers could overflow to 0, no edge.
    graph = coo_array((np.ones(len(start)), (start, end)), (size, size))
    return connected_components(graph, **settings)[1]


def weighted_graph(n_nodes: int, a: Ints, b: Ints, weight: NDArray) -> csr_array:
    """Sparse matrix of a weighted graph, for SciPy's spanning trees and shortest paths."""
    # SciPy before 1.17 accepts no other numbers of nodes there.
    ends = (a.astype(np.int32), b.astype(np.int32))
    graph = coo_array((weight, ends), (n_nodes, n_nodes))
    return csr_array(graph)


# Bias factors of rows -------------------------------------------------------------------
def factor_codes(
    known: NDArray[Any], X: Any, bias: Column | None, position: Column | None
) -> Ints:
    """Code of the bias factor of each row, -1 where it was not shown."""
    return known_factor_codes(known, bias_values(X, bias, position))


def bias_values(
    X: Any, bias: Column | None = None, position: Column | None = None
) -> NDArray[Any]:
    """Bias factor of each row, NaN where it is not shown; an error if X has no bias factors."""
    roles = {"bias": bias, "position": position}
    # A column of X, or what was passed.
    found = [read_role(X, role, value) for role, value in roles.items()]
    if all(values is None for values in found):
        raise ValueError(
            "X has neither a column 'bias' nor 'position', and neither was passed: expected the "
            "bias factor that each row is shown under, as in fit."
        )
    # Checked as in fit, and nothing else is read.
    rows = read(X, roles=roles, reads=("position", "bias"))
    values = rows.position if rows["bias"] is None else rows["bias"]
    return np.where(rows.position > 0, values, np.nan)


def known_factor_codes(known: NDArray[Any], values: NDArray[Any]) -> Ints:
    """Code of each value in an index of bias factors, -1 for NaN; an error for unknown values."""
    codes = pd.Index(known).get_indexer(values)
    unknown = (codes < 0) & ~np.isnan(values)  # NaN: not shown
    n_unknown = int(unknown.sum())
    if n_unknown:
        verb = "has" if n_unknown == 1 else "have"
        raise ValueError(
            f"{count_of(n_unknown, 'row')} {verb} a bias factor that was not in the training log, "
            f"such as {values[unknown][0]:g}: its examination is unknown. Map it to a known "
            "factor first, as IdentifiabilityRepair does."
        )
    return codes


def loss_scale(log: Any, mass: NDArray[Any]) -> float:
    """Number of lists with positive ``mass`` (of rows) per total mass; multiplies a loss."""
    # The loss of a mean list is then of order one, however often pages were served or clicked, so
    # that a learning rate has the same effect on every log.
    total = mass.sum(dtype=float)
    mass_of_list = np.add.reduceat(mass, log.offsets[:-1])
    n_lists = np.count_nonzero(mass_of_list)
    return float(n_lists / total) if total > 0 else 1.0


def examination_table(
    log: Any, examination: NDArray[Any], standard_error: NDArray[Any] | None = None
) -> pd.DataFrame:
    """Examination by bias factor, relative to the first known one, with impressions and clicks."""
    n_factors = len(log.bias_values)
    examined, impressions, clicks = np.zeros((3, n_factors))
    for part in replace(log, propensity=examination).chunks():
        examined += np.bincount(part.bias, part.propensity * part.weight, n_factors)
        impressions += np.bincount(part.bias, part.weight, n_factors)
        clicks += np.bincount(part.bias, part.clicks, n_factors)
    # The mean over impressions, where examination differs between rows of a factor. A further log
    # may lack one, whose examination it does not tell.
    mean = np.full(n_factors, np.nan)
    np.divide(examined, impressions, out=mean, where=impressions > 0)
    return factor_table(log.bias_values, mean, impressions, clicks, standard_error)


def factor_table(
    values: NDArray[Any],
    examination: Floats,
    impressions: Floats,
    clicks: Floats,
    standard_error: Floats | None = None,
) -> pd.DataFrame:
    """The table of :func:`examination_table` from arrays of shape (n_factors,)."""
    # A factor that the log does not link to the others has no examination.
    known = examination[np.isfinite(examination)]
    if len(known):
        examination = examination / known[0]
    columns = {"examination": examination, "impressions": impressions, "clicks": clicks}
    table = pd.DataFrame(columns, index=pd.Index(values, name="bias"))
    if standard_error is not None:
        # Beside what it is the error of.
        table.insert(1, "standard_error", standard_error)
    return table
