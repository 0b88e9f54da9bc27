import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose
from pandas.testing import assert_frame_equal
from sklearn.exceptions import ConvergenceWarning

from skultr import ClickDataset
from skultr.evaluation import _compare_logs, compare_logs

# The small logs of these tests have the same rate in all rows of a position.
pytestmark = pytest.mark.filterwarnings("ignore:The position determines y")

RANKS = np.arange(1, 6)


def counts(rate=(0.4, 0.2), n_queries=30, impressions=1000):
    """A counted log whose queries show document k at position k + 1 with these click rates."""
    n = len(rate)
    return pd.DataFrame(
        {
            "qid": np.arange(n_queries).repeat(n),
            "doc": np.tile(np.arange(n), n_queries),
            "position": np.tile(np.arange(1, n + 1), n_queries),
            "impressions": float(impressions),
            "click": np.tile(rate, n_queries),
        }
    )


def world(rng, n_queries=100):
    logit = rng.normal(-1, 1.2, (n_queries, len(RANKS)))
    return logit, logit + rng.normal(0, 1, logit.shape)


def pages(rng, logit, scores, examination=1 / RANKS, n_pages=6_000, shuffled=0.5, cascade=False):
    """Raw pages of users who examine positions, or who stop at their first click."""
    query = rng.integers(len(logit), size=n_pages)
    noise = shuffled * rng.gumbel(size=(n_pages, len(RANKS)))
    doc = np.argsort(-(scores[query] + noise), axis=1)
    relevance = 1 / (1 + np.exp(-np.take_along_axis(logit[query], doc, axis=1)))
    if cascade:
        clicks = rng.random(relevance.shape) < relevance
        clicks &= np.cumsum(clicks, axis=1) == 1
    else:
        clicks = rng.random(relevance.shape) < relevance * examination
    return pd.DataFrame(
        {
            "qid": query.repeat(len(RANKS)),
            "session": np.arange(n_pages).repeat(len(RANKS)),
            "doc": doc.ravel(),
            "position": np.tile(RANKS, n_pages),
            "click": clicks.ravel().astype(int),
            "feature": scores[query.repeat(len(RANKS)), doc.ravel()],
        }
    )


def rows_of(comparison, watched):
    return comparison.table.query("watched == @watched").set_index("at")


def row_of(comparison, watched, at=""):
    return rows_of(comparison, watched).loc[at]


@pytest.fixture(scope="module")
def logs():
    rng = np.random.default_rng(0)
    documents = world(rng)
    return pages(rng, *documents), pages(rng, *documents)


# Verdicts -------------------------------------------------------------------------------
def test_a_log_and_itself_differ_in_nothing(logs):
    found = compare_logs(logs[0], logs[0])
    assert not found.alarm
    assert_allclose(found.table["difference"], 0, atol=1e-12)
    assert (found.table["p_value"] == 1).all()


def test_pairs_without_a_change_raise_no_alarm():
    rng = np.random.default_rng(1)
    for _ in range(5):
        documents = world(rng)
        assert not compare_logs(pages(rng, *documents), pages(rng, *documents)).alarm


def test_a_change_is_an_alarm_if_it_is_relevant():
    old, new = counts((0.4, 0.2)), counts((0.4, 0.17))
    assert row_of(compare_logs(old, new), "click rate", "2")["verdict"] == "alarm"
    found = compare_logs(old, new, relevant={"click rate": 0.2, "clicks per page": 0.1})
    assert row_of(found, "click rate", "2")["verdict"] == "no relevant change"
    assert_allclose(row_of(found, "click rate", "2")["relevant"], 0.2 * 0.2)
    assert row_of(found, "examination", "2")["verdict"] == "alarm"


