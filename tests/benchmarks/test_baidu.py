"""The table of Baidu-ULTR from small files in the layout of those on Hugging Face."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.studies import baidu
from skultr.datasets import make_ltr
from skultr.model_selection import train_test_queries
from skultr.simulation import PlackettLucePolicy, simulate_clicks

LEXICAL = ["bm25", "bm25_title", "tf_idf"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two parts with clicks, and the annotation of other queries."""
    path = tmp_path_factory.mktemp("baidu")
    documents = make_ltr(n_queries=80, n_features=3, random_state=0)
    documents = documents.rename(columns={f"feature_{i:03d}": LEXICAL[i] for i in range(3)})
    documents["query_document_embedding"] = [*np.random.default_rng(0).normal(size=(1600, 4))]
    shown, annotated = train_test_queries(documents, test_size=0.25, random_state=0)
    log, clicks, _ = simulate_clicks(
        shown, n_sessions=800, policy=PlackettLucePolicy(1.0), features=False, random_state=0
    )
    log = log.drop(columns="relevance", errors="ignore").assign(click=clicks.astype(int))
    log = log.merge(shown.drop(columns=["qid", "relevance"]), on="doc")
    log = log.assign(
        query_id=log["qid"].astype(str), url_md5=log["doc"].astype(str), media_type=0
    ).rename(columns={"session": "query_no"})
    for number in range(2):
        part = log[log["query_no"] % 2 == number].sort_values(["query_no", "position"])
        part = part.drop(columns=["qid", "doc"]).reset_index(drop=True)
        part.to_feather(path / f"part-1_split-{number}.feather")
    table = annotated.rename(columns={"qid": "query_id", "relevance": "label"})
    table.drop(columns="doc").reset_index(drop=True).to_feather(path / "validation.feather")
    return path


def test_the_table(folder, capsys, monkeypatch):
    kept = baidu.rankers

    def brief(seed):
        found = {name: kept(seed)[name] for name in (baidu.BASELINE, "naive, pointwise", "DLA")}
        return {name: ranker.set_params(max_epochs=3) for name, ranker in found.items()}

    monkeypatch.setattr(baidu, "rankers", brief)
    baidu.main([str(folder), "--embeddings", "--out", str(folder / "table.csv")])
    assert "640 pages, 20 annotated queries" in capsys.readouterr().out
    table = pd.read_csv(folder / "table.csv", index_col="method")
    assert table.index.tolist() == [baidu.BASELINE, "naive, pointwise", "DLA"]
    assert table["ndcg@10"].between(0, 1).all()
    assert table["dcg@1"].notna().all()
    # Two of them predict clicks; all have an order of pages that clicks may confirm.
    assert table["perplexity"].notna().tolist() == [False, True, True]
    assert table.loc[["naive, pointwise", "DLA"], "perplexity"].between(1, 2).all()
    assert table["click log-likelihood"].notna().all()


def test_pages_are_divided_whole(folder):
    log = baidu.read_clicks(folder, embeddings=False)
    train, held_out = baidu.divide(log, share=0.25, n_pages=400, seed=0)
    assert train["session"].nunique() == 300
    assert held_out["session"].nunique() == 100
    assert not set(train["session"]) & set(held_out["session"])
    assert (
        len(train) + len(held_out)
        == log["session"].isin([*train["session"], *held_out["session"]]).sum()
    )


def test_what_is_missing_is_named(folder, tmp_path):
    with pytest.raises(SystemExit, match="no part-"):
        baidu.main([str(tmp_path)])
    with pytest.raises(SystemExit, match=r"validation\.feather has no column idf"):
        baidu.read_annotations(folder, ["bm25", "idf"])
