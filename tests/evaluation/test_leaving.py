"""Users who leave after a click: the likelihood by enumeration, and what whole pages tell."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from skultr.evaluation._leaving import _events, _Pages, fit_leaving
from skultr.evaluation._logged_pages import LoggedPages
from skultr.simulation import (
    CascadeUser,
    DBNUser,
    PlackettLucePolicy,
    PositionBasedUser,
    simulate_clicks,
)

TABLES = {
    "relevance": np.array([0.3, 0.6, 0.8]),
    "look": np.array([1.0, 0.7, 0.5]),
    "on": np.array([0.9, 0.8, 0.5]),
    "leave": np.array([0.2, 0.7]),
}
PAGE = np.array([2, 0, 1])
PLACE = np.arange(3)


def paths():
    """Every course of a visit: (probability, clicks, looked, relevant, left by the click)."""
    r, look, on = TABLES["relevance"][PAGE], TABLES["look"], TABLES["on"]
    low, high = TABLES["leave"]
    found = []

    def walk(k, chance, clicks, events):
        if k == 3:
            found.append((chance, clicks, events))
            return
        for looked, relevant in product((0, 1), repeat=2):
            here = chance * (look[k] if looked else 1 - look[k])
            here *= r[k] if relevant else 1 - r[k]
            click = looked * relevant
            leave = click * (low * (1 - r[k]) + high * r[k])
            seen = [*events, (k, looked, relevant)]
            rest = (*clicks, click)
            walk(k + 1, here * (1 - leave) * on[k], rest, seen)
            stop = here * (leave + (1 - leave) * (1 - on[k]))
            found.append((stop, rest + (0,) * (2 - k), seen))

    walk(0, 1.0, (), [])
    return found


def expected(clicks):
    """P(clicks), and by row P(still there), P(looked), P(relevant) given the clicks."""
    matching = [(p, events) for p, c, events in paths() if c == clicks]
    total = sum(p for p, _ in matching)
    sums = np.zeros((3, 3))
    for p, events in matching:
        for k, looked, relevant in events:
            sums[:, k] += np.array([1, looked, relevant]) * p
    return total, sums / total


@pytest.mark.parametrize("clicks", list(product((0, 1), repeat=3)))
def test_likelihood_and_hidden_events_by_enumeration(clicks):
    column = np.array(clicks, dtype=bool)[:, None]
    events, log_chance = _events(TABLES, PAGE[:, None], PLACE[:, None], column)
    chance, (still, looked, relevant) = expected(clicks)
    assert_allclose(np.exp(log_chance), chance)
    by_table = {name: (successes, trials) for name, _, successes, trials in events}
    assert_allclose(by_table["relevance"][0][:, 0], relevant)
    assert_allclose(by_table["look"][0][:, 0], looked)
    assert_allclose(by_table["look"][1][:, 0], still)
    assert_allclose(by_table["on"][0][:, 0], [*still[1:], 0])


def test_chances_of_all_clicks_add_up_to_one():
    assert_allclose(sum(expected(clicks)[0] for clicks in product((0, 1), repeat=3)), 1)


def test_pseudo_counts_are_those_of_the_documents():
    # Relevances of a beta distribution, and binomial counts: moments give it back.
    rng, n = np.random.default_rng(0), 8_000
    doc = np.arange(n)
    X = pd.DataFrame({"qid": doc // 4, "session": doc // 4, "doc": doc, "position": doc % 4 + 1})
    pages = _Pages(LoggedPages(X, doc % 2, None, {}, "test"), doc % 4)
    trials = rng.integers(3, 20, n)
    priors = pages.priors(rng.binomial(trials, rng.beta(4, 2, n)), trials)
    assert_allclose(priors["relevance"], np.outer([4, 2], np.ones(n)), rtol=0.1)


def fitted(user, seed=0, n_sessions=12_000, n_queries=100):
    rng, qid = np.random.default_rng(seed), np.repeat(np.arange(n_queries), 8)
    documents = pd.DataFrame({"qid": qid, "doc": np.tile(range(8), n_queries)})
    documents["relevance"] = rng.integers(0, 5, len(documents))
    X, clicks, _ = simulate_clicks(
        documents,
        n_sessions=n_sessions,
        n_positions=8,
        policy=PlackettLucePolicy(1.0),
        scores=documents["relevance"] + rng.normal(0, 1, len(documents)),
        user=user,
        features=False,
        random_state=seed,
    )
    log = LoggedPages(X, clicks, None, {}, "test")
    return fit_leaving(log, log.slot_position[log.slot].astype(int) - 1)


@pytest.mark.parametrize(
    ("user", "low", "high"),
    [
        (DBNUser(satisfaction=0.5, continuation=0.9), 0.0, 0.5),
        (CascadeUser(), 1.0, 1.0),
        (PositionBasedUser(1 / np.arange(1, 9)), 0.0, 0.0),
    ],
)
def test_pages_tell_who_leaves(user, low, high):
    found = fitted(user)
    assert_allclose(found.chance[1], high, atol=0.08)
    assert_allclose(found.chance[0], low, atol=0.15)


def test_errors_of_leaving_with_few_queries():
    found, errors = [], []
    for seed in range(12):
        fit = fitted(DBNUser(satisfaction=0.5, continuation=0.9), seed, 3_000, n_queries=12)
        found.append(fit.chance[1])
        errors.append(np.linalg.norm(fit.influence[:, 1]))
    assert 0.5 < np.sqrt(np.mean(np.square(errors))) / np.std(found) < 1.6


def test_counts_and_rates_tell_nothing_of_leaving():
    X = pd.DataFrame({"qid": 1, "doc": [0, 1], "position": [1, 2], "impressions": [9, 9]})
    log = LoggedPages(X, [0.5, 0.2], None, {}, "test")
    assert fit_leaving(log, np.array([0, 1])) is None