def test_p_values_are_adjusted_for_rows_and_looks(logs):
    new = logs[1].assign(feature=logs[1]["feature"] + 0.05)
    once, often = (compare_logs(logs[0], new, n_looks=n).table for n in (1, 10))
    assert_frame_equal(once[["p_value"]], often[["p_value"]])
    assert_allclose(often["p_adjusted"], np.minimum(10 * once["p_adjusted"], 1))
    least = once["p_value"].idxmin()
    n_known = once["p_value"].notna().sum()
    assert_allclose(once["p_adjusted"][least], min(n_known * once["p_value"][least], 1))
    wide = often["upper"] - often["lower"]
    assert (wide[once["upper"] > once["lower"]] > (once["upper"] - once["lower"])[wide > 0]).all()


def test_few_queries_cannot_tell():
    found = compare_logs(counts(n_queries=9), counts((0.1, 0.2), n_queries=9))
    assert set(rows_of(found, "click rate")["verdict"]) == {"cannot tell"}
    assert set(rows_of(found, "examination")["verdict"]) == {"cannot tell"}
    assert found.table["p_value"].notna().sum() == 1  # "connected" is a fact
    assert not found.alarm


def test_summary_names_alarms_and_what_it_cannot_tell(logs):
    found = compare_logs(logs[0], logs[1].query("position <= 4"))
    lines = found.summary().splitlines()
    verdicts = found.table["verdict"].value_counts()
    assert (
        lines[0]
        == f"{len(found.table)} rows: "
        + ", ".join(
            f"{verdict} in {verdicts[verdict]}"
            for verdict in ("alarm", "cannot tell", "no relevant change")
        )
        + "."
    )
    assert "results per page: 5 before, 4 now; -1 [-1, -1], p = 0." in lines
    unknown = found.table.query("verdict == 'cannot tell'").groupby("watched")["at"]
    for watched, at in unknown:  # some have one row for each position
        assert f"Cannot tell: {watched} {', '.join(map(str, at))}".strip() + "." in lines
    assert "examination" in unknown.groups
    assert len(lines) == 1 + verdicts["alarm"] + len(unknown)
    assert repr(found) == found.summary()


# Examination ----------------------------------------------------------------------------
def test_weights_of_documents_converge_or_warn(logs, monkeypatch, recwarn):
    compare_logs(*logs)
    assert not any(each.category is ConvergenceWarning for each in recwarn)
    monkeypatch.setattr(_compare_logs, "_MOST_ROUNDS", 2)
    with pytest.warns(ConvergenceWarning, match="still move after 2 rounds"):
        compare_logs(*logs)


def test_weights_of_documents_are_a_fixed_point(logs, monkeypatch):
    found = compare_logs(*logs).table
    monkeypatch.setattr(_compare_logs, "_TOLERANCE", 1e-9)
    exact = compare_logs(*logs).table
    assert_allclose(found["difference"], exact["difference"], atol=1e-4)


def test_examination_is_the_ratio_of_click_rates_of_the_same_cells():
    found = compare_logs(counts((0.4, 0.2, 0.1)), counts((0.5, 0.2, 0.15)))
    row = rows_of(found, "examination")
    assert_allclose(row["new"], [0.4 / 0.5, 0.4 / 0.5 * 1.5])
    assert_allclose(row["old"], 1)
    assert (row["lower"] < row["difference"]).all()
    assert_allclose((1 + row["lower"]) * (1 + row["upper"]), row["new"] ** 2)


def test_examination_of_cells_that_one_log_lacks_does_not_count():
    old, new = counts(), counts((0.4, 0.15))
    other = counts((0.01, 0.3), n_queries=60).query("qid >= 30")
    found = compare_logs(old, pd.concat([new, other]))
    assert_allclose(row_of(found, "examination", "2")["new"], 0.75)


def test_the_error_is_no_less_than_that_of_chance():
    """With equal changes in all queries nothing varies but the clicks."""
    row = row_of(compare_logs(counts(), counts((0.4, 0.19))), "examination", "2")
    n = 30 * 1000
    variance = sum((1 - p) / (p * n) for p in (0.4, 0.4, 0.2, 0.19))
    error = (np.log1p(row["upper"]) - np.log1p(row["lower"])) / 2
    assert 1.9 < error / np.sqrt(variance) < 2.2  # a quantile of Student


