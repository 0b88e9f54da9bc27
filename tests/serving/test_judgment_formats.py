"""Judgments as Quepid and OpenSearch's workbench write and read them, by the rules of their code.

Files of these tools are restated here in the form in which they write them: Quepid 8 (exports of a
case and of a book), and the judgments plugin and Dashboards of OpenSearch 3.
"""

import io
import json

import pandas as pd
import pytest

from skultr.evaluation import compare_judgments
from skultr.exceptions import ClickDataWarning
from skultr.serving import export_judgments, read_judgments

JUDGED = pd.DataFrame(
    {
        "qid": ["red tent", "red tent", "stove, gas", "stove, gas"],
        "doc": ["B01", "B02", "B03", "B-04"],
        "relevance": [3.0, 0.0, 1.0, 2.5],
    }
)


def pairs_of(judged):
    return judged.set_index(["qid", "doc"])["relevance"].to_dict()


# What their importers make of our files ---------------------------------------------------------
def fields_of(line, doubled):
    """Fields of a line, as both importers split it; only Dashboards knows doubled quotes."""
    fields = [""]
    quoted = False
    place = 0
    while place < len(line):
        character = line[place]
        if doubled and quoted and line[place : place + 2] == '""':
            fields[-1] += '"'
            place += 1
        elif character == '"':
            quoted = not quoted
        elif character == "," and not quoted:
            fields.append("")
        else:
            fields[-1] += character
        place += 1
    return [field.strip() for field in fields]


@pytest.mark.parametrize("doubled", [True, False], ids=["Dashboards", "Quepid"])
def test_both_importers_read_our_table(doubled):
    header, *lines = export_judgments(JUDGED, "quepid").splitlines()
    assert header == "query,docid,rating"
    read = [fields_of(line, doubled) for line in lines]
    assert {(query, doc): float(rating) for query, doc, rating in read} == pairs_of(JUDGED)


def test_quotes_reach_dashboards_and_quepid_drops_them():
    line = export_judgments(JUDGED.head(1).assign(qid='12" tv'), "quepid").splitlines()[1]
    assert fields_of(line, doubled=True) == ['12" tv', "B01", "3"]
    assert fields_of(line, doubled=False) == ["12 tv", "B01", "3"]


def test_the_plugin_imports_our_body():
    """Ratings are lists of a text ``docId`` that is not empty and a number, or the text of one."""
    body = json.loads(export_judgments(JUDGED, "opensearch"))
    assert body["type"] == "IMPORT_JUDGMENT"
    found = {}
    for query in body["judgmentRatings"]:
        assert isinstance(query["ratings"], list)
        for rating in query["ratings"]:
            assert isinstance(rating["docId"], str)
            found[query["query"], rating["docId"]] = float(str(rating["rating"]))
    assert found == pairs_of(JUDGED)
    # What the plugin refuses in names and descriptions.
    for text, longest in ((body["name"], 50), (body["description"], 250)):
        assert 0 < len(text) <= longest
        assert not {*text} & {*'"\\<>'}


# What we make of their files --------------------------------------------------------------------
def test_ratings_that_quepid_exports():
    """Queries without a rating, and documents of a snapshot that nobody rated, are padded."""
    text = 'query,docid,rating\nred tent,B01,3\nred tent,B02,\n"stove, gas",B03,1.0\nmat,,'
    with pytest.warns(ClickDataWarning, match="2 of 4 pairs have no rating"):
        found = read_judgments(text, "quepid")
    assert pairs_of(found) == {("red tent", "B01"): 3, ("stove, gas", "B03"): 1}


@pytest.mark.parametrize("first", "-=+@")
def test_quepids_guard_against_formulas_is_no_part_of_queries_and_ids(first):
    """It writes a space before ``- = + @``; newer versions also before ids."""
    text = f"query,docid,rating\n {first}sale tent, {first}1,3\nred tent,B01,1\n"
    found = read_judgments(text, "quepid")
    assert pairs_of(found) == {(f"{first}sale tent", f"{first}1"): 3, ("red tent", "B01"): 1}
    found = read_judgments(text, "quepid", queries={7: f"{first}Sale tent", 8: "red tent"})
    assert pairs_of(found) == {(7, f"{first}1"): 3, (8, "B01"): 1}


