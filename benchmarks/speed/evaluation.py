"""Metrics: nDCG of many queries, and the dependence of scores on the logging policy."""

import numpy as np
from sklearn.feature_selection import mutual_info_regression
from sklearn.metrics import ndcg_score as sklearn_ndcg_score

from skultr.metrics import cmip_score, ndcg_score

from ._work import OURS, Work

LENGTH, K = 10, 10
SKLEARN, DENSE = "scikit-learn, dense", "NumPy, dense, no ties"
NEIGHBORS = "scikit-learn, within each grade"


def ndcg(size):
    rng = np.random.default_rng(0)
    n_queries = size(tiny=20, quick=5_000, full=20_000)
    relevance = rng.choice(5, (n_queries, LENGTH), p=[0.6, 0.2, 0.1, 0.06, 0.04])
    relevance[:, 0] = 4  # where nothing is relevant, scikit-learn counts 0 and we skip
    scores = relevance + 2 * rng.standard_normal(relevance.shape)
    flat, qid = (relevance.ravel(), scores.ravel()), np.repeat(np.arange(n_queries), LENGTH)
    return {
        OURS: lambda: ndcg_score(*flat, qid=qid, k=K, gain="linear"),
        SKLEARN: lambda: sklearn_ndcg_score(relevance, scores, k=K),
        DENSE: lambda: _dense_ndcg(relevance, scores),
    }


def _dense_ndcg(relevance, scores):
    discount = 1 / np.log2(2 + np.arange(K))
    order = np.argsort(-scores, axis=1)[:, :K]
    gained = np.take_along_axis(relevance, order, axis=1) @ discount
    return np.mean(gained / (-np.sort(-relevance, axis=1)[:, :K] @ discount))


def dependence(size):
    rng = np.random.default_rng(0)
    n_rows = size(tiny=200, quick=5_000, full=20_000)
    grade = rng.choice(5, n_rows, p=[0.5, 0.2, 0.15, 0.1, 0.05])
    logged, noise = rng.normal(size=(2, n_rows))
    score = 0.6 * logged + 0.8 * noise + grade

    def peer():
        for value in range(5):
            rows = grade == value
            mutual_info_regression(score[rows, None], logged[rows], n_neighbors=5, random_state=0)

    def ours():
        cmip_score(
            score, logged, grade, estimator="knn", n_repeats=1, n_permutations=1, random_state=0
        )

    return {OURS: ours, NEIGHBORS: peer}


WORKS = (
    Work("evaluation/ndcg", "ndcg_score, flat rows", ndcg, {SKLEARN: None, DENSE: None}),
    Work("evaluation/cmip", "cmip_score, nearest neighbours", dependence, {NEIGHBORS: None}),
)
