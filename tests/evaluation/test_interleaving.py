"""Interleaved lists are drawn as published, and their outcome is level and unbiased."""

import itertools
from collections import Counter

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.stats import norm

from skultr import ClickDataset
from skultr.evaluation import Interleaver, interleaving_outcome
from skultr.exceptions import NotIdentifiableWarning
from skultr.metrics._query_means import p_value_of_lead
from skultr.propensity import InterventionHarvesting, RandomizedPropensity
from skultr.rankers import NaiveRanker
from skultr.simulation import (
    CascadeUser,
    DBNUser,
    PositionBasedUser,
    TrustBiasUser,
    clicks_on_lists,
)

METHODS = ["team-draft", "balanced", "probabilistic"]
USERS = [PositionBasedUser(1.0), TrustBiasUser(), CascadeUser(), DBNUser()]


def _candidates(n_queries, n_docs):
    n_rows = n_queries * n_docs
    return pd.DataFrame({"qid": np.arange(n_rows) // n_docs, "doc": np.arange(n_rows)})


def _clicks(log, user, relevance, rng):
    """Clicks, from P(found relevant) of each document."""
    return clicks_on_lists(
        log.assign(relevance=relevance[log["doc"]]),
        user,
        noise=0,
        max_grade=1,
        gain="linear",
        random_state=int(rng.integers(2**31)),
    )


def _one_query(method, rankings, n_sessions, n_positions=10):
    """The log of one query whose rankings are lists of documents."""
    docs = sorted({*itertools.chain(*rankings.values())})
    scores = {n: [-of.index(d) if d in of else np.nan for d in docs] for n, of in rankings.items()}
    X = pd.DataFrame({"qid": "q", "doc": docs})
    drawn = Interleaver(method, n_positions=n_positions, random_state=0)
    return drawn.interleave(X, scores, n_sessions)


def _lists(log, *columns):
    texts = map(" ".join, log[list(columns)].astype(str).to_numpy())
    lists = {}
    for session, text in zip(log["session"], texts, strict=True):
        lists.setdefault(session, []).append(text)
    return Counter(map(" | ".join, lists.values()))


# The lists -----------------------------------------------------------------------------
def test_team_draft_draws_each_order_of_teams():
    rankings = {"A": ["a", "b", "c"], "B": ["b", "c", "a"]}
    lists = _lists(_one_query("team-draft", rankings, 10_000), "doc", "team")
    expected = {  # from the coin of each round
        "a A | b B | c A": 1 / 4,
        "a A | b B | c B": 1 / 4,
        "b B | a A | c A": 1 / 4,
        "b B | a A | c B": 1 / 4,
    }
    assert lists.keys() == expected.keys()
    for text, probability in expected.items():
        assert lists[text] / 10_000 == pytest.approx(probability, abs=4 * 0.0043)


def _balanced_by_pointers(a, b, a_first, n):
    """The lines of Joachims' Figure 1."""
    found, k_a, k_b = [], 0, 0
    while len(found) < n and (k_a < len(a) or k_b < len(b)):
        from_a = k_a < k_b or (k_a == k_b and a_first)
        ranking, at = (a, k_a) if from_a else (b, k_b)
        if at < len(ranking) and ranking[at] not in found:
            found.append(ranking[at])
        k_a, k_b = k_a + from_a, k_b + (not from_a)
    return found


def test_balanced_is_the_published_algorithm():
    rng = np.random.default_rng(0)
    for _ in range(50):
        docs = list("abcdefgh")
        a, b = ([docs[i] for i in rng.permutation(8)[: rng.integers(1, 9)]] for _ in range(2))
        n = int(rng.integers(1, 9))
        expected = {" | ".join(_balanced_by_pointers(a, b, first, n)) for first in (True, False)}
        assert {*_lists(_one_query("balanced", {"A": a, "B": b}, 40, n), "doc")} == expected


def _probabilistic(rankings, shown=()):
    """Each list with its probability and the shares of A, by enumeration."""
    left = [
        [(rank**-3.0, doc) for rank, doc in enumerate(of, 1) if doc not in shown]
        for of in rankings
    ]
    docs = {doc for of in left for _, doc in of}
    if not docs:
        return {shown: (1.0, ())}
    found, able = {}, sum(map(bool, left))
    for doc in docs:
        p = [
            sum(w for w, d in of if d == doc) / max(sum(w for w, _ in of), 1e-9) / able
            for of in left
        ]
        for rest, (q, shares) in _probabilistic(rankings, (*shown, doc)).items():
            found[rest] = (sum(p) * q, (p[0] / sum(p), *shares))
    return found


def test_probabilistic_lists_and_their_shares():
    rankings = {"A": ["a", "b", "c"], "B": ["c", "d"]}
    log = _one_query("probabilistic", rankings, 20_000)
    found = _lists(log, "doc", "team")
    expected = _probabilistic(list(rankings.values()))
    assert len(found) == len(expected) == 24
    for text, times in found.items():
        docs = tuple(row[0] for row in text.split(" | "))
        probability, shares = expected[docs]
        error = np.sqrt(probability / 20_000)
        assert times / 20_000 == pytest.approx(probability, abs=4 * error)
        teams = [dict(part.split("=") for part in row[2:].split()) for row in text.split(" | ")]
        assert [float(of.get("A", 0)) for of in teams] == pytest.approx(shares, abs=1e-4)


def test_one_request_is_one_session():
    rankings = {"old": ["ä, b", 2, "c"], "new": ["c"]}
    for method in METHODS:
        docs, teams = Interleaver(method, random_state=0).interleave_one(rankings)
        assert sorted(map(str, docs)) == ["2", "c", "ä, b"]
        assert len(teams) == 3
        assert all("old" in team or "new" in team for team in teams)
    assert Interleaver().interleave_one({"old": ["a"], "new": ["a"]})[0] == ["a"]


def test_seeds_and_frames_give_the_same_lists():
    X = _candidates(5, 6).assign(a=lambda X: X["doc"] % 4, b=lambda X: -X["doc"])
    for method in METHODS:
        one, two, three = (
            Interleaver(method, random_state=3).interleave(of, ["a", "b"], [2, 4, 2])
            for of in (X, X.sample(frac=1, random_state=0).sort_values("doc"), pl.from_pandas(X))
        )
        pd.testing.assert_frame_equal(one, two)
        pd.testing.assert_frame_equal(one, three)
        assert one.groupby("session")["qid"].first().tolist() == [2, 4, 2]
        assert not one.duplicated(["session", "doc"]).any()


def test_lists_of_three_rankings_are_fair():
    X, rng = _candidates(20, 9), np.random.default_rng(0)
    scores = {name: rng.random(len(X)) for name in "abc"}
    for method in ("team-draft", "probabilistic"):
        log = Interleaver(method, n_positions=6, random_state=0).interleave(X, scores, 3000)
        pairs = interleaving_outcome(log, log["position"] == 1, cluster="session").pairs
        assert [*zip(pairs["a"], pairs["b"], strict=True)] == [("a", "b"), ("a", "c"), ("b", "c")]
        # One in 1,700 draws has one of the six below; a team that is first more often is far off.
        assert (pairs["p_value"] > 1e-4).all()


# The outcome ---------------------------------------------------------------------------
def test_probabilistic_outcome_sums_over_assignments():
    shares = np.array([0.9, 0.3, 0.6])
    log = pd.DataFrame({"qid": 1, "session": 1, "position": [1, 2, 3]})
    log["team"] = [f"a={1 - b:g} b={b:g}" for b in shares]
    row = interleaving_outcome(log, [1, 1, 1]).pairs.iloc[0]
    wins = {-1: 0.0, 1: 0.0}
    for placed in itertools.product([0, 1], repeat=3):
        wins[np.sign(2 * sum(placed) - 3)] += np.prod(np.where(placed, shares, 1 - shares))
    assert (row.wins_a, row.wins_b) == pytest.approx((wins[-1], wins[1]))
    assert row.clicks == pytest.approx((2 * shares - 1).sum())


def test_balanced_outcome_counts_to_the_lowest_click():
    log = pd.DataFrame(
        {"qid": 1, "session": [1, 1, 1, 2, 2, 2, 3, 3, 3], "position": [1, 2, 3] * 3}
    )
    log["team"] = ["a#1 b#4", "a#2 b#1", "a#5 b#2"] * 3
    # First k = 2, and both have a click; then k = 1, that of a; then no click.
    row = interleaving_outcome(log, [1, 0, 1, 1, 0, 0, 0, 0, 0]).pairs.iloc[0]
    assert (row.wins_a, row.wins_b, row.ties) == (1, 0, 2)


def test_exchanged_rankings_give_the_mirrored_outcome():
    X, rng = _candidates(100, 10), np.random.default_rng(1)
    relevance, names = rng.random(len(X)), {"a": "b", "b": "a"}
    scores = {"a": relevance + rng.random(len(X)), "b": relevance + rng.random(len(X)) / 3}
    for method in METHODS:
        log = Interleaver(method, random_state=0).interleave(X, scores, 4000)
        clicks = _clicks(log, DBNUser(), relevance, rng)
        one = interleaving_outcome(log, clicks).pairs.iloc[0]
        other = log.assign(team=["".join(names.get(c, c) for c in t) for t in log["team"]])
        two = interleaving_outcome(other, clicks).pairs.iloc[0]
        mirrored = [one.wins_b, one.wins_a, 1 - one.upper, one.p_value, -one.clicks_upper]
        found = [two.wins_a, two.wins_b, two.lower, two.p_value, two.clicks_lower]
        assert found == pytest.approx(mirrored)
        assert one.clicks_lower < one.clicks < one.clicks_upper
        drawn = Interleaver(method, random_state=1).interleave(
            X, {"a": scores["b"], "b": scores["a"]}, 4000
        )
        again = interleaving_outcome(drawn, _clicks(drawn, DBNUser(), relevance, rng)).pairs
        # Shares of the sessions with a winner, of two draws.
        by_chance = 4 * np.sqrt(2 * 0.25 / (one.wins_a + one.wins_b))
        assert 1 - again["preference"][0] == pytest.approx(one.preference, abs=by_chance)
        assert one.lower > 0.5


@pytest.mark.parametrize("method", METHODS)
def test_level_under_equal_rankers(method):
    """Rankers that err alike: of 60 experiments at 5 %, up to 13 % (three standard errors)."""
    rng, X = np.random.default_rng(0), _candidates(30, 10)
    wrong = {"qid": 0, "session": 0}
    for run in range(60):
        relevance = rng.choice([0.1, 0.16, 0.28, 0.52, 1.0], len(X), p=[0.5, 0.2, 0.15, 0.1, 0.05])
        scores = {name: relevance + 0.3 * rng.standard_normal(len(X)) for name in "ab"}
        log = Interleaver(method, random_state=run).interleave(X, scores, 300)
        clicks = _clicks(log, USERS[run % 4], relevance, rng)
        for cluster in wrong:
            pairs = interleaving_outcome(log, clicks, cluster=cluster).pairs
            wrong[cluster] += pairs["p_value"][0] <= 0.05
    assert wrong["qid"] / 60 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 60)
    assert wrong["session"] > wrong["qid"]  # chance differences of the queries of the log


def _random_click(method, which="any"):
    log = _one_query(method, {"A": ["a", "b", "c"], "B": ["b", "c", "a"]}, 30_000)
    clicked = np.random.default_rng(0).choice(list("abc"), 30_000)[log["session"]]
    clicks = log["doc"] == (clicked if which == "any" else which)
    return interleaving_outcome(log, clicks, cluster="session").pairs["preference"][0]


def test_known_limits_of_the_methods():
    assert _random_click("balanced") == pytest.approx(2 / 3, abs=0.015)
    assert _random_click("team-draft") == pytest.approx(1 / 2, abs=0.015)
    assert _random_click("team-draft", "c") == pytest.approx(1 / 2, abs=0.015)
    # Probabilistic: a click at random favours none, and c is seen where B placed it higher.
    assert _random_click("probabilistic") == pytest.approx(1 / 2, abs=0.015)
    assert _random_click("probabilistic", "c") > 0.52


def test_planned_sessions_find_the_difference():
    X, rng = _candidates(400, 10), np.random.default_rng(0)
    relevance = rng.random(len(X))
    scores = {"a": relevance + rng.random(len(X)), "b": relevance + 0.8 * rng.random(len(X))}

    def run(seed, n_sessions):
        log = Interleaver(random_state=seed).interleave(X, scores, n_sessions)
        clicks = _clicks(log, PositionBasedUser(1.0), relevance, rng)
        return interleaving_outcome(log, clicks, cluster="session", effect=true).pairs.iloc[0]

    true = 0.01
    true = run(0, 60_000).preference - 0.5
    first = run(1, 1000)
    assert first.sessions_needed > 0 or first.p_value <= 0.05
    n = 1000 + int(next(of for s in range(2, 9) if (of := run(s, 1000).sessions_needed)))
    found = np.mean([run(10 + seed, n).p_value <= 0.05 for seed in range(30)])
    assert found == pytest.approx(0.8, abs=0.22)


def test_verdicts():
    X, rng = _candidates(50, 5), np.random.default_rng(0)
    scores = {"old": rng.random(len(X)), "new": rng.random(len(X))}
    log = Interleaver(random_state=0).interleave(X, scores, 3000)
    none = interleaving_outcome(log, np.zeros(len(log)))
    assert "Cannot tell" in none.verdict
    assert none.pairs["p_value"][0] == 1
    # Clicks at random: one draw of 10,000 has a winner at this level, whose interval is 4.2
    # standard errors (Student's quantile of 50 queries). In each of 25 draws one was at most
    # 1.75%, so that intervals end within 2 * 4.2 * 1.75% = 14.7% of no preference.
    by_chance = rng.random(len(log)) < 0.2
    level = {"confidence_level": 0.9999}
    assert "Cannot tell" in interleaving_outcome(log, by_chance, **level).verdict
    equal = interleaving_outcome(log, by_chance, effect=0.15, **level)
    assert "No difference of 15.0%" in equal.verdict
    won = interleaving_outcome(log, log["team"] == "new")
    assert won.verdict.startswith("new beats old: new wins 100.0%")
    one_query = log[log["qid"] == 0]
    one = interleaving_outcome(one_query, one_query["team"] == "new")
    assert "Cannot tell" in one.verdict
    assert one.pairs[["clicks_lower", "clicks_upper"]].isna().all(axis=None)
    # More than 10 effective clusters, if others are as large.
    assert one.pairs["sessions_needed"][0] > 9 * one_query["session"].nunique()


def test_verdict_where_the_sessions_suffice_for_the_effect():
    X = _candidates(12, 4).assign(s=0.0, t=1.0)
    log = Interleaver(n_positions=2, random_state=0).interleave(X, ["s", "t"], 400)
    winner = np.where(np.arange(400) < 215, "t", "s")[log["session"]]
    found = interleaving_outcome(log, log["team"] == winner, effect=0.1, cluster="session")
    assert "No difference of 10.0%" in found.verdict
    winner = np.where(np.arange(400) < 219, "t", "s")[log["session"]]
    found = interleaving_outcome(log, log["team"] == winner, effect=0.075, cluster="session")
    assert found.pairs["sessions_needed"][0] == 0
    assert found.verdict.endswith("suffice for a difference of 7.5%; a smaller one needs more.")


def test_several_pairs_need_more_sessions_than_one():
    X, rng = _candidates(50, 5), np.random.default_rng(0)
    scores = {name: rng.random(len(X)) for name in "abc"}
    log = Interleaver(random_state=0).interleave(X, scores, 500)
    clicks = rng.random(len(log)) < 0.2
    totals = [
        500
        + interleaving_outcome(log, clicks, effect=0.01, confidence_level=level).pairs[
            "sessions_needed"
        ]
        for level in (0.95, 0.85)
    ]
    power = norm.ppf(0.8)
    expected = (norm.isf(0.05 / 6) + power) ** 2 / (norm.isf(0.15 / 6) + power) ** 2
    assert (totals[0] / totals[1]).tolist() == pytest.approx([expected] * 3, rel=1e-3)


# Other readers of the log --------------------------------------------------------------
def test_examination_is_learned_from_the_lists():
    X, rng = _candidates(200, 10), np.random.default_rng(0)
    relevance = 0.1 + 0.8 * rng.random(len(X))
    scores = {name: relevance + rng.random(len(X)) for name in "ab"}
    for method in METHODS:
        log = Interleaver(method, n_positions=4, random_state=0).interleave(X, scores, 40_000)
        clicks = _clicks(log, PositionBasedUser(1.0), relevance, rng)
        curve = InterventionHarvesting(n_bootstrap=0).fit(log, clicks).examination_
        errors = np.log(curve["examination"] * [1, 2, 3, 4]) / curve["standard_error"]
        assert (errors[1:].abs() < 4).all()
        assert curve["standard_error"].max() < 0.1
        if method == "team-draft":  # arms compare the positions of a round only
            with pytest.warns(NotIdentifiableWarning):
                curve = RandomizedPropensity(arm="arm").fit(log, clicks).examination_
            assert curve["examination"][2] == pytest.approx(0.5, abs=0.05)
        if method == "balanced":
            curve = RandomizedPropensity(arm="arm").fit(log, clicks).examination_
            assert (curve["examination"] * [1, 2, 3, 4]).to_numpy() == pytest.approx(1, abs=0.1)


def test_teams_are_no_features():
    X, rng = _candidates(20, 5), np.random.default_rng(0)
    scores = {name: rng.random(len(X)) for name in "ab"}
    log = Interleaver(random_state=0).interleave(X, scores, 300)
    clicks = rng.random(len(log)) < 0.3
    features = log.assign(x=scores["a"][log["doc"]]).drop(columns="arm")
    ranker = NaiveRanker(max_epochs=2, random_state=0).fit(features, clicks)
    assert ranker.feature_names_in_.tolist() == ["x"]
    with pytest.raises(ValueError, match="arm"):
        NaiveRanker(max_epochs=2).fit(features.assign(arm=log["arm"]), clicks)


@pytest.mark.parametrize("frame", [lambda X: X, pl.from_pandas, pa.Table.from_pandas])
def test_a_team_of_numbers_is_no_role(frame):
    X = pd.DataFrame({"qid": 1, "position": [1, 2], "team": [3, 4], "x": [0.1, 0.2]})
    with pytest.raises(ValueError, match=r"'team' must hold text, .* got Int64 values\. Rename"):
        NaiveRanker(max_epochs=2, early_stopping=False).fit(frame(X), [1, 0])
    ranker = NaiveRanker(max_epochs=2, early_stopping=False).fit(
        frame(X.drop(columns="team")), [1, 0]
    )
    with pytest.raises(ValueError, match="'team' must hold text"):
        ranker.predict(frame(X))


def test_a_team_of_numbers_is_no_role_on_disk(tmp_path):
    X = pd.DataFrame({"qid": 1, "position": [1, 2], "team": [3, 4], "x": [0.1, 0.2]})
    X.assign(session=1, click=[1, 0]).to_parquet(tmp_path / "log.parquet")
    with pytest.raises(ValueError, match="'team' must hold text"):
        ClickDataset.from_parquet(tmp_path / "log.parquet", path=tmp_path / "dataset")


# Bad input -----------------------------------------------------------------------------
GOOD = pd.DataFrame({"qid": [1, 1, 2], "doc": ["a", "b", "c"], "s": [1.0, 2, 3], "t": [3.0, 2, 1]})


@pytest.mark.parametrize(
    ("X", "rankings", "sessions", "match"),
    [
        (GOOD, ["s", "u"], 5, "no column 'u'"),
        (GOOD, ["s"], 5, "expected two"),
        (GOOD, "st", 5, r"rankings \['st'\]; expected two"),
        (GOOD, {"s 1": GOOD["s"], "t": GOOD["t"]}, 5, "without a space"),
        (GOOD, ["s", "t"], [1, 7], "no qid"),
        (GOOD, ["s", "t"], 0, "expected at least one"),
        (GOOD, ["s", "t"], -1, "expected at least one"),
        (GOOD, ["s", "t"], 1.0, "expected a whole number"),
        (GOOD, ["s", "t"], [], "no qid"),
        (GOOD.assign(s="x"), ["s", "t"], 5, "'s' must hold numbers"),
        (GOOD.drop(columns="doc"), ["s", "t"], 5, "'qid' and 'doc'"),
        (GOOD.assign(doc=["a", None, "c"]), ["s", "t"], 5, "an id in each"),
        (GOOD[:0], ["s", "t"], 5, "Expected rows"),
        (GOOD.assign(doc=["a", "a", "c"]), ["s", "t"], 5, r"\(1, 'a'\) twice"),
        (GOOD.assign(s=[1, np.inf, 2]), ["s", "t"], 5, "finite"),
        (GOOD, {"s": [1, 2], "t": GOOD["t"]}, 5, r"shape \(2,\)"),
        (GOOD.assign(s=[1, 2, np.nan]), ["s", "t"], 5, "Each query"),
    ],
)
def test_bad_candidates(X, rankings, sessions, match):
    with pytest.raises(ValueError, match=match):
        Interleaver().interleave(X, rankings, sessions)


@pytest.mark.parametrize(
    ("rankings", "match"),
    [
        ({"a": [1, 2], "b": []}, "'b' is empty"),
        ({"a": [1, 1], "b": [2]}, "'a' is empty or holds a document twice"),
        ({"a": [1]}, "expected two"),
        ({"a": [1], "b#": [1]}, "without a space"),
        ({"a": [1], "": [1]}, r"\['a', ''\]; expected two"),
    ],
)
def test_bad_requests(rankings, match):
    with pytest.raises(ValueError, match=match):
        Interleaver().interleave_one(rankings)


@pytest.mark.parametrize(
    "rankings",
    [["ab", "cd"], "ab", {"a": "xy", "b": ["x"]}, {"a": {"x"}, "b": ["x"]}, {"a": None}],
)
def test_a_request_is_a_mapping(rankings):
    with pytest.raises(TypeError, match="expected the documents of each by its name"):
        Interleaver().interleave_one(rankings)


def test_reprs():
    interleaver = Interleaver(n_positions=3, random_state=0)
    written = "Interleaver(method='team-draft', n_positions=3, exponent=3.0, random_state=0)"
    assert repr(interleaver) == written
    log = interleaver.interleave(_candidates(2, 3).assign(s=0.0, t=1.0), ["s", "t"], 10)
    found = repr(interleaving_outcome(log, np.zeros(len(log))))
    assert found.startswith("InterleavingOutcome(verdict='Cannot tell")
    assert len(found) < 200


def test_balanced_takes_two_and_parameters_are_checked():
    with pytest.raises(ValueError, match="unless balanced"):
        Interleaver("balanced").interleave_one({"a": [1], "b": [1], "c": [1]})
    for wrong in ({"method": "x"}, {"n_positions": 2.5}, {"exponent": 0}, {"exponent": "3"}):
        with pytest.raises(ValueError, match="expected a method"):
            Interleaver(**wrong)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda log: log.drop(columns="team"), "no column 'team'"),
        (lambda log: log.drop(columns="session"), "no column 'session'"),
        (lambda log: log.assign(team=None), "'team', or one with gaps"),
        (lambda log: log.assign(team="s"), "two or more"),
        (lambda log: log.assign(team=["s t", "s", "t"] * 10), "one Interleaver"),
        (lambda log: log.assign(team="s=0.2 t=x"), "one Interleaver"),
        (lambda log: log.assign(team=["s#1", "t#2", "u#1"] * 10), "one Interleaver"),
        (lambda log: log.assign(team=["s", "s#1 t#2", "t"] * 10), "one Interleaver"),
        (lambda log: log.assign(team="s=0.2.1 t=0.8"), "one Interleaver"),
        (lambda log: log.assign(team=["s#1 t#2", "", "s# t#1"] * 10), "one Interleaver"),
        (lambda log: pd.concat([log, log]), "make their ids differ"),
        (lambda log: log.assign(impressions=2, click=2), "aggregated"),
        (lambda log: log.assign(click=0.5), "0 or 1"),
    ],
)
def test_bad_logs(change, match):
    X = _candidates(2, 3).assign(s=0.0, t=1.0)
    log = Interleaver().interleave(X, ["s", "t"], 10).assign(click=1)
    with pytest.raises(ValueError, match=match):
        interleaving_outcome(change(log), "click")


