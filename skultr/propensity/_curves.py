"""Examination as a curve over bias factors: estimated with errors, common or by user; or known."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if

from .._base._progress import progress
from .._base._sklearn import Interval, StrOptions
from .._base._typing import AnyFrame, Column, Frame, RandomState, Scope, Table
from .._log._cells import read_cells
from .._log._counted import CellCount
from .._log._dataset import ClickDataset
from .._log._estimator import forget, unless_it_fails
from .._log._faults import check, count_of
from .._log._joined_logs import AddsLogs, CellCounts, Kept, cells_of_count
from .._log._roles import FIT_ROLES, read_column, read_role
from .._log._segments import encode, pair_codes
from .._models._browsing import power_law_at
from ..exceptions import ClickDataWarning, NotIdentifiableWarning, python_value, warn_user
from ._comparisons import shrink
from ._draws import excess_of_error, first_share, next_share, tell_draw
from ._propensity import LEAST, QUANTILE, BasePropensity
from ._thresholds import FEW_CLICKS_OF_A_FACTOR, FEW_DOCUMENTS, LEAST_CLUSTERS

#: Attributes that reading a log sets, and reading another one reads.
_OF_READING = ("n_features_in_", "feature_names_in_", "_click_column", "_has_bias")


class Estimate(NamedTuple):
    """Log examination per factor of a log, up to a constant."""

    log_examination: np.ndarray  # (n_factors,)
    standard_error: np.ndarray | None = None  # (n_factors,)


def _has_partial_fit(estimator: Any) -> bool:
    if estimator._reads_rows:
        raise AttributeError(
            f"{type(estimator).__name__} has no partial_fit with these parameters, because it "
            "reads more than counts. Fit it to the logs of all days together, such as a "
            "ClickDataset."
        )
    return True


@dataclass(kw_only=True, eq=False, repr=False)
class CurvePropensity(AddsLogs, BasePropensity):
    """Estimators of one examination curve, or of one per user.

    Subclasses write ``_estimate(cells)`` and set their own default of ``n_bootstrap``. With
    ``user`` the factors of the cells are (user, bias) pairs.
    """

    user: str | None = None
    user_shrinkage: Literal["auto"] | float = "auto"
    n_bootstrap: int = 0
    random_state: RandomState = None

    _parameter_constraints = {
        "user": [str, None],
        "user_shrinkage": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "n_bootstrap": [Interval(Integral, 0, None, closed="left")],
        "random_state": ["random_state"],
    }

    __metadata_request__partial_fit = dict.fromkeys(
        (*FIT_ROLES, "sample_weight", "documents"), True
    )

    @available_if(_has_partial_fit)
    @unless_it_fails
    def partial_fit(
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
        """Add the clicks and impressions of a further log, such as that of a new day.

        The estimate is that of ``fit`` on the lists of all logs together.

        Parameters
        ----------
        X, y, sample_weight, qid, session, doc, position, bias, user, impressions, doc_scope, \
                documents
            As in :meth:`fit`. The lists of X count as new, even if earlier logs have sessions of
            the same name.

        Returns
        -------
        self : object
            Unchanged after an error.

        Raises
        ------
        ValueError
            If a role or ``y`` holds invalid values, or if the cells of a log do not fit into
            memory. Also if the estimator was fitted by :meth:`fit` and then pickled: pickles leave
            out the counts, so that you have to start with ``partial_fit``.
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
        is_first = "n_features_in_" not in vars(self)
        X, y = self._read(X, y, sample_weight, roles, reset=is_first)
        ids = {}
        if y is None:
            # All cells, in memory, because others are added to them.
            X, y, ids = cells_of_count(X)
        if y is None:
            raise ValueError(
                f"{type(self).__name__}.partial_fit keeps the clicks and impressions of documents "
                "in memory, and those of this log do not fit. Call fit, with the logs of all days "
                "together."
            )
        # A log without positions has one curve value, 1; the two kinds cannot be added.
        has_bias = self._read_bias(X, roles) is not None
        if not is_first:
            if has_bias != self._has_bias:
                raise ValueError(
                    "Only one of the logs has positions (or the role 'bias'). Pass them with "
                    "every log, or with none."
                )
            counts, _ = self._read_counts(X, y, sample_weight, roles)
            X, y = self._joined(counts.named(ids))
            ids = {}
            forget(self, keep=_OF_READING)
            # Joined counts have their weights and roles in them.
            sample_weight = None
            roles = dict.fromkeys(roles)
        self._has_bias = has_bias
        self._fit(X, y, sample_weight, roles)
        self._keep_counts(ids, is_pickled=True)
        return self

    @property
    def _reads_users(self):
        return self.user == "user"

    def columns_read(self) -> set[str | int]:
        """Names of columns without a role that the estimator reads; rankers drop them."""
        return set() if self.user in (None, "user") else {self.user}

    def _factor_columns(self, names):
        columns = super()._factor_columns(names)
        return columns if self.user is None else [*columns, self.user]

    def _users(self, X, roles):
        if self.user == "user":
            return self._read_users(X, roles, "user='user'", "user=None for one curve")
        if self.user is None:
            return None
        users = read_column(X, self.user)
        check({"user": users}, called={"user": self.user})
        return users

    def _count(self, X, click, names):
        count = CellCount.of(X, click, self._factor_columns(names))
        # Of each user there are few queries, and all are read.
        return (count, None) if self.user is None else count.cells()

    # Fitting ------------------------------------------------------------------------------
    def _fit_count(self, count, roles):
        """Fit to the cells of as many queries as the errors of the curve ask for."""
        # A legacy random state would draw other queries each time.
        seed = self.random_state if isinstance(self.random_state, Integral) else 0
        share = first_share(count)
        while share < 1:
            # What is said of a draw holds only if no other follows.
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                excess = self._excess_of_error(count.drawn(share, seed), roles)
                if excess <= 1:
                    self._add_rare_factors(count, share, seed, roles, told)
            if excess <= 1:
                for each in told:
                    warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
                self._tell_draw(share, count)
                return
            share = next_share(share, excess)
        # Without the counts of a draw that was too small.
        vars(self).pop("_kept", None)
        self._fit_all(count, roles)

    def _add_rare_factors(self, count, share, seed, roles, told):
        """Fit again, with all queries of factors that no drawn query has, if there are any."""
        # They are chosen by what was shown, and not by clicks, which biases no comparison.
        more = count.ids_with_other_factors(self._bias_values)
        if more:
            told.clear()
            self._fit_all(count.drawn(share, seed, more), roles)

    def _excess_of_error(self, count, roles):
        """Fit to some queries: how many times too large errors are, infinite without a curve."""
        try:
            self._fit_all(count, roles)
        except ValueError:  # more queries may compare what these do not
            return np.inf
        return excess_of_error(self.examination_)

    def _tell_draw(self, share, count):
        """Say which share of the queries was read."""
        self.share_of_queries_ = share
        self._drawn_role = count.whole
        # A later log would be added to a part of this one.
        vars(self).pop("_kept", None)
        tell_draw(self, share, "queries" if count.whole == "qid" else "documents")

    def _tell_roles(self, X, y=None, **given):
        super()._tell_roles(X, y, **given)
        if "share_of_queries_" in vars(self):
            self.roles_[self._drawn_role] += f" ({self.share_of_queries_:.2%} of them were read)"

    def _fit_all(self, count, roles):
        """Fit to all cells of a count."""
        X, y, ids = cells_of_count(count)
        if y is None:  # not all of them are in memory
            self._has_bias = True
            self._fit_cells(X)
            return
        self._has_bias = self._read_bias(X, roles) is not None
        self._fit(X, y, None, roles)
        self._keep_counts(ids)

    def _keep_counts(self, ids, is_pickled=False):
        """Keep the counts of this fit, with ids in place of codes, for ``partial_fit``."""
        if "_kept" in vars(self):
            self._kept = Kept(self._kept.counts.named(ids), is_pickled)

    def _fit(self, X, y, sample_weight, roles):
        cells, _ = self._read_cells(X, y, sample_weight, roles)
        self._fit_cells(cells)

    def _fit_cells(self, cells):
        self._tabulate(cells, self._estimate)

    def _read_counts(self, X, y, sample_weight, roles):
        users = self._users(X, roles)
        return CellCounts.read(X, y, sample_weight, roles, self.user, users)

    def _read_cells(self, X, y, sample_weight, roles):
        """The cells of a log, kept for ``partial_fit``, and the factor of each row of X."""
        counts, row_factor = self._read_counts(X, y, sample_weight, roles)
        if not self._reads_rows:
            self._kept = Kept(counts, is_pickled=False)
        return counts.cells, row_factor

    def _tabulate(self, cells, estimate):
        """Estimate, and set the tables and the attributes that ``predict`` reads."""
        all_users = cells if self.user is None else cells.of_all_users()
        common = self._with_errors(all_users, estimate)
        self.examination_ = curve_table(all_users, common)
        self._bias_values = all_users.factors.bias
        self._common = np.exp(common.log_examination)
        self._largest = np.nanmax(self._common)
        average = None
        if self.user is not None:
            self._tabulate_users(cells, estimate, common)
            # Most users have no click at some positions; shrinkage gives them the common curve
            # there.
            if self.user_shrinkage != 0:
                average = self.average_examination_
        warn_about_curve(self.examination_, average)

    def _tabulate_users(self, cells, estimate, common):
        """The same for the curves of users, beside the common one."""
        own = self._with_errors(cells, estimate)
        own = self._on_common_scale(own, cells, common)
        if self.user_shrinkage != 0:
            own = self._shrunk(cells, own, common)
        self.average_examination_ = self.examination_
        self.examination_ = curve_table(cells, own)
        self._own = self.examination_["examination"]
        # The estimate of a user with few clicks may be far too large: lower limits set the scale.
        least = own.log_examination - QUANTILE * _noise(own, cells.clicks_of_factors)
        self._largest = np.nanmax([self._largest, *np.exp(least)])

    def _with_errors(self, cells, estimate):
        """The estimate relative to the first factor, with standard errors."""
        found = estimate(cells)
        drawn = self._drawn(cells, estimate) if self.n_bootstrap else None
        return with_errors(found, cells, drawn)

    def _drawn(self, cells, estimate):
        """Log examination of resamples, of shape (n_bootstrap, n_factors), or None."""
        return estimates_of_resamples(cells, estimate, self.n_bootstrap, self.random_state)

    def _on_common_scale(self, own, cells, common):
        """The curves of users, the scale taken from the common curve if undetermined."""
        return own

    def _shrunk(self, cells, own, common):
        clicks = cells.by_factor(cells.clicks)
        place = np.searchsorted(self._bias_values, cells.factors.bias)
        rate = _mean_click_probability(cells, np.exp(common.log_examination)[place])
        # Clicks of 0 or 1 scatter less than Poisson ones, the more so the likelier they are.
        noise = _noise(own, clicks) * np.sqrt(1 - rate)
        shrunk, error = shrink(
            own.log_examination,
            noise,
            clicks,
            place,
            common.log_examination,
            np.nan_to_num(common.standard_error),
            self.user_shrinkage,
        )
        return Estimate(shrunk, np.where(np.isnan(own.standard_error), np.nan, error))

    def _predict(self, X, values, shown, roles):
        values = values[shown]
        users = self._users(X, roles)
        # First the common curve, then that of the user where the log has one.
        place = places_of(values, self._bias_values, self._common)
        examination = self._common[place]
        if users is not None:
            found = self._examination_of_users(users[shown], values)
            examination = np.where(np.isnan(found), examination, found)
        return np.clip(examination / self._largest, LEAST, 1.0)

    def _examination_of_users(self, users, values):
        """Examination of each row by the curve of its user, NaN where that has no value."""
        own = self._own
        unknown = users[~pd.Index(users).isin(own.index.levels[0])]
        if len(unknown):
            warn_user(
                f"Found {count_of(len(unknown), 'row')} of users who are not in the training "
                f"log, such as {python_value(unknown[0])!r}: they get the common curve.",
                ClickDataWarning,
            )
        place = own.index.get_indexer(pd.MultiIndex.from_arrays([users, values]))
        # Without a match the place is -1, the last element.
        return np.append(own.to_numpy(), np.nan)[place]


