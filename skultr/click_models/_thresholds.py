"""Numbers that decide something about a user's data: the only ones of this folder."""

from __future__ import annotations

from .._base._threshold import Threshold

MOST_RANKS = Threshold(
    2_000,
    "positions of a list above which UBMModel refuses a log",
    "it has one parameter per pair of ranks: two million",
    "choice",
)
MOST_RATES = Threshold(
    16,
    "distinct click rates of a list up to which each row keeps its own",
    "each is one more copy of the list; above, neighbouring rates get their mean",
    "choice",
)
GROUP_IMPRESSIONS = Threshold(
    100,
    "impressions up to which neighbouring ranks share their examination",
    "with clicks on a tenth, the standard error of a click rate is then a third of it",
    "choice",
)
PRIOR_WEIGHT = Threshold(
    20,
    "impressions that the examination of its group counts at a rank, where EM fits it",
    "a rank of 100 impressions decides for itself",
    "choice",
)
UNKNOWN_SLOPE = Threshold(
    0.5,
    "power of 1 / position that is taken for examination where no document moved",
    "half way, in logarithms, from no bias at all to 1 / position",
    "choice",
)
