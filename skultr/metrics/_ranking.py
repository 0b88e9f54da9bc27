"""Ranking metrics over flat arrays: rows of many queries, in any order, with their query ids.

Each public function checks its input and averages a value per query (``_per_query.py``).
"""

from __future__ import annotations

from functools import partial
from numbers import Integral, Real

import numpy as np
import pandas as pd

from .._sklearn import Interval, Options, StrOptions, validate_params
from .._typing import Column
from ._per_query import (
    average_precision_per_query,
    dcg_per_query,
    err_per_query,
    ndcg_per_query,
    precision_per_query,
    reciprocal_rank_per_query,
)
from ._rows import (
    Cutoffs,
    Gain,
    NoRelevant,
    Score,
    Ties,
    as_numbers,
    check_rows,
    mean_of_defined,
    values_per_query,
)

#: Above this grade the exponential gain 2^y - 1 could exceed the range of float64.
_LARGEST_EXPONENT = 1000

_COMMON = {
    "k": [Interval(Integral, 1, None, closed="left"), "array-like", None],
    "ties": [StrOptions({"average", "stable"})],
    "per_query": ["boolean"],
}
_NO_RELEVANT = {"no_relevant": [StrOptions({"skip"}), Options(Real, {0, 1})]}
_GAIN = {"gain": [StrOptions({"exponential", "linear"})]}
_THRESHOLD = {"threshold": [Interval(Real, 0, None, closed="neither")]}


# --------------------------------------------------------------------------------------
# Public metrics
# --------------------------------------------------------------------------------------
@validate_params(_COMMON | _NO_RELEVANT | _GAIN, prefer_skip_nested_validation=True)
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

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
        Relevance grades, finite and at least 0.
    y_score : array-like of shape (n_rows,)
        Scores; higher is more relevant.
    qid : array-like of shape (n_rows,)
        Query ids: any hashable values, in any order.
    k : int or list of int, default=None
        Number of ranks that count; None for all. A list shorter than k counts as a whole.
    gain : {"exponential", "linear"}, default="exponential"
        The function of the same name in scikit-learn is linear.
    ties : {"average", "stable"}, default="average"
        For equal scores, the exact expectation over their random order [2]_, or the order of the
        rows.
    no_relevant : {"skip", 0, 1}, default="skip"
        The value of a query without a relevant document, whose IDCG is 0.
    per_query : bool, default=False
        Whether to return the value of each query.

    Returns
    -------
    score : float, ndarray of shape (len(k),) or pandas.DataFrame
        In [0, 1]; an array if ``k`` is a list. With ``per_query``, a frame indexed by ``qid``
        with one column per k (``"ndcg@10"``; ``"ndcg"`` if k is None) and ``"n_documents"``; NaN
        for a skipped query.

    Raises
    ------
    ValueError
        If inputs are empty, differ in length or hold invalid values.

    Warns
    -----
    UndefinedMetricWarning
        If all queries are skipped; the mean is then NaN.

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
    value = partial(ndcg_per_query, gain=gain)
    return _score("ndcg", value, y_true, y_score, qid, k, ties, no_relevant, per_query, gain=gain)


@validate_params(_COMMON | _GAIN, prefer_skip_nested_validation=True)
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

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
        Relevance grades, finite and at least 0.
    y_score : array-like of shape (n_rows,)
        Scores; higher is more relevant.
    qid : array-like of shape (n_rows,)
        Query ids: any hashable values, in any order.
    k : int or list of int, default=None
        Number of ranks that count; None for all.
    gain : {"exponential", "linear"}, default="exponential"
        :math:`g(y) = 2^y - 1` or :math:`g(y) = y`.
    ties : {"average", "stable"}, default="average"
        For equal scores, the exact expectation over their random order, or the order of the
        rows.
    per_query : bool, default=False
        Whether to return the value of each query.

    Returns
    -------
    score : float, ndarray of shape (len(k),) or pandas.DataFrame
        See :func:`ndcg_score`; at least 0.

    Raises
    ------
    ValueError
        If inputs are empty, differ in length or hold invalid values.

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
    value = partial(dcg_per_query, gain=gain)
    return _score("dcg", value, y_true, y_score, qid, k, ties, "skip", per_query, gain=gain)


