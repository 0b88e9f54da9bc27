"""Effective resistance against the pseudoinverse, links against brute force and simulation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import minimum_spanning_tree

from skultr._log._cells import factor_components
from skultr._log._pairs import pairs_from_arrays
from skultr._models import _solve
from skultr.identifiability._bridges import effective_resistance, weak_links


def full_resistance(doc, factor, conductance):
    """Between all factors, through the Laplacian of documents and factors together."""
    n_docs, n_factors = doc.max() + 1, factor.max() + 1
    weights = np.zeros((n_docs, n_factors))
    np.add.at(weights, (doc, factor), conductance)
    corner = np.zeros((n_docs, n_docs)), np.zeros((n_factors, n_factors))
    joined = np.block([[corner[0], weights], [weights.T, corner[1]]])
    inverse = np.linalg.pinv(np.diag(joined.sum(axis=1)) - joined, rcond=1e-13)[n_docs:, n_docs:]
    diagonal = inverse.diagonal()
    return diagonal[:, None] + diagonal - 2 * inverse


def connected_log(seed, n_docs=12, n_factors=8, largest=1000):
    """A connected log as arrays of distinct pairs."""
    rng = np.random.default_rng(seed)
    while True:
        n_rows = n_factors * 4
        rows = rng.integers(n_docs, size=n_rows), rng.integers(n_factors, size=n_rows)
        clicks = np.exp(rng.uniform(0, np.log(largest), n_rows))
        pairs = pairs_from_arrays(rows[0], rows[1], clicks)
        if factor_components(pairs.doc, pairs.factor, pairs.n_factors)[0] == 1:
            return pairs.doc, pairs.factor, pairs.impressions


@pytest.mark.parametrize("seed", range(30))
def test_resistance_is_that_of_the_pseudoinverse(seed):
    log = connected_log(seed)
    expected = full_resistance(*log)
    np.testing.assert_allclose(effective_resistance(*log), expected, rtol=1e-6, atol=1e-12)


def test_resistance_of_dense_blocks_is_that_of_the_sparse_product(monkeypatch):
    log = connected_log(0)
    expected = effective_resistance(*log)
    monkeypatch.setattr(_solve, "_SPARSE", 0)
    monkeypatch.setattr(_solve, "_BLOCK", 20)
    np.testing.assert_allclose(effective_resistance(*log), expected, rtol=1e-10)


def test_series_and_parallel():
    # Two documents side by side, each two resistors in a row: (1/2 + 1/2) / 2.
    doc, factor = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    resistance = effective_resistance(doc, factor, np.full(4, 2.0))
    np.testing.assert_allclose(resistance, [[0, 0.5], [0.5, 0]], atol=1e-15)


def test_a_weak_link_beside_very_strong_ones_is_exact():
    doc = np.array([0, 0, 1, 1, 2, 2])
    factor = np.array([0, 1, 1, 2, 2, 3])
    conductance = np.array([1e8, 1e8, 1.0, 1.0, 1e8, 1e8])
    resistance = effective_resistance(doc, factor, conductance)
    assert resistance[0, 3] == pytest.approx(2.0, rel=1e-6)
    a, b, _, n_smaller = weak_links(doc, factor, conductance, 4)
    assert {int(a[0]), int(b[0])} == {1, 2}
    assert n_smaller.tolist() == [2, 1, 1]


def test_conductances_beyond_the_precision_of_floats():
    doc, factor = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2])
    resistance = effective_resistance(doc, factor, np.array([1e200, 1e200, 1e-200, 1e-200]))
    assert (resistance >= 0).all()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10_000))
def test_links_are_a_minimum_spanning_tree(seed):
    doc, factor, conductance = connected_log(seed)
    resistance = full_resistance(doc, factor, conductance)
    n_factors = len(resistance)
    a, b, variance, n_smaller = weak_links(doc, factor, conductance, n_factors)
    assert (np.diff(variance) <= 0).all()
    np.testing.assert_allclose(variance, resistance[a, b], rtol=1e-5)
    tree = minimum_spanning_tree(resistance).data
    np.testing.assert_allclose(np.sort(variance), np.sort(tree), rtol=1e-5)
    # No two factors on the two sides of the weakest link can be compared better.
    side = factor_components(
        np.arange(len(a) - 1).repeat(2), np.c_[a[1:], b[1:]].ravel(), n_factors
    )[1]
    across = side[:, None] != side
    assert resistance[across].min() >= variance[0] * (1 - 1e-5)
    assert n_smaller[0] == min(np.bincount(side))


def test_without_clicks_nothing_is_known():
    doc, factor = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 1, 2, 2, 3])
    conductance = np.array([5.0, 5.0, 7.0, 0.0, 5.0, 5.0])
    variance = weak_links(doc, factor, conductance, 4)[2]
    assert np.isinf(variance).tolist() == [True, False, False]
    variance = weak_links(doc, factor, 0 * conductance, 4)[2]
    assert np.isinf(variance).all()


def test_too_many_factors_of_one_component_are_refused():
    doc, factor = np.repeat(np.arange(2000), 2), np.repeat(np.arange(2001), 2)[1:-1]
    with pytest.raises(ValueError, match=r"links 2,001 bias factors.*at most 2,000"):
        weak_links(doc, factor, np.ones(len(doc)), 2001)
    variance = weak_links(doc[2:], factor[2:], np.ones(len(doc) - 2), 2001)[2]
    assert np.isinf(variance).sum() == 1


def test_standard_error_is_that_of_the_maximum_likelihood_estimate():
    # The variance of log(o_1 / o_0) over simulated logs of one shared document is 1/c_0 + 1/c_1.
    rng = np.random.default_rng(0)
    n_logs, mean = 20_000, np.array([400.0, 100.0])
    clicks = rng.poisson(mean, (n_logs, 2))
    variance = np.var(np.log(clicks[:, 1] / clicks[:, 0]))
    bound = effective_resistance(np.array([0, 0]), np.array([0, 1]), mean)[0, 1]
    assert bound == pytest.approx(1 / 400 + 1 / 100)
    assert variance == pytest.approx(bound, rel=5 * np.sqrt(2 / n_logs) + 2 / mean.min())
