"""Unbiased learning to rank from click logs, with the scikit-learn interface.

- :mod:`skultr.rankers`: rankers that learn relevance from clicks.
- :mod:`skultr.click_models`: how users browse a list, and the relevance behind their clicks.
- :mod:`skultr.propensity`: estimators of examination, for rankers that divide by it.
- :mod:`skultr.identifiability`: whether a log determines relevance, and its repair.
- :mod:`skultr.metrics`: metrics of rankings, clicks and debiasedness, and scorers.
- :mod:`skultr.model_selection`: splitters that keep queries whole.
- :mod:`skultr.preprocessing`: transformers that leave role columns alone.
- :mod:`skultr.simulation`: click logs with known truth.
- :mod:`skultr.datasets`: documents with relevance labels, made or read.
- :mod:`skultr.plotting`: Displays of graphs and examination curves.
- :mod:`skultr.testing`: checks for rankers, yours or ours.
- :func:`skultr.aggregate_clicks`: from impressions in any engine to distinct cells.
"""

from importlib import import_module

__version__ = "0.1.0"

_LAZY = {
    "CLDRanker": "rankers",
    "CMIPScorer": "metrics",
    "DLARanker": "rankers",
    "IdentifiabilityRepair": "identifiability",
    "UserAwareIPSRanker": "rankers",
    "VectorizationRanker": "rankers",
    "aggregate_clicks": "_log._aggregate",
}
_SUBMODULES = (
    "click_models",
    "datasets",
    "exceptions",
    "identifiability",
    "metrics",
    "model_selection",
    "plotting",
    "preprocessing",
    "propensity",
    "rankers",
    "simulation",
    "testing",
)

__all__ = [*_LAZY, *_SUBMODULES, "__version__"]


def __getattr__(name):
    # Lazy, so that `import skultr` does not import torch.
    if name in _LAZY:
        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    if name in _SUBMODULES:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
