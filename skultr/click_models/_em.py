"""Click models with hidden events: accelerated EM over tables of probabilities, their priors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal

import numpy as np
from scipy.special import betainc, betaln, digamma, expit, logit
from sklearn.exceptions import ConvergenceWarning

from .._base._published import HasPublishedVariant
from .._base._sklearn import Interval, StrOptions
from .._log._cells import factor_table
from .._log._segments import TINY
from .._models._hidden_events import fit_em, posterior_mean
from .._models._solve import minimised
from ..exceptions import warn_user
from ._model import KnownFactors, TableClickModel

#: Valid values of a parameter ``prior``, for scikit-learn's check.
PRIOR_CONSTRAINT = [StrOptions({"empirical"}), "array-like"]
#: Pseudo-counts of parameters that all documents share: half a success, half a failure.
WEAK = (0.5, 0.5)
#: A first EM, which only tells a prior or a start, ends this many times earlier than the last.
COARSE = 10


@dataclass(kw_only=True, eq=False, repr=False)
class EMClickModel(HasPublishedVariant, TableClickModel):
    """Click models with hidden events, fitted by EM."""

    prior: Literal["empirical"] | Sequence[float] | None = "empirical"
    tol: float = 1e-8
    max_iter: int = 1000

    _published = {"prior": None}
    _parameter_constraints = {
        **HasPublishedVariant._parameter_constraints,
        "prior": [*PRIOR_CONSTRAINT, None],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def _solve(self, log, expect, start, priors, documents, known=(), follows=()):
        """Tables by EM beside the ``known`` ones, and the prior mean of each one of documents.

        By default the prior of documents is learned: a first fit has one pseudo-impression at the
        mean of all documents as prior, the second one the Beta distribution over documents with
        the greatest marginal likelihood (empirical Bayes). The mean of the prior of a table that
        ``follows`` another (table -> the other, which stands before it in ``documents``) is a
        function of the other. It sets what describes the fit.
        """
        known = dict(known)
        start = {name: table for name, table in start.items() if name not in known}
        learned = [name for name in documents if name in start]
        means = dict.fromkeys(documents, np.nan)
        self.prior_ = {}
        if not start:
            return known, means

        def count(tables):
            return expect({**known, **tables})

        def fit_with(start, more, tol):
            return fit_em(count, start, {**priors, **more}, tol=tol, max_iter=self.max_iter)

        tol = self.tol * log.n_impressions
        given = given_prior(self.prior)
        if given or not learned:
            pseudo_counts = dict.fromkeys(learned, given)
        else:
            pseudo_counts = weak_priors(count(start)[0], learned)
            if self.prior is None:
                # Pseudo-impressions of maximum likelihood: they decide only where there is no
                # event at all.
                pseudo_counts = _scaled_priors(pseudo_counts, 1e-6)
            else:
                # The first fit: its expected counts tell the prior, its tables start the second.
                first = fit_with(start, pseudo_counts, COARSE * tol)
                start = first.tables
                pseudo_counts = empirical_priors(start, first.counts, learned, dict(follows))
        fit = fit_with(start, pseudo_counts, tol)
        means |= self._remember_prior(pseudo_counts)
        self._warn_unless_converged(fit)
        if learned:  # else a network was trained, and counted its epochs
            self.n_iter_ = fit.n_iter
        self.log_posterior_ = np.array(fit.objective)
        return {**known, **fit.tables}, means

    def _remember_prior(self, pseudo_counts):
        """Keep the prior of each table, its mean over documents; returns the means of tables."""
        means = {}
        for name, (a, b) in pseudo_counts.items():
            mean_a = float(np.mean(a))
            mean_b = float(np.mean(b))
            self.prior_[name] = (mean_a, mean_b)
            means[name] = mean_a / (mean_a + mean_b)
        return means

    def _warn_unless_converged(self, fit):
        if not fit.converged:
            warn_user(
                f"{type(self).__name__} did not converge in max_iter={self.max_iter} EM steps. "
                "Raise max_iter, or tol.",
                ConvergenceWarning,
            )


def weak_priors(counts, names):
    """Pseudo-counts (a, b) per table: one pseudo-impression at the mean of its expected counts."""
    priors = {}
    for name in names:
        successes, trials = (float(sums.sum()) for sums in counts[name][:2])
        # Half a success and half a failure keep the mean inside (0, 1).
        mean = (successes + 0.5) / (trials + 1.0)
        priors[name] = (mean, 1 - mean)
    return priors


def _scaled_priors(priors, factor):
    return {name: (factor * a, factor * b) for name, (a, b) in priors.items()}


def empirical_priors(tables, counts, names, follows):
    """Pseudo-counts of the tables ``names``: floats, or one per document if a table follows one
    that stands before it."""
    priors = {}
    for name in names:
        # The posterior mean of the other table, which is less noisy than its likeliest value.
        other = follows.get(name)
        along = None
        if other in priors:
            along = posterior_mean(*counts[other][:2], priors[other])
        priors[name] = empirical_beta_of_hidden(tables[name], *counts[name], along)
    return priors


#: Range of a + b: below, a prior has no effect; above, all documents have the same probability.
_STRENGTHS = (0.5, 1e4)
#: Range of the mean of a prior: its logit stays finite.
_MEANS = (1e-4, 1 - 1e-4)
#: Range of the slope of such a prior, in logits of one probability per logit of the other.
_SLOPES = (-3.0, 3.0)
#: Edges of the bins of the integral over a probability, in logits.
_LOGITS = np.linspace(-12, 12, 121)
#: Width of a bin.
_STEP = _LOGITS[1] - _LOGITS[0]
#: Largest and least variance of logits over documents: a prior is not narrower than a bin.
_VARIANCES_OF_LOGITS = (25.0, 0.04)


def given_prior(prior):
    """The parameter ``prior`` as pseudo-counts (a, b); None if it is learned, or there is none."""
    if prior is None or isinstance(prior, str):
        return None
    try:
        counts = np.asarray(prior, dtype=float)
    except (TypeError, ValueError):  # not numbers
        counts = np.empty(0)
    if counts.shape != (2,) or not (np.isfinite(counts).all() and (counts > 0).all()):
        raise ValueError(
            f"prior must be a name or two numbers above 0, pseudo-counts of clicks and of skips, "
            f"such as (0.2, 0.8); got {prior!r}."
        )
    return tuple(counts.tolist())


def empirical_beta(successes, trials):
    """Pseudo-counts (a, b) of the Beta distribution of a probability over documents.

    They maximise the beta-binomial likelihood of s_d successes and f_d failures per document
    (empirical Bayes),

        Σ_d log B(a + s_d, b + f_d) - log B(a, b),    B the Beta function.
    """
    # Documents that were never shown tell nothing of the others.
    known = trials > 0
    failures = (trials - successes)[known]
    successes = successes[known]
    total = successes.sum() + failures.sum()
    if not total:
        return WEAK

    def objective(point):
        mean = expit(point[0])
        strength = np.exp(point[1])
        a = mean * strength
        b = (1 - mean) * strength
        value = betaln(a + successes, b + failures).sum() - len(successes) * betaln(a, b)
        # Gradient: by a and b, then by the logit of the mean and the logarithm of the strength.
        both = digamma(a + b + successes + failures) - digamma(a + b)
        by_a = (digamma(a + successes) - digamma(a) - both).sum()
        by_b = (digamma(b + failures) - digamma(b) - both).sum()
        by_mean = (by_a - by_b) * strength * mean * (1 - mean)
        by_strength = by_a * a + by_b * b
        return -value / total, -np.array([by_mean, by_strength]) / total

    mean = np.clip(successes.sum() / total, *_MEANS)
    found = minimised(
        objective,
        [logit(mean), np.log(2.0)],  # the strength of one success and one failure
        "The prior of relevance",
        jac=True,
        method="L-BFGS-B",
        bounds=[tuple(logit(_MEANS)), tuple(np.log(_STRENGTHS))],
        # The likelihood is flat where documents are alike: SciPy's tolerances end too early.
        options={"ftol": 1e-12, "gtol": 1e-10},
    )
    mean = expit(found[0])
    strength = np.exp(found[1])
    return float(mean * strength), float((1 - mean) * strength)


def empirical_beta_of_hidden(probability, successes, trials, missing, sure, along=None):
    """Pseudo-counts (a, b) as :func:`empirical_beta`, with partly hidden successes or trials.

    Expected counts are not observations: EM fills in hidden events by the current prior, so that
    all documents look alike. Here (a, b) maximise the marginal likelihood of the clicks alone,

        Σ_d log ∫ L_d(p) Beta(p; a, b) dp.

    With another probability of each document, ``along``, a and b are arrays of shape (n_docs,):
    the logit of the prior mean is a line in the logit of that probability. A document of which
    little is known then gets what is usual among those like it.
    """
    some = np.flatnonzero(trials > 0)
    if not len(some):
        return WEAK
    levels = np.zeros(len(trials)) if along is None else logit(along)
    levels = levels - levels.mean()
    # A prior of hidden events is learned from at most this many documents; more would hardly
    # change two parameters.
    some = some[:: -(-len(some) // 10_000)]
    successes = successes[some]
    trials = trials[some]
    sure = [counts[some] for counts in sure]
    likelihood = _likelihood_by_bin(probability[some], successes, trials, missing[some], *sure)
    # Documents of a group share a prior, and so its mass in each bin.
    group, centres = _groups(levels[some])
    by_group = [likelihood[group == each] for each in range(len(centres))]
    edges = np.concatenate(([0.0], expit(_LOGITS), [1.0]))

    def pseudo_counts(point, level):
        slope = point[2] if len(point) > 2 else 0.0
        mean = np.clip(expit(point[0] + slope * level), *_MEANS)
        # Var(logit p) is about 1 / (mean (1 - mean) strength).
        strength = np.clip(np.exp(point[1]) / (mean * (1 - mean)), *_STRENGTHS)
        return mean * strength, (1 - mean) * strength

    def objective(point):
        a, b = pseudo_counts(point, centres[:, None])
        mass = np.diff(betainc(a, b, edges))
        marginal = [part @ share for part, share in zip(by_group, mass, strict=True)]
        return -np.log(np.concatenate(marginal) + TINY).mean()

    mean = np.clip(successes.sum() / trials.sum(), *_MEANS)
    start = [logit(mean), 0.0]
    bounds = [tuple(logit(_MEANS)), tuple(-np.log(_VARIANCES_OF_LOGITS))]
    if along is not None:
        start.append(0.0)
        bounds.append(_SLOPES)
    found = minimised(
        objective,
        start,
        "The prior of relevance",
        jac="3-point",  # differences over less are mostly rounding of the incomplete beta
        method="L-BFGS-B",
        bounds=bounds,
    )
    if along is None:
        return tuple(map(float, pseudo_counts(found, 0.0)))
    return pseudo_counts(found, levels)


def _likelihood_by_bin(p, successes, trials, missing, won, failed):
    """L_d of each document in each bin of its probability, up to a factor: (n_docs, n_bins).

    Relative to p0, L_d(p) is a product of one term 1 + δ (p - p0) per event: δ is 1 / p0 for an
    observed success, -1 / (1 - p0) for an observed failure, and between them for a hidden event.
    The hidden events of a document are assumed to have one δ. With w observed successes and f
    observed failures,

        log L_d(p) = w log p + f log(1 - p) + (g / δ) log(1 + δ (p - p0)),    δ = h / g.

    Here g is the sum of δ over the hidden events, the slope of their log likelihood at p0
    (Fisher's identity), and h is the sum of δ², minus its curvature (Louis 1982, "Finding the
    observed information matrix when using the EM algorithm", JRSS B). Both are exact at p0.
    """
    q = 1 - p
    hidden_successes = successes - won
    hidden_failures = trials - successes - failed
    slope = hidden_successes / p - hidden_failures / q
    square = hidden_successes / p**2 + hidden_failures / q**2 - missing
    delta = square / np.where(slope == 0, 1.0, slope)
    # Of the sign of the slope, away from 0, and within what one event can tell.
    upward = np.clip(delta, 1e-9, 1 / p)
    downward = np.clip(delta, -1 / q, -1e-9)
    delta = np.where(slope > 0, upward, downward)
    centres = expit(np.append(_LOGITS, _LOGITS[-1] + _STEP) - _STEP / 2)
    log_likelihood = np.outer(won, np.log(centres)) + np.outer(failed, np.log1p(-centres))
    apart = centres - p[:, None]
    log_likelihood += (slope / delta)[:, None] * np.log1p(delta[:, None] * apart)
    highest = log_likelihood.max(axis=1, keepdims=True)
    return np.exp(log_likelihood - highest)


def _groups(levels):
    """Group of each document, of similar levels, and the mean level of each group."""
    # The integral of a prior that follows another probability is computed for this many groups of
    # documents of similar probability.
    shares = np.linspace(0, 1, 20 + 1)[1:-1]
    edges = np.unique(np.quantile(levels, shares))
    place = np.searchsorted(edges, levels)
    group = np.unique(place, return_inverse=True)[1]  # without gaps
    return group, np.bincount(group, levels) / np.bincount(group)


# By counting: the click rate of a document, over all ranks or by rank ---------------
@dataclass(kw_only=True, eq=False, repr=False)
class CountingModel(HasPublishedVariant, TableClickModel):
    """Click models by counts, with a Beta distribution of click rates over documents."""

    prior: Literal["empirical"] | Sequence[float] = "empirical"

    #: The counts of every document start at one click and one skip, as in programs of the field.
    _published = {"prior": (1.0, 1.0)}
    _parameter_constraints = {
        **HasPublishedVariant._parameter_constraints,
        "prior": PRIOR_CONSTRAINT,
    }
    _reads_clicks = False

    def _remember_rates(self, log, clicks, shown):
        """Keep the posterior mean of the click rate of each document, and the prior."""
        self.prior_ = given_prior(self.prior) or empirical_beta(clicks, shown)
        mean = posterior_mean(0.0, 0.0, self.prior_)
        relevance = posterior_mean(clicks, shown, self.prior_)
        self._remember_documents(log, {"relevance": mean}, relevance=relevance)


@dataclass(kw_only=True, eq=False, repr=False)
class DCTRModel(CountingModel):
    r"""Document click-through rate: every row is examined, and relevance is the click rate.

    .. math:: P(c = 1) = \frac{a + n_{dc}}{a + b + n_d}

    with :math:`n_d` impressions and :math:`n_{dc}` clicks of the document. Use it as a baseline:
    documents at the top were clicked most, so that the model reproduces the logged ranking.

    Parameters
    ----------
    prior : "empirical" or (float, float), default="empirical"
        Pseudo-counts (a, b) of clicks and of skips, so that no click rate is exactly 0 or 1. By
        default they are those of the Beta distribution of click rates over documents, by maximum
        likelihood (empirical Bayes).
    {variant_of_counts}

    Attributes
    ----------
    documents_ : DataFrame
        ``relevance`` by ``doc`` (by number where the log has no such column).
    prior_ : tuple of (float, float)
        The pseudo-counts; an unseen document gets their mean.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    References
    ----------
    Craswell, Zoeter, Taylor & Ramsey (2008). An experimental comparison of click position-bias
    models. WSDM.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.click_models import DCTRModel
    >>> log = pd.DataFrame({"qid": 1, "session": [1, 1, 2, 2], "doc": ["a", "b"] * 2,
    ...                     "position": [1, 2] * 2})
    >>> model = DCTRModel(prior=(1, 1)).fit(log, [1, 0, 1, 0])
    >>> model.predict(log[:2])
    array([0.75, 0.25])
    """

    def _fit(self, log, task):
        clicks = np.bincount(log.doc, log.clicks, log.n_docs)
        shown = np.bincount(log.doc, log.weight, log.n_docs)
        self._remember_rates(log, clicks, shown)

    def _probability(self, parameters, position, bias, clicks):
        return parameters["relevance"]


@dataclass(kw_only=True, eq=False, repr=False)
class RDCTRModel(CountingModel):
    r"""Document click-through rate per rank.

    P(click) of document d at rank k is its click rate there, with the click rates of all
    documents at rank k as prior. Relevance is the mean over ranks of its click rate divided by
    the click rate of the rank:

    .. math:: r_d = \frac{1}{K} \sum_{k=1}^{K} \frac{\mathrm{CTR}(d, k)}{\mathrm{CTR}(k)}.

    It is 1 for a document with the mean click rate at every rank, and for unseen documents. It
    may exceed 1: use it to rank documents, not as a probability.

    Parameters
    ----------
    prior : "empirical" or (float, float), default="empirical"
        Pseudo-counts of clicks and of skips at every rank. By default they are those of the Beta
        distribution of the click rates at each rank, by maximum likelihood.
    {variant_of_counts}

    Attributes
    ----------
    documents_ : DataFrame
        ``relevance`` by ``doc`` (by number where the log has no such column).
    examination_ : DataFrame
        One row per bias factor (index ``bias``; the position, unless the log has a column
        ``bias``): ``examination``, ``impressions`` and ``clicks``. Examination is the click rate
        relative to the first factor, which assumes equal relevance at all ranks.
    prior_ : ndarray of shape (n_factors, 2)
        Pseudo-counts by bias factor.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    Notes
    -----
    The published sum is over the ranks at which a document was shown, so that documents shown at
    more ranks score higher. Here the sum is over all ranks, because the prior gives every document
    a click rate at every rank.

    References
    ----------
    Craswell, Zoeter, Taylor & Ramsey (2008). An experimental comparison of click position-bias
    models. WSDM.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.click_models import RDCTRModel
    >>> log = pd.DataFrame({"qid": 1, "session": [1, 1, 2, 2], "doc": ["a", "b", "b", "a"],
    ...                     "position": [1, 2] * 2})
    >>> model = RDCTRModel(prior=(1, 1)).fit(log, [1, 0, 1, 1])
    >>> model.predict_click(log).round(2)
    array([0.67, 0.33, 0.67, 0.67])
    """

    def _fit(self, log, task):
        cells = log.cells
        self._factors = KnownFactors.of_log(log)
        self.prior_ = np.array([self._prior_at(cells, k) for k in range(cells.n_factors)])
        mean = self.prior_[:, 0] / self.prior_.sum(axis=1)
        rate = posterior_mean(cells.clicks, cells.weight, self.prior_[cells.factor].T)
        # At a rank where a document was not shown, its click rate is the prior mean: a share of 1.
        surplus = cells.by_doc(rate / mean[cells.factor] - 1.0)
        relevance = 1.0 + surplus / cells.n_factors
        self._remember_documents(log, {"relevance": 1.0}, relevance=relevance)
        self._tables["doc"] = np.append(np.arange(cells.n_docs), -1)
        # Keys are sorted because cells are. Documents that were never shown have no code.
        code = np.unique(cells.doc, return_inverse=True)[1]
        self._keys = code * cells.n_factors + cells.factor
        self._rates = np.append(rate, np.nan)
        self.examination_ = factor_table(
            log.bias_values, mean, cells.weight_of_factors, cells.clicks_of_factors
        )

    def _prior_at(self, cells, factor):
        at = cells.factor == factor
        return given_prior(self.prior) or empirical_beta(cells.clicks[at], cells.weight[at])

    def _probability(self, parameters, position, bias, clicks):
        inside = parameters["relevance"] > 0
        factor = self._factors.codes(bias, inside)
        # Unseen documents have the number -1; no key is below 0.
        key = parameters["doc"] * len(self.prior_) + factor
        place = np.searchsorted(self._keys, key)
        nearest = np.minimum(place, len(self._keys) - 1)
        found = self._keys[nearest] == key
        own = self._rates[np.where(found, place, -1)]
        prior = self.prior_[factor, 0] / self.prior_[factor].sum(axis=-1)
        rate = np.where(found, own, prior)
        # Beyond the end of a list relevance is 0, and so is P(click).
        return np.where(inside, rate, 0.0)
