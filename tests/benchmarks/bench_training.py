"""What does the package cost over a bare torch loop, and over what the log holds?

By hand: ``python tests/benchmarks/bench_training.py``. Four ratios:

- an epoch of ``NaiveRanker`` and ``DLARanker`` against a bare torch loop over lists of one length
  with the same network, batches, loss and optimizer, in one thread;
- a fit on 1,000,000 sessions of 20,000 distinct lists (aggregated first) against a fit on
  20,000 sessions, one a list;
- the check of identifiability in a fit over the fit;
- memory that a fit adds beside a float32 frame over the size of the frame.
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
from skorch.callbacks import Callback

from skultr import aggregate_clicks
from skultr.datasets import make_ltr
from skultr.rankers import DLARanker, NaiveRanker, _click_ranker
from skultr.simulation import (
    DeterministicPolicy,
    PlackettLucePolicy,
    production_scores,
    simulate_clicks,
)

N_LISTS, WIDTH, BATCH, EPOCHS = 20_000, 10, 64, 4
#: Lists, their length, features, hidden layers.
SHAPES = [
    (10_000, 10, 100, (64, 32)),
    (10_000, 10, 100, ()),
    (3_000, 10, 100, (512, 256, 128)),
    (2_000, 100, 100, (64, 32)),
    (600, 100, 136, (512, 256, 128)),
    (3_000, 10, 700, (64, 32)),
]


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


def bare_loop(features, clicks, sizes, *, dual, fused):
    """CPU seconds per epoch of the loop one would write by hand, on lists of one length."""
    torch.manual_seed(0)
    layers, n_in = [], features.shape[2]
    for size in sizes:
        layers += [torch.nn.Linear(n_in, size), torch.nn.ELU()]
        n_in = size
    network = torch.nn.Sequential(*layers, torch.nn.Linear(n_in, 1))
    parameters = list(network.parameters())
    if dual:
        table = torch.nn.Parameter(torch.zeros(clicks.shape[1]))
        parameters.append(table)
    optimizer = torch.optim.Adam(parameters, lr=0.002, fused=fused)
    seconds = []
    for _ in range(EPOCHS):
        start = time.process_time()
        for index in torch.randperm(len(features)).split(BATCH):
            optimizer.zero_grad()
            clicked, scores = clicks[index], network(features[index]).squeeze(-1)
            if dual:
                examination = (table - table[0]).expand_as(scores)
                with torch.no_grad():
                    examined = (-examination).clamp(max=30).exp()
                    relevant = (scores[:, :1] - scores).clamp(max=30).exp()
                loss = -(clicked * examined * torch.log_softmax(scores, dim=1)).sum()
                loss = loss - (clicked * relevant * torch.log_softmax(examination, dim=1)).sum()
            else:
                loss = -(clicked * torch.log_softmax(scores, dim=1)).sum()
            (loss / len(index)).backward()
            torch.nn.utils.clip_grad_norm_(parameters, 5.0)
            optimizer.step()
            loss.item()
        seconds.append(time.process_time() - start)
    return seconds[1:]


class Clock(Callback):
    """CPU seconds of each epoch."""

    def __init__(self):
        self.seconds = []

    def on_epoch_begin(self, net, **kwargs):
        self.start = time.process_time()

    def on_epoch_end(self, net, **kwargs):
        self.seconds.append(time.process_time() - self.start)


def epoch_seconds(ranker_class, X, clicks, roles, sizes):
    clock = Clock()
    ranker_class(
        hidden_layer_sizes=sizes,
        max_epochs=EPOCHS,
        early_stopping=False,
        random_state=0,
        batch_size=BATCH,
        net_params={"callbacks": [("clock", clock)]},
    ).fit(X, clicks, **roles)
    return clock.seconds[1:]


def epochs_against_bare_loop(n_lists, width, n_features, sizes, repeats=3):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_lists * width, n_features), dtype=np.float32)
    y = (rng.random(len(X)) < 0.2).astype(np.float32)
    y[::width] = 1  # no list is left out
    roles = {
        "qid": np.repeat(np.arange(n_lists), width),
        "position": np.tile(np.arange(1, width + 1), n_lists),
        "doc": np.arange(len(X)),
    }
    features = torch.from_numpy(X).reshape(n_lists, width, n_features)
    clicks = torch.from_numpy(y).reshape(n_lists, width)
    ratios = []
    for ranker, dual in ((NaiveRanker, False), (DLARanker, True)):
        ours, bare, fused = [], [], []
        for _ in range(repeats):  # in turn, because the machine is shared
            bare += bare_loop(features, clicks, sizes, dual=dual, fused=False)
            ours += epoch_seconds(ranker, X, y, roles, sizes)
            fused += bare_loop(features, clicks, sizes, dual=dual, fused=True)
        middle = [statistics.median(each) for each in (ours, bare, fused)]
        ratios.append(
            f"{ranker.__name__} {middle[0] / middle[1]:.2f} x bare ({middle[1]:.3f} s), "
            f"{middle[0] / middle[2]:.2f} x bare with fused Adam"
        )
    print(
        f"epoch, {n_lists} lists of {width}, {n_features} features, units {sizes}: "
        + "; ".join(ratios),
        flush=True,
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


def peak_memory(ranker_class, n_rows=200_000, n_features=136):
    """In a process of its own: the peak of a process never goes down."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    values = rng.standard_normal((n_rows, n_features), dtype=np.float32)
    X = pd.DataFrame(values, columns=[f"f{i}" for i in range(n_features)], copy=False)
    X.insert(0, "qid", np.arange(n_rows) // 10)
    X.insert(1, "position", np.arange(n_rows) % 10 + 1)
    clicks = (rng.random(n_rows) < 0.2).astype(float)
    ranker = ranker_class(max_epochs=1, early_stopping=False, random_state=0)
    ranker.fit(X.iloc[:500], clicks[:500])  # imports
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    ranker.fit(X, clicks)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"memory: {ranker_class.__name__} adds {(peak - before) / values.nbytes:.2f} x the "
        f"{values.nbytes / 1e6:.0f} MB of a float32 frame of {n_rows} x {n_features}",
        flush=True,
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for each in (NaiveRanker, DLARanker):
        process = multiprocessing.get_context("spawn").Process(target=peak_memory, args=(each,))
        process.start()
        process.join()
    torch.set_num_threads(1)
    for shape in SHAPES:
        epochs_against_bare_loop(*shape)
    fit_against_fewer_sessions()
    identifiability_check_share()
