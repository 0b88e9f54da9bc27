"""Position bias and selection bias removed together: causal likelihood decomposition."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import expit, ndtr, ndtri
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from torch import nn

from .._log._factors import lists_per_unit
from .._sklearn import Interval, StrOptions
from .._torch._net import NeuralEstimator
from .._torch._networks import scoring_network
from .._typing import Floats, Table
from ..exceptions import ClickDataWarning, NotIdentifiableWarning, warn_user
from ..propensity._weights import label_table
from ._candidates import find_candidates
from ._cld_losses import TERMS, PairLoss, RecordTerms, SelectionModule, TobitLoss
from ._propensity_ranker import PropensityRanker
from ._tobit import GAMMA_BOUND, SelectedRows, TobitModel, fit_tobit, profile_gamma

__all__ = ["CLDRanker"]


@dataclass(kw_only=True, eq=False, repr=False)
class CLDRanker(NeuralEstimator, PropensityRanker):
    r"""Causal likelihood decomposition, for logs in which only the top few were shown.

    Candidates that were never shown are rows without a ``position``. What was shown was chosen
    by the old ranker, often because it knew something about relevance; among the documents shown,
    features then look less important than they are (selection bias). Clicks are first divided by
    propensities, which removes position bias. Then relevance and selection are fitted together,
    so that what selection says about a document's error does not go into its relevance.

    ``loss="pointwise"`` is the likelihood of a Type-II Tobit model. With :math:`\bar y` the mean
    of clicks over propensities of a (query, document), :math:`e = \bar y - x\beta` and
    :math:`\gamma` the correlation of :math:`e` with the error of selection:

    .. math::
        \sum_{\text{shown}} \Bigl[ -\log\tau - \frac{e^2}{2\tau^2}
            + \log\Phi\Bigl(\frac{x\omega + \gamma e / \tau}{\sqrt{1 - \gamma^2}}\Bigr) \Bigr]
        + \sum_{\text{not shown}} \log\Phi(-x\omega).

    ``loss="pairwise"`` compares pairs of candidates of a query (see Notes). Documents are ranked
    by :math:`x\beta`, or the network in its place.

    Assumes right propensities (up to one factor), and a logging policy whose hidden knowledge of
    relevance is about as strong as ``gamma`` says. If the policy ranked by nothing but the
    features, selection is ignorable: the true :math:`\gamma` is 0, and there is nothing to gain
    over :class:`IPSRanker`, and in small logs something to lose.

    Parameters
    ----------
    loss : {"pointwise", "pairwise"}, default="pointwise"
    gamma : float in (-1, 1) or "estimate", default=0.2
        Correlation of the errors of relevance and selection. The paper has 0.05 to 0.30.
        ``"estimate"`` takes the likeliest, with linear models, and warns where the log does not
        determine it. It seldom does: see Notes.
    scale : float or "estimate", default="estimate"
        Standard deviation :math:`\tau` of the labels given the features; read by the pointwise
        loss.
    variant : {"default", "preference", "published"}, default="default"
        ``"published"`` is the paper as it stands: with the pointwise loss equation 9, with
        :math:`\tau = 1` and :math:`-e^2` where the likelihood has :math:`-e^2 / 2`; with the
        pairwise loss equation 12, which does not read ``gamma``. ``"preference"`` is that
        equation without its terms of pairs that nobody compared. Both end lower; see Notes.
    propensity : "column", array-like of shape (n_positions,), estimator or None, default=None
        Where the examination probabilities come from, as in :class:`IPSRanker`.
    clip : float in (0, 1], default=None
        Propensities below it are raised to it.
    hidden_layer_sizes : sequence of int, default=()
        Hidden layers of the relevance model; empty for a linear one.
    selection_hidden_layer_sizes : sequence of int, default=()
        Those of the selection model.
    alpha : float, default=0.001
        Penalty on squared coefficients, of a mean row, where Newton's method is used. Without
        any, the selection model of a policy that ranked by the features has no bound.

    Other Parameters
    ----------------
    dropout, normalization, module, scale_features
        The relevance network and the input of both; shared by all neural rankers, see
        :ref:`network_parameters`.
    learning_rate, max_epochs, batch_size, weight_decay, optimizer, net_params
        Training by gradient. Two linear models with the pointwise loss need none: Newton's method
        finds the maximum.
    traffic_exponent
        How much more a frequent query counts than a rare one.
    early_stopping, validation_fraction, n_iter_no_change
        Early stopping over held-out queries, by the likelihood of the labels given that they
        were shown.
    device, random_state, verbose
        Where it runs, its seed, and what it prints.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Relevance by (scaled) feature, where the relevance model is linear.
    intercept_ : float
    selection_coef_ : ndarray of shape (n_features,)
        The same of selection, where that model is linear.
    selection_intercept_ : float
    gamma_ : float
        The correlation used; 0 where nothing was left out, and with a ``variant`` of the pairwise
        loss.
    scale_ : float
        The standard deviation :math:`\tau` used or found; absent after the pairwise loss.
    gamma_interval_ : tuple of float
        95 % interval of the correlation, with ``gamma="estimate"``. As evidence, rows of unequal
        weights count as :math:`(\sum w)^2 / \sum w^2` rows (Kish 1965): the interval is wider,
        the fewer queries most of the traffic went to.
    gamma_profile_ : DataFrame indexed by ``gamma``
        Its ``log_likelihood``, with ``gamma="estimate"``.
    likelihood_ : DataFrame indexed by ``epoch``
        Log-likelihood of a mean row, in its three terms: ``relevance`` of the rows shown, their
        selection (``shown``) and that of the others (``never_shown``). Where Newton's method was
        used, an epoch is one of its steps, and epoch 0 is where it began. Means over the training
        batches otherwise, from epoch 1.
    network_ : torch.nn.Sequential
        Scaling of the features, then the relevance model.
    selection_network_ : torch.nn.Sequential
        The same scaling, then the selection model.
    labels_ : DataFrame
        What the clicks say of each document shown, as in :class:`IPSRanker`.
    examination_ : DataFrame
        Bias factor (index ``bias``) to the propensity used, as in :class:`IPSRanker`.
    propensity_ : estimator
        The fitted clone, where ``propensity`` is an estimator (or assumed).
    effective_sample_size_, largest_weight_, clipped_share_ : float
        How evenly the clicks carry the labels, as in :class:`IPSRanker`.
    net_ : skorch.NeuralNet
        What trained it by gradient; absent after Newton's method, as is ``history_``.
    history_ : DataFrame of shape (`n_iter_`, 1 or 2)
        Learning curves: training and, with ``early_stopping``, validation loss by epoch.
    n_iter_ : int
        Epochs run, or Newton steps.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    See Also
    --------
    HeckmanRanker : The same model in two steps.
    IPSRanker : Position bias alone.

    Warns
    -----
    ClickDataWarning
        If no candidate was left out: position bias is removed, and no more.
    NotIdentifiableWarning
        If ``gamma="estimate"`` and the log does not determine it.

    Notes
    -----
    *Parameters.* There are more than 23 parameters, because two models are trained, of relevance
    and of selection, from clicks that are debiased first.

    *Rows.* A (query, document) is one row, shown if any session showed it; one that was shown with
    no weight (its ``impressions`` or ``sample_weight`` are 0) counts as never shown. Its weight is
    its number of impressions, or that of its query's pages if it was never shown, however often
    the log repeats the candidate; ``traffic_exponent`` tempers both. Queries that were never
    served are not read. The sums above are divided by the weight of all rows, which leaves the
    terms as they stand to each other.

    *What identifies* :math:`\gamma`. Without a variable that moves selection and not relevance,
    only the form of the normal distribution does, and clicks are not normal. Selection by rank
    within a query is no independent threshold either: on top-k logs the likeliest
    :math:`\gamma` often runs to the bound. Take it as a statement of yours about the old ranker.

    *Pairs.* A preference between two shown candidates is :math:`\log\sigma(f_i - f_j)`, for
    :math:`\bar y_i > \bar y_j` and :math:`\sigma` the logistic function, weighted by how much the
    labels differ; their selection is :math:`\log\sigma(g_i + h) + \log\sigma(g_j - h)` with
    :math:`h = \gamma e / \sqrt 2` and :math:`e` the expected difference of the errors of
    relevance, given that :math:`i` won. A candidate that was not shown is
    :math:`\log\sigma(-g)` (the paper prints :math:`\sigma(1 - g)`). So a candidate of poor
    features that was shown, and won, is taken to be better than its features: it moves :math:`f`
    less. Pairs are drawn anew in each batch: two for every row, so that time and memory grow with
    the rows.

    *Equation 12* has :math:`\log\sigma(g_i + f_i - f_j) + \log\sigma(g_j + f_i - f_j)` instead.
    For the loser that has the sign of the above. For the winner it has the opposite: candidates
    that were unlikely to be shown, and won, move :math:`f` *more*. Shown partners of
    candidates that were not shown have :math:`\log\sigma(g_i + f_i - f_j)` too, though nobody
    preferred them. ``variant="published"`` is all of that, and ``"preference"`` leaves the
    last out. Both end below ``gamma=0`` by rows, in worlds with selection bias and without; the
    user guide has the figures.

    References
    ----------
    Zhao, Xu, Zhang, Cai, Dong & Wen (2023). Unbiased top-k learning to rank with causal
    likelihood decomposition. SIGIR-AP. Equations 9 and 12.
    Amemiya (1984). Tobit models: a survey. Journal of Econometrics.

    Examples
    --------
    >>> from skultr import CLDRanker
    >>> from skultr.datasets import make_ltr
    >>> from skultr.simulation import PositionBasedUser, simulate_clicks
    >>> documents = make_ltr(n_queries=50, n_features=20, random_state=0)
    >>> log, clicks, truth = simulate_clicks(
    ...     documents,
    ...     n_sessions=500,
    ...     n_positions=5,
    ...     user=PositionBasedUser(1.0),
    ...     candidates=True,
    ...     random_state=0,
    ... )
    >>> int(log["position"].isna().sum()), len(log)
    (7500, 10000)
    >>> ranker = CLDRanker(propensity=truth.examination).fit(log, clicks)
    >>> ranker.predict(documents).shape, ranker.coef_.shape
    ((1000,), (20,))
    >>> bool(ranker.predict_selection(documents).mean().round(1) == 0.2)
    True
    """

    loss: Literal["pointwise", "pairwise"] = "pointwise"
    gamma: float | Literal["estimate"] = 0.2
    scale: float | Literal["estimate"] = "estimate"
    variant: Literal["default", "preference", "published"] = "default"
    hidden_layer_sizes: Sequence[int] = ()
    selection_hidden_layer_sizes: Sequence[int] = ()
    alpha: float = 0.001

    _parameter_constraints = {
        **NeuralEstimator._parameter_constraints,
        **PropensityRanker._parameter_constraints,
        "loss": [StrOptions({"pointwise", "pairwise"})],
        "gamma": [Interval(Real, -1, 1, closed="neither"), StrOptions({"estimate"})],
        "scale": [Interval(Real, 0, None, closed="neither"), StrOptions({"estimate"})],
        "variant": [StrOptions({"default", "preference", "published"})],
        "selection_hidden_layer_sizes": ["array-like"],
        "alpha": [Interval(Real, 0, None, closed="left")],
    }
    _learns_from_never_shown = True
    _sizes_of_layers = ("hidden_layer_sizes", "selection_hidden_layer_sizes")

    def predict_selection(self, X: Table) -> Floats:
        """P(shown) of each row, by the selection model.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            Candidates. A frame needs the features only; role columns are ignored.

        Returns
        -------
        probability : ndarray of shape (n_rows,)
            About 1 if no candidate was left out of the training log.
        """
        check_is_fitted(self)
        features = self._read_features(X, reset=False)
        scores = self._outputs(self.selection_network_, features)[:, 0]
        if not self._selects:
            return np.ones(len(scores))
        return ndtr(scores) if self.loss == "pointwise" else expit(scores)

    def _attributes_so_far(self, module):
        network, selection = copy.deepcopy((module.network, module.selection))
        return {
            "network_": network,
            "selection_network_": nn.Sequential(network[0], selection),
        }

    def _n_subtasks(self) -> int:
        return 0 if self._is_newton() else super()._n_subtasks()

    def _fit(self, log, task):
        clicks = self._debiased_clicks(log)
        self.labels_ = label_table(log, clicks)
        rows = find_candidates(log, clicks, self.traffic_exponent)
        self._selects = not rows.shown.all()
        if not self._selects:
            warn_user(
                "Every candidate was shown: there is no selection to correct, and only position "
                "bias is removed. If the log leaves out what was not shown, add the other "
                "candidates of each query as rows without a position.",
                ClickDataWarning,
            )
        with self._seeded():
            network = self._network(log.features[np.unique(rows.doc)])
            selection = self._selection_model(log, rows)
            if self.loss == "pointwise":
                self._fit_pointwise(log, rows, network, selection, task)
            else:
                self._fit_pairwise(log, rows, network, selection, task)
        self.selection_network_ = nn.Sequential(self.network_[0], selection)
        self._keep_coefficients()

    def _score(self, features: NDArray[np.float32]) -> Floats:
        center, spread = self._units
        return center + spread * super()._score(features)

    def _is_newton(self):
        linear = not len(self.hidden_layer_sizes) and not len(self.selection_hidden_layer_sizes)
        return self.loss == "pointwise" and linear and self.module is None

    def _selection_model(self, log, rows):
        model = scoring_network(
            log.features.shape[1], hidden_layer_sizes=self.selection_hidden_layer_sizes
        )
        share = np.clip(np.average(rows.shown, weights=rows.weight), 1e-3, 1 - 1e-3)
        nn.init.constant_(model[-1].bias, ndtri(share))
        return model.to(self.device)

    # Pointwise --------------------------------------------------------------------------
    def _fit_pointwise(self, log, rows, network, selection, task):
        scale = self._scale(rows)
        self.gamma_ = self._gamma()
        fit = None
        if self.gamma_ == "estimate" or self._is_newton():
            fit = self._fit_linear(self._selected_rows(log, rows, network[0]), scale)
        if self._is_newton():
            self._units = 0.0, 1.0
            self.scale_, self.n_iter_ = fit.scale, fit.n_iter
            self.network_ = network.to(self.device).double()
            _assign(network[1][-1], fit.coef, fit.intercept)
            _assign(selection.double()[-1], fit.selection_coef, fit.selection_intercept)
            self._keep_terms(fit.terms, first=0)
            return
        label, weight = rows.label[rows.shown], rows.weight[rows.shown]
        center = float(np.average(label, weights=weight))
        spread = float(np.sqrt(np.average((label - center) ** 2, weights=weight))) or 1.0
        self._units = center, spread
        batches = rows.as_log(log)
        fixed = None if scale == "estimate" else scale
        criterion = TobitLoss(
            lists_per_unit(batches, batches.weight), self.gamma_, fixed, center, spread
        )
        module = SelectionModule(network, selection)
        self._train_by_gradient(module, criterion, batches, task)
        found = float(module.log_scale.detach().exp()) * spread
        self.scale_ = {"estimate": found, "published": 1.0}.get(scale, scale)

    def _gamma(self):
        without = self.loss == "pairwise" and self.variant != "default"
        return 0.0 if without or not self._selects else self.gamma

    def _scale(self, rows):
        """The parameter; 1 where labels do not vary, whose scale would run to 0."""
        if self.variant == "published":
            return "published"
        varies = np.ptp(rows.label[rows.shown]) > 0
        return self.scale if varies or self.scale != "estimate" else 1.0

    def _selected_rows(self, log, rows, scaling):
        features = self._scaled_inputs(scaling.to(self.device), log.features).cpu().numpy()
        return SelectedRows(
            features[rows.doc].astype(float),
            rows.label,
            rows.shown,
            rows.weight / rows.weight.mean(),
        )

    def _fit_linear(self, rows, scale):
        model = TobitModel(0.0, scale, self.alpha)
        if self.gamma_ == "estimate":
            fit = self._estimate_gamma(rows, model)
        else:
            fit = fit_tobit(rows, TobitModel(self.gamma_, scale, self.alpha))
        if not fit.converged:
            warn_user(
                f"Newton's method stopped after {fit.n_iter} steps, short of the maximum. That is "
                "so where labels hardly differ from a function of the features, or the features "
                "tell exactly what was shown: raise alpha, or set scale to the standard deviation "
                "of the labels given the features.",
                ConvergenceWarning,
            )
        return fit

    def _estimate_gamma(self, rows, model):
        profile = profile_gamma(rows, model)
        self.gamma_, self.gamma_interval_ = profile.gamma, profile.interval
        self.gamma_profile_ = pd.DataFrame(
            {"log_likelihood": profile.curve[:, 1]}, pd.Index(profile.curve[:, 0], name="gamma")
        )
        low, high = profile.interval
        if low <= -GAMMA_BOUND or high >= GAMMA_BOUND or high - low > _WIDE_INTERVAL:
            warn_user(
                f"The log does not determine gamma: the likeliest is {profile.gamma:.2f}, with a "
                f"95 % interval from {low:.2f} to {high:.2f}. Selection of the top few of a query "
                "is no independent threshold, which the model takes it for. Set gamma to what "
                "the old ranker may have known, such as 0.1 to 0.5, and compare.",
                NotIdentifiableWarning,
            )
        return profile.fit

    # Pairwise ---------------------------------------------------------------------------
    def _fit_pairwise(self, log, rows, network, selection, task):
        self._units = 0.0, 1.0
        batches = rows.as_log(log)
        self.gamma_ = self._gamma()
        if self.gamma_ == "estimate":
            self._fit_linear(self._selected_rows(log, rows, network[0]), self._scale(rows))
        criterion = PairLoss(
            lists_per_unit(batches, batches.weight),
            self.variant,
            self._selects,
            self.gamma_,
        )
        self._train_by_gradient(SelectionModule(network, selection), criterion, batches, task)

    def _train_by_gradient(self, module, criterion, batches, task):
        terms = RecordTerms(criterion)
        self._train(
            module,
            criterion,
            batches,
            batches.clicks,
            click_only=False,
            never_shown=True,
            task=task,
            param_groups=[("log_scale", {"weight_decay": 0.0})],
            callbacks=[("terms", terms)],
        )
        self._keep_terms(terms.epochs_)

    # What is kept -----------------------------------------------------------------------
    def _keep_terms(self, terms, first=1):
        epochs = pd.RangeIndex(first, len(terms) + first, name="epoch")
        self.likelihood_ = pd.DataFrame(np.asarray(terms), epochs, columns=list(TERMS))

    def _keep_coefficients(self):
        if self.module is None and not len(self.hidden_layer_sizes):
            center, spread = self._units
            self.coef_, intercept = _coefficients(self.network_[1][-1])
            self.coef_, self.intercept_ = spread * self.coef_, center + spread * intercept
        if not len(self.selection_hidden_layer_sizes):
            layer = self.selection_network_[1][-1]
            self.selection_coef_, self.selection_intercept_ = _coefficients(layer)


#: An interval as wide says nothing.
_WIDE_INTERVAL = 1.0


def _assign(layer, coef, intercept):
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(coef)[None])
        layer.bias.fill_(intercept)


def _coefficients(layer):
    weight = layer.weight.detach().cpu().double().numpy()[0]
    return weight, float(layer.bias.detach())
