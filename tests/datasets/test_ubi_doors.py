"""read_ubi: the same log through every door, and errors of sources and parameters."""

import gzip
import json
import zipfile

import numpy as np
import pandas as pd
import pytest

from skultr.datasets import UBIReport, _ubi_records, read_ubi
from skultr.exceptions import ClickDataWarning

from ._ubi_logs import clean_log, event, lines_of, search, write

RECORDS = clean_log()
QUERIES = [document for index, document in RECORDS if index == "ubi_queries"]
EVENTS = [document for index, document in RECORDS if index == "ubi_events"]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return read_ubi(write(tmp_path_factory.mktemp("ubi") / "log.ndjson", RECORDS))


def assert_same(found, expected):
    ids = ["session", "qid", "doc", "user"]
    logs = [
        log.astype(dict.fromkeys(ids, str)).sort_values(["session", "position"], ignore_index=True)
        for log, _ in (found, expected)
    ]
    pd.testing.assert_frame_equal(*logs)
    pd.testing.assert_frame_equal(found[1].counts, expected[1].counts)
    assert found[1].ordinal_base == expected[1].ordinal_base


# Files of lines ---------------------------------------------------------------------------
def test_forms_of_lines(tmp_path, expected):
    bulk = "\n".join(lines_of(RECORDS))
    plain = "\n".join(lines_of(RECORDS, bulk=False))
    tabs = "\n".join(f"{index}\t{json.dumps(document)}" for index, document in RECORDS)
    hits = "\n".join(
        json.dumps({"_index": f"{index}-2024", "_id": str(k), "_source": document})
        for k, (index, document) in enumerate(RECORDS)
    )
    for name, text in (("plain", plain), ("tabs", tabs), ("hits", hits), ("bulk", bulk)):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        assert_same(read_ubi(path), expected)
        assert_same(read_ubi(str(path)), expected)
    with gzip.open(tmp_path / "log.ndjson.gz", "wb") as file:
        file.write(bulk.encode())
    assert_same(read_ubi(tmp_path / "log.ndjson.gz"), expected)
    with zipfile.ZipFile(tmp_path / "log.zip", "w") as archive:
        half = len(tabs.split("\n")) // 2
        archive.writestr("folder/", "")
        archive.writestr("folder/a.json", "\n".join(tabs.split("\n")[:half]))
        archive.writestr("folder/b.json", "\n".join(tabs.split("\n")[half:]))
    assert_same(read_ubi(tmp_path / "log.zip"), expected)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_files_in_another_encoding(tmp_path, encoding, pack):
    path = tmp_path / ("log.json" if pack is bytes else "log.json.gz")
    path.write_bytes(pack("\n".join(lines_of(RECORDS)).encode(encoding)))
    with pytest.raises(ValueError, match=r"UTF-16 or UTF-32; expected JSON lines in UTF-8"):
        read_ubi(path)


def test_files_of_each_kind(tmp_path, expected):
    queries = write(tmp_path / "queries.ndjson", [("any", q) for q in QUERIES], bulk=False)
    halves = [write(tmp_path / f"{k}.ndjson", EVENTS[k::2], bulk=False) for k in range(2)]
    assert_same(read_ubi(queries, halves), expected)
    assert_same(read_ubi([queries, *halves]), expected)


# Pieces end anywhere, and actions stay with their documents.
@pytest.mark.parametrize(("n_jobs", "size"), [(1, 1), (1, 100), (1, 5_000), (2, 20_000)])
def test_pieces_of_large_files(tmp_path, expected, monkeypatch, n_jobs, size):
    path = write(tmp_path / "log.ndjson", RECORDS)
    packed = tmp_path / "log.ndjson.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    monkeypatch.setattr(_ubi_records, "_LARGE", 0)
    monkeypatch.setattr(_ubi_records, "_PIECE", size)
    assert_same(read_ubi(path, n_jobs=n_jobs), expected)
    assert_same(read_ubi(packed, n_jobs=n_jobs), expected)


def test_numbers_of_faulty_lines(tmp_path, monkeypatch):
    lines = lines_of(RECORDS, bulk=False)
    lines[3] = lines[3][:-2]
    lines[40:40] = ["", '{"unlike": 1}', "no json", '{"action_name": "click"'] + ["x"] * 7
    path = tmp_path / "log.ndjson"
    path.write_text("\n".join(lines))
    monkeypatch.setattr(_ubi_records, "_PIECE", 3_000)
    with pytest.warns(ClickDataWarning, match=r"11 lines hold no record.*ndjson, line 4: no JSON"):
        _, report = read_ubi(path)
    assert report.n_records("line") == 11
    found = [line.removeprefix(str(path)) for line in report.faulty_lines]
    faults = [f", line {k}: no JSON object." for k in (4, 43, 44, 45, 46)]
    assert sorted(found) == sorted([*faults, ", line 42: neither a query nor an event."])


