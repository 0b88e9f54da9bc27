"""The reader of logs in memory: from X, clicks and roles to checked rows.

Rows keep the order of X. Other forms of a log are made from them: codes of lists and documents
here; a :class:`~skultr._log._clicklog.ClickLog`, cells and result pages in the files beside this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import column_or_1d

from .._base._sklearn import check_sample_weight
from .._base._typing import ArrayLike, Bools, Column, Floats, Ints, Table
from ..exceptions import ClickDataWarning, MissingRoleWarning, python_value, warn_user
from . import _faults
from ._click_units import (
    ClickRates,
    as_known_rates,
    as_rates,
    divided,
    impressions_of_counts,
    is_counted,
    lists_of_counted,
)
from ._faults import LOOKS_LIKE, Fault, count_of, tell, torn_lists
from ._roles import (
    DROPPED,
    FIT_ROLES,
    OUTCOME,
    LogOnDisk,
    count_rows,
    is_frame,
    numbers,
    read_column,
    read_features,
    read_role,
    read_scope,
    refuse_arguments,
    without_column,
)
from ._segments import (
    as_array,
    encode,
    equal_columns,
    equal_keys,
    equal_rows,
    offsets_from_sorted,
    pair_codes,
    rank_in_segment,
    repeated,
    rows_where,
    whole_if_close,
)
from ._thresholds import MANY, TORN
from ._units import tell_units

#: Roles that may have stayed among the features of an array; others, such as a score of the ranker
#: that served, may well be features, too.
_NEVER_FEATURES = ("qid", "session", "doc", "position")


def read(
    X: Any,
    y: Column | None = None,
    sample_weight: ArrayLike | None = None,
    roles: Mapping[str, Any] | None = None,
    *,
    reads: Iterable[str] = FIT_ROLES,
    need: Mapping[str, str] | None = None,
    caller: str | None = None,
    errors: list[Exception] | None = None,
) -> Rows:
    """Checked rows of a log; every fault of the table of faults is reported.

    ``y`` holds clicks per impression, as :func:`take_clicks` gives them, or grades.
    ``reads`` are the roles to read, and with ``session`` a list has at most one row per position.
    ``need`` are required roles, each with its purpose, which the message gives to ``caller``. The
    first error is raised, unless ``errors`` is there to take all of them.
    """
    n_rows = _check_rows(X)
    given = roles or {}
    found = [] if errors is None else errors
    # The roles, each by itself: one that cannot be read hides no fault of another.
    scope = _scope_of(X, reads, given, found)
    values = _values_of_roles(X, reads, given, found)
    if not found:  # a role that failed is not absent
        attempt(found, _refuse_without, need or {}, values, caller)
    rows = Rows(X, n_rows, values, scope)
    rows.from_columns = {role for role in values if given.get(role) is None}
    _take_clicks_and_weight(rows, X, y, sample_weight, found)
    # Then what one role, or the log as a whole, must be.
    rows.check(reads, found)
    if errors is None and found:
        raise found[0]
    return rows


def _scope_of(X, reads, given, errors):
    """The scope of the ids of documents, "query" where they are not read."""
    if "doc" not in reads:
        return "query"
    # After an error the scope is of no use, but the other faults are still looked for.
    return attempt(errors, read_scope, X, given.get("doc_scope")) or "query"


def _take_clicks_and_weight(rows, X, y, sample_weight, errors):
    """Give the rows their clicks and sample weight, as far as they are there and can be read."""
    if y is not None:
        rows.click = attempt(errors, as_clicks, X, y)
    if sample_weight is not None:
        shaped = np.empty((rows.n_rows, 0))  # scikit-learn asks for an X with as many rows
        rows.sample_weight = attempt(errors, check_sample_weight, sample_weight, shaped)


def _values_of_roles(X, reads, given, errors):
    """The values of those roles that the log has."""
    values = {}
    for role in reads:
        if role == "doc_scope":  # no values by row
            continue
        value = attempt(errors, read_role, X, role, given.get(role))
        if value is not None:
            values[role] = value
    return values


def attempt(errors: list[Exception], step: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a step; where it fails None, and the error is added to ``errors``."""
    try:
        return step(*arguments)
    except (TypeError, ValueError) as error:
        errors.append(error)
        return None


