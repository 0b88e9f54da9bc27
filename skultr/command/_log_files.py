"""Files of a log: which belong to it, how they are opened, and the line of code that does so."""

from __future__ import annotations

import codecs
import glob
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from .._base._progress import progress
from .._base._typing import Frame

#: What names the files of a log: a path, or several.
Files = str | Path | Sequence[str | Path]


class _Format(NamedTuple):
    """Endings of files of a format, and who reads it: Polars lazily, in code, and pandas."""

    endings: tuple[str, ...]
    scan: str
    read: str
    pandas: str
    #: Arguments of the two, beside the separator of a table of text.
    for_polars: dict[str, Any]
    for_pandas: dict[str, Any]

    def has(self, ending: str) -> bool:
        """Whether an ending is of this format, compressed or not."""
        return f".{ending.split('.')[1]}" in self.endings


# Types come from all rows: prices may begin as whole numbers.
_ALL_ROWS = {"infer_schema_length": None}
_FORMATS = (
    _Format((".parquet", ".pq"), "scan_parquet", "read_parquet", "read_parquet", {}, {}),
    _Format((".csv", ".tsv", ".txt"), "scan_csv", "read_csv", "read_csv", _ALL_ROWS, {}),
    _Format(
        (".ndjson", ".jsonl", ".json"),
        "scan_ndjson",
        "read_ndjson",
        "read_json",
        _ALL_ROWS,
        {"lines": True},
    ),
    _Format((".arrow", ".feather", ".ipc"), "scan_ipc", "read_ipc", "read_feather", {}, {}),
)
_ENDINGS = [ending for each in _FORMATS for ending in each.endings]
_COMPRESSED = (".gz", ".zst")
#: What may separate the cells of a line, the usual first.
_SEPARATORS = ",\t;|"
#: The first bytes of a table of text that is in no UTF-8, and its encoding. A mark of UTF-32 comes
#: first, because it begins with one of UTF-16.
_ENCODINGS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
#: No table of text has this between its cells: a line is one cell.
_NO_SEPARATOR = "\x1f"
#: What a user is told to give.
_EXPECTED = (
    ".parquet, .csv, .tsv, .ndjson or .arrow (.gz and .zst of text, too), or a folder of such "
    "files. For UBI records of a search engine, use skultr ubi."
)


def are_files(log: Any) -> bool:
    """Whether a log is given as a path or several, not as a frame."""
    several = log if isinstance(log, list | tuple) else [log]
    return bool(several) and all(isinstance(each, str | Path) for each in several)


def called(source: Files) -> str:
    """Files as a report calls them."""
    if isinstance(source, str | Path):
        return str(source)
    first, *others = map(str, source)
    return f"{first} and {len(others)} more" if others else first


def open_files(source: Files) -> Frame:
    """The files of a log, also of folders and patterns, as one frame; lazy, if Polars is there."""
    files, form = _files_of(source)
    try:
        import polars as pl
    except ImportError:
        arguments = form.for_pandas | _of_text(files, form, _first_line_by_pandas)
        read = getattr(pd, form.pandas)
        parts = [read(file, **arguments) for file in progress(files, "file")]
        return pd.concat(parts, ignore_index=True)
    arguments = form.for_polars | _of_text(files, form, _first_line_by_polars)
    arguments |= _columns_of_folders(files, form)
    if "encoding" in arguments:
        # What is in no UTF-8 is decoded as it is read, one file after the other.
        return pl.concat([pl.read_csv(file, glob=False, **arguments) for file in files])
    # A name is no pattern of several.
    log = getattr(pl, form.scan)([glob.escape(file) for file in files], **arguments)
    # What is no file of its format is found here, where the message can name it.
    log.collect_schema()
    return log


def reading_code(source: Files, is_polars: bool) -> str:
    """The line that reads the files of a log."""
    files, form = _files_of(source)
    first_line = _first_line_by_polars if is_polars else _first_line_by_pandas
    arguments = form.for_polars if is_polars else form.for_pandas
    arguments = arguments | _of_text(files, form, first_line)
    if is_polars:
        arguments |= _columns_of_folders(files, form)
    options = "".join(f", {name}={value!r}" for name, value in arguments.items())
    pattern = _pattern(source, files)
    what = repr(pattern or files)
    if len(files) == 1:
        what = repr(files[0])
    if is_polars and "encoding" not in arguments:
        if len(files) > 1 and not pattern:
            # Not each release reads a list of files at once.
            return f"log = pl.{form.scan}({what}{options}).collect()"
        return f"log = pl.{form.read}({what}{options})"
    library = "pl" if is_polars else "pd"
    read = f"{library}.{form.read if is_polars else form.pandas}"
    if len(files) == 1:
        return f"log = {read}({what}{options})"
    listed = f"sorted(glob.glob({what}, recursive=True))" if pattern else what
    return f"log = {library}.concat([{read}(file{options}) for file in {listed}])"


