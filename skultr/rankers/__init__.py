"""Rankers that learn relevance from clicks: ``fit``, ``predict``, ``rank``, ``score``."""

from ._affine import AffineRanker
from ._alternating import DLARanker, RegressionEMRanker
from ._heckman import HeckmanRanker
from ._lambdamart import LambdaMARTRanker
from ._pair_debias import PairDebiasRanker
from ._rank_aggregation import RankAggRanker
from ._ratio import PRSRanker
from ._selection import CLDRanker
from ._towers import TwoTowerRanker
from ._trees import DistilledRanker
from ._vectorization import VectorizationRanker
from ._weighted import IPSRanker, NaiveRanker, UserAwareIPSRanker

__all__ = [
    "AffineRanker",
    "CLDRanker",
    "DLARanker",
    "DistilledRanker",
    "HeckmanRanker",
    "IPSRanker",
    "LambdaMARTRanker",
    "NaiveRanker",
    "PRSRanker",
    "PairDebiasRanker",
    "RankAggRanker",
    "RegressionEMRanker",
    "TwoTowerRanker",
    "UserAwareIPSRanker",
    "VectorizationRanker",
]
