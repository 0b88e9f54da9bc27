"""Trees on debiased clicks: what they learn, from which labels and weights, and when they stop."""

import pickle

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRanker
from scipy.special import expit
from scipy.stats import spearmanr
from sklearn.base import clone
from sklearn.linear_model import Ridge

from skultr.exceptions import ClickDataWarning, NotIdentifiableWarning, UnstableWeightsWarning
from skultr.propensity import PowerLawPropensity
from skultr.rankers import IPSRanker, LambdaMARTRanker, NaiveRanker
from skultr.rankers._thresholds import DOCUMENTS_PER_LEAF

from .._worlds import small_log

CURVE = np.array([1.0, 0.5, 0.25, 0.1])
FEATURES = ["f0", "f1", "f2"]


def _quick(**settings):
    quick = {"n_estimators": 40, "learning_rate": 0.2, "early_stopping": False, "random_state": 0}
    settings["lgbm_params"] = {"lambda_l2": 1.0, **settings.get("lgbm_params", {})}
    return LambdaMARTRanker(**{"propensity": CURVE, **quick, **settings})


def _world(n_queries=80, n_documents=8, n_lists=4, seed=0):
    """Click rates without noise. The logging ranker follows ``f1``, relevance follows ``f0``."""
    rng = np.random.default_rng(seed)
    documents = pd.DataFrame(rng.normal(size=(n_queries * n_documents, 3)), columns=FEATURES)
    documents = documents.assign(
        qid=np.repeat(np.arange(n_queries), n_documents), doc=np.arange(len(documents))
    )
    documents["relevance"] = expit(documents["f0"] - 0.5)
    lists = []
    for list_ in range(n_lists):
        noise = rng.normal(scale=0.7, size=len(documents))
        place = (-documents["f1"] + noise).groupby(documents["qid"]).rank(method="first")
        shown = documents.assign(position=place.astype(int), session=list_, impressions=20.0)
        lists.append(shown[place <= len(CURVE)])
    log = pd.concat(lists, ignore_index=True)
    return documents, log, (log["relevance"] * CURVE[log["position"] - 1]).to_numpy()


def _concordance(ranker, documents):
    """Share of the pairs of a query that stand in the order of their relevance."""
    score = ranker.predict(documents)
    relevance, query = documents["relevance"].to_numpy(), documents["qid"].to_numpy()
    better = (query[:, None] == query) & (relevance[:, None] > relevance)
    return (score[:, None] > score)[better].mean()


@pytest.mark.parametrize("loss", ["softmax", "lambda"])
@pytest.mark.parametrize("debiasing", ["user-aware", "ips"])
def test_debiased_labels_order_documents_by_relevance(debiasing, loss):
    documents, log, rate = _world()
    ranker = _quick(debiasing=debiasing, loss=loss).fit(log, rate)
    naive = _quick(debiasing="none", loss=loss).fit(log, rate)
    assert _concordance(ranker, documents) > 0.9
    assert _concordance(naive, documents) < _concordance(ranker, documents) - 0.1
    assert ranker.feature_importances_.argmax() == 0
    assert ranker.feature_importances_.sum() == pytest.approx(1)
    assert naive.feature_importances_[1] > 3 * ranker.feature_importances_[1]


def test_examination_of_one_is_no_debiasing():
    _, log, rate = _world()
    for debiasing in ("user-aware", "ips"):
        ones = _quick(debiasing=debiasing, propensity=np.ones(4)).fit(log, rate)
        none = _quick(debiasing="none").fit(log, rate)
        np.testing.assert_array_equal(ones.predict(log), none.predict(log))


def test_where_documents_stand_in_one_place_both_debiasings_are_one():
    log, clicks = small_log(n_queries=30, n_sessions=8)
    ips, aware = (_quick(debiasing=name).fit(log, clicks) for name in ("ips", "user-aware"))
    assert np.ptp(ips.predict(log)) > 0
    np.testing.assert_allclose(ips.predict(log), aware.predict(log), rtol=1e-6)


