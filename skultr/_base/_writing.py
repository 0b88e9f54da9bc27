"""Files that come whole or not at all, and that replace nothing of another program.

Whatever skultr writes is written in a folder of its own beside the place, and then renamed: a
reader sees the old file or the new one, and a process that is killed leaves that folder alone,
which the next write deletes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: what a killed process left stays
    fcntl = None

#: What the file ``lock`` of a folder holds: a folder without it is none of ours.
_MARK = b"skultr writes here. If no process does any more, the next write deletes this folder.\n"


@contextmanager
def folder_beside(path: Path) -> Iterator[Path]:
    """A new folder beside ``path``, which is deleted in the end.

    So are those that killed processes left there.
    """
    # Up to 200 bytes of the name: file systems allow 255 in all.
    stem = f".{os.fsdecode(os.fsencode(path.name)[:200])}-"
    # What killed processes left, before more is written.
    for each in path.parent.glob(f"{escape(stem)}*"):
        _delete_if_left(each)
    folder = Path(tempfile.mkdtemp(prefix=stem, dir=path.parent))
    try:
        with _locked(folder / "lock", "xb") as lock:
            # After it is locked: until then, no process takes the folder for a left one.
            lock.write(_MARK)
            lock.flush()
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # another process may do so, too


def _delete_if_left(folder):
    """Delete the folder of a process that ended, and no other."""
    with suppress(OSError), _locked(folder / "lock", "rb") as lock:
        if lock.read(len(_MARK) + 1) == _MARK and not folder.is_symlink():
            shutil.rmtree(folder)


@contextmanager
def _locked(path, mode):
    """A file with a lock that ends with its process; an OSError if another process holds it."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise OSError("no lock: a pipe, say, would wait for ever")
    with path.open(mode) as file:
        if fcntl is not None:
            how = fcntl.LOCK_EX
            if mode == "rb":
                # Who looks whether it was left does not wait. The owner of a new file does: others
                # hold it only while they look.
                how |= fcntl.LOCK_NB
            fcntl.flock(file, how)
        elif mode == "rb":
            raise OSError("nothing tells whether the process lives")
        yield file


def refuse_to_replace(
    path: Path,
    is_own: Callable[[Path], bool],
    own: str,
    inputs: Iterable[str | Path | None] = (),
    remedy: str = "Name another file, or move this one away",
) -> None:
    """Raise an error if writing to ``path`` would lose a file that skultr did not write.

    Parameters
    ----------
    path : Path
        The file to be written.
    is_own : callable
        Whether a regular file is as skultr wrote it.
    own : str
        What skultr writes there, in words.
    inputs : paths
        Files that are read; none of them is ever replaced, whoever wrote it.
    remedy : str
        What to do.

    Raises
    ------
    FileExistsError
        If another program wrote the file, or it is read.
    FileNotFoundError
        If the folder of the file is missing.
    IsADirectoryError
        If it is a folder.
    """
    # First the worst: a file that is read would be lost before it is read whole.
    if is_one_of(path, inputs):
        raise FileExistsError(
            f"{path} is a file that is read, and would be overwritten. Name another place to "
            "write to."
        )
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; expected the name of a file to write.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write {path.name} in.")
    if os.path.lexists(path) and not _is_own_file(path, is_own):
        raise FileExistsError(
            f"{path} is there already, and is not {own} as skultr wrote it, so it is not "
            f"replaced. {remedy}."
        )


def is_one_of(path: Path, inputs: Iterable[str | Path | None]) -> bool:
    """Whether a path names one of some files, through links and other spellings, too."""
    return any(_is_same(path, each) for each in inputs if each is not None)


def _is_same(one, other):
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):  # one of them is not there, or no name of a file
        return False


def _is_own_file(path, is_own):
    try:
        return path.is_file() and not path.is_symlink() and is_own(path)
    except OSError:  # what cannot be read is not known to be ours
        return False
