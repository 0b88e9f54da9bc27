"""Ids of documents in the comments of svmlight lines, as published sets and judgement lists have
them: ``#docid = GX029-35``, or the id and then the title, ``# 7001 tent``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ._thresholds import IDS_AGAIN, IDS_LOST

#: ``docid = ...`` anywhere in a comment; shorter names only at its start, since titles have them.
_NAMED = re.compile(
    r"(?:(?<![a-z])docid|^\s*(?:doc|id|doc[ _-]?id|doc[ _-]?no))\s*[=:]\s*(\S+)", re.IGNORECASE
)
_DIGIT = re.compile(r"\d")
#: What stands between an id and a title, besides blanks.
_BETWEEN = ",;:|"
#: What makes ids certain.
_HOW = "Write '#docid = ID' or '# ID title' in every row"


@dataclass
class Comments:
    """The comments of rows, taken one by one, and what their ids are."""

    n_rows: int = 0
    named: list[str] = field(default_factory=list)  # ids that are called so
    words: list[str] = field(default_factory=list)  # first words of the other comments
    n_alone: int = 0  # words without a title
    n_digits: int = 0  # words with a digit
    n_again: int = 0  # words that their query has before
    _seen: set[tuple[str, str]] = field(default_factory=set)

    def add(self, query: str, comment: str) -> None:
        """Take the comment of a row, which may be empty."""
        self.n_rows += 1
        if match := _NAMED.search(comment):
            self.named.append(match[1])
            return
        first, *title = comment.split(maxsplit=1) or [""]
        if title and title[0].startswith("="):  # the name of a value, such as inc = 1
            return
        word = first.strip("\"'").rstrip(_BETWEEN)
        if not word:
            return
        self.words.append(word)
        self.n_alone += not title
        self.n_digits += _DIGIT.search(word) is not None
        self.n_again += (query, word) in self._seen
        self._seen.add((query, word))


def ids_of(parts: Sequence[Comments], name: str) -> tuple[list[list[str]] | None, str]:
    """The ids of the rows of each part, None without any; and what is doubtful about them.

    Raises
    ------
    ValueError
        If only some rows have an id that is called so.
    """
    # First choice: ids that are called so. All rows have one, or none may.
    n_rows = sum(part.n_rows for part in parts)
    n_named = sum(len(part.named) for part in parts)
    if 0 < n_named < n_rows:
        raise ValueError(
            f"{name} has a comment '#docid = ...' in {n_named} of {n_rows} rows; expected one in "
            "every row or in none. Add the missing ids, or remove the comments."
        )
    if n_named:
        return [part.named for part in parts], ""
    return _ids_among_words(parts, n_rows, name)


def _ids_among_words(parts, n_rows, name):
    """As :func:`ids_of`, where no id is called so: the first words of the comments, perhaps."""
    n_words = sum(len(part.words) for part in parts)
    n_digits = sum(part.n_digits for part in parts)
    if n_words < n_rows or not n_rows:
        return None, _doubt_about_some(n_words, n_digits, n_rows, name)
    words = [part.words for part in parts]
    n_alone = sum(part.n_alone for part in parts)
    n_again = sum(part.n_again for part in parts)
    # Words of titles have digits, or stand alone, in some rows only.
    if max(n_digits, n_alone) == n_rows and n_again <= IDS_AGAIN.value * n_rows:
        return words, ""
    return _ids_in_doubt(words, n_again, n_rows, name)


def _ids_in_doubt(words, n_again, n_rows, name):
    """As :func:`ids_of`, where all rows have a comment and not all first words look like ids."""
    first = words[0][0]
    example = f"the first word of its comment, such as {first!r}"
    # An id names one document of its query: words that come again are none.
    if n_again:
        return None, (
            f"{name} has a comment in every row, but {example}, comes again in its query in "
            f"{n_again} of {n_rows} rows and is no id: no ids were read. {_HOW}, or remove the "
            "comments."
        )
    return words, (
        f"The id of each row of {name} is {example}, though some look like words of a title. If "
        f"they are no ids, remove the comments. {_HOW} otherwise."
    )


def _doubt_about_some(n_words, n_digits, n_rows, name):
    """What is doubtful where only some rows have a comment: whether these are ids."""
    looks_like_ids = n_words > 0 and n_digits == n_words
    if not looks_like_ids or n_words < IDS_LOST.value * n_rows:
        return ""
    return (
        f"{name} has a comment that begins like an id in {n_words} of {n_rows} rows, and none "
        f"in the others: the ids were not read. {_HOW}."
    )
