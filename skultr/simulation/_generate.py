"""Click logs with their truth: documents, a policy that ranks them, users who click."""

from collections.abc import Mapping
from numbers import Integral
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.utils import Bunch, check_random_state

from .._log._roles import feature_columns, read_features, read_role
from .._log._segments import encode, offsets_from_sorted, pad
from .._sklearn import HasMethods, Interval, validate_params
from ._policies import DeterministicPolicy, production_scores
from ._population import draw_sessions
from ._users import PositionBasedUser, relevance_probability

__all__ = ["SimulatedLog", "simulate_clicks"]

#: Sessions that click at a time, so that probabilities are never held for the whole log.
_CHUNK = 65_536


class SimulatedLog(NamedTuple):
    """A click log and what it was drawn from: ``X, clicks, truth = simulate_clicks(...)``.

    Parameters
    ----------
    X : pandas.DataFrame
        The log, one row an impression.
    clicks : ndarray of shape (n_impressions,), int8
        1 where the user clicked.
    truth : Bunch
        What no log knows; see :func:`simulate_clicks`.
    """

    X: pd.DataFrame
    clicks: np.ndarray
    truth: Bunch


@validate_params(
    {
        "documents": "no_validation",
        "n_sessions": [Interval(Integral, 1, 2**31 - 1, closed="both")],
        "n_positions": [Interval(Integral, 1, None, closed="left")],
        "policy": [HasMethods(["rank"]), None],
        "scores": ["array-like", None],
        "user": [HasMethods(["click", "examination_at"]), None],
        "noise": "no_validation",
        "max_grade": "no_validation",
        "gain": "no_validation",
        "query_weights": [Mapping, pd.Series, "array-like", None],
        "candidates": ["boolean"],
        "features": ["boolean"],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def simulate_clicks(
    documents,
    *,
    n_sessions=100_000,
    n_positions=10,
    policy=None,
    scores=None,
    user=None,
    noise=0.1,
    max_grade=4,
    gain="exponential",
    query_weights=None,
    candidates=False,
    features=True,
    random_state=None,
):
    """Show documents to simulated users and log what they click.

    Each session draws a query, the policy ranks its documents by the production scores, and the
    user sees the first ``n_positions`` and clicks. The truth comes along, so that an estimate
    can be compared with what it estimates.

    Parameters
    ----------
    documents : frame of shape (n_documents, n_columns)
        One row a query-document pair with the roles ``qid``, ``doc`` (unique) and ``relevance``,
        and the features, such as :func:`skultr.datasets.make_ltr` returns.
    n_sessions : int, default=100_000
    n_positions : int, default=10
        Documents shown in a session; all of them where a query has fewer.
    policy : policy, default=None
        Who ranks; by default ``DeterministicPolicy()``.
    scores : array-like of shape (n_documents,) or (n_documents, n_rankers), default=None
        What the policy ranks by; by default those of :func:`production_scores`, a ranker trained
        on the labels of 1 % of the queries. Several columns are for :class:`MixturePolicy`.
    user : user, default=None
        Who clicks; by default ``PositionBasedUser()``. See Notes for your own.
    noise : float in [0, 1], default=0.1
        Probability that an examined document of grade 0 is found relevant.
    max_grade : float, default=4
        The best grade of the scale; see :func:`relevance_probability`.
    gain : {'exponential', 'linear', 'binary'}, default='exponential'
        How relevance grows with the grade; see :func:`relevance_probability`.
    query_weights : mapping, Series or array-like of shape (n_queries,), default=None
        How often each query is asked, in any unit: by query id, or in the sorted order of the
        query ids. By default all are asked equally often. The weights that the users of a
        :class:`UserPopulation` have for queries are multiplied by them.
    candidates : bool, default=False
        Whether the log also has the documents of the query that a session did not show, as rows
        without a position (NaN) or click behind those that it did.
    features : bool, default=True
        Whether the log carries the relevance and the features of each impression. Without them
        a log of a million sessions is small: reduce it with
        ``aggregate_clicks(X.assign(click=clicks), documents)``, which joins them afterwards.
    random_state : int, RandomState instance or None, default=None
        Pass an int for the same log in every call. Queries, rankings and clicks have streams of
        their own: with the same int, another user meets the same sessions (and another
        :class:`UserPopulation` of the same size and habits).

    Returns
    -------
    X : pandas.DataFrame
        The log, one row an impression, sorted by session and position: ``session`` (int, from
        0); ``user`` (int, from 0) if there are several; ``qid``, ``doc``, ``position`` (int, from
        1; float with NaN where a candidate was not shown); ``arm`` (float32) if the policy
        experiments, see :class:`SwapPolicy`; ``context`` (int, from 0) if the user has contexts;
        with ``features`` also ``relevance``, which no model reads in ``fit``, and the features
        (float32).
    clicks : ndarray of shape (n_impressions,), int8
        1 where the user clicked, else 0.
    truth : Bunch
        ``examination``, ndarray of shape (n_positions,): P(examined) by position;
        ``relevance_probability``, ndarray of shape (n_documents,): P(found relevant | examined)
        of each row of ``documents`` (of no effect on a :class:`ClickMatrixUser`); ``scores``,
        ndarray of shape (n_documents,) or (n_documents, n_rankers): what the policy ranked by.

        If the user has contexts, also ``context_vectors``, ndarray of shape
        (n_contexts, n_context_features), and ``examination_table``, ndarray of shape
        (n_contexts, n_positions); ``examination`` is then that of the neutral context.

        If there are several users, ``examination_table`` has the shape (n_users, n_positions) and
        ``examination`` is its mean over the sessions; ``user_weights``, ndarray of shape
        (n_users,), is P(user) and ``query_weights``, ndarray of shape (n_users, n_queries),
        P(query | user) in the sorted order of the query ids.

        If clicks are not examination times relevance, also what they are: ``alpha`` and ``beta``
        of a :class:`TrustBiasUser`, ``click_matrix`` of a :class:`ClickMatrixUser`, what
        :class:`DBNUser`, :class:`UBMUser` and their like go by (see there).

    Raises
    ------
    ValueError
        If a role is missing, a grade is missing, outside the scale or unknown to the user,
        document ids recur, the examination is not known as deep as ``n_positions``, or the
        weights or scores do not fit the documents. If a feature is called ``context`` and the
        user has contexts, or ``arm`` and the policy experiments.

    Notes
    -----
    A policy is any object with the method ``rank``, as :class:`DeterministicPolicy` describes it.
    One that experiments also has ``rank_with_arms``, see :class:`SwapPolicy`; one that takes
    ``scores`` of several rankers has an attribute ``several_rankers = True``.

    A user is any object with the methods ``examination_at(n_positions)`` and
    ``click(relevance_probability, rng)``, as :class:`PositionBasedUser` describes them. One with
    contexts has three things more: ``draw_contexts(shown, rng)``, called once for all sessions,
    whose draws then come as a third argument of ``click``; ``context_vectors``; and
    ``examination_table(n_positions)``. See :class:`ContextualPositionBasedUser`. Several users in
    one have ``user_weights``, ``examination_table(n_positions)`` and
    ``draw_query_weights(query_weights, rng)``, and ``click`` gets the user of each session as its
    third argument. See :class:`UserPopulation`.

    A user who does not go by the relevance probability has ``read_grades(grade)``, called once
    with the grades of all documents; ``click`` then gets what it returned in their place, and -1
    where nothing is shown. See :class:`ClickMatrixUser`. One who must know where nothing is shown
    has ``marks_empty = True``, and gets -1 there instead of 0. See :class:`CarouselUser`. What
    ``truth_at(n_positions)`` of a user returns, a mapping, joins the truth, and so does what
    ``document_truth(relevance_probability)`` returns, arrays of shape (n_documents,). See
    :class:`DBNUser`.

    The columns ``context`` and ``arm`` have no role: name them where they are read, as
    ``bias=["position", "context"]``, or drop them, or a ranker takes them for features of the
    document.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.simulation import simulate_clicks
    >>> documents = make_ltr(200, n_features=20, random_state=0)
    >>> X, clicks, truth = simulate_clicks(documents, n_sessions=1_000, random_state=0)
    >>> X.columns[:6].tolist()
    ['session', 'qid', 'doc', 'position', 'relevance', 'feature_000']
    >>> len(X), clicks.sum() > 0
    (10000, np.True_)
    >>> truth.examination[:3]
    array([0.68, 0.61, 0.48])
    """
    policy = DeterministicPolicy() if policy is None else policy
    user = PositionBasedUser() if user is None else user
    seeds = check_random_state(random_state).randint(2**31 - 1, size=5)
    of_queries, of_policy, of_user = np.random.default_rng(seeds[1:]).spawn(3)
    roles = _read_documents(documents)
    if hasattr(policy, "rank_with_arms"):
        _check_free(documents, "arm", "a policy that experiments")
    if hasattr(user, "draw_contexts"):
        _check_free(documents, "context", "a user with contexts")
    if scores is None:
        scores = production_scores(documents, random_state=int(seeds[0]))
    truth = Bunch(
        examination=np.asarray(user.examination_at(n_positions)),
        relevance_probability=relevance_probability(
            roles["relevance"], noise=noise, max_grade=max_grade, gain=gain
        ),
        scores=_check_scores(scores, len(roles["doc"]), policy),
    )
    code, query_ids = encode(roles["qid"])
    who, query, of_population = _draw_sessions(
        user, query_ids, query_weights, n_sessions, of_queries
    )
    shown, arm = _rank(policy, code, truth.scores, query, n_positions, of_policy)
    context = None
    if hasattr(user, "draw_contexts"):
        # A stream of its own, so that contexts and clicks may be drawn in any order.
        context = _draw_contexts(user, shown, of_user.spawn(1)[0])
        truth.context_vectors = np.asarray(user.context_vectors)
    truth.update(of_population)
    truth.update(_truth_of_user(user, n_positions, truth.relevance_probability))
    if who is not None or context is not None:
        truth.examination_table = np.asarray(user.examination_table(n_positions))
    judged = _judge(user, truth.relevance_probability, roles["relevance"])
    clicks = _click(user, shown, judged, of_user, who, context)
    rows = {"row": shown, "position": _positions(shown), "arm": arm, "context": context}
    if candidates:
        rows, clicks = _with_candidates(rows, clicks, _not_shown(code, query, shown))
    X = _log_frame(documents, roles, rows, who, features)
    return SimulatedLog(X, clicks, truth)


# --------------------------------------------------------------------------------------
# What the user gave
# --------------------------------------------------------------------------------------
def _read_documents(documents):
    """The roles of the documents, checked."""
    roles = {}
    for role in ("qid", "doc", "relevance"):
        roles[role] = read_role(documents, role)
        if roles[role] is None:
            raise ValueError(
                f"documents has no column {role!r}; expected the roles 'qid', 'doc' and "
                "'relevance', one row a query-document pair. Rename the column that holds it."
            )
    if not len(roles["doc"]):
        raise ValueError("documents is empty; expected at least one row.")
    missing = np.isnan(roles["relevance"])
    if missing.any():
        raise ValueError(
            f"relevance is missing in {int(missing.sum())} of {len(missing)} rows of documents, "
            f"first in row {int(missing.argmax())}; users cannot judge them. Drop these rows."
        )
    recurs = pd.Series(roles["doc"]).duplicated()
    if recurs.any():
        raise ValueError(
            f"The doc {roles['doc'][int(recurs.argmax())]!r} stands in several rows of documents; "
            "expected one row a doc. 'doc' names a query-document pair: make it unique by query."
        )
    return roles


def _check_scores(scores, n_documents, policy):
    scores = np.asarray(scores, dtype=float)
    several = getattr(policy, "several_rankers", False)
    if scores.ndim != (2 if several else 1):
        raise ValueError(
            f"scores has the shape {scores.shape}, but {type(policy).__name__} ranks by "
            + (
                "those of several rankers: pass scores= with a column a ranker, such as "
                "numpy.column_stack([production_scores(documents, random_state=seed) for seed in "
                "range(3)])."
                if several
                else f"one ranker: expected ({n_documents},). Pass one column, or "
                "policy=MixturePolicy(), which shares the sessions among the rankers."
            )
        )
    fits = len(scores) == n_documents and scores.size
    if not fits or not np.isfinite(scores).all():
        raise ValueError(
            f"scores must hold one finite number for each of the {n_documents} rows of "
            f"documents{' and each ranker' if several else ''}, got the shape {scores.shape}"
            + (" with missing or infinite values." if fits else ".")
        )
    return scores


def _check_free(documents, name, who):
    if name in feature_columns(documents):
        raise ValueError(
            f"documents has a column {name!r}, and so has the log of {who}. Rename the column of "
            "documents."
        )


def _query_probabilities(query_ids, weights):
    """P(query) in the order of the ids."""
    if weights is None:
        return np.full(len(query_ids), 1 / len(query_ids))
    if isinstance(weights, Mapping | pd.Series):
        absent = [query for query in query_ids if query not in weights]
        if absent:
            raise ValueError(
                f"query_weights has no weight for {len(absent)} of {len(query_ids)} queries, "
                f"such as {absent[0]!r}; give 0 to a query that nobody asks."
            )
        weights = [weights[query] for query in query_ids]
    weights = np.asarray(weights, dtype=float)
    if weights.shape != (len(query_ids),):
        raise ValueError(
            f"query_weights has the shape {weights.shape}; expected one weight for each of the "
            f"{len(query_ids)} queries, in the sorted order of their ids."
        )
    if not (np.isfinite(weights) & (weights >= 0)).all() or not weights.any():
        raise ValueError("query_weights must be finite, at least 0, and not all 0.")
    return weights / weights.sum()


# --------------------------------------------------------------------------------------
# Sessions
# --------------------------------------------------------------------------------------
def _draw_sessions(user, query_ids, query_weights, n_sessions, rng):
    """User (or None) and query code of each session, and the truth about who asks what."""
    if not hasattr(user, "draw_query_weights"):
        return None, _draw_queries(query_ids, query_weights, n_sessions, rng), {}
    base = _query_probabilities(query_ids, query_weights)
    user_weights = np.asarray(user.user_weights)
    # A stream of its own, so that the same users come in the same order, whatever they ask.
    habits = np.asarray(user.draw_query_weights(base, rng.spawn(1)[0]))
    if habits.shape != (len(user_weights), len(base)):
        raise ValueError(
            f"The user's draw_query_weights returned the shape {habits.shape}; expected "
            f"P(query | user), {(len(user_weights), len(base))}."
        )
    who, query = draw_sessions(user_weights, habits, n_sessions, rng)
    return who, query, {"user_weights": user_weights, "query_weights": habits}


def _draw_queries(query_ids, weights, n_sessions, rng):
    """Query code of each session."""
    if weights is None:
        return rng.integers(len(query_ids), size=n_sessions, dtype=np.int32)
    probabilities = _query_probabilities(query_ids, weights)
    return rng.choice(len(query_ids), size=n_sessions, p=probabilities).astype(np.int32)


def _rank(policy, code, scores, query, n_positions, rng):
    """Rows of documents that each session shows, -1 behind the end of a list, and their arms.

    Both of the shape (n_sessions, n_positions); the arms are None without an experiment.
    """
    order = np.argsort(code, kind="stable").astype(np.int32)
    offsets = offsets_from_sorted(code[order])
    # No list is longer than the largest query: do not carry columns that are empty everywhere.
    width = min(n_positions, int(np.diff(offsets).max()))
    if hasattr(policy, "rank_with_arms"):
        place, arm = policy.rank_with_arms(scores[order], offsets, query, width, rng)
    else:
        place, arm = policy.rank(scores[order], offsets, query, width, rng), None
    if place.shape != (len(query), width):
        raise ValueError(
            f"The policy returned the shape {place.shape}; expected one row of documents for "
            f"each session and position, {(len(query), width)}, with -1 behind the end of a list."
        )
    shown = np.empty(place.shape, dtype=np.int32)
    for start in range(0, len(place), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        shown[chunk] = np.where(place[chunk] >= 0, order[place[chunk]], -1)
    return shown, arm


def _draw_contexts(user, shown, rng):
    """Context of each impression, (n_sessions, n_positions)."""
    context = np.asarray(user.draw_contexts(shown, rng))
    if context.shape != shown.shape:
        raise ValueError(
            f"The user's draw_contexts returned the shape {context.shape}; expected a context for "
            f"each session and position, {shown.shape}."
        )
    return context


def _truth_of_user(user, n_positions, relevance):
    """What the user goes by that is neither examination nor relevance."""
    truth = {}
    if hasattr(user, "truth_at"):
        truth |= user.truth_at(n_positions)
    if hasattr(user, "document_truth"):
        truth |= user.document_truth(relevance)
    return truth


def _judge(user, relevance, grade):
    """What the user judges each document by, and in the end, where -1 points, an empty place."""
    if not hasattr(user, "read_grades"):
        return np.append(relevance, -1.0 if getattr(user, "marks_empty", False) else 0.0)
    read = np.asarray(user.read_grades(grade))
    if read.shape != grade.shape:
        raise ValueError(
            f"The user's read_grades returned the shape {read.shape}; expected one value for each "
            f"of the documents, {grade.shape}."
        )
    return np.append(read, -1)


def _click(user, shown, judged, rng, *about):
    """Clicks of the rows that were shown, session by session.

    ``about`` is what the user's ``click`` gets to know of each session, None for nothing.
    """
    about = [values for values in about if values is not None]
    clicks = np.empty(int(np.count_nonzero(shown >= 0)), dtype=np.int8)
    start = 0
    for first in range(0, len(shown), _CHUNK):
        rows = shown[first : first + _CHUNK]
        there = rows >= 0
        of_chunk = [values[first : first + _CHUNK] for values in about]
        drawn = user.click(judged[rows], rng, *of_chunk)[there]
        clicks[start : start + len(drawn)] = drawn
        start += len(drawn)
    return clicks


def _positions(shown):
    positions = np.arange(1, shown.shape[1] + 1, dtype=np.int32)
    return np.broadcast_to(positions, shown.shape)


def _not_shown(code, query, shown):
    """Rows of the documents of each session's query that it did not show, -1 behind the end."""
    order = np.argsort(code, kind="stable").astype(np.int32)
    place = pad(offsets_from_sorted(code[order]))
    of_query = np.where(place >= 0, order[np.maximum(place, 0)], np.int32(-1))
    hidden = of_query[query]
    for first in range(0, len(shown), _CHUNK):
        chunk = hidden[first : first + _CHUNK]
        for column in shown[first : first + _CHUNK].T:
            chunk[chunk == column[:, None]] = -1
    return hidden


def _with_candidates(rows, clicks, hidden):
    """Rows of what was shown and, behind them, of what was not: no position, no click."""
    there = rows["row"] >= 0
    clicked = np.zeros(there.shape, dtype=clicks.dtype)
    clicked[there] = clicks
    of_hidden = np.full(hidden.shape, np.nan, dtype=np.float32)
    row = np.column_stack([rows["row"], hidden])
    wide = {
        name: None if values is None else np.column_stack([values, of_hidden])
        for name, values in rows.items()
    }
    clicked = np.column_stack([clicked, np.zeros_like(hidden, dtype=clicks.dtype)])
    return {**wide, "row": row}, clicked[row >= 0]


def _log_frame(documents, roles, rows, who, features):
    """The log, from rectangles (n_sessions, n_columns) of what each row is and stands at."""
    there = rows["row"] >= 0
    row = rows["row"][there]
    lengths = there.sum(axis=1)
    log = {"session": np.repeat(np.arange(len(there), dtype=np.int32), lengths)}
    if who is not None:
        log["user"] = np.repeat(who, lengths)
    log["qid"] = roles["qid"][row]
    log["doc"] = roles["doc"][row]
    log |= {
        name: values[there]
        for name, values in rows.items()
        if name != "row" and values is not None
    }
    if not features:
        return pd.DataFrame(log, copy=False)
    log["relevance"] = roles["relevance"][row]
    if not feature_columns(documents):
        return pd.DataFrame(log, copy=False)
    values = read_features(documents)
    values_of_rows = pd.DataFrame(values.to_numpy()[row], columns=values.columns, copy=False)
    return pd.concat([pd.DataFrame(log, copy=False), values_of_rows], axis=1)
