"""Each number that decides something, on both sides."""

import warnings

import pandas as pd
import pytest

from skultr.datasets import read_ubi
from skultr.datasets._letor import _scan
from skultr.datasets._ubi_pages import _are_in_a_row
from skultr.exceptions import ClickDataWarning

from ._ubi_logs import event, search, write
from .test_ubi import page, rows_of


def read(records, folder, **options):
    """The log, the report, and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ClickDataWarning)
        log, report = read_ubi(write(folder / "log.ndjson", records), **options)
    return log, report, " ".join(str(warning.message) for warning in caught)


def pages(n, *docs, base=1, name="p"):
    """Result pages of some documents, whose ordinals begin at the base."""
    records = []
    for k in range(n):
        query_id = f"{name}{k}"
        records += [search(query_id, "lamp"), *page(*docs, query_id=query_id, base=base)]
    return records


def test_larger_ids_of_features_are_mistakes(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text("1 qid:1 65535:1\n")
    assert _scan(path).last_feature == 65_535
    path.write_text("1 qid:1 65536:1\n")
    with pytest.raises(ValueError, match=r"the feature id 65536; expected .* ids up to 65535"):
        _scan(path)


@pytest.mark.parametrize(("ordinal", "is_read"), [(1_000_000, True), (1_000_001, False)])
def test_larger_ordinals_are_mistakes(ordinal, is_read, tmp_path):
    records = [*pages(1, "a", "b"), event("impression", "far", ordinal, query_id="p0")]
    log, report, _ = read(records, tmp_path)
    assert (rows_of(log, "p0").get("far") == ordinal) == is_read
    assert ("is no whole number from 0 in 1 event" in report.summary()) != is_read


def test_files_of_many_zero_bytes_are_refused(tmp_path):
    path = write(tmp_path / "log.ndjson", pages(1, "a", "b"))
    text = path.read_bytes()
    zeros = b"\0" * (len(text) // 3)  # a quarter of all
    path.write_bytes(text + zeros[10:])
    with pytest.warns(ClickDataWarning, match="lines hold no record|Nothing was clicked"):
        read_ubi(path)
    path.write_bytes(text + zeros + b"\0" * 10)
    with pytest.raises(ValueError, match="UTF-16 or UTF-32"):
        read_ubi(path)


@pytest.mark.parametrize(("n_pages", "is_told"), [(9, True), (10, False)])
def test_losses_are_told_where_they_are_many(n_pages, is_told, tmp_path):
    lost = event("impression", "a", 1)
    del lost["event_attributes"]["object"]
    _, _, told = read([*pages(n_pages, "a"), lost], tmp_path)
    assert ("events 'impression' (10 %) could not be used" in told) == is_told


@pytest.mark.parametrize(("n_others", "is_told"), [(2, True), (1, False)])
def test_events_that_contradict_their_page_are_told_where_they_are_many(
    n_others, is_told, tmp_path
):
    records = pages(10, "a")
    events = [record for record in records if isinstance(record, dict)]
    for record in events[:n_others]:
        record["client_id"] = "other"
    _, report, told = read(records, tmp_path)
    assert "another user than the page" in report.summary()
    assert ("another user than the page" in told) == is_told


@pytest.mark.parametrize(("n_confirm", "is_told"), [(4, True), (5, False)])
def test_a_base_that_few_pages_confirm_is_told(n_confirm, is_told, tmp_path):
    records = [*pages(n_confirm, "a", base=0), *pages(10 - n_confirm, "a", name="z")]
    _, report, told = read(records, tmp_path)
    assert report.ordinal_base == {"shop": 0}
    assert f"count from 0: {n_confirm} of 10 pages begin there" in report.summary()
    assert ("pass ordinal_base" in told) == is_told


@pytest.mark.parametrize(("n_others", "base"), [(19, 0), (20, 1)])
def test_ordinals_count_from_0_where_enough_pages_do(n_others, base, tmp_path):
    records = [*pages(1, "a", "b", base=0), *pages(n_others, "a", "b", name="z")]
    _, report, _ = read(records, tmp_path)
    assert report.ordinal_base == {"shop": base}


@pytest.mark.parametrize(
    ("n_hits", "n_clicks", "is_told"), [(21, 100, True), (20, 100, False), (21, 99, False)]
)
def test_hit_lists_longer_than_what_was_clicked_are_told(n_hits, n_clicks, is_told, tmp_path):
    hits = [f"d{k}" for k in range(n_hits)]
    records = []
    for k in range(n_clicks):
        query_id = f"q{k}"
        records.append(search(query_id, "lamp", query_response_hit_ids=hits))
        records.append(event("click", f"d{k % 10}", k % 10, query_id=query_id))
    _, report, told = read(records, tmp_path)
    assert f"hold up to {n_hits} documents" in report.summary()
    assert ("pass page_size" in told) == is_told


@pytest.mark.parametrize(("n_scattered", "is_row"), [(1, True), (2, False)])
def test_impressions_stand_in_a_row_on_most_pages(n_scattered, is_row):
    rows = [("row", 3), ("row", 4)]
    for number in range(n_scattered):
        rows += [(f"scattered {number}", 0), (f"scattered {number}", 2)]
    assert _are_in_a_row(pd.DataFrame(rows, columns=["page", "at"])) == is_row
