"""What the readers of rows know of a log on disk: it can give its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._typing import Floats

if TYPE_CHECKING:
    import pandas as pd


class LogOnDisk:
    """Base of :class:`~skultr.ClickDataset`, below the readers that take rows from it."""

    def to_frame(self) -> tuple[Any, Floats]:
        """The log as a frame in memory, and its click rates."""
        raise NotImplementedError

    def to_cells(self, by: Sequence[str]) -> tuple[Any, Floats]:
        """Clicks and impressions of each document, as a log of one row per cell."""
        raise NotImplementedError

    @property
    def roles(self) -> list[str]:
        """Roles that the log has."""
        raise NotImplementedError

    @property
    def doc_ids(self) -> pd.Index | None:
        """What the codes of documents stand for; None without ids."""
        raise NotImplementedError


def refuse_arguments(given: Mapping[str, Any]) -> None:
    """Refuse clicks, weights and roles that are passed beside a dataset, which has its own."""
    found = [name for name, value in given.items() if value is not None]
    if found:
        raise TypeError(
            f"Got a ClickDataset and {', '.join(found)} too; a dataset holds the clicks and roles "
            "of its log. Pass the dataset alone, or make another one from a log with these values."
        )
