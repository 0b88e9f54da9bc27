"""The columns of a click log: their roles by names and values, and what is to be said of them."""

from __future__ import annotations

import re
import warnings
from functools import cached_property
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

from .._log._click_units import divided, impressions_of_counts
from .._log._counted import value_bits
from .._log._faults import IDS, faults_in, torn_lists
from .._log._lookalikes import FeatureSample, orders_lists, outcomes_of, rows_to_look_at
from .._log._roles import OUTCOME, as_numbers, is_role, kind_of, numbers
from .._log._segments import encode, offsets_from_sorted, pair_codes
from .._log._thresholds import IN_ORDER
from .._log._units import units_in
from ._role_names import NAMES, first_named, plain_name
from ._role_values import Columns, Proposal, RoleFinder, stands_above
from ._thresholds import (
    DEEPEST_POSITION,
    FEW_PER_PAGE,
    HIGHEST_GRADE,
    LEAST_ROWS,
    ORDERS_PAGES,
)

#: What code needs before it can train, in words.
NEEDED = {
    "qid": "the query",
    "doc": "the document",
    "position": "its rank on the page",
    "click": "whether it was clicked",
}
#: Words for 1 and for 0.
_WORDS = {"yes": "no", "true": "false", "y": "n", "t": "f", "ja": "nein", "oui": "non"}
#: Kinds of columns of text.
TEXT = nw.String | nw.Categorical | nw.Enum
_OUTCOME = re.compile(
    "cart|purchas|order|bought|conver|dwell|book|revenue|checkout|sale|basket|wishlist|favou?rite"
)
#: What paid slots are called in the languages of the names of roles.
_PAID = re.compile(
    "sponsor|sponser|patrocin|promot|promovid|paid|advert|anzeige|werbung|bezahlt|"
    "publicit|annonce_payee|pubblicit|広告|推广|赞助"
)


# Roles ------------------------------------------------------------------------------------
def _proposed(frame, numbers, rename):
    """The roles of columns that do not have their names yet, and the proposals of these roles;
    those of ``rename`` are given."""
    roles = {name: name for name in frame.columns if is_role(name)}
    # Where another column is to be the click, the one of this name is an outcome.
    if "click" in roles and "click" in rename.values():
        roles["click"] = "outcome_click"
    checks = _checks(frame, numbers, {*roles.values(), *rename.values()})
    roles |= rename
    finder = RoleFinder(*_comparable(frame, numbers, roles))
    proposals = finder.proposals()
    roles |= {each.name: each.role for each in proposals if not each.others}
    is_open = {each.role for each in proposals if each.others}
    sought = [role for role in NAMES if role not in {*roles.values()} | is_open]
    proposals += _proposed_by_name(frame.columns, sought, roles, finder, checks)
    return roles, proposals


def _proposed_by_name(names, sought, roles, finder, checks):
    """Proposals of roles by names alone; ``roles`` gets them."""
    # Roles in the order of NAMES: what one has taken is no longer free for the next.
    for role in sought:
        free = [name for name in names if name not in roles]
        if role == "user" and finder.page is not None:
            free = [name for name in free if finder.may_be_user(name)]
        name = first_named(free, role, checks[role])
        if name is not None:
            roles[name] = role
            yield Proposal(name, role, "its name alone says so", "low")


def _comparable(frame, numbers, roles):
    """What roles are found from by values: columns, those that may be ids, and known roles."""
    codes = {}
    ids = []
    for name in frame.columns:
        column = frame[name]
        if name not in roles and (column.dtype.is_float() or column.dtype.is_nested()):
            continue
        codes[name] = encode(value_bits(column))[0].astype(np.int64)
        if name not in roles and not column.dtype.is_temporal() and codes[name].any():
            ids.append(name)
    known = {role: name for name, role in roles.items()}
    return Columns(codes, {n: v for n, v in numbers.items() if v is not None}), ids, known


