"""read_ubi as search teams use it: maps and nulls of their engines, filters, odd pages, damage."""

import gzip
import json
import uuid
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from skultr.datasets import _ubi_records, read_ubi
from skultr.exceptions import ClickDataWarning

from ._ubi_logs import event, pair, search, write


def page(query_id, docs="abc", base=1, **fields):
    """A query record and an impression of each document, as documents."""
    found = [search(query_id, "lamp", **fields)[1]]
    client = {name: fields[name] for name in ("client_id",) if name in fields}
    places = enumerate(docs, base)
    return found + [
        event("impression", doc, at, query_id=query_id, **client) for at, doc in places
    ]


def pages(n, start="p", **fields):
    return [record for k in range(n) for record in page(f"{start}{k}", **fields)]


def read(records, folder, **options):
    found = [
        ("ubi_events" if "action_name" in record else "ubi_queries", record) for record in records
    ]
    return read_ubi(write(folder / "log.ndjson", found, bulk=False), **options)


def rows_of(log, session):
    part = log[log["session"] == session]
    return dict(zip(part["doc"], part["position"], strict=True))


def click(query_id, doc="a", at=1, **fields):
    return event("click", doc, at, query_id=query_id, **fields)


# Engines ---------------------------------------------------------------------------------
def attributes(form):
    """The attributes of a later page with a filter, as an engine has them."""
    found = {"brand": "acme", "from": "3"}
    return {
        "object": found,
        "text": json.dumps(found),
        "pairs": [*found.items()],
        "entries": [{"key": key, "value": value} for key, value in found.items()],
    }[form]


@pytest.mark.parametrize("form", ["object", "text", "pairs", "entries"])
def test_maps_are_objects(form):
    """Spark and DuckDB write free keys as maps: lists of pairs, or of structs."""
    queries = pd.DataFrame([search("q0", "lamp", query_attributes=attributes(form))[1]])
    events = pd.DataFrame([event("impression", "a", 1), event("click", "a", 1)])
    log, _ = read_ubi(queries, events, filters="brand")
    assert log[["qid", "position", "click"]].to_numpy().tolist() == [["lamp [brand=acme]", 4, 1]]


def test_maps_in_parquet(tmp_path):
    texts = pa.map_(pa.string(), pa.string())
    queries = {
        "query_id": pa.array(["q0"]),
        "user_query": pa.array(["lamp"]),
        "query_attributes": pa.array([attributes("pairs")], texts),
    }
    found = [event("impression", "a", 1), event("click", "a", 1)]
    events = {
        "action_name": pa.array(["impression", "click"]),
        "query_id": pa.array(["q0", "q0"]),
        "event_attributes": pa.array(
            [[(k, json.dumps(v)) for k, v in e["event_attributes"].items()] for e in found], texts
        ),
    }
    for name, columns in (("queries", queries), ("events", events)):
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    log, _ = read_ubi(tmp_path / "queries.parquet", tmp_path / "events.parquet", filters="brand")
    assert log[["qid", "position", "click"]].to_numpy().tolist() == [["lamp [brand=acme]", 4, 1]]


def test_nulls_and_arrays_of_pandas(tmp_path):
    records = [*pages(3, query_response_hit_ids=["a", "b", "c"]), click("p0")]
    expected, told = read(records, tmp_path)
    flat = pd.json_normalize(records)
    frames = [pd.DataFrame(records), flat, flat.convert_dtypes()]
    frames += [flat.convert_dtypes(dtype_backend="pyarrow"), flat.replace({np.nan: None})]
    frames.append(flat.fillna({"action_name": ""}))
    flat.to_parquet(tmp_path / "both.parquet")
    frames.append(pd.read_parquet(tmp_path / "both.parquet"))  # hit lists are arrays
    for frame in frames:
        with pytest.warns(ClickDataWarning, match="No query record has 'brand'"):
            log, report = read_ubi(
                frame.assign(**{"query_attributes.brand": np.nan}), filters="brand"
            )
        assert log.astype(str).equals(expected.astype(str))
        assert report.counts.equals(told.counts)


def test_ids_of_other_types():
    ids = [uuid.UUID(int=k) for k in range(2)]
    queries = pd.DataFrame({"query_id": ids, "user_query": "x"})
    events = pd.DataFrame([event("impression", Decimal(7), Decimal(1)), click("", Decimal(7))])
    log, _ = read_ubi(queries, events.assign(query_id=ids[1]))
    assert log[["session", "doc"]].to_numpy().tolist() == [[str(ids[1]), "7"]]


# Filters ---------------------------------------------------------------------------------
def test_equal_filters_are_one_query(tmp_path):
    same = [{"price": {"min": 1, "max": 2.0}}, {"price": {"max": 2, "min": 1, "unit": None}}]
    none = [{}, {"price": None}, {"price": []}, {"price": {"min": None}}, {"price": float("nan")}]
    other = [{"price": ["Ü", 1.5, True]}]
    found = same + none + other
    records = [r for k, each in enumerate(found) for r in page(f"q{k}", query_attributes=each)]
    _, report = read([*records, click("q0")], tmp_path, filters="price")
    assert report.queries["pages"].tolist() == [len(same), len(none), len(other)]
    assert report.queries["qid"].tolist() == [
        'lamp [price={"max": 2, "min": 1}]',
        "lamp",
        'lamp [price=["Ü", 1.5, true]]',
    ]


