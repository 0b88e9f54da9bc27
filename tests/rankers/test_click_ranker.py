"""What rankers with an embedding, and their predictions of clicks, promise."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.special import expit, logit
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline

from skultr.exceptions import NotIdentifiableWarning
from skultr.identifiability import IdentifiabilityRepair
from skultr.metrics import RankingScorer
from skultr.propensity import DualLearningPropensity, RegressionEMPropensity
from skultr.rankers import DLARanker, NaiveRanker, RegressionEMRanker, TwoTowerRanker
from skultr.simulation import PlackettLucePolicy, make_disconnected_log, simulate_clicks

from .._worlds import FEATURES, random_lists, small_log

EXAMINATION = np.array([1.0, 0.6, 0.3])
EMBEDDINGS = [
    DLARanker(relevance="embedding", random_state=0),
    RegressionEMRanker(relevance="embedding", random_state=0),
    TwoTowerRanker(relevance="embedding", random_state=0),
    TwoTowerRanker(relevance="embedding", link="additive", random_state=0),
]
embeddings = pytest.mark.parametrize(
    "ranker", EMBEDDINGS, ids=["DLA", "EM", "TwoTower", "TwoTower-additive"]
)
networks = pytest.mark.parametrize(
    "ranker",
    [
        RegressionEMRanker(max_epochs=40, random_state=0),
        TwoTowerRanker(max_epochs=40, random_state=0),
        TwoTowerRanker(link="additive", max_epochs=40, random_state=0),
    ],
    ids=["EM", "TwoTower", "TwoTower-additive"],
)
ROLES = ["session", "qid", "doc", "position"]


def _exact_world(link="product", seed=0):
    """Click rates without noise; three positions; relevance and its bias by ``link``."""
    log, _ = random_lists(seed=seed)
    relevance = np.random.default_rng(seed).uniform(0.2, 0.8, 12)
    truth = relevance[log["doc"]] * EXAMINATION[log["position"] - 1]
    if link == "additive":
        truth = expit(logit(relevance[log["doc"]]) - (log["position"].to_numpy() - 1))
    return log, truth, relevance


def _world_of(ranker):
    return _exact_world(getattr(ranker, "link", "product"))


# Relevance by document ------------------------------------------------------------------
@embeddings
def test_embedding_finds_clicks_relevance_and_examination(ranker):
    log, rate, relevance = _world_of(ranker)
    ranker = clone(ranker).fit(log, rate)
    np.testing.assert_allclose(ranker.predict_click(log), rate, atol=1e-4)
    assert ranker.relevance_.index.names == ["qid", "doc"]
    assert ranker.relevance_.between(0, 1).all()
    assert ranker.relevance_.index.get_level_values("doc").tolist() == list(range(12))
    found = ranker.relevance_.to_numpy()
    curve = ranker.examination_["examination"]
    if ranker.link_ == "additive":
        np.testing.assert_allclose(
            logit(found) - logit(found[0]), logit(relevance) - logit(relevance[0]), atol=1e-3
        )
        np.testing.assert_allclose(curve, np.exp([0.0, -1, -2]), rtol=1e-3)
    else:
        np.testing.assert_allclose(found / found[0], relevance / relevance[0], rtol=1e-3)
        np.testing.assert_allclose(curve, EXAMINATION, rtol=1e-3)
    assert (ranker.examination_["standard_error"].iloc[1:] > 0).all()
    np.testing.assert_array_equal(ranker.predict(log), found[log["doc"]])


@embeddings
def test_features_change_nothing_and_may_be_absent(ranker):
    log, rate, _ = _world_of(ranker)
    expected = clone(ranker).fit(log, rate).predict(log)
    bare = clone(ranker).fit(log[ROLES], rate)
    np.testing.assert_allclose(bare.predict(log[["doc"]]), expected)
    assert bare.n_features_in_ == 0
    np.testing.assert_array_equal(bare.rank(log), bare.rank(log[["qid", "doc"]]))
    noise = clone(ranker).fit(log.assign(f0=log["doc"] % 2, f1=0.0), rate)
    np.testing.assert_allclose(noise.predict(log), expected)


@embeddings
def test_documents_without_ids_are_known_by_their_features(ranker):
    log, rate, _ = _world_of(ranker)
    expected = clone(ranker).fit(log, rate).predict_click(log)
    roles = {name: log[name] for name in ROLES if name != "doc"}
    array = log[FEATURES].to_numpy()
    by_array = clone(ranker).fit(array, rate, **roles)
    np.testing.assert_allclose(
        by_array.predict_click(array, position=log["position"]), expected, atol=1e-4
    )
    by_frame = clone(ranker).fit(log.drop(columns="doc"), rate)
    np.testing.assert_allclose(
        by_frame.predict_click(log.drop(columns="doc")), expected, atol=1e-4
    )
    with pytest.raises(ValueError, match=r"3 of 3 rows hold a document.*DistilledRanker"):
        by_array.predict(array[:3] + 1)


@embeddings
def test_documents_of_arrays_by_keyword(ranker):
    log, rate, _ = _world_of(ranker)
    array = log[FEATURES].to_numpy()
    ranker = clone(ranker).fit(array, rate, **{name: log[name] for name in ROLES})
    clicks = ranker.predict_click(array, doc=log["doc"], position=log["position"])
    np.testing.assert_allclose(clicks, rate, atol=1e-4)
    with pytest.raises(
        ValueError, match=r"no column 'doc' and no doc was passed.*DistilledRanker"
    ):
        ranker.predict(array)


def test_documents_of_a_frame_without_features_by_keyword():
    log, rate, _ = _exact_world()
    ranker = clone(EMBEDDINGS[0]).fit(log[["session", "qid", "position"]], rate, doc=log["doc"])
    expected = clone(EMBEDDINGS[0]).fit(log, rate).predict(log)
    np.testing.assert_allclose(ranker.predict(log[["qid"]], doc=log["doc"]), expected)


@pytest.mark.parametrize(
    "ids",
    [
        lambda doc: "doc-" + doc.astype(str),
        lambda doc: ("doc-" + doc.astype(str)).astype("category"),
        lambda doc: doc + 2**62,
        lambda doc: -doc,
        lambda doc: pd.to_datetime(doc, unit="D"),
        lambda doc: pd.Series([("a", i) for i in doc], dtype=object),
        lambda doc: pd.Series([str(i) if i % 2 else i for i in doc], dtype=object),
    ],
    ids=["text", "category", "huge", "negative", "date", "tuple", "mixed"],
)
def test_ids_may_be_anything_hashable(ids):
    log, rate, _ = _exact_world()
    named = log.assign(doc=ids(log["doc"]).to_numpy())
    found = clone(EMBEDDINGS[1]).fit(named, rate).predict_click(named)
    np.testing.assert_allclose(found, rate, atol=1e-4)


@embeddings
def test_polars_and_pandas_agree(ranker):
    log, rate, _ = _world_of(ranker)
    expected = clone(ranker).fit(log, rate).predict_click(log)
    frame = pl.from_pandas(log)
    np.testing.assert_array_equal(clone(ranker).fit(frame, rate).predict_click(frame), expected)


@embeddings
def test_order_of_rows_does_not_matter(ranker):
    log, clicks = random_lists()
    order = np.random.default_rng(1).permutation(len(log))
    expected = clone(ranker).fit(log, clicks).relevance_
    found = clone(ranker).fit(log.iloc[order], clicks[order]).relevance_
    pd.testing.assert_series_equal(found, expected)


@embeddings
def test_unseen_document_names_itself_and_the_way_out(ranker):
    log, rate, _ = _world_of(ranker)
    ranker = clone(ranker).fit(log, rate)
    message = r"1 of 2 rows holds a .*first: doc 99\).*only knows the 12 documents.*Distilled"
    with pytest.raises(ValueError, match=message):
        ranker.predict(pd.DataFrame({"doc": [3, 99]}))


# Clicks ---------------------------------------------------------------------------------
@embeddings
def test_row_that_was_not_shown_is_not_clicked(ranker):
    log, rate, _ = _world_of(ranker)
    log = log.assign(position=log["position"].astype(float))
    ranker = clone(ranker).fit(log, rate)
    log.loc[3, "position"] = np.nan
    assert ranker.predict_click(log)[3] == 0
    assert (ranker.predict_click(log)[:3] > 0).all()


def test_candidate_that_was_never_shown_is_not_clicked():
    """A training log with such rows can be given back as it is."""
    log, rate, _ = _exact_world()
    never = log.iloc[:2].assign(doc=[100, 101], position=np.nan, f0=9.0)
    log, rate = pd.concat([log, never], ignore_index=True), np.append(rate, [0, 0])
    ranker = clone(EMBEDDINGS[0]).fit(log, rate)
    np.testing.assert_allclose(ranker.predict_click(log), rate, atol=1e-4)


def test_bias_factor_that_is_not_in_the_log():
    log, rate, _ = _exact_world()
    ranker = clone(EMBEDDINGS[0]).fit(log, rate)
    with pytest.raises(ValueError, match=r"2 rows have a bias factor .* such as 7.*Repair"):
        ranker.predict_click(log.iloc[:3].assign(position=[1, 7, 7]))
    with pytest.raises(ValueError, match="neither a column 'bias' nor 'position'"):
        ranker.predict_click(log.drop(columns="position"))


def test_bias_column_wins_over_the_position():
    log, rate, _ = _exact_world()
    log = log.assign(bias=log["position"] + 2**40)
    ranker = clone(EMBEDDINGS[0]).fit(log, rate)
    np.testing.assert_allclose(ranker.predict_click(log), rate, atol=1e-4)
    np.testing.assert_allclose(
        ranker.predict_click(log.drop(columns="bias"), bias=log["bias"]), rate, atol=1e-4
    )


def test_dual_learning_with_a_network_predicts_the_click_rate_of_each_factor():
    """Its scores are relative: a constant a factor brings them to the level of the clicks."""
    log, clicks = random_lists(n_sessions=200)
    ranker = DLARanker(max_epochs=3, random_state=0).fit(log, clicks)
    probability = ranker.predict_click(log)
    for position, rows in log.groupby("position").indices.items():
        rate = np.mean(np.asarray(clicks)[rows])
        np.testing.assert_allclose(probability[rows].mean(), rate, rtol=1e-4, err_msg=position)
    alike = np.argsort(ranker.predict(log)[log["position"] == 1])
    assert (np.diff(probability[log["position"] == 1][alike]) >= 0).all()


def _linear_world(seed=0):
    """Aggregated random lists whose relevance is logistic in the features, without noise."""
    log, _ = random_lists(n_sessions=400, n_queries=40, n_documents=5, n_shown=3, seed=seed)
    score = log[FEATURES].to_numpy() @ [1.5, -1.0, 0.5] - 0.5
    return log.assign(impressions=100), score


@pytest.mark.parametrize("examination", ["network", "auto"])
@networks
def test_network_learns_the_probabilities_of_clicks(ranker, examination):
    log, score = _linear_world()
    bias = -1.2 * (log["position"].to_numpy() - 1)
    if getattr(ranker, "link", "") == "additive":
        rate, curve = expit(score + bias), np.exp([0, -1.2, -2.4])
    else:
        rate, curve = expit(score) * np.exp(bias), np.exp([0, -1.2, -2.4])
    ranker = clone(ranker).set_params(
        hidden_layer_sizes=(),
        learning_rate=0.05,
        weight_decay=0.0,
        scale_features=False,
        examination=examination,
    )
    ranker.fit(log, rate)
    error = np.abs(ranker.predict_click(log) - rate)
    # Scores that were trained to rank are calibrated by two numbers, which do not fit them all.
    assert error.mean() < 0.02
    # In ten draws the largest error was .04 to .085 for a network, a standard deviation of .016.
    assert error.max() < (0.12 if examination == "network" else 0.15)
    np.testing.assert_allclose(ranker.examination_["examination"], curve, atol=0.05)
    assert ((ranker.predict(log) > 0) & (ranker.predict(log) < 1)).all()


# Identifiability ------------------------------------------------------------------------
@pytest.mark.parametrize("relevance", ["network", "embedding"])
@pytest.mark.parametrize("cls", [DLARanker, RegressionEMRanker, TwoTowerRanker])
def test_log_that_does_not_determine_relevance_warns(cls, relevance):
    log, clicks = small_log()
    ranker = cls(relevance=relevance, max_epochs=1, random_state=0)
    with pytest.warns(NotIdentifiableWarning, match="4 bias factors fall into 4 comp") as caught:
        ranker.fit(log, clicks)
    assert caught[0].filename == __file__
    text = str(caught[0].message)
    assert ("only the network" in text) == (relevance == "network")
    assert "IdentifiabilityRepair" in text


def test_never_shown_candidates_connect_nothing():
    log, clicks = small_log()
    log = log.assign(
        doc=log["doc"] % 4, qid=log["qid"] * 0, position=log["position"].astype(float)
    )
    log = log.drop(columns=[*FEATURES, "relevance"])
    log.loc[log["position"] > 2, "position"] = np.nan
    with pytest.warns(NotIdentifiableWarning, match="2 bias factors fall into 2 components"):
        clone(EMBEDDINGS[0]).fit(log, np.where(log["position"].isna(), 0, clicks))


@embeddings
def test_components_agree_within_and_not_between(ranker):
    log, rate, truth = make_disconnected_log(
        2, n_documents=400, n_queries=60, n_impressions=None, random_state=0
    )
    with pytest.warns(NotIdentifiableWarning, match="10 bias factors fall into 2 components"):
        table = clone(ranker).fit(log, rate).examination_
    if getattr(ranker, "link", "product") == "product":
        assert np.isinf(table["standard_error"]).tolist() == [False] * 4 + [True] * 6
        for part in (slice(0, 4), slice(4, 10)):
            ratio = table["examination"].to_numpy()[part] / truth.examination[part]
            np.testing.assert_allclose(ratio, ratio[0], rtol=1e-3)


@embeddings
def test_start_decides_the_scale_of_a_component(ranker):
    """From 1 the highest examination of each component ends at 1, from the truth at the truth."""
    log, rate, truth = make_disconnected_log(
        2, n_documents=400, n_queries=60, n_impressions=None, random_state=0
    )
    if getattr(ranker, "link", "product") == "additive":
        pytest.skip("the truth of this log is a product")

    def examination(**parameters):
        with pytest.warns(NotIdentifiableWarning):
            return clone(ranker).set_params(**parameters).fit(log, rate).examination_

    ones = examination(examination_start="ones")
    again = examination(examination_start=[1] * 10, random_state=1)
    pd.testing.assert_frame_equal(ones, again)
    own = truth.examination[4:]
    np.testing.assert_allclose(ones["examination"][4:], own / own[0], rtol=0.05)
    from_truth = examination(examination_start=truth.examination)["examination"]
    np.testing.assert_allclose(from_truth[4:], own / truth.examination[0], rtol=0.3)


@pytest.mark.filterwarnings("ignore:The log does not determine")
@pytest.mark.parametrize(
    ("start", "message"),
    [
        ([1, 1, 1], "has 3 values, but the log has 4 bias factors"),
        ([1, 1, 1, 0], "above 0 and at most 1"),
        ([1, 1, 1, np.nan], "above 0 and at most 1"),
        ("zeros", "examination_start"),
        (["a"] * 4, "one number for each bias factor, got"),
        (np.ones((2, 2)), "one number for each bias factor, got"),
        ({1: 0.5}, "one number for each bias factor, got"),
    ],
)
def test_bad_start(start, message):
    log = pd.DataFrame({"qid": 0, "doc": [0, 1, 2, 3], "position": [1, 2, 3, 4]})
    ranker = DLARanker(relevance="embedding", examination_start=start)
    with pytest.raises(ValueError, match=message):
        ranker.fit(log, [1, 0, 1, 0])


def test_repair_in_front_is_searched_like_any_parameter():
    documents = _documents()
    log, clicks, _ = simulate_clicks(
        documents, n_sessions=300, policy=PlackettLucePolicy(), random_state=0
    )
    log["device"] = log["session"] % 2
    pipeline = make_pipeline(
        IdentifiabilityRepair(bias=["position", "device"]),
        RegressionEMRanker(max_epochs=2, random_state=0),
    )
    search = GridSearchCV(
        pipeline,
        {"identifiabilityrepair__position_weight": [1.0, 10.0]},
        scoring=RankingScorer(),
        cv=GroupKFold(2),
        error_score="raise",
    ).fit(log, clicks, groups=log["qid"])
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def _documents():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(160, 3)), columns=FEATURES)
    frame["qid"], frame["doc"] = np.repeat(np.arange(20), 8), np.arange(160)
    grade = (frame[FEATURES].to_numpy() @ [1.5, -1.0, 0.5]).round().clip(-2, 2) + 2
    return frame.assign(relevance=grade.astype(int))


# As an estimator ------------------------------------------------------------------------
@embeddings
def test_weights_that_are_zero_leave_rows_out(ranker):
    log, rate, _ = _world_of(ranker)
    kept = (log["doc"] > 2).to_numpy()
    weighted = clone(ranker).fit(log, rate * kept, sample_weight=kept.astype(float))
    expected = clone(ranker).fit(log[kept], rate[kept])
    assert weighted.relevance_.index.get_level_values("doc").tolist() == list(range(3, 12))
    np.testing.assert_allclose(
        weighted.predict_click(log[kept]), expected.predict_click(log[kept]), atol=1e-5
    )


@embeddings
def test_scale_of_impressions_does_not_matter(ranker):
    # By the number of clicks, the default would choose.
    ranker = clone(ranker).set_params(variant="published")
    log, clicks = random_lists()
    expected = clone(ranker).fit(log, clicks).predict_click(log)
    for scale in (1e-6, 2.0**40):
        # Of fractions of an impression, clicks are rates.
        y = clicks * max(scale, 1.0)
        found = clone(ranker).fit(log.assign(impressions=scale), y).predict_click(log)
        np.testing.assert_allclose(found, expected, atol=1e-4)


def _log_of_impressions(n_impressions):
    """8,000 clicks or none, ``n_impressions`` of each document; examination is 1 / k."""
    rng = np.random.default_rng(0)
    n_docs = 8_000 // n_impressions
    log = pd.DataFrame({"doc": np.repeat(np.arange(n_docs), n_impressions)})
    log = log.assign(qid=0, session=np.arange(len(log)), position=rng.integers(1, 5, len(log)))
    chance = rng.beta(2, 4, n_docs)[log["doc"]] / log["position"]
    return log, (rng.random(len(log)) < chance).astype(float)


def _curve(estimator, log, clicks):
    return estimator.fit(log, clicks).examination_["examination"].to_numpy()


@pytest.mark.parametrize("n_impressions", [5, 400])
def test_likelihood_is_chosen_by_clicks_per_document(n_impressions):
    """Below 30 clicks per document the published objective would be biased."""
    log, clicks = _log_of_impressions(n_impressions)
    default = _curve(RegressionEMRanker(relevance="embedding", random_state=0), log, clicks)
    binomial = RegressionEMRanker(relevance="embedding", variant="published", random_state=0)
    binomial = _curve(binomial, log, clicks)
    if n_impressions == 400:
        np.testing.assert_array_equal(default, binomial)
    else:
        np.testing.assert_allclose(default, 1 / np.arange(1, 5), atol=0.12)
        assert np.abs(default - binomial).max() > 1e-3


@pytest.mark.parametrize("n_impressions", [5, 400])
def test_tables_of_all_estimators_are_one(n_impressions):
    log, clicks = _log_of_impressions(n_impressions)
    expected = _curve(RegressionEMRanker(relevance="embedding", random_state=0), log, clicks)
    for cls in (DLARanker, TwoTowerRanker, DualLearningPropensity, RegressionEMPropensity):
        found = _curve(cls(relevance="embedding", random_state=1), log, clicks)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@embeddings
@pytest.mark.parametrize("click", [0.0, 1.0])
def test_single_row(ranker, click):
    log, _ = random_lists()
    row = log.iloc[:1]
    fit = clone(ranker)
    if click:
        fit.fit(row, [click])
    else:
        with pytest.warns(UserWarning, match="The log has no click"):
            fit.fit(row, [click])
    assert fit.predict_click(row) == pytest.approx(click, abs=1e-5)


def test_refit_without_features_forgets_their_names():
    log, rate, _ = _exact_world()
    ranker = clone(EMBEDDINGS[0]).fit(log, rate).fit(log[ROLES], rate)
    assert not hasattr(ranker, "feature_names_in_")


def test_networks_beat_the_naive_ranker_on_served_randomness():
    # Production ranks by what relevance falls with: the naive ranker has learned some of it.
    documents = _documents()
    log, clicks, _ = simulate_clicks(
        documents,
        scores=documents["f1"].to_numpy(),
        n_sessions=4_000,
        policy=PlackettLucePolicy(),
        random_state=0,
    )
    settings = {"hidden_layer_sizes": (), "learning_rate": 0.02, "max_epochs": 25}
    settings["random_state"] = 0
    ndcg = {
        type(ranker).__name__: ranker.fit(log, clicks).score(documents, documents["relevance"])
        for ranker in (
            NaiveRanker(**settings),
            RegressionEMRanker(examination="network", **settings),
            TwoTowerRanker(examination="network", **settings),
        )
    }
    # In six draws .86 to .90, against .97 and more.
    assert ndcg["RegressionEMRanker"] > ndcg["NaiveRanker"] + 0.03
    assert ndcg["TwoTowerRanker"] > ndcg["NaiveRanker"] + 0.03
