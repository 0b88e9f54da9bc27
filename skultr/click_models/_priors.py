"""Beta priors, from the counts of many documents."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import betaln, digamma, expit, logit

__all__ = ["empirical_beta", "posterior_mean"]

#: Pseudo-impressions of a prior: fewer say nothing, and with more all documents are alike.
_STRENGTHS = (0.5, 1e4)
_MEANS = (1e-4, 1 - 1e-4)


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


def posterior_mean(successes, trials, prior):
    """Mean of a probability given its counts and pseudo-counts (successes, failures)."""
    return (successes + prior[0]) / (trials + prior[0] + prior[1])