def test_filter_that_no_record_has(tmp_path):
    records = [*pages(2, query_attributes={"brand": "acme"}), click("p0")]
    with pytest.warns(ClickDataWarning, match="No query record has 'brnad' in its"):
        _, report = read(records, tmp_path, filters=["brand", "brnad"])
    assert len(report.warnings) == 1
    assert report.warnings[0] in report.summary()


# Pages -----------------------------------------------------------------------------------
def test_stray_page_0_does_not_move_the_others(tmp_path):
    records = [*pages(30, query_attributes={"page": 1, "size": 3}), click("p0")]
    records += page("later", "def", query_attributes={"page": 2, "size": 3})
    records += page("stray", query_attributes={"page": 0, "size": 3})
    log, _ = read(records, tmp_path)
    assert rows_of(log, "p0") == rows_of(log, "stray") == {"a": 1, "b": 2, "c": 3}
    assert rows_of(log, "later") == {"d": 4, "e": 5, "f": 6}


@pytest.mark.parametrize("base", [0, 1])
@pytest.mark.parametrize("restart", [True, False])
def test_log_of_later_pages_only(tmp_path, base, restart):
    first = base if restart else base + 10
    records = [*pages(3, base=first, query_attributes={"from": 10}), click("p0", "a", first)]
    log, report = read(records, tmp_path)
    assert rows_of(log, "p0") == {"a": 11, "b": 12, "c": 13}
    assert report.ordinal_base == {"shop": base}


def test_stray_click_does_not_restart_a_page(tmp_path):
    records = [*pages(3, base=11, query_attributes={"from": 10}), *pages(3, "q"), click("p0")]
    log, _ = read(records, tmp_path, not_shown="drop")
    assert rows_of(log, "p0") == {"a": 11, "b": 12, "c": 13}


def test_base_is_that_of_the_application_of_the_events(tmp_path):
    """A server writes the query records, its clients count apart."""
    records = pages(20, application="server")
    for record in records:
        if "action_name" in record:
            app = int(record["query_id"][1:]) % 2
            record["application"] = "app" if app else "web"
            record["event_attributes"]["position"]["ordinal"] -= app
    log, report = read([*records, click("p0", application="web")], tmp_path)
    assert report.ordinal_base == {"app": 0, "web": 1}
    assert rows_of(log, "p0") == rows_of(log, "p1") == {"a": 1, "b": 2, "c": 3}
    assert "61 events have another application than the page" in report.summary()


def test_page_that_was_stored_and_served_to_others(tmp_path):
    records = [*pages(5), *(click(f"p{k}", client_id=f"other-{k}") for k in range(4))]
    with pytest.warns(ClickDataWarning, match="4 events have another user than the page"):
        read(records, tmp_path)


def test_hit_lists_far_longer_than_what_was_clicked(tmp_path):
    hits = [f"d{k}" for k in range(50)]
    records = [search(f"q{k}", "x", query_response_hit_ids=hits)[1] for k in range(100)]
    records += [click(f"q{k}", f"d{k % 10}", k % 10) for k in range(100)]
    with pytest.warns(ClickDataWarning, match=r"hold up to 50 .*stands at 10\. .*page_size"):
        read(records, tmp_path)
    log, report = read(records, tmp_path, page_size=10)
    assert len(log) == 1000
    assert report.warnings == []


def test_impressions_again_further_down_are_told(tmp_path):
    records = [*pages(3), event("impression", "c", 9, query_id="p0"), click("p0")]
    log, report = read(records, tmp_path)
    assert rows_of(log, "p0") == {"a": 1, "b": 2, "c": 3}
    assert "1 repeated impression of a document stood further down" in report.summary()


def test_records_without_an_application_are_of_the_only_one(tmp_path):
    records = [*pages(2), *page("q0", application=None), click("p0")]
    for record in records:
        if record["query_id"] == "q0":
            record["application"] = None
    log, report = read(records[::-1], tmp_path)
    assert set(log["qid"]) == {"lamp"}
    assert report.queries["application"].tolist() == ["shop"]
    log, _ = read([*records, *page("r0", application="app")], tmp_path)
    assert set(log["qid"]) == {"lamp", "shop: lamp", "app: lamp"}


# Damage ----------------------------------------------------------------------------------
def test_sources_that_cannot_be_unpacked(tmp_path, monkeypatch):
    records = [*pages(50), click("p0")]
    path = write(tmp_path / "log.ndjson", list(map(pair, records)), bulk=False)
    whole = gzip.compress(path.read_bytes())
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    for name in ("junk.gz", "junk.zip"):
        (tmp_path / name).write_bytes(b"no archive")
    for name in ("cut.gz", "junk.gz", "junk.zip"):
        with pytest.raises(ValueError, match=f"{name} cannot be unpacked .*Write it again"):
            read_ubi(tmp_path / name)
    monkeypatch.setattr(_ubi_records, "_LARGE", 0)
    monkeypatch.setattr(_ubi_records, "_PIECE", 300)
    with pytest.raises(ValueError, match=r"cut.gz cannot be unpacked"):
        read_ubi(tmp_path / "cut.gz", n_jobs=2)


def test_folder(tmp_path):
    with pytest.raises(ValueError, match=r"is a folder.*sorted\(pathlib.Path"):
        read_ubi(tmp_path)


@pytest.mark.parametrize("whole", [[{"user_query": "x"}], {"hits": {"hits": []}}])
def test_json_that_is_no_lines(tmp_path, whole):
    (tmp_path / "log.json").write_text(json.dumps(whole))
    with pytest.raises(ValueError, match=r"no record of UBI.*jq -c '.hits.hits"):
        read_ubi(tmp_path / "log.json")
