"""Which ranking users prefer, from the clicks on interleaved lists."""

from __future__ import annotations

from itertools import combinations
from numbers import Real
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import norm

from .._log._reader import take_clicks
from .._log._roles import read_column, read_role
from .._log._segments import TINY
from .._log._teams import read_teams
from .._sklearn import Interval, validate_params
from .._typing import Column, Frame
from ..metrics._cluster_ratios import (
    least_squared_size,
    p_value_of_lead,
    quantile_of_lead,
    ratio_interval,
)
from ..metrics._query_means import holm_adjusted


class InterleavingOutcome(NamedTuple):
    """What :func:`interleaving_outcome` returns.

    Parameters
    ----------
    pairs : DataFrame
        One row per pair of rankings ``a`` and ``b``. Sessions: ``wins_a``, ``wins_b``, ``ties``
        (expected numbers if probabilistic). ``preference``: share of the sessions with a winner
        that b won, with its interval ``lower``, ``upper`` (of each pair alone). ``p_value`` of no
        preference, corrected for the number of pairs (Holm). ``clicks``: credited to b minus a,
        per session, with ``clicks_lower``, ``clicks_upper`` (NaN in too few clusters).
        ``sessions_needed`` in addition. ``verdict`` in words.
    verdict : str
        All verdicts.
    """

    pairs: pd.DataFrame
    verdict: str

    def __repr__(self) -> str:
        return f"InterleavingOutcome(verdict={self.verdict!r})"


_PROBABILITY = [Interval(Real, 0, 1, closed="neither")]


