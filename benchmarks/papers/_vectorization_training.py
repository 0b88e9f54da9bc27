"""Training as in appendix D of the vectorization paper, the same for all methods.

AdaGrad with its step size, batches of 256 lists, and the weights with the best nDCG@10 on the
labels of the validation queries. The same nDCG@10 chooses the length of the vectors, and at full
size whatever other parameter a method has of its own.
"""

from functools import partial

import numpy as np
import torch
from skorch.callbacks import Callback

from skultr import DLARanker, VectorizationRanker
from skultr.metrics import ndcg_score
from skultr.rankers import AffineRanker, IPSRanker, PairDebiasRanker, RegressionEMRanker

from .._documents import feature_columns

#: Epochs between two looks at the validation queries.
LOOK_EVERY = 5
#: The paper counts 15,000 steps: at full size 200 epochs of 20,000 queries in batches of 256.
#: ``--quick`` has 1,200 steps, 100 epochs of 1,500 queries in batches of 128. The embeddings stay
#: at their start for 500 steps in both, as in the paper.
FULL_SIZE = {"max_epochs": 200}
QUICK_SIZE = {"max_epochs": 100, "batch_size": 128, "hidden_layer_sizes": (32,)}
#: Of methods without a parameter of their own. The step size is that of the paper for all.
AS_PUBLISHED = [{}]
N_POSITIONS = 10
#: Click Data: a method that takes all positions alike corrects nothing.
UNCORRECTED = partial(IPSRanker, propensity=np.ones(N_POSITIONS))
#: Lengths of the vectors: first the rank of TianGong's click rates, then that of trust bias.
LENGTHS = (5, 2, 3, 4, 1)
#: ``--quick`` chooses between the first two, and has the first setting of all other methods.
QUICK_LENGTHS = 2
#: A class and its settings. What they leave out is that of ``variant="published"``.
METHODS = {
    "Click Data": (UNCORRECTED, AS_PUBLISHED),
    "DLA": (DLARanker, AS_PUBLISHED),
    "PairDebias": (PairDebiasRanker, [{"p": p} for p in (0.0, 1.0, 4.0, 0.5, 8.0)]),
    "RegressionEM": (RegressionEMRanker, AS_PUBLISHED),
    # The published labels, without a bound, can reverse the ranking.
    "Affine": (AffineRanker, [{"clip": clip} for clip in (0.2, None, 0.1, 0.5, 1.0)]),
    "Vectorization": (VectorizationRanker, [{"n_components": d} for d in LENGTHS]),
}


def n_tried(method, settings):
    """How many settings of a method validation chooses from."""
    _, choices = METHODS[method]
    quick = QUICK_LENGTHS if method == "Vectorization" else 1
    return settings.size(quick=quick, full=len(choices))


def train(ranker, log, validation, settings, seed, **choice):
    """A ranker of a class, fitted to a log and its clicks as the paper trains."""
    size = settings.size(quick=QUICK_SIZE, full=FULL_SIZE, tiny={**QUICK_SIZE, "max_epochs": 2})
    keep = ("labels", BestByLabels(validation))
    training = {
        "variant": "published",
        # The published variant stops early by clicks. It never does with this patience, and holds
        # out a single query.
        "n_iter_no_change": 10_000,
        "validation_fraction": 1e-9,
        "net_params": {"callbacks": [keep]},
        "random_state": seed,
    }
    return ranker(**{**training, **size, **choice}).fit(*log)


def train_on_labels(documents, validation, settings, seed):
    """The same network, taught by the labels of the training queries."""
    gain = np.expm1(np.log(2) * documents["relevance"].to_numpy())
    place = documents.groupby("qid").cumcount() + 1
    log = documents.assign(position=place), gain / gain.max()
    alike = np.ones(place.max())
    return train(IPSRanker, log, validation, settings, seed, propensity=alike)


class BestByLabels(Callback):
    """Ends a training with the weights of the epoch that ranks documents with labels best.

    Vectors rank by the mean observation embedding here: the network of base vectors is trained
    after them.
    """

    def __init__(self, documents):
        self.documents = documents

    def on_train_begin(self, net, **kwargs):
        columns = feature_columns(self.documents)
        self.features_ = torch.from_numpy(self.documents[columns].to_numpy(np.float32))
        self.best_ = -np.inf

    def on_epoch_end(self, net, **kwargs):
        epoch = len(net.history)
        if epoch % LOOK_EVERY and epoch < net.max_epochs:
            return
        found = self._quality(net.module_)
        if found > self.best_:
            weights = net.module_.state_dict()
            self.best_ = found
            self.weights_ = {name: values.clone() for name, values in weights.items()}

    def on_train_end(self, net, **kwargs):
        net.module_.load_state_dict(self.weights_)
        self.weights_ = self.features_ = None

    def _quality(self, module):
        module.eval()
        with torch.inference_mode():
            outputs = module.network(self.features_).double().numpy()
        scores = outputs[:, 0]
        if outputs.shape[1] > 1:
            scores = outputs @ module.table().mean(axis=0)
        return ndcg_score(
            self.documents["relevance"], scores, qid=self.documents["qid"], k=N_POSITIONS
        )
