"""Batches of the lists of a log on disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from .._typing import Floats, Ints
from ._lists import ListBatch, padded

if TYPE_CHECKING:
    from .._log._stored_log import StoredLog


#: Documents that a network is applied to at a time.
_PART = 1 << 16


class ScaledRows:
    """Features of documents on disk, scaled when a batch needs them.

    Parameters
    ----------
    scale : torch.nn.Module
        On the device of the batches.
    features : ndarray of shape (n_versions, n_features), float32
    """

    def __init__(self, scale: torch.nn.Module, features: NDArray[np.float32]) -> None:
        self.scale = scale
        self.features = features
        self.device = next((each.device for each in scale.buffers()), torch.device("cpu"))

    def __getitem__(self, versions: Any) -> torch.Tensor:
        with torch.no_grad():
            return self.scale(torch.from_numpy(self.features[versions].copy()).to(self.device))


class StoredLists(Dataset):
    """The same for a log on disk, whose rows are read when a batch needs them.

    Parameters
    ----------
    log : StoredLog
    features : ScaledRows
    click_only, never_shown : bool
        As in :class:`ListDataset`.
    """

    def __init__(
        self,
        log: StoredLog,
        features: ScaledRows,
        click_only: bool = False,
        never_shown: bool = False,
    ) -> None:
        self.log, self.features = log, features
        # Rows that were not shown are the last of their list.
        lengths = np.diff(log.offsets)
        if not (never_shown or log.shown.all()):
            lengths = np.bincount(log.list_, log.shown, minlength=log.n_lists).astype(np.intp)
        keep = lengths > 0
        if click_only:
            keep &= np.bincount(log.list_, log.clicks != 0, minlength=log.n_lists) > 0
        self.starts, self.lengths = log.offsets[:-1][keep], lengths[keep]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> tuple[ListBatch, torch.Tensor]:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> tuple[ListBatch, torch.Tensor]:
        """The batch of these lists: a pair (ListBatch, target), as skorch unpacks it."""
        lists = np.asarray(indices)
        lengths = self.lengths[lists]
        column = np.arange(int(lengths.max()))
        mask = column < lengths[:, None]
        rows = (self.starts[lists][:, None] + column)[mask]
        device, log = self.features.device, self.log
        mask = torch.from_numpy(mask).to(device)

        def rectangle(values):
            values = values[rows]
            if values.dtype == np.float64:
                values = values.astype(np.float32)
            return padded(torch.from_numpy(values).to(device), mask)

        batch = ListBatch(
            features=self.features[log.version[rows]],
            bias=torch.from_numpy(log.bias[rows]).to(device),
            mask=mask,
            shown=rectangle(log.shown),
            clicks=rectangle(log.clicks),
            weight=rectangle(log.weight),
        )
        return batch, batch.clicks

    def rows(self) -> tuple[Ints, Ints, Floats, Floats]:
        """Version, bias factor, clicks and weight of rows, of a sample if there are too many."""
        part = self.log.sample()
        at = part.shown_rows
        numbers = (values[at].astype(np.float32) for values in (part.clicks, part.weight))
        return part.version[at], part.bias[at], *(values.astype(float) for values in numbers)

    def outputs(self, network: torch.nn.Module) -> torch.Tensor:
        """Output of a network for each version, shape (n_versions,)."""
        n_versions = len(self.features.features)
        with torch.inference_mode():
            parts = [
                network(self.features[slice(start, start + _PART)]).reshape(-1)
                for start in range(0, n_versions, _PART)
            ]
        return torch.cat(parts)
