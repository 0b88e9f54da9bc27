import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from skultr.identifiability import _plans
from skultr.identifiability._plans import (
    intervention_plan,
    merge_plan,
    merged_codes,
    neighbour_inside,
    random_plan,
    tree_diameter,
)


def random_labels(rng, n_factors, n_components):
    extra = rng.integers(0, n_components, n_factors - n_components)
    return rng.permutation(np.concatenate([np.arange(n_components), extra]))


def dense_tree(cost, labels):
    """Total cost and sorted costs of the minimum spanning tree over components, by networkx."""
    graph = nx.Graph()
    graph.add_nodes_from(range(labels.max() + 1))
    for i in range(len(labels)):
        for j in range(i):
            ends = int(labels[i]), int(labels[j])
            if ends[0] != ends[1]:
                known = graph.get_edge_data(*ends, {"weight": np.inf})["weight"]
                graph.add_edge(*ends, weight=min(known, cost[i, j]))
    tree = nx.minimum_spanning_tree(graph)
    return np.sort([weight for *_, weight in tree.edges(data="weight")])


def assert_spans(labels, a, b):
    """The links join all components, each `b` to what hangs together with component 0."""
    reached = {0}
    for left, right in zip(labels[a].tolist(), labels[b].tolist(), strict=True):
        assert left in reached
        assert right not in reached
        reached.add(right)
    assert reached == set(range(labels.max() + 1))


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_merges_are_the_minimum_spanning_tree(data):
    n_components = data.draw(st.integers(1, 12))
    n_factors = data.draw(st.integers(n_components, 25))
    n_dimensions = data.draw(st.integers(0, 3))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    # Few values, so that ties and equal vectors are common.
    vectors = rng.integers(
        0, data.draw(st.sampled_from([1, 3, 1000])) + 1, (n_factors, n_dimensions)
    )
    labels = random_labels(rng, n_factors, n_components)
    a, b, cost = merge_plan(vectors, labels)
    assert len(a) == len(b) == len(cost) == n_components - 1
    assert_spans(labels, a, b)
    distance = cdist(vectors, vectors) if n_dimensions else np.zeros((n_factors, n_factors))
    np.testing.assert_allclose(cost, distance[a, b])
    np.testing.assert_allclose(np.sort(cost), dense_tree(distance, labels))


@pytest.mark.parametrize("n_dimensions", [1, 4])
def test_merges_agree_with_dense_tree_on_hundreds(n_dimensions, monkeypatch):
    monkeypatch.setattr(_plans, "_CHUNK", 1000)
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(400, n_dimensions))
    labels = np.where(rng.random(400) < 0.3, 0, random_labels(rng, 400, 250))
    labels = np.unique(labels, return_inverse=True)[1]
    a, b, cost = merge_plan(vectors, labels)
    assert_spans(labels, a, b)
    np.testing.assert_allclose(np.sort(cost), dense_tree(cdist(vectors, vectors), labels))


def test_merges_do_not_depend_on_constant_features_or_shifts():
    rng = np.random.default_rng(1)
    vectors, labels = rng.integers(0, 99, (60, 2)).astype(float), random_labels(rng, 60, 20)
    a, b, cost = merge_plan(vectors, labels)
    wide = np.column_stack([np.full(60, 3.0), vectors + 1024.0])
    for left, right in zip(merge_plan(wide, labels), (a, b, cost), strict=True):
        np.testing.assert_array_equal(left, right)


def test_too_many_factors_are_refused_with_the_time():
    labels = np.arange(3_000_000)
    vectors = np.column_stack([labels, labels])
    with pytest.raises(ValueError, match=r"3,000,000 bias factors .* hours.*coarser"):
        merge_plan(vectors, labels)


def brute_force_costs(doc, factor, labels, relevance, examination):
    n_components = labels.max() + 1
    cost = np.full((n_components, n_components), np.inf)
    for x, t in zip(doc, factor, strict=True):
        for to in range(len(labels)):
            if labels[to] != labels[t]:
                swap = 1 / (relevance[x] * examination[t]) + 1 / (relevance[x] * examination[to])
                ends = (labels[t], labels[to])
                cost[ends] = min(cost[ends], swap - 2)
    return np.minimum(cost, cost.T)


def random_pairs(rng, n_components, n_factors, n_docs, n_pairs):
    """Pairs of documents that stay within a component, at least one a factor."""
    labels = random_labels(rng, n_factors, n_components)
    factor = np.concatenate([np.arange(n_factors), rng.integers(0, n_factors, n_pairs)])
    doc = labels[factor] + n_components * rng.integers(0, n_docs, len(factor))
    doc, factor = np.unique(np.column_stack([doc, factor]), axis=0).T
    return doc, factor, labels


def estimates(rng, doc, labels, few=False):
    draw = (lambda n: rng.choice([0.1, 0.5, 1.0], n)) if few else (lambda n: 1 - rng.random(n))
    return draw(doc.max() + 1), draw(len(labels))


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 10_000), st.integers(1, 7), st.integers(0, 8), st.booleans())
def test_interventions_are_the_minimum_spanning_tree(seed, n_components, extra, few):
    rng = np.random.default_rng(seed)
    doc, factor, labels = random_pairs(rng, n_components, n_components + extra, 4, 20)
    relevance, examination = estimates(rng, doc, labels, few)
    x, start, to, cost = intervention_plan(doc, factor, labels, relevance, examination)

    logged = set(zip(doc.tolist(), factor.tolist(), strict=True))
    assert all(pair in logged for pair in zip(x.tolist(), start.tolist(), strict=True))
    tree = nx.Graph(list(zip(labels[start], labels[to], strict=True)))
    tree.add_nodes_from(range(n_components))
    assert nx.is_tree(tree)
    swap = (1 / examination[start] + 1 / examination[to]) / relevance[x] - 2
    np.testing.assert_allclose(cost, swap)
    least = brute_force_costs(doc, factor, labels, relevance, examination)
    dense = dense_tree(least, np.arange(n_components))
    np.testing.assert_allclose(np.sort(cost), dense, rtol=1e-9, atol=1e-9)


