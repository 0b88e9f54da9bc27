"""What every ``fit`` and ``partial_fit`` has in common: what an error leaves, and callbacks."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, cast

from .._base._progress import working
from .._base._threads import few_threads
from ..exceptions import saying_once

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
        forget(self)
        try:
            return _told(fit, self, args, kwargs)
        except BaseException:
            forget(self)
            raise

    return cast(Fit, wrapper)


def unless_it_fails(partial_fit: Fit) -> Fit:
    """Decorate a method ``partial_fit``: after an error the estimator is what it was before.

    The method must not write into objects that the estimator holds; it sets others.
    """

    @wraps(partial_fit)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = dict(vars(self))
        try:
            return _told(partial_fit, self, args, kwargs)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return cast(Fit, wrapper)


def _told(fit, self, args, kwargs):
    """The result of a fit that says what the columns were read as, or all faults of the log."""
    with few_threads(), working(type(self).__name__), saying_once() as outermost:
        try:
            result = fit(self, *args, **kwargs)
        except ValueError as error:
            if outermost and hasattr(self, "_tell_faults"):
                self._tell_faults(error, **_arguments(fit, self, args, kwargs))
            raise
        if hasattr(self, "_tell_roles"):
            self._tell_roles(**_arguments(fit, self, args, kwargs))
        return result


def _arguments(fit, self, args, kwargs):
    return dict([*signature(fit).bind(self, *args, **kwargs).arguments.items()][1:])


def forget(estimator: Any, keep: Collection[str] = ()) -> None:
    """Delete every attribute that is neither a parameter, nor scikit-learn's own, nor to keep."""
    keep = {*estimator.get_params(deep=False), *keep}
    for name in [*vars(estimator)]:
        if name not in keep and not name.startswith(_OF_SCIKIT_LEARN):
            delattr(estimator, name)