def test_labels_and_weights_by_hand():
    # One document at positions 1 and 2 (propensities 1 and 0.5), 3 and 1 impressions.
    log = pd.DataFrame(
        {
            "qid": 0,
            "session": [0, 0, 1, 1],
            "doc": [0, 1, 1, 0],
            "position": [1, 2, 1, 2],
            "impressions": [3.0, 3, 1, 1],
            "f0": [0.0, 1, 1, 0],
        }
    )
    rate = np.array([1 / 3, 1 / 3, 0, 1])
    expected = {
        # Clicks over 3.5 expected examinations; clicks 1 + 1 / 0.5, each impression 1 / p.
        "user-aware": ([2 / 3.5, 1 / 2.5], [3.5, 2.5]),
        "ips": ([3 / 4, 2 / 4], [16 / 5, 16 / 7]),
        "none": ([2 / 4, 1 / 4], [4, 4]),
    }
    for debiasing, (label, weight) in expected.items():
        ranker = _quick(debiasing=debiasing, traffic_exponent=1.0)
        taught = _taught(ranker, log, rate)
        np.testing.assert_allclose(taught.label[np.argsort(taught.version)], label)
        np.testing.assert_allclose(taught.weight[np.argsort(taught.version)], weight)


def _taught(ranker, log, rate):
    """What the trees would see of a log."""
    seen = []

    class Spy(LambdaMARTRanker):
        def _fit(self, log, task):
            seen.append(self._documents(log))

        def _check_against(self, log):
            """Without trees there are no scores that could contradict a curve."""

        def _check_order(self, log, X):
            """And none that could order documents."""

        def _tell_limits(self, log, X):
            """A log by hand has few clicks."""

    Spy(**ranker.get_params()).fit(log, rate)
    return seen[0]


def test_clipped_propensities_count_as_examinations():
    _, log, rate = _world(n_queries=5)
    clipped = _taught(_quick(debiasing="ips", clip=0.5), log, rate)
    raised = _taught(_quick(debiasing="ips", propensity=np.maximum(CURVE, 0.5)), log, rate)
    np.testing.assert_allclose(clipped.label, raised.label)
    np.testing.assert_allclose(clipped.weight, raised.weight)


def test_busy_queries_weigh_by_the_root_of_their_traffic():
    _, log, rate = _world(n_queries=20)
    busy = log.assign(impressions=np.where(log["qid"] < 10, 400.0, 4.0))
    for exponent in (1.0, 0.5, 0.0):
        taught = _taught(_quick(traffic_exponent=exponent), busy, rate)
        first = taught.query < 10
        ratio = taught.weight[first].mean() / taught.weight[~first].mean()
        assert ratio == pytest.approx(100**exponent, rel=0.2)


def test_leaves_follow_the_documents_with_clicks(monkeypatch):
    _, log, rate = _world()
    n_clicked = log["doc"][rate > 0].nunique()
    assert _quick().fit(log, rate).num_leaves_ == 4
    several = DOCUMENTS_PER_LEAF._replace(value=40)
    monkeypatch.setattr("skultr.rankers._lambdamart.DOCUMENTS_PER_LEAF", several)
    for debiasing in ("user-aware", "none"):
        ranker = _quick(debiasing=debiasing).fit(log, rate)
        assert ranker.num_leaves_ == n_clicked // 40 > 4
        sizes = [tree["num_leaves"] for tree in ranker.booster_.dump_model()["tree_info"]]
        assert max(sizes) <= ranker.num_leaves_
    one = DOCUMENTS_PER_LEAF._replace(value=1)
    monkeypatch.setattr("skultr.rankers._lambdamart.DOCUMENTS_PER_LEAF", one)
    assert _quick().fit(log, rate).num_leaves_ == 31
    assert _quick(num_leaves=3).fit(log, rate).num_leaves_ == 3
    assert _quick(lgbm_params={"num_leaves": 5}).fit(log, rate).num_leaves_ == 5


def test_diagnostics_of_the_weights():
    _, log, rate = _world()
    ranker = _quick(debiasing="ips", clip=0.2).fit(log, rate)
    clicks = rate * log["impressions"]
    weight = 1 / np.maximum(CURVE, 0.2)[log["position"] - 1]
    mean = (clicks * weight).sum() / clicks.sum()
    effective = (clicks * weight).sum() ** 2 / (clicks * weight**2).sum()
    assert ranker.effective_sample_size_ == pytest.approx(effective)
    assert ranker.largest_weight_ == pytest.approx(5 / mean)
    assert ranker.clipped_share_ == pytest.approx(
        clicks[log["position"] == 4].sum() / clicks.sum()
    )
    np.testing.assert_allclose(ranker.examination_["examination"], CURVE)
    assert not hasattr(_quick(debiasing="none").fit(log, rate), "effective_sample_size_")


