"""Click models by counting: the click rate of a document, over all ranks or by rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .._log._cells import factor_table
from ._em import PRIOR_CONSTRAINT, empirical_beta, given_prior, posterior_mean
from ._model import KnownFactors, TableClickModel


@dataclass(kw_only=True, eq=False, repr=False)
class CountingModel(TableClickModel):
    """Click models by counts, with a Beta distribution of click rates over documents."""

    prior: Literal["empirical"] | Sequence[float] = "empirical"

    _parameter_constraints = {"prior": PRIOR_CONSTRAINT}
    _reads_clicks = False

    def _remember_rates(self, log, clicks, shown):
        """Keep the posterior mean of the click rate of each document, and the prior."""
        self.prior_ = given_prior(self.prior) or empirical_beta(clicks, shown)
        mean = posterior_mean(0.0, 0.0, self.prior_)
        relevance = posterior_mean(clicks, shown, self.prior_)
        self._remember_documents(log, {"relevance": mean}, relevance=relevance)


@dataclass(kw_only=True, eq=False, repr=False)
class DCTRModel(CountingModel):
    r"""Document click-through rate: every row is examined, and relevance is the click rate.

    .. math:: P(c = 1) = \frac{a + n_{dc}}{a + b + n_d}

    with :math:`n_d` impressions and :math:`n_{dc}` clicks of the document. It is a baseline that
    reproduces the ranker which collected the clicks, because documents at the top were clicked
    most.

    Parameters
    ----------
    prior : "empirical" or (float, float), default="empirical"
        Pseudo-counts (a, b) of clicks and of skips, so that no click rate is exactly 0 or 1; by
        default those of the Beta distribution of click rates over documents, by maximum
        likelihood (empirical Bayes).

    Attributes
    ----------
    documents_ : DataFrame
        ``relevance`` by ``doc`` (by number where the log has no such column).
    prior_ : tuple of (float, float)
        The pseudo-counts; an unseen document gets their mean.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    References
    ----------
    Craswell, Zoeter, Taylor & Ramsey (2008). An experimental comparison of click position-bias
    models. WSDM.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.click_models import DCTRModel
    >>> log = pd.DataFrame({"qid": 1, "session": [1, 1, 2, 2], "doc": ["a", "b"] * 2,
    ...                     "position": [1, 2] * 2})
    >>> model = DCTRModel(prior=(1, 1)).fit(log, [1, 0, 1, 0])
    >>> model.predict(log[:2])
    array([0.75, 0.25])
    """

    def _fit(self, log, task):
        n_docs = log.n_docs
        clicks = np.bincount(log.doc, log.clicks, minlength=n_docs)
        shown = np.bincount(log.doc, log.weight, minlength=n_docs)
        self._remember_rates(log, clicks, shown)

    def _probability(self, parameters, position, bias, clicks):
        return parameters["relevance"]


@dataclass(kw_only=True, eq=False, repr=False)
class RDCTRModel(CountingModel):
    r"""Document click-through rate per rank.

    P(click) of document d at rank k is its click rate there, with the click rates of all
    documents at rank k as prior. Relevance is the mean over ranks of its click rate divided by
    the click rate of the rank,

    .. math:: r_d = \frac{1}{K} \sum_{k=1}^{K} \frac{\mathrm{CTR}(d, k)}{\mathrm{CTR}(k)},

    It is 1 for a document with the mean click rate at every rank, and for unseen documents. It
    may exceed 1: it ranks documents but is not a probability.

    Parameters
    ----------
    prior : "empirical" or (float, float), default="empirical"
        Pseudo-counts of clicks and of skips at every rank; by default those of the Beta
        distribution of the click rates at each rank, by maximum likelihood.

    Attributes
    ----------
    documents_ : DataFrame
        ``relevance`` by ``doc`` (by number where the log has no such column).
    examination_ : DataFrame
        One row per bias factor (index ``bias``; the position, unless the log has a column
        ``bias``): ``examination``, which is the click rate relative to the first factor and
        assumes equal relevance at all ranks, ``impressions`` and ``clicks``.
    prior_ : ndarray of shape (n_factors, 2)
        Pseudo-counts by bias factor.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    Notes
    -----
    The published sum is over the ranks at which a document was shown, so that documents shown at
    more ranks score higher. With a prior, every document has a click rate at every rank, and the
    sum is over all ranks.

    References
    ----------
    Craswell, Zoeter, Taylor & Ramsey (2008). An experimental comparison of click position-bias
    models. WSDM.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.click_models import RDCTRModel
    >>> log = pd.DataFrame({"qid": 1, "session": [1, 1, 2, 2], "doc": ["a", "b", "b", "a"],
    ...                     "position": [1, 2] * 2})
    >>> model = RDCTRModel(prior=(1, 1)).fit(log, [1, 0, 1, 1])
    >>> model.predict_click(log).round(2)
    array([0.67, 0.33, 0.67, 0.67])
    """

    def _fit(self, log, task):
        cells = log.cells
        self._factors = KnownFactors.of_log(log)
        self.prior_ = np.array([self._prior_at(cells, k) for k in range(cells.n_factors)])
        mean = self.prior_[:, 0] / self.prior_.sum(axis=1)
        rate = posterior_mean(cells.clicks, cells.weight, self.prior_[cells.factor].T)
        excess = cells.by_doc(rate / mean[cells.factor] - 1.0)
        relevance = 1.0 + excess / cells.n_factors
        self._remember_documents(log, {"relevance": 1.0}, relevance=relevance)
        # Keys are sorted because cells are. Documents that were never shown have no code.
        self._keys = np.unique(cells.doc, return_inverse=True)[1] * cells.n_factors + cells.factor
        self._rates = np.append(rate, np.nan)
        counts = cells.weight_of_factors, cells.clicks_of_factors
        self.examination_ = factor_table(log.bias_values, mean, *counts)

    def _prior_at(self, cells, factor):
        at = cells.factor == factor
        return given_prior(self.prior) or empirical_beta(cells.clicks[at], cells.weight[at])

    def _row_parameters(self, X, qid, doc):
        place = self._places(X, qid, doc)
        return {**self._parameters_at(place), "doc": place}

    def _probability(self, parameters, position, bias, clicks):
        factor = self._factors.codes(bias, parameters["relevance"] > 0)
        # Unseen documents have the place -1; no key is below 0.
        key = parameters["doc"] * len(self.prior_) + factor
        place = np.searchsorted(self._keys, key)
        found = self._keys[np.minimum(place, len(self._keys) - 1)] == key
        prior = self.prior_[factor, 0] / self.prior_[factor].sum(axis=-1)
        rate = np.where(found, self._rates[np.where(found, place, -1)], prior)
        # Beyond the end of a list relevance is 0, and so is P(click).
        return np.where(parameters["relevance"] > 0, rate, 0.0)
