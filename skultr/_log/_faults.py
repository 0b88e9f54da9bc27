"""Faults of a click log: one table, for logs in memory and in engines.

A fault has one severity and one sentence, whatever reads the log. Predicates use operators only,
so that they accept NumPy arrays as well as Narwhals expressions (see :class:`Columns`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import binom

from .._base._typing import Bools, Floats, Ints
from ..exceptions import (
    AssumptionWarning,
    ClickDataWarning,
    MissingRoleWarning,
    python_value,
    warn_user,
)
from ._segments import encode

#: Roles that hold ids.
IDS = ("qid", "session", "doc", "user")
#: From here on floats cannot represent every whole number.
_LARGEST_CODE = 2.0**53
#: Kinds of numbers, of NumPy.
ANY_NUMBER = "if"
#: What mends positions that count from 0.
ADD_ONE = ('log["position"] += 1', 'log = log.with_columns(pl.col("position") + 1)')
#: So many clicked impressions and no other may be chance.
_HANDFUL = 100


@dataclass(frozen=True)
class Fault:
    """One fault that rows of a log can have."""

    #: Columns that the predicate reads; the first is the one that the message is about. Besides
    #: the roles: ``click`` (``y``: clicks or click rates), ``n_clicks`` (number of clicks of
    #: several impressions), ``shown``, ``served`` (shown, for any sample weight) and
    #: ``sample_weight``.
    reads: tuple[str, ...]
    #: ValueError, or the category of a warning.
    severity: type
    #: With the fields ``{rows}`` ("1 row"), ``{have}`` ("has" or "have"), ``{where}`` ("first in
    #: row 5"), ``{value}`` (the value found there) and ``{column}`` (the name of the column).
    sentence: str
    #: From the columns to one condition per row: True where the row has the fault.
    wrong: Callable | None = None
    #: Kinds of values (of NumPy) that may have it; columns of other kinds are not looked at.
    kinds: str = ""
    #: The line of code that mends it, for pandas and for Polars.
    mend: tuple[str, str] | None = None

    @property
    def is_error(self) -> bool:
        """Whether the log cannot be used; else it is a warning."""
        return not issubclass(self.severity, Warning)

    def message(
        self, n_rows: int, value: Any, where: str | None, column: str | None = None
    ) -> str:
        """The sentence for ``n_rows`` rows that have the fault."""
        value = python_value(value)
        if isinstance(value, float) and abs(value) < _LARGEST_CODE and value % 1 == 0:
            value = int(value)
        return self.sentence.format(
            rows=count_of(n_rows, "row"),
            have="has" if n_rows == 1 else "have",
            where=where,
            value=repr(value),
            column=column or next(iter(self.reads), None),
        )

    def report(
        self,
        n_rows: int = 0,
        value: Any = None,
        where: str | None = None,
        column: str | None = None,
    ) -> None:
        """Raise the error, or warn at the line of the user's code."""
        self.tell(self.message(n_rows, value, where, column))

    def tell(self, message: str) -> None:
        """Raise the error with this message, or warn at the line of the user's code."""
        if self.is_error:
            raise self.severity(message)
        warn_user(message, self.severity)


def missing_value(name: str) -> Fault:
    """The fault that a column without a role lacks a value in a row that was shown."""
    return Fault(
        (name, "shown"),
        ValueError,
        f"The column {name!r} is missing in {{rows}}, {{where}}; expected a value in every row "
        "that was shown. Fill it (with a separate value such as 'unknown'), or drop these rows.",
        lambda c: c.shown & c.missing(name),
    )


