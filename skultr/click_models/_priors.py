"""Beta priors of probabilities, learned from the counts of many documents."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import betainc, betaln, digamma, expit, logit

from .._log._segments import TINY
from .._sklearn import StrOptions

#: Valid values of a parameter ``prior``, for scikit-learn's check.
PRIOR_CONSTRAINT = [StrOptions({"empirical"}), "array-like"]
#: Range of a + b: below, a prior has no effect; above, all documents have the same probability.
_STRENGTHS = (0.5, 1e4)
_MEANS = (1e-4, 1 - 1e-4)
#: A prior of hidden events is learned from at most so many documents.
_MAX_DOCS = 10_000
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
        mean, strength = expit(point[0]), np.exp(point[1])
        a, b = mean * strength, (1 - mean) * strength
        value = betaln(a + successes, b + failures).sum() - len(successes) * betaln(a, b)
        both = digamma(a + b + successes + failures) - digamma(a + b)
        by_a = (digamma(a + successes) - digamma(a) - both).sum()
        by_b = (digamma(b + failures) - digamma(b) - both).sum()
        by_mean = (by_a - by_b) * strength * mean * (1 - mean)
        return -value / total, -np.array([by_mean, by_a * a + by_b * b]) / total

    found = minimize(
        objective,
        [logit(mean), np.log(2.0)],
        jac=True,
        method="L-BFGS-B",
        bounds=[tuple(logit(_MEANS)), tuple(np.log(_STRENGTHS))],
        options={"ftol": 1e-12, "gtol": 1e-10},
    )
    mean, strength = expit(found.x[0]), np.exp(found.x[1])
    return float(mean * strength), float((1 - mean) * strength)


def empirical_beta_of_hidden(probability, successes, trials, missing, sure):
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
    """
    some = np.flatnonzero(trials > 0)
    if not len(some):
        return 0.5, 0.5
    # More documents would hardly change two parameters.
    some = some[:: -(-len(some) // _MAX_DOCS)]
    p, hits, n, lost = (of[some] for of in (probability, successes, trials, missing))
    won, failed = (of[some] for of in sure)
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

    def pseudo_counts(point):
        mean = expit(point[0])
        strength = np.clip(np.exp(point[1]) / (mean * (1 - mean)), *_STRENGTHS)
        return mean * strength, (1 - mean) * strength

    def objective(point):
        mass = np.diff(betainc(*pseudo_counts(point), edges))
        return -np.log(likelihood @ mass + TINY).mean()

    mean = np.clip(hits.sum() / n.sum(), *_MEANS)
    found = minimize(
        objective,
        [logit(mean), 0.0],
        method="L-BFGS-B",
        bounds=[tuple(logit(_MEANS)), tuple(-np.log(_VARIANCES_OF_LOGITS))],
    )
    a, b = pseudo_counts(found.x)
    return float(a), float(b)


def posterior_mean(successes, trials, prior):
    """Posterior mean of a probability, (successes + a) / (trials + a + b) with prior (a, b)."""
    return (successes + prior[0]) / (trials + prior[0] + prior[1])
