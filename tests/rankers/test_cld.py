from collections import Counter
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skultr import CLDRanker, ClickDataset
from skultr.datasets import make_ltr
from skultr.exceptions import (
    ClickDataWarning,
    NotIdentifiableWarning,
)
from skultr.metrics import RankingScorer, ndcg_score
from skultr.model_selection import QueryKFold
from skultr.preprocessing import OnFeatures
from skultr.rankers import (
    HeckmanRanker,
    IPSRanker,
)
from skultr.rankers._cld_losses import count_pairs
from tests._worlds import top_k_log

#: The published models: linear, the maximum found by Newton's method.
LINEAR = {"loss": "pointwise", "hidden_layer_sizes": ()}
RAW = {**LINEAR, "scale_features": False, "alpha": 0.0, "traffic_exponent": 0.0}
#: Networks in little time.
QUICK = {"max_epochs": 2, "random_state": 0}
FEATURES = ["f0", "f1", "f2"]
BETA, OMEGA = np.array([0.05, -0.03, 0.02]), np.array([0.3, 0.8, -0.5])


def tobit_log(n_rows=20_000, gamma=0.6, seed=0):
    """Candidates shown where a hidden variable says so, and click rates that chance leaves."""
    rng = np.random.default_rng(seed)
    log = pd.DataFrame(rng.normal(size=(n_rows, 3)), columns=FEATURES).astype(np.float32)
    errors = rng.multivariate_normal([0, 0], [[1, gamma], [gamma, 1]], n_rows)
    values = log.to_numpy(float)
    rate = values @ BETA + 0.5 + 0.08 * errors[:, 0]
    shown = values @ OMEGA - 0.3 + errors[:, 1] > 0
    log["qid"] = np.arange(n_rows) // 20
    log["doc"] = np.arange(n_rows)
    log["impressions"] = 1e9
    order = log.assign(shown=shown).groupby(["qid", "shown"]).cumcount() + 1
    log["position"] = np.where(shown, order, np.nan)
    assert ((rate[shown] >= 0) & (rate[shown] <= 1)).all()
    return log, np.where(shown, rate, 0.0)


# ------------------------------------------------------------------------ pointwise
@pytest.mark.parametrize("seed", range(2))
def test_tobit_world_is_recovered_where_least_squares_is_biased(seed):
    log, rate = tobit_log(seed=seed)
    known = {"propensity": np.ones(20)}
    ranker = CLDRanker(gamma=0.6, **known, **RAW).fit(log, rate)
    # Three standard errors of 20,000 rows (those of the likelihood are in test_tobit.py).
    np.testing.assert_allclose(ranker.coef_, BETA, atol=3 * 0.0012)
    np.testing.assert_allclose(ranker.selection_coef_, OMEGA, atol=3 * 0.015)
    assert ranker.scale_ == pytest.approx(0.08, rel=0.05)
    squares = IPSRanker(estimator=LinearRegression(), **known).fit(log, rate)
    assert np.abs(squares.estimator_.coef_ - BETA).max() > 0.01
    chance = ranker.predict_selection(log)
    assert chance.mean() == pytest.approx(log["position"].notna().mean(), abs=0.01)
    np.testing.assert_allclose(
        ranker.predict(log), log[FEATURES].to_numpy(float) @ ranker.coef_ + ranker.intercept_
    )


def test_gamma_is_estimated_in_a_tobit_world():
    log, rate = tobit_log(40_000, gamma=0.4)
    ranker = CLDRanker(gamma="estimate", propensity=np.ones(20), **RAW).fit(log, rate)
    assert ranker.gamma_ == pytest.approx(0.4, abs=0.1)
    low, high = ranker.gamma_interval_
    assert low < 0.4 < high
    best = ranker.gamma_profile_["log_likelihood"].idxmax()
    assert best == pytest.approx(0.4, abs=0.08)
    assert low < ranker.gamma_ < best  # nearer to 0, where the prior is highest


def test_gamma_of_a_top_k_log_is_not_identified_and_says_so():
    _, log, clicks, curve = top_k_log()
    ranker = CLDRanker(gamma="estimate", propensity=curve, **LINEAR)
    with pytest.warns(NotIdentifiableWarning, match="does not determine gamma"):
        ranker.fit(log, clicks)
    assert -1 < ranker.gamma_ < 1


