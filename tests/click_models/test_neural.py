from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from skultr.click_models import CACMModel, NCMModel
from skultr.datasets import make_ltr
from skultr.exceptions import AssumptionWarning, ClickDataWarning
from skultr.simulation import (
    DBNUser,
    PositionBasedUser,
    UBMUser,
    UniformPolicy,
    simulate_clicks,
)
from skultr.testing import check_click_model

MODELS = [NCMModel, CACMModel]
BOTH = pytest.mark.parametrize("model_class", MODELS)


def log_of(user, n_sessions, n_queries=4, n_documents=6, seed=0, **params):
    documents = make_ltr(n_queries, n_documents, 5, random_state=0)
    X, clicks, truth = simulate_clicks(
        documents, n_sessions=n_sessions, policy=UniformPolicy(), user=user, random_state=seed,
        **params,
    )  # fmt: skip
    return documents, X, clicks, truth


def quick(model_class, **params):
    return model_class(**{"max_epochs": 3, "random_state": 0, **params})


@pytest.fixture(scope="module")
def small():
    return log_of(DBNUser(), 600, n_positions=4)


@pytest.fixture(scope="module", params=product(MODELS, ["embedding", "network"]), ids=str)
def fitted(request, small):
    model_class, relevance = request.param
    return quick(model_class, relevance=relevance).fit(small[1], small[2])


def perplexity(p, clicks, width):
    p = np.clip(p, 1e-12, 1 - 1e-12)
    loss = -(clicks * np.log2(p) + (1 - clicks) * np.log2(1 - p)).reshape(-1, width)
    return np.mean(2 ** loss.mean(axis=0))


def one_list(X):
    """The same list, once a click pattern, and the patterns."""
    first = X[X["session"] == X["session"].iloc[0]]
    patterns = np.array(list(product((0, 1), repeat=len(first))))
    lists = pd.concat([first.assign(session=i) for i in range(len(patterns))], ignore_index=True)
    return first, lists, patterns


# --------------------------------------------------------------------------------------
# Probabilities
# --------------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("model_class", MODELS)
def test_networks_of_relevance_keep_the_contract(model_class):
    """With one number per document, ``tests/test_common.py`` asks the same."""
    check_click_model(model_class(relevance="network"))


def test_unconditional_is_the_sum_over_patterns(fitted, small):
    first, lists, patterns = one_list(small[1])
    p = fitted.predict_click(lists, patterns.ravel()).reshape(patterns.shape)
    chance = np.prod(np.where(patterns, p, 1 - p), axis=1)
    fitted.set_params(n_samples=4096)
    found = fitted.predict_click(first, conditional=False)
    fitted.set_params(n_samples=64)
    np.testing.assert_allclose(found, chance @ patterns, atol=2e-3)
    np.testing.assert_allclose(fitted.predict_click(first, conditional=False), found, atol=0.03)
    # Nothing stands above the first row.
    np.testing.assert_allclose(found[0], p[0, 0], atol=1e-12)


def test_a_list_does_not_depend_on_lists_beside_it(fitted, small):
    _, X, clicks, _ = small
    some = X["session"].isin([3, 17]).to_numpy()
    short = X["session"].isin([5]).to_numpy() & (X["position"] <= 2).to_numpy()
    mixed = some | short
    for conditional in (True, False):
        whole = fitted.predict_click(X, clicks, conditional=conditional)
        part = fitted.predict_click(X[mixed], clicks[mixed], conditional=conditional)
        np.testing.assert_allclose(part, whole[mixed], atol=1e-12)


@pytest.mark.parametrize("relevance", ["embedding", "network"])
def test_relevance_of_ncm_is_the_click_of_a_list_of_one(small, relevance):
    documents, X, clicks, _ = small
    model = quick(NCMModel, relevance=relevance).fit(X, clicks)
    alone = documents.assign(session=np.arange(len(documents)), position=1)
    for conditional in (True, False):
        p = model.predict_click(alone, np.zeros(len(alone)), conditional=conditional)
        np.testing.assert_allclose(p, model.predict(documents), atol=1e-12)


