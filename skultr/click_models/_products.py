"""EM for clicks as relevance times examination, from counts per document and bias factor."""

from __future__ import annotations

import numpy as np

__all__ = ["expected_counts", "factor_groups", "start_tables"]


def factor_groups(weight, least):
    """Group of each factor: neighbours are joined until a group has ``least`` impressions.

    Parameters
    ----------
    weight : ndarray of shape (n_factors,)
        Impressions of each factor, in the order of the factors.
    least : float

    Returns
    -------
    group : ndarray of shape (n_factors,), intp
        Numbers from 0 without gaps; all 0 if all factors together have fewer impressions.

    Examples
    --------
    >>> import numpy as np
    >>> factor_groups(np.array([200.0, 100.0, 30.0, 0.0, 80.0, 10.0]), 100.0)
    array([0, 1, 2, 2, 2, 2])
    """
    group = np.empty(len(weight), dtype=np.intp)
    n_full, total = 0, 0.0
    for factor, more in enumerate(weight):
        group[factor] = n_full
        total += more
        if total >= least:
            n_full, total = n_full + 1, 0.0
    # Factors left over at the end join the last full group.
    return np.minimum(group, max(n_full - 1, 0))


def expected_counts(cells, relevance, examination):
    """E-step of P(click) = r o, with examination as the only hidden event.

    A clicked row was examined; a skipped row was examined with probability
    (o - r o) / (1 - r o). Relevance is then clicks over examinations. If relevance were hidden
    too, EM would need far more steps.

    Returns
    -------
    counts : dict of str to (successes, trials)
        Expected counts; those of relevance with ``missing`` and ``sure``, see :func:`fit_em`.
    log_likelihood : float
    """
    r, o = relevance[cells.doc], examination[cells.factor]
    click = r * o
    skips = cells.weight - cells.clicks
    chance = (o - click) / (1 - click)
    examined = cells.clicks + skips * chance
    missing = cells.by_doc(skips * chance * (1 - chance)) / (1 - relevance) ** 2
    clicks = cells.by_doc(cells.clicks)
    sure = clicks, np.zeros_like(clicks)
    value = cells.clicks @ np.log(click) + skips @ np.log1p(-click)
    counts = {
        "relevance": (clicks, cells.by_doc(examined), missing, sure),
        "examination": (cells.by_factor(examined), cells.by_factor(cells.weight)),
    }
    return counts, value


def start_tables(cells):
    """Initial examination, proportional to click rates, and the relevance that fits it."""
    with np.errstate(invalid="ignore"):
        rate = cells.by_factor(cells.clicks) / cells.by_factor(cells.weight)
    known = np.isfinite(rate)
    mean = cells.clicks.sum() / cells.weight.sum()
    rate = np.where(known, rate, mean)
    examination = np.clip(0.9 * rate / max(rate.max(), 1e-9), 0.05, 0.95)
    clicks = cells.by_doc(cells.clicks)
    chances = cells.by_doc(cells.weight * examination[cells.factor])
    relevance = np.clip((clicks + mean) / (chances + 1.0), 0.02, 0.95)
    return {"relevance": relevance, "examination": examination}
