"""Debiased clicks as labels of documents, for whatever learns from them."""

from numbers import Real

import numpy as np

from .._log._clicklog import make_click_log
from .._log._reader import take_clicks
from .._log._roles import is_frame, read_role
from .._sklearn import Interval, validate_params
from ._source import PROPENSITY_CONSTRAINT, row_propensities
from ._weights import average_propensities, debias_clicks, label_table

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
def relevance_labels(X, y, *, sample_weight=None, propensity=None, user_aware=True, clip=None):
    r"""Relevance of each document of a log, as its clicks and propensities tell it.

    What :class:`~skultr.UserAwareIPSRanker` and :class:`~skultr.rankers.IPSRanker` train on,
    without the training: for a learner of your own, or to look at.

    Parameters
    ----------
    X : DataFrame of shape (n_rows, n_columns)
        The click log with the roles ``qid``, ``doc``, ``position`` and, if there are, ``session``,
        ``user``, ``impressions``, ``propensity``. Features are not read.
    y : array-like of shape (n_rows,)
        Click (0 or 1), or click rate where a row stands for several impressions.
    sample_weight : array-like of shape (n_rows,), default=None
        Multiplies ``impressions``.
    propensity : "column", array-like of shape (n_positions,), estimator or None, default=None
        As in :class:`~skultr.rankers.IPSRanker`; None takes the role, which must be there.
    user_aware : bool, default=True
        Divide a document's click rate by its mean propensity among the sessions of its query
        (less variance), instead of each click by its own.
    clip : float in (0, 1], default=None
        Propensities below it are raised to it.

    Returns
    -------
    labels : DataFrame
        ``qid``, ``doc``, ``clicks``, ``impressions`` and ``label``, an estimate of P(relevant)
        where the scale of the propensities is known; it may exceed 1 by chance. One row a
        (query, document) that was shown.

    Raises
    ------
    ValueError
        If a role is missing or holds what it cannot.

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
            "X must be a frame with a column 'doc': expected one row a shown document, named. "
            f"Got a {type(X).__name__}" + (" without it." if is_frame(X) else ".")
        )
    X, y, _ = take_clicks(X, y, "relevance_labels")
    of_rows, _ = row_propensities(propensity, X, y, sample_weight, {}, default=_no_propensities)
    no_features = np.empty((len(y), 0), dtype=np.float32)
    log = make_click_log(X, no_features, y, sample_weight, {"propensity": of_rows})
    if user_aware:
        log = average_propensities(log)
    return label_table(log, debias_clicks(log, log.propensity, clip=clip).clicks)


def _no_propensities():
    raise ValueError(
        "No propensities given: X has no column 'propensity'. Add it, or pass propensity= with "
        "one number a position or an estimator of skultr.propensity."
    )
