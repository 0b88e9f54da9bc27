"""How rankers read the features of a log or of candidates: as in ``fit``, in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.utils.validation import validate_data

from .._log._estimator import LEFT_OUT, NotPickled
from .._log._offsets import find_offsets, take_off
from .._log._roles import (
    CHUNK,
    check_container,
    feature_columns,
    is_checked,
    is_frame,
    knows_names,
    places_of_fit,
    read_values,
    refuse_missing,
    without_column,
)

if TYPE_CHECKING:
    from .._log._roles import Takes


class ReadsFeatures:
    """Mixin of rankers that read features, which ``fit`` remembers as scikit-learn does."""

    #: True if a log must have features; False if documents are identified by their ids.
    _needs_features = True

    _feature_table = NotPickled("the features that were passed as documents=")

    @property
    def _takes(self) -> Takes:
        """What columns of features may hold; those that only tell documents apart, anything."""
        return "numbers" if self._needs_features else "anything"

    @property
    def _refuses_missing(self) -> str | None:
        """Why missing values are an error, if they are: a subclass must say that it takes them."""
        return f"{type(self).__name__} takes no missing values" if self._needs_features else None

    def _read_features(self, X, *, reset):
        """Features of a log or of documents, shape (n_rows, n_features), as in ``fit``."""
        X = self._without_clicks(X)
        if self._needs_no_features_of(X, reset):
            self.n_features_in_ = 0
            return np.empty((X.shape[0], 0), dtype=np.float32)
        if not reset and is_frame(X):
            # Rows to predict may only name documents, whose features fit has got.
            known = self._features_of_table(X)
            if known is not None:
                return known
        features, names = self._validated(X, reset)
        # Values that are large beside their range, such as times, lose their digits in float32.
        if reset:
            self._offsets = find_offsets(X, features, names)
        return take_off(self._offsets, X, features, names)

    def _without_clicks(self, X):
        """X without the column of clicks, which is no feature."""
        # A request is not searched where clicks had no name: that took a third of its time.
        if self._click_column is None or not is_frame(X):
            return X
        if self._click_column not in feature_columns(X):
            return X
        return without_column(X, self._click_column)

    def _needs_no_features_of(self, X, reset):
        """True if documents are identified by their ids alone."""
        if self._needs_features or not is_frame(X):
            return False
        return not (feature_columns(X) if reset else self.n_features_in_)

    def _features_of_table(self, X):
        """Features of documents that the frame ``documents=`` of ``fit`` holds; else None."""
        was_left_out = "_feature_table" in vars(self).get(LEFT_OUT, ())
        if was_left_out and not feature_columns(X):
            raise ValueError(
                "X has 0 feature columns, and this model came from a file or a worker, which "
                "leaves out the frame that fit got as documents=. Join the features of the "
                "documents to X."
            )
        table = vars(self).get("_feature_table")
        if table is None or not table.covers(X):
            return None
        return table.features[table.rows_of(X)]

    def _validated(self, X, reset):
        """Features in float32, as rows in memory, like those of fit; and names, if X has some."""
        if reset:
            self._feature_categories = {}
        if is_frame(X):
            return self._validated_frame(X, reset)
        if not reset and is_checked(self, X):
            return X, None
        check_container(X)
        return self._validated_by_sklearn(X, reset), None

    def _validated_frame(self, X, reset):
        """Features of a frame in the order of fit, and their names."""
        # Codes of categories are those of fit; others count as missing.
        known = None if reset else self._feature_categories
        features, names, categories = read_values(X, self._takes, known, self._refuses_missing)
        if reset:
            self._feature_categories = categories
        elif len(features):
            # What was read is checked; scikit-learn would refuse columns in another order.
            if knows_names(self, names):
                return features, names
            places = places_of_fit(self, names)
            if places is not None:
                return features[:, places], [names[place] for place in places]
        frame = pd.DataFrame(features, columns=names, copy=False)
        return self._validated_by_sklearn(frame, reset), names

    def _validated_by_sklearn(self, features, reset):
        """Features as scikit-learn checks them, which also sets what it remembers of them."""
        features = validate_data(
            self,
            features,
            accept_sparse="csr",
            dtype=np.float32,
            order="C",  # the last bit of a matrix product depends on the memory layout
            ensure_all_finite=True if self._refuses_missing else "allow-nan",
            reset=reset,
        )
        return features.toarray() if sparse.issparse(features) else features

    def _names_of_features(self):
        """Names of the features of ``fit``, or their numbers where they have none."""
        return getattr(self, "feature_names_in_", range(self.n_features_in_))

    def _places_of_categories(self):
        """Numbers of the features that hold categories."""
        names = enumerate(self._names_of_features())
        return tuple(place for place, name in names if name in self._feature_categories)

    def _has_other_features(self, X):
        """True if a log has other features than that of ``fit``, as before another transformer."""
        if hasattr(X, "feature_names"):  # a ClickDataset
            names = X.feature_names
        elif is_frame(X):
            names = [name for name in feature_columns(X) if name != self._click_column]
        else:
            return np.ndim(X) == 2 and np.shape(X)[1] != self.n_features_in_
        return places_of_fit(self, names) is None

    def _refuse_missing_in(self, features, names):
        """An error if features have missing values; in chunks, because they may be on disk."""
        for start in range(0, len(features), CHUNK):
            chunk = features[start : start + CHUNK]
            refuse_missing(chunk, names, self._refuses_missing)
