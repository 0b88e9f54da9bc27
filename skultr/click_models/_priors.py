"""Beta priors, from the counts of many documents."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import betainc, betaln, digamma, expit, logit

from .._sklearn import StrOptions

__all__ = [
    "PRIOR_CONSTRAINT",
    "empirical_beta",
    "empirical_beta_of_hidden",
    "given_prior",
    "posterior_mean",
]

#: What scikit-learn may find in a parameter ``prior``.
PRIOR_CONSTRAINT = [StrOptions({"empirical"}), "array-like"]
#: Pseudo-impressions of a prior: fewer say nothing, and with more all documents are alike.
_STRENGTHS = (0.5, 1e4)
_MEANS = (1e-4, 1 - 1e-4)
#: Documents from which a prior of hidden events is learned, at most.
_MAX_DOCS = 10_000
#: Where its integral is cut into bins, and how wide the prior may be: no narrower than a bin.
_LOGITS = np.linspace(-12, 12, 121)
_VARIANCES_OF_LOGITS = (25.0, 0.04)


def given_prior(prior):
    """The parameter ``prior`` as pseudo-counts, None where it is to be learned."""
    if isinstance(prior, str):
        return None
    try:
        counts = np.asarray(prior, dtype=float)
    except (TypeError, ValueError):  # not numbers
        counts = np.empty(0)
    if counts.shape != (2,) or not (np.isfinite(counts).all() and (counts > 0).all()):
        raise ValueError(
            f"prior must be 'empirical' or two numbers above 0, pseudo-counts of clicks and "
            f"of skips, such as (0.2, 0.8); got {prior!r}."
        )
    return tuple(counts.tolist())


def empirical_beta(successes, trials):
    """The Beta distribution of a probability over documents, from each one's counts.

    The maximum of the beta-binomial likelihood (empirical Bayes).

    Parameters
    ----------
    successes, trials : ndarray of shape (n_docs,)
        May be fractions, as expected counts are.

    Returns
    -------
    prior : tuple of (float, float)
        Pseudo-counts of successes and failures; together between 0.5 and 10,000.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> clicks = rng.binomial(20, rng.beta(2, 6, 5_000))
    >>> np.round(empirical_beta(clicks, np.full(5_000, 20)), 1).tolist()
    [2.1, 6.2]
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
    """As :func:`empirical_beta` where successes or trials are partly hidden.

    Expected counts are no observations: what is hidden is filled in by the prior under which
    they were expected, so that all documents look alike. Here only the likelihood of the clicks
    counts. It is a product of terms 1 + d (p - p0), one an event: of a sure success d = 1 / p0,
    of a sure failure -1 / (1 - p0), and in between where an event is hidden. Hidden events of a
    document are taken to have one d, so that slope (Fisher's identity) and curvature (Louis
    1982, "Finding the observed information matrix when using the EM algorithm", JRSS B) of its
    log likelihood are right at p0.

    Parameters
    ----------
    probability : ndarray of shape (n_docs,)
        Where the counts were expected, p0.
    successes, trials : ndarray of shape (n_docs,)
        Expected counts.
    missing : ndarray of shape (n_docs,)
        Variance of successes / p0 - failures / (1 - p0) given the clicks.
    sure : tuple of two ndarray of shape (n_docs,)
        Successes and failures that are not hidden.

    Returns
    -------
    prior : tuple of (float, float)
        As of :func:`empirical_beta`, with a standard deviation of logits of about 0.2 at least:
        hidden events do not tell more.
    """
    some = np.flatnonzero(trials > 0)
    if not len(some):
        return 0.5, 0.5
    # Two numbers need no more documents.
    some = some[:: -(-len(some) // _MAX_DOCS)]
    p, hits, n, lost = (of[some] for of in (probability, successes, trials, missing))
    won, failed = (of[some] for of in sure)
    q = 1 - p
    slope = (hits - won) / p - (n - hits - failed) / q
    square = (hits - won) / p**2 + (n - hits - failed) / q**2 - lost
    size = square / np.where(slope == 0, 1.0, slope)
    size = np.where(slope > 0, np.clip(size, 1e-9, 1 / p), np.clip(size, -1 / q, -1e-9))
    step = _LOGITS[1] - _LOGITS[0]
    edges = np.concatenate(([0.0], expit(_LOGITS), [1.0]))
    at = expit(np.append(_LOGITS, _LOGITS[-1] + step) - step / 2)
    log_likelihood = np.outer(won, np.log(at)) + np.outer(failed, np.log1p(-at))
    log_likelihood += (slope / size)[:, None] * np.log1p(size[:, None] * (at - p[:, None]))
    likelihood = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))

    def pseudo_counts(point):
        mean = expit(point[0])
        strength = np.clip(np.exp(point[1]) / (mean * (1 - mean)), *_STRENGTHS)
        return mean * strength, (1 - mean) * strength

    def objective(point):
        mass = np.diff(betainc(*pseudo_counts(point), edges))
        return -np.log(likelihood @ mass + 1e-300).mean()

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
    """Mean of a probability given its counts and pseudo-counts (successes, failures)."""
    return (successes + prior[0]) / (trials + prior[0] + prior[1])
