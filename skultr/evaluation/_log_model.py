"""The position-based model of a log: what an experiment is planned with."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd

from .._typing import Floats, Ints
from ..exceptions import NotIdentifiableError
from ..propensity import InterventionHarvesting
from ..propensity._source import row_propensities

__all__ = ["LogModel", "read_model"]

#: Prior of log examination, as a share of the fall of log click rates: mean, standard deviation.
_PRIOR = 2 / 3, 1 / 6


@dataclass(frozen=True, eq=False)
class LogModel:
    """P(click) = relevance of the document of a query (pair) x examination of the position.

    Parameters
    ----------
    shown : ndarray of shape (n_pairs, n_positions)
        Impressions of each pair at each position.
    query : ndarray of shape (n_pairs,), int
    pages : ndarray of shape (n_queries,)
    relevance, doubt : ndarray of shape (n_pairs,)
        P(click) at the first position, and the variance of its error.
    examination, error : ndarray of shape (n_positions,)
        Relative to the first position, and the standard error of its logarithm.
    """

    shown: Floats
    query: Ints
    pages: Floats
    relevance: Floats
    doubt: Floats
    examination: Floats
    error: Floats

    @property
    def sessions(self) -> float:
        """Pages of the log."""
        return float(self.pages.sum())

    def clicks(self, moves: Floats) -> float:
        """Expected clicks if documents of the log had moved with P(from, to)."""
        return float(self.relevance @ self.shown @ moves @ self.examination)


def read_model(log, k, propensity):
    """The model of the first k positions, and where its examination comes from, in words."""
    positions = np.unique(log.slot_position).astype(int)[:k]
    n = len(positions)
    if n < 2 or (positions != np.arange(1, n + 1)).any():
        raise ValueError(
            f"The log has the positions {positions[:10].tolist()}; expected 1, 2, ... without "
            "gaps, and at least two. Pass k= to plan for the first ones."
        )
    inside = log.slot_position[log.slot] <= n
    row_pair, at = log.pair[log.row][inside], log.slot_position[log.slot][inside].astype(int) - 1
    shown, clicks = (
        np.bincount(row_pair * n + at, of[inside], minlength=len(log.pair_query) * n).reshape(
            -1, n
        )
        for of in (log.weight, log.weight * log.rate)
    )
    rate = clicks.sum(axis=0) / shown.sum(axis=0)
    if not rate.all():
        raise ValueError(
            f"The log has no click at position {positions[rate == 0][0]}, so that no experiment "
            "can be planned for it. Pass a smaller k, or a longer log."
        )
    examination, error, words = _examination(log, shown, clicks, propensity)
    # Relevance: gamma prior around the mean at the positions where a document was shown.
    mean = np.append(rate / examination, (rate / examination)[-1])
    usual = np.column_stack([shown, shown.sum(axis=1) == 0]) @ mean
    usual /= np.maximum(shown.sum(axis=1), 1)
    clicked, due = clicks.sum(axis=1), shown @ examination * usual
    spread = ((clicked - due) ** 2 - due).sum() / (due**2).sum()
    shape = 1 / np.clip(spread, 1e-3, 10)
    relevance = usual * (clicked + shape) / (due + shape)
    doubt = relevance * usual / (due + shape)
    model = LogModel(
        shown, log.pair_query, log.query_pages, np.minimum(relevance, 1), doubt, examination, error
    )
    return model, words


def _examination(log, shown, clicks, propensity):
    """Examination relative to the first position, error of its logarithm, and its source."""
    positions = np.arange(1, shown.shape[1] + 1)
    if propensity is not None:
        given, _ = row_propensities(
            propensity, log.X, log.y, log.sample_weight, log.roles, default=None
        )
        shown = pd.Series(np.asarray(given, dtype=float)[log.row] * log.weight)
        at = log.slot_position[log.slot]
        known = (shown.groupby(at).sum() / pd.Series(log.weight).groupby(at).sum())[positions]
        if not (known > 0).all():
            raise ValueError("A propensity is 0 or missing; expected numbers above 0.")
        return (known / known.iloc[0]).to_numpy(), np.zeros(len(known)), "Examination was given."
    rate = clicks.sum(axis=0) / shown.sum(axis=0)
    fall = np.log(rate / rate[0])
    precision = np.maximum(np.abs(fall) * _PRIOR[1], 0.01) ** -2.0
    found, error = _harvested(shown, clicks, log.pair_query)
    told = error**-2.0
    share = told / (told + precision)
    words = "Examination is that of the log."
    if (vague := share[1:] < 0.5).any():
        words = (
            f"The log tells little of examination at the positions {_some(positions[1:][vague])}:"
            f" {_PRIOR[0]:.0%} of the fall of their click rates (in logarithms) is taken for "
            "examination. Plan again from the first days of the experiment."
        )
    examination = np.exp(share * found + (1 - share) * _PRIOR[0] * fall)
    return examination, np.append(0.0, (told + precision)[1:] ** -0.5), words


def _harvested(shown, clicks, query):
    """Log examination from documents at several positions, and its error; infinite without."""
    pair, place = np.nonzero(shown)
    counted = pd.DataFrame({"qid": query[pair], "doc": pair, "position": place + 1})
    counted["session"], counted["impressions"] = np.arange(len(pair)), shown[pair, place]
    estimator, positions = InterventionHarvesting(n_bootstrap=0), np.arange(1, shown.shape[1] + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the prior stands in for what it warns of
            estimator.fit(counted, clicks[pair, place] / shown[pair, place])
    except NotIdentifiableError:
        return np.zeros(len(positions)), np.full(len(positions), np.inf)
    table = estimator.examination_.reindex(positions)
    known = table["examination"].notna() & table["examination"].notna().iloc[0]
    error = np.where(known, np.maximum(table["standard_error"], 1e-3), np.inf)
    return np.where(known, np.log(table["examination"]), 0.0), error


def _some(values):
    return ", ".join(map(str, values[:5])) + (", ..." if len(values) > 5 else "")
