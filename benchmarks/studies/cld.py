"""Documents that were never shown: who gains by the candidates, and in which world?

    python -m benchmarks.studies.cld worlds [--seeds 5] [--strengths 0 0.5 1 2] [--forms]
    python -m benchmarks.studies.cld cutoffs | noise | misspecified | etas | sessions | gamma
    python -m benchmarks.studies.cld real [--data /folder/of/shared/data]
    python -m benchmarks.studies.cld click_noise --seeds 40 [--impressions 20 200]
    python -m benchmarks.studies.cld ensembles [--queries 400] [--seeds 4]
    python -m benchmarks.studies.cld speed

Documents of ``make_ltr`` (100 features), grades 3 and 4 relevant; the top 5 of a production ranker
that knows 1 % of the labels; 10⁵ sessions of position-based users, 10 % click noise. Judged on
queries that nobody asked. At strength 0 the ranker went by the features alone (the paper's world:
true gamma 0), else also by a signal that no feature shows, of correlation 0.5 with relevance.
Linear rankers are compared with linear ones and networks with networks, on the same logs.
"""

import argparse
import os
import resource
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import ttest_1samp
from sklearn.linear_model import Ridge

from skultr import CLDRanker, aggregate_clicks
from skultr.datasets import make_ltr
from skultr.metrics import average_precision_score, ndcg_score
from skultr.rankers import HeckmanRanker, IPSRanker, NaiveRanker, RankAggRanker
from skultr.simulation import (
    PositionBasedUser,
    hidden_signal_scores,
    production_scores,
    simulate_clicks,
)

N_QUERIES = 1000
MEASURES = ("nDCG@1", "nDCG@3", "MAP")
LINEAR = {"hidden_layer_sizes": (), "random_state": 0}
NEURAL = {"random_state": 0}
#: The published models by rows, fitted by Newton's method and by least squares.
ROWS = {"loss": "pointwise", "hidden_layer_sizes": ()}
HECKMAN = {"hidden_layer_sizes": ()}


def world(
    seed,
    strength=0.0,
    k=5,
    eta=1.0,
    n_sessions=100_000,
    noise=0.1,
    source=None,
    n_queries=N_QUERIES,
):
    """An aggregated log with its candidates, click rates, the test documents, the curve."""
    if source is None:
        documents, fraction = make_ltr(2 * n_queries, random_state=seed), 0.01
        asked = documents["qid"] < n_queries
    else:
        documents, fraction = source, 0.05
        asked = np.random.default_rng(seed).permutation(source["qid"].max() + 1) % 2 == 0
        asked = asked[source["qid"]]
    training, test = (documents[rows].reset_index(drop=True) for rows in (asked, ~asked))
    scores = hidden_signal_scores(
        production_scores(training, fraction=fraction, random_state=seed),
        training["relevance"],
        strength=strength,
        random_state=seed,
    )
    X, clicks, truth = simulate_clicks(
        training,
        n_sessions=n_sessions,
        n_positions=k,
        scores=scores,
        user=PositionBasedUser(float(eta)),
        gain="binary",
        max_grade=documents["relevance"].max(),
        noise=noise,
        features=False,
        random_state=seed,
    )
    log, rate = aggregate_clicks(X.assign(click=clicks), training)
    log, rate = with_candidates(log, rate, training)
    test["relevance"] = (test["relevance"] > documents["relevance"].max() / 2).astype(int)
    return log, rate, test, truth.examination


