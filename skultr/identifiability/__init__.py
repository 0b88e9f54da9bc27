"""Does a click log determine relevance at all, how firmly, and what would repair it?"""

from ._graph import IdentifiabilityGraph
from ._rank import FactorRank, factor_rank
from ._repair import IdentifiabilityRepair

__all__ = ["FactorRank", "IdentifiabilityGraph", "IdentifiabilityRepair", "factor_rank"]
