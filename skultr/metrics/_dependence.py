"""CMIP: how much the scores of a model copy the ranker that its clicks were logged under."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Literal, TypeAlias, overload

import numpy as np
import pandas as pd
from scipy.special import xlogy
from sklearn.utils import check_random_state

from .._base._progress import progress
from .._base._sklearn import Interval, StrOptions, validate_params
from .._base._typing import Column, Floats, Ints, RandomState
from .._log._faults import count_of
from .._log._segments import TINY, encode, offsets_from_sorted
from ..exceptions import ClickDataWarning, warn_user
from ._click_dependence import elementary_polynomials, information_by_clicks
from ._information import (
    classifier_information,
    knn_information,
    mean_ranks,
    published_information,
    shuffled_within,
)
from ._query_means import ratio_of_sums
from ._ranking import check_ids, flat_columns, refuse_where
from ._thresholds import (
    FEWEST_CLUSTERS,
    FEWEST_FOR_CLASSIFIER,
    FEWEST_IMPRESSIONS,
    LEAST_EXAMINED,
    SIGNIFICANT,
    SMALLEST_GRADE,
)

CMIPEstimator: TypeAlias = Literal["classifier", "knn", "published"]

CMIP_CONSTRAINTS = {
    "estimator": [StrOptions({"classifier", "knn", "published"})],
    "n_repeats": [Interval(Integral, 1, None, closed="left")],
    "random_state": ["random_state"],
}


@dataclass(frozen=True, eq=False)
class CMIPResult:
    """What :func:`cmip_score` returns with ``return_result=True``.

    Parameters
    ----------
    value : float
        CMIP in nats; 0 is debiased.
    standard_error : float
        Standard error of ``value``, from the variance between queries (without ``qid``, between
        documents). For ``"classifier"`` it includes half of the correction for training, and the
        part of its distance to ``"knn"`` that the error of ``"knn"`` does not explain. NaN for a
        single query, and for ``"published"``, whose bias is larger than its noise.
    p_value : float
        Small if the scores depend on the logging policy beyond relevance: the share of
        permutations of ``y_logging`` within queries and grades (without ``qid``, within grades)
        whose dependence on ``y_pred`` is at least as large. From clicks, that of a t test by
        query.
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
        if self.p_value <= SIGNIFICANT.value:
            verdict = "The scores depend on the logging policy beyond relevance."
        else:
            verdict = "No dependence on the logging policy beyond relevance was found."
        test = f"{self.n_permutations} permutations" if self.n_permutations else "t test by query"
        lines = [
            f"CMIP {self.value:.3f} nats (standard error {self.standard_error:.3f}, "
            f"{self.estimator})",
            f"p-value {self.p_value:.3g} ({test}). {verdict}",
        ]
        counts = ", ".join(f"{grade:g}: {n}" for grade, n in self.n_per_grade.items())
        # What there is none of is not told.
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
    r"""Measure how much scores copy the logging policy beyond what relevance explains (CMIP).

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
          enter the bound of Donsker and Varadhan. Unlike there, it starts from a normal
          distribution (a Gaussian copula), and its trees are cross-fitted and stop early (see
          Notes). It has the least noise near 0. Of dependence that is no correlation it misses a
          part: of a parabola of 0.80 nats, 0.27 with 500 documents and 0.12 with 2,000.
        - ``"knn"``: distances to the nearest neighbours (Kraskov et al. [2]_; given a discrete
          variable, Frenzel and Pompe's [3]_). It needs no training, is faster, and has little
          bias from a hundred documents per grade; in smaller grades it misses a part of strong
          dependence. Near 0 it is noisier.
        - ``"published"``: section 4.3 of the paper to the letter, to compare with its figures. One
          half of the documents stands against the other with exchanged ``y_logging``; LightGBM as
          it comes is trained on one half of both and tested on the other, with P in [0.01, 0.99].
          Its bias is large: with 5,000 documents it finds -0.28 of 0, and 0.15 of 0.51.

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
        Query of each document. It changes the p-value and the standard error, not the value. Pass
        it if documents belong to queries: without it they count as independent, and the p-value
        takes for dependence what the scores of whole queries have in common. (The value does so
        in any case: in 30 queries of 10 documents that truly have 0 it is 0.05 on average.)
        Needed with ``impressions``.
    impressions : array-like of shape (n_documents,), default=None
        Number of times that each document was shown in lists whose order was random. ``y_true`` is
        then the click rate there, so that nobody needs to annotate (see Notes), and ``y_logging``
        is from the other lists. ``estimator``, ``n_repeats`` and ``n_permutations`` are not used.
        :class:`CMIPScorer` does this for the rows of a log, and for orders that are not random
        where examination is known.
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
        documents share a grade. With ``impressions``, if

        - ``qid`` is missing;
        - a click rate is not one of so many impressions;
        - fewer than ten queries have two documents with six impressions each;
        - clicks are too few to show how relevance varies.

    Warns
    -----
    ClickDataWarning
        - If grades have fewer than 20 documents (not with ``"published"``).
        - If ``y_pred`` or ``y_logging`` is constant. CMIP is then 0, and so are all estimates but
          ``"published"``, which has its bias for constants, too.
        - If there are too few documents for a classifier.

    See Also
    --------
    CMIPScorer : The same as a scorer, for searches.

    Notes
    -----
    CMIP is no measure of quality: random scores have CMIP 0. Use it together with nDCG and
    perplexity, as :class:`~skultr.model_selection.OffPolicySelection` does.

    **The p-value** permutes ``y_logging`` within query and grade, and whole queries among those
    with as many documents of each grade. Without ``qid`` it permutes within the grades of
    ``y_true``, however small. It assumes no more than that what is permuted is exchangeable: the
    documents of a query and grade, and queries of the same grades. Dependence of whole queries
    alone (all documents of some queries score higher and are logged higher) is not found.

    The statistic does not depend on ``estimator``, and is fast to permute. It takes the ranks of
    both variables within their grade, less the means of queries as far as these differ by more
    than chance, and adds up three estimates of their mutual information: in a table of at most
    8 × 8 bins of equal counts, in one such table per grade, and that of a normal distribution of
    the same correlation. It was measured over 200 logs of 300 documents each (4, 10 and 30 per
    query, 2 and 5 grades) in which both scores vary twice as much between queries as within.
    Without dependence 0.03 to 0.08 of the p-values are at most 0.05 (0.24 to 0.92 without
    ``qid``); at a correlation of 0.25 within queries and grades, 0.65 to 0.78 are.

    **Small grades.** Estimators compare ranks within the grade. The ranks of all grades with fewer
    than 20 documents are compared together: they are independent of each other if scores and
    positions are so within each grade, whatever differs between grades. Strong dependence in small
    grades is found in part: 0.45 of 0.51 nats in five grades of 15, 0.31 in five grades of 5.
    Documents alone in their grade are left out, and so are small grades that together have fewer
    than 20 documents. ``n_together`` and ``n_left_out`` of the result count them.

    **"classifier"** boosts trees from the log density ratio of a Gaussian copula, with one
    correlation per grade, shrunk to that of all as far as grades agree. Each document's term is
    that of the classifier which has not seen it, plus a third of what it gains where it was used
    in training. Over 100 draws of 500 documents with correlations of 0, 0.3, 0.6 and 0.9 by grade,
    the bias is −0.01 of 0.28, and 93 intervals of 1.96 standard errors hold the truth.

    **Clicks in the place of grades**, which the paper leaves for later. Where the order is random,
    the click rate :math:`c/n` of a document has the mean :math:`r`, up to one factor for all, and
    tells no more than :math:`r` about scores and positions. But it is noisy. Among documents of
    equal click rates those that production ranks higher *are* more relevant, and the scores of an
    unbiased model follow them: clicks must not be grades. They are moments here:
    :math:`c(c-1)\cdots(c-m+1) / (n(n-1)\cdots(n-m+1))` has the mean :math:`r^m`. With these, the
    partial correlation :math:`\rho` of scores and positions (both as the monotone click rates that
    go with them), given :math:`r, r^2` (and :math:`r^3` where clicks show that much) and the
    query, is estimated as in a regression with errors in the variables, and
    :math:`\mathrm{CMIP} = -\frac12 \log(1 - \rho^2)`. Only the product of what a polynomial leaves
    of the mean score and of the mean position at :math:`r` is an error. Standard errors are those
    of a jackknife over queries. The value is that of a normal distribution of click rates: do not
    compare it with values from grades, which count ranks.

    It was measured over 200 logs each, with a hundred queries of ten documents. The table has the
    share of p-values of at most 0.05: of unbiased scores (log relevance and noise), of scores that
    copy three tenths of the log examination, and of click rates of production's lists.

    ==============================  ========  ======  ===========
    Randomised impressions          Unbiased  Copies  Click rates
    ==============================  ========  ======  ===========
    20 (a third of logs refused)    0.04      0.33    0.61
    20, in 400 queries              0.02      0.64    0.93
    50                              0.01      0.65    0.99
    200 (350 logs)                  0.06      1       1
    True grades                     0.07      1       1
    ==============================  ========  ======  ===========

    The level does not hold where clicks depend on other documents: of users who stop when
    satisfied (DBN), 0.08 at 50 impressions and 0.13 at 200. And scores that are right only
    relative to their query count as dependent (0.15 at 50 impressions, 0.27 at 200), because
    positions are relative, too.

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
    if impressions is not None:
        given["impressions"] = impressions
    columns = _check_documents(**given)
    query = _queries_of(qid, len(columns[0]))
    if impressions is not None:
        if qid is None:
            raise ValueError("impressions= needs qid=: clicks are compared within queries.")
        result = _by_random_lists(*columns, query)
        return result if return_result else result.value
    pred, logging, relevance = columns
    _refuse_grades_of_one(relevance)
    rng = check_random_state(random_state)
    _warn_about_constants(pred, logging)
    # Sorted, so that the value does not depend on the order of the rows.
    order = np.lexsort((query, logging, pred, relevance))
    pred, logging, relevance, query = (each[order] for each in (pred, logging, relevance, query))
    grades = _Grades(relevance)
    # By the documents alone, so that all candidates of a search have the same one.
    estimator = _estimator_for(estimator, grades)
    if estimator == "published":
        value = published_information(pred, logging, relevance, n_repeats, rng)
        error = np.nan
    else:
        grades.warn_about_small()
        value, error = _value(
            pred, logging, grades, query, estimator, n_repeats, rng, return_result
        )
    if not return_result:
        return value
    # The published estimator takes all documents as they are.
    by_grade = estimator != "published"
    return CMIPResult(
        value=value,
        standard_error=error,
        p_value=_permutation_p_value(pred, logging, grades.code, query, n_permutations, rng),
        n_per_grade=pd.Series(grades.counts, pd.Index(grades.names, name="grade"), name="n"),
        n_together=grades.n_together if by_grade else 0,
        n_left_out=grades.n_left_out if by_grade else 0,
        estimator=estimator,
        n_permutations=int(n_permutations),
    )


# Checks -------------------------------------------------------------------------------
def _queries_of(qid, n_documents):
    """The code of each document's query; without queries documents count as independent."""
    if qid is None:
        return np.arange(n_documents)
    codes, _ = encode(check_ids(qid, "qid", n_documents))
    return codes


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


