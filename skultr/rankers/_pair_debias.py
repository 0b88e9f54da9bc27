"""Rankers by pairs of a click and a missing click: pairwise debiasing, propensity ratios."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from .._base._published import HasPublishedVariant
from .._base._sklearn import Interval
from .._log._cells import examination_table, loss_scale
from .._log._segments import pair_codes, rectangles
from .._torch._lists import ListLoss, ScaledLoss, loss_by_row, propensity_ratio_loss, sum_of_pairs
from .._torch._net import NeuralEstimator
from .._torch._networks import ListScores
from .._torch._shared_parameters import PUBLISHED_NETWORK
from ..identifiability._graph import warn_unless_identifiable
from ..propensity._source import examples_of
from ._learner_ranker import LearnerRanker
from ._learners import PairObjective, booster_columns, fit_learner
from ._propensity_ranker import PropensityRanker, warn_about_one_row_pages
from ._ranker import BaseRanker

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask
    from .._torch._lists import ListBatch


@dataclass(kw_only=True, eq=False, repr=False)
class PairDebiasRanker(HasPublishedVariant, NeuralEstimator, BaseRanker):
    r"""Network with the pairwise debiasing of unbiased LambdaMART.

    Each clicked row :math:`i` is compared with each row :math:`j` of the list that was not
    clicked. A bias factor (by default, a position) has one bias ratio for clicks, :math:`t^+`, and
    one for missing clicks, :math:`t^-`. The loss divides by both (Hu et al. 2019):

    .. math::
        L = \sum_{c_i = 1, c_j = 0} \frac{L_{ij}}{t^+_i\, t^-_j}, \qquad
        L_{ij} = \log(1 + e^{s_j - s_i}) .

    The ratios are estimated during training. A bias factor whose pairs cause more loss has more
    bias:

    .. math::
        t^+_k = \left[\frac{\sum_{i \text{ at } k} \sum_j L_{ij} / t^-_j}
                           {\sum_{i \text{ at } 1} \sum_j L_{ij} / t^-_j}\right]^{1 / (p + 1)},
        \qquad
        t^-_k = \left[\frac{\sum_{j \text{ at } k} \sum_i L_{ij} / t^+_i}
                           {\sum_{j \text{ at } 1} \sum_i L_{ij} / t^+_i}\right]^{1 / (p + 1)},

    relative to the most frequent factor (usually position 1). The sums are running means over
    batches, divided by impressions, so that rarely shown factors do not look unbiased.

    **Limit.** The method assumes that a missing click indicates irrelevance as strongly as a click
    indicates relevance. Under a position-based model most clicks are missing because the result
    was not examined. :math:`t^-` then absorbs relevance, and the ranker can be worse than the
    naive one. It is provided for comparison; see Notes for figures, and prefer
    :class:`DLARanker` or :class:`AffineRanker`.

    Parameters
    ----------
    p : float, default=2.0
        Regularisation: the larger p is, the closer all ratios are to 1. With 0 the two ratios can
        diverge.
    variant : {"default", "published"}, default="default"
        "published" has ratios without regularisation, by the network of later comparisons. The
        paper itself boosts trees, and weights pairs by the change of nDCG.
        {published}

    {network}
        Early stopping by the mean loss of the weighted pairs of held-out queries.
    device, random_state, verbose

    Attributes
    ----------
    bias_ratios_ : DataFrame
        ``t_plus`` and ``t_minus`` of each bias factor (index ``bias``), with ``impressions`` and
        ``clicks``. Both ratios are 1 for the most frequent factor, and for a factor without pairs.
    examination_ : DataFrame
        ``t_plus`` as ``examination``, relative to that of the first factor, with ``impressions``
        and ``clicks``.
    network_, net_, history_, n_iter_, n_features_in_, feature_names_in_

    See Also
    --------
    PRSRanker : Pairs weighted by known propensities.

    Warns
    -----
    ClickDataWarning
        If most clicks of some queries fell on pages of one row, where there are no pairs.

    Notes
    -----
    Sessions that saw the same list are one list with N sessions and click rates c. Clicks of a
    list are assumed to be independent, so that the expected number of sessions in which :math:`i`
    was clicked and :math:`j` was not is :math:`N c_i (1 - c_j)`.

    nDCG@10 on 2,000 queries of ``make_ltr`` with 200,000 sessions and ten positions of a fixed
    ranking:

    ============================  ==================  =====================
    ranker                        trust bias, 5 logs  position bias, 3 logs
    ============================  ==================  =====================
    this one, p = 2 (default)     0.683               0.710
    this one, p = 0               0.663               0.658
    pairs without debiasing       0.687               0.718
    naive, softmax loss           0.685               0.723
    dual learning                 0.780               0.807
    ============================  ==================  =====================

    The default was the best of p = 0, 0.5, 1 and 2 on three other logs of both kinds.

    References
    ----------
    Hu, Wang, Peng & Li (2019). Unbiased LambdaMART: an unbiased pairwise learning-to-rank
    algorithm. WWW.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.rankers import PairDebiasRanker
    >>> from skultr.simulation import PlackettLucePolicy, simulate_clicks
    >>> documents = make_ltr(n_queries=50, n_features=20, random_state=0)
    >>> log, clicks, truth = simulate_clicks(
    ...     documents, n_sessions=500, policy=PlackettLucePolicy(), random_state=0
    ... )
    >>> ranker = PairDebiasRanker(max_epochs=2, random_state=0).fit(log, clicks)
    >>> ranker.predict(documents).shape
    (1000,)
    >>> list(ranker.bias_ratios_.columns)
    ['t_plus', 't_minus', 'impressions', 'clicks']
    """

    p: float = 2.0

    _published = {**PUBLISHED_NETWORK, "p": 0.0}
    _parameter_constraints = {
        **HasPublishedVariant._parameter_constraints,
        **NeuralEstimator._parameter_constraints,
        "p": [Interval(Real, 0, None, closed="left")],
    }

    _learns_examination = True
    _learns_more_by = "network"

    def _fit(self, log: ClickLog, task: FitTask) -> None:
        warn_unless_identifiable(log, network=True)
        warn_about_one_row_pages(log, "PairDebiasRanker", "DLARanker")
        log = self._scaled_in_place(log)
        if self._click_log is None:
            self._fit_ratios(log, task)
            return
        # Only the last training is the ranker that callbacks watch.
        # Ratios are those of clicks; relevance is then learned from the outcome, with these fixed.
        self._fit_ratios(replace(self._click_log, features=log.features), None)
        tables = self.bias_ratios_, self.examination_
        self._fit_ratios(log, task, self.net_.module_.ratios)
        self.bias_ratios_, self.examination_ = tables

    def _fit_more(self, log, task):
        before = self.bias_ratios_
        # Another outcome: the ratios of the clicks, which its training does not change.
        known = None if self._click_log is None else self._trained_module().ratios
        self._fit_ratios(self._scaled_in_place(log), task, known)
        # Counts add up over logs; ratios do not, and are those of the last training.
        counts = before[["impressions", "clicks"]] + self.bias_ratios_[["impressions", "clicks"]]
        for table in (self.bias_ratios_, self.examination_):
            table[[*counts]] = counts
        # Also of factors that the new log does not show.
        plus = self.bias_ratios_["t_plus"]
        self.examination_["examination"] = plus / plus.iloc[0]

    def _fit_ratios(self, log, task, known=None):
        """Train, with the ``known`` ratios if there are any."""
        # Ratios are relative to the factor with the most impressions, whose loss is known best.
        reference = int(np.bincount(log.bias, log.weight).argmax())
        training = log.tempered(self.traffic_exponent)
        with self._seeded():
            network = self._network(log.features, constant=False)
            module = PairDebiasModule(network, len(log.bias_values), reference, self.p)
            module.fix(known)
            unit = loss_scale(training, _pairs_won(training))
            self._train(
                module,
                PairDebiasLoss(unit),
                training,
                training.clicks,
                click_only=True,
                task=task,
                validation=self._tempered_validation(),
                penalty=self._penalty(log, click_only=True),
            )
        # t+ of clicks and t- of missing clicks, by bias factor; t+ is examination up to a
        # constant.
        plus, minus = self.net_.module_.ratios.double().cpu().numpy()
        self.examination_ = examination_table(log, plus[log.bias])
        table = self.examination_.drop(columns="examination")
        table.insert(0, "t_plus", plus)
        table.insert(1, "t_minus", minus)
        self.bias_ratios_ = table


def _pairs_won(log):
    """Expected number of pairs that each row wins by its clicks."""
    # A click wins against each missing click of its list, in expectation.
    missing = 1 - log.click_rate
    missing_in_list = np.bincount(log.list_, missing, minlength=log.n_lists)
    return log.clicks * (missing_in_list[log.list_] - missing)  # a row is no pair with itself


#: Lower bound on ratios: a factor without clicks has a ratio of 0, and pairs are divided by it.
_LEAST_RATIO = 1e-3


class PairDebiasModule(ListScores):
    r"""Scores from a network; ratios :math:`t^+` and :math:`t^-` from the losses of pairs.

    In training, each batch updates two running means per bias factor, the loss per impression that
    is caused by its clicks and by its missing clicks:

    .. math::
        t^+_k = \left[\frac{\ell^+_k}{\ell^+_1}\right]^{1 / (p + 1)}, \quad
        \ell^+_k = \frac{1}{n_k} \sum_{i \text{ at } k} \sum_j \frac{m_{ij} L_{ij}}{t^-_j}, \qquad
        t^-_k = \left[\frac{\ell^-_k}{\ell^-_1}\right]^{1 / (p + 1)}, \quad
        \ell^-_k = \frac{1}{n_k} \sum_{j \text{ at } k} \sum_i \frac{m_{ij} L_{ij}}{t^+_i}.

    with :math:`m_{ij}` the number of sessions in which i was clicked and j was not. Sums and
    impressions have separate running means, so that batches without the reference do no harm.
    """

    def __init__(self, network: nn.Sequential, n_factors: int, reference: int, p: float) -> None:
        super().__init__(network)
        self.reference = reference
        self.p = p
        # Rows: by click, by missing click.
        self.register_buffer("ratios", torch.ones(2, n_factors))
        self.register_buffer("losses", torch.zeros(2, n_factors))
        self.register_buffer("impressions", torch.zeros(n_factors))

    #: True if the ratios are known and not learned.
    is_fixed = False

    def fix(self, ratios: torch.Tensor | None) -> None:
        """Keep these ratios, if there are any, in all training."""
        self.is_fixed = ratios is not None
        if ratios is not None:
            self.ratios.copy_(ratios)

    def forward(self, batch: ListBatch) -> tuple[torch.Tensor, ...]:
        """Scores and the ratios of each row by click and by missing click: (n_lists, width)."""
        scores = super().forward(batch)
        if self.training and not self.is_fixed:
            self._learn_ratios(scores.detach(), batch)
        return scores, *(batch.pad(ratio[batch.bias]) for ratio in self.ratios)

    @torch.no_grad()
    def _learn_ratios(self, scores, batch):
        """Update the running means by a batch, and the ratios by these."""
        # 1. Losses of the pairs of each row: by its clicks, and by its missing clicks.
        plus, minus = (_inverse(batch.pad(ratio[batch.bias]), batch) for ratio in self.ratios)
        missing = _missing(batch)
        by_win, by_loss = loss_by_row(scores, batch.mask, batch.clicks * plus, missing * minus)
        by_row = (batch.clicks * by_win, missing * by_loss)
        # 2. Sums of bias factors, and their impressions.
        seen = torch.zeros_like(self.losses)
        for sums, values in zip(seen, by_row, strict=True):
            sums.index_add_(0, batch.bias, values[batch.mask])
        shown = torch.zeros_like(self.impressions)
        shown.index_add_(0, batch.bias, batch.weight[batch.mask])
        # 3. Running means. Those of a factor change only in batches that show it; otherwise they
        # would fade to 0.
        here = shown > 0
        # The weight of this batch: running means forget over some 20 batches.
        share = 1 - 0.95
        losses = self.losses.lerp(seen, share)
        impressions = self.impressions.lerp(shown, share)
        self.losses.copy_(torch.where(here, losses, self.losses))
        self.impressions.copy_(torch.where(here, impressions, self.impressions))
        # 4. Ratios. That of a factor without pairs is unknown, and all ratios are if the reference
        # has no pairs. A factor that lost all its pairs has a known ratio near 0.
        mean = self.losses / self.impressions
        ratios = (mean / mean[:, [self.reference]]) ** (1 / (self.p + 1))
        known = ratios.isfinite() & (self.losses.sum(dim=0) > 0)
        self.ratios.copy_(torch.where(known, ratios.clamp(min=_LEAST_RATIO), self.ratios))


class PairDebiasLoss(ScaledLoss):
    r"""Logistic loss of pairs, weighted by :math:`1 / (t^+_i t^-_j)`.

    On validation lists it is the weighted mean loss per pair, because the sum would change with
    the ratios.
    """

    def forward(self, outputs: tuple[torch.Tensor, ...], batch: ListBatch) -> torch.Tensor:
        """The loss of (scores, ratios by click, ratios by missing click)."""
        scores, plus, minus = outputs
        # 1 / (t+_i t-_j), one factor for each row of a pair.
        plus = _inverse(plus, batch)
        minus = _inverse(minus, batch)
        wins = batch.clicks * plus
        losses = _missing(batch) * minus
        loss = sum_of_pairs(scores, batch.mask, wins, losses)
        # Ratios move during training, and with them the weight of all pairs.
        if self.training:
            return loss * (self.scale / len(batch))
        total = (wins * (losses.sum(dim=1, keepdim=True) - losses)).sum()
        return loss / total.clamp(min=1e-30)


def _missing(batch):
    """Share of the sessions of a list in which each row was not clicked, shape (n_lists, width).

    Times the clicks of another row it is the number of sessions in which that row was clicked and
    this one was not: clicks of a list count as independent.
    """
    return torch.where(batch.mask, 1 - batch.clicks / batch.weight.clamp(min=1e-30), 0.0)


def _inverse(ratios, batch):
    return torch.where(batch.mask, 1 / ratios.clamp(min=_LEAST_RATIO), 0.0)


@dataclass(kw_only=True, eq=False, repr=False)
class PRSRanker(HasPublishedVariant, PropensityRanker, LearnerRanker):
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
    clip : float in (0, 1] or None, default=None
        Lower bound on propensities, relative to the largest one: smaller ones are replaced by it.
    estimator : LightGBM ranker, default=None
        Learner to use instead of a network; the loss above replaces its objective.
    variant : {"default", "published"}, default="default"
        "published" has the same loss, and the network of later comparisons.
        {published}

    {network}
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
        **HasPublishedVariant._parameter_constraints,
        **LearnerRanker._parameter_constraints,
        **PropensityRanker._parameter_constraints,
    }
    _published = PUBLISHED_NETWORK
    _validates = False

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
        # Trees have one example per document of a query; pairs of all lists are added up.
        version, labels = examples_of(log)
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
        factor = log.traffic_factors(self.traffic_exponent)[log.query]
        hits = clicks * factor / _ideal_dcg(log)[log.list_]
        misses = (1 - log.click_rate) * self._divisors(log)
        return log, hits, misses


def _ideal_dcg(log):
    """Ideal DCG of a clicked session, by list.

    If several sessions saw the same list, it is that of their mean number of clicks, over the
    sessions with a click.
    """
    clicks = np.bincount(log.list_, log.click_rate, minlength=log.n_lists)
    with np.errstate(divide="ignore"):
        log_miss = np.log1p(-log.click_rate)
    chance_of_click = -np.expm1(np.bincount(log.list_, log_miss, minlength=log.n_lists))
    # In lists without a click, which have no pairs, nothing divides by 0.
    clicks = np.maximum(clicks / np.maximum(chance_of_click, 1e-12), 1.0)
    # DCG of 0, 1, 2, ... clicks at the top, and between these a straight line.
    places = np.arange(1, int(np.ceil(clicks.max())) + 2)
    dcg = np.concatenate([[0.0], np.cumsum(1 / np.log2(1 + places))])
    return np.interp(clicks, np.arange(len(dcg)), dcg)


def _pairs_of_examples(log, hits, misses, query, version):
    """Winner and loser (numbers of examples) and weight of every pair, summed over the lists."""
    n_examples = len(version)
    key = pair_codes(query, version, log.n_versions)
    example = np.searchsorted(key, pair_codes(log.query, log.version, log.n_versions))
    codes = []
    weights = []
    for _, rows in rectangles(log.offsets):
        # Axes: list, winner, loser. Padding has no weight.
        is_row = rows >= 0
        won = np.where(is_row, hits[rows], 0.0)
        lost = np.where(is_row, misses[rows], 0.0)
        weight = won[:, :, None] * lost[:, None, :]
        diagonal = np.arange(rows.shape[1])
        weight[:, diagonal, diagonal] = 0.0
        pair = (example[rows] * n_examples)[:, :, None] + example[rows][:, None, :]
        # Added up by rectangle, too: all pairs at once would not fit into memory.
        used = weight > 0
        code, total = _added_up(pair[used], weight[used])
        codes.append(code)
        weights.append(total)
    code, weight = _added_up(np.concatenate(codes), np.concatenate(weights))
    winner, loser = np.divmod(code, n_examples)
    return winner, loser, weight


def _added_up(code, value):
    """Distinct codes, and the sum of their values."""
    code, place = np.unique(code, return_inverse=True)
    return code, np.bincount(place, value, minlength=len(code))