def test_no_other_space_is_quepids_guard():
    text = "query,docid,rating\n red tent,B01,3\n  -sale,B 02,2\nred -sale, B03,1\n"
    found = read_judgments(text, "quepid")
    assert [*found["qid"]] == [" red tent", "  -sale", "red -sale"]
    assert [*found["doc"]] == ["B01", "B 02", " B03"]


def test_qrels_that_quepid_exports():
    """With an empty line before each, and the number of the query in Quepid as topic."""
    text = "\n12 0 B01 3\n\n12 0 B02 0\n\n13 0 B03 1\n"
    found = read_judgments(text, "trec", queries={12: "12", 13: "13"})
    assert pairs_of(found) == {(12, "B01"): 3, (12, "B02"): 0, (13, "B03"): 1}


@pytest.mark.parametrize("row", ["{} qid:{} # {} {}\n\n", '{}    qid:{} #    {}; "{}"\n\n'])
def test_lists_that_quepid_exports_for_ltr(row):
    """The text of the query follows the document, once in quotes; the number is that of Quepid."""
    judged = [
        (3, 12, "B01", "red tent"),
        (0, 12, "B02", "red tent"),
        (1, 13, "B03", "stove, gas"),
    ]
    text = "\n" + "".join(row.format(*each) for each in judged)
    found = read_judgments(text, "ranklib")
    expected = {("red tent", "B01"): 3, ("red tent", "B02"): 0, ("stove, gas", "B03"): 1}
    assert pairs_of(found) == expected
    found = read_judgments(text, "ranklib", queries={7: "Red tent", 8: "stove, gas"})
    assert pairs_of(found) == {(7, "B01"): 3, (7, "B02"): 0, (8, "B03"): 1}


def test_quotes_of_some_queries_are_theirs():
    text = '3 qid:12 # B01 "red tent"\n0 qid:12 # B02 "red tent"\n1 qid:13 # B03 mat\n'
    assert [*read_judgments(text, "ranklib")["qid"]] == ['"red tent"', '"red tent"', "mat"]


@pytest.mark.parametrize(
    "text",
    [
        "3 qid:12 # B01 Red tent\n0 qid:12 # B02 Mat\n1 qid:13 # B03 Stove\n",
        "3 qid:12 # B01 Tent\n0 qid:12 # B02\n1 qid:13 # B03 Stove\n",
        "3 qid:12 # B01\n0 qid:12 # B02\n1 qid:13 # B03\n",
    ],
    ids=["titles", "some titles", "ids alone"],
)
def test_titles_are_no_queries(text):
    assert [*read_judgments(text, "ranklib")["qid"]] == ["12", "12", "13"]


@pytest.mark.parametrize(
    "text",
    [
        "3 qid:12 # B01 tent\n1 qid:13 # B03 mat\n",
        "3 qid:12 # B01 tent\n0 qid:12 # B02 tent\n1 qid:13 # B03 tent\n",
        "3 qid:12 # B01 tent\n0 qid:12 # B02 tent\n1 qid:13 # B03\n",
    ],
    ids=["one document each", "one text of two queries", "one without a text"],
)
def test_texts_that_may_be_queries_or_titles_are_told(text):
    with pytest.warns(ClickDataWarning, match=r"such as 'tent' of qid '12', may be that of the q"):
        found = read_judgments(text, "ranklib")
    assert {*found["qid"]} == {"12", "13"}


def test_a_line_that_is_there_twice_does_not_make_titles_queries():
    lines = [f"1 qid:{number} # B{number} title {number}\n" for number in range(200)]
    with pytest.warns(ClickDataWarning, match="may be that of the query, or a title"):
        found = read_judgments("".join([lines[0], *lines]), "ranklib")
    assert [*found["qid"].head(2)] == ["0", "1"]