def test_another_production_is_no_change_of_examination():
    rng = np.random.default_rng(2)
    logit, old = world(rng)
    old = old + rng.normal(0, 2, logit.shape)
    found = compare_logs(pages(rng, logit, old), pages(rng, logit, logit))
    assert row_of(found, "click rate", "1")["verdict"] == "alarm"
    assert "alarm" not in set(rows_of(found, "examination")["verdict"])


def test_users_who_stop_at_a_click_are_no_change_of_examination():
    rng = np.random.default_rng(3)
    logit, _ = world(rng)
    # From the worst ranking to nearly the best: far more users stop above each position.
    worst = -logit
    best = logit + rng.normal(0, 0.1, logit.shape)
    logs = [pages(rng, logit, each, cascade=True, shuffled=1.0) for each in (worst, best)]
    found = rows_of(compare_logs(*logs), "examination")
    assert "alarm" not in set(found["verdict"])
    keys = ["qid", "doc", "position"]
    counted = [
        log.groupby(keys, as_index=False).agg(
            click=("click", "mean"), impressions=("click", "size")
        )
        for log in logs
    ]
    of_counts = rows_of(compare_logs(*counted), "examination")
    # Counts do not tell who stopped.
    assert "alarm" in set(of_counts["verdict"])
    assert of_counts["new"].mean() < found["new"].mean() - 0.1


def test_documents_of_another_relevance_count_less():
    rates = np.full((30, 3), [0.4, 0.3, 0.2])
    old = counts(rates[0]).assign(click=rates.ravel())
    rates[:3, 2] = 0.8
    found = compare_logs(old, old.assign(click=rates.ravel()))
    assert abs(row_of(found, "examination", "3")["difference"]) < 0.02
    assert row_of(found, "click rate", "3")["difference"] == pytest.approx(0.06)


def test_users_who_look_less_far_are_found_in_other_queries():
    rng = np.random.default_rng(4)
    old = pages(rng, *world(rng), n_pages=20_000, shuffled=1.0)
    examination = np.where(RANKS > 2, 0.6, 1.0) / RANKS
    new = pages(rng, *world(rng), examination, n_pages=20_000, shuffled=1.0)
    new["qid"] += 100
    found = compare_logs(old, new)
    assert row_of(found, "examination", "3")["verdict"] == "alarm"
    assert row_of(found, "examination", "2")["verdict"] != "alarm"
    assert row_of(found, "new queries")["verdict"] == "alarm"
    assert row_of(found, "new documents")["verdict"] == "cannot tell"


@pytest.mark.parametrize("falls", ["in one order", "where documents moved"])
def test_where_two_estimates_contradict_each_other_the_one_that_says_less_counts(falls):
    """Position 2 loses clicks in some queries only: documents changed, or users did."""
    straight = counts(impressions=1000 if falls == "in one order" else 8000)
    moved = pd.concat(
        [
            counts(impressions=300),
            counts(impressions=300).assign(doc=lambda X: 1 - X["doc"]),
        ]
    ).assign(qid=lambda X: X["qid"] + 30)
    old, is_moved = pd.concat([straight, moved], ignore_index=True), np.repeat([0, 1], [60, 120])
    loses = (old["position"] == 2) & (is_moved == (falls == "where documents moved"))
    row = row_of(
        compare_logs(old, old.assign(click=old["click"] * np.where(loses, 0.7, 1.0))),
        "examination",
        "2",
    )
    assert abs(row["difference"]) < 0.06
    all_lose = old.assign(click=old["click"] * np.where(old["position"] == 2, 0.7, 1.0))
    row = row_of(compare_logs(old, all_lose), "examination", "2")
    assert row["difference"] == pytest.approx(-0.3)


