# pyright: standard, reportUnnecessaryTypeIgnoreComment=true
"""Code as users write it: the type checker of ``make lint`` must find nothing here."""

from typing import Any, assert_type

import numpy as np
import pandas as pd
import polars as pl
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skultr
from skultr import CMIPScorer, DLARanker, IdentifiabilityRepair, aggregate_clicks
from skultr.click_models import DCTRModel, NCMModel, PBMModel
from skultr.datasets import load_letor, make_ltr
from skultr.identifiability import IdentifiabilityGraph, feature_overlap
from skultr.metrics import (
    ClickLikelihoodScorer,
    IPSScorer,
    PerplexityScorer,
    RankingScorer,
    cmip_score,
    ndcg_score,
    perplexity_score,
)
from skultr.model_selection import OffPolicySelection, QueryKFold, train_test_queries
from skultr.plotting import (
    DebiasednessDisplay,
    ExaminationDisplay,
    IdentifiabilityDisplay,
)
from skultr.preprocessing import OnFeatures
from skultr.propensity import (
    ContextualPropensity,
    InterventionHarvesting,
    PowerLawPropensity,
    RegressionEMPropensity,
    UserClusters,
    relevance_labels,
)
from skultr.rankers import IPSRanker, LambdaMARTRanker, NaiveRanker, TwoTowerRanker
from skultr.simulation import (
    PlackettLucePolicy,
    PositionBasedUser,
    make_disconnected_log,
    simulate_clicks,
)

log = pd.DataFrame(
    {"qid": [1, 1, 2, 2], "doc": [1, 2, 3, 4], "position": [1, 2, 1, 2], "bm25": [3.0, 2, 1, 0]}
)
clicks = [1, 0, 0, 1]


def constructors() -> None:
    NaiveRanker(hidden_layer_sizes=[64, 32], device=torch.device("cpu"), random_state=0)
    NaiveRanker(hidden_layer_sizes=(), optimizer=torch.optim.Adam, module=torch.nn.Linear(2, 1))
    NaiveRanker(net_params={"callbacks": []}, random_state=np.random.RandomState(0))
    NaiveRanker(estimator=Ridge(), device="cuda")
    NaiveRanker(batch_size="auto")
    NCMModel(batch_size="auto")
    IPSRanker(propensity=[1.0, 0.5], clip=0.1)
    IPSRanker(propensity=PowerLawPropensity(eta=1.0), normalize=True)
    LambdaMARTRanker(propensity="column")


def frames_and_arrays() -> None:
    ranker = NaiveRanker(max_epochs=1).fit(log, clicks)
    assert_type(ranker, NaiveRanker)
    assert_type(ranker.predict(log), NDArray[np.float64])
    assert_type(ranker.rank(log), NDArray[np.integer[Any]])
    assert_type(ranker.score(log, [0, 1, 2, 0]), float)
    frame = pl.DataFrame(log.to_dict("list"))
    ranker.fit(frame, pl.Series(clicks)).predict(frame)
    ranker.fit(log, log["bm25"]).predict(log[["bm25"]])
    features = np.array([[3.0], [2.0], [1.0], [0.0]])
    qid, position = ["a", "a", "b", "b"], np.array([1, 2, 1, 2])
    ranker.fit(features, np.array(clicks), qid=qid, position=position)
    ranker.fit(features.tolist(), clicks, qid=qid, position=[1, 2, 1, None])
    ranker.fit(sparse.csr_array(features), clicks, qid=qid, position=position)
    ranker.fit(sparse.csr_matrix(features), clicks, qid=qid).set_params(max_epochs=2)


def pipeline_and_search() -> None:
    repair = IdentifiabilityRepair(bias=["position", "device"])
    ranker = make_pipeline(repair, OnFeatures(StandardScaler()), DLARanker(max_epochs=10))
    search = GridSearchCV(
        ranker,
        {"dlaranker__learning_rate": [0.002, 0.01]},
        cv=QueryKFold(3),
        scoring={"cmip": CMIPScorer(), "ndcg": RankingScorer("ndcg", k=10)},
        # scikit-learn declares no types, and checkers take `refit=True` for a declaration.
        refit=OffPolicySelection({"ndcg": "1se"}),  # pyright: ignore[reportArgumentType]
    )
    search.fit(log, clicks)
    search.predict(log)
    dla = DLARanker().fit(log, clicks)
    assert_type(dla.examination_, pd.DataFrame)
    GridSearchCV(PBMModel(), {"solver": ["em"]}, cv=QueryKFold(), scoring=PerplexityScorer())


