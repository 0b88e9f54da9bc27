"""Judgments, read again by parsers of the engines' rules, and by ``read_judgments``."""

import csv
import io
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from skultr.datasets import read_ubi
from skultr.evaluation import compare_rankers
from skultr.exceptions import ClickDataWarning
from skultr.metrics import RankingScorer, to_ir_measures
from skultr.serving import export_judgments, read_judgments

QUERIES = ['12" tv, 4k', "größe «ß» 漢字", "two\nlines", "#1 hit", "a\\b\t'c'"]
DOCS = ["B,01", 'say "x"', "#7", "ü\rv", "plain"]


def table(**columns):
    """Judgments from clicks; the best rating is 0.7, so that limits are 0.05, 0.2 and 0.5."""
    given = {"qid": "q", "doc": ["a", "b", "c", "d"], "relevance": [0.7, 0.3, 0.1, 0.01]}
    return pd.DataFrame({**given, "prior_share": 0.1, **columns})


def hostile():
    n = len(QUERIES)
    rating = np.repeat(np.linspace(0.1, 0.9, n), len(DOCS))
    ids = {"qid": np.repeat(QUERIES, len(DOCS)), "doc": np.tile(DOCS, n)}
    return pd.DataFrame({**ids, "relevance": rating, "prior_share": 0.1})


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
def test_grades_of_rated_pairs(kind, frame):
    unrated = {"relevance": [0.7, np.nan, 0.1, 0.01], "prior_share": [0.1, np.nan, 0.5, 0.5]}

    def export(judged):
        pairs = READERS[kind](export_judgments(frame(judged), kind, grades=(0, 1, 2, 3)))
        return {doc: grade for (_, doc), grade in pairs.items()}

    assert export(table()) == {"a": 3, "b": 2, "c": 1, "d": 0}
    assert export(table(**unrated)) == {"a": 3, "c": 1, "d": 0}


def test_opensearch_is_told_what_judgments_are_and_how_much_is_prior():
    unrated = {"relevance": [0.7, np.nan, 0.1, 0.01], "prior_share": [0.1, np.nan, 0.3, 0.5]}
    said = json.loads(export_judgments(table(**unrated), "opensearch"))["description"]
    assert said == (
        "Judgments from clicks to compare rankings by (skultr click_judgments). Rated pairs: 3. "
        "Unrated, with under one examination: 1. Prior, the mean of the query: 30% of a rating on "
        "average."
    )
    of_people = json.loads(export_judgments(human(), "opensearch"))["description"]
    assert of_people == "Ratings of documents for queries, written by skultr."


def test_no_pair_is_rated():
    with pytest.raises(ValueError, match=r"No pair is rated.*Unrated, .*: 4\."):
        export_judgments(table(relevance=np.nan, prior_share=np.nan), "quepid")


@pytest.mark.parametrize("kind", READERS)
def test_labels_to_train_by_are_refused_until_they_are_renamed(kind):
    labels = table().rename(columns={"relevance": "label"}).assign(lower=0.1, upper=0.9)
    with pytest.raises(ValueError, match=r"to train by.*click_judgments.*rename"):
        export_judgments(labels, kind)
    renamed = labels.rename(columns={"label": "relevance"})
    assert len(READERS[kind](export_judgments(renamed, kind, grades=(0, 1, 2, 3)))) == 4


@pytest.mark.parametrize("kind", ["opensearch", "quepid"])
def test_hostile_ids_come_back(kind):
    labels = hostile()
    text = export_judgments(labels, kind).encode("utf-8").decode("utf-8")
    found = READERS[kind](text)
    assert list(found) == list(zip(labels["qid"], labels["doc"], strict=True))
    assert min(found.values()) > 0
    assert max(found.values()) >= 3


def test_trec_refuses_white_space_and_takes_numbered_topics():
    labels = hostile()
    with pytest.raises(ValueError, match=r'\'12" tv, 4k\'.*white space.*queries='):
        export_judgments(labels, "trec")
    labels = labels[labels["doc"].isin(["B,01", "#7", "plain"])]
    topics = {qid: number for number, qid in enumerate(QUERIES, 1)}
    found = read_trec(export_judgments(labels, "trec", queries=topics))
    assert list(found)[:4] == [("1", "B,01"), ("1", "#7"), ("1", "plain"), ("2", "B,01")]
    with pytest.raises(ValueError, match="whole grades"):
        export_judgments(table(), "trec", grades=(0, 0.5, 1))


