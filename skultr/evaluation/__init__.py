"""What a ranking is worth, and whether the data can tell."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._compare import RankerComparison as RankerComparison
    from ._compare import compare_rankers as compare_rankers
else:
    from .._lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(
        __name__, {"_compare": ("RankerComparison", "compare_rankers")}
    )