def reduce_and_diagnose() -> None:
    X, rate = aggregate_clicks(log, click="click")
    NaiveRanker().fit(X, rate)
    aggregate_clicks(pl.LazyFrame({"qid": [1]}), documents=pl.DataFrame({"doc": [1]}))
    graph = IdentifiabilityGraph.from_log(log, bias=["position"])
    assert_type(graph.is_connected, bool)
    overlap = feature_overlap(log, bias="position")
    assert_type(overlap.determines, bool)
    graph.summary(overlap)


def click_models_and_propensities() -> None:
    model = DCTRModel().fit(log, clicks)
    assert_type(model, DCTRModel)
    assert_type(model.predict(log), NDArray[np.float64])
    assert_type(model.predict_click(log), NDArray[np.float64])
    assert_type(model.sample(log, random_state=0), NDArray[np.integer[Any]])
    assert_type(PBMModel(prior=(1, 1), solver="gradient").fit(log, clicks).score(log, "y"), float)
    towers = TwoTowerRanker().fit(log, clicks)
    assert_type(towers.predict_click(log), NDArray[np.float64])
    harvest = InterventionHarvesting().fit(log, clicks)
    assert_type(harvest, InterventionHarvesting)
    assert_type(harvest.predict(log), NDArray[np.float64])
    assert_type(PowerLawPropensity(eta={"a": 1.0}).fit(log, "y").predict(log), NDArray[np.float64])
    RegressionEMPropensity(user="user", user_shrinkage=10).fit(
        log, clicks
    ).examination_.sort_index()
    context = ContextualPropensity(context=["bm25"]).fit(log, clicks)
    assert_type(context.examination_at(log[["bm25"]]), pd.DataFrame)
    clusters = UserClusters(2, propensity=RegressionEMPropensity(user="user"))
    assert_type(clusters.fit(log, clicks), UserClusters)
    assert_type(relevance_labels(log, clicks, propensity=[1, 0.5]), pd.DataFrame)


def metrics() -> None:
    assert_type(cmip_score([0.1, 0.2], [1, 2], [0, 0]), float)
    cmip_score([0.1, 0.2], [1, 2], [0, 0], return_result=True).summary()
    round(ndcg_score(log["bm25"], [1, 2, 3, 4], qid=log["qid"], k=10), 4)
    ndcg_score(log["bm25"], [1, 2, 3, 4], qid=log["qid"], k=[1, 10], per_query=True).describe()
    assert_type(perplexity_score(clicks, [0.5] * 4), float)
    perplexity_score(clicks, [0.5] * 4, position=log["position"], per_position=True).describe()
    likelihood = ClickLikelihoodScorer(propensity=[1, 0.5], scale=1.0)
    assert_type(likelihood(NaiveRanker(), log, clicks), float)
    likelihood.estimate(NaiveRanker(), log, clicks, baseline=NaiveRanker()).standard_error
    assert_type(IPSScorer(propensity=[1, 0.5])(NaiveRanker(), log, clicks), float)
    IPSScorer().estimate(NaiveRanker(), log, clicks, propensity=[1, 0.5, 1, 0.5]).standard_error


def simulation() -> None:
    documents = make_ltr(n_queries=50, n_documents=(5, 10), n_features=20, random_state=0)
    assert_type(documents, pd.DataFrame)
    train, test = train_test_queries(documents, random_state=0)
    X, y, truth = simulate_clicks(
        train, n_sessions=500, policy=PlackettLucePolicy(), user=PositionBasedUser()
    )
    X["device"] = X["qid"].map(lambda qid: "phone" if qid % 2 else "desktop")
    NaiveRanker().fit(X, y).predict(test)
    truth.examination
    make_disconnected_log(2, n_documents=300).X.columns
    load_letor(["train.txt"], n_features=136).sort_values("qid")


def pictures() -> None:
    ranker = DLARanker().fit(log, clicks)
    ExaminationDisplay.from_estimators({"DLA": ranker}, truth=[1, 0.5]).ax_.set_title("DLA")
    IdentifiabilityDisplay.from_log(log).figure_.savefig("graph.png")
    DebiasednessDisplay.from_estimator(ranker, log).plot(s=4).ax_.set_ylim(0, 1)
