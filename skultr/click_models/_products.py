"""EM for clicks as relevance times examination, from counts per document and bias factor."""

from __future__ import annotations

import numpy as np


def factor_groups(weight, least):
    """Group of each factor, from 0 without gaps: neighbours are joined up to ``least``
    impressions."""
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
    """
    by_doc, by_factor, value = np.empty((3, len(relevance))), 0.0, 0.0
    for docs, part in cells.parts():
        by_doc[:, docs], of_factors, of_part = _counts_of_part(part, relevance[docs], examination)
        by_factor, value = by_factor + of_factors, value + of_part
    clicks, examined, missing = by_doc
    sure = clicks, np.zeros_like(clicks)
    counts = {
        "relevance": (clicks, examined, missing, sure),
        "examination": (by_factor, cells.weight_of_factors),
    }
    return counts, value


def _counts_of_part(cells, relevance, examination):
    """Counts by document and by factor, and the log likelihood, of some documents."""
    r, o = relevance[cells.doc], examination[cells.factor]
    click = r * o
    skips = cells.weight - cells.clicks
    chance = (o - click) / (1 - click)
    examined = cells.clicks + skips * chance
    missing = cells.by_doc(skips * chance * (1 - chance)) / (1 - relevance) ** 2
    by_doc = cells.by_doc(cells.clicks), cells.by_doc(examined), missing
    value = cells.clicks @ np.log(click) + skips @ np.log1p(-click)
    return by_doc, cells.by_factor(examined), value


def start_tables(cells):
    """Initial examination, proportional to click rates, and the relevance that fits it."""
    weight = cells.weight_of_factors
    with np.errstate(invalid="ignore"):
        rate = cells.clicks_of_factors / weight
    known = np.isfinite(rate)
    mean = cells.clicks_of_factors.sum() / weight.sum()
    rate = np.where(known, rate, mean)
    examination = np.clip(0.9 * rate / max(rate.max(), 1e-9), 0.05, 0.95)
    relevance = np.empty(cells.n_docs)
    for docs, part in cells.parts():
        chances = part.by_doc(part.weight * examination[part.factor])
        likely = (part.by_doc(part.clicks) + mean) / (chances + 1.0)
        relevance[docs] = np.clip(likely, 0.02, 0.95)
    return {"relevance": relevance, "examination": examination}