# Frames -----------------------------------------------------------------------------------
def frames():
    pl = pytest.importorskip("polars")
    duckdb = pytest.importorskip("duckdb")
    queries = [{k: v for k, v in q.items() if k != "query_attributes"} for q in QUERIES]
    queries, events = pl.DataFrame(queries), pl.DataFrame(EVENTS)
    texts = [{**e, "event_attributes": json.dumps(e["event_attributes"])} for e in EVENTS]
    flat = pd.json_normalize(EVENTS)
    taken = flat.filter(regex=r"^event_attributes\.(object|position)")
    beside = pd.DataFrame(EVENTS).assign(event_attributes=[{"page": 1}] * len(EVENTS)).join(taken)
    return {
        "objects": (pd.DataFrame(QUERIES), pd.DataFrame(EVENTS)),
        "flat": (pd.json_normalize(QUERIES), flat),
        "beside": (pd.DataFrame(QUERIES), beside),
        "text": (pd.DataFrame(QUERIES), pd.DataFrame(texts)),
        "Polars": (queries, events),
        "lazy": (queries.lazy(), events.lazy()),
        "PyArrow": (queries.to_arrow(), events.to_arrow()),
        "DuckDB": (duckdb.from_arrow(queries.to_arrow()), duckdb.from_arrow(events.to_arrow())),
    }


def test_frames_of_every_engine(tmp_path, expected):
    for queries, events in frames().values():
        assert_same(read_ubi(queries, events), expected)
    both = pd.concat(frames()["objects"])
    assert_same(read_ubi(both.sample(frac=1, random_state=0)), expected)


def test_parquet(tmp_path, expected, monkeypatch):
    for name in ("flat", "text", "Polars"):
        paths = []
        for kind, frame in zip(("queries", "events"), frames()[name], strict=True):
            paths.append(tmp_path / f"{name}-{kind}.parquet")
            if name == "Polars":
                frame.write_parquet(paths[-1], row_group_size=50)
            else:
                frame = frame.drop(columns="query_attributes", errors="ignore")
                frame.to_parquet(paths[-1])
        assert_same(read_ubi(*paths), expected)
        assert_same(read_ubi(paths), expected)
    monkeypatch.setattr(_ubi_records, "_LARGE", 0)
    assert_same(read_ubi(*paths, n_jobs=2), expected)


def test_attributes_in_flat_columns():
    rows = [
        {"query_id": "q0", "user_query": "x", "query_attributes.from": 10, "timestamp": "2024"},
        {"query_id": "q0", "action_name": "impression", "event_attributes.object.object_id": "a"},
        {"query_id": "q0", "action_name": "click", "event_attributes.object.object_id": "a"},
    ]
    frame = pd.DataFrame(rows).assign(
        **{"event_attributes.position.ordinal": [np.nan, 1.0, 1.0], "query_attributes.brand": "b"}
    )
    log, report = read_ubi(frame, filters="brand")
    assert log[["qid", "doc", "position", "click"]].to_numpy().tolist() == [
        ["x [brand=b]", "a", 11, 1]
    ]
    assert "user" not in log
    assert report.ordinal_base == {"": 1}


def test_ids_of_a_frame_tell_equal_records():
    events = pd.DataFrame([*EVENTS, EVENTS[0]])
    for ids, n in ((range(len(events)), 0), ([*range(len(EVENTS)), 0], 1), ([None], 1)):
        frame = events.assign(_id=list(ids) * (len(events) if n and len(list(ids)) == 1 else 1))
        _, report = read_ubi(pd.DataFrame(QUERIES), frame)
        fates = report.counts.set_index("fate")["n"]
        assert fates.get("the same record again", 0) == n


def test_large_frame():
    """As many events as make several blocks."""
    n = 4_500
    shown = pd.DataFrame(
        {
            "action_name": "impression",
            "query_id": np.repeat(np.arange(n), 10),
            "user_query": "x",
            "event_attributes.object.object_id": np.tile(np.arange(10), n),
            "event_attributes.position.ordinal": np.tile(np.arange(10), n),
        }
    )
    queries = pd.DataFrame({"query_id": np.arange(n), "user_query": "x"})
    with pytest.warns(ClickDataWarning, match="Nothing was clicked"):
        log, report = read_ubi(queries, shown)
    assert len(log) == 10 * n == report.n_rows
    assert log["position"].value_counts().tolist() == [n] * 10


