"""Clicks as relevance times examination, counted by document and factor."""

import numpy as np

__all__ = ["bands", "expected_counts", "start_tables"]


def bands(weight, least):
    """Number of the band of each factor: neighbours together that weigh ``least`` or more.

    Parameters
    ----------
    weight : ndarray of shape (n_factors,)
        Impressions of each factor, neighbours side by side.
    least : float

    Returns
    -------
    band : ndarray of shape (n_factors,), intp
        From 0 without gaps; all 0 where everything together weighs less.

    Examples
    --------
    >>> import numpy as np
    >>> bands(np.array([200.0, 100.0, 30.0, 0.0, 80.0, 10.0]), 100.0)
    array([0, 1, 2, 2, 2, 2])
    """
    band = np.empty(len(weight), dtype=np.intp)
    n_full, total = 0, 0.0
    for factor, more in enumerate(weight):
        band[factor] = n_full
        total += more
        if total >= least:
            n_full, total = n_full + 1, 0.0
    # What is left at the end belongs to the last full one.
    return np.minimum(band, max(n_full - 1, 0))


def expected_counts(cells, relevance, examination):
    """E-step of clicks = examined and relevant, where only examination is hidden.

    A click says that the row was examined; a skip leaves it open. Relevance is then the share of
    clicks among what was examined, which takes far fewer steps than to hide relevance as well.

    Returns
    -------
    counts : dict of str to (successes, trials)
        Of relevance with what is hidden, as :func:`fit_em` takes it.
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
    """Examination in the ratio of click rates, and the relevance that then explains the clicks."""
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
