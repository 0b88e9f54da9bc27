"""What changed between two logs: examination, clicks, features, queries, and what a log can tell."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.stats import t as student

from .._base._sklearn import Interval, validate_params
from .._base._typing import Floats, Frame
from .._log._cells import factor_components
from .._log._reader import pairs_of_codes, read, take_clicks
from .._log._roles import LogOnDisk, column_names, feature_columns, read_scope, read_values
from .._log._segments import TINY, encode, mix, pair_codes
from ..exceptions import ClickDataWarning, NotIdentifiableError
from ..metrics._query_means import holm_adjusted
from ..propensity import InterventionHarvesting

if TYPE_CHECKING:
    from .._log._dataset import ClickDataset

_READS = ("qid", "doc", "position", "impressions", "doc_scope")
_NEED = {
    "qid": "to find the queries of both logs",
    "doc": "to find the documents of both logs",
    "position": "to compare clicks at the same position",
}
#: The smallest relevant change of what is watched; whether it is a share of the old value; and
#: the direction that matters, 0 for both.
_WATCHED = {
    "examination": (0.1, True, 0),
    "click rate": (0.1, True, 0),
    "clicks per page": (0.05, True, 0),
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
#: Positions of their own; deeper ones are in blocks, each twice as long as the one before.
_SINGLE = 10
#: Effective queries below which a row cannot tell, and pages of a query below which the old log
#: does not say which documents are new.
_LEAST = 10
#: Quantiles of a feature in the old log, by which values are ranked; rows of each log.
_QUANTILES, _ROWS = 1000, 2**18
#: Rounds in which documents of another relevance are found, and the variance of their log ratio.
_ROUNDS, _DRIFT = 20, 1.0
#: Standard errors between two estimates of a curve above which the more robust one counts.
_APART = 2.0
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class LogComparison:
    """What changed between two logs, made by :func:`compare_logs`."""

    table: pd.DataFrame
    sizes: pd.DataFrame
    confidence_level: float
    n_looks: int

    @property
    def alarm(self) -> bool:
        """Whether any row is an alarm."""
        return bool((self.table["verdict"] == "alarm").any())

    def summary(self) -> str:
        return self.table.to_string()


def compare_logs(
    old: Frame | ClickDataset,
    new: Frame | ClickDataset,
    *,
    click: str = "click",
    confidence_level: float = 0.95,
    n_looks: int = 1,
    relevant: Mapping[str, float] | None = None,
) -> LogComparison:
    unknown = sorted({*(relevant or {})} - {*_WATCHED})
    if unknown:
        raise ValueError(
            f"relevant names {unknown[0]!r}; expected some of what is watched: {[*_WATCHED]}."
        )
    both = _Both(old, new, click)
    rows = [
        *both.curve(),
        *both.click_rates(),
        *both.features(),
        *both.traffic(),
        *both.moves(),
        *both.columns(),
    ]
    table = _judged(pd.DataFrame(rows), 1 - confidence_level, n_looks, relevant or {})
    return LogComparison(table, both.sizes(), confidence_level, n_looks)


class _Both:
    """The shown rows of both logs, one after the other, in common codes.

    Sums by log and query have the shape (2, n_queries).
    """

    def __init__(self, *logs_and_click):
        *logs, click = logs_and_click
        (self.X, rows), names = zip(*map(_read, logs, ["old", "new"], [click] * 2)), ("query_ids",)
        shown = [np.flatnonzero(each.shown) for each in rows]
        self.shown = shown
        query, ids = encode(np.concatenate([each.query_ids for each in rows]))
        parts = np.split(query, [len(rows[0].query_ids)])
        together = lambda values: np.concatenate([v[s] for v, s in zip(values, shown)])
        self.query = together([part[each.query] for part, each in zip(parts, rows)])
        self.n_queries = len(ids)
        self.log = np.repeat([0, 1], [len(s) for s in shown])
        doc, ids = encode(together([each["doc"] for each in rows]))
        self.pair, self.pair_query, _ = pairs_of_codes(self.query, doc, len(ids))
        self.position, self.positions = encode(together([each.position for each in rows]))
        self.weight = together([each.weight for each in rows])
        self.clicks = self.weight * together([each.rate for each in rows])
        # Cells: a document of a query at a position; their impressions and clicks in both logs.
        cell, keys = encode(pair_codes(self.pair, self.position, len(self.positions)))
        self.cell_pair, self.cell_position = np.divmod(keys, len(self.positions))
        self.shows, self.hits = (
            np.bincount(self.log * len(keys) + cell, values, 2 * len(keys)).reshape(2, -1)
            for values in (self.weight, self.clicks)
        )
        self.cell_query = self.pair_query[self.cell_pair]
        block = np.ceil(np.log2(np.maximum(self.positions / _SINGLE, 1))).astype(int)
        self.place, places = encode(np.where(block > 0, _SINGLE + block, self.positions))
        first, last = (
            [f(self.positions[self.place == place]) for place in range(len(places))]
            for f in (np.min, np.max)
        )
        self.names = [f"{a}" if a == b else f"{a}-{b}" for a, b in zip(first, last)]
        slot, keys = encode(pair_codes(self.cell_query, self.cell_position, len(self.positions)))
        self.pages = np.zeros((2, self.n_queries))
        for log in range(2):
            at_slot = np.bincount(slot, self.shows[log])
            np.maximum.at(self.pages[log], keys // len(self.positions), at_slot)

    def sizes(self):
        columns = {
            "queries": (self.pages > 0).sum(axis=1),
            "pages": self.pages.sum(axis=1),
            "impressions": self.shows.sum(axis=1),
            "clicks": self.hits.sum(axis=1),
        }
        return pd.DataFrame(columns, index=["old", "new"])

    def by_query(self, values, query=None):
        """Sums of values (2, n) of cells by query."""
        query = self.cell_query if query is None else query
        return np.stack([np.bincount(query, each, self.n_queries) for each in values])

    # Curve -----------
    def curve(self):
        place = self.place[self.cell_position]
        change, error, n_queries = self._same_cells(place)
        moves = [self._moves(place, *each) for each in zip(self.shows, self.hits)]
        change_b = moves[1][0] - moves[0][0]
        error_b = np.hypot(moves[0][1], moves[1][1])
        gap = np.sqrt(np.maximum(error_b**2 - error**2, error_b**2 / 4))
        use = ~(error <= error_b) | (np.abs(change - change_b) > _APART * gap)
        use &= np.isfinite(error_b)
        self.debug = pd.DataFrame(dict(a=change, ea=error, b=change_b, eb=error_b, use=use))
        change, error = np.where(use, change_b, change), np.where(use, error_b, error)
        n_queries = np.where(use, np.maximum(n_queries, np.inf), n_queries)
        for k in range(1, len(self.names)):
            yield {
                "watched": "examination", "of": self.names[k], "old": 1.0,
                "new": np.exp(change[k]), "change": change[k], "error": error[k],
                "n_queries": n_queries[k], "is_log": True,
            }

    def _same_cells(self, place):
        common = (self.shows > 0).all(axis=0)
        n, x, place, query = self.shows[:, common], self.hits[:, common], place[common], self.cell_query[common]
        doc, _ = encode(self.cell_pair[common])
        size, keep, drift = len(self.names), np.ones(len(place)), 0.1
        for _ in range(_ROUNDS):
            lead = keep * n[::-1] * x / n.sum(axis=0)  # clicks as if both logs had shown alike
            total = np.stack([np.bincount(place, each, size) for each in lead])
            total = np.maximum(total, TINY)
            ratio = (total[1] / total[0])[place]
            due = n[1] * ratio / (n[1] * ratio + n[0])
            clicks = x.sum(axis=0)
            spread = _DRIFT * np.bincount(doc, clicks * due * (1 - due))
            score = np.bincount(doc, x[1] - clicks * due)
            odds = drift / (1 - drift) * np.exp(np.minimum(_DRIFT * score**2 / (1 + spread) / 2, 500)) / np.sqrt(1 + spread)
            drifted = odds / (1 + odds)
            drift = np.clip((drifted * (spread > 0)).sum() / max((spread > 0).sum(), 1), 1e-6, 0.5)
            keep = 1 - drifted[doc]
        self.drift = drift
        parts = []
        for k in range(size):
            at = place == k
            parts.append(sum(
                s * np.bincount(query[at], each[at], self.n_queries) / t[k]
                for s, each, t in zip((-1, 1), lead, total)
            ))
        known = (total > TINY).all(axis=0)
        change = np.where(known & known[0], np.log(total[1] / total[0]), np.nan)
        effects = [part - parts[0] for part in parts]
        n_queries = np.array([_n_effective(e) for e in effects])
        error = np.array([np.sqrt((e**2).sum()) for e in effects])
        error = np.where(np.isfinite(change - change[0]), error, np.nan)
        return change - change[0], error * np.sqrt(n_queries / np.maximum(n_queries - 1, TINY)), n_queries

    def _moves(self, place, shows, hits):
        at = shows > 0
        frame = pd.DataFrame({
            "qid": self.cell_query[at], "doc": self.cell_pair[at], "position": place[at] + 1,
            "impressions": shows[at], "session": np.arange(at.sum())})
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = InterventionHarvesting(n_bootstrap=0).fit(frame, hits[at] / shows[at]).examination_
        except NotIdentifiableError:
            return np.full((2, len(self.names)), np.nan)
        found = found.reindex(range(1, len(self.names) + 1))
        return np.log(found["examination"].to_numpy()), found["standard_error"].to_numpy()

    # Ratios ----------
    def ratio(self, watched, of, lead, size):
        total = size.sum(axis=1, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            value = lead.sum(axis=1, keepdims=True) / total
            effect = (lead - value * size) / total
        effect = effect[1] - effect[0]
        old, new = value.ravel()
        varies = np.abs(effect).max() > _ROUNDING * max(np.abs(value).max(), TINY) / self.n_queries
        n = _n_effective(effect) if varies else (size > 0).sum(axis=1).min()
        error = np.sqrt((effect**2).sum() * n / max(n - 1, TINY)) * varies
        return {"watched": watched, "of": of, "old": old, "new": new, "change": new - old,
                "error": error, "n_queries": n, "is_log": False}

    def click_rates(self):
        clicks, shows = self.by_query(self.hits), self.by_query(self.shows)
        yield self.ratio("clicks per page", "", clicks, self.pages)
        yield self.ratio("results per page", "", shows, self.pages)
        place = self.place[self.cell_position]
        for k, name in enumerate(self.names):
            at = place == k
            yield self.ratio("click rate", name, *(
                self.by_query(each[:, at], self.cell_query[at]) for each in (self.hits, self.shows)))

    def traffic(self):
        old, new = self.pages
        yield self.ratio("new queries", "", np.stack([old * (old <= 1), new * (old == 0)]), self.pages)
        n = np.stack([np.bincount(self.cell_pair, each) for each in self.shows])
        often = (old >= _LEAST) & (new > 0)
        factor = np.stack([np.where(often, new / np.maximum(old, 1), 0), often])
        unseen = np.stack([n[0] * (n[0] <= 1), n[1] * (n[0] == 0)])
        yield self.ratio("new documents", "", *(factor * self.by_query(each, self.pair_query) for each in (unseen, n)))

    def moves(self):
        n = np.stack([np.bincount(self.cell_pair, each) for each in self.shows])
        same = np.stack([np.bincount(self.cell_pair, np.maximum(each * (each - 1), 0)) for each in self.shows])
        moved = n - same / np.maximum(n - 1, 1)
        often = n >= 2
        yield self.ratio("moved documents", "", *(self.by_query(each * often, self.pair_query) for each in (moved, n)))
        shares = []
        for shows in self.shows:
            at = shows > 0
            label = factor_components(self.cell_pair[at], self.cell_position[at], len(self.positions))[1]
            shares.append(np.bincount(label[self.cell_position], shows).max() / shows.sum())
        yield _fact("connected", "", *shares)

    def features(self):
        if not all(map(feature_columns, self.X)):
            return
        keep = []
        old = read_values(self.X[0], "anything")
        found = old, read_values(self.X[1], "anything", old.categories)
        for rows in self.shown:
            chance = mix(np.arange(len(rows), dtype=np.uint64)) / 2.0**64
            keep.append(np.flatnonzero(chance * len(rows) < _ROWS))
        n_old = len(self.shown[0])
        at = np.concatenate([keep[0], n_old + keep[1]])
        key = self.log[at] * self.n_queries + self.query[at]
        weight = self.weight[at]
        sums = lambda v: np.bincount(key, v, 2 * self.n_queries).reshape(2, -1)
        total = sums(weight)
        for name in found[0].names:
            if name not in found[1].names:
                continue
            values = [each.values[rows[k], each.names.index(name)] for each, rows, k in zip(found, self.shown, keep)]
            known = values[0][~np.isnan(values[0])]
            values = np.concatenate(values)
            there = ~np.isnan(values)
            yield self.ratio("missing", name, sums(weight * ~there), total)
            if not len(known):
                continue
            grid = np.quantile(known, (np.arange(_QUANTILES) + 0.5) / _QUANTILES)
            u = sum(np.searchsorted(grid, values, side) for side in ("left", "right")) / (2 * _QUANTILES)
            n = sums(weight * there)
            yield self.ratio("location", name, sums(weight * there * u), n)
            yield self.ratio("spread", name, sums(weight * there * np.abs(2 * u - 1)), n)

    def columns(self):
        names = [{*column_names(X)} for X in self.X]
        for name in sorted(map(str, names[0] ^ names[1])):
            yield _fact("column", name, float(name in names[0]), float(name in names[1]))


def _read(X, name, click):
    try:
        X, y, _ = take_clicks(X, None if isinstance(X, LogOnDisk) else click, "compare_logs")
        session = ("session",) if "session" in column_names(X) else ()
        return X, read(X, y, reads=(*_READS, *session), need=_NEED, caller="compare_logs")
    except (TypeError, ValueError) as error:
        error.add_note(f"It is the {name} log.")
        raise


def _fact(watched, of, old, new):
    return {"watched": watched, "of": of, "old": old, "new": new, "change": new - old,
            "error": 0.0, "n_queries": np.inf, "is_log": False}


def _n_effective(effect):
    return np.abs(effect).sum() ** 2 / max((effect**2).sum(), TINY)


def _judged(rows, alpha, n_looks, relevant):
    known = (rows["n_queries"] >= _LEAST) & rows["error"].notna() & rows["change"].notna()
    df = np.maximum(rows["n_queries"] - 1, 1)
    z = rows["change"].abs() / rows["error"].where(rows["error"] > 0, TINY)
    p = pd.Series(2 * student.sf(z, df), rows.index).where(known)
    adjusted = p.copy()
    adjusted[known] = np.minimum(holm_adjusted(p[known].to_numpy()) * n_looks, 1)
    width = student.isf(alpha / n_looks / 2, df) * rows["error"]
    ends = [(rows["change"] + s * width).where(known) for s in (-1, 1)]
    lower, upper = (end.where(~rows["is_log"], np.expm1(end)) for end in ends)
    least = rows["watched"].map({k: relevant.get(k, v[0]) for k, v in _WATCHED.items()})
    least = least.where(~rows["watched"].map({k: v[1] for k, v in _WATCHED.items()}), least * rows["old"])
    way = rows["watched"].map({k: v[2] for k, v in _WATCHED.items()})
    difference = rows["new"] - rows["old"]
    size = np.select([way > 0, way < 0], [difference, -difference], difference.abs())
    most = np.select([way > 0, way < 0], [upper, -lower], np.maximum(lower.abs(), upper.abs()))
    verdict = np.select(
        [(adjusted <= alpha) & (size >= least * (1 - _ROUNDING)), most < least],
        ["alarm", "no relevant change"], "cannot tell")
    return rows[["watched", "of", "old", "new"]].assign(
        difference=difference, lower=lower, upper=upper, p_value=p, p_adjusted=adjusted,
        relevant=least, verdict=verdict)
