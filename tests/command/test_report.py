"""The report on a log: its roles, its faults and its code, from any kind of frame and file."""

import json
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest

from skultr import describe_log
from skultr.__main__ import main
from skultr.command._thresholds import MOST_ROWS


@pytest.fixture(scope="module")
def shop():
    """A shop's log under its own names, and the roles that its columns have."""
    rng = np.random.default_rng(0)
    pages, shown = 400, 5
    query = np.repeat(rng.integers(20, size=pages), shown)
    item = np.concatenate([rng.permutation(8)[:shown] for _ in range(pages)])
    slot = np.tile(np.arange(shown), pages)
    clicked = rng.random(len(query)) < 0.6 / (1 + slot) * (1 + item % 3) / 3
    frame = pd.DataFrame(
        {
            "event_time": np.repeat(pd.date_range("2026-01-01", periods=pages, freq="h"), shown),
            "queryText": [f"q{i}" for i in query],
            "page_view_id": np.repeat([f"p{i}" for i in range(pages)], shown),
            "customer": np.repeat([f"u{i % 50}" for i in range(pages)], shown),
            "product_id": [f"sku{i}" for i in item],
            "slot": slot,
            "is_click": clicked,
            "add_to_cart": clicked & (rng.random(len(query)) < 0.3),
            "device": np.repeat(rng.choice(["phone", "desktop"], pages), shown),
            "brand": np.array(["a", "b", "<i>"])[item % 3],
            "price": 10.0 + query + item,
            "stock": rng.poisson(20, len(query)),
        }
    )
    frame.loc[::7, "price"] = np.nan
    names = {
        "queryText": "qid",
        "page_view_id": "session",
        "product_id": "doc",
        "slot": "position",
        "is_click": "click",
        "customer": "user",
        "add_to_cart": "outcome_add_to_cart",
    }
    return frame, names


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy", "pyarrow"])
def test_roles_are_proposed_from_names_and_values(kind, shop):
    frame, names = shop
    made = {
        "pandas": lambda: frame,
        "polars": lambda: pl.from_pandas(frame),
        "lazy": lambda: pl.from_pandas(frame).lazy(),
        "pyarrow": lambda: pl.from_pandas(frame).to_arrow(),
    }[kind]()
    report = describe_log(made)
    assert report.rename == names
    assert report.n_pages == 400
    assert report.n_queries == 20
    assert report.outcomes == ["add_to_cart"]
    assert "Identifiable" in report.verdict
    assert report.columns.loc["stock", "varies"] > 0.9
    assert report.columns.loc["brand", "varies"] == 0
    assert report.columns.loc["price", "missing"] == pytest.approx(1 / 7, abs=0.01)
    assert any("count from 0" in fault for fault in report.faults)
    assert any("'device'" in remark for remark in report.remarks)
    assert list(report.clicks.index) == [1, 2, 3, 4, 5]


def test_the_code_trains(shop):
    log, _ = shop
    report = describe_log(log)
    assert report.code.count("'event_time'") == 1  # one value per page, and a time
    _check_ranks(_run(report.code, log))


def _run(code, log=None):
    """The names that the code leaves, with a ranker that is soon trained."""
    code = code.replace("EnsembleRanker()", "LambdaMARTRanker(n_estimators=2)")
    space = {"log": log}
    exec(code.replace("import EnsembleRanker", "import LambdaMARTRanker"), space)
    return space


def _check_ranks(space):
    """The candidates of each query have the ranks of their scores."""
    ranked = space["candidates"].sort_values(["qid", "rank"])
    assert not ranked.duplicated(["qid", "doc"]).any()
    for _, query in ranked.groupby("qid"):
        assert query["rank"].tolist() == [*range(1, len(query) + 1)]
        assert query["score"].is_monotonic_decreasing


@pytest.mark.parametrize("suffix", ["parquet", "csv", "ndjson"])
@pytest.mark.parametrize("polars", [True, False])
def test_the_code_of_a_file_reads_it(suffix, polars, shop, tmp_path, monkeypatch):
    path = tmp_path / f"log.{suffix}"
    getattr(pl.from_pandas(shop[0]), f"write_{suffix}")(path)
    if not polars:
        monkeypatch.setitem(sys.modules, "polars", None)
    code = describe_log(path).code
    monkeypatch.undo()
    assert ("pl.read_" if polars else "pd.read_") in code
    space = _run(code)
    if polars:
        space["candidates"] = space["candidates"].to_pandas()
    _check_ranks(space)


#: Names of another language, and the roles.
GERMAN = {
    "suchbegriff": "qid",
    "serp": "session",
    "artikel": "doc",
    "platz": "position",
    "geklickt": "click",
}


@pytest.fixture(scope="module")
def german(shop):
    """The log under names of another language, with words for the clicks."""
    frame, names = shop
    roles = {role: name for name, role in GERMAN.items()}
    log = frame.rename(columns={name: roles.get(role, role) for name, role in names.items()})
    log["geklickt"] = np.where(log["geklickt"], "ja", "nein")
    return log.drop(columns=["event_time", "user"])


