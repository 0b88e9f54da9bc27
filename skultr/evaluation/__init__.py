"""What a ranking is worth, and which experiment would tell."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._interleaving import Interleaver as Interleaver
    from ._interleaving_outcome import InterleavingOutcome as InterleavingOutcome
    from ._interleaving_outcome import interleaving_outcome as interleaving_outcome
else:
    from .._lazy import lazy_names

    # Lazy, as in all public folders.
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "_interleaving": ("Interleaver",),
            "_interleaving_outcome": ("InterleavingOutcome", "interleaving_outcome"),
        },
    )
