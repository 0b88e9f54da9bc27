"""Examination by counting clicks: in experiments, and where rankers disagreed."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from .._log._cells import READS, count_cells
from .._log._reader import read
from .._log._roles import read_column
from .._log._segments import encode
from .._sklearn import StrOptions
from ..exceptions import AssumptionWarning, NotIdentifiableError, warn_user
from ._comparisons import Comparisons, solve
from ._curves import CurvePropensity, Estimate, resamples
from ._pooling import pooled_curves

__all__ = ["InterventionHarvesting", "RandomizedPropensity"]


_ROLES_OF_PLACE = ("qid", "doc", "session", "impressions")


#: Share of impressions of a document in one place beyond chance, and how many times its standard
#: error, from which on lists look as if some orders were likelier than others.
_MOST_IN_PLACE, _MOST_ERRORS = 0.01, 6


class _PairwisePropensity(CurvePropensity):
    """Curves by comparison of bias factors over the units that were shown under both.

    Subclasses say what is compared in ``_method`` and ``_pair_weight``, and write ``_no_link``.
    """

    def _estimate(self, cells):
        comparisons = Comparisons.of(cells, self._pair_weight())
        curves = solve(comparisons.totals(), self._method(), comparisons.mean_worth())
        factors = cells.factors
        if factors.user is None and len(factors) > 1:
            self._refuse_without_links(curves, comparisons, cells)
        place = comparisons.place_of_factor
        return Estimate(
            curves.log_examination.ravel()[place],
            curves.standard_error(comparisons).ravel()[place],
        )

    def _drawn(self, cells, estimate):
        comparisons = Comparisons.of(cells, self._pair_weight())
        worth, place = comparisons.mean_worth(), comparisons.place_of_factor
        drawn = []
        for totals in comparisons.resampled(
            *resamples(cells, self.n_bootstrap, self.random_state)
        ):
            curves = solve(totals, self._method(), worth).log_examination
            drawn.append(curves.reshape(-1, worth.shape[0] * worth.shape[1])[:, place])
        return np.concatenate(drawn)

    def _with_errors(self, cells, estimate):
        # Few queries of a user hardly vary over resamples; the formula knows that they might.
        if cells.factors.user is not None:
            return estimate(cells)
        return super()._with_errors(cells, estimate)

    def _shrunk(self, cells, own, common):
        if self.user_shrinkage == 0:
            return own
        comparisons = Comparisons.of(cells, self._pair_weight())
        totals = comparisons.totals()
        curves = pooled_curves(comparisons, totals, *common, self.user_shrinkage)
        return Estimate(*(part.ravel()[comparisons.place_of_factor] for part in curves))

    def _refuse_without_links(self, curves, comparisons, cells):
        if np.isfinite(curves.log_examination).sum() > 1:
            return
        n_shared = len(np.unique(comparisons.unit))
        raise NotIdentifiableError(self._no_link(n_shared, cells))


@dataclass(kw_only=True, eq=False, repr=False)
class RandomizedPropensity(_PairwisePropensity):
    r"""Examination from an experiment that exchanges documents at random.

    Where chance alone decides which document is shown at which position, the click rates of the
    positions are to each other as their examinations, whatever the documents. Two designs are
    read: lists whose documents were all *shuffled*, and *swaps*, in which documents at two (or
    more) positions change places and all others stay. Each order must be equally likely: for
    swaps that happen with another probability than 1/2, use :class:`InterventionHarvesting`.

    Parameters
    ----------
    arm : str, default=None
        Name of the column of the frame that says which rows of a query exchanged their documents
        at random: rows with the same value did, whether or not the draw moved them. Rows where
        it is missing were left in place; they are left out of the fit and get a propensity all
        the same. :class:`~skultr.simulation.SwapPolicy` and
        :class:`~skultr.simulation.ShufflePolicy` write such a column, ``"arm"``. By default
        (None) every list was shuffled as a whole; lists of different length are then compared
        with their like.
    user : str, default=None
        Column (or role ``"user"``) whose values have a curve each. By default all have one.
    user_shrinkage : "auto" or float, default="auto"
        How strongly curves of users are pulled toward that of all. ``"auto"`` learns from the
        users how far, and how, curves differ. A number is the precision of the log examination
        of users around the common one, about the number of clicks that the common curve is
        worth; 0 leaves each on its own.
    n_bootstrap : int, default=0
        Resamples of queries for standard errors. By default they follow from how far the
        arms of queries contradict each other; resample where the clicks of a query hang together
        in other ways than by its relevance. Errors of curves of users always follow from clicks.
    random_state : int, RandomState instance or None, default=None
        Seed of the resamples.

    Attributes
    ----------
    examination_ : DataFrame
        By bias factor (index ``bias``; with ``user``: ``user`` and ``bias``): ``examination``
        relative to the first factor (of the same user), ``standard_error`` of its logarithm, the
        limits ``lower`` and ``upper`` of a 95 % interval, ``impressions`` and ``clicks`` of the
        randomised rows, and ``component``. NaN, with a warning, where no arm links a factor to
        the first.
    average_examination_ : DataFrame
        The same for all users together; only with ``user``.
    n_features_in_ : int

    See Also
    --------
    InterventionHarvesting : For logs of several rankers, without an experiment.
    skultr.IdentifiabilityRepair : Plans the fewest swaps that link all positions.

    Notes
    -----
    The rows of one arm of a query share one mean relevance, so that

    .. math::
        P(c = 1 \mid k, \text{arm}) = o_k \, \bar r_\text{arm} .

    Examination is the likeliest, given how many clicks each arm had: with one shuffled arm the
    ratio of click-through rates, with swaps of two positions the ratio of the two. Arms that
    overlap are combined as in :class:`InterventionHarvesting`, and so are users: curves are
    relative to each user's own first position, where users are taken as equal. Where some look
    less at all, use ``RegressionEMPropensity(relevance="embedding")``.

    Fit warns where documents came to the same place more often than chance makes it, by at least
    1 % and six standard errors. That finds swaps with probability 0.45 in logs of some ten
    thousand lists; no log tells a fair coin for sure.

    References
    ----------
    Joachims, Swaminathan & Schnabel (2017). Unbiased learning-to-rank with biased feedback. WSDM.
    Section 5 (swaps with one position).

    Wang, Bendersky, Metzler & Najork (2016). Learning to rank with selection bias in personal
    search. SIGIR (shuffles).

    Examples
    --------
    In each list the first document changed places with the second or the third, or not:

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

    _parameter_constraints = {
        **CurvePropensity._parameter_constraints,
        "arm": [str, None],
    }

    def columns_read(self):
        """Names of columns without a role that the estimator reads; no ranker's features."""
        return super().columns_read() | ({self.arm} - {None})

    def _fit(self, X, y, sample_weight, roles):
        users = None if self.user is None else self._read_users(X, roles)
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
            _warn_about_favoured_orders(log.query[rows], arm, log["doc"][rows], bias, impressions)
        self._tabulate(cells, self._estimate)

    def _method(self):
        return "all-pairs"

    def _pair_weight(self):
        return "impressions"

    def _no_link(self, n_shared, cells):
        found = f"no arm of a query has rows under two of the {len(cells.factors)} bias factors"
        if n_shared:
            found = f"the {n_shared} arms of queries under several bias factors have no click"
        expected = "lists of several documents in random order"
        if self.arm is not None:
            expected = (
                f"one value in the column {self.arm!r} on all rows of a query that exchanged "
                "their documents, moved or not"
            )
        return (
            f"Nothing links the bias factors: {found}. Expected {expected}. "
            "IdentifiabilityRepair(strategy='intervene') plans which documents to exchange."
        )


