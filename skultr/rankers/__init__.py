"""Rankers that learn relevance from clicks: ``fit``, ``predict``, ``rank``, ``score``."""

from ._affine import AffineRanker
from ._cld import CLDRanker
from ._distilled import DistilledRanker
from ._dual_learning import DLARanker
from ._heckman import HeckmanRanker
from ._ips import IPSRanker, NaiveRanker, UserAwareIPSRanker
from ._lambdamart import LambdaMARTRanker
from ._pair_debias import PairDebiasRanker
from ._prs import PRSRanker
from ._rank_aggregation import RankAggRanker
from ._regression_em import RegressionEMRanker
from ._two_tower import TwoTowerRanker
from ._vectorization import VectorizationRanker

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
