"""Readers of learning-to-rank sets: svmlight (LETOR) and Parquet."""

from __future__ import annotations

import bz2
import gzip
import re
import zlib
from collections.abc import Sequence
from numbers import Integral
from os import PathLike, fspath
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.datasets import load_svmlight_file

from .._base._comments import Comments, ids_of
from .._base._progress import progress, working
from .._base._sklearn import Interval, validate_params
from ..exceptions import ClickDataWarning, warn_user

#: A larger feature id is taken for a mistake: a dense frame of so many columns would fill memory.
_MAX_FEATURE = 65_535
#: Rows that are made dense at a time.
_ROWS = 4096
_LARGEST = float(np.finfo(np.float32).max)


@validate_params(
    {
        "path": [str, PathLike, list, tuple],
        "split": [str, list, tuple, None],
        "fold": [Interval(Integral, 0, None, closed="left"), None],
        "n_features": [Interval(Integral, 1, _MAX_FEATURE, closed="both"), None],
    },
    prefer_skip_nested_validation=True,
)
def load_letor(
    path: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    split: str | Sequence[str] | None = None,
    fold: int | None = None,
    n_features: int | None = None,
) -> pd.DataFrame:
    """Read documents with relevance labels: a published set, svmlight or Parquet files.

    svmlight is the format of LETOR, MSLR-WEB, Istella and Yahoo!: ``label qid:7 1:0.5 2:13 ...``,
    one line per query-document pair. Parquet files have the columns ``qid``, ``label`` (or
    ``relevance``), one numeric column per feature and, optionally, ``doc`` and ``split``.

    Parameters
    ----------
    path : str, path-like or list of these
        The folder that a published set unpacks to (see :func:`letor_splits`), or files of one
        format: ``.txt``, ``.svm``, ``.svmlight``, ``.libsvm`` or ``.dat``, also with ``.gz`` or
        ``.bz2`` appended; or ``.parquet``, ``.pq``, which may be folders of parts, as Spark
        writes them. A list of files is read as one set: a query id means the same query in all
        of them.
    split : str or list of str, default=None
        Which split to read. Of a folder: ``"train"``, ``"validation"`` or ``"test"``; or parts
        such as ``["S1", "S2"]``, where it holds no such split (no ``Fold1``, ...). Of a Parquet
        file: values of its column ``split``, which is dropped in any case, because it is no
        feature. None reads all rows.
    fold : int, default=None
        Which fold of a folder (``Fold1``), or which set of Yahoo! (``set1.train.txt``). Needed
        where there are several.
    n_features : int, default=None
        Number of features of an svmlight set. svmlight leaves out zeros, so that a file may not
        show all features. By default the largest feature id in the files or, of a folder, in all
        splits of the fold: splits that are read one by one get the same columns.

    Returns
    -------
    documents : pandas.DataFrame
        One row per query-document pair, in the order of the files: ``qid``, ``doc``,
        ``relevance`` (int if all labels are whole numbers) and the features. Features of svmlight
        files (float32, larger numbers cut to its range) keep their ids: ``feature_001`` is the
        feature ``1:``. ``doc`` is the id in the column ``doc`` or in the comments of svmlight
        lines (text), ``#docid = ID`` or ``# ID title`` (as judgement lists of LTR plugins have
        it), with ``/2``, ``/3``, ... appended for further rows of one query and document;
        otherwise the row number. An id may recur under other queries, and then names another
        document.

    Raises
    ------
    ValueError
        If a file has another suffix or is malformed, a folder holds no such split or several
        folds or sets, splits that are read together share a query, there is no query id or no
        label, a label is negative or missing, a feature is not a finite number, only some lines
        have a ``#docid``, or no row is left.

    Warns
    -----
    ClickDataWarning
        If comments may hold ids or titles: they are all there, but begin with words that a query
        has twice or that have no digit, or most of them begin like an id and others are missing.

    See Also
    --------
    letor_splits : Which files of a folder belong to which split.
    make_ltr : Make such documents.

    References
    ----------
    T. Qin and T.-Y. Liu (2013). Introducing LETOR 4.0 datasets. arXiv:1306.2597.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from skultr.datasets import load_letor
    >>> lines = "2 qid:1 1:0.5 2:3\\n0 qid:1 1:0.1\\n1 qid:2 2:7 # a comment\\n"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "train.txt"
    ...     _ = path.write_text(lines)
    ...     load_letor(path)
       qid  doc  relevance  feature_001  feature_002
    0    1    0          2          0.5          3.0
    1    1    1          0          0.1          0.0
    2    2    2          1          0.0          7.0
    """
    with working("load_letor"):
        return _check_documents(_read(path, split, fold, n_features))


