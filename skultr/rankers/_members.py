"""Rankers made of other rankers: what their members must be, the fits and scores of these, the
distinct candidates that they score, and the mean of ranks and the distillation."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
import pandas as pd
from lightgbm import LGBMRegressor
from numpy.typing import NDArray
from sklearn.utils import Bunch, check_random_state
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from .._base._progress import progress
from .._base._sklearn import BaseComposition, HasMethods, StrOptions, seeded_clone
from .._base._typing import ArrayLike, Column, Estimator, Floats, Ints, RandomState, Table
from .._log._estimator import NotPickled
from .._log._reader import first_rows
from .._log._roles import read_role
from .._log._segments import encode, equal_rows, sums_of_rows
from ..exceptions import AssumptionWarning, warn_user
from ..propensity._source import columns_of_source
from ._dual_learning import DLARanker
from ._evidence import candidates_of, fit_member, scores_of, standardized
from ._heckman import HeckmanRanker
from ._ips import IPSRanker
from ._learners import (
    booster_columns,
    its_own_threads,
    naming_large,
    scores_of_learner,
    takes_columns,
    takes_missing,
)
from ._ranker import BaseRanker, fit_to_log

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask
    from .._log._roles import Takes


#: Queries enter the sums of rows with this factor.
_ODD = np.uint64(0x9E3779B97F4A7C15)


class HoldsMembers(BaseComposition):
    """Mixin of rankers whose parameter ``estimators`` lists other rankers by name.

    Subclasses write ``_members()``, the pairs of a name and a ranker. Their ``fit`` sets
    ``estimators_``, and the names of these as ``_names``.
    """

    @property
    def named_estimators_(self) -> Bunch:
        """The fitted members by name."""
        return Bunch(**dict(zip(self._names, self.estimators_, strict=True)))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters of this ranker and, with ``deep``, of its members.

        Parameters
        ----------
        deep : bool, default=True

        Returns
        -------
        params : dict
            Where ``estimators`` is None, those of the default members are among them.
        """
        params = self._get_params("estimators", deep=deep)
        if deep and self.estimators is None:
            # As scikit-learn lists them for an ensemble of the default members.
            given = type(self)(estimators=self._members())
            params = {**given.get_params(), **params}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of a member by ``name__parameter``.

        Parameters
        ----------
        **params : dict
            A name of a default member makes ``estimators`` the list of these.

        Returns
        -------
        self : object
        """
        if self.estimators is None and any(
            name.partition("__")[0] == member for name in params for member, _ in self._members()
        ):
            self.estimators = self._members()
        return self._set_params("estimators", **params)

    @property
    def _learns_from_never_shown(self):
        return self._any_member("_learns_from_never_shown")

    @property
    def _takes(self) -> Takes:
        """Categories, if all members take them."""
        members = [ranker for _, ranker in self._members()]
        taken = {getattr(ranker, "_takes", "numbers") for ranker in members}
        return "numbers" if "numbers" in taken else "categories"

    @property
    def _refuses_missing(self):
        """Why missing values are an error, if they are for a member."""
        for name, ranker in self._members():
            if why := getattr(ranker, "_refuses_missing", None):
                return f"of the member {name!r} it is true that {why}"
        return None

    def _validate_params(self):
        super()._validate_params()
        members = self._members()
        names = [
            member[0]
            for member in members
            if isinstance(member, tuple) and len(member) == 2 and isinstance(member[0], str)
        ]
        if not members or len({*names}) < len(members):
            raise ValueError(
                f"estimators is {members!r}; expected at least one (name, ranker) pair, with "
                "names that are different strings, such as [('ips', IPSRanker()), ('heckman', "
                "HeckmanRanker())]."
            )
        self._validate_names(names)
        for name, ranker in members:
            _check_member(name, ranker)

    def _any_member(self, flag):
        return any(getattr(ranker, flag, False) for _, ranker in self._members())


def _check_member(name: str, ranker: Any) -> None:
    """Refuse what is no ranker, or reads columns that members do not get."""
    if isinstance(ranker, type):
        raise ValueError(
            f"The member {name!r} is the class {ranker.__name__}; expected an instance. Use "
            f"{ranker.__name__}()."
        )
    if not (hasattr(ranker, "fit") and hasattr(ranker, "rank")):
        raise ValueError(
            f"The member {name!r} is {ranker!r}; expected a ranker of skultr.rankers."
        )
    for parameter, value in ranker.get_params().items():
        columns = sorted(name for name in columns_of_source(value) if isinstance(name, str))
        if columns:
            raise ValueError(
                f"{parameter} of the member {name!r} is a {type(value).__name__} that reads the "
                f"columns {columns}, but members get the features as an array without names. Fit "
                "it first, replace these columns of the log by its predictions as the column "
                "'propensity', and give the member propensity='column'."
            )


def fit_members(rankers: Iterable[Any], log: ClickLog, is_told: bool) -> list[Any]:
    """The rankers fitted to the log; what several warn of is said once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if not is_told:
            text = "The clicks contradict the propensities"
            warnings.filterwarnings("ignore", text, AssumptionWarning)
        fitted = [fit_member(ranker, log) for ranker in progress(rankers, "member")]
    said = {}
    for each in caught:
        text = str(each.message)
        said.setdefault((each.category, text.partition(":")[0]), text)
    for (category, _), text in said.items():
        warn_user(text, category)
    return fitted


