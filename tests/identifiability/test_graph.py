"""The graph against networkx and against identifiability itself; every engine; bad input."""

import warnings
from fractions import Fraction
from math import comb

import duckdb
import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skultr import aggregate_clicks
from skultr.identifiability import IdentifiabilityGraph
from skultr.identifiability._graph import random_graph_connected
from skultr.simulation import SimulatedLog

with warnings.catch_warnings():
    # Raised within Dask on import for some versions of its dependencies.
    warnings.simplefilter("ignore")
    import dask
    import dask.dataframe as dd

rows = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9)), min_size=1, max_size=30)


# --------------------------------------------------------------------------------------
# The question itself
# --------------------------------------------------------------------------------------
@settings(max_examples=300, deadline=None)
@given(rows)
def test_components_are_those_of_the_clique_graph(rows):
    doc, factor = np.array(rows).T
    graph = IdentifiabilityGraph(doc, factor)
    oracle = nx.Graph()
    oracle.add_nodes_from(factor.tolist())
    for x in np.unique(doc):
        members = np.unique(factor[doc == x]).tolist()
        oracle.add_edges_from((a, b) for a in members for b in members if a < b)
    values = graph.factors["bias"].to_numpy()
    found = {frozenset(values[graph.labels == k].tolist()) for k in range(graph.n_components)}
    assert found == set(map(frozenset, nx.connected_components(oracle)))
    assert graph.is_connected == nx.is_connected(oracle)
    assert graph.n_documents == len(set(doc.tolist()))
    assert graph.n_pairs == len(set(rows))
    impressions = graph.components["impressions"]
    assert (impressions.diff().dropna() <= 0).all()
    assert impressions.sum() == len(rows)
    pairs = graph.pairs
    np.testing.assert_array_equal(graph.document_labels[pairs.doc], graph.labels[pairs.factor])


@settings(max_examples=200, deadline=None)
@given(rows, st.integers(0, 1000))
def test_connected_is_identifiable(rows, seed):
    graph = IdentifiabilityGraph(*np.array(rows).T)
    doc, factor = graph.pairs.doc, graph.pairs.factor
    rng = np.random.default_rng(seed)
    relevance = rng.uniform(0.3, 0.7, graph.n_documents)
    examination = rng.uniform(0.3, 0.7, graph.n_factors)
    # Another truth with the same click probabilities: one scale a component is free ...
    scale = rng.uniform(0.8, 1.2, graph.n_components)
    other = relevance * scale[graph.document_labels]
    other_examination = examination / scale[graph.labels]
    np.testing.assert_allclose(
        other[doc] * other_examination[factor], relevance[doc] * examination[factor], rtol=1e-12
    )
    ratio = other / relevance
    assert (np.ptp(ratio) < 1e-12) == graph.is_connected
    # ... and nothing else: log p = log r + log o has no further null space.
    system = np.zeros((len(doc), graph.n_documents + graph.n_factors))
    system[np.arange(len(doc)), doc] = 1
    system[np.arange(len(doc)), graph.n_documents + factor] = 1
    nullity = system.shape[1] - np.linalg.matrix_rank(system)
    assert nullity == graph.n_components


def test_never_shown_candidates_are_no_shared_document():
    # A padding document without a position would join all queries.
    log = pd.DataFrame(
        {
            "qid": 1,
            "doc": ["a", "pad", "b", "pad", "pad"],
            "position": [1, np.nan, 2, np.nan, 1],
            "impressions": [1, 1, 1, 1, 0],
        }
    )
    graph = IdentifiabilityGraph.from_log(log)
    assert graph.n_components == 2
    assert graph.n_documents == 2


# --------------------------------------------------------------------------------------
# Any log
# --------------------------------------------------------------------------------------
def to_arrow(log):
    return pa.Table.from_pandas(log, preserve_index=False)