# Errors and the report --------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no record of UBI: found 0 lines"),
        ("\n\n", "found 2 lines"),
        ("query,docid\nps4,B01\n", "line 1: no JSON object.*Expected documents"),
        ('{"a": 1}', "neither a query nor an event"),
        ("\n".join(lines_of(EVENTS[:5], bulk=False)), "No document was shown.*0 query records"),
    ],
)
def test_files_without_a_log(tmp_path, text, message):
    (tmp_path / "log.ndjson").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_ubi(tmp_path / "log.ndjson")


def test_queries_only(tmp_path):
    path = write(tmp_path / "queries.ndjson", [("ubi_queries", q) for q in QUERIES])
    with pytest.warns(ClickDataWarning, match="Nothing was clicked.*Pass the events of clicks"):
        log, report = read_ubi(path)
    assert report.from_hits == ["shop"]
    assert len(log) == 5 * len(QUERIES)
    with pytest.raises(ValueError, match=r"0 events \(none; .*1 query record and 0 hit lists"):
        read_ubi(write(path, [search("q", "x")]))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"clicks": ()}, "clicks is empty"),
        ({"clicks": [1]}, r"clicks=\[1\]; expected names"),
        ({"clicks": "impression"}, r"actions \['impression'\] have several meanings"),
        ({"outcomes": "CLICK"}, r"actions \['click'\] have several meanings"),
        ({"ordinal_base": {"shop": -1}}, "ordinal_base=.*whole numbers from 0"),
        ({"ordinal_base": -1}, "'ordinal_base' parameter"),
        ({"page_size": 0}, "'page_size' parameter"),
        ({"impressions": "all"}, r"action_name 'all' \(name others in impressions="),
        ({"impressions": 3}, "'impressions' parameter"),
        ({"impressions": []}, "impressions is empty"),
        ({"impressions": ["view", "click"]}, r"actions \['click'\] have several meanings"),
        ({"user": "me"}, "'user' parameter"),
        ({"not_shown": "keep"}, "'not_shown' parameter"),
        ({"keep": {"c-1"}}, "'keep' parameter"),
        ({"filters": [""]}, "filters=.*expected names"),
    ],
)
def test_bad_parameters(tmp_path, parameters, message):
    path = write(tmp_path / "log.ndjson", RECORDS)
    with pytest.raises(ValueError, match=message):
        read_ubi(path, **parameters)


@pytest.mark.parametrize("source", [3, {"a": 1}, [{"query_id": "q"}], None, np.zeros(3)])
def test_sources_of_other_types(source):
    with pytest.raises(TypeError, match="expected a path, a list of paths, or a frame"):
        read_ubi(source)


def test_sources_without_records(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_ubi(tmp_path / "nothing.ndjson")
    with pytest.raises(ValueError, match="list of files is empty"):
        read_ubi([])
    with pytest.raises(ValueError, match=r"The frame has the columns \['a'\]. Expected those"):
        read_ubi(pd.DataFrame({"a": [1]}))
    with pytest.raises(ValueError, match="no record of UBI: found 0 lines"):
        read_ubi(pd.DataFrame({"query_id": [], "action_name": []}))
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a.parquet has the columns \['a'\]"):
        read_ubi(tmp_path / "a.parquet")


def test_report(tmp_path):
    records = [*RECORDS, event("click", "<b>", None), event("<i>", "a", 1)]
    _, report = read_ubi(write(tmp_path / "log.ndjson", records))
    assert isinstance(report, UBIReport)
    assert list(report.counts) == ["record", "action", "used", "fate", "n"]
    assert report.n_records("event") == len(EVENTS) + 2
    assert report.n_records("event", used=False) == 2
    text = report.summary()
    n_clicked = sum(each["action_name"] == "click" for each in EVENTS)
    counted = f"The log has 40 result pages of 4 queries: 200 shown documents, {n_clicked} of them"
    assert text.startswith(counted)
    assert f"2 of {len(EVENTS) + 2} events were left out:\n" in text
    assert "\n  1  with another action: <i> 1. Name those that count in impressions=, " in text
    assert "\n  1  without a usable ordinal and without a place in the hit list. Send" in text
    assert "events_left_out=2" in repr(report)
    html = report._repr_html_()
    assert "&lt;i&gt;" in html
    assert "<i>" not in html
