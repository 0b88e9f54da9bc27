"""A log that was read already, as the ``X`` of a further fit: no row of features is repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from .._typing import Floats
from ._clicklog import ClickLog
from ._dataset_frames import cells_of, places_of, rows_of
from ._on_disk import LogOnDisk


class ReadLog(LogOnDisk):
    """A :class:`ClickLog` in the place of a dataset: what members of a ranker are fitted to.

    The ids of its documents are the codes of the log.
    """

    def __init__(self, log: ClickLog) -> None:
        features = log.features
        if isinstance(features, np.ndarray):
            features = features.view()
            features.flags.writeable = False  # other members read them too
        doc_ids = pd.RangeIndex(log.n_docs, name="doc")
        self._log = replace(log, features=features, doc_ids=doc_ids)

    @property
    def feature_names(self) -> list[int]:
        """Numbers of the features: members are fitted to arrays."""
        return [*range(self._log.features.shape[1])]

    @property
    def roles(self) -> list[str]:
        """Roles that the log has."""
        found = ["qid", "session", "doc", "position", "bias", "impressions"]
        found += ["user"] if len(self._log.user_ids) > 1 else []
        given = ("propensity", "production")
        return found + [name for name in given if getattr(self._log, name) is not None]

    @property
    def doc_ids(self) -> pd.Index | None:
        """What the codes of documents stand for; None without ids."""
        return self._log.doc_ids

    def log(self, *, detailed: bool = True) -> ClickLog:
        """The log."""
        return self._log

    def to_frame(self) -> tuple[pd.DataFrame, Floats]:
        """All rows, and click rates."""
        return rows_of(self._log, self.roles, self.feature_names)

    def to_cells(self, by: Sequence[str]) -> tuple[pd.DataFrame, Floats]:
        """Clicks and impressions of each document, as a log of one row per cell."""
        return cells_of(self._log, by)

    def to_places(self) -> pd.DataFrame:
        """The distinct positions, bias factors and users, one row each."""
        return places_of(self._log, self.roles)[0]

    def to_arrays(self) -> tuple[np.ndarray, Floats, dict[str, Any]]:
        """Features by row, click rates and roles as codes, for rankers that are not skultr's."""
        log = self._log
        factor = np.where(log.shown, log.bias_values[log.bias], np.nan)
        roles = {
            "qid": log.query,
            "session": log.list_,
            "doc": log.doc,
            "position": np.where(log.shown, log.position, np.nan),
            "bias": factor,
            "user": log.user,
            "propensity": log.propensity,
            "impressions": log.weight,
            "doc_scope": "global",  # a code is one document
        }
        return log.features[log.version], log.click_rate, roles
