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
    "choice",
)
LEAST_CLICKS = Threshold(
    50,
    "effective number of clicks below which a ranking is not judged",
    "a variance from n clicks is off by 1 / sqrt(n), from fewer by a seventh and more",
    "theory",
)
LEAST_QUERIES = Threshold(
    10,
    "effective number of queries below which nothing is judged, planned or compared",
    "a standard error over n queries is off by 1 / sqrt(2 n - 2), over fewer by a quarter",
    "theory",
)
LEAST_MOVED = Threshold(
    0.01,
    "share of impressions away from a document's usual position, below which no method is tested",
    "all methods then read the effect of positions off a few documents",
    "choice",
)
CONTRADICTION = Threshold(
    2.6,
    "standard errors by which clicks must differ from a method's to refute it",
    "P(|Z| > 2.6) is 0.01: one right method of a hundred is refuted",
    "theory",
)
STEEPER = Threshold(
    0.25,
    "power of the position by which examination at two values of a column must differ, for how "
    "deep users read to depend on the column",
    "only a difference that is plain to see is to forbid a verdict",
    "choice",
)
STEEPER_ERRORS = Threshold(
    4.0,
    "standard errors that this difference must have",
    "P(|Z| > 4) is 6e-5: many columns, and many pairs of values, are tried",
    "theory",
)
WIDEST = Threshold(
    0.25,
    "half-width of an interval, as a share of the clicks, beyond which there is no verdict",
    "errors of the curve are then not small, as the interval takes them to be",
    "choice",
)
SAME_SCORE = Threshold(
    1e-5,
    "relative difference up to which two scores of a document are the same",
    "float32 rounds by 1.2e-7, and a sum of a hundred terms in another order by 1.2e-5",
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
    "choice",
)

# Two logs ---------------------------------------------------------------------------------------
TWO_CURVES_APART = Threshold(
    2.0,
    "standard errors between two estimates of a change of examination, above which the one that "
    "says less counts",
    "P(|Z| > 2) is 0.05 where the more precise one is right (Hausman's test)",
    "theory",
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
    "choice",
)
MOST_LEFT_OF_PAGES = Threshold(
    0.1,
    "share of the variance of a feature within documents that pages may leave, for time to be the "
    "cause",
    "time is the same for all rows of a page",
    "choice",
)

# Judges -----------------------------------------------------------------------------------------
KEPT = Threshold(
    0.8,
    "share of the people's agreement above chance that a judge must keep to stand in for them",
    "the advantage that people have in the alternative annotator test, 0.2 for experts",
    "choice",
)
FREQUENT = Threshold(
    0.5,
    "share of the impressions that the frequent queries have, of which judges are compared apart",
    "both kinds then tell as much by their clicks",
    "choice",
)

# Comparisons on simulated logs ------------------------------------------------------------------
LEAST_UNITS = Threshold(
    3,
    "seeds or logs from which on a difference has an interval",
    "two differences say nearly nothing of their spread",
    "paired_intervals",
)
