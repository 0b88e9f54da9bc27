"""How clicks are corrected by propensities: the form of the loss, bound and naive share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from scipy.special import expit

from .._base._typing import Floats
from .._torch._joint import DualLearner, ListTarget, fit_relevance
from ..propensity._source import debias_clicks
from ._direct_method import cross_fitted_relevance
from ._thresholds import MANY_CLICKS

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog


#: How clicks are corrected, as the parameter ``correction`` says it.
Form: TypeAlias = Literal["auto", "divide", "offset", "doubly_robust"]
#: The values of that parameter.
FORMS = {"auto", "divide", "offset", "doubly_robust"}


@dataclass(frozen=True)
class Correction:
    """A form of the loss, the least propensity, and the share of the loss that is naive."""

    form: Literal["divide", "offset", "doubly_robust"]
    least: float | None
    naive_weight: float = 0.0

    @classmethod
    def of(
        cls,
        log: ClickLog,
        *,
        form: Form,
        least: float | None,
        naive_weight: float,
    ) -> Correction:
        """The correction of a log by its propensities; these choose an "auto" form."""
        if form == "auto":
            form = "divide" if has_many_clicks(log) else "offset"
        return cls(form, least, naive_weight)

    def weighted(self, log: ClickLog, relevance: Floats | None = None) -> Floats:
        """Debiased clicks of each row, but for the naive share.

        Their sum lies between that of the clicks (all naive) and that of the debiased ones.
        """
        debiased = debias_clicks(log, clip=self.least, relevance=relevance)
        return mixed_clicks(log.clicks, debiased.clicks, self.naive_weight)

    def target(
        self,
        log: ClickLog,
        validation: ClickLog | None = None,
        relevance: Floats | None = None,
    ) -> ListTarget:
        """What a network is fitted to, and stopped by if there is a log for validation.

        The doubly robust form needs the modelled ``relevance`` of the rows. What it is stopped by
        has no model: these clicks are divided.
        """
        stopping = None if validation is None else self.target(validation)
        if self.naive_weight == 1:
            return ListTarget(log.clicks, validation=stopping)
        if self.form != "offset":
            return ListTarget(self.weighted(log, relevance), validation=stopping)
        examination = np.maximum(log.propensity, self.least or 0.0)
        return ListTarget(
            log.clicks, examination, validation=stopping, naive_weight=self.naive_weight
        )


def mixed_clicks(clicks: Floats, divided: Floats, naive_weight: float) -> Floats:
    """Clicks per row of which a share is as they are, and the rest divided by propensities.

    Both parts have the same sum, so that the share is one of the loss.
    """
    if not naive_weight or not clicks.any():
        return divided
    mean_weight = divided.sum() / clicks.sum()
    mixed = (1 - naive_weight) * divided / mean_weight + naive_weight * clicks
    # The size goes from that of the divided clicks to that of the clicks as they are.
    return mixed * mean_weight ** (1 - naive_weight)


def has_many_clicks(log: ClickLog) -> bool:
    """True if clicks divided by the propensities of the log are many for each query."""
    n_queries = max(np.count_nonzero(log.by_query(log.clicks)), 1)
    # Few clicks of large weight count as fewer.
    n_effective = debias_clicks(log).effective_sample_size
    return n_effective >= MANY_CLICKS.value * n_queries


def modelled_relevance(learner: Any, log: ClickLog) -> Floats:
    r"""Relevance of each row, by a network of a ranker's settings that other queries trained.

    Shape (n_rows,). The network maximises the likelihood of :math:`P(c = 1) = o\,\sigma(g(x))`.
    """

    def fit(part):
        network = DualLearner.like(learner)
        fit_relevance(network, part)
        return expit(network._outputs(network.network_, part.features)[:, 0])

    return cross_fitted_relevance(log, fit, learner.random_state)
