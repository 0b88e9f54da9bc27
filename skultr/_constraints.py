"""The only file that imports scikit-learn's private names.

scikit-learn declares parameter constraints as data and checks them in ``fit``; the tools for it
are private upstream, so that a rename there is mended here and nowhere else.
"""

from sklearn.utils._optional_dependencies import check_matplotlib_support
from sklearn.utils._param_validation import (
    HasMethods,
    Hidden,
    Interval,
    StrOptions,
    validate_params,
)

__all__ = [
    "HasMethods",
    "Hidden",
    "Interval",
    "StrOptions",
    "check_matplotlib_support",
    "validate_params",
]
