"""What every ``fit`` has in common: it deletes earlier results, and informs callbacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

from .._threads import few_threads

__all__ = ["FitTask", "afresh"]

Fit = TypeVar("Fit", bound=Callable[..., Any])

#: Prefixes of the attributes that scikit-learn itself sets on an estimator: requested metadata,
#: the output container, callbacks and their contexts.
_OF_SCIKIT_LEARN = ("_metadata_request", "_skl", "_callback_fit_ctx", "_parent_callback_ctx")


@dataclass(frozen=True, eq=False)
class FitTask:
    """A fit as scikit-learn's callbacks see it: its context and its data."""

    context: object
    X: object
    y: object


def afresh(fit: Fit) -> Fit:
    """Decorate a method ``fit``: it deletes all fitted attributes first, and also if it fails.

    Otherwise a refit with other parameters would keep attributes that it does not set, and an
    interrupted fit would leave half a model that still predicts. After an error, a callback's stop
    or Ctrl-C, the estimator is not fitted. What is small in a fit runs on one thread.
    """

    @wraps(fit)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        _forget(self)
        try:
            with few_threads():
                return fit(self, *args, **kwargs)
        except BaseException:
            _forget(self)
            raise

    return cast(Fit, wrapper)


def _forget(estimator: Any) -> None:
    """Delete every attribute that is neither a parameter nor scikit-learn's own."""
    parameters = estimator.get_params(deep=False)
    for name in [*vars(estimator)]:
        if name not in parameters and not name.startswith(_OF_SCIKIT_LEARN):
            delattr(estimator, name)