def _refuse_grades_of_one(relevance):
    n_documents = len(relevance)
    if len(np.unique(relevance)) == n_documents:
        raise ValueError(
            f"No two of the {n_documents} documents share a grade of y_true; expected grades "
            "with at least 2 documents, because CMIP compares documents of equal relevance. "
            "Annotate more documents, or cut a continuous relevance into a few grades."
        )


def _warn_about_constants(pred, logging):
    for name, values, what in (
        ("y_pred", pred, "a constant copies nobody, and ranks nothing"),
        ("y_logging", logging, "the logging policy ranked all documents alike"),
    ):
        if values.min() == values.max():
            # Adding 0 turns -0 into 0.
            warn_user(
                f"{name} is {values[0] + 0.0:g} for all {len(values)} documents, so CMIP is 0: "
                f"{what}. Expected values that differ.",
                ClickDataWarning,
            )


def _estimator_for(estimator, grades):
    """The estimator that was asked for, or nearest neighbours where a classifier cannot learn."""
    # The published estimator takes grades of any size.
    used = grades.code if estimator == "published" else grades.compared
    n_documents = len(used)
    if estimator == "knn" or n_documents >= FEWEST_FOR_CLASSIFIER.value:
        return estimator
    warn_user(
        f"CMIP by a classifier has only {n_documents} documents to learn from; expected at "
        f"least {FEWEST_FOR_CLASSIFIER.value}. This value is by estimator='knn' instead: do not "
        "compare it with values of the classifier. Annotate more documents, or ask for "
        "estimator='knn' throughout.",
        ClickDataWarning,
    )
    return "knn"


