"""Result lists mixed from several rankings, and which ranking users prefer by their clicks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import chain, combinations
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import norm
from sklearn.utils import check_random_state

from .._base._sklearn import Interval, validate_params
from .._base._typing import ArrayLike, Column, Frame, RandomState
from .._log._reader import take_clicks
from .._log._roles import read_column, read_role
from .._log._segments import (
    TINY,
    as_array,
    as_index_values,
    encode,
    naming_ids,
    offsets_from_sorted,
    pad,
    rank_in_segment,
)
from ..exceptions import python_value
from ..metrics._query_means import (
    cluster_of,
    holm_adjusted,
    least_squared_size,
    p_value_of_lead,
    quantile_of_lead,
    ratio_interval,
)
from ..metrics._ranking import as_numbers

#: What the text of a team says of one ranking: that it placed the document ("new"), its rank
#: ("old#3") or the probability that it placed it ("old=0.2").
_PART = re.compile(r"([^#= ]+)(?:([#=])(\d*\.?\d+(?:e-\d+)?))?")
_METHODS = ("team-draft", "balanced", "probabilistic")


@dataclass(eq=False)
class Interleaver:
    """Interleave two or more rankings in one result list, to compare them by clicks.

    Each session compares the rankings on one page, so that differences between users and queries
    cancel. An A/B test needs many times the traffic. :func:`interleaving_outcome` reads the
    clicks.

    Parameters
    ----------
    method : {"team-draft", "balanced", "probabilistic"}, default="team-draft"
        How the list is made:

        - ``"team-draft"`` (Radlinski et al. 2008): in each round every ranking, in random order,
          places its best document that is not there yet. With three or more rankings this is
          team-draft multileaving (Schuth et al. 2014).
        - ``"balanced"`` (Joachims 2002): takes two rankings and reads them from the top in
          turns. Chance decides which comes first.
        - ``"probabilistic"`` (Hofmann et al. 2011): each place goes to a random ranking. It draws
          the document of rank r with probability proportional to 1 / r ** ``exponent``.

    n_positions : int, default=10
        Length of the longest list.
    exponent : float, default=3.0
        For ``"probabilistic"``. A small exponent brings documents of low rank to the top.
    random_state : int, RandomState instance or None, default=None
        Source of chance. Every call draws from it, so that two calls give different lists.

    Notes
    -----
    *What to log.* Log the ``team`` of every document: a text with all that the outcome needs.

    - Team-draft: the ranking that placed it (``"new"``).
    - Balanced: its rank in each ranking (``"old#3 new#1"``).
    - Probabilistic: the probability that each ranking placed it, given the list
      (``"old=0.2 new=0.8"``).

    *Examination.* ``InterventionHarvesting`` takes the log as it is. Unless the method is
    probabilistic, all orders of the rows with one ``arm`` were equally likely, and
    ``RandomizedPropensity(arm="arm")`` compares their positions, and no others. Drop the column
    ``arm`` before you fit a ranker.

    *Limits.* Balanced interleaving is not fair to all rankings: of a b c and b c a, it prefers
    the second in 2 of 3 random clicks. Team-draft does not see every difference: it prefers
    neither of these two if only c is relevant. Probabilistic interleaving has neither fault, but
    shows documents from deep in the rankings. Tied scores keep the order of the rows in all
    rankings, and favour none.

    Examples
    --------
    >>> from skultr.evaluation import Interleaver
    >>> interleaver = Interleaver(n_positions=3, random_state=0)
    >>> interleaver.interleave_one({"old": ["a", "b", "c"], "new": ["b", "d", "a"]})
    (['b', 'a', 'd'], ['new', 'old', 'new'])
    """

    method: Literal["team-draft", "balanced", "probabilistic"] = "team-draft"
    _: KW_ONLY
    n_positions: int = 10
    exponent: float = 3.0
    random_state: RandomState = None

    def __post_init__(self) -> None:
        whole = isinstance(self.n_positions, Integral) and self.n_positions >= 1
        power = isinstance(self.exponent, Real) and 0 < self.exponent < np.inf
        if self.method not in _METHODS or not whole or not power:
            raise ValueError(
                f"Got {self}; expected a method of {_METHODS}, a whole number of positions from 1 "
                "and an exponent above 0."
            )
        seeds = check_random_state(self.random_state).randint(2**31, size=4)
        self._rng = np.random.default_rng(seeds)

    def interleave_one(self, rankings: Mapping[str, Sequence[Any]]) -> tuple[list[Any], list[str]]:
        """Make the list of one request, and the ``team`` to log with each document.

        Parameters
        ----------
        rankings : mapping of str to sequence
            Name of each ranking, and its documents, best first. A ranking holds at least one
            document, and none twice.

        Returns
        -------
        docs, teams : list of at most n_positions ids, list of str
            Documents from the top, and the team of each.
        """
        is_read = isinstance(rankings, Mapping) and all(map(_is_ordered, rankings.values()))
        if not is_read:
            raise TypeError(
                f"Got the rankings {rankings!r}; expected the documents of each by its name, such "
                "as {'old': ['a', 'b'], 'new': ['b', 'c']}."
            )
        names = self._names(rankings)
        documents = list(dict.fromkeys(chain(*rankings.values())))
        ranks = _ranks_of_lists(rankings, documents)
        # A batch of one list.
        shown, teams, _ = (drawn[0] for drawn in self._draw(ranks[None]))
        # The list may be shorter than all positions.
        is_shown = shown >= 0
        docs = [documents[number] for number in shown[is_shown]]
        texts, which = self._texts(teams[is_shown], names)
        return docs, [texts[number] for number in which]

    def interleave(
        self,
        X: Frame,
        rankings: Sequence[str] | Mapping[str, ArrayLike],
        sessions: int | Column,
    ) -> pd.DataFrame:
        """Make the lists of many sessions, as a log without clicks.

        Parameters
        ----------
        X : DataFrame of shape (n_documents, n_columns)
            Candidates: roles ``qid`` and ``doc``, one row per document of a query.
        rankings : sequence of str, or mapping of str to array-like of shape (n_documents,)
            Columns of X that hold scores, or names and scores. Higher is better: pass ranks as
            negative numbers. NaN means that the ranking does not hold the document.
        sessions : int or array-like of shape (n_sessions,)
            Number of sessions, whose queries are drawn uniformly; or the ``qid`` of each session.

        Returns
        -------
        log : DataFrame
            ``session`` (from 0 in every call), ``qid``, ``doc``, ``position`` and ``team``, sorted
            by session and position. Team-draft and balanced lists also have an ``arm``.

        Raises
        ------
        ValueError
            If

            - a role or column is missing,
            - a document is there twice,
            - a score is infinite,
            - a ranking has no document of a query, or
            - a ``qid`` of a session is unknown.
        """
        names = self._names(rankings)
        qid, doc = _read_documents(X)
        # Ranks of the documents of each query in each ranking.
        query, ids = encode(qid)
        named = isinstance(rankings, Mapping)
        scores = {name: rankings[name] if named else read_column(X, name) for name in names}
        ranks = np.stack([_ranks(query, scores[name], name) for name in names])
        order = np.argsort(query, kind="stable")
        if self.method != "probabilistic":  # no list reaches deeper
            order = order[(ranks <= self.n_positions).any(axis=0)[order]]
        # One line of documents per query.
        place = pad(offsets_from_sorted(query[order]))
        rows = order[place]
        table = np.where(place >= 0, ranks[:, rows], np.inf).swapaxes(0, 1)
        # Lists of all sessions, in batches of so many numbers that memory does not grow with the
        # number of sessions.
        asked = self._queries(sessions, ids)
        step = max(1, 2**21 // table[0].size)
        drawn = []
        for start in range(0, len(asked), step):
            drawn.append(self._draw(table[asked[start : start + step]]))
        shown, teams, arms = (np.concatenate(part) for part in zip(*drawn, strict=True))
        # One row per document shown.
        session, column = np.nonzero(shown >= 0)
        row = rows[asked[session], shown[session, column]]
        texts, which = self._texts(teams[session, column], names)
        log = {"session": session, "qid": qid[row], "doc": doc[row], "position": column + 1}
        log["team"] = pd.Categorical.from_codes(which, texts)
        if self.method != "probabilistic":
            # An arm is a round: as many positions as there are rankings.
            spans = [f"{i + 1}-{i + len(names)}" for i in range(shown.shape[1])]
            log["arm"] = pd.Categorical.from_codes(arms[session, column], spans)
        return pd.DataFrame(log, copy=False)

    def _queries(self, sessions, ids):
        """Number of the query of each session."""
        if isinstance(sessions, Integral):
            if sessions < 1:
                raise ValueError(f"sessions is {sessions}; expected at least one.")
            return self._rng.integers(len(ids), size=int(sessions))
        # -1 for ids that X does not have.
        asked = pd.Index(ids).get_indexer(as_array(sessions))
        if np.ndim(sessions) != 1 or not len(asked) or (asked < 0).any():
            raise ValueError(
                "sessions holds no qid, or one that X does not; expected a whole number of "
                "sessions, or the qid of each."
            )
        return asked

    def _draw(self, ranks):
        """Documents, teams and arms of lists, of shape (n_lists, n_positions[, n_rankings]).

        ``ranks`` has the shape (n_lists, n_rankings, n_documents), infinite where a ranking does
        not hold a document. -1 marks the end of a list, and rows without an arm.
        """
        if self.method == "balanced":
            return self._merge(ranks)
        if self.method == "team-draft":
            return self._draft(ranks)
        return self._draw_by_chance(ranks)

    def _draft(self, ranks):
        """Lists that teams pick in turns: first those that have picked less, else by chance."""
        n_lists, n, n_documents = ranks.shape
        lists = np.arange(n_lists)
        n_positions = min(self.n_positions, n_documents)
        shown = np.full((n_lists, n_positions), -1)
        arms = np.full((n_lists, n_positions), -1)
        teams = np.zeros((n_lists, n_positions, 1))
        picks = np.zeros((n_lists, n), dtype=int)
        left = ranks.copy()
        for turn in range(n_positions):
            best, can = _best_left(left)
            # Whoever has fewer picks comes first; among equals, chance decides.
            prefer = self._rng.random((n_lists, n)) - picks
            if turn + n <= n_positions:
                # A round begins, and nobody takes another's best: an arm.
                is_arm = (can & (picks == picks[:, :1])).all(axis=1)
                is_arm &= (np.diff(np.sort(best, axis=1)) > 0).all(axis=1)
                arms[is_arm, turn : turn + n] = turn
            ranking = np.where(can, prefer, -np.inf).argmax(axis=1)
            document = best[lists, ranking]
            shown[:, turn] = np.where(can[lists, ranking], document, -1)
            picks[lists, ranking] += 1
            teams[:, turn] = ranking[:, None]
            # What is placed is there for no ranking any more.
            left[lists, :, document] = np.inf
        return shown, teams, arms

    def _draw_by_chance(self, ranks):
        """Lists that each ranking draws from, with weights that fall by rank; teams are the
        probability of each ranking to have placed the document."""
        n_lists, n, n_documents = ranks.shape
        lists = np.arange(n_lists)
        n_positions = min(self.n_positions, n_documents)
        shown = np.full((n_lists, n_positions), -1)
        teams = np.zeros((n_lists, n_positions, n))
        # 0 where a ranking does not hold the document.
        weight = ranks**-self.exponent
        # Exponential variables over weights, sorted, are draws without replacement.
        left = self._rng.standard_exponential(ranks.shape) * ranks**self.exponent
        total = weight.sum(axis=2)
        for turn in range(n_positions):
            best, can = _best_left(left)
            # Each ranking that has a document left is as likely to place it.
            prefer = self._rng.random((n_lists, n))
            ranking = np.where(can, prefer, -np.inf).argmax(axis=1)
            document = best[lists, ranking]
            shown[:, turn] = np.where(can[lists, ranking], document, -1)
            own = weight[lists, :, document]
            # What is left of the total may be less than a part of it, by rounding.
            share = own / np.maximum(np.maximum(total, own), TINY)
            teams[:, turn] = share / np.maximum(share.sum(axis=1, keepdims=True), TINY)
            total -= own
            left[lists, :, document] = np.inf
        return shown, teams, np.full((n_lists, n_positions), -1)

    def _merge(self, ranks):
        """Balanced lists: each document where it first occurs when both are read in turns."""
        # The ranking that begins is drawn by chance.
        second = self._rng.integers(2, size=(len(ranks), 1)) == np.arange(2)
        # A document of rank r is read in the turns 2 r and 2 r + 1, of either ranking.
        turn = (2 * ranks + second[..., None]).min(axis=1)
        shown = turn.argsort(axis=1)[:, : self.n_positions]
        turn = np.take_along_axis(turn, shown, axis=1)
        teams = np.take_along_axis(ranks.swapaxes(1, 2), shown[..., None], axis=1)
        arms = np.full(shown.shape, -1)
        # Two neighbours that both rankings have at one rank are an arm.
        pair_of_turns = np.floor(turn / 2)
        is_arm = np.isfinite(turn[:, 1:]) & (pair_of_turns[:, 1:] == pair_of_turns[:, :-1])
        session, column = np.nonzero(is_arm)
        arms[session, column] = column
        arms[session, column + 1] = column
        return np.where(np.isinf(turn), -1, shown), teams, arms

    def _texts(self, teams, names):
        """Distinct texts of teams, and the number of the text of each row."""
        if self.method == "team-draft":
            return names, teams[:, 0].astype(int)
        return _team_texts(teams, names, "#" if self.method == "balanced" else "=")

    def _names(self, rankings):
        names = [rankings] if isinstance(rankings, str) else list(rankings)
        n_names = len({*names})
        is_number_fine = n_names == 2 or (n_names > 2 and self.method != "balanced")
        if not is_number_fine or not all(map(_is_name, names)):
            raise ValueError(
                f"Got the rankings {names}; expected two (or more, unless balanced) with "
                "different names, without a space, '#' or '='."
            )
        return names


def _ranks_of_lists(rankings, documents):
    """Rank of each document (columns) in each ranking (rows), infinite where it is not in it."""
    code = {document: number for number, document in enumerate(documents)}
    ranks = np.full((len(rankings), len(documents)), np.inf)
    for row, (name, docs) in zip(ranks, rankings.items(), strict=True):
        row[[code[doc] for doc in docs]] = np.arange(1, len(docs) + 1)
        # A document that is there twice has one rank.
        n_different = np.isfinite(row).sum()
        if not len(docs) or n_different < len(docs):
            raise ValueError(
                f"The ranking {name!r} is empty or holds a document twice; expected each "
                "document once. Serve such a request outside the experiment."
            )
    return ranks


def _best_left(left):
    """The document that each ranking would take next, and whether it has one."""
    best = left.argmin(axis=2)
    least = np.take_along_axis(left, best[..., None], axis=2)
    return best, np.isfinite(least[..., 0])


def _is_ordered(documents):
    """Whether documents stand in an order: no text, set or iterator."""
    is_sequence = hasattr(documents, "__len__") and hasattr(documents, "__getitem__")
    return is_sequence and not isinstance(documents, str)


def _is_name(name):
    """Whether a text of teams can hold a name."""
    return isinstance(name, str) and bool(name) and not {*name} & {*"#= "}


def _read_documents(X):
    """``qid`` and ``doc`` of the candidates."""
    qid = read_role(X, "qid")
    doc = read_role(X, "doc")
    is_lacking = any(ids is None or not len(ids) or pd.isna(ids).any() for ids in (qid, doc))
    if is_lacking:
        raise ValueError("Expected rows of X with an id in each of the columns 'qid' and 'doc'.")
    twice = pd.DataFrame({"qid": qid, "doc": doc}).duplicated().to_numpy()
    if twice.any():
        pair = tuple(python_value(values[twice.argmax()]) for values in (qid, doc))
        raise ValueError(f"X holds the qid and doc {pair} twice; expected each document once.")
    return qid, doc


def _ranks(query, scores, name):
    """Rank of each document in one ranking, infinite where it is not in it."""
    scores = as_numbers(scores, f"The scores of {name!r}").astype(float)
    held = ~np.isnan(scores)
    # And a document of every query, or there is no list to interleave.
    fit = scores.shape == query.shape and not np.isinf(scores).any()
    if not fit or len(np.unique(query[held])) <= query.max():
        raise ValueError(
            f"The scores of {name!r} have the shape {scores.shape}; expected one for each of "
            f"{len(query)} rows: a finite number, or NaN if the ranking does not hold the "
            "document. Each query needs a number. Drop queries for which a ranking is empty."
        )
    ranks = np.full(len(query), np.inf)
    ranks[held] = rank_in_segment(query[held], scores[held])
    return ranks


class InterleavingOutcome(NamedTuple):
    """The winner of each pair of interleaved rankings, from :func:`interleaving_outcome`.

    Parameters
    ----------
    pairs : DataFrame
        One row per pair of rankings ``a`` and ``b``:

        - ``wins_a``, ``wins_b``, ``ties``: numbers of sessions (expected ones if probabilistic).
        - ``preference``: the share that b won of the sessions with a winner. ``lower`` and
          ``upper`` are its interval, of this pair alone.
        - ``p_value``: of no preference, corrected for the number of pairs (Holm).
        - ``clicks``: clicks per session credited to b minus those credited to a, with the
          interval ``clicks_lower``, ``clicks_upper`` (NaN in too few clusters).
        - ``sessions_needed``: sessions to add.
        - ``verdict``: in words.

    verdict : str
        The verdicts of all pairs.
    """

    pairs: pd.DataFrame
    verdict: str

    def __repr__(self) -> str:
        return f"InterleavingOutcome(verdict={self.verdict!r})"


_PROBABILITY = [Interval(Real, 0, 1, closed="neither")]


@validate_params(
    {
        "cluster": [str, "array-like"],
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
    cluster: Column | str = "qid",
    effect: float | None = None,
    confidence_level: float = 0.95,
    power: float = 0.8,
    sequential: bool = False,
) -> InterleavingOutcome:
    r"""Test which of the interleaved rankings wins more sessions.

    Parameters
    ----------
    X : DataFrame of shape (n_rows, n_columns)
        Log of an :class:`Interleaver`: roles ``qid``, ``session``, ``position``, ``team``.
    y : array-like of shape (n_rows,) or str
        Click (0 or 1), or the name of the column of X that holds it.
    cluster : str or array-like of shape (n_rows,), default="qid"
        Column of what was drawn independently, or its values. With ``"qid"`` the result also
        holds for other queries. With ``"session"`` it is about the queries of this log alone.
        Between rankers that are equal over all queries, our simulations found a winner in 1 to
        6 % with ``"qid"`` and in 4 to 28 % with ``"session"`` (12 to 55 % with 60 queries and
        traffic 1 / rank).
    effect : float in (0, 0.5), default=None
        Distance of ``preference`` from 0.5 that would matter, for ``sessions_needed``. The
        default is the distance found, which is uncertain.
    confidence_level : float in (0, 1), default=0.95
        Level of the intervals. A winner needs a ``p_value`` up to 1 minus this level.
    power : float in (0, 1), default=0.8
        Probability of finding a true winner, for ``sessions_needed``.
    sequential : bool, default=False
        Whether you may look at a growing log as often as you like, and stop at the first winner.
        Intervals are wider: 1.5 times at 1,000 sessions with a winner.

    Returns
    -------
    outcome : InterleavingOutcome

    Raises
    ------
    ValueError
        If

        - a role is missing,
        - ``team`` is no text of one :class:`Interleaver`,
        - a row counts several impressions,
        - a list has two rows at one position,
        - a list has two clusters, or none, or
        - a click is neither 0 nor 1.

    Notes
    -----
    The winner of a session is the ranking with more credited clicks. A click is credited

    - with team-draft, to the ranking that placed the document;
    - with balanced, to each ranking that has the document among its best k, where k is the
      better rank of the lowest click;
    - with probabilistic, to each ranking by its probability of having placed the document, given
      the list.

    If b won :math:`S_g` sessions of cluster g more than a did, and :math:`m_g` have a winner, the
    interval holds every :math:`\theta = 2 \cdot \text{preference} - 1` with

    .. math::
        \Bigl(\sum_g S_g - \theta m_g\Bigr)^2 \le z^2 \sum_g (S_g - \theta m_g)^2 .

    The interval of ``clicks`` has clicks in place of wins, and sessions in place of winners.
    With at most 10 effective clusters, :math:`(\sum m_g)^2 / \sum m_g^2`, the p-value is 1, and
    ``sessions_needed`` is at least the number that gives more clusters. With ``cluster="qid"``,
    more sessions also mean more queries.

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
    names, values, are_ranks = _read_teams(read_role(X, "team"))
    active, clicked, credit = _credits(X, y, session, values, are_ranks)
    n_sessions = np.bincount(group)
    level = 1 - confidence_level
    couples = [*combinations(range(len(names)), 2)]
    pairs = []
    for a, b in couples:
        won_a, won_b = _winners(clicked, credit[:, a], credit[:, b], len(active))
        clicks = np.bincount(clicked, credit[:, b] - credit[:, a], len(active))
        # Sums over each cluster.
        lead, winners, clicks = (
            np.bincount(group[active], values, len(n_sessions))
            for values in (won_b - won_a, won_b + won_a, clicks)
        )
        row = {"a": names[a], "b": names[b]}
        row |= _compare(lead, winners, clicks, n_sessions, level, sequential)
        level_of_pair = level / len(couples)
        row["sessions_needed"] = _needed(
            lead, winners, n_sessions, level_of_pair, effect, power, sequential
        )
        pairs.append(row)
    pairs = pd.DataFrame(pairs)
    # For all pairs together; one with a winner needs no more sessions.
    pairs["p_value"] = holm_adjusted(pairs["p_value"].to_numpy())
    pairs.loc[pairs["p_value"] <= level, "sessions_needed"] = 0.0
    pairs["verdict"] = [_verdict(row, level, effect) for row in pairs.itertuples()]
    return InterleavingOutcome(pairs, "\n".join(pairs["verdict"]))


