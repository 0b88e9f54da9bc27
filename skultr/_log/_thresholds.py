"""Numbers that decide something about a user's data: the only ones of this folder."""

from __future__ import annotations

from .._base._threshold import Threshold

SOME_WITHOUT_ORDER = Threshold(
    0.1,
    "share of queries without an order from which metrics warn of a ranking",
    "it ties few queries, if any, unless scores are missing",
    "choice",
)
NEARLY_ALL_WITHOUT_ORDER = Threshold(
    0.9,
    "share of queries without an order from which a fitted ranker warns",
    "a model of few splits may tie many queries, and still orders the others",
    "choice",
)
