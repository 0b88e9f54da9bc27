"""Numbers that decide something about a user's data: the only ones of this folder."""

from __future__ import annotations

from ._threshold import Threshold

IDS_AGAIN = Threshold(
    0.1,
    "share of rows up to which the first word of a comment, an id, may come again in its query",
    "a document may have been judged twice",
    "choice",
)
IDS_LOST = Threshold(
    0.5,
    "share of rows with something like an id in their comment from which on others lost theirs",
    "in fewer rows it is a remark",
    "choice",
)