def _read(path, split, fold, n_features):
    if isinstance(path, str | PathLike) and Path(path).is_dir() and not _is_parquet(Path(path)):
        return _read_folder(Path(path), split, fold, n_features)
    if fold is not None:
        raise ValueError(
            f"fold={fold} selects files of a folder, and {path} is no folder. Pass the folder of "
            "the set, or leave fold out."
        )
    paths = paths_of(path)
    if _format_of(paths) == "svmlight" and split is not None:
        raise ValueError(
            f"split={split!r} selects files of a folder or rows of a Parquet file, not of an "
            "svmlight file. Pass the folder, or the file of the split that you want."
        )
    return _with_roles(_joined(_frames(paths, paths, n_features), paths), paths, split)


def paths_of(path: str | PathLike[str] | Sequence[str | PathLike[str]]) -> list[str]:
    """The paths of one file or a list of files, after checks."""
    paths = [*path] if isinstance(path, list | tuple) else [path]
    if not paths or not all(isinstance(each, str | PathLike) for each in paths):
        raise ValueError(f"path is {path!r}; expected a path, or a list of at least one path.")
    return [fspath(each) for each in paths]


def _read_folder(folder, split, fold, n_features):
    files = letor_splits(folder, fold=fold)
    wanted = list(files) if split is None else _names(split)
    if not wanted or set(wanted) - set(files):
        raise ValueError(
            f"split={split!r}, but {folder} holds the splits {list(files)}"
            f"{'' if fold is None else f' in fold {fold}'}. Pass one of them."
        )
    paths = [str(files[name]) for name in wanted]
    frames = [
        _with_roles(frame, [path])
        for frame, path in zip(
            _frames(paths, [*map(str, files.values())], n_features), paths, strict=True
        )
    ]
    # The splits share no query: one id in two splits would be one query from here on.
    seen = {}
    for name, frame in zip(wanted, frames, strict=True):
        for qid in frame["qid"].unique():
            if seen.setdefault(qid, name) != name:
                raise ValueError(
                    f"The query {qid} is in the splits {seen[qid]!r} and {name!r} of {folder}. "
                    "Read the splits one by one, so that training and test data stay apart."
                )
    return _joined(frames, paths)


def _joined(frames, paths):
    for path, frame in zip(paths, frames, strict=True):
        if differing := sorted(set(frame.columns) ^ set(frames[0].columns)):
            raise ValueError(
                f"{path} and {paths[0]} differ in their columns {differing}; expected the same "
                "columns in all files."
            )
    return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]


# Formats ------------------------------------------------------------------------------
def _format_of(paths):
    for path in paths:
        if not _is_documents(Path(path)):
            raise ValueError(
                f"{path} {'' if Path(path).exists() else 'does not exist, and '}is neither a "
                f"folder nor svmlight ({', '.join(SVMLIGHT)}, also with .gz or .bz2) nor Parquet "
                f"({', '.join(PARQUET)}) by its suffix. Check the path, or rename the file."
            )
    formats = {"parquet" if _is_parquet(Path(path)) else "svmlight" for path in paths}
    if len(formats) > 1:
        raise ValueError(
            f"path mixes svmlight and Parquet files: {', '.join(paths)}. Read them one by one."
        )
    return formats.pop()


def _frames(paths, all_paths, n_features):
    """One frame per file; those of svmlight have the features that any file of the set has."""
    if _format_of(all_paths) == "svmlight":
        lines = {path: _scan(path) for path in progress(all_paths, "scanned file")}
        columns = _columns(lines.values(), n_features)
        docs, doubt = ids_of([lines[path].comments for path in paths], ", ".join(paths))
        if doubt:
            warn_user(doubt, ClickDataWarning)
        docs = docs or [None] * len(paths)
        return [_read_svmlight(*each, columns) for each in zip(paths, docs, strict=True)]
    if n_features is not None:
        raise ValueError("n_features= is for svmlight files; Parquet files name their columns.")
    return [pd.read_parquet(path).reset_index(drop=True) for path in paths]


def _with_roles(frame, paths, split=None):
    """The rows of a split, with the columns ``qid`` and ``relevance``."""
    frame = _select_split(frame, split)
    if "label" in frame and "relevance" in frame:
        raise ValueError("The columns 'label' and 'relevance' mean the same; drop one of them.")
    frame = frame.rename(columns={"label": "relevance"})
    for role, name in (("qid", "qid"), ("relevance", "label")):
        if role not in frame:
            raise ValueError(
                f"{', '.join(paths)} has no column {name!r}; expected 'qid', 'label' and one "
                "column per feature. Rename the column that holds it."
            )
    if frame.empty:
        raise ValueError(f"{', '.join(paths)} has no rows; expected at least one document.")
    return frame


