"""Click models at the edges: long lists, rare ranks, few sessions, many rates, odd arguments."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit
from sklearn.exceptions import ConvergenceWarning

from skultr._log._clicklog import make_click_log
from skultr._models import _solve
from skultr._models._browsing import draw_chain_clicks
from skultr._models._hidden_events import fit_em
from skultr.click_models import (
    CascadeModel,
    DBNModel,
    DCMModel,
    DCTRModel,
    PBMModel,
    RDCTRModel,
    UBMModel,
)
from skultr.click_models._em import empirical_beta, empirical_beta_of_hidden
from skultr.click_models._model import click_patterns
from skultr.exceptions import AssumptionWarning, ClickDataWarning, NotIdentifiableWarning


def sessions(docs, lengths=None):
    """A log of one query with ``docs`` (n_sessions, width), cut to ``lengths``."""
    n_sessions, width = docs.shape
    frame = pd.DataFrame(
        {
            "qid": 1,
            "session": np.repeat(np.arange(n_sessions), width),
            "doc": docs.ravel(),
            "position": np.tile(np.arange(1, width + 1), n_sessions),
        }
    )
    if lengths is None:
        return frame
    return frame[frame["position"].to_numpy() <= np.repeat(lengths, width)].reset_index(drop=True)


def shuffled(n_sessions, n_docs, seed=0):
    rng = np.random.default_rng(seed)
    return np.argsort(rng.random((n_sessions, n_docs)), axis=1)


# Long lists --------------------------------------------------------------------------------
@pytest.mark.parametrize("model", [DCMModel(), DBNModel(continuation=1), DBNModel()])
def test_lists_of_a_thousand_rows_without_a_click(model):
    """A product of a thousand skips is 0 in floating point; its logarithm is not."""
    frame = sessions(shuffled(20, 1000))
    clicks = np.where((frame["session"] < 10) & (frame["position"] == 1), 1.0, 0.0)
    model.set_params(max_iter=20, tol=1e-2).fit(frame, clicks)
    assert np.isfinite(model.log_posterior_).all()
    assert np.isfinite(model.documents_).all(axis=None)
    assert np.isfinite(model.score(frame, clicks))


def test_skips_that_never_end_a_visit_are_the_limit_of_those_that_hardly_do():
    from skultr.click_models._cascade import _forward_backward

    rng = np.random.default_rng(0)
    click, after_click = rng.uniform(0.1, 0.9, (6, 5)), np.array([0.2, 0.5, 0.9, 1.0, 1e-9])
    exact = _forward_backward(click, 1.0, after_click)
    near = _forward_backward(click, 1.0 - 1e-12, after_click)
    for one, other in zip(exact, near, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_em_stops_where_the_log_posterior_is_not_finite():
    def expect(tables):
        return {"p": (np.ones(1), np.ones(1))}, np.nan

    with pytest.raises(FloatingPointError, match="log posterior is nan"):
        fit_em(expect, {"p": np.array([0.5])}, {"p": (1, 1)}, tol=1e-3, max_iter=10)


@pytest.mark.parametrize("max_iter", [1, 2, 3, 4])
def test_max_iter_is_not_exceeded(max_iter):
    frame = sessions(shuffled(200, 4))
    clicks = (np.arange(len(frame)) % 3 == 0).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PBMModel(prior="empirical", max_iter=max_iter, tol=1e-15).fit(frame, clicks)
    assert model.n_iter_ == max_iter


# Rates -------------------------------------------------------------------------------------
def test_many_rates_become_few_patterns_with_the_same_clicks():
    width = 60
    frame = pd.DataFrame({"qid": 0, "doc": np.arange(width), "position": np.arange(1, width + 1)})
    # 48 rates 1/48 apart, in a random order, and twelve of 0.
    rates = np.zeros(width)
    rates[np.arange(width) % 5 != 0] = (1 + np.random.default_rng(0).permutation(48)) / 49
    log = make_click_log(frame, np.zeros((width, 0), np.float32), rates)
    with pytest.warns(ClickDataWarning, match="more than 16 rates"):
        patterns = click_patterns(log)
    assert patterns.n_lists == 17
    got = np.bincount(patterns.doc, patterns.clicks)
    assert got.sum() == pytest.approx(rates.sum())
    assert (got[rates == 0] == 0).all()
    # Groups of three neighbours get their mean, which is one step away from the outer ones.
    np.testing.assert_allclose(got, rates, atol=1 / 49 + 1e-12)
    assert (np.diff(got[np.argsort(rates)]) >= -1e-12).all()


def test_few_rates_stay_exactly_as_they_are():
    frame = pd.DataFrame({"qid": 0, "doc": np.arange(40), "position": np.arange(1, 41)})
    rates = np.repeat(np.linspace(0, 1, 17), 3)[:40]
    log = make_click_log(frame, np.zeros((40, 0), np.float32), rates)
    with pytest.warns(ClickDataWarning):
        patterns = click_patterns(log)
    np.testing.assert_allclose(np.bincount(patterns.doc, patterns.clicks), rates, atol=1e-12)


# Few sessions ------------------------------------------------------------------------------
def test_the_prior_of_satisfaction_is_learned_from_few_sessions():
    """Expected satisfactions are shrunk already: as observations they make all documents alike."""
    rng = np.random.default_rng(0)
    attraction, satisfaction = rng.beta(2, 3, 2400), rng.beta(2, 2, 2400)
    query = np.repeat(np.arange(400), 5)
    doc = query[:, None] * 6 + shuffled(2000, 6)
    a, s = attraction[doc], satisfaction[doc]
    clicks = draw_chain_clicks(a, 0.8, 0.8 * (1 - s), rng).ravel().astype(float)
    frame = sessions(doc).assign(qid=np.repeat(query, 6))
    model = DBNModel().fit(frame, clicks)
    truth = satisfaction[model.documents_.index.get_level_values("doc")]
    assert 1 < sum(model.prior_["satisfaction"]) < 20
    # The correlation is .21 with a standard deviation of .03 in ten other draws.
    assert np.corrcoef(model.documents_["satisfaction"], truth)[0, 1] > 0.1


@pytest.mark.parametrize("slope", [2.0, 0.0, -1.0])
def test_satisfaction_follows_attraction_where_it_does(slope):
    """Where few clicks tell of a document's satisfaction, its attraction does."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=1200)
    attraction, satisfaction = expit(z - 1), expit(slope * z + rng.normal(size=1200) - 0.5)
    query = np.repeat(np.arange(100), 30)
    doc = query[:, None] * 12 + shuffled(3000, 12)[:, :8]
    a, s = attraction[doc], satisfaction[doc]
    clicks = draw_chain_clicks(a, 0.9, 0.9 * (1 - s), rng).ravel().astype(float)
    model = DBNModel().fit(sessions(doc).assign(qid=np.repeat(query, 8)), clicks)
    found = logit(model.documents_[["attraction", "satisfaction"]]).cov()
    line = found.loc["attraction", "satisfaction"] / found.loc["attraction", "attraction"]
    # Eight documents a page tell little of satisfaction, so that the line is shrunk by a fifth
    # with a standard deviation of .17 at most. Independent priors leave a line near 0.
    assert line == pytest.approx(slope, abs=0.4 + 0.25 * abs(slope))
    assert all(len(counts) == 2 for counts in model.prior_.values())


