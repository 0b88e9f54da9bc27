"""CMIP: how much the scores of a model copy the ranker that its clicks were logged under."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from numbers import Integral
from typing import Any, Literal, TypeAlias, overload

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree
from scipy.special import digamma, ndtri, xlogy
from sklearn.utils import check_random_state

from .._base._progress import progress
from .._base._sklearn import Interval, StrOptions, validate_params
from .._base._typing import Column, Floats, Ints, RandomState
from .._log._faults import count_of
from .._log._segments import TINY, encode, offsets_from_counts, offsets_from_sorted
from ..exceptions import ClickDataWarning, warn_user
from ._click_dependence import (
    FEWEST_IMPRESSIONS,
    FEWEST_QUERIES,
    LEAST_EXAMINED,
    elementary_polynomials,
    information_by_clicks,
)
from ._query_means import ratio_of_sums
from ._ranking import check_ids, flat_columns, refuse_where

CMIPEstimator: TypeAlias = Literal["classifier", "knn", "published"]

CMIP_CONSTRAINTS = {
    "estimator": [StrOptions({"classifier", "knn", "published"})],
    "n_repeats": [Interval(Integral, 1, None, closed="left")],
    "random_state": ["random_state"],
}
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
        Standard error of ``value``: variance between queries (without ``qid``, documents), and for
        ``"classifier"`` half of the correction for training and the part of its distance to
        ``"knn"`` that the error of ``"knn"`` does not explain. NaN for a single query, and for
        ``"published"``, whose bias is larger than its noise.
    p_value : float
        Share of permutations of ``y_logging`` within queries and grades (without ``qid``, within
        grades) whose dependence on ``y_pred`` is at least as large; small if the scores depend on
        the logging policy beyond relevance. From clicks, that of a t test by query.
    n_per_grade : Series of int, indexed by ``grade``
        Number of documents of each grade; from clicks, none.
    n_together : int
        Number of documents in grades of fewer than 20, which enter ``value`` by their ranks
        within their grade, compared with the ranks of all such grades; 0 for ``"published"``.
    n_left_out : int
        Number of documents that do not enter ``value``: alone in their grade, or in grades of
        fewer than 20 that together have fewer than 20; 0 for ``"published"``. From clicks, those
        with fewer than six impressions, or as good as never examined, and the only other one of
        its query.
    estimator : {"classifier", "knn", "published", "clicks"}
        The estimator that was used: ``"knn"`` also if there were too few documents for a
        classifier, and ``"clicks"`` where clicks were in the place of grades.
    n_permutations : int
        0 from clicks.
    """

    value: float
    standard_error: float
    p_value: float
    n_per_grade: pd.Series
    n_together: int
    n_left_out: int
    estimator: str
    n_permutations: int

    def summary(self) -> str:
        """The result in words.

        Returns
        -------
        text : str
        """
        verdict = (
            "The scores depend on the logging policy beyond relevance."
            if self.p_value <= 0.05
            else "No dependence on the logging policy beyond relevance was found."
        )
        counts = ", ".join(f"{grade:g}: {n}" for grade, n in self.n_per_grade.items())
        by = f"{self.n_permutations} permutations" if self.n_permutations else "t test by query"
        lines = [
            f"CMIP {self.value:.3f} nats (standard error {self.standard_error:.3f}, "
            f"{self.estimator})",
            f"p-value {self.p_value:.3g} ({by}). {verdict}",
        ]
        more = {
            "Documents by grade": counts,
            "In small grades, by ranks within the grade": self.n_together,
            "Left out of the value": self.n_left_out,
        }
        lines += [f"{what}: {n}" for what, n in more.items() if n]
        return "\n".join(lines)


