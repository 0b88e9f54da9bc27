"""700 logs, each with faults put into it at random: no crash, and nothing is misread silently."""

import copy
import json
import warnings

import numpy as np
import pandas as pd
import pytest

from skultr.datasets import read_ubi
from skultr.exceptions import ClickDataWarning

from ._ubi_logs import clean_log, event, lines_of, pair, search

N_LOGS, N_PARTS = 200, 5
#: Values of other types than a field should have; null and empty texts too.
ODD = (
    None,
    "",
    " ",
    0,
    -1,
    2.5,
    10**30,
    True,
    [],
    ["x"],
    {},
    {"x": 1},
    "\ud800",
    float("nan"),
    1e308,
)
EVENT_FIELDS = (
    ("application",),
    ("action_name",),
    ("query_id",),
    ("client_id",),
    ("timestamp",),
    ("event_attributes",),
    ("event_attributes", "object"),
    ("event_attributes", "object", "object_id"),
    ("event_attributes", "position"),
    ("event_attributes", "position", "ordinal"),
)
QUERY_FIELDS = (
    ("application",),
    ("query_id",),
    ("client_id",),
    ("user_query",),
    ("query_attributes",),
    ("timestamp",),
    ("query_response_hit_ids",),
)


# Faults of records: change the list in place ----------------------------------------------
def pick(records, rng, index="ubi_events", action=None):
    """A random record of a kind."""
    rows = [
        document
        for name, document in records
        if name == index and action in (None, document.get("action_name"))
    ]
    return rows[rng.integers(len(rows))]


def place_of(document, path):
    for name in path[:-1]:
        document = document.get(name) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}


def field_of_another_type(records, rng):
    events = rng.random() < 0.6
    document = pick(records, rng, "ubi_events" if events else "ubi_queries")
    fields = EVENT_FIELDS if events else QUERY_FIELDS
    path = fields[rng.integers(len(fields))]
    place_of(document, path)[path[-1]] = ODD[rng.integers(len(ODD))]


def field_that_is_missing(records, rng):
    events = rng.random() < 0.6
    document = pick(records, rng, "ubi_events" if events else "ubi_queries")
    fields = EVENT_FIELDS if events else QUERY_FIELDS
    path = fields[rng.integers(len(fields))]
    place_of(document, path).pop(path[-1], None)


def base_of_all(records, rng):
    for _, document in records:
        at = place_of(document, ("event_attributes", "position", "ordinal"))
        if type(at.get("ordinal")) is int:
            at["ordinal"] += 1


def page_of(records, rng):
    query_id = pick(records, rng).get("query_id")
    return [d for name, d in records if name == "ubi_events" and d.get("query_id") == query_id]


def base_of_one_page(records, rng):
    base_of_all([("ubi_events", document) for document in page_of(records, rng)], rng)


def first_place_written_as_1(records, rng):
    for document in page_of(records, rng):
        at = place_of(document, ("event_attributes", "position", "ordinal"))
        at["ordinal"] = 1 if at.get("ordinal") == 0 else at.get("ordinal")


def hits_are_lost(records, rng):
    for name, document in records:
        if name == "ubi_queries":
            document["query_response_hit_ids"] = []


def impressions_are_lost(records, rng):
    records[:] = [r for r in records if r[1].get("action_name") != "impression"]


def query_record_is_lost(records, rng):
    document = pick(records, rng, "ubi_queries")
    records[:] = [record for record in records if record[1] is not document]


def query_record_again(records, rng):
    document = pick(records, rng, "ubi_queries")
    again = {
        **document,
        "user_query": "quer" if rng.random() < 0.5 else document.get("user_query"),
    }
    records.append(("ubi_queries", again | {"timestamp": 1733790364629}))


def repeated_event(records, rng):
    records.append(("ubi_events", copy.deepcopy(pick(records, rng))))


def other_action(records, rng):
    names = ["add_to_cart", "search", "product_hover"]
    records.append(
        ("ubi_events", {**pick(records, rng), "action_name": names[rng.integers(len(names))]})
    )


def orphan(records, rng):
    records.append(("ubi_events", event("click", "d0-1", 3, query_id="nobody knows")))


