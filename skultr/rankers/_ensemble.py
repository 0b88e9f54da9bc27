"""Several rankers and the production ranker, weighted by the clicks of held-out queries."""

from __future__ import annotations

from dataclasses import dataclass
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
from ._candidates import DistinctCandidates, candidates_of, standardized, typical_spread
from ._members import HoldsMembers, fit_members, scores_of
from ._propensity_ranker import TakesPropensities
from ._thresholds import LEAST_QUERIES, MANY_CANDIDATES, MOST, SHARE_OF_PRODUCTION, UNCONFIRMED
from ._weights import cross_fitted, likeliest_weights, parts_of_queries

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask


#: Name of the member that is the role; and the relative spread, in a query, up to which its
#: scores count as constant: they are in float64, those of members in float32.
_PRODUCTION, _EXACT = "production", 1e-12


@dataclass(eq=False, repr=False)
class EnsembleRanker(HoldsMembers, TakesPropensities):
    r"""Weighted mean of a naive ranker, debiased rankers and your production ranker.

    The recommended first choice. Other rankers correct clicks always; whether that pays is decided
    here, by what served the log. A debiased ranker is best where its assumptions hold and clicks
    are many, a naive one where clicks are few, and the production ranker may be better than both
    (:ref:`never_worse`).

    A score is :math:`\sum_m w_m z_m(x)`. Here :math:`z_m` is the score of member :math:`m` less
    its mean over the documents of the log, over the median of its standard deviations within the
    queries of the log. It is a function of one document, which ``export_model`` can write.

    If the log has the role ``production``, held-out clicks choose the weights. Each member is
    fitted to a part of the queries and scores the others, whose clicks have the likelihood
    :math:`\prod_i \mathrm{softmax}(\sum_m w_m z_m + h_b)_i^{c_i}`. The effects :math:`h_b` of
    the bias factors are free parameters, so that errors of a curve do not change the weights. The
    weights, :math:`w \ge 0`, maximise the posterior under a normal prior. Its mean is half for
    production and equal parts of the rest for the others, times the factor with which this mixture
    fits best; each standard deviation is half of the mean, so that few clicks change little. If
    this factor is 0, because clicks confirm no mixture, production has three quarters. If
    production gets more than 0.9, all weights move towards the prior until it has 0.9. Then all
    members are fitted to the log (:ref:`ensemble_ranker`).

    Without this role all members weigh alike. Clicks then cannot tell a member that found
    relevance from one that found what production selects.

    Parameters
    ----------
    estimators : list of (str, ranker), "trees" or None, default=None
        Members by name. A clone of each is fitted. The default is

        - ``"naive"``: ``LambdaMARTRanker(naive_weight=1.0, num_leaves=7)``,
        - ``"network"``: ``IPSRanker(correction="offset")``,
        - ``"trees"``: ``LambdaMARTRanker(num_leaves=7)``.

        "trees" leaves out the network: the ensemble takes what trees take, categories and missing
        values, and ``export_model`` writes it as one forest.

        If the log has the role ``production``, the score of the production ranker is one more
        member of this name. Members whose parameter ``propensity`` is None or "column" get the
        shared curve; others bring their own. Members get the features as an array, so that their
        propensities cannot read columns by name, and must be able to score documents of other
        queries.
    propensity : "column", array-like of shape (n_positions,), estimator, or None, default=None
        The shared curve, if it is known: the role ``propensity``, examination probabilities by
        position, or an estimator of :mod:`skultr.propensity`. None takes the role if the log has
        it. Without it the curve is learned once for all members: from documents that moved, and
        by dual learning where they do not determine it.
    cv : int, default=2
        Number of parts of the queries for cross-fitting, where trees stop after half of their
        ``n_iter_no_change``. With 2, a fit takes up to twice as long as that of its members,
        with 5 five times. Not used without the role ``production``.
    n_jobs : int, default=None
        Number of processes for cross-fitting; None means 1, and -1 all cores.
    random_state : int, RandomState instance or None, default=None
        Seed of the parts of the queries, and of the members that have no ``random_state`` of
        their own.

    Attributes
    ----------
    weights_ : DataFrame of shape (n_members, 5)
        By member (index ``member``): ``weight``, which sums to 1; its ``standard_error`` over
        queries, NaN where the weight is 0 or not estimated; ``loss``, the cross-fitted loss
        of the member alone in nats per click, after rescaling its scores to fit best, with free
        effects of bias factors, NaN without production; ``center``, the mean of its scores over
        the documents of the log, each once in its query; and ``scale``, the median of their
        standard deviations within queries, infinite if it scores all alike.
    estimators_ : list of rankers
        The clones, fitted to the whole log. Their ids of queries and documents are running
        numbers.
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
        If too few queries have clicks, so that the weights are those of the prior.

    See Also
    --------
    RankAggRanker : The mean rank by members with given weights.

    Notes
    -----
    *Candidates that were never shown.* Clicks do not measure how good the members are there. If
    a query has more than four times as many candidates as the log showed per query (``depth_``),
    ``predict`` ranks the first ``depth_`` by the production ranker anew, and the others follow in
    its order. Without
    its score, rank only those that it would show. An exported model does not do this: let the
    engine rescore the first ``depth_``.

    *Scales.* Held-out clicks choose the weights for scores that are standardised within each
    query; ``predict`` has one scale for all queries, the median of their standard deviations.

    *Memorised labels.* The production ranker may have been trained on labels of the queries in
    the log. It is then better there than on other queries, for which its weight is too large; in
    the log this looks the same as a signal that the features lack. It has 0.9 at most for this
    reason.

    References
    ----------
    Wolpert (1992). Stacked generalization. Neural Networks. Breiman (1996). Stacked regressions.
    Machine Learning, for non-negative weights.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.rankers import EnsembleRanker
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
        return any(getattr(each, "_reads_whole_queries", True) for _, _, each in self._terms()[0])

    def _parts(self, X, qid, production=None):
        """What each member contributes to each row, shape (n_rows, n_members)."""
        check_is_fitted(self)
        features = self._read_features(X, reset=False)
        weight, center, factors = self._factors()
        has_production = len(weight) > len(self.estimators_)
        if has_production or self._reads_whole_queries:
            query = encode(self._known_query_ids(X, qid, "predict"))[0]
        else:
            query = np.zeros(len(features), dtype=np.int64)
        parts = np.zeros((len(query), len(weight)))
        for m, ranker in enumerate(self.estimators_):
            if factors[m]:
                parts[:, m] = factors[m] * (scores_of(ranker, features, query) - center[m])
        if has_production:
            served = read_role(X, _PRODUCTION, production)
            # A log repeats documents over its pages; they count once.
            candidates = DistinctCandidates.of_rows(X, features, query, served)
            if served is None:
                self._check_without_production(np.bincount(query[candidates.first]).max(initial=0))
                return parts
            _faults.check({_PRODUCTION: served})
            served = candidates.mean(served)
            parts[:, -1] = factors[-1] * (served - center[-1])
            _put_in_front(parts, served, query, candidates, self.depth_)
        return parts

    def _factors(self):
        """Weights, centers, and weights over scales."""
        weight, _, _, center, scale = self.weights_.to_numpy().T
        return weight, center, weight / scale

    def _terms(self):
        """Factors, centers and rankers; and factor and center of production.

        A score is the sum of each factor times what the score is above the center.
        """
        _, center, factors = self._factors()
        rows = zip(factors.tolist(), center.tolist(), [*self.estimators_, None], strict=False)
        terms = [row for row in rows if row[0]]
        production = terms.pop()[:2] if terms and terms[-1][2] is None else (0.0, 0.0)
        return terms, production

    def _check_without_production(self, n_candidates):
        weight = self.weights_.loc[_PRODUCTION, "weight"]
        if weight or n_candidates > MANY_CANDIDATES.value * self.depth_:
            many = f"selects which of {n_candidates} candidates are ranked anew"
            why = f"has the weight {weight:.2f}" if weight else many
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
        members = [
            (name, seeded_clone(ranker, random.randint(2**31 - 1)))
            for name, ranker in self._members()
        ]
        part = parts_of_queries(log, self.cv, random)
        self._fit_weights(log, members, part)
        self.depth_ = shown_depth(log)
        is_told = not self._curve_is_learned
        self.estimators_ = fit_members([ranker for _, ranker in members], log, is_told=is_told)
        self._names = [name for name, _ in members]
        self._remember_scales(log, part)

    def _set_examination(self, clicks, propensity):
        if self._curve is None:
            self.examination_ = examination_table(clicks, propensity)
        else:
            self.examination_ = self._curve.table

    @property
    def _refuses_outcomes(self):
        own = [name for name, each in self._members() if getattr(each, "_learns_examination", 0)]
        if own:
            return f"has members that learn examination from what they are fitted to: {own}"
        return None

    def _fit_weights(self, log, members, part):
        """Set the weights of the members: equal ones, or those that held-out clicks choose."""
        names = [name for name, _ in members]
        weights = np.full(len(members), 1 / len(members))
        error = np.nan
        losses = np.nan
        if log.production is not None:
            names.append(_PRODUCTION)
            prior = _with_production(weights, SHARE_OF_PRODUCTION.value)
            unconfirmed = _with_production(weights, UNCONFIRMED.value)
            if part is None:
                weights = prior
                self._warn_of_few_queries()
            else:
                held_out = self._held_out(log, [ranker for _, ranker in members], part)
                losses = [each.sum() for each in held_out.losses()]
                weights, error = likeliest_weights(held_out, prior, unconfirmed)
                if weights[-1] > MOST.value:
                    back = (weights[-1] - MOST.value) / (weights[-1] - prior[-1])
                    weights = weights + back * (prior - weights)
                    error = (1 - back) * error
        self.weights_ = pd.DataFrame(
            {"weight": weights, "standard_error": error, "loss": losses},
            index=pd.Index(names, name="member"),
        )

    def _held_out(self, log, rankers, part):
        """Clicks given scores of production, and of members that were fitted to other queries."""
        scores = cross_fitted(log, rankers, part, self.n_jobs)
        served, query, place = _production_of(log)
        served = standardized(served, query, _EXACT)[place]
        return FreeEffects(log, np.column_stack([scores, served]))

    def _warn_of_few_queries(self):
        least = max(LEAST_QUERIES.value, self.cv)
        warn_user(
            f"Fewer than {least:g} queries have clicks, too few to learn the weights of the "
            "members: they are those of the prior. Log more queries.",
            ClickDataWarning,
        )

    def _remember_scales(self, log, part):
        """Set the mean of each member's scores, and their standard deviation within queries."""
        query, version = np.divmod(candidates_of(log)[0], log.n_versions)
        part = np.zeros(len(log.query_ids), dtype=int) if part is None else part
        # In parts: the features of all are many.
        order = np.argsort(part[query], kind="stable")
        pieces = np.split(order, np.flatnonzero(np.diff(part[query[order]])) + 1)
        found = []
        for each in self.estimators_:
            scores = [scores_of(each, log.features[version[p]], query[p]) for p in pieces]
            found.append((np.concatenate(scores), query[order], 1e-6))
        if log.production is not None:
            found.append((*_production_of(log)[:2], _EXACT))
        center, scale = zip(
            *((each[0].mean(), typical_spread(*each)) for each in found), strict=True
        )
        # One block in memory, which every request reads.
        self.weights_ = self.weights_.assign(center=center, scale=scale).copy()


