"""Position-based model: clicks as relevance times examination of the position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .._base._sklearn import StrOptions
from .._log._cells import factor_table
from .._log._segments import TINY
from .._models._browsing import pbm_click_probability
from .._models._document_posterior import document_posterior, logged_places
from .._models._hidden_events import fit_em
from .._models._table_curve import table_of_cells
from ..identifiability._graph import warn_unless_identifiable
from ._em import COARSE, WEAK, given_prior, weak_priors
from ._gradient import GradientClickModel
from ._model import KnownFactors
from ._thresholds import GROUP_IMPRESSIONS, PRIOR_WEIGHT, UNKNOWN_SLOPE

#: Means of a prior: neither pseudo-count is 0.
MEANS = (1e-4, 1 - 1e-4)
#: EM starts with probabilities inside (0, 1): in logits, one of 0 or 1 would not move.
_START_OF_EXAMINATION = (0.05, 0.95)
_START_OF_RELEVANCE = (0.02, 0.95)


@dataclass(kw_only=True, eq=False, repr=False)
class ProductModel(GradientClickModel):
    """Models of P(click) as relevance times examination, with one examination per factor.

    Subclasses write ``_compared_examination(log, cells)``: examination by factor and the standard
    error of its logarithm relative to the first factor, from the same documents under several
    factors; and ``_fitted_prior(log, cells, known)``: start and pseudo-counts of examination for
    EM.
    """

    prior: Literal["logged", "empirical"] | Sequence[float] | None = "logged"

    _parameter_constraints = {
        **GradientClickModel._parameter_constraints,
        "prior": [StrOptions({"logged", "empirical"}), "array-like", None],
    }
    _reads_production = True
    _attraction = "relevance"

    def _solve_product(self, log, cells, task):
        """Examination relative to the first factor and the standard error of its logarithm, two
        arrays of shape (n_factors,); sets ``documents_``."""
        if self._reads_places:
            examination, error = self._compared_examination(log, cells)
            self.prior_ = {}
            self._remember_posterior(log, cells, examination, error)
            return examination / examination[0], error
        known = self._train_towers(log, task) if self.solver == "gradient" else {}
        start, prior = self._fitted_prior(log, cells, known)
        return self._solve_cells(log, cells, start, prior, known)

    @property
    def _reads_places(self):
        """True if the prior of a document depends on where production put it."""
        return self.solver == "em" and isinstance(self.prior, str) and self.prior == "logged"

    def _remember_posterior(self, log, cells, examination, error):
        query, place = logged_places(log).of_documents(cells.n_docs)
        found = document_posterior(cells, examination, query=query, place=place, error=error)
        # Clicks determine the product only: relevance is scaled to P(click) at the first position.
        first = examination[0]
        tables = {
            "relevance": found.mean * first,
            "lower": found.lower * first,
            "upper": found.upper * first,
            "effective_sample": found.effective_sample / first,
            "prior_mean": found.prior_mean * first,
        }
        # An unseen document is as likely any of those that were seen.
        unseen = {name: table.mean() for name, table in tables.items()}
        self._remember_documents(log, unseen, **tables)

    def _solve_cells(self, log, cells, examination, prior, known):
        """As :meth:`_solve_product`, by EM with a start and a prior of examination: no errors."""
        tables, means = self._solve(
            log,
            lambda tables: expected_counts(cells, **tables),
            {**start_tables(cells), "examination": examination},
            {"examination": prior},
            ("relevance",),
            known,
        )
        # Relevance is P(click) at the first position, as without EM.
        first = tables["examination"][0]
        self._scale = first
        prior_mean = {"relevance": means["relevance"] * first}
        self._remember_documents(log, prior_mean, relevance=tables["relevance"] * first)
        unknown = np.full(cells.n_factors, np.nan)
        return tables["examination"] / first, unknown

    def _pooled_examination(self, log, cells, group, known):
        """Examination by factor, the same for all factors of a ``group``: mean of a prior."""
        pooled = cells.pooled(group)
        start = {**start_tables(pooled), **known}
        priors = {"examination": WEAK}
        if not known:
            counts, _ = expected_counts(pooled, **start)
            weak = weak_priors(counts, ("relevance",))
            priors["relevance"] = given_prior(self.prior) or weak["relevance"]

        def expect(tables):
            return expected_counts(pooled, **{**start, **tables})

        learned = {name: start[name] for name in priors}
        tol = COARSE * self.tol * log.n_impressions
        # A prior need not be exact: only the EM that uses it must converge.
        fit = fit_em(expect, learned, priors, tol=tol, max_iter=self.max_iter)
        mean = fit.tables["examination"][group]
        return np.clip(mean, *MEANS)

    def _row_parameters(self, X, qid, doc):
        parameters = super()._row_parameters(X, qid, doc)
        if self.solver == "gradient":
            # Tables were scaled when they were kept; outputs of the network are not.
            parameters["relevance"] = parameters["relevance"] * self._scale
        return parameters


def unknown_curve(depth):
    """Log examination by depth where no document moved: mean and standard deviation.

    The deviation is half of what lies between no bias and 1 / position, and more than 0 at the
    first position.
    """
    slope = UNKNOWN_SLOPE.value
    return -slope * np.log(depth), slope * np.log1p(depth)


@dataclass(kw_only=True, eq=False, repr=False)
class PBMModel(ProductModel):
    r"""Position-based model: P(click) is relevance times examination of the position.

    .. math:: P(c = 1) = r_d \, o_k

    By default examination comes from the same documents at several positions, as in
    :class:`~skultr.rankers.RegressionEMRanker` with ``relevance="embedding"``. The relevance of a
    document comes from its clicks and from its place in the logged ranking. A document with many
    clicks gets the relevance that they show. One with few gets about the relevance of others of
    its query that were shown as high. Where no document moved, examination is taken to be
    :math:`1 / \sqrt{k}`, with a warning.

    Parameters
    ----------
    prior : {"logged", "empirical"}, (float, float) or None, default="logged"
        What is known of a document before its clicks are counted.

        - ``"logged"``: a gamma distribution. Its mean falls with the place of the document in the
          logged ranking and has a factor for each query. Both, and their strength, are learned
          from the log (Notes of :func:`~skultr.propensity.relevance_labels`). The place is the
          role ``production``, less the mean of the query, if the log has it. Otherwise it is the
          mean position in the lists of the query.
        - ``"empirical"``: one Beta distribution for all documents, by maximum likelihood.
          Documents that were always at the bottom are pulled toward the average document, and
          examination of their positions is underestimated. Neighbouring positions form groups of
          100 impressions, and a rare position is pulled toward its group with the weight of 20
          impressions. If users are not position-based, this prior can fit clicks of the logged
          rankings better, and those of other rankings worse. With users of the user browsing
          model and 850 sessions per query, perplexity was 1.270 instead of 1.278 on logged
          rankings, and 1.317 instead of 1.273 on others.
        - (float, float): pseudo-counts of clicks and of skips of an examined document.
        - None: maximum likelihood, as in studies of click models without priors. Gradient descent
          on one free number per document approaches the same optimum. Documents without clicks
          then have relevance near 0, which new clicks contradict: perplexity suffers on small
          logs.

        With ``solver="gradient"`` only examination has a prior, that of ``"empirical"``.
    {steps}
    {variant}
    {solver}

    Attributes
    ----------
    documents_ : DataFrame
        ``relevance`` by ``doc`` (by number where the log has no such column): P(click) at the
        first position. With ``prior="logged"`` it is the posterior mean, and there are also
        ``prior_mean`` and the ends ``lower`` and ``upper`` of the 95 % interval. The interval
        allows for the error of examination. It covered 92 to 99 % of the relevances in the
        simulations of :func:`~skultr.propensity.relevance_labels` (least with Zipf traffic).
        ``effective_sample`` is the number of impressions at the first position that would have
        been examined as often.
    examination_ : DataFrame
        One row per bias factor (index ``bias``; the position, unless the log has a column
        ``bias``): ``examination`` relative to the first factor, ``standard_error`` of its
        logarithm, the ends ``lower`` and ``upper`` of its 95 % interval, ``impressions`` and
        ``clicks``. Errors and intervals are NaN with other priors than "logged". On Plackett-Luce
        logs the interval covered 93 to 98 % of the true values.
    log_posterior_ : ndarray of shape (n_rounds,)
        Log likelihood plus log prior after each round of EM; it never falls. With
        ``solver="gradient"`` this is the EM over the parameters that all documents share. With
        ``prior="logged"`` there is no EM, and no such attribute.
    n_iter_ : int
        Number of EM steps. With ``prior="logged"`` it counts Newton steps for examination, and
        with ``solver="gradient"`` epochs.
    network_, net_, history_
        Only with ``solver="gradient"``: scaling and network, the skorch net that trained it
        (which pickles leave out), and the learning curves by epoch.
    prior_ : dict of str to (float, float)
        Pseudo-counts of each parameter of documents; empty with ``prior="logged"`` and with
        ``solver="gradient"``.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    Warns
    -----
    NotIdentifiableWarning
        If the log does not determine relevance.

    See Also
    --------
    skultr.rankers.TwoTowerRanker : The same model as a ranker, without a prior.

    References
    ----------
    Richardson, Dominowska & Ragno (2007). Predicting clicks: estimating the click-through rate
    for new ads. WWW.

    Examples
    --------
    >>> from skultr.click_models import PBMModel
    >>> from skultr.datasets import make_ltr
    >>> from skultr.simulation import PositionBasedUser, UniformPolicy, simulate_clicks
    >>> log, clicks, truth = simulate_clicks(
    ...     make_ltr(5, 6, random_state=0),
    ...     n_sessions=2_000,
    ...     policy=UniformPolicy(),
    ...     user=PositionBasedUser(1.0),
    ...     random_state=0,
    ... )
    >>> model = PBMModel().fit(log, clicks)
    >>> model.examination_.columns[:4].tolist()
    ['examination', 'standard_error', 'lower', 'upper']
    """

    _reads_clicks = False

    def _fit(self, log, task):
        # With a prior every log has an estimate, but a prior is not evidence.
        warn_unless_identifiable(log, network=self.solver == "gradient")
        self._factors = KnownFactors.of_log(log)
        cells = log.cells
        examination, error = self._solve_product(log, cells, task)
        self.examination_ = factor_table(
            log.bias_values, examination, cells.weight_of_factors, cells.clicks_of_factors, error
        )
        # Standard errors from an estimate to the end of its 95 % interval.
        half_width = 1.96 * error
        self.examination_.insert(2, "lower", examination * np.exp(-half_width))
        self.examination_.insert(3, "upper", examination * np.exp(half_width))

    def _compared_examination(self, log, cells):
        group = np.arange(cells.n_factors)
        weight = cells.weight_of_factors
        if self._factors.are_positions:
            # A rare rank is examined like its neighbours; of a small log, not all are one group.
            least = min(GROUP_IMPRESSIONS.value, weight.max() / 2)
            group = factor_groups(weight, least)
        # The prior: a curve by the mean depth of a group.
        positions = np.bincount(log.bias, log.weight * log.position, minlength=cells.n_factors)
        impressions = np.maximum(np.bincount(group, weight), TINY)
        depth = np.bincount(group, positions) / impressions
        mean, spread = unknown_curve(np.maximum(depth, 1.0))
        # What documents at several positions tell.
        table = table_of_cells(cells.pooled(group))
        self.n_iter_ = table.fit.n_iter
        curve, error = table.with_prior(mean, spread)
        examination = np.exp(curve - curve.max())
        return examination[group], error[group]

    def _fitted_prior(self, log, cells, known):
        """A rare rank has a prior: examination of its group."""
        start = start_tables(cells)["examination"]
        group = factor_groups(cells.weight_of_factors, GROUP_IMPRESSIONS.value)
        is_pooled = self._factors.are_positions and group[-1] < cells.n_factors - 1
        if self.prior is None or not is_pooled:
            return start, WEAK
        mean = self._pooled_examination(log, cells, group, known)
        has_company = np.bincount(group)[group] > 1
        strength = np.where(has_company, PRIOR_WEIGHT.value, sum(WEAK))
        return start, (strength * mean, strength * (1 - mean))

    def _probability(self, parameters, position, bias, clicks):
        relevance = parameters["relevance"]
        codes = self._factors.codes(bias, relevance > 0)
        examination = self.examination_["examination"].to_numpy()[codes]
        return np.minimum(pbm_click_probability(relevance, examination), 1.0)


def factor_groups(weight, least):
    """Group of each factor, from 0 without gaps: neighbours are joined up to ``least``
    impressions."""
    group = np.empty(len(weight), dtype=np.intp)
    n_full = 0
    total = 0.0
    for factor, more in enumerate(weight):
        group[factor] = n_full
        total += more
        if total >= least:
            n_full += 1
            total = 0.0
    # Factors left over at the end join the last full group.
    return np.minimum(group, max(n_full - 1, 0))


def expected_counts(cells, relevance, examination):
    """E-step of P(click) = r o, with examination as the only hidden event.

    A clicked row was examined; a skipped row was examined with probability
    (o - r o) / (1 - r o). Relevance is then clicks over examinations. If relevance were hidden
    too, EM would need far more steps.
    """
    by_doc = np.empty((3, len(relevance)))
    by_factor = 0.0
    value = 0.0
    for docs, part in cells.parts():
        counts = _counts_of_part(part, relevance[docs], examination)
        by_doc[:, docs] = counts[0]
        by_factor = by_factor + counts[1]
        value = value + counts[2]
    clicks, examined, missing = by_doc
    sure = clicks, np.zeros_like(clicks)
    expected = {
        "relevance": (clicks, examined, missing, sure),
        "examination": (by_factor, cells.weight_of_factors),
    }
    return expected, value


def _counts_of_part(cells, relevance, examination):
    """Counts by document and by factor, and the log likelihood, of some documents."""
    examination = examination[cells.factor]
    click = relevance[cells.doc] * examination
    skips = cells.weight - cells.clicks
    # P(examined | skipped), by Bayes' rule.
    chance = (examination - click) / (1 - click)
    examined_skips = skips * chance
    examined = cells.clicks + examined_skips
    # Var(examinations) times the square of the slope of log(1 - r).
    missing = cells.by_doc(examined_skips * (1 - chance)) / (1 - relevance) ** 2
    by_doc = cells.by_doc(cells.clicks), cells.by_doc(examined), missing
    value = cells.clicks @ np.log(click) + skips @ np.log1p(-click)
    return by_doc, cells.by_factor(examined), value


def start_tables(cells):
    """Initial examination, proportional to click rates, and the relevance that fits it."""
    weight = cells.weight_of_factors
    mean = cells.clicks_of_factors.sum() / weight.sum()
    rate = np.full(len(weight), mean)
    np.divide(cells.clicks_of_factors, weight, out=rate, where=weight > 0)
    # Nine tenths where most was clicked: room on both sides.
    examination = np.clip(0.9 * rate / max(rate.max(), 1e-9), *_START_OF_EXAMINATION)
    relevance = np.empty(cells.n_docs)
    for docs, part in cells.parts():
        # One pseudo-impression at the mean of all documents.
        chances = part.by_doc(part.weight * examination[part.factor])
        rate = (part.by_doc(part.clicks) + mean) / (chances + 1.0)
        relevance[docs] = np.clip(rate, *_START_OF_RELEVANCE)
    return {"relevance": relevance, "examination": examination}
