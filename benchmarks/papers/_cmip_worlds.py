"""Documents, logs, click models and metrics of the study of the CMIP paper (section 5)."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from skultr.click_models import (
    CACMModel,
    DBNModel,
    DCTRModel,
    NCMModel,
    PBMModel,
    RDCTRModel,
    UBMModel,
)
from skultr.metrics import cmip_score, ndcg_score, perplexity_score
from skultr.simulation import (
    CarouselUser,
    DBNUser,
    MixtureDBNUser,
    PlackettLucePolicy,
    PositionBasedUser,
    UniformPolicy,
    noisy_oracle_scores,
    production_scores,
    relevance_probability,
    simulate_clicks,
)

from .._documents import split_documents

USERS = {
    "PBM": PositionBasedUser(1.0),
    "DBN": DBNUser(),
    "MixtureDBN": MixtureDBNUser(),
    "Carousel": CarouselUser(),
}
POLICIES = ("NoisyOracle", "LambdaMART")
#: The seven of the paper. Those of WITH_PRIOR are fitted twice: by maximum likelihood, as in the
#: paper, and with the prior that they have by default ("PBM, prior").
MODELS = ("DCTR", "RDCTR", "PBM", "UBM", "DBN", "NCM", "CACM")
WITH_PRIOR = {"PBM": PBMModel, "UBM": UBMModel, "DBN": DBNModel}


class World(NamedTuple):
    """Annotated documents; a log to learn from; test logs by policy, "ind" being the logger's."""

    documents: pd.DataFrame
    train: tuple
    tests: dict