def test_gamma_zero_is_penalised_least_squares_on_shown_documents():
    _, log, clicks, curve = top_k_log()
    settings = {"propensity": curve, "scale_features": False, "traffic_exponent": 1.0}
    features = [name for name in log if name.startswith("feature")]
    log[features] = StandardScaler().fit_transform(log[features])
    ranker = CLDRanker(gamma=0.0, scale=0.3, alpha=0.0, **LINEAR, **settings).fit(log, clicks)
    ips = IPSRanker(estimator=LinearRegression(), propensity=curve).fit(log, clicks)
    rows = ips.labels_.merge(log.drop_duplicates(["qid", "doc"]), on=["qid", "doc"])
    least = LinearRegression().fit(rows[features], rows["label"], rows["impressions"])
    np.testing.assert_allclose(ranker.predict(log), least.predict(log[features]), atol=1e-4)


def test_networks_reach_the_maximum_of_newtons_method():
    """The same model by gradient: a linear module instead of no hidden layer."""
    import torch

    _, log, clicks, curve = top_k_log(n_queries=60)
    settings = {"propensity": curve, "gamma": 0.3, "alpha": 0.0, "random_state": 0, **LINEAR}
    newton = CLDRanker(**settings).fit(log, clicks)
    by_gradient = CLDRanker(
        module=lambda n_features: torch.nn.Linear(n_features, 1),
        weight_decay=0.0,
        net_params={"callbacks__average": None},
        max_epochs=600,  # at which the gradient has converged
        learning_rate=0.03,
        **settings,
    ).fit(log, clicks)
    assert np.corrcoef(newton.predict(log), by_gradient.predict(log))[0, 1] > 0.999
    assert by_gradient.scale_ == pytest.approx(newton.scale_, rel=0.02)
    last = by_gradient.likelihood_.iloc[-1].sum()
    assert last == pytest.approx(newton.likelihood_.iloc[-1].sum(), abs=0.01)


def test_likelihood_by_epoch():
    _, log, clicks, curve = top_k_log(n_queries=60)
    columns = ["relevance", "shown", "never_shown"]
    newton = CLDRanker(propensity=curve, **LINEAR).fit(log, clicks)
    assert newton.likelihood_.columns.tolist() == columns
    assert newton.likelihood_.index.tolist() == [*range(newton.n_iter_ + 1)]
    # What rises is the likelihood with its penalty: near the maximum the former may fall a little.
    assert np.diff(newton.likelihood_.sum(axis=1)).min() > -1e-6
    for loss in ("listwise", "pairwise", "pointwise"):
        settings = {"loss": loss, "hidden_layer_sizes": (8,), "weight_decay": 0.0}
        ranker = CLDRanker(propensity=curve, max_epochs=5, random_state=0, **settings)
        ranker.fit(log, clicks)
        assert ranker.likelihood_.columns.tolist() == columns
        assert ranker.likelihood_.index.tolist() == [*range(1, ranker.n_iter_ + 1)]
        assert ranker.n_iter_ == 5
        total = ranker.likelihood_.sum(axis=1)
        np.testing.assert_allclose(-total, ranker.history_["train_loss"], rtol=1e-4)


def test_published_scale():
    _, log, clicks, curve = top_k_log(n_queries=60)
    ranker = CLDRanker(variant="published", propensity=curve, **LINEAR).fit(log, clicks)
    assert ranker.scale_ == pytest.approx(1.0, rel=1e-12)
    fixed = CLDRanker(scale=0.5, propensity=curve, **LINEAR).fit(log, clicks)
    assert fixed.scale_ == pytest.approx(0.5)
    assert not np.allclose(ranker.predict(log), fixed.predict(log))


# ------------------------------------------------------------------------ what it is for
def held_out(ranker, documents):
    relevant = (documents["relevance"] > 2).astype(int)
    return ndcg_score(relevant, ranker.predict(documents), qid=documents["qid"], k=3)


