"""The command ``python -m skultr ubi``: what it writes, and what it says of unfit input."""

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from skultr.__main__ import main
from skultr.serving import load_model

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "7_engines"))
from simulated_shop import FEATURES, open_shop, serve, write_ndjson, write_parquet

JUDGMENTS = {"judgments.json", "judgments.csv", "judgments.qrels", "topics.csv"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shop")


@pytest.fixture(scope="module")
def shop():
    return open_shop(n_queries=40, n_products=8, random_state=0)


@pytest.fixture(scope="module")
def visits(shop):
    return serve(shop, 3_000, temperature=0.5, n_positions=5, random_state=0)


@pytest.fixture(scope="module")
def log_file(visits, folder):
    write_ndjson(visits, folder / "ubi.ndjson")
    return folder / "ubi.ndjson"


@pytest.fixture(scope="module")
def features(shop):
    return shop[["qid", "doc", *FEATURES]].rename(columns={"qid": "query"})


def _run(*arguments):
    return main(["ubi", *map(str, arguments)])


def _text_of(page):
    """The text of an HTML file; tags have to be closed in order."""

    class Reader(HTMLParser):
        text, still_open = "", []

        def handle_starttag(self, tag, attributes):
            assert not {"src", "href"} & {name for name, _ in attributes}, (
                "one file needs no other"
            )
            if tag != "meta":
                self.still_open.append(tag)

        def handle_startendtag(self, tag, attributes):
            pass

        def handle_endtag(self, tag):
            assert self.still_open.pop() == tag

        def handle_data(self, data):
            self.text += data

    reader = Reader()
    reader.feed(page.read_text(encoding="utf-8"))
    assert not reader.still_open
    return " ".join(reader.text.split())


def test_a_log_with_features_becomes_judgments_and_a_model(
    log_file, features, shop, tmp_path, capsys
):
    features.to_csv(tmp_path / "features.csv", index=False)
    out = tmp_path / "out"
    assert _run(log_file, "--out", out, "--features", tmp_path / "features.csv") == 0
    said = capsys.readouterr()
    assert not said.err
    written = {path.name for path in out.iterdir()}
    assert written == {"report.html", "log.parquet", "model.xgboost.json", "model.zip", *JUDGMENTS}
    assert all(f"wrote {out / name}" in said.out for name in written)
    assert "next: Upload `judgments.json`" in said.out
    assert "next: Held-out clicks" in said.out

    body = json.loads((out / "judgments.json").read_text())
    pairs = {
        (q["query"].lower().strip(), r["docId"])
        for q in body["judgmentRatings"]
        for r in q["ratings"]
    }
    assert pairs <= set(zip(shop["qid"], shop["doc"], strict=True))
    assert body["name"] == "skultr"
    judged = pd.read_csv(out / "judgments.csv")
    assert len(judged) == len(pairs) == len((out / "judgments.qrels").read_text().splitlines())

    definition = json.loads(
        json.loads((out / "model.xgboost.json").read_text())["model"]["model"]["definition"]
    )
    assert isinstance(definition, list)
    scores = load_model(out / "model.zip").predict(shop)
    assert np.corrcoef(scores, shop["relevance"])[0, 1] > 0.2

    text = _text_of(out / "report.html")
    assert "This log supports judgments." in text
    assert f"{len(judged):,} of" in text
    assert "are unrated, not irrelevant: they were looked at less than once." in text
    assert "is prior on average" in text
    assert "ratings would differ as much as these in 0.0% of logs" in text
    assert "They decide only between rankings that differ enough" in text
    assert 'with gain="linear"' in text
    assert "policy_difference" in text
    assert "A ranking is not to be trained by them" in text
    assert "to compare rankings by" in body["description"]
    assert "Not saved" not in text
    assert "to predict, not to fit again" in text
    assert "is prior on average" in said.out


def test_the_log_is_that_of_the_file(log_file, visits, tmp_path):
    assert _run(log_file, "--out", tmp_path) == 0
    log = pd.read_parquet(tmp_path / "log.parquet")
    assert len(log) == len(visits.impressions)
    assert log["click"].sum() == visits.impressions["click"].sum()


def test_parquet_files_give_the_same_judgments(log_file, visits, tmp_path):
    queries, events = tmp_path / "queries.parquet", tmp_path / "events.parquet"
    write_parquet(visits, queries, events)
    assert _run(log_file, "--out", tmp_path / "a") == 0
    assert _run("--queries", queries, "--events", events, "--out", tmp_path / "b") == 0
    a, b = ((tmp_path / name / "judgments.csv").read_text() for name in "ab")
    assert sorted(a.splitlines()) == sorted(b.splitlines())


def test_the_files_of_both_indices_may_stand_side_by_side(log_file, tmp_path):
    lines = log_file.read_text(encoding="utf-8").splitlines(keepends=True)
    halves = {"queries": [], "events": []}
    for line in lines:
        if '"index"' not in line:
            halves["events" if '"action_name"' in line else "queries"].append(line)
    files = [tmp_path / f"{name}.ndjson" for name in halves]
    for file, half in zip(files, halves.values(), strict=True):
        file.write_text("".join(half), encoding="utf-8")
    assert _run(log_file, "--out", tmp_path / "a") == 0
    assert _run(*files, "--out", tmp_path / "b") == 0
    a, b = ((tmp_path / name / "judgments.csv").read_text() for name in "ab")
    assert a == b
    assert f"{files[0]} and {files[1]}" in _text_of(tmp_path / "b" / "report.html")


def test_queries_alone_ask_for_the_events(tmp_path, capsys):
    search = {"query_id": "a", "user_query": "tent", "query_response_hit_ids": ["1", "2"]}
    path = tmp_path / "ubi_queries.ndjson"
    path.write_text(json.dumps(search), encoding="utf-8")
    assert _run(path, "--out", tmp_path / "out") == 2
    assert "There are no events: give the file of ubi_events, too." in capsys.readouterr().err


def test_without_features_the_report_says_why_there_is_no_model(log_file, tmp_path):
    assert _run(log_file, "--out", tmp_path) == 0
    assert not list(tmp_path.glob("model*"))
    assert "No model was trained: a click log has no features" in _text_of(
        tmp_path / "report.html"
    )


def test_a_log_of_one_order_is_not_pretended_to_support_judgments(
    shop, features, tmp_path, capsys
):
    features.to_parquet(tmp_path / "f.parquet")
    out = tmp_path / "out"
    visits = serve(shop, 300, temperature=1e-9, n_positions=5)
    write_ndjson(visits, tmp_path / "ubi.ndjson")
    given = "--features", tmp_path / "f.parquet"
    assert _run(tmp_path / "ubi.ndjson", "--out", out, *given) == 0
    said = capsys.readouterr()
    assert "does not support judgments" in said.err
    assert "by an assumed curve" in said.out
    text = _text_of(out / "report.html")
    assert "This log does not support judgments." in text
    assert "Assumed, not estimated" in text
    assert "holds only if the assumed curve does" in text
    assert "Upload" not in text
    written = {path.name for path in out.iterdir()}
    models = {"model.xgboost.json", "model.zip"}
    assert written == {
        "report.html",
        "log.parquet",
        *(f"assumed-{name}" for name in JUDGMENTS | models),
    }
    name = json.loads((out / "assumed-judgments.json").read_text())["name"]
    assert name == "skultr, examination assumed"
    model = json.loads((out / "assumed-model.xgboost.json").read_text())
    assert model["model"]["name"] == "skultr-assumed"
    assert "against the order served. This holds only if the assumed curve does." in text


def test_without_matplotlib_the_curve_is_a_table(log_file, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert _run(log_file, "--out", tmp_path) == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<svg" not in page
    assert "standard_error" in page


def test_a_second_run_leaves_no_file_of_the_first(log_file, features, shop, tmp_path):
    features.to_parquet(tmp_path / "features.parquet")
    out = tmp_path / "out"
    assert _run(log_file, "--out", out, "--features", tmp_path / "features.parquet") == 0
    write_ndjson(serve(shop, 60, temperature=1e-9, n_positions=5), tmp_path / "few.ndjson")
    assert _run(tmp_path / "few.ndjson", "--out", out, "--grades", 0, 0.5) == 0
    judged = {"assumed-judgments.json", "assumed-judgments.csv"}
    assert {path.name for path in out.iterdir()} == {"report.html", "log.parquet", *judged}
    assert "Left out: assumed-judgments.qrels" in _text_of(out / "report.html")


def test_a_run_that_fails_leaves_the_earlier_one_as_it_was(log_file, features, tmp_path):
    out = tmp_path / "out"
    assert _run(log_file, "--out", out) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    features.assign(doc="other").drop_duplicates("query").to_parquet(tmp_path / "f.parquet")
    assert _run(log_file, "--out", out, "--features", tmp_path / "f.parquet") == 2
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_documents_without_features_are_counted(log_file, features, tmp_path, capsys):
    features.iloc[::2].to_parquet(tmp_path / "half.parquet")
    out = tmp_path / "out"
    assert _run(log_file, "--out", out, "--features", tmp_path / "half.parquet") == 0
    counted = "impressions have no features, and were left out"
    assert counted in _text_of(out / "report.html")
    assert counted in capsys.readouterr().out


def test_missing_features_count_as_zero(log_file, features, tmp_path):
    holes = features.assign(price=features["price"].where(features.index % 3 > 0))
    outs = []
    for name, table in {"holes": holes, "zeros": holes.fillna({"price": 0})}.items():
        table.to_parquet(tmp_path / f"{name}.parquet")
        outs.append(tmp_path / name)
        assert _run(log_file, "--out", outs[-1], "--features", f"{outs[-1]}.parquet") == 0
    one, other = ((out / "model.xgboost.json").read_text() for out in outs)
    assert one == other
    assert "107 missing values of 1 features count as 0" in _text_of(outs[0] / "report.html")


def test_clicks_that_are_sure_of_nothing_give_no_judgments_to_upload(tmp_path, capsys):
    at = {"object": {"object_id": "d"}, "position": {"ordinal": 1}}
    event = {"query_id": "q", "event_attributes": at}
    actions = [{**event, "action_name": name} for name in ("impression", "click")]
    lines = [{"query_id": "q", "user_query": "tent"}, *actions]
    (tmp_path / "one.ndjson").write_text("\n".join(map(json.dumps, lines)))
    assert _run(tmp_path / "one.ndjson", "--out", tmp_path) == 0
    assert "does not separate good documents from bad ones" in capsys.readouterr().err
    assert "Do not upload the judgments" in _text_of(tmp_path / "report.html")


def test_clicks_at_random_give_no_judgments_to_upload(tmp_path, capsys):
    rng = np.random.default_rng(0)
    lines = []
    for page in range(400):
        names = {"query_id": f"{page}"}
        lines.append({**names, "user_query": f"tent {page % 4}"})
        for place, number in enumerate(rng.permutation(10)[:5], start=1):
            at = {"object": {"object_id": f"d{number}"}, "position": {"ordinal": place}}
            event = {**names, "event_attributes": at}
            lines.append({**event, "action_name": "impression"})
            if rng.random() < 0.2:
                lines.append({**event, "action_name": "click"})
    (tmp_path / "noise.ndjson").write_text("\n".join(map(json.dumps, lines)))
    assert _run(tmp_path / "noise.ndjson", "--out", tmp_path) == 0
    assert "This log cannot tell good documents from bad ones." in capsys.readouterr().err
    text = _text_of(tmp_path / "report.html")
    assert "most of what they compare is chance" in text
    # The grades alone do not show it.
    judged = pd.read_csv(tmp_path / "judgments.csv")
    assert judged["rating"].nunique() > 1


def test_topics_are_those_of_the_application_that_is_read(tmp_path):
    lines = []
    for shop in ("a", "b"):
        for page in range(30):
            names = {"query_id": f"{shop}{page}", "application": shop}
            lines.append({**names, "user_query": f"tent {shop}"})
            for place in (1, 2):
                doc = {"object_id": f"d{(place + page) % 2}"}
                at = {"object": doc, "position": {"ordinal": place}}
                event = {**names, "event_attributes": at}
                lines.append({**event, "action_name": "impression"})
                if page % (2 * place):
                    lines.append({**event, "action_name": "click"})
    (tmp_path / "two.ndjson").write_text("\n".join(map(json.dumps, lines)))
    assert _run(tmp_path / "two.ndjson", "--out", tmp_path, "--application", "b") == 0
    (topics,) = tmp_path.glob("*topics.csv")
    assert topics.read_text() == "topic,user_query\n1,tent b\n"


def _with_devices(log_file, path):
    """The log with a device of each search, and a price of each impression."""
    lines = []
    for line in log_file.read_text().splitlines():
        document = json.loads(line)
        if "query_attributes" in document:
            document["query_attributes"]["device"] = ["phone", "desktop"][len(lines) % 4 // 2]
        if document.get("action_name") == "impression":
            document["event_attributes"]["object"]["price"] = len(lines)
        lines.append(json.dumps(document))
    path.write_text("\n".join(lines))
    return path


def test_kept_columns_are_in_the_log_and_change_nothing_else(log_file, features, tmp_path, capsys):
    path = _with_devices(log_file, tmp_path / "more.ndjson")
    features.to_parquet(tmp_path / "f.parquet")
    given = "--features", tmp_path / "f.parquet"
    assert _run(path, "--out", tmp_path / "a", *given) == 0
    assert _run(path, "--out", tmp_path / "b", *given, "--keep", "device", "price") == 0
    plain, kept = (pd.read_parquet(tmp_path / name / "log.parquet") for name in "ab")
    pd.testing.assert_frame_equal(kept[list(plain)], plain)
    assert list(kept)[len(plain.columns) :] == ["device", "price"]
    assert set(kept["device"]) == {"phone", "desktop"}
    assert kept["price"].notna().all()
    for name in ("judgments.csv", "model.xgboost.json"):
        assert (tmp_path / "a" / name).read_text() == (tmp_path / "b" / name).read_text()
    assert "device, price as --keep says" in _text_of(tmp_path / "b" / "report.html")


def test_a_name_to_keep_that_the_log_lacks_is_an_error_that_quotes_the_others(
    log_file, tmp_path, capsys
):
    path = _with_devices(log_file, tmp_path / "more.ndjson")
    out = tmp_path / "out"
    assert _run(path, "--out", out, "--keep", "device", "--keep", "shop") == 2
    error = capsys.readouterr().err
    assert "has a value of the attributes ['shop']. Found: 'device', 'price'." in error
    assert not out.exists()


def test_a_fault_of_skultr_keeps_its_traceback(log_file, tmp_path, monkeypatch):
    monkeypatch.setattr("skultr.command._verdict._level", lambda *_: np.zeros(2) + np.zeros(3))
    with pytest.raises(ValueError, match="broadcast"):
        _run(log_file, "--out", tmp_path)


@pytest.mark.parametrize("form", ["xgboost+json+raw", "ranklib", "solr", "lightgbm", "elastic"])
def test_every_format_is_written(form, log_file, features, tmp_path):
    features.to_parquet(tmp_path / "f.parquet")
    assert (
        _run(log_file, "--out", tmp_path, "--features", tmp_path / "f.parquet", "--format", form)
        == 0
    )
    (model,) = tmp_path.glob("model.*.json")
    json.loads(model.read_text())


def test_ids_and_queries_with_signs_stay_text(tmp_path):
    rng = np.random.default_rng(0)
    docs = ['<b>"x"</b>', "ü,;'", "a\\b", "&amp;"]
    lines = []
    for page in range(400):
        query = {"query_id": f"q{page}", "user_query": 'schöne <script>, "rot"'}
        lines.append(query)
        for place, i in enumerate(rng.permutation(4)):
            at = {"object": {"object_id": docs[i]}, "position": {"ordinal": place}}
            event = {"query_id": f"q{page}", "event_attributes": at}
            lines.append({**event, "action_name": "impression"})
            if rng.random() < 0.6 / (1 + place):
                lines.append({**event, "action_name": "click"})
    path = tmp_path / "<i>.ndjson"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    out = tmp_path / "out"
    assert _run(path, "--out", out) == 0
    assert "<i>.ndjson" in _text_of(out / "report.html")
    judged = pd.read_csv(out / "judgments.csv")
    assert set(judged["docid"]) == set(docs)
    (query,) = json.loads((out / "judgments.json").read_text(encoding="utf-8"))["judgmentRatings"]
    assert query["query"] == 'schöne <script>, "rot"'


def _without(column):
    return lambda table: table.drop(columns=column)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without("query"), "expected query, doc and one per feature"),
        (_without(FEATURES), "expected query, doc and one per feature"),
        (lambda table: pd.concat([table, table]), "two rows of query"),
        (lambda table: table.assign(brand="x", shop="y"), "'brand', 'shop'"),
        (lambda table: table.assign(position=1), "'position'"),
        (
            lambda table: table.assign(doc="other").drop_duplicates(["query", "doc"]),
            "is in the log",
        ),
        (lambda table: table[["query", "doc"]].assign(one=1.0), "no feature differs"),
        (lambda table: table.assign(price=np.nan), "'price'"),
        (lambda table: table.assign(price=np.inf), "'price'"),
        (lambda table: table.assign(doc=table["doc"].where(table.index > 0)), "without query or"),
        (lambda table: table.iloc[:0], "no rows"),
    ],
)
def test_features_that_cannot_be_used_are_one_line(
    change, message, log_file, features, tmp_path, capsys
):
    change(features).to_parquet(tmp_path / "f.parquet")
    out = tmp_path / "new" / "out"
    assert _run(log_file, "--out", out, "--features", tmp_path / "f.parquet") == 2
    assert not out.parent.exists()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("skultr ubi: error: ")
    assert message in line


