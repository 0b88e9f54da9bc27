"""Readers of learning-to-rank sets: svmlight (LETOR) and Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from os import PathLike, fspath

import numpy as np
import pandas as pd
from sklearn.datasets import load_svmlight_files

from .._sklearn import Interval, validate_params

__all__ = ["load_letor"]

_SVMLIGHT = (".txt", ".svm", ".svmlight", ".libsvm", ".dat")
_PARQUET = (".parquet", ".pq")
#: A larger feature id is taken for a mistake: a dense frame of so many columns would fill memory.
_MAX_FEATURE = 65_535


@validate_params(
    {
        "path": [str, PathLike, list, tuple],
        "split": [str, list, tuple, None],
        "n_features": [Interval(Integral, 1, None, closed="left"), None],
    },
    prefer_skip_nested_validation=True,
)
def load_letor(
    path: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    split: str | Sequence[str] | None = None,
    n_features: int | None = None,
) -> pd.DataFrame:
    """Read documents with relevance labels from svmlight or Parquet files.

    svmlight is the format of LETOR, MSLR-WEB, Istella and Yahoo: ``label qid:7 1:0.5 2:13 ...``,
    one line per query-document pair. Parquet files have the columns ``qid``, ``label`` (or
    ``relevance``), one numeric column per feature and, optionally, ``doc`` and ``split``.

    Parameters
    ----------
    path : str, path-like or list of these
        Files of one format: ``.txt``, ``.svm``, ``.svmlight``, ``.libsvm`` or ``.dat``, also with
        ``.gz`` or ``.bz2`` appended; or ``.parquet``, ``.pq``. Several files are read as one set:
        a query id means the same query in all of them.
    split : str or list of str, default=None
        Keep the rows whose column ``split`` (Parquet only) has one of these values; None keeps
        all rows. The column itself is dropped in any case: it is no feature.
    n_features : int, default=None
        Number of features of an svmlight set, by default the largest feature id found. Because
        svmlight leaves out zeros, a file may not show all of them: pass the number so that files
        that are read separately get the same columns.

    Returns
    -------
    documents : pandas.DataFrame
        One row per query-document pair, in the order of the files: ``qid``, ``doc``,
        ``relevance`` (int if all labels are whole numbers) and the features. Features of svmlight
        files (float32) keep their ids: ``feature_001`` is the feature ``1:``. ``doc`` is unique
        over all rows: the row number if the files have no column ``doc``; otherwise their ids,
        or ``"qid/doc"`` if an id recurs, with ``"qid/doc/2"``, ``"qid/doc/3"``, ... for further
        rows of one pair.

    Raises
    ------
    ValueError
        If a file has another suffix or is malformed, there is no query id or no label, a label
        is negative or missing, a feature is not a finite number, or no row is left.

    See Also
    --------
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
    paths = _check_paths(path)
    if _format_of(paths) == "parquet":
        if n_features is not None:
            raise ValueError(
                "n_features= is for svmlight files; Parquet files name their columns."
            )
        documents = _read_parquet(paths, split)
    elif split is not None:
        raise ValueError(
            f"split={split!r} selects by the column 'split' of a Parquet file; an svmlight file "
            "has none. Pass the file of the split that you want."
        )
    else:
        documents = _read_svmlight(paths, n_features)
    if not len(documents):
        raise ValueError(f"{', '.join(paths)} has no rows; expected at least one document.")
    return _check_documents(documents)


# --------------------------------------------------------------------------------------
# Paths
# --------------------------------------------------------------------------------------
def _check_paths(path):
    paths = list(path) if isinstance(path, list | tuple) else [path]
    if not paths:
        raise ValueError("path is an empty list; expected at least one file.")
    return [fspath(each) for each in paths]


def _format_of(paths):
    formats = {_one_format(path) for path in paths}
    if len(formats) > 1:
        raise ValueError(
            f"path mixes svmlight and Parquet files: {', '.join(paths)}. Read them one by one."
        )
    return formats.pop()


def _one_format(path):
    name = path.lower()
    if name.endswith(_PARQUET):
        return "parquet"
    if name.removesuffix(".gz").removesuffix(".bz2").endswith(_SVMLIGHT):
        return "svmlight"
    raise ValueError(
        f"{path} is neither svmlight ({', '.join(_SVMLIGHT)}, also with .gz or .bz2) nor Parquet "
        f"({', '.join(_PARQUET)}) by its suffix. Rename the file, or pass the files of a folder "
        "one by one."
    )


# --------------------------------------------------------------------------------------
# Formats
# --------------------------------------------------------------------------------------
def _read_svmlight(paths, n_features):
    parts = _parse_svmlight(paths)
    features, labels, queries = parts[0::3], parts[1::3], parts[2::3]
    for path, label, query in zip(paths, labels, queries, strict=True):
        if len(label) != len(query):
            raise ValueError(
                f"{path} has {len(label)} rows, of which {len(query)} have a query id; expected "
                "'label qid:7 1:0.5 ...' in each of them."
            )
    # Feature ids count from 1 if the column of id 0 is empty.
    first = 0 if any(part[:, 0].nnz for part in features if part.shape[1]) else 1
    found = max(features[0].shape[1] - first, 0)
    if n_features is not None and n_features < found:
        raise ValueError(
            f"n_features={n_features}, but {', '.join(paths)} has {found} features. Pass at least "
            "as many, or None."
        )
    values = np.zeros((sum(map(len, labels)), n_features or found), dtype=np.float32)
    start = 0
    for part in features:
        with np.errstate(over="ignore"):  # infinite in float32, which _check_feature reports
            values[start : start + part.shape[0], :found] = part[:, first:].toarray()
        start += part.shape[0]
    names = [f"feature_{first + j:03d}" for j in range(values.shape[1])]
    roles = {"qid": np.concatenate(queries), "relevance": np.concatenate(labels)}
    return pd.concat([pd.DataFrame(roles), pd.DataFrame(values, columns=names)], axis=1)


