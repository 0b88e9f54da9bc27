"""The mean of the ranks, or of the scores, that several rankers give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._base._progress import progress
from .._base._sklearn import StrOptions, seeded_clone
from .._base._typing import ArrayLike, Column, Floats, RandomState, Table
from .._log._segments import encode
from ._candidates import ROUNDING_OF_DOUBLE, DistinctCandidates, standardized
from ._members import HoldsMembers, scores_of
from ._ranker import BaseRanker, fit_to_log

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask


@dataclass(eq=False, repr=False)
class RankAggRanker(HoldsMembers, BaseRanker):
    """Averages the ranks, or the scores, that several rankers give to each candidate.

    By default :class:`IPSRanker` removes position bias and :class:`HeckmanRanker` removes
    selection bias (Ovaisi et al. 2020). The members are fitted independently: half of a bias
    remains if only one of two members removes it.

    Members may also each remove both, such as :class:`CLDRanker` by lists, :class:`CLDRanker` by
    pairs and ``HeckmanRanker(debias=True)``. The mean then reduces their own errors. With
    ``average="scores"`` it keeps by how much a member prefers a document.

    Parameters
    ----------
    estimators : list of (str, ranker), default=None
        Members by name; by default ``[("ips", IPSRanker()), ("heckman", HeckmanRanker())]``. A
        clone of each is fitted to the log. Members get the features as an array, so that their
        propensities cannot read columns by name.
    weights : array-like of shape (n_estimators,), default=None
        Weights of the members in the mean; equal by default.
    average : {"ranks", "scores"}, default="ranks"
        What the mean is of. ``"scores"`` are standardised within each query: mean 0 and standard
        deviation 1 over its candidates, or 0 where a member scores all alike.
    random_state : int, RandomState instance or None, default=None
        Seed of the members that have no ``random_state`` of their own.

    Attributes
    ----------
    estimators_ : list of rankers
        The fitted clones. Their ids of queries and documents are running numbers.
    named_estimators_ : Bunch
        The fitted clones by name.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    Notes
    -----
    A score is minus a mean rank, or a mean of standardised scores: scores of different queries are
    not comparable, and a score depends on the other candidates of the query. Tied candidates share
    the mean of their ranks.

    References
    ----------
    Ovaisi, Ahsan, Zhang, Vasilaky & Zheleva (2020). Correcting for selection bias in
    learning-to-rank systems. WWW.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.rankers import HeckmanRanker, IPSRanker, RankAggRanker
    >>> from skultr.simulation import simulate_clicks
    >>> documents = make_ltr(n_queries=50, n_features=20, random_state=0)
    >>> log, clicks, truth = simulate_clicks(
    ...     documents, n_sessions=500, n_positions=5, candidates=True, random_state=0
    ... )
    >>> ips = IPSRanker(propensity=truth.examination, max_epochs=2)
    >>> ranker = RankAggRanker([("ips", ips), ("heckman", HeckmanRanker())], random_state=0)
    >>> ranker.fit(log, clicks).predict(documents).shape
    (1000,)
    """

    estimators: list[tuple[str, Any]] | None = None
    weights: ArrayLike | None = None
    average: Literal["ranks", "scores"] = "ranks"
    random_state: RandomState = None

    _parameter_constraints = {
        "estimators": [list, None],
        "weights": ["array-like", None],
        "average": [StrOptions({"ranks", "scores"})],
        "random_state": ["random_state"],
    }
    __metadata_request__predict = {"qid": True}
    _refuses_outcomes = "fits other rankers, which learn examination from the same clicks"
    _reads_users = True  # members may

    def predict(self, X: Table, *, qid: Column | None = None) -> Floats:
        """Minus the mean rank, or the mean score, of each row in its query; higher is better.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            Candidates. A frame needs the features and ``qid``. X may be a log: a document counts
            once, however many rows it has. Rows are one document if their features are equal, and
            their ids if X has the column ``doc``.
        qid : array-like of shape (n_rows,), default=None
            Query ids; by default the column ``qid`` of X. Without either, all rows count as one
            query, with a warning.

        Returns
        -------
        scores : ndarray of shape (n_rows,)
        """
        check_is_fitted(self)
        return self._scores_within(X, self._known_query_ids(X, qid, "predict"))

    def _scores_within(self, X: Table, qid: NDArray[Any]) -> Floats:
        features = self._read_features(X, reset=False)
        query = encode(qid)[0]
        # A log repeats documents over its pages; they count once.
        candidates = DistinctCandidates.of_rows(X, features, query)
        # Each member gives each candidate a place in its query.
        features = features[candidates.first]
        query = query[candidates.first]
        scores = [scores_of(ranker, features, query) for ranker in self.estimators_]
        if self.average == "scores":  # rounding errors of equal scores are no preference
            standing = [standardized(each, query, ROUNDING_OF_DOUBLE) for each in scores]
        else:
            standing = [-pd.Series(each).groupby(query).rank(ascending=False) for each in scores]
        mean = np.average(standing, axis=0, weights=self.weights)
        return mean[candidates.place]

    def _validate_params(self):
        super()._validate_params()
        if self.weights is None:
            return
        n_members = len(self._members())
        try:
            values = np.asarray(self.weights, dtype=float)
        except (TypeError, ValueError):
            values = np.empty(0)
        # The sum is NaN or infinite if a weight is.
        if values.shape != (n_members,) or (values < 0).any() or not 0 < values.sum() < np.inf:
            raise ValueError(
                f"weights is {self.weights!r}; expected {n_members} numbers, one per member, each "
                "at least 0 and not all 0."
            )

    def _members(self):
        if self.estimators is None:
            from ._heckman import HeckmanRanker
            from ._ips import IPSRanker

            return [("ips", IPSRanker()), ("heckman", HeckmanRanker())]
        return self.estimators

    def _fit(self, log: ClickLog, task: FitTask) -> None:
        members = self._members()
        random = check_random_state(self.random_state)
        self.estimators_ = [
            fit_to_log(seeded_clone(ranker, random.randint(2**31 - 1)), log)
            for _, ranker in progress(members, "member", alike=False)
        ]
        self._names = [name for name, _ in members]