def _credits(X, y, session, values, are_ranks):
    """Sessions with a click, the number of that session for each click, and what each ranking
    is credited for the click."""
    row = np.flatnonzero(y)
    row = row[np.lexsort((read_role(X, "position")[row], session[row]))]
    # Clicks of a session stand from its top to its lowest one.
    active, first, clicked = np.unique(session[row], return_index=True, return_inverse=True)
    credit = values[row]
    if are_ranks:
        # Balanced: clicks count for who ranks the document as high as the lowest click was.
        # What both are credited with counts for none.
        lowest_click = np.append(credit[first[1:] - 1], credit[-1:], axis=0)
        better_rank = lowest_click.min(axis=1)
        credit = (credit <= better_rank[clicked, None]).astype(float)
        credit -= credit.min(axis=1, keepdims=True)
    return active, clicked, credit


def _read(X, y, cluster):
    """Session of each row and cluster of each session, after the checks of the log."""
    roles = {role: read_role(X, role) for role in ("qid", "session", "position", "team")}
    _check_rows(roles, read_role(X, "impressions"), y)
    session = _sessions_of_queries(roles)
    places = pd.DataFrame({"session": session, "position": roles["position"]})
    if places.duplicated().any():
        raise ValueError(
            "A session and query have two rows at one position; expected one list each. Every "
            "call of interleave counts sessions from 0: if you join logs, make their ids differ."
        )
    return session, cluster_of(X, cluster, session, "list")


