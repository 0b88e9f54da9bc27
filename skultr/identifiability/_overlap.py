"""Do the features separate examination from relevance, where no document moved?

Within a result page, the log odds of where a click falls are g(x) + h(t), relevance by features
plus examination by bias factor. What can be predicted of the factor from the features could as
well be relevance; information about h comes from the rest alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from scipy.linalg import eigh
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from sklearn.utils import check_array, check_random_state

from .._base._sklearn import validate_params
from .._base._threads import few_threads
from .._base._typing import Floats, Frame, Ints, RandomState
from .._log._clicklog import ClickLog
from .._log._dataset import ClickDataset
from .._log._faults import count_of
from .._log._pairs import bias_columns, code_factors
from .._log._reader import in_memory, read
from .._log._roles import ROLES, read_column, read_features, read_role, without_columns
from .._log._segments import encode
from ..exceptions import python_value
from ._bias_features import name_some
from ._thresholds import ENOUGH_OVERLAP

#: Roles that lists and bias factors are read from.
_READS = ("qid", "session", "position", "bias", "impressions")


@dataclass(frozen=True, eq=False)
class FeatureOverlap:
    """Result of :func:`feature_overlap`: do features separate examination from relevance?

    Parameters
    ----------
    pairs : pandas.DataFrame of shape (n_pairs, 3)
        ``factor_a``, ``factor_b`` (values, or tuples where factors have several columns) and
        ``overlap`` in [0, 1], ascending: the share of the information of the clicks on the ratio
        of the two examinations that is left if relevance may be any function of the features. 0
        where no result page compares the two, be it through other factors.
    overlap : float
        The least share over all contrasts of bias factors, at most that of any pair; 1 if there
        is one factor.
    n_rows : int
        Number of rows that were compared, at most 5,000.

    Attributes
    ----------
    determines : bool
        True if ``overlap`` is at least 0.15: features may determine examination. Below, dual
        learning missed an examination by more than 0.1 on 20 of 22 simulated logs; above, on 7 of
        78. It assumes that the production ranker used no signal that the features lack: of 20
        logs where it did, 10 were missed, with overlaps from 0.56.
    """

    pairs: pd.DataFrame
    overlap: float
    n_rows: int
    _factors: pd.Index = field(repr=False)
    _information: ExaminationInformation = field(repr=False)

    @property
    def determines(self) -> bool:
        """True if features may determine examination; see Attributes."""
        return self.overlap >= ENOUGH_OVERLAP.value

    def summary(self) -> str:
        """The answer in plain words, and what to do.

        Returns
        -------
        summary : str
        """
        n_factors = count_of(len(self._factors), "bias factor")
        if len(self._factors) == 1:
            return "There is one bias factor: nothing has to be separated."
        # Pairs are sorted by their overlap.
        least = self.pairs.iloc[0]
        # The pair that features separate worst.
        # By column: a row of the table would be of one type, and factors of whole numbers floats.
        names = name_some(self.pairs[name].iloc[0] for name in ("factor_a", "factor_b"))
        if not self._information.compares():
            return (
                "Features cannot separate examination from relevance: no result page compares all "
                f"{n_factors},\nbe it through others (such as {names}).\n"
                "To do: name fewer columns as the bias factor, or serve pages that have both."
            )
        seen = (
            f"Of what clicks say about {n_factors}, features leave at least {self.overlap:.2f} "
            f"(least for the pair {names}: {least['overlap']:.2f})."
        )
        if self.determines:
            return (
                "Features overlap: they can separate examination from relevance, if the ranker in "
                f"production used no signal that they lack.\n{seen}"
            )
        return (
            "Features do NOT overlap: they nearly reveal the bias factor, so that examination "
            f"could be relevance.\n{seen}\n"
            "To do: drop features that follow the position (old scores, old ranks), or vary the "
            "order: see IdentifiabilityRepair."
        )

    def between(self, names: pd.Series, labels: Any) -> float:
        """Least overlap over contrasts between groups of bias factors, such as components.

        Parameters
        ----------
        names : Series of shape (n_factors,)
            Names of the factors, as in ``pairs``.
        labels : array-like of shape (n_factors,)
            Group of each, such as its component.

        Returns
        -------
        overlap : float
        """
        # Factors may be fewer than those of the graph: the most frequent ones.
        place = pd.Index(names, tupleize_cols=False).get_indexer(self._factors)
        unknown = self._factors[place < 0]
        if len(unknown):
            raise ValueError(
                f"The overlap is of another log: it has the bias factor "
                f"{python_value(unknown[0])!r}, which is not among these {len(names)}. Pass the "
                "result of feature_overlap on the same X, with the same bias."
            )
        return self._information.least(np.asarray(labels)[place])

    def __repr__(self) -> str:
        return f"FeatureOverlap(overlap={self.overlap:.3g}, n_factors={len(self._factors)})"


@validate_params(
    {
        "X": "no_validation",  # checked by the reader of logs
        "bias": [str, list, tuple, None],
        "click": [str, None],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
@few_threads()
def feature_overlap(
    X: Frame | ClickDataset,
    *,
    bias: str | list[str] | tuple[str, ...] | None = None,
    click: str | None = "click",
    random_state: RandomState = 0,
) -> FeatureOverlap:
    r"""Measure whether the features suffice to separate examination from relevance.

    Where no document was shown under two bias factors, clicks alone cannot separate examination
    from relevance. A model in which relevance is a function of the features can, if documents
    with similar features were shown under several factors [1]_. If the features reveal the factor
    (an old score, an old rank, columns that only one layout fills), its examination could as well
    be relevance. The result is the share of the information on examination that is left, by pair.

    Parameters
    ----------
    X : frame of shape (n_rows, n_columns) or ClickDataset
        The log, in memory (pandas, Polars, PyArrow), with its features. The roles ``qid``,
        ``session``, ``position`` (or ``bias``) and ``impressions`` are read. No clicks are needed.
    bias : str or list of str, default=None
        Columns whose values together are the bias factor, which are then no features; by default
        ``bias`` if there is one, else ``position``.
    click : str or None, default="click"
        Name of a column with clicks, which is no feature; it need not exist.
    random_state : int, RandomState instance or None, default=0
        Draws the sample of lists and the random units of the regression.

    Returns
    -------
    result : FeatureOverlap
        ``pairs``, ``overlap``, ``determines`` and ``summary()``.

    Raises
    ------
    TypeError
        X is no frame in memory.
    ValueError
        X has no features, or features that are missing or infinite; it has neither positions nor
        bias factors; or nothing was shown.

    See Also
    --------
    IdentifiabilityGraph : Whether documents that moved separate examination from relevance.

    Notes
    -----
    *Definition.* Given that a click falls on a page, its place has the log odds
    :math:`g(x) + h(t)`, with the logarithms of relevance and examination. If :math:`g` may be any
    function, the information on :math:`h` is

    .. math:: L = \sum w\,(e_t - m(x))\,(e_t - m(x))^\top,

    where :math:`e_t` is the indicator of the factor minus its mean over the page, and :math:`m(x)`
    its best prediction by a function of the features minus *its* mean over the page. :math:`L_0`
    is the same with :math:`m = 0`. The overlap of a pair is the ratio of the variances of
    :math:`h_a - h_b` under :math:`L_0` and :math:`L`: with 0.2, five times the clicks are needed.
    ``overlap`` is the least eigenvalue of :math:`L` relative to :math:`L_0`. Comparisons through
    other factors count, and a document that was shown under two of them leaves its share, because
    its features do not determine which one it was.

    *Estimate.* At most 5,000 rows of random lists; the 100 factors with the most impressions;
    ridge regression on the scaled features and 100 random units of them, each query predicted
    from others; queries weigh by the square root of their traffic, as for the rankers. So m is
    what a small network learns easily. A factor that features reveal by a rule that such a
    network would not find (the column that is not zero, say) does not count as revealed.

    *What it does not see.* The production ranker may have used signals that the features lack:
    what they say about relevance is then taken for examination. Only documents that moved, or
    an experiment, show that.

    References
    ----------
    .. [1] P. Hager, O. Zoeter, M. de Rijke, "Unidentified and Confounded? Understanding Two-Tower
       Models for Unbiased Learning to Rank", ICTIR 2025.

    Examples
    --------
    Two features of 200 pages whose order never changed: one is unrelated to the position, the
    other nearly the position itself.

    >>> import numpy as np
    >>> import pandas as pd
    >>> from skultr.identifiability import feature_overlap
    >>> rng = np.random.default_rng(0)
    >>> position = np.tile([1, 2, 3], 200)
    >>> log = pd.DataFrame({
    ...     "qid": np.repeat(np.arange(200), 3), "position": position, "price": rng.random(600),
    ... })
    >>> feature_overlap(log).determines
    True
    >>> given_away = feature_overlap(log.assign(old_score=-position + 0.1 * rng.random(600)))
    >>> given_away.determines
    False
    >>> given_away.pairs[["factor_a", "factor_b"]].iloc[0].tolist()
    [1, 3]
    """
    X, _ = in_memory(X)
    roles, labels = _bias_factors(X, bias)
    rows = read(X, roles=roles, reads=_READS)
    shown = np.flatnonzero(rows.shown)
    if not len(shown):
        raise ValueError("No row was shown: each has no position, or 0 impressions.")
    # Codes, and what stands for each: a position, or a code of several columns.
    factor, values = rows.bias
    names = pd.Index(values) if labels is None else labels[values]
    # Bias columns and clicks are no features; roles are none anyway.
    own = [bias] if isinstance(bias, str) else bias or []
    no_features = {click, *own} - {*ROLES}

    def features(chosen):
        return _features(X, shown[chosen], no_features)

    information = examination_information(
        features,
        rows.list_[shown],
        rows.query[shown],
        factor[shown],
        rows.weight[shown],
        random_state,
    )
    compared = names[information.factors]
    # Names of several columns are tuples.
    plain = pd.Series(list(compared), dtype=object if compared.nlevels > 1 else None)
    return FeatureOverlap(
        pairs=_table_of_pairs(plain, information),
        overlap=information.least(),
        n_rows=information.n_rows,
        _factors=pd.Index(plain, tupleize_cols=False),
        _information=information,
    )


def _table_of_pairs(names, information):
    """Overlap of each two factors, ascending."""
    a, b = np.triu_indices(len(names), 1)
    pairs = {
        "factor_a": names.take(a).to_numpy(),
        "factor_b": names.take(b).to_numpy(),
        "overlap": information.pairs()[a, b],
    }
    return pd.DataFrame(pairs).sort_values("overlap", kind="stable", ignore_index=True)


def _bias_factors(X, bias):
    """The columns ``bias`` as a role, and labels of its codes; no role and None without them."""
    if bias is None:
        if read_role(X, "position") is None and read_role(X, "bias") is None:
            raise ValueError(
                "X has neither a column 'position' nor 'bias': there are no bias factors to "
                "compare. Rename the column that holds the positions to 'position', or name "
                "columns in bias=."
            )
        return {}, None
    columns = {name: read_column(X, name) for name in bias_columns({}, bias)}
    # A combination is known if all of its columns are.
    missing = np.any([pd.isna(values) for values in columns.values()], axis=0)
    unknown = np.flatnonzero(missing & _shown(X))
    if len(unknown):
        raise ValueError(
            f"The bias columns {list(columns)} are missing in "
            f"{count_of(len(unknown), 'shown row')}, first in row {unknown[0]}; "
            "expected a value in each. Use a separate value for unknown ones."
        )
    # Only rows with a factor have a code; others are NaN, as rows that were not shown.
    known = {name: encode(values[~missing]) for name, values in columns.items()}
    codes = np.full(len(missing), np.nan)
    codes[~missing], factors = code_factors(known)
    labels = pd.MultiIndex.from_frame(factors)
    if len(known) == 1:
        labels = labels.get_level_values(0)
    return {"bias": codes}, labels


def _shown(X):
    """True for rows with a position; for all rows if X has no positions."""
    position = read_role(X, "position")
    if position is None:
        return np.ones(X.shape[0], dtype=bool)
    return ~np.isnan(position)


def _features(X, rows, no_features):
    """Features of some rows of a frame, without the columns that are none."""
    frame = without_columns(nw.from_native(X, eager_only=True), no_features)
    features = read_features(frame[rows, :].to_native())
    return check_array(features, dtype=np.float32, ensure_all_finite="allow-nan", input_name="X")


#: Most rows that are compared, taken list by list at random: some hundredths of a second.
_MAX_ROWS = 5_000
#: Most bias factors that are compared: those with the most impressions.
_MAX_FACTORS = 100
#: Most features that are read: those that vary most with the bias factor.
_MAX_FEATURES = 300
#: Share of the largest information below which there is none: what rounding leaves of 0.
_NOTHING = 1e-9


@dataclass(frozen=True, eq=False)
class ExaminationInformation:
    """Information matrices of log examination by bias factor."""

    factors: Ints  # (n_factors,)
    full: Floats  # (n_factors, n_factors), if relevance did not vary with the features
    left: Floats  # (n_factors, n_factors), if it may be any function of them
    n_rows: int

    def pairs(self) -> Floats:
        """Share of the information on each ratio that is left, shape (n_factors, n_factors)."""
        # With a little of the full one, a matrix without information on a ratio is not singular.
        left = self.left + _NOTHING * self.full
        # Of a factor with itself, or with one that no page compares it with.
        with np.errstate(invalid="ignore", divide="ignore"):
            share = _variances(self.full) / _variances(left)
        is_linked = np.abs(self.full) > _NOTHING * self.full.max()
        _, component = connected_components(is_linked, False)
        is_compared = component[:, None] == component
        return np.where(is_compared, np.minimum(share, 1.0), 0.0)

    def least(self, groups: Ints | None = None) -> float:
        """The least share over all contrasts; of groups of factors, whose own ratios are known."""
        if not self.compares(groups):
            return 0.0
        full = _of_contrasts(self.full, groups)
        left = _of_contrasts(self.left, groups)
        # The least ratio of two quadratic forms is a generalised eigenvalue.
        shares = eigh(left, full, eigvals_only=True)
        return float(np.clip(shares.min(initial=1.0), 0.0, 1.0))

    def compares(self, groups: Ints | None = None) -> bool:
        """True if pages compare all groups of factors, be it through others."""
        found = np.linalg.eigvalsh(_of_contrasts(self.full, groups))
        return found.min(initial=1.0) > _NOTHING * found.max(initial=1.0)


def information_of_log(log: ClickLog) -> ExaminationInformation:
    """The information in a log; see :func:`examination_information`."""

    def features(chosen):
        return log.features[log.version[chosen]]

    return examination_information(features, log.list_, log.query, log.bias, log.weight)


def examination_information(
    features: Any,
    list_: Ints,
    query: Ints,
    factor: Ints,
    weight: Floats,
    random_state: RandomState = 0,
) -> ExaminationInformation:
    """Information about examination in a sample of the lists of a log.

    The factor of a row is predicted from its features by ridge regression within lists, on
    standardised features and random units of them, fitted to other queries.
    """
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    # A sample of whole lists, with the factors that matter most.
    factors = _most_shown(factor, weight)
    rows = np.flatnonzero(np.isin(factor, factors))
    rows = rows[_sample_of_lists(list_[rows], rng)]
    _, lists = np.unique(list_[rows], return_inverse=True)
    _, queries = np.unique(query[rows], return_inverse=True)
    # Queries weigh by the square root of their traffic, as for rankers.
    weight = weight[rows]
    traffic = np.bincount(queries, weight)
    weight = weight / np.sqrt(traffic[queries])
    weight /= weight.mean()
    # The indicators of the factors, and what predicts them, each less its mean over the list.
    code = np.searchsorted(factors, factor[rows])
    target = _off_lists(np.eye(len(factors))[code], lists, weight)
    scaled = _scaled(np.asarray(features(rows), dtype=np.float64))
    scaled = _most_telling(scaled, target, weight)
    inputs = _off_lists(_with_units(scaled, rng), lists, weight)
    # Five folds of queries, each predicted from the others.
    n_queries = int(queries.max()) + 1
    fold_of_query = rng.permutation(n_queries) % min(5, n_queries)
    rest = _rest(inputs, target, weight, fold_of_query[queries])
    full, _, _ = _moments(target, target, weight)
    left, _, _ = _moments(rest, rest, weight)
    return ExaminationInformation(factors=factors, full=full, left=left, n_rows=len(rows))


# The sample ---------------------------------------------------------------------------
def _most_shown(factor, weight):
    """The factors with the most impressions, ascending."""
    impressions = np.bincount(factor, weight)
    shown = np.flatnonzero(impressions)
    order = np.argsort(-impressions[shown], kind="stable")
    return np.sort(shown[order[:_MAX_FACTORS]])


def _sample_of_lists(list_, rng):
    """Rows of random lists, at most ``_MAX_ROWS`` together but at least one list."""
    if len(list_) <= _MAX_ROWS:
        return np.arange(len(list_))
    _, code, size = np.unique(list_, return_inverse=True, return_counts=True)
    order = rng.permutation(len(size))
    n_rows = np.cumsum(size[order])
    # Whole lists, because within a list examination is compared.
    n_lists = max(1, np.count_nonzero(n_rows <= _MAX_ROWS))
    return np.flatnonzero(np.isin(code, order[:n_lists]))


def _off_lists(values, list_, weight):
    """Values of rows minus the weighted mean of their list."""
    share = weight / np.bincount(list_, weight)[list_]
    # Row i of this matrix averages list i.
    average = csr_array((share, (list_, np.arange(len(list_)))))
    mean_of_list = average @ values
    return values - mean_of_list[list_]


# The regression -----------------------------------------------------------------------
def _scaled(features):
    """Signed logarithm, standardised and clipped, as the input of networks is."""
    table = pd.DataFrame(np.sign(features) * np.log1p(np.abs(features)))
    # Missing values are at the mean, as there; at 0 if all are missing.
    features = table.fillna(table.mean()).fillna(0.0).to_numpy()
    centre = features.mean(axis=0)
    spread = features.std(axis=0)
    # What rounding leaves of a constant is no variation.
    constant = spread <= 1e-6 * np.maximum(np.abs(centre), 1e-30)
    scaled = (features - centre) / np.where(constant, 1.0, spread)
    # A single value must not decide: networks clip at eight deviations, too.
    return np.clip(scaled, -8.0, 8.0)


def _most_telling(features, target, weight):
    """At most 300 features: those that vary most with the bias factor."""
    if features.shape[1] <= _MAX_FEATURES:
        return features
    telling = ((target * weight[:, None]).T @ features) ** 2
    order = np.argsort(-telling.sum(axis=0))
    return features[:, np.sort(order[:_MAX_FEATURES])]


def _with_units(features, rng):
    """Features, and random ELU units of them of the same total variance."""
    n_features = features.shape[1]
    n_units = 100
    # Sums of deviation 1.5, beyond the part where an ELU is nearly linear.
    weights = 1.5 * rng.normal(size=(n_features, n_units)) / np.sqrt(n_features)
    units = features @ weights + rng.normal(size=n_units)
    # ELU, without overflow of the branch that is not taken.
    units = np.where(units > 0, units, np.expm1(np.minimum(units, 0)))
    spread = units.std(axis=0)
    units = (units - units.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return np.hstack([features, units * np.sqrt(n_features / n_units)])


def _rest(inputs, target, weight, fold):
    """What ridge regressions that were fitted to the other folds leave of the target."""
    # Moments by fold, so that those of all other folds are differences.
    parts = [fold == number for number in range(int(fold.max()) + 1)]
    moments = [_moments(inputs[part], target[part], weight[part]) for part in parts]
    total = [sum(each) for each in zip(*moments, strict=True)]
    best = target
    least = np.inf
    # The best penalty for other queries is taken. None is smaller: functions that the least one
    # shrinks are those that a network learns late.
    for penalty in (0.1, 1.0, 10.0):
        rest = np.empty_like(target)
        for part, own in zip(parts, moments, strict=True):
            # With one query there are no others: the prediction is then as good as it can be.
            fitted_to = total
            if len(parts) > 1:
                fitted_to = [whole - held_out for whole, held_out in zip(total, own, strict=True)]
            gram, cross, mass = fitted_to
            penalised = gram + penalty * mass * np.eye(len(gram))
            coefficients = np.linalg.solve(penalised, cross)
            rest[part] = target[part] - inputs[part] @ coefficients
        loss = weight @ (rest**2).sum(axis=1)
        if loss < least:
            best = rest
            least = loss
    return best


def _moments(inputs, target, weight):
    """Weighted moments of the inputs, with the target, and the weight."""
    weighted = inputs * weight[:, None]
    return weighted.T @ inputs, weighted.T @ target, weight.sum()


# Matrices -----------------------------------------------------------------------------
def _of_contrasts(matrix, groups):
    """The matrix on contrasts of groups, vectors that sum to zero; (0, 0) for one group."""
    if groups is not None:
        member = (groups[:, None] == np.unique(groups)).astype(float)
        matrix = member.T @ matrix @ member
    # An orthonormal basis of the vectors that are orthogonal to (1, ..., 1).
    _, _, basis = np.linalg.svd(np.ones((1, len(matrix))))
    contrasts = basis[1:].T
    return contrasts.T @ matrix @ contrasts


def _variances(matrix):
    """Variance of each ratio: the effective resistances of an information matrix."""
    inverse = np.linalg.pinv(matrix, rcond=_NOTHING, hermitian=True)
    diagonal = np.diag(inverse)
    return diagonal[:, None] + diagonal - 2 * inverse
