"""Random numbers of a training, which no other thread and no other training draws from."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import nn


class _Stream:
    """Generators of one seed, one for each device."""

    def __init__(self, seed):
        self.seed = seed
        self.generators = {}

    def on(self, device):
        if device not in self.generators:
            self.generators[device] = torch.Generator(device).manual_seed(self.seed)
        return self.generators[device]


#: The stream of the training that the current thread runs. No module holds it: a copied or
#: unpickled network takes part in the training that runs it.
_OWN: ContextVar[_Stream | None] = ContextVar("stream", default=None)
#: Held while an estimator draws from torch's random stream, which all threads share. Reentrant,
#: because an estimator may train another one inside its own training.
_GLOBAL = threading.RLock()


def stream(device: torch.device | str = "cpu") -> torch.Generator | None:
    """The generator of the training that runs in this thread; else torch's global one."""
    device, own = torch.device(device), _OWN.get()
    if own is not None:
        return own.on(device)
    return torch.default_generator if device.type == "cpu" else None


@contextmanager
def own_stream(seed: int) -> Iterator[None]:
    """Context in which :func:`stream` draws from generators of this seed."""
    token = _OWN.set(_Stream(seed))
    try:
        yield
    finally:
        _OWN.reset(token)


@contextmanager
def global_stream(seed: int, device: torch.device | str) -> Iterator[None]:
    """Context in which :func:`stream` and torch's global stream draw from this seed.

    For what draws from the global stream, such as a module of the user. The stream is restored at
    the end, and other threads in such a context wait.
    """
    devices = [device] if torch.device(device).type == "cuda" else []
    token = _OWN.set(None)
    try:
        with _GLOBAL, torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            yield
    finally:
        _OWN.reset(token)


class Linear(nn.Linear):
    """A linear layer whose initial weights are drawn from :func:`stream`."""

    def reset_parameters(self) -> None:
        """Draw the weights as ``torch.nn.Linear`` does."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5), generator=stream())
        if self.bias is not None:
            bound = 1 / math.sqrt(max(self.in_features, 1))
            nn.init.uniform_(self.bias, -bound, bound, generator=stream())


class GRU(nn.GRU):
    """A recurrent layer whose initial weights are drawn from :func:`stream`."""

    def reset_parameters(self) -> None:
        """Draw the weights as ``torch.nn.GRU`` does."""
        bound = 1 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            nn.init.uniform_(weight, -bound, bound, generator=stream())


class Dropout(nn.Dropout):
    """Dropout that draws from :func:`stream`."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """In training, each element is 0 with probability p, or divided by 1 - p."""
        if not self.training:
            return input
        kept = torch.empty_like(input).bernoulli_(1 - self.p, generator=stream(input.device))
        return input * kept.div_(1 - self.p)