def in_memory(X: Any, y: Any = None, by: Sequence[str] | None = None) -> tuple[Any, Any]:
    """The log as a frame in memory, and clicks; of a dataset its rows, or its cells ``by``."""
    if isinstance(X, LogOnDisk):
        refuse_arguments({"y": y})
        return X.to_frame() if by is None else X.to_cells(by)
    if not is_frame(X):
        raise TypeError(
            f"X is a {type(X).__name__}; expected the log as a frame in memory (pandas, Polars or "
            "PyArrow) with the columns 'qid' and 'position', and 'doc' or features."
        )
    return X, y


def queries_of(X: Any, groups: Any, qid: Any) -> tuple[Ints, Ints]:
    """Code of the query of each item, and the rows of each query; items of a dataset are queries.

    ``groups`` and ``qid`` are query ids in place of the column.
    """
    if isinstance(X, LogOnDisk):
        refuse_arguments({"groups": groups, "qid": qid})
        # A dataset is indexed by query, and its queries are sorted already.
        return np.arange(len(X)), X.query_impressions
    rows = read(X, roles={"qid": groups if qid is None else qid}, reads=("qid",))
    if rows["qid"] is None:
        raise ValueError(
            "X has no column 'qid' and neither groups= nor qid= was passed: there are no queries "
            "to keep whole. Rename the query column of X to 'qid', or pass one of them (in a "
            "search: sklearn.set_config(enable_metadata_routing=True))."
        )
    return rows.query, np.bincount(rows.query)


def take_clicks(
    X: Any, y: Column | str | None, caller: str, roles: Mapping[str, Any] | None = None
) -> tuple[Any, Floats, str | None]:
    """X without the column that ``y`` names, the clicks per impression of each row (grades as they
    are), and the name of this column, or None; ``roles`` are those that are keywords."""
    rest, values, column = _take_column(X, y, caller)
    if isinstance(X, LogOnDisk):  # a dataset holds rates
        return rest, values, column
    return rest, as_rates(X, values, roles or {}, _called(column)), column


def _called(column):
    """What messages call y."""
    return None if column is None else repr(column)


def _take_column(X, y, caller):
    """As :func:`take_clicks`, with the values as they are in the log."""
    if isinstance(X, LogOnDisk):
        refuse_arguments({"y": y})
        # All of its rows, in memory.
        X, rate = X.to_frame()
        return X, as_known_rates(rate), None
    n_rows = _check_rows(X)
    if y is None:
        raise ValueError(
            f"{caller} requires y to be passed, but the target y is None: pass the clicks (0 or "
            "1) or click rates of the rows."
        )
    if isinstance(y, Mapping) or (isinstance(y, str) and y.startswith(OUTCOME)):
        raise ValueError(
            f"{caller} needs clicks, and y is another outcome: {y!r}. Pass y='click'."
        )
    if isinstance(y, str):
        clicks = read_column(X, y)  # first: it says what X lacks
        return without_column(X, y), as_clicks(X, clicks, n_rows), y
    return X, as_clicks(X, y, n_rows), None


# Another outcome than the click ---------------------------------------------------------
class Target(NamedTuple):
    """What is learned from rows, and the clicks, from which examination is learned.

    With examination o and value r of a row, P(click) = o r and E[outcome] = o v: the user must
    look before anything can follow, so that one curve serves both.
    """

    X: Any
    #: Clicks, or values of the outcome divided by the largest one, (n_rows,).
    y: Floats
    #: Name of the column that was taken from X as ``y``.
    column: str | None
    #: Clicks, (n_rows,), where ``y`` is another outcome; else None.
    clicks: Floats | None
    #: What the values were divided by.
    scale: float