def with_errors(estimate, cells, drawn=None):
    """An estimate relative to the first bias factor, with standard errors."""
    log_examination, error = _scaled(estimate, cells)
    error = np.full(len(cells.factors), np.nan) if error is None else error
    if drawn is not None:
        error = _where_resamples_suffice(_spread(drawn), error, cells)
    return Estimate(log_examination, error)


def estimates_of_resamples(cells, estimate, n_bootstrap, random_state):
    """Log examination of resamples, of shape (n_bootstrap, n_factors)."""
    cluster, draws = resamples(cells, n_bootstrap, random_state)
    resampled = (cells.reweighted(times[cluster]) for times in draws)
    return np.array([_scaled(estimate(one), one).log_examination for one in resampled])


def resamples(cells, n_bootstrap, random_state):
    """Cluster of each document, and the number of draws of each cluster in each resample.

    Clusters are queries, or documents if there are fewer than 30 queries.
    """
    # A legacy random state gives the seed, so that scikit-learn's parameter works.
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    queries, cluster = np.unique(cells.doc_query, return_inverse=True)
    n_clusters = len(queries)
    if n_clusters < LEAST_CLUSTERS.value:
        n_clusters = cells.n_docs
        cluster = np.arange(cells.n_docs)
    return cluster, _draws(rng, n_clusters, n_bootstrap)


