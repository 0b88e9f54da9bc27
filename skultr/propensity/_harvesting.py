"""Examination by comparing click rates: in experiments, and in logs of several rankers."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass
from numbers import Integral
from typing import Literal

import numpy as np
import pandas as pd

from .._base._sklearn import Interval, StrOptions
from .._base._typing import ArrayLike, Floats, Ints
from .._log._aggregate import count_lists_of
from .._log._cells import READS, count_cells
from .._log._counted import CellCount
from .._log._faults import count_of
from .._log._reader import read
from .._log._roles import read_column
from .._log._segments import encode
from .._models._table_curve import table_of_cells
from ..exceptions import AssumptionWarning, NotIdentifiableError, warn_user
from ._comparisons import Comparisons, pooled_curves, solve
from ._curves import CurvePropensity, Estimate, are_few_to_resample, resamples
from ._thresholds import MOST_ERRORS, MOST_IN_PLACE, MOST_PAIRED, MOST_RESAMPLED

#: Resamples of ``n_bootstrap="auto"``.
_N_RESAMPLES = 200


class _PairwisePropensity(CurvePropensity):
    """Curves by pairwise comparison of bias factors, over documents (or arms) shown under both.

    Subclasses define the message ``_not_connected``.
    """

    # Which pairs are compared, and the weight of a document: all, and the most precise one.
    method = "all-pairs"
    variant = "default"

    def _estimate(self, cells):
        # All pairs of factors, or documents as a whole where these are too many.
        if self._compares_pairs(cells):
            comparisons = Comparisons.of(cells, self.variant)
            curves = solve(comparisons.totals(), self.method, comparisons.exposure())
            error = self._error_by_formula(cells, comparisons, curves)
            estimate = _of_factors(comparisons, curves.log_examination, error)
        else:
            estimate = _compared_at_once(cells)
        is_connected = np.isfinite(estimate.log_examination).sum() > 1
        if cells.factors.user is None and len(cells.factors) > 1 and not is_connected:
            n_factors_of_doc = np.bincount(cells.doc)
            n_shared = np.count_nonzero(n_factors_of_doc > 1)
            raise NotIdentifiableError(self._not_connected(n_shared, cells))
        return estimate

    def _compares_pairs(self, cells):
        """False where pairs of factors are too many: documents are then compared as a whole."""
        if len(cells.factors) <= MOST_PAIRED.value or cells.factors.user is not None:
            return True
        # What was asked for by name is done, however long it takes.
        return (self.method, self.variant) != ("all-pairs", "default")

    def _error_by_formula(self, cells, comparisons, curves):
        """Standard errors by the formula, which takes longer than the curve; NaN if unused."""
        is_resampled = cells.factors.user is None and self._n_resamples(cells) > 0
        if is_resampled and not are_few_to_resample(cells).any():
            return np.full_like(curves.log_examination, np.nan)
        return curves.standard_error(comparisons)

    def _n_resamples(self, cells):
        """Number of resamples; 0 where the formula alone gives the errors."""
        if self.n_bootstrap != "auto":
            return self.n_bootstrap
        return 0 if len(cells.factors) > MOST_RESAMPLED.value else _N_RESAMPLES

    def _drawn(self, cells, estimate):
        if not (n_resamples := self._n_resamples(cells)):
            return None
        if not self._compares_pairs(cells):
            return super()._drawn(cells, estimate)
        # Totals are sums over queries, so that a resample is a weighted sum of them.
        comparisons = Comparisons.of(cells, self.variant)
        drawn = comparisons.resampled(*resamples(cells, n_resamples, self.random_state))
        exposure = comparisons.exposure()
        curves = [solve(totals, self.method, exposure).log_examination for totals in drawn]
        return comparisons.of_factors(np.concatenate(curves))

    def _with_errors(self, cells, estimate):
        # Resamples underestimate the error of a user, who has few queries.
        if cells.factors.user is not None:
            return estimate(cells)
        return super()._with_errors(cells, estimate)

    def _shrunk(self, cells, own, common):
        comparisons = Comparisons.of(cells, self.variant)
        curves = pooled_curves(comparisons, comparisons.totals(), *common, self.user_shrinkage)
        return _of_factors(comparisons, *curves)


def _of_factors(comparisons, log_examination, standard_error):
    """An estimate by bias factor, of a curve and its errors as :class:`Comparisons` order them."""
    return Estimate(
        comparisons.of_factors(log_examination)[0],
        comparisons.of_factors(standard_error)[0],
    )


def _compared_at_once(cells):
    """The estimate for many factors: documents are compared as a whole, not pair by pair."""
    table = table_of_cells(cells)
    component = table.component
    # The curve is that of the first component that compares anything, relative to its first
    # factor; no click compares the others with it.
    size = np.bincount(component)[component]
    first = int((size > 1).argmax())
    curve = np.where(component == component[first], table.log_examination, np.nan)
    return Estimate(curve - curve[first], table.rough_error(first))


@dataclass(kw_only=True, eq=False, repr=False)
class RandomizedPropensity(_PairwisePropensity):
    r"""Estimate examination from an experiment that exchanges documents at random.

    If chance alone decides which document is shown at which position, click rates of positions
    are proportional to examination, whatever the documents. Two designs are supported:

    - *shuffles*: all documents of a list are in random order;
    - *swaps*: documents at two (or more) positions are exchanged, and all others stay.

    All orders must be equally likely. For swaps with another probability than 1/2, use
    :class:`InterventionHarvesting`.

    Parameters
    ----------
    arm : str, default=None
        Name of the column that says which documents of a query were exchanged at random.

        - Rows of a query with the same value were exchanged with each other, whether or not the
          draw moved them.
        - Rows without a value were not randomised: ``fit`` ignores them, and ``predict`` gives
          them a propensity.
        - None (the default) means that every list was shuffled as a whole. Only lists of equal
          length are then compared.

        :class:`~skultr.simulation.SwapPolicy` and :class:`~skultr.simulation.ShufflePolicy` write
        such a column, ``"arm"``.
    user : str, default=None
        Column (or role ``"user"``): each of its values has a curve. By default all users have
        one curve.
    user_shrinkage : "auto" or float, default="auto"
        How strongly curves of users are pulled toward the common curve. ``"auto"`` estimates how
        much users differ. A number is about the weight of the common curve, in clicks (the
        precision of users' log examination around it). With 0, curves are not pulled.
    n_bootstrap : int, default=0
        Number of resamples of queries for standard errors. With 0, they come from a formula: the
        sandwich of the variation between arms of queries. Resample if clicks of a query are
        correlated for other reasons than relevance. For curves of users the formula is always
        used.
    random_state : int, RandomState instance or None, default=None
        Seed of the resamples.

    Attributes
    ----------
    examination_ : DataFrame
        One row per bias factor (index ``bias``; with ``user``: ``user`` and ``bias``):
        ``examination`` relative to the first factor (of the same user), ``standard_error`` of
        its logarithm, the limits ``lower`` and ``upper`` of a 95 % interval, ``impressions`` and
        ``clicks`` of the randomised rows, and ``component``. A factor that no arm connects to the
        first has NaN, with a warning.
    average_examination_ : DataFrame
        The same for all users together; only with ``user``.
    n_features_in_ : int

    See Also
    --------
    InterventionHarvesting : For logs of several rankers, without an experiment.
    skultr.IdentifiabilityRepair : Plans the fewest swaps that connect all positions.

    Notes
    -----
    The rows of one arm of a query have the same mean relevance, so that

    .. math::
        P(c = 1 \mid k, \text{arm}) = o_k \, \bar r_\text{arm} .

    Examination is estimated by maximum likelihood, given the number of clicks of each arm. With
    one shuffled arm, or swaps of two positions, that is the ratio of click-through rates. Arms
    that overlap are combined as in :class:`InterventionHarvesting`.

    *Users* are combined as there, too: a curve is relative to the user's own first position, where
    users are assumed equal. If some users examine less at all positions, use
    ``RegressionEMPropensity(relevance="embedding")``.

    *Warning.* ``fit`` warns if documents are at the same position more often than by chance: by at
    least 1 % and at least six standard errors. In some ten thousand lists, this detects swaps with
    probability 0.45 instead of 0.5. No log proves that all orders were equally likely.

    References
    ----------
    Joachims, Swaminathan & Schnabel (2017). Unbiased learning-to-rank with biased feedback. WSDM.
    Section 5 (swaps with one position).

    Wang, Bendersky, Metzler & Najork (2016). Learning to rank with selection bias in personal
    search. SIGIR (shuffles).

    Examples
    --------
    In each list the first document was exchanged with the second or the third, or not:

    >>> import pandas as pd
    >>> from skultr.propensity import RandomizedPropensity
    >>> log = pd.DataFrame({
    ...     "qid": 1,
    ...     "doc": ["a", "b", "b", "a", "a", "c", "c", "a"],
    ...     "position": [1, 2, 1, 2, 1, 3, 1, 3],
    ...     "session": [1, 1, 2, 2, 3, 3, 4, 4],
    ...     "arm": [2, 2, 2, 2, 3, 3, 3, 3],
    ...     "impressions": 1000,
    ... })
    >>> click_rate = [0.4, 0.1, 0.2, 0.2, 0.4, 0.05, 0.2, 0.1]
    >>> propensity = RandomizedPropensity(arm="arm").fit(log, click_rate)
    >>> propensity.examination_[["examination", "standard_error", "clicks"]].round(3)
          examination  standard_error  clicks
    bias
    1            1.00           0.000  1200.0
    2            0.50           0.071   300.0
    3            0.25           0.091   150.0
    """

    arm: str | None = None

    _reads_rows = True  # the lists

    _parameter_constraints = {
        **CurvePropensity._parameter_constraints,
        "arm": [str, None],
    }

    def columns_read(self) -> set[str | int]:
        """Names of columns without a role that the estimator reads; rankers drop them."""
        columns = super().columns_read()
        return columns if self.arm is None else columns | {self.arm}

    def _count(self, X, click, names):
        if self.arm is not None:
            by = [*self._factor_columns(names), self.arm]
            return CellCount.of(X, click, by, optional=[self.arm]).cells()
        if self.user not in (None, "user"):
            raise TypeError(
                f"user={self.user!r} and arm=None do not work with an engine: it counts lists of "
                "one length, which are then an arm, for the role 'user' only. Rename the column "
                f"{self.user!r} to 'user', or name a column of arms with arm=."
            )
        return count_lists_of(X, click)

    def _fit(self, X, y, sample_weight, roles):
        users = self._users(X, roles)
        arm = "list length" if self.arm is None else read_column(X, self.arm)
        log = read(X, y, sample_weight, roles, reads=READS)
        cells, row_factor = count_cells(log, user=users, arm=arm)
        if log["doc"] is not None:
            self._check_orders(log, arm, cells, row_factor)
        self._tabulate(cells, self._estimate)

    def _check_orders(self, log, arm, cells, row_factor):
        """Warn if the randomised rows do not look as if all orders were equally likely."""
        rows = np.flatnonzero(row_factor >= 0)
        if self.arm is None:
            # Lists of one length are one arm.
            list_ = log.list_[rows]
            arm = np.bincount(list_)[list_]
        else:
            arm, _ = encode(arm[rows])
        # Rows that were not randomised are left out.
        bias = cells.factors.bias[row_factor[rows]]
        impressions = 1.0 if log["impressions"] is None else log["impressions"][rows]
        _warn_about_unequal_orders(log.query[rows], arm, log["doc"][rows], bias, impressions)

    def _not_connected(self, n_shared, cells):
        if n_shared:
            found = (
                f"found {count_of(n_shared, 'arm')} under several bias factors, without a click"
            )
        else:
            n_factors = len(cells.factors)
            found = f"no arm of a query has rows under two of the {n_factors} bias factors"
        if self.arm is None:
            expected = "lists of several documents in random order"
        else:
            expected = (
                f"one value in the column {self.arm!r} on all rows of a query that exchanged "
                "their documents, moved or not"
            )
        return (
            f"Nothing connects the bias factors: {found}. Expected {expected}. "
            "IdentifiabilityRepair(strategy='intervene') plans which documents to exchange."
        )


@dataclass(kw_only=True, eq=False, repr=False)
class InterventionHarvesting(_PairwisePropensity):
    r"""Estimate examination from documents that rankers showed at different positions.

    Rankers disagree, in A/B tests or when one replaces another. A document that two of them showed
    at different positions has the same relevance at both, so that the ratio of its click rates is
    the ratio of the examinations. No experiment is needed, and no model of relevance.

    Parameters
    ----------
    method : {"all-pairs", "adjacent-chain", "pivot"}, default="all-pairs"
        Which pairs of bias factors are compared.

        - ``"all-pairs"`` compares all of them, and is the most precise.
        - ``"pivot"`` compares each factor with the first only.
        - ``"adjacent-chain"`` compares neighbours, in the order of the codes of the bias factors,
          and multiplies the ratios. Errors accumulate with depth.

    variant : {"default", "published"}, default="default"
        Weight of a document in the comparison of two factors (see Notes). ``"default"`` is
        n m / (n + m), with n and m its impressions under the two; ``"published"`` is 1, as in the
        paper.
    user : str, default=None
        Column (or role ``"user"``): each of its values has a curve, and only clicks of the same
        user are compared. By default all users have one curve.
    user_shrinkage : "auto" or float, default="auto"
        How strongly curves of users are pulled toward the common curve. ``"auto"`` estimates how
        much users differ. A number is about the weight of the common curve, in clicks (the
        precision of users' log examination around it). With 0, curves are not pulled.
    n_bootstrap : "auto" or int, default="auto"
        Number of resamples of queries for standard errors (of documents, if there are fewer than
        30 queries). With 0, they come from a formula: the sandwich of the variation between
        documents. The result is about the same. ``"auto"`` takes 200 resamples up to 50 bias
        factors, and the formula above, because the time of a resample grows with the cube of their
        number. For curves of users the formula is always used, because each has few queries.
    random_state : int, RandomState instance or None, default=None
        Seed of the resamples; an int is also that of the draw of queries in an engine.

    Attributes
    ----------
    examination_ : DataFrame
        One row per bias factor (index ``bias``; with ``user``: ``user`` and ``bias``):
        ``examination`` relative to the first factor (of the same user), ``standard_error`` of
        its logarithm, the limits ``lower`` and ``upper`` of a 95 % interval, ``impressions``,
        ``clicks`` and ``component``. A factor that no comparison connects to the first has NaN,
        with a warning.
    average_examination_ : DataFrame
        The same for all users together; only with ``user``.
    share_of_queries_ : float
        Share of the queries that were read; only if some of a log in an engine were drawn.
    n_features_in_ : int

    Raises
    ------
    NotIdentifiableError
        In ``fit``, if no document was shown under two bias factors.

    See Also
    --------
    RandomizedPropensity : For experiments.
    RegressionEMPropensity : For logs in which each document stays at its position.

    Notes
    -----
    Let :math:`S_{kl}` be the documents that were shown both at k (:math:`n_{dk}` times, with
    :math:`c_{dk}` clicks) and at l. Click *rates* are summed over them, so that the number of
    impressions of each document at each position does not matter (local importance sampling):

    .. math::
        C_{kl} = \sum_{d \in S_{kl}} w_{dkl} \frac{c_{dk}}{n_{dk}}, \qquad
        \mathbb E\, \frac{C_{kl}}{C_{lk}} \approx \frac{o_k}{o_l} .

    With all pairs, examination maximises
    :math:`\sum_{k \neq l} C_{kl} \log \frac{o_k}{o_k + o_l}`: the likelihood of the position at
    which each click of a pair fell, with one relevance per pair. The binomial likelihood of the
    paper, which also counts impressions without a click, had the same errors to three decimals in
    our simulations.

    With ``variant="published"``, :math:`w = 1`: a document that was shown once has the same weight
    as one that was shown a thousand times. The estimate is consistent for any weight that does
    not depend on clicks. With :math:`w = n_{dk} n_{dl} / (n_{dk} + n_{dl})` (Mantel & Haenszel
    1959) the error was half as large if the traffic of queries falls as 1 / rank, and the same if
    all queries are equally frequent.

    *Users.* Only clicks of the same user are compared. A user who saw hardly any document at two
    positions therefore keeps the median curve; group such users (:class:`UserClusters`), or use
    :class:`RegressionEMPropensity`. Per-user curves :math:`\theta_u` of log examination are
    penalised maximum-likelihood estimates:

    .. math::
        \max_{\theta_u} \sum_{k \neq l} C_{ukl} \log
        \frac{e^{\theta_{uk}}}{e^{\theta_{uk}} + e^{\theta_{ul}}}
        - \tfrac12 (\theta_u - m)^\top T^{-1} (\theta_u - m), \qquad
        T = \tau^2 \theta \theta^\top + \sigma^2 I .

    The prior on log examination is normal, centred at :math:`m = \theta - \tfrac12
    \operatorname{diag} T` so that the mean user has the common curve :math:`\theta`, with one
    random slope per user (:math:`\tau`) and one random effect per position (:math:`\sigma`). Both
    variances are estimated from all users, with :math:`C` on the scale of independent clicks. In
    our simulations (power laws, exponents 1 ± 0.4, 500 sessions per user) the mean error of
    examination was 0.04, against 0.08 for unpooled per-user estimates and 0.11 for the common
    curve.

    A curve of a user is relative to the user's own first position: users are assumed equal there.
    If some users examine less at all positions, use
    ``RegressionEMPropensity(relevance="embedding")``, which compares users by the documents that
    several of them saw.

    *Time* grows with the square of the number of positions of a document, and with the cube of
    the number of bias factors that are compared.

    *Above 200 bias factors* pairs are therefore not compared one by one (with the default method
    and variant, without users). The estimate then maximises the likelihood of where the clicks of
    each document fell, given their number. Memory and time are linear, and the estimate is as
    precise. Above 1,500 factors, standard errors take all other factors to be known, and are too
    small where each factor is linked to few others.

    *Few clicks.* A factor without any click gets half a click, with a warning. For a factor with
    fewer than ten clicks, the standard error is the larger one of resamples and formula.

    *Rankers* must not have been trained on clicks of the sessions in the log. In an A/B test they
    are not.

    References
    ----------
    Agarwal, Zaitsev, Wang, Li, Najork & Joachims (2019). Estimating position bias without
    intrusive interventions. WSDM.

    Examples
    --------
    Two rankers that show the same three documents in different orders:

    >>> import pandas as pd
    >>> from skultr.propensity import InterventionHarvesting
    >>> log = pd.DataFrame({
    ...     "qid": 1,
    ...     "doc": ["a", "b", "c", "b", "c", "a"],
    ...     "session": [1, 1, 1, 2, 2, 2],
    ...     "position": [1, 2, 3, 1, 2, 3],
    ...     "impressions": [800, 800, 800, 200, 200, 200],
    ... })
    >>> click_rate = [0.8, 0.2, 0.05, 0.4, 0.1, 0.2]
    >>> harvesting = InterventionHarvesting(n_bootstrap=0).fit(log, click_rate)
    >>> harvesting.examination_["examination"].round(2).tolist()
    [1.0, 0.5, 0.25]
    """

    method: Literal["all-pairs", "adjacent-chain", "pivot"] = "all-pairs"
    variant: Literal["default", "published"] = "default"
    n_bootstrap: Literal["auto"] | int = "auto"

    _parameter_constraints = {
        **CurvePropensity._parameter_constraints,
        "n_bootstrap": [StrOptions({"auto"}), Interval(Integral, 0, None, closed="left")],
        "method": [StrOptions({"all-pairs", "adjacent-chain", "pivot"})],
        "variant": [StrOptions({"default", "published"})],
    }

    def _not_connected(self, n_shared, cells):
        n_factors = len(cells.factors)
        if n_shared:
            found = (
                f"found {count_of(n_shared, 'document')} under several of the {n_factors} bias "
                f"factors, but no click that method={self.method!r} could compare"
            )
        else:
            found = (
                f"no document was shown under two of the {n_factors} bias factors "
                f"({count_of(cells.n_docs, 'document')})"
            )
        return (
            f"The log cannot separate examination from relevance: {found}. Serve some documents "
            "at several positions, as IdentifiabilityRepair(strategy='intervene') plans it, or "
            "log several rankers. RegressionEMPropensity can use this log, because it compares "
            "positions by the features of documents."
        )


def _warn_about_unequal_orders(query, arm, doc, bias, impressions):
    """Warn if impressions of a document are at the same position more often than by chance.

    With n_dk of the n_d impressions of document d of an arm at position k, and n_k of the n rows
    of the arm there, Σ_d Σ_k n_dk (n_dk - 1) pairs of impressions share a position. By chance
    Σ_k (n_k / n)² of all n_d (n_d - 1) pairs do.
    """
    doc, _ = encode(doc)
    rows = {"query": query, "arm": arm, "doc": doc, "bias": bias, "n": impressions}
    arms = ["query", "arm"]
    n_dk = pd.DataFrame(rows).groupby([*arms, "doc", "bias"])["n"].sum()
    n_k = n_dk.groupby([*arms, "bias"]).sum()
    n_d = n_dk.groupby([*arms, "doc"]).sum()
    chance = (n_k**2).groupby(arms).sum() / n_k.groupby(arms).sum() ** 2
    pairs = _pairs(n_d).groupby(arms).sum()
    expected = (chance * pairs).sum()
    excess = _pairs(n_dk).sum() - expected
    # Counts of n shuffled documents over n positions have (n - 1)^2 degrees of freedom, and the
    # number of pairs has twice its expectation as variance.
    error = np.sqrt(2 * expected)
    most = pairs.sum() - expected
    if excess > max(MOST_IN_PLACE.value * most, MOST_ERRORS.value * error):
        warn_user(
            "Not all orders look equally likely, and RandomizedPropensity is biased if they are "
            f"not: beyond chance, {excess / most:.0%} of the pairs of impressions of a document "
            "share their position. If some rows were not randomised, name the column that "
            "identifies the others (arm=...). If the experiment favoured an order, use "
            "InterventionHarvesting on its rows, which allows that. If documents never "
            "moved, use RegressionEMPropensity.",
            AssumptionWarning,
        )


def _pairs(n):
    """Ordered pairs of n impressions; none of a fraction of one."""
    return (n * (n - 1)).clip(lower=0)


def harvested(
    qid: ArrayLike,
    doc: Ints,
    position: Ints,
    impressions: Floats,
    clicks: Floats,
    n_positions: int,
) -> Floats:  # (2, n_positions)
    """Log examination relative to position 1 and its error, from documents that were shown at
    several of the positions 1, 2, ...; NaN where none were."""
    counted = pd.DataFrame({"qid": qid, "doc": doc, "position": position})
    # Each row is a session of its own; a row counts as its impressions.
    counted = counted.assign(session=np.arange(len(counted)), impressions=impressions)
    # What it warns of has an error to match.
    with suppress(NotIdentifiableError), warnings.catch_warnings(action="ignore"):
        found = InterventionHarvesting(n_bootstrap=0).fit(counted, clicks / impressions)
        table = found.examination_.reindex(range(1, n_positions + 1))
        examination = table["examination"] / table["examination"][1]
        return np.stack([np.log(examination), table["standard_error"]])
    return np.full((2, n_positions), np.nan)
