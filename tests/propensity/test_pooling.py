import numpy as np
import pandas as pd
import pytest

from skultr.exceptions import NotIdentifiableWarning
from skultr.propensity import InterventionHarvesting, RandomizedPropensity
from skultr.propensity._comparisons import _factor_scale
from skultr.simulation import (
    MixturePolicy,
    ShufflePolicy,
    SwapPolicy,
    UserPopulation,
)

from .conftest import CURVE, simulate


@pytest.fixture(scope="module")
def population():
    etas = np.random.default_rng(0).normal(1.0, 0.4, 60).clip(0, 2.5)
    return CURVE[None, :5] ** etas[:, None]


def _errors(estimator, X, clicks, truth):
    curves = estimator.fit(X, clicks).examination_["examination"].unstack("bias")
    common = estimator.average_examination_["examination"]
    curves = curves.reindex(range(len(truth))).fillna(common)
    return np.abs(np.minimum(curves, 1) - truth).to_numpy().mean(), curves


@pytest.mark.parametrize(
    ("policy", "estimator"),
    [
        (ShufflePolicy(), RandomizedPropensity(user="user")),
        (SwapPolicy(), RandomizedPropensity(arm="arm", user="user")),
        (MixturePolicy(), InterventionHarvesting(user="user", n_bootstrap=0)),
    ],
    ids=["shuffles", "swaps", "harvesting"],
)
@pytest.mark.filterwarnings("ignore")  # some users have no click at some position
def test_shrunk_curves_beat_own_and_common_ones(world, population, policy, estimator):
    users = UserPopulation(examination=population, decay=1.0)
    X, clicks = simulate(world, policy, 60 * 200, user=users, n_positions=5)
    shrunk, _ = _errors(estimator, X, clicks, population)
    common = estimator.average_examination_["examination"].to_numpy()
    own, _ = _errors(estimator.set_params(user_shrinkage=0), X, clicks, population)
    assert shrunk < 0.95 * own
    assert shrunk < 0.95 * np.abs(common - population).mean()


@pytest.mark.filterwarnings("ignore")  # some users have no click at some position
def test_users_who_are_alike_get_nearly_the_common_curve(world):
    X, clicks = simulate(world, ShufflePolicy(), 6_000, n_positions=5)
    X["user"] = X["session"] % 60
    estimator = RandomizedPropensity(user="user")
    own = estimator.set_params(user_shrinkage=0.0)
    apart = own.fit(X, clicks).examination_["examination"].unstack("bias")
    shrunk = estimator.set_params(user_shrinkage="auto").fit(X, clicks)
    together = shrunk.examination_["examination"].unstack("bias")
    common = shrunk.average_examination_["examination"]
    distance = (np.log(together / common).std() / np.log(apart / common).std())[1:]
    assert (distance < 0.25).all()


def test_a_user_alone_is_the_curve_of_all(world):
    X, clicks = simulate(world, MixturePolicy(), 20_000)
    alone = InterventionHarvesting(n_bootstrap=0).fit(X, clicks).examination_
    own = InterventionHarvesting(user="user", user_shrinkage=0, n_bootstrap=0)
    own.fit(X.assign(user="me"), clicks)
    found = own.examination_.loc["me"]
    pd.testing.assert_frame_equal(found, alone, rtol=1e-9)
    pulled = own.set_params(user_shrinkage="auto").fit(X.assign(user="me"), clicks).examination_
    moved = np.abs(np.log(pulled["examination"].to_numpy() / alone["examination"].to_numpy()))
    # A pull beyond the standard error would contradict the clicks.
    assert (moved <= alone["standard_error"].to_numpy() + 1e-9).all()


def test_a_strong_pull_leaves_nothing_of_users(world, population):
    users = UserPopulation(examination=population, decay=1.0)
    X, clicks = simulate(world, ShufflePolicy(), 6_000, user=users, n_positions=5)
    estimator = RandomizedPropensity(user="user", user_shrinkage=1e6).fit(X, clicks)
    curves = estimator.examination_["examination"].unstack("bias")
    common = estimator.average_examination_["examination"]
    np.testing.assert_allclose(curves, np.tile(common, (len(curves), 1)), rtol=0.01)


def _power_laws(etas, sessions_of_user, seed=0):
    """A log of users who fall with exponents ``etas``; the truth, and what is found of it."""
    truth = CURVE[None] ** np.asarray(etas)[:, None]
    rng = np.random.default_rng(seed)
    n_sessions = int(np.sum(sessions_of_user))
    user = rng.permutation(np.repeat(np.arange(len(etas)), sessions_of_user))
    query = rng.integers(50, size=n_sessions)
    relevance = rng.uniform(0.05, 0.9, (50, 10))
    order = np.argsort(-2 * np.log(relevance[query]) - rng.gumbel(size=(n_sessions, 10)), axis=1)
    chance = np.take_along_axis(relevance[query], order, axis=1) * truth[user]
    X = pd.DataFrame(
        {
            "session": np.repeat(np.arange(n_sessions), 10),
            "user": np.repeat(user, 10),
            "qid": np.repeat(query, 10),
            "doc": order.ravel(),
            "position": np.tile(np.arange(1, 11), n_sessions),
        }
    )
    clicks = (rng.random(chance.shape) < chance).ravel().astype(float)
    found = InterventionHarvesting(user="user", n_bootstrap=0).fit(X, clicks)
    return truth, found