def _draws(rng, n_clusters, n_bootstrap):
    """How often each cluster is drawn, with replacement, one resample after the other."""
    for _ in progress(range(n_bootstrap), "resample"):
        drawn = rng.integers(n_clusters, size=n_clusters)
        yield np.bincount(drawn, minlength=n_clusters).astype(float)


def places_of(values, bias_values, examination):
    """Place of each bias factor in a curve; a ValueError if the curve has no value for it."""
    # -1: a factor that the log did not show; NaN: one that nothing compares.
    place = pd.Index(bias_values).get_indexer(values)
    is_nan = np.isnan(examination)
    unknown = (place < 0) | is_nan[place]
    if unknown.any():
        known = bias_values[~is_nan].tolist()
        raise ValueError(
            f"The examination of {count_of(int(unknown.sum()), 'row')} is unknown, such as at "
            f"position (or bias factor) {values[unknown][0]:g}; the training log determines only "
            f"{known[:20]}. Leave those rows out, or map them to known factors with "
            "IdentifiabilityRepair."
        )
    return place


def _scaled(estimate, cells):
    """The estimate relative to the first bias factor: its mean examination over users is 1."""
    known = np.flatnonzero(np.isfinite(estimate.log_examination))
    # Nothing was compared.
    if not len(known):
        return estimate
    bias = cells.factors.bias[known]
    first = known[bias == bias.min()]
    # Half a click where there is none, which would have no weight.
    clicks = np.maximum(cells.clicks_of_factors[first], 0.5)
    # The mean over users is clicks over the clicks under full examination. The mean of the users'
    # ratios would be too large: among users with hardly any click, those with one seem to examine
    # everything.
    # Relative to one of the users, so that the first factor of a single one has exactly 1.
    log_examination = estimate.log_examination - estimate.log_examination[first[0]]
    clicks_if_examined = clicks / np.exp(log_examination[first])
    scale = np.log(clicks.sum() / clicks_if_examined.sum())
    return Estimate(log_examination - scale, estimate.standard_error)