def test_a_list_is_of_one_cluster():
    log = Interleaver().interleave(_candidates(2, 3).assign(s=0.0, t=1.0), ["s", "t"], 10)
    with pytest.raises(ValueError, match="cluster is missing or has several values in one list"):
        interleaving_outcome(log, np.zeros(len(log)), cluster="doc")


def test_clusters_by_column_or_by_row():
    log = Interleaver(random_state=0).interleave(
        _candidates(40, 3).assign(s=0.0, t=lambda X: X["doc"]), ["s", "t"], 400
    )
    clicks, needs = log["position"] == 1, log["qid"] % 20
    named = interleaving_outcome(log.assign(need=needs), clicks, cluster="need").pairs
    pd.testing.assert_frame_equal(interleaving_outcome(log, clicks, cluster=needs).pairs, named)
    by_query = interleaving_outcome(log, clicks).pairs
    assert named["lower"].item() != by_query["lower"].item()


def test_queries_of_different_length():
    X = _candidates(3, 4).drop(index=[1, 2, 3, 5]).assign(s=0.0, t=lambda X: X["doc"])
    for method in METHODS:
        log = Interleaver(method, random_state=0).interleave(X, ["s", "t"], [0, 1, 2])
        assert log.groupby("session").size().tolist() == [1, 3, 4]


