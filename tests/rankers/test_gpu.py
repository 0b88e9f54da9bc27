"""Networks on a GPU: the rankers of a processor."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

from skultr import CLDRanker, DLARanker, VectorizationRanker
from skultr.rankers import AffineRanker, IPSRanker, NaiveRanker, PairDebiasRanker, TwoTowerRanker

from .._worlds import shuffled_log, top_k_log

SHORT = {"max_epochs": 3, "random_state": 0, "early_stopping": False}
RANKERS = [
    NaiveRanker(loss="softmax", **SHORT),
    IPSRanker(loss="bce", **SHORT),
    DLARanker(**SHORT),
    TwoTowerRanker(**SHORT),
    AffineRanker(**SHORT),
    CLDRanker(loss="pointwise", propensity=[1.0, 0.5, 0.33, 0.25, 0.2], **SHORT),
    VectorizationRanker(**SHORT),
    NaiveRanker(loss="pairwise", **SHORT),
    PairDebiasRanker(**SHORT),
]


def name_of(ranker):
    loss = getattr(ranker, "loss", None)
    return type(ranker).__name__ + (f"-{loss}" if loss else "")


def log_for(ranker):
    """Documents, a log and its clicks: of the top of a ranking for CLD, else of random orders."""
    if isinstance(ranker, CLDRanker):
        return top_k_log(40, n_sessions=400)[:3]
    return shuffled_log(40, 400)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("ranker", RANKERS, ids=name_of)
def test_a_gpu_trains_the_ranker_of_a_processor(ranker):
    documents, log, clicks = log_for(ranker)
    on = {device: clone(ranker).set_params(device=device) for device in ("cpu", "cuda")}
    scores = {device: each.fit(log, clicks).predict(documents) for device, each in on.items()}
    # Weights and batches are the same; what VectorizationRanker draws on the device is not.
    np.testing.assert_allclose(scores["cuda"], scores["cpu"], atol=0.05 * np.ptp(scores["cpu"]))
