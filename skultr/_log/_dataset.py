"""The public face of a log on disk."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Hashable, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self
from weakref import WeakValueDictionary

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._progress import working
from .._base._typing import AnyFrame, Ints
from .._base._writing import folder_beside
from ._clicklog import ClickLog
from ._dataset_frames import SMALL, FramesOfLog, Manifest, load_doc_ids, open_log, open_table
from ._dataset_writer import write_log
from ._faults import NO_ROW_SHOWN

if TYPE_CHECKING:
    import pyarrow.dataset as ds


class ClickDataset(FramesOfLog):
    """A click log on disk, which is read once and then trained from by every estimator.

    The log is checked and merged like a log in memory. It is written as Arrow files, which are
    mapped into memory where they are used, and which Polars and PyArrow read, too.
    ``fit(dataset)`` needs no ``y``, because the dataset holds the clicks. In a search, workers
    get the path and no copy.

    One item is one query, whose lists stay together: ``dataset[numbers]`` is the dataset of some
    queries, and every splitter of scikit-learn splits by query.

    Parameters
    ----------
    path : str or Path
        Folder that :meth:`from_parquet` wrote.

    Attributes
    ----------
    path : Path
    n_queries : int
    n_impressions : int
        Rows of the log before equal lists were merged; of the whole folder.
    n_features : int
    n_documents : int
        Distinct documents of the whole folder.
    feature_names : list of str
    roles : list of str
        Roles that the log has, such as ``user``.
    shape : tuple (n_queries, n_features)

    Raises
    ------
    FileNotFoundError
        If the folder holds no dataset.
    ValueError
        If another version of skultr wrote it, or a file is missing or has another size.

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> from skultr import ClickDataset
    >>> from skultr.rankers import NaiveRanker
    >>> log = pd.DataFrame({
    ...     "qid": [1, 1, 2, 2, 3, 3],
    ...     "doc": ["a", "b", "c", "d", "e", "f"],
    ...     "position": [1, 2, 1, 2, 1, 2],
    ...     "bm25": [0.1, 0.9, 0.4, 0.2, 0.7, 0.3],
    ...     "click": [0, 1, 1, 0, 1, 0],
    ... })
    >>> folder = tempfile.mkdtemp() + "/clicks"
    >>> dataset = ClickDataset.from_parquet(log, path=folder)
    >>> dataset
    ClickDataset(6 impressions of 3 queries, 6 documents with 1 feature)
    >>> ranker = NaiveRanker(max_epochs=1, early_stopping=False).fit(dataset)
    >>> ranker.predict(log[["bm25"]]).shape
    (6,)
    >>> len(dataset[:2])
    2
    """

    def __init__(self, path: str | Path) -> None:
        # Workers may have other working directories.
        self.path = Path(path).absolute()
        self._manifest = Manifest.read(self.path)
        self._queries: Ints | None = None
        self._replaced: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}

    @classmethod
    def from_parquet(
        cls,
        log: str | Path | Sequence[str | Path] | ds.Dataset | AnyFrame,
        documents: str | Path | Sequence[str | Path] | ds.Dataset | AnyFrame | None = None,
        *,
        click: str = "click",
        path: str | Path,
    ) -> Self:
        """Read a log once, in parts, and write it as a dataset.

        Parameters
        ----------
        log : Parquet files or folders, pyarrow.dataset.Dataset, or frame
            One row per document of each served list, in any order: the clicks, the roles ``qid``
            and ``position``, and optionally ``doc``, ``session``, ``bias``, ``user``,
            ``impressions``, ``propensity``, ``production`` and ``doc_scope``. Frames of pandas,
            Polars (also lazy) and PyArrow, and relations of DuckDB are read too.
        documents : the same, default=None
            Features of each ``doc``; with a column ``qid``, of each document of a query.
            Documents that the log does not have are ignored. By default the columns of the log
            without a role are the features.
        click : str, default="click"
            Name of the column of clicks. With a column ``impressions`` it holds the number of
            clicks of each row, at most its impressions, or the click rate. Without one it holds
            values from 0 to 1; larger values are graded relevance, and are divided by their
            maximum.
        path : str or Path
            Folder to write, which must not exist yet.

        Returns
        -------
        dataset : ClickDataset

        Raises
        ------
        FileExistsError
            If ``path`` exists.
        ValueError
            If the log has a fault, or ``documents`` lacks a document of the log. Nothing is left
            on disk then.

        Notes
        -----
        While the dataset is written, its rows lie in files beside ``path``: about 50 bytes per
        row, and the features if the log has them. Memory holds some ten million rows, and the
        distinct ids of queries and documents.
        """
        path = Path(path)
        _refuse_to_replace(path)
        # Written beside its place, and renamed when it is whole: nothing is left after an error.
        path.parent.mkdir(parents=True, exist_ok=True)
        with folder_beside(path) as work:
            scratch = work / "scratch"
            out = work / "out"
            scratch.mkdir()
            out.mkdir()
            table = None if documents is None else open_table(documents, scratch, "document")
            with working("ClickDataset"):
                schema, parts = open_table(log, work, "row")
                write_log(schema, parts, table, click=click, scratch=scratch, out=out)
            # Another process may have written there in the meantime.
            _refuse_to_replace(path)
            try:
                out.rename(path)
            except OSError:  # another process was quicker by less than a moment
                _refuse_to_replace(path)
                raise
        return cls(path)

    def verify(self) -> Self:
        """Read all files, and compare their sums with those of the manifest.

        Opening a dataset compares sizes, and the sums of small files only.

        Returns
        -------
        dataset : ClickDataset
            This one.

        Raises
        ------
        ValueError
            If a file is damaged or missing, with its name.
        """
        # From disk, since files may have been copied since it was opened.
        Manifest.read(self.path).verify()
        return self

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return self._manifest.facts["n_queries"] if self._queries is None else len(self._queries)

    @property
    def n_impressions(self) -> int:
        """Rows of the log before equal lists were merged."""
        return int(self.query_impressions.sum())

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.feature_names)

    @property
    def n_documents(self) -> int:
        """Distinct documents of the whole folder."""
        return self._manifest.facts["n_documents"]

    @property
    def feature_names(self) -> list[str]:
        """Names of the features."""
        return self._manifest.facts["feature_names"]

    @property
    def roles(self) -> list[str]:
        """Roles that the log has."""
        return list(dict.fromkeys([*self._manifest.facts["roles"], *self._replaced]))

    @property
    def doc_ids(self) -> pd.Index | None:
        """What the codes of documents stand for; None without ids."""
        return load_doc_ids(self._manifest) if self._queries is None else self.log().doc_ids

    @property
    def shape(self) -> tuple[int, int]:
        """(n_queries, n_features)."""
        return self.n_queries, self.n_features

    @property
    def query_ids(self) -> NDArray[Any]:
        """Ids of the queries, sorted, shape (n_queries,)."""
        ids = self._manifest.load("queries")["id"]
        return ids if self._queries is None else ids[self._queries]

    @property
    def query_impressions(self) -> Ints:
        """Rows of the log of each query, shape (n_queries,)."""
        counts = self._manifest.load("queries")["impressions"]
        return counts if self._queries is None else counts[self._queries]

    def __len__(self) -> int:
        return self.n_queries

    def __getitem__(self, queries: Any) -> Self:
        """The dataset of some queries, by their numbers or by a mask; their order stays."""
        if isinstance(queries, tuple):  # scikit-learn indexes [rows, ...]
            queries = queries[0]
        every = np.arange(self.n_queries)
        given = np.atleast_1d(every[queries])
        # Sorted, because a log is; splitters may shuffle.
        found = np.unique(given)
        if not len(found):
            raise ValueError("A dataset needs at least one query; no query was selected.")
        if len(found) < len(given):
            raise ValueError(
                f"{len(given) - len(found)} of {len(given)} selected queries are there twice; "
                "expected each at most once. A dataset has no copies of a query: draw without "
                "replacement."
            )
        # The same files, and no copy of them.
        part = copy(self)
        part._queries = found if self._queries is None else self._queries[found]
        return part

    def __repr__(self) -> str:
        queries = "query" if self.n_queries == 1 else "queries"
        features = "feature" if self.n_features == 1 else "features"
        return (
            f"ClickDataset({self.n_impressions:,} impressions of {self.n_queries:,} {queries}, "
            f"{self.n_documents:,} documents with {self.n_features} {features})"
        )

    def log(self, *, detailed: bool = True) -> ClickLog:
        """The log as the estimators read it; columns are read from disk when they are used.

        Parameters
        ----------
        detailed : bool, default=True
            Whether equal lists with other clicks or users stay apart; by default they do.
        """
        # Another process may have written the folder anew.
        found = Manifest.read(self.path)
        if found.files != self._manifest.files:
            raise ValueError(
                f"The dataset in {str(self.path)!r} was written anew since it was opened; open it "
                "again with ClickDataset(path)."
            )
        found.verify(SMALL)
        # All that the log depends on.
        queries = b"" if self._queries is None else self._queries.tobytes()
        replaced = [(role, *map(tuple, pair)) for role, pair in self._replaced.items()]
        sums = tuple(file["crc32"] for file in found.files.values())
        key = (str(self.path.resolve()), sums, detailed, queries, *replaced)
        return _shared_log(key, lambda: self._open(detailed))

    def _open(self, detailed):
        """The log from the files, with the values that were replaced, of the chosen queries."""
        # Values first: the selection numbers them anew.
        log = open_log(self._manifest, detailed)
        for role, (known, values) in self._replaced.items():
            log = log.with_values(role, known, values)
        if self._queries is not None:
            log = log.part_of(self._queries)
            if not log.n_rows:
                NO_ROW_SHOWN.report()
        return log

    def with_values(
        self, role: Literal["bias", "user"], known: NDArray[Any], values: NDArray[Any]
    ) -> Self:
        """The dataset with other bias factors or users in place of the ``known`` ones."""
        found = copy(self)
        # Values that were replaced before are replaced again: the files keep the first ones.
        before, after = self._replaced.get(role, (known, known))
        place = pd.Index(known).get_indexer(pd.Index(after))
        found._replaced = {**self._replaced, role: (before, values[place])}
        return found


#: Logs that this process has open: the candidates of a search share them.
_logs: WeakValueDictionary[Hashable, ClickLog] = WeakValueDictionary()
#: The last ones of them wait for the next candidate, as long as they are small.
_waiting: deque[ClickLog] = deque(maxlen=4)


def _shared_log(key, make):
    """The log of a key that is open, or else a new one."""
    log = _logs.get(key)
    if log is None:
        log = make()
        _logs[key] = log
    if log.n_rows <= 1 << 21:  # larger ones would fill memory
        _waiting.append(log)
    return log


def _refuse_to_replace(path):
    if os.path.lexists(path):  # a link to nowhere, too
        raise FileExistsError(
            f"{str(path)!r} exists already. Open it with ClickDataset(path), or name another "
            "folder."
        )
