"""Rankers that explain clicks by relevance and examination; relevance a network or a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import expit, log_expit, logit
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.validation import check_is_fitted

from .._base._sklearn import Interval, StrOptions, safe_indexing
from .._base._typing import Column, Floats, Table
from .._log._cells import examination_table, factor_codes, factor_table
from .._log._documents import KnownDocuments
from .._log._roles import read_role
from .._log._segments import TINY
from .._models._tabular import LearnsRelevance, fit_factors
from .._torch._joint import fit_affine, fit_listwise, fit_towers
from .._torch._net import NeuralEstimator
from .._torch._shared_parameters import PUBLISHED_NETWORK
from ..exceptions import python_value
from ..identifiability._graph import warn_unless_identifiable
from ..propensity._known_curve import learned_curve, with_counts_of
from ._correction import FORMS, Correction, Form, modelled_relevance
from ._ranker import BaseRanker

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask


@dataclass(kw_only=True, eq=False, repr=False)
class ClickRanker(LearnsRelevance, NeuralEstimator, BaseRanker):
    """Base class of rankers that learn relevance and examination from the same clicks.

    Relevance is a network or a table. Networks are two towers, or what a subclass writes as
    ``_fit_network(log, task)``. Subclasses name the published loss of the table.
    """

    examination: Literal["auto", "table", "network"] = "auto"
    examination_start: Literal["random", "ones"] | ArrayLike = "random"
    correction: Form = "auto"
    clip: float | None = 0.1
    naive_weight: float = 0.0

    _parameter_constraints = {
        **NeuralEstimator._parameter_constraints,
        **LearnsRelevance._parameter_constraints,
        "examination": [StrOptions({"auto", "table", "network"})],
        "examination_start": [StrOptions({"random", "ones"}), "array-like"],
        "correction": [StrOptions(FORMS)],
        "clip": [Interval(Real, 0, 1, closed="right"), None],
        "naive_weight": [Interval(Real, 0, 1, closed="both")],
    }
    _gives_probabilities = True
    #: One training of both parts, without a second one on a curve that is known by then.
    _published = {**PUBLISHED_NETWORK, "examination": "network", "clip": None}
    #: Correction of the last training, and the curve that it is by; None where the network learned
    #: examination too.
    _correction = None
    _curve = None
    _learns_examination = True
    _trains_on_clicks = True
    #: Step size of the examination logits of a network; None: regression-EM.
    _examination_learning_rate = None

    __metadata_request__predict = {"qid": True, "doc": True}

    def _fit(self, log: ClickLog, task: FitTask) -> None:
        warn_unless_identifiable(log, network=self.relevance == "network")
        if self.relevance == "embedding":
            self._fit_embedding(log)
            return
        log = self._scaled_in_place(log)
        clicks = log
        if self._click_log is not None:
            clicks = replace(self._click_log, features=log.features)
        if not self._refits_with(clicks):
            self._fit_network(clicks, task)
            return
        # First examination, from documents that moved and from a network as far as needed; then
        # a network that ranks, with examination fixed.
        self._curve = learned_curve(
            clicks,
            lambda: self._network_examination(clicks),
            source=self.examination,
            is_converged=self._has_converged,
        )
        self._fit_with_curve(log, task)
        self.examination_ = self._curve.table
        if self._curve.comparison is not None:
            self.examination_comparison_ = self._curve.comparison

    def _network_examination(self, log):
        """Log examination by a first training; only the last one is what callbacks watch."""
        return self._fit_network(log, None)

    def _has_converged(self):
        return self.max_epochs == "auto" or self.n_iter_ < self.net_.max_epochs

    def predict(self, X: Table, *, qid: Column | None = None, doc: Column | None = None) -> Floats:
        """Relevance scores, comparable within one query; higher is more relevant.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            Candidates. A frame needs the features only, and role columns are ignored; with
            ``relevance="embedding"`` it needs the column ``doc`` instead, if the training log
            had it.
        qid, doc : array-like of shape (n_rows,), default=None
            Queries and documents of the rows of an array, used only with
            ``relevance="embedding"``. ``qid`` may be left out if each document id occurs in only
            one query of the training log.

        Returns
        -------
        scores : ndarray of shape (n_rows,)

        Raises
        ------
        ValueError
            With ``relevance="embedding"``, if the training log did not show a document.
        """
        check_is_fitted(self)
        if self.relevance == "network":
            return self._score(self._read_features(X, reset=False))
        return self._relevance_of(X, qid, doc)

    def predict_click(
        self,
        X: Table,
        *,
        qid: Column | None = None,
        doc: Column | None = None,
        bias: Column | None = None,
        position: Column | None = None,
    ) -> Floats:
        """P(click) of each row if it is shown under its bias factor.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            A frame holds the bias factors in its column ``bias``, else ``position``.
        qid, doc, bias, position : array-like of shape (n_rows,), default=None
            The same roles, for arrays.

        Returns
        -------
        probability : ndarray of shape (n_rows,)
            0 for a row without a bias factor, because it was not shown.

        Raises
        ------
        ValueError
            If a bias factor was not in the training log.
        """
        check_is_fitted(self)
        factor = factor_codes(self._bias_values, X, bias, position)  # -1 without one
        # Only the rows with a bias factor: an embedding may not know the other documents.
        shown = np.flatnonzero(factor >= 0)
        probability = np.zeros(len(factor))
        if not len(shown):
            return probability
        ids = {}
        if self.relevance == "embedding":
            for role, given in (("qid", qid), ("doc", doc)):
                values = read_role(X, role, given)
                if values is not None:
                    ids[role] = values[shown]
        relevance = self.predict(safe_indexing(X, shown), **ids)
        logits = self._factor_logits[factor[shown]]
        probability[shown] = self._click_probability(relevance, logits)
        return probability

    def _click_probability(self, relevance, logits):
        if self.link_ == "additive":
            return expit(logit(relevance) + logits)
        # Examination is relative to the first factor, and may be above 1.
        return np.minimum(relevance * np.exp(logits), 1.0)

    @property
    def _learns_more_by(self) -> Literal["network", "counts"]:
        return "network" if self.relevance == "network" else "counts"

    @property
    def _needs_features(self) -> bool:
        return self.relevance == "network"

    @property
    def _corrects(self) -> bool:
        return self.relevance == "network"

    # The network -----------------------------------------------------------------------
    def _fit_network(self, log: ClickLog, task: FitTask | None) -> Floats:
        """Train network and examination together; returns log examination."""
        rate = self._examination_learning_rate
        fit_towers(self, log, task, link=self._table_link, learning_rate=rate)
        return self._fit_factors_again(log)

    def _refits_with(self, log):
        """True if the network is trained once more, with examination fixed."""
        # Another outcome is only learned by the second training.
        fixed = self.examination != "network" or self._click_log is not None
        return fixed and log.clicks.any()

    def _fit_with_curve(self, log, task):
        """Train a network listwise on the curve; sets all that predictions need."""
        known = replace(log, propensity=self._curve.propensity(log))
        if self._correction is None:
            least = None
            if self.clip is not None:
                # Examination is known up to a factor.
                least = self.clip * float(known.propensity.max())
            self._correction = Correction.of(
                known, form=self.correction, least=least, naive_weight=self.naive_weight
            )
        if self._validation is not None:
            examination = self._curve.propensity(self._validation)
            self._validation = replace(self._validation, propensity=examination)
        relevance = None
        # Without a bound the model cancels.
        if self._correction.form == "doubly_robust" and self._correction.least is not None:
            relevance = modelled_relevance(self, known)
        target = self._correction.target(known, self._validation, relevance)
        with self._seeded():
            fit_listwise(self, log, task, target)
        self._calibrate(log)
        self._fit_factors_again(log)

    def _fit_more(self, log, task):
        # What a training replaces.
        before = self.examination_
        logits = self._factor_logits
        if self._correction is None:
            self._fit_network(log, task)
        else:
            self._fit_with_curve(log, task)
        # A bias factor that the new log does not show keeps what is known of it.
        self._factor_logits = np.where(np.isnan(self._factor_logits), logits, self._factor_logits)
        if self._correction is None:
            learned = self.examination_["examination"].fillna(before["examination"])
            before = before.assign(examination=learned)
        self.examination_ = with_counts_of(before, self._click_log or log)

    def _calibrate(self, log):
        """Set shift and scale so that relevance times examination is the chance of a click."""
        log = log.sample()
        score = self._outputs(self.network_, log.features)[:, 0]
        examination = self._curve.propensity(log)
        self._units = fit_affine(score[log.version], examination, log.clicks, log.weight)

    def _fit_factors_again(self, log):
        """Set examination to its maximum-likelihood value given the learned relevance.

        Its value after training has the noise of the last batches, and ignores held-out queries.
        """
        part = log.sample()
        # Relevance is fixed: a logarithm that is added to that of examination, or a logit.
        link = self._table_link
        score = self._line(part.features)
        if link == "product":
            score = log_expit(score)
        logits = fit_factors(
            score,
            part.version,
            part.bias,
            part.clicks,
            part.weight,
            link=link,
            n_factors=len(log.bias_values),
        )
        self.link_ = link
        self._factor_logits = logits
        self._bias_values = log.bias_values
        self.examination_ = examination_table(log, np.exp(logits)[log.bias])
        return logits

    def _fit_embedding(self, log):
        """One number per document and bias factor, by the cells of the log."""
        outcomes = log
        if self._click_log is not None:
            log = self._click_log
        cells = log.cells
        start = self._examination_at_start(log.bias_values)
        fit = self._fit_table(cells, start)
        self.n_iter_ = fit.n_iter
        examination = np.exp(fit.factor_logits)
        relevance = fit.relevance
        if outcomes is not log:
            per_examination = _outcome_per_examination(log, outcomes.clicks, examination)
            relevance = np.where(np.isnan(relevance), np.nan, per_examination)
        # Documents that were never shown under a known factor have no relevance.
        known = ~np.isnan(relevance)
        self._documents = KnownDocuments.of_log(log, known)
        self.relevance_ = pd.Series(relevance[known], self._documents.index, name="relevance")
        self.link_ = fit.link
        self._bias_values = log.bias_values
        self._factor_logits = fit.factor_logits
        # A factor without impressions keeps its start, which says nothing.
        weight = cells.weight_of_factors
        self.examination_ = factor_table(
            log.bias_values,
            np.where(weight > 0, examination, np.nan),
            weight,
            cells.clicks_of_factors,
            fit.standard_error(0),
        )

    def _examination_at_start(self, factors):
        """Start of the table; it decides the result if the log does not determine it."""
        if not isinstance(self.examination_start, str):
            return _check_start(self.examination_start, factors)
        if self.examination_start == "ones":
            return np.ones(len(factors))
        return self._random_examination(check_random_state(self.random_state), len(factors))

    def _random_examination(self, random, n_factors):
        return random.uniform(size=n_factors)

    def _relevance_of(self, X, qid, doc):
        """The learned number of the document of each row."""
        by_features = self._documents.ids is None
        features = self._read_features(X, reset=False) if by_features else None
        place, names = self._documents.places(X, features, qid=qid, doc=doc)
        if place is None:
            raise ValueError(
                "X has no column 'doc' and no doc was passed: with relevance='embedding' a "
                "document is scored by its id, as in the training log. To score by features, "
                "use relevance='network', or DistilledRanker around this ranker."
            )
        # A table has no number for a document that it has not seen.
        unseen = np.flatnonzero(place < 0)
        if len(unseen):
            verb = "holds" if len(unseen) == 1 else "hold"
            kind = "row" if by_features else "doc"
            first = python_value(names[unseen[0]])
            raise ValueError(
                f"{len(unseen)} of {len(place)} rows {verb} a document that was not shown in the "
                f"training log (first: {kind} {first!r}); an embedding only knows the "
                f"{len(self.relevance_)} documents shown there. DistilledRanker around this "
                "ranker scores other documents by their features."
            )
        return self.relevance_.to_numpy()[place]


def _outcome_per_examination(log, outcomes, examination):
    """Outcomes of each document over the number of times that it was examined."""
    n_examined = examination[log.bias] * log.weight
    total = np.bincount(log.doc, outcomes, minlength=log.n_docs)
    n_examined = np.bincount(log.doc, n_examined, minlength=log.n_docs)
    return total / np.maximum(n_examined, TINY)


def _check_start(start, factors):
    """The start as floats, shape (n_factors,); an error unless it has a probability for each."""
    try:
        start = column_or_1d(start, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "examination_start must be 'random', 'ones' or one number for each bias factor, got "
            f"{start!r}."
        ) from error
    if len(start) != len(factors):
        raise ValueError(
            f"examination_start has {len(start)} values, but the log has {len(factors)} bias "
            f"factors. Pass one value for each of {python_value(factors[0])!r}, ..., "
            f"{python_value(factors[-1])!r}, in the order of examination_."
        )
    if not ((start > 0) & (start <= 1)).all():
        raise ValueError(
            f"examination_start must hold probabilities above 0 and at most 1, got {start}."
        )
    return start