def test_rankings_without_common_documents_and_of_different_length():
    log = _one_query("team-draft", {"A": ["a", "b", "c"], "B": ["d"]}, 500)
    assert (log.groupby("session").size() == 4).all()
    assert (log.groupby("session")["team"].agg(lambda of: (of == "B").sum()) == 1).all()


# Looking every day --------------------------------------------------------------------
def _pages(n_sessions):
    """An interleaved log of queries with one session each, and two documents."""
    rows = {"qid": np.arange(n_sessions).repeat(2), "session": np.arange(n_sessions).repeat(2)}
    return pd.DataFrame(rows).assign(
        position=np.tile([1, 2], n_sessions), team=np.tile(["a", "b"], n_sessions)
    )


def test_sequential_p_values_hold_at_every_look():
    rng, found = np.random.default_rng(0), []
    for _ in range(400):
        leads = rng.choice([-1.0, 1.0], 2000)
        days = range(100, len(leads) + 1, 100)
        p = [[p_value_of_lead(leads[:end], of) for end in days] for of in (False, True)]
        found.append((np.array(p) <= 0.05).any(axis=1))
    once, always = np.mean(found, axis=0)
    # Four standard errors of 400 draws. Of 20 looks at 5 % one in four draws has one below.
    level = 0.05 + 4 * np.sqrt(0.05 * 0.95 / 400)
    assert always <= level < once


def test_sequential_intervals_agree_with_the_p_value_and_are_wider():
    X, rng = _pages(500), np.random.default_rng(0)
    for share in (0.5, 0.55, 0.6, 0.7):
        first = rng.random(500) > share
        click = np.column_stack([first, ~first]).ravel()
        once, always = (
            interleaving_outcome(X, click, sequential=of).pairs.iloc[0] for of in (False, True)
        )
        assert always["p_value"] >= once["p_value"]
        assert always["lower"] < once["lower"]
        assert always["upper"] > once["upper"]
        assert (always["p_value"] <= 0.05) == (always["lower"] > 0.5 or always["upper"] < 0.5)
