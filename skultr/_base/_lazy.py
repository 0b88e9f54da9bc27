"""Public names that are imported when they are first asked for (PEP 562)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, Iterable[str]], submodules: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package that imports on demand.

    ``homes`` are modules of the package and the names that each defines, and ``submodules`` are
    themselves attributes. The ``__init__`` of the package repeats the names as imports under
    ``TYPE_CHECKING``, for editors and type checkers; ``tests/test_layers.py`` compares the two.
    """
    home_of = {name: home for home, names in homes.items() for name in names}
    submodules = set(submodules)

    def __getattr__(name: str) -> Any:
        # Python asks here only for names that the package does not have yet.
        if name in home_of:
            return getattr(import_module(f".{home_of[name]}", package), name)
        if name in submodules:
            return import_module(f".{name}", package)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    names = sorted([*home_of, *submodules])
    return __getattr__, lambda: names, names
