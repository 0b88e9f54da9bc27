"""What a work is, the three sizes it is run at, where all works are, and how one is measured."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module

from .._study import grown

#: Modules of this folder with a tuple ``WORKS``, in the order of the page.
TOPICS = ("serving", "training", "logs", "estimation", "evaluation", "searches")

#: Calls shorter than this are repeated within their turn, and their median counts.
TURN = 0.02
MOST_CALLS = 100
CLOCKS = {"CPU time": time.process_time, "wall time": time.perf_counter}
#: Name of our own contender; all others are peers.
OURS = "skultr"


@dataclass(frozen=True)
class Size:
    """``size(tiny=20, quick=1_000, full=10_000)`` is the one of the three that was asked for.

    Contenders take turns for about ``seconds`` in all, and at least ``rounds`` times.
    ``processes`` is how often memory is measured where it is what the work is about.
    """

    name: str
    seconds: float
    rounds: int
    processes: int

    def __call__(self, *, tiny, quick, full):
        return {"tiny": tiny, "quick": quick, "full": full}[self.name]


SIZES = {
    "tiny": Size("tiny", seconds=0.02, rounds=2, processes=1),
    "quick": Size("quick", seconds=1.5, rounds=3, processes=1),
    "full": Size("full", seconds=8.0, rounds=5, processes=3),
}


class Seconds(float):
    """What a contender returns that timed the part of its work that counts by itself."""


@dataclass(frozen=True)
class Work:
    """One comparison.

    ``contenders(size)`` makes the data and returns one function without arguments for each of
    ``skultr`` and the peers, which ``goals`` names with the largest ratio of ours to theirs (None:
    no goal is set). ``unit`` is what the ratio compares: ``CPU time``, ``wall time`` or ``memory``
    (what the process grows by in the call). Works in CPU time run on one thread. ``memory`` says
    whether the memory of both is measured as well; ``memory_goal`` is its largest ratio. ``note``
    is for readers: what the peer does not do, or why a goal is not met.
    """

    name: str
    title: str
    contenders: Callable[[Size], Mapping[str, Callable[[], object]]]
    goals: Mapping[str, float | None]
    unit: str = "CPU time"
    memory: bool = True
    memory_goal: float | None = None
    note: str = ""
    topic: str = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "topic", self.name.split("/")[0])


def works(topics=TOPICS):
    """Works in the order of the page."""
    return [work for topic in topics for work in import_module(f".{topic}", __package__).WORKS]


def find(name):
    """The work of that name; other topics are not imported."""
    (work,) = (work for work in works([name.split("/")[0]]) if work.name == name)
    return work


# --------------------------------------------------------------------------------------
# Measuring
# --------------------------------------------------------------------------------------
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