def rankers(curve, *, networks=True, forms=False):
    """Rankers by class and name."""
    ips = {"propensity": curve}
    literal = {**ips, "correction": "divide", "clip": None}

    def members(**settings):
        return [("ips", IPSRanker(**literal, **settings)), ("heckman", HeckmanRanker(**settings))]

    yield "linear", "naive", NaiveRanker(**LINEAR)
    yield "linear", "IPS", IPSRanker(**literal, **LINEAR)
    yield "linear", "IPS, least squares", IPSRanker(**ips, estimator=_ridge())
    yield "linear", "IPS, pairs", IPSRanker(**ips, loss="pairwise", **LINEAR)
    yield "linear", "Heckman", HeckmanRanker(**HECKMAN)
    yield "linear", "Heckman, debiased", HeckmanRanker(debias=True, **ips, **HECKMAN)
    yield "linear", "RankAgg", RankAggRanker(members(**LINEAR))
    yield "linear", "CLD by rows", CLDRanker(**ips, **ROWS)
    yield "linear", "CLD-pair", CLDRanker(**ips, loss="pairwise", **LINEAR)
    yield "linear", "CLD by rows, gamma 0", CLDRanker(**ips, gamma=0.0, **ROWS)
    if forms:
        for form in ("preference", "published"):
            pair = {"loss": "pairwise", "variant": form}
            yield "linear", f"CLD-pair, {form}", CLDRanker(**ips, **pair, **LINEAR)
        yield "linear", "CLD, equation 9", CLDRanker(**ips, variant="published", **ROWS)
        yield "linear", "CLD, gamma estimated", CLDRanker(**ips, gamma="estimate", **ROWS)
    if networks:
        yield "network", "naive", NaiveRanker(**NEURAL)
        yield "network", "IPS", IPSRanker(**literal, **NEURAL)
        yield "network", "IPS, least squares", IPSRanker(**ips, loss="mse", **NEURAL)
        yield "network", "IPS, pairs", IPSRanker(**ips, loss="pairwise", **NEURAL)
        yield "network", "RankAgg", RankAggRanker(members(**NEURAL))
        yield "network", "Heckman", HeckmanRanker(**NEURAL)
        yield "network", "Heckman, debiased", HeckmanRanker(debias=True, **ips, **NEURAL)
        yield "network", "CLD", CLDRanker(**ips, **NEURAL)
        yield "network", "CLD, gamma 0", CLDRanker(**ips, gamma=0.0, **NEURAL)
        yield "network", "CLD by rows", CLDRanker(**ips, loss="pointwise", **NEURAL)
        yield "network", "CLD-pair", CLDRanker(**ips, loss="pairwise", **NEURAL)
        yield (
            "network",
            "CLD-pair, gamma 0",
            CLDRanker(**ips, loss="pairwise", gamma=0.0, **NEURAL),
        )


def _ridge():
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    squash = FunctionTransformer(lambda X: np.sign(X) * np.log1p(np.abs(X)))
    return make_pipeline(squash, StandardScaler(), Ridge(alpha=10.0))


def quality(ranker, test):
    scores = ranker.predict(test)
    relevant = test["relevance"]
    values = {f"nDCG@{k}": ndcg_score(relevant, scores, qid=test["qid"], k=k) for k in (1, 3)}
    values["MAP"] = average_precision_score(relevant, scores, qid=test["qid"])
    return values


def run(args, settings, told=None, **which):
    """One row a seed, setting and ranker; ``told`` is the curve that rankers are given."""
    rows = []
    for name, setting in settings.items():
        for seed in _seeds(args):
            log, rate, test, curve = world(seed, **setting)
            given = curve if told is None else told[name]
            for kind, ranker_name, ranker in rankers(given[: len(curve)], **which):
                start = time.perf_counter()
                ranker.fit(log, rate)
                row = {"world": name, "class": kind, "ranker": ranker_name, "seed": seed}
                row["strength"] = setting.get("strength", 0.0)
                row["seconds"] = time.perf_counter() - start
                rows.append({**row, **quality(ranker, test)})
        report(pd.DataFrame(rows).query("world == @name"), name)
    runs = pd.DataFrame(rows)
    if args.save:
        new = not Path(args.save).exists()
        runs.assign(study=args.study).to_csv(args.save, mode="a", header=new, index=False)
    return runs


def _seeds(args):
    """Not those that the defaults were chosen on (0 to 3, 100 and 101)."""
    return range(args.first_seed, args.first_seed + args.seeds)


def report(runs, name):
    """Means, and the paired difference from IPS of the same class with its p-value."""
    keys = ["class", "ranker"]
    table = runs.groupby(keys, sort=False)[[*MEASURES, "seconds"]].mean()
    for measure in MEASURES:
        wide = runs.pivot_table(index=["class", "seed"], columns="ranker", values=measure)
        for kind, ranker in table.index:
            gap = wide.loc[kind][ranker] - wide.loc[kind]["IPS"]
            table.loc[(kind, ranker), f"{measure} over IPS"] = gap.mean()
            table.loc[(kind, ranker), f"p {measure}"] = paired_p(gap)
    print(f"\n{name}\n{table.round(3).to_string()}", flush=True)