def take_target(
    X: Any,
    y: Column | str | Mapping[str, float] | None,
    caller: str,
    roles: Mapping[str, Any] | None = None,
) -> Target:
    """X and what ``y`` names or weighs; any y is an outcome if X has other values as ``click``.

    Where the clicks are counted over impressions, so are outcomes.
    """
    roles = roles or {}
    column = None
    if isinstance(y, Mapping):
        values = _weighted_sum(X, y)
        # By their weights: a click alone, whatever its weight, is the click itself.
        if [*filter(y.get, y)] == ["click"]:
            return take_target(X, "click", caller, roles)
    elif isinstance(y, str) and y.startswith(OUTCOME):
        values = _values_of(X, y)
    else:
        rest, values, column = _take_column(X, y, caller)
        # Otherwise X keeps the column until it is compared with the click.
        if column is None:  # a dataset became its rows
            X = rest
        if _are_clicks(X, values, column):
            return Target(rest, as_rates(X, values, roles, _called(column)), column, None, 1.0)
        X = rest
    clicks = read_role(X, "click")
    if clicks is None:
        raise ValueError(
            f"y is another outcome than the click, {y!r}, and X has no column 'click', from which "
            f"{caller} learns examination. Add the clicks as the column 'click'; to take the "
            "outcome itself for the clicks, pass its values: y=X[name]."
        )
    return _target_of_outcome(X, values, clicks, column, roles)


def _are_clicks(X, values, column):
    """Whether values that ``y`` names or holds are the clicks, or grades of people."""
    if column == "click" or read_role(X, "click") is None:
        return True
    return any(_is_role(X, role, values) for role in ("click", "relevance"))


def _target_of_outcome(X, values, clicks, column, roles):
    """The target of an outcome beside clicks: both per impression, and at most 1."""
    # Clicks tell what a row counts, and outcomes are counted the same way.
    impressions = impressions_of_counts(X, clicks, roles, "'click'")
    clicks = divided(clicks, impressions)
    values = divided(values, impressions)
    # An outcome that is the click leaves nothing else to learn.
    if _are_equal(values, clicks):
        return Target(X, clicks, column, None, 1.0)
    _faults.check({"outcome": values}, called={"outcome": "y"})
    # Models of examination need values of at most 1; rankings do not depend on the scale.
    scale = float(values.max(initial=0.0))
    if scale > 0:
        return Target(X, values / scale, column, clicks, scale)
    warn_user(
        "The outcome is 0 in all rows: there is nothing to learn from it. Check the columns "
        "that y names.",
        ClickDataWarning,
    )
    return Target(X, np.zeros(len(values)), column, clicks, scale)


def clicks_of(
    X: Any, y: Any, caller: str, roles: Mapping[str, Any] | None = None
) -> tuple[Any, Floats, str | None]:
    """As :func:`take_clicks`; the column ``click`` where ``y`` is another outcome."""
    target = take_target(X, y, caller, roles)
    clicks = target.y if target.clicks is None else target.clicks
    return target.X, clicks, target.column


def _is_role(X, role, values):
    """Whether values are those of a role of X."""
    known = read_role(X, role)
    return known is not None and _are_equal(known, values)


def _are_equal(some, others):
    """Whether two columns hold the same numbers, be it in single precision."""
    return some.shape == others.shape and np.allclose(some, others, rtol=1e-6, equal_nan=True)


def _weighted_sum(X, weights):
    """The sum of outcomes, each times its weight."""
    # A negative weight would turn the ranking round, an infinite one would hide all others.
    is_wrong = any(not _is_weight(weight) for weight in weights.values())
    if is_wrong or not any(weights.values()):
        raise ValueError(
            f"y weighs outcomes by {dict(weights)!r}; expected numbers of at least 0, and one "
            "above 0, by column, such as {'click': 1.0, 'outcome_purchase': 20.0}."
        )
    other = [name for name in weights if not (name == "click" or str(name).startswith(OUTCOME))]
    if other:
        raise ValueError(
            f"y weighs the columns {other}; expected 'click' or columns whose names begin with "
            f"{OUTCOME!r}, because others would be features. Rename them, such as "
            f"rename(columns={{{other[0]!r}: '{OUTCOME}{other[0]}'}})."
        )
    return sum(weight * _values_of(X, name) for name, weight in weights.items())


def _is_weight(weight):
    """Whether it is a finite number of at least 0."""
    return isinstance(weight, Real) and np.isfinite(weight) and weight >= 0


