import networkx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skultr.simulation import (
    EYE_TRACKING,
    SimulatedLog,
    _disconnected,
    make_disconnected_log,
    relevance_probability,
)

SMALL = {"n_documents": 174, "n_queries": 20, "n_impressions": None}


def components_of(X):
    """Components of positions by brute force: the graph of documents and positions."""
    graph = networkx.Graph()
    graph.add_edges_from(zip("d" + X["doc"].astype(str), X["position"], strict=True))
    parts = networkx.connected_components(graph)
    return sorted(tuple(sorted(node for node in part if isinstance(node, int))) for part in parts)


@pytest.mark.parametrize(
    ("n_components", "expected"),
    [
        (1, ((1, 2, 3, 4, 5, 6, 7, 8, 9, 10),)),
        (2, ((1, 2, 3, 4), (5, 6, 7, 8, 9, 10))),
        (3, ((1, 2, 3, 4), (5, 6, 7), (8, 9, 10))),
        (4, ((1, 2, 3), (4, 5, 6), (7, 8), (9, 10))),
        (5, ((1, 2), (3, 4), (5, 6), (7, 8), (9, 10))),
    ],
)
def test_the_study_of_the_paper(n_components, expected):
    log = make_disconnected_log(n_components, random_state=0)
    assert isinstance(log, SimulatedLog)
    X, clicks, truth = log
    assert truth.components == expected
    assert components_of(X) == sorted(expected)
    assert len(X) == len(clicks) == 11_500
    assert list(X.columns) == [
        *("qid", "doc", "position", "impressions", "doc_scope", "relevance")
    ]
    assert (X["doc_scope"] == "global").all()
    assert set(X["doc"]) == set(range(10_000))  # each document was shown
    assert (X["impressions"] == 1_000_000).all()
    assert (X.groupby("qid")["position"].agg(list).map(tuple) == tuple(range(1, 11))).all()
    assert not X.duplicated(["qid", "doc"]).any()


def test_truth_is_what_the_clicks_were_drawn_from():
    X, clicks, truth = make_disconnected_log(3, random_state=1)
    np.testing.assert_array_equal(truth.relevance[X["doc"]], X["relevance"])
    np.testing.assert_allclose(
        truth.relevance_probability, relevance_probability(truth.relevance), rtol=1e-12
    )
    np.testing.assert_allclose(truth.examination, EYE_TRACKING)
    # The product by hand, not by the function that drew the clicks.
    p = truth.relevance_probability[X["doc"]] * np.array(EYE_TRACKING)[X["position"] - 1]
    np.testing.assert_allclose(truth.click_probability, p)
    z = (clicks - p) / np.sqrt(p * (1 - p) / 1_000_000)
    assert np.abs(z).max() < 5
    assert 0.95 < np.mean(z**2) < 1.05
    assert set(X["relevance"]) == set(range(5))
    assert np.abs(np.bincount(truth.relevance) - 2_000).max() < 5 * np.sqrt(1_600)


def test_components_share_documents_by_their_positions():
    X, _, truth = make_disconnected_log(4, random_state=0)
    of_part = [X.loc[X["position"].isin(part), "doc"].nunique() for part in truth.components]
    assert of_part == [3_000, 3_000, 2_000, 2_000]
    shown = X["doc"].value_counts()
    assert set(shown) == {1, 2}
    # Neither the grade nor the number of a document says which component it belongs to.
    deep = X["position"] > 6
    assert abs(np.corrcoef(deep, X["doc"])[0, 1]) < 5 / np.sqrt(len(X))
    assert abs(np.corrcoef(deep, X["relevance"])[0, 1]) < 5 / np.sqrt(len(X))


def test_infinitely_many_impressions():
    X, clicks, truth = make_disconnected_log(2, n_impressions=None, random_state=0)
    np.testing.assert_array_equal(clicks, truth.click_probability)
    assert (X["impressions"] == 1).all()
    clicks[:] = 0  # the log is its owner's, the truth stays
    assert truth.click_probability.min() > 0


def test_streams_apart():
    one, again, other = (make_disconnected_log(2, random_state=seed) for seed in (3, 3, 4))
    pd.testing.assert_frame_equal(one.X, again.X)
    np.testing.assert_array_equal(one.clicks, again.clicks)
    assert not one.X["doc"].equals(other.X["doc"])
    fewer = make_disconnected_log(2, n_impressions=100, random_state=3)
    pd.testing.assert_frame_equal(one.X.assign(impressions=100), fewer.X)
    connected = make_disconnected_log(1, random_state=3)
    pd.testing.assert_series_equal(one.truth.relevance, connected.truth.relevance)


