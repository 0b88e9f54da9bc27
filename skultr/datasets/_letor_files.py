"""The files of a published learning-to-rank set, found in the folder that it unpacks to."""

from __future__ import annotations

import bz2
import gzip
import re
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import IO, NamedTuple

from .._sklearn import Interval, validate_params

SVMLIGHT = (".txt", ".svm", ".svmlight", ".libsvm", ".dat")
PARQUET = (".parquet", ".pq")

#: How the names of files tell a split: train.txt, trainingset.txt, set1.valid.txt, vali.txt.
_SPLITS = {"train": "train", "validation": "vali|val|dev", "test": "test"}
#: How a file or its folder tells a fold: Fold3/train.txt, msn1.fold3.train.txt; Yahoo!'s sets.
_FOLD = re.compile(r"(?<![a-z])(?:fold|set)[ _-]?(\d+)(?!\d)")
_DOC_ID = re.compile(rb"(?<![a-z])docid\s*=\s*(\S+)", re.IGNORECASE)
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
        ``train.parquet``, as Spark writes it, counts as a file, and hidden files do not count.
    fold : int, default=None
        Which fold (``Fold1/train.txt``), or which set of Yahoo! (``set1.train.txt``). May be left
        out where there is only one.

    Returns
    -------
    splits : dict of str to pathlib.Path
        ``"train"``, ``"validation"`` and ``"test"``, in this order, as far as they were found,
        and their files.

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
    named = [(fold_of(path), split_of(path), path) for path in files]
    named = [each for each in named if each[1] is not None]
    if not named:
        found = ", ".join(str(path.relative_to(folder)) for path in files[:5]) or "none"
        raise ValueError(
            f"{folder} holds no file of a split, such as train.txt, vali.txt or test.parquet. "
            f"Files of documents that were found: {found}. Pass a file, or a list of files."
        )
    fold = _only_fold(folder, {number for number, _, _ in named}, fold)
    return _one_file_each(
        folder, [(split, path) for number, split, path in named if number == fold]
    )


def is_documents(path: Path) -> bool:
    """Whether the suffix is one of svmlight, also compressed, or of Parquet."""
    name = path.name.lower()
    return is_parquet(path) or name.removesuffix(".gz").removesuffix(".bz2").endswith(SVMLIGHT)


def is_parquet(path: Path) -> bool:
    """Whether the suffix is one of Parquet: of a file, or of a folder that Spark writes."""
    return path.name.lower().endswith(PARQUET)


def _counts(path):
    """Whether it is a file of documents; Parquet's may be a folder, whose parts do not count."""
    if path.name.startswith(".") or is_parquet(path.parent) or not is_documents(path):
        return False
    return path.is_file() or is_parquet(path)


def split_of(path: Path) -> str | None:
    """The split that the name of a file tells; None without one."""
    name = path.name.lower()
    matches = (
        split for split, words in _SPLITS.items() if re.search(f"(?<![a-z])(?:{words})", name)
    )
    return next(matches, None)


def fold_of(path: Path) -> int | None:
    """The fold that the name of a file tells, or else that of its folder; None without one."""
    for name in (path.name, path.parent.name):
        if match := _FOLD.search(name.lower()):
            return int(match[1])
    return None


class SvmlightLines(NamedTuple):
    """What one pass over a file tells that its parser does not."""

    doc: list[str]  # the #docid of each row that has one
    n_rows: int
    last_feature: int
    from_zero: bool


def scan_svmlight(path: str) -> SvmlightLines:
    """Ids of documents in comments, and the range of feature ids, which rise along a row."""
    doc, n_rows, last_feature, from_zero = [], 0, 0, False
    with open_svmlight(path) as file:
        for line in file:
            row, _, comment = line.partition(b"#")
            if not row.strip():
                continue
            n_rows += 1
            last_feature = max(last_feature, _last_feature(row))
            from_zero = from_zero or _ZERO.search(row) is not None
            if match := _DOC_ID.search(comment):
                doc.append(match[1].decode(errors="backslashreplace"))
    return SvmlightLines(doc, n_rows, last_feature, from_zero)


def _last_feature(row):
    before, _, _ = row.rpartition(b":")
    feature = before[max(before.rfind(b" "), before.rfind(b"\t")) + 1 :]
    return int(feature) if feature.isdigit() and len(feature) < 10 else 0


def open_svmlight(path: str) -> IO[bytes]:
    """The lines of a file, which may be compressed."""
    opener = {".gz": gzip.open, ".bz2": bz2.open}.get(Path(path).suffix.lower(), open)
    return opener(path, "rb")


def _only_fold(folder, found, fold):
    numbers = sorted(number for number in found if number is not None)
    if fold is None and len(found) == 1:
        return found.pop()
    if fold is None:
        beside = " and files of no fold" if None in found else ""
        raise ValueError(
            f"{folder} holds {_numbered(numbers)}{beside}; queries of different folds must not "
            f"be mixed. Pass fold={numbers[0]}, say."
        )
    if fold not in found:
        raise ValueError(
            f"fold={fold}, but {folder} holds {_numbered(numbers) or 'no folds'}. "
            + ("Pass one of them." if numbers else "Leave fold out.")
        )
    return fold


def _numbered(numbers):
    if not numbers:
        return ""
    return ("fold " if len(numbers) == 1 else "the folds ") + ", ".join(map(str, numbers))


def _one_file_each(folder, named):
    splits = {}
    for split in _SPLITS:
        files = [path for each, path in named if each == split]
        if len(files) > 1:
            names = ", ".join(str(path.relative_to(folder)) for path in files[:5])
            raise ValueError(
                f"{folder} holds {len(files)} files of the split {split!r}: {names}. Pass the "
                "folder that holds one of them, or the files themselves."
            )
        if files:
            splits[split] = files[0]
    return splits
