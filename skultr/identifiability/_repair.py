"""Repairs of logs that do not determine relevance: merge bias factors, or plan interventions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, Literal, Self, TypeAlias

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from scipy.spatial import cKDTree
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_random_state

from .._base._callbacks import CallbackSupportMixin, with_callbacks
from .._base._sklearn import Interval, StrOptions, check_sample_weight
from .._base._typing import AnyFrame, ArrayLike, Column, Floats, Ints, RandomState, Table
from .._log._counted import CellCount, check_given
from .._log._dataset import ClickDataset
from .._log._estimator import FrameOutput, NotPickled, ReadsLogs, SlimPickles, afresh, names_of
from .._log._faults import count_of
from .._log._pairs import read_pairs
from .._log._reader import clicks_of
from .._log._roles import ROLES, column_names, is_frame, numbers, read_column, with_column
from .._log._segments import as_array
from .._models._tabular import fit_tabular
from ..exceptions import (
    ClickDataWarning,
    MissingRoleWarning,
    NotIdentifiableWarning,
    python_value,
    warn_user,
)
from ._bias_features import (
    MAX_NAMED,
    FactorVectors,
    factor_codes,
    factor_label,
    factor_labels,
    name_some,
)
from ._graph import IdentifiabilityGraph
from ._plans import (
    intervention_plan,
    merge_plan,
    merged_codes,
    neighbour_inside,
    random_plan,
    read_lists,
    relative_scales,
    tree_diameter,
    warn_about_impossible,
)
from ._thresholds import MOST_COMPONENTS

BiasFeatures: TypeAlias = (
    str
    | list[str]
    | tuple[str, ...]
    | Mapping[Any, ArrayLike]
    | Callable[[pd.DataFrame], ArrayLike]
)
#: Columns of the tables of merges and of swaps.
_MERGE = ("from", "into", "cost", "estimated_error")
_SWAP = ("qid", "doc", "from", "to", "cost")


class IdentifiabilityRepair(
    ReadsLogs,
    SlimPickles,
    FrameOutput,
    CallbackSupportMixin,
    OneToOneFeatureMixin,
    TransformerMixin,
    BaseEstimator,
    auto_wrap_output_keys=None,
):
    r"""Make a click log identifiable: merge bias factors, or plan swaps of documents.

    If the bias factors of a log fall into several components (see
    :class:`IdentifiabilityGraph`), relevance cannot be compared between them. *Merging* gives
    pairs of similar factors of different components one common examination parameter, so that
    all are connected: this needs no further data, but is wrong as far as the factors differ.
    *Intervention* plans which few documents to show once under another factor: with the clicks
    on them appended, the log is identifiable without this error. Both connect the components by
    a minimum spanning tree, with the least number of steps [1]_.

    As a step of a pipeline before a ranker, it writes the role ``bias`` that the ranker reads.

    Parameters
    ----------
    bias : str or list of str, default=None
        Columns whose values together are the bias factor; by default ``bias`` if X has it, else
        ``position``. Bias columns without a role (such as ``"device"``) are no features:
        :meth:`transform` drops them. If a search compares sets of bias columns, let an
        ``OnFeatures(ColumnTransformer(...))`` name the features: a column that a set leaves out
        would be one.
    strategy : {"merge", "intervene"}, default="merge"
        With ``"intervene"`` nothing is merged; the plan is in `interventions_` and
        `intervened_lists_`.
    bias_features : str, list of str, mapping or callable, default=None
        Vectors of the bias factors; close factors are merged. Either names of numeric columns of
        X that are constant within a factor (they remain features, unless they are bias columns);
        or a mapping from factor (its value, or the tuple of its values) to vector; or a function
        of the frame of factors (one row per factor, one column per bias column) that returns an
        array of shape (n_factors, n_features). If ``position`` is a bias column,
        ``position_weight * position`` is appended to these vectors.

        By default, positions and other numeric bias columns are used as they are. Different
        values of any other column have distance 1; merging refuses more than 256 of them. Whole
        numbers with more than 20 different values, other than positions, are taken for ids: name
        the column here if close numbers mean similar factors.
    position_weight : float, default=10.0
        Weight of a position that is one of several features. A position alone has weight 1, so
        that the cost of a merge is the difference of the positions.
    cost : {"variance", "random"}, default="variance"
        Cost of interventions: the variance of the estimated ratio of examinations (see Notes), or
        random costs, for comparison.
    relevance : mapping or Series, default=None
        For interventions: probability of a click given examination, keyed by document: by the
        tuple (qid, doc), or by doc if X has no ``qid`` or ``doc_scope`` is "global". In [0, 1];
        values below 0.001 are raised to it. By default it is estimated from ``y``, by a
        position-based model of the merged factors.
    examination : mapping, Series or array-like of shape (n_positions,), default=None
        Probability of examination, keyed by bias factor, or by position from 1 on in an array, as
        `propensity` of the rankers is; in [0, 1]. Values below 0.001 are raised to it. It
        determines the costs of interventions and the errors of merges. Without it, costs are
        estimated from ``y`` and errors are guessed (see `merges_`).
    random_state : int, RandomState instance or None, default=None
        Draws the plan if ``cost="random"``.

    Attributes
    ----------
    graph_ : IdentifiabilityGraph
        The graph of the log before any repair; None if X has no bias factors. Pickles leave out
        what names documents of the log: it, `interventions_` and `intervened_lists_`.
    is_identifiable_ : bool
        True if the log determines relevance without a repair; None if X has no bias factors.
    factors_ : DataFrame
        The bias factors, and in the column ``code`` the value of ``bias`` that `transform` writes.
    merges_ : DataFrame
        One row per merge: ``from``, ``into`` (factors: values, or tuples of values), ``cost``
        (their distance) and ``estimated_error``, the difference of the logarithms of their
        examinations. Without the parameter `examination` the error is a guess: the distance times
        a steep slope of log examination between factors of one component. The guess is too high
        where examination changes evenly. It can be half of the truth or less where the steepest
        step is the gap itself, which no log shows. It is NaN without ``y``, or if every component
        is a single factor.
    interventions_ : DataFrame
        One row per intervention: ``qid`` and ``doc`` (``doc`` alone if ids are global), ``from``,
        ``to`` (factors) and ``cost``. If X has no column ``doc``, the document is given by
        ``row``, the first row of X with its features.
    total_cost_ : float
        Sum of the costs; NaN for random interventions without estimates.
    error_bound_ : float
        Bound of Propositions 2 and 4 of [1]_ on the error of merging (see Notes); 0 if nothing
        was merged. Without the parameter `examination`, each merge is assumed to have its
        ``estimated_error`` in the worse direction. The number is then a bound only under the
        condition of `error_bound_if_smooth_`.
    error_bound_if_smooth_ : float
        The same in logarithms, which have no scale: a bound on the error that merging adds to the
        logarithm of the ratio of any two examinations. It is the largest sum of
        ``estimated_error`` along a path of merges. If these are guesses, it is a bound only if log
        examination changes between components no faster, by distance, than inside them. NaN where
        ``estimated_error`` is; 0 if nothing was merged.
    intervened_lists_ : DataFrame
        Result lists to serve, one per intervention: ``intervention`` (row of `interventions_`),
        ``qid``, ``doc``, ``position``, the other bias columns, and ``doc_scope`` if X has it.
        Each is the most frequent list that shows the document under ``from``. In it, the document
        is swapped with the one at the position of ``to``. A bias column that is constant on the
        page (such as a device) takes the value of ``to`` on the whole page. Give each served page
        its own ``session`` before you append its rows to the log. None if there are no
        interventions, or the rows of X are no lists (see ``qid``, ``session`` and ``position``).
    n_features_in_ : int
        Number of columns of X without a role that are no bias columns.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if X has names that are strings.

    Warns
    -----
    NotIdentifiableWarning
        If merging is likely to do more harm than good: more than 0.6 components per bias factor
        (see the guide), or one examination parameter left. With ``"intervene"``, until the swaps
        are served.
    ClickDataWarning
        If whole numbers are taken for ids, or in `transform` for factors that `fit` has not seen.

    See Also
    --------
    IdentifiabilityGraph : Whether a log needs a repair.

    Notes
    -----
    `transform` returns the kind of frame that it receives. A frame without the bias columns, as at
    serving time, and an array, which has no roles, are returned unchanged. A factor that `fit` has
    not seen takes the code of the nearest one, with a warning. Rows never shown have no ``bias``.

    If document x is shown under factor t' as well as under t, the ratio of their examinations can
    be estimated with a variance proportional to

    .. math:: \frac{1}{r_x o_t} + \frac{1}{r_x o_{t'}} - 2,

    with relevance r and examination o: this is the cost of an intervention (Proposition 1).

    The clicks of the merged log determine relevance r' and examination o' with r' o' = r o. With
    r and o the true ones, merging t and t' shifts their components against each other by

    .. math::
        \left| \frac{r'_x}{r_x} - \frac{r'_{x'}}{r_{x'}} \right|
        = \frac{|o_t - o_{t'}|}{o'_t} \quad \text{(Proposition 2)},

    for all documents x of the one and x' of the other. `error_bound_` is the largest sum of the
    right-hand side along a path of merges (Proposition 4), on the scale where r' = r in the
    component with the most impressions: with 0.2, documents of other components are rated at most
    20 % too high or too low against those. It holds up to the noise of the clicks, and as far as
    r' and o' are free: a model that keeps them below 1 may end at that bound.

    Merging takes time quadratic in the number of factors (seconds for 50,000) and linear memory.

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

    graph_ = NotPickled("the documents of the log with their impressions and clicks")
    interventions_ = NotPickled("documents of the log", when=len)
    intervened_lists_ = NotPickled("documents of the log", when=len)

    _parameter_constraints = {
        "bias": [str, list, tuple, None],
        "strategy": [StrOptions({"merge", "intervene"})],
        "bias_features": [str, list, tuple, Mapping, callable, None],
        "position_weight": [Interval(Real, 0, None, closed="left")],
        "cost": [StrOptions({"variance", "random"})],
        "relevance": [Mapping, pd.Series, None],
        "examination": [Mapping, pd.Series, "array-like", None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        bias: str | list[str] | tuple[str, ...] | None = None,
        *,
        strategy: Literal["merge", "intervene"] = "merge",
        bias_features: BiasFeatures | None = None,
        position_weight: float = 10.0,
        cost: Literal["variance", "random"] = "variance",
        relevance: Mapping[Any, float] | pd.Series | None = None,
        examination: Mapping[Any, float] | pd.Series | ArrayLike | None = None,
        random_state: RandomState = None,
    ) -> None:
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
    def fit(
        self,
        X: Table | AnyFrame | ClickDataset,
        y: Column | str | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Find the components of the log and plan the repair.

        Parameters
        ----------
        X : frame, array-like, sparse matrix of shape (n_rows, n_columns) or ClickDataset
            The click log, in memory or in an engine that counts pairs (not with "intervene").
            ``qid``, ``doc`` (or features), ``doc_scope``, ``position``, ``impressions`` and the
            columns that `bias` and `bias_features` name are read.
        y : array-like of shape (n_rows,) or str, default=None
            Clicks or click rates, or their column: for costs of swaps and errors of merges.
        sample_weight : array-like of shape (n_rows,), default=None
            Multiplies ``impressions``, relative to its mean: a common factor changes nothing.

        Returns
        -------
        self : IdentifiabilityRepair

        Raises
        ------
        ValueError
            A bias column or bias feature is missing or has invalid values; relevance and
            examination are neither given nor can be estimated; or the bias factors are too many
            to be merged.
        """
        self._validate_params()
        task = self._init_callback_context().call_on_fit_task_begin(estimator=self, X=X, y=y)
        self._click_column = y if isinstance(y, str) else None
        # As it is if nothing has to be repaired.
        self.graph_ = None
        self.is_identifiable_ = None
        self.intervened_lists_ = None
        # Tables without rows have their columns all the same.
        self.factors_ = pd.DataFrame({"code": np.empty(0, dtype=int)})
        self.merges_ = pd.DataFrame({name: [] for name in _MERGE})
        self.interventions_ = pd.DataFrame({name: [] for name in _SWAP})
        self.total_cost_ = 0.0
        self.error_bound_ = 0.0
        self.error_bound_if_smooth_ = 0.0
        self._read(X, y, sample_weight, {}, reset=True)
        task.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def _read_dataset(self, dataset, *, reset):
        self._check_columns(dataset, reset)
        pairs = read_pairs(dataset, bias=self._columns)
        rows = None
        # Rows are read for bias features and for lists to swap in; pairs are counted on disk.
        if self._feature_columns is not None or self.strategy == "intervene":
            rows, _ = dataset.to_frame()
        self._plan(rows, pairs)

    def _read_engine(self, X, y, sample_weight, roles, *, reset):
        if self.strategy == "intervene":  # it looks for lists that can carry out swaps
            is_frame(X)  # raises the error
        check_given(X, "" if y is None else y, sample_weight, {}, type(self).__name__)
        self._check_columns(pd.DataFrame(columns=names_of(X)), reset)
        by = [*self._columns, *(self._feature_columns or [])]
        table, rate = CellCount.of(X, y, by).cells(in_order=True)
        if y is None:
            rate = None  # not one of clicks
        self._plan_rows(table, rate, sample_weight)

    def _read_rows(self, X, y, sample_weight, roles, *, reset):
        X = self._check_columns(X, reset)
        if y is not None:
            _, y, _ = clicks_of(X, y, type(self).__name__)
        self._plan_rows(X, y, sample_weight)

    @property
    def _feature_columns(self):
        """Columns of the log that are bias features; None if the features are given otherwise."""
        given = self.bias_features
        if isinstance(given, str):
            return [given]
        return given if isinstance(given, list | tuple) else None

    def _check_columns(self, X, reset):
        """X, with the bias columns named and its features recorded."""
        if self.bias is None:
            names = names_of(X)
            self._columns = [name for name in ("bias", "position") if name in names][:1]
        elif isinstance(self.bias, str):
            self._columns = [self.bias]
        else:
            self._columns = [*self.bias]
        return self._checked(X, [*self._columns, self._click_column], reset=reset)

    def _plan_rows(self, X, y, sample_weight):
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, X)
        # Only frames have columns with roles.
        framed = is_frame(X)
        if framed and (self._columns or self.bias is not None):
            given = {"click": y, "sample_weight": sample_weight, "called": "y"}
            pairs = read_pairs(X, bias=self._columns, **given)
            self._plan(X, pairs)
            return
        if framed:
            what = "has neither a column 'bias' nor 'position'"
        else:
            what = "is an array, whose columns have no roles"
        # A pipeline may meet a log without positions, as at serving time.
        warn_user(
            f"X {what}: IdentifiabilityRepair repairs nothing and returns X unchanged. Pass a "
            "frame with the columns 'doc' and 'position', or name the bias columns in bias=.",
            MissingRoleWarning,
        )

    def transform(self, X: Table | ClickDataset) -> Any:
        """X with the role ``bias``, without the bias columns that have no role.

        Parameters
        ----------
        X : frame, array-like, sparse matrix of shape (n_rows, n_columns) or ClickDataset

        Returns
        -------
        X_new : frame, ndarray, sparse matrix or ClickDataset
            X itself if it lacks a bias column.

        Raises
        ------
        ValueError
            If a shown row has no bias factor.
        """
        return self._transformed(X)

    def _transform_rows(self, X):
        X = self._checked(X, [*self._columns, self._click_column], reset=False)
        if not is_frame(X):
            return X
        names = column_names(X)
        present = [name for name in self._columns if name in names]
        if present and len(present) == len(self._columns):
            X = with_column(X, "bias", self._bias_of(X))
        # Bias columns without a role are no features of a ranker.
        own = [name for name in present if name not in ROLES]
        if not own:
            return X
        return nw.from_native(X, eager_only=True).drop(own).to_native()

    def _plan(self, X, pairs):
        graph = IdentifiabilityGraph._from_pairs(pairs)
        self.graph_ = graph
        self.is_identifiable_ = graph.is_connected
        merging = self.strategy == "merge" and not graph.is_connected
        self._space = FactorVectors(
            graph.factors, self.bias_features, self.position_weight, merging
        )
        # Bias features that are columns are read from the rows of each factor.
        rows = None
        if self._feature_columns is not None:
            values, _ = self._shown_values(X)
            rows = X, factor_codes(graph.factors, values)
        self._vectors = self._space.known(rows)
        impressions = np.bincount(pairs.factor, pairs.impressions)
        self._most_frequent = int(impressions.argmax())
        # Each factor has a code of its own, until some are merged.
        self._codes = np.arange(graph.n_factors)
        if merging:
            self._merge(graph)
        elif not graph.is_connected:
            self._intervene(X, graph)
        self.factors_ = graph.factors.assign(code=self._codes)

    def _merge(self, graph):
        a, b, cost = merge_plan(self._vectors, graph.labels)
        self._codes = merged_codes(graph.n_factors, a, b)
        # What each merge costs in accuracy; NaN where no clicks tell.
        error = merge_errors(graph, self._vectors, a, b, cost, self.examination)
        self.merges_ = pd.DataFrame(
            {
                "from": factor_labels(graph.factors, b),
                "into": factor_labels(graph.factors, a),
                "cost": cost,
                "estimated_error": np.abs(error),
            }
        )
        self.total_cost_ = float(cost.sum())
        # Merges are the edges of a tree of components.
        component_a = graph.labels[a]
        component_b = graph.labels[b]
        self.error_bound_if_smooth_ = tree_diameter(component_a, component_b, np.abs(error))
        scale = relative_scales(component_a, component_b, error)
        change = np.abs(scale[component_a] - scale[component_b])
        self.error_bound_ = tree_diameter(component_a, component_b, change)
        n_left = int(self._codes.max()) + 1
        warn_if_merging_costs_more(graph, n_left)

    def _intervene(self, X, graph):
        pairs = graph.pairs
        values, shown = self._shown_values(X)
        lists = read_lists(X, graph, values, shown)
        # What to swap, and then the lists that do it.
        doc, start, to, cost = self._swaps(graph, lists)
        swaps = {
            "from": factor_labels(graph.factors, start),
            "to": factor_labels(graph.factors, to),
            "cost": cost,
        }
        self.interventions_ = pairs.name_documents(doc).assign(**swaps)
        self.total_cost_ = float(cost.sum())
        what = "the swaps of interventions_"
        if lists is not None:
            what = "the lists of intervened_lists_"
            table, impossible = lists.swapped(doc, start, to, pairs)
            # Served lists are appended to the log, and must say as it does what an id means.
            if "doc_scope" in column_names(X):
                table = table.assign(doc_scope=read_column(X, "doc_scope")[0])
            self.intervened_lists_ = table
            warn_about_impossible(impossible, self.interventions_)
        warn_user(
            f"The log is not identifiable: its {graph.n_factors} bias factors fall into "
            f"{graph.n_components} components, and strategy='intervene' merges nothing. Serve "
            f"{what}, append their clicks to the log and fit again; until then a ranker that is "
            "trained on this log compares documents of different components by chance.",
            NotIdentifiableWarning,
        )

    def _swaps(self, graph, lists):
        """Documents to show once more, their factors, the others to show them under, and costs."""
        pairs = graph.pairs
        doc = pairs.doc
        factor = pairs.factor
        # The rarer a click is at either factor, the more a swap costs.
        relevance, examination = swap_estimates(
            graph,
            self._vectors,
            self.relevance,
            self.examination,
            required=self.cost == "variance",
        )
        if self.cost == "random":
            seed = check_random_state(self.random_state).randint(2**31 - 1)
            rng = np.random.default_rng(seed)
            doc, start, to = random_plan(doc, factor, graph.labels, rng)
            cost = (1 / examination[start] + 1 / examination[to]) / relevance[doc] - 2
            return doc, start, to, cost
        reach = needed = 0.0
        if lists is not None and "position" in graph.factors:
            # A list can show its document at most at its last position.
            reach = lists.longest(doc, factor)
            needed = graph.factors["position"].to_numpy()
        return intervention_plan(
            doc, factor, graph.labels, relevance, examination, reach=reach, needed=needed
        )

    def _transform_dataset(self, dataset):
        """The dataset with the merged factors as its bias factors; nothing is written."""
        own = ["bias" if "bias" in dataset.roles else "position"]
        if self._columns != own:
            raise ValueError(
                f"The repair is of the bias columns {self._columns}, and the bias factors of the "
                f"dataset are its column {own[0]!r}. Transform the log, and make a dataset of "
                "the result; or fit a repair to the dataset."
            )
        # One row per bias factor is enough: codes follow from it.
        places = dataset.to_places().dropna(subset=own).drop_duplicates(own)
        values = places[own[0]].to_numpy().astype(np.int64)
        codes = self._bias_of(places).astype(np.int64)
        return dataset.with_values("bias", values, codes)

    def _shown_values(self, X):
        """Values of the bias columns by name, and True for rows that were shown."""
        columns = column_names(X)
        values = {name: read_column(X, name) for name in self._columns}
        # A row was shown if it has a position and impressions, as far as X says so.
        shown = np.ones(len(values[self._columns[0]]), dtype=bool)
        if "position" in columns:
            shown &= ~pd.isna(read_column(X, "position"))
        if "impressions" in columns:
            shown &= read_column(X, "impressions").astype(float) > 0
        return values, shown

    def _bias_of(self, X):
        """Code of the merged factor of each row, NaN where the row was not shown."""
        values, shown = self._shown_values(X)
        for name, column in values.items():
            missing = np.flatnonzero(pd.isna(column) & shown)
            if len(missing):
                raise ValueError(
                    f"The bias column {name!r} is missing in "
                    f"{count_of(len(missing), 'shown row')}, first in row {missing[0]}; expected "
                    "a value in every row that was shown. Fill it (with a separate value such as "
                    "'unknown'), or drop these rows."
                )
        # -1: fit has not seen the factor.
        known = factor_codes(self._space.factors, values)
        # Such as a new layout: the nearest factor of fit stands for it.
        unseen = np.flatnonzero(shown & (known < 0))
        if len(unseen):
            known[unseen] = self._nearest_known(X, values, unseen)
        return np.where(shown, self._codes[known], np.nan)

    def _nearest_known(self, X, values, rows):
        """Code of the factor of ``fit`` that is nearest to the factor of each of the rows."""
        table = pd.DataFrame({name: column[rows] for name, column in values.items()})
        # Each unseen factor once, whatever the number of its rows.
        factors = table.drop_duplicates(ignore_index=True)
        n_rows = len(values[self._columns[0]])
        place = np.full(n_rows, -1)
        place[rows] = factor_codes(factors, table)
        vectors = self._space.of(factors.infer_objects(), (X, place))
        # Without features nothing is near: the most frequent factor.
        found = np.isfinite(vectors).all(axis=1) & (vectors.shape[1] > 0)
        nearest = np.full(len(factors), self._most_frequent)
        if found.any():
            _, nearest[found] = cKDTree(self._vectors).query(vectors[found])
        named = []
        for code in range(min(len(factors), MAX_NAMED)):
            own = factor_label(factors, code)
            known = factor_label(self._space.factors, nearest[code])
            named.append(f"{own!r} as {known!r}")
        names = name_some(named, len(factors))
        message = (
            f"X has {count_of(len(factors), 'bias factor')}, in {count_of(len(rows), 'row')}, "
            "that the log of fit lacks; each is treated as the nearest that it has: "
            f"{names}. Fit on a log that has them, if they matter."
        )
        if not found.all():
            message += (
                f" The bias features of {int((~found).sum())} of them are unknown: these are "
                "treated as the most frequent factor."
            )
        warn_user(message, ClickDataWarning)
        return nearest[place[rows]]


def warn_if_merging_costs_more(graph: Any, n_left: int) -> None:
    """Warn that merging joins more than it connects."""
    ratio = graph.n_components / graph.n_factors
    # Few merges, and something left to correct.
    if n_left > 1 and ratio <= MOST_COMPONENTS.value:
        return
    if n_left == 1:
        what = "a ranker that is trained on this is the naive ranker"
    else:
        what = (
            f"{ratio:.2f} components per factor, and above about {MOST_COMPONENTS.value} the "
            "errors of so many merges tend to outweigh what they connect"
        )
    warn_user(
        f"Merging leaves {count_of(n_left, 'examination parameter')} for {graph.n_factors} bias "
        f"factors, because all of their {graph.n_components} components had to be joined: {what}. "
        "Use fewer bias columns or coarser values, collect logs that show documents under several "
        "factors, or serve the swaps of strategy='intervene'.",
        NotIdentifiableWarning,
    )


#: Estimates of relevance and examination are at least this.
_SMALLEST = 1e-3
#: Settings of fits: costs and errors of repairs are approximate, so that a rough fit is enough.
_ROUGHLY = {"loss": "poisson", "tol": 1e-3, "max_iter": 30}
#: Examined impressions with the mean click rate that are added to those of each document; without
#: them a document that was clicked in its single impression would be rated best.
_PRIOR = 10.0


def swap_estimates(
    graph: Any, vectors: Floats, relevance: Any, examination: Any, *, required: bool
) -> tuple[Floats, Floats]:
    """Relevance of each document and examination of each factor, both in [0.001, 1]: those given,
    or estimates from the clicks of merged factors (NaN without clicks, an error if
    ``required``)."""
    pairs = graph.pairs
    if relevance is not None:
        if pairs.doc_ids is None:
            raise ValueError(
                "relevance= is given by document, but X has no column 'doc'. Add it, or leave "
                "relevance to be estimated from y."
            )
        relevance = _given("relevance", relevance, pairs.doc_ids)
    if examination is not None:
        examination = _given_examination(examination, pairs.factors)
    # One fit gives both; what was given wins.
    if relevance is None or examination is None:
        estimated_relevance, estimated_examination = _estimated(graph, vectors, required)
        if relevance is None:
            relevance = estimated_relevance
        if examination is None:
            examination = estimated_examination
    return np.clip(relevance, _SMALLEST, 1.0), np.clip(examination, _SMALLEST, 1.0)


def merge_errors(
    graph: Any, vectors: Floats, a: Ints, b: Ints, cost: Floats, examination: Any = None
) -> Floats:
    """Difference log o_b - log o_a of the examinations of each merged pair, where these are given;
    else a guess of its size, NaN where unknown.

    The guess for factors a and b at distance d is d times the steepest of slope(a), slope(b) and
    the 90 % quantile of the slopes of the most clicked factors, with

        slope(t)^2 = ((log o_t - log o_t')^2 - variance) / distance(t, t')^2,

    where t' is the factor of the component of t whose distance from t is nearest to d: within a
    component the log determines ratios of examinations. The variance is that of the estimated
    difference, without which noise would look steep. The steepest step may still be the one
    between two components, which no log shows.
    """
    pairs = graph.pairs
    if examination is not None:
        given = _given_examination(examination, pairs.factors)
        return np.log(given[b] / given[a])
    if pairs.clicks is None:
        return np.full(len(cost), np.nan)
    # Examination within components, by the clicks of documents that moved.
    fit = fit_tabular(pairs.doc, pairs.factor, pairs.clicks, pairs.impressions, **_ROUGHLY)
    log_examination = np.log(np.maximum(fit.examination, _SMALLEST))
    variance = fit.own_error() ** 2
    clicks = np.bincount(pairs.factor, pairs.clicks)
    # The slopes at both ends of each merge, and, for comparison, those of the most clicked
    # factors: 2,000 are enough for a quantile.
    clicked = np.flatnonzero(clicks > 0)
    by_clicks = np.argsort(-clicks[clicked], kind="stable")
    most_clicked = clicked[by_clicks[:2_000]]
    chosen = np.concatenate([a, b, most_clicked])
    usual = np.full(len(most_clicked), np.median(cost))
    apart = np.concatenate([cost, cost, usual])
    neighbour, distance = neighbour_inside(vectors, graph.labels, chosen, apart)
    # Variance of the difference of two log examinations.
    noise = variance[neighbour] + variance[chosen]
    known = (neighbour >= 0) & np.isfinite(noise)
    change = (log_examination[neighbour] - log_examination[chosen]) ** 2
    slope = np.zeros(len(chosen))
    slope[known] = np.sqrt(np.maximum(change - noise, 0.0)[known]) / distance[known]
    n_ends = 2 * len(cost)
    typical = slope[n_ends:][known[n_ends:]]
    if not len(typical):
        return np.full(len(cost), np.nan)
    steep = np.quantile(typical, 0.9, method="higher")
    at_ends = slope[:n_ends].reshape(2, -1).max(axis=0)
    return cost * np.maximum(steep, at_ends)


def _estimated(graph, vectors, required):
    """Estimates of the position-based model of merged factors, with relevance shrunk to its mean.

    With c clicks in n examined impressions, relevance is (c + 10 m) / (n + 10), where m is the
    mean of clicks over examined impressions.
    """
    pairs = graph.pairs
    if pairs.clicks is None:
        if required:
            raise ValueError(
                "strategy='intervene' needs the clicks to estimate what a swap costs, but y is "
                "None: pass y, or both relevance= (by document) and examination= (by bias "
                "factor), or cost='random'."
            )
        return np.full(pairs.n_docs, np.nan), np.full(pairs.n_factors, np.nan)
    a, b, _ = merge_plan(vectors, graph.labels)
    # Merged by distance, so that all documents have one scale.
    merged = merged_codes(graph.n_factors, a, b)
    factor = merged[pairs.factor]
    fit = fit_tabular(pairs.doc, factor, pairs.clicks, pairs.impressions, **_ROUGHLY)
    examination = fit.examination / fit.examination.max()
    # Impressions that were examined, by document.
    examined = np.bincount(pairs.doc, pairs.impressions * examination[factor])
    clicks = np.bincount(pairs.doc, pairs.clicks)
    mean = clicks.sum() / examined.sum()
    relevance = (clicks + _PRIOR * mean) / (examined + _PRIOR)
    return relevance, examination[merged]


def _given_examination(examination, factors):
    """Examination of each factor that a mapping or Series gives, or an array by position."""
    if not isinstance(examination, Mapping | pd.Series):
        if factors.shape[1] > 1 or not pd.api.types.is_integer_dtype(factors.iloc[:, 0]):
            raise ValueError(
                f"examination is an array by position, and bias factors are values of "
                f"{[*factors]}; expected a mapping from bias factor to examination, such as "
                f"{{{factor_label(factors, 0)!r}: 1.0}}."
            )
        curve = numbers("examination", np.atleast_1d(as_array(examination)))
        # Position 1 has the first value.
        examination = dict(enumerate(curve, start=1))
    keys = [factor_label(factors, code) for code in range(len(factors))]
    return _given("examination", examination, keys)


def _given(name, values, keys):
    """Array of the probabilities that a mapping or Series gives for the keys."""
    values = dict(values.items())
    keys = list(keys)
    # Every document, or factor, of the log needs a value.
    lacking = [key for key in keys if key not in values]
    if lacking:
        raise ValueError(
            f"{name} lacks {len(lacking)} of {len(keys)} keys of the log, first {lacking[0]!r}; "
            f"expected a probability for each, such as {{{lacking[0]!r}: 0.5}}."
        )
    given = pd.Series([values[key] for key in keys], dtype=object)
    probability = pd.to_numeric(given, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    # Text and missing values are NaN, which no comparison holds for.
    bad = np.flatnonzero(~((probability >= 0) & (probability <= 1)))
    if len(bad):
        first = bad[0]
        raise ValueError(
            f"{name} is {python_value(given[first])!r} for {keys[first]!r}; expected a "
            "probability in [0, 1]. Divide by the largest value if they are relative."
        )
    return np.maximum(probability, _SMALLEST)
