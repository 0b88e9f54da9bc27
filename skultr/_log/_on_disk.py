"""What the readers of rows know of a log that is no frame: that it is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class LogOnDisk:
    """Base of :class:`~skultr.ClickDataset`, below the readers that take rows from it."""


def refuse_dataset(X: Any, why: str) -> None:
    """Raise an error that says why a method does not take a dataset, if X is one."""
    if isinstance(X, LogOnDisk):
        raise TypeError(why)


def log_and_clicks(given: Any, called: str) -> tuple[Any, Any]:
    """X and y of a pair (X, y) or of a dataset, which has its own clicks."""
    if isinstance(given, LogOnDisk):
        return given, None
    if not (isinstance(given, tuple | list) and len(given) == 2):
        raise TypeError(
            f"{called} is of type {type(given).__name__}; expected a pair (X, y) or a "
            "ClickDataset."
        )
    return given[0], given[1]


def refuse_arguments(given: Mapping[str, Any]) -> None:
    """Refuse clicks, weights and roles that are passed beside a dataset, which has its own."""
    found = [name for name, value in given.items() if value is not None]
    if found:
        raise TypeError(
            f"Got a ClickDataset and {', '.join(found)} too; a dataset holds the clicks and roles "
            "of its log. Pass the dataset alone, or make another one from a log with these values."
        )
