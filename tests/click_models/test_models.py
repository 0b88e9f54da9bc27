"""Click models find the parameters of their users, and their formulas are the enumerated ones."""

import warnings
from functools import partialmethod
from itertools import product

import numpy as np
import pandas as pd
import pytest

from benchmarks.studies.labels import CURVE, small_log
from skultr._log._clicklog import ClickLog
from skultr._models import _browsing
from skultr.click_models import (
    CascadeModel,
    DBNModel,
    DCMModel,
    DCTRModel,
    PBMModel,
    RDCTRModel,
    UBMModel,
)
from skultr.datasets import make_ltr
from skultr.exceptions import AssumptionWarning, ClickDataWarning
from skultr.simulation import PositionBasedUser, noisy_oracle_scores, simulate_shift

EM_MODELS = [PBMModel, UBMModel, DCMModel, DBNModel]
MODELS = [DCTRModel, RDCTRModel, CascadeModel, *EM_MODELS]
CONDITIONAL = [CascadeModel, UBMModel, DCMModel, DBNModel]
GO_ON = 0.9


class Served:
    """Lists of five of six documents of thirty queries, in random orders."""

    def __init__(self, n_sessions, n_queries=30, width=5, seed=0):
        self.rng = rng = np.random.default_rng(seed)
        query = rng.integers(n_queries, size=n_sessions)
        shown = np.argsort(rng.random((n_sessions, 6)), axis=1)[:, :width]
        self.doc = query[:, None] * 6 + shown
        self.attraction = rng.uniform(0.1, 0.8, n_queries * 6)
        self.satisfaction = rng.uniform(0.1, 0.9, n_queries * 6)
        self.features = rng.normal(size=(n_queries * 6, 3)).astype(np.float32)
        self.frame = pd.DataFrame(
            {
                "qid": np.repeat(query, width),
                "session": np.repeat(np.arange(n_sessions), width),
                "doc": self.doc.ravel(),
                "position": np.tile(np.arange(1, width + 1), n_sessions),
            }
        )

    def chain(self, after_skip, after_click):
        a, s = self.attraction[self.doc], self.satisfaction[self.doc]
        after_click = after_click(a, s) if callable(after_click) else after_click
        clicks = _browsing.draw_chain_clicks(a, after_skip, after_click, self.rng)
        return clicks.ravel().astype(float)

    def pbm(self, examination):
        chance = self.attraction[self.doc] * examination
        return (self.rng.random(chance.shape) < chance).ravel().astype(float)

    def ubm(self, pairs):
        clicks = _browsing.draw_ubm_clicks(self.attraction[self.doc], pairs, self.rng)
        return clicks.ravel().astype(float)

    def clicks_for(self, model):
        """Clicks that every model has something to say of."""
        if model is CascadeModel:
            return self.chain(1.0, 0.0)
        return self.chain(GO_ON, lambda a, s: GO_ON * (1 - s))


@pytest.fixture(scope="module")
def served():
    return Served(20_000)


def correlation(model, truth):
    return np.corrcoef(model.documents_["relevance"], truth)[0, 1]


# Recovery ----------------------------------------------------------------------------------
def test_pbm_recovers_its_user(served):
    examination = np.array([1.0, 0.8, 0.6, 0.4, 0.3])
    model = PBMModel().fit(served.frame, served.pbm(examination))
    np.testing.assert_allclose(model.examination_["examination"], examination, atol=0.02)
    assert correlation(model, served.attraction) > 0.97


def test_the_intervals_of_examination_cover_it():
    # 32 Plackett-Luce logs, nine positions: the standard error of the coverage is about .015.
    tables = []
    for seed in range(32):
        log, _ = small_log(np.random.default_rng(seed), "weak", 40, "own")
        table = PBMModel().fit(log.drop(columns="click"), log["click"]).examination_
        tables.append(table.assign(true=CURVE).iloc[1:])
    table = pd.concat(tables)
    covered = table["lower"].le(table["true"]) & table["upper"].ge(table["true"])
    assert 0.91 < covered.mean() < 0.99
    apart = np.log(table["examination"] / table["true"]) / table["standard_error"]
    # Positions of one log err together, so that few of these numbers are independent.
    assert 0.8 < apart.std() < 1.1
    other = PBMModel(prior="empirical").fit(log.drop(columns="click"), log["click"])
    assert other.examination_["standard_error"].isna().all()


def test_ubm_recovers_its_user(served):
    rank, last = np.indices((5, 5))
    pairs = np.where(last == 0, 1.0 - 0.15 * rank, 0.9 / np.maximum(rank + 1 - last, 1) ** 0.5)
    model = UBMModel().fit(served.frame, served.ubm(pairs))
    table = model.examination_.reset_index()
    truth = pairs[table["rank"] - 1, table["last_click"]]
    np.testing.assert_allclose(table["examination"], truth, atol=0.05)
    assert correlation(model, served.attraction) > 0.97


