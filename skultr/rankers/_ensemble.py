"""Several rankers and the production ranker, weighted by the clicks of held-out queries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._base._sklearn import Interval, StrOptions, seeded_clone
from .._base._typing import ArrayLike, Column, Estimator, Floats, RandomState, Table
from .._log import _faults
from .._log._cells import examination_table
from .._log._roles import read_role
from .._log._segments import encode, rank_in_segment
from .._models._free_effects import FreeEffects
from ..exceptions import ClickDataWarning, warn_user
from ..propensity._source import PROPENSITY_CONSTRAINT
from ._candidates import (
    ROUNDING_OF_DOUBLE,
    DistinctCandidates,
    candidates_of,
    standardized,
    typical_spread,
)
from ._judged import Sources, judged_ranker, read_judgments_of
from ._judged_weights import ClicksAndGrades, cross_fitted_to_both, grades_of, with_production
from ._members import HoldsMembers, fit_members, scores_of
from ._propensity_ranker import TakesPropensities
from ._ranker import fit_to_log
from ._thresholds import (
    LEAST_QUERIES,
    MANY_CANDIDATES,
    MOST,
    SHARE_OF_JUDGED,
    SHARE_OF_PRODUCTION,
    UNCONFIRMED,
)
from ._weights import cross_fitted, likeliest_weights, parts_of_queries

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask


#: Name of the member that is the score of the production ranker: that of its role.
_PRODUCTION = "production"
#: Standard deviation of a weight before clicks are seen, as a share of its mean.
_SPREAD = 0.5
#: The same with judgments. They may be excellent or worthless, so that weights must move more:
#: with three quarters, wrong ones cost less than with a half.
_SPREAD_OF_JUDGED = 0.75
#: Name of the member that learns from judgments.
_JUDGED = "judged"


@dataclass(eq=False, repr=False)
class EnsembleRanker(HoldsMembers, TakesPropensities):
    r"""Combines a naive ranker, debiased rankers and your production ranker, weighted by clicks.

    This is the recommended first choice. Other rankers always correct the clicks; here held-out
    clicks decide whether that pays (:ref:`never_worse`):

    - A debiased ranker is best where its assumptions hold and clicks are many.
    - A naive ranker is best where clicks are few.
    - The production ranker may be better than both.

    A score is :math:`\sum_m w_m z_m(x)`, with :math:`z_m` the standardised score of member
    :math:`m`: its score less its mean over the documents of the log, divided by the median of its
    standard deviations within the queries of the log. It is a function of one document, which
    ``export_model`` can write.

    If the log has the role ``production``, held-out clicks choose the weights. Each member is
    fitted to a part of the queries and scores the others, whose clicks have the likelihood
    :math:`\prod_i \mathrm{softmax}(\sum_m w_m z_m + h_b)_i^{c_i}`. The effects :math:`h_b` of
    the bias factors are free parameters, so that errors of a curve do not change the weights. The
    weights, :math:`w \ge 0`, maximise the posterior under a normal prior. In the end all members
    are fitted to the whole log (:ref:`ensemble_ranker`).

    Before any click is seen, production has half of the weight and the other members share the
    rest. The sum of these weights is the one with which they fit best. Each weight may move by
    about half of its value; few clicks move it little. If held-out clicks support no mixture at
    all, production gets three quarters. It never gets more than 0.9: beyond, all weights move
    back towards those before clicks.

    Without the role ``production`` all members weigh alike. Clicks then cannot tell a member that
    found relevance from one that found what production selects.

    With ``fit(log, y, judgments=table)`` the ensemble has one more member, "judged": trees that
    learn from the judgments alone (:ref:`judgments_beside_clicks`). Held-out clicks and held-out
    judgments together choose the weights, also without the role ``production``, because judgments
    do not depend on what was shown. Before any of both is seen, this member has half of the
    weight, and the others, production among them, share the rest alike. Clicks and judgments
    count as much as the queries of each agree. Each weight may move by three quarters of its
    value. Judgments that are wrong lose weight.

    Parameters
    ----------
    estimators : list of (str, ranker), "trees" or None, default=None
        Members by name. A clone of each is fitted. The default is

        - ``"naive"``: ``LambdaMARTRanker(naive_weight=1.0, num_leaves=7)``,
        - ``"network"``: ``IPSRanker(correction="offset")``,
        - ``"trees"``: ``LambdaMARTRanker(num_leaves=7)``.

        "trees" leaves out the network. The ensemble then takes what trees take, categories and
        missing values, and ``export_model`` writes it as one forest.

        If the log has the role ``production``, the score of the production ranker is one more
        member, called "production". Members whose parameter ``propensity`` is None or "column"
        get the shared curve; others bring their own. Members get the features as an array: their
        propensities cannot read columns by name. They must be able to score documents of other
        queries.
    propensity : "column", array-like of shape (n_positions,), estimator, or None, default=None
        The shared curve, if it is known: the role ``propensity``, examination probabilities by
        position, or an estimator of :mod:`skultr.propensity`. None takes the role if the log has
        it. Without it the curve is learned once for all members: from documents that moved, and
        by dual learning where they do not determine it.
    cv : int, default=2
        Number of parts of the queries for cross-fitting. With 2, a fit takes up to twice as long
        as that of its members, with 5 five times. In cross-fitting, trees stop after half of
        their ``n_iter_no_change``. Not used without the role ``production`` and judgments.
    n_jobs : int, default=None
        Number of processes for cross-fitting; None means 1, and -1 all cores.
    random_state : int, RandomState instance or None, default=None
        Seed of the parts of the queries, and of the members that have no ``random_state`` of
        their own.

    Attributes
    ----------
    weights_ : DataFrame of shape (n_members, 5)
        By member (index ``member``):

        - ``weight``: these sum to 1.
        - ``standard_error``: that of the weight, over queries; NaN where the weight is 0 or not
          estimated. It shrinks as a weight :math:`w` grows. Whether the weight may be 0, tell from
          its odds: :math:`w (1 - w)` over ``standard_error`` is their distance from 0 in standard
          errors.
        - ``loss``: the cross-fitted loss of the member alone, in nats per click. Its scores are
          rescaled to fit best, with free effects of bias factors. NaN if no weights are learned.
        - ``center``: the mean of its scores over the documents of the log, each once in its
          query.
        - ``scale``: the median of their standard deviations within queries; infinite if it
          scores all alike.
    estimators_ : list of rankers
        The clones, fitted to the whole log, and behind them the member of judgments, if there
        are some. Their ids of queries and documents are running numbers.
    named_estimators_ : Bunch
        The same by name.
    examination_ : DataFrame
        The shared curve: ``examination`` of each bias factor (index ``bias``), relative to that
        of the first factor, with ``impressions`` and ``clicks``; where it was learned, also the
        ``standard_error`` of its logarithm. Of given propensities it is the mean over
        impressions.
    examination_comparison_ : DataFrame
        Only where dual learning was needed for the shared curve: what documents that moved say
        (``table``), the ``network`` and both ``combined``, by bias factor.
    propensity_ : estimator
        The fitted clone, if ``propensity`` is an estimator. Pickles leave out curves of users.
    judged_queries_ : ndarray of shape (n_judged_queries,)
        Only of a fit with judgments: ids of the queries whose judgments trained a member. The
        metrics of these queries are too high: scorers and comparisons warn if they are annotated.
    depth_ : int
        Number of documents that the log showed per query: the median over impressions, and at
        least a page.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    Warns
    -----
    NotIdentifiableWarning
        If the shared curve is learned and no document links some bias factors.
    AssumptionWarning
        If clicks contradict the given propensities.
    ClickDataWarning
        If too few queries have clicks, so that the weights are those of the prior; if judged
        pairs have no features, and are left out; or if no relevant judged document has a score of
        production, so that only clicks choose the weights.

    See Also
    --------
    RankAggRanker : The mean rank by members with given weights.

    Notes
    -----
    *Candidates that were never shown.* Clicks say nothing about how good the members are there.
    If a query has more than four times as many candidates as the log showed per query
    (``depth_``), ``predict`` only ranks anew the first ``depth_`` by the production ranker. The
    others follow in the order of production. If you have no score of production, rank only the
    candidates that it would show. An exported model ranks all: let the engine rescore the first
    ``depth_``.

    *Exactness.* Weights are as exact as the documents and queries of the log are many: more clicks
    on the same documents hardly help. They are inexact where production hardly changes its order:
    what its score explains within a position is then little, and even a useless score may keep a
    part of the weight. It loses this part as queries become many, and sooner where the order
    varies.

    *Scales.* Held-out clicks choose the weights for scores that are standardised within each
    query; ``predict`` has one scale for all queries, the median of their standard deviations.

    *Judgments.* Rows of one query and document with several versions of the features have those
    of the first row. The ids are text in files: "7" is the id 7 of the log. Scores of production
    are the role of the log, or the column ``production`` of the judgments. A search passes the
    table to each fit as it is; but scikit-learn splits a frame with as many rows as the log, so
    add a row without ``relevance`` then. In a Pipeline, judgments that bring features of their
    own need ``transform_input=["judgments"]``. Queries that teach must not be those that a
    search scores: take them out of the table first, or scorers warn.

    *Memorised labels.* The production ranker may have been trained on labels of the queries in
    the log. It is then better there than on other queries, and its weight is too large for these.
    In the log this looks the same as a signal that the features lack. This is why its weight is
    0.9 at most.

    References
    ----------
    Wolpert (1992). Stacked generalization. Neural Networks. Breiman (1996). Stacked regressions.
    Machine Learning, for non-negative weights.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr import EnsembleRanker
    >>> from skultr.simulation import PlackettLucePolicy, production_scores, simulate_clicks
    >>> documents = make_ltr(n_queries=50, n_features=20, random_state=0)
    >>> documents["production"] = production_scores(documents, random_state=0)
    >>> log, clicks, truth = simulate_clicks(
    ...     documents,
    ...     n_sessions=2000,
    ...     policy=PlackettLucePolicy(),
    ...     scores=documents["production"],
    ...     random_state=0,
    ... )
    >>> ranker = EnsembleRanker(random_state=0).fit(log, clicks)
    >>> ranker.weights_.index.tolist()
    ['naive', 'network', 'trees', 'production']
    >>> bool(np.isclose(ranker.weights_["weight"].sum(), 1))
    True
    >>> parts = ranker.explain(documents)
    >>> bool(np.allclose(parts.sum(axis=1), ranker.predict(documents)))
    True
    """

    estimators: list[tuple[str, Any]] | Literal["trees"] | None = None
    propensity: ArrayLike | Estimator | None = None
    cv: int = 2
    n_jobs: int | None = None
    random_state: RandomState = None

    _parameter_constraints = {
        "estimators": [list, StrOptions({"trees"}), None],
        "propensity": PROPENSITY_CONSTRAINT,
        "cv": [Interval(Integral, 2, None, closed="left")],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }
    __metadata_request__predict = {"qid": True, "production": True}
    _reads_production = True
    _takes_judgments = True

    @property
    def _reads_users(self):
        return self._any_member("_reads_users")

    def predict(
        self, X: Table, *, qid: Column | None = None, production: Column | None = None
    ) -> Floats:
        """Weighted mean of the scaled scores of the members; higher is more relevant.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            Documents. X may be a log: where candidates are counted, a document counts once. Rows
            are one document if their features are equal, and their ids in the column ``doc``, or
            without this column their ``production``.
        qid : array-like of shape (n_rows,), default=None
            Query ids; by default the column ``qid`` of X. They count candidates if production is
            a member, and members may need them. Without either, all rows then count as one query,
            with a warning.
        production : array-like of shape (n_rows,), default=None
            Score of the production ranker; by default the column ``production`` of X. Needed
            if it has a weight, or if candidates are many.

        Returns
        -------
        scores : ndarray of shape (n_rows,)

        Raises
        ------
        ValueError
            If the score of the production ranker is needed and absent.
        """
        return self._parts(X, qid, production).sum(axis=1)

    def explain(
        self, X: Table, *, qid: Column | None = None, production: Column | None = None
    ) -> pd.DataFrame:
        """Contribution of each member to the score of each row.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            Documents.
        qid, production : array-like of shape (n_rows,), default=None
            As in ``predict``.

        Returns
        -------
        parts : DataFrame of shape (n_rows, n_members)
            By row of X, from 0: the weight of the member times its scaled score. The sum of
            a row is its prediction.
        """
        return pd.DataFrame(self._parts(X, qid, production), columns=self.weights_.index.to_list())

    def _scores_within(self, X: Table, qid: NDArray[Any]) -> Floats:
        return self._parts(X, qid).sum(axis=1)

    @property
    def _reads_whole_queries(self):
        rankers = [ranker for _, _, ranker in self._terms()[0]]
        return any(getattr(ranker, "_reads_whole_queries", True) for ranker in rankers)

    def _parts(self, X, qid, production=None):
        """What each member contributes to each row, shape (n_rows, n_members)."""
        check_is_fitted(self)
        features = self._read_features(X, reset=False)
        # A score is the sum over members of weight / scale * (score - center).
        weight, center, factors = self._factors()
        has_production = len(weight) > len(self.estimators_)
        # Query ids are only needed where other rows of the query matter.
        if has_production or self._reads_whole_queries:
            query, _ = encode(self._known_query_ids(X, qid, "predict"))
        else:
            query = np.zeros(len(features), dtype=np.int64)
        parts = np.zeros((len(query), len(weight)))
        for m, ranker in enumerate(self.estimators_):
            # A member without weight is not asked: that saves its time.
            if factors[m]:
                parts[:, m] = factors[m] * (scores_of(ranker, features, query) - center[m])
        if has_production:
            served = read_role(X, _PRODUCTION, production)
            # A log repeats documents over its pages; they count once.
            candidates = DistinctCandidates.of_rows(X, features, query, served)
            self._add_production(parts, served, query, candidates)
        return parts

    def _add_production(self, parts, served, query, candidates):
        """Add the part of production, which also selects the candidates that are ranked anew."""
        if served is None:
            n_candidates = np.bincount(query[candidates.first])
            self._check_without_production(n_candidates.max(initial=0))
            return
        _faults.check({_PRODUCTION: served})
        _, center, factors = self._factors()
        # One score of production per candidate, as it may differ from page to page.
        served = candidates.mean(served)
        parts[:, -1] = factors[-1] * (served - center[-1])
        _put_in_front(parts, served, query, candidates, self.depth_)

    def _factors(self):
        """Weights, centers, and weights over scales; arrays by member."""
        weight, _, _, center, scale = self.weights_.to_numpy().T
        return weight, center, weight / scale

    def _terms(self):
        """Factors, centers and rankers; and factor and center of production.

        A score is the sum of each factor times what the score is above the center.
        """
        _, center, factors = self._factors()
        # Production, if it is a member, is the last, and no ranker here.
        rows = zip(factors.tolist(), center.tolist(), [*self.estimators_, None], strict=False)
        terms = [row for row in rows if row[0]]
        production = (0.0, 0.0)
        if terms and terms[-1][2] is None:
            production = terms.pop()[:2]
        return terms, production

    def _check_without_production(self, n_candidates):
        # Production is missed if it has a weight, or if it selects the candidates.
        weight = self.weights_.loc[_PRODUCTION, "weight"]
        if weight:
            why = f"has the weight {weight:.2f}"
        elif n_candidates > MANY_CANDIDATES.value * self.depth_:
            why = f"selects which of {n_candidates} candidates are ranked anew"
        else:
            return
        raise ValueError(
            f"X has no column {_PRODUCTION!r} and no {_PRODUCTION}= was passed, but this "
            f"member of the ensemble {why}. Add the score of the production ranker for "
            "each candidate, or drop the column from the log and fit again."
        )

    def _validate_params(self):
        super()._validate_params()
        if _PRODUCTION in [name for name, _ in self._members()]:
            raise ValueError(
                f"A member is called {_PRODUCTION!r}, which is the name of the role. Choose "
                "another name."
            )

    @property
    def _tells_users_apart(self):
        return self._reads_users or self.propensity is not None  # which may be of users

    @property
    def _has_default_members(self):
        word = self.estimators
        return word is None or (isinstance(word, str) and word in _DEFAULTS)

    def _members(self):
        return _DEFAULTS[self.estimators]() if self._has_default_members else self.estimators

    def _fit(self, log: ClickLog, task: FitTask) -> None:
        random = check_random_state(self.random_state)
        self._set_examination(self._click_log or log, log.propensity)
        # Each member has a seed of its own: two equal learners are two draws.
        names = []
        rankers = []
        for name, ranker in self._members():
            names.append(name)
            rankers.append(seeded_clone(ranker, random.randint(2**31 - 1)))
        # Weights first, by fits to parts of the queries; then each member learns from all.
        part = parts_of_queries(log, self.cv, random)
        teacher = None
        if self._judged is not None:
            self.judged_queries_ = np.asarray(self._judged.log.query_ids)
            names.append(_JUDGED)
            teacher = judged_ranker(random.randint(2**31 - 1))
        self._fit_weights(log, names, rankers, part, teacher, random)
        self.depth_ = shown_depth(log)
        is_told = not self._curve_is_learned
        self.estimators_ = fit_members(rankers, log, is_told=is_told)
        if teacher is not None:
            self.estimators_.append(fit_to_log(teacher, self._judged.log))
        self._names = names
        self._remember_scales(log, part)

    def _read_judgments(self, judgments, X, log, roles):
        if _JUDGED in [name for name, _ in self._members()]:
            raise ValueError(
                f"A member is called {_JUDGED!r}, which is the name of the one that learns from "
                "judgments. Choose another name."
            )
        table = vars(self).get("_feature_table")
        sources = Sources(X, log, roles, table, lambda X: self._read_features(X, reset=False))
        names = getattr(self, "feature_names_in_", None)
        judged = read_judgments_of(judgments, sources, names)
        categorical = self._places_of_categories()
        return replace(judged, log=replace(judged.log, categorical=categorical))

    def _set_examination(self, clicks, propensity):
        if self._curve is None:
            self.examination_ = examination_table(clicks, propensity)
        else:
            self.examination_ = self._curve.table

    @property
    def _refuses_outcomes(self):
        # They would take what the outcome depends on for examination.
        learning = [
            name
            for name, ranker in self._members()
            if getattr(ranker, "_learns_examination", False)
        ]
        if not learning:
            return None
        return f"has members that learn examination from what they are fitted to: {learning}"

    def _fit_weights(self, log, names, rankers, part, teacher, random):
        """Set the weights of the members: equal ones, or those that held-out queries choose."""
        # Without production and judgments, clicks say nothing about weights.
        weights = np.full(len(rankers), 1 / len(rankers))
        unconfirmed = weights
        error = np.nan
        losses = np.nan
        if log.production is not None:
            names = [*names, _PRODUCTION]
            unconfirmed = _with_production(weights, UNCONFIRMED.value)
            weights = _with_production(weights, SHARE_OF_PRODUCTION.value)
        if teacher is not None:
            # Judgments know better than a guess how good production is.
            weights = np.full(len(weights), 1 / len(weights))
            unconfirmed = _with_judged(unconfirmed, len(rankers))
            weights = _with_judged(weights, len(rankers))
        if log.production is not None or teacher is not None:
            if part is None:
                self._warn_of_few_queries()
            else:
                prior = weights
                clicks, evidence = self._held_out(log, rankers, part, teacher, random, prior)
                losses = [loss.sum() for loss in clicks.losses()]
                spread = _SPREAD if teacher is None else _SPREAD_OF_JUDGED
                weights, error = likeliest_weights(evidence, prior, unconfirmed, spread)
                if log.production is not None:
                    weights, error = _bounded(weights, error, prior)
        self.weights_ = pd.DataFrame(
            {"weight": weights, "standard_error": error, "loss": losses},
            index=pd.Index(names, name="member"),
        )

    def _held_out(self, log, rankers, part, teacher, random, prior):
        """Clicks given scores of production, and of members that were fitted to other queries.

        And all that weighs the members: the clicks, or these and the grades of judged queries.
        """
        # Each query is scored by members that were fitted to the other parts.
        judged = self._judged
        if judged is None:
            scores = cross_fitted(log, rankers, part, self.n_jobs)
        else:
            both = [*rankers, teacher]
            scores, judged_scores = cross_fitted_to_both(
                log, both, part, judged, random, self.n_jobs
            )
            grades = grades_of(judged, judged_scores, len(log.query_ids))
        if log.production is not None:
            served, query, place = _production_of(log)
            served = standardized(served, query, ROUNDING_OF_DOUBLE)[place]
            scores = np.column_stack([scores, served])
            if judged is not None:
                grades = with_production(grades, judged.production)
        clicks = FreeEffects(log, scores)
        if judged is None:
            return clicks, clicks
        if grades is None:
            self._warn_of_grades_without_production()
            return clicks, clicks
        return clicks, ClicksAndGrades(clicks, grades, prior)

    def _warn_of_grades_without_production(self):
        warn_user(
            "No relevant document of the judgments has a score of the production ranker, so that "
            "only clicks choose the weights. Add it to judgments as the column 'production'.",
            ClickDataWarning,
        )

    def _warn_of_few_queries(self):
        least = max(LEAST_QUERIES.value, self.cv)
        warn_user(
            f"Fewer than {least:g} queries have clicks, too few to learn the weights of the "
            "members: they are those of the prior. Log more queries.",
            ClickDataWarning,
        )

    def _remember_scales(self, log, part):
        """Set the mean of each member's scores, and their standard deviation within queries."""
        candidates, _ = candidates_of(log)
        query, version = np.divmod(candidates, log.n_versions)
        # In the parts of the queries: the features of all candidates at once are many.
        if part is None:
            part = np.zeros(len(log.query_ids), dtype=int)
        order = np.argsort(part[query], kind="stable")
        ends = np.flatnonzero(np.diff(part[query[order]])) + 1
        pieces = np.split(order, ends)
        center = []
        scale = []
        for ranker in self.estimators_:
            scores = [
                scores_of(ranker, log.features[version[piece]], query[piece]) for piece in pieces
            ]
            scores = np.concatenate(scores)
            center.append(scores.mean())
            scale.append(typical_spread(scores, query[order]))
        if log.production is not None:
            served, query, _ = _production_of(log)
            center.append(served.mean())
            scale.append(typical_spread(served, query, ROUNDING_OF_DOUBLE))
        # One block in memory, which every request reads.
        self.weights_ = self.weights_.assign(center=center, scale=scale).copy()


