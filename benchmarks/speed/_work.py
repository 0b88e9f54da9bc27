"""What a work is, and the three sizes it is run at."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

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