def test_choice_of_grades():
    def export(grades, **columns):
        return [*read_quepid(export_judgments(table(**columns), "quepid", grades=grades)).values()]

    assert export((0, 1, 10, 100)) == [100, 10, 1, 0]
    assert export([0, 1]) == [1, 0, 0, 0]  # one limit, at half of the best rating
    assert export({0: 0, 0.005: 0.5, 0.5: 1}) == [1, 0.5, 0.5, 0.5]
    # A grade does not depend on the query: that of a query whose best document is poor is low.
    assert export((0, 1, 2, 3), qid=["q", "q", "q", "poor"])[3] == 0
    assert export((0, 1, 2, 3), relevance=0.0) == [0] * 4
    for grades in [(1,), (), (0, 0, 1), (2, 1), (0, np.nan), {}]:
        with pytest.raises(ValueError, match="two or more that rise"):
            export(grades)
    with pytest.raises(ValueError, match=r"limits .*nan.*; expected numbers"):
        export({0: 0, np.nan: 1})
    assert export({0.1: 4, 0.2: 5}) == [5, 5, 4, 4]  # below all limits: the first grade


def test_ratings_of_opensearch_are_not_rounded():
    rating = np.array([0.7, 0.6, 0.0, 0.15])
    text = export_judgments(table(relevance=rating), "opensearch")
    assert '"rating": "2.807"' in text  # log2(1 + 7 * 0.6 / 0.7): three decimals, as COEC's
    found = read_opensearch(text)
    gain = 2 ** np.array([*found.values()]) - 1
    np.testing.assert_allclose(gain, 7 * rating / 0.7, atol=5e-3)  # the best is 0.7


def test_ratings_above_those_of_most_best_documents_are_not_cut():
    rating = np.append(np.full(40, 0.7), 1.4)
    text = export_judgments(table(qid=range(41), doc="a", relevance=rating)[:], "opensearch")
    found = [*read_opensearch(text).values()]
    assert found[0] == 3
    assert found[-1] == pytest.approx(np.log2(15), abs=5e-4)


def test_limits_lie_halfway_between_gains():
    """Gains 0, 1, 3 and 7 for the best rating, 0.7: the limits are 0.05, 0.2 and 0.5."""
    rating = np.array([0.7, 0.501, 0.499, 0.201, 0.199, 0.051, 0.049])
    judged = pd.DataFrame({"qid": "q", "doc": range(7), "relevance": rating, "prior_share": 0})
    text = export_judgments(judged, "quepid", grades=(0, 1, 2, 3))
    assert [*read_quepid(text).values()] == [3, 3, 2, 2, 1, 1, 0]


def test_gain_of_ndcg_is_proportional_to_the_rating():
    grade = np.arange(5)
    rating = 0.4 * (2.0**grade - 1) / 15
    judged = table(doc=grade, relevance=rating)
    found = read_quepid(export_judgments(judged, "quepid", grades=grade))
    assert [*found.values()] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, lambda of: of])
def test_texts_of_queries(frame):
    labels = pd.concat([table(), table(qid="r", relevance=0.6)])
    as_typed = {"qid": ["q", "r", "s"], "user_query": ["USB hub", "usb Hub!", "other"]}
    if frame(as_typed) is as_typed:
        as_typed = dict(zip(*as_typed.values(), strict=True))
    found = read_opensearch(export_judgments(labels, "opensearch", queries=frame(as_typed)))
    assert {query for query, _ in found} == {"USB hub", "usb Hub!"}


