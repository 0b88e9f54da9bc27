"""Time and memory of one million simulated sessions of ten documents, by hand:

    python tests/benchmarks/bench_simulation.py [n_sessions]

Prints one JSON object a world: seconds, peak memory above the start, and how many times faster
it is than a plain loop over sessions, which is run on a slice and extrapolated.
"""

import json
import resource
import subprocess
import sys
import time

import numpy as np

from skultr.datasets import make_ltr
from skultr.simulation import (
    EYE_TRACKING,
    DeterministicPolicy,
    MixturePolicy,
    PlackettLucePolicy,
    ShufflePolicy,
    SwapPolicy,
    UniformPolicy,
    UserPopulation,
    production_scores,
    simulate_clicks,
)

WORLDS = {
    "deterministic": {"policy": DeterministicPolicy()},
    "plackett-luce": {"policy": PlackettLucePolicy(0.1)},
    "uniform": {"policy": UniformPolicy()},
    "ten users": {"user": UserPopulation(10)},
    "swaps": {"policy": SwapPolicy()},
    "shuffles": {"policy": ShufflePolicy()},
    "five rankers": {"policy": MixturePolicy()},
}
SLICE = 5_000


def plain_loop(documents, truth, world, n_sessions):
    """What one would write first: one session after the other, its list as a frame of rows."""
    rng = np.random.default_rng(0)
    rows_of = [rows.to_numpy() for _, rows in documents["doc"].groupby(documents["qid"])]
    log = []
    for session in range(n_sessions):
        examination = EYE_TRACKING
        if world == "ten users":
            user = rng.choice(10, p=truth.user_weights)
            examination = truth.examination_table[user]
            query = rng.choice(len(rows_of), p=truth.query_weights[user])
        else:
            query = int(rng.integers(len(rows_of)))
        rows = rows_of[query]
        utility = truth.scores[rows]
        if world == "plackett-luce":
            utility = utility / 0.1 + rng.gumbel(size=len(rows))
        elif world == "uniform":
            utility = rng.random(len(rows))
        elif world == "five rankers":
            utility = utility[:, rng.integers(5)]
        shown = rows[np.argsort(-utility)[:10]]
        if world == "swaps":
            k = rng.integers(1, len(shown))
            if rng.random() < 0.5:
                shown[[0, k]] = shown[[k, 0]]
        elif world == "shuffles":
            rng.shuffle(shown)
        for position, row in enumerate(shown):
            click = rng.random() < examination[position] * truth.relevance_probability[row]
            log.append((session, query, row, position + 1, int(click)))
    return log


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(name, n_sessions):
    documents = make_ltr(1_000, 20, 100, random_state=0)
    scores = production_scores(documents, random_state=0)
    if name == "five rankers":
        others = [production_scores(documents, random_state=seed) for seed in range(1, 5)]
        scores = np.column_stack([scores, *others])
    before = peak()
    start = time.perf_counter()
    X, clicks, truth = simulate_clicks(
        documents,
        n_sessions=n_sessions,
        scores=scores,
        features=False,
        random_state=0,
        **WORLDS[name],
    )
    seconds = time.perf_counter() - start
    memory = peak() - before
    start = time.perf_counter()
    plain_loop(documents, truth, name, SLICE)
    loop = (time.perf_counter() - start) * n_sessions / SLICE
    return {
        "world": name,
        "sessions": n_sessions,
        "rows": len(X),
        "clicks": int(clicks.sum()),
        "seconds": round(seconds, 2),
        "peak_mib": round(memory),
        "log_mib": round((X.memory_usage().sum() + clicks.nbytes) / 2**20),
        "loop_seconds_extrapolated": round(loop, 1),
        "times_faster": round(loop / seconds, 1),
    }


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
    else:
        # A process for each world: the peak of memory is a property of the process.
        sessions = sys.argv[1] if len(sys.argv) == 2 else "1000000"
        for world in WORLDS:
            subprocess.run([sys.executable, __file__, world, sessions], check=True)
