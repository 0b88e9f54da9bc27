"""The position-based model of a log: what an experiment is planned with."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd

from .._log._roles import read_role
from .._typing import Floats, Ints
from ..exceptions import NotIdentifiableError
from ..propensity import InterventionHarvesting
from ..propensity._expected_errors import Precision, expected_precision
from ..propensity._source import row_propensities

__all__ = ["LogModel", "read_model"]

#: Prior of log examination, as a share of the fall of log click rates: mean, standard deviation.
_PRIOR = 2 / 3, 1 / 6


@dataclass(frozen=True, eq=False)
class LogModel:
    """P(click) = relevance of the document of a query (pair) x examination of the position."""

    query_ids: Ints
    query: Ints  # of each pair
    pages: Floats  # of each query
    shown: Floats  # impressions, of shape (n_pairs, n_positions)
    relevance: Floats  # P(click) of each pair at the first position
    doubt: Floats  # variance of its error
    examination: Floats  # of each position, relative to the first
    error: Floats  # standard error of its logarithm
    source: str  # of examination, in words

    @property
    def sessions(self) -> float:
        """Pages of the log."""
        return float(self.pages.sum())

    def clicks(self, moves: Floats) -> float:
        """Expected clicks per page if documents of the log had moved with P(from, to)."""
        return float(self.relevance @ self.shown @ moves @ self.examination) / self.sessions

    def precision(self, moves: Floats, sessions: float) -> Precision:
        """Half-widths after the log and so many further pages with these moves."""
        shown = self.shown + self.shown @ moves * (sessions / self.sessions)
        return expected_precision(shown, self.relevance, self.examination, self.error)


def read_model(log, k, propensity):
    """The model of the first k positions."""
    positions = np.unique(log.slot_position).astype(int)[:k]
    n = len(positions)
    if n < 2 or (positions != np.arange(1, n + 1)).any():
        raise ValueError(
            f"The log has the positions {positions[:10].tolist()}; expected 1, 2, ... without "
            "gaps, and at least two. Pass k= to plan for the first ones."
        )
    place = log.slot_position[log.slot].astype(int) - 1
    inside = place < n
    cell = (log.pair[log.row] * n + place)[inside]
    shown, clicks = (
        np.bincount(cell, of[inside], minlength=len(log.pair_query) * n).reshape(-1, n)
        for of in (log.weight, log.weight * log.rate)
    )
    rate = clicks.sum(axis=0) / shown.sum(axis=0)
    if not rate.all():
        raise ValueError(
            f"The log has no click at position {positions[rate == 0][0]}, so that no experiment "
            "can be planned for it. Pass a smaller k, or a longer log."
        )
    if propensity is None and read_role(log.X, "propensity", None) is None:
        examination, error, source = _estimated(shown, clicks, log.pair_query)
    else:
        examination, error = _given(log, propensity, n), np.zeros(n)
        source = "Examination was given."
    # Relevance: gamma prior around the mean at the positions where a document was shown.
    mean = np.append(rate / examination, (rate / examination)[-1])
    usual = np.column_stack([shown, shown.sum(axis=1) == 0]) @ mean
    usual /= np.maximum(shown.sum(axis=1), 1)
    clicked, due = clicks.sum(axis=1), shown @ examination * usual
    spread = ((clicked - due) ** 2 - due).sum() / (due**2).sum()
    shape = 1 / np.clip(spread, 1e-3, 10)
    relevance = usual * (clicked + shape) / (due + shape)
    return LogModel(
        query_ids=log.rows.query_ids,
        query=log.pair_query,
        pages=log.query_pages,
        shown=shown,
        relevance=np.minimum(relevance, 1),
        doubt=relevance * usual / (due + shape),
        examination=examination,
        error=error,
        source=source,
    )


def _given(log, source, n):
    """Examination relative to the first position: means of propensities over impressions."""
    given, _ = row_propensities(source, log.X, log.y, log.sample_weight, log.roles, default=None)
    place = log.slot_position[log.slot].astype(int) - 1
    given = np.asarray(given, dtype=float)[log.row] * log.weight
    known = (np.bincount(place, given) / np.bincount(place, log.weight))[:n]
    if not (known > 0).all():
        raise ValueError("A propensity is 0 or missing; expected numbers above 0.")
    return known / known[0]


def _estimated(shown, clicks, query):
    """Log and prior combined: examination, the error of its logarithm, and words."""
    rate = clicks.sum(axis=0) / shown.sum(axis=0)
    fall = np.log(rate / rate[0])
    precision = np.maximum(np.abs(fall) * _PRIOR[1], 0.01) ** -2.0
    found, error = _harvested(shown, clicks, query)
    told = error**-2.0
    share = told / (told + precision)
    source = "Examination is that of the log."
    if (vague := np.flatnonzero(share[1:] < 0.5) + 2).size:
        some = ", ".join(map(str, vague[:5])) + ", ..." * (len(vague) > 5)
        source = (
            f"The log tells little of examination at the positions {some}: {_PRIOR[0]:.0%} of the "
            "fall of their click rates (in logarithms) is taken for examination. Plan again from "
            "the first days of the experiment."
        )
    examination = np.exp(share * found + (1 - share) * _PRIOR[0] * fall)
    return examination, np.append(0.0, (told + precision)[1:] ** -0.5), source


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