def _networks_and_trees():
    # Networks import torch, which an ensemble of trees does not need.
    from ._ips import IPSRanker

    naive, trees = _trees()
    return [naive, ("network", IPSRanker(correction="offset")), trees]


def _trees():
    from ._lambdamart import LambdaMARTRanker

    return [
        ("naive", LambdaMARTRanker(naive_weight=1.0, num_leaves=7)),
        ("trees", LambdaMARTRanker(num_leaves=7)),
    ]


#: What a word for ``estimators`` stands for.
_DEFAULTS = {None: _networks_and_trees, "trees": _trees}


def _with_production(weights, share):
    """Weights of members and production, of which production has a share."""
    return np.append(weights * (1 - share), share)


def _with_judged(weights, place):
    """Weights with that of the member of judgments at its place: the others share the rest."""
    share = SHARE_OF_JUDGED.value
    return np.insert(weights * (1 - share), place, share)


def _bounded(weights, error, prior):
    """Weights and errors, moved towards the prior if production has more than it may have."""
    # Production is the last of the weights.
    excess = weights[-1] - MOST.value
    if excess <= 0:
        return weights, error
    # The share of the way to the prior on which production has just as much.
    back = excess / (weights[-1] - prior[-1])
    return weights + back * (prior - weights), (1 - back) * error