def test_hidden_signal_world():
    """Three losses in three worlds: none falls behind inverse propensities of the same class.

    In 18 worlds the mean gains were .021, .014 and .031, and their standard deviations .018, .09
    and .036: three worlds do not show a gain, but a loss that is larger than chance.
    """
    gain = {"listwise": [], "pointwise": [], "pairwise": []}
    for seed in range(3):
        _, log, clicks, curve = top_k_log(400, strength=1.5, seed=seed, n_sessions=30_000)
        test = make_ltr(800, n_features=15, random_state=seed)
        linear = {"propensity": curve, "random_state": 0, "hidden_layer_sizes": ()}
        plain = IPSRanker(max_epochs=20, correction="divide", clip=None, **linear)
        base = held_out(plain.fit(log, clicks), test)
        for loss, gains in gain.items():
            ranker = CLDRanker(loss=loss, max_epochs=20, **linear).fit(log, clicks)
            gains.append(held_out(ranker, test) - base)
    # Those means less three standard errors of three worlds.
    least = {"listwise": -0.01, "pointwise": -0.14, "pairwise": -0.03}
    assert all(np.mean(gains) > least[loss] for loss, gains in gain.items()), gain


# ------------------------------------------------------------------------ listwise
@pytest.mark.parametrize(
    ("loss", "variant"),
    [("listwise", "program"), ("pointwise", "program")],
)
def test_variants_are_forms_of_some_losses(loss, variant):
    _, log, clicks, curve = top_k_log(n_queries=10, n_sessions=100)
    with pytest.raises(ValueError, match=f"'{variant}' is a form .* '{loss}'. Set loss='p"):
        CLDRanker(loss=loss, variant=variant, propensity=curve).fit(log, clicks)


# ------------------------------------------------------------------------ pairwise
@pytest.mark.parametrize("variant", ["default", "published", "program"])
def test_pairwise_learns(variant):
    documents, log, clicks, curve = top_k_log(strength=0.0)
    ranker = CLDRanker(
        loss="pairwise",
        variant=variant,
        propensity=curve,
        learning_rate=0.01,
        max_epochs=30,
        random_state=0,
    ).fit(log, clicks)
    labels = ranker.labels_.set_index("doc")["label"]
    together = documents.set_index("doc").assign(score=ranker.predict(documents), label=labels)
    within = together.dropna().groupby("qid")[["score", "label"]].transform(lambda x: x - x.mean())
    assert within.corr().iloc[0, 1] > 0.1
    chance = ranker.predict_selection(documents)
    shown = documents["doc"].isin(labels.index).to_numpy()
    assert chance[shown].mean() > chance[~shown].mean() + 0.03


def test_variants_differ_only_where_they_should():
    _, log, clicks, curve = top_k_log(n_queries=40)
    settings = {"loss": "pairwise", "propensity": curve, "max_epochs": 3, "random_state": 0}
    scores = {
        (form, gamma): CLDRanker(variant=form, gamma=gamma, **settings)
        .fit(log, clicks)
        .predict(log)
        for form in ("default", "published")
        for gamma in (0.1, 0.5)
    }
    np.testing.assert_array_equal(scores["published", 0.1], scores["published", 0.5])
    assert not np.allclose(scores["default", 0.1], scores["default", 0.5])


class Spy(CLDRanker):
    """Keeps the rows that pairs are drawn from, and the first feature of each."""

    def _fit(self, log, task):
        self.log_ = log
        super()._fit(log, task)

    def _criterion(self, rows, unit, scale):
        self.rows_ = rows
        self.docs_ = self.log_.features[rows.version, 0].astype(int)
        return super()._criterion(rows, unit, scale)


