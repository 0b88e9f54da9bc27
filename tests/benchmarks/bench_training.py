"""What does the package cost over a bare torch loop, and over what the log holds?

By hand: ``python tests/benchmarks/bench_training.py``. Four ratios:

- an epoch through ``NaiveRanker`` against a bare torch loop over the same padded lists with the
  same network, batches, loss and optimizer;
- a fit on 1,000,000 sessions of 20,000 distinct lists (aggregated first) against a fit on
  20,000 sessions, one a list;
- the check of identifiability in a fit over the fit;
- peak memory of a fit on a raw frame over the size of the frame.
"""

import multiprocessing
import resource
import statistics
import time
import warnings
from unittest import mock

import numpy as np
import pandas as pd
import torch

from skultr import aggregate_clicks
from skultr.datasets import make_ltr
from skultr.rankers import DLARanker, NaiveRanker, _click_ranker
from skultr.simulation import (
    DeterministicPolicy,
    PlackettLucePolicy,
    production_scores,
    simulate_clicks,
)

N_LISTS, WIDTH, N_FEATURES, BATCH, EPOCHS = 20_000, 10, 100, 64, 4


def make_log(n_sessions, seed=0):
    documents = make_ltr(n_queries=N_LISTS, n_documents=WIDTH, random_state=seed)
    documents = documents.sort_values("qid", kind="stable")
    if n_sessions == N_LISTS:  # every list exactly once
        impressions = documents[["qid", "doc"]].copy()
        impressions["position"] = documents.groupby("qid").cumcount() + 1
        clicks = (np.random.default_rng(seed).random(len(impressions)) < 0.2).astype(float)
        clicks[::WIDTH] = 1.0
        return impressions.merge(documents, on=["qid", "doc"]), clicks
    impressions, clicks, _ = simulate_clicks(
        documents, n_sessions=n_sessions, features=False, random_state=seed
    )
    return aggregate_clicks(impressions.assign(click=clicks), documents)


def bare_loop(features, clicks, epochs):
    """The loop one would write by hand: padded lists, Adam, clipped gradients, early data in."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(N_FEATURES, 64), torch.nn.ELU(),
        torch.nn.Linear(64, 32), torch.nn.ELU(), torch.nn.Linear(32, 1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(network.parameters(), lr=0.002)
    seconds = []
    for _ in range(epochs):
        start = time.perf_counter()
        for index in torch.randperm(len(features)).split(BATCH):
            optimizer.zero_grad()
            scores = network(features[index]).squeeze(-1)
            loss = -(clicks[index] * torch.log_softmax(scores, dim=1)).sum() / len(index)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 5.0)
            optimizer.step()
            loss.item()
        seconds.append(time.perf_counter() - start)
    return seconds


def epoch_seconds(ranker_class, X, clicks):
    """Seconds an epoch, by skorch's own timer."""
    ranker = ranker_class(max_epochs=EPOCHS, early_stopping=False, random_state=0)
    ranker.fit(X, clicks)
    return [epoch["dur"] for epoch in ranker.net_.history]


def epochs_against_bare_loop():
    X, clicks = make_log(N_LISTS)
    names = [name for name in X.columns if name.startswith("feature")]
    values = X.sort_values(["qid", "position"])[names].to_numpy(np.float32)
    features = torch.from_numpy(values).reshape(N_LISTS, WIDTH, N_FEATURES).log1p().nan_to_num()
    target = torch.from_numpy(clicks.astype(np.float32)).reshape(N_LISTS, WIDTH)
    ours, dual, bare = [], [], []
    for _ in range(3):  # in turn, because the machine is shared
        bare += bare_loop(features, target, EPOCHS)[1:]
        ours += epoch_seconds(NaiveRanker, X, clicks)[1:]
        dual += epoch_seconds(DLARanker, X, clicks)[1:]
    middle = statistics.median
    print(
        f"epoch of {N_LISTS} lists: bare torch {middle(bare):.2f} s, NaiveRanker "
        f"{middle(ours):.2f} s, ratio {middle(ours) / middle(bare):.2f} (best of each "
        f"{min(ours) / min(bare):.2f}); DLARanker {middle(dual):.2f} s"
    )


def fit_against_fewer_sessions():
    few, many = make_log(N_LISTS), make_log(1_000_000)
    seconds = {"few": [], "many": []}
    for _ in range(3):
        for name, (X, clicks) in (("few", few), ("many", many)):
            start = time.perf_counter()
            NaiveRanker(max_epochs=EPOCHS, early_stopping=False, random_state=0).fit(X, clicks)
            seconds[name].append(time.perf_counter() - start)
    a, b = (statistics.median(seconds[name]) for name in ("many", "few"))
    print(
        f"fit of {EPOCHS} epochs: 1,000,000 sessions aggregated ({len(many[0])} rows) {a:.2f} s, "
        f"20,000 sessions ({len(few[0])} rows) {b:.2f} s, ratio {a / b:.2f}"
    )


def identifiability_check_share():
    """Seconds of a fit, with the check that every fit makes and in the check alone."""
    documents = make_ltr(2_000, random_state=0)
    scores = production_scores(documents, random_state=0)
    for policy, n_sessions in ((DeterministicPolicy(), 100_000), (PlackettLucePolicy(), 20_000)):
        X, clicks, _ = simulate_clicks(
            documents, n_sessions=n_sessions, scores=scores, policy=policy, random_state=0
        )
        in_check = []

        def timed(log, network, check=_click_ranker.warn_unless_identifiable, spent=in_check):
            start = time.perf_counter()
            check(log, network)
            spent.append(time.perf_counter() - start)

        with mock.patch.object(_click_ranker, "warn_unless_identifiable", timed):
            start = time.perf_counter()
            DLARanker(random_state=0).fit(X, clicks)
            seconds = time.perf_counter() - start
        print(
            f"identifiability check, {len(X)} rows, {type(policy).__name__}: {in_check[0]:.4f} s "
            f"of a fit of {seconds:.2f} s, {in_check[0] / seconds:.2%}"
        )


def peak_memory(n_rows=1_000_000):
    """In a process of its own: the peak of a process never goes down."""
    rng = np.random.default_rng(0)
    columns = {"qid": np.arange(n_rows) // 20, "position": np.arange(n_rows) % 20 + 1}
    columns |= {f"f{i}": rng.random(n_rows) for i in range(N_FEATURES)}
    X = pd.DataFrame(columns, copy=False)
    clicks = (rng.random(n_rows) < 0.2).astype(float)
    frame = X.memory_usage().sum()
    NaiveRanker(max_epochs=1, early_stopping=False).fit(X.iloc[:200], clicks[:200])  # imports
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    NaiveRanker(max_epochs=1, early_stopping=False).fit(X, clicks)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"memory: frame {frame / 1e9:.2f} GB, the fit adds {(peak - before) / 1e9:.2f} GB: frame "
        f"and fit are {1 + (peak - before) / frame:.2f} x the frame (whole process with imports "
        f"{peak / 1e9:.2f} GB)"
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    process = multiprocessing.get_context("spawn").Process(target=peak_memory)
    process.start()
    process.join()
    torch.set_num_threads(2)
    epochs_against_bare_loop()
    fit_against_fewer_sessions()
    identifiability_check_share()
