"""Trees of a fitted ranker, with thresholds on the raw features, and as texts for engines."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Mapping
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
from .._log._estimator import steps_of
from ._served_model import ServedModel, parts_of, terms_of

#: Objectives whose predictions are the sum of the trees.
_AS_IS = (
    "lambdarank",
    "rank_xendcg",
    "regression",
    "regression_l1",
    "huber",
    "fair",
    "quantile",
    "mape",
    "custom",
)
#: Transformers whose output columns are each an increasing function of one input column.
_INCREASING = (StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler, QuantileTransformer)
#: Functions that increase wherever they are defined.
_INCREASING_FUNCTIONS = {
    np.log,
    np.log1p,
    np.log2,
    np.log10,
    np.sqrt,
    np.cbrt,
    np.arcsinh,
    np.arctan,
    np.tanh,
    np.exp,
    np.expm1,
}
#: LightGBM's predict takes numbers up to this size for 0.
_ZERO = float(np.float32(1e-35))
#: Features of engines lie between this and its negative.
_LARGEST = float(np.finfo(np.float32).max)
#: What LightGBM's dump writes for infinity: the bound of a split that every number passes.
_DUMPED_INFINITY = 1e300


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


class _Node(NamedTuple):
    """A row of the columns of a tree; by default that of a leaf, without feature or children."""

    feature: int = -1
    threshold: float = 0.0
    missing_left: bool = False
    learned: bool = False
    left: int = -1
    right: int = -1
    value: float = 0.0
    depth: int = 0


def trees_of(served: ServedModel) -> list[Tree] | None:
    """Trees whose sum is the score of a ranker; None if it has no trees of LightGBM.

    A threshold of LightGBM applies to float32 numbers behind all transformers. The one of a tree
    here is the largest number (float64) that goes left when the ranker itself transforms and
    rounds it, found by bisection: the same documents go left, bit for bit.

    A ValueError is raised for trees with what engines lack, and for a transformer that makes one
    column of several or is not increasing.
    """
    terms, (factor_of_production, _) = terms_of(served)
    if factor_of_production:
        return None
    members = []
    for factor, center, member in terms:
        trees = _trees_of_one(member)
        if not trees:
            return None
        members.append((factor, center, trees))
    if not hasattr(served.ranker, "_terms"):  # not of an ensemble: it is its only member
        return members[0][2]
    parts = [scaled_trees(*each) for each in members]
    # Constants of all members become one leaf: engines know no intercept.
    constant = sum(shift for _, shift in parts)
    trees = [_leaf(constant)]
    for part, _ in parts:
        trees += part
    return trees


def scaled_trees(factor: float, center: float, trees: list[Tree]) -> tuple[list[Tree], float]:
    """Trees and a constant; their sum is ``factor`` times what the trees give above ``center``.

    Leaves are near 0, so that engines, which read them in float32, round off little.
    """
    middles = []
    scaled = []
    for tree in trees:
        is_leaf = tree.feature < 0
        # The mean of the leaves moves from each tree into the constant.
        middle = tree.value[is_leaf].mean()
        value = factor * np.where(is_leaf, tree.value - middle, 0.0)
        # f (sum of trees - c) = sum of f (tree - middle) + f (sum of middles - c)
        middles.append(middle)
        scaled.append(tree._replace(value=value))
    return scaled, factor * (sum(middles) - center)


def _trees_of_one(served):
    """The trees of one ranker; None if it has none."""
    learner, inner = _learner_of(served.ranker)
    if learner is None:
        return None
    dump = learner.dump_model()
    objective = dump.get("objective", "custom")
    if objective.split()[0] not in _AS_IS or "sqrt" in objective:
        _refuse(f"have the objective {objective!r}, a function of the sum", "objective=None")
    # A random forest gives the mean of its trees.
    n_averaged = len(dump["tree_info"]) if dump["average_output"] else 1
    for place, transformer in enumerate((*served.transformers, *inner)):
        _check_transformer(transformer, place)
    trees = [
        _read_tree(tree["tree_structure"], n_averaged, served.names) for tree in dump["tree_info"]
    ]
    return _on_raw_features(trees, served, inner)


def nonnegative(trees: list[Tree]) -> list[Tree]:
    """The trees, and one more leaf that keeps every sum of float32 numbers at 0 or above."""
    lowest = [tree.value[tree.feature < 0].min() for tree in trees]
    if sum(lowest) >= 0:
        return trees
    rounding = 1e-5 * np.abs(lowest).sum()  # engines round each sum
    return [*trees, _leaf(-sum(lowest) + rounding)]


def _leaf(value):
    """A tree of one leaf."""
    return _read_tree({"leaf_value": value}, 1)


def _learner_of(ranker: Any):
    """The booster of a ranker, None if it has none, and transformers between the two."""
    if hasattr(ranker, "booster_"):
        return ranker.booster_, []
    learner = getattr(ranker, "estimator_", getattr(ranker, "student_", None))
    inner: list[Any] = []
    if isinstance(learner, Pipeline):
        *steps, learner = steps_of(learner)
        inner = [part for step in steps for part in parts_of(step)]
    booster = learner.booster_ if isinstance(learner, LGBMModel) else None
    return booster, inner


def _read_tree(root, n_averaged, names=()):
    """The tree of a dump, with its nodes level by level."""
    queue = deque([(root, 0)])
    n_queued = 1
    rows = []
    while queue:
        node, depth = queue.popleft()
        if "split_feature" not in node:
            if "leaf_coeff" in node:
                _refuse("have linear models as leaves", "linear_tree=False")
            rows.append(_Node(value=node["leaf_value"] / n_averaged, depth=depth))
            continue
        feature = node["split_feature"]
        if node["decision_type"] != "<=":
            _refuse(
                f"split {names[feature]!r} by categories",
                f"a column of 0 and 1 per value, pandas.get_dummies(X, columns=[{names[feature]!r}"
                "], dtype=int), each of which is a feature of the engine (user guide: 'How do I "
                "get from OpenSearch to a served model?', Brands); or score with LightGBM, whose "
                "file (booster_.save_model) holds such splits",
            )
        if node["missing_type"] == "Zero":
            _refuse(f"take 0 in feature {feature} for missing", "zero_as_missing=False")
        bound = node["threshold"]
        if bound >= _DUMPED_INFINITY:
            # A scaler may make infinity of a number, and predict sends it left as well.
            bound = np.inf
        split = _Node(
            feature=feature,
            threshold=bound,
            missing_left=node["default_left"],
            learned=node["missing_type"] == "NaN",
            # Its children get the next two numbers, at the end of the queue.
            left=n_queued,
            right=n_queued + 1,
            depth=depth,
        )
        rows.append(split)
        queue += [(node["left_child"], depth + 1), (node["right_child"], depth + 1)]
        n_queued += 2
    return Tree(*map(np.array, zip(*rows, strict=True)))


def _refuse(found, instead):
    raise ValueError(f"The trees {found}, which engines lack. Fit them with {instead}.")


def _check_transformer(transformer, place):
    """Refuse a transformer whose output columns do not each increase with one input column."""
    good = type(transformer) in _INCREASING
    if isinstance(transformer, FunctionTransformer):
        # With keywords, such as "where", a function may be another.
        good = transformer.func in _INCREASING_FUNCTIONS and not transformer.kw_args
    elif isinstance(transformer, PowerTransformer):
        good = transformer.method == "yeo-johnson"
    elif isinstance(transformer, SimpleImputer) and place == 0:  # a logarithm makes NaN, too
        missing = transformer.missing_values
        fills_missing = isinstance(missing, float) and np.isnan(missing)
        # Columns without any value are dropped, and indicators are columns of their own.
        n_out = len(transformer.get_feature_names_out())
        good = fills_missing and n_out == transformer.n_features_in_
    if not good:
        raise ValueError(
            f"{transformer!r} cannot be written into the thresholds of trees. That needs a "
            "transformer whose every output column is known to be an increasing function of one "
            "input column. Leave it out and fit again (trees need no scaling), or let the engine "
            "compute its output and train on that."
        )


def _on_raw_features(trees, served, inner):
    """The trees with thresholds on raw features, and with the way of missing ones."""
    # All trees in one array per column, so that the transformers run once for all of them.
    feature = np.concatenate([tree.feature for tree in trees])
    threshold = np.concatenate([tree.threshold for tree in trees])
    missing_left = np.concatenate([tree.missing_left for tree in trees])
    learned = np.concatenate([tree.learned for tree in trees])
    # Each pair of a feature and a threshold is looked for once.
    split = feature >= 0
    pairs = np.stack([feature[split], threshold[split]])
    (columns, bounds), pair = np.unique(pairs, axis=1, return_inverse=True)
    columns = columns.astype(int)
    pair = pair.ravel()
    threshold[split] = _largest_left(columns, bounds, served, inner)[pair]
    # What LightGBM sees where a feature is missing: NaN, unless an imputer puts a number there.
    seen = _seen(served, inner, np.full((1, len(served.names)), np.nan))[0]
    goes_left = np.nan_to_num(seen)[columns] <= bounds
    # Back from pairs to nodes; leaves have no way.
    as_number = np.zeros(len(split), dtype=bool)
    as_number[split] = goes_left[pair]
    is_filled = np.zeros(len(split), dtype=bool)
    is_filled[split] = ~np.isnan(seen)[feature[split].astype(int)]
    learned = learned & ~is_filled
    # A missing feature goes the way that was learned, else that of the number seen in its place.
    missing_left = np.where(learned, missing_left, as_number)
    # Apart again, into trees.
    ends = np.cumsum([len(tree.feature) for tree in trees])[:-1]
    parts = zip(
        trees,
        np.split(threshold, ends),
        np.split(missing_left, ends),
        np.split(learned, ends),
        strict=True,
    )
    return [
        tree._replace(threshold=bound, missing_left=way, learned=own)
        for tree, bound, way, own in parts
    ]


def _largest_left(column, threshold, served, inner):
    """The largest raw value that each split sends left, shape (n_splits,); columns are sorted.

    It is the largest number of engines where a split sends every number left.
    """
    if not len(column):
        return np.empty(0)
    # One split per feature in each row of a table that the transformers take.
    row = np.arange(len(column)) - np.searchsorted(column, column)
    bound = np.full((row.max() + 1, len(served.names)), np.inf)
    bound[row, column] = threshold
    # Floats by their number in order, int64: neighbours have neighbouring numbers.
    # Bisection: low is what goes left, high what goes right, as far as is known.
    lowest, highest = _flipped(np.array([-_LARGEST, _LARGEST]).view(np.int64))
    low = np.full(bound.shape, lowest)
    # One beyond the largest number, which may go left as well.
    high = np.full(bound.shape, highest + 1)
    for _ in range(64):  # bits
        middle = (low & high) + ((low ^ high) >> 1)  # without overflow
        seen = _seen(served, inner, _flipped(middle).view(float))
        goes_left = ~(seen > bound)  # NaN is what a logarithm gives below its domain
        low = np.where(goes_left, middle, low)
        high = np.where(goes_left, high, middle)
    return _flipped(low).view(float)[row, column]


def _seen(served, inner, raw):
    """What LightGBM sees of raw features, shape (n_rows, n_features)."""
    # The search leaves the domain of logarithms, and exp of it overflows: neither is a fault.
    with config_context(assume_finite=True), np.errstate(all="ignore"):
        features = served.features(raw)
        for transformer in inner:
            features = np.asarray(transformer.transform(features))
    return np.where(np.abs(features) <= _ZERO, 0.0, features.astype(float))


def _flipped(bits):
    """Bits of floats as their number in order, and such numbers as bits; int64 both."""
    return np.where(bits < 0, np.iinfo(np.int64).min - bits, bits)


# Texts that engines load: one function per format -------------------------------------
# Engines differ in how they decide at a split, so that each format writes another T for the same
# split. A document goes left
# - in the plugins for Elasticsearch and OpenSearch, XGBoost's formats, if x < T in float32;
# - in RankLib's format if x <= T in float32;
# - in Solr if x <= T + 1e-6, added in float32;
# - in Vespa if x < T in float64;
# - in Elasticsearch's own learning to rank if x <= T in float64.
_F32 = np.float32
#: Where the neighbours of a float32 lie.
_UP = _F32(np.inf)
_DOWN = _F32(-np.inf)
#: Rank features and functions of Vespa, which computes a - b and takes # for a comment.
_RANK_FEATURE = re.compile(r"[A-Za-z_@$][\w@$]*(\(.+\))?(\.[\w@$.]+)?", re.ASCII)


class Upload(NamedTuple):
    """What a model and its features are called where it is uploaded."""

    name: str
    #: The engine's names of the features, in the order of the columns.
    names: tuple[str, ...]
    #: Feature store of Solr.
    store: str | None = None
    #: Query of Elasticsearch by feature.
    queries: Mapping[str, Any] | None = None


def _xgboost(trees: list[Tree], upload: Upload) -> str:
    """Body with a ``model/xgboost+json`` for the plugins of Elasticsearch and OpenSearch."""

    def split(tree, node, bound, left, right):
        return {
            "nodeid": node,
            "depth": int(tree.depth[node]),
            "split": upload.names[tree.feature[node]],
            "split_condition": bound,
            "yes": left["nodeid"],
            "no": right["nodeid"],
            "missing": (left if tree.missing_left[node] else right)["nodeid"],
            "children": [left, right],  # no further keys: the parser refuses them
        }

    def leaf(node, value):
        return {"nodeid": node, "leaf": value}

    trees = [_known_on_the_right(tree) for tree in trees]
    roots = _roots(trees, _above, split, leaf)
    return plugin_body(upload, "xgboost+json", _text(roots))


def _xgboost_raw(trees: list[Tree], upload: Upload) -> str:
    """Body with a ``model/xgboost+json+raw``; XGBoost loads its definition, too."""
    n_features = str(len(upload.names))
    trees = [_known_on_the_right(tree) for tree in trees]
    model = {
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
        "tree_info": [0] * len(trees),
        "trees": [_raw_tree(tree, number, n_features) for number, tree in enumerate(trees)],
    }
    # XGBoost requires these, which say nothing here.
    without_meaning = {
        "base_score": "0E0",
        "boost_from_average": "0",
        "num_class": "0",
        "num_target": "1",
    }
    learner = {
        "attributes": {},
        "feature_names": upload.names,
        "feature_types": ["float"] * len(upload.names),
        "gradient_booster": {"model": model, "name": "gbtree"},
        "learner_model_param": {"num_feature": n_features, **without_meaning},
        "objective": {"name": "rank:pairwise", "lambdarank_param": {}},
    }
    definition = _text({"learner": learner, "version": [3, 0, 0]})
    return plugin_body(upload, "xgboost+json+raw", definition)


def _ranklib(trees: list[Tree], upload: Upload) -> str:
    """Body with a ``model/ranklib``, which numbers the features in the order of their set."""

    def split(tree, node, bound, left, right):
        feature = f"<feature> {tree.feature[node] + 1} </feature>"
        threshold = f"<threshold> {bound} </threshold>"
        left = ['<split pos="left">', *left]
        right = ['<split pos="right">', *right]
        return [feature, threshold, *left, *right, "</split>"]

    _refuse_learned(trees, upload, "RankLib")
    lines = ["## LambdaMART", f"## No. of trees = {len(trees)}"]
    lines += [f"## Feature {at}: {json.dumps(each)}" for at, each in enumerate(upload.names, 1)]
    lines += ["", "<ensemble>"]  # one element a line: the parser counts what stands between

    def leaf(node, value):
        return [f"<output> {value} </output>", "</split>"]

    roots = _roots(trees, floor_single, split, leaf)
    for number, root in enumerate(roots, 1):
        lines += [f'<tree id="{number}" weight="1.0">', "<split>", *root, "</tree>"]
    return plugin_body(upload, "ranklib", "\n".join([*lines, "</ensemble>", ""]))


def _solr(trees: list[Tree], upload: Upload) -> str:
    """A ``MultipleAdditiveTreesModel`` for Solr's model store; some versions refuse numbers."""

    def split(tree, node, bound, left, right):
        name = upload.names[tree.feature[node]]
        return {"feature": name, "threshold": str(bound), "left": left, "right": right}

    _refuse_learned(trees, upload, "Solr")
    roots = _roots(trees, _solr_threshold, split, lambda _, value: {"value": str(value)})
    features = [{"name": name} for name in upload.names]
    params = {"trees": [{"weight": "1", "root": root} for root in roots]}
    return solr_body(upload, "MultipleAdditiveTreesModel", features, params)


