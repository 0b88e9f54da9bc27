"""Debiased clicks: inverse propensities, what they do to the variance, and labels a document."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from .._log._segments import encode
from ..exceptions import UnstableWeightsWarning, warn_user

__all__ = [
    "DebiasedClicks",
    "DocumentLabels",
    "average_propensities",
    "debias_clicks",
    "document_labels",
    "label_table",
]


#: Clicks that may carry half of an estimate before a user should know, and as a share of all.
_HANDFUL, _HANDFUL_SHARE = 10, 0.001


class DebiasedClicks(NamedTuple):
    """Clicks over propensities, and how evenly they carry an estimate.

    Parameters
    ----------
    clicks : ndarray of shape (n_rows,)
        Debiased number of clicks of each row.
    effective_sample_size : float
        Equally weighted clicks that would estimate as precisely, (Σ w)² / Σ w² (Kish).
    largest_weight : float
        Weight of the heaviest click, where the mean click weighs 1.
    clipped_share : float
        Share of the clicks whose propensity was raised.
    """

    clicks: np.ndarray
    effective_sample_size: float
    largest_weight: float
    clipped_share: float


class DocumentLabels(NamedTuple):
    """One label a (query, document).

    Parameters
    ----------
    query, doc : ndarray of shape (n_labels,), int
        Codes, sorted by query.
    label : ndarray of shape (n_labels,)
        Debiased clicks an impression: an estimate of P(relevant) where the scale is known.
    weight : ndarray of shape (n_labels,)
        Impressions, or examinations.
    """

    query: np.ndarray
    doc: np.ndarray
    label: np.ndarray
    weight: np.ndarray


def average_propensities(log):
    """The log with each document's mean propensity in its query, in place of every session's.

    The mean is over the impressions that the query's sessions gave the document, whoever they
    were of and wherever it stood: P(examined | query, document).
    """
    rows = np.flatnonzero(log.shown)
    place, n_places = _documents_of(log, rows)[1:]
    weight = log.weight[rows]
    mean = np.bincount(place, log.propensity[rows] * weight, minlength=n_places)
    mean /= np.bincount(place, weight, minlength=n_places)
    propensity = np.ones(log.n_rows)
    propensity[rows] = np.clip(mean, 0.0, 1.0)[place]  # a mean of ones may be rounded above 1
    return replace(log, propensity=propensity)


def debias_clicks(log, propensity, *, clip=None, normalize=False):
    """Divide clicks by propensities.

    Parameters
    ----------
    log : ClickLog
    propensity : ndarray of shape (n_rows,)
    clip : float, default=None
        Propensities below are raised to it.
    normalize : bool, default=False
        Divide the weights by their mean over the clicks.

    Returns
    -------
    debiased : DebiasedClicks

    Warns
    -----
    UnstableWeightsWarning
        If a handful of clicks carry half of the weight.
    """
    raised = propensity if clip is None else np.maximum(propensity, clip)
    weight = 1 / raised
    clicks = log.clicks * weight
    n_clicks, total = log.clicks.sum(), clicks.sum()
    if n_clicks == 0:
        return DebiasedClicks(clicks, 0.0, np.nan, 0.0)
    _warn_about_handful(log.clicks, weight)
    return DebiasedClicks(
        clicks=clicks * (n_clicks / total) if normalize else clicks,
        effective_sample_size=float(total**2 / (clicks @ weight)),
        largest_weight=float(weight[log.clicks > 0].max() * n_clicks / total),
        clipped_share=float(log.clicks[raised > propensity].sum() / n_clicks),
    )


def document_labels(log, clicks, propensity=None):
    """Labels of the documents that were shown, from (debiased) clicks a row.

    Parameters
    ----------
    log : ClickLog
    clicks : ndarray of shape (n_rows,)
    propensity : ndarray of shape (n_rows,), default=None
        What clicks were divided by. Then ``weight`` counts examinations, impressions times the
        harmonic mean of the propensities: the variance of a label is about its size over them.

    Returns
    -------
    labels : DocumentLabels
    """
    rows = np.flatnonzero(log.shown)
    (query, doc), place, n_places = _documents_of(log, rows)

    def total(values):
        return np.bincount(place, values[rows], minlength=n_places)

    impressions = total(log.weight)
    weight = impressions
    if propensity is not None:
        weight = impressions**2 / total(log.weight / propensity)
    return DocumentLabels(query, doc, total(clicks) / impressions, weight)


def label_table(log, clicks):
    """The labels with the ids of queries and documents, as users see them."""
    labels = document_labels(log, clicks)
    raw = document_labels(log, log.clicks)
    return pd.DataFrame(
        {
            "qid": log.query_ids[labels.query],
            "doc": labels.doc if log.doc_ids is None else _ids_of_documents(log)[labels.doc],
            "clicks": raw.label * raw.weight,
            "impressions": labels.weight,
            "label": labels.label,
        }
    )


def _ids_of_documents(log):
    """Name of each document within its query."""
    return log.doc_ids.get_level_values("doc").to_numpy()


def _documents_of(log, rows):
    """Distinct (query, doc) of some rows, and which of them each row is."""
    n_docs = len(log.features)
    place, key = encode(log.query[rows] * n_docs + log.doc[rows])
    return np.divmod(key, n_docs), place, len(key)


def _warn_about_handful(clicks, weight):
    order = np.argsort(-weight * (clicks > 0), kind="stable")
    carried = np.cumsum(clicks[order] * weight[order])
    half = int(np.searchsorted(carried, 0.5 * carried[-1]))
    handful, n_clicks = np.cumsum(clicks[order])[half], clicks.sum()
    if handful <= max(_HANDFUL, _HANDFUL_SHARE * n_clicks) and handful <= 0.05 * n_clicks:
        smallest = 1 / weight[order[0]]
        warn_user(
            f"{handful:.0f} of {n_clicks:.0f} clicks carry half of the weight (the smallest "
            f"propensity of a click is {smallest:.2g}): what is learned depends on them. Set "
            "clip=, for example to 0.05, or check the propensities of rarely examined positions.",
            UnstableWeightsWarning,
        )
