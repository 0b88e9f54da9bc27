"""Estimates that repairs are planned and judged by: relevance, examination and its slope."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._log._pairs import Pairs
from .._models._tabular import fit_tabular
from .._typing import Floats, Ints
from ._bias_features import factor_label
from ._plans import neighbour_inside

#: Estimates of relevance and examination are at least this.
_SMALLEST = 1e-3
#: Settings of fits: costs and errors of repairs are approximate, so that a rough fit is enough.
_ROUGHLY = {"loss": "poisson", "tol": 1e-3, "max_iter": 30}
#: Examined impressions with the mean click rate that are added to those of each document; without
#: them a document that was clicked in its single impression would be rated best.
_PRIOR = 10.0
#: Number of factors from which the slope of examination is taken.
_MAX_SLOPES = 2_000
#: A slope is steep if this share of the slopes is no steeper.
_STEEP = 0.9


def swap_estimates(
    pairs: Pairs, merged: Any, relevance: Any, examination: Any, *, required: bool = True
) -> tuple[Floats, Floats]:
    """Relevance of each document and examination of each factor, both in [0.001, 1]: those given,
    or estimates from the clicks of merged factors (NaN without clicks, an error if
    ``required``)."""
    if relevance is not None:
        relevance = _given("relevance", relevance, _doc_ids(pairs))
    if examination is not None:
        keys = [factor_label(pairs.factors, code) for code in range(pairs.n_factors)]
        examination = _given("examination", examination, keys)
    if relevance is None or examination is None:
        estimates = _estimated(pairs, merged, required)
        relevance = estimates[0] if relevance is None else relevance
        examination = estimates[1] if examination is None else examination
    return np.clip(relevance, _SMALLEST, 1.0), np.clip(examination, _SMALLEST, 1.0)


def merge_errors(graph: Any, vectors: Floats, a: Ints, b: Ints, cost: Floats) -> Floats:
    """Guessed difference of the log examinations of each merged pair; NaN where unknown.

    The guess for factors a and b at distance d is d times the steepest of slope(a), slope(b) and
    the 90 % quantile of the slopes of the most clicked factors, with

        slope(t)^2 = ((log o_t - log o_t')^2 - variance) / distance(t, t')^2,

    where t' is the factor of the component of t whose distance from t is nearest to d: within a
    component the log determines ratios of examinations. The variance is that of the estimated
    difference, without which noise would look steep. The steepest step may still be the one
    between two components, which no log shows.
    """
    pairs = graph.pairs
    if pairs.clicks is None:
        return np.full(len(cost), np.nan)
    fit = fit_tabular(pairs.doc, pairs.factor, pairs.clicks, pairs.impressions, **_ROUGHLY)
    log_examination = np.log(np.maximum(fit.examination, _SMALLEST))
    variance = fit.own_error() ** 2
    clicks = np.bincount(pairs.factor, pairs.clicks)
    clicked = np.flatnonzero(clicks > 0)
    some = clicked[np.argsort(-clicks[clicked], kind="stable")[:_MAX_SLOPES]]
    chosen = np.concatenate([a, b, some])
    apart = np.concatenate([cost, cost, np.full(len(some), np.median(cost))])
    neighbour, distance = neighbour_inside(vectors, graph.labels, chosen, apart)
    noise = variance[neighbour] + variance[chosen]
    known = (neighbour >= 0) & np.isfinite(noise)
    if not known[2 * len(cost) :].any():
        return np.full(len(cost), np.nan)
    change = (log_examination[neighbour] - log_examination[chosen]) ** 2
    slope = np.zeros(len(chosen))
    slope[known] = np.sqrt(np.maximum(change - noise, 0.0)[known]) / distance[known]
    typical = slope[2 * len(cost) :][known[2 * len(cost) :]]
    steep = np.quantile(typical, _STEEP, method="higher")
    return cost * np.maximum(steep, slope[: 2 * len(cost)].reshape(2, -1).max(axis=0))


def _estimated(pairs, merged, required):
    """Estimates of the position-based model of merged factors, with relevance shrunk to its mean.

    With c clicks in n examined impressions, relevance is (c + 10 m) / (n + 10), where m is the
    mean of clicks over examined impressions.
    """
    if pairs.clicks is None:
        if required:
            raise ValueError(
                "strategy='intervene' needs the clicks to estimate what a swap costs, but y is "
                "None: pass y, or both relevance= (by document) and examination= (by bias "
                "factor), or cost='random'."
            )
        return np.full(pairs.n_documents, np.nan), np.full(pairs.n_factors, np.nan)
    factor = merged[pairs.factor]
    fit = fit_tabular(pairs.doc, factor, pairs.clicks, pairs.impressions, **_ROUGHLY)
    examination = fit.examination / fit.examination.max()
    examined = np.bincount(pairs.doc, pairs.impressions * examination[factor])
    clicks = np.bincount(pairs.doc, pairs.clicks)
    mean = clicks.sum() / examined.sum()
    return (clicks + _PRIOR * mean) / (examined + _PRIOR), examination[merged]


def _doc_ids(pairs):
    if pairs.doc_ids is None:
        raise ValueError(
            "relevance= is given by document, but X has no column 'doc'. Add it, or leave "
            "relevance to be estimated from y."
        )
    return pairs.doc_ids


def _given(name, values, keys):
    """Array of the probabilities that a mapping or Series gives for the keys."""
    values = dict(values.items())
    keys = list(keys.tolist() if hasattr(keys, "tolist") else keys)
    lacking = [key for key in keys if key not in values]
    if lacking:
        raise ValueError(
            f"{name} lacks {len(lacking)} of {len(keys)} keys of the log, first {lacking[0]!r}; "
            f"expected a probability for each, such as {{{lacking[0]!r}: 0.5}}."
        )
    numbers = np.array([values[key] for key in keys], dtype=float)
    bad = np.flatnonzero(~((numbers >= 0) & (numbers < np.inf)))
    if len(bad):
        raise ValueError(
            f"{name} is {numbers[bad[0]]} for {keys[bad[0]]!r}; expected a probability in [0, 1]."
        )
    return numbers
