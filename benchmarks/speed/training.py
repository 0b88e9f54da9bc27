"""Training: an epoch beside a bare loop, one long list among short ones, memory of a fit, and
whole fits of debiased rankers beside a naive one."""

import statistics
import time
from itertools import pairwise

import lightgbm
import numpy as np
import pandas as pd
import torch
from skorch.callbacks import Callback
from torch.nn import ELU, Linear, Sequential

from skultr.datasets import make_ltr
from skultr.rankers import (
    DLARanker,
    EnsembleRanker,
    IPSRanker,
    LambdaMARTRanker,
    NaiveRanker,
    PairDebiasRanker,
)
from skultr.simulation import PlackettLucePolicy, production_scores, simulate_clicks

from ._work import OURS, Seconds, Work

BARE = "bare torch loop"
LENGTH, BATCH = 10, 64


def _lists(lengths, n_features):
    """Features, clicks and roles of lists of these lengths; every list has a click."""
    rng = np.random.default_rng(0)
    n_rows = int(np.sum(lengths))
    position = np.concatenate([np.arange(1, length + 1) for length in lengths])
    clicks = (rng.random(n_rows) < 0.2).astype(float)
    clicks[position == 1] = 1
    roles = {
        "qid": np.repeat(np.arange(len(lengths)), lengths),
        "position": position,
        "doc": np.arange(n_rows),
    }
    return rng.standard_normal((n_rows, n_features), dtype=np.float32), clicks, roles


# --------------------------------------------------------------------------------------
# An epoch
# --------------------------------------------------------------------------------------
class _Clock(Callback):
    """CPU seconds of each epoch."""

    def initialize(self):
        self.seconds = []
        return self

    def on_epoch_begin(self, net, **kwargs):
        self.start = time.process_time()

    def on_epoch_end(self, net, **kwargs):
        self.seconds.append(time.process_time() - self.start)


def epoch(ranker_class, units, n_lists=10_000, length=LENGTH):
    """The second and third epoch of a fit, without reading and scaling."""

    def contenders(size):
        n = size(tiny=30, quick=n_lists // 2, full=n_lists)
        X, clicks, roles = _lists([length] * n, size(tiny=5, quick=100, full=100))

        def ours():
            clock = _Clock()
            ranker_class(
                hidden_layer_sizes=units,
                max_epochs=3,
                early_stopping=False,
                batch_size=BATCH,
                random_state=0,
                net_params={"callbacks": [("clock", clock)]},
            ).fit(X, clicks, **roles)
            return Seconds(statistics.mean(clock.seconds[1:]))

        dual = ranker_class is DLARanker
        return {OURS: ours, BARE: lambda: _bare_epoch(X, clicks, length, units, dual)}

    return contenders


def _bare_epoch(X, clicks, length, units, dual):
    """What one would write by hand: lists of one length, Adam, clipped gradients."""
    torch.manual_seed(0)
    sizes = (X.shape[1], *units)
    layers = [part for a, b in pairwise(sizes) for part in (Linear(a, b), ELU())]
    network = Sequential(*layers, Linear(sizes[-1], 1))
    logits = torch.nn.Parameter(torch.zeros(length))
    parameters = [*network.parameters(), *([logits] if dual else [])]
    optimizer = torch.optim.Adam(parameters, lr=0.002)
    features = torch.from_numpy(X).reshape(-1, length, X.shape[1])
    target = torch.from_numpy(clicks.astype(np.float32)).reshape(-1, length)
    seconds = []
    for _ in range(3):
        start = time.process_time()
        for index in torch.randperm(len(target)).split(BATCH):
            optimizer.zero_grad(set_to_none=True)
            c, s = target[index], network(features[index]).squeeze(-1)
            loss = (_dual_loss(c, s, logits) if dual else -(c * s.log_softmax(1)).sum()) / len(c)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 5.0)
            optimizer.step()
            loss.item()
        seconds.append(time.process_time() - start)
    return Seconds(statistics.mean(seconds[1:]))


def _dual_loss(c, s, logits):
    """Clicks weigh by the inverse of examination for the scores, and the other way round."""
    h = (logits - logits[0]).expand_as(s)
    with torch.no_grad():
        by_position = (-h).clamp(max=30).exp()
        by_score = (s[:, :1] - s).clamp(max=30).exp()
    return -(c * (by_position * s.log_softmax(1) + by_score * h.log_softmax(1))).sum()


# --------------------------------------------------------------------------------------
# One long list, trees, memory
# --------------------------------------------------------------------------------------
WITHOUT = "the same log without it"


def long_list(ranker_class, **settings):
    """4,000 lists of ten and one of 2,000, which is 5 % of the rows."""

    def contenders(size):
        short = [LENGTH] * size(tiny=20, quick=2_000, full=4_000)
        logs = {OURS: [*short, size(tiny=40, quick=1_000, full=2_000)], WITHOUT: short}
        data = {name: _lists(lengths, 20) for name, lengths in logs.items()}

        def fit(X, clicks, roles):
            ranker = ranker_class(max_epochs=1, early_stopping=False, random_state=0, **settings)
            ranker.fit(X, clicks, **roles)

        return {name: lambda log=log: fit(*log) for name, log in data.items()}

    return contenders


