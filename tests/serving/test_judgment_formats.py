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


def test_queries_that_quepid_protects_from_spreadsheets_are_those_of_the_log():
    """It writes a space before ``- = + @``."""
    text = "query,docid,rating\n -sale tent,B01,3\n"
    found = read_judgments(text, "quepid", queries={7: "-Sale tent"})
    assert pairs_of(found) == {(7, "B01"): 3}


def test_qrels_that_quepid_exports():
    """With an empty line before each, and the number of the query in Quepid as topic."""
    text = "\n12 0 B01 3\n\n12 0 B02 0\n\n13 0 B03 1\n"
    found = read_judgments(text, "trec", queries={12: "12", 13: "13"})
    assert pairs_of(found) == {(12, "B01"): 3, (12, "B02"): 0, (13, "B03"): 1}


def test_lists_that_quepid_exports_for_ltr():
    """The text of the query follows the document; the number is that of Quepid."""
    text = "\n3 qid:12 # B01 red tent\n\n0 qid:12 # B02 red tent\n\n1 qid:13 # B03 stove, gas\n"
    found = read_judgments(text, "ranklib")
    assert pairs_of(found) == {("12", "B01"): 3, ("12", "B02"): 0, ("13", "B03"): 1}


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
