"""The file of a comparison: its settings, and a line for each finished cell."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Iterator, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import CodeType
from typing import Any

import joblib
import numpy as np
import pandas as pd

from ._comparison_table import CELL

#: Settings that have names of their own: others may join later, those of one name must agree.
_NAMED = ("rankers", "users", "production")
#: Digits of a checksum: one in 10**14 others has the same.
_DIGITS = 12


class ComparisonFile:
    """Lines of JSON: the settings of each call that brought new ones, and each finished cell.

    Without a path there is no file, and nothing is kept.
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = None if path is None else Path(path)

    def open(self, settings: Mapping[str, Any]) -> dict[tuple[Any, ...], dict[str, Any]]:
        """Finished cells by their key; an error if they are of other settings."""
        if self.path is None:
            return {}
        # A file of other software stays as it is.
        lines = list(self._lines())
        known: dict[str, Any] = {}
        for line in lines:
            known = _united(known, line.get("settings", {}))
        asked = _described_settings(settings)
        self._refuse_other(known, asked)
        if _united(known, asked) != known:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._append({"settings": asked})
        cells = [line["cell"] for line in lines if "cell" in line]
        return {tuple(cell[name] for name in CELL): cell for cell in cells}

    def add(self, cell: Mapping[str, Any]) -> None:
        """Write a finished cell."""
        if self.path is not None:
            self._append({"cell": cell})

    def _append(self, line):
        # One write of a file that is open for appending: lines of several processes stay whole.
        # The line break comes first as well, because a process may have died within its line.
        data = "\n" + json.dumps(line) + "\n"
        with open(self.path, "ab", buffering=0) as file:
            file.write(data.encode())

    def _lines(self) -> Iterator[dict[str, Any]]:
        """Lines that are whole; an error if there is anything, but no settings."""
        if not self.path.exists():
            return
        text = self.path.read_text(encoding="utf-8", errors="replace")
        found = [line for line in map(_parsed, text.splitlines()) if line]
        if text.strip() and not any("settings" in line for line in found):
            raise ValueError(
                f"path={str(self.path)!r} is a file that run_comparison did not write; expected "
                "none, or one of an earlier call. Pass the path of a new file."
            )
        yield from found

    def _refuse_other(self, known, asked):
        found = _differences(known, asked) if known else []
        if found:
            # Five differences tell what to look at; all may be pages long.
            told = "\n  ".join(found[:5])
            more = f"\n  and {len(found) - 5} more" if found[5:] else ""
            raise ValueError(
                f"path={str(self.path)!r} holds a comparison with other settings:\n"
                f"  {told}{more}\n"
                "Pass another path, or the settings of the file. A ranker, user or production "
                "ranker with other parameters can join under a new name."
            )


def _parsed(line):
    """A line as a dict; an empty one where it is not whole."""
    try:
        found = json.loads(line)
    except json.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) and {*found} <= {"settings", "cell"} else {}


# Settings -----------------------------------------------------------------------------
def _described_settings(settings):
    described = {name: _described(value) for name, value in settings.items()}
    return described | {"release of skultr": version("skultr")}


def _united(known, more):
    """Settings of both, where they agree."""
    united = known | more
    for name in _NAMED:
        named = known.get(name, {}) | more.get(name, {})
        if named:
            united[name] = named
    return united


def _differences(known, asked):
    """Sentences about what differs."""
    found = []
    for part in dict.fromkeys([*known, *asked]):
        if part not in _NAMED:
            found += _differing(part, known.get(part), asked.get(part))
            continue
        for name in known.get(part, {}).keys() & asked.get(part, {}).keys():
            found += _differing(f"{part}[{name!r}]", known[part][name], asked[part][name])
    return found


def _differing(what, known, asked):
    if isinstance(known, dict) and isinstance(asked, dict):
        names = dict.fromkeys([*known, *asked])
        parts = [_differing(f"{what}.{name}", known.get(name), asked.get(name)) for name in names]
        return [sentence for part in parts for sentence in part]
    if known == asked:
        return []
    return [f"{what} is {_told(known)} in the file, and {_told(asked)} in this call"]


