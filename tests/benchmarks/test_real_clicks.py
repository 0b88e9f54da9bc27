"""The study of real clicks on small files in the layout of the real ones."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.studies import real_clicks as study
from skultr.simulation import PositionBasedUser

N_QUERIES, N_DOCUMENTS, N_LAYOUTS = 6, 6, 5


def simulated(n_sessions, seed=0):
    """Pages of six queries in five orders each, of users who look at position k with 1 / k."""
    rng = np.random.default_rng(seed)
    relevance = rng.beta(1, 2, size=(N_QUERIES, N_DOCUMENTS))
    layouts = rng.permuted(np.tile(np.arange(N_DOCUMENTS), (N_QUERIES, N_LAYOUTS, 1)), axis=2)
    query = rng.integers(N_QUERIES, size=n_sessions)
    order = layouts[query, rng.integers(N_LAYOUTS, size=n_sessions)]
    clicked = PositionBasedUser(1.0).click(relevance[query[:, None], order], rng)
    grade = np.minimum(5 * relevance, 4).astype(int)
    return pd.DataFrame(
        {
            "session": np.repeat(np.arange(n_sessions), N_DOCUMENTS),
            "qid": np.repeat(query, N_DOCUMENTS),
            "doc": order.ravel(),
            "position": np.tile(np.arange(1, N_DOCUMENTS + 1), n_sessions),
            "click": clicked.ravel().astype(int),
            "label": grade[query[:, None], order].ravel(),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A log of Yandex with its regions, and one of TREC with its sessions and grades."""
    path = tmp_path_factory.mktemp("logs")
    log = simulated(1_500).assign(query=0)
    log["region"] = log["session"] % 2
    log.drop(columns="label").to_parquet(path / "yandex_wscd_clicks.parquet")
    graded = simulated(400, seed=1).assign(split="train")
    graded["user_session"] = graded["session"] // 4
    # -99: not judged.
    graded["label"] = graded["label"].where(graded["doc"] % 5 > 0, -99)
    graded.to_parquet(path / "trec2014_session_clicks.parquet")
    return path


def test_tables_and_figure(folder, tmp_path, capsys, monkeypatch):
    brief = {
        name: study.METHODS[name]
        for name in ("production", "click rate (naive)", "PBM", "user-aware", "CLD")
    }
    monkeypatch.setattr(study, "METHODS", brief)
    monkeypatch.setattr(study, "KEPT", (1, np.inf))
    study.main(["--data", str(folder), "--splits", "2", "--out", str(tmp_path)])
    assert "Yandex done\nTREC done" in capsys.readouterr().out
    table = pd.read_csv(tmp_path / "methods.csv", index_col=["log", "method"])
    assert table.index.get_level_values("log").unique().tolist() == ["Yandex", "TREC"]
    yandex = table.loc["Yandex"]
    # These users are position-based, and clicks on moved documents show it.
    assert yandex.loc["PBM", "gain"] == 0
    assert yandex.loc["click rate (naive)", "gain_high"] < 0
    assert yandex.loc["PBM", "right"] > yandex.loc["production", "right"]
    assert yandex["perplexity"].drop(["production", "CLD"]).between(1, 2).all()
    # CLD cannot be judged, and grades are in one log alone.
    assert table.xs("CLD", level="method").drop(columns="documents").isna().all(axis=None)
    assert yandex["CMIP"].isna().all()
    assert table.loc["TREC", "CMIP"].drop("CLD").notna().all()
    lines = pd.read_csv(tmp_path / "Yandex.csv", index_col="method")
    assert lines.loc["CLD"].unique().tolist() == [study.DASH]
    few = pd.read_csv(tmp_path / "layouts.csv").query("log == 'Yandex' and form == 'PBM'")
    assert few["components"].tolist() == [6, 1]
    assert few["gain"].tolist()[1] == 0
    assert (tmp_path / "real_clicks.png").stat().st_size > 1_000


def test_logs_that_are_absent_are_skipped_with_the_reason(tmp_path, capsys):
    study.main(["--data", str(tmp_path)])
    said = capsys.readouterr().out
    assert "Skipped: none of yandex_wscd_clicks.parquet" in said
    assert "SKULTR_DATA" in said


@pytest.fixture(scope="module")
def split(folder):
    log = study.read_log(folder / "yandex_wscd_clicks.parquet", "region")
    return study.splits_of(log, 1)[0]


def test_moved_rows_are_at_positions_that_training_never_showed(split):
    columns = ["qid", "doc", "position"]
    shown = set(split.train[columns].itertuples(index=False, name=None))
    rows = split.test[columns].itertuples(index=False, name=None)
    assert [row not in shown for row in rows] == split.moved.tolist()
    assert split.moved.any()
    known = set(split.train[["qid", "doc"]].itertuples(index=False, name=None))
    assert set(split.test[["qid", "doc"]].itertuples(index=False, name=None)) <= known


@pytest.mark.filterwarnings("ignore::skultr.exceptions.NotIdentifiableWarning")
@pytest.mark.parametrize("name", ["COEC", "PBM, a curve per query", "PBM, these merged"])
def test_methods_predict_each_row(split, name):
    found = study.METHODS[name](split)
    assert found.chance.shape == found.score.shape == (len(split.test),)
    assert ((found.chance >= 0) & (found.chance <= 1)).all()


def test_vectors_of_documents(split):
    documents = split.train[study.DOCUMENT].drop_duplicates()
    table = study.DocumentVectors(len(documents), 2)
    numbers = np.arange(len(documents), dtype=np.float32)[:, None]
    share = table.weight.new_tensor(numbers) / len(documents)
    # Each document has its own row of the table.
    assert (table(share) == table.weight).all()


def test_layouts_are_numbered_from_the_commonest():
    pages = [["a", "b"], ["b", "a"], ["b", "a"], ["a", "b"], ["b", "a"]]
    log = pd.DataFrame(
        [
            {"session": session, "qid": 1, "doc": doc, "position": place + 1}
            for session, page in enumerate(pages)
            for place, doc in enumerate(page)
        ]
    )
    assert study.layouts(log).tolist() == [1, 1, 0, 0, 0, 0, 1, 1, 0, 0]


def test_log_likelihood():
    found = study.log_likelihood(np.array([1, 0, 1]), np.array([0.25, 0.25, 0.0]))
    np.testing.assert_allclose(found, np.log([0.25, 0.75, study.LEAST_CHANCE]))


def test_an_interval_is_that_of_queries():
    # Two queries of one click each: a draw has the first 0, 1 or 2 times, with 1/4, 1/2 and 1/4.
    value, low, high = study.interval(pd.Series([0.0, 1.0]), pd.Series([1.0, 1.0]))
    assert (value, low, high) == (0.5, 0.0, 1.0)
    assert np.isnan(study.interval(pd.Series([], dtype=float), pd.Series([], dtype=float))).all()
