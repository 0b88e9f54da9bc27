"""Judgments, read again by parsers of the engines' rules."""

import csv
import io
import json

import numpy as np
import pandas as pd
import polars as pl
import pytest

from skultr.exceptions import ClickDataWarning
from skultr.serving import export_judgments

QUERIES = ['12" tv, 4k', "größe «ß» 漢字", "two\nlines", "#1 hit", "a\\b\t'c'"]
DOCS = ["B,01", 'say "x"', "#7", "ü\rv", "plain"]


def table(**columns):
    """Labels of one query; the best label is 0.7, so that limits are 0.05, 0.2 and 0.5."""
    label = np.array([0.7, 0.3, 0.1, 0.01])
    lower, upper = label * [0.8, 0.5, 0.8, 0.5], label * [1.2, 1.2, 1.2, 2.0]
    given = {"qid": "q", "doc": ["a", "b", "c", "d"], "label": label}
    return pd.DataFrame({**given, "lower": lower, "upper": upper, **columns})


def hostile():
    n = len(QUERIES)
    label = np.repeat(np.linspace(0.1, 0.9, n), len(DOCS))
    ids = {"qid": np.repeat(QUERIES, len(DOCS)), "doc": np.tile(DOCS, n)}
    return pd.DataFrame({**ids, "label": label, "lower": label, "upper": label})


def read_opensearch(text):
    """As the plugin: ratings are strings that parse as floats, document ids are not empty."""
    body = json.loads(text)
    assert set(body) == {"name", "description", "type", "judgmentRatings"}
    assert body["type"] == "IMPORT_JUDGMENT"
    assert 0 < len(body["description"]) <= 250
    found = {}
    for of in body["judgmentRatings"]:
        assert of["query"] not in found
        assert all(isinstance(r["rating"], str) and r["docId"] for r in of["ratings"])
        ratings = {r["docId"]: float(r["rating"]) for r in of["ratings"]}
        assert len(ratings) == len(of["ratings"])
        found[of["query"]] = ratings
    return {(query, doc): grade for query, of in found.items() for doc, grade in of.items()}


def read_quepid(text):
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    assert header == ["query", "docid", "rating"]
    return {(query, doc): float(grade) for query, doc, grade in rows}


def read_trec(text):
    rows = [line.split() for line in text.removesuffix("\n").split("\n")]
    assert all(zero == "0" for _, zero, _, _ in rows)
    return {(qid, doc): int(grade) for qid, _, doc, grade in rows}


READERS = {"opensearch": read_opensearch, "quepid": read_quepid, "trec": read_trec}


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.from_pandas])
@pytest.mark.parametrize("kind", READERS)
def test_grades_by_interval(kind, frame):
    def export(interval):
        text = export_judgments(frame(table()), kind, grades=(0, 1, 2, 3), interval=interval)
        pairs = READERS[kind](text)
        return {doc: grade for (_, doc), grade in pairs.items()}

    assert export("lower") == {"a": 3, "b": 1, "c": 1, "d": 0}
    assert export("ignore") == {"a": 3, "b": 2, "c": 1, "d": 0}
    with pytest.warns(ClickDataWarning, match=r"interval of 1 of 4 pairs spans"):
        assert export("within") == {"a": 3, "c": 1, "d": 0}


@pytest.mark.parametrize("kind", ["opensearch", "quepid"])
def test_hostile_ids_come_back(kind):
    labels = hostile()
    text = export_judgments(labels, kind).encode("utf-8").decode("utf-8")
    found = READERS[kind](text)
    assert list(found) == list(zip(labels["qid"], labels["doc"], strict=True))
    assert min(found.values()) > 0
    assert max(found.values()) == 3


def test_trec_refuses_white_space_and_takes_numbered_topics():
    labels = hostile()
    with pytest.raises(ValueError, match=r'\'12" tv, 4k\'.*white space.*queries='):
        export_judgments(labels, "trec")
    labels = labels[labels["doc"].isin(["B,01", "#7", "plain"])]
    topics = {qid: number for number, qid in enumerate(QUERIES, 1)}
    found = read_trec(export_judgments(labels, "trec", queries=topics))
    assert list(found)[:4] == [("1", "B,01"), ("1", "#7"), ("1", "plain"), ("2", "B,01")]
    for grades in [(-1, 0, 1), (0, 0.5, 1)]:
        with pytest.raises(ValueError, match="whole grades"):
            export_judgments(table(), "trec", grades=grades)


def test_choice_of_grades():
    def export(grades, **columns):
        return [*read_quepid(export_judgments(table(**columns), "quepid", grades=grades)).values()]

    assert export((0, 1, 10, 100)) == [100, 1, 1, 0]
    assert export([0, 1]) == [1, 0, 0, 0]  # one limit, at half of the best label
    assert export({0: 0, 0.005: 0.5, 0.5: 1}) == [1, 0.5, 0.5, 0.5]
    # A grade does not depend on the query: that of a query whose best document is poor is low.
    assert export((0, 1, 2, 3), qid=["q", "q", "q", "poor"])[3] == 0
    assert export((0, 1, 2, 3), label=0.0, lower=0.0, upper=0.0) == [0] * 4
    for grades in [(1,), (), (0, 0, 1), (2, 1), (0, np.nan), {}]:
        with pytest.raises(ValueError, match="two or more that rise"):
            export(grades)
    with pytest.raises(ValueError, match=r"limits .*nan.*; expected numbers"):
        export({0: 0, np.nan: 1})
    assert export({0.1: 4, 0.2: 5}) == [5, 4, 4, 4]  # below all limits: the first grade


