"""Every ranker by its name, on logs of a simulator that is not skultr's.

36 logs (24 more behind weak production: ``--only other``) of a simulator in NumPy alone
(`_numpy_worlds`): documents x production rankers x orders x users x sizes of log, balanced by
pairs of levels. Rankers have default parameters and ``random_state=0``. Only ``ensemble,
production`` reads the role ``production``; where there are two devices, all see the role ``user``
and ``user-aware`` is fitted. LightGBM with ``position`` learns from sessions, and from
`LIGHTGBM_SESSIONS` of them at most; the others learn from all of them, counted by list. The
skylines know the labels of the log: trees, and the naive network.

A row is a fit: nDCG@10 on queries that are not in the log, over ``all`` candidates and over the
``shown`` ones, which production would have put on its page. What is judged is a margin over
``naive`` in the same log and with the same seed. A loss is *told* if the fit gave one of the
warnings in `TELLING`. Fits are finished one by one into ``names.jsonl``, and the command goes on
where it was. Documents whose files are not in the folder SKULTR_DATA are left out.

``--quick`` has four logs.
"""

import os
import time
import warnings
from functools import lru_cache

import lightgbm
import numpy as np
import pandas as pd

from skultr import rankers
from skultr.metrics import ndcg_score

from .._documents import tree_scores
from .._study import Exhibit, Page, Study
from ._numpy_worlds import Cell, are_there, cells, world_of

RANKERS = {
    "naive": "NaiveRanker",
    "DLA": "DLARanker",
    "IPS": "IPSRanker",
    "user-aware": "UserAwareIPSRanker",
    "LambdaMART": "LambdaMARTRanker",
    "regression-EM": "RegressionEMRanker",
    "two towers": "TwoTowerRanker",
    "affine": "AffineRanker",
    "vectorization": "VectorizationRanker",
    "ensemble": "EnsembleRanker",
    "ensemble, production": "EnsembleRanker",
}
SKYLINES = ("skyline, trees", "skyline, network")
PEERS = ("LightGBM, position", "production", *SKYLINES)
METHODS = (*RANKERS, *PEERS)
#: What is judged against naive as a single ranker of skultr's is none of these.
NOT_SINGLE = ("naive", "ensemble", "ensemble, production", *PEERS)
#: Warnings that say that a ranker may be wrong.
TELLING = (
    "ClickDataWarning",
    "NotIdentifiableWarning",
    "AssumptionWarning",
    "UnstableWeightsWarning",
)
#: Of a warning: enough to tell which one it is.
WORDS = 8
#: A margin over naive beyond which a user would notice.
HARM = 0.03
LOG = list(Cell._fields)
#: It knows no impressions; more sessions than that take minutes.
LIGHTGBM_SESSIONS = 20_000
ROUNDS = 100
#: A grade is a rate of as many clicks: so it may lie between 0 and 1, and has no noise.
LABEL_IMPRESSIONS = 1_000
DATA = os.environ.get("SKULTR_DATA", "no folder")


# --------------------------------------------------------------------------------------
# Runs
# --------------------------------------------------------------------------------------
def chosen(set):
    """The cells of the study: each log of the set with each ranker that can be fitted to it."""

    def of(settings):
        there = [log for log in cells(set) if are_there(log.documents, DATA)]
        n_logs = settings.size(quick=4, full=len(there), tiny=1)
        sessions = settings.sessions or max(log.sessions for log in there)
        logs = [log for log in there[:n_logs] if log.sessions <= sessions]
        return [
            {**log._asdict(), "ranker": name}
            for log in logs
            for name in METHODS
            if name != "user-aware" or log.user == "two devices"
        ]

    return of


def names(cell, settings, seed):
    """The row of one fit; one that fails says why."""
    log = Cell(**{name: cell[name] for name in LOG})
    n_queries = settings.size(quick=settings.queries, full=settings.queries, tiny=20)
    world = _world(log, seed, n_queries)
    _import_all()
    found = {"all": np.nan, "shown": np.nan, "error": ""}
    start = time.process_time()
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        try:
            scores = scores_of(cell["ranker"], world, settings.tiny)
        except Exception as error:
            found["error"] = f"{type(error).__name__}: {error}"[:300]
            scores = None
    found["CPU seconds"] = time.process_time() - start
    found["warnings"] = "; ".join(dict.fromkeys(map(_first_words, raised)))
    found["told"] = float(any(warning.category.__name__ in TELLING for warning in raised))
    return [found | (_values(world, scores) if scores is not None else {})]