def click_elsewhere(records, rng):
    query_id = pick(records, rng).get("query_id")
    records.append(("ubi_events", event("click", "new", int(rng.integers(9)), query_id=query_id)))


def later_page(records, rng):
    records.append(search("later", "Query 1", query_attributes={"from": 5}))
    records += [pair(event("impression", f"d1-{k}", k, query_id="later")) for k in range(2)]


def query_of_events_differs(records, rng):
    pick(records, rng)["user_query"] = "something else"


def older_name_of_hits(records, rng):
    document = pick(records, rng, "ubi_queries")
    document["query_response_object_ids"] = document.pop("query_response_hit_ids", [])


def form_of_time(records, rng):
    for _, document in records:
        document["timestamp"] = (1733790364625, "2024-12-10T00:26:04.625+0000", "soon")[
            rng.integers(3)
        ]


def attributes_as_text(records, rng):
    document = pick(records, rng)
    document["event_attributes"] = json.dumps(document.get("event_attributes"))


def names_with_dots(records, rng):
    document = pick(records, rng)
    for name, value in (document.pop("event_attributes", None) or {}).items():
        document[f"event_attributes.{name}"] = value


def order_of_records(records, rng):
    order = rng.permutation(len(records))
    records[:] = [records[i] for i in order]


# Faults of lines: return the new lines ----------------------------------------------------
def line_is_cut(lines, rng):
    at = int(rng.integers(len(lines)))
    lines[at] = lines[at][: rng.integers(1, len(lines[at]))]


def garbage(lines, rng):
    junk = [b"null", b"[]", b"3", b'"text"', b"{}", b"\xff\xfe{}", b"\x00", b"}{", b'{"a": 1}']
    lines.insert(int(rng.integers(len(lines))), junk[rng.integers(len(junk))])


def blank_lines(lines, rng):
    lines.insert(int(rng.integers(len(lines))), b"  ")


def carriage_returns(lines, rng):
    lines[:] = [line + b"\r" for line in lines]


def byte_order_mark(lines, rng):
    lines[0] = b"\xef\xbb\xbf" + lines[0].removeprefix(b"\xef\xbb\xbf")


def line_is_lost(lines, rng):
    del lines[int(rng.integers(len(lines)))]


def line_twice(lines, rng):
    at = int(rng.integers(len(lines)))
    lines.insert(at, lines[at])


def two_on_a_line(lines, rng):
    at = int(rng.integers(len(lines) - 1))
    lines[at : at + 2] = [lines[at] + b"," * int(rng.integers(2)) + lines[at + 1]]


def file_twice(lines, rng):
    lines += lines


def byte_is_wrong(lines, rng):
    at = int(rng.integers(len(lines)))
    where = int(rng.integers(len(lines[at])))
    lines[at] = lines[at][:where] + bytes([int(rng.integers(128, 256))]) + lines[at][where + 1 :]


def any_bytes(lines, rng):
    for _ in range(int(rng.integers(1, 20))):
        at = int(rng.integers(len(lines)))
        where = int(rng.integers(len(lines[at])))
        new = bytes([int(rng.integers(256))]).replace(b"\n", b"\0")
        lines[at] = lines[at][:where] + new + lines[at][where + 1 :]


def key_again(lines, rng):
    at = int(rng.integers(len(lines)))
    names, values = (b"query_id", b"event_attributes", b"action_name"), (b"null", b"3", b"{}")
    pair = b'"%s": %s}' % (names[rng.integers(3)], values[rng.integers(3)])
    lines[at] = lines[at][:-1] + b", " + pair


def nested_deeply(lines, rng):
    at, depth = int(rng.integers(len(lines))), (10, 900, 990, 100_000)[rng.integers(4)]
    value = b'{"x":' * depth + b"Infinity" + b"}" * depth
    name = (b"event_attributes", b"query_attributes", b"user_query")[rng.integers(3)]
    lines[at] = lines[at][:-1] + b', "%s": %s}' % (name, value)