def _values_of(X, name):
    """An outcome as numbers of at least 0, (n_rows,)."""
    values = as_clicks(X, read_column(X, name))
    _faults.check({"outcome": values}, called={"outcome": f"The column {name!r}"})
    return values


def warn_about_names(X: Any, names: Iterable[Any], roles: Mapping[str, Any]) -> None:
    """Warn (before the log is read) of features called like the clicks, or a role X lacks."""
    for name in names:
        role = LOOKS_LIKE.get(str(name).lower())
        if role is None:
            continue
        if role == "y":
            what = "the clicks"
            remedy = f"pass it as y, or fit(X, {name!r})"
        elif read_role(X, role, roles.get(role)) is None:
            what = f"the role {role!r}"
            remedy = f"rename it to {role!r}"
        else:  # the log has the role: the column is something else
            continue
        warn_user(
            f"The column {name!r} is read as a feature, but its name looks like {what}. If it is, "
            f"{remedy}; otherwise give it another name.",
            MissingRoleWarning,
        )


class Rows:
    """Checked rows of a log in the order of X; codes are computed at first access.

    Attributes
    ----------
    n_rows : int
    position : ndarray of shape (n_rows,), int
        From 1; 0 where a row was not shown. If the log has no positions: the rank of each row in
        its list, in the order of the rows.
    weight : ndarray of shape (n_rows,)
        Impressions times sample weight. Sample weights count relative to their mean over the
        impressions that were shown, so that a common factor of them changes nothing.
    rate : ndarray of shape (n_rows,)
        Clicks per impression, in [0, 1].
    shown, served : ndarray of shape (n_rows,), bool
        ``shown``: the row has a position and a positive weight. ``served``: it has a position and
        impressions, for any sample weight.
    """

    click = None
    sample_weight = None
    #: Roles that are columns of X, which may have been meant as features.
    from_columns = frozenset()
    #: True if the lists are result pages.
    has_pages = False

    def __init__(self, X: Any, n_rows: int, values: dict[str, NDArray[Any]], scope: str) -> None:
        self._X = X
        self.n_rows = n_rows
        self._values = values
        self._scope = scope

    def __getitem__(self, role: str) -> NDArray[Any] | None:
        """Values of a role as given, None if it is absent."""
        return self._values.get(role)

    def replace(self, role: str, values: NDArray[Any]) -> Rows:
        """The rows with other values of one role."""
        rows = copy(self)
        rows._values = {**self._values, role: values}
        _faults.check(rows._columns(), [name for name in self._columns() if name != role])
        return rows

    def of_outcome(self, values: Floats) -> Rows:
        """The rows with another outcome, in [0, 1], in place of the clicks."""
        rows = copy(self)
        rows.click = values
        vars(rows).pop("rate", None)
        return rows

    # Checks -------------------------------------------------------------------------------
    def check(self, reads: Iterable[str], errors: list[Exception]) -> None:
        """Report all faults of the columns that were read; errors are added to ``errors``."""
        # Each column by itself; only sound columns are compared with one another.
        found = [*self.faults()]
        errors += [fault.severity(message) for fault, message in found if fault.is_error]
        if not errors:
            attempt(errors, self._check_sound, reads, found)

    def faults(self) -> Iterator[tuple[Fault, str]]:
        """Each fault of the columns, and its sentence."""
        return _faults.faults_in(self._columns(), called={"click": "y"})

    def _check_sound(self, reads, suspicious):
        """Report what can be found where the columns have no error."""
        # Without places a list is no page: its rows stand nowhere.
        reads_pages = "session" in reads and self.has_places
        if self.click is not None and not self.shown.any():
            _faults.NO_ROW_SHOWN.report()
        for fault, message in suspicious:
            tell(fault.severity, message)
        self._check_roles_of_lists(reads)
        if reads_pages:
            self.check_one_row_per_position()
        self._check_clicked()
        if reads_pages:
            self._warn_about_torn_pages()
        self.has_pages = reads_pages
        # Only what learns from the clicks reads propensities; others compare what was logged.
        if "propensity" in reads and (self.click is not None or self.has_places):
            tell_units("rows", self)

    def _check_clicked(self):
        """Report no click among the shown rows."""
        if self.click is None:
            return
        rate = self.rate[rows_where(self.shown)]  # warns where it has to be scaled
        _faults.check_clicked(np.broadcast_to(1.0, len(rate)), rate)

    def _check_roles_of_lists(self, reads):
        """Report that the log has no queries, or no positions, where they are read."""
        if "qid" in reads and "qid" not in self._values:
            self._check_one_query("session" in reads)
        if "position" in reads and not self.has_places:
            _faults.NO_POSITIONS.report()

    def _columns(self):
        columns = dict(self._values)
        if self.click is not None:
            columns["click"] = self.click
        if self.sample_weight is not None:
            columns["sample_weight"] = self.sample_weight
        return {**columns, "shown": self.shown, "served": self.served}

    def _check_one_query(self, reads_lists):
        """Warn of a log without queries; refuse a page so long that its queries were lost."""
        # Results depend on the query for lists, and for documents with ids.
        if not reads_lists and ("doc" not in self._values or self._scope != "query"):
            return
        longest = int(np.bincount(self.list_[rows_where(self.shown)]).max(initial=0))
        if reads_lists and longest > _faults.LONGEST_PAGE:
            _faults.ONE_PAGE.report(longest)
        _faults.NO_QUERIES.report(where="" if is_frame(self._X) else DROPPED)

    def check_one_row_per_position(self, numbered: bool = True) -> None:
        """Refuse two rows of a list at one position; ``numbered`` if rows have their numbers."""
        # A row that was not shown takes no place.
        same = repeated(self.place()[rows_where(self.shown)])
        if not same.any():
            return
        row = np.flatnonzero(self.shown)[np.argmax(same)]
        where = f"query {python_value(self.query_ids[self.query[row]])!r}"
        if numbered:
            where += f", row {row}"
        _faults.ONE_ROW_PER_POSITION.report(int(same.sum()), int(self.position[row]), where)

    def _warn_about_torn_pages(self):
        """Warn if most lists lack positions that other lists have, as after a split of rows."""
        if "position" not in self._values:  # the order of the rows has no gaps
            return
        rows = rows_where(self.shown)
        list_ = self.list_[rows]
        if "bias" in self._values:
            place, _ = encode(self.position[rows])
        else:  # factors are positions, which a fit codes in any case
            place = self.bias[0][rows]
        n_lists, n_torn, share, _, one_length = torn_lists(list_, place)
        # A split leaves lists of many lengths.
        if n_lists >= MANY.value and n_torn > TORN.value * n_lists and not one_length:
            warn_user(
                f"{n_torn:,} of {n_lists:,} lists of several rows have gaps: they lack "
                f"{share:.1%} of the positions down to their last row, "
                "which other lists have. If rows were sampled or split one by one "
                "(train_test_split, KFold), pages are torn apart, and what is learned from them "
                "is wrong: keep queries whole with QueryKFold, train_test_queries or GroupKFold. "
                "If rows were filtered out, keep them, unless they were paid slots.",
                ClickDataWarning,
            )

    # What was served ----------------------------------------------------------------------
    @cached_property
    def position(self) -> Ints:
        position = self._values.get("position")
        bias = self._values.get("bias")
        if position is not None:
            # Not shown is 0, which no shown row has.
            found = narrow_codes(np.where(np.isnan(position), 0, position))
            if found.all():  # the same numbers in half the memory
                self._values["position"] = found
            return found
        shown = np.ones(self.n_rows, dtype=bool) if bias is None else ~np.isnan(bias)
        # Rows that were not shown come last.
        rank = rank_in_segment(self.list_, shown.astype(float))
        return np.where(shown, rank, 0)

    @property
    def has_places(self) -> bool:
        """True if the log has positions or bias factors."""
        return "position" in self._values or "bias" in self._values

    @cached_property
    def impressions(self) -> Floats:
        """Impressions of each row, 1 by default."""
        return self._values.get("impressions", np.broadcast_to(1.0, self.n_rows))

    @cached_property
    def weight(self) -> Floats:
        if self.sample_weight is None:
            return self.impressions
        weighted = self.impressions * self.sample_weight
        total = weighted[self.shown].sum()
        if not 0 < total < np.inf:  # no row is shown, or the table of faults has said so
            return weighted
        mean = total / self.impressions[self.shown].sum()
        # In single precision, so that the rounding of a common factor is no change either.
        relative = (self.sample_weight / mean).astype(np.float32)
        return whole_if_close(self.impressions * relative.astype(np.float64))

    @cached_property
    def shown(self) -> Bools:
        if self.sample_weight is None:
            return self.served
        return self.served & (self.sample_weight > 0)

    @cached_property
    def served(self) -> Bools:
        # Positions decide, or bias factors where the log has no positions.
        place = self._values.get("position", self._values.get("bias"))
        has_impressions = self.impressions > 0
        if place is None:
            return has_impressions
        return has_impressions & ~np.isnan(place)

    @cached_property
    def rate(self) -> Floats:
        largest = self.click.max(initial=0.0)
        if largest > 1:
            # Grades of people become probabilities of a click.
            _faults.GRADES.report(0, float(largest), None, "y")
            return self.click / largest
        return self.click

    @property
    def clicks(self) -> Floats:
        """Number of clicks of each row, times its sample weight."""
        return whole_if_close(self.rate * self.weight)

    # Codes --------------------------------------------------------------------------------
    @cached_property
    def _queries(self):
        if "qid" not in self._values:
            return np.zeros(self.n_rows, dtype=np.intp), np.zeros(1, dtype=int)
        return _encode("qid", self._values["qid"])

    @property
    def query(self) -> Ints:
        """Code of the query of each row."""
        return self._queries[0]

    @property
    def query_ids(self) -> NDArray[Any]:
        """Ids that the codes of queries stand for."""
        return self._queries[1]

    @cached_property
    def list_(self) -> Ints:
        """Code of the (query, session) of each row, in the order of the queries."""
        if "session" not in self._values:
            return self._lists_without_sessions()
        # A session may have several queries, and each of them has its own list.
        session, ids = _encode("session", self._values["session"])
        code, _, _ = pairs_of_codes(self.query, session, len(ids))
        return narrow_codes(code)

    def _lists_without_sessions(self):
        """Each query is one list, unless its rows were counted over several pages."""
        impressions = self._values.get("impressions")
        if "position" not in self._values or impressions is None:
            return self.query
        group = self.query
        if "user" in self._values:
            user, ids = self.user
            group, _, _ = pairs_of_codes(group, user, len(ids))
        # Rows of one impression were counted, too, if none of them recurs.
        if not is_counted(impressions) and self._has_rows_twice(group):
            return self.query
        code = lists_of_counted(group, self.position, self.impressions, self.served)
        return narrow_codes(code)

    def _has_rows_twice(self, group):
        """Whether a document was shown twice at one place to one group, as in a log of pages."""
        rows = np.flatnonzero(self.served)
        doc = self.documents(rows=rows).code
        keys = [group[rows], self.position[rows], doc]
        if "bias" in self._values:
            keys.append(self._values["bias"][rows])
        _, first = equal_keys(keys)
        return len(first) < len(rows)

    @property
    def choice(self) -> Ints:
        """Code of the rows that a click of each row could have fallen on: those of its list, or of
        its query where rows were counted over pages that are not known."""
        return self.list_ if "session" in self._values else self.query

    def place(self) -> Ints:
        """Key of each row that sorts by list, then position."""
        position = self.position
        if position.max(initial=0) >= 2**20:  # or the number could overflow
            position, _ = encode(position)
        n_positions = int(position.max(initial=0)) + 1
        return pair_codes(self.list_, position, n_positions)

    @cached_property
    def bias(self) -> tuple[Ints, NDArray[Any]]:
        """Code of the bias factor of each row (-1 where not shown), and the factors."""
        rows = rows_where(self.shown)
        # Without bias factors, the position is the factor.
        values = self._values.get("bias", self.position)[rows]
        if values.dtype.kind == "f":
            values = values.astype(np.int64)
        # Rows that were not shown keep -1, so that no code is of them.
        shown_codes, factors = encode(values)
        codes = np.full(self.n_rows, -1, dtype=np.int32)
        codes[rows] = shown_codes
        return codes, factors.astype(np.int64)

    @cached_property
    def user(self) -> tuple[Ints, NDArray[Any]]:
        """Code of the user of each row, and the ids of the users."""
        if "user" not in self._values:
            return np.broadcast_to(np.int32(0), self.n_rows), np.zeros(1, dtype=int)
        return _encode("user", self._values["user"])

    def documents(
        self, features: NDArray[Any] | None = None, rows: Any = slice(None)
    ) -> Documents:
        """The document of each row: the pair (query, id), or equal features without ids."""
        doc = self._values.get("doc")
        if doc is None:
            features = features_of(self._X) if features is None else features
            return Documents(*equal_rows(features[rows]), None)
        # Unless ids are global, one id under two queries names two documents.
        by_query = self._scope == "query" and "qid" in self._values
        query = (self.query[rows], self.query_ids) if by_query else None
        code, ids = name_documents(_encode("doc", doc[rows]), query)
        return Documents(code, first_rows(code, len(ids)), ids)

    def warn_about_features(self, features: NDArray[Any], names: Sequence[Any]) -> None:
        """Warn of features that are the clicks or follow from them, and of rows without any.

        A feature that is a role, too, is an error.
        """
        self._refuse_roles_among(features, names)
        tell_units("features", features.T)
        tell_units("clicked", self, features, names)

    def _refuse_roles_among(self, features, names):
        """Refuse features that are equal to a role that came as a keyword."""
        if self.n_rows < MANY.value:
            return  # few rows may be equal by chance
        for role in {*_NEVER_FEATURES} & {*self._values} - self.from_columns:
            values = np.asarray(self._values[role])
            # Text is equal to no feature.
            if values.dtype.kind not in "iuf":
                continue
            equal = [*equal_columns(features, values)]
            if equal:
                raise ValueError(
                    f"The feature {names[equal[0]]!r} equals the role {role!r} in every row, and "
                    "a role is never a feature. Leave the columns of roles and labels out of X, "
                    "where roles are passed as keywords."
                )


