import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError, UndefinedMetricWarning
from sklearn.linear_model import Ridge

from skultr.exceptions import ClickDataWarning, MissingRoleWarning, NotIdentifiableWarning
from skultr.propensity import RegressionEMPropensity
from skultr.rankers import DLARanker, IPSRanker, NaiveRanker

from .._worlds import FEATURES, random_lists, small_log

FAST = {"max_epochs": 3, "random_state": 0, "early_stopping": False}


class KnownCurve(BaseEstimator):
    """A propensity estimator that has nothing to learn."""

    def fit(self, X, y, sample_weight=None, **roles):
        self.n_rows_ = len(X)
        return self

    def predict(self, X):
        return 1 / np.asarray(X["position"], dtype=float)


def assert_same_order_of_scores(a, b):
    """Equal but for a constant, which a listwise loss does not determine."""
    np.testing.assert_allclose(a - a.mean(), b - b.mean(), atol=1e-4)


# ------------------------------------------------------------------------------ laws
@pytest.mark.parametrize("loss", ["softmax", "bce", "mse", "pairwise", "lambda"])
def test_ips_at_propensity_one_is_naive(loss):
    log, clicks = random_lists()
    naive = NaiveRanker(loss=loss, **FAST).fit(log, clicks)
    ips = IPSRanker(loss=loss, propensity=np.ones(3), **FAST).fit(log, clicks)
    # Rounding of the weights may move the scores of softmax by one constant.
    same = assert_same_order_of_scores if loss == "softmax" else np.testing.assert_array_equal
    same(naive.predict(log), ips.predict(log))


def test_bias_factors_alone_tell_what_was_shown():
    # Without positions, rows stand in their order; those without a bias factor were not shown.
    log, clicks = random_lists()
    hidden = log["position"] == 3
    bias = log["position"].astype(float).mask(hidden)
    clicks = np.where(hidden, 0, clicks)
    expected = IPSRanker(**FAST).fit(log.assign(position=bias), clicks)
    found = IPSRanker(**FAST).fit(log.drop(columns="position").assign(bias=bias), clicks)
    np.testing.assert_array_equal(found.predict(log), expected.predict(log))


def test_three_ways_to_give_one_curve():
    log, clicks = random_lists()
    array = IPSRanker(propensity=[1, 1 / 2, 1 / 3], **FAST).fit(log, clicks)
    column = IPSRanker(**FAST).fit(log.assign(propensity=1 / log["position"]), clicks)
    estimator = IPSRanker(propensity=KnownCurve(), **FAST).fit(log, clicks)
    keyword = IPSRanker(**FAST).fit(log, clicks, propensity=1 / log["position"])
    assert estimator.propensity_.n_rows_ == len(log)
    for other in (column, estimator, keyword):
        assert_same_order_of_scores(other.predict(log), array.predict(log))
    np.testing.assert_allclose(array.examination_["examination"], [1, 1 / 2, 1 / 3])
    assert array.examination_["clicks"].sum() == clicks.sum()


def test_curve_comes_from_the_log_where_documents_moved():
    log, clicks = random_lists()
    ranker = IPSRanker(**FAST).fit(log, clicks)
    assert not hasattr(ranker, "propensity_")
    assert not hasattr(ranker, "examination_comparison_")  # no network was needed
    expected = RegressionEMPropensity(relevance="embedding").fit(log, clicks).examination_
    found = ranker.examination_
    np.testing.assert_allclose(found["examination"], expected["examination"], rtol=0.05)
    assert (found["standard_error"].iloc[1:] > 0).all()


def test_curve_of_a_fixed_order_is_that_of_dual_learning():
    log, clicks = small_log()
    with pytest.warns(NotIdentifiableWarning, match="does not determine relevance"):
        ranker = IPSRanker(**FAST).fit(log, clicks)
    compared = ranker.examination_comparison_
    np.testing.assert_allclose(compared["combined"], compared["network"], rtol=1e-3)


def test_clip_bounds_the_weights():
    log, clicks = random_lists()
    clipped = IPSRanker(propensity=[1, 0.5, 0.01], clip=0.5, **FAST).fit(log, clicks)
    raised = IPSRanker(propensity=[1, 0.5, 0.5], **FAST).fit(log, clicks)
    np.testing.assert_array_equal(clipped.predict(log), raised.predict(log))


