"""Vectorization: its formulas, what a score depends on, and what it refuses."""

import copy
import dataclasses
import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from lightgbm import LGBMRegressor
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.exceptions import NotFittedError
from skorch.callbacks import Callback

from skultr import VectorizationRanker
from skultr._log._clicklog import make_click_log
from skultr._torch._joint import ExaminationModule
from skultr._torch._lists import ListBatch, ListDataset, ListLoss, softmax_loss
from skultr._torch._net import NeuralEstimator
from skultr.datasets import make_ltr
from skultr.exceptions import MissingRoleWarning, NotIdentifiableWarning
from skultr.metrics import RankingScorer
from skultr.model_selection import train_test_queries
from skultr.rankers import DistilledRanker
from skultr.rankers._vectorization import spread_within, student_labels
from skultr.rankers._vectorization_base import (
    BaseLoss,
    FactorLoss,
    _documents,
    _moments,
    correction_by_labels,
    fit_base,
    most_probable_factors,
)
from skultr.rankers._vectorization_networks import VectorModule, binomial_loss, merge_networks
from skultr.simulation import (
    EYE_TRACKING,
    ClickMatrixUser,
    PlackettLucePolicy,
    TrustBiasUser,
    simulate_clicks,
)
from skultr.testing._estimator_checks import RankerContract
from tests._worlds import FEATURES, random_lists

QUICK = {"max_epochs": 6, "random_state": 0, "n_components": 3, "n_networks": 2}
PUBLISHED = {"student": None, "n_networks": 1}


@pytest.fixture(scope="module")
def world():
    """Documents of 30 queries, of which ten a query are shown, and a fitted ranker."""
    documents = make_ltr(n_queries=30, n_features=6, random_state=0)
    log, clicks, _ = simulate_clicks(
        documents,
        n_sessions=600,
        user=TrustBiasUser(),
        policy=PlackettLucePolicy(),
        random_state=0,
    )
    return documents, VectorizationRanker(**QUICK).fit(log, clicks), log, clicks


def one_batch(seed=0):
    log, clicks = random_lists(seed=seed)
    log = make_click_log(log, log[FEATURES].to_numpy(np.float32), clicks, roles={}).fold()
    inputs = torch.from_numpy(log.features.astype(np.float64))
    dataset = ListDataset(log, inputs)
    batch, _ = dataset.__getitems__(range(len(dataset)))
    batch.__dict__.update(clicks=batch.clicks.double(), weight=batch.weight.double())
    return log, batch


def linear_network(n_out, seed=0):
    generator = torch.Generator().manual_seed(seed)
    layer = torch.nn.Linear(len(FEATURES), n_out, dtype=torch.float64)
    with torch.no_grad():
        for weight in layer.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    return torch.nn.Sequential(torch.nn.Identity(), layer)


# Formulas ----------------------------------------------------------------------------
def test_base_vector_is_the_most_likely_one(world):
    """Equation 8 against a numerical maximisation of equation 7."""
    documents = world[0]
    literal = VectorizationRanker(**QUICK, bounded_base=False).fit(*world[2:])
    _, base = literal._parts(literal._read_features(documents, reset=False))
    mean, log_variance = np.split(base, 2, axis=1)
    vectors = literal.base_vectors(documents)
    for qid in documents["qid"].unique()[:5]:
        rows = (documents["qid"] == qid).to_numpy()

        def surprise(vector, rows=rows):
            return (0.5 * (vector - mean[rows]) ** 2 / np.exp(log_variance[rows])).sum()

        found = minimize(surprise, np.zeros(3), method="BFGS", options={"gtol": 1e-10})
        np.testing.assert_allclose(vectors.loc[qid], found.x, atol=1e-6)


def test_score_is_the_product_with_the_base_vector(world):
    documents, ranker, _, _ = world
    base = ranker.base_vectors(documents).loc[documents["qid"]].to_numpy()
    expected = (ranker.relevance_embedding(documents) * base).sum(axis=1)
    literal = copy.copy(ranker).set_params(student=None)  # it acts at prediction, too
    np.testing.assert_allclose(literal.predict(documents), expected)


def test_score_is_the_mean_of_base_vector_and_student(world):
    """Each divided by its deviation within the lists of the log."""
    documents, ranker, log, _ = world
    parts = [copy.copy(ranker).set_params(student=each) for each in (None, "only")]
    scores = [part.predict(documents) for part in parts]
    expected = sum(np.divide(*pair) for pair in zip(scores, ranker._spreads, strict=True)) / 2
    np.testing.assert_allclose(ranker.predict(documents), expected)
    lists = np.unique(log["session"], return_inverse=True)[1]
    of_log = parts[1].predict(log)  # no list was served twice, so that none were merged
    assert ranker._spreads[1] == pytest.approx(spread_within(of_log, lists), rel=1e-6)