def pages_of(n_sessions, seed=0):
    """Sessions of three queries that show 3 of 5 documents, and clicks; the feature is the doc."""
    rng = np.random.default_rng(seed)
    query = rng.integers(0, 3, n_sessions)
    docs = 5 * np.repeat(query, 3) + np.tile([0, 1, 2], n_sessions)
    log = pd.DataFrame({"doc": docs, "qid": docs // 5, "position": docs % 5 + 1})
    log["session"] = np.repeat(np.arange(n_sessions), 3)
    hidden = pd.DataFrame({"doc": [d for d in range(15) if d % 5 > 2], "session": n_sessions})
    hidden["qid"] = hidden["doc"] // 5
    both = pd.concat([log, hidden], ignore_index=True)
    both["feature"] = both["doc"].astype(float)
    return both, np.append(rng.random(len(log)) < 0.4, np.zeros(len(hidden))).astype(float)


def pairs_of_authors(log, clicks, curve):
    """The pairs of the authors' program, without those of a row with itself.

    Each session has the rows shown, the first of its query also those that never were. Of all
    ordered pairs those of two shown rows of which the first has more clicks over propensities are
    preferences, weighted by the difference.
    """
    seen, found = set(), Counter()
    shown = log["position"].notna()
    label = clicks / curve[log["position"].fillna(1).astype(int) - 1]
    for _, page in log[shown].groupby("session"):
        (qid,) = page["qid"].unique()
        rows = list(zip(page["doc"], label[page.index], [True] * len(page), strict=True))
        if qid not in seen:
            hidden = log.loc[~shown & (log["qid"] == qid), "doc"]
            rows += [(doc, 0.0, False) for doc in hidden]
        seen.add(qid)
        for (i, y, s), (j, z, t) in permutations(rows, 2):
            gap = y - z if s and t and y > z else 0.0
            found[i, j, round(gap, 5)] += 1
    return found


def test_pairs_of_the_program_are_those_of_its_authors():
    log, clicks = pages_of(40)
    curve = np.array([1.0, 0.8, 0.5])
    settings = {"loss": "pairwise", "variant": "program", "traffic_exponent": 1.0, "max_epochs": 1}
    spy = Spy(propensity=curve, random_state=0, **settings).fit(log, clicks)
    rows, found = spy.rows_, Counter()
    for each in np.unique(rows.list_):
        for i, j in permutations(np.flatnonzero(rows.list_ == each), 2):
            gap = rows.label[i] - rows.label[j] if rows.shown[i] and rows.shown[j] else 0.0
            weight = min(rows.weight[i], rows.weight[j])
            found[spy.docs_[i], spy.docs_[j], round(max(gap, 0.0), 5)] += weight
    expected = pairs_of_authors(log, clicks, curve)
    assert found == expected
    n_chosen = sum(n for (*_, gap), n in expected.items() if gap)
    chosen, tied, mixed = count_pairs(rows)
    assert (chosen, tied + mixed) == (n_chosen, expected.total() - n_chosen)
    assert mixed == 3 * (5 * 4 - 3 * 2)
    # Pages with the same clicks are one list.
    assert len(np.unique(rows.list_)) < 40


def test_pairs_of_rows_of_unequal_weight_have_the_smaller_one():
    rng = np.random.default_rng(0)
    shown, weight = rng.random(60) < 0.6, rng.choice([0.5, 1.0, 7.3, 100.0], 60)
    rows = SimpleNamespace(
        list_=np.sort(rng.integers(0, 6, 60)),
        shown=shown,
        label=rng.integers(0, 3, 60) / 3,
        weight=weight,
    )
    chosen = others = mixed = 0.0
    for i, j in permutations(range(60), 2):
        pair = min(weight[i], weight[j]) * (rows.list_[i] == rows.list_[j])
        mixed += pair * (not shown[i] or not shown[j])
        chosen += pair * (shown[i] and shown[j] and rows.label[i] > rows.label[j])
        others += pair * (shown[i] and shown[j] and rows.label[i] <= rows.label[j])
    np.testing.assert_allclose(count_pairs(rows), (chosen, others, mixed))


def test_the_program_reads_pages_from_any_log(tmp_path):
    """A frame, its rows in another order, and a data set on the disk."""
    log, clicks = pages_of(60)
    settings = {"loss": "pairwise", "variant": "program", "max_epochs": 2, "random_state": 0}
    ranker = CLDRanker(propensity=np.array([1.0, 0.8, 0.5]), **settings)
    expected = clone(ranker).fit(log, clicks).predict(log)
    order = np.random.default_rng(0).permutation(len(log))
    turned = clone(ranker).fit(log.iloc[order], clicks[order]).predict(log)
    np.testing.assert_allclose(turned, expected, atol=1e-6)
    log.assign(click=clicks).to_parquet(tmp_path / "log.parquet")
    dataset = ClickDataset.from_parquet(tmp_path / "log.parquet", path=tmp_path / "clicks")
    stored = clone(ranker).fit(dataset).predict(log)
    np.testing.assert_allclose(stored, expected, atol=1e-6)


@pytest.mark.parametrize("form", ["published", "program"])
@pytest.mark.parametrize("gamma", [0.3, "estimate"])
def test_variants_without_gamma_say_so(form, gamma):
    _, log, clicks, curve = top_k_log(n_queries=20)
    settings = {"loss": "pairwise", "propensity": curve, "max_epochs": 2, "random_state": 0}
    ranker = CLDRanker(variant=form, gamma=gamma, **settings).fit(log, clicks)
    assert ranker.gamma_ == 0.0
    assert not hasattr(ranker, "gamma_interval_")


@pytest.mark.parametrize("settings", [{"loss": "pairwise"}, {"hidden_layer_sizes": (4,)}], ids=str)
def test_selection_in_the_middle_of_a_training(settings, callbacks):
    """Callbacks see the selection of the epoch, not that of an earlier fit."""
    _, log, clicks, curve = top_k_log(n_queries=20, n_sessions=500)
    chances = []

    def scoring(ranker, X, y):
        chances.append(ranker.predict_selection(X))
        return ranker.predict(X).mean()

    ranker = CLDRanker(propensity=curve, max_epochs=3, early_stopping=False, random_state=0)
    ranker.set_params(**settings).fit(log, clicks)
    final = ranker.predict_selection(log)
    monitor = callbacks.ScoringMonitor(scoring={"mean": scoring})
    ranker.set_callbacks(monitor).fit(log, clicks)
    assert not np.allclose(chances[0], chances[1])
    assert not np.allclose(chances[0], final)
    np.testing.assert_allclose(chances[2], final)


def test_nothing_of_an_earlier_fit_is_left():
    _, log, clicks, curve = top_k_log(n_queries=20, n_sessions=500)
    settings = {"propensity": curve, "max_epochs": 2, "random_state": 0}
    ranker = CLDRanker(loss="pairwise", hidden_layer_sizes=(4,), **settings).fit(log, clicks)
    earlier = ranker.selection_network_
    ranker.set_params(hidden_layer_sizes=(0,))
    with pytest.raises(ValueError, match="hidden_layer_sizes must hold"):
        ranker.fit(log, clicks)
    assert getattr(ranker, "selection_network_", None) is not earlier
    ranker.set_params(loss="pointwise", hidden_layer_sizes=())
    assert set(vars(ranker.fit(log, clicks))) == set(vars(clone(ranker).fit(log, clicks)))


def test_shown_without_weight_is_never_shown():
    _, log, clicks, curve = top_k_log(n_queries=40)
    doc = log.loc[log["position"] == 1, "doc"].iloc[0]
    weight, clicks = np.where(log["doc"] == doc, 0.0, 1.0), np.where(log["doc"] == doc, 0, clicks)
    hidden = log.assign(position=log["position"].mask(log["doc"] == doc))
    for ranker in (CLDRanker(propensity=curve, **LINEAR), HeckmanRanker(hidden_layer_sizes=())):
        expected = clone(ranker).fit(hidden, clicks).coef_
        found = clone(ranker).fit(log, clicks, sample_weight=weight).coef_
        np.testing.assert_allclose(found, expected, atol=1e-8)


def test_same_seed_same_pairs():
    _, log, clicks, curve = top_k_log(n_queries=40)
    ranker = CLDRanker(loss="pairwise", propensity=curve, max_epochs=3, random_state=0)
    first, second = (clone(ranker).fit(log, clicks).predict(log) for _ in range(2))
    np.testing.assert_array_equal(first, second)


# ------------------------------------------------------------------------ bad input
@pytest.mark.parametrize("loss", ["listwise", "pointwise", "pairwise"])
def test_nothing_left_out_is_position_debiasing_with_a_warning(loss):
    _, log, clicks, curve = top_k_log(n_queries=60, candidates=False)
    settings = {"propensity": curve, "loss": loss, "max_epochs": 5, "random_state": 0}
    scores = []
    for gamma in (0.2, 0.8):
        ranker = CLDRanker(gamma=gamma, **settings)
        with pytest.warns(ClickDataWarning, match="Every candidate was shown"):
            ranker.fit(log, clicks)
        scores.append(ranker.predict(log))
        assert ranker.gamma_ == 0.0
        assert (ranker.predict_selection(log) == 1).all()
    np.testing.assert_array_equal(*scores)


def test_estimated_gamma_without_candidates_is_zero():
    _, log, clicks, curve = top_k_log(n_queries=40, candidates=False)
    with pytest.warns(ClickDataWarning, match="Every candidate was shown"):
        ranker = CLDRanker(gamma="estimate", propensity=curve, **QUICK).fit(log, clicks)
    assert ranker.gamma_ == 0.0


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"loss": "pairwise"},
        {"loss": "pairwise", "variant": "published"},
        {"loss": "pairwise", "variant": "program"},
        {"hidden_layer_sizes": (4,), "loss": "pointwise"},
        {"variant": "published", **LINEAR},
    ],
    ids=str,
)
def test_nothing_clicked(settings):
    _, log, clicks, curve = top_k_log(n_queries=40)
    ranker = CLDRanker(propensity=curve, max_epochs=3, random_state=0, **settings)
    with pytest.warns(ClickDataWarning, match="no click"):
        ranker.fit(log, 0 * clicks)
    assert np.isfinite(ranker.predict(log)).all()
    assert np.isfinite(ranker.predict_selection(log)).all()


