"""Examination by comparing click rates: in experiments, and in logs of several rankers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from .._base._sklearn import StrOptions
from .._log._aggregate import count_lists_of
from .._log._cells import READS, count_cells
from .._log._counted import count_cells_of
from .._log._faults import count_of
from .._log._reader import read
from .._log._roles import read_column
from .._log._segments import encode
from ..exceptions import AssumptionWarning, NotIdentifiableError, warn_user
from ._comparisons import Comparisons, pooled_curves, solve
from ._curves import CurvePropensity, Estimate, resamples

#: A warning is due if the share of impressions at the same position exceeds chance by this much,
#: and by so many standard errors.
_MOST_IN_PLACE, _MOST_ERRORS = 0.01, 6


class _PairwisePropensity(CurvePropensity):
    """Curves by pairwise comparison of bias factors, over documents (or arms) shown under both.

    Subclasses define the message ``_not_connected``.
    """

    # Which pairs are compared, and the weight of a document: all, and the most precise one.
    method = "all-pairs"
    variant = "default"

    def _estimate(self, cells):
        comparisons = Comparisons.of(cells, self.variant)
        curves = solve(comparisons.totals(), self.method, comparisons.mean_weight())
        is_connected = np.isfinite(curves.log_examination).sum() > 1
        if cells.factors.user is None and len(cells.factors) > 1 and not is_connected:
            n_shared = len(np.unique(comparisons.doc))
            raise NotIdentifiableError(self._not_connected(n_shared, cells))
        found = curves.log_examination, curves.standard_error(comparisons)
        return Estimate(*(comparisons.of_factors(values)[0] for values in found))

    def _drawn(self, cells, estimate):
        comparisons = Comparisons.of(cells, self.variant)
        weight = comparisons.mean_weight()
        drawn = []
        for totals in comparisons.resampled(
            *resamples(cells, self.n_bootstrap, self.random_state)
        ):
            curves = solve(totals, self.method, weight).log_examination
            drawn.append(comparisons.of_factors(curves))
        return np.concatenate(drawn)

    def _with_errors(self, cells, estimate):
        # Each user has few queries, so that resamples underestimate the error; the formula does
        # not.
        if cells.factors.user is not None:
            return estimate(cells)
        return super()._with_errors(cells, estimate)

    def _shrunk(self, cells, own, common):
        if self.user_shrinkage == 0:
            return own
        comparisons = Comparisons.of(cells, self.variant)
        totals = comparisons.totals()
        curves = pooled_curves(comparisons, totals, *common, self.user_shrinkage)
        return Estimate(*(comparisons.of_factors(values)[0] for values in curves))


@dataclass(kw_only=True, eq=False, repr=False)
class RandomizedPropensity(_PairwisePropensity):
    r"""Examination from an experiment that exchanges documents at random.

    If chance alone decides which document is shown at which position, click rates of positions
    are proportional to examination, whatever the documents. Two designs are supported: lists
    whose documents were all *shuffled*, and *swaps*, in which documents at two (or more)
    positions are exchanged and all others stay. All orders must be equally likely. For swaps with
    another probability than 1/2, use :class:`InterventionHarvesting`.

    Parameters
    ----------
    arm : str, default=None
        Name of the column of the frame that identifies the rows of a query whose documents were
        exchanged at random: rows with the same value were, whether or not the draw moved them.
        Rows where it is missing were not randomised; they are not used by ``fit`` but get a
        propensity from ``predict``. :class:`~skultr.simulation.SwapPolicy` and
        :class:`~skultr.simulation.ShufflePolicy` write such a column, ``"arm"``. By default
        (None) every list was shuffled as a whole; only lists of equal length are then compared.
    user : str, default=None
        Column (or role ``"user"``): each of its values has a curve. By default all users have
        one curve.
    user_shrinkage : "auto" or float, default="auto"
        How strongly curves of users are pulled toward the common curve. ``"auto"`` estimates how
        much users differ. A number is the precision of users' log examination around the common
        curve: about the weight of the common curve, in clicks. With 0 nothing is pulled.
    n_bootstrap : int, default=0
        Number of resamples of queries for standard errors. With 0, errors follow from the
        variation between arms of queries (sandwich formula). Resample if clicks of a query are
        correlated for other reasons than relevance. Errors of curves of users always follow from
        the formula.
    random_state : int, RandomState instance or None, default=None
        Seed of the resamples.

    Attributes
    ----------
    examination_ : DataFrame
        One row per bias factor (index ``bias``; with ``user``: ``user`` and ``bias``):
        ``examination`` relative to the first factor (of the same user), ``standard_error`` of
        its logarithm, the limits ``lower`` and ``upper`` of a 95 % interval, ``impressions`` and
        ``clicks`` of the randomised rows, and ``component``. NaN, with a warning, if no arm
        connects a factor to the first.
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
    that overlap are combined as in :class:`InterventionHarvesting`, and so are users: a curve is
    relative to the user's own first position, where users are assumed equal. If some users
    examine less at all positions, use ``RegressionEMPropensity(relevance="embedding")``.

    ``fit`` warns if documents are at the same position more often than by chance, by at least 1 %
    and six standard errors. That detects swaps with probability 0.45 in logs of some ten
    thousand lists; no log proves that all orders were equally likely.

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
        return super().columns_read() | ({self.arm} - {None})

    def _count(self, X, click, names):
        if self.arm is not None:
            by = [*self._factor_columns(names), self.arm]
            return count_cells_of(X, click, by, optional=[self.arm])
        if self.user not in (None, "user"):
            raise TypeError(
                f"user={self.user!r} and arm=None: rows of one arm are those of lists of one "
                "length, which an engine counts for the role 'user' only. Rename the column "
                f"{self.user!r} to 'user', or name a column of arms with arm=."
            )
        return count_lists_of(X, click)

    def _fit(self, X, y, sample_weight, roles):
        users = self._users(X, roles)
        arm = "list length" if self.arm is None else read_column(X, self.arm)
        log = read(X, y, sample_weight, roles, reads=READS)
        cells, row_factor = count_cells(log, user=users, arm=arm)
        rows = np.flatnonzero(row_factor >= 0)
        if self.arm is None:
            list_ = log.list_[rows]
            arm = np.bincount(list_)[list_]
        else:
            arm = encode(arm[rows])[0]
        if log["doc"] is not None:
            bias = cells.factors.bias[row_factor[rows]]
            impressions = None if log["impressions"] is None else log["impressions"][rows]
            _warn_about_unequal_orders(log.query[rows], arm, log["doc"][rows], bias, impressions)
        self._tabulate(cells, self._estimate)

    def _not_connected(self, n_shared, cells):
        found = f"no arm of a query has rows under two of the {len(cells.factors)} bias factors"
        if n_shared:
            found = (
                f"found {count_of(n_shared, 'arm')} under several bias factors, without a click"
            )
        expected = "lists of several documents in random order"
        if self.arm is not None:
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
    r"""Examination from documents that several rankers showed at different positions.

    Rankers that are compared in A/B tests, or replace each other over time, disagree. A document
    that two of them showed at different positions has the same relevance at both, so that the
    ratio of its click rates is the ratio of the examinations. No experiment is needed, and no
    model of relevance.

    Parameters
    ----------
    method : {"all-pairs", "adjacent-chain", "pivot"}, default="all-pairs"
        Which pairs of bias factors are compared. ``"all-pairs"`` uses all of them and is the
        most precise. ``"pivot"`` compares each factor with the first only. ``"adjacent-chain"``
        compares neighbours, in the order of the codes of the bias factors, and multiplies the
        ratios, so that errors accumulate with depth.
    variant : {"default", "published"}, default="default"
        Weight of a document in the comparison of two factors: n m / (n + m), with n and m its
        impressions under the two, or 1 as in the paper; see Notes.
    user : str, default=None
        Column (or role ``"user"``): each of its values has a curve, and only clicks of the same
        user are compared. By default all users have one curve.
    user_shrinkage : "auto" or float, default="auto"
        How strongly curves of users are pulled toward the common curve. ``"auto"`` estimates how
        much users differ. A number is the precision of users' log examination around the common
        curve: about the weight of the common curve, in clicks. With 0 nothing is pulled.
    n_bootstrap : int, default=200
        Number of resamples of queries for standard errors (of documents, if there are fewer than
        30 queries). With 0, errors follow from the variation between documents (sandwich
        formula), with about the same result. Errors of curves of users always follow from the
        formula, because each user has few queries.
    random_state : int, RandomState instance or None, default=None
        Seed of the resamples.

    Attributes
    ----------
    examination_ : DataFrame
        One row per bias factor (index ``bias``; with ``user``: ``user`` and ``bias``):
        ``examination`` relative to the first factor (of the same user), ``standard_error`` of
        its logarithm, the limits ``lower`` and ``upper`` of a 95 % interval, ``impressions``,
        ``clicks`` and ``component``. NaN, with a warning, if no comparison connects a factor to
        the first.
    average_examination_ : DataFrame
        The same for all users together; only with ``user``.
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

    *Memory* grows with the square of the number of positions of a document: about 0.1 kB per
    ordered pair of positions. A hundred thousand documents at 10 positions each take 0.9 GB, at
    50 positions about 25 GB; with so many, map deep positions to one bias factor. Time grows with
    the cube of the number of bias factors that are compared, once per resample: thousands of them
    need ``n_bootstrap=0``. Factors that nothing compares cost nothing.

    A factor without any click gets half a click, with a warning. The rankers must not have been
    trained on clicks of the sessions in the log; in an A/B test they are not.

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
    n_bootstrap: int = 200

    _parameter_constraints = {
        **CurvePropensity._parameter_constraints,
        "method": [StrOptions({"all-pairs", "adjacent-chain", "pivot"})],
        "variant": [StrOptions({"default", "published"})],
    }

    def _not_connected(self, n_shared, cells):
        n_factors = len(cells.factors)
        found = (
            f"no document was shown under two of the {n_factors} bias factors "
            f"({count_of(cells.n_docs, 'document')})"
        )
        if n_shared:
            found = (
                f"found {count_of(n_shared, 'document')} under several of the {n_factors} bias "
                f"factors, but no click that method={self.method!r} could compare"
            )
        return (
            f"The log cannot tell examination from relevance: {found}. Serve some documents at "
            "several positions, as IdentifiabilityRepair(strategy='intervene') plans it, or log "
            "several rankers. RegressionEMPropensity can use this log, because it compares "
            "positions by the features of documents."
        )


def _warn_about_unequal_orders(query, arm, doc, bias, impressions):
    """Warn if impressions of a document are at the same position more often than by chance.

    With n_dk of the n_d impressions of document d of an arm at position k, and n_k of the n rows
    of the arm there, Σ_d Σ_k n_dk (n_dk - 1) pairs of impressions share a position. By chance
    Σ_k (n_k / n)² of all n_d (n_d - 1) pairs do.
    """
    table = pd.DataFrame(
        {
            "query": query,
            "arm": arm,
            "doc": encode(doc)[0],
            "bias": bias,
            "n": 1.0 if impressions is None else impressions,
        }
    )
    cells = table.groupby(["query", "arm", "doc", "bias"])["n"].sum()
    places = cells.groupby(["query", "arm", "bias"]).sum()
    arms = ["query", "arm"]
    chance = (places**2).groupby(arms).sum() / places.groupby(arms).sum() ** 2
    pairs = _pairs(cells.groupby([*arms, "doc"]).sum()).groupby(arms).sum()
    expected = (chance * pairs).sum()
    excess = _pairs(cells).sum() - expected
    # Counts of n shuffled documents over n positions have (n - 1)^2 degrees of freedom, and the
    # number of pairs has twice its expectation as variance.
    error, most = np.sqrt(2 * expected), pairs.sum() - expected
    if excess > max(_MOST_IN_PLACE * most, _MOST_ERRORS * error):
        warn_user(
            "Not all orders look equally likely, and RandomizedPropensity is biased if they are "
            f"not: beyond chance, {excess / most:.0%} of the pairs of impressions of a document "
            "share their position. If some rows were not randomised, name the column that "
            "identifies the others (arm=...). If the experiment favoured an order, use "
            "InterventionHarvesting on its rows, which needs no fair coin; if documents never "
            "moved, use RegressionEMPropensity.",
            AssumptionWarning,
        )


def _pairs(n):
    return (n * (n - 1)).clip(lower=0)
