"""Time the ranking metrics: 10 million rows of 100,000 queries, beside scikit-learn.

Run by hand: ``python tests/benchmarks/bench_metrics.py [n_queries] [documents per query]``.
Both libraries get the same rows in the same run. scikit-learn's ndcg_score takes a dense matrix
of lists of one length (linear gain, ties averaged), so it is spared the grouping of the rows.
"""

import resource
import sys
import time

import numpy as np
from sklearn.metrics import ndcg_score as sklearn_ndcg_score

from skultr.metrics import (
    average_precision_score,
    err_score,
    ndcg_score,
    precision_score,
    reciprocal_rank_score,
)

#: scikit-learn averages ties one list after the other, so that a part of the lists says enough.
_PEER_SHARE = 10


def timed(label, function):
    start = time.perf_counter()
    value = function()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{label:<48} {seconds:7.2f} s   peak {peak:5.2f} GiB   value {value:.6f}", flush=True)
    return seconds, value


def main(n_queries=100_000, n_documents=100):
    rng = np.random.default_rng(0)
    n_rows = n_queries * n_documents
    relevance = rng.choice(5, size=n_rows, p=[0.6, 0.2, 0.1, 0.06, 0.04])
    scores = relevance + 2 * rng.standard_normal(n_rows)
    qid = np.repeat(np.arange(n_queries), n_documents)
    print(f"{n_rows:,} rows, {n_queries:,} queries")

    own, value = timed(
        "nDCG, linear gain, rows by query",
        lambda: ndcg_score(relevance, scores, qid=qid, gain="linear"),
    )
    few = n_queries // _PEER_SHARE
    part, _ = timed(
        f"scikit-learn, dense, 1/{_PEER_SHARE} of the queries",
        lambda: sklearn_ndcg_score(
            relevance.reshape(n_queries, -1)[:few], scores.reshape(n_queries, -1)[:few]
        ),
    )
    print(f"scikit-learn / skultr, per row: {part * _PEER_SHARE / own:.1f}")

    order = rng.permutation(n_rows)
    relevance, scores, qid = relevance[order], scores[order], qid[order]
    shuffled, again = timed(
        "nDCG, linear gain, rows interleaved",
        lambda: ndcg_score(relevance, scores, qid=qid, gain="linear"),
    )
    np.testing.assert_allclose(again, value)
    print(f"scikit-learn / skultr, per row: {part * _PEER_SHARE / shuffled:.1f}")
    for function in (ndcg_score, precision_score, average_precision_score):
        timed(
            f"{function.__name__}@10, interleaved",
            lambda function=function: function(relevance, scores, qid=qid, k=10),
        )
    for function in (reciprocal_rank_score, err_score):
        timed(
            f"{function.__name__}@10, interleaved",
            lambda function=function: function(relevance, scores, qid=qid, k=10),
        )
        timed(
            f"{function.__name__}, interleaved, scores of 11 values",
            lambda function=function: function(relevance, np.round(scores), qid=qid),
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
