"""Which form of CLDRanker is the best: its losses and variants, with one training, by log.

A form is a value of ``loss``, ``variant`` and ``scale``. All are networks with the training that
is the default of the class, none is tuned, and all see the same logs. The logs differ in what the
form could depend on: documents that are nearly linear, non-linear or real, with or without a
signal that no feature shows, how many were shown, position bias, noise, and sessions. The form and
the number of steps were chosen on ``choose``; ``judge`` has other logs and other seeds. Documents
whose files are not in the folder SKULTR_DATA are left out.

``behind`` is what each form loses to the best form of a log. The best of several is chosen by the
same rows, so that it is ahead by chance, too; in ``elsewhere`` it is chosen by the other runs.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from skultr import CLDRanker
from skultr.metrics import ndcg_score
from skultr.rankers import IPSRanker, NaiveRanker

from .._study import Exhibit, Page, Study
from ..papers._cld_worlds import Log, documents, make_log

#: A list, as the published variant takes the default's tuple for one that was not given.
LAYERS = [64, 32]
FORMS = {
    "lists": {"loss": "listwise"},
    "rows": {"loss": "pointwise"},
    "rows, scale 1": {"loss": "pointwise", "scale": 1.0},
    "rows, equation 9": {"loss": "pointwise", "variant": "published"},
    "pairs": {"loss": "pairwise"},
    "pairs, program": {"loss": "pairwise", "variant": "program"},
}
#: The form of ``CLDRanker()``.
DEFAULT = "rows"
#: What its paper has: Newton's method finds the maximum.
LINEAR = {"loss": "pointwise", "variant": "published", "hidden_layer_sizes": ()}
#: Forms that ``choose`` also trains in other ways.
TRAINED_OTHERWISE = ("lists", "rows")
DATA = os.environ.get("SKULTR_DATA", "no folder")
REAL = {"MQ2008": "mq2008.parquet", "MSLR": "mslr_sample.parquet"}
#: Seeds of ``judge`` that the form was not chosen on.
FIRST_SEED = 100


@dataclass(frozen=True)
class Shop:
    """What a log is made of; ``sessions`` are those of each training query.

    ``set`` is that of the paper whose shape made documents have.
    """

    documents: str = "non-linear"
    set: str = "Yahoo"
    hidden: bool = False
    k: int = 5
    eta: float = 1.0
    noise: float = 0.1
    sessions: int = 5
    queries: int = 600


#: Of the shape of WEB10K: 100 to 150 documents per query.
LONG = {"sessions": 17, "queries": 300}

CHOOSE = {
    "non-linear": Shop(),
    "non-linear, hidden": Shop(hidden=True),
    "nearly linear": Shop("nearly linear"),
    "nearly linear, hidden": Shop("nearly linear", hidden=True),
    "top 10, eta .5": Shop(k=10, eta=0.5, hidden=True),
    "top 3, 20 sessions": Shop(k=3, sessions=20),
    "MQ2008": Shop("MQ2008", sessions=10),
}
JUDGE = {
    "nearly linear, 10 sessions": Shop("nearly linear", sessions=10),
    "nearly linear, 2 sessions": Shop("nearly linear", sessions=2),
    "nearly linear, eta 2": Shop("nearly linear", eta=2.0),
    "nearly linear, top 10, hidden": Shop("nearly linear", k=10, hidden=True),
    "nearly linear, top 3, hidden": Shop("nearly linear", k=3, hidden=True),
    "no noise, hidden": Shop(noise=0.0, hidden=True),
    "noise .3": Shop(noise=0.3),
    "noise .3, hidden": Shop(noise=0.3, hidden=True),
    "eta .5, top 3": Shop(eta=0.5, k=3),
    "eta 2, hidden": Shop(eta=2.0, hidden=True),
    "top 10": Shop(k=10),
    "50 sessions": Shop(sessions=50, queries=300),
    "50 sessions, hidden": Shop(sessions=50, queries=300, hidden=True),
    "long lists": Shop(set="WEB10K", **LONG),
    "long lists, hidden": Shop(set="WEB10K", hidden=True, **LONG),
    "long lists, nearly linear": Shop("nearly linear", set="WEB10K", **LONG),
    "MQ2008, top 3, eta .5": Shop("MQ2008", k=3, eta=0.5, sessions=10),
    "MQ2008, hidden": Shop("MQ2008", hidden=True, sessions=10),
    "MSLR": Shop("MSLR", sessions=50),
    "MSLR, hidden": Shop("MSLR", hidden=True, sessions=50),
}
LOGS = {**CHOOSE, **JUDGE}


# --------------------------------------------------------------------------------------
# Runs
# --------------------------------------------------------------------------------------
def logs_of(names, quick):
    """Cells: the logs whose documents are there, the first ``quick`` of them with --quick."""

    def cells(settings):
        there = [name for name in names if _is_there(names[name].documents)]
        n_logs = settings.size(quick=quick, full=len(there), tiny=1)
        return [{"log": name} for name in there[:n_logs]]

    return cells


def _is_there(name):
    return name not in REAL or (Path(DATA) / REAL[name]).exists()


def choose(cell, settings, seed):
    """nDCG of each form on a log of the first seeds, and of some that are trained otherwise."""
    return forms(LOGS[cell["log"]], settings, seed, also=other_trainings)


def judge(cell, settings, seed):
    """nDCG of each form on a log of other seeds."""
    return forms(LOGS[cell["log"]], settings, FIRST_SEED + seed)


def forms(shop, settings, seed, also=None):
    """A row for each form, and for what it is compared with."""
    X, clicks, train, test, examination = world_of(shop, settings, seed)
    relevance = test["relevance"]
    qid = test["qid"]
    found = rankers(examination)
    if also is not None:
        found |= also(examination)
    for name, ranker in found.items():
        scores = ranker.fit(X, clicks, documents=train).predict(test)
        values = {f"nDCG@{k}": ndcg_score(relevance, scores, qid=qid, k=k) for k in (3, 10)}
        yield {"form": name, **values}


def world_of(shop, settings, seed):
    """Rows and clicks, all documents, documents to test on, and examination."""
    n_queries = settings.queries or settings.size(full=shop.queries, quick=shop.queries, tiny=30)
    path = Path(DATA) / REAL[shop.documents] if shop.documents in REAL else None
    settings = replace(settings, quick=True, queries=n_queries, letor=path and str(path))
    log = _log_of(shop, settings, seed)
    train, test, _ = documents(log.set, log.world, settings, seed)
    X, clicks, examination = make_log(log, settings, seed)
    return X, clicks, train, test, examination


def _log_of(shop, settings, seed):
    """The log of the worlds of the paper's page."""
    if shop.hidden:
        names = {"nearly linear": "nearly linear, hidden signal"}
        world = names.get(shop.documents, "hidden signal")
    else:
        world = "nearly linear" if shop.documents == "nearly linear" else "non-linear"
    shape = {"world": world, "k": shop.k, "eta": shop.eta, "noise": shop.noise}
    train, _, _ = documents(shop.set, world, settings, seed)
    return Log(shop.set, **shape, sessions=shop.sessions * train["qid"].nunique())