def test_the_error_is_that_of_changes_that_differ_between_queries():
    old = counts(impressions=20_000)
    rate = old["click"] * np.where(np.arange(60) % 4 == 1, 1.1, 1.0)
    row = row_of(compare_logs(old, old.assign(click=rate)), "examination", "2")
    error = np.log((1 + row["upper"]) / (1 + row["lower"])) / 4
    spread = np.log(1.1) / 2  # around its middle
    assert 0.8 < error / (spread / np.sqrt(30)) < 1.2


def test_deep_positions_are_in_blocks():
    rate = np.linspace(0.5, 0.1, 45)
    found = compare_logs(counts(rate), counts(rate))
    names = [*map(str, range(1, 11)), "11-20", "21-40", "41-45"]
    assert rows_of(found, "click rate").index.tolist() == names
    assert rows_of(found, "examination").index.tolist() == names[1:]


# Clicks ---------------------------------------------------------------------------------
def test_click_rates_are_ratios_over_impressions():
    old, new = counts((0.4, 0.2)), counts((0.4, 0.2))
    new["impressions"] = np.where(new["qid"] < 10, 3000, 1000)
    new["click"] = np.where(new["qid"] < 10, 0.1, new["click"])
    found = compare_logs(old, new)
    assert_allclose(rows_of(found, "click rate")["new"], [(3 * 0.1 + 2 * 0.4) / 5, 0.14])
    assert_allclose(row_of(found, "clicks per page")["new"], 0.22 + 0.14)
    assert_allclose(row_of(found, "results per page")[["old", "new"]].tolist(), 2)


def test_a_log_that_lost_its_clicks_is_an_alarm():
    with pytest.warns(UserWarning, match="no click"):
        compare_logs(counts((0.0, 0.0)), counts((0.0, 0.0)))
    found = compare_logs(counts(), counts((0.0, 0.0)))
    assert set(rows_of(found, "click rate")["verdict"]) == {"alarm"}
    assert row_of(found, "examination", "2")["verdict"] == "cannot tell"


# Features -------------------------------------------------------------------------------
def with_feature(values, **columns):
    return counts().assign(feature=np.resize(values, 60), **columns)


def test_location_and_spread_are_ranks_among_the_old_values():
    rng = np.random.default_rng(0)
    old, draws = counts(), rng.normal(size=(3, 60))
    found = [compare_logs(old.assign(feature=draws[0]), old.assign(feature=new)) for new in draws]
    location = np.mean(
        [(np.mean(draws[0] < x) + np.mean(draws[0] <= x)) / 2 for x in draws[1].astype("f4")]
    )
    assert_allclose(row_of(found[1], "location", "feature")["new"], location, atol=1e-2)
    assert row_of(found[0], "location", "feature")["new"] == pytest.approx(0.5)
    assert row_of(found[0], "spread", "feature")["new"] == pytest.approx(0.5)
    narrow = compare_logs(old.assign(feature=draws[0]), old.assign(feature=draws[0] / 4))
    assert row_of(narrow, "spread", "feature")["verdict"] == "alarm"


def test_a_constant_that_changes_is_an_alarm():
    assert not compare_logs(with_feature(1.0), with_feature(1.0)).alarm
    row = row_of(compare_logs(with_feature(1.0), with_feature(2.0)), "location", "feature")
    assert (row["old"], row["new"], row["verdict"]) == (0.5, 1.0, "alarm")


def test_missing_values_are_watched_and_have_no_rank():
    found = compare_logs(with_feature([1.0, 2.0]), with_feature([1.0, np.nan]))
    assert row_of(found, "missing", "feature")["new"] == 0.5
    assert row_of(found, "missing", "feature")["verdict"] == "alarm"
    assert row_of(found, "location", "feature")["new"] == 0.25
    none = compare_logs(with_feature([1.0, 2.0]), with_feature(np.nan))
    assert row_of(none, "missing", "feature")["verdict"] == "alarm"
    assert row_of(none, "location", "feature")["verdict"] == "cannot tell"


def test_categories_that_the_old_log_lacks_are_missing():
    old, new = with_feature(["a", "b"]), with_feature(["a", "c"])
    assert row_of(compare_logs(old, new), "missing", "feature")["new"] == 0.5


