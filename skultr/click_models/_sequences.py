"""Recurrent networks that scan a list: P(click) depends on the clicks above."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .._log._faults import count_of
from .._torch._stream import GRU, Linear


class DocumentTable(nn.Embedding):
    """One vector per document, used in place of a network of features."""

    def reset_parameters(self):
        """Start all vectors at 0.

        The order of documents must not matter, and the reader breaks the symmetry between the
        elements of a vector.
        """
        nn.init.zeros_(self.weight)

    def forward(self, code):
        """Vectors (n_rows, n_out) of documents given by codes of shape (n_rows, 1)."""
        return super().forward(code[:, 0].long())


class ListReader(nn.Module):
    r"""P(click) per row, from the state of a recurrent network that has read the rows above.

    :math:`h_k = \mathrm{GRU}(h_{k-1}, [e_k, \log k, c_{k-1}])` and
    :math:`P(c_k = 1 \mid c_{<k}) = \sigma(w \cdot h_k + b)`: the neural click model (Borisov et
    al. 2016).
    """

    def __init__(self, embedding_size, state_size):
        super().__init__()
        self.n_out = embedding_size
        self.recurrent = GRU(embedding_size + 2, state_size, batch_first=True)
        self.head = Linear(state_size, 1)

    def forward(self, documents, position, clicked):
        """Logits of all rows at once, as the criterion takes them."""
        above = F.pad(clicked[:, :-1], (1, 0))
        state, _ = self.recurrent(
            torch.cat([self._seen(documents, position), above[..., None]], 2)
        )
        return self._outputs(state, documents)

    def browse(self, documents, position, choose):
        """P(click) per row, with the clicks chosen row by row by ``choose(k, probability)``."""
        seen, state = self._seen(documents, position), None
        clicked = seen.new_zeros(len(seen))
        probability = torch.empty_like(position)
        for k in range(seen.shape[1]):
            step = torch.cat([seen[:, k], clicked[:, None]], dim=1)[:, None]
            read, state = self.recurrent(step, state)
            outputs = self._outputs(read, documents[:, k : k + 1])
            probability[:, k] = self.probability(outputs)[:, 0]
            clicked = choose(k, probability[:, k]).to(seen.dtype)
        return probability

    def probability(self, outputs):
        """P(click) from what ``forward`` returns."""
        return torch.sigmoid(outputs)

    def relevance(self, documents):
        """Relevance of documents of shape (n_docs, ...): P(click) at the first position."""
        first = documents[:, None]
        nothing = first.new_zeros(first.shape[:2])
        return self.probability(self(first, nothing + 1, nothing))[:, 0]

    def _seen(self, documents, position):
        """Input of the recurrent network per row, without the click above it."""
        return torch.cat([documents, position.log()[..., None]], dim=2)

    def _outputs(self, state, documents):
        return self.head(state)[..., 0]


class ExaminationReader(ListReader):
    r"""P(click) per row: relevance times examination by a recurrent network of the clicks above.

    :math:`h_k = \mathrm{GRU}(h_{k-1}, [\log k, c_{k-1}])` and
    :math:`P(c_k = 1 \mid c_{<k}) = \sigma(w \cdot h_k + b)\,\sigma(g_k)`, with one logit
    :math:`g` per document.
    """

    def __init__(self, state_size):
        super().__init__(0, state_size)
        self.n_out = 1

    def probability(self, outputs):
        relevance, examination = outputs
        return torch.sigmoid(relevance) * torch.sigmoid(examination)

    def relevance(self, documents):
        """σ(g) of each document."""
        return torch.sigmoid(documents[:, 0])

    def _seen(self, documents, position):
        # Documents are not read: if rankings hardly vary, those above determine the next one, and
        # the network would mistake its relevance for examination.
        return position.log()[..., None]

    def _outputs(self, state, documents):
        return documents[..., 0], self.head(state)[..., 0]


class SequenceModule(nn.Module):
    """A network that maps documents to vectors, and a reader that maps lists of them to clicks."""

    def __init__(self, network, reader):
        super().__init__()
        self.network = network
        self.reader = reader

    def forward(self, batch):
        """Output of the reader for a ``ListBatch`` whose bias factors are positions."""
        documents = self.network[1](batch.features)
        expected = (len(batch.features), self.reader.n_out)
        if documents.shape != expected:
            raise ValueError(
                f"The network gave outputs of shape {tuple(documents.shape)} for {expected[0]} "
                f"documents; expected {count_of(expected[1], 'number')} per document, {expected}. "
                "Check the last layer of the module."
            )
        rectangle = documents.new_zeros((*batch.mask.shape, expected[1]))
        rectangle = rectangle.masked_scatter(batch.mask[..., None], documents)
        # Padding needs a position with a logarithm, too.
        position = batch.pad(batch.bias.float()).clamp(min=1)
        return self.reader(rectangle, position, (batch.clicks > 0).float())