def test_several_qid_of_one_text():
    labels = pd.concat([table(), table(qid="filtered", relevance=[0.0, 0.6, 0.0, 0.0])])
    same = {"q": "usb", "filtered": "usb"}
    found = read_quepid(export_judgments(labels, "quepid", queries=same))
    assert found == {("usb", "a"): 3, ("usb", "b"): 3, ("usb", "c"): 1, ("usb", "d"): 0}
    for queries, message in [
        ({"q": "usb"}, "no text for 'filtered'"),
        ({"q": "usb", "filtered": None}, "queries holds None"),
        (["usb", "usb"], "queries is a list; expected a mapping or a frame"),
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
        (table().drop(columns="relevance"), r"no column relevance.*click_judgments"),
        (table().drop(columns="doc"), "no column doc"),
        (table().to_numpy(), "no column qid"),
        (table()[:0], "no rows"),
        (
            table(relevance=[0.7, np.inf, 0.1, 0.0]),
            r"1 ratings are not finite, such as \('q', 'b'\)",
        ),
        (
            table(relevance=["good", "bad", "bad", None]).drop(columns="prior_share"),
            r"'relevance' of judgments holds something else than numbers .*good",
        ),
        (table(doc=["a", "b", "b", "d"]), r"1 pairs are there twice, such as \('q', 'b'\)"),
        (table(doc=["a", "b", "", "d"]), "doc holds ''"),
        (table(doc=["a", "b", " \t", "d"]), "doc holds"),
        (table(qid=["q", None, "q", "q"]), "qid holds"),
    ],
)
def test_labels_that_cannot_be_judgments(labels, message):
    with pytest.raises(ValueError, match=message):
        export_judgments(labels, "opensearch")


@pytest.mark.parametrize("name", ["", "x" * 51, 'shop "A"', "a\\b", "<b>"])
def test_names_that_opensearch_refuses(name):
    with pytest.raises(ValueError, match="1 to 50 characters"):
        export_judgments(table(), "opensearch", name=name)


def test_name():
    body = json.loads(export_judgments(table(), "opensearch", name="clicks of May, größer"))
    assert body["name"] == "clicks of May, größer"


@pytest.mark.parametrize("wrong", [{"format": "csv"}, {"grades": 3}, {"name": 3}])
def test_arguments_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        export_judgments(table(), **{"format": "trec", **wrong})


# Read again ---------------------------------------------------------------------------
def human(**columns):
    """What people said: ratings of no scale in particular."""
    given = {"qid": "q", "doc": ["a", "b", "c", "d"], "relevance": [100.0, 1 / 3, 1e-7, 0.0]}
    return pd.DataFrame({**given, **columns})


def pairs_of(judged):
    return judged.set_index(["qid", "doc"])["relevance"].to_dict()


@pytest.mark.parametrize("kind", ["opensearch", "quepid"])
@pytest.mark.parametrize("grades", [None, (0, 1, 2, 3), {0: 0, 0.2: 1 / 3, 0.5: 123456.789}])
def test_what_was_written_is_read_and_written_again(kind, grades):
    text = export_judgments(hostile(), kind, grades=grades)
    judged = read_judgments(text, kind)
    assert pairs_of(judged) == READERS[kind](text)
    again = export_judgments(judged, kind)
    if kind == "opensearch":
        # What a file was made of is known to its writer alone.
        again, text = (json.loads(each)["judgmentRatings"] for each in (again, text))
    assert again == text
    assert judged.dtypes["relevance"] == np.float64


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.from_pandas])
def test_ratings_of_people_go_through_each_format_unchanged(kind, frame):
    ratings = [3.0, 2.0, 1.0, 0.0] if kind == "trec" else human()["relevance"]
    judged = human(relevance=ratings)
    text = export_judgments(frame(judged), kind)
    pd.testing.assert_frame_equal(read_judgments(text, kind), judged, check_dtype=False)
    other = {"opensearch": "quepid", "quepid": "opensearch", "trec": "opensearch"}[kind]
    again = read_judgments(export_judgments(read_judgments(text, kind), other), other)
    assert pairs_of(again) == pairs_of(judged)


def test_another_scale_for_ratings_of_people():
    judged = human(relevance=[100, 10, 1, 0])
    text = export_judgments(judged, "trec", grades={0: 0, 1: 1, 10: 2, 100: 3})
    assert [*read_trec(text).values()] == [3, 2, 1, 0]
    assert read_judgments(text, "trec")["relevance"].tolist() == [3, 2, 1, 0]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.from_pandas])
@pytest.mark.parametrize("kind", READERS)
def test_what_people_did_not_judge_is_left_out_and_one_judgment_counts_once(kind, frame):
    judged = human(relevance=[3.0, np.nan, 1.0, 0.0])
    judged = pd.concat([judged, judged])
    text = export_judgments(frame(judged), kind)
    assert READERS[kind](text) == {("q", "a"): 3, ("q", "c"): 1, ("q", "d"): 0}
    if kind == "opensearch":
        assert json.loads(text)["description"].endswith("Not judged, and left out: 2.")
    with pytest.raises(ValueError, match=r"No pair is rated.*left out: 8\."):
        export_judgments(frame(judged.assign(relevance=np.nan)), kind)
    with pytest.raises(ValueError, match=r"1 pairs are there twice, such as \('q', 'a'\)"):
        export_judgments(pd.concat([judged, human(relevance=2.0)[:1]]), kind)


