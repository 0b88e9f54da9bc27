"""Rankers that learn relevance from clicks: ``fit``, ``predict``, ``rank``, ``score``."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._affine import AffineRanker as AffineRanker
    from ._cld import CLDRanker as CLDRanker
    from ._distilled import DistilledRanker as DistilledRanker
    from ._dual_learning import DLARanker as DLARanker
    from ._dual_learning import RegressionEMRanker as RegressionEMRanker
    from ._dual_learning import TwoTowerRanker as TwoTowerRanker
    from ._ensemble import EnsembleRanker as EnsembleRanker
    from ._heckman import HeckmanRanker as HeckmanRanker
    from ._ips import IPSRanker as IPSRanker
    from ._ips import NaiveRanker as NaiveRanker
    from ._ips import UserAwareIPSRanker as UserAwareIPSRanker
    from ._lambdamart import LambdaMARTRanker as LambdaMARTRanker
    from ._pair_debias import PairDebiasRanker as PairDebiasRanker
    from ._pair_debias import PRSRanker as PRSRanker
    from ._rank_agg import RankAggRanker as RankAggRanker
    from ._vectorization import VectorizationRanker as VectorizationRanker
else:
    from .._base._lazy import lazy_names

    # Lazy, so that rankers of trees do not import torch.
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "_affine": ("AffineRanker",),
            "_cld": ("CLDRanker",),
            "_distilled": ("DistilledRanker",),
            "_dual_learning": ("DLARanker", "RegressionEMRanker", "TwoTowerRanker"),
            "_ensemble": ("EnsembleRanker",),
            "_heckman": ("HeckmanRanker",),
            "_ips": ("IPSRanker", "NaiveRanker", "UserAwareIPSRanker"),
            "_lambdamart": ("LambdaMARTRanker",),
            "_pair_debias": ("PRSRanker", "PairDebiasRanker"),
            "_rank_agg": ("RankAggRanker",),
            "_vectorization": ("VectorizationRanker",),
        },
    )