class Documents(NamedTuple):
    """Documents of rows."""

    code: np.ndarray  # (n_rows,), int
    first: np.ndarray  # (n_docs,), first row of each document
    #: (n_docs,), by (qid, doc), or by doc if the ids are global or there is one query; None if
    #: documents are equal rows of features.
    ids: pd.Index | None


def _check_rows(X):
    """Number of rows of X; an error if there are none."""
    n_rows = count_rows(X)
    if not n_rows:
        _faults.NO_ROWS.report()
    return n_rows


def _encode(role, values):
    if isinstance(values, pd.Categorical):  # coded already, in the order of the ids
        return narrow_codes(values.codes), values.categories.to_numpy()
    codes, ids = encode(values, f"The role {role!r}")
    return narrow_codes(codes), ids


def narrow_codes(codes: NDArray[Any]) -> Ints:
    """The same codes in 32 bits, if they fit."""
    return codes.astype(np.int32 if codes.max(initial=0) < 2**31 else np.int64, copy=False)


def pairs_of_codes(query: Ints, doc: Ints, n_ids: int) -> tuple[Ints, Ints, Ints]:
    """Code of the pair (query, id) of each row, in sorted order, and query and id of each code."""
    # The query of the last row of each id: where it is that of all rows, ids need no query.
    query_of_id = np.zeros(n_ids, dtype=query.dtype)
    query_of_id[doc] = query
    if (query_of_id[doc] == query).all():
        # Each id has one query: much faster than hashing pairs.
        order = np.argsort(query_of_id, kind="stable")
        number = np.empty(n_ids, dtype=doc.dtype)
        number[order] = np.arange(n_ids)
        return number[doc], query_of_id[order], order
    code, pairs = encode(pair_codes(query, doc, n_ids))
    return code, *np.divmod(pairs, n_ids)


