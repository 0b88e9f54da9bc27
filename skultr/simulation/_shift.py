"""Logs of one policy to learn from, and of the same and another one to test on."""

from numbers import Integral
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from .._sklearn import HasMethods, Interval, validate_params
from ._generate import SimulatedLog, simulate_clicks
from ._policies import PlackettLucePolicy, UniformPolicy, production_scores

__all__ = ["ShiftedLogs", "simulate_shift"]


class ShiftedLogs(NamedTuple):
    """A log to learn from and two to test on: ``train, same, shifted = simulate_shift(...)``.

    Each is a :class:`SimulatedLog`, ``X, clicks, truth``.

    Parameters
    ----------
    train : SimulatedLog
        The log that a click model is fitted to.
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
        "policy": [HasMethods(["rank"]), None],
        "scores": ["array-like", None],
        "test_policy": [HasMethods(["rank"]), None],
        "test_scores": ["array-like", None],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def simulate_shift(
    documents,
    *,
    n_sessions=100_000,
    n_test_sessions=None,
    policy=None,
    scores=None,
    test_policy=None,
    test_scores=None,
    random_state=None,
    **simulate_params,
):
    """Simulate a log to learn from, and test logs in and out of its distribution.

    A click model is chosen on a log of the policy that is in production, to be used for rankings
    that another policy will show. This gives both: how well a model predicts the clicks on
    ``in_distribution`` is what a practitioner can see, how well on ``out_of_distribution`` is
    what they need and cannot see. All logs show the same documents to the same kind of user.

    Parameters
    ----------
    documents : frame of shape (n_documents, n_columns)
        As for :func:`simulate_clicks`.
    n_sessions : int, default=100_000
        Of the log to learn from.
    n_test_sessions : int, default=None
        Of each test log. By default a fifth of ``n_sessions``, and at least one.
    policy : policy, default=None
        Who ranks in ``train`` and ``in_distribution``; by default
        ``PlackettLucePolicy(temperature=0.1)``. A :class:`DeterministicPolicy` shows each
        document at one position, from which no model can tell examination and relevance apart.
    scores : array-like of shape (n_documents,) or (n_documents, n_rankers), default=None
        What ``policy`` ranks by; by default those of :func:`production_scores`. See also
        :func:`noisy_oracle_scores`.
    test_policy : policy, default=None
        Who ranks in ``out_of_distribution``; by default ``UniformPolicy()``, or
        ``PlackettLucePolicy(temperature=0.1)`` with ``test_scores``.
    test_scores : array-like of shape (n_documents,) or (n_documents, n_rankers), default=None
        What ``test_policy`` ranks by; by default ``scores``.
    random_state : int, RandomState instance or None, default=None
        Pass an int for the same logs in every call. The logs are independent of each other.
    **simulate_params : dict
        What :func:`simulate_clicks` takes beside these: ``n_positions``, ``user``, ``noise``,
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
        As :func:`simulate_clicks`.

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

    The ranking of the train log follows the relevance, that of the shifted log does not:

    >>> [round(float(log.X["relevance"].corr(log.X["position"])), 1) for log in (train, shifted)]
    [-0.5, 0.0]
    """
    seeds = check_random_state(random_state).randint(2**31 - 1, size=4).tolist()
    if scores is None:
        scores = production_scores(documents, random_state=seeds[0])
    policy = PlackettLucePolicy() if policy is None else policy
    if test_policy is None:
        test_policy = UniformPolicy() if test_scores is None else PlackettLucePolicy()
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


def _scores_for(test_policy, policy, scores):
    """Scores of the train log for the test policy: of several rankers, their mean for one."""
    both = [getattr(who, "several_rankers", False) for who in (test_policy, policy)]
    return np.mean(scores, axis=1) if both == [False, True] else scores