def _mean_click_probability(cells, examination):
    """Mean P(click) over the clicks of each factor, shape (n_factors,), by the common curve."""
    examination = np.nan_to_num(examination)[cells.factor]
    seen = cells.by_doc(cells.weight * examination)
    relevance = cells.by_doc(cells.clicks) / np.where(seen > 0, seen, np.inf)
    relevance = relevance[cells.doc]
    expected = cells.weight * examination * relevance
    total = cells.by_factor(expected)
    # A probability near 1 would leave a click without noise, by chance where clicks are few.
    probability = np.minimum(relevance * examination, 0.9)
    rate = cells.by_factor(expected * probability)
    return rate / np.where(total > 0, total, np.inf)


def _noise(estimate, clicks):
    """Standard errors; those of Poisson clicks, 1 / sqrt(clicks), where there is no formula."""
    known = ~np.isnan(estimate.standard_error)
    poisson = 1 / np.sqrt(np.maximum(clicks, 0.5))
    return np.where(known, estimate.standard_error, poisson)


def _spread(drawn):
    """Standard deviation over resamples; infinite where most of them have no estimate."""
    table = pd.DataFrame(np.where(np.isfinite(drawn), drawn, np.nan))
    deviation = table.std().fillna(0.0)
    is_known_mostly = table.notna().mean() >= 0.5
    return deviation.where(is_known_mostly, np.inf).to_numpy()