@validate_params(
    {
        "X": "no_validation",
        "y": "no_validation",
        "cluster": [str],
        "effect": [Interval(Real, 0, 0.5, closed="neither"), None],
        "confidence_level": _PROBABILITY,
        "power": _PROBABILITY,
        "sequential": ["boolean"],
    },
    prefer_skip_nested_validation=True,
)
def interleaving_outcome(
    X: Frame,
    y: Column | str,
    *,
    cluster: str = "qid",
    effect: float | None = None,
    confidence_level: float = 0.95,
    power: float = 0.8,
    sequential: bool = False,
) -> InterleavingOutcome:
    r"""Which ranking wins more sessions: share, interval, p-value and the traffic still needed.

    Parameters
    ----------
    X : DataFrame of shape (n_rows, n_columns)
        Log of an :class:`Interleaver`: roles ``qid``, ``session``, ``position``, ``team``.
    y : array-like of shape (n_rows,) or str
        Click (0 or 1), or the name of the column of X that holds it.
    cluster : str, default="qid"
        Column of what was drawn independently. By query, the result holds for other queries, too:
        between rankers that are equal over all queries it found a winner in 1 to 6 % of our
        simulations. ``"session"`` asks about the queries of this log alone, and found one in 4 to
        28 %, with traffic 1 / rank (60 queries) in 12 to 55 %.
    effect : float in (0, 0.5), default=None
        Distance of ``preference`` from 0.5 that would matter, for ``sessions_needed``; by default
        the one found, which is uncertain.
    confidence_level : float in (0, 1), default=0.95
        Of the intervals; a winner needs a ``p_value`` up to 1 minus this level.
    power : float in (0, 1), default=0.8
        Probability of finding a true winner, for ``sessions_needed``.
    sequential : bool, default=False
        Whether intervals and p-values hold at all looks at a log that grows, so that one may stop
        at the first winner. Intervals are wider: 1.5 times at 1,000 sessions with a winner.

    Returns
    -------
    outcome : InterleavingOutcome

    Raises
    ------
    ValueError
        If a role is missing, ``team`` is no text of one :class:`Interleaver`, a row stands for
        several impressions, a list has two rows at one position or two clusters, or a click is
        neither 0 nor 1.

    Notes
    -----
    The winner of a session has more credited clicks: on documents that it placed (team-draft);
    among its best k, where k is the better rank of the lowest click (balanced); or with its
    probability, given the list, summed over who may have placed what (probabilistic). If b won
    :math:`S_g` sessions of cluster g more than a did, and :math:`m_g` have a winner, the interval
    holds every :math:`\theta = 2 \cdot \text{preference} - 1` with

    .. math::
        \Bigl(\sum_g S_g - \theta m_g\Bigr)^2 \le z^2 \sum_g (S_g - \theta m_g)^2 .

    That of ``clicks`` does so with clicks in place of wins, and sessions in place of winners.
    Up to 10 effective clusters, :math:`(\sum m_g)^2 / \sum m_g^2`, the p-value is 1, and
    ``sessions_needed`` are at least those that give more. With ``cluster="qid"``, more sessions
    mean more queries, too.

    If ``sequential``, :math:`z^2 = (1 + \rho / V) \log \frac{V + \rho}{\rho \alpha^2}` with
    :math:`V = \sum_g S_g^2`, the boundary that a Brownian motion leaves with probability
    :math:`\alpha` at any time (Robbins), and the p-value is the least such :math:`\alpha`.

    References
    ----------
    Waudby-Smith, Arbour, Sinha, Kennedy & Ramdas (2024). Time-uniform central limit theory and
    asymptotic confidence sequences. Annals of Statistics.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skultr.evaluation import Interleaver, interleaving_outcome
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"qid": np.arange(1000) // 10, "doc": np.arange(1000)})
    >>> relevance, noise = rng.random(1000), rng.random(1000)
    >>> rankings = {"old": relevance + 2 * noise, "new": relevance + noise}
    >>> log = Interleaver(random_state=0).interleave(X, rankings, sessions=2000)
    >>> click = rng.random(len(log)) < relevance[log["doc"]] / log["position"]
    >>> interleaving_outcome(log, click).verdict.split(":")[0]
    'new beats old'
    """
    X, y, _ = take_clicks(X, y, "interleaving_outcome")
    session, group = _read(X, y, cluster)
    teams = read_teams(read_role(X, "team"))
    row = np.flatnonzero(y)
    row = row[np.lexsort((read_role(X, "position")[row], session[row]))]
    active, first, clicked = np.unique(session[row], return_index=True, return_inverse=True)
    credit = teams.values[row]
    if teams.are_ranks:  # what both are credited with counts for none
        best = np.append(credit[first[1:] - 1], credit[-1:], axis=0).min(axis=1)
        credit = (credit <= best[clicked, None]) * 1.0
        credit -= credit.min(axis=1, keepdims=True)
    n_sessions = np.bincount(group[np.unique(session, return_index=True)[1]])
    cluster_of, level, pairs = group[row[first]], 1 - confidence_level, []
    couples = [*combinations(range(len(teams.names)), 2)]
    for a, b in couples:
        won_a, won_b = _winners(clicked, credit[:, a], credit[:, b], len(active))
        clicks = np.bincount(clicked, credit[:, b] - credit[:, a], len(active))
        sums = (won_b - won_a, won_b + won_a, clicks)
        sums = [np.bincount(cluster_of, of, len(n_sessions)) for of in sums]
        found = _compare(*sums, n_sessions, level, sequential)
        found["sessions_needed"] = _needed(
            *sums[:2], n_sessions, level / len(couples), effect, power, sequential
        )
        pairs.append({"a": teams.names[a], "b": teams.names[b]} | found)
    pairs = pd.DataFrame(pairs)
    pairs["p_value"] = holm_adjusted(pairs["p_value"].to_numpy())
    pairs.loc[pairs["p_value"] <= level, "sessions_needed"] = 0.0
    pairs["verdict"] = [_verdict(row, level, effect) for row in pairs.itertuples()]
    return InterleavingOutcome(pairs, "\n".join(pairs["verdict"]))


def _read(X, y, cluster):
    """Codes of the session and of the cluster of each row, after the checks of the log."""
    roles = {role: read_role(X, role) for role in ("qid", "session", "position", "team")}
    for role, values in roles.items():
        if values is None or pd.isna(values).any():
            raise ValueError(
                f"X has no column {role!r}, or one with gaps; expected the rows that an "
                "Interleaver returned, with the team of each as it was served."
            )
    impressions = read_role(X, "impressions")
    several = impressions is not None and (impressions != 1).any()
    if several or not len(y) or not np.isin(y, (0, 1)).all():
        raise ValueError(
            "Expected a click of 0 or 1 and one impression in each row; an aggregated log does "
            "not say which clicks were of one session."
        )
    lists = pd.DataFrame({role: roles[role] for role in ("qid", "session")})
    session = lists.groupby(["qid", "session"], sort=False).ngroup().to_numpy()
    if pd.DataFrame({"session": session, "position": roles["position"]}).duplicated().any():
        raise ValueError(
            "A session and query have two rows at one position; expected one list each. Logs of "
            "several calls of interleave all count sessions from 0: make their ids differ."
        )
    group = pd.factorize(read_column(X, cluster), use_na_sentinel=False)[0]
    if (group[np.unique(session, return_index=True)[1]][session] != group).any():
        raise ValueError(
            f"The column {cluster!r} of cluster={cluster!r} has several values in one list; "
            "expected one, such as the query, the session or the user."
        )
    return session, group


