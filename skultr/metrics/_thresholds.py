"""Numbers that decide something about a user's data: the only ones of this folder."""

from __future__ import annotations

from .._base._threshold import Threshold

FEWEST_CLUSTERS = Threshold(
    10,
    "queries (or clusters of equal size) that a standard error needs",
    "a standard error over fewer is a guess",
    "choice",
)
SIGNIFICANT = Threshold(
    0.05,
    "p-value up to which a summary says that scores depend on the logging policy",
    "the usual level",
    "choice",
)
SMALLEST_GRADE = Threshold(
    20,
    "documents of a grade below which CMIP compares it together with the other small ones",
    "in five grades of 15 neighbours within the grade find .31 of .51 nats, and .45 together",
    "cmip",
)
FEWEST_FOR_CLASSIFIER = Threshold(
    200,
    "documents below which CMIP is by neighbours, whatever estimator is asked for",
    "a classifier trains on three fifths of the documents",
    "cmip",
)
FEWEST_IMPRESSIONS = Threshold(
    6,
    "randomised impressions below which the clicks on a document do not count in CMIP",
    "c (c - 1) ... (c - 5) estimates the sixth power of relevance, a product of two cubes",
    "theory",
)
LEAST_EXAMINED = Threshold(
    1e-3,
    "examination of all impressions together below which a document does not count in CMIP",
    "it is the sixth elementary polynomial: 1 is six impressions at the best position",
    "choice",
)
CUBE_SHOWS = Threshold(
    2.0,
    "standard errors by which clicks must show a cube of relevance, for CMIP to be given it",
    "with clicks that show less the cube takes power",
    "cmip",
)
SQUARE_SHOWS = Threshold(
    1.0,
    "standard errors by which clicks must show a square of relevance, for CMIP to be given it",
    "with clicks that show less the square does not hold the level",
    "cmip",
)
LINE_SHOWS = Threshold(
    2.0,
    "standard errors by which clicks must show that relevance varies, or CMIP is refused",
    "it matters only where there is no square, as with two levels of relevance",
    "cmip",
)
LARGEST_REST = Threshold(
    0.1,
    "share of the variance of squared relevance that may be left where only relevance itself "
    "counts, or CMIP is refused",
    "two levels of relevance leave none; more would hide a square that clicks do not show",
    "cmip",
)
BLIND = Threshold(
    1.0,
    "standard errors by which clicks must go with scores, or the scorer of CMIP warns",
    "with 1.64 errors, 98 instead of 91 % of what learned nothing, and twice the false alarms",
    "selection",
)
FEWEST_TRUSTED = Threshold(
    10,
    "trusted queries (or clusters) that differ from the most frequent value, below which a second "
    "judge does not count",
    "of 20 queries that rarely differ, intervals with fewer hold the truth in 91 to 95 of 100 "
    "samples, and by trusted labels alone in 95",
    "two_judges",
)
NOT_AT_RANDOM = Threshold(
    4.0,
    "standard errors by which a judge tells queries with trusted labels from all, above which "
    "they were not drawn at random",
    "P(|Z| > 4) is 6e-5, and metrics of few queries are not quite normal",
    "theory",
)