def _lightgbm(trees: list[Tree], upload: Upload) -> str:
    """LightGBM's dump, for the rank feature ``lightgbm`` of Vespa."""

    def split(tree, node, bound, left, right):
        return {
            "split_feature": int(tree.feature[node]),
            "threshold": bound,
            "decision_type": "<=",
            "default_left": bool(tree.missing_left[node]),
            "missing_type": "NaN",
            "left_child": left,
            "right_child": right,
        }

    for name in upload.names:
        if not _RANK_FEATURE.fullmatch(name):
            raise ValueError(
                f"Vespa cannot read the feature name {name!r}; expected that of a rank feature or "
                "function, such as bm25(title) or my_function. Rename it by feature_names."
            )

    def above(threshold):
        return np.nextafter(threshold, np.inf)

    def leaf(node, value):
        return {"leaf_value": value}

    roots = _roots(trees, above, split, leaf)
    body = {
        "version": "v4",
        "objective": "lambdarank",  # the score is the sum
        "feature_names": upload.names,
        "feature_infos": {},
        "tree_info": [{"tree_structure": root} for root in roots],
        "pandas_categorical": None,
    }
    return _text(body)


def _elastic(trees: list[Tree], upload: Upload) -> str:
    """Body of ``PUT _ml/trained_models`` for Elasticsearch's own learning to rank."""
    common = {"feature_names": upload.names, "target_type": "regression"}
    extractors = [
        {"query_extractor": {"feature_name": name, "query": query, "default_score": 0.0}}
        for name, query in (upload.queries or {}).items()
    ]
    models = [{"tree": {**common, "tree_structure": _elastic_nodes(tree)}} for tree in trees]
    ensemble = {**common, "aggregate_output": {"weighted_sum": {}}, "trained_models": models}
    body = {
        "description": upload.name,
        "inference_config": {"learning_to_rank": {"feature_extractors": extractors}},
        "input": {"field_names": upload.names},
        "definition": {"trained_model": {"ensemble": ensemble}},
    }
    return _text(body)


