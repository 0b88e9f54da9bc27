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
from ._thresholds import (
    BLANK,
    BLANK_TOGETHER,
    CHANCE,
    CLICKED_OF_DIFFERING,
    COLUMNS_OF_ZEROS,
    DENIED_CLICKS,
    DIFFER_IN_GROUP,
    DIFFER_WITH_CLICK,
    DIFFER_WITHOUT_CLICK,
    DOCUMENTS_THAT_DIFFER,
    EXPLAINED,
    EXPLAINED_BY_POSITION,
    FEW,
    ID_BEYOND,
    IMPRESSIONS_OF_A_ROW,
    IN_ORDER,
    LARGEST_GRADE,
    LEAST_EXAMINATION,
    LEAST_TIME,
    LISTS_IN_ERROR,
    LISTS_WITH_ORDER,
    MANY,
    NEARLY_ALL,
    ORDERED_BY_DOCUMENTS,
    ROWS_OF_A_POSITION,
    ROWS_THAT_DIFFER,
    ROWS_WITH_PLACES,
    SPREAD_OF_IDS,
    UNRELATED,
)

#: What a join that finds no features leaves in all columns, and the fewest columns that it takes:
#: a missing value may be common in one column, and zeros are in many.
_BLANKS = (
    ("missing", np.isnan, 2),
    ("0", np.logical_not, COLUMNS_OF_ZEROS.value),
)
#: Highest grades, or gains, by which annotation may have been divided.
_HIGHEST_GRADES = (*range(1, 11), 15, 31)
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
    without_click = _spread(np.flatnonzero(~clicked))
    with_click = _spread(np.flatnonzero(clicked))
    if min(len(without_click), len(with_click)) < FEW.value:
        return []
    return [
        column
        for column in range(features.shape[1])
        if _is_outcome(features[:, column], without_click, with_click, clicked, group)
    ]


def _is_outcome(values, without_click, with_click, clicked, group):
    """Whether a column has one value (0, say) on nearly all rows that were not clicked, only."""
    # What rows without a click have: 0, say, or a missing value.
    usual = _usual(values[without_click])
    differs_without = _differs(values[without_click], usual)
    differs_with = _differs(values[with_click], usual)
    # First on a sample of the rows, which is enough to drop most features.
    share_without = differs_without.mean()
    if (
        differs_with.sum() < ROWS_THAT_DIFFER.value
        or share_without > DIFFER_WITHOUT_CLICK.value
        or differs_with.mean() < DIFFER_WITH_CLICK.value * share_without
    ):
        return False
    # Then on all rows: those that differ are clicked, and not by chance.
    rows = np.flatnonzero(_differs(values, usual))
    # The share of clicks, and then the probability of so many by chance.
    n_clicked = np.count_nonzero(clicked[rows])
    if n_clicked < CLICKED_OF_DIFFERING.value * len(rows):
        return False
    if binom.sf(n_clicked - 1, len(rows), clicked.mean()) > CHANCE.value:
        return False
    # What belongs to a document is there in its rows without a click, too.
    differs_in_group = np.bincount(group[rows], minlength=group.max() + 1) > 0
    others = np.flatnonzero(differs_in_group[group] & ~clicked)
    if len(others) < FEW.value:
        # Where groups have one row each, good features look alike.
        n_rows = np.bincount(group)[differs_in_group]
        return len(n_rows) >= ROWS_THAT_DIFFER.value and n_rows.max() > 1
    return bool(_differs(values[others], usual).mean() < DIFFER_IN_GROUP.value)