FAULTS = (
    *(
        Fault(
            (role,),
            ValueError,
            "The role '{column}' is missing in {rows}, {where}; expected an id in every row. "
            + advice,
            lambda c, role=role: c.missing(role),
            mend=mend,
        )
        for role, advice, mend in (
            *(
                (
                    role,
                    "Fill it, or drop these rows.",
                    (f"log = log.dropna(subset=[{role!r}])", f"log = log.drop_nulls([{role!r}])"),
                )
                for role in ("qid", "session", "doc")
            ),
            (
                "user",
                "Drop the column, which is optional, or fill it; do not drop rows for it.",
                ("log = log.drop(columns=['user'])", "log = log.drop(['user'])"),
            ),
        )
    ),
    *(
        Fault(
            (role,),
            ValueError,
            "The role '{column}' holds {value} in {rows}, {where}; expected ids, which are text "
            "or whole numbers. If the column is a feature, give it another name: "
            "rename(columns={{'{column}': '{column}_feature'}}). If a scaler of a pipeline made "
            "it, use skultr.preprocessing.OnFeatures(scaler).",
            lambda c, role=role: ~c.missing(role) & (c[role] % 1 != 0),
            kinds="f",
        )
        for role in ("qid", "doc", "user")
    ),
    *(
        Fault(
            (role,),
            ClickDataWarning,
            "The role '{column}' is -1 in {rows}, {where}: this looks like padding, and it is "
            "read as an id like any other. Drop rows that pad the lists.",
            lambda c, role=role: c[role] == -1,
            kinds=ANY_NUMBER,
        )
        for role in IDS
    ),
    Fault(
        ("click",),
        ValueError,
        "Input {column} contains NaN or infinity: found {value} in {rows}, {where}. Expected a "
        "click (0 or 1) or a click rate in [0, 1] in every row; give a row that was not shown 0 "
        "and a missing position.",
        lambda c: c.missing("click") | (c.click == np.inf) | (c.click == -np.inf),
    ),
    Fault(
        ("click",),
        ValueError,
        "{column} holds negative values: found {value} in {rows}, {where}. Expected clicks (0 or "
        "1), click rates in [0, 1] or graded relevance (0, 1, 2, ...).",
        lambda c: c.click < 0,
    ),
    *(
        Fault(
            ("position",),
            ValueError,
            "position must be a whole number from 1, or missing where a row was not shown: found "
            "{value} in {rows}, {where}. If your log counts from 0, add 1.",
            wrong,
            mend=mend,
        )
        for wrong, mend in (
            (lambda c: c.position == 0, ADD_ONE),
            (
                lambda c: (
                    ~c.missing("position")
                    & (c.position != 0)
                    & ~((c.position >= 1) & (c.position < _LARGEST_CODE) & (c.position % 1 == 0))
                ),
                None,
            ),
        )
    ),
    *(
        Fault(
            (weight,),
            ValueError,
            "{column} must be finite and at least 0: found {value} in {rows}, {where}.",
            lambda c, weight=weight: (
                c.missing(weight) | ~((c[weight] >= 0) & (c[weight] < np.inf))
            ),
        )
        for weight in ("impressions", "sample_weight")
    ),
    Fault(
        ("n_clicks", "impressions"),
        ValueError,
        "{column} is missing, or is not between 0 and 'impressions': found {value} in {rows}, "
        "{where}. Expected the number of clicks of the row's impressions, which are no fewer than "
        "its clicks. Count the impressions again; where only impressions without a click were "
        "counted, add the clicks to them. If the values are grades, drop 'impressions'.",
        lambda c: (
            c.missing("n_clicks")
            | ~((c.n_clicks >= 0) & (c.n_clicks <= c.impressions) & (c.n_clicks < np.inf))
        ),
    ),
    Fault(
        ("relevance",),
        ValueError,
        "relevance must be finite and at least 0, or missing where a row is not annotated: found "
        "{value} in {rows}, {where}. Shift or clip the grades; if the column is a feature, "
        "rename it.",
        lambda c: ~c.missing("relevance") & ~((c.relevance >= 0) & (c.relevance < np.inf)),
    ),
    Fault(
        ("outcome",),
        ValueError,
        "{column} holds {value} in {rows}, {where}; expected outcomes: finite numbers of at least "
        "0. Where nothing followed, fill in 0.",
        lambda c: c.missing("outcome") | ~((c.outcome >= 0) & (c.outcome < np.inf)),
    ),
    Fault(
        ("bias", "shown"),
        ValueError,
        "bias is missing in {rows}, {where}; expected the code of a bias factor in every row that "
        "was shown.",
        lambda c: c.shown & c.missing("bias"),
    ),
    Fault(
        ("bias", "shown"),
        ValueError,
        "bias must hold whole numbers below 2**53, the codes of bias factors: found {value} in "
        "{rows}, {where}. Number the factors, for example with pandas.factorize.",
        lambda c: (
            c.shown
            & ~c.missing("bias")
            & ~((c.bias % 1 == 0) & (c.bias < _LARGEST_CODE) & (c.bias > -_LARGEST_CODE))
        ),
    ),
    Fault(
        ("propensity", "shown"),
        ValueError,
        "propensity must lie in [0, 1] where a row was shown: found {value} in {rows}, {where}. A "
        "row that could not be examined should have no position.",
        # What divides by propensities, or by their means, checks that these are positive.
        lambda c: (
            c.shown & (c.missing("propensity") | ~((c.propensity >= 0) & (c.propensity <= 1)))
        ),
    ),
    Fault(
        ("propensity", "click", "served"),
        ValueError,
        "propensity is 0 in {rows} with a click, {where}: who clicked a row has examined it. "
        "Expected a propensity above 0 wherever there are clicks; correct the propensities of "
        "this position and user, or estimate them.",
        lambda c: c.served & (c.propensity <= 0) & (c.click > 0),
    ),
    Fault(
        ("production",),
        ValueError,
        "production must be a finite score, higher is better: found {value} in {rows}, {where}. "
        "Give the score of the ranker that served the list in every row, drop the column, or "
        "rename it if it is a feature.",
        lambda c: c.missing("production") | (c.production == np.inf) | (c.production == -np.inf),
    ),
    Fault(
        ("click", "served"),
        ClickDataWarning,
        "{rows} {have} a click but no position or 0 impressions, {where}: these clicks cannot be "
        "used and do not count. Check the positions.",
        lambda c: ~c.served & (c.click > 0),
    ),
)