def paired_p(gap):
    """Two-sided p-value of a paired t-test."""
    gap = np.asarray(gap)
    return ttest_1samp(gap, 0.0).pvalue if len(gap) > 1 and np.ptp(gap) > 0 else np.nan


def pivot(runs, kinds=("linear",)):
    part = runs[runs["class"].isin(kinds)]
    print(
        part.pivot_table(index=["class", "ranker"], columns="world", values="nDCG@3", sort=False)
        .round(3)
        .to_string()
    )


def worlds(args):
    settings = {
        f"strength {strength}, eta {eta}": {"strength": strength, "eta": eta}
        for strength in args.strengths
        for eta in args.etas
    }
    run(args, settings, forms=args.forms, networks=not args.linear)


def cutoffs(args):
    for strength in args.strengths:
        settings = {f"top {k:2d}": {"k": k, "strength": strength} for k in (2, 3, 5, 10, 15, 20)}
        print(f"strength {strength}")
        pivot(run(args, settings, networks=not args.linear), ("linear", "network"))


def noise(args):
    for strength in args.strengths:
        settings = {f"noise {n}": {"noise": n, "strength": strength} for n in (0, 0.1, 0.3, 0.5)}
        print(f"strength {strength}")
        pivot(run(args, settings, networks=False))


def misspecified(args):
    assumed = (0.0, 0.5, 1.0, 1.5, 2.0)
    for strength in args.strengths:
        settings = {f"told eta {eta}": {"strength": strength} for eta in assumed}
        told = {f"told eta {eta}": np.arange(1, 6) ** -eta for eta in assumed}
        print(f"strength {strength}, true eta 1")
        pivot(run(args, settings, told, networks=False))


def etas(args):
    for strength in args.strengths:
        settings = {
            f"eta {eta}": {"eta": eta, "strength": strength} for eta in (0, 0.5, 1.0, 1.5, 2.0)
        }
        print(f"strength {strength}")
        pivot(run(args, settings, networks=False))


def sessions(args):
    for strength in args.strengths:
        settings = {
            f"{n:7d}": {"n_sessions": n, "strength": strength} for n in (3_000, 10_000, 100_000)
        }
        print(f"strength {strength}")
        pivot(run(args, settings, networks=False))


def gamma(args):
    """nDCG@3 by the gamma that was set, for both losses."""
    rows = []
    for strength in args.strengths:
        for seed in _seeds(args):
            log, rate, test, curve = world(seed, strength)
            for value in (0.0, 0.1, 0.2, 0.3, 0.5):
                for loss in ("listwise", "pointwise", "pairwise"):
                    ranker = CLDRanker(propensity=curve, gamma=value, loss=loss, random_state=0)
                    row = {"strength": strength, "loss": loss, "gamma": value}
                    rows.append({**row, **quality(ranker.fit(log, rate), test)})
    runs = pd.DataFrame(rows)
    print(runs.pivot_table(index=["loss", "strength"], columns="gamma", values="nDCG@3").round(3))


def real(args):
    """Documents of MSLR-WEB and MQ2008, half of the queries asked; a log is still simulated."""
    for name in ("mslr_sample", "mq2008"):
        path = Path(args.data or "no folder") / f"{name}.parquet"
        if not path.exists():
            print(f"{name}: {path} is not there; give --data or set SKULTR_DATA")
            continue
        documents = pd.read_parquet(path).drop(columns="split")
        documents = documents.rename(columns={"label": "relevance"})
        documents["qid"] = pd.factorize(documents["qid"])[0]
        documents["doc"] = np.arange(len(documents))
        settings = {
            f"{name}, strength {strength}, top {k}": {
                "source": documents,
                "strength": strength,
                "k": k,
            }
            for strength in args.strengths
            for k in (2, 5, 10)
        }
        pivot(run(args, settings, networks=not args.linear), ("linear", "network"))


#: True coefficients of relevance, in units of its error, and of selection.
BETA, OMEGA, UNIT = np.array([1, -0.5, 0.3, 0]), np.array([0.8, 0.2, -0.4, 0.5]), 0.08