def test_normalize_changes_pointwise_scale_and_not_listwise_order():
    log, clicks = random_lists()
    curve = [0.5, 0.25, 0.1]
    plain = IPSRanker(propensity=curve, **FAST).fit(log, clicks)
    normal = IPSRanker(propensity=curve, normalize=True, **FAST).fit(log, clicks)
    assert_same_order_of_scores(plain.predict(log), normal.predict(log))
    settings = {**FAST, "loss": "mse", "max_epochs": 100, "learning_rate": 0.02}
    level = {
        flag: IPSRanker(propensity=curve, normalize=flag, **settings).fit(log, clicks).predict(log)
        for flag in (True, False)
    }
    assert level[True].mean() == pytest.approx(clicks.mean(), abs=0.1)
    assert level[False].mean() > 1.5 * level[True].mean()


def test_ips_labels_are_unbiased():
    """Monte-Carlo: weighted clicks over impressions are the relevance, within four errors."""
    rng = np.random.default_rng(0)
    relevance, curve, n = np.array([0.9, 0.2, 0.5]), np.array([0.8, 0.4, 0.1]), 40_000
    chance = relevance * curve
    log = pd.DataFrame({"qid": 1, "doc": [0, 1, 2], "position": [1, 2, 3], "impressions": n})
    log["f0"] = [0.1, 0.2, 0.3]
    rate = rng.binomial(n, chance) / n
    ranker = IPSRanker(propensity=curve, estimator=Ridge()).fit(log, rate)
    estimate = ranker.labels_["label"].to_numpy()
    error = np.sqrt(chance * (1 - chance) / n) / curve
    assert (np.abs(estimate - relevance) < 4 * error).all()


def test_propensity_estimator_reads_roles_of_arrays():
    log, clicks = random_lists()
    roles = {name: log[name].to_numpy() for name in ("qid", "session", "doc", "position")}
    by_array = IPSRanker(propensity=KnownCurve(), **FAST)
    by_array.fit(log[FEATURES].to_numpy(), clicks, **roles)
    by_frame = IPSRanker(propensity=KnownCurve(), **FAST).fit(log, clicks)
    np.testing.assert_array_equal(
        by_array.predict(log[FEATURES].to_numpy()), by_frame.predict(log)
    )
    reversed_ = log.assign(position=4 - log["position"])
    by_keyword = IPSRanker(propensity=KnownCurve(), **FAST)
    by_keyword.fit(reversed_, clicks, position=log["position"])
    np.testing.assert_array_equal(by_keyword.predict(log), by_frame.predict(log))


# ------------------------------------------------------------------------------ bad input
@pytest.mark.parametrize(
    ("propensity", "message"),
    [
        ([1.0, 0.5], r"shape \(2,\).*positions up to 3"),
        ([1.0, 0.5, 0.0], r"must lie in \(0, 1\].*got 0 at position 3"),
        ([1.0, 0.5, np.nan], r"must lie in \(0, 1\].*got nan at position 3"),
        ([[1.0, 0.5, 0.1]], r"shape \(1, 3\)"),
        ("column", "no column 'propensity'"),
    ],
)
def test_bad_propensities(propensity, message):
    log, clicks = random_lists()
    with pytest.raises(ValueError, match=message):
        IPSRanker(propensity=propensity, **FAST).fit(log, clicks)


def test_two_sources_of_propensity():
    log, clicks = random_lists()
    log["propensity"] = 0.5
    with pytest.raises(ValueError, match="expected one of them"):
        IPSRanker(propensity=KnownCurve(), **FAST).fit(log, clicks)


@pytest.mark.parametrize(
    "settings",
    [
        {"loss": "hinge"},
        {"clip": 0.0},
        {"clip": 2.0},
        {"learning_rate": -1},
        {"optimizer": "sgd"},
        {"optimizer": dict},
        {"hidden_layer_sizes": (-3,)},
        {"hidden_layer_sizes": (8.0,)},
        {"traffic_exponent": 2},
    ],
)
def test_bad_parameters(settings):
    log, clicks = random_lists()
    with pytest.raises(ValueError, match=next(iter(settings))):
        IPSRanker(propensity=np.ones(3), **settings).fit(log, clicks)


def test_a_log_without_features():
    log, clicks = random_lists()
    with pytest.raises(ValueError, match="0 feature"):
        NaiveRanker(**FAST).fit(log[["qid", "session", "doc", "position"]], clicks)


@pytest.mark.parametrize("value", [np.inf, 1e300])
def test_bad_features(value):
    log, clicks = random_lists()
    log.loc[3, "f1"] = value
    with pytest.raises(ValueError, match="infinity"):
        NaiveRanker(**FAST).fit(log, clicks)


def test_wrong_lengths():
    log, clicks = random_lists()
    with pytest.raises(ValueError, match="'qid' has shape"):
        NaiveRanker(**FAST).fit(log, clicks, qid=[1, 2])


def test_columns_at_predict():
    log, clicks = random_lists()
    ranker = NaiveRanker(**FAST).fit(log, clicks)
    with pytest.raises(ValueError, match="unseen at fit time"):
        ranker.predict(log.assign(extra=1.0))
    with pytest.raises(ValueError, match="missing"):
        ranker.predict(log.drop(columns="f1"))
    with pytest.raises(NotFittedError):
        NaiveRanker().predict(log)