# Clicks -------------------------------------------------------------------------------
def _by_random_lists(pred, logging, rate, shown, query):
    """CMIP from click rates on lists in random order."""
    # At random positions examination is one constant.
    examination = np.ones(len(pred))
    examined = elementary_polynomials(shown, examination, np.arange(len(pred)))
    return cmip_by_clicks(pred, logging, rate * shown, examined, shown, query)


def cmip_by_clicks(
    pred: Floats, logging: Floats, clicks: Floats, examined: Floats, shown: Floats, query: Ints
) -> CMIPResult:
    """CMIP from clicks on documents that were shown so often; ``examined`` is that of
    :func:`elementary_polynomials`."""
    counts = np.stack([clicks, shown])
    # Rates times impressions are whole up to rounding.
    off = abs(counts - np.round(counts)).max(axis=0)
    whole = off < 1e-6 * shown
    refuse_where(
        ~(whole & (shown > 0) & (clicks >= 0) & (clicks <= shown)),
        "clicks and impressions of a document must be whole numbers, and clicks no more than "
        "impressions; they are not",
        "expected y_true to be the click rate of these impressions, without weights.",
        clicks,
        unit="document",
    )
    _warn_about_constants(pred, logging)
    used = examined[-1] >= LEAST_EXAMINED.value
    # One document alone in its query is compared with nothing.
    n_in_query = np.bincount(query, used)[query]
    used &= n_in_query > 1
    n_queries = len(np.unique(query[used]))
    if n_queries < FEWEST_CLUSTERS.value:
        raise ValueError(
            f"Only {n_queries} queries have two documents with {FEWEST_IMPRESSIONS.value} "
            "randomised impressions each (that were examined); expected at least "
            f"{FEWEST_CLUSTERS.value}. Randomise more sessions, or pass grades."
        )
    query_code, _ = encode(query[used])
    value, error, p_value = information_by_clicks(
        pred[used], logging[used], np.round(clicks[used]), examined[:, used], query_code
    )
    return CMIPResult(
        value=value,
        standard_error=error,
        p_value=p_value,
        n_per_grade=pd.Series(0, pd.Index([], name="grade"), int, "n"),
        n_together=0,
        n_left_out=int((~used).sum()),
        estimator="clicks",
        n_permutations=0,
    )