@pytest.mark.parametrize("gamma", [-1.0, 1.0, 1.5, np.nan, "free"])
def test_gamma_outside_its_range(gamma):
    _, log, clicks, curve = top_k_log(n_queries=10, n_sessions=100)
    with pytest.raises(ValueError, match="gamma"):
        CLDRanker(gamma=gamma, propensity=curve).fit(log, clicks)


@pytest.mark.parametrize("loss", ["listwise", "pointwise", "pairwise"])
def test_a_query_shown_in_full(loss):
    _, log, clicks, curve = top_k_log(n_queries=40)
    whole = (log["qid"] == log["qid"].iloc[0]) & log["position"].isna()
    ranker = CLDRanker(loss=loss, propensity=curve, max_epochs=3, random_state=0)
    ranker.fit(log[~whole], clicks[~whole.to_numpy()])
    assert np.isfinite(ranker.predict(log)).all()


@pytest.mark.parametrize(
    "ranker", [CLDRanker(**LINEAR), HeckmanRanker(hidden_layer_sizes=())], ids=repr
)
def test_sessions_that_showed_nothing(ranker):
    """A page without positions is no page: queries never served teach nothing."""
    _, log, clicks, curve = top_k_log(n_queries=60)
    if "loss" in ranker.get_params():
        ranker.set_params(propensity=curve)
    unserved = log["qid"] < 20
    empty = log.assign(position=log["position"].mask(unserved))
    without = clone(ranker).fit(empty, np.where(unserved, 0.0, clicks)).predict(log)
    dropped = clone(ranker).fit(log[~unserved], clicks[~unserved.to_numpy()]).predict(log)
    np.testing.assert_allclose(without, dropped, rtol=1e-6, atol=1e-8)
    served_twice = pd.concat([log, log.assign(session=log["session"] + 10**6, position=np.nan)])
    again = clone(ranker).fit(served_twice, np.concatenate([clicks, 0 * clicks])).predict(log)
    np.testing.assert_allclose(
        again, clone(ranker).fit(log, clicks).predict(log), rtol=1e-6, atol=1e-8
    )


