"""Time and memory of one work, in the process that was started for it."""

import statistics
import time

from .._study import grown
from ._work import OURS, SIZES, Seconds

#: Calls shorter than this are repeated within their turn, and their median counts.
TURN = 0.02
MOST_CALLS = 100
CLOCKS = {"CPU time": time.process_time, "wall time": time.perf_counter}


def ratios(work, size):
    """Ratios of ours to each peer, one per round: {peer: [ratio, ...]}, and median seconds.

    The first calls, which import and compile, are made at the smallest size.
    """
    for contender in work.contenders(SIZES["tiny"]).values():
        contender()
    contenders = work.contenders(size)
    clock = CLOCKS[work.unit]
    seconds = {name: [] for name in contenders}
    start = time.perf_counter()
    while not _enough(seconds[OURS], size, start):
        for name, contender in contenders.items():
            seconds[name].append(_turn(contender, clock))
    peers = [name for name in contenders if name != OURS]
    return {
        "ratios": {
            peer: [a / b for a, b in zip(seconds[OURS], seconds[peer], strict=True)]
            for peer in peers
        },
        "seconds": {name: statistics.median(values) for name, values in seconds.items()},
    }


def _enough(rounds, size, start):
    return len(rounds) >= size.rounds and time.perf_counter() - start > size.seconds


def _turn(contender, clock):
    """Median seconds of the calls of one turn."""
    seconds = [_call(contender, clock)]
    for _ in range(min(MOST_CALLS, int(TURN / max(seconds[0], 1e-9)))):
        seconds.append(_call(contender, clock))
    return statistics.median(seconds)


def _call(contender, clock):
    start = clock()
    result = contender()
    elapsed = clock() - start
    return float(result) if isinstance(result, Seconds) else elapsed


def growth(work, size, name):
    """Bytes by which the peak of this process grows in one call."""
    work.contenders(SIZES["tiny"])[name]()
    return grown(work.contenders(size)[name])
