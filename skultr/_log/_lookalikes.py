"""Columns that look like something else: features named as roles, outcomes among the features."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from .._base._typing import Bools, Floats, Ints
from ._segments import encode

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
#: Rows that are looked at of those with, and of those without a click.
_SAMPLE = 20_000
#: Largest probability, by chance, of the clicks on the rows where a column differs.
_CHANCE = 1e-5
#: Impressions of one row of which clicks at all or none are suspicious.
_SEVERAL = 5
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
    no, yes = (_spread(np.flatnonzero(of)) for of in (~clicked, clicked))
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
    if n_clicked < 0.8 * len(rows):
        return False
    if binom.sf(n_clicked - 1, len(rows), clicked.mean()) > _CHANCE:
        return False
    has = np.zeros(group.max() + 1, dtype=bool)
    has[group[rows]] = True
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
    found = np.sum(apart * (rate - mean_rate[place]))
    return bool(expected <= 6 * error or 3 * found > expected)


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
            "clicked in all or in none of them",
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
    left = np.mean((values - mean[codes]) ** 2) * n / max(n - n_codes, 1)
    return 1.0 - left / total
