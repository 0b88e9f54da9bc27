"""Labels of documents in the engine that holds the log, for distributed learners."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, Literal

import narwhals.stable.v2 as nw
import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._base._sklearn import Interval, validate_params
from .._base._typing import AnyFrame, ArrayLike, Predictor
from .._log._counted import (
    Count,
    EngineLog,
    check_counts,
    code_ids,
    collect,
    count_by,
    decode,
    in_engine_of,
)
from .._log._faults import count_of
from .._log._roles import open_frame
from ..exceptions import python_value
from ._source import (
    MEAN_PROPENSITY,
    PROPENSITY_CONSTRAINT,
    check_curve,
    columns_of_source,
    is_click_model,
    no_propensities,
    refuse_wrong_source,
    takes_column,
    zero_propensity,
)

#: Roles that decide how likely a row was examined, if an estimator reads them.
_PLACES = ("position", "bias")
#: Sums over the impressions of a document that its label and weight are made of.
_SUMS = ["_weight", "_click", "_examinations"]


@validate_params(
    {
        "frame": "no_validation",
        "propensity": PROPENSITY_CONSTRAINT,
        "click": [str],
        "user_aware": ["boolean"],
        "clip": [Interval(Real, 0, 1, closed="right"), None],
    },
    prefer_skip_nested_validation=True,
)
def debiased_table(
    frame: AnyFrame,
    propensity: Literal["column"] | ArrayLike | Predictor | None = None,
    *,
    click: str = "click",
    user_aware: bool = True,
    clip: float | None = None,
) -> Any:
    r"""Relevance labels of documents, computed inside DuckDB, Polars, Dask or Spark.

    The labels are those of :func:`relevance_labels`, for a log larger than memory. The engine
    counts, and the table stays in the engine. There you join it with features for LightGBM on
    Dask, XGBoost on Dask or Spark, or SynapseML. A lazy frame gives a lazy frame.

    Parameters
    ----------
    frame : frame
        One row per impression: a pandas, Polars (eager or lazy), PyArrow, DuckDB, Dask or PySpark
        frame with the clicks and the columns ``qid``, ``doc`` and ``position`` (from 1; missing
        where the row was not shown). Optional columns are ``impressions``, ``propensity`` and
        what the estimator of propensities reads (``bias``, ``user``). Other columns are ignored.
    propensity : "column", array-like of shape (n_positions,), fitted estimator, default=None
        Where propensities come from: the role ``propensity`` ("column" or None), one number per
        position, or a fitted estimator of :mod:`skultr.propensity`. An estimator predicts once for
        each distinct value of the columns that it reads, and these few rows are joined to the
        log. If a context differs in every row, pass its propensities as the role instead.
    click : str, default="click"
        Name of the column of clicks. Without a column ``impressions`` it holds values between 0
        and 1; larger ones are graded relevance, and divided by their maximum. With
        ``impressions`` it holds the number of clicks of each row, at most its impressions, or its
        click rate.
    user_aware : bool, default=True
        Whether to divide the click rate of a document by its mean propensity over the impressions
        of the query. If False, each click is divided by its own propensity.
    clip : float in (0, 1], default=None
        Smaller propensities (with ``user_aware``, smaller means) are raised to it.

    Returns
    -------
    table : frame of the same kind
        One row per document of a query that was shown:

        - ``qid``, ``doc``: its keys;
        - ``label``: debiased clicks per impression. It estimates P(relevant) if the scale of the
          propensities is known, and may exceed 1 by chance;
        - ``weight``: examinations behind the label, which is its number of impressions times the
          (harmonic) mean of the propensities. The variance of a label is about the label divided
          by this number;
        - ``group``: number of the query from 0, for learners whose groups must be integers.

        The table is sorted by query and document, except in Spark. Dask numbers the queries in
        arbitrary order, and keeps all rows of a query in one partition.

    Raises
    ------
    ValueError
        In these cases:

        - a column is missing or holds invalid values;
        - the curve does not cover the positions;
        - ``propensity`` is a click model, or a mapping from users to estimators;
        - an estimator predicts anything but probabilities above 0;
        - a row with a click has propensity 0;
        - the mean propensity of a document is 0, or, without ``user_aware``, that of any row.

    See Also
    --------
    relevance_labels : The same in memory, with intervals.
    skultr.aggregate_clicks : The distinct lists of a log, for rankers of this package.

    Notes
    -----
    *Passes.* The log is read twice: to check it, and to count the cells of the estimator (or find
    the smallest propensity). The rest is left to the engine, and runs when the table is read.

    *What is not checked*, because it would take a sort of the log: that a list has one row per
    position, and that a few clicks do not carry most of the weight.

    Examples
    --------
    >>> import polars as pl
    >>> from skultr.propensity import debiased_table
    >>> log = pl.LazyFrame({
    ...     "qid": ["q"] * 4,
    ...     "doc": ["a", "b", "b", "a"],
    ...     "position": [1, 2, 1, 2],
    ...     "click": [1, 0, 1, 0],
    ... })
    >>> table = debiased_table(log, propensity=[1.0, 0.25])
    >>> type(table).__name__
    'LazyFrame'
    >>> table.collect().to_dicts()[0]
    {'qid': 'q', 'doc': 'a', 'label': 0.8, 'weight': 1.25, 'group': 0}
    """
    schema = open_frame(frame, "frame").collect_schema()
    takes_given = takes_column(propensity, "propensity" in schema)
    if propensity is None and not takes_given:
        no_propensities()
    keys = ["propensity"] if takes_given else _read_by(propensity, schema)
    rows = _rows_of(frame, click, keys)
    rows, least = _with_propensities(rows, None if takes_given else propensity, keys)
    # Without averaging, each row divides; else the mean of a document does.
    if not user_aware:
        _refuse_zeros(rows.filter(nw.col("propensity") <= 0), "propensity", least)
    table = _sums(rows, user_aware, clip)
    if user_aware:
        _refuse_zeros(table.filter(nw.col("_examinations") <= 0), MEAN_PROPENSITY, least)
    table = table.select("qid", "doc", *_estimate(user_aware, clip), "group")
    # An eager frame gives an eager table.
    if isinstance(nw.from_native(frame), nw.DataFrame):
        table = collect(table)
    return table.to_native()


def _rows_of(frame, click, keys):
    """The shown rows of the log in its engine: document, weight, clicks and keys."""
    columns = ["qid", "doc", *_PLACES, "impressions", *keys]
    log = EngineLog.of(frame, click, columns, needs=["qid", "doc", "position"])
    read = {name: log.key(name) for name in ("qid", "doc", *keys)}
    read["_weight"] = nw.lit(1.0) if log.weight is None else log.weight
    return log.rows(read)


def _read_by(source, schema):
    """Names of the columns that decide the propensity of a row, beside the role."""
    if source is None or isinstance(source, str):
        return []
    if isinstance(source, Mapping) or is_click_model(source):
        raise ValueError(
            f"propensity is a {type(source).__name__}; expected one number per position, or a "
            "fitted estimator of skultr.propensity. Click models, and an estimator for each user, "
            "do not work in an engine: add examination as the column 'propensity', or use "
            "relevance_labels."
        )
    if not hasattr(source, "fit"):
        return ["position"]
    refuse_wrong_source(source)
    check_is_fitted(source)
    # Any other estimator, such as a pipeline, reads its roles as columns.
    roles = [*_PLACES]
    if getattr(source, "_reads_users", True):
        roles.append("user")
    names = dict.fromkeys([*roles, *sorted(columns_of_source(source))])
    return [name for name in names if name in schema]


# Propensities -------------------------------------------------------------------------
def _with_propensities(rows, source, keys):
    """The rows with ``propensity``, predicted once per distinct value of its keys; the smallest.

    Without a source the rows have it.
    """
    if source is None:
        # One pass over the log for all that is checked.
        n_rows = nw.len().alias("_n")
        sums = nw.col("_click", "_weight").sum()
        least = nw.col("propensity").min().alias("_least")
        totals = collect(rows.select(n_rows, sums, least))
        total = Count(totals.filter(nw.col("_n") > 0), {})
        check_counts(total.weight, total.clicks)
        return rows, totals["_least"][0]
    # One row per distinct key: small, whatever the log.
    count = count_by(rows, keys)
    check_counts(count.weight, count.clicks)
    cells = count.table.select(keys)
    # An estimator, or a curve by position.
    if hasattr(source, "fit"):
        predicted = _predict(source, cells)
    else:
        position = cells["position"].to_numpy()
        predicted = check_curve(source, int(position.max()))[position - 1]
    predicted = nw.new_series("propensity", predicted, backend=cells.implementation)
    # Back into the engine, and joined to the log there.
    cells = in_engine_of(rows, cells.with_columns(predicted))
    return rows.join(cells, on=keys, how="left").drop(*keys), 1.0


def _predict(estimator, cells):
    predicted = np.asarray(estimator.predict(cells.to_native()), dtype=float)
    wrong = np.flatnonzero(~((predicted > 0) & (predicted <= 1)))
    if len(wrong):
        first = int(wrong[0])
        found = {name: python_value(cells[name][first]) for name in cells.columns}
        raise ValueError(
            f"{type(estimator).__name__} predicts {predicted[first]:g} for {found}; expected "
            "the probability that a row was examined, in (0, 1]. Correct the estimator, or add "
            "the column 'propensity'."
        )
    return predicted


def _refuse_zeros(rows, what, least):
    """Raise if there are rows to which no click can be attributed."""
    if least > 0:  # spares a pass over the log
        return
    n_rows = int(collect(rows.select(nw.len())).row(0)[0])
    if n_rows:
        query, doc = collect(rows.select("qid", "doc").head(1)).row(0)
        where = f"such as in qid {python_value(query)!r}, doc {python_value(doc)!r}"
        raise zero_propensity(what, count_of(n_rows, "row"), where)


# Sums by document ---------------------------------------------------------------------
def _sums(rows, user_aware, clip):
    """Sums over the impressions of each document of a query, and the number of the query.

    ``_examinations`` is the sum of the propensities; without ``user_aware`` it is the sum of
    their inverses, and clicks are divided by them.
    """
    weight = nw.col("_weight")
    clicks = nw.col("_click")
    propensity = nw.col("propensity")
    if user_aware:
        examinations = weight * propensity
    else:
        divisor = _at_least(propensity, clip)
        clicks = clicks / divisor
        examinations = weight / divisor
    clicks = clicks.alias("_click")
    examinations = examinations.alias("_examinations")
    rows = rows.select("qid", "doc", clicks, weight, examinations)
    if rows.implementation.is_dask():
        return nw.from_native(_sums_in_dask(rows.to_native()))
    # Whole numbers take less memory than ids in a group-by.
    rows, ids = code_ids(rows, ["qid", "doc"])
    table = rows.group_by("qid", "doc").agg(nw.col(*_SUMS).sum())
    # Queries by number, in their order.
    number = (nw.col("qid").rank("dense") - 1).cast(nw.Int64).alias("group")
    queries = rows.group_by("qid").agg(nw.len().alias("_n")).select("qid", number)
    table = table.join(queries, on="qid", how="left")
    if table.implementation.is_spark_like():
        return table  # a sort would shuffle it, and it keeps no order in the next step anyway
    table = nw.maybe_reset_index(table.sort("qid", "doc"))
    names = []
    for key, values in ids.items():
        names.append(decode(key, values, table[key].to_numpy(), table.implementation))
    return table.with_columns(*names) if names else table


def _sums_in_dask(rows):
    """Sums with all documents of a query in one partition, as rankers need them."""
    sums = rows.map_partitions(_sum_by_document)  # first where the rows are: less to move
    sums = sums.shuffle("qid").map_partitions(_sum_by_document)
    # The number of queries that have begun.
    is_first = sums["qid"].map_partitions(_first_rows, meta=("group", "int64"))
    return sums.assign(group=is_first.cumsum() - 1)


def _sum_by_document(rows):
    return rows.groupby(["qid", "doc"], observed=True)[_SUMS].sum().reset_index()


def _first_rows(query):
    return (~query.duplicated()).astype("int64").rename("group")


# The estimate -------------------------------------------------------------------------
def _estimate(user_aware, clip):
    """Label and weight of a document from its sums, as ``document_labels`` has them."""
    impressions = nw.col("_weight")
    clicks = nw.col("_click")
    examinations = nw.col("_examinations")
    if user_aware:
        mean = examinations / impressions
        mean = nw.when(mean > 1).then(nw.lit(1.0)).otherwise(mean)  # by rounding
        weight = impressions * _at_least(mean, clip)
        label = clicks / weight
    else:
        label = clicks / impressions
        # Impressions times the harmonic mean of propensities.
        weight = impressions * impressions / examinations
    return label.alias("label"), weight.alias("weight")


def _at_least(propensity, clip):
    if clip is None:
        return propensity
    return nw.when(propensity < clip).then(nw.lit(float(clip))).otherwise(propensity)
