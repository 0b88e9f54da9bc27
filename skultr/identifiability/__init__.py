"""Does a click log determine relevance, how precisely, and what would repair it?"""

from ._factor_rank import FactorRank, factor_rank
from ._graph import IdentifiabilityGraph
from ._overlap import FeatureOverlap, feature_overlap
from ._repair import IdentifiabilityRepair

__all__ = [
    "FactorRank",
    "FeatureOverlap",
    "IdentifiabilityGraph",
    "IdentifiabilityRepair",
    "factor_rank",
    "feature_overlap",
]