def test_interventions_in_chunks_are_the_same(monkeypatch):
    rng = np.random.default_rng(3)
    doc, factor, labels = random_pairs(rng, 40, 90, 50, 3000)
    relevance, examination = estimates(rng, doc, labels)
    plan = intervention_plan(doc, factor, labels, relevance, examination)
    monkeypatch.setattr(_plans, "_CHUNK", 50)
    for left, right in zip(
        intervention_plan(doc, factor, labels, relevance, examination), plan, strict=True
    ):
        np.testing.assert_array_equal(left, right)


def test_components_without_candidates_receive():
    labels = np.array([0, 1, 2])
    x, start, to, cost = intervention_plan(
        np.array([0]), np.array([1]), labels, np.array([0.5]), np.array([1.0, 0.8, 0.25])
    )
    assert x.tolist() == [0, 0]
    assert start.tolist() == [1, 1]
    assert sorted(to.tolist()) == [0, 2]
    np.testing.assert_allclose(np.sort(cost), [2 / 0.8 + 2 - 2, 2 / 0.8 + 8 - 2])


@pytest.mark.parametrize("n_components", [1, 2, 9])
def test_random_plans_span_and_follow_the_seed(n_components):
    rng = np.random.default_rng(5)
    doc, factor, labels = random_pairs(rng, n_components, n_components + 6, 5, 40)
    plans = [random_plan(doc, factor, labels, np.random.default_rng(seed)) for seed in (0, 0, 1)]
    logged = set(zip(doc.tolist(), factor.tolist(), strict=True))
    for x, start, to in plans:
        assert all(pair in logged for pair in zip(x.tolist(), start.tolist(), strict=True))
        tree = nx.Graph(list(zip(labels[start], labels[to], strict=True)))
        tree.add_nodes_from(range(n_components))
        assert nx.is_tree(tree)
    np.testing.assert_array_equal(plans[0], plans[1])
    assert n_components < 9 or not np.array_equal(plans[0], plans[2])


def test_random_plans_draw_every_swap_alike():
    # Two components: 2 pairs and 1 factor against 1 pair and 3 factors, so 2 * 3 + 1 swaps.
    doc, factor = np.array([0, 1, 2]), np.array([0, 0, 1])
    labels = np.array([0, 1, 1, 1])
    seen = {}
    rng = np.random.default_rng(0)
    for _ in range(7000):
        swap = tuple(int(part[0]) for part in random_plan(doc, factor, labels, rng))
        seen[swap] = seen.get(swap, 0) + 1
    assert len(seen) == 7
    # Binomial counts of mean 1000 and standard deviation 29.3: within five of them.
    assert max(abs(count - 1000) for count in seen.values()) < 147


@settings(deadline=None)
@given(st.integers(1, 20), st.integers(0, 1000))
def test_diameter_is_the_longest_path(n_nodes, seed):
    rng = np.random.default_rng(seed)
    tree = nx.random_labeled_tree(n_nodes, seed=seed)
    edges = np.array(tree.edges, dtype=int).reshape(-1, 2)
    cost = rng.integers(0, 4, len(edges)).astype(float)  # zeros too
    tree.add_weighted_edges_from((*edge, weight) for edge, weight in zip(edges, cost, strict=True))
    lengths = dict(nx.all_pairs_dijkstra_path_length(tree))
    longest = max(max(row.values()) for row in lengths.values())
    assert tree_diameter(*edges.T, cost) == pytest.approx(longest)


def test_merged_codes_count_by_first_factor():
    assert merged_codes(6, np.array([4, 1]), np.array([1, 5])).tolist() == [0, 1, 2, 3, 1, 1]
    assert merged_codes(3, np.array([], dtype=int), np.array([], dtype=int)).tolist() == [0, 1, 2]


@settings(deadline=None)
@given(st.integers(0, 1000), st.integers(1, 5), st.sampled_from([3, 1 << 21]))
def test_neighbour_is_the_one_at_about_the_distance(seed, n_components, chunk):
    rng = np.random.default_rng(seed)
    labels = random_labels(rng, 12, n_components)
    vectors = rng.integers(0, 4, (12, 2)).astype(float)
    chosen, wanted = rng.integers(0, 12, 15), rng.uniform(0, 4, 15)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_plans, "_CHUNK", chunk)
        neighbour, found = neighbour_inside(vectors, labels, chosen, wanted)
    apart = cdist(vectors, vectors)
    for factor, distance, other, length in zip(chosen, wanted, neighbour, found, strict=True):
        inside = apart[factor][(labels == labels[factor]) & (apart[factor] > 0)]
        if not len(inside):
            assert other == -1
            assert np.isnan(length)
            continue
        assert labels[other] == labels[factor]
        assert length == apart[factor, other]
        assert abs(length - distance) == pytest.approx(np.abs(inside - distance).min())
