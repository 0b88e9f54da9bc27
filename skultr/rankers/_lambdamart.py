"""Boosted trees on debiased clicks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal

import lightgbm as lgb
import numpy as np
import pandas as pd
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from .._log._segments import TINY
from .._sklearn import Interval, StrOptions
from .._typing import Floats, Ints, RandomState
from ..exceptions import ClickDataWarning, warn_user
from ..propensity._weights import average_propensities, document_labels
from ._learners import order_by_query
from ._propensity_ranker import PropensityRanker
from ._tree_objectives import LambdaObjective, SoftmaxObjective

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask

__all__ = ["LambdaMARTRanker"]

#: LightGBM's labels are whole numbers: click rates in steps of 1 / 1000.
_LEVELS = 1000


@dataclass(kw_only=True, eq=False, repr=False)
class LambdaMARTRanker(PropensityRanker):
    r"""LightGBM on debiased clicks: boosted trees that compare the documents of a query.

    Each document of a query gets one label, its clicks over the chances that they were seen, and
    one weight, how well that label is known. The trees then descend the gradient of a ranking
    loss that takes both. Labels are fractions and queries have any length, neither of which
    LightGBM's own ranking objectives allow. Numbers of impressions only weigh, so that time and
    memory grow with the distinct (query, document) pairs, not with the sessions.

    Assumes that the propensities are right up to one factor. With ``debiasing="lightgbm"`` it
    assumes instead that position shifts the *score* of a document.

    Parameters
    ----------
    propensity : "column", array-like of shape (n_positions,), estimator or None, default=None
        Where the examination probabilities come from: the role ``propensity`` of each row; one
        number a position, from position 1; or an estimator, which is cloned, fitted on the log
        and asked to ``predict`` a probability a row. None takes the role where there is one,
        else ``PowerLawPropensity(eta=1.0)``, with a warning that it is assumed.
    clip : float in (0, 1], default=None
        Propensities below it are raised to it: less variance, at the price of bias.
    debiasing : {"user-aware", "ips", "lightgbm", "none"}, default="user-aware"
        ``"user-aware"`` divides the clicks of a document by its mean propensity in the query,
        over users and positions, as :class:`UserAwareIPSRanker` does; ``"ips"`` divides each
        click by the propensity of its own row, with no smaller a variance. ``"lightgbm"`` is
        LightGBM's own debiasing, which estimates a bias for each bias factor along with the
        trees; it is here for comparison. ``"none"`` takes the clicks as they are.
    loss : {"softmax", "lambda"}, default="softmax"
        Listwise, the likelihood of where the clicks of a query fell; or pairwise, weighted by
        what exchanging the pair would change in DCG. See Notes. LightGBM's debiasing has its own.
    n_estimators : int, default=300
        Trees at most.
    learning_rate : float, default=0.05
    num_leaves : int, default=31
        Leaves of a tree at most.
    min_child_samples : int, default=20
        Documents in a leaf at least.
    reg_lambda : float, default=50.0
        L2 penalty of the values of the leaves, in clicks: a leaf with fewer says little.
    truncation_level : int, default=30
        With the lambda loss, and LightGBM's, pairs count if one of the two ranks this high.
    position_bias_regularization : float, default=0.0
        Of LightGBM's debiasing: pulls the biases to zero.
    traffic_exponent : float in [0, 1], default=0.5
        How much more a frequent query counts than a rare one: its weight is its traffic to this
        power.
    early_stopping : bool, default=True
        Hold out queries, and stop when the softmax loss of their debiased labels no longer falls.
        LightGBM's debiasing has no debiased labels to stop by and trains all trees.
    validation_fraction : float in (0, 1), default=0.1
        Share of the queries held out.
    n_iter_no_change : int, default=20
        Trees without improvement after which training stops.
    lgbm_params : dict, default=None
        Any further parameters of LightGBM.
    n_jobs : int, default=None
        Threads of LightGBM; None means 1, -1 all.
    random_state : int, RandomState instance or None, default=None
        Draws the queries held out, and seeds LightGBM.

    Attributes
    ----------
    booster_ : lightgbm.Booster
        The trees; after early stopping, those up to the best round.
    best_iteration_ : int
        How many they are.
    n_iter_ : int
        Rounds run.
    history_ : DataFrame of shape (`n_iter_`, 1)
        With ``early_stopping``: ``valid_loss`` by round.
    feature_importances_ : ndarray of shape (`n_features_in_`,)
        Share of each feature in the total gain of all splits.
    examination_ : DataFrame
        Where propensities are used: bias factor (index ``bias``) to the mean propensity used
        (``examination``, relative to the first factor), with ``impressions`` and ``clicks``.
    propensity_ : estimator
        The fitted clone, where ``propensity`` is an estimator (or assumed).
    effective_sample_size_ : float
        How many equally weighted clicks would estimate as precisely: (Σ w)² / Σ w².
    largest_weight_ : float
        Weight of the heaviest click, where the mean click weighs 1.
    clipped_share_ : float
        Share of the clicks whose propensity was raised to ``clip``.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    Warns
    -----
    UnstableWeightsWarning
        If a handful of clicks carry half of the weight.
    ClickDataWarning
        If there are too few queries to hold any out.

    See Also
    --------
    IPSRanker, UserAwareIPSRanker : Networks, or any ``estimator``, on the same labels.

    Notes
    -----
    *Weights.* The variance of a label is about its relevance over the *examinations* of the
    document: impressions times the harmonic mean of its propensities. The weight is that number.
    A document that stood at position 10 only has the same right label as before, and less say.
    The order of any two documents stays unbiased, because weights know no clicks.

    *Losses.* The softmax loss is the likelihood of where the clicks of a query fell, given the
    examinations: :math:`P(i) \propto w_i e^{s_i}`. The lambda loss is that of LambdaMART but for
    three things, each of which made noisy labels worse in our measurements: both sides of a pair
    win, as often as their labels say, so that noise averages out; a query is not divided by its
    ideal DCG; and a pair is not divided by the distance of its scores.

    *LightGBM's debiasing* gets the distinct lists, weighted by their impressions, with click
    rates rounded to 1 / 1000. Lists of more than 10,000 documents are beyond it. Given single
    sessions, as LightGBM takes them by itself, it was level where orders varied and ended 0.018
    higher in nDCG@10 where every query had one order and 20 sessions (5 seeds); the other kinds
    of debiasing were ahead of both.

    References
    ----------
    Burges (2010). From RankNet to LambdaRank to LambdaMART: an overview. MSR-TR-2010-82.
    Ke et al. (2017). LightGBM: a highly efficient gradient boosting decision tree. NIPS.
    Niu, Mei, Yang, Zhao, Yan, Mao & Wen (2025). Addressing personalized bias for unbiased learning
    to rank.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.rankers import LambdaMARTRanker
    >>> from skultr.simulation import EYE_TRACKING, simulate_clicks
    >>> documents = make_ltr(n_queries=50, n_features=20, random_state=0)
    >>> log, clicks, truth = simulate_clicks(documents, n_sessions=500, random_state=0)
    >>> ranker = LambdaMARTRanker(propensity=EYE_TRACKING, n_estimators=20, random_state=0)
    >>> ranker.fit(log, clicks).predict(documents).shape
    (1000,)
    """

    debiasing: Literal["user-aware", "ips", "lightgbm", "none"] = "user-aware"
    loss: Literal["softmax", "lambda"] = "softmax"
    n_estimators: int = 300
    learning_rate: float = 0.05
    num_leaves: int = 31
    min_child_samples: int = 20
    reg_lambda: float = 50.0
    truncation_level: int = 30
    position_bias_regularization: float = 0.0
    traffic_exponent: float = 0.5
    early_stopping: bool = True
    validation_fraction: float = 0.1
    n_iter_no_change: int = 20
    lgbm_params: dict[str, Any] | None = None
    n_jobs: int | None = None
    random_state: RandomState = None

    _parameter_constraints = {
        **PropensityRanker._parameter_constraints,
        "debiasing": [StrOptions({"user-aware", "ips", "lightgbm", "none"})],
        "loss": [StrOptions({"softmax", "lambda"})],
        "n_estimators": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "num_leaves": [Interval(Integral, 2, None, closed="left")],
        "min_child_samples": [Interval(Integral, 1, None, closed="left")],
        "reg_lambda": [Interval(Real, 0, None, closed="left")],
        "truncation_level": [Interval(Integral, 1, None, closed="left")],
        "position_bias_regularization": [Interval(Real, 0, None, closed="left")],
        "traffic_exponent": [Interval(Real, 0, 1, closed="both")],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "lgbm_params": [dict, None],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    @property
    def feature_importances_(self) -> Floats:
        """Share of each feature in the total gain of all splits."""
        gain = self.booster_.feature_importance("gain")
        return gain / max(gain.sum(), TINY)

    @property
    def _uses_propensities(self):
        return self.debiasing in ("user-aware", "ips")

    def _n_subtasks(self) -> int:
        return self.n_estimators

    def _fit_propensity(self, X, y, sample_weight, roles):
        if not self._uses_propensities:
            return roles
        return super()._fit_propensity(X, y, sample_weight, roles)

    def _before_folding(self, log: ClickLog) -> ClickLog:
        if not self._uses_propensities:
            return replace(log, propensity=None)
        return average_propensities(log) if self.debiasing == "user-aware" else log

    def _fit(self, log: ClickLog, task: FitTask) -> None:
        random = check_random_state(self.random_state)
        settings = self._settings(random)
        callbacks = [_report_rounds(self, task)]
        if self.debiasing == "lightgbm":
            data = _listed(log.tempered(self.traffic_exponent)[0])
            self._remember(lgb.train(settings, data, self.n_estimators, callbacks=callbacks))
            return
        documents = self._documents(log)
        held_out = self._held_out(documents, random)
        train = documents.take(~held_out)
        if not held_out.any():
            self._remember(lgb.train(settings, train, self.n_estimators, callbacks=callbacks))
            return
        losses = {}
        callbacks += [
            lgb.early_stopping(self.n_iter_no_change, verbose=False),
            lgb.record_evaluation(losses),
        ]
        booster = lgb.train(
            settings,
            train,
            self.n_estimators,
            valid_sets=[documents.take(held_out, train)],
            feval=_held_out_loss,
            callbacks=callbacks,
        )
        self._remember(booster, losses["valid_0"]["softmax"])

    def _remember(self, booster, losses=None):
        self.booster_ = booster  # of early stopping only the best trees are left
        self.best_iteration_ = self.n_iter_ = booster.current_iteration()
        if losses is not None:
            self.n_iter_ = len(losses)
            index = pd.RangeIndex(1, self.n_iter_ + 1, name="round")
            self.history_ = pd.DataFrame({"valid_loss": losses}, index=index)

    def _score(self, features: NDArray[np.float32]) -> Floats:
        return self.booster_.predict(features, num_threads=effective_n_jobs(self.n_jobs))

    def _settings(self, random):
        own = {
            "seed": int(random.randint(2**31 - 1)),
            "learning_rate": self.learning_rate,
            "num_leaves": self.num_leaves,
            "min_data_in_leaf": self.min_child_samples,
            "lambda_l2": self.reg_lambda,
            "num_threads": effective_n_jobs(self.n_jobs),
            # The same trees in every run: else LightGBM times two ways of counting and picks one.
            "deterministic": True,
            "force_col_wise": True,
            # A custom objective fails where the filter leaves no feature, as with few rows.
            "feature_pre_filter": False,
            "verbosity": -1,
        }
        given = self.lgbm_params or {}
        taken = sorted({"objective", "metric", "num_iterations", "label_gain"} & set(given))
        if taken:
            raise ValueError(
                f"lgbm_params holds {taken}, which the ranker sets itself. Use its parameters "
                "loss, debiasing and n_estimators."
            )
        return {**own, **given, **self._objective()}

    def _objective(self):
        if self.debiasing == "lightgbm":
            return {
                "objective": "lambdarank",
                "label_gain": np.arange(_LEVELS + 1) / _LEVELS,
                "lambdarank_truncation_level": self.truncation_level,
                "lambdarank_position_bias_regularization": self.position_bias_regularization,
            }
        softmax = self.loss == "softmax"
        loss = SoftmaxObjective() if softmax else LambdaObjective(self.truncation_level)
        return {"objective": partial(_derivatives, loss), "metric": "None"}

    def _documents(self, log):
        """One row a shown document of a query, with its label and its examinations."""
        if self._uses_propensities:
            clicks, propensity = self._debiased_clicks(log), self._divisors(log)
        else:
            clicks, propensity = log.clicks, None
        log, factor = log.tempered(self.traffic_exponent)
        labels = document_labels(log, clicks * factor, propensity)
        order = order_by_query(log.features[labels.doc], labels.query)[0]
        return _Documents(
            log.features,
            labels.doc[order],
            labels.query[order],
            labels.label[order],
            labels.weight[order],
        )

    def _held_out(self, documents, random):
        """Whether each row belongs to a query that trees are stopped by."""
        nothing = np.zeros(len(documents.query), dtype=bool)
        if not self.early_stopping:
            return nothing
        # A query without clicks says nothing about a loss per click.
        clicked = documents.label > 0
        queries = np.unique(documents.query[clicked if clicked.any() else ~clicked])
        n_held_out = max(1, round(self.validation_fraction * len(queries)))
        if n_held_out >= len(queries):
            warn_user(
                f"early_stopping needs validation queries, but the log has {len(queries)} "
                f"query(ies) to learn from: training runs for n_estimators={self.n_estimators}. "
                "Give more queries, or set early_stopping=False.",
                ClickDataWarning,
            )
            return nothing
        return np.isin(documents.query, random.permutation(queries)[:n_held_out])


@dataclass(frozen=True, eq=False)
class _Documents:
    """The rows that trees learn from; ``doc`` says where the features of each are."""

    features: NDArray[np.float32]
    doc: Ints
    query: Ints
    label: Floats
    weight: Floats

    def take(self, rows, reference=None):
        """Some rows as LightGBM wants them, binned as those of the ``reference``."""
        return lgb.Dataset(
            self.features[self.doc[rows]],
            self.label[rows],
            weight=self.weight[rows],
            group=np.unique(self.query[rows], return_counts=True)[1],
            reference=reference,
        )


def _derivatives(loss, scores, data):
    return loss(data.get_label(), scores, data.get_weight(), data.get_group())


def _held_out_loss(scores, data):
    return "softmax", _derivatives(SoftmaxObjective().loss, scores, data), False


def _listed(log):
    """The distinct lists with their click rates, as LightGBM's position debiasing wants them."""
    rows = np.flatnonzero(log.shown)
    sizes = np.unique(log.list_[rows], return_counts=True)[1]
    if sizes.max() > 10_000:
        raise ValueError(
            f"debiasing='lightgbm' takes lists of at most 10,000 documents, and one of the log "
            f"has {sizes.max():,d}. Use debiasing='user-aware' or 'ips'."
        )
    return lgb.Dataset(
        log.features[log.doc[rows]],
        np.rint(log.click_rate[rows] * _LEVELS),
        weight=log.weight[rows],
        group=sizes,
        position=log.bias[rows],
    )


def _report_rounds(estimator, task):
    """Tells scikit-learn's callbacks of every round, and stops when one of them asks to."""

    def report(env):
        context = task.context.subcontext(task_name="round")
        context.call_on_fit_task_begin(estimator=estimator, X=task.X, y=task.y)
        if context.call_on_fit_task_end(
            estimator=estimator, X=task.X, y=task.y, reconstruction_attributes=lambda: {}
        ):
            raise lgb.callback.EarlyStopException(env.iteration, env.evaluation_result_list or [])

    return report
