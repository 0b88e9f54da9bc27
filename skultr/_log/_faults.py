"""Faults of a click log: one table, for logs in memory and in engines.

A fault has one severity and one sentence, whatever reads the log. Predicates use operators only,
so that they accept NumPy arrays as well as Narwhals expressions (see :class:`Columns`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from textwrap import indent
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._typing import Ints
from ..exceptions import ClickDataWarning, MissingRoleWarning, python_value, warn_user
from ._thresholds import MANY, NEARLY_ALL, ROWS_OF_A_PAGE

#: Roles that hold ids.
IDS = ("qid", "session", "doc", "user")
#: From here on floats cannot represent every whole number.
_LARGEST_CODE = 2.0**53
#: Larger weights overflow on the way: in single precision, or squared and added up.
_LARGEST_WEIGHT = 1e30
#: Scores up to this, which also stands for a missing one, are numbers in single precision.
_LARGEST_SCORE = float(np.finfo(np.float32).max)
#: Rows of one list without query ids above which these were lost.
LONGEST_PAGE = int(ROWS_OF_A_PAGE.value)
#: Kinds of floats: the characters of NumPy, from half to extended precision.
FLOATS = "efdg"
#: Kinds of numbers; those of whole ones are NumPy's, of any length.
ANY_NUMBER = "i" + FLOATS
#: Kinds of floats, and from which number on these cannot represent every whole number.
_WHOLE_UP_TO = {"e": 2.0**11, "f": 2.0**24, "dg": _LARGEST_CODE}
#: What mends positions that count from 0.
ADD_ONE = ('log["position"] += 1', 'log = log.with_columns(pl.col("position") + 1)')
#: What drops the rows that lack a role; Polars knows NaN beside null.
DROP_ROWS = (
    "log = log.dropna(subset=[{0!r}])",
    "log = log.fill_nan(None).drop_nulls([{0!r}])",
)
#: What drops the clicks of these rows before, where they are no column.
DROP_CLICKS = (
    "y = np.asarray(y)[log[{0!r}].notna()]",
    "y = np.asarray(y)[log.fill_nan(None)[{0!r}].is_not_null()]",
)


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
    #: Kinds of values that may have it (see :func:`kind_of_values`); columns of other kinds are
    #: not looked at.
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
        # A code is shown as the user wrote it, not as the float that a missing one made of it.
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
        tell(self.severity, self.message(n_rows, value, where, column))


def tell(severity: type, message: str) -> None:
    """Raise the error with this message, or warn at the line of the user's code."""
    if issubclass(severity, Warning):
        warn_user(message, severity)
    else:
        raise severity(message)


def missing_value(name: str) -> Fault:
    """The fault that a column without a role lacks a value in a row that was shown."""
    return Fault(
        (name, "shown"),
        ValueError,
        f"The column {name!r} is missing in {{rows}}, {{where}}; expected a value in every row "
        "that was shown. Fill it (with a separate value such as 'unknown'), or drop these rows.",
        lambda c: c.shown & c.missing(name),
    )


# Faults of ids ---------------------------------------------------------------------------
def _missing_id(role: str) -> Fault:
    """The fault that a row has no id of this role."""
    if role == "user":
        advice = "Drop the column, which is optional, or fill it; do not drop rows for it."
        mend = ("log = log.drop(columns=['user'])", "log = log.drop(['user'])")
    else:
        advice = "Fill it, or drop these rows."
        mend = (DROP_ROWS[0].format(role), DROP_ROWS[1].format(role))
    return Fault(
        (role,),
        ValueError,
        "The role '{column}' is missing in {rows}, {where}; expected an id in every row. "
        + advice,
        lambda c: c.missing(role),
        mend=mend,
    )


def lost_digits(role: str, kinds: str, largest: float) -> Fault:
    """The fault that ids are floats of these kinds, and too large for them."""
    whole = {role: "Int64"}
    in_pandas = (
        "pd.read_parquet(FILE, dtype_backend='numpy_nullable') or "
        f"pd.read_csv(FILE, dtype={whole})"
    )
    in_polars = f"pl.read_csv(FILE, schema_overrides={{{role!r}: pl.Int64}})"
    advice = (
        f"{in_pandas}; in Polars {in_polars}; before a join that leaves gaps, log.astype({whole})."
    )
    comment = f"# Read {role!r} as whole numbers first: "

    def is_rounded(c):
        is_large = (c[role] >= largest) | (c[role] <= -largest)
        return ~c.missing(role) & is_large & (c[role] % 1 == 0)

    return Fault(
        (role,),
        ValueError,
        "The role '{column}' holds whole numbers as floats, such as {value}, in {rows}, {where}: "
        f"from {largest:,.0f} on, such floats cannot hold every whole number, so that different "
        "ids have become one. pandas makes floats of whole numbers where one is missing. Expected "
        "text or whole numbers. The digits are lost here: read the column as whole numbers, with "
        # The sentence is a template: the braces of the code must stay.
        + advice.replace("{", "{{").replace("}", "}}"),
        is_rounded,
        kinds=kinds,
        mend=(comment + in_pandas, comment + in_polars),
    )


