"""Exports of trees: every engine reaches the leaves that LightGBM does, and the score of predict.

The engines are the evaluators of ``_engines.py``, and XGBoost for its own format.
"""

import json
import subprocess
import sys
import warnings
from functools import cache

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost
from lightgbm import LGBMRanker, LGBMRegressor
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.tree import DecisionTreeRegressor

from skultr import DLARanker, IdentifiabilityRepair, VectorizationRanker
from skultr.datasets import make_ltr
from skultr.model_selection import QueryKFold
from skultr.preprocessing import OnFeatures
from skultr.rankers import (
    DistilledRanker,
    EnsembleRanker,
    IPSRanker,
    LambdaMARTRanker,
    NaiveRanker,
    PRSRanker,
    RankAggRanker,
    UserAwareIPSRanker,
)
from skultr.serving import _trees, export_model
from skultr.serving._served_model import served_model
from skultr.simulation import EYE_TRACKING, PlackettLucePolicy, simulate_clicks

from . import _engines

FORMATS = list(_engines.READERS)
N_FEATURES = 6
NAMES = [f"feature_{place:03d}" for place in range(N_FEATURES)]
#: In the engine; characters that LightGBM, JSON or XML do not take as they are.
ENGINE_NAMES = ["title bm25", 'a "quoted" name', "bm25(title)", "é, {ü}: [x]", "<a> & 'b'", "#\n1"]
RANK_FEATURES = ["bm25(title)", "attribute(price)", "fieldMatch(a).completeness", "fresh_2"]
RANK_FEATURES += ['query("x y")', "closeness(field,v).now.2"]
TREES = {
    "n_estimators": 30,
    "num_leaves": 12,
    "min_child_samples": 5,
    "n_jobs": 1,
    "verbosity": -1,
}
LAMBDAMART = LambdaMARTRanker(
    propensity=EYE_TRACKING,
    n_estimators=30,
    num_leaves=8,
    lgbm_params={"lambda_l2": 1.0},
    n_jobs=1,
    random_state=0,
)


class _Squares(StandardScaler):
    """Scaler of the user that is not increasing."""

    def transform(self, X, copy=None):
        return super().transform(X, copy) ** 2


def _after(*transformers, ranker=LAMBDAMART):
    return make_pipeline(OnFeatures(make_pipeline(*transformers)), ranker)


MODELS = {
    "lambdamart": LAMBDAMART,
    "all_trees": clone(LAMBDAMART).set_params(early_stopping=False, loss="lambda"),
    "naive_ranker": NaiveRanker(estimator=LGBMRanker(**TREES), random_state=0),
    "naive_huber": NaiveRanker(estimator=LGBMRegressor(**TREES, objective="huber")),
    "ips": IPSRanker(propensity=EYE_TRACKING, estimator=LGBMRegressor(**TREES), random_state=0),
    "user_aware": UserAwareIPSRanker(propensity=EYE_TRACKING, estimator=LGBMRanker(**TREES)),
    "prs": PRSRanker(propensity=EYE_TRACKING, estimator=LGBMRanker(**TREES), random_state=0),
    "forest": NaiveRanker(
        estimator=LGBMRegressor(**TREES, boosting_type="rf", subsample=0.6, subsample_freq=1)
    ),
    "one_leaf": NaiveRanker(estimator=LGBMRegressor(**{**TREES, "min_child_samples": 10**6})),
    "distilled": DistilledRanker(
        NaiveRanker(max_epochs=1, random_state=0), LGBMRegressor(**TREES), random_state=0
    ),
    "standard": _after(StandardScaler()),
    "min_max": _after(MinMaxScaler((-3, 5), clip=True)),
    "robust_after_log": _after(
        FunctionTransformer(np.arcsinh, feature_names_out="one-to-one"), RobustScaler()
    ),
    "power": _after(PowerTransformer()),
    "quantile": _after(QuantileTransformer(n_quantiles=100, output_distribution="normal")),
    "inner": NaiveRanker(estimator=make_pipeline(StandardScaler(), LGBMRegressor(**TREES))),
    "both": _after(
        StandardScaler(),
        ranker=NaiveRanker(estimator=make_pipeline(MinMaxScaler(), LGBMRanker(**TREES))),
    ),
    "imputed": _after(SimpleImputer(strategy="median"), StandardScaler()),
    "repaired": make_pipeline(IdentifiabilityRepair(), clone(LAMBDAMART)),
    "searched": GridSearchCV(
        clone(LAMBDAMART),
        {"num_leaves": [4, 6]},
        cv=QueryKFold(2),
        scoring=lambda ranker, X, y: float(ranker.num_leaves),
    ),
}
#: Fitted to a log with missing values.
HOLES = {
    "holes": clone(LAMBDAMART),
    "holes_standard": _after(StandardScaler(), ranker=clone(LAMBDAMART)),
    "holes_inner": NaiveRanker(estimator=make_pipeline(StandardScaler(), LGBMRegressor(**TREES))),
    "holes_ips": IPSRanker(propensity=EYE_TRACKING, estimator=LGBMRanker(**TREES), random_state=0),
}
WITH_MISSING = ["xgboost+json", "xgboost+json+raw", "lightgbm", "elastic"]
#: Their formulas overflow outside the training data, where predict refuses the features.
BOUNDED = {"power", "quantile"}


