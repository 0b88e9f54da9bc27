# pyright: standard, reportUnnecessaryTypeIgnoreComment=true
"""Mistakes of users: the type checker of ``make lint`` must report every line marked here.

A mark that silences nothing is an error itself (``reportUnnecessaryTypeIgnoreComment``).
"""

import pandas as pd

import skultr
from skultr import NoSuchThing  # pyright: ignore[reportAttributeAccessIssue]
from skultr.click_models import NoSuchModel  # pyright: ignore[reportAttributeAccessIssue]
from skultr.datasets import load_letor, make_ltr
from skultr.evaluation import NoSuchEstimate  # pyright: ignore[reportAttributeAccessIssue]
from skultr.metrics import RankingScorer, cmip_score, ndcg_score
from skultr.model_selection import OffPolicySelection, QueryKFold
from skultr.plotting import ExaminationDisplay, IdentifiabilityDisplay
from skultr.propensity import NoSuchPropensity  # pyright: ignore[reportAttributeAccessIssue]
from skultr.rankers import (
    NaiveRanker,
    NoSuchRanker,  # pyright: ignore[reportAttributeAccessIssue]
)
from skultr.serving import no_such_export  # pyright: ignore[reportAttributeAccessIssue]
from skultr.simulation import simulate_clicks

skultr.no_such_module  # pyright: ignore[reportAttributeAccessIssue]
log = pd.DataFrame({"qid": [1, 1], "position": [1, 2], "bm25": [0.3, 0.1]})

NaiveRanker(hidden_layers=[64, 32])  # pyright: ignore[reportCallIssue]
NaiveRanker(hidden_layer_sizes=64)  # pyright: ignore[reportArgumentType]
NaiveRanker([64, 32])  # pyright: ignore[reportCallIssue]
NaiveRanker(learning_rate="fast")  # pyright: ignore[reportArgumentType]
NaiveRanker(device=0)  # pyright: ignore[reportArgumentType]
NaiveRanker().fit()  # pyright: ignore[reportCallIssue]
NaiveRanker().fit(log, [1, 0], query=[1, 1])  # pyright: ignore[reportCallIssue]
NaiveRanker().predict(log, qid=[1, 1])  # pyright: ignore[reportCallIssue]
NaiveRanker().predict(log).to_frame()  # pyright: ignore[reportAttributeAccessIssue]
NaiveRanker(loss="listwise")  # pyright: ignore[reportArgumentType]
NaiveRanker().predict_clicks(log)  # pyright: ignore[reportAttributeAccessIssue]

QueryKFold("five")  # pyright: ignore[reportArgumentType]
OffPolicySelection(["cmip"])  # pyright: ignore[reportArgumentType]
RankingScorer("mrr")  # pyright: ignore[reportArgumentType]
RankingScorer(k=[5, 10])  # pyright: ignore[reportArgumentType]
ndcg_score([1, 0], [0.2, 0.1])  # pyright: ignore[reportCallIssue]
ndcg_score([1, 0], [0.2, 0.1], qid=[1, 1], gain="log")  # pyright: ignore[reportArgumentType]
cmip_score([0.1], [1], [0]).summary()  # pyright: ignore[reportAttributeAccessIssue]
make_ltr(n_query=50)  # pyright: ignore[reportCallIssue]
load_letor(7)  # pyright: ignore[reportArgumentType]
simulate_clicks(log, sessions=500)  # pyright: ignore[reportCallIssue]
ExaminationDisplay.from_estimators([log])  # pyright: ignore[reportArgumentType]
IdentifiabilityDisplay.from_graph(log)  # pyright: ignore[reportArgumentType]