@dataclass(kw_only=True, eq=False, repr=False)
class InterventionHarvesting(_PairwisePropensity):
    r"""Examination from documents that several rankers showed at different positions.

    Rankers that are compared in A/B tests, or replace each other over time, disagree. A document
    that two of them put at different positions has the same relevance at both, and its click
    rates there are to each other as the examinations. No experiment is needed, and no model of
    relevance.

    Parameters
    ----------
    method : {"all-pairs", "adjacent-chain", "pivot"}, default="all-pairs"
        Which pairs of bias factors are compared. ``"all-pairs"`` reads all of them and is the
        most precise. ``"pivot"`` compares each factor with the first only; ``"adjacent-chain"``
        compares neighbours, in the order of the codes of the bias factors, and multiplies the
        ratios up: errors add up with depth.
    variant : {"default", "published"}, default="default"
        How much a document counts in the comparison of two factors: n m / (n + m), with n and m
        its impressions under the two, or 1 as in the paper; see Notes.
    user : str, default=None
        Column (or role ``"user"``) whose values have a curve each; only clicks of the same user
        are then compared. By default all have one.
    user_shrinkage : "auto" or float, default="auto"
        How strongly curves of users are pulled toward that of all. ``"auto"`` learns from the
        users how far, and how, curves differ. A number is the precision of the log examination
        of users around the common one, about the number of clicks that the common curve is
        worth; 0 leaves each on its own.
    n_bootstrap : int, default=200
        Resamples of queries for standard errors (of documents, where there are fewer than 30
        queries). 0: errors follow from how far documents contradict each other, with about the
        same result. Those of users always do: few queries of a user hardly vary over resamples.
    random_state : int, RandomState instance or None, default=None
        Seed of the resamples.

    Attributes
    ----------
    examination_ : DataFrame
        By bias factor (index ``bias``; with ``user``: ``user`` and ``bias``): ``examination``
        relative to the first factor (of the same user), ``standard_error`` of its logarithm, the
        limits ``lower`` and ``upper`` of a 95 % interval, ``impressions``, ``clicks`` and
        ``component``. NaN, with a warning, where no comparison links a factor to the first.
    average_examination_ : DataFrame
        The same for all users together; only with ``user``.
    n_features_in_ : int

    Raises
    ------
    NotIdentifiableError
        By ``fit``, if no document was shown under two bias factors.

    See Also
    --------
    RandomizedPropensity : For experiments.
    RegressionEMPropensity : For logs in which each document stays at its position.

    Notes
    -----
    Over the documents :math:`S_{kl}` that were shown both at k (:math:`n_{dk}` times, with
    :math:`c_{dk}` clicks) and at l, click *rates* are summed, so that it doesn't matter how often
    each document was shown where (local importance sampling):

    .. math::
        C_{kl} = \sum_{d \in S_{kl}} w_{dkl} \frac{c_{dk}}{n_{dk}}, \qquad
        \mathbb E\, \frac{C_{kl}}{C_{lk}} \approx \frac{o_k}{o_l} .

    All pairs together maximise
    :math:`\sum_{k \neq l} C_{kl} \log \frac{o_k}{o_k + o_l}`: the likelihood of which side of its
    pair each click fell on, with one relevance a pair. The binomial likelihood of the paper,
    which also counts impressions without a click, had the same errors to three decimals in our
    simulations.

    With ``variant="published"``, :math:`w = 1`, a document that was shown once counts as much as
    one that was shown a thousand times. Any weight that does not look at clicks is right on
    average; with :math:`w = n_{dk} n_{dl} / (n_{dk} + n_{dl})` (Mantel & Haenszel 1959) the
    error was half as large where the traffic of queries falls as 1 / rank, and the same where
    all queries are asked alike.

    *Users.* Only what one user clicked is compared, so that a user who sees hardly a document at
    two positions keeps that of the median user; group such users (:class:`UserClusters`), or use
    :class:`RegressionEMPropensity`. Curves of users are penalised likeliest, log examination
    being normal around the median, so that its mean is the common curve. Users differ in how
    steeply their curves fall, so that what one did at the top tells of the depths, and at each
    position on its own; how far they do is learned from all. In our simulations (power laws,
    exponents 1 ± 0.4, 500 sessions a user) the mean error of examination was 0.04; 0.08 of each
    user's own estimate; 0.11 of the common curve.

    Curves of users are relative to each user's own first position: users are taken as equal
    there. Where some look less at all, use ``RegressionEMPropensity(relevance="embedding")``,
    in which documents that several users saw tie the levels of the users.

    *Memory* grows with the square of the positions that a document had: about 0.1 kB for each
    ordered pair of them. A hundred thousand documents at 10 positions each take 0.9 GB, at 50
    positions about 25 GB; there, map deep positions to one bias factor.

    A factor without any click gets half a click, with a warning. Rankers must not see clicks of
    the sessions that they are compared on, as those of an A/B test don't.

    References
    ----------
    Agarwal, Zaitsev, Wang, Li, Najork & Joachims (2019). Estimating position bias without
    intrusive interventions. WSDM.

    Examples
    --------
    Two rankers, which show the same three documents in different order:

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

    method: str = "all-pairs"
    variant: str = "default"
    n_bootstrap: int = 200

    _parameter_constraints = {
        **CurvePropensity._parameter_constraints,
        "method": [StrOptions({"all-pairs", "adjacent-chain", "pivot"})],
        "variant": [StrOptions({"default", "published"})],
    }

    def _method(self):
        return self.method

    def _pair_weight(self):
        return "equal" if self.variant == "published" else "impressions"

    def _no_link(self, n_shared, cells):
        n_factors = len(cells.factors)
        found = (
            f"no document was shown under two of the {n_factors} bias factors "
            f"({cells.n_docs} documents of queries)"
        )
        if n_shared:
            found = (
                f"the {n_shared} documents that were shown under several of the {n_factors} bias "
                f"factors have no click that method={self.method!r} could compare"
            )
        return (
            f"The log cannot tell examination from relevance: {found}. Serve some documents at "
            "several positions, as IdentifiabilityRepair(strategy='intervene') plans it, or log "
            "several rankers; RegressionEMPropensity does with what there is, as it ties "
            "positions by the features of documents."
        )


def _warn_about_favoured_orders(query, arm, doc, bias, impressions):
    """Compare how often two impressions of a document are at one place with what chance makes.

    Chance takes places as the rows of the arm are spread over them.
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
    # In a shuffled list the counts of n documents over n places vary as (n - 1)^2 free ones: the
    # variance of their pairs is twice the expected number.
    error, most = np.sqrt(2 * expected), pairs.sum() - expected
    if excess > max(_MOST_IN_PLACE * most, _MOST_ERRORS * error):
        warn_user(
            "Not all orders look equally likely, and RandomizedPropensity is biased if they are "
            f"not: {excess / most:.0%} of the impressions of a document are at the same place "
            "beyond what chance makes. If some rows were left in place, name the column that says "
            "which were not (arm=...). If the experiment favoured an order, use "
            "InterventionHarvesting on its rows, which needs no fair coin; if documents never "
            "moved, RegressionEMPropensity.",
            AssumptionWarning,
        )


def _pairs(n):
    return (n * (n - 1)).clip(lower=0)
