"""Which pages to serve in order to know examination, or a difference of clicks; at what cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.stats import t as student

from .._base._sklearn import HasMethods, Interval, StrOptions, validate_params
from .._base._typing import ArrayLike, Column, Estimator, Floats, Predictor, Table
from .._log._dataset import ClickDataset
from .._log._roles import read_role
from .._log._segments import TINY, pair_codes
from ..propensity._source import PROPENSITY_CONSTRAINT, propensities
from ..propensity._swap_plans import (
    ENDLESS,
    SwapModel,
    cheapest_shares,
    layouts,
    least,
    moves_of,
    sessions_for,
)
from ..simulation import DeterministicPolicy, MixturePolicy, Policy
from ..simulation._policies import SHUFFLE, Layout, LayoutPolicy
from ._logged_pages import LoggedPages, Pages
from ._thresholds import LEAST_QUERIES, MOST_UNSEEN

_UNIFORM = "uniform swaps with the first position"
_EVEN = "A/B test, half of the pages each"
#: Formats of columns in a summary.
_FORMATS = {
    "queries": ",.0f",
    "sessions": ",.0f",
    "clicks_lost": "z,.1f",
    "share": ".1%",
    "clicks_lost_share": "z.2%",
}


@dataclass(frozen=True, eq=False, repr=False)
class ExperimentPlan:
    """An experiment from :func:`plan_experiment`: what to serve, for how long, at what cost.

    Parameters
    ----------
    sessions : float
        Length of the experiment: sessions of all queries, also of those without an action.
    clicks_lost, clicks_lost_share : float
        Clicks that the experiment is expected to lose: their number, and their share of the
        clicks in these sessions. Negative if it gains clicks.
    actions : DataFrame
        One row per action (index ``action``: what to serve), with the number of ``queries``,
        their ``sessions``, the ``share`` of all sessions, and ``clicks_lost``. A swap exchanges
        each of its pairs of positions with probability 1/2, independently of the others.
    shares : DataFrame
        Probability of each action (columns) for a page of each query (index ``qid``). All other
        pages are served as before.
    precision : DataFrame
        One row per number to be measured: its ``estimate`` from the log, the ``expected``
        half-width, and the ``promised`` one, which 95 % of experiments reach.
    alternatives : DataFrame
        This plan and other designs for the same half-width (index ``design``), with ``sessions``,
        ``clicks_lost`` and ``clicks_lost_share``. The design that loses fewest clicks comes first.
    verdict : str
        What the usual experiment costs, and whether any experiment is needed.
    assumption : str
        Source of the examination that the plan assumes.
    """

    sessions: float
    clicks_lost: float
    clicks_lost_share: float
    actions: pd.DataFrame
    shares: pd.DataFrame
    precision: pd.DataFrame
    alternatives: pd.DataFrame
    verdict: str
    assumption: str
    _layouts: list[Layout] | None = field(repr=False)  # of each action; None for rankings

    def __repr__(self) -> str:
        return (
            f"ExperimentPlan(sessions={self.sessions:.0f}, clicks_lost={self.clicks_lost:z.1f}, "
            f"actions={self.actions.index.tolist()})"
        )

    def summary(self) -> str:
        """The plan in words and tables."""
        change = "gain" if self.clicks_lost < 0 else "lose"
        words = (
            f"{self.sessions:,.0f} sessions, which {change} {abs(self.clicks_lost):,.0f} clicks "
            f"({abs(self.clicks_lost_share):.2%}). {self.verdict} {self.assumption}"
        )
        tables = [_text(table) for table in (self.actions, self.precision, self.alternatives)]
        return "\n\n".join([words, *tables])

    def policy(self, qid: Column, production: Policy | None = None) -> Policy:
        """The experiment as a policy of :func:`~skultr.simulation.simulate_clicks`.

        A plan for a difference takes three columns of scores: production, a and b.

        Parameters
        ----------
        qid : array-like of shape (n_documents,)
            Query ids of the simulated documents. Queries that the log lacks get no action.
        production : Policy, default=None
            Ranks the pages that swaps start from. The default is ``DeterministicPolicy()``.

        Returns
        -------
        policy : Policy

        Raises
        ------
        TypeError
            If ``production`` is no policy, or if the plan is for a difference, which takes none.
        """
        rankings = self._layouts is None
        if production is not None and (rankings or not isinstance(production, Policy)):
            expected = "None, because scores rank production" if rankings else "a Policy"
            raise TypeError(f"production is a {type(production).__name__}; expected {expected}.")
        # Policies count queries in the order of their ids.
        queries = np.unique(np.asarray(qid))
        shares = self.shares.reindex(queries).fillna(0.0).to_numpy()
        if rankings:
            # All other pages are served as before; sums of shares may be above 1 by rounding.
            rest = np.clip(1 - shares.sum(axis=1, keepdims=True), 0, 1)
            return MixturePolicy(np.hstack([rest, shares]))
        depth = len(self.precision)
        return LayoutPolicy(shares, self._layouts, depth, production or DeterministicPolicy())


def _text(table):
    """A table in which counts are whole, and shares are percentages."""
    formats = {name: f"{{:{_FORMATS.get(name, 'z.3f')}}}".format for name in table}
    return table.to_string(formatters=formats)


@validate_params(
    {
        "y": ["array-like", str, None],
        "target": [StrOptions({"examination", "difference"})],
        "half_width": [Interval(Real, 0, None, closed="neither")],
        "scores_a": ["array-like", str, HasMethods(["predict"]), None],
        "scores_b": ["array-like", str, HasMethods(["predict"]), None],
        "k": [Interval(Integral, 2, None, closed="left"), None],
        "sessions": [Interval(Real, 1, None, closed="left"), None],
        "propensity": PROPENSITY_CONSTRAINT,
        "sample_weight": ["array-like", None],
    },
    prefer_skip_nested_validation=True,
)
def plan_experiment(
    X: Table | ClickDataset,
    y: Column | str | None = None,
    *,
    half_width: float,
    target: Literal["examination", "difference"] = "examination",
    scores_a: Predictor | ArrayLike | str | None = None,
    scores_b: Predictor | ArrayLike | str | None = None,
    k: int | None = None,
    sessions: float | None = None,
    propensity: Literal["column"] | ArrayLike | Estimator | None = None,
    sample_weight: Column | None = None,
    **roles: Any,
) -> ExperimentPlan:
    r"""Plan the experiment that measures examination, or a difference of rankings, at least cost.

    Parameters
    ----------
    X : frame, array-like or sparse matrix of shape (n_rows, n_columns), or ClickDataset
        The log, raw or counted (``impressions``).
    y : array-like of shape (n_rows,) or str
        Clicks, numbers of clicks or click rates, or the name of the column of X that holds them.
    half_width : float
        Half-width that the 95 % intervals should have: of examination relative to the first
        position, at every position; or of the difference in clicks per page.
    target : {"examination", "difference"}, default="examination"
        What the experiment measures:

        - ``"examination"``, as ``InterventionHarvesting(n_bootstrap=0)`` reads it. The plan mixes
          swaps of positions, which move documents 1, 2, 3, 5, 8, ... places, and a shuffle.
        - ``"difference"``: clicks per page of ``scores_a`` minus ``scores_b``, as
          ``policy_difference(method="item-position")`` reads it. The plan serves the two rankings.
          A query gets more pages if its clicks are noisier, or if its pages cost fewer clicks.
    scores_a, scores_b : fitted ranker, array-like of shape (n_rows,) or str, default=None
        Scores of the two rankings, as for :func:`policy_difference`.
    k : int, default=None
        Positions 1 to k take part; None for all.
    sessions : float, default=None
        Length of the longest experiment, in sessions of all queries. Longer experiments lose
        fewer clicks. The default is half of what the usual experiment needs for the same
        half-width: uniform swaps with the first position, or an A/B test for a difference. If
        this half is too short, the default is the number needed, at most the whole.
    propensity : "column", array-like of shape (n_positions,), estimator or None, default=None
        Examination to plan with, as for :class:`~skultr.metrics.IPSScorer`. By default it is
        estimated from the log (see Notes).
    sample_weight : array-like of shape (n_rows,), default=None
        Multiplies ``impressions``.
    **roles : array-like of shape (n_rows,)
        ``qid``, ``session``, ``doc``, ``position``, ``impressions``, ``doc_scope`` in place of
        columns.

    Returns
    -------
    plan : ExperimentPlan
        The plan. It has 0 sessions if the log alone gives the half-width.

    Raises
    ------
    ValueError
        If

        - no experiment of so many sessions reaches the half-width,
        - positions are not 1, 2, ...,
        - a position has no click,
        - the rankings are missing or equal, or
        - a role is missing.

    Notes
    -----
    *Assumptions.*

    - Relevance does not change between log and experiment, which are read together.
    - Clicks are position-based.
    - Documents that the log never showed are as relevant as those at the last position.

    *Examination* is estimated from documents that the log shows at several positions, and from a
    prior. The prior says that between a third and all of the fall of click rates (in logarithms)
    is examination (two standard errors around 2/3). A log in one order has only the prior. Where
    the prior decides, the promise is cautious: plan again from the first days of the experiment.

    *Shares* :math:`x_l` of the pages with layout l minimise :math:`\sum_l x_l \text{cost}_l`
    subject to the half-width at each position, which is predicted from the expected clicks of
    each document.

    *Promises* are 95 % quantiles of what experiments would report. Relevance and examination vary
    between these experiments as far as the log leaves them open. In simulations,

    - promises of a difference were kept in 97 % of the experiments (92 % where traffic follows
      Zipf's law, 90 % with users who trust positions). They took at most 1.3 times the sessions
      that keep a promise in 95 %;
    - promises of examination were kept in 85 to 100 %, with as many sessions or, from a log in
      one order, with more.

    *Limits of a difference.* Differences between queries leave a half-width that no length of the
    experiment reduces. Plans near it are long and may miss if a few queries have most of the
    traffic. No design is much shorter than an A/B test that is read together with the log, unless
    the log has one of the rankings: at a place where two rankings differ, a page shows only one
    of their documents.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.evaluation import plan_experiment
    >>> from skultr.simulation import simulate_clicks
    >>> documents = make_ltr(100, n_features=5, random_state=0)
    >>> X, clicks, truth = simulate_clicks(documents, n_positions=5, n_sessions=5_000,
    ...     features=False, random_state=0)
    >>> plan = plan_experiment(X, clicks, half_width=0.1)
    >>> bool(plan.precision["promised"].max() < 0.101)
    True
    >>> uniform = plan.alternatives.loc["uniform swaps with the first position"]
    >>> bool(plan.sessions < 0.55 * uniform["sessions"])
    True
    """
    n_expected = 2 if target == "difference" else 0
    n_given = sum(scores is not None for scores in (scores_a, scores_b))
    if n_given != n_expected:
        raise ValueError(
            f"With target={target!r} expected {'both' if n_expected else 'none'} of scores_a and "
            f"scores_b; got {n_given} of them."
        )
    log = LoggedPages(X, y, sample_weight, roles, "plan_experiment")
    model = read_model(log, k, propensity)
    if target == "examination":
        return _plan_swaps(log, model, half_width, sessions)
    a = log.rank_by(scores_a, k, "scores_a")
    b = log.rank_by(scores_b, k, "scores_b")
    return _plan_rankings(log, model, a, b, half_width, sessions)


def _plan_swaps(log, model, half_width, sessions):
    n_positions = len(model.examination)
    unmoved = np.eye(n_positions)

    def numbers(reached):
        return pd.DataFrame(
            {"estimate": model.examination, **reached._asdict()},
            index=pd.RangeIndex(1, n_positions + 1, name="position"),
        )

    known = model.precision(unmoved, 0)
    whole = model.clicks(unmoved)
    if known.expected.max() <= half_width:
        return _no_plan(log, model, [], numbers(known), [])

    def needed_and_lost(shares, served):
        moves = moves_of(shares, served, n_positions)
        return sessions_for(model, moves, half_width), whole - model.clicks(moves)

    # The usual designs, each layout of which gets as many pages.
    designs = {}
    for name, served in _usual_layouts(n_positions).items():
        even_shares = np.full(len(served), 1 / len(served))
        designs[name] = needed_and_lost(even_shares, served)
    # The cheapest shares within the shortest experiment that suffices.
    layout = layouts(n_positions)
    needed_evenly, _ = designs[_UNIFORM]
    limits = [sessions] if sessions else [part * needed_evenly for part in (0.5, 0.6, 0.8, 1)]
    shares = _cheapest(model, layout, half_width, limits)
    if shares is None:
        needed, design = min((needed, name) for name, (needed, _) in designs.items())
        _refuse(half_width, limits[-1], design, needed)
    needed, lost = needed_and_lost(shares, layout)
    designs["this plan"] = needed, lost
    # Linear programs leave crumbs, which are no layouts to serve.
    kept = np.flatnonzero(shares > 1e-6)
    served = [layout[number] for number in kept]
    lost_of_layout = whole - np.array([_clicks_by_layout(model, each) for each in served])
    sessions_of_layout = needed * shares[kept]
    share_of_query = model.pages / model.sessions
    moves = moves_of(shares, layout, n_positions)
    return _plan(
        log,
        model,
        designs,
        whole,
        names=[_name(each, n_positions) for each in served],
        pages=sessions_of_layout * share_of_query[:, None],
        lost=sessions_of_layout * lost_of_layout,
        usual=_UNIFORM,
        precision=numbers(model.precision(moves, needed)),
        _layouts=served,
    )


def _cheapest(model, layout, half_width, limits):
    """The cheapest shares within the first length that suffices; None if none does."""
    for limit in limits:
        shares = cheapest_shares(model, layout, half_width, limit)
        if shares is not None:
            return shares
    return None


def _clicks_by_layout(model, layout):
    """Clicks per page if all pages have one layout."""
    return model.clicks(moves_of([1.0], [layout], len(model.examination)))


def _usual_layouts(n_positions):
    """Layouts of designs that the plan is compared with."""
    below_first = range(1, n_positions)
    return {
        _UNIFORM: [[(0, place)] for place in below_first],
        "uniform swaps of neighbours": [[(place - 1, place)] for place in below_first],
        f"shuffle of {n_positions} positions": [SHUFFLE],
    }


def _plan_rankings(log, model, a, b, half_width, sessions):
    test = RankingTest(log, model, a, b)
    names = ["ranking a", "ranking b"]

    def numbers(pages, sessions):
        row = [test.difference, *test.half_widths(pages, sessions)]
        return pd.DataFrame([row], ["a minus b"], ["estimate", "expected", "promised"])

    def reaches(pages, sessions):
        return test.half_widths(pages, sessions)[1] <= half_width

    # Both rankings on as many pages of each query, and no experiment at all.
    evenly = test.share[:, None] / [2, 2]
    nothing = np.zeros_like(evenly)
    if reaches(nothing, 0):
        return _no_plan(log, model, names, numbers(nothing, 0), None)
    endless = ENDLESS * evenly
    if not reaches(endless, ENDLESS):
        left, _ = test.half_widths(endless, ENDLESS)
        raise ValueError(
            f"No experiment reaches half_width={half_width:g}, because queries differ too much: "
            f"even the longest one leaves about {left:.3g}. Pass a larger half_width, or a log "
            "with more queries."
        )
    even = least(lambda n: reaches(n * evenly, n), 1, ENDLESS)
    shortest = least(lambda n: reaches(test.designs(n)(_HIGH), n), even / 10, even)
    # A tenth more sessions than the fewest leave a choice between designs.
    limit = sessions or min(even, max(even / 2, 1.1 * shortest))
    if limit < shortest:
        _refuse(half_width, limit, "the shortest", shortest)
    design = test.designs(limit)
    # The lowest price of variance that suffices: clicks count as much as they can.
    price = least(lambda price: reaches(design(price), limit), 1 / _HIGH, _HIGH)
    pages = design(price)
    lost = (pages * test.lost).sum(axis=0)
    lost_evenly = (test.share @ test.lost).mean()
    designs = {"this plan": (limit, lost.sum() / limit), _EVEN: (even, lost_evenly)}
    designs["A/B test, read without the log"] = test.alone(half_width), lost_evenly
    return _plan(
        log,
        model,
        designs,
        test.clicks,
        names=names,
        pages=pages,
        lost=lost,
        usual=_EVEN,
        note=(
            f" No plan takes fewer than {shortest:,.0f}, because a page shows one document at "
            "each place where the rankings differ."
        ),
        precision=numbers(pages, limit),
        _layouts=None,
    )


def _no_plan(log, model, names, precision, layouts):
    """The plan where the log suffices."""
    none = np.zeros((len(model.pages), len(names)))
    plan = _plan(
        log,
        model,
        {"this plan": (0.0, 0.0)},
        1.0,
        names=names,
        pages=none,
        lost=none.sum(axis=0),
        usual="this plan",
        precision=precision,
        _layouts=layouts,
    )
    half_width = precision["expected"].max()
    verdict = f"No experiment is needed: the log alone gives the half-width {half_width:.3g}."
    return replace(plan, verdict=verdict)


def _plan(log, model, designs, whole, *, names, pages, lost, usual, note="", **rest):
    """The plan from (sessions, clicks lost per page) of designs, and its pages by query."""
    # Of each design, clicks lost per page become those of all its sessions.
    table = pd.DataFrame(designs, index=["sessions", "clicks_lost"]).T
    table["clicks_lost_share"] = table["clicks_lost"] / whole
    table["clicks_lost"] *= table["sessions"]
    plan = table.loc["this plan"]
    sessions = pages.sum(axis=0)
    length = max(plan["sessions"], 1)  # 0 of 0 sessions are a share of 0
    other = table.loc[usual]
    verdict = (
        f"The same half-width by {usual}: {other['sessions']:,.0f} sessions, "
        f"{other['clicks_lost']:z,.0f} clicks lost.{note}"
    )
    by_query = model.pages[:, None] * plan["sessions"] / model.sessions
    actions = pd.DataFrame(index=pd.Index(names, name="action"))
    actions["queries"] = (pages > 0).sum(axis=0)
    actions["sessions"] = sessions
    actions["share"] = sessions / length
    actions["clicks_lost"] = lost
    share_of_pages = np.divide(pages, by_query, out=np.zeros_like(pages), where=by_query > 0)
    shares = pd.DataFrame(
        share_of_pages,
        index=pd.Index(log.rows.query_ids, name="qid"),
        columns=actions.index,
    )
    return ExperimentPlan(
        *plan,
        actions,
        shares,
        alternatives=table.rename_axis("design").sort_values("clicks_lost"),
        verdict=verdict,
        assumption=model.source,
        **rest,
    )


def _name(pairs, n_positions):
    if pairs == SHUFFLE:
        return f"shuffle 1 to {n_positions}"
    return "swap " + ", ".join(f"{i + 1}-{j + 1}" for i, j in pairs)


def _refuse(half_width, sessions, design, needed):
    raise ValueError(
        f"No plan of {sessions:,.0f} sessions reaches half_width={half_width:g}: {design} takes "
        f"about {needed:,.0f}. Pass a larger half_width, or more sessions=."
    )


#: Parts of the pages of a query that may get ranking a, and b, in 32nds.
_PARTS = (0, 1, 2, 4, 8, 12, 16, 20, 24, 28, 32)
#: Price of variance, relative to that of clicks, at which clicks do not count.
_HIGH = 1e6


class RankingTest:
    r"""What pages with each ranking tell of the difference.

    At a changed place that the log showed s times and the experiment n times, the click rate has
    the variance c (1 - c) / (s + n).
    """

    def __init__(self, log: LoggedPages, model: SwapModel, a: Pages, b: Pages) -> None:
        both = a.and_of(b)
        self._n = len(model.pages)
        changed = a.changed(b)
        if not changed.any():
            raise ValueError(
                "scores_a and scores_b rank all documents in the same order: there is no "
                "difference to plan for. Pass two different rankings."
            )
        self._model = model
        self._pair = both.pair
        #: Of each row of pages: query and ranking.
        self._key = log.slot_query[both.slot] * 2 + both.ranking
        place = log.slot_position[both.slot].astype(int) - 1
        self._due = np.minimum(model.relevance[both.pair] * model.examination[place], 1)
        self._noise = self._due * (1 - self._due) * changed
        self._usual = log.mean_by_position(log.rate)[both.slot] * changed
        self._shown = model.shown[both.pair, place]
        self._sign = (1 - 2 * both.ranking) * changed
        self._moved = self._sign * model.examination[place]
        # How far the log's own clicks at a place are from what is due.
        cell, there = both.cell()
        _, row_cell = log.shown_cells
        clicks_of_cell = np.bincount(row_cell, log.weight * log.rate)
        rate = clicks_of_cell / np.bincount(row_cell, log.weight)
        self._beyond = (rate[cell] - self._due) * there
        #: Of each query in the traffic.
        self.share = model.pages / model.sessions
        # Queries of equal weight (Kish) that the difference is over.
        changes = self._by_query(changed)
        n_queries = (self.share @ changes) ** 2 / ((self.share * changes) ** 2).sum()
        if n_queries < LEAST_QUERIES.value:
            raise ValueError(
                f"The effective number of queries whose rankings differ is {n_queries:.1f}, and "
                f"policy_difference needs {LEAST_QUERIES.value}. Pass a log with more queries."
            )
        logged = model.relevance * (model.shown @ model.examination)
        logged = np.bincount(model.query, logged, minlength=self._n)
        self._n_logged = np.maximum(model.pages, TINY)
        #: By query and ranking: clicks of a page of the log minus those of a page of the ranking.
        self.lost = (logged / self._n_logged)[:, None] - self._sums(self._due)
        self.clicks = logged.sum() / model.sessions
        self.difference = float(self.share @ self._by_query(self._sign * self._due))
        self._quantile = student.ppf(0.975, n_queries - 1)

    def _sums(self, values):
        return np.bincount(self._key, values, minlength=2 * self._n).reshape(-1, 2)

    def _by_query(self, values):
        return self._sums(values).sum(axis=1)

    def _added(self, pages, sessions):
        """Times that so many sessions show each row: with pages of its ranking, and the others."""
        # Pages of no ranking are as in the log, which showed each row so often per page.
        other_pages = np.maximum(sessions * self.share - pages.sum(axis=1), 0)
        rest = other_pages / self._n_logged
        return pages.ravel()[self._key] + rest[self._key // 2] * self._shown

    def half_widths(self, pages: Floats, sessions: float = 0.0) -> tuple[float, float]:
        """Mean, and 95 % quantile, of what experiments report together with the log.

        ``pages`` are those with each ranking; in the rest of so many ``sessions`` the pages are as
        in the log.
        """
        # Impressions of each row with the experiment, and the share of new ones.
        added = self._added(pages, sessions)
        total = np.maximum(self._shown + added, 1)
        new = added / total
        due = self.share[self._key // 2] * self._usual
        # What is expected of each query: new clicks are as the model says, old ones as logged.
        mean = self._by_query(self._sign * (self._due + (1 - new) * self._beyond))
        model = self._model
        # Its variance: chance of new clicks, and relevance that the log does not know.
        variance = self._by_query(self._noise * new / total)
        doubt = np.bincount(self._pair, self._moved * new, minlength=len(model.doubt)) ** 2
        variance += np.bincount(model.query, doubt * model.doubt, minlength=self._n)
        # Places that no page may show.
        unseen = due * np.exp(-self._shown - added)
        beyond_most = self._sums(unseen - MOST_UNSEEN.value * due).sum(axis=0)
        is_seen = (beyond_most <= 0).all()
        # Moments of what is reported, a weighted sum of squares of normal deviations from the
        # mean of queries. Shares of queries in the traffic vary, too.
        apart = (mean - mean @ self.share) ** 2
        variance = (1 - 2 * self.share) * variance + self.share**2 @ variance
        squares = self.share**2 + self.share * sessions / (sessions + model.sessions) ** 2
        expected = squares @ (apart + variance)
        spread = squares**2 @ (2 * variance**2 + 4 * apart * variance) / max(expected**2, TINY)
        half = self._quantile * np.sqrt(expected * self._n / (self._n - 1))
        mean, high = _root_of_squares(spread)
        return half * mean, half * high if is_seen else np.inf

    def alone(self, half_width: float) -> float:
        """Sessions of an A/B test whose mean clicks per page are compared."""
        clicks = self._sums(self._due)
        chance = self._sums(self._due * (1 - self._due))
        # Chance of the clicks of a page, and what queries differ by.
        apart = clicks - self.share @ clicks
        variance = self.share @ (chance + apart**2)
        # Half of the sessions each, at the usual 95 %.
        return 2 * variance.sum() * (1.96 / half_width) ** 2

    def designs(self, sessions: float) -> Callable[[float], Floats]:
        """Pages with each ranking that lose the fewest clicks, by the price of variance."""
        parts = np.array([(a, b) for a, b in product(_PARTS, repeat=2) if a + b <= 32]) / 32
        splits = sessions * self.share[:, None] * parts[:, None]
        noise = []
        for pages in splits:
            shown = np.maximum(self._shown + self._added(pages, sessions), 1)
            noise.append(self._by_query(self._noise / shown))
        variance = self.share**2 * noise
        # Lagrange: each query takes the split that is cheapest at the price of variance.
        # A page of the experiment costs a little in any case: pages as before win ties.
        cost = ((self.lost + 1e-3 * self.clicks) * splits).sum(axis=2)
        variance *= sessions * self.clicks / variance.mean(axis=0).sum()
        return lambda price: splits[(cost + price * variance).argmin(axis=0), range(self._n)]


def _root_of_squares(spread):
    """Mean, and 95 % quantile, of the root of a sum of squares of normal deviations, relative to
    the root of its mean; ``spread`` is the variance of the sum over its squared mean."""
    # The second order of the root around the mean.
    mean = 1 - spread / 8
    # Quantile of a sum of squares by Wilson and Hilferty: its cube root is nearly normal.
    # A plan promises what 95 % of experiments reach: the normal quantile 1.6449.
    high = (1 - spread / 9 + 1.6449 * np.sqrt(spread) / 3) ** 1.5
    return mean, high


def read_model(log, k, propensity):
    """The model of the first k positions."""
    positions = np.unique(log.slot_position).astype(int)[:k]
    n = len(positions)
    least = max(k or 2, 2)
    if n < least or (positions != np.arange(1, n + 1)).any():
        raise ValueError(
            f"The log has the positions {positions[:10].tolist()}; expected 1, 2, ... without "
            f"gaps, and at least {least}. Pass k= to plan for the first ones that it has."
        )
    place = log.slot_position[log.slot].astype(int) - 1
    inside = place < n
    cell = pair_codes(log.pair[log.row], place, n)[inside]
    # Impressions and clicks of each document of a query (rows) by position (columns).
    n_cells = len(log.pair_query) * n
    shown = np.bincount(cell, log.weight[inside], n_cells).reshape(-1, n)
    clicks_of_row = (log.weight * log.rate)[inside]
    clicks = np.bincount(cell, clicks_of_row, n_cells).reshape(-1, n)
    rate = clicks.sum(axis=0) / shown.sum(axis=0)
    if not rate.all():
        raise ValueError(
            f"The log has no click at position {positions[rate == 0][0]}, so that no experiment "
            "can be planned for it. Pass a smaller k, or a longer log."
        )
    given = None
    if propensity is not None or read_role(log.X, "propensity", None) is not None:
        by_row, _ = propensities(propensity, log)
        # Means over impressions, relative to the first position.
        given_of_rows = np.asarray(by_row, dtype=float)[log.row]
        by_slot = log.mean_by_position(given_of_rows)
        _, first_slot = np.unique(log.slot_position, return_index=True)
        given = by_slot[first_slot][:n]
        # NaN is not above 0, either.
        if not (given > 0).all():
            raise ValueError("A propensity is 0 or missing; expected numbers above 0.")
        given /= given[0]
    return SwapModel.of_counts(log.pair_query, log.query_pages, shown, clicks, given)
