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
from ._thresholds import LARGEST_FEATURE

#: Rows that are made dense at a time, because the parser's numbers take twice as many bytes.
_ROWS = 4096
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


@validate_params(
    {
        "path": [str, PathLike, list, tuple],
        "split": [str, list, tuple, None],
        "fold": [Interval(Integral, 0, None, closed="left"), None],
        "n_features": [Interval(Integral, 1, LARGEST_FEATURE.value, closed="both"), None],
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
        format:

        - svmlight: ``.txt``, ``.svm``, ``.svmlight``, ``.libsvm`` or ``.dat``, also with ``.gz``
          or ``.bz2`` appended;
        - Parquet: ``.parquet`` or ``.pq``, which may be folders of parts, as Spark writes them.

        A list of files is read as one set: a query id means the same query in all of them.
    split : str or list of str, default=None
        Which split to read. None reads all rows.

        - Of a folder: ``"train"``, ``"validation"`` or ``"test"``. A folder without these (no
          ``Fold1``, ...) may hold parts, such as ``["S1", "S2"]``.
        - Of a Parquet file: values of its column ``split``. The column is no feature, and is
          always dropped.
    fold : int, default=None
        Which fold of a folder (``Fold1``), or which set of Yahoo! (``set1.train.txt``). Needed
        where there are several.
    n_features : int, default=None
        Number of features of an svmlight set. svmlight leaves out zeros, so that a file may not
        show all features. The default is the largest feature id in the files. For a folder it is
        the largest in all splits of the fold, so that splits read one by one get the same columns.

    Returns
    -------
    documents : pandas.DataFrame
        One row per query-document pair, in the order of the files: ``qid``, ``doc``,
        ``relevance`` (int if all labels are whole numbers) and the features.

        Features of svmlight files keep their ids: ``feature_001`` is the feature ``1:``. They are
        float32; larger numbers are cut to its range.

        ``doc`` is the id in the column ``doc``, or in the comments of svmlight lines (text):
        ``#docid = ID``, or ``# ID title`` as in judgement lists of LTR plugins. Without ids it is
        the row number. Further rows of one query and document get ``/2``, ``/3``, ... appended.
        If an id recurs under another query, it names another document.

    Raises
    ------
    ValueError
        If

        - a file has another suffix or is malformed,
        - a folder holds no such split, or several folds or sets,
        - splits that are read together share a query,
        - there is no query id or no label,
        - a label is negative or missing,
        - a feature is not a finite number,
        - only some lines have a ``#docid``, or
        - no row is left.

    Warns
    -----
    ClickDataWarning
        If it is not clear whether comments hold ids or titles:

        - all lines have a comment, but their first words recur in a query or have no digit; or
        - most lines have a comment that begins like an id, and the others have none.

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
    is_one = isinstance(path, str | PathLike)
    if is_one and Path(path).is_dir() and not _is_parquet(Path(path)):
        return _read_folder(Path(path), split, fold, n_features)
    if fold is not None:
        raise ValueError(
            f"fold={fold} selects files of a folder, and {path} is no folder. Pass the folder of "
            "the set, or leave fold out."
        )
    paths = paths_of(path)
    # An svmlight file has no column that names splits.
    if _format_of(paths) == "svmlight" and split is not None:
        raise ValueError(
            f"split={split!r} selects files of a folder or rows of a Parquet file, not of an "
            "svmlight file. Pass the folder, or the file of the split that you want."
        )
    # Files first, then rows: a split of Parquet may be in several files.
    frame = _joined(_frames(paths, paths, n_features), paths)
    return _with_roles(frame, paths, split)


def paths_of(path: str | PathLike[str] | Sequence[str | PathLike[str]]) -> list[str]:
    """The paths of one file or a list of files, after checks."""
    # A list of one and one path alone are the same.
    paths = [*path] if isinstance(path, list | tuple) else [path]
    if not paths or not all(isinstance(each, str | PathLike) for each in paths):
        raise ValueError(f"path is {path!r}; expected a path, or a list of at least one path.")
    return [fspath(each) for each in paths]


def _read_folder(folder, split, fold, n_features):
    """The documents of some splits of a published set."""
    # Which files there are, and of them those that are wanted.
    files = letor_splits(folder, fold=fold)
    wanted = list(files) if split is None else _names(split)
    if not wanted or set(wanted) - set(files):
        in_fold = "" if fold is None else f" in fold {fold}"
        raise ValueError(
            f"split={split!r}, but {folder} holds the splits {list(files)}{in_fold}. Pass one of "
            "them."
        )
    paths = [str(files[name]) for name in wanted]
    # The other splits may show more features.
    all_paths = [str(path) for path in files.values()]
    frames = _frames(paths, all_paths, n_features)
    frames = [_with_roles(frame, [path]) for frame, path in zip(frames, paths, strict=True)]
    _refuse_shared_queries(frames, wanted, folder)
    return _joined(frames, paths)


def _refuse_shared_queries(frames, splits, folder):
    """Raise if one id is in two splits: the rows would be one query from here on."""
    split_of = {}
    for split, frame in zip(splits, frames, strict=True):
        for qid in frame["qid"].unique():
            # The first split with this id; another one is a leak from training to test.
            other = split_of.setdefault(qid, split)
            if other != split:
                raise ValueError(
                    f"The query {qid} is in the splits {other!r} and {split!r} of {folder}. "
                    "Read the splits one by one, so that training and test data stay apart."
                )


def _joined(frames, paths):
    """The rows of all files; an error unless they have the same columns."""
    for path, frame in zip(paths, frames, strict=True):
        # A column that only one file has would be missing in the rows of the others.
        differing = sorted(set(frame.columns) ^ set(frames[0].columns))
        if differing:
            raise ValueError(
                f"{path} and {paths[0]} differ in their columns {differing}; expected the same "
                "columns in all files."
            )
    return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]


# Formats ------------------------------------------------------------------------------
def _format_of(paths):
    for path in paths:
        if not _is_documents(Path(path)):
            found = "" if Path(path).exists() else "does not exist, and "
            raise ValueError(
                f"{path} {found}is neither a "
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
        # One pass for what the parser does not tell: the ids in comments, and all features of the
        # set.
        lines = {path: _scan(path) for path in progress(all_paths, "scanned file")}
        columns = _columns(lines.values(), n_features)
        comments = [lines[path].comments for path in paths]
        docs, doubt = ids_of(comments, ", ".join(paths))
        if doubt:
            warn_user(doubt, ClickDataWarning)
        if not docs:
            docs = [None for _ in paths]
        return [_read_svmlight(path, doc, columns) for path, doc in zip(paths, docs, strict=True)]
    if n_features is not None:
        raise ValueError("n_features= is for svmlight files; Parquet files name their columns.")
    return [pd.read_parquet(path).reset_index(drop=True) for path in paths]


def _with_roles(frame, paths, split=None):
    """The rows of a split, with the columns ``qid`` and ``relevance``."""
    frame = _select_split(frame, split)
    if "label" in frame and "relevance" in frame:
        raise ValueError("The columns 'label' and 'relevance' mean the same; drop one of them.")
    # Published Parquet sets say "label", and skultr says "relevance".
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
    # Ids count from 1 unless some file has the feature 0.
    # One rule for all files, or feature 3 of one would be feature 2 of another.
    first = 0 if any(each.from_zero for each in lines) else 1
    last = max(each.last_feature for each in lines)
    shown = last + 1 - first
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
            # With zero_based, ids are the numbers of columns, also where they count from 1.
            features, labels, queries = load_svmlight_file(file, zero_based=True, query_id=True)
    except Exception as error:  # the parser raises many kinds of exceptions
        hint = ""
        if "NULL" in str(error):
            hint = " LETOR's version with NULL cannot be learned from: take MIN or QueryLevelNorm."
        raise ValueError(
            f"Could not read {path} as svmlight: {error}. Expected lines such as "
            f"'2 qid:7 1:0.5 2:13', with feature ids in rising order.{hint}"
        ) from error
    if len(labels) != len(queries):
        raise ValueError(
            f"{path} has {len(labels)} rows, of which {len(queries)} have a query id; expected "
            "'label qid:7 1:0.5 ...' in each of them."
        )
    # Roles and features side by side, in the order of the file.
    roles = pd.DataFrame({"qid": queries, "relevance": labels})
    if doc is not None:
        roles.insert(1, "doc", pd.Series(doc, dtype=str))
    names = [f"feature_{number:03d}" for number in columns]
    values = pd.DataFrame(_dense(features, columns), columns=names)
    return pd.concat([roles, values], axis=1)


def _dense(features, columns):
    """Columns of a sparse matrix, in which the last ones may be missing, as float32."""
    # Sets mark missing features by the largest double, which would be infinite in float32.
    data = features.data
    np.clip(data, -_LARGEST_FLOAT32, _LARGEST_FLOAT32, out=data, where=np.isfinite(data))
    n_rows = features.shape[0]
    values = np.zeros((n_rows, len(columns)), dtype=np.float32)
    for row in range(0, n_rows, _ROWS):
        # Column 0 is empty where ids count from 1.
        dense = features[row : row + _ROWS].toarray()[:, columns.start :]
        values[row : row + len(dense), : dense.shape[1]] = dense
    return values


def _names(split):
    return [split] if isinstance(split, str) else list(dict.fromkeys(split))


def _select_split(frame, split):
    if split is None:
        return frame.drop(columns="split", errors="ignore")
    if "split" not in frame:
        raise ValueError(f"split={split!r}, but the file has no column 'split'.")
    # In the order of the parameter, each once.
    wanted = _names(split)
    known = frame["split"].unique().tolist()
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ValueError(
            f"split {unknown} is not in the file, which has {sorted(map(str, known))}."
        )
    rows = frame.loc[frame["split"].isin(wanted)]
    return rows.drop(columns="split").reset_index(drop=True)


# Checks of every data set -------------------------------------------------------------
def _check_documents(frame):
    # Every other column is a feature, whatever it is called.
    features = [name for name in frame.columns if name not in ("qid", "doc", "relevance")]
    for name in features:
        _check_feature(name, frame[name])
    _refuse_missing(frame, "qid", "a query id in every row.")
    fill_or_drop = "Fill in the ids, or drop the column to have the rows numbered."
    _refuse_missing(frame, "doc", f"an id in every row. {fill_or_drop}")
    # Columns in one order, whatever the order in the file.
    doc = _unique_docs(frame)
    roles = frame[["qid"]].assign(doc=doc, relevance=_check_labels(frame["relevance"]))
    return pd.concat([roles, frame[features]], axis=1)


def _refuse_missing(frame, role, expected):
    """Raise if a column of ids, if there is one, lacks some."""
    if role not in frame:
        return
    n_missing = int(frame[role].isna().sum())
    if n_missing:
        raise ValueError(
            f"{role} is missing in {n_missing} of {len(frame)} rows; expected {expected}"
        )


def _check_feature(name, column):
    if not pd.api.types.is_numeric_dtype(column):
        raise ValueError(
            f"The column {name!r} has type {column.dtype}; expected numbers. Every column but "
            "qid, doc, label and split is a feature: encode it as numbers, or drop it."
        )
    # Missing values are allowed: rankers of trees read them.
    # Infinity has no place in a scale.
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
        row = int(bad.argmax())
        raise ValueError(
            f"The label of row {row} is {values[row]:g}; expected grades 0, 1, 2, ... Drop rows "
            "that were not judged."
        )
    # From 2^53 on, every float is whole.
    is_whole = values % 1 == 0
    fits = values.max(initial=0) < 2**53
    return values.astype(np.int64) if is_whole.all() and fits else values


def _unique_docs(frame):
    """The ids of the file, told apart where a query has several rows of one; else row numbers."""
    if "doc" not in frame:
        return np.arange(len(frame))
    doc = frame["doc"]
    # 1 for the first row of a query with an id, 2 for the next one, ...
    occurrence = doc.groupby([frame["qid"], doc], sort=False).cumcount() + 1
    if (occurrence == 1).all():
        return doc
    text = doc.astype(str)
    numbered = text + "/" + occurrence.astype(str)
    doc = text.where(occurrence == 1, numbered)
    # An id may end in "/2" in the file already.
    twice = pd.DataFrame({"qid": frame["qid"], "doc": doc}).duplicated()
    if twice.any():
        raise ValueError(
            f"Further rows of one query and document get '/2', '/3', ... appended to their id, "
            f"but the id {doc[twice].iloc[0]!r} is taken. Rename the documents."
        )
    return doc


SVMLIGHT = (".txt", ".svm", ".svmlight", ".libsvm", ".dat")
PARQUET = (".parquet", ".pq")

#: How the names of files tell a split: train.txt, trainingset.txt, set1.valid.txt, vali.txt.
_SPLITS = {
    "train": re.compile("(?<![a-z])train", re.IGNORECASE),
    "validation": re.compile("(?<![a-z])(?:vali|val|dev)", re.IGNORECASE),
    "test": re.compile("(?<![a-z])test", re.IGNORECASE),
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
        A folder as the set unpacks, searched with its subfolders. Files are found by their names:
        ``train``, ``valid``, ``vali``, ``dev`` and ``test``, at the start of a word. So
        ``trainingset.txt``, ``set1.valid.txt`` and ``train.txt.gz`` are found. A folder
        ``train.parquet``, as Spark writes it, counts as a file. Hidden files are left out. If
        there is no such file, the parts from which LETOR makes its folds are taken: ``S1.txt``,
        ``S2.txt``, ...
    fold : int, default=None
        Which fold (``Fold1/train.txt``), or which set of Yahoo! (``set1.train.txt``). Not needed
        if there is only one.

    Returns
    -------
    splits : dict of str to pathlib.Path
        The file of each split that was found: ``"train"``, ``"validation"`` and ``"test"``, in
        this order; or ``"S1"``, ``"S2"``, ...

    Raises
    ------
    ValueError
        If

        - no file has such a name,
        - there are several folds and ``fold`` is None,
        - the fold is missing, or
        - several files have the same split of the fold.

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
    # Files of train, validation and test; where there are none, those of S1, S2, ...
    named = _named_by(_split_of, files) or _named_by(_part_of, files)
    if not named:
        raise ValueError(
            f"{folder} holds no file of a split, such as train.txt, vali.txt or test.parquet, nor "
            "parts S1.txt, S2.txt, ... of LETOR. Files of documents that were found: "
            f"{_listed(files, folder) or 'none'}. Pass a file, or a list of files."
        )
    # A set of several folds needs one: the same query is in several of them.
    folds = {_fold_of(path) for _, path in named}
    fold = _only_fold(folder, folds, fold)
    return _one_file_each(folder, [(name, path) for name, path in named if _fold_of(path) == fold])


def _one_file_each(folder, named):
    """The file of each split; an error if one has several."""
    files_of_split = {}
    for name, path in named:
        files_of_split.setdefault(name, []).append(path)
    splits = {}
    # In the order of their use, and parts by their numbers: S2 before S10.
    for split in (*_SPLITS, *sorted(files_of_split, key=len)):
        found = files_of_split.pop(split, [])
        if len(found) > 1:
            raise ValueError(
                f"{folder} holds {len(found)} files of the split {split!r}: "
                f"{_listed(found, folder)}. Pass the folder that holds one of them, or the files "
                "themselves."
            )
        if found:
            splits[split] = found[0]
    return splits


def _named_by(name_of, files):
    """The names that a function finds for files, and the files that have one."""
    named = [(name_of(path), path) for path in files]
    return [(name, path) for name, path in named if name is not None]


def _listed(files, folder):
    """The first five of some files."""
    return ", ".join(str(path.relative_to(folder)) for path in files[:5])


def _is_documents(path):
    """Whether the suffix is one of svmlight, also compressed, or of Parquet."""
    unpacked = path.name.lower().removesuffix(".gz").removesuffix(".bz2")
    return _is_parquet(path) or unpacked.endswith(SVMLIGHT)


def _is_parquet(path):
    """Whether the suffix is one of Parquet: of a file, or of a folder that Spark writes."""
    return path.name.lower().endswith(PARQUET)


def _counts(path):
    """Whether it is a file of documents; Parquet's may be a folder, whose parts do not count."""
    # Parts within a folder of Parquet are read with their folder.
    hidden = path.name.startswith(".") or _is_parquet(path.parent)
    return not hidden and _is_documents(path) and (path.is_file() or _is_parquet(path))


def _split_of(path):
    """The split that the name of a file tells; None without one."""
    for split, word in _SPLITS.items():
        if word.search(path.name):
            return split
    return None


def _part_of(path):
    """The part of LETOR that the name of a file tells; None without one."""
    match = _PART.match(path.name)
    return match[0].upper() if match else None


def _fold_of(path):
    """The fold that the name of a file tells, or else that of its folder; None without one."""
    for name in (path.name, path.parent.name):
        match = _FOLD.search(name.lower())
        if match:
            return int(match[1])
    return None


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
                # A hash cannot stand in the data of a row.
                row, _, comment = line.partition(b"#")
                if not row.strip():
                    continue
                last_feature = max(last_feature, _last_feature(row))
                from_zero = from_zero or _ZERO.search(row) is not None
                query = _QUERY.search(row) if comment else None
                qid = query[1] if query else b""
                comments.add(_text(qid), _text(comment))
    except (EOFError, OSError, zlib.error) as error:
        # An error with a number is that of the system; unpacking raises others.
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the system's, such as a missing file
        raise ValueError(
            f"Could not unpack {path}: {error}. Is it whole, and compressed as its suffix says?"
        ) from error
    if last_feature > LARGEST_FEATURE.value:
        raise ValueError(
            f"{path} has the feature id {last_feature}; expected dense features with ids up to "
            f"{LARGEST_FEATURE.value}."
        )
    return _Lines(comments, last_feature, from_zero)


def _text(line):
    return line.decode(errors="backslashreplace")


def _last_feature(row):
    """The id before the last colon of a row; 0 where it is no number."""
    before, _, _ = row.rpartition(b":")
    begin = max(before.rfind(b" "), before.rfind(b"\t")) + 1
    feature = before[begin:]
    if not feature.isdigit():
        return 0
    # Ten digits are more than any id has: they tell that it is too large, however many follow.
    return int(feature.lstrip(b"0")[:10] or 0)


def _opened(path):
    """The lines of a file, which may be compressed."""
    suffix = Path(path).suffix.lower()
    open_ = {".gz": gzip.open, ".bz2": bz2.open}.get(suffix, open)
    return open_(path, "rb")


def _only_fold(folder, found, fold):
    """The fold that was asked for, or else the only one; None is that of files without one."""
    if fold is None and len(found) == 1:
        return found.pop()
    numbers = sorted(number for number in found if number is not None)
    if fold is None:
        others = " and files of no fold" if None in found else ""
        raise ValueError(
            f"{folder} holds {_numbered(numbers)}{others}; queries of different folds must not be "
            f"mixed. Pass fold={numbers[0]}, say."
        )
    if fold not in found:
        remedy = "Pass one of them." if numbers else "Leave fold out."
        raise ValueError(
            f"fold={fold}, but {folder} holds {_numbered(numbers) or 'no folds'}. {remedy}"
        )
    return fold


def _numbered(numbers):
    """Folds, as a message names them."""
    listed = ", ".join(map(str, numbers))
    if len(numbers) > 1:
        return f"the folds {listed}"
    return f"fold {listed}" if numbers else ""
