"""Do fifty judged queries beside the clicks help, and what do wrong judgments cost?

Twelve logs of 20,000 pages over 300 queries of 20 documents, the top 10 shown: production that is
weak (linear, 1 % of the labels), good (trees, 10 %), strong (trees, the labels of as many other
queries), memorised (trees, all labels of the very queries that it serves), or that knows a hidden
signal; users who look by position, who trust the top, and who stop (DBN); one order, or
Plackett-Luce; queries asked alike often, or some much more often than others. ``EnsembleRanker``
learns from the clicks and from the grades of all documents of 50 queries, of the log (``of the
log``) or of others (``of others``, whose production score comes with them).

nDCG@10 on 300 other queries:

- ``production``; ``clicks``: the ensemble without judgments; ``judged``: the member that learns
  from judgments alone; ``both``: the ensemble.
- ``over best``: both less the best of the three in this run; ``below``: whether it is below the
  best by more than .005.
- Wrong judgments: ``noise``: each grade is with probability .5 that of another document;
  ``reversed``: those of a tenth of the queries from best to worst. Both less ``clicks``: what they
  cost, as negative numbers.

The exhibit ``number`` has 15, 50 and 150 judged queries, and ``no production`` logs without the
role ``production``, where the ensemble of clicks weighs all members alike. ``default`` has
networks among the members; all others are ``EnsembleRanker("trees")``. A run takes half a minute
of one core, and ``default`` four times as long.
"""

from typing import NamedTuple

import numpy as np
from lightgbm import LGBMRegressor

from skultr import aggregate_clicks
from skultr.datasets import make_ltr
from skultr.metrics import ndcg_score
from skultr.rankers import EnsembleRanker
from skultr.simulation import (
    DBNUser,
    DeterministicPolicy,
    PlackettLucePolicy,
    PositionBasedUser,
    TrustBiasUser,
    hidden_signal_scores,
    production_scores,
    simulate_clicks,
)

from .._documents import feature_columns
from .._study import Exhibit, Page, Study

QUERIES = 300
PAGES = 20_000
USERS = {"position": PositionBasedUser(1.0), "trust": TrustBiasUser(), "DBN": DBNUser()}
#: Temperatures of Plackett-Luce; 0 is one order of each query.
FIXED, SOME, MUCH = 0.0, 0.3, 1.0
MARGIN = 0.005


class Log(NamedTuple):
    production: str
    user: str
    temperature: float
    rare: bool  # whether most queries are much rarer than the others


LOGS = (
    Log("weak", "position", FIXED, False),
    Log("weak", "position", MUCH, True),
    Log("weak", "trust", FIXED, True),
    Log("good", "position", FIXED, True),
    Log("good", "trust", MUCH, False),
    Log("good", "DBN", SOME, True),
    Log("strong", "position", MUCH, False),
    Log("strong", "trust", FIXED, True),
    Log("memorised", "position", FIXED, False),
    Log("memorised", "trust", MUCH, True),
    Log("hidden signal", "position", MUCH, True),
    Log("hidden signal", "trust", FIXED, False),
)
#: Share of the labels that production has learned.
FRACTION = {"weak": 0.01, "good": 0.1, "strong": 1.0, "memorised": 1.0, "hidden signal": 0.1}


# --------------------------------------------------------------------------------------
# Worlds
# --------------------------------------------------------------------------------------
class World:
    """A log, and the documents of its queries, of others with labels, and of those to test on."""

    def __init__(self, log, seed):
        # Other documents for each log: each is a draw of its own.
        number = 100 * seed + LOGS.index(log)
        documents = make_ltr(3 * QUERIES, n_features=20, random_state=number)
        documents["production"] = _production(log.production, documents, seed)
        self.features = feature_columns(documents.drop(columns="production"))
        part = documents["qid"] // QUERIES
        self.train, self.others, self.test = (
            documents[part == number].reset_index(drop=True) for number in range(3)
        )
        rng = np.random.default_rng(seed)
        weights = 1 / np.arange(1, QUERIES + 1) ** 0.8 if log.rare else np.ones(QUERIES)
        policy = DeterministicPolicy()
        if log.temperature:
            policy = PlackettLucePolicy(log.temperature)
        rows, clicks, _ = simulate_clicks(
            self.train.drop(columns="production"),
            n_sessions=PAGES,
            policy=policy,
            scores=self.train["production"],
            user=USERS[log.user],
            query_weights=rng.permutation(weights),
            features=False,
            random_state=seed,
        )
        rows = rows.drop(columns="arm", errors="ignore")
        documents = self.train[["qid", "doc", *self.features, "production"]]
        log, self.rate = aggregate_clicks(rows.assign(click=clicks), documents)
        self.log = log

    def judged(self, kind, n_queries, rng):
        """The documents of judged queries, with their grades."""
        documents = self.train if kind == "of the log" else self.others
        chosen = rng.choice(documents["qid"].unique(), n_queries, replace=False)
        return documents[documents["qid"].isin(chosen)]

    def ndcg(self, scores):
        """Mean nDCG@10 on the test queries."""
        return ndcg_score(self.test["relevance"], scores, qid=self.test["qid"], k=10)