def _columns(lines, n_features):
    """The ids of the features of files that are read together, of which none may show all."""
    first = 0 if any(each.from_zero for each in lines) else 1
    shown = max(each.last_feature for each in lines) + 1 - first
    if n_features is not None and n_features < shown:
        raise ValueError(
            f"n_features={n_features}, but the files have {shown} features. Pass at least as "
            "many, or None."
        )
    return range(first, first + (n_features or shown))


def _read_svmlight(path, doc, columns):
    """One file as a frame; ``doc`` holds the ids in its comments, None without any."""
    try:
        with _opened(path) as file:
            features, labels, queries = load_svmlight_file(file, zero_based=True, query_id=True)
    except Exception as error:  # the parser raises many kinds of exceptions
        raise ValueError(
            f"Could not read {path} as svmlight: {error}. Expected lines such as "
            "'2 qid:7 1:0.5 2:13', with feature ids in rising order"
            + (
                ". LETOR's version with NULL cannot be learned from: take MIN or QueryLevelNorm."
                if "NULL" in str(error)
                else "."
            )
        ) from error
    if len(labels) != len(queries):
        raise ValueError(
            f"{path} has {len(labels)} rows, of which {len(queries)} have a query id; expected "
            "'label qid:7 1:0.5 ...' in each of them."
        )
    # Sets mark missing features by the largest double, which would be infinite in float32.
    np.clip(
        features.data, -_LARGEST, _LARGEST, out=features.data, where=np.isfinite(features.data)
    )
    values = np.zeros((len(labels), len(columns)), dtype=np.float32)
    for row in range(0, len(labels), _ROWS):
        dense = features[row : row + _ROWS].toarray()[:, columns.start :]
        values[row : row + len(dense), : dense.shape[1]] = dense
    roles = {
        "qid": queries,
        **({} if doc is None else {"doc": pd.Series(doc, dtype=str)}),
        "relevance": labels,
    }
    features = pd.DataFrame(values, columns=[f"feature_{number:03d}" for number in columns])
    return pd.concat([pd.DataFrame(roles), features], axis=1)


def _names(split):
    return [split] if isinstance(split, str) else list(dict.fromkeys(split))


def _select_split(frame, split):
    if split is None:
        return frame.drop(columns="split", errors="ignore")
    if "split" not in frame:
        raise ValueError(f"split={split!r}, but the file has no column 'split'.")
    wanted = _names(split)
    known = frame["split"].unique().tolist()
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError(
            f"split {unknown} is not in the file, which has {sorted(map(str, known))}."
        )
    return frame.loc[frame["split"].isin(wanted)].drop(columns="split").reset_index(drop=True)


# Checks of every data set -------------------------------------------------------------
def _check_documents(frame):
    features = [name for name in frame.columns if name not in ("qid", "doc", "relevance")]
    for name in features:
        _check_feature(name, frame[name])
    for role, expected in (
        ("qid", "a query id in every row."),
        (
            "doc",
            "an id in every row. Fill in the ids, or drop the column to have the rows numbered.",
        ),
    ):
        if role in frame and frame[role].isna().any():
            raise ValueError(
                f"{role} is missing in {int(frame[role].isna().sum())} of {len(frame)} rows; "
                f"expected {expected}"
            )
    first = {"doc": _unique_docs(frame), "relevance": _check_labels(frame["relevance"])}
    return pd.concat([frame[["qid"]].assign(**first), frame[features]], axis=1)


def _check_feature(name, column):
    if not pd.api.types.is_numeric_dtype(column):
        raise ValueError(
            f"The column {name!r} has type {column.dtype}; expected numbers. Every column but "
            "qid, doc, label and split is a feature: encode it as numbers, or drop it."
        )
    bad = np.isinf(column.to_numpy(dtype=float, na_value=np.nan))
    if bad.any():
        raise ValueError(
            f"The feature {name!r} is infinite in {int(bad.sum())} of {len(bad)} rows, first in "
            f"row {int(bad.argmax())}; expected finite or missing numbers. Replace them first."
        )