class DistinctCandidates(NamedTuple):
    """Candidates, each once, in the order in which they first occur."""

    first: Ints | slice  # (n_candidates,)
    place: Ints | slice  # (n_rows,)

    @classmethod
    def of_rows(
        cls,
        X: Any,
        features: NDArray[np.float32],
        query: Ints,
        production: NDArray[Any] | None = None,
    ) -> DistinctCandidates:
        """The candidates among rows: equal features, and equal ids where X has ``doc``.

        Without ids, ``production`` tells apart candidates with equal features.
        """
        # Lists of candidates rarely hold a row twice, and this is quicker to see than to resolve.
        sums = sums_of_rows(features) + query.astype(np.uint64) * _ODD
        if len(np.unique(sums)) == len(query):
            return cls(slice(None), slice(None))
        more = read_role(X, "doc")
        more = production if more is None else more
        keys = [query, equal_rows(features)[0], *([] if more is None else [encode(more)[0]])]
        place = keys[0]
        for key in keys[1:]:
            place = pd.factorize(place * (int(key.max()) + 1) + key)[0]
        return cls(first_rows(place, int(place.max()) + 1), place)

    def mean(self, values: Floats) -> Floats:
        """Mean of the rows of each candidate, for each row; exact where they are equal."""
        if isinstance(self.place, slice):
            return values
        first = values[self.first]
        apart = np.bincount(self.place, values - first[self.place])
        return (first + apart / np.bincount(self.place))[self.place]


