"""Scores at serving time: one request of 100 documents, and many documents at once."""

import copy

import numpy as np
import pandas as pd
import torch
from lightgbm import Booster
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skultr import DLARanker, IdentifiabilityRepair
from skultr.preprocessing import OnFeatures
from skultr.rankers import EnsembleRanker, LambdaMARTRanker

from ._work import OURS, Work

BARE, SKLEARN, TREES = "bare torch, float32", "scikit-learn, scaler + MLP", "bare booster"
N_DOCS, LENGTH, BLOCK = 100, 10, 8192


class World:
    """A log to fit to, and the documents of one request as an array and as frames."""

    def __init__(self, size):
        rng = np.random.default_rng(0)
        n_features = size(tiny=5, quick=100, full=100)
        n_rows = LENGTH * size(tiny=20, quick=100, full=300)
        self.names = [f"feature_{i}" for i in range(n_features)]
        self.features = rng.random((n_rows, n_features), dtype=np.float32)
        self.roles = {
            "qid": np.arange(n_rows) // LENGTH,
            "doc": np.arange(n_rows),
            "position": np.arange(n_rows) % LENGTH + 1,
        }
        self.clicks = (rng.random(n_rows) < 0.3).astype(float)
        self.array = rng.random((N_DOCS, n_features), dtype=np.float32)
        self.rng = rng

    @property
    def log(self):
        """Roles and features as one frame."""
        return pd.concat([pd.DataFrame(self.roles), self.frame(self.features)], axis=1)

    def frame(self, values):
        """A pandas frame of these features."""
        return pd.DataFrame(values, columns=self.names)

    def polars(self, values):
        """A Polars frame of these features, column by column as engines hold them."""
        import polars as pl

        return pl.DataFrame({name: values[:, i].copy() for i, name in enumerate(self.names)})


def _dla(units=(64, 32)):
    return DLARanker(hidden_layer_sizes=units, max_epochs=1, random_state=0)


def _bare(ranker, values):
    """The fitted network on blocks that fit the cache, without scaling or checks."""
    network = copy.deepcopy(ranker.network_).float().eval()

    def score():
        with torch.inference_mode():
            blocks = torch.from_numpy(values).split(BLOCK)
            return torch.cat([network(block) for block in blocks]).numpy()

    return score


def _by_sklearn(world, request):
    """scikit-learn's scaler and a network of the same units, on the same frame."""
    peer = make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=(64, 32), max_iter=1))
    peer.fit(world.log[world.names], world.clicks)
    return lambda: peer.predict(request)


def array(size):
    world = World(size)
    ranker = _dla().fit(world.features, world.clicks, **world.roles)
    ours = lambda: ranker.predict(world.array)  # noqa: E731
    return {OURS: ours, BARE: _bare(ranker, world.array)}


def frame(kind):
    """A request as a frame of that kind."""

    def contenders(size):
        world = World(size)
        ranker = _dla().fit(world.log, world.clicks)
        request = world.frame(world.array) if kind == "pandas" else world.polars(world.array)
        work = {OURS: lambda: ranker.predict(request), BARE: _bare(ranker, world.array)}
        if kind == "pandas":
            work[SKLEARN] = _by_sklearn(world, request)
        return work

    return contenders


def pipeline(kind):
    """A request through repair, scaling and ranker."""

    def contenders(size):
        world = World(size)
        ranker = make_pipeline(IdentifiabilityRepair(), OnFeatures(StandardScaler()), _dla())
        ranker.fit(world.log, world.clicks)
        request = world.frame(world.array) if kind == "pandas" else world.polars(world.array)
        work = {OURS: lambda: ranker.predict(request), BARE: _bare(ranker[-1], world.array)}
        if kind == "pandas":
            work[SKLEARN] = _by_sklearn(world, request)
        return work

    return contenders


def trees(size):
    world = World(size)
    ranker = LambdaMARTRanker(random_state=0).fit(world.log, world.clicks)
    request = world.frame(world.array)
    booster = Booster(model_str=ranker.booster_.model_to_string())
    return {
        OURS: lambda: ranker.predict(request),
        TREES: lambda: booster.predict(world.array, num_threads=1),
    }


def ensemble(size):
    """A request to the default ensemble with production, beside the network of one member."""
    world = World(size)
    served = world.rng.random(len(world.clicks))
    ranker = EnsembleRanker(random_state=0).fit(world.log.assign(production=served), world.clicks)
    request = world.frame(world.array).assign(qid=1, production=served[:N_DOCS])
    bare = _bare(ranker.named_estimators_["network"], world.array)
    return {OURS: lambda: ranker.predict(request), BARE: bare}


def bulk(units):
    """Many documents at once, as an array."""

    def contenders(size):
        world = World(size)
        n_rows = size(tiny=500, quick=50_000, full=200_000)
        many = world.rng.random((n_rows, len(world.names)), dtype=np.float32)
        ranker = _dla(units).fit(world.features, world.clicks, **world.roles)
        return {OURS: lambda: ranker.predict(many), BARE: _bare(ranker, many)}

    return contenders


def request(name, title, contenders, goals, note=""):
    """A work of a single request, whose memory is too little to compare."""
    title = f"a request {title}"
    return Work(f"serving/{name}", title, contenders, goals, memory=False, note=note)


_FRAMES = "more than a third is Polars' way from 100 columns to arrays and back"
_REPAIRED = "through repair and scaling"
WORKS = (
    request("array", "as an array", array, {BARE: 3.2}),
    request("pandas", "as pandas", frame("pandas"), {BARE: 12.6, SKLEARN: None}),
    request("polars", "as Polars", frame("polars"), {BARE: 12.6}),
    request(
        "pipeline-pandas",
        f"{_REPAIRED}, pandas",
        pipeline("pandas"),
        {BARE: 31.6, SKLEARN: 1.4},
    ),
    request("pipeline-polars", f"{_REPAIRED}, Polars", pipeline("polars"), {BARE: 31.6}, _FRAMES),
    request("trees", "to LambdaMARTRanker, pandas", trees, {TREES: 3.0}),
    request("ensemble", "to EnsembleRanker, pandas", ensemble, {BARE: 6.0}),
    *(
        Work(f"serving/{name}", f"200,000 documents, units {units}", bulk(units), {BARE: 2.0})
        for name, units in {"bulk": (64, 32), "bulk-wide": (512, 256, 128)}.items()
    ),
)
