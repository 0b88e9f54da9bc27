"""Expectation maximisation over tables of probabilities, accelerated and never downhill."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from ._priors import empirical_beta_of_hidden, posterior_mean

__all__ = ["WEAK", "EMFit", "fit_em", "fit_em_twice", "weak_priors"]

#: Pseudo-counts of parameters that all documents share: half a success, half a failure.
WEAK = (0.5, 0.5)
#: No probability is nearer to 0 or 1: its logarithm is finite.
_LEAST = 1e-9


@dataclass(frozen=True, eq=False)
class EMFit:
    """What :func:`fit_em` found.

    Parameters
    ----------
    tables : dict of str to ndarray
        The probabilities.
    counts : dict of str to (successes, trials, ...)
        Expected counts behind each of them, as ``expect`` gives them.
    objective : list of float
        Log likelihood plus log prior, by step; it never falls.
    n_iter : int
        EM steps taken.
    converged : bool
    """

    tables: dict
    counts: dict
    objective: list
    n_iter: int
    converged: bool


def fit_em(expect, start, priors, *, tol, max_iter):
    """Maximise the log posterior of tables of probabilities.

    Each round takes two EM steps and a long one in the direction in which they point (SQUAREM;
    Varadhan & Roland 2008). The long step is kept if the log posterior rises, else forgotten.

    Parameters
    ----------
    expect : callable
        ``expect(tables)`` gives the expected counts of each table, a dict of (successes,
        trials), and the log likelihood. Of tables whose prior is learned also what is hidden:
        ``missing`` and ``sure`` of :func:`empirical_beta_of_hidden`.
    start : dict of str to ndarray
        Where to begin.
    priors : dict of str to (a, b)
        Beta priors of the tables as pseudo-counts of successes and failures.
    tol : float
        Stop when a round adds less than this to the log posterior.
    max_iter : int
        EM steps at most.

    Returns
    -------
    fit : EMFit

    Raises
    ------
    FloatingPointError
        If the log posterior is not finite.
    """
    names = list(start)
    ends = np.cumsum([start[name].size for name in names])[:-1]

    def step(point):
        parts = np.split(expit(point), ends)
        tables = {
            name: np.clip(part, _LEAST, 1 - _LEAST)
            for name, part in zip(names, parts, strict=True)
        }
        counts, value = expect(tables)
        for name, table in tables.items():
            a, b = priors[name]
            value += np.sum(a * np.log(table) + b * np.log1p(-table))
        new = [posterior_mean(*counts[name][:2], priors[name]) for name in names]
        new = np.clip(np.concatenate(new), _LEAST, 1 - _LEAST)
        return logit(new), float(value), tables, counts

    point = logit(np.clip(np.concatenate([start[n] for n in names]), _LEAST, 1 - _LEAST))
    first, value, tables, counts = step(point)
    objective, n_iter, converged = [_finite(value)], 1, False
    while n_iter < max_iter and not converged:
        second, reached, tables, counts = step(first)
        n_iter += 1
        if n_iter < max_iter:
            leap = _leap(point, first, second)
            after, there, *rest = step(leap)
            n_iter += 1
            if there >= reached:
                point, first, reached = leap, after, there
                tables, counts = rest
            elif n_iter < max_iter:
                after, reached, tables, counts = step(second)
                n_iter += 1
                point, first = second, after
        converged = _finite(reached) - objective[-1] < tol
        objective.append(reached)
    return EMFit(tables, counts, objective, n_iter, converged)


def _finite(value):
    if not np.isfinite(value):
        raise FloatingPointError(
            f"The log posterior is {value}: the clicks have no probability under the model, or a "
            "sum overflowed. Check that impressions and sample weights are not huge; if they are "
            "in order, please report this."
        )
    return value


def _leap(point, first, second):
    """Where two steps would lead if each were a constant share of the one before."""
    move = first - point
    bend = (second - first) - move
    size = float(bend @ bend)
    if not size:
        return second
    length = max(1.0, np.sqrt(float(move @ move) / size))
    return np.clip(point + 2 * length * move + length**2 * bend, logit(_LEAST), logit(1 - _LEAST))


def fit_em_twice(expect, start, priors, *, tol, max_iter):
    """:func:`fit_em` with the priors that are None learned from the documents themselves.

    First each such prior is one pseudo-impression at the mean of all documents; then the Beta
    distribution of what was observed of the documents (empirical Bayes). Expected counts of
    hidden events are no observations, see :func:`empirical_beta_of_hidden`.

    Returns
    -------
    fit : EMFit
        The last fit.
    priors : dict of str to (a, b)
    """
    learned = [name for name, prior in priors.items() if prior is None]
    if learned:
        weak = weak_priors(expect(start)[0], learned)
        fit = fit_em(expect, start, {**priors, **weak}, tol=10 * tol, max_iter=max_iter)
        start = fit.tables
        for name in learned:
            prior = empirical_beta_of_hidden(start[name], *fit.counts[name])
            priors = {**priors, name: prior}
    return fit_em(expect, start, priors, tol=tol, max_iter=max_iter), priors


def weak_priors(counts, names):
    """One pseudo-impression at the mean of each table, from its expected counts."""
    totals = {name: [float(of.sum()) for of in counts[name][:2]] for name in names}
    means = {name: (of[0] + 0.5) / (of[1] + 1.0) for name, of in totals.items()}
    return {name: (mean, 1 - mean) for name, mean in means.items()}
