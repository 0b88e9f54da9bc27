"""The parameter ``variant``: while an estimator learns, settings of its paper replace defaults."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from ._shared_text import with_shared_text
from ._sklearn import StrOptions

#: What ``_published`` may set that is no parameter, in words.
_HIDDEN = {"_averages_weights": "the weights of the last step (or of the best epoch)"}


@dataclass(kw_only=True, eq=False, repr=False)
class HasPublishedVariant:
    """Mixin of estimators with a form as published, which ``variant="published"`` asks for.

    ``_published`` holds the settings of the paper that are not the defaults here, by the name of
    the parameter, or of another attribute that the code reads; a class may make it a property.
    What no attribute says is code that reads ``variant``. A line ``{published}`` of the docstring
    of a class becomes the list of its settings.
    """

    variant: Literal["default", "published"] = "default"

    _parameter_constraints = {"variant": [StrOptions({"default", "published"})]}
    _published = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if isinstance(cls._published, Mapping):
            with_shared_text(published=_in_words(cls._published))(cls)

    def _setting(self, name: str) -> Any:
        """A parameter that predictions read: they have the settings of the fit."""
        return published_settings(self).get(name, getattr(self, name))


@contextmanager
def as_published(estimator: Any) -> Iterator[None]:
    """Context in which the settings of the paper stand in for parameters left at their defaults.

    Afterwards all parameters are what they were. Without ``variant="published"`` nothing changes.
    """
    # Parameters are attributes: they are exchanged, and put back whatever happens.
    settings = published_settings(estimator)
    before = {name: vars(estimator)[name] for name in settings if name in vars(estimator)}
    vars(estimator).update(settings)
    try:
        yield
    finally:
        for name in settings.keys() - before.keys():
            # Settings that had no attribute before, only a default of the class.
            vars(estimator).pop(name, None)
        vars(estimator).update(before)


def published_settings(estimator: Any) -> dict[str, Any]:
    """What the variant of an estimator sets: not what the user has set otherwise."""
    if getattr(estimator, "variant", None) != "published":
        return {}
    cls = type(estimator)
    settings = {}
    for name, value in getattr(estimator, "_published", {}).items():
        # A value that the user has chosen stays, also in the published variant.
        if _is_default(getattr(estimator, name), getattr(cls, name)):
            settings[name] = value
    return settings


def _is_default(value, default):
    # Of one type, because 1 == True and 1 == 1.0.
    return value is default or (type(value) is type(default) and value == default)


def _in_words(settings):
    """The settings as a sentence of a docstring."""
    public = {name: value for name, value in settings.items() if not name.startswith("_")}
    shown = [f"``{name}={_code(value)}``" for name, value in public.items()]
    shown += [words for name, words in _HIDDEN.items() if name in settings]
    if not shown:
        return "No other default changes."
    text = f"In place of defaults it has {', '.join(shown)}. Other values that are given stay."
    # Lines of 92 characters, because docstrings of classes are indented.
    return textwrap.fill(text, 92, break_on_hyphens=False)


def _code(value):
    return f'"{value}"' if isinstance(value, str) else repr(value)