# Faults of a log as a whole, reported by whatever finds them -----------------------------
NO_ROWS = Fault((), ValueError, "X has no rows; expected at least one row of a click log.")
NO_QUERIES = Fault(
    (),
    MissingRoleWarning,
    "X has no column 'qid' and no qid was passed: all rows are taken as one query. Rename your "
    "query column to 'qid', or pass qid={where}.",
)
NO_POSITIONS = Fault(
    (),
    MissingRoleWarning,
    "X has no column 'position' (nor 'bias'), and no position was passed: rankers take the order "
    "of the rows in each list as the order in which they were shown, and estimators of "
    "examination take all rows as examined alike. Add the column 'position' (from 1), or pass "
    "position=.",
)
NO_ROW_SHOWN = Fault(
    (),
    ValueError,
    "No row was shown: every position is missing, or every impression count is 0. Expected at "
    "least one shown row to learn from.",
)
NO_CLICKS = Fault(
    (),
    ClickDataWarning,
    "The log has no click: whatever is learned from it is arbitrary. Check that y holds "
    "the clicks.",
)
ONLY_CLICKED = Fault(
    (),
    ValueError,
    "Every shown row is clicked ({rows}): the log lacks what was shown and not clicked, and "
    "nothing can be learned from clicks alone. Add all rows of the pages that were shown, with "
    "y = 0 where nobody clicked.",
)
GRADES = Fault(
    ("click",),
    ClickDataWarning,
    "{column} has values above 1 (up to {value}): it is read as graded relevance and divided by "
    "its maximum. If these are numbers of clicks, add the impressions of each row, as the column "
    "or keyword 'impressions'.",
)
NEITHER_COUNT_NOR_RATE = Fault(
    ("n_clicks", "impressions"),
    ValueError,
    "{column} holds fractions in {rows}, and values above 1 (up to {value}), beside whole numbers "
    "of impressions: these are neither numbers of clicks nor click rates. Expected whole numbers, "
    "or rates in [0, 1]: divide percentages by 100; divide clicks that were weighted by the "
    "impressions; if the values are grades, drop 'impressions'.",
)
COUNTS_OR_RATES = Fault(
    ("n_clicks", "impressions"),
    ClickDataWarning,
    "{column} is 0 or 1 in all rows, and 1 in {rows} of several impressions (up to {value}): it "
    "is read as counts, so that 1 is one click in the impressions of its row. If such rows were "
    "clicked in all of their impressions, pass y * impressions.",
)
ONE_ROW_PER_POSITION = Fault(
    ("position",),
    ValueError,
    "Two rows of one list are at position {value} ({where}); expected at most one row per "
    "position. If a query was served several times, name each result page in a column 'session' "
    "(or pass session=); where the pages are not known, count the rows without 'session': "
    "skultr.aggregate_clicks.",
)
PAGES_NOT_KNOWN = Fault(
    (),
    MissingRoleWarning,
    "The log has no column 'session', and several rows of a query at one position: its pages are "
    "not known, and each counted row is a list of its own. If you know the pages, name them in a "
    "column 'session'.",
)
ONE_USER_PER_SESSION = Fault(
    ("user",),
    ValueError,
    "Some sessions have rows of several users ({where}); expected one user per session. Add the "
    "user to the session id.",
)
ACTION_PROBABILITIES = Fault(
    ("propensity",),
    AssumptionWarning,
    "propensity is at most {value} and does not depend on the position: this looks like the "
    "probability with which a policy chose the document, not like the probability that a user "
    "examined the row. Pass examination probabilities, or drop the column to have them estimated.",
)


