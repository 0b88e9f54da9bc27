"""What a work is, and how the ratios and the memory of one are measured."""

import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

import numpy as np

from .._study import Settings, grown

#: Calls shorter than this are repeated within their turn, and their median counts.
TURN = 0.02
MOST_CALLS = 100
CLOCKS = {"CPU time": time.process_time, "wall time": time.perf_counter}
#: Name of our own contender; all others are peers.
OURS = "skultr"
TINY = Settings(tiny=True)


class Seconds(float):
    """What a contender returns that timed the part of its work that counts by itself."""


@dataclass(frozen=True)
class Work:
    """One comparison.

    ``contenders(size)`` makes the data and returns one function without arguments for each of
    ``skultr`` and the peers, which ``goals`` names with the largest ratio of ours to theirs (None:
    no goal is set); ``size(tiny=20, quick=1_000, full=10_000)`` is the one that was asked for.
    ``unit`` is what the ratio compares: ``CPU time``, ``wall time`` or ``memory`` (by what the
    process grows in the call). Works in CPU time run on one thread. ``memory`` says whether the
    memory of both is measured as well; ``memory_goal`` is its largest ratio. ``note`` is for
    readers: what the peer does not do, or why a goal is not met.
    """

    name: str
    title: str
    contenders: Callable[[Callable], Mapping[str, Callable[[], object]]]
    goals: Mapping[str, float | None]
    unit: str = "CPU time"
    memory: bool = True
    memory_goal: float | None = None
    note: str = ""


def measure(cell, settings, seed):
    """Rows of the study: times of a work beside its peers, or the memory of one contender."""
    topic = import_module(f".{cell['work'].split('/')[0]}", __package__)
    (work,) = (work for work in topic.WORKS if work.name == cell["work"])
    if cell["measure"] != "time":
        return [{"bytes": growth(work, settings, cell["measure"])}]
    if work.unit == "wall time":
        _take_all_threads()
    found = {peer: np.quantile(r, [0.25, 0.5, 0.75]) for peer, r in ratios(work, settings).items()}
    return [
        {"peer": peer, "ratio": b, "lower": a, "upper": c} for peer, (a, b, c) in found.items()
    ]


def _take_all_threads():
    """Undo the limit of a study's processes: this work is about the whole machine."""
    import torch

    for name in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS"):
        os.environ.pop(name, None)
    torch.set_num_threads(os.cpu_count() or 1)


def ratios(work, settings):
    """Ratios of ours to each peer, one per round: {peer: [ratio, ...]}.

    The first calls, which import and compile, are made at the smallest size.
    """
    for contender in work.contenders(TINY.size).values():
        contender()
    contenders = work.contenders(settings.size)
    clock = CLOCKS[work.unit]
    least = settings.size(tiny=0.02, quick=1.5, full=8.0)
    rounds = settings.size(tiny=2, quick=3, full=5)
    seconds = {name: [] for name in contenders}
    start = time.perf_counter()
    while len(seconds[OURS]) < rounds or time.perf_counter() - start < least:
        for name, contender in contenders.items():
            seconds[name].append(_turn(contender, clock))
    return {
        peer: [a / b for a, b in zip(seconds[OURS], seconds[peer], strict=True)]
        for peer in contenders
        if peer != OURS
    }


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


def growth(work, settings, name):
    """Bytes by which the peak of this process grows in one call."""
    work.contenders(TINY.size)[name]()
    return grown(work.contenders(settings.size)[name])
