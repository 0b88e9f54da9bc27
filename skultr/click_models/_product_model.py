"""Models of P(click) as relevance times examination."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .._models._document_posterior import document_posterior, logged_places
from .._sklearn import StrOptions
from ._em import WEAK, fit_em, weak_priors
from ._gradient import GradientClickModel
from ._priors import given_prior
from ._products import expected_counts, start_tables

#: Weight of the prior of a rare bias factor, in impressions, where EM fits examination.
PRIOR_WEIGHT = 20.0
#: Neighbouring ranks are joined until a group has so many impressions.
GROUP_IMPRESSIONS = 100.0
#: Where no document moved, examination is taken to fall with this power of the position: half way,
#: in logarithms, from no bias at all to 1 / position.
_UNKNOWN_SLOPE = 0.5


@dataclass(kw_only=True, eq=False, repr=False)
class ProductModel(GradientClickModel):
    """Models of P(click) as relevance times examination, with one examination per factor.

    Subclasses write ``_compared_examination(log, cells)``: examination by factor and the standard
    error of its logarithm relative to the first factor, from the same documents under several
    factors; and ``_fitted_prior(log, cells, known)``: start and pseudo-counts of examination for
    EM.
    """

    prior: Literal["logged", "empirical"] | Sequence[float] | None = "logged"

    _parameter_constraints = {
        **GradientClickModel._parameter_constraints,
        "prior": [StrOptions({"logged", "empirical"}), "array-like", None],
    }
    _reads_production = True

    def _solve_product(self, log, cells, task):
        """Examination relative to the first factor, shape (n_factors,); sets ``documents_``."""
        if self._reads_places:
            examination, error = self._compared_examination(log, cells)
            self.prior_ = {}
            self._remember_posterior(log, cells, examination, error)
            return examination / examination[0]
        known = self._train_towers(log, task) if self.solver == "gradient" else {}
        return self._solve_cells(log, cells, *self._fitted_prior(log, cells, known), known)

    @property
    def _reads_places(self):
        """True if the prior of a document depends on where production put it."""
        return self.solver == "em" and isinstance(self.prior, str) and self.prior == "logged"

    def _remember_posterior(self, log, cells, examination, error):
        query, place = logged_places(log).of_documents(cells.n_docs)
        found = document_posterior(cells, examination, query=query, place=place, error=error)
        first = examination[0]
        tables = {
            "relevance": found.mean * first,
            "lower": found.lower * first,
            "upper": found.upper * first,
            "effective_sample": found.effective_sample / first,
            "prior_mean": found.prior_mean * first,
        }
        shown = log.shown_docs
        unseen = {name: of[shown].mean() for name, of in tables.items()}
        self._remember_documents(log, unseen, **tables)

    def _solve_cells(self, log, cells, examination, prior, known):
        """As :meth:`_solve_product`, by EM with a start and a prior of examination."""
        start = {**start_tables(cells), "examination": examination}
        fit, means = self._solve(
            log,
            lambda tables: expected_counts(cells, **known, **tables),
            {name: of for name, of in start.items() if name not in known},
            {"examination": prior},
            () if known else ("relevance",),
        )
        examination = fit.tables["examination"]
        # Clicks determine the product only: relevance is scaled to P(click) at the first position.
        self._scale = first = examination[0]
        relevance = {**known, **fit.tables}["relevance"] * first
        prior_mean = {"relevance": means.get("relevance", np.nan) * first}
        self._remember_documents(log, prior_mean, relevance=relevance)
        return examination / first

    def _pooled_examination(self, log, cells, group, known):
        """Examination by factor, the same for all factors of a ``group``."""
        pooled = cells.pooled(group)
        start = {**start_tables(pooled), **known}

        def expect(tables):
            return expected_counts(pooled, **known, **tables)

        priors = {"examination": WEAK}
        if not known:
            weak = weak_priors(expect(start)[0], ("relevance",))
            priors["relevance"] = given_prior(self.prior) or weak["relevance"]
        fit = fit_em(
            expect,
            {name: of for name, of in start.items() if name not in known},
            priors,
            tol=10 * self.tol * log.n_impressions,
            max_iter=self.max_iter,
        )
        return fit.tables["examination"][group]

    def _row_parameters(self, X, qid, doc):
        parameters = super()._row_parameters(X, qid, doc)
        if self.solver == "gradient":
            parameters["relevance"] = parameters["relevance"] * self._scale
        return parameters


def unknown_curve(depth):
    """Log examination by depth where no document moved: mean and standard deviation."""
    return -_UNKNOWN_SLOPE * np.log(depth), _UNKNOWN_SLOPE * np.log1p(depth)
