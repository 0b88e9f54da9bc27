"""Batches of lists, gathered from flat arrays in one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from torch.utils.data import Dataset

from .._typing import Floats, Ints

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog


#: Numbers of the lists of a batch.
Indices: TypeAlias = Sequence[int] | torch.Tensor


@dataclass(frozen=True, eq=False)
class ListBatch:
    """A batch of lists: flat rows for the network, padded rectangles for the loss.

    The network receives no padding. A long list among short ones then costs nothing extra, and
    padding does not enter batch normalisation.

    Parameters
    ----------
    features : Tensor of shape (n_rows, n_features)
    bias : Tensor of shape (n_rows,)
        Code of the bias factor of each row.
    mask : Tensor of shape (n_lists, width), bool
        True where a list has a row.
    shown : Tensor of shape (n_lists, width), bool
        True where a row was shown; elsewhere it is padding, or a candidate that never was.
    clicks, weight : Tensor of shape (n_lists, width)
        (Debiased) clicks and impressions; 0 at padding.
    """

    features: torch.Tensor
    bias: torch.Tensor
    mask: torch.Tensor
    shown: torch.Tensor
    clicks: torch.Tensor
    weight: torch.Tensor

    def __len__(self) -> int:
        return len(self.mask)

    def pad(self, values: torch.Tensor) -> torch.Tensor:
        """Flat values (n_rows,) as a rectangle (n_lists, width); 0 at padding."""
        if len(values) == self.mask.numel():  # no padding
            return values.reshape(self.mask.shape)
        return padded(values, self.mask)


class ListDataset(Dataset):
    """The rows of a click log as lists, ready for a ``DataLoader``.

    Parameters
    ----------
    log : ClickLog
    features : Tensor of shape (n_versions, n_features)
        Scaled features of the versions of documents, on the device of the batches.
        The clicks of the log are the target of each row, such as debiased clicks.
    click_only : bool
        Leave out lists without clicks, whose listwise loss is 0.
    never_shown : bool
        Keep the candidates that were never shown; by default only shown rows are in the lists.
    """

    def __init__(
        self,
        log: ClickLog,
        features: torch.Tensor,
        click_only: bool = False,
        never_shown: bool = False,
    ) -> None:
        device = features.device
        # Keep or drop whole lists: without some of its rows, a list would have another softmax.
        keep = np.ones(log.n_rows, dtype=bool) if never_shown else log.shown
        if click_only:
            clicked = np.bincount(log.list_, weights=log.clicks != 0, minlength=log.n_lists) > 0
            keep = keep & clicked[log.list_]
        counts = np.bincount(log.list_[keep], minlength=log.n_lists)
        lengths = torch.from_numpy(counts[counts > 0])
        self.features = features
        self.version = torch.from_numpy(log.version[keep]).to(device)
        self.bias = torch.from_numpy(log.bias[keep]).to(device)
        self.shown = torch.from_numpy(log.shown[keep]).to(device)
        self.clicks = torch.from_numpy(log.clicks[keep]).to(device, torch.float32)
        self.weight = torch.from_numpy(log.weight[keep]).to(device, torch.float32)
        self.lengths = lengths.to(device)
        self.starts = (lengths.cumsum(0) - lengths).to(device)
        #: The length that all lists have; 0 if lengths differ.
        self.width = int(lengths[0]) if len(lengths) and (lengths == lengths[0]).all() else 0

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
        of_lists = {
            name: getattr(self, name).view(-1, self.width).index_select(0, lists)
            for name in ("version", "bias", "shown", "clicks", "weight")
        }
        version, bias = (of_lists.pop(name).view(-1) for name in ("version", "bias"))
        return ListBatch(
            features=self.features.index_select(0, version),
            bias=bias,
            mask=torch.ones((), dtype=torch.bool, device=version.device).expand(
                len(lists), self.width
            ),
            **of_lists,
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
            for name in ("shown", "clicks", "weight")
        }
        return ListBatch(
            features=self.features.index_select(0, self.version.index_select(0, rows)),
            bias=self.bias.index_select(0, rows),
            mask=mask,
            **rectangles,
        )

    def rows(self) -> tuple[Ints, Ints, Floats, Floats]:
        """Version, bias factor, clicks and weight of each row, as arrays."""
        clicks, weight = self.clicks.double(), self.weight.double()
        version, bias, clicks, weight = (
            values.cpu().numpy() for values in (self.version, self.bias, clicks, weight)
        )
        return version, bias, clicks, weight

    def outputs(self, network: torch.nn.Module) -> torch.Tensor:
        """Output of a network for each version, shape (n_versions,)."""
        with torch.inference_mode():
            return network(self.features).reshape(-1)


def padded(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Flat values (n_rows,) as a rectangle; 0 where the mask (n_lists, width) is False."""
    return values.new_zeros(mask.shape).masked_scatter_(mask, values)
