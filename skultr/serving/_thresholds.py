"""Numbers that decide something about a user's data: the only ones of this folder."""

from __future__ import annotations

from .._base._threshold import Threshold

BEST_DOCUMENTS = Threshold(
    0.95,
    "quantile, over queries, of the highest rating of a query that has the highest grade",
    "the largest ratings of all are of a few clicks by chance",
    "choice",
)
FEWEST_EXAMINATIONS = Threshold(
    1.0,
    "examinations from which on a pair of a query and a document has a rating to compare by",
    "with fewer, the rating would be the prior's; with all pairs verdicts were wrong",
    "judgments",
)
PRIOR_EXAMINATIONS = Threshold(
    1.0,
    "examinations that the mean of the query stands for in a rating to compare by",
    "none decides less often, more make differences smaller",
    "judgments",
)
VALUES_APART = Threshold(
    256,
    "different values of a feature from which on float32 tells enough of them apart",
    "trees see a feature in so many bins by default",
    "theory",
)
MERGED_THRESHOLDS = Threshold(
    0.1,
    "share of its thresholds that a feature may lose in float32 without a warning",
    "two may stand in one gap of the training log by chance",
    "choice",
)
UNPACKED_BYTES = Threshold(
    1 << 26,
    "bytes that the parts of any saved model may unpack to",
    "small files may shrink much",
    "choice",
)
UNPACKED_PER_BYTE = Threshold(
    20,
    "further bytes that they may unpack to for each byte of the file",
    "forests have 7, weights have 1",
    "choice",
)
JSON_VALUES = Threshold(
    1 << 20,
    "values of JSON that a saved model may have",
    "each may take a hundred bytes of memory and more",
    "choice",
)
BYTES_PER_VALUE = Threshold(
    8,
    "bytes of the file for each of which parts of scikit-learn may have one more value of JSON",
    "trees of 64 leaves have one in 11",
    "choice",
)
