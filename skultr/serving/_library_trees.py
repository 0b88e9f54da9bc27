"""Trees that LightGBM or XGBoost trained outside of this package, such as on a cluster."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from lightgbm import Booster, LGBMModel

#: Objectives of XGBoost whose predictions are the sum of the trees.
_SUMS = (
    "rank:ndcg",
    "rank:map",
    "rank:pairwise",
    "reg:squarederror",
    "reg:absoluteerror",
    "reg:pseudohubererror",
    "reg:quantileerror",
)


def library_trees(model: Any) -> LightGBMTrees | XGBoostTrees | None:
    """The trees of a fitted model of LightGBM or XGBoost; None of anything else."""
    if isinstance(model, LGBMModel):
        model = model.booster_  # a NotFittedError before fit
    if isinstance(model, Booster):
        return LightGBMTrees(model)
    # XGBoost's models, also those of Spark. It is not imported: who has none needs none.
    if hasattr(model, "get_booster"):
        model = model.get_booster()
    if type(model).__module__ == "xgboost.core" and hasattr(model, "get_dump"):
        return XGBoostTrees(model)
    return None


class LightGBMTrees:
    """A booster of LightGBM as what exports read of a ranker."""

    #: LightGBM compares features as it gets them.
    dtype = np.float64

    def __init__(self, booster: Booster) -> None:
        self.booster_ = booster
        self.n_features_in_ = booster.num_feature()
        names = booster.feature_name()
        # What LightGBM calls columns without names.
        unnamed = [f"Column_{place}" for place in range(len(names))]
        self.feature_names_in_ = [] if names == unnamed else names


class XGBoostTrees:
    """A booster of XGBoost as what exports read of a ranker; a dump in the words of LightGBM."""

    #: XGBoost rounds features before it compares them.
    dtype = np.float32

    def __init__(self, booster: Any) -> None:
        self.booster_ = self
        self.n_features_in_ = booster.num_features()
        self.feature_names_in_ = booster.feature_names or []
        self._config = json.loads(booster.save_config())["learner"]
        _check_settings(self._config)
        # After early stopping, the rounds up to the best one are what predict uses.
        best = booster.attr("best_iteration")
        self._booster = booster.copy() if best is None else booster[: int(best) + 1]
        # A dump leaves out the bound of a feature of True and False, unless it is a number.
        kinds = booster.feature_types or []
        self._booster.feature_types = [kind if kind == "c" else "float" for kind in kinds] or None

    def dump_model(self) -> dict[str, Any]:
        """The trees, and one more leaf with the score that they begin from."""
        names = self.feature_names_in_ or [f"f{place}" for place in range(self.n_features_in_)]
        place = {name: number for number, name in enumerate(names)}
        dump = self._booster.get_dump(dump_format="json")
        trees = [_node(json.loads(tree), place) for tree in dump]
        trees.append({"leaf_value": _base_score(self._config)})
        return {
            "objective": "custom",
            "average_output": False,
            "tree_info": [{"tree_structure": tree} for tree in trees],
        }


def _check_settings(config):
    """Refuse a model whose score is not one sum of its trees."""
    kind = config["gradient_booster"]["name"]
    objective = config["objective"]["name"]
    shape = config["learner_model_param"]
    n_scores = max(int(shape["num_class"]), int(shape["num_target"]))
    if kind != "gbtree":
        _refuse(f"booster={kind!r}", "booster='gbtree'")
    if objective not in _SUMS:
        _refuse(f"objective={objective!r}", f"one of the objectives {', '.join(_SUMS)}")
    if n_scores > 1:
        _refuse(f"{n_scores} scores per document", "one label per document")


def _refuse(found, instead):
    raise ValueError(
        f"The model of XGBoost has {found}, so that its prediction is not the sum of trees that "
        f"engines compute. Fit it with {instead}."
    )


def _base_score(config):
    """The score before the first tree; later releases of XGBoost write a list of one number."""
    return float(config["learner_model_param"]["base_score"].strip("[]"))


def _node(node, place):
    """A node of XGBoost's dump, with all below it, as LightGBM would dump it."""
    if "leaf" in node:
        return {"leaf_value": node["leaf"]}
    children = {child["nodeid"]: child for child in node["children"]}
    return {
        "split_feature": place[node["split"]],
        **_decision(node["split_condition"]),
        "missing_type": "NaN",
        "default_left": node["missing"] == node["yes"],
        "left_child": _node(children[node["yes"]], place),
        "right_child": _node(children[node["no"]], place),
    }


def _decision(condition):
    """What goes left: numbers below a bound; or categories, a list, which no engine can read."""
    if not np.isscalar(condition):
        return {"decision_type": "==", "threshold": 0.0}
    # XGBoost goes left below a number, and LightGBM at most at one.
    largest = np.nextafter(np.float32(condition), np.float32(-np.inf))
    return {"decision_type": "<=", "threshold": float(largest)}
