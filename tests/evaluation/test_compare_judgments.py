"""Agreement of clicks and judgments, contradicting queries, and who may stand in for whom."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import kendalltau, norm, somersd
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import cohen_kappa_score

from skultr import ClickDataset
from skultr.click_models import PBMModel
from skultr.evaluation import compare_judgments
from skultr.evaluation._judged_pairs import PairWeights, queries_by_clicks
from skultr.exceptions import ClickDataWarning
from skultr.propensity import InterventionHarvesting, relevance_labels
from skultr.serving import click_judgments

EXAMINATION = 1 / np.arange(1, 11)


class World:
    """Queries of ten documents, in an order that knows little, before position-based users."""

    def __init__(self, seed=0, n_queries=100, n_pages=100, skew=0.0):
        self.rng = np.random.default_rng(seed)
        shape = (n_queries, 10)
        self.grade = self.rng.integers(0, 5, shape)
        self.attraction = 0.05 + 0.15 * self.grade
        # Impressions of each document at each position: two fixed orders, half of the pages each.
        share = np.arange(1, n_queries + 1) ** -skew
        pages = np.maximum(n_pages * n_queries * share / share.sum(), 2).astype(int) // 2
        parts = []
        for _ in range(2):
            scores = 0.3 * self.grade + self.rng.normal(size=shape)
            position = (-scores).argsort(axis=1).argsort(axis=1) + 1
            chance = EXAMINATION[position - 1] * self.attraction
            clicks = self.rng.binomial(pages[:, None], chance)
            parts.append(self.rows(position=position, n_clicks=clicks, impressions=pages[:, None]))
        self.log = pd.concat(parts, ignore_index=True)
        self.clicks = self.log.pop("n_clicks")

    def rows(self, **columns):
        query, doc = np.indices(self.grade.shape)
        columns = {name: np.broadcast_to(x, query.shape).ravel() for name, x in columns.items()}
        return pd.DataFrame({"qid": query.ravel(), "doc": doc.ravel(), **columns})

    def judge(self, noise=0.0, reversed_queries=()):
        rating = (self.grade + noise * self.rng.normal(size=self.grade.shape)).round()
        rating -= rating.min()
        wrong = list(reversed_queries)
        rating[wrong] = rating.max() - rating[wrong]
        return self.rows(relevance=rating)

    def compare(self, judgments, **settings):
        settings = {"propensity": EXAMINATION, "n_resamples": 199, "random_state": 0} | settings
        return compare_judgments(judgments, self.log, self.clicks, **settings)


def test_agreement_is_the_share_of_the_clicks_on_the_better_document():
    log = pd.DataFrame({"qid": 1, "doc": ["a", "b"], "position": [1, 2], "impressions": 100})
    judged = pd.DataFrame({"qid": 1, "doc": ["b", "a"], "relevance": [1, 0]})
    # 30 clicks in 100 examinations, and 20 in 50: 0.3 to 0.4.
    table = compare_judgments(judged, log, [0.3, 0.2], propensity=[1.0, 0.5]).table
    assert table["agreement"].tolist() == pytest.approx([4 / 7, 4 / 7])
    assert table["judge"].unique() == "judgments"
    assert table["verdict"].unique() == "cannot tell"


def test_ties_of_the_judge_count_half():
    world = World()
    same = world.rows(relevance=1)
    found = world.compare(same)
    assert found.table.loc[0, "agreement"] == 0.5
    assert (found.per_query["z"] == 0).all()


def test_the_scale_of_propensities_changes_nothing():
    world = World()
    judge = world.judge(noise=1)
    found = [world.compare(judge, propensity=scale * EXAMINATION).table for scale in (1, 0.5)]
    # But for one examination, with which errors begin.
    np.testing.assert_allclose(found[0]["agreement"], found[1]["agreement"], rtol=1e-9)


def test_agreement_is_that_of_the_true_click_rates():
    """However few the clicks: neither their noise nor their position is disagreement."""
    found = []
    for seed in range(40):
        world = World(seed, n_queries=30, n_pages=10)
        found.append(world.compare({"j": world.judge(noise=2)}, n_resamples=9).table.iloc[0])
    found = pd.DataFrame(found)
    many = World(99, n_queries=2_000, n_pages=100_000)
    truth = many.compare({"j": many.judge(noise=2)}, n_resamples=9).table.loc[0, "agreement"]
    error = found["agreement"].std() / np.sqrt(len(found))
    assert found["agreement"].mean() == pytest.approx(truth, abs=0.01 + 3 * error)


@pytest.mark.parametrize("chance", [[0.6, 0.3, 0.1], [0.5, 0.5, 0.5]], ids=["differ", "equal"])
def test_a_click_is_ordered_as_that_of_another_user(chance):
    """Agreement with the clicks of others: its mean is that of an order by other impressions."""
    rng = np.random.default_rng(0)
    n_draws = 3_000
    weights = PairWeights(spread=0.02, noise=0.3)
    impressions = np.array([8, 10, 1])
    examined = np.array([1.0, 0.9, 0.2])
    table = pd.DataFrame({"qid": np.repeat(np.arange(n_draws), 3)})
    table["impressions"] = np.tile(impressions, n_draws)
    table["examinations"] = np.tile(impressions * examined, n_draws)

    def clicks(n_impressions):
        return rng.binomial(n_impressions, chance * examined, (n_draws, 3))

    table["clicks"] = clicks(impressions).ravel()
    by_others = queries_by_clicks(table, [], weights)["lead", "clicks"]
    # One further impression of one document of a pair, ordered by one less of the old ones.
    weight = weights(impressions * examined)
    other_rate = clicks(impressions - 1) / np.maximum((impressions - 1) * examined, 1e-9)
    rate = clicks(impressions) / (impressions * examined)
    order = np.sign(other_rate[:, :, None] - rate[:, None, :])
    order[:, impressions == 1] = 0
    new = rng.random((n_draws, 3)) < np.array(chance) * examined
    by_new = ((new / examined)[:, :, None] * weight * order).sum(axis=(1, 2))
    difference = by_others - by_new
    assert abs(difference.mean()) < 4 * difference.std() / np.sqrt(n_draws)
    if chance[0] > chance[1]:
        assert by_new.mean() > 0.01


def test_judges_are_better_where_clicks_are_few_and_clicks_where_they_are_many():
    found = {}
    for n_pages in (6, 20_000):
        world = World(n_queries=200, n_pages=n_pages)
        table = world.compare(world.judge(noise=1)).table
        found[n_pages] = table.loc[0, "better"]
        assert (table.loc[0, "by_clicks"] > table.loc[0, "agreement"]) == (n_pages > 6)
    assert found == {6: "judge", 20_000: "clicks"}


def test_position_bias_is_no_agreement():
    """A judge that repeats the order of the pages agrees with raw clicks, and not with users."""
    world = World(n_pages=1_000)
    world.grade = np.zeros_like(world.grade)
    judge = world.log.groupby(["qid", "doc"], as_index=False)["position"].mean()
    judge["relevance"] = 10 - judge.pop("position")
    chance = 0.3 * EXAMINATION[world.log["position"] - 1]
    world.clicks = world.rng.binomial(world.log["impressions"], chance)
    raw = world.compare(judge, propensity=np.ones(10)).table.loc[0]
    right = world.compare(judge).table.loc[0]
    assert raw["verdict"] == "agree"
    assert raw["lower"] > 0.6
    assert right["agreement"] == pytest.approx(0.5, abs=0.01)


def test_contradicting_queries_come_first():
    world = World(n_queries=200, n_pages=400)
    wrong = world.rng.choice(200, 20, replace=False)
    found = world.compare(world.judge(noise=0.5, reversed_queries=wrong)).per_query
    assert {*found["qid"].head(18)} <= {str(query) for query in wrong}
    said = found[found["verdict"] == "contradict"]
    assert len(said) >= 18
    assert said["qid"].isin([str(query) for query in wrong]).mean() >= 0.9
    assert (found["z"].diff().dropna() >= 0).all()


def test_right_judgments_contradict_no_query():
    worlds = [World(seed, n_pages=20) for seed in range(10)]
    verdicts = pd.concat([world.compare(world.judge()).per_query for world in worlds])
    assert (verdicts["verdict"] == "contradict").sum() <= 1


def test_judges_agree_by_somers_d_and_kendalls_test():
    world = World(n_queries=30)
    judgments = {"people": world.judge(), "model": world.judge(noise=2)}
    found = compare_judgments(judgments, random_state=0)
    a, b = (frame["relevance"].to_numpy().reshape(30, 10) for frame in judgments.values())
    values = [somersd(x, y).statistic for x, y in zip(a, b, strict=True)]
    row = found.table.loc[0]
    assert (row["judge"], row["reference"]) == ("model", "people")
    assert row["agreement"] == pytest.approx((1 + np.mean(values)) / 2)
    per_query = found.per_query.set_index("qid")
    test = kendalltau(a[3], b[3])
    z = np.sign(test.statistic) * norm.isf(test.pvalue / 2)
    assert per_query.loc["3", "z"] == pytest.approx(z)
    assert np.isnan(row["by_clicks"])


def test_kappa_is_that_of_scikit_learn():
    world = World(n_queries=30)
    a = world.rows(relevance=world.grade)
    b = world.rows(relevance=(world.grade + world.rng.integers(0, 3, (30, 10))).clip(0, 4))
    row = compare_judgments({"a": a, "b": b}).table.loc[0]
    expected = cohen_kappa_score(a["relevance"], b["relevance"], weights="quadratic")
    assert row["kappa"] == pytest.approx(expected)
    assert row["kappa_lower"] < row["kappa"] < row["kappa_upper"]


@pytest.mark.parametrize(
    ("noise", "n_queries", "verdict"),
    [(0.3, 60, "may stand in"), (1.2, 15, "cannot tell"), (6.0, 60, "may not")],
)
def test_a_judge_stands_in_where_it_keeps_the_agreement_of_people(noise, n_queries, verdict):
    world = World(n_queries=n_queries)
    people = world.judge(noise=0.3)
    found = world.compare({"model": world.judge(noise), "people": people}, baseline="people")
    row = found.stand_ins.loc[0]
    assert (row["judge"], row["reference"], row["kind"]) == ("model", "clicks", "all")
    assert row["verdict"] == verdict
    assert f"{verdict}." in found.summary() or f"{verdict}\n" in found.summary()


def test_a_second_person_tells_who_may_stand_in_without_a_log():
    world = World(n_queries=100)
    judgments = {name: world.judge(noise=0.5) for name in ("anna", "boris", "model")}
    judgments["dice"] = world.judge(noise=100)
    found = compare_judgments(judgments, baseline="anna", n_resamples=199).stand_ins
    verdict = found.set_index(["judge", "reference"])["verdict"]
    assert verdict["model", "boris"] == "may stand in"
    assert verdict["dice", "boris"] == "may not"
    assert verdict["model", "dice"] == "cannot tell"


def test_people_who_do_not_agree_with_clicks_tell_nothing_of_a_judge():
    world = World()
    people = world.rows(relevance=world.rng.random(world.grade.shape))
    found = world.compare({"people": people, "model": world.judge()}, baseline="people")
    assert found.stand_ins.loc[0, "verdict"] == "cannot tell"


def test_kinds_are_frequent_and_rare_or_given():
    world = World(n_queries=100, skew=1.0)
    judge = world.judge()
    per_query = world.compare(judge).per_query
    impressions = world.log.groupby("qid")["impressions"].sum()
    frequent = per_query.loc[per_query["kind"] == "frequent", "qid"].astype(int)
    share = impressions[frequent].sum() / impressions.sum()
    assert 0.5 <= share < 0.6
    assert impressions[frequent].min() >= impressions.drop(frequent).max()
    # A column, or a mapping, of text and numbers.
    world.log["half"] = np.where(world.log["qid"] < 50, "low", "high")
    kinds = dict(zip(range(100), ["low"] * 50 + ["high"] * 50, strict=True))
    for by in ("half", kinds):
        table = world.compare(judge, by=by).table
        assert table["kind"].tolist() == ["all", "high", "low"]
        assert table["n_queries"].tolist() == [100, 50, 50]


def test_frames_ids_and_counts_of_any_kind_say_the_same():
    world = World(n_queries=20, n_pages=6)
    judge = world.judge(noise=1)
    expected = world.compare(judge)
    # Text in place of numbers, Polars in place of pandas, another order.
    shuffled = world.log.assign(click=world.clicks).sample(frac=1, random_state=0)
    found = compare_judgments(
        pl.from_pandas(judge.astype({"qid": str, "doc": str})),
        pl.from_pandas(shuffled),
        "click",
        propensity=EXAMINATION,
        n_resamples=199,
        random_state=0,
    )
    pd.testing.assert_frame_equal(found.table, expected.table)
    pd.testing.assert_frame_equal(
        found.per_query.sort_values("qid", ignore_index=True),
        expected.per_query.sort_values("qid", ignore_index=True),
    )


def test_what_was_not_judged_or_not_shown_does_not_count():
    world = World(n_queries=20)
    judge = world.judge(noise=1)
    expected = world.compare(judge[judge["doc"] < 8]).table
    judge.loc[judge["doc"] >= 8, "relevance"] = np.nan
    more = pd.DataFrame({"qid": [0, 77], "doc": [10, 0], "relevance": [4.0, 0.0]})
    found = world.compare(pd.concat([judge, more])).table
    pd.testing.assert_frame_equal(found, expected)


def test_summary_tells_all():
    world = World(n_queries=100, n_pages=1_000)
    judgments = {"model": world.judge(reversed_queries=[5]), "people": world.judge()}
    found = world.compare(judgments, baseline="people")
    lines = found.summary().splitlines()
    assert lines[0].startswith("model and clicks, all (100 queries): 0.6")
    assert lines[0].endswith("; agree.")
    assert any(
        "model and clicks contradict each other in 1 of 100 queries: '5'" in x for x in lines
    )
    assert any(x.startswith("model in place of people, by clicks, all: keeps 0.9") for x in lines)
    assert repr(found) == found.summary()


ONE = pd.DataFrame({"qid": 1, "doc": [1, 2], "relevance": [0, 1]})


@pytest.mark.parametrize(
    ("judgments", "settings", "message"),
    [
        ({}, {}, "without a table"),
        ("table", {}, "is a str without a table"),
        ({1: ONE}, {}, r"names \[1\]; expected texts"),
        ({"clicks": ONE}, {}, "'clicks', which is taken"),
        ({"a": [1, 2]}, {}, "'a' are a list; expected a frame"),
        ({"a": ONE.drop(columns="doc")}, {}, r"Missing: \['doc'\]"),
        ({"a": ONE.assign(relevance=np.inf)}, {}, "'a' hold the rating inf in 2 rows"),
        ({"a": ONE.assign(relevance=[1, -1])}, {}, "'a' hold the rating -1 in 1 row; expected"),
        ({"a": ONE.assign(relevance=[1, "good"])}, {}, "'a' hold the rating 'good'; expected"),
        ({"a": pl.from_pandas(ONE.assign(relevance="good"))}, {}, "'a' hold the rating 'good'"),
        ({"a": ONE[:0]}, {}, "compare: 'a' rates no document"),
        ({"a": ONE.assign(relevance=np.nan)}, {}, "compare: 'a' rates no document"),
        ({"a": ONE[:1]}, {}, "share one document in each of 1 queries"),
        (
            {"a": pd.concat([ONE, ONE.assign(relevance=2)])},
            {},
            r"several ratings: \('1', '1', 0.0\) and \('1', '1', 2.0\)",
        ),
        (
            {"a": ONE.assign(qid="other")},
            {},
            r"share no document of a query: they have \('other', '1'\) and \('0', '0'\).*spelling",
        ),
        ({"a": ONE}, {"baseline": "b"}, "baseline='b' is none of the judgments"),
        ({"a": ONE}, {"baseline": "a"}, "a judge and a third party are needed"),
        ({"a": ONE}, {"propensity": None}, "No propensities given"),
        ({"a": ONE}, {"by": "device"}, "device"),
        ({"a": ONE}, {"by": "position"}, "several values in the query 0; expected"),
        ({"a": ONE}, {"by": {1: "all"}}, "the kind 'all', which is that of all queries"),
        ({"a": ONE}, {"by": {3: "x"}}, "no kind for the query '1'"),
    ],
)
def test_bad_input_is_named(judgments, settings, message):
    world = World(n_queries=3)
    with pytest.raises(ValueError, match=message):
        world.compare(judgments, **settings)


@pytest.mark.parametrize("make", [click_judgments, relevance_labels])
def test_what_clicks_made_proves_nothing_beside_them(make):
    world = World(n_queries=20)
    of_clicks = make(world.log, world.clicks, propensity=EXAMINATION)
    judgments = {"people": world.judge(noise=1), "a": of_clicks}
    with pytest.raises(ValueError, match=r"'a' has the column .*beside them they prove nothing"):
        world.compare(judgments, baseline="people")


def test_judgments_of_clicks_are_compared_with_people_without_the_log():
    world = World(n_queries=20)
    of_clicks = click_judgments(world.log, world.clicks, propensity=EXAMINATION)
    found = compare_judgments({"people": world.judge(), "a": of_clicks}, n_resamples=9).table
    assert found[["judge", "reference"]].to_numpy().tolist() == [["a", "people"]]


def test_raters_who_share_no_document_are_told():
    world = World(n_queries=40)
    first = world.judge(noise=0.5)
    judgments = {name: world.judge(noise=0.5) for name in ("anna", "boris")}
    judgments["anna"] = first[first["qid"] < 20]
    judgments["chris"] = first[first["qid"] >= 20]
    with pytest.warns(ClickDataWarning, match="'chris' and 'anna' share no document of"):
        found = compare_judgments(judgments, baseline="anna", n_resamples=99)
    pairs = found.table[["judge", "reference"]].apply(tuple, axis=1)
    assert {*pairs} == {("boris", "anna"), ("chris", "boris")}
    assert (found.stand_ins["verdict"] == "cannot tell").all()
    assert (found.stand_ins["n_queries"] == 0).all()


def test_what_is_lacking_first_is_named():
    """Spelling is blamed for documents alone that nobody shares."""
    alike = ONE.assign(relevance=1)
    with pytest.raises(ValueError, match="'a' rates all documents alike in each of the 1 queries"):
        compare_judgments({"a": alike, "b": ONE})
    log = pd.DataFrame({"qid": [1, 1, 2], "doc": [1, 2, 1], "position": [1, 2, 1]})
    with pytest.raises(ValueError, match="no document that 'a' and 'clicks' share was clicked"):
        compare_judgments({"a": ONE}, log, [0, 0, 1], propensity=[1.0, 0.5])
    with (
        pytest.warns(ClickDataWarning, match="has no click"),
        pytest.raises(ValueError, match="compare: the log has no click"),
    ):
        compare_judgments({"a": ONE}, log, [0, 0, 0], propensity=[1.0, 0.5])
    empty = ONE.assign(relevance=np.nan)
    with pytest.warns(ClickDataWarning, match=r"compared: 'c' rates no document; [^;]*\.$"):
        found = compare_judgments({"a": ONE, "b": ONE, "c": empty}, n_resamples=9).table
    assert found["judge"].tolist() == ["b"]


@pytest.mark.parametrize("given", [{"y": [0, 1]}, {"propensity": [1.0, 0.5]}])
def test_clicks_without_their_log_are_not_ignored(given):
    with pytest.raises(ValueError, match=f"{next(iter(given))} is there, and X is not"):
        compare_judgments({"a": ONE, "b": ONE}, **given)


def test_judgments_alone_need_each_other():
    with pytest.raises(ValueError, match="nothing to compare 'a' with"):
        compare_judgments({"a": ONE})
    with pytest.raises(ValueError, match="names a column of X"):
        compare_judgments({"a": ONE, "b": ONE}, by="device")
    with pytest.raises(ValueError, match="a judge and a third party"):
        compare_judgments({"a": ONE, "b": ONE}, baseline="a")


def test_a_clicked_document_was_examined():
    log = pd.DataFrame({"qid": 1, "doc": [1, 2], "position": [1, 2], "propensity": [0.5, 0.0]})
    with pytest.raises(ValueError, match="propensity"):
        compare_judgments({"a": ONE}, log, [0, 1])


@pytest.mark.parametrize("kind", [FrozenEstimator, None, "harvesting", "model", "dataset"])
def test_examination_of_any_source_and_logs_of_any_kind(kind, tmp_path):
    world = World(n_queries=60, n_pages=400)
    judge = world.judge()
    expected = world.compare(judge).table.loc[0]
    log = world.log.assign(click=world.clicks)
    harvesting = InterventionHarvesting()
    sources = {
        FrozenEstimator: lambda: FrozenEstimator(harvesting.fit(world.log, world.clicks)),
        None: lambda: None,
        "harvesting": lambda: harvesting,
        "model": PBMModel,
        "dataset": lambda: EXAMINATION,
    }
    given = sources[kind]()
    if kind is None:
        log["propensity"] = EXAMINATION[log["position"] - 1]
    if kind == "dataset":
        features = judge[["qid", "doc"]].assign(feature=1.0)
        log, y = ClickDataset.from_parquet(log, features, path=tmp_path / "log"), None
    else:
        y = "click"
    found = compare_judgments(judge, log, y, propensity=given, n_resamples=99).table.loc[0]
    assert found["agreement"] == pytest.approx(expected["agreement"], abs=0.02)
    assert found["n_docs"] == expected["n_docs"]
