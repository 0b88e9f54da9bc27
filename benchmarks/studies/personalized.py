"""Users who differ in what they ask and how far they look: the study of Niu et al. (2025).

Simulated on ``make_ltr``: 5,000 training queries, the top 10 of a production ranker trained on
1 % of the labels, an MLP with default settings, nDCG on 1,000 other queries; ``mse`` is the
relevance error of the labels, ``ess`` their effective sample size. ``browsing`` has users of other
click models (section 3.1 of the paper), of whom each stops elsewhere.
"""

import time

import numpy as np
import pandas as pd
from lightgbm import LGBMRanker, LGBMRegressor
from sklearn.frozen import FrozenEstimator

from skultr import UserAwareIPSRanker, aggregate_clicks
from skultr.click_models import DCMModel, UBMModel
from skultr.datasets import make_ltr
from skultr.metrics import err_score, ndcg_score, relevance_mse
from skultr.model_selection import train_test_queries
from skultr.propensity import RegressionEMPropensity
from skultr.rankers import IPSRanker, NaiveRanker, PRSRanker
from skultr.simulation import (
    DCMUser,
    PlackettLucePolicy,
    UBMUser,
    UserPopulation,
    production_scores,
    simulate_clicks,
)

from .._study import Page, measured


class World:
    """A log of a population and the documents of other queries to test on."""

    def __init__(self, seed, n_sessions, users=10, features=50):
        documents = make_ltr(n_queries=6_000, n_features=features, random_state=seed)
        queries = np.unique(documents["qid"])
        training = documents["qid"].isin(queries[:5_000]).to_numpy()
        self.training, self.test = documents[training], documents[~training]
        X, clicks, truth = simulate_clicks(
            self.training,
            n_sessions=n_sessions,
            user=UserPopulation(etas=users),
            gain="linear",
            features=False,
            random_state=seed,
        )
        self.truth = truth
        self.log, self.rate = aggregate_clicks(X.assign(click=clicks), self.training)
        self.relevance = pd.Series(truth.relevance_probability, self.training["doc"].to_numpy())
        place = self.log["user"].to_numpy(), self.log["position"].to_numpy() - 1
        self.propensity = truth.examination_table[place]

    def production(self):
        """Scores of the logging ranker for the test documents."""
        return production_scores(self.training, candidates=self.test, random_state=0)


def rankers(world, *, seed, propensities=None, **settings):
    """Fitted rankers by name, one after the other; ``propensities``: of all users, and of each."""
    settings = {"random_state": seed, **settings}
    # Literal division, as in the paper; the defaults choose another form where clicks are few.
    literal = {"correction": "divide", "clip": None, **settings}
    of_all, of_each = propensities or (world.truth.examination, "column")
    log = world.log
    with_column = log.assign(propensity=world.propensity) if propensities is None else log
    pages = log.drop_duplicates("doc").drop(columns=["session", "user"], errors="ignore")
    pages = pages.assign(impressions=1.0)
    yield "skyline", NaiveRanker(**settings).fit(pages, pages["doc"].map(world.relevance))
    yield "naive", NaiveRanker(**settings).fit(log, world.rate)
    yield "IPS-PBM", IPSRanker(propensity=of_all, **literal).fit(log, world.rate)
    if not isinstance(settings.get("estimator"), LGBMRegressor):
        yield "PRS", PRSRanker(propensity=of_all, **settings).fit(log, world.rate)
    for name, cls in (("straightforward", IPSRanker), ("user-aware", UserAwareIPSRanker)):
        yield name, cls(propensity=of_each, **literal).fit(with_column, world.rate)
    if settings.get("estimator") is None:
        auto = UserAwareIPSRanker(propensity=of_each, **settings)
        yield "auto", auto.fit(with_column, world.rate)


def evaluate(world, score):
    """Metrics of scores of the test documents."""
    relevance, qid = world.test["relevance"].to_numpy(), world.test["qid"].to_numpy()
    cutoffs = [1, 3, 5, 10]
    values = ndcg_score(relevance, score, qid=qid, k=cutoffs)
    ndcg = {f"ndcg@{k}": value for k, value in zip(cutoffs, values, strict=True)}
    return {**ndcg, "err@10": err_score(relevance, score, qid=qid, k=10, max_grade=4)}


def relevance_error(world, ranker):
    """Mean squared error of the labels against P(relevant) over the shown documents."""
    if not hasattr(ranker, "labels_"):
        return np.nan
    labels = ranker.labels_
    return relevance_mse(labels["doc"].map(world.relevance), labels["label"])


def _rows(world, seed, propensities=None, **fitted_with):
    """One row for each method."""
    yield {"method": "production", **evaluate(world, world.production())}
    start = time.process_time()
    for name, ranker in rankers(world, seed=seed, propensities=propensities, **fitted_with):
        yield {
            "method": name,
            **evaluate(world, ranker.predict(world.test)),
            "mse": relevance_error(world, ranker),
            "ess": getattr(ranker, "effective_sample_size_", np.nan),
            "CPU seconds": time.process_time() - start,
        }
        start = time.process_time()


