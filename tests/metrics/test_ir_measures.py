"""Values beside those of trec_eval (by ir_measures), and the frames and files that it takes."""

import numpy as np
import pandas as pd
import pytest

from skultr.metrics import (
    average_precision_score,
    ndcg_score,
    precision_score,
    reciprocal_rank_score,
    to_ir_measures,
    to_trec,
)


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    relevance = rng.integers(0, 4, 80)
    relevance[70:] = 0  # a query without a relevant document
    return pd.DataFrame(
        {
            "qid": np.repeat([f"q{number}" for number in range(8)], 10),
            "doc": [f"d{number}" for number in range(80)],
            "relevance": relevance,
        }
    )


@pytest.fixture
def scores():
    return np.random.default_rng(1).normal(size=80)


MEASURES = {
    "nDCG@5": lambda X, score, **of: ndcg_score(X, score, k=5, gain="linear", **of),
    "nDCG(gains={2:3,3:7})@5": lambda X, score, **of: ndcg_score(X, score, k=5, **of),
    "nDCG": lambda X, score, **of: ndcg_score(X, score, gain="linear", **of),
    "AP": average_precision_score,
    "AP(rel=2)": lambda X, score, **of: average_precision_score(X, score, threshold=2, **of),
    "RR": reciprocal_rank_score,
    "P@5": lambda X, score, **of: precision_score(X, score, k=5, **of),
    "P@20": lambda X, score, **of: precision_score(X, score, k=20, **of),
}


@pytest.mark.parametrize("measure", MEASURES)
def test_values_of_trec_eval_without_ties(X, scores, measure):
    ir_measures = pytest.importorskip("ir_measures", reason="needs ir_measures")
    theirs = ir_measures.calc_aggregate(
        [ir_measures.parse_measure(measure)], *to_ir_measures(X, scores)
    )
    ours = MEASURES[measure](X["relevance"], scores, qid=X["qid"], no_relevant=0)
    assert [*theirs.values()] == [pytest.approx(ours, rel=1e-9)]


@pytest.mark.pinned
def test_values_of_trec_eval_with_ties(X):
    """The figures of the page ecosystem."""
    scores = np.zeros(80)
    of = {"qid": X["qid"], "k": 5, "gain": "linear", "no_relevant": 0}
    assert ndcg_score(X["relevance"], scores, **of) == pytest.approx(0.556, abs=5e-4)
    ir_measures = pytest.importorskip("ir_measures", reason="needs ir_measures")
    nDCG = ir_measures.nDCG @ 5
    (theirs,) = ir_measures.calc_aggregate([nDCG], *to_ir_measures(X, scores)).values()
    assert theirs == pytest.approx(0.607, abs=5e-4)
    # Its order is that of falling ids.
    by_id = X.sort_values("doc", ascending=False)
    of["qid"] = by_id["qid"]
    assert ndcg_score(by_id["relevance"], scores, ties="stable", **of) == pytest.approx(theirs)
    # trec_eval reads float32.
    close = 1 + 1e-12 * np.arange(80)
    (theirs_of_close,) = ir_measures.calc_aggregate([nDCG], *to_ir_measures(X, close)).values()
    assert theirs_of_close == pytest.approx(theirs)


@pytest.mark.parametrize("backend", ["polars", "keywords"])
def test_the_same_from_other_frames_and_keywords(X, scores, backend):
    expected = to_ir_measures(X, scores)
    if backend == "polars":
        found = to_ir_measures(pytest.importorskip("polars").from_pandas(X), scores)
    else:
        found = to_ir_measures(np.zeros((80, 1)), scores, **{name: X[name] for name in X})
    for one, other in zip(expected, found, strict=True):
        pd.testing.assert_frame_equal(one, other)


def test_a_model_and_ids_that_are_numbers(X):
    class Model:
        def predict(self, X):
            return np.arange(len(X), dtype=float)

    X = X.assign(qid=np.repeat(np.arange(8.0), 10)).drop(columns="doc")
    X["feature"] = np.arange(80.0)
    qrels, run = to_ir_measures(X, Model())
    assert qrels["query_id"].unique().tolist() == [str(number) for number in range(8)]
    assert run["doc_id"].tolist() == [str(number) for number in range(80)]
    assert run["score"].tolist() == list(range(80))


def test_rows_without_annotation_and_shown_again_do_not_count(X, scores):
    log = pd.concat([X, X]).assign(relevance=lambda X: X["relevance"].where(X["doc"] != "d3"))
    qrels, run = to_ir_measures(log, np.tile(scores, 2))
    assert len(qrels) == len(run) == 79
    assert "d3" not in {*qrels["doc_id"]}


def test_files_of_trec(X, scores):
    qrels, run = to_trec(X, scores, name="mine")
    judged, ranked = to_ir_measures(X, scores)
    assert qrels.splitlines()[0] == f"q0 0 d0 {X['relevance'][0]}"
    read = pd.DataFrame(
        [line.split() for line in run.splitlines()],
        columns=["query_id", "q0", "doc_id", "rank", "score", "name"],
    ).astype({"rank": int, "score": float})
    assert ({*read["q0"]}, {*read["name"]}) == ({"Q0"}, {"mine"})
    assert (read.groupby("query_id")["score"].diff().dropna() < 0).all()
    assert (read.groupby("query_id").cumcount() + 1 == read["rank"]).all()
    both = read.merge(ranked, on=["query_id", "doc_id"])
    assert len(both) == len(judged) == 80
    assert (both["score_x"] == both["score_y"]).all()  # all digits are written


def test_files_that_ir_measures_reads(X, scores, tmp_path):
    ir_measures = pytest.importorskip("ir_measures", reason="needs ir_measures")
    for name, text in zip(("qrels", "run"), to_trec(X, scores), strict=True):
        (tmp_path / name).write_text(text)
    read = (
        ir_measures.read_trec_qrels(str(tmp_path / "qrels")),
        ir_measures.read_trec_run(str(tmp_path / "run")),
    )
    of = [ir_measures.nDCG @ 5]
    assert ir_measures.calc_aggregate(of, *read) == ir_measures.calc_aggregate(
        of, *to_ir_measures(X, scores)
    )


def test_bad_input(X, scores):
    with pytest.raises(ValueError, match=r"relevance is 0.5 in row 4; judgments hold whole"):
        to_ir_measures(X.assign(relevance=np.where(X.index == 4, 0.5, X["relevance"])), scores)
    with pytest.raises(ValueError, match="scores of the ranking are NaN for 1 of 80"):
        to_ir_measures(X, np.where(X.index == 3, np.nan, scores))
    with pytest.raises(ValueError, match="'relevance'"):
        to_ir_measures(X.drop(columns="relevance"), scores)
    with pytest.raises(ValueError, match="cannot hold 'd 1'"):
        to_trec(X.assign(doc=X["doc"].str.replace("d", "d ")).iloc[1:], scores[1:])
    with pytest.raises(ValueError, match="cannot hold 'my run'"):
        to_trec(X, scores, name="my run")
    with pytest.raises(ValueError, match=r"'7', '1'\) as text"):
        to_ir_measures(
            pd.DataFrame({"qid": 7, "doc": ["1", 1], "relevance": 0}).astype({"doc": object}),
            [0.1, 0.2],
        )
    with pytest.raises(ValueError, match="doc holds ' '"):
        to_ir_measures(X.assign(doc=X["doc"].where(X.index != 3, " ")), scores)