def test_lines_that_name_queries_decide_over_texts_after_documents():
    text = "# qid:12: tents\n3 qid:12 # B01 tent\n0 qid:12 # B02 tent\n"
    assert [*read_judgments(text, "ranklib")["qid"]] == ["tents", "tents"]


def test_the_error_of_a_book_of_quepid_has_the_code_that_reads_one_rater():
    book = "query,docid,Ann,Bob's model\nred tent,B01,3,2\nnull,007,0,\n -sale,B03,,1\n"
    with pytest.raises(ValueError, match=r"no column 'rating' but \['Ann', ") as caught:
        read_judgments(book, "quepid")
    code = str(caught.value).split("Read one of them: ")[1].split(". compare_judgments")[0]
    *first, last = code.split("; ")
    given = {"text": book, "io": io, "pd": pd, "read_judgments": read_judgments}
    exec("\n".join(first), given)
    with pytest.warns(ClickDataWarning, match="1 of 3 pairs have no rating"):
        found = eval(last, given)
    assert pairs_of(found) == {("red tent", "B01"): 3, ("null", "007"): 0}


@pytest.mark.parametrize("header", ["query,docid", "query,Ann", "topic,docid,rating", ""])
def test_what_is_no_book_of_quepid_is_damaged_as_before(header):
    with pytest.raises(ValueError) as caught:
        read_judgments(f"{header}\na,b,1\n", "quepid")
    assert "has for its raters" not in str(caught.value)


def test_a_book_of_quepid_has_a_column_for_each_rater():
    """They are compared with each other: one table of judgments per column."""
    lines = ["query,docid,Ann,Bob"]
    for number in range(20):
        lines += [f"query {number},B01,3,2", f"query {number},B02,0,1", f"query {number},B03,1,"]
    book = pd.read_csv(io.StringIO("\n".join(lines)))
    book = book.rename(columns={"query": "qid", "docid": "doc"})
    raters = {name: book.rename(columns={name: "relevance"}) for name in book.columns[2:]}
    row = compare_judgments(raters, n_resamples=99).table.loc[0]
    assert (row["judge"], row["reference"], row["n_docs"]) == ("Bob", "Ann", 40)
    assert row["agreement"] == 1


def test_judgments_of_a_language_model_in_opensearch():
    """What it could not rate is in ``failures``; ratings are 0 to 1, or 0 and 1."""
    source = {
        "id": "5a0115d2",
        "timestamp": "2026-03-01T08:00:00.000Z",
        "name": "model",
        "status": "COMPLETED",
        "type": "LLM_JUDGMENT",
        "metadata": {"llmJudgmentRatingType": "SCORE0_1", "size": 5},
        "judgmentRatings": [
            {
                "query": "red tent",
                "ratings": [
                    {"docId": "B01", "rating": "0.9"},
                    {"docId": "B02", "rating": "0.0"},
                ],
                "failures": [{"docId": "B05", "error": "token limit"}],
            },
            {"query": "mat", "ratings": [], "failures": [{"docId": "B06", "error": "timeout"}]},
        ],
    }
    text = json.dumps({"hits": {"total": {"value": 1}, "hits": [{"_source": source}]}})
    found = read_judgments(text, "opensearch")
    assert pairs_of(found) == {("red tent", "B01"): 0.9, ("red tent", "B02"): 0}


@pytest.mark.parametrize("status", ["PROCESSING", "ERROR", "TIMEOUT", "RETRYING"])
def test_lists_of_opensearch_that_are_not_completed_are_told(status):
    ratings = [{"query": "red tent", "ratings": [{"docId": "B01", "rating": "0.9"}]}]
    text = json.dumps({"status": status, "judgmentRatings": ratings})
    with pytest.warns(ClickDataWarning, match=f"in OpenSearch is '{status}', not 'COMPLETED'"):
        found = read_judgments(text, "opensearch")
    assert pairs_of(found) == {("red tent", "B01"): 0.9}
    empty = json.dumps({"status": status, "judgmentRatings": []})
    with (
        pytest.warns(ClickDataWarning, match=f"is '{status}'"),
        pytest.raises(ValueError, match="No pair has a rating"),
    ):
        read_judgments(empty, "opensearch")