def _no_click(path):
    event = {"query_id": "q", "action_name": "impression"}
    at = {"object": {"object_id": "d"}, "position": {"ordinal": 1}}
    lines = [{"query_id": "q", "user_query": "tent"}, {**event, "event_attributes": at}]
    path.write_text("\n".join(map(json.dumps, lines)))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.write_text(""), "UBI"),
        (lambda path: path.write_text("a,b\n1,2\n"), "UBI"),
        (lambda path: path.write_bytes(bytes(range(256)) * 9), "UBI"),
        (lambda path: path.mkdir(), ""),
        (_no_click, "has a click"),
    ],
)
def test_a_file_that_is_no_log_is_one_line_and_code_2(write, message, tmp_path, capsys):
    write(tmp_path / "log.ndjson")
    assert _run(tmp_path / "log.ndjson", "--out", tmp_path / "out") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not (tmp_path / "out" / "report.html").exists()


def test_a_log_that_is_no_parquet_is_named(tmp_path, capsys):
    (tmp_path / "log.parquet").write_text("PAR1")
    assert _run(tmp_path / "log.parquet", "--out", tmp_path / "out") == 2
    assert "log.parquet cannot be read as Parquet" in capsys.readouterr().err


def test_file_and_pair_of_files_exclude_each_other(log_file, tmp_path, capsys):
    assert _run("--queries", log_file, "--out", tmp_path) == 2
    assert _run(log_file, "--queries", log_file, "--events", log_file, "--out", tmp_path) == 2
    assert capsys.readouterr().err.count("Give FILE, or both --queries and --events") == 2


