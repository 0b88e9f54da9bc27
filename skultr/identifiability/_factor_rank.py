"""Does a log need more than one number per document? The rank of its click rates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from .._base._progress import progress
from .._base._sklearn import Interval, validate_params
from .._base._threads import few_threads
from .._base._typing import ArrayLike, Column, Frame, RandomState
from .._log._cells import READS, factor_components, read_cells
from .._log._dataset import ClickDataset
from .._log._estimator import names_of
from .._log._faults import count_of
from .._log._pairs import bias_columns, code_factors, values_of
from .._log._reader import clicks_of, in_memory
from .._log._roles import read_column, read_role
from .._log._segments import as_array, encode
from ..exceptions import ClickDataWarning, NotIdentifiableError, python_value, warn_user
from ._low_rank import RateTable, WithinDocuments, fit_low_rank, solve_each, with_center

#: Reference effects: ratios of the second singular value to the first that a log must be able to
#: detect before "rank 1" counts as an answer. Web search has 0.11 between grades (TianGong-ST);
#: between groups of documents, which mix grades, the same clicks have 0.03.
_BETWEEN_ROWS, _BETWEEN_GROUPS = 0.1, 0.02


#: Least ratio of the third singular value to the first that counts between groups: differences of
#: documents within groups cause smaller ones.
_LEAST_OF_GROUPS = 0.02


#: Resamples computed at a time, which bounds the memory.
_CHUNK = 20


@dataclass(frozen=True, eq=False)
class FactorRank:
    """Result of :func:`factor_rank`: how many products relevance × examination explain clicks.

    Parameters
    ----------
    rank : int
        The smallest number of products that the test does not reject.
    singular_values : pandas.DataFrame of shape (n_values, 4)
        Singular values of the matrix of click rates, indexed by ``number`` from 1. Columns:
        ``value``; ``floor``, which noise alone exceeds with probability ``level`` if the rank is
        ``number`` - 1 (for ``number`` from ``rank`` + 2: if it is ``rank``); ``p_value`` of the
        hypothesis that the rank is less than ``number`` (NaN if it was not tested); ``share`` of
        the squared norm.
    matrix : pandas.DataFrame of shape (n_rows, n_factors)
        Click rates, with half a click added to each cell (see Notes of :func:`factor_rank`); NaN
        in cells without impressions.
    impressions : pandas.DataFrame of shape (n_rows, n_factors)
        Impressions of each cell.
    level : float
        Significance level of the tests.
    n_resamples : int
        Number of resamples of each test.
    rows : str
        What the rows of the matrix are: the name of a column, or "attractiveness" for groups of
        documents.
    independent : {"queries", "documents", "impressions"}
        Units whose noise was taken as independent.
    reference_effect : float
        Ratio of the second singular value to the first that a log should be able to detect: 0.1
        for named rows, 0.02 for groups of documents, about the ratios found in web search.
    n_components : int
        Number of components of the bias factors: no row (for groups: no document) was shown under
        factors of two components, so that these were never compared.

    Attributes
    ----------
    detectable : float
        Ratio of the second singular value to the first that noise alone reaches: smaller
        departures from rank 1 would not be noticed.
    is_conclusive : bool
        True if the log answers the question: either more than one product was found, or all bias
        factors were compared and a second product as large as ``reference_effect`` would have
        been noticed.
    """

    rank: int
    singular_values: pd.DataFrame
    matrix: pd.DataFrame
    impressions: pd.DataFrame
    level: float
    n_resamples: int
    rows: str
    independent: str
    reference_effect: float
    n_components: int

    @property
    def detectable(self) -> float:
        """Ratio of second to first singular value that noise alone reaches; see Attributes."""
        values = self.singular_values
        return float(values.at[2, "floor"] / values.at[1, "value"])

    @property
    def is_conclusive(self) -> bool:
        """True if the log answers the question; see Attributes."""
        compared = self.n_components == 1 and self.detectable <= self.reference_effect
        return self.rank > 1 or compared

    def summary(self) -> str:
        """The answer in plain words, and what to do.

        Returns
        -------
        summary : str

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> from skultr.identifiability import factor_rank
        >>> table = pd.DataFrame({
        ...     "qid": 1, "relevance": [0, 0, 1, 1], "position": [1, 2, 1, 2],
        ...     "impressions": 10_000,
        ... })
        >>> result = factor_rank(table, [0.3, 0.1, 0.6, 0.5], rows="relevance", random_state=0)
        >>> print(result.summary())
        One number per document is NOT enough: the click rates need at least 2 products.
        Beyond the best rank-1 fit, p = 0.005; the second singular value is 0.13 of the first.
        To do: search VectorizationRanker over n_components from 2, or take
        AffineRanker if users trust the top.
        """
        return "\n".join(_summary_lines(self))

    def __repr__(self) -> str:
        n_rows, n_factors = self.matrix.shape
        return (
            f"FactorRank(rank={self.rank}, rows={self.rows!r}, n_rows={n_rows}, "
            f"n_factors={n_factors}, is_conclusive={self.is_conclusive})"
        )


@validate_params(
    {
        "X": "no_validation",
        "y": "no_validation",  # checked by the reader of logs
        "rows": [str, "array-like", None],
        "bias": [str, list, tuple, None],
        "n_groups": [Interval(Integral, 2, 50, closed="both")],
        "n_resamples": [Interval(Integral, 19, None, closed="left")],
        "level": [Interval(Real, 0, 1, closed="neither")],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
@few_threads()
def factor_rank(
    X: Frame | ClickDataset,
    y: Column | str | None = None,
    *,
    rows: str | ArrayLike | None = None,
    bias: str | list[str] | tuple[str, ...] | None = None,
    n_groups: int = 5,
    n_resamples: int = 200,
    level: float = 0.05,
    random_state: RandomState = None,
) -> FactorRank:
    r"""Test whether one product relevance × examination explains the clicks, or more are needed.

    Nearly all of unbiased learning to rank assumes that P(click) = relevance(document) x
    examination(bias factor): the matrix of click rates has rank one. Real logs can contradict
    this: users trust the top positions, or good results draw the eye [1]_. Then one number per
    document is not enough, and the rank is the number of components that a vector needs,

    .. math:: P(c = 1 | x, t) = \sum_{k=1}^{r} r_k(x)\, o_k(t).

    Parameters
    ----------
    X : frame of shape (n_rows, n_columns) or ClickDataset
        The click log, with ``qid``, ``position`` (or ``bias``), ``impressions`` where rows count
        several, and, unless ``rows`` is named, ``doc`` or features. Rows without a position
        were not shown.
    y : array-like of shape (n_rows,)
        Clicks, or clicks / impressions; a dataset has its own.
    rows : str or array-like of shape (n_rows,), default=None
        Rows of the matrix of click rates: the name of a column with few values, such as
        ``"relevance"`` (the grades), or one value per row of X. Rows of X without a value are left
        out, with a warning. By default, ``n_groups`` groups of documents of similar
        attractiveness.
    bias : str or list of str, default=None
        Columns whose values together are the bias factor; by default ``bias`` if there is one,
        else ``position``.
    n_groups : int, default=5
        Number of groups of documents; there are fewer if the clicks cannot separate so many. The
        rank found is at most this number.
    n_resamples : int, default=200
        Number of resamples of each test, at least 19.
    level : float, default=0.05
        Significance level: probability of finding one product too many.
    random_state : int, RandomState instance or None, default=None
        Splits the impressions and draws the resamples. Pass an int for the same result again.

    Returns
    -------
    result : FactorRank
        ``rank``, the table ``singular_values`` with their noise floor, the ``matrix``, and
        ``summary()``.

    Raises
    ------
    TypeError
        X is no frame.
    ValueError
        There is only one bias factor, only one row, or no click; a number of clicks or impressions
        is not whole; a column is absent; there are more than 50 rows or 300 bias factors; there
        are fewer than 30 documents to form groups of.
    NotIdentifiableError
        Without ``rows``: fewer than 30 documents were shown under several bias factors. With
        ``rows``: no two rows were shown under the same two bias factors, so that no data could
        contradict one product.

    See Also
    --------
    IdentifiabilityGraph : Whether a log determines relevance if one product is enough.
    skultr.plotting.RankDisplay : The singular values with their floor, and the matrix.

    Notes
    -----
    *Groups of documents.* Cells of single documents are too sparse for a matrix, so that documents
    are grouped. Three problems would bias the rank of grouped click rates; each has a remedy:

    - Groups formed by the same clicks that are then compared would be selected by their noise.
      So one half of the impressions forms the groups and the other half is compared, and vice
      versa.
    - Within a group better documents are shown higher, so that raw click rates fall too steeply,
      with a different slope in each group, even if one product is enough. So documents are
      compared only with themselves: the curve of a group maximises the conditional likelihood,
      given the number of clicks of each document. Under one product all groups have the same
      curve, whatever policy ranked the documents and whatever their relevance.
    - The scale of a group is free. In ``matrix`` it is such that the expected clicks of the
      group's impressions equal its observed clicks.

    This needs documents that were shown under several bias factors, and rankings that do not
    react to the clicks of this log. The finding that one product is not enough is reliable; the
    number of products is approximate, because documents still differ within groups. For that
    reason singular values from the third on are not tested if they are below 0.02 of the first.

    *Named rows* are compared by their raw click rates, as in [1]_. This assumes that documents of
    one row (one grade) are alike, or at least that the ranker places them without regard to their
    differences; otherwise one product is rejected too often.

    *The test* is sequential: rank 1 against more, rank 2 against more, and so on. The
    maximum-likelihood matrix of each rank is fitted by Fisher scoring. Its score, projected
    orthogonally to the matrices of this rank and divided by its standard deviation, is a matrix
    of standardised residuals. The test statistic is the largest singular value of this matrix. It
    weights cells by their precision, whereas singular values of click rates depend mostly on the
    cells with the largest rates; so a singular value can lie below its floor although its test
    rejects. The distribution under the hypothesis comes from the multiplier bootstrap of the
    contributions of queries to the score. Queries must be independent; clicks of a session, and
    sessions of a query, need not be. With fewer than 30 queries (or 10 in the mean cell of named
    rows), documents (for named rows: impressions) are taken as independent instead.

    *Singular values* are those of the maximum-likelihood matrix of any rank, with half a click
    added to each cell at the rate of the rank-1 fit, so that a cell without impressions does not
    count as a rate of zero.

    The rank found here is the number of components of :class:`~skultr.VectorizationRanker` with
    ``link="probability"``. With ``link="logit"``, as published, that ranker models the logits of a
    list and needs two components for one product.

    References
    ----------
    .. [1] M. Chen et al., "Scalar is Not Enough: Vectorization-based Unbiased Learning to Rank",
       KDD 2022, section 1 and Figure 1.

    Examples
    --------
    Clicks of users whose examination depends on the position alone have rank 1. Clicks of users
    who also trust the top positions, whatever is shown there, need more:

    >>> import numpy as np
    >>> import pandas as pd
    >>> from skultr.identifiability import factor_rank
    >>> examination = np.array([0.68, 0.48, 0.28, 0.11])
    >>> relevance, trust = np.array([0.1, 0.4, 0.9]), np.array([0.3, 0.2, 0.0, 0.0])
    >>> rng = np.random.default_rng(0)
    >>> log = pd.DataFrame({
    ...     "qid": np.arange(40_000) // 4, "relevance": rng.integers(0, 3, 40_000),
    ...     "position": np.tile([1, 2, 3, 4], 10_000),
    ... })
    >>> r, k = relevance[log["relevance"]], log["position"] - 1
    >>> plain = rng.random(len(log)) < examination[k] * r
    >>> trusting = rng.random(len(log)) < examination[k] * (r + trust[k] * (1 - r))
    >>> factor_rank(log, plain, rows="relevance", random_state=0).rank
    1
    >>> result = factor_rank(log, trusting, rows="relevance", random_state=0)
    >>> result.singular_values.round(3)
            value  floor  p_value  share
    number
    1       0.993    NaN      NaN  0.996
    2       0.066  0.020    0.005  0.004
    3       0.005  0.015    0.761  0.000
    """
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    table, names, factors, by_query, n_components = _read_table(X, y, rows, bias, n_groups, rng)
    observed = table.scaled(table.saturated())
    values = np.linalg.svd(observed, compute_uv=False)
    least = _LEAST_OF_GROUPS * values[0] if rows is None else 0.0
    rank, p_values, floors = _test_ranks(table, values, least, n_resamples, level, rng)
    impressions = table.sums[1]
    unit = "impressions" if rows is not None else "documents"
    return FactorRank(
        rank=rank,
        singular_values=pd.DataFrame(
            {
                "value": values,
                "floor": floors,
                "p_value": p_values,
                "share": values**2 / (values**2).sum(),
            },
            index=pd.RangeIndex(1, len(values) + 1, name="number"),
        ),
        matrix=pd.DataFrame(np.where(impressions > 0, observed, np.nan), names, factors),
        impressions=pd.DataFrame(impressions, names, factors),
        level=float(level),
        n_resamples=int(n_resamples),
        rows=names.name,
        independent="queries" if by_query else unit,
        n_components=n_components,
        reference_effect=_BETWEEN_GROUPS if rows is None else _BETWEEN_ROWS,
    )


# The tests ----------------------------------------------------------------------------
def _test_ranks(table, values, least, n_resamples, level, rng):
    """The rank; p-value and floor of each singular value, NaN where not computed."""
    n_values = len(values)
    p_values, floors = np.full((2, n_values), np.nan)
    fit = None
    for rank in range(1, n_values):
        if rank > 1 and values[rank] < least:
            return rank, p_values, floors
        fit = fit_low_rank(table, rank, fit)
        found = np.linalg.svd(fit.residuals(fit.gradient[None]), compute_uv=False)[0, 0]
        largest, plain = _under_the_fit(table, fit, n_resamples, rng)
        p_values[rank] = (1 + (largest >= found).sum()) / (1 + n_resamples)
        floors[rank:] = np.quantile(plain, 1 - level, axis=0)[rank:]
        if p_values[rank] > level:
            return rank, p_values, floors
    return n_values, p_values, floors


def _under_the_fit(table, fit, n_resamples, rng):
    """Resampled singular values if the fitted rank is the true one: the largest of the
    standardised residuals, (n_resamples,), and those of the click rates, (n_resamples,
    n_values)."""
    contributions = table.contributions(fit.rate)
    rate = table.scaled(fit.rate)
    # Multipliers of mean 0 and variance 1: random signs; normal for single cells.
    draw = rng.standard_normal if table.cluster is None else partial(rng.choice, [-1.0, 1.0])
    largest = []
    plain = []
    for first in progress(range(0, n_resamples, _CHUNK), "batch of resamples"):
        n = min(_CHUNK, n_resamples - first)
        noise = (contributions.T @ draw((contributions.shape[0], n))).T.reshape(n, *table.shape)
        largest.append(np.linalg.svd(fit.residuals(noise), compute_uv=False)[:, 0])
        change = table.centered(fit.rate, solve_each(fit.information, noise))
        plain.append(np.linalg.svd(rate * (1 + change), compute_uv=False))
    return np.concatenate(largest), np.concatenate(plain)


# The answer ---------------------------------------------------------------------------
def _summary_lines(result):
    values = result.singular_values
    share = values.at[2, "value"] / values.at[1, "value"]
    p_value = f"p = {values.at[2, 'p_value']:.3f}"
    seen = f"the second singular value is {share:.2g} of the first."
    if result.rank > 1:
        at_least = "at least " if result.rank == len(values) else ""
        return [
            f"One number per document is NOT enough: the click rates need {at_least}"
            f"{result.rank} products.",
            f"Beyond the best rank-1 fit, {p_value}; {seen}",
            f"To do: search VectorizationRanker over n_components from {result.rank}, or take",
            "AffineRanker if users trust the top.",
        ]
    if result.n_components > 1:
        return [
            "The log leaves open whether one number per document is enough: its bias factors fall "
            f"into {result.n_components} components",
            "that were never compared with each other. Within them one product is not rejected "
            f"({p_value}).",
            "To do: log rankings that vary more.",
            "IdentifiabilityGraph.from_log(X) names the components.",
        ]
    noise = f"noise alone reaches {result.detectable:.2g}"
    if not result.is_conclusive:
        return [
            "The log is too small to decide whether one number per document is enough.",
            f"The test does not reject it ({p_value}), but {noise} as the ratio of the second "
            "singular value",
            f"to the first, and ratios in real logs are as small as {result.reference_effect:g}.",
            "To do: collect more clicks, or compare fewer rows or bias factors.",
        ]
    return [
        "One number per document is enough: clicks agree with relevance times examination.",
        f"Beyond the best rank-1 fit, {p_value}; {seen[:-1]}, and {noise}.",
        "To do: nothing; rankers with one number per document, such as DLARanker, fit this log.",
    ]


#: Rows are counted in all lists together.
_READS = tuple(role for role in READS if role != "session")
#: Least number of queries from which the variance between queries is estimated.
_LEAST_CLUSTERS = 30
#: Least number of queries in the mean cell, for the same reason.
_LEAST_IN_CELL = 10
#: Largest numbers of rows and of bias factors: a larger matrix is no summary of a log.
_MAX_ROWS, _MAX_FACTORS = 50, 300
#: How far a count may be from a whole number. Counts from 100 on need not be whole (rates may have
#: been rounded), because half a click is far below their noise.
_ROUNDING, _MANY = 1e-4, 100
#: Above it floating-point numbers skip whole ones.
_LARGEST_COUNT = 2.0**53


def _read_table(X, y, rows, bias, n_groups, rng):
    """Clicks and impressions of a log by bias factor, of named rows or of groups of documents; the
    names of rows and factors; True if queries are independent; the number of components."""
    own = ["bias" if "bias" in names_of(X) else "position"]
    X, y = in_memory(X, y, own if rows is None and bias is None else None)
    X, y, _ = clicks_of(X, y, "factor_rank")
    roles, labels = bias_factors(X, bias)
    arm = None if rows is None else _read_rows(X, rows)
    cells, _ = read_cells(X, y, roles=roles, arm=arm, reads=_READS)
    _check_counts(cells)
    factors = cells.factors.index
    if labels is not None:
        factors = labels[factors]
    elif read_role(X, "bias") is None:
        factors = factors.rename("position")
    if arm is None:
        return _groups_of_documents(cells, factors, n_groups, rng)
    return _named_rows(cells, factors, rows if isinstance(rows, str) else "row")


# Reading ------------------------------------------------------------------------------
def bias_factors(X, bias):
    """The columns ``bias`` as a role, and labels of its codes; no role and None without them."""
    if bias is None:
        if read_role(X, "position") is None and read_role(X, "bias") is None:
            raise ValueError(
                "X has neither a column 'position' nor 'bias': there are no bias factors to "
                "compare. Rename the column that holds the positions to 'position', or name "
                "columns in bias=."
            )
        return {}, None
    columns = {name: read_column(X, name) for name in bias_columns({}, bias)}
    missing = np.any([pd.isna(values) for values in columns.values()], axis=0)
    unknown = missing & _shown(X)
    if unknown.any():
        raise ValueError(
            f"The bias columns {list(columns)} are missing in "
            f"{count_of(int(unknown.sum()), 'shown row')}, first in row {int(unknown.argmax())}; "
            "expected a value in each. Use a separate value for unknown ones."
        )
    known = {name: encode(values[~missing]) for name, values in columns.items()}
    codes = np.full(len(missing), np.nan)
    codes[~missing], factors = code_factors(known)
    labels = pd.MultiIndex.from_frame(factors)
    return {"bias": codes}, labels if len(known) > 1 else labels.get_level_values(0)


def _shown(X):
    """True for rows with a position; for all rows if X has no positions."""
    position = read_role(X, "position")
    return np.ones(X.shape[0], dtype=bool) if position is None else ~np.isnan(position)


def _read_rows(X, rows):
    if isinstance(rows, str):
        values = read_column(X, rows)
    else:
        values = as_array(rows)
        if values.shape != (X.shape[0],):
            raise ValueError(
                f"rows has shape {values.shape}; expected the name of a column, or one value for "
                f"each row of X, that is ({X.shape[0]},)."
            )
    shown = _shown(X)
    missing = int((pd.isna(values) & shown).sum())
    if missing == shown.sum():
        raise ValueError(
            "rows is missing everywhere: no row of the log can be placed. Expected what the "
            "click rates are compared by, such as the grades of the column 'relevance'."
        )
    if missing:
        warn_user(
            f"rows is missing in {missing} of {int(shown.sum())} rows of X that were shown; they "
            "are left out, and the answer is about the others.",
            ClickDataWarning,
        )
    return values


def _check_counts(cells):
    for name, values in (("clicks", cells.clicks), ("impressions", cells.weight)):
        bad = np.flatnonzero((np.abs(values - np.rint(values)) > _ROUNDING) & (values < _MANY))
        if len(bad):
            raise ValueError(
                f"A document has {values[bad[0]]:g} {name} at one bias factor; expected whole "
                "numbers, because the noise of a click rate follows from counts. Pass clicks of "
                "0 or 1 (or clicks / impressions, with the column 'impressions'), unweighted; "
                "grades above 1 are no counts."
            )
    if cells.weight.max() >= _LARGEST_COUNT:
        raise ValueError(
            f"A document has {cells.weight.max():g} impressions at one bias factor; expected "
            f"fewer than {_LARGEST_COUNT:g}. Check the column 'impressions'."
        )
    if not cells.clicks.any():
        raise ValueError("y has no click: there is nothing to factorise. Check the clicks.")
    n_factors = len(cells.factors)
    if n_factors < 2:
        raise ValueError(
            "All rows were shown under one bias factor, so that click rates compare documents "
            "fairly and there is nothing to factorise. Expected at least 2 positions or factors."
        )
    if n_factors > _MAX_FACTORS:
        raise ValueError(
            f"The log has {n_factors:,} bias factors; expected at most {_MAX_FACTORS}. Name fewer "
            "columns in bias=, such as 'position', or put alike factors together."
        )


# Named rows ---------------------------------------------------------------------------
def _named_rows(cells, factors, name):
    row, ids = encode(cells.doc_ids)
    if not 2 <= len(ids) <= _MAX_ROWS:
        one = len(ids) == 1
        found = f"one value, {python_value(ids[0])!r}" if one else f"{len(ids):,} different values"
        raise ValueError(
            f"rows has {found}; expected 2 to {_MAX_ROWS}. Name a column of few values, such as "
            "grades, or cut a number into classes with pandas.qcut(..., labels=False)."
        )
    shape = len(ids), len(factors)
    query = cells.doc_query[cells.doc]
    row = row[cells.doc]
    cell = row * shape[1] + cells.factor
    n_filled = len(np.unique(cell))
    n_components, _ = factor_components(row, cells.factor, shape[1])
    if n_filled + n_components <= sum(shape):
        raise NotIdentifiableError(
            f"The {shape[0]} rows and {shape[1]} bias factors meet in {n_filled} cells, none of "
            "which closes a rectangle: any click rates are one product there. Expected rows that "
            "share at least two bias factors. Log rankings that vary, or compare fewer rows."
        )
    by_query = len(np.unique(query)) >= _LEAST_CLUSTERS
    by_query = by_query and len(row) >= _LEAST_IN_CELL * n_filled
    table = RateTable(
        cell=cell,
        clicks=np.rint(cells.clicks),
        weight=np.rint(cells.weight),
        cluster=encode(query)[0] if by_query else None,
        shape=shape,
    )
    rows = pd.Index(values_of(np.arange(len(ids)), ids), name=name)
    return with_center(table), rows, factors, by_query, n_components


# Groups of documents ------------------------------------------------------------------
def _groups_of_documents(cells, factors, n_groups, rng):
    """Groups formed by one half of each document's impressions, compared by the other half."""
    _check_shown_apart(cells)
    unit = cells.doc
    factor = cells.factor
    n_units = cells.n_docs
    clicks = np.rint(cells.clicks)
    weight = np.rint(cells.weight)
    chosen = rng.binomial(clicks.astype(np.int64), 0.5)
    first = chosen, chosen + rng.binomial((weight - clicks).astype(np.int64), 0.5)
    second = clicks - first[0], weight - first[1]
    # Examination relative to the best factor, if all documents have the same curve.
    everything = WithinDocuments(
        unit=unit,
        cell=factor,
        clicks=clicks,
        weight=weight,
        cluster=np.zeros(n_units, dtype=np.intp),
        shape=(1, len(factors)),
    )
    curve = with_center(everything).center[0]
    curve /= curve.max()
    # Each document occurs twice: grouped by its second half, and by its first.
    groups = [
        _by_attractiveness(unit, factor, *known, other[1], curve, n_groups)
        for known, other in ((second, first), (first, second))
    ]
    n_found = int(max(group.max() for group in groups)) + 1
    if n_found < 2:
        raise ValueError(
            f"The clicks do not separate the {n_units} documents into at least two groups to "
            "compare. Collect more impressions, or name rows=."
        )
    clicks, weight = (np.concatenate(pair) for pair in zip(first, second, strict=True))
    shown = weight > 0
    query = encode(cells.doc_query)[0]
    by_query = int(query.max()) + 1 >= _LEAST_CLUSTERS
    table = WithinDocuments(
        unit=np.concatenate([unit, unit + n_units])[shown],
        cell=np.concatenate([group[unit] * len(factors) + factor for group in groups])[shown],
        clicks=clicks[shown],
        weight=weight[shown],
        cluster=np.tile(query if by_query else np.arange(n_units), 2),
        shape=(n_found, len(factors)),
    )
    rows = pd.RangeIndex(1, n_found + 1, name="attractiveness")
    n_components, _ = factor_components(unit, factor, len(factors))
    return with_center(table), rows, factors, by_query, n_components