def count_of(n: int, noun: str) -> str:
    """A number with its noun: "1 row", "3 rows"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns of a log as attributes, arrays or expressions, for predicates."""

    _columns: Mapping[str, Any]
    _is_missing: Callable[[Any], Any] = pd.isna

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]

    __getattr__ = __getitem__

    def missing(self, name: str) -> Any:
        """True where a value of a column is missing."""
        return self._is_missing(self._columns[name])


def find_faults(kinds: Mapping[str, str], known: Iterable[str] = ()) -> list[Fault]:
    """Faults that columns of these kinds can have, save those that read ``known`` columns only."""
    names, known = set(kinds), set(known)
    return [
        fault
        for fault in FAULTS
        if names.issuperset(fault.reads)
        and not known.issuperset(fault.reads)
        and (not fault.kinds or kinds[fault.reads[0]] in fault.kinds)
    ]


def check(
    columns: Mapping[str, NDArray[Any]],
    known: Iterable[str] = (),
    called: Mapping[str, str] | None = None,
) -> None:
    """Raise the first error of columns in memory, and warn of suspicious rows."""
    for fault, message in faults_in(columns, known, called):
        fault.tell(message)


def faults_in(
    columns: Mapping[str, NDArray[Any]],
    known: Iterable[str] = (),
    called: Mapping[str, str] | None = None,
) -> Iterator[tuple[Fault, str]]:
    """Each fault of columns in memory and its sentence, save those among ``known``."""
    arrays = Columns(columns)
    for fault in find_faults({name: values.dtype.kind for name, values in columns.items()}, known):
        with np.errstate(invalid="ignore"):
            wrong = fault.wrong(arrays)
        values = columns[fault.reads[0]]
        # Ids that are hashes may be -1 as they may be any other number.
        if not wrong.any() or (fault.kinds == ANY_NUMBER and values.min() < -1):
            continue
        row = int(np.argmax(wrong))
        column = (called or {}).get(fault.reads[0])
        n_rows = int(np.count_nonzero(wrong))
        yield fault, fault.message(n_rows, values[row], f"first in row {row}", column)


def check_clicked(weight: NDArray[Any], clicks: NDArray[Any]) -> None:
    """Report a log without clicks, and one of clicked rows only; both arrays are of shown rows."""
    if not clicks.any():
        NO_CLICKS.report()
    elif (clicks >= weight).all() and weight.sum() > _HANDFUL:
        ONLY_CLICKED.report(len(weight))


def all_at_once(messages: Iterable[str], code: str = "") -> str:
    """One message of several faults, with the code that mends them."""
    messages = list(messages)
    listed = "".join(f"\n- {message}" for message in messages)
    mend = f"\nThis mends what code can mend:\n\n{indent(code, '    ')}\n" if code else ""
    return f"The log has {count_of(len(messages), 'fault')}:{listed}{mend}"


