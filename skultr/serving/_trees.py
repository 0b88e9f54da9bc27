"""Trees of a fitted ranker in one neutral form, with thresholds on the raw features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from lightgbm import LGBMModel
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

from .._typing import Floats, Ints
from ._served_model import ServedModel, parts_of, steps_of

__all__ = ["Tree", "nonnegative", "trees_of"]

#: Objectives whose predictions are the sum of the trees; without one it is a ranker's own.
_AS_IS = frozenset(
    "lambdarank rank_xendcg regression regression_l1 huber fair quantile mape custom".split()
)
#: Transformers whose output columns are each an increasing function of one input column.
_INCREASING = (StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler, QuantileTransformer)
_INCREASING_FUNCTIONS = frozenset(
    "log log1p log2 log10 sqrt cbrt arcsinh arctan tanh exp expm1".split()
)
#: Largest float32; features of engines lie between it and its negative.
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree: node 0 is the root, and children stand behind their parents.

    Parameters
    ----------
    feature : ndarray of shape (n_nodes,), int
        Number of the feature that a node splits by; -1 for a leaf.
    threshold : ndarray of shape (n_nodes,)
        A row goes left if its raw feature is at most this.
    missing_left : ndarray of shape (n_nodes,), bool
        Where a row goes whose feature is missing.
    left, right : ndarray of shape (n_nodes,), int
        Numbers of the children; -1 for a leaf.
    value : ndarray of shape (n_nodes,)
        Score of a leaf.
    """

    feature: Ints
    threshold: Floats
    missing_left: NDArray[np.bool_]
    left: Ints
    right: Ints
    value: Floats


def trees_of(served: ServedModel) -> list[Tree] | None:
    """Trees whose sum is the score of a ranker; None if it has no trees of LightGBM.

    A threshold of LightGBM applies to float32 numbers behind all transformers. The one of a tree
    here is the largest number (float64) that goes left when the ranker itself transforms and
    rounds it, found by bisection: the same documents go left, bit for bit.

    Parameters
    ----------
    served : ServedModel

    Returns
    -------
    trees : list of Tree or None

    Raises
    ------
    ValueError
        If the trees have splits or leaves that engines lack, if predictions are another function
        of their sum, or if a transformer makes a column of several or decreases.
    """
    learner, inner = _learner_of(served.ranker)
    if learner is None:
        return None
    dump = learner.dump_model()
    _refuse_objective(dump)
    part = len(dump["tree_info"]) if dump["average_output"] else 1
    trees = [_read_tree(each["tree_structure"], part) for each in dump["tree_info"]]
    for transformer in (*served.transformers, *inner):
        _check_transformer(transformer)
    return _on_raw_features(trees, served, inner)


def nonnegative(trees: list[Tree]) -> list[Tree]:
    """The trees, and one more leaf that keeps every sum of float32 numbers at 0 or above."""
    lowest = [tree.value[tree.feature < 0].min() for tree in trees]
    if sum(lowest) >= 0:
        return trees
    none = np.full(1, -1)
    shift = -sum(lowest) + 1e-5 * np.abs(lowest).sum()  # engines round each sum
    leaf = Tree(none, np.zeros(1), np.zeros(1, dtype=bool), none, none, np.array([shift]))
    return [*trees, leaf]


def _learner_of(ranker: Any):
    """The booster of a ranker, None if it has none, and transformers between the two."""
    if hasattr(ranker, "booster_"):
        return ranker.booster_, []
    learner = getattr(ranker, "estimator_", getattr(ranker, "student_", None))
    inner: list[Any] = []
    if isinstance(learner, Pipeline):
        *steps, learner = steps_of(learner)
        inner = [part for step in steps for part in parts_of(step)]
    return (learner.booster_ if isinstance(learner, LGBMModel) else None), inner


def _refuse_objective(dump):
    objective = dump.get("objective", "custom")
    if objective.split()[0] not in _AS_IS or "sqrt" in objective:
        raise ValueError(
            f"The trees have LightGBM's objective {objective!r}, whose predictions are another "
            "function of the sum of the leaves, and engines rank by the sum. Fit them with "
            "objective='regression'."
        )


def _read_tree(root, part):
    nodes, rows = [root], []
    for node in nodes:  # grows
        if "split_feature" not in node:
            _refuse_leaf(node)
            rows.append((-1, 0.0, -1, -1, node["leaf_value"] / part))
            continue
        _refuse_split(node)
        left = len(nodes)
        nodes += [node["left_child"], node["right_child"]]
        rows.append((node["split_feature"], node["threshold"], left, left + 1, 0.0))
    feature, threshold, left, right, value = (
        np.array(column) for column in zip(*rows, strict=True)
    )
    nowhere = np.zeros(len(rows), dtype=bool)
    return Tree(feature, threshold.astype(float), nowhere, left, right, value.astype(float))


