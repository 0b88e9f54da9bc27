"""Boosted trees on debiased clicks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal

import lightgbm as lgb
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from .._base._progress import Steps
from .._base._published import HasPublishedVariant
from .._base._shared_text import with_shared_text
from .._base._sklearn import Interval, StrOptions
from .._base._threads import threads_of
from .._base._typing import Floats, Ints, RandomState
from .._log._reader import first_rows
from .._log._segments import TINY, pair_codes
from .._torch._shared_parameters import SHARED_PASSAGES
from ..exceptions import ClickDataWarning, warn_user
from ..propensity._source import KindOfClicks, examples_of_kinds
from ._direct_method import cross_fitted_relevance, with_examinations
from ._learners import SoftmaxObjective, booster_columns, lambda_objective, order_by_query
from ._propensity_ranker import PropensityRanker
from ._thresholds import DOCUMENTS_PER_LEAF

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask


#: Least and largest number of leaves that ``num_leaves="auto"`` may give.
_LEAVES = (4, 31)
#: Least and largest number of rows of a category: LightGBM's own two defaults. In shops of 2,000
#: and 6,000 pages 100 rows were better than 10, and a ``cat_l2`` of 100 or 300 added nothing.
_ROWS_OF_CATEGORY = (10.0, 100.0)
#: Trees of the model of relevance of doubly robust labels: without early stopping they are few,
#: as a third of those of the ranker that has it.
_ROUNDS_OF_RELEVANCE = 100
#: Settings of LightGBM that parameters of the ranker decide.
_DECIDED_ELSEWHERE = {"objective", "metric", "num_iterations", "label_gain"}
#: LightGBM's names of the L2 penalty on leaves; it ignores an alias beside the first.
_NAMES_OF_PENALTY = {"lambda_l2", "reg_lambda", "lambda"}


@with_shared_text(**SHARED_PASSAGES)
@dataclass(kw_only=True, eq=False, repr=False)
class LambdaMARTRanker(HasPublishedVariant, PropensityRanker):
    r"""Ranks documents by boosted trees (LightGBM), trained on clicks corrected for position bias.

    Each document of a query gets one label and one weight. The label is its number of clicks per
    examination; the weight says how precise this label is. The trees minimise a ranking loss of
    both. Labels may be fractions and queries may have any length, which LightGBM's own ranking
    objectives do not allow. Time and memory grow with the number of distinct pairs of a query and
    a document, not with the number of sessions.

    Features may change from page to page, like prices or stock. Each version of a document then
    has its own label and weight on each page, and is compared with the documents of that page.
    Time and memory grow with the number of rows.

    Assumes that the propensities are correct up to a common scale.

    Parameters
    ----------
    propensity : "column", array-like of shape (n_positions,), estimator or None, default=None
        Source of the examination probabilities: the role ``propensity`` of each row; one number
        per position, from position 1; or an estimator, which is cloned, fitted to the log and
        asked to ``predict`` one probability per row.
        {source}
    correction : {"divide", "doubly_robust"}, default="divide"
        "divide" is inverse propensity scoring. "doubly_robust" fills in what ``clip`` takes away
        by a model of relevance (Oosterhuis 2023): a Poisson regression by trees, fitted to the
        clicks of other queries. It takes about twice as long, and changes nothing where no
        propensity is below the bound. See :ref:`doubly_robust`.
    {correction}
    debiasing : {"user-aware", "policy-aware", "ips", "none"}, default="user-aware"
        What the clicks are divided by.

        - ``"user-aware"``: the mean propensity of the document in the query, over users and
          positions, as in :class:`UserAwareIPSRanker`.
        - ``"policy-aware"``: the same mean over all pages of the query, of which those that did
          not show the document count as not examined (Oosterhuis & de Rijke 2020). Labels and
          weights are those of "user-aware" but for ``clip``, which then bounds what a document
          counts for that pages seldom showed; see :ref:`policy_aware`.
        - ``"ips"``: the propensity of the row that was clicked. The variance is the same or
          larger.
        - ``"none"``: nothing; the clicks are not corrected.
    loss : {"softmax", "lambda"}, default="softmax"
        "softmax" is the likelihood of which documents of a query were clicked. "lambda" compares
        pairs, each weighted by how much DCG changes if the two are exchanged. See Notes.
    n_estimators : int, default=300
        Maximum number of trees.
    learning_rate : float, default=0.05
        Factor by which the values of the leaves are multiplied.
    num_leaves : int or "auto", default="auto"
        Maximum number of leaves per tree. ``"auto"`` gives one leaf per 2,500 documents with
        clicks, at least 4 and at most 31; see Notes.
    min_child_samples : int, default=20
        Minimum number of documents per leaf.
    traffic_exponent : float in [0, 1], default=0.5
        A query weighs as much as its number of impressions to this power.
    early_stopping : bool, default=True
        Hold out queries, and stop when the softmax loss of their debiased labels no longer falls.
    validation_fraction : float in (0, 1), default=0.1
        Share of the queries held out.
    n_iter_no_change : int, default=20
        Training stops after this number of trees without improvement.
    variant : {"default", "published"}, default="default"
        "published" is LambdaMART (Burges 2010) with the defaults of LightGBM, on clicks that are
        divided by unbounded propensities. A pair is a win of the document with the higher label,
        times the change of nDCG, and leaves have no L2 penalty. Unbiased LambdaMART (Hu et al.
        2019), which estimates the bias while boosting, is :class:`PairDebiasRanker`.
        {published}
    lgbm_params : dict, default=None
        Further parameters of LightGBM. These differ from LightGBM's own defaults:

        - ``lambda_l2``, the L2 penalty on the values of leaves, is 50, in units of clicks: leaves
          with fewer clicks are shrunk strongly.
        - ``cat_smooth`` and ``min_data_per_group``, the least numbers of rows of a category and
          of a group of categories, are the number of rows of 15 clicks, within 10 and 100; see
          Notes.

        ``lambdarank_truncation_level`` (30 by default) works as in LightGBM: ``loss="lambda"``
        only uses pairs in which at least one document has a rank up to this number.
    n_jobs : int, default=None
        Number of threads of LightGBM; None means 1, and -1 all cores.
    random_state : int, RandomState instance or None, default=None
        Seed of LightGBM, and of the choice of the queries held out.

    Attributes
    ----------
    clip_ : float or None
        The bound that was used: ``clip`` times the largest propensity, if clicks are corrected.
    num_leaves_ : int
        Maximum number of leaves per tree that was used.
    booster_ : lightgbm.Booster
        The trees; after early stopping, those up to the best round. Its features have the names of
        the columns, with ``_`` for characters that LightGBM does not take.
    best_iteration_ : int
        Number of trees in ``booster_``.
    n_iter_ : int
        Number of rounds run.
    history_ : DataFrame of shape (`n_iter_`, 1)
        With ``early_stopping``: ``valid_loss`` by round.
    feature_importances_ : ndarray of shape (`n_features_in_`,)
        Share of each feature in the total gain of all splits.
    examination_ : DataFrame
        Only if propensities are used: mean propensity of each bias factor (index ``bias``),
        ``examination``, relative to that of the first factor, with ``impressions`` and ``clicks``;
        where it was learned, also the ``standard_error`` of its logarithm.
    examination_comparison_ : DataFrame
        For propensities that were not estimated from this log: the given curve (``told``) and the
        one ``implied`` by the clicks. Where dual learning was needed to learn the curve: those of
        ``table`` and ``network``, and the ``combined`` one; as in :class:`IPSRanker`.
    propensity_ : estimator
        The fitted clone, if ``propensity`` is an estimator. Pickles leave out curves of users.
    effective_sample_size_ : float
        Number of equally weighted clicks with the same precision: (Σ w)² / Σ w².
    largest_weight_ : float
        Largest weight of a click, divided by the mean weight.
    clipped_share_ : float
        Share of the clicks whose propensity was below ``clip``.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    Warns
    -----
    AssumptionWarning
        If the clicks contradict the propensities. Where they are learned, if those of documents
        that moved differ from those of dual learning, as in :class:`DLARanker`.
    NotIdentifiableWarning
        If the curve has to be learned, and no clicked document connects some bias factors.
    UnstableWeightsWarning
        If a few clicks carry half of the weight.
    ClickDataWarning
        If there are too few queries to hold any out.

    See Also
    --------
    IPSRanker, UserAwareIPSRanker : Networks, or any ``estimator``, on the same labels.
    EnsembleRanker : Decides by held-out clicks how much a correction weighs; this ranker always
        corrects.

    Notes
    -----
    *Weights.* The weight of a document is its number of *examinations*: its impressions times the
    harmonic mean of its propensities. The variance of its label is about its relevance, divided
    by this number. The label of a document that was only shown at position 10 is unbiased, but
    has a small weight. Weights do not depend on the clicks, so that the order of two documents
    stays unbiased.

    *Losses.* The softmax loss is the likelihood of which documents of a query were clicked, given
    the examinations: :math:`P(i) \propto w_i e^{s_i}`. The lambda loss is that of LambdaMART with
    three changes, each of which raised nDCG on noisy labels in our measurements:

    - Both documents of a pair win, in proportion to their labels, so that noise averages out.
    - The loss of a query is not divided by its ideal DCG.
    - The loss of a pair is not divided by the difference of its scores.

    *Leaves.* Trees with many leaves learn the noise of small logs by heart. Of 4, 7, 15 and 31
    leaves, 4 had the best mean nDCG@10 in our worlds of 700 to 10,500 documents with clicks, 0.01
    to 0.08 above 31 in each (generated documents, MQ2008, the example data of LightGBM). With
    15,000 documents 4 and 7 were best, and with 38,000 7 and 15. How many clicks the documents
    had mattered less.

    *Missing values.* LightGBM sends a missing value down the side of a split where the training
    documents without the feature fit best. A feature that was never missing in training counts
    as 0.

    *Categories.* A column of categories (pandas, Polars or Arrow) is split by sets of them. They
    are remembered: the order of rows has no effect, and a request may hold text. A category that
    was not in the log counts as missing. Text that is not declared as categories is an error.
    LightGBM's ``cat_smooth`` of 10 and ``min_data_per_group`` of 100 are meant for rows that each
    have a label of their own. Here 10 rows may have one click or a thousand, so both are the
    number of rows of 15 clicks, within 10 and 100. In simulated shops with 80 brands, this raised
    nDCG@10 by .002 to .010.

    References
    ----------
    Burges (2010). From RankNet to LambdaRank to LambdaMART: an overview. MSR-TR-2010-82.
    Ke et al. (2017). LightGBM: a highly efficient gradient boosting decision tree. NIPS.
    Niu, Mei, Yang, Zhao, Yan, Mao & Wen (2025). Addressing personalized bias for unbiased learning
    to rank.
    Oosterhuis & de Rijke (2020). Policy-aware unbiased learning to rank for top-k rankings. SIGIR.
    Oosterhuis (2023). Doubly robust estimation for correcting position bias in click feedback for
    unbiased learning to rank. ACM Transactions on Information Systems 41(3).

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.rankers import LambdaMARTRanker
    >>> from skultr.simulation import EYE_TRACKING, simulate_clicks
    >>> documents = make_ltr(n_queries=50, n_features=20, random_state=0)
    >>> log, clicks, truth = simulate_clicks(documents, n_sessions=1_000, random_state=0)
    >>> ranker = LambdaMARTRanker(propensity=EYE_TRACKING, n_estimators=20, random_state=0)
    >>> ranker.fit(log, clicks).predict(documents).shape
    (1000,)
    """

    correction: Literal["divide", "doubly_robust"] = "divide"
    clip: float | None = 0.1
    debiasing: Literal["user-aware", "policy-aware", "ips", "none"] = "user-aware"
    naive_weight: float = 0.0
    loss: Literal["softmax", "lambda"] = "softmax"
    n_estimators: int = 300
    learning_rate: float = 0.05
    num_leaves: int | Literal["auto"] = "auto"
    min_child_samples: int = 20

    traffic_exponent: float = 0.5
    early_stopping: bool = True
    validation_fraction: float = 0.1
    n_iter_no_change: int = 20
    lgbm_params: dict[str, Any] | None = None
    n_jobs: int | None = None
    random_state: RandomState = None

    #: Those of LightGBM, but for bias.
    _published = {
        "loss": "lambda",
        "debiasing": "ips",
        "clip": None,
        "n_estimators": 100,
        "learning_rate": 0.1,
        "num_leaves": 31,
        "traffic_exponent": 1.0,
        "early_stopping": False,
        "_leaf_penalty": 0.0,
    }
    #: L2 penalty on the values of leaves, in units of clicks.
    _leaf_penalty = 50.0
    _parameter_constraints = {
        **HasPublishedVariant._parameter_constraints,
        **PropensityRanker._parameter_constraints,
        "correction": [StrOptions({"divide", "doubly_robust"})],
        "debiasing": [StrOptions({"user-aware", "policy-aware", "ips", "none"})],
        "naive_weight": [Interval(Real, 0, 1, closed="both")],
        "loss": [StrOptions({"softmax", "lambda"})],
        "n_estimators": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "num_leaves": [Interval(Integral, 2, None, closed="left"), StrOptions({"auto"})],
        "min_child_samples": [Interval(Integral, 1, None, closed="left")],
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

    _refuses_missing = None
    _takes = "categories"

    @property
    def _uses_propensities(self):
        return self.debiasing != "none"

    @property
    def _copies(self):
        """How often each document is a training row."""
        is_mixed = self._uses_propensities and 0 < self.naive_weight < 1
        return 2 if is_mixed else 1  # with its clicks as they are, too

    @property
    def _averages(self):
        return self.debiasing in ("user-aware", "policy-aware")

    @property
    def _counts_all_pages(self):
        return self.debiasing == "policy-aware"

    def _fit(self, log: ClickLog, task: FitTask) -> None:
        random = check_random_state(self.random_state)
        settings = self._settings(random, self._copies)
        # 1. Documents: labels, weights, and what depends on their number.
        documents = self._documents(log)
        self.num_leaves_ = self._leaves(documents.n_clicked)
        settings["num_leaves"] = self.num_leaves_
        settings = {**_of_categories(documents.rows_per_click), **settings}
        # 2. Held-out queries, by whose loss training stops.
        is_held_out = self._held_out(documents, random)
        train = documents.take(~is_held_out)
        rounds = Steps("round", self.n_estimators, may_end_early=bool(is_held_out.any()))
        callbacks = [_report_rounds(self, task, rounds)]
        held_out = {}
        losses = {}
        if is_held_out.any():
            held_out = {
                "valid_sets": [documents.take(is_held_out, train)],
                "feval": _held_out_loss,
            }
            callbacks += [
                lgb.early_stopping(self.n_iter_no_change, verbose=False),
                lgb.record_evaluation(losses),
            ]
        # 3. Trees.
        with _in_our_words(), closing(rounds):
            booster = lgb.train(
                settings, train, self.n_estimators, callbacks=callbacks, **held_out
            )
        self.booster_ = booster  # after early stopping it holds only the best trees
        self.best_iteration_ = booster.current_iteration()
        self.n_iter_ = self.best_iteration_
        if losses:
            self._remember_losses(losses["valid_0"]["softmax"])

    def _remember_losses(self, losses):
        """Set the learning curve, which goes beyond the best tree, and the number of rounds."""
        self.n_iter_ = len(losses)
        rounds = pd.RangeIndex(1, self.n_iter_ + 1, name="round")
        self.history_ = pd.DataFrame({"valid_loss": losses}, index=rounds)

    def _score(self, features: NDArray[np.float32]) -> Floats:
        return self.booster_.predict(features, num_threads=threads_of(self.n_jobs))

    def _settings(self, random, n_copies=1):
        """Settings of LightGBM: own ones, those that the user gave, and the loss.

        Each document is ``n_copies`` training rows.
        """
        given = self.lgbm_params or {}
        # Two places for one setting would contradict each other in silence.
        taken = sorted(_DECIDED_ELSEWHERE & set(given))
        if taken:
            raise ValueError(
                f"lgbm_params holds {taken}, which the ranker sets itself. Use its parameters "
                "loss, debiasing and n_estimators instead."
            )
        own = {
            "seed": int(random.randint(2**31 - 1)),
            "learning_rate": self.learning_rate,
            "min_data_in_leaf": self.min_child_samples * n_copies,
            "num_threads": threads_of(self.n_jobs),
            # The same trees in every run; otherwise LightGBM picks the faster of two algorithms.
            "deterministic": True,
            "force_col_wise": True,
            # A custom objective fails if the filter removes all features, as with few rows.
            "feature_pre_filter": False,
            "verbosity": -1,
        }
        if not _NAMES_OF_PENALTY & set(given):
            own["lambda_l2"] = self._leaf_penalty
        loss = SoftmaxObjective()
        if self.loss == "lambda":
            loss = lambda_objective(given, by_order=self.variant == "published")
        # LightGBM's own metrics do not take fractional labels.
        # Last in the merge: nothing that was given may replace the loss.
        objective = {"objective": partial(_derivatives, loss), "metric": "None"}
        return {**own, **given, **objective}

    def _leaves(self, n_clicked):
        """Maximum number of leaves per tree; ``lgbm_params`` has priority over the parameter."""
        # Small logs have few leaves, or trees learn their noise by heart.
        given = self.lgbm_params or {}
        leaves = given.get("num_leaves", self.num_leaves)
        if leaves == "auto":
            leaves = np.clip(n_clicked // DOCUMENTS_PER_LEAF.value, *_LEAVES)
        return int(leaves)

    def _documents(self, log):
        """One row per group of compared rows and shown version: its label and examinations."""
        groups = log.compared_groups()
        # With two kinds of clicks each document is there twice, in groups of its own.
        kinds = self._kinds_of_clicks(log)
        version, labels, n_groups = examples_of_kinds(log, kinds, groups, self.traffic_exponent)
        features = log.features[version]
        order, _ = order_by_query(features, labels.query)
        # Groups of the second kind of clicks are numbered after those of the first.
        group = labels.query[order]
        query_of_group = log.query[first_rows(groups, n_groups)]
        return _Documents(
            features=log.features,
            version=version[order],
            query=query_of_group[group % n_groups],
            group=group,
            label=labels.label[order],
            weight=labels.weight[order],
            columns=booster_columns(self),
        )

    def _kinds_of_clicks(self, log):
        """Clicks over propensities, clicks as they are, or both with their shares of the loss."""
        # Without propensities all clicks are as they are.
        naive_share = self.naive_weight if self._uses_propensities else 1.0
        kinds = []
        if naive_share < 1:
            relevance = None
            # Without a bound the model cancels.
            if self.correction == "doubly_robust" and self.clip_ is not None:
                relevance = cross_fitted_relevance(log, self._tree_relevance, self.random_state)
            debiased = self._debiased_clicks(log, relevance)
            kinds.append(KindOfClicks(1 - naive_share, debiased, self._divisors))
        if naive_share > 0:
            kinds.append(KindOfClicks(naive_share, log.clicks, None))
        return kinds

    def _tree_relevance(self, log):
        """Relevance of each version by trees: a Poisson regression of clicks on examinations."""
        clicks = KindOfClicks(1.0, log.clicks, None)
        version, labels, _ = examples_of_kinds(
            with_examinations(log), [clicks], log.query, self.traffic_exponent
        )
        examples = lgb.Dataset(
            log.features[version],
            labels.label,
            weight=labels.weight,
            **booster_columns(self),
        )
        settings = self._settings(check_random_state(self.random_state))
        settings["num_leaves"] = self._leaves(np.count_nonzero(labels.label))
        settings["objective"] = "poisson"
        rounds = min(self.n_estimators, _ROUNDS_OF_RELEVANCE)
        with _in_our_words():
            booster = lgb.train(settings, examples, rounds)
        return booster.predict(log.features, num_threads=threads_of(self.n_jobs))

    def _held_out(self, documents, random):
        """True for the rows of held-out queries, by whose loss training stops."""
        nothing = np.zeros(len(documents.query), dtype=bool)
        if not self.early_stopping:
            return nothing
        # A query without clicks does not enter a loss per click.
        counts = documents.label > 0
        if not counts.any():
            counts = ~counts
        queries = np.unique(documents.query[counts])
        # One at least, and not all.
        n_held_out = max(1, round(self.validation_fraction * len(queries)))
        if n_held_out >= len(queries):
            warn_user(
                f"early_stopping needs validation queries, but the log has {len(queries)} "
                f"{'query' if len(queries) == 1 else 'queries'} to learn from: training runs for "
                f"n_estimators={self.n_estimators}. Give more queries, or set "
                "early_stopping=False.",
                ClickDataWarning,
            )
            return nothing
        # Whole queries: trees remember the documents of a query.
        held_out = random.permutation(queries)[:n_held_out]
        return np.isin(documents.query, held_out)


@dataclass(frozen=True, eq=False)
class _Documents:
    """The training rows of the trees; ``version`` is the row of ``features`` of each."""

    features: NDArray[np.float32]
    version: Ints
    query: Ints
    group: Ints
    label: Floats
    weight: Floats
    columns: dict[str, Any]

    @property
    def rows_per_click(self) -> float:
        """Number of rows by that of clicks; infinite without clicks."""
        # A label is clicks per examination, and a weight the number of these.
        clicks = self.label @ self.weight
        return len(self.label) / clicks if clicks > 0 else np.inf

    @property
    def n_clicked(self) -> int:
        """Number of versions with clicks, each once per query."""
        # A document with two kinds of clicks, or in several groups of a query, counts once.
        codes = pair_codes(self.query, self.version, len(self.features))
        return len(np.unique(codes[self.label > 0]))

    def take(self, rows, reference=None):
        """Some rows as a dataset of LightGBM, with the bins of the ``reference``."""
        # Rows of a group are adjacent.
        _, group_sizes = np.unique(self.group[rows], return_counts=True)
        return lgb.Dataset(
            self.features[self.version[rows]],
            self.label[rows],
            weight=self.weight[rows],
            group=group_sizes,
            reference=reference,
            **self.columns,
        )


@contextmanager
def _in_our_words() -> Iterator[None]:
    """A sentence for what LightGBM calls a failed check: it puts at least 3 documents in a bin."""
    try:
        yield
    except lgb.basic.LightGBMError as error:
        # What LightGBM checks first in a data set without features.
        if "num_features" not in str(error):
            raise
        raise ValueError(
            "No feature has two values in enough of the documents that trees are trained on, "
            "after queries were held out: nothing can be learned. Expected a feature that differs "
            "in at least 3 documents. Add features or queries, or set early_stopping=False."
        ) from error


def _of_categories(rows_per_click):
    """Settings of LightGBM that say how many rows tell categories apart."""
    # Clicks that a category has on average to be told apart. LightGBM leaves out categories of
    # fewer rows than ``cat_smooth``, and groups of fewer than ``min_data_per_group``.
    rows = np.clip(15 * rows_per_click, *_ROWS_OF_CATEGORY)
    return {"cat_smooth": float(rows), "min_data_per_group": round(rows)}


def _derivatives(loss, scores, data):
    """A loss in the signature of LightGBM's objectives and metrics."""
    return loss(data.get_label(), scores, data.get_weight(), data.get_group())


def _held_out_loss(scores, data):
    """Name and value of the softmax loss, and False because lower is better."""
    return "softmax", _derivatives(SoftmaxObjective().loss, scores, data), False


def _report_rounds(estimator, task, rounds):
    """Callback of LightGBM that counts every round, and reports it to scikit-learn's callbacks.

    Training stops when one of them requests it.
    """

    def report(env):
        rounds.count()
        context = task.context.subcontext(task_name="round")
        context.call_on_fit_task_begin(estimator=estimator, X=task.X, y=task.y)
        wants_stop = context.call_on_fit_task_end(
            estimator=estimator, X=task.X, y=task.y, reconstruction_attributes=dict
        )
        if wants_stop:
            raise lgb.callback.EarlyStopException(env.iteration, env.evaluation_result_list or [])

    return report
