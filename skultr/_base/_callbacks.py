"""Callbacks of a fit by scikit-learn, which has them from 1.9 on; imported here only.

They are experimental there. With scikit-learn 1.8 estimators have no ``set_callbacks``, and the
steps of a fit are told to nobody.
"""

from __future__ import annotations

from typing import Any

__all__ = ["CallbackSupportMixin", "with_callbacks"]

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ModuleNotFoundError:

    class _NoCallbacks:
        """The context of a fit that nobody watches: its methods do nothing, and none stops it."""

        def subcontext(self, **about: Any) -> _NoCallbacks:
            """The context of a step of the fit."""
            return self

        def call_on_fit_task_begin(self, **step: Any) -> _NoCallbacks:
            """Tell callbacks that a step begins."""
            return self

        def call_on_fit_task_end(self, **step: Any) -> bool:
            """Tell callbacks that a step has ended; whether one of them stops the fit."""
            return False

    class CallbackSupportMixin:
        """An estimator whose fit tells nobody of its steps."""

        def _init_callback_context(self, **about: Any) -> _NoCallbacks:
            return _NoCallbacks()

    def with_callbacks(method: Any) -> Any:
        """The method as it is: there is nothing to end after it."""
        return method
