"""Trees as the texts that search engines load: one function per format.

Engines differ in how they decide at a split. A document goes left

- in the plugins for Elasticsearch and OpenSearch, XGBoost's formats, if x < T in float32;
- in RankLib's format if x <= T in float32, and a missing feature is 0;
- in Solr if x <= T + 1e-6, added in float32, and a missing feature is the store's default;
- in Vespa if x < T in float64;
- in Elasticsearch's own learning to rank if x <= T in float64.

So every format writes another T for the same split.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import NDArray

from .._typing import Floats
from ._trees import Tree

__all__ = [
    "Upload",
    "write_elastic",
    "write_lightgbm",
    "write_ranklib",
    "write_solr",
    "write_xgboost",
    "write_xgboost_raw",
]

_F32 = np.float32
#: What Solr adds to every threshold, in float32.
_SOLR_SLACK = _F32(1e-6)
#: XGBoost's parent of a root.
_NO_PARENT = 2147483647


@dataclass(frozen=True)
class Upload:
    """What a model is called where it is uploaded.

    Parameters
    ----------
    name : str
    names : tuple of str
        The engine's names of the features, in the order of the columns.
    store : str or None
        Feature store of Solr.
    queries : dict of str to dict
        Query of Elasticsearch by feature.
    """

    name: str
    names: tuple[str, ...]
    store: str | None = None
    queries: Mapping[str, Any] = field(default_factory=dict)


def write_xgboost(trees: list[Tree], upload: Upload) -> str:
    """Body with a ``model/xgboost+json`` for the plugins of Elasticsearch and OpenSearch."""

    def nested(tree):
        bound, value = _digits(_above(tree.threshold)), _digits(tree.value)
        depth = _depth(tree)

        def split(node, left, right):
            return {
                "nodeid": node,
                "depth": depth[node],
                "split": upload.names[tree.feature[node]],
                "split_condition": bound[node],
                "yes": left["nodeid"],
                "no": right["nodeid"],
                "missing": (left if tree.missing_left[node] else right)["nodeid"],
                "children": [left, right],
            }

        return _nested(tree, split, lambda node: {"nodeid": node, "leaf": value[node]})

    return _plugin_body(upload, "xgboost+json", _text([nested(tree) for tree in trees]))


def write_xgboost_raw(trees: list[Tree], upload: Upload) -> str:
    """Body with a ``model/xgboost+json+raw``; XGBoost loads its definition, too."""
    n_features = str(len(upload.names))
    model = {
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
        "iteration_indptr": list(range(len(trees) + 1)),
        "tree_info": [0] * len(trees),
        "trees": [_raw_tree(tree, number, n_features) for number, tree in enumerate(trees)],
    }
    learner = {
        "attributes": {},
        "feature_names": list(upload.names),
        "feature_types": ["float"] * len(upload.names),
        "gradient_booster": {"model": model, "name": "gbtree"},
        "learner_model_param": {
            "base_score": "[0E0]",
            "boost_from_average": "0",
            "num_class": "0",
            "num_feature": n_features,
            "num_target": "1",
        },
        "objective": {"name": "rank:pairwise", "lambdarank_param": {}},
    }
    definition = _text({"learner": learner, "version": [3, 0, 0]})
    return _plugin_body(upload, "xgboost+json+raw", definition)


def write_ranklib(trees: list[Tree], upload: Upload) -> str:
    """Body with a ``model/ranklib``, which numbers the features in the order of their set."""
    header = ["## LambdaMART", f"## No. of trees = {len(trees)}"]
    names = enumerate(upload.names, start=1)
    header += [f"## Feature {number}: {quoteattr(name)}" for number, name in names]
    lines = ["", "<ensemble>"]
    for number, tree in enumerate(trees, start=1):
        bound, value = _digits(_floor(tree.threshold)), _digits(tree.value)
        lines.append(f'<tree id="{number}" weight="1.0">')
        open_nodes: list[Any] = [(0, "")]
        while open_nodes:
            node, place = open_nodes.pop()
            if node is None:
                lines.append("</split>")
            elif tree.feature[node] < 0:
                lines += [f"<split{place}>", f"<output> {value[node]} </output>", "</split>"]
            else:
                lines += [
                    f"<split{place}>",
                    f"<feature> {tree.feature[node] + 1} </feature>",
                    f"<threshold> {bound[node]} </threshold>",
                ]
                children = (tree.left[node], ' pos="left"'), (tree.right[node], ' pos="right"')
                open_nodes += [(None, ""), *reversed(children)]
        lines.append("</tree>")
    return _plugin_body(upload, "ranklib", "\n".join([*header, *lines, "</ensemble>", ""]))


def write_solr(trees: list[Tree], upload: Upload) -> str:
    """A ``MultipleAdditiveTreesModel`` for Solr's model store."""

    def nested(tree):
        bound, value = _digits(_solr_threshold(tree.threshold)), _digits(tree.value)

        def split(node, left, right):
            name = upload.names[tree.feature[node]]
            return {"feature": name, "threshold": str(bound[node]), "left": left, "right": right}

        return _nested(tree, split, lambda node: {"value": str(value[node])})

    body = {
        "class": "org.apache.solr.ltr.model.MultipleAdditiveTreesModel",
        "name": upload.name,
        **({} if upload.store is None else {"store": upload.store}),
        "features": [{"name": name} for name in upload.names],
        # Texts, because some versions of Solr refuse numbers.
        "params": {"trees": [{"weight": "1", "root": nested(tree)} for tree in trees]},
    }
    return _text(body)