@validate_params(
    _COMMON | _NO_RELEVANT | {"max_grade": [Interval(Real, 0, None, closed="neither"), None]},
    prefer_skip_nested_validation=True,
)
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

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
        Relevance grades, finite and at least 0.
    y_score : array-like of shape (n_rows,)
        Scores; higher is more relevant.
    qid : array-like of shape (n_rows,)
        Query ids: any hashable values, in any order.
    k : int or list of int, default=None
        Number of ranks that count; None for all.
    max_grade : float, default=None
        The largest grade of the scale, :math:`y_\max`. By default the largest in ``y_true``; pass
        it to compare values between data sets.
    ties : {"average", "stable"}, default="average"
        For equal scores, the exact expectation over their random order, or the order of the
        rows.
    no_relevant : {"skip", 0, 1}, default="skip"
        The value of a query whose documents all have relevance 0.
    per_query : bool, default=False
        Whether to return the value of each query.

    Returns
    -------
    score : float, ndarray of shape (len(k),) or pandas.DataFrame
        See :func:`ndcg_score`; in [0, 1).

    Raises
    ------
    ValueError
        If inputs are empty, differ in length or hold invalid values, or if relevance exceeds
        ``max_grade``.

    Warns
    -----
    UndefinedMetricWarning
        If all queries are skipped; the mean is then NaN.

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
    value = partial(err_per_query, max_grade=_check_max_grade(y_true, max_grade))
    return _score(
        "err", value, y_true, y_score, qid, k, ties, no_relevant, per_query, gain="exponential"
    )


@validate_params(_COMMON | _NO_RELEVANT | _THRESHOLD, prefer_skip_nested_validation=True)
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

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
        Relevance grades, finite and at least 0.
    y_score : array-like of shape (n_rows,)
        Scores; higher is more relevant.
    qid : array-like of shape (n_rows,)
        Query ids: any hashable values, in any order.
    k : int or list of int, default=None
        Number of ranks that count; None for all.
    threshold : float, default=1
        A document is relevant if its relevance is at least this value.
    ties : {"average", "stable"}, default="average"
        For equal scores, the exact expectation over their random order [1]_, or the order of the
        rows.
    no_relevant : {"skip", 0, 1}, default="skip"
        The value of a query without a relevant document.
    per_query : bool, default=False
        Whether to return the value of each query.

    Returns
    -------
    score : float, ndarray of shape (len(k),) or pandas.DataFrame
        See :func:`ndcg_score`; in [0, 1].

    Raises
    ------
    ValueError
        If inputs are empty, differ in length or hold invalid values.

    Warns
    -----
    UndefinedMetricWarning
        If all queries are skipped; the mean is then NaN.

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
    value = partial(average_precision_per_query, threshold=threshold)
    return _score("ap", value, y_true, y_score, qid, k, ties, no_relevant, per_query)