# Grades -------------------------------------------------------------------------------
class _Grades:
    """Which documents are compared with which, sorted by relevance: small grades together, if they
    are enough or all there is, by ranks within the grade; no document alone in its grade."""

    def __init__(self, relevance):
        self.names, self.code, self.counts = np.unique(
            relevance, return_inverse=True, return_counts=True
        )
        large = self.counts >= SMALLEST_GRADE.value
        small = (self.counts >= 2) & ~large
        self.n_large = int(large.sum())
        n_small = int(self.counts[small].sum())
        together = n_small >= SMALLEST_GRADE.value or not self.n_large
        self.n_together = n_small if together else 0
        # Codes of large grades come first, so that the others are one cell from `n_large` on.
        by_size = np.argsort(~large, kind="stable")
        self.code_by_size = np.argsort(by_size)[self.code]
        is_compared = large | small if together else large
        # Sorted by cell, as the estimators expect.
        rows = np.flatnonzero(is_compared[self.code])
        self.compared = rows[np.argsort(self.code_by_size[rows], kind="stable")]
        self.n_left_out = len(self.code) - len(rows)

    def warn_about_small(self):
        fates = {
            "compared by ranks within the grade, all these grades together, which finds a part of "
            "strong dependence only": self.n_together,
            "left out of the value, being alone in the grade, or in grades that together have "
            f"fewer than {SMALLEST_GRADE.value}": self.n_left_out,
        }
        told = [f"{count_of(n, 'document')} {fate}" for fate, n in fates.items() if n]
        if told:
            warn_user(
                f"Grades of fewer than {SMALLEST_GRADE.value} of the {len(self.code)} documents: "
                f"{'; '.join(told)}. Annotate more documents, or merge grades yourself where "
                "their differences do not matter.",
                ClickDataWarning,
            )


