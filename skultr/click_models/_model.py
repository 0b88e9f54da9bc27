"""The template of click models: ``fit`` reads the log, ``predict_click`` reads lists."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted, column_or_1d

from .._base._shared_text import with_shared_text
from .._base._sklearn import safe_indexing
from .._base._typing import Column, Floats, Ints, Table
from .._log._cells import examination_table, known_factor_codes
from .._log._dataset import ClickDataset
from .._log._documents import KnownDocuments
from .._log._faults import count_of
from .._log._reader import read, read_lists, take_clicks
from .._log._roles import count_rows, read_role
from .._log._segments import offsets_from_counts, rectangles
from ..exceptions import AssumptionWarning, ClickDataWarning, python_value, warn_user
from ..metrics._click_scorers import perplexity_score
from ..rankers._ranker import BaseRanker
from ._thresholds import MOST_RATES

#: Largest number of cells of a rectangle when lists are split: each yields one pattern per row.
_MAX_CELLS = 1 << 16


#: Entries that docstrings of click models share, for lines ``{name}``.
_ENTRIES = {
    "prior": """\
prior : "empirical", (float, float) or None, default="empirical"
    Pseudo-counts of clicks and of skips of an examined document. "empirical" takes those of
    their Beta distribution over documents, by maximum likelihood (empirical Bayes). None fits
    documents by maximum likelihood, too, as in :class:`PBMModel`.""",
    "variant": """\
variant : {"default", "published"}, default="default"
    "published" is maximum likelihood as in studies of click models, where documents of few
    clicks get extreme values.
    {published}""",
    "variant_of_counts": """\
variant : {"default", "published"}, default="default"
    "published" adds one click and one skip to the counts of every document, as programs of
    click models do. It ignores what click rates are usual in the log.
    {published}""",
    "steps": """\
tol : float, default=1e-8
    EM stops when a round gains less than this: the gain of the log posterior divided by the
    number of impressions.
max_iter : int, default=1000
    Largest number of EM steps.""",
    "solver": """\
solver : {"em", "gradient"}, default="em"
    A table of parameters, one row per document, fitted by EM; or a network of the features,
    which also ranks documents that are not in the log.

Other Parameters
----------------
hidden_layer_sizes, dropout, normalization, module, scale_features
    Used with ``solver="gradient"``; shared by all neural estimators, see
    :ref:`network_parameters`.
learning_rate, max_epochs, batch_size, weight_decay, optimizer, net_params
traffic_exponent
early_stopping, validation_fraction, n_iter_no_change
    Early stopping over held-out queries, by the cross-entropy of their clicks.
device, random_state, verbose""",
    "relevance": """\
documents_ : DataFrame
    ``relevance`` (P(click | examined)) by ``doc`` (by number where the log has no such
    column).""",
    "examination": """\
examination_ : DataFrame
    Mean ``examination`` per position (index), not conditional on any click, with
    ``impressions`` and ``clicks``.""",
    "rounds": """\
log_posterior_ : ndarray of shape (n_rounds,)
    Log likelihood plus log prior after each round of EM; it never falls.
n_iter_ : int
    Number of EM steps.
prior_ : dict of str to (float, float)""",
    "features": """\