#: Names that tell nothing, of the same columns.
NUMBERED = {name: f"col_{number}" for number, name in enumerate(GERMAN)}


def test_names_of_another_language_are_known(german):
    report = describe_log(german)
    assert report.rename == GERMAN
    assert report.faults == ["Positions count from 0: add 1, as the code below does."]


def test_what_nothing_tells_is_left_open(german):
    """All queries of this log show the same documents: each column of the page may be one."""
    log = german.rename(columns=NUMBERED)
    report = describe_log(log)
    assert {NUMBERED[name]: role for name, role in GERMAN.items()}.items() > report.rename.items()
    assert {*report.rename.values()} == {"doc", "position", "click"}
    assert (report.n_queries, report.n_pages, report.n_documents) == (0, 0, 0)
    assert "queries" not in str(report).splitlines()[1]
    assert "fit" not in report.code
    assert "'<the query>': 'qid'" in report.code
    assert "'col_0'" in report.code
    assert report.faults[0].startswith("No column looks like the role 'qid'")
    assert "It may be 'col_0'." in report.faults[0]


def test_without_a_position_names_alone_are_not_enough(german):
    log = german.rename(columns=NUMBERED).drop(columns="col_3")
    report = describe_log(log)
    assert [fault.split("'")[1] for fault in report.faults[:4]] == [
        "qid",
        "doc",
        "position",
        "click",
    ]
    flags = describe_log(log.assign(col_4=(log["col_4"] == "ja").astype(int)))
    assert "It may be 'col_4'." in flags.faults[3]


def test_rename_completes_the_code_and_words_become_clicks(german, tmp_path, capsys):
    _check_ranks(_run(describe_log(german, rename=GERMAN).code, german))
    german.to_parquet(tmp_path / "log.parquet")
    first, *pairs = [f"{name}={role}" for name, role in GERMAN.items()]
    given = "--rename", first, "--rename", *pairs
    assert main(["check", str(tmp_path / "log.parquet"), *given]) == 1
    text = capsys.readouterr().out
    assert "20 queries, 400 result pages" in text
    clicks = _run(text.partition("\nCode\n")[2])["log"]["click"]
    assert clicks.to_list() == (german["geklickt"] == "ja").tolist()


def test_positions_are_found_by_values_in_any_order(german):
    log = german.rename(columns={"platz": "col_3"}).sample(frac=1, random_state=0)
    assert describe_log(log).rename["col_3"] == "position"
    torn = log.drop(log.index[:40])
    assert describe_log(torn).rename["col_3"] == "position"
    two = describe_log(log.assign(col_4=log["col_3"]))
    assert "position" not in two.rename.values()
    assert "It may be 'col_3'. It may be 'col_4'." in two.faults[0]


def test_clicks_do_not_count_the_rows_of_pages():
    log = pd.DataFrame({"suche": [1] * 8 + [2] * 8, "col_1": [0, 1] * 8})
    assert describe_log(log).rename == {"suche": "qid"}


def test_words_for_outcomes_become_numbers(german):
    words = german.rename(columns={"outcome_add_to_cart": "add_to_cart"})
    words["add_to_cart"] = np.where(words["add_to_cart"], "yes", "no")
    report = describe_log(words, rename=GERMAN)
    assert report.outcomes == ["add_to_cart"]
    assert not any("add_to_cart" in fault for fault in report.faults)
    assert _run(report.code, words)["log"]["outcome_add_to_cart"].dtype == bool


@pytest.mark.parametrize(
    "rename",
    [{"sku": "doc"}, {"slot": "place"}, {"slot": "doc", "product_id": "doc"}],
)
def test_a_rename_that_fits_no_log_is_an_error(rename, shop):
    with pytest.raises(ValueError, match="expected roles"):
        describe_log(shop[0], rename=rename)


def test_a_role_of_two_columns_is_an_error(shop):
    log = shop[0].assign(doc=1, click=0)
    with pytest.raises(ValueError, match="expected roles"):
        describe_log(log, rename={"product_id": "doc"})
    assert describe_log(log, rename={"is_click": "click"}).rename["click"] == "outcome_click"


def test_rename_without_a_role_is_one_line(tmp_path, capsys, shop):
    shop[0].to_parquet(tmp_path / "log.parquet")
    assert main(["check", str(tmp_path / "log.parquet"), "--rename", "slot"]) == 2
    assert "expected roles" in capsys.readouterr().err


def test_bias_factors_have_few_values(shop):
    log = shop[0].assign(event_time=shop[0]["event_time"].astype(str))
    remarks = describe_log(log).remarks
    assert any("bias=['position', 'device'])" in remark for remark in remarks)
    only = describe_log(log.drop(columns="device")).remarks
    assert any("'event_time'" in remark for remark in only)
    assert not any("IdentifiabilityRepair" in remark for remark in only)