@pytest.mark.parametrize("kind", READERS)
def test_no_grade_is_written_that_is_read_as_not_judged(kind):
    judged = human(relevance=[2.0, 1.0, 0.0, -1.0])
    with pytest.raises(ValueError, match=r"grade is -1 in 1 pair, such as \('q', 'd'\)"):
        export_judgments(judged, kind)
    with pytest.raises(ValueError, match="grade is -1 in 1 pair"):
        export_judgments(table(), kind, grades=(-1, 0, 1, 2))
    text = export_judgments(judged, kind, grades={-1: 0, 0: 1, 1: 2, 2: 3})
    assert [*READERS[kind](text).values()] == [3, 2, 1, 0]


def test_the_scale_of_people_is_not_that_of_clicks():
    for grades in [(0, 1, 2), [0, 1], np.arange(3)]:
        with pytest.raises(ValueError, match=r"the sequence \[0, 1.*scale of their own"):
            export_judgments(human(), "quepid", grades=grades)


def response(*lists):
    """What OpenSearch returns for ``GET _plugins/_search_relevance/judgments/ID``."""
    fields = {"id": "b5", "timestamp": "2025-06-11T06:07:23.766Z", "name": "shop", "metadata": {}}
    fields |= {"status": "COMPLETED", "type": "IMPORT_JUDGMENT"}
    hits = [{"_id": "b5", "_score": 1, "_source": {**fields, "judgmentRatings": x}} for x in lists]
    return json.dumps({"took": 36, "timed_out": False, "hits": {"max_score": 1, "hits": hits}})


def ratings_of(**ratings):
    return [{"query": "q", "ratings": [{"rating": r, "docId": d} for d, r in ratings.items()]}]


def test_what_the_workbench_returns():
    found = ratings_of(a="3.000", b=2, c=0.5, d="1e-3")
    found[0] |= {"failures": [{"docId": "e", "error": "timeout"}]}
    found[0]["ratings"][0]["rated_by"] = "ann"
    found.append({"query": "none", "ratings": []})
    found.append({"query": 7, "ratings": [{"docId": 8, "rating": 1}]})
    expected = {("q", "a"): 3, ("q", "b"): 2, ("q", "c"): 0.5, ("q", "d"): 1e-3, ("7", "8"): 1}
    assert pairs_of(read_judgments(response(found), "opensearch")) == expected
    body = json.dumps({"judgmentRatings": found})
    assert pairs_of(read_judgments(body, "opensearch")) == expected


def test_columns_of_a_table_by_their_names():
    text = 'rating,query,comment,docid\n3,"usb, hub",good,B01\n\n1,NA,,007\n'
    found = pairs_of(read_judgments(text, "quepid"))
    assert found == {("usb, hub", "B01"): 3, ("NA", "007"): 1}
    assert pairs_of(read_judgments("\ufeff" + text.replace("\n", "\r\n"), "quepid")) == found


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("opensearch", json.dumps({"judgmentRatings": ratings_of(a="2", b=None, c="", d=-1)})),
        ("quepid", "query,docid,rating\nq,a,2\nq,b,\nq,c\nnobody rated this one\n"),
        ("trec", "q 0 a 2\nq 0 b -1\nq 0 c -2\nq 0 d -1.5\n"),
    ],
)
def test_pairs_without_a_rating_are_not_judged(kind, text):
    with pytest.warns(ClickDataWarning, match="3 of 4 pairs have no rating, or a negative one"):
        assert pairs_of(read_judgments(text, kind)) == {("q", "a"): 2}