def test_cacm_is_examination_times_relevance(small):
    _, X, clicks, _ = small
    model = quick(CACMModel).fit(X, clicks)
    relevance = model.predict(X)
    examination = (model.predict_click(X, clicks) / relevance).reshape(-1, 4)
    # Without a click above, examination is one number a position, whatever is shown.
    nothing = np.zeros(len(X))
    p = (model.predict_click(X, nothing) / relevance).reshape(-1, 4)
    np.testing.assert_allclose(p, np.broadcast_to(p[0], p.shape), atol=1e-12)
    table = model.examination_["examination"].to_numpy()
    np.testing.assert_allclose(table, examination.mean(axis=0) / examination[:, 0].mean())
    assert model.examination_.index.tolist() == [1, 2, 3, 4]
    assert model.examination_["clicks"].sum() == clicks.sum()


# --------------------------------------------------------------------------------------
# What they learn
# --------------------------------------------------------------------------------------
@BOTH
def test_predicts_as_well_as_the_truth(model_class):
    user = UBMUser()
    documents, X, clicks, truth = log_of(user, 8_000, n_documents=5)
    relevance = dict(zip(documents["doc"], truth.relevance_probability, strict=True))
    _, new, seen, _ = log_of(user, 4_000, n_documents=5, seed=1)
    model = model_class(max_epochs=20, random_state=0).fit(X, clicks)
    shown = new["doc"].map(relevance).to_numpy()
    last = seen.reshape(-1, 5) * np.arange(1, 6)
    above = np.maximum.accumulate(np.pad(last, ((0, 0), (1, 0)))[:, :-1], axis=1)
    examination = user.examination_after(5)[np.arange(5), above].ravel()
    best = perplexity(shown * examination, seen, 5)
    assert perplexity(model.predict_click(new, seen), seen, 5) < best + 0.01
    best = perplexity(user.click_probability(shown.reshape(-1, 5)).ravel(), seen, 5)
    assert perplexity(model.predict_click(new, conditional=False), seen, 5) < best + 0.01
    assert np.corrcoef(model.predict(documents), truth.relevance_probability)[0, 1] > 0.97
    assert model.score(new, seen) == pytest.approx(
        -perplexity(model.predict_click(new, seen), seen, 5)
    )


def test_cacm_finds_the_examination_of_a_position_based_user():
    curve = [0.9, 0.6, 0.4, 0.3]
    _, X, clicks, _ = log_of(PositionBasedUser(curve), 15_000, n_documents=4, n_positions=4)
    # One fit in five is further from the truth at some position, by the order of its batches.
    found = [
        CACMModel(batch_size=64, max_epochs=60, random_state=seed).fit(X, clicks).examination_
        for seed in range(6)
    ]
    mean = np.mean([table["examination"] for table in found], axis=0)
    # It lies .08 above the truth at positions 2 and 3, with a standard deviation of .025 between
    # logs. Examination of all that is shown would be off by .67.
    np.testing.assert_allclose(mean, np.array(curve) / 0.9, atol=0.16)


@BOTH
# All rates are 0 or 1: how many impressions such rows have decides about a warning.
@pytest.mark.filterwarnings("ignore:y is 0 or 1 in all rows")
def test_folded_sessions_are_the_same_log(model_class, small):
    _, X, clicks, _ = small
    lists = X.assign(click=clicks)
    key = lists.groupby("session").agg({"doc": tuple, "click": tuple}).apply(tuple, axis=1)
    first = ~key.duplicated()
    times = key.map(key.value_counts())
    keep = X["session"].map(first)
    lean = X[keep].assign(impressions=X["session"].map(times)[keep].astype(float))
    settings = {"early_stopping": False, "max_epochs": 2}
    whole = quick(model_class, **settings).fit(X, clicks)
    folded = quick(model_class, **settings).fit(lean, clicks[keep.to_numpy()])
    np.testing.assert_allclose(
        folded.predict_click(X, clicks), whole.predict_click(X, clicks), atol=1e-5
    )


@BOTH
def test_losses_of_training_and_held_out_sessions_compare(model_class):
    _, X, clicks, _ = log_of(UBMUser(), 4_000, n_documents=3, n_positions=3)
    history = quick(model_class, max_epochs=15).fit(X, clicks).history_.iloc[-1]
    assert history["valid_loss"] == pytest.approx(history["train_loss"], rel=0.15)


