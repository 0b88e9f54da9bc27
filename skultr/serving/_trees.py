"""Trees of a fitted ranker in one neutral form, with thresholds on the raw features."""

from __future__ import annotations

from typing import Any, NamedTuple

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

from .._base._typing import Floats, Ints
from ._served_model import ServedModel, parts_of, steps_of

#: Objectives whose predictions are the sum of the trees.
_AS_IS = {"lambdarank", "rank_xendcg", "regression", "regression_l1", "huber", "fair", "quantile"}
_AS_IS |= {"mape", "custom"}
#: Transformers whose output columns are each an increasing function of one input column.
_INCREASING = (StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler, QuantileTransformer)
_INCREASING_FUNCTIONS = {np.log, np.log1p, np.log2, np.log10, np.sqrt, np.cbrt, np.arcsinh}
_INCREASING_FUNCTIONS |= {np.arctan, np.tanh, np.exp, np.expm1}
#: LightGBM's predict takes numbers up to this size for 0.
_ZERO = float(np.float32(1e-35))
#: Features of engines lie between this and its negative.
_LARGEST = float(np.finfo(np.float32).max)


class Tree(NamedTuple):
    """One tree, an array per column: node 0 is the root, children stand behind their parents."""

    #: Number of the feature that a node splits by; -1 for a leaf.
    feature: Ints
    #: A row goes left if its raw feature is at most this.
    threshold: Floats
    #: Where a row goes whose feature is missing.
    missing_left: NDArray[np.bool_]
    #: Whether that was learned: otherwise it is the way of a number, that of 0 or of an imputer.
    learned: NDArray[np.bool_]
    #: Numbers of the children; -1 for a leaf.
    left: Ints
    right: Ints
    #: Score of a leaf.
    value: Floats
    #: Number of splits above.
    depth: Ints


def trees_of(served: ServedModel) -> list[Tree] | None:
    """Trees whose sum is the score of a ranker; None if it has no trees of LightGBM.

    A threshold of LightGBM applies to float32 numbers behind all transformers. The one of a tree
    here is the largest number (float64) that goes left when the ranker itself transforms and
    rounds it, found by bisection: the same documents go left, bit for bit.

    What engines lack is a ValueError, and a transformer that makes a column of several or falls.
    """
    learner, inner = _learner_of(served.ranker)
    if learner is None:
        return None
    dump = learner.dump_model()
    objective = dump.get("objective", "custom")
    if objective.split()[0] not in _AS_IS or "sqrt" in objective:
        _refuse(f"have the objective {objective!r}, a function of the sum", "objective=None")
    part = len(dump["tree_info"]) if dump["average_output"] else 1
    trees = [_read_tree(each["tree_structure"], part) for each in dump["tree_info"]]
    for place, transformer in enumerate((*served.transformers, *inner)):
        _check_transformer(transformer, place)
    return _on_raw_features(trees, served, inner)


def nonnegative(trees: list[Tree]) -> list[Tree]:
    """The trees, and one more leaf that keeps every sum of float32 numbers at 0 or above."""
    lowest = [tree.value[tree.feature < 0].min() for tree in trees]
    if sum(lowest) >= 0:
        return trees
    shift = -sum(lowest) + 1e-5 * np.abs(lowest).sum()  # engines round each sum
    return [*trees, _read_tree({"leaf_value": shift}, 1)]


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


def _read_tree(root, part):
    nodes, rows = [(root, 0)], []
    for node, depth in nodes:  # grows
        if "split_feature" not in node:
            if "leaf_coeff" in node:
                _refuse("have linear models as leaves", "linear_tree=False")
            rows.append((-1, 0.0, False, False, -1, -1, node["leaf_value"] / part, depth))
            continue
        feature, left = node["split_feature"], len(nodes)
        if node["decision_type"] != "<=":
            _refuse(
                f"split feature {feature} by categories",
                "categories encoded as numbers, by a step that the engine computes, too; or score "
                "with LightGBM, whose file (booster_.save_model) holds such splits",
            )
        if node["missing_type"] == "Zero":
            _refuse(f"take 0 in feature {feature} for missing", "zero_as_missing=False")
        nodes += [(node["left_child"], depth + 1), (node["right_child"], depth + 1)]
        learned, default = node["missing_type"] == "NaN", node["default_left"]
        rows.append((feature, node["threshold"], default, learned, left, left + 1, 0.0, depth))
    return Tree(*map(np.array, zip(*rows, strict=True)))


