"""read_ubi: further attributes of events and searches as columns of the log."""

import json

import numpy as np
import pandas as pd
import pytest

from skultr.datasets import read_ubi
from skultr.exceptions import ClickDataWarning

from ._ubi_logs import event, lines_of, search, write

pytestmark = pytest.mark.filterwarnings("ignore:Nothing was clicked")


def impression(doc, place, query_id="q0", item=(), action="impression", **attributes):
    """An event with further attributes of the document and of the event."""
    found = event(action, doc, place, query_id=query_id)
    found["event_attributes"] |= attributes
    found["event_attributes"]["object"] |= dict(item)
    return found


def shop():
    """Two pages of three documents: a device of each page, and a price of each document."""
    records = []
    for k, device in enumerate(["phone", "desktop"]):
        records.append(search(f"q{k}", "lamp"))
        for place, doc in enumerate("abc", start=1):
            price = {"object_detail": {"price": place + 0.5 * k}}
            records.append(impression(doc, place, f"q{k}", price, device=device))
        records.append(impression("b", 2, f"q{k}", action="click"))
    return records


def read(records, folder, **options):
    return read_ubi(write(folder / "log.ndjson", records), **options)[0]


def test_attributes_of_documents_and_of_pages(tmp_path):
    log = read(shop(), tmp_path, attributes=["device", "price"])
    plain = read(shop(), tmp_path)
    assert list(log) == [*plain, "device", "price"]
    pd.testing.assert_frame_equal(log[list(plain)], plain)
    assert log["device"].tolist() == ["phone"] * 3 + ["desktop"] * 3
    assert log["price"].tolist() == [1, 2, 3, 1.5, 2.5, 3.5]


def test_one_name_need_not_be_in_a_list(tmp_path):
    log = read(shop(), tmp_path, attributes="device")
    pd.testing.assert_frame_equal(log, read(shop(), tmp_path, attributes=("device", "device")))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2.5, None], [1.0, 2.5, np.nan]),
        ([True, False, None], [1.0, 0.0, np.nan]),
        ([10**400, 2, None], [np.inf, 2.0, np.nan]),
        (["007", "8", None], ["007", "8", None]),
        ([7, "7", None], ["7", "7", None]),
        (["a", {"y": 1, "x": 2.0}, ""], ["a", '{"x": 2, "y": 1}', None]),
        (["\ud800", "\u65e5", None], ["\\ud800", "\u65e5", None]),
    ],
)
def test_types_of_values(values, expected, tmp_path):
    records = [search("q0", "lamp")]
    for place, value in enumerate(values, start=1):
        records.append(impression(f"d{place}", place, item={"x": value}))
    found = read(records, tmp_path, attributes="x")["x"]
    is_text = any(isinstance(value, str) for value in expected)
    assert str(found.dtype) == ("category" if is_text else "float64")
    assert found.astype(object).where(found.notna(), None).tolist() == [
        None if pd.isna(value) else value for value in expected
    ]


def test_the_value_of_a_page_is_that_of_its_query_record_or_else_of_its_first_event(tmp_path):
    records = [
        search("q0", "lamp", query_attributes={"store": "north"}),
        impression("a", 1, store="south"),
        search("q1", "lamp"),
        impression("a", 1, "q1"),
        impression("b", 2, "q1", store="east"),
        impression("c", 3, "q1", store="west"),
        search("q2", "lamp", store="a field of the record"),
        impression("a", 1, "q2"),
    ]
    log = read(records, tmp_path, attributes="store")
    assert log["store"].tolist() == ["north", *["east"] * 3, "a field of the record"]


def test_values_of_clicks_do_not_tell_the_click(tmp_path):
    hits = {"query_response_hit_ids": ["a", "b"]}
    clicks = [impression("a", 1, item={"price": 5}, action="click")]
    records = [search("q0", "lamp", **hits), *clicks]
    with pytest.warns(ClickDataWarning, match="No row of the log has a value of 'price'.*Send"):
        log = read(records, tmp_path, attributes="price")
    assert log["click"].tolist() == [1, 0]
    assert log["price"].isna().all()
    # A document that joins its page by its click has none either.
    records = [*shop(), impression("new", 9, item={"price": 5}, action="click")]
    log = read(records, tmp_path, attributes="price")
    assert log.loc[log["doc"] == "new", "price"].isna().all()
    assert log["price"].notna().sum() == 6


def test_names_with_dots(tmp_path):
    records = [search("q0", "lamp"), impression("a", 1, item={"size": {"width": 3}})]
    for name in ("size.width", "object.size.width"):
        assert read(records, tmp_path, attributes=name)[name].tolist() == [3]


def test_every_door_keeps_the_same(tmp_path):
    records = shop()
    queries = pd.DataFrame([each[1] for each in records if isinstance(each, tuple)])
    events = [each for each in records if isinstance(each, dict)]
    texts = [each | {"event_attributes": json.dumps(each["event_attributes"])} for each in events]
    expected = read(records, tmp_path, attributes=["device", "price"])
    frames = [pd.DataFrame(events), pd.json_normalize(events), pd.DataFrame(texts)]
    for frame in frames:
        log, _ = read_ubi(queries, frame, attributes=["device", "price"])
        assert log.astype(str).equals(expected.astype(str))
    pd.json_normalize(events).to_parquet(tmp_path / "events.parquet")
    log, _ = read_ubi(queries, tmp_path / "events.parquet", attributes=["device", "price"])
    assert log.astype(str).equals(expected.astype(str))


@pytest.mark.parametrize("is_frame", [False, True])
def test_a_name_that_no_record_has_is_an_error_that_quotes_those_that_exist(is_frame, tmp_path):
    records = shop()
    source = write(tmp_path / "log.ndjson", records)
    if is_frame:
        lines = lines_of(records, bulk=False)
        source = pd.json_normalize(list(map(json.loads, lines)))
    with pytest.raises(ValueError, match=r"attributes \['devise'\]. Found: 'device', .*'price'\."):
        read_ubi(source, attributes=["device", "devise"])


@pytest.mark.parametrize("name", ["click", "position", "outcome_cart"])
def test_a_column_of_the_log_is_no_name_of_an_attribute(name, tmp_path):
    with pytest.raises(ValueError, match=f"names \\['{name}'\\], which are columns of the log"):
        read(shop(), tmp_path, attributes=["device", name], outcomes="cart")


@pytest.mark.parametrize("names", [[""], [3]])
def test_attributes_are_names(names, tmp_path):
    with pytest.raises(ValueError, match=r"attributes=.*expected names"):
        read(shop(), tmp_path, attributes=names)