def _elastic_nodes(tree):
    """The nodes of a tree, by number."""
    columns = {
        "split_feature": tree.feature,
        "threshold": tree.threshold,
        "default_left": tree.missing_left,
        "left_child": tree.left,
        "right_child": tree.right,
    }
    splits = zip(*(each.tolist() for each in columns.values()), strict=True)
    nodes = []
    for number, (value, split) in enumerate(zip(tree.value.tolist(), splits, strict=True)):
        is_leaf = split[0] < 0
        if is_leaf:
            content = {"leaf_value": value}
        else:
            content = {"decision_type": "lte", **dict(zip(columns, split, strict=True))}
        nodes.append({"node_index": number, **content})
    return nodes


def _known_on_the_right(tree):
    """The tree for x < T, with no split that sends every number left: no T is above them all.

    Children change places there, and no number is below minus the largest one, the new T.
    """
    turned = (tree.feature >= 0) & (tree.threshold >= _LARGEST)
    return tree._replace(
        threshold=np.where(turned, -np.inf, tree.threshold),  # of which ``_above`` makes T
        missing_left=tree.missing_left ^ turned,
        left=np.where(turned, tree.right, tree.left),
        right=np.where(turned, tree.left, tree.right),
    )


def _raw_tree(tree, number, n_features):
    """A tree as arrays of its nodes; a leaf has its value in place of a bound."""
    leaf = tree.feature < 0
    n_nodes = len(leaf)
    # XGBoost's parent of a root is the largest int32; those of all others follow.
    parents = np.full(n_nodes, np.iinfo(np.int32).max)
    for children in (tree.left, tree.right):
        parents[children[~leaf]] = np.flatnonzero(~leaf)
    value = _digits(tree.value.astype(_F32))
    no_statistic = [0.0] * n_nodes
    numeric = [0] * n_nodes
    empty = ("categories", "categories_nodes", "categories_segments", "categories_sizes")
    size = {"num_nodes": str(n_nodes), "size_leaf_vector": "1", "num_feature": n_features}
    return {
        "base_weights": value,  # where the plugins look for the scores of leaves
        **{key: [] for key in empty},
        "default_left": tree.missing_left.astype(int).tolist(),
        "id": number,
        "left_children": tree.left.tolist(),
        "loss_changes": no_statistic,
        "parents": parents.tolist(),
        "right_children": tree.right.tolist(),
        "split_conditions": np.where(leaf, value, _digits(_above(tree.threshold))).tolist(),
        # XGBoost has no -1 here: the index of a leaf is read and not used.
        "split_indices": np.where(leaf, 0, tree.feature).tolist(),
        "split_type": numeric,
        "sum_hessian": no_statistic,
        "tree_param": {"num_deleted": "0", **size},
    }


