"""Rankers compared on annotated queries: paired differences, intervals and tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from .._base._sklearn import Interval, StrOptions, validate_params
from .._base._typing import Column, Floats, Predictor, RandomState, Table
from .._log._roles import (
    column_names,
    count_rows,
    is_frame,
    is_role,
    read_column,
    without_column,
)
from .._log._units import tell_units
from ..metrics._judged_documents import refuse_annotation_as_judge, take_judge
from ..metrics._query_means import (
    bootstrap,
    by_cluster,
    cluster_of,
    detectable,
    holm_adjusted,
    sign_flips,
)
from ..metrics._ranking import RANKING_METRICS
from ..metrics._scorers import BY_CLICKS, AnnotatedDocuments, metric_by_query
from ._second_judge import Resampling, SecondJudge


@dataclass(frozen=True, eq=False)
class RankerComparison:
    """Result of :func:`compare_rankers`: differences between rankers on annotated queries.

    Parameters
    ----------
    table : pandas.DataFrame of shape (n_comparisons, 14)
        ``ranker`` and ``baseline``; ``value``, the mean metric of the ranker; ``difference`` to
        the baseline, from ``lower`` to ``upper`` (NaN if it is the same in all queries);
        ``p_value``, and ``p_adjusted`` for all comparisons (Holm); ``detectable``, the smallest
        true difference that this number of queries detects with a power of 80 % (NaN: none);
        ``n_queries``, of which the ranker has ``wins``, ``ties`` and ``losses``; ``verdict``:
        "better", "worse" or "cannot tell". With ``judge``, four more: ``judge_weight``, what
        the judge's metric counts (0: the row is that of the trusted labels alone);
        ``width_ratio``, the width of the interval over that of the trusted labels alone;
        ``judge_no_help``, why the judge does not count (empty: it does); and ``n_judged``, the
        queries with a metric by the judge's labels.
    values : pandas.DataFrame of shape (n_rankers, 3)
        ``value``, ``lower`` and ``upper``: mean metric of each ranker with its interval. With
        ``judge`` also ``judge_weight`` and ``width_ratio``.
    per_query : pandas.DataFrame of shape (n_queries, n_rankers)
        Metric of each query by annotation, indexed by ``qid``, where it is defined.
    metric : str
        Name of the metric, such as "ndcg@10".
    n_undefined : int
        Number of queries left out, where it is undefined, as nDCG without a relevant document.
    n_clusters : int or None
        Number of clusters of the other queries; None without ``cluster``.
    per_judged_query : pandas.DataFrame of shape (n_judged, n_rankers) or None
        Metric of each query by the judge's labels, where it is defined; None without ``judge``.
    """

    table: pd.DataFrame
    values: pd.DataFrame
    per_query: pd.DataFrame
    metric: str
    n_undefined: int
    n_clusters: int | None = None
    per_judged_query: pd.DataFrame | None = None

    def __repr__(self) -> str:
        decided = (self.table["verdict"] != "cannot tell").sum()
        verdicts = len(self.table)
        return (
            f"RankerComparison(metric={self.metric!r}, n_queries={len(self.per_query)}, "
            f"verdicts={decided} of {verdicts})"
        )

    def summary(self) -> str:
        """Verdict on each pair in plain words, and the queries that a clear one needs."""
        head = f"{self.metric} by query. Queries: {len(self.per_query)}"
        counted = len(self.per_query), "queries"
        if self.n_clusters:
            counted = self.n_clusters, "clusters"
            head += f" in {self.n_clusters} clusters"
        if self.n_undefined:
            head += f" (and {self.n_undefined} where it is undefined, left out)"
        if self.per_judged_query is not None:
            counted = counted[0], f"trusted {counted[1]}"
            head += f"; by the judge {len(self.per_judged_query)}"
        lines = [_in_words(row, *counted) for row in self.table.itertuples()]
        return "\n".join([head, *lines])


@validate_params(
    {
        "rankers": [Mapping],
        "baseline": [str, None],
        "judge": [str, "array-like", None],
        "cluster": [str, "array-like", None],
        "metric": [StrOptions(set(RANKING_METRICS)), callable],
        "k": [Interval(Integral, 1, None, closed="left"), None],
        "confidence_level": [Interval(Real, 0, 1, closed="neither")],
        "n_resamples": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def compare_rankers(
    rankers: Mapping[str, Predictor | Column | str],
    X: Table | None = None,
    y: Column | str | None = None,
    *,
    metric: str | Callable[[Floats, Floats], float] = "ndcg",
    k: int | None = 10,
    baseline: str | None = None,
    judge: Column | str | None = None,
    cluster: Column | str | None = None,
    confidence_level: float = 0.95,
    n_resamples: int = 9999,
    random_state: RandomState = None,
    qid: Column | None = None,
    doc: Column | None = None,
    **options: Any,
) -> RankerComparison:
    """Test which of several rankers is better on annotated queries, with confidence intervals.

    Rankers are compared within each query, because queries differ more than rankers do.
    Documents count once, however many rows show them; those without annotation do not.

    Parameters
    ----------
    rankers : dict of str to ranker, array-like of shape (n_rows,) or str
        Fitted rankers, pipelines or searches, scores of the rows, or their column of X; at least
        two.
    X : frame, array-like or sparse matrix of shape (n_rows, n_columns), default=None
        Documents: the features of the rankers, and the roles ``qid``, ``relevance`` and ``doc``.
        Without ``doc``, rows with equal features are one document of their query. If all rankers
        are scores, each row is one, and X may be None.
    y : array-like of shape (n_rows,) or str, default=None
        Human annotation, never clicks: at least 0 or missing; or its column, by default
        ``relevance``.
    metric : {"ndcg", "dcg", "err", "ap", "rr", "precision"} or callable, default="ndcg"
        Or a function ``metric(relevance, scores)`` of the documents of one query whose value is
        greater for better rankers, and NaN where it is undefined.
    k : int, default=10
        Ranks that count, None for all. Not used by a callable.
    baseline : str, default=None
        The ranker that all others are compared with; by default all pairs, which finds less.
    judge : array-like of shape (n_rows,) or str, default=None
        Cheap labels of (nearly) all queries, as of a language model, at least 0 or missing; or
        their column of X, which rankers do not see. ``y`` then holds the trusted labels, of some
        queries drawn at random from all. The intervals are of both judges where that is narrower,
        and otherwise of the trusted labels alone.
    cluster : array-like of shape (n_rows,) or str, default=None
        What was drawn independently, if not each query: the need that several queries paraphrase,
        the user who asked them; or its column of X, which rankers do not see unless it is a role.
        Equal in all rows of a query.
    confidence_level : float, default=0.95
        Of each interval; a finding needs ``p_adjusted`` up to 1 minus this level.
    n_resamples : int, default=9999
        Number of resamples of an interval, and largest number of sign flips of a test.
    random_state : int, RandomState instance or None, default=None
    qid, doc : array-like of shape (n_rows,), default=None
        Roles as keywords; they take precedence over columns.
    **options
        Further keywords of the metric, such as ``gain="linear"`` or ``no_relevant=0``.

    Returns
    -------
    comparison : RankerComparison

    Raises
    ------
    ValueError
        If there are fewer than two rankers, ``baseline`` is none of them, a role is missing or
        invalid, ``cluster`` is missing or differs within a query, scores are NaN or differ within
        a document, or order the documents of no query, a value is infinite, or no query has one;
        or if the judge's labels are negative, infinite, all missing or the clicks, differ within a
        document, or are of no query with trusted labels.

    Warns
    -----
    AssumptionWarning
        If, by the judge's labels, trusted queries differ from all. If its metric is undefined more
        often in trusted queries than in others, or less often, as where missing labels were filled
        with 0: the judge then does not count.

    Notes
    -----
    *The p-value* [1]_ is the share of random signs of the differences of queries that give a mean
    at least as far from 0. Below six queries that differ, none is below 0.05.

    *The interval* is a bootstrap-t [2]_ over queries, which follows skewed differences, with ends
    at least as far as Student's.

    *The verdict* needs a small ``p_adjusted`` and an interval without 0. Between rankers that are
    equal on average but not alike (20 to 200 queries, skewed differences) the test alone found a
    difference in 5 to 19 of 100 samples, and the verdict in 3 to 7.

    *Clusters.* With ``cluster``, signs are flipped and rows resampled by cluster, and
    ``detectable`` and the queries needed are by clusters; means stay those of queries. In 12 or 40
    clusters of five equal queries, a difference where there is none was found in 4 to 6 of 100
    samples, without ``cluster`` in 32 to 39; in clusters of 1 to 20 queries in 2 to 6, and
    intervals held the truth in 91 to 96. If few large clusters decide and differences are skewed,
    do not trust it: a difference was found in 16 (12 clusters of five) and 25 (12 of 1 to 20).

    *Two judges.* [3]_ The estimate is the mean metric of trusted queries, less ``judge_weight``
    times what the judge's metric of these queries is above that of all queries. The weight has the
    smallest variance, for each mean and each difference. The judge may be biased, and of another
    scale. What counts is that trusted queries were drawn at random from all (with ``cluster``, the
    clusters); a warning says so where the judge itself tells them apart. The metric of a query by
    either judge is that of the documents which this judge labelled. In resamples the weight is
    tuned anew, and ``p_value`` is that of the bootstrap-t. ``wins``, ``ties`` and ``losses`` are
    of trusted queries. As each row has its own weight, ``difference`` is not exactly the
    difference of two values. The judge does not count where fewer than ten trusted queries (or
    clusters) differ.

    With 20, 50 or 200 trusted queries and 500 or 5,000 in all (normal, skewed or rare
    differences), intervals held the truth in 93 to 97 of 100 samples. With a correlation of .7
    between the judges' differences of queries they were narrower than by trusted labels alone by
    25 to 33 % (50 of 500 or 5,000, 200 of 5,000), 16 to 18 % (200 of 500), and 2 to 11 % where of
    20 queries often fewer than ten differ (``benchmarks/studies/two_judges.py``).

    *Training.* The interval is that of these fitted rankers on other queries. A method trained
    again is another ranker: of networks that differed in ``random_state`` alone, trained on 6,700
    simulated pages, 6 of 12 pairs got a verdict, with differences up to 0.04. To compare methods,
    fit each with several seeds, and compare the means of their scores
    (:class:`~skultr.rankers.RankAggRanker`), or let :func:`run_comparison` do so in simulated
    worlds.

    References
    ----------
    .. [1] Smucker, Allan and Carterette (2007). A comparison of statistical significance tests
       for information retrieval evaluation. CIKM.
    .. [2] Efron and Tibshirani (1993). An introduction to the bootstrap, section 12.5.
    .. [3] Angelopoulos, Duchi and Zrnic (2023). PPI++: efficient prediction-powered inference.
       arXiv:2311.01453.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.evaluation import compare_rankers
    >>> X = make_ltr(n_queries=50, random_state=0)
    >>> old = X["feature_000"]
    >>> new = old + X["relevance"]
    >>> comparison = compare_rankers({"old": old, "new": new}, X, random_state=0)
    >>> comparison.table[["ranker", "baseline", "verdict"]]
      ranker baseline verdict
    0    new      old  better

    People labelled 40 of 400 queries, and a language model all of them:

    >>> X = make_ltr(n_queries=400, random_state=0)
    >>> X["llm"] = (X["relevance"] - 1).clip(lower=0)
    >>> trusted = X["relevance"].where(X["qid"].isin(X["qid"].unique()[:40]))
    >>> old = X["feature_000"]
    >>> new = old + X["feature_001"]
    >>> rankers = {"old": old, "new": new}
    >>> comparison = compare_rankers(rankers, X, trusted, judge="llm", random_state=0)
    >>> comparison.table[["difference", "lower", "upper", "judge_weight", "width_ratio"]].round(2)
       difference  lower  upper  judge_weight  width_ratio
    0        0.01  -0.02   0.04           0.6         0.57
    """
    # The first of all comparisons must be able to win.
    pairs = _pairs(list(rankers), baseline)
    level = (1 - confidence_level) / len(pairs)
    if 1 / (n_resamples + 1) > level:
        raise ValueError(
            f"With n_resamples={n_resamples} no p-value is below {level:.2g}, which the first of "
            f"{len(pairs)} comparisons needs; expected at least {np.ceil(1 / level):.0f}."
        )
    value, name_of_metric = metric_by_query(metric, k, options)
    documents, second, cluster = _documents(rankers, X, y, qid, doc, cluster, judge)
    values = _values(rankers, documents, second, value)
    if np.isinf(values).any(axis=None):
        raise ValueError(
            f"{name_of_metric} is infinite for some query; expected finite values, or NaN where "
            "it is undefined."
        )
    # Queries count where the metric is defined for all rankers: comparisons are within queries.
    per_query = values.dropna()
    if per_query.empty:
        raise ValueError(
            f"{name_of_metric} is undefined in all {len(values)} queries, as without a relevant "
            "document; expected a value in some. Check the annotation, or pass no_relevant=0."
        )
    group = _of_defined(cluster, documents, values)
    rng = check_random_state(random_state)
    _, *linear = by_cluster(per_query.to_numpy(), group)
    lower, upper = bootstrap(*linear, confidence_level, n_resamples, rng)
    means = pd.DataFrame({"value": per_query.mean(), "lower": lower, "upper": upper})
    means = means.rename_axis("ranker")
    # The same generator draws on: first the means, then their differences.
    table = _compare(per_query, group, pairs, confidence_level, n_resamples, rng)
    found = RankerComparison(
        table,
        means,
        per_query,
        name_of_metric,
        n_undefined=len(values) - len(per_query),
        n_clusters=None if group is None else len(np.unique(group)),
    )
    if second is None:
        return found
    # Last, so that without help of the judge all is as it were without it.
    judged_values = second.measure(value, values)
    how = Resampling(confidence_level, n_resamples, rng)
    return _with_second_judge(found, second, judged_values, how)


def _pairs(names, baseline):
    """Pairs of a ranker and what it is compared with."""
    if len(names) < 2 or not all(isinstance(name, str) for name in names):
        raise ValueError(f"rankers has the names {names}; expected at least two, of text.")
    if baseline is None:
        return [(later, earlier) for earlier, later in combinations(names, 2)]
    if baseline not in names:
        raise ValueError(f"baseline={baseline!r} is none of the rankers; expected one of {names}.")
    return [(name, baseline) for name in names if name != baseline]


def _documents(rankers, X, y, qid, doc, cluster, judge):
    """Annotated documents; those of a second judge, or None; and the cluster of each query of X,
    or None."""
    has_model = any(hasattr(ranker, "predict") for ranker in rankers.values())
    if X is None:
        X = _rows_alone(y, has_model)
    columns = column_names(X) if is_frame(X) else []
    _check_annotation(y, columns)
    refuse_annotation_as_judge(judge, y)
    X, y = _taken_out(X, y)
    if judge is not None:
        X, judge = take_judge(X, judge)
    if isinstance(cluster, str) and not is_role(cluster):
        X, cluster = _taken_out(X, cluster)
    # Scores are of rows, so that without ids each row is a document.
    if not has_model and doc is None and "doc" not in columns:
        doc = np.arange(count_rows(X))
    roles = {"qid": qid, "doc": doc, "relevance": y}
    documents = AnnotatedDocuments(X, roles, caller="compare_rankers")
    if cluster is not None:
        cluster = cluster_of(X, cluster, documents.read.query, "query")
    if judge is None:
        return documents, None, cluster
    roles["relevance"] = judge
    cheap = AnnotatedDocuments(X, roles, caller="compare_rankers", called="judge's label")
    return documents, SecondJudge(documents, cheap, cluster), cluster


def _values(rankers, documents, second, value):
    """The metric of each query with trusted labels, one column for each ranker."""
    scores = {}
    for name, ranker in rankers.items():
        scores[name] = documents.scores(ranker, repr(name))
        if second is not None:
            are_given = not hasattr(ranker, "predict")
            second.score(name, documents.row_scores, are_given)
    for name, score in scores.items():
        tell_units("scores", *documents.to_order(score), repr(name))
    return pd.DataFrame({name: value(documents, score) for name, score in scores.items()})


def _of_defined(cluster, documents, values):
    """The cluster of each query with trusted labels where the metric is defined; or None."""
    if cluster is None:
        return None
    query = np.unique(documents.read.query[documents.rows])
    return cluster[query][values.notna().all(axis=1)]


def _rows_alone(y, has_model):
    """Rows without columns, as many as there is annotation."""
    if has_model or y is None or isinstance(y, str):
        raise ValueError("X is None; expected it, unless rankers are scores and y an array.")
    return pd.DataFrame(index=range(len(y)))


def _taken_out(X, values):
    """X without a column that is passed by its name, which then is no feature; and its values."""
    if not isinstance(values, str):
        return X, values
    return without_column(X, values), read_column(X, values)


def _check_annotation(y, columns):
    """Raise an error unless there is relevance, and not clicks."""
    is_missing = y is None and "relevance" not in columns
    if is_missing or (isinstance(y, str) and y == "click"):
        raise ValueError(
            "There is no annotation; expected y, or a column 'relevance' of X. Clicks are no "
            f"annotation: {BY_CLICKS}."
        )


def _compare(per_query, group, pairs, level, n_resamples, rng):
    """The table of a comparison; see RankerComparison."""
    names, baselines = map(list, zip(*pairs, strict=True))
    a = per_query[names].to_numpy()
    b = per_query[baselines].to_numpy()
    difference = _difference(a, b)
    mean = difference.mean(axis=0)
    sums, *linear = by_cluster(difference, group)
    lower, upper = bootstrap(*linear, level, n_resamples, rng)
    # p-values by exchanging the rankers of a query at random.
    p_value = sign_flips(sums, n_resamples, rng)
    # With a power of 0.8, at the level of the first of all comparisons.
    smallest = detectable(sums, (1 - level) / len(pairs), power=0.8)
    table = pd.DataFrame(pairs, columns=["ranker", "baseline"])
    table["value"] = a.mean(axis=0)
    table["difference"] = mean
    table["lower"] = lower
    table["upper"] = upper
    table["p_value"] = p_value
    table["p_adjusted"] = holm_adjusted(p_value)
    table["detectable"] = smallest
    table["n_queries"] = len(difference)
    table["wins"] = (difference > 0).sum(axis=0)
    table["ties"] = (difference == 0).sum(axis=0)
    table["losses"] = (difference < 0).sum(axis=0)
    table["verdict"] = _verdicts(table, level)
    return table


def _difference(a, b):
    """Differences of queries, 0 where they are equal up to rounding."""
    is_tie = np.isclose(a, b, rtol=1e-12, atol=0)
    return np.where(is_tie, 0.0, a - b)


def _verdicts(table, level):
    """A verdict needs a small p-value, and an interval without 0."""
    holds_0 = (table["lower"] <= 0) & (table["upper"] >= 0)
    is_sure = (table["p_adjusted"] <= 1 - level) & ~holds_0
    return np.select([~is_sure, table["difference"] > 0], ["cannot tell", "better"], "worse")


def _with_second_judge(found, second, judged_values, how):
    """The comparison with the intervals of both judges, where those are narrower."""
    means = second.improve_means(found.values, how)
    first_level = (1 - how.level) / len(found.table)
    table = second.improve_differences(found.table, _difference, first_level, how)
    table["value"] = means["value"].loc[table["ranker"]].to_numpy()
    table["p_adjusted"] = holm_adjusted(table["p_value"].to_numpy())
    table["verdict"] = _verdicts(table, how.level)
    table["n_judged"] = len(judged_values)
    return replace(found, table=table, values=means, per_judged_query=judged_values)


def _in_words(row, n, unit):
    """One comparison; ``n`` is the number of what was drawn independently."""
    found = f"{row.ranker} - {row.baseline}: {row.difference:+.4f}"
    if np.isfinite(row.lower):
        found += f" [{row.lower:+.4f}, {row.upper:+.4f}]"
    found += f", p = {row.p_adjusted:.2g}; {row.wins} won, {row.ties} tied, {row.losses} lost."
    found += _help_in_words(row)
    if row.verdict != "cannot tell":
        return f"{found} {row.ranker} is {row.verdict}."
    if np.isnan(row.detectable):
        return f"{found} Cannot tell: too few {unit} differ."
    found += f" Cannot tell: {n} {unit} can detect differences above {row.detectable:.2g}"
    if 0 < abs(row.difference) < row.detectable:
        # What is detectable falls as 1 / sqrt(n); two digits say all that is known.
        needed = float(f"{n * (row.detectable / row.difference) ** 2:.2g}")
        found += f". Detecting {abs(row.difference):.2g} would need about {needed:,.0f} {unit}"
        if getattr(row, "judge_weight", 0):
            found += ", and as many times more of the judge's"
    return f"{found}."


def _help_in_words(row):
    """What the judge does for one comparison; nothing without a judge."""
    ratio = getattr(row, "width_ratio", np.nan)
    if np.isnan(ratio):
        return ""
    if row.judge_weight == 0:
        return f" The judge is no help: {row.judge_no_help}."
    return f" The judge narrows the interval by {1 - ratio:.0%}."
