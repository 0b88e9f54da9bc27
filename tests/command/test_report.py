"""The report on a log: its roles, its faults and its code, from any kind of frame and file."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from skultr import describe_log
from skultr.__main__ import main


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
    code = report.code.replace("EnsembleRanker()", "LambdaMARTRanker(n_estimators=2)")
    space = {"log": log}
    exec(code.replace("import EnsembleRanker", "import LambdaMARTRanker"), space)
    assert space["ranker"].predict(space["log"].head(5)).shape == (5,)


def test_the_code_makes_labels_where_no_column_is_a_feature():
    pages = {"query": [1] * 8, "session": [1, 1, 2, 2, 3, 3, 4, 4], "item": [1, 2, 2, 1] * 2}
    log = pd.DataFrame(pages).assign(rank=[1, 2] * 4, clicked=[1, 0, 0, 1, 1, 0, 1, 0])
    space = {"log": log}
    exec(describe_log(log).code, space)
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
    text = frame.assign(is_click=np.where(frame["is_click"], "yes", "no"))
    text = describe_log(text, click="is_click")
    assert any("numbers, got" in fault and "'yes'" in fault for fault in text.faults)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "ndjson"])
def test_check_reads_files(suffix, shop, tmp_path, capsys):
    frame = pl.from_pandas(shop[0])
    path = tmp_path / f"log.{suffix}"
    getattr(frame, f"write_{suffix}")(path)
    assert main(["check", str(path), "--html", str(tmp_path / "out.html")]) == 0
    text = capsys.readouterr().out
    assert "400 result pages" in text
    assert 'ranker.fit(log, "click")' in text
    assert "</html>" in (tmp_path / "out.html").read_text()


def test_check_of_no_log(tmp_path, capsys):
    (tmp_path / "log.xls").write_text("")
    assert main(["check", str(tmp_path / "log.xls")]) == 2
    assert "expected .parquet" in capsys.readouterr().err


def test_long_logs_are_read_by_whole_queries(shop, monkeypatch):
    monkeypatch.setattr("skultr.command._report._ROWS", 1_000)
    report = describe_log(pl.from_pandas(shop[0]).lazy())
    assert report.n_rows <= 1_000
    assert any("2,000 rows" in remark for remark in report.remarks)
