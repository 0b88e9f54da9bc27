"""Logs of top-k rankings, and the rankers of the CLD paper that learn from them."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from sklearn.base import clone

from skultr import CLDRanker
from skultr.metrics import average_precision_score, ndcg_score
from skultr.rankers import HeckmanRanker, IPSRanker, NaiveRanker, RankAggRanker
from skultr.simulation import PositionBasedUser, hidden_signal_scores, simulate_clicks

from .._documents import feature_columns, ranking_svm, split_documents

METRICS = ("nDCG@1", "nDCG@3", "MAP")


@dataclass(frozen=True)
class World:
    """What relevance is of the features, and what production went by beside them.

    ``nonlinearity`` is that of `make_ltr`. ``hidden`` is the strength of a signal that no feature
    shows, relative to that of the features, of correlation 0.5 with relevance. Without it the true
    gamma is 0.
    """

    nonlinearity: float
    hidden: float


#: In the paper a linear model of the truth is as good as a network (Table 3), and production went
#: by the features alone: that is the first world. In the others one or both are different.
WORLDS = {
    "nearly linear": World(0.2, 0.0),
    "non-linear": World(0.85, 0.0),
    "hidden signal": World(0.85, 1.0),
    "nearly linear, hidden signal": World(0.2, 1.0),
}


@dataclass(frozen=True)
class Made:
    """Made documents of the shape of one of the paper's sets."""

    n_documents: tuple
    n_features: int
    quick: int
    full: int
    sessions: int  # of each training query


#: The sizes of the published training parts, set 1 of Yahoo C14B and fold 1 of WEB10K, where the
#: paper's 100,000 sessions are 5 and 17 for each query.
SETS = {
    "Yahoo": Made((20, 28), 100, 1_000, 20_000, 5),
    "WEB10K": Made((100, 150), 136, 300, 6_000, 17),
}
#: Test queries: set 1 of Yahoo C14B has 6,983 and fold 1 of WEB10K 2,000.
N_TEST = {"quick": 500, "full": 5_000}
#: A set given by --letor is known by its number of features.
FEATURES = {136: "WEB10K", 519: "Yahoo", 699: "Yahoo", 700: "Yahoo"}

#: The paper trains 12 epochs. Its program has 128 pairs in a batch, those of about 16 pages. The
#: L2 penalty is a term of the loss, as in Adam. AdamW, the default, shrinks weights beside the
#: loss, and in so few steps by next to nothing.
TRAINING = {
    "optimizer": "adam",
    "max_epochs": 12,
    "batch_size": 16,
    "early_stopping": False,
    "learning_rate": 0.001,
    "random_state": 0,
}
#: What the paper tunes, the default first, and the part of it that --quick tries.
GRID = {
    "learning_rate": ((0.001, 0.005), (0.001, 0.0002, 0.0005, 0.002, 0.005)),
    "weight_decay": ((0.001, 0.01), (0.001, 0.01)),
    "alpha": ((0.001, 0.01), (0.001, 0.01)),
    "gamma": ((0.2, 0.05), (0.2, 0.05, 0.1, 0.3)),
}
#: Share of the training queries by whose clicks the grid is searched.
VALIDATION = 0.15


@dataclass(frozen=True)
class Log:
    """What a cell of a study asks for; the defaults are those of figures 3 to 5."""

    set: str = "Yahoo"
    world: str = "nearly linear"
    k: int = 5
    eta: float = 1.0
    noise: float = 0.1
    sessions: int | None = None