def test_warns_where_a_handful_of_clicks_decide():
    _, log, rate = _world()
    tiny = np.where(np.arange(len(log)) == np.flatnonzero(log["position"] == 4)[0], 1e-6, 1.0)
    with pytest.warns(UnstableWeightsWarning, match="carry half of the weight"):
        _quick(propensity="column", debiasing="ips", clip=None).fit(
            log.assign(propensity=tiny), rate
        )


def test_propensities_by_an_estimator_or_learned():
    _, log, rate = _world()
    learned = _quick(propensity=None).fit(log, rate)  # documents moved
    curve = learned.examination_["examination"]
    np.testing.assert_allclose(curve, CURVE / CURVE[0], atol=0.05)
    fixed = (log["session"] == 0).to_numpy()  # one order per query: no document moved
    one, known = log[fixed], PowerLawPropensity(eta=1.0)
    with pytest.warns(NotIdentifiableWarning, match="does not determine relevance"):
        dual = _quick(debiasing="user-aware", propensity=None).fit(one, rate[fixed])
    assert "network" in dual.examination_comparison_
    ranker = _quick(debiasing="user-aware", propensity=known).fit(one, rate[fixed])
    assert ranker.propensity_.eta == 1.0
    both = log.assign(propensity=1.0)
    with pytest.raises(ValueError, match="expected one of them"):
        _quick().fit(both, rate)
    _quick(debiasing="none").fit(both, rate)  # it uses none, and so cannot contradict it


def test_examination_is_the_curve_and_no_mean_of_documents():
    """Averaged propensities of documents that moved are flatter than the curve."""
    _, log, rate = _world()
    given = _quick(debiasing="user-aware", propensity=CURVE).fit(log, rate)
    np.testing.assert_allclose(given.examination_["examination"], CURVE / CURVE[0])


def test_a_learned_curve_takes_categories_and_missing_values():
    _, log, rate = _world()
    log["f1"] = pd.Series(np.where(log["doc"] % 2, "a", "b"), log.index, dtype="category")
    log.loc[log["doc"] % 3 == 0, "f2"] = np.nan
    fixed = (log["session"] == 0).to_numpy()
    with pytest.warns(NotIdentifiableWarning):
        ranker = _quick(propensity=None).fit(log[fixed], rate[fixed])
    assert np.isfinite(ranker.predict(log)).all()


def test_stops_when_held_out_queries_no_longer_gain():
    _, log, rate = _world()
    clicks = np.random.default_rng(0).binomial(5, rate) / 5
    log = log.assign(impressions=5.0)
    settings = {"early_stopping": True, "n_iter_no_change": 5, "n_estimators": 500}
    ranker = _quick(**settings, validation_fraction=0.3).fit(log, clicks)
    losses = ranker.history_["valid_loss"]
    assert losses.index.name == "round"
    assert ranker.n_iter_ == len(losses) < 500
    assert ranker.best_iteration_ == losses.idxmin() == ranker.n_iter_ - 5
    assert ranker.booster_.num_trees() == ranker.best_iteration_
    # The loss is that of the queries held out: the others cannot tell where to stop.
    other = clone(ranker).set_params(random_state=1).fit(log, clicks)
    assert not np.allclose(other.history_["valid_loss"].iloc[0], losses.iloc[0])
    ranker.set_params(early_stopping=False, n_estimators=3).fit(log, clicks)
    assert ranker.n_iter_ == ranker.best_iteration_ == 3
    assert not hasattr(ranker, "history_")


def test_one_query_cannot_be_held_out():
    _, log, rate = _world(n_queries=1)
    with pytest.warns(ClickDataWarning, match="early_stopping needs validation queries"):
        ranker = _quick(early_stopping=True).fit(log, rate)
    assert not hasattr(ranker, "history_")


@pytest.mark.parametrize("early_stopping", [True, False])
@pytest.mark.parametrize("debiasing", ["user-aware", "none"])
def test_no_clicks_teach_nothing(debiasing, early_stopping):
    log = _world(n_queries=20)[1]
    ranker = _quick(debiasing=debiasing, early_stopping=early_stopping)
    with pytest.warns(ClickDataWarning, match="no click"):
        ranker.fit(log, np.zeros(len(log)))
    assert np.ptp(ranker.predict(log)) == 0
    assert (ranker.feature_importances_ == 0).all()


