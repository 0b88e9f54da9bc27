"""What does a request cost, beside the network or the trees alone?

By hand: ``OMP_NUM_THREADS=1 python -m benchmarks.studies.serving``. Medians of CPU time, ours
and its peer in turn:

- one request of 100 documents with 100 features, as an array, pandas and Polars, alone and behind
  a repair of the log and a scaler, against the bare network in torch (float32);
- the same with trees against the bare booster;
- the same behind a scaler against scikit-learn's own pipeline of a scaler and a network;
- 200,000 documents against torch in blocks of 8,192 rows.
"""

import time
import warnings

import numpy as np
import pandas as pd
import polars as pl
import torch
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skultr.identifiability import IdentifiabilityRepair
from skultr.preprocessing import OnFeatures
from skultr.rankers import DLARanker, LambdaMARTRanker

N_FEATURES = 100
NAMES = [f"feature_{i}" for i in range(N_FEATURES)]


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    log, clicks = make_log(random)
    array = random.random((100, N_FEATURES), dtype=np.float32)
    frames = {
        "pandas": pd.DataFrame(array, columns=NAMES),
        "Polars": pl.DataFrame(dict(zip(NAMES, array.T.copy(), strict=True))),
    }
    print(f"{'one request of 100 documents':42s} {'ms':>7s} {'peer':>7s} {'ratio':>6s}")
    for label, peer, ours in requests(log, clicks, array, frames):
        report(label, *medians(peer, ours, 300))
    plain, network = plain_ranker(log, clicks)
    many = random.standard_normal((200_000, N_FEATURES), dtype=np.float32)
    blocks = [slice(start, start + 8_192) for start in range(0, len(many), 8_192)]
    found = medians(
        lambda: [bare(network, many[rows]) for rows in blocks], lambda: plain.predict(many), 7
    )
    report("200,000 documents / torch", *found)


def make_log(random, n_queries=300, n_documents=10):
    n_rows = n_queries * n_documents
    log = pd.DataFrame(random.random((n_rows, N_FEATURES), dtype=np.float32), columns=NAMES)
    log.insert(0, "qid", np.repeat(np.arange(n_queries), n_documents))
    log.insert(1, "doc", np.arange(n_rows))
    log.insert(2, "position", np.tile(np.arange(1, n_documents + 1), n_queries))
    return log, (random.random(n_rows) < 0.3).astype(float)


def ranker():
    return DLARanker(max_epochs=2, random_state=0)


def plain_ranker(log, clicks):
    fitted = ranker().fit(log[NAMES].to_numpy(), clicks, qid=log["qid"], position=log["position"])
    return fitted, fitted.network_.eval()


def bare(network, values):
    with torch.inference_mode():
        return network(torch.from_numpy(values)).numpy()


def requests(log, clicks, array, frames):
    """(label, peer, ours) of each comparison."""
    plain, network = plain_ranker(log, clicks)
    torch_alone = lambda: bare(network, array)  # noqa: E731
    yield "array / torch", torch_alone, lambda: plain.predict(array)
    models = {
        "": ranker(),
        "OnFeatures, ": make_pipeline(OnFeatures(StandardScaler()), ranker()),
        "repair, OnFeatures, ": make_pipeline(
            IdentifiabilityRepair(), OnFeatures(StandardScaler()), ranker()
        ),
    }
    peer = make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=(64, 32), max_iter=2))
    peer.fit(log[NAMES][:500], clicks[:500])
    for name, model in models.items():
        model.fit(log, clicks)
        for kind, frame in frames.items():
            yield f"{name}{kind} / torch", torch_alone, lambda: model.predict(frame)  # noqa: B023
            if name:
                theirs = lambda: peer.predict(frames["pandas"])  # noqa: E731
                yield f"{name}{kind} / scikit-learn", theirs, lambda: model.predict(frame)  # noqa: B023
    trees = LambdaMARTRanker(random_state=0).fit(log, clicks)
    booster = lambda: trees.booster_.predict(array, num_threads=1)  # noqa: E731
    for kind, frame in frames.items():
        yield f"trees, {kind} / booster", booster, lambda: trees.predict(frame)  # noqa: B023


def medians(peer, ours, n):
    """Milliseconds of CPU time of both, which take turns."""
    times = {peer: [], ours: []}
    for i in range(n + 1):
        for function, found in times.items():
            start = time.thread_time()
            function()
            if i:  # the first call imports and fills caches
                found.append(1e3 * (time.thread_time() - start))
    return np.median(times[peer]), np.median(times[ours])


def report(label, peer, ours):
    print(f"{label:42s} {ours:7.3f} {peer:7.3f} {ours / peer:6.1f}", flush=True)


if __name__ == "__main__":
    main()
