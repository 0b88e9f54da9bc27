"""Relevance as a table, one number per document: one fit for all that take ``"embedding"``."""

from dataclasses import dataclass

from sklearn.exceptions import ConvergenceWarning

from .._sklearn import StrOptions
from ..exceptions import warn_user
from ._tabular import fit_cells

#: Newton steps at most; logs of thousands of users or sparse factors need the most.
_MAX_ITER = 300
#: Clicks of the mean clicked document below which the published objectives are biased.
_FEW_CLICKS = 30.0


@dataclass(kw_only=True, eq=False, repr=False)
class LearnsRelevance:
    r"""Mixin of estimators that learn relevance beside examination: as a network, or as a table.

    As tables they are one estimator, of :math:`P(c = 1) = r_d\, o_t` with a number for each
    document and each bias factor. By default it maximises

    - below 30 clicks per clicked document, on average, the likelihood of where the clicks of each
      document fell, given their number, in which relevance does not appear;
    - from there on the binomial likelihood of all clicks.

    ``variant="published"`` is the objective of the paper that the class stands for. Each spends a
    parameter per document, and is biased where documents have few clicks.
    """

    relevance: str = "network"
    variant: str = "default"

    _parameter_constraints = {
        "relevance": [StrOptions({"network", "embedding"})],
        "variant": [StrOptions({"default", "published"})],
    }
    #: Loss of the published method; see :func:`fit_cells`.
    _published_loss = "likelihood"

    @property
    def _table_link(self):
        """How relevance and examination meet in the table."""
        return "product"

    def _fit_table(self, cells, start=None):
        """The table that explains the clicks of cells."""
        fit = fit_cells(
            cells,
            loss=self._loss_of(cells),
            link=self._table_link,
            start=start,
            max_iter=_MAX_ITER,
        )
        if not fit.converged:
            warn_user(
                f"The embedding did not converge in {fit.n_iter} steps: a log of few impressions "
                "per document and bias factor hardly determines them. Merge factors with "
                "IdentifiabilityRepair, or use relevance='network'.",
                ConvergenceWarning,
            )
        return fit

    def _loss_of(self, cells):
        if self._table_link == "additive":  # it has no conditional form
            return "likelihood"
        if self.variant == "published":
            return self._published_loss
        return "poisson" if cells.has_few_clicks(_FEW_CLICKS) else "likelihood"
