"""Time the plans of repairs: merges of 50,000 bias factors, interventions over a million pairs.

Run by hand: ``python tests/benchmarks/bench_repair.py [n_factors] [n_components] [n_pairs]``.
Both plans are held against dense minimum spanning trees (SciPy, on the full matrix of costs
between factors) on a smaller case in the same run: same total cost, and the ratio of the times,
each a factor (or component) squared.
"""

import resource
import sys
import time

import numpy as np
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import cdist

from skultr.identifiability._plans import intervention_plan, merge_plan, tree_diameter

N_DIMENSIONS = 11
_SMALL = 5_000


def timed(label, function):
    start = time.perf_counter()
    value = function()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{label:<62} {seconds:7.2f} s   peak {peak:5.2f} GiB", flush=True)
    return seconds, value


def factors(rng, n_factors, n_components):
    """Contexts of ten features with a position, as in the paper, and components at random."""
    context = rng.normal(0, 0.35, (n_factors, N_DIMENSIONS - 1))
    position = 10.0 * rng.integers(1, 11, n_factors)
    return np.column_stack([context, position]), labels(rng, n_factors, n_components)


def labels(rng, n_factors, n_components):
    rest = rng.integers(0, n_components, n_factors - n_components)
    return rng.permutation(np.concatenate([np.arange(n_components), rest]))


def pairs(rng, n_factors, n_components, n_pairs):
    """Documents that stay within their component, with relevance and examination."""
    component = labels(rng, n_factors, n_components)
    factor = np.concatenate(
        [np.arange(n_factors), rng.integers(0, n_factors, n_pairs - n_factors)]
    )
    per_component = max(1, n_pairs // (3 * n_components))
    doc = component[factor] * per_component + rng.integers(0, per_component, n_pairs)
    relevance = rng.uniform(0.01, 1, n_components * per_component)
    return doc, factor, component, relevance, rng.uniform(0.01, 1, n_factors)


def dense_total(cost, component):
    """Cost of the dense minimum spanning tree, after the least cost of any two components."""
    n_components = component.max() + 1
    order = np.argsort(component, kind="stable")
    starts = np.searchsorted(component[order], np.arange(n_components))
    cost = np.minimum.reduceat(cost[order][:, order], starts, axis=0)
    cost = np.minimum.reduceat(cost, starts, axis=1)
    np.fill_diagonal(cost, 0.0)  # no edge
    return minimum_spanning_tree(cost).sum()


def dense_swaps(doc, factor, component, relevance, examination):
    """The cheapest swap of a component with each factor, from all pairs; as costs of factors."""
    n_components = component.max() + 1
    cost = np.full((n_components, len(component)), np.inf)
    for start in range(0, len(doc), 1000):
        part = slice(start, start + 1000)
        seen = 1 / (relevance[doc[part]] * examination[factor[part]])
        swap = seen[:, None] + 1 / (relevance[doc[part], None] * examination) - 2
        np.minimum.at(cost, component[factor[part]], swap)
    order = np.argsort(component, kind="stable")
    starts = np.searchsorted(component[order], np.arange(n_components))
    cost = np.minimum.reduceat(cost[:, order], starts, axis=1)
    cost = np.minimum(cost, cost.T)
    np.fill_diagonal(cost, 0.0)
    return minimum_spanning_tree(cost).sum()


def main(n_factors=50_000, n_components=48_000, n_pairs=1_000_000):
    rng = np.random.default_rng(0)
    vectors, component = factors(rng, n_factors, n_components)
    own, (a, b, cost) = timed(
        f"merge plan, {n_factors:,} factors, {n_components:,} components",
        lambda: merge_plan(vectors, component),
    )
    diameter = tree_diameter(n_components, component[a], component[b], cost)
    print(f"total cost {cost.sum():.3f}, diameter {diameter:.3f}")
    vectors, component = factors(rng, _SMALL, _SMALL * 24 // 25)
    small, (_, _, cost) = timed(
        f"merge plan, {_SMALL:,} factors", lambda: merge_plan(vectors, component)
    )
    peer, total = timed(
        f"dense tree, {_SMALL:,} factors", lambda: dense_total(cdist(vectors, vectors), component)
    )
    np.testing.assert_allclose(cost.sum(), total)
    growth = own / small * (_SMALL / n_factors) ** 2
    print(f"dense / skultr: {peer / small:.1f}; time per squared factor grows by {growth:.2f}")

    n_components = 5_000
    world = pairs(rng, 4 * n_components, n_components, n_pairs)
    _, plan = timed(
        f"intervention plan, {n_components:,} components, {n_pairs:,} pairs",
        lambda: intervention_plan(*world),
    )
    print(f"total cost {plan[3].sum():.3f}")
    world = pairs(rng, 1_200, 300, 20_000)
    small, plan = timed(
        "intervention plan, 300 components, 20,000 pairs", lambda: intervention_plan(*world)
    )
    peer, total = timed("all swaps and a dense tree, the same", lambda: dense_swaps(*world))
    np.testing.assert_allclose(plan[3].sum(), total)
    print(f"dense / skultr: {peer / small:.1f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
