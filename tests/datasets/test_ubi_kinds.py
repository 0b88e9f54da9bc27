"""read_ubi by kind of event: what is lost, which actions are impressions, and later pages."""

import warnings
from itertools import product

import pandas as pd
import pytest

from skultr.datasets import read_ubi
from skultr.datasets._ubi_records import _bare
from skultr.exceptions import ClickDataWarning

from ._ubi_logs import event, search

WIDTH = 10


def queries(n=40, hits="", **fields):
    hits = {"query_response_hit_ids": list(hits)} if hits else {}
    return [search(f"q{k}", "lamp", **hits, **fields)[1] for k in range(n)]


def impressions(n=40, docs="abcdefghij", action="impression", base=1, **fields):
    return [
        event(action, doc, place, query_id=f"q{k}", **fields)
        for k in range(n)
        for place, doc in enumerate(docs, base)
    ]


def clicks(n=30, action="click", lost=lambda k: False, **fields):
    """Events on document b of pages, some of them with the fields of a fault."""
    found = [event(action, "b", 2, query_id=f"q{k}", timestamp=k) for k in range(n)]
    for k in filter(lost, range(n)):
        found[k] |= fields
        if fields.get("query_id"):
            found[k]["query_id"] += f" {k}"  # a page of its own
    return found


def read(records, **options):
    """The log, the report, and the texts of the warnings."""
    events = [record for record in records if "action_name" in record]
    found = [record for record in records if "action_name" not in record]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ClickDataWarning)
        log, report = read_ubi(pd.DataFrame(found), pd.DataFrame(events), **options)
    texts = [str(each.message) for each in caught]
    assert texts == report.warnings
    return log, report, texts


def rows_of(log, session="q0"):
    part = log[log["session"] == session]
    return dict(zip(part["doc"], part["position"], strict=True))


def loss(report, kind):
    rows = report.losses[report.losses["kind"] == kind]
    return int(rows["lost"].sum()), int(rows["n"].sum())


# Losses --------------------------------------------------------------------------------------
NO_ATTRIBUTES = {"event_attributes": {}}
FAULTS = {
    "without a query_id": {"query_id": None},
    "without an object_id": NO_ATTRIBUTES,
    "without a query record": {"query_id": "of another day", "user_query": None},
    "on which nothing was shown": {"query_id": "unseen", "user_query": "lamp"},
}


@pytest.mark.parametrize(
    ("action", "fault"),
    [
        *product(["click", "add_to_cart"], FAULTS),
        *product(["impression"], [*FAULTS][:-1]),  # an impression shows its document
    ],
)
def test_each_kind_that_loses_a_tenth_is_told(action, fault):
    """However many events of other kinds there are."""
    records = [*queries(), *impressions(), *clicks(), *clicks(action="add_to_cart")]
    if action == "impression":
        more = impressions(docs="klm", base=WIDTH + 1)
        records += [{**each, **FAULTS[fault], "timestamp": k} for k, each in enumerate(more)]
        n, lost = 40 * (WIDTH + 3), 120
    else:
        records = [each for each in records if each.get("action_name") != action]
        records += clicks(action=action, lost=lambda k: k % 10 == 0, **FAULTS[fault])
        n, lost = 30, 3
    _, report, texts = read(records, outcomes="add_to_cart", user=None)
    kind = {"add_to_cart": "outcome_add_to_cart"}.get(action, action)
    assert loss(report, kind) == (lost, n)
    assert len(texts) == 1
    assert texts[0].startswith(f"{lost} of {n} events {action!r} (")
    assert fault in texts[0]
    assert f"{lost} of {n} events {action!r}" in report.summary().split("Lost by kind:")[1]


def test_a_kind_that_loses_less_than_a_tenth_is_only_counted():
    lost = clicks(lost=lambda k: k in (0, 1), query_id=None)
    _, report, texts = read([*queries(), *impressions(), *lost])
    assert texts == []
    assert loss(report, "click") == (2, 30)
    assert "2 of 30 events 'click' (7 %) could not be used: 2 without a query_id." in (
        report.summary()
    )


def test_an_action_of_clicks_does_not_hide_another():
    records = [*queries(100), *impressions(100), *clicks(100)]
    records += clicks(3, action="item_click", lost=lambda k: True, query_id=None)
    _, report, texts = read(records)
    assert loss(report, "click") == (3, 103)
    assert [text.split(" (")[0] for text in texts] == ["3 of 3 events 'item_click'"]


@pytest.mark.parametrize("fault", FAULTS)
def test_lost_clicks_are_not_blamed_on_their_name(fault):
    records = [*queries(), *impressions(), *clicks(lost=lambda k: True, **FAULTS[fault])]
    _, _, texts = read(records)
    assert len(texts) == 1
    assert texts[0].startswith("Nothing was clicked, because no click could be used: 30 ")
    assert fault in texts[0]
    assert "clicks=" not in texts[0]


def test_clicks_of_clients_left_out_are_not_blamed_on_their_name():
    people = [*queries(client_id="me"), *impressions(client_id="me")]
    _, _, texts = read([*people, *clicks()], keep=lambda client: client == "me")
    assert "30 of clients that keep= leaves out" in texts[0]