@lru_cache(maxsize=1)
def _world(log, seed, n_queries):
    return world_of(log, seed, DATA, n_queries=n_queries)


@lru_cache(maxsize=1)
def _import_all():
    """Imports, torch's above all, are no part of the time of the first fit."""
    frame = pd.DataFrame({"qid": [0, 0, 1, 1], "position": [1, 2, 1, 2], "x": [0.0, 1, 2, 3]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rankers.NaiveRanker(max_epochs=1).fit(frame, [1, 0, 1, 0])


def _first_words(warning):
    words = " ".join(str(warning.message).split()[:WORDS])
    return f"{warning.category.__name__}: {words}"


def _values(world, scores):
    """nDCG@10 over all test documents, and over those that production would show."""
    test = world.test
    place = test.groupby("qid")["production"].rank(ascending=False, method="first")
    shown = (place <= world.n_positions).to_numpy()
    every = np.ones(len(test), dtype=bool)
    return {name: _ndcg(test[of], scores[of]) for name, of in (("all", every), ("shown", shown))}


def _ndcg(test, scores):
    """The mean over queries that have a relevant document."""
    found = ndcg_score(test["relevance"], scores, qid=test["qid"], k=10, per_query=True)
    return float(found["ndcg@10"].mean())


# --------------------------------------------------------------------------------------
# Methods
# --------------------------------------------------------------------------------------
def scores_of(name, world, tiny=False):
    """Scores of the test documents by a method that has learned from the log."""
    if name == "production":
        return world.test["production"].to_numpy()
    if name == "skyline, trees":
        return tree_scores(world.train, world.test)
    if name == "skyline, network":
        return _taught(world)
    if name == "LightGBM, position":
        return _lightgbm(world)
    return _ranker(name, world, tiny)


def _ranker(name, world, tiny):
    unread = [] if name == "ensemble, production" else ["production"]
    ranker = getattr(rankers, RANKERS[name])(random_state=0)
    if tiny and "max_epochs" in ranker.get_params():
        ranker.set_params(max_epochs=1)
    log = world.log.drop(columns=unread)
    candidates = world.test.drop(columns=["relevance", *unread])
    return ranker.fit(log, "click").predict(candidates)


def _taught(world):
    """The naive network, which learns grades where it learns rates of clicks from the log."""
    features = _features(world.train)
    labelled = world.train[["qid", "doc", *features]].assign(
        session=world.train["qid"],
        position=world.train.groupby("qid").cumcount() + 1,
        impressions=LABEL_IMPRESSIONS,
    )
    ranker = rankers.NaiveRanker(random_state=0)
    ranker.fit(labelled, world.train["relevance"] / world.train["relevance"].max())
    return ranker.predict(world.test[["qid", *features]])


def _features(documents):
    return [name for name in documents if name.startswith("feature_")]


def _lightgbm(world):
    features = _features(world.train)
    sessions = slice(LIGHTGBM_SESSIONS)
    shown = world.shown[sessions]
    clicks = world.clicks[sessions]
    session, place = np.nonzero(shown >= 0)
    data = lightgbm.Dataset(
        world.train[features].to_numpy()[shown[session, place]],
        clicks[session, place].astype(int),
        group=np.bincount(session),
        position=place,
    )
    settings = {
        "objective": "lambdarank",
        "label_gain": [0, 1],
        "lambdarank_position_bias_regularization": 0.0,
        "verbosity": -1,
        "num_threads": 1,
        "seed": 0,
    }
    booster = lightgbm.train(settings, data, ROUNDS)
    return booster.predict(world.test[features].to_numpy())


# --------------------------------------------------------------------------------------
# Summary
# --------------------------------------------------------------------------------------
def over_naive(rows):
    """The fits that ended, with margins over naive (``all``, ``shown``) and times in its fits."""
    run = [*LOG, "seed"]
    rows = rows[rows["all"].notna()]
    naive = rows[rows["ranker"] == "naive"].set_index(run)[["all", "shown", "CPU seconds"]]
    known = rows.join(naive.add_suffix(" naive"), on=run)
    return known.assign(
        **{
            f"over naive, {name}": known[name] - known[f"{name} naive"]
            for name in ("all", "shown")
        },
        fits=known["CPU seconds"] / known["CPU seconds naive"],
    )


def per_ranker(rows):
    """The measures of each ranker over its fits."""
    found = {}
    for name, of in over_naive(rows).groupby("ranker", sort=False):
        margin = of["over naive, all"]
        learns_bias = of["production"].isin(["weak", "medium"])
        found[name] = {
            "logs": len(of),
            "nDCG@10": of["all"].mean(),
            "mean": margin.mean(),
            "worst": margin.min(),
            "below -.03": (margin < -HARM).mean(),
            "weak, medium": margin[learns_bias].mean(),
            "other production": margin[~learns_bias].mean(),
            "shown, mean": of["over naive, shown"].mean(),
            "shown, worst": of["over naive, shown"].min(),
            "naive fits": of["fits"].mean(),
        }
    failed = rows["all"].isna().groupby(rows["ranker"], sort=False).sum().rename("failed")
    # A ranker whose every fit failed has a line too.
    table = failed.to_frame().join(pd.DataFrame(found).T)
    return table.rename_axis("ranker").reset_index().assign(seed=0)


def beside_the_better(rows):
    """Margins of the ensembles over the better of naive and production in the same log."""
    run = [*LOG, "seed"]
    wide = rows.pivot_table("all", run, "ranker")
    better = wide[["naive", "production"]].max(axis=1)
    found = {}
    for name in ("ensemble", "ensemble, production"):
        margin = (wide[name] - better).dropna()
        found[name] = {
            "logs": len(margin),
            "mean": margin.mean(),
            "worst": margin.min(),
            "at least -.005": (margin >= -0.005).mean(),
        }
    return pd.DataFrame(found).T.rename_axis("ranker").reset_index().assign(seed=0)


def told(rows):
    """Of the single rankers' fits that ended far below, between and far above: share that told."""
    known = over_naive(rows)
    known = known[~known["ranker"].isin(NOT_SINGLE)]
    edges = [-np.inf, -HARM, HARM, np.inf]
    ends = pd.cut(known["over naive, all"], edges, labels=["below -.03", "between", "above .03"])
    every = pd.concat([known, known.assign(ranker="all single rankers")])
    groups = every.assign(ends=pd.concat([ends, ends])).groupby(["ranker", "ends"], observed=True)
    found = groups["told"].agg(fits="size", told="mean")
    return found.reset_index().assign(seed=0, ends=lambda table: table["ends"].astype(str))


def by_level(rows):
    """Margins over naive of each ranker by each level of the design."""
    known = over_naive(rows)
    parts = [known.assign(factor=name, level=known[name].astype(str)) for name in LOG]
    groups = pd.concat(parts).groupby(["ranker", "factor", "level"], sort=False)
    found = groups["over naive, all"].agg(["mean", "min"]).set_axis(["mean", "worst"], axis=1)
    return found.reset_index().assign(seed=0)


MEASURES = (
    "logs",
    "nDCG@10",
    "mean",
    "worst",
    "below -.03",
    "weak, medium",
    "other production",
    "shown, mean",
    "shown, worst",
    "naive fits",
    "failed",
)
STUDY = Study("names", names, chosen("main"), quick_runs=1, full_runs=1, hours=0.2)
OTHER = Study("other names", names, chosen("other"), quick_runs=1, full_runs=1, hours=0.15)
BETTER = ("logs", "mean", "worst", "at least -.005")
PAGE = Page(
    "studies/names",
    "Every ranker by its name, on logs of another simulator",
    (
        Exhibit("rankers", "nDCG@10 minus naive", STUDY, ("ranker",), MEASURES, keep=per_ranker),
        Exhibit(
            "better",
            "Ensembles minus the better of naive and production",
            STUDY,
            ("ranker",),
            BETTER,
            keep=beside_the_better,
        ),
        Exhibit(
            "told",
            "Share of fits with a warning, by where they ended",
            STUDY,
            ("ranker", "ends"),
            ("fits", "told"),
            keep=told,
        ),
        Exhibit(
            "levels",
            "nDCG@10 minus naive, by level of the design",
            STUDY,
            ("ranker", "factor", "level"),
            ("mean", "worst"),
            keep=by_level,
        ),
        Exhibit(
            "other",
            "nDCG@10 minus naive, behind weak production",
            OTHER,
            ("ranker",),
            MEASURES,
            keep=per_ranker,
        ),
    ),
)