def name_documents(
    doc: tuple[Ints, ArrayLike], query: tuple[Ints, ArrayLike] | None
) -> tuple[Ints, pd.Index]:
    """Code of the document of each row, and the index of documents: by (qid, doc), or by doc.

    Both are codes of rows and what they stand for; without ``query``, ids are global.
    """
    code = doc[0]
    ids = _as_index(doc[1])
    if query is None:
        return code, ids.rename("doc")
    code, *codes = pairs_of_codes(query[0], code, len(ids))
    # From the codes, which pandas would otherwise find again.
    levels = [_as_index(query[1]), ids]
    return code, pd.MultiIndex(levels, codes, names=["qid", "doc"], verify_integrity=False)


def _as_index(ids):
    """Ids as an index; columns of text are not copied to Python objects."""
    values = ids if isinstance(ids.dtype, pd.StringDtype) else np.asarray(ids)
    return pd.Index(values, tupleize_cols=False)


def first_rows(code: Ints, n_codes: int) -> Ints:
    """The first row of each code."""
    first = np.empty(n_codes, dtype=np.intp)
    # From the last row to the first: of several rows of a code the first is written last.
    first[code[::-1]] = np.arange(len(code))[::-1]
    return first


def features_of(X: Any) -> NDArray[np.float32]:
    """Features of a log as an array in float32, shape (n_rows, n_features)."""
    features = read_features(X, "anything")
    if sparse.issparse(features):
        features = features.toarray()
    return np.asarray(features, dtype=np.float32)


