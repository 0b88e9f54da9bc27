"""Clicks as relevance times examination, counted by document and factor."""

from dataclasses import dataclass

import numpy as np

__all__ = ["Cells", "count_cells", "expected_counts", "start_tables"]


@dataclass(frozen=True, eq=False)
class Cells:
    """Clicks and impressions by (document, factor).

    Parameters
    ----------
    doc, factor : ndarray of shape (n_cells,), intp
    clicks, weight : ndarray of shape (n_cells,)
    n_docs, n_factors : int
    """

    doc: np.ndarray
    factor: np.ndarray
    clicks: np.ndarray
    weight: np.ndarray
    n_docs: int
    n_factors: int

    def by_doc(self, values):
        """Sums over the cells of each document."""
        return np.bincount(self.doc, values, minlength=self.n_docs)

    def by_factor(self, values):
        """Sums over the cells of each factor."""
        return np.bincount(self.factor, values, minlength=self.n_factors)


def count_cells(doc, factor, clicks, weight, n_docs, n_factors):
    """Clicks and impressions of each (document, factor) that rows show."""
    key, cell = _distinct(doc * n_factors + factor, n_docs * n_factors)
    return Cells(
        doc=key // n_factors,
        factor=key % n_factors,
        clicks=np.bincount(cell, clicks, minlength=len(key)),
        weight=np.bincount(cell, weight, minlength=len(key)),
        n_docs=n_docs,
        n_factors=n_factors,
    )


def _distinct(key, n_keys):
    """Distinct keys, sorted, and the number of each row's key among them."""
    if n_keys > 4 * len(key) + 1_000_000:
        return np.unique(key, return_inverse=True)
    # A table of all keys is far quicker than sorting.
    seen = np.zeros(n_keys, dtype=bool)
    seen[key] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[key]


def expected_counts(cells, relevance, examination):
    """E-step of clicks = examined and relevant, where only examination is hidden.

    A click says that the row was examined; a skip leaves it open. Relevance is then the share of
    clicks among what was examined, which takes far fewer steps than to hide relevance as well.

    Returns
    -------
    counts : dict of str to (successes, trials)
    log_likelihood : float
    """
    r, o = relevance[cells.doc], examination[cells.factor]
    click = r * o
    skips = cells.weight - cells.clicks
    examined = cells.clicks + skips * (o - click) / (1 - click)
    value = cells.clicks @ np.log(click) + skips @ np.log1p(-click)
    counts = {
        "relevance": (cells.by_doc(cells.clicks), cells.by_doc(examined)),
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
