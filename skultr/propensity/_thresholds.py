"""Numbers that decide something about a user's data: the only ones of this folder."""

from __future__ import annotations

import numpy as np

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
    "1 - Phi(6) is 1e-9: fair experiments reach it once in a billion, so that many can be checked",
    "theory",
)
MOST_RESAMPLED = Threshold(
    50,
    "bias factors above which n_bootstrap='auto' takes the formula for standard errors",
    "the time of a resample grows with the cube of their number; both errors are about the same",
    "choice",
)
MOST_PAIRED = Threshold(
    200,
    "bias factors above which documents are compared as a whole, and not in pairs of factors",
    "pairs take time and memory that grow with the cube; the estimate is as precise",
    "choice",
)
ROWS_OF_FIRST_DRAW = Threshold(
    1_000_000,
    "rows, about, of the queries that are drawn first of a log in an engine",
    "their cells take some hundred MB, and determine ten positions",
    "studies/cells",
)
MOST_DRAWN = Threshold(
    0.5,
    "share of the queries of a log in an engine above which all are read",
    "all take at most twice the memory, and no pass over the log is in vain",
    "choice",
)
LARGEST_ERROR = Threshold(
    0.005,
    "standard error of examination from which on more queries are drawn",
    "the ends of 95 % intervals are then .01 away",
    "studies/cells",
)
LARGEST_RELATIVE_ERROR = Threshold(
    0.1,
    "standard error of log examination from which on more queries are drawn",
    "weights of clicks are inverse propensities, whose relative error it is",
    "choice",
)
RARE_FACTOR = Threshold(
    0.001,
    "share of the clicks below which the error of a bias factor asks for no further queries",
    "all queries would be read for factors that hardly any of them has",
    "choice",
)
LEAST_CLUSTERS = Threshold(
    30,
    "independent documents or queries below which errors do not come from their variation",
    "the relative error of a variance of n normal numbers is sqrt(2 / n), a quarter at 30",
    "theory",
)
FEW_DOCUMENTS = Threshold(
    100,
    "documents of a log below which the larger error counts, of resamples and of the formula",
    "resamples repeat the same few documents, and underestimate the error",
    "choice",
)
FEW_CLICKS_OF_A_FACTOR = Threshold(
    10,
    "clicks of a bias factor below which the larger error counts, of resamples and of the formula",
    "a factor without a click has none in any resample",
    "choice",
)
FEW_CLICKS_OF_A_USER = Threshold(
    100,
    "clicks of a user below which all such users share one curve while relevance is learned",
    "a curve of a user who came once explains the clicks without any relevance",
    "choice",
)
KNOWN = Threshold(
    0.25,
    "error of log examination up to which documents that moved suffice, and no network is asked",
    "what a network learns then adds nothing",
    "choice",
)
RARE = Threshold(
    0.001,
    "probability of chance below which two curves differ",
    "one warning in 1,000 is false",
    "choice",
)
RELEVANT = Threshold(
    np.log(1.2),
    "difference of log examination from which two curves are said to differ",
    "a factor of 1.2 between examinations costs a ranking little",
    "choice",
)
LEAST_GAIN = Threshold(
    5.0,
    "twice the gain of log-likelihood per bias factor from which clicks contradict a given curve",
    "1 is expected of a right curve, and more as scores are estimated",
    "choice",
)
FEW_HEAVY_CLICKS = Threshold(
    10,
    "clicks that carry half of the weight, up to which a warning is due",
    "so few clicks decide a ranking by chance",
    "choice",
)
SHARE_OF_HEAVY_CLICKS = Threshold(
    0.001,
    "the same as a share of all clicks",
    "in a large log, hundreds may carry half of the weight of hundreds of thousands",
    "choice",
)
MOST_HEAVY_SHARE = Threshold(
    0.05,
    "share of the clicks above which those that carry half of the weight are no handful",
    "in a log of 100 clicks, ten of them are not few",
    "choice",
)
SMALL_SHARE = Threshold(
    0.7,
    "share of the clicks that weights leave as effective sample, below which a warning may be due",
    "more is hardly a loss",
    "choice",
)
SMALL_SAMPLE = Threshold(
    5.0,
    "effective clicks per query with clicks below which it is due",
    "fewer say little about the documents of a query",
    "choice",
)