def _told(value):
    if value is None:
        return "not there"
    return value if isinstance(value, str) else json.dumps(value)


def _described(value: Any) -> Any:
    """What decides how a value acts, as text, lists of texts and dicts of texts.

    The same in every process: no addresses, no order of a set.
    """
    # The order matters: what is of several kinds is the first of them.
    if isinstance(value, np.generic):  # some are also of Python's types
        return repr(value.item())
    if isinstance(value, bool | int | float | str | bytes | None):
        return repr(value)
    if isinstance(value, pd.DataFrame):
        return _of_frame(value)
    if isinstance(value, np.ndarray | pd.Series | pd.Index):
        return _of_array(value)
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return _of_container(value)
    if isinstance(value, type) or callable(value):
        described = _of_callable(value)
        if described is not None:
            return described
    if _is_its_attributes(value):
        return _of_object(value)
    return f"{_name_of(type(value))} {joblib.hash(value)}"


def _is_its_attributes(value):
    """Whether attributes of Python are all that a value has."""
    if not hasattr(value, "__dict__"):
        return False
    # A subclass of NumPy's generators has no attribute: its state is in C, and it says how to
    # rebuild that. Without the state two generators would be described alike.
    rebuilds_itself = type(value).__reduce__ is not object.__reduce__
    return hasattr(value, "get_params") or not rebuilds_itself


def _of_container(values):
    if isinstance(values, Mapping):
        return {str(name): _described(each) for name, each in values.items()}
    described = [_described(each) for each in values]
    # A set has another order in each process.
    return sorted(map(str, described)) if isinstance(values, set | frozenset) else described


def _of_callable(value):
    """A class, a function, a method or a partial; None for an object with ``__call__``."""
    if isinstance(value, type):
        return _name_of(value)
    if isinstance(value, partial):
        return _described([value.func, value.args, value.keywords])
    if inspect.ismethod(value):
        return _described([value.__func__, value.__self__])
    return _of_function(value) if inspect.isroutine(value) else None


def _name_of(item):
    return f"{item.__module__}.{item.__qualname__}"


def _checksum(described):
    text = json.dumps(described, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _of_frame(frame):
    rows = pd.util.hash_pandas_object(frame, index=False).to_numpy()
    content = [list(map(str, frame.columns)), joblib.hash(rows)]
    return f"frame of shape {frame.shape}, checksum {_checksum(content)}"


def _of_array(values):
    values = np.asarray(values)
    content = joblib.hash(values.tolist() if values.dtype == object else values)
    return f"array of shape {values.shape}, checksum {content[:_DIGITS]}"


def _of_function(function):
    code = getattr(function, "__code__", None)
    if code is None:  # of a compiled module
        return _name_of(function) if hasattr(function, "__qualname__") else repr(function)
    closed = [cell.cell_contents for cell in function.__closure__ or ()]
    content = [_of_code(code), _described(closed), _described(function.__defaults__)]
    content.append(_described(function.__kwdefaults__))
    # Where it is defined does not matter: a script has another module when it is imported.
    return f"function {function.__name__}, checksum {_checksum(content)}"


def _of_code(code):
    consts = [_of_code(c) if isinstance(c, CodeType) else _described(c) for c in code.co_consts]
    return [code.co_code.hex(), list(code.co_names), consts]


def _of_object(value):
    """The class and the parameters of an estimator, a user or a policy."""
    if hasattr(value, "get_params"):
        params = value.get_params(deep=False)
        is_fitted = any(name.endswith("_") and not name.startswith("_") for name in vars(value))
        if is_fitted:
            # A frozen estimator is part of the method with all that it has learned.
            params["what it has learned"] = joblib.hash(value)
    else:
        params = vars(value)
    described = {name: _described(param) for name, param in sorted(params.items())}
    return {"class": _name_of(type(value)), **described}
