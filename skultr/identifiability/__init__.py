"""Does a click log determine relevance at all, how firmly, and what would repair it?"""

from ._graph import IdentifiabilityGraph
from ._repair import IdentifiabilityRepair

__all__ = ["IdentifiabilityGraph", "IdentifiabilityRepair"]
