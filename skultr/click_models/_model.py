"""The template of click models: ``fit`` reads the log, ``predict_click`` reads lists."""

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted, column_or_1d

from .._log._documents import KnownDocuments
from .._log._pages import read_lists
from .._log._reader import read, take_clicks
from .._log._roles import count_rows, read_role
from .._sklearn import safe_indexing
from ..exceptions import AssumptionWarning, ClickDataWarning, python_value, warn_user
from ..metrics._perplexity import perplexity_score
from ..rankers._ranker import BaseRanker
from ._patterns import click_patterns

__all__ = ["BaseClickModel", "TableClickModel"]


class BaseClickModel(BaseRanker):
    """Models of P(click) at every row of a list.

    Subclasses write ``_fit(log, task)`` and

    - ``_row_parameters(X, qid, doc)``: what the model knows of the document of each row, a dict of
      arrays of shape (n_rows,);
    - ``_probability(parameters, position, bias, clicks)``: P(click) of lists as rectangles
      (n_lists, width), parameters 0 beyond the end of a list; ``clicks`` is None, where no
      click has been seen, or bool;
    - ``_draw(parameters, position, bias, rng)``: clicks of such lists, bool;
    - ``_relevance(parameters)``, where relevance is not one of them.
    """

    #: Whether P(click) depends on the clicks above.
    _reads_clicks = True
    _parameter_constraints = {}

    __metadata_request__predict = {"qid": True, "doc": True}
    __metadata_request__score = dict.fromkeys(
        ("qid", "session", "doc", "position", "bias", "impressions"), True
    )

    def predict(self, X, *, qid=None, doc=None):
        """Relevance of each row: P(relevant), as the model understands it.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            Candidates. A model with one number per document finds them by the columns ``qid`` and
            ``doc`` where the training log had them, else by their features.
        qid, doc : array-like of shape (n_rows,), default=None
            Queries and documents of the rows of an array.

        Returns
        -------
        relevance : ndarray of shape (n_rows,)
            The prior mean, with a warning, for documents that the training log did not show.
        """
        check_is_fitted(self)
        return self._relevance(self._row_parameters(X, qid, doc))

    def predict_click(
        self,
        X,
        y=None,
        *,
        conditional=True,
        qid=None,
        session=None,
        doc=None,
        position=None,
        bias=None,
    ):
        """P(click) of each row, shown where X says.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            Lists, with the roles ``qid``, ``session``, ``position`` and ``doc`` of a click log.
        y : array-like of shape (n_rows,), default=None
            The clicks of X, 0 or 1. Needed with ``conditional=True`` by models in which a click
            depends on the clicks above it.
        conditional : bool, default=True
            P(click | clicks above), whose product over a list is the probability of its clicks;
            False: P(click) before any click of the list is seen.
        qid, session, doc, position, bias : array-like of shape (n_rows,), default=None
            Roles of the rows; a keyword wins over a column of the same name.

        Returns
        -------
        probability : ndarray of shape (n_rows,)
            0 where a row has no position, because it was not shown.

        Raises
        ------
        ValueError
            If ``y`` is needed and missing or not 0 or 1, or two rows of a list share a position.
        """
        check_is_fitted(self)
        clicks = self._seen_clicks(X, y) if conditional and self._reads_clicks else None
        roles = {"qid": qid, "session": session, "position": position, "bias": bias}

        def probability(parameters, lists, place):
            seen = None if clicks is None else clicks[lists.rows[place]] & (place >= 0)
            where = lists.position[place], lists.bias[place]
            return self._probability(parameters, *where, seen)

        return self._by_list(X, roles, doc, probability, dtype=float)

    def sample(
        self,
        X,
        random_state=None,
        *,
        qid=None,
        session=None,
        doc=None,
        position=None,
        bias=None,
    ):
        """Draw clicks of lists.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            Lists, as of :meth:`predict_click`.
        random_state : int, Generator or None, default=None
            Seed of the draw.
        qid, session, doc, position, bias : array-like of shape (n_rows,), default=None
            Roles of the rows; a keyword wins over a column of the same name.

        Returns
        -------
        clicks : ndarray of shape (n_rows,), int
            0 or 1; 0 where a row was not shown.
        """
        check_is_fitted(self)
        rng = np.random.default_rng(random_state)
        roles = {"qid": qid, "session": session, "position": position, "bias": bias}

        def draw(parameters, lists, place):
            return self._draw(parameters, lists.position[place], lists.bias[place], rng)

        return self._by_list(X, roles, doc, draw, dtype=int)

    def score(
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
        impressions=None,
    ):
        """Minus the perplexity of the clicks of X: greater is better, and -1 the most.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            A click log.
        y : array-like of shape (n_rows,)
            Its clicks. With click rates, models that read the clicks above are scored by
            P(click) before any click is seen, with a warning.
        sample_weight : array-like of shape (n_rows,), default=None
            Multiplies ``impressions``.
        qid, session, doc, position, bias, impressions : array-like of shape (n_rows,), \
                default=None
            Roles of the rows; a keyword wins over a column of the same name.

        Returns
        -------
        score : float
            See :func:`skultr.metrics.perplexity_score`.
        """
        check_is_fitted(self)
        roles = {"qid": qid, "session": session, "position": position, "bias": bias}
        given = {**roles, "impressions": impressions}
        reads = ("qid", "session", "position", "bias", "impressions")
        X, y, _ = take_clicks(X, y, type(self).__name__)
        rows = read(X, y, sample_weight, given, reads=reads)
        rate = rows.rate
        conditional = bool(np.isin(rate, (0, 1)).all())
        if self._reads_clicks and not conditional:
            warn_user(
                "score got click rates, which do not say what was clicked together: the model "
                "is scored by P(click) before any click of a list is seen. Pass one row a shown "
                "document of each session, with clicks 0 or 1, to score it given the clicks "
                "above.",
                ClickDataWarning,
            )
        probability = self.predict_click(X, rate, conditional=conditional, doc=doc, **roles)
        shown = rows.shown
        return -perplexity_score(
            rate[shown],
            probability[shown],
            position=rows.position[shown],
            sample_weight=rows.weight[shown],
        )

    def _relevance(self, parameters):
        return parameters["relevance"]

    def _before_folding(self, log):
        return click_patterns(log) if self._reads_clicks else log

    def _fold(self, log):
        return log.fold(self._reads_users, patterns=self._reads_clicks)

    def _seen_clicks(self, X, y):
        if y is None:
            raise ValueError(
                f"{type(self).__name__}.predict_click needs the clicks y of X: here a click "
                "depends on the clicks above it. Pass predict_click(X, y), or "
                "conditional=False for P(click) before any click of a list is seen."
            )
        y = column_or_1d(y)
        _check_length(X, y)
        wrong = ~np.isin(y, (0, 1))
        if wrong.any():
            raise ValueError(
                f"y must hold clicks, 0 or 1, got {python_value(y[wrong][0])!r} in row "
                f"{int(np.argmax(wrong))}: a rate does not say what was clicked together. Pass "
                "the clicks of single sessions, or conditional=False."
            )
        return y.astype(bool)

    def _by_list(self, X, roles, doc, function, dtype):
        """Values of the shown rows of X by ``function(parameters, lists, place)``."""
        lists = read_lists(X, roles)
        values = np.zeros(count_rows(X), dtype=dtype)
        if not len(lists.rows):
            return values
        parameters = self._shown_parameters(X, lists.rows, roles["qid"], doc)
        for place, inside in lists:
            rows = lists.rows[place]
            block = {name: np.where(inside, of[rows], 0) for name, of in parameters.items()}
            values[rows[inside]] = function(block, lists, place)[inside]
        return values

    def _shown_parameters(self, X, shown, qid, doc):
        """Parameters of the rows of X, 0 where not shown: those may hold unknown documents."""
        if len(shown) == count_rows(X):
            return self._row_parameters(X, qid, doc)
        shown = np.sort(shown)
        ids = (read_role(X, role, value) for role, value in (("qid", qid), ("doc", doc)))
        ids = (None if values is None else values[shown] for values in ids)
        some = self._row_parameters(safe_indexing(X, shown), *ids)
        parameters = {}
        for name, values in some.items():
            parameters[name] = np.zeros(count_rows(X), dtype=values.dtype)
            parameters[name][shown] = values
        return parameters


