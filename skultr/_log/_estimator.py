"""What every ``fit`` does around its own work: it forgets, and tells scikit-learn's callbacks."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

__all__ = ["FitTask", "afresh"]

Fit = TypeVar("Fit", bound=Callable[..., Any])

#: Beginnings of the names that scikit-learn itself keeps on an estimator: requested metadata, the
#: output container, callbacks and their contexts.
_OF_SCIKIT_LEARN = ("_metadata_request", "_skl", "_callback_fit_ctx", "_parent_callback_ctx")


@dataclass(frozen=True, eq=False)
class FitTask:
    """What scikit-learn's callbacks are told about a fit: its context and its data."""

    context: object
    X: object
    y: object


def afresh(fit: Fit) -> Fit:
    """Decorate a method ``fit``: nothing of an earlier fit survives it, nor of one that failed.

    A refit with other parameters would else keep attributes that a first fit does not set, and an
    interrupted one half a model that predicts. Whatever ends ``fit`` early, be it an error, a
    callback or Ctrl-C, the estimator is not fitted afterwards.
    """

    @wraps(fit)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        _forget(self)
        try:
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
