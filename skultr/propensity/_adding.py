"""``partial_fit`` of estimators that read clicks and impressions of documents alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.utils.metaestimators import available_if

from .._log._clicklog import ClickLog, make_click_log
from .._log._counted import check_given, count_cells_of, is_in_engine
from .._log._dataset import ClickDataset
from .._log._dataset_frames import cells_of
from .._log._estimator import forget, unless_it_fails
from .._log._joined_logs import join_logs
from .._log._on_disk import refuse_arguments
from .._log._reader import take_clicks
from .._log._roles import FIT_ROLES, count_rows, read_features, read_role
from .._typing import AnyFrame, Column, Scope, Table
from ._propensity import BasePropensity

#: Attributes that reading a log sets, and reading another one reads.
_OF_READING = ("n_features_in_", "feature_names_in_", "_click_column", "_has_bias")


def _has_partial_fit(estimator: Any) -> bool:
    if not estimator._adds_counts:
        raise AttributeError(
            f"{type(estimator).__name__} has no partial_fit with these parameters: it reads more "
            "than counts. Fit it to the logs of all days together, such as a ClickDataset."
        )
    return True


class AddsCounts(BasePropensity):
    """Base class of propensity estimators with ``partial_fit``, where ``_adds_counts``."""

    user: str | None = None

    __metadata_request__partial_fit = dict.fromkeys((*FIT_ROLES, "sample_weight"), True)

    @property
    def _adds_counts(self) -> bool:
        """True if the estimate is a function of the clicks and impressions of documents."""
        return False

    @available_if(_has_partial_fit)
    @unless_it_fails
    def partial_fit(
        self,
        X: Table | AnyFrame | ClickDataset,
        y: Column | str | None = None,
        sample_weight: Column | None = None,
        *,
        qid: Column | None = None,
        session: Column | None = None,
        doc: Column | None = None,
        position: Column | None = None,
        bias: Column | None = None,
        user: Column | None = None,
        impressions: Column | None = None,
        doc_scope: Scope | None = None,
    ) -> Self:
        """Add the clicks and impressions of a further log, such as that of a new day.

        The estimate is that of ``fit`` on the lists of all logs together.

        Parameters
        ----------
        X, y, sample_weight, qid, session, doc, position, bias, user, impressions, doc_scope
            As in :meth:`fit`. The lists of X are other lists than those of earlier logs, whatever
            their sessions are called.

        Returns
        -------
        self : object
            After an error it is what it was before.

        Raises
        ------
        ValueError
            If a role or ``y`` holds invalid values, or the estimator was fitted by :meth:`fit`,
            which keeps no counts: start with ``partial_fit`` then.
        """
        self._validate_params()
        roles = {
            "qid": qid,
            "session": session,
            "doc": doc,
            "position": position,
            "bias": bias,
            "user": user,
            "impressions": impressions,
            "doc_scope": doc_scope,
        }
        is_first = "n_features_in_" not in vars(self)
        if not (is_first or hasattr(self, "_counts")):
            raise ValueError(
                f"{type(self).__name__} was fitted by fit, which keeps no counts to add to. Start "
                "with partial_fit instead: its first call does what fit does."
            )
        log = self._read_counts(X, y, sample_weight, roles, is_first).without_never_shown()
        if not is_first:
            log = join_logs(self._counts, log)
            forget(self, keep=_OF_READING)
        self._counts = log.fold(self.user is not None)
        cells, rate = cells_of(self._counts, ["bias"] if self.user is None else ["bias", "user"])
        if self.user is not None:
            cells = cells.rename(columns={"user": self.user})
        self._fit(cells, rate, None, dict.fromkeys(roles))
        return self

    def _read_counts(self, X, y, sample_weight, roles, is_first) -> ClickLog:
        """The log; without features where documents have ids."""
        if isinstance(X, ClickDataset):
            refuse_arguments({"y": y, "sample_weight": sample_weight, **roles})
            self._checked(pd.DataFrame(columns=X.feature_names), reset=is_first)
            self._has_bias = True
            log = X.log()
            if log.doc_ids is None:
                return log
            return log.with_features(np.empty((log.n_docs, 0), dtype=np.float32))
        if is_in_engine(X):
            check_given(X, y, sample_weight, roles, type(self).__name__)
            names, self._click_column = list(nw.from_native(X).collect_schema()), y
            self._checked(pd.DataFrame(columns=names), reset=is_first)
            X, y = count_cells_of(X, y, self.columns_of_cells(names))
        else:
            X, y, self._click_column = take_clicks(X, y, type(self).__name__)
            X = self._checked(X, reset=is_first)
        has_bias = self._read_bias(X, roles) is not None
        if not is_first and has_bias != self._has_bias:
            raise ValueError(
                "Only one of the logs has positions (or the role 'bias'). Pass them with every "
                "log, or with none."
            )
        self._has_bias = has_bias
        if self.user is not None:
            roles = {**roles, "user": self._read_users(X, roles)}
        features: Any = np.empty((count_rows(X), 0))
        if read_role(X, "doc", roles["doc"]) is None:
            features = read_features(X)
            features = features.toarray() if sparse.issparse(features) else features
        features = np.asarray(features, dtype=np.float32)
        log = make_click_log(X, features, y, sample_weight, roles)
        if has_bias:
            return log
        # Where nothing says where a row was shown, all rows are under one bias factor.
        return replace(log, bias=np.zeros_like(log.bias), bias_values=np.ones(1, dtype=int))