def log_rows(log, settings, seed, *, methods, told=None, make=None):
    """One row for each model and method that was fitted to the log: its nDCG@1, nDCG@3 and MAP.

    ``methods`` has, for each model, names of those that ``make``, by default `rankers`, returns.
    ``told`` is the exponent of the propensities that the rankers are given, by default the true
    one.
    """
    train, test, name = documents(log.set, log.world, settings, seed)
    X, clicks, examination = make_log(log, settings, seed)
    if told is not None:
        examination = np.arange(1, len(examination) + 1, dtype=float) ** -told
    rows = []
    for model, names in methods.items():
        for method, (ranker, grid) in (make or rankers)(model, settings, examination).items():
            if method in names:
                divisor = None if method in ("Naive", "Heckman") else examination
                ranker = tuned(ranker, grid, X, clicks, train, divisor, seed)
                rows.append({"model": model, "method": method, **quality(ranker, test)})
        oracle = _oracle(log.set, log.world, settings, seed, model)
        rows.append({"model": model, "method": "Oracle", **oracle})
    return [{"set": name, "world": log.world, **row} for row in rows]


def rankers(model, settings, examination):
    """Rankers by method, each with what is tuned: as published, then skultr's own forms of CLD.

    The paper's ranking network is (256, 128, 64) with dropout 0.5; with ``--quick`` it is (64, 32)
    without dropout, as a thousand queries are too few for the larger one. Naive and IPS learn by
    pairs, as the paper's program does. Heckman's method is linear in RankAgg too. skultr's forms
    have the defaults of their classes, and are not tuned.
    """
    linear = {"hidden_layer_sizes": ()} if model == "linear" else {}
    size = {"hidden_layer_sizes": (256, 128, 64), "dropout": 0.5}
    if settings.quick:
        # A list, as the published variant takes the default's tuple for one that was not given.
        size = {"hidden_layer_sizes": [64, 32]}
    own = {"random_state": 0, **linear}
    net = {**TRAINING, **(size if model == "network" else linear)}
    grid = {name: settings.size(quick=few, full=many) for name, (few, many) in GRID.items()}
    trained = {name: grid[name] for name in ("learning_rate", "weight_decay")}
    least_squares = {"alpha": grid["alpha"]}
    ips = {"propensity": examination}
    divide = IPSRanker(**ips, correction="divide", clip=None, loss="pairwise", **net)
    heckman = HeckmanRanker(hidden_layer_sizes=(), random_state=0)
    by_model = least_squares if model == "linear" else trained
    members = RankAggRanker([("ips", divide), ("heckman", heckman)])
    published = CLDRanker(**ips, loss="pointwise", variant="published", **net)
    pairs = CLDRanker(**ips, loss="pairwise", **net)
    return {
        "Naive": (NaiveRanker(loss="pairwise", **net), trained),
        "IPS": (divide, trained),
        "Heckman": (heckman if model == "linear" else HeckmanRanker(**net), by_model),
        "RankAgg": (members, {f"ips__{name}": values for name, values in trained.items()}),
        "CLD": (published, {**by_model, "gamma": grid["gamma"]}),
        "CLD-pair": (clone(pairs).set_params(variant="program"), trained),
        "CLD-pair, printed": (clone(pairs).set_params(variant="published"), trained),
        "CLD, gamma 0": (clone(published).set_params(gamma=0.0), by_model),
        "CLD by rows, skultr": (CLDRanker(**ips, loss="pointwise", **own), {}),
        "CLD by pairs, skultr": (CLDRanker(**ips, loss="pairwise", **own), {}),
        "CLD, default": (CLDRanker(**ips, **own), {}),
        "CLD, default, gamma 0": (CLDRanker(**ips, gamma=0.0, **own), {}),
    }


