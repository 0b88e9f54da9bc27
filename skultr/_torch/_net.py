"""Parameters and training of every neural estimator; the only module that uses skorch nets.

A step of the default network takes a millisecond. skorch's own loop adds to it: it tells every
callback of every batch, and ``DataLoader`` handles the numbers of lists one by one.
:class:`ListNet` and :class:`BatchLoader` do without.

Optimizers are torch's without its compiler, whose import takes more than a second and 800 modules.
torch wraps ``step``, ``zero_grad`` and ``add_param_group`` only in order to hide them from the
compiler; :func:`inspect.unwrap` gives the methods without it.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from skorch import NeuralNet
from skorch.callbacks import Callback, EarlyStopping, GradientNormClipping
from skorch.helper import predefined_split
from skorch.utils import noop
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from .._base._progress import Steps
from .._base._sklearn import HasMethods, Interval, StrOptions
from .._base._threads import few_threads
from .._base._typing import Floats, RandomState
from .._log._estimator import NotPickled, SlimPickles
from ..exceptions import ClickDataWarning, warn_user
from ._lists import ListDataset, ScaledRows
from ._networks import (
    ScaledFeatures,
    ScaleFeatures,
    global_stream,
    n_outputs_of,
    outputs_of_rows,
    own_stream,
    precision_of,
    row_parts,
    scoring_network,
    stream,
)
from ._shared_parameters import describe_shared_parameters
from ._thresholds import (
    CLICKS_PER_FEATURE,
    DOCUMENTS_PER_FEATURE,
    FEW_QUERIES,
    LARGEST_PENALTY,
    QUERIES_PER_FEATURE,
    STEPS_OF_300_QUERIES,
    WHOLE_DECAY,
)

#: Those that torch can fuse; on a CPU the results do not depend on the number of threads.
_FUSED = ("adam", "adamw")
#: Number of documents scored at a time, so that predicting a million rows needs little memory.
_PREDICT_ROWS = 65_536
#: With ``batch_size="auto"``: steps of an epoch.
_STEPS = 50
#: Least lists of such a step: the gradient of fewer is mostly noise.
_LEAST_LISTS = 64
#: Most lists of such a step: more take longer and tell hardly more.
_MOST_LISTS = 256
#: Settings of skorch that say how many lists a step has, or how long it is.
_OF_STEPS = {"batch_size", "iterator_train__batch_size", "lr", "optimizer__lr"}


def _uncompiled(cls: type[Optimizer]) -> type[Optimizer]:
    """A class of torch's optimizers, without what hides its methods from the compiler."""
    methods = {
        "step": torch.no_grad()(inspect.unwrap(cls.step)),
        "add_param_group": inspect.unwrap(Optimizer.add_param_group),
        "zero_grad": inspect.unwrap(Optimizer.zero_grad),
        "__module__": __name__,
    }
    return type(cls.__name__, (cls,), methods)


Adagrad = _uncompiled(torch.optim.Adagrad)
Adam = _uncompiled(torch.optim.Adam)
AdamW = _uncompiled(torch.optim.AdamW)
#: By the names that the parameter ``optimizer`` takes.
OPTIMIZERS = {"adagrad": Adagrad, "adam": Adam, "adamw": AdamW}