def test_a_line_that_is_there_twice_is_one_rating_and_two_ratings_are_an_error():
    line = "q 0 a 2\n"
    assert pairs_of(read_judgments(line + line, "trec")) == {("q", "a"): 2}
    with pytest.raises(ValueError, match=r"1 pairs are there twice, such as \('q', 'a'\)"):
        read_judgments(line + "q 0 a 1\n", "trec")


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("opensearch", "", "JSONDecodeError: Expecting value: line 1 column 1"),
        ("opensearch", export_judgments(human(), "opensearch")[:-9], "JSONDecodeError"),
        ("opensearch", "judgments.json", "JSONDecodeError.* is a file, pass its text"),
        ("opensearch", "[1]", "TypeError"),
        (
            "opensearch",
            '{"error": {"reason": "no such index"}, "status": 404}',
            "'judgmentRatings'",
        ),
        ("opensearch", '{"judgmentRatings": [{"ratings": [{}]}]}', "KeyError: 'query'"),
        ("opensearch", '{"judgmentRatings": [{"query": "q", "ratings": 1}]}', "TypeError"),
        (
            "opensearch",
            '{"judgmentRatings": [{"query": "q", "ratings": ["a"]}]}',
            "AttributeError",
        ),
        ("opensearch", '{"judgmentRatings": {"q": [{"docId": "a", "rating": "1"}]}}', "TypeError"),
        ("opensearch", response(), "holds 0 lists of judgments"),
        ("opensearch", response([], []), "holds 2 lists of judgments; ask for one by its id"),
        ("opensearch", response(ratings_of(a="good")), "good"),
        ("opensearch", response(ratings_of(a=[3])), "TypeError"),
        ("opensearch", response([]), "No pair has a rating from 0"),
        ("opensearch", "[" * 100_000, "RecursionError"),
        ("opensearch", response(ratings_of(a=10**400)), "OverflowError"),
        ("quepid", "", "No pair has a rating from 0"),
        ("quepid", "query,docid,rating\n", "No pair has a rating from 0"),
        ("quepid", "usb hub,B01,3\n", "No pair|'query'"),
        ("quepid", "query,doc,rating\nq,a,3\n", "KeyError: 'docid'"),
        ("quepid", "query,docid,rating\nusb, hub,B01,3\n", r"a line has \['3'\] beyond"),
        ("quepid", 'query,docid,rating\n"usb hub,B01,3\n', "Error: unexpected end of data"),
        ("quepid", "query,docid,rating\nq,a,good\n", "good"),
        ("trec", "", "No pair has a rating from 0"),
        ("quepid", "human.csv", r"is a file, pass its text: Path\('human.csv'\)"),
        ("trec", "runs/human.qrels", "is a file, pass its text"),
        ("trec", "q 0 a\n", "'q 0 a' has 3 fields"),
        ("trec", "q 0 a 1\nusb hub 0 a 1\n", "'usb hub 0 a 1' has 5 fields; no topic"),
        ("trec", "q 0 a 1\nq 0 b high\n", "high"),
    ],
)
def test_damaged_texts_are_one_sentence(kind, text, message):
    with pytest.raises(ValueError, match=message) as error:
        read_judgments(text, kind)
    assert str(error.value).count("Expected") == 1
    is_name = text in {"judgments.json", "human.csv", "runs/human.qrels"}
    assert ("pass its text" in str(error.value)) == is_name
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("rating", ["inf", "1e999"])
def test_ratings_are_finite(rating):
    with pytest.raises(
        ValueError, match=r"ratings are not finite, such as \('q', 'b'\)|Unable to parse"
    ):
        read_judgments(f"q 0 a 1\nq 0 b {rating}\n", "trec")


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, lambda of: of])
def test_ratings_under_the_ids_of_the_log(frame):
    """Texts are compared as read_ubi writes them; each query with the text has the ratings."""
    texts = {"qid": [7, 8, 9], "user_query": ["USB  hub", "usb hub", "tent"]}
    names = frame(texts)
    if names is texts:
        names = dict(zip(*texts.values(), strict=True))
    text = "query,docid,rating\nusb Hub,a,1\nUSB HUB,a,3\nusb hub,b,0\n"
    expected = {(7, "a"): 3, (7, "b"): 0, (8, "a"): 3, (8, "b"): 0}
    assert pairs_of(read_judgments(text, "quepid", queries=names)) == expected
    with pytest.warns(ClickDataWarning, match="1 of 4 queries of the judgments, such as 'mat'"):
        found = read_judgments(f"{text}mat,a,1\n", "quepid", queries=names)
    assert pairs_of(found) == expected
    with pytest.raises(ValueError, match="expected qid and user_query"):
        read_judgments(text, "quepid", queries=pd.DataFrame({"qid": [1]}))