ENGINES = {
    "pandas": lambda log: log,
    "pandas-nullable": lambda log: log.convert_dtypes(),
    "pandas-category": lambda log: log.astype({"doc": "category", "device": "category"}),
    "polars": pl.from_pandas,
    "polars-nan": lambda log: pl.from_pandas(log, nan_to_null=False),
    "polars-lazy": lambda log: pl.from_pandas(log).lazy(),
    "polars-category": lambda log: pl.from_pandas(log).with_columns(
        pl.col("device").cast(pl.Categorical)
    ),
    "pyarrow": to_arrow,
    "duckdb": lambda log: duckdb.from_arrow(to_arrow(log)),
    "dask": lambda log: dd.from_pandas(log.reset_index(drop=True), npartitions=3),
}
BIAS = (None, "device", ["position", "device"], ["phone", "slot", "position"])


@pytest.fixture(autouse=True)
def synchronous_dask():
    with dask.config.set(scheduler="synchronous"):
        yield


def pairs_of(log, **arguments):
    """Counts of each document under each factor."""
    return IdentifiabilityGraph.from_log(log, **arguments).pairs


def make_log(seed=0, n_rows=300):
    rng = np.random.default_rng(seed)
    position = rng.integers(1, 6, n_rows).astype(float)
    impressions = rng.integers(0, 5, n_rows)
    position[rng.random(n_rows) < 0.1] = np.nan
    device = rng.choice(["desktop", "phone", "tablet"], n_rows)
    log = pd.DataFrame(
        {
            "qid": "q",
            "doc": [f"d{i}" for i in rng.integers(60, size=n_rows)],
            "position": position,
            "device": device,
            "phone": device == "phone",
            "slot": rng.choice([0.5, 1.5], n_rows),
            "impressions": impressions,
            "click": rng.binomial(impressions, 0.3) * ~np.isnan(position),
        }
    )
    return log.sample(frac=1, random_state=seed)  # row labels that are not 0, 1, 2, ...