def _checks(frame, numbers, known_roles):
    """Whether the values of a column may be those of a role, by role."""

    def is_no_float(name):
        return not frame[name].dtype.is_float()

    def is_count(name):
        return _within(numbers[name], 0, np.inf, whole=True)

    is_counted = "impressions" in known_roles
    is_counted = is_counted or first_named(frame.columns, "impressions", is_count) is not None
    # Beside impressions, clicks may be counted.
    most_clicks = np.inf if is_counted else 1
    checks = dict.fromkeys(NAMES, is_no_float)
    return checks | {
        "doc": lambda name: _names_documents(name, frame[name].dtype),
        "position": lambda name: _within(numbers[name], 0, DEEPEST_POSITION.value, whole=True),
        "click": lambda name: _within(numbers[name], 0, most_clicks),
        "impressions": is_count,
        "propensity": lambda name: _within(numbers[name], 0, 1),
        "production": lambda name: numbers[name] is not None,
        "relevance": lambda name: _within(numbers[name], 0, HIGHEST_GRADE.value),
    }


def _names_documents(name, dtype):
    """Whether a column may hold ids of documents; a page that is a number is one of results."""
    return not dtype.is_float() and (plain_name(name) != "page" or isinstance(dtype, TEXT))


def _within(values, low, high, *, whole=False):
    """Whether a column holds numbers, all between two, and whole ones if that is asked for."""
    if values is None:
        return False
    known = values[~np.isnan(values)]
    if not len(known) or known.min() < low or known.max() > high:
        return False
    return not whole or not (known % 1).any()


def _yes(column):
    """The word for 1 in a column of two words such as "yes" and "no", None in any other."""
    if not isinstance(column.dtype, TEXT):
        return None
    # A missing value is one of them: such a column has three.
    values = column.unique().to_list()
    if len(values) != 2:
        return None
    words = {str(value).strip().lower(): value for value in values}
    found = [words[yes] for yes, no in _WORDS.items() if {*words} == {yes, no}]
    return found[0] if found else None


# Cells of several values ------------------------------------------------------------------
def _of_several_values(frame, rename):
    """Columns without a role whose cells hold records or lists that no ranker reads."""
    free = [name for name in frame.columns if not is_role(name) and name not in rename]
    return [name for name in free if _holds_records(frame[name]) or _holds_lists(frame[name])]


def _holds_records(column):
    """Whether cells hold fields by name."""
    # pandas holds what Parquet calls a struct as objects.
    return column.dtype == nw.Struct or isinstance(_first_object(column), dict)


def _holds_lists(column):
    """Whether cells hold lists that are no block of features: of text, or of several lengths."""
    if kind_of(column) != "list":
        return False
    cells = [cell for cell in column.drop_nulls().to_list() if cell is not None]
    if len({len(cell) for cell in cells}) > 1:
        return True
    values = np.asarray(cells)
    return bool(values.size) and values.dtype.kind not in "biuf"


def _first_object(column):
    """The first value of a column of objects, None of any other."""
    if column.dtype != nw.Object:
        return None
    present = column.drop_nulls()
    return present[0] if len(present) else None


