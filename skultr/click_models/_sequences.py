"""Recurrent networks that read a list: what was clicked above decides what follows."""

import torch
from torch import nn
from torch.nn import functional as F

__all__ = ["DocumentTable", "ExaminationReader", "ListReader", "SequenceModule"]


class DocumentTable(nn.Module):
    """A vector a document, in the place of a network of its features.

    Parameters
    ----------
    n_docs, n_out : int
    """

    def __init__(self, n_docs, n_out):
        super().__init__()
        # As equals: names of documents must not matter, and the reader tells their elements apart.
        self.weight = nn.Parameter(torch.zeros(n_docs, n_out))

    def forward(self, code):
        """Vectors (n_rows, n_out) of codes of shape (n_rows, 1), as of features."""
        return F.embedding(code[:, 0].long(), self.weight)


class ListReader(nn.Module):
    r"""P(click) from the state of a recurrent network that has read down to the document.

    :math:`h_k = \mathrm{GRU}(h_{k-1}, [e_k, \log k, c_{k-1}])` and
    :math:`P(c_k = 1 \mid c_{<k}) = \sigma(w \cdot h_k + b)`: the neural click model (Borisov et
    al. 2016).

    Parameters
    ----------
    embedding_size : int
        Length of the vector of a document.
    state_size : int
        Length of h.
    """

    def __init__(self, embedding_size, state_size):
        super().__init__()
        self.n_out = embedding_size
        self.recurrent = nn.GRU(embedding_size + 2, state_size, batch_first=True)
        self.head = nn.Linear(state_size, 1)

    def forward(self, documents, position, clicked):
        """What the criterion takes, for all rows at once.

        Parameters
        ----------
        documents : Tensor of shape (n_lists, width, n_out)
        position, clicked : Tensor of shape (n_lists, width)
            ``clicked`` is 0 or 1, read at the rows below.
        """
        above = F.pad(clicked[:, :-1], (1, 0))
        state, _ = self.recurrent(
            torch.cat([self._seen(documents, position), above[..., None]], 2)
        )
        return self._outputs(state, documents)

    def browse(self, documents, position, choose):
        """P(click) row by row, where ``choose(k, probability)`` decides about the clicks.

        Parameters
        ----------
        documents, position : Tensor
            As of ``forward``.
        choose : callable
            Gets the number of the row and P(click) of shape (n_lists,), and returns the clicks.

        Returns
        -------
        probability : Tensor of shape (n_lists, width)
        """
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
        """Relevance of documents of shape (n_docs, ...): P(click) when shown first."""
        first = documents[:, None]
        nothing = first.new_zeros(first.shape[:2])
        return self.probability(self(first, nothing + 1, nothing))[:, 0]

    def _seen(self, documents, position):
        """What is read at each row, but for the click above it."""
        return torch.cat([documents, position.log()[..., None]], dim=2)

    def _outputs(self, state, documents):
        return self.head(state)[..., 0]


class ExaminationReader(ListReader):
    r"""Examination by a recurrent network that has read the clicks above, times relevance.

    :math:`h_k = \mathrm{GRU}(h_{k-1}, [\log k, c_{k-1}])` and
    :math:`P(c_k = 1 \mid c_{<k}) = \sigma(w \cdot h_k + b)\,\sigma(g_k)`, with a logit :math:`g`
    a document.

    Parameters
    ----------
    state_size : int
        Length of h.
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
        # Not the documents: where rankings hardly vary, those above tell which comes next, and
        # its relevance would pass for examination.
        return position.log()[..., None]

    def _outputs(self, state, documents):
        return documents[..., 0], self.head(state)[..., 0]


class SequenceModule(nn.Module):
    """Documents into vectors, and lists of vectors into clicks.

    Parameters
    ----------
    network : torch.nn.Sequential of (scaling, network)
        Batches come scaled, so that only the second is applied.
    reader : ListReader
    """

    def __init__(self, network, reader):
        super().__init__()
        self.network = network
        self.reader = reader

    def forward(self, batch):
        """What the reader says of a ``ListBatch`` whose bias factors are positions."""
        documents = self.network[1](batch.features)
        expected = (len(batch.features), self.reader.n_out)
        if documents.shape != expected:
            raise ValueError(
                f"The network gave outputs of shape {tuple(documents.shape)} for {expected[0]} "
                f"documents; expected {expected[1]} number(s) a document, {expected}. Check the "
                "last layer of the module."
            )
        rectangle = documents.new_zeros((*batch.mask.shape, expected[1]))
        rectangle = rectangle.masked_scatter(batch.mask[..., None], documents)
        # At padding too, a position that has a logarithm.
        position = batch.pad(batch.bias.float()).clamp(min=1)
        return self.reader(rectangle, position, (batch.clicks > 0).float())
