"""What changed between two logs: examination, clicks, features, queries, and what a log can tell."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import t as student

from .._base._sklearn import Interval, validate_params
from .._base._typing import Frame
from .._log._cells import factor_components
from .._log._reader import take_clicks
from .._log._roles import LogOnDisk, as_pandas, column_names, feature_columns, read_values
from .._log._segments import TINY, encode, mix
from ..exceptions import NotIdentifiableError
from ..metrics._query_means import holm_adjusted
from ..propensity import InterventionHarvesting
from ._click_table import LoggedPages, _sum_above

if TYPE_CHECKING:
    from .._log._dataset import ClickDataset

#: The smallest relevant change of what is watched; whether it is a share of the old value; and
#: the direction that matters, 0 for both.
_WATCHED = {
    "examination": (0.1, True, 0),
    "clicks per page": (0.05, True, 0),
    "results per page": (0.05, True, 0),
    "click rate": (0.1, True, 0),
    "location": (0.02, False, 0),
    "spread": (0.02, False, 0),
    "missing": (0.02, False, 0),
    "column": (1.0, False, 0),
    "new queries": (0.05, False, 1),
    "new documents": (0.05, False, 1),
    "moved documents": (0.5, True, -1),
    "connected": (0.05, False, -1),
}
_VERDICTS = ("alarm", "no relevant change", "cannot tell")
#: Positions of their own; deeper ones are in blocks, each twice as deep as the one before.
_SINGLE = 10
#: Effective queries below which a row cannot tell, and pages of a query below which the old log
#: does not say which of its documents are new.
_LEAST = 10
#: Rows of both logs together whose features are compared.
_ROWS = 2**18
#: Rounds in which documents of another relevance are found, and the largest share of them.
_ROUNDS, _MOST = 20, 0.5
#: Standard errors between two estimates of a curve above which they contradict each other.
_APART = 2.0
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class LogComparison:
    """What changed between two logs, made by :func:`compare_logs`.

    Parameters
    ----------
    table : pandas.DataFrame of shape (n_watched, 11)
        ``watched`` and ``at`` (position or column, "" if there is none); ``old`` and ``new``
        value; ``difference``, from ``lower`` to ``upper``; ``p_value`` of no difference, and
        ``p_adjusted`` for all rows (Holm) and looks (Bonferroni); ``relevant``, the smallest
        difference that is an alarm; ``verdict``: "alarm", "no relevant change" or "cannot tell".
    sizes : pandas.DataFrame of shape (2, 4)
        ``queries``, ``pages``, ``impressions`` and ``clicks`` of the ``old`` and the ``new`` log.
    """

    table: pd.DataFrame
    sizes: pd.DataFrame

    @property
    def alarm(self) -> bool:
        """True if the verdict of any row is "alarm"."""
        return bool((self.table["verdict"] == "alarm").any())

    def __repr__(self) -> str:
        return f"LogComparison(alarm={self.alarm}, {self._counts()})"

    def summary(self) -> str:
        """What changed, and what these logs cannot tell, in plain words."""
        pages, queries = (self.sizes[name].map("{:,.0f}".format) for name in ("pages", "queries"))
        head = (
            f"{'ALARM' if self.alarm else 'No alarm'}: {self._counts()}. Pages: {pages['old']} "
            f"old, {pages['new']} new; queries: {queries['old']} old, {queries['new']} new."
        )
        alarms = self.table[self.table["verdict"] == "alarm"]
        unknown = self.table.loc[self.table["verdict"] == "cannot tell"]
        lines = [head, *map(_in_words, alarms.itertuples())]
        for watched, rows in unknown.groupby("watched", sort=False):
            places = ", ".join(filter(None, rows["at"]))
            lines.append(f"Cannot tell: {watched}{places and f' ({places})'}.")
        return "\n".join(lines)

    def _counts(self):
        found = self.table["verdict"].value_counts().reindex(_VERDICTS, fill_value=0)
        return ", ".join(f"{verdict!r} in {n}" for verdict, n in found.items())


@validate_params(
    {
        "click": [str],
        "confidence_level": [Interval(Real, 0, 1, closed="neither")],
        "n_looks": [Interval(Integral, 1, None, closed="left")],
        "relevant": [Mapping, None],
    },
    prefer_skip_nested_validation=True,
)
def compare_logs(
    old: Frame | ClickDataset,
    new: Frame | ClickDataset,
    *,
    click: str = "click",
    confidence_level: float = 0.95,
    n_looks: int = 1,
    relevant: Mapping[str, float] | None = None,
) -> LogComparison:
    r"""What changed between two logs, and whether it should be looked at."""
    least = {name: value for name, (value, *_) in _WATCHED.items()} | dict(relevant or {})
    if {*least} > {*_WATCHED}:
        raise ValueError(
            f"relevant names {sorted({*least} - {*_WATCHED})}; expected some of {[*_WATCHED]}."
        )
    logs = _Logs(old, new, click)
    parts = logs.examination, logs.clicks, logs.features, logs.documents
    rows = pd.DataFrame([row for part in parts for row in part()])
    return LogComparison(_judged(rows, least, 1 - confidence_level, n_looks), logs.sizes())


def _judged(rows, least, level, n_looks):
    """The table of a comparison; see LogComparison."""
    known = (rows["n_queries"] >= _LEAST) & np.isfinite(rows["change"]) & (rows["error"] >= 0)
    freedom = np.maximum(rows["n_queries"], 2) - 1
    t = rows["change"].abs() / np.maximum(rows["error"], TINY)
    p_value = pd.Series(2 * student.sf(t, freedom)).where(known)
    p_adjusted = p_value.copy()
    p_adjusted[known] = np.minimum(n_looks * holm_adjusted(p_value[known].to_numpy()), 1)
    half = student.isf(level / n_looks / 2, freedom) * rows["error"]
    ends = [(rows["change"] + sign * half).where(known) for sign in (-1, 1)]
    lower, upper = (np.where(rows["watched"] == "examination", np.expm1(e), e) for e in ends)
    is_share, way = (
        rows["watched"].map({name: how[i] for name, how in _WATCHED.items()}) for i in (1, 2)
    )
    smallest = rows["watched"].map(least) * np.where(is_share, rows["old"], 1)
    difference = rows["new"] - rows["old"]
    size, most = (
        np.select([way > 0, way < 0], [high, -low], np.maximum(high, -low))
        for low, high in ((difference, difference), (lower, upper))
    )
    is_sure = (p_adjusted <= level) & (size >= smallest * (1 - _ROUNDING))
    return rows[["watched", "at", "old", "new"]].assign(
        difference=difference,
        lower=lower,
        upper=upper,
        p_value=p_value,
        p_adjusted=p_adjusted,
        relevant=smallest,
        verdict=np.select([is_sure, most < smallest], _VERDICTS[:2], _VERDICTS[2]),
    )


def _in_words(row):
    what = f"{row.watched}{row.at and f' ({row.at})'}"
    return (
        f"{what}: {row.old:.3g} before, {row.new:.3g} now; difference {row.difference:+.3g} "
        f"[{row.lower:+.3g}, {row.upper:+.3g}], p = {row.p_adjusted:.2g}."
    )


class _Logs:
    """The shown rows of two logs in codes that they share.

    Arrays (2, n) have a value of each log. A cell is a document of a query at a position.
    """

    def __init__(self, old: Any, new: Any, click: str) -> None:
        self._X, roles = zip(*(_read(X, click) for X in (old, new)), strict=True)
        frame = pd.concat(roles, keys=[0, 1], names=["log", None]).reset_index("log")
        if "session" in frame:
            frame["session"] = frame.groupby(["log", "session"]).ngroup()
        pages = LoggedPages(frame, "click", None, {}, "compare_logs")
        self._row, self._weight = pages.row, pages.weight
        self._log, self._row_query = (
            frame["log"].to_numpy()[pages.row],
            pages.rows.query[pages.row],
        )
        keys, cell = pages.shown_cells
        self._pair, slot = np.divmod(keys, len(pages.slot_query))
        self._query, self._pair_query = pages.slot_query[slot], pages.pair_query
        self._position = pages.slot_position[slot].astype(int)
        deep = np.ceil(np.log2(np.maximum(self._position / _SINGLE, 1)))
        self._place, _ = encode(np.minimum(self._position, _SINGLE) + deep.astype(int))
        count = np.ones(len(cell), dtype=bool)
        if pages.has_pages and (pages.weight == 1).all():
            # Users who stop at a click read less far below better documents.
            count = _sum_above(pages.rate, pages.rows.list_[pages.row], pages.slot) < 1
        self._shows, self._hits, *self._unclicked = (
            _sums(cell, _split(values * rows, self._log))
            for rows in (1.0, count)
            for values in (pages.weight, pages.weight * pages.rate)
        )
        self._pages = np.zeros((2, len(pages.query_pages)))
        np.maximum.at(self._pages, (slice(None), self._query), _sums(slot, self._shows)[:, slot])

    def sizes(self) -> pd.DataFrame:
        """Queries, pages, impressions and clicks of each log."""
        columns = [self._pages > 0, self._pages, self._shows, self._hits]
        names = ["queries", "pages", "impressions", "clicks"]
        return pd.DataFrame([each.sum(axis=1) for each in columns], names, ["old", "new"]).T

    # What is watched ----------------------------------------------------------------------------
    def examination(self) -> Iterator[dict[str, Any]]:
        """Rows of the ratio of the new to the old examination, by position."""
        change, error, n_queries = self._by_cells()
        (old, old_error), (new, new_error) = map(self._by_moves, *self._unclicked)
        other, other_error = new - old, np.hypot(old_error, new_error)
        # The variance of the difference from an efficient estimate (Hausman), or more.
        apart = np.sqrt(np.maximum(other_error**2 - error**2, other_error**2 / 4))
        contradict = np.abs(other - change) > _APART * apart
        says_less = np.abs(other) * error < np.abs(change) * other_error
        use = np.where(contradict, says_less, ~(error <= other_error)) & (other_error >= 0)
        columns = (change, error, n_queries), (other, other_error, np.inf + 0 * other)
        for k, row in enumerate(np.where(use, columns[1], columns[0]).T[1:], start=1):
            found = dict(zip(("change", "error", "n_queries"), row, strict=True))
            yield _row("examination", self._name(k), 1.0, np.exp(row[0])) | found

    def clicks(self) -> Iterator[dict[str, Any]]:
        """Rows of clicks and results per page, and of click rates by position."""
        pages = self._pages, np.arange(self._pages.shape[1])
        for watched, values in (("clicks", self._hits), ("results", self._shows)):
            by_query = _sums(self._query, values, len(pages[1]))
            yield self._ratio(f"{watched} per page", "", by_query, *pages)
        for k in range(self._place.max() + 1):
            at = self._place == k
            sums = self._hits[:, at], self._shows[:, at], self._query[at]
            yield self._ratio("click rate", self._name(k), *sums)

    def features(self) -> Iterator[dict[str, Any]]:
        """Rows of columns that one log lacks, and of features, ranked among their old values."""
        names = [{*map(str, column_names(X))} for X in self._X]
        for name in sorted(names[0] ^ names[1]):
            yield _row("column", name, *(float(name in each) for each in names))
        if not all(map(feature_columns, self._X)):
            return
        old = read_values(self._X[0], "anything")
        new = read_values(self._X[1], "anything", old.categories)
        chance = mix(np.arange(len(self._row), dtype=np.uint64)) / 2.0**64
        drawn = chance * len(chance) < _ROWS
        row, log, query, weight = (
            each[drawn] for each in (self._row, self._log, self._row_query, self._weight)
        )
        for name in [name for name in old.names if name in new.names]:
            parts = (each.values[:, each.names.index(name)] for each in (old, new))
            values = np.concatenate([*parts])[row]
            there = weight * ~np.isnan(values)
            known = np.sort(values[(there > 0) & (log == 0)])
            # Middle ranks, because values may be equal.
            ends = (np.searchsorted(known, values, side) for side in ("left", "right"))
            rank = sum(ends) / max(2 * len(known), 1)
            for watched, lead, size in (
                ("missing", weight - there, weight),
                ("location", there * rank, there),
                ("spread", there * np.abs(2 * rank - 1), there),
            ):
                yield self._ratio(watched, name, _split(lead, log), _split(size, log), query)

    def documents(self) -> Iterator[dict[str, Any]]:
        """Rows of what the old log lacks, and of how the logs compare positions."""
        # Of pages like its own, it lacks the share whose query it has once (Good and Turing).
        (old, new), query = self._pages, np.arange(self._pages.shape[1])
        unseen = np.stack([old * (old <= 1), new * (old == 0)])
        yield self._ratio("new queries", "", unseen, self._pages, query)
        shows, query = _sums(self._pair, self._shows), self._pair_query
        unseen = np.stack([shows[0] * (shows[0] <= 1), shows[1] * (shows[0] == 0)])
        often = (old >= _LEAST) & (new > 0)
        traffic = np.stack([new / np.maximum(old, 1), np.ones(len(new))]) * often
        sums = (each * traffic[:, query] for each in (unseen, shows))
        yield self._ratio("new documents", "", *sums, query)
        # Two impressions of a document at one position, among all two: by chance as often in a
        # long log as in a short one.
        same = _sums(self._pair, np.maximum(self._shows * (self._shows - 1), 0))
        moved = (shows - same / np.maximum(shows - 1, 1)) * (shows > 1)
        yield self._ratio("moved documents", "", moved, shows * (shows > 1), query)
        yield _row("connected", "", *map(self._connected, self._shows))

    # Parts --------------------------------------------------------------------------------------
    def _name(self, place):
        """Name of a position, or of a block of positions."""
        found = self._position[self._place == place]
        return "-".join(map(str, dict.fromkeys([found.min(), found.max()])))

    def _ratio(self, watched, at, lead, size, query):
        """Row of a ratio of sums (2, n) over things that have a query; queries are the clusters."""
        lead, size = (_sums(query, each, self._pages.shape[1]) for each in (lead, size))
        total = size.sum(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):  # nothing to watch: NaN
            value = lead.sum(axis=1, keepdims=True) / total
            effect = np.subtract(*((lead - value * size) / total)[::-1])
        effect[np.abs(effect) < _ROUNDING / len(effect) * np.abs(value).max()] = 0
        error, n_queries = _error(effect)
        if not effect.any():  # a constant
            n_queries = (size > 0).sum(axis=1).min()
        found = {"error": float(error), "n_queries": float(n_queries)}
        return _row(watched, at, *value.ravel()) | found

    def _by_cells(self):
        """Log ratio of the click rates of the same cells, relative to the first position; its
        standard error; and the effective number of queries.

        Clicks are pooled as by Mantel and Haenszel. Documents whose clicks changed otherwise than
        those of others at their positions count less: the log ratio of an unknown share of the
        documents has a normal deviation of the variance 1.
        """
        common = (self._unclicked[0] > 0).all(axis=0)
        shows, hits = (each[:, common] for each in self._unclicked)
        place, query, clicks = self._place[common], self._query[common], hits.sum(axis=0)
        doc, n_places, keep, share = encode(self._pair[common])[0], self._place.max() + 1, 1.0, 0.1
        for _ in range(_ROUNDS):
            lead = keep * shows[::-1] * hits / shows.sum(axis=0)
            total = np.maximum(_sums(place, lead, n_places), TINY)
            due = shows * total[:, place]
            due = clicks * due / due.sum(axis=0)
            known = np.bincount(doc, due[0] * due[1] / np.maximum(clicks, TINY))
            excess = np.bincount(doc, hits[1] - due[1]) ** 2 / (1 + known)
            other = expit((excess - np.log1p(known)) / 2 + np.log(share / (1 - share)))
            share = np.clip(other @ (known > 0) / max((known > 0).sum(), 1), _ROUNDING, _MOST)
            keep = 1 - other[doc]
        effect = np.zeros((n_places, self._pages.shape[1]))
        np.add.at(effect, (place, query), np.subtract(*(lead / total[:, place])[::-1]))
        change = np.where((total > TINY).all(axis=0), np.log(total[1] / total[0]), np.nan)
        return change - change[0], *_error(effect - effect[0])

    def _by_moves(self, shows, hits):
        """Log examination relative to the first position, and its standard error, by documents
        that one log shows at several positions; NaN if there are none."""
        columns = {"qid": self._query, "doc": self._pair, "position": self._place + 1}
        cells = pd.DataFrame({**columns, "session": np.arange(len(shows)), "impressions": shows})
        at, places = shows > 0, range(1, self._place.max() + 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it warns of has an error to match, or is NaN
            try:
                found = InterventionHarvesting(n_bootstrap=0).fit(cells[at], hits[at] / shows[at])
            except NotIdentifiableError:
                return np.full((2, len(places)), np.nan)
        table = found.examination_.reindex(places)
        change = np.log(table["examination"].to_numpy())
        return np.stack([change - change[0], table["standard_error"]])

    def _connected(self, shows):
        """Share of the impressions in the largest component of the identifiability graph."""
        at = shows > 0
        label = factor_components(self._pair[at], self._position[at], self._position.max() + 1)[1]
        return np.bincount(label[self._position], shows).max() / shows.sum()


def _read(X, click):
    """A log without its clicks, and its roles as a frame."""
    X, y, _ = take_clicks(X, None if isinstance(X, LogOnDisk) else click, "compare_logs")
    names = column_names(X)
    roles = as_pandas(X, ["qid", "doc", "position", *{"session", "impressions"} & {*names}])
    return X, roles.assign(click=y, **({} if "impressions" in roles else {"impressions": 1.0}))


def _sums(code, values, n=0):
    """Sums by code of values (2, n_items), shape (2, n_codes)."""
    return np.stack([np.bincount(code, each, n) for each in values])


def _split(values, log):
    """Values of rows, (2, n_rows), each in the line of its log."""
    return np.stack([values * (log == 0), values * (log == 1)])


def _row(watched, at, old, new):
    """A row of a fact, which has no error."""
    row = {"watched": watched, "at": at, "old": old, "new": new, "change": new - old}
    return row | {"error": 0.0, "n_queries": np.inf}


def _error(effect):
    """Standard errors of sums over queries of effects (..., n_queries), and the effective number
    of these queries."""
    squares = (effect**2).sum(axis=-1)
    n_queries = np.abs(effect).sum(axis=-1) ** 2 / np.maximum(squares, TINY)
    return np.sqrt(squares * n_queries / np.maximum(n_queries - 1, TINY)), n_queries
