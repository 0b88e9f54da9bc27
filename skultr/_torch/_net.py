"""The one place that holds skorch: parameters of every neural estimator, and how it trains."""

import copy
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from skorch import NeuralNet
from skorch.callbacks import Callback, EarlyStopping, GradientNormClipping
from skorch.helper import predefined_split
from torch import nn

from .._constraints import HasMethods, Interval, StrOptions
from ..exceptions import ClickDataWarning
from ._lists import ListDataset
from ._networks import ScaleFeatures, scoring_network

__all__ = ["NeuralEstimator"]

OPTIMIZERS = {
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}
#: Documents scored at a time, so that predicting a million rows needs little memory.
_PREDICT_ROWS = 65_536


@dataclass(kw_only=True, eq=False, repr=False)
class NeuralEstimator(BaseEstimator):
    """Shared parameters and training of the neural estimators.

    Subclasses call :meth:`_train` with a module that maps a ``ListBatch`` to whatever their
    criterion takes, and :meth:`_outputs` to apply a network to documents.
    """

    hidden_layer_sizes: tuple = (64, 32)
    learning_rate: float = 0.002
    max_epochs: int = 100
    batch_size: int = 64
    weight_decay: float = 0.0
    dropout: float = 0.0
    normalization: str | None = None
    optimizer: str | type = "adam"
    max_grad_norm: float | None = 5.0
    early_stopping: bool = True
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10
    scale_features: bool = True
    module: object = None
    net_params: dict | None = None
    device: str = "cpu"
    random_state: object = None
    verbose: int = 0

    _parameter_constraints = {  # noqa: RUF012 - scikit-learn's protocol
        "hidden_layer_sizes": ["array-like"],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "normalization": [StrOptions({"layer", "batch"}), None],
        "optimizer": [StrOptions(set(OPTIMIZERS)), type],
        "max_grad_norm": [Interval(Real, 0, None, closed="neither"), None],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "scale_features": ["boolean"],
        "module": [HasMethods(["forward"]), callable, None],
        "net_params": [dict, None],
        "device": [str, torch.device],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def _n_subtasks(self):
        return {"max_epochs": self.max_epochs, **(self.net_params or {})}["max_epochs"]

    def _network(self, features, n_out=1):
        """A fresh scoring network for these training documents, scaling included.

        Parameters
        ----------
        features : ndarray of shape (n_docs, n_features)
        n_out : int

        Returns
        -------
        network : torch.nn.Sequential of the scaling (or identity) and the scoring network
        """
        n_features = features.shape[1]
        if self.module is None:
            network = scoring_network(
                n_features,
                n_out,
                hidden_layer_sizes=self.hidden_layer_sizes,
                dropout=self.dropout,
                normalization=self.normalization,
            )
        elif isinstance(self.module, nn.Module):
            network = copy.deepcopy(self.module)
        else:
            network = self.module(n_features)
        scale = ScaleFeatures(torch.from_numpy(features)) if self.scale_features else nn.Identity()
        return nn.Sequential(scale, network)

    @contextmanager
    def _seeded(self):
        """Torch's random stream is the estimator's own inside, and untouched outside."""
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        devices = [self.device] if torch.device(self.device).type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            yield

    def _train(self, module, criterion, log, clicks, *, click_only, task, param_groups=()):
        """Train ``module`` on the lists of ``log``.

        Sets ``network_``, ``net_``, ``history_`` and ``n_iter_``.

        Parameters
        ----------
        module : torch.nn.Module with ``network``, as :meth:`_network` gives it
            ``forward(batch)`` receives a ``ListBatch`` whose features are scaled already.
        criterion : torch.nn.Module
            ``forward(outputs, batch)`` is the loss, a scalar.
        log : ClickLog
        clicks : ndarray of shape (n_rows,)
            Target of each row.
        click_only : bool
            Lists without clicks contribute nothing and may be left out.
        task : FitTask
            What is being fitted, for scikit-learn's callbacks.
        param_groups : list of (str, dict)
            Parameter names with optimizer settings of their own, as in skorch.
        """
        module = module.to(self.device)
        self.network_ = module.network
        # Scaling happens once here; batches then need no work that could be done before.
        inputs = self._scaled_inputs(module.network[0], log.features)
        train, valid = self._split_queries(log)
        click_only = click_only and clicks.any()
        dataset = ListDataset(train[0], inputs, clicks[train[1]], click_only)
        validation = None
        if valid is not None:
            validation = ListDataset(valid[0], inputs, clicks[valid[1]], click_only)
            if not len(validation):
                self._warn_no_validation("no validation query has a click")
                validation = None
        self.net_ = self._make_net(module, criterion, validation, task, list(param_groups))
        self.net_.fit(dataset, None)
        self.net_.train_split = None  # or the validation lists would travel in every pickle
        self._record_history(self.net_)

    def _make_net(self, module, criterion, validation, task, param_groups):
        optimizer = OPTIMIZERS.get(self.optimizer, self.optimizer)
        callbacks = [("epochs", _EpochTasks(self, task))]
        if self.max_grad_norm is not None:
            callbacks.append(("clip", GradientNormClipping(self.max_grad_norm)))
        if validation is not None:
            stop = EarlyStopping(
                "valid_loss", patience=self.n_iter_no_change, load_best=True, sink=_no_output
            )
            callbacks.append(("early_stopping", stop))
        settings = {
            "lr": self.learning_rate,
            "max_epochs": self.max_epochs,
            "batch_size": self.batch_size,
            "optimizer__weight_decay": self.weight_decay,
            "optimizer__param_groups": param_groups,
            "iterator_train__shuffle": True,
            "iterator_train__collate_fn": _as_is,
            "iterator_valid__collate_fn": _as_is,
            "train_split": None if validation is None else predefined_split(validation),
            "device": self.device,
            "verbose": self.verbose,
            **(self.net_params or {}),
        }
        callbacks += [
            pair if isinstance(pair, tuple) else (type(pair).__name__, pair)
            for pair in settings.pop("callbacks", None) or []
        ]
        return _ListNet(
            module,
            criterion=criterion,
            optimizer=optimizer,
            callbacks=callbacks,
            **settings,
        )

    def _scaled_inputs(self, scale, features):
        inputs = torch.empty(features.shape, device=self.device)
        for start in range(0, len(features), _PREDICT_ROWS):
            rows = slice(start, start + _PREDICT_ROWS)
            inputs[rows] = scale(torch.from_numpy(features[rows]).to(self.device))
        return inputs

    def _split_queries(self, log):
        """(log, rows) of the training and of the validation queries; the latter may be None."""
        everything = (log, slice(None))
        if not self.early_stopping:
            return everything, None
        queries = np.unique(log.query[log.shown])
        n_valid = max(1, round(self.validation_fraction * len(queries)))
        if n_valid >= len(queries):
            self._warn_no_validation(f"the log has {len(queries)} query(ies) with shown rows")
            return everything, None
        order = np.random.RandomState(torch.randint(2**31, ()).item()).permutation(len(queries))
        held_out = np.zeros(len(log.query_ids), dtype=bool)
        held_out[queries[order[:n_valid]]] = True
        return tuple(
            (log.select_queries(keep), np.flatnonzero(keep[log.query]))
            for keep in (~held_out, held_out)
        )

    def _warn_no_validation(self, reason):
        warnings.warn(
            f"early_stopping needs validation queries, but {reason}: training runs for "
            f"max_epochs={self.max_epochs}. Give more queries, or set early_stopping=False.",
            ClickDataWarning,
            stacklevel=2,
        )

    def _record_history(self, net):
        names = [name for name in ("train_loss", "valid_loss") if name in net.history[-1]]
        values = {name: [epoch[name] for epoch in net.history] for name in names}
        self.n_iter_ = len(net.history)
        self.history_ = pd.DataFrame(
            values, index=pd.RangeIndex(1, self.n_iter_ + 1, name="epoch")
        )

    def _outputs(self, network, features):
        """Network outputs for unscaled features, as float64 ndarray (n_rows, n_out)."""
        network.eval()
        parts = [np.empty((0, 1))]
        with torch.inference_mode():
            for start in range(0, len(features), _PREDICT_ROWS):
                # A copy, because a memory-mapped or read-only array cannot back a tensor.
                rows = features[start : start + _PREDICT_ROWS].copy()
                output = network(torch.from_numpy(rows).to(self.device))
                parts.append(output.double().cpu().numpy().reshape(len(rows), -1))
        return np.concatenate(parts[1:] or parts)


class _ListNet(NeuralNet):
    """A skorch net whose batches are lists already on the device."""

    def infer(self, x, **fit_params):
        return self.module_(x)

    def get_loss(self, y_pred, y_true, X=None, training=False):
        return self.criterion_(y_pred, X)


class _EpochTasks(Callback):
    """Reports each epoch to scikit-learn's callbacks; stops when one of them asks to."""

    def __init__(self, estimator=None, task=None):
        self.estimator = estimator
        self.task = task

    def on_epoch_begin(self, net, **kwargs):
        self.epoch_ = self.task.context.subcontext(task_name="epoch")
        self.epoch_.call_on_fit_task_begin(estimator=self.estimator, X=self.task.X, y=self.task.y)

    def on_epoch_end(self, net, **kwargs):
        stop = self.epoch_.call_on_fit_task_end(
            estimator=self.estimator,
            X=self.task.X,
            y=self.task.y,
            reconstruction_attributes=lambda: {"network_": copy.deepcopy(net.module_.network)},
        )
        if stop:
            raise KeyboardInterrupt  # how a skorch callback ends the training

    def on_train_end(self, net, **kwargs):
        # These belong to one fit: nothing of them may end up in a pickle.
        self.estimator = self.task = self.epoch_ = None


def _as_is(batch):
    return batch


def _no_output(text):
    """Swallow a message: early stopping reports through ``history_``."""