def _check_labels(labels):
    if not pd.api.types.is_numeric_dtype(labels):
        raise ValueError(f"The labels have type {labels.dtype}; expected grades 0, 1, 2, ...")
    values = labels.to_numpy(dtype=float, na_value=np.nan)
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        raise ValueError(
            f"The label of row {int(bad.argmax())} is {values[bad.argmax()]:g}; expected grades "
            "0, 1, 2, ... Drop rows that were not judged."
        )
    whole = (values % 1 == 0).all() and values.max(initial=0) < 2**53
    return values.astype(np.int64) if whole else values


def _unique_docs(frame):
    """The ids of the file, told apart where a query has several rows of one; else row numbers."""
    if "doc" not in frame:
        return np.arange(len(frame))
    doc = frame["doc"]
    occurrence = doc.groupby([frame["qid"], doc], sort=False).cumcount() + 1
    if (occurrence == 1).all():
        return doc
    doc = doc.astype(str).where(occurrence == 1, doc.astype(str) + "/" + occurrence.astype(str))
    twice = pd.DataFrame({"qid": frame["qid"], "doc": doc}).duplicated()
    if twice.any():
        raise ValueError(
            f"Rows of one query and document are told apart by '/2', '/3', ..., and the id "
            f"{doc[twice].iloc[0]!r} is taken. Rename the documents."
        )
    return doc


SVMLIGHT = (".txt", ".svm", ".svmlight", ".libsvm", ".dat")
PARQUET = (".parquet", ".pq")

#: How the names of files tell a split: train.txt, trainingset.txt, set1.valid.txt, vali.txt.
_SPLITS = {
    split: re.compile(rf"(?<![a-z])(?:{words})", re.IGNORECASE)
    for split, words in {"train": "train", "validation": "vali|val|dev", "test": "test"}.items()
}
#: How the name of a file tells a part of LETOR, before folds are made: S1.txt.
_PART = re.compile(r"s\d+(?=\.)", re.IGNORECASE)
#: How a file or its folder tells a fold: Fold3/train.txt, msn1.fold3.train.txt; Yahoo!'s sets.
_FOLD = re.compile(r"(?<![a-z])(?:fold|set)[ _-]?(\d+)(?!\d)")
_QUERY = re.compile(rb"qid:(\S+)")
#: A feature of id 0.
_ZERO = re.compile(rb"[ \t]0:")


@validate_params(
    {
        "folder": [str, PathLike],
        "fold": [Interval(Integral, 0, None, closed="left"), None],
    },
    prefer_skip_nested_validation=True,
)
def letor_splits(folder: str | PathLike[str], *, fold: int | None = None) -> dict[str, Path]:
    """Find the files of a published split in the folder of a learning-to-rank set.

    :func:`load_letor` reads them; this function shows what it would read.

    Parameters
    ----------
    folder : str or path-like
        A folder as the set unpacks, searched with its subfolders. Files count by their names:
        ``train``, ``valid``, ``vali``, ``dev`` and ``test``, at the start of a word (so that
        ``trainingset.txt``, ``set1.valid.txt`` and ``train.txt.gz`` count). A folder
        ``train.parquet``, as Spark writes it, counts as a file, and hidden files do not count. If
        there is none, the parts from which LETOR makes its folds count: ``S1.txt``, ``S2.txt``...
    fold : int, default=None
        Which fold (``Fold1/train.txt``), or which set of Yahoo! (``set1.train.txt``). May be left
        out where there is only one.

    Returns
    -------
    splits : dict of str to pathlib.Path
        ``"train"``, ``"validation"`` and ``"test"``, in this order, as far as they were found,
        and their files; or ``"S1"``, ``"S2"``, ...

    Raises
    ------
    ValueError
        If no file has such a name, there are several folds and ``fold`` is None, the fold is
        missing, or several files have the same split of the fold.

    See Also
    --------
    load_letor : Read the documents.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from skultr.datasets import letor_splits
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("Fold1/train.txt", "Fold1/test.txt", "Fold2/train.txt"):
    ...         path = pathlib.Path(folder, name)
    ...         path.parent.mkdir(exist_ok=True)
    ...         path.touch()
    ...     splits = letor_splits(folder, fold=1)
    >>> [(split, path.name) for split, path in splits.items()]
    [('train', 'train.txt'), ('test', 'test.txt')]
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; expected the folder that a set unpacks to.")
    files = sorted(path for path in folder.rglob("*") if _counts(path))
    named = [(_fold_of(path), name, path) for path in files if (name := _split_of(path))]
    named = named or [
        (_fold_of(path), match[0].upper(), path)
        for path in files
        if (match := _PART.match(path.name))
    ]
    if not named:
        raise ValueError(
            f"{folder} holds no file of a split, such as train.txt, vali.txt or test.parquet, nor "
            "parts S1.txt, S2.txt, ... of LETOR. Files of documents that were found: "
            f"{', '.join(str(path.relative_to(folder)) for path in files[:5]) or 'none'}. "
            "Pass a file, or a list of files."
        )
    fold = _only_fold(folder, {number for number, _, _ in named}, fold)
    splits = {}
    # Parts by their numbers: S2 before S10.
    for split in dict.fromkeys((*_SPLITS, *sorted((name for _, name, _ in named), key=len))):
        found = [path for number, each, path in named if (number, each) == (fold, split)]
        if len(found) > 1:
            raise ValueError(
                f"{folder} holds {len(found)} files of the split {split!r}: "
                f"{', '.join(str(path.relative_to(folder)) for path in found[:5])}. "
                "Pass the folder that holds one of them, or the files themselves."
            )
        if found:
            splits[split] = found[0]
    return splits


def _is_documents(path):
    """Whether the suffix is one of svmlight, also compressed, or of Parquet."""
    name = path.name.lower()
    return _is_parquet(path) or name.removesuffix(".gz").removesuffix(".bz2").endswith(SVMLIGHT)


def _is_parquet(path):
    """Whether the suffix is one of Parquet: of a file, or of a folder that Spark writes."""
    return path.name.lower().endswith(PARQUET)


def _counts(path):
    """Whether it is a file of documents; Parquet's may be a folder, whose parts do not count."""
    hidden = path.name.startswith(".") or _is_parquet(path.parent)
    return not hidden and _is_documents(path) and (path.is_file() or _is_parquet(path))


