"""Clicks and impressions by document and bias factor: all that estimates of examination read.

No lists are built and no rows are sorted here, and the features of the documents are read only
where nothing else tells the documents apart: a log of ten million rows takes seconds.
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

from ._components import factor_components
from ._reader import first_rows, read
from ._segments import TINY, encode, pair_codes

#: Roles that estimates of examination read.
READS = ("qid", "session", "doc", "doc_scope", "position", "bias", "impressions")


@dataclass(frozen=True, eq=False)
class Factors:
    """The bias factors of a log, each of them for one user where users are told apart.

    Parameters
    ----------
    bias : ndarray of shape (n_factors,), int
        Position, or code of the bias factor.
    user : ndarray of shape (n_factors,) or None
        User of each factor; None where all users are one.
    """

    bias: np.ndarray
    user: np.ndarray | None

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
    """Clicks and impressions of the distinct (document, bias factor) cells of a log.

    Parameters
    ----------
    doc, factor : ndarray of shape (n_cells,), int
        Codes. Where documents were shuffled, ``doc`` is the arm instead: what has one relevance.
    clicks, weight : ndarray of shape (n_cells,)
        Number of clicks and of impressions (times sample weights).
    n_docs, n_factors : int
    factors : Factors, default=None
        What the codes of factors stand for.
    doc_query, doc_row : ndarray of shape (n_docs,), int, default=None
        Query of each document, and the first row of X that shows it.
    doc_ids : Index or ndarray of shape (n_docs,), default=None
        What the codes of documents stand for; None where documents are equal rows of features.
    doc_weight : ndarray of shape (n_docs,), default=None
        How often each document counts, where it is not once.
    """

    doc: np.ndarray
    factor: np.ndarray
    clicks: np.ndarray
    weight: np.ndarray
    n_docs: int
    n_factors: int
    factors: Factors | None = None
    doc_query: np.ndarray | None = None
    doc_row: np.ndarray | None = None
    doc_ids: pd.Index | np.ndarray | None = None
    doc_weight: np.ndarray | None = None

    @classmethod
    def from_rows(cls, doc, factor, clicks, weight, n_docs=None, n_factors=None, **names):
        """Add up rows of the same cell; rows without weight say nothing and are left out.

        ``names`` are what is known of the documents and factors.
        """
        n_docs = int(doc.max(initial=-1)) + 1 if n_docs is None else n_docs
        n_factors = int(factor.max(initial=-1)) + 1 if n_factors is None else n_factors
        # A slice copies nothing.
        rows = slice(None) if (weight > 0).all() else np.flatnonzero(weight > 0)
        key, cell = distinct(
            doc[rows].astype(np.int64, copy=False) * n_factors + factor[rows], n_docs * n_factors
        )
        return cls(
            doc=key // n_factors,
            factor=key % n_factors,
            clicks=np.bincount(cell, clicks[rows], minlength=len(key)),
            weight=np.bincount(cell, weight[rows], minlength=len(key)),
            n_docs=n_docs,
            n_factors=n_factors,
            **names,
        )

    def parts(self):
        """Index of the documents of each part of the cells, and the part: here all."""
        return [(slice(None), self)]

    def take(self, rows):
        """Some of the cells, of the same documents and factors."""
        names = ("doc", "factor", "clicks", "weight")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def by_doc(self, values):
        """Sums of one value per cell by document."""
        return np.bincount(self.doc, values, minlength=self.n_docs)

    def by_factor(self, values):
        """Sums of one value per cell by bias factor."""
        return np.bincount(self.factor, values, minlength=self.n_factors)

    @property
    def clicks_of_factors(self):
        """Clicks by bias factor."""
        return self.by_factor(self.clicks)

    @property
    def weight_of_factors(self):
        """Impressions by bias factor."""
        return self.by_factor(self.weight)

    @property
    def component_of_factors(self):
        """Component of each bias factor, shape (n_factors,); documents link their factors."""
        return factor_components(self.doc, self.factor, self.n_factors)[1]

    def matrix(self, values):
        """One value per cell as a sparse matrix (n_docs, n_factors)."""
        return csr_array((values, (self.doc, self.factor)), (self.n_docs, self.n_factors))

    def of_all_users(self):
        """The same clicks with all users as one."""
        bias, code = np.unique(self.factors.bias, return_inverse=True)
        pooled = Cells.from_rows(
            self.doc, code[self.factor], self.clicks, self.weight, self.n_docs, len(bias)
        )
        counts = {name: getattr(pooled, name) for name in ("doc", "factor", "clicks", "weight")}
        return replace(self, **counts, n_factors=len(bias), factors=Factors(bias, None))

    def pooled(self, group):
        """The same clicks with one factor per group, without names of the factors."""
        return Cells.from_rows(
            self.doc, group[self.factor], self.clicks, self.weight, self.n_docs, group.max() + 1
        )

    def reweighted(self, weight_of_doc):
        """Clicks and impressions times one number per document, as a bootstrap draws it."""
        factor = weight_of_doc[self.doc]
        clicks, weight = self.clicks * factor, self.weight * factor
        return replace(self, clicks=clicks, weight=weight, doc_weight=weight_of_doc)

    def with_half_clicks(self):
        """The same clicks, and half a click for each factor that has none.

        The half click is spread where clicks are to be expected, so that the examination of the
        factor is small and finite, and nothing that is linked through it is lost.
        """
        unclicked = (self.by_factor(self.clicks) == 0)[self.factor]
        if not unclicked.any():
            return self
        rate = self.by_doc(self.clicks) / np.maximum(self.by_doc(self.weight), TINY)
        expected = np.where(unclicked, self.weight * rate[self.doc], 0.0)
        total = self.by_factor(expected)[self.factor]
        added = np.divide(0.5 * expected, total, out=np.zeros_like(total), where=total > 0)
        return replace(self, clicks=self.clicks + added)


def read_cells(X, y, sample_weight=None, roles=None, *, user=None, arm=None, reads=READS):
    """Read a click log as cells.

    Parameters
    ----------
    X : frame, array-like or sparse matrix of shape (n_rows, n_columns)
    y : array-like of shape (n_rows,)
        Clicks or click rates.
    sample_weight : array-like of shape (n_rows,), default=None
    roles : dict of str to array-like, default=None
        Keyword metadata, which wins over columns.
    user : ndarray of shape (n_rows,), default=None
        Whose curve a row belongs to; by default all users are one.
    arm : ndarray of shape (n_rows,) or "list length", default=None
        What has one relevance instead of documents: rows with the same value, whose documents
        were shuffled over their positions. A document is then a (query, arm); rows where it is
        missing are left out.
    reads : tuple of str
        Roles that are read; without ``session``, rows need not be lists.

    Returns
    -------
    cells : Cells
        Of the rows that were shown.
    row_factor : ndarray of shape (n_rows,), int
        Factor of each row of X, -1 where it was not shown (or is left out).

    Raises
    ------
    ValueError
        If a role or ``y`` holds what it cannot, or no row was shown.
    """
    return count_cells(read(X, y, sample_weight, roles, reads=reads), user=user, arm=arm)


def count_cells(rows, *, user=None, arm=None):
    """As :func:`read_cells`, from rows that were read."""
    shown = rows.shown
    if isinstance(arm, str):
        arm = np.bincount(rows.list_, shown, minlength=int(rows.list_.max()) + 1)[rows.list_]
    if arm is not None:
        shown = shown & ~pd.isna(arm)
        if not shown.any():
            raise ValueError(
                "No row that was shown was randomised: the arm is missing in all of them. "
                "Expected the arm of each randomised list."
            )
    at = slice(None) if shown.all() else np.flatnonzero(shown)
    bias, bias_values = rows.bias if rows.has_places else _one_factor(rows.n_rows)
    factor, factors = _code_factors(bias[at], bias_values, None if user is None else user[at])
    query = rows.query[at]
    if arm is None:
        doc, first, doc_ids = rows.documents(rows=at)
    else:
        code, ids = encode(arm[at])
        doc, key = encode(pair_codes(query, code, len(ids)))
        first, doc_ids = first_rows(doc, len(key)), ids[key % len(ids)]
    cells = Cells.from_rows(
        doc,
        factor,
        rows.clicks[at],
        rows.weight[at],
        len(first),
        len(factors),
        factors=factors,
        doc_query=query[first],
        doc_row=first if shown.all() else at[first],
        doc_ids=doc_ids,
    )
    row_factor = np.full(rows.n_rows, -1, dtype=np.intp)
    row_factor[at] = factor
    return cells, row_factor


def _one_factor(n_rows):
    """Where nothing says where a row was shown, all rows are under one bias factor."""
    return np.zeros(n_rows, dtype=np.intp), np.ones(1, dtype=int)


def _code_factors(bias, bias_values, user):
    if user is None:
        return bias, Factors(bias_values, None)
    code, user_ids = encode(user)
    factor, pairs = encode(code * len(bias_values) + bias)
    user, bias = np.divmod(pairs, len(bias_values))
    return factor, Factors(bias_values[bias], user_ids[user])


def distinct(key, n_keys):
    """Distinct keys, sorted, and the number of each row's key among them."""
    if n_keys > 4 * len(key) + 1_000_000:
        codes, keys = encode(key)  # by hashing: sorting ten million rows would take longest of all
        return keys, codes
    # A table of all keys is far quicker than sorting.
    seen = np.zeros(n_keys, dtype=bool)
    seen[key] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[key]