def table(cell, settings, seed):
    return _rows(World(seed, cell["sessions"], cell["users"]), seed)


def sessions(cell, settings, seed):
    return _rows(World(seed, cell["sessions"]), seed)


def estimated(cell, settings, seed):
    world = World(seed, cell["sessions"])
    return _rows(world, seed, _estimated(world, seed))


def trees(cell, settings, seed):
    learner = LEARNERS[cell["learner"]](n_estimators=200, num_leaves=15, verbosity=-1, n_jobs=1)
    return _rows(World(seed, 1_000_000), seed, estimator=learner)


def browsing(cell, settings, seed):
    """Relevance error by impression, its scale free; nDCG@5 of labels, and of trees elsewhere."""
    users, model = BROWSING[cell["users"]]
    documents = make_ltr(n_queries=600, n_features=20, random_state=seed)
    train, test = train_test_queries(documents, train_size=300, random_state=seed)
    scores, rng, logs = (
        production_scores(train, random_state=seed),
        np.random.default_rng(seed),
        [],
    )
    for number, user in enumerate(users):
        weights = rng.random(300) * (rng.random(300) < 0.5)
        X, clicks, truth = simulate_clicks(
            train,
            n_sessions=(settings.sessions or 30_000) // len(users),
            scores=scores,
            policy=PlackettLucePolicy(temperature=0.3),
            user=user,
            query_weights=weights / weights.sum(),
            gain="linear",
            random_state=10 * seed + number,
        )
        session = X["session"] + number * 10_000_000
        logs.append(X.assign(click=clicks, user=number, session=session))
    log = pd.concat(logs, ignore_index=True)
    relevance = pd.Series(truth.relevance_probability, train["doc"].to_numpy())
    for method, propensity in {
        "common curve": RegressionEMPropensity(relevance="embedding"),
        "curve per user": RegressionEMPropensity(relevance="embedding", user="user"),
        "common model": model,
        "model per user": dict.fromkeys(range(len(users)), model),
    }.items():
        trees = LGBMRegressor(n_estimators=100, num_leaves=15, verbosity=-1, n_jobs=1)
        ranker = UserAwareIPSRanker(propensity=propensity, estimator=trees, random_state=seed)
        table = ranker.fit(log, "click").labels_
        label, target = table["label"], table["doc"].map(relevance)
        shown, qid = table["impressions"], table["qid"]
        scale = (shown * label) @ target / ((shown * label) @ label)
        yield {
            "method": method,
            "mse": np.average((scale * label - target) ** 2, weights=shown),
            "label ndcg@5": ndcg_score(target, label, qid=qid, k=5, gain="linear"),
            "ndcg@5": ndcg_score(test["relevance"], ranker.predict(test), qid=test["qid"], k=5),
        }


def _estimated(world, seed):
    """A global curve and personal curves, both estimated from the log."""
    of_all = RegressionEMPropensity(random_state=seed).fit(world.log, world.rate)
    of_each = RegressionEMPropensity(user="user", random_state=seed).fit(world.log, world.rate)
    return FrozenEstimator(of_all), FrozenEstimator(of_each)


#: Users by how they browse, from those who go on to those who stop, and their click model.
BROWSING = {
    "DCM": ([DCMUser(0.9), DCMUser(0.5), DCMUser(0.1)], DCMModel()),
    "UBM": ([UBMUser(0.3), UBMUser(1.0), UBMUser(2.5)], UBMModel()),
}
LEARNERS = {"ranker": LGBMRanker, "regressor": LGBMRegressor}
METRICS = ("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "err@10", "mse", "ess", "CPU seconds")
ROWS = {"metrics": METRICS, "by": ("method",), "level": None}
PAGE = Page(
    "studies/personalized",
    "Users who differ in what they ask and how far they look",
    (
        measured(
            table,
            "Examination known (their tables 1 and 2)",
            over={"sessions": (1_000_000,), "users": (10, 5, 20)},
            **ROWS,
        ),
        measured(
            sessions,
            "By sessions (their figure 4)",
            over={"sessions": (10_000, 30_000, 100_000, 300_000, 3_000_000)},
            **ROWS,
        ),
        measured(
            estimated,
            "Examination by (personalised) regression-EM (their table 3)",
            over={"sessions": (150_000, 1_000_000)},
            **ROWS,
        ),
        measured(
            browsing,
            "Users of other click models (their section 3.1)",
            ("mse", "label ndcg@5", "ndcg@5"),
            over={"users": BROWSING},
            by=("method",),
            level=None,
        ),
        measured(trees, "LightGBM as the learner", over={"learner": LEARNERS}, **ROWS),
    ),
)
