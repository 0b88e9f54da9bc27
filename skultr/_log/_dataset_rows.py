"""The one pass over a log in parts: checks, codes of ids, and rows in files by query."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._typing import Ints
from ..exceptions import ClickDataWarning, warn_user
from ._counted import EngineLog, check_numbers
from ._faults import IDS, NO_ROWS
from ._hashing import hash_columns, mix, row_hashes
from ._offsets import is_far
from ._roles import ROLES, check_team, is_role, read_scope
from ._segments import encode

if TYPE_CHECKING:
    import pyarrow as pa

#: Files that the rows are spread over: a log of 100 million rows gives files of 1.5 million.
N_FILES = 64
#: Written in a row that was not shown.
NOT_SHOWN = -1
#: Keys that are kept before they are merged.
_MOST_KEYS = 1 << 22
_NUMBERS = ("impressions", "propensity", "production")


class IdCodes:
    """A key for each id while a log is read, and the sorted ids after that.

    Integers are their own keys; other ids get numbers in the order in which they are met.
    """

    def __init__(self, whole: bool) -> None:
        self.whole = whole
        self._found: list[NDArray[np.int64]] = []
        self._keys: dict[Any, int] = {}

    def add(self, column: pa.ChunkedArray) -> Ints:
        """Keys of a column, whose ids are known from now on."""
        if not self.whole:
            known = self._keys
            return _of_distinct(column, lambda value: known.setdefault(value, len(known)))
        keys = column.to_numpy().astype(np.int64, copy=False)
        self._found.append(np.unique(keys))
        if sum(map(len, self._found[1:])) > _MOST_KEYS:
            self._found = [np.unique(np.concatenate(self._found))]
        return keys

    def find(self, column: pa.ChunkedArray) -> Ints:
        """Rank of each id of a column among the sorted ids, -1 for one that is not known."""
        if not self.whole:
            keys = _of_distinct(column, lambda value: self._keys.get(value, -1))
            return np.where(keys >= 0, self._ranks[keys], -1)
        values = column.to_numpy()
        if values.dtype.kind not in "iuf":  # "11" is not the id 11
            values = np.array([value if type(value) is int else np.nan for value in values])
        with np.errstate(invalid="ignore"):
            keys = values.astype(np.int64, copy=False)
        place = np.minimum(np.searchsorted(self.ids, keys), len(self.ids) - 1)
        return np.where((self.ids[place] == keys) & (keys == values), place, -1)

    def sort(self) -> None:
        """Sort the ids, once all are known; sets ``ids``."""
        if not self.whole:
            self._ranks, self.ids = encode(np.array([*self._keys], dtype=object))
            return
        self.ids = np.unique(np.concatenate([*self._found, np.empty(0, dtype=np.int64)]))
        self._low = int(self.ids[0]) if len(self.ids) else 0
        n = int(self.ids[-1]) - self._low + 1 if len(self.ids) else 0  # may exceed 64 bits
        self._ranks = None
        if n <= 4 * len(self.ids) + _MOST_KEYS:  # a table is much quicker than searching
            self._ranks = np.zeros(n, dtype=np.int32)
            self._ranks[self.ids - self._low] = np.arange(len(self.ids))

    def ranks(self, keys: Ints) -> Ints:
        """Rank of the id of each key among the sorted ids."""
        if self._ranks is None:
            return np.searchsorted(self.ids, keys)
        return self._ranks[keys - self._low if self.whole else keys].astype(np.intp)


class SpreadRows:
    """Rows of a log, checked, in files by query; ids are keys in ``query``, ``doc`` and ``user``.

    With ``with_features``, columns without a role are features of the rows.
    """

    def __init__(self, schema: pa.Schema, click: str, with_features: bool, folder: Path) -> None:
        names = schema.names
        _check_columns(names, click, with_features)
        self.schema = nw.from_native(schema.empty_table()).schema
        check_numbers(self.schema, ["position", "bias", click, *_NUMBERS])
        self.click = click
        self.has_docs = "doc" in names
        self.has_bias = "bias" in names
        self.scope = "query"
        self.features = feature_names(schema, click) if with_features else []
        self.query, self.doc, self.user = (
            IdCodes(_fits_int64(self.schema.get(name))) for name in ("qid", "doc", "user")
        )
        self.n_rows, self.largest_click = 0, 0.0
        self.ranges = FeatureRanges(self.features)
        self.row_type = np.dtype(
            [("query", "i8"), ("list", "u8"), ("doc", "u8"), ("position", "i8"), ("click", "f8")]
            + [("bias", "i8")] * self.has_bias
            + [("user", "i8")] * ("user" in names)
            + [("hash", "u8")] * (self.has_docs and bool(self.features))
            + [(name, "f8") for name in _NUMBERS if name in names]
        )
        self.feature_type = np.dtype(
            [("query", "i8"), ("doc", "u8"), ("hash", "u8"), ("row", "f4", (len(self.features),))]
        )
        self._folder = folder
        self._files: dict[tuple[str, int], Any] = {}
        self._said: set[str] = set()
        self._scopes: set[Any] = set()

    def add(self, part: pa.Table) -> None:
        """Check the rows of a part, and append them to their files."""
        self._check(part)
        values = None
        if self.features:
            values = read_feature_rows(part, self.features, self.n_rows, self.ranges)
        rows = np.empty(part.num_rows, dtype=self.row_type)
        rows["query"] = self.query.add(part["qid"])
        rows["list"] = _hashes(part["session"]) if "session" in part.column_names else 0
        rows["position"] = _position(part)
        rows["click"] = _floats(part[self.click])
        if self.has_bias:
            bias = _floats(part["bias"])
            rows["position"] = np.where(np.isnan(bias), NOT_SHOWN, rows["position"])
            rows["bias"] = np.nan_to_num(bias)
        if "user" in self.row_type.names:
            rows["user"] = self.user.add(part["user"])
        for name in _NUMBERS:
            if name in self.row_type.names:
                rows[name] = _floats(part[name])
        # The hash by which versions of documents are sorted in memory, too.
        hashes = None if values is None else row_hashes(values)[1]
        rows["doc"] = self.doc.add(part["doc"]).view(np.uint64) if self.has_docs else hashes
        if "hash" in self.row_type.names:
            rows["hash"] = hashes
        self._append("rows", rows)
        if values is not None:
            self._append("features", self._first_rows(rows, values, hashes))
        self.n_rows += part.num_rows
        self.largest_click = max(self.largest_click, float(rows["click"].max(initial=0.0)))

    def close(self) -> None:
        """Close the files, and sort the ids."""
        if not self.n_rows:
            NO_ROWS.report(0, None, None)
        for file in self._files.values():
            file.close()
        for ids in (self.query, self.doc, self.user):
            ids.sort()

    def files(self, kind: str = "rows") -> list[Path]:
        """The files that have rows."""
        return sorted(self._folder.glob(f"{kind}-*.bin"))

    def read(self, file: Path) -> NDArray[Any]:
        """Rows of a file."""
        kind = file.name.split("-")[0]
        return np.fromfile(file, dtype=self.row_type if kind == "rows" else self.feature_type)

    def _check(self, part):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            EngineLog.of(part, self.click, (*IDS, "position", "bias", *_NUMBERS))
        for warning in caught:
            self._say_once(str(warning.message), warning.category)
        if "doc_scope" in part.column_names:
            self._scopes |= set(part["doc_scope"].unique().to_pylist())
            self.scope = read_scope(None, np.array([*self._scopes], dtype=object))

    def _say_once(self, message, category):
        """Warn of what was found in one part; the same in the next part is no news."""
        kind = message[-40:]
        if kind not in self._said:
            self._said.add(kind)
            warn_user(message, category)

    def _first_rows(self, rows, values, hashes):
        """One row of features per version of a document, as far as this part shows it."""
        key = pd.MultiIndex.from_arrays([rows["query"], rows["doc"], hashes])
        first = np.flatnonzero(~key.duplicated())
        out = np.empty(len(first), dtype=self.feature_type)
        out["query"], out["doc"] = rows["query"][first], rows["doc"][first]
        out["hash"], out["row"] = hashes[first], values[first]
        return out

    def _append(self, kind, rows):
        file = (mix(rows["query"].view(np.uint64)) % np.uint64(N_FILES)).astype(np.intp)
        rows = rows[np.argsort(file, kind="stable")]
        ends = np.cumsum(np.bincount(file, minlength=N_FILES))
        for number, part in enumerate(np.split(rows, ends[:-1])):
            if len(part):
                self._file(kind, number).write(part.tobytes())

    def _file(self, kind, number):
        if (kind, number) not in self._files:
            path = self._folder / f"{kind}-{number:03d}.bin"
            self._files[kind, number] = path.open("wb")
        return self._files[kind, number]


def feature_names(schema: pa.Schema, click: str | None = None) -> list[str]:
    """Names of the columns that are neither a role nor the clicks."""
    if "team" in schema.names:
        check_team(nw.from_native(schema.empty_table()).schema["team"])
    return [name for name in schema.names if not is_role(name) and name != click]


class FeatureRanges:
    """Smallest and largest value of each feature, before it is rounded to float32."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self._low, self._high = np.full(len(names), np.inf), np.full(len(names), -np.inf)

    def add(self, place: int, values: NDArray[np.float64]) -> None:
        """Values of one feature."""
        self._low[place] = np.fmin.reduce(values, initial=self._low[place])
        self._high[place] = np.fmax.reduce(values, initial=self._high[place])

    def warn(self) -> None:
        """Warn of features of which float32 would lose digits."""
        varies = self._low < self._high
        far = np.flatnonzero(varies & is_far(*np.where(varies, [self._low, self._high], 0)))
        if len(far):
            low, high = self._low[far[0]], self._high[far[0]]
            warn_user(
                f"The values of the features {[self.names[place] for place in far]} are much "
                f"larger than their range (the first has {low:g} to {high:g}), and float32, in "
                "which a dataset holds features, keeps few of their digits. Subtract a constant "
                "from such a column, such as its smallest value, in the log and wherever you "
                "predict.",
                ClickDataWarning,
            )