def rankers(examination):
    """Each form with one training, and what it is compared with."""
    known = {"propensity": examination, "random_state": 0}
    found = {
        name: CLDRanker(**known, **{"hidden_layer_sizes": LAYERS, **form})
        for name, form in {**FORMS, "rows, equation 9, linear": LINEAR}.items()
    }
    found["IPS"] = IPSRanker(**known)
    found["IPS by rows"] = IPSRanker(**known, loss="mse")
    found["naive"] = NaiveRanker(random_state=0)
    return found


class Longer(CLDRanker):
    """As long as a network of relevance alone."""

    _length = 1.0


class Shorter(CLDRanker):
    """A quarter of that."""

    _length = 0.25


def other_trainings(examination):
    """Forms with twice the steps of the default, and with half of them."""
    known = {"propensity": examination, "random_state": 0}
    found = {}
    for name in TRAINED_OTHERWISE:
        form = {**known, "hidden_layer_sizes": LAYERS, **FORMS[name]}
        found[f"{name}, twice the steps"] = Longer(**form)
        found[f"{name}, half the steps"] = Shorter(**form)
    return found


# --------------------------------------------------------------------------------------
# Summary
# --------------------------------------------------------------------------------------
def behind(rows):
    """nDCG@10 of the default minus that of the best form of each log, and of the other forms."""
    table = _table(rows)
    return _gaps(table, table.groupby("log").transform("mean"))


def behind_elsewhere(rows):
    """The same, with the best form of a run found on the other runs of its log.

    None of them is ahead by chance then.
    """
    table = _table(rows)
    return _gaps(table, table.groupby("log").transform("sum") - table)


def _table(rows):
    """nDCG@10 by log and seed, a column for each form."""
    return rows[rows["form"].isin(FORMS)].pivot_table("nDCG@10", ["log", "seed"], "form")


def _gaps(table, quality):
    """What each form loses to the one that is best by ``quality``, by run."""
    best = quality.idxmax(axis=1).rename("best")
    of_best = [table.loc[run, form] for run, form in best.items()]
    gaps = table.sub(of_best, axis=0).stack().rename("behind")
    return gaps.reset_index().join(best, on=["log", "seed"])


CHOOSE_STUDY = Study("choose", choose, logs_of(CHOOSE, 2), quick_runs=1, full_runs=2, hours=0.1)
JUDGE_STUDY = Study("judge", judge, logs_of(JUDGE, 3), quick_runs=3, full_runs=6, hours=0.3)
METRICS = ("nDCG@3", "nDCG@10")
PAGE = Page(
    "studies/cld_forms",
    "Forms of CLDRanker, with one training",
    (
        Exhibit("choose", "Logs of the choice", CHOOSE_STUDY, ("log", "form"), METRICS),
        Exhibit("judge", "Other logs", JUDGE_STUDY, ("log", "form"), METRICS, paired=("log",)),
        Exhibit(
            "behind",
            "What each form loses to the best form of the log",
            JUDGE_STUDY,
            ("form", "log", "best"),
            ("behind",),
            keep=behind,
        ),
        Exhibit(
            "elsewhere",
            "What each form loses to the form that is best in the other runs of the log",
            JUDGE_STUDY,
            ("form", "log"),
            ("behind",),
            keep=behind_elsewhere,
        ),
    ),
)