def test_score_of_the_student_depends_on_the_row_alone(world):
    documents, ranker, _, _ = world
    student = copy.copy(ranker).set_params(student="only")
    scores = student.predict(documents)
    few = documents.iloc[::7]
    np.testing.assert_allclose(student.predict(few), scores[::7], rtol=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(student.predict(documents.drop(columns="qid")), scores)
    assert np.corrcoef(scores, ranker.predict(documents))[0, 1] > 0.5


def test_student_that_is_not_there_yet_leaves_the_base_vector(world):
    """A callback may predict while the vectors are still trained."""
    documents, ranker, _, _ = world
    vectors = torch.nn.Sequential(ranker.network_[0], ranker.network_[1].networks[0])
    shape = ranker.observation_embedding_.shape
    early = copy.copy(ranker).set_params(student="only")
    vars(early).update(early._attributes_so_far(VectorModule(vectors, torch.ones(shape))))
    assert early.student_network_ is None
    expected = early.relevance_embedding(documents).sum(axis=1)
    np.testing.assert_allclose(early.predict(documents), expected)


def test_query_of_which_nothing_was_shown():
    """It has no base vector in the log, and 0 / 0 would warn."""
    log, clicks = random_lists()
    log = log.assign(position=log["position"].where(log["qid"] > 0).astype(float))
    clicks = np.where(log["qid"] > 0, clicks, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        ranker = VectorizationRanker(max_epochs=2, random_state=0).fit(log, clicks)
    assert np.isfinite(ranker.predict(log)).all()


def test_published_form_has_neither_student_nor_second_network(world):
    documents, _, log, clicks = world
    ranker = VectorizationRanker(**QUICK | PUBLISHED).fit(log, clicks)
    assert ranker.student_network_ is None
    assert not hasattr(ranker, "student_history_")
    assert isinstance(ranker.network_[1].networks[0][-1], torch.nn.Linear)
    base = ranker.base_vectors(documents).loc[documents["qid"]].to_numpy()
    expected = (ranker.relevance_embedding(documents) * base).sum(axis=1)
    np.testing.assert_allclose(ranker.predict(documents), expected)


def test_merged_networks_have_the_mean_product_where_it_has_that_rank():
    """Two networks with the same products in another basis: the mean is that product."""
    rng = np.random.default_rng(0)
    r, o, basis = rng.normal(size=(20, 2)), rng.normal(size=(5, 2)), rng.normal(size=(2, 2))
    networks = [torch.nn.Identity(), torch.nn.Linear(2, 2, bias=False)]
    with torch.no_grad():
        networks[1].weight.copy_(torch.from_numpy(basis.T))
    tables = [o, o @ np.linalg.inv(basis).T]
    outputs = np.concatenate([r, r @ basis], axis=1)
    merged, observation = merge_networks(networks, outputs, tables, rng.random(20))
    found = merged.double()(torch.from_numpy(r)).detach().numpy() @ observation.T
    np.testing.assert_allclose(found, r @ o.T, atol=1e-5)
    np.testing.assert_allclose((observation**2).mean(), 1.0)


def test_merged_networks_are_the_best_approximation():
    """Against the singular value decomposition of the weighted mean products."""
    rng = np.random.default_rng(1)
    outputs, weight = rng.normal(size=(20, 4)), rng.random(20)
    tables = [rng.normal(size=(5, 2)) for _ in range(2)]
    mean = (outputs[:, :2] @ tables[0].T + outputs[:, 2:] @ tables[1].T) / 2
    networks = [torch.nn.Linear(4, 2, bias=False) for _ in range(2)]
    with torch.no_grad():
        for network, columns in zip(networks, np.eye(4).reshape(2, 2, 4), strict=True):
            network.weight.copy_(torch.from_numpy(columns))
    merged, observation = merge_networks(networks, outputs, tables, weight)
    found = merged.double()(torch.from_numpy(outputs)).detach().numpy() @ observation.T
    root = np.sqrt(weight)[:, None]
    u, s, v = np.linalg.svd(root * mean, full_matrices=False)
    np.testing.assert_allclose(root * found, (u[:, :2] * s[:2]) @ v[:2], atol=1e-5)


def test_label_is_relevance_plus_weighted_residual():
    log, _ = random_lists(n_sessions=30, seed=0)
    log = make_click_log(log, log[FEATURES].to_numpy(np.float32), np.ones(len(log)), roles={})
    relevance, rate = np.linspace(0.1, 0.9, log.n_rows), np.linspace(0.9, 0.05, log.n_rows)
    found = student_labels(log, relevance, rate)
    ratio = relevance / rate
    weight = np.minimum(ratio, 3 * np.median(ratio))
    assert (weight < ratio).any()
    expected = relevance + weight * (log.clicks - rate)
    np.testing.assert_allclose(found, expected)


def test_labels_without_clicks_are_not_negative():
    log, clicks = random_lists(seed=0)
    log = make_click_log(log, log[FEATURES].to_numpy(np.float32), clicks, roles={})
    log = dataclasses.replace(log, clicks=0 * log.clicks)
    relevance, rate = np.full(log.n_rows, 0.3), np.linspace(0.001, 2.0, log.n_rows)
    assert (student_labels(log, relevance, rate) >= 0).all()


@pytest.mark.parametrize("link", ["logit", "probability"])
def test_gradients_of_the_vectors_against_finite_differences(link):
    _, batch = one_batch()
    network = linear_network(2)
    if link == "logit":
        start = torch.randn(3, 2, dtype=torch.float64) * 0.5
        module, criterion = VectorModule(network, start), ListLoss(softmax_loss, 0.01)
        weight = network[1].weight
    else:
        module = VectorModule(network, torch.ones(3, 2), rate=0.3).double()
        criterion, weight = ListLoss(binomial_loss, 0.01), network[1].weight
    criterion(module(batch), batch).backward()
    for parameter in (module.observation, weight):
        assert_gradient(parameter, lambda: criterion(module(batch), batch))


def test_binomial_loss_is_the_likelihood_and_a_line_above_one():
    clicks, weight = torch.tensor([[3.0, 0.0]]).double(), torch.tensor([[10.0, 0.0]]).double()
    mask = torch.tensor([[True, False]])

    def loss(rate):
        rates = torch.tensor([[rate, 0.5]]).double()
        return binomial_loss(rates, clicks, weight, mask).item()

    assert loss(0.3) == pytest.approx(-(3 * np.log(0.3) + 7 * np.log(0.7)))
    # Above 0.99 every 0.01 costs one unit per missing click.
    assert loss(1.01) - loss(1.0) == pytest.approx(7.0)


def test_positive_vectors_begin_at_the_click_rate():
    network = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Linear(4, 2))
    torch.nn.init.zeros_(network[1].weight)
    torch.nn.init.zeros_(network[1].bias)
    module = VectorModule(network, torch.ones(3, 2), rate=0.07)
    relevance = module.network[1](torch.zeros(1, 4))
    np.testing.assert_allclose((relevance @ module.embedding().T).detach(), 0.07, rtol=1e-5)


def test_gradients_of_the_base_against_finite_differences():
    rng = np.random.default_rng(0)
    network = linear_network(4)
    features = torch.from_numpy(rng.random((7, 3)))
    criterion = BaseLoss(rng.random((7, 2)), rng.random((7, 2))).double()
    weight = torch.from_numpy(rng.random((7, 1)))
    batch = ListBatch(features, torch.arange(7), weight > 0, 0 * weight, weight)
    criterion(network(batch.features), batch).backward()
    assert_gradient(network[1].weight, lambda: criterion(network(batch.features), batch))


def assert_gradient(parameter, loss, step=1e-6):
    flat = parameter.detach().reshape(-1)
    for place in range(len(flat)):
        values = []
        for sign in (1, -1):
            flat[place] += sign * step
            values.append(loss().item())
            flat[place] -= sign * step
        numeric = (values[0] - values[1]) / (2 * step)
        np.testing.assert_allclose(parameter.grad.reshape(-1)[place], numeric, atol=1e-7)


def test_base_loss_by_document_is_that_by_impression():
    """Means and variances of the embeddings above a document say all of equation 10."""
    log, _ = one_batch()
    rng = np.random.default_rng(1)
    observation = rng.normal(size=(3, 2))
    outputs = rng.normal(size=(len(log.features), 4))
    mean, log_variance = outputs[log.doc, :2], outputs[log.doc, 2:]
    error = (mean - observation[log.bias]) ** 2 / np.exp(log_variance) + log_variance
    weight = log.weight
    expected = 0.5 * (weight * error.sum(axis=1)).sum() / weight.sum()
    documents, place = _documents(log)
    mean, variance = _moments(place, log.weight, observation[log.bias])
    documents = dataclasses.replace(documents, weight=documents.weight / documents.weight.mean())
    batch, _ = ListDataset(documents, torch.from_numpy(log.features)).__getitems__(
        range(documents.n_rows)
    )
    found = BaseLoss(mean, variance)(torch.from_numpy(outputs)[documents.version], batch)
    np.testing.assert_allclose(found.item(), expected, rtol=1e-5)


# The most probable common bias factor ---------------------------------------------------
def test_base_vector_is_that_of_the_factor_in_common():
    """Equation 5: each query has one position at which all of its documents were shown."""
    rng = np.random.default_rng(0)
    common = {0: 2, 1: 3, 2: 1}
    lists = []
    for session in range(900):
        qid = session % 3
        others = [position for position in (1, 2, 3) if position != common[qid]]
        # A document is at the common position, or at one that the other never has.
        first = int(rng.random() < 0.5)
        position = np.full(2, common[qid])
        position[1 - first] = others[1 - first]
        lists.append(pd.DataFrame({"qid": qid, "session": session, "position": position}))
    log = pd.concat(lists, ignore_index=True)
    log["doc"] = np.tile([0, 1], 900) + 2 * log["qid"]
    features = np.eye(6)[log["doc"]]
    log = log.assign(**{f"f{place}": column for place, column in enumerate(features.T)})
    clicks = (rng.random(len(log)) < 0.4).astype(int)
    ranker = VectorizationRanker(
        base="factor", **PUBLISHED, early_stopping=False, learning_rate=0.02, random_state=0
    ).fit(log, clicks)
    candidates = log.drop_duplicates("doc")
    expected = ranker.observation_embedding_.loc[[2, 3, 1]].to_numpy()
    np.testing.assert_array_equal(ranker.base_vectors(candidates), expected)


def test_most_probable_factor_is_the_product_over_candidates():
    """Equation 6, and a factor that one document never had is not the most probable."""
    chance = np.array([[0.6, 0.3, 0.1], [0.1, 0.3, 0.6], [0.2, 0.2, 0.6], [0.5, 0.499, 0.001]])
    query = np.array([0, 0, 1, 1])
    logits = np.log(chance) + np.arange(4.0)[:, None]
    found = most_probable_factors(query, 2, logits)
    expected = [np.prod(chance[query == each], axis=0).argmax() for each in (0, 1)]
    assert found.tolist() == expected == [1, 0]


def test_factor_loss_is_the_likelihood_of_impressions():
    log, _ = one_batch()
    logits = np.random.default_rng(1).normal(size=(len(log.features), 3))
    chance = log_softmax(logits, axis=1)[log.version, log.bias]
    documents, _ = _documents(log, by_factor=True)
    assert documents.weight.sum() == log.weight.sum()
    documents = dataclasses.replace(documents, weight=documents.weight / documents.weight.mean())
    batch, _ = ListDataset(documents, torch.from_numpy(log.features)).__getitems__(
        range(documents.n_rows)
    )
    found = FactorLoss()(torch.from_numpy(logits)[documents.version], batch)
    np.testing.assert_allclose(found.item(), -np.average(chance, weights=log.weight), rtol=1e-5)


def test_factor_begins_with_the_share_of_impressions():
    log, _ = one_batch()
    base = NeuralEstimator(
        max_epochs=1, learning_rate=1e-12, early_stopping=False, hidden_layer_sizes=()
    )
    fit_base(base, torch.nn.Identity(), log, np.zeros((3, 2)), by_factor=True)
    share = np.bincount(log.bias, log.weight) / log.weight.sum()
    np.testing.assert_allclose(base.network_[1][-1].bias.detach(), np.log(share), rtol=1e-5)


# Base vectors from labelled documents ----------------------------------------------------
def test_correction_by_labels_is_the_posterior_mean():
    """Against the normal equations, one width of the prior at a time."""
    rng = np.random.default_rng(0)
    query = np.repeat([0, 1, 2, 3], 6)
    scores, relevance = rng.normal(size=24), rng.normal(size=(24, 2)) * [1.0, 30.0]
    grade = scores + relevance @ [0.5, 0.02] + rng.normal(size=24)
    scale, shift = correction_by_labels(scores, relevance, grade, query)
    g, s, r = (
        np.concatenate([part[query == q] - part[query == q].mean(axis=0) for q in range(4)])
        for part in (grade, scores, relevance)
    )
    assert scale == pytest.approx(s @ g / (s @ s))
    n, rest, covariance = 20, g - scale * s, r.T @ r / 20
    found, weight = [np.zeros(2)], [1.0]
    for documents in 10.0 ** np.arange(1, 4.1, 0.5):
        prior = np.linalg.inv(covariance) / documents  # variance, in units of the residual's
        marginal = np.eye(24) + r @ prior @ r.T
        found.append(prior @ r.T @ np.linalg.solve(marginal, rest))
        fit = rest @ np.linalg.solve(marginal, rest) / (rest @ rest)
        log_weight = -0.5 * n * np.log(fit) - 0.5 * np.linalg.slogdet(marginal)[1]
        weight.append(np.exp(log_weight) / 7)
    np.testing.assert_allclose(shift, np.average(found, axis=0, weights=weight))


@pytest.mark.parametrize("student", ["average", None])
def test_labels_turn_the_base_vectors_toward_the_grades(world, student):
    """With all grades, the equations' solution: base vectors that a regression would find."""
    documents, ranker, _, _ = world
    ranker = copy.copy(ranker).set_params(student=student)
    vectors, scores = ranker.base_vectors(documents), ranker.predict(documents)
    relevance = ranker.relevance_embedding(documents)
    judged = relevance @ [1.0, -2.0, 0.5] + 20.0  # an order that some base vector has
    assert ranker.fit_base_vectors(documents, judged) is ranker
    moved = ranker.base_vectors(documents) - vectors
    np.testing.assert_allclose(moved, np.tile(moved.to_numpy()[:1], (30, 1)), atol=1e-5)
    within = judged - documents.assign(judged=judged).groupby("qid")["judged"].transform("mean")
    before = np.corrcoef(within, _within(scores, documents))[0, 1]
    after = np.corrcoef(within, _within(ranker.predict(documents), documents))[0, 1]
    assert after > 0.97 > before
    # A second fit starts from the clicks again, and fit forgets it.
    once = ranker.predict(documents)
    np.testing.assert_allclose(ranker.fit_base_vectors(documents, judged).predict(documents), once)
    flat = np.where(documents.index == 0, 1.0, 0.0)
    assert not np.allclose(ranker.fit_base_vectors(documents, flat).predict(documents), once)
    assert "_base_shift" not in vars(ranker.fit(world[2], world[3]))


def _within(values, documents):
    return values - documents.assign(v=values).groupby("qid")["v"].transform("mean").to_numpy()


def test_a_few_labels_help_where_clicks_contradict_relevance():
    """Users find the answer of the best documents on the page, the less so the deeper."""
    relevance = np.array([0.05, 0.15, 0.35, 0.6, 0.9])[:, None]
    answered = np.array([0.5, 0.45, 0.4, 0.3, 0.2])[:, None]
    share = np.linspace(1.0, 0.4, 10)
    user = ClickMatrixUser(EYE_TRACKING * (relevance * (1 - share) + answered * share))
    gains = []
    for seed in range(3):
        documents = make_ltr(n_queries=300, n_features=8, random_state=seed)
        train, rest = train_test_queries(documents, train_size=150, random_state=seed)
        log, clicks, _ = simulate_clicks(train, n_sessions=6_000, user=user, random_state=seed)
        settings = {**PUBLISHED, "n_components": 8, "max_epochs": 15, "random_state": seed}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotIdentifiableWarning)
            ranker = VectorizationRanker(**settings).fit(log, clicks)
        judged, test = train_test_queries(rest, train_size=20, random_state=seed)
        before = ranker.score(test, "relevance")
        after = ranker.fit_base_vectors(judged, "relevance").score(test, "relevance")
        gains.append(after - before)
    # In ten worlds .1 with a standard deviation of .06: a few have no better order to be found.
    assert min(gains) > -0.02
    assert np.mean(gains) > 0.01