@validate_params(_COMMON | _NO_RELEVANT | _THRESHOLD, prefer_skip_nested_validation=True)
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

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
        Relevance grades, finite and at least 0.
    y_score : array-like of shape (n_rows,)
        Scores; higher is more relevant.
    qid : array-like of shape (n_rows,)
        Query ids: any hashable values, in any order.
    k : int or list of int, default=None
        Number of ranks that count; None for all.
    threshold : float, default=1
        A document is relevant if its relevance is at least this value.
    ties : {"average", "stable"}, default="average"
        For equal scores, the exact expectation over their random order, or the order of the
        rows.
    no_relevant : {"skip", 0, 1}, default="skip"
        The value of a query without a relevant document.
    per_query : bool, default=False
        Whether to return the value of each query.

    Returns
    -------
    score : float, ndarray of shape (len(k),) or pandas.DataFrame
        See :func:`ndcg_score`; in [0, 1].

    Raises
    ------
    ValueError
        If inputs are empty, differ in length or hold invalid values.

    Warns
    -----
    UndefinedMetricWarning
        If all queries are skipped; the mean is then NaN.

    References
    ----------
    .. [1] Voorhees (1999). The TREC-8 question answering track report. TREC.

    Examples
    --------
    >>> from skultr.metrics import reciprocal_rank_score
    >>> reciprocal_rank_score([0, 1, 1], [0.9, 0.5, 0.1], qid=[7, 7, 7])
    0.5
    """
    value = partial(reciprocal_rank_per_query, threshold=threshold)
    return _score("rr", value, y_true, y_score, qid, k, ties, no_relevant, per_query)


@validate_params(_COMMON | _NO_RELEVANT | _THRESHOLD, prefer_skip_nested_validation=True)
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

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
        Relevance grades, finite and at least 0.
    y_score : array-like of shape (n_rows,)
        Scores; higher is more relevant.
    qid : array-like of shape (n_rows,)
        Query ids: any hashable values, in any order.
    k : int or list of int, default=None
        Number of ranks that count; None for all.
    threshold : float, default=1
        A document is relevant if its relevance is at least this value.
    ties : {"average", "stable"}, default="average"
        For equal scores, the exact expectation over their random order, or the order of the
        rows.
    no_relevant : {"skip", 0, 1}, default="skip"
        The value of a query without a relevant document.
    per_query : bool, default=False
        Whether to return the value of each query.

    Returns
    -------
    score : float, ndarray of shape (len(k),) or pandas.DataFrame
        See :func:`ndcg_score`; in [0, 1].

    Raises
    ------
    ValueError
        If inputs are empty, differ in length or hold invalid values.

    Warns
    -----
    UndefinedMetricWarning
        If all queries are skipped; the mean is then NaN.

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
    value = partial(precision_per_query, threshold=threshold)
    return _score("precision", value, y_true, y_score, qid, k, ties, no_relevant, per_query)


# --------------------------------------------------------------------------------------
# From values to a mean
# --------------------------------------------------------------------------------------
def _score(name, value, y_true, y_score, qid, k, ties, no_relevant, per_query, *, gain="linear"):
    cutoffs = _check_cutoffs(k)
    y_true, y_score, qid = check_rows(y_true, y_score, qid)
    _check_gain(y_true, gain)
    values, lengths, ids = values_per_query(value, y_true, y_score, qid, cutoffs, ties)
    if no_relevant != "skip":
        values[np.isnan(values)] = no_relevant
    if per_query:
        columns = [name if k is None else f"{name}@{k}" for k in cutoffs]
        index = pd.Index(ids, name="qid", tupleize_cols=False)
        return pd.DataFrame(values, columns=columns, index=index).assign(n_documents=lengths)
    mean = mean_of_defined(values, name)
    return mean if np.ndim(k) else float(mean[0])


# --------------------------------------------------------------------------------------
# Checks of options (those of rows are in _rows.py)
# --------------------------------------------------------------------------------------
def _check_cutoffs(k):
    cutoffs = list(k) if np.ndim(k) else [k]
    if not cutoffs:
        raise ValueError("k is an empty list; expected at least one rank, or None for all ranks.")
    for cutoff in cutoffs:
        if np.ndim(k) and (not isinstance(cutoff, Integral) or cutoff < 1):
            raise ValueError(f"k holds {cutoff!r}; expected whole numbers of at least 1.")
    return cutoffs


def _check_gain(y_true, gain):
    if gain == "exponential" and y_true.max() > _LARGEST_EXPONENT:
        raise ValueError(
            f"y_true is as large as {y_true.max():g}, too large for the exponential gain "
            "2^y_true - 1; expected grades such as 0 to 4. Rescale the relevance, or use "
            "gain='linear' if the metric has it."
        )


def _check_max_grade(y_true, max_grade):
    y_true = as_numbers(y_true, "y_true")
    largest = float(y_true.max(initial=0))
    if max_grade is None:
        return largest
    # An infinite value is reported by the check of y_true.
    if max_grade < largest < np.inf:
        raise ValueError(
            f"y_true is as large as {largest:g}, above max_grade={max_grade:g}; expected the "
            "largest grade of the scale."
        )
    return float(max_grade)
