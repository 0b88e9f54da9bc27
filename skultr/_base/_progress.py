"""What long work is doing, at most one line per second, by the logger "skultr"; off by default."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

#: Worker processes that start later read it, and so do jobs that cannot be edited.
_VARIABLE = "SKULTR_PROGRESS"
#: Seconds between two lines of a process.
_EVERY = 1.0

_logger = logging.getLogger("skultr")
# The program decides, if it has set a level; otherwise the package is silent.
if _logger.level == logging.NOTSET:  # a program that logs at INFO has not asked for progress
    _logger.setLevel(logging.WARNING)


class _Printed(logging.Handler):
    """Lines on stderr, as long as the program has no handler of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        if {*_logger.handlers, *logging.getLogger().handlers} == {self}:
            # In one write: lines of worker processes must not run into each other.
            print(f"{self.format(record)}\n", end="", file=sys.stderr, flush=True)


_printed = _Printed()
_printed.setFormatter(logging.Formatter("%(name)s: %(message)s"))


def show_progress(show: bool = True) -> None:
    """Print the progress of long fits, reads and resampling, at most once per second.

    Lines go to the logger ``"skultr"`` at the level ``INFO``. As long as the program has not
    configured logging, they are printed to stderr. Results do not change. Worker processes that
    start afterwards, such as those of ``GridSearchCV(n_jobs=2)``, report too. The variable
    ``SKULTR_PROGRESS=1`` does the same for programs that you do not want to edit.

    Parameters
    ----------
    show : bool, default=True
        False for silence, which is also the default of the package.

    Raises
    ------
    TypeError
        If ``show`` is neither True nor False.

    See Also
    --------
    sklearn.callback.ProgressBar : Bars of the epochs and rounds of one estimator.

    Examples
    --------
    >>> import skultr
    >>> skultr.show_progress()  # doctest: +SKIP
    >>> ranker.fit(log, clicks)  # doctest: +SKIP
    skultr: DLARanker: epoch 12 of at most 100, 8 s so far
    skultr: DLARanker: done in 32 s
    >>> skultr.show_progress(False)
    """
    if not isinstance(show, bool):
        raise TypeError(f"show must be True or False, got {show!r}.")
    if show:
        # For worker processes, which inherit the environment.
        os.environ[_VARIABLE] = "1"
        _logger.setLevel(logging.INFO)
        _logger.addHandler(_printed)
    else:
        os.environ.pop(_VARIABLE, None)
        _logger.setLevel(logging.WARNING)
        _logger.removeHandler(_printed)


class Steps:
    """Work in steps, which are counted as they are done."""

    def __init__(self, what: str, total: int | None = None, most: int | None = None) -> None:
        self.what = what
        self.total = total
        self.most = most
        self.n = 0
        # When the last step was done; what is left is known from there on.
        self.start = self.counted = time.monotonic()

    def count(self, n: int = 1) -> None:
        """Count steps that have been done."""
        self.n += n
        self.counted = time.monotonic()

    def advance(self, n: int = 1) -> None:
        """Count steps, and report."""
        self.count(n)
        if _is_on():
            _report((*_stack.get(), self))

    def __str__(self) -> str:
        if not self.n:
            return self.what
        if self.total:
            return f"{self.what} {self.n:,}/{self.total:,}"
        if self.most:
            return f"{self.what} {self.n:,} of at most {self.most:,}"
        return f"{self.what} {self.n:,}"

    def left(self) -> float:
        """Seconds left, if it has a known number of steps, of which one is done."""
        assert self.total
        # At the speed so far, less what has passed since the last step.
        seconds_per_step = (self.counted - self.start) / self.n
        left = seconds_per_step * (self.total - self.n)
        since_counted = time.monotonic() - self.counted
        return max(left - since_counted, 0.0)


#: The work that this thread is doing, from the outside to the inside.
_stack: ContextVar[tuple[Steps, ...]] = ContextVar("skultr_progress", default=())


@contextmanager
def working(what: str) -> Iterator[None]:
    """Context in which lines begin with ``what``, such as the name of an estimator."""
    if not _is_on():
        yield
        return
    outer = _stack.get()
    work = Steps(what)
    token = _stack.set((*outer, work))
    try:
        _report((*outer, work))
        yield
    finally:
        _stack.reset(token)
    # Only the outermost work ends with a line, and only if it took long.
    passed = time.monotonic() - work.start
    if not outer and passed >= _EVERY:
        _logger.info("%s: done in %s", what, _text_of(passed))


def progress(
    steps: Iterable[T], what: str, total: int | None = None, most: int | None = None
) -> Iterable[T]:
    """The same steps, of which each is reported when it is done."""
    if not _is_on():
        return steps
    # A generator has no length: then steps are counted without an end.
    if total is None and most is None and isinstance(steps, Sized):
        total = len(steps)
    return _reported(steps, Steps(what, total, most))


def _reported(steps, work):
    outer = _stack.get()
    inner = (*outer, work)
    _stack.set(inner)
    try:
        for step in steps:
            yield step
            work.count()
            _report(inner)
    finally:  # a caller that leaves the loop closes the generator, sometimes much later
        if _stack.get() == inner:
            _stack.set(outer)


def _is_on():
    return _logger.isEnabledFor(logging.INFO)


class _Clock:
    """When the last line was written."""

    last = -_EVERY


def _report(stack):
    now = time.monotonic()
    if now - _Clock.last < _EVERY:
        return
    # All work of the process shares one clock, however deep it is.
    _Clock.last = now
    # The outermost work whose end is known says how long it will take.
    counted = next((work for work in stack if work.total and work.n), None)
    if counted:
        when = f"{_text_of(counted.left())} left"
    else:
        when = f"{_text_of(now - stack[0].start)} so far"
    _logger.info("%s, %s", ": ".join(map(str, stack)), when)


def _text_of(seconds):
    # From two hours on in hours: "1.1 h" says less than "66 min".
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


# In a worker process, or a program that was started so.
if os.environ.get(_VARIABLE) == "1":
    show_progress()
