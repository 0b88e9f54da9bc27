"""Propensity ratio scoring: pairs of a click and a missing click."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .._log._cells import loss_scale
from .._log._segments import pair_codes, rectangles
from .._torch._losses import ListLoss, propensity_ratio_loss
from .._torch._networks import ListScores
from ..propensity._weights import document_labels, examples_of
from ._contradiction import warn_about_one_row_pages
from ._ips import LearnerRanker
from ._learners import PairObjective, booster_columns, fit_learner
from ._propensity_ranker import PropensityRanker

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask


@dataclass(kw_only=True, eq=False, repr=False)
class PRSRanker(PropensityRanker, LearnerRanker):
    r"""Propensity ratio scoring: missing clicks weigh less where examination is less likely.

    Every clicked row is compared with every row that was not clicked in the same list. A pair
    weighs :math:`p_j / p_i`: the click :math:`i` by its inverse propensity, and the missing click
    :math:`j` by its propensity, because a missing click is weak evidence of irrelevance if the
    row was seldom examined (Wang et al. 2021). The loss of a pair is logistic, multiplied by the
    change of nDCG if the two are swapped:

    .. math::
        L = \sum_{c_i = 1, c_j = 0} \frac{p_j}{p_i}\,
            |\Delta\mathrm{nDCG}_{ij}|\, \log(1 + e^{s_j - s_i}) .

    The clicked row is the winner, regardless of which of the two the model ranks higher.

    Assumes that a document is relevant to all users or to none. If users find a document relevant
    with some probability, as with graded relevance, the pairs do not order documents by that
    probability, and the ranker can be worse than the naive one: then use :class:`IPSRanker`.

    Parameters
    ----------
    propensity : "column", array-like of shape (n_positions,), estimator or None, default=None
        Source of the examination probabilities, as in :class:`IPSRanker`.
    clip : float in (0, 1], default=None
        Lower bound: smaller propensities are replaced by it.
    estimator : LightGBM ranker, default=None
        Learner to use instead of a network; the loss above replaces its objective.

    Other Parameters
    ----------------
    hidden_layer_sizes, dropout, normalization, module, scale_features
        This and those below are shared by all neural rankers, see
        :ref:`network_parameters`.
    learning_rate, max_epochs, batch_size, weight_decay, optimizer, net_params
    traffic_exponent
    early_stopping, validation_fraction, n_iter_no_change
    device, random_state, verbose

    Attributes
    ----------
    examination_ : DataFrame
        Propensity used for each bias factor (index ``bias``): ``examination``, relative to that
        of the first factor, with ``impressions`` and ``clicks``.
    propensity_
    effective_sample_size_ : float
        Number of equally weighted clicks with the same precision: (Σ w)² / Σ w².
    largest_weight_, clipped_share_, estimator_, network_, net_, history_, n_iter_
    n_features_in_, feature_names_in_

    Warns
    -----
    ClickDataWarning
        If most clicks of some queries fell on pages of one row, where there are no pairs.

    Notes
    -----
    Sessions that saw the same list are one list with N sessions and click rates c. The expected
    number of sessions in which :math:`i` was clicked and :math:`j` was not is
    :math:`N c_i (1 - c_j)`, because the clicks of a position-based user are independent given the
    list.

    References
    ----------
    Wang, Qin, Wang & Wang (2021). Non-clicks mean irrelevant? Propensity ratio scoring as a
    correction. WSDM.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.rankers import PRSRanker
    >>> from skultr.simulation import EYE_TRACKING, simulate_clicks
    >>> documents = make_ltr(n_queries=50, n_features=20, random_state=0)
    >>> log, clicks, truth = simulate_clicks(documents, n_sessions=1_000, random_state=0)
    >>> ranker = PRSRanker(propensity=EYE_TRACKING, max_epochs=2, random_state=0)
    >>> ranker.fit(log, clicks).predict(documents).shape
    (1000,)
    """

    _parameter_constraints = {
        **LearnerRanker._parameter_constraints,
        **PropensityRanker._parameter_constraints,
    }

    def _fit(self, log: ClickLog, task: FitTask) -> None:
        warn_about_one_row_pages(log, "PRSRanker", "IPSRanker")
        super()._fit(log, task)

    def _fit_network(self, log: ClickLog, task: FitTask) -> None:
        log, hits, misses = self._pair_weights(log)
        scale = loss_scale(log, hits)
        log = replace(log, weight=misses)
        with self._seeded():
            module = ListScores(self._network(log.features, constant=False))
            criterion = ListLoss(propensity_ratio_loss, scale)
            self._train(module, criterion, log, hits, click_only=True, task=task)

    def _fit_estimator(self, log: ClickLog, seed: int) -> Any:
        log, hits, misses = self._pair_weights(log)
        version, labels = examples_of(log, document_labels(log, log.clicks))
        pairs = _pairs_of_examples(log, hits, misses, labels.query, version)
        return fit_learner(
            self.estimator,
            log.features[version],
            labels.label,
            labels.weight,
            labels.query,
            random_state=seed,
            columns=booster_columns(self),
            objective=PairObjective(*pairs),
        )

    def _pair_weights(self, log):
        """The log, and two numbers per row; the weight of a pair is the product of one of each."""
        clicks = self._debiased_clicks(log)
        _, factor = log.tempered(self.traffic_exponent)
        hits = clicks * factor / _ideal_dcg(log)[log.list_]
        return log, hits, (1 - log.click_rate) * self._divisors(log)


def _ideal_dcg(log):
    """Ideal DCG of a clicked session, by list.

    If several sessions saw the same list, it is that of their mean number of clicks, over the
    sessions with a click.
    """
    clicks = np.bincount(log.list_, log.click_rate, minlength=log.n_lists)
    with np.errstate(divide="ignore"):
        no_click = np.bincount(log.list_, np.log1p(-log.click_rate), minlength=log.n_lists)
    clicks = np.maximum(clicks / np.maximum(-np.expm1(no_click), 1e-12), 1.0)
    places = np.arange(1, int(np.ceil(clicks.max())) + 2)
    dcg = np.concatenate([[0.0], np.cumsum(1 / np.log2(1 + places))])
    return np.interp(clicks, np.arange(len(dcg)), dcg)


def _pairs_of_examples(log, hits, misses, query, version):
    """Winner and loser (numbers of examples) and weight of every pair, summed over the lists."""
    n_versions, n_examples = log.n_versions, len(version)
    key = pair_codes(query, version, n_versions)
    place = np.searchsorted(key, pair_codes(log.query, log.version, n_versions))
    found = []
    for _, rows in rectangles(log.offsets):
        there = rows >= 0
        weight = (hits[rows] * there)[:, :, None] * (misses[rows] * there)[:, None, :]
        weight[:, np.arange(rows.shape[1]), np.arange(rows.shape[1])] = 0.0
        used = weight > 0
        pairs = (place[rows] * n_examples)[:, :, None] + place[rows][:, None, :]
        found.append(_added_up(pairs[used], weight[used]))
    pairs, weight = _added_up(*(np.concatenate(part) for part in zip(*found, strict=True)))
    return *np.divmod(pairs, n_examples), weight


def _added_up(key, value):
    key, place = np.unique(key, return_inverse=True)
    return key, np.bincount(place, value, minlength=len(key))
