"""Click logs with their truth: documents, a policy that ranks them, users who click."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Bunch, check_random_state

from .._base._sklearn import Interval, validate_params
from .._base._typing import Floats, Frame, Ints, RandomState
from .._log._reader import Rows, read
from .._log._roles import feature_columns, read_features, read_role
from .._log._segments import encode, offsets_from_sorted, pad
from ._policies import (
    PAGES_AT_ONCE,
    DeterministicPolicy,
    PlackettLucePolicy,
    Policy,
    UniformPolicy,
    production_scores,
    required,
)
from ._users import PositionBasedUser, User, checked_instance, draw_sessions, relevance_probability


class SimulatedLog(NamedTuple):
    """A click log and what it was drawn from: ``X, clicks, truth = simulate_clicks(...)``.

    Parameters
    ----------
    X : pandas.DataFrame
        The log, one row per impression.
    clicks : ndarray of shape (n_impressions,), int8
        1 where the user clicked.
    truth : Bunch
        What the log was drawn from; see :func:`simulate_clicks`.
    """

    X: pd.DataFrame
    clicks: NDArray[Any]
    truth: Bunch


@validate_params(
    {
        "n_sessions": [Interval(Integral, 1, 2**31 - 1, closed="both")],
        "n_positions": [Interval(Integral, 1, None, closed="left")],
        "scores": ["array-like", None],
        "query_weights": [Mapping, pd.Series, "array-like", None],
        "candidates": ["boolean"],
        "features": ["boolean"],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def simulate_clicks(
    documents: Frame,
    *,
    n_sessions: int = 100_000,
    n_positions: int = 10,
    policy: Policy | None = None,
    scores: ArrayLike | None = None,
    user: User | None = None,
    noise: float = 0.1,
    max_grade: float = 4,
    gain: str = "exponential",
    query_weights: Mapping[Any, float] | pd.Series | ArrayLike | None = None,
    candidates: bool = False,
    features: bool = True,
    random_state: RandomState = None,
) -> SimulatedLog:
    """Show documents to simulated users and log what they click.

    Each session draws a query, the policy ranks its documents by the production scores, and the
    user sees the first ``n_positions`` and clicks. The truth is returned as well, so that
    estimates can be compared with it.

    Parameters
    ----------
    documents : frame of shape (n_documents, n_columns)
        One row per query-document pair, with the roles ``qid``, ``doc`` (unique in its query) and
        ``relevance``, and the features, such as :func:`skultr.datasets.make_ltr` returns.
    n_sessions : int, default=100_000
    n_positions : int, default=10
        Documents shown per session; all documents of a query that has fewer.
    policy : Policy, default=None
        The policy that ranks; by default ``DeterministicPolicy()``. See :class:`Policy` for your
        own.
    scores : array-like of shape (n_documents,) or (n_documents, n_rankers), default=None
        Scores that the policy ranks by; by default those of :func:`production_scores`, a ranker
        trained on the labels of 1 % of the queries. Several columns are for
        :class:`MixturePolicy`.
    user : User, default=None
        The user who clicks; by default ``PositionBasedUser()``. See :class:`User` for your own.
    noise : float in [0, 1], default=0.1
        Probability that an examined document of grade 0 is found relevant.
    max_grade : float, default=4
        The best grade of the scale, such as 2 for LETOR 4.0; see :func:`relevance_probability`.
        With the default, documents of grade 2 are relevant with probability 0.28.
    gain : {'exponential', 'linear', 'binary'}, default='exponential'
        How relevance grows with the grade; see :func:`relevance_probability`.
    query_weights : mapping, Series or array-like of shape (n_queries,), default=None
        How often each query is asked, in any unit: by query id, or in the sorted order of the
        query ids. By default all queries are asked equally often. With a :class:`UserPopulation`,
        the weights multiply those of its users.
    candidates : bool, default=False
        Whether the log also has the documents of the query that a session did not show. They
        stand behind the shown rows, without a position (NaN) and without a click.
    features : bool, default=True
        Whether the log carries the relevance and the features of each impression. Without them
        a log of a million sessions is small. ``aggregate_clicks(X.assign(click=clicks),
        documents)`` then reduces it further, and joins the features.
    random_state : int, RandomState instance or None, default=None
        Pass an int to get the same log in every call. Queries, rankings and clicks have separate
        random streams. So with the same int, another user gets the same sessions. This holds for
        another :class:`UserPopulation`, too, if its ``user_weights`` and query weights are the
        same.

    Returns
    -------
    X : pandas.DataFrame
        The log, one row per impression, sorted by session and position. Columns:

        - ``session``: int, from 0;
        - ``user``: int, from 0, if there are several;
        - ``qid`` and ``doc``;
        - ``position``: int, from 1; float, with NaN for candidates that were not shown, if there
          are any;
        - ``arm``: float32, if the policy experiments (see :class:`SwapPolicy`);
        - ``context``: int, from 0, if the user has contexts;
        - with ``features`` also ``relevance``, which no model reads in ``fit``, ``production`` if
          ``documents`` has it, and the features (float32).

    clicks : ndarray of shape (n_impressions,), int8
        1 where the user clicked, else 0.
    truth : Bunch
        Always:

        - ``examination``, ndarray of shape (n_positions,): P(examined) by position;
        - ``relevance_probability``, ndarray of shape (n_documents,): P(found relevant | examined)
          of each row of ``documents`` (without effect on a :class:`ClickMatrixUser`);
        - ``scores``, ndarray of shape (n_documents,) or (n_documents, n_rankers): what the policy
          ranked by.

        If the user has contexts (``examination`` is then that of the neutral context):

        - ``context_vectors``, ndarray of shape (n_contexts, n_context_features);
        - ``examination_table``, ndarray of shape (n_contexts, n_positions).

        If there are several users (``examination`` is then the mean over the sessions):

        - ``examination_table``, ndarray of shape (n_users, n_positions);
        - ``user_weights``, ndarray of shape (n_users,): P(user);
        - ``query_weights``, ndarray of shape (n_users, n_queries): P(query | user), in the sorted
          order of the query ids.

        If P(click) of the user is not examination times relevance, also the user's parameters,
        such as ``alpha`` and ``beta`` of a :class:`TrustBiasUser`; see each user.

    Raises
    ------
    ValueError
        If

        - a role is missing,
        - a grade is missing, outside the scale, or unknown to the user,
        - document ids recur in a query,
        - the examination is not known as deep as ``n_positions``,
        - the weights or scores do not fit the documents,
        - a feature is called ``context`` and the user has contexts, or
        - a feature is called ``arm`` and the policy experiments.

    TypeError
        If ``policy`` or ``user`` does not derive from :class:`Policy` or :class:`User`.

    Notes
    -----
    The columns ``context`` and ``arm`` have no role, so that a ranker takes them for features of
    the document. Name them where they are read, as in ``bias=["position", "context"]``, or drop
    them.

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
    policy = checked_instance("policy", policy, Policy, DeterministicPolicy())
    user = checked_instance("user", user, User, PositionBasedUser())
    # Streams of their own, so that queries do not depend on the policy, nor pages on the user.
    seeds = check_random_state(random_state).randint(2**31 - 1, size=5)
    queries_rng, policy_rng, user_rng = np.random.default_rng(seeds[1:]).spawn(3)

    # Documents, and what is true about them.
    roles = {role: required(documents, role) for role in ("qid", "doc", "relevance")}
    _refuse_documents_that_recur(roles)
    if user.context_vectors is not None:
        _check_free(documents, "context", "a user with contexts")
    if scores is None:
        scores = production_scores(documents, random_state=int(seeds[0]))
    relevance = relevance_probability(
        roles["relevance"], noise=noise, max_grade=max_grade, gain=gain
    )
    truth = Bunch(
        examination=np.asarray(user.examination_at(n_positions)),
        relevance_probability=relevance,
        scores=_check_scores(scores, len(roles["doc"]), policy),
    )

    # Sessions: who asks what, and which documents the policy shows.
    code, query_ids = encode(roles["qid"])
    who, query, population = _draw_sessions(
        user, query_ids, query_weights, n_sessions, queries_rng
    )
    order = np.argsort(code, kind="stable").astype(np.int32)
    offsets = offsets_from_sorted(code[order])
    shown, arm = _rank(policy, truth.scores, order, offsets, query, n_positions, policy_rng)
    if arm is not None:
        _check_free(documents, "arm", "a policy that experiments")
    context = _draw_contexts(user, shown, user_rng)

    # What is true about the user.
    if context is not None:
        truth.context_vectors = np.asarray(user.context_vectors)
    truth.update({**population, **user.truth_at(n_positions)})
    truth.update(user.document_truth(relevance))
    if who is not None or context is not None:
        truth.examination_table = np.asarray(user.examination_table(n_positions))

    # Clicks, and the log.
    clicks = click_pages(user, shown, relevance, roles["relevance"], user_rng, who, context)
    columns = _columns_of_pages(shown, clicks, arm, context)
    if candidates:
        columns = _with_candidates(columns, _not_shown(order, offsets, query, shown))
    X, clicks = _log_frame(documents, roles, columns, who, features)
    return SimulatedLog(X, clicks, truth)