def test_clicks_of_another_name_are_asked_for():
    log, _, texts = read([*queries(), *impressions(), *clicks(action="tap")])
    assert "The other actions found are ['tap']; name those that are clicks in clicks=" in texts[0]
    log, _, texts = read([*queries(), *impressions(), *clicks(action="tap")], clicks="tap")
    assert log["click"].sum() == 30
    assert texts == []


def test_lost_query_records_are_told():
    records = [*queries(), *impressions(user_query="lamp"), *clicks()]
    for record in records[:30]:
        record["query_id"] = None
    _, report, texts = read(records, user=None)
    assert texts == [
        "30 of 40 query records (75 %) could not be used: 30 without a query_id. Send the "
        "query_id with every event and query record."
    ]
    assert loss(report, "query") == (30, 40)


def test_nothing_lost():
    _, report, texts = read([*queries(), *impressions(), *clicks()])
    assert texts == []
    assert report.losses["lost"].sum() == 0
    assert report.losses["kind"].tolist() == ["impression", "click", "query"]
    assert "Nothing was lost of any kind." in report.summary()


# Names of impressions ------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("action", "docs"),
    [("view", "abc"), ("Product_Impression", "abc"), ("tile_seen", "a"), ("listed", "abc")],
)
def test_impressions_of_another_name_are_told_and_can_be_named(action, docs):
    records = [*queries(hits="abcdefgh"), *impressions(docs=docs, action=action), *clicks(12)]
    log, report, texts = read(records)
    assert len(log) == 40 * 8
    n = 40 * len(docs)
    assert f"{action!r} ({n} documents on 40 pages)" in texts[0]
    assert f"pass impressions=['{action}']; if not, pass impressions='hits'." in texts[0]
    log, report, texts = read(records, impressions=[action])
    assert report.counts.query("fate == 'shown'")["n"].sum() == n
    assert texts == []
    assert read(records, impressions=action.upper())[0].equals(log)
    log, _, texts = read(records, impressions="hits")
    assert (len(log), texts) == (40 * 8, [])


def test_impressions_of_two_names():
    web = [*queries(60), *impressions(60), *clicks()]
    app = [each | {"application": "app", "query_id": each["query_id"] + "-app"} for each in web]
    app = [each for each in app if each["query_id"] < "q3"]
    for record in app:
        if record.get("action_name") == "impression":
            record["action_name"] = "view"
        elif "user_query" in record:
            record["query_response_hit_ids"] = list("abcdefghijklmno")
    log, report, texts = read([*web, *app])
    assert report.from_hits == ["app"]
    assert "pass impressions=['impression', 'view']." in texts[0]
    log, report, texts = read([*web, *app], impressions=["impression", "view"])
    assert texts == []
    assert log.groupby("session", observed=True).size().eq(WIDTH).all()


@pytest.mark.parametrize("action", ["hover", "view_item", "add_to_cart"])
def test_events_as_rare_as_clicks_are_no_impressions(action):
    records = [*queries(hits="abcdefgh"), *clicks(30), *clicks(30, action=action)]
    assert read(records)[2] == []


def test_views_beside_impressions_are_no_impressions():
    records = [*queries(), *impressions(), *impressions(docs="abc", action="view"), *clicks()]
    log, _, texts = read(records)
    assert (len(log), texts) == (400, [])


def test_without_hit_lists_the_error_names_what_may_be_impressions():
    records = [*queries(), *impressions(action="view"), *clicks()]
    with pytest.raises(
        ValueError, match=r"look like impressions: 'view' .*impressions=\['view'\]"
    ):
        read(records)
    for names in ("view", ["view"]):
        assert len(read(records, impressions=names)[0]) == 400


# Later pages ---------------------------------------------------------------------------------
@pytest.mark.parametrize("second", [{"from": 2}, {"offset": "2"}, {"page": 2, "size": 2}])
@pytest.mark.parametrize(("docs", "base"), [("cd", 1), ("cd", 3)])
def test_second_page_of_a_query_id_by_its_time(second, docs, base):
    """Without hit lists: ordinals that restart are those of the page requested last."""
    times = [f"2026-01-01T00:00:{second:02d}Z" for second in (0, 1, 30, 31)]
    records = [
        *queries(1, timestamp=times[0]),
        *impressions(1, docs="ab", timestamp=times[1]),
        *queries(1, timestamp=times[2], query_attributes=second),
        *impressions(1, docs=docs, base=base, timestamp=times[3]),
        event("click", "d", base + 1, query_id="q0", timestamp=times[3]),
    ]
    log, _, texts = read(records)
    assert rows_of(log) == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert log.loc[log["click"] == 1, "doc"].tolist() == ["d"]
    assert texts == []


def test_filters_are_told_apart_up_to_eight_levels():
    def nested(depth, value):
        for _ in range(depth):
            value = [value]
        return value

    assert _bare(nested(8, 1)) != _bare(nested(8, 2))
    assert _bare(nested(9, 1)) == _bare(nested(9, 2))
