"""Texts: queries as users mean them, ids as files hold them, and what terminals may print."""

import re
import unicodedata
from typing import Any

import pandas as pd

#: Characters that a terminal obeys, or that reorder or end lines, in names and values of others:
#: those of control but for tab and new line, of direction, ends of lines and halves of pairs.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def normal_text(text: str) -> str:
    """A query as equal ones are written: Unicode NFKC, lower case, single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def id_text(id_: Any, column: str) -> str:
    """An id as text; frames with gaps turn whole numbers into floats."""
    if pd.isna(id_) or not str(id_).strip():
        raise ValueError(f"{column} holds {id_!r}; expected an id. Drop these rows.")
    is_whole = isinstance(id_, float) and id_ % 1 == 0
    return f"{id_:.0f}" if is_whole else str(id_)


def visible_text(text: str) -> str:
    r"""A text that a terminal prints and does not obey: ``ESC`` becomes ``\x1b``."""
    return _OBEYED.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


class VisibleStream:
    """A stream of text that writes :func:`visible_text`, in whatever encoding.

    Parameters
    ----------
    stream : file
        Where it writes to, such as ``sys.stdout``.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write a text; characters that the encoding lacks are escaped, too."""
        # A stream in memory has no encoding.
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        shown = visible_text(text).encode(encoding, "backslashreplace").decode(encoding)
        self.stream.write(shown)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