def shown_depth(log: ClickLog) -> int:
    """Number of documents that the log showed per query: the median over impressions.

    It is at least the number of rows of the longest page.
    """
    # A query weighs as much as it was asked: rare queries have many documents by chance.
    n_shown = log.count_by_query(log.doc)
    impressions = log.by_query(log.weight)
    order = np.argsort(n_shown, kind="stable")
    share = np.cumsum(impressions[order]) / impressions.sum()
    median = n_shown[order][np.searchsorted(share, 0.5)]
    return int(max(median, log.position.max()))


def _production_of(log):
    """Mean score of production for each candidate, its query, and the place of each row."""
    # Its score may have changed between sessions.
    candidates, place = candidates_of(log)
    served = np.bincount(place, log.production) / np.bincount(place)
    return served, candidates // log.n_versions, place


def _put_in_front(parts, served, query, candidates, depth):
    """Put the first ``depth`` by production in front, where a query has many candidates.

    Most of the others were never shown, and no click says how good a model is for them: they
    follow in the order of production.
    """
    query_of_candidate = query[candidates.first]
    n_candidates = np.bincount(query_of_candidate)
    has_few = n_candidates <= MANY_CANDIDATES.value * depth
    if has_few.all():
        return
    # Place of each candidate by production; all of a query with few are in front.
    place = rank_in_segment(query_of_candidate, served[candidates.first])
    is_front = has_few[query_of_candidate] | (place <= depth)
    is_front = is_front[candidates.place]
    # The others: below the lowest score in front, by their place in the order of production.
    least = np.full((int(query.max()) + 1, parts.shape[1]), np.inf)
    np.minimum.at(least, query[is_front], parts[is_front])
    parts[~is_front] = least[query[~is_front]]
    parts[~is_front, -1] -= place[candidates.place][~is_front]