@overload
def cmip_score(
    y_pred: Column,
    y_logging: Column,
    y_true: Column,
    *,
    estimator: CMIPEstimator = ...,
    n_repeats: int = ...,
    n_permutations: int = ...,
    random_state: RandomState = ...,
    qid: Column | None = ...,
    impressions: Column | None = ...,
    return_result: Literal[False] = ...,
) -> float: ...
@overload
def cmip_score(
    y_pred: Column,
    y_logging: Column,
    y_true: Column,
    *,
    estimator: CMIPEstimator = ...,
    n_repeats: int = ...,
    n_permutations: int = ...,
    random_state: RandomState = ...,
    qid: Column | None = ...,
    impressions: Column | None = ...,
    return_result: Literal[True],
) -> CMIPResult: ...
@validate_params(
    {
        "y_pred": ["array-like"],
        "y_logging": ["array-like"],
        "y_true": ["array-like"],
        "n_permutations": [Interval(Integral, 1, None, closed="left")],
        "impressions": ["array-like", None],
        "return_result": ["boolean"],
    }
    | CMIP_CONSTRAINTS,
    prefer_skip_nested_validation=True,
)
def cmip_score(
    y_pred: Column,
    y_logging: Column,
    y_true: Column,
    *,
    estimator: CMIPEstimator = "classifier",
    n_repeats: int = 5,
    n_permutations: int = 199,
    random_state: RandomState = None,
    qid: Column | None = None,
    impressions: Column | None = None,
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
        Grades of relevance. Documents of different grades are never compared by their values;
        of grades with fewer than 20 documents only a part of the dependence is found, with a
        warning (see Notes). With ``impressions``, click rates in the place of grades.
    estimator : {"classifier", "knn", "published"}, default="classifier"
        Estimator of the information:

        - ``"classifier"``: as in the paper, LightGBM separates the documents from pairs of the
          score of a document and the ``y_logging`` of another document of its grade, and the odds
          enter the bound of Donsker and Varadhan; but it starts from a normal distribution (a
          Gaussian copula), trees are cross-fitted and stop early (see Notes). It has the least
          noise near 0. Of dependence that is no correlation it misses a part: 0.27 of 0.80 nats
          for a parabola and 500 documents, 0.12 for 2,000.
        - ``"knn"``: distances to the nearest neighbours (Kraskov et al. [2]_; given a discrete
          variable, Frenzel and Pompe's [3]_). It needs no training, is faster, and has little
          bias from a hundred documents per grade; in smaller grades it misses a part of strong
          dependence. Near 0 it is noisier.
        - ``"published"``: section 4.3 of the paper to the letter, to compare with its figures: one
          half of the documents against the other with exchanged ``y_logging``, LightGBM as it
          comes, trained on one half of both and tested on the other, P in [0.01, 0.99]. Its bias
          is large: -0.28 at 5,000 documents where the truth is 0, 0.15 for 0.51.

        With fewer than 200 documents, ``"knn"`` is used instead of both classifiers, with a
        warning. This depends on ``y_true`` alone, and never on the scores.
    n_repeats : int, default=5
        Number of estimates that are averaged, each with different splits (classifiers) and
        different random orders of equal values.
    n_permutations : int, default=199
        Number of permutations of the test; used only with ``return_result``.
    random_state : int, RandomState instance or None, default=None
        Seed of splits, ties and permutations.
    qid : array-like of shape (n_documents,), default=None
        Query of each document, for the p-value and the standard error; the value is the same.
        Without it documents count as independent, and the p-value takes for dependence what the
        scores of whole queries have in common: pass it if documents belong to queries. The value
        counts that too: 0.05 on average in 30 queries of 10 that truly have 0. Needed with
        ``impressions``.
    impressions : array-like of shape (n_documents,), default=None
        Number of times that each document was shown in lists whose order was random, of which
        ``y_true`` is the click rate: nobody needs to annotate (see Notes). ``y_logging`` is of
        the other lists. ``estimator``, ``n_repeats`` and ``n_permutations`` are then not used.
        For rows of a log, and where examination is known and orders are not random, see
        :class:`CMIPScorer`.
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
        documents share a grade. With ``impressions``: if ``qid`` is missing, a click rate is not
        one of so many impressions, fewer than ten queries have two documents with six impressions
        each, or clicks are too few to show how relevance varies.

    Warns
    -----
    ClickDataWarning
        If grades have fewer than 20 documents (not with ``"published"``), if ``y_pred`` or
        ``y_logging`` is constant (CMIP is then 0, and so are all estimates but ``"published"``,
        which has its bias for constants too), or if there are too few documents for a classifier.

    See Also
    --------
    CMIPScorer : The same as a scorer, for searches.

    Notes
    -----
    CMIP is no measure of quality: random scores have CMIP 0. Use it together with nDCG and
    perplexity, as :class:`~skultr.model_selection.OffPolicySelection` does.

    The p-value permutes ``y_logging`` within query and grade, and whole queries among those with
    as many documents of each grade; without ``qid``, within the grades of ``y_true``, however
    small. It assumes no more than that what is permuted is exchangeable: the documents of a query
    and grade, and queries of the same grades. Dependence of whole queries alone (all documents of
    some queries score higher and are logged higher) is not found. Its statistic is fast to
    permute: the mutual information of both variables' ranks within their grade, less the means of
    queries as far as these differ by more than chance, in a table of at most 8 × 8 bins of equal
    counts, plus that of one such table per grade, plus that of a normal distribution of the same
    correlation. It does not depend on ``estimator``. Measured over 200 logs of 300 documents each
    (4, 10 and 30 per query, 2 and 5 grades) in which both scores vary twice as much between
    queries as within: without dependence 0.03 to 0.08 of the p-values are at most 0.05, and 0.24
    to 0.92 without ``qid``; at a correlation of 0.25 within queries and grades, 0.65 to 0.78.

    Estimators compare ranks within the grade. Those of grades of fewer than 20 documents are
    compared together: ranks are independent of each other if scores and positions are so within
    each grade, whatever differs between grades. Strong dependence in small grades is found in
    part: 0.45 of 0.51 nats in five grades of 15, 0.31 in five grades of 5. Documents alone in
    their grade are left out, and so are small grades that together have fewer than 20 documents.
    ``n_together`` and ``n_left_out`` of the result count them.

    ``"classifier"`` boosts trees from the log density ratio of a Gaussian copula, with one
    correlation per grade, shrunk to that of all as far as grades agree. Each document's term is
    that of the classifier which has not seen it, plus a third of what it gains where it was used
    in training. Measured over 100 draws of 500 documents with correlation 0, 0.3, 0.6 and 0.9 by
    grade: bias −0.01 of 0.28, and 93 of 100 intervals of 1.96 standard errors hold the truth.

    **Clicks in the place of grades**, which the paper leaves for later. Where the order is random,
    the click rate :math:`c/n` of a document has the mean :math:`r`, up to one factor for all, and
    tells no more than :math:`r` about scores and positions. But it is noisy: among documents of
    equal click rates those that production ranks higher *are* more relevant, and the scores of an
    unbiased model follow them, so that clicks must not be grades. They are moments here:
    :math:`c(c-1)\cdots(c-m+1) / (n(n-1)\cdots(n-m+1))` has the mean :math:`r^m`. With these, the
    partial correlation :math:`\rho` of scores and positions (both as the monotone click rates that
    go with them), given :math:`r, r^2` (and :math:`r^3` where clicks show that much) and the
    query, is estimated as in a regression with errors in the variables, and
    :math:`\mathrm{CMIP} = -\frac12 \log(1 - \rho^2)`. Only the product of what a polynomial leaves
    of the mean score and of the mean position at :math:`r` is an error. Standard errors are those
    of a jackknife over queries. The value is that of a normal distribution of click rates: do not
    compare it with values from grades, which count ranks.

    Measured over 200 logs each, with a hundred queries of ten documents and 50 randomised
    impressions of each: of unbiased scores (log relevance and noise) 0.01 of the p-values are at
    most 0.05, of scores that copy three tenths of the log examination 0.65, of click rates of
    production's lists 0.99. With 20 impressions these are 0.04, 0.33 and 0.61, and a third of the
    logs is refused; with 200 they are 0.06 (350 logs), 1 and 1; with 20 in 400 queries 0.02, 0.64
    and 0.93; by true grades 0.07, 1 and 1. The level does not hold where clicks depend on other
    documents: of users who stop when satisfied (DBN), 0.08 at 50 impressions and 0.13 at 200. And
    scores that are right only relative to their query count as dependent (0.15 at 50 impressions,
    0.27 at 200), as positions are relative, too.

    ``"published"`` takes the second half of the documents for those that are not exchanged, which
    the paper leaves open, and documents of the nearest grade where that half has none of the same.

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

    Clicks on random orders in the place of grades:

    >>> query, relevance = np.repeat(np.arange(100), 10), rng.choice([0.1, 0.2, 0.5], 1000)
    >>> position = 5 - 8 * relevance + rng.normal(size=1000)
    >>> rate = rng.binomial(50, 0.4 * relevance) / 50
    >>> options = {"qid": query, "impressions": np.full(1000, 50), "return_result": True}
    >>> found = cmip_score(rng.normal(size=1000) - position, position, rate, **options)
    >>> bool(found.p_value < 0.01)
    True
    """
    given = {"y_pred": y_pred, "y_logging": y_logging, "y_true": y_true}
    given |= {} if impressions is None else {"impressions": impressions}
    pred, logging, relevance, *shown = _check_documents(**given)
    query = np.arange(len(pred)) if qid is None else encode(check_ids(qid, "qid", len(pred)))[0]
    if shown:
        if qid is None:
            raise ValueError("impressions= needs qid=: clicks are compared within queries.")
        # At random positions examination is one constant.
        examined = elementary_polynomials(*shown, np.ones(len(pred)), np.arange(len(pred)))
        result = cmip_by_clicks(pred, logging, relevance * shown[0], examined, *shown, query)
        return result if return_result else result.value
    if len(np.unique(relevance)) == len(relevance):
        raise ValueError(
            f"No two of the {len(relevance)} documents share a grade of y_true; expected grades "
            "with at least 2 documents, because CMIP compares documents of equal relevance. "
            "Annotate more documents, or cut a continuous relevance into a few grades."
        )
    rng = check_random_state(random_state)
    _warn_about_constants(pred, logging)
    # Sorted, so that the value does not depend on the order of the rows.
    order = np.lexsort((query, logging, pred, relevance))
    pred, logging, relevance, query = (each[order] for each in (pred, logging, relevance, query))
    grades = _Grades(relevance)
    # By the documents alone, so that all candidates of a search have the same one.
    estimator = _estimator_for(estimator, grades)
    if estimator == "published":
        value = _published_information(pred, logging, relevance, n_repeats, rng)
        error = np.nan
    else:
        grades.warn_about_small()
        value, error = _value(
            pred, logging, grades, query, estimator, n_repeats, rng, return_result
        )
    if not return_result:
        return value
    return CMIPResult(
        value=value,
        standard_error=error,
        p_value=_permutation_p_value(pred, logging, grades.code, query, n_permutations, rng),
        n_per_grade=pd.Series(grades.counts, pd.Index(grades.names, name="grade"), name="n"),
        n_together=0 if estimator == "published" else grades.n_together,
        n_left_out=0 if estimator == "published" else grades.n_left_out,
        estimator=estimator,
        n_permutations=int(n_permutations),
    )


# Clicks -------------------------------------------------------------------------------
def cmip_by_clicks(
    pred: Floats, logging: Floats, clicks: Floats, examined: Floats, shown: Floats, query: Ints
) -> CMIPResult:
    """CMIP from clicks on documents that were shown so often; ``examined`` is that of
    :func:`elementary_polynomials`."""
    whole = abs(np.stack([clicks, shown]) - np.round([clicks, shown])).max(axis=0) < 1e-6 * shown
    refuse_where(
        ~(whole & (shown > 0) & (clicks >= 0) & (clicks <= shown)),
        "clicks and impressions of a document must be whole numbers, and clicks no more than "
        "impressions; they are not",
        "expected y_true to be the click rate of these impressions, without weights.",
        clicks,
        unit="document",
    )
    _warn_about_constants(pred, logging)
    used = examined[-1] >= LEAST_EXAMINED
    used &= np.bincount(query, used)[query] > 1  # one document alone is compared with nothing
    n_queries = len(np.unique(query[used]))
    if n_queries < FEWEST_QUERIES:
        raise ValueError(
            f"Only {n_queries} queries have two documents with {FEWEST_IMPRESSIONS} randomised "
            f"impressions each (that were examined); expected at least {FEWEST_QUERIES}. "
            "Randomise more sessions, or pass grades."
        )
    value, error, p_value = information_by_clicks(
        pred[used],
        logging[used],
        np.round(clicks[used]),
        examined[:, used],
        encode(query[used])[0],
    )
    none = pd.Series(0, pd.Index([], name="grade"), int, "n")
    return CMIPResult(value, error, p_value, none, 0, int((~used).sum()), "clicks", 0)


# Values -------------------------------------------------------------------------------
def _value(pred, logging, grades, query, estimator, n_repeats, rng, with_error):
    """Mean information of the documents that are compared, and its standard error."""
    rows = grades.compared
    pred = pred[rows]
    logging = logging[rows]
    grade = grades.code_by_size[rows]
    varies = _rows_that_vary(pred, logging, grade)
    if not varies.any():
        return 0.0, 0.0
    # Those that do not vary stand last: their terms are 0.
    query = np.concatenate([query[rows][varies], query[rows][~varies]])
    grade = grade[varies]
    documents = pred[varies], logging[varies], grade, np.minimum(grade, grades.n_large)
    if estimator == "knn":
        terms = knn_information(*documents, n_repeats, rng)
        return _mean_and_error(terms, query, KNN_ERROR_FACTOR)
    terms, added = _classifier_information(*documents, n_repeats, rng)
    value, error = _mean_and_error(terms, query)
    if not with_error:
        return value, error
    # Bias is no variance between documents. Half of the correction for training is in doubt, and
    # so is all that neighbours clearly find and the classifier does not.
    near, near_error = _mean_and_error(
        knn_information(*documents, n_repeats, rng), query, KNN_ERROR_FACTOR
    )
    missed = near - value if near - value > 2 * near_error else 0.0
    return value, float(np.hypot(np.hypot(error, added.sum() / len(rows) / 2), missed))


def _mean_and_error(terms, query, factor=1.0):
    """Mean of the terms, those of further documents being 0, and its standard error."""
    terms = np.pad(terms, (0, len(query) - len(terms)))
    value, error = ratio_of_sums(terms, np.ones(len(query)), pd.factorize(query)[0])
    return value, factor * error


# Grades -------------------------------------------------------------------------------
class _Grades:
    """Which documents are compared with which, sorted by relevance: small grades together, if they
    are enough or all there is, by ranks within the grade; no document alone in its grade."""

    def __init__(self, relevance):
        self.names, self.code, self.counts = np.unique(
            relevance, return_inverse=True, return_counts=True
        )
        small = (self.counts >= 2) & (self.counts < SMALLEST_GRADE)
        large = self.counts >= SMALLEST_GRADE
        self.n_large, n_small = int(large.sum()), int(self.counts[small].sum())
        together = n_small >= SMALLEST_GRADE or not self.n_large
        self.n_together = n_small if together else 0
        # Codes of large grades come first, so that the others are one cell from `n_large` on.
        self.code_by_size = np.argsort(np.argsort(~large, kind="stable"))[self.code]
        rows = np.flatnonzero((large | (small & together))[self.code])
        self.compared = rows[np.argsort(self.code_by_size[rows], kind="stable")]
        self.n_left_out = len(self.code) - len(rows)

    def warn_about_small(self):
        fates = {
            "compared by ranks within the grade, all these grades together, which finds a part of "
            "strong dependence only": self.n_together,
            "left out of the value, being alone in the grade, or in grades that together have "
            f"fewer than {SMALLEST_GRADE}": self.n_left_out,
        }
        told = [f"{count_of(n, 'document')} {fate}" for fate, n in fates.items() if n]
        if told:
            warn_user(
                f"Grades of fewer than {SMALLEST_GRADE} of the {len(self.code)} documents: "
                f"{'; '.join(told)}. Annotate more documents, or merge grades yourself where "
                "their differences do not matter.",
                ClickDataWarning,
            )


# Permutations -------------------------------------------------------------------------
def _permutation_p_value(pred, logging, grade, query, n_permutations, rng):
    """Grades are true ones, never merged: what differs between them is no dependence."""
    order = np.lexsort((grade, query))
    pred, logging, grade, query = (each[order] for each in (pred, logging, grade, query))
    x, y = (_ranks_within(values, grade, query) for values in (pred, logging))
    # One table of all documents has more power if grades behave alike, tables by grade if not.
    # Small tables take few values, and would tie without the correlation.
    tables = [_table(x, y, grade, table) for table in (np.zeros_like(grade), grade)]

    def statistic(order):
        """Mutual information in tables, up to constants, and of normal variables."""
        counts = [np.bincount(row * _MAX_BINS + column[order]) for row, column in tables]
        correlation = np.clip(x @ y[order], -1 + 1e-9, 1 - 1e-9)
        normal = -0.5 * len(order) * np.log1p(-(correlation**2))
        return sum(xlogy(n, n).sum() for n in counts) + normal

    # Equal tables must tie in spite of the rounding of their sums.
    least = statistic(np.arange(len(grade))) * (1 - 1e-12)
    orders = progress(
        _permutations(grade, query, n_permutations, rng), "CMIP: permutation", n_permutations
    )
    n_as_large = sum(statistic(order) >= least for order in orders)
    return float((1 + n_as_large) / (1 + n_permutations))


def _permutations(grade, query, n_permutations, rng):
    """Orders of documents, sorted by query and grade: within these, and of whole queries among
    those with the same grades."""
    first = offsets_from_sorted(query)
    grades = pd.Series([part.tobytes() for part in np.split(grade, first[1:-1])], dtype=object)
    alike = pd.factorize(grades)[0]
    sorted_ = np.argsort(alike, kind="stable")
    other = np.empty_like(alike)
    cell = query * (grade.max() + 1) + grade
    place = np.arange(len(grade))
    for _ in range(n_permutations):
        within = np.lexsort((rng.random_sample(len(cell)), cell))
        other[sorted_] = np.lexsort((rng.random_sample(len(alike)), alike))
        yield within[place + (first[other] - first[:-1])[query]]


def _ranks_within(values, grade, query):
    """Ranks within the grade, of mean 0 and length 1, without the means of queries as far as these
    differ by more than chance (one minus the inverse of the F statistic)."""
    rank = _mean_ranks(values, grade) / (np.bincount(grade)[grade] + 1) - 0.5
    size = np.bincount(query)
    if n_free := len(rank) - len(size):  # some query has several documents
        mean = (np.bincount(query, rank) / size)[query]
        between = (mean**2).sum() / max(len(size) - 1, 1)
        within = ((rank - mean) ** 2).sum() / n_free
        rank = rank - max(0.0, 1 - within / max(between, TINY)) * mean
    rank = np.round(rank, 12)  # equal up to rounding
    return rank / max(np.linalg.norm(rank), TINY)


def _table(x, y, grade, table):
    """Row and column of each document by its ranks in its grade; tables have separate rows."""
    n_bins = np.clip(np.cbrt(np.bincount(table)[table] + 0.5).astype(int), 2, _MAX_BINS)
    row, column = (
        ((_mean_ranks(values, grade) - 0.5) / np.bincount(grade)[grade] * n_bins).astype(int)
        for values in (x, y)
    )
    return row + table * _MAX_BINS, column


# Checks -------------------------------------------------------------------------------
def _check_documents(**given):
    columns = [column.astype(float) for column in flat_columns(unit="document", **given)]
    for name, values in zip(given, columns, strict=True):
        refuse_where(
            ~np.isfinite(values),
            f"{name} holds NaN or infinity",
            "expected a number for every document. Leave out documents that are not annotated or "
            "were never shown.",
            values,
            unit="document",
        )
    return columns


def _warn_about_constants(pred, logging):
    for name, values, what in (
        ("y_pred", pred, "a constant copies nobody, and ranks nothing"),
        ("y_logging", logging, "the logging policy ranked all documents alike"),
    ):
        if values.min() == values.max():
            warn_user(
                f"{name} is {values[0] + 0.0:g} for all {len(values)} documents, so CMIP is 0: "
                f"{what}. Expected values that differ.",
                ClickDataWarning,
            )


def _estimator_for(estimator, grades):
    """The estimator that was asked for, or nearest neighbours where a classifier cannot learn."""
    n_documents = len(grades.code if estimator == "published" else grades.compared)
    if estimator == "knn" or n_documents >= FEWEST_FOR_CLASSIFIER:
        return estimator
    warn_user(
        f"CMIP by a classifier has only {n_documents} documents to learn from; expected at "
        f"least {FEWEST_FOR_CLASSIFIER}. This value is by estimator='knn' instead: do not "
        "compare it with values of the classifier. Annotate more documents, or ask for "
        "estimator='knn' throughout.",
        ClickDataWarning,
    )
    return "knn"


#: Number of neighbours. Measured on normal data: 3 has the same bias and more noise; 10 misses
#: strong dependence in grades of 50 documents.
_N_NEIGHBORS = 5
#: Smaller grades use fewer neighbours, because their fifth neighbour is far away.
_SMALL_GRADE, _N_NEIGHBORS_OF_SMALL = 100, 3
#: Neighbours share neighbours, so that their terms are correlated. Measured: the standard
#: deviation of the value is 1.1 to 1.5 times that of independent terms.
KNN_ERROR_FACTOR = 1.4

#: Smaller grades are compared together. Measured: of 0.51 nats in five grades of 15, neighbours
#: within the grade find 0.31, and 0.45 among the ranks of all five.
SMALLEST_GRADE = 20


def _rows_that_vary(pred, logging, grade):
    """Mask of the documents of grades in which neither variable is constant, sorted by grade: in
    the other grades the information is 0, and an estimate would be noise."""
    first = offsets_from_sorted(grade)[:-1]
    varies = [
        np.minimum.reduceat(x, first) < np.maximum.reduceat(x, first) for x in (pred, logging)
    ]
    return np.repeat(np.logical_and(*varies), np.diff(first, append=len(grade)))


# Nearest neighbours -------------------------------------------------------------------
def knn_information(
    pred: Floats, logging: Floats, grade: Ints, cell: Ints, n_repeats: int, rng: Any
) -> Floats:
    """Term of each document in the information, in nats, by neighbours in its cell (a large grade,
    or all small ones); documents are sorted by grade."""
    total = np.zeros(len(pred))
    for _ in range(n_repeats):
        # Scattered ranks are uniform in a grade of any size, so that in the common cell variables
        # are independent if they are so given the grade.
        x, y = (_normal_scores(_scattered_ranks(v, grade, rng), grade) for v in (pred, logging))
        # Rows are sorted by cell.
        for first, last in pairwise(offsets_from_sorted(cell)):
            total[first:last] += _neighbor_information(x[first:last], y[first:last])
    return total / n_repeats


def _neighbor_information(x, y):
    """Terms of the first estimator of Kraskov et al., one per document: ψ(k) + ψ(n) - ψ(n_x) -
    ψ(n_y), with the numbers of values strictly closer than the k-th neighbour (maximum norm)."""
    n = len(x)
    k = min(_N_NEIGHBORS if n >= _SMALL_GRADE else _N_NEIGHBORS_OF_SMALL, n - 1)
    points = np.column_stack([x, y])
    # Strictly closer: rounding must not include the k-th neighbour itself.
    distance = cKDTree(points).query(points, k=k + 1, p=np.inf)[0][:, -1] * (1 - 1e-10)
    closer = [_n_within(values, distance) for values in (x, y)]
    return digamma(k) + digamma(n) - digamma(closer[0]) - digamma(closer[1])


def _n_within(values, distance):
    """Number of values within the given distance of each value, itself included."""
    ordered = np.sort(values)
    above = np.searchsorted(ordered, values + distance, side="right")
    return above - np.searchsorted(ordered, values - distance, side="left")


# Ranks within grades ------------------------------------------------------------------
def _scattered_ranks(values, grade, rng):
    """Ranks from 1 within the grade, each moved by up to a half; equal values in random order."""
    # Independent noise that keeps the order does not change the information. Without it, distances
    # are those of a lattice, nearest neighbours tie, and small grades appear dependent.
    order = np.lexsort((rng.random_sample(len(values)), values, grade))
    rank = np.argsort(order) - offsets_from_counts(np.bincount(grade))[grade] + 1
    return rank + rng.random_sample(len(values)) - 0.5


def _mean_ranks(values, grade):
    """Ranks from 1 within the grade; equal values have their mean rank."""
    return pd.Series(values).groupby(grade).rank().to_numpy()


def _normal_scores(rank, grade):
    """Normal quantiles of ranks within grades, so that both variables are standard normal."""
    return ndtri((rank - 0.5) / np.bincount(grade)[grade])


#: Smallest number of documents for a classifier, which trains on three fifths of them.
FEWEST_FOR_CLASSIFIER = 200
_N_FOLDS = 5
#: Odds are clipped to [1/99, 99] for each of the copula and the trees, and twice that together:
#: a single impossible pair must not decide the value.
_LARGEST_LOG_ODDS = np.log(0.99 / 0.01)
#: Independent pairs per document, in training and in the normaliser (more pairs: less noise).
_N_TRAINING_PAIRS, _N_PAIRS = 1, 4
_MAX_TREES, _PATIENCE = 300, 20
_LARGEST_CORRELATION = 0.995
#: Weight of a document's term where its fold trained the classifier. Terms of held-out documents
#: alone are too small, those of trained ones too large; measured, by twice as much.
_TRAINED_WEIGHT = 1 / 3


# Classifier ---------------------------------------------------------------------------
def _classifier_information(pred, logging, grade, cell, n_repeats, rng):
    """Term of each document in the information, in nats, where the classifier has not seen it,
    plus a third of what it gains where it has; and the latter. Sorted by grade."""
    cell = np.unique(cell, return_inverse=True)[1]
    held_out, trained = np.zeros((2, len(pred)))
    if len(pred) < _N_FOLDS:
        # All other documents are of grades in which a variable is constant.
        return held_out, trained
    for _ in progress(range(n_repeats), "CMIP: repeat"):
        x, y = (_scores_in_cells(values, grade, cell, rng) for values in (pred, logging))
        # Each cell is divided evenly.
        fold = np.argsort(np.lexsort((rng.random_sample(len(cell)), cell))) % _N_FOLDS
        for test in progress(range(_N_FOLDS), "fold"):
            # The next fold is for early stopping, the other three are for training.
            tested, stops, seen = (fold == (test + step) % _N_FOLDS for step in range(3))
            log_odds = _fit_log_odds(x, y, cell, ~(tested | stops), stops, rng)
            for total, rows in ((held_out, tested), (trained, seen)):
                pairs = _pairs(x[rows], y[rows], cell[rows], _N_PAIRS, rng)
                total[rows] += _donsker_varadhan(log_odds, *pairs)
    added = _TRAINED_WEIGHT * (trained - held_out) / n_repeats
    return held_out / n_repeats + added, added


def _scores_in_cells(values, grade, cell, rng):
    """Normal scores in the grade; equal values have their mean rank where a cell is one grade."""
    rank = _scattered_ranks(values, grade, rng)
    alone = np.bincount(cell)[cell] == np.bincount(grade)[grade]
    return _normal_scores(np.where(alone, _mean_ranks(values, grade), rank), grade)


def _pairs(x, y, cell, n_pairs, rng):
    """Features of the documents, and of pairs with the position of another one of the cell."""
    order = np.lexsort((rng.random_sample(len(cell)), cell))
    offsets = offsets_from_sorted(cell[order])
    sizes = np.diff(offsets)
    size, start = np.repeat([sizes, offsets[:-1]], sizes, axis=1)
    place = np.arange(len(cell)) - start
    independent = []
    for step in range(n_pairs):
        other = np.empty(len(cell), dtype=np.intp)
        # A document alone in its cell of a fold is paired with itself.
        other[order] = order[start + (place + 1 + step % np.maximum(size - 1, 1)) % size]
        independent.append(_pair_features(x, y[other], cell))
    return _pair_features(x, y, cell), np.concatenate(independent)


def _pair_features(x, y, cell):
    # Trees split along axes: with sums and differences they need no staircase along a diagonal.
    return np.column_stack([x, y, x - y, x + y, x * y, cell])


def _fit_log_odds(x, y, cell, trained, stops, rng):
    """Function from features of pairs to the log odds that a pair is a document: of a Gaussian
    copula, and of trees boosted from it, if they predict the fold of early stopping better."""
    rho = _correlations(x[trained], y[trained], cell[trained], cell.max() + 1)
    start = partial(_copula_log_ratio, rho=rho)
    train, stop = (
        _pairs(x[rows], y[rows], cell[rows], _N_TRAINING_PAIRS, rng) for rows in (trained, stops)
    )
    settings = {
        "boost_from_average": False,
        "learning_rate": 0.1,
        "num_leaves": 15,
        "min_data_in_leaf": max(20, len(train[0]) // 100),
        "lambda_l2": 10.0,
        "max_bin": 63,
    }
    model = _boosted(_MAX_TREES, rng, train, stop, start, **settings)
    losses = np.logaddexp(0, -start(stop[0])), np.logaddexp(0, start(stop[1]))
    improves = model.best_score["valid_0"]["binary_logloss"] < np.concatenate(losses).mean()

    def log_odds(features):
        value = start(features)
        if improves:
            value = value + model.predict(features, raw_score=True)
        return np.clip(value, -2 * _LARGEST_LOG_ODDS, 2 * _LARGEST_LOG_ODDS)

    return log_odds


def _boosted(n_trees, rng, train, stop=None, start=None, **settings):
    """Trees that tell documents from independent pairs; early stopping where pairs are given."""
    # Imported here, so that ranking metrics do not import LightGBM.
    import lightgbm as lgb

    def labelled(pairs, reference=None):
        features = np.concatenate(pairs)
        label = np.repeat([1.0, 0.0], [len(part) for part in pairs])
        known = None if start is None else start(features)
        return lgb.Dataset(
            features, label, init_score=known, reference=reference, params={"verbose": -1}
        )

    settings |= {
        "objective": "binary",
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
        "seed": rng.randint(2**31 - 1),
        "verbose": -1,
    }
    data = labelled(train)
    held_out = {}
    if stop is not None:
        held_out["valid_sets"] = [labelled(stop, reference=data)]
        held_out["callbacks"] = [lgb.early_stopping(_PATIENCE, verbose=False)]
    return lgb.train(settings, data, num_boost_round=n_trees, **held_out)


def _donsker_varadhan(log_odds, documents, independent):
    """Terms of the bound E[log odds] - log E_independent[odds], one per document."""
    # The last term, of mean 0, is the first-order effect of the noise of the normaliser; it enters
    # the standard error.
    odds = np.exp(log_odds(independent)).reshape(-1, len(documents)).mean(axis=0)
    return log_odds(documents) - np.log(odds.mean()) - (odds / odds.mean() - 1)


# Copula -------------------------------------------------------------------------------
def _copula_log_ratio(features, rho):
    """log of the density of correlated normal scores over that of independent ones, by cell."""
    x = features[:, 0]
    y = features[:, 1]
    rho = rho[features[:, 5].astype(int)]
    square = rho**2
    exponent = (square * (x**2 + y**2) - 2 * rho * x * y) / (2 * (1 - square))
    return np.clip(
        -0.5 * np.log1p(-square) - exponent, -2 * _LARGEST_LOG_ODDS, 2 * _LARGEST_LOG_ODDS
    )


def _correlations(x, y, cell, n_cells):
    """Correlation in each cell, shrunk to that of all: Fisher's z of n documents has the variance
    1 / (n - 3), and the variance between cells is that of DerSimonian and Laird."""
    xy, xx, yy = (np.bincount(cell, values, n_cells) for values in (x * y, x * x, y * y))
    size = np.sqrt(xx * yy)
    rho = np.divide(xy, size, out=np.zeros(n_cells), where=size > 0)
    z = np.arctanh(np.clip(rho, -_LARGEST_CORRELATION, _LARGEST_CORRELATION))
    weight = np.maximum(np.bincount(cell, minlength=n_cells) - 3.0, 0.0)
    if not weight.any():
        return np.zeros(n_cells)
    pooled = weight @ z / weight.sum()
    excess = weight @ (z - pooled) ** 2 - (np.count_nonzero(weight) - 1)
    scale = weight.sum() - weight @ weight / weight.sum()
    between = max(excess / scale, 0.0) if scale > 0 else 0.0
    own = between * weight / (1 + between * weight)
    return np.tanh(own * z + (1 - own) * pooled)


# As published -------------------------------------------------------------------------
def _published_information(pred, logging, relevance, n_repeats, rng):
    """The estimate of the CMIP paper, section 4.3, in nats."""
    values = []
    for _ in range(n_repeats):
        first, second = np.array_split(
            rng.permutation(np.column_stack([pred, logging, relevance])), 2
        )
        first[:, 1] = second[_with_nearest_grade(first[:, 2], second[:, 2], rng), 1]
        # The order is random: every other row trains.
        model = _boosted(100, rng, (second[::2], first[::2]))
        served, exchanged = (
            model.predict(rows[1::2], raw_score=True).clip(-_LARGEST_LOG_ODDS, _LARGEST_LOG_ODDS)
            for rows in (second, first)  # whose lengths may differ by one
        )
        values.append(served.mean() - np.log(np.exp(exchanged).mean()))
    return float(np.mean(values))


def _with_nearest_grade(grades, others, rng):
    """Index of a random document of the others that has the nearest grade, for each grade."""
    values, counts = np.unique(others, return_counts=True)
    nearest = abs(grades[:, None] - values).argmin(axis=1)
    first = np.cumsum(counts) - counts
    draw = (rng.random_sample(len(grades)) * counts[nearest]).astype(np.intp)
    return np.argsort(others, kind="stable")[first[nearest] + draw]