def _winners(session, credit_a, credit_b, n):
    """P(a wins) and P(b wins) of each session: who placed what is independent by document."""
    place = np.arange(len(session)) - np.searchsorted(session, session)
    most = int(place.max(initial=-1)) + 1
    lead = np.zeros((n, 2 * most + 1))  # in column most + d: P(b leads by d clicks)
    lead[:, most] = 1
    for turn in range(most):
        of = place == turn
        p_a, p_b, now = credit_a[of, None], credit_b[of, None], lead[session[of]]
        step = now * (1 - p_a - p_b)
        step[:, 1:] += p_b * now[:, :-1]
        step[:, :-1] += p_a * now[:, 1:]
        lead[session[of]] = step
    return lead[:, :most].sum(axis=1), lead[:, most + 1 :].sum(axis=1)


def _compare(lead, winners, clicks, n_sessions, level, sequential):
    """The row of a pair, from sums over each cluster: sessions that b won more, and all won."""
    total, n = winners.sum(), n_sessions.sum()
    z, z_clicks = (quantile_of_lead(of, level, sequential) for of in (lead, clicks))
    low, high = np.clip(ratio_interval(lead, winners, z, np.inf), -1, 1)
    ends = ratio_interval(clicks, n_sessions * (total > 0), z_clicks, np.nan)
    enough = total**2 > least_squared_size(winners, z)
    return {
        "wins_a": (total - lead.sum()) / 2,
        "wins_b": (total + lead.sum()) / 2,
        "ties": n - total,
        "preference": (1 + lead.sum() / max(total, TINY)) / 2,
        "lower": (1 + low) / 2,
        "upper": (1 + high) / 2,
        "p_value": p_value_of_lead(lead, sequential) if enough else 1.0,
        "clicks": clicks.sum() / n,
        "clicks_lower": ends[0],
        "clicks_upper": ends[1],
    }


def _needed(lead, winners, n_sessions, level, effect, power, sequential):
    """Sessions in addition, for a winner and for enough clusters."""
    total, n = winners.sum(), n_sessions.sum()
    aim = 2 * effect * total if effect else abs(lead.sum())
    if aim == 0:
        return np.inf
    z = quantile_of_lead(lead, level, sequential)
    errors = (z + norm.ppf(power)) * np.sqrt((lead**2).sum())
    clusters = least_squared_size(winners, z) / total**2
    return max(0.0, np.ceil(n * (errors / aim) ** 2 - n), np.floor(n * clusters - n) + 1)


def _verdict(row, level, effect):
    ends, better, worse = (row.preference, row.lower, row.upper), row.b, row.a
    if row.preference < 0.5:
        ends, better, worse = (1 - row.preference, 1 - row.upper, 1 - row.lower), row.a, row.b
    share = f"{ends[0]:.1%} ({1 - level:.0%} interval {ends[1]:.1%} to {ends[2]:.1%})"
    found = f"{better} wins {share} of the sessions with a winner"
    if row.p_value <= level:
        return f"{better} beats {worse}: {found}."
    if effect and ends[1] > 0.5 - effect and ends[2] < 0.5 + effect:
        return f"No difference of {effect:.1%} between {better} and {worse}: {found}."
    more = "It needs more sessions than the log can say"
    if 0 < row.sessions_needed < np.inf:
        more = f"It needs about {row.sessions_needed:,.0f} more sessions"
    elif effect and not row.sessions_needed:
        more = f"The sessions suffice for a difference of {effect:.1%}; a smaller one needs more"
    return f"Cannot tell {better} from {worse} yet: {found}. {more}."