def _production(kind, documents, seed):
    """Scores of the ranker that serves, in standard deviations."""
    # Strong production has learned from queries that are neither in the log nor tested.
    first = QUERIES if kind == "strong" else 0
    known = documents[documents["qid"].between(first, first + QUERIES - 1)]
    trees = LGBMRegressor(
        n_estimators=200, num_leaves=15, min_child_samples=5, verbosity=-1, n_jobs=1
    )
    scores = production_scores(
        known,
        fraction=FRACTION[kind],
        estimator=None if kind == "weak" else trees,
        candidates=documents,
        random_state=seed,
    )
    if kind == "hidden signal":
        scores = hidden_signal_scores(scores, documents["relevance"], random_state=seed)
    return scores / scores.std()


def noisy(judged, rng):
    """Judgments of which half are those of other documents."""
    grades = judged["relevance"].to_numpy()
    wrong = rng.random(len(grades)) < 0.5
    return judged.assign(relevance=np.where(wrong, rng.permutation(grades), grades))


def reversed_(judged, rng):
    """Judgments of which those of a tenth of the queries go from best to worst."""
    queries = judged["qid"].unique()
    wrong = judged["qid"].isin(rng.choice(queries, len(queries) // 10, replace=False))
    grades = judged["relevance"]
    return judged.assign(relevance=grades.where(~wrong, grades.max() - grades))


# --------------------------------------------------------------------------------------
# Runs
# --------------------------------------------------------------------------------------
def cells(settings):
    """The twelve logs, with judgments of their queries and of others, and the other exhibits."""
    of_logs = [{"log": _name(log)} for log in LOGS]
    main = {"members": "trees", "n": 50, "production is": "a role"}
    kinds = [{"judged queries": kind} for kind in ("of the log", "of others")]
    found = [{**log, **kind, **main} for log in of_logs for kind in kinds]
    if settings.quick or settings.tiny:
        return found
    log, _ = kinds
    for other in ({"n": 15}, {"n": 150}, {"production is": "unknown"}, {"members": "default"}):
        found += [{**name, **log, **main, **other} for name in of_logs]
    return found


def run(cell, settings, seed):
    """nDCG@10 of each source and of the ensembles of one log."""
    log = next(each for each in LOGS if _name(each) == cell["log"])
    world = World(log, seed)
    rng = np.random.default_rng(1_000 + seed)
    right = world.judged(cell["judged queries"], cell["n"], rng)
    without = fitted(world, cell, None)
    both = fitted(world, cell, right)
    features = world.test[world.features].to_numpy()
    found = {
        "production": world.ndcg(world.test["production"]),
        "clicks": world.ndcg(without.predict(world.test)),
        "judged": world.ndcg(both.named_estimators_["judged"].predict(features)),
        "both": world.ndcg(both.predict(world.test)),
    }
    sources = ["clicks", "judged"]
    if cell["production is"] == "a role":
        sources.append("production")
    best = max(found[name] for name in sources)
    found["over best"] = found["both"] - best
    found["below"] = float(found["both"] < best - MARGIN)
    for name, spoil in (("noise", noisy), ("reversed", reversed_)):
        wrong = fitted(world, cell, spoil(right, rng))
        found[name] = world.ndcg(wrong.predict(world.test)) - found["clicks"]
    found["weight"] = both.weights_.loc["judged", "weight"]
    return [found]


def fitted(world, cell, judged):
    """The ensemble of a log, with judgments or without."""
    log = world.log
    if cell["production is"] == "unknown":
        log = log.drop(columns="production")
    members = "trees" if cell["members"] == "trees" else None
    ranker = EnsembleRanker(members, random_state=0)
    return ranker.fit(log, world.rate, judgments=judged)


def _name(log):
    """Text that names a log in tables."""
    orders = {FIXED: "one order", SOME: "T .3", MUCH: "T 1"}[log.temperature]
    return f"{log.production}, {log.user}, {orders}, {'rare' if log.rare else 'alike'}"


STUDY = Study("judged", run, cells, quick_runs=1, full_runs=4, hours=1.5)
METRICS = (
    "production",
    "clicks",
    "judged",
    "both",
    "over best",
    "below",
    "noise",
    "reversed",
    "weight",
)


def _is_main(cell):
    return cell["members"] == "trees" and cell["n"] == 50 and cell["production is"] == "a role"


def _keep(chosen):
    """Rows of chosen cells."""

    def keep(rows):
        is_chosen = rows.apply(lambda row: chosen(row.to_dict()), axis=1)
        return rows[is_chosen]

    return keep


def _exhibit(name, title, by, cells):
    return Exhibit(name, title, STUDY, by, METRICS, cells=cells, keep=_keep(cells))


def _has_numbers(cell):
    is_usual = cell["members"] == "trees" and cell["production is"] == "a role"
    return is_usual and cell["judged queries"] == "of the log"


PAGE = Page(
    "studies/judged",
    "Judgments beside the clicks",
    (
        _exhibit("kinds", "Over twelve logs", ("judged queries",), _is_main),
        _exhibit("logs", "By log", ("judged queries", "log"), _is_main),
        _exhibit("number", "By the number of judged queries", ("n",), _has_numbers),
        _exhibit(
            "no production",
            "Without the role production",
            ("production is",),
            lambda cell: cell["production is"] == "unknown",
        ),
        _exhibit(
            "default",
            "With networks among the members",
            ("members",),
            lambda cell: cell["members"] == "default",
        ),
    ),
)
