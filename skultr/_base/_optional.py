"""Packages of an extra, imported where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def optional(module: str, extra: str) -> Any:
    """A module of an optional package; without it an error that names the extra to install."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f'This needs {package}, which is not installed: pip install "skultr[{extra}]".'
        ) from error