def _roots(
    trees: list[Tree],
    rule: Callable[[Floats], NDArray[Any]],
    split: Callable[..., Any],
    leaf: Callable[[int, float], Any],
) -> list[Any]:
    """Root of each tree with its children inside, made from the last node to the first.

    ``rule`` gives the thresholds that the engine reads, in the precision of all its numbers.
    """
    roots = []
    for tree in trees:
        bound = rule(tree.threshold)
        # Leaves in the precision of thresholds, which is that of the engine.
        value = _digits(tree.value.astype(bound.dtype))
        bound = _digits(bound)
        is_split = tree.left >= 0
        built = [None if inner else leaf(at, value[at]) for at, inner in enumerate(is_split)]
        # Children stand behind their parents.
        for at in np.flatnonzero(is_split)[::-1].tolist():
            left = built[tree.left[at]]
            right = built[tree.right[at]]
            built[at] = split(tree, at, bound[at], left, right)
        roots.append(built[0])
    return roots


def _refuse_learned(trees, upload, engine):
    """Refuse trees that know missing values, for a format whose engine reads 0 for them."""
    found = {feature for tree in trees for feature in tree.feature[tree.learned].tolist()}
    if found:
        raise ValueError(
            f"{engine} reads 0 for a missing feature, but the trees have learned another way for "
            f"documents that lack {upload.names[min(found)]!r}. Export in a format with missing "
            "values (xgboost+json, xgboost+json+raw, elastic, lightgbm); or put 0, or a flag, "
            "into the features themselves, in training and in the engine."
        )


