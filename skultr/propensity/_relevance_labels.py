"""Debiased clicks as labels of documents, for learners outside this package."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Literal

import numpy as np

from .._log._clicklog import make_click_log
from .._log._reader import take_clicks
from .._log._roles import is_frame, read_role
from .._sklearn import Interval, validate_params
from .._typing import ArrayLike, Column, Estimator, Frame
from ._source import PROPENSITY_CONSTRAINT, row_propensities
from ._weights import (
    average_propensities,
    debias_clicks,
    label_table,
    require_positive,
    warn_about_weights,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["relevance_labels"]


@validate_params(
    {
        "X": "no_validation",
        "y": ["array-like"],
        "sample_weight": ["array-like", None],
        "propensity": PROPENSITY_CONSTRAINT,
        "user_aware": ["boolean"],
        "clip": [Interval(Real, 0, 1, closed="right"), None],
    },
    prefer_skip_nested_validation=True,
)
def relevance_labels(
    X: Frame,
    y: Column | str,
    *,
    sample_weight: Column | None = None,
    propensity: Literal["column"] | ArrayLike | Estimator | None = None,
    user_aware: bool = True,
    clip: float | None = None,
) -> pd.DataFrame:
    r"""Table of debiased clicks per impression, one row per document of a query.

    The labels are those that :class:`~skultr.UserAwareIPSRanker` and
    :class:`~skultr.rankers.IPSRanker` are trained on. With propensities :math:`o_i` of the
    :math:`n_d` impressions of a document,

    .. math::
        \text{label}_d = \frac{\sum_i c_i}{\sum_i o_i} \;\text{(user-aware)}, \qquad
        \text{label}_d = \frac{1}{n_d} \sum_i \frac{c_i}{o_i} \;\text{(otherwise)}.

    Parameters
    ----------
    X : DataFrame of shape (n_rows, n_columns)
        The click log with the roles ``qid``, ``doc``, ``position`` and, if present, ``session``,
        ``user``, ``impressions``, ``propensity``. Features are not read.
    y : array-like of shape (n_rows,)
        Click (0 or 1), or click rate if a row stands for several impressions.
    sample_weight : array-like of shape (n_rows,), default=None
        Multiplies ``impressions``.
    propensity : "column", array-like of shape (n_positions,), estimator or None, default=None
        As in :class:`~skultr.rankers.IPSRanker`; None requires the role ``propensity``.
    user_aware : bool, default=True
        Divide the click rate of a document by its mean propensity over the sessions of the query,
        which has less variance; otherwise each click by its own propensity.
    clip : float in (0, 1], default=None
        Smaller propensities are raised to it.

    Returns
    -------
    labels : DataFrame
        ``qid``, ``doc``, ``clicks``, ``impressions`` and ``label``, one row per document of a
        query that was shown. The label estimates P(relevant) if the scale of the propensities is
        known; it may exceed 1 by chance.

    Raises
    ------
    ValueError
        If a role is missing or holds invalid values.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.propensity import relevance_labels
    >>> X = pd.DataFrame(
    ...     {"qid": 1, "doc": ["a", "b"], "position": [1, 2], "impressions": [100, 100]}
    ... )
    >>> relevance_labels(X, [0.3, 0.2], propensity=[1.0, 0.5])["label"].tolist()
    [0.3, 0.4]
    """
    if not is_frame(X) or read_role(X, "doc") is None:
        raise ValueError(
            "X must be a frame with a column 'doc': expected one row per shown document, with its "
            f"id. Got a {type(X).__name__}" + (" without the column." if is_frame(X) else ".")
        )
    X, y, _ = take_clicks(X, y, "relevance_labels")
    of_rows, _ = row_propensities(propensity, X, y, sample_weight, {}, default=_no_propensities)
    no_features = np.empty((len(y), 0), dtype=np.float32)
    log = make_click_log(X, no_features, y, sample_weight, {"propensity": of_rows})
    if user_aware:
        log = average_propensities(log)
    else:
        require_positive(log)
    warn_about_weights(log, clip=clip, queries=False)
    return label_table(log, debias_clicks(log, clip=clip).clicks)


def _no_propensities():
    raise ValueError(
        "No propensities given: X has no column 'propensity'. Add it, or pass propensity= with "
        "one number per position or an estimator of skultr.propensity."
    )
