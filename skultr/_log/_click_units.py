"""What y counts: clicks of single impressions, click rates, or clicks of several impressions.

Every door asks here, for logs in memory, in engines and on disk. Beside ``impressions``, whole
numbers are numbers of clicks, and fractions are click rates. Where y is 0 and 1 alone both are
possible, :meth:`PageFacts.in_all` tells them apart, and where much depends on it, a warning says
how y was read and what to pass for either meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._typing import Bools, Floats, Ints
from ._faults import COUNTS_OR_RATES, NEITHER_COUNT_NOR_RATE, RATES_OR_COUNTS, Columns, check
from ._roles import read_role
from ._segments import encode, pair_codes, rank_in_segment
from ._thresholds import TIMES_THE_CLICKS

#: Roles that tell rows of a counted table apart, beside ``session``.
_KEYS = ("qid", "doc", "position", "bias", "user")


class ClickRates(np.ndarray):
    """Clicks per impression, which no reader takes for numbers of clicks again.

    Rates of a part of a log may be 0 and 1 alone, as numbers of clicks are. What is computed from
    them is a plain array.
    """

    def __array_wrap__(self, array, context=None, return_scalar=False):
        return array[()] if return_scalar else np.asarray(array)


def as_known_rates(values: NDArray[Any]) -> ClickRates:
    """Values that are known to be clicks per impression."""
    return np.asarray(values, dtype=float).view(ClickRates)


# What the values are --------------------------------------------------------------------
#: What rows tell of the unit of ``click``, by conditions on arrays or on expressions.
_CONDITIONS: Mapping[str, Callable[[Any], Any]] = {
    "fractions": lambda c: c.click % 1 != 0,
    # Up to a relative error of 1e-6, a rate times its impressions is a whole number.
    "broken": lambda c: (c.click - c.click.round()) ** 2 > (1e-6 * c.click) ** 2,
    "split": lambda c: c.impressions % 1 != 0,
    "above": lambda c: (c.impressions > 0) & (c.click > c.impressions),
    "unclear": lambda c: (c.click == 1) & (c.impressions > 1),
}


class ClickFacts(NamedTuple):
    """The largest values of a log, and the number of its rows that meet each condition."""

    largest: float  # of y
    impressions: float  # of a row, the largest number
    fractions: float  # rows where y is no whole number
    broken: float  # the same, but for rounding
    split: float  # rows where the impressions are no whole number
    above: float  # rows with more clicks than impressions
    unclear: float  # rows of several impressions where y is 1
    in_unclear: float  # impressions of these rows

    @classmethod
    def of(cls, click: Floats, impressions: Floats) -> Self:
        """The facts of arrays without missing values."""
        columns = Columns({"click": click, "impressions": impressions})
        rows = {name: condition(columns) for name, condition in _CONDITIONS.items()}
        return cls(
            largest=click.max(initial=0.0),
            impressions=impressions.max(initial=0.0),
            **{name: np.count_nonzero(each) for name, each in rows.items()},
            in_unclear=impressions[rows["unclear"]].sum(),
        )

    @staticmethod
    def expressions(columns: Columns) -> list[nw.Expr]:
        """The facts as expressions of one row, which an engine computes."""
        rows = {
            name: condition(columns).fill_null(False) for name, condition in _CONDITIONS.items()
        }
        counts = [each.cast(nw.Int64).sum().alias(name) for name, each in rows.items()]
        impressions = columns.impressions.cast(nw.Float64)
        in_unclear = nw.when(rows["unclear"]).then(impressions).otherwise(nw.lit(0.0))
        return [
            columns.click.max().alias("largest"),
            columns.impressions.max().alias("impressions"),
            *counts,
            in_unclear.sum().alias("in_unclear"),
        ]

    def joined(self, other: Self) -> Self:
        """The facts of two parts of a log."""
        most = map(max, self[:2], other[:2])
        sums = map(sum, zip(self[2:], other[2:], strict=True))
        return type(self)(*most, *sums)


def are_counts(facts: ClickFacts, in_all: Callable[[], bool], called: str | None = None) -> bool:
    """True if the values of y are numbers of clicks; ``in_all`` is asked where y is 0 and 1 alone.

    An error if they are neither numbers of clicks nor rates.
    """
    called = called or "y"
    if facts.largest > 1:
        if facts.broken and not facts.split:
            NEITHER_COUNT_NOR_RATE.report(int(facts.broken), float(facts.largest), None, called)
        return True
    # More clicks than impressions are not possible, and clicks of impressions that were weighted
    # would be fractions, too.
    if facts.fractions or facts.above or facts.split or not facts.unclear:
        return False
    return not _are_in_all(facts, in_all, called)


def _are_in_all(facts, in_all, called):
    """Whether 1 is a click in all impressions of a row, where y is 0 and 1 alone.

    The pages tell; where they cannot, and much depends on it, a warning says how y is read.
    """
    is_rate = in_all()
    # Read as rates, y has all impressions of these rows as clicks; as counts, one of each row.
    if not is_rate or facts.in_unclear > TIMES_THE_CLICKS.value * facts.unclear:
        unclear = RATES_OR_COUNTS if is_rate else COUNTS_OR_RATES
        unclear.report(int(facts.unclear), float(facts.impressions), None, called)
    return is_rate


class PageFacts(NamedTuple):
    """What tells whether rows were counted by what was clicked; sums over parts of a log."""

    #: Pages of several rows, and those of which all rows have one number of impressions.
    pages: int = 0
    even: int = 0
    #: Distinct rows (of a document at a position) that were clicked in several impressions, those
    #: that are there without a click too, and rows that recur with as many clicks.
    clicked: int = 0
    twins: int = 0
    recurring: int = 0

    @classmethod
    def of(cls, frame: Any) -> Self:
        """The facts of a frame of Narwhals with ``click``, ``impressions`` and roles."""
        names = frame.collect_schema().names()
        frame = frame.filter(nw.col("impressions") > 0)
        page = [name for name in ("qid", "session") if name in names]
        row = [name for name in _KEYS if name in names]
        page_facts = cls._of_pages(frame, page) if "session" in names else cls()
        row_facts = cls._of_rows(frame, row) if "doc" in names else cls()
        return page_facts.joined(row_facts)

    @classmethod
    def _of_pages(cls, frame, page):
        """The facts of pages, which columns name."""
        impressions = nw.col("impressions")
        pages = frame.group_by(*page).agg(
            nw.len().alias("n"),
            impressions.min().alias("low"),
            impressions.max().alias("top"),
        )
        several = pages.filter(nw.col("n") > 1)
        is_even = nw.col("low") == nw.col("top")
        sums = several.select(
            nw.len().alias("pages"),
            is_even.cast(nw.Int64).sum().alias("even"),
        )
        return cls(*_row_of(sums))

    @classmethod
    def _of_rows(cls, frame, keys):
        """The facts of distinct rows, of documents at positions, on whatever page they are."""
        is_several = (nw.col("click") == 1) & (nw.col("impressions") > 1)
        counted = frame.with_columns(is_several.cast(nw.Int64).alias("several"))
        rows = counted.group_by(*keys).agg(
            nw.len().alias("n"),
            nw.col("click").sum().alias("n_clicked"),
            nw.col("several").max().alias("several"),
        )
        n = nw.col("n")
        n_clicked = nw.col("n_clicked")
        was_clicked = nw.col("several") > 0
        facts = {
            "clicked": was_clicked,
            "twins": was_clicked & (n > n_clicked),
            "recurring": (n_clicked > 1) | (n - n_clicked > 1),
        }
        sums = [fact.cast(nw.Int64).sum().alias(name) for name, fact in facts.items()]
        return cls(0, 0, *_row_of(rows.select(*sums)))

    def joined(self, other: Self) -> Self:
        """The facts of two parts of a log, which share no query."""
        return type(self)(*map(sum, zip(self, other, strict=True)))

    def in_all(self) -> bool:
        """True if y = 1 says that a row was clicked in all of its impressions.

        A table that was counted by the click as well has most rows that were clicked a second
        time, without a click. Its pages have one number of impressions each: they were served so
        often, and their clicks were the same each time. Without pages of several rows (each row
        may have a session of its own), no row recurs in it.
        """
        has_twins = 0 < self.clicked <= 2 * self.twins
        if not self.pages:
            return has_twins and not self.recurring
        # Where documents have no ids, rows of other pages are not known.
        return 2 * self.even >= self.pages and (has_twins or not self.clicked)


def _row_of(frame):
    """The values of a frame of one row; 0 where there is nothing to add up."""
    frame = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
    return (int(value or 0) for value in frame.row(0))


# Logs in memory -------------------------------------------------------------------------
def as_rates(X: Any, y: Floats, roles: Mapping[str, Any], called: str | None = None) -> Floats:
    """Clicks per impression of the rows of X, from y as numbers.

    Values that are known to be no numbers of clicks, such as grades, stay what they are.
    """
    is_told, impressions = _told_apart(X, y, roles, called)
    return divided(as_known_rates(y) if is_told else y, impressions)


def impressions_of_counts(
    X: Any, y: Floats, roles: Mapping[str, Any], called: str | None = None
) -> Floats | None:
    """Impressions of the rows if y holds numbers of clicks, else None; checked."""
    return _told_apart(X, y, roles, called)[1]


def divided(y: Floats, impressions: Floats | None) -> Floats:
    """y over impressions, 0 where there are none; y itself if its rows are not counted."""
    if impressions is None:
        return y
    rate = np.divide(y, impressions, out=np.zeros(len(y)), where=impressions > 0)
    return as_known_rates(rate)


def _told_apart(X, y, roles, called):
    """Whether y holds numbers of clicks or rates, one of both, and impressions if these are
    numbers."""
    if isinstance(y, ClickRates):
        return False, None
    impressions = read_role(X, "impressions", roles.get("impressions"))
    if impressions is None or not _are_numbers(y, impressions):
        return False, None
    # Grades of people are no clicks, whatever the impressions are.
    grades = y if called == "'relevance'" else read_role(X, "relevance")
    if grades is not None and np.array_equal(grades, y):
        return False, None

    def in_all():
        columns = {}
        for role in ("session", *_KEYS):
            values = read_role(X, role, roles.get(role))
            if values is not None:
                columns[role] = values
        frame = pd.DataFrame({**columns, "click": y, "impressions": impressions})
        facts = PageFacts.of(nw.from_native(frame, eager_only=True))
        return facts.in_all()

    if not are_counts(ClickFacts.of(y, impressions), in_all, called):
        return True, None
    check({"n_clicks": y, "impressions": impressions}, called={"n_clicks": called or "y"})
    return True, impressions


def _are_numbers(y, impressions):
    """Whether all values are numbers of at least 0; others are faults, which the reader tells."""
    values = np.concatenate([y, impressions])
    return bool((values >= 0).all() and np.isfinite(values).all())


# Lists of counted rows --------------------------------------------------------------------
def is_counted(impressions: NDArray[Any] | None) -> bool:
    """True if some row stands for several impressions."""
    return impressions is not None and bool((impressions > 1).any())


def lists_of_counted(
    group: Ints, position: NDArray[Any], impressions: NDArray[Any], shown: Bools, *also: Ints
) -> Ints:
    """Code of the list of each row of a counted table without sessions, in the order of groups.

    A group (a query, of a user) whose rows stand at distinct positions under one number of
    impressions was served as one list, so often. The pages of any other are not known: each row
    is a list of its own, in the order of positions and of what ``also`` tells rows apart; rows
    that were not shown are in the first list of their group.
    """
    rows = np.flatnonzero(shown)
    group_of_row = group[rows]
    # Groups whose rows have several numbers of impressions, or two rows at one position.
    n_groups = int(group.max(initial=-1)) + 1
    fewest = np.full(n_groups, np.inf)
    most = np.zeros(n_groups)
    np.minimum.at(fewest, group_of_row, impressions[rows])
    np.maximum.at(most, group_of_row, impressions[rows])
    is_split = fewest < most
    place, _ = encode(position[rows])
    key = pair_codes(group_of_row, place, int(place.max(initial=0)) + 1)
    is_again = pd.Series(key).duplicated().to_numpy()
    is_split[group_of_row[is_again]] = True
    # The rows of these are numbered: each is a list of its own.
    own = rows[is_split[group_of_row]]
    own = own[np.lexsort([*(each[own] for each in also), position[own], group[own]])]
    number = np.zeros(len(group), dtype=np.int64)
    number[own] = rank_in_segment(group[own], np.zeros(len(own))) - 1
    code, _ = encode(pair_codes(group, number, int(number.max(initial=0)) + 1))
    return code