def ends_meet(lines, rng):
    one, two = (int(at) for at in rng.integers(len(lines), size=2))
    lines[one] = lines[one][: len(lines[one]) // 2] + lines[two][len(lines[two]) // 2 :]


OF_RECORDS = [
    *[field_of_another_type] * 4,
    *[field_that_is_missing] * 3,
    base_of_all,
    base_of_one_page,
    first_place_written_as_1,
    hits_are_lost,
    impressions_are_lost,
    query_record_is_lost,
    query_record_again,
    repeated_event,
    other_action,
    orphan,
    click_elsewhere,
    later_page,
    query_of_events_differs,
    older_name_of_hits,
    form_of_time,
    attributes_as_text,
    names_with_dots,
    order_of_records,
]
OF_LINES = [
    line_is_cut,
    garbage,
    blank_lines,
    carriage_returns,
    byte_order_mark,
    line_is_lost,
    line_twice,
    two_on_a_line,
    file_twice,
    byte_is_wrong,
    any_bytes,
    key_again,
    nested_deeply,
    ends_meet,
]


# The law ----------------------------------------------------------------------------------
def read(lines, folder):
    path = folder / "log.ndjson"
    path.write_bytes(b"\n".join(lines) + b"\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickDataWarning)
        return read_ubi(path)


def canonical(log):
    """The log without the order of pages and the codes of ids."""
    ids = ["session", "qid", "doc", "user"]
    log = log.astype({name: str for name in ids if name in log})
    return log.sort_values(["session", "position"], ignore_index=True)


def told(report):
    """All that the report says."""
    return (
        report.counts.to_csv(),
        report.ordinal_base,
        report.from_hits,
        report.notes,
        report.faulty_lines,
        sorted(map(tuple, report.queries.to_numpy().tolist())),
    )


def n_records(lines):
    """Lines that are neither blank nor the action before a document."""
    n = 0
    for line in lines:
        try:
            document = json.loads(line.removeprefix(b"\xef\xbb\xbf"))
        except (ValueError, RecursionError):
            document = None
        is_action = (
            isinstance(document, dict)
            and list(document) == ["index"]
            and isinstance(document["index"], dict)
        )
        n += bool(line.strip()) and not is_action
    return n


@pytest.mark.parametrize("part", range(N_PARTS))
def test_faults_are_told(part, tmp_path):
    clean = clean_log(n_pages=25)
    log, report = read([line.encode() for line in lines_of(clean)], tmp_path)
    expected, told_of_clean = canonical(log), told(report)
    n_changed = 0
    for seed in range(part, N_LOGS, N_PARTS):
        rng = np.random.default_rng(seed)
        records, names = copy.deepcopy(clean), []
        for fault in rng.choice(OF_RECORDS, rng.integers(0, 3)):
            fault(records, rng)
            names.append(fault.__name__)
        lines = [line.encode() for line in lines_of(records, bulk=rng.random() < 0.7)]
        for fault in rng.choice(OF_LINES, rng.integers(not names, 2)):
            fault(lines, rng)
            names.append(fault.__name__)
        case = f"seed {seed}: {names}"
        try:
            log, report = read(lines, tmp_path)
        except ValueError as error:
            if "Expected" not in str(error):
                raise AssertionError(case) from error
            continue
        assert report.counts["n"].sum() == n_records(lines), case
        assert not log.duplicated(["session", "doc"]).any(), case
        assert not log.duplicated(["session", "position"]).any(), case
        assert (log["position"] >= 1).all(), case
        same = canonical(log).equals(expected)
        n_changed += not same
        assert same or told(report) != told_of_clean, case
    assert n_changed >= N_LOGS / N_PARTS / 4  # the faults are faults


def test_the_log_of_harmless_forms_is_the_same(tmp_path):
    clean = clean_log(n_pages=25)
    expected = canonical(read([line.encode() for line in lines_of(clean)], tmp_path)[0])
    harmless = [
        base_of_all,
        query_of_events_differs,
        older_name_of_hits,
        form_of_time,
        attributes_as_text,
        names_with_dots,
        order_of_records,
        other_action,
        hits_are_lost,
    ]
    for fault in [*harmless, blank_lines, carriage_returns, byte_order_mark, file_twice]:
        records, rng = copy.deepcopy(clean), np.random.default_rng(0)
        if fault in harmless:
            fault(records, rng)
        lines = [line.encode() for line in lines_of(records)]
        if fault not in harmless:
            fault(lines, rng)
        log, _ = read(lines, tmp_path)
        pd.testing.assert_frame_equal(canonical(log), expected, obj=fault.__name__)
