"""Vectorization and its peers where clicks are not examination times relevance.

One protocol for all methods: 5,000 queries, of which a ranker trained on the labels of 1 % shows
the top ten, always in the same order; a million sessions; five settings a method, of which nDCG@10
on 500 annotated queries picks one; 1,000 other queries for the figures; five seeds, paired.
Clicks come from the TianGong-ST table (``matrix``) or have trust bias (``trust``). ``student`` and
``repeats`` take defaults and 1,200 ``--queries`` with 200 sessions each; ``dims``, ``starts`` and
``lists`` take the two published stages and one network. ``judged`` corrects base vectors by a few
labelled documents (section 4.2 of the paper), also where users find the ``answers`` on the page.
``counted`` counts the click matrix back from clicks (Fig. 1). ``--letor FILE`` takes real
documents.
"""

import time

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from skultr import DLARanker, VectorizationRanker, aggregate_clicks
from skultr.datasets import make_ltr
from skultr.evaluation import run_comparison
from skultr.metrics import ndcg_score
from skultr.model_selection import train_test_queries
from skultr.rankers import AffineRanker, NaiveRanker, PairDebiasRanker, RegressionEMRanker
from skultr.simulation import EYE_TRACKING, ClickMatrixUser, TrustBiasUser, simulate_clicks

from .._documents import whole_letor
from .._study import Exhibit, Page, Study, grid, measured

USERS = {"matrix": ClickMatrixUser, "trust": TrustBiasUser}


def answered_user():
    """Users who find the answer of the best documents on the page, the less so the deeper.

    At the first position clicks fall with the grade. Further down they do so less, which is all
    that a log says of relevance.
    """
    relevant = np.array([0.05, 0.15, 0.35, 0.6, 0.9])[:, None]
    answered = np.array([0.5, 0.45, 0.4, 0.3, 0.2])[:, None]
    share = np.linspace(1.0, 0.4, len(EYE_TRACKING))
    return ClickMatrixUser(EYE_TRACKING * (relevant * (1 - share) + answered * share))


JUDGED_USERS = USERS | {"answers": answered_user}
#: Labelled documents, five of a query.
N_LABELLED, PER_QUERY = (20, 50, 100), 5
CUTS = (1, 3, 5, 10)
#: The size of the full world.
MANY = {"n_train": 5_000, "n_sessions": 1_000_000}
RATES = [{"learning_rate": rate} for rate in (0.0005, 0.001, 0.002, 0.004, 0.008)]
DIMENSIONS = [{"n_components": d} for d in (1, 2, 3, 4, 5)]
#: The published forms of rankers that learn examination, without the refit of the default.
PUBLISHED = {"examination": "network"}
TWO_STAGES = {"student": None, "n_networks": 1}
#: The budget: five settings a method, the default step size among them.
METHODS = {
    "naive": (NaiveRanker, RATES),
    "DLA": (DLARanker, [rate | PUBLISHED for rate in RATES]),
    "regression-EM": (RegressionEMRanker, [rate | PUBLISHED for rate in RATES]),
    "pair debias": (PairDebiasRanker, [{"p": p} for p in (0.0, 1.0, 2.0, 4.0, 8.0)]),
    "affine": (AffineRanker, [{"clip": clip} for clip in (0.1, 0.2, 0.3, 0.5, 1.0)]),
    "vectorization": (VectorizationRanker, DIMENSIONS),
    "two stages": (VectorizationRanker, [d | TWO_STAGES for d in DIMENSIONS]),
}


def split(settings, seed, n_train):
    """Documents of the log, of validation and of the test."""
    n_train = settings.queries or n_train
    if settings.letor is None:
        documents = make_ltr(n_queries=n_train + 1_500, random_state=seed)
    else:
        documents = whole_letor(settings.letor)
        n_train = int(0.7 * documents["qid"].nunique())
    train, rest = train_test_queries(documents, train_size=n_train, random_state=seed)
    valid, test = train_test_queries(rest, train_size=1 / 3, random_state=seed)
    return train, valid, test


