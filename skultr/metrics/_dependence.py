"""CMIP: how much a model's scores copy the ranker that collected its clicks."""

from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree
from scipy.special import digamma, ndtri, xlogy
from sklearn.utils import check_random_state

from .._constraints import Interval, StrOptions, validate_params
from .._segments import encode, offsets_from_counts, offsets_from_sorted
from ..exceptions import ClickDataWarning, warn_user
from ._rows import as_numbers

__all__ = ["CMIPResult", "cmip_score"]

#: Neighbours of a document. Measured on normal data: 3 has the same bias and more noise; 10 loses
#: strong dependence in grades of 50 documents.
_N_NEIGHBORS = 5
_N_FOLDS = 5
#: Odds above 99 (or below 1/99) count as 99: a single impossible pair must not decide the value.
_LARGEST_LOG_ODDS = np.log(0.99 / 0.01)
#: Independent pairs a document, in training and in the normaliser: the second has less noise.
_N_TRAINING_PAIRS, _N_PAIRS = 1, 4
_MAX_TREES, _PATIENCE = 300, 20
#: Fewer documents than these in training teach trees nothing.
_FEWEST_TO_TRAIN = 40
_FEWEST_FOR_CLASSIFIER = 200
#: Cells a side of the table of the permutation test, at most.
_MAX_BINS = 8


