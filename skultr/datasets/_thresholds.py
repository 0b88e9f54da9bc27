"""Numbers that decide something about a user's data: the only ones of this folder."""

from __future__ import annotations

from .._base._threshold import Threshold

LARGEST_FEATURE = Threshold(
    65_535,
    "largest id of a feature that load_letor reads",
    "a larger one is a mistake: a dense frame of so many columns would fill memory",
    "choice",
)
LARGEST_ORDINAL = Threshold(
    1_000_000,
    "largest position of an event, and number of a page, that read_ubi reads",
    "a larger one is a mistake: tables by position would fill memory",
    "choice",
)
ZERO_BYTES = Threshold(
    0.25,
    "share of zero bytes above which a file of records is refused as UTF-16 or UTF-32",
    "half of the bytes of English text in UTF-16 are zero, and in JSON of UTF-8 none is",
    "theory",
)
MUCH = Threshold(
    0.1,
    "share of the events or queries of a log from which read_ubi warns of those that were lost or "
    "contradict their page",
    "some records of every log are broken; one in ten is a fault of the export",
    "choice",
)
FEW_CONFIRM = Threshold(
    0.5,
    "share of pages that begin at the base of the ordinals below which read_ubi warns",
    "most pages of most clients begin at their first document",
    "choice",
)
FROM_ZERO = Threshold(
    0.05,
    "share of the pages of an application from which its ordinals, or its pages, count from 0",
    "a stray 0 decides nothing, and pages that lack their first document do not either",
    "choice",
)
MUCH_LONGER = Threshold(
    2,
    "multiple of the deepest click above which read_ubi warns that hit lists hold documents that "
    "were not shown",
    "users click on all but the last places of what they see",
    "choice",
)
ENOUGH_CLICKS = Threshold(
    100,
    "clicks from which read_ubi warns of long hit lists",
    "few clicks do not reach as deep as users look",
    "choice",
)
IN_A_ROW = Threshold(
    0.5,
    "share of pages on which documents stand in a row from which an action looks like impressions",
    "clicks are scattered over the places of a page",
    "choice",
)