# --------------------------------------------------------------------------------------
# What comes in
# --------------------------------------------------------------------------------------
@BOTH
def test_log_without_features(small, model_class):
    _, X, clicks, _ = small
    lean = X[["session", "qid", "doc", "position"]]
    model = quick(model_class).fit(lean, clicks)
    np.testing.assert_allclose(model.predict(X[["doc"]]), model.predict(lean))
    whole = quick(model_class).fit(X, clicks)
    np.testing.assert_allclose(whole.predict(X), model.predict(lean), atol=1e-6)


@BOTH
def test_unseen_documents(small, model_class):
    documents, X, clicks, _ = small
    strangers = documents.assign(doc=documents["doc"] + 1000)
    model = quick(model_class).fit(X, clicks)
    with pytest.warns(AssumptionWarning, match="not in the training log in 24 of 24 rows"):
        relevance = model.predict(strangers)
    assert np.ptp(relevance) == 0
    assert documents_mean(model) == pytest.approx(relevance[0], abs=0.05)
    model = quick(model_class, relevance="network").fit(X, clicks)
    assert np.ptp(model.predict(strangers)) > 0


def documents_mean(model):
    return model.documents_["relevance"].mean()


def test_deeper_lists_than_in_training(fitted, small):
    documents = small[0]
    deeper = documents.assign(position=np.tile(np.arange(1, 7), 4), session=documents["qid"])
    with pytest.warns(AssumptionWarning, match="Found 8 rows below position 4, the deepest"):
        p = fitted.predict_click(deeper, np.zeros(24))
    assert ((p > 0) & (p < 1)).all()


@BOTH
def test_gaps_between_positions_count(small, model_class):
    _, X, clicks, _ = small
    model = quick(model_class, max_epochs=10).fit(X, clicks)
    top = X[X["position"] <= 2]
    nothing = np.zeros(len(top))
    gap = top.assign(position=top["position"].replace({2: 4}))
    one, two = (model.predict_click(frame, nothing)[1::2] for frame in (top, gap))
    assert np.abs(one - two).max() > 1e-3


@BOTH
def test_click_rates_are_split_into_patterns(small, model_class):
    _, X, clicks, _ = small
    cells = X.assign(click=clicks).groupby(["qid", "doc", "position"], as_index=False)
    rate = cells["click"].mean()
    lists = rate.groupby(["qid", "position"], as_index=False).first()
    with pytest.warns(ClickDataWarning, match="click rates between 0 and 1"):
        quick(model_class, early_stopping=False).fit(
            lists[["qid", "position"]].assign(doc=lists["position"]), lists["click"]
        )


@BOTH
def test_too_few_lists_to_stop_early(small, model_class):
    X = small[1]
    one = (X["session"] == 0).to_numpy()
    with pytest.warns(ClickDataWarning, match=r"needs validation sessions, but the log has one"):
        quick(model_class).fit(X[one], np.array([1, 0, 0, 0]))


@BOTH
def test_own_module(small, model_class):
    _, X, clicks, _ = small
    n_out = 16 if model_class is NCMModel else 1
    module = nn.Linear(5, n_out)
    model = quick(model_class, relevance="network", module=module).fit(X, clicks)
    assert model.predict(X).shape == (len(X),)
    with pytest.raises(ValueError, match=rf"outputs of shape .* expected {n_out} number"):
        quick(model_class, relevance="network", module=nn.Linear(5, 3)).fit(X, clicks)


def test_clicks_are_needed(fitted, small):
    with pytest.raises(ValueError, match="needs the clicks y of X"):
        fitted.predict_click(small[1])


@BOTH
def test_a_mean_needs_a_sample(small, model_class):
    with pytest.raises(ValueError, match="n_samples"):
        quick(model_class, n_samples=0).fit(small[1], small[2])


def test_global_random_stream_is_left_alone(small):
    before = torch.random.get_rng_state()
    quick(NCMModel, max_epochs=1).fit(small[1], small[2])
    assert torch.equal(before, torch.random.get_rng_state())
