"""A number that decides something about a user's data.

Each folder that has some keeps them in its ``_thresholds.py``, one name each:
``FEW_CLICKS = Threshold(5, ...)``. The documentation prints these tables (page "Thresholds").
"""

from __future__ import annotations

from typing import NamedTuple


class Threshold(NamedTuple):
    """A number, what it decides, why it is what it is, and the study that measured it."""

    value: float
    decides: str
    reason: str
    #: A study of ``python -m benchmarks``; else "theory" (`reason` says which) or "choice"
    #: (no study measured it).
    study: str