def make_world(cell, settings, seed, *, n_queries, n_sessions, test_policies=True):
    """Logs of a cell's user under a cell's logging policy, and under the policies to test.

    All runs have the same documents; policies, noise and clicks differ.
    """
    n_positions = 25 if cell["user"] == "Carousel" else 10
    documents, others = split_documents(
        settings,
        n_queries,
        settings.size(quick=600, full=2_000),
        n_documents=n_positions,
        n_features=30,
    )
    documents = shorten(documents, n_positions)
    scores = {"NoisyOracle": noisy_oracle_scores(documents, random_state=seed)}
    scores["LambdaMART"] = production_scores(
        others, fraction=1.0, estimator="lambdamart", candidates=documents, random_state=seed
    )
    logger = (PlackettLucePolicy(), scores[cell["logging"]])
    plan = {"train": (n_sessions, *logger), "ind": (n_sessions // 5, *logger)}
    if test_policies:
        other = next(name for name in POLICIES if name != cell["logging"])
        plan[other] = (n_sessions // 5, PlackettLucePolicy(), scores[other])
        plan["Uniform"] = (n_sessions // 5, UniformPolicy(), scores[other])
    seeds = np.random.SeedSequence(seed).generate_state(len(plan)).tolist()
    logs = {
        name: simulate_clicks(
            documents,
            n_sessions=max(n, 1),
            n_positions=n_positions,
            policy=policy,
            scores=by,
            user=USERS[cell["user"]],
            features=False,
            random_state=of_log,
        )
        for (name, (n, policy, by)), of_log in zip(plan.items(), seeds, strict=True)
    }
    return World(documents, logs.pop("train"), logs)


def shorten(documents, n_documents, seed=0):
    """Queries of ``n_documents`` each, drawn in proportion to grades; shorter ones are dropped."""
    rows = documents.sample(frac=1, random_state=seed).sort_values(["qid", "relevance"])
    query = rows.groupby("qid")["doc"]
    step = n_documents / query.transform("size")
    # One document of each step along the grades, from a random start in each query.
    sizes = query.size()
    start = pd.Series(np.random.default_rng(seed).random(len(sizes)), sizes.index)
    place = query.cumcount() * step - rows["qid"].map(start)
    kept = (np.floor(place + step) > np.floor(place)) & (step <= 1)
    if not kept.any():
        raise ValueError(f"no query has {n_documents} documents; give a set with longer lists")
    return rows[kept].sort_values("doc").reset_index(drop=True)


def make_models(settings, seed):
    """Name -> model: the paper's seven, then those that skultr fits with a prior by default."""
    # Half of the time goes by after the best epoch.
    epochs = settings.size(
        quick={"max_epochs": 12, "n_iter_no_change": 3},
        full={"max_epochs": 100, "n_iter_no_change": 10},
    )
    neural = {"batch_size": 1_024, "random_state": seed, **epochs}
    found = {"DCTR": DCTRModel(), "RDCTR": RDCTRModel()}
    found |= {name: model(prior=None) for name, model in WITH_PRIOR.items()}
    found |= {"NCM": NCMModel(**neural), "CACM": CACMModel(**neural)}
    return found | {f"{name}, prior": model() for name, model in WITH_PRIOR.items()}


def measure(cell, settings, seed):
    """One row for each model and test policy: what is known before, and what is wanted."""
    n_positions = 25 if cell["user"] == "Carousel" else 10
    world = make_world(
        cell,
        settings,
        seed,
        n_queries=settings.size(quick=1_600 // n_positions, full=5_888),
        n_sessions=settings.n_sessions(quick=400_000 // n_positions, full=5_000_000),
    )
    repetitions = settings.size(quick=50, full=1_000)
    for name, model in make_models(settings, seed).items():
        model.fit(world.train.X, world.train.clicks)
        known = annotated_metrics(world, relevance_of(model, world))
        perplexity = {test: perplexity_of(model, log) for test, log in world.tests.items()}
        known["ind PPL"] = perplexity.pop("ind")
        for test, value in perplexity.items():
            row = {"test": test, "model": name, "repetitions": repetitions}
            yield row | known | {"ood PPL": value}


def relevance_of(model, world):
    return model.predict(world.documents[["qid", "doc"]])


def annotated_metrics(world, scores):
    """nDCG, and CMIP by the paper's estimator and by skultr's."""
    documents = world.documents
    logged = expected_ranks(world)
    cmip = {
        name: cmip_score(
            scores, logged, documents["relevance"], estimator=estimator, random_state=0
        )
        for name, estimator in (("CMIP", "published"), ("CMIP, skultr", "classifier"))
    }
    ndcg = ndcg_score(documents["relevance"], scores, qid=documents["qid"], k=10)
    return {"nDCG": ndcg} | cmip


def expected_ranks(world):
    """Mean logged position of each document."""
    logged = world.train.X.groupby("doc")["position"].mean()
    # A document that a small log never shows has the mean of the others.
    return logged.reindex(world.documents["doc"]).fillna(logged.mean()).to_numpy()


def perplexity_of(model, log):
    """Perplexity of a log given the clicks above each row."""
    probability = model.predict_click(log.X, log.clicks)
    return perplexity_score(log.clicks, probability, position=log.X["position"])


def against_logger(cell, settings, seed):
    """Figure 1: two models' relevance against the logger's expected rank."""
    world = make_world(
        {"user": "PBM", "logging": "NoisyOracle"},
        settings,
        seed,
        n_queries=settings.size(quick=300, full=5_888),
        n_sessions=settings.n_sessions(quick=127_500, full=5_000_000),
        test_policies=False,
    )
    logged = expected_ranks(world)
    models = make_models(settings, seed)
    grades = world.documents["relevance"]
    drawn = np.flatnonzero(grades.groupby(grades).cumcount() < 300)
    for name in ("DCTR", "PBM", "PBM, prior"):
        models[name].fit(world.train.X, world.train.clicks)
        scores = relevance_of(models[name], world)
        yield {"model": name} | annotated_metrics(world, scores)
        for i in drawn if seed == 0 else ():
            point = {"rank": round(logged[i], 3), "score": round(scores[i], 4)}
            yield {"model": name, "grade": int(grades.iloc[i])} | point


def by_number_of_documents(cell, settings, seed):
    """Figure 3: CMIP of scores without bias, and of scores that fall with the logged rank."""
    n_queries = cell["documents"] // 10
    world = make_world(
        {"user": "PBM", "logging": "NoisyOracle"},
        settings,
        seed,
        n_queries=n_queries,
        n_sessions=250 * n_queries,
        test_policies=False,
    )
    relevance = relevance_probability(world.documents["relevance"])
    # What a model does not know of a document, whatever its rank.
    error = np.random.default_rng(seed).normal(0, 0.05, len(relevance))
    scores = {
        "unbiased": relevance + error,
        "biased": relevance / np.sqrt(expected_ranks(world)) + error,
    }
    for name, values in scores.items():
        found = annotated_metrics(world, values)
        yield {"scores": name} | {metric: found[metric] for metric in ("CMIP", "CMIP, skultr")}
