"""Time and memory of every estimator with its defaults grow no faster than n log n.

Logs grow by more sessions of the same queries, by more documents, by more users, by more bias
factors, each linked to few others, and by longer lists; in all of them rows grow alike. Times are
CPU times. Where one is too long it is taken again, and the least of them counts: a busy machine
makes none shorter.
"""

import time
import tracemalloc
import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from tests._discovery import public_estimators

#: Rows of the logs.
SIZES = np.array([2_000, 8_000])
#: Highest power of n, between the small and the large log: n log n grows with 1.1 here.
MOST = 1.25
#: Times below so many seconds, and memory below so many bytes, are no evidence of growth.
LEAST_SECONDS, LEAST_BYTES = 0.1, 20_000_000
REPEATS = 3
#: Settings that shorten each fit by a constant factor.
BRIEF = {
    "max_epochs": 1,
    "n_estimators": 5,
    "context": "device",
    "n_clusters": 2,
    "random_state": 0,
}


def served(n_queries, n_lists, length, n_factors=None, n_users=20):
    """Lists of queries in random order, with clicks of a position-based user."""
    rng = np.random.default_rng(0)
    query = np.repeat(np.arange(n_queries), n_lists)
    list_, rank = np.indices((len(query), length))
    doc = rng.permuted(rank, axis=1)
    features = rng.normal(size=(n_queries, length, 3))[query[:, None], doc].reshape(-1, 3)
    X = pd.DataFrame(features, columns=["f0", "f1", "f2"])
    X["device"] = list_.ravel() % 2.0
    X["qid"], X["doc"] = np.repeat(query, length), doc.ravel()
    X["session"], X["user"] = list_.ravel(), list_.ravel() % n_users
    X["position"] = rank.ravel() + 1
    if n_factors:
        X["bias"] = ((2 * query[:, None] + rank + doc % 2) % n_factors).ravel()
    chance = 0.6 / np.sqrt(rank.ravel() % 50 + 1) / (1 + np.exp(-features[:, 0]))
    return X, (rng.random(len(X)) < chance).astype(int)


WORLDS = {
    "sessions": lambda n: served(40, n // 200, 5),
    "documents": lambda n: served(n // 10, 2, 5),
    "users": lambda n: served(40, n // 200, 5, n_users=n // 5),
    "factors": lambda n: served(n // 20, 4, 5, n_factors=n // 10),
    "length": lambda n: served(1, 8, n // 8),
}
log_of = cache(lambda world, n: WORLDS[world](n))


def fit(estimator, world, n):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clone(estimator).fit(*log_of(world, n))


def seconds(estimator, world, n):
    log_of(world, n)
    start = time.process_time()
    fit(estimator, world, n)
    return time.process_time() - start


def peak(estimator, world, n):
    """Largest memory of a fit beyond its log, in bytes."""
    log_of(world, n)
    tracemalloc.start()
    try:
        fit(estimator, world, n)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def costs_of(measure, least):
    """Costs of both logs; the small one is not tried where the large one costs less than shows."""
    large = measure(SIZES[1])
    small = measure(SIZES[0]) if large > least else large
    return np.array([small, large])


def power(costs, least):
    """Power of n by which costs grow from the small to the large log."""
    costs = np.maximum(costs, least)
    return np.log(costs[1] / costs[0]) / np.log(SIZES[1] / SIZES[0])


def briefly(estimator):
    known = estimator.get_params()
    settings = {name: value for name, value in BRIEF.items() if name in known}
    return clone(estimator).set_params(**settings)


ESTIMATORS = {type(each).__name__: briefly(each) for each in public_estimators()}


#: Lists that are one experiment per query hardly connect factors in a ring, so that Newton takes
#: all of its steps above 200 factors, and hardly any below: a bounded number, at any size.
NO_EXPERIMENT = ("RandomizedPropensity", "factors")


@pytest.mark.parametrize(
    ("name", "world"),
    [(name, world) for name in ESTIMATORS for world in WORLDS if (name, world) != NO_EXPERIMENT],
)
def test_time_grows_like_the_log(name, world):
    estimator = ESTIMATORS[name]
    costs = np.full(len(SIZES), np.inf)
    for _ in range(REPEATS):
        taken = costs_of(lambda n: seconds(estimator, world, n), LEAST_SECONDS)
        costs = np.minimum(costs, taken)
        if power(costs, LEAST_SECONDS) < MOST:
            break
    assert power(costs, LEAST_SECONDS) < MOST, costs.round(3)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_memory_grows_like_the_length_of_lists(name):
    costs = costs_of(lambda n: peak(ESTIMATORS[name], "length", n), LEAST_BYTES)
    assert power(costs, LEAST_BYTES) < MOST, costs


@pytest.mark.parametrize(("exponent", "is_found"), [(1, False), (1.1, False), (1.5, True)])
def test_a_cliff_is_found(exponent, is_found):
    costs = costs_of(lambda n: n**exponent * 1e-4, LEAST_SECONDS)
    assert (power(costs, LEAST_SECONDS) > MOST) == is_found
