"""Bias factors of a log: codes, tables, and whether documents connect them."""

import numpy as np
import pandas as pd

from ..exceptions import NotIdentifiableWarning, warn_user
from ._components import factor_components
from ._reader import read
from ._roles import read_role

__all__ = [
    "bias_values",
    "examination_table",
    "factor_codes",
    "known_factor_codes",
    "lists_per_unit",
    "warn_unless_identifiable",
]


def warn_unless_identifiable(log, network):
    """Warn where no document ties the bias factors of a log together.

    Parameters
    ----------
    log : ClickLog
    network : bool
        Whether relevance is a function of the features, which then is all that ties them.
    """
    rows = log.shown
    n_factors = len(log.bias_values)
    n_components, _ = factor_components(log.doc[rows], log.bias[rows], n_factors)
    if n_components == 1:
        return
    consequence = (
        "What ties them together is only the network, which gives similar features similar "
        "relevance: the log cannot confirm it."
        if network
        else "The relevance of documents in different components cannot be compared: nothing "
        "decides it but where training starts, or a prior."
    )
    warn_user(
        f"The log does not determine relevance: its {n_factors} bias factors fall into "
        f"{n_components} components, and no document was shown in two of them. {consequence} "
        "See IdentifiabilityGraph.from_log(X).summary() in skultr.identifiability; repair the log "
        "with IdentifiabilityRepair, or filter NotIdentifiableWarning where you have decided so.",
        NotIdentifiableWarning,
    )


def factor_codes(known, X, bias, position):
    """Code of the bias factor of each row, -1 where it was not shown.

    Parameters
    ----------
    known : ndarray of shape (n_factors,)
        Bias factors of the training log.
    X : frame, array-like or sparse matrix of shape (n_rows, n_columns)
    bias, position : array-like of shape (n_rows,) or None
        They win over the columns of X, and ``bias`` over ``position``.

    Returns
    -------
    codes : ndarray of shape (n_rows,), int

    Raises
    ------
    ValueError
        If there are no bias factors, or one is not known.
    """
    return known_factor_codes(known, bias_values(X, bias, position))


def bias_values(X, bias=None, position=None):
    """The bias factor of each row that is shown, NaN where it is not; an error without any."""
    roles = {"bias": bias, "position": position}
    if all(read_role(X, role, value) is None for role, value in roles.items()):
        raise ValueError(
            "X has neither a column 'bias' nor 'position', and neither was passed: expected the "
            "bias factor that each row is shown under, as in fit."
        )
    rows = read(X, roles=roles, reads=("position", "bias"))
    values = rows.position if rows["bias"] is None else rows["bias"]
    return np.where(rows.position > 0, values, np.nan)


def known_factor_codes(known, values):
    """Code of each bias factor in an index of them, -1 where NaN; an error for unknown ones."""
    codes = pd.Index(known).get_indexer(values)
    unknown = (codes < 0) & ~np.isnan(values)
    if unknown.any():
        raise ValueError(
            f"{int(unknown.sum())} rows have a bias factor that was not in the training log, "
            f"such as {values[unknown][0]:g}: nothing is known of it. Map it to a "
            "known factor first, as IdentifiabilityRepair does."
        )
    return codes


def lists_per_unit(log, mass):
    """Lists that have any ``mass`` (a number a row) over its sum: the constant of a loss.

    With it the loss of a mean list is of order one, however often pages were served or clicked,
    and learning rates mean the same on every log.
    """
    total = mass.sum()
    n_lists = np.count_nonzero(np.bincount(log.list_, weights=mass))
    return float(n_lists / total) if total > 0 else 1.0


def examination_table(log, examination, standard_error=None):
    """Examination by bias factor, relative to the first known one, with impressions and clicks.

    Parameters
    ----------
    log : ClickLog
    examination : ndarray of shape (n_rows,)
        Probability, up to one factor, that each row was examined.
    standard_error : ndarray of shape (n_factors,), default=None
        Of the logarithm of the relative examination.

    Returns
    -------
    table : DataFrame indexed by ``bias``
        Columns ``examination``, ``standard_error`` where given, ``impressions``, ``clicks``.
    """
    rows = log.shown
    count = {
        name: np.bincount(log.bias[rows], values[rows], minlength=len(log.bias_values))
        for name, values in (
            ("examination", examination * log.weight),
            ("impressions", log.weight),
            ("clicks", log.clicks),
        )
    }
    mean = count["examination"] / count["impressions"]
    known = mean[np.isfinite(mean)]
    count["examination"] = mean / known[0] if len(known) else mean
    table = pd.DataFrame(count, index=pd.Index(log.bias_values, name="bias"))
    if standard_error is not None:
        table.insert(1, "standard_error", standard_error)
    return table
