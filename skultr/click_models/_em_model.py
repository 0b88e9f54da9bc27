"""Click models with hidden events, fitted by expectation maximisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .._sklearn import Interval
from ..exceptions import warn_user
from ._em import fit_em_twice, weak_priors
from ._model import TableClickModel
from ._priors import PRIOR_CONSTRAINT, given_prior

#: Pseudo-impressions of maximum likelihood: they decide only where there is no event at all.
_NO_PRIOR = 1e-6


@dataclass(kw_only=True, eq=False, repr=False)
class EMClickModel(TableClickModel):
    """Click models with hidden events, fitted by EM."""

    prior: Literal["empirical"] | Sequence[float] | None = "empirical"
    tol: float = 1e-8
    max_iter: int = 1000

    _parameter_constraints = {
        "prior": [*PRIOR_CONSTRAINT, None],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def _solve(self, log, expect, start, priors, of_documents):
        """Fit by EM, and set the attributes that describe the fit."""
        if self.prior is None:
            weak = weak_priors(expect(start)[0], of_documents)
            of = {name: (_NO_PRIOR * a, _NO_PRIOR * b) for name, (a, b) in weak.items()}
        else:
            of = dict.fromkeys(of_documents, given_prior(self.prior))
        priors = {**priors, **of}
        tol = self.tol * log.n_impressions
        fit, priors = fit_em_twice(expect, start, priors, tol=tol, max_iter=self.max_iter)
        if not fit.converged:
            warn_user(
                f"{type(self).__name__} did not converge in max_iter={self.max_iter} EM steps. "
                "Raise max_iter, or tol.",
                ConvergenceWarning,
            )
        self.n_iter_ = fit.n_iter
        self.log_posterior_ = np.array(fit.objective)
        self.prior_ = {name: priors[name] for name in of_documents}
        return fit, {name: a / (a + b) for name, (a, b) in self.prior_.items()}
