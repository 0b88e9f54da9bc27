"""A contract: a class of checks, each run on an instance of its own."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .._base._shared_text import with_shared_text
from ..exceptions import (
    AssumptionWarning,
    ClickDataWarning,
    MissingRoleWarning,
    NotIdentifiableWarning,
)

Check = tuple[str, Callable[[], None]]

#: The logs of the checks are small, and some are aggregated; estimators may warn about that.
_ALLOWED = (AssumptionWarning, ClickDataWarning, MissingRoleWarning, NotIdentifiableWarning)


class Contract:
    """Its methods ``check_...`` fail with an AssertionError."""

    @classmethod
    def checks(cls, *subject: Any, but: tuple[str, ...] = ()) -> list[Check]:
        """The checks of one subject as (name, callable) pairs, those of base classes first."""
        names = [name for base in reversed(cls.__mro__) for name in vars(base)]
        names = [name for name in dict.fromkeys(names) if name.startswith("check_")]
        return [(name, partial(cls._run, name, *subject)) for name in names if name not in but]

    @classmethod
    def _run(cls, name, *subject):
        with warnings.catch_warnings():
            for category in _ALLOWED:
                warnings.simplefilter("ignore", category)
            getattr(cls(*subject), name)()


def run_all(checks: list[Check], generate_only: bool) -> list[Check] | None:
    """Run the checks, or return them."""
    if generate_only:
        return checks
    for _, check in checks:
        check()
    return None


def assert_probabilities(values: Any, shape: tuple[int, ...], name: str) -> None:
    """An array of numbers from 0 to 1."""
    assert isinstance(values, np.ndarray), f"{name} returned {type(values).__name__}, not an array"
    assert values.shape == shape, f"{name} returned the shape {values.shape}, expected {shape}"
    assert values.dtype.kind == "f", f"{name} returned {values.dtype}, expected floats"
    good = (values >= 0) & (values <= 1)
    assert good.all(), f"{name} returned {values[~good].flat[0]}, which is no probability"


describes_a_check = with_shared_text(
    generate_only="""\
generate_only : bool, default=False
    Return the checks as (name, callable) pairs instead of running them, for use with
    ``pytest.mark.parametrize``.

Returns
-------
checks : list of (str, callable)
    Only with ``generate_only=True``.

Raises
------
AssertionError
    By the first check that fails; its name is in the traceback."""
)