def as_clicks(X: Any, y: Column, n_rows: int | None = None) -> Floats:
    """The clicks as numbers, one per row of X, of which ``n_rows`` are counted unless given."""
    if isinstance(y, ClickRates):
        return y
    n_rows = count_rows(X) if n_rows is None else n_rows
    are_labelled = isinstance(X, pd.DataFrame) and isinstance(y, pd.Series)
    if are_labelled and _are_in_another_order(X.index, y.index):
        warn_user(
            "y has the row labels of X in another order, and is read by position. If rows of one "
            "label belong together, pass y.loc[X.index]; otherwise y.to_numpy().",
            ClickDataWarning,
        )
    # One column of a frame is taken, too, with the warning of scikit-learn.
    y = numbers("y", column_or_1d(as_array(y), warn=True))
    if len(y) != n_rows:
        raise ValueError(
            f"X has {count_of(n_rows, 'row')} and y has {len(y)}; expected one click per row."
        )
    return y


def _are_in_another_order(labels, others):
    """Whether two indexes of pandas hold the same distinct labels, shuffled."""
    if len(labels) != len(others) or labels.nlevels != others.nlevels:
        return False
    if not (labels.is_unique and others.is_unique):
        return False
    return not labels.equals(others) and labels.isin(others).all()


def _refuse_without(need, values, caller):
    """An error if a role that is needed for some purpose is absent."""
    for role, purpose in need.items():
        if role not in values:
            raise ValueError(
                f"X has no column {role!r} and no {role}= was passed: {caller} needs it "
                f"{purpose}. Rename the column of X that holds it to {role!r}; with arrays, pass "
                f"{role}= (in a search, call "
                "sklearn.set_config(enable_metadata_routing=True) first)."
            )


# Result pages ----------------------------------------------------------------------------
class ServedLists(NamedTuple):
    """The shown rows of X, list by list from the top down."""

    rows: Ints  # (n_shown,)
    position: Ints  # (n_shown,)
    bias: Ints  # (n_shown,)
    offsets: Ints  # (n_lists + 1,)


def read_lists(X: Table, roles: Mapping[str, Any]) -> ServedLists:
    """The result pages of rows to predict, from the columns of X and keywords."""
    found = read(X, roles=roles, reads=("qid", "session", "position", "bias", "impressions"))
    rows = np.flatnonzero(found.position > 0)
    # List by list, and from the top of each down.
    order = np.lexsort((found.position[rows], found.list_[rows]))
    rows = rows[order]
    bias = found.position if found["bias"] is None else found["bias"]
    offsets = offsets_from_sorted(found.list_[rows])
    return ServedLists(rows, found.position[rows], bias[rows], offsets)
