"""A regressor of features that learns the relevance which another ranker found in the clicks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from lightgbm import LGBMRegressor
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import has_fit_parameter

from .._base._sklearn import HasMethods, seeded_clone
from .._base._typing import Estimator, Floats, RandomState
from .._log._estimator import NotPickled
from ..exceptions import AssumptionWarning, warn_user
from ._candidates import candidates_of
from ._learners import (
    booster_columns,
    its_own_threads,
    naming_large,
    scores_of_learner,
    takes_columns,
    takes_missing,
)
from ._ranker import BaseRanker, fit_to_log
from ._thresholds import SAME_AS_PRODUCTION

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask
    from .._log._roles import Takes


@dataclass(eq=False, repr=False)
class DistilledRanker(BaseRanker):
    """Scores any document by its features, with the relevance that another ranker found.

    That ranker, the *teacher*, estimates the relevance of the documents that were shown. It may
    have one free number per document (``relevance="embedding"``): this fits the clicks best, but
    cannot score other documents. A regressor, the *student*, then learns this relevance from the
    features of the documents. A document weighs as much as its impressions.

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
        if why is None and self.student is not None:
            return takes_missing(self.student)
        return why

    def _fit(self, log: ClickLog, task: FitTask) -> None:
        random = check_random_state(self.random_state)
        student = _default_student() if self.student is None else self.student
        if not has_fit_parameter(student, "sample_weight"):
            raise ValueError(
                f"The fit of {type(student).__name__} takes no sample_weight. The student needs "
                "it, because a document weighs as much as its impressions. Use another regressor."
            )
        # 1. The teacher learns relevance from the clicks.
        teacher = _default_teacher() if self.teacher is None else self.teacher
        teacher = seeded_clone(teacher, random.randint(2**31 - 1))
        self.teacher_ = fit_to_log(teacher, log)
        # 2. It scores each version of a document once, as it was first shown.
        shown, rows = np.unique(log.version, return_index=True)
        features = log.features[shown]
        weight = np.bincount(log.version, log.weight)[shown]
        relevance = self._taught(log, features, rows)
        # 3. The student learns these scores from the features.
        self.student_ = seeded_clone(student, random.randint(2**31 - 1))
        named = booster_columns(self) if takes_columns(self.student_) else {}
        with its_own_threads(self.student_), naming_large(features):
            self.student_.fit(features, relevance, sample_weight=weight, **named)

    def _taught(self, log, features, rows):
        """What the teacher predicts for some rows, with the roles that its predict needs."""
        roles = {"qid": log.query[rows], "doc": log.doc[rows]}
        if self._reads_production and log.production is not None:
            _, candidate = candidates_of(log)
            served = pd.Series(log.production).groupby(candidate).transform("mean")
            roles["production"] = served.to_numpy()[rows]
            _warn_without_production(self.teacher_, features, roles["production"])
        taken = get_routing_for_object(self.teacher_).consumes("predict", roles)
        return self.teacher_.predict(features, **{name: roles[name] for name in taken})

    def _score(self, features: NDArray[np.float32]) -> Floats:
        return scores_of_learner(self.student_, features)


def _default_teacher():
    from ._dual_learning import DLARanker

    return DLARanker(relevance="embedding")


def _default_student():
    """The trees of the paper (Chen et al. 2024, appendix C.3)."""
    return LGBMRegressor(n_estimators=500, learning_rate=0.1, num_leaves=255, verbosity=-1)


def _warn_without_production(teacher, features, served):
    """Warn if the teacher gives production a weight, and no feature is the score of production."""
    # Only an ensemble has weights by member.
    weights = getattr(teacher, "weights_", {"weight": {}})["weight"]
    weight = weights.get("production", 0.0)
    if not weight or _has_feature_like(features, served):
        return
    warn_user(
        f"The teacher gives the production ranker the weight {weight:.2f}, but the student "
        "scores features only, and no feature is the score of the production ranker: the "
        "student cannot learn what only this score contains. Copy the column 'production' to "
        "a feature of another name, such as 'production_score', and let the engine compute "
        "this feature; or leave 'production' out of the log.",
        AssumptionWarning,
    )


def _has_feature_like(features, served):
    """True if a feature is the score of production, or this score reversed."""
    with np.errstate(invalid="ignore", divide="ignore"):  # the correlation of a constant is NaN
        correlations = [np.corrcoef(feature, served)[0, 1] for feature in features.T]
    return any(abs(each) > SAME_AS_PRODUCTION.value for each in correlations)
