"""Numbers that decide something about a user's data: the only ones of this folder."""

from __future__ import annotations

from .._base._threshold import Threshold

HARDLY_COPIES = Threshold(
    0.1,
    "CMIP, in nats, below which a picture says that scores hardly copy the old ranking",
    "in 30 queries of ten documents scores that truly have 0 are at 0.05 on average",
    "choice",
)
COPIES = Threshold(
    0.2,
    "CMIP, in nats, from which a picture says that scores copy the old ranking",
    "of normal variables with that much, one explains a third of the variance of the other",
    "choice",
)
