"""What a fit tells scikit-learn's callbacks."""

from dataclasses import dataclass

__all__ = ["FitTask"]


@dataclass(frozen=True, eq=False)
class FitTask:
    """What scikit-learn's callbacks are told about a fit: its context and its data."""

    context: object
    X: object
    y: object
