"""Position bias and selection bias removed together: causal likelihood decomposition."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from numbers import Real
from typing import Literal

import numpy as np
import pandas as pd
import torch
from scipy.special import expit, ndtr, ndtri
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from torch import nn

from .._base._published import HasPublishedVariant
from .._base._sklearn import Interval, StrOptions
from .._base._typing import Floats, Table
from .._log._cells import loss_scale
from .._log._estimator import NotPickled
from .._torch._net import NeuralEstimator
from .._torch._networks import n_outputs_of, scoring_network
from ..exceptions import ClickDataWarning, NotIdentifiableWarning, warn_user
from ..propensity._source import label_table
from ._cld_losses import (
    TERMS,
    ListwiseLoss,
    PairLoss,
    RecordTerms,
    SelectionModule,
    TobitLoss,
)
from ._propensity_ranker import PropensityRanker
from ._thresholds import NO_SCALE, NOISE_OF_LABELS
from ._tobit import (
    GAMMAS,
    SelectedRows,
    TobitModel,
    find_candidates,
    fit_tobit,
    is_selection,
    profile_gamma,
)


@dataclass(kw_only=True, eq=False, repr=False)
class CLDRanker(HasPublishedVariant, NeuralEstimator, PropensityRanker):
    r"""Corrects position bias and selection bias, where only the top documents were shown.

    The method is causal likelihood decomposition (Zhao et al. 2023). The log must also hold the
    candidates that were never shown, as rows without a ``position``. The production ranker chose
    the documents shown, often by signals of relevance that the features lack. Among these
    documents, features then seem less important than they are: this is selection bias.

    Clicks are first divided by propensities, which removes position bias. Then relevance and
    selection are fitted together, with correlated errors. The part of a label's error that
    selection explains does not enter relevance. There are three losses:

    - ``"pointwise"``: the likelihood of the debiased labels of the documents shown, as published.
    - ``"pairwise"``: preferences between candidates of a query, the other published loss.
    - ``"listwise"``: the likelihood of which of the documents shown were clicked. This is the
      softmax loss of :class:`IPSRanker`, plus the selection terms (see Notes).

    The default, ``loss="pointwise"``, is the likelihood of a Type-II Tobit model. With
    :math:`\bar y` the mean of clicks over propensities of a (query, document),
    :math:`\tau_i^2 = \tau^2 + v_i`, :math:`e = (\bar y - x\beta) / \tau_i` and
    :math:`\gamma_i = \gamma \tau / \tau_i`:

    .. math::
        \sum_{\text{shown}} \Bigl[ -\log\tau_i - \frac{e^2}{2}
            + \log\Phi\Bigl(\frac{x\omega + \gamma_i e}{\sqrt{1 - \gamma_i^2}}\Bigr) \Bigr]
        + \sum_{\text{not shown}} \log\Phi(-x\omega).

    The label of row *i* has two errors. That of relevance has the standard deviation
    :math:`\tau`, and the correlation :math:`\gamma` with the error of selection. That of chance
    in its clicks is one that selection cannot know of. Its variance is known:
    :math:`v = r (1 - p r) / (n p)` for *n* impressions at propensity *p*, with *r* the mean rate
    of the log.

    ``loss="pairwise"`` compares pairs of candidates of a query (see Notes). Documents are ranked
    by :math:`x\beta`, or by the network that replaces it.

    Assumes two things:

    - The propensities are correct, up to a common scale.
    - The errors of relevance and selection have a correlation of about ``gamma``. It measures
      how much the logging policy knew about relevance beyond the features. If the policy ranked
      by the features alone, the true :math:`\gamma` is 0: :class:`IPSRanker` is then as good, and
      better on small logs.

    Parameters
    ----------
    loss : {"pointwise", "listwise", "pairwise"}, default="pointwise"
        Form of the likelihood. :ref:`forms_of_cld` compares them on 20 logs. With 50 sessions per
        query ``"listwise"`` was .006 of nDCG@10 ahead, if the policy ranked by the features alone.
    gamma : float in (-1, 1) or "estimate", default=0.2
        Correlation of the errors of relevance and selection. The paper has 0.05 to 0.30.
        ``"estimate"`` takes the posterior mean under linear models, with a prior near 0. If the
        log does not determine it, there is a warning. A log seldom does: see Notes.
    scale : float or "estimate", default="estimate"
        Standard deviation :math:`\tau` of the labels given the features, without chance in clicks.
        A number is that of whole labels, the same for every row, as published: :math:`v_i` is
        then 0. Only the pointwise loss, and the estimate of ``gamma``, use it.
    variant : {"default", "published", "program"}, default="default"
        Form of the pointwise and the pairwise loss. See Notes for what they are, and for their
        nDCG.

        - ``"published"`` is the objective as printed. For the pointwise loss this is equation 9,
          with :math:`\tau = 1` and :math:`-e^2` where the likelihood has :math:`-e^2 / 2`. For
          the pairwise loss it is equation 12 over the pairs of Algorithm 2, without ``gamma``.
        - ``"program"`` is what the program of its authors does for the pairwise loss. It compares
          the clicks of single pages, and so needs a log of pages. It does not use ``gamma``.

        In place of defaults "published" has ``hidden_layer_sizes=()``; for ``loss="pairwise"`` it
        has ``hidden_layer_sizes=(256, 128, 64)``, ``dropout=0.5``, ``max_epochs=12``, and an L2
        penalty in the loss, as ``optimizer="adam"`` with ``weight_decay=0.001``. Other values that
        are given stay. A value equal to the default counts as not given: equation 9 by a network
        of the default's size takes a list, ``hidden_layer_sizes=[64, 32]``, and has the penalty of
        ``weight_decay="auto"``.
    propensity : "column", array-like of shape (n_positions,), estimator or None, default=None
        Source of the examination probabilities, as in :class:`IPSRanker`.
    clip : float in (0, 1] or None, default=None
        Lower bound on propensities, relative to the largest one: smaller ones are replaced by it.
    hidden_layer_sizes : sequence of int, default=(64, 32)
        Hidden layers of the relevance model; empty for a linear one. The selection model is
        linear: a network learns what was shown in the training queries by heart, and less about
        relevance remains to be explained by selection.
    alpha : float, default=0.001
        Penalty on squared coefficients, relative to the mean log-likelihood of a row; used by
        Newton's method. Without a penalty the coefficients of the selection model diverge if the
        policy ranked by the features.

    Other Parameters
    ----------------
    dropout, normalization, module, scale_features
        This and those below are shared by all neural rankers, see
        :ref:`network_parameters`.
    learning_rate, max_epochs, batch_size, weight_decay, optimizer, net_params
        Gradient training is not used for two linear models with the pointwise loss, whose
        maximum Newton's method finds.
    traffic_exponent
    early_stopping, validation_fraction, n_iter_no_change
        Early stopping by the likelihood of the labels of held-out queries, given that the
        documents were shown.
    device, random_state, verbose

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficient of each (scaled) feature, then of each indicator of missing values, in
        the relevance model, if that is linear.
    intercept_ : float
    selection_coef_ : ndarray of shape (n_features,)
        Coefficient of each (scaled) feature, then of each indicator of missing values, in
        the selection model.
    selection_intercept_ : float
    gamma_ : float
        The correlation used; 0 if every candidate was shown, and for the pairwise loss with a
        ``variant`` other than ``"default"``. With ``gamma="estimate"`` the mean of the prior,
        0.10, if the likelihood is largest beyond 0.9 or -0.9.
    scale_ : float
        The standard deviation :math:`\tau` that was used or estimated; only after the pointwise
        loss. An estimate of nearly 0 says that labels vary by no more than chance in clicks:
        ``gamma`` then has no effect, and there is a warning.
    gamma_interval_ : tuple of float
        95 % confidence interval of the correlation, with ``gamma="estimate"``: where the profile
        log-likelihood is within 1.92 of its maximum.
    gamma_profile_ : DataFrame indexed by ``gamma``
        Profile ``log_likelihood`` of the correlation, with ``gamma="estimate"``. It is divided by
        the overdispersion of the queries (Chandler and Bate 2007), and corrected for the skewness
        of clicks.
    likelihood_ : DataFrame indexed by ``epoch``
        Mean log-likelihood per row (per pair for the pairwise loss with another ``variant``
        than ``"default"``), as the sum of three columns: the labels of the rows shown
        (``relevance``), the selection of these rows (``shown``) and that of the others
        (``never_shown``). With Newton's method an epoch is one step, and epoch 0 the start. With
        gradient training the values are means over the training batches, from epoch 1.
    network_ : torch.nn.Sequential
        Scaling of the features, then the relevance model.
    selection_network_ : torch.nn.Sequential
        The same scaling, then the selection model.
    labels_ : DataFrame
        Debiased labels of the documents shown, as in :class:`IPSRanker`; pickles leave them out.
    examination_ : DataFrame
        Propensity used for each bias factor (index ``bias``), as in :class:`IPSRanker`.
    examination_comparison_ : DataFrame
        Curves that were compared, as in :class:`IPSRanker`.
    propensity_
    effective_sample_size_, largest_weight_, clipped_share_ : float
        Diagnostics of the weights of clicks, as in :class:`IPSRanker`.
    net_ : skorch.NeuralNet
        The net that trained both models; pickles leave it out. Newton's method leaves neither it
        nor ``history_``.
    history_
    n_iter_ : int
        Number of epochs run, or of Newton steps.
    n_features_in_, feature_names_in_

    See Also
    --------
    HeckmanRanker : The same model, estimated in two steps.
    IPSRanker : Removes position bias only.

    Warns
    -----
    AssumptionWarning
        If the clicks contradict the propensities.
    ClickDataWarning
        If every candidate was shown: only position bias is removed.
    NotIdentifiableWarning
        If the propensities have to be learned, and no clicked document connects some bias
        factors. If ``gamma="estimate"`` and the log does not determine it: the interval reaches
        0.98 or -0.98, or is wider than 1.

    Notes
    -----
    *Rows.* Each (query, document) is one row. It is shown if any session showed it with a positive
    weight (``impressions`` times ``sample_weight``). Its weight is its number of impressions. A
    row that was never shown has the number of impressions of its query's pages, however often the
    log repeats the candidate. ``traffic_exponent`` applies to both. Queries without impressions
    are ignored. The sums above are divided by the weight of all rows.

    *What identifies* :math:`\gamma`. Without a variable that affects selection but not relevance,
    only the shape of the normal distribution identifies it: how skew the labels of the documents
    shown are. Clicks are skew by themselves; the estimate draws clicks from the fitted model and
    takes off what that adds. What is left is weak: an interval has a width of 1.3 with 20
    impressions per document, and 0.7 with 200. Selection by rank within a query is not a threshold
    per document either: on top-k logs the maximum-likelihood :math:`\gamma` is at the bound.
    ``"estimate"`` therefore weighs the likelihood with a half-Cauchy prior of scale 0.05, at least
    0 and of mean 0.10: as noise makes an estimate of -0.3 or 0.7 where the truth is 0, what the
    log does not determine stays near 0. Treat :math:`\gamma` as an assumption about your log.

    *Chance in clicks.* ``impressions`` and ``sample_weight`` count as impressions, so that click
    rates need the number they are of. *r* is one rate for all rows, because the rate of a row
    varies with its own clicks.

    *Lists.* The click of a page goes to the document of highest utility :math:`f + e`, with
    Gumbel errors :math:`e`: its probability is :math:`p_i \propto w_i \exp(f_i)` over the
    documents of the query that were shown, :math:`w` their impressions. A shown document
    contributes :math:`\log\Phi((g + \gamma \bar e) / \sqrt{1 - \gamma^2})` for its selection,
    as in the pointwise loss, with :math:`\bar e` its standardised mean error given the clicks:
    :math:`-\log p` if it was clicked, :math:`p \log p / (1 - p)` if another was. A document that
    is clicked more often than its features predict was, in part, shown for that reason.

    *Pairs.* A preference between two shown candidates is :math:`\log\sigma(f_i - f_j)`, for
    :math:`\bar y_i > \bar y_j` and :math:`\sigma` the logistic function, weighted by how much the
    labels differ. The selection of the two contributes
    :math:`\log\sigma(g_i + h) + \log\sigma(g_j - h)`, where :math:`h = \gamma e / \sqrt 2` and
    :math:`e` is the expected difference of the errors of relevance given that :math:`i` won. A
    candidate that was not shown contributes :math:`\log\sigma(-g)` (the paper prints
    :math:`\sigma(1 - g)`). If a candidate with a low selection score was shown and preferred, the
    model attributes this to its error term; it contributes less to the gradient of :math:`f`. Two
    pairs per row are drawn anew in each batch, so that time and memory are linear in the number
    of rows.

    *Equation 12* has :math:`\log\sigma(g_i + f_i - f_j) + \log\sigma(g_j + f_i - f_j)` for the
    selection. The term of the loser moves :math:`f` in the same direction as the terms above. The
    term of the winner moves it in the opposite direction: candidates that were unlikely to be
    shown, and won, contribute *more* to the gradient of :math:`f`. Algorithm 2
    (``variant="published"``) has two sets of pairs: those of documents shown, the one with the
    higher mean label first, and all ordered pairs with a candidate that was not shown. A shown
    candidate has :math:`\log\sigma(g_i + f_i - f_j)` and :math:`\log\sigma(g_i + f_j - f_i)` with
    each of the latter: together they draw the two scores towards each other. Most pairs are of
    this kind. However much the labels differ, a pair has the smaller weight of its two rows, which
    is 1 with ``traffic_exponent=0`` if the pages of a query show the same documents.

    *The program* (``variant="program"``) compares rows of one page, a list of the log; rates of
    several pages, merged before, count as one page. A pair whose clicks over propensities differ
    is a preference, weighted by the difference. Candidates that were never shown are in one page
    of their query only, of weight 1. All other ordered pairs, such as ties and preferences in the
    other order, have the terms of selection alone. The program draws as many of them as there are
    preferences; here they have that weight. It also draws pairs of a candidate with itself, which
    are left out.

    *Which form of pairs.* nDCG@3 of networks on six logs each of made documents and of MQ2008:
    where production used a hidden signal, the default is .042 ± .013 ahead of inverse propensities
    on made documents, the program .114 and equation 12 .128 behind. Where it used the features
    alone, none is ahead, and equation 12 is .09 to .12 behind. The three causes, each alone, are
    on the page :doc:`/papers/cld`.

    References
    ----------
    Zhao, Xu, Zhang, Cai, Dong & Wen (2023). Unbiased top-k learning to rank with causal
    likelihood decomposition. SIGIR-AP. Equations 9 and 12.
    Amemiya (1984). Tobit models: a survey. Journal of Econometrics.
    Chandler & Bate (2007). Inference for clustered data using the independence loglikelihood.
    Biometrika.

    Examples
    --------
    >>> from skultr import CLDRanker
    >>> from skultr.datasets import make_ltr
    >>> from skultr.simulation import PositionBasedUser, simulate_clicks
    >>> documents = make_ltr(n_queries=300, n_features=20, random_state=0)
    >>> log, clicks, truth = simulate_clicks(
    ...     documents,
    ...     n_sessions=5_000,
    ...     n_positions=5,
    ...     user=PositionBasedUser(1.0),
    ...     candidates=True,
    ...     random_state=0,
    ... )
    >>> int(log["position"].isna().sum()), len(log)
    (75000, 100000)
    >>> ranker = CLDRanker(propensity=truth.examination, random_state=0).fit(log, clicks)
    >>> ranker.predict(documents).shape, ranker.selection_coef_.shape
    ((6000,), (20,))
    >>> chance = ranker.predict_selection(documents)
    >>> shown = documents["doc"].isin(log.loc[log["position"].notna(), "doc"])
    >>> bool(chance[shown].mean() > chance[~shown].mean())
    True
    """

    loss: Literal["pointwise", "listwise", "pairwise"] = "pointwise"
    gamma: float | Literal["estimate"] = 0.2
    scale: float | Literal["estimate"] = "estimate"
    variant: Literal["default", "published", "program"] = "default"
    alpha: float = 0.001

    labels_ = NotPickled("a label for each document of the log")

    _parameter_constraints = {
        **NeuralEstimator._parameter_constraints,
        **PropensityRanker._parameter_constraints,
        "loss": [StrOptions({"pointwise", "listwise", "pairwise"})],
        "gamma": [Interval(Real, -1, 1, closed="neither"), StrOptions({"estimate"})],
        "scale": [Interval(Real, 0, None, closed="neither"), StrOptions({"estimate"})],
        "variant": [StrOptions({"default", "published", "program"})],
        "alpha": [Interval(Real, 0, None, closed="left")],
    }
    _learns_from_never_shown = True
    #: Twice and half as many gave the same nDCG@10, to .002 (``benchmarks/studies/cld_forms.py``).
    _length = 0.5

    def predict_selection(self, X: Table) -> Floats:
        """P(shown) of each row, by the selection model.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            Candidates. A frame needs the features only; role columns are ignored.

        Returns
        -------
        probability : ndarray of shape (n_rows,)
            1 if every candidate was shown in the training log.
        """
        check_is_fitted(self)
        features = self._read_features(X, reset=False)
        if not self._selects:
            return np.ones(len(features))
        scores = self._outputs(self.selection_network_, features)[:, 0]
        # The pairwise loss has logistic errors of selection, the others normal ones.
        return expit(scores) if self.loss == "pairwise" else ndtr(scores)

    def _attributes_so_far(self, module):
        network, selection = copy.deepcopy((module.network, module.selection))
        return {
            "network_": network,
            "selection_network_": nn.Sequential(network[0], selection),
        }

    @property
    def _published(self):
        # The networks of the paper have layers for the pairwise loss only.
        if self.loss != "pairwise":
            return {"hidden_layer_sizes": ()}
        return {
            "hidden_layer_sizes": (256, 128, 64),
            "dropout": 0.5,
            "max_epochs": 12,
            # A penalty in the loss: AdamW shrinks weights beside it.
            "optimizer": "adam",
            "weight_decay": 0.001,
        }

    def _validate_params(self) -> None:
        super()._validate_params()
        # A variant has some of the losses; the default has all.
        losses = _LOSSES_OF_VARIANTS.get(self.variant, [self.loss])
        if self.loss not in losses:
            choice = " or loss=".join(map(repr, losses))
            raise ValueError(
                f"variant={self.variant!r} is a form of the published losses, but loss is "
                f"{self.loss!r}. Set loss={choice}, or variant='default'."
            )

    @property
    def _reads_clicks(self):
        return self.variant == "program"  # which compares the clicks of one page

    def _fit(self, log, task):
        # 1. Labels of the documents shown, and all candidates as rows.
        clicks = self._debiased_clicks(log)
        self.labels_ = label_table(log, clicks)
        rows = find_candidates(log, clicks, self.traffic_exponent, self._divisors(log))
        if self.variant == "program":
            rows = rows.by_page(log, clicks, self.traffic_exponent)
        self._selects = is_selection(rows, ", and only position bias is removed")
        with self._seeded():
            # 2. The models of relevance and of selection.
            known = log.features[np.unique(rows.version)]
            network = self._network(known, constant=self.loss == "pointwise")
            selection = self._selection_model(network[0], known, rows)
            scale = self._scale(rows)
            # 3. Their training; gamma is estimated by linear models.
            by_newton = self.loss == "pointwise" and self._is_linear
            self.gamma_ = self.gamma if self._uses_gamma else 0.0
            if self.gamma_ == "estimate" or by_newton:
                fit = self._fit_linear(log, rows, network[0], scale)
            if by_newton:
                self._take_linear(fit, rows, network, selection)
            else:
                self._train_by_gradient(log, rows, network, selection, scale, task)
        self.selection_network_ = nn.Sequential(self.network_[0], selection)
        self._keep_coefficients()

    @property
    def _uses_gamma(self):
        """True if the loss has a correlation of errors, and there is selection to correct."""
        has_gamma = self.loss != "pairwise" or self.variant == "default"
        return has_gamma and self._selects

    @property
    def _is_linear(self):
        return self.module is None and not len(self.hidden_layer_sizes)

    def _selection_model(self, scaling, known, rows):
        """A linear model of what was shown, which begins at the share of the rows shown."""
        # No hidden layer: selection is a probit (or logit) of the features.
        model = scoring_network(n_outputs_of(scaling, known))
        # P(shown) = Phi(intercept) at the start, without features.
        share = np.average(rows.shown, weights=rows.weight)
        share = np.clip(share, 1e-3, 1 - 1e-3)  # so that the start is finite where all were shown
        nn.init.constant_(model[-1].bias, ndtri(share))
        return model.to(self.device)

    def _scale(self, rows):
        """The parameter ``scale``; 1 if labels do not vary, because the estimate would be 0."""
        if self.variant == "published":
            return "published"
        if self.scale == "estimate" and np.ptp(rows.label[rows.shown]) == 0:
            return 1.0
        return self.scale

    def _fit_linear(self, log, rows, scaling, scale):
        """Fit two linear models, with an estimate of gamma if that is asked for."""
        scaling = scaling.to(self.device)
        features = self._scaled_inputs(scaling, log.features).cpu().numpy()
        # A scale that is given is that of whole labels, with the part of chance.
        chance = rows.chance if scale == "estimate" else None
        selected = SelectedRows(
            features=features[rows.version].astype(float),
            label=rows.label,
            selected=rows.shown,
            weight=rows.weight / rows.weight.mean(),
            noise=None if chance is None else chance.variance,
            query=rows.query,
        )
        start = None
        if self.gamma_ == "estimate":
            # The profile begins at gamma = 0, where relevance and selection are two separate
            # models.
            independent = TobitModel(0.0, scale, self.alpha)
            start = self._estimate_gamma(selected, independent, chance)
        fit = fit_tobit(selected, TobitModel(self.gamma_, scale, self.alpha), start)
        if not fit.converged:
            warn_user(
                f"Newton's method stopped after {fit.n_iter} steps, before the maximum. This "
                "happens if the labels are nearly a function of the features, or the features "
                "determine which documents were shown. Raise alpha, or set scale to the standard "
                "deviation of the labels given the features.",
                ConvergenceWarning,
            )
        return fit

    def _estimate_gamma(self, rows, model, chance):
        """Set what is said of gamma, and return the fit with the likeliest one."""
        # The likelihood at each gamma, maximised over all other parameters.
        profile = profile_gamma(rows, model, chance)
        self.gamma_ = profile.gamma
        self.gamma_interval_ = profile.interval
        self.gamma_profile_ = pd.DataFrame(
            {"log_likelihood": profile.curve}, pd.Index(GAMMAS, name="gamma")
        )
        if not profile.is_known:
            low, high = profile.interval
            warn_user(
                f"The log does not determine gamma: its likeliest value is {profile.likeliest:.2f}"
                f", with a 95 % interval from {low:.2f} to {high:.2f}. {self.gamma_:.2f} is used, "
                "mostly the prior. Set gamma to how much the production ranker knew about "
                "relevance beyond the features, such as 0.1 to 0.5, or to 0 if it used the "
                "features alone, and compare results.",
                NotIdentifiableWarning,
            )
        return profile.fit

    def _take_linear(self, fit, rows, network, selection):
        """Take the coefficients of two linear models into their networks."""
        self.scale_ = fit.scale
        self.n_iter_ = fit.n_iter
        if self.gamma_ and self.scale_ < NO_SCALE.value * np.std(rows.label[rows.shown]):
            warn_user(
                "The labels vary by no more than chance in clicks: their scale is 0, so that "
                "selection is not corrected, whatever gamma is. If y holds click rates, pass the "
                "number of impressions of each in the column or keyword 'impressions'. If it does "
                "not, the log is too small for scale='estimate': set scale to the standard "
                "deviation of the labels given the features, or collect more clicks.",
                ClickDataWarning,
            )
        self.network_ = network.to(self.device).double()
        _assign(network[1][-1], fit.coef, fit.intercept)
        _assign(selection.double()[-1], fit.selection_coef, fit.selection_intercept)
        self._keep_terms(fit.terms, first=0)

    def _train_by_gradient(self, log, rows, network, selection, scale, task):
        batches = rows.as_log(log)
        # The mean over rows, and not their sum, so that a step is as large for any log.
        unit = loss_scale(batches, batches.weight)
        criterion = self._criterion(rows, unit, scale)
        module = SelectionModule(network, selection)
        self._train(
            module,
            criterion,
            batches,
            batches.clicks,
            click_only=False,
            task=task,
            param_groups=[("log_scale", {"weight_decay": 0.0})],
            callbacks=[("terms", RecordTerms())],
            penalty=self._label_penalty(log, rows, criterion),
        )
        self._keep_terms(criterion.epochs)
        if self.loss == "pointwise":
            found = float(module.log_scale.detach().exp()) * self._units[1]
            self.scale_ = {"estimate": found, "published": 1.0}.get(scale, scale)

    def _label_penalty(self, log, rows, criterion):
        """The factor of squared weights in the loss."""
        noise = NOISE_OF_LABELS.value
        penalty = self._penalty(log, click_only=True, noise=noise, by_document=True)
        # The loss is a mean over candidates, of which those shown tell of relevance.
        return penalty * criterion.weight_of_labels(rows) / rows.weight.sum(dtype=float)

    def _criterion(self, rows, unit, scale):
        """The loss of the two networks."""
        if self.loss == "listwise":
            return ListwiseLoss(unit, rows.shown, self.gamma_, self._selects)
        if self.loss == "pairwise":
            return PairLoss(unit, rows, self.gamma_, self._selects, self.variant)
        # Networks learn standardised labels; coefficients are brought back by these units.
        label = rows.label[rows.shown]
        weight = rows.weight[rows.shown]
        center = float(np.average(label, weights=weight))
        spread = float(np.sqrt(np.average((label - center) ** 2, weights=weight))) or 1.0
        self._units = center, spread
        if scale == "estimate":
            noise = rows.chance.variance
            return TobitLoss(unit, rows.shown, self.gamma_, None, center, spread, noise)
        return TobitLoss(unit, rows.shown, self.gamma_, scale, center, spread)

    # Fitted attributes --------------------------------------------------------------------
    def _keep_terms(self, terms, first=1):
        epochs = pd.RangeIndex(first, len(terms) + first, name="epoch")
        self.likelihood_ = pd.DataFrame(np.asarray(terms), epochs, columns=list(TERMS))

    def _keep_coefficients(self):
        """Set the coefficients of the models that are linear, in units of the labels."""
        if self._is_linear:
            center, spread = self._units
            coef, intercept = _coefficients(self.network_[1][-1])
            self.coef_ = spread * coef
            self.intercept_ = center + spread * intercept
        # The selection model is always linear, whatever the network of relevance.
        last = self.selection_network_[1][-1]
        self.selection_coef_, self.selection_intercept_ = _coefficients(last)


#: Losses of which a variant is a form.
_LOSSES_OF_VARIANTS = {"published": ["pointwise", "pairwise"], "program": ["pairwise"]}


def _assign(layer, coef, intercept):
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(coef)[None])
        layer.bias.fill_(intercept)


def _coefficients(layer):
    weight = layer.weight.detach().cpu().double().numpy()[0]
    return weight, float(layer.bias.detach())
