"""Transformers of role columns: what they check of a frame, and which kind they give back."""

import narwhals.stable.v2 as nw
import pandas as pd
from scipy.sparse import issparse
from sklearn import get_config
from sklearn.utils.validation import validate_data

from ._roles import ROLES, is_frame, without_columns

__all__ = ["FrameOutput"]


class FrameOutput:
    """``set_output`` of transformers that return the kind of frame they are given.

    scikit-learn's own would wrap arrays; by default a frame stays of its kind here.
    """

    def set_output(self, *, transform=None):
        """Set the kind of frame that comes out.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"}, default=None
            With ``"default"`` a frame stays of its kind, and an array an array. None changes
            nothing.

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
        """X, an array if it is no frame; its features have the number and names of ``fit``."""
        if not is_frame(X):
            return validate_data(
                self, X, reset=reset, accept_sparse=True, ensure_all_finite="allow-nan"
            )
        frame = nw.from_native(X, eager_only=True)
        head = without_columns(frame[:1, :], {*ROLES, *not_features})
        head = head.to_pandas() if frame.implementation.is_pyarrow() else head.to_native()
        validate_data(self, head, reset=reset, skip_check_array=True)
        return X

    def _output(self, X):
        """X as the kind of frame that was asked for; itself, where none was."""
        kind = self._output_kind()
        if kind == "default":
            return X
        if not is_frame(X):
            X = X.toarray() if issparse(X) else X
            X = pd.DataFrame(X, columns=self.get_feature_names_out(), copy=False)
        frame = nw.from_native(X, eager_only=True)
        return frame.to_pandas() if kind == "pandas" else frame.to_polars()
