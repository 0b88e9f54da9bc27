"""Users who differ in what they ask and how far they look: the study of Niu et al. (2025).

Simulated on ``make_ltr``: 5,000 training queries, the top 10 of a production ranker trained on
1 % of the labels, an MLP with default settings, nDCG on 1,000 other queries. Parts:

- ``table``: 1,000,000 sessions of ten users, examination known (their Table 1), with paired t
  tests against the user-aware estimator, and the relevance error of the labels;
- ``sessions``: nDCG@5 from 10,000 to 3,000,000 sessions (their Figure 4);
- ``clusters``: 5, 10 and 20 users (their Table 2);
- ``estimated``: examination estimated by (personalised) regression-EM (their Table 3);
- ``trees``: LightGBM as the learner.

    python -m benchmarks.studies.personalized [part ...] [--seeds 5]
"""

import argparse
import time
import warnings

import numpy as np
import pandas as pd
from lightgbm import LGBMRanker, LGBMRegressor
from scipy.stats import ttest_rel

from skultr import UserAwareIPSRanker, aggregate_clicks
from skultr.datasets import make_ltr
from skultr.metrics import err_score, ndcg_score
from skultr.propensity import RegressionEMPropensity
from skultr.rankers import IPSRanker, NaiveRanker, PRSRanker
from skultr.simulation import UserPopulation, simulate_clicks

METHODS = (
    "production",
    "skyline",
    "naive",
    "IPS-PBM",
    "PRS",
    "straightforward",
    "user-aware",
    "auto",
)


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
        from skultr.simulation import production_scores

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
    return float(((labels["label"] - labels["doc"].map(world.relevance)) ** 2).mean())


def study(seeds, n_sessions, *, users=10, estimated=False, **settings):
    """One row a (seed, method)."""
    rows = []
    for seed in range(seeds):
        world = World(seed, n_sessions, users)
        rows.append({"seed": seed, "method": "production", **evaluate(world, world.production())})
        propensities = _estimated(world, seed) if estimated else None
        start = time.perf_counter()
        for name, ranker in rankers(world, seed=seed, propensities=propensities, **settings):
            seconds = time.perf_counter() - start
            rows.append(
                {
                    "seed": seed,
                    "method": name,
                    **evaluate(world, ranker.predict(world.test)),
                    "mse": relevance_error(world, ranker),
                    "ess": getattr(ranker, "effective_sample_size_", np.nan),
                    "seconds": seconds,
                }
            )
            start = time.perf_counter()
        print(f"# seed {seed} done", flush=True)
    return pd.DataFrame(rows)


def _estimated(world, seed):
    """A global curve and personal curves, both estimated from the log."""
    from sklearn.frozen import FrozenEstimator

    of_all = RegressionEMPropensity(random_state=seed).fit(world.log, world.rate)
    of_each = RegressionEMPropensity(user="user", random_state=seed).fit(world.log, world.rate)
    table = of_each.examination_["examination"].unstack()
    ratios = table.div(table[1], axis=0).to_numpy()
    error = np.abs(ratios - world.truth.examination_table).mean()
    print(f"# mean error of the examination ratios of users: {error:.4f}")
    return FrozenEstimator(of_all), FrozenEstimator(of_each)


def report(table, title):
    """Means and deviations over seeds, and paired tests against the user-aware estimator."""
    print(f"\n{title}")
    best = table[table["method"] == "user-aware"].set_index("seed")
    print(
        f"{'':16}{'nDCG@1':>9}{'nDCG@3':>9}{'nDCG@5':>9}{'sd':>8}{'nDCG@10':>9}{'ERR@10':>9}"
        f"{'MSE':>9}{'ESS':>10}{'s':>7}   p (nDCG@5)"
    )
    for method in METHODS:
        part = table[table["method"] == method].set_index("seed")
        if part.empty:
            continue
        mean = part.mean(numeric_only=True)
        p = ""
        if method != "user-aware" and len(part) > 1:
            p = f"{ttest_rel(part['ndcg@5'], best['ndcg@5'].loc[part.index]).pvalue:.4f}"
        print(
            f"{method:16}{mean['ndcg@1']:9.4f}{mean['ndcg@3']:9.4f}{mean['ndcg@5']:9.4f}"
            f"{part['ndcg@5'].std():8.4f}{mean['ndcg@10']:9.4f}{mean['err@10']:9.4f}"
            f"{mean.get('mse', np.nan):9.4f}{mean.get('ess', np.nan):10.0f}"
            f"{mean.get('seconds', np.nan):7.1f}   {p}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = ("table", "sessions", "clusters", "estimated", "trees")
    parser.add_argument("parts", nargs="*", default=[], help=", ".join(known))
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for part in arguments.parts or known:
        if part == "table":
            report(study(arguments.seeds, 1_000_000), "1,000,000 sessions, ten users, known")
        elif part == "sessions":
            for n_sessions in (10_000, 30_000, 100_000, 300_000, 3_000_000):
                report(study(arguments.seeds, n_sessions), f"{n_sessions:,} sessions")
        elif part == "clusters":
            for users in (5, 20):
                report(study(arguments.seeds, 1_000_000, users=users), f"{users} users")
        elif part == "estimated":
            for n_sessions in (150_000, 1_000_000):
                table = study(arguments.seeds, n_sessions, estimated=True)
                report(table, f"{n_sessions:,} sessions, examination estimated")
        else:
            for learner in (LGBMRanker, LGBMRegressor):
                trees = learner(n_estimators=200, num_leaves=15, verbosity=-1, n_jobs=1)
                table = study(arguments.seeds, 1_000_000, estimator=trees)
                report(table, f"1,000,000 sessions, {learner.__name__}")


if __name__ == "__main__":
    main()
