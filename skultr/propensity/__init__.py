"""Estimators of examination (propensities): ``fit`` on a log, ``predict`` a probability a row."""

from importlib import import_module

_HOMES = {
    "relevance_labels": "_relevance_labels",
    "InterventionHarvesting": "_harvesting",
    "RandomizedPropensity": "_harvesting",
    "ContextualPropensity": "_contextual",
    "RegressionEMPropensity": "_learned",
    "DualLearningPropensity": "_learned",
    "PowerLawPropensity": "_known",
    "UserClusters": "_clusters",
}

__all__ = sorted(_HOMES)


def __getattr__(name):
    # Lazy, so that estimators that only count do not import torch.
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return __all__
