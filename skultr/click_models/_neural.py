"""Click models that scan a list with a recurrent network."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from .._base._sklearn import Interval, StrOptions
from .._log._cells import loss_scale
from .._log._faults import count_of
from .._log._segments import rectangles
from .._torch._joint import TowersLoss
from .._torch._lists import LOSSES, ListDataset, ListLoss
from .._torch._net import NeuralEstimator
from .._torch._networks import GRU, Linear, stream
from ..exceptions import AssumptionWarning, ClickDataWarning, warn_user
from ._model import BaseClickModel, TableClickModel, examination_by_position

#: Number of lists (or samples of lists) that are predicted at a time: bounds the memory.
_CHUNK = 16_384
#: Length of the state h of the recurrent network.
_STATE_SIZE = 32
#: Length of the vector e of a document of the neural click model.
_VECTOR_SIZE = 16
#: Name of an element of a vector in the table of documents.
_VECTOR = "vector_{}".format


@dataclass(kw_only=True, eq=False, repr=False)
class NeuralClickModel(NeuralEstimator, TableClickModel):
    """Base of both neural click models; subclasses make the reader and the criterion."""

    relevance: Literal["embedding", "network"] = "embedding"
    n_samples: int = 64
    embedding_learning_rate: float = 0.01
    learning_rate: float = 0.01
    batch_size: int | Literal["auto"] = 256
    # Held-out sessions of the same documents tell when a table of vectors has learned enough.
    early_stopping: bool = True
    max_epochs: int | Literal["auto"] = 100
    weight_decay: float | Literal["auto"] = 0.0

    _parameter_constraints = {
        **NeuralEstimator._parameter_constraints,
        "relevance": [StrOptions({"embedding", "network"})],
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "embedding_learning_rate": [Interval(Real, 0, None, closed="neither")],
    }

    def _fit(self, log, task):
        training = log.tempered(self.traffic_exponent)
        if self.relevance == "embedding":
            # The table takes codes of documents in place of features.
            codes = np.arange(log.n_docs, dtype=np.float32)
            training = training.with_features(codes[:, None])
        training = replace(training, bias=log.position)  # the reader needs positions
        with self._seeded():
            reader = self._make_reader()
            module = SequenceModule(self._encoder(log, reader.n_out), reader)
            criterion = self._criterion(loss_scale(training, training.weight))
            if self.relevance == "embedding":
                self._train_on_sessions(module, criterion, training, log.weight, task)
            else:
                self._train(
                    module, criterion, training, training.clicks, click_only=False, task=task
                )
        # What predictions need beside the network of documents.
        self.reader_ = module.reader
        self._deepest = int(log.position.max())
        if self.relevance == "embedding":
            vectors = self._vectors(log)
            # Unseen documents get the mean vector of the shown ones.
            mean = self._parameters_of(vectors.mean(axis=0, keepdims=True))
            prior = {name: value.item() for name, value in mean.items()}
            self._remember_documents(log, prior, **self._parameters_of(vectors))

    _learns_more_by = None
    _averages_weights = False

    @property
    def _needs_features(self):
        return self.relevance == "network"

    _fold = BaseClickModel._fold

    def _encoder(self, log, n_out):
        if self.relevance == "network":
            return self._network(log.features, n_out)
        return nn.Sequential(nn.Identity(), DocumentTable(log.n_docs, n_out))

    # Training of embeddings ----------------------------------------------------------------
    def _train_on_sessions(self, module, criterion, log, impressions, task):
        """Train on all documents; early stopping holds out sessions."""
        module = module.to(self.device)
        codes = torch.from_numpy(log.features).to(self.device)
        # A folded list stands for several sessions, some of which are held out.
        held_out = self._held_out(impressions[log.offsets[:-1]])
        train = _part(log, codes, 1 - held_out)
        valid = _part(log, codes, held_out) if held_out.any() else None
        # Embeddings have a learning rate of their own.
        settings = {"lr": self.embedding_learning_rate}
        groups = [("network.1.weight", settings)]
        self._train_on(train, valid, module, criterion, task, groups, [])

    def _held_out(self, impressions):
        """Share of each list's sessions that early stopping holds out, shape (n_lists,).

        Held-out queries would leave their documents without training, and held-out lists with
        all their sessions would remove rare patterns of clicks.
        """
        counts = np.maximum(np.round(impressions), 1).astype(np.int64)
        if not self.early_stopping:
            return np.zeros(len(counts))
        if counts.sum() < 2:
            warn_user(
                "early_stopping needs validation sessions, but the log has one session: training "
                f"runs for max_epochs={self.max_epochs}. Give more sessions, or set "
                "early_stopping=False.",
                ClickDataWarning,
            )
            return np.zeros(len(counts))
        seed = torch.randint(2**31, (), generator=stream()).item()
        rng = np.random.default_rng(seed)
        held_out = rng.binomial(counts, self.validation_fraction)
        if held_out.sum() in (0, counts.sum()):  # few sessions: the draw took none or all
            one = rng.choice(len(counts), p=counts / counts.sum())
            held_out = np.zeros(len(counts))
            held_out[one] = 1
        return held_out / counts

    def _attributes_so_far(self, module):
        return {**super()._attributes_so_far(module), "reader_": copy.deepcopy(module.reader)}

    # Documents ---------------------------------------------------------------------------
    def _vectors(self, log):
        """Vector of each version of the training log, or of each document: (n, n_out)."""
        if self.relevance == "network":
            return self._outputs(self.network_, log.features)
        return self.network_[1].weight.detach().double().cpu().numpy()

    def _network_parameters(self, features):
        return self._parameters_of(self._outputs(self.network_, features))

    def _parameters_of(self, vectors):
        """Relevance and the elements of vectors (n_docs, n_out), as a dict of columns."""
        with torch.inference_mode():
            relevance = self._exact_reader().relevance(torch.from_numpy(vectors))
        columns = {_VECTOR(i): column for i, column in enumerate(vectors.T)}
        return {"relevance": relevance.numpy(), **columns}

    # Lists -------------------------------------------------------------------------------
    def _probability(self, parameters, position, bias, clicks):
        lists = self._lists(parameters, position)
        reader = self._exact_reader()
        n = self.n_samples

        def given_clicks(documents, position, clicks):
            return reader.probability(reader(documents, position, clicks))

        if clicks is not None:
            return _in_parts(given_clicks, _CHUNK, *lists, clicks.astype(float))
        chances = torch.from_numpy(_even_chances(n, position.shape[1]))

        def mean(documents, position):
            """Mean over samples of the clicks above."""
            choose = _below(chances.repeat(len(documents), 1))
            documents = documents.repeat_interleave(n, dim=0)
            position = position.repeat_interleave(n, dim=0)
            probability = reader.browse(documents, position, choose)
            return probability.reshape(-1, n, probability.shape[1]).mean(dim=1)

        return _in_parts(mean, max(1, _CHUNK // n), *lists)

    def _draw(self, parameters, position, bias, rng):
        lists = self._lists(parameters, position)
        reader = self._exact_reader()
        chance = rng.random(position.shape)

        def given_draws(documents, position, chance):
            return reader.browse(documents, position, _below(chance))

        probability = _in_parts(given_draws, _CHUNK, *lists, chance)
        return chance < probability

    def _lists(self, parameters, position):
        """Vectors (n_lists, width, n_out) and positions of lists."""
        too_deep = (position > self._deepest) & (parameters["relevance"] > 0)
        if too_deep.any():
            warn_user(
                f"Found {count_of(int(too_deep.sum()), 'row')} below position {self._deepest}, "
                "the deepest of the training log: P(click) is extrapolated there. Train on lists "
                "as long as those to predict.",
                AssumptionWarning,
            )
        n_out = len(parameters) - 1  # one of them is relevance
        documents = np.stack([parameters[_VECTOR(i)] for i in range(n_out)], axis=2)
        return documents, position.astype(float)

    def _exact_reader(self):
        # In single precision, the last digits of a list depend on the other lists of the batch.
        return copy.deepcopy(self.reader_).cpu().double().eval()


@dataclass(kw_only=True, eq=False, repr=False)
class NCMModel(NeuralClickModel):
    r"""Neural click model: a recurrent network scans the list and predicts each click.

    .. math::
        h_k = \mathrm{GRU}(h_{k-1}, [e_{d_k}, \log k, c_{k-1}]), \qquad
        P(c_k = 1 \mid c_{<k}) = \sigma(w \cdot h_k + b),

    with a vector :math:`e_d` of 16 numbers per document and a state :math:`h_k` of 32, trained by
    the cross-entropy of all clicks. No assumption separates relevance from examination. The model
    therefore fits users whom no other model describes, but it may learn the ranking that collected
    the clicks instead of relevance. Relevance is defined as P(click) of a document at the first
    position.

    Parameters
    ----------
    relevance : {"embedding", "network"}, default="embedding"
        One vector per document, or the output of a network of the features, which also has values
        for documents that are not in the log.
    n_samples : int, default=64
        With ``conditional=False``, P(click) is averaged over so many samples of the clicks above;
        see Notes.
    embedding_learning_rate : float, default=0.01
        Learning rate of the embeddings.

    Other Parameters
    ----------------
    hidden_layer_sizes, dropout, normalization, module, scale_features
        The network of the features (not used with embeddings; a ``module`` needs 16 outputs,
        the vector of a document); see :ref:`network_parameters`.
    learning_rate, max_epochs, batch_size, weight_decay, optimizer, net_params
    traffic_exponent
    early_stopping, validation_fraction, n_iter_no_change
        Early stopping by the cross-entropy of held-out clicks: of held-out sessions with
        embeddings, else of held-out queries.
    device, random_state, verbose

    Attributes
    ----------
    documents_ : DataFrame
        Only with embeddings: ``relevance`` and the elements of the vector by ``doc`` (by number
        where the log has no such column).
    network_ : torch.nn.Sequential
        Maps documents to vectors.
    reader_ : torch.nn.Module
        The recurrent network.
    net_ : skorch.NeuralNet
        The net that trained both; pickles leave it out.
    history_
    n_iter_ : int
        Number of epochs.
    n_features_in_, feature_names_in_

    Notes
    -----
    The published model also reads the query and the history of its clicks from features; this one
    reads the documents, their positions and the clicks above.

    A click depends on all clicks above, so that P(click) not conditional on them is a sum over
    2^(k − 1) patterns of clicks. It is estimated from ``n_samples`` patterns drawn from the model.

    - The result is reproducible: the random numbers are evenly spread, and the same for every
      list and in every call.
    - With 64 samples the error is at most about 0.02 (0.004 in root mean square at the worst of
      ten positions, measured on a DBN log).
    - It is slow: about 1,700 sessions per second. P(click) given the clicks above needs one pass
      only.

    Below the deepest position of the training log the recurrent network extrapolates, with a
    warning. Unseen documents get the mean vector, with a warning.

    References
    ----------
    A. Borisov, I. Markov, M. de Rijke and P. Serdyukov (2016). A neural click model for web
    search. WWW.

    R. Deffayet, P. Hager, J.-M. Renders and M. de Rijke (2023). An offline metric for the
    debiasedness of click models. SIGIR. Section 5.2.

    Examples
    --------
    >>> from skultr.click_models import NCMModel
    >>> from skultr.datasets import make_ltr
    >>> from skultr.simulation import DBNUser, UniformPolicy, simulate_clicks
    >>> documents = make_ltr(5, 6, random_state=0)
    >>> X, clicks, truth = simulate_clicks(
    ...     documents, n_sessions=2_000, policy=UniformPolicy(), user=DBNUser(), random_state=0
    ... )
    >>> model = NCMModel(max_epochs=8, random_state=0).fit(X, clicks)
    >>> model.predict_click(X, clicks).shape, model.predict_click(X, conditional=False).shape
    ((12000,), (12000,))
    >>> bool(model.score(X, clicks) > -1.5)
    True
    """

    _criterion = staticmethod(partial(ListLoss, LOSSES["bce"]))

    def _make_reader(self):
        return ListReader(_VECTOR_SIZE)


@dataclass(kw_only=True, eq=False, repr=False)
class CACMModel(NeuralClickModel):
    r"""Context-aware click model: relevance times examination by a recurrent network.

    .. math::
        h_k = \mathrm{GRU}(h_{k-1}, [\log k, c_{k-1}]), \qquad
        P(c_k = 1 \mid c_{<k}) = \sigma(w \cdot h_k + b)\,\sigma(g_{d_k}),

    with a state :math:`h_k` of 32 numbers, trained by the cross-entropy of all clicks. The
    examination hypothesis holds: whether row k is examined depends on its position and on all
    clicks above it, not on the documents. The user browsing model is the special case in which
    only the last click matters. This is the variant without search sessions (CACM⊖), in which the
    context is a single list.

    Parameters
    ----------
    relevance : {"embedding", "network"}, default="embedding"
        The logit g of a document: one number per document, or the output of a network of the
        features, which also has values for documents that are not in the log.
    n_samples : int, default=64
        With ``conditional=False``, P(click) is averaged over so many samples of the clicks above;
        see :class:`NCMModel`.
    embedding_learning_rate : float, default=0.1
        Learning rate of the logits g of embeddings.

    Other Parameters
    ----------------
    hidden_layer_sizes, dropout, normalization, module, scale_features
        The network of the features (not used with embeddings; a ``module`` needs
        one output); see :ref:`network_parameters`.
    learning_rate, max_epochs, batch_size, weight_decay, optimizer, net_params
    traffic_exponent
    early_stopping, validation_fraction, n_iter_no_change
        Early stopping by the cross-entropy of held-out clicks: of held-out sessions with
        embeddings, else of held-out queries.
    device, random_state, verbose

    Attributes
    ----------
    examination_ : DataFrame
        One row per position (index ``position``): mean ``examination`` over the training log,
        relative to the first position, ``impressions`` and ``clicks``.
    documents_ : DataFrame
        Only with embeddings: ``relevance`` and the logit g (``vector_0``) by ``doc`` (by number
        where the log has no such column).
    network_ : torch.nn.Sequential
        Maps documents to logits.
    reader_ : torch.nn.Module
        The recurrent network.
    net_ : skorch.NeuralNet
        The net that trained both; pickles leave it out.
    history_
    n_iter_ : int
        Number of epochs.
    n_features_in_, feature_names_in_

    Notes
    -----
    Relevance is determined up to one factor, which examination absorbs. Positions and documents
    that are not in the training log are treated as in :class:`NCMModel`.

    The recurrent network does not read the documents above. If rankings hardly vary, the documents
    above determine the next one, and the network would mistake its relevance for examination.

    References
    ----------
    J. Chen, J. Mao, Y. Liu, M. Zhang and S. Ma (2020). A context-aware click model for web search.
    WSDM.

    R. Deffayet, P. Hager, J.-M. Renders and M. de Rijke (2023). An offline metric for the
    debiasedness of click models. SIGIR. Section 5.2.

    Examples
    --------
    >>> from skultr.click_models import CACMModel
    >>> from skultr.datasets import make_ltr
    >>> from skultr.simulation import PositionBasedUser, UniformPolicy, simulate_clicks
    >>> documents = make_ltr(5, 6, random_state=0)
    >>> X, clicks, truth = simulate_clicks(
    ...     documents,
    ...     n_sessions=2_000,
    ...     policy=UniformPolicy(),
    ...     user=PositionBasedUser(1.0),
    ...     random_state=0,
    ... )
    >>> model = CACMModel(max_epochs=5, random_state=0).fit(X, clicks)
    >>> model.examination_.loc[1, "examination"].item()
    1.0
    """

    embedding_learning_rate: float = 0.1
    learning_rate: float = 0.003

    _criterion = TowersLoss

    def _make_reader(self):
        return ExaminationReader()

    def _fit(self, log, task):
        super()._fit(log, task)
        self.examination_ = examination_by_position(log, self._examination(log))

    def _examination(self, log):
        """P(examined) of each row of a log, given its clicks."""
        # Vectors of documents, or of versions of their features.
        vectors = self._vectors(log)
        code = log.version if self.relevance == "network" else log.doc
        examination = np.zeros(log.n_rows)
        reader = self._exact_reader()
        for _, place in rectangles(log.offsets):
            inside = place >= 0
            documents = torch.from_numpy(vectors[code[place]])
            position = torch.from_numpy(log.position[place].astype(float))
            clicks = torch.from_numpy(log.clicks[place] > 0)
            with torch.inference_mode():
                _, logits = reader(documents, position, clicks)
            examined = torch.sigmoid(logits).numpy()
            examination[place[inside]] = examined[inside]
        return examination


def _part(log, codes, share):
    """Data set of a share of the sessions of each list, with the mean weight of the log."""
    rows = share[log.list_]
    weight = log.weight * rows
    # The loss was scaled for the mean weight of the whole log.
    mean = log.weight.mean() / np.average(weight, weights=rows > 0)
    part = replace(log, clicks=log.clicks * rows * mean, weight=weight * mean)
    some = part.take_lists(np.flatnonzero(share))
    return ListDataset(some, codes)


def _in_parts(function, n_lists, *lists):
    """Values of a function of arrays, for ``n_lists`` of their lists at a time."""
    with torch.inference_mode():
        columns = [torch.from_numpy(each).split(n_lists) for each in lists]
        values = [function(*part) for part in zip(*columns, strict=True)]
        return torch.cat(values).numpy()


def _even_chances(n_samples, width):
    """Numbers (n_samples, width) that are evenly spread over [0, 1] in every column.

    They are the same for every list and every width, so that the prediction for a list does not
    depend on the other lists.
    """
    rng = np.random.default_rng(0)
    # Each column holds the middles of n_samples equal parts, in an order of its own.
    columns = [rng.permutation(n_samples) for _ in range(width)]
    return (np.column_stack(columns) + 0.5) / n_samples


def _below(chances):
    """A choice of clicks: where a number of [0, 1] is below the probability."""
    return lambda k, probability: chances[:, k] < probability


class DocumentTable(nn.Embedding):
    """One vector per document, used in place of a network of features."""

    def reset_parameters(self):
        """Start all vectors at 0.

        The order of documents must not matter, and the reader breaks the symmetry between the
        elements of a vector.
        """
        nn.init.zeros_(self.weight)

    def forward(self, code):
        """Vectors (n_rows, n_out) of documents given by codes of shape (n_rows, 1)."""
        return super().forward(code[:, 0].long())


class ListReader(nn.Module):
    r"""P(click) per row, from the state of a recurrent network that has read the rows above.

    :math:`h_k = \mathrm{GRU}(h_{k-1}, [e_k, \log k, c_{k-1}])` and
    :math:`P(c_k = 1 \mid c_{<k}) = \sigma(w \cdot h_k + b)`: the neural click model (Borisov et
    al. 2016).
    """

    def __init__(self, n_read):
        super().__init__()
        self.n_out = n_read
        # Beside the numbers read of a document: the logarithm of the position and the last click.
        self.recurrent = GRU(n_read + 2, _STATE_SIZE, batch_first=True)
        self.head = Linear(_STATE_SIZE, 1)

    def forward(self, documents, position, clicked):
        """Logits of all rows at once, as the criterion takes them."""
        above = F.pad(clicked[:, :-1], (1, 0))
        seen = self._seen(documents, position)
        state, _ = self.recurrent(torch.cat([seen, above[..., None]], dim=2))
        return self._outputs(state, documents)

    def browse(self, documents, position, choose):
        """P(click) per row, with the clicks chosen row by row by ``choose(k, probability)``."""
        seen = self._seen(documents, position)
        # Row by row: the click of one row is read by the next.
        state = None
        clicked = seen.new_zeros(len(seen))
        probability = torch.empty_like(position)
        for k in range(seen.shape[1]):
            row = torch.cat([seen[:, k], clicked[:, None]], dim=1)
            read, state = self.recurrent(row[:, None], state)
            outputs = self._outputs(read, documents[:, k : k + 1])
            probability[:, k] = self.probability(outputs)[:, 0]
            clicked = choose(k, probability[:, k]).to(seen.dtype)
        return probability

    def probability(self, outputs):
        """P(click) from what ``forward`` returns."""
        return torch.sigmoid(outputs)

    def relevance(self, documents):
        """Relevance of documents of shape (n_docs, ...): P(click) at the first position."""
        first = documents[:, None]
        no_click = first.new_zeros(first.shape[:2])
        position = torch.ones_like(no_click)
        outputs = self(first, position, no_click)
        return self.probability(outputs)[:, 0]

    def _seen(self, documents, position):
        """Input of the recurrent network per row, without the click above it."""
        return torch.cat([documents, position.log()[..., None]], dim=2)

    def _outputs(self, state, documents):
        return self.head(state)[..., 0]


class ExaminationReader(ListReader):
    r"""P(click) per row: relevance times examination by a recurrent network of the clicks above.

    :math:`h_k = \mathrm{GRU}(h_{k-1}, [\log k, c_{k-1}])` and
    :math:`P(c_k = 1 \mid c_{<k}) = \sigma(w \cdot h_k + b)\,\sigma(g_k)`, with one logit
    :math:`g` per document.
    """

    def __init__(self):
        super().__init__(n_read=0)
        self.n_out = 1  # the logit of relevance, which the recurrent network does not read

    def probability(self, outputs):
        relevance, examination = outputs
        return torch.sigmoid(relevance) * torch.sigmoid(examination)

    def relevance(self, documents):
        """σ(g) of each document."""
        return torch.sigmoid(documents[:, 0])

    def _seen(self, documents, position):
        # Documents are not read: if rankings hardly vary, those above determine the next one, and
        # the network would mistake its relevance for examination.
        return position.log()[..., None]

    def _outputs(self, state, documents):
        return documents[..., 0], self.head(state)[..., 0]


class SequenceModule(nn.Module):
    """A network that maps documents to vectors, and a reader that maps lists of them to clicks."""

    def __init__(self, network, reader):
        super().__init__()
        self.network = network
        self.reader = reader

    def forward(self, batch):
        """Output of the reader for a ``ListBatch`` whose bias factors are positions."""
        # The first part of the network, the scaling, was applied already.
        documents = self.network[1](batch.features)
        expected = (len(batch.features), self.reader.n_out)
        if documents.shape != expected:
            raise ValueError(
                f"The network gave outputs of shape {tuple(documents.shape)} for {expected[0]} "
                f"documents; expected {count_of(expected[1], 'number')} per document, {expected}. "
                "Check the last layer of the module."
            )
        rectangle = documents.new_zeros((*batch.mask.shape, expected[1]))
        rectangle = rectangle.masked_scatter(batch.mask[..., None], documents)
        # Padding needs a position with a logarithm, too.
        position = batch.pad(batch.bias.float()).clamp(min=1)
        return self.reader(rectangle, position, (batch.clicks > 0).float())
