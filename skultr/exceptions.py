"""Warnings and errors; each cause has its own class, which can be filtered or caught alone."""

from __future__ import annotations

import functools
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

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

#: What a fit, with the fits inside it, has warned of.
_warned: ContextVar[dict[int, tuple[Any, set[str]]] | None] = ContextVar("warned", default=None)
#: Stack frames of files in these folders are not the user's code.
_INSIDE = (
    str(Path(__file__).parent),
    str(Path(sklearn.__file__).parent),
    functools.__file__,  # cached properties
)


class MissingRoleWarning(UserWarning):
    """A role column (such as ``qid`` or ``position``) is absent and a default is used instead."""


class ClickDataWarning(UserWarning):
    """The clicks can be used, but are probably wrong or too few (grades, no clicks, ...)."""


class AssumptionWarning(UserWarning):
    """A model had to assume something that was not given (such as the propensities)."""


class NotIdentifiableWarning(UserWarning):
    """The log does not determine relevance: its bias factors are not connected."""


class NotIdentifiableError(ValueError):
    """The log does not determine the estimate, such as examination if no document moved."""


class UnstableWeightsWarning(UserWarning):
    """A few clicks dominate an estimate, because their propensities are far below the others."""


def python_value(value: Any) -> Any:
    """The value as messages show it: NumPy scalars (of a tuple) become Python values."""
    if isinstance(value, tuple):
        return tuple(python_value(part) for part in value)
    return value.item() if isinstance(value, np.generic) else value


@contextmanager
def saying_once() -> Iterator[bool]:
    """Context in which each warning is given once; True for the outermost."""
    if _warned.get() is not None:
        yield False
        return
    token = _warned.set({})
    try:
        yield True
    finally:
        _warned.reset(token)


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the innermost line of code outside skultr and scikit-learn that led here."""
    said = _warned.get()
    if said is not None:
        # What was caught or ignored within another context was not said.
        _, messages = said.setdefault(id(warnings.filters), (warnings.filters, set()))
        if message in messages:
            return
        messages.add(message)
    # From the caller outwards, to the first line of the user's code.
    frame = sys._getframe(1)
    depth = 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame = frame.f_back
        depth += 1
    warnings.warn(message, category, stacklevel=depth)


def is_meant(error: BaseException) -> bool:
    """Whether skultr raised it, in words for users; from NumPy, say, it is a fault of skultr."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)  # where it was raised
    package = str(frame.f_globals.get("__package__"))
    return package.split(".")[0] == "skultr"
