"""Bars of long work, drawn by tqdm; none by default."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from ._texts import VisibleStream, visible_text

T = TypeVar("T")

#: For programs that cannot be edited.
_VARIABLE = "SKULTR_PROGRESS"
#: Bars without an estimate: of steps that take as long as they take, and of those that may end
#: early.
_COUNTED = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}]"
_AT_MOST = "{desc}: {n_fmt} of at most {total_fmt} [{elapsed}]"


class _Shown:
    """What was asked for, and where."""

    #: True, False, or None for bars where a person watches.
    asked: bool | None = False
    #: The process that asked. Its workers draw nothing: their bars would overwrite each other.
    process: int | None = None


def show_progress(show: bool | None = None) -> None:
    """Draw bars of the progress of long fits, reads and resampling, by tqdm.

    A bar disappears when its work is done. An estimate of the time left is shown only where the
    number of steps is known and each takes as long as the others. Results do not change. Worker
    processes, such as those of ``GridSearchCV(n_jobs=2)``, draw nothing, unless they ask.

    Parameters
    ----------
    show : bool, default=None
        None for bars where a person watches: on a terminal, and in a notebook that is open in an
        editor. There are none in files, pipes and notebooks that a program runs again. True for
        bars there, too; the variable ``SKULTR_PROGRESS=1`` does the same for programs that you
        do not want to edit. False for silence, which is the default of the package.

    Raises
    ------
    TypeError
        If ``show`` is neither True, False nor None.

    See Also
    --------
    sklearn.callback.ProgressBar : Bars of the epochs and rounds of one estimator.

    Examples
    --------
    >>> import skultr
    >>> skultr.show_progress()  # doctest: +SKIP
    >>> ranker.fit(log, clicks)  # doctest: +SKIP
    DLARanker: epoch:  40%|████      | 12/30 [00:08<00:12,  1.50it/s]
    >>> skultr.show_progress(False)
    """
    if not (show is None or isinstance(show, bool)):
        raise TypeError(f"show must be True, False or None, got {show!r}.")
    _Shown.asked = show
    _Shown.process = os.getpid()


#: The work that this thread is doing, from the outside to the inside.
_works: ContextVar[tuple[str, ...]] = ContextVar("skultr_progress", default=())


@contextmanager
def working(what: str) -> Iterator[None]:
    """Context in which bars begin with ``what``, such as the name of an estimator."""
    token = _works.set((*_works.get(), what))
    try:
        yield
    finally:
        _works.reset(token)


def progress(
    steps: Iterable[T],
    what: str,
    total: int | None = None,
    *,
    may_end_early: bool = False,
    alike: bool = True,
) -> Iterable[T]:
    """The same steps, which a bar counts as they are done; see :class:`Steps`."""
    if not _is_shown():
        return steps
    # A generator has no length: then steps are counted without an end.
    if total is None and isinstance(steps, Sized):
        total = len(steps)
    return _bar(steps, what, total, may_end_early, alike)


class Steps:
    """Steps that are counted as they are done, on a bar that is to be closed.

    There are ``total`` of them, at most if they ``may_end_early``. Where they are not ``alike``,
    those that are done do not say how long the others will take.
    """

    def __init__(
        self,
        what: str,
        total: int | None = None,
        *,
        may_end_early: bool = False,
        alike: bool = True,
    ) -> None:
        self._bar = _bar(None, what, total, may_end_early, alike) if _is_shown() else None

    def count(self, n: int = 1) -> None:
        """Count steps that have been done."""
        if self._bar is not None:
            self._bar.update(n)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()

    def __getstate__(self) -> dict[str, None]:
        # A net is pickled during its training, too; its bar belongs to this process.
        return {"_bar": None}


def _bar(steps, what, total, may_end_early, alike) -> Any:
    # Widgets in notebooks. Imported only where a bar is drawn, because it starts slowly.
    from tqdm.auto import tqdm

    works = _works.get()
    form = None
    if may_end_early:
        form = _AT_MOST
    # What is left of a part of other work is not what is left of that work.
    elif total is not None and (len(works) > 1 or not alike):
        form = _COUNTED
    stream = sys.stderr
    return tqdm(
        steps,
        desc=visible_text(": ".join([*works[-2:], what])),
        total=total,
        bar_format=form,
        leave=False,
        dynamic_ncols=True,
        # That of the command makes visible what terminals obey, also the moves of a bar.
        file=stream.stream if isinstance(stream, VisibleStream) else stream,
    )


def _is_shown():
    # A forked worker has what was asked, and is another process. A program may have no stream.
    if _Shown.process != os.getpid() or sys.stderr is None:
        return False
    if _Shown.asked is not None:
        return _Shown.asked
    return os.environ.get(_VARIABLE) == "1" or _is_watched()


def _is_watched():
    """Whether a person sees what is drawn: on a terminal, or in a notebook."""
    # What a program puts in place of a stream may only write.
    is_terminal = getattr(sys.stderr, "isatty", bool)
    if is_terminal():
        return True
    ipython = sys.modules.get("IPython")
    kernel = getattr(ipython and ipython.get_ipython(), "kernel", None)
    # A program that runs a notebook answers no question.
    return getattr(kernel, "_allow_stdin", False)


# Workers have the variable too.
if os.environ.get(_VARIABLE) == "1" and multiprocessing.parent_process() is None:
    show_progress()
