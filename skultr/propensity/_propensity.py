"""The template of all propensity estimators: ``fit`` checks the log, ``predict`` the rows."""

from __future__ import annotations

from typing import Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from .._base._typing import AnyFrame, Column, Floats, Frame, Scope, Table
from .._log._cells import bias_values
from .._log._counted import CellCount, check_given
from .._log._dataset import ClickDataset
from .._log._documents import FeatureTable
from .._log._estimator import LearnsFromClicks, afresh, names_of
from .._log._reader import clicks_of
from .._log._roles import FIT_ROLES, feature_columns, is_frame, read_role

#: Smallest propensity that is predicted: rankers divide by propensities.
LEAST = 1e-6

#: Quantile of the normal distribution for intervals of 95 %.
QUANTILE = 1.959964


class BasePropensity(LearnsFromClicks, BaseEstimator):
    """Estimators of the probability that a row was examined, from a click log.

    Subclasses write ``_fit(X, y, sample_weight, roles)`` and ``_predict(X, values, shown,
    roles)``, which returns the propensities of the rows that were ``shown``. ``values`` holds the
    bias factor of every row.
    """

    #: True if more is read than clicks and impressions of documents by bias factor.
    _reads_rows = False

    #: True if ``predict`` reads more of a row than where and to whom it was shown.
    _predicts_from_features = False

    # Requested by default, as rankers do.
    __metadata_request__fit = dict.fromkeys((*FIT_ROLES, "sample_weight", "documents"), True)
    __metadata_request__predict = dict.fromkeys(("position", "bias", "user"), True)

    @afresh
    def fit(
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
        documents: Frame | None = None,
    ) -> Self:
        """Estimate examination from a click log.

        Parameters
        ----------
        X : DataFrame, array-like, sparse matrix of shape (n_rows, n_columns) or ClickDataset
            The click log, one row per shown document, with its roles as columns. Features are
            read only by estimators that use them, or if no column ``doc`` identifies the
            documents.

            If X is a frame of an engine (lazy Polars, DuckDB, Dask, PySpark), pass the name of the
            column of clicks as ``y``. The engine adds up clicks and impressions of documents and
            bias factors, and only these sums leave it. Of a log of more than two million rows,
            estimators of one curve read whole queries, drawn by a hash of their ids, until each
            standard error of examination is at most .005, and that of its logarithm at most 0.1
            (factors with less than a thousandth of the clicks ask for no further queries). A
            warning says which share was read; all engines draw the same queries if ids are text or
            whole numbers.

            A :class:`~skultr.ClickDataset` holds clicks and roles, and needs no other argument.
            Estimators that compare clicks and impressions of documents count them on disk; others
            read the rows into memory.
        y : array-like of shape (n_rows,)
            Click (0 or 1) of each row; number of clicks or click rate if a row counts several
            ``impressions``. Or the name of the column of X that holds them. If it names another
            outcome, as rankers take it, the column ``click`` is read.
        sample_weight : array-like of shape (n_rows,), default=None
            Multiplies ``impressions``, relative to its mean: a common factor changes nothing.
        qid, session, doc, position, bias, user, impressions : array-like of shape (n_rows,), \
                default=None
            Roles of the rows; a keyword wins over a column of the same name. A ``session`` is one
            result page, ``bias`` the code of the bias factor (by default the position).
        doc_scope : {"query", "global"}, default=None
            Whether an id in ``doc`` identifies a document within its query (the default), or the
            same document in all queries.
        documents : frame, default=None
            Features of the documents, by ``doc`` or by ``qid`` and ``doc``, if X holds roles
            only. Estimators that read no features ignore it.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            If a role or ``y`` holds invalid values, or the log determines no examination.
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
            "documents": documents,
        }
        X, y = self._read(X, y, sample_weight, roles, reset=True)
        if y is None:  # X counts cells in the engine that has the log
            self._fit_count(X, roles)
            return self
        # Without positions every row is examined.
        self._has_bias = self._read_bias(X, roles) is not None
        self._fit(X, y, sample_weight, roles)
        return self

    def predict(
        self,
        X: Table,
        *,
        position: Column | None = None,
        bias: Column | None = None,
        user: Column | None = None,
    ) -> Floats:
        """Examination probability of each row, relative to the best examined factor.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            A frame holds the bias factors in its column ``bias``, else in ``position``, and the
            users in ``user`` if each has a curve.
        position, bias, user : array-like of shape (n_rows,), default=None
            The same roles for arrays.

        Returns
        -------
        propensity : ndarray of shape (n_rows,)
            In (0, 1]: the best examined factor has 1, because clicks determine examination only
            up to a constant. Rows that were not shown have 0.

        Raises
        ------
        ValueError
            If the training log does not determine the examination of a position or bias factor.
        """
        check_is_fitted(self)
        if not (self._has_bias and is_frame(X)):  # a frame's features are not read
            X = self._checked(X, reset=False)
        if not self._has_bias:
            return np.ones(X.shape[0])
        factor = self._read_bias(X, {"position": position, "bias": bias})
        # NaN where a row is not shown.
        values = bias_values(X, factor, position)
        shown = ~np.isnan(values)
        propensity = np.zeros(len(values))
        propensity[shown] = self._predict(X, values, shown, {"user": user})
        return propensity

    def columns_read(self) -> set[str | int]:
        """Names of columns without a role that the estimator reads; rankers drop them."""
        return set()

    def columns_of_cells(self, names: list[str]) -> list[str] | None:
        """Columns that define the cells of a log, beside the document; None if more is
        read than clicks and impressions of cells."""
        return None if self._reads_rows else self._factor_columns(names)

    # What comes in ------------------------------------------------------------------------
    def _read_dataset(self, dataset, *, reset):
        """The cells of a log on disk, or all its rows, as a log in memory with click rates."""
        self._checked(pd.DataFrame(columns=dataset.feature_names), reset=reset)
        if self._reads_rows:
            return dataset.to_frame()
        return dataset.to_cells(self.columns_of_cells(dataset.roles))

    def _read_engine(self, X, y, sample_weight, roles, *, reset):
        """Cells with rates of a log in an engine, or a :class:`CellCount` and no rates."""
        roles.pop("documents", None)
        check_given(X, y, sample_weight, roles, type(self).__name__)
        names = names_of(X)
        self._click_column = y
        self._checked(pd.DataFrame(columns=names), reset=reset)
        return self._count(X, y, names)

    def _read_rows(self, X, y, sample_weight, roles, *, reset):
        """The log in memory and its clicks."""
        documents = roles.pop("documents", None)
        X, y, self._click_column = clicks_of(X, y, type(self).__name__, roles)
        if documents is not None and self._reads_rows:
            X = FeatureTable(documents).joined(X, roles["qid"], roles["doc"])
        return self._checked(X, reset=reset), y

    def _count(self, X, click, names):
        """See :meth:`_read_engine`; ``names`` are the columns of X."""
        return CellCount.of(X, click, self._factor_columns(names)).cells()

    def _factor_columns(self, names):
        """Columns that make the bias factors, among all columns of a log."""
        return ["bias" if "bias" in names else "position"]

    def _checked(self, X, *, reset):
        """X, with the number and names of its features recorded; those of a frame are not read."""
        if not is_frame(X):
            finite = True if self._refuses_missing else "allow-nan"
            return validate_data(
                self,
                X,
                accept_sparse="csr",
                dtype=np.float32,
                ensure_all_finite=finite,
                reset=reset,
            )
        # Columns that an estimator reads by name, and clicks, are no features.
        no_features = {*self.columns_read(), self._click_column}
        names = [name for name in feature_columns(X) if name not in no_features]
        # A log of roles alone has no features, which scikit-learn's check refuses.
        if reset and not names:
            self.n_features_in_ = 0
        elif names:
            validate_data(self, pd.DataFrame(columns=names), reset=reset, skip_check_array=True)
        return X

    def _read_bias(self, X, roles):
        """The bias factor of each row, NaN where it was not shown; None where X has none."""
        values = read_role(X, "bias", roles["bias"])
        if values is None:
            values = read_role(X, "position", roles["position"])
        return values

    def _read_users(self, X, roles, given, instead):
        """The role ``user`` of each row; without it an error that says what to set ``instead``."""
        users = read_role(X, "user", roles["user"])
        if users is None:
            raise ValueError(
                f"{given}, but X has no column 'user' and no user was passed: expected the user "
                f"of every row. Add the role, or set {instead}."
            )
        return users