def test_dbn_recovers_its_user(served):
    clicks = served.chain(GO_ON, lambda a, s: GO_ON * (1 - s))
    model = DBNModel().fit(served.frame, clicks)
    assert model.continuation_ == pytest.approx(GO_ON, abs=0.01)
    assert correlation(model, served.attraction * served.satisfaction) > 0.95
    attraction = model.documents_["attraction"]
    assert np.corrcoef(attraction, served.attraction)[0, 1] > 0.97


def test_dcm_recovers_its_user(served):
    on = np.array([0.8, 0.6, 0.5, 0.3, 0.2])
    model = DCMModel().fit(served.frame, served.chain(1.0, on))
    np.testing.assert_allclose(model.continuation_[:4], on[:4], atol=0.03)
    assert correlation(model, served.attraction) > 0.97


def test_cascade_recovers_its_user(served):
    model = CascadeModel().fit(served.frame, served.chain(1.0, 0.0))
    assert correlation(model, served.attraction) > 0.95


# Likelihood --------------------------------------------------------------------------------
def all_patterns(query, documents):
    """Every click pattern of one list of four, as a log."""
    patterns = np.array(list(product((0, 1), repeat=4)))
    frame = pd.DataFrame(
        {
            "qid": query,
            "session": np.repeat(np.arange(16), 4),
            "doc": np.tile(documents, 16),
            "position": np.tile(np.arange(1, 5), 16),
        }
    )
    return frame, patterns


@pytest.mark.parametrize("cls", MODELS)
def test_likelihoods_of_all_patterns_agree(cls, served):
    model = cls().fit(served.frame, served.clicks_for(cls))
    frame, patterns = all_patterns(served.frame["qid"][0], served.doc[0, :4])
    chance = model.predict_click(frame, patterns.ravel()).reshape(16, 4)
    likelihood = np.where(patterns, chance, 1 - chance).prod(axis=1)
    assert likelihood.sum() == pytest.approx(1.0, abs=1e-10)
    marginal = model.predict_click(frame, conditional=False).reshape(16, 4)
    np.testing.assert_allclose(marginal, np.tile(likelihood @ patterns, (16, 1)), atol=1e-10)


def test_dbn_likelihood_is_the_enumerated_one(served):
    """Over who was attracted, satisfied, and went on, hidden event by hidden event."""
    model = DBNModel().fit(served.frame, served.clicks_for(DBNModel))
    query, docs = served.frame["qid"][0], served.doc[0, :4]
    a, s = model.documents_.loc[query].loc[docs, ["attraction", "satisfaction"]].to_numpy().T
    frame, patterns = all_patterns(query, docs)
    expected = np.zeros(16)
    for attracted, satisfied, going in product(product((0, 1), repeat=4), repeat=3):
        chance = np.prod(
            [
                np.where(attracted, a, 1 - a),
                np.where(satisfied, s, 1 - s),
                np.where(going, model.continuation_, 1 - model.continuation_),
            ]
        )
        clicks, examined = [], True
        for k in range(4):
            clicks.append(int(examined and attracted[k]))
            examined = examined and going[k] and not (clicks[k] and satisfied[k])
        expected[int("".join(map(str, clicks)), 2)] += chance
    chance = model.predict_click(frame, patterns.ravel()).reshape(16, 4)
    likelihood = np.where(patterns, chance, 1 - chance).prod(axis=1)
    np.testing.assert_allclose(likelihood, expected, atol=1e-10)


@pytest.mark.parametrize("cls", EM_MODELS)
def test_em_climbs_to_the_likelihood_of_predict_click(cls, served):
    """With no prior to speak of, the objective is the log likelihood of the training clicks."""
    clicks = served.clicks_for(cls)
    model = cls(prior=(1e-9, 1e-9), tol=1e-7).fit(served.frame, clicks)
    assert (np.diff(model.log_posterior_) >= 0).all()
    chance = model.predict_click(served.frame, clicks)
    chance = np.clip(np.where(clicks > 0, chance, 1 - chance), 1e-300, 1)
    # Priors of what all documents share are worth some units; 20 impressions a pair of UBM more.
    slack = 400.0 if cls is UBMModel else 5.0
    assert model.log_posterior_[-1] == pytest.approx(np.log(chance).sum(), abs=slack)


