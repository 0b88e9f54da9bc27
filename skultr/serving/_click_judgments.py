"""Judgments from clicks to compare rankings by: what clicks say, and nothing that ranks."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd

from .._base._sklearn import validate_params
from .._base._typing import AnyFrame, ArrayLike, Column, Estimator
from .._log._dataset import ClickDataset
from .._log._segments import TINY, encode
from ..propensity._relevance_labels import examined_pairs
from ..propensity._source import PROPENSITY_CONSTRAINT
from ._thresholds import FEWEST_EXAMINATIONS, PRIOR_EXAMINATIONS


@validate_params(
    {
        "X": "no_validation",
        "y": ["array-like", str, None],
        "propensity": PROPENSITY_CONSTRAINT,
        "trust": ["array-like", None],
        "sample_weight": ["array-like", None],
    },
    prefer_skip_nested_validation=True,
)
def click_judgments(
    X: AnyFrame | ClickDataset,
    y: Column | str | None = None,
    *,
    propensity: Literal["column"] | ArrayLike | Estimator | None = None,
    trust: ArrayLike | None = None,
    sample_weight: Column | None = None,
) -> pd.DataFrame:
    r"""Judgments from clicks to compare rankings by, which favour neither production nor novelty.

    A rating is the clicks of a document per examination, drawn a little towards the mean of its
    query. It does not know where production put the document. Labels of
    :func:`~skultr.propensity.relevance_labels` with ``interval=True`` do: they order documents
    better, and are for training, but as judgments they prefer production to better rankings.

    Parameters
    ----------
    X : DataFrame of shape (n_rows, n_columns) or ClickDataset
        The click log, as in :func:`~skultr.propensity.relevance_labels`, in memory or in an
        engine: roles ``qid``, ``doc``, ``position`` and, if present, ``session``, ``user``,
        ``impressions`` and ``propensity``.
    y : array-like of shape (n_rows,) or str
        Clicks, or their column of X. A dataset has its own.
    propensity : "column", array-like of shape (n_positions,), estimator or None, default=None
        Where the chance of examination comes from, as in
        :func:`~skultr.propensity.relevance_labels`. Of a click model, such as
        :class:`~skultr.click_models.UBMModel`, only the examination is read.
        Numbers are taken as they are: 1 is a document that everyone looks at. The largest, or
        with ``trust`` the largest sum of both, should be about 1. Half of all propensities make
        ratings about twice as large, which no comparison with ``gain="linear"`` shows, but also
        half the examinations: more pairs are unrated, and the prior counts more.
    trust : array-like of shape (n_positions,), default=None
        Chance of a click on an irrelevant document at each position, by users who trust the
        order: ``beta`` of ``trust_`` of :class:`~skultr.rankers.AffineRanker`, whose ``alpha`` is
        then the ``propensity``, and as small as it is: a relevant document is clicked with the
        chance alpha + beta. None: irrelevant documents are not clicked. An estimator as
        ``propensity`` knows nothing of trust, and is refused beside it.
    sample_weight : array-like of shape (n_rows,), default=None
        Multiplies ``impressions``.

    Returns
    -------
    judgments : pandas.DataFrame
        One row per document of a query that was shown: ``qid``, ``doc``, ``clicks``,
        ``impressions``, and

        - ``examinations``, the sum of the propensities of its impressions;
        - ``relevance``, the rating, at least 0, and NaN with less than one examination: metrics
          and exports leave such a pair out;
        - ``standard_error`` of the rating, by the number of clicks alone: above 0 in any log
          with clicks;
        - ``prior_share``, from 0 to 0.5: how much of the rating is the mean of the query.

        A document that was never shown has no row: it is unrated, not irrelevant.

    Raises
    ------
    ValueError
        If a role is missing or invalid, y is another outcome than the click or the name of
        another role, such as ``"relevance"``, or ``trust`` covers fewer positions than the log,
        is no chance, or stands beside an estimator.

    See Also
    --------
    export_judgments : Writes them for OpenSearch, Quepid and TREC.
    skultr.evaluation.compare_rankers : Compares rankers by them; use ``gain="linear"``.
    skultr.propensity.relevance_labels : Labels to train by, and to order documents by.
    skultr.evaluation.policy_difference : Difference of two rankings in clicks, from the pages.

    Notes
    -----
    A document with :math:`c` clicks in :math:`E = \sum_i o_i` examinations has the rating

    .. math::
        r = \max\left(0, \frac{c - B + k m}{E + k}\right), \qquad
        m = \sum_d \frac{c_d - B_d}{E_d + k} \bigg/ \sum_d \frac{E_d}{E_d + k},

    where :math:`B` is the sum of ``trust`` over its impressions, :math:`k = 1` examination, and
    :math:`m` the mean over the documents d of the query. In :math:`m` much examined documents
    count little more than others. Weighed by examinations it would be the mean of what production
    put on top, and ratings of rarely shown documents would be too high.

    The ``standard_error`` is the root of the mean squared distance of the relevance from
    :math:`r`, given the clicks. For it alone, the prior of the relevance is exponential: all that
    is known before is its mean. Then the relevance has a gamma posterior, and

    .. math::
        s^2 = (1 + c' + B)\, v^2 + (r - (1 + c')\, v)^2, \qquad
        v = \frac{m'}{1 + m' E}, \qquad
        m' = \frac{(1 + c'_q)\, m_0}{1 + m_0 E_q},

    where :math:`c' = \max(0, c - B)`, :math:`c'_q` and :math:`E_q` are its sum and that of
    :math:`E` over the query, and :math:`m_0` the clicks per examination of the log. So the error
    is above 0 where nobody clicked, unless the whole log has no click. Two standard errors held
    90, 91, 94 and 95 % of the relevances after 1, 2, 5 and 20 examinations, where ten documents
    of a query had relevances of Beta(1, 6). The error of the propensities is not in it.

    *They decide only large differences.* Of 408 pairs of rankings of 48 simulated logs
    :func:`~skultr.evaluation.compare_rankers` decided 56 %, and was right in 98 % of these (COEC:
    85 %, click rates: 67 %, labels: 70 %; ``benchmarks/studies/judgments.py``). Versions of one
    ranker were never confused. Production chose which documents are rated, among which it orders
    less well: it may lose against slightly worse rivals. Where the verdict is "cannot tell", or
    production and a rival differ little, ask :func:`~skultr.evaluation.policy_difference`, or an
    experiment.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.serving import click_judgments
    >>> X = pd.DataFrame(
    ...     {"qid": 1, "doc": ["a", "b", "c"], "position": [1, 2, 3], "impressions": [100, 100, 4]}
    ... )
    >>> judged = click_judgments(X, [0.3, 0.2, 0.0], propensity=[1.0, 0.5, 0.2])
    >>> judged[["doc", "examinations", "relevance", "prior_share"]].round(2)
      doc  examinations  relevance  prior_share
    0   a         100.0       0.30         0.01
    1   b          50.0       0.40         0.02
    2   c           0.8        NaN          NaN
    """
    table = examined_pairs(X, y, sample_weight, propensity, trust, "click_judgments")
    examinations = table["examinations"]
    from_trust = table.pop("from_trust")
    relevant_clicks = table["clicks"] - from_trust
    strength = PRIOR_EXAMINATIONS.value
    known = examinations + strength
    mean = _mean_of_query(table["qid"], relevant_clicks, examinations, known)
    # Fewer clicks than trust alone explains say that the document is irrelevant.
    rating = ((relevant_clicks + strength * mean) / known).clip(lower=0)
    error = _standard_error(table, rating, from_trust)
    found = table.assign(
        relevance=rating,
        standard_error=error,
        prior_share=strength / known,
    )
    # Of these pairs the clicks say less than the prior does.
    is_unrated = examinations < FEWEST_EXAMINATIONS.value
    found.loc[is_unrated, ["relevance", "standard_error", "prior_share"]] = np.nan
    return found


def _mean_of_query(qid, clicks, examinations, known):
    """Mean rating of the query of each pair: pairs count by how much is known of them."""
    query, ids = encode(qid.to_numpy())
    n_queries = len(ids)
    total = np.bincount(query, clicks / known, n_queries)
    weight = np.bincount(query, examinations / known, n_queries)
    # A query that nobody examined has no pair with a rating.
    mean = total / np.where(weight > 0, weight, 1.0)
    return mean[query]


def _standard_error(table, rating, from_trust):
    """How far the rating is from the relevance by the clicks: above 0 in a log with clicks."""
    examinations = table["examinations"]
    # More clicks by trust than clicks do not tell more than none do.
    relevant_clicks = (table["clicks"] - from_trust).clip(lower=0)
    query, ids = encode(table["qid"].to_numpy())
    n_clicks = np.bincount(query, relevant_clicks, len(ids))
    n_examinations = np.bincount(query, examinations, len(ids))
    # Clicks by trust count here: without them the mean of a log with clicks might be 0.
    mean_of_log = table["clicks"].sum() / max(examinations.sum(), TINY)
    # What the log says of the query is what the query says of the document.
    mean = (1 + n_clicks) * _posterior_scale(mean_of_log, n_examinations)
    scale = _posterior_scale(mean[query], examinations)
    # Clicks by trust add variance and no relevance.
    variance = (1 + relevant_clicks + from_trust) * scale**2
    # The prior of the rating is another: its mean is not that of this posterior.
    distance = rating - (1 + relevant_clicks) * scale
    return np.sqrt(variance + distance**2)


def _posterior_scale(mean, examinations):
    """Scale of the gamma posterior of a rate whose prior is exponential, with this mean."""
    return mean / (1 + mean * examinations)
