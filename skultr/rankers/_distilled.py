"""Rankers made of trees: a click model's relevance, distilled into a function of the features."""

from dataclasses import dataclass

import numpy as np
from lightgbm import LGBMRegressor
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import has_fit_parameter

from .._sklearn import HasMethods, seeded_clone
from ._dual_learning import DLARanker
from ._ranker import BaseRanker, fit_to_log

__all__ = ["DistilledRanker"]


@dataclass(eq=False, repr=False)
class DistilledRanker(BaseRanker):
    """Learn relevance from clicks by one ranker, and its dependence on features by another model.

    The *teacher* estimates the relevance of the documents that were shown, for example as one
    free number each (``relevance="embedding"``), which fits clicks best and knows no other
    document. The *student*, a regressor, then learns that relevance from the documents' features,
    and scores documents that were never shown. A document weighs as much as its impressions.

    Parameters
    ----------
    teacher : ranker, default=None
        Any ranker of :mod:`skultr.rankers`; by default ``DLARanker(relevance="embedding")``.
    student : regressor, default=None
        Any scikit-learn regressor whose ``fit`` takes ``sample_weight``; by default LightGBM with
        500 trees of up to 255 leaves and a learning rate of 0.1, the setting of the paper.
    random_state : int, RandomState instance or None, default=None
        Seeds teacher and student where they have no ``random_state`` of their own.

    Attributes
    ----------
    teacher_ : ranker
        The fitted clone of ``teacher``. It was given the documents by number.
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

    teacher: object = None
    student: object = None
    random_state: object = None

    _parameter_constraints = {
        "teacher": [HasMethods(["fit", "predict", "rank"]), None],
        "student": [HasMethods(["fit", "predict"]), None],
        "random_state": ["random_state"],
    }
    _reads_users = True  # the teacher may

    def _fit(self, log, task):
        random = check_random_state(self.random_state)
        student = _default_student() if self.student is None else self.student
        if not has_fit_parameter(student, "sample_weight"):
            raise ValueError(
                f"The fit of {type(student).__name__} takes no sample_weight; the student needs "
                "it, because documents weigh as much as their impressions. Use another regressor."
            )
        teacher = DLARanker(relevance="embedding") if self.teacher is None else self.teacher
        self.teacher_ = fit_to_log(seeded_clone(teacher, random.randint(2**31 - 1)), log)
        shown = np.unique(log.doc[log.shown])
        features = log.features[shown]
        relevance = self.teacher_.predict(features, **self._roles_of_documents(log, shown))
        impressions = np.bincount(log.doc, log.weight * log.shown, minlength=len(log.features))
        self.student_ = seeded_clone(student, random.randint(2**31 - 1))
        self.student_.fit(features, relevance, sample_weight=impressions[shown])

    def _roles_of_documents(self, log, shown):
        """What the teacher must know of documents beside their features."""
        taken = get_routing_for_object(self.teacher_).consumes("predict", ["qid", "doc"])
        _, rows = np.unique(log.doc[log.shown], return_index=True)
        roles = {"qid": log.query[log.shown][rows], "doc": shown}
        return {name: roles[name] for name in taken}

    def _score(self, features):
        return np.asarray(self.student_.predict(features), dtype=float)


def _default_student():
    return LGBMRegressor(n_estimators=500, learning_rate=0.1, num_leaves=255, verbosity=-1)
