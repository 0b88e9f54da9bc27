"""Users who differ in what they ask and how far they look: logs, estimators, measurements."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from skultr import UserAwareIPSRanker, aggregate_clicks
from skultr.metrics import err_score, ndcg_score, relevance_mse
from skultr.propensity import (
    ContextualPropensity,
    RegressionEMPropensity,
    UserClusters,
    relevance_labels,
)
from skultr.rankers import IPSRanker, NaiveRanker, PRSRanker
from skultr.simulation import (
    PlackettLucePolicy,
    UniformPolicy,
    UserPopulation,
    production_scores,
    relevance_probability,
    simulate_clicks,
)

from .._documents import split_documents

CUTOFFS = (1, 3, 5, 10)
#: The network of Ai et al. (2018), which the paper takes, and a small one.
NETWORKS = {"full": (512, 256, 128), "quick": (64, 32)}
#: As published: clicks over propensities, no bound on the weights, equal weights of queries.
LITERAL = {"correction": "divide", "clip": None, "traffic_exponent": 0.0}
#: Features of the made documents.
N_FEATURES = {"full": 50, "quick": 20}
#: How ten kinds of users look at a page: seven power laws, three who like its middle.
HABITS = np.array(
    [
        *(np.arange(1, 11.0) ** -eta for eta in (2.5, 1.5, 1.0, 0.7, 0.4, 0.2, 0.0)),
        (0.6, 1.0, 0.5, 0.3, 0.2, 0.2, 0.1, 0.1, 0.1, 0.1),
        (0.6, 0.7, 0.8, 1.0, 0.6, 0.4, 0.3, 0.2, 0.2, 0.1),
        (1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.5, 0.3, 0.2, 0.1),
    ]
)


@dataclass(frozen=True)
class World:
    """A log of a population of users, by distinct list, and documents of other queries.

    ``own`` is P(examined) of each row of the log for its user, ``of_all`` the mean over all
    users; ``relevance`` is P(relevant) by document.
    """

    train: pd.DataFrame
    test: pd.DataFrame
    population: UserPopulation
    log: pd.DataFrame
    rate: np.ndarray
    own: np.ndarray
    of_all: np.ndarray
    relevance: pd.Series
    max_grade: float
    production: np.ndarray
    seed: int


def make_world(settings, n_sessions, seed, n_users=10):
    """Section 4.1 of the paper: top 10 of a ranker that saw 1 % of the labels, ε = 0.1."""
    size = settings.size(quick="quick", full="full")
    train, test = split_documents(
        settings,
        settings.size(quick=1_000, full=19_944),
        settings.size(quick=1_000, full=6_983),
        seed=seed,
        n_features=N_FEATURES[size],
    )
    max_grade = float(max(train["relevance"].max(), test["relevance"].max()))
    population = UserPopulation(n_users)
    X, clicks, truth = simulate_clicks(
        train,
        n_sessions=n_sessions,
        scores=production_scores(train, random_state=seed),
        user=population,
        gain="linear",
        max_grade=max_grade,
        features=False,
        random_state=seed,
    )
    log, rate = aggregate_clicks(X.assign(click=clicks), train)
    place = log["position"].to_numpy() - 1
    return World(
        train=train,
        test=test,
        population=population,
        log=log,
        rate=rate,
        own=truth.examination_table[log["user"].to_numpy(), place],
        of_all=truth.examination[place],
        relevance=pd.Series(truth.relevance_probability, train["doc"].to_numpy()),
        max_grade=max_grade,
        production=production_scores(train, candidates=test, random_state=seed),
        seed=seed,
    )


# --------------------------------------------------------------------------------------
# Examination: known or estimated; one number for each row of the log
# --------------------------------------------------------------------------------------
def known(world):
    """The truth: what each estimator divides by."""
    of_each = ("straightforward", "user-aware")
    return {**dict.fromkeys(("IPS-PBM", "PRS"), world.of_all), **dict.fromkeys(of_each, world.own)}


def estimated(world, n_interventions):
    """Regression-EM, one curve and one for each user; CPBM from a log of random orders.

    As in the paper, the intervention log of CPBM comes on top, and its context is the user.
    """
    of_all = RegressionEMPropensity(random_state=world.seed).fit(world.log, world.rate)
    of_each = RegressionEMPropensity(user="user", random_state=world.seed)
    of_each = of_each.fit(world.log, world.rate).predict(world.log)
    of_all = of_all.predict(world.log)
    found = {"IPS-PBM": of_all, "PRS": of_all, "CPBM": _contextual(world, n_interventions)}
    found |= {"straightforward": of_each, "user-aware": of_each}
    return {name: np.clip(each, 1e-6, 1.0) for name, each in found.items()}


def _contextual(world, n_interventions):
    X, clicks, _ = simulate_clicks(
        world.train,
        n_sessions=n_interventions,
        scores=np.zeros(len(world.train)),
        policy=UniformPolicy(),
        user=world.population,
        gain="linear",
        max_grade=world.max_grade,
        features=False,
        random_state=world.seed + 1_000,
    )
    log, rate = aggregate_clicks(X.assign(click=clicks))
    log, own = _with_one_hot(log), _with_one_hot(world.log)
    names = [name for name in log if name.startswith("is_user_")]
    propensity = ContextualPropensity(context=names, random_state=world.seed)
    return propensity.fit(log.drop(columns="user"), rate).predict(own.drop(columns="user"))


def _with_one_hot(log):
    users = pd.get_dummies(log["user"], prefix="is_user", dtype=np.float32)
    return pd.concat([log, users], axis=1)


# --------------------------------------------------------------------------------------
# Rankers
# --------------------------------------------------------------------------------------
def fitted(world, propensities, hidden_layer_sizes, methods):
    """Name and fitted ranker, one after the other."""
    network = {
        "hidden_layer_sizes": hidden_layer_sizes,
        "batch_size": 64,  # of the committed rows
        "random_state": world.seed,
    }
    literal = {**LITERAL, **network}
    simple = {"traffic_exponent": 0.0, **network}
    rankers = {
        "ideal": lambda: _ideal(world, simple),
        "naive": lambda: NaiveRanker(**simple).fit(world.log, world.rate),
        "IPS-PBM": lambda: _fit(IPSRanker(**literal), "IPS-PBM"),
        "PRS": lambda: _fit(PRSRanker(**simple), "PRS"),
        "CPBM": lambda: _fit(IPSRanker(**literal), "CPBM"),
        "straightforward": lambda: _fit(IPSRanker(**literal), "straightforward"),
        "user-aware": lambda: _fit(UserAwareIPSRanker(**literal), "user-aware"),
        "user-aware, offset": lambda: _fit(
            UserAwareIPSRanker(**{**literal, "correction": "offset"}), "user-aware"
        ),
        "user-aware, defaults": lambda: _fit(UserAwareIPSRanker(**network), "user-aware"),
    }

    def _fit(ranker, source):
        return ranker.fit(world.log.assign(propensity=propensities[source]), world.rate)

    for name in methods:
        yield name, rankers[name]()


def _ideal(world, settings):
    """The softmax loss of equation 13, on the labels of the documents that were shown."""
    pages = world.log.drop_duplicates("doc").drop(columns=["session", "user"], errors="ignore")
    pages = pages.assign(impressions=1.0)
    grade = pages["doc"].map(world.train.set_index("doc")["relevance"])
    return NaiveRanker(**settings).fit(pages, grade / world.max_grade)


# --------------------------------------------------------------------------------------
# Measurements
# --------------------------------------------------------------------------------------
def quality(world, scores):
    """NDCG and ERR at 1, 3, 5, 10 on the test queries."""
    relevance, qid = world.test["relevance"], world.test["qid"]
    ndcg = ndcg_score(relevance, scores, qid=qid, k=list(CUTOFFS))
    err = err_score(relevance, scores, qid=qid, k=list(CUTOFFS), max_grade=world.max_grade)
    named = {f"nDCG@{k}": value for k, value in zip(CUTOFFS, ndcg, strict=True)}
    return named | {f"ERR@{k}": value for k, value in zip(CUTOFFS, err, strict=True)}


def labels_of(world, method, propensity):
    """Relevance of the documents as an estimator with these propensities sees it."""
    log = world.log.assign(propensity=propensity)
    return relevance_labels(log, world.rate, user_aware=method == "user-aware")


def relevance_error(world, labels):
    """Mean squared error against P(relevant), over the documents that were shown."""
    return relevance_mse(labels["doc"].map(world.relevance), labels["label"])


def confusion(world, labels):
    """Rows of the confusion matrix: shares of the estimated grades, by true grade."""
    n_grades = int(world.max_grade) + 1
    levels = relevance_probability(np.arange(n_grades), gain="linear", max_grade=world.max_grade)
    middle = (levels[1:] + levels[:-1]) / 2
    found = np.searchsorted(middle, labels["label"])
    true = np.searchsorted(middle, labels["doc"].map(world.relevance))
    counts = np.zeros((n_grades, n_grades))
    np.add.at(counts, (true, found), 1)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return [
        {"true grade": grade} | {f"as {j}": share for j, share in enumerate(row)}
        for grade, row in enumerate(shares)
    ]


# --------------------------------------------------------------------------------------
# Clusters of users
# --------------------------------------------------------------------------------------
def habits_found(settings, n_sessions, n_users, seed):
    """Mean examination of each of ten clusters of users, and how pure the clusters are.

    Production varies its order a little, so that the same documents move between positions.
    """
    n_queries = settings.size(quick=300, full=2_000)
    documents, _ = split_documents(settings, n_queries, 10, seed=seed, n_features=20)
    habit = np.random.default_rng(seed).integers(len(HABITS), size=n_users)
    X, clicks, _ = simulate_clicks(
        documents,
        n_sessions=n_sessions,
        policy=PlackettLucePolicy(temperature=0.1),
        user=UserPopulation(examination=HABITS[habit], decay=1.0),
        gain="linear",
        max_grade=float(documents["relevance"].max()),
        features=False,
        random_state=seed,
    )
    curve_of_each = RegressionEMPropensity(user="user", relevance="embedding")
    clusters = UserClusters(10, propensity=curve_of_each, random_state=seed).fit(X, clicks)
    table = pd.crosstab(clusters.labels_, habit[clusters.labels_.index])
    purity = table.max(axis=1) / table.sum(axis=1)
    curves = clusters.cluster_curves_ / clusters.cluster_curves_[1].mean()
    return [
        {"cluster": f"c{number + 1}", "same habit": purity[number]}
        | {f"p{place}": value for place, value in curve.items()}
        for number, curve in curves.iterrows()
    ]
