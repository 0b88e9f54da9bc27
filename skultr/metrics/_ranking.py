"""Ranking metrics over flat arrays: rows of many queries, in any order, with their query ids.

Each public function checks its input and averages a value per query. In functions of one rectangle
of ranked lists, ``relevance`` (n_queries, width) is in rank order and 0 beyond the end of a list;
``leads`` is True where a run of equal scores begins (and beyond the end); ``cutoffs`` is a list of
k, None for all ranks. Each returns (n_queries, len(cutoffs)), with NaN where no document is
relevant (DCG: 0)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from numbers import Integral, Real
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import UndefinedMetricWarning

from .._base._shared_text import with_shared_text
from .._base._sklearn import Function, Interval, Options, StrOptions, validate_params
from .._base._typing import Bools, Column, Floats
from .._log._roles import to_float64
from .._log._segments import as_array, encode, offsets_from_counts, rectangles
from ..exceptions import warn_user

#: Options of metrics; each has some of them.
_OPTIONS = {
    "k": [Interval(Integral, 1, None, closed="left"), "array-like", None],
    "ties": [StrOptions({"average", "stable"})],
    "per_query": ["boolean"],
    "no_relevant": [StrOptions({"skip"}), Options(Real, {0, 1})],
    "gain": [StrOptions({"exponential", "linear"})],
    "threshold": [Interval(Real, 0, None, closed="neither")],
    "max_grade": [Interval(Real, 0, None, closed="neither"), None],
}

Cutoffs: TypeAlias = int | Sequence[int] | None
Gain: TypeAlias = Literal["exponential", "linear"]
Ties: TypeAlias = Literal["average", "stable"]
NoRelevant: TypeAlias = Literal["skip", 0, 1]
#: float; an array if k is a list; a frame with per_query=True.
Score: TypeAlias = Any


# From values to a mean ----------------------------------------------------------------
def _metric(name: str, value: Callable[..., Floats], **constraints: Any):
    """Decorator: a signature and a docstring become the mean of ``value`` over queries.

    ``constraints`` are those of options that other metrics do not have.
    """

    def decorated(public: Function) -> Function:
        signature = inspect.signature(public)
        known = {name: _OPTIONS[name] for name in _OPTIONS if name in signature.parameters}

        @validate_params(known | constraints, prefer_skip_nested_validation=True)
        @wraps(with_shared_text(**_TEXTS)(public))
        def score(*args: Any, **options: Any) -> Score:
            # Defaults are those of the signature that users see.
            given = signature.bind(*args, **options)
            given.apply_defaults()
            return _score(name, value, **given.arguments)

        return score

    return decorated


def _score(
    name, value, y_true, y_score, *, qid, k, ties, per_query, no_relevant="skip", **options
):
    # One column of values for each k.
    cutoffs = _check_cutoffs(k)
    y_true, y_score, qid = check_rows(y_true, y_score, qid)
    _check_grades(y_true, options)
    codes, ids = encode(qid)
    # Rows in the order of their queries.
    order, offsets = _group(codes, len(ids))
    lengths = np.diff(offsets)
    values = np.empty((len(ids), len(cutoffs)))
    # Queries of similar length at a time, as a rectangle of ranked lists.
    for queries, place in rectangles(offsets):
        relevance, leads = _rank(y_true, y_score, order, place, ties)
        values[queries] = value(relevance, leads, lengths[queries], cutoffs, **options)
    if no_relevant != "skip":
        values[np.isnan(values)] = no_relevant
    if per_query:
        columns = [name if k is None else f"{name}@{k}" for k in cutoffs]
        index = pd.Index(ids, name="qid", tupleize_cols=False)
        table = pd.DataFrame(values, columns=columns, index=index)
        return table.assign(n_documents=lengths)
    mean = _mean_of_defined(values, name)
    return mean if np.ndim(k) else float(mean[0])


def _check_cutoffs(k):
    # One number was checked with the other parameters.
    if not np.ndim(k):
        return [k]
    cutoffs = list(k)
    if not cutoffs:
        raise ValueError("k is an empty list; expected at least one rank, or None for all ranks.")
    for cutoff in cutoffs:
        if not isinstance(cutoff, Integral) or cutoff < 1:
            raise ValueError(f"k holds {cutoff!r}; expected whole numbers of at least 1.")
    return cutoffs


def _check_grades(y_true, options):
    """Check that gains are finite; the largest grade of the scale is that of the data."""
    largest = float(y_true.max())
    exponential = "max_grade" in options or options.get("gain") == "exponential"
    # 2^y - 1 could exceed the range of float64.
    if exponential and largest > 1_000:
        raise ValueError(
            f"y_true is as large as {largest:g}, too large for the exponential gain "
            "2^y_true - 1; expected grades such as 0 to 4. Rescale the relevance, or use "
            "gain='linear' if the metric has it."
        )
    if "max_grade" in options and options["max_grade"] is None:
        options["max_grade"] = largest
    if options.get("max_grade", largest) < largest:
        raise ValueError(
            f"y_true is as large as {largest:g}, above max_grade={options['max_grade']:g}; "
            "expected the largest grade of the scale."
        )


def _group(codes, n_codes):
    """Indices of the rows in the order of their codes, and the offsets of the codes."""
    # Transposing a sparse matrix with one entry per row is a stable counting sort in linear time.
    entries = np.ones(len(codes), dtype=np.int8)
    one_per_row = (entries, codes, np.arange(len(codes) + 1))
    by_code = sparse.csr_array(one_per_row, shape=(len(codes), n_codes)).tocsc()
    return by_code.indices, by_code.indptr.astype(np.int64)


def _rank(y_true, y_score, order, place, ties):
    """Relevance in rank order, and the mask of the starts of runs of equal scores."""
    absent = place < 0
    rows = order[place]
    falling = -y_score[rows].astype(float, copy=False)
    falling[absent] = np.inf
    # The sort is stable, so that absent cells, which are last already, stay behind scores of -inf.
    ranking = np.argsort(falling, axis=1, kind="stable")
    relevance = y_true[rows].astype(float, copy=False)
    relevance[absent] = 0
    relevance = np.take_along_axis(relevance, ranking, axis=1)
    leads = np.ones(place.shape, dtype=bool)
    if ties == "average":
        falling = np.take_along_axis(falling, ranking, axis=1)
        leads[:, 1:] = falling[:, 1:] != falling[:, :-1]
        # Absent cells are equal, too, but no run.
        leads |= absent
    return relevance, leads


def _mean_of_defined(values, name):
    """Mean of each column over the queries without NaN; warns if all are NaN."""
    defined = ~np.isnan(values)
    if not defined.any():
        warn_user(
            f"{name} is undefined: none of the {len(values)} queries has a relevant document, so "
            "all are skipped and the mean is NaN. Check the annotation (and the threshold), or "
            "pass no_relevant=0 or 1.",
            UndefinedMetricWarning,
        )
        return np.full(values.shape[1], np.nan)
    return values.mean(axis=0, where=defined)


# Checks -------------------------------------------------------------------------------
def check_rows(
    y_true: Column, y_score: Column, qid: Column
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Relevance, scores and query ids as arrays, after their checks."""
    y_true, y_score, qid = flat_columns(y_true=y_true, y_score=y_score, qid=as_array(qid))
    # The sum is NaN or infinite if a value is: one pass, no mask.
    with np.errstate(over="ignore", invalid="ignore"):
        suspect = not np.isfinite(y_true.sum(dtype=float)) or y_true.min() < 0
    if suspect:
        refuse_where(
            np.isnan(y_true),
            "y_true contains NaN",
            "these documents are not annotated. Drop those rows from y_true, y_score and qid (or "
            "give them 0, if not annotated means not relevant).",
        )
        refuse_where(
            (y_true < 0) | ~np.isfinite(y_true),
            "y_true must be finite and at least 0; it is not",
            "shift or clip the relevance.",
            y_true,
        )
    refuse_where(np.isnan(y_score), "y_score contains NaN", "expected a score in every row.")
    refuse_where(pd.isna(qid), "qid is missing", "expected a query id in every row.")
    return y_true, y_score, qid