# Laws --------------------------------------------------------------------------------------
def test_pbm_with_everything_examined_is_the_click_rate(served):
    clicks = served.pbm(np.ones(5))
    rate = DCTRModel(prior=(1, 1)).fit(served.frame, clicks)
    pbm = PBMModel(prior=(1, 1)).fit(served.frame, clicks)
    np.testing.assert_allclose(pbm.examination_["examination"], 1.0, atol=0.03)
    relevance = pbm.predict(served.frame) / pbm.examination_["examination"].iloc[0]
    np.testing.assert_allclose(relevance, rate.predict(served.frame), atol=0.03)


def test_simplified_dbn_stops_only_when_satisfied(served):
    clicks = served.chain(1.0, lambda a, s: 1 - s)
    free = DBNModel().fit(served.frame, clicks)
    simplified = DBNModel(continuation=1).fit(served.frame, clicks)
    assert free.continuation_ > 0.995
    np.testing.assert_allclose(
        free.predict(served.frame), simplified.predict(served.frame), atol=0.01
    )


def test_dcm_with_one_chance_is_the_simplified_dbn_of_one_satisfaction(served):
    served.satisfaction, kept = np.full_like(served.satisfaction, 0.4), served.satisfaction
    clicks = served.chain(1.0, lambda a, s: 1 - s)
    served.satisfaction = kept
    dcm = DCMModel().fit(served.frame, clicks)
    dbn = DBNModel(continuation=1).fit(served.frame, clicks)
    np.testing.assert_allclose(dcm.continuation_[:4], 0.6, atol=0.04)
    np.testing.assert_allclose(
        dcm.documents_["relevance"], dbn.documents_["attraction"], atol=0.03
    )


# Clicks that are no clicks -----------------------------------------------------------------
def test_rates_are_split_into_patterns_with_the_same_rates():
    frame = pd.DataFrame({"qid": 0, "doc": list("abc"), "position": [1, 2, 3]})
    with pytest.warns(ClickDataWarning, match="clicked together"):
        aggregated = DBNModel().fit(frame, [0.75, 0.0, 0.25])
    sessions = pd.concat([frame.assign(session=i) for i in range(4)], ignore_index=True)
    clicks = [1, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0]
    raw = DBNModel().fit(sessions.assign(impressions=0.25), clicks)
    np.testing.assert_allclose(aggregated.documents_, raw.documents_, atol=1e-6)


@pytest.mark.parametrize("cls", CONDITIONAL)
def test_a_log_read_in_parts_is_the_same_log(cls, monkeypatch):
    served = Served(500)
    clicks = served.clicks_for(cls)
    whole = cls().fit(served.frame, clicks)
    monkeypatch.setattr(ClickLog, "chunks", partialmethod(ClickLog.chunks, 37))
    parts = cls().fit(served.frame, clicks)
    pd.testing.assert_frame_equal(parts.documents_, whole.documents_)
    pd.testing.assert_frame_equal(parts.examination_, whole.examination_)


@pytest.mark.parametrize("cls", CONDITIONAL)
def test_models_that_read_clicks_ask_for_them(cls, served):
    model = cls().fit(served.frame, served.clicks_for(cls))
    with pytest.raises(ValueError, match="needs the clicks y"):
        model.predict_click(served.frame)
    with pytest.raises(ValueError, match="clicks, 0 or 1"):
        model.predict_click(served.frame, np.full(len(served.frame), 0.5))


def test_unseen_documents_get_the_prior_and_are_counted(served):
    model = DCTRModel(prior=(1, 3)).fit(served.frame, served.clicks_for(DCTRModel))
    rows = served.frame[:3].assign(doc=[served.doc[0, 0], 10_000, 10_001])
    with pytest.warns(AssumptionWarning, match="2 of 3 rows"):
        relevance = model.predict(rows)
    np.testing.assert_allclose(relevance[1:], 0.25)


@pytest.mark.parametrize("cls", [PBMModel, UBMModel, DCMModel])
def test_longer_lists_are_browsed_like_the_last_known_rank(cls):
    short, long = Served(2_000, width=4), Served(2_000, width=5)
    model = cls().fit(short.frame, short.clicks_for(cls))
    clicks = long.clicks_for(cls)
    with pytest.warns(AssumptionWarning, match="such as 5"):
        chance = model.predict_click(long.frame, clicks)
    assert ((chance > 0) & (chance < 1)).all()


def test_a_list_with_two_rows_at_one_position_is_an_error(served):
    frame = served.frame.drop(columns="session")
    with pytest.raises(ValueError, match="at most one row per position"):
        DBNModel().fit(frame, served.clicks_for(DBNModel))
    model = DBNModel().fit(served.frame, served.clicks_for(DBNModel))
    with pytest.raises(ValueError, match="at most one row per position"):
        model.predict_click(frame, conditional=False)


def test_cascade_counts_the_clicks_it_cannot_explain(served):
    clicks = served.chain(1.0, 1.0)
    with pytest.warns(ClickDataWarning, match="below another"):
        model = CascadeModel().fit(served.frame, clicks)
    with pytest.warns(ClickDataWarning, match="clicks impossible"):
        model.score(served.frame, clicks)