def _check_rows(roles, impressions, y):
    """Raise an error unless each row has all roles, one impression, and a click or none."""
    for role, values in roles.items():
        if values is None or pd.isna(values).any():
            raise ValueError(
                f"X has no column {role!r}, or one with gaps; expected the rows that an "
                "Interleaver returned, with the team of each as it was served."
            )
    is_counted = impressions is not None and (impressions != 1).any()
    if is_counted or not len(y) or not np.isin(y, (0, 1)).all():
        raise ValueError(
            "Expected a click of 0 or 1 and one impression in each row. An aggregated log does "
            "not say which clicks belong to one session."
        )


def _sessions_of_queries(roles):
    """Number of the session of each row; those of two queries differ under one id, too."""
    served = pd.DataFrame({role: as_index_values(values) for role, values in roles.items()})
    for role in ("qid", "session"):
        with naming_ids(f"The role {role!r}", served[role]):
            served[role] = pd.factorize(served[role])[0]
    by_list = served.groupby(["qid", "session"], sort=False)
    return by_list.ngroup().to_numpy()


def _winners(session, credit_a, credit_b, n):
    """P(a wins) and P(b wins) of each session: who placed what is independent by document."""
    # Number of each click in its session; sessions are sorted.
    place = np.arange(len(session)) - np.searchsorted(session, session)
    most = int(place.max(initial=-1)) + 1
    # Clicks of each session one after the other: each moves the lead by at most one.
    lead = np.zeros((n, 2 * most + 1))  # in column most + d: P(b leads by d clicks)
    lead[:, most] = 1
    for turn in range(most):
        here = place == turn
        p_a = credit_a[here, None]
        p_b = credit_b[here, None]
        now = lead[session[here]]
        # No credit, credit for b, credit for a.
        step = now * (1 - p_a - p_b)
        step[:, 1:] += p_b * now[:, :-1]
        step[:, :-1] += p_a * now[:, 1:]
        lead[session[here]] = step
    return lead[:, :most].sum(axis=1), lead[:, most + 1 :].sum(axis=1)