def flat_columns(*, unit: str = "row", **given: Column) -> list[NDArray[Any]]:
    """Arrays of one length, at least 1; numbers, but for query ids."""
    columns = {}
    for name, values in given.items():
        columns[name] = values if name == "qid" else as_numbers(values, name)
    shapes = {name: np.shape(values) for name, values in columns.items()}
    *first, last = columns
    names = f"{', '.join(first)} and {last}"
    same = len({*shapes.values()}) == 1
    if not same or len(shapes[last]) != 1:
        found = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(
            f"{names} must be flat and of one length, one value per {unit}; got the shapes "
            f"{found}."
        )
    if shapes[last] == (0,):
        raise ValueError(f"{names} are empty; expected at least one {unit}.")
    return [*columns.values()]


def check_ids(values: Column, name: str, n_rows: int) -> NDArray[Any]:
    """The ids as an array, after checking that each row has one."""
    values = as_array(values)
    n_missing = int(pd.isna(values).sum())
    if values.shape != (n_rows,) or n_missing:
        raise ValueError(
            f"{name} must have one value for each of the {n_rows} rows; got the shape "
            f"{values.shape} and {n_missing} missing values."
        )
    return values


def refuse_where(
    bad: Bools,
    found: str,
    expected: str,
    values: NDArray[Any] | None = None,
    unit: str = "row",
) -> None:
    """An error that says in how many rows something is wrong, and where (and what) first."""
    if bad.any():
        row = int(bad.argmax())
        first = "first" if values is None else f"first {values[row]:g}"
        raise ValueError(
            f"{found} in {int(bad.sum())} of {len(bad)} {unit}s, {first} in {unit} {row}; "
            f"{expected}"
        )