def write_lightgbm(trees: list[Tree], upload: Upload) -> str:
    """LightGBM's dump, for the rank feature ``lightgbm`` of Vespa."""

    def nested(tree):
        bound, value = np.nextafter(tree.threshold, np.inf).tolist(), tree.value.tolist()

        def split(node, left, right):
            return {
                "split_feature": int(tree.feature[node]),
                "threshold": bound[node],
                "decision_type": "<=",
                "default_left": bool(tree.missing_left[node]),
                "missing_type": "NaN",
                "left_child": left,
                "right_child": right,
            }

        return _nested(tree, split, lambda node: {"leaf_value": value[node]})

    body = {
        "name": "tree",
        "version": "v4",
        "num_class": 1,
        "num_tree_per_iteration": 1,
        "label_index": 0,
        "max_feature_idx": len(upload.names) - 1,
        "objective": "lambdarank",  # the score is the sum
        "average_output": False,
        "feature_names": list(upload.names),
        "feature_infos": {},
        "tree_info": [
            {"tree_index": number, "num_cat": 0, "shrinkage": 1, "tree_structure": nested(tree)}
            for number, tree in enumerate(trees)
        ],
        "pandas_categorical": None,
    }
    return _text(body)


def write_elastic(trees: list[Tree], upload: Upload) -> str:
    """Body of ``PUT _ml/trained_models`` for Elasticsearch's own learning to rank."""
    common = {"feature_names": list(upload.names), "target_type": "regression"}
    extractors = [
        {"query_extractor": {"feature_name": name, "query": query, "default_score": 0.0}}
        for name, query in upload.queries.items()
    ]
    models = [{"tree": {**common, "tree_structure": _elastic_nodes(tree)}} for tree in trees]
    ensemble = {**common, "aggregate_output": {"weighted_sum": {}}, "trained_models": models}
    body = {
        "description": upload.name,
        "inference_config": {"learning_to_rank": {"feature_extractors": extractors}},
        "input": {"field_names": list(upload.names)},
        "definition": {"trained_model": {"ensemble": ensemble}},
    }
    return _text(body)