@dataclass(eq=False, repr=False)
class RankAggRanker(HoldsMembers, BaseRanker):
    """Average the ranks, or the scores, that several rankers give to each candidate.

    Each member removes one bias: by default :class:`IPSRanker` removes position bias and
    :class:`HeckmanRanker` removes selection bias (Ovaisi et al. 2020). The members are fitted
    independently, so that half of a bias remains if only one of two members removes it. Members
    that each remove both, such as :class:`CLDRanker` by lists, :class:`CLDRanker` by pairs and
    ``HeckmanRanker(debias=True)``, have errors of their own, which the mean reduces; with
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
        features, query = features[candidates.first], query[candidates.first]
        scores = [scores_of(ranker, features, query) for ranker in self.estimators_]
        if self.average == "scores":  # rounding errors of equal scores are no preference
            standing = [standardized(each, query, 1e-12) for each in scores]
        else:
            standing = [-pd.Series(each).groupby(query).rank(ascending=False) for each in scores]
        return np.average(standing, axis=0, weights=self.weights)[candidates.place]

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
            return [("ips", IPSRanker()), ("heckman", HeckmanRanker())]
        return self.estimators

    def _fit(self, log: ClickLog, task: FitTask) -> None:
        members = self._members()
        random = check_random_state(self.random_state)
        self.estimators_ = [
            fit_to_log(seeded_clone(ranker, random.randint(2**31 - 1)), log)
            for _, ranker in progress(members, "member")
        ]
        self._names = [name for name, _ in members]


@dataclass(eq=False, repr=False)
class DistilledRanker(BaseRanker):
    """Regressor trained on the relevance that another ranker estimated from the clicks.

    The *teacher* estimates the relevance of the documents that were shown, for example as one
    free number per document (``relevance="embedding"``). Such a teacher fits the clicks best, but
    cannot score other documents. The *student*, a regressor, then learns this relevance from the
    documents' features, and scores any document. A document weighs as much as its impressions.

    Parameters
    ----------
    teacher : ranker, default=None
        Any ranker of :mod:`skultr.rankers`. The default is ``DLARanker(relevance="embedding")``.
        It gets the role ``production`` if it reads it, as :class:`EnsembleRanker` does.
    student : regressor, default=None
        Any scikit-learn regressor whose ``fit`` takes ``sample_weight``. The default is LightGBM
        with 500 trees of up to 255 leaves and a learning rate of 0.1, as in the paper.
    random_state : int, RandomState instance or None, default=None
        Seed of teacher and student, unless they have a ``random_state`` of their own.

    Attributes
    ----------
    teacher_ : ranker
        The fitted clone of ``teacher``. Its document ids are running numbers. Pickles leave it
        out.
    student_ : regressor
        The fitted clone of ``student``.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    Warns
    -----
    AssumptionWarning
        If the teacher is an :class:`EnsembleRanker` that gives the production ranker a weight, and
        no feature is its score. The student scores features only: copy ``production`` to a
        feature of another name that the engine computes, too. Without this feature, nDCG on new
        queries may be lower than without the role.

    References
    ----------
    Chen et al. (2024). Identifiability matters: revealing the hidden recoverable condition in
    unbiased learning to rank. ICML, appendix C.3.

    Examples
    --------
    >>> from lightgbm import LGBMRegressor
    >>> from skultr import DLARanker
    >>> from skultr.datasets import make_ltr
    >>> from skultr.rankers import DistilledRanker
    >>> from skultr.simulation import PlackettLucePolicy, simulate_clicks
    >>> documents = make_ltr(n_queries=50, n_features=20, random_state=0)
    >>> log, clicks, truth = simulate_clicks(
    ...     documents, n_sessions=500, policy=PlackettLucePolicy(), random_state=0
    ... )
    >>> teacher = DLARanker(relevance="embedding", random_state=0)
    >>> student = LGBMRegressor(n_estimators=20, verbosity=-1)
    >>> DistilledRanker(teacher, student).fit(log, clicks).predict(documents).shape
    (1000,)
    """

    teacher: BaseRanker | None = None
    student: Estimator | None = None
    random_state: RandomState = None

    teacher_ = NotPickled("the relevance of each document of the log")

    _parameter_constraints = {
        "teacher": [HasMethods(["fit", "predict", "rank"]), None],
        "student": [HasMethods(["fit", "predict"]), None],
        "random_state": ["random_state"],
    }
    _refuses_outcomes = "fits other rankers, which learn examination from the same clicks"
    _reads_users = True  # the teacher may

    @property
    def _reads_production(self) -> bool:
        """True if the teacher reads it."""
        return getattr(self.teacher, "_reads_production", False)

    @property
    def _takes(self) -> Takes:
        teacher_reads = getattr(self.teacher, "_needs_features", self.teacher is not None)
        student_takes = self.student is None or takes_columns(self.student)
        return "categories" if student_takes and not teacher_reads else "numbers"

    @property
    def _refuses_missing(self) -> str | None:
        why = getattr(self.teacher, "_refuses_missing", None)
        return why or (None if self.student is None else takes_missing(self.student))

    def _fit(self, log: ClickLog, task: FitTask) -> None:
        random = check_random_state(self.random_state)
        student = (
            LGBMRegressor(n_estimators=500, learning_rate=0.1, num_leaves=255, verbosity=-1)
            if self.student is None
            else self.student
        )
        if not has_fit_parameter(student, "sample_weight"):
            raise ValueError(
                f"The fit of {type(student).__name__} takes no sample_weight. The student needs "
                "it, because a document weighs as much as its impressions. Use another regressor."
            )
        teacher = DLARanker(relevance="embedding") if self.teacher is None else self.teacher
        self.teacher_ = fit_to_log(seeded_clone(teacher, random.randint(2**31 - 1)), log)
        shown, rows = np.unique(log.version, return_index=True)
        features, weight = log.features[shown], np.bincount(log.version, log.weight)[shown]
        # Roles of rows that the teacher's predict needs beside the features.
        roles = {"qid": log.query[rows], "doc": log.doc[rows]}
        if self._reads_production and log.production is not None:
            served = pd.Series(log.production).groupby(candidates_of(log)[1]).transform("mean")
            roles["production"] = served.to_numpy()[rows]
            _warn_without_production(self.teacher_, features, roles["production"])
        taken = get_routing_for_object(self.teacher_).consumes("predict", roles)
        relevance = self.teacher_.predict(features, **{name: roles[name] for name in taken})
        self.student_ = seeded_clone(student, random.randint(2**31 - 1))
        named = booster_columns(self) if takes_columns(self.student_) else {}
        with its_own_threads(self.student_), naming_large(features):
            self.student_.fit(features, relevance, sample_weight=weight, **named)

    def _score(self, features: NDArray[np.float32]) -> Floats:
        return scores_of_learner(self.student_, features)


def _warn_without_production(teacher, features, served):
    """Warn if the teacher gives production a weight, and no feature is the score of production."""
    weight = getattr(teacher, "weights_", {"weight": {}})["weight"].get("production", 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):  # of a constant: NaN
        alike = [abs(np.corrcoef(each, served)[0, 1]) > 0.99 for each in features.T]
    if weight and not any(alike):
        warn_user(
            f"The teacher gives the production ranker the weight {weight:.2f}, but the student "
            "scores features only, and no feature is the score of the production ranker: the "
            "student cannot learn what only this score contains. Copy the column 'production' to "
            "a feature of another name, such as 'production_score', and let the engine compute "
            "this feature; or leave 'production' out of the log.",
            AssumptionWarning,
        )
