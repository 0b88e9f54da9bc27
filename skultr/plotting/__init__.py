"""Plots of what a click log determines and of what a model estimated.

Displays as in scikit-learn: created by ``from_...``, drawn again by ``plot``, with the figure and
its axes as attributes. They need matplotlib (``pip install "skultr[plot]"``), which is imported
when a display is drawn.
"""

from ._axes import method_colors
from ._examination import ExaminationDisplay
from ._identifiability import IdentifiabilityDisplay
from ._relevance import DebiasednessDisplay, EmbeddingDisplay

__all__ = [
    "DebiasednessDisplay",
    "EmbeddingDisplay",
    "ExaminationDisplay",
    "IdentifiabilityDisplay",
    "method_colors",
]
