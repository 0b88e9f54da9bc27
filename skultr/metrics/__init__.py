"""Metrics of rankings, clicks and debiasedness, and scorers for scikit-learn's searches.

Metrics take flat arrays: one relevance, one score and one query id per row, in any order.
"""

from ._click_scorers import CMIPScorer, PerplexityScorer, click_log_likelihood, perplexity_score
from ._dependence import CMIPResult, cmip_score
from ._held_out import (
    ClickLikelihoodEstimate,
    ClickLikelihoodScorer,
    IPSEstimate,
    IPSScorer,
    MatchedPairsScorer,
    matched_pairs_score,
)
from ._ranking import (
    average_precision_score,
    dcg_score,
    err_score,
    ndcg_score,
    precision_score,
    reciprocal_rank_score,
)
from ._scorers import RankingScorer, to_ir_measures, to_trec
from ._truth import click_mse, mean_correlation_coefficient, relevance_mse

__all__ = [
    "CMIPResult",
    "CMIPScorer",
    "ClickLikelihoodEstimate",
    "ClickLikelihoodScorer",
    "IPSEstimate",
    "IPSScorer",
    "MatchedPairsScorer",
    "PerplexityScorer",
    "RankingScorer",
    "average_precision_score",
    "click_log_likelihood",
    "click_mse",
    "cmip_score",
    "dcg_score",
    "err_score",
    "matched_pairs_score",
    "mean_correlation_coefficient",
    "ndcg_score",
    "perplexity_score",
    "precision_score",
    "reciprocal_rank_score",
    "relevance_mse",
    "to_ir_measures",
    "to_trec",
]
