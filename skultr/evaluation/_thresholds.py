"""Numbers that decide something about a user's data: the only ones of this folder."""

from __future__ import annotations

from .._base._threshold import Threshold

# What a ranking is worth ------------------------------------------------------------------------
LEVEL = Threshold(
    0.05,
    "p-value below which a ranking wins, or two methods disagree",
    "the level that goes with intervals of 95 %",
    "choice",
)
LEAST_SUPPORT = Threshold(
    0.9,
    "share of the clicks at changed places that the log must know",
    "the rest is filled from the formula of 'dr', or is bounded",
    "policy_value",
)
LEAST_CLICKS = Threshold(
    50,
    "clicks of equal weight below which a ranking is not judged",
    "a binomial variance from fewer is off by a seventh and more",
    "theory",
)
LEAST_QUERIES = Threshold(
    10,
    "queries of equal weight below which nothing is judged, planned or compared",
    "a standard error over fewer queries is a guess",
    "theory",
)
LEAST_MOVED = Threshold(
    0.01,
    "share of impressions away from a document's usual position, below which no method is tested",
    "all methods then read the effect of positions off a few documents",
    "policy_value",
)
CONTRADICTION = Threshold(
    2.6,
    "standard errors by which clicks must differ from a method's to refute it",
    "one right method of a hundred is refuted",
    "policy_value",
)
STEEPER = Threshold(
    0.25,
    "power of the position by which users with two values of a column must read differently, "
    "before they must not be taken together",
    "smaller differences change no winner",
    "policy_value",
)
STEEPER_ERRORS = Threshold(
    4.0,
    "standard errors that this difference must have",
    "many columns, and many pairs of values, are tried",
    "theory",
)
WIDEST = Threshold(
    0.25,
    "half-width of an interval, as a share of the clicks, beyond which there is no verdict",
    "errors of the curve are then not small, as the interval takes them to be",
    "policy_value",
)
SAME_SCORE = Threshold(
    1e-5,
    "relative difference up to which two scores of a document are the same",
    "scores of float32 in batches differ as far",
    "theory",
)
MOST_CONTEXTS = Threshold(
    10,
    "values of a column up to which users of each are compared",
    "of more, each has too few pages",
    "choice",
)
MOST_UNSEEN = Threshold(
    0.08,
    "expected share of the clicks at places that an experiment does not show, above which a plan "
    "promises nothing",
    "policy_difference cannot tell above 0.1, and experiments vary",
    "theory",
)

# Two logs ---------------------------------------------------------------------------------------
TWO_CURVES_APART = Threshold(
    2.0,
    "standard errors between two estimates of a change of examination, above which the one that "
    "says less counts",
    "relevance or users then differ from what the more precise one assumes",
    "compare_logs",
)
MOST_VALUES = Threshold(
    30,
    "values of a column up to which the mix of each is compared",
    "each has a row, for which all p-values are adjusted",
    "choice",
)
LEAST_ALIKE = Threshold(
    0.99,
    "share of the documents whose feature must have moved alike, for time to be the cause",
    "what other causes moved is an alarm",
    "compare_logs",
)
MOST_LEFT_OF_PAGES = Threshold(
    0.1,
    "share of the variance of a feature within documents that pages may leave, for time to be the "
    "cause",
    "time is the same for all rows of a page",
    "compare_logs",
)

# Comparisons on simulated logs ------------------------------------------------------------------
LEAST_UNITS = Threshold(
    3,
    "seeds or logs from which on a difference has an interval",
    "two differences say nearly nothing of their spread",
    "paired_intervals",
)