def trees(size):
    n = size(tiny=30, quick=2_000, full=10_000)
    X, clicks, roles = _lists([LENGTH] * n, size(tiny=5, quick=50, full=50))
    n_trees = size(tiny=2, quick=20, full=50)
    settings = {
        "objective": "lambdarank",
        "label_gain": [0, 1],
        "learning_rate": 0.1,
        "num_leaves": 31,
        "verbosity": -1,
        "num_threads": 1,
        "seed": 0,
    }

    def ours():
        LambdaMARTRanker(
            n_estimators=n_trees,
            learning_rate=0.1,
            num_leaves=31,
            debiasing="none",
            early_stopping=False,
            random_state=0,
        ).fit(X, clicks, **roles)

    def bare():
        data = lightgbm.Dataset(X, clicks, group=[LENGTH] * n)
        lightgbm.train(settings, data, n_trees)

    return {OURS: ours, "bare LightGBM": bare}


NAIVE = "NaiveRanker"


def whole_fit(ranker_class):
    """A fit with the defaults, until it stops by itself, beside a naive one to the same log."""

    def contenders(size):
        documents = make_ltr(size(tiny=20, quick=300, full=300), n_features=20, random_state=0)
        documents["production"] = production_scores(documents, fraction=0.1, random_state=0)
        log, clicks, _ = simulate_clicks(
            documents,
            n_sessions=size(tiny=200, quick=5_000, full=20_000),
            policy=PlackettLucePolicy(),
            scores=documents["production"],
            random_state=0,
        )
        rankers = {OURS: ranker_class, NAIVE: NaiveRanker}
        return {
            name: lambda each=each: each(random_state=0).fit(log, clicks)
            for name, each in rankers.items()
        }

    return contenders


FRAME = "a copy of its float32 frame"


def fit_memory(ranker_class, **settings):
    """A fit to a float32 frame beside a copy of that frame."""

    def contenders(size):
        n = size(tiny=30, quick=20_000, full=40_000)
        X, clicks, roles = _lists([LENGTH] * n, size(tiny=5, quick=136, full=136))
        features = pd.DataFrame(X, columns=[f"feature_{i}" for i in range(X.shape[1])])
        log = pd.concat([pd.DataFrame(roles), features], axis=1)
        del X, features
        return {
            OURS: lambda: ranker_class(random_state=0, **settings).fit(log, clicks),
            FRAME: lambda: log.copy(),
        }

    return contenders


_EPOCHS = {
    "naive": (", NaiveRanker", epoch(NaiveRanker, (64, 32))),
    "dla": (", DLARanker", epoch(DLARanker, (64, 32))),
    "naive-linear": (", NaiveRanker, linear", epoch(NaiveRanker, ())),
    "dla-linear": (", DLARanker, linear", epoch(DLARanker, ())),
    "wide": (
        ", NaiveRanker, units (512, 256, 128)",
        epoch(NaiveRanker, (512, 256, 128), n_lists=3_000),
    ),
    "long": (
        " of lists of 100, NaiveRanker",
        epoch(NaiveRanker, (64, 32), n_lists=2_000, length=100),
    ),
}
_LONG_LISTS = {
    "pair-debias": ("PairDebiasRanker", long_list(PairDebiasRanker)),
    "pairwise": ("NaiveRanker, pairwise", long_list(NaiveRanker, loss="pairwise")),
    "lambda": ("NaiveRanker, lambda", long_list(NaiveRanker, loss="lambda")),
}
_WHOLE_FITS = {"ips": (IPSRanker, 1.6), "dla": (DLARanker, 1.6), "ensemble": (EnsembleRanker, 3.0)}
WORKS = (
    *(
        Work(f"training/epoch-{name}", f"an epoch{what}", contenders, {BARE: 1.05})
        for name, (what, contenders) in _EPOCHS.items()
    ),
    *(
        Work(
            f"training/long-list-{name}",
            f"a list of 2,000 among lists of 10, {who}",
            contenders,
            {WITHOUT: 1.5},
            memory_goal=1.5,
        )
        for name, (who, contenders) in _LONG_LISTS.items()
    ),
    *(
        Work(
            f"training/fit-{name}",
            f"a fit of {ranker_class.__name__}",
            whole_fit(ranker_class),
            {NAIVE: goal},
            memory=False,
        )
        for name, (ranker_class, goal) in _WHOLE_FITS.items()
    ),
    Work("training/trees", "LambdaMARTRanker, 50 trees", trees, {"bare LightGBM": None}),
    Work(
        "training/memory-naive",
        "memory that a fit adds, NaiveRanker",
        fit_memory(NaiveRanker, max_epochs=1, early_stopping=False),
        {FRAME: 1.5},
        unit="memory",
    ),
    Work(
        "training/memory-trees",
        "memory that a fit adds, LambdaMARTRanker",
        fit_memory(LambdaMARTRanker, n_estimators=2, early_stopping=False),
        {FRAME: 1.5},
        unit="memory",
        note="the goal is that of networks; this fit has not been worked on",
    ),
)