@pytest.mark.parametrize("frame", [lambda log: log, pl.from_pandas])
def test_an_incomplete_user_costs_no_rows(frame, shop):
    log = shop[0].assign(customer=shop[0]["customer"].where(shop[0].index % 5 > 0))
    report = describe_log(frame(log))
    assert any("Drop the column" in fault for fault in report.faults)
    rest = _run(report.code, frame(log))["log"]
    assert len(rest) == len(log)
    assert "user" not in rest.columns


def test_records_of_a_search_engine_name_their_command(tmp_path, capsys):
    lines = [{"query_id": "q", "user_query": "tent", "query_attributes": {}}]
    lines.append({"query_id": "q", "event_attributes": {"position": {"ordinal": 1}}})
    (tmp_path / "ubi.ndjson").write_text("\n".join(map(json.dumps, lines)))
    assert main(["check", str(tmp_path / "ubi.ndjson")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "use the command skultr ubi" in line


def test_the_code_makes_labels_where_no_column_is_a_feature():
    pages = {"query": [1] * 8, "session": [1, 1, 2, 2, 3, 3, 4, 4], "item": [1, 2, 2, 1] * 2}
    log = pd.DataFrame(pages).assign(rank=[1, 2] * 4, clicked=[1, 0, 0, 1, 1, 0, 1, 0])
    space = {"log": log}
    code = describe_log(log).code
    assert "# No column is a feature" in code
    exec(code, space)
    assert space["labels"]["label"].between(0, 1).all()


def test_html_is_escaped(shop):
    frame, _ = shop
    page = describe_log(frame.rename(columns={"brand": "<b>brand</b>"}))._repr_html_()
    assert "<b>brand" not in page
    assert "&lt;b&gt;brand" in page


def test_faults_are_reported_and_never_raised(shop):
    frame, _ = shop
    assert "no rows" in describe_log(frame[:0]).faults[0]
    assert any("'position'" in fault for fault in describe_log(frame[["brand"]]).faults)
    torn = frame.sample(frac=0.6, random_state=0)
    assert any("gaps" in remark for remark in describe_log(torn).remarks)
    clicked = describe_log(frame[frame["is_click"]])
    assert any("Every shown row is clicked" in fault for fault in clicked.faults)
    nulls = frame.assign(product_id=frame["product_id"].where(frame.index > 3))
    assert any("'doc' is missing in 4 rows" in fault for fault in describe_log(nulls).faults)
    text = frame.assign(is_click=np.where(frame["is_click"], "buy", "leave"))
    text = describe_log(text, click="is_click")
    assert any("numbers, got" in fault and "'buy'" in fault for fault in text.faults)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "ndjson"])
def test_check_reads_files(suffix, shop, tmp_path, capsys):
    frame = pl.from_pandas(shop[0])
    path = tmp_path / f"log.{suffix}"
    getattr(frame, f"write_{suffix}")(path)
    assert main(["check", str(path), "--html", str(tmp_path / "out.html")]) == 1
    text = capsys.readouterr().out
    assert "400 result pages" in text
    assert 'ranker.fit(log, "click")' in text
    assert "</html>" in (tmp_path / "out.html").read_text()


def test_check_of_no_log(tmp_path, capsys):
    (tmp_path / "log.xls").write_text("")
    assert main(["check", str(tmp_path / "log.xls")]) == 2
    assert "expected .parquet" in capsys.readouterr().err


def test_long_logs_are_read_by_whole_queries(shop, monkeypatch):
    fewer = MOST_ROWS._replace(value=1_000)
    monkeypatch.setattr("skultr.command._report.MOST_ROWS", fewer)
    log = pl.from_pandas(shop[0]).lazy()
    report = describe_log(log)
    given = describe_log(log.rename({"queryText": "suche"}), rename={"suche": "qid"})
    assert (given.n_rows, given.n_queries) == (report.n_rows, report.n_queries)
    assert report.n_rows < 1_000
    assert any("2,000 rows" in remark for remark in report.remarks)


def test_lost_rows_are_counted(shop):
    """Between rows of a page; what was lost at its end cannot be seen."""
    frame, _ = shop
    assert not any("gaps" in remark for remark in describe_log(frame).remarks)
    lost = frame.index.isin([1, 7, 8, 11, 14])  # slot 1; 2 and 3; 1; the last of its page
    (remark,) = (each for each in describe_log(frame[~lost]).remarks if "gaps" in each)
    assert remark.startswith("3 of 400 pages of several rows (0.8%) have gaps: at least 4 rows")
    pages = frame.drop(columns="page_view_id")  # pages of a query are one
    assert not any("gaps" in remark for remark in describe_log(pages).remarks)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_rows_without_features_are_counted(kind, shop):
    frame = shop[0].drop(columns="brand").copy()
    frame["price"] = frame["price"].fillna(1.0)
    frame.loc[::20, ["price", "stock"]] = np.nan
    frame = frame if kind == "pandas" else pl.from_pandas(frame)
    remarks = describe_log(frame).remarks
    assert any("100 of 2,000 rows (5.0%) all 2 features are missing" in each for each in remarks)
