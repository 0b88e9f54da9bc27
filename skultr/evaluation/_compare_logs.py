"""What changed between two logs: examination, clicks, features, traffic, identifiability."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import t as student
from sklearn.exceptions import ConvergenceWarning

from .._base._sklearn import Interval, validate_params
from .._base._typing import Floats, Frame
from .._log._cells import factor_components
from .._log._click_units import as_known_rates
from .._log._dataset import ClickDataset
from .._log._reader import in_memory, take_clicks
from .._log._roles import (
    as_numbers,
    as_pandas,
    column_names,
    feature_columns,
    read_column,
    read_values,
)
from .._log._segments import TINY, encode, mix, pair_codes
from ..exceptions import warn_user
from ..metrics._query_means import holm_adjusted
from ..propensity._harvesting import harvested
from ._logged_pages import LoggedPages, sums_above
from ._thresholds import (
    LEAST_ALIKE,
    LEAST_QUERIES,
    MOST_LEFT_OF_PAGES,
    MOST_VALUES,
    TWO_CURVES_APART,
)

#: The smallest relevant change of what is watched.
_LEAST_CHANGES = {
    "examination": 0.1,
    "clicks per page": 0.05,
    "results per page": 0.05,
    "click rate": 0.1,
    "location": 0.02,
    "spread": 0.02,
    "missing": 0.02,
    "column": 1.0,
    "passing time": np.inf,
    "mix": 0.05,
    "new queries": 0.05,
    "new documents": 0.05,
    "moved documents": 0.5,
    "connected": 0.05,
}
#: Of these, that is a share of the old value.
_RELATIVE = ("examination", "clicks per page", "results per page", "click rate", "moved documents")
#: 1 where only more matters, -1 where only less; of the others both do.
_DIRECTIONS = {"new queries": 1, "new documents": 1, "moved documents": -1, "connected": -1}
#: Roles that are contexts of a click.
_CONTEXT_ROLES = ("user", "bias")
#: Rounds that find documents of another relevance, at most; 20 to 160 are usual.
_MOST_ROUNDS = 500
#: Largest move of the weight of a document in the last round.
_TOLERANCE = 1e-5
#: Replaces 0 as a number of clicks, a share or an error.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class LogComparison:
    """Result of :func:`compare_logs`: what changed between two logs.

    Parameters
    ----------
    table : pandas.DataFrame of shape (n_rows, 11)
        What is ``watched``, and ``at`` which position or column; ``old`` and ``new`` value;
        ``difference``, from ``lower`` to ``upper``; ``p_value`` of no difference, and
        ``p_adjusted`` for all rows (Holm) and looks (Bonferroni); ``relevant``, the smallest
        difference that is an alarm; ``verdict``: "alarm", "no relevant change" or "cannot tell".
    """

    table: pd.DataFrame

    @property
    def alarm(self) -> bool:
        """Whether the verdict of some row is "alarm"."""
        return bool((self.table["verdict"] == "alarm").any())

    def summary(self) -> str:
        """What changed, and what these logs leave open, in plain words."""
        verdict = self.table["verdict"]
        counts = verdict.value_counts().sort_index()
        told = ", ".join(f"{name} in {count}" for name, count in counts.items())
        lines = [f"{len(self.table)} rows: {told}"]
        alarms = self.table[verdict == "alarm"]
        lines += [_in_words(row) for row in alarms.itertuples()]
        passed = self.table[self.table["watched"] == "passing time"]
        lines += [
            f"{row.at} moved by {row.difference:+.3g} in all documents alike, as time does: its "
            "location is compared without that"
            for row in passed.itertuples()
        ]
        open_questions = self.table[verdict == "cannot tell"]
        lines += [
            f"Cannot tell: {watched} {', '.join(part['at'])}".strip()
            for watched, part in open_questions.groupby("watched")
        ]
        return ".\n".join(lines) + "."

    __repr__ = summary


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
    r"""Test what changed between two logs, and whether it is an alarm.

    It watches users (examination and click rates), features, traffic, and whether the new log can
    still separate relevance from position. An alarm is a change that is large enough to matter and
    that chance does not explain.

    Parameters
    ----------
    old, new : frame or ClickDataset
        Logs of pandas, Polars or PyArrow, one row per document of each page, or of counts
        (``impressions``); with the columns ``qid``, ``doc``, ``position`` and ``click``, and
        ``session`` if they are raw. Columns without a role are features.
    click : str, default="click"
        Name of the column of clicks or click rates; a dataset has its own.
    confidence_level : float, default=0.95
        Of each interval; an alarm needs ``p_adjusted`` up to 1 minus this level.
    n_looks : int, default=1
        Number of comparisons that are planned, such as 52 for a weekly job: the probability of an
        alarm without a change is kept for all of them together (Bonferroni).
    relevant : dict of str to float, default=None
        Smallest relevant changes in place of those of the table in Notes.

    Returns
    -------
    comparison : LogComparison
        With a ``table``, ``alarm`` and ``summary()``.

    Raises
    ------
    ValueError
        If a log is empty, lacks a column, or has values that its role cannot have, or
        ``relevant`` names what is not watched.

    Notes
    -----
    .. list-table::
       :header-rows: 1
       :widths: 20 56 24

       * - watched
         - what it is
         - smallest relevant change
       * - examination
         - by position: new examination over the old one, relative to the first position
         - 10 %
       * - clicks per page, results per page
         - means over pages
         - 5 % of the old value
       * - click rate
         - by position
         - 10 % of the old value
       * - location
         - by feature: mean rank of its values among the old ones, 0.5 if nothing changed; 0.02 is
           a shift of 0.07 standard deviations
         - 0.02
       * - spread
         - by feature: how far these ranks are from the middle, 0.5 if nothing changed
         - 0.02
       * - missing
         - by feature: share of rows without a value
         - 0.02
       * - column
         - a column that one log lacks
         - any
       * - passing time
         - by feature that moved by the same in all documents of both logs, such as the age of a
           product or a time stamp: how far; location and spread are compared without that
         - never an alarm
       * - mix
         - share of the impressions by value of ``user``, ``bias``, or a column that tells pages
           of a query apart, such as the device, with at most 30 values
         - 0.05
       * - new queries
         - share of the pages whose query the old log lacks, beside the share that a log of its
           size would lack of traffic like its own (Good 1953)
         - 0.05 more
       * - new documents
         - the same of rows, in queries of 10 or more old pages
         - 0.05 more
       * - moved documents
         - probability that two impressions of a document are at different positions
         - half of the old value less
       * - connected
         - share of impressions in the largest component of the identifiability graph
         - 0.05 less

    *Examination* compares click rates of the same document of the same query at the same position,
    so that another order of documents does not look like other users. Only rows without a click
    above on their page count, because satisfied users stop earlier below better documents; counts
    do not show this, and all rows count. Documents whose relevance changed are outliers at their
    position, and count less; a ConvergenceWarning says if their weights do not settle. The other
    estimate is by documents that moved within each log
    (:class:`~skultr.propensity.InterventionHarvesting`), which needs no common query and allows
    any change of relevance. The more precise one counts; where they contradict each other (2
    standard errors), the one that says less.

    *Errors.* Queries are the clusters, paired where both logs have them. Below 10 effective
    queries a row cannot tell. A row without an alarm is "no relevant change" only if its interval
    excludes one; otherwise "cannot tell". Features are compared on 262,144 rows.

    *How often it is right*, on simulated logs of three kinds of users: without a change, 10 of
    900 pairs of 2,000 or 20,000 pages had an alarm (worst cell: 1 of 25). Of 20,000 pages,
    examination that is 20 % lower from position 3 on always gave an alarm. The row of examination
    was among them in 92 to 100 % of the pairs, but in 16 of 25 with users who trust positions and
    few swaps. Another ranker never gave an alarm of examination; another relevance of a tenth
    of the documents did in 3 of 150 pairs (2 of 25 in the worst cell).

    References
    ----------
    Good (1953). The population frequencies of species and the estimation of population
    parameters. Biometrika 40. Hausman (1978). Specification tests in econometrics. Econometrica
    46. Mantel & Haenszel (1959). Statistical aspects of the analysis of data from retrospective
    studies of disease. Journal of the National Cancer Institute 22.

    Examples
    --------
    A job that fails, and so alerts somebody, when the log of this week differs from the last one:

    .. code-block:: python

        old, new = pandas.read_parquet("last_week.parquet"), pandas.read_parquet("week.parquet")
        comparison = skultr.evaluation.compare_logs(old, new, n_looks=52)
        print(comparison.summary())
        raise SystemExit(comparison.alarm)

    The new page shows 8 results in place of 10:

    >>> from skultr.datasets import make_ltr
    >>> from skultr.evaluation import compare_logs
    >>> from skultr.simulation import PlackettLucePolicy, simulate_clicks
    >>> documents = make_ltr(100, n_documents=10, n_features=2, random_state=0)
    >>> logs = []
    >>> for seed in range(2):
    ...     log, clicks, _ = simulate_clicks(
    ...         documents, n_sessions=2_000, policy=PlackettLucePolicy(), random_state=seed
    ...     )
    ...     logs.append(log.drop(columns="relevance").assign(click=clicks))
    >>> compare_logs(*logs).alarm
    False
    >>> shorter = compare_logs(logs[0], logs[1].query("position <= 8"))
    >>> print(shorter.summary().splitlines()[1])
    results per page: 10 before, 8 now; -2 [-2, -2], p = 0.
    """
    least = _LEAST_CHANGES | dict(relevant or {})
    unknown = sorted({*least} - {*_LEAST_CHANGES})
    if unknown:
        raise ValueError(f"relevant names {unknown}; expected some of {[*_LEAST_CHANGES]}.")
    # Both logs in shared codes, what is watched of them, and the verdicts.
    logs = _Logs(old, new, click)
    found = chain(logs.examination(), logs.clicks(), logs.features(), logs.documents())
    rows = pd.DataFrame([*found])
    return LogComparison(_judged(rows, least, 1 - confidence_level, n_looks))


def _judged(rows, least, level, n_looks):
    """The table of a comparison; see LogComparison."""
    watched = rows["watched"]
    direction = watched.map(_DIRECTIONS)
    least = watched.map(least)
    least = least.where(~watched.isin(_RELATIVE), least * rows["old"])
    # p-values of no change, for all rows together.
    change = rows["change"]
    known = (rows["n_queries"] >= LEAST_QUERIES.value) & (change + rows["error"]).notna()
    freedom = np.maximum(rows["n_queries"], 2) - 1
    error = rows["error"].where(known)
    # A fact has no error: its p-value is 0 if it changed, and 1 if not.
    errors_away = change.abs() / np.maximum(error, _ROUNDING)
    p_value = 2 * student.sf(errors_away, freedom)
    # Rows that cannot tell are no tests, and cost the others nothing.
    p_adjusted = p_value.copy()
    p_adjusted[known] = np.minimum(n_looks * holm_adjusted(p_value[known]), 1)
    # Intervals, and the largest change in the direction that matters.
    half = student.isf(level / n_looks / 2, freedom) * error
    lower = _as_difference(change - half, watched)
    upper = _as_difference(change + half, watched)
    difference = rows["new"] - rows["old"]
    size = _size_in(direction, difference, difference)
    most = _size_in(direction, lower, upper)
    # An alarm is sure and large; no change is surely small.
    is_alarm = (p_adjusted <= level) & (size >= least * (1 - _ROUNDING))
    is_small = most < least
    verdict = np.select(
        [is_alarm, is_small], ["alarm", "no relevant change"], default="cannot tell"
    )
    table = rows[["watched", "at", "old", "new"]].copy()
    table["difference"] = difference
    table["lower"] = lower
    table["upper"] = upper
    table["p_value"] = p_value
    table["p_adjusted"] = p_adjusted
    table["relevant"] = least
    table["verdict"] = verdict
    return table


def _as_difference(change, watched):
    """A change as a difference; that of examination is one of logarithms."""
    is_log = watched == "examination"
    return np.where(is_log, np.expm1(change.where(is_log)), change)


def _size_in(direction, low, high):
    """The largest change between two ends: upwards, downwards, or in both ways, as watched."""
    return np.select([direction > 0, direction < 0], [high, -low], np.maximum(high, -low))


def _in_words(row):
    what = f"{row.watched} {row.at}".strip()
    interval = f"[{row.lower:+.3g}, {row.upper:+.3g}]"
    return (
        f"{what}: {row.old:.3g} before, {row.new:.3g} now; {row.difference:+.3g} {interval}, "
        f"p = {row.p_adjusted:.2g}"
    )


class _Logs:
    """The shown rows of two logs in codes that they share.

    Arrays (2, n) have a value of each log. A cell is a document of a query at a position.
    """

    def __init__(self, old: Any, new: Any, click: str) -> None:
        old, old_roles = _read(old, click)
        new, new_roles = _read(new, click)
        self._X = old, new
        frame = pd.concat([old_roles, new_roles], keys=[0, 1], names=["log", None])
        frame = frame.reset_index("log")
        rate = as_known_rates(frame.pop("click"))
        if "session" in frame:
            frame["session"] = _sessions_apart(frame["session"], frame["log"].to_numpy())
        pages = LoggedPages(frame, rate, None, {}, "compare_logs")
        # Rows: place in both logs, log, query, document of a query, impressions.
        row = pages.row
        log = frame["log"].to_numpy()[row]
        self._rows = row, log, pages.rows.query[row], pages.pair[row], pages.weight
        # Each row of counts is a page of its own.
        self._page = pages.rows.choice[row] if pages.has_pages else np.arange(len(row))
        self._position_of_row = pages.slot_position[pages.slot]
        # Cells, with their impressions and clicks in each log.
        keys, cell = pages.shown_cells
        self._pair, slot = np.divmod(keys, len(pages.slot_query))
        self._query = pages.slot_query[slot]
        self._pair_query = pages.pair_query
        self._position = pages.slot_position[slot].astype(int)
        # Ten positions of their own; deeper ones are in blocks, each twice as deep as the one
        # before, because few clicks tell of each.
        n_single = 10
        block = np.ceil(np.log2(np.maximum(self._position / n_single, 1))).astype(int)
        self._place, _ = encode(np.minimum(self._position, n_single) + block)
        clicks = pages.weight * pages.rate
        self._shows = _sums(cell, _split(pages.weight, log))
        self._hits = _sums(cell, _split(clicks, log))
        # The same of rows without a click above them on their page.
        is_unclicked = self._rows_without_click_above(pages)
        self._unclicked = (
            _sums(cell, _split(np.where(is_unclicked, pages.weight, 0.0), log)),
            _sums(cell, _split(np.where(is_unclicked, clicks, 0.0), log)),
        )
        # Pages of a query: the impressions of its slot that has most.
        self._pages = np.zeros((2, len(pages.query_pages)))
        shown_at_slot = _sums(slot, self._shows)
        np.maximum.at(self._pages, (slice(None), self._query), shown_at_slot[:, slot])

    def _rows_without_click_above(self, pages):
        """True for rows that users who stop at a click reach as often below any documents.

        Counts do not tell: all rows count.
        """
        if not pages.has_pages or (pages.weight != 1).any():
            return np.ones(len(pages.row), dtype=bool)
        order = np.lexsort((pages.slot, self._page))
        is_unclicked = np.empty(len(order), dtype=bool)
        is_unclicked[order] = sums_above(pages.rate[order], self._page[order]) == 0
        return is_unclicked

    # What is watched ----------------------------------------------------------------------------
    def examination(self) -> Iterator[dict[str, Any]]:
        """Rows of the ratio of the new to the old examination, by position."""
        # By documents at the same position in both logs, and by those that moved within a log.
        change, error, n_queries = self._by_cells()
        (old, old_error), (new, new_error) = map(self._by_moves, *self._unclicked)
        other = new - old
        other_error = np.hypot(old_error, new_error)
        # The variance of the difference from an efficient estimate (Hausman), or more.
        apart = np.sqrt(np.maximum(other_error**2 - error**2, other_error**2 / 4))
        says_less = np.abs(other) * error < np.abs(change) * other_error
        contradict = np.abs(other - change) > TWO_CURVES_APART.value * apart
        # The more precise one, or the one that says less; an error of NaN is of no estimate.
        is_better = np.where(contradict, says_less, ~(error <= other_error))
        use = is_better & (other_error >= 0)
        change = np.where(use, other, change)
        error = np.where(use, other_error, error)
        n_queries = np.where(use, np.inf, n_queries)  # moves within a log need no common query
        for place in range(1, len(change)):
            row = _row("examination", self._name(place), 1.0, np.exp(change[place]))
            row["change"] = change[place]
            row["error"] = error[place]
            row["n_queries"] = n_queries[place]
            yield row

    def clicks(self) -> Iterator[dict[str, Any]]:
        """Rows of clicks and results per page, and of click rates by position."""
        query = np.arange(self._pages.shape[1])
        clicks = _sums(self._query, self._hits, len(query))
        results = _sums(self._query, self._shows, len(query))
        yield self._ratio("clicks per page", "", clicks, self._pages, query)
        yield self._ratio("results per page", "", results, self._pages, query)
        for place in range(self._place.max() + 1):
            at = self._place == place
            name = self._name(place)
            hits = self._hits[:, at]
            shows = self._shows[:, at]
            yield self._ratio("click rate", name, hits, shows, self._query[at])

    def features(self) -> Iterator[dict[str, Any]]:
        """Rows of columns that one log lacks, of contexts, and of features, ranked among their
        old values."""
        old_names, new_names = ({*map(str, column_names(X))} for X in self._X)
        for name in sorted(old_names ^ new_names):
            yield _row("column", name, float(name in old_names), float(name in new_names))
        # Whole rows by the hash of their place, so that the same logs have the same sample; more
        # than 2**18 of both logs together cost time and tell little.
        chance = mix(np.arange(len(self._rows[0]), dtype=np.uint64)) / 2.0**64
        sample = chance * len(chance) < 2**18
        # What tells the pages of a query apart is a mix of traffic, not a feature.
        contexts = self._contexts(sample)
        for name, (codes, values) in contexts.items():
            yield from self._mix(name, codes, values, sample)
        if not all(map(feature_columns, self._X)):
            return
        old = read_values(self._X[0], "anything")
        # Text has the codes of the old log in both.
        new = read_values(self._X[1], "anything", old.categories)
        for name in old.names:
            if name not in new.names:
                continue
            old_values = old.values[:, old.names.index(name)]
            new_values = new.values[:, new.names.index(name)]
            values = np.concatenate([old_values, new_values])
            values = values[self._rows[0][sample]]
            yield self._missing(name, values, sample)
            if name not in contexts:
                is_number = name not in old.categories
                yield from self._moved_feature(name, values, sample, is_number)

    def _missing(self, name, values, sample):
        """Row of the share of rows without a value."""
        _, log, query, _, weight = (each[sample] for each in self._rows)
        lacks = np.where(np.isnan(values), weight, 0.0)
        return self._ratio("missing", name, _split(lacks, log), _split(weight, log), query)

    def _moved_feature(self, name, values, sample, is_number):
        """Rows of the place of values among the old ones; without what passing time explains."""
        _, log, query, _, weight = (each[sample] for each in self._rows)
        there = np.where(np.isnan(values), 0.0, weight)
        # Codes of text are no numbers that time could move.
        without_time = self._without_time(name, sample) if is_number else None
        if without_time is not None:
            passed, values = without_time
            mean = np.average(values[(log == 0) & (there > 0)])
            yield _row("passing time", name, mean, mean + passed)
        # Old values in order, and the impressions below each.
        known = np.argsort(values)
        known = known[(there[known] > 0) & (log[known] == 0)]
        mass = np.append(0, np.cumsum(weight[known]))
        # Middle ranks, because values may be equal.
        below = mass[np.searchsorted(values[known], values, "left")]
        up_to = mass[np.searchsorted(values[known], values, "right")]
        rank = (below + up_to) / max(2 * mass[-1], 1)
        size = _split(there, log)
        location = _split(there * rank, log)
        spread = _split(there * np.abs(2 * rank - 1), log)
        yield self._ratio("location", name, location, size, query)
        yield self._ratio("spread", name, spread, size, query)

    def documents(self) -> Iterator[dict[str, Any]]:
        """Rows of what the old log lacks, and of how the logs compare positions."""
        # Of pages like its own, it lacks the share whose query it has once (Good and Turing).
        old, new = self._pages
        query = np.arange(len(old))
        unseen = _seen_once_and_new(old, new)
        yield self._ratio("new queries", "", unseen, self._pages, query)
        # The same of documents, in queries that the old log knows.
        query = self._pair_query
        shows = _sums(self._pair, self._shows, len(query))
        unseen = _seen_once_and_new(*shows)
        # Old rows count by the traffic that their query has now; queries with few pages, whose
        # documents the old log does not know, not at all.
        per_old_page = new / np.maximum(old, 1)
        traffic = np.stack([per_old_page, np.ones(len(new))])
        traffic = np.where(old >= LEAST_QUERIES.value, traffic, 0.0)[:, query]
        yield self._ratio("new documents", "", unseen * traffic, shows * traffic, query)
        # Pairs of impressions of a document: their share does not grow with the log.
        pairs_at_position = np.maximum(self._shows * (self._shows - 1), 0)
        same = _sums(self._pair, pairs_at_position, len(query))
        moved = shows - same / np.maximum(shows - 1, 1)
        several = shows > 1
        moved = np.where(several, moved, 0.0)
        shown_again = np.where(several, shows, 0.0)
        yield self._ratio("moved documents", "", moved, shown_again, query)
        old_share, new_share = map(self._connected, self._shows)
        yield _row("connected", "", old_share, new_share)

    # Parts --------------------------------------------------------------------------------------
    def _name(self, place):
        """Name of a position, or of a block of positions."""
        found = self._position[self._place == place]
        first = found.min()
        last = found.max()
        return f"{first}" if first == last else f"{first}-{last}"

    def _ratio(self, watched, at, lead, size, query):
        """Row of a ratio of sums (2, n) over things of queries, which are the clusters."""
        lead, size = (_sums(query, each, self._pages.shape[1]) for each in (lead, size))
        with np.errstate(invalid="ignore"):  # nothing to watch: NaN
            total = size.sum(axis=1, keepdims=True)
            value = lead.sum(axis=1, keepdims=True) / total
            # What each query moves the ratio of each log by.
            old_effect, new_effect = (lead - value * size) / total
            effect = new_effect - old_effect
        found = {"error": _error(effect), "n_queries": _effective(size).min()}
        return _row(watched, at, *value.ravel()) | found

    def _column(self, name, sample):
        """The values of a column in the sampled rows of both logs."""
        values = [read_column(X, name) for X in self._X]
        return np.concatenate(values)[self._rows[0][sample]]

    def _contexts(self, sample):
        """Columns with few values that tell impressions of a document apart: codes and values.

        They are roles of users and bias factors, and what is one per page.
        """
        _, log, _, pair, _ = (each[sample] for each in self._rows)
        page = self._page[sample]
        position = self._position_of_row[sample]
        found = {}
        candidates = {*_CONTEXT_ROLES, *feature_columns(self._X[0])} & {*column_names(self._X[1])}
        for name in column_names(self._X[0]):
            if name not in candidates:
                continue
            codes, values = self._values_of(name, sample)
            # What the position decides is no context of it.
            is_few = 2 <= len(values) <= MOST_VALUES.value
            if not is_few or _depends_on(position, codes):
                continue
            is_role = name in _CONTEXT_ROLES
            if is_role or (_tells_apart(pair, codes, log) and _depends_on(page, codes)):
                found[name] = codes, values
        return found

    def _values_of(self, name, sample):
        """Codes and distinct values of a column; none of what cannot be counted, such as lists."""
        try:
            return pd.factorize(self._column(name, sample), use_na_sentinel=False)
        except (TypeError, ValueError):
            return [], []

    def _mix(self, name, codes, values, sample):
        """Rows of the share of impressions of each value of a context."""
        _, log, query, _, weight = (each[sample] for each in self._rows)
        shown = _split(weight, log)
        for code, value in enumerate(values):
            lead = _split(np.where(codes == code, weight, 0.0), log)
            yield self._ratio("mix", f"{name}={value}", lead, shown, query)

    def _without_time(self, name, sample):
        """How far a feature moved as time does, and its values without that; None if it did not.

        Of each document that both logs have, all new values are beyond all old ones, by the same:
        up to how far its values move within a log, where they grow from page to page.
        """
        raw = self._column(name, sample)
        values = as_numbers(raw)
        # Rows with a value, of documents in codes without gaps.
        there = ~np.isnan(values)
        if not there.any():
            return None
        _, log, _, pair, _ = (each[sample][there] for each in self._rows)
        document, _ = encode(pair)
        known = values[there]
        # Eight rounding errors of the largest value: those of a difference of two means.
        kind = raw.dtype if raw.dtype.kind == "f" else np.dtype(float)
        rounding = 8 * np.finfo(kind).eps * np.abs(known).max()
        found = _passed_time(known, log, document, rounding)
        if found is None:
            return None
        passed, within, middle = found
        if within > rounding:
            away = known - middle[document] - passed * log
            if not self._is_of_page(away, self._page[sample][there]):
                return None
        is_new = self._rows[1][sample] == 1
        values = values - np.where(is_new, passed, 0.0)
        # Equal values stay equal.
        return passed, np.rint(values / rounding) * rounding

    def _is_of_page(self, away, page):
        """Whether what the rows of a document differ by is what their pages differ by."""
        page, _ = encode(page)
        n_rows = np.bincount(page)
        several = n_rows[page] > 1  # a row alone differs as its page does, in any case
        left = away - (np.bincount(page, away) / n_rows)[page]
        total = away - away.mean()
        if not several.any():
            return False
        left_variance = (left**2)[several].mean()
        return left_variance <= MOST_LEFT_OF_PAGES.value * (total**2).mean()

    def _by_cells(self):
        """Log ratio of the click rates of the same cells, relative to the first position; its
        standard error; and the effective number of queries.

        Clicks are pooled as by Mantel and Haenszel. Documents whose clicks changed otherwise than
        those of others at their positions count less: the log ratio of an unknown share of the
        documents has a normal deviation of the variance 1.
        """
        # Cells that both logs showed.
        common = (self._unclicked[0] > 0).all(axis=0)
        shows, hits = (counts[:, common] for counts in self._unclicked)
        place = self._place[common]
        query = self._query[common]
        n_places = self._place.max() + 1
        weight = self._weights_of_cells(shows, hits, place, n_places, self._pair[common])
        total = np.maximum(_sums(place, weight * hits, n_places), _ROUNDING)
        # Errors: what each query adds, relative to the first position.
        part = weight / total[:, place]
        by_query = np.zeros((2, n_places, self._pages.shape[1]))
        np.add.at(by_query, (slice(None), place, query), part * hits)
        effect = by_query[1] - by_query[0]
        # At least that of clicks by chance: where one query has nearly all, its effects cancel.
        clicks_of_place = np.bincount(place, hits.sum(axis=0))
        shows_of_place = np.bincount(place, shows.sum(axis=0))
        rate = clicks_of_place / np.maximum(shows_of_place, TINY)
        chance = _sums(place, part**2 * hits * (1 - rate[place]), n_places).sum(axis=0)
        error = np.maximum(_error(effect - effect[0]), np.sqrt(chance + chance[0]))
        has_clicks = (total > _ROUNDING).all(axis=0)
        change = np.where(has_clicks, np.log(total[1] / total[0]), np.nan)
        change -= change[0]
        error = np.where(np.isnan(change), np.nan, error)
        return change, error, _effective(by_query.sum(axis=0))

    def _weights_of_cells(self, shows, hits, place, n_places, pair):
        """Weight of each click: as by Mantel and Haenszel, times the chance that the relevance of
        the document is what it was (EM)."""
        document, _ = encode(pair)
        clicks = hits.sum(axis=0)
        mantel_haenszel = shows[::-1] / shows.sum(axis=0)
        kept = np.ones(len(place))
        share = 0.1  # a guess, which the first M-step replaces
        for _ in range(_MOST_ROUNDS):
            total = _sums(place, kept * mantel_haenszel * hits, n_places)
            total = np.maximum(total, _ROUNDING)
            # Clicks that are due in each log, given those of both.
            due = shows * total[:, place]
            due *= clicks / due.sum(axis=0)
            information = np.bincount(document, due[0] * due[1] / np.maximum(clicks, TINY))
            excess = np.bincount(document, hits[1] - due[1]) ** 2 / (1 + information)
            # E-step: log odds of another relevance, whose log ratio has the variance 1.
            log_odds = (excess - np.log1p(information)) / 2 + np.log(share / (1 - share))
            is_other = expit(log_odds)
            # M-step: their share; of more than half, it is the others that changed.
            known = information > 0
            share = is_other @ known / max(known.sum(), 1)
            share = np.clip(share, _ROUNDING, 0.5)
            before = kept
            kept = 1 - is_other[document]
            largest_move = np.abs(kept - before).max(initial=0.0)
            if largest_move < _TOLERANCE:
                break
        else:
            warn_user(
                f"The weights of documents of another relevance still move after {_MOST_ROUNDS} "
                "rounds, so that the examination of documents at the same positions is not "
                "exact. Compare larger logs.",
                ConvergenceWarning,
            )
        return kept * mantel_haenszel

    def _by_moves(self, shows, hits):
        """Log examination relative to the first position, and its standard error, by documents
        that one log shows at several positions; NaN if there are none."""
        n_places = self._place.max() + 1
        columns = self._query, self._pair, self._place + 1, shows, hits
        shown = [each[shows > 0] for each in columns]
        return harvested(*shown, n_places)

    def _connected(self, shows):
        """Share of the impressions in the largest component of the identifiability graph."""
        at = shows > 0
        position, positions = encode(self._position)  # which may be far apart
        label = factor_components(self._pair[at], position[at], len(positions))[1]
        return np.bincount(label[position], shows).max() / shows.sum()


def _read(X, click):
    """A log without its clicks, and its roles as a frame."""
    X, y = in_memory(X)
    if y is None:
        X, y, _ = take_clicks(X, click, "compare_logs")
    given = [name for name in column_names(X) if name in ("session", "impressions")]
    roles = as_pandas(X, ["qid", "doc", "position", *given])
    return X, pd.DataFrame({"impressions": 1.0, **roles, "click": y})


def _sessions_apart(session, log):
    """Sessions of both logs under different numbers; missing ones stay missing."""
    code, _ = encode(session.to_numpy(), "The role 'session'")
    apart = pd.Series(pair_codes(code, log, 2), session.index)
    return apart.where(session.notna())


def _sums(code, values, n=0):
    """Sums by code of values (2, n_items), shape (2, n_codes)."""
    return np.stack([np.bincount(code, each, n) for each in values])


def _split(values, log):
    """Values of rows, (2, n_rows), each in the line of its log."""
    return np.stack([np.where(log == 0, values, 0.0), np.where(log == 1, values, 0.0)])


def _seen_once_and_new(old, new):
    """Old counts of what the old log has once, and new counts of what it lacks."""
    return np.stack([np.where(old <= 1, old, 0.0), np.where(old == 0, new, 0.0)])


def _row(watched, at, old, new):
    """A row of a fact, which has no error."""
    values = {"old": old, "new": new, "change": new - old, "error": 0.0, "n_queries": np.inf}
    return {"watched": watched, "at": at, **values}


def _depends_on(group, codes):
    """Whether all rows of each group have one code."""
    both = pair_codes(group, codes, int(codes.max()) + 1)
    return len(np.unique(group)) == len(np.unique(both))


def _tells_apart(pair, codes, log):
    """Whether impressions of one document differ in a log."""
    return not all(_depends_on(pair[log == each], codes[log == each]) for each in (0, 1))


def _passed_time(values, log, document, rounding):
    """How far time moved the values, their largest range within a log, and by document the middle
    without the move; None if it was not time."""
    found = _moved(values, log, document)
    if found is None:
        return None
    # Nearly all documents moved by the same, up to how far they move within a log.
    passed = np.average(found.moved, weights=found.n_rows)
    alike = np.abs(found.moved - passed) <= found.within + rounding
    alike &= np.sign(passed) * found.gap >= -rounding
    is_alike = np.average(alike, weights=found.n_rows) >= LEAST_ALIKE.value
    # A constant moves alike in any case, and so does what did not move.
    widest = found.within.max()
    differs = np.ptp(found.middle[document]) > rounding or widest > rounding
    is_time = differs and abs(passed) > rounding and is_alike
    return (passed, widest, found.middle) if is_time else None


class _Moves(NamedTuple):
    """How values of documents moved from the old to the new log."""

    # Of each document of both logs: the change of its mean, its largest range within a log, the
    # gap from the old values to the new ones (or back, where the mean fell), its least number of
    # rows.
    moved: Floats
    within: Floats
    gap: Floats
    n_rows: Floats
    # Of each document of any log: the mean of its values without the mean change.
    middle: Floats


def _moved(values, log, document):
    """How the values moved, by document; None if few documents are in both logs."""
    # Counts, sums and ranges by log and document.
    shape = 2, int(document.max()) + 1
    count = np.zeros(shape)
    total = np.zeros(shape)
    low = np.full(shape, np.inf)
    high = np.full(shape, -np.inf)
    np.add.at(count, (log, document), 1)
    np.add.at(total, (log, document), values)
    np.minimum.at(low, (log, document), values)
    np.maximum.at(high, (log, document), values)
    both = (count > 0).all(axis=0)
    if both.sum() < LEAST_QUERIES.value:
        return None
    # The move of each, weighted by the rows that tell it.
    mean = total / np.maximum(count, 1)
    moved = (mean[1] - mean[0])[both]
    n_rows = count.min(axis=0)[both]
    passed = np.average(moved, weights=n_rows)
    gap = np.where(passed > 0, low[1] - high[0], high[1] - low[0])[both]
    middle = (total.sum(axis=0) - passed * count[1]) / count.sum(axis=0)
    within = (high - low)[:, both].max(axis=0)
    return _Moves(moved, within, gap, n_rows, middle)


def _error(effect):
    """Standard errors of sums over queries of effects (..., n_queries)."""
    # With the factor n / (n - 1) of a variance; of one query, that of two.
    n_queries = max(effect.shape[-1], 2)
    return np.sqrt((effect**2).sum(axis=-1) / (1 - 1 / n_queries))


def _effective(size):
    """Number of queries of equal size that would be worth as much, by sizes (..., n_queries)."""
    return size.sum(axis=-1) ** 2 / np.maximum((size**2).sum(axis=-1), TINY)