@cache
def _world():
    documents = make_ltr(n_queries=120, n_features=N_FEATURES, random_state=1)
    documents[NAMES] = documents[NAMES].to_numpy(np.float32).astype(float)
    documents[NAMES[1::2]] *= -1  # so that 0 goes left at some splits and right at others
    log, clicks, _ = simulate_clicks(
        documents, n_sessions=4_000, policy=PlackettLucePolicy(), random_state=0
    )
    return documents, log, clicks


@cache
def _fitted(name):
    _, log, clicks = _world()
    if name in HOLES:
        log = log.copy()
        for place in (0, 2, 3):
            beside = log[NAMES[place + 1]]
            log[NAMES[place]] = log[NAMES[place]].where(beside > beside.quantile(0.3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone({**MODELS, **HOLES}[name]).fit(log, clicks)


def _ranker(model):
    model = getattr(model, "best_estimator_", model)
    return model[-1] if isinstance(model, Pipeline) else model


def _learner(model):
    ranker = _ranker(model)
    return getattr(ranker, "estimator_", getattr(ranker, "student_", None))


def _booster(model):
    learner = _learner(model)
    if learner is None:
        return _ranker(model).booster_
    return (learner[-1] if isinstance(learner, Pipeline) else learner).booster_


def _seen(model, raw):
    """What LightGBM sees of raw features, without the code under test."""
    frame = pd.DataFrame(raw, columns=NAMES)
    if isinstance(model, Pipeline):
        frame = model[:-1].transform(frame)
    seen = frame.to_numpy().astype(np.float32)
    learner = _learner(model)
    return learner[:-1].transform(seen) if isinstance(learner, Pipeline) else seen


def _leaves(model, raw):
    """Value of LightGBM's leaf of each row and tree."""
    booster = _booster(model)
    seen = _seen(model, raw)
    number = np.asarray(booster.predict(seen, pred_leaf=True)).reshape(len(raw), -1)
    leaves = np.empty(number.shape)
    for tree in range(number.shape[1]):
        n_leaves = number[:, tree].max() + 1
        values = np.array([booster.get_leaf_output(tree, leaf) for leaf in range(n_leaves)])
        leaves[:, tree] = values[number[:, tree]]
    return leaves / (leaves.shape[1] if booster.params.get("boosting_type") == "rf" else 1)


def _rows(name, n_rows, seed=0):
    """Raw features: documents, extremes, whole numbers, thresholds and both their neighbours."""
    documents = _world()[0]
    random = np.random.default_rng(seed)
    seen = documents[NAMES].to_numpy()
    raw = seen[random.integers(len(documents), size=n_rows)]
    special = [0.0, -0.0, 1e-35, -1e-35, 1e-7, 1.0, 2.0, 3.0, -1.0, 50.0]
    special += [1e30, -1e30, 1e9, 12345.678]
    where = random.random(raw.shape) < 0.1
    raw[where] = random.choice(np.array(special, dtype=np.float32), where.sum())
    if name in BOUNDED:
        raw = np.clip(raw, seen.min(axis=0), seen.max(axis=0))
    edges = {}
    for feature, threshold in _engines.thresholds("elastic", _export(name, "elastic"), NAMES):
        if abs(threshold) >= np.finfo(np.float32).max:
            continue  # it parts missing values from all others
        near = np.float32(threshold)
        edges.setdefault(feature, set()).update(
            float(np.nextafter(near, np.float32(way))) for way in (-np.inf, near, np.inf)
        )
    for feature, values in edges.items():
        rows = random.random(n_rows) < 0.4
        raw[rows, feature] = random.choice(list(values), rows.sum())
    assert (raw == raw.astype(np.float32)).all()
    return raw


def _export(name, format, /, **options):
    return export_model(_fitted(name), format, **options)


def _without_solr_limits(raw, name):
    """True for rows that are no tiny distance from thresholds that Solr cannot have; see the
    docstring."""
    good = np.ones(len(raw), dtype=bool)
    for feature, threshold in _engines.thresholds("elastic", _export(name, "elastic"), NAMES):
        x = raw[:, feature]
        if abs(threshold) < 0.011:
            good &= np.abs(x - threshold) > 3e-10
        elif _is_above_a_power(threshold):
            # The power itself is told, and so is what is more than one float32 away.
            step = np.spacing(np.float32(threshold))
            good &= (np.abs(x - threshold) > 2 * np.abs(step)) | (x == _power_below(threshold))
    return good


def _power_below(threshold):
    """Minus the least power of two that is not less in size."""
    return -(2.0 ** np.ceil(np.log2(np.abs(threshold))))


def _is_above_a_power(threshold):
    """Where Solr's sums leave out some float32: less than its 1e-6 above minus a power of two."""
    return (threshold < 0) & (threshold - _power_below(threshold) < 1e-6)


def _check(format, text, name, raw, expected):
    """The same leaf in every tree, and the score of predict."""
    leaves, scores = _engines.scores(format, text, raw, NAMES)
    number = _engines.NUMBERS[format][0]
    np.testing.assert_array_equal(leaves.astype(number), expected.astype(number))
    size = np.abs(expected).sum(axis=1).max()
    np.testing.assert_allclose(scores, expected.sum(axis=1), rtol=0, atol=1e-6 * size)


@cache
def _rows_and_leaves(name):
    """Rows for the engines, LightGBM's leaves of them, and what Solr can tell: one for all."""
    raw = _rows(name, 100_000 if name == "lambdamart" else 8_000)
    return raw, _leaves(_fitted(name), raw), _without_solr_limits(raw, name)


@pytest.mark.parametrize("name", MODELS)
def test_leaves_add_up_to_the_prediction(name):
    raw, leaves, _ = _rows_and_leaves(name)
    predicted = _fitted(name).predict(pd.DataFrame(raw, columns=NAMES))
    np.testing.assert_allclose(leaves.sum(axis=1), predicted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", MODELS)
def test_engines_reach_the_same_leaves(name, format):
    raw, leaves, told_by_solr = _rows_and_leaves(name)
    kept = told_by_solr if format == "solr" else slice(None)
    _check(format, _export(name, format), name, raw[kept], leaves[kept])


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", ["lambdamart", "ips", "distilled", "forest"])
def test_a_missing_feature_is_what_lightgbm_takes_it_for(name, format):
    raw = _rows(name, 5_000)
    if format == "solr":
        raw = raw[_without_solr_limits(raw, name)]
    raw[np.random.default_rng(0).random(raw.shape) < 0.3] = np.nan
    _check(format, _export(name, format), name, raw, _leaves(_fitted(name), raw))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", ["standard", "inner"])
def test_a_missing_feature_behind_a_scaler_is_what_predict_takes_it_for(name, format):
    raw = _rows(name, 5_000)
    if format == "solr":
        raw = raw[_without_solr_limits(raw, name)]
    hole = np.random.default_rng(0).random(raw.shape) < 0.3
    known = np.nan if format in WITH_MISSING else 0.0  # other engines see 0
    expected = _leaves(_fitted(name), np.where(hole, known, raw))
    _check(format, _export(name, format), name, np.where(hole, np.nan, raw), expected)


@pytest.mark.parametrize("format", WITH_MISSING)
@pytest.mark.parametrize("name", HOLES)
def test_the_learned_way_of_missing_features_is_written(name, format):
    raw = _rows(name, 8_000)
    raw[np.random.default_rng(0).random(raw.shape) < 0.3] = np.nan
    model = _fitted(name)
    expected = _leaves(model, raw)
    _check(format, _export(name, format), name, raw, expected)
    predicted = model.predict(pd.DataFrame(raw, columns=NAMES))
    np.testing.assert_allclose(expected.sum(axis=1), predicted, rtol=1e-12, atol=1e-12)
    text = _booster(model).model_to_string()
    assert {"10", "8"} & set(text.split())  # decision types: missing right, missing left


@pytest.mark.filterwarnings("ignore:overflow encountered in divide:RuntimeWarning")
@pytest.mark.parametrize("format", WITH_MISSING)
@pytest.mark.parametrize("scaler", [[], [StandardScaler()]], ids=["raw", "scaled"])
def test_a_split_of_missing_from_known_sends_every_number_to_the_known(scaler, format):
    """Also the largest number, of which a scaler by less than 1 makes infinity."""
    row = np.arange(400)
    feature = np.where(row % 5 < 2, np.nan, (row - 200) / 1_000)
    log = pd.DataFrame({"qid": row // 4, "doc": row % 4, "position": row % 4 + 1, "a": feature})
    stump = LGBMRegressor(n_estimators=1, num_leaves=2, verbosity=-1)
    model = NaiveRanker(estimator=make_pipeline(*scaler, stump))
    model.fit(log, np.isnan(feature).astype(float))
    largest = np.finfo(np.float32).max
    next_largest = np.nextafter(largest, np.float32(0))
    known = np.array([0, 0.1, 0.3, 50, 0.1 * largest, next_largest, largest])
    raw = np.concatenate([-known, known, [np.nan]])[:, None]
    score = model.predict(pd.DataFrame(raw, columns=["a"]))
    assert (score[:-1] == score[0]).all()
    assert score[-1] > score[0] + 0.05
    _, found = _engines.scores(format, export_model(model, format), raw, ["a"])
    np.testing.assert_allclose(found, score, atol=1e-6)


@pytest.mark.parametrize("format", ["ranklib", "solr"])
def test_formats_without_missing_values_refuse_what_was_learned_of_them(format):
    with pytest.raises(ValueError, match=r"reads 0 .* that lack 'feature_00[023]'"):
        _export("holes", format)


@pytest.mark.parametrize("format", ["xgboost+json", "xgboost+json+raw", "lightgbm", "elastic"])
def test_a_missing_feature_is_what_the_imputer_puts_there(format):
    raw = _rows("imputed", 5_000)
    raw[np.random.default_rng(0).random(raw.shape) < 0.3] = np.nan
    _check(format, _export("imputed", format), "imputed", raw, _leaves(_fitted("imputed"), raw))


@pytest.mark.filterwarnings("ignore:invalid value encountered in log:RuntimeWarning")
@pytest.mark.parametrize("format", FORMATS)
def test_a_missing_feature_is_what_the_imputer_puts_there_though_logarithms_made_others(format):
    """Trees that have learned where the logarithm of a negative number goes."""
    _, log, clicks = _world()
    # Of one size: what is far from 0 and varies little would have an offset, which LightGBM does
    # not see.
    log = log.assign(**{name: np.abs(log[name]) / log[name].std() + 0.5 for name in NAMES})
    # The missing ones become 0.5 and are like the least; those below 0 are like the greatest.
    log.loc[log[NAMES[0]] > log[NAMES[0]].median(), NAMES[0]] = -1.0
    model = _after(
        SimpleImputer(strategy="constant", fill_value=0.5),
        FunctionTransformer(np.log, feature_names_out="one-to-one"),
        ranker=clone(LAMBDAMART),
    ).fit(log, clicks)
    learned = _trees.trees_of(served_model(model))
    assert not any(tree.learned.any() for tree in learned)
    raw = log[NAMES].to_numpy()[:500].clip(0.5)
    raw[:, 0] = np.nan
    leaves, _ = _engines.scores(format, export_model(model, format), raw, NAMES)
    if _engines.NUMBERS[format][1]:  # reads 0 for what is missing
        return
    number = _engines.NUMBERS[format][0]
    seen = np.log(np.where(np.isnan(raw), 0.5, raw))
    expected = _leaves(model[-1], seen).astype(number)
    np.testing.assert_array_equal(leaves.astype(number), expected)


@pytest.mark.parametrize("format", FORMATS)
def test_infinite_features(format):
    raw = _rows("lambdamart", 2_000)
    raw[np.random.default_rng(0).random(raw.shape) < 0.1] = np.inf
    raw[np.random.default_rng(1).random(raw.shape) < 0.1] = -np.inf
    if format == "solr":
        raw = raw[_without_solr_limits(raw, "lambdamart")]
    expected = _leaves(_fitted("lambdamart"), raw)
    _check(format, _export("lambdamart", format), "lambdamart", raw, expected)


def test_solr_near_zero_is_off_by_less_than_a_billionth():
    threshold = 10.0 ** np.random.default_rng(0).uniform(-9, 3, 20_000)
    threshold = np.concatenate([threshold, -threshold, [1e-35]])
    threshold = np.append(threshold[~_is_above_a_power(threshold)], 0.0)
    wanted = _trees.floor_single(threshold)
    reached = _trees._solr_threshold(threshold) + np.float32(1e-6)
    large = np.abs(threshold) >= 0.01
    np.testing.assert_array_equal(reached[large], wanted[large])
    np.testing.assert_array_less(np.abs(reached.astype(float) - wanted), 3e-10)
    assert (reached <= wanted).all()


def test_solr_tells_negative_powers_of_two_from_their_neighbours():
    """No number plus 1e-6 is -1 in float32; still, what has a feature of -1 goes the right way."""
    power = -(2.0 ** np.arange(-6, 12)).astype(np.float32)
    for steps in range(-20, 21):
        wanted = power
        for _ in range(abs(steps)):
            wanted = np.nextafter(wanted, np.float32(np.sign(steps) * np.inf))
        reached = _trees._solr_threshold(wanted.astype(float)) + np.float32(1e-6)
        np.testing.assert_array_equal(power <= reached, power <= wanted)
        # Off by one float32 at most, of which there are more above the power than below.
        np.testing.assert_array_less(np.abs(reached - wanted), 1.5 * np.abs(np.spacing(wanted)))
        if steps < 0:
            np.testing.assert_array_equal(reached, wanted)


@pytest.mark.parametrize("name", ["lambdamart", "standard", "forest", "one_leaf", *HOLES])
def test_xgboost_itself_loads_the_raw_model(name):
    raw = _rows(name, 5_000)
    text = _export(name, "xgboost+json+raw", feature_names=[f"f{i}" for i in range(N_FEATURES)])
    booster = xgboost.Booster()
    booster.load_model(bytearray(json.loads(text)["model"]["model"]["definition"], "utf-8"))
    assert booster.feature_names == [f"f{i}" for i in range(N_FEATURES)]
    hole = np.random.default_rng(0).random(raw.shape) < 0.1
    with_holes = np.where(hole, np.nan, raw).astype(np.float32)
    data = xgboost.DMatrix(with_holes, feature_names=booster.feature_names)
    leaves = _leaves(_fitted(name), np.where(hole, np.nan, raw))
    np.testing.assert_allclose(
        booster.predict(data, output_margin=True),
        leaves.sum(axis=1),
        rtol=0,
        atol=1e-6 * np.abs(leaves).sum(axis=1).max(),
    )


@pytest.mark.parametrize("format", ["xgboost+json", "xgboost+json+raw", "ranklib", "solr"])
def test_the_checks_notice_a_threshold_as_it_is(monkeypatch, format):
    for function in ("_above", "floor_single", "_solr_threshold"):
        monkeypatch.setattr(_trees, function, lambda t: t.astype(np.float32))
    raw = _rows("standard", 20_000)
    text = _export("standard", format)
    with pytest.raises(AssertionError):
        _check(format, text, "standard", raw, _leaves(_fitted("standard"), raw))


def test_the_checks_notice_the_float_above_the_rounded_threshold(monkeypatch):
    def above(threshold):
        return np.nextafter(threshold.astype(np.float32), np.float32(np.inf))

    monkeypatch.setattr(_trees, "_above", above)
    raw, model = _rows("standard", 20_000), _fitted("standard")
    with pytest.raises(AssertionError):
        _check("xgboost+json", _export("standard", "xgboost+json"), "x", raw, _leaves(model, raw))


@pytest.mark.parametrize("format", ["xgboost+json", "xgboost+json+raw", "lightgbm", "elastic"])
def test_the_checks_notice_the_default_of_lightgbm(format):
    raw = _rows("lambdamart", 5_000)
    raw[np.random.default_rng(0).random(raw.shape) < 0.3] = np.nan
    text = _export("lambdamart", format)
    # LightGBM's dump says default_left at every split.
    copied = text.replace('"default_left":false', '"default_left":true')
    if format == "xgboost+json":
        copied = _all_missing_left(text)
    elif format == "xgboost+json+raw":
        copied = _all_default_left(text)
    with pytest.raises(AssertionError):
        _check(format, copied, "x", raw, _leaves(_fitted("lambdamart"), raw))


def _all_missing_left(text):
    body = json.loads(text)
    trees = json.loads(body["model"]["model"]["definition"])
    nodes = list(trees)
    for node in nodes:
        if "children" in node:
            node["missing"] = node["yes"]
            nodes += node["children"]
    body["model"]["model"]["definition"] = json.dumps(trees)
    return json.dumps(body)


def _all_default_left(text):
    body = json.loads(text)
    model = json.loads(body["model"]["model"]["definition"])
    for tree in model["learner"]["gradient_booster"]["model"]["trees"]:
        tree["default_left"] = [1] * len(tree["default_left"])
    body["model"]["model"]["definition"] = json.dumps(model)
    return json.dumps(body)


@pytest.mark.parametrize("format", FORMATS)
def test_scores_can_be_kept_from_being_negative(format):
    raw = _rows("lambdamart", 5_000)
    plain = _engines.scores(format, _export("lambdamart", format), raw, NAMES)[1]
    assert plain.min() < 0
    text = _export("lambdamart", format, shift="nonnegative")
    leaves, raised = _engines.scores(format, text, raw, NAMES)
    assert raised.min() >= 0
    assert np.ptp(leaves[:, -1]) == 0
    np.testing.assert_allclose(raised - leaves[:, -1], plain, rtol=0, atol=1e-5)


def test_positive_scores_need_no_shift():
    positive = _export("one_leaf", "solr"), _export("one_leaf", "solr", shift="nonnegative")
    assert positive[0] == positive[1]


@pytest.mark.parametrize("format", FORMATS)
def test_names_of_the_engine(format):
    names = RANK_FEATURES if format == "lightgbm" else ENGINE_NAMES
    text = _export("standard", format, feature_names=names)
    raw = _rows("standard", 500)
    leaves, _ = _engines.scores(format, text, raw, names)
    number = _engines.NUMBERS[format][0]
    expected = _leaves(_fitted("standard"), raw).astype(number)
    if format == "solr":
        raw = _without_solr_limits(raw, "standard")
        leaves, expected = leaves[raw], expected[raw]
    np.testing.assert_array_equal(leaves.astype(number), expected)


@pytest.mark.filterwarnings("ignore:The feature 'feature_004' looks like a time stamp")
@pytest.mark.parametrize("format", FORMATS)
def test_offsets_of_features_are_written_into_the_thresholds(format):
    _, log, clicks = _world()
    log, feature = log.copy(), 4
    # Seconds since 1970; a float32, as an engine holds them, has 128 of them. A day and a half,
    # in the order of the feature, whose size differs between worlds.
    steps = np.round(1_000 * log[NAMES[feature]].rank(pct=True))
    log[NAMES[feature]] = np.float32(1.7e9).astype(float) + 128 * steps
    model = clone(LAMBDAMART).fit(log, clicks)
    assert model._offsets.columns.tolist() == [feature]
    raw = log[NAMES].to_numpy()[:5_000]
    text = export_model(model, format)
    if format == "elastic":
        assert feature in {number for number, _ in _engines.thresholds(format, text, NAMES)}
    leaves, _ = _engines.scores(format, text, raw, NAMES)
    seen = raw.copy()
    seen[:, feature] -= model._offsets.values
    number = _engines.NUMBERS[format][0]
    expected = _leaves(model, seen).astype(number)
    np.testing.assert_array_equal(leaves.astype(number), expected)


def test_the_body_of_solr_and_of_elasticsearch():
    solr = json.loads(_export("lambdamart", "solr", name="shop-1", store="shop"))
    assert (solr["name"], solr["store"]) == ("shop-1", "shop")
    assert "store" not in json.loads(_export("lambdamart", "solr"))
    query = {"match": {"title": "{{query}}"}}
    body = json.loads(_export("lambdamart", "elastic", queries={NAMES[1]: query}))
    (extractor,) = body["inference_config"]["learning_to_rank"]["feature_extractors"]
    assert extractor["query_extractor"]["feature_name"] == NAMES[1]
    assert extractor["query_extractor"]["query"] == query
    plugin = json.loads(_export("lambdamart", "ranklib", name="x"))
    assert plugin["model"]["name"] == "x"


def test_boosters_keep_the_names_of_features():
    _, log, clicks = _world()
    given = ["a b", "a_b", 'x"[]{}:,', "fieldMatch(title).completeness", "é", "a\\b"]
    log = log.rename(columns=dict(zip(NAMES, given, strict=True)))
    expected = ["a_b_2", "a_b", "x_______", "fieldMatch(title).completeness", "é", "a_b_3"]
    few = {**TREES, "n_estimators": 3}
    rankers = [
        clone(LAMBDAMART).set_params(n_estimators=3),
        NaiveRanker(estimator=LGBMRanker(**few)),
        PRSRanker(propensity=EYE_TRACKING, estimator=LGBMRanker(**few)),
        DistilledRanker(NaiveRanker(max_epochs=1), LGBMRegressor(**few)),
    ]
    for ranker in rankers:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ranker.fit(log, clicks)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ranker.predict(log[given])
        assert _booster(ranker).feature_name() == expected
        body = json.loads(export_model(ranker, "solr"))
        assert [feature["name"] for feature in body["features"]] == given


def test_features_without_names():
    _, log, clicks = _world()
    ranker = clone(LAMBDAMART).fit(
        log[NAMES].to_numpy(),
        clicks,
        qid=log["qid"],
        session=log["session"],
        position=log["position"],
    )
    with pytest.raises(ValueError, match=r"names\. Pass feature_names"):
        export_model(ranker, "solr")
    with pytest.raises(ValueError, match="without names"):
        export_model(ranker, "solr", {"a": "b"})
    assert export_model(ranker, "solr", NAMES)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a"], "has 1 names, but the ranker was fitted to 6 features"),
        (["a", "a", "b", "c", "d", "e"], "'a' twice"),
        ({"unknown": "a"}, "'unknown', which is no fitted feature"),
        (NAMES[::-1], "in place 0, where the fitted feature is"),
        ([*NAMES[:4], NAMES[5], "x"], "'feature_005' in place 4"),
        ({NAMES[0]: NAMES[1]}, "'feature_001' twice"),
    ],
)
def test_wrong_names(names, message):
    with pytest.raises(ValueError, match=message):
        _export("lambdamart", "solr", feature_names=names)


@pytest.mark.parametrize("name", [*ENGINE_NAMES[:2], *ENGINE_NAMES[3:], "price-cost", "2", "a(b"])
def test_names_that_vespa_would_not_read(name):
    with pytest.raises(ValueError, match="Vespa cannot read the feature name"):
        _export("lambdamart", "lightgbm", feature_names={NAMES[0]: name})


@pytest.mark.parametrize("format", FORMATS)
def test_a_name_of_the_model_is_not_empty(format):
    with pytest.raises(ValueError, match="name is ' '; expected a text"):
        _export("lambdamart", format, name=" ")


@pytest.mark.parametrize(
    "names", ["abcdef", set(NAMES), 6, [1, 2, 3, 4, 5, 6], ["", "a", "b", "c", "d", "e"]]
)
def test_names_that_are_no_texts(names):
    with pytest.raises(TypeError, match="feature_names"):
        _export("lambdamart", "solr", feature_names=names)


def test_a_dict_may_exchange_names():
    exchanged = {NAMES[0]: NAMES[1], NAMES[1]: NAMES[0]}
    body = json.loads(_export("lambdamart", "solr", feature_names=exchanged))
    assert [each["name"] for each in body["features"]][:2] == [NAMES[1], NAMES[0]]


REFUSED = [
    (DLARanker(relevance="embedding"), "scores documents by their ids"),
    (RankAggRanker([("naive", NaiveRanker(max_epochs=1))]), "all candidates of the query"),
    (
        EnsembleRanker([("a", NaiveRanker(max_epochs=1)), ("b", NaiveRanker(max_epochs=1))]),
        r"has no trees.* Its formats: \['onnx'\]",
    ),
    (
        EnsembleRanker([("a", NaiveRanker(max_epochs=1)), ("b", RankAggRanker())]),
        "EnsembleRanker depends on all candidates",
    ),
    (VectorizationRanker(max_epochs=1), "student='only'"),
    (DLARanker(max_epochs=1), r"has no trees.* Its formats: \['onnx'\]. Dist"),
    (NaiveRanker(estimator=DecisionTreeRegressor()), "Its formats: none"),
    (NaiveRanker(estimator=LGBMRegressor(**TREES, objective="poisson")), "objective 'poisson'"),
    (NaiveRanker(estimator=LGBMRegressor(**TREES, reg_sqrt=True)), "'regression sqrt'"),
    (NaiveRanker(estimator=LGBMRegressor(**TREES, linear_tree=True)), "linear_tree=False"),
    (
        NaiveRanker(estimator=LGBMRegressor(**TREES, zero_as_missing=True)),
        "take 0 in feature",
    ),
    (
        NaiveRanker(
            estimator=LGBMRegressor(**TREES, categorical_feature=[0], min_data_per_group=1)
        ),
        f"split '{NAMES[0]}' by categories.*get_dummies",
    ),
    (_after(PCA(3)), "PCA.* cannot be written"),
    (_after(ColumnTransformer([("a", StandardScaler(), [0])])), "ColumnTransformer.* cannot be"),
    (_after(FunctionTransformer(np.abs, feature_names_out="one-to-one")), "cannot be written"),
    (_after(PowerTransformer("box-cox")), "'box-cox'"),
    (_after(SimpleImputer(missing_values=0.0)), "SimpleImputer.* cannot be written"),
    (_after(StandardScaler(), SimpleImputer()), "SimpleImputer.* cannot be written"),
    (_after(SimpleImputer(), _Squares()), "_Squares.* cannot be written"),
    (make_pipeline(OnFeatures(StandardScaler(), passthrough=["x"]), LAMBDAMART), "passes the col"),
]


@pytest.mark.parametrize(("ranker", "message"), REFUSED, ids=[each[1] for each in REFUSED])
def test_what_cannot_be_exported_says_why(ranker, message):
    _, log, clicks = _world()
    log = log.head(4_000).copy()
    if "box" in message:
        log[NAMES] = np.abs(log[NAMES]) + 1
    if "categories" in message:
        # The first feature may be less than 1 wherever it is known: one category.
        log[NAMES[0]] = np.floor(9 * log[NAMES[0]].rank(pct=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = clone(ranker).fit(log, clicks[:4_000])
    with pytest.raises(ValueError, match=message):
        export_model(model, "xgboost+json")


def test_a_ranker_without_formats_says_what_forbids_them():
    _, log, clicks = _world()
    model = clone(_after(PCA(3))).fit(log, clicks)
    with pytest.raises(ValueError, match=r"Its formats: none\. PCA.* cannot be written"):
        export_model(model, "linear")


def test_what_is_no_fitted_ranker():
    with pytest.raises(NotFittedError):
        export_model(LAMBDAMART, "solr")
    with pytest.raises(NotFittedError):
        export_model(_after(StandardScaler()), "solr")
    with pytest.raises(NotFittedError, match="best_estimator_"):
        export_model(MODELS["searched"], "solr")
    for wrong in (
        StandardScaler(),
        make_pipeline(StandardScaler()),
        None,
    ):
        with pytest.raises(TypeError, match="expected a fitted ranker"):
            export_model(wrong, "solr")
    scaled = Pipeline([("s", StandardScaler().fit([[0], [1]])), ("r", _fitted("lambdamart"))])
    with pytest.raises(TypeError, match="Wrap the step in OnFeatures"):
        export_model(scaled, "solr")


def test_options_of_other_formats_and_unknown_formats():
    with pytest.raises(ValueError, match=r"'format' parameter.* \{'xgboost\+json', 'xgboost\+"):
        _export("lambdamart", "pmml")
    with pytest.raises(ValueError, match="store is an option of the format 'solr'"):
        _export("lambdamart", "ranklib", store="shop")
    with pytest.raises(ValueError, match="queries is an option of the format 'elastic'"):
        _export("lambdamart", "ranklib", queries={})
    with pytest.raises(ValueError, match=r"formats: \['xgboost"):
        _export("lambdamart", "linear")
    for wrong in ({"x": {}}, {NAMES[0]: "title"}):
        with pytest.raises(ValueError, match=r"queries has .*; expected a dict, the query of one"):
            _export("lambdamart", "elastic", queries=wrong)
    with pytest.raises(ValueError, match="'shift' parameter"):
        _export("lambdamart", "elastic", shift=1.0)


def test_a_shift_needs_trees():
    _, log, clicks = _world()
    # Features of one size, or the equations of some worlds are ill-conditioned.
    log = log.assign(**{name: log[name] / log[name].std() for name in NAMES})
    ranker = NaiveRanker(estimator=Ridge()).fit(log, clicks)
    assert export_model(ranker, "solr")
    with pytest.raises(ValueError, match="shift adds a leaf to trees"):
        export_model(ranker, "solr", shift="nonnegative")


def test_exports_of_trees_do_not_import_torch():
    code = (
        "import sys, numpy as np, lightgbm\n"
        "from skultr.rankers import LambdaMARTRanker\n"
        "from skultr.serving import export_model\n"
        "ranker = LambdaMARTRanker(debiasing='none', n_estimators=2)\n"
        "X = np.random.default_rng(0).normal(size=(60, 2))\n"
        "ranker.fit(X, np.arange(60) % 2, qid=np.arange(60) // 6)\n"
        "export_model(ranker, 'solr', ['a', 'b'])\n"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_the_booster_is_not_changed_by_an_export():
    model = _fitted("lambdamart")
    before = model.booster_.model_to_string()
    _export("lambdamart", "solr", feature_names=ENGINE_NAMES)
    assert model.booster_.model_to_string() == before
    assert isinstance(model.booster_, lgb.Booster)


TWO_TREES = [
    ("first", clone(LAMBDAMART).set_params(n_estimators=5)),
    ("second", NaiveRanker(estimator=LGBMRegressor(**{**TREES, "n_estimators": 5}))),
]


@pytest.mark.parametrize("members", [TWO_TREES, "trees"], ids=["members", "word"])
@pytest.mark.parametrize("format", FORMATS)
def test_an_ensemble_of_trees_is_one_forest(format, members):
    _, log, clicks = _world()
    log, clicks = log.head(4_000), clicks[:4_000]
    model = EnsembleRanker(members, propensity=EYE_TRACKING, random_state=0).fit(log, clicks)
    assert (model.weights_["weight"] > 0).all()
    raw = log[NAMES].to_numpy()[:500]
    _, found = _engines.scores(format, export_model(model, format), raw, NAMES)
    np.testing.assert_allclose(found, model.predict(pd.DataFrame(raw, columns=NAMES)), atol=1e-5)
    served = log.assign(production=np.random.default_rng(0).random(len(log)))
    model = EnsembleRanker(members, propensity=EYE_TRACKING, random_state=0).fit(served, clicks)
    model.weights_.loc["production", "weight"] = 0.5
    with pytest.raises(ValueError, match=r"has no trees.*Its formats: \['onnx'\]"):
        export_model(model, format)