def _networks_and_trees():
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


def shown_depth(log: ClickLog) -> int:
    """Number of documents that the log showed per query: the median over impressions.

    It is at least the number of rows of the longest page.
    """
    n_shown = log.count_by_query(log.doc)
    impressions = log.by_query(log.weight)
    order = np.argsort(n_shown, kind="stable")
    share = np.cumsum(impressions[order]) / impressions.sum()
    median = n_shown[order][np.searchsorted(share, 0.5)]
    return int(max(median, log.position.max()))


def _production_of(log):
    """Mean score of production for each candidate, its query, and the place of each row."""
    candidates, place = candidates_of(log)
    served = np.bincount(place, log.production) / np.bincount(place)
    return served, candidates // log.n_versions, place


def _put_in_front(parts, served, query, candidates, depth):
    """Put the first ``depth`` by production in front, where a query has many candidates.

    Most of the others were never shown, and no click says how good a model is for them: they
    follow in the order of production.
    """
    once = query[candidates.first]
    many = MANY_CANDIDATES.value * depth
    if np.bincount(once).max(initial=0) <= many:
        return
    place = rank_in_segment(once, served[candidates.first])
    inside = ((np.bincount(once) <= many)[once] | (place <= depth))[candidates.place]
    least = np.full((int(query.max()) + 1, parts.shape[1]), np.inf)
    np.minimum.at(least, query[inside], parts[inside])
    parts[~inside] = least[query[~inside]]
    parts[~inside, -1] -= place[candidates.place][~inside]