def _fractional_id(role: str) -> Fault:
    """The fault that an id is a fraction, as features are and what scalers make."""
    return Fault(
        (role,),
        ValueError,
        "The role '{column}' holds {value} in {rows}, {where}; expected ids, which are text "
        "or whole numbers. If the column is a feature, give it another name: "
        "rename(columns={{'{column}': '{column}_feature'}}). If a scaler of a pipeline made "
        "it, use skultr.preprocessing.OnFeatures(scaler).",
        lambda c: ~c.missing(role) & (c[role] % 1 != 0),
        kinds=FLOATS,
    )


def _padding(role: str) -> Fault:
    """The suspicion that rows of the id -1 fill up the lists."""
    return Fault(
        (role,),
        ClickDataWarning,
        "The role '{column}' is -1 in {rows}, {where}: this looks like padding, and it is "
        "read as an id like any other. Drop rows that pad the lists.",
        lambda c: c[role] == -1,
        kinds=ANY_NUMBER,
    )


# Faults of positions and weights -----------------------------------------------------------
def _wrong_position(wrong: Callable[..., Any], mend: tuple[str, str] | None = None) -> Fault:
    """The fault that a position is no whole number from 1."""
    return Fault(
        ("position",),
        ValueError,
        "position must be a whole number from 1, or missing where a row was not shown: found "
        "{value} in {rows}, {where}. If your log counts from 0, add 1.",
        wrong,
        mend=mend,
    )


def _is_no_position(c):
    """Positions that are there, other than 0, and no whole numbers from 1."""
    is_whole = (c.position >= 1) & (c.position < _LARGEST_CODE) & (c.position % 1 == 0)
    return ~c.missing("position") & (c.position != 0) & ~is_whole


def _wrong_weight(name: str) -> Fault:
    """The fault that impressions or sample weights are negative, missing or too large."""

    def is_wrong(c):
        is_right = (c[name] >= 0) & (c[name] <= _LARGEST_WEIGHT)
        return c.missing(name) | ~is_right

    return Fault(
        (name,),
        ValueError,
        "{column} must be finite and at least 0, and at most 1e30: found {value} in {rows}, "
        "{where}.",
        is_wrong,
    )


def _is_no_code(c):
    """Bias factors of rows that were shown that are no codes."""
    is_whole = (c.bias % 1 == 0) & (c.bias < _LARGEST_CODE) & (c.bias > -_LARGEST_CODE)
    return c.shown & ~c.missing("bias") & ~is_whole


def _is_no_probability(c):
    """Propensities of rows that were shown outside of [0, 1].

    What divides by propensities, or by their means, checks that these are positive.
    """
    is_right = (c.propensity >= 0) & (c.propensity <= 1)
    return c.shown & (c.missing("propensity") | ~is_right)


def _is_no_score(c):
    """Scores of production that single precision does not hold."""
    is_large = (c.production > _LARGEST_SCORE) | (c.production < -_LARGEST_SCORE)
    return c.missing("production") | is_large


def _is_no_count(c):
    """Numbers of clicks that are not between 0 and the impressions of their row."""
    is_right = (c.n_clicks >= 0) & (c.n_clicks <= c.impressions) & (c.n_clicks < np.inf)
    return c.missing("n_clicks") | ~is_right