def test_topics_are_numbered_and_named_again():
    labels = hostile()[lambda of: of["doc"].isin(["B,01", "#7", "plain"])]
    topics = {qid: number for number, qid in enumerate(QUERIES, 1)}
    text = export_judgments(labels, "trec", queries=topics)
    judged = read_judgments(text, "trec", queries=topics)
    assert {*judged["qid"]} == {*QUERIES}
    assert export_judgments(judged, "trec", queries=topics) == text


def test_rankers_are_compared_by_what_was_read():
    judged = human(qid=["q", "q", "r", "r"], doc=list("abab"), relevance=[2, 0, 0, 3])
    text = export_judgments(judged, "opensearch")
    documents = pd.DataFrame({"qid": ["q"] * 3 + ["r"] * 3, "doc": list("abcabc")})
    X = documents.merge(read_judgments(text, "opensearch"), on=["qid", "doc"], how="left")
    assert X["relevance"].isna().sum() == 2

    class Best:
        def predict(self, X):
            return X["relevance"].fillna(0)

    assert RankingScorer()(Best(), X) == 1
    worst = -Best().predict(X)
    values = compare_rankers({"best": Best(), "worst": worst}, X, random_state=0).values["value"]
    assert values["best"] == 1 > values["worst"]
    qrels, _ = to_ir_measures(X, worst)
    assert qrels["relevance"].tolist() == [2, 0, 0, 3]


SAMPLE = Path(os.environ.get("SKULTR_DATA", "no such folder"), "ubi")


@pytest.mark.skipif(not SAMPLE.exists(), reason="needs ubi/ in the folder named by SKULTR_DATA")
def test_judgments_of_the_workbench_itself():
    """A body that was written by OpenSearch's people, and the queries of their log."""
    text = Path(SAMPLE, "esci_us_judgments.json").read_text(encoding="utf-8")
    judged = read_judgments(text, "opensearch")
    counts = {100.0: 3389, 10.0: 1898, 0.0: 1086, 1.0: 305}
    assert judged["relevance"].value_counts().to_dict() == counts
    assert judged["qid"].nunique() == 150
    again = json.loads(export_judgments(judged, "opensearch"))
    assert again["judgmentRatings"] == json.loads(text)["judgmentRatings"]
    # A demo shop is in the file, too, whose clicks lack their queries: tests/datasets/test_ubi.py.
    with pytest.warns(ClickDataWarning, match="could not be used"):
        log, report = read_ubi(Path(SAMPLE, "ubi_queries_events.ndjson"))
    with pytest.warns(ClickDataWarning, match="of 150 queries of the judgments"):
        judged = read_judgments(text, "opensearch", queries=report.queries)
    pairs = log[["qid", "doc"]].astype(str).drop_duplicates().merge(judged, on=["qid", "doc"])
    assert (len(pairs), pairs["qid"].nunique()) == (36, 8)


@pytest.mark.parametrize(
    "form",
    [
        "{} qid:{} # {} A title {}\n",
        "{}\tqid:{} #\t{}\tTitle {}\n",
        "{} qid:{} 1:0.5 #docid = {} inc = {}\n",
    ],
)
def test_judgement_lists_of_ltr_plugins_are_read(form):
    rows = [(4, 1, "7001"), (2, 1, "7002"), (0, 2, "7003")]
    body = "".join(form.format(*row, place) for place, row in enumerate(rows))
    for weight in ("", "*1"):
        text = f"# grade, query, doc\n# qid:1: red tent{weight}\n# qid:2: stove{weight}\n\n{body}"
        judged = read_judgments(text, "ranklib")
        assert judged["qid"].tolist() == ["red tent", "red tent", "stove"]
        assert judged["doc"].tolist() == ["7001", "7002", "7003"]
        assert judged["relevance"].tolist() == [4, 2, 0]
    # Titles and other values differ between documents: they are no queries.
    assert read_judgments(body, "ranklib")["qid"].tolist() == ["1", "1", "2"]


def test_judgement_lists_without_ids_or_queries_are_told():
    with pytest.raises(ValueError, match="no ids of documents"):
        read_judgments("4 qid:1 1:0.5\n", "ranklib")
    with pytest.raises(ValueError, match="line 2 is 'q 0 a 1'"):
        read_judgments("4 qid:1 # a1\nq 0 a 1\n", "ranklib")
    with pytest.warns(ClickDataWarning, match="1 queries have no line .*such as qid '2'"):
        read_judgments("# qid:1: tent\n4 qid:1 # a1\n4 qid:2 # a1\n", "ranklib")