# The log under its roles ------------------------------------------------------------------
class LogTable:
    """A log in memory under its proposed roles."""

    def __init__(self, frame: nw.DataFrame[Any], rename: dict[str, str]) -> None:
        ignored = _of_several_values(frame, rename)
        #: Columns that are no part of what is trained on, with their roles.
        self.left_out = {name: (frame[name], "ignored") for name in ignored}
        self.frame = frame = frame.drop(ignored)
        self.numbers = {name: _as_floats(frame[name]) for name in frame.columns}
        self.roles, self.proposals = _proposed(frame, self.numbers, rename)
        self._read_rows()
        self.torn = [*self._torn()]
        self.missing = [role for role in NEEDED if self._name_of(role) is None]
        self.paid = self._paid_slots()
        if self.paid:
            self._leave_out_paid_slots()
        self._find_production()
        self.outcomes = self._outcomes()
        for name in self.outcomes:
            self.roles.setdefault(name, f"{OUTCOME}{plain_name(name)}")
        self.rename = {name: role for name, role in self.roles.items() if name != role}
        self.words = self._words()
        self._group_features()

    def _read_rows(self):
        """Set what the rows hold: queries, documents and pages as codes, clicks and positions."""
        # Without a role all rows are one.
        query = self._name_of("qid")
        self.query = self.codes(query)
        self.doc = self.codes(query, self._name_of("doc"))
        self.page = self.codes(query, self._name_of("session"))
        self.page_starts = np.unique(self.page, return_index=True)[1]
        self.clicks = self._numbers_of("click")
        self.impressions = self._numbers_of("impressions")
        self._find_position()

    def _name_of(self, role):
        """Name of the column of a role; None if it has none, the last if it has several."""
        names = [name for name, has in self.roles.items() if has == role]
        return names[-1] if names else None

    def _numbers_of(self, role):
        return self.numbers.get(self._name_of(role))

    def _find_position(self):
        """Set the positions from 1."""
        self.position = self._numbers_of("position")
        self.starts_at_0 = self.position is not None and bool(np.nanmin(self.position) == 0)
        if self.starts_at_0:
            self.position = self.position + 1

    def _words(self):
        """The word for 1, by role, of columns of two words."""
        words = {}
        for name, role in self.roles.items():
            yes = None if role in IDS else _yes(self.frame[name])
            if yes is not None:
                words[role] = yes
        return words

    def _group_features(self):
        """Set the columns without a role: of pages, of places, of times, and features."""
        # A time of the page is both of the page and a time, and no feature.
        free = [name for name in self.frame.columns if name not in self.roles]
        self.page_columns = [name for name in free if self._is_of_page(name)]
        self.times = [name for name in free if self.frame[name].dtype.is_temporal()]
        self.place_columns = [name for name in free if self._is_of_place(name)]
        others = {*self.page_columns, *self.times, *self.place_columns}
        self.features = [name for name in free if name not in others]

    def codes(self, *names: str | None) -> Any:
        """Codes of the distinct values of columns; None stands for one value."""
        code = np.zeros(len(self.frame), dtype=np.int64)
        for name in names:
            if name is None:
                continue
            # Ids of documents are those of a query: the codes so far are the first part.
            own, ids = encode(value_bits(self.frame[name]))
            code = encode(pair_codes(code, own, len(ids)))[0]
        return code

    def _free(self, fits):
        """Columns of numbers that have no role, and whose values fit."""
        free = []
        for name, values in self.numbers.items():
            if name in self.roles or values is None or np.isnan(values).all():
                continue
            if fits(values):
                free.append(name)
        return free

    # Paid slots, and the score of production ------------------------------------------------
    def stands_at_the_top(self, name: str) -> bool:
        """Whether a column is 1 at the top of pages and 0 below, as that of paid slots."""
        values = self.numbers[name]
        if self.position is None or len(self.page) < LEAST_ROWS.value:
            return False
        if values is None or not np.isin(values, (0, 1)).all() or np.ptp(values) == 0:
            return False
        return not np.isnan(self.position).any() and stands_above(values, self.page, self.position)

    def is_named_paid(self, name: str) -> bool:
        """Whether a column of 0 and 1 is named as that of paid slots, wherever they stand."""
        values = self.numbers[name]
        if values is None or not np.isin(values, (0, 1)).all() or not np.ptp(values):
            return False
        return _PAID.search(plain_name(name)) is not None

    def _paid_slots(self):
        """Columns of 0 and 1 that are named as paid slots, and stand at the top."""
        return [
            name
            for name in self._free(lambda values: True)
            if _PAID.search(plain_name(name))
            and not isinstance(self.frame[name].dtype, TEXT)
            and self.stands_at_the_top(name)
        ]

    def _leave_out_paid_slots(self):
        """Keep the rows of results alone, under the positions that they had."""
        is_paid = np.any([self.numbers[name] == 1 for name in self.paid], axis=0)
        self.n_paid = int(is_paid.sum())
        self.left_out |= {name: (self.frame[name], "paid slot") for name in self.paid}
        is_result = ~is_paid
        self.frame = self.frame.filter(is_result.tolist()).drop(self.paid)
        numbers = {}
        for name in self.frame.columns:
            values = self.numbers[name]
            # Columns of text have no numbers.
            numbers[name] = None if values is None else values[is_result]
        self.numbers = numbers
        self._read_rows()

    def _find_production(self):
        """Give the role of the score that served the pages to the column that orders them."""
        named = self._name_of("production")
        if named is not None:
            # A score that does not order the pages is none of the ranker that served.
            if not self._orders_pages(named, IN_ORDER.value):
                del self.roles[named]
            return
        if self.missing or self.clicks is None:
            return
        for name in self._free(lambda values: len(values) >= LEAST_ROWS.value):
            if self._orders_pages(name, ORDERS_PAGES.value):
                self.roles[name] = "production"
                reason = "orders the rows of each page; its name says nothing"
                self.proposals.append(Proposal(name, "production", reason, "medium"))
                return

    def _orders_pages(self, name, least):
        """Whether pages stand in the order of a score, as of the ranker that served them."""
        scores = self.numbers[name]
        if self.position is None or scores is None or np.isnan(scores).any():
            return False
        shown = ~np.isnan(self.position)
        return orders_lists(scores[shown], self.page[shown], self.position[shown], least)

    def _outcomes(self):
        """Names of columns that the click decides, or that are named so and nearly are."""
        if self.clicks is None:
            return []
        return [
            name
            for name in self._free(lambda values: np.nanmin(values) >= 0)
            if self._is_outcome(name, self.numbers[name])
        ]

    def _is_outcome(self, name, values):
        """Whether a column is the click rate, is named as an outcome and 0 without a click, or
        follows the click within documents."""
        if self._is_click_rate(values):
            return True
        clicked = self.clicks > 0
        # The name alone is not enough: an outcome is 0 where nothing was clicked.
        if _OUTCOME.search(plain_name(name)) and not values[~clicked].any():
            return True
        # Without documents, rows of a query are compared.
        group = self.doc if self.doc.any() else self.query
        return bool(outcomes_of(clicked, group, values[:, None]))

    def _is_click_rate(self, values):
        """Whether values are clicks over impressions, which the clicks decide."""
        if self.impressions is None or not self.clicks.any():
            return False
        # Rows without an impression have no rate, and do not count.
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = self.clicks / self.impressions
        # To four digits, as reports write rates.
        known = np.isfinite(rate) & np.isfinite(values)
        return bool(values[known].any() and np.allclose(values[known], rate[known], atol=1e-4))

    def _is_of_page(self, name):
        """Whether a column has one value per result page, on pages of several rows."""
        values = value_bits(self.frame[name])
        # Pages of one row, and constants, would say so of every column.
        varies = len(self.page_starts) < len(values) and (values != values[0]).any()
        return bool(varies and (values == values[self.page_starts][self.page]).all())

    def _is_of_place(self, name):
        """Whether a column has one value per position, which changes as documents move."""
        if self.position is None:
            return False
        # Candidates that nobody saw have no position.
        shown = ~np.isnan(self.position)
        if shown.sum() < LEAST_ROWS.value:
            return False
        values = value_bits(self.frame[name])[shown]
        place = encode(self.position[shown])[0]
        return _is_one_by(values, place) and not _is_one_by(values, self.doc[shown])

    def counts(self) -> dict[str, int]:
        """Rows, queries, pages and documents, by attribute of the report."""
        return {
            "n_rows": len(self.frame),
            "n_queries": self._count_of(self.query, "qid"),
            "n_pages": self._count_of(self.page, "qid"),
            "n_documents": self._count_of(self.doc, "qid", "doc"),
        }

    def _count_of(self, code, *needs):
        """Number of codes; 0 where a role that they need is missing."""
        if {*needs} & {*self.missing}:
            return 0
        return int(code.max()) + 1

    def faults(self, errors: list[Any]) -> list[str]:
        """What must be mended before a fit: roles that are missing, errors, wrong units."""
        found = [self._missing_role(role) for role in self.missing]
        # Several checks may find the same.
        found += dict.fromkeys(map(str, errors))
        found += [message for unit, message in self.units if unit.is_error]
        if self.starts_at_0:
            found.append("Positions count from 0: add 1, as the code below does.")
        return found

    def _missing_role(self, role):
        """The sentence about a role that no column looks like."""
        maybe = [name for each in self.proposals if each.role == role for name in each.others]
        if role == "click" and not maybe:
            maybe = self._free(lambda values: np.isin(values, (0, 1)).all() and np.ptp(values) > 0)
        guesses = "".join(f"It may be {name!r}. " for name in maybe)
        return (
            f"No column looks like the role {role!r}, {NEEDED[role]}. {guesses}"
            f"Give it: rename={{COLUMN: {role!r}}}, or --rename COLUMN={role}."
        )

    def renamed(self) -> Any:
        """The log with the names of roles, positions from 1 and clicks as numbers."""
        frame = self.frame.rename(self.rename).with_columns(
            **{role: nw.col(role) == yes for role, yes in self.words.items()}
        )
        if self.starts_at_0:
            frame = frame.with_columns(nw.col("position") + 1)
        if self.clicks is not None:
            frame = frame.with_columns(nw.col("click").cast(nw.Float64))
        # In the library that the log came in.
        return frame.to_native()

    def remarks(self, log: Any) -> list[str]:
        """What is no fault, and should be known."""
        remarks = [
            f"{name!r} is decided by the click: an outcome, never a feature (renamed)."
            for name in self.outcomes
        ]
        remarks += self._on_left_out()
        remarks += self._faults_of_outcomes()
        remarks += [message for unit, message in self.units if not unit.is_error]
        remarks += self._added_up(log)
        remarks += self.torn
        return remarks + self._remarks_on_pages()

    def _on_left_out(self):
        """What is to be said of columns and rows that are left out."""
        ignored = [name for name, (_, role) in self.left_out.items() if role == "ignored"]
        if ignored:
            yield (
                f"Cells of {', '.join(map(repr, ignored))} hold records, or lists that are no "
                "block of numbers. No ranker reads them, and they are ignored. Make a column of "
                "each value that matters. If they are the documents of a page, make a row of each "
                "first."
            )
        if self.paid:
            yield (
                f"{self.n_paid:,} rows are paid slots, by {', '.join(map(repr, self.paid))}: left "
                "out here and by the code, because users treat them in another way. The others "
                "keep their positions. To keep the slots, give them a bias factor: "
                f"`IdentifiabilityRepair(bias={['position', *self.paid]})`."
            )

    def _faults_of_outcomes(self):
        """What is wrong with outcomes, which no fit reads."""
        found = []
        for name, role in self.roles.items():
            values = self.numbers[name]
            # A fit reads no outcome, and so would not tell.
            if role.startswith(OUTCOME) and values is not None:
                faults = faults_in({"outcome": values}, called={"outcome": repr(name)})
                found += [message for _, message in faults]
        return found

    def _remarks_on_pages(self):
        """What columns with one value per page, or per position, are for."""
        per_page = [name for name in self.page_columns if name not in self.times]
        remarks = []
        if self.place_columns:
            listed = ", ".join(map(repr, self.place_columns))
            remarks.append(
                f"Columns with one value per position ({listed}), such as the number of the page, "
                "are no features: they tell where a row stood, not what it is."
            )
        if per_page:
            listed = ", ".join(map(repr, per_page))
            remarks.append(f"Columns with one value per page ({listed}) are no features.")
        few = [name for name in per_page if self._may_be_factor(name)]
        if few:
            remarks.append(
                "Columns of the page with few values may be bias factors: "
                f"IdentifiabilityRepair(bias={['position', *few]})."
            )
        return remarks

    def _may_be_factor(self, name):
        """Whether a column of the page has few values, and several of them within a query."""
        values = value_bits(self.frame[name])
        if len(np.unique(values)) > FEW_PER_PAGE.value:
            return False
        first = np.unique(self.query, return_index=True)[1]
        return bool((values != values[first][self.query]).any())

    def _rate(self, log):
        """Clicks per impression of each row, and whether y counts clicks; None with a fault."""
        if self.clicks is None:
            return None, False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # The fault itself is told with the others.
            try:
                impressions = impressions_of_counts(log, self.clicks, {}, "'click'")
            except ValueError:
                return None, True
        return divided(self.clicks, impressions), impressions is not None

    def _added_up(self, log):
        """What is to be said of rows of several impressions."""
        if self.impressions is not None and (self.impressions > 1).any():
            unit = "numbers of clicks" if self._rate(log)[1] else "click rates"
            yield (
                f"The rows are already added up: they stand for {self.impressions.sum():,.0f} "
                f"impressions, and the clicks are read as {unit}."
            )

    @cached_property
    def units(self):
        """What the table of units says of the features."""
        found = [*units_in("sample", self.sample)]
        values = [self.numbers[name] for name in self.features]
        # Text tells documents apart, whatever the numbers are.
        if values and all(each is not None for each in values):
            found += units_in("features", values)
            found += units_in("documents", values, self.features)
        return found

    @cached_property
    def sample(self):
        """Some rows of the features, and of the ids that are numbers."""
        rows = rows_to_look_at(len(self.frame))
        numbers = {n: v[rows] for n, v in self.numbers.items() if v is not None}
        return FeatureSample(
            {name: values for name, values in numbers.items() if name in self.features},
            {self.roles[n]: v for n, v in numbers.items() if self.roles.get(n) in IDS},
            in_order=True,
        )

    def _torn(self):
        """What is to be said of pages with gaps."""
        if self.position is None or "session" not in self.roles.values():
            return
        shown = ~np.isnan(self.position)
        page, _ = encode(self.page[shown])
        position, _ = encode(self.position[shown])
        n_pages, n_torn, share, n_lost, _ = torn_lists(page, position)
        if n_torn:
            yield (
                f"{n_torn:,} of {n_pages:,} pages of several rows ({n_torn / n_pages:.1%}) have "
                f"gaps: at least {n_lost:,} rows ({share:.1%}) were lost, or were no results. "
                "Log the pages whole: a document that was seen and not logged has no clicks to "
                "learn from."
            )

    def by_position(self, log: Any) -> pd.DataFrame:
        rate, _ = self._rate(log)
        if self.position is None or rate is None or (self.position % 1 > 0).any():
            return pd.DataFrame()
        # Impressions and clicks of each position, of which the first 20 are shown.
        weight = np.ones(len(rate)) if self.impressions is None else self.impressions
        table = pd.DataFrame(
            {"position": self.position, "impressions": weight, "clicks": rate * weight}
        )
        # Candidates that nobody saw have no position.
        table = table[np.isfinite(table).all(axis=1)]
        table = table.groupby(table["position"].astype(int))[["impressions", "clicks"]].sum()
        table = table.round().astype(int)
        return table.assign(**{"click rate": table["clicks"] / table["impressions"]})[:20]

    def reasons(self) -> pd.DataFrame:
        """Why columns got their roles, and how sure that is."""
        taken = [each for each in self.proposals if self.roles.get(each.name) == each.role]
        rows = {each.name: (each.role, each.confidence, each.reason) for each in taken}
        return pd.DataFrame.from_dict(
            rows, orient="index", columns=["role", "confidence", "reason"]
        )

    # Columns ----------------------------------------------------------------------------
    def columns(self) -> pd.DataFrame:
        """What each column is; of features, how they vary within documents."""
        roles = dict.fromkeys(self.features, "feature") | dict.fromkeys(self.times, "time")
        roles |= dict.fromkeys(self.place_columns, "of the position")
        roles |= dict.fromkeys(self.page_columns, "of the page") | self.roles
        by_document = np.argsort(self.doc, kind="stable")
        rows = {}
        for name in self.frame.columns:
            column = self.frame[name]
            values = self.numbers[name]
            missing = column.is_null() if values is None else np.isnan(values)
            # Where a role is missing, it may be that of the documents.
            varies = np.nan
            change = np.nan
            if name in self.features and not self.missing:
                varies, change = self._change(name, by_document)
            kind = str(column.dtype).split("(")[0]
            rows[name] = (roles[name], kind, float(missing.mean()), varies, change)
        for name, (column, role) in self.left_out.items():
            kind = str(column.dtype).split("(")[0]
            rows[name] = (role, kind, float(column.is_null().mean()), np.nan, np.nan)
        return pd.DataFrame.from_dict(
            rows, orient="index", columns=["role", "type", "missing", "varies", "change"]
        )

    def _change(self, name, order):
        """Share of documents in which a column changes, and the median relative change there."""
        values = self.numbers[name]
        numeric = values is not None
        values = values[order] if numeric else value_bits(self.frame[name])[order]
        # Range of the values of each document.
        starts = offsets_from_sorted(self.doc[order])
        # fmin and fmax pass over missing values.
        least = np.fmin.reduceat(values, starts[:-1])
        most = np.fmax.reduceat(values, starts[:-1])
        changes = most > least
        if not changes.any():
            return 0.0, np.nan
        # Documents of one row cannot change.
        share = float(changes[np.diff(starts) > 1].mean())
        if not numeric:
            return share, np.nan
        size = np.maximum(np.abs(least), np.abs(most))[changes]
        return share, float(np.median((most - least)[changes] / size))


def _is_one_by(values, code):
    """Whether all rows with the same code have the same value."""
    # Any row of each code.
    row = np.zeros(code.max() + 1, dtype=np.int64)
    row[code] = np.arange(len(code))
    return bool((values == values[row[code]]).all())


def _as_floats(column):
    """A column as floats, None if it holds neither numbers nor two words for 1 and 0."""
    yes = _yes(column)
    if yes is not None:
        column = column == yes
    if column.dtype == nw.Object:  # such as whole numbers or decimals of Python
        try:
            return numbers("A column", column.to_numpy())
        except ValueError:
            return None
    if not (column.dtype.is_numeric() or column.dtype == nw.Boolean):
        return None
    return as_numbers(column.to_numpy())