def read_feature_rows(
    part: pa.Table, names: list[str], start: int, ranges: FeatureRanges
) -> NDArray[np.float32]:
    """Features as float32, shape (n_rows, n_features); an error for what is no finite number."""
    values = np.empty((part.num_rows, len(names)), dtype=np.float32)
    for place, name in enumerate(names):
        try:
            exact = _floats(part[name])
            ranges.add(place, exact)
            with np.errstate(over="ignore"):
                values[:, place] = exact
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"The feature column {name!r} has type {part[name].type}; expected numbers. A "
                f"column is a feature unless its name is a role ({', '.join(ROLES)}) or that of "
                "the clicks: rename it, encode it as numbers, or leave it out."
            ) from error
    if np.isinf(values).any():
        row, place = np.argwhere(np.isinf(values))[0]
        raise ValueError(
            f"The feature column {names[place]!r} has an infinite value in row {start + row}; "
            "expected finite or missing values. Replace it before you make the dataset."
        )
    return values


def _fits_int64(dtype):
    """True for integers of at most 63 bits and a sign."""
    return dtype is not None and dtype.is_integer() and dtype != nw.UInt64


def _check_columns(names, click, with_features):
    needed = ["qid", "position", click, *(() if with_features else ("doc",))]
    lacking = [name for name in needed if name not in names]
    if lacking:
        raise ValueError(
            f"The log lacks the columns {lacking}; found {names}. Rename your columns to 'qid', "
            "'doc' and 'position', and name the column of clicks with click=."
        )


