"""Plans promise the half-width that estimators report, at less traffic and fewer clicks lost."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats

from skultr import ClickDataset
from skultr.datasets import make_ltr
from skultr.evaluation import plan_experiment, policy_difference
from skultr.evaluation._plan_experiment import _root_of_squares
from skultr.propensity import InterventionHarvesting, RandomizedPropensity
from skultr.simulation import MixturePolicy, PositionBasedUser, production_scores, simulate_clicks

K, N = 5, 6_000
DOCUMENTS = make_ltr(150, n_features=5, random_state=0)
SCORES = np.column_stack(
    [production_scores(DOCUMENTS, fraction=f, random_state=0) for f in (0.05, 0.5)]
)
WORLD = {"n_positions": K, "user": PositionBasedUser(1.0), "features": False}


def _log(seed=0, **kwargs):
    kwargs = {"n_sessions": N, "scores": SCORES, "policy": MixturePolicy([0.7, 0.3])} | kwargs
    X, clicks, _ = simulate_clicks(DOCUMENTS, random_state=seed, **WORLD | kwargs)
    return X, clicks


def _served(plan, log, clicks, seed, scores=SCORES[:, 0], **kwargs):
    """The log and the experiment that the plan asks for."""
    X, more, _ = simulate_clicks(
        DOCUMENTS,
        scores=scores,
        policy=plan.policy(DOCUMENTS["qid"]),
        n_sessions=int(np.ceil(plan.sessions)),
        random_state=1000 + seed,
        **WORLD | kwargs,
    )
    X["session"] += N
    return pd.concat([log, X], ignore_index=True), np.append(clicks, more)


# Examination ---------------------------------------------------------------------------
def test_the_experiment_reaches_the_half_width():
    reached, expected = [], []
    for seed in range(8):
        log, clicks = _log(seed)
        plan = plan_experiment(log, clicks, half_width=0.05, propensity=1 / np.arange(1, K + 1))
        X, y = _served(plan, log, clicks, seed)
        table = InterventionHarvesting(n_bootstrap=0).fit(X.drop(columns="arm"), y).examination_
        half = (table["upper"] - table["lower"]) / 2
        reached.append(half.max() <= 0.05)
        expected.append(half[1:] / plan.precision["expected"][1:])
        assert (np.abs(table["examination"] - 1 / np.arange(1, K + 1)) < 0.1).all()
    # Promises are kept in 85 % of experiments or more: of 8, one draw in 350 breaks five.
    assert np.sum(reached) >= 4
    assert np.mean(expected) == pytest.approx(1, abs=0.06)


def test_less_traffic_and_fewer_clicks_lost_than_uniform_swaps():
    log = _log()
    plan = plan_experiment(*log, half_width=0.05)
    uniform = plan.alternatives.loc["uniform swaps with the first position"]
    assert plan.sessions < uniform["sessions"]
    assert plan.clicks_lost < uniform["clicks_lost"]
    # With as many sessions uniform swaps are one of the designs that the plan chooses from. It
    # lost 0.13 to 0.33 times their clicks in 20 other worlds (0.22 on average, deviation 0.05).
    as_long = plan_experiment(*log, half_width=0.05, sessions=uniform["sessions"])
    assert as_long.clicks_lost < min(0.5 * uniform["clicks_lost"], plan.clicks_lost)
    assert plan.alternatives["clicks_lost"].is_monotonic_increasing
    assert plan.precision["promised"].max() == pytest.approx(0.05, rel=0.01)
    assert plan.actions["clicks_lost"].sum() == pytest.approx(plan.clicks_lost, abs=1e-6)
    assert plan.shares.sum(axis=1).to_numpy() == pytest.approx(plan.actions["share"].sum())
    assert "this plan" in plan.summary()


def test_clicks_lost_are_those_of_the_simulation():
    log, clicks = _log()
    plan = plan_experiment(log, clicks, half_width=0.05, sessions=N)
    rates = []
    for policy in (None, plan.policy(DOCUMENTS["qid"])):
        _, y, _ = simulate_clicks(
            DOCUMENTS,
            scores=SCORES[:, 0],
            policy=policy,
            n_sessions=200_000,
            random_state=1,
            **WORLD,
        )
        rates.append(y.sum() / 200_000)
    lost = 1 - rates[1] / rates[0]
    assert plan.clicks_lost_share == pytest.approx(lost, abs=0.02)


def test_a_longer_experiment_loses_fewer_clicks_and_half_the_width_takes_four_times_as_long():
    log, clicks = _log(policy=None, scores=SCORES[:, 1])
    of = {"propensity": 1 / np.arange(1, K + 1)}
    short, long = (
        plan_experiment(log, clicks, half_width=0.04, sessions=n, **of) for n in (6e3, 3e4)
    )
    assert long.clicks_lost < short.clicks_lost
    narrow = plan_experiment(log, clicks, half_width=0.01, **of)
    wide = plan_experiment(log, clicks, half_width=0.02, **of)
    assert 3.5 < narrow.sessions / wide.sessions < 6


def test_a_deterministic_log_says_what_is_assumed():
    log, clicks = _log(policy=None, scores=SCORES[:, 0])
    plan = plan_experiment(log, clicks, half_width=0.1)
    assert "taken for examination" in plan.assumption
    curve = 1 / np.arange(1, K + 1)
    given = plan_experiment(log, clicks, half_width=0.1, propensity=curve)
    assert given.precision["estimate"].to_numpy() == pytest.approx(curve)
    assert given.sessions < plan.sessions
    assert "given" in given.assumption
    column = plan_experiment(log.assign(propensity=1 / log["position"]), clicks, half_width=0.1)
    assert column.sessions == given.sessions


def test_randomized_propensity_reads_the_swaps_alone():
    log, clicks = _log()
    plan = plan_experiment(log, clicks, half_width=0.03)
    X, y = _served(plan, log, clicks, 0)
    found = RandomizedPropensity(arm="arm").fit(X[N * K :], y[N * K :]).examination_
    assert found["examination"].to_numpy() == pytest.approx(1 / np.arange(1, K + 1), abs=0.06)


@pytest.mark.parametrize("kind", ["polars", "strings", "counted", "named", "dataset"])
def test_any_log(kind, tmp_path):
    log, clicks = _log()
    expected = plan_experiment(log, clicks, half_width=0.05)
    X, y, tolerance = log, clicks, 1e-6
    if kind == "polars":
        X = pl.from_pandas(log)
    elif kind == "strings":
        X = log.assign(qid="q" + log["qid"].astype(str), doc="d" + log["doc"].astype(str))
    elif kind == "counted":
        cells = log.assign(impressions=1, click=clicks).groupby(["qid", "doc", "position"])
        X = cells.agg(impressions=("impressions", "sum"), click=("click", "mean")).reset_index()
        y, tolerance = "click", 0.01
    elif kind == "named":
        X, y = log.assign(click=clicks), "click"
    else:
        X, y = ClickDataset.from_parquet(log.assign(click=clicks), path=tmp_path / "log"), None
    plan = plan_experiment(X, y, half_width=0.05)
    assert plan.sessions == pytest.approx(expected.sessions, rel=tolerance)


def test_ids_do_not_change_the_plan_of_a_difference():
    log, clicks = _log(candidates=True)
    settings = {"target": "difference", "half_width": 0.04}
    settings |= {f"scores_{name}": SCORES[log["doc"], i] for i, name in enumerate("ab")}
    plan = plan_experiment(log, clicks, **settings)
    backwards = log.assign(qid=(-log["qid"]).astype(str))
    assert plan_experiment(backwards, clicks, **settings).sessions == pytest.approx(plan.sessions)


# A difference --------------------------------------------------------------------------
def test_rankings_are_served_until_their_difference_is_known():
    scores = pd.DataFrame(SCORES, index=DOCUMENTS["doc"])
    halves = []
    for seed in (1, 2):
        log, clicks = _log(seed, policy=None, scores=SCORES[:, 0], candidates=True)
        a, b = (scores[i].loc[log["doc"]].to_numpy() for i in (0, 1))
        plan = plan_experiment(
            log, clicks, target="difference", scores_a=a, scores_b=b, half_width=0.05
        )
        columns = SCORES[:, [0, 0, 1]]
        X, y = _served(plan, log, clicks, seed, columns, candidates=True)
        a, b = (scores[i].loc[X["doc"]].to_numpy() for i in (0, 1))
        found = policy_difference(X, y, a, b, method="item-position")
        halves.append((found.interval[1] - found.interval[0]) / 2)
    assert np.nanmax(halves) <= 0.052
    # Production is ranking a: it is served anyway.
    of_a, of_b = plan.actions["sessions"]
    assert of_a == 0 < 0.5 * plan.sessions < of_b <= plan.sessions
    test = plan.alternatives.loc["A/B test, half of the pages each"]
    assert plan.sessions < 0.65 * test["sessions"]
    assert plan.clicks_lost < 0.9 * test["clicks_lost"]
    assert f"{test['sessions']:,.0f} sessions" in plan.verdict
    longer = plan_experiment(
        log,
        clicks,
        target="difference",
        scores_a=a[: len(log)],
        scores_b=b[: len(log)],
        half_width=0.05,
        sessions=10 * plan.sessions,
    )
    assert longer.clicks_lost <= plan.clicks_lost
    with pytest.raises(ValueError, match="No experiment reaches half_width"):
        plan_experiment(
            log,
            clicks,
            target="difference",
            scores_a=a[: len(log)],
            scores_b=b[: len(log)],
            half_width=0.001,
        )


def _rankings(seed, half_width, n_queries=80, n_sessions=4_000, temperature=0.5, **kwargs):
    """A Plackett-Luce log of position-based users, the plan, and a reader of experiments."""
    rng, n = np.random.default_rng([seed, 5]), 6
    quality = 1 / (1 + np.exp(-rng.normal(-1.2, 1.2, (n_queries, n))))
    production = np.log(quality) + rng.normal(0, 1, quality.shape)
    rankings = [np.log(quality) + rng.normal(0, 0.6, quality.shape), production]

    def serve(n_sessions, shares=None, first=0):
        query = rng.integers(n_queries, size=n_sessions)
        scores = production[query] / temperature + rng.gumbel(size=(n_sessions, n))
        if shares is not None:
            drawn = (rng.random((n_sessions, 1)) > shares[query].cumsum(axis=1)).sum(axis=1)
            for i, ranking in enumerate(rankings):
                scores[drawn == i] = ranking[query][drawn == i]
        doc = np.argsort(-scores, axis=1)
        chance = np.take_along_axis(quality[query], doc, axis=1) / np.arange(1, n + 1)
        return pd.DataFrame(
            {
                "qid": np.repeat(query, n),
                "session": first + np.repeat(np.arange(n_sessions), n),
                "doc": doc.ravel(),
                "position": np.tile(np.arange(1, n + 1), n_sessions),
                "click": (rng.random(chance.shape) < chance).ravel().astype(int),
            }
        )

    def scores(X):
        return [ranking[X["qid"], X["doc"]] for ranking in rankings]

    log = serve(n_sessions)
    a, b = scores(log)
    plan = plan_experiment(
        log,
        "click",
        target="difference",
        scores_a=a,
        scores_b=b,
        half_width=half_width,
        **kwargs,
    )

    def reported(n_sessions):
        shares = plan.shares.reindex(range(n_queries)).fillna(0).to_numpy()
        X = pd.concat([log, serve(round(n_sessions), shares, len(log))], ignore_index=True)
        found = policy_difference(X, "click", *scores(X), method="item-position")
        return (found.interval[1] - found.interval[0]) / 2

    return plan, reported


def test_a_promised_difference_is_kept_and_takes_little_more_than_it_must():
    kept, short, half_width = [], [], 0.06
    for seed in range(12):
        plan, reported = _rankings(seed, half_width)
        kept.append(reported(plan.sessions))
        short.append(reported(plan.sessions / 2))
    kept, short = (np.array(halves)[np.isfinite(halves)] for halves in (kept, short))
    assert min(len(kept), len(short)) >= 8  # others contradict the method, or seem to
    assert (kept <= half_width).mean() >= 0.8
    assert (short <= half_width).mean() < 0.8


def test_a_difference_saves_sessions_and_clicks_over_an_ab_test():
    plan, _ = _rankings(0, 0.06)
    test = plan.alternatives.loc["A/B test, half of the pages each"]
    assert 0.5 * test["sessions"] <= plan.sessions < 0.95 * test["sessions"]
    assert plan.clicks_lost / plan.sessions < test["clicks_lost"] / test["sessions"]
    alone = plan.alternatives.loc["A/B test, read without the log", "sessions"]
    assert 1.3 < alone / plan.sessions < 5
    assert plan.actions["sessions"].sum() <= plan.sessions * (1 + 1e-9)
    found = re.search(r"No plan takes fewer than ([\d,]+)", plan.summary())
    fewest = int(found[1].replace(",", ""))
    assert fewest <= plan.sessions <= 1.11 * fewest or plan.sessions == test["sessions"] / 2
    with pytest.raises(ValueError, match=r"No plan of 100 sessions .* the shortest takes about"):
        _rankings(0, 0.06, sessions=100)


def test_no_experiment_is_needed():
    plan, reported = _rankings(0, 0.3, n_sessions=20_000, temperature=2)
    assert (plan.sessions, plan.clicks_lost, plan.shares.to_numpy().max()) == (0, 0, 0)
    assert plan.precision["promised"].item() == pytest.approx(reported(0), rel=0.03)
    half = f"{plan.precision['promised'].item():.3g}"
    assert f"the log alone gives the half-width {half}." in plan.summary()
    log, clicks = _log()
    plan = plan_experiment(log, clicks, half_width=0.9)
    table = InterventionHarvesting(n_bootstrap=0).fit(log, clicks).examination_
    half = ((table["upper"] - table["lower"]) / 2).max()
    assert plan.precision["expected"].max() == pytest.approx(half, rel=0.15)
    assert (plan.sessions, len(plan.actions)) == (0, 0)
    assert "No experiment is needed" in plan.summary()
    _, more, _ = simulate_clicks(
        DOCUMENTS,
        scores=SCORES[:, 0],
        policy=plan.policy(DOCUMENTS["qid"]),
        n_sessions=50,
        random_state=0,
        **WORLD,
    )
    assert len(more) == 50 * K


# Bad input -----------------------------------------------------------------------------
def test_errors():
    log, clicks = _log()
    with pytest.raises(ValueError, match="half_width"):
        plan_experiment(log, clicks, half_width=0)
    with pytest.raises(ValueError, match=r"1, 2, 3, 4, 5\]; expected .* at least 6\. Pass k="):
        plan_experiment(log, clicks, half_width=0.1, k=K + 1)
    with pytest.raises(ValueError, match=r"No plan of 10 sessions .* takes about"):
        plan_experiment(log, clicks, half_width=0.01, sessions=10)
    with pytest.raises(TypeError, match="unknown argument 'posision'"):
        plan_experiment(log, clicks, half_width=0.1, posision=log["position"])
    with pytest.raises(ValueError, match="position"):
        plan_experiment(log.drop(columns="position"), clicks, half_width=0.1)
    first = log["position"] == 1
    for rows, positions in [(~first, r"\[2, 3, 4, 5\]"), (first, r"\[1\]")]:
        with pytest.raises(ValueError, match=f"the positions {positions}; expected 1, 2, "):
            plan_experiment(log[rows], clicks[rows], half_width=0.1)
    with pytest.raises(ValueError, match="no click at position 1"):
        plan_experiment(log, clicks * (log["position"] > 1), half_width=0.1)
    with pytest.raises(ValueError, match="expected both"):
        plan_experiment(log, clicks, half_width=0.1, target="difference")
    with pytest.raises(ValueError, match="expected none of scores_a and scores_b; got 2"):
        plan_experiment(log, clicks, half_width=0.1, scores_a=log["doc"], scores_b=log["doc"])
    rank = {"scores_a": log["doc"], "scores_b": 2 * log["doc"]}
    with pytest.raises(ValueError, match="same order"):
        plan_experiment(log, clicks, half_width=0.1, target="difference", **rank)
    few = log["qid"].isin(log["qid"].unique()[:5]).to_numpy()
    rank = {"scores_a": log["doc"][few], "scores_b": -log["doc"][few]}
    with pytest.raises(ValueError, match="and policy_difference needs 10"):
        plan_experiment(log[few], clicks[few], half_width=0.5, target="difference", **rank)


def test_policies_and_texts():
    log, clicks = _log()
    plan = plan_experiment(log, clicks, half_width=0.01)
    assert repr(plan).startswith(f"ExperimentPlan(sessions={plan.sessions:.0f}, clicks_lost=")
    assert len(repr(plan)) < 300
    assert f"{plan.sessions:,.0f} sessions" in plan.summary()
    assert "e+" not in plan.summary()
    with pytest.raises(TypeError, match="production is a ndarray; expected a Policy"):
        plan.policy(DOCUMENTS["qid"], SCORES[:, 0])
    rank = {"scores_a": log["doc"], "scores_b": -log["doc"]}
    plan = plan_experiment(log, clicks, half_width=0.3, target="difference", **rank)
    with pytest.raises(TypeError, match="expected None"):
        plan.policy(DOCUMENTS["qid"], MixturePolicy())
    with pytest.raises(ValueError, match="3 weights, but scores has 2 columns"):
        _served(plan, log, clicks, 0, SCORES)


@pytest.mark.parametrize("n_squares", [5, 20, 100])
def test_half_widths_are_roots_of_sums_of_squares(n_squares):
    """As many equal squares have the chi distribution, whose root of the mean is √n."""
    chi = stats.chi(n_squares, scale=n_squares**-0.5)
    mean, high = _root_of_squares(2 / n_squares)
    # Of the third order: the approximations are off by less than a quarter of the spread squared.
    off = (2 / n_squares) ** 2 / 4
    assert mean == pytest.approx(chi.mean(), abs=off)
    assert high == pytest.approx(chi.ppf(0.95), abs=off)
