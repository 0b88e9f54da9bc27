"""Logs of top-k rankings, and the rankers of the CLD paper that learn from them."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from sklearn.preprocessing import QuantileTransformer
from sklearn.svm import LinearSVC

from skultr import CLDRanker, aggregate_clicks
from skultr.metrics import average_precision_score, ndcg_score
from skultr.rankers import HeckmanRanker, IPSRanker, NaiveRanker, RankAggRanker
from skultr.simulation import PositionBasedUser, hidden_signal_scores, simulate_clicks

from .._documents import feature_columns, split_documents

METRICS = ("nDCG@1", "nDCG@3", "MAP")
MODELS = ("linear", "network")
#: What the production ranker went by: the features alone, as in the paper (the true gamma is then
#: 0), or also a signal that no feature shows, as strong, of correlation 0.5 with relevance.
WORLDS = {"features": 0.0, "hidden signal": 1.0}


@dataclass(frozen=True)
class Made:
    """Made documents of the shape of one of the paper's sets."""

    n_documents: tuple
    n_features: int
    quick: int
    full: int


#: The sizes of the published training parts: set 1 of Yahoo C14B, fold 1 of WEB10K.
SETS = {"Yahoo": Made((20, 28), 100, 250, 20_000), "WEB10K": Made((100, 150), 136, 100, 6_000)}
#: Test queries: set 1 of Yahoo C14B has 6,983 and fold 1 of WEB10K 2,000.
N_TEST = {"quick": 500, "full": 5_000}
#: A set given by --letor is known by its number of features.
FEATURES = {136: "WEB10K", 519: "Yahoo", 699: "Yahoo", 700: "Yahoo"}

#: With --quick, the largest learning rate of the paper's grid and fewer epochs.
QUICK_TRAINING = {"learning_rate": 0.005, "max_epochs": 30, "n_iter_no_change": 5}


@dataclass(frozen=True)
class Log:
    """What a cell of a study asks for; the defaults are those of figures 3 to 5."""

    set: str = "Yahoo"
    world: str = "features"
    k: int = 5
    eta: float = 1.0
    noise: float = 0.1
    sessions: int | None = None


def log_rows(log, settings, seed, *, methods, told=None):
    """One row for each model and method that was fitted to the log: its nDCG@1, nDCG@3 and MAP.

    ``told`` is the exponent of the propensities that the rankers are given, by default the true
    one. `methods` are names of `rankers`.
    """
    _, test, name = documents(log.set, settings, seed)
    X, rate, examination = _log(log, settings, seed)
    if told is not None:
        examination = np.arange(1, len(examination) + 1, dtype=float) ** -told
    rows = []
    for model in MODELS:
        for method, ranker in rankers(model, settings, examination).items():
            if method in methods:
                scores = ranker.fit(X, rate).predict(test)
                rows.append({"model": model, "method": method, **_quality(scores, test)})
        oracle = _oracle(log.set, settings, seed, model)
        rows.append({"model": model, "method": "Oracle", **oracle})
    return [{"set": name, **row} for row in rows]


def rankers(model, settings, examination):
    """Rankers by method: as published, then skultr's own forms of CLD.

    The paper's ranking network is (256, 128, 64) with dropout 0.5; with ``--quick`` it is (64, 32)
    without dropout, as some hundred queries are too few for the larger one. Heckman's method is
    linear in RankAgg too. Training is skultr's: up to 100 epochs with early stopping.
    """
    own = {"random_state": 0, **(QUICK_TRAINING if settings.quick else {})}
    own |= {"hidden_layer_sizes": ()} if model == "linear" else {}
    size = {"hidden_layer_sizes": (256, 128, 64), "dropout": 0.5}
    net = own if model == "linear" or settings.quick else {**own, **size}
    ips = {"propensity": examination}
    divide = IPSRanker(**ips, correction="divide", clip=None, **net)
    heckman = HeckmanRanker(hidden_layer_sizes=(), random_state=0)
    rows, pairs = {**ips, "loss": "pointwise"}, {**ips, "loss": "pairwise"}
    return {
        "Naive": NaiveRanker(**net),
        "IPS": divide,
        "Heckman": heckman if model == "linear" else HeckmanRanker(**net),
        "RankAgg": RankAggRanker([("ips", divide), ("heckman", heckman)]),
        "CLD": CLDRanker(**rows, variant="published", **net),
        "CLD-pair": CLDRanker(**pairs, variant="published", **net),
        "CLD, gamma 0": CLDRanker(**rows, variant="published", gamma=0.0, **net),
        "CLD by rows, skultr": CLDRanker(**rows, **own),
        "CLD by pairs, skultr": CLDRanker(**pairs, **own),
        "CLD, default": CLDRanker(**ips, **own),
        "CLD, default, gamma 0": CLDRanker(**ips, gamma=0.0, **own),
    }


