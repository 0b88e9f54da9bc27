"""Further attributes of events and searches, as columns of the log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ._ubi_records import OF_DOC, OF_PAGE, writable


def check_attributes(
    attributes: Iterable[str], texts: Mapping[str, Sequence[str]], found: Iterable[str]
) -> None:
    """Raise an error if an attribute has no value in any record; ``found`` are all that exist."""
    missing = [
        name for name in attributes if not texts[f"{OF_PAGE}{name}"] + texts[f"{OF_DOC}{name}"]
    ]
    if missing:
        listed = ", ".join(map(repr, sorted(found))) or "none"
        raise ValueError(
            f"No event or query has a value of the attributes {missing}. Found: {listed}. Name an "
            "attribute of event_attributes, of the object in it, or of query_attributes."
        )


def read_attribute(
    name: str,
    shown: pd.DataFrame,
    texts: Mapping[str, Sequence[str]],
    events: pd.DataFrame,
    queries: pd.DataFrame,
) -> tuple[NDArray[Any] | pd.Categorical, list[str]]:
    """The values of an attribute by row of the log, and what is doubtful of them.

    They are those of the impression of each document, and else those of its page.
    """
    doc_texts = texts[f"{OF_DOC}{name}"]
    # Not those of clicks: what only clicks have would tell them.
    event = shown["event"].to_numpy()
    own = np.where(event >= 0, events[f"{OF_DOC}{name}"].to_numpy()[event], -1)
    # Of a page, what its first query record says, or else its first event.
    value = f"{OF_PAGE}{name}"
    said = queries[["query_id", value]].rename(columns={"query_id": "page"})
    said = pd.concat([said, events[["page", value]]])
    first = said[said[value] >= 0].drop_duplicates("page").set_index("page")[value]
    codes = first.reindex(shown["page"], fill_value=-1).to_numpy()
    codes = np.where(codes < 0, -1, codes + len(doc_texts))
    codes = np.where(own < 0, codes, own)
    doubts = []
    if (codes < 0).all():
        doubts.append(
            f"No row of the log has a value of {name!r}: no impression in it and none of its "
            "pages has one. Send it with impressions or searches: clicks alone do not count."
        )
    return _as_column(codes, [*doc_texts, *texts[value]]), doubts


def _as_column(codes, texts):
    """Values of JSON texts: numbers if all are, and else a categorical of texts; -1 is missing."""
    values = [json.loads(text) for text in texts]
    used = [values[code] for code in np.unique(codes[codes >= 0])]
    if all(isinstance(value, int | float) for value in used):
        # By the text, because a whole number may be too large for a float: then it is infinite.
        read = [json.loads(text, parse_int=float) for text in texts]
        numbers = [value if isinstance(value, int | float) else np.nan for value in read]
        return np.array([*numbers, np.nan], dtype=np.float64)[codes]
    names = [value if isinstance(value, str) else json.dumps(value) for value in values]
    names = np.array([*map(writable, names), None], dtype=object)
    return pd.Categorical(names[codes])
