"""Batches of lists, gathered from flat arrays in one step."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from .._base._typing import Bools, Floats, Ints
from .._log._clicklog import SAMPLE

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog

#: Versions that a network is applied to at a time.
_PART = 1 << 16

#: Numbers of the lists of a batch.
Indices: TypeAlias = Sequence[int] | torch.Tensor


@dataclass(frozen=True, eq=False)
class ListBatch:
    """A batch of lists: flat rows for the network, padded rectangles for the loss.

    The network receives no padding. A long list among short ones then costs nothing extra, and
    padding does not enter batch normalisation.
    """

    features: torch.Tensor  # (n_rows, n_features)
    bias: torch.Tensor  # (n_rows,)
    mask: torch.Tensor  # (n_lists, width)
    clicks: torch.Tensor  # (n_lists, width)
    weight: torch.Tensor  # (n_lists, width)

    def __len__(self) -> int:
        return len(self.mask)

    def pad(self, values: torch.Tensor) -> torch.Tensor:
        """Flat values (n_rows,) as a rectangle (n_lists, width); 0 at padding."""
        if len(values) == self.mask.numel():  # no padding
            return values.reshape(self.mask.shape)
        return padded(values, self.mask)


class ScaledRows:
    """Features (n_versions, n_features) that are scaled when a batch needs them."""

    def __init__(self, scale: torch.nn.Module, features: NDArray[np.float32]) -> None:
        self.scale = scale
        self.features = features
        self.device = next((each.device for each in scale.buffers()), torch.device("cpu"))

    def index_select(self, dim: int, rows: torch.Tensor) -> torch.Tensor:
        """Scaled features of some rows."""
        return self._scaled(self.features[rows.cpu().numpy()])

    def split(self, n_rows: int) -> Iterator[torch.Tensor]:
        """Scaled features of consecutive rows."""
        starts = range(0, len(self.features), n_rows)
        return (self._scaled(self.features[start : start + n_rows].copy()) for start in starts)

    def _scaled(self, rows):
        with torch.no_grad():
            return self.scale(torch.from_numpy(rows).to(self.device))


class ListDataset(Dataset):
    """The rows of a click log as lists, ready for a ``DataLoader``; columns are not copied."""

    def __init__(
        self,
        log: ClickLog,
        features: torch.Tensor | ScaledRows,
        click_only: bool = False,
    ) -> None:
        device = features.device
        keep = np.ones(log.n_lists, dtype=bool)
        if click_only:
            keep = np.logical_or.reduceat(log.clicks != 0, log.offsets[:-1])
        self.features = features
        self.version, self.bias = (_tensor(each).to(device) for each in (log.version, log.bias))
        self.clicks, self.weight = (
            _tensor(column).to(device, torch.float32) for column in (log.clicks, log.weight)
        )
        self._query = log.query_of_list[keep]
        self.lengths = torch.from_numpy(np.diff(log.offsets)[keep]).to(device)
        self.starts = torch.from_numpy(log.offsets[:-1][keep]).to(device)

    @cached_property
    def width(self) -> int:
        """The length that all lists have; 0 if lengths differ."""
        first = int(self.lengths[:1].sum())
        return first if bool((self.lengths == first).all()) else 0

    def of_queries(self, queries: Bools) -> ListDataset:
        """The lists of the queries for which ``queries``, (n_queries,), is True."""
        part, keep = copy(self), torch.from_numpy(queries[self._query]).to(self.lengths.device)
        part.lengths, part.starts = self.lengths[keep], self.starts[keep]
        part._query = self._query[queries[self._query]]
        return part

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> tuple[ListBatch, torch.Tensor]:
        return self.__getitems__([index])

    def __getitems__(self, indices: Indices) -> tuple[ListBatch, torch.Tensor]:
        """The batch of these lists: a pair (ListBatch, target), as skorch unpacks it."""
        lists = torch.as_tensor(indices, device=self.lengths.device)
        batch = self._full_batch(lists) if self.width else self._padded_batch(lists)
        return batch, batch.clicks

    def _full_batch(self, lists):
        """Lists of one length are rows of rectangles: a batch is gathered without masks."""
        column = torch.arange(self.width, device=lists.device)
        cells = (self.starts.index_select(0, lists)[:, None] + column).view(-1)
        shape = len(lists), self.width
        return ListBatch(
            features=self.features.index_select(0, self.version.index_select(0, cells)),
            bias=self.bias.index_select(0, cells).long(),
            mask=torch.ones((), dtype=torch.bool, device=lists.device).expand(shape),
            **{
                name: getattr(self, name).index_select(0, cells).view(shape)
                for name in ("clicks", "weight")
            },
        )

    def _padded_batch(self, lists):
        lengths = self.lengths.index_select(0, lists)
        column = torch.arange(int(lengths.max()), device=lengths.device)
        mask, padding = column < lengths[:, None], column >= lengths[:, None]
        cells = self.starts.index_select(0, lists)[:, None] + column
        rows = cells[mask]
        # Cells of padding lie in the next list, or beyond the last row.
        cells = cells.view(-1).clamp_(max=len(self.version) - 1)
        rectangles = {
            name: getattr(self, name).index_select(0, cells).view_as(mask).masked_fill_(padding, 0)
            for name in ("clicks", "weight")
        }
        return ListBatch(
            features=self.features.index_select(0, self.version.index_select(0, rows)),
            bias=self.bias.index_select(0, rows).long(),
            mask=mask,
            **rectangles,
        )

    def rows(self) -> tuple[Ints, Ints, Floats, Floats]:
        """Version, bias factor, clicks and weight of rows, of a part of the lists if too many."""
        step = max(1, -(-int(self.lengths.sum()) // SAMPLE))
        lengths, starts = self.lengths[::step], self.starts[::step]
        first = torch.repeat_interleave(starts - (lengths.cumsum(0) - lengths), lengths)
        cells = first + torch.arange(len(first), device=first.device)
        columns = (self.version, self.bias, self.clicks, self.weight)
        version, bias, *numbers = (column.index_select(0, cells).cpu() for column in columns)
        clicks, weight = (values.double().numpy() for values in numbers)
        return version.numpy(), bias.numpy(), clicks, weight

    def outputs(self, network: torch.nn.Module) -> torch.Tensor:
        """Output of a network for each version, shape (n_versions,)."""
        with torch.inference_mode():
            parts = [network(part).reshape(-1) for part in self.features.split(_PART)]
        return torch.cat(parts)


def _tensor(column):
    """A tensor in the memory of an array, which may be a memory map: nothing writes to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writ")
        return torch.from_numpy(column)


def padded(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Flat values (n_rows,) as a rectangle; 0 where the mask (n_lists, width) is False."""
    return values.new_zeros(mask.shape).masked_scatter_(mask, values)