def _split_of(path):
    """The split that the name of a file tells; None without one."""
    return next((split for split, word in _SPLITS.items() if word.search(path.name)), None)


def _fold_of(path):
    """The fold that the name of a file tells, or else that of its folder; None without one."""
    matches = (_FOLD.search(name.lower()) for name in (path.name, path.parent.name))
    return next((int(match[1]) for match in matches if match), None)


class _Lines(NamedTuple):
    """What one pass over an svmlight file tells that its parser does not."""

    comments: Comments
    last_feature: int
    from_zero: bool


def _scan(path):
    """Ids of documents in comments, and the range of feature ids, which rise along a row."""
    comments = Comments()
    last_feature = 0
    from_zero = False
    try:
        with _opened(path) as file:
            for line in file:
                row, _, comment = line.partition(b"#")
                if not row.strip():
                    continue
                last_feature = max(last_feature, _last_feature(row))
                from_zero = from_zero or _ZERO.search(row) is not None
                query = _QUERY.search(row) if comment else None
                comments.add(_text(query[1] if query else b""), _text(comment))
    except (EOFError, OSError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the system's, such as a missing file
        raise ValueError(
            f"Could not unpack {path}: {error}. Is it whole, and compressed as its suffix says?"
        ) from error
    if last_feature > _MAX_FEATURE:
        raise ValueError(
            f"{path} has the feature id {last_feature}; expected dense features with ids up to "
            f"{_MAX_FEATURE}."
        )
    return _Lines(comments, last_feature, from_zero)


def _text(line):
    return line.decode(errors="backslashreplace")


def _last_feature(row):
    before, _, _ = row.rpartition(b":")
    feature = before[max(before.rfind(b" "), before.rfind(b"\t")) + 1 :]
    # More digits than of any id: those that come first tell that it is too large.
    return int(feature.lstrip(b"0")[:10] or 0) if feature.isdigit() else 0


def _opened(path):
    """The lines of a file, which may be compressed."""
    return {".gz": gzip.open, ".bz2": bz2.open}.get(Path(path).suffix.lower(), open)(path, "rb")


def _only_fold(folder, found, fold):
    numbers = sorted(number for number in found if number is not None)
    if fold is None and len(found) == 1:
        return found.pop()
    if fold is None:
        raise ValueError(
            f"{folder} holds {_numbered(numbers)}{' and files of no fold' * (None in found)}; "
            f"queries of different folds must not be mixed. Pass fold={numbers[0]}, say."
        )
    if fold not in found:
        raise ValueError(
            f"fold={fold}, but {folder} holds {_numbered(numbers) or 'no folds'}. "
            + ("Pass one of them." if numbers else "Leave fold out.")
        )
    return fold


def _numbered(numbers):
    return ("", "fold ", "the folds ")[min(len(numbers), 2)] + ", ".join(map(str, numbers))
