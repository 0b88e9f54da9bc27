"""The public face of a log on disk."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._progress import working
from .._typing import AnyFrame, Floats, Ints
from ._batches import open_table
from ._dataset_documents import load_ids
from ._dataset_frames import cells_of, places_of, rows_of
from ._dataset_writer import FORMAT, write_log
from ._on_disk import LogOnDisk
from ._open_logs import shared_log
from ._stored_log import StoredLog, load_doc_ids, open_log

if TYPE_CHECKING:
    import pyarrow.dataset as ds


class ClickDataset(LogOnDisk):
    """A click log on disk, which is read once and then trained from by every estimator.

    The log is checked and merged like a log in memory, and written as arrays that are mapped into
    memory where they are used. ``fit(dataset)`` then needs no ``y``: the dataset holds the clicks.
    In a search, workers get the path and no copy.

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
        If another version of skultr wrote it.

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
        if not (self.path / "meta.json").exists():
            raise FileNotFoundError(
                f"There is no ClickDataset in {str(path)!r}. Make it with "
                "ClickDataset.from_parquet(log, path=...)."
            )
        self._meta = _read_meta(self.path)
        if self._meta["format"] != FORMAT:
            raise ValueError(
                f"The dataset in {str(path)!r} has format {self._meta['format']}; this version of "
                f"skultr reads format {FORMAT}. Make it again from the log."
            )
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
            Name of the column of clicks. Without a column ``impressions`` it holds values between
            0 and 1 (larger ones are graded relevance and divided by their maximum); else the
            *number* of clicks of each row, between 0 and ``impressions``.
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
        While it is written, the rows are spread over files beside ``path`` by query, which takes
        about 50 bytes per row (with features in the log, also the features). Memory is that of
        some ten million rows, and of the distinct ids of queries and documents.
        """
        path = Path(path)
        if path.exists():
            raise FileExistsError(
                f"{str(path)!r} exists already. Open it with ClickDataset(path), or name another "
                "folder."
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
        try:
            scratch, out = work / "scratch", work / "out"
            scratch.mkdir()
            out.mkdir()
            table = None if documents is None else open_table(documents, scratch)
            with working("ClickDataset"):
                write_log(
                    *open_table(log, out.parent), table, click=click, scratch=scratch, out=out
                )
            out.rename(path)
        finally:
            shutil.rmtree(work)
        return cls(path)

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return self._n_queries_of_folder if self._queries is None else len(self._queries)

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
        return len(np.load(self.path / "features.npy", mmap_mode="r"))

    @property
    def feature_names(self) -> list[str]:
        """Names of the features."""
        return self._meta["feature_names"]

    @property
    def roles(self) -> list[str]:
        """Roles that the log has."""
        return list(dict.fromkeys([*self._meta["roles"], *self._replaced]))

    @property
    def doc_ids(self) -> pd.Index | None:
        """What the codes of documents stand for; None without ids."""
        return load_doc_ids(self.path) if self._queries is None else self.log().doc_ids

    @property
    def shape(self) -> tuple[int, int]:
        """(n_queries, n_features)."""
        return self.n_queries, self.n_features

    @property
    def query_ids(self) -> NDArray[Any]:
        """Ids of the queries, sorted, shape (n_queries,)."""
        ids = load_ids(self.path, "query_ids")
        return ids if self._queries is None else ids[self._queries]

    @property
    def query_impressions(self) -> Ints:
        """Rows of the log of each query, shape (n_queries,)."""
        counts = np.load(self.path / "query_impressions.npy")
        return counts if self._queries is None else counts[self._queries]

    def __len__(self) -> int:
        return self.n_queries

    def __getitem__(self, queries: Any) -> Self:
        """The dataset of some queries, by their numbers or by a mask; their order stays."""
        if isinstance(queries, tuple):  # scikit-learn indexes [rows, ...]
            queries = queries[0]
        known = np.arange(self.n_queries)
        given = np.atleast_1d(known[queries])
        found = np.unique(given)
        if not len(found):
            raise ValueError("A dataset needs at least one query; no query was selected.")
        if len(found) < len(given):
            raise ValueError(
                f"{len(given) - len(found)} of {len(given)} selected queries are there twice; "
                "expected each at most once. A dataset has no copies of a query: draw without "
                "replacement."
            )
        part = copy(self)
        part._queries = found if self._queries is None else self._queries[found]
        return part

    def __repr__(self) -> str:
        n, plural = self.n_features, "" if self.n_features == 1 else "s"
        return (
            f"ClickDataset({self.n_impressions:,} impressions of {self.n_queries:,} "
            f"{'query' if self.n_queries == 1 else 'queries'}, {self.n_documents:,} documents "
            f"with {n} feature{plural})"
        )

    def log(self, *, detailed: bool = True) -> StoredLog:
        """The log as the estimators read it; columns are read from disk when they are used.

        Parameters
        ----------
        detailed : bool, default=True
            Whether equal lists with other clicks or users stay apart; by default they do.
        """
        if _read_meta(self.path) != self._meta:
            raise ValueError(
                f"The dataset in {str(self.path)!r} was written anew since it was opened; open it "
                "again with ClickDataset(path)."
            )
        parts = [each for pair in self._replaced.values() for each in pair]
        queries = b"" if self._queries is None else self._queries.tobytes()
        written = (self.path / "meta.json").stat().st_mtime_ns
        values = [*self._replaced, *(tuple(each.tolist()) for each in parts)]
        key = (str(self.path.resolve()), written, detailed, queries, *values)
        return shared_log(key, lambda: self._open(detailed))

    def _open(self, detailed):
        log = open_log(self.path, detailed)
        for role, (known, values) in self._replaced.items():
            log = log.with_values(role, known, values)
        return log if self._queries is None else log.part_of(self._queries)

    def to_frame(self) -> tuple[pd.DataFrame, Floats]:
        """All rows of the log in memory, equal lists merged, for code that reads frames.

        ``estimator.fit(*dataset.to_frame())`` gives what ``estimator.fit(dataset)`` gives, up to
        rounding errors. Estimators that need more than clicks and impressions of documents and
        bias factors, and scorers, read a dataset through it.

        Returns
        -------
        X : DataFrame of shape (n_rows, n_columns)
            Roles and features, one row per document of each distinct list. ``session`` is the
            number of the list, ``impressions`` how often it was served.
        click_rate : ndarray of shape (n_rows,)
            Clicks per impression.
        """
        return rows_of(self.log(), self.roles, self.feature_names)

    def to_cells(self, by: Sequence[str]) -> tuple[pd.DataFrame, Floats]:
        """Clicks and impressions of each document, as a log of one row per cell."""
        return cells_of(self.log(detailed="user" in by), by)

    def with_values(
        self, role: Literal["bias", "user"], known: NDArray[Any], values: NDArray[Any]
    ) -> Self:
        """The dataset with other bias factors or users in place of the ``known`` ones."""
        found = copy(self)
        before, after = self._replaced.get(role, (known, known))
        place = pd.Index(known).get_indexer(pd.Index(after))
        found._replaced = {**self._replaced, role: (before, values[place])}
        return found

    def to_places(self) -> pd.DataFrame:
        """The distinct positions, bias factors and users, one row each."""
        return places_of(self.log(detailed="user" in self.roles), self.roles)[0]

    @property
    def _n_queries_of_folder(self):
        return len(np.load(self.path / "query_impressions.npy", mmap_mode="r"))


def _read_meta(path):
    return json.loads((path / "meta.json").read_text())