# What the user gave -------------------------------------------------------------------
def _refuse_documents_that_recur(roles):
    # One relevance per pair: of two rows it would be unclear which one was shown.
    recurs = pd.DataFrame({"qid": roles["qid"], "doc": roles["doc"]}).duplicated()
    if recurs.any():
        row = int(recurs.argmax())
        raise ValueError(
            f"The doc {roles['doc'][row]!r} of the query {roles['qid'][row]!r} is in several "
            "rows of documents; expected one row per query and doc. Drop or rename the others."
        )


def _check_scores(scores, n_documents, policy):
    """The scores as an array, (n_documents,) or, for several rankers, (n_documents, n_rankers)."""
    scores = np.asarray(scores, dtype=float)
    name = type(policy).__name__
    found = f"scores has the shape {scores.shape}, but {name} ranks by"
    if policy.several_rankers and scores.ndim != 2:
        raise ValueError(
            f"{found} those of several rankers: pass scores= with one column per ranker, such as "
            "numpy.column_stack([production_scores(documents, random_state=seed) for seed in "
            "range(3)])."
        )
    # The other way round: columns that the policy would not read.
    if not policy.several_rankers and scores.ndim != 1:
        raise ValueError(
            f"{found} one ranker: expected ({n_documents},). Pass one column, or "
            "policy=MixturePolicy(), which divides the sessions among the rankers."
        )
    each = " and each ranker" if policy.several_rankers else ""
    expected = f"one finite number for each of the {n_documents} rows of documents{each}"
    if len(scores) != n_documents or not scores.size:
        remedy = " Make one column per ranker: use np.column_stack." if each else ""
        raise ValueError(f"scores must hold {expected}, got the shape {scores.shape}.{remedy}")
    if not np.isfinite(scores).all():
        raise ValueError(
            f"scores must hold {expected}, got the shape {scores.shape} with missing or infinite "
            "values."
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
    # All queries are asked alike, unless weights say otherwise.
    n_queries = len(query_ids)
    if weights is None:
        return np.full(n_queries, 1 / n_queries)
    if isinstance(weights, Mapping | pd.Series):
        weights = _weights_by_id(query_ids, weights)
    weights = np.asarray(weights, dtype=float)
    if weights.shape != (n_queries,):
        raise ValueError(
            f"query_weights has the shape {weights.shape}; expected one weight for each of the "
            f"{n_queries} queries, in the sorted order of their ids."
        )
    # Zeros are weights: a query that nobody asks. All zeros leave nothing to divide by.
    valid = np.isfinite(weights) & (weights >= 0)
    if not valid.all() or not weights.any():
        raise ValueError("query_weights must be finite, at least 0, and not all 0.")
    return weights / weights.sum()


def _weights_by_id(query_ids, weights):
    absent = [query for query in query_ids if query not in weights]
    if absent:
        raise ValueError(
            f"query_weights has no weight for {len(absent)} of {len(query_ids)} queries, "
            f"such as {absent[0]!r}; give 0 to a query that nobody asks."
        )
    return [weights[query] for query in query_ids]


# Sessions -----------------------------------------------------------------------------
def _draw_sessions(user, query_ids, query_weights, n_sessions, rng):
    """User (or None) and query code of each session, and the truth about users and queries."""
    if user.user_weights is None and query_weights is None:
        query = rng.integers(len(query_ids), size=n_sessions, dtype=np.int32)
        return None, query, {}
    # P(query) of the whole log, which users may deviate from.
    base = _query_probabilities(query_ids, query_weights)
    if user.user_weights is None:
        query = rng.choice(len(base), size=n_sessions, p=base)
        return None, query.astype(np.int32), {}
    user_weights = np.asarray(user.user_weights)
    # A separate stream, so that the sequence of users does not depend on what they ask.
    (habits_rng,) = rng.spawn(1)
    habits = _shaped(
        user.draw_query_weights(base, habits_rng),
        (len(user_weights), len(base)),
        "The user's draw_query_weights",
        "P(query | user)",
    )
    # Who asks, then what.
    who, query = draw_sessions(user_weights, habits, n_sessions, rng)
    return who, query, {"user_weights": user_weights, "query_weights": habits}


def _shaped(given, shape, who, what):
    """What a policy or user of one's own returned, if it has the shape that was asked for."""
    values = np.asarray(given)
    if values.shape != shape:
        raise ValueError(f"{who} returned the shape {values.shape}; expected {what}, {shape}.")
    return values


def _rank(policy, scores, order, offsets, query, n_positions, rng):
    """Rows of documents that each session shows, -1 behind the end of a list, and their arms.

    Both of the shape (n_sessions, n_positions); the arms are None without an experiment.
    """
    # No list is longer than the largest query, so that wider arrays would have empty columns.
    longest = int(np.diff(offsets).max())
    width = min(n_positions, longest)
    # Policies see documents sorted by query, and return places among these.
    place, arm = policy.rank_with_arms(scores[order], offsets, query, width, rng)
    place = _shaped(
        place,
        (len(query), width),
        "The policy",
        "a row of documents, or -1 behind the end of a list, for each session and position",
    )
    # Back to rows of the frame; -1 would take the last one.
    shown = np.where(place >= 0, order[place], np.int32(-1))
    return shown, arm


def _draw_contexts(user, shown, rng):
    """Context of each impression, or None for a user without contexts."""
    if user.context_vectors is None:
        return None
    # A separate stream, so that contexts and clicks may be drawn in any order.
    (contexts_rng,) = rng.spawn(1)
    return _shaped(
        user.draw_contexts(shown, contexts_rng),
        shown.shape,
        "The user's draw_contexts",
        "a context for each session and position",
    )


def click_pages(
    user: User,
    shown: Ints,
    relevance: Floats,
    grade: Floats,
    rng: np.random.Generator,
    *about: Ints | None,
) -> Ints:
    """Clicks on the rows that each session was shown, of their shape; 0 where there is none.

    ``about`` holds the user of each session and the context of each impression, or None.
    """
    # The last value is that of an empty place, -1.
    judged = np.append(relevance, -1.0 if user.marks_empty else 0.0)
    # Some users judge by grades, and not by the probability of relevance.
    read_grades = user.read_grades(grade)
    if read_grades is not None:
        read_grades = _shaped(
            read_grades,
            grade.shape,
            "The user's read_grades",
            "one value for each of the documents",
        )
        judged = np.append(read_grades, -1)
    known = [values for values in about if values is not None]
    clicks = np.empty(shown.shape, dtype=np.int8)
    # Memory must not hold the probabilities of a whole log.
    for first in range(0, len(shown), PAGES_AT_ONCE):
        chunk = slice(first, first + PAGES_AT_ONCE)
        pages = shown[chunk]
        known_of_pages = [values[chunk] for values in known]
        drawn = _shaped(
            user.click(judged[pages], rng, *known_of_pages),
            pages.shape,
            "The user's click",
            "a click or none for each session and position",
        )
        clicks[chunk] = np.where(pages >= 0, drawn, 0)
    return clicks


def _not_shown(order, offsets, query, shown):
    """Rows of the documents of each session's query that it did not show, -1 behind the end."""
    # All documents of each query, where the last value fills the places behind their end.
    candidates = np.append(order, np.int32(-1))[pad(offsets)]
    hidden = candidates[query]
    # One position at a time: a document is marked where it was shown.
    for column in shown.T:
        hidden[hidden == column[:, None]] = -1
    return hidden


def _columns_of_pages(shown, clicks, arm, context):
    """What the log says of each place, all of the shape of the pages."""
    position = np.arange(1, shown.shape[1] + 1, dtype=np.int32)
    columns = {"row": shown, "click": clicks, "position": np.broadcast_to(position, shown.shape)}
    # Of experiments and of contexts alone: a column without values would be a feature.
    if arm is not None:
        columns["arm"] = arm
    if context is not None:
        columns["context"] = context
    return columns


def _with_candidates(columns, hidden):
    """Shown rows and, behind them, those that were not shown: no position, no click."""
    # They have no position, arm or context.
    unknown = np.full(hidden.shape, np.nan, dtype=np.float32)
    added = dict.fromkeys(columns, unknown)
    added["row"] = hidden
    added["click"] = np.zeros(hidden.shape, dtype=np.int8)
    return {name: np.column_stack([columns[name], added[name]]) for name in columns}


def _log_frame(documents, roles, columns, who, features):
    """The log as a frame, from columns of shape (n_sessions, n_places), and its clicks."""
    # Of rectangles of sessions and places, what is a row of the log.
    there = columns["row"] >= 0
    # Rows of the log, without the places behind the end of a list.
    values = {name: column[there] for name, column in columns.items()}
    row = values.pop("row")
    clicks = values.pop("click")
    lengths = there.sum(axis=1)
    session = np.arange(len(there), dtype=np.int32)
    log = {"session": np.repeat(session, lengths)}
    if who is not None:
        log["user"] = np.repeat(who, lengths)
    # Roles of the document that each row shows.
    log |= {"qid": roles["qid"][row], "doc": roles["doc"][row], **values}
    if not features:
        return pd.DataFrame(log, copy=False), clicks
    log["relevance"] = roles["relevance"][row]
    production = read_role(documents, "production")
    if production is not None:
        log["production"] = production[row]
    frame = pd.DataFrame(log, copy=False)
    if feature_columns(documents):
        # One copy of the features, not one per column.
        values = read_features(documents)
        shown = pd.DataFrame(values.to_numpy()[row], columns=values.columns, copy=False)
        frame = pd.concat([frame, shown], axis=1)
    return frame, clicks


class ShiftedLogs(NamedTuple):
    """A training log and two test logs: ``train, same, shifted = simulate_shift(...)``.

    Each is a :class:`SimulatedLog`, ``X, clicks, truth``.

    Parameters
    ----------
    train : SimulatedLog
        The log to fit a click model to.
    in_distribution : SimulatedLog
        New sessions of the same policy.
    out_of_distribution : SimulatedLog
        Sessions of another policy: the same documents and users, ranked differently.
    """

    train: SimulatedLog
    in_distribution: SimulatedLog
    out_of_distribution: SimulatedLog


@validate_params(
    {
        "n_sessions": [Interval(Integral, 1, 2**31 - 1, closed="both")],
        "n_test_sessions": [Interval(Integral, 1, 2**31 - 1, closed="both"), None],
        "scores": ["array-like", None],
        "test_scores": ["array-like", None],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def simulate_shift(
    documents: Frame,
    *,
    n_sessions: int = 100_000,
    n_test_sessions: int | None = None,
    policy: Policy | None = None,
    scores: ArrayLike | None = None,
    test_policy: Policy | None = None,
    test_scores: ArrayLike | None = None,
    random_state: RandomState = None,
    **simulate_params: Any,
) -> ShiftedLogs:
    """Simulate a training log, and test logs in and out of its distribution.

    A click model is chosen on a log of the policy in production, and used for rankings of another
    policy. In practice you can measure how well a model predicts the clicks of
    ``in_distribution``. What you need, and cannot measure, is how well it predicts those of
    ``out_of_distribution``. All logs show the same documents to the same kind of user.

    Parameters
    ----------
    documents : frame of shape (n_documents, n_columns)
        As for :func:`simulate_clicks`.
    n_sessions : int, default=100_000
        Sessions of the training log.
    n_test_sessions : int, default=None
        Sessions of each test log. By default a fifth of ``n_sessions``, and at least one.
    policy : Policy, default=None
        The policy of ``train`` and ``in_distribution``. The default is
        ``PlackettLucePolicy(temperature=0.1)``. With a :class:`DeterministicPolicy` each document
        has one position, so that no model can separate examination and relevance.
    scores : array-like of shape (n_documents,) or (n_documents, n_rankers), default=None
        Scores that ``policy`` ranks by. The default are those of :func:`production_scores`. See
        also :func:`noisy_oracle_scores`.
    test_policy : Policy, default=None
        The policy of ``out_of_distribution``; by default ``UniformPolicy()``, or
        ``PlackettLucePolicy(temperature=0.1)`` with ``test_scores``.
    test_scores : array-like of shape (n_documents,) or (n_documents, n_rankers), default=None
        Scores that ``test_policy`` ranks by; by default ``scores``.
    random_state : int, RandomState instance or None, default=None
        Pass an int to get the same logs in every call. The logs are independent of each other.
    **simulate_params : dict
        Further parameters of :func:`simulate_clicks`: ``n_positions``, ``user``, ``noise``,
        ``max_grade``, ``gain``, ``query_weights``, ``features``.

    Returns
    -------
    logs : ShiftedLogs
        ``train``, ``in_distribution`` and ``out_of_distribution``, each with ``X``, ``clicks``
        and ``truth`` as :func:`simulate_clicks` returns them. With features each ``X`` also has
        the annotations, in the column ``relevance``.

    Raises
    ------
    ValueError
        As from :func:`simulate_clicks`.
    TypeError
        If a policy does not derive from :class:`Policy`.

    References
    ----------
    R. Deffayet, P. Hager, J.-M. Renders and M. de Rijke (2023). An offline metric for the
    debiasedness of click models. SIGIR. Section 5.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.simulation import DBNUser, noisy_oracle_scores, simulate_shift
    >>> documents = make_ltr(50, 10, random_state=0)
    >>> train, same, shifted = simulate_shift(
    ...     documents,
    ...     n_sessions=5_000,
    ...     scores=noisy_oracle_scores(documents, random_state=0),
    ...     user=DBNUser(),
    ...     random_state=0,
    ... )
    >>> len(train.X), len(same.X), len(shifted.X)
    (50000, 10000, 10000)

    In the training log the ranking correlates with relevance, in the shifted log it does not:

    >>> [round(float(log.X["relevance"].corr(log.X["position"])), 1) for log in (train, shifted)]
    [-0.5, 0.0]
    """
    # One seed per log, and one for production, which all three share.
    seeds = check_random_state(random_state).randint(2**31 - 1, size=4)
    seeds = seeds.tolist()
    policy = checked_instance("policy", policy, Policy, PlackettLucePolicy())
    # Out of distribution by default: other pages, or the pages of another ranker.
    by_default = UniformPolicy() if test_scores is None else PlackettLucePolicy()
    test_policy = checked_instance("test_policy", test_policy, Policy, by_default)
    if scores is None:
        scores = production_scores(documents, random_state=seeds[0])
    if test_scores is None:
        test_scores = np.asarray(scores, dtype=float)
        if policy.several_rankers and not test_policy.several_rankers:
            # One ranker shows what all of them think.
            test_scores = test_scores.mean(axis=1)
    if n_test_sessions is None:
        # Less than for training, as rates over a whole log have small errors.
        n_test_sessions = max(n_sessions // 5, 1)
    plan = [
        (n_sessions, policy, scores),
        (n_test_sessions, policy, scores),
        (n_test_sessions, test_policy, test_scores),
    ]
    logs = [
        simulate_clicks(
            documents,
            n_sessions=n,
            policy=who_ranks,
            scores=by,
            random_state=seed,
            **simulate_params,
        )
        for (n, who_ranks, by), seed in zip(plan, seeds[1:], strict=True)
    ]
    return ShiftedLogs(*logs)


def clicks_on_lists(
    X: Frame,
    user: User | None = None,
    *,
    noise: float = 0.1,
    max_grade: float = 4,
    gain: str = "exponential",
    random_state: RandomState = None,
) -> Ints:
    """Simulate the clicks of users on given lists, such as interleaved ones.

    :func:`simulate_clicks` makes the lists as well.

    Parameters
    ----------
    X : DataFrame of shape (n_rows, n_columns)
        The lists, one row per shown document, with the roles ``qid``, ``session``, ``position``
        (1, 2, ... without gaps in a list; missing where a row was not shown) and ``relevance``.
    user : User, default=None
        One user without contexts. The default is ``PositionBasedUser()``.
    noise, max_grade, gain
        From ``relevance`` to P(found relevant | examined): see :func:`relevance_probability`. If
        ``relevance`` is that probability, pass ``noise=0, max_grade=1, gain="linear"``.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    clicks : ndarray of shape (n_rows,), int8
        1 where the user clicked, else 0.

    Raises
    ------
    ValueError
        If a role is missing or invalid, if a list has a gap, if a row counts several impressions,
        or if the user has contexts or is a population.
    TypeError
        If ``user`` does not derive from :class:`User`.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.evaluation import Interleaver, interleaving_outcome
    >>> from skultr.simulation import clicks_on_lists
    >>> documents = make_ltr(200, random_state=0)
    >>> documents["new"] = documents["feature_000"] + documents["relevance"]
    >>> lists = Interleaver(random_state=0).interleave(
    ...     documents, ["feature_000", "new"], sessions=2000
    ... )
    >>> lists = lists.merge(documents[["qid", "doc", "relevance"]])
    >>> clicks = clicks_on_lists(lists, random_state=0)
    >>> interleaving_outcome(lists, clicks).verdict.split(":")[0]
    'new beats feature_000'
    """
    user = checked_instance("user", user, User, PositionBasedUser())
    if user.user_weights is not None or user.context_vectors is not None:
        raise ValueError(
            f"{type(user).__name__} needs the user or the context of each row, which only "
            "simulate_clicks draws; expected one user without contexts."
        )
    names = ("qid", "session", "position", "relevance")
    need = dict.fromkeys(names, "to know what each session saw")
    rows = read(X, reads=[*names, "impressions"], need=need, caller="clicks_on_lists")
    pages = _pages(rows)
    grade = rows["relevance"]
    # Rows that were not shown may lack a grade, and are not clicked.
    probability = relevance_probability(
        np.where(rows.shown, grade, 0.0), noise=noise, max_grade=max_grade, gain=gain
    )
    seeds = check_random_state(random_state).randint(2**31, size=4)
    drawn = click_pages(user, pages, probability, grade, np.random.default_rng(seeds))
    there = pages >= 0
    clicks = np.zeros(rows.n_rows, dtype=np.int8)
    clicks[pages[there]] = drawn[there]
    return clicks


def _pages(rows: Rows) -> Ints:
    """Rows that each list shows, of shape (n_lists, n_positions), -1 behind the end of a list."""
    shown = np.flatnonzero(rows.shown)
    list_, _ = encode(rows.list_[shown])
    position = rows.position[shown]
    length = np.bincount(list_)
    counted = rows.impressions[shown] != 1
    # Behind a gap a position is deeper than the list is long.
    has_gap = position > length[list_]
    if counted.any() or has_gap.any():
        raise ValueError(
            "X holds rows of several impressions, or a list with a gap; expected one row per "
            "shown document of a session, and positions 1, 2, ... in each session and query."
        )
    # Each row at its position in its list.
    longest = length.max(initial=0)
    pages = np.full((len(length), longest), -1)
    pages[list_, position - 1] = shown
    return pages
