"""Perplexity and log-likelihood of clicks under predicted click probabilities."""

from __future__ import annotations

from typing import Literal, overload

import numpy as np
import pandas as pd
from scipy.special import xlogy

from .._log._segments import as_array, encode
from .._sklearn import validate_params
from .._typing import Column
from ..exceptions import ClickDataWarning, warn_user
from ._rows import as_numbers

#: Probabilities are clipped to [this, 1 - this]: a click that was predicted impossible costs 33
#: bits instead of infinitely many.
_SMALLEST_PROBABILITY = 1e-10


@overload
def perplexity_score(
    y_true: Column,
    y_prob: Column,
    *,
    position: Column | None = ...,
    sample_weight: Column | None = ...,
    per_position: Literal[False] = ...,
) -> float: ...
@overload
def perplexity_score(
    y_true: Column,
    y_prob: Column,
    *,
    position: Column,
    sample_weight: Column | None = ...,
    per_position: Literal[True],
) -> pd.DataFrame: ...
@validate_params(
    {
        "y_true": ["array-like"],
        "y_prob": ["array-like"],
        "position": ["array-like", None],
        "sample_weight": ["array-like", None],
        "per_position": ["boolean"],
    },
    prefer_skip_nested_validation=True,
)
def perplexity_score(
    y_true: Column,
    y_prob: Column,
    *,
    position: Column | None = None,
    sample_weight: Column | None = None,
    per_position: bool = False,
) -> float | pd.DataFrame:
    r"""Perplexity of clicks under predicted click probabilities; smaller is better.

    .. math::
        \mathrm{PPL}@k = 2^{-\frac{1}{N_k} \sum [c \log_2 \hat c + (1 - c) \log_2 (1 - \hat c)]},
        \qquad \mathrm{PPL} = \frac{1}{K} \sum_k \mathrm{PPL}@k

    with the sum over the rows at position :math:`k`. It is 1 for perfect predictions and 2 for
    :math:`\hat c = 1/2` everywhere.

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
        Clicks, or click rates in [0, 1] of rows that stand for several impressions.
    y_prob : array-like of shape (n_rows,)
        Predicted click probabilities in [0, 1], clipped to [1e-10, 1 - 1e-10].
    position : array-like of shape (n_rows,), default=None
        Rank of each row. Every position has the same weight in the mean, however many rows it
        has. Without positions, one perplexity of all rows.
    sample_weight : array-like of shape (n_rows,), default=None
        For example the impressions of each row. Rows of weight 0 do not count.
    per_position : bool, default=False
        Whether to return the perplexity at each position.

    Returns
    -------
    score : float or pandas.DataFrame
        At least 1 for clicks in {0, 1}. With ``per_position``, a frame indexed by ``position``
        with the columns ``"perplexity"`` and ``"weight"`` (rows, or the sum of their weights).

    Raises
    ------
    ValueError
        If inputs are empty, differ in length, are outside [0, 1] or hold NaN or infinity, or if
        ``per_position`` is True without ``position``.

    Warns
    -----
    ClickDataWarning
        If clicks have probability 0. Each costs 33 bits, so that perplexity is above that of a
        constant, and says only how many there are. In a search every candidate is scored all the
        same; this one is not comparable.

    See Also
    --------
    PerplexityScorer : The same as a scorer, for searches.

    Notes
    -----
    Perplexity is conditional if ``y_prob`` are probabilities given the clicks above in the list,
    and unconditional if they are probabilities without these clicks. Click models predict both
    (``predict_click(X, conditional=False)``). Do not compare one with the other.

    References
    ----------
    Dupret and Piwowarski (2008). A user browsing model to predict search engine click data from
    past observations. SIGIR.

    Examples
    --------
    >>> from skultr.metrics import perplexity_score
    >>> clicks, probability = [1, 0, 0, 0], [0.5, 0.5, 0.25, 0.25]
    >>> round(perplexity_score(clicks, probability, position=[1, 1, 2, 2]), 3)
    1.667
    >>> perplexity_score(clicks, probability, position=[1, 1, 2, 2], per_position=True)
              perplexity  weight
    position
    1           2.000000     2.0
    2           1.333333     2.0
    """
    clicks, probability, weight = _check_clicks(y_true, y_prob, sample_weight)
    _warn_of_the_impossible(clicks * weight, probability)
    if position is None:
        if per_position:
            raise ValueError("per_position=True needs position=: pass the rank of each row.")
        codes, values = np.zeros(len(clicks), dtype=int), np.zeros(1)
    else:
        codes, values = encode(_check_ids(position, "position", len(clicks)))
    mass = np.bincount(codes, weight)
    bits = np.bincount(codes, -weight * _log_likelihood(clicks, probability)) / np.log(2)
    counted = mass > 0
    perplexity = np.exp2(bits[counted] / mass[counted])
    if not per_position:
        return float(perplexity.mean())
    return pd.DataFrame(
        {"perplexity": perplexity, "weight": mass[counted]},
        index=pd.Index(values[counted], name="position"),
    )


