"""The template of all rankers: ``fit`` reads the log, folds it and calls ``_fit``."""

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from .._log._clicklog import sort_into_lists
from .._log._estimator import FitTask, afresh
from .._log._reader import read, take_clicks, warn_about_names
from .._log._roles import (
    FIT_ROLES,
    count_rows,
    feature_columns,
    is_frame,
    read_features,
    read_role,
    role_columns,
    without_column,
)
from .._log._segments import encode, rank_in_segment
from .._sklearn import check_sample_weight
from ..exceptions import ClickDataWarning, MissingRoleWarning, warn_user
from ..metrics._ranking import ndcg_score

__all__ = ["BaseRanker", "fit_to_log"]


class BaseRanker(CallbackSupportMixin, BaseEstimator):
    """Rankers of documents, learned from a click log.

    Subclasses write ``_fit(log, task)`` and ``_score(features)``; those that debias by
    propensities find them in ``_fit_propensity``.
    """

    #: Whether lists served to different users must stay apart.
    _reads_users = False
    #: Whether candidates that were never shown change the model; by default they may not.
    _learns_from_never_shown = False

    #: Name of the column of clicks, where ``fit`` took it from X: it is no feature.
    _click_column = None

    # Requested by default: GridSearchCV routes the roles of arrays with no set_fit_request.
    __metadata_request__fit = dict.fromkeys((*FIT_ROLES, "sample_weight"), True)
    __metadata_request__score = {"qid": True}

    @with_callbacks
    @afresh
    def fit(
        self,
        X,
        y,
        sample_weight=None,
        *,
        qid=None,
        session=None,
        doc=None,
        position=None,
        bias=None,
        user=None,
        propensity=None,
        impressions=None,
        doc_scope=None,
    ):
        """Learn to rank from a click log.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            The click log, one row a (shown) document. In a frame (pandas, Polars, PyArrow) the
            columns with a role's name have that role and all others are features; with an array,
            all columns are features and the roles come as keywords.
        y : array-like of shape (n_rows,)
            Click (0 or 1), or click rate where a row stands for several impressions. Values
            above 1 are read as graded relevance and divided by their maximum. Or the name of the
            column of X that holds them, which is then no feature.
        sample_weight : array-like of shape (n_rows,), default=None
            Multiplies ``impressions``.
        qid, session, doc, position, bias, user, propensity, impressions : \
                array-like of shape (n_rows,), default=None
            Roles of the rows; a keyword wins over a column of the same name.
        doc_scope : {"query", "global"}, default=None
            Whether an id in ``doc`` names another document under each query (the default), or the
            same one.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            If a role or ``y`` holds what it cannot (see the user guide).
        """
        self._validate_params()
        roles = {
            "qid": qid,
            "session": session,
            "doc": doc,
            "position": position,
            "bias": bias,
            "user": user,
            "propensity": propensity,
            "impressions": impressions,
            "doc_scope": doc_scope,
        }
        X, y, self._click_column = take_clicks(X, y, type(self).__name__)
        log = self._read_log(X, y, sample_weight, roles)
        context = self._init_callback_context(max_subtasks=self._n_subtasks())
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        self._fit(log, FitTask(context, X, y))
        context.call_on_fit_task_end(
            estimator=self, X=X, y=y, reconstruction_attributes=lambda: {}
        )
        return self

    def predict(self, X):
        """Relevance scores: higher is more relevant, comparable within a query.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            Candidates. A frame needs the features only; role columns are ignored.

        Returns
        -------
        scores : ndarray of shape (n_rows,)
        """
        check_is_fitted(self)
        return self._score(self._read_features(X, reset=False))

    def rank(self, X, *, qid=None):
        """Position of each row in its query, from 1, by falling score; ties keep row order.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
        qid : array-like of shape (n_rows,), default=None
            Query ids; by default the column ``qid`` of X.

        Returns
        -------
        ranks : ndarray of shape (n_rows,), int
        """
        check_is_fitted(self)
        qid = self._query_ids(X, qid, "rank")
        return rank_in_segment(encode(qid)[0], self._scores_within(X, qid))

    def score(self, X, y, sample_weight=None, *, qid=None):
        """Mean nDCG@10 over queries of ``predict(X)`` against graded relevance.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
        y : array-like of shape (n_rows,)
            Graded relevance, at least 0. Clicks are no substitute: they carry the bias.
        sample_weight : array-like of shape (n_rows,), default=None
            A query weighs as much as the mean weight of its rows.
        qid : array-like of shape (n_rows,), default=None
            Query ids; by default the column ``qid`` of X. Without either, all rows are taken as
            one query, with a warning.

        Returns
        -------
        score : float
            Queries without a relevant document are skipped.
        """
        check_is_fitted(self)
        _warn_about_clicks_as_relevance(X, y)
        qid = self._query_ids(X, qid, "score")
        scores = self._scores_within(X, qid)
        if sample_weight is None:
            return float(ndcg_score(y, scores, qid=qid, k=10))
        codes = encode(qid)[0]
        weights = np.bincount(codes, check_sample_weight(sample_weight, scores))
        weights /= np.bincount(codes)
        value = ndcg_score(y, scores, qid=qid, k=10, per_query=True)["ndcg@10"].to_numpy()
        counted = ~np.isnan(value) & (weights > 0)
        if not counted.any():
            warn_user(
                "score is undefined: no query of positive weight has a relevant document. Check "
                "the annotation and the weights.",
                UndefinedMetricWarning,
            )
            return np.nan
        return float(np.average(value[counted], weights=weights[counted]))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.positive_only = True
        tags.input_tags.sparse = True
        return tags

    @property
    def _needs_features(self):
        """Whether a log must have features; False where documents are known by their names."""
        return True

    def _n_subtasks(self):
        """Steps of ``_fit`` that are reported to callbacks; None where not known."""
        return 0

    def _fit_propensity(self, X, y, sample_weight, roles):
        """The roles, with the role ``propensity`` where it must be estimated; a hook."""
        return roles

    def _before_folding(self, log):
        """The log of single sessions as the ranker wants it; a hook for subclasses."""
        return log

    def _fold(self, log):
        """The log with equal lists merged; a hook for models that count rows themselves."""
        return log.fold(self._reads_users)

    def _scores_within(self, X, qid):
        """Scores for ``rank`` and ``score``; a hook for rankers that look at the whole query."""
        return self.predict(X)

    def _read_log(self, X, y, sample_weight, roles):
        """The folded log. A method of its own, so that the rows' features do not outlive it."""
        features = self._read_features(X, reset=True)
        if not is_frame(X):
            X = features  # an array, whatever came
        if not self.n_features_in_ and read_role(X, "doc", roles["doc"]) is None:
            raise ValueError(
                "X has 0 feature columns and no column 'doc', and no doc was passed: nothing "
                "tells one document from another. Name the documents in a column 'doc'."
            )
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        warn_about_names(X, names, roles)
        roles = self._fit_propensity(X, y, sample_weight, roles)
        rows = read(X, y, sample_weight, roles)
        rows.warn_about_features(features, names)
        log = self._before_folding(sort_into_lists(rows, features))
        return self._fold(log)

    def _read_features(self, X, *, reset):
        if is_frame(X) and self._click_column in feature_columns(X):
            X = without_column(X, self._click_column)
        bare = not self._needs_features and is_frame(X) and not feature_columns(X)
        if bare and (reset or not self.n_features_in_):
            if reset:
                self.n_features_in_ = 0
            return np.empty((X.shape[0], 0), dtype=np.float32)
        features = validate_data(
            self,
            read_features(X),
            accept_sparse="csr",
            dtype=np.float32,
            order="C",  # one layout, or matrix products differ in the last bit between frames
            reset=reset,
        )
        return features.toarray() if sparse.issparse(features) else features

    def _known_query_ids(self, X, qid, method):
        """Query ids for rankers that look at the whole query; a single row needs none."""
        if qid is None and read_role(X, "qid") is None and count_rows(X) == 1:
            return np.zeros(1, dtype=int)
        return self._query_ids(X, qid, method)

    def _query_ids(self, X, qid, method):
        qid = read_role(X, "qid", qid)
        if qid is None:
            warn_user(
                f"{type(self).__name__}.{method} got no query ids: all rows are taken as ONE "
                "query, so that the result compares documents across queries. Pass a frame with "
                "a column 'qid', or qid=.",
                MissingRoleWarning,
            )
            qid = np.zeros(count_rows(X), dtype=int)
        return qid


def fit_to_log(ranker, log):
    """Fit a ranker to a log that was read already, with its codes for ids."""
    return ranker.fit(
        log.features[log.doc],
        log.click_rate,
        qid=log.query,
        session=log.list_,
        doc=log.doc,
        position=np.where(log.shown, log.position, np.nan),
        bias=np.where(log.shown, log.bias_values[log.bias], np.nan),
        user=log.user,
        propensity=log.propensity,
        impressions=log.weight,
        doc_scope="global",  # a code is one document
    )


def _warn_about_clicks_as_relevance(X, y):
    """A search without ``scoring=`` lands here with clicks for ``y``, and would pick by them."""
    if is_frame(X) and "position" in role_columns(X) and np.asarray(y).max(initial=0) <= 1:
        warn_user(
            "score got a click log (X has positions) and y within [0, 1], which looks like "
            "clicks: nDCG against clicks rewards the old ranking. In a search, pass "
            "scoring=RankingScorer(); for binary annotation, drop the column 'position' first.",
            ClickDataWarning,
        )
