"""Trainings in several threads of one process, which share torch's random stream."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import torch

from skultr.rankers import NaiveRanker

from .._worlds import small_log

N_THREADS = 3


def test_same_seed_in_several_threads_gives_the_same_model_and_leaves_the_stream_alone():
    log, clicks = small_log()
    # Dropout and shuffled batches draw until the last epoch.
    settings = {"max_epochs": 10, "batch_size": 2, "dropout": 0.5, "early_stopping": False}
    together = Barrier(N_THREADS, timeout=60)

    def fit(wait=lambda: None):
        wait()
        return NaiveRanker(**settings, random_state=0).fit(log, clicks).predict(log)

    alone, stream = fit(), torch.get_rng_state()
    with ThreadPoolExecutor(N_THREADS) as pool:
        for _ in range(3):
            for scores in pool.map(lambda _: fit(wait=together.wait), range(N_THREADS)):
                np.testing.assert_array_equal(scores, alone)
    assert torch.equal(torch.get_rng_state(), stream)