def _compare(lead, winners, clicks, n_sessions, level, sequential):
    """The row of a pair, from sums over each cluster: sessions that b won more, and all won."""
    total = winners.sum()
    n = n_sessions.sum()
    z = quantile_of_lead(lead, level, sequential)
    low, high = np.clip(ratio_interval(lead, winners, z, np.inf), -1, 1)
    z_clicks = quantile_of_lead(clicks, level, sequential)
    # Without a winner nothing is known of clicks, either.
    known_sessions = n_sessions if total > 0 else np.zeros_like(n_sessions)
    clicks_low, clicks_high = ratio_interval(clicks, known_sessions, z_clicks, np.nan)
    enough = total**2 > least_squared_size(winners, z)
    # Of wins a and b, the lead is b - a and the total b + a.
    row = {}
    row["wins_a"] = (total - lead.sum()) / 2
    row["wins_b"] = (total + lead.sum()) / 2
    row["ties"] = n - total
    # From a share of the lead, -1 to 1, to one of the wins, 0 to 1.
    row["preference"] = (1 + lead.sum() / max(total, TINY)) / 2
    row["lower"] = (1 + low) / 2
    row["upper"] = (1 + high) / 2
    row["p_value"] = p_value_of_lead(lead, sequential) if enough else 1.0
    row["clicks"] = clicks.sum() / n
    row["clicks_lower"] = clicks_low
    row["clicks_upper"] = clicks_high
    return row