def test_default_propensity_is_learned_with_a_warning():
    _, log, clicks, _ = top_k_log(n_queries=20, n_sessions=500)
    with pytest.warns(NotIdentifiableWarning, match="does not determine relevance"):
        ranker = CLDRanker(**QUICK).fit(log, clicks)
    assert "network" in ranker.examination_comparison_


def test_linear_models_and_search():
    _, log, clicks, curve = top_k_log(n_queries=40)
    ranker = CLDRanker(propensity=curve, **LINEAR).fit(log, clicks)
    assert ranker.coef_.shape == ranker.selection_coef_.shape == (15,)
    assert not hasattr(ranker, "net_")
    _, log, clicks, curve = top_k_log(n_queries=40)
    documents = make_ltr(40, n_features=15, random_state=0)
    log = log.merge(documents[["doc", "relevance"]], on="doc")
    pipeline = make_pipeline(OnFeatures(StandardScaler()), CLDRanker(propensity=curve, **LINEAR))
    search = GridSearchCV(
        pipeline, {"cldranker__gamma": [0.1, 0.3]}, cv=QueryKFold(2), scoring=RankingScorer(k=3)
    )
    assert np.isfinite(search.fit(log, clicks).best_score_)


# ------------------------------------------------------------------------ Heckman
def test_heckman_recovers_a_tobit_world():
    log, rate = tobit_log(100_000)
    settings = {key: value for key, value in RAW.items() if key != "loss"}
    ranker = HeckmanRanker(**settings).fit(log, rate)
    np.testing.assert_allclose(ranker.coef_, BETA, atol=0.006)
    np.testing.assert_allclose(ranker.selection_coef_, OMEGA, atol=0.03)
    assert ranker.mills_coef_ == pytest.approx(0.6 * 0.08, rel=0.1)
    assert 0.5 < ranker.mills_collinearity_ < 1
    debiased = HeckmanRanker(debias=True, propensity=np.ones(20), **settings).fit(log, rate)
    np.testing.assert_allclose(debiased.coef_, ranker.coef_)
    assert "examination_" in vars(debiased)
    assert "examination_" not in vars(ranker)