def _refuse_leaf(node):
    if "leaf_coeff" in node:
        raise ValueError(
            "The leaves of the trees are linear models, which engines lack. Fit them with "
            "linear_tree=False."
        )


def _refuse_split(node):
    if node["decision_type"] != "<=":
        raise ValueError(
            f"The trees split feature {node['split_feature']} by categories, which engines lack. "
            "Fit them without categorical_feature."
        )
    if node["missing_type"] != "None":
        raise ValueError(
            f"At splits of feature {node['split_feature']} LightGBM's missing_type is "
            f"{node['missing_type']!r}, a rule that engines lack. Fit the trees without "
            "zero_as_missing, and to features without NaN."
        )


def _check_transformer(transformer):
    name = type(transformer).__name__
    if isinstance(transformer, FunctionTransformer):
        function = transformer.func
        known = isinstance(function, np.ufunc) and function.__name__ in _INCREASING_FUNCTIONS
        good, name = known and not transformer.kw_args, f"FunctionTransformer({function!r})"
    elif isinstance(transformer, PowerTransformer):
        good, name = transformer.method == "yeo-johnson", f"{name}({transformer.method!r})"
    elif isinstance(transformer, SimpleImputer):
        good = isinstance(missing := transformer.missing_values, float) and np.isnan(missing)
        good = good and transformer.indicator_ is None
        good = good and transformer.n_features_in_ == len(transformer.get_feature_names_out())
    else:
        good = isinstance(transformer, _INCREASING)
    if not good:
        raise ValueError(
            f"{name} cannot be written into the thresholds of trees, because a column of its "
            "output is not known to be an increasing function of one column of its input. Leave "
            "it out and fit again (trees need no scale), or let the engine compute its output "
            "and train on that."
        )


def _on_raw_features(trees, served, inner):
    """The trees with thresholds on raw features, and with the way of missing ones."""
    split = [tree.feature >= 0 for tree in trees]
    feature = np.concatenate([tree.feature[at] for tree, at in zip(trees, split, strict=True)])
    threshold = np.concatenate([tree.threshold[at] for tree, at in zip(trees, split, strict=True)])
    pairs, place = np.unique([feature, threshold], axis=1, return_inverse=True)
    column = pairs[0].astype(int)
    raw = _largest_left(column, pairs[1], served, inner)[place.ravel()]
    missing_left = (_default(served, inner)[column] <= pairs[1])[place.ravel()]
    ends = np.cumsum([at.sum() for at in split])[:-1]
    parts = zip(trees, split, np.split(raw, ends), np.split(missing_left, ends), strict=True)
    found = []
    for tree, at, bound, way in parts:
        threshold, missing_left = np.zeros(len(at)), np.zeros(len(at), dtype=bool)
        threshold[at], missing_left[at] = bound, way
        found.append(replace(tree, threshold=threshold, missing_left=missing_left))
    return found


def _largest_left(column, threshold, served, inner):
    """The largest raw value that each split sends left, shape (n_splits,)."""
    n_features = len(served.names)
    order = np.argsort(column, kind="stable")
    starts = np.searchsorted(column[order], np.arange(n_features))
    row = np.empty(len(column), dtype=int)
    row[order] = np.arange(len(column)) - starts[column[order]]
    at, shape = (row, column), (row.max(initial=-1) + 1, n_features)
    bound = np.full(shape, np.inf)
    bound[at] = threshold
    low, high = (np.full(shape, _order(np.array(x))) for x in (-_LARGEST, _LARGEST))
    for _ in range(64 if len(column) else 0):
        middle = (low & high) + ((low ^ high) >> 1)  # without overflow
        # NaN is what a logarithm gives below its domain.
        left = ~(_seen(_value(middle), served, inner) > bound)
        low, high = np.where(left, middle, low), np.where(left, high, middle)
    return _value(low)[at]


def _default(served, inner):
    """What LightGBM sees where a feature is missing, shape (n_features,).

    It is what an imputer in front of the ranker puts there, else 0, as engines log it.
    """
    shape = (1, len(served.names))
    with config_context(assume_finite=True), np.errstate(all="ignore"):
        missing, zero = (served.features(np.full(shape, x)) for x in (np.nan, 0.0))
    return _behind(inner, np.where(np.isnan(missing), zero, missing))[0]


def _seen(raw, served, inner):
    """What LightGBM sees of raw features."""
    with config_context(assume_finite=True), np.errstate(all="ignore"):
        return _behind(inner, served.features(raw))


def _behind(inner, features):
    for transformer in inner:
        features = np.asarray(transformer.transform(features))
    return features.astype(float)


def _order(x):
    """Numbers of floats in their order, int64; neighbours have neighbouring numbers."""
    bits = x.view(np.int64)
    return np.where(bits < 0, np.iinfo(np.int64).min - bits, bits)


def _value(number):
    return np.where(number < 0, np.iinfo(np.int64).min - number, number).view(float)