def assert_same_pairs(found, expected):
    for name in ("doc", "factor", "impressions", "clicks"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    pd.testing.assert_frame_equal(found.factors, expected.factors)


@pytest.mark.parametrize("bias", BIAS, ids=str)
@pytest.mark.parametrize("engine", ENGINES)
def test_engines_agree(engine, bias):
    log = make_log()
    shown = log[log["position"].notna() & (log["impressions"] > 0)]
    columns = ["position"] if bias is None else [bias] if isinstance(bias, str) else bias
    counts = shown.groupby(["doc", *columns])[["impressions", "click"]].sum()
    pairs = pairs_of(ENGINES[engine](log), bias=bias)
    np.testing.assert_array_equal(pairs.impressions, counts["impressions"])
    np.testing.assert_array_equal(pairs.clicks, counts["click"])
    values = counts.index.to_frame(index=False)
    assert pairs.doc_ids.names == ["qid", "doc"]
    assert pairs.doc_ids.get_level_values("doc")[pairs.doc].tolist() == values["doc"].tolist()
    for name in columns:
        assert pairs.factors[name].iloc[pairs.factor].tolist() == values[name].tolist()
    assert pairs.factors.equals(pairs.factors.sort_values(columns))
    if "position" in columns:
        assert pairs.factors["position"].dtype == np.int64


def test_arrays_are_the_frame():
    log = make_log()
    log = log[log["position"].notna()]
    frame = pairs_of(log, bias=["position", "device"])
    arrays = {"impressions": log["impressions"], "clicks": log["click"]}
    graph = IdentifiabilityGraph(log["doc"], log[["position", "device"]], **arrays)
    assert_same_pairs(
        graph.pairs, IdentifiabilityGraph(log["doc"], log[["position", "device"]], **arrays).pairs
    )
    np.testing.assert_array_equal(graph.pairs.clicks, frame.clicks)
    np.testing.assert_array_equal(graph.pairs.factor, frame.factor)
    two = IdentifiabilityGraph(log["doc"], log[["position", "phone"]].to_numpy(), **arrays)
    assert two.factors.columns.tolist() == ["bias0", "bias1"]
    assert IdentifiabilityGraph(["a"], pl.Series("slot", [1])).factors.columns.tolist() == ["slot"]
    assert IdentifiabilityGraph(["a"], pl.DataFrame({"p": [1], "q": ["x"]})).n_factors == 1


def test_order_of_rows_and_repeated_rows_do_not_matter():
    log = make_log()
    expected = pairs_of(log, bias=["position", "device"])
    assert_same_pairs(pairs_of(log.sort_values("click"), bias=["position", "device"]), expected)
    twice = pairs_of(pd.concat([log, log]), bias=["position", "device"])
    np.testing.assert_array_equal(twice.impressions, 2 * expected.impressions)


@pytest.mark.parametrize("engine", ["pandas", "polars", "pyarrow"])
def test_clicks_as_an_array_are_rates(engine):
    log = make_log()
    rate = log["click"] / log["impressions"].clip(lower=1)
    expected = pairs_of(log)
    frame = ENGINES[engine](log.drop(columns="click"))
    for values in (rate, rate.to_numpy(), rate.tolist(), pl.Series(rate.to_numpy())):
        np.testing.assert_allclose(pairs_of(frame, click=values).clicks, expected.clicks)
    assert pairs_of(frame).clicks is None
    shown = log["position"].notna() & (log["impressions"] > 0)
    thirds = pairs_of(frame, click=np.where(shown, 1 / 3, 0))
    np.testing.assert_allclose(thirds.clicks, expected.impressions / 3)
    counts = pairs_of(frame, click=log["click"].where(shown, 0))
    np.testing.assert_allclose(counts.clicks, expected.clicks)


@pytest.mark.parametrize("engine", ["pandas", "polars", "pyarrow"])
def test_equal_features_are_one_document(engine):
    log = make_log()
    number = log["doc"].str[1:].astype(int)
    features = log.drop(columns="doc").assign(f=number // 10, g=number % 10, qid="q")
    frame = ENGINES[engine](features.drop(columns=["phone", "slot"]))
    pairs = pairs_of(frame, bias=["position", "device"])
    expected = pairs_of(log, bias=["position", "device"])
    assert pairs.doc_ids is None
    assert (len(pairs.doc), pairs.n_docs) == (len(expected.doc), expected.n_docs)
    # Documents are numbered by hash; through their rows they are those of the ids.
    ids = log["doc"].to_numpy()[pairs.doc_row]
    found = set(zip(ids[pairs.doc], pairs.factor, pairs.clicks, strict=True))
    wanted = expected.doc_ids.get_level_values("doc")[expected.doc]
    assert found == set(zip(wanted, expected.factor, expected.clicks, strict=True))
    graph = IdentifiabilityGraph.from_log(frame, bias=["position", "device"])
    assert graph.bridges().columns[0] == "row"


def test_features_may_have_names_that_are_no_strings():
    log = pd.DataFrame([[1.0, 2.0, 1], [1.0, 2.0, 2], [3.0, 2.0, 2]], columns=[0, 1, "position"])
    pairs = pairs_of(log)
    assert (pairs.n_docs, len(pairs.doc), pairs.n_factors) == (2, 3, 2)


def test_a_simulated_log():
    log = make_log()
    log = log[log["position"].notna()].assign(qid="q")
    log["session"] = np.arange(len(log))
    rate = (log["click"] / log["impressions"].clip(lower=1)).to_numpy()
    expected = pairs_of(log)
    frame = log[["qid", "session", "doc", "position", "impressions"]]
    simulated = pairs_of(SimulatedLog(frame, rate, None))
    np.testing.assert_allclose(simulated.clicks, expected.clicks)
    np.testing.assert_array_equal(simulated.factor, expected.factor)


def test_an_aggregated_log_has_the_same_graph():
    rng = np.random.default_rng(0)
    log = pd.DataFrame(
        {
            "qid": np.repeat(np.arange(40) % 7, 3),
            "session": np.repeat(np.arange(40), 3),
            "doc": (np.repeat(np.arange(40) % 7, 3) * 10 + np.tile(np.arange(3), 40)),
            "position": np.concatenate([rng.permutation(3) + 1 for _ in range(40)]),
            "click": rng.integers(2, size=120),
        }
    )
    X, rate = aggregate_clicks(log)
    found, expected = pairs_of(X, click=rate), pairs_of(log)
    for name in ("doc", "factor", "impressions"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    np.testing.assert_allclose(found.clicks, expected.clicks)


def test_bias_column_comes_before_position():
    log = pd.DataFrame({"qid": 1, "doc": list("aab"), "position": [1, 2, 3], "bias": [7, 7, 9]})
    assert IdentifiabilityGraph.from_log(log).factors["bias"].tolist() == [7, 9]
    assert IdentifiabilityGraph.from_log(log, bias="position").n_factors == 3


def test_mixed_and_large_values():
    bias = [1, "1", (1, 2), 2**62]
    graph = IdentifiabilityGraph([2**63, 1, 2**63, 5], bias)
    assert graph.n_factors == 4
    assert graph.n_documents == 3
    assert graph.n_components == 3
    columns = {f"c{i}": np.arange(3) * 10**15 for i in range(8)}  # combinations beyond int64
    assert IdentifiabilityGraph([0, 0, 1], pd.DataFrame(columns)).n_factors == 3


# --------------------------------------------------------------------------------------
# Its tables
# --------------------------------------------------------------------------------------
def weak_log():
    """Positions 1 to 3 firmly linked, 4 and 5 too, and both through one document of 8 clicks."""
    doc = ["a", "a", "a", "b", "b", "b", "c", "c", "d", "d", "e", "e"]
    position = [1, 2, 3, 1, 2, 3, 4, 5, 4, 5, 3, 4]
    clicks = [500.0] * 10 + [4.0] * 2
    return doc, position, {"impressions": [1000.0] * 12, "clicks": clicks}


def test_components_table():
    graph = IdentifiabilityGraph(
        ["a", "a", "b", "c"],
        pd.DataFrame({"position": [3, 4, 4, 1], "device": ["x", "x", "x", "y"]}),
        impressions=[1, 1, 1, 7],
        clicks=[1, 0, 1, 2],
    )
    table = graph.components
    assert graph.labels.tolist() == [0, 1, 1]
    assert graph.document_labels.tolist() == [1, 1, 0]
    assert table["n_factors"].tolist() == [1, 2]
    assert table["n_documents"].tolist() == [1, 2]
    assert table["impressions_share"].tolist() == [0.7, 0.3]
    assert table["clicks_share"].tolist() == [0.5, 0.5]
    assert table["examples"].tolist() == ["(1, y)", "(3, x), (4, x)"]
    assert IdentifiabilityGraph([1, 2], [1, 2]).components["clicks_share"].isna().all()


def test_bridges_table():
    doc, position, counts = weak_log()
    bridges = IdentifiabilityGraph(doc, position, **counts).bridges()
    expected = pd.DataFrame(
        {"doc": ["e"], "n_parts": [2], "impressions": [2000.0], "clicks": [8.0]}
    )
    pd.testing.assert_frame_equal(bridges, expected, check_dtype=False)


def test_weak_links_table():
    doc, position, counts = weak_log()
    graph = IdentifiabilityGraph(doc, position, **counts)
    links = graph.weak_links()
    first = links.iloc[0]
    assert {first["factor_a"], first["factor_b"]} == {3, 4}
    # What 4 clicks in 1,000 impressions tell, twice.
    variance = 2 * (1000 - 4 + 1) / (4 * 1000)
    assert first["standard_error"] == pytest.approx(np.sqrt(variance))
    assert first["margin_95"] == pytest.approx(np.exp(1.96 * np.sqrt(variance)))
    assert first["n_factors"] == 2
    assert len(links) == 4
    assert len(graph.weak_links(2)) == 2
    two = IdentifiabilityGraph(doc, pd.DataFrame({"p": position, "q": "x"}), **counts)
    assert set(two.weak_links().iloc[0, :2]) == {(3, "x"), (4, "x")}
    # As if everything were clicked.
    unknown = IdentifiabilityGraph(doc, position, impressions=counts["impressions"])
    assert unknown.weak_links()["standard_error"].max() < 0.05
    with pytest.raises(ValueError, match="whole number from 0"):
        graph.weak_links(-1)


def everything(n_docs, n_factors):
    """The graph of a log that shows every document under every factor."""
    pairs = np.arange(n_docs * n_factors)
    return IdentifiabilityGraph(pairs // n_factors, pairs % n_factors)


def test_connection_probability_of_two_and_three_factors():
    for n in (10, 50, 200):
        apart = (1 - (1 - np.exp(-n / (40 * 2))) ** 2) ** 40
        assert everything(40, 2).connection_probability(n) == pytest.approx(1 - apart)
        # Three factors are connected by three links, or by two of three.
        apart = (1 - (1 - np.exp(-n / (40 * 3))) ** 2) ** 40
        linked = 1 - apart
        expected = linked**3 + 3 * linked**2 * apart
        assert everything(40, 3).connection_probability(n) == pytest.approx(expected)


def test_connection_probability_of_many_factors_is_the_limit():
    """One rule up to 30 factors, another above: they meet, and the first term is the paper's."""
    fewer, more = (everything(100, n).connection_probability([300, 500]) for n in (30, 31))
    np.testing.assert_allclose(fewer, more, atol=0.05)
    apart = (1 - (1 - np.exp(-900 / (100 * 31))) ** 2) ** 100
    connected = everything(100, 31).connection_probability(900)
    assert 1 - connected == pytest.approx(31 * apart**30, rel=0.01)


def test_up_to_thirty_factors_the_connection_probability_is_exact():
    """Gilbert's recursion in fractions, where the limit is off by more than a hundredth."""
    apart = Fraction(9, 10)
    connected = [Fraction(1)]
    for n in range(2, 31):
        # P(the first factor is in a part of k factors): others, connected, all links cut.
        parts = [
            comb(n - 1, k - 1) * connected[k - 1] * apart ** (k * (n - k)) for k in range(1, n)
        ]
        connected.append(1 - sum(parts))
    found = random_graph_connected(30, np.log(0.9))
    assert found == pytest.approx(float(connected[-1]), abs=1e-9)
    limit = np.exp(-30 * 0.9**29)
    assert abs(limit - found) > 0.01


def test_connection_probability_at_the_ends():
    graph = IdentifiabilityGraph(np.arange(50) % 40, np.arange(50) % 7)
    assert graph.connection_probability() == graph.connection_probability(50)
    assert graph.connection_probability([0, 1e9]).tolist() == [0.0, 1.0]
    assert everything(2, 40).connection_probability([0, 1e9]) == pytest.approx([0.0, 1.0])
    assert IdentifiabilityGraph(["a"], [1]).connection_probability(5) == 1.0
    with pytest.raises(ValueError, match="at least 0"):
        graph.connection_probability(-1)


@pytest.mark.parametrize(
    ("n_docs", "n_factors", "n_samples"), [(50, 2, 20), (50, 3, 20), (60, 8, 130)]
)
def test_connection_probability_of_uniform_logs(n_docs, n_factors, n_samples):
    rng = np.random.default_rng(0)
    n_logs, connected = 1_000, 0
    for _ in range(n_logs):
        doc, factor = rng.integers(n_docs, size=n_samples), rng.integers(n_factors, size=n_samples)
        graph = IdentifiabilityGraph(doc, factor)
        connected += graph.is_connected and graph.n_factors == n_factors
    expected = everything(n_docs, n_factors).connection_probability(n_samples)
    # Links that one document makes are not independent: the formula is off by up to 3.4 points
    # here (of 6,000 logs, whose own error is half a point). The rest is chance.
    chance = 3 * np.sqrt(expected * (1 - expected) / n_logs)
    assert connected / n_logs == pytest.approx(expected, abs=0.04 + chance)


def test_subsample_connectivity():
    rng = np.random.default_rng(0)
    graph = IdentifiabilityGraph(rng.integers(20, size=200), rng.integers(5, size=200))
    fractions = [0.01, 0.1, 0.3, 1.0]
    table = graph.subsample_connectivity(fractions, 50, random_state=0)
    assert table["fraction"].tolist() == fractions
    assert table["connected"].is_monotonic_increasing
    assert table["n_components"].is_monotonic_decreasing
    assert table["connected"].iloc[-1] == float(graph.is_connected)
    again = graph.subsample_connectivity(fractions, 50, random_state=0)
    pd.testing.assert_frame_equal(table, again)
    # As by dropping impressions one by one.
    counts = []
    for _ in range(400):
        keep = rng.random(200) < 0.1
        pairs = graph.pairs
        doc, factor = (
            np.repeat(pairs.doc, pairs.impressions.astype(int))[keep],
            np.repeat(pairs.factor, pairs.impressions.astype(int))[keep],
        )
        part = IdentifiabilityGraph(doc, factor)
        counts.append(part.n_components + graph.n_factors - part.n_factors)
    many = graph.subsample_connectivity([0.1], 400, random_state=1)
    error = np.std(counts) * np.sqrt(2 / 400)
    assert many["n_components"].iloc[0] == pytest.approx(np.mean(counts), abs=4 * error)
    for bad in ([0.0], [1.1], [np.nan], [[0.1]]):
        with pytest.raises(ValueError, match="fractions"):
            graph.subsample_connectivity(bad)
    with pytest.raises(ValueError, match="n_repeats"):
        graph.subsample_connectivity([0.5], 0)


# --------------------------------------------------------------------------------------
# Its words
# --------------------------------------------------------------------------------------
def test_summary_of_a_disconnected_log():
    n = 12
    graph = IdentifiabilityGraph(np.arange(n), np.arange(n))
    text = graph.summary()
    assert text.startswith("NOT identifiable: 12 bias factors fall into 12 components.")
    assert "6 more, with 50.0 % of impressions" in text
    assert "plans 11 swaps" in text


def test_summary_of_a_firmly_connected_log():
    doc, position, counts = weak_log()
    counts["clicks"] = np.full(12, 500)
    text = IdentifiabilityGraph(doc, position, **counts).summary()
    assert text.startswith("Identifiable: 5 bias factors form one component")
    assert "connected through one document alone (doc e)" in text
    assert "only to a factor" not in text
    assert "Clicks are unknown" in IdentifiabilityGraph(doc, position).summary()


def test_summary_of_a_barely_connected_log():
    doc, position, counts = weak_log()
    graph = IdentifiabilityGraph(doc, position, **counts)
    text = graph.summary()
    assert text.startswith("Identifiable, but barely")
    assert (
        "The examination of {4, 5} relative to the rest is known only to a factor of 3.99 " in text
    )
    assert "collect clicks" in text
    counts["clicks"][-1] = 0.0
    assert (
        "is not known: no clicked document"
        in IdentifiabilityGraph(doc, position, **counts).summary()
    )


def test_a_rare_factor_does_not_make_a_weak_log():
    doc, position, counts = weak_log()
    counts["clicks"][-2:] = [400, 400]
    doc, position = [*doc, "a"], [*position, 9]
    counts = {"impressions": counts["impressions"] + [5.0], "clicks": counts["clicks"] + [1.0]}
    text = IdentifiabilityGraph(doc, position, **counts).summary()
    assert text.startswith("Identifiable: 6 bias factors")
    assert "The examination of {9}" in text
    assert "1 factor (0.042 % of impressions)" in text


def test_summary_of_a_single_factor():
    text = IdentifiabilityGraph(["a", "b"], [1, 1]).summary()
    assert (
        text == "Identifiable: there is one bias factor, so click rates compare documents fairly."
    )


def test_html_and_repr():
    graph = IdentifiabilityGraph(["a", "b"], ["<b>", "y"])
    html = graph._repr_html_()
    assert "NOT identifiable" in html
    assert "<b>" not in html
    assert repr(graph) == "IdentifiabilityGraph(n_factors=2, n_documents=2, n_components=2)"
    doc, position, counts = weak_log()
    assert "barely" in IdentifiabilityGraph(doc, position, **counts)._repr_html_()


# --------------------------------------------------------------------------------------
# Bad input
# --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        ({}, {"bias": ["position", "browser"]}, r"lacks the columns \['browser'\]"),
        ({}, {"bias": []}, "expected the name of a column"),
        ({}, {"bias": 0}, "expected the name of a column"),
        ({}, {"bias": ["device", "device"]}, "different names"),
        ({}, {"bias": "doc"}, "its own bias factor"),
        ({}, {"click": "clicked"}, r"lacks the columns \['clicked'\]"),
        ({}, {"click": "device"}, "'device' must hold numbers"),
        ({"position": "1"}, {}, "'position' must hold numbers"),
        ({"position": np.nan, "click": 0}, {}, "No row was shown"),
        ({"impressions": 0, "click": 0}, {}, "No row was shown"),
        ({"impressions": np.nan}, {}, "impressions must be finite"),
        ({"impressions": -1}, {}, "impressions must be finite"),
        ({"impressions": np.inf}, {}, "impressions must be finite"),
        ({"click": 2}, {}, "is not between 0 and 'impressions'"),
        ({"click": -1}, {}, "'click' holds negative values"),
        ({"click": np.nan}, {}, "'click' contains NaN"),
        ({"device": None}, {"bias": "device"}, "'device' is missing in 1 row"),
        ({"doc": None}, {}, "'doc' is missing in 1 row"),
        ({"position": 0}, {}, "whole number from 1"),
        ({"position": 1.5}, {}, "whole number from 1"),
        ({"position": np.inf}, {}, "whole number from 1"),
    ],
)
@pytest.mark.parametrize("engine", ["pandas", "polars", "duckdb"])
def test_bad_columns(engine, change, arguments, message):
    log = pd.DataFrame(
        {
            "qid": 1,
            "doc": ["a", "b"],
            "position": [1, 2],
            "device": ["x", "y"],
            "impressions": [1.0, 1.0],
            "click": [1.0, 0.0],
        }
    ).assign(**change)
    if log["doc"].isna().all():
        log["doc"] = ["a", None]
    if log["device"].isna().all():
        log["device"] = ["x", None]
    with pytest.raises(ValueError, match=message):
        pairs_of(ENGINES[engine](log), **arguments)


def test_bad_logs():
    log = pd.DataFrame({"position": [1, 2], "qid": [1, 1]})
    with pytest.raises(ValueError, match="neither a column 'doc' nor feature columns"):
        pairs_of(log)
    with pytest.raises(ValueError, match=r"lacks the columns \['doc'\]"):
        pairs_of(pl.from_pandas(log).lazy())
    log["doc"] = ["a", "b"]
    with pytest.raises(ValueError, match="click is an array and X is a lazy frame"):
        pairs_of(pl.from_pandas(log).lazy(), click=[0, 1])
    with pytest.raises(ValueError, match="X has 2 rows and y has 3"):
        pairs_of(log, click=[0, 1, 1])
    with pytest.raises(ValueError, match="click holds negative values: found -1 in 1 row"):
        pairs_of(log, click=[0, -1])
    with pytest.raises(ValueError, match=r"lacks the columns \['position'\]"):
        pairs_of(log[["qid", "doc"]])
    with pytest.raises(ValueError, match="X has no rows"):
        pairs_of(log.iloc[:0])
    with pytest.raises(TypeError, match="expected a frame"):
        pairs_of(np.zeros((2, 2)))
    assert pairs_of(log.assign(impressions=10, click=0.5)).clicks.tolist() == [5, 5]


@pytest.mark.parametrize(
    ("doc", "bias", "counts", "message"),
    [
        ([], [], {}, "No row was shown"),
        (["a"], [1], {"impressions": [0]}, "No row was shown"),
        (["a", "b"], [1], {}, "bias has 1 rows and doc has 2"),
        (["a", None], [1, 2], {}, "'doc' is missing in 1 row"),
        (["a", "b"], [1, np.nan], {}, "'bias' is missing in 1 row, first in row 1"),
        ([["a"]], [1], {}, r"doc has shape"),
        (["a"], np.zeros((1, 1, 1)), {}, r"bias has shape \(1, 1, 1\)"),
        (["a"], np.zeros((1, 0)), {}, r"bias has shape \(1, 0\)"),
        (["a"], [1], {"impressions": [-1]}, "impressions must be finite"),
        (["a"], [1], {"impressions": [np.inf]}, "impressions must be finite"),
        (["a"], [1], {"impressions": [1, 2]}, r"impressions has shape \(2,\)"),
        (["a"], [1], {"clicks": [2]}, "clicks is missing, or is not between 0"),
        (["a"], [1], {"clicks": [np.nan]}, "clicks is missing, or is not between 0"),
    ],
)
def test_bad_arrays(doc, bias, counts, message):
    doc = np.array(doc) if np.ndim(doc) > 1 else doc
    with pytest.raises(ValueError, match=message):
        IdentifiabilityGraph(doc, bias, **counts)


def test_every_document_its_own_component():
    n = 50_000
    graph = IdentifiabilityGraph(np.arange(n), np.arange(n))
    assert graph.n_components == n
    assert graph.bridges().empty
    assert np.isinf(graph.weak_links(3)["standard_error"]).all()
    assert "50,000 components" in graph.summary()


@pytest.mark.parametrize("name", [int, str])
@pytest.mark.parametrize("engine", ENGINES)
def test_an_id_under_another_query_is_another_document(engine, name):
    log = pd.DataFrame({"qid": [1, 1, 2, 2], "doc": list("uvvu"), "position": [1, 2, 1, 2]})
    log["qid"], log["device"] = log["qid"].map(name), "phone"
    graph = IdentifiabilityGraph.from_log(ENGINES[engine](log))
    assert (graph.n_documents, graph.n_components) == (4, 2)
    wanted = [(name(1), "u"), (name(1), "v"), (name(2), "u"), (name(2), "v")]
    assert graph.pairs.doc_ids.tolist() == wanted
    shared = IdentifiabilityGraph.from_log(ENGINES[engine](log.assign(doc_scope="global")))
    assert (shared.n_documents, shared.n_components) == (2, 1)
    assert shared.pairs.doc_ids.names == ["doc"]
    assert shared.bridges()["doc"].tolist() == []
    with pytest.raises(ValueError, match="doc_scope holds"):
        pairs_of(ENGINES[engine](log.assign(doc_scope=["global", "query"] * 2)))


@pytest.mark.parametrize("engine", ENGINES)
def test_local_ids_that_recur_under_all_queries_link_nothing(engine):
    """Ids 0 to 9 under each query, each query under a factor of its own."""
    n_queries = 6
    log = pd.DataFrame(
        {
            "qid": np.repeat(np.arange(n_queries), 10),
            "doc": np.tile(np.arange(10), n_queries),
            "position": np.repeat(np.arange(n_queries), 10) + 1,
            "device": "phone",
        }
    )
    graph = IdentifiabilityGraph.from_log(ENGINES[engine](log))
    assert (graph.n_documents, graph.n_components) == (10 * n_queries, n_queries)
    assert graph.summary().startswith("NOT identifiable")
    shared = IdentifiabilityGraph.from_log(ENGINES[engine](log.assign(doc_scope="global")))
    assert (shared.n_documents, shared.n_components) == (10, 1)


def test_bridges_name_query_and_document():
    log = pd.DataFrame(
        {"qid": list("qqqqrr"), "doc": list("aabbbb"), "position": [1, 2, 1, 2, 2, 3]}
    )
    graph = IdentifiabilityGraph.from_log(log)
    assert graph.bridges()[["qid", "doc"]].values.tolist() == [["r", "b"]]
    assert "one document alone (qid and doc (r, b))" in graph.summary()


def test_columns_of_differing_dictionaries():
    """As PyArrow reads them from several row groups."""
    log = make_log()
    parts = [log[:100], log[100:120], log[120:]]
    tables = [to_arrow(part.astype({"doc": "category", "device": "category"})) for part in parts]
    table = pa.concat_tables(
        [to_arrow(part).cast(each.schema) for part, each in zip(parts, tables, strict=True)]
    )
    assert table["doc"].num_chunks == 3
    for frame in (table, duckdb.from_arrow(table), pl.from_arrow(table)):
        found = pairs_of(frame, bias=["position", "device"])
        assert_same_pairs(found, pairs_of(log, bias=["position", "device"]))


@pytest.mark.parametrize("kind", [list, np.array, pd.Series, pl.Series])
def test_clicks_may_be_any_column_of_values(kind):
    log = pd.DataFrame({"doc": [0, 0, 1, 1], "position": [1, 2, 1, 2], "impressions": 10})
    log["qid"] = 1
    graph = IdentifiabilityGraph.from_log(log, click=kind([0.5, 0.1, 0.0, 1.0]))
    assert graph.pairs.clicks.tolist() == [5.0, 1.0, 0.0, 10.0]
    graph = IdentifiabilityGraph.from_log(log, click=kind([5, 1, 0, 3]))
    assert graph.pairs.clicks.tolist() == [5.0, 1.0, 0.0, 3.0]
