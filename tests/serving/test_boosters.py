"""Texts of boosters: LightGBM's own are read, and changed ones are one sentence."""

import random

import numpy as np
import pytest
from lightgbm import LGBMRanker, LGBMRegressor

from skultr.serving._boosters import check_booster, read_booster

SETTINGS = {"n_estimators": 3, "num_leaves": 7, "min_child_samples": 5, "verbose": -1, "n_jobs": 1}
ODD = ["-1", "7", "100", "2147483647", "99999999999999999999", "nan", "x", "", "1.5", "--1", "1e"]


def _rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    X[:, 3] = rng.integers(0, 12, 600)
    missing = X.copy()
    missing[rng.random(X.shape) < 0.1] = np.nan
    return X, missing, X[:, 0] + 3 * (X[:, 3] % 3 == 1)


def _texts():
    X, missing, y = _rows()
    regressor = LGBMRegressor(**SETTINGS)
    groups = {"cat_smooth": 1, "min_data_per_group": 5}
    random_forest = {"boosting_type": "rf", "subsample": 0.5, "subsample_freq": 1}
    models = {
        "missing values": regressor.fit(missing, y),
        "categories": LGBMRegressor(**SETTINGS, **groups).fit(missing, y, categorical_feature=[3]),
        "one leaf": LGBMRegressor(**SETTINGS).fit(X, np.ones(len(X))),
        "linear models": LGBMRegressor(**SETTINGS, linear_tree=True).fit(X, y),
        "no leaf has a linear model": LGBMRegressor(**SETTINGS, linear_tree=True).fit(X, 0 * y),
        "random forest": LGBMRegressor(**SETTINGS, **random_forest).fit(X, y),
        "quantile": LGBMRegressor(**SETTINGS, objective="quantile", alpha=0.3).fit(X, y),
        "root": LGBMRegressor(**SETTINGS, reg_sqrt=True).fit(X, y),
        "constraints": LGBMRegressor(**SETTINGS, monotone_constraints=[1, 0, 0, -1]).fit(X, y),
        "ranker": LGBMRanker(**SETTINGS).fit(X, (y > 1).astype(int), group=[10] * 60),
        # A threshold is infinite where missing values alone go to the other side.
        "only missing": LGBMRegressor(**SETTINGS).fit(
            np.where(np.arange(600) % 2, np.nan, 1.0)[:, None], np.arange(600) % 2
        ),
    }
    return {name: model.booster_.model_to_string() for name, model in models.items()}


@pytest.fixture(scope="module")
def texts():
    return _texts()


def test_texts_of_lightgbm_are_read_as_they_are(texts):
    assert "num_cat=0" not in texts["categories"].split("Tree=1")[0]
    assert "is_linear=1" in texts["linear models"]
    X = _rows()[0]
    for name, text in texts.items():
        booster = read_booster(text, -1)
        assert booster.num_trees() == check_booster(text), name
        rows = X[:, : booster.num_feature()]
        assert np.isfinite(booster.predict(rows)).all(), name


def _changed(text, random_, name=None):
    """A text with one change to a line of its trees; the sizes are mended."""
    lines = text.partition("end of trees")[0].split("\n")
    first = lines.index("Tree=0")
    places = [at for at in range(first, len(lines)) if "=" in lines[at]]
    at = random_.choice([at for at in places if name in (None, lines[at].split("=")[0])])
    before, values = lines[at].split("=")
    values = values.split(" ")
    values[random_.randrange(len(values))] = random_.choice(ODD)
    lines[at : at + 1] = random_.choice(
        [[f"{before}={' '.join(values)}"], [], [lines[at]] * 2, [lines[at] + " 1"]]
    )
    trees = "\n".join(lines[first:]).split("Tree=")[1:]
    sizes = " ".join(str(len("Tree=" + tree)) for tree in trees)
    head = [f"tree_sizes={sizes}" if "tree_sizes" in line else line for line in lines[:first]]
    return (
        "\n".join(head)
        + "\n"
        + "\n".join(lines[first:])
        + "end of trees"
        + text.partition("end of trees")[2]
    )


#: Lines whose numbers decide where LightGBM reads, each of which has to be as it was.
DECISIVE = (
    *("num_leaves", "num_cat", "split_feature", "left_child", "right_child", "decision_type"),
    *("cat_boundaries", "cat_threshold", "threshold", "leaf_value", "is_linear", "num_features"),
    *("leaf_features", "leaf_coeff", "leaf_const", "leaf_count", "internal_count", "shrinkage"),
)


@pytest.mark.parametrize("name", DECISIVE)
def test_changes_are_errors_of_one_line(name, texts):
    """Or harmless: what still has the form is read, and predicts."""
    errors, random_, X = [], random.Random(name), _rows()[0]
    for kind in ("categories", "linear models"):
        if f"\n{name}=" not in texts[kind]:
            continue
        for _ in range(15):
            text = _changed(texts[kind], random_, name)
            try:
                booster = read_booster(text, -1)
            except ValueError as error:
                errors.append(str(error))
            else:
                assert len(booster.predict(X)) == len(X)
    assert len(errors) >= 10
    assert all("expected" in each and "\n" not in each for each in errors)


CHANGES = {
    "a cycle": ("left_child=", "left_child=0 "),
    "a node below itself": ("right_child=", "right_child=0 "),
    "many categories": ("num_cat=", "num_cat=214748364"),
    "several scores": ("num_class=1", "num_class=3"),
    "an objective of several scores": ("objective=regression", "objective=multiclass num_class:3"),
    "the end of strings in C": ("Tree=1", "Tree=1\0"),
    "another end of lines": ("Tree=1\n", "Tree=1\r\n"),
    "sizes": ("tree_sizes=", "tree_sizes=1"),
    "features": ("max_feature_idx=", "max_feature_idx=1"),
    "ranges": ("feature_infos=", "feature_infos=["),
    "parameters": ("[boosting: gbdt]", "boosting"),
    "nothing": ("tree\n", ""),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_lightgbm_would_not_write_is_refused(change, texts):
    before, after = CHANGES[change]
    assert before in texts["categories"]
    with pytest.raises(ValueError, match="expected"):
        check_booster(texts["categories"].replace(before, after, 1))


def test_trees_that_recursion_cannot_follow_are_refused(texts):
    """A chain: each node has one leaf and the next node."""
    n = 1200
    rows = {
        "num_leaves": [n + 1],
        "num_cat": [0],
        **dict.fromkeys(("split_feature", "split_gain", "threshold", "internal_value"), [0] * n),
        **dict.fromkeys(("internal_weight", "internal_count", "decision_type"), [0] * n),
        "left_child": [*range(1, n), -n - 1],
        "right_child": range(-1, -n - 1, -1),
        **dict.fromkeys(("leaf_value", "leaf_weight", "leaf_count"), [0] * (n + 1)),
        "is_linear": [0],
        "shrinkage": [1],
    }
    tree = "".join(f"{name}={' '.join(map(str, values))}\n" for name, values in rows.items())
    tree = f"Tree=0\n{tree}\n\n"
    head, _, rest = texts["one leaf"].partition("tree_sizes=")
    text = (
        f"{head}tree_sizes={len(tree)}\n\n{tree}end of trees" + rest.partition("end of trees")[2]
    )
    with pytest.raises(ValueError, match="depth 1200; expected at most 1000"):
        check_booster(text)


@pytest.mark.parametrize("best", [None, True, "1", 1.0, -2, 4, 2**40])
def test_the_best_iteration_is_one_of_the_trees(best, texts):
    with pytest.raises(ValueError, match="the best iteration has"):
        read_booster(texts["missing values"], best)