def test_columns_that_one_log_lacks_are_alarms():
    found = compare_logs(with_feature(1.0, gone=2.0), with_feature(1.0, more=1.0))
    rows = rows_of(found, "column")
    assert rows["old"].to_dict() == {"gone": 1.0, "more": 0.0}
    assert set(rows["verdict"]) == {"alarm"}
    without = compare_logs(counts(), counts())
    assert not set(without.table["watched"]) & {"column", "location", "missing"}


# Time that passes -----------------------------------------------------------------------
def _aged(log, week, kind):
    """The log with what grows in a week, in days."""
    rng = np.random.default_rng(week)
    born = 60 * np.random.default_rng(9).random(len(RANKS) * 100)[log["qid"] * 5 + log["doc"]]
    page = 7 * (week + np.sort(rng.random(log["session"].max() + 1)))[log["session"]]
    values = {
        "age in whole days": np.floor(born) + 7 * week,
        "age when it was shown": born + page,
        "age in single precision": (born + page).astype(np.float32),
        "time stamp": 1.7e9 + 86_400 * page,
        "days that are left": 500 - born - page,
    }
    return log.assign(grown=values[kind])


AGES = [
    "age in whole days",
    "age when it was shown",
    "age in single precision",
    "time stamp",
    "days that are left",
]


@pytest.mark.parametrize("kind", AGES)
def test_time_that_passes_is_no_alarm_and_is_named(logs, kind):
    old, new = (_aged(log, week, kind) for week, log in enumerate(logs))
    found = compare_logs(old, new)
    assert not found.alarm
    assert rows_of(found, "location")["verdict"]["grown"] == "no relevant change"
    row = row_of(found, "passing time", "grown")
    week = {"time stamp": 7 * 86_400, "days that are left": -7}.get(kind, 7)
    assert row["difference"] == pytest.approx(week, rel=0.02)
    assert row["old"] == pytest.approx(old["grown"].mean(), rel=1e-6)
    assert "grown moved by" in found.summary()


@pytest.mark.parametrize(
    "change",
    [
        lambda values: 1.2 * values,  # inflation moves dear documents by more
        lambda values: np.where(values > 30, values + 20, values),
        lambda values: values + 60 * np.random.default_rng(0).random(len(values)),
    ],
    ids=["inflation", "some", "noise"],
)
def test_features_that_do_not_move_alike_are_alarms(logs, change):
    old, new = (_aged(log, 0, "age in whole days") for log in logs)
    found = compare_logs(old, new.assign(grown=change(new["grown"])))
    assert "passing time" not in set(found.table["watched"])
    assert row_of(found, "location", "grown")["verdict"] == "alarm"


def test_documents_that_are_older_beyond_the_time_that_passed_are_an_alarm(logs):
    old, new = (_aged(log, week, "age in whole days") for week, log in enumerate(logs))
    found = compare_logs(old, new[new["grown"] > 20])  # new ones are no longer shown
    assert row_of(found, "location", "grown")["verdict"] == "alarm"


# Contexts -------------------------------------------------------------------------------
def _with_mix(log, share, name, values):
    rng = np.random.default_rng(len(log) + int(100 * share))
    one = rng.random(log["session"].max() + 1) < share
    return log.assign(**{name: np.array(values)[one.astype(int)][log["session"]]})


@pytest.mark.parametrize(
    ("name", "values"),
    [("device", ["desk", "phone"]), ("is_member", [0.0, 1.0]), ("user", [3, 4]), ("bias", [1, 2])],
)
def test_a_mix_that_moved_is_named_and_one_that_stayed_is_none(logs, name, values):
    same = [_with_mix(log, 0.4, name, values) for log in logs]
    still = compare_logs(*same)
    assert not still.alarm
    assert set(rows_of(still, "mix")["verdict"]) == {"no relevant change"}
    moved = compare_logs(same[0], _with_mix(logs[1], 0.6, name, values))
    row = row_of(moved, "mix", f"{name}={values[1]}")
    assert_allclose([row["old"], row["new"]], [0.4, 0.6], atol=0.03)
    assert row["verdict"] == "alarm"
    change = f"{row['old']:.3g} before, {row['new']:.3g} now"
    assert f"mix {name}={values[1]}: {change}" in moved.summary()


