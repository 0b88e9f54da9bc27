"""Ids of documents in the comments of svmlight lines, as published sets and judgement lists have
them: ``#docid = GX029-35``, or the id and then the title, ``# 7001 tent``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

#: ``docid = ...`` anywhere in a comment; shorter names only at its start, since titles have them.
_NAMED = re.compile(
    r"(?:(?<![a-z])docid|^\s*(?:doc|id|doc[ _-]?id|doc[ _-]?no))\s*[=:]\s*(\S+)", re.IGNORECASE
)
_DIGIT = re.compile(r"\d")
#: What stands between an id and a title, besides blanks.
_BETWEEN = ",;:|"
#: Up to this share of rows may have an id again that their query has: a document judged twice.
_FEW = 0.1
#: From this share of rows with something like an id on, the others seem to have lost theirs.
_MOST = 0.5

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
    n_rows, n_named, n_words, n_alone, n_digits, n_again = (
        sum(numbers)
        for numbers in zip(
            *(
                (p.n_rows, len(p.named), len(p.words), p.n_alone, p.n_digits, p.n_again)
                for p in parts
            ),
            strict=True,
        )
    )
    if 0 < n_named < n_rows:
        raise ValueError(
            f"{name} has a comment '#docid = ...' in {n_named} of {n_rows} rows; expected one in "
            "every row or in none. Add the missing ids, or remove the comments."
        )
    if n_named:
        return [part.named for part in parts], ""
    if n_words < n_rows or not n_rows:
        alike = n_words and n_digits == n_words and n_words >= _MOST * n_rows
        return None, (
            f"{name} has a comment that begins like an id in {n_words} of {n_rows} rows, and none "
            f"in the others: the ids were not read. {_HOW}."
            if alike
            else ""
        )
    example = f"the first word of its comment, such as {next(p.words[0] for p in parts)!r}"
    if max(n_digits, n_alone) == n_rows and n_again <= _FEW * n_rows:
        return [part.words for part in parts], ""
    if n_again:
        return None, (
            f"{name} has a comment in every row, but {example}, comes again in its query in "
            f"{n_again} of {n_rows} rows and is no id: no ids were read. {_HOW}, or remove the "
            "comments."
        )
    return [part.words for part in parts], (
        f"The id of each row of {name} is {example}, though some look like words of a title. If "
        f"they are no ids, remove the comments. {_HOW} otherwise."
    )
