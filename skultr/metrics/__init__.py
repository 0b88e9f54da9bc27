"""Ranking metrics, and scorers for scikit-learn's searches.

Metrics take flat arrays: one relevance, one score and one query id a row, rows in any order.
"""

from ._ips import IPSEstimate, IPSScorer
from ._ranking import (
    average_precision_score,
    dcg_score,
    err_score,
    ndcg_score,
    precision_score,
    reciprocal_rank_score,
)
from ._scorers import RankingScorer

__all__ = [
    "IPSEstimate",
    "IPSScorer",
    "RankingScorer",
    "average_precision_score",
    "dcg_score",
    "err_score",
    "ndcg_score",
    "precision_score",
    "reciprocal_rank_score",
]
