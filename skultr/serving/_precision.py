"""Features whose values an engine that reads float32 cannot tell apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .._base._typing import Ints
from ..exceptions import ClickDataWarning, warn_user
from ._served_model import ServedModel
from ._thresholds import MERGED_THRESHOLDS, VALUES_APART
from ._trees import Tree, Upload, floor_single

#: Formats whose engines compute in float64, except with features that are scores of queries.
_IN_DOUBLE = ("lightgbm", "elastic")


def warn_of_lost_digits(served: ServedModel, model: Any, format: str, upload: Upload) -> None:
    """Warn, by name, of features that lose their differences where the engine reads float32."""
    found: dict[str, list[str]] = {}
    for feature, lost in _lost(served, model):
        name = upload.names[feature]
        if format not in _IN_DOUBLE or name in (upload.queries or {}):
            found.setdefault(name, []).append(lost)
    if not found:
        return
    columns = "; ".join(f"{name!r} ({', '.join(lost)})" for name, lost in found.items())
    warn_user(
        f"The engine of the format {format!r} reads features in float32, which cannot tell apart "
        f"values of {columns}. Documents will get other scores than by predict. If it is an id, "
        "drop the column: an id tells nothing of another document. Else subtract a constant near "
        "the smallest value (of a time stamp, the start of the log) before the feature is logged, "
        "in training and in the engine. Then fit and export again.",
        ClickDataWarning,
    )


def _lost(served: ServedModel, model: Any) -> Iterator[tuple[int, str]]:
    """Number of each feature that loses values or thresholds, and what it loses, in words."""
    offsets = served.offsets
    # Behind a transformer the ranker has not seen what the engine reads.
    if not served.transformers:
        for feature, (before, after) in zip(offsets.columns, offsets.distinct, strict=True):
            if after < min(before, VALUES_APART.value):
                yield int(feature), f"{before} different values of the training log become {after}"
    for part in _parts_of(model):
        if isinstance(part, list):
            yield from _merged_thresholds(part)
        elif served.transformers:
            yield from _few_steps(part)


def _parts_of(model):
    """The trees and networks of a sum, or the model itself."""
    if isinstance(model, tuple) and isinstance(model[0], list):
        return [part for *_, part in model[0]]
    return [model]


def _merged_thresholds(trees: list[Tree]) -> Iterator[tuple[int, str]]:
    """Features whose thresholds become fewer in float32."""
    feature = np.concatenate([tree.feature for tree in trees])
    threshold = np.concatenate([tree.threshold for tree in trees])
    for each in np.unique(feature[feature >= 0]):
        exact = np.unique(threshold[feature == each])
        after = len(np.unique(floor_single(exact)))
        if after < (1 - MERGED_THRESHOLDS.value) * len(exact):
            yield int(each), f"{len(exact)} thresholds of the trees become {after}"


def _few_steps(scores: Any) -> Iterator[tuple[int, str]]:
    """Features that a scaler takes off numbers so large that float32 has few there."""
    center, spread = scores.columns_scaled()
    gap = np.spacing(np.abs(center).astype(np.float32)).astype(float)
    # The range of a feature is about four times its spread, as that of a normal distribution.
    steps = 4.0 * spread / gap
    few: Ints = np.flatnonzero((steps < VALUES_APART.value) & (spread > 0))
    for each in few:
        yield int(each), f"about {max(int(steps[each]), 1)} different values are left"
