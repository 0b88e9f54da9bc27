"""Base class of all rankers: ``fit`` reads the log, merges equal lists and calls ``_fit``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from .._base._callbacks import CallbackSupportMixin, with_callbacks
from .._base._sklearn import check_sample_weight
from .._base._typing import AnyFrame, ArrayLike, Column, Floats, Frame, Ints, Scope, Table
from .._log._clicklog import sort_into_lists
from .._log._counted import CellCount, check_given
from .._log._dataset import ClickDataset
from .._log._documents import FeatureTable
from .._log._estimator import (
    FitTask,
    LearnsFromClicks,
    afresh,
    forget,
    unless_it_fails,
)
from .._log._faults import LONGEST_PAGE, check
from .._log._joined_logs import AddsLogs, Kept, counts_of, log_of_count, with_bias_values
from .._log._lookalikes import sample_features
from .._log._offsets import NO_OFFSETS
from .._log._read_log import ReadLog, was_read
from .._log._reader import read, take_target, warn_about_names
from .._log._roles import (
    FIT_ROLES,
    count_rows,
    is_frame,
    log_and_clicks,
    read_column,
    read_role,
    refuse_dataset,
    role_columns,
    without_column,
)
from .._log._segments import encode, pair_codes, rank_in_segment
from .._log._units import tell_units
from ..exceptions import ClickDataWarning, MissingRoleWarning, warn_user
from ..metrics._ranking import as_numbers, ndcg_score
from ..propensity._source import RowsOfDataset, RowsOfLog, reads_pages
from ._reads_features import ReadsFeatures
from ._thresholds import FEW_CLICKS, LEAST_QUERIES

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog


#: Roles of a log that is read.
_ROLES = (*FIT_ROLES, "production", "doc_scope")
#: Attributes that reading a log sets, and reading another one reads.
_OF_READING = (
    "n_features_in_",
    "feature_names_in_",
    "_offsets",
    "_click_column",
    "_feature_categories",
)


def _learns_more(ranker):
    if ranker._learns_more_by is None:
        raise AttributeError(
            f"{type(ranker).__name__} has no partial_fit with these parameters: fit it to the "
            "logs of all days together, such as a ClickDataset."
        )
    return True


class BaseRanker(ReadsFeatures, AddsLogs, LearnsFromClicks, CallbackSupportMixin, BaseEstimator):
    """Base class of rankers that learn from a click log.

    Subclasses write ``_fit(log, task)`` and ``_score(features)``. Those that need propensities
    estimate them in ``_propensities``.
    """

    #: True if candidates that were never shown change the model; otherwise they must not.
    _learns_from_never_shown = False

    #: True if the score of the ranker that served is read.
    _reads_production = False
    #: True if clicks are corrected for what users examine.
    _corrects = False

    #: True if lists with clicks on different rows must not be merged.
    _reads_clicks = False

    #: True if examination is learned beside relevance, from ``_click_log`` if there is one. A
    #: later log must not have other bias factors.
    _learns_examination = False
    #: True if a network is trained on clicks before it is trained on another outcome.
    _trains_on_clicks = False

    #: What ``partial_fit`` continues; None if there is no such method.
    _learns_more_by: Literal["network", "counts"] | None = None
    #: Why ``y`` must be the clicks; None if it may be another outcome.
    _refuses_outcomes: str | None = None
    #: The log for early stopping, while ``fit`` runs.
    _validation = None
    #: The judgments beside the log, while ``fit`` runs.
    _judged = None
    #: True if a member is trained on judgments.
    _takes_judgments = False
    #: The rows of the log with clicks where ``y`` is another outcome, while ``fit`` runs.
    _click_log = None

    _parameter_constraints = {}

    # Requested by default, so that GridSearchCV routes roles without set_fit_request.
    __metadata_request__fit = dict.fromkeys(
        (*FIT_ROLES, "production", "sample_weight", "documents", "validation", "judgments"), True
    )
    __metadata_request__partial_fit = dict.fromkeys(
        (*FIT_ROLES, "production", "sample_weight", "documents"), True
    )
    __metadata_request__score = {"qid": True}

    @with_callbacks
    @afresh
    def fit(
        self,
        X: Table | AnyFrame | ClickDataset,
        y: Column | str | Mapping[str, float] | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        qid: Column | None = None,
        session: Column | None = None,
        doc: Column | None = None,
        position: Column | None = None,
        bias: Column | None = None,
        user: Column | None = None,
        propensity: Column | None = None,
        impressions: Column | None = None,
        production: Column | None = None,
        doc_scope: Scope | None = None,
        documents: Frame | None = None,
        validation: tuple[Table, Column | str] | Frame | ClickDataset | None = None,
        judgments: Frame | None = None,
    ) -> Self:
        """Fit the ranker to a click log.

        Parameters
        ----------
        X : DataFrame, array-like, sparse matrix of shape (n_rows, n_columns) or ClickDataset
            The click log, one row per (shown) document. In a frame (pandas, Polars, PyArrow)
            columns that are named after a role have that role, and all others are features, which
            may be missing where networks scale and for trees. In an array all columns are
            features, and roles are passed as keywords. A :class:`~skultr.ClickDataset` holds
            clicks and roles, and needs no other argument. Rankers with ``relevance="embedding"``,
            and click models of one number per document without ``solver="gradient"``, also take
            a frame of an engine (lazy Polars, DuckDB, Dask, PySpark), with the name of its column
            of clicks as ``y``: the engine adds up clicks and impressions of documents and bias
            factors, and only these leave it.
        y : array-like of shape (n_rows,), str or dict of str to float
            Click (0 or 1); where rows have several ``impressions``, the number of clicks (whole
            numbers) or the click rate (fractions). Without ``impressions``, values above 1 are
            read as graded relevance and divided by their maximum. A string names the column of X
            that holds them, which is then not a feature. If X has other values in a column
            ``click``, ``y`` is another outcome: numbers of at least 0, such as those of
            ``outcome_purchase``, or a weighted sum: ``{"click": 1.0, "outcome_purchase": 20.0}``.
            Relevance is then learned from ``y``, divided by its maximum, and examination from
            ``click``.
        sample_weight : array-like of shape (n_rows,), default=None
            Multiplies ``impressions``, relative to its mean: a common factor changes nothing.
        qid, session, doc, position, bias, user, propensity, impressions, production : \
                array-like of shape (n_rows,), default=None
            Roles of the rows; a keyword has priority over a column of the same name. A
            ``session`` is one result page, ``bias`` the code of the bias factor (by default the
            position), ``propensity`` the probability that the row is examined, ``production``
            the score of the production ranker, which :class:`EnsembleRanker` reads, and
            :class:`DistilledRanker` for such a teacher.
        doc_scope : {"query", "global"}, default=None
            With "query" (the default), an id in ``doc`` identifies a document within its query;
            with "global", it identifies the same document in all queries.
        documents : frame, default=None
            Features of the documents, one row each by ``doc``, or by ``qid`` and ``doc``; X then
            holds roles only, and its other columns are not read. The features are never repeated
            by impression. Rows to predict may leave them out as well, as long as they name
            documents of this frame: it stays in memory, and pickles leave it out.
        validation : (X, y), frame or ClickDataset, default=None
            A log for early stopping, such as that of a later day. Its clicks stop the training
            (also with ``early_stopping=False``), and nothing is learned from them. Roles are
            columns of X, and ``y`` may be the name of one; of a frame alone it is the column
            ``click``. Only for rankers that train a network on lists of clicks. A Pipeline
            transforms it only if ``transform_input=["validation"]``, which takes a frame or a
            dataset.
        judgments : frame, default=None
            Only for :class:`EnsembleRanker`, which learns a member from them: ``relevance`` (from
            0; a missing value was not judged) by ``qid`` and ``doc``, of queries of the log or of
            others, such as :func:`~skultr.serving.read_judgments` returns. Features come from the
            rows of X or from ``documents`` with the same ids (numbers and their text are the
            same), or from the table itself if it has all of them as columns. The column
            ``relevance`` of X is never read.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            If a role or ``y`` has invalid values (see the user guide); if roles became features on
            the way (a bare transformer of scikit-learn in a pipeline), or more than 2,000 rows
            without query ids are one page; or if ``validation`` has other features, or a bias
            factor whose examination is learned and that the log does not have.
        TypeError
            If the ranker has no early stopping to which ``validation`` could be passed, or learns
            from no ``judgments``.
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
            "production": production,
            "doc_scope": doc_scope,
            "documents": documents,
        }
        # 1. Read: the log as codes and numbers, with equal lists merged.
        log, X, y = self._read(X, y, sample_weight, roles, reset=True)
        self._check_features(log, X)
        self._tell_limits(log, X)
        if validation is not None:
            self._validation = self._read_validation(validation, log)
        if judgments is not None:
            self._judged = self._read_judgments(judgments, X, log, roles)
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        # 2. Learn: propensities first, where the ranker needs them.
        log = self._with_examination(log)
        if self._validation is not None:
            self._validation = self._with_propensities(self._validation)
        self._fit(log, FitTask(context, X, y))
        if self._learns_more_by == "counts" and self._click_log is None:
            # partial_fit adds later logs to these counts.
            self._kept = Kept(counts_of(log), is_pickled=False)
        # What only the fit needs would keep the logs in memory.
        for name in ("_validation", "_judged", "_click_log"):
            vars(self).pop(name, None)
        # 3. Check what was learned.
        if not was_read(X) or X.checks:
            self._check_against(log)
        self._check_order(log, X)
        context.call_on_fit_task_end(estimator=self, X=X, y=y, reconstruction_attributes=dict)
        return self

    @available_if(_learns_more)
    @unless_it_fails
    @with_callbacks
    def partial_fit(
        self,
        X: Table | AnyFrame | ClickDataset,
        y: Column | str | Mapping[str, float] | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        qid: Column | None = None,
        session: Column | None = None,
        doc: Column | None = None,
        position: Column | None = None,
        bias: Column | None = None,
        user: Column | None = None,
        propensity: Column | None = None,
        impressions: Column | None = None,
        production: Column | None = None,
        doc_scope: Scope | None = None,
        documents: Frame | None = None,
    ) -> Self:
        """Learn from a further click log, such as that of a new day.

        A network continues from its weights and its learned examination, with a new optimizer,
        for ``max_epochs`` epochs. The scaling of the features, propensities, the chosen
        correction, and examination from documents that moved remain those of the first log.
        Attributes that describe a log describe the new one, but ``examination_`` counts
        impressions and clicks of all logs where the ranker learns examination.

        A table of counts (a click model by counting or EM, ``relevance="embedding"``) becomes what
        ``fit`` would give for the lists of all logs together.

        Parameters
        ----------
        X, y, sample_weight, qid, session, doc, position, bias, user, propensity, impressions, \
                production, doc_scope, documents
            As in :meth:`fit`, with the same features (rows to predict may then leave out those of
            the last ``documents``). The lists of X are other lists than those of earlier logs,
            whatever their sessions are called.

        Returns
        -------
        self : object
            The first call is :meth:`fit`. After an error the ranker is what it was before.

        Raises
        ------
        ValueError
            If a role or ``y`` has invalid values; if the features are not those of the first
            log; if a network has no parameter for a bias factor, or was read by
            :func:`~skultr.serving.load_model`; or if a table was fitted by :meth:`fit` and then
            pickled, which leaves out the counts: start with ``partial_fit`` then.
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
            "production": production,
            "doc_scope": doc_scope,
            "documents": documents,
        }
        # A fitted ranker knows its features.
        is_first = "n_features_in_" not in vars(self)
        if not is_first:
            self._refuse_without_net()
        # The first log decides about names and offsets of features, as fit does.
        log, X, y = self._read(X, y, sample_weight, roles, reset=is_first)
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        task = FitTask(context, X, y)
        if self._learns_more_by == "counts":
            self._fit_counts(log, task, is_first)
        elif is_first:
            log = self._with_examination(log)
            self._fit(log, task)
            self._check_against(log)
        else:
            if self._learns_examination:
                # The network has one parameter for each bias factor of the first log.
                log = with_bias_values(log, self.examination_.index.to_numpy())
            self._train_on_more(self._with_examination(log), task)
        vars(self).pop("_click_log", None)
        context.call_on_fit_task_end(estimator=self, X=X, y=y, reconstruction_attributes=dict)
        return self

    def _refuse_without_net(self):
        """An error if a network has left behind what a training continues from."""
        # The module is what a pickle holds of the net.
        has_net = "net_" in vars(self) or "_module" in vars(self)
        if self._learns_more_by == "network" and not has_net:
            raise ValueError(
                f"This {type(self).__name__} was loaded by load_model, which keeps what predicts, "
                "and not what partial_fit continues. Pickle a ranker that is to learn more, or "
                "fit a clone of this one to the logs of all days together."
            )

    def predict(self, X: Table) -> Floats:
        """Relevance scores, comparable within one query; higher is more relevant.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            Candidates. A frame needs the features only; role columns are ignored.

        Returns
        -------
        scores : ndarray of shape (n_rows,)
        """
        check_is_fitted(self)
        return self._scores_of_features(self._read_features(X, reset=False))

    def _scores_of_features(self, features):
        """What ``_score`` returns, which must be one number per row."""
        scores = self._score(features)
        expected = (len(features),)
        # A wrong shape would be broadcast later, without an error.
        if np.shape(scores) != expected:
            raise ValueError(
                f"{type(self).__name__}._score returned the shape {np.shape(scores)}; expected "
                f"({len(features)},): one score per row of its features."
            )
        return scores

    def rank(self, X: Table, *, qid: Column | None = None) -> Ints:
        """Rank of each row in its query, from 1 for the best; ties keep the row order.

        A Pipeline has no such method, and its ranker ranks what the other steps make of X:
        ``pipeline[-1].rank(pipeline[:-1].transform(X))``.

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
        # Ranks are within queries, and ids may be of any type: codes of them from here on.
        query_ids = self._known_query_ids(X, qid, "rank")
        query, _ = encode(query_ids, "The role 'qid'")
        return rank_in_segment(query, self._scores_within(X, query_ids))

    def score(
        self,
        X: Table,
        y: Column | str | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        qid: Column | None = None,
    ) -> float:
        """Mean nDCG@10 per query of ``predict(X)``, given graded relevance.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
        y : array-like of shape (n_rows,) or str
            Graded relevance, at least 0, or its column of X. Clicks are no substitute, because
            they are biased.
        sample_weight : array-like of shape (n_rows,), default=None
            A query weighs as much as the mean weight of its rows.
        qid : array-like of shape (n_rows,), default=None
            Query ids; by default the column ``qid`` of X. Without either, all rows count as one
            query, with a warning; of more than 2,000 rows this is an error.

        Returns
        -------
        score : float
            Mean over the queries that have a relevant document.
        """
        check_is_fitted(self)
        refuse_dataset(
            X,
            "score needs graded relevance, and a ClickDataset holds clicks. In a search, pass a "
            "scorer of clicks: scoring=ClickLikelihoodScorer(), IPSScorer() or, for models of "
            "clicks, PerplexityScorer(), of skultr.metrics. With annotation, pass a frame.",
        )
        if isinstance(y, str):
            grades = read_column(X, y)
            X = without_column(X, y)
        else:
            grades = y
        # Clicks would reward the order that was shown.
        if grades is None:
            raise ValueError(
                "score needs graded relevance, and y is None: pass y, one grade per row, or the "
                "name of the column of X that holds it. Without annotation, use a scorer of "
                "clicks, such as ClickLikelihoodScorer() of skultr.metrics."
            )
        grades = column_or_1d(as_numbers(grades, "y"))
        _warn_if_grades_may_be_clicks(X, grades)
        qid = self._known_query_ids(X, qid, "score")
        scores = self._scores_within(X, qid)
        if sample_weight is None:
            return float(ndcg_score(grades, scores, qid=qid, k=10))
        return _weighted_ndcg(grades, scores, qid, sample_weight)

    def _fit(self, log: ClickLog, task: FitTask) -> None:
        """Learn from the log."""
        raise NotImplementedError(f"{type(self).__name__} has no _fit(log, task). Write it.")

    def _score(self, features: NDArray[np.float32]) -> Floats:
        """One score per row of the features."""
        raise NotImplementedError(f"{type(self).__name__} has no _score(features). Write it.")

    @property
    def _validates(self) -> bool:
        """True if the training can be stopped by the clicks of a log for validation."""
        return self._learns_more_by == "network"

    def _propensities(self, rows: RowsOfLog | RowsOfDataset, *, fit: bool) -> Floats | None:
        """Propensity of each row of the first log (``fit``) or of a further one; None without.

        A hook for subclasses that need the role ``propensity``.
        """

    def _with_examination(self, log: ClickLog) -> ClickLog:
        """The log to learn from with the propensities that the ranker needs.

        A hook for subclasses that learn them from its clicks.
        """
        return log

    def _with_propensities(self, log: ClickLog) -> ClickLog:
        """Another log with the propensities that are known from the first; a hook as well."""
        return log

    def _check_features(self, log: ClickLog, X: Any) -> None:
        """An error if no feature differs between documents, but in the part of a member."""
        if not self._needs_features or was_read(X):
            return
        # A single row differs from no other.
        if log.n_rows > 1:
            tell_units("documents", log.features.T, self._names_of_features())

    def _tell_limits(self, log: ClickLog, X: Any) -> None:
        """Warn if a correction of clicks may lose more than it wins, and say what weighs it."""
        if was_read(X) or not self._corrects:
            return
        name = type(self).__name__
        if not self._reads_production and _has_production(X):
            warn_user(
                f"The log has the score of the production ranker, which {name} does not read: "
                "nothing weighs its correction against what was served. EnsembleRanker weighs. To "
                f"fit {name} alone, drop the column: X.drop(columns='production').",
                ClickDataWarning,
            )
        _warn_of_few_clicks(self._click_log or log, name)

    def _check_order(self, log: ClickLog, X: Any) -> None:
        """Warn if what was fitted gives all documents of nearly all queries one score."""
        # Without clicks all scores are equal, which was said when the log was read.
        if was_read(X) or not self._scores_rows or not log.clicks.any():
            return
        # Rows of a log that are scored to see whether a ranker orders documents at all: enough to
        # meet many queries, and few beside a training. All are of whole queries but for the last.
        rows = slice(20_000)
        # A document that several pages showed is scored once for its query.
        codes = pair_codes(log.query[rows], log.version[rows], log.n_versions)
        query, version = np.divmod(np.unique(codes), log.n_versions)
        scores = self._scores_of_features(np.asarray(log.features[version]))
        tell_units("fitted", scores, query, type(self).__name__)

    @property
    def _scores_rows(self):
        """True if predictions are what the ``_score`` of a subclass gives for features alone."""
        own = type(self)
        if own._score is BaseRanker._score:
            return False
        predicts_by_score = own.predict is BaseRanker.predict
        return predicts_by_score and own._scores_within is BaseRanker._scores_within

    def _check_against(self, log: ClickLog) -> None:
        """Warn if the log contradicts what was fitted; a hook for subclasses."""

    def _fold(self, log: ClickLog) -> ClickLog:
        """The log with equal lists merged; a hook for models that merge rows themselves."""
        return log.fold(self._reads_users, patterns=self._reads_clicks)

    def _fit_counts(self, log, task, is_first):
        """Fit to the lists of this log and of the earlier ones."""
        if self._click_log is not None:
            raise ValueError(
                "y is another outcome than the click, and a table adds up clicks. Call fit, with "
                "the logs of all days together."
            )
        if not is_first:
            log = self._joined(counts_of(log))
            # As before the first fit, but for how logs are read.
            forget(self, keep=_OF_READING)
            log = self._fold(log)
        self._fit(log, task)
        # Merged by the rule of all rankers: the next log may need rows that a subclass merged.
        self._kept = Kept(counts_of(BaseRanker._fold(self, log)), is_pickled=True)

    def _scores_within(self, X: Table, qid: NDArray[Any]) -> Floats:
        """Scores for ``rank`` and ``score``; a hook for scores that depend on the whole query."""
        return self.predict(X)

    @property
    def _reads_whole_queries(self) -> bool:
        """True if a score depends on the other documents of the query."""
        return type(self)._scores_within is not BaseRanker._scores_within

    def _read_engine(self, X, y, sample_weight, roles, *, reset):
        """The log, and its cells in memory."""
        if self._learns_more_by != "counts":
            is_frame(X)  # raises the error
        check_given(X, y, sample_weight, roles, type(self).__name__)
        # Counted where the data are: a cell per list and row, with means of what is no count.
        means = ["production"] if self._reads_production else []
        count = CellCount.of(X, y, ["position", "bias"], mean=means)

        def read_cells(cells, rate):
            return self._read_log(cells, rate, None, roles, reset=reset)

        return log_of_count(count, read_cells)

    def _read_rows(self, X, y, sample_weight, roles, *, reset):
        """The log, and X and y without names."""
        X, y, column, clicks, _ = take_target(X, y, type(self).__name__, roles)
        if column or reset:
            self._click_column = column or None
        if clicks is not None and self._refuses_outcomes:
            raise ValueError(
                f"y is another outcome than the click, and {type(self).__name__} "
                f"{self._refuses_outcomes}. Pass y='click', or learn from the outcome with "
                "another ranker, such as IPSRanker, DLARanker or LambdaMARTRanker."
            )
        log = self._read_log(X, y, sample_weight, roles, reset=reset, clicks=clicks)
        return log, X, y

    def _read_validation(self, validation, log):
        """The log for early stopping, with the bias factors of the training log."""
        if not self._validates:
            raise TypeError(
                f"{type(self).__name__} takes no validation with these parameters: only networks "
                "that are trained on lists of clicks stop by its clicks."
            )
        X, y = log_and_clicks(validation, "validation")
        clicks = self._click_log
        if clicks is not None and self._trains_on_clicks:
            raise TypeError(
                f"y is another outcome than the click, for which {type(self).__name__} takes no "
                "validation: it trains on clicks first, then on the outcome. Leave it out."
            )
        try:
            found, _, _ = self._read(X, y, None, dict.fromkeys(_ROLES), reset=False)
        except ValueError as error:
            remedy = ""
            if self._has_other_features(X):
                remedy = (
                    " A Pipeline transforms it only if it is a frame with the column 'click', "
                    "and transform_input=['validation']."
                )
            error.args = (f"validation cannot be read: {error}{remedy}",)
            raise
        # Reading the validation log has replaced the clicks of the training log.
        self._click_log = clicks
        if not found.clicks.any():
            raise ValueError(
                "validation has no clicks; expected a log whose clicks can be compared."
            )
        if self._learns_examination:
            return with_bias_values(found, log.bias_values)
        return found

    def _read_judgments(self, judgments, X, log, roles):
        """The judgments with features; a hook for the ranker that learns from them."""
        raise TypeError(
            f"{type(self).__name__} takes no judgments: it learns from clicks alone. "
            "EnsembleRanker trains a member on them, which held-out clicks and judgments weigh."
        )

    def _read_log(self, X, y, sample_weight, roles, *, reset=True, clicks=None):
        """The log with equal lists merged; on return the features of the rows are freed."""
        # Features: of the rows, or of the documents of a table that was passed beside X.
        table = self._table_of(X, roles.get("documents"))
        given_features = X if table is None else table.frame
        features = self._read_features(given_features, reset=reset)
        is_copy = table is None and _holds_a_copy(features, X)
        if is_copy:
            features.flags.writeable = True  # pandas hands out arrays that are read-only
        if table is not None:
            self._feature_table = table
            table.features = features
        if not is_frame(X):
            X = features  # an array, also for lists and sparse matrices
        self._check_columns(X, roles, given_features, table)

        # Rows: clicks and roles as numbers.
        column = y if clicks is None else clicks
        rows = [self._coded_rows(X, column, sample_weight, roles, reset=reset)]
        if table is None:
            rows[0].warn_about_features(features, self._names_of_features())
        outcome = None if clicks is None else y
        return self._lists_of(rows, features, table, outcome, is_copy)

    def _lists_of(self, rows, features, table, outcome, is_copy):
        """The log of one element, ``rows``, which is taken out; its clicks become a log of their
        own if another ``outcome`` is to be learned."""
        settings = {"table": table, "candidates": self._learns_from_never_shown}
        clicked = None
        if outcome is not None:
            if self._learns_examination:
                clicked = self._merged(sort_into_lists(rows[0], features, **settings))
            rows.append(rows.pop().of_outcome(outcome))

        # Nothing else holds the rows, whose codes take more memory than the log.
        log = self._merged(sort_into_lists(rows.pop(), features, reuse=is_copy, **settings))
        log = replace(log, categorical=self._places_of_categories())
        if clicked is not None:
            # One copy of the features serves both logs.
            self._click_log = replace(clicked, features=log.features, categorical=log.categorical)
        return log

    def _check_columns(self, X, roles, given_features, table):
        """An error or warning if columns are no features, or are features by mistake."""
        if not self.n_features_in_ and read_role(X, "doc", roles["doc"]) is None:
            raise ValueError(
                "X has 0 feature columns and no column 'doc', and no doc was passed: nothing "
                "distinguishes the documents. Add their ids as a column 'doc'."
            )
        names = self._names_of_features()
        sample = sample_features(given_features, [*names], in_order=table is None)
        tell_units("sample", sample)
        if table is None:
            warn_about_names(X, names, roles)

    def _coded_rows(self, X, clicks, sample_weight, roles, *, reset):
        """The rows of a log as codes and numbers, with the propensities that the ranker needs."""
        given = RowsOfLog(X, clicks, sample_weight, roles)
        # Learned before the roles are read, as they are one of them.
        propensity = self._propensities(given, fit=reset)
        roles = given.roles
        if propensity is not None:
            roles = {**roles, "propensity": propensity}
        return read(X, clicks, sample_weight, roles, reads=self._roles_read)

    def _merged(self, log):
        """The log with equal lists merged."""
        if not self._learns_from_never_shown:
            log = log.without_candidates()
        return self._fold(log)

    def _table_of(self, X, documents):
        """The table of features that was passed beside X; None if X holds the features."""
        if documents is None or not self._needs_features:
            return None
        if not is_frame(X):
            raise TypeError(
                "documents= was passed, and X is an array; expected a frame whose columns are the "
                "roles of the rows, such as 'qid', 'doc' and 'position'."
            )
        # Features beside the rows, so that each document has its features once.
        table = FeatureTable(documents)
        if not self._reads_production:
            table.production = None
        return table

    @property
    def _roles_read(self):
        """Roles that are read from a log."""
        return (*FIT_ROLES, "production") if self._reads_production else FIT_ROLES

    def _read_dataset(self, dataset, *, reset):
        """The log of a dataset, checked and merged when it was written, the dataset, and no y."""
        validate_data(
            self,
            pd.DataFrame(columns=dataset.feature_names),
            reset=reset,
            skip_check_array=True,
        )
        if reset:
            self._offsets = NO_OFFSETS
        elif len(self._offsets.columns):
            raise ValueError(
                f"Offsets were taken off {len(self._offsets.columns)} features of the first log, "
                "whose values are much larger than their range; a ClickDataset has none. Pass "
                "the log as a frame, or subtract the smallest value of these features first."
            )
        # Pages are merged on disk already, unless the ranker must tell them apart.
        log = dataset.log(detailed=self._reads_pages_of(dataset))
        if reset:  # what the codes stand for is known to the ensemble that has read them
            self._feature_categories = dict.fromkeys(log.categorical)
        if self._refuses_missing:
            self._refuse_missing_in(log.features, dataset.feature_names)
        propensity = self._propensities(RowsOfDataset(dataset, log), fit=reset)
        if propensity is not None:
            log = replace(log, propensity=propensity)
        return self._merged(log), dataset, None

    def _reads_pages_of(self, dataset):
        """True if pages of a dataset must not be merged before propensities are known."""
        if self._tells_users_apart and "user" in dataset.roles:
            return True
        return self._reads_clicks or reads_pages(getattr(self, "propensity", None))

    @property
    def _tells_users_apart(self) -> bool:
        """True if lists of different users must not be merged before the fit begins."""
        return self._reads_users

    def _known_query_ids(self, X, qid, method):
        """Query ids of rows; a single row needs none."""
        qid = read_role(X, "qid", qid)
        if qid is not None:
            return qid
        # So many documents are no page, but those of several queries.
        n_rows = count_rows(X)
        if method == "score" and n_rows > LONGEST_PAGE:
            raise ValueError(
                f"{type(self).__name__}.score got {n_rows:,} rows and no query ids, and would "
                "compare documents of different queries. Pass a frame with a column 'qid', or "
                "qid=. In a pipeline, transformers keep it as OnFeatures(transformer), from "
                "skultr.preprocessing."
            )
        if n_rows > 1:
            warn_user(
                f"{type(self).__name__}.{method} got no query ids: all rows count as ONE query, "
                "so that documents of different queries are compared. Pass a frame with a column "
                "'qid', or qid=.",
                MissingRoleWarning,
            )
        return np.zeros(n_rows, dtype=int)


