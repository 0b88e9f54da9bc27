"""How long a network trains, and how far its quality depends on the seed.

nDCG@10 on queries that are not in the log, of networks trained with the clicks as they are and
corrected for examination, behind a ranker whose order never changes. Each line has three
trainings with different seeds on one log: their mean, and their standard deviation (``spread``).
The seeds of the study are different documents: made ones, or those of ``--letor``.
"""

import time

import numpy as np
from sklearn.base import clone

from skultr.metrics import ndcg_score
from skultr.rankers import IPSRanker, NaiveRanker
from skultr.simulation import simulate_clicks

from .._documents import split_documents
from .._study import Page, measured

RANKERS = {
    "naive": NaiveRanker(),
    "divide": IPSRanker(correction="divide", clip=0.1),
    "offset": IPSRanker(correction="offset", clip=0.1),
}
SINGLE = {"net_params": {"callbacks__average": None}}
TRAININGS = {
    "default": {},
    "no decay": {"weight_decay": 0.0},
    "no average": SINGLE,
    "early stopping": {"early_stopping": True},
    "stopped, neither": {
        "early_stopping": True,
        "optimizer": "adam",
        "learning_rate": 0.002,
        **SINGLE,
    },
    "20 epochs, neither": {
        "max_epochs": 20,
        "optimizer": "adam",
        "learning_rate": 0.002,
        **SINGLE,
    },
    "80 epochs": {"max_epochs": 80},
}
N_SEEDS = 3


def training_length(cell, settings, seed):
    """Mean and spread of nDCG@10 over trainings from one log, and the time of a fit."""
    train, test = split_documents(settings, 270, 180, seed=seed, n_features=30)
    log, clicks, _ = simulate_clicks(
        train, n_sessions=settings.sessions or cell["pages"], random_state=seed
    )
    start, found = time.process_time(), []
    for random_state in range(N_SEEDS):
        ranker = clone(RANKERS[cell["ranker"]])
        ranker.set_params(**TRAININGS[cell["training"]], random_state=random_state)
        scores = ranker.fit(log, clicks).predict(test)
        found.append(ndcg_score(test["relevance"], scores, qid=test["qid"], k=10))
    seconds = (time.process_time() - start) / N_SEEDS
    yield {
        "nDCG@10": np.mean(found),
        "spread": np.std(found, ddof=1),
        "epochs": ranker.n_iter_,
        "CPU seconds": seconds,
    }


PAGE = Page(
    "studies/training_length",
    "How long a network trains",
    (
        measured(
            training_length,
            "nDCG@10 of networks, and its spread over seeds",
            ("nDCG@10", "spread", "epochs", "CPU seconds"),
            over={"pages": (5_000, 20_000, 200_000), "ranker": RANKERS, "training": TRAININGS},
            runs=4,
        ),
    ),
)