@dataclass(kw_only=True, eq=False, repr=False)
class NeuralEstimator(SlimPickles, BaseEstimator):
    """Base class of the neural estimators: their shared parameters and their training.

    Subclasses call :meth:`_train` with a module that maps a ``ListBatch`` to the input of their
    criterion, and :meth:`_outputs` to apply a network to documents.
    """

    hidden_layer_sizes: Sequence[int] = (64, 32)
    learning_rate: float = 0.003
    max_epochs: int | Literal["auto"] = "auto"
    batch_size: int | Literal["auto"] = "auto"
    weight_decay: float | Literal["auto"] = "auto"
    dropout: float = 0.0
    normalization: str | None = None
    optimizer: str | type[torch.optim.Optimizer] = "adamw"
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10
    traffic_exponent: float = 0.5
    scale_features: bool = True
    module: nn.Module | Callable[[int], nn.Module] | None = None
    net_params: dict[str, Any] | None = None
    device: str | torch.device = "cpu"
    random_state: RandomState = None
    verbose: int = 0

    net_ = NotPickled("the skorch net of the training, with the state of its optimizer")

    #: Shift and scale of the outputs of the network that make them scores, or logits of scores.
    _units = 0.0, 1.0
    _gives_probabilities = False
    #: Whether the network is the mean of those after each step.
    _averages_weights = True
    #: Steps of a training with ``max_epochs="auto"``, relative to those of a network of relevance.
    _length = 1

    #: Log for early stopping that ``fit`` was given, while it runs.
    _validation = None
    #: Module that ``partial_fit`` continues, while it runs.
    _earlier = None

    _parameter_constraints = {
        "hidden_layer_sizes": ["array-like"],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "max_epochs": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "batch_size": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "weight_decay": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "normalization": [StrOptions({"layer", "batch"}), None],
        "optimizer": [StrOptions(set(OPTIMIZERS)), type],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "traffic_exponent": [Interval(Real, 0, 1, closed="both")],
        "scale_features": ["boolean"],
        "module": [HasMethods(["forward"]), callable, None],
        "net_params": [dict, None],
        "device": [str, torch.device],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        describe_shared_parameters(cls)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if "net_" in vars(self) and getattr(self, "_learns_more_by", None) == "network":
            state["_module"] = self.net_.module_  # what partial_fit continues
        return state

    def _network(self, features, n_out=1, *, constant=True):
        """The scaling and an untrained scoring network for these training documents.

        If the loss only compares documents, it determines no ``constant`` added to all scores: the
        last bias is then 0, because rounding errors would move it in training.
        """
        # Scaling is part of the network: what is saved or exported needs no second object.
        scaling = self._feature_scaling(features)
        n_features = n_outputs_of(scaling, features)
        if self.module is None:
            network = scoring_network(
                n_features,
                n_out,
                hidden_layer_sizes=self.hidden_layer_sizes,
                dropout=self.dropout,
                normalization=self.normalization,
            )
            if not constant:
                nn.init.zeros_(network[-1].bias).requires_grad_(False)
        elif isinstance(self.module, nn.Module):
            # Parameters of an estimator stay as they are.
            network = copy.deepcopy(self.module)
        else:
            network = self.module(n_features)
        return nn.Sequential(scaling, network)

    def _feature_scaling(self, features):
        if self._earlier is not None:
            return copy.deepcopy(self._earlier.network[0])
        # A log that several trainings read was scaled once.
        if isinstance(features, ScaledFeatures):
            return copy.deepcopy(features.scaling)
        if not self.scale_features:
            return nn.Identity()
        # A module of the user has as many inputs as there are features.
        return ScaleFeatures(features, indicators=not isinstance(self.module, nn.Module))

    @property
    def _refuses_missing(self):
        """Why missing values are an error, if they are."""
        if self.scale_features or not getattr(self, "_needs_features", True):
            return None
        return "with scale_features=False the network reads the features as they are"

    def _check_settings(self):
        """Raise on settings that the declared constraints cannot describe."""
        sizes = self.hidden_layer_sizes
        if not all(isinstance(size, Integral) and size >= 1 for size in sizes):
            raise ValueError(
                f"hidden_layer_sizes must hold whole numbers of units from 1, got {sizes!r}. An "
                "empty tuple gives a linear network."
            )
        is_class = isinstance(self.optimizer, type)
        if is_class and not issubclass(self.optimizer, torch.optim.Optimizer):
            raise ValueError(
                f"optimizer must be one of {sorted(OPTIMIZERS)} or a torch.optim.Optimizer class, "
                f"got {self.optimizer!r}."
            )
        if torch.device(self.device).type == "cuda" and not torch.cuda.is_available():
            raise ValueError(
                f"device={self.device!r}, but torch finds no CUDA device. Use device='cpu'."
            )

    @contextmanager
    def _seeded(self):
        """Context with a random stream for this estimator; torch's global stream stays as it is.

        What the user brings may draw from the global stream, which all threads share: such
        trainings wait for each other.
        """
        self._check_settings()  # first, because fork_rng on a missing GPU raises an obscure error
        most = np.iinfo(np.int32).max
        seed = int(check_random_state(self.random_state).randint(most))
        # Drawing from a stream of its own, a training does not wait for others.
        brought = self.module is not None or self.net_params or isinstance(self.optimizer, type)
        with global_stream(seed, self.device) if brought else own_stream(seed):
            yield

    def _train(
        self,
        module,
        criterion,
        log,
        clicks,
        *,
        click_only,
        task,
        param_groups=(),
        callbacks=(),
        held_out=None,
        validation=None,
        penalty=0.0,
    ):
        """Train ``module`` on the lists of ``log``; sets what describes a trained network.

        ``module(batch)`` receives a ``ListBatch`` with scaled features, and ``criterion(outputs,
        batch)`` is the loss. With ``click_only``, lists without ``clicks``, the targets of the
        rows, contribute nothing and may be left out. ``param_groups`` are names of parameters and
        their optimizer settings, as in skorch. ``penalty`` is that of :meth:`_penalty`. Early
        stopping is by the queries ``held_out``, by default those of :meth:`_held_out_queries`, or
        by the log ``validation``, with the target of each row as its clicks.
        """
        if self._earlier is not None:
            # Goes on from all weights, examination included, in place of new ones.
            module.load_state_dict(self._earlier.state_dict())
        module = module.to(self.device)
        # Without any click all lists would be left out.
        click_only = click_only and bool(clicks.any())
        log = replace(log, clicks=clicks)
        scale = module.network[0]
        dataset = ListDataset(log, self._inputs(scale, log.features), click_only)
        # What early stopping reads: a log of its own, or held-out queries.
        stopping = None
        if validation is not None:
            inputs = self._inputs(scale, validation.features)
            stopping = ListDataset(validation, inputs, click_only)
        elif held_out is None:
            held_out = self._held_out_queries(log, clicks if click_only else log.weight)
        if validation is None and held_out.any():
            # Whole queries: lists of one query show the same documents.
            stopping = dataset.of_queries(held_out)
            dataset = dataset.of_queries(~held_out)
        self._train_on(
            dataset, stopping, module, criterion, task, param_groups, callbacks, penalty
        )

    def _inputs(self, scale, features):
        """Features, scaled once before training, or in every batch if a scaled copy is large."""
        # Bytes of features that are scaled before training; larger ones are scaled batch by batch.
        if features.nbytes > 1 << 28 and not isinstance(features, ScaledFeatures):
            return ScaledRows(scale, features)
        return self._scaled_inputs(scale, features)

    def _tempered_validation(self):
        """The log for early stopping with its traffic tempered; None if there is none."""
        log = self._validation
        return None if log is None else log.tempered(self.traffic_exponent)

    def _train_on_more(self, log, task):
        """Continue the training of the fitted network on a further log."""
        if not log.clicks.any():
            warn_user(
                "The log has no clicks: the network stays as it is. Expected a log from which it "
                "can learn more.",
                ClickDataWarning,
            )
            return
        # Learning curves go on where they ended.
        before = self.history_
        self._earlier = self._trained_module()
        self._fit_more(log, task)
        history = pd.concat([before, self.history_], ignore_index=True)
        history.index = pd.RangeIndex(1, len(history) + 1, name="epoch")
        self.history_ = history
        self.n_iter_ = len(history)
        del self._earlier

    def _trained_module(self):
        """The module of the last training; a pickle holds it without its net."""
        return self.net_.module_ if "net_" in vars(self) else self._module

    def _fit_more(self, log, task):
        """Fit to a further log; each :meth:`_train` starts from the fitted module."""
        self._fit(log, task)

    def _train_on(
        self,
        dataset,
        validation,
        module,
        criterion,
        task,
        param_groups,
        callbacks,
        penalty=0.0,
    ):
        """Train ``module`` on batches of any kind; sets the same attributes as :meth:`_train`."""
        net = self._make_net(
            dataset, module, criterion, validation, task, list(param_groups), list(callbacks)
        )
        net.penalty = penalty
        # A data set of documents rather than lists has no lengths.
        lengths = torch.as_tensor(getattr(dataset, "lengths", [1])).double()
        # -1 is skorch's sign for all lists in one batch.
        n_lists = len(dataset) if net.batch_size == -1 else min(net.batch_size, len(dataset))
        # Threads cost more than they gain where a step has few multiplications.
        n_rows = n_lists * lengths.mean().item()
        with few_threads(_multiplications(module, n_rows)):
            net.fit(dataset, None)
        if net.interrupted_:
            raise KeyboardInterrupt
        net.train_split = None  # otherwise the net would hold the validation lists
        self.history_ = _history(net)
        self.n_iter_ = len(self.history_)
        self.net_ = net
        self.network_ = module.network

    def _lists_per_step(self, n_lists):
        if self.batch_size != "auto":
            return int(self.batch_size)
        return int(np.clip(n_lists / _STEPS, _LEAST_LISTS, _MOST_LISTS))

    def _epochs(self, dataset, batch_size, validation):
        """Passes over the lists of a training, at most."""
        if self.max_epochs != "auto":
            return self.max_epochs
        if validation is not None:
            # Passes over the lists with ``max_epochs="auto"`` and early stopping, at most.
            return 100
        n_queries = dataset.n_queries
        n_steps = self._length * _n_steps(n_queries)
        if n_queries >= FEW_QUERIES.value:
            needed = QUERIES_PER_FEATURE.value * max(dataset.n_features, 1)
            # Shorter in proportion, but for small logs, which are to be learned by heart.
            n_steps *= min(1.0, n_queries / needed)
        steps_per_epoch = -(-len(dataset) // batch_size)  # rounded up
        return max(1, round(n_steps / steps_per_epoch))

    def _decay(self, dataset, optimizer, learning_rate):
        """The weight decay of the optimizer."""
        if self.weight_decay != "auto":
            return self.weight_decay
        if optimizer is not AdamW:
            return 0.0
        # Decay d of steps lr shrinks a weight by exp(-d sum lr), whatever their number.
        sum_of_steps = _n_steps(dataset.n_queries) * learning_rate
        return WHOLE_DECAY.value / sum_of_steps

    def _penalty(self, log, *, click_only, noise=1.0, by_document=False):
        r"""The factor :math:`\lambda` of a term :math:`\frac\lambda2 \|W\|^2` of the loss.

        That of ridge regression, p / n for p features and the n clicks of ``log``, as they were
        read: a linear score of standardised features varies by 1 a priori if each weight has the
        variance 1 / p, and the loss is a mean of n terms. Less 1/100, so that it begins below 100
        clicks per feature. A loss that is not ``click_only`` is a mean over impressions.

        ``noise`` is the variance of labels that features do not explain, over what they explain.
        ``by_document`` is for labels of documents, which further clicks make no more: the number
        of documents decides where it is the scarcer one.
        """
        given = self.net_params or {}
        decay = given.get("optimizer__weight_decay", self.weight_decay)
        # What a module of the user would lose is not known. A further log goes on from weights
        # that were learned, and 0 is not what they are expected to be.
        if decay != "auto" or self.module is not None or self._earlier is not None:
            return 0.0
        n_features = log.features.shape[1]
        n_clicks = max(log.clicks.sum(dtype=float), 1.0)
        excess = n_features / n_clicks - 1 / CLICKS_PER_FEATURE.value
        if by_document:
            n_documents = np.count_nonzero(np.bincount(log.doc))
            excess = max(excess, n_features / n_documents - 1 / DOCUMENTS_PER_FEATURE.value)
        penalty = float(np.clip(noise * excess, 0.0, LARGEST_PENALTY.value))
        if click_only:
            return penalty
        # A term is an impression, which has so many clicks.
        return penalty * n_clicks / log.weight.sum(dtype=float)

    def _make_net(self, dataset, module, criterion, validation, task, param_groups, callbacks):
        """The net of skorch that trains a module; ``net_params`` have the last word."""
        given = dict(self.net_params or {})
        added = given.pop("callbacks", None) or []
        callbacks = self._callbacks(task, callbacks, validation, added)
        batch_size = self._lists_per_step(len(dataset))
        # Later settings win: what the user gives comes last.
        settings = {
            "criterion": criterion,
            **self._optimizer_settings(dataset, batch_size, param_groups),
            "max_epochs": self._epochs(dataset, batch_size, validation),
            "batch_size": batch_size,
            "iterator_train__shuffle": True,
            **_iterators(given),
            "train_split": None if validation is None else predefined_split(validation),
            "device": self.device,
            "verbose": self.verbose,
            **given,
        }
        settings |= _print_log(settings)
        return ListNet(module, callbacks=callbacks, **settings)

    def _callbacks(self, task, own, validation, added):
        """Callbacks of a training, those of this class before those that a user ``added``."""
        if isinstance(added, str):
            raise ValueError(
                f"net_params['callbacks'] is {added!r}; expected a list of skorch callbacks, "
                "which are used in addition to those of the training."
            )
        callbacks = []
        if self._averages_weights:
            # The first, because the others read the weights at the end of an epoch.
            callbacks.append(("average", AverageWeights()))
        callbacks += [("epochs", _Epochs(self, task)), *own]
        # Bound on the norm of the gradient of a batch; ``net_params`` can set ``callbacks__clip``.
        callbacks.append(("clip", ClipGradients(5.0)))
        if validation is not None:
            stop = _Patience(patience=self.n_iter_no_change, load_best=True, sink=noop)
            callbacks.append(("early_stopping", stop))
        for each in added:
            callbacks.append(each if isinstance(each, tuple) else (type(each).__name__, each))
        return callbacks

    def _optimizer_settings(self, dataset, batch_size, param_groups):
        """The optimizer, its step size and its decay, as skorch takes them."""
        given = self.net_params or {}
        # A step of more lists is longer, unless the user says what a step is.
        is_own = self.batch_size != "auto" or _OF_STEPS & given.keys()
        factor = 1.0 if is_own else (batch_size / _LEAST_LISTS) ** 0.5
        learning_rate = self.learning_rate * factor
        optimizer = given.get("optimizer", OPTIMIZERS.get(self.optimizer, self.optimizer))
        decay = self._decay(dataset, optimizer, learning_rate)
        settings = {
            "optimizer": optimizer,
            "lr": learning_rate,
            "optimizer__param_groups": _parameter_groups(param_groups, factor, decay),
        }
        if self._is_fused():
            settings["optimizer__fused"] = True
        # Some optimizers, such as LBFGS, have no decay; others decay unless they get 0.
        if decay or _has_decay(optimizer):
            settings["optimizer__weight_decay"] = decay
        return settings

    def _is_fused(self):
        """Whether all parameters take their step in one call: unless net_params forbid it."""
        forbidden = {"optimizer", "optimizer__foreach", "optimizer__differentiable"}
        if forbidden & {*(self.net_params or {})}:
            return False
        return self.optimizer in _FUSED and torch.device(self.device).type in ("cpu", "cuda")

    def _scaled_in_place(self, log):
        """The log with scaled features in the memory of its own, if that may be written to.

        The network of every training from it has the same scaling. The given log cannot be used
        any more.
        """
        features = log.features
        if not features.flags.writeable:
            return log
        scale = self._feature_scaling(features).cpu()  # partial_fit's may be on a GPU
        n_outputs = n_outputs_of(scale, features)
        scaled = features
        if n_outputs > features.shape[1]:  # indicators of missing values need more memory
            scaled = np.empty((len(features), n_outputs), dtype=np.float32)
        for rows in row_parts(*features.shape):
            scaled[rows] = scale(torch.from_numpy(features[rows])).numpy()
        return replace(log, features=ScaledFeatures.of(scaled, scale))

    def _scaled_inputs(self, scale, features):
        """Scaled features as a tensor on the device."""
        if isinstance(features, ScaledFeatures):
            return torch.from_numpy(features).to(self.device)
        inputs = torch.empty(len(features), n_outputs_of(scale, features), device=self.device)
        for rows in row_parts(*features.shape):
            # A copy, because a memory-mapped or read-only array cannot back a tensor.
            part = torch.tensor(features[rows], device=self.device)
            inputs[rows] = scale(part)
        return inputs

    def _held_out_queries(self, log, mass):
        """Mask of the validation queries, shape (n_queries,); without any, all False.

        Only queries with a positive ``mass`` are held out; the others have no validation loss.
        """
        held_out = np.zeros(len(log.query_ids), dtype=bool)
        if not self.early_stopping:
            return held_out
        # At least one is held out, and at least one is left to learn from.
        queries = np.flatnonzero(log.by_query(mass))
        n_valid = max(1, round(self.validation_fraction * len(queries)))
        if n_valid >= len(queries):
            noun = "query" if len(queries) == 1 else "queries"
            warn_user(
                f"early_stopping needs validation queries, but the log has {len(queries)} {noun} "
                f"to learn from: training runs for max_epochs={self.max_epochs!r}. Give more "
                "queries, or set early_stopping=False.",
                ClickDataWarning,
            )
            return held_out
        # Drawn by torch, so that one seed determines the whole training.
        seed = torch.randint(2**31, (), generator=stream()).item()
        order = np.random.RandomState(seed).permutation(len(queries))
        held_out[queries[order[:n_valid]]] = True
        return held_out

    def _attributes_so_far(self, module):
        """Attributes for predicting in the middle of training, for scikit-learn's callbacks."""
        return {"network_": copy.deepcopy(module.network)}

    def _score(self, features: NDArray[np.float32]) -> Floats:
        """Scores of features by the trained network, shape (n_rows,)."""
        scores = self._line(features)
        return expit(scores) if self._gives_probabilities else scores

    def _line(self, features):
        """Outputs of the trained network in the units of scores, shape (n_rows,)."""
        shift, scale = self._units
        return shift + scale * self._outputs(self.network_, features)[:, 0]

    def _outputs(self, network, features):
        """Network outputs for features, as float64 ndarray (n_rows, n_out)."""
        if isinstance(features, ScaledFeatures):
            network = network[1]
        if self.module is None and torch.device(self.device).type == "cpu":
            return outputs_of_rows(network, features)
        network.eval()
        dtype = precision_of(network)
        parts = [np.empty((0, 1))]
        work = _multiplications(network, min(len(features), _PREDICT_ROWS))
        with few_threads(work, blas=False), torch.inference_mode():
            for start in range(0, len(features), _PREDICT_ROWS):
                # A copy, because a memory-mapped or read-only array cannot back a tensor.
                rows = features[start : start + _PREDICT_ROWS].copy()
                output = network(torch.from_numpy(rows).to(self.device, dtype))
                parts.append(output.double().cpu().numpy().reshape(len(rows), -1))
        return np.concatenate(parts[1:] or parts)


def _has_decay(optimizer):
    """Whether an optimizer takes the parameter ``weight_decay``."""
    parameters = inspect.signature(optimizer).parameters
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    return takes_any or "weight_decay" in parameters


def _parameter_groups(named, factor, decay):
    """Parameters with settings of their own, whose step sizes are multiplied by ``factor``."""
    groups = []
    for name, group in named:
        scaled = {"lr": group["lr"] * factor} if "lr" in group else {}
        groups.append((name, group | scaled))
    if decay:
        # A click rate of 1 % needs a bias of -5.
        groups.append(("*bias*", {"weight_decay": 0.0}))
    return groups


def _n_steps(n_queries):
    """Steps of a training, at which few queries support no more, and many need no fewer."""
    if n_queries < FEW_QUERIES.value:
        return STEPS_OF_300_QUERIES.value
    return STEPS_OF_300_QUERIES.value * (n_queries / 300) ** 0.5


class AverageWeights(Callback):
    r"""The weights that are validated and kept are a mean of those after each step.

    Step s has a weight in proportion to :math:`s^2`, so that the mean forgets the start at any
    length of training: :math:`\bar w_t = \bar w_{t-1} + \frac{3}{t + 2} (w_t - \bar w_{t-1})`
    (Shamir & Zhang 2013). Single weights have the noise of the last batches. The training itself
    continues from the weights after the last step.
    """

    def on_train_begin(self, net: NeuralNet, **kwargs: Any) -> None:
        """Begin with no step."""
        self.n_steps_ = 0
        self.after_step_ = None

    def on_epoch_begin(self, net: NeuralNet, **kwargs: Any) -> None:
        """Continue from the weights after the last step."""
        if self.after_step_ is not None:
            _copy_into(self.weights_, self.after_step_)
            self.after_step_ = None

    def on_batch_begin(self, net: NeuralNet, training: bool = False, **kwargs: Any) -> None:
        """Put the mean into the network before it is validated."""
        if not training:
            self._put_mean()

    def on_batch_end(self, net: NeuralNet, training: bool = False, **kwargs: Any) -> None:
        """Update the mean."""
        if not training:
            return
        if self.n_steps_ == 0:
            module = net.module_
            self.weights_ = [weight.detach() for weight in module.parameters()]
            # Moments of batches, too; buffers of integer type count steps.
            # Detached weights share memory with the network: copying into them changes it.
            self.weights_ += [each for each in module.buffers() if each.is_floating_point()]
            self.mean_ = [weight.clone() for weight in self.weights_]
        self.n_steps_ += 1
        # The share of the last step in the mean.
        share = 3 / (self.n_steps_ + 2)
        for mean, weight in zip(self.mean_, self.weights_, strict=True):
            mean.lerp_(weight, share)

    def on_epoch_end(self, net: NeuralNet, **kwargs: Any) -> None:
        """Put the mean into the network, for whoever reads it after the epoch."""
        self._put_mean()

    def on_train_end(self, net: NeuralNet, **kwargs: Any) -> None:
        """Free the copies; the network holds the mean."""
        self.weights_ = self.mean_ = self.after_step_ = None

    def _put_mean(self):
        if self.after_step_ is None and self.n_steps_:
            self.after_step_ = [weight.clone() for weight in self.weights_]
            _copy_into(self.weights_, self.mean_)


def _copy_into(weights, values):
    for weight, value in zip(weights, values, strict=True):
        weight.copy_(value)


class _Patience(EarlyStopping):
    """Early stopping that is correct for negative losses too.

    skorch multiplies the best loss by 1 - threshold, which raises a negative one.
    """

    def on_epoch_end(self, net, **kwargs):
        super().on_epoch_end(net, **kwargs)
        if self.misses_ == 0:
            # Better by a share of the size of the best loss, of either sign.
            best = net.history[-1, self.monitor]
            self.dynamic_threshold_ = best - self.threshold * abs(best)


class _Epochs(Callback):
    """Reports epochs, where :func:`~skultr.show_progress` is on and to scikit-learn's callbacks.

    Training stops when one of the latter requests it.
    """

    def __init__(self, estimator=None, task=None):
        self.estimator = estimator
        self.task = task

    def on_train_begin(self, net, **kwargs):
        stops_early = net.train_split is not None
        self.epochs_ = Steps("epoch", net.max_epochs, may_end_early=stops_early)

    def on_epoch_begin(self, net, **kwargs):
        if self.task is not None:
            self.epoch_ = self.task.context.subcontext(task_name="epoch")
            self.epoch_.call_on_fit_task_begin(
                estimator=self.estimator, X=self.task.X, y=self.task.y
            )

    def on_epoch_end(self, net, **kwargs):
        self.epochs_.count()
        if self.task is None:
            return

        def attributes():
            return self.estimator._attributes_so_far(net.module_)

        stops = self.epoch_.call_on_fit_task_end(
            estimator=self.estimator,
            X=self.task.X,
            y=self.task.y,
            reconstruction_attributes=attributes,
        )
        if stops:
            raise KeyboardInterrupt  # how a skorch callback ends the training

    def on_train_end(self, net, **kwargs):
        self.epochs_.close()
        # These belong to one fit.
        self.estimator = self.task = self.epoch_ = self.epochs_ = None


def _history(net):
    """Losses by epoch, one row per epoch; an error if a training loss is not finite."""
    names = [name for name in ("train_loss", "valid_loss") if name in net.history[-1]]
    values = {name: [epoch[name] for epoch in net.history] for name in names}
    loss = values["train_loss"]
    bad = np.flatnonzero(~np.isfinite(loss))
    if len(bad):
        raise ValueError(
            f"Training diverged: the loss is {loss[bad[0]]} in epoch {bad[0] + 1}. Keep "
            "scale_features=True or scale the features yourself, or lower learning_rate."
        )
    epochs = pd.RangeIndex(1, len(net.history) + 1, name="epoch")
    return pd.DataFrame(values, index=epochs)


def _multiplications(module, n_rows):
    """Multiplications of a forward pass; a row reads one vector of an embedding."""
    weights = sum(weight.numel() for weight in module.parameters())
    tables = [layer for layer in module.modules() if isinstance(layer, nn.Embedding)]
    in_tables = sum(table.weight.numel() for table in tables)
    return n_rows * (weights - in_tables) + in_tables


#: What callbacks are told of a batch.
_OF_BATCHES = ("on_batch_begin", "on_grad_computed", "on_batch_end")


@dataclass(frozen=True)
class BatchLoader:
    """Batches of a data set that makes whole ones, in an order that is new in each epoch."""

    dataset: Dataset  # ``dataset.__getitems__`` maps a Tensor of numbers of lists to a batch
    batch_size: int
    shuffle: bool = False

    def __len__(self) -> int:
        return -(-len(self.dataset) // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        n_lists = len(self.dataset)
        own = stream()
        # Drawn as a DataLoader draws: first a seed of workers, then one of the order.
        torch.empty((), dtype=torch.int64).random_(generator=own)
        order = torch.arange(n_lists)
        if self.shuffle:
            seed = int(torch.empty((), dtype=torch.int64).random_(generator=own))
            order = torch.randperm(n_lists, generator=torch.Generator().manual_seed(seed))
        return map(self.dataset.__getitems__, order.split(self.batch_size))


def _iterators(net_params):
    """Settings of what makes batches: torch's own loader if there are settings for one."""
    names = ("iterator_train", "iterator_valid")
    if not any(name.startswith("iterator_") for name in net_params):
        return dict.fromkeys(names, BatchLoader)
    settings = dict.fromkeys(names, DataLoader)
    for name in names:
        settings[f"{name}__collate_fn"] = as_is
    return settings


def _print_log(settings):
    """Without skorch's log of losses, unless it prints or the user has a setting of it."""
    is_set = any(name.startswith("callbacks__print_log") for name in settings)
    if settings["verbose"] or is_set:
        return {}
    # It would format the line of every epoch, and then not print it.
    return {"callbacks__print_log": None}


def as_is(batch: Any) -> Any:
    """The batch: a data set that makes whole batches leaves nothing to collate."""
    return batch


class ListNet(NeuralNet):
    """A skorch net whose batches are on the device already.

    skorch ends training on ``KeyboardInterrupt``, whether raised by a callback or by Ctrl-C.
    ``interrupted_`` is True for Ctrl-C only: callbacks raise it at the end of an epoch.
    """

    #: Lambda of the term lambda / 2 times the sum of squared weights of the scoring network.
    penalty = 0.0
    interrupted_ = False
    _stopped_by_callback = False
    #: Who listens to the batches of this epoch.
    _listeners: Mapping[str, list[Callable[..., None]]] = MappingProxyType({})

    def infer(self, x: Any, **fit_params: Any) -> Any:
        """Output of the module for a batch."""
        return self.module_(x)

    def get_loss(
        self, y_pred: Any, y_true: Any, X: Any = None, training: bool = False
    ) -> torch.Tensor:
        """Loss of the output for a batch; in training with the penalty on weights."""
        loss = self.criterion_(y_pred, X)
        if training and self.penalty:
            # Of the layers: vectors are biases, and the factors of normalised units.
            weights = [each for each in self.module_.network.parameters() if each.ndim > 1]
            loss = loss + self.penalty / 2 * sum(each.square().sum() for each in weights)
        return loss

    def notify(self, method_name: str, **cb_kwargs: Any) -> None:
        """Tell the net and its callbacks; of batches, those callbacks that do something then."""
        if method_name in self._listeners:
            getattr(self, method_name)(self, **cb_kwargs)
            for listen in self._listeners[method_name]:
                listen(self, **cb_kwargs)
            return
        # Callbacks may be switched on and off between epochs, but not within one.
        if method_name == "on_epoch_begin":
            self._listeners = {name: _that_listen(self.callbacks_, name) for name in _OF_BATCHES}
        try:
            super().notify(method_name, **cb_kwargs)
        except KeyboardInterrupt:
            self._stopped_by_callback = method_name == "on_epoch_end"
            raise

    def fit_loop(
        self, X: Any, y: Any = None, epochs: int | None = None, **fit_params: Any
    ) -> ListNet:
        """Train, and remember who ended it."""
        try:
            return super().fit_loop(X, y, epochs, **fit_params)
        except KeyboardInterrupt:
            self.interrupted_ = not self._stopped_by_callback
            raise
        finally:
            self._listeners = {}


def _that_listen(callbacks, name):
    """Methods of the callbacks that do something: not those inherited from ``Callback``."""
    methods = [getattr(callback, name) for _, callback in callbacks]
    idle = getattr(Callback, name)
    return [each for each in methods if getattr(each, "__func__", None) is not idle]


class ClipGradients(GradientNormClipping):
    """skorch's clipping of gradients, which touches them only if their norm is above the bound."""

    def on_grad_computed(self, _: Any, named_parameters: Any, **kwargs: Any) -> None:
        """Clip the gradients of the named parameters in place."""
        bound = self.gradient_clip_value
        if bound is None:
            return
        gradients = [p.grad for _, p in named_parameters if p.grad is not None]
        if self.gradient_clip_norm_type == 2:
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
            if flat.norm() <= bound:
                return
        super().on_grad_computed(_, named_parameters, **kwargs)
