"""What each role may hold: checks of single roles, and their codes."""

import numpy as np

from ..exceptions import ClickDataWarning, MissingRoleWarning, warn_user
from ._segments import encode, rank_in_segment

__all__ = [
    "bias_codes",
    "check_clicks",
    "check_impressions",
    "check_positions",
    "check_propensity",
    "list_codes",
    "query_codes",
    "warn_about_lost_clicks",
]


# --------------------------------------------------------------------------------------
# Checks of single roles
# --------------------------------------------------------------------------------------
def check_clicks(y):
    y = np.asarray(y, dtype=float)
    if not np.isfinite(y).all():
        bad = int(np.flatnonzero(~np.isfinite(y))[0])
        raise ValueError(
            f"Input y contains NaN or infinity: y[{bad}] is {y[bad]}. Expected a click (0 or 1) "
            "or a click rate in [0, 1] for every row; give a row that was not shown y = 0 and a "
            "missing position."
        )
    if (y < 0).any():
        bad = int(np.flatnonzero(y < 0)[0])
        raise ValueError(
            f"y holds negative values: y[{bad}] is {y[bad]:g}. Expected clicks (0 or 1), click "
            "rates in [0, 1] or graded relevance (0, 1, 2, ...)."
        )
    largest = y.max(initial=0.0)
    if largest > 1:
        warn_user(
            f"y has values above 1 (up to {largest:g}): it is read as graded relevance and "
            "divided by its maximum. If these are click counts, pass clicks / impressions as y "
            "and the impressions in the column or keyword 'impressions'.",
            ClickDataWarning,
        )
        y = y / largest
    return y


def warn_about_lost_clicks(rate, shown):
    lost = np.flatnonzero((rate > 0) & ~shown)
    if len(lost):
        warn_user(
            f"{len(lost)} rows have a click but were not shown (no position, or 0 impressions), "
            f"first row {lost[0]}: these clicks cannot be used and do not count. Check the "
            "positions.",
            ClickDataWarning,
        )


def check_impressions(impressions, sample_weight, n_rows):
    weight = np.ones(n_rows)
    for name, value in (("impressions", impressions), ("sample_weight", sample_weight)):
        if value is None:
            continue
        value = np.asarray(value, dtype=float)
        bad = np.flatnonzero(~np.isfinite(value) | (value < 0))
        if len(bad):
            raise ValueError(
                f"{name} must be finite and at least 0, got {value[bad[0]]:g} in row {bad[0]}."
            )
        weight = weight * value
    return weight


def query_codes(qid, n_rows):
    if qid is None:
        warn_user(
            "X has no column 'qid' and no qid was passed: all rows are taken as one query. "
            "Rename your query column to 'qid', or pass qid=.",
            MissingRoleWarning,
        )
    return _codes_or_zeros(qid, n_rows)


def _codes_or_zeros(ids, n_rows):
    if ids is None:
        return np.zeros(n_rows, dtype=np.intp), np.zeros(1, dtype=int)
    return encode(ids)


def list_codes(query, session):
    """One code a (query, session), in the order of the queries."""
    if session is None:
        return query
    code, ids = encode(session)
    return encode(query * len(ids) + code)[0]


def check_positions(position, list_):
    """Positions as int64, 0 where the row was not shown."""
    if position is None:
        warn_user(
            "X has no column 'position' and no position was passed: the order of the rows in "
            "each list is taken as the order in which they were shown. Add the column 'position' "
            "(from 1), or pass position=.",
            MissingRoleWarning,
        )
        return rank_in_segment(list_, np.zeros(len(list_)))
    missing = np.isnan(position)
    bad = np.flatnonzero(
        ~missing & ~((position >= 1) & (position < 2**53) & (position == np.floor(position)))
    )
    if len(bad):
        raise ValueError(
            f"position must be a whole number from 1, or missing where a row was not shown; got "
            f"{position[bad[0]]:g} in row {bad[0]}. If your log counts from 0, add 1."
        )
    return np.where(missing, 0, position).astype(np.int64)


def bias_codes(bias, position, shown):
    """Code of the bias factor of each row (-1 where not shown) and the factors."""
    if bias is None:
        bias = position
    elif np.isnan(bias[shown]).any():
        raise ValueError(
            f"bias is missing in {int(np.isnan(bias[shown]).sum())} rows that were shown; "
            "expected the code of a bias factor in each of them."
        )
    values = bias[shown]
    bad = np.flatnonzero(~np.isfinite(values) | (values != np.floor(values)))
    if len(bad):
        raise ValueError(
            f"bias must hold whole numbers, the codes of bias factors; got {values[bad[0]]:g}. "
            "Number the factors, for example with pandas.factorize."
        )
    shown_codes, values = encode(values.astype(np.int64, copy=False))
    codes = np.full(len(bias), -1, dtype=np.intp)
    codes[shown] = shown_codes
    return codes, values


def check_propensity(propensity, shown):
    if propensity is None:
        return None
    bad = np.flatnonzero(shown & ~((propensity > 0) & (propensity <= 1)))
    if len(bad):
        raise ValueError(
            f"propensity must lie in (0, 1] where a row was shown, got {propensity[bad[0]]:g} in "
            f"row {bad[0]}. A row that could not be examined should have no position."
        )
    return np.where(shown, propensity, 1.0)
