"""Do click models find the parameters of their own users, and how fast?

By hand: ``python tests/benchmarks/bench_click_models.py {recovery|perplexity|speed|peer}
[--sessions N] [--models PBMModel ...]``.

- recovery: fitted parameters against those of the simulated user.
- perplexity: each model on each user, held out; the matching model should be the best of a row.
- speed: CPU and wall seconds, EM steps and memory of a fit (one process a model).
- peer: the array EM of the position-based model against a loop over sessions.
"""

import argparse
import os
import re
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from skultr import click_models
from skultr._models import _browsing

N_POSITIONS = 10
MODELS = {
    "PBMModel": "PBM",
    "UBMModel": "UBM",
    "CascadeModel": "cascade",
    "DCMModel": "DCM",
    "CCMModel": "CCM",
    "DBNModel": "DBN",
}
CONTINUATION = 0.9
TAU = np.array([0.9, 0.7, 0.3])


class World:
    """Documents of ``n_queries``, served in lists shuffled around a ranking, and one user."""

    def __init__(self, user, n_queries=200, n_documents=12, seed=0):
        self.user = user
        self.rng = np.random.default_rng(seed)
        shape = (n_queries, n_documents)
        self.attraction = self.rng.beta(1.5, 3.0, shape)
        self.satisfaction = self.rng.uniform(0.1, 0.9, shape)
        self.production = self.attraction + self.rng.normal(0, 0.3, shape)
        rank = np.arange(1, N_POSITIONS + 1)
        self.examination = rank**-0.7
        last = np.arange(N_POSITIONS)
        distance = np.maximum(rank[:, None] - last, 1)
        self.pairs = np.where(last == 0, 0.9 * self.examination[:, None], 0.95 * distance**-0.5)
        self.on = 0.8 - 0.5 * rank / N_POSITIONS

    @property
    def relevance(self):
        """What the matching model means by relevance."""
        by_user = {"PBM": 1.0, "UBM": 0.9, "DBN": self.satisfaction}
        return self.attraction * by_user.get(self.user, 1.0)

    def transitions(self, attraction, satisfaction):
        return {
            "cascade": (1.0, 0.0),
            "DCM": (1.0, self.on),
            "DBN": (CONTINUATION, CONTINUATION * (1 - satisfaction)),
            "CCM": (TAU[0], TAU[1] * (1 - attraction) + TAU[2] * attraction),
        }[self.user]

    def log(self, n_sessions, temperature=0.3):
        """A log of sessions as a frame, and its clicks."""
        rng = self.rng
        query = rng.integers(len(self.attraction), size=n_sessions)
        noise = rng.gumbel(0, temperature, (n_sessions, self.attraction.shape[1]))
        shown = np.argsort(-(self.production[query] + noise), axis=1)[:, :N_POSITIONS]
        attraction = self.attraction[query[:, None], shown]
        satisfaction = self.satisfaction[query[:, None], shown]
        if self.user == "PBM":
            clicks = rng.random(attraction.shape) < attraction * self.examination
        elif self.user == "UBM":
            clicks = _browsing.draw_ubm_clicks(attraction, self.pairs, rng)
        else:
            chances = self.transitions(attraction, satisfaction)
            clicks = _browsing.draw_chain_clicks(attraction, *chances, rng)
        frame = pd.DataFrame(
            {
                "session": np.repeat(np.arange(n_sessions), N_POSITIONS),
                "qid": np.repeat(query, N_POSITIONS),
                "doc": (query[:, None] * self.attraction.shape[1] + shown).ravel(),
                "position": np.tile(np.arange(1, N_POSITIONS + 1), n_sessions),
            }
        )
        return frame, clicks.ravel().astype(float)


def parameter_error(model, world):
    """Largest error of the parameters that all documents share, where any was estimated."""
    if world.user == "PBM":
        return np.abs(model.examination_["examination"] - world.examination).max()
    if world.user == "UBM":
        table = model.examination_[model.examination_["impressions"] >= 2000].reset_index()
        truth = world.pairs[table["rank"] - 1, table["last_click"]] / world.pairs[0, 0]
        return np.abs(table["examination"] - truth).max()
    if world.user == "DBN":
        return abs(model.continuation_ - CONTINUATION)
    if world.user == "DCM":
        return np.abs(model.continuation_ - world.on)[:-1].max()
    if world.user == "CCM":
        return np.abs(model.continuation_ - TAU).max()
    return np.nan


