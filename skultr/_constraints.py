"""The only file that imports scikit-learn's private names.

scikit-learn declares parameter constraints as data and checks them in ``fit``; the tools for it
are private upstream, so that a rename there is mended here and nowhere else.
"""

from sklearn.utils import _safe_indexing as safe_indexing
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    Options,
    StrOptions,
    validate_params,
)
from sklearn.utils.metaestimators import _BaseComposition as BaseComposition
from sklearn.utils.validation import _check_sample_weight as check_sample_weight

__all__ = [
    "BaseComposition",
    "HasMethods",
    "Interval",
    "Options",
    "StrOptions",
    "check_sample_weight",
    "safe_indexing",
    "validate_params",
]
