"""``partial_fit`` of all rankers that have one: a network trains on, a table of counts adds up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from sklearn.callback import with_callbacks
from sklearn.utils.metaestimators import available_if

from .._base._typing import AnyFrame, ArrayLike, Column, Frame, Scope, Table
from .._log._dataset import ClickDataset
from .._log._estimator import FitTask, forget, unless_it_fails
from .._log._joined_logs import AddsLogs, Kept, LogCounts, with_bias_values
from .._log._roles import FIT_ROLES

#: Attributes that reading a log sets, and reading another one reads.
_OF_READING = ("n_features_in_", "feature_names_in_", "_offsets", "_click_column")
_OF_READING += ("_feature_categories",)


def _learns_more(ranker):
    if ranker._learns_more_by is None:
        raise AttributeError(
            f"{type(ranker).__name__} has no partial_fit with these parameters: fit it to the "
            "logs of all days together, such as a ClickDataset."
        )
    return True


class LearnsMore(AddsLogs):
    """Mixin of :class:`BaseRanker` with ``partial_fit``.

    Estimators that have one say by ``_learns_more_by`` what it continues.
    """

    #: True if lists with clicks on different rows must not be merged.
    _reads_clicks = False

    #: True if bias factors have parameters, so that a later log must not have other ones.
    _learns_factors = False

    __metadata_request__partial_fit = dict.fromkeys(
        (*FIT_ROLES, "production", "sample_weight", "documents"), True
    )

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

        A network is trained on from where it is, for ``max_epochs`` epochs at most: its weights
        and what it learned of examination go on, with a new optimizer. The scaling of the
        features, given or estimated propensities, the chosen correction, and examination that was
        taken from documents that moved stay those of the first log. Attributes that describe a
        log describe the new one, but ``examination_`` counts impressions and clicks of all logs
        where the ranker learns examination.

        A table of counts (a click model by counting or EM, ``relevance="embedding"``) becomes what
        ``fit`` would give for the lists of all logs together.

        Parameters
        ----------
        X, y, sample_weight, qid, session, doc, position, bias, user, propensity, impressions, \
                production, doc_scope, documents
            As in :meth:`fit`, with the same features (rows to predict may then leave out those of
            the last ``documents``). The lists of X are other lists than those
            of earlier logs, whatever their sessions are called.

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
        is_first = "n_features_in_" not in vars(self)
        if not is_first:
            self._check_that_it_continues()
        log, X, y = self._read(X, y, sample_weight, roles, reset=is_first)
        context = self._init_callback_context(max_subtasks=self._n_subtasks())
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        task = FitTask(context, X, y)
        if self._learns_more_by == "counts":
            self._fit_counts(log, task, is_first)
        elif is_first:
            self._fit(log, task)
            self._check_against(log)
        else:
            if self._learns_factors:
                log = with_bias_values(log, self.examination_.index.to_numpy())
            self._train_on_more(log, task)
        vars(self).pop("_click_log", None)
        context.call_on_fit_task_end(
            estimator=self, X=X, y=y, reconstruction_attributes=lambda: {}
        )
        return self

    @property
    def _learns_more_by(self) -> Literal["network", "counts"] | None:
        """What ``partial_fit`` continues; None if there is no such method."""
        return None

    def _check_that_it_continues(self):
        # The module is what a pickle holds of the net.
        if self._learns_more_by == "network" and not {"net_", "_module"} & {*vars(self)}:
            raise ValueError(
                f"This {type(self).__name__} was loaded by load_model, which keeps what predicts, "
                "and not what partial_fit continues. Pickle a ranker that is to learn more, or "
                "fit a clone of this one to the logs of all days together."
            )

    def _fit_counts(self, log, task, is_first):
        """Fit to the lists of this log and of the earlier ones."""
        if self._click_log is not None:
            raise ValueError(
                "y is another outcome than the click, and a table adds up clicks. Call fit, with "
                "the logs of all days together."
            )
        if not is_first:
            X, rate = self._joined(LogCounts.of(log))
            forget(self, keep=_OF_READING)
            log = self._fold(self._before_folding(self._log_of_rows(X, rate)))
        self._fit(log, task)
        folded = log.fold(self._reads_users, patterns=self._reads_clicks)
        self._kept = Kept(LogCounts.of(folded), is_pickled=True)
