"""Tables of probabilities of events that are in part hidden, by accelerated EM."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from .._base._progress import Steps

#: Smallest distance of a probability from 0 and 1: logarithms stay finite.
_LEAST = 1e-9


@dataclass(frozen=True, eq=False)
class EMFit:
    """Result of :func:`fit_em`: tables, their expected counts, and the log posterior by round."""

    tables: dict[str, np.ndarray]
    counts: dict[str, tuple]
    objective: list[float]
    n_iter: int
    converged: bool


def fit_em(expect, start, priors, *, tol, max_iter):
    """Tables of probabilities that maximise the log posterior, by accelerated EM.

    Each round takes two EM steps and extrapolates them (SQUAREM; Varadhan & Roland 2008), see
    :func:`_extrapolated`. The extrapolation is kept if the log posterior does not fall, else the
    second EM step is.
    """
    names = list(start)
    ends = np.cumsum([start[name].size for name in names])[:-1]
    steps = Steps("step of EM", max_iter, may_end_early=True)

    def em_step(point):
        parts = np.split(expit(point), ends)
        tables = {}
        for name, part in zip(names, parts, strict=True):
            tables[name] = np.clip(part, _LEAST, 1 - _LEAST)
        # E-step: expected counts of the hidden events, and the log posterior.
        counts, value = expect(tables)
        for name, table in tables.items():
            a, b = priors[name]
            value += np.sum(a * np.log(table) + b * np.log1p(-table))
        # M-step: the posterior mean of each probability.
        new = [posterior_mean(*counts[name][:2], priors[name]) for name in names]
        new = np.clip(np.concatenate(new), _LEAST, 1 - _LEAST)
        steps.count()
        return logit(new), float(value), tables, counts

    point = np.concatenate([start[name] for name in names])
    point = logit(np.clip(point, _LEAST, 1 - _LEAST))
    first, value, tables, counts = em_step(point)
    objective = [_finite(value)]
    n_iter = 1
    converged = False
    # A round: from ``point`` to ``first``, to ``second``, and beyond. The next round starts where
    # this one ends, with a step that it has taken already.
    while n_iter < max_iter and not converged:
        second, reached, tables, counts = em_step(first)
        n_iter += 1
        if n_iter < max_iter:
            beyond = _extrapolated(point, first, second)
            after, there, *rest = em_step(beyond)
            n_iter += 1
            if there >= reached:
                point = beyond
                first = after
                reached = there
                tables, counts = rest
            elif n_iter < max_iter:
                # Too far: the round ends at the second step.
                after, reached, tables, counts = em_step(second)
                n_iter += 1
                point = second
                first = after
        # Monotone: a round that gains less than tol ends the search.
        converged = _finite(reached) - objective[-1] < tol
        objective.append(reached)
    steps.close()
    return EMFit(tables, counts, objective, n_iter, converged)


def _finite(value):
    if not np.isfinite(value):
        raise FloatingPointError(
            f"The log posterior is {value}: the clicks have probability 0 under the model, or a "
            "sum overflowed. Check that impressions and sample weights are not huge; if they are "
            "not, please report this."
        )
    return value


def _extrapolated(point, first, second):
    """The SQUAREM step from two EM steps x0 -> x1 -> x2, all in logits.

    With r = x1 - x0 and v = (x2 - x1) - r it is

        x0 + 2 a r + a² v,    a = max(1, |r| / |v|).

    With a = 1 it is x2. If each EM step is a constant share of the one before, it is their limit.
    """
    move = first - point
    curvature = (second - first) - move
    size = float(curvature @ curvature)
    if not size:
        return second
    length = max(1.0, np.sqrt(float(move @ move) / size))  # a
    beyond = point + 2 * length * move + length**2 * curvature
    return np.clip(beyond, logit(_LEAST), logit(1 - _LEAST))


def posterior_mean(successes, trials, prior):
    """Posterior mean of a probability, (successes + a) / (trials + a + b) with prior (a, b)."""
    a, b = prior
    return (successes + a) / (trials + a + b)
