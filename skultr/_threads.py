"""How many threads BLAS and OpenMP may use: one for small work, and afterwards as many as before.

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
from pathlib import Path
from typing import Any

from joblib import effective_n_jobs
from threadpoolctl import ThreadpoolController

__all__ = ["ALL", "few_threads", "share_of_worker", "threads_of"]

#: Multiplications from which threads gain on idle cores more than they lose on busy ones: a
#: factorisation of 800 x 800, or a step of a network of 512 x 256 units with 64 lists of ten.
_LEAST_WORK = 1e8
#: Work that may always use as many threads as the caller has set.
ALL = math.inf


@contextmanager
def few_threads(work: float = 0.0, *, blas: bool = True) -> Iterator[None]:
    """Context in which small work runs on one thread, and large work on as many as the caller set.

    It holds for OpenMP (torch) in the calling thread, and for BLAS (NumPy, SciPy) in the whole
    process. The innermost context decides; each restores what was set before it.

    Parameters
    ----------
    work : float, default=0.0
        Multiplications of the largest single step, such as n³ / 6 of a Cholesky factor.
    blas : bool, default=True
        False for work of torch alone, which takes 5 microseconds less.

    Examples
    --------
    >>> from threadpoolctl import threadpool_info
    >>> from skultr._threads import few_threads
    >>> with few_threads():
    ...     {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    {1}
    """
    pools = (_OPENMP, _BLAS) if blas else (_OPENMP,)
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

    Parameters
    ----------
    n_jobs : int or None
        As in scikit-learn: None is 1, and -1 all cores.

    Examples
    --------
    >>> from skultr._threads import threads_of
    >>> threads_of(None), threads_of(3)
    (1, 3)
    """
    found, share = effective_n_jobs(n_jobs), share_of_worker()
    return found if share is None or (n_jobs or 1) > 0 else min(found, share)


def share_of_worker() -> int | None:
    """Number of threads that joblib, or the user, allows this process; None if nobody said.

    joblib tells its workers by ``OMP_NUM_THREADS``.
    """
    share = os.environ.get("OMP_NUM_THREADS", "")
    return int(share) if share.isdecimal() else None


class _OpenMP(threading.local):
    """Threads of OpenMP, of which every thread has a number of its own.

    ``torch.set_num_threads`` would also change the number of threads that start later.
    """

    one = False
    before: list[tuple[Any, int]]

    def ask(self, one):
        """One thread from now on, or as many as before."""
        if one and not self.one:
            self.before = _set_to_one(self._libraries())
        elif self.one and not one:
            _restore(self.before)
        self.one = one

    @staticmethod
    def _libraries():
        torch = sys.modules.get("torch")
        get_num_threads = getattr(torch, "get_num_threads", None)  # None while torch is imported
        if get_num_threads is None:
            return []
        get_num_threads()  # at the first call in a thread torch sets its own number
        return _libraries("openmp")


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
        self.one, shared = one, _Blas
        with shared.lock:
            if one and not shared.askers:
                shared.before = _set_to_one(_libraries("blas"))
            shared.askers += 1 if one else -1
            if not shared.askers:
                _restore(shared.before)


_OPENMP, _BLAS = _OpenMP(), _Blas()


def _set_to_one(libraries):
    before = [(library, library.num_threads) for library in libraries]
    for library in libraries:
        library.set_num_threads(1)
    return before


def _restore(before):
    for library, number in before:
        library.set_num_threads(number)


@cache
def _libraries(user_api):
    """Loaded libraries of this kind; looking for them takes milliseconds, so it is done once.

    torch may bring an OpenMP of its own, beside that of scikit-learn.
    """
    found = ThreadpoolController().lib_controllers
    found = [library for library in found if library.user_api == user_api]
    folder = str(Path(sys.modules["torch"].__file__).parent) if user_api == "openmp" else ""
    return [library for library in found if library.filepath.startswith(folder)] or found
