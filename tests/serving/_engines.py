"""Search engines as the documents of their sources describe them: each reads a text and scores.

Nothing here is shared with the writers. Each function takes the text of an export and raw features
(float64 numbers that float32 holds, NaN where a feature is missing) and returns the leaf of each
row in each tree, and the score as the engine sums it.
"""

import json
from functools import partial
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
import pytest

F32 = np.float32
#: Marks of files that fit small models of every kind.
QUIET = [
    pytest.mark.filterwarnings(f"ignore::{kind}")
    for kind in (
        "scipy.linalg.LinAlgWarning",
        "skultr.exceptions.AssumptionWarning",
        "skultr.exceptions.ClickDataWarning",
        "skultr.exceptions.NotIdentifiableWarning",
        "skultr.exceptions.UnstableWeightsWarning",
    )
]
#: What the parsers of the plugins take as it is, without a sigmoid.
_PLAIN_OBJECTIVES = {"binary:logitraw", "rank:ndcg", "rank:map", "rank:pairwise", "reg:linear"}


class Nodes(NamedTuple):
    """A tree as the engine holds it; ``feature`` is -1 for a leaf."""

    feature: np.ndarray
    threshold: np.ndarray
    missing_left: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray

    @classmethod
    def of(cls, rows):
        return cls(*(np.array(column) for column in zip(*rows, strict=True)))


def thresholds(format, text, names):
    """The numbers by which an export splits each feature, as (feature, threshold) pairs."""
    return [
        (int(feature), float(threshold))
        for tree in READERS[format](text, names)
        for feature, threshold in zip(tree.feature, tree.threshold, strict=True)
        if feature >= 0
    ]


def scores(format, text, features, names):
    """Leaves (n_rows, n_trees) and scores (n_rows,) of an engine."""
    trees = READERS[format](text, names)
    number, missing_is_zero = NUMBERS[format]
    features = features.astype(number)
    if missing_is_zero:
        features = np.where(np.isnan(features), number(0), features)
    leaves, total = [], np.zeros(len(features), dtype=number)
    for tree in trees:
        leaf = _leaves(tree, features, RULES[format])
        leaves.append(leaf)
        total = total + leaf.astype(number)
    return np.array(leaves).T, total


def _leaves(tree, features, rule):
    node, rows = np.zeros(len(features), dtype=int), np.arange(len(features))
    while len(rows):
        here = node[rows]
        inside = tree.feature[here] >= 0
        rows, here = rows[inside], here[inside]
        x = features[rows, tree.feature[here]]
        left = rule(x, tree.threshold[here].astype(features.dtype), tree.missing_left[here])
        node[rows] = np.where(left, tree.left[here], tree.right[here])
    return tree.value[node]


def _below(x, threshold, missing_left):
    return np.where(np.isnan(x), missing_left, threshold > x)


def _at_most(x, threshold, missing_left):
    return np.where(np.isnan(x), missing_left, x <= threshold)


def _solr_rule(x, threshold, missing_left):
    return x <= threshold + F32(1e-6)


def _read_plugin_body(text, kind):
    model = json.loads(text)["model"]
    assert set(model) == {"name", "model"}
    assert set(model["model"]) == {"type", "definition"}
    assert model["model"]["type"] == f"model/{kind}"
    assert isinstance(model["model"]["definition"], str)
    return model["model"]["definition"]


def _read_xgboost(text, names):
    trees = json.loads(_read_plugin_body(text, "xgboost+json"))
    assert isinstance(trees, list)
    assert trees
    return [_xgboost_tree(tree, list(names)) for tree in trees]


def _xgboost_tree(root, names):
    rows = {}

    def read(node, depth):
        if "leaf" in node:
            assert set(node) <= {"nodeid", "leaf", "depth"}
            rows[node["nodeid"]] = (-1, 0.0, False, -1, -1, F32(node["leaf"]))
            return
        # The parser is strict; and without `missing` one of the plugins fails.
        assert set(node) == {
            "nodeid",
            "depth",
            "split",
            "split_condition",
            "yes",
            "no",
            "missing",
            "children",
        }
        assert node["depth"] == depth
        yes, no = node["children"]
        assert (yes["nodeid"], no["nodeid"]) == (node["yes"], node["no"])
        assert node["missing"] in (node["yes"], node["no"])
        rows[node["nodeid"]] = (
            names.index(node["split"]),
            F32(node["split_condition"]),
            node["missing"] == node["yes"],
            node["yes"],
            node["no"],
            F32(0),
        )
        read(yes, depth + 1)
        read(no, depth + 1)

    read(root, 0)
    return Nodes.of([rows[number] for number in range(len(rows))])


def _read_raw(text, names):
    learner = json.loads(_read_plugin_body(text, "xgboost+json+raw"))["learner"]
    assert learner["objective"]["name"] in _PLAIN_OBJECTIVES
    assert len(learner["feature_types"]) == len(learner["feature_names"])
    assert set(learner["feature_types"]) == {"float"}
    trees = []
    for tree in learner["gradient_booster"]["model"]["trees"]:
        left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
        split = (left != -1) & (right != -1)
        assert (np.array(tree["split_type"]) == 0).all()
        trees.append(
            Nodes(
                np.where(split, tree["split_indices"], -1),
                np.array(tree["split_conditions"], dtype=F32),
                np.array(tree["default_left"]) == 1,
                left,
                right,
                np.array(tree["base_weights"], dtype=F32),
            )
        )
    assert learner["feature_names"] == list(names)
    return trees