def test_a_mix_of_counts_is_named_and_features_of_documents_are_none():
    parts = [
        counts(impressions=share).assign(device=name)
        for name, share in (("desk", 600), ("phone", 400))
    ]
    old = pd.concat(parts).assign(brand=lambda log: np.where(log["doc"] == 0, "acme", "nord"))
    new = old.assign(impressions=1000 - old["impressions"])
    rows = rows_of(compare_logs(old, new), "mix")
    assert rows["verdict"].to_dict() == {"device=desk": "alarm", "device=phone": "alarm"}


# Traffic and order ----------------------------------------------------------------------
def test_new_queries_are_those_beyond_chance():
    """Of 460 old pages 20 have a query of their own."""
    once, twice, few = (counts(n_queries=20, impressions=n) for n in (1, 2, 20))
    old = [once, twice.assign(qid=twice["qid"] + 50), few.assign(qid=few["qid"] + 100)]
    old = pd.concat(old)
    new = pd.concat([few.assign(qid=few["qid"] + 500), few.assign(qid=few["qid"] + 1000)])
    row = row_of(compare_logs(old, new), "new queries")
    assert_allclose([row["old"], row["new"]], [20 / 460, 1])
    assert row["verdict"] == "alarm"
    fewer = row_of(compare_logs(new, few.assign(qid=few["qid"] + 500)), "new queries")
    assert fewer["verdict"] == "no relevant change"


def test_new_documents_are_those_of_known_queries():
    new = counts().assign(doc=lambda X: np.where(X["qid"] < 15, X["doc"], X["doc"] + 7))
    row = row_of(compare_logs(counts(), new), "new documents")
    assert (row["old"], row["new"], row["verdict"]) == (0, 0.5, "alarm")
    once = counts().assign(impressions=20).query("position == 1 and qid < 15")
    once = once.assign(doc=9, position=3, impressions=1)
    old = pd.concat([counts(impressions=20), once])
    more = counts(impressions=20).assign(impressions=lambda X: np.where(X["qid"] < 15, 60, 20))
    row = row_of(compare_logs(old, more), "new documents")  # at the traffic of the new log
    assert_allclose(row["old"], 15 * 3 / (15 * 3 * 41 + 15 * 40))
    rare = counts(impressions=5)  # too few pages to say which are new
    assert row_of(compare_logs(rare, new), "new documents")["verdict"] == "cannot tell"


def test_moved_documents_do_not_depend_on_the_length_of_the_log(logs):
    share = np.tile([0.8, 0.2], 30)
    moved = counts().assign(position=lambda X: 3 - X["position"])
    log, short = (
        pd.concat([counts().assign(impressions=0.8 * n), moved.assign(impressions=0.2 * n)])
        for n in (1000, 100)
    )
    row = row_of(compare_logs(log, short), "moved documents")
    assert_allclose(row["old"], 2 * share[0] * share[1] * 1000 / 999)
    assert_allclose(row["new"], 2 * share[0] * share[1] * 100 / 99)
    assert row["verdict"] == "no relevant change"


def test_a_log_in_one_order_is_an_alarm_after_one_that_moved(logs):
    rng = np.random.default_rng(0)
    ordered = pages(rng, *world(rng), shuffled=0.0)
    found = compare_logs(logs[0], ordered)
    assert row_of(found, "moved documents")["new"] == 0
    assert row_of(found, "moved documents")["verdict"] == "alarm"
    assert_allclose(row_of(found, "connected")[["old", "new"]].tolist(), [1, 0.2])
    assert row_of(found, "connected")["verdict"] == "alarm"
    back = compare_logs(ordered, logs[0])
    assert row_of(back, "connected")["verdict"] == "no relevant change"


