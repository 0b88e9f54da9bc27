"""CMIP: how much the scores of a model copy the ranker that its clicks were logged under."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from numbers import Integral
from typing import Literal, overload

import numpy as np
import pandas as pd
from scipy.special import xlogy
from sklearn.utils import check_random_state

from .._sklearn import Interval, StrOptions, validate_params
from .._typing import Column, RandomState
from ..exceptions import ClickDataWarning, warn_user
from ._information import (
    FEWEST_FOR_CLASSIFIER,
    KNN_ERROR_FACTOR,
    classifier_information,
    grade_slices,
    knn_information,
    mean_ranks,
    rows_that_vary,
)
from ._rows import as_numbers

__all__ = ["CMIPResult", "cmip_score"]

#: Grades of fewer documents are merged. Measured: "knn" finds .14 of .22 nats in grades of 20.
_SMALLEST_GRADE = 20
#: Largest number of rows (and of columns) of a table of the permutation test.
_MAX_BINS = 8


@dataclass(frozen=True, eq=False)
class CMIPResult:
    """What :func:`cmip_score` returns with ``return_result=True``.

    Parameters
    ----------
    value : float
        CMIP in nats; 0 is debiased.
    standard_error : float
        Standard error of ``value``, from the variance between documents; for ``"knn"`` times a
        factor for the dependence of neighbours. It does not include the bias of the estimator.
    p_value : float
        Share of permutations of ``y_logging`` within grades whose dependence on ``y_pred`` is at
        least as large; small if the scores depend on the logging policy beyond relevance.
    n_per_grade : Series of int, indexed by ``grade``
        Number of documents of each grade. Merged grades are named by the mean grade of their
        documents.
    estimator : {"classifier", "knn"}
        The estimator that was used: ``"knn"`` also if there were too few documents for the
        classifier.
    n_permutations : int
    """

    value: float
    standard_error: float
    p_value: float
    n_per_grade: pd.Series
    estimator: str
    n_permutations: int

    def summary(self) -> str:
        """The result in words.

        Returns
        -------
        text : str
        """
        if self.p_value <= 0.05:
            verdict = "The scores depend on the logging policy beyond relevance."
        else:
            verdict = "No dependence on the logging policy beyond relevance was found."
        counts = ", ".join(f"{grade:g}: {n}" for grade, n in self.n_per_grade.items())
        return (
            f"CMIP {self.value:.3f} nats (standard error {self.standard_error:.3f}, "
            f"{self.estimator})\n"
            f"Permutation p-value {self.p_value:.3g} ({self.n_permutations} permutations). "
            f"{verdict}\n"
            f"Documents by grade: {counts}"
        )


@overload
def cmip_score(
    y_pred: Column,
    y_logging: Column,
    y_true: Column,
    *,
    estimator: Literal["classifier", "knn"] = ...,
    n_repeats: int = ...,
    n_permutations: int = ...,
    random_state: RandomState = ...,
    return_result: Literal[False] = ...,
) -> float: ...
@overload
def cmip_score(
    y_pred: Column,
    y_logging: Column,
    y_true: Column,
    *,
    estimator: Literal["classifier", "knn"] = ...,
    n_repeats: int = ...,
    n_permutations: int = ...,
    random_state: RandomState = ...,
    return_result: Literal[True],
) -> CMIPResult: ...
@validate_params(
    {
        "y_pred": ["array-like"],
        "y_logging": ["array-like"],
        "y_true": ["array-like"],
        "estimator": [StrOptions({"classifier", "knn"})],
        "n_repeats": [Interval(Integral, 1, None, closed="left")],
        "n_permutations": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "return_result": ["boolean"],
    },
    prefer_skip_nested_validation=True,
)
def cmip_score(
    y_pred: Column,
    y_logging: Column,
    y_true: Column,
    *,
    estimator: Literal["classifier", "knn"] = "classifier",
    n_repeats: int = 5,
    n_permutations: int = 199,
    random_state: RandomState = None,
    return_result: bool = False,
) -> float | CMIPResult:
    r"""Conditional mutual information of scores with the logging policy, given relevance.

    .. math:: \mathrm{CMIP} = I(\tilde R; R_l \mid R)

    with :math:`\tilde R` the score of a model, :math:`R_l` the mean logged position of the
    document, and :math:`R` its annotated relevance. It is 0 if the model is *debiased*: among
    documents of one grade, their scores do not depend on where the logging policy put them. A
    model that was trained on clicks without correcting for position copies the logging policy and
    has a large CMIP, however good its nDCG is.

    Only the order of scores within a grade counts: increasing functions of ``y_pred`` or
    ``y_logging``, and changes of sign, leave CMIP unchanged.

    Parameters
    ----------
    y_pred : array-like of shape (n_documents,)
        Scores of the model, one per document.
    y_logging : array-like of shape (n_documents,)
        Mean logged position of the document, or its score by the logging policy.
    y_true : array-like of shape (n_documents,)
        Grades of relevance. Grades with fewer than 20 documents are merged with the nearest
        grade, with a warning; differences between merged grades then count as dependence.
    estimator : {"classifier", "knn"}, default="classifier"
        Estimator of the information:

        - ``"classifier"``: as in the paper, LightGBM separates the documents from pairs of the
          score of a document and the ``y_logging`` of another document of its grade; the odds on
          held-out documents enter the bound of Donsker and Varadhan. It is biased towards 0, the
          more the fewer documents there are. With fewer than 200 documents, ``"knn"`` is used
          instead, with a warning.
        - ``"knn"``: distances to the nearest neighbours (Kraskov et al. [2]_; given a discrete
          variable, Frenzel and Pompe's [3]_). It needs no training, is faster, and has little
          bias from a hundred documents per grade; in smaller grades it misses a part of strong
          dependence. Near 0 it is noisier.
    n_repeats : int, default=5
        Number of estimates that are averaged, each with different splits (``"classifier"``) or
        different random orders of equal values (``"knn"``).
    n_permutations : int, default=199
        Number of permutations of the test; used only with ``return_result``.
    random_state : int, RandomState instance or None, default=None
        Seed of splits, ties and permutations.
    return_result : bool, default=False
        Whether to return the standard error and the p-value as well.

    Returns
    -------
    score : float or CMIPResult
        In nats, the mean over documents, so that a grade is weighted by its number of documents.
        Small negative values are noise.

    Raises
    ------
    ValueError
        If inputs are not flat, differ in length, are empty or hold NaN or infinity, or if no two
        documents share a grade.

    Warns
    -----
    ClickDataWarning
        If grades are merged, if ``y_pred`` or ``y_logging`` is constant (CMIP is then 0), or if
        there are too few documents for the classifier.

    See Also
    --------
    CMIPScorer : The same as a scorer, for searches.

    Notes
    -----
    CMIP is no measure of quality: random scores have CMIP 0. Use it together with nDCG and
    perplexity, as :class:`~skultr.model_selection.OffPolicySelection` does.

    The p-value uses a statistic that is fast to permute: the mutual information of both
    variables' ranks within their grade, in a table of at most 8 × 8 bins of equal counts, plus
    that of one such table per grade. The test is valid for any number of documents and does not
    depend on ``estimator``.

    References
    ----------
    .. [1] Deffayet, Hager, Renders and de Rijke (2023). An offline metric for the debiasedness
       of click models. SIGIR.
    .. [2] Kraskov, Stögbauer and Grassberger (2004). Estimating mutual information. Physical
       Review E 69.
    .. [3] Frenzel and Pompe (2007). Partial mutual information for coupling analysis of
       multivariate time series. Physical Review Letters 99.

    Examples
    --------
    >>> import numpy as np
    >>> from skultr.metrics import cmip_score
    >>> rng = np.random.default_rng(0)
    >>> grade = rng.integers(0, 3, 2000)
    >>> position = 5 - grade + rng.normal(size=2000)
    >>> copies = -position + rng.normal(size=2000)
    >>> learned = grade + rng.normal(size=2000)
    >>> round(cmip_score(copies, position, grade, estimator="knn", random_state=0), 1)
    0.3
    >>> result = cmip_score(
    ...     learned, position, grade, estimator="knn", random_state=0, return_result=True
    ... )
    >>> bool(result.p_value > 0.05)
    True
    """
    pred, logging, relevance = _check_documents(y_pred, y_logging, y_true)
    rng = check_random_state(random_state)
    _check_shared_grades(relevance)
    grade, names = _merge_small_grades(relevance)
    # Sorted, so that the value does not depend on the order of the rows.
    order = np.lexsort((logging, pred, grade))
    pred, logging, grade = pred[order], logging[order], grade[order]
    _warn_about_constants(pred, logging)
    varies = rows_that_vary(pred, logging, grade)
    estimator = _estimator_for(estimator, int(varies.sum()))
    information = np.zeros(len(pred))
    if varies.any():
        estimate = {"classifier": classifier_information, "knn": knn_information}[estimator]
        information[varies] = estimate(
            pred[varies], logging[varies], grade[varies], n_repeats, rng
        )
    value = float(information.mean())
    if not return_result:
        return value
    factor = KNN_ERROR_FACTOR if estimator == "knn" else 1.0
    return CMIPResult(
        value=value,
        standard_error=float(factor * information.std(ddof=1) / np.sqrt(len(information))),
        p_value=_permutation_p_value(pred, logging, grade, n_permutations, rng),
        n_per_grade=pd.Series(np.bincount(grade), pd.Index(names, name="grade"), name="n"),
        estimator=estimator,
        n_permutations=int(n_permutations),
    )


# --------------------------------------------------------------------------------------
# Grades
# --------------------------------------------------------------------------------------
def _merge_small_grades(relevance):
    """Code of the grade of each document after merging, and the mean relevance of each code."""
    values, code, counts = np.unique(relevance, return_inverse=True, return_counts=True)
    group = _groups_of_grades(values, counts)
    n_small = int((counts < _SMALLEST_GRADE).sum())
    if group[-1] + 1 < len(values):
        warn_user(
            f"{n_small} of {len(values)} grades have fewer than {_SMALLEST_GRADE} documents and "
            f"were merged with the nearest grade, which leaves {group[-1] + 1}. Differences "
            "between merged grades count as dependence: annotate more documents, or merge grades "
            "yourself.",
            ClickDataWarning,
        )
    size = np.bincount(group, counts)
    names = np.bincount(group, values * counts) / size
    # Rounding must not change the name of a grade that was not merged.
    alone = np.bincount(group)[group] == 1
    names[group[alone]] = values[alone]
    return group[code], names


def _groups_of_grades(values, counts):
    """Group of each grade: the smallest is merged with its nearest until all are large enough."""
    # A group is a run of grades, identified by its first; `end` is the first of the next run.
    before, end = np.arange(-1, len(values) - 1), np.arange(1, len(values) + 1)
    size, total = counts.astype(float), values * counts
    alive = np.ones(len(values), dtype=bool)
    queue = [(n, group) for group, n in enumerate(size) if n < _SMALLEST_GRADE]
    heapify(queue)
    while queue:
        n, group = heappop(queue)
        if not alive[group] or n != size[group]:
            continue  # it was merged since
        mean = total[group] / n
        neighbors = [other for other in (before[group], end[group]) if 0 <= other < len(values)]
        if not neighbors:
            break
        other = min(neighbors, key=lambda g: (abs(total[g] / size[g] - mean), size[g]))
        left, right = min(group, other), max(group, other)
        size[left] += size[right]
        total[left] += total[right]
        alive[right], end[left] = False, end[right]
        if end[left] < len(values):
            before[end[left]] = left
        if size[left] < _SMALLEST_GRADE:
            heappush(queue, (size[left], left))
    return np.cumsum(alive) - 1


# --------------------------------------------------------------------------------------
# Permutations
# --------------------------------------------------------------------------------------
def _permutation_p_value(pred, logging, grade, n_permutations, rng):
    # One table of all documents has more power if grades behave alike, tables by grade if not.
    tables = [
        _table(pred, logging, grade, table_of_grade)
        for table_of_grade in (np.zeros_like(grade), grade)
    ]
    order = np.arange(len(grade))

    def statistic():
        return sum(_table_information(row, column[order]) for row, column in tables)

    observed = statistic()
    n_as_large = 0
    for _ in range(n_permutations):
        for part in grade_slices(grade):
            rng.shuffle(order[part])
        # Equal tables must tie in spite of the rounding of their sums.
        n_as_large += statistic() >= observed * (1 - 1e-12)
    return float((1 + n_as_large) / (1 + n_permutations))


def _table(pred, logging, grade, table):
    """Row and column of each document by its ranks in its grade; tables have separate rows."""
    n_documents = np.bincount(table)[table]
    n_bins = np.clip(np.cbrt(n_documents + 0.5).astype(int), 2, _MAX_BINS)
    row, column = (
        ((mean_ranks(values, grade) - 0.5) / np.bincount(grade)[grade] * n_bins).astype(int)
        for values in (pred, logging)
    )
    return row + table * _MAX_BINS, column


def _table_information(row, column):
    """Mutual information of rows and columns, up to constants under permutation."""
    counts = np.bincount(row * _MAX_BINS + column)
    return xlogy(counts, counts).sum()


# --------------------------------------------------------------------------------------
# Checks
# --------------------------------------------------------------------------------------
def _check_documents(y_pred, y_logging, y_true):
    given = {"y_pred": y_pred, "y_logging": y_logging, "y_true": y_true}
    values = {name: as_numbers(value, name).astype(float) for name, value in given.items()}
    shapes = {value.shape for value in values.values()}
    if len(shapes) > 1 or len(next(iter(shapes))) != 1:
        found = ", ".join(f"{name} {value.shape}" for name, value in values.items())
        raise ValueError(
            "y_pred, y_logging and y_true must be flat and of one length, one value per document; "
            f"got the shapes {found}."
        )
    for name, value in values.items():
        bad = ~np.isfinite(value)
        if bad.any():
            row = int(bad.argmax())
            raise ValueError(
                f"{name} holds NaN or infinity in {int(bad.sum())} of {len(value)} rows, first "
                f"{value[row]} in row {row}; expected a number for every document. Leave out "
                "documents that are not annotated or were never shown."
            )
    return values["y_pred"], values["y_logging"], values["y_true"]


def _check_shared_grades(relevance):
    if len(np.unique(relevance)) == len(relevance):
        raise ValueError(
            f"No two of the {len(relevance)} documents share a grade of y_true; expected grades "
            "with at least 2 documents, because CMIP compares documents of equal relevance. "
            "Annotate more documents, or cut a continuous relevance into a few grades."
        )


def _warn_about_constants(pred, logging):
    for name, values, what in (
        ("y_pred", pred, "a constant copies nobody, and ranks nothing"),
        ("y_logging", logging, "the logging policy ranked all documents alike"),
    ):
        if np.ptp(values) == 0:
            warn_user(
                f"{name} is {values[0]:g} for all {len(values)} documents, so CMIP is 0: {what}. "
                "Expected values that differ.",
                ClickDataWarning,
            )


def _estimator_for(estimator, n_documents):
    """The estimator that was asked for, or nearest neighbours where a classifier cannot learn."""
    if estimator == "classifier" and 0 < n_documents < FEWEST_FOR_CLASSIFIER:
        warn_user(
            f"CMIP by a classifier has only {n_documents} documents to learn from; expected at "
            f"least {FEWEST_FOR_CLASSIFIER}. This value is by estimator='knn' instead: do not "
            "compare it with values of the classifier. Annotate more documents, or ask for "
            "estimator='knn' throughout.",
            ClickDataWarning,
        )
        return "knn"
    return estimator
