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
#: Pseudo-impressions of maximum likelihood: they decide only where there is no event at all.
_NO_PRIOR = 1e-6


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
        if not start:
            self.prior_ = {}
            return known, means

        def count(tables):
            return expect({**known, **tables})

        def fit_with(start, more, tol):
            return fit_em(count, start, {**priors, **more}, tol=tol, max_iter=self.max_iter)

        tol = self.tol * log.n_impressions
        given = None if self.prior is None else given_prior(self.prior)
        pseudo_counts = {}
        if given:
            pseudo_counts = dict.fromkeys(learned, given)
        elif learned:
            weak = weak_priors(count(start)[0], learned)
            if self.prior is None:
                pseudo_counts = {n: (_NO_PRIOR * a, _NO_PRIOR * b) for n, (a, b) in weak.items()}
            else:
                first = fit_with(start, weak, 10 * tol)
                start = first.tables
                pseudo_counts = empirical_priors(start, first.counts, learned, dict(follows))
        fit = fit_with(start, pseudo_counts, tol)
        self.prior_ = {
            name: (float(np.mean(a)), float(np.mean(b))) for name, (a, b) in pseudo_counts.items()
        }
        if not fit.converged:
            warn_user(
                f"{type(self).__name__} did not converge in max_iter={self.max_iter} EM steps. "
                "Raise max_iter, or tol.",
                ConvergenceWarning,
            )
        if learned:  # else a network was trained, and counted its epochs
            self.n_iter_ = fit.n_iter
        self.log_posterior_ = np.array(fit.objective)
        means |= {name: a / (a + b) for name, (a, b) in self.prior_.items()}
        return {**known, **fit.tables}, means


#: Pseudo-counts of parameters that all documents share: half a success, half a failure.
WEAK = (0.5, 0.5)


def weak_priors(counts, names):
    """Pseudo-counts (a, b) per table: one pseudo-impression at the mean of its expected counts."""
    totals = {name: [float(sums.sum()) for sums in counts[name][:2]] for name in names}
    means = {name: (sums[0] + 0.5) / (sums[1] + 1.0) for name, sums in totals.items()}
    return {name: (mean, 1 - mean) for name, mean in means.items()}


def empirical_priors(tables, counts, names, follows):
    """Pseudo-counts of the tables ``names``: floats, or one per document if a table follows one
    that stands before it."""
    priors = {}
    for name in names:
        other = follows.get(name)
        along = None
        if other in priors:
            along = posterior_mean(*counts[other][:2], priors[other])
        priors[name] = empirical_beta_of_hidden(tables[name], *counts[name], along)
    return priors


#: Range of a + b: below, a prior has no effect; above, all documents have the same probability.
_STRENGTHS = (0.5, 1e4)
_MEANS = (1e-4, 1 - 1e-4)
#: A prior of hidden events is learned from at most so many documents.
_MAX_DOCS = 10_000
#: A prior that follows another probability is integrated for so many groups of documents, and its
#: logit rises at most so many times as fast.
_N_GROUPS = 20
_SLOPES = (-3.0, 3.0)
#: Edges of the bins of its integral, and range of the variance of logits: a prior is not narrower
#: than a bin.
_LOGITS = np.linspace(-12, 12, 121)
_VARIANCES_OF_LOGITS = (25.0, 0.04)


