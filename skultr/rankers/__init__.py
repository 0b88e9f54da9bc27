"""Rankers that learn relevance from clicks: ``fit``, ``predict``, ``rank``, ``score``."""

from ._alternating import DLARanker, RegressionEMRanker
from ._lambdamart import LambdaMARTRanker
from ._ratio import PRSRanker
from ._towers import TwoTowerRanker
from ._trees import DistilledRanker
from ._weighted import IPSRanker, NaiveRanker, UserAwareIPSRanker

__all__ = [
    "DLARanker",
    "DistilledRanker",
    "IPSRanker",
    "LambdaMARTRanker",
    "NaiveRanker",
    "PRSRanker",
    "RegressionEMRanker",
    "TwoTowerRanker",
    "UserAwareIPSRanker",
]