n_features_in_ : int
feature_names_in_ : ndarray of shape (`n_features_in_`,)
    Only from frames with text column names.""",
}


class BaseClickModel(BaseRanker):
    """Models of P(click) at every row of a list.

    Subclasses write ``_fit(log, task)`` and

    - ``_row_parameters(X, qid, doc)``: parameters of the document of each row, a dict of arrays of
      shape (n_rows,);
    - ``_probability(parameters, position, bias, clicks)``: P(click) of lists as rectangles
      (n_lists, width), with parameters 0 beyond the end of a list; ``clicks`` is bool, or None for
      P(click) not conditional on any click;
    - ``_draw(parameters, position, bias, rng)``: clicks of such lists, bool, where they depend on
      each other;
    - ``_relevance(parameters)``, if relevance is not one of the parameters.
    """

    _refuses_outcomes = "is a model of clicks"
    #: Whether P(click) depends on the clicks above.
    _reads_clicks = True
    #: Name of the parameter that is P(click | examined); None if the model has no examination.
    _attraction: str | None = None
    _parameter_constraints = {}

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        with_shared_text(**_ENTRIES)(cls)

    __metadata_request__predict = {"qid": True, "doc": True}
    __metadata_request__score = dict.fromkeys(
        ("qid", "session", "doc", "position", "bias", "impressions"), True
    )

    def predict(self, X: Table, *, qid: Column | None = None, doc: Column | None = None) -> Floats:
        """Relevance of each row, P(relevant) as the model defines it.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            Candidates. A model with one number per document looks them up by the columns ``qid``
            and ``doc`` if the training log had them, else by their features.
        qid, doc : array-like of shape (n_rows,), default=None
            Queries and documents of the rows of an array.

        Returns
        -------
        relevance : ndarray of shape (n_rows,)
            Documents that are not in the training log get the prior mean, with a warning.
        """
        check_is_fitted(self)
        return self._relevance(self._row_parameters(X, qid, doc))

    def predict_click(
        self,
        X: Table,
        y: Column | None = None,
        *,
        conditional: bool = True,
        qid: Column | None = None,
        session: Column | None = None,
        doc: Column | None = None,
        position: Column | None = None,
        bias: Column | None = None,
    ) -> Floats:
        """P(click) of each row at its position in X.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            Lists, with the roles ``qid``, ``session``, ``position`` and ``doc`` of a click log.
        y : array-like of shape (n_rows,), default=None
            The clicks of X, 0 or 1. Needed with ``conditional=True`` by models in which a click
            depends on the clicks above it.
        conditional : bool, default=True
            True: P(click | clicks above). The probability of the clicks of a list is then a
            product over its rows: P(click) for a clicked row, 1 - P(click) for another. False:
            P(click), not conditional on any click of the list.
        qid, session, doc, position, bias : array-like of shape (n_rows,), default=None
            Roles of the rows; a keyword wins over a column of the same name.

        Returns
        -------
        probability : ndarray of shape (n_rows,)
            0 where a row has no position because it was not shown.

        Raises
        ------
        ValueError
            If ``y`` is needed and missing, or not 0 or 1; or if a list has two rows at one
            position.
        """
        check_is_fitted(self)
        clicks = self._seen_clicks(X, y) if conditional and self._reads_clicks else None
        return self._by_list(
            X,
            {"qid": qid, "session": session, "position": position, "bias": bias},
            doc,
            self._given(clicks),
            dtype=float,
        )

    def sample(
        self,
        X: Table,
        random_state: int | np.random.Generator | None = None,
        *,
        qid: Column | None = None,
        session: Column | None = None,
        doc: Column | None = None,
        position: Column | None = None,
        bias: Column | None = None,
    ) -> Ints:
        """Clicks of each row, 0 or 1, drawn from the model.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            Lists, see :meth:`predict_click`.
        random_state : int, Generator or None, default=None
            Seed of the draw.
        qid, session, doc, position, bias : array-like of shape (n_rows,), default=None
            Roles of the rows; a keyword wins over a column of the same name.

        Returns
        -------
        clicks : ndarray of shape (n_rows,), int
            0 where a row was not shown.
        """
        check_is_fitted(self)
        rng = np.random.default_rng(random_state)

        def draw(parameters, lists, place):
            return self._draw(parameters, lists.position[place], lists.bias[place], rng)

        return self._by_list(
            X,
            {"qid": qid, "session": session, "position": position, "bias": bias},
            doc,
            draw,
            dtype=int,
        )

    def score(
        self,
        X: Table | ClickDataset,
        y: Column | str | None = None,
        sample_weight: Column | None = None,
        *,
        qid: Column | None = None,
        session: Column | None = None,
        doc: Column | None = None,
        position: Column | None = None,
        bias: Column | None = None,
        impressions: Column | None = None,
    ) -> float:
        """Minus the perplexity of the clicks of X: greater is better, -1 is perfect.

        Parameters
        ----------
        X : DataFrame, array-like or sparse matrix of shape (n_rows, n_columns)
            A click log.
        y : array-like of shape (n_rows,)
            Clicks. If they are click rates, models in which a click depends on the clicks above
            are scored by P(click) not conditional on any click, with a warning.
        sample_weight : array-like of shape (n_rows,), default=None
            Multiplies ``impressions``, relative to its mean: a common factor changes nothing.
        qid, session, doc, position, bias, impressions : array-like of shape (n_rows,), \
                default=None
            Roles of the rows; a keyword wins over a column of the same name.

        Returns
        -------
        score : float
            See :func:`skultr.metrics.perplexity_score`.
        """
        roles = {"qid": qid, "session": session, "position": position, "bias": bias}
        given = {**roles, "impressions": impressions}
        # Clicks may be a column of X, or part of a dataset.
        X, y, _ = take_clicks(X, y, type(self).__name__, given)
        rows = read(X, y, sample_weight, given, reads=given)
        rate = rows.rate
        conditional = bool(np.isin(rate, (0, 1)).all())
        if self._reads_clicks and not conditional:
            warn_user(
                "score got click rates, which do not tell what was clicked together: the model is "
                "scored by P(click) not conditional on any click. To score it given the clicks "
                "above, pass one row per shown document of each session, with clicks 0 or 1.",
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

    def _read_engine(self, X, y, sample_weight, roles, *, reset):
        if self._reads_clicks:
            raise TypeError(
                f"X is a lazy frame ({type(X).__module__}.{type(X).__name__}), but "
                f"{type(self).__name__} needs its rows: it reads which clicks fell into the same "
                "result page, and counts by the engine or skultr.aggregate_clicks do not keep "
                "that. Collect the log, or the log of a sample of queries; or use PBMModel, which "
                "reads counts."
            )
        return super()._read_engine(X, y, sample_weight, roles, reset=reset)

    def _given(self, clicks):
        """P(click) of lists given these clicks, or none, as a function for ``_by_list``."""

        def probability(parameters, lists, place):
            position = lists.position[place]
            bias = lists.bias[place]
            # The place -1, beyond the end of a list, has no click.
            seen = None if clicks is None else clicks[lists.rows[place]] & (place >= 0)
            return self._probability(parameters, position, bias, seen)

        return probability

    def _examination_given(self, X, y, roles):
        """P(examined | clicks above) of each row, relative to the first; 0 if it was not shown.

        It is not conditional on clicks where ``y`` holds rates, as in an aggregated log.
        """
        if self._attraction is None:
            raise ValueError(
                f"{type(self).__name__} gives no propensities, because it does not model "
                "examination; expected UBMModel, DCMModel, DBNModel or PBMModel."
            )
        # Rates do not tell what was clicked together.
        conditional = self._reads_clicks and np.isin(y, (0, 1)).all()
        clicks = np.asarray(y, dtype=bool) & conditional
        click_given = self._given(clicks if conditional else None)

        def examination(parameters, lists, place):
            # P(click) is attraction times P(examined). Beyond the end of a list both are 0.
            attraction = np.where(place >= 0, parameters[self._attraction], 1.0)
            return click_given(parameters, lists, place) / attraction

        list_roles = {role: roles.get(role) for role in ("qid", "session", "position", "bias")}
        found = self._by_list(X, list_roles, roles.get("doc"), examination, dtype=float)
        if not found[clicks].all():
            impossible = count_of(int((found[clicks] == 0).sum()), "click")
            raise ValueError(
                f"{type(self).__name__} gives {impossible} of {clicks.sum()} the probability 0: "
                "the cascade model has one click per page. Use DCMModel or DBNModel, in which "
                "users may continue after a click."
            )
        return found

    def _relevance(self, parameters):
        return parameters["relevance"]

    def _draw(self, parameters, position, bias, rng):
        chance = self._probability(parameters, position, bias, None)
        return rng.random(chance.shape) < chance

    def _before_folding(self, log):
        return click_patterns(log) if self._reads_clicks else log

    def _fold(self, log):
        return super()._fold(self._before_folding(log))

    def _seen_clicks(self, X, y):
        if y is None:
            raise ValueError(
                f"{type(self).__name__}.predict_click needs the clicks y of X: in this model a "
                "click depends on the clicks above it. Pass predict_click(X, y), or "
                "conditional=False for P(click) not conditional on any click."
            )
        y = column_or_1d(y)
        if len(y) != count_rows(X):
            raise ValueError(
                f"X has {count_of(count_rows(X), 'row')} and y has {count_of(len(y), 'value')}; "
                "expected one click per row."
            )
        wrong = ~np.isin(y, (0, 1))
        if wrong.any():
            raise ValueError(
                f"y must hold clicks, 0 or 1, got {python_value(y[wrong][0])!r} in row "
                f"{int(np.argmax(wrong))}: a rate does not determine what was clicked together. "
                "Pass the clicks of single sessions, or conditional=False."
            )
        return y.astype(bool)

    def _by_list(self, X, roles, doc, function, dtype):
        """Values of ``function(parameters, lists, place)`` per row of X; 0 where not shown."""
        lists = read_lists(X, roles)
        values = np.zeros(count_rows(X), dtype=dtype)
        if not len(lists.rows):
            return values
        # Documents are looked up once; then rectangles of lists of similar length, some at a time.
        parameters = self._shown_parameters(X, lists.rows, roles["qid"], doc)
        for _, place in rectangles(lists.offsets):
            rows = lists.rows[place]
            inside = place >= 0
            block = {name: np.where(inside, each[rows], 0) for name, each in parameters.items()}
            values[rows[inside]] = function(block, lists, place)[inside]
        return values

    def _shown_parameters(self, X, shown, qid, doc):
        """Parameters per row of X, 0 where not shown; documents there may be unknown."""
        if len(shown) == count_rows(X):
            return self._row_parameters(X, qid, doc)
        shown = np.sort(shown)
        ids = {}
        for role, given in (("qid", qid), ("doc", doc)):
            values = read_role(X, role, given)
            ids[role] = None if values is None else values[shown]
        some = self._row_parameters(safe_indexing(X, shown), **ids)
        # Rows that are not shown have the place -1, the last element, which is 0.
        place = np.full(count_rows(X), -1)
        place[shown] = np.arange(len(shown))
        parameters = {}
        for name, values in some.items():
            zero = values.dtype.type(0)
            parameters[name] = np.append(values, zero)[place]
        return parameters


class TableClickModel(BaseClickModel):
    """Click models with a table of parameters, one row per document.

    Subclasses call ``_remember_documents`` in ``_fit``. Where ``_needs_features`` is true, a
    network stands for the table, and they write ``_network_parameters(features)``.
    """

    _needs_features = False

    @property
    def _learns_more_by(self):
        return None if self._needs_features else "counts"

    def _fold(self, log):
        # Only networks need it: counts per document are far fewer than distinct lists.
        return super()._fold(log) if self._needs_features else self._before_folding(log)

    def _remember_documents(self, log, prior, **tables):
        """Keep tables by document code, and the ``prior`` of each for unseen documents."""
        self._documents = KnownDocuments.of_log(log)
        # The prior is the last entry, which the place -1 of an unseen document selects.
        self._tables = {name: np.append(each, prior[name]) for name, each in tables.items()}
        columns = {name: each[:-1] for name, each in self._tables.items()}
        # Relevance may be a product of the tables, as in a dynamic Bayesian network.
        columns.setdefault("relevance", self._relevance(columns))
        self.documents_ = pd.DataFrame(columns, index=self._documents.index)

    def _row_parameters(self, X, qid, doc):
        if self._needs_features:
            return self._network_parameters(self._read_features(X, reset=False))
        place = self._places(X, qid, doc)
        return {name: table[place] for name, table in self._tables.items()}

    def _places(self, X, qid, doc):
        """Place of the document of each row among those of training, -1 if it is unseen."""
        features = self._read_features(X, reset=False)
        place, names = self._documents.places(X, features, qid=qid, doc=doc)
        # They get the last entry of each table, the prior mean.
        unseen = place < 0
        if unseen.any():
            first = python_value(names[np.argmax(unseen)])
            warn_user(
                f"Found documents that are not in the training log in {int(unseen.sum())} of "
                f"{len(place)} rows (first: {first!r}). They all get the prior mean. To tell them "
                "apart, use a model of features (solver='gradient', or a ranker).",
                AssumptionWarning,
            )
        return place


@dataclass(frozen=True, eq=False)
class KnownFactors:
    """The bias factors of a training log."""

    values: np.ndarray  # (n_factors,)
    are_positions: bool

    @classmethod
    def of_log(cls, log):
        """The bias factors of a log."""
        is_position = log.bias_values[log.bias] == log.position
        return cls(log.bias_values, bool(is_position.all()))

    def codes(self, bias, inside):
        """Code of each bias factor, of the shape of ``bias``; undefined outside the lists."""
        # Positions have an order, and an unknown one has neighbours; other bias factors have none.
        if self.are_positions:
            return known_codes(self.values, bias, inside)
        codes = np.zeros(np.shape(bias), dtype=np.intp)
        codes[inside] = known_factor_codes(self.values, bias[inside])
        return codes


def known_codes(known, values, inside=True):
    """Code of each position; unknown ones get that of the nearest known one above, or 0."""
    codes = np.maximum(np.searchsorted(known, values, side="right") - 1, 0)
    warn_about_unknown((known[codes] != values) & inside, values)
    return codes


def warn_about_unknown(unknown, position):
    """Warn that some positions are not those of the training log, if any."""
    if unknown.any():
        warn_user(
            f"Found {count_of(int(unknown.sum()), 'row')} at a position that is not in the "
            f"training log, such as {python_value(position[unknown][0])!r}. They are predicted as "
            "if at the nearest known position above. Train on lists as long as those to predict.",
            AssumptionWarning,
        )


def click_patterns(log):
    """A log in which every row was clicked or not, as models of whole lists need it.

    Draw u ~ U(0, 1); row i is clicked if rate_i > u. Each distinct pattern of clicks becomes one
    list, weighted by its probability: the gap between neighbouring rates. The click rate of every
    row is preserved. An aggregated log does not contain which rows were clicked *together*; this
    choice assumes that they were as often as the rates allow. A list with more than 16 distinct
    rates is split into 17 patterns: rows with neighbouring rates get their mean, which preserves
    the clicks of the list, and those of a row approximately.
    """
    weight = _list_weights(log)
    clicked = log.clicks > 0
    # Only rows that were clicked in a part of the sessions need several patterns.
    partly = clicked & (log.clicks < log.weight)
    if partly.any():
        split = np.logical_or.reduceat(partly, log.offsets[:-1])
        warn_user(
            f"Found click rates between 0 and 1 in {int(split.sum())} of {log.n_lists} lists (an "
            "aggregated or graded log). They do not tell which rows were clicked together. Rows "
            "are assumed to be clicked together as often as their rates allow (approximately, in "
            f"lists of more than {MOST_RATES.value} rates). Better pass one row per shown "
            "document of each session, with clicks 0 or 1.",
            ClickDataWarning,
        )
        log, clicked, weight = _split(log, weight, split)
    weight = np.repeat(weight, np.diff(log.offsets))
    if np.array_equal(weight, log.weight):
        weight = log.weight  # saves memory
    return replace(log, clicks=np.where(clicked, weight, 0.0), weight=weight)


def by_position(log):
    """The log with the positions of its rows as bias factors."""
    positions, bias = np.unique(log.position, return_inverse=True)
    return replace(log, bias=bias, bias_values=positions)


def examination_by_position(log, examination):
    """Mean examination, impressions and clicks per position, from examination by row."""
    return examination_table(by_position(log), examination).rename_axis(index="position")


def last_clicks(log):
    """Place of each row in its list, from 1, and of the last click of the list, 0 if none."""
    lengths = np.diff(log.offsets)
    starts = log.offsets[:-1]
    place = np.arange(log.n_rows) - np.repeat(starts, lengths) + 1
    clicked = np.where(log.clicks > 0, place, 0)
    last = np.maximum.reduceat(clicked, starts)
    return place, np.repeat(last, lengths)


def _list_weights(log):
    """Impressions per list: the mean over its rows."""
    starts = log.offsets[:-1]
    mean = np.add.reduceat(log.weight, starts) / np.diff(log.offsets)
    low = np.minimum.reduceat(log.weight, starts)
    high = np.maximum.reduceat(log.weight, starts)
    uneven = int(np.count_nonzero(high > low))
    if uneven:
        warn_user(
            f"Found rows with different impressions (or sample weights) in {uneven} of "
            f"{log.n_lists} lists. A list has one weight, here the mean of its rows. Give all "
            "rows of a list the same number of impressions.",
            ClickDataWarning,
        )
    return np.where(high > low, mean, low)  # the mean of equal numbers would be rounded


def _split(log, weight, split):
    """The log with one list per pattern of the lists in ``split``; clicked rows; list weights."""
    rate = log.click_rate
    # Other lists stay as they are, before those that are split.
    is_split = split[log.list_]
    whole = np.flatnonzero(~is_split)
    parts = [(whole, log.list_[whole], rate[whole] > 0)]
    weights = [weight[~split]]
    n_lists = log.n_lists
    lengths = np.where(split, np.diff(log.offsets), 0)
    split_rows = np.flatnonzero(is_split)
    for segments, place in rectangles(offsets_from_counts(lengths), _MAX_CELLS):
        inside = place >= 0
        rows = np.where(inside, split_rows[place], 0)
        rates = _few_rates(np.where(inside, rate[rows], 0.0))
        # Patterns lie between neighbours of 1 >= highest rate >= ... >= lowest rate >= 0.
        falling = -np.sort(-rates, axis=1)
        ends = np.column_stack([np.ones(len(rates)), falling])
        gaps = np.column_stack([ends[:, :-1] - ends[:, 1:], ends[:, -1]])
        # For u between one rate and the next, the same rows are clicked.
        one, end = np.nonzero(gaps > 0)
        clicked = (rates[one] >= ends[one, end][:, None]) & (rates[one] > 0)
        keep = inside[one]
        number = n_lists + np.arange(len(one))
        n_lists += len(one)
        list_ = np.broadcast_to(number[:, None], keep.shape)
        parts.append((rows[one][keep], list_[keep], clicked[keep]))
        weights.append(weight[segments[one]] * gaps[one, end])
    rows, list_, clicked = (np.concatenate(part) for part in zip(*parts, strict=True))
    return log.take_rows(rows, list_), clicked, np.concatenate(weights)


def _few_rates(rates):
    """Rates of lists (n_lists, width), with at most ``MOST_RATES`` distinct rates above 0 each.

    Neighbours in the order of the rates get their mean; a rate of 0 stays 0.
    """
    n_lists, width = rates.shape
    order = np.argsort(-rates, axis=1)
    falling = np.take_along_axis(rates, order, axis=1)
    # Number of each distinct rate of a list, from 0; that of a rate of 0 is the width.
    is_next = np.diff(falling, axis=1, prepend=falling[:, :1]) < 0
    group = np.cumsum(is_next, axis=1)
    n_rates = group.max(axis=1, where=falling > 0, initial=0, keepdims=True) + 1
    too_many = n_rates > MOST_RATES.value
    group = np.where(too_many, group * MOST_RATES.value // n_rates, group)
    group[falling == 0] = width
    # Mean of the rates of each group.
    key = group + np.arange(n_lists)[:, None] * (width + 1)
    total = np.bincount(key.ravel(), falling.ravel())
    count = np.bincount(key.ravel())
    mean = total[key] / count[key]
    few = np.empty_like(rates)
    np.put_along_axis(few, order, np.where(too_many, mean, falling), axis=1)
    return few
