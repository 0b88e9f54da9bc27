"""Units of a click log: one table of what values must be like, and what they probably are instead.

The table of faults (``_faults.py``) is about form: what no role could hold. This one is about
meaning: numbers of the right form that are probably something else. ``fit``, ``describe_log`` and
the command read it, and what finds the evidence stands in ``_lookalikes.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..exceptions import AssumptionWarning, ClickDataWarning, warn_user
from . import _lookalikes as evidence
from ._faults import tell
from ._thresholds import NEARLY_ALL_WITHOUT_ORDER, SOME_WITHOUT_ORDER

_IS_READ_AS = "The column {role!r} is read as the role {role!r}, but it "
_RENAME = ". If it is a feature, rename it: rename(columns={{{role!r}: '{role}_feature'}})."


@dataclass(frozen=True)
class Unit:
    """One row of the table: values of the right form, and in the wrong unit."""

    #: What ``find`` reads: "rows" (of a log, checked), "unread" (a role column that is not read,
    #: and what reads the log), "features" (and the clicked rows), "sample" (features in their own
    #: precision), "documents" (features of the distinct documents), or "scores" and "fitted"
    #: (scores and queries of a ranking).
    reads: str
    #: The role, or what else the values are.
    role: str
    #: What the values must be, and what these probably are instead.
    expected: str
    instead: str
    #: ValueError, or the category of a warning.
    severity: type
    #: What was found, what was expected and what to do, with the fields that ``find`` yields.
    sentence: str
    #: Yields the fields of the sentence for each finding.
    find: Callable[..., Iterator[Mapping[str, Any]]]

    @property
    def is_error(self) -> bool:
        """Whether the log, or the ranking, cannot be used; else it is a warning."""
        return not issubclass(self.severity, Warning)

    def messages(self, *given: Any) -> Iterator[str]:
        """The sentence of each finding."""
        for fields in self.find(*given):
            yield self.sentence.format(**{"role": self.role, **fields})


def _unread(is_feature):
    """Evidence that a column of an unread role is a feature."""

    def find(values, read):
        if is_feature(values, read):
            yield {}

    return find


def _without_order(least, ties_elsewhere=True):
    """Evidence that a ranking orders none of the documents of such a share of queries."""

    def find(scores, query, called):
        return evidence.queries_without_order(
            scores, query, called, least, ties_elsewhere=ties_elsewhere
        )

    return find


_NOT_READ = (
    "The column {role!r} is a role, which is not read here, and no feature, although its values "
    "look like one. If it is a feature, rename it: rename(columns={{{role!r}: "
    "'{role}_feature'}}); otherwise drop it."
)

# What the clicks are not -----------------------------------------------------------------
_OF_CLICKS = (
    Unit(
        "rows",
        "y",
        "clicks, click rates or grades: the larger the better",
        "places, of which 1 is the best",
        ValueError,
        "y grows with the position in every list (it is {values} at the positions {positions}): "
        "this looks like places, of which the first is the best, and y is read as relevance, of "
        "which the largest is the best, so that the reverse of the order would be learned. "
        "Expected clicks, click rates or graded relevance. Pass the column of clicks as y.",
        evidence.y_grows,
    ),
    Unit(
        "rows",
        "y",
        "clicks, click rates or grades of the documents",
        "a function of the position, such as 1 / position, or the order that was served",
        ClickDataWarning,
        "{how} (it is {values} at the positions {positions}): it holds where rows were shown, and "
        "nothing of the documents, so that rankers learn the order that was served, and no "
        "more. Expected clicks, click rates or graded relevance. Pass the column of clicks as y.",
        evidence.y_follows_position,
    ),
    Unit(
        "rows",
        "y",
        "clicks, click rates or grades: the larger the better",
        "the places of a ranking, 1, 2, 3, ... once per list",
        ClickDataWarning,
        "In all {n:,} lists of three rows or more, y holds different whole numbers from {first} "
        "on: this looks like places, of which the first is the best, and y is read as relevance, "
        "of which the largest is the best. Expected clicks, click rates or graded relevance. Pass "
        "the clicks, or {remedy} in place of y if these are places.",
        evidence.y_of_places,
    ),
)
# Roles -----------------------------------------------------------------------------------
_OF_ROLES = (
    Unit(
        "rows",
        "propensity",
        "the probability that a user examines the row",
        "the probability with which a policy chose the document",
        AssumptionWarning,
        "propensity {why}: this looks like the probability with which a policy chose the "
        "document, not like the probability that a user examined the row. Pass examination "
        "probabilities, or drop the column to have them estimated.",
        evidence.propensities_of_actions,
    ),
    Unit(
        "rows",
        "propensity",
        "the probability that a user examines the row",
        "a feature of that name",
        ClickDataWarning,
        _IS_READ_AS
        + "has nothing to do with the position, and varies within result pages"
        + _RENAME,
        evidence.propensities_unrelated,
    ),
    Unit(
        "rows",
        "bias",
        "codes of what decides whether a row is examined",
        "a feature of that name",
        ClickDataWarning,
        _IS_READ_AS
        + "has nothing to do with the position, and varies within result pages"
        + _RENAME,
        evidence.factors_unrelated,
    ),
    Unit(
        "rows",
        "impressions",
        "how many impressions the row stands for",
        "a feature of that name, with fractions",
        ValueError,
        _IS_READ_AS + "holds fractions although y holds clicks of single impressions" + _RENAME,
        evidence.impressions_of_clicks,
    ),
    Unit(
        "rows",
        "impressions",
        "how many impressions the row stands for",
        "a count of the document's impressions elsewhere, as a feature",
        ClickDataWarning,
        _IS_READ_AS + "counts up to {most:g} impressions in a row, and yet every row was clicked "
        "in all or in none of them" + _RENAME,
        evidence.impressions_too_many,
    ),
    Unit(
        "rows",
        "user",
        "one user per result page",
        "a feature of that name",
        ClickDataWarning,
        _IS_READ_AS + "varies within result pages" + _RENAME,
        evidence.users_within_pages,
    ),
    Unit(
        "rows",
        "doc",
        "each document once per result page",
        "ids that are shared by several documents, or pages that were mixed up",
        ClickDataWarning,
        "{n:,} rows of {n_lists:,} result pages show a document that an earlier row of the same "
        "page shows, too, first in row {row} (doc {doc!r}); expected each document once per page. "
        "Either pages or documents share their ids: check the columns 'session' and 'doc'. If "
        "your pages do repeat documents, keep the first row of each: "
        "drop_duplicates(['qid', 'session', 'doc']).",
        evidence.documents_twice,
    ),
)


def _unread_role(role, expected, is_feature):
    """The row of a role that is not read, and may be a feature."""
    find = _unread(is_feature)
    return Unit(
        "unread", role, expected, "a feature of that name", ClickDataWarning, _NOT_READ, find
    )


_OF_UNREAD_ROLES = (
    _unread_role("relevance", "grades of a human annotation", evidence.is_no_grade),
    _unread_role("production", "the score by which the pages were ordered", evidence.is_no_score),
    _unread_role("click", "whether the row was clicked", evidence.is_no_click),
)
# Features --------------------------------------------------------------------------------
_OF_FEATURES = (
    Unit(
        "sample",
        "features",
        "what a document is like",
        "a time stamp, an id or a number of the row",
        ClickDataWarning,
        "The feature {name!r} looks like {what}: it tells rows or documents apart and does not "
        "describe them, and its values at serving time are others than those of training. Drop "
        "the column; of a time, make an age, such as the hours between the page and the document.",
        evidence.features_that_name,
    ),
    Unit(
        "features",
        "features",
        "values in most rows",
        "what a join leaves that finds no features",
        ClickDataWarning,
        "In {n:,} of {n_rows:,} rows ({share:.1%}) all {n_features} features are {what}, first in "
        "row {row}, as where a join finds no features: these documents all get one score. Join "
        "the features again, or drop the pages of these rows.",
        evidence.blank_rows,
    ),
    Unit(
        "clicked",
        "features",
        "what is known before the click",
        "the clicks",
        ClickDataWarning,
        "The feature {name!r} equals y in every row: a model that reads the clicks as a feature "
        "learns nothing else, and has no clicks at serving time. Drop the column, or pass its "
        "name as y.",
        evidence.features_that_are_clicks,
    ),
    Unit(
        "clicked",
        "features",
        "what is known before the click",
        "what followed the click: a cart, a purchase, a time",
        ClickDataWarning,
        "The feature {name!r} has one value on nearly every row that was not clicked: the click "
        "decides it, so that it is an outcome, which is not known at serving time. Rename it to "
        "'outcome_{name}', or drop it.",
        evidence.features_that_are_outcomes,
    ),
    Unit(
        "documents",
        "features",
        "some that differ between documents",
        "columns of one value, or of none: a filtered export, a join that filled in zeros",
        ValueError,
        "All {n} features are constant ({listed}){but}: nothing can be learned from features that "
        "do not differ between documents. Expected at least one that does. Join the features of "
        "the documents again, and check the filters of the export.",
        evidence.features_that_are_constant,
    ),
)
# Rankings --------------------------------------------------------------------------------
_OF_RANKINGS = (
    Unit(
        "scores",
        "scores",
        "an order of the documents of each query",
        "a ranking that was never computed: one score for all documents",
        ValueError,
        "{called} gives all documents of each of the {n:,} queries one score: a constant is no "
        "ranking, and cannot be compared with one. Expected scores that order the documents of a "
        "query. Check the column, or whether the ranker was fitted to features that vary.",
        _without_order(1.0),
    ),
    Unit(
        "scores",
        "scores",
        "an order of the documents of each query",
        "a ranking that lacks the scores of some queries",
        ClickDataWarning,
        "{called} gives all documents of a query the same score in {n:,} of {n_queries:,} "
        "queries: it does not order them, and what is measured there is chance. Expected scores "
        "that order the documents. Check whether these queries have features and scores.",
        _without_order(SOME_WITHOUT_ORDER.value, ties_elsewhere=False),
    ),
    Unit(
        "fitted",
        "scores",
        "an order of the documents of each query",
        "a model that learned nothing",
        ClickDataWarning,
        "{called} gives all documents of a query the same score in {n:,} of {n_queries:,} "
        "queries: nothing that orders them was learned. Check with skultr.describe_log whether "
        "features vary and the log has enough clicks, then the parameters that keep a model "
        "simple, such as min_child_samples.",
        _without_order(NEARLY_ALL_WITHOUT_ORDER.value),
    ),
)

#: The table, in the order in which findings are told.
UNITS = (*_OF_CLICKS, *_OF_ROLES, *_OF_UNREAD_ROLES, *_OF_FEATURES, *_OF_RANKINGS)


def units_in(reads: str, *given: Any) -> Iterator[tuple[Unit, str]]:
    """Each finding of the rows of the table that read this, and its sentence."""
    for unit in UNITS:
        if unit.reads == reads:
            for message in unit.messages(*given):
                yield unit, message


def warn_of_units(reads: str, *given: Any) -> None:
    """Warn of the first finding, also where it is an error for those who compare."""
    for _, message in units_in(reads, *given):
        warn_user(message, ClickDataWarning)
        return


def tell_units(reads: str, *given: Any) -> None:
    """Raise the first error of the rows of the table that read this, and warn of what is odd."""
    for unit, message in units_in(reads, *given):
        tell(unit.severity, message)