def _where_resamples_suffice(drawn, analytic, cells):
    """Errors by resampling, or by formula for factors of too few queries (or documents)."""
    if cells.factors.user is None:
        return np.where(are_few_to_resample(cells), np.fmax(drawn, analytic), drawn)
    n_queries = int(cells.doc_query.max()) + 1
    # Pairs of factor and query, each once, counted by factor.
    pairs = np.unique(pair_codes(cells.factor, cells.doc_query[cells.doc], n_queries))
    n_queries_of_factor = np.bincount(pairs // n_queries, minlength=len(cells.factors))
    few = n_queries_of_factor < LEAST_CLUSTERS.value
    return np.where(few & np.isfinite(analytic), analytic, drawn)


def are_few_to_resample(cells):
    """True for factors whose error is the larger one, of resamples and of the formula."""
    few_docs = cells.n_docs < FEW_DOCUMENTS.value
    return few_docs | (cells.clicks_of_factors < FEW_CLICKS_OF_A_FACTOR.value)


def curve_table(cells, estimate):
    """The public table of an estimate: one row per factor, with the ends of the 95 % interval."""
    log_examination, error = estimate
    error = np.where(np.isnan(log_examination), np.nan, error)
    margin = QUANTILE * error
    with np.errstate(over="ignore"):  # of infinite errors
        columns = {
            "examination": np.exp(log_examination),
            "standard_error": error,
            "lower": np.exp(log_examination - margin),
            "upper": np.exp(log_examination + margin),
            "impressions": cells.weight_of_factors,
            "clicks": cells.clicks_of_factors,
            "component": cells.component_of_factors,
        }
    return pd.DataFrame(columns, index=cells.factors.index)


def warn_about_curve(table, average=None):
    """Warn of bias factors whose examination the log does not determine, and of those (of the
    ``average`` curve) without a click."""
    unknown = table.index[table["examination"].isna()]
    if len(unknown):
        warn_user(
            f"The log does not determine the examination of {len(unknown)} of {len(table)} bias "
            f"factors, NaN in examination_: {_some(unknown)}. No document connects them to the "
            "first. Serve some documents under both, or merge factors with IdentifiabilityRepair.",
            NotIdentifiableWarning,
        )
    # Where curves of users are pulled, the common one decides what lacks clicks.
    table = table if average is None else average
    unclicked = table.index[(table["clicks"] == 0) & table["examination"].notna()]
    if len(unclicked):
        warn_user(
            f"There is no click under {len(unclicked)} of {len(table)} bias factors: "
            f"{_some(unclicked)}. Each is estimated as if it had half a click, which is an upper "
            "limit of its examination rather than an estimate.",
            ClickDataWarning,
        )


def _some(labels):
    listed = [str(python_value(label)) for label in labels[:5]]
    if len(labels) > 5:
        listed.append("...")
    return ", ".join(listed)


# Known curves -----------------------------------------------------------------------
@dataclass(eq=False, repr=False)
class PowerLawPropensity(BasePropensity):
    r"""Examination that falls as a power of the position, :math:`o(k) = (1 / k)^\eta`.

    Nothing is estimated: ``fit`` only counts impressions and clicks at each position. Use it for
    a known curve, or as a stated assumption.

    Parameters
    ----------
    eta : float or mapping of user to float, default=1.0
        Exponent, at least 0; with 0 every position is examined. A mapping holds one exponent
        per user (role ``user``).

    Attributes
    ----------
    examination_ : DataFrame
        ``examination``, ``impressions`` and ``clicks`` by position (index ``bias``; with a
        mapping ``user`` and ``bias``).
    n_features_in_ : int

    References
    ----------
    Joachims, Swaminathan & Schnabel (2017). Unbiased learning-to-rank with biased feedback. WSDM.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.propensity import PowerLawPropensity
    >>> X = pd.DataFrame({"qid": [1, 1], "doc": ["a", "b"], "position": [1, 2]})
    >>> PowerLawPropensity(eta=1.0).fit(X, [1, 0]).predict(X)
    array([1. , 0.5])
    """

    eta: float | Mapping[Any, float] = 1.0

    _parameter_constraints = {
        "eta": [Interval(Real, 0, None, closed="left"), Mapping],
    }

    @property
    def _reads_users(self):
        return isinstance(self.eta, Mapping)

    def _fit(self, X, y, sample_weight, roles):
        if self._reads_users:
            _check_exponents(self.eta)
        users = self._users(X, roles)
        # The curve is one of positions, so that a column ``bias`` and documents are not read: all
        # rows are one arm.
        roles = {**roles, "bias": self._read_bias(X, roles)}
        arm = np.zeros(len(y), int)
        cells, _ = read_cells(X, y, sample_weight, roles, user=users, arm=arm)
        factors = cells.factors
        self.examination_ = pd.DataFrame(
            {
                "examination": self._curve(factors.bias, factors.user),
                "impressions": cells.by_factor(cells.weight),
                "clicks": cells.by_factor(cells.clicks),
            },
            index=factors.index,
        )

    def _predict(self, X, values, shown, roles):
        users = self._users(X, roles)
        if users is not None:
            users = users[shown]
        return np.maximum(self._curve(values[shown], users), LEAST)

    def _factor_columns(self, names):
        return ["position", "user"] if self._reads_users else ["position"]

    def _count(self, X, click, names):
        return CellCount.of(X, click, self._factor_columns(names), documents=False).cells()

    def _users(self, X, roles):
        if not self._reads_users:
            return None
        return self._read_users(X, roles, "eta is a mapping from users", "eta to one number")

    def _curve(self, position, users):
        if users is None:
            return power_law_at(position, self.eta)
        # One exponent per user.
        code, ids = encode(users)
        unknown = [user for user in ids.tolist() if user not in self.eta]
        if unknown:
            raise ValueError(
                f"eta has no value for {len(unknown)} of {len(ids)} users, such as "
                f"{python_value(unknown[0])!r}; expected one value per user. Add the missing ones."
            )
        exponent = np.array([self.eta[user] for user in ids.tolist()])
        return power_law_at(position, exponent[code])

    def _read_bias(self, X, roles):
        return read_role(X, "position", roles["position"])


def _check_exponents(eta):
    for user, exponent in eta.items():
        if not (isinstance(exponent, Real) and 0 <= exponent < np.inf):
            raise ValueError(
                f"eta of the user {user!r} is {exponent!r}; expected a number of at least 0."
            )
