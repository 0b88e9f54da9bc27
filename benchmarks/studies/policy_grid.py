"""Does `policy_difference` name the right winner in worlds that it was not made in?

A grid of logs, written with NumPy alone: production good or poor, eight ways to randomise it, and
seven users; in each, four new rankings are compared with production: a better one, a worse one,
one of equal quality, and production with a document that the log never showed on top of 20 % of
the queries. Logs have 12,000 pages of 150 queries with ten documents. Users on two devices have
a ranking and a depth on each, and the column ``device`` is passed as ``context``. The truth is
exact, for the queries of the log (``queries="log"``). In percent:

- ``told``: the method does not say "cannot tell";
- ``commits``: it names a winner (p < 0.05); ``of 1 %``: of pairs that truly differ by 1 % of the
  clicks or more;
- ``wrong``: the commitments that name the wrong one, as a share of all pairs;
- ``covers``: the told intervals that hold the true difference;
- ``half``: their mean half-width, of the clicks.

``other_queries``: logs of 40 and 150 queries with 80 pages each, or with traffic by Zipf's law, of
users who follow positions. Do 95 % intervals hold the difference for the log's own queries, and
the mean difference of all queries that its queries were drawn from?

``users_in_queries``: 60 users with 60 pages each of 40 queries. A user clicks a document in all
queries or in few; each of their pages alone is of a user who follows positions.
"""

from functools import cache

import numpy as np
import pandas as pd

from skultr.evaluation import policy_difference

from .._study import Exhibit, Page, Study, grid, measured

N_QUERIES, N_DOCS, N_PAGES = 150, 10, 12_000
NOISE = {"good": 0.5, "poor": 1.5}
POSITION = np.arange(1, N_DOCS + 1)


# Orders of production ---------------------------------------------------------------------------
def swapped(order, rate, rng, first=False):
    """Two neighbours, or the first and another one, change places in a share of the pages."""
    order, pages = order.copy(), np.flatnonzero(rng.random(len(order)) < rate)
    i = np.zeros(len(pages), int) if first else rng.integers(N_DOCS - 1, size=len(pages))
    j = rng.integers(1, N_DOCS, len(pages)) if first else i + 1
    order[pages, i], order[pages, j] = order[pages, j], order[pages, i]
    return order


def shuffled(order, rate, rng):
    order, pages = order.copy(), rng.random(len(order)) < rate
    order[pages] = rng.permuted(order[pages], axis=1)
    return order


def _by_score(scores, query):
    return np.argsort(-scores[query], axis=1)


def daily(scores, query, rng):
    """One of five orders in each page, as days or rankers have them."""
    days = scores + rng.normal(0, 0.7, (5, *scores.shape))
    return np.argsort(-days[rng.integers(5, size=len(query)), query], axis=1)


def plackett_luce(temperature):
    def draw(scores, query, rng):
        noise = rng.gumbel(size=(len(query), N_DOCS))
        return np.argsort(-(scores[query] / temperature + noise), axis=1)

    return draw


ORDERS = {
    "swaps 10 %": lambda s, q, rng: swapped(_by_score(s, q), 0.1, rng),
    "swaps 30 %": lambda s, q, rng: swapped(_by_score(s, q), 0.3, rng),
    "swaps with the first 10 %": lambda s, q, rng: swapped(_by_score(s, q), 0.1, rng, first=True),
    "shuffles 2 %": lambda s, q, rng: shuffled(_by_score(s, q), 0.02, rng),
    "daily orders": daily,
    "Plackett-Luce .2": plackett_luce(0.2),
    "Plackett-Luce .5": plackett_luce(0.5),
    "one order": lambda s, q, rng: _by_score(s, q),
}


# Users: P(click) at each position of pages, and clicks drawn ------------------------------------
class Independent:
    """Clicks that do not depend on each other, by relevance, position and kind of user."""

    def __init__(self, *kinds):
        self.kinds = kinds

    def kind(self, n, rng):
        return rng.integers(len(self.kinds), size=n)

    def draw(self, relevance, kind, rng):
        chance = np.array([chance(relevance) for chance in self.kinds])
        return rng.random(relevance.shape) < chance[kind, np.arange(len(kind))]

    def expected(self, relevance):
        return np.mean([chance(relevance).sum(axis=1) for chance in self.kinds], axis=0)


class Chain:
    """Users who leave after a click, by the relevance of what they clicked, or at any row."""

    def __init__(self, satisfaction, on):
        self.satisfaction, self.on = satisfaction, on

    def kind(self, n, rng):
        return np.zeros(n, int)

    def draw(self, relevance, kind, rng):
        here, clicks = np.ones(len(relevance), bool), np.zeros(relevance.shape, bool)
        for k, r in enumerate(relevance.T):
            clicks[:, k] = here & (rng.random(len(r)) < r)
            left = clicks[:, k] & (rng.random(len(r)) < self.satisfaction(r))
            here &= ~left & (rng.random(len(r)) < self.on)
        return clicks

    def expected(self, relevance):
        here, total = 1.0, 0.0
        for r in relevance.T:
            total = total + here * r
            here = here * (1 - r * self.satisfaction(r)) * self.on
        return total