def floor_single(threshold: Floats) -> NDArray[np.float32]:
    """The largest float32 that is not above each threshold."""
    # Rounding to the nearest may go up: then one step down.
    near = threshold.astype(_F32)
    return np.where(near > threshold, np.nextafter(near, _DOWN), near)


def _above(threshold: Floats) -> NDArray[np.float32]:
    """The smallest float32 above each threshold."""
    return np.nextafter(floor_single(threshold), _UP)


#: From this size on, Solr's sums of float32 reach nearly every threshold.
_EXACT_IN_SOLR = 0.01


def _solr_threshold(threshold: Floats) -> NDArray[np.float32]:
    """Numbers that become the largest float32 not above each threshold when Solr adds its 1e-6.

    Where no number does, below 0.01, that which becomes the largest below: what is not 0 stays on
    its side of 0. Else that which becomes the nearest: float32 are half as far apart above a
    negative power of two as below, so that none may become -1, which features often are.
    """
    wanted = floor_single(threshold)
    slack = _F32(1e-6)
    # The difference rounds, so that its neighbours are tried as well: two below, one above.
    near = wanted - slack
    low = np.nextafter(near, _DOWN)
    lower = np.nextafter(low, _DOWN)
    with np.errstate(over="ignore"):  # infinity above the largest number, never the nearest
        high = np.nextafter(near, _UP)
    options = np.stack([lower, low, near, high, wanted])
    sums = options + slack
    is_allowed = (sums <= wanted) | (np.abs(wanted) >= _EXACT_IN_SOLR)
    distance = np.where(is_allowed, np.abs(sums - wanted), np.inf)
    best = distance.argmin(axis=0)
    return np.take_along_axis(options, best[None], axis=0)[0]


def _digits(values):
    """Numbers as they are written: of float32 the nine digits that identify them."""
    if values.dtype != _F32:
        return values.tolist()
    return [float(f"{value:.9g}") for value in values.tolist()]


def plugin_body(upload: Upload, kind: str, definition: str, **more: Any) -> str:
    """What ``POST _ltr/_featureset/<set>/_createmodel`` takes; the definition is a text in it."""
    model = {"type": f"model/{kind}", "definition": definition, **more}
    return _text({"model": {"name": upload.name, "model": model}})


def solr_body(upload: Upload, kind: str, features: list[Any], params: dict[str, Any]) -> str:
    """What Solr's model store takes."""
    store = {} if upload.store is None else {"store": upload.store}
    head = {"class": f"org.apache.solr.ltr.model.{kind}", "name": upload.name, **store}
    return _text({**head, "features": features, "params": params})


def _text(body):
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


#: The function that writes trees in each format.
TREE_FORMATS: dict[str, Callable[[list[Tree], Upload], str]] = {
    "xgboost+json": _xgboost,
    "xgboost+json+raw": _xgboost_raw,
    "ranklib": _ranklib,
    "solr": _solr,
    "lightgbm": _lightgbm,
    "elastic": _elastic,
}