def recovery(names, n_sessions):
    for name in names:
        world = World(MODELS[name])
        log, clicks = world.log(n_sessions)
        model = getattr(click_models, name)()
        start = time.perf_counter()
        model.fit(log, clicks)
        seconds = time.perf_counter() - start
        often = log.value_counts(["qid", "doc"]).loc[lambda n: n >= 100].index
        estimate = model.documents_["relevance"].loc[often]
        truth = world.relevance.ravel()[often.get_level_values("doc")]
        correlation = np.corrcoef(estimate, truth)[0, 1]
        print(
            f"{name:13s} parameter error {parameter_error(model, world):.4f}  relevance "
            f"correlation {correlation:.4f}  (documents {len(often)}, {seconds:.1f} s, "
            f"{getattr(model, 'n_iter_', 0)} EM steps)",
            flush=True,
        )


def perplexity(names, n_sessions):
    table = {}
    for user in dict.fromkeys(MODELS.values()):
        world = World(user)
        log, clicks = world.log(n_sessions)
        test, test_clicks = world.log(n_sessions // 4)
        table[user] = {
            name: -getattr(click_models, name)().fit(log, clicks).score(test, test_clicks)
            for name in ["DCTRModel", "RDCTRModel", *names]
        }
    print(pd.DataFrame(table).T.round(4).to_string())


def speed(names, n_sessions):
    for name in names:
        code = (
            f"import sys; sys.path.insert(0, {sys.path[0]!r})\n"
            f"import bench_click_models as b; b.one_speed({name!r}, {n_sessions})"
        )
        subprocess.run([sys.executable, "-c", code], check=True)


def one_speed(name, n_sessions):
    warnings.simplefilter("ignore")
    log, clicks = World(MODELS[name], n_queries=max(100, n_sessions // 500)).log(n_sessions)
    model = getattr(click_models, name)()  # which may load torch
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew (Linux)
    before = memory("VmRSS")
    start, cpu = time.perf_counter(), time.process_time()
    model.fit(log, clicks)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(
        f"{name:13s} {n_sessions:>9,d} sessions  CPU {cpu:5.1f} s  wall {seconds:6.1f} s (load "
        f"{os.getloadavg()[0]:.1f})  {getattr(model, 'n_iter_', 0)} EM steps  peak "
        f"{memory('VmHWM') - before:.2f} GB above the log",
        flush=True,
    )


def memory(what):
    """Memory of this process, in GB."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"{what}:\s+(\d+) kB", status)[1]) * 1024 / 1e9


def peer(n_sessions, n_iter=20):
    """The position-based model by the plain loop, and by array EM of as many steps."""
    log, clicks = World("PBM").log(n_sessions)
    start = time.perf_counter()
    docs, rows = log["doc"].tolist(), range(len(log))
    positions, seen = log["position"].tolist(), clicks.tolist()
    relevance, examination = dict.fromkeys(docs, 0.5), dict.fromkeys(range(1, 11), 0.5)
    for _ in range(n_iter):
        of_doc = {doc: [1.0, 2.0] for doc in relevance}
        of_rank = {rank: [1.0, 2.0] for rank in examination}
        for i in rows:
            r, o = relevance[docs[i]], examination[positions[i]]
            miss = 1 - r * o
            a, b = of_doc[docs[i]], of_rank[positions[i]]
            a[0] += 1.0 if seen[i] else r * (1 - o) / miss
            b[0] += 1.0 if seen[i] else o * (1 - r) / miss
            a[1] += 1
            b[1] += 1
        relevance = {doc: a / b for doc, (a, b) in of_doc.items()}
        examination = {rank: a / b for rank, (a, b) in of_rank.items()}
    loop = time.perf_counter() - start
    model = click_models.PBMModel()  # which loads torch
    start = time.perf_counter()
    model.fit(log, clicks)
    array = time.perf_counter() - start
    print(
        f"{n_sessions:,d} sessions: loop {loop:.1f} s for {n_iter} steps, arrays {array:.2f} s to "
        f"convergence ({model.n_iter_} steps): {loop / array:.0f} times"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["recovery", "perplexity", "speed", "peer"])
    parser.add_argument("--sessions", type=int)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.what == "peer":
        peer(args.sessions or 20_000)
    elif args.what == "recovery":
        recovery(args.models, args.sessions or 200_000)
    elif args.what == "perplexity":
        perplexity(args.models, args.sessions or 100_000)
    else:
        speed(args.models, args.sessions or 1_000_000)


if __name__ == "__main__":
    main()
