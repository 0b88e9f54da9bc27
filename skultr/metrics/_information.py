"""Mutual information of scores and logged positions within grades: ranks, nearest neighbours."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import digamma, ndtri

from .._log._segments import offsets_from_counts, offsets_from_sorted
from .._typing import Bools, Floats, Ints

#: Number of neighbours. Measured on normal data: 3 has the same bias and more noise; 10 misses
#: strong dependence in grades of 50 documents.
_N_NEIGHBORS = 5
#: Smaller grades use fewer neighbours, because their fifth neighbour is far away.
_SMALL_GRADE, _N_NEIGHBORS_OF_SMALL = 100, 3
#: Neighbours share neighbours, so that their terms are correlated. Measured: the standard
#: deviation of the value is 1.1 to 1.5 times that of independent terms.
KNN_ERROR_FACTOR = 1.4

#: Smaller grades are compared together. Measured: of .51 nats in five grades of 15, neighbours
#: within the grade find .31, and .45 among the ranks of all five.
SMALLEST_GRADE = 20


def rows_that_vary(pred: Floats, logging: Floats, grade: Ints) -> Bools:
    """Mask of the documents of grades in which neither variable is constant; sorted by grade.

    In the other grades the information is 0, and an estimate would be noise.
    """
    varies = np.zeros(len(grade), dtype=bool)
    for part in grade_slices(grade):
        varies[part] = all(of[part].min() < of[part].max() for of in (pred, logging))
    return varies


# --------------------------------------------------------------------------------------
# Nearest neighbours
# --------------------------------------------------------------------------------------
def knn_information(
    pred: Floats,
    logging: Floats,
    grade: Ints,
    cell: Ints,
    n_repeats: int,
    rng: np.random.RandomState,
) -> Floats:
    """Term of each document in the information, in nats; documents are sorted by grade.

    Neighbours are those in the cell, ranks those in the grade: a cell is a large grade, or all
    small grades. Scattered ranks are uniform in a grade of any size, so that in the common cell
    variables are independent if they are so given the grade. Differences between grades do not
    count.
    """
    total = np.zeros(len(pred))
    for _ in range(n_repeats):
        x, y = (
            normal_scores(scattered_ranks(values, grade, rng), grade) for values in (pred, logging)
        )
        for part in grade_slices(cell):
            total[part] += _neighbor_information(x[part], y[part])
    return total / n_repeats


def _neighbor_information(x, y):
    """Terms of the first estimator of Kraskov et al., one per document.

    ψ(k) + ψ(n) - ψ(n_x) - ψ(n_y), with n_x and n_y the number of values (the document's own
    included) strictly closer in x and in y than the k-th neighbour, in the maximum norm.
    """
    n = len(x)
    k = min(_N_NEIGHBORS if n >= _SMALL_GRADE else _N_NEIGHBORS_OF_SMALL, n - 1)
    points = np.column_stack([x, y])
    distance = cKDTree(points).query(points, k=k + 1, p=np.inf)[0][:, -1]
    # Strictly closer: rounding must not include the k-th neighbour itself.
    distance *= 1 - 1e-10
    closer = [_n_within(values, distance) for values in (x, y)]
    return digamma(k) + digamma(n) - digamma(closer[0]) - digamma(closer[1])


def _n_within(values, distance):
    """Number of values within the given distance of each value, itself included."""
    ordered = np.sort(values)
    above = np.searchsorted(ordered, values + distance, side="right")
    return above - np.searchsorted(ordered, values - distance, side="left")


# --------------------------------------------------------------------------------------
# Ranks within grades
# --------------------------------------------------------------------------------------
def grade_slices(grade: Ints) -> list[slice]:
    """Slice of the rows of each grade; rows are sorted by grade."""
    offsets = offsets_from_sorted(grade)
    return [slice(*bounds) for bounds in pairwise(offsets)]


def scattered_ranks(values: Floats, grade: Ints, rng: np.random.RandomState) -> Floats:
    """Ranks from 1 within the grade, each moved by up to a half; equal values in random order.

    Independent noise that keeps the order of the values does not change the information. Without
    it, distances would be those of a lattice, nearest neighbours would tie, and small grades would
    appear dependent.
    """
    order = np.lexsort((rng.random_sample(len(values)), values, grade))
    return _ranks_in_order(order, grade) + rng.random_sample(len(values)) - 0.5


def mean_ranks(values: Floats, grade: Ints) -> Floats:
    """Ranks from 1 within the grade; equal values have their mean rank."""
    order = np.lexsort((values, grade))
    rank = _ranks_in_order(order, grade)
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(values[order]) != 0) | (np.diff(grade[order]) != 0)
    run = np.empty(len(order), dtype=np.intp)
    run[order] = np.cumsum(new) - 1
    return (np.bincount(run, rank) / np.bincount(run))[run]


def _ranks_in_order(order, grade):
    offsets = offsets_from_counts(np.bincount(grade))
    rank = np.empty(len(order))
    rank[order] = np.arange(len(order)) - offsets[grade[order]] + 1
    return rank


def normal_scores(rank: Floats, grade: Ints) -> Floats:
    """Normal quantiles of ranks within grades, so that both variables are standard normal."""
    return ndtri((rank - 0.5) / np.bincount(grade)[grade])