def as_numbers(values: Column, name: str) -> NDArray[Any]:
    """The values as an array of numbers, NaN if missing; booleans and integers keep their type."""
    kind = f"a {type(values).__name__}"
    try:
        values = np.asarray(values)
        if values.dtype.kind in "iufb":
            return values
        kind = f"{values.dtype} values"
        # Object arrays hold None or pandas.NA where a value is missing.
        return to_float64(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{name} must hold numbers, got {kind}: {error}. Pass an array of floats or integers, "
            "one per row."
        ) from error


# Metrics of ranked lists --------------------------------------------------------------
def _dcg(relevance, leads, lengths, cutoffs, *, gain):
    """Discounted cumulative gain of each query, shape (n_queries, n_cutoffs)."""
    gains = average_runs(_gains(relevance, gain), leads)
    return _sum_to_cutoffs(gains, _discounts(gains.shape[1]), cutoffs)


def _ndcg(relevance, leads, lengths, cutoffs, *, gain):
    """DCG divided by the DCG of the ideal order; NaN without a relevant document."""
    gains = _gains(relevance, gain)
    discounts = _discounts(gains.shape[1])
    # The ideal order, by falling gain.
    best_first = np.sort(gains, axis=1)[:, ::-1]
    ideal = _sum_to_cutoffs(best_first, discounts, cutoffs)
    value = _sum_to_cutoffs(average_runs(gains, leads), discounts, cutoffs)
    return np.divide(value, ideal, out=np.full_like(value, np.nan), where=ideal > 0)


def _precision(relevance, leads, lengths, cutoffs, *, threshold):
    """Share of relevant documents among the first k (without k, in the list)."""
    relevant = (relevance >= threshold).astype(float)
    no_discount = np.ones(relevant.shape[1])
    hits = _sum_to_cutoffs(average_runs(relevant, leads), no_discount, cutoffs)
    # k even where a list is shorter, as in TREC.
    counted = [lengths if k is None else np.full(len(lengths), k) for k in cutoffs]
    return _undefined_without(relevant, hits / np.column_stack(counted))