def _needed(lead, winners, n_sessions, level, effect, power, sequential):
    """Sessions in addition, for a winner and for enough clusters."""
    total = winners.sum()
    n = n_sessions.sum()
    # The lead that must be seen: the smallest that matters, or the one seen so far. It grows with
    # the sessions, and its error with their root.
    aim = 2 * effect * total if effect else abs(lead.sum())
    if aim == 0:
        return np.inf
    z = quantile_of_lead(lead, level, sequential)
    errors = (z + norm.ppf(power)) * np.sqrt((lead**2).sum())
    for_winner = np.ceil(n * (errors / aim) ** 2 - n)
    # Clusters of the same sizes as so far.
    clusters = least_squared_size(winners, z) / total**2
    for_clusters = np.floor(n * clusters - n) + 1
    return max(0.0, for_winner, for_clusters)


def _verdict(row, level, effect):
    # By the share of the better one, which is b unless a won more.
    ends = (row.preference, row.lower, row.upper)
    better = row.b
    worse = row.a
    if row.preference < 0.5:
        ends = (1 - row.preference, 1 - row.upper, 1 - row.lower)
        better = row.a
        worse = row.b
    share = f"{ends[0]:.1%} ({1 - level:.0%} interval {ends[1]:.1%} to {ends[2]:.1%})"
    found = f"{better} wins {share} of the sessions with a winner"
    if row.p_value <= level:
        return f"{better} beats {worse}: {found}."
    # The interval holds no difference that would matter.
    if effect and ends[1] > 0.5 - effect and ends[2] < 0.5 + effect:
        return f"No difference of {effect:.1%} between {better} and {worse}: {found}."
    more = "It needs more sessions than the log can say"
    if 0 < row.sessions_needed < np.inf:
        more = f"It needs about {row.sessions_needed:,.0f} more sessions"
    elif effect and not row.sessions_needed:
        more = f"The sessions suffice for a difference of {effect:.1%}; a smaller one needs more"
    return f"Cannot tell {better} from {worse} yet: {found}. {more}."