@pytest.mark.parametrize("loss", ["softmax", "lambda"])
def test_a_query_longer_than_lightgbm_allows(loss):
    n_rows = 12_000
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n_rows, 2)), columns=["f0", "f1"])
    X = X.assign(qid=0, session=np.arange(n_rows), position=1 + np.arange(n_rows) % 4)
    relevance = expit(X["f0"].to_numpy())
    ranker = _quick(loss=loss, n_estimators=20).fit(X, relevance * CURVE[X["position"] - 1])
    assert np.corrcoef(ranker.predict(X), X["f0"])[0, 1] > 0.8


def test_further_parameters_of_lightgbm():
    _, log, rate = _world()
    shallow = _quick(lgbm_params={"max_depth": 1}).fit(log, rate)
    assert shallow.booster_.trees_to_dataframe()["node_depth"].max() == 2
    for name in ("objective", "metric", "num_iterations"):
        with pytest.raises(ValueError, match=f"lgbm_params holds \\['{name}'\\]"):
            _quick(lgbm_params={name: 1}).fit(log, rate)


@pytest.mark.parametrize("name", ["lambda_l2", "reg_lambda", "lambda"])
def test_leaves_have_the_penalty_that_lightgbm_is_given_under_any_name(name):
    _, log, rate = _world()
    # One feature of two values: whatever the penalty, there is one split.
    log = log[[*log.columns.drop(FEATURES)]].assign(f0=np.sign(log["f0"]))
    quick = {"propensity": CURVE, "n_estimators": 1, "early_stopping": False, "random_state": 0}
    default, same, none = (
        LambdaMARTRanker(lgbm_params=params, **quick).fit(log, rate)
        for params in ({}, {name: 50.0}, {name: 0.0})
    )
    np.testing.assert_array_equal(same.predict(log), default.predict(log))
    # The value of a leaf is its gradient over its curvature and the penalty.
    penalised, free = (
        ranker.booster_.trees_to_dataframe().query("node_depth == 2") for ranker in (default, none)
    )
    expected = free["value"] * free["weight"] / (free["weight"] + 50.0)
    np.testing.assert_allclose(penalised["value"], expected, rtol=1e-5)


def test_pairs_are_compared_up_to_the_truncation_level_of_lightgbm():
    _, log, rate = _world()
    default, thirty, first = (
        _quick(loss="lambda", n_estimators=3, lgbm_params=params).fit(log, rate).predict(log)
        for params in (
            {},
            {"lambdarank_truncation_level": 30},
            {"lambdarank_truncation_level": 1},
        )
    )
    np.testing.assert_array_equal(thirty, default)
    assert not np.allclose(first, default)


@pytest.mark.parametrize("debiasing", ["user-aware", "none"])
def test_same_seed_same_model(debiasing):
    _, log, rate = _world()
    sampled = _quick(
        debiasing=debiasing,
        early_stopping=True,
        lgbm_params={"bagging_fraction": 0.5, "bagging_freq": 1},
    )
    first, same = (clone(sampled).fit(log, rate).predict(log) for _ in range(2))
    np.testing.assert_array_equal(first, same)
    other = clone(sampled).set_params(random_state=1).fit(log, rate).predict(log)
    assert not np.allclose(other, first)


def test_same_model_on_any_number_of_threads():
    _, log, rate = _world()
    one, two = (_quick(n_estimators=3, n_jobs=n).fit(log, rate) for n in (1, 2))
    np.testing.assert_allclose(two.predict(log), one.predict(log), rtol=1e-6)


def test_pickle_holds_trees_and_no_log():
    _, log, rate = _world()
    ranker = _quick(early_stopping=True, n_estimators=5).fit(log, rate)
    text = pickle.dumps(ranker)
    np.testing.assert_array_equal(pickle.loads(text).predict(log), ranker.predict(log))
    assert b"Objective" not in text
    assert len(text) < 100_000