def _elastic_nodes(tree):
    nodes = []
    threshold, value = tree.threshold.tolist(), tree.value.tolist()
    for node, feature in enumerate(tree.feature.tolist()):
        if feature < 0:
            nodes.append({"node_index": node, "leaf_value": value[node]})
            continue
        nodes.append(
            {
                "node_index": node,
                "decision_type": "lte",
                "split_feature": feature,
                "threshold": threshold[node],
                "default_left": bool(tree.missing_left[node]),
                "left_child": int(tree.left[node]),
                "right_child": int(tree.right[node]),
            }
        )
    return nodes


def _raw_tree(tree, number, n_features):
    leaf = tree.feature < 0
    n_nodes = len(leaf)
    parents = np.full(n_nodes, _NO_PARENT)
    for children in (tree.left, tree.right):
        parents[children[~leaf]] = np.flatnonzero(~leaf)
    zeros, none = [0] * n_nodes, [0.0] * n_nodes
    value = _digits(np.where(leaf, tree.value, 0.0))
    bound = _digits(_above(tree.threshold))
    return {
        "base_weights": value,  # where the plugins look for the scores of leaves
        "categories": [],
        "categories_nodes": [],
        "categories_segments": [],
        "categories_sizes": [],
        "default_left": tree.missing_left.astype(int).tolist(),
        "id": number,
        "left_children": tree.left.tolist(),
        "loss_changes": none,
        "parents": parents.tolist(),
        "right_children": tree.right.tolist(),
        "split_conditions": [
            v if end else b for end, v, b in zip(leaf, value, bound, strict=True)
        ],
        "split_indices": np.where(leaf, 0, tree.feature).tolist(),
        "split_type": zeros,
        "sum_hessian": none,
        "tree_param": {
            "num_deleted": "0",
            "num_feature": n_features,
            "num_nodes": str(n_nodes),
            "size_leaf_vector": "1",
        },
    }


def _nested(tree: Tree, split: Callable[..., Any], leaf: Callable[[int], Any]) -> Any:
    """The root with its children inside, made from the last node to the first."""
    built: list[Any] = [None] * len(tree.feature)
    left, right = tree.left.tolist(), tree.right.tolist()
    for node in reversed(range(len(built))):
        is_leaf = left[node] < 0
        built[node] = leaf(node) if is_leaf else split(node, built[left[node]], built[right[node]])
    return built[0]


def _depth(tree):
    depth = [0] * len(tree.feature)
    for node in np.flatnonzero(tree.feature >= 0):
        depth[tree.left[node]] = depth[tree.right[node]] = depth[node] + 1
    return depth


def _floor(threshold: Floats) -> NDArray[np.float32]:
    """The largest float32 that is not above each threshold."""
    near = threshold.astype(_F32)
    return np.where(near > threshold, np.nextafter(near, _F32(-np.inf)), near)


def _above(threshold: Floats) -> NDArray[np.float32]:
    """The smallest float32 above each threshold."""
    return np.nextafter(_floor(threshold), _F32(np.inf))


def _solr_threshold(threshold: Floats) -> NDArray[np.float32]:
    """Numbers that become the largest float32 not above each threshold when Solr adds its 1e-6.

    Where no number does, below 0.01, that which becomes the largest below.
    """
    wanted = _floor(threshold)
    near = wanted - _SOLR_SLACK
    low, high = (np.nextafter(near, _F32(x)) for x in (-np.inf, np.inf))
    options = np.stack([np.nextafter(low, _F32(-np.inf)), low, near, high, wanted])
    reached = options + _SOLR_SLACK
    reached = np.where(reached > wanted, _F32(-np.inf), reached)
    return np.take_along_axis(options, reached.argmax(axis=0)[None], axis=0)[0]


def _digits(values):
    """Nine digits of float32 numbers, which identify them."""
    return [float(f"{value:.9g}") for value in np.asarray(values, dtype=_F32).tolist()]


def _plugin_body(upload, kind, definition):
    """What ``POST _ltr/_featureset/<set>/_createmodel`` takes; the definition is a text in it."""
    model = {"type": f"model/{kind}", "definition": definition}
    return _text({"model": {"name": upload.name, "model": model}})


def _text(body):
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