def _position(part):
    """The position of each row, -1 where it was not shown."""
    position = _floats(part["position"])
    shown = ~np.isnan(position)
    if "impressions" in part.column_names:
        shown &= _floats(part["impressions"]) > 0
    return np.where(shown, np.nan_to_num(position), NOT_SHOWN)


def _floats(column):
    """A column of numbers as float64, NaN where it is null."""
    import pyarrow as pa

    return column.cast(pa.float64()).to_numpy()


def _hashes(column):
    """A hash of each id."""
    ids, codes = _distinct(column)
    if ids.dtype.kind in "iu":
        return hash_columns([ids])[codes]
    return pd.util.hash_array(ids, categorize=False)[codes]


def _distinct(column):
    """The distinct values of a column, and the number of each row's."""
    coded = column.combine_chunks().dictionary_encode()
    ids = coded.dictionary.to_pandas().to_numpy()
    return ids, coded.indices.to_numpy(zero_copy_only=False)


def _of_distinct(column, function):
    import pyarrow as pa

    coded = column.combine_chunks().dictionary_encode()
    values = coded.dictionary
    if pa.types.is_timestamp(values.type):  # as in memory: the time in UTC
        values = values.cast(pa.timestamp(values.type.unit))
    values = values.to_pylist()
    table = np.fromiter((function(value) for value in values), dtype=np.int64, count=len(values))
    return table[coded.indices.to_numpy(zero_copy_only=False)]