# Columns that look like another role ------------------------------------------------
#: Names of columns that often hold a role or the clicks.
LOOKS_LIKE = {
    "query": "qid",
    "query_id": "qid",
    "queryid": "qid",
    "session_id": "session",
    "doc_id": "doc",
    "docid": "doc",
    "document": "doc",
    "document_id": "doc",
    "rank": "position",
    "pos": "position",
    "user_id": "user",
    "click": "y",
    "clicks": "y",
    "clicked": "y",
    "ctr": "y",
    "click_rate": "y",
}
#: Fewer rows with, or without, a click say nothing of outcomes.
_LEAST = 20
#: Fewer rows, or lists, say nothing of roles.
_MANY = 100
#: Share of lists of one length above which that length was chosen.
_ONE_LENGTH = 0.9
#: Rows that are looked at of those with, and of those without a click.
_SAMPLE = 20_000
#: Largest probability, by chance, of the clicks on the rows where a column differs.
_CHANCE = 1e-5
#: Impressions of one row of which clicks at all or none are suspicious.
_SEVERAL = 5
#: What a join that finds no features leaves in all columns, and the fewest columns of which so
#: many are not blank by chance: three public sets (36,853 documents) have no row of zeros.
_BLANKS = (("missing", np.isnan, 2), ("0", np.logical_not, 10))
#: Smallest share of blank rows that matters, and multiple of the odds of independent columns: two
#: columns that lack nothing else have 1 + 1 / share times these.
_LEAST_BLANK, _TOGETHER = 0.01, 1.5
#: Share of the variance of positions below which a column has nothing to do with them.
_EXPLAINED = 0.3
#: Share of the variance of positions that documents explain where most lists are ordered.
_ORDERED = 0.05
#: Highest grades, or gains, by which annotation may have been divided.
_HIGHEST = (*range(1, 11), 15, 31)
#: Propensities that are all smaller are taken for those of actions.
_UNLIKELY = 0.2


# Outcomes -------------------------------------------------------------------------------
def outcomes_among(rows: Any, features: NDArray[Any]) -> list[int]:
    """Numbers of the columns that the click decides: what follows a click is no feature."""
    # What belongs to a document or a query does not follow from the click.
    group = rows.query if rows["doc"] is None else rows.documents(features).code
    return outcomes_of(rows.rate > 0, group, features)


def outcomes_of(clicked: Bools, group: Ints, features: NDArray[Any]) -> list[int]:
    """Numbers of the columns that the click decides; documents, say, are groups of rows."""
    no, yes = (_spread(np.flatnonzero(rows)) for rows in (~clicked, clicked))
    if len(no) < _LEAST or len(yes) < _LEAST:
        return []
    columns = range(features.shape[1])
    return [i for i in columns if _is_outcome(features[:, i], no, yes, clicked, group)]


def _is_outcome(values, no, yes, clicked, group):
    """Whether a column has one value (0, say) on nearly all rows that were not clicked, only."""
    usual = _usual(values[no])
    off, on = _differs(values[no], usual), _differs(values[yes], usual)
    if on.sum() < 5 or off.mean() > 0.02 or on.mean() < 10 * off.mean():
        return False
    rows = np.flatnonzero(_differs(values, usual))
    n_clicked = np.count_nonzero(clicked[rows])
    few = n_clicked < 0.8 * len(rows)
    if few or binom.sf(n_clicked - 1, len(rows), clicked.mean()) > _CHANCE:
        return False
    has = np.bincount(group[rows], minlength=group.max() + 1) > 0
    others = np.flatnonzero(has[group] & ~clicked)
    if len(others) < _LEAST:  # where groups have one row each, good features look alike
        return has.sum() >= 5 and np.bincount(group)[has].max() > 1
    return bool(_differs(values[others], usual).mean() < 0.5)