# Values -------------------------------------------------------------------------------
#: Neighbours share neighbours, so that their terms are correlated. Measured: the standard
#: deviation of the value is 1.1 to 1.5 times that of independent terms.
KNN_ERROR_FACTOR = 1.4


def _value(pred, logging, grades, query, estimator, n_repeats, rng, with_error):
    """Mean information of the documents that are compared, and its standard error."""
    rows = grades.compared
    pred = pred[rows]
    logging = logging[rows]
    grade = grades.code_by_size[rows]
    query = query[rows]
    varies = _rows_that_vary(pred, logging, grade)
    if not varies.any():
        return 0.0, 0.0
    # Those that do not vary stand last: their terms are 0.
    query = np.concatenate([query[varies], query[~varies]])
    grade = grade[varies]
    # All small grades are one cell, behind the large ones.
    cell = np.minimum(grade, grades.n_large)
    documents = (pred[varies], logging[varies], grade, cell)
    if estimator == "knn":
        terms = knn_information(*documents, n_repeats, rng)
        return _mean_and_error(terms, query, KNN_ERROR_FACTOR)
    terms, added = classifier_information(*documents, n_repeats, rng)
    value, error = _mean_and_error(terms, query)
    if not with_error:
        return value, error
    # Bias is no variance between documents. Half of the correction for training is in doubt, and
    # so is all that neighbours clearly find and the classifier does not.
    doubt = added.sum() / len(rows) / 2
    near_terms = knn_information(*documents, n_repeats, rng)
    near, near_error = _mean_and_error(near_terms, query, KNN_ERROR_FACTOR)
    missed = near - value
    if not missed > 2 * near_error:
        missed = 0.0
    error = np.hypot(np.hypot(error, doubt), missed)
    return value, float(error)


def _mean_and_error(terms, query, factor=1.0):
    """Mean of the terms, those of further documents being 0, and its standard error."""
    n_further = len(query) - len(terms)
    terms = np.pad(terms, (0, n_further))
    # The error is that of means of queries.
    query_code, _ = pd.factorize(query)
    value, error = ratio_of_sums(terms, np.ones(len(query)), query_code)
    return value, factor * error


def _rows_that_vary(pred, logging, grade):
    """Mask of the documents of grades in which neither variable is constant, sorted by grade: in
    the other grades the information is 0, and an estimate would be noise."""
    # Smallest and largest value of each grade.
    first = offsets_from_sorted(grade)[:-1]
    varies = np.ones(len(first), dtype=bool)
    for values in (pred, logging):
        smallest = np.minimum.reduceat(values, first)
        largest = np.maximum.reduceat(values, first)
        varies &= smallest < largest
    n_in_grade = np.diff(first, append=len(grade))
    return np.repeat(varies, n_in_grade)


