"""Result lists mixed from several rankings, and which ranking each document came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import chain
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from .._log._roles import read_column, read_role
from .._log._segments import as_array, encode, offsets_from_sorted, pad, rank_in_segment
from .._log._teams import team_texts
from .._typing import ArrayLike, Column, Frame, RandomState
from ..exceptions import python_value
from ..metrics._rows import as_numbers

#: Numbers of a batch of lists, so that memory does not grow with the number of sessions.
_BATCH = 2**21
_METHODS = ("team-draft", "balanced", "probabilistic")


@dataclass(eq=False)
class Interleaver:
    """Result lists that mix two or more rankings, so that clicks say which one users prefer.

    Each session compares the rankings on one page, so that differences between users and queries
    cancel; an A/B test needs many times the traffic. Read with :func:`interleaving_outcome`.

    Parameters
    ----------
    method : {"team-draft", "balanced", "probabilistic"}, default="team-draft"
        ``"team-draft"`` (Radlinski et al. 2008): in each round every ranking, in random order,
        places its best document that is not there yet; of several rankings, team-draft
        multileaving (Schuth et al. 2014). ``"balanced"`` (Joachims 2002): two rankings, read from
        the top in turns; chance decides which comes first. ``"probabilistic"`` (Hofmann et al.
        2011): each place goes to a random ranking, which draws the document of rank r with
        probability proportional to 1 / r ** ``exponent``.
    n_positions : int, default=10
        Longest list.
    exponent : float, default=3.0
        Of ``"probabilistic"``: the smaller, the lower are documents that users see at the top.
    random_state : int, RandomState instance or None, default=None
        Drawn from by every call, so that two calls give different lists.

    Notes
    -----
    *What to log.* Every document has a ``team``, a text with all that the outcome needs: the
    ranking that placed it (``"new"``), its rank in each (``"old#3 new#1"``, balanced), or the
    probability that each placed it, given the list (``"old=0.2 new=0.8"``, probabilistic).

    *Examination.* ``InterventionHarvesting`` takes the log as it is. All orders of the rows with
    one ``arm`` were equally likely (not if probabilistic), so that
    ``RandomizedPropensity(arm="arm")`` compares these positions, and no others. Drop the column
    before a ranker is fitted.

    *Limits.* Of the rankings a b c and b c a, balanced interleaving prefers the second in 2 of 3
    clicks at random; team-draft prefers none if only c is relevant. Probabilistic interleaving has
    neither fault, but shows documents from deep in the rankings. Ties of scores keep the order of
    the rows in all rankings, and favour none.

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
        """The list for one request: documents from the top, and the team to log with each.

        Parameters
        ----------
        rankings : mapping of str to sequence
            Name of each ranking, and its documents from the best: at least one, none twice.

        Returns
        -------
        docs, teams : list of at most n_positions ids, list of str
        """
        if not isinstance(rankings, Mapping) or not all(map(_is_list, rankings.values())):
            raise TypeError(
                f"Got the rankings {rankings!r}; expected the documents of each by its name, such "
                "as {'old': ['a', 'b'], 'new': ['b', 'c']}."
            )
        names = self._names(rankings)
        code = {doc: i for i, doc in enumerate(dict.fromkeys(chain(*rankings.values())))}
        ranks = np.full((1, len(names), len(code)), np.inf)
        for row, (name, docs) in zip(ranks[0], rankings.items(), strict=True):
            row[[code[doc] for doc in docs]] = np.arange(1, len(docs) + 1)
            if not 0 < len(docs) == np.isfinite(row).sum():
                raise ValueError(
                    f"The ranking {name!r} is empty or holds a document twice; expected each "
                    "document once. Serve such a request outside the experiment."
                )
        (shown,), (teams,), _ = self._draw(ranks)
        docs, texts, which = list(code), *self._texts(teams[shown >= 0], names)
        return [docs[i] for i in shown if i >= 0], [texts[i] for i in which]

    def interleave(
        self,
        X: Frame,
        rankings: Sequence[str] | Mapping[str, ArrayLike],
        sessions: int | Column,
    ) -> pd.DataFrame:
        """The lists of many sessions, as a log without clicks.

        Parameters
        ----------
        X : DataFrame of shape (n_documents, n_columns)
            Candidates: roles ``qid`` and ``doc``, one row per document of a query.
        rankings : sequence of str, or mapping of str to array-like of shape (n_documents,)
            Columns of X that hold scores, or names and scores. Higher is better (for ranks pass
            their negative); NaN where a ranking does not hold the document.
        sessions : int or array-like of shape (n_sessions,)
            Number of sessions, with uniformly distributed queries; or the ``qid`` of each.

        Returns
        -------
        log : DataFrame
            ``session`` (from 0 in every call), ``qid``, ``doc``, ``position``, ``team`` and,
            unless probabilistic, ``arm``, sorted by session and position.

        Raises
        ------
        ValueError
            If a role or column is missing, a document is there twice, a score is infinite, a
            ranking has no document of a query, or a ``qid`` of a session is unknown.
        """
        names = self._names(rankings)
        qid, doc = _read_documents(X)
        query, ids = encode(qid)
        named = isinstance(rankings, Mapping)
        scores = {name: rankings[name] if named else read_column(X, name) for name in names}
        ranks = np.stack([_ranks(query, scores[name], name) for name in names])
        order = np.argsort(query, kind="stable")
        if self.method != "probabilistic":  # no list reaches deeper
            order = order[(ranks <= self.n_positions).any(axis=0)[order]]
        place = pad(offsets_from_sorted(query[order]))
        rows = order[place]
        table = np.where(place >= 0, ranks[:, rows], np.inf).swapaxes(0, 1)
        asked = self._queries(sessions, ids)
        step = max(1, _BATCH // table[0].size)
        drawn = [self._draw(table[asked[i : i + step]]) for i in range(0, len(asked), step)]
        shown, teams, arms = (np.concatenate(part) for part in zip(*drawn, strict=True))
        session, column = np.nonzero(shown >= 0)
        row = rows[asked[session], shown[session, column]]
        texts, which = self._texts(teams[session, column], names)
        log = {"session": session, "qid": qid[row], "doc": doc[row], "position": column + 1}
        log["team"] = pd.Categorical.from_codes(which, texts)
        if self.method != "probabilistic":
            spans = [f"{i + 1}-{i + len(names)}" for i in range(shown.shape[1])]
            log["arm"] = pd.Categorical.from_codes(arms[session, column], spans)
        return pd.DataFrame(log, copy=False)

    def _queries(self, sessions, ids):
        """Number of the query of each session."""
        if isinstance(sessions, Integral):
            if sessions < 1:
                raise ValueError(f"sessions is {sessions}; expected at least one.")
            return self._rng.integers(len(ids), size=int(sessions))
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
        not hold a document. -1 stands behind the end of a list, and where there is no arm.
        """
        if self.method == "balanced":
            return self._merge(ranks)
        drafts, (n_lists, n, n_docs) = self.method == "team-draft", ranks.shape
        each, picks = np.arange(n_lists), np.zeros((n_lists, n), dtype=int)
        shown, arms = np.full((2, n_lists, min(self.n_positions, n_docs)), -1)
        teams = np.zeros((*shown.shape, 1 if drafts else n))
        left = ranks.copy()
        if not drafts:  # exponential variables over weights, sorted, are draws without replacement
            weight = ranks**-self.exponent
            left = self._rng.standard_exponential(ranks.shape) * ranks**self.exponent
            total = weight.sum(axis=2)
        for turn in range(shown.shape[1]):
            best = left.argmin(axis=2)
            can = np.isfinite(np.take_along_axis(left, best[..., None], axis=2))[..., 0]
            prefer = self._rng.random((n_lists, n))
            if drafts:
                prefer -= picks
                if turn + n <= shown.shape[1]:  # a round begins, and nobody takes another's best
                    free = (can & (picks == picks[:, :1])).all(axis=1)
                    free &= (np.diff(np.sort(best, axis=1)) > 0).all(axis=1)
                    arms[free, turn : turn + n] = turn
            ranker = np.where(can, prefer, -np.inf).argmax(axis=1)
            doc = best[each, ranker]
            shown[:, turn] = np.where(can[each, ranker], doc, -1)
            picks[each, ranker] += 1
            teams[:, turn] = ranker[:, None]
            if not drafts:
                own = weight[each, :, doc]
                share = own / np.maximum(np.maximum(total, own), 1e-300)
                teams[:, turn] = share / np.maximum(share.sum(axis=1, keepdims=True), 1e-300)
                total -= own
            left[each, :, doc] = np.inf
        return shown, teams, arms

    def _merge(self, ranks):
        """Balanced lists: each document where it first occurs when both are read in turns."""
        second = self._rng.integers(2, size=(len(ranks), 1)) == np.arange(2)
        turn = (2 * ranks + second[..., None]).min(axis=1)
        shown = turn.argsort(axis=1)[:, : self.n_positions]
        turn = np.take_along_axis(turn, shown, axis=1)
        teams = np.take_along_axis(ranks.swapaxes(1, 2), shown[..., None], axis=1)
        arms = np.full(shown.shape, -1)
        pair = np.nonzero(
            np.isfinite(turn[:, 1:]) & (np.floor(turn[:, 1:] / 2) == np.floor(turn[:, :-1] / 2))
        )
        arms[pair] = arms[pair[0], pair[1] + 1] = pair[1]
        return np.where(np.isinf(turn), -1, shown), teams, arms

    def _texts(self, teams, names):
        """Distinct texts of teams, and the number of the text of each row."""
        if self.method == "team-draft":
            return names, teams[:, 0].astype(int)
        return team_texts(teams, names, "#" if self.method == "balanced" else "=")

    def _names(self, rankings):
        names = [rankings] if isinstance(rankings, str) else list(rankings)
        fit = len({*names}) == 2 or (len({*names}) > 2 and self.method != "balanced")
        if not fit or not all(isinstance(n, str) and n and not {*n} & {*"#= "} for n in names):
            raise ValueError(
                f"Got the rankings {names}; expected two (or more, unless balanced) with "
                "different names, which hold no space, '#' or '='."
            )
        return names


def _is_list(docs):
    """Whether documents stand in an order: no text, set or iterator."""
    return hasattr(docs, "__len__") and hasattr(docs, "__getitem__") and not isinstance(docs, str)


def _read_documents(X):
    """``qid`` and ``doc`` of the candidates."""
    qid, doc = (read_role(X, role) for role in ("qid", "doc"))
    if qid is None or doc is None or not len(qid) or pd.isna(qid).any() or pd.isna(doc).any():
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
    fit = scores.shape == query.shape and not np.isinf(scores).any()
    if not fit or len(np.unique(query[held])) <= query.max():
        raise ValueError(
            f"The scores of {name!r} have the shape {scores.shape}; expected a finite number, or "
            f"NaN where it does not hold the document, in each of {len(query)} rows, and a number "
            "for each query. Drop queries for which a ranking is empty."
        )
    ranks = np.full(len(query), np.inf)
    ranks[held] = rank_in_segment(query[held], scores[held])
    return ranks
