"""Attributes of events and queries that are kept as columns of the log."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ._ubi_records import OF_DOC, OF_PAGE, writable


def check_attributes(
    names: Collection[str], texts: Mapping[str, Sequence[str]], found: Collection[str]
) -> None:
    """Raise an error if an attribute has no value in any record; ``found`` are those there."""
    missing = [
        name for name in names if not texts[f"{OF_PAGE}{name}"] and not texts[f"{OF_DOC}{name}"]
    ]
    if missing:
        others = ", ".join(map(repr, sorted(found))) or "none"
        raise ValueError(
            f"No event or query has the attributes {missing}. Found: {others}. Name an "
            "attribute of event_attributes, of the object in it, or of query_attributes."
        )


def attribute_column(
    name: str,
    shown: pd.DataFrame,
    events: pd.DataFrame,
    queries: pd.DataFrame,
    texts: Mapping[str, Sequence[str]],
) -> Any:
    """The values of an attribute: of the impression of each row shown, else of its page."""
    texts_of_docs = texts[f"{OF_DOC}{name}"]
    texts_of_pages = texts[f"{OF_PAGE}{name}"]
    # Not those of clicks: what only clicks have would tell them.
    event = shown["event"].to_numpy()
    own = np.where(event >= 0, events[f"{OF_DOC}{name}"].to_numpy()[event], -1)
    # Of a page, what its first query record says, or else its first event.
    value = f"{OF_PAGE}{name}"
    queries = queries[["query_id", value]].rename(columns={"query_id": "page"})
    told = pd.concat([queries, events[["page", value]]])
    first = told[told[value] >= 0].drop_duplicates("page").set_index("page")[value]
    codes = first.reindex(shown["page"], fill_value=-1).to_numpy()
    codes = np.where(codes < 0, -1, codes + len(texts_of_docs))
    codes = np.where(own < 0, codes, own)
    return _as_column(codes, [*texts_of_docs, *texts_of_pages])


def _as_column(codes, texts):
    """Values of JSON texts: numbers if all are, and else a categorical of texts; -1 is missing."""
    values = [json.loads(texts[code]) for code in range(len(texts))]
    used = [values[code] for code in np.unique(codes[codes >= 0])]
    if all(isinstance(value, int | float) for value in used):
        numbers = [value if isinstance(value, int | float) else np.nan for value in values]
        return np.array([*numbers, np.nan], dtype=np.float64)[codes]
    names = [value if isinstance(value, str) else json.dumps(value) for value in values]
    names = np.array([*map(writable, names), None], dtype=object)
    return pd.Categorical(names[codes])
