"""How many threads BLAS and torch may use: one for small work, and afterwards as many as before.

A thread that finds its core busy makes all others wait: on busy cores, a network of 64 x 32 units
with four threads took seventy times as long as with one. Small work gains nothing from threads.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from joblib import effective_n_jobs
from threadpoolctl import ThreadpoolController

#: Multiplications from which threads gain more on idle cores than they lose on busy ones, about 20
#: ms: a Cholesky factor of 1,200 x 1,200, or a step of 1024 x 512 units with 64 lists of ten.
_LEAST_WORK = 3e8
#: Work that may always use as many threads as the caller has set.
ALL = math.inf


@contextmanager
def few_threads(work: float = 0.0, *, blas: bool = True) -> Iterator[None]:
    """Context in which small work runs on one thread, and large work on as many as the caller set.

    It holds for torch in the calling thread, and for BLAS (NumPy, SciPy) in the whole process. The
    innermost context decides; each restores what was set before it. ``work`` are multiplications
    of the largest single step, such as n³ / 6 of a Cholesky factor. Without ``blas`` it is for
    torch alone, which costs 2 microseconds rather than 10.

    >>> from threadpoolctl import threadpool_info
    >>> from skultr._base._threads import few_threads
    >>> with few_threads():
    ...     {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    {1}
    """
    pools = (_TORCH, _BLAS) if blas else (_TORCH,)
    before = [pool.one for pool in pools]
    for pool in pools:
        pool.ask(work < _LEAST_WORK)
    try:
        yield
    finally:
        for pool, one in zip(pools, before, strict=True):
            pool.ask(one)


def threads_of(n_jobs: int | None) -> int:
    """Number of threads of a learner with this ``n_jobs``; in a worker, no more than its share.

    >>> from skultr._base._threads import threads_of
    >>> threads_of(None), threads_of(3)
    (1, 3)
    """
    # A number that the user has set holds, even in a worker.
    found = effective_n_jobs(n_jobs)
    share = share_of_worker()
    is_number = n_jobs is None or n_jobs >= 0  # a negative one counts from all cores
    if share is None or is_number:
        return found
    return min(found, share)


def share_of_worker() -> int | None:
    """Number of threads that joblib, or the user, allows this process; None if nobody said.

    joblib tells its workers by ``OMP_NUM_THREADS``.
    """
    share = os.environ.get("OMP_NUM_THREADS", "")
    return int(share) if share.isdecimal() else None


class _Torch(threading.local):
    """Threads of torch, of which every thread has a number of its own.

    A thread takes its number from the one that was set last, when it first uses torch.
    """

    one = False
    has_asked = False
    before = 1
    # Of the class, and thereby of all threads.
    lock = threading.Lock()
    askers = 0
    outside = 1

    def ask(self, one):
        """One thread from now on, or as many as before."""
        torch = sys.modules.get("torch")
        if one == self.one or not hasattr(torch, "set_num_threads"):  # not imported, or half
            return
        self.one = one
        shared = _Torch
        with shared.lock:
            if one:
                self.before = torch.get_num_threads()
                if not shared.askers:
                    shared.outside = self.before
                elif self.before == 1 and not self.has_asked:
                    self.before = shared.outside  # this thread began while another had set one
                self.has_asked = True
            shared.askers += 1 if one else -1
            torch.set_num_threads(1 if one else self.before)


class _Blas(threading.local):
    """Threads of BLAS, whose number all threads share: one while any thread asks for one."""

    one = False
    # Of the class, and thereby of all threads.
    lock = threading.Lock()
    askers = 0
    before: list[tuple[Any, int]] = []

    def ask(self, one):
        if one == self.one:
            return
        self.one = one
        shared = _Blas
        with shared.lock:
            # The first who asks keeps the numbers, and the last who leaves puts them back.
            if one and not shared.askers:
                shared.before = _set_to_one(_blas_libraries())
            shared.askers += 1 if one else -1
            if not shared.askers:
                _set(shared.before)


_TORCH = _Torch()
_BLAS = _Blas()


def _set_to_one(libraries):
    before = [(library, library.num_threads) for library in libraries]
    _set([(library, 1) for library in libraries])
    return before


def _set(numbers):
    for library, number in numbers:
        library.set_num_threads(number)
        # OpenBLAS obeys one thread only until that clears the way for the next, if it can.
        getattr(library, "clear_controlling_thread", bool)()


@cache
def _blas_libraries():
    """The loaded BLAS libraries; looking for them takes milliseconds, so it is done once."""
    return ThreadpoolController().select(user_api="blas").lib_controllers