def given_prior(prior):
    """The parameter ``prior`` as pseudo-counts (a, b), None if it is to be learned."""
    if isinstance(prior, str):
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
    known = trials > 0
    successes, failures = successes[known], (trials - successes)[known]
    total = successes.sum() + failures.sum()
    if not total:
        return 0.5, 0.5
    mean = np.clip(successes.sum() / total, *_MEANS)

    def objective(point):
        mean = expit(point[0])
        strength = np.exp(point[1])
        a = mean * strength
        b = (1 - mean) * strength
        value = betaln(a + successes, b + failures).sum() - len(successes) * betaln(a, b)
        both = digamma(a + b + successes + failures) - digamma(a + b)
        by_a = (digamma(a + successes) - digamma(a) - both).sum()
        by_b = (digamma(b + failures) - digamma(b) - both).sum()
        by_mean = (by_a - by_b) * strength * mean * (1 - mean)
        return -value / total, -np.array([by_mean, by_a * a + by_b * b]) / total

    found = minimised(
        objective,
        [logit(mean), np.log(2.0)],
        "The prior of relevance",
        jac=True,
        method="L-BFGS-B",
        bounds=[tuple(logit(_MEANS)), tuple(np.log(_STRENGTHS))],
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

    Relative to p0, L_d(p) is a product of one term 1 + δ (p - p0) per event: δ is 1 / p0 for an
    observed success, -1 / (1 - p0) for an observed failure, and between them for a hidden event.
    The hidden events of a document are assumed to have one δ. With w observed successes and f
    observed failures,

        log L_d(p) = w log p + f log(1 - p) + (g / δ) log(1 + δ (p - p0)),    δ = h / g.

    Here g is the sum of δ over the hidden events, the slope of their log likelihood at p0
    (Fisher's identity), and h is the sum of δ², minus its curvature (Louis 1982, "Finding the
    observed information matrix when using the EM algorithm", JRSS B). Both are exact at p0.

    With another probability of each document, ``along``, a and b are arrays of shape (n_docs,):
    the logit of the prior mean is a line in the logit of that probability. A document of which
    little is known then gets what is usual among those like it.
    """
    some = np.flatnonzero(trials > 0)
    if not len(some):
        return 0.5, 0.5
    levels = np.zeros(len(trials)) if along is None else logit(along)
    levels = levels - levels.mean()
    # More documents would hardly change two parameters.
    some = some[:: -(-len(some) // _MAX_DOCS)]
    p, hits, n, lost = (values[some] for values in (probability, successes, trials, missing))
    won, failed = (values[some] for values in sure)
    q = 1 - p
    slope = (hits - won) / p - (n - hits - failed) / q
    square = (hits - won) / p**2 + (n - hits - failed) / q**2 - lost
    delta = square / np.where(slope == 0, 1.0, slope)
    delta = np.where(slope > 0, np.clip(delta, 1e-9, 1 / p), np.clip(delta, -1 / q, -1e-9))
    step = _LOGITS[1] - _LOGITS[0]
    edges = np.concatenate(([0.0], expit(_LOGITS), [1.0]))
    at = expit(np.append(_LOGITS, _LOGITS[-1] + step) - step / 2)
    log_likelihood = np.outer(won, np.log(at)) + np.outer(failed, np.log1p(-at))
    log_likelihood += (slope / delta)[:, None] * np.log1p(delta[:, None] * (at - p[:, None]))
    likelihood = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
    group, centres = _groups(levels[some])
    parts = [likelihood[group == each] for each in range(len(centres))]

    def pseudo_counts(point, level):
        slope = point[2] if len(point) > 2 else 0.0
        mean = np.clip(expit(point[0] + slope * level), *_MEANS)
        strength = np.clip(np.exp(point[1]) / (mean * (1 - mean)), *_STRENGTHS)
        return mean * strength, (1 - mean) * strength

    def objective(point):
        a, b = pseudo_counts(point, centres[:, None])
        mass = np.diff(betainc(a, b, edges))
        marginal = [part @ share for part, share in zip(parts, mass, strict=True)]
        return -np.log(np.concatenate(marginal) + TINY).mean()

    mean = np.clip(hits.sum() / n.sum(), *_MEANS)
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


def _groups(levels):
    """Group of each document, of similar levels, and the mean level of each group."""
    edges = np.unique(np.quantile(levels, np.linspace(0, 1, _N_GROUPS + 1)[1:-1]))
    group = np.unique(np.searchsorted(edges, levels), return_inverse=True)[1]
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

    with :math:`n_d` impressions and :math:`n_{dc}` clicks of the document. It is a baseline that
    reproduces the ranker which collected the clicks, because documents at the top were clicked
    most.

    Parameters
    ----------
    prior : "empirical" or (float, float), default="empirical"
        Pseudo-counts (a, b) of clicks and of skips, so that no click rate is exactly 0 or 1; by
        default those of the Beta distribution of click rates over documents, by maximum
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
        counts = (np.bincount(log.doc, each, log.n_docs) for each in (log.clicks, log.weight))
        self._remember_rates(log, *counts)

    def _probability(self, parameters, position, bias, clicks):
        return parameters["relevance"]


@dataclass(kw_only=True, eq=False, repr=False)
class RDCTRModel(CountingModel):
    r"""Document click-through rate per rank.

    P(click) of document d at rank k is its click rate there, with the click rates of all
    documents at rank k as prior. Relevance is the mean over ranks of its click rate divided by
    the click rate of the rank,

    .. math:: r_d = \frac{1}{K} \sum_{k=1}^{K} \frac{\mathrm{CTR}(d, k)}{\mathrm{CTR}(k)},

    It is 1 for a document with the mean click rate at every rank, and for unseen documents. It
    may exceed 1: it ranks documents but is not a probability.

    Parameters
    ----------
    prior : "empirical" or (float, float), default="empirical"
        Pseudo-counts of clicks and of skips at every rank; by default those of the Beta
        distribution of the click rates at each rank, by maximum likelihood.
    {variant_of_counts}

    Attributes
    ----------
    documents_ : DataFrame
        ``relevance`` by ``doc`` (by number where the log has no such column).
    examination_ : DataFrame
        One row per bias factor (index ``bias``; the position, unless the log has a column
        ``bias``): ``examination``, which is the click rate relative to the first factor and
        assumes equal relevance at all ranks, ``impressions`` and ``clicks``.
    prior_ : ndarray of shape (n_factors, 2)
        Pseudo-counts by bias factor.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    Notes
    -----
    The published sum is over the ranks at which a document was shown, so that documents shown at
    more ranks score higher. With a prior, every document has a click rate at every rank, and the
    sum is over all ranks.

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
        relevance = 1.0 + cells.by_doc(rate / mean[cells.factor] - 1.0) / cells.n_factors
        self._remember_documents(log, {"relevance": 1.0}, relevance=relevance)
        self._tables["doc"] = np.append(np.arange(cells.n_docs), -1)
        # Keys are sorted because cells are. Documents that were never shown have no code.
        self._keys = np.unique(cells.doc, return_inverse=True)[1] * cells.n_factors + cells.factor
        self._rates = np.append(rate, np.nan)
        self.examination_ = factor_table(
            log.bias_values, mean, cells.weight_of_factors, cells.clicks_of_factors
        )

    def _prior_at(self, cells, factor):
        at = cells.factor == factor
        return given_prior(self.prior) or empirical_beta(cells.clicks[at], cells.weight[at])

    def _probability(self, parameters, position, bias, clicks):
        factor = self._factors.codes(bias, parameters["relevance"] > 0)
        # Unseen documents have the number -1; no key is below 0.
        key = parameters["doc"] * len(self.prior_) + factor
        place = np.searchsorted(self._keys, key)
        found = self._keys[np.minimum(place, len(self._keys) - 1)] == key
        prior = self.prior_[factor, 0] / self.prior_[factor].sum(axis=-1)
        rate = np.where(found, self._rates[np.where(found, place, -1)], prior)
        # Beyond the end of a list relevance is 0, and so is P(click).
        return np.where(parameters["relevance"] > 0, rate, 0.0)