def test_heckman_says_when_the_first_step_did_not_converge(monkeypatch):
    _, log, clicks, _ = top_k_log(n_queries=20, n_sessions=500)
    monkeypatch.setattr("skultr._models._solve._MAX_ITER", 1)
    with pytest.warns(ConvergenceWarning, match="probit"):
        HeckmanRanker(**QUICK).fit(log, clicks)


@pytest.mark.parametrize(
    "ranker", [CLDRanker(**LINEAR), HeckmanRanker(debias=True, hidden_layer_sizes=())], ids=repr
)
def test_units_of_features_do_not_matter(ranker):
    """A year beside shares, without scaling inside."""
    documents, log, clicks, curve = top_k_log(n_queries=40, n_sessions=2_000)
    ranker.set_params(propensity=curve, scale_features=False, alpha=0.0)
    features = [name for name in log if name.startswith("feature")]
    scaler = StandardScaler().fit(documents[features])
    X, new = (scaler.transform(frame[features]) for frame in (log, documents))
    roles = {name: log[name] for name in ("qid", "doc", "session", "position")}
    spread, offset = np.ones(15), np.zeros(15)
    spread[:2], offset[:2] = (8.0, 1e5), (2015.0, 5e5)
    # In single precision, as rankers read them.
    X, new = np.float32(X * spread + offset), np.float32(new * spread + offset)
    one = clone(ranker).fit((X - offset) / spread, clicks, **roles)
    other = clone(ranker).fit(X, clicks, **roles)
    np.testing.assert_allclose(other.predict(new), one.predict((new - offset) / spread), atol=1e-4)
    np.testing.assert_allclose(
        other.predict_selection(new), one.predict_selection((new - offset) / spread), atol=1e-4
    )


def test_heckman_learns_on_shown_rows_only():
    """Clicks of never-shown rows are not zeros: constant labels leave nothing to explain."""
    _, log, _, _ = top_k_log(n_queries=60)
    with pytest.warns(ClickDataWarning, match="the same score in 60 of 60 queries"):
        ranker = HeckmanRanker(hidden_layer_sizes=()).fit(log, 0.5 * log["position"].notna())
    np.testing.assert_allclose(ranker.coef_, 0, atol=1e-8)
    np.testing.assert_allclose(ranker.predict(log), 0.5, atol=1e-8)


def test_heckman_without_candidates_is_least_squares():
    _, log, clicks, _ = top_k_log(n_queries=60, candidates=False)
    with pytest.warns(ClickDataWarning, match="Every candidate was shown"):
        ranker = HeckmanRanker(**QUICK).fit(log, clicks)
    assert ranker.mills_coef_ == 0
    assert (ranker.predict_selection(log) == 1).all()


def test_heckman_network_is_the_softmax_loss_where_all_were_shown():
    _, log, clicks, curve = top_k_log(n_queries=40, candidates=False)
    # Heckman's method has a penalty where documents are few, and IPS where clicks are.
    settings = {"propensity": curve, "weight_decay": 0.0, "max_epochs": 5, "random_state": 0}
    with pytest.warns(ClickDataWarning, match="Every candidate was shown"):
        heckman = HeckmanRanker(debias=True, **settings).fit(log, clicks)
    ips = IPSRanker(**settings, correction="divide", clip=None).fit(log, clicks)
    scores = pd.DataFrame({"heckman": heckman.predict(log), "ips": ips.predict(log)})
    within = scores - scores.groupby(log["qid"]).transform("mean")
    assert within.corr().iloc[0, 1] > 0.99


def test_heckman_network_corrects_what_selection_adds():
    """Debiased: the network with the ratio is above the same network without it."""
    gains = []
    for seed in range(3):
        _, log, clicks, curve = top_k_log(400, strength=1.5, seed=seed, n_sessions=30_000)
        test = make_ltr(800, n_features=15, random_state=seed)
        known = {"propensity": curve, "random_state": 0}
        divided = IPSRanker(**known, correction="divide", clip=None)
        base = held_out(divided.fit(log, clicks), test)
        gains.append(held_out(HeckmanRanker(debias=True, **known).fit(log, clicks), test) - base)
    assert np.mean(gains) > 0.0, gains