def test_log_without_clicks_trains_with_a_warning():
    log, clicks = random_lists()
    for ranker in (NaiveRanker(**FAST), DLARanker(**FAST), NaiveRanker(loss="bce", **FAST)):
        with pytest.warns(ClickDataWarning, match="no click"):
            ranker.fit(log, 0 * clicks)
        assert np.isfinite(ranker.predict(log)).all()


def test_longer_lists_than_in_training():
    log, clicks = random_lists()
    ranker = NaiveRanker(**FAST).fit(log, clicks)
    many = pd.concat([log[["qid", *FEATURES]]] * 200)
    assert ranker.rank(many.assign(qid=1)).max() == len(many)


# ------------------------------------------------------------------------------ face
def test_ranks_of_arrays_need_their_queries():
    log, clicks = small_log(n_sessions=1)
    ranker = NaiveRanker(**FAST).fit(log, clicks)
    ranks = ranker.rank(log)
    array = log[FEATURES].to_numpy()
    by_keyword = NaiveRanker(**FAST).fit(
        array, clicks, qid=log["qid"], position=log["position"], doc=log["doc"]
    )
    np.testing.assert_array_equal(by_keyword.rank(array, qid=log["qid"]), ranks)
    with pytest.warns(MissingRoleWarning, match="ONE query"):
        by_keyword.rank(array)


def test_score_weighs_queries_and_warns_without_them():
    log, clicks = small_log(n_sessions=1)
    log["relevance"] = log["doc"] % 3  # each query has a grade of 2, which no click has
    ranker = NaiveRanker(**FAST).fit(log, clicks)
    first = np.where(log["qid"] == 0, 1.0, 0.0)
    only = log[log["qid"] == 0]
    assert ranker.score(log, log["relevance"], first) == pytest.approx(
        ranker.score(only, only["relevance"])
    )
    with pytest.warns(MissingRoleWarning, match="ONE query"):
        ranker.score(log.drop(columns="qid"), log["relevance"])


def test_sparse_is_dense():
    log, clicks = random_lists()
    array = log[FEATURES].to_numpy()
    roles = {name: log[name] for name in ("qid", "session", "position", "doc")}
    dense = NaiveRanker(**FAST).fit(array, clicks, **roles)
    thin = NaiveRanker(**FAST).fit(sparse.csr_array(array), clicks, **roles)
    np.testing.assert_array_equal(thin.predict(sparse.csr_matrix(array)), dense.predict(array))


# ------------------------------------------------------------------------------ training
def test_learning_curves_and_early_stopping():
    log, clicks = random_lists(n_queries=20, n_sessions=400)
    stopping = {"early_stopping": True, "n_iter_no_change": 2}
    ranker = NaiveRanker(**stopping, max_epochs=200, random_state=0).fit(log, clicks)
    assert list(ranker.history_.columns) == ["train_loss", "valid_loss"]
    assert ranker.n_iter_ == len(ranker.history_) < 200
    # The best epoch is restored: the end is two epochs later.
    assert ranker.history_["valid_loss"].idxmin() == ranker.n_iter_ - 2
    free = NaiveRanker(**FAST).fit(log, clicks)
    assert list(free.history_.columns) == ["train_loss"]
    assert free.n_iter_ == 3


def test_early_stopping_without_validation_queries_says_so():
    log, clicks = random_lists(n_queries=1)
    with pytest.warns(ClickDataWarning, match="the log has 1 query"):
        NaiveRanker(early_stopping=True, max_epochs=2, random_state=0).fit(log, clicks)


@pytest.mark.parametrize(
    "settings",
    [
        {"hidden_layer_sizes": ()},
        {"normalization": "layer", "dropout": 0.2},
        {"normalization": "batch"},
        {"optimizer": "adagrad", "weight_decay": 0.01},
        {"optimizer": torch.optim.SGD, "net_params": {"callbacks__clip": None}},
        {"scale_features": False},
        {"module": torch.nn.Linear(3, 1)},
        {"module": lambda n_features: torch.nn.Linear(n_features, 1)},
        {"net_params": {"max_epochs": 1, "optimizer": torch.optim.SGD}},
    ],
    ids=lambda settings: "-".join(settings),
)
def test_settings_train(settings):
    log, clicks = random_lists()
    ranker = NaiveRanker(**{**FAST, **settings}).fit(log, clicks)
    assert np.ptp(ranker.predict(log)) > 0
    if "module" in settings and isinstance(settings["module"], torch.nn.Module):
        assert ranker.network_[1] is not settings["module"]
    assert ranker.n_iter_ == settings.get("net_params", {}).get("max_epochs", 3)


