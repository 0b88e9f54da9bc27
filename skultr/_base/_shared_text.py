"""Passages that several public docstrings share, written once."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from typing import TypeVar

Documented = TypeVar("Documented")
_PLACE = re.compile(r"^( *)\{(\w+)\}$", re.MULTILINE)


def with_shared_text(**texts: str) -> Callable[[Documented], Documented]:
    """Decorator that puts texts, indented alike, for lines ``{name}`` of a docstring.

    Names that are not among them are left to another decorator.
    """

    def described(item: Documented) -> Documented:
        if item.__doc__:  # none with python -OO
            item.__doc__ = _PLACE.sub(
                lambda place: textwrap.indent(texts.get(place[2], place[0].strip()), place[1]),
                item.__doc__,
            )
        return item

    return described
