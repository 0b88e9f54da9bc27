"""What repairs are judged by: relevance, examination, and how fast examination changes."""

import numpy as np

from .._models._tabular import fit_tabular
from ._bias_features import factor_label
from ._plans import neighbour_inside

__all__ = ["merge_errors", "swap_estimates"]

#: Estimates of relevance and examination are at least this.
_SMALLEST = 1e-3
#: Costs and errors of repairs are rough by nature, and nobody should wait for more digits.
_ROUGHLY = {"loss": "poisson", "tol": 1e-3, "max_iter": 30}
#: Examined impressions of the mean document that each document's relevance is shrunk by, so that
#: a document that was clicked in its single impression is not taken for the best of all.
_PRIOR = 10.0
#: Factors from which the typical slope of examination is taken.
_MAX_SLOPES = 2_000


def swap_estimates(pairs, merged, relevance, examination, *, required=True):
    """Relevance of documents and examination of factors that interventions are chosen by.

    Parameters
    ----------
    pairs : Pairs
    merged : ndarray of shape (n_factors,), int
        Codes of the factors such that the log with them is identifiable.
    relevance, examination : mapping or Series, or None
        Given values by document (a tuple of ``qid`` and ``doc`` where both name it) and by
        factor; estimated from the clicks where None.
    required : bool, default=True
        Without it, estimates are NaN where there are no clicks.

    Returns
    -------
    relevance : ndarray of shape (n_documents,)
    examination : ndarray of shape (n_factors,)
        Both within [0.001, 1].
    """
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


def merge_errors(graph, vectors, a, b, cost):
    """How far apart the log examinations of merged factors may be; NaN where unknown.

    Between each end and the factor of its own component that is about as far away as the other
    end, the log does tell how log examination changes with distance. An end that is alone in
    its component takes the typical slope of the most clicked factors.
    """
    pairs = graph.pairs
    if pairs.clicks is None:
        return np.full(len(cost), np.nan)
    fit = fit_tabular(pairs.doc, pairs.factor, pairs.clicks, pairs.impressions, **_ROUGHLY)
    log_examination = np.log(np.maximum(fit.examination, _SMALLEST))
    clicks = np.bincount(pairs.factor, pairs.clicks)
    clicked = np.flatnonzero(clicks > 0)
    some = clicked[np.argsort(-clicks[clicked], kind="stable")[:_MAX_SLOPES]]
    chosen = np.concatenate([a, b, some])
    apart = np.concatenate([cost, cost, np.full(len(some), np.median(cost))])
    neighbour, distance = neighbour_inside(vectors, graph.labels, chosen, apart)
    known = (neighbour >= 0) & (clicks[chosen] > 0) & (clicks[neighbour] > 0)
    if not known.any():
        return np.full(len(cost), np.nan)
    change = np.abs(log_examination[neighbour] - log_examination[chosen])
    slope = np.divide(change, distance, out=np.zeros(len(chosen)), where=known)
    slope[~known] = np.median(slope[known])
    return cost * slope[: 2 * len(cost)].reshape(2, -1).mean(axis=0)


def _estimated(pairs, merged, required):
    """The click model of merged factors, with relevance shrunk by the number of looks."""
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
    looks = np.bincount(pairs.doc, pairs.impressions * examination[factor])
    clicks = np.bincount(pairs.doc, pairs.clicks)
    mean = clicks.sum() / looks.sum()
    return (clicks + _PRIOR * mean) / (looks + _PRIOR), examination[merged]


def _doc_ids(pairs):
    if pairs.doc_ids is None:
        raise ValueError(
            "relevance= is given by document, but X has no column 'doc'. Add it, or leave "
            "relevance to be estimated from y."
        )
    return pairs.doc_ids


def _given(name, values, keys):
    """Numbers of a mapping or Series for all keys."""
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
