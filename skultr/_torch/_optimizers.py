"""torch's optimizers without its compiler, which their first step would import.

That import takes more than a second and 800 modules. torch wraps ``step``, ``zero_grad`` and
``add_param_group`` only in order to hide them from the compiler; :func:`inspect.unwrap` gives the
methods without it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer


class _Uncompiled(Optimizer):
    """Mixin of optimizers of torch, whose step is called without gradients."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        inspect.unwrap(Optimizer.add_param_group)(self, param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        inspect.unwrap(Optimizer.zero_grad)(self, set_to_none)


class Adagrad(_Uncompiled, torch.optim.Adagrad):
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        return inspect.unwrap(torch.optim.Adagrad.step)(self, closure)


class Adam(_Uncompiled, torch.optim.Adam):
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        return inspect.unwrap(torch.optim.Adam.step)(self, closure)


class AdamW(_Uncompiled, torch.optim.AdamW):
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        return inspect.unwrap(torch.optim.AdamW.step)(self, closure)


#: By the names that the parameter ``optimizer`` takes.
OPTIMIZERS = {"adagrad": Adagrad, "adam": Adam, "adamw": AdamW}
