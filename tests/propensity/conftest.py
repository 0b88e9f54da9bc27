"""Logs of three rankers, for estimators of examination."""

import numpy as np
import pytest

from skultr.datasets import make_ltr
from skultr.simulation import PositionBasedUser, production_scores, simulate_clicks

CURVE = 1 / np.arange(1, 11)


@pytest.fixture(scope="session")
def world():
    documents = make_ltr(200, n_features=4, random_state=0)
    scores = [production_scores(documents, random_state=seed) for seed in range(3)]
    return documents, np.column_stack(scores)


def simulate(world, policy, n_sessions, seed=0, **settings):
    """Log and clicks of a policy of one or of several rankers."""
    documents, scores = world
    several = getattr(policy, "several_rankers", False)
    settings = {"user": PositionBasedUser(CURVE), "features": False, **settings}
    return simulate_clicks(
        documents,
        scores=scores if several else scores[:, 0],
        policy=policy,
        n_sessions=n_sessions,
        random_state=seed,
        **settings,
    )[:2]
