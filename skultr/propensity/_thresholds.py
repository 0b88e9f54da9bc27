"""Numbers that decide something about a user's data: the only ones of this folder."""

from __future__ import annotations

from .._base._threshold import Threshold

MOST_IN_PLACE = Threshold(
    0.01,
    "share of pairs of impressions at one position, beyond chance, from which an experiment is "
    "called unequal",
    "a smaller bias of the draw changes examination less than its own error",
    "choice",
)
MOST_ERRORS = Threshold(
    6,
    "standard errors of that share from which an experiment is called unequal",
    "fair experiments reach it once in a billion, so that many can be checked",
    "theory",
)
MOST_RESAMPLED = Threshold(
    50,
    "bias factors above which n_bootstrap='auto' takes the formula for standard errors",
    "the time of a resample grows with the cube of their number; both errors are about the same",
    "propensity",
)
MOST_PAIRED = Threshold(
    200,
    "bias factors above which documents are compared as a whole, and not in pairs of factors",
    "pairs take time and memory that grow with the cube; the estimate is as precise",
    "propensity",
)
LEAST_CLUSTERS = Threshold(
    30,
    "independent documents or queries below which errors do not come from their variation",
    "a variance of fewer is itself a guess, with an error of a quarter",
    "theory",
)
FEW_DOCUMENTS = Threshold(
    100,
    "documents of a log below which the larger error counts, of resamples and of the formula",
    "resamples repeat the same few documents, and underestimate the error",
    "propensity",
)
FEW_CLICKS_OF_A_FACTOR = Threshold(
    10,
    "clicks of a bias factor below which the larger error counts, of resamples and of the formula",
    "a factor without a click has none in any resample",
    "theory",
)