def _parse_svmlight(paths):
    """Features, labels and query ids of the first file, then of the second, and so on."""
    for path in paths:
        with open(path, "rb"):
            pass  # a missing file is a FileNotFoundError, not a malformed one
    try:
        parts = load_svmlight_files(paths, dtype=np.float64, zero_based=True, query_id=True)
    except Exception as error:  # the parser raises many kinds of exceptions
        raise ValueError(
            f"Could not read {', '.join(paths)} as svmlight: {error}. Expected lines such as "
            "'2 qid:7 1:0.5 2:13', with feature ids in rising order."
        ) from error
    if parts[0].shape[1] > _MAX_FEATURE + 1:
        raise ValueError(
            f"{', '.join(paths)} has the feature id {parts[0].shape[1] - 1}; expected dense "
            f"features with ids up to {_MAX_FEATURE}."
        )
    return parts


def _read_parquet(paths, split):
    frames = [pd.read_parquet(path) for path in paths]
    for path, frame in zip(paths, frames, strict=True):
        if set(frame.columns) != set(frames[0].columns):
            differing = sorted(set(frame.columns) ^ set(frames[0].columns))
            raise ValueError(
                f"{path} and {paths[0]} differ in their columns {differing}; expected the same "
                "columns in all files."
            )
    frame = pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
    frame = _select_split(frame.reset_index(drop=True), split)
    if "label" in frame and "relevance" in frame:
        raise ValueError("The columns 'label' and 'relevance' mean the same; drop one of them.")
    frame = frame.rename(columns={"label": "relevance"})
    for role, name in (("qid", "qid"), ("relevance", "label")):
        if role not in frame:
            raise ValueError(
                f"{', '.join(paths)} has no column {name!r}; expected 'qid', 'label' and one "
                "column per feature. Rename the column that holds it."
            )
    return frame


def _select_split(frame, split):
    if split is None:
        return frame.drop(columns="split", errors="ignore")
    if "split" not in frame:
        raise ValueError(f"split={split!r}, but the file has no column 'split'.")
    wanted = [split] if isinstance(split, str) else list(split)
    known = frame["split"].unique().tolist()
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ValueError(
            f"split {unknown} is not in the file, which has {sorted(map(str, known))}."
        )
    rows = frame["split"].isin(wanted)
    return frame.loc[rows].drop(columns="split").reset_index(drop=True)


# --------------------------------------------------------------------------------------
# Checks of every data set
# --------------------------------------------------------------------------------------
def _check_documents(frame):
    features = [name for name in frame.columns if name not in ("qid", "doc", "relevance")]
    for name in features:
        _check_feature(name, frame[name])
    if frame["qid"].isna().any():
        raise ValueError(
            f"qid is missing in {int(frame['qid'].isna().sum())} of {len(frame)} rows; expected "
            "a query id in every row."
        )
    roles = {
        "qid": frame["qid"],
        "doc": _unique_docs(frame),
        "relevance": _check_labels(frame["relevance"]),
    }
    return pd.concat([pd.DataFrame(roles), frame[features]], axis=1)


def _check_feature(name, column):
    if not pd.api.types.is_numeric_dtype(column):
        raise ValueError(
            f"The column {name!r} has type {column.dtype}; expected numbers. Every column but "
            "qid, doc, label and split is a feature: encode it as numbers, or drop it."
        )
    bad = ~np.isfinite(column.to_numpy(dtype=float, na_value=np.nan))
    if bad.any():
        raise ValueError(
            f"The feature {name!r} is missing or infinite in {int(bad.sum())} of {len(bad)} "
            f"rows, first in row {int(bad.argmax())}; expected finite numbers. Impute them first."
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
    """One id per row: those of the file if they are unique, else combined with the query id."""
    if "doc" not in frame:
        return np.arange(len(frame))
    doc = frame["doc"]
    if doc.isna().any():
        raise ValueError(
            f"doc is missing in {int(doc.isna().sum())} of {len(doc)} rows; expected an id in "
            "every row. Fill in the ids, or drop the column to have the rows numbered."
        )
    if not doc.duplicated().any():
        return doc
    doc = frame["qid"].astype(str) + "/" + doc.astype(str)
    occurrence = doc.groupby(doc).cumcount() + 1
    doc = doc.where(occurrence == 1, doc + "/" + occurrence.astype(str))
    if doc.duplicated().any():
        raise ValueError(
            f"The ids of query and document are ambiguous when combined: {doc.mode()[0]!r} would "
            "name several rows. Rename the documents."
        )
    return doc
