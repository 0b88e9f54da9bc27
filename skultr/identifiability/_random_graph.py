"""Probability that a graph with random edges is connected."""

from __future__ import annotations

from math import comb

import numpy as np

from .._typing import Floats

#: Up to this number of nodes the recursion loses at most 1e-9 to rounding.
_MAX_EXACT = 30


def random_graph_connected(n_nodes: int, log_apart: Floats) -> Floats:
    """Probability that a graph is connected whose edges are independent and equally likely.

    Gilbert's recursion (1959) over the size k of the part that holds the first node; above 30
    nodes its limit, in which nodes without an edge are Poisson distributed and nothing else
    divides the graph.
    """
    if n_nodes > _MAX_EXACT:
        return np.exp(-n_nodes * np.exp((n_nodes - 1) * log_apart))
    apart = np.exp(log_apart)
    connected = [np.ones(np.shape(apart))]
    for n in range(2, n_nodes + 1):
        fewer = sum(
            comb(n - 1, k - 1) * connected[k - 1] * apart ** (k * (n - k)) for k in range(1, n)
        )
        connected.append(np.clip(1.0 - fewer, 0.0, 1.0))
    return connected[-1]
