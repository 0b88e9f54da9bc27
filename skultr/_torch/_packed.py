"""Networks in pickles: as bytes of numbers, without what torch writes beside each tensor."""

from __future__ import annotations

import copy
from itertools import chain
from typing import Any, TypeVar

import torch
from numpy.typing import NDArray
from torch import nn

Modules = TypeVar("Modules", bound=dict[str, nn.Module])

#: Types of numbers that NumPy has, too.
_DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool)


def packed(modules: Modules) -> Modules:
    """Copies of modules that only a pickle can use: their tensors are unpickled as they were.

    Torch pickles 500 bytes beside each tensor, and storage that other tensors share.
    """
    tensors = [
        tensor
        for module in modules.values()
        for tensor in chain(module.parameters(), module.buffers())
    ]
    return copy.deepcopy(
        modules, {id(each): _Packed(each) if _is_plain(each) else each for each in tensors}
    )


def _is_plain(tensor: torch.Tensor) -> bool:
    kind = type(tensor) in (torch.Tensor, nn.Parameter) and tensor.layout == torch.strided
    return kind and tensor.device.type == "cpu" and tensor.dtype in _DTYPES


class _Packed:
    """A tensor that is pickled as an array."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __reduce__(self):
        kind = "parameter" if isinstance(self.tensor, nn.Parameter) else "buffer"
        return _unpacked, (self.tensor.detach().numpy(), kind, self.tensor.requires_grad)


def _unpacked(values: NDArray[Any], kind: str, requires_grad: bool) -> torch.Tensor:
    tensor = torch.tensor(values)  # a copy: kernels may depend on how memory is aligned
    if kind == "parameter":
        return nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)