@dataclass(frozen=True, eq=False)
class CMIPResult:
    """What :func:`cmip_score` returns with ``return_result=True``.

    Parameters
    ----------
    value : float
        CMIP in nats; 0 is debiased.
    standard_error : float
        Of ``value``, by how documents differ. The bias of the estimator is not in it.
    p_value : float
        Share of permutations of ``y_logging`` within grades that depend on ``y_pred`` at least
        as much; small if the scores depend on the logging policy beyond relevance.
    n_per_grade : Series of int, indexed by ``grade``
        Documents that were used.
    estimator : str
    n_permutations : int
    """

    value: float
    standard_error: float
    p_value: float
    n_per_grade: pd.Series
    estimator: str
    n_permutations: int

    def summary(self):
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
    y_pred,
    y_logging,
    y_true,
    *,
    estimator="classifier",
    n_repeats=5,
    n_permutations=199,
    random_state=None,
    return_result=False,
):
    r"""Conditional mutual information of scores with the logging policy, given relevance.

    .. math:: \mathrm{CMIP} = I(\tilde R; R_l \mid R)

    with :math:`\tilde R` the score of a model, :math:`R_l` where the logging policy ranked the
    document on average, and :math:`R` its annotated relevance. It is 0 if the model is
    *debiased*: among documents of one grade, where the logging policy put them then says nothing
    about their scores. A model that learned clicks without correcting for position copies the
    logging policy and has a large CMIP, however good its nDCG is.

    Only the order of scores within a grade counts, so any increasing function of ``y_pred`` or
    ``y_logging`` (and a change of sign) has the same CMIP.

    Parameters
    ----------
    y_pred : array-like of shape (n_documents,)
        Scores of the model, one a document.
    y_logging : array-like of shape (n_documents,)
        Mean logged position of the document, or a score of the logging policy.
    y_true : array-like of shape (n_documents,)
        Grades of relevance. A grade with one document is left out, with a warning.
    estimator : {"classifier", "knn"}, default="classifier"
        How the information is estimated:

        - ``"classifier"``: as in the paper, LightGBM tells the documents from pairs of one
          document's score with the ``y_logging`` of another of its grade; the odds on held-out
          documents go into the bound of Donsker and Varadhan. It is a lower bound: it errs
          towards 0, which it finds exactly where there is nothing. It needs some hundred
          documents.
        - ``"knn"``: distances to the nearest neighbours (Kraskov et al. [2]_; given a discrete
          variable, Frenzel and Pompe's [3]_). No training, faster, and little bias from a
          hundred documents on; around 0 it has more noise.
    n_repeats : int, default=5
        Splits that are averaged (``"classifier"``), or orders of equal values (``"knn"``; one
        is enough without them).
    n_permutations : int, default=199
        Permutations of the test; read only with ``return_result``.
    random_state : int, RandomState instance or None, default=None
        Seed of splits, ties and permutations.
    return_result : bool, default=False
        Whether to return the standard error and the p-value too.

    Returns
    -------
    score : float or CMIPResult
        In nats, the mean over documents, so that a grade weighs as much as it has documents.
        Small negative values are noise.

    Raises
    ------
    ValueError
        If an input is not flat, of another length, empty, holds NaN or infinity, or if no two
        documents share a grade.

    Warns
    -----
    ClickDataWarning
        If grades are left out, if ``y_pred`` or ``y_logging`` is constant (CMIP is then 0), or
        if there are too few documents for the classifier.

    See Also
    --------
    CMIPScorer : The same as a scorer, for searches.

    Notes
    -----
    CMIP says nothing about quality: random scores have CMIP 0. Read it beside nDCG and
    perplexity, as :class:`~skultr.model_selection.OffPolicySelection` does.

    The p-value uses a statistic that is fast to permute: the mutual information of a table of
    both variables' ranks within their grade, cut into at most 8 × 8 bins of equal counts, plus
    that of such tables of each grade. It holds at any number of documents, whichever
    ``estimator`` gives the value.

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
    grade, grades = encode(relevance)
    counts = np.bincount(grade)
    kept = _rows_of_shared_grades(grade, counts)
    # By grade, and then in an order of their own: rows in another order have the same value.
    kept = kept[np.lexsort((logging[kept], pred[kept], grade[kept]))]
    pred, logging, grade = pred[kept], logging[kept], grade[kept]
    _warn_about_constants(pred, logging)
    if estimator == "classifier":
        _warn_about_few_documents(len(pred))
    information = _information_of_documents(pred, logging, grade, estimator, n_repeats, rng)
    value = float(information.mean())
    if not return_result:
        return value
    return CMIPResult(
        value=value,
        standard_error=float(information.std(ddof=1) / np.sqrt(len(information))),
        p_value=_permutation_p_value(pred, logging, grade, n_permutations, rng),
        n_per_grade=pd.Series(counts, pd.Index(grades, name="grade"), name="n")[counts > 1],
        estimator=estimator,
        n_permutations=int(n_permutations),
    )


def _information_of_documents(pred, logging, grade, estimator, n_repeats, rng):
    """What each document adds to the information, of documents sorted by grade."""
    information = np.zeros(len(pred))
    # Nothing depends on a constant; estimators would only find their own noise there.
    varies = np.concatenate(
        [
            np.full(part.stop - part.start, np.ptp(pred[part]) > 0 and np.ptp(logging[part]) > 0)
            for part in _grade_slices(grade)
        ]
    )
    if varies.any():
        estimate = {"classifier": _classifier_information, "knn": _knn_information}[estimator]
        parts = (pred[varies], logging[varies], grade[varies])
        information[varies] = estimate(*parts, n_repeats, rng)
    return information


# --------------------------------------------------------------------------------------
# Nearest neighbours
# --------------------------------------------------------------------------------------
def _knn_information(pred, logging, grade, n_repeats, rng):
    tied = any(
        len(np.unique(values[part])) < part.stop - part.start
        for part in _grade_slices(grade)
        for values in (pred, logging)
    )
    n_repeats = n_repeats if tied else 1
    total = np.zeros(len(pred))
    for _ in range(n_repeats):
        # Noise that only orders equal values, independent of all else, changes no information,
        # and distances need values that differ.
        x, y = (
            _normal_scores(_ordinal_ranks(values, grade, rng), grade) for values in (pred, logging)
        )
        for part in _grade_slices(grade):
            total[part] += _neighbor_information(x[part], y[part])
    return total / n_repeats


def _neighbor_information(x, y):
    """Terms of the first estimator of Kraskov et al., one a document."""
    n = len(x)
    k = min(_N_NEIGHBORS, n - 1)
    points = np.column_stack([x, y])
    distance = cKDTree(points).query(points, k=k + 1, p=np.inf)[0][:, -1]
    # Strictly closer: rounding must not let the k-th neighbour itself in.
    distance *= 1 - 1e-10
    closer = [_n_within(values, distance) for values in (x, y)]
    return digamma(k) + digamma(n) - digamma(closer[0]) - digamma(closer[1])


def _n_within(values, distance):
    """Number of values within a distance of each, itself among them."""
    ordered = np.sort(values)
    above = np.searchsorted(ordered, values + distance, side="right")
    return above - np.searchsorted(ordered, values - distance, side="left")


# --------------------------------------------------------------------------------------
# Classifier
# --------------------------------------------------------------------------------------
def _classifier_information(pred, logging, grade, n_repeats, rng):
    x, y = (_normal_scores(_mean_ranks(values, grade), grade) for values in (pred, logging))
    total = np.zeros(len(pred))
    for _ in range(n_repeats):
        fold = _folds(grade, rng)
        for held_out in range(_N_FOLDS):
            # The next fold stops the training, the others train.
            stops = fold == (held_out + 1) % _N_FOLDS
            tested = fold == held_out
            trained = ~(stops | tested)
            if min(trained.sum(), stops.sum()) < _FEWEST_TO_TRAIN or not tested.any():
                continue
            pairs = [
                _pairs(x[rows], y[rows], grade[rows], n_pairs, rng)
                for rows, n_pairs in (
                    (trained, _N_TRAINING_PAIRS),
                    (stops, _N_TRAINING_PAIRS),
                    (tested, _N_PAIRS),
                )
            ]
            log_odds = _fit_log_odds(pairs[0], pairs[1], seed=rng.randint(2**31 - 1))
            total[tested] += _donsker_varadhan(log_odds, *pairs[2])
    return total / n_repeats


def _folds(grade, rng):
    """Fold of each document, every fold with at least two of a grade or none."""
    size = np.bincount(grade)[grade]
    order = np.lexsort((rng.random_sample(len(grade)), grade))
    fold = np.empty(len(grade), dtype=np.intp)
    fold[order] = np.arange(len(grade)) % _N_FOLDS
    # Too small to split: all documents of the grade stay together.
    return np.where(size < 2 * _N_FOLDS, grade % _N_FOLDS, fold)


def _pairs(x, y, grade, n_pairs, rng):
    """Features of the documents, and of pairs of one's score with another's logged position.

    The other document is of the same grade and never the same one.
    """
    order = np.lexsort((rng.random_sample(len(grade)), grade))
    offsets = offsets_from_sorted(grade[order])
    size = np.repeat(np.diff(offsets), np.diff(offsets))
    start = np.repeat(offsets[:-1], np.diff(offsets))
    place = np.arange(len(grade)) - start
    independent = []
    for step in range(n_pairs):
        other = np.empty(len(grade), dtype=np.intp)
        other[order] = order[start + (place + 1 + step % (size - 1)) % size]
        independent.append(_pair_features(x, y[other], grade))
    return _pair_features(x, y, grade), np.concatenate(independent)


def _pair_features(x, y, grade):
    # Trees cut along axes: sums and differences spare them the staircase along a diagonal.
    return np.column_stack([x, y, x - y, x + y, x * y, grade])


def _fit_log_odds(train, stop, seed):
    """The log odds of a pair being a document, as a function of the features of pairs."""
    # Imported late, so that ranking metrics need no LightGBM.
    import lightgbm as lgb

    data = _labelled(lgb, train)
    settings = {
        "objective": "binary",
        "learning_rate": 0.1,
        "num_leaves": 15,
        "min_data_in_leaf": max(20, len(train[0]) // 100),
        "lambda_l2": 10.0,
        "max_bin": 63,
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
        "seed": seed,
        "verbose": -1,
    }
    model = lgb.train(
        settings,
        data,
        num_boost_round=_MAX_TREES,
        valid_sets=[_labelled(lgb, stop, reference=data)],
        callbacks=[lgb.early_stopping(_PATIENCE, verbose=False)],
    )
    return lambda features: np.clip(
        model.predict(features, raw_score=True), -_LARGEST_LOG_ODDS, _LARGEST_LOG_ODDS
    )


def _labelled(lgb, pairs, reference=None):
    documents, independent = pairs
    label = np.repeat([1.0, 0.0], [len(documents), len(independent)])
    weight = np.where(label > 0, 1.0, len(documents) / len(independent))
    return lgb.Dataset(
        np.concatenate(pairs), label, weight=weight, reference=reference, params={"verbose": -1}
    )


def _donsker_varadhan(log_odds, documents, independent):
    """The bound, one term a document, with the noise of the normaliser to first order."""
    odds = np.exp(log_odds(independent)).reshape(-1, len(documents)).mean(axis=0)
    return log_odds(documents) - np.log(odds.mean()) - (odds / odds.mean() - 1)


# --------------------------------------------------------------------------------------
# Permutations
# --------------------------------------------------------------------------------------
def _permutation_p_value(pred, logging, grade, n_permutations, rng):
    # A table of all documents finds more where grades behave alike, tables by grade where not.
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
        for part in _grade_slices(grade):
            rng.shuffle(order[part])
        # Equal tables must tie, whatever the rounding of their sums.
        n_as_large += statistic() >= observed * (1 - 1e-12)
    return float((1 + n_as_large) / (1 + n_permutations))


def _table(pred, logging, grade, table):
    """Row and column of each document, by its rank in its grade; rows of each table apart."""
    n_documents = np.bincount(table)[table]
    n_bins = np.clip(np.cbrt(n_documents + 0.5).astype(int), 2, _MAX_BINS)
    row, column = (
        ((_mean_ranks(values, grade) - 0.5) / np.bincount(grade)[grade] * n_bins).astype(int)
        for values in (pred, logging)
    )
    return row + table * _MAX_BINS, column


def _table_information(row, column):
    """Mutual information of rows and columns, up to a factor and what permutations leave."""
    counts = np.bincount(row * _MAX_BINS + column)
    return xlogy(counts, counts).sum()


# --------------------------------------------------------------------------------------
# Ranks within grades
# --------------------------------------------------------------------------------------
def _grade_slices(grade):
    """The rows of each grade, of rows sorted by grade."""
    offsets = offsets_from_sorted(grade)
    return [slice(*bounds) for bounds in pairwise(offsets)]


def _ordinal_ranks(values, grade, rng):
    """Ranks from 1 within the grade; equal values in random order."""
    order = np.lexsort((rng.random_sample(len(values)), values, grade))
    return _ranks_in_order(order, grade)


def _mean_ranks(values, grade):
    """Ranks from 1 within the grade; equal values share their mean."""
    order = np.lexsort((values, grade))
    rank = _ranks_in_order(order, grade)
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(values[order]) != 0) | (np.diff(grade[order]) != 0)
    run = np.empty(len(order), dtype=np.intp)
    run[order] = np.cumsum(new) - 1
    return (np.bincount(run, rank) / np.bincount(run))[run]


def _ranks_in_order(order, grade):
    offsets = offsets_from_counts(np.bincount(grade))
    rank = np.empty(len(order))
    rank[order] = np.arange(len(order)) - offsets[grade[order]] + 1
    return rank


def _normal_scores(rank, grade):
    """Normal quantiles of ranks: neighbourhoods as dense as those of normal data."""
    return ndtri((rank - 0.5) / np.bincount(grade)[grade])


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
            "y_pred, y_logging and y_true must be flat and of one length, one value a document; "
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


def _rows_of_shared_grades(grade, counts):
    shared = counts > 1
    if not shared.any():
        raise ValueError(
            f"No two of the {len(grade)} documents share a grade of y_true; expected grades with "
            "at least 2 documents, because CMIP compares documents of equal relevance. Annotate "
            "more documents, or cut a continuous relevance into a few grades."
        )
    if not shared.all():
        warn_user(
            f"{int((counts == 1).sum())} of {len(counts)} grades have a single document, which "
            "nothing can be compared with: these documents are left out of CMIP. Merge rare "
            "grades to keep them.",
            ClickDataWarning,
        )
    return np.flatnonzero(shared[grade])


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


def _warn_about_few_documents(n_documents):
    if n_documents < _FEWEST_FOR_CLASSIFIER:
        warn_user(
            f"CMIP by a classifier has only {n_documents} documents, and may find 0 where there "
            f"is dependence; expected at least {_FEWEST_FOR_CLASSIFIER}. Use estimator='knn', or "
            "annotate more documents.",
            ClickDataWarning,
        )
