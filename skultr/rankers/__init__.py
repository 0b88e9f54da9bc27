"""Rankers that learn relevance from clicks: ``fit``, ``predict``, ``rank``, ``score``."""

from ._alternating import DLARanker
from ._weighted import IPSRanker, NaiveRanker

__all__ = ["DLARanker", "IPSRanker", "NaiveRanker"]
