"""Evidence that columns are not what their names say, or that what they hold says nothing.

What is found here, and what is said of it, stands in the table of units (``_units.py``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from scipy.stats import binom, spearmanr

from .._base._typing import Bools, Floats, Ints
from ..exceptions import python_value
from ._faults import IDS
from ._roles import count_rows, is_frame, numbers_of
from ._segments import encode, equal_columns, pair_codes, repeated, rows_where

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
#: What a join that finds no features leaves in all columns, and the fewest columns of which so
#: many are not blank by chance: three public sets (36,853 documents) have no row of zeros.
_BLANKS = (("missing", np.isnan, 2), ("0", np.logical_not, 10))
#: Smallest share of blank rows that matters.
_LEAST_BLANK = 0.01
#: Multiple of the odds of independent columns that matters: two columns that lack nothing else
#: have 1 + 1 / share times these.
_TOGETHER = 1.5
#: Share of the variance of positions below which a column has nothing to do with them.
_EXPLAINED = 0.3
#: Share of the variance of positions that documents explain where most lists are ordered.
_ORDERED = 0.05
#: Highest grades, or gains, by which annotation may have been divided.
_HIGHEST = (*range(1, 11), 15, 31)
#: The examination of the best position is hardly ever smaller; action probabilities often are.
_LEAST_EXAMINATION = 0.2
#: Rank correlation of propensity and position below which they count as unrelated.
_UNRELATED = 0.1
#: Share of lists, or documents, of which a rule holds that the others break by an error.
_NEARLY_ALL = 0.9
#: Probabilities that were written with three digits sum to 1 up to this.
_SUM_ERROR = 5e-3
#: Lists of fewer rows have places by chance: one click on two rows is one.
_LEAST_LIST = 3
#: Rows per position from which on it is no chance that each position has one value.
_ROWS_PER_POSITION = 10
#: Rows that are looked at of features, in their own precision.
_ROWS_OF_FEATURES = 5_000
#: Names of columns of ids, in any style of writing.
_NAME_OF_ID = re.compile(
    r"(?i:(^|[\W_])(ids?|uuid|guid|hash|sku|ean|gtin|asin|isbn)$)|[a-z]I[dD]$"
)
#: Names of columns of times; durations have others.
_NAME_OF_TIME = re.compile(
    r"(?i:(^|[\W_])(timestamp|datetime|date|epoch|unixtime|ts|at)$)|[a-z](Timestamp|Date|At)$"
)
#: Seconds since 1970 of the years 1999 to 2049: no quantity has all of its values in a range of
#: this place and width.
_SECONDS = (0.93e9, 2.5e9)
#: Parts of a second in which times are counted.
_PER_SECOND = (1, 1e3, 1e6, 1e9)
#: Dates as whole numbers, 19700101 to 20991231.
_DATES = (19_700_101, 20_991_231)
#: What is named as a time and lies below is an age or an hour.
_LEAST_TIME = 1_000
#: Ids beyond 32 bits are large throughout; counts and amounts have a few large values.
_BITS_32 = 2.0**31
#: The 95 % quantile is at most this multiple of the median in ids (1.9 in hashes).
_SPREAD_OF_IDS = 2.5
#: Documents that differ, of many, below which a column is as good as constant: LightGBM puts at
#: least 3 in a bin.
_LEAST_DIFFERING = 3
#: Scores that differ by less, relatively, differ by rounding.
_ROUNDING = 1e-12
#: Queries below which ties say nothing of a ranking.
_LEAST_QUERIES = 10


# Outcomes -------------------------------------------------------------------------------
def features_that_are_clicks(
    rows: Any, features: NDArray[Any], names: Sequence[Any]
) -> Iterator[dict[str, Any]]:
    """Features that equal the clicks in every row."""
    for column in equal_columns(features, rows.click):
        yield {"name": names[column]}


def features_that_are_outcomes(
    rows: Any, features: NDArray[Any], names: Sequence[Any]
) -> Iterator[dict[str, Any]]:
    """Features that the click decides, and that are not the clicks themselves."""
    # What belongs to a document or a query does not follow from the click.
    group = rows.query if rows["doc"] is None else rows.documents(features).code
    equal = equal_columns(features, rows.click)
    for column in outcomes_of(rows.rate > 0, group, features):
        if column not in equal:
            yield {"name": names[column]}


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
    off = _differs(values[no], usual)
    on = _differs(values[yes], usual)
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


def blank_rows(columns: Sequence[NDArray[Any]]) -> Iterator[dict[str, Any]]:
    """Rows whose features, one column each, are all missing, or all 0."""
    n_rows = max(map(len, columns), default=0)
    n_features = len(columns)
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
            yield {
                "n": len(rows),
                "n_rows": n_rows,
                "share": share,
                "n_features": n_features,
                "what": what,
                "row": rows[0],
            }


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
    value = values[known]
    rate = rows.rate[known]
    place = rows.position[known]
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
    list_ = rows.list_[shown]
    position = rows.position[shown]
    doc = rows.documents(rows=shown).code
    explained = _explained(position, doc)
    n_rows = len(position)
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


def impressions_of_clicks(rows: Any) -> Iterator[dict[str, Any]]:
    """Fractions as impressions, although each row was clicked in all of them or none."""
    impressions = _impressions_of_all_or_none(rows)
    if impressions is not None and (impressions % 1 != 0).any():
        yield {}


def impressions_too_many(rows: Any) -> Iterator[dict[str, Any]]:
    """Many impressions of a row, although each row was clicked in all of them or none."""
    impressions = _impressions_of_all_or_none(rows)
    if impressions is None or (impressions % 1 != 0).any():
        return
    several = (impressions > 1) & (rows.click > 0)
    if several.sum() >= _MANY and impressions.max() >= _SEVERAL:
        yield {"most": impressions.max()}


def _impressions_of_all_or_none(rows):
    """Impressions, a column of the log, if each row was clicked in all of them or in none."""
    if "impressions" not in rows.from_columns or rows.click is None or not _has_many(rows):
        return None
    impressions = rows["impressions"]
    list_ = rows.list_
    counted = impressions > 0  # lists that were counted by what was clicked have one number each
    if not np.isin(rows.click, (0, 1)).all():
        return None
    return impressions if _varies_in_lists(impressions[counted], list_[counted]) else None


def users_within_pages(rows: Any) -> Iterator[dict[str, Any]]:
    """Users, a column of the log, that vary within result pages."""
    if "user" in rows.from_columns and _has_many(rows):
        shown = rows.shown
        if _varies_in_lists(rows.user[0][shown], rows.list_[shown]):
            yield {}


def factors_unrelated(rows: Any) -> Iterator[dict[str, Any]]:
    """Bias factors, a column of the log, that have nothing to do with the position."""
    if "bias" in rows.from_columns and rows["position"] is not None and _has_many(rows):
        shown = rows.shown
        bias, _ = encode(rows["bias"][shown])
        if _explained(rows.position[shown], bias) < _EXPLAINED and _varies_in_lists(
            bias, rows.list_[shown]
        ):
            yield {}


def propensities_unrelated(rows: Any) -> Iterator[dict[str, Any]]:
    """Propensities, a column of the log, that have nothing to do with the position."""
    if (
        "propensity" not in rows.from_columns
        or rows["position"] is None
        or not _has_many(rows)
        or any(propensities_of_actions(rows))
    ):
        return
    shown = rows.shown
    propensity, (position, _) = rows["propensity"][shown], encode(rows.position[shown])
    many = propensity.max() > _LEAST_EXAMINATION and len(np.unique(propensity)) > 10
    if (
        many
        and _explained(propensity, position) < _EXPLAINED / 10
        and _varies_in_lists(propensity, rows.list_[shown])
    ):
        yield {}


def _has_many(rows):
    return np.count_nonzero(rows.shown) >= _MANY


def propensities_of_actions(rows: Any) -> Iterator[dict[str, Any]]:
    """What shows that propensities are those of documents to be chosen, not to be examined."""
    if rows["propensity"] is None or not rows.has_places:
        return
    shown = rows.shown
    propensity = rows["propensity"][shown]
    position = rows.position[shown]
    largest = float(propensity.max(initial=0.0))
    if position.min(initial=1) == position.max(initial=1) or largest == 0:
        return
    # Constant, or as good as that.
    if largest < _LEAST_EXAMINATION and (
        propensity.min() == largest or abs(spearmanr(propensity, position).statistic) < _UNRELATED
    ):
        yield {"why": f"is at most {largest!r} and does not depend on the position"}
    elif propensity.min() < largest:
        list_ = rows.list_[shown]
        if _sums_to_one(propensity, list_) and not _is_of(position, propensity):
            yield {"why": "sums to 1 on the result pages, and differs at one position"}
        elif rows["doc"] is not None and _varies_in_lists(propensity, list_):
            doc = rows.documents(rows=shown).code
            if _stays_with_documents(propensity, doc, position):
                yield {"why": "is the same wherever a document was shown"}


def _sums_to_one(probability, list_):
    """Whether the probabilities of nearly all lists of several rows sum to 1."""
    total = np.bincount(list_, probability)[np.bincount(list_) > 1]
    return len(total) >= _LEAST and np.mean(np.abs(total - 1) < _SUM_ERROR) > _NEARLY_ALL


def _is_of(code, values):
    """Whether all rows of one code have one value."""
    code, _ = encode(code)
    first = np.zeros(code.max(initial=0) + 1, dtype=values.dtype)
    first[code] = values
    return bool((values == first[code]).all())


def _stays_with_documents(values, doc, position):
    """Whether nearly all documents that moved kept one value."""
    least, most = (_by_code(function, doc, position) for function in (np.minimum, np.maximum))
    moved = least < most
    if moved.sum() < _LEAST:
        return False
    low, high = (_by_code(function, doc, values) for function in (np.minimum, np.maximum))
    return bool(np.mean((low == high)[moved]) > _NEARLY_ALL)


def _by_code(function, code, values):
    """The smallest, or largest, value of each code."""
    start = np.inf if function is np.minimum else -np.inf
    found = np.full(code.max(initial=0) + 1, start)
    function.at(found, code, values)
    return found


def _varies_in_lists(values, list_):
    """True if more lists of several rows than an error would explain have several values."""
    first = np.zeros(list_.max() + 1, dtype=values.dtype)
    first[list_] = values
    several = np.bincount(list_) > 1
    varies = np.bincount(list_, values != first[list_]) > 0
    return several.sum() >= _MANY and varies.sum() > max(10, 0.01 * several.sum())


def _explained(values, codes):
    """Share of the variance of values that codes explain, less what chance explains."""
    n = len(values)
    n_codes = codes.max() + 1
    count = np.bincount(codes, minlength=n_codes)
    mean = np.bincount(codes, values, n_codes) / np.maximum(count, 1)
    total = values.var()
    if total == 0:
        return 1.0
    return 1.0 - (np.mean((values - mean[codes]) ** 2) * n / max(n - n_codes, 1)) / total


# y that is no click ------------------------------------------------------------------------
def y_grows(rows: Any) -> Iterator[dict[str, Any]]:
    """y that grows from each row of a list to the next: the place, of which 1 is the best."""
    steps = _steps_of_y(rows)
    if len(steps) >= _LEAST and (steps > 0).all():
        yield _examples(rows)


def y_follows_position(rows: Any) -> Iterator[dict[str, Any]]:
    """y that the position determines, or that falls from each row of a list to the next."""
    if any(y_grows(rows)):
        return
    if _position_determines_y(rows):
        yield {"how": "The position determines y", **_examples(rows)}
        return
    steps = _steps_of_y(rows)
    is_raw = rows.impressions.max(initial=0) <= 1  # examination alone orders precise rates so
    if is_raw and len(steps) >= _MANY and (steps < 0).all():
        n_lists = len(np.unique(rows.list_[rows.shown]))
        if n_lists >= _LEAST:
            how = (
                f"y is the order of the rows in all {n_lists:,} lists: it falls with the position"
            )
            yield {"how": how, **_examples(rows)}


def _steps_of_y(rows):
    """Steps of y, which has more than two values, from each shown row of a list to the next."""
    if rows.click is None or rows["position"] is None:
        return np.zeros(0)
    shown = rows_where(rows.shown)
    y = rows.click[shown]
    if len(np.unique(_spread(y))) <= 2:
        return np.zeros(0)
    list_ = rows.list_[shown]
    order = np.lexsort((rows.position[shown], list_))
    return np.diff(y[order])[np.diff(list_[order]) == 0]


def _position_determines_y(rows):
    """Whether y has one value at each position, and not one value throughout."""
    if rows.click is None or rows["position"] is None:
        return False
    shown = rows_where(rows.shown)
    y = rows.click[shown]
    position = rows.position[shown]
    least = max(_MANY, _ROWS_PER_POSITION * len(np.unique(_spread(position))))
    if len(y) < least or y.min() == y.max():
        return False
    some = _spread(np.arange(len(y)))
    return _is_of(position[some], y[some]) and _is_of(position, y)


def _examples(rows):
    """Values of y at the first positions, in words."""
    shown = rows.shown
    positions, first = np.unique(rows.position[shown], return_index=True)
    values = [f"{value:.3g}" for value in rows.click[shown][first[:3]]]
    return {"values": ", ".join(values), "positions": ", ".join(map(str, positions[:3]))}


def y_of_places(rows: Any) -> Iterator[dict[str, Any]]:
    """y that numbers the rows of each list, in whatever order: places, of which 1 is the best."""
    y = rows.click
    if y is None or rows["impressions"] is not None or (y % 1 != 0).any() or any(y_grows(rows)):
        return
    n_rows = np.bincount(rows.list_)
    long = n_rows >= _LEAST_LIST
    if long.sum() < _LEAST_QUERIES or y.max() < _LEAST_LIST - 1:
        return
    inside = long[rows.list_]
    list_ = rows.list_[inside]
    y = y[inside]
    low, high = (_by_code(each, list_, y)[long] for each in (np.minimum, np.maximum))
    first = np.median(low)
    if first not in (0, 1) or np.mean(low == first) < _NEARLY_ALL:
        return
    if (high - low >= 2 * n_rows[long]).any():  # places may have gaps, where rows were left out
        return
    key = np.sort(pair_codes(list_, y.astype(np.int64), int(y.max()) + 1))
    if (key[1:] != key[:-1]).all():
        yield {
            "n": int(long.sum()),
            "first": int(first),
            "remedy": "1 / y" if first == 1 else "1 / (1 + y)",
        }


# Result pages -----------------------------------------------------------------------------
def documents_twice(rows: Any) -> Iterator[dict[str, Any]]:
    """Rows whose document an earlier row of the same list shows, too."""
    is_counted = rows["impressions"] is not None and rows["session"] is None
    if rows["doc"] is None or not rows.has_pages or is_counted:
        return
    shown = np.flatnonzero(rows.shown)
    doc = rows.documents(rows=rows_where(rows.shown)).code
    twice = repeated(pair_codes(rows.list_[shown], doc, int(doc.max(initial=0)) + 1))
    if twice.any():
        row = shown[np.argmax(twice)]
        yield {
            "n": int(twice.sum()),
            "n_lists": len(np.unique(rows.list_[shown][twice])),
            "row": int(row),
            "doc": python_value(rows["doc"][row]),
        }


# Features -----------------------------------------------------------------------------------
class FeatureSample(NamedTuple):
    """Features of some rows, spread over the log, in the precision that they have there."""

    columns: Mapping[Any, Floats]
    #: Ids of the same rows that are numbers, by role.
    ids: Mapping[str, NDArray[Any]]
    #: True if the rows stand in the order of the log.
    in_order: bool


def rows_to_look_at(n_rows: int) -> Ints:
    """Some rows, spread over the log, in its order."""
    return np.arange(0, n_rows, _step(n_rows))


def _step(n_rows):
    return max(1, n_rows // _ROWS_OF_FEATURES)


def sample_features(X: Any, names: Sequence[Any], in_order: bool = True) -> FeatureSample:
    """Some rows of the features of X that are numbers, by name (by place in an array)."""
    if not is_frame(X):
        rows = rows_to_look_at(count_rows(X))
        part = X.tocsr()[rows].toarray() if issparse(X) else np.asarray(X)[rows]
        return FeatureSample(dict(enumerate(part.astype(float).T)), {}, in_order)
    # Not by numbers of rows, by which old releases of pandas cannot take every byte order.
    part = nw.from_native(X, eager_only=True).gather_every(_step(count_rows(X)))
    features = _numbers_among(part, names)
    ids = _numbers_among(part, IDS)
    return FeatureSample(features, ids, in_order)


def _numbers_among(frame, names):
    """Those of the named columns of a frame of Narwhals that hold numbers."""
    found = {}
    for place, name in enumerate(frame.columns):
        if name not in names:
            continue
        values = numbers_of(frame[:, place])
        if values is not None:
            found[name] = values
    return found


def features_that_name(sample: FeatureSample) -> Iterator[dict[str, Any]]:
    """Features that say when, or which row or document, and not what it is like."""
    for name, values in sample.columns.items():
        known = values[~np.isnan(values)]
        if len(np.unique(known)) >= _LEAST and (what := _named_by(str(name), known, sample)):
            yield {"name": name, "what": what}


def _named_by(name, known, sample):
    """What known values of a feature are instead of one, or None."""
    if _is_time(name, known):
        return "a time stamp"
    if (known % 1 != 0).any():
        return None
    n_values = len(np.unique(known))
    if _NAME_OF_ID.search(name) and n_values >= _MANY:
        return "an id"
    same = [role for role, ids in sample.ids.items() if np.array_equal(known, ids)]
    if same:
        return f"an id, because it equals the role {same[0]!r}"
    middle, high = np.quantile(np.abs(known), (0.5, 0.95))
    if n_values >= _MANY and middle > _BITS_32 and high < _SPREAD_OF_IDS * middle:
        return "an id"
    if sample.in_order and n_values >= _MANY and (np.diff(known) >= 0).all():
        return "the number of the row or of its result page, because it grows from row to row"
    return None


def _is_time(name, known):
    known = known[known != 0]  # 0 may stand for no time
    if not len(known):
        return False
    low = known.min()
    high = known.max()
    if any(_SECONDS[0] * unit <= low and high <= _SECONDS[1] * unit for unit in _PER_SECOND):
        return True
    if _DATES[0] <= low and high <= _DATES[1] and (known % 1 == 0).all():
        month = known // 100 % 100
        day = known % 100
        return bool(((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all())
    return bool(_NAME_OF_TIME.search(name) and low >= _LEAST_TIME)


def features_that_are_constant(
    columns: Sequence[NDArray[Any]], names: Sequence[Any]
) -> Iterator[dict[str, Any]]:
    """All features, one column each with a value per document, if none of them varies."""
    if len(columns):
        usual = []
        most = 0
        for column in columns:
            value, n_differing = _usual_and_others(column)
            if n_differing >= (_LEAST_DIFFERING if len(column) >= _MANY else 1):
                return
            usual.append("missing" if np.isnan(value) else f"{value:g}")
            most = max(most, n_differing)
        pairs = zip(names[:5], usual, strict=False)
        listed = ", ".join(f"{name!r} is {value}" for name, value in pairs)
        yield {
            "n": len(usual),
            "listed": listed + ", ..." * (len(usual) > 5),
            "but": f", but for {most} of {len(columns[0]):,} documents" if most else "",
        }


def _usual_and_others(column):
    """The value of most documents, and the number of the others."""
    usual = _usual(column)
    same = np.isnan(column) if np.isnan(usual) else column == usual
    return usual, int(np.count_nonzero(~same))


# Rankings -----------------------------------------------------------------------------------
def queries_without_order(
    scores: Floats, query: Ints, called: str, least: float, *, ties_elsewhere: bool = True
) -> Iterator[dict[str, Any]]:
    """The queries whose documents all have one score, if they are a share of ``least`` or more.

    Unless ``ties_elsewhere``, other queries must have hardly a tie, as grades have.
    """
    if not len(scores):
        return
    code, _ = encode(query)
    low, high = (_by_code(each, code, scores) for each in (np.minimum, np.maximum))
    size = np.maximum(np.abs(low), np.abs(high))
    with np.errstate(invalid="ignore"):  # infinite scores
        flat = (low == high) | (high - low <= _ROUNDING * size)
    others = ~flat[code]
    if not ties_elsewhere and others.any():
        pairs = np.unique(np.stack([code[others], scores[others]]), axis=1)
        if pairs.shape[1] < _NEARLY_ALL * np.count_nonzero(others):
            return
    flat = flat[np.bincount(code) > 1]
    if len(flat) >= _LEAST_QUERIES and np.mean(flat) >= least:
        yield {"called": called, "n": int(flat.sum()), "n_queries": len(flat)}