def test_labels_of_some_candidates_in_frames_and_arrays(world):
    documents, ranker, _, _ = world
    features = [name for name in documents if name.startswith("feature")]
    grade = documents["relevance"].astype(float).where(documents.index % 3 == 0)
    some = documents.assign(grade=grade)
    expected = copy.copy(ranker).fit_base_vectors(documents, grade).predict(documents)
    text = documents.assign(qid="q" + documents["qid"].astype(str))
    for X, y, qid in (
        (some, "grade", None),
        (pl.from_pandas(some), "grade", None),
        (text, grade.to_numpy(), None),
        (documents[features].to_numpy(), grade.to_numpy(), documents["qid"]),
    ):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            found = copy.copy(ranker).fit_base_vectors(X, y, qid=qid)
        np.testing.assert_allclose(found.predict(documents), expected, rtol=1e-6)
    loaded = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(loaded.predict(documents), found.predict(documents))


def test_labels_that_order_nothing(world):
    documents, ranker, _, _ = world
    ranker = copy.copy(ranker).fit_base_vectors(documents, "relevance")
    before = ranker.predict(documents)
    for y, message in (
        (np.ones(len(documents)), "differ within no query"),
        (np.full(len(documents), np.nan), "grades of 0 documents of 0 queries differ within no"),
        (np.where(documents.index < 2, [0.0, 1.0] * (len(documents) // 2), np.nan), None),
        (-documents["relevance"], "relevance must be finite and at least 0"),
        ("grade", "grade"),
        ([1.0, 2.0], "expected one value for each row"),
    ):
        if message is None:
            ranker.fit_base_vectors(documents, y)
            assert np.isfinite(ranker.predict(documents)).all()
            before = ranker.predict(documents)
            continue
        with pytest.raises((ValueError, KeyError), match=message):
            ranker.fit_base_vectors(documents, y)
        np.testing.assert_array_equal(ranker.predict(documents), before)
    with pytest.raises(ValueError, match="student='only' ranks without base vectors"):
        ranker.set_params(student="only").fit_base_vectors(documents, "relevance")
    with pytest.raises(NotFittedError):
        VectorizationRanker().fit_base_vectors(documents, "relevance")


def test_a_candidate_in_several_rows_is_one_label(world):
    """As in a log; with other grades in other rows, it has their mean."""
    documents, ranker, _, _ = world
    grade = documents["relevance"].astype(float).where(documents.index % 3 > 0)
    expected = copy.copy(ranker).fit_base_vectors(documents, grade).predict(documents)
    twice = pd.concat([documents] * 3, ignore_index=True)
    higher = grade + np.where(grade > 0, 1.0, 0.0)
    lower = grade - np.where(grade > 0, 1.0, 0.0)
    for grades in ([grade] * 3, [grade * np.nan, higher, lower]):
        found = copy.copy(ranker).fit_base_vectors(twice, np.concatenate(grades))
        np.testing.assert_allclose(found.predict(documents), expected, rtol=1e-6)


def test_grades_that_are_no_numbers_are_named_by_their_column(world):
    documents, ranker, _, _ = world
    with pytest.raises(ValueError, match="The column 'grade' must hold numbers"):
        ranker.fit_base_vectors(documents.assign(grade="good"), "grade")
    with pytest.raises(ValueError, match="expected one value for each row"):
        ranker.fit_base_vectors(documents, None)


@pytest.mark.parametrize("base", ["embedding", "factor"])
def test_a_parameter_set_after_fit_changes_no_base_vector(world, base):
    documents, _, log, clicks = world
    ranker = VectorizationRanker(**QUICK | {"max_epochs": 1}, base=base).fit(log, clicks)
    expected = ranker.predict(documents)
    other = "factor" if base == "embedding" else "embedding"
    np.testing.assert_array_equal(ranker.set_params(base=other).predict(documents), expected)


# Laws --------------------------------------------------------------------------------
def test_one_component_is_the_scalar_product_of_logits():
    log, batch = one_batch()
    module = VectorModule(linear_network(1), torch.tensor([[1.0], [0.5], [-0.2]]).double())
    score = (log.features @ module.network[1].weight.detach().numpy().T)[:, 0]
    score += module.network[1].bias.item()
    examination = np.array([1.0, 0.5, -0.2])
    loss = 0.0
    for start, stop in zip(log.offsets[:-1], log.offsets[1:], strict=True):
        rows = np.arange(start, stop)
        logits = score[log.doc[rows]] * examination[log.bias[rows]]
        loss -= log.clicks[rows] @ log_softmax(logits)
    found = softmax_loss(module(batch), batch.clicks, batch.weight, batch.mask)
    np.testing.assert_allclose(found.item(), loss, rtol=1e-6)


def test_a_constant_component_each_is_the_additive_two_tower():
    """r = [g, 1] and o = [1, h] give the logits g + h."""
    _, batch = one_batch()
    scalar = linear_network(1)
    towers = ExaminationModule(scalar, 3, trained=False).double()
    with torch.no_grad():
        towers.examination.copy_(torch.tensor([0.0, -0.7, -1.3]))
    both = linear_network(2)
    with torch.no_grad():
        both[1].weight.copy_(torch.cat([scalar[1].weight, torch.zeros(1, len(FEATURES))]))
        both[1].bias.copy_(torch.cat([scalar[1].bias, torch.ones(1)]))
    observation = torch.stack([torch.ones(3), towers.examination.detach()], dim=1).double()
    relevance, examination = towers(batch)
    found = VectorModule(both, observation)(batch)
    torch.testing.assert_close(found, (relevance + examination) * batch.mask)


# What a score depends on -------------------------------------------------------------
def test_order_of_the_candidates_does_not_matter(world):
    documents, ranker, _, _ = world
    order = np.random.default_rng(0).permutation(len(documents))
    found = ranker.predict(documents.iloc[order])
    np.testing.assert_allclose(found, ranker.predict(documents)[order], rtol=1e-9)


def test_queries_together_or_apart(world):
    documents, ranker, _, _ = world
    apart = [ranker.predict(rows) for _, rows in documents.groupby("qid", sort=False)]
    np.testing.assert_allclose(np.concatenate(apart), ranker.predict(documents), rtol=1e-9)


def test_base_vector_stays_within_the_observation_embeddings(world):
    """Candidates unlike all that was shown: eq. 8 as it stands follows them, ours does not."""
    documents, _, log, clicks = world
    features = [name for name in documents if name.startswith("feature")]
    strange = documents.assign(**{name: 1e4 * documents[name] - 5e3 for name in features})
    both = pd.concat([documents, strange], ignore_index=True)
    ranker = VectorizationRanker(**QUICK, batch_size=8).fit(log, clicks)
    assert distance_to_hull(ranker, ranker.base_vectors(both)) < 1e-6
    literal = ranker.set_params(bounded_base=False)  # it acts at prediction alone
    assert distance_to_hull(literal, literal.base_vectors(both)) > 0.05


def distance_to_hull(ranker, vectors):
    vectors = vectors.to_numpy()
    return np.abs(ranker._hull.pull_in(vectors) - vectors).max()


def test_query_of_one_candidate(world):
    documents, ranker, _, _ = world
    alone = documents.drop_duplicates("qid")
    assert np.isfinite(ranker.predict(alone)).all()
    assert (ranker.rank(alone) == 1).all()


# Roles -------------------------------------------------------------------------------
def test_rows_without_queries_are_one_query_with_a_warning(world):
    documents, ranker, _, _ = world
    bare = documents.drop(columns="qid")
    with pytest.warns(MissingRoleWarning, match="VectorizationRanker.predict got no query ids"):
        scores = ranker.predict(bare)
    np.testing.assert_array_equal(scores, ranker.predict(bare, qid=np.zeros(len(bare))))
    with pytest.warns(MissingRoleWarning, match="base_vectors got no query ids"):
        assert len(ranker.base_vectors(bare)) == 1
    ranker.predict(bare.head(1))  # one row is one query


def test_arrays_with_queries_by_keyword(world):
    documents, ranker, _, _ = world
    features = [name for name in documents if name.startswith("feature")]
    array, qid = documents[features].to_numpy(), documents["qid"]
    expected = ranker.predict(documents)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        np.testing.assert_array_equal(ranker.predict(array, qid=qid), expected)
        np.testing.assert_array_equal(ranker.rank(array, qid=qid), ranker.rank(documents))
        grade = documents["relevance"].to_numpy()
        assert ranker.score(array, grade, qid=qid) == ranker.score(documents, grade)


def test_one_row_keeps_the_name_of_its_query(world):
    documents, ranker, _, _ = world
    assert ranker.base_vectors(documents.tail(1)).index.tolist() == [29]
    assert len(ranker.base_vectors(documents.drop(columns="qid").tail(1))) == 1


def test_before_fit(world):
    documents = world[0]
    for method in ("predict", "rank", "base_vectors", "relevance_embedding", "predict_click"):
        with pytest.raises(NotFittedError):
            getattr(VectorizationRanker(), method)(documents)
    with pytest.raises(NotFittedError):
        VectorizationRanker().score(documents, documents["relevance"])


def test_frames_and_arrays_are_scored_alike(world):
    """The scorer hands the queries of an array on to ``predict``."""
    documents, _, log, clicks = world
    names = [name for name in documents if name.startswith("feature")]
    ranker = VectorizationRanker(**QUICK).fit(log[names].to_numpy(), clicks, **roles_of(log))
    array, roles = documents[names].to_numpy(), documents[["qid", "relevance", "doc"]]
    found = RankingScorer()(ranker, array, **dict(roles.items()))
    framed = VectorizationRanker(**QUICK).fit(log, clicks)
    assert found == RankingScorer()(framed, documents)


def roles_of(log):
    return {name: log[name].to_numpy() for name in ("session", "qid", "doc", "position")}


def test_as_a_teacher_of_trees(world):
    documents, _, log, clicks = world
    student = LGBMRegressor(n_estimators=20, n_jobs=1, verbosity=-1)
    distilled = DistilledRanker(VectorizationRanker(**QUICK), student).fit(log, clicks)
    teacher = VectorizationRanker(**QUICK).fit(log, clicks)
    together = np.corrcoef(distilled.predict(documents), teacher.predict(documents))[0, 1]
    assert together > 0.7


def test_monitoring_of_training(world, callbacks):
    """Callbacks score the model in the middle of its training."""
    _, _, log, clicks = world
    monitor = callbacks.ScoringMonitor(scoring={"ndcg": RankingScorer()})
    ranker = VectorizationRanker(**QUICK).set_callbacks(monitor)
    ranker.fit(log, clicks)
    scores = monitor.get_logs().data_as_pandas["ndcg"]
    assert len(scores) >= ranker.n_iter_
    assert scores.between(0.1, 1.0).all()


def test_more_components_than_bias_factors():
    log, clicks = random_lists()
    ranker = VectorizationRanker(n_components=4, max_epochs=2, random_state=0)
    with pytest.warns(NotIdentifiableWarning, match="n_components=4, but the log has 3 bias"):
        ranker.fit(log, clicks)
    assert np.isfinite(ranker.predict(log)).all()


def test_one_bias_factor():
    log, clicks = random_lists(n_shown=1)
    ranker = VectorizationRanker(n_components=1, max_epochs=2, random_state=0)
    ranker.fit(log, clicks)
    np.testing.assert_allclose(
        ranker.base_vectors(log), np.tile(ranker.observation_embedding_, (3, 1))
    )


def test_module_with_another_number_of_outputs():
    log, clicks = random_lists()
    ranker = VectorizationRanker(module=lambda n_features: torch.nn.Linear(n_features, 5))
    with pytest.raises(ValueError, match=r"expected n_components=2 numbers per document"):
        ranker.fit(log, clicks)


# Training ----------------------------------------------------------------------------
def _with(**settings):
    """The ranker with other settings than users can choose."""
    return type("Changed", (VectorizationRanker,), settings)


class Record(Callback):
    """Whether the observation embeddings are where they began, by epoch."""

    def __init__(self, still):
        self.still = still

    def on_epoch_end(self, net, **kwargs):
        self.still.append(bool((net.module_.observation == 1.0).all()))


@pytest.mark.parametrize(
    ("frozen", "max_epochs", "expected"),
    [
        (None, 12, [True] * 6 + [False] * 6),
        (None, 4, [True, True, False, False]),
        (0, 4, [False] * 4),
        (1, 4, [False] * 4),
        (2, 4, [True, False, False, False]),
        (1000, 4, [True, True, False, False]),
    ],
)
def test_observation_embeddings_stay_while_frozen(frozen, max_epochs, expected):
    """For a number of steps, of which an epoch has two; at most half of the epochs."""
    log, clicks = random_lists()
    still = []
    ranker = _with(_frozen_steps=frozen)(
        **PUBLISHED,
        max_epochs=max_epochs,
        batch_size=40,  # of 67 lists with a click
        early_stopping=False,
        net_params={"callbacks": [("record", Record(still))]},
        random_state=0,
    )
    ranker.fit(log, clicks)
    assert len(ranker.net_.history[0, "batches"]) == 2
    assert still == expected


def test_student_has_one_output_whatever_the_module():
    log, clicks = random_lists()
    ranker = VectorizationRanker(
        module=lambda n_features: torch.nn.Linear(n_features, 2), max_epochs=2, random_state=0
    ).fit(log, clicks)
    students = ranker.student_network_[1].networks
    assert [student[-1].out_features for student in students] == [1, 1, 1]
    assert np.isfinite(ranker.predict(log)).all()


def test_weights_that_the_user_froze_stay():
    log, clicks = random_lists()

    def half_frozen(n_features):
        network = torch.nn.Sequential(torch.nn.Linear(n_features, 3), torch.nn.Linear(3, 2))
        network[1].requires_grad_(False)
        with torch.no_grad():
            network[1].bias.copy_(torch.tensor([0.3, -0.4]))
        return network

    ranker = VectorizationRanker(
        **PUBLISHED, module=half_frozen, max_epochs=4, early_stopping=False, random_state=0
    )
    bias = ranker.fit(log, clicks).network_[1].networks[0][1].bias
    np.testing.assert_allclose(bias.detach().cpu(), [0.3, -0.4])


def test_early_stopping_begins_when_the_embeddings_are_free(world, monkeypatch):
    _, _, log, clicks = world
    monkeypatch.setattr(VectorizationRanker, "_frozen_epochs", 8)
    ranker = VectorizationRanker(
        **PUBLISHED, n_iter_no_change=2, learning_rate=0.05, max_epochs=20, random_state=0
    )
    ranker.fit(log, clicks)
    assert ranker.n_iter_ >= 10


def test_no_click_at_all():
    log, clicks = random_lists()
    with pytest.warns(UserWarning, match="click"):
        ranker = VectorizationRanker(max_epochs=2, random_state=0).fit(log, 0 * clicks)
    assert (ranker.predict_click(log) == 0).all()
    assert np.isfinite(ranker.predict(log)).all()


# Clicks ------------------------------------------------------------------------------
def test_click_rate_of_the_log_and_unshown_rows(world):
    _, ranker, log, clicks = world
    rate = ranker.predict_click(log)
    assert ((rate >= 0) & (rate <= 1)).all()
    assert abs(rate.mean() - clicks.mean()) < 0.01
    unshown = log.assign(position=log["position"].where(log["position"] > 1))
    np.testing.assert_array_equal(
        ranker.predict_click(unshown) == 0, unshown["position"].isna().to_numpy()
    )


def test_unseen_bias_factor(world):
    _, ranker, log, _ = world
    with pytest.raises(ValueError, match="bias factor that was not in the training log"):
        ranker.predict_click(log.assign(position=99))
    with pytest.raises(ValueError, match="neither a column 'bias' nor 'position'"):
        ranker.predict_click(log.drop(columns="position"))


def test_probability_link_learns_clicks_under_trust_bias():
    """Two components hold any affine function of relevance, by document and position."""
    rng = np.random.default_rng(0)
    n_docs, n_positions = 8, 4
    relevance = np.linspace(0.0, 1.0, n_docs)
    alpha, beta = TrustBiasUser().affine_at(n_positions)
    rate = alpha * relevance[:, None] + beta
    # Each document stands as often at each position, so that none is learned less well.
    orders = [
        np.roll(order, turn)
        for order in [rng.permutation(n_docs) for _ in range(8)]
        for turn in range(n_docs)
    ]
    rows = [
        (session, place + 1, doc)
        for session, order in enumerate(orders)
        for place, doc in enumerate(order[:n_positions])
    ]
    log = pd.DataFrame(rows, columns=["session", "position", "doc"]).assign(qid=0)
    chance = rate[log["doc"], log["position"] - 1]
    log[[f"is_{doc}" for doc in range(n_docs)]] = np.eye(n_docs)[log["doc"]]
    # So that 250 epochs are enough.
    ranker = _with(_observation_learning_rate=0.05, _frozen_steps=5)(
        link="probability",
        hidden_layer_sizes=(),
        learning_rate=0.05,
        max_epochs=250,
        batch_size=64,
        weight_decay=0.0,
        random_state=0,
    )
    ranker.fit(log, chance)  # the expected clicks: what is left is error of the model
    np.testing.assert_allclose(ranker.predict_click(log), chance, atol=0.02)
    best_first = ranker.predict(log.drop_duplicates("doc").sort_values("doc"))
    assert (np.diff(best_first) > 0).all()


def test_base_model_begins_at_the_marginal():
    """Before training every document has the mean embedding of all impressions."""
    log, _ = one_batch()
    observation = np.arange(6.0).reshape(3, 2)
    base = NeuralEstimator(
        max_epochs=1, learning_rate=1e-12, early_stopping=False, hidden_layer_sizes=()
    )
    fit_base(base, torch.nn.Identity(), log, observation)
    expected = np.average(observation[log.bias], axis=0, weights=log.weight)
    np.testing.assert_allclose(base.network_[1][-1].bias.detach()[:2], expected, rtol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("random_state", [0, 1])
def test_rounding_does_not_decide_the_first_free_step(random_state):
    """The gradient of a bias is rounding error while all embeddings are equal."""
    settings = {"max_epochs": 10, "early_stopping": False, "batch_size": 4096}
    ranker = VectorizationRanker(
        **PUBLISHED, **settings, learning_rate=0.05, random_state=random_state
    )
    contract = RankerContract(ranker)
    contract.estimator = ranker  # with its own seed
    contract.check_relabelled_ids()
