"""Click models: how users browse a list and what they click, and the relevance behind it."""

from importlib import import_module

_HOMES = {
    "CACMModel": "_neural",
    "CCMModel": "_cascade",
    "CascadeModel": "_cascade",
    "DBNModel": "_dbn",
    "DCMModel": "_cascade",
    "DCTRModel": "_click_rates",
    "NCMModel": "_neural",
    "PBMModel": "_position_based",
    "RDCTRModel": "_click_rates",
    "UBMModel": "_position_based",
}

__all__ = sorted(_HOMES)


def __getattr__(name):
    # Lazy, so that models that only count do not import torch.
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return __all__
