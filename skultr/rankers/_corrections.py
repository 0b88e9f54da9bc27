"""Ways to correct clicks by known propensities, and which of them a fit compares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from .._torch._fixed_examination import ListTarget

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog


#: Name of the correction that leaves the clicks as they are.
NAIVE = "naive"
#: Bound that is compared with no bound if ``clip="auto"``.
_CLIP = 0.1


@dataclass(frozen=True)
class Correction:
    """A form of the loss, and a lower bound on the propensities."""

    form: Literal["divide", "offset"]
    clip: float | None

    @property
    def name(self) -> str:
        """Short text for the index of a table."""
        if self.clip == 1:
            return NAIVE
        return self.form if self.clip is None else f"{self.form}, clip={self.clip:g}"

    def target(self, log: ClickLog, validation: ClickLog | None = None) -> ListTarget:
        """What a network is fitted to, and stopped by if there is a log for validation."""
        propensity = log.propensity
        if self.clip is not None:
            propensity = np.maximum(propensity, self.clip)
        stopping = None if validation is None else self.target(validation)
        if self.form == "offset":
            return ListTarget(log.clicks, propensity, validation=stopping)
        return ListTarget(log.clicks / propensity, validation=stopping)


def corrections(form: str, clip: str | float | None) -> list[Correction]:
    """The corrections that these parameters allow; the first needs no comparison.

    Clicks as they are is among them if the clip is free: with few clicks, or propensities that the
    clicks contradict, every correction can be worse than none.
    """
    forms = ["offset", "divide"] if form == "auto" else [form]
    if clip != "auto":
        return [Correction(each, clip) for each in forms]
    # Division with the bound is no candidate beside the offset with the bound: their rankings were
    # equally good, and each candidate is a training.
    unbounded = [Correction(each, None) for each in forms]
    return [Correction(forms[0], _CLIP), *unbounded, Correction("divide", 1.0)]


def that_differ(found: list[Correction], log: ClickLog) -> list[Correction]:
    """Those of some corrections that train different networks on this log."""
    least, largest = log.propensity.min(), log.propensity.max()
    if least == largest:
        # Nothing to correct. Division then trains the very network of the naive ranker.
        return [Correction(found[-1].form, None if len(found) > 1 else found[0].clip)]
    if least < _CLIP or len(found) < 3:
        return found
    return [each for each in found if each.clip != _CLIP]
