"""Estimators of examination (propensities): ``fit`` on a log, ``predict`` one number per row."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._clusters import UserClusters as UserClusters
    from ._contextual import ContextualPropensity as ContextualPropensity
    from ._curves import PowerLawPropensity as PowerLawPropensity
    from ._debiased_table import debiased_table as debiased_table
    from ._harvesting import InterventionHarvesting as InterventionHarvesting
    from ._harvesting import RandomizedPropensity as RandomizedPropensity
    from ._learned import DualLearningPropensity as DualLearningPropensity
    from ._learned import RegressionEMPropensity as RegressionEMPropensity
    from ._relevance_labels import relevance_labels as relevance_labels
else:
    from .._base._lazy import lazy_names

    # Lazy, so that estimators that only count do not import torch.
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "_clusters": ("UserClusters",),
            "_contextual": ("ContextualPropensity",),
            "_debiased_table": ("debiased_table",),
            "_harvesting": ("InterventionHarvesting", "RandomizedPropensity"),
            "_curves": ("PowerLawPropensity",),
            "_learned": ("DualLearningPropensity", "RegressionEMPropensity"),
            "_relevance_labels": ("relevance_labels",),
        },
    )