# Teams --------------------------------------------------------------------------------
def _team_texts(values, names, sign):
    """Distinct texts of ranks (sign "#") or shares ("=") of the rankings, and that of each row."""
    which = np.zeros(len(values), dtype=int)
    # Four digits: the distinct texts stay few.
    values = np.round(values, 4)
    for column in values.T:
        code, distinct = pd.factorize(column)
        which = pd.factorize(which * len(distinct) + code)[0]
    rows = values[np.unique(which, return_index=True)[1]].tolist()
    texts = []
    for row in rows:
        # Rankings that do not hold the document, or cannot have placed it, are not named.
        named = zip(names, row, strict=True)
        parts = [f"{name}{sign}{value:g}" for name, value in named if 0 < value < np.inf]
        texts.append(" ".join(parts))
    return texts, which


def _read_teams(team):
    """Names of the rankings; their ranks, or shares that sum to 1, in each row; which of these."""
    code, texts = pd.factorize(team)
    parts = [_parts_of(f"{text}") for text in texts]
    named = [*chain(*parts)]
    names = sorted({name for name, _, _ in named})
    signs = {sign for _, sign, _ in named}
    are_ranks = signs == {"#"}
    table = _team_table(parts, names, missing=np.inf if are_ranks else 0.0)
    if are_ranks:
        is_fine = len(names) == 2
    else:
        # Shares are rounded to four digits, and sum to 1 but for that.
        total = table.sum(axis=1, keepdims=True)
        is_fine = len(names) > 1 and (np.abs(total - 1) < 0.01).all()
        table = table / total
    if not is_fine or len(signs) != 1 or not all(parts):
        raise ValueError(
            f"team holds {list(texts[:3])}, ...; expected texts of one Interleaver, which name "
            "two or more rankings."
        )
    return names, table[code], are_ranks


def _parts_of(text):
    """Name, sign and number of each ranking in the text of a team; none if it is no such text."""
    matches = [_PART.fullmatch(part) for part in text.split(" ")]
    # One part that does not fit: the text is of no Interleaver.
    return [match.groups() for match in matches] if all(matches) else []


def _team_table(parts, names, missing):
    """Numbers of the parts of each text (rows) by ranking; 1 where a name stands alone."""
    table = np.full((len(parts), len(names)), missing)
    for row, parts_of_text in zip(table, parts, strict=True):
        for name, _, number in parts_of_text:
            row[names.index(name)] = float(number or 1)
    return table
