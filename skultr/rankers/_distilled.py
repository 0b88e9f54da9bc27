"""The relevance that one ranker learned from clicks, distilled into a regressor of features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from lightgbm import LGBMRegressor
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import has_fit_parameter

from .._base._sklearn import HasMethods, seeded_clone
from .._base._typing import Estimator, Floats, Ints, RandomState
from .._log._pickles import NotPickled
from ._dual_learning import DLARanker
from ._learners import (
    booster_columns,
    its_own_threads,
    scores_of_learner,
    takes_columns,
    takes_missing,
)
from ._ranker import BaseRanker, fit_to_log

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask
    from .._log._roles import Takes


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
    def _takes(self) -> Takes:
        teacher_reads = getattr(self.teacher, "_needs_features", self.teacher is not None)
        student_takes = self.student is None or takes_columns(self.student)
        return "categories" if student_takes and not teacher_reads else "numbers"

    @property
    def _refuses_missing(self) -> str | None:
        of_teacher = getattr(self.teacher, "_refuses_missing", None)
        return of_teacher or (None if self.student is None else takes_missing(self.student))

    def _fit(self, log: ClickLog, task: FitTask) -> None:
        random = check_random_state(self.random_state)
        student = _default_student() if self.student is None else self.student
        if not has_fit_parameter(student, "sample_weight"):
            raise ValueError(
                f"The fit of {type(student).__name__} takes no sample_weight. The student needs "
                "it, because a document weighs as much as its impressions. Use another regressor."
            )
        teacher = DLARanker(relevance="embedding") if self.teacher is None else self.teacher
        self.teacher_ = fit_to_log(seeded_clone(teacher, random.randint(2**31 - 1)), log)
        shown, rows = np.unique(log.version, return_index=True)
        features = log.features[shown]
        relevance = self.teacher_.predict(features, **self._roles_of_rows(log, rows))
        impressions = np.bincount(log.version, log.weight)
        self.student_ = seeded_clone(student, random.randint(2**31 - 1))
        named = booster_columns(self) if takes_columns(self.student_) else {}
        with its_own_threads(self.student_):
            self.student_.fit(features, relevance, sample_weight=impressions[shown], **named)

    def _roles_of_rows(self, log: ClickLog, rows: Ints) -> dict[str, Ints]:
        """Roles of shown rows that the teacher's predict needs beside the features."""
        taken = get_routing_for_object(self.teacher_).consumes("predict", ["qid", "doc"])
        roles = {"qid": log.query[rows], "doc": log.doc[rows]}
        return {name: roles[name] for name in taken}

    def _score(self, features: NDArray[np.float32]) -> Floats:
        return scores_of_learner(self.student_, features)


def _default_student():
    return LGBMRegressor(n_estimators=500, learning_rate=0.1, num_leaves=255, verbosity=-1)
