"""Numbers that decide something about a user's data: the only ones of this folder."""

from __future__ import annotations

from .._base._threshold import Threshold

MOST_ROWS = Threshold(
    1_000_000,
    "rows of a log up to which describe_log reads all of them",
    "some seconds and a gigabyte; rates of a million rows have errors below .001",
    "choice",
)
DEEPEST_POSITION = Threshold(
    10_000,
    "largest number in a column that may be the position",
    "larger numbers are ids or times",
    "choice",
)
HIGHEST_GRADE = Threshold(
    100,
    "largest number in a column that may be the relevance",
    "grades are few, or percent",
    "choice",
)
FEW_PER_PAGE = Threshold(
    20,
    "values of a column of the page up to which it may be a bias factor",
    "more are hours or ids; the repair refuses more than 256",
    "choice",
)
FEW_TEXTS = Threshold(
    1_000,
    "values of a column of text up to which the code encodes it",
    "more are titles or ids; the encoder keeps the 30 most frequent ones",
    "choice",
)
LEAST_QUERIES = Threshold(
    20,
    "queries from which skultr ubi compares its model with the order served",
    "a quarter of fewer is too few to hold out",
    "choice",
)