def _average_precision(relevance, leads, lengths, cutoffs, *, threshold):
    """Mean of the precision at the ranks of the relevant documents."""
    relevant = (relevance >= threshold).astype(float)
    found = np.cumsum(relevant, axis=1)
    if not leads.all():
        # In a run of n documents with m relevant ones, a relevant document at place i of the run
        # has (i - 1)(m - 1)/(n - 1) other relevant documents of the run above it on average.
        start, size, run = _runs(leads)
        n_relevant = np.add.reduceat(relevant.ravel(), start)
        before = (found - relevant).ravel()[start]
        others = np.maximum(n_relevant - 1, 0) / np.maximum(size - 1, 1)
        place = np.arange(relevant.size) - start[run]
        expected = before[run] + place * others[run] + 1
        found = expected.reshape(relevant.shape)
    terms = average_runs(relevant, leads) * found
    rank = np.arange(1, relevant.shape[1] + 1)
    total = _sum_to_cutoffs(terms, 1 / rank, cutoffs)
    # Those below the last rank count, too, as in TREC.
    n_relevant = np.maximum(relevant.sum(axis=1), 1)
    return _undefined_without(relevant, total / n_relevant[:, None])


def _err(relevance, leads, lengths, cutoffs, *, max_grade):
    """Expected reciprocal of the rank at which the user stops."""
    stop = _gains(relevance, "exponential") / 2.0**max_grade
    return _undefined_without(relevance, _expected_inverse_stop(stop, leads, cutoffs))


def _reciprocal_rank(relevance, leads, lengths, cutoffs, *, threshold):
    """Reciprocal rank of the first relevant document."""
    stop = (relevance >= threshold).astype(float)
    return _undefined_without(stop, _expected_inverse_stop(stop, leads, cutoffs))


# What the metrics share ---------------------------------------------------------------
def _gains(relevance, gain):
    return relevance if gain == "linear" else np.exp2(relevance) - 1


def _discounts(width):
    return 1 / np.log2(1 + np.arange(1, width + 1))


def _sum_to_cutoffs(terms, discounts, cutoffs):
    """Sum of discounted terms (n_queries, width) down to each cut-off: (n_queries, n_cutoffs)."""
    return np.column_stack([terms[:, :k] @ discounts[:k] for k in cutoffs])


def _undefined_without(relevant, values):
    """The values, NaN in queries without a relevant document."""
    has_relevant = (relevant > 0).any(axis=1)
    values[~has_relevant] = np.nan
    return values


# Ties: runs of equal scores -----------------------------------------------------------
def _runs(leads):
    """Flat start and size of each run, and the run of each cell."""
    flat = leads.ravel()
    # A list begins a run, so that none crosses lists.
    start = np.flatnonzero(flat)
    size = np.diff(start, append=flat.size)
    run = np.cumsum(flat) - 1
    return start, size, run


def average_runs(values: Floats, leads: Bools) -> Floats:
    """Expected value at each rank: the mean over its run (McSherry & Najork 2008)."""
    if leads.all():
        return values
    start, size, run = _runs(leads)
    mean = np.add.reduceat(values.ravel(), start) / size
    return mean[run].reshape(values.shape)


def _expected_inverse_stop(stop, leads, cutoffs):
    """Expected 1 / rank of the stop of a user who scans down; 0 without a stop."""
    # Share of users who go on behind each rank.
    survival = np.cumprod(1 - stop, axis=1)
    width = stop.shape[1]
    if not leads.all():
        # Survival behind the last rank that counts is not needed.
        deepest = max(width if k is None else min(k, width) for k in cutoffs)
        survival = _average_survival(stop, survival, leads, deepest)
    stops_here = _one_rank_later(survival) - survival
    rank = np.arange(1, width + 1)
    return _sum_to_cutoffs(stops_here, 1 / rank, cutoffs)


def _one_rank_later(survival):
    """Survival before each rank; all survive until the first."""
    return np.pad(survival[:, :-1], ((0, 0), (1, 0)), constant_values=1)


