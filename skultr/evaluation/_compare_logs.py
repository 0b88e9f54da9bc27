"""What changed between two logs: examination, clicks, features, queries, and what a log can tell."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import t as student

from .._base._sklearn import Interval, validate_params
from .._base._typing import Floats, Frame
from .._log._cells import factor_components
from .._log._faults import count_of
from .._log._reader import pairs_of_codes, read, take_clicks
from .._log._roles import LogOnDisk, column_names, feature_columns, read_values
from .._log._segments import TINY, encode, mix, pair_codes
from ..exceptions import NotIdentifiableError
from ..metrics._query_means import holm_adjusted
from ..propensity import InterventionHarvesting

if TYPE_CHECKING:
    from .._log._dataset import ClickDataset

_READS = ["qid", "doc", "position", "impressions", "doc_scope"]
_NEED = {
    "qid": "to find the queries of both logs",
    "doc": "to find the documents of both logs",
    "position": "to compare clicks at the same position",
}
#: The smallest relevant change of what is watched; whether it is a share of the old value; and
#: the direction that matters, 0 for both.
_WATCHED = {
    "examination": (0.1, True, 0),
    "clicks per page": (0.05, True, 0),
    "click rate": (0.1, True, 0),
    "results per page": (0.05, True, 0),
    "location": (0.02, False, 0),
    "spread": (0.02, False, 0),
    "missing": (0.02, False, 0),
    "new queries": (0.05, False, 1),
    "new documents": (0.05, False, 1),
    "moved documents": (0.5, True, -1),
    "connected": (0.05, False, -1),
    "column": (1.0, False, 0),
}
#: Positions of their own; deeper ones are in blocks, each twice as deep as the one before.
_SINGLE = 10
#: Effective queries below which a row cannot tell, and pages of a query below which the old log
#: does not say which documents are new.
_LEAST = 10
#: Rows of each log whose features are compared.
_ROWS = 2**17
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


_VERDICTS = ["alarm", "no relevant change", "cannot tell"]


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
    r"""What changed between two logs, and whether it should be looked at.
    """
    least = {name: value for name, (value, *_) in _WATCHED.items()} | dict(relevant or {})
    wrong = [name for name, value in least.items() if name not in _WATCHED or not value > 0]
    if wrong:
        raise ValueError(
            f"relevant has {wrong[0]!r}: {least[wrong[0]]!r}; expected numbers above 0 for some of "
            f"{[*_WATCHED]}."
        )
    logs = _Logs(old, new, click)
    parts = logs.examination, logs.clicks_by_position, logs.features, logs.traffic, logs.order
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
    """The shown rows of two logs, one after the other, in codes that they share.

    Arrays of the shape (2, n) have a value of each log. A cell is a document of a query at a
    position; ``shows`` and ``hits`` are its impressions and clicks.
    """

    def __init__(self, old: Any, new: Any, click: str) -> None:
        self._X, rows = zip(_read(old, "old", click), _read(new, "new", click), strict=True)
        self._shown = [np.flatnonzero(each.shown) for each in rows]
        self._log = np.repeat([0, 1], [*map(len, self._shown)])
        self._query, ids = encode(self._both(each["qid"] for each in rows))
        self._n_queries = len(ids)
        doc, ids = encode(self._both(each["doc"] for each in rows))
        pair, self._pair_query, _ = pairs_of_codes(self._query, doc, len(ids))
        self._weight = self._both(each.weight for each in rows)
        clicks = self._weight * self._both(each.rate for each in rows)
        position, self._positions = encode(self._both(each.position for each in rows))
        deep = np.ceil(np.log2(np.maximum(self._positions / _SINGLE, 1)))
        self._place_of, _ = encode(np.minimum(self._positions, _SINGLE) + deep.astype(int))
        # Cells.
        n_positions = len(self._positions)
        cell, keys = encode(pair_codes(pair, position, n_positions))
        self._pair, self._position = np.divmod(keys, n_positions)
        self._cell_query, self._place = self._pair_query[self._pair], self._place_of[self._position]
        count = np.ones(len(cell))
        if (self._weight == 1).all() and all(each["session"] is not None for each in rows):
            list_ = 2 * self._both(each.list_ for each in rows) + self._log
            count = ~_clicked_above(list_, position, clicks)
        self._shows, self._hits, *self._above = (
            _sums(self._log, cell, values * factor, len(keys))
            for factor in (1.0, count)
            for values in (self._weight, clicks)
        )
        slot, keys = encode(pair_codes(self._cell_query, self._position, n_positions))
        self._pages = np.zeros((2, self._n_queries))
        for pages, shows in zip(self._pages, self._shows, strict=True):
            np.maximum.at(pages, keys // n_positions, np.bincount(slot, shows))

    def sizes(self) -> pd.DataFrame:
        """Queries, pages, impressions and clicks of each log."""
        sums = {"pages": self._pages, "impressions": self._shows, "clicks": self._hits}
        columns = {"queries": (self._pages > 0).sum(axis=1)}
        columns |= {name: values.sum(axis=1) for name, values in sums.items()}
        return pd.DataFrame(columns, index=["old", "new"])

    # What is watched ----------------------------------------------------------------------------
    def examination(self) -> Iterator[dict[str, Any]]:
        """Rows of the ratio of the new to the old examination, by position."""
        change, error, n_queries = self._of_same_cells()
        moves = [self._of_moves(*each) for each in zip(*self._above, strict=True)]
        other, other_error = moves[1][0] - moves[0][0], np.hypot(moves[0][1], moves[1][1])
        # The difference of an efficient estimate and another one (Hausman), but no less than half.
        apart = np.sqrt(np.maximum(other_error**2 - error**2, other_error**2 / 4))
        contradict = np.abs(other - change) > _APART * apart
        says_less = np.abs(other) * error < np.abs(change) * other_error
        use = np.where(contradict, says_less, ~(error <= other_error)) & np.isfinite(other_error)
        change, error = np.where(use, (other, other_error), (change, error))
        n_queries = np.where(use, np.inf, n_queries)
        for k, name in self._places():
            if k:
                more = {"change": change[k], "error": error[k], "n_queries": n_queries[k]}
                yield _row("examination", name, 1.0, np.exp(change[k])) | more

    def clicks_by_position(self) -> Iterator[dict[str, Any]]:
        """Rows of clicks and results per page, and of click rates by position."""
        hits, shows = self._by_query(self._hits), self._by_query(self._shows)
        yield self._ratio("clicks per page", "", hits, self._pages)
        yield self._ratio("results per page", "", shows, self._pages)
        for k, name in self._places():
            here = self._place == k
            sums = (self._by_query(each * here) for each in (self._hits, self._shows))
            yield self._ratio("click rate", name, *sums)

    def features(self) -> Iterator[dict[str, Any]]:
        """Rows of each feature of the rows, ranked among the old values, and of columns that one
        log lacks."""
        names = [{*map(str, column_names(X))} for X in self._X]
        for name in sorted(names[0] ^ names[1]):
            yield _row("column", name, *(float(name in each) for each in names))
        if not all(map(feature_columns, self._X)):
            return
        found = [read_values(self._X[0], "anything")]
        found.append(read_values(self._X[1], "anything", found[0].categories))
        chance = mix(np.arange(len(self._log), dtype=np.uint64)) / 2.0**64
        drawn = chance * np.bincount(self._log)[self._log] < _ROWS
        rows = [at[keep] for at, keep in zip(self._shown, np.split(drawn, [len(self._shown[0])]))]
        log, query, weight = self._log[drawn], self._query[drawn], self._weight[drawn]
        sums = partial(_sums, log, query, n=self._n_queries)
        for name in [name for name in found[0].names if name in found[1].names]:
            values = [f.values[at, f.names.index(name)] for f, at in zip(found, rows, strict=True)]
            known = np.sort(values[0][~np.isnan(values[0])])
            values = np.concatenate(values)
            there = weight * ~np.isnan(values)
            yield self._ratio("missing", name, sums(weight - there), sums(weight))
            # Middle ranks, because values may be equal.
            ends = (np.searchsorted(known, values, side) for side in ("left", "right"))
            rank = sum(ends) / max(2 * len(known), 1)
            yield self._ratio("location", name, sums(there * rank), sums(there))
            yield self._ratio("spread", name, sums(there * np.abs(2 * rank - 1)), sums(there))

    def traffic(self) -> Iterator[dict[str, Any]]:
        """Rows of what the old log lacks, beside what a log of its size lacks by chance."""
        # Of pages like those of the old log, it lacks the share whose query it has once (Good).
        old, new = self._pages
        unseen = np.stack([old * (old <= 1), new * (old == 0)])
        yield self._ratio("new queries", "", unseen, self._pages)
        shows = _sums_of_rows(self._pair, self._shows)
        unseen = np.stack([shows[0] * (shows[0] <= 1), shows[1] * (shows[0] == 0)])
        often = (old >= _LEAST) & (new > 0)
        traffic = np.stack([new / np.maximum(old, 1), np.ones(len(new))]) * often
        sums = (traffic * self._by_query(each, self._pair_query) for each in (unseen, shows))
        yield self._ratio("new documents", "", *sums)

    def order(self) -> Iterator[dict[str, Any]]:
        """Rows of how the log compares positions."""
        shows = _sums_of_rows(self._pair, self._shows)
        pairs = np.maximum(self._shows * (self._shows - 1), 0)
        moved = shows - _sums_of_rows(self._pair, pairs) / np.maximum(shows - 1, 1)
        several = shows > 1
        sums = (self._by_query(each * several, self._pair_query) for each in (moved, shows))
        yield self._ratio("moved documents", "", *sums)
        yield _row("connected", "", *map(self._connected, self._shows))

    # Parts --------------------------------------------------------------------------------------
    def _both(self, columns):
        """The shown rows of a column of each log."""
        parts = (column[at] for column, at in zip(columns, self._shown, strict=True))
        return np.concatenate([*parts])

    def _places(self):
        """Number and name of each position, or block of positions."""
        for k in range(int(self._place_of.max()) + 1):
            found = self._positions[self._place_of == k]
            yield k, "-".join(map(str, dict.fromkeys([found[0], found[-1]])))

    def _by_query(self, values, query=None):
        """Sums (2, n_queries) of values of cells, or of other things with a query."""
        query = self._cell_query if query is None else query
        return _sums_of_rows(query, values, self._n_queries)

    def _ratio(self, watched, at, lead, size):
        """Row of a ratio of sums over queries, the clusters."""
        total = np.maximum(size.sum(axis=1, keepdims=True), TINY)
        value = np.where(total > TINY, lead.sum(axis=1, keepdims=True) / total, np.nan)
        effect = np.subtract(*((lead - value * size) / total)[::-1])
        effect[np.abs(effect) < _ROUNDING * np.abs(value).max() * size.max() / total.min()] = 0
        error, n_queries = _errors(effect)
        if not effect.any():  # a constant
            error, n_queries = 0.0, (size > 0).sum(axis=1).min()
        return _row(watched, at, *value.ravel()) | {"error": error, "n_queries": n_queries}

    def _of_same_cells(self):
        """Log ratio of the click rates of the same cells, relative to the first position; its
        standard error; and the effective number of queries.

        Clicks are pooled as by Mantel and Haenszel. Documents whose clicks changed otherwise than
        those of others at their positions count less, as far as a mixture says: the log ratio of
        some documents has a normal deviation.
        """
        shows, hits = self._above
        common = (shows > 0).all(axis=0)
        shows, hits, place = shows[:, common], hits[:, common], self._place[common]
        doc, _ = encode(self._pair[common])
        keep, share, n_places = 1.0, 0.1, int(self._place_of.max()) + 1
        for _ in range(_ROUNDS):
            lead = keep * shows[::-1] * hits / shows.sum(axis=0)
            total = np.maximum(_sums_of_rows(place, lead, n_places), TINY)
            due, before = (shows[i] * total[i][place] for i in (1, 0))
            due = due / (due + before)
            clicks = hits.sum(axis=0)
            known = np.bincount(doc, clicks * due * (1 - due))
            excess = np.bincount(doc, hits[1] - clicks * due) ** 2 / (1 + known)
            other = expit((excess - np.log1p(known)) / 2 + np.log(share / (1 - share)))
            share = np.clip(other @ (known > 0) / max((known > 0).sum(), 1), _ROUNDING, _MOST)
            keep = 1 - other[doc]
        parts = lead / total[:, place]
        key = place * self._n_queries + self._cell_query[common]
        effect = np.bincount(key, parts[1] - parts[0], n_places * self._n_queries)
        effect = effect.reshape(n_places, -1)
        change = np.where((total > TINY).all(axis=0), np.log(total[1] / total[0]), np.nan)
        error, n_queries = _errors(effect - effect[0])
        return change - change[0], error, n_queries

    def _of_moves(self, shows, hits):
        """Log examination relative to the first position, and its standard error, by documents
        that one log shows at several positions; NaN if there are none."""
        at, n_places = shows > 0, int(self._place_of.max()) + 1
        columns = {"qid": self._cell_query, "doc": self._pair, "position": self._place + 1}
        frame = pd.DataFrame(columns | {"impressions": shows, "session": np.arange(len(at))})[at]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is not known is NaN
            try:
                found = InterventionHarvesting(n_bootstrap=0).fit(frame, (hits / shows)[at])
            except NotIdentifiableError:
                return np.full((2, n_places), np.nan)
        table = found.examination_.reindex(range(1, n_places + 1))
        change = np.log(table["examination"])
        return np.stack([change - change[1], table["standard_error"]])

    def _connected(self, shows):
        """Share of the impressions in the largest component of the identifiability graph."""
        at, n_positions = shows > 0, len(self._positions)
        _, label = factor_components(self._pair[at], self._position[at], n_positions)
        return np.bincount(label[self._position], shows).max() / shows.sum()


def _read(X, name, click):
    """A log without its clicks, and its checked rows."""
    try:
        X, y, _ = take_clicks(X, None if isinstance(X, LogOnDisk) else click, "compare_logs")
        # Without sessions, rows are counts of several pages.
        reads = [*_READS, *{"session"}.intersection(column_names(X))]
        return X, read(X, y, reads=reads, need=_NEED, caller="compare_logs")
    except (TypeError, ValueError) as error:
        error.add_note(f"The log is the {name} one of compare_logs.")
        raise


def _clicked_above(list_, position, clicks):
    """True at rows below a click on their page."""
    order = np.lexsort((position, list_))
    list_, above = list_[order], np.cumsum(clicks[order]) - clicks[order]
    is_first = np.diff(list_, prepend=-1) != 0
    found = np.empty(len(order), dtype=bool)
    found[order] = above > np.maximum.accumulate(np.where(is_first, above, 0))
    return found


def _sums(log, code, values, n):
    """Sums (2, n) of values of rows by log and code."""
    return np.bincount(log * n + code, values, 2 * n).reshape(2, n)


def _sums_of_rows(code, values, n=0):
    """Sums (2, n) by code of values (2, n_items)."""
    return np.stack([np.bincount(code, each, n) for each in values])


def _row(watched, at, old, new):
    """A row of a fact, which has no error."""
    row = {"watched": watched, "at": at, "old": old, "new": new, "change": new - old}
    return row | {"error": 0.0, "n_queries": np.inf}


def _errors(effect):
    """Standard errors of sums over queries of effects (..., n_queries), and the effective number
    of these queries."""
    squares = np.maximum((effect**2).sum(axis=-1), TINY)
    n_queries = np.abs(effect).sum(axis=-1) ** 2 / squares
    return np.sqrt(squares * n_queries / np.maximum(n_queries - 1, TINY)), n_queries