@pytest.mark.parametrize(("mean", "strength", "n"), [(0.25, 8, 20), (0.002, 600, 3_000)])
def test_priors_of_hidden_events_without_any_are_those_of_counts(mean, strength, n):
    rng = np.random.default_rng(0)
    p = rng.beta(mean * strength, (1 - mean) * strength, 4_000)
    hits, trials = rng.binomial(n, p).astype(float), np.full(4_000, float(n))
    at = (hits + mean) / (trials + 1)
    hidden = empirical_beta_of_hidden(at, hits, trials, np.zeros(4_000), (hits, trials - hits))
    np.testing.assert_allclose(hidden, empirical_beta(hits, trials), rtol=0.05)


# Rare and unknown ranks --------------------------------------------------------------------
@pytest.mark.parametrize("cls", [PBMModel, UBMModel])
def test_rare_ranks_are_examined_like_their_neighbours(cls):
    rng = np.random.default_rng(0)
    lengths = np.full(1000, 10)
    lengths[0] = 300
    frame = sessions(shuffled(1000, 300), lengths)
    clicks = (rng.random(len(frame)) < 0.4 * 0.7 ** frame["position"]).astype(float)
    clicks[frame["session"] == 0] = 0.0
    table = cls(max_iter=200, tol=1e-6).fit(frame, clicks).examination_
    if cls is UBMModel:
        table = table.xs(0, level="last_click")
    assert table["examination"].loc[11:].max() < 0.1