def selection_world(impressions, rho, seed, n_queries=500, n_documents=20):
    """A log that follows the model, selection by a threshold per document, at random positions."""
    rng = np.random.default_rng(seed)
    n = n_queries * n_documents
    X = rng.normal(size=(n, 4))
    error = rng.normal(size=n)
    other = rho * error + np.sqrt(1 - rho**2) * rng.normal(size=n)
    relevance = np.clip(0.5 + UNIT * (X @ BETA + error), 0, 1)
    shown = X @ OMEGA - 0.8 + other > 0
    log = pd.DataFrame(X, columns=list("abcd"))
    log["qid"], log["doc"] = np.repeat(np.arange(n_queries), n_documents), np.arange(n)
    log["impressions"] = impressions
    order = pd.Series(np.where(shown, rng.random(n), np.nan))
    log["position"] = order.groupby(log["qid"]).rank()
    chance = relevance / log["position"].fillna(1)
    return log, np.where(shown, rng.binomial(impressions, chance) / impressions, 0.0)


def click_noise(args):
    """RMSE of the coefficients, and whether the interval of gamma covers or a warning says no.

    "one tau" is the likelihood with one scale for all rows, that of what least squares leaves.
    """
    for impressions in args.impressions:
        for rho in (0.0, 0.5):
            rows = [_one_log(impressions, rho, seed) for seed in _seeds(args)]
            table = pd.DataFrame(rows)
            errors = np.sqrt(table.filter(like="squared").mean()).round(3)
            print(f"\n{impressions} impressions a row, rho {rho}: RMSE of the coefficients")
            print(errors.rename(lambda name: name.removeprefix("squared ")).to_string())
            print(table.filter(regex="^(?!squared)").mean().round(3).to_string(), flush=True)


def _one_log(impressions, rho, seed):
    log, rate = selection_world(impressions, rho, seed)
    known = {"propensity": 1 / np.arange(1, int(log["position"].max()) + 1), **ROWS}
    known.update(scale_features=False, alpha=0.0)

    def squared(**settings):
        ranker = CLDRanker(**known, **settings).fit(log, rate)
        return ranker, np.mean((ranker.coef_ / UNIT - BETA) ** 2)

    label = (rate * log["position"])[log["position"].notna()]
    design = np.column_stack([log.loc[label.index, list("abcd")], np.ones(len(label))])
    left = np.linalg.lstsq(design, label, rcond=None)[1][0]
    row = {}
    for name, gamma in {"gamma 0": 0.0, "gamma .2 (default)": 0.2, "gamma = rho": rho}.items():
        one = squared(gamma=gamma, scale=np.sqrt(left / len(label)))[1]
        row[f"squared {name}, one tau"] = one
        row[f"squared {name}"] = squared(gamma=gamma)[1]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ranker, row["squared estimate"] = squared(gamma="estimate")
    low, high = ranker.gamma_interval_
    row["covers"] = low <= rho <= high
    row["warned"] = any("does not determine" in str(each.message) for each in caught)
    row["covers or warned"] = row["covers"] or row["warned"]
    row["best gamma"] = ranker.gamma_profile_["log_likelihood"].idxmax()
    return row


def ensembles(args):
    """nDCG@3 of networks, and of the mean of the standardised scores of three."""
    rows = []
    for strength in args.strengths:
        for seed in _seeds(args):
            log, rate, test, curve = world(
                seed, strength, n_sessions=100 * args.queries, n_queries=args.queries
            )
            scores = {}
            for name, ranker in _members_of_ensembles(curve):
                values = pd.Series(ranker.fit(log, rate).predict(test)).groupby(test["qid"])
                gap = values.obj - values.transform("mean")
                scores[name] = gap / values.transform("std").clip(lower=1e-12)
            for names in [(name,) for name in scores] + _ENSEMBLES:
                mean = np.mean([scores[name] for name in names], axis=0)
                value = ndcg_score(test["relevance"], mean, qid=test["qid"], k=3)
                row = {"strength": strength, "seed": seed, "ranker": " + ".join(names)}
                rows.append({**row, "nDCG@3": value})
    runs = pd.DataFrame(rows)
    wide = runs.pivot_table(
        index=["strength", "seed"], columns="ranker", values="nDCG@3", sort=False
    )
    for strength, part in wide.groupby("strength"):
        gap = part.sub(part["CLD"], axis=0)
        table = pd.DataFrame({"nDCG@3": part.mean(), "over CLD": gap.mean()})
        table["p"] = {name: paired_p(gap[name]) for name in gap}
        print(f"\nstrength {strength}, {args.queries} queries\n{table.round(3).to_string()}")


