"""A log that was read already, as the ``X`` of a further fit: no row of features is repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from .._base._typing import Floats
from ._click_units import as_known_rates
from ._clicklog import MAY_BE_NONE, ClickLog
from ._dataset_frames import FramesOfLog
from ._roles import LogOnDisk, read_values, refuse_arguments


class ReadLog(FramesOfLog):
    """A :class:`ClickLog` in the place of a dataset: what members of a ranker are fitted to.

    The ids of its documents are the codes of the log.
    """

    def __init__(self, log: ClickLog, *, checks: bool = True) -> None:
        #: Whether what is fitted compares its propensities with the clicks.
        self.checks = checks
        features = log.features
        if isinstance(features, np.ndarray):
            features = features.view()
            features.flags.writeable = False  # other members read them too
        #: Members are fitted to arrays, whose columns are numbered.
        self.feature_names = [*range(features.shape[1])]
        # Codes are ids of their own: what documents are called changes no fit.
        self.doc_ids = pd.RangeIndex(log.n_docs, name="doc")
        self._log = replace(log, features=features, doc_ids=self.doc_ids)

    @property
    def roles(self) -> list[str]:
        """Roles that the log has."""
        found = ["qid", "session", "doc", "position", "bias", "impressions"]
        # One user for all rows is a log without users.
        if len(self._log.user_ids) > 1:
            found.append("user")
        found += [name for name in MAY_BE_NONE if getattr(self._log, name) is not None]
        return found

    def log(self, *, detailed: bool = True) -> ClickLog:
        """The log."""
        return self._log

    def to_arrays(self) -> tuple[np.ndarray, Floats, dict[str, Any]]:
        """Features by row, click rates and roles as codes, for rankers that are not skultr's."""
        log = self._log
        roles = {
            "qid": log.query,
            "session": log.list_,
            "doc": log.doc,
            "position": log.position,
            "bias": log.bias_values[log.bias],
            "user": log.user,
            "propensity": log.propensity,
            "impressions": log.weight,
            "doc_scope": "global",  # a code is one document
        }
        # Known rates, because rates of 0 and 1 alone would be taken for numbers of clicks.
        return log.features[log.version], as_known_rates(log.click_rate), roles


def was_read(X: Any) -> bool:
    """True for what the fit of a member gets, of which the fit around it has said everything."""
    return isinstance(X, ReadLog)


class TransformedLog(FramesOfLog):
    """A dataset with other features of its versions, which are in memory."""

    def __init__(self, dataset: FramesOfLog, features: np.ndarray, names: list[str]) -> None:
        self._dataset = dataset
        self._features = features
        self.feature_names = names
        self.roles = dataset.roles
        self._features.flags.writeable = False

    @property
    def doc_ids(self) -> pd.Index | None:
        """What the codes of documents stand for; None without ids."""
        return self._dataset.doc_ids

    def log(self, *, detailed: bool = True) -> ClickLog:
        """The log of the dataset with the transformed features."""
        return replace(self._dataset.log(detailed=detailed), features=self._features)

    def to_cells(self, by: Sequence[str]) -> tuple[pd.DataFrame, Floats]:
        """Clicks and impressions of each document, as a log of one row per cell."""
        return self._dataset.to_cells(by)

    def with_values(self, role: str, known: np.ndarray, values: np.ndarray) -> TransformedLog:
        """The same with other bias factors or users in place of the ``known`` ones."""
        dataset = self._dataset.with_values(role, known, values)
        return TransformedLog(dataset, self._features, self.feature_names)


def features_to_transform(X: Any, y: Any = None) -> tuple[Any, Callable[[Any], Any]]:
    """What a transformer of features reads of X, and the way back from what it gives.

    Of a dataset these are the features of its versions, one row each.
    """
    if not isinstance(X, LogOnDisk):
        return X, lambda transformed: transformed
    refuse_arguments({"y": y})
    # Versions, and not rows: the same features are transformed once.
    features = np.asarray(X.log().features)
    frame = pd.DataFrame(features, columns=list(X.feature_names), copy=False)

    def back(transformed):
        found = read_values(transformed)
        return TransformedLog(X, found.values, found.names)

    return frame, back
