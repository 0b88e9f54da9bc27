"""What all checks share: how they run, and frames and ids that must not matter."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pandas as pd
from sklearn.base import BaseEstimator, clone

from ..exceptions import (
    AssumptionWarning,
    ClickDataWarning,
    MissingRoleWarning,
    NotIdentifiableWarning,
)

Check = tuple[str, Callable[[], None]]

#: The logs of the checks are small, and some are aggregated; estimators may warn about that.
_ALLOWED = (AssumptionWarning, ClickDataWarning, MissingRoleWarning, NotIdentifiableWarning)


def named(
    checks: Iterable[Callable[..., None]], *subject: Any, make_log: Callable[[], tuple] = tuple
) -> list[Check]:
    """Checks of one subject, each with a log of its own, as (name, callable) pairs."""
    return [
        (check.__name__.lstrip("_"), partial(_run, check, make_log, *subject)) for check in checks
    ]


def run_all(checks: list[Check], generate_only: bool) -> list[Check] | None:
    """Run the checks, or return them."""
    if generate_only:
        return checks
    for _, check in checks:
        check()
    return None


def _run(check: Callable[..., None], make_log: Callable[[], tuple], *subject: Any) -> None:
    with warnings.catch_warnings():
        for category in _ALLOWED:
            warnings.simplefilter("ignore", category)
        check(*subject, *make_log())


def quick(estimator: BaseEstimator) -> BaseEstimator:
    """A clone with a short, seeded training in one batch, if it has such parameters."""
    settings = {
        "learning_rate": 0.05,  # large enough for small differences to show
        "max_epochs": 10,
        "batch_size": 4096,
        "early_stopping": False,
        "random_state": 0,
    }
    known = estimator.get_params()
    return clone(estimator).set_params(
        **{name: value for name, value in settings.items() if name in known}
    )


def relabelled(ids: pd.Series) -> pd.Series:
    """Text ids in an order unrelated to the old one."""
    return ids.map(lambda value: f"{(value * 7919) % 100_003}-é")


def other_frames(log: pd.DataFrame) -> list[Any]:
    """The log as a Polars frame and a PyArrow table, if both are installed."""
    try:
        import polars as pl
        import pyarrow as pa
    except ImportError:
        return []
    table = pa.Table.from_pandas(log, preserve_index=False)
    return [pl.from_arrow(table), table]
