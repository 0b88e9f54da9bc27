"""Errors of estimates where the truth is known, as in simulations: relevance, P(click)."""

from __future__ import annotations

import numpy as np

from .._base._sklearn import validate_params
from .._base._typing import Column
from .._log._faults import count_of
from ._click_scorers import check_weighted

#: Constraints of estimates of relevance.
_ESTIMATES = {
    "y_true": ["array-like"],
    "y_pred": ["array-like"],
    "sample_weight": ["array-like", None],
}


@validate_params(
    {"y_true": ["array-like"], "y_prob": ["array-like"], "sample_weight": ["array-like", None]},
    prefer_skip_nested_validation=True,
)
def click_mse(y_true: Column, y_prob: Column, *, sample_weight: Column | None = None) -> float:
    r"""Mean squared error of predicted click probabilities; smaller is better.

    .. math:: \frac1N \sum_i (\hat c_i - c_i)^2

    with the true click probability :math:`c_i` of a row, known in a simulation. It says how well a
    model fits, not whether its relevance is right: models that are not identifiable fit perfectly.

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
        True click probabilities. With clicks, or click rates of rows that count several
        impressions, it is the Brier score, which noise keeps above 0.
    y_prob : array-like of shape (n_rows,)
        Predicted click probabilities. Rows are compared by position, also those of two Series.
    sample_weight : array-like of shape (n_rows,), default=None
        For example the impressions of each row.

    Returns
    -------
    error : float
        In [0, 1].

    Raises
    ------
    ValueError
        If inputs are empty, differ in length, are outside [0, 1] or hold NaN or infinity, or
        weights are negative or all 0.

    See Also
    --------
    perplexity_score : The likelihood of clicks.
    mean_correlation_coefficient : Whether the relevance is right.

    References
    ----------
    M. Chen, C. Liu, Z. Liu, Z. Li and J. Sun (2024). Identifiability matters: revealing the hidden
    recoverable condition in unbiased learning to rank. ICML. Section 5.1.

    Examples
    --------
    >>> from skultr.metrics import click_mse
    >>> round(click_mse([0.5, 0.2], [0.4, 0.4]), 3)
    0.025
    """
    truth, probability, weight = check_weighted(
        sample_weight, bounded=True, y_true=y_true, y_prob=y_prob
    )
    return float(np.average((probability - truth) ** 2, weights=weight))


@validate_params(_ESTIMATES, prefer_skip_nested_validation=True)
def relevance_mse(y_true: Column, y_pred: Column, *, sample_weight: Column | None = None) -> float:
    r"""Mean squared error of estimated relevance; smaller is better.

    .. math:: \frac1N \sum_{q,d} (\hat r_{q,d} - P(r = 1 \mid q, d))^2

    over the pairs of query and document that were shown, with an estimate of the probability
    itself, such as ``label`` of :func:`skultr.propensity.relevance_labels`: examination must be
    known with its scale. For relevance up to scale, see :func:`mean_correlation_coefficient`.

    Parameters
    ----------
    y_true : array-like of shape (n_documents,)
        True probability that a document is relevant.
    y_pred : array-like of shape (n_documents,)
        Estimated relevance. Clicks over propensities may exceed 1. Documents are compared by
        position, also those of two Series: align their labels first.
    sample_weight : array-like of shape (n_documents,), default=None

    Returns
    -------
    error : float
        At least 0.

    Raises
    ------
    ValueError
        If inputs are empty, differ in length or hold NaN or infinity, or weights are negative or
        all 0.

    References
    ----------
    Niu, Mei, Yang, Zhao, Yan, Mao and Wen (2025). Addressing personalized bias for unbiased
    learning to rank. Table 1, column MSE.

    Examples
    --------
    >>> from skultr.metrics import relevance_mse
    >>> round(relevance_mse([0.1, 0.9], [0.2, 1.2]), 3)
    0.05
    """
    truth, estimate, weight = check_weighted(
        sample_weight, bounded=False, y_true=y_true, y_pred=y_pred
    )
    return float(np.average((estimate - truth) ** 2, weights=weight))


@validate_params(_ESTIMATES, prefer_skip_nested_validation=True)
def mean_correlation_coefficient(
    y_true: Column, y_pred: Column, *, sample_weight: Column | None = None
) -> float:
    r"""Correlation of estimated and true relevance over documents (MCC); greater is better.

    .. math::
        \frac{\sum_d (r_d - \bar r)(\hat r_d - \bar{\hat r})}
        {\sqrt{\sum_d (r_d - \bar r)^2} \sqrt{\sum_d (\hat r_d - \bar{\hat r})^2}}

    It is 1 if relevance is recovered up to a positive factor and a constant, which is all that a
    log can identify. The name is that of the identifiability literature, where the mean is over
    the latent variables; relevance is one. It is not Matthews' coefficient of classifiers.

    Parameters
    ----------
    y_true : array-like of shape (n_documents,)
        True probability that a document is relevant.
    y_pred : array-like of shape (n_documents,)
        Estimated relevance on the scale of probabilities, up to a factor: ``relevance_`` of a
        tabular model. Scores of a network are logits; take their exponential or logistic first.
        Documents are compared by position, also those of two Series: align their labels first.
    sample_weight : array-like of shape (n_documents,), default=None

    Returns
    -------
    correlation : float
        In [-1, 1]; 0 if the estimate is constant.

    Raises
    ------
    ValueError
        If inputs are empty, differ in length or hold NaN or infinity, weights are negative or all
        0, or ``y_true`` is constant.

    See Also
    --------
    ndcg_score : Where only the order within a query matters.

    References
    ----------
    M. Chen, C. Liu, Z. Liu, Z. Li and J. Sun (2024). Identifiability matters: revealing the hidden
    recoverable condition in unbiased learning to rank. ICML. Section 5.1.

    Examples
    --------
    >>> from skultr.metrics import mean_correlation_coefficient
    >>> round(mean_correlation_coefficient([0.1, 0.5, 0.9], [0.2, 1.0, 1.8]), 6)
    1.0
    >>> round(mean_correlation_coefficient([0.1, 0.5, 0.9], [0.5, 0.5, 0.9]), 3)
    0.866
    """
    columns = np.array(check_weighted(sample_weight, bounded=False, y_true=y_true, y_pred=y_pred))
    has_weight = columns[2] > 0
    kept = columns[:, has_weight]
    if kept[0].min() == kept[0].max():
        raise ValueError(
            f"y_true is {kept[0, 0]:g} for {count_of(kept.shape[1], 'document')}, all that have a "
            "weight; expected relevance that differs, because a correlation compares documents."
        )
    # Squares of very small or large numbers are no numbers: the largest becomes 1.
    truth, estimate, weight = (each / (abs(each).max() or 1.0) for each in kept)
    truth = truth - np.average(truth, weights=weight)
    estimate = estimate - np.average(estimate, weights=weight)
    size = np.sqrt(weight @ truth**2) * np.sqrt(weight @ estimate**2)
    # A constant, here 1 or 0, has no correlation.
    if size == 0:
        return 0.0
    correlation = weight @ (truth * estimate) / size
    # Rounding may leave it above 1.
    return float(np.clip(correlation, -1, 1))
