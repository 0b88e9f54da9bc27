"""What pickles leave out: parts of the training log, which no prediction reads."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self

#: Attribute of an unpickled estimator: names of those that its pickle left out.
LEFT_OUT = "_left_out"


class NotPickled:
    """A fitted attribute that stays in memory, and that pickles of its estimator leave out.

    It stands in the class, under the name of the attribute. The value itself is an attribute of
    the estimator as any other; without one, an error says why there is none. None is kept.
    """

    def __init__(self, what: str, *, when: Callable[[Any], bool] | None = None) -> None:
        self.what = what
        self.when = when

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, estimator: Any, owner: type | None = None) -> Any:
        if estimator is None:
            return self
        cls, name = type(estimator).__name__, self.name
        if name not in vars(estimator).get(LEFT_OUT, ()):
            raise AttributeError(f"{cls!r} object has no attribute {name!r}")
        raise AttributeError(
            f"This {cls} was loaded from a file, or came from a worker (n_jobs) or a cache "
            f"(Pipeline's memory), without {name} ({self.what}). Fit it here, with n_jobs=None "
            f"and no cache; or pickle both, as in joblib.dump((model, model.{name}), file), and "
            f"set model.{name} again once loaded."
        )

    def leaves_out(self, value: Any) -> bool:
        """Whether pickles leave this value out."""
        return value is not None and (self.when is None or self.when(value))


class SlimPickles:
    """Mixin of estimators whose pickles leave out the attributes that are :class:`NotPickled`.

    ``copy.copy`` and ``copy.deepcopy`` keep them, although both usually ask for the same state.
    """

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        left_out = {
            name
            for name in state
            if isinstance(attribute := getattr(type(self), name, None), NotPickled)
            and attribute.leaves_out(state[name])
        }
        state = {name: value for name, value in state.items() if name not in left_out}
        left_out.update(state.pop(LEFT_OUT, ()))
        return {**state, LEFT_OUT: sorted(left_out)} if left_out else state

    def __copy__(self) -> Self:
        copied = type(self).__new__(type(self))
        vars(copied).update(vars(self))
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        vars(copied).update(copy.deepcopy(vars(self), memo))
        return copied


def if_fitted(estimator: Any, name: str) -> Any:
    """The fitted attribute, None if there is none; an error if a pickle left it out."""
    if name in getattr(estimator, LEFT_OUT, ()):
        return getattr(estimator, name)
    return getattr(estimator, name, None)