def _spread(rows):
    return rows[:: max(1, len(rows) // _SAMPLE)]


def _usual(values):
    """The value of at least half of the rows, if there is one; NaN counts as a value."""
    missing = np.isnan(values)
    return np.nan if 2 * missing.sum() > len(values) else np.median(values[~missing])


def _differs(values, usual):
    return ~np.isnan(values) if np.isnan(usual) else (values != usual) & ~np.isnan(values)


def blank_rows(columns: Sequence[NDArray[Any]]) -> Iterator[str]:
    """What is to be said of rows whose features, one column each, are all missing, or all 0."""
    n_rows, n_features = max(map(len, columns), default=0), len(columns)
    for what, is_blank, least in _BLANKS:
        rows = np.flatnonzero(is_blank(columns[0])) if n_features >= least else np.arange(0)
        for column in columns[1:]:
            rows = rows[is_blank(column[rows])]
        share = len(rows) / max(n_rows, 1)
        # Odds: blank rows raise chance, too; where all are blank it is 1.
        if share > _LEAST_BLANK and (
            share * (1 - (chance := np.prod([is_blank(column).mean() for column in columns])))
            >= _TOGETHER * chance * (1 - share)
        ):
            yield (
                f"In {len(rows):,} of {n_rows:,} rows ({share:.1%}) all {n_features} "
                f"features are {what}, first in row {rows[0]}, as where a join finds no features: "
                "these documents all get one score. Join the features again, or drop the pages of "
                "these rows."
            )


# Torn pages -----------------------------------------------------------------------------
def torn_lists(list_: Ints, place: Ints) -> tuple[int, int, float, int, bool]:
    """Lists of several rows; those with gaps, and the share and number of rows that these lack, of
    ``place`` from 0.

    And whether nearly all of them have one number of rows, because they were made so.
    """
    n_rows = np.bincount(list_)
    last = n_rows - 1
    if place.sum() > (n_rows * last // 2).sum():  # no list has less than 0, 1, ...
        np.maximum.at(last, list_, place)
    several = n_rows > 1  # a row alone may be all that was shown
    lost, n_lists = (last + 1 - n_rows)[several], np.count_nonzero(several)
    one_length = np.bincount(n_rows[several]).max(initial=0) > _ONE_LENGTH * n_lists
    share = lost.sum() / max((last + 1)[several].sum(), 1)
    return int(n_lists), np.count_nonzero(lost), share, int(lost.sum()), bool(one_length)


# Features named as roles ------------------------------------------------------------------
def is_no_grade(values: Floats, read: Callable[[], Any]) -> bool:
    """True if a column of relevance that is not read looks like a feature."""
    known = values[~np.isnan(values)]
    if known.min() < 0 or known.max() > 100:
        return True
    distinct = np.unique(_spread(known))
    scales = (1,) if known.max() > 1 else _HIGHEST
    if any(_are_means_of_grades(distinct * highest) for highest in scales):
        return False
    # Fractions within [0, 1] may be probabilities of relevance, which clicks follow.
    return bool(known.max() > 1 or not _clicks_follow(values, read()))


def _are_means_of_grades(values):
    """True if nearly all values are means of the grades of up to five judges, with two digits."""
    near = [np.abs(n * values - np.rint(n * values)) <= 0.006 * n for n in range(1, 6)]
    return np.any(near, axis=0).mean() > 0.9


def _clicks_follow(values, rows):
    """False if click rates at equal positions are not in proportion to the values."""
    if rows.click is None:
        return True
    known = rows.shown & ~np.isnan(values)
    value, rate, place = values[known], rows.rate[known], rows.position[known]
    n = np.maximum(np.bincount(place), 1)
    mean, mean_rate = (np.bincount(place, each) / n for each in (value, rate))
    apart = value - mean[place]
    error = np.sqrt(np.sum(apart**2 * (mean_rate * (1 - mean_rate))[place]))
    expected = np.sum(apart**2 * (mean_rate / np.maximum(mean, 1e-9))[place])
    return bool(expected <= 6 * error or 3 * np.sum(apart * (rate - mean_rate[place])) > expected)


def is_no_click(values: Floats, read: Callable[[], Any]) -> bool:
    """True if values are no clicks, or rows without one were clicked, or bought, nevertheless."""
    y = read().click
    if y is None:
        return False
    if not ((values >= 0) & (values <= 1)).all():
        return True
    follows = y > 0
    denied = (values == 0) & follows
    single = np.isin(y, (0, 1)).all() and not np.isin(values, (0, 1)).all()
    return bool(denied.sum() > 0.05 * max(follows.sum(), 1) or single)


def is_no_score(scores: Floats, read: Callable[[], Any]) -> bool:
    """True if lists have an order, and it is not that of the scores."""
    rows = read()
    shown = rows.shown
    list_, position, doc = rows.list_[shown], rows.position[shown], rows.documents(rows=shown).code
    explained, n_rows = _explained(position, doc), len(position)
    if explained < 2 * np.sqrt(2 * (doc.max() + 1)) / n_rows:  # two standard errors
        return False  # shuffled pages stand in the order of no score
    least = 0.55 if explained > _ORDERED else 0.5 + 1.5 / np.sqrt(n_rows)
    return not orders_lists(scores[shown], list_, position, least)


def orders_lists(scores: Floats, list_: Ints, position: NDArray[Any], least: float = 0.55) -> bool:
    """True if lists stand mostly in the order of the scores, as those that a ranker served."""
    order = np.lexsort((position, list_))
    steps = np.diff(scores[order])[np.diff(list_[order]) == 0]
    moves = steps[steps != 0]
    if not len(steps):  # pages of one row have no order
        return True
    return bool(2 * len(moves) > len(steps) and np.mean(moves < 0) > least)


def misnamed(rows: Any, columns: Collection[str]) -> Iterator[tuple[str, str]]:
    """Roles among columns of a log, with what makes each of them look like a feature."""
    shown = rows.shown
    if np.count_nonzero(shown) < _MANY:
        return
    if "impressions" in columns and rows.click is not None:
        yield from _no_counts(rows["impressions"], rows.click, rows.list_)
    list_, place = rows.list_[shown], rows.position[shown]
    if "user" in columns and _varies_in_lists(rows.user[0][shown], list_):
        yield "user", "varies within result pages"
    if rows["position"] is None:
        return
    nothing = "has nothing to do with the position, and varies within result pages"
    if "bias" in columns:
        bias, _ = encode(rows["bias"][shown])
        if _explained(place, bias) < _EXPLAINED and _varies_in_lists(bias, list_):
            yield "bias", nothing
    if "propensity" in columns:
        propensity = rows["propensity"][shown]
        many = propensity.max() > _UNLIKELY and len(np.unique(propensity)) > 10
        position, _ = encode(place)
        if (
            many
            and _explained(propensity, position) < _EXPLAINED / 10
            and _varies_in_lists(propensity, list_)
        ):
            yield "propensity", nothing


def _no_counts(impressions, rate, list_):
    """What shows that impressions are none, where each row was clicked in all of them or none."""
    counted = impressions > 0  # lists that were counted by what was clicked have one number each
    if not np.isin(rate, (0, 1)).all() or not _varies_in_lists(
        impressions[counted], list_[counted]
    ):
        return
    several = (impressions > 1) & (rate > 0)
    if (impressions % 1 != 0).any():
        yield "impressions", "holds fractions although y holds clicks of single impressions"
    elif several.sum() >= _MANY and impressions.max() >= _SEVERAL:
        yield (
            "impressions",
            f"counts up to {impressions.max():g} impressions in a row, and yet every row was "
            "clicked in all or in none of them (if y counts clicks, pass y / impressions)",
        )


def _varies_in_lists(values, list_):
    """True if more lists of several rows than an error would explain have several values."""
    first = np.zeros(list_.max() + 1, dtype=values.dtype)
    first[list_] = values
    several = np.bincount(list_) > 1
    varies = np.bincount(list_, values != first[list_]) > 0
    return several.sum() >= _MANY and varies.sum() > max(10, 0.01 * several.sum())


def _explained(values, codes):
    """Share of the variance of values that codes explain, less what chance explains."""
    n, n_codes = len(values), codes.max() + 1
    count = np.bincount(codes, minlength=n_codes)
    mean = np.bincount(codes, values, n_codes) / np.maximum(count, 1)
    total = values.var()
    if total == 0:
        return 1.0
    return 1.0 - (np.mean((values - mean[codes]) ** 2) * n / max(n - n_codes, 1)) / total