#: Faults of rows, in the order in which they are reported.
FAULTS = (
    *(lost_digits(role, *each) for role in IDS for each in _WHOLE_UP_TO.items()),
    *map(_missing_id, ("qid", "session", "doc", "user")),
    *map(_fractional_id, ("qid", "doc", "user")),
    *map(_padding, IDS),
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
    _wrong_position(lambda c: c.position == 0, ADD_ONE),
    _wrong_position(_is_no_position),
    *map(_wrong_weight, ("impressions", "sample_weight")),
    Fault(
        ("n_clicks", "impressions"),
        ValueError,
        "{column} is missing, or is not between 0 and 'impressions': found {value} in {rows}, "
        "{where}. Expected the number of clicks of the row's impressions, which are no fewer than "
        "its clicks. Count the impressions again; where only impressions without a click were "
        "counted, add the clicks to them. If the values are grades, drop 'impressions'.",
        _is_no_count,
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
        _is_no_code,
    ),
    Fault(
        ("propensity", "shown"),
        ValueError,
        "propensity must lie in [0, 1] where a row was shown: found {value} in {rows}, {where}. A "
        "row that could not be examined should have no position.",
        _is_no_probability,
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
        "production must be a finite score, higher is better, in single precision (up to 3.4e38): "
        "found {value} in {rows}, {where}. Give the score of the ranker that served the list in "
        "every row, drop the column, or rename it if it is a feature.",
        _is_no_score,
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
ONE_PAGE = Fault(
    (),
    ValueError,
    "X has no column 'qid' and no qid was passed, so that one result page has {rows}; expected at "
    f"most {LONGEST_PAGE:,}. A page of one query may be longer: rename your query column to "
    "'qid', or pass qid=. In a pipeline, a transformer that drops names and roles is written "
    "make_pipeline(OnFeatures(transformer), ranker), with skultr.preprocessing.OnFeatures; on "
    "arrays, pass STEP__qid= to the pipeline's fit.",
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
    "clicked in all of their impressions, pass y * impressions; if they were clicked once, "
    "y / impressions says so.",
)
RATES_OR_COUNTS = Fault(
    ("n_clicks", "impressions"),
    ClickDataWarning,
    "{column} is 0 or 1 in all rows, and 1 in {rows} of several impressions (up to {value}): it "
    "is read as click rates, so that such rows were clicked in all of their impressions. If they "
    "were, y * impressions says so; if they were clicked once, pass y / impressions.",
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
    names = set(kinds)
    known = set(known)
    found = []
    for fault in FAULTS:
        reads = {*fault.reads}
        is_possible = not fault.kinds or kinds.get(fault.reads[0], "") in fault.kinds
        if reads <= names and not reads <= known and is_possible:
            found.append(fault)
    return found


def kind_of_values(dtype: np.dtype) -> str:
    """The kind of a type of NumPy; of floats its character, which tells their precision."""
    return dtype.char if dtype.kind == "f" else dtype.kind


def check(
    columns: Mapping[str, NDArray[Any]],
    known: Iterable[str] = (),
    called: Mapping[str, str] | None = None,
) -> None:
    """Raise the first error of columns in memory, and warn of suspicious rows."""
    for fault, message in faults_in(columns, known, called):
        tell(fault.severity, message)


def faults_in(
    columns: Mapping[str, NDArray[Any]],
    known: Iterable[str] = (),
    called: Mapping[str, str] | None = None,
) -> Iterator[tuple[Fault, str]]:
    """Each fault of columns in memory and its sentence, save those among ``known``."""
    arrays = Columns(columns)
    kinds = {name: kind_of_values(values.dtype) for name, values in columns.items()}
    for fault in find_faults(kinds, known):
        with np.errstate(invalid="ignore"):
            wrong = fault.wrong(arrays)
        if not wrong.any():
            continue
        name = fault.reads[0]
        values = columns[name]
        # Ids that are hashes may be -1 as they may be any other number.
        if fault.kinds == ANY_NUMBER and values.min() < -1:
            continue
        row = int(np.argmax(wrong))
        column = (called or {}).get(name)
        n_rows = int(np.count_nonzero(wrong))
        yield fault, fault.message(n_rows, values[row], f"first in row {row}", column)


def check_clicked(weight: NDArray[Any], clicks: NDArray[Any]) -> None:
    """Report a log without clicks, and one of clicked rows only; both arrays are of shown rows."""
    if not clicks.any():
        NO_CLICKS.report()
    elif (clicks >= weight).all() and weight.sum() > MANY.value:
        ONLY_CLICKED.report(len(weight))


def all_at_once(messages: Iterable[str], code: str = "") -> str:
    """One message of several faults, with the code that mends them."""
    messages = list(messages)
    listed = "".join(f"\n- {message}" for message in messages)
    mend = f"\nThis mends what code can mend:\n\n{indent(code, '    ')}\n" if code else ""
    return f"The log has {count_of(len(messages), 'fault')}:{listed}{mend}"


# Names ---------------------------------------------------------------------------------
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


# Torn pages -----------------------------------------------------------------------------
def torn_lists(list_: Ints, place: Ints) -> tuple[int, int, float, int, bool]:
    """How many lists have gaps, of the lists and ``place`` (from 0) of rows.

    If nearly no list has a gap below its first row, what lacks above was no result, but a paid
    slot or the page before.

    Returns
    -------
    n_lists : int
        Lists of several rows.
    n_torn : int
        Those with gaps.
    share : float
        Share of the places of all lists of several rows that these lack.
    n_lost : int
        Number of these places.
    one_length : bool
        Whether nearly all lists have one number of rows, because they were made so.
    """
    n_rows = np.bincount(list_)
    first = np.zeros_like(n_rows)
    last = n_rows - 1
    # No list has less than the places 0, 1, ...: with the same sum none has a gap.
    if place.sum() > (n_rows * last // 2).sum():
        first = np.full_like(n_rows, place.max())
        np.minimum.at(first, list_, place)
        np.maximum.at(last, list_, place)
    several = n_rows > 1  # a row alone may be all that was shown
    n_lists = np.count_nonzero(several)
    n_places = (last + 1)[several]
    n_below = np.maximum(last - first + 1, n_rows)[several]
    is_whole_below = n_below == n_rows[several]
    if is_whole_below.sum() >= NEARLY_ALL.value * n_lists:
        n_places = n_below
    lost = n_places - n_rows[several]
    n_lost = int(lost.sum())
    most_of_one_length = np.bincount(n_rows[several]).max(initial=0)
    one_length = most_of_one_length > NEARLY_ALL.value * n_lists
    share = n_lost / max(n_places.sum(), 1)
    return int(n_lists), np.count_nonzero(lost), share, n_lost, bool(one_length)