class TableClickModel(BaseClickModel):
    """Click models with numbers of its own for each document.

    Subclasses call ``_remember_documents`` in ``_fit``.

    Attributes
    ----------
    documents_ : DataFrame
        What was estimated of each shown document.
    """

    @property
    def _needs_features(self):
        return False

    def _fold(self, log):
        # Counting by document merges far more than equal lists; a network wants few lists.
        return super()._fold(log) if self._needs_features else log

    def _remember_documents(self, log, prior, **tables):
        """Keep estimates by document code, and the ``prior`` of each for unseen documents."""
        shown = np.bincount(log.doc[log.shown], minlength=len(log.features)) > 0
        self._documents = KnownDocuments.of_log(log, shown)
        # The prior comes last, where the place -1 of an unseen document points.
        self._tables = {name: np.append(of[shown], prior[name]) for name, of in tables.items()}
        columns = {name: of[:-1] for name, of in self._tables.items()}
        columns.setdefault("relevance", self._relevance(columns))
        self.documents_ = pd.DataFrame(columns, index=self._documents.index)

    def _row_parameters(self, X, qid, doc):
        return self._parameters_at(self._places(X, qid, doc))

    def _parameters_at(self, place):
        return {name: table[place] for name, table in self._tables.items()}

    def _places(self, X, qid, doc):
        """Place of each row's document among those shown in training, -1 for an unseen one."""
        features = self._read_features(X, reset=False)
        place, names = self._documents.places(X, features, qid=qid, doc=doc)
        unseen = place < 0
        if unseen.any():
            first = python_value(names[np.argmax(unseen)])
            warn_user(
                f"{int(unseen.sum())} of {len(place)} rows hold a document that the training log "
                f"did not show (first: {first!r}): they get the prior "
                "mean. A model by features (solver='gradient', or a ranker) tells them apart.",
                AssumptionWarning,
            )
        return place


def _check_length(X, y):
    if len(y) != count_rows(X):
        raise ValueError(
            f"X has {count_rows(X)} rows and y has {len(y)}; expected one click a row."
        )
