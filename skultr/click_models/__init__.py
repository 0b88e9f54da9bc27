"""Click models: how users browse a list and what they click, and the relevance behind it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._cascade import CascadeModel as CascadeModel
    from ._cascade import DCMModel as DCMModel
    from ._em import DCTRModel as DCTRModel
    from ._em import RDCTRModel as RDCTRModel
    from ._gradient import DBNModel as DBNModel
    from ._neural import CACMModel as CACMModel
    from ._neural import NCMModel as NCMModel
    from ._position_based import PBMModel as PBMModel
    from ._user_browsing import UBMModel as UBMModel
else:
    from .._base._lazy import lazy_names

    # Lazy, so that models that only count do not import torch.
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "_cascade": ("CascadeModel", "DCMModel"),
            "_em": ("DCTRModel", "RDCTRModel"),
            "_gradient": ("DBNModel",),
            "_neural": ("CACMModel", "NCMModel"),
            "_position_based": ("PBMModel",),
            "_user_browsing": ("UBMModel",),
        },
    )
