"""Vectorization and its peers where clicks are not examination times relevance.

    python -m benchmarks.studies.vectorization matrix   # clicks by the TianGong-ST table
    python -m benchmarks.studies.vectorization trust    # trust bias
    python -m benchmarks.studies.vectorization student  # third stage, both worlds and links
    python -m benchmarks.studies.vectorization repeats  # other random_state, same log
    python -m benchmarks.studies.vectorization dims     # nDCG@10 against d, both worlds
    python -m benchmarks.studies.vectorization starts   # freeze and learning rate
    python -m benchmarks.studies.vectorization lists    # more candidates than were shown
    python -m benchmarks.studies.vectorization mslr     # the same on real features
    python -m benchmarks.studies.vectorization speed    # against the scalar ranker

One protocol for all methods: 5,000 queries, of which a ranker trained on the labels of 1 % shows
the top ten, always in the same order; a million sessions; five settings a method, of which nDCG@10
on 500 annotated queries picks one; 1,000 other queries for the figures; five seeds, paired.
``student`` and ``repeats`` take defaults and ``--queries`` with 200 sessions each; ``dims``,
``starts``, ``lists``, ``mslr`` and ``speed`` take the two published stages and one network.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import ttest_rel

from skultr import DLARanker, VectorizationRanker, aggregate_clicks
from skultr.datasets import make_ltr
from skultr.metrics import ndcg_score
from skultr.model_selection import train_test_queries
from skultr.rankers import AffineRanker, NaiveRanker, PairDebiasRanker, RegressionEMRanker
from skultr.simulation import ClickMatrixUser, TrustBiasUser, simulate_clicks

USERS = {"matrix": ClickMatrixUser, "trust": TrustBiasUser}
CUTS = (1, 3, 5, 10)
RATES = [{"learning_rate": rate} for rate in (0.0005, 0.001, 0.002, 0.004, 0.008)]
#: The published forms of rankers that learn examination, without the refit of the default.
PUBLISHED = {"examination": "network"}
PUBLISHED_DLA = {**PUBLISHED, "max_weight": None}
TWO_STAGES = {"student": None, "n_networks": 1}
#: The budget: five settings a method, the default step size among them.
METHODS = {
    "naive": (NaiveRanker, RATES),
    "DLA": (DLARanker, [rate | PUBLISHED_DLA for rate in RATES]),
    "regression-EM": (RegressionEMRanker, [rate | PUBLISHED for rate in RATES]),
    "pair debias": (PairDebiasRanker, [{"p": p} for p in (0.0, 1.0, 2.0, 4.0, 8.0)]),
    "affine": (AffineRanker, [{"clip": clip} for clip in (0.1, 0.2, 0.3, 0.5, 1.0)]),
    "vectorization": (VectorizationRanker, [{"n_components": d} for d in (1, 2, 3, 4, 5)]),
    "two stages": (
        VectorizationRanker,
        [{"n_components": d} | TWO_STAGES for d in (1, 2, 3, 4, 5)],
    ),
}
MSLR = Path(__file__).parents[3] / "shared" / "data" / "mslr_sample.parquet"


def make_world(name, seed, documents=None, n_train=5_000, n_sessions=1_000_000):
    """The log, its documents, and held-out documents for validation and test."""
    if documents is None:
        documents = make_ltr(n_queries=n_train + 1_500, random_state=seed)
    train, rest = train_test_queries(documents, train_size=n_train, random_state=seed)
    valid, test = train_test_queries(rest, train_size=1 / 3, random_state=seed)
    log, clicks, _ = simulate_clicks(
        train,
        user=USERS[name](),
        n_sessions=n_sessions,
        noise=0.0,
        features=False,
        random_state=seed,
    )
    X, rate = aggregate_clicks(log.assign(click=clicks), train)
    return X, rate, train.reset_index(drop=True), valid, test


def ndcg(ranker, documents, k=10):
    scores = ranker.predict(documents)
    return ndcg_score(documents["relevance"], scores, qid=documents["qid"], k=k)


def skyline(train, seed):
    """A network of the same kind that is taught by the labels of the training queries."""
    gain = np.expm1(np.log(2) * train["relevance"].to_numpy()) / 15
    place = train.groupby("qid").cumcount() + 1
    return NaiveRanker(random_state=seed).fit(train.assign(position=place), gain)


def table(name, n_seeds, methods):
    found = []
    for seed in range(n_seeds):
        X, rate, train, valid, test = make_world(name, seed)
        for method in methods:
            cls, settings = METHODS[method]
            fitted = [cls(**setting, random_state=seed).fit(X, rate) for setting in settings]
            quality = [ndcg(ranker, valid) for ranker in fitted]
            chosen = int(np.argmax(quality))
            values = {f"nDCG@{k}": ndcg(fitted[chosen], test, k) for k in CUTS}
            found.append({"seed": seed, "method": method, **values})
            print(seed, method, settings[chosen], round(values["nDCG@10"], 4), flush=True)
        values = {f"nDCG@{k}": ndcg(skyline(train, seed), test, k) for k in CUTS}
        found.append({"seed": seed, "method": "labels", **values})
    found = pd.DataFrame(found).set_index(["method", "seed"])
    mean = found.groupby("method", sort=False).mean()
    spread = found.groupby("method", sort=False).std()
    print(pd.concat({"mean": mean, "std": spread}, axis=1).round(4).to_string())
    ours = found.loc["vectorization"]
    for method in [*methods, "labels"]:
        if method != "vectorization":
            p = [ttest_rel(ours[cut], found.loc[method][cut]).pvalue for cut in ours]
            gap = (ours - found.loc[method]).mean().round(4).tolist()
            print(f"vectorization - {method}: {gap}, p {np.round(p, 4).tolist()}", flush=True)


def compare(name, n_seeds, rankers, **world):
    """Mean nDCG@10 over seeds of rankers with given settings."""
    found = {}
    for seed in range(n_seeds):
        X, rate, _, _, test = make_world(name, seed, **world)
        for label, ranker in rankers.items():
            fitted = ranker.set_params(random_state=seed).fit(X, rate)
            found.setdefault(label, []).append(ndcg(fitted, test))
    for label, values in found.items():
        mean, spread = np.mean(values), np.std(values, ddof=1)
        print(f"{name} {label}: nDCG@10 {mean:.4f} ± {spread:.4f}", flush=True)
    return found


def student(n_seeds, n_train):
    """The stages of vectorization beside its peers, each with its defaults."""
    rankers = {
        "naive": NaiveRanker(),
        "DLA": DLARanker(),
        "DLA as published": DLARanker(**PUBLISHED_DLA),
        "affine": AffineRanker(),
        "vectorization, two stages": VectorizationRanker(**TWO_STAGES),
        "vectorization": VectorizationRanker(),
        "its student alone": VectorizationRanker(student="only"),
        "link=probability": VectorizationRanker(link="probability"),
    }
    for name in USERS:
        compare(name, n_seeds, rankers, n_train=n_train, n_sessions=200 * n_train)
        for seed in range(n_seeds):
            _, _, train, _, test = make_world(name, seed, None, n_train, 200 * n_train)
            print(f"{name} {seed} labels: {ndcg(skyline(train, seed), test):.4f}", flush=True)


def repeats(n_seeds, n_train):
    """How far the same log gives the same quality, with other initial weights."""
    rankers = {f"n_networks={n}": VectorizationRanker(n_networks=n) for n in (1, 3, 5)}
    rankers["weight_decay=0.003"] = VectorizationRanker(weight_decay=0.003)
    for name, world in [(name, world) for name in USERS for world in range(2)]:
        X, rate, _, _, test = make_world(name, world, None, n_train, 200 * n_train)
        for label, ranker in rankers.items():
            found = [
                ndcg(ranker.set_params(random_state=state).fit(X, rate), test)
                for state in range(n_seeds)
            ]
            spread = f"± {np.std(found, ddof=1):.4f}, range {np.ptp(found):.4f}"
            print(f"{name}, log {world}, {label}: {np.mean(found):.4f} {spread}", flush=True)


def dims(n_seeds):
    rankers = {f"d={d}": VectorizationRanker(n_components=d, **TWO_STAGES) for d in range(1, 6)}
    for name in USERS:
        compare(name, n_seeds, rankers)


def starts(n_seeds):
    rankers = {"default": VectorizationRanker(**TWO_STAGES)}
    for epochs in (0, 10):
        frozen = type("Frozen", (VectorizationRanker,), {"_frozen_epochs": epochs})
        rankers[f"{epochs} frozen epochs"] = frozen(**TWO_STAGES)
    for rate in (0.005, 0.05):
        rankers[f"rate={rate}"] = VectorizationRanker(observation_learning_rate=rate, **TWO_STAGES)
    published = {"optimizer": "adagrad", "learning_rate": 0.05, "observation_learning_rate": 0.05}
    rankers["adagrad 0.05, as published"] = VectorizationRanker(**published, **TWO_STAGES)
    for name in USERS:
        compare(name, n_seeds, rankers)


def lists(n_seeds):
    """Documents of other queries beside the candidates: what they cost the candidates."""
    for name in USERS:
        for seed in range(n_seeds):
            X, rate, _, _, test = make_world(name, seed)
            test = test.reset_index(drop=True)
            strange = test.sample(len(test), random_state=seed).assign(qid=test["qid"].to_numpy())
            both = pd.concat([test, strange], ignore_index=True)
            row = []
            for bounded in (True, False):
                ranker = VectorizationRanker(
                    n_components=3, bounded_base=bounded, random_state=seed, **TWO_STAGES
                ).fit(X, rate)
                scores = ranker.predict(both)[: len(test)]
                twice = ndcg_score(test["relevance"], scores, qid=test["qid"], k=10)
                row += [round(ndcg(ranker, test), 4), round(twice, 4)]
            print(f"{name} seed {seed}: bounded alone, doubled; literal the same: {row}")


def mslr(n_seeds):
    if not MSLR.exists():
        sys.exit(f"{MSLR.name} is not there: this part reads real data.")
    documents = pd.read_parquet(MSLR)
    documents = documents.drop(columns="split").rename(columns={"label": "relevance"})
    documents["doc"] = np.arange(len(documents))
    n_queries = documents["qid"].nunique()
    print(f"{n_queries} queries, {len(documents)} documents")
    rankers = {
        "naive": NaiveRanker(),
        "DLA": DLARanker(**PUBLISHED_DLA),
        "regression-EM": RegressionEMRanker(**PUBLISHED),
        "affine": AffineRanker(),
        "vectorization": VectorizationRanker(**TWO_STAGES),
    }
    for name in USERS:
        found = compare(name, n_seeds, rankers, documents=documents, n_train=int(0.7 * n_queries))
        for label, values in found.items():
            if label != "vectorization":
                gap = np.mean(np.subtract(found["vectorization"], values))
                p_value = ttest_rel(found["vectorization"], values).pvalue
                print(f"{name} vectorization - {label}: {gap:+.4f}, p {p_value:.3f}", flush=True)


def speed(_):
    X, rate, train, _, _ = make_world("trust", 0)
    quick = {"early_stopping": False, "random_state": 0}
    rankers = {
        "scalar (DLA)": DLARanker(**PUBLISHED_DLA, **quick),
        "vectorization": VectorizationRanker(**TWO_STAGES, **quick),
    }
    throughput = {}
    for label, ranker in rankers.items():
        seconds = [_seconds_of_fit(ranker, X, rate, epochs) for epochs in (6, 30)]
        throughput[label] = len(X) * 24 / (seconds[1] - seconds[0])
        print(f"{label}: {throughput[label]:,.0f} rows a second in training", flush=True)
    scalar, vector = throughput.values()
    print(f"training, ratio {vector / scalar:.2f}")
    for size in (1, 10):
        documents = pd.concat([train] * size, ignore_index=True)
        repeat = np.repeat(np.arange(size), len(train)) * 1_000_000
        documents["qid"] += repeat
        best = dict.fromkeys(rankers, np.inf)
        for _ in range(7):
            for label, ranker in rankers.items():
                start = time.perf_counter()
                ranker.predict(documents)
                best[label] = min(best[label], time.perf_counter() - start)
        scalar, vector = best.values()
        print(
            f"{len(documents):,} documents: {scalar:.3f} s, {vector:.3f} s: {vector / scalar:.2f}"
        )


def _seconds_of_fit(ranker, X, rate, epochs):
    """Processor time, best of two; two epochs of the base model for three of the first network."""
    if isinstance(ranker, VectorizationRanker):
        base = {**VectorizationRanker._base_settings, "max_epochs": epochs * 2 // 3}
        timed = type("Timed", (VectorizationRanker,), {"_base_settings": base})
        ranker = timed(**ranker.get_params())
    ranker.set_params(max_epochs=epochs)
    found = []
    for _ in range(2):
        start = time.process_time()
        ranker.fit(X, rate)
        found.append(time.process_time() - start)
    return min(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = {"dims": dims, "starts": starts, "lists": lists, "mslr": mslr, "speed": speed}
    sized = {"student": student, "repeats": repeats}
    parser.add_argument("part", choices=[*USERS, *parts, *sized])
    parser.add_argument("--queries", type=int, default=1_200)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.part in USERS:
        table(arguments.part, arguments.seeds, arguments.methods)
    elif arguments.part in sized:
        sized[arguments.part](arguments.seeds, arguments.queries)
    else:
        parts[arguments.part](arguments.seeds)


if __name__ == "__main__":
    main()
