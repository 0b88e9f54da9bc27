"""Does a click log determine relevance, how precisely, and what would repair it?"""

from ._graph import IdentifiabilityGraph
from ._overlap import FeatureOverlap, feature_overlap
from ._repair import IdentifiabilityRepair

__all__ = [
    "FeatureOverlap",
    "IdentifiabilityGraph",
    "IdentifiabilityRepair",
    "feature_overlap",
]
