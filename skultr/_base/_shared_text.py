"""Passages that several public docstrings share, written once."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from typing import TypeVar

Documented = TypeVar("Documented")
_PLACE = re.compile(r"^( *)\{(\w+)\}$", re.MULTILINE)


def with_shared_text(**texts: str) -> Callable[[Documented], Documented]:
    """Decorator that puts texts, indented alike, for lines ``{name}`` of a docstring.

    In a class it does so for the methods, too.
    """

    def described(item: Documented) -> Documented:
        members = vars(item).values() if inspect.isclass(item) else ()
        methods = (getattr(member, "__func__", member) for member in members)
        for method in filter(inspect.isfunction, methods):
            described(method)
        if item.__doc__:  # none with python -OO
            item.__doc__ = _PLACE.sub(
                lambda place: textwrap.indent(texts[place[2]], place[1]), item.__doc__
            )
        return item

    return described