def trusting(r):
    sure, unsure = np.linspace(0.95, 0.6, N_DOCS), 0.4 / POSITION
    return (sure * r + unsure * (1 - r)) / POSITION


USERS = {
    "position-based": Independent(lambda r: r / POSITION),
    "trust": Independent(trusting),
    "DBN .5": Chain(lambda r: 0.5 * r, 0.9),
    "DBN .8": Chain(lambda r: 0.8 * r, 0.9),
    "half look at two": Independent(lambda r: r, lambda r: r * (POSITION <= 2)),
    "two devices": Independent(lambda r: r / POSITION**0.5, lambda r: r / POSITION**1.5),
    "cascade": Chain(np.ones_like, 1.0),
}


# Worlds -----------------------------------------------------------------------------------------
def world(cell, seed):
    """The log, scores of its rows by production and by new rankings, and true differences."""
    user, noise = USERS[cell["user"]], NOISE[cell["production"]]
    names = cell["user"], cell["order"]
    rng = np.random.default_rng([seed, *(sum(map(ord, name)) for name in names), int(10 * noise)])
    n_queries = cell.get("queries", N_QUERIES)
    n_pages = n_queries * N_PAGES // N_QUERIES
    quality = rng.normal(-1.2, 1.2, (n_queries, N_DOCS))
    relevance = 1 / (1 + np.exp(-quality))
    production = quality + rng.normal(0, noise, (2, *quality.shape))
    query = rng.integers(n_queries, size=n_pages)
    if cell.get("traffic") == "Zipf":
        share = 1 / np.arange(1, n_queries + 1)
        query = rng.choice(n_queries, n_pages, p=share / share.sum())
    kind = user.kind(n_pages, rng)
    own = cell["user"] == "two devices"  # has a ranking on each
    order = np.empty((n_pages, N_DOCS), int)
    for number in (0, 1):
        pages = kind == number
        order[pages] = ORDERS[cell["order"]](production[number * own], query[pages], rng)
    clicks = user.draw(np.take_along_axis(relevance[query], order, 1), kind, rng)
    columns = {
        "qid": np.repeat(query, N_DOCS),
        "session": np.repeat(np.arange(n_pages), N_DOCS),
        "doc": order.ravel(),
        "position": np.tile(POSITION, n_pages).astype(float),
        "device": np.repeat(kind * own, N_DOCS),
        "click": clicks.ravel().astype(int),
    }
    # The document N_DOCS of a fifth of the queries was never shown.
    asked = np.flatnonzero(rng.random(n_queries) < 0.2)
    never = {"qid": asked, "session": -1 - asked, "doc": N_DOCS, "position": np.nan}
    never |= {"device": 0, "click": 0}
    log = pd.concat([pd.DataFrame(columns), pd.DataFrame(never)], ignore_index=True)
    relevance = np.column_stack([relevance, 1 / (1 + np.exp(-rng.normal(-1.2, 1.2, n_queries)))])
    old, last = production[0], np.full(n_queries, -50.0)
    top = np.where(np.isin(np.arange(n_queries), asked), 50.0, -50.0)
    new = {
        "better": (quality + rng.normal(0, noise / 2, quality.shape), last),
        "worse": (old + rng.normal(0, 0.8, quality.shape), last),
        "equal": (quality + rng.normal(0, noise, quality.shape), last),
        "20 % new": (old + rng.normal(0, 0.3, quality.shape), top),
    }
    scores = {name: np.column_stack(parts) for name, parts in new.items()}
    traffic, old = np.bincount(query, minlength=n_queries) / n_pages, np.column_stack([old, last])

    def value(ranking):
        top = np.argsort(-ranking, axis=1)[:, :N_DOCS]
        return float(traffic @ user.expected(np.take_along_axis(relevance, top, 1)))

    return log, old, scores, {name: value(each) - value(old) for name, each in scores.items()}


def pairs(cell, settings, seed):
    """What `policy_difference` says of each new ranking, beside the truth."""
    log, old, scores, truth = world(cell, seed)
    context = "device" if cell["user"] == "two devices" else None
    for name, new in scores.items():
        both = (ranking[log["qid"], log["doc"]] for ranking in (new, old))
        found = policy_difference(log, "click", *both, queries="log", context=context)
        told, (low, high) = not np.isnan(found.value), found.interval
        commits = told and found.p_value < 0.05
        large = abs(truth[name]) >= 0.01 * found.logged
        yield {
            "new": name,
            "told": 100.0 * told,
            "commits": 100.0 * commits,
            "of 1 %": 100.0 * commits if large else None,
            "wrong": 100.0 * (commits and found.value * truth[name] <= 0),
            "covers": 100.0 * (low <= truth[name] <= high) if told else None,
            "half": 50 * (high - low) / found.logged if told else None,
        }