#: Networks whose scores ``ensembles`` averages; the first two repeat one ranker.
_ENSEMBLES = [
    ("IPS", "IPS, seed 1", "IPS, seed 2"),
    ("CLD", "CLD, seed 1", "CLD, seed 2"),
    ("IPS", "CLD-pair", "Heckman, debiased"),
    ("IPS", "CLD-pair", "CLD"),
    ("CLD", "CLD-pair", "Heckman, debiased"),
]


def _members_of_ensembles(curve):
    ips = {"propensity": curve}
    for seed in range(3):
        suffix = f", seed {seed}" if seed else ""
        literal = {"correction": "divide", "clip": None, "random_state": seed}
        yield f"IPS{suffix}", IPSRanker(**ips, **literal)
        yield f"CLD{suffix}", CLDRanker(**ips, random_state=seed)
    yield "CLD-pair", CLDRanker(**ips, loss="pairwise", **NEURAL)
    yield "Heckman, debiased", HeckmanRanker(debias=True, **ips, **NEURAL)


def speed(args):
    """Seconds and memory of one fit on 5,000 queries of 20 candidates, and on 100 of 1,000."""
    for n_queries, n_documents in ((5_000, 20), (100, 1_000)):
        documents = make_ltr(n_queries, n_documents, random_state=0)
        X, clicks, truth = simulate_clicks(
            documents,
            n_positions=5,
            user=PositionBasedUser(1.0),
            gain="binary",
            candidates=n_documents == 20,
            features=False,
            random_state=0,
        )
        start = time.perf_counter()
        log, rate = aggregate_clicks(X.assign(click=clicks), documents)
        print(
            f"{n_queries} queries of {n_documents}: aggregated in "
            f"{time.perf_counter() - start:.1f} s"
        )
        del X
        if n_documents != 20:
            log, rate = with_candidates(log, rate, documents)
        for name, settings in {
            "listwise": {},
            "pairwise": {"loss": "pairwise"},
            "by rows, linear": ROWS,
            "by rows, linear, gamma estimated": {"gamma": "estimate", **ROWS},
        }.items():
            ranker = CLDRanker(propensity=truth.examination, random_state=0, **settings)
            start = time.perf_counter()
            ranker.fit(log, rate)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(
                f"  {name}: {time.perf_counter() - start:.1f} s, {ranker.n_iter_} epochs, peak of "
                f"the process {peak:.2f} GB",
                flush=True,
            )


def with_candidates(log, rate, documents):
    """The log with one row for each candidate that it never showed."""
    hidden = documents[~documents["doc"].isin(log["doc"])]
    both = pd.concat([log, hidden.assign(session=-1, impressions=1)], ignore_index=True)
    return both, np.concatenate([rate, np.zeros(len(hidden))])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    studies = [worlds, cutoffs, noise, misspecified, etas, sessions, gamma, real]
    studies += [click_noise, ensembles, speed]
    studies = {study.__name__: study for study in studies}
    parser.add_argument("study", choices=studies)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", default=os.environ.get("SKULTR_DATA"), help="for real")
    parser.add_argument("--first-seed", type=int, default=10)
    parser.add_argument("--save", help="a CSV file for one row a run")
    parser.add_argument("--etas", type=float, nargs="+", default=[1.0, 0.1])
    parser.add_argument("--strengths", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--impressions", type=int, nargs="+", default=[20, 200, 100_000])
    parser.add_argument("--queries", type=int, default=N_QUERIES, help="for ensembles")
    parser.add_argument("--forms", action="store_true", help="also the other forms of CLD")
    parser.add_argument("--linear", action="store_true", help="no networks")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    studies[args.study](args)


if __name__ == "__main__":
    main()