# --------------------------------------------------------------------------------------
# Documents, logs, quality
# --------------------------------------------------------------------------------------
@lru_cache(maxsize=2)
def documents(name, settings, seed):
    """Training and test documents with relevance 0 or 1, and the name of their set."""
    made = SETS[name]
    train, test = split_documents(
        settings,
        settings.size(quick=made.quick, full=made.full),
        settings.size(**N_TEST),
        seed=seed,
        n_documents=made.n_documents,
        n_features=made.n_features,
    )
    if settings.letor is not None:
        name = FEATURES.get(len(feature_columns(train)), "other")
    # Grades 3 and 4 of 4 are relevant, and 2 of 2.
    middle = max(train["relevance"].max(), test["relevance"].max()) / 2
    parts = [part.assign(relevance=(part["relevance"] > middle) * 1) for part in (train, test)]
    return *parts, name


@lru_cache(maxsize=2)
def _log(log, settings, seed):
    """An aggregated log with the candidates that were never shown, click rates, examination."""
    train = documents(log.set, settings, seed)[0]
    scores = hidden_signal_scores(
        svm_rank_scores(train, seed),
        train["relevance"],
        strength=WORLDS[log.world],
        random_state=seed,
    )
    X, clicks, truth = simulate_clicks(
        train,
        n_sessions=log.sessions or settings.n_sessions(quick=20_000, full=100_000),
        n_positions=log.k,
        scores=scores,
        user=PositionBasedUser(log.eta),
        gain="binary",
        max_grade=1,
        noise=log.noise,
        features=False,
        random_state=seed,
    )
    shown, rate = aggregate_clicks(X.assign(click=clicks), train)
    # Queries that nobody asked are not in the log.
    asked = train["qid"].isin(shown["qid"]) & ~train["doc"].isin(shown["doc"])
    hidden = train[asked].assign(session=-1, impressions=1)
    both = pd.concat([shown, hidden], ignore_index=True)
    return both, np.concatenate([rate, np.zeros(len(hidden))]), truth.examination


def svm_rank_scores(train, seed, *, fraction=0.01, at_least=5):
    """Scores of a linear SVM on pairs of documents of one query (Joachims 2002).

    It knows the labels of 1 % of the queries, of five if that is more, and ranks by quantiles of
    the features, whose scales differ by orders of magnitude.
    """
    random = np.random.default_rng(seed)
    relevant = train.groupby("qid")["relevance"].mean()
    mixed = relevant.index[(relevant > 0) & (relevant < 1)].to_numpy()
    n_known = min(len(mixed), max(at_least, round(fraction * len(relevant))))
    known = random.choice(mixed, n_known, replace=False)
    quantiles = QuantileTransformer(n_quantiles=min(1000, len(train)), random_state=seed)
    features = quantiles.fit_transform(train[feature_columns(train)].to_numpy(float))
    gaps = []
    for _, rows in train.reset_index(drop=True)[["qid", "relevance"]].groupby("qid"):
        if rows["qid"].iloc[0] in known:
            good, bad = (features[rows.index[rows["relevance"] == value]] for value in (1, 0))
            gaps.append((good[:, None] - bad[None]).reshape(-1, features.shape[1]))
    gaps = np.concatenate(gaps)
    # Every other pair is turned round: a classifier needs two classes.
    side = np.where(np.arange(len(gaps)) % 2, 1, -1)
    svm = LinearSVC(C=0.1, fit_intercept=False, random_state=seed).fit(gaps * side[:, None], side)
    return features @ svm.coef_[0]


@lru_cache(maxsize=8)
def _oracle(name, settings, seed, model):
    """Quality of a ranker that was fitted to the labels of all training documents."""
    train, test, _ = documents(name, settings, seed)
    lists = train.assign(session=train["qid"], position=train.groupby("qid").cumcount() + 1)
    ranker = rankers(model, settings, [1.0])["Naive"]
    ranker.fit(lists.drop(columns="relevance"), train["relevance"])
    return _quality(ranker.predict(test), test)


def _quality(scores, test):
    truth, qid = test["relevance"], test["qid"]
    values = [ndcg_score(truth, scores, qid=qid, k=k) for k in (1, 3)]
    return dict(
        zip(METRICS, [*values, average_precision_score(truth, scores, qid=qid)], strict=True)
    )
