"""Numbers that decide something about a user's data: the only ones of this folder."""

from __future__ import annotations

from .._base._threshold import Threshold

MANY_CLICKS = Threshold(
    100,
    "effective clicks per query from which correction='auto' divides",
    "variance is then no reason against division, which does without an offset",
    "robustness",
)
FEW_CLICKS = Threshold(
    5,
    "clicks per query below which a ranker that corrects warns",
    "in 2,000 pages corrections lose most; a larger number warned where they win as often",
    "names",
)
LEAST_QUERIES = Threshold(
    10,
    "queries with clicks from which clicks weigh the members of an ensemble",
    "a standard error over fewer queries is a guess",
    "robustness",
)
SHARE_OF_PRODUCTION = Threshold(
    0.5,
    "weight of production before clicks are seen",
    "a third to a half differed by .002 of nDCG@10",
    "robustness",
)
UNCONFIRMED = Threshold(
    0.75,
    "weight of production where clicks confirm no mixture",
    "the other weights would be guesses",
    "robustness",
)
MOST = Threshold(
    0.9,
    "largest weight of production",
    "it may have learned labels of the queries of the log, and is then worse on others",
    "robustness",
)
MANY_CANDIDATES = Threshold(
    4,
    "candidates per document shown from which only the first by production are ranked anew",
    "most of what a ranker loses, it loses on documents that nobody saw",
    "robustness",
)
DOCUMENTS_PER_LEAF = Threshold(
    2_500,
    "documents with clicks per leaf of LambdaMARTRanker's trees with num_leaves='auto'",
    "more leaves learn the noise of small logs by heart: 4 were best with 700 to 10,500",
    "choice",
)