def make_world(cell, settings, seed, n_train, n_sessions):
    """The log, its documents, and held-out documents for validation and test."""
    train, valid, test = split(settings, seed, n_train)
    log, clicks, _ = simulate_clicks(
        train,
        user=JUDGED_USERS[cell["user"]](),
        n_sessions=settings.sessions or n_sessions,
        noise=0.0,
        features=False,
        random_state=seed,
    )
    X, rate = aggregate_clicks(log.assign(click=clicks), train)
    return X, rate, train.reset_index(drop=True), valid, test


def _few(settings):
    """The size of the world of few queries, with 200 sessions each."""
    n_train = settings.queries or 1_200
    return {"n_train": n_train, "n_sessions": 200 * n_train}


def ndcg(ranker, documents, k=10):
    scores = ranker.predict(documents)
    return ndcg_score(documents["relevance"], scores, qid=documents["qid"], k=k)


class Skyline(BaseEstimator):
    """A network of the same kind that is taught by the labels of the documents, not by clicks."""

    def __init__(self, documents, random_state=None):
        self.documents = documents
        self.random_state = random_state

    def fit(self, X, y):
        gain = np.expm1(np.log(2) * self.documents["relevance"].to_numpy()) / 15
        place = self.documents.groupby("qid").cumcount() + 1
        labelled = self.documents.assign(position=place)
        self.ranker_ = NaiveRanker(random_state=self.random_state).fit(labelled, gain)
        return self

    def predict(self, X):
        return self.ranker_.predict(X)


def compared(cell, settings, seed):
    """nDCG of each method with the best of its settings."""
    X, rate, train, valid, test = make_world(cell, settings, seed, **MANY)
    best = {"labels": Skyline(train, seed).fit(X, rate)}
    for method, (ranker, tried) in METHODS.items():
        fitted = [ranker(**setting, random_state=seed).fit(X, rate) for setting in tried]
        best[method] = max(fitted, key=lambda each: ndcg(each, valid))
    for method, ranker in best.items():
        yield {"method": method, **{f"nDCG@{k}": ndcg(ranker, test, k) for k in CUTS}}


def _fitted(rankers, cell, settings, seed, *, n_train, n_sessions, log=None):
    """nDCG@10 of rankers with given settings, on the log of a seed (by default their own)."""
    log = seed if log is None else log
    train, _, test = split(settings, log, n_train)
    rankers = rankers | {"labels": Skyline(train)}
    found = run_comparison(
        (train, test),
        {name: ranker.set_params(random_state=seed) for name, ranker in rankers.items()},
        users={cell["user"]: JUDGED_USERS[cell["user"]]()},
        seeds=[log],
        n_sessions=settings.sessions or n_sessions,
        noise=0.0,
        aggregate=True,
    )
    for row in found.cells_.itertuples():
        if row.error:
            raise RuntimeError(f"{row.method}: {row.error}")
        yield {"method": row.method, "nDCG@10": row.ndcg, "shown nDCG@10": row.ndcg_shown}


def student(cell, settings, seed):
    """The stages of vectorization beside its peers, each with its defaults."""
    rankers = {
        "naive": NaiveRanker(),
        "DLA": DLARanker(),
        "DLA as published": DLARanker(**PUBLISHED),
        "regression-EM as published": RegressionEMRanker(**PUBLISHED),
        "affine": AffineRanker(),
        "vectorization, two stages": VectorizationRanker(**TWO_STAGES),
        "base=factor, two stages": VectorizationRanker(base="factor", **TWO_STAGES),
        "vectorization": VectorizationRanker(),
        "its student alone": VectorizationRanker(student="only"),
        "link=probability": VectorizationRanker(link="probability"),
    }
    return _fitted(rankers, cell, settings, seed, **_few(settings))


