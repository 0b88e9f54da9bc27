"""Debiased clicks as labels of documents, for learners outside this package."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.base import clone

from .._base._sklearn import Interval, validate_params
from .._base._typing import AnyFrame, ArrayLike, Column, Estimator
from .._log._cells import Cells
from .._log._clicklog import ClickLog, sort_into_lists
from .._log._counted import CellCount, counted
from .._log._dataset import ClickDataset
from .._log._estimator import names_of
from .._log._reader import read, take_target
from .._log._roles import (
    FIT_ROLES,
    ROLES,
    is_frame,
    is_role,
    numbers,
    read_column,
    read_role,
    without_column,
)
from .._log._segments import TINY, as_array, encode, pair_codes
from .._models._document_posterior import document_posterior, logged_places
from ._source import (
    PROPENSITY_CONSTRAINT,
    RowsOfLog,
    average_propensities,
    bounded_propensity,
    columns_of_cells,
    debias_clicks,
    is_click_model,
    label_table,
    no_propensities,
    propensities,
    require_positive,
    takes_column,
    warn_about_weights,
)


@validate_params(
    {
        "X": "no_validation",
        "y": ["array-like", str, None],
        "sample_weight": ["array-like", None],
        "propensity": PROPENSITY_CONSTRAINT,
        "user_aware": ["boolean"],
        "clip": [Interval(Real, 0, 1, closed="right"), None],
        "interval": ["boolean"],
        "cluster": ["array-like", str, None],
    },
    prefer_skip_nested_validation=True,
)
def relevance_labels(
    X: AnyFrame | ClickDataset,
    y: Column | str | None = None,
    *,
    sample_weight: Column | None = None,
    propensity: Literal["column"] | ArrayLike | Estimator | None = None,
    user_aware: bool = True,
    clip: float | None = None,
    interval: bool = False,
    cluster: Column | str | None = None,
) -> pd.DataFrame:
    r"""Make relevance labels from clicks: debiased clicks per impression of each document.

    The labels are those that :class:`~skultr.UserAwareIPSRanker` and
    :class:`~skultr.rankers.IPSRanker` are trained on. With propensities :math:`o_i` of the
    :math:`n_d` impressions of a document,

    .. math::
        \text{label}_d = \frac{\sum_i c_i}{\sum_i o_i} \;\text{(user-aware)}, \qquad
        \text{label}_d = \frac{1}{n_d} \sum_i \frac{c_i}{o_i} \;\text{(otherwise)}.

    Parameters
    ----------
    X : DataFrame of shape (n_rows, n_columns) or ClickDataset
        The click log with the roles ``qid``, ``doc``, ``position`` and, if present, ``session``,
        ``user``, ``impressions``, ``propensity``. Features are not read. If X is a frame of an
        engine (lazy Polars, DuckDB, Dask, PySpark), the engine adds up the rows of a document that
        have one position and propensity, and only these counts leave it.
    y : array-like of shape (n_rows,) or str
        Click (0 or 1) of each row; number of clicks or click rate if a row counts several
        ``impressions``. Or the name of the column of X that holds them. A dataset has its own
        clicks.

        It may be another outcome, as rankers take it (``"outcome_purchase"`` or a weighted sum).
        Labels are then its mean per examination, with propensities from the column ``click``, and
        the table has ``outcome`` in place of ``clicks``.
    sample_weight : array-like of shape (n_rows,), default=None
        Multiplies ``impressions``.
    propensity : "column", array-like of shape (n_positions,), estimator or None, default=None
        Where propensities come from, as in :class:`~skultr.rankers.IPSRanker`; None requires the
        role ``propensity``.

        - A model of :mod:`skultr.click_models` estimates examination from the same log: labels
          are the ``relevance`` of its ``documents_``. If no document connects a position to the
          first, its documents are labelled with an assumed examination. With ``interval=True``
          the model must be :class:`~skultr.click_models.UBMModel` or
          :class:`~skultr.click_models.PBMModel`, whose documents have intervals. These include
          the error of examination.
        - A mapping holds a click model, or another estimator, for each user, as in
          :class:`~skultr.UserAwareIPSRanker`. Intervals take its examination to be true.
    user_aware : bool, default=True
        Whether to divide the click rate of a document by its mean propensity over the sessions of
        the query. This has less variance, and allows propensity 0 for users who never look so far.
        If False, each click is divided by its own propensity.
    clip : float in (0, 1], default=None
        Smaller propensities are raised to it.
    interval : bool, default=False
        Whether ``label`` is the posterior mean, with its 95 % interval. A document with few clicks
        then gets about the label of others of its query that were shown as high: the prior mean
        depends on the place in the logged ranking, and on the query (see Notes). Such labels are
        to rank and train by. To compare rankings by, they prefer production to better ones: use
        :func:`~skultr.serving.click_judgments`.
    cluster : array-like of shape (n_rows,) or str, default=None
        Groups of impressions that depend on each other, such as those of one user: one value per
        row, or the name of a column of X. Intervals get wider, and few clicks move labels less:
        clicks and examinations are divided by the dispersion of clicks on a document within
        clusters, which is estimated from the log. Requires ``interval=True``; not for click
        models.

    Returns
    -------
    labels : DataFrame
        ``qid``, ``doc``, ``clicks``, ``impressions`` and ``label``, one row per document of a
        query that was shown. The label estimates P(relevant) if the scale of the propensities is
        known. It may exceed 1 by chance.

        With ``interval=True`` the label lies in [0, 1], and there are also

        - ``lower`` and ``upper``: the ends of the 95 % interval, in [0, 1];
        - ``effective_sample``: the number of examinations :math:`\sum_i o_i` behind the clicks,
          divided by the dispersion within clusters;
        - ``prior_mean``: in [0, 1].

    Raises
    ------
    ValueError
        In these cases:

        - a role is missing or holds invalid values;
        - a row with a click has propensity 0;
        - the mean propensity of a document is 0, or, without ``user_aware``, that of any row;
        - ``interval=True`` without ``user_aware``, or with a click model whose documents have no
          intervals;
        - ``cluster`` without ``interval=True``, or with a click model.

    Notes
    -----
    *Model of the intervals.* The clicks of a document in :math:`E_d = \sum_i o_i` examinations are
    Poisson with mean :math:`r_d E_d`, corrected for the smaller variance of clicks that are 0 or
    1. Relevance :math:`r_d` has a gamma prior with mean :math:`u_q f(x_d)`: f falls with the place
    :math:`x_d`, by isotonic regression, and the factor :math:`u_q` of the query comes from its
    other documents. How far documents and queries scatter is estimated by marginal likelihood
    (empirical Bayes).

    *Place.* If X has the role ``production``, the place is this score less the mean of the query.
    Otherwise it is the mean position over all lists of the query. In a list without the document,
    its position is the one below the last.

    *Ends of the intervals.* They have a wider prior, for three errors: the scatter of documents is
    averaged over its posterior, and the errors of f and of examination are added. The error of
    examination is the ``standard_error`` of an estimator's ``examination_``; propensities of a
    column or an array are taken to be true. Impressions are taken to be independent, except within
    ``cluster``.

    *Coverage* in simulations (``benchmarks/studies/labels.py``); in the worst single log it was
    79 %:

    - 95 to 99 % of 1,000 documents whose log odds are normal (2 to 40 impressions per document,
      weak and strong rankers, known and estimated curves);
    - 92 to 99 % with Zipf traffic, one order, or neighbours swapped;
    - 93 % with 2 impressions of documents of two kinds, relevant with a chance of about 0.67 or
      0.08;
    - in a shop with Zipf traffic, 93 to 99 % with 5,000 or more sessions, and 89 to 99 % with
      2,000, where most products were shown once;
    - 44 to 59 % with users who repeat their clicks five times, and 96 to 99 % with ``cluster``,
      which hardly changes the labels of independent users.

    Intervals mean nothing if users are not position-based.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.propensity import relevance_labels
    >>> X = pd.DataFrame(
    ...     {"qid": 1, "doc": ["a", "b"], "position": [1, 2], "impressions": [100, 100]}
    ... )
    >>> relevance_labels(X, [0.3, 0.2], propensity=[1.0, 0.5])["label"].tolist()
    [0.3, 0.4]
    >>> labels = relevance_labels(X, [0.3, 0.2], propensity=[1.0, 0.5], interval=True)
    >>> labels.columns[4:].tolist()
    ['label', 'lower', 'upper', 'effective_sample', 'prior_mean']
    >>> labels["effective_sample"].tolist()
    [100.0, 50.0]
    """

    def count(X, y):
        return _counted_in_engine(X, y, propensity, cluster, interval)

    # A click model estimates relevance and examination together: its relevance is the label.
    by_model = is_click_model(propensity)
    if cluster is not None and (not interval or by_model):
        raise ValueError(
            "cluster widens the intervals of labels from propensities: expected interval=True and "
            f"no click model. Got interval={interval} and propensity={propensity!r}."
        )
    X, y = counted(X, y, sample_weight, {}, "relevance_labels", count)
    given = X, y
    # `clicks` are those of the column "click" where y is another outcome, else None.
    X, y, _, clicks, scale = take_target(X, y, "relevance_labels")
    _check_documents(X)
    if interval:
        _check_intervals(user_aware, clicks)
    if by_model and clicks is None:
        return _of_click_model(propensity, given, X, y, sample_weight, clip, interval)
    # Else clicks are divided by propensities: given, or by an estimator of examination.
    X, cluster = _read_clusters(X, cluster)
    log, estimator = _log_with_propensities(
        X, y, clicks, sample_weight, propensity, cluster, interval
    )
    if interval:
        return _with_intervals(log, clip, estimator, cluster is not None)
    table = _debiased(log, user_aware, clip)
    table = table.assign(label=table["label"] * scale, clicks=table["clicks"] * scale)
    return table if clicks is None else table.rename(columns={"clicks": "outcome"})


def examined_pairs(
    X: AnyFrame | ClickDataset,
    y: Column | str | None,
    sample_weight: Column | None,
    propensity: Any,
    trust: ArrayLike | None,
    caller: str,
) -> pd.DataFrame:
    """Clicks, impressions and examinations of each document of a query that was shown.

    ``from_trust`` are the clicks that it would have if it were irrelevant.
    """
    _refuse_other_roles(y, caller)
    _refuse_trust_beside_estimators(trust, propensity)

    def count(X, y):
        return _counted_in_engine(X, y, propensity, None, False)

    X, y = counted(X, y, sample_weight, {}, caller, count)
    X, y, _, clicks, _ = take_target(X, y, caller)
    if clicks is not None:
        raise ValueError(
            f"y is another outcome than the click, and {caller} counts clicks in examinations. "
            "Pass y='click'; relevance_labels takes other outcomes."
        )
    _check_documents(X)
    log, _ = _log_with_propensities(X, y, None, sample_weight, propensity, None, False)
    table = label_table(log, log.clicks).drop(columns="label")
    # What a label sums are clicks per impression; here it sums chances instead.
    chances = {"examinations": log.propensity, "from_trust": _chance_by_trust(log, trust)}
    for name, chance in chances.items():
        per_impression = label_table(log, chance * log.weight)["label"]
        table[name] = per_impression * table["impressions"]
    return table


def _refuse_other_roles(y, caller):
    """Raise an error if y names a role other than the click, whose values may pass for clicks."""
    # Grades of people, above all: those of 0 and 1 would be taken without a word.
    is_other = isinstance(y, str) and y != "click" and y in ROLES
    if is_other:
        raise ValueError(
            f"y is {y!r}, the name of another role, and {caller} counts clicks in examinations. "
            "Pass y='click', or the name that the column of clicks has."
        )


def _refuse_trust_beside_estimators(trust, propensity):
    """Raise an error if propensities that know nothing of trust would stand beside it."""
    is_learned = hasattr(propensity, "fit") or isinstance(propensity, Mapping)
    if trust is not None and is_learned:
        raise ValueError(
            f"trust is given, and propensity learns examination by {propensity!r}, for which "
            "only relevant documents are clicked; expected numbers that were learned together. "
            "Pass alpha and beta of trust_ of skultr.rankers.AffineRanker as propensity and "
            "trust, or trust=None."
        )


def _chance_by_trust(log, trust):
    """Chance of a click on each row if its document is irrelevant: of its position."""
    if trust is None:
        return np.zeros(log.n_rows)
    chances = numbers("trust", np.atleast_1d(trust))
    deepest = int(log.position.max(initial=0))
    # NaN is no chance either.
    is_chance = (chances >= 0) & (chances < 1)
    if chances.ndim != 1 or len(chances) < deepest or not is_chance.all():
        raise ValueError(
            f"trust is {chances.tolist()}; expected the chance of a click on an irrelevant "
            f"document, from 0 to below 1, at each of the {deepest} positions of the log."
        )
    return chances[log.position - 1]


def _log_with_propensities(X, y, clicks, sample_weight, propensity, cluster, interval):
    """The log in lists, with the clicks or the other outcome y, and the estimator, if any."""
    clicked = y if clicks is None else clicks
    source = RowsOfLog(X, clicked, sample_weight, {})
    row_propensities, estimator = propensities(propensity, source, default=no_propensities)
    reads = (*FIT_ROLES, "production") if interval else FIT_ROLES
    # The log has a place for users, which nothing reads once propensities are known.
    roles = {"propensity": row_propensities, "user": cluster}
    rows = read(X, clicked, sample_weight, roles, reads=reads)
    if clicks is not None:
        rows = rows.of_outcome(y)
    return sort_into_lists(rows, _no_features(len(y))), estimator


def _counted_in_engine(X, y, propensity, cluster, interval):
    """Cells of a log in an engine, by all that decides propensities, clusters and priors."""
    by = ["position", "bias", "propensity", *columns_of_cells(propensity, names_of(X))]
    if isinstance(cluster, str):
        by.append(cluster)
    mean = ["production"] if interval else []
    return CellCount.of(X, y, by, mean=mean).cells()


def _check_documents(X):
    if is_frame(X) and read_role(X, "doc") is not None:
        return
    without = " without the column" if is_frame(X) else ""
    raise ValueError(
        "X must be a frame with a column 'doc': expected one row per shown document, with its "
        f"id. Got a {type(X).__name__}{without}."
    )


def _check_intervals(user_aware, clicks):
    if not user_aware:
        raise ValueError(
            "interval=True needs user_aware=True, because the interval depends on a document's "
            "clicks and the sum of its propensities. Leave user_aware at its default."
        )
    if clicks is not None:
        raise ValueError(
            "y is another outcome than the click, and interval=True is for clicks, which are 0 or "
            "1. Leave it out, or pass y='click'."
        )


def _no_features(n_rows):
    return np.empty((n_rows, 0), dtype=np.float32)


def _debiased(log, user_aware, clip):
    """Labels without intervals, of a log with propensities."""
    if user_aware:
        log = average_propensities(log)
    else:
        require_positive(log)
    divisor = bounded_propensity(log, clip)
    warn_about_weights(log, divisor, queries=False)
    debiased = debias_clicks(log, divisor=divisor)
    return label_table(log, debiased.clicks)


def _read_clusters(X, cluster):
    """X without a column of clusters, and the cluster of each row, or None."""
    if cluster is None:
        return X, None
    if isinstance(cluster, str):
        name = cluster
        cluster = read_column(X, name)
        if not is_role(name):
            X = without_column(X, name)
    gaps = np.flatnonzero(pd.isna(as_array(cluster)))
    if gaps.size:
        raise ValueError(
            f"cluster is missing in {gaps.size} rows, first in row {gaps[0]}; expected an id in "
            "every row. Give rows without one ids of their own."
        )
    return X, cluster


def _of_click_model(model, given, X, y, sample_weight, clip, interval):
    """Relevance of each document of a query by a click model."""
    if clip is not None:
        raise ValueError(f"clip={clip} raises propensities, and a click model has none: drop it.")
    # Two sources of propensities would contradict each other.
    takes_column(model, read_role(X, "propensity") is not None)
    documents = clone(model).fit(*given, sample_weight).documents_
    if interval and "lower" not in documents:
        raise ValueError(
            f"Documents of {model!r} have no intervals; expected UBMModel() or PBMModel(), with "
            "their default prior and solver."
        )
    rows = read(X, y, sample_weight, reads=FIT_ROLES)
    log = sort_into_lists(rows, _no_features(len(y)))
    # Ids, clicks and impressions of each document; the label is the model's.
    table = label_table(log, log.clicks).drop(columns="label")
    found = documents.rename(columns={"relevance": "label"})
    if not interval:
        found = found["label"]
    return table.join(found, on=[*documents.index.names])


def _with_intervals(
    log: ClickLog, clip: float | None, estimator: Any, clustered: bool
) -> pd.DataFrame:
    """Posterior mean, interval and effective sample of each document of a query."""
    error = _examination_error(log, estimator)
    table = label_table(log, log.clicks)
    # The prior mean depends on the place in the logged ranking.
    places = logged_places(log)
    examination = np.maximum(log.propensity, clip or 0.0)

    def posterior(dispersion):
        # Each row has an examination of its own.
        cells = Cells(
            places.pair,
            np.arange(log.n_rows),
            log.clicks / dispersion,
            log.weight / dispersion,
            len(places.query),
            log.n_rows,
        )
        return document_posterior(
            cells, examination, query=places.query, place=places.place, error=error
        )

    found = posterior(1.0)
    if clustered:
        # Dispersion within clusters, and relevance given it, are estimated in turn. In three
        # rounds, and not until they agree: relevance follows the clicks that it is judged by, so
        # that with 2 impressions a dispersion of 5 ends at 4.2 (4.5 after three rounds; with 40
        # impressions 4.8).
        for _ in range(3):
            click_rate = found.mean[places.pair] * examination
            found = posterior(_dispersion(log, places.pair, click_rate))
    return table.assign(
        label=found.mean,
        lower=found.lower,
        upper=found.upper,
        effective_sample=found.effective_sample,
        prior_mean=found.prior_mean,
    )


def _examination_error(log, estimator):
    """Standard error of the log examination of each row, or None where it is taken to be true."""
    # That of all users together: the error of a document is about the mean over its users.
    curve = getattr(estimator, "average_examination_", getattr(estimator, "examination_", {}))
    if "standard_error" not in curve:
        return None
    error = curve["standard_error"].reindex(log.bias_values).fillna(0.0)
    return error.to_numpy()[log.bias]


def _dispersion(log, pair, click_rate):
    """Variance of the sums of clicks by document and cluster, 1 if these are independent."""
    n_clusters = int(log.user.max(initial=0)) + 1
    code, _ = encode(pair_codes(pair, log.user, n_clusters))
    # The square of a sum over a cluster has the variance of all its clicks together.
    squares = np.bincount(code, log.clicks - log.weight * click_rate) ** 2
    binomial = log.weight @ (click_rate * (1 - click_rate))
    return max(1.0, squares.sum() / max(binomial, TINY))
