"""Numbers that decide something about a user's data: the only ones of this folder."""

from __future__ import annotations

from .._base._threshold import Threshold

FEW_CLICKS = Threshold(
    30,
    "clicks per clicked document from which a table of relevance takes the binomial likelihood "
    "(below, the one that relevance drops out of), and from which least squares have errors",
    "other objectives spend a parameter per document, and are biased where its clicks are few",
    "choice",
)
CLICKS_FOR_ERRORS = Threshold(
    10,
    "clicks per clicked document from which the binomial likelihood of a table has errors",
    "with fewer, intervals cover less than they state",
    "choice",
)
