"""Columns of the log: queries that are written alike, and ids as categoricals."""

from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ._ubi_queries import Pages

#: The user of pages that name none, where others do.
_UNKNOWN = "unknown"


def normal_texts(texts: list[str]) -> tuple[list[str], NDArray[Any]]:
    """Normalized texts, and the code of each text's; -1 for blanks, and for no text (last)."""
    table = {"": -1}
    codes = [table.setdefault(_normalized(text), len(table) - 1) for text in texts]
    return list(table)[1:], np.array([*codes, -1])


def _normalized(text):
    """A query as equal queries are written: Unicode NFKC, lower case, single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def query_table(
    pages: Pages,
    rows: NDArray[np.intp],
    texts: dict[str, list[str]],
    normal: tuple[list[str], NDArray[Any]],
) -> tuple[NDArray[Any], pd.DataFrame]:
    """Code of the qid of each page, and the table of queries in the order of the codes."""
    applications = [*texts["application"], ""]
    keys = pd.DataFrame(
        {
            "text": normal[1][pages.text[rows]],
            "filters": pages.filters[rows],
            "application": pages.application[rows],
        }
    )
    several = keys.loc[keys["application"] >= 0, "application"].nunique() > 1
    if not several:  # pages that name none are of the only one
        keys["application"] = keys["application"].max()
    group = keys.groupby(list(keys.columns), sort=False).ngroup().to_numpy()

    def qid(text, filters, application):
        name = normal[0][text]
        name += f" [{texts['filters'][filters]}]" if filters >= 0 else ""
        return f"{applications[application]}: {name}" if several and application >= 0 else name

    names = [qid(*row) for row in keys.iloc[_firsts(group)].to_numpy()]
    of_group, names = pd.factorize(np.array(names, dtype=object))
    code = of_group[group]
    typed = pd.DataFrame({"code": code, "text": pages.text[rows]}).value_counts().reset_index()
    typed = typed.sort_values(["code", "count", "text"], ascending=[True, False, True])
    spelling = typed.drop_duplicates("code")["text"]
    queries = pd.DataFrame(
        {
            "qid": names,
            "user_query": [texts["text"][i] for i in spelling],
            "application": [applications[i] for i in keys["application"].iloc[_firsts(code)]],
            "pages": np.bincount(code, minlength=len(names)),
        }
    )
    code_of = np.full(len(pages.start), -1)
    code_of[rows] = code
    return code_of, queries


def _firsts(codes):
    """Row of the first occurrence of each code."""
    return np.unique(codes, return_index=True)[1]


def category(codes: NDArray[Any], texts: list[str]) -> pd.Categorical:
    """A categorical of the texts that occur; code -1 is "unknown"."""
    if codes.min(initial=0) < 0:
        texts = texts if _UNKNOWN in texts else [*texts, _UNKNOWN]
        codes = np.where(codes < 0, texts.index(_UNKNOWN), codes)
    used = np.zeros(len(texts), dtype=bool)
    used[codes] = True
    new = np.cumsum(used) - 1
    return pd.Categorical.from_codes(
        new[codes], [text for text, there in zip(texts, used, strict=True) if there]
    )