def _pattern(source, files):
    """The pattern that fits these files and no others, None if none is known."""
    pattern = str(source)
    if Path(pattern).is_dir():
        pattern = f"{pattern.rstrip('/')}/**/*{_ending(files[0])}"
    found = sorted(glob.glob(pattern, recursive=True))
    return pattern if found == files else None


def _columns_of_folders(files, form):
    """The argument that reads columns from the names of folders, as Spark writes them."""
    is_named = any("=" in Path(file).parent.name for file in files)
    return {"hive_partitioning": True} if form.scan == "scan_parquet" and is_named else {}


# Which files ------------------------------------------------------------------------------
def _files_of(source):
    """The files that a source names, and their one format."""
    named = [source] if isinstance(source, str | Path) else [*source]
    found = [file for each in named for file in _expanded(str(each))]
    # Spark leaves empty files of tables of text beside others.
    files = [file for file in found if Path(file).stat().st_size] or found
    kinds = Counter(map(_ending, files))
    formats = [each for each in _FORMATS if any(map(each.has, kinds))]
    if len(formats) > 1:
        counts = ", ".join(f"{count} of {ending}" for ending, count in kinds.items())
        raise ValueError(
            f"{called(source)} holds files of several formats ({counts}); expected one. Name "
            "those of the log, such as 'FOLDER/*.parquet'."
        )
    for file in files:
        _refuse_unreadable_file(file)
    return files, formats[0]


def _expanded(path):
    """The files of a path: of a folder, those in it at any depth; of a pattern, those it fits."""
    if Path(path).is_dir():
        # What begins with _ or . are notes of the program that wrote the others.
        inside = sorted(Path(path).rglob("*"))
        files = [str(file) for file in inside if file.is_file() and _is_data(file, path)]
        if not files:
            raise ValueError(f"The folder {path} has no file of a log; expected {_EXPECTED}")
        return files
    if Path(path).exists():
        _ending(path)
        return [path]
    files = sorted(glob.glob(path, recursive=True))
    if not files:
        _ending(path)
        raise FileNotFoundError(f"There is no file {path}.")
    return files


def _is_data(file, folder):
    """Whether a file of a folder, and every folder between, has the name of data."""
    parts = file.relative_to(folder).parts
    return not any(part.startswith(("_", ".")) for part in parts)


def _ending(path):
    """The ending of a file that names its format, with that of its compression."""
    name = str(path).lower()
    compressed = next((each for each in _COMPRESSED if name.endswith(each)), "")
    ending = Path(name.removesuffix(compressed)).suffix
    if ending not in _ENDINGS:
        raise ValueError(f"{path} ends with {Path(path).suffix!r}; expected {_EXPECTED}")
    return ending + compressed


def _refuse_unreadable_file(path):
    if not Path(path).is_file():  # a pipe or a device may have no end
        raise ValueError(f"{path} is no regular file; expected a file of a log.")
    if not Path(path).stat().st_size:
        raise ValueError(f"{path} is empty (0 bytes); expected a log. Export it again.")
    # Polars takes names of files in UTF-8 only.
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"The name of the file {path} is no text in UTF-8; rename it.") from error


# Tables of text ---------------------------------------------------------------------------
def _of_text(files, form, first_line):
    """Arguments that read a table of text: its encoding unless that is UTF-8, and what separates
    its cells unless that is a comma."""
    if form.scan != "scan_csv":
        return {}
    encoding = _encoding(files[0])
    line = _first_line_in(files[0], encoding) if encoding else first_line(files[0])
    # The character that stands in the heading most often.
    separator = max(_SEPARATORS, key=line.count)
    name = "separator" if first_line is _first_line_by_polars else "sep"
    arguments = {"encoding": encoding} if encoding else {}
    return arguments if separator == "," else arguments | {name: separator}


def _encoding(path):
    """The encoding that the first bytes of a file name, None if they name none."""
    with Path(path).open("rb") as file:
        first = file.read(4)
    return next((name for mark, name in _ENCODINGS.items() if first.startswith(mark)), None)


def _first_line_in(path, encoding):
    # What is no text in this encoding is told when the table is read.
    with Path(path).open(encoding=encoding, errors="replace") as file:
        return file.readline()


def _first_line_by_polars(path):
    import polars as pl

    # Polars opens what is compressed, too.
    line = pl.scan_csv(
        glob.escape(path), has_header=False, separator=_NO_SEPARATOR, quote_char=None, n_rows=1
    )
    # What is no text in UTF-8 is told when the table is read.
    try:
        return line.collect().item()
    except pl.exceptions.ComputeError:
        return ""


def _first_line_by_pandas(path):
    import csv

    line = pd.read_csv(path, header=None, sep=_NO_SEPARATOR, quoting=csv.QUOTE_NONE, nrows=1)
    return line.iat[0, 0]
