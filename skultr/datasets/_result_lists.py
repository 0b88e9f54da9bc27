"""Reader of result lists with grades: one line per query, documents as numbers by position."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd

from .._sklearn import validate_params


@validate_params({"path": [str, PathLike], "split": [str]}, prefer_skip_nested_validation=True)
def load_result_lists(path: str | PathLike[str], *, split: str = "train") -> pd.DataFrame:
    """Read result lists and the grades of their documents from two text files of a folder.

    The layout is that of the ULTRA toolbox, in which the sets of the study of identifiability
    were published (Chen et al. 2024). Each line of ``train.init_list`` is a query and the numbers
    of the documents on its page, by position; each line of ``train.labels`` is the same query and
    the grades of the same documents. A negative number pads a page that is shorter.

    Parameters
    ----------
    path : str or path-like
        The folder.
    split : str, default="train"
        Name of the two files before the dot.

    Returns
    -------
    lists : pandas.DataFrame
        One row per document on a page, in the order of the file: ``qid`` (int if all are whole
        numbers, else str), ``doc`` (int), ``position`` (from 1), ``doc_scope`` ("global": a
        number names the same document under all queries) and ``relevance`` (int). There are no
        features and no clicks.

    Raises
    ------
    FileNotFoundError
        If a file is missing.
    ValueError
        If the files differ in their queries or in the length of a list, a line holds anything
        but whole numbers after its query, all pages are empty, a grade is negative, or a document
        has two grades.

    See Also
    --------
    skultr.simulation.make_disconnected_log : Makes such pages, and clicks on them.

    References
    ----------
    M. Chen, C. Liu, Z. Liu, Z. Li and J. Sun (2024). Identifiability matters: revealing the
    hidden recoverable condition in unbiased learning to rank. ICML.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from skultr.datasets import load_result_lists
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "train.init_list").write_text("q1 7 3\\nq2 3 5\\n")
    ...     _ = pathlib.Path(folder, "train.labels").write_text("q1 0 4\\nq2 4 1\\n")
    ...     lists = load_result_lists(folder)
    >>> lists
      qid  doc  position doc_scope  relevance
    0  q1    7         1    global          0
    1  q1    3         2    global          4
    2  q2    3         1    global          4
    3  q2    5         2    global          1

    Clicks of a position-based user, a million on each page:

    >>> import numpy as np
    >>> from skultr.simulation import EYE_TRACKING, relevance_probability
    >>> examination = np.array(EYE_TRACKING)[lists["position"] - 1]
    >>> chance = relevance_probability(lists["relevance"], max_grade=4) * examination
    >>> clicks = np.random.default_rng(0).binomial(1_000_000, chance) / 1_000_000
    >>> log = lists.assign(impressions=1_000_000)
    """
    pages = _read(Path(path) / f"{split}.init_list")
    grades = _read(Path(path) / f"{split}.labels")
    _check_same(pages, grades, split)
    n_shown = [len(documents) for _, documents in pages]
    rows = pd.DataFrame(
        {
            "qid": np.repeat(_as_ids([query for query, _ in pages]), n_shown),
            "doc": np.concatenate([documents for _, documents in pages]),
            "position": np.concatenate([np.arange(1, n + 1) for n in n_shown]),
            "doc_scope": "global",
            "relevance": np.concatenate([labels for _, labels in grades]),
        }
    )
    rows = rows[rows["doc"] >= 0].reset_index(drop=True)
    _check_pages(rows, split)
    _check_grades(rows, split)
    return rows


def _read(path):
    """The query and the numbers of each line."""
    lines = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        query, *numbers = line.split() or [""]
        if not query:
            continue
        try:
            lines.append((query, np.array(numbers, dtype=np.int64)))
        except (ValueError, OverflowError) as error:
            raise ValueError(
                f"{path}, line {number}: {error}. Expected a query and then whole numbers, "
                "separated by spaces."
            ) from error
    if not any(len(numbers) for _, numbers in lines):
        raise ValueError(f"{path} has no lists; expected a query and its documents on each line.")
    return lines


def _check_same(pages, grades, split):
    files = f"{split}.init_list and {split}.labels"
    if len(pages) != len(grades):
        raise ValueError(
            f"{files} have {len(pages)} and {len(grades)} lists; expected the same queries in the "
            "same order."
        )
    for (query, documents), (other, labels) in zip(pages, grades, strict=True):
        if query != other or len(documents) != len(labels):
            raise ValueError(
                f"{files} differ: query {query!r} with {len(documents)} documents against "
                f"{other!r} with {len(labels)} grades. Expected the same queries in the same "
                "order, and a grade for each document."
            )


def _as_ids(queries):
    """Whole numbers where no query would lose its name: "01" and "1" are two queries."""
    try:
        ids = np.array(queries, dtype=np.int64)
    except (ValueError, OverflowError):
        return np.array(queries, dtype=object)
    return ids if ids.astype(str).tolist() == queries else np.array(queries, dtype=object)


def _check_pages(rows, split):
    if rows.empty:
        raise ValueError(
            f"{split}.init_list shows no document: all numbers are negative, which pads short "
            "pages. Expected numbers of documents from 0."
        )


def _check_grades(rows, split):
    if (rows["relevance"] < 0).any():
        first = rows.loc[rows["relevance"] < 0].iloc[0]
        raise ValueError(
            f"{split}.labels has the grade {first['relevance']} for query {first['qid']!r}; "
            "expected grades of at least 0."
        )
    n_grades = rows.groupby("doc")["relevance"].nunique()
    if (n_grades > 1).any():
        doc = n_grades.index[n_grades > 1][0]
        found = sorted(rows.loc[rows["doc"] == doc, "relevance"].unique().tolist())
        raise ValueError(
            f"Document {doc} has the grades {found} in {split}.labels; expected one, because "
            "a number names the same document under all queries."
        )