def _check_shown_apart(cells):
    """Refuse logs with too few clicked documents under several bias factors."""
    n_factors = np.bincount(cells.doc, minlength=cells.n_docs)
    n_informative = int(((n_factors > 1) & (cells.by_doc(cells.clicks) > 0)).sum())
    if n_informative >= _LEAST_CLUSTERS:
        return
    if cells.n_docs < _LEAST_CLUSTERS:
        raise ValueError(
            f"The log has {cells.n_docs} documents; expected at least {_LEAST_CLUSTERS} to "
            "form groups of. If they are seen often, compare each by itself: rows='doc'."
        )
    raise NotIdentifiableError(
        f"The log has only {count_of(n_informative, 'document')} with clicks and with impressions "
        f"under more than one bias factor; expected at least {_LEAST_CLUSTERS}, because documents "
        "are compared with themselves. "
        "Compare named rows instead, such as rows='relevance' if documents are graded, or log "
        "rankings that vary."
    )


def _by_attractiveness(unit, factor, clicks, weight, other_weight, curve, n_groups):
    """Bin documents by estimated relevance; bins hold equal numbers of expected clicks."""
    n_units = int(unit.max()) + 1
    clicks = np.bincount(unit, clicks, n_units)
    seen, other_seen = (
        np.bincount(unit, curve[factor] * part, n_units) for part in (weight, other_weight)
    )
    # One click at the mean rate is added; else one lucky impression would give the first rank.
    attraction = (clicks + 1) / (seen + seen.sum() / clicks.sum())
    order = np.argsort(attraction, kind="stable")
    expected = np.cumsum((attraction * other_seen)[order])
    cuts = np.searchsorted(expected, expected[-1] * np.arange(1, n_groups) / n_groups)
    cuts = np.unique(attraction[order][np.minimum(cuts, n_units - 1)])
    return np.unique(np.searchsorted(cuts, attraction), return_inverse=True)[1]
