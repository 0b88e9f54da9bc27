"""What is learned where ``y`` is another outcome than the click: a purchase, or a weighted sum."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from .._base._typing import Column, Floats
from ..exceptions import ClickDataWarning, warn_user
from ._faults import check
from ._reader import as_clicks, take_clicks
from ._roles import OUTCOME, is_frame, read_column, read_role


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


def take_target(X: Any, y: Column | str | Mapping[str, float] | None, caller: str) -> Target:
    """X and what ``y`` names or weighs; any y is an outcome if X has other values as ``click``."""
    if isinstance(y, Mapping):
        column, values = None, _weighted_sum(X, y)
        if [name for name, weight in y.items() if weight] == ["click"]:
            return take_target(X, "click", caller)
    elif isinstance(y, str) and y.startswith(OUTCOME):
        column, values = None, _values_of(X, y)
    else:
        rest, values, column = take_clicks(X, y, caller)
        X = rest if column is None else X  # a dataset became its rows
        if column == "click" or not is_frame(X) or _is_role(X, "click", values):
            return Target(rest, values, column, None, 1.0)
        if read_role(X, "click") is None or _is_role(X, "relevance", values):
            return Target(rest, values, column, None, 1.0)
        X = rest
    clicks = read_role(X, "click")
    if clicks is None:
        raise ValueError(
            f"y is another outcome than the click, {y!r}, and X has no column 'click', from which "
            f"{caller} learns examination. Add the clicks as the column 'click'; to take the "
            "outcome itself for the clicks, pass its values: y=X[name]."
        )
    if _are_equal(values, clicks):
        return Target(X, values, column, None, 1.0)
    check({"outcome": values}, called={"outcome": "y"})
    scale = float(values.max(initial=0.0))
    if not scale > 0:
        warn_user(
            "The outcome is 0 in all rows: there is nothing to learn from it. Check the columns "
            "that y names.",
            ClickDataWarning,
        )
    return Target(X, values / (scale if scale > 0 else 1.0), column, clicks, scale)


def clicks_of(X: Any, y: Any, caller: str) -> tuple[Any, Floats, str | None]:
    """As :func:`take_clicks`; the column ``click`` where ``y`` is another outcome."""
    target = take_target(X, y, caller)
    return target.X, target.y if target.clicks is None else target.clicks, target.column


def _is_role(X, role, values):
    known = read_role(X, role)
    return known is not None and _are_equal(known, values)


def _are_equal(some, others):
    """Whether two columns hold the same numbers, be it in single precision."""
    return some.shape == others.shape and np.allclose(some, others, rtol=1e-6, equal_nan=True)


def _weighted_sum(X, weights):
    wrong = {
        name: weight
        for name, weight in weights.items()
        if not (isinstance(weight, Real) and np.isfinite(weight) and weight >= 0)
    }
    if wrong or not any(weights.values()):
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


def _values_of(X, name):
    """An outcome as numbers of at least 0, (n_rows,)."""
    values = as_clicks(X, read_column(X, name))
    check({"outcome": values}, called={"outcome": f"The column {name!r}"})
    return values