def test_ubm_is_as_deep_in_prediction_as_in_training():
    frame = sessions(shuffled(50, 3))
    clicks = (np.arange(150) % 2).astype(float)
    model = UBMModel().fit(frame, clicks)
    deep = frame.assign(position=frame["position"] * 1_000)
    for call in (model.predict_click, model.score):
        with pytest.raises(ValueError, match="lists of up to 2000"):
            call(deep, clicks)
    with pytest.raises(ValueError, match="lists of up to 2000"):
        model.sample(deep)


def test_dcm_carries_its_last_known_continuation_down():
    rng = np.random.default_rng(0)
    docs = shuffled(3000, 4)
    clicks = draw_chain_clicks(np.full(docs.shape, 0.5), 1.0, 0.9, rng).ravel().astype(float)
    on = DCMModel().fit(sessions(docs), clicks).continuation_
    assert on.loc[4] == on.loc[3] == pytest.approx(0.9, abs=0.1)


@pytest.mark.parametrize("cls", [PBMModel, UBMModel, DCMModel, RDCTRModel])
def test_the_end_of_a_list_is_no_unknown_position(cls):
    docs = shuffled(200, 4)
    clicks = (docs == 0).astype(float).ravel()
    model = cls(prior=(1, 1)).fit(sessions(docs), clicks)
    # The last row of all is the one that fills up the rectangle.
    lengths = np.where(np.arange(200) == 199, 4, 2)
    short = sessions(docs, lengths)
    short.loc[len(short) - 1, "position"] = 5
    with pytest.warns(AssumptionWarning, match="^Found 1 row at a position"):
        model.predict_click(short, conditional=False)


# Arguments ---------------------------------------------------------------------------------
def test_sample_weights_of_0_lose_no_clicks():
    frame = sessions(shuffled(20, 3))
    clicks = (np.arange(60) % 2).astype(float)
    weight = (frame["session"] < 10).to_numpy(dtype=float)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = DCTRModel().fit(frame, clicks, sample_weight=weight)
        with pytest.raises(ValueError, match="at least one non-zero number"):
            model.score(frame, clicks, sample_weight=0 * weight)
    with pytest.warns(ClickDataWarning, match="15 rows have a click but no position"):
        DCTRModel().fit(frame.assign(impressions=weight), clicks)


def test_priors_that_are_no_numbers():
    with pytest.raises(ValueError, match=r"two numbers above 0.*\('a', 1\)"):
        CascadeModel(prior=("a", 1)).fit(sessions(shuffled(5, 2)), [1.0, 0.0] * 5)


@pytest.mark.parametrize("model", [PBMModel(), DBNModel(), DBNModel(continuation=1)])
def test_by_gradient_n_iter_is_epochs(model):
    docs = shuffled(100, 4)
    frame = sessions(docs).assign(feature=docs.ravel() / 4)
    clicks = (docs == 0).astype(float).ravel()
    model.set_params(
        solver="gradient", max_epochs=3, early_stopping=False, hidden_layer_sizes=()
    ).fit(frame, clicks)
    assert model.n_iter_ == len(model.history_) == 3
    assert model.prior_ == {}


@pytest.mark.parametrize("prior", ["logged", "empirical", (1, 1), None])
def test_ubm_says_that_a_fixed_order_determines_no_examination(prior):
    """Last clicks differ between lists, but no document compares two ranks."""
    X, clicks = sessions(np.tile([3, 1, 2], (40, 1))), np.tile([1, 0, 0, 0, 1, 1], 20)
    with pytest.warns(NotIdentifiableWarning, match="3 bias factors fall into 3 components"):
        UBMModel(prior=prior).fit(X.assign(position=2 * X["position"]), clicks)
    unshown = pd.concat([X, X[:3].assign(position=np.nan)], ignore_index=True)
    with pytest.warns(NotIdentifiableWarning, match="3 bias factors fall into 3 components"):
        UBMModel(prior=prior).fit(unshown, np.append(clicks, [0, 0, 0]))
    UBMModel(prior=prior).fit(sessions(shuffled(40, 3)), clicks)  # no warning