def tuned(ranker, grid, X, y, train, examination, seed):
    """The ranker, fitted with the values of the best validation, one parameter after the other.

    Without a grid it is fitted to all queries. Otherwise it learns from most of them; the clicks
    of the others, over ``examination`` if that is given, are the relevance of what was shown.
    """
    if not any(len(values) > 1 for values in grid.values()):
        return (
            clone(ranker)
            .set_params(**{name: v for name, (v,) in grid.items()})
            .fit(X, y, documents=train)
        )
    held_out = np.random.default_rng(seed).random(train["qid"].max() + 1) < VALIDATION
    held_out = held_out[X["qid"]]
    judges = X.assign(label=y)[held_out & X["position"].notna().to_numpy()]
    if examination is not None:
        judges["label"] /= examination[judges["position"].astype(int) - 1]
    judges = judges.groupby(["qid", "doc"])["label"].mean().reset_index()
    candidates = train[train["doc"].isin(judges["doc"])].merge(judges, on=["qid", "doc"])
    done = {}

    def judged_by_clicks(**values):
        key = tuple(values.items())
        if key not in done:
            fitted = clone(ranker).set_params(**values)
            fitted.fit(X[~held_out], y[~held_out], documents=train)
            scores = fitted.predict(candidates.drop(columns=["label", "relevance"]))
            judged = candidates["label"], scores
            done[key] = ndcg_score(*judged, qid=candidates["qid"], k=3, gain="linear"), fitted
        return done[key][0]

    best = {name: values[0] for name, values in grid.items()}
    for name, values in grid.items():
        best[name] = max(values, key=lambda value: judged_by_clicks(**{**best, name: value}))
    judged_by_clicks(**best)
    return done[tuple(best.items())][1]


# --------------------------------------------------------------------------------------
# Documents, logs, quality
# --------------------------------------------------------------------------------------
@lru_cache(maxsize=2)
def documents(name, world, settings, seed):
    """Training and test documents with relevance 0 or 1, and the name of their set."""
    made = SETS[name]
    train, test = split_documents(
        settings,
        settings.size(quick=made.quick, full=made.full),
        settings.size(**N_TEST),
        seed=seed,
        n_documents=made.n_documents,
        n_features=made.n_features,
        nonlinearity=WORLDS[world].nonlinearity,
    )
    if settings.letor is not None:
        name = FEATURES.get(len(feature_columns(train)), "other")
    # Grades 3 and 4 of 4 are relevant, and 2 of 2.
    middle = max(train["relevance"].max(), test["relevance"].max()) / 2
    parts = [part.assign(relevance=(part["relevance"] > middle) * 1) for part in (train, test)]
    return *parts, name


@lru_cache(maxsize=2)
def make_log(log, settings, seed):
    """A log of pages and of the candidates that were never shown, clicks, examination."""
    train, _, name = documents(log.set, log.world, settings, seed)
    by_query = SETS[name].sessions if name in SETS else 10
    scores = hidden_signal_scores(
        ranking_svm(train, 0.01, seed, at_least=5),
        train["relevance"],
        strength=WORLDS[log.world].hidden,
        random_state=seed,
    )
    X, clicks, truth = simulate_clicks(
        train,
        n_sessions=log.sessions or settings.sessions or by_query * train["qid"].nunique(),
        n_positions=log.k,
        scores=scores,
        user=PositionBasedUser(log.eta),
        gain="binary",
        max_grade=1,
        noise=log.noise,
        features=False,
        random_state=seed,
    )
    # Queries that nobody asked are not in the log.
    asked = train["qid"].isin(X["qid"]) & ~train["doc"].isin(X["doc"])
    hidden = train.loc[asked, ["qid", "doc"]].assign(session=X["session"].max() + 1)
    both = pd.concat([X, hidden], ignore_index=True)
    return both, np.concatenate([clicks, np.zeros(len(hidden))]), truth.examination


@lru_cache(maxsize=8)
def _oracle(name, world, settings, seed, model):
    """Quality of a ranker that was fitted to the labels of all training documents."""
    train, test, _ = documents(name, world, settings, seed)
    lists = train[["qid", "doc"]].assign(session=train["qid"])
    lists["position"] = train.groupby("qid").cumcount() + 1
    ranker, grid = rankers(model, settings, [1.0])["Naive"]
    labels = train["relevance"].to_numpy(float)
    return quality(tuned(ranker, grid, lists, labels, train, None, seed), test)


def quality(ranker, test):
    """The metrics of a ranker on documents with relevance 0 or 1, by name."""
    truth, qid = test["relevance"], test["qid"]
    scores = ranker.predict(test)
    values = [ndcg_score(truth, scores, qid=qid, k=k) for k in (1, 3)]
    return dict(
        zip(METRICS, [*values, average_precision_score(truth, scores, qid=qid)], strict=True)
    )