def test_the_default_prior_does_not_move_examination_under_a_good_ranker():
    """The prior of documents takes poor documents at the bottom for average ones otherwise."""
    documents = make_ltr(100, 10, 5, random_state=0)
    train, _, shifted = simulate_shift(
        documents,
        n_sessions=85_000,
        n_test_sessions=40_000,
        scores=noisy_oracle_scores(documents, random_state=0),
        user=PositionBasedUser(1.0),
        features=False,
        random_state=0,
    )
    curve = 1 / np.arange(1, 11)
    found = PBMModel().fit(train.X, train.clicks).examination_
    # The errors are those of logarithms, .02 at position 2 and .1 at 10.
    error = found["standard_error"].to_numpy()
    off = np.log(found["examination"] / curve)
    assert (abs(off) <= 4 * error).all()
    # A prior that moves examination is seen: at position 10 to half of what it is.
    assert error.max() < 0.15
    assert PBMModel(prior="empirical").fit(train.X, train.clicks).examination_.iloc[9, 0] < 0.085
    pairs = UBMModel().fit(train.X, train.clicks)
    often = pairs.examination_[pairs.examination_["impressions"] > 1_000].reset_index()
    place = often["rank"] - 1
    # A pair adds the error of its own clicks to that of the position.
    error_of_pair = np.sqrt(error[place] ** 2 + 1 / often["clicks"])
    off = np.log(often["examination"] / curve[place])
    assert (abs(off) <= 4 * error_of_pair).all()
    # On the same clicks: of 14 other logs .0007 nats better, with a standard deviation of .0002.
    old = UBMModel(prior="empirical").fit(train.X, train.clicks)
    assert pairs.score(shifted.X, shifted.clicks) > old.score(shifted.X, shifted.clicks)


@pytest.mark.parametrize("cls", EM_MODELS)
def test_no_prior_is_maximum_likelihood(cls, served):
    clicks = served.clicks_for(cls)
    free = cls(prior=None).fit(served.frame, clicks)
    tiny = cls(prior=(1e-6, 1e-6)).fit(served.frame, clicks)
    assert np.isfinite(free.log_posterior_).all()
    shrunk = cls(prior=(2, 2)).fit(served.frame, clicks)

    def likelihood(model):
        chance = model.predict_click(served.frame, clicks)
        return np.log(np.where(clicks > 0, chance, 1 - chance)).mean()

    assert likelihood(free) >= likelihood(tiny) - 1e-4
    assert likelihood(free) > likelihood(shrunk)


@pytest.mark.parametrize("prior", ["none", (0, 1), (1, 2, 3)])
def test_wrong_priors(prior, served):
    with pytest.raises(ValueError, match="prior"):
        DCTRModel(prior=prior).fit(served.frame, served.clicks_for(DCTRModel))


# Samples and scores ------------------------------------------------------------------------
def test_score_is_minus_perplexity_and_prefers_the_user_s_own_model():
    train, test = Served(20_000), Served(20_000, seed=0)
    clicks, held_out = train.clicks_for(DBNModel), test.clicks_for(DBNModel)
    score = {cls: cls().fit(train.frame, clicks).score(test.frame, held_out) for cls in EM_MODELS}
    assert max(score, key=score.get) is DBNModel
    assert score[DBNModel] < -1


# By gradient -------------------------------------------------------------------------------
@pytest.mark.parametrize("cls", [PBMModel, UBMModel, DBNModel])
def test_gradient_ranks_unseen_documents_by_features(cls):
    served = Served(4_000)
    signal = 1 / (1 + np.exp(-1.5 * served.features[:, 0]))
    served.attraction = 0.1 + 0.7 * signal
    features = pd.DataFrame(served.features[served.doc.ravel()], columns=["a", "b", "c"])
    log = pd.concat([served.frame, features], axis=1)
    model = cls(
        solver="gradient",
        hidden_layer_sizes=(),
        learning_rate=0.02,
        max_epochs=15,
        scale_features=False,
        random_state=0,
    ).fit(log, served.clicks_for(cls))
    unseen = pd.DataFrame({"a": np.linspace(-2, 2, 9), "b": 0.0, "c": 0.0})
    if cls is DBNModel:
        assert model.continuation_ == pytest.approx(GO_ON, abs=0.03)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (np.diff(model.predict(unseen)) > 0).all()
    by_id = cls().fit(served.frame, served.clicks_for(cls))
    # Of a DBN, only attraction is a function of the features.
    what = "attraction" if cls is DBNModel else "relevance"
    assert np.corrcoef(model.documents_[what], by_id.documents_[what])[0, 1] > 0.8