def _average_survival(stop, survival, leads, k):
    """Survival after each rank up to k, averaged over the order within runs."""
    start, size, _ = _runs(leads)
    # The product up to the start of a run does not depend on the order within earlier runs.
    before = _one_rank_later(survival).ravel()
    averaged = survival.ravel().copy()
    stay = 1 - stop.ravel()
    begins_in_time = start % stop.shape[1] < k
    tied = (size > 1) & begins_in_time
    start = start[tied]
    offsets = offsets_from_counts(size[tied])
    # Runs of similar size at a time, as a rectangle.
    for runs, place in rectangles(offsets):
        present = place >= 0
        within_run = np.where(present, place - offsets[runs, None], 0)
        cells = start[runs, None] + within_run
        width = min(k, place.shape[1])
        products = _expected_products(stay[cells], present, width)
        expected = before[start[runs], None] * products
        filled = present[:, :width]
        cells = cells[:, :width]
        averaged[cells[filled]] = expected[filled]
    return averaged.reshape(stop.shape)


def _expected_products(values, present, n_factors):
    """Mean product of i values of a row over all subsets of i values, i = 1, ..., n_factors: the
    elementary symmetric polynomial e_i divided by its number of terms, which cannot overflow."""
    factors = np.arange(n_factors + 1)
    mean = np.zeros((len(values), n_factors + 1))
    mean[:, 0] = 1
    for t in range(1, values.shape[1] + 1):
        # A share of i / t of the subsets of i among t values contains the t-th value.
        share = np.minimum(factors / t, 1)
        value = values[:, t - 1, None]
        updated = (1 - share) * mean
        updated[:, 1:] += share[1:] * value * mean[:, :-1]
        mean = np.where(present[:, t - 1, None], updated, mean)
    return mean[:, 1:]


# Public metrics -----------------------------------------------------------------------
#: What the docstrings of several metrics share.
_TEXTS = {
    "rows": """\
Parameters
----------
y_true : array-like of shape (n_rows,)
    Relevance grades, finite and at least 0.
y_score : array-like of shape (n_rows,)
    Scores; higher is more relevant.
qid : array-like of shape (n_rows,)
    Query ids: any hashable values, in any order.""",
    "k": """\
k : int or list of int, default=None
    Number of ranks that count; None for all.""",
    "ties": """\
ties : {"average", "stable"}, default="average"
    For equal scores, the exact expectation over their random order, or the order of the
    rows.""",
    "no_relevant": """\
no_relevant : {"skip", 0, 1}, default="skip"
    The value of a query without a relevant document.""",
    "per_query": """\
per_query : bool, default=False
    Whether to return the value of each query.""",
    "threshold": """\
threshold : float, default=1
    A document is relevant if its relevance is at least this value.""",
    "raises": """\
Raises
------
ValueError
    If inputs are empty, differ in length or hold invalid values.""",
    "warns": """\
Warns
-----
UndefinedMetricWarning
    If all queries are skipped; the mean is then NaN.""",
}
#: Parameters of metrics for which a document is relevant or not.
_BINARY = ("rows", "k", "threshold", "ties", "no_relevant", "per_query")
_TEXTS["binary"] = "\n".join(_TEXTS[name] for name in _BINARY)
_TEXTS["score"] = f"""\
Returns
-------
score : float, ndarray of shape (len(k),) or pandas.DataFrame
    See :func:`ndcg_score`; in [0, 1].

{_TEXTS["raises"]}

{_TEXTS["warns"]}"""