def test_callbacks_see_the_rounds(callbacks, capsys):
    _, log, rate = _world()
    _quick(n_estimators=5).set_callbacks(callbacks.ProgressBar()).fit(log, rate)
    assert "LambdaMARTRanker - fit" in capsys.readouterr().out


@pytest.mark.usefixtures("callbacks")
def test_a_callback_may_stop_the_training():
    class StopAtThree:
        def __init__(self):
            self.rounds = 0

        def setup(self, estimator, context):
            pass

        def on_fit_task_begin(self, estimator, context, **kwargs):
            pass

        def on_fit_task_end(self, estimator, context, **kwargs):
            self.rounds += context.task_name == "round"
            return self.rounds == 3

        def teardown(self, estimator, context):
            pass

    _, log, rate = _world()
    ranker = _quick().set_callbacks(StopAtThree()).fit(log, rate)
    assert ranker.n_iter_ == 3


# ------------------------------------------------------------------- features of the row
_CHANGES = {
    # Effect on the logit of relevance of a value that is drawn anew for each page.
    "price per page": (lambda rng, n: rng.normal(size=n), -2.0),
    "stock per page": (lambda rng, n: (rng.random(n) < 0.5).astype(float), 3.0),
    "affinity per page": (lambda rng, n: rng.gamma(2.0, size=n), 1.5),
}


@pytest.mark.parametrize("kind", sorted(_CHANGES))
@pytest.mark.parametrize(
    "ranker",
    [
        LambdaMARTRanker(random_state=0),
        LambdaMARTRanker(debiasing="none", loss="lambda", random_state=0),
        IPSRanker(estimator=Ridge(), random_state=0),
    ],
    ids=["trees", "naive trees", "estimator"],
)
def test_what_changes_from_page_to_page_is_learned(kind, ranker):
    draw, effect = _CHANGES[kind]
    rng = np.random.default_rng(0)
    n_pages, n_docs = 1_500, 5
    query = rng.integers(30, size=n_pages)
    doc = np.argsort(rng.random((n_pages, 8)), axis=1)[:, :n_docs]
    position = np.tile(np.arange(1, n_docs + 1), n_pages)
    own = rng.normal(size=(30, 8))
    changes = draw(rng, n_pages * n_docs)
    relevance = expit(effect * (changes - changes.mean()))
    log = pd.DataFrame(
        {
            "qid": np.repeat(query, n_docs),
            "session": np.repeat(np.arange(n_pages), n_docs),
            "doc": doc.ravel(),
            "position": position,
            "own": own[np.repeat(query, n_docs), doc.ravel()],
            "changes": changes,
            "click": (rng.random(len(changes)) < relevance / position).astype(int),
        }
    )
    test = pd.DataFrame({"own": own.ravel(), "changes": draw(rng, own.size)})
    fitted = clone(ranker).fit(log, "click")
    found = spearmanr(fitted.predict(test), np.sign(effect) * test["changes"]).statistic
    assert found > 0.75


@pytest.mark.parametrize(
    "ranker",
    [
        LambdaMARTRanker(debiasing="none", random_state=0),
        NaiveRanker(estimator=LGBMRanker(num_leaves=4, n_jobs=1, verbosity=-1), random_state=0),
    ],
    ids=["trees", "estimator"],
)
def test_what_all_documents_of_a_page_share_is_not_learned(ranker):
    # Regular customers click more, on whatever they see.
    rng = np.random.default_rng(0)
    n_pages, n_docs = 1_000, 5
    regular = np.repeat(rng.normal(size=n_pages), n_docs)
    suits = rng.normal(size=n_pages * n_docs)
    log = pd.DataFrame(
        {
            "qid": np.repeat(rng.integers(10, size=n_pages), n_docs),
            "session": np.repeat(np.arange(n_pages), n_docs),
            "doc": np.tile(np.arange(n_docs), n_pages),
            "position": np.tile(np.arange(1, n_docs + 1), n_pages),
            "regular": regular,
            "suits": suits,
            "click": (rng.random(len(suits)) < expit(suits + 3 * regular - 1)).astype(int),
        }
    )
    test = pd.DataFrame({"regular": rng.normal(size=500), "suits": rng.normal(size=500)})
    score = clone(ranker).fit(log, "click").predict(test)
    found = {name: abs(spearmanr(score, test[name]).statistic) for name in test}
    assert found["suits"] > 0.8
    assert found["regular"] < 0.3
