"""Clones of estimators that belong to another estimator, seeded by it."""

from sklearn.base import clone

__all__ = ["seeded_clone"]


def seeded_clone(estimator, random_state):
    """A clone, seeded (and the steps of a Pipeline) where it can be and is not."""
    estimator = clone(estimator)
    seeds = {
        name: random_state
        for name, value in estimator.get_params().items()
        if value is None and (name == "random_state" or name.endswith("__random_state"))
    }
    estimator.set_params(**seeds)  # that of FrozenEstimator returns nothing
    return estimator
