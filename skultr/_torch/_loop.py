"""The loop over batches: what skorch does, without what costs as much as a small network.

A step of the default network takes a millisecond. skorch's own loop adds to it: it tells every
callback of every batch, walks over all modules to find their parameters and to set their mode, and
``DataLoader`` handles the numbers of lists one by one.

Optimizers are torch's without its compiler, whose import takes more than a second and 800 modules.
torch wraps ``step``, ``zero_grad`` and ``add_param_group`` only in order to hide them from the
compiler; :func:`inspect.unwrap` gives the methods without it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import torch
from skorch import NeuralNet
from skorch.callbacks import Callback, GradientNormClipping
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from ._networks import stream

#: What callbacks are told of a batch.
_OF_BATCHES = ("on_batch_begin", "on_grad_computed", "on_batch_end")


class BatchLoader(DataLoader):
    """A ``DataLoader`` of a data set that makes whole batches.

    ``dataset.__getitems__`` maps the numbers of lists to a batch. It gets them as a Tensor; with
    workers, or a sampler, generator or ``collate_fn`` of one's own, it gets a list, as from a
    ``DataLoader``.
    """

    def __iter__(self) -> Iterator[Any]:
        if not self._is_plain():
            return super().__iter__()
        return map(self.dataset.__getitems__, self._batches())

    def _is_plain(self):
        return (
            not self.num_workers
            and not self.pin_memory
            and self.collate_fn is as_is
            and type(self.sampler) in (RandomSampler, SequentialSampler)
            and not getattr(self.sampler, "replacement", False)
            and len(self.sampler) == len(self.dataset)
            and type(self.batch_sampler) is torch.utils.data.BatchSampler
            # A sampler with a generator of its own draws from it more than the order.
            and getattr(self.sampler, "generator", None) is None
        )

    def _batches(self):
        least = self.batch_size if self.drop_last else 1
        return [part for part in self._order().split(self.batch_size) if len(part) >= least]

    def _order(self):
        """Numbers of the lists in the order of an epoch, drawn as with workers."""
        n_lists, own = len(self.dataset), stream() if self.generator is None else self.generator
        torch.empty((), dtype=torch.int64).random_(generator=own)  # seed of workers
        if isinstance(self.sampler, SequentialSampler):
            return torch.arange(n_lists)
        seed = int(torch.empty((), dtype=torch.int64).random_(generator=own))
        return torch.randperm(n_lists, generator=torch.Generator().manual_seed(seed))


def as_is(batch: Any) -> Any:
    """The batch: a data set that makes whole batches leaves nothing to collate."""
    return batch


class ListNet(NeuralNet):
    """A skorch net whose batches are on the device already.

    skorch ends training on ``KeyboardInterrupt``, whether raised by a callback or by Ctrl-C.
    ``interrupted_`` is True for Ctrl-C only: callbacks raise it at the end of an epoch.
    """

    interrupted_ = False
    _asked_to_stop = False
    #: During an epoch: who listens to batches, and the named parameters.
    _listeners: Mapping[str, list[Callable[..., None]]] = MappingProxyType({})
    _learnable: Sequence[tuple[str, nn.Parameter]] = ()

    def infer(self, x: Any, **fit_params: Any) -> Any:
        """Output of the module for a batch."""
        return self.module_(x)

    def get_loss(
        self, y_pred: Any, y_true: Any, X: Any = None, training: bool = False
    ) -> torch.Tensor:
        """Loss of the output for a batch."""
        return self.criterion_(y_pred, X)

    def notify(self, method_name: str, **cb_kwargs: Any) -> None:
        """Tell the net and its callbacks; of batches, those callbacks that do something then."""
        if method_name in self._listeners:
            getattr(self, method_name)(self, **cb_kwargs)
            for listen in self._listeners[method_name]:
                listen(self, **cb_kwargs)
            return
        try:
            super().notify(method_name, **cb_kwargs)
        except KeyboardInterrupt:
            self._asked_to_stop = method_name == "on_epoch_end"
            raise

    def fit_loop(
        self, X: Any, y: Any = None, epochs: int | None = None, **fit_params: Any
    ) -> ListNet:
        """Train, and remember who ended it."""
        try:
            return super().fit_loop(X, y, epochs, **fit_params)
        except KeyboardInterrupt:
            self.interrupted_ = not self._asked_to_stop
            raise

    def run_single_epoch(
        self,
        iterator: Iterable[Any] | None,
        training: bool,
        prefix: str,
        step_fn: Callable[..., dict[str, Any]],
        **fit_params: Any,
    ) -> None:
        """One pass over the training or validation batches."""
        if iterator is None:
            return
        with self._of_this_epoch():
            super()._set_training(training)
            n_batches, record = 0, self.history.record_batch
            loss_name, size_name = f"{prefix}_loss", f"{prefix}_batch_size"
            for batch in iterator:
                self.notify("on_batch_begin", batch=batch, training=training)
                step = step_fn(batch, **fit_params)
                record(loss_name, step["loss"].item())
                record(size_name, len(batch[0]))
                self.notify("on_batch_end", batch=batch, training=training, **step)
                n_batches += 1
            self.history.record(f"{prefix}_batch_count", n_batches)

    @contextmanager
    def _of_this_epoch(self):
        """Context in which listeners and parameters are looked up once; no pickle has them."""
        self._listeners = {name: _that_listen(self.callbacks_, name) for name in _OF_BATCHES}
        self._learnable = list(self.get_all_learnable_params())
        try:
            yield
        finally:
            del self._listeners, self._learnable

    def train_step(self, batch: Any, **fit_params: Any) -> dict[str, Any]:
        """Loss and output for a batch, and a step of the optimizer."""
        first: list[dict[str, Any]] = []

        def evaluate():
            self._zero_grad_optimizer()
            step = self.train_step_single(batch, **fit_params)
            first.append(step)
            self.notify(
                "on_grad_computed", named_parameters=self._learnable, batch=batch, training=True
            )
            return step["loss"]

        if type(self.optimizer_) in _ONE_EVALUATION:
            evaluate()
            self.optimizer_.step()
        else:
            self.optimizer_.step(evaluate)
        return first[0]

    def _zero_grad_optimizer(self, set_to_none=None):
        for _, parameter in self._learnable:
            parameter.grad = None

    def _set_training(self, training=True):
        # A callback may have changed the mode of the whole module.
        if self.module_.training is not training or self.criterion_.training is not training:
            super()._set_training(training)


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
        parts = [p.grad.reshape(-1) for _, p in named_parameters if p.grad is not None]
        if self.gradient_clip_norm_type == 2 and torch.cat(parts).norm() <= bound:
            return
        super().on_grad_computed(_, named_parameters, **kwargs)


def _uncompiled(cls: type[Optimizer]) -> type[Optimizer]:
    """A class of torch's optimizers, without what hides its methods from the compiler."""
    step, add, clear = (
        inspect.unwrap(method)
        for method in (cls.step, Optimizer.add_param_group, Optimizer.zero_grad)
    )
    methods = {"step": torch.no_grad()(step), "add_param_group": add, "zero_grad": clear}
    return type(cls.__name__, (cls,), {**methods, "__module__": __name__})


_OF_TORCH = (torch.optim.Adagrad, torch.optim.Adam, torch.optim.AdamW)
Adagrad, Adam, AdamW = map(_uncompiled, _OF_TORCH)
#: By the names that the parameter ``optimizer`` takes.
OPTIMIZERS = {"adagrad": Adagrad, "adam": Adam, "adamw": AdamW}
#: Optimizers that evaluate the loss once in a step, before they change anything. A subclass may do
#: otherwise, as sharpness-aware ones do.
_ONE_EVALUATION = {*_OF_TORCH, *OPTIMIZERS.values()}
