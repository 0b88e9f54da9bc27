"""Held-out clicks, as the scorers that divide examination out of them read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .._log._faults import count_of
from .._log._reader import Rows, read, take_clicks
from .._log._roles import FIT_ROLES, read_role
from .._typing import ArrayLike, Column, Estimator, Floats, Ints, Predictor, Table
from ..exceptions import ClickDataWarning, warn_user
from ..propensity._source import row_propensities
from ._scorers import predict_within


class HeldOut(NamedTuple):
    """Rows of a log to score estimators by, and what they were read from."""

    X: Table
    y: Floats
    sample_weight: Column | None
    roles: Mapping[str, Any]
    rows: Rows
    caller: str

    @classmethod
    def read(
        cls,
        X: Table,
        y: Column,
        sample_weight: Column | None,
        roles: Mapping[str, Any],
        *,
        caller: str,
    ) -> HeldOut:
        """Checked rows; the ``caller`` is the scorer that errors name."""
        X, y, _ = take_clicks(X, y, caller)
        need = {"qid": "to compare the rows of a query with each other"}
        reads = set(FIT_ROLES)
        if read_role(X, "position", roles.get("position")) is None:
            reads -= {"position"}  # rows with propensities need no place
        rows = read(X, y, sample_weight, roles, reads=reads, need=need, caller=caller)
        if rows["position"] is not None:
            _warn_about_cut_lists(rows.list_[rows.shown], rows.position[rows.shown])
        return cls(X, y, sample_weight, roles, rows, caller)

    def examination(self, source: ArrayLike | Estimator | None) -> Floats:
        """Examination probability of each row by the parameter ``propensity``; 1 if not shown."""
        propensity, _ = row_propensities(
            source,
            self.X,
            self.y,
            self.sample_weight,
            self.roles,
            default=self._refuse_to_assume,
        )
        checked = self.rows.replace("propensity", propensity)["propensity"]
        examination = np.where(self.rows.shown, checked, 1.0)
        if not examination.all():
            raise ValueError(
                f"propensity is 0 in {count_of(int((examination == 0).sum()), 'shown row')}, "
                f"first in row {int(np.argmin(examination))}; expected a number in (0, 1] "
                "wherever a document was shown. A row that nobody could examine should have no "
                "position."
            )
        return examination

    def predict(self, estimator: Predictor) -> Floats:
        """Scores of the rows by an estimator, which may request ids."""
        n_rows, name = self.rows.n_rows, type(estimator).__name__
        scores = predict_within(estimator, self.X, self.rows["qid"], self.rows["doc"])
        scores = np.asarray(scores, dtype=float)
        if scores.shape != (n_rows,):
            raise ValueError(
                f"{name}.predict returned the shape {scores.shape}; expected one score per row, "
                f"that is ({n_rows},)."
            )
        missing = np.isnan(scores)
        if missing.any():
            raise ValueError(
                f"{name}.predict returned NaN in {int(missing.sum())} of {n_rows} rows, first in "
                f"row {int(missing.argmax())}; expected a score in every row."
            )
        return scores

    def _refuse_to_assume(self):
        raise ValueError(
            f"{self.caller} needs propensities, and an assumed curve would decide which model is "
            "best: found neither a role 'propensity' nor the parameter. Pass propensity= one "
            "probability per position, or an estimator such as "
            "skultr.propensity.RegressionEMPropensity()."
        )


def ratio_of_sums(numerator: Floats, denominator: Floats, query: Ints) -> tuple[float, float]:
    """The ratio of two sums, and its standard error by linearisation over queries.

    With the ratio v and the residuals e_q = Σ_{rows of q} (numerator - v denominator), the
    standard error is sqrt(n / (n - 1) Σ_q e_q²) / Σ denominator over the n queries; NaN for one.
    """
    total = denominator.sum()
    value = numerator.sum() / total
    residual = np.bincount(query, numerator - value * denominator)
    n_queries = len(residual)
    if n_queries < 2:
        return float(value), np.nan
    variance = n_queries / (n_queries - 1) * (residual**2).sum() / total**2
    return float(value), float(np.sqrt(variance))


def _warn_about_cut_lists(list_, position):
    n_shown = np.bincount(list_)
    deepest = np.zeros(len(n_shown), dtype=position.dtype)
    np.maximum.at(deepest, list_, position)
    cut = np.count_nonzero(deepest > n_shown) / max(np.count_nonzero(n_shown), 1)
    if cut > 0.5:
        warn_user(
            f"{cut:.0%} of the lists have gaps in their positions: rows of one list seem to have "
            "been split, so that rankings are judged on parts. Split by query, with QueryKFold.",
            ClickDataWarning,
        )