def _read_ranklib(text, names):
    lines = _read_plugin_body(text, "ranklib").split("\n")
    assert lines[0] == "## LambdaMART"
    body = "".join(line.strip() for line in lines if not line.strip().startswith("##"))
    ensemble = ElementTree.fromstring(body)
    assert ensemble.tag == "ensemble"
    return [_ranklib_tree(tree) for tree in ensemble]


def _preorder(node, read):
    """Nodes from a tree of nested nodes: ``read`` gives the score of a leaf, or a split."""
    rows = []

    def walk(node):
        number = len(rows)
        rows.append(None)
        found = read(node)
        if isinstance(found, tuple):
            feature, threshold, missing_left, left, right = found
            rows[number] = (feature, threshold, missing_left, walk(left), walk(right), 0.0)
        else:
            rows[number] = (-1, 0.0, False, -1, -1, found)
        return number

    walk(node)
    return Nodes.of(rows)


def _ranklib_tree(tree):
    assert float(tree.attrib["weight"]) == 1
    assert len(tree) == 1
    return _preorder(tree[0], _ranklib_node)


def _ranklib_node(node):
    assert not (node.text or "").strip()
    if node[0].tag == "output":
        return F32(node[0].text.strip())
    assert [child.tag for child in node] == ["feature", "threshold", "split", "split"]
    assert [child.get("pos") for child in node[2:]] == ["left", "right"]
    return int(node[0].text) - 1, F32(node[1].text.strip()), False, node[2], node[3]


def _read_solr(text, names):
    model = json.loads(text)
    assert model["class"] == "org.apache.solr.ltr.model.MultipleAdditiveTreesModel"
    assert names == [feature["name"] for feature in model["features"]]
    assert all(F32(tree["weight"]) == 1 for tree in model["params"]["trees"])
    read = partial(_solr_node, names)
    return [_preorder(tree["root"], read) for tree in model["params"]["trees"]]


def _solr_node(names, node):
    if "feature" not in node:
        assert set(node) == {"value"}
        return F32(node["value"])
    assert set(node) == {"feature", "threshold", "left", "right"}
    feature = names.index(node["feature"])
    return feature, F32(node["threshold"]), False, node["left"], node["right"]


def _read_vespa(text, names):
    dump = json.loads(text)
    assert dump["objective"] == "lambdarank"  # the others may get a sigmoid or an exponential
    assert "pandas_categorical" in dump
    assert dump["feature_names"] == names
    return [_preorder(tree["tree_structure"], _vespa_node) for tree in dump["tree_info"]]


def _vespa_node(node):
    if "left_child" not in node:
        return float(node["leaf_value"])
    assert node["decision_type"] == "<="
    columns = ("split_feature", "threshold", "default_left", "left_child", "right_child")
    return tuple(node[name] for name in columns)


def _vespa_rule(x, threshold, missing_left):
    return np.where(missing_left, ~(x >= threshold), x < threshold)


def _read_elastic(text, names):
    body = json.loads(text)
    assert "learning_to_rank" in body["inference_config"]
    ensemble = body["definition"]["trained_model"]["ensemble"]
    assert ensemble["aggregate_output"] == {"weighted_sum": {}}
    trees = []
    for model in ensemble["trained_models"]:
        assert model["tree"]["feature_names"] == ensemble["feature_names"]
        rows = []
        for place, node in enumerate(model["tree"]["tree_structure"]):
            assert node["node_index"] == place
            if "leaf_value" in node:
                rows.append((-1, 0.0, False, -1, -1, node["leaf_value"]))
                continue
            assert node["decision_type"] == "lte"
            columns = ("split_feature", "threshold", "default_left", "left_child", "right_child")
            rows.append((*(node[name] for name in columns), 0.0))
        trees.append(Nodes.of(rows))
    assert ensemble["feature_names"] == names
    return trees


READERS = {
    "xgboost+json": _read_xgboost,
    "xgboost+json+raw": _read_raw,
    "ranklib": _read_ranklib,
    "solr": _read_solr,
    "lightgbm": _read_vespa,
    "elastic": _read_elastic,
}
RULES = {
    "xgboost+json": _below,
    "xgboost+json+raw": _below,
    "ranklib": _at_most,
    "solr": _solr_rule,
    "lightgbm": _vespa_rule,
    "elastic": _at_most,
}
#: The numbers that an engine computes with, and whether a missing feature is 0 there.
NUMBERS = {
    "xgboost+json": (F32, False),
    "xgboost+json+raw": (F32, False),
    "ranklib": (F32, True),
    "solr": (F32, True),
    "lightgbm": (np.float64, False),
    "elastic": (np.float64, False),
}