def test_ratings_of_opensearch_are_not_rounded():
    label = np.array([0.6, 0.3, 0.0, 0.15])
    found = read_opensearch(export_judgments(table(lower=label), "opensearch"))
    gain = 2 ** np.array([*found.values()]) - 1
    np.testing.assert_allclose(gain, 7 * label / 0.7, atol=5e-3)  # the best label is 0.7
    above = read_opensearch(export_judgments(table(lower=0.9), "opensearch"))
    assert set(above.values()) == {3}


def test_gain_of_ndcg_is_proportional_to_the_label():
    grade = np.arange(5)
    labels = pd.DataFrame({"qid": "q", "doc": grade, "label": 0.4 * (2.0**grade - 1) / 15})
    found = read_quepid(export_judgments(labels, "quepid", grades=grade, interval="ignore"))
    assert [*found.values()] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, lambda of: of])
def test_texts_of_queries(frame):
    labels = pd.concat([table(), table(qid="r", lower=0.6, upper=0.7)])
    as_typed = {"qid": ["q", "r", "s"], "user_query": ["USB hub", "usb Hub!", "other"]}
    if frame(as_typed) is as_typed:
        as_typed = dict(zip(*as_typed.values(), strict=True))
    found = read_opensearch(export_judgments(labels, "opensearch", queries=frame(as_typed)))
    assert {query for query, _ in found} == {"USB hub", "usb Hub!"}


def test_several_qid_of_one_text():
    labels = pd.concat([table(), table(qid="filtered", lower=[0.0, 0.6, 0.0, 0.0])])
    same = {"q": "usb", "filtered": "usb"}
    found = read_quepid(export_judgments(labels, "quepid", queries=same))
    assert found == {("usb", "a"): 3, ("usb", "b"): 3, ("usb", "c"): 1, ("usb", "d"): 0}
    for queries, message in [
        ({"q": "usb"}, "no text for 'filtered'"),
        ({"q": "usb", "filtered": None}, "queries holds None"),
        (["usb", "usb"], "no text for 'q'"),
        (pd.DataFrame({"qid": ["q"], "text": ["usb"]}), "expected qid and user_query"),
    ]:
        with pytest.raises(ValueError, match=message):
            export_judgments(labels, "quepid", queries=queries)


def test_ids_that_are_numbers():
    labels = table(qid=np.arange(4), doc=[10.0, 11.0, 12.0, 13.5])
    found = read_trec(export_judgments(labels, "trec"))
    assert list(found) == [("0", "10"), ("1", "11"), ("2", "12"), ("3", "13.5")]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (table().drop(columns="lower"), r"no column lower.*relevance_labels"),
        (table().drop(columns="doc"), "no column doc"),
        (table().to_numpy(), "no column qid"),
        (table()[:0], "no rows"),
        (table(label=[0.7, np.inf, 0.1, 0.0]), r"1 labels are not finite, such as \('q', 'b'\)"),
        (
            table(lower=[0.7, 0.1, np.nan, np.nan]),
            r"2 labels are not finite, such as \('q', 'c'\)",
        ),
        (table(doc=["a", "b", "b", "d"]), r"1 labels are there twice, such as \('q', 'b'\)"),
        (table(doc=["a", "b", "", "d"]), "doc holds ''"),
        (table(doc=["a", "b", " \t", "d"]), "doc holds"),
        (table(qid=["q", None, "q", "q"]), "qid holds"),
    ],
)
def test_labels_that_cannot_be_judgments(labels, message):
    with pytest.raises(ValueError, match=message):
        export_judgments(labels, "opensearch")


def test_no_pair_is_sure():
    with pytest.raises(ValueError, match=r"4 of 4 pairs spans.*'lower' none"):
        export_judgments(table(lower=0.0, upper=1.0), "opensearch", interval="within")


def test_labels_without_intervals():
    labels = table().drop(columns=["lower", "upper"])
    assert len(read_quepid(export_judgments(labels, "quepid", interval="ignore"))) == 4


@pytest.mark.parametrize("name", ["", "x" * 51, 'shop "A"', "a\\b", "<b>"])
def test_names_that_opensearch_refuses(name):
    with pytest.raises(ValueError, match="1 to 50 characters"):
        export_judgments(table(), "opensearch", name=name)


def test_name():
    body = json.loads(export_judgments(table(), "opensearch", name="clicks of May, größer"))
    assert body["name"] == "clicks of May, größer"


@pytest.mark.parametrize("wrong", [{"format": "csv"}, {"grades": 3}, {"interval": "upper"}])
def test_arguments_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        export_judgments(table(), **{"format": "trec", **wrong})