def judged(cell, settings, seed):
    """What a few labelled documents of other queries add, mean of ten draws of documents."""
    X, rate, _, valid, test = make_world(cell, settings, seed, **_few(settings))
    queries = valid["qid"].unique()
    for name, kept in (("default", {}), ("two stages", TWO_STAGES)):
        ranker = VectorizationRanker(n_components=3, **kept, random_state=seed).fit(X, rate)
        yield {"ranker": name, "labelled": 0, "nDCG@10": ndcg(ranker, test)}
        for n in N_LABELLED:
            found = []
            for draw in range(10):
                asked = np.random.default_rng([seed, draw]).permutation(queries)[: n // PER_QUERY]
                candidates = valid[valid["qid"].isin(asked)].sample(frac=1, random_state=draw)
                known = candidates.groupby("qid").cumcount() < PER_QUERY
                grades = candidates["relevance"].where(known)
                found.append(ndcg(ranker.fit_base_vectors(candidates, grades), test))
            yield {"ranker": name, "labelled": n, "nDCG@10": np.mean(found)}


def counted(cell, settings, seed):
    """Errors of a counted click matrix: their size, and in units of their standard errors."""
    documents = make_ltr(n_queries=settings.queries or 1_000, n_features=5, random_state=seed)
    log, clicks, truth = simulate_clicks(
        documents,
        user=USERS[cell["user"]](),
        n_sessions=cell["sessions"],
        noise=0.0,
        random_state=seed,
    )
    counts = ClickMatrixUser.from_log(log, clicks).counts
    grades = pd.Series(truth.relevance_probability, documents["relevance"].to_numpy())
    if cell["user"] == "matrix":
        expected = truth.click_matrix
    else:
        relevant = grades.groupby(level=0).first().to_numpy()[:, None]
        expected = TrustBiasUser().click_probability(np.tile(relevant, 10))
    error = counts["click_rate"] - expected.ravel()
    z = error / counts["standard_error"]
    yield {
        "mean error": error.abs().mean(),
        "error / standard error": np.sqrt((z**2).mean()),
        "within 1.96": (z.abs() < 1.96).mean(),
    }


def repeats(cell, settings, seed):
    """How far the same log gives the same quality, with other initial weights."""
    rankers = {f"n_networks={n}": VectorizationRanker(n_networks=n) for n in (1, 3, 5)}
    rankers["weight_decay=0.003"] = VectorizationRanker(weight_decay=0.003)
    return _fitted(rankers, cell, settings, seed, **_few(settings), log=cell["log"])


def dims(cell, settings, seed):
    rankers = {f"d={d}": VectorizationRanker(n_components=d, **TWO_STAGES) for d in range(1, 6)}
    return _fitted(rankers, cell, settings, seed, **MANY)


def starts(cell, settings, seed):
    rankers = {"default": VectorizationRanker(**TWO_STAGES)}
    for epochs in (0, 5, 10, 20):
        frozen = type("Frozen", (VectorizationRanker,), {"_frozen_epochs": epochs})
        rankers[f"{epochs} frozen epochs"] = frozen(**TWO_STAGES)
    by_rate = {
        rate: type("Stepping", (VectorizationRanker,), {"_observation_learning_rate": rate})
        for rate in (0.005, 0.05)
    }
    for rate, ranker in by_rate.items():
        rankers[f"rate={rate}"] = ranker(**TWO_STAGES)
    published = {"optimizer": "adagrad", "learning_rate": 0.05, **TWO_STAGES}
    rankers["adagrad 0.05, as published"] = by_rate[0.05](**published)
    return _fitted(rankers, cell, settings, seed, **MANY)


def lists(cell, settings, seed):
    """Documents of other queries beside the candidates: what they cost the candidates."""
    X, rate, _, _, test = make_world(cell, settings, seed, **MANY)
    test = test.reset_index(drop=True)
    strange = test.sample(len(test), random_state=seed).assign(qid=test["qid"].to_numpy())
    both = pd.concat([test, strange], ignore_index=True)
    for bounded in (True, False):
        base = {"n_components": 3, "bounded_base": bounded, **TWO_STAGES}
        ranker = VectorizationRanker(**base, random_state=seed).fit(X, rate)
        scores = ranker.predict(both)[: len(test)]
        twice = ndcg_score(test["relevance"], scores, qid=test["qid"], k=10)
        name = "bounded" if bounded else "literal"
        yield {"base vector": name, "alone": ndcg(ranker, test), "with others": twice}


def speed(cell, settings, seed):
    """Rows per second in training without reading, and seconds to score the training queries."""
    X, rate, train, _, _ = make_world(cell, settings, seed, **MANY)
    quick = {"early_stopping": False, "random_state": 0}
    rankers = {
        "DLA": DLARanker(**PUBLISHED, **quick),
        "vectorization": VectorizationRanker(**TWO_STAGES, **quick),
    }
    for method, ranker in rankers.items():
        few, many = (_seconds_of_fit(ranker, X, rate, epochs) for epochs in (6, 30))
        seconds = []
        for _ in range(7):
            start = time.perf_counter()
            ranker.predict(train)
            seconds.append(time.perf_counter() - start)
        yield {"method": method, "rows/s": 24 * len(X) / (many - few), "scoring": min(seconds)}


def _seconds_of_fit(ranker, X, rate, epochs):
    """Processor time, best of two; two epochs of the base model for three of the first network."""
    ranker.set_params(max_epochs=epochs)
    fitted = ranker
    if isinstance(ranker, VectorizationRanker):
        base = {**VectorizationRanker._base_settings, "max_epochs": epochs * 2 // 3}
        timed = type("Timed", (VectorizationRanker,), {"_base_settings": base})
        fitted = timed(**ranker.get_params())
    found = []
    for _ in range(2):
        start = time.process_time()
        fitted.fit(X, rate)
        found.append(time.process_time() - start)
    ranker.fit(X, rate)
    return min(found)


OVER = {"over": {"user": USERS}, "by": ("method",), "level": None}
NDCG = ("nDCG@10",)
#: Of all candidates, and of those that production shows.
BOTH = (*NDCG, "shown nDCG@10")
COMPARED = Study("compared", compared, grid(user=USERS))
PAGE = Page(
    "studies/vectorization",
    "Vectorization and its peers",
    (
        *(
            Exhibit(
                user,
                "All methods with the best of five settings",
                COMPARED,
                ("method",),
                tuple(f"nDCG@{k}" for k in CUTS),
                cells=lambda cell, user=user: cell["user"] == user,
                keep=lambda rows, user=user: rows[rows["user"] == user],
                reference="vectorization",
                level=None,
            )
            for user in USERS
        ),
        measured(student, "The three stages beside peers with their defaults", BOTH, **OVER),
        measured(
            judged,
            "A few labelled documents",
            NDCG,
            over={"user": JUDGED_USERS},
            by=("ranker", "labelled"),
            level=None,
        ),
        measured(
            counted,
            "The click matrix of a log",
            ("mean error", "error / standard error", "within 1.96"),
            over={"user": USERS, "sessions": (10_000, 100_000)},
            level=None,
        ),
        measured(
            repeats,
            "The same log with other initial weights",
            BOTH,
            over={"user": USERS, "log": (0, 1)},
            by=("method",),
            runs=6,
            level=None,
        ),
        measured(dims, "By the number of dimensions", BOTH, **OVER),
        measured(starts, "By how training starts", BOTH, **OVER, runs=3),
        measured(
            lists,
            "More candidates than were shown",
            ("alone", "with others"),
            over={"user": USERS},
            by=("base vector",),
            level=None,
        ),
        measured(
            speed,
            "Beside the scalar ranker",
            ("rows/s", "scoring"),
            over={"user": ("trust",)},
            by=("method",),
            runs=1,
        ),
    ),
)