def _warn_of_few_clicks(clicks: ClickLog, name: str) -> None:
    """Warn if a log has so few clicks per query that a correction may rank worse than none."""
    # Queries without clicks teach nothing, and would hide that the others have few.
    n_queries = np.count_nonzero(clicks.by_query(clicks.clicks))
    n_clicks = clicks.clicks.sum()
    # Fewer queries are an example, and no log.
    if n_queries < LEAST_QUERIES.value or n_clicks >= FEW_CLICKS.value * n_queries:
        return
    warn_user(
        f"The log has {n_clicks / n_queries:.1f} clicks per query with clicks; expected "
        f"at least {FEW_CLICKS.value:g}. With fewer, {name} may rank worse than "
        "NaiveRanker: a correction gives the clicks at the bottom of a page more weight, "
        "and few of them decide. Log more sessions, or use EnsembleRanker, which weighs "
        "both.",
        ClickDataWarning,
    )


def _warn_if_grades_may_be_clicks(X, grades):
    """Warn if the truth of a score is within [0, 1] in a log, as in a search without scoring=."""
    if not is_frame(X) or "position" not in role_columns(X):
        return
    if grades.max(initial=0) <= 1:
        warn_user(
            "score got a click log (X has positions) and values of y within [0, 1], which may "
            "be clicks: nDCG of clicks favours the old ranking. In a parameter search, pass "
            "scoring=RankingScorer(); without annotation, "
            "ClickLikelihoodScorer(propensity=...) or PolicyValueScorer(). For binary "
            "annotation, drop the column 'position' first.",
            ClickDataWarning,
        )