@cache
def of_all_queries():
    """How much more the better ranking than a poor production gets in a query, on average."""
    rng, user = np.random.default_rng(0), USERS["position-based"]
    quality = rng.normal(-1.2, 1.2, (200_000, N_DOCS))
    relevance = 1 / (1 + np.exp(-quality))
    noise = NOISE["poor"] * np.array([0.5, 1])
    better, old = (
        user.expected(np.take_along_axis(relevance, np.argsort(-scores, axis=1), 1)).mean()
        for scores in (quality + scale * rng.normal(size=quality.shape) for scale in noise)
    )
    return better - old


def other_queries(cell, settings, seed):
    """What intervals say of the log's queries, and of all that they were drawn from."""
    own = {"user": "position-based", "order": "Plackett-Luce .5", "production": "poor"}
    log, old, new, truth = world(cell | own, seed)
    both = [ranking[log["qid"], log["doc"]] for ranking in (new["better"], old)]
    for name, expected in (("log", truth["better"]), ("new", of_all_queries())):
        found = policy_difference(log, "click", *both, queries=name)
        told, (low, high) = not np.isnan(found.value), found.interval
        yield {
            "intervals": name,
            "told": 100.0 * told,
            "covers": 100.0 * (low <= expected <= high) if told else None,
            "error": (found.value - expected) / found.logged if told else None,
            "standard error": found.standard_error / found.logged if told else None,
        }


def users_with_habits(seed):
    """Pages with two orders as the columns a and b, and their difference in the log's queries."""
    rng, n_users, n_queries = np.random.default_rng([seed, 60]), 60, 40
    relevance = rng.uniform(0.1, 0.9, (n_queries, 3))
    user = np.repeat(np.arange(n_users), 60)
    query = rng.integers(n_queries, size=len(user))
    order = rng.permuted(np.tile(np.arange(3), (len(user), 1)), axis=1)
    X = pd.DataFrame(
        {
            "qid": np.repeat(query, 3),
            "session": np.repeat(np.arange(len(user)), 3),
            "user": [f"u{number}" for number in np.repeat(user, 3)],
            "doc": order.ravel(),
            "position": np.tile([1, 2, 3], len(user)),
        }
    )
    habit = rng.random((n_users, 3))[np.repeat(user, 3), X["doc"]]
    X["click"] = (habit < relevance[X["qid"], X["doc"]] / X["position"]).astype(int)
    traffic = np.bincount(query, minlength=n_queries) / len(user)
    truth = traffic @ (relevance[:, 0] - relevance[:, 2]) * (1 - 1 / 3)
    return X.assign(a=-X["doc"], b=X["doc"]), truth


def users_in_queries(cell, settings, seed):
    """Intervals with users as clusters, and without: a and b are equal over all queries."""
    X, truth = users_with_habits(seed)
    for name, expected in (("log", truth), ("new", 0.0)):
        cluster = "user" if cell["cluster"] == "user" else None
        found = policy_difference(X, "click", "a", "b", queries=name, cluster=cluster)
        low, high = found.interval
        yield {
            "intervals": name,
            "covers": 100.0 * (low <= expected <= high),
            "error": found.value - expected,
            "standard error": found.standard_error,
        }


FIGURES = ("told", "commits", "of 1 %", "wrong", "covers", "half")
STUDY = Study("pairs", pairs, grid(user=USERS, order=ORDERS, production=NOISE), 1, full_runs=4)


def _exhibit(name, title, *by):
    return Exhibit(name, title, STUDY, by, FIGURES)


PAGE = Page(
    "studies/policy_grid",
    "Who gets more clicks, in worlds that nobody chose",
    (
        _exhibit("users", "By user", "user"),
        _exhibit("orders", "By order of production", "order"),
        _exhibit("rankings", "By new ranking", "new"),
        _exhibit("cells", "All cells", "user", "order", "production"),
        measured(
            other_queries,
            "Own queries, and all others",
            ("told", "covers", "error", "standard error"),
            over={"queries": (40, 150), "traffic": ("even", "Zipf")},
            by=("intervals",),
            runs=100,
        ),
        measured(
            users_in_queries,
            "Users who have pages in many queries",
            ("covers", "error", "standard error"),
            over={"cluster": ("user", "none")},
            by=("intervals",),
            runs=100,
        ),
    ),
)