@pytest.mark.filterwarnings("ignore::skultr.exceptions.ClickDataWarning")  # one query
@pytest.mark.parametrize(
    ("solver", "says"),
    [("em", "cannot be compared"), ("gradient", "What connects them is only the network")],
)
def test_what_a_fixed_order_leaves_to_chance_or_to_a_network_is_said(solver, says):
    X = sessions(np.tile([3, 1, 2], (40, 1))).assign(feature=np.tile([0.3, 0.1, 0.2], 40))
    with pytest.warns(NotIdentifiableWarning, match=says):
        PBMModel(solver=solver, max_epochs=1).fit(X, np.tile([1, 0, 0, 0, 1, 1], 20))


def test_ubm_of_few_and_of_many_pairs_per_document_agree(monkeypatch):
    docs = shuffled(400, 6)
    X = sessions(docs)
    clicks = np.random.default_rng(0).random(len(X)) < 0.6 / X["position"]
    found = []
    for sparse in (0.0, 2.0):
        monkeypatch.setattr(_solve, "_SPARSE", sparse)
        model = UBMModel().fit(X, clicks)
        found.append((model.examination_["examination"], model.documents_["upper"]))
    for dense, of_sparse in zip(*found, strict=True):
        np.testing.assert_allclose(dense, of_sparse, rtol=1e-6)


def test_rows_that_are_not_shown_are_not_clicked():
    X = sessions(np.tile([3, 1, 2], (4, 1)))
    clicks = np.tile([1, 0, 0], 4)
    with pytest.warns(NotIdentifiableWarning):
        model = PBMModel().fit(X, clicks)
    unshown = X.assign(position=np.nan)
    assert not model.predict_click(unshown).any()
    assert not model.sample(unshown, random_state=0).any()


def test_ubm_says_where_its_examination_did_not_converge(monkeypatch):
    monkeypatch.setattr(_solve, "_MAX_ITER", 1)
    X = sessions(shuffled(400, 4))
    clicks = np.random.default_rng(0).random(len(X)) < 0.6 / X["position"]
    with pytest.warns(ConvergenceWarning, match="pairs of ranks did not converge in 1 step"):
        UBMModel().fit(X, clicks)


def test_a_pair_that_no_page_had_is_examined_as_others_of_its_distance():
    """Nobody clicks at the top, so that no row has its last click there."""
    rng = np.random.default_rng(0)
    n_pages = 6_000
    docs = rng.permuted(np.tile(np.arange(6), (n_pages, 1)), axis=1)[:, :4]
    relevance = np.linspace(0.2, 0.8, 6)
    clicks = np.zeros((n_pages, 4))
    last = np.zeros(n_pages, dtype=int)
    for rank in range(1, 4):
        distance = np.where(last > 0, rank + 1 - last, 0)
        examination = np.select([distance == 0, distance == 1], [0.5, 0.9], 0.3)
        is_clicked = rng.random(n_pages) < examination * relevance[docs[:, rank]]
        clicks[:, rank] = is_clicked
        last = np.where(is_clicked, rank + 1, last)
    X = pd.DataFrame({"qid": 1, "session": np.repeat(np.arange(n_pages), 4), "doc": docs.ravel()})
    X["position"] = np.tile([1, 2, 3, 4], n_pages)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the scale is that of the top, which has no clicks
        model = UBMModel(prior="empirical").fit(X, clicks.ravel())
    found = model._examination_to(4)
    # About 225 clicks two ranks below the last one: a standard error of 7 %, thrice.
    assert found[1, 1] == pytest.approx(found[2, 2], rel=0.2)
    assert found[2, 1] == pytest.approx(found[3, 2], rel=0.2)
    assert found[2, 2] > 2 * found[3, 2]