@pytest.mark.parametrize(("apart", "verdict"), [(0.04, "no relevant change"), (0.06, "alarm")])
def test_a_twentieth_of_the_impressions_that_nothing_compares_is_an_alarm(apart, verdict):
    """Documents 0 and 1 have both orders; the third one is at the top in the old log only."""
    both = pd.DataFrame(
        {
            "qid": 0,
            "doc": [0, 1, 0, 1],
            "position": [1, 2, 2, 1],
            "impressions": 1000 * (1 - apart),
        }
    )
    third = pd.DataFrame({"qid": 0, "doc": 2, "position": [1, 3], "impressions": 2000 * apart})
    old = pd.concat([both, third]).assign(click=0.3)
    alone = third.assign(position=3)
    new = pd.concat([both, alone]).assign(click=0.3)
    row = row_of(compare_logs(old, new), "connected")
    assert_allclose([row["old"], row["new"]], [1, 1 - apart])
    assert row["verdict"] == verdict


# Logs -----------------------------------------------------------------------------------
@pytest.mark.parametrize("convert", [pl.from_pandas, pa.Table.from_pandas])
def test_kinds_of_frames_give_one_table(logs, convert):
    table = compare_logs(*logs).table
    assert_frame_equal(compare_logs(*map(convert, logs)).table, table)
    assert_frame_equal(compare_logs(logs[0], convert(logs[1])).table, table)


def test_order_of_rows_and_kinds_of_ids_do_not_matter(logs):
    table = compare_logs(*logs).table
    others = [
        log.sample(frac=1, random_state=0).assign(
            qid=lambda X: "q" + X["qid"].astype(str).str.zfill(3),
            doc=lambda X: "d" + X["doc"].astype(str),
        )
        for log in logs
    ]
    assert_frame_equal(compare_logs(*others).table, table)


def test_a_dataset_is_read_as_its_counts(logs, tmp_path):
    datasets = []
    for number, log in enumerate(logs):
        log.to_parquet(tmp_path / f"{number}.parquet")
        datasets.append(
            ClickDataset.from_parquet(tmp_path / f"{number}.parquet", path=tmp_path / f"{number}")
        )
    found, raw = compare_logs(*datasets), compare_logs(*logs)
    watched = ["clicks per page", "click rate", "location", "moved documents", "connected"]
    for each in watched:
        assert_allclose(rows_of(found, each)["new"], rows_of(raw, each)["new"])


def test_rows_that_were_not_shown_do_not_count(logs):
    unseen = logs[1][:500].assign(position=np.nan, click=0, feature=1000.0, doc=99)
    assert_frame_equal(
        compare_logs(logs[0], pd.concat([logs[1], unseen])).table, compare_logs(*logs).table
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X[:0], "no rows"),
        (lambda X: X.drop(columns="doc"), "no column 'doc'"),
        (lambda X: X.drop(columns="position"), "no column 'position'"),
        (lambda X: X.drop(columns="click"), "no column 'click'"),
        (lambda X: X.drop(columns="session"), "'session' is missing"),
        (lambda X: X.assign(qid=X["qid"].where(X["qid"] > 3)), "'qid' is missing"),
        (lambda X: X.assign(session=1), "at position 1"),
    ],
)
def test_what_a_log_lacks_is_an_error(logs, change, message):
    with pytest.raises(ValueError, match=message):
        compare_logs(logs[0], change(logs[1]))


def test_unknown_names_are_errors(logs):
    with pytest.raises(ValueError, match=r"relevant names \['clicks'\]; expected some of"):
        compare_logs(*logs, relevant={"clicks": 0.1})
    with pytest.raises(TypeError, match="expected the log as a frame"):
        compare_logs(logs[0].to_numpy(), logs[1])
    with pytest.raises(ValueError, match="n_looks"):
        compare_logs(*logs, n_looks=0)
