"""read_ubi: roles, every trap of real logs, doors and errors."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import skultr
from skultr.datasets import read_ubi
from skultr.exceptions import ClickDataWarning
from skultr.identifiability import IdentifiabilityGraph
from skultr.propensity import InterventionHarvesting, relevance_labels

from ._ubi_logs import clean_log, event, search, write

pytestmark = pytest.mark.filterwarnings("ignore:Nothing was clicked")


def read(records, folder, **options):
    return read_ubi(write(folder / "log.ndjson", records), **options)


def fates(report, record="event"):
    rows = report.counts[report.counts["record"] == record]
    return rows.groupby("fate")["n"].sum().to_dict()


def page(*docs, query_id="q0", base=1, **fields):
    return [
        event("impression", doc, place + base, query_id=query_id, **fields)
        for place, doc in enumerate(docs)
    ]


def other_pages(n=30, base=1):
    """Pages p0, p1, ... that say what the base is."""
    return [
        record
        for k in range(n)
        for record in [search(f"p{k}", "lamp"), *page("a", "b", query_id=f"p{k}", base=base)]
    ]


def rows_of(log, session="q0"):
    part = log[log["session"] == session]
    return dict(zip(part["doc"], part["position"], strict=True))


def clicked(log, session="q0", column="click"):
    part = log[(log["session"] == session) & (log[column] == 1)]
    return part["doc"].tolist()


# Roles -----------------------------------------------------------------------------------
def test_log_of_a_clean_file(tmp_path):
    records = clean_log()
    log, report = read(records, tmp_path)
    assert list(log) == ["session", "qid", "doc", "position", "user", "click"]
    events = [record for index, record in records if index == "ubi_events"]
    impressions = [e for e in events if e["action_name"] == "impression"]
    clicks = [e for e in events if e["action_name"] == "click"]
    assert len(log) == len(impressions) == report.n_rows
    assert log["click"].sum() == len(clicks) == report.n_clicks
    found = {
        (row.session, row.doc): (row.position, row.user, row.click) for row in log.itertuples()
    }
    was_clicked = {(e["query_id"], e["event_attributes"]["object"]["object_id"]) for e in clicks}
    for e in impressions:
        doc = e["event_attributes"]["object"]["object_id"]
        place = e["event_attributes"]["position"]["ordinal"]
        key = (e["query_id"], doc)
        assert found[key] == (place + 1, e["client_id"], key in was_clicked)
    text = {r["query_id"]: r["user_query"].lower() for i, r in records if i == "ubi_queries"}
    assert log["qid"].tolist() == [text[session] for session in log["session"]]
    assert report.ordinal_base == {"shop": 0}
    assert report.from_hits == []
    assert report.n_records("event", used=True) == report.n_records("event") == len(events)
    assert report.n_records("query", used=False) == 0


def test_queries_of_the_report(tmp_path):
    records = [
        *(search(f"q{k}", text) for k, text in enumerate(["PS4", "ps4", "ps4 ", "Ｐｓ４", "ps5"])),
        *(e for k in range(5) for e in page("a", query_id=f"q{k}")),
    ]
    log, report = read(records, tmp_path, user=None)
    assert "user" not in log
    expected = pd.DataFrame(
        {
            "qid": ["ps4", "ps5"],
            "user_query": ["PS4", "ps5"],
            "application": ["shop", "shop"],
            "pages": [4, 1],
        }
    )
    pd.testing.assert_frame_equal(report.queries, expected, check_dtype=False)


def test_what_the_package_does_with_the_log(tmp_path):
    log, _ = read(clean_log(n_pages=300), tmp_path)
    propensity = np.arange(1, 6) ** -0.5
    labels = relevance_labels(log, "click", propensity=propensity)
    plain = log.astype(dict.fromkeys(("session", "qid", "doc", "user"), str))
    expected = relevance_labels(plain, "click", propensity=propensity)
    np.testing.assert_array_equal(labels["label"], expected["label"])
    assert IdentifiabilityGraph.from_log(log, click="click").n_factors == 5
    assert InterventionHarvesting().fit(log, "click").examination_.shape[0] == 5
    X, rate = skultr.aggregate_clicks(log)
    assert X["impressions"].sum() == len(log)
    assert (X["impressions"] * rate).sum() == pytest.approx(log["click"].sum())


# Traps -----------------------------------------------------------------------------------
@pytest.mark.parametrize("base", [0, 1])
def test_base_of_ordinals(tmp_path, base):
    records = [search("q0", "lamp"), *page("a", "b", "c", base=base)]
    log, report = read(records, tmp_path, not_shown="drop")
    assert rows_of(log) == {"a": 1, "b": 2, "c": 3}
    assert report.ordinal_base == {"shop": base}
    assert f"count from {base}: 1 of 1 pages begin there" in report.summary()


def test_base_is_that_of_the_application(tmp_path):
    records = [
        *other_pages(base=1),
        search("q0", "Lamp", application="app"),
        *page("a", "b", base=0, application="app"),
    ]
    log, report = read(records, tmp_path)
    assert report.ordinal_base == {"shop": 1, "app": 0}
    assert rows_of(log) == rows_of(log, "p0") == {"a": 1, "b": 2}
    assert set(log["qid"]) == {"shop: lamp", "app: lamp"}
    assert report.queries["application"].tolist() == ["shop", "app"]
    for base in (0, {"app": 0}):
        given, told = read(records, tmp_path, ordinal_base=base)
        assert told.ordinal_base["app"] == 0
        assert rows_of(given, "p0") == ({"a": 2, "b": 3} if base == 0 else {"a": 1, "b": 2})
    with pytest.raises(ValueError, match=r"applications \['web'\].*found \['', 'app', 'shop'\]"):
        read(records, tmp_path, ordinal_base={"web": 0})


def test_stray_ordinal_decides_nothing(tmp_path):
    records = [r for k in range(30) for r in [search(f"p{k}", "x"), *page("a", query_id=f"p{k}")]]
    records += [search("q0", "x"), event("impression", "z", 0), event("impression", "a", 1)]
    log, report = read(records, tmp_path)
    assert report.ordinal_base == {"shop": 1}
    assert rows_of(log) == {"a": 1}
    assert fates(report)["no position"] == 1
    assert "lies below the base in 1 event" in report.summary()


def test_colliding_ordinals(tmp_path):
    """A client that writes 1 for the first place and k for place k from 0."""
    hits = {"query_response_hit_ids": ["a", "b", "c", "d"]}
    shown = [event("impression", doc, max(k, 1)) for k, doc in enumerate("abcd")]
    odd = event("impression", "odd", 2)
    rest = [*other_pages(), event("click", "b", 1)]
    log, report = read([search("q0", "lamp", **hits), *shown, odd, *rest], tmp_path)
    assert rows_of(log) == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert clicked(log) == ["b"]
    assert fates(report)["its position is taken by another document"] == 1
    assert "on 1 the places in the hit list were taken" in report.summary()
    log, report = read([search("q0", "lamp"), *shown, *rest], tmp_path)
    assert rows_of(log) == {}
    assert fates(report)["two documents at one ordinal of its page"] == 4
    assert fates(report, "query")["nothing shown on its page"] == 1


def test_impressions_outside_the_hit_list_keep_their_ordinal(tmp_path):
    records = [search("q0", "x", query_response_hit_ids=["a"]), *page("a", "b"), *other_pages()]
    log, report = read(records, tmp_path)
    assert rows_of(log) == {"a": 1, "b": 2}
    assert "1 impression of a document that is not in the hit list" in report.summary()


def test_ordinals_against_the_hit_list_are_told(tmp_path):
    records = [search("q0", "x", query_response_hit_ids=["b", "a"]), *page("a", "b")]
    log, report = read(records, tmp_path)
    assert rows_of(log) == {"a": 1, "b": 2}
    assert "ordinals of 2 of 2 impressions differ from their places" in report.summary()


def test_impressions_without_ordinal_stand_where_the_hits_have_them(tmp_path):
    records = [
        search("q0", "x", query_response_hit_ids=["b", "a"]),
        event("impression", "a", None),
        event("impression", "z", None),
        *other_pages(),
    ]
    log, report = read(records, tmp_path)
    assert rows_of(log) == {"a": 2}
    assert fates(report)["no position"] == 1
    assert "1 impression without an ordinal" in report.summary()


def test_impressions_from_hit_lists(tmp_path):
    """Without impression events; the base comes from clicks on the lists."""
    records = [
        search("q0", "x", query_response_hit_ids=["a", "b", "c"]),
        search("q1", "x", query_response_object_ids=["b", "a"]),
        search("q2", "x", query_response_hit_ids=[]),
        event("item_click", "b", 2),
        event("item_click", "z", 7),
        event("item_click", "b", 1, query_id="q2"),
    ]
    with pytest.warns(ClickDataWarning, match="1 of pages on which nothing was shown"):
        log, report = read(records, tmp_path)
    assert report.from_hits == ["shop"]
    assert report.ordinal_base == {"shop": 1}
    assert "up to 3 documents, but the deepest click or outcome stands at 2" in report.summary()
    assert rows_of(log) == {"a": 1, "b": 2, "c": 3, "z": 7}
    assert rows_of(log, "q1") == {"b": 1, "a": 2}
    assert clicked(log) == ["b", "z"]
    log, _ = read([*records[:3], event("item_click", "a", 1)], tmp_path, page_size=1)
    assert rows_of(log) == {"a": 1}


def test_source_of_impressions_can_be_chosen(tmp_path):
    hits = {"query_response_hit_ids": ["b", "a", "c"]}
    records = [search("q0", "x", **hits), *page("a"), event("click", "a", 1)]
    log, report = read(records, tmp_path, impressions="hits")
    assert rows_of(log) == {"b": 1, "a": 2, "c": 3}
    assert fates(report)["impression of an application read by hit lists"] == 1
    records = [search("q0", "x", **hits), event("item_click", "a", 1)]
    with pytest.raises(ValueError, match=r"No document was shown.*1 item_click.*found 'events'"):
        read(records, tmp_path, impressions="events")


def test_events_without_a_query_record(tmp_path):
    records = [
        *page("a", query_id="lone", user_query="Lamp"),
        *page("a", query_id="nameless", user_query=""),
        event("impression", "a", 1, query_id=None),
        *other_pages(3),
    ]
    lost = r"2 of 9 events 'impression' \(22 %\) could not be used: 1 without a query"
    with pytest.warns(ClickDataWarning, match=lost):
        log, report = read([*records, event("click", "a", 1, query_id="lone")], tmp_path)
    assert log.loc[log["session"] == "lone", "qid"].tolist() == ["lamp"]
    assert fates(report)["no query record and no user_query"] == 1
    assert fates(report)["no query_id"] == 1


def test_several_records_of_one_query_id(tmp_path):
    """The first with hits stands, whatever the form of its time and the order of the file."""
    times = [1733790364629, "2024-12-10T00:26:04.625Z", "2024-12-10T00:26:04.627+0000"]
    records = [
        search("q0", "lamps", timestamp=times[0], query_response_hit_ids=["b", "a"]),
        search("q0", "lam", timestamp=times[1], query_response_hit_ids=[]),
        search("q0", "Lamp", timestamp=times[2], query_response_hit_ids=["a", "b"]),
        search("q0", "lamp", timestamp=times[0]),
        *page("a", "b"),
    ]
    log, report = read(records, tmp_path)
    assert set(log["qid"]) == {"lamp"}
    assert "1 hit list differed from that of an earlier record" in report.summary()
    assert fates(report, "query") == {
        "query of a page": 1,
        "another record of its query_id": 1,
        "another record of its query_id, with another user_query": 2,
    }


@pytest.mark.parametrize(
    "time",
    [None, "", "soon", "\ud800", "9999-12-31T00:00:00Z", "2024-12-10", -1, 1e30, True, {}, "1"],
)
def test_times_of_all_kinds(tmp_path, time):
    records = [search("q0", "lamp", timestamp=time, query_response_hit_ids=["a"]), *page("a")]
    records += [search("q0", "lam"), search("q0", "la", timestamp="2024-12-10T00:26:04Z")]
    # Of more than 50 texts pandas makes a table first, which holds no half of a surrogate pair.
    records += [search(f"s{k}", "no hits", timestamp=time) for k in range(60)]
    log, report = read(records, tmp_path)
    assert set(log["qid"]) == {"lamp"}  # the only record with hits
    assert fates(report, "query")["query of a page"] == 1


def test_query_of_the_record_wins(tmp_path):
    records = [search("q0", "lamp"), *page("a", user_query="other")]
    same = page("a", query_id="p0", user_query="LAMP")
    log, report = read([*records, *other_pages(), *same], tmp_path)
    assert set(log["qid"]) == {"lamp"}
    assert "1 event has another user_query than the page" in report.summary()
    with pytest.warns(ClickDataWarning, match="1 event has another user_query.*for a visit"):
        _, report = read(records, tmp_path)
    assert report.summary().split("\n")[1] == "Check first:"


@pytest.mark.parametrize("attributes", [None, {}, "", [], 3, {"object": None, "position": []}])
def test_events_without_attributes_are_nothing(tmp_path, attributes):
    odd = event("impression", "a", 1) | {"event_attributes": attributes}
    records = [*other_pages(), odd, event("click", "a", 1, query_id="p0")]
    log, report = read(records, tmp_path)
    assert len(log) == 60
    assert fates(report)["no object_id"] == 1


def test_only_chosen_actions_are_clicks(tmp_path):
    actions = ["product_hover", "add_to_cart", "Purchase", "click", "click", None]
    records = [search("q0", "x"), *page("a", "b"), *(event(name, "a", 1) for name in actions)]
    log, report = read(records, tmp_path)
    assert clicked(log) == ["a"]
    assert fates(report) == {
        "shown": 2,
        "clicked": 1,
        "the same document again on its page": 1,
        "action that was not asked for": 3,
        "no action_name": 1,
    }
    log, _ = read(records, tmp_path, clicks="product_hover", outcomes=["add_to_cart", "purchase"])
    assert list(log)[-3:] == ["click", "outcome_add_to_cart", "outcome_purchase"]
    assert clicked(log, column="outcome_purchase") == clicked(log) == ["a"]


def test_clicks_without_an_impression(tmp_path):
    records = [
        search("q0", "x"),
        *page("a", "b"),
        event("click", "c", 7),
        event("click", "d", 2),  # where b stands
        event("click", "e", None),
        event("click", "a", 5),
        event("click", "a", 1, query_id="unknown", user_query="x"),
        *other_pages(),
    ]
    with pytest.warns(ClickDataWarning, match="3 of 5 events 'click'"):
        log, report = read(records, tmp_path)
    assert rows_of(log) == {"a": 1, "b": 2, "c": 7}
    assert clicked(log) == ["a", "c"]
    found = fates(report)
    assert found["its document was added to the page"] == 1
    assert found["its position is taken by another document"] == 1
    assert found["no position"] == found["nothing shown on its page"] == 1
    assert "1 click (or outcomes) had another ordinal" in report.summary()
    with pytest.warns(ClickDataWarning, match="4 of 5 events 'click'"):
        log, report = read(records, tmp_path, not_shown="drop")
    assert rows_of(log) == {"a": 1, "b": 2}
    assert fates(report)["its document was not shown"] == 3


def test_a_click_with_the_ordinal_of_the_first_place_is_another_ordinal_too(tmp_path):
    records = [search("q0", "x"), *page("a", "b"), event("click", "b", 1), *other_pages()]
    log, report = read(records, tmp_path)
    assert rows_of(log) == {"a": 1, "b": 2}
    assert "1 click (or outcomes) had another ordinal" in report.summary()


def test_clicks_do_not_bring_back_impressions_that_were_left_out(tmp_path):
    records = [search("q0", "x", query_response_hit_ids=["a"]), *page("a", "b"), *other_pages(2)]
    records += [event("impression", "c", 2), event("click", "c", 2)]
    with pytest.warns(ClickDataWarning) as told:
        log, _ = read([*records, event("click", "a", 1)], tmp_path)
    assert rows_of(log) == {"a": 1}
    texts = [str(each.message) for each in told]
    assert any("events 'click'" in text and "whose impression was left" in text for text in texts)


def test_empty_texts_are_null(tmp_path):
    records = [
        search("q0", "", client_id=""),
        search("q0", "  \t"),
        *page("a", user_query="", user_id=""),
        *other_pages(2),
    ]
    with pytest.warns(ClickDataWarning):
        log, report = read([*records, event("click", "a", 1, query_id="p0")], tmp_path)
    assert rows_of(log) == {}
    assert fates(report, "query")["no user_query"] == 2


def test_user(tmp_path):
    nested = event("impression", "a", 1, session_id=None)
    nested["event_attributes"]["session_id"] = "visit"
    records = [search("q0", "x"), nested, *other_pages(), event("click", "a", 1)]
    log, _ = read(records, tmp_path, user="session_id")
    assert log.loc[log["session"] == "q0", "user"].tolist() == ["visit"]
    log, _ = read(records, tmp_path, user="user_id")
    assert "user" not in log
    records[1] |= {"user_id": "me"}
    log, _ = read(records, tmp_path, user="user_id")
    assert sorted(set(log["user"])) == ["me", "unknown"]


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize(
    "attributes", [{"from": 2}, {"offset": "2"}, {"page": 2, "size": 2}, {"start": 2.0}]
)
def test_later_pages(tmp_path, restart, attributes):
    records = [
        *other_pages(),
        search("q0", "lamp", query_attributes=attributes),
        *page("c", "d", base=1 if restart else 3),
        event("click", "c", 1 if restart else 3),
    ]
    log, report = read(records, tmp_path)
    assert rows_of(log) == {"c": 3, "d": 4}
    assert clicked(log) == ["c"]
    assert ("Ordinals restart on 1 later page" in report.summary()) == restart


def test_later_page_of_unknown_size(tmp_path):
    records = [
        search("p0", "x", query_attributes={"page": 0}),
        *page("a", "b", query_id="p0"),
        search("q0", "x", query_attributes='{"page": 1}'),
        *page("c", "d"),
    ]
    with pytest.warns(ClickDataWarning, match="do not say how many results came before"):
        log, _ = read(records, tmp_path)
    assert rows_of(log) == {"c": 1, "d": 2}
    log, _ = read(records, tmp_path, page_size=2)
    assert rows_of(log) == {"c": 3, "d": 4}


def test_two_pages_of_one_query_id(tmp_path):
    """Ordinals restart under the same id: the hit lists tell the places."""
    records = [
        search("q0", "x", query_response_hit_ids=["a", "b"]),
        search("q0", "x", query_response_hit_ids=["c", "d"], query_attributes={"from": 2}),
        *page("a", "b"),
        *page("c", "d"),
        *other_pages(),
    ]
    log, report = read(records, tmp_path)
    assert rows_of(log) == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert fates(report, "query")["further page of a query_id"] == 1


def test_filters_make_queries(tmp_path):
    records = [
        search("q0", "x", query_attributes={"brand": "acme", "in_stock": True, "page": 1}),
        search("q1", "x", query_attributes={"brand": ""}),
        *page("a"),
        *page("a", query_id="q1"),
    ]
    log, report = read(records, tmp_path, filters=["brand", "in_stock"])
    assert log["qid"].tolist() == ["x [brand=acme, in_stock=true]", "x"]
    assert report.queries["user_query"].tolist() == ["x", "x"]
    assert read(records, tmp_path)[0]["qid"].tolist() == ["x", "x"]


def test_crawlers_are_left_out(tmp_path):
    bot = {"client_id": "nightly-bot"}
    records = [
        search("q0", "x", **bot),
        *page("a", **bot),
        event("click", "a", 1, client_id=None),
        *other_pages(),
        event("click", "a", 1, query_id="p0"),
    ]
    log, report = read(records, tmp_path, keep=lambda client: "bot" not in client)
    assert rows_of(log) == {}
    assert fates(report)["left out by keep"] == 2
    assert fates(report, "query")["left out by keep"] == 1


def test_records_that_are_there_twice(tmp_path):
    records = [search("q0", "x"), *page("a", "b"), event("click", "a", 1)]
    path = write(tmp_path / "plain.ndjson", records, bulk=False)
    path.write_text(path.read_text() * 2)
    _, report = read_ubi(path)
    assert fates(report)["the same record again"] == 3
    assert fates(report, "query")["the same record again"] == 1
    path = write(tmp_path / "bulk.ndjson", records)
    changed = path.read_text().replace('"user_query": "x"', '"user_query": "y"')
    path.write_text(path.read_text() + changed)  # the last record of an id stands, as in an index
    log, report = read_ubi(path)
    assert set(log["qid"]) == {"y"}
    assert fates(report)["the same record again"] == 3


# Values ----------------------------------------------------------------------------------
@pytest.mark.parametrize("ordinal", [2, 2.0, "2", " 2 "])
def test_ordinals_of_other_types(tmp_path, ordinal):
    odd = event("impression", "z", ordinal)
    log, _ = read([search("q0", "x"), *page("a"), odd, *other_pages()], tmp_path)
    assert rows_of(log)["z"] == 2


@pytest.mark.parametrize(
    "ordinal", [-1, -3, 2.5, "two", True, [2], {"x": 2}, 10**9, 10**400, float("nan"), "-1"]
)
def test_ordinals_that_are_none(tmp_path, ordinal):
    odd = event("impression", "z", ordinal)
    log, report = read([search("q0", "x"), *page("a"), odd, *other_pages()], tmp_path)
    assert rows_of(log) == {"a": 1}
    assert fates(report)["no position"] == 1


def test_position_by_coordinates_is_no_place(tmp_path):
    odd = event("impression", "z", 1)
    odd["event_attributes"]["position"] = {"xy": {"x": 3.5, "y": 9}}
    _, report = read([search("q0", "x"), *page("a"), odd, *other_pages()], tmp_path)
    assert fates(report)["no position"] == 1


def test_ids_of_all_kinds(tmp_path):
    docs = [17, 18.0, "007", 'a,"b"', "ß\u2028 日本", "\ud800"]
    records = [search(7, "Ｆｏｏ  BAR"), *page(*docs, query_id=7)]
    log, _ = read(records, tmp_path)
    found = log["doc"].tolist()
    assert found == ["17", "18", "007", 'a,"b"', "ß\u2028 日本", "\\ud800"]
    assert set(log["session"]) == {"7"}
    assert set(log["qid"]) == {"foo bar"}
    log.to_json()  # can be written


def test_one_page_of_two_thousand(tmp_path):
    docs = [f"d{k}" for k in range(2000)]
    log, _ = read([search("q0", "x"), *page(*docs, base=0)], tmp_path)
    assert rows_of(log) == {doc: k + 1 for k, doc in enumerate(docs)}


# The sample of OpenSearch ----------------------------------------------------------------
def sample(name):
    path = Path(os.environ.get("SKULTR_DATA", ""), "ubi", name)
    if not path.is_file():
        pytest.skip(f"{name} is not in the folder ubi/ of the folder that SKULTR_DATA names")
    return path


def test_clean_part_of_the_sample(tmp_path):
    lines = sample("ubi_queries_events.ndjson").read_text(encoding="utf-8").splitlines()
    clean = [line for line in lines[1::2] if '"application": "esci_ubi_sample"' in line]
    (tmp_path / "clean.ndjson").write_text("\n".join(clean), encoding="utf-8")
    log, report = read_ubi(tmp_path / "clean.ndjson")
    assert (report.n_rows, report.n_clicks, report.n_pages) == (1000, 60, 200)
    assert len(report.queries) == 119
    clicks = log.groupby("position", observed=True)["click"].sum()
    assert clicks.tolist() == [22, 10, 13, 9, 6]
    assert fates(report) == {"shown": 1000, "clicked": 60}
    assert fates(report, "query") == {"query of a page": 200}


def test_the_whole_sample():
    with pytest.warns(ClickDataWarning) as told:
        log, report = read_ubi(sample("ubi_queries_events.ndjson"))
    assert [str(each.message).partition(" could")[0] for each in told] == [
        "29 of 206 events 'click' (14 %)",  # of the demo shop: see the README of the sample
        "11 of 11 events 'item_click' (100 %)",
    ]
    assert report.counts.groupby("record")["n"].sum().to_dict() == {"event": 3448, "query": 473}
    assert report.ordinal_base == {"esci_ubi_sample": 0, "Chorus": 1}
    clean = log["qid"].str.startswith("esci_ubi_sample: ")
    assert clean.sum() == 1000
    assert log.loc[clean, "click"].sum() == 60
    assert not log.duplicated(["session", "doc"]).any()
    assert not log.duplicated(["session", "position"]).any()
    assert "26 pages had two documents at one ordinal" in report.summary()


def test_the_older_sample():
    log, report = read_ubi(sample("log_events.zip"))
    assert report.counts.groupby("record")["n"].sum().to_dict() == {"event": 26828, "query": 4130}
    assert report.from_hits == ["ubi-demo"]
    assert report.ordinal_base == {"ubi-demo": 1}
    assert (report.n_pages, report.n_rows, report.n_clicks) == (859, 15166, 716)
    relevance_labels(log, "click", propensity=1 / np.arange(1, log["position"].max() + 1))