@pytest.mark.parametrize("grades", [["1"], ["1", "0"], ["0", "0"], ["0", "nan"]])
def test_grades_rise(grades, log_file, tmp_path, capsys):
    assert _run(log_file, "--out", tmp_path, "--grades", *grades) == 2
    assert "expected two or more numbers that rise" in capsys.readouterr().err


@pytest.mark.parametrize("n_pages", [1, 5, 40])
def test_few_pages_end_in_a_report_or_one_line(n_pages, shop, features, tmp_path, capsys):
    write_ndjson(serve(shop, n_pages, temperature=0.5, random_state=3), tmp_path / "few.ndjson")
    features.to_parquet(tmp_path / "f.parquet")
    code = _run(tmp_path / "few.ndjson", "--out", tmp_path, "--features", tmp_path / "f.parquet")
    error = capsys.readouterr().err
    assert (code == 0) == (tmp_path / "report.html").exists()
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("text", ["", "PAR1 no Parquet", "query,doc,a\n1,2\n1,2,3,4\n"])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_features_that_no_reader_reads_are_named(text, suffix, log_file, tmp_path, capsys):
    name = tmp_path / f"features.{suffix}"
    name.write_text(text)
    assert _run(log_file, "--out", tmp_path / "out", "--features", name) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert name.name in line


@pytest.mark.parametrize("below", ["", "/folder"])
def test_out_is_a_folder(below, log_file, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert _run(log_file, "--out", f"{tmp_path}/file{below}") == 2
    assert "expected a folder" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"


def test_an_application_that_is_not_there_is_named(log_file, tmp_path, capsys):
    assert _run(log_file, "--out", tmp_path, "--application", "web") == 2
    assert "expected one of ['shop']" in capsys.readouterr().err


def test_the_module_runs_as_a_command(tmp_path):
    command = [sys.executable, "-m", "skultr", "ubi", "missing", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