# Permutations -------------------------------------------------------------------------
#: Largest number of rows, and of columns, of a table of the permutation test.
_MAX_BINS = 8


def _permutation_p_value(pred, logging, grade, query, n_permutations, rng):
    """Grades are true ones, never merged: what differs between them is no dependence."""
    # Documents of one query and grade stand together.
    order = np.lexsort((grade, query))
    pred, logging, grade, query = (each[order] for each in (pred, logging, grade, query))
    # A statistic that is fast to permute: ranks are computed once.
    x = _ranks_within(pred, grade, query)
    y = _ranks_within(logging, grade, query)
    # One table of all documents has more power if grades behave alike, tables by grade if not.
    # Small tables take few values, and would tie without the correlation.
    tables = [_table(x, y, grade, table) for table in (np.zeros_like(grade), grade)]

    def statistic(order):
        """Mutual information in tables, up to constants, and of normal variables."""
        information = 0.0
        for row, column in tables:
            counts = np.bincount(row * _MAX_BINS + column[order])
            information += xlogy(counts, counts).sum()
        # Of a perfect correlation the logarithm would be infinite.
        correlation = np.clip(x @ y[order], -1 + 1e-9, 1 - 1e-9)
        normal = -0.5 * len(order) * np.log1p(-(correlation**2))
        return information + normal

    # Equal tables must tie in spite of the rounding of their sums.
    observed = statistic(np.arange(len(grade)))
    least = observed * (1 - 1e-12)
    orders = _permutations(grade, query, n_permutations, rng)
    n_as_large = 0
    for order in progress(orders, "CMIP: permutation", n_permutations):
        if statistic(order) >= least:
            n_as_large += 1
    return float((1 + n_as_large) / (1 + n_permutations))


def _permutations(grade, query, n_permutations, rng):
    """Orders of documents, sorted by query and grade: within these, and of whole queries among
    those with the same grades."""
    first = offsets_from_sorted(query)
    # Queries are alike if their documents have the same grades.
    grades = [part.tobytes() for part in np.split(grade, first[1:-1])]
    alike, _ = pd.factorize(pd.Series(grades, dtype=object))
    sorted_queries = np.argsort(alike, kind="stable")
    cell = query * (grade.max() + 1) + grade
    place = np.arange(len(grade))
    other = np.empty_like(alike)
    for _ in range(n_permutations):
        within = shuffled_within(cell, rng)
        other[sorted_queries] = shuffled_within(alike, rng)
        moved = first[other] - first[:-1]
        yield within[place + moved[query]]


def _ranks_within(values, grade, query):
    """Ranks within the grade, of mean 0 and length 1, without the means of queries as far as these
    differ by more than chance (one minus the inverse of the F statistic)."""
    n_in_grade = np.bincount(grade)[grade]
    rank = mean_ranks(values, grade) / (n_in_grade + 1) - 0.5
    size = np.bincount(query)
    n_free = len(rank) - len(size)
    if n_free:  # some query has several documents
        mean = (np.bincount(query, rank) / size)[query]
        between = (mean**2).sum() / max(len(size) - 1, 1)
        within = ((rank - mean) ** 2).sum() / n_free
        beyond_chance = max(0.0, 1 - within / max(between, TINY))
        rank = rank - beyond_chance * mean
    # Ranks that are equal up to rounding must tie.
    rank = np.round(rank, 12)
    return rank / max(np.linalg.norm(rank), TINY)


def _table(x, y, grade, table):
    """Row and column of each document by its ranks in its grade; tables have separate rows."""
    # The cube root of the number of documents, as many as 8.
    n_in_table = np.bincount(table)[table]
    n_bins = np.cbrt(n_in_table + 0.5).astype(int)
    n_bins = np.clip(n_bins, 2, _MAX_BINS)
    n_in_grade = np.bincount(grade)[grade]

    def bin_of(values):
        share_below = (mean_ranks(values, grade) - 0.5) / n_in_grade
        return (share_below * n_bins).astype(int)

    return bin_of(x) + table * _MAX_BINS, bin_of(y)