def _weighted_ndcg(grades, scores, qid, sample_weight):
    """Mean nDCG@10 of queries, each with the mean weight of its rows; NaN if none counts."""
    query, _ = encode(qid, "The role 'qid'")
    sample_weight = check_sample_weight(sample_weight, scores)
    check({"sample_weight": sample_weight})
    # The weight of a query is the mean over its rows, so that long lists do not weigh more.
    weights = np.bincount(query, sample_weight) / np.bincount(query)
    by_query = ndcg_score(grades, scores, qid=qid, k=10, per_query=True)
    values = by_query["ndcg@10"].to_numpy()
    # nDCG is not defined without a relevant document.
    counted = ~np.isnan(values) & (weights > 0)
    if not counted.any():
        warn_user(
            "score is undefined: no query with a positive weight has a relevant document. "
            "Check the annotation and the weights.",
            UndefinedMetricWarning,
        )
        return np.nan
    return float(np.average(values[counted], weights=weights[counted]))


def _holds_a_copy(features, X):
    """True if features were copied from X, so that they may be overwritten."""
    if is_frame(X):
        return True
    return isinstance(X, np.ndarray) and not np.may_share_memory(X, features)


def _has_production(X):
    """True if a log has the score of production as a column, or as a role on disk."""
    if hasattr(X, "roles"):  # a ClickDataset
        return "production" in X.roles
    return is_frame(X) and "production" in role_columns(X)


def fit_to_log(ranker: Any, log: ClickLog, *, checks: bool = True) -> Any:
    """The ranker, fitted to a log that was read already; its ids are the codes of the log.

    Without ``checks`` it does not compare its propensities with the clicks.
    """
    read_log = ReadLog(log, checks=checks)
    if isinstance(ranker, BaseRanker):
        return ranker.fit(read_log)
    features, rate, roles = read_log.to_arrays()
    return ranker.fit(features, rate, **roles)