@validate_params(
    {
        "y_true": ["array-like"],
        "y_prob": ["array-like"],
        "session": ["array-like", None],
        "sample_weight": ["array-like", None],
    },
    prefer_skip_nested_validation=True,
)
def click_log_likelihood(
    y_true: Column,
    y_prob: Column,
    *,
    session: Column | None = None,
    sample_weight: Column | None = None,
) -> float:
    r"""Mean log-likelihood of clicks under predicted click probabilities; greater is better.

    The log-likelihood of a session is the sum over its rows of
    :math:`c \log \hat c + (1 - c) \log (1 - \hat c)`, in nats. With probabilities given the
    clicks above, it is the log-likelihood of all clicks of the session.

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
        Clicks, or click rates in [0, 1] of rows that stand for several impressions.
    y_prob : array-like of shape (n_rows,)
        Predicted click probabilities in [0, 1], clipped to [1e-10, 1 - 1e-10].
    session : array-like of shape (n_rows,), default=None
        The served list of each row. The mean is over sessions if given, else over rows.
    sample_weight : array-like of shape (n_rows,), default=None
        For example the impressions of each row. The weight of a session is the mean over its
        rows.

    Returns
    -------
    score : float
        At most 0 (up to the clipping).

    Raises
    ------
    ValueError
        If inputs are empty, differ in length, are outside [0, 1] or hold NaN or infinity.

    Examples
    --------
    >>> from skultr.metrics import click_log_likelihood
    >>> clicks, probability = [1, 0, 0, 0], [0.5, 0.5, 0.5, 0.5]
    >>> round(click_log_likelihood(clicks, probability), 3)
    -0.693
    >>> round(click_log_likelihood(clicks, probability, session=["a", "a", "b", "b"]), 3)
    -1.386
    """
    clicks, probability, weight = _check_clicks(y_true, y_prob, sample_weight)
    total = weight @ _log_likelihood(clicks, probability)
    if session is None:
        return float(total / weight.sum())
    codes, _ = encode(_check_ids(session, "session", len(clicks)))
    return float(total / (np.bincount(codes, weight) / np.bincount(codes)).sum())


def _log_likelihood(clicks, probability):
    probability = np.clip(probability, _SMALLEST_PROBABILITY, 1 - _SMALLEST_PROBABILITY)
    return xlogy(clicks, probability) + (1 - clicks) * np.log1p(-probability)


def _warn_of_the_impossible(clicks, probability):
    impossible = float(clicks[probability == 0].sum())
    if impossible > 0:
        warn_user(
            f"The predictions hold {impossible:g} of {float(clicks.sum()):g} clicks impossible "
            "(probability 0): each counts as 33 bits, and perplexity says little else. Expected "
            "probabilities above 0 where there are clicks. CascadeModel allows one click per "
            "list: leave it out where lists have more, or compare it by another metric.",
            ClickDataWarning,
        )


def _check_clicks(y_true, y_prob, sample_weight):
    given = {"y_true": y_true, "y_prob": y_prob}
    if sample_weight is not None:
        given["sample_weight"] = sample_weight
    values = {name: as_numbers(value, name).astype(float) for name, value in given.items()}
    shapes = {value.shape for value in values.values()}
    if len(shapes) > 1 or len(next(iter(shapes))) != 1:
        found = ", ".join(f"{name} {value.shape}" for name, value in values.items())
        raise ValueError(
            f"{', '.join(values)} must be flat and of one length, one value per row; got the "
            f"shapes {found}."
        )
    if not len(values["y_true"]):
        raise ValueError("y_true and y_prob are empty; expected at least one row.")
    for name, value in values.items():
        largest = np.inf if name == "sample_weight" else 1
        _check_range(name, value, largest)
    weight = values.get("sample_weight", np.ones(len(values["y_true"])))
    if not weight.any():
        raise ValueError("sample_weight is 0 in every row; expected some rows to count.")
    return values["y_true"], values["y_prob"], weight


def _check_range(name, value, largest):
    # Written so that NaN is bad.
    bad = ~((value >= 0) & (value <= largest) & np.isfinite(value))
    if bad.any():
        row = int(bad.argmax())
        expected = "finite and at least 0" if largest == np.inf else "in [0, 1]"
        raise ValueError(
            f"{name} must be {expected} in every row; found {int(bad.sum())} other values, first "
            f"{value[row]:g} in row {row}."
        )


def _check_ids(values, name, n_rows):
    values = as_array(values)
    missing = pd.isna(values)
    if values.shape != (n_rows,) or missing.any():
        found = (
            f"the shape {values.shape}"
            if values.shape != (n_rows,)
            else f"{int(missing.sum())} missing values"
        )
        raise ValueError(f"{name} must have one value for each of the {n_rows} rows; got {found}.")
    return values