def _refuse(found, instead):
    raise ValueError(f"The trees {found}, which engines lack. Fit them with {instead}.")


def _check_transformer(transformer, place):
    good = type(transformer) in _INCREASING
    if isinstance(transformer, FunctionTransformer):
        good = transformer.func in _INCREASING_FUNCTIONS and not transformer.kw_args
    elif isinstance(transformer, PowerTransformer):
        good = transformer.method == "yeo-johnson"
    elif isinstance(transformer, SimpleImputer) and place == 0:  # a logarithm makes NaN, too
        missing, n_out = transformer.missing_values, len(transformer.get_feature_names_out())
        of_nan = isinstance(missing, float) and np.isnan(missing)
        good = of_nan and n_out == transformer.n_features_in_
    if not good:
        raise ValueError(
            f"{transformer!r} cannot be written into the thresholds of trees: a column of its "
            "output is not known to be an increasing function of one column of its input. Leave "
            "it out and fit again (trees need no scale), or let the engine compute its output "
            "and train on that."
        )


def _on_raw_features(trees, served, inner):
    """The trees with thresholds on raw features, and with the way of missing ones."""
    feature, threshold = (np.concatenate(column) for column in list(zip(*trees, strict=True))[:2])
    split = feature >= 0
    pairs = np.stack([feature[split], threshold[split]])
    pairs, place = np.unique(pairs, axis=1, return_inverse=True)
    column = pairs[0].astype(int)
    threshold[split] = _largest_left(column, pairs[1], served, inner)[place.ravel()]
    # What LightGBM sees where a feature is missing: NaN, unless an imputer puts a number there.
    seen = _behind(inner, _ranker_sees(served, np.full((1, len(served.names)), np.nan)))[0]
    as_number = np.zeros(len(split), dtype=bool)
    as_number[split] = (np.nan_to_num(seen)[column] <= pairs[1])[place.ravel()]
    filled = np.zeros(len(split), dtype=bool)
    filled[split] = ~np.isnan(seen)[feature[split].astype(int)]
    missing_left, learned = (np.concatenate(x) for x in list(zip(*trees, strict=True))[2:4])
    learned = learned & ~filled
    missing_left = np.where(learned, missing_left, as_number)
    ends = np.cumsum([len(tree.feature) for tree in trees])[:-1]
    columns = (np.split(of, ends) for of in (threshold, missing_left, learned))
    return [
        tree._replace(threshold=bound, missing_left=way, learned=own)
        for tree, bound, way, own in zip(trees, *columns, strict=True)
    ]


def _largest_left(column, threshold, served, inner):
    """The largest raw value that each split sends left, shape (n_splits,); columns are sorted."""
    row = np.arange(len(column)) - np.searchsorted(column, column)
    bound = np.full((row.max(initial=-1) + 1, len(served.names)), np.inf)
    bound[row, column] = threshold
    low, high = (np.full(bound.shape, _order(np.array(x))) for x in (-_LARGEST, _LARGEST))
    for _ in range(64 if len(column) else 0):
        middle = (low & high) + ((low ^ high) >> 1)  # without overflow
        # NaN is what a logarithm gives below its domain.
        left = ~(_behind(inner, _ranker_sees(served, _value(middle))) > bound)
        low, high = np.where(left, middle, low), np.where(left, high, middle)
    return _value(low)[row, column]


def _ranker_sees(served, raw):
    with config_context(assume_finite=True), np.errstate(all="ignore"):
        return served.features(raw)


def _behind(inner, features):
    """What LightGBM sees of the features of a ranker."""
    with config_context(assume_finite=True), np.errstate(all="ignore"):
        for transformer in inner:
            features = np.asarray(transformer.transform(features))
    return np.where(np.abs(features) <= _ZERO, 0.0, features.astype(float))


def _order(x):
    """Numbers of floats in their order, int64; neighbours have neighbouring numbers."""
    bits = x.view(np.int64)
    return np.where(bits < 0, np.iinfo(np.int64).min - bits, bits)


def _value(number):
    return np.where(number < 0, np.iinfo(np.int64).min - number, number).view(float)
