"""Batches of lists, fetched whole from flat arrays."""

from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import Dataset

__all__ = ["ListBatch", "ListDataset"]


@dataclass(frozen=True, eq=False)
class ListBatch:
    """A batch of lists: flat rows for the network, rectangles for the loss.

    The network sees the rows that exist and no padding, so that long lists beside short ones
    cost nothing and batch normalisation is not diluted.

    Parameters
    ----------
    features : Tensor of shape (n_rows, n_features)
    bias : Tensor of shape (n_rows,)
        Code of the bias factor of each row.
    mask : Tensor of shape (n_lists, width), bool
        Where a list has a row.
    clicks, weight : Tensor of shape (n_lists, width)
        (Debiased) clicks and impressions; 0 at padding.
    """

    features: torch.Tensor
    bias: torch.Tensor
    mask: torch.Tensor
    clicks: torch.Tensor
    weight: torch.Tensor

    def __len__(self):
        return len(self.mask)

    def pad(self, values):
        """Flat values (n_rows,) as a rectangle (n_lists, width), 0 at padding."""
        return values.new_zeros(self.mask.shape).masked_scatter(self.mask, values)


class ListDataset(Dataset):
    """The shown rows of a click log as lists, ready for a ``DataLoader``.

    Parameters
    ----------
    log : ClickLog
    features : Tensor of shape (n_docs, n_features)
        Network inputs of the distinct documents; decides the device.
    clicks : ndarray of shape (n_rows,)
        Target of each row of the log, such as debiased clicks.
    click_only : bool
        Leave out lists without clicks, which contribute nothing to a listwise loss.
    """

    def __init__(self, log, features, clicks, click_only=False):
        device = features.device
        # Positive rows alone would change normalisers; whole lists go or stay.
        keep = log.shown
        if click_only:
            clicked = np.bincount(log.list_, weights=clicks != 0, minlength=log.n_lists) > 0
            keep = keep & clicked[log.list_]
        counts = np.bincount(log.list_[keep], minlength=log.n_lists)
        lengths = torch.from_numpy(counts[counts > 0])
        self.features = features
        self.doc = torch.from_numpy(log.doc[keep]).to(device)
        self.bias = torch.from_numpy(log.bias[keep]).to(device)
        self.clicks = torch.from_numpy(clicks[keep]).to(device, torch.float32)
        self.weight = torch.from_numpy(log.weight[keep]).to(device, torch.float32)
        self.lengths = lengths.to(device)
        self.starts = (lengths.cumsum(0) - lengths).to(device)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return self.__getitems__([index])

    def __getitems__(self, indices):
        """A whole batch: one (ListBatch, target) pair, as skorch unpacks it."""
        lists = torch.as_tensor(indices, device=self.lengths.device)
        lengths = self.lengths[lists]
        column = torch.arange(int(lengths.max()), device=lengths.device)
        mask = column < lengths[:, None]
        rows = (self.starts[lists][:, None] + column)[mask]
        batch = ListBatch(
            features=self.features[self.doc[rows]],
            bias=self.bias[rows],
            mask=mask,
            clicks=_rectangle(self.clicks[rows], mask),
            weight=_rectangle(self.weight[rows], mask),
        )
        return batch, batch.clicks


def _rectangle(values, mask):
    return values.new_zeros(mask.shape).masked_scatter_(mask, values)
