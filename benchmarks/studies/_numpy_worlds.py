"""Click logs of names.py, from a simulator in NumPy alone: nothing of it is skultr's.

A simulator and the rankers judged by it must not share their mistakes, so documents, production
rankers, orders and users are written here a second time, and differ from `skultr.simulation`
where they can: production is a ridge regression, an order is drawn from some prepared layouts,
and sessions are walked through position by position, all at once.

``main`` has 36 logs and ``other`` 24 behind weak production; both are chosen greedily so that all
pairs of levels (documents, production, order, user, sessions) come about equally often.
"""

import zlib
from itertools import cycle, islice, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from skultr.datasets import load_letor

from ._robustness_worlds import balanced


class Documents(NamedTuple):
    """Sizes of a set: most training and test queries, most candidates of a query, list length."""

    train: int
    test: int
    candidates: int
    n_positions: int
    file: str | None = None


class Strength(NamedTuple):
    """What a production ranker has learned from; shares of signals are in standard deviations."""

    queries: float
    #: Random units of a hidden layer; 0: the model is linear.
    units: int = 0
    #: Of the labels of the very documents in the log.
    memory: float = 0.0
    #: Of the labels of all documents, which no feature tells.
    hidden: float = 0.0


class Cell(NamedTuple):
    """What a log is made of."""

    documents: str
    production: str
    order: str
    user: str
    sessions: int


class World(NamedTuple):
    """A log with a row per list, device and document, its sessions, and what to test on."""

    #: Columns ``qid, session, doc, position, impressions, click`` (a rate), ``production``,
    #: features, and ``user`` where there are two devices.
    log: pd.DataFrame
    #: Columns ``qid, doc``, features, ``relevance``, ``production``.
    test: pd.DataFrame
    #: The training documents, with the same columns.
    train: pd.DataFrame
    #: (n_sessions, n_positions): row of the training document at each position, -1 past the end.
    shown: np.ndarray
    #: (n_sessions, n_positions): whether it was clicked.
    clicks: np.ndarray
    n_positions: int


DOCUMENTS = {
    "made": Documents(250, 150, candidates=20, n_positions=10),
    # Half of the queries of MQ2008 have at most eight documents: five shown leave some unseen.
    "mq2008": Documents(250, 250, candidates=20, n_positions=5, file="mq2008"),
    "mslr": Documents(109, 54, candidates=40, n_positions=10, file="mslr_sample"),
}
PRODUCTION = {
    "weak": Strength(0.02),
    "medium": Strength(0.15),
    "strong": Strength(1.0, units=200),
    "memorised": Strength(1.0, units=200, memory=2.0),
    "hidden signal": Strength(0.15, hidden=0.3),
}
#: A model of fewer queries may have learned from no relevant document.
LEAST_QUERIES = 4
#: Of the ridge regression, per labelled document: labels are noisy and few.
RIDGE = 0.05
GRADES = np.arange(5)
#: Shares of made documents below grades 1, 2, 3, 4.
QUANTILES = (0.55, 0.75, 0.88, 0.96)
SESSIONS = (2_000, 20_000, 200_000)
#: Layouts of a query that Plackett-Luce draws, and days of retraining: more lists say no more,
#: and make fits longer.
N_DRAWS = 16
N_DAYS = 8
#: Standard deviations of production scores that a draw, or a day's model, adds.
TEMPERATURE = 0.5
RETRAINING = 0.6


# --------------------------------------------------------------------------------------
# The list of logs
# --------------------------------------------------------------------------------------
def cells(set="main"):
    """The logs of a set: 36 of ``main``, or 24 of ``other``, all behind weak production."""
    productions = {"main": tuple(PRODUCTION), "other": ("weak",)}[set]
    n_cells = {"main": 36, "other": 24}[set]
    levels = product(DOCUMENTS, productions, ORDERS, USERS, SESSIONS)
    return balanced([Cell(*each) for each in levels], islice(cycle(SESSIONS), n_cells))


def are_there(documents, data):
    """Whether the documents are made, or their file is in the folder."""
    file = DOCUMENTS[documents].file
    return file is None or (Path(data) / f"{file}.parquet").exists()


