"""Examination that depends on the context of a result, learned from documents that moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Literal

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import nn

from .._base._callbacks import CallbackSupportMixin, with_callbacks
from .._base._sklearn import Interval
from .._base._typing import ArrayLike, Frame
from .._log._cells import loss_scale, read_cells
from .._log._clicklog import ClickLog
from .._log._estimator import FitTask
from .._log._offsets import take_off
from .._log._roles import ROLES, column_names, feature_names, is_frame
from .._log._segments import equal_rows, offsets_from_sorted
from .._models._solve import GroupedLogit
from .._torch._lists import ListLoss, softmax_loss
from .._torch._net import NeuralEstimator
from ..exceptions import NotIdentifiableError
from ._curves import (
    Estimate,
    curve_table,
    estimates_of_resamples,
    places_of,
    warn_about_curve,
    with_errors,
)
from ._learned import without_offsets
from ._propensity import LEAST, BasePropensity


@dataclass(kw_only=True, eq=False, repr=False)
class ContextualPropensity(NeuralEstimator, CallbackSupportMixin, BasePropensity):
    r"""Examination as a function of position and context (contextual position-based model).

    The context of a result affects how far users look: the device, the kind of page, the intent
    of the query. Examination :math:`o(k, x)` is a network of the context vector x with one output
    per bias factor k. It learns from documents that were shown at several positions or in several
    contexts (Fang et al. 2019). The assumption is that the relevance of a document depends neither
    on the position nor on the context.

    Parameters
    ----------
    context : str or int, list of str or int, default=None
        Columns of X that are the context, by name in a frame and by number in an array. Their
        values are numbers. A ranker with this estimator as its ``propensity`` does not use these
        columns as features. By default all columns without a role are the context, and the ranker
        uses them, too.
    n_bootstrap : int, default=0
        Number of resamples of the queries for the standard errors of ``examination_``. Each takes
        a whole training. With 0, standard errors are NaN.

    Other Parameters
    ----------------
    hidden_layer_sizes, dropout, normalization, module, scale_features
        This and those below are shared by all neural rankers, see
        :ref:`network_parameters`.
    learning_rate, max_epochs, weight_decay, optimizer, net_params
    batch_size
        A batch holds documents.
    traffic_exponent
        The default weighs a query by its clicks.
    early_stopping, validation_fraction, n_iter_no_change
    device, random_state, verbose

    Attributes
    ----------
    examination_ : DataFrame
        One row per bias factor (index ``bias``): ``examination`` **at the mean context**,
        relative to the first factor; ``standard_error`` of *log* examination; ``lower`` and
        ``upper``, the ends of the 95 % interval; ``impressions``, ``clicks`` and ``component``,
        equal where documents connect factors. See `examination_at` for other contexts.
    network_ : torch.nn.Sequential or None
        Scaling of the contexts, then the network; its outputs are log examination, up to a
        constant. None if the log has one bias factor.
    net_ : skorch.NeuralNet
        The net that trained it; pickles leave it out.
    history_ : DataFrame of shape (`n_iter_`, 1 or 2)
        Learning curves: training and, with ``early_stopping``, validation loss by epoch.
    n_iter_ : int
        Number of epochs.
    n_features_in_ : int

    Raises
    ------
    NotIdentifiableError
        In ``fit``, if no clicked document was shown under two bias factors.

    See Also
    --------
    InterventionHarvesting : One curve for all contexts.

    Notes
    -----
    *Objective.* Given that a document was clicked, the probability that the click was in the cell
    :math:`(k, x)` is

    .. math:: \frac{n_{k, x}\, o(k, x)}{\sum_{(k', x')} n_{k', x'}\, o(k', x')} ,

    with the sum over the cells in which the document was shown, n times each. Relevance cancels.
    The network maximises the likelihood of the cells in which the clicks of each document fell.
    The expected gradient is 0 at the truth, however few clicks a document has. After training, one
    number per bias factor is fitted to all clicks, which removes the noise of the last batches.

    The published objective is another one. It fits click rates of pairs of positions by the
    product of o and a *second* network, for the mean relevance of the documents of a pair. It is
    consistent only if that network is correct.

    *Scale.* Tables are relative to the first bias factor in each context. If documents were shown
    in several contexts, `predict` keeps the ratio of examination between contexts. If each
    document had one context only, the log does not determine that ratio. The first factor then
    has the same examination in all contexts, and documents of one query should share a context.

    References
    ----------
    Fang, Agarwal & Joachims (2019). Intervention harvesting for context-dependent
    examination-bias estimation. SIGIR.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.propensity import ContextualPropensity
    >>> from skultr.simulation import (
    ...     ContextualPositionBasedUser, UniformPolicy, simulate_clicks
    ... )
    >>> user = ContextualPositionBasedUser(n_contexts=20, n_features=1, scale=1, random_state=1)
    >>> X, clicks, truth = simulate_clicks(
    ...     make_ltr(50, random_state=0), user=user, policy=UniformPolicy(), n_positions=3,
    ...     n_sessions=20_000, random_state=0, features=False,
    ... )
    >>> X["effect"] = truth.context_vectors[X.pop("context"), 0]
    >>> propensity = ContextualPropensity(context="effect", random_state=0).fit(X, clicks)
    >>> curves = propensity.examination_at([[-1.0], [1.0]])
    >>> bool(curves.loc[0, 3] > curves.loc[1, 3])  # users look further down at -1
    True
    """

    context: str | int | Sequence[str] | Sequence[int] | None = None
    n_bootstrap: int = 0
    traffic_exponent: float = 1.0
    # Contexts have many clicks and few features: held-out documents tell well when a curve is
    # learned, and a penalty would make all contexts alike.
    learning_rate: float = 0.002
    max_epochs: int | Literal["auto"] = 100
    weight_decay: float | Literal["auto"] = 0.0
    early_stopping: bool = True

    _parameter_constraints = {
        **NeuralEstimator._parameter_constraints,
        "context": [str, Integral, "array-like", None],
        "n_bootstrap": [Interval(Integral, 0, None, closed="left")],
    }

    fit = with_callbacks(BasePropensity.fit)

    def examination_at(self, contexts: Frame | ArrayLike) -> pd.DataFrame:
        """Examination per context and bias factor, relative to the first factor in each context.

        Parameters
        ----------
        contexts : frame or array-like of shape (n_contexts, n_context_features)
            A frame with the columns of ``context``, or their values in that order.

        Returns
        -------
        examination : DataFrame of shape (n_contexts, n_factors)
            One column per bias factor; NaN where the log does not determine it. The index is
            that of ``contexts`` if they are a pandas frame.
        """
        check_is_fitted(self)
        framed = is_frame(contexts)
        values = self._read_contexts(contexts) if framed else np.asarray(contexts, np.float32)
        if values.ndim != 2 or values.shape[1] != self._n_context_features:
            raise ValueError(
                f"contexts has shape {values.shape}; expected one row per context with "
                f"{self._n_context_features} values each."
            )
        # A frame was read like the log; an array has its offsets to be taken off.
        if not framed:
            values = take_off(self._offsets, contexts, values)
        examination = np.exp(self._relative(self._logits(values)))
        index = contexts.index if isinstance(contexts, pd.DataFrame) else None
        return pd.DataFrame(examination, index, self.examination_.index)

    _predicts_from_features = True
    _reads_rows = True  # the contexts

    def columns_read(self) -> set[str | int]:
        """Names of columns without a role that the estimator reads; rankers drop them."""
        return set() if self.context is None else set(self._names())

    def columns_of_cells(self, names: list[str]) -> list[str] | None:
        """Columns that define the cells of a log, beside the document."""
        return self._factor_columns(names)

    def _factor_columns(self, names):
        if self.context is None:
            contexts = feature_names(names, {self._click_column})
        else:
            contexts = self._names()
        return ["bias" if "bias" in names else "position", *contexts]

    # Fitting ------------------------------------------------------------------------------
    def _fit(self, X, y, sample_weight, roles):
        values = self._read_contexts(X, reset=True)
        # A context is a distinct vector; its code takes the place of a user's.
        row_context, first = equal_rows(values)
        contexts = values[first]
        # One curve per context, as other estimators have one per user: factors are (context, bias)
        # pairs.
        cells, _ = read_cells(X, y, sample_weight, roles, user=row_context)
        all_users = cells.of_all_users()
        self._n_context_features = contexts.shape[1]
        self._reference = _reference_component(all_users)
        # The public curve is that of the mean context of all impressions.
        context = cells.factors.user[cells.factor]
        mean = np.average(contexts[context], axis=0, weights=cells.weight)[None]
        mean = mean.astype(np.float32)
        root = self._init_callback_context(max_subtasks=None)
        root.call_on_fit_task_begin(estimator=self, X=X, y=y)
        task = FitTask(root, X, y)

        def curve_of(learner, cells):
            learner._learn(cells, contexts, self._reference, task)
            log_examination = learner._relative(learner._logits(mean))[0]
            return Estimate(log_examination)

        def resampled(drawn):
            return curve_of(clone(self), cells.reweighted(drawn.doc_weight))

        # The network of the whole log stays; those of resamples are clones.
        curve = curve_of(self, cells)
        drawn = None
        if self.n_bootstrap:
            drawn = estimates_of_resamples(
                all_users, resampled, self.n_bootstrap, self.random_state
            )
        self.examination_ = curve_table(all_users, with_errors(curve, all_users, drawn))
        warn_about_curve(self.examination_)
        in_log = np.unique(cells.factors.user)
        log_examination = self._logits(contexts[in_log])
        self._largest = np.nanmax(log_examination[:, self._reference])
        root.call_on_fit_task_end(estimator=self, X=X, y=y, reconstruction_attributes=lambda: {})

    def _learn(self, cells, contexts, reference, task):
        """Train the network on the cells of documents that were clicked and moved."""
        self._reference = reference
        self.network_ = None
        # With one factor there is nothing to learn.
        if len(reference) == 1:
            return
        # The maximum-likelihood log examination of a factor without a click is minus infinity, and
        # the estimate would depend on when training ends. Half a click makes it finite.
        _, bias = np.unique(cells.factors.bias, return_inverse=True)
        cells = cells.with_half_clicks(bias)
        log = _documents_as_lists(cells, contexts)
        # A version is a context: does any document occur in two?
        first_context = log.version[log.offsets[log.list_]]
        self._compares_contexts = bool((log.version != first_context).any())
        log = log.tempered(self.traffic_exponent)
        criterion = ListLoss(softmax_loss, loss_scale(log, log.clicks))
        with self._seeded():
            known = log.features[np.unique(log.version)]
            network = self._network(known, len(reference))
            module = CellLogits(network, len(reference))
            self._train(module, criterion, log, log.clicks, click_only=True, task=task)
        self._offset = _offsets(log, self._outputs(self.network_, contexts))

    def _predict(self, X, values, shown, roles):
        curve = self.examination_["examination"]
        code = places_of(values[shown], curve.index.to_numpy(), curve.to_numpy())
        contexts = self._read_contexts(X)[shown]
        logits = self._logits(contexts)
        own = np.take_along_axis(logits, code[:, None], axis=1)[:, 0]
        return np.clip(np.exp(own - self._largest), LEAST, 1.0)

    def _logits(self, contexts):
        """Log examination per context and bias factor, up to a constant."""
        if self.network_ is None:
            return np.zeros((len(contexts), len(self._reference)))
        logits = self._outputs(self.network_, contexts) + self._offset
        if self._compares_contexts:
            return logits
        # Nothing compares contexts: each is relative to its own first factor.
        return self._relative(logits)

    def _relative(self, logits):
        """Logits relative to the first determined factor; NaN for undetermined factors."""
        first = int(self._reference.argmax())
        return np.where(self._reference, logits - logits[:, [first]], np.nan)

    # What comes in ------------------------------------------------------------------------
    def _names(self):
        if isinstance(self.context, str | Integral):
            return [self.context]
        return [*self.context]

    def _read_contexts(self, X, reset=False):
        """Context of each row, shape (n_rows, n_context_features), float32."""
        X = X if self.context is None else self._chosen(X)
        known = None if reset else self._offsets
        values, offsets = without_offsets(X, self._refuses_missing, known)
        if reset:
            self._offsets = offsets
        return values

    def _chosen(self, X):
        """The columns of X that hold contexts; a frame may have roles too."""
        framed = is_frame(X)
        chosen = self._names()
        columns = column_names(X) if framed else range(X.shape[1])
        bad = [name for name in chosen if name not in columns or name in ROLES]
        if bad:
            _refuse_contexts(bad, columns, framed)
        # In the order of the parameter, whatever that of the columns.
        places = [columns.index(name) for name in chosen]
        if not framed:
            return X[:, places]
        return nw.from_native(X, eager_only=True)[:, places].to_native()


def _refuse_contexts(bad, columns, framed):
    if framed:
        what = (
            f"has the columns {columns}. Expected columns of X that hold numbers and have no role."
        )
    else:
        what = (
            f"is an array of {len(columns)} columns. Expected numbers of columns, from 0 to "
            f"{len(columns) - 1}."
        )
    raise ValueError(f"context names {bad}, and X {what}")


def _reference_component(cells):
    """Mask of the bias factors that clicks compare: the largest connected component."""
    n_factors = len(cells.factors)
    label = cells.components(lambda part: part.by_doc(part.clicks)[part.doc] > 0)
    if label.max() + 1 == n_factors > 1:
        raise NotIdentifiableError(
            f"No clicked document was shown under two of the {n_factors} bias factors: "
            "nothing compares them. Serve some documents at several positions, as "
            "IdentifiabilityRepair(strategy='intervene') plans it, or use "
            "RegressionEMPropensity(), which compares positions by the features."
        )
    size = np.bincount(label)[label]
    # If components are equally large, the one with the lowest factor.
    return label == label[size.argmax()]


def _offsets(log, logits):
    """Correction of the logits per bias factor, shape (n_factors,), fitted to all clicks.

    The intercept of each factor has the noise of the last batches of training. One number per
    factor, fitted to all documents by the same likelihood, removes it.
    """
    expected = np.log(log.weight) + logits[log.version, log.bias]
    choice = GroupedLogit.from_rows(log.list_, log.clicks)
    found = choice.likeliest_examination(expected, log.bias, np.zeros(logits.shape[1]))
    return found - np.nanmax(found)


def _documents_as_lists(cells, contexts):
    """A log whose lists are documents and whose rows are the cells in which they were shown."""
    has_moved = np.bincount(cells.doc) > 1
    has_clicks = np.bincount(cells.doc, cells.clicks) > 0
    # Other documents tell nothing of where their clicks fell.
    rows = np.flatnonzero((has_moved & has_clicks)[cells.doc])
    doc = cells.doc[rows]
    factor = cells.factor[rows]
    offsets = offsets_from_sorted(doc)
    doc_of_list = doc[offsets[:-1]]
    bias_values, bias = np.unique(cells.factors.bias, return_inverse=True)
    n_queries = cells.doc_query.max() + 1
    return ClickLog(
        features=contexts,
        version=cells.factors.user[factor],
        doc_of_version=np.arange(len(contexts)),
        query_of_list=cells.doc_query[doc_of_list],
        # Nothing reads users and positions of these lists.
        user=np.zeros(len(rows), dtype=np.intp),
        position=np.ones(len(rows), dtype=np.intp),
        bias=bias[factor],
        clicks=cells.clicks[rows],
        weight=cells.weight[rows],
        propensity=None,
        offsets=offsets,
        query_ids=np.arange(n_queries),
        bias_values=bias_values,
        user_ids=np.zeros(1, dtype=int),
        doc_ids=None,
    )


class CellLogits(nn.Module):
    """Log examination of each cell of a document.

    The softmax over the cells of a document, with log impressions added, is the probability that
    a click on it was in each of them; relevance cancels.
    """

    def __init__(self, network, n_factors):
        super().__init__()
        self.network = network
        self.n_factors = n_factors

    def forward(self, batch):
        """Log examination in a ``ListBatch`` whose lists are documents; 0 at padding."""
        log_examination = self.network[1](batch.features)
        expected = (len(batch.features), self.n_factors)
        if log_examination.shape != expected:
            raise ValueError(
                f"The network gave outputs of shape {tuple(log_examination.shape)} for "
                f"{expected[0]} contexts; expected one output per bias factor, {expected}. Check "
                "the last layer of the module."
            )
        return batch.pad(log_examination.gather(1, batch.bias[:, None])[:, 0])
