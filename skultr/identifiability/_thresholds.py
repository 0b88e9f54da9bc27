"""Numbers that decide something about a user's data: the only ones of this folder."""

from __future__ import annotations

from .._base._threshold import Threshold

ENOUGH_OVERLAP = Threshold(
    0.15,
    "overlap from which features are said to separate examination from relevance",
    "below, dual learning missed an examination by more than 0.1 on 20 of 22 logs; above, on 7 "
    "of 78",
    "feature_overlap",
)
MOST_COMPONENTS = Threshold(
    0.6,
    "components per bias factor above which merging is warned of",
    "rankers were no better with merged factors",
    "merging",
)
MOST_CATEGORIES = Threshold(
    256,
    "values without numeric meaning above which merging is refused",
    "any two count as equally different, so that a merge of so many is a guess",
    "choice",
)
MOST_WHOLE = Threshold(
    20,
    "different whole numbers, other than positions, above which they are taken for ids",
    "a scale of more steps is rare; ids are many",
    "choice",
)
MOST_HOURS = Threshold(
    2.0,
    "hours above which a merge plan is refused",
    "nobody waits longer for a step of a pipeline without knowing",
    "choice",
)
MOST_FACTORS = Threshold(
    2_000,
    "bias factors of a component above which weak links are refused, and left out of summaries",
    "their resistances are a dense matrix, of 32 MB then",
    "theory",
)
MOST_PAIRS = Threshold(
    1_000_000,
    "pairs of documents and factors above which summaries leave out bridges and weak links",
    "they take a few seconds there; methods of the graph compute them",
    "choice",
)
WEAK = Threshold(
    0.2,
    "standard error of a log ratio of examinations above which a link is weak",
    "the ratio is then known to a factor of 1.5 (95 %)",
    "choice",
)
NOTABLE = Threshold(
    0.05,
    "share of impressions behind weak links from which a log is barely identifiable",
    "less of the traffic changes no comparison of rankers",
    "choice",
)
