"""Examination as a network of the context, and where the clicks of a document then fall."""

import torch
from torch import nn

__all__ = ["CellLogits"]


class CellLogits(nn.Module):
    """Log expected share of clicks of the cells in which a document was shown.

    The softmax over a document's cells is the chance that a click of it fell into each of them:
    impressions times examination, in which relevance has cancelled.

    Parameters
    ----------
    network : torch.nn.Sequential of (scaling, scoring network with an output a bias factor)
        Batches come scaled, so that only the second is applied.
    n_factors : int
    """

    def __init__(self, network, n_factors):
        super().__init__()
        self.network = network
        self.n_factors = n_factors

    def forward(self, batch):
        """Logits of the cells of a ``ListBatch`` whose lists are documents; 0 at padding."""
        log_examination = self.network[1](batch.features)
        expected = (len(batch.features), self.n_factors)
        if log_examination.shape != expected:
            raise ValueError(
                f"The network gave outputs of shape {tuple(log_examination.shape)} for "
                f"{expected[0]} contexts; expected one output a bias factor, {expected}. Check "
                "the last layer of the module."
            )
        own = log_examination.gather(1, batch.bias[:, None])[:, 0]
        impressions = torch.where(batch.mask, batch.weight, 1.0)
        return batch.pad(own) + impressions.log()
