"""Whether clicks tell the documents of a query apart, or chance alone would do as much."""

from __future__ import annotations

import pandas as pd
from scipy.stats import gamma


def chance_of_differences(judged: pd.DataFrame) -> float:
    """How often ratings would differ as much within queries if their documents were equally good.

    By Pearson's statistic of the clicks of the rated documents of a query, against clicks by
    examination alone, summed over queries. Given the number of clicks of a query, its mean and
    variance are exact, be the clicks ever so few (Haldane 1937); its distribution is taken for
    the gamma of both. 1 if no query has clicks and two rated documents.
    """
    pairs = _pairs_of_clicked_queries(judged)
    # What each document would have if clicks told of examination alone.
    expected = pairs["n_clicks"] * pairs["share"]
    squares = (pairs["clicks"] - expected) ** 2 / expected
    by_query = pairs.assign(squares=squares, inverse=1 / pairs["share"]).groupby("qid")
    n_docs = by_query.size()
    n_clicks = by_query["n_clicks"].first()
    # The statistic of many clicks is chi-squared; the second part is for few of them.
    when_few = (by_query["inverse"].sum() - n_docs**2 - 2 * n_docs + 2) / n_clicks
    mean = (n_docs - 1).sum()
    variance = (2 * (n_docs - 1) + when_few).sum()
    # Of one document, or one click at equal shares, only one value is possible.
    if variance < 1e-9:
        return 1.0
    return float(gamma.sf(squares.sum(), mean**2 / variance, scale=variance / mean))


def _pairs_of_clicked_queries(judged):
    """The rated pairs of queries with clicks, and their share of the examinations of the query."""
    rated = judged.dropna(subset=["relevance"])
    sums = rated.groupby("qid")[["clicks", "examinations"]].transform("sum")
    share = rated["examinations"] / sums["examinations"]
    pairs = rated.assign(n_clicks=sums["clicks"], share=share)
    return pairs[pairs["n_clicks"] > 0]
