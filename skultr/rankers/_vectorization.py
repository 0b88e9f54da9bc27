"""Clicks as inner products of vectors, for logs that one number per document cannot explain: the
ranker, its hull and its labels."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.spatial import ConvexHull
from sklearn.utils.validation import check_is_fitted
from torch import nn

from .._base._published import HasPublishedVariant
from .._base._sklearn import Interval, StrOptions
from .._base._typing import Column, Floats, Ints, Table
from .._log._cells import factor_codes, loss_scale
from .._log._faults import check
from .._log._roles import numbers, read_column, read_role, without_column
from .._log._segments import TINY, encode, pair_codes
from .._torch._joint import ListTarget, fit_listwise
from .._torch._lists import ListLoss, softmax_loss
from .._torch._net import NeuralEstimator
from .._torch._networks import Linear, SideBySide
from .._torch._shared_parameters import PUBLISHED_NETWORK
from ..exceptions import NotIdentifiableWarning, warn_user
from ..identifiability._graph import warn_unless_identifiable
from ..propensity._source import doubly_robust_labels
from ._candidates import DistinctCandidates
from ._ranker import BaseRanker
from ._vectorization_base import (
    correction_by_labels,
    fit_base,
    most_likely_vectors,
    most_probable_factors,
)
from ._vectorization_networks import FreezeObservation, VectorModule, binomial_loss, merge_networks

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._log._estimator import FitTask


#: Parameters of the network of base vectors that are those of the ranker.
_SHARED = (
    "learning_rate",
    "optimizer",
    "validation_fraction",
    "n_iter_no_change",
    "device",
    "verbose",
)
#: What the model of vectors set, which the training of students would replace.
_VECTOR_ATTRIBUTES = (
    "network_",
    "net_",
    "history_",
    "n_iter_",
    "observation_embedding_",
    "_by_factor",
    "_hull",
    "_variance_range",
    "_log_scale",
)


@dataclass(kw_only=True, eq=False, repr=False)
class VectorizationRanker(HasPublishedVariant, NeuralEstimator, BaseRanker):
    r"""Ranks documents where position bias is more than one number per position.

    The position-based model has one number for the document and one for the bias factor:
    :math:`P(c = 1) = r(x)\,o(t)`. No such numbers explain the clicks of users who trust the upper
    results, or look first at results with a picture. In vectorization both are vectors (Chen et
    al. 2022, eq. 2, 9):

    .. math::
        s(x, t) = r(x)^\top o(t), \qquad
        L = -\sum_i c_i \log \mathrm{softmax}\big(s(x, t)\big)_i .

    Vectors have no order. All candidates of a query are therefore scored with the same observation
    embedding, the *base vector* of the query. To find it, a second network predicts a Gaussian
    :math:`N(\mu(x), \sigma^2(x))` of the observation embeddings under which documents like
    :math:`x` were shown (eq. 10). The base vector maximises the product of the densities of all
    candidates (eq. 7, 8):

    .. math::
        \tilde o_q = \frac{\sum_i \mu(x_i) / \sigma^2(x_i)}{\sum_i 1 / \sigma^2(x_i)}, \qquad
        \mathrm{score}(x_i) = r(x_i)^\top \tilde o_q .

    These are the published stages, ``student=None``. By default a third one follows: a network
    with one output, the *student*, learns from doubly robust labels by the listwise softmax loss.
    The labels correct modelled relevance by how clicks differ from modelled clicks:

    .. math::
        \rho(x) + w\,(c - \hat c), \qquad \rho = e^{r(x)^\top \bar o}, \quad
        \hat c \propto e^{r(x)^\top o(t)}, \quad w = \min(\rho / \hat c,\, 3 m),

    with :math:`\bar o` the mean observation embedding, :math:`\rho` at most 1 and of geometric
    mean 0.2, and m the median of :math:`\rho / \hat c`. The ranker's score is the mean of both
    scores, each divided by its standard deviation within the lists of the log.

    With ``base="factor"`` the base vector is the observation embedding of one bias factor: the
    most probable one that the candidates have in common (eq. 5, 6). A few labelled documents can
    show which base vector orders by relevance (section 4.2); see :meth:`fit_base_vectors`.

    ``predict`` needs the column ``qid``, because a base vector depends on all candidates of the
    query. The score of the student depends on the row alone: with ``student="only"`` scores may
    be stored, and lists may be scored in parts.

    Assumes that the more relevant of two documents is clicked more often under every bias factor,
    and that the log showed similar documents under several bias factors.

    Parameters
    ----------
    n_components : int, default=2
        Length d of the vectors; search over 1 to 5.
    link : {"logit", "probability"}, default="logit"
        Meaning of the inner product. "logit": the input of the softmax over the list, as
        published. It is the *logarithm* of the click rate, up to a constant per list. Position
        bias then needs d = 2, with r = [log relevance, 1] and o = [1, log examination]; d = 1 is
        misspecified. "probability": the click rate itself, from vectors of positive entries
        (softplus), fitted by the binomial likelihood. Position bias is d = 1 and trust bias d = 2.
    student : {"average", "only"} or None, default="average"
        Whether a student is trained, and ranks together with the base vector or alone. None is
        the published method, whose base vector ranks.
    n_networks : int, default=3
        Number of networks of vectors, and of students. Several depend less on ``random_state``:
        each begins with other weights and holds out other queries. Scores of students are
        averaged; of vectors, the best approximation of the mean product by d components is kept.
        1 is the published method.
    base : {"embedding", "factor"}, default="embedding"
        "embedding" is the most probable observation embedding (eq. 7, 8). "factor" is the
        observation embedding :math:`o(t^*)` of the bias factor under which all candidates were
        most probably shown (eq. 6), which includes the factor under which all of them *were*
        shown (eq. 5):

        .. math:: t^* = \arg\max_t \prod_i P(T = t \mid x_i),

        with :math:`P(T \mid x)` by a network that learns, by cross-entropy, under which factors
        documents were shown.
    bounded_base : bool, default=True
        Keep the variances within their range over the training documents, and move the base
        vector into the convex hull of the observation embeddings. False is the published eq. 8,
        where a few candidates that differ from all documents shown can dominate the base vector
        of their query. The number of facets of a hull grows fast with its dimension: use False
        for more than 8 components. Not used with ``base="factor"``.
    variant : {"default", "published"}, default="default"
        "published" is one network of vectors, trained by AdaGrad, whose base vector ranks by
        eq. 8 alone. The network of base vectors has two hidden layers of 256 and 64 units
        (appendix D). Observation embeddings have a step size of 0.05 (0.02 by default), and stay
        at their start for 500 batches, half of the epochs at most (by default half of the epochs,
        with early stopping 20 at most). A student, several networks and the bounds serve to
        depend less on chance.
        {published}

    Other Parameters
    ----------------
    hidden_layer_sizes, dropout, normalization, module, scale_features
        This and those below are shared by all neural rankers, see
        :ref:`network_parameters`.
        ``module`` has ``n_components`` outputs per document; a student adds a linear layer.
    learning_rate, max_epochs, batch_size, weight_decay, optimizer, net_params
        The network of base vectors has one hidden layer of 32 units and is trained
        afterwards, with the same ``learning_rate`` and ``optimizer``, in batches of 32 documents
        for each list of ``batch_size`` ("auto": of 64 lists).
    traffic_exponent
        In the training of the relevance embeddings and of the students.
    early_stopping, validation_fraction, n_iter_no_change
    device, random_state, verbose

    Attributes
    ----------
    observation_embedding_ : DataFrame of shape (n_factors, `n_components`)
        Observation embedding of each bias factor (index ``bias``). Observation and relevance
        embeddings are determined up to an invertible linear map: only their inner products have a
        meaning.
    network_ : torch.nn.Sequential
        Scaling of the features, then the networks of relevance embeddings and of base vectors
        (mean and log variance, or logits of the bias factors) side by side.
    student_network_ : torch.nn.Sequential or None
        Scaling of the features, then the students side by side, whose mean is the score. None
        with ``student=None``.
    net_ : skorch.NeuralNet
        The net that trained the embeddings, the last of ``n_networks``; not in pickles.
    history_ : DataFrame of shape (`n_iter_`, 1 or 2)
        Its learning curves: training and, with ``early_stopping``, validation loss by epoch.
    base_history_ : DataFrame
        Learning curves of the network of base vectors.
    student_history_ : DataFrame
        Learning curves of the last student; not with ``student=None``.
    n_iter_ : int
        Number of epochs that ``net_`` was trained for.
    n_features_in_, feature_names_in_

    Warns
    -----
    NotIdentifiableWarning
        If the log does not determine relevance, or has fewer bias factors than ``n_components``.

    Notes
    -----
    The network of base vectors is trained after the vectors, in either variant. The paper trains
    ``variant="published"`` for 15,000 steps, without early stopping. These are
    ``max_epochs = ceil(15_000 / ceil(n_lists / 256))``, with n_lists the number of lists with a
    click.

    References
    ----------
    Chen, Liu, Liu & Sun (2022). Scalar is not enough: vectorization-based unbiased learning to
    rank. KDD.

    Examples
    --------
    >>> from skultr import VectorizationRanker
    >>> from skultr.datasets import make_ltr
    >>> from skultr.simulation import PlackettLucePolicy, TrustBiasUser, simulate_clicks
    >>> documents = make_ltr(n_queries=50, n_features=20, random_state=0)
    >>> log, clicks, truth = simulate_clicks(
    ...     documents,
    ...     n_sessions=500,
    ...     user=TrustBiasUser(),
    ...     policy=PlackettLucePolicy(),
    ...     random_state=0,
    ... )
    >>> ranker = VectorizationRanker(max_epochs=2, random_state=0).fit(log, clicks)
    >>> ranker.predict(documents).shape
    (1000,)
    >>> ranker.base_vectors(documents).shape
    (50, 2)

    Forty documents with grades correct the base vectors:

    >>> ranker.fit_base_vectors(documents.head(40), "relevance").predict(documents).shape
    (1000,)

    The observation embedding of one position as the base vector of each query:

    >>> published = VectorizationRanker(base="factor", student=None, max_epochs=2, random_state=0)
    >>> vectors = published.fit(log, clicks).base_vectors(documents)
    >>> bool(vectors[0].isin(published.observation_embedding_[0]).all())
    True
    """

    n_components: int = 2
    link: Literal["logit", "probability"] = "logit"
    student: Literal["average", "only"] | None = "average"
    n_networks: int = 3

    base: Literal["embedding", "factor"] = "embedding"
    bounded_base: bool = True

    _parameter_constraints = {
        **HasPublishedVariant._parameter_constraints,
        **NeuralEstimator._parameter_constraints,
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "link": [StrOptions({"logit", "probability"})],
        "student": [StrOptions({"average", "only"}), None],
        "n_networks": [Interval(Integral, 1, None, closed="left")],
        "base": [StrOptions({"embedding", "factor"})],
        "bounded_base": ["boolean"],
    }
    _published = {
        **PUBLISHED_NETWORK,
        "student": None,
        "n_networks": 1,
        "_observation_learning_rate": 0.05,
        "_frozen_steps": 500,
        "bounded_base": False,
        "_base_settings": {
            "hidden_layer_sizes": (256, 64),
            "weight_decay": 0.001,
            "max_epochs": 20,
        },
    }
    #: Vectors and the network learn from each other, which takes longer: with TianGong's clicks
    #: and with trust bias nDCG still rises at five times the steps.
    _length = 5
    #: Step size of the observation embeddings.
    _observation_learning_rate = 0.02
    #: Number of steps in which only the network is trained; None if epochs are counted.
    _frozen_steps = None
    #: Largest number of epochs in which only the network is trained; None: half of them, so that
    #: relevance comes first, as in other rankers that learn it beside a table
    #: (``RELEVANCE_FIRST``). The observation embeddings stay at their start, where all are equal.
    #: Early stopping begins after.
    _frozen_epochs = None
    #: Parameters of the network of base vectors. It has neither dropout nor normalisation, trains
    #: on one row per document, and ignores ``net_params``.
    _base_settings = {
        "hidden_layer_sizes": (32,),
        "weight_decay": 0.001,
        "max_epochs": 20,
    }
    #: What labelled documents add to each base vector, shape (n_components,).
    _base_shift = 0.0
    __metadata_request__predict = {"qid": True}

    def predict(self, X: Table, *, qid: Column | None = None) -> Floats:
        """Relevance scores, comparable within one query; higher is more relevant.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            All candidates of the queries: a score depends on which documents share its query.
            X may be a log: rows with equal features, and equal ids if X has ``doc``, count once.
        qid : array-like of shape (n_rows,), default=None
            Query ids; by default the column ``qid`` of X. Without either, all rows count as one
            query, with a warning.

        Returns
        -------
        scores : ndarray of shape (n_rows,)
        """
        check_is_fitted(self)
        query_ids = None if self._ranks_rows else self._known_query_ids(X, qid, "predict")
        return self._scores_within(X, query_ids)

    def base_vectors(self, X: Table, *, qid: Column | None = None) -> pd.DataFrame:
        """Base vector of each query: the observation embedding that its candidates share.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
        qid : array-like of shape (n_rows,), default=None
            Query ids; by default the column ``qid`` of X.

        Returns
        -------
        vectors : DataFrame of shape (n_queries, `n_components`)
            By query id (index ``qid``), sorted.
        """
        check_is_fitted(self)
        query, ids = encode(self._known_query_ids(X, qid, "base_vectors"))
        features = self._read_features(X, reset=False)
        # A log repeats documents over its pages; they count once.
        first = DistinctCandidates.of_rows(X, features, query).first
        _, base = self._parts(features[first])
        vectors = self._base_vectors(query[first], len(ids), base)
        return pd.DataFrame(vectors, index=pd.Index(ids, name="qid"))

    def fit_base_vectors(
        self, X: Table, y: Column | str = "relevance", *, qid: Column | None = None
    ) -> Self:
        r"""Correct the base vectors by a few documents with grades, such as human judgments.

        Grades are numbers that the scores of the candidates should equal: linear equations for
        the base vector (section 4.2 of the paper). They are solved by least squares, within
        queries, in two steps: first for the scale *a* of the scores alone, then for one vector
        :math:`v` that is added to the base vector of each query:

        .. math::
            a = \max\Big(\frac{\sum g_i s_i}{\sum s_i^2},\,
            0.3 \sqrt{\frac{\sum g_i^2}{\sum s_i^2}}\Big), \quad
            \min_v \sum_i \big(g_i - a\,s_i - r(x_i)^\top v\big)^2 + \lambda\,
            \overline{(r^\top v)^2}, \quad \tilde o_q' = \tilde o_q + v / a,

        with grades g, the scores s of the fitted ranker and r, all less their means in the query
        (the scale of the scores and the share of the student enter :math:`v / a`). The bound
        takes a correlation of at least 0.3 of scores and grades for granted: with less,
        :math:`v / a` would have no limit. v is the mean over values of :math:`\lambda`, infinity
        among them, weighted by how well they explain the grades (empirical Bayes), so that a few
        grades move the base vectors only as far as they agree.

        The relevance embeddings stay as the clicks made them. Grades help where clicks do not
        order documents by relevance under most bias factors, as where users find the answer on
        the result page and click the second best; elsewhere they change little.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            All candidates of some queries; those without a grade serve to find the base vector of
            their query. X may be a log: a candidate in several rows, as in :meth:`predict`, counts
            once, with the mean of its grades.
        y : array-like of shape (n_rows,) or str, default="relevance"
            Grades of at least 0, higher is more relevant, NaN or null without one; or the column
            of X that holds them.
        qid : array-like of shape (n_rows,), default=None
            Query ids; by default the column ``qid`` of X.

        Returns
        -------
        self : VectorizationRanker
            A second call replaces the first, and :meth:`fit` forgets both.

        Raises
        ------
        ValueError
            If grades are no numbers of at least 0, or differ within no query; or with
            ``student="only"``, which ranks without base vectors.
        """
        check_is_fitted(self)
        if self.student == "only":
            raise ValueError(
                "student='only' ranks without base vectors, so that labels change no score. Set "
                "student='average' or None; both use this fit."
            )
        if isinstance(y, str):
            values = numbers(f"The column {y!r}", read_column(X, y))
            grade = read_role(X, "relevance", values)
            X = without_column(X, y)
        else:
            grade = read_role(X, "relevance", np.asarray(y))
        check({"relevance": grade})
        qid = self._known_query_ids(X, qid, "fit_base_vectors")
        features = self._read_features(X, reset=False)
        # Each candidate once, with the mean of its grades.
        candidates = DistinctCandidates.of_rows(X, features, encode(qid)[0])
        rows = np.arange(len(grade))
        # Candidates without a grade say nothing about the correction.
        judged = pd.Series(grade).groupby(rows[candidates.place]).mean().dropna()
        first = rows[candidates.first][judged.index]
        # Scores without the correction of an earlier call.
        uncorrected = copy.copy(self)
        uncorrected._base_shift = 0.0
        scores = uncorrected._scores_within(X, qid)
        relevance, _ = self._parts(features[first])
        query, _ = encode(qid[first])
        # The labels choose s and v of the score s g + v' r(x).
        scale, shift = correction_by_labels(scores[first], relevance, judged.to_numpy(), query)
        self._base_shift = shift / scale
        if self._setting("student") is not None:
            # A base vector makes half of the score, in units of its spread.
            self._base_shift = shift / scale * (2 * self._spreads[0])
        return self

    def relevance_embedding(self, X: Table) -> Floats:
        """The relevance embedding of each row.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)

        Returns
        -------
        embedding : ndarray of shape (n_rows, `n_components`)
        """
        check_is_fitted(self)
        return self._parts(self._read_features(X, reset=False))[0]

    def predict_click(
        self, X: Table, *, bias: Column | None = None, position: Column | None = None
    ) -> Floats:
        """P(click) of each row if it is shown under its bias factor.

        With the logit link only ratios within a list are learned. The probabilities have the mean
        click rate of the training log; the rate of a single list may be higher or lower.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            A frame holds the bias factors in its column ``bias``, else ``position``.
        bias, position : array-like of shape (n_rows,), default=None
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
        observation = self.observation_embedding_
        codes = factor_codes(observation.index, X, bias, position)
        # The code -1, of a row without a bias factor, selects the last row, which is 0.
        vectors = np.vstack([observation.to_numpy(), np.zeros(self.n_components)])
        products = _products(self.relevance_embedding(X), vectors[codes])
        return np.where(codes >= 0, self._rates(products), 0.0)

    @property
    def _reads_whole_queries(self) -> bool:
        return not self._ranks_rows

    @property
    def _ranks_rows(self) -> bool:
        """True if a score depends on its row alone. In the middle of training there is no
        student."""
        return self.student == "only" and self.student_network_ is not None

    def _scores_within(self, X: Table, qid: NDArray[Any] | None) -> Floats:
        features = self._read_features(X, reset=False)
        if self._ranks_rows:
            return self._student_scores(features)
        query, _ = encode(qid)
        # A log repeats documents over its pages; they count once.
        candidates = DistinctCandidates.of_rows(X, features, query)
        scores = self._scores_of(features[candidates.first], query[candidates.first])
        return scores[candidates.place]

    def _scores_of(self, features, query):
        """Scores of the distinct candidates of queries."""
        base = self._base_scores(features, query)
        if self._setting("student") is None or self.student_network_ is None:
            return base
        # Each in units of its spread within lists, so that both count alike.
        base_spread, student_spread = self._spreads
        student = self._student_scores(features)
        return (base / base_spread + student / student_spread) / 2

    def _base_scores(self, features, query):
        """Products with the base vector of the query; queries are codes from 0."""
        relevance, base = self._parts(features)
        n_queries = query.max(initial=-1) + 1
        vectors = self._base_vectors(query, n_queries, base)
        return _products(relevance, vectors[query])

    def _student_scores(self, features):
        return self._outputs(self.student_network_, features).mean(axis=1)

    def _network(self, features, n_out=1, *, constant=True):
        network = super()._network(features, n_out, constant=constant)
        if self.module is None or n_out == self.n_components:
            return network
        # The module has n_components outputs, of which a student makes one.
        scale, module = network
        last = Linear(self.n_components, n_out, bias=constant)
        return nn.Sequential(scale, nn.Sequential(module, last))

    def _rates(self, products):
        """Click rates of products: these themselves, or exponentials with the rate of the log."""
        rate = products if self.link == "probability" else np.exp(products + self._log_scale)
        return np.clip(rate, 0.0, 1.0)

    _refuses_outcomes = "learns vectors of relevance and examination from the same clicks"

    def _fit(self, log: ClickLog, task: FitTask) -> None:
        warn_unless_identifiable(log, network=True)
        warn_about_rank(self.n_components, len(log.bias_values))
        self._factors = pd.Index(log.bias_values, name="bias")
        with self._seeded():
            # 1. Vectors of documents and of bias factors, from the clicks.
            observation = self._fit_vectors(log, task)
            # 2. The network that finds the base vector of a query.
            self._fit_base(log, observation)
            self.observation_embedding_ = pd.DataFrame(observation, index=self._factors)
            self._hull = Hull(observation)
            self._remember_training(log)
            # 3. Networks with one score per document, from doubly robust labels.
            self.student_network_ = None
            if self.student is not None:
                self._fit_students(log, task)

    def _attributes_so_far(self, module):
        """Attributes for predicting in the middle of training, for scikit-learn's callbacks."""
        if not isinstance(module, VectorModule):
            names = (*_VECTOR_ATTRIBUTES, "_spreads")
            attributes = {name: getattr(self, name) for name in names}
            return attributes | {"student_network_": copy.deepcopy(module.network)}
        # Until the network of base vectors is trained, the mean embedding replaces it.
        observation = module.table()
        return {
            "network_": copy.deepcopy(module.network),
            "observation_embedding_": pd.DataFrame(observation, index=self._factors),
            "_log_scale": np.nan,
            "student_network_": None,
        }

    def _fit_vectors(self, log, task):
        """Observation embeddings; the network gives relevance embeddings afterwards."""
        training = log.tempered(self.traffic_exponent)
        penalty = self._penalty(log, click_only=self.link == "logit")
        networks = []
        tables = []
        for _ in range(self.n_networks):
            self._fit_one(training, task, penalty)
            networks.append(self.network_[1])
            tables.append(self.net_.module_.table())
        if self.n_networks == 1:
            return tables[0]
        scale = self.network_[0]
        # A document counts as often as it was shown.
        versions, place = np.unique(log.version, return_inverse=True)
        weight = np.bincount(place, log.weight)
        joined = nn.Sequential(scale, SideBySide(*networks))
        outputs = self._outputs(joined, log.features[versions])
        merged, observation = merge_networks(networks, outputs, tables, weight)
        self.network_ = nn.Sequential(scale, merged.to(self.device))
        return observation

    def _fit_one(self, log, task, penalty):
        """Train one network of relevance embeddings, beside its table of the bias factors."""
        network = self._network(log.features, self.n_components)
        start = torch.ones(len(log.bias_values), self.n_components)
        click_only = self.link == "logit"
        if click_only:
            # The softmax compares rows of a list, and learns nothing from a list without a click.
            rate = None
            lists = log.comparable()
            loss = ListLoss(softmax_loss, loss_scale(lists, log.clicks))
        else:
            rate = log.clicks.sum() / log.weight.sum()
            lists = log
            loss = ListLoss(binomial_loss, loss_scale(lists, log.weight))
        # The vectors of bias factors have their own step size, and no weight decay.
        table_settings = {"lr": self._observation_learning_rate, "weight_decay": 0.0}
        # Observation embeddings stay equal while relevance alone explains what it can.
        freeze = FreezeObservation(self._frozen_epochs, self._frozen_steps)
        self._train(
            VectorModule(network, start, rate),
            loss,
            lists,
            lists.clicks,
            click_only=click_only,
            task=task,
            param_groups=[("observation", table_settings)],
            callbacks=[("freeze", freeze)],
            penalty=penalty,
        )

    def _fit_base(self, log, observation):
        """Train the network of base vectors, with the learned embeddings fixed."""
        # Batches of the base model hold this number of documents for each list of ``batch_size``.
        base = NeuralEstimator(
            **self._base_settings,
            batch_size=32 * self._lists_per_step(0),
            # Without validation queries for the first network there are none for this one.
            early_stopping="valid_loss" in self.history_,
            **{name: getattr(self, name) for name in _SHARED},
        )
        scale, relevance = self.network_
        self._by_factor = self.base == "factor"
        fit_base(base, scale, log, observation, by_factor=self._by_factor)
        self.base_history_ = base.history_
        self.network_ = nn.Sequential(scale, SideBySide(relevance, base.network_[1]))

    def _remember_training(self, log):
        """Set the range of the variances, and the log scale of the click rates."""
        _, base = self._parts(log.features[np.unique(log.version)])
        log_variance = base[:, self.n_components :]  # without a meaning for ``base="factor"``
        self._variance_range = log_variance.min(axis=0), log_variance.max(axis=0)
        # The scale with which expected clicks are as many as those of the log.
        # sum_i w_i exp(product_i + scale) = sum_i c_i, solved for the scale.
        products = self._training_products(log)
        highest = products.max()  # taken off, so that no exponential overflows
        expected = log.weight @ np.exp(products - highest)
        with np.errstate(divide="ignore"):  # without clicks the scale is 0, and so is every rate
            self._log_scale = np.log(log.clicks.sum() / expected) - highest

    def _training_products(self, log):
        """The product of the vectors of each row of the log."""
        relevance, _ = self._parts(log.features)
        observation = self.observation_embedding_.to_numpy()
        return _products(relevance[log.version], observation[log.bias])

    def _fit_students(self, log, task):
        """Train scalar networks on doubly robust labels."""
        # Kept, as the training of each student sets the attributes of a network anew.
        vectors = {name: getattr(self, name) for name in _VECTOR_ATTRIBUTES}
        # Labels.
        embedding, _ = self._parts(log.features)
        relevance = embedding @ self.observation_embedding_.mean().to_numpy()
        relevance = relevance[log.version]
        if self.link == "logit":
            relevance = relevance_of(relevance, log.weight)
        rates = self._rates(self._training_products(log))
        target = ListTarget(student_labels(log, relevance, rates))
        # The spread of the other half of the score. Callbacks may predict during the training,
        # when that of the students is not known.
        self._spreads = self._spread_of_base(log), 1.0
        # Training.
        students = []
        histories = []
        for _ in range(self.n_networks):
            fit_listwise(self, log, task, target)
            students.append(self.network_[1])
            histories.append(self.history_)
            vars(self).update(vectors)
        self.student_network_ = nn.Sequential(self.network_[0], SideBySide(*students))
        self.student_history_ = histories[-1]
        scores = self._student_scores(log.features)[log.version]
        self._spreads = self._spreads[0], spread_within(scores, log.list_)

    def _spread_of_base(self, log):
        """Standard deviation, within the lists of a log, of the scores by base vectors."""
        # A candidate counts once for its base vector, however many lists showed it.
        place, key = encode(pair_codes(log.query, log.version, log.n_versions))
        query, version = np.divmod(key, log.n_versions)
        query, _ = encode(query)
        scores = self._base_scores(log.features[version], query)
        return spread_within(scores[place], log.list_)

    def _parts(self, features):
        """Relevance embedding and outputs of the network of base vectors of each row."""
        return np.split(self._outputs(self.network_, features), [self.n_components], axis=1)

    def _base_vectors(self, query, n_queries, base):
        """Base vectors, shape (n_queries, n_components), by outputs for the candidates."""
        observation = self.observation_embedding_.to_numpy()
        if not base.shape[1]:  # in the middle of training there is no network of base vectors
            return np.tile(observation.mean(axis=0), (n_queries, 1))
        if self._by_factor:
            factor = most_probable_factors(query, n_queries, base)
            return observation[factor] + self._base_shift
        # The likeliest vector of a query: a mean over its candidates, weighted by 1 / variance.
        mean, log_variance = np.split(base, 2, axis=1)
        is_bounded = self._setting("bounded_base")
        if is_bounded:
            log_variance = np.clip(log_variance, *self._variance_range)
        vectors = most_likely_vectors(query, n_queries, mean, log_variance)
        if is_bounded:
            vectors = self._hull.pull_in(vectors)
        return vectors + self._base_shift