@_metric("ndcg", _ndcg)
def ndcg_score(
    y_true: Column,
    y_score: Column,
    *,
    qid: Column,
    k: Cutoffs = None,
    gain: Gain = "exponential",
    ties: Ties = "average",
    no_relevant: NoRelevant = "skip",
    per_query: bool = False,
) -> Score:
    r"""Normalised discounted cumulative gain (nDCG), the mean over queries.

    .. math:: \mathrm{nDCG}@k = \frac{\mathrm{DCG}@k}{\mathrm{IDCG}@k}, \qquad
        \mathrm{DCG}@k = \sum_{r=1}^{k} \frac{g(y_r)}{\log_2(1 + r)}

    with :math:`y_r` the relevance at rank :math:`r`, :math:`g(y) = 2^y - 1` (exponential) or
    :math:`g(y) = y` (linear), and IDCG the DCG of the query's documents by decreasing relevance.

    {rows}
    k : int or list of int, default=None
        Number of ranks that count; None for all. A list shorter than k counts as a whole.
    gain : {"exponential", "linear"}, default="exponential"
        The function of the same name in scikit-learn is linear.
    ties : {"average", "stable"}, default="average"
        For equal scores, the exact expectation over their random order [2]_, or the order of the
        rows.
    no_relevant : {"skip", 0, 1}, default="skip"
        The value of a query without a relevant document, whose IDCG is 0.
    {per_query}

    Returns
    -------
    score : float, ndarray of shape (len(k),) or pandas.DataFrame
        In [0, 1]; an array if ``k`` is a list. With ``per_query``, a frame indexed by ``qid``
        with one column per k (``"ndcg@10"``; ``"ndcg"`` if k is None) and ``"n_documents"``; NaN
        for a skipped query.

    {raises}

    {warns}

    References
    ----------
    .. [1] Järvelin and Kekäläinen (2002). Cumulated gain-based evaluation of IR techniques.
       ACM TOIS 20(4).
    .. [2] McSherry and Najork (2008). Computing information retrieval performance measures
       efficiently in the presence of tied scores. ECIR.

    Examples
    --------
    >>> from skultr.metrics import ndcg_score
    >>> qid = ["a", "b", "a", "b"]
    >>> round(ndcg_score([1, 0, 0, 3], [0.2, 0.8, 0.9, 0.1], qid=qid), 4)
    0.6309
    >>> ndcg_score([1, 0, 0, 3], [2, 0, 1, 1], qid=qid, k=[1, 10], per_query=True)
         ndcg@1  ndcg@10  n_documents
    qid
    a       1.0      1.0            2
    b       1.0      1.0            2
    """


@_metric("dcg", _dcg)
def dcg_score(
    y_true: Column,
    y_score: Column,
    *,
    qid: Column,
    k: Cutoffs = None,
    gain: Gain = "exponential",
    ties: Ties = "average",
    per_query: bool = False,
) -> Score:
    r"""Discounted cumulative gain, the mean over queries.

    .. math:: \mathrm{DCG}@k = \sum_{r=1}^{k} \frac{g(y_r)}{\log_2(1 + r)}

    A query without a relevant document has a DCG of 0, which counts in the mean.

    {rows}
    {k}
    gain : {"exponential", "linear"}, default="exponential"
        :math:`g(y) = 2^y - 1` or :math:`g(y) = y`.
    {ties}
    {per_query}

    Returns
    -------
    score : float, ndarray of shape (len(k),) or pandas.DataFrame
        See :func:`ndcg_score`; at least 0.

    {raises}

    References
    ----------
    .. [1] Järvelin and Kekäläinen (2002). Cumulated gain-based evaluation of IR techniques.
       ACM TOIS 20(4).

    Examples
    --------
    >>> from skultr.metrics import dcg_score
    >>> dcg_score([0, 2, 1], [0.1, 0.9, 0.3], qid=[7, 7, 7], k=1)
    3.0
    """


@_metric("err", _err)
def err_score(
    y_true: Column,
    y_score: Column,
    *,
    qid: Column,
    k: Cutoffs = None,
    max_grade: float | None = None,
    ties: Ties = "average",
    no_relevant: NoRelevant = "skip",
    per_query: bool = False,
) -> Score:
    r"""Expected reciprocal rank, the mean over queries.

    The user scans down and stops at an examined rank :math:`r` with probability :math:`R_r`; the
    metric is the expected reciprocal of the rank of the stop (0 without a stop):

    .. math:: \mathrm{ERR}@k = \sum_{r=1}^{k} \frac{1}{r} R_r \prod_{i<r} (1 - R_i), \qquad
        R_r = \frac{2^{y_r} - 1}{2^{y_\max}}

    Ties are averaged exactly as well: the expected product over a random subset of tied documents
    is an elementary symmetric polynomial divided by its number of terms. The cost is the number
    of tied documents times the minimum of that number and k.

    {rows}
    {k}
    max_grade : float, default=None
        The largest grade of the scale, :math:`y_\max`. By default the largest in ``y_true``; pass
        it to compare values between data sets.
    {ties}
    {no_relevant}
    {per_query}

    Returns
    -------
    score : float, ndarray of shape (len(k),) or pandas.DataFrame
        See :func:`ndcg_score`; in [0, 1).

    Raises
    ------
    ValueError
        If inputs are empty, differ in length or hold invalid values, or if relevance exceeds
        ``max_grade``.

    {warns}

    References
    ----------
    .. [1] Chapelle, Metzler, Zhang and Grinspan (2009). Expected reciprocal rank for graded
       relevance. CIKM.

    Examples
    --------
    >>> from skultr.metrics import err_score
    >>> err_score([0, 2, 1], [0.1, 0.9, 0.3], qid=[7, 7, 7], k=1)
    0.75
    """