def _held(truth, found):
    table = found.examination_
    lower, upper = (table[limit].unstack("bias").to_numpy()[:, 1:] for limit in ("lower", "upper"))
    return ((lower <= truth[:, 1:]) & (truth[:, 1:] <= upper)).mean()


@pytest.mark.filterwarnings("ignore::skultr.exceptions.ClickDataWarning")
def test_curves_of_users_are_learned_and_their_intervals_cover():
    etas = np.random.default_rng(5).normal(1, 0.4, 60).clip(0)
    truth, found = _power_laws(etas, np.full(60, 300))
    curves = found.examination_["examination"].unstack("bias").to_numpy()
    common = found.average_examination_["examination"].to_numpy()
    assert np.abs(curves - truth).mean() < 0.25 * np.abs(common - truth).mean()
    assert 0.9 <= _held(truth, found) <= 0.99


@pytest.mark.filterwarnings("ignore::skultr.exceptions.ClickDataWarning")
def test_a_user_of_few_clicks_is_not_taken_for_one_of_many():
    held, closer = [], []
    for seed in range(8):
        truth, found = _power_laws([0.5, 1.5], [4_950, 50], seed)
        held.append(_held(truth, found))
        curves = found.examination_["examination"].unstack("bias").to_numpy()
        common = found.average_examination_["examination"].to_numpy()
        closer.append(np.abs(curves - truth).mean() / np.abs(common - truth).mean())
    # The 18 intervals of a run stand or fall together: their share has a spread of .2.
    assert np.mean(held) > 0.95 - 3 * 0.2 / 8**0.5
    assert np.mean(closer) < 0.5


@pytest.mark.filterwarnings("ignore::skultr.exceptions.ClickDataWarning")
def test_what_users_of_few_clicks_do_not_tell_is_not_learned():
    _, found = _power_laws(np.ones(300), np.full(300, 60))
    curves = np.log(found.examination_["examination"].unstack("bias").to_numpy())
    common = np.log(found.average_examination_["examination"].to_numpy())
    assert (curves - common).std() < 0.08
    assert found.examination_["standard_error"].mean() < 0.2


def test_only_clicks_of_the_same_user_are_compared():
    X = pd.DataFrame(
        {"qid": 1, "session": [1, 2], "doc": "a", "position": [1, 2], "user": ["x", "y"]}
    )
    X = pd.concat([X] * 5).assign(session=range(10))
    estimator = InterventionHarvesting(user="user", user_shrinkage=0, n_bootstrap=0)
    with pytest.warns(NotIdentifiableWarning, match=r"\('y', 2\)"):
        table = estimator.fit(X, np.ones(10)).examination_
    assert np.isnan(table.loc[("y", 2), "examination"])
    # Whatever is not known of them, they are like the rest.
    table = estimator.set_params(user_shrinkage="auto").fit(X, np.ones(10)).examination_
    assert table.loc[("y", 2), "examination"] == pytest.approx(1.0)


def test_scales_of_independent_clicks_are_at_their_fixed_point():
    """The rounds end near s_k Σ_l W_kl s_l = i_k² / noise_k, where there are such scales.

    With the shares M_kl = W_kl s_l / Σ_m W_km s_m, a round multiplies a small error of log s by
    (I - M) / 2. Weighted by the information, M is symmetric: the error shrinks by half of 1 less
    the least eigenvalue in that norm, whose ratio to the largest error is the square root.
    """
    rng = np.random.default_rng(0)
    for n_factors in (4, 6, 10):
        weight = rng.uniform(0.5, 1.5, (n_factors, n_factors))
        weight += weight.T
        np.fill_diagonal(weight, 0)
        own = weight.sum(axis=1)
        # The noise is that of known scales: of any noise there may be none.
        expected = rng.uniform(0.7, 1.4, n_factors)
        information = expected * (weight @ expected)
        noise = own**2 / information
        scale = _factor_scale(np.diag(own) - weight, noise)
        shares = weight * expected / (weight @ expected)[:, None]
        shrinks = (1 - np.linalg.eigvals(shares).real.min()) / 2
        first = np.abs(np.log(np.sqrt(own / noise) / expected)).max()
        norms = np.sqrt(information.sum() / information.min())
        error = np.abs(np.log(scale / expected)).max()
        # The largest bound of 4,500 draws is .006.
        assert error < norms * first * shrinks**20
