"""Warnings and errors with names, so that a user can silence or catch exactly one of them."""

import sys
import warnings
from pathlib import Path

import numpy as np
import sklearn

__all__ = [
    "AssumptionWarning",
    "ClickDataWarning",
    "MissingRoleWarning",
    "NotIdentifiableError",
    "NotIdentifiableWarning",
    "UnstableWeightsWarning",
]

#: Frames of these folders are not the user's code.
_INSIDE = (str(Path(__file__).parent), str(Path(sklearn.__file__).parent))


class MissingRoleWarning(UserWarning):
    """A role column (such as ``qid`` or ``position``) is absent and a default stands in for it."""


class ClickDataWarning(UserWarning):
    """The clicks are usable but probably not what was meant (grades, no clicks at all, ...)."""


class AssumptionWarning(UserWarning):
    """A model had to assume what the log or the user did not say (such as the propensities)."""


class NotIdentifiableWarning(UserWarning):
    """The log does not determine relevance: its bias factors fall into several components."""


class NotIdentifiableError(ValueError):
    """The log determines nothing of what was asked for, such as examination without any swap."""


class UnstableWeightsWarning(UserWarning):
    """A handful of clicks carry an estimate, because their propensities are far below the rest."""


def python_value(value):
    """NumPy scalars (of a tuple) as the Python values that a message should show."""
    if isinstance(value, tuple):
        return tuple(python_value(part) for part in value)
    return value.item() if isinstance(value, np.generic) else value


def warn_user(message, category):
    """Warn at the line of the user's code that led here, however deep the call."""
    frame, depth = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(message, category, stacklevel=depth)
