"""Scores of a network: a function of the row alone, to the bit."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch

from skultr._torch._networks import ScaleFeatures, SideBySide, outputs_of_rows, scoring_network
from skultr.datasets import make_ltr
from skultr.rankers import NaiveRanker
from skultr.simulation import simulate_clicks

N_ROWS = 4_300


def _network(n_features, sizes, n_out=1, **settings):
    torch.manual_seed(0)
    features = np.random.default_rng(0).lognormal(2, 2, (500, n_features)).astype(np.float32)
    network = scoring_network(n_features, n_out, hidden_layer_sizes=sizes, **settings)
    return torch.nn.Sequential(ScaleFeatures(features), network).eval()


def _rows(n_features, n_rows=N_ROWS):
    values = np.random.default_rng(1).lognormal(2, 2, (n_rows, n_features))
    return (values * np.random.default_rng(2).choice([-1, 1], values.shape)).astype(np.float32)


# Widths that are no multiple of a register's are those whose last bits used to move.
NETWORKS = {
    "default": _network(100, (64, 32)),
    "linear": _network(100, ()),
    "odd widths": _network(101, (33, 17), 5),
    "narrow": _network(30, (10,), 5),
    "one feature": _network(1, (3,)),
    "layer": _network(20, (24, 9), normalization="layer", dropout=0.5),
    "double": _network(101, (33,), 5).double(),
    "batch": _network(20, (24, 9), normalization="batch"),
    "side by side": torch.nn.Sequential(
        _network(21, ())[0],
        torch.nn.Sequential(
            SideBySide(scoring_network(21, 3), scoring_network(21, 2, hidden_layer_sizes=(5,))),
            torch.nn.Linear(5, 3),
        ),
    ).eval(),
}


@pytest.fixture(params=NETWORKS)
def network(request):
    return NETWORKS[request.param]


def _features_of(network):
    return _rows(len(network[0].center))


def test_outputs_are_those_of_the_network(network):
    features = _features_of(network)
    with torch.inference_mode():
        expected = copy.deepcopy(network).double()(torch.from_numpy(features).double()).numpy()
    outputs = outputs_of_rows(network, features)
    assert outputs.dtype == np.float64
    assert outputs.shape == expected.shape
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)


def test_outputs_depend_on_nothing_but_the_row(network):
    features = _features_of(network)
    outputs = outputs_of_rows(network, features)
    for n in (1, 7, 100, 129, 4_096):
        np.testing.assert_array_equal(outputs_of_rows(network, features[:n]), outputs[:n])
        np.testing.assert_array_equal(
            outputs_of_rows(network, features[51:][:n]), outputs[51:][:n]
        )
    order = np.random.default_rng(3).permutation(len(features))
    np.testing.assert_array_equal(outputs_of_rows(network, features[order]), outputs[order])


def test_outputs_of_no_rows_and_of_rows_that_cannot_be_written():
    features = _rows(100, 3)
    features.setflags(write=False)
    assert outputs_of_rows(NETWORKS["default"], features).shape == (3, 1)
    assert outputs_of_rows(NETWORKS["odd widths"], _rows(101, 0)).shape == (0, 5)


def test_outputs_do_not_depend_on_the_number_of_threads(network):
    features, threads = _features_of(network), torch.get_num_threads()
    try:
        outputs = []
        for n in (1, 2, 4):
            torch.set_num_threads(n)
            outputs.append(outputs_of_rows(network, features))
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_array_equal(outputs[1], outputs[0])
    np.testing.assert_array_equal(outputs[2], outputs[0])


@pytest.fixture(scope="module")
def fitted():
    documents = make_ltr(n_queries=20, n_features=6, random_state=0)
    log, clicks, _ = simulate_clicks(documents, n_sessions=200, random_state=0)
    return NaiveRanker(max_epochs=2, random_state=0).fit(log, clicks), documents


def test_predict_leaves_nothing_in_the_estimator(fitted):
    ranker, documents = fitted
    before = len(pickle.dumps(ranker)), set(vars(ranker))
    ranker.predict(documents)
    assert (len(pickle.dumps(ranker)), set(vars(ranker))) == before


def test_predict_follows_the_network(fitted):
    ranker, documents = copy.deepcopy(fitted)
    first = ranker.predict(documents)
    with torch.no_grad():
        ranker.network_[1][-1].weight.mul_(2)
    np.testing.assert_allclose(np.ptp(ranker.predict(documents)), 2 * np.ptp(first), rtol=1e-5)


def test_predict_from_several_threads(fitted):
    ranker, documents = fitted
    frames = [documents, pd.DataFrame(documents.iloc[::-1]), documents.iloc[:50]] * 20
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ranker.predict, frames))
    scores = ranker.predict(documents)
    for index, each in enumerate(found):
        expected = (scores, scores[::-1], scores[:50])[index % 3]
        np.testing.assert_array_equal(each, expected)