def test_clicks_do_not_determine_relevance_across_components():
    """Half the examination, twice the relevance: the same clicks, from another truth."""
    X, clicks, truth = make_disconnected_log(
        2, examination=0.5, noise=0.4, random_state=0, **SMALL
    )
    deep = X["position"].isin(truth.components[1])
    factor = np.where(deep, 1.25, 1.0)
    relevance = truth.relevance_probability[X["doc"]].to_numpy() / factor
    examination = truth.examination[X["position"] - 1] * factor
    assert examination.max() <= 1
    np.testing.assert_allclose(relevance * examination, clicks)
    # One value a document and one a position, so that it is a model like the true one.
    other = pd.DataFrame({"doc": X["doc"], "position": X["position"], "r": relevance})
    assert other.groupby("doc")["r"].agg(np.ptp).max() < 1e-12


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_partition(data):
    n_positions = data.draw(st.integers(1, 8))
    positions = data.draw(st.permutations(range(1, n_positions + 1)))
    cuts = sorted(data.draw(st.sets(st.integers(1, max(n_positions - 1, 1)))))
    parts = [part.tolist() for part in np.split(np.array(positions), cuts) if len(part)]
    n_queries = data.draw(st.integers(6, 30))
    most = n_queries * n_positions - 2 * n_positions
    n_documents = data.draw(st.integers(2 * n_positions, most))
    X, _, truth = make_disconnected_log(
        components=parts, n_documents=n_documents, n_queries=n_queries, random_state=0
    )
    assert components_of(X) == sorted(truth.components) == sorted(map(tuple, map(sorted, parts)))
    assert X["doc"].nunique() == n_documents
    assert not X.duplicated(["qid", "doc"]).any()


def test_smallest_worlds():
    X, _, _truth = make_disconnected_log(
        1, n_positions=1, n_documents=1, n_queries=1, n_impressions=1, random_state=0
    )
    assert X[["qid", "doc", "position", "impressions"]].to_numpy().tolist() == [[0, 0, 1, 1]]
    # Pages of 4 and 6 documents from decks of 6 and 8: most pages span two decks.
    X, _, _ = make_disconnected_log(2, n_documents=14, n_queries=500, random_state=0)
    assert X["doc"].nunique() == 14
    assert not X.duplicated(["qid", "doc"]).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_components": 0}, "n_components"),
        ({"n_components": 11}, "n_components=11 .* n_positions=10"),
        ({"n_positions": 0}, "n_positions"),
        ({"n_impressions": 0}, "n_impressions"),
        ({"n_impressions": 1.5}, "n_impressions"),
        ({"max_grade": 0}, "max_grade"),
        ({"noise": 2}, "noise"),
        ({"examination": [0.5]}, "given for 1 positions"),
        ({"n_positions": 11}, "given for 10 positions"),
        ({"n_documents": 12_000}, "4800 of n_documents=12000 .* for 4600 slots"),
        ({"n_documents": 5}, "has 2 of n_documents=5 documents, but a page shows 4"),
        ({"components": [[1, 2], [2, 3]]}, "not a partition"),
        ({"components": [[1, 2], [4]]}, "not a partition"),
        ({"components": [[0, 1]]}, "not a partition"),
        ({"components": [[1, 2], []]}, "not a partition"),
        ({"components": []}, "not a partition"),
        ({"components": [1, 2]}, "must hold the positions of each component"),
        ({"components": [[1.5, 2]]}, "must hold the positions of each component"),
        ({"components": 3}, "components"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_disconnected_log(**arguments)


def test_positions_that_never_hang_together(monkeypatch):
    # 39 documents recur, each at two of 40 positions: they link all if these pairs are a tree. Of
    # the ways to take 39 pairs of 780 in turn, 40^38 * 39! / 780^39 = 3e-6 do.
    monkeypatch.setattr(_disconnected, "_MAX_DEALS", 3)
    with pytest.raises(ValueError, match=r"any of 3 draws.* recur in only 39 of 400"):
        make_disconnected_log(
            components=[range(1, 41)],
            n_documents=361,
            n_queries=10,
            n_positions=40,
            examination=1.0,
            random_state=0,
        )
