"""Rankers that learn relevance from clicks: ``fit``, ``predict``, ``rank``, ``score``."""

from ._alternating import DLARanker, RegressionEMRanker
from ._towers import TwoTowerRanker
from ._trees import DistilledRanker
from ._weighted import IPSRanker, NaiveRanker

__all__ = [
    "DLARanker",
    "DistilledRanker",
    "IPSRanker",
    "NaiveRanker",
    "RegressionEMRanker",
    "TwoTowerRanker",
]
