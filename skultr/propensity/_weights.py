"""Debiased clicks: inverse propensities, their effect on the variance, and document labels."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from .._log._faults import count_of
from .._log._segments import pair_codes
from ..exceptions import UnstableWeightsWarning, python_value, warn_user

#: A warning is due if so few clicks, as a number or a share of all, carry half of the weight.
_FEW_CLICKS, _FEW_CLICKS_SHARE = 10, 0.001
#: A warning is due if weights leave less than this share of the clicks as effective sample, and
#: fewer effective clicks than that per query with clicks.
_SMALL_SHARE, _SMALL_SAMPLE = 0.7, 5.0


class DebiasedClicks(NamedTuple):
    """Debiased number of clicks per row, and how evenly clicks contribute to an estimate."""

    clicks: np.ndarray  # (n_rows,)
    effective_sample_size: float
    largest_weight: float
    clipped_share: float


class DocumentLabels(NamedTuple):
    """One label per document of a query."""

    query: np.ndarray  # (n_labels,)
    doc: np.ndarray  # (n_labels,)
    label: np.ndarray  # (n_labels,)
    weight: np.ndarray  # (n_labels,)


def average_propensities(log):
    """The log with the propensity of each row replaced by P(examined | query, document).

    That is the mean propensity of the document over its impressions in all sessions of the query,
    of all users and at all positions. Single propensities may be 0, as for a user who never looks
    that far.
    """
    place, n_places = _documents_of(log)[1:]
    mean = np.bincount(place, log.propensity * log.weight, minlength=n_places)
    mean /= np.bincount(place, log.weight, minlength=n_places)
    propensity = np.clip(mean, 0.0, 1.0)[place]  # rounding may lift a mean above 1
    log = replace(log, propensity=propensity, all_lists_differ=False)
    require_positive(log, "The mean propensity over all impressions of a document in its query")
    return log


def require_positive(log, what="propensity"):
    """Raise if a propensity is 0, which no click can be divided by."""
    zero = np.flatnonzero(log.propensity <= 0)
    if len(zero):
        query = python_value(log.query_ids[log.query[zero[0]]])
        where = f"first at position {log.position[zero[0]]} of query {query!r}"
        raise zero_propensity(what, count_of(len(zero), "shown row"), where)


def zero_propensity(what, rows, where):
    """The error of a propensity of 0."""
    averages = (
        " If only some users never examine it, average over users: UserAwareIPSRanker, "
        "LambdaMARTRanker(debiasing='user-aware'), or relevance_labels and debiased_table with "
        "user_aware=True."
    )
    return ValueError(
        f"{what} is 0 in {rows}, {where}; expected a number in (0, 1]. A row that nobody could "
        f"examine should have no position.{averages * (what == 'propensity')}"
    )


def debias_clicks(log, *, clip=None, normalize=False):
    """Debiased number of clicks per row: clicks over propensities."""
    least = clip or 0.0
    weight = np.maximum(log.propensity, least)
    np.divide(1, weight, out=weight)  # in place, as below: a log may have 10^8 rows
    clicks = log.clicks * weight
    n_clicks, total = log.clicks.sum(), clicks.sum()
    if n_clicks == 0:
        return DebiasedClicks(clicks, 0.0, np.nan, 0.0)
    found = DebiasedClicks(
        clicks=clicks,
        effective_sample_size=float(total**2 / (clicks @ weight)),
        largest_weight=float(weight[log.clicks > 0].max() * n_clicks / total),
        clipped_share=float(log.clicks[log.propensity < least].sum() / n_clicks),
    )
    if normalize:
        clicks *= n_clicks / total
    return found


def document_labels(log, clicks, propensity=None):
    """Labels of the documents that were shown: (debiased) clicks per impression."""
    (query, doc), place, n_places = _documents_of(log)

    def total(values):
        return np.bincount(place, values, minlength=n_places)

    impressions = total(log.weight)
    weight = impressions
    if propensity is not None:
        weight = impressions**2 / total(log.weight / propensity)
    return DocumentLabels(query, doc, total(clicks) / impressions, weight)


def examples_of(log, labels):
    """Training rows of labels: the features of each, and the labels, one row per version.

    A document that was shown with several feature vectors is several rows with its label, which
    divide its weight by their impressions.
    """
    pair, version, share = log.versions_of(labels.query, labels.doc)
    return version, DocumentLabels(
        labels.query[pair], labels.doc[pair], labels.label[pair], labels.weight[pair] * share
    )


def label_table(log, clicks):
    """One row per document of a query: ids, clicks, impressions and label."""
    labels = document_labels(log, clicks)
    raw = document_labels(log, log.clicks)
    return pd.DataFrame(
        {
            "qid": log.query_ids[labels.query],
            "doc": labels.doc
            if log.doc_ids is None
            else log.doc_ids.get_level_values("doc").to_numpy()[labels.doc],
            "clicks": raw.label * raw.weight,
            "impressions": labels.weight,
            "label": labels.label,
        }
    )


def _documents_of(log):
    """Distinct (query, doc) pairs, the place of each row among them, and their number."""
    pair = pair_codes(log.query, log.doc, log.n_docs)
    key = np.unique(pair)  # in less memory than by hashes
    place = np.searchsorted(key, pair)
    return np.divmod(key, log.n_docs), place, len(key)


def warn_about_weights(log, *, clip=None, queries=True):
    """Warn of weights whose noise decides what is learned from the debiased clicks."""
    clicked = log.clicks > 0
    clicks, propensity = log.clicks[clicked], log.propensity[clicked]
    weight = 1 / (propensity if clip is None else np.maximum(propensity, clip))
    if not len(clicks) or _warn_about_few_clicks(clicks, weight) or not queries:
        return
    n_queries, n_clicks = len(np.unique(log.query[clicked])), clicks.sum()
    sample = (clicks @ weight) ** 2 / (clicks @ weight**2)
    if sample < min(_SMALL_SHARE * n_clicks, _SMALL_SAMPLE * n_queries):
        warn_user(
            f"Inverse propensities make {n_clicks:.0f} clicks as noisy as {sample:.0f}: "
            f"{sample / n_queries:.1f} per query with clicks. Below {_SMALL_SAMPLE:.0f} the "
            "result may be worse than that of clicks as they are (NaiveRanker). Collect more "
            "clicks, set clip=0.1 or more, or use IPSRanker with its defaults correction='auto' "
            "and clip='auto'.",
            UnstableWeightsWarning,
        )


def _warn_about_few_clicks(clicks, weight):
    """Warn if a handful of clicks carry half of the weight; True if there was a warning."""
    order = np.argsort(-weight, kind="stable")
    carried = np.cumsum(clicks[order] * weight[order])
    half = int(np.searchsorted(carried, 0.5 * carried[-1]))
    few, n_clicks = np.cumsum(clicks[order])[half], clicks.sum()
    if few > max(_FEW_CLICKS, _FEW_CLICKS_SHARE * n_clicks) or few > 0.05 * n_clicks:
        return False
    smallest = 1 / weight[order[0]]
    warn_user(
        f"The heaviest {few:.0f} of {n_clicks:.0f} clicks carry half of the weight (smallest "
        f"propensity: {smallest:.2g}), so that the estimate depends on them. Set clip=, for "
        "example to 0.05, or check the propensities of rarely examined positions.",
        UnstableWeightsWarning,
    )
    return True