def _spread(rows):
    """Some of the rows, evenly spaced."""
    # 20,000 rows, or up to twice as many, tell what a column is like as well as all do.
    return rows[:: max(1, len(rows) // 20_000)]


def _usual(values):
    """The value of at least half of the rows, if there is one; NaN counts as a value."""
    missing = np.isnan(values)
    if 2 * missing.sum() > len(values):
        return np.nan
    return np.median(values[~missing])


def _differs(values, usual):
    """Whether each value is another than the usual one; a missing value is none."""
    is_known = ~np.isnan(values)
    if np.isnan(usual):
        return is_known
    return is_known & (values != usual)


def blank_rows(columns: Sequence[NDArray[Any]]) -> Iterator[dict[str, Any]]:
    """Rows whose features, one column each, are all missing, or all 0."""
    n_rows = max(map(len, columns), default=0)
    n_features = len(columns)
    for what, is_blank, least_features in _BLANKS:
        if n_features < least_features:
            continue
        # Column by column, each on the rows that were blank so far.
        rows = np.flatnonzero(is_blank(columns[0]))
        for column in columns[1:]:
            rows = rows[is_blank(column[rows])]
        share = len(rows) / max(n_rows, 1)
        if share <= BLANK.value:
            continue
        # The share that columns would have that know nothing of each other.
        by_chance = np.prod([is_blank(column).mean() for column in columns])
        # Odds: blank rows raise chance, too; where all are blank it is 1.
        if share * (1 - by_chance) >= BLANK_TOGETHER.value * by_chance * (1 - share):
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
    if known.min() < 0 or known.max() > LARGEST_GRADE.value:
        return True
    # Annotation may be divided by its highest grade, or averaged over judges.
    distinct = np.unique(_spread(known))
    is_fraction = known.max() <= 1
    highest_grades = _HIGHEST_GRADES if is_fraction else (1,)
    if any(_are_means_of_grades(distinct * highest) for highest in highest_grades):
        return False
    # Fractions within [0, 1] may be probabilities of relevance, which clicks follow.
    return bool(not is_fraction or not _clicks_follow(values, read()))


def _are_means_of_grades(values):
    """True if nearly all values are means of the grades of up to five judges, with two digits."""
    is_mean = np.zeros(len(values), dtype=bool)
    for n_judges in range(1, 6):
        total = n_judges * values
        # A mean with two digits is off by up to 0.005; the rest is room for rounding.
        is_mean |= np.abs(total - np.rint(total)) <= 0.006 * n_judges
    return is_mean.mean() > NEARLY_ALL.value


def _clicks_follow(values, rows):
    """False if click rates at equal positions are not in proportion to the values.

    With examination o of a position and relevance r of a row, P(click) = o r: within a position
    the covariance of rates and values is then o times the variance of the values.
    """
    if rows.click is None:
        return True
    # Means by position, because examination differs between positions only.
    known = rows.shown & ~np.isnan(values)
    value = values[known]
    rate = rows.rate[known]
    position = rows.position[known]
    n_rows = np.maximum(np.bincount(position), 1)
    mean = np.bincount(position, value) / n_rows
    mean_rate = np.bincount(position, rate) / n_rows
    deviation = value - mean[position]
    squares = deviation**2
    variance_of_rate = mean_rate * (1 - mean_rate)
    standard_error = np.sqrt(np.sum(squares * variance_of_rate[position]))
    examination = mean_rate / np.maximum(mean, 1e-9)  # of positions where all values are 0
    expected = np.sum(squares * examination[position])
    if expected <= 6 * standard_error:  # then chance could hide a third of it
        return True
    found = np.sum(deviation * (rate - mean_rate[position]))
    return bool(3 * found > expected)


def is_no_click(values: Floats, read: Callable[[], Any]) -> bool:
    """True if values are no clicks, or rows without one were clicked, or bought, nevertheless."""
    y = read().click
    if y is None:
        return False
    if not ((values >= 0) & (values <= 1)).all():
        return True
    # Fractions beside single clicks are something else.
    if np.isin(y, (0, 1)).all() and not np.isin(values, (0, 1)).all():
        return True
    clicked = y > 0
    # A column of clicks denies hardly any of those that y has.
    denied = clicked & (values == 0)
    return bool(denied.sum() > DENIED_CLICKS.value * max(clicked.sum(), 1))


def is_no_score(scores: Floats, read: Callable[[], Any]) -> bool:
    """True if lists have an order, and it is not that of the scores."""
    rows = read()
    shown = rows.shown
    list_ = rows.list_[shown]
    position = rows.position[shown]
    doc = rows.documents(rows=shown).code
    explained = _explained(position, doc)
    n_rows = len(position)
    n_docs = doc.max() + 1
    standard_error = np.sqrt(2 * n_docs) / n_rows  # of what documents explain by chance
    # Shuffled pages stand in the order of no score: two standard errors would take one shuffled
    # log of 44 for a served one, three one of 740.
    if explained < 3 * standard_error:
        return False
    if explained > ORDERED_BY_DOCUMENTS.value:
        return not orders_lists(scores[shown], list_, position)
    # An order that is hardly there: three standard errors of a share of one half.
    least = 0.5 + 1.5 / np.sqrt(n_rows)
    return not orders_lists(scores[shown], list_, position, least)


def orders_lists(
    scores: Floats, list_: Ints, position: NDArray[Any], least: float = IN_ORDER.value
) -> bool:
    """True if lists stand mostly in the order of the scores, as those that a ranker served."""
    order = np.lexsort((position, list_))
    is_same_list = np.diff(list_[order]) == 0
    steps = np.diff(scores[order])[is_same_list]
    if not len(steps):  # pages of one row have no order
        return True
    moves = steps[steps != 0]
    if 2 * len(moves) <= len(steps):  # scores that are mostly ties order nothing
        return False
    return bool(np.mean(moves < 0) > least)


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
    # One row that was clicked in all of its impressions is chance, and a hundred are none.
    several = (impressions > 1) & (rows.click > 0)
    if several.sum() >= MANY.value and impressions.max() >= IMPRESSIONS_OF_A_ROW.value:
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
    if "bias" not in rows.from_columns or rows["position"] is None or not _has_many(rows):
        return
    shown = rows.shown
    bias, _ = encode(rows["bias"][shown])
    if _explained(rows.position[shown], bias) >= EXPLAINED.value:
        return
    if _varies_in_lists(bias, rows.list_[shown]):
        yield {}


def propensities_unrelated(rows: Any) -> Iterator[dict[str, Any]]:
    """Propensities, a column of the log, that have nothing to do with the position."""
    if "propensity" not in rows.from_columns or rows["position"] is None or not _has_many(rows):
        return
    if any(propensities_of_actions(rows)):  # which says more
        return
    shown = rows.shown
    propensity = rows["propensity"][shown]
    position, _ = encode(rows.position[shown])
    if propensity.max() <= LEAST_EXAMINATION.value:
        return
    # Few different propensities may be those of users, or of kinds of pages.
    if len(np.unique(propensity)) <= 10:
        return
    if _explained(propensity, position) >= EXPLAINED_BY_POSITION.value:
        return
    if _varies_in_lists(propensity, rows.list_[shown]):
        yield {}


def _has_many(rows):
    """Whether the log has so many rows that were shown that chance explains nothing."""
    return np.count_nonzero(rows.shown) >= MANY.value


def propensities_of_actions(rows: Any) -> Iterator[dict[str, Any]]:
    """What shows that propensities are those of documents to be chosen, not to be examined."""
    if rows["propensity"] is None or not rows.has_places:
        return
    shown = rows.shown
    propensity = rows["propensity"][shown]
    position = rows.position[shown]
    # Without two positions nothing tells examination from choice.
    largest = float(propensity.max(initial=0.0))
    if largest == 0 or position.min(initial=1) == position.max(initial=1):
        return
    if _is_small_everywhere(propensity, position):
        yield {"why": f"is at most {largest!r} and does not depend on the position"}
        return
    if propensity.min() == largest:  # constant, and large: all is seen
        return
    yield from _actions_on_pages(rows, propensity, position)


def _actions_on_pages(rows, propensity, position):
    """As :func:`propensities_of_actions`, by what pages and documents have in common."""
    shown = rows.shown
    list_ = rows.list_[shown]
    if _sums_to_one(propensity, list_) and not _is_of(position, propensity):
        yield {"why": "sums to 1 on the result pages, and differs at one position"}
    elif rows["doc"] is not None and _varies_in_lists(propensity, list_):
        doc = rows.documents(rows=shown).code
        if _stays_with_documents(propensity, doc, position):
            yield {"why": "is the same wherever a document was shown"}


def _is_small_everywhere(propensity, position):
    """Whether propensities are small, and constant or as good as that."""
    if propensity.max() >= LEAST_EXAMINATION.value:
        return False
    if propensity.min() == propensity.max():
        return True
    return abs(spearmanr(propensity, position).statistic) < UNRELATED.value


def _sums_to_one(probability, list_):
    """Whether the probabilities of nearly all lists of several rows sum to 1."""
    is_several = np.bincount(list_) > 1
    total = np.bincount(list_, probability)[is_several]
    if len(total) < FEW.value:
        return False
    # Ten probabilities that were written with three digits sum to 1 up to 0.005.
    return np.mean(np.abs(total - 1) < 0.005) > NEARLY_ALL.value


def _is_of(code, values):
    """Whether all rows of one code have one value."""
    code, _ = encode(code)
    # Any one value of each code stands for it: all others must equal it.
    first = np.zeros(code.max(initial=0) + 1, dtype=values.dtype)
    first[code] = values
    return bool((values == first[code]).all())


def _stays_with_documents(values, doc, position):
    """Whether nearly all documents that moved kept one value."""
    # Documents that never moved would keep any propensity.
    lowest_place, highest_place = _range_by_code(doc, position)
    moved = lowest_place < highest_place
    if moved.sum() < FEW.value:
        return False
    low, high = _range_by_code(doc, values)
    return bool(np.mean((low == high)[moved]) > NEARLY_ALL.value)


def _range_by_code(code, values):
    """The smallest, and the largest, value of each code."""
    n_codes = code.max(initial=0) + 1
    low = np.full(n_codes, np.inf)
    high = np.full(n_codes, -np.inf)
    np.minimum.at(low, code, values)
    np.maximum.at(high, code, values)
    return low, high


def _varies_in_lists(values, list_):
    """True if more lists of several rows than an error would explain have several values."""
    first = np.zeros(list_.max() + 1, dtype=values.dtype)
    first[list_] = values
    n_varying = np.count_nonzero(np.bincount(list_, values != first[list_]))
    n_several = np.count_nonzero(np.bincount(list_) > 1)
    n_in_error = max(LISTS_WITH_ORDER.value, LISTS_IN_ERROR.value * n_several)
    return n_several >= MANY.value and n_varying > n_in_error


def _explained(values, codes):
    """Share of the variance of values that codes explain, less what chance explains."""
    n = len(values)
    n_codes = codes.max() + 1
    count = np.bincount(codes, minlength=n_codes)
    mean = np.bincount(codes, values, n_codes) / np.maximum(count, 1)
    variance = values.var()
    if variance == 0:
        return 1.0
    # As of a regression on the codes: a mean of each takes one degree of freedom.
    residual = np.mean((values - mean[codes]) ** 2) * n / max(n - n_codes, 1)
    return 1.0 - residual / variance


# y that is no click ------------------------------------------------------------------------
def y_grows(rows: Any) -> Iterator[dict[str, Any]]:
    """y that grows from each row of a list to the next: the place, of which 1 is the best."""
    steps = _steps_of_y(rows)
    if len(steps) >= FEW.value and (steps > 0).all():
        yield _examples(rows)


def y_follows_position(rows: Any) -> Iterator[dict[str, Any]]:
    """y that the position determines, or that falls from each row of a list to the next."""
    if any(y_grows(rows)):
        return
    if _position_determines_y(rows):
        yield {"how": "The position determines y", **_examples(rows)}
        return
    if rows.impressions.max(initial=0) > 1:  # examination alone orders precise rates so
        return
    steps = _steps_of_y(rows)
    if len(steps) < MANY.value or (steps >= 0).any():
        return
    # Few lists may be in this order by chance.
    n_lists = len(np.unique(rows.list_[rows.shown]))
    if n_lists >= FEW.value:
        how = f"y is the order of the rows in all {n_lists:,} lists: it falls with the position"
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
    # So many rows per position that single clicks would differ on some.
    n_positions = len(np.unique(_spread(position)))
    least = max(MANY.value, ROWS_OF_A_POSITION.value * n_positions)
    if len(y) < least or y.min() == y.max():
        return False
    # A sample first: it finds at once that clicks are no function of the position.
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
    if not _may_be_places(rows):
        return
    y = rows.click
    # Lists that are long enough to tell places from clicks, and enough of them.
    n_rows = np.bincount(rows.list_)
    is_long = n_rows >= ROWS_WITH_PLACES.value
    n_lists = int(is_long.sum())
    if n_lists < LISTS_WITH_ORDER.value or y.max() < ROWS_WITH_PLACES.value - 1:
        return
    inside = is_long[rows.list_]
    list_ = rows.list_[inside]
    y = y[inside]
    # Nearly all begin with the same place, 0 or 1.
    low, high = _range_by_code(list_, y)
    low = low[is_long]
    high = high[is_long]
    first = np.median(low)
    if first not in (0, 1) or np.mean(low == first) < NEARLY_ALL.value:
        return
    if (high - low >= 2 * n_rows[is_long]).any():  # gaps are of rows that were left out
        return
    if repeated(pair_codes(list_, y.astype(np.int64), int(y.max()) + 1)).any():
        return  # one place twice in a list
    # Larger is better in y, and smaller in places.
    remedy = "1 / y" if first == 1 else "1 / (1 + y)"
    yield {"n": n_lists, "first": int(first), "remedy": remedy}


def _may_be_places(rows):
    """Whether y is whole numbers of rows of one impression, of which nothing was said so far."""
    y = rows.click
    if y is None or rows["impressions"] is not None or (y % 1 != 0).any():
        return False
    return not any(y_grows(rows))


# Result pages -----------------------------------------------------------------------------
def documents_twice(rows: Any) -> Iterator[dict[str, Any]]:
    """Rows whose document an earlier row of the same list shows, too."""
    # Rows that were counted over pages need not be of one page.
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
    # About 5,000 rows are enough for what features have in common throughout.
    return max(1, n_rows // 5_000)


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
        # By number, because names of pandas columns need not be strings.
        values = numbers_of(frame[:, place])
        if values is not None:
            found[name] = values
    return found


def features_that_name(sample: FeatureSample) -> Iterator[dict[str, Any]]:
    """Features that say when, or which row or document, and not what it is like."""
    for name, values in sample.columns.items():
        known = values[~np.isnan(values)]
        # A feature of few values may be anything.
        n_values = len(np.unique(known))
        if n_values < FEW.value:
            continue
        what = _named_by(str(name), known, n_values, sample)
        if what is not None:
            yield {"name": name, "what": what}


def _named_by(name, known, n_values, sample):
    """What known values of a feature are instead of one, or None."""
    if _is_time(name, known):
        return "a time stamp"
    if (known % 1 != 0).any():
        return None
    is_many = n_values >= MANY.value
    if is_many and _NAME_OF_ID.search(name):
        return "an id"
    role = _role_that_equals(known, sample.ids)
    if role is not None:
        return f"an id, because it equals the role {role!r}"
    if not is_many:  # a quantity of few values may be large, or grow, by chance
        return None
    if _are_large_throughout(known):
        return "an id"
    if sample.in_order and (np.diff(known) >= 0).all():
        return "the number of the row or of its result page, because it grows from row to row"
    return None


def _role_that_equals(known, ids):
    """The role whose ids are the known values of a feature, row by row, or None."""
    for role, values in ids.items():
        if np.array_equal(known, values):
            return role
    return None


def _are_large_throughout(known):
    """Whether nearly all values are of one size beyond 32 bits, as hashes are."""
    # Quantities vary in size; hashes and ids fill one range evenly.
    median, high = np.quantile(np.abs(known), (0.5, 0.95))
    return median > ID_BEYOND.value and high < SPREAD_OF_IDS.value * median


def _is_time(name, known):
    """Whether values are seconds (or parts of them) since 1970, dates, or named as times."""
    known = known[known != 0]  # 0 may stand for no time
    if not len(known):
        return False
    low = known.min()
    high = known.max()
    for unit in _PER_SECOND:
        if _SECONDS[0] * unit <= low and high <= _SECONDS[1] * unit:
            return True
    if _DATES[0] <= low and high <= _DATES[1] and (known % 1 == 0).all():
        return _are_dates(known)
    return bool(_NAME_OF_TIME.search(name) and low >= LEAST_TIME.value)


def _are_dates(numbers):
    """Whether whole numbers are dates such as 20240131."""
    month = numbers // 100 % 100
    day = numbers % 100
    is_month = (month >= 1) & (month <= 12)
    is_day = (day >= 1) & (day <= 31)
    return bool((is_month & is_day).all())


def features_that_are_constant(
    columns: Sequence[NDArray[Any]], names: Sequence[Any]
) -> Iterator[dict[str, Any]]:
    """All features, one column each with a value per document, if none of them varies."""
    if not len(columns):
        return
    usual = []
    most_differing = 0
    for column in columns:
        # Trees do not see that fewer documents differ.
        value, n_differing = _usual_and_others(column)
        least = DOCUMENTS_THAT_DIFFER.value if len(column) >= MANY.value else 1
        if n_differing >= least:
            return
        usual.append("missing" if np.isnan(value) else f"{value:g}")
        most_differing = max(most_differing, n_differing)
    pairs = zip(names[:5], usual, strict=False)
    listed = ", ".join(f"{name!r} is {value}" for name, value in pairs)
    if len(usual) > 5:
        listed += ", ..."
    n_docs = len(columns[0])
    but = f", but for {most_differing} of {n_docs:,} documents" if most_differing else ""
    yield {"n": len(usual), "listed": listed, "but": but}


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
    low, high = _range_by_code(code, scores)
    # Equal up to rounding, or equal infinite scores.
    size = np.maximum(np.abs(low), np.abs(high))
    with np.errstate(invalid="ignore"):  # infinite scores
        # Scores that differ by less than 1e-12, relatively, differ by rounding.
        is_flat = (low == high) | (high - low <= 1e-12 * size)
    # Grades have ties in all queries, which are no fault of the scores.
    others = ~is_flat[code]
    if not ties_elsewhere and others.any():
        distinct = np.unique(np.stack([code[others], scores[others]]), axis=1)
        if distinct.shape[1] < NEARLY_ALL.value * np.count_nonzero(others):
            return
    # A query of one document has no order to lose.
    is_flat = is_flat[np.bincount(code) > 1]
    n_queries = len(is_flat)
    if n_queries >= LISTS_WITH_ORDER.value and np.mean(is_flat) >= least:
        yield {"called": called, "n": int(is_flat.sum()), "n_queries": n_queries}