def test_user_callbacks_of_skorch_run():
    from skorch.callbacks import Callback

    class Count(Callback):
        epochs = 0

        def on_epoch_end(self, net, **kwargs):
            Count.epochs += 1

    log, clicks = random_lists()
    NaiveRanker(**FAST, net_params={"callbacks": [Count()]}).fit(log, clicks)
    assert Count.epochs == 3


def test_progress_bar_counts_epochs(callbacks, capsys):
    log, clicks = random_lists()
    NaiveRanker(**FAST).set_callbacks(callbacks.ProgressBar()).fit(log, clicks)
    assert "NaiveRanker" in capsys.readouterr().out


def test_raw_scales_do_not_wreck_training():
    """A heavy-tailed column beside the one that matters."""
    rng = np.random.default_rng(0)
    log, _ = random_lists(n_queries=40, n_sessions=2000)
    signal = log.groupby("doc")["f0"].transform("first")
    clicks = (signal > 0).astype(float)
    tail = pd.Series(rng.lognormal(sigma=5, size=160) * 1e4)
    wild = log.assign(f1=log["doc"].map(tail))
    ranker = NaiveRanker(random_state=0).fit(wild, clicks)
    assert np.corrcoef(ranker.predict(wild), signal)[0, 1] > 0.7


def test_traffic_does_not_drown_the_rare_queries():
    """One query with a million impressions among forty: the others still count."""
    log, _ = random_lists(n_queries=40, n_sessions=800)
    signal = log.groupby("doc")["f0"].transform("first")
    clicks = (signal > 0).astype(float)
    head = log["qid"] == 0
    log["impressions"] = np.where(head, 1_000_000, 1)
    clicks[head] = 1 - clicks[head]  # the busy query says the opposite
    rest = log[~head]
    score = {
        exponent: np.corrcoef(
            NaiveRanker(traffic_exponent=exponent, max_epochs=30, random_state=0)
            .fit(log, clicks * log["impressions"])
            .predict(rest),
            signal[~head],
        )[0, 1]
        for exponent in (0.0, 1.0)
    }
    assert score[0.0] > 0.5 > score[1.0]


def test_module_with_two_outputs_is_refused():
    log, clicks = random_lists()
    with pytest.raises(ValueError, match=r"expected one score per document"):
        NaiveRanker(module=torch.nn.Linear(3, 2), **FAST).fit(log, clicks)


def test_divergence_is_an_error():
    log, clicks = random_lists()
    wild = log.assign(f0=log["f0"] * 1e30)
    with pytest.raises(ValueError, match=r"Training diverged.*scale"):
        NaiveRanker(
            scale_features=False, loss="mse", net_params={"callbacks__clip": None}, **FAST
        ).fit(wild, clicks)
    huge = log.assign(f0=log["f0"] * 1e4)
    ranker = DLARanker(scale_features=False, **{**FAST, "max_epochs": 20}).fit(huge, clicks)
    assert np.isfinite(ranker.predict(huge)).all()


@pytest.mark.parametrize("seed", range(4))
def test_one_clicked_query_among_three(seed):
    log, clicks = random_lists()
    clicks = np.where(log["qid"] == 0, clicks, 0.0)
    with pytest.warns(ClickDataWarning, match="1 query to learn from"):
        NaiveRanker(early_stopping=True, max_epochs=2, random_state=seed).fit(log, clicks)


def test_interrupt_reaches_the_user():
    class Interrupted(torch.nn.Linear):
        def forward(self, x):
            raise KeyboardInterrupt

    log, clicks = random_lists()
    with pytest.raises(KeyboardInterrupt):
        NaiveRanker(module=Interrupted(3, 1), **FAST).fit(log, clicks)


def test_score_with_weights_on_queries_without_relevance():
    log, clicks = small_log(n_sessions=1)
    ranker = NaiveRanker(**FAST).fit(log, clicks)
    relevance = np.where(log["qid"] == 0, 0, log["relevance"])
    with pytest.warns(UndefinedMetricWarning, match="score is undefined"):
        assert np.isnan(ranker.score(log, relevance, np.where(log["qid"] == 0, 1.0, 0.0)))


def test_scoring_by_clicks_is_noticed():
    log, clicks = small_log()
    ranker = NaiveRanker(**FAST).fit(log, clicks)
    with pytest.warns(ClickDataWarning, match=r"scoring=RankingScorer\(\)"):
        ranker.score(log, clicks)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_absent_gpu_is_named():
    log, clicks = random_lists()
    with pytest.raises(ValueError, match="torch finds no CUDA device"):
        NaiveRanker(device="cuda", **FAST).fit(log, clicks)
