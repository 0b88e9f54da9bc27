"""Another outcome than the click as ``y``: examination from clicks, relevance from the outcome."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from skultr import IdentifiabilityRepair
from skultr._log._reader import take_target
from skultr.click_models import PBMModel
from skultr.exceptions import ClickDataWarning
from skultr.metrics import ndcg_score
from skultr.propensity import RegressionEMPropensity, relevance_labels
from skultr.rankers import (
    AffineRanker,
    CLDRanker,
    DistilledRanker,
    DLARanker,
    EnsembleRanker,
    IPSRanker,
    LambdaMARTRanker,
    NaiveRanker,
    PairDebiasRanker,
    PRSRanker,
    RankAggRanker,
    RegressionEMRanker,
    TwoTowerRanker,
    UserAwareIPSRanker,
    VectorizationRanker,
)

CURVE = np.array([1.0, 0.6, 0.35, 0.2])
N_QUERIES, N_DOCS = 60, 6
PURCHASE = "outcome_purchase"
CURVE_OF_LOG = RegressionEMPropensity(relevance="embedding")
QUICK = {"max_epochs": 8, "hidden_layer_sizes": (8,), "random_state": 0}
LEARN = [
    NaiveRanker(),
    IPSRanker(),
    UserAwareIPSRanker(),
    PRSRanker(),
    LambdaMARTRanker(n_estimators=20, random_state=0),
    DLARanker(),
    DLARanker(examination="network"),
    DLARanker(relevance="embedding"),
    RegressionEMRanker(),
    RegressionEMRanker(examination="table"),
    RegressionEMRanker(relevance="embedding"),
    TwoTowerRanker(),
    PairDebiasRanker(),
]
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def log():
    """Clicks follow appeal, purchases the value: what appeals most is worth least."""
    rng = np.random.default_rng(0)
    n = 3_000
    query = rng.integers(N_QUERIES, size=n)
    features = rng.normal(size=(N_QUERIES, N_DOCS, 2))
    shown = np.argsort(features[query, :, 0] + rng.gumbel(size=(n, N_DOCS)), axis=1)[:, ::-1][
        :, : len(CURVE)
    ]
    appeal = 0.2 + 0.6 / (1 + np.exp(-2 * features[..., 0]))
    buys = 0.05 + 0.6 / (1 + np.exp(-3 * features[..., 1]))
    rows = np.repeat(query, len(CURVE)), shown.ravel()
    clicks = rng.random(len(rows[0])) < np.tile(CURVE, n) * appeal[rows]
    return pd.DataFrame(
        {
            "qid": rows[0],
            "session": np.repeat(np.arange(n), len(CURVE)),
            "doc": rows[1],
            "position": np.tile(np.arange(1, len(CURVE) + 1), n),
            "f0": features[*rows, 0],
            "f1": features[*rows, 1],
            "click": clicks.astype(float),
            PURCHASE: (clicks & (rng.random(len(clicks)) < buys[rows])).astype(float),
            "appeal": appeal[rows],
            "value": (appeal * buys)[rows],
        }
    )


@pytest.fixture(scope="module")
def X(log):
    return log.drop(columns=["appeal", "value"])


def quick(ranker):
    names = ranker.get_params()
    return clone(ranker).set_params(**{k: v for k, v in QUICK.items() if k in names})


def value_of(truth, scores):
    return ndcg_score(truth["value"], scores, qid=truth["qid"], gain="linear")


@pytest.mark.parametrize("ranker", LEARN, ids=repr)
def test_purchases_are_learned_with_the_curve_of_clicks(ranker, X, log):
    ranker = quick(ranker)
    if isinstance(ranker, PRSRanker):  # whose first steps depend on where the network starts
        ranker.set_params(max_epochs=30)
    ranker.fit(X, PURCHASE)
    truth = log.drop_duplicates(["qid", "doc"])
    learned = value_of(truth, ranker.predict(truth[X.columns]))
    # Rankers of clicks are as good as the order of appeal (.88), those of purchases are .95 to .99
    # in six draws: more than half of what is missing to 1.
    of_clicks = value_of(truth, truth["appeal"])
    assert learned > of_clicks + (1 - of_clicks) / 3
    assert "_click_log" not in vars(ranker)
    table = getattr(ranker, "examination_", None)
    if ranker._learns_examination and not isinstance(ranker, PairDebiasRanker):
        assert table["clicks"].sum() == X["click"].sum()
        # Purchases alone leave errors of .2 here.
        np.testing.assert_allclose(table["examination"], CURVE, atol=0.12)


@pytest.mark.parametrize("ranker", [IPSRanker(), LambdaMARTRanker(), CLDRanker()], ids=repr)
def test_propensities_are_those_of_clicks(ranker, X):
    found = quick(ranker).set_params(propensity=CURVE_OF_LOG).fit(X, PURCHASE).propensity_
    expected = clone(CURVE_OF_LOG).fit(X, "click")
    np.testing.assert_allclose(found.predict(X), expected.predict(X), rtol=1e-6)


def test_what_y_may_be(X):
    weights = {"click": 1.0, PURCHASE: 20.0}
    values = X["click"] + 20 * X[PURCHASE]
    frames = [X, pl.from_pandas(X)]
    scores = [quick(NaiveRanker()).fit(frame, weights).predict(X) for frame in frames]
    scores.append(quick(NaiveRanker()).fit(X, values).predict(X))
    for each in scores[1:]:
        np.testing.assert_array_equal(each, scores[0])
    target = take_target(X, weights, "fit")
    np.testing.assert_array_equal(target.y, values / 21)
    np.testing.assert_array_equal(target.clicks, X["click"])


def test_clicks_stay_clicks(X):
    for y in ("click", X["click"], {"click": 3.0}):
        assert take_target(X, y, "fit").clicks is None
    grades = X.assign(relevance=np.arange(len(X)) % 3)
    assert take_target(grades, grades["relevance"], "fit").clicks is None
    assert take_target(X.drop(columns="click"), X[PURCHASE], "fit").clicks is None


def test_an_outcome_is_no_feature(X):
    ranker = quick(NaiveRanker()).fit(X, "click")
    assert list(ranker.feature_names_in_) == ["f0", "f1"]
    np.testing.assert_array_equal(ranker.predict(X), ranker.predict(X[["f0", "f1"]]))


def test_who_learns_examination_reads_the_clicks(X):
    expected = RegressionEMPropensity(relevance="embedding").fit(X, "click").examination_
    for y in (PURCHASE, {PURCHASE: 2.0}, X[PURCHASE]):
        found = RegressionEMPropensity(relevance="embedding").fit(X, y).examination_
        pd.testing.assert_frame_equal(found, expected)
    ranker = make_pipeline(IdentifiabilityRepair(), quick(IPSRanker())).fit(X, PURCHASE)
    direct = make_pipeline(IdentifiabilityRepair(), quick(IPSRanker())).fit(X, X[PURCHASE])
    np.testing.assert_array_equal(ranker.predict(X), direct.predict(X))


def test_labels_are_values_per_examination(X):
    weights = {"click": 0.5, PURCHASE: 10.0}
    labels = relevance_labels(X, weights, propensity=CURVE)
    parts = [relevance_labels(X, name, propensity=CURVE) for name in ("click", PURCHASE)]
    expected = 0.5 * parts[0]["label"] + 10 * parts[1]["label"]
    np.testing.assert_allclose(labels["label"], expected)
    np.testing.assert_allclose(
        labels["outcome"].sum(), (X["click"] * 0.5 + X[PURCHASE] * 10).sum()
    )
    with pytest.raises(ValueError, match="interval=True is for clicks"):
        relevance_labels(X, PURCHASE, propensity=CURVE, interval=True)


def test_ensembles_weigh_members_by_the_outcome(X, log):
    members = [("naive", quick(NaiveRanker())), ("ips", quick(IPSRanker()))]
    ranker = EnsembleRanker(members, random_state=0).fit(X, PURCHASE)
    truth = log.drop_duplicates(["qid", "doc"])
    of_clicks = value_of(truth, truth["appeal"])
    assert value_of(truth, ranker.predict(truth[X.columns])) > of_clicks + (1 - of_clicks) / 3
    assert ranker.examination_["clicks"].sum() == X["click"].sum()
    with pytest.raises(ValueError, match=r"has members that learn examination .*\['dla'\]"):
        EnsembleRanker([("dla", DLARanker())]).fit(X, PURCHASE)


@pytest.mark.parametrize(
    "model",
    [
        PBMModel(),
        AffineRanker(),
        VectorizationRanker(),
        DistilledRanker(),
        RankAggRanker(),
        TwoTowerRanker(link="additive"),
    ],
    ids=repr,
)
def test_who_cannot_says_so(model, X):
    with pytest.raises(ValueError, match=r"another outcome than the click.*Pass y='click'"):
        model.fit(X, PURCHASE)
    clone(model).set_params(**{k: v for k, v in QUICK.items() if k in model.get_params()})


def test_partial_fit_goes_on_with_the_curve(X):
    ranker = quick(DLARanker()).fit(X, PURCHASE)
    curve = ranker.examination_["examination"]
    ranker.partial_fit(X, PURCHASE)
    np.testing.assert_array_equal(ranker.examination_["examination"], curve)
    pairs = quick(PairDebiasRanker()).fit(X, PURCHASE)
    ratios = pairs.bias_ratios_["t_plus"]
    np.testing.assert_allclose(pairs.partial_fit(X, PURCHASE).bias_ratios_["t_plus"], ratios)


@pytest.mark.parametrize(
    ("change", "y", "message"),
    [
        ({}, {"purchase": 1.0}, r"rename\(columns=\{'purchase': 'outcome_purchase'\}\)"),
        ({}, {PURCHASE: -1.0}, "expected numbers of at least 0"),
        ({}, {}, "one above 0"),
        ({}, "outcome_cart", "X has no column 'outcome_cart'"),
        ({PURCHASE: np.nan}, PURCHASE, r"holds nan in 12000 rows.*fill in 0"),
        ({PURCHASE: -1.0}, PURCHASE, "holds -1 in 12000 rows"),
        ({"click": None}, PURCHASE, "X has no column 'click'"),
    ],
    ids=str,
)
def test_faults(change, y, message, X):
    X = X.assign(**change).drop(columns=[name for name in change if change[name] is None])
    with pytest.raises(ValueError, match=message):
        NaiveRanker().fit(X, y)


def test_nothing_to_learn_from_warns(X):
    with pytest.warns(ClickDataWarning, match="The outcome is 0 in all rows"):
        quick(NaiveRanker()).fit(X.assign(**{PURCHASE: 0.0}), PURCHASE)


def test_engines_count_clicks(X):
    with pytest.raises(TypeError, match="another outcome"):
        RegressionEMPropensity(relevance="embedding").fit(pl.from_pandas(X).lazy(), PURCHASE)


def test_validation_has_one_outcome(X):
    with pytest.raises(TypeError, match="takes no validation"):
        quick(DLARanker()).fit(X, PURCHASE, validation=(X, PURCHASE))
    quick(IPSRanker()).fit(X, PURCHASE, validation=(X, PURCHASE))
