"""A training log of one policy, and test logs of the same policy and of another one."""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from .._sklearn import Interval, validate_params
from .._typing import Frame, RandomState
from ._generate import SimulatedLog, simulate_clicks
from ._policies import PlackettLucePolicy, UniformPolicy, production_scores
from ._protocols import Policy, check_instance


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
        "documents": "no_validation",
        "n_sessions": [Interval(Integral, 1, 2**31 - 1, closed="both")],
        "n_test_sessions": [Interval(Integral, 1, 2**31 - 1, closed="both"), None],
        "policy": "no_validation",
        "scores": ["array-like", None],
        "test_policy": "no_validation",
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
    policy. How well a model predicts the clicks of ``in_distribution`` is what a practitioner can
    measure; how well it predicts those of ``out_of_distribution`` is what they need and cannot
    measure. All logs show the same documents to the same kind of user.

    Parameters
    ----------
    documents : frame of shape (n_documents, n_columns)
        As for :func:`simulate_clicks`.
    n_sessions : int, default=100_000
        Sessions of the training log.
    n_test_sessions : int, default=None
        Sessions of each test log. By default a fifth of ``n_sessions``, and at least one.
    policy : Policy, default=None
        The policy of ``train`` and ``in_distribution``; by default
        ``PlackettLucePolicy(temperature=0.1)``. A :class:`DeterministicPolicy` shows each
        document at one position, so that no model can separate examination and relevance.
    scores : array-like of shape (n_documents,) or (n_documents, n_rankers), default=None
        Scores that ``policy`` ranks by; by default those of :func:`production_scores`. See also
        :func:`noisy_oracle_scores`.
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
    seeds = check_random_state(random_state).randint(2**31 - 1, size=4).tolist()
    policy = PlackettLucePolicy() if policy is None else policy
    if test_policy is None:
        test_policy = UniformPolicy() if test_scores is None else PlackettLucePolicy()
    check_instance("policy", policy, Policy)
    check_instance("test_policy", test_policy, Policy)
    if scores is None:
        scores = production_scores(documents, random_state=seeds[0])
    if test_scores is None:
        test_scores = _scores_for(test_policy, policy, scores)
    n_test = max(n_sessions // 5, 1) if n_test_sessions is None else n_test_sessions
    plan = [
        (n_sessions, policy, scores),
        (n_test, policy, scores),
        (n_test, test_policy, test_scores),
    ]
    return ShiftedLogs(
        *(
            simulate_clicks(
                documents,
                n_sessions=n,
                policy=who,
                scores=by,
                random_state=seed,
                **simulate_params,
            )
            for (n, who, by), seed in zip(plan, seeds[1:], strict=True)
        )
    )


def _scores_for(test_policy: Policy, policy: Policy, scores: ArrayLike) -> ArrayLike:
    """Scores of the training log for the test policy; the mean of several rankers for one."""
    if policy.several_rankers and not test_policy.several_rankers:
        return np.mean(np.asarray(scores, dtype=float), axis=1)
    return scores
