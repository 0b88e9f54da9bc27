"""Repairs of logs that do not determine relevance: merge bias factors, or plan interventions."""

from collections.abc import Mapping
from numbers import Real

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from scipy.spatial import cKDTree
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._log._estimator import afresh
from .._log._frame_output import FrameOutput
from .._log._pairs import read_pairs
from .._log._reader import as_clicks
from .._log._roles import ROLES, is_frame, with_column
from .._sklearn import Interval, StrOptions, check_sample_weight
from ..exceptions import ClickDataWarning, MissingRoleWarning, NotIdentifiableWarning, warn_user
from ._bias_features import FactorVectors, column_values, factor_codes, factor_label, factor_labels
from ._estimates import merge_errors, swap_estimates
from ._graph import IdentifiabilityGraph
from ._plans import intervention_plan, merge_plan, merged_codes, random_plan, tree_diameter
from ._served import read_lists, warn_about_impossible
from ._verdict import MAX_NAMED

__all__ = ["IdentifiabilityRepair"]


class IdentifiabilityRepair(
    FrameOutput,
    CallbackSupportMixin,
    OneToOneFeatureMixin,
    TransformerMixin,
    BaseEstimator,
    auto_wrap_output_keys=None,
):
    r"""Make a click log identifiable: merge bias factors, or say which documents to swap.

    Where the bias factors of a log fall into several components (see
    :class:`IdentifiabilityGraph`), relevance cannot be compared between them. *Merging* lets
    pairs of similar factors of different components share one examination parameter, so that
    all hang together: nothing has to be collected, at the price of an error where the factors
    differ. *Intervention* says which few documents to show once under another factor: after the
    clicks on them are appended to the log, it is identifiable without error. Both join the
    components by a minimum spanning tree, with as many steps as are needed and no more [1]_.

    As a step of a pipeline before a ranker, it writes the role ``bias`` that the ranker reads.

    Parameters
    ----------
    bias : str or list of str, default=None
        Columns whose values together are the bias factor; by default ``bias`` if X has it, else
        ``position``. Columns without a role (such as ``"device"``) are never features:
        `transform` drops them.
    strategy : {"merge", "intervene"}, default="merge"
        With ``"intervene"`` nothing is merged: see `interventions_` and `intervened_lists_`.
    bias_features : str, list of str, mapping or callable, default=None
        Vectors of the bias factors; close factors are merged. Names of numeric columns of X
        that are constant within a factor (they stay features, unless they are bias columns); a
        mapping from factor (its value, or the tuple of its values) to vector; or a function of
        the frame of factors (one row a factor, one column a bias column) that returns an array
        (n_factors, n_features). To these, ``position_weight * position`` is appended if
        ``position`` is a bias column. By default numeric columns as they are, and distance 1
        between different values of all others (ids too).
    position_weight : float, default=10.0
        Weight of a position beside other features. A position alone has weight 1, so that the
        cost of a merge is the difference of the positions.
    cost : {"variance", "random"}, default="variance"
        Cost of interventions: the variance of what they tell, or none, for comparison.
    relevance : mapping or Series, default=None
        For interventions: probability of a click if examined, by document: by the tuple
        (qid, doc), or by doc where X has no ``qid`` or ``doc_scope`` is "global". By default
        estimated from ``y``: the likeliest position-based model of the merged factors.
    examination : mapping or Series, default=None
        For interventions: examination by bias factor, estimated as `relevance` by default. Both
        are kept within [0.001, 1].
    random_state : int, RandomState instance or None, default=None
        For ``cost="random"``.

    Attributes
    ----------
    graph_ : IdentifiabilityGraph
        The graph of the log before any repair; None if nothing could be read from X.
    is_identifiable_ : bool
        Whether the log identifies relevance as it is; None if nothing could be read from X.
    factors_ : DataFrame
        The bias factors, and in the column ``code`` what `transform` writes for them.
    merges_ : DataFrame
        ``from``, ``into`` (factors: values, or tuples of values), ``cost`` (their distance) and
        ``estimated_error``: how far apart the logarithms of their examinations may be, judged by
        how examination changes with distance between the nearest factors within components.
        NaN without ``y``, or where no two factors are in one component.
    interventions_ : DataFrame
        ``qid`` and ``doc`` (``doc`` alone where ids are global), ``from``, ``to`` (factors) and
        ``cost``. Without a column ``doc``, a document is the ``row`` of X, the first that has
        its features.
    total_cost_ : float
        Sum of the costs; NaN for random interventions without estimates.
    error_bound_ : float
        Longest path in the tree of merges, in units of ``cost``: the error of the ratio of any
        two examinations grows at most by it (Proposition 4 of [1]_). 0 if nothing was merged.
    intervened_lists_ : DataFrame
        Result lists to serve, one an intervention: ``intervention`` (row of `interventions_`),
        ``qid``, ``doc``, ``position``, the other bias columns, and ``doc_scope`` if X has it. The
        most frequent list that shows the document under ``from``, with the document at the
        position of ``to`` in its place; a bias column that is constant on the page (such as a
        device) takes the value of ``to`` on the whole page. Give each served page a ``session``
        of its own before its rows are appended to the log. None if there are no interventions,
        or the rows of X are no lists (see ``qid``, ``session`` and ``position``).
    n_features_in_ : int
        Number of columns of X that have no role and are no bias columns.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if X has names that are strings.

    See Also
    --------
    IdentifiabilityGraph : Says whether a log needs a repair.

    Notes
    -----
    `transform` returns the kind of frame it is given. A frame without any bias column, as at
    serving time, comes back unchanged. Factors that `fit` has not seen take the code of the
    nearest one that it has, with a warning. Rows that were never shown have no ``bias``.
    Arrays have no roles: they are passed through, and nothing is repaired.

    Showing document x at factor t' as well as at t tells the ratio of their examinations with a
    variance proportional to

    .. math:: \frac{1}{r_x o_t} + \frac{1}{r_x o_{t'}} - 2,

    which is the cost of an intervention (Proposition 1). Merging takes time quadratic in the
    number of factors (50,000 in seconds), and linear memory.

    References
    ----------
    .. [1] M. Chen, C. Liu, Z. Liu, Z. Li, J. Sun, "Identifiability Matters: Revealing the Hidden
       Recoverable Condition in Unbiased Learning to Rank", ICML 2024, sections 4.1 and 4.2.

    Examples
    --------
    No document was shown both at the upper and the lower two of four positions:

    >>> import pandas as pd
    >>> from skultr.identifiability import IdentifiabilityRepair
    >>> log = pd.DataFrame({
    ...     "qid": 7,
    ...     "session": ["u", "u", "u", "u", "v", "v", "v", "v"],
    ...     "doc": ["a", "b", "c", "d", "b", "a", "d", "c"],
    ...     "position": [1, 2, 3, 4, 1, 2, 3, 4],
    ... })
    >>> repair = IdentifiabilityRepair().fit(log)
    >>> repair.is_identifiable_
    False
    >>> repair.merges_[["from", "into", "cost"]]
       from  into  cost
    0     3     2   1.0
    >>> repair.transform(log)["bias"].tolist()
    [0, 1, 1, 2, 0, 1, 1, 2]
    """

    _parameter_constraints = {
        "bias": [str, list, tuple, None],
        "strategy": [StrOptions({"merge", "intervene"})],
        "bias_features": [str, list, tuple, Mapping, callable, None],
        "position_weight": [Interval(Real, 0, None, closed="left")],
        "cost": [StrOptions({"variance", "random"})],
        "relevance": [Mapping, pd.Series, None],
        "examination": [Mapping, pd.Series, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        bias=None,
        *,
        strategy="merge",
        bias_features=None,
        position_weight=10.0,
        cost="variance",
        relevance=None,
        examination=None,
        random_state=None,
    ):
        self.bias = bias
        self.strategy = strategy
        self.bias_features = bias_features
        self.position_weight = position_weight
        self.cost = cost
        self.relevance = relevance
        self.examination = examination
        self.random_state = random_state

    @with_callbacks
    @afresh
    def fit(self, X, y=None, sample_weight=None):
        """Read the components of the log and plan the repair.

        Parameters
        ----------
        X : frame, array-like or sparse matrix of shape (n_rows, n_columns)
            The click log. Read are ``doc`` (or features, where it is absent), ``position``,
            ``impressions`` and the columns that `bias` and `bias_features` name.
        y : array-like of shape (n_rows,), default=None
            Clicks or click rates. Needed to estimate what interventions cost, and the error of
            merges.
        sample_weight : array-like of shape (n_rows,), default=None
            Multiplies ``impressions``.

        Returns
        -------
        self : IdentifiabilityRepair

        Raises
        ------
        ValueError
            Bias columns or bias features are missing, or hold what they cannot; interventions
            lack estimates; or the components are too many to be joined.
        """
        self._validate_params()
        task = self._init_callback_context().call_on_fit_task_begin(estimator=self, X=X, y=y)
        framed = is_frame(X)
        self._columns = self._bias_columns(X) if framed else []
        X = self._checked(X, self._columns, reset=True)
        if y is not None:
            y = as_clicks(X, y)
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, X)
        self._begin()
        if framed and (self._columns or self.bias is not None):
            self._fit_log(X, y, sample_weight)
        else:
            _warn_about_nothing(framed)
        task.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def transform(self, X):
        """Write the role ``bias`` and drop the columns without a role that it comes from.

        Parameters
        ----------
        X : frame, array-like or sparse matrix of shape (n_rows, n_columns)

        Returns
        -------
        X_new : frame, ndarray or sparse matrix
            X itself if it has no bias column.

        Raises
        ------
        ValueError
            If the bias factor of a shown row is missing.
        """
        check_is_fitted(self)
        X = self._checked(X, self._columns, reset=False)
        if not is_frame(X):
            return self._output(X)
        present = nw.from_native(X, eager_only=True).columns
        out = X
        if self._columns and all(name in present for name in self._columns):
            out = with_column(out, "bias", self._bias_of(X))
        own = [name for name in self._columns if name in present and name not in ROLES]
        if own:
            out = nw.from_native(out, eager_only=True).drop(own).to_native()
        return self._output(out)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    # What X is ------------------------------------------------------------------------
    def _bias_columns(self, X):
        present = nw.from_native(X, eager_only=True).columns
        if self.bias is not None:
            return [self.bias] if isinstance(self.bias, str) else list(self.bias)
        return next(([name] for name in ("bias", "position") if name in present), [])

    # Fitting --------------------------------------------------------------------------
    def _begin(self):
        """Attributes as they are where nothing has to be repaired."""
        self.graph_ = self.is_identifiable_ = self.intervened_lists_ = None
        self.factors_ = pd.DataFrame({"code": np.empty(0, dtype=int)})
        names = ["from", "into", "cost", "estimated_error"]
        self.merges_ = pd.DataFrame({name: [] for name in names})
        names = ["qid", "doc", "from", "to", "cost"]
        self.interventions_ = pd.DataFrame({name: [] for name in names})
        self.total_cost_ = self.error_bound_ = 0.0

    def _fit_log(self, X, y, sample_weight):
        pairs = read_pairs(X, bias=self._columns, click=y, sample_weight=sample_weight, called="y")
        graph = IdentifiabilityGraph._from_pairs(pairs)
        self.graph_, self.is_identifiable_ = graph, graph.is_connected
        self._set_vectors(X, graph)
        codes = np.arange(graph.n_factors)
        if not graph.is_connected and self.strategy == "merge":
            codes = self._merge(graph)
        elif not graph.is_connected:
            self._intervene(X, graph)
        self._codes = codes
        self.factors_ = graph.factors.assign(code=codes)

    def _set_vectors(self, X, graph):
        self._space = FactorVectors(graph.factors, self.bias_features, self.position_weight)
        rows = None
        if isinstance(self.bias_features, str | list | tuple):
            rows = X, factor_codes(graph.factors, self._shown_values(X)[0])
        self._vectors = self._space.known(rows)
        pairs = graph.pairs
        self._most_frequent = int(np.bincount(pairs.factor, pairs.impressions).argmax())

    def _merge(self, graph):
        """Plan the merges; codes of the merged factors."""
        a, b, cost = merge_plan(self._vectors, graph.labels)
        codes = merged_codes(graph.n_factors, a, b)
        self.merges_ = pd.DataFrame(
            {
                "from": factor_labels(graph.factors, b),
                "into": factor_labels(graph.factors, a),
                "cost": cost,
                "estimated_error": merge_errors(graph, self._vectors, a, b, cost),
            }
        )
        self.total_cost_ = float(cost.sum())
        self.error_bound_ = tree_diameter(
            graph.n_components, graph.labels[a], graph.labels[b], cost
        )
        if not codes.any():
            warn_user(
                f"Merging leaves 1 examination parameter for {graph.n_factors} bias factors: they "
                f"fall into {graph.n_components} components, which all had to be joined. A ranker "
                "that is trained on this is the naive ranker. Use fewer bias columns, collect "
                "logs that show documents under several factors, or serve the swaps of "
                "strategy='intervene'.",
                NotIdentifiableWarning,
            )
        return codes

    def _intervene(self, X, graph):
        pairs = graph.pairs
        relevance, examination = self._estimates(graph)
        lists = read_lists(X, graph, *self._shown_values(X))
        doc, factor = pairs.doc, pairs.factor
        reach = needed = None
        if lists is not None and "position" in graph.factors:
            # A list can show its document as far down as it is long.
            reach = lists.longest(doc, factor)
            needed = graph.factors["position"].to_numpy()
        if self.cost == "random":
            seed = check_random_state(self.random_state).randint(2**31 - 1)
            rng = np.random.default_rng(seed)
            doc, start, to = random_plan(doc, factor, graph.labels, rng)
            cost = (1 / examination[start] + 1 / examination[to]) / relevance[doc] - 2
        else:
            doc, start, to, cost = intervention_plan(
                doc, factor, graph.labels, relevance, examination, reach=reach, needed=needed
            )
        table = {
            "from": factor_labels(graph.factors, start),
            "to": factor_labels(graph.factors, to),
            "cost": cost,
        }
        self.interventions_ = pairs.name_documents(doc).assign(**table)
        self.total_cost_ = float(cost.sum())
        if lists is not None:
            self.intervened_lists_, impossible = lists.swapped(doc, start, to, pairs)
            if "doc_scope" in nw.from_native(X, eager_only=True).columns:
                scope = column_values(X, "doc_scope")[0]
                self.intervened_lists_ = self.intervened_lists_.assign(doc_scope=scope)
            warn_about_impossible(impossible, self.interventions_)
        _warn_until_served(graph, served=lists is not None)

    def _estimates(self, graph):
        """Relevance of documents and examination of factors, given or from the clicks."""
        merged = None
        given = self.relevance is not None and self.examination is not None
        if graph.pairs.clicks is not None and not given:
            merged = merged_codes(graph.n_factors, *merge_plan(self._vectors, graph.labels)[:2])
        return swap_estimates(
            graph.pairs,
            merged,
            self.relevance,
            self.examination,
            required=self.cost == "variance",
        )

    # Transforming ---------------------------------------------------------------------
    def _shown_values(self, X):
        """Values of the bias columns, and which rows were shown."""
        columns = nw.from_native(X, eager_only=True).columns
        values = {name: column_values(X, name) for name in self._columns}
        shown = np.ones(len(values[self._columns[0]]), dtype=bool)
        if "position" in columns:
            shown &= ~pd.isna(column_values(X, "position"))
        if "impressions" in columns:
            shown &= column_values(X, "impressions").astype(float) > 0
        return values, shown

    def _bias_of(self, X):
        """Code of each row, NaN where it was not shown."""
        values, shown = self._shown_values(X)
        for name, column in values.items():
            missing = np.flatnonzero(pd.isna(column) & shown)
            if len(missing):
                raise ValueError(
                    f"The bias column {name!r} is missing in {len(missing)} shown rows, first in "
                    f"row {missing[0]}; expected a value in every row that was shown. Fill it "
                    "(with a value of its own, such as 'unknown'), or drop these rows."
                )
        known = factor_codes(self.graph_.factors, values)
        unseen = np.flatnonzero(shown & (known < 0))
        if len(unseen):
            known[unseen] = self._nearest_known(X, values, unseen)
        return np.where(shown, self._codes[known], np.nan)

    def _nearest_known(self, X, values, rows):
        """The factor of ``fit`` that is nearest to that of each of the rows."""
        table = pd.DataFrame({name: column[rows] for name, column in values.items()})
        factors = table.drop_duplicates(ignore_index=True)
        place = np.full(len(values[self._columns[0]]), -1)
        place[rows] = factor_codes(factors, {name: table[name].to_numpy() for name in table})
        vectors = self._space.of(factors.infer_objects(), (X, place))
        found = np.isfinite(vectors).all(axis=1)
        nearest = np.full(len(factors), self._most_frequent)
        if found.any():
            nearest[found] = cKDTree(self._vectors).query(vectors[found])[1]
        self._warn_about_unseen(factors, nearest, found, len(rows))
        return nearest[place[rows]]

    def _warn_about_unseen(self, factors, nearest, found, n_rows):
        names = [
            f"{factor_label(factors, code)!r} as "
            f"{factor_label(self.graph_.factors, nearest[code])!r}"
            for code in range(min(len(factors), MAX_NAMED))
        ]
        more = ", ..." if len(factors) > MAX_NAMED else ""
        message = (
            f"{len(factors)} bias factors in {n_rows} rows were not in the log of fit; each is "
            f"treated as the nearest that was: {', '.join(names)}{more}. Fit on a log that has "
            "them, if they matter."
        )
        if not found.all():
            message += (
                f" Of {int((~found).sum())} of them no bias features are known: they take the "
                "most frequent factor."
            )
        warn_user(message, ClickDataWarning)


def _warn_about_nothing(framed):
    what = (
        "X has neither a column 'bias' nor 'position'"
        if framed
        else "X is an array, whose columns have no roles"
    )
    warn_user(
        f"{what}: IdentifiabilityRepair repairs nothing and passes X through. Pass a frame with "
        "the columns 'doc' and 'position', or name the bias columns in bias=.",
        MissingRoleWarning,
    )


def _warn_until_served(graph, served):
    what = "the lists of intervened_lists_" if served else "the swaps of interventions_"
    warn_user(
        f"The log is not identifiable: its {graph.n_factors} bias factors fall into "
        f"{graph.n_components} components, and strategy='intervene' merges nothing. Serve {what}, "
        "append their clicks to the log and fit again; until then a ranker that is trained on "
        "this log compares documents of different components by chance.",
        NotIdentifiableWarning,
    )
