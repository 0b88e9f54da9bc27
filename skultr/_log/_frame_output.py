"""Transformers of role columns: checks of the frame, and the kind of frame returned."""

from __future__ import annotations

from typing import Literal, Self

import narwhals.stable.v2 as nw
import pandas as pd
from scipy.sparse import issparse
from sklearn import get_config
from sklearn.utils.validation import validate_data

from ._on_disk import LogOnDisk
from ._roles import ROLES, is_frame, without_roles
from ._schema import feature_plan, knows_names


class FrameOutput:
    """``set_output`` of transformers that by default return the kind of frame they receive.

    scikit-learn's own ``set_output`` expects transformers that return arrays.
    """

    def set_output(
        self, *, transform: Literal["default", "pandas", "polars"] | None = None
    ) -> Self:
        """Set the kind of frame that ``transform`` returns.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"}, default=None
            ``"default"``: the kind of frame that ``transform`` receives, or an array for an array.
            None leaves the setting unchanged.

        Returns
        -------
        self : object
        """
        if transform not in ("default", "pandas", "polars", None):
            raise ValueError(
                f"transform must be 'default', 'pandas', 'polars' or None, got {transform!r}."
            )
        if transform is not None:
            self._sklearn_output_config = {"transform": transform}
        return self

    def _output_kind(self):
        config = getattr(self, "_sklearn_output_config", {})
        return config.get("transform", get_config()["transform_output"])

    def _checked(self, X, not_features=(), *, reset):
        """X (as an array if it is no frame), with the number and names of features of ``fit``."""
        if isinstance(X, LogOnDisk):
            self._checked(pd.DataFrame(columns=X.feature_names), not_features, reset=reset)
            return X
        if not is_frame(X):
            return validate_data(
                self, X, reset=reset, accept_sparse=True, ensure_all_finite="allow-nan"
            )
        plan = feature_plan(X, {*ROLES, *not_features})
        if not reset and plan is not None and knows_names(self, plan.names):
            return X
        frame = nw.from_native(X, eager_only=True)
        head = without_roles(frame[:1, :], not_features)
        head = head.to_pandas() if frame.implementation.is_pyarrow() else head.to_native()
        validate_data(self, head, reset=reset, skip_check_array=True)
        return X

    def _transformed(self, X):
        """X transformed, by a method for datasets or one for rows."""
        if isinstance(X, LogOnDisk):
            return self._transform_dataset(X)
        return self._output(self._transform_rows(X))

    def _output(self, X):
        """X as the kind of frame that was set; X itself by default."""
        kind = self._output_kind()
        if kind == "default":
            return X
        if not is_frame(X):
            X = X.toarray() if issparse(X) else X
            X = pd.DataFrame(X, columns=self.get_feature_names_out(), copy=False)
        frame = nw.from_native(X, eager_only=True)
        return frame.to_pandas() if kind == "pandas" else frame.to_polars()