def _products(relevance, observation):
    """Inner product of the two vectors of each row."""
    return np.einsum("ij,ij->i", relevance, observation)


class Hull:
    """The convex hull of points."""

    def __init__(self, points: Floats) -> None:
        self.center = points.mean(axis=0)
        # The hull of flat points has a volume in the dimensions that they span.
        _, size, axes = np.linalg.svd(points - self.center, full_matrices=False)
        # Points span no dimension in which they differ by less than this share of the largest
        # difference.
        self._axes = axes[size > 1e-6 * max(size[0], TINY)]
        flat = (points - self.center) @ self._axes.T
        n_dimensions = len(self._axes)
        if n_dimensions < 2:  # Qhull begins at two dimensions
            unit = np.eye(n_dimensions)
            self._normals = np.concatenate([unit, -unit])
            self._bounds = np.concatenate([flat.max(axis=0), -flat.min(axis=0)])
        else:
            # Joggled input ("QJ"), which has facets also where points are degenerate.
            facets = ConvexHull(flat, qhull_options="QJ Pp").equations
            self._normals = facets[:, :-1]
            self._bounds = -facets[:, -1]

    def pull_in(self, points: Floats) -> Floats:
        """The points; those outside move to the surface, straight toward the center of the hull.

        The center is the mean of the points that define the hull.
        """
        flat = (points - self.center) @ self._axes.T
        # How many times as far as the surface each point is; 1 inside.
        excess = np.ones(len(flat))
        # Four million cells (points times facets) in memory at a time.
        chunk = max(1, (1 << 22) // max(len(self._bounds), 1))
        for start in range(0, len(flat), chunk):
            rows = slice(start, start + chunk)
            # n' x / b of each facet n' x <= b: above 1 outside of it.
            reach = flat[rows] @ self._normals.T / self._bounds
            excess[rows] = np.maximum(reach.max(axis=1, initial=0.0), 1.0)
        return self.center + (flat / excess[:, None]) @ self._axes


#: Modelled relevance and click rates are at least this: labels divide by the latter.
_LEAST_MODELLED = 1e-4


def relevance_of(log_relevance: Floats, weight: Floats) -> Floats:
    """Relevance in (0, 1] of logarithms known up to a constant; its geometric mean is 0.2."""
    center = weight @ log_relevance / max(weight.sum(), TINY)
    # Mean of modelled relevance. Its level is not identified; it sets the size of the correction.
    leveled = log_relevance - center + np.log(0.2)
    return np.exp(np.clip(leveled, np.log(_LEAST_MODELLED), 0.0))


def student_labels(log: ClickLog, relevance: Floats, rate: Floats) -> Floats:
    r"""Doubly robust labels :math:`\rho + w (c - \hat c)` of modelled relevance and click rates.

    The weight is :math:`w = \min(\rho / \hat c, 3 m)`, m the median of :math:`\rho / \hat c`. If
    the modelled clicks are right, the mean label is :math:`\rho`; if only their ratio to relevance
    is, the mean label is the relevance that the clicks show, but for the bound on w.
    """
    rate = np.clip(rate, _LEAST_MODELLED, 1.0)
    ratio = relevance / rate
    # Largest weight of a correction, in medians.
    weight = np.minimum(ratio, 3.0 * np.median(ratio))
    labels = doubly_robust_labels(log, relevance, rate, weight)
    return np.maximum(labels, 0.0)  # the last digits may be below


def spread_within(scores: Floats, segment: Ints) -> float:
    """Standard deviation of scores around the mean of their segment; 1 if all are equal."""
    counts = np.maximum(np.bincount(segment), 1)
    mean = np.bincount(segment, scores) / counts
    spread = float(np.sqrt(np.mean((scores - mean[segment]) ** 2)))
    return spread if spread > TINY else 1.0


def warn_about_rank(n_components: int, n_factors: int) -> None:
    """Warn if vectors are longer than the clicks can determine."""
    if n_components > n_factors:
        warn_user(
            f"n_components={n_components}, but the log has {n_factors} bias "
            f"factor{'' if n_factors == 1 else 's'}: its clicks determine products of rank "
            f"{n_factors} at most, and further components are arbitrary. Use "
            f"n_components={n_factors} or less.",
            NotIdentifiableWarning,
        )
