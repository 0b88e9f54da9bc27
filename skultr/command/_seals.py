"""Pages that state what was written with them, so that a later run knows its own files."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from .._base._writing import folder_beside, refuse_to_replace

#: The end of a page: the sums of its text and of other files.
_SEAL = re.compile(rb"\n<!-- written by skultr: (\{[^<>]*\}) -->\n\Z")
#: More bytes than a seal has, which names a dozen of files.
_LONGEST = 1 << 14
#: The name that stands for the text of the page.
_PAGE = "page"


def write_sealed(path: Path, text: str, sums: Mapping[str, list[str]]) -> None:
    """Write a page that states sums of other files, by name."""
    content = text.encode()
    stated = {**sums, _PAGE: [hashlib.sha256(content).hexdigest()]}
    path.write_bytes(content + f"\n<!-- written by skultr: {json.dumps(stated)} -->\n".encode())


def sums_in(path: Path) -> dict[str, list[str]] | None:
    """The sums that a page states; None if it is no page of skultr, or was changed since."""
    with path.open("rb") as file:
        # Only the end is read: any file may be here, of any length.
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _LONGEST))
        found = _SEAL.search(file.read())
        if found is None:
            return None
        file.seek(0)
        text = file.read(size - len(found.group()))
    try:
        stated = json.loads(found.group(1))
    except ValueError:
        return None
    return stated if stated.get(_PAGE) == [hashlib.sha256(text).hexdigest()] else None


def sum_of(path: Path) -> str:
    """The sum of a file, as a page states it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def refuse_page(path: Path, sources: Sequence[str]) -> None:
    """Raise an error if a page at ``path`` would replace a source or another's file."""
    refuse_to_replace(path, lambda page: sums_in(page) is not None, "a report", sources)


def replace_page(path: Path, text: str, sources: Sequence[str]) -> None:
    """Write a page, whole or not at all."""
    # Written beside, and then moved: whoever reads meanwhile has the old page or the new one.
    with folder_beside(path) as folder:
        write_sealed(folder / "page", text, {})
        # Again: another program may have put a file here since.
        refuse_page(path, sources)
        (folder / "page").replace(path)
