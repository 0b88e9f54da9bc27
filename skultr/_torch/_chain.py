"""The dynamic Bayesian network over features: attraction and satisfaction by one network."""

import torch
from torch import nn

__all__ = ["ChainLoss", "ChainModule"]

#: No probability is nearer to 0 or 1.
_LEAST = 1e-6


class ChainModule(nn.Module):
    """Attraction and satisfaction of the rows of lists, and one continuation.

    Parameters
    ----------
    network : torch.nn.Sequential of (scaling, scoring network with two outputs)
    continuation : float or None
        Fixed, or learned.
    """

    def __init__(self, network, continuation):
        super().__init__()
        self.network = network
        start = torch.logit(torch.tensor(0.8 if continuation is None else continuation), _LEAST)
        self.continuation = nn.Parameter(start, requires_grad=continuation is None)

    def forward(self, batch):
        """Attraction and satisfaction, each of shape (n_lists, width), and continuation."""
        outputs = torch.sigmoid(self.network[1](batch.features))
        if outputs.shape != (len(batch.features), 2):
            raise ValueError(
                f"The network gave outputs of shape {tuple(outputs.shape)} for "
                f"{len(batch.features)} documents; expected attraction and satisfaction of each, "
                f"({len(batch.features)}, 2). Check the last layer of the module."
            )
        outputs = outputs.clamp(_LEAST, 1 - _LEAST)
        return batch.pad(outputs[:, 0]), batch.pad(outputs[:, 1]), torch.sigmoid(self.continuation)


class ChainLoss(nn.Module):
    """Minus the log likelihood of lists of clicks, row by row given the clicks above.

    Parameters
    ----------
    scale : float
        One constant for the whole log.
    """

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, outputs, batch):
        """The loss of what :class:`ChainModule` gives."""
        attraction, satisfaction, go_on = outputs
        clicked = batch.clicks > 0
        examined = torch.ones_like(attraction[:, 0])
        loss = 0.0
        for k in range(attraction.shape[1]):
            click = (examined * attraction[:, k]).clamp(_LEAST, 1 - _LEAST)
            chance = torch.where(clicked[:, k], click, 1 - click)
            loss = loss - (batch.weight[:, k] * chance.log()).sum()
            skipped = (examined - click).clamp(min=0) / (1 - click)
            examined = go_on * torch.where(clicked[:, k], 1 - satisfaction[:, k], skipped)
        return loss * (self.scale / len(batch))