@_metric("ap", _average_precision)
def average_precision_score(
    y_true: Column,
    y_score: Column,
    *,
    qid: Column,
    k: Cutoffs = None,
    threshold: float = 1,
    ties: Ties = "average",
    no_relevant: NoRelevant = "skip",
    per_query: bool = False,
) -> Score:
    r"""Average precision, the mean over queries (MAP).

    .. math:: \mathrm{AP}@k = \frac{1}{n_\mathrm{rel}} \sum_{r=1}^{k} [y_r \ge t]\, P@r

    with :math:`P@r` the share of relevant documents among the first :math:`r` and
    :math:`n_\mathrm{rel}` the number of relevant documents of the query, including those below
    rank :math:`k` (as in TREC).

    {binary}

    {score}

    References
    ----------
    .. [1] McSherry and Najork (2008). Computing information retrieval performance measures
       efficiently in the presence of tied scores. ECIR.

    Examples
    --------
    >>> from skultr.metrics import average_precision_score
    >>> average_precision_score([1, 0, 0, 1], [4, 3, 2, 1], qid=[7, 7, 7, 7])
    0.75
    """


@_metric("rr", _reciprocal_rank)
def reciprocal_rank_score(
    y_true: Column,
    y_score: Column,
    *,
    qid: Column,
    k: Cutoffs = None,
    threshold: float = 1,
    ties: Ties = "average",
    no_relevant: NoRelevant = "skip",
    per_query: bool = False,
) -> Score:
    r"""Reciprocal rank of the first relevant document, the mean over queries (MRR).

    .. math:: \mathrm{RR}@k = \frac{[r^* \le k]}{r^*}, \qquad r^* = \min\{r : y_r \ge t\}

    This is :func:`err_score` for a user who always stops at a relevant document; ties are treated
    in the same way.

    {binary}

    {score}

    References
    ----------
    .. [1] Voorhees (1999). The TREC-8 question answering track report. TREC.

    Examples
    --------
    >>> from skultr.metrics import reciprocal_rank_score
    >>> reciprocal_rank_score([0, 1, 1], [0.9, 0.5, 0.1], qid=[7, 7, 7])
    0.5
    """


@_metric("precision", _precision)
def precision_score(
    y_true: Column,
    y_score: Column,
    *,
    qid: Column,
    k: Cutoffs = None,
    threshold: float = 1,
    ties: Ties = "average",
    no_relevant: NoRelevant = "skip",
    per_query: bool = False,
) -> Score:
    r"""Precision, the mean over queries.

    .. math:: P@k = \frac{1}{k} \sum_{r=1}^{k} [y_r \ge t]

    The denominator is k even if a list is shorter (as in TREC); without k it is the length of the
    list.

    {binary}

    {score}

    References
    ----------
    .. [1] Manning, Raghavan and Schütze (2008). Introduction to Information Retrieval,
       section 8.4. Cambridge University Press.

    Examples
    --------
    >>> from skultr.metrics import precision_score
    >>> precision_score([0, 1, 1], [0.9, 0.5, 0.1], qid=[7, 7, 7], k=2)
    0.5
    """


#: Name of a ranking metric to its function.
RANKING_METRICS = {
    "ap": average_precision_score,
    "dcg": dcg_score,
    "err": err_score,
    "ndcg": ndcg_score,
    "precision": precision_score,
    "rr": reciprocal_rank_score,
}