def world_of(cell, seed, data=None, *, n_queries=None):
    """The log of a cell, and documents of other queries; ``n_queries``: fewer of both."""
    # A cell has the same log in any list of cells.
    rng = np.random.default_rng([seed, zlib.crc32(repr(tuple(cell)).encode())])
    sizes = DOCUMENTS[cell.documents]
    documents = documents_of(cell.documents, rng, data)
    names = [name for name in documents if name.startswith("feature_")]
    queries = rng.permutation(documents["qid"].unique())
    n_train = min(n_queries or sizes.train, len(queries) * 2 // 3)
    n_test = min(n_queries or sizes.test, len(queries) - n_train)
    is_train = documents["qid"].isin(queries[:n_train])
    is_test = documents["qid"].isin(queries[n_train : n_train + n_test])
    documents = documents[is_train | is_test]
    in_log = is_train[documents.index].to_numpy()
    squashed = _squash(documents[names].to_numpy(float))
    documents["production"] = production_scores(
        PRODUCTION[cell.production], squashed, documents, in_log, rng
    )
    train = documents[in_log].reset_index(drop=True)
    test = documents[~in_log].reset_index(drop=True)
    layouts, query_of_layout = _layouts(cell.order, train, squashed[in_log], sizes, rng)
    session_layout, device = _traffic(query_of_layout, cell.sessions, rng)
    shown = layouts[session_layout]
    grade = np.where(shown < 0, -1, train["relevance"].to_numpy()[shown])
    clicks = USERS[cell.user](grade, device, rng) & (grade >= 0)
    device = device if cell.user == "two devices" else np.zeros_like(device)
    log = _counted(train, layouts, session_layout, device, clicks)
    if cell.user != "two devices":
        log = log.drop(columns="user")
    return World(log, test, train, shown, clicks, sizes.n_positions)


# --------------------------------------------------------------------------------------
# Documents
# --------------------------------------------------------------------------------------
def documents_of(name, rng, data=None):
    """Documents with columns ``qid, doc, relevance`` (0 to 4) and ``feature_0``, ..."""
    sizes = DOCUMENTS[name]
    if sizes.file is None:
        return _made(rng, sizes.train + sizes.test, sizes.candidates)
    documents = load_letor(Path(data) / f"{sizes.file}.parquet")
    documents = documents.sample(frac=1.0, random_state=rng.integers(2**31))
    documents = documents[documents.groupby("qid").cumcount() < sizes.candidates]
    features = documents.drop(columns=["qid", "doc", "relevance"], errors="ignore")
    numbered = features.set_axis([f"feature_{i}" for i in range(features.shape[1])], axis=1)
    grade = documents["relevance"] * GRADES[-1] / documents["relevance"].max()
    return numbered.assign(
        qid=pd.factorize(documents["qid"])[0],
        doc=np.arange(len(documents)),
        relevance=grade.round().astype(int),
    ).reset_index(drop=True)


def _made(rng, n_queries, n_candidates):
    """Documents whose relevance has bends and interactions, and which have useless features."""
    qid = np.repeat(np.arange(n_queries), n_candidates)
    hidden = rng.normal(size=(len(qid), 20))
    # Queries differ in what their candidates are like.
    hidden[:, :10] += 0.5 * rng.normal(size=(n_queries, 10))[qid]
    a, b, c, d, e, f, g, h = hidden[:, :8].T
    quality = (
        0.7 * a
        + 0.5 * np.maximum(b, c)
        + 0.9 * c * d
        + 0.8 * np.tanh(2 * e) * (f > 0)
        - 0.4 * g**2
        + 0.5 * h
        + 0.5 * rng.normal(size=len(qid))
    )
    # Like the counts and lengths of search engines: long tails.
    hidden[:, ::3] = np.exp(2 * hidden[:, ::3])
    features = {f"feature_{i}": hidden[:, i] for i in range(hidden.shape[1])}
    grade = np.searchsorted(np.quantile(quality, QUANTILES), quality)
    return pd.DataFrame({"qid": qid, "doc": np.arange(len(qid)), "relevance": grade, **features})


def _squash(features):
    """Features on one scale, standardised: signed logarithms where they have long tails."""
    features = np.sign(features) * np.log1p(np.abs(features))
    spread = features.std(axis=0)
    return (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


# --------------------------------------------------------------------------------------
# Production
# --------------------------------------------------------------------------------------
def production_scores(strength, features, documents, in_log, rng):
    """Scores of the ranker that serves, in standard deviations of those in the log."""
    grade = documents["relevance"].to_numpy(float)
    qid = documents["qid"].to_numpy()
    served = np.unique(qid[in_log])
    n_known = max(LEAST_QUERIES, round(strength.queries * len(served)))
    known = np.isin(qid, rng.permutation(served)[:n_known])
    inputs = np.column_stack([np.ones(len(features)), features])
    if strength.units:
        weights = rng.normal(size=(inputs.shape[1], strength.units)) / np.sqrt(inputs.shape[1])
        inputs = np.column_stack([inputs, np.maximum(inputs @ weights, 0.0)])
    scores = _standard(_ridge(inputs, grade, known), in_log)
    signal = _standard(grade, in_log)
    noise = rng.normal(size=len(grade))
    scores = scores + strength.hidden * (signal + noise)
    scores = scores + strength.memory * np.where(in_log, signal, 0.0)
    return _standard(scores, in_log)


def _ridge(inputs, target, known):
    x = inputs[known]
    penalty = RIDGE * len(x) * np.eye(x.shape[1])
    return inputs @ np.linalg.solve(
        x.T @ x + penalty, x.T @ (target[known] - target[known].mean())
    )


def _standard(values, of):
    return (values - values[of].mean()) / values[of].std()


# --------------------------------------------------------------------------------------
# Orders: (n, n_positions) places of documents in their query, best first, n layouts per query
# --------------------------------------------------------------------------------------
def _one_order(scores, day_scores, n_positions, rng):
    return np.argsort(-scores)[None, :n_positions]


def _neighbour_swaps(scores, day_scores, n_positions, rng):
    """One pair of neighbours changes places, among the shown documents and the first unseen."""
    order = np.argsort(-scores)
    layouts = [order]
    for first in range(min(n_positions, len(order) - 1)):
        swapped = order.copy()
        swapped[[first, first + 1]] = order[[first + 1, first]]
        layouts.append(swapped)
    return np.array(layouts)[:, :n_positions]


def _plackett_luce(scores, day_scores, n_positions, rng):
    gumbel = rng.gumbel(size=(N_DRAWS, len(scores)))
    return np.argsort(-(scores + TEMPERATURE * gumbel), axis=1)[:, :n_positions]


def _daily_retraining(scores, day_scores, n_positions, rng):
    return np.argsort(-(scores + RETRAINING * day_scores), axis=1)[:, :n_positions]


ORDERS = {
    "one order": _one_order,
    "neighbour swaps": _neighbour_swaps,
    "Plackett-Luce": _plackett_luce,
    "daily retraining": _daily_retraining,
}


def _layouts(order, train, features, sizes, rng):
    """All layouts, as rows of the training documents (-1 past the end), and their queries."""
    # A day's model errs by its features, as models do, and alike in all queries.
    weights = rng.normal(size=(features.shape[1], N_DAYS)) / np.sqrt(features.shape[1])
    errors = features @ weights
    errors = errors / errors.std(axis=0)
    found = []
    queries = []
    for query, rows in enumerate(train.groupby("qid").indices.values()):
        scores = train["production"].to_numpy()[rows]
        places = ORDERS[order](scores, errors[rows].T, sizes.n_positions, rng)
        layout = np.full((len(places), sizes.n_positions), -1)
        layout[:, : places.shape[1]] = rows[places]
        found.append(layout)
        queries += [query] * len(layout)
    return np.concatenate(found), np.array(queries)


def _traffic(query_of_layout, n_sessions, rng):
    """Layout and device of each session: some queries have far more sessions than others."""
    n_queries = query_of_layout[-1] + 1
    share = 1.0 / (rng.permutation(n_queries) + 10)
    chance = (share / np.bincount(query_of_layout))[query_of_layout]
    layout = rng.choice(len(chance), n_sessions, p=chance / chance.sum())
    phones = rng.beta(2, 2, n_queries)[query_of_layout[layout]]
    return layout, (rng.random(n_sessions) < phones).astype(int)


# --------------------------------------------------------------------------------------
# Users: whether each session clicks at each position, from grades and devices
# --------------------------------------------------------------------------------------
#: Chance that a document of each grade is clicked once it is examined.
ATTRACTION = 0.05 + 0.85 * (2.0**GRADES - 1) / 15
#: Chance that it satisfies once it is clicked.
SATISFACTION = 0.1 + 0.8 * (2.0**GRADES - 1) / 15
#: Of users of the DBN: they go on to the next position.
PERSEVERANCE = 0.9
#: Examination is position to the power of minus this; of a desktop and of a phone.
STEEPNESS = 1.0
DEVICES = np.array([0.5, 1.8])
#: Chance of a click on what is examined although it does not attract, at the first position.
TRUST = 0.6
#: By grade: users of the matrix look for the good ones further down.
MATRIX_STEEPNESS = np.array([1.7, 1.5, 1.2, 1.0, 0.8])


def _positions(grade):
    return np.arange(1, grade.shape[1] + 1)


def _position_based(grade, device, rng):
    chance = ATTRACTION[grade] * _positions(grade) ** -STEEPNESS
    return rng.random(grade.shape) < chance


def _trusting(grade, device, rng):
    """Affine: at the top, what does not attract is clicked as well."""
    position = _positions(grade)
    despite = TRUST / position
    chance = position**-STEEPNESS * (ATTRACTION[grade] * (1 - despite) + despite)
    return rng.random(grade.shape) < chance


def _satisfied(grade, device, rng):
    return _walk(grade, rng, SATISFACTION, PERSEVERANCE)


def _cascade(grade, device, rng):
    """The first click is the last."""
    return _walk(grade, rng, np.ones(len(GRADES)), 1.0)


def _walk(grade, rng, satisfaction, perseverance):
    clicks = rng.random(grade.shape) < ATTRACTION[grade]
    satisfied = clicks & (rng.random(grade.shape) < satisfaction[grade])
    leaves = satisfied | (rng.random(grade.shape) > perseverance)
    stays = np.logical_and.accumulate(~leaves, axis=1)
    clicks[:, 1:] &= stays[:, :-1]
    return clicks


def _click_matrix(grade, device, rng):
    """A rate for each grade and position, which is no product of the two."""
    chance = ATTRACTION[grade] * _positions(grade) ** -MATRIX_STEEPNESS[grade]
    return rng.random(grade.shape) < chance


def _two_devices(grade, device, rng):
    chance = ATTRACTION[grade] * _positions(grade) ** -DEVICES[device][:, None]
    return rng.random(grade.shape) < chance


USERS = {
    "position-based": _position_based,
    "trusting": _trusting,
    "satisfied": _satisfied,
    "cascade": _cascade,
    "click matrix": _click_matrix,
    "two devices": _two_devices,
}


# --------------------------------------------------------------------------------------
# The table
# --------------------------------------------------------------------------------------
def _counted(train, layouts, session_layout, device, clicks):
    """Sessions with one layout and device as one list: its impressions, and rates of clicks."""
    code = 2 * session_layout + device
    impressions = np.bincount(code, minlength=2 * len(layouts))
    lists = np.flatnonzero(impressions)
    counts = [np.bincount(code, clicked, len(impressions))[lists] for clicked in clicks.T]
    rate = np.stack(counts, axis=1) / impressions[lists, None]
    row = layouts[lists // 2]
    list_, place = np.nonzero(row >= 0)
    shown = train.iloc[row[list_, place]].drop(columns="relevance").reset_index(drop=True)
    return shown.assign(
        session=list_,
        user=lists[list_] % 2,
        position=place + 1,
        impressions=impressions[lists[list_]],
        click=rate[list_, place],
    )
