"""Joint engines: two models learned together, each debiasing the other."""

import torch
from torch import nn

from ._losses import list_log_softmax
from ._networks import ListScores

__all__ = ["DualLoss", "DualModule"]


class DualModule(ListScores):
    """Relevance logits from a network, examination logits from a table.

    One plain logit a bias factor: any shared layer or activation on top would bound the ratios
    that can be learned.

    Parameters
    ----------
    network : torch.nn.Sequential of (scaling, scoring network)
    n_factors : int
        Number of bias factors.
    reference : int
        Code of the factor that examination is relative to.
    """

    def __init__(self, network, n_factors, reference):
        super().__init__(network)
        self.reference = reference
        self.examination = nn.Parameter(torch.zeros(n_factors))

    def forward(self, batch):
        """Relevance and (relative) examination logits, each of shape (n_lists, width)."""
        relative = self.examination - self.examination[self.reference]
        return super().forward(batch), batch.pad(relative[batch.bias])


class DualLoss(nn.Module):
    r"""The dual learning objective (Ai et al. 2018) in its listwise form.

    .. math::
        L = -\sum_i c_i \frac{o_1}{o_i} \log \mathrm{softmax}(g)_i
            -\sum_i c_i \frac{r_1}{r_i} \log \mathrm{softmax}(h)_i

    with :math:`o = \exp h` relative to a fixed reference factor and :math:`r = \exp g` relative
    to the first shown row. The weights carry no gradient.

    On validation lists (in evaluation mode) it is the cross-entropy of the clicks themselves
    under :math:`\mathrm{softmax}(g + h)`: what the two parts claim together, free of the weights
    that move while they are learned and of the variance that weights bring.

    Parameters
    ----------
    scale : float
        One constant for the whole log.
    max_weight : float or None
        Cap on both weights.
    """

    def __init__(self, scale, max_weight=None):
        super().__init__()
        self.scale = scale
        self.max_weight = max_weight

    def forward(self, outputs, batch):
        """The loss of (relevance, examination) logits of shape (n_lists, width)."""
        relevance, examination = outputs
        if not self.training:
            return self._click_loss(relevance + examination, batch)
        examined = self._weights(-examination)
        relevant = self._weights(relevance[:, :1] - relevance)
        rank = -(batch.clicks * examined * list_log_softmax(relevance, batch.mask)).sum()
        exam = -(batch.clicks * relevant * list_log_softmax(examination, batch.mask)).sum()
        return (rank + exam) * (self.scale / len(batch))

    def _click_loss(self, logits, batch):
        return -(batch.clicks * list_log_softmax(logits, batch.mask)).sum() * (
            self.scale / len(batch)
        )

    def _weights(self, log_weights):
        weights = log_weights.detach().exp()
        return weights if self.max_weight is None else weights.clamp(max=self.max_weight)
