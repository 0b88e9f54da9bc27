"""Examination by dual learning, adjusted for what the logging policy thinks of documents."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import nn

from skultr._log._clicklog import make_click_log
from skultr._torch._joint import ExaminationModule, _mean_effect, fit_dual, fit_policy
from skultr._torch._lists import ListDataset
from skultr._torch._net import NeuralEstimator
from skultr.propensity import DualLearningPropensity
from skultr.rankers import IPSRanker
from skultr.simulation import PositionBasedUser, simulate_clicks

from .._worlds import FEATURES, random_lists, small_log

SHORT = {"max_epochs": 2, "random_state": 0}


def _read(log, clicks):
    return make_click_log(log, log[FEATURES].to_numpy(np.float32), clicks).fold()


@pytest.fixture(scope="module")
def served():
    """Pages in the order of one feature, with clicks that have nothing to do with it."""
    documents, _ = small_log(n_queries=60, n_documents=6, n_sessions=1)
    return simulate_clicks(
        documents.drop(columns="position"),
        n_sessions=3_000,
        scores=documents["f1"].to_numpy(),
        user=PositionBasedUser(1.0),
        random_state=0,
    )[:2]


def test_the_policy_is_learned_from_the_order_and_not_from_clicks(served):
    log, clicks = served
    learner = NeuralEstimator(random_state=0)
    read = _read(log, clicks)
    policy = fit_policy(learner, read)
    scores = learner._outputs(policy, read.features)[:, 0]
    assert spearmanr(scores, read.features[:, 1]).statistic > 0.9
    # Standardised over what was shown.
    shown = np.bincount(read.version, read.weight)
    mean = np.average(scores, weights=shown)
    assert mean == pytest.approx(0, abs=1e-4)
    assert np.average(scores**2, weights=shown) == pytest.approx(1, abs=1e-4)
    other = fit_policy(NeuralEstimator(random_state=0), _read(log, 1 - clicks))
    np.testing.assert_array_equal(learner._outputs(other, read.features)[:, 0], scores)


def test_examination_is_the_mean_over_all_documents():
    log, clicks = random_lists()
    read = _read(log, clicks)
    slope = np.array([0.0, 0.3, -2.0])
    served = np.random.default_rng(0).normal(size=read.n_versions)
    # By rows: each impression of a document counts.
    expected = [
        np.log(np.average(np.exp(each * served[read.version]), weights=read.weight))
        for each in slope
    ]
    # The first is 0, but for the rounding of sums over all rows.
    np.testing.assert_allclose(_mean_effect(slope, served, read), expected, atol=1e-12)


def test_module_adds_the_slope_of_the_factor_times_the_score_of_the_policy():
    """And the policy is not trained, nor has it dropout, while the rest is trained."""
    log, clicks = random_lists(n_sessions=5)
    read = _read(log, clicks)
    batch, _ = ListDataset(read, torch.from_numpy(read.features)).__getitems__([0, 1])
    network = nn.Sequential(nn.Identity(), nn.Linear(3, 1))
    policy = nn.Sequential(nn.Identity(), nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 1)))
    plain = ExaminationModule(network, 3)
    module = ExaminationModule(network, 3, policy=policy)
    module.train()
    with torch.no_grad():
        for each in (plain, module):
            each.examination.copy_(torch.arange(3))
        torch.testing.assert_close(module(batch)[1], plain(batch)[1])
        slope = torch.tensor([-0.5, 0.5, 1.5])
        module.slope.copy_(slope)
        effect = slope[batch.bias] * policy[1][1](batch.features)[:, 0]
        torch.testing.assert_close(module(batch)[1], plain(batch)[1] + batch.pad(effect))
    learned = {name for name, each in module.named_parameters() if each.requires_grad}
    assert learned == {"network.1.weight", "network.1.bias", "examination", "slope"}


def test_a_policy_that_thinks_the_same_of_all_documents_changes_nothing():
    log, clicks = random_lists(n_sessions=600)
    read = _read(log, clicks)
    n_features = read.features.shape[1]
    flat = nn.Linear(n_features, 1)
    nn.init.zeros_(flat.weight)
    nn.init.zeros_(flat.bias)
    learners = [NeuralEstimator(**SHORT) for _ in range(2)]
    policy = nn.Sequential(learners[0]._feature_scaling(read.features), flat)
    plain = fit_dual(learners[0], read)
    adjusted = fit_dual(learners[1], read, policy=policy)
    np.testing.assert_allclose(adjusted, plain, atol=1e-6)


@pytest.mark.filterwarnings("ignore::skultr.exceptions.NotIdentifiableWarning")
def test_a_ranker_takes_it(served):
    log, clicks = served
    propensity = DualLearningPropensity(unconfounded=True, **SHORT)
    ranker = IPSRanker(propensity=propensity, **SHORT).fit(log, clicks)
    assert np.isfinite(ranker.predict(log)).all()
    plain = DualLearningPropensity(**SHORT).fit(log, clicks).examination_["examination"]
    found = propensity.fit(log, clicks).examination_["examination"]
    assert found.iloc[0] == 1
    assert np.abs(found - plain).max() > 1e-6
    same = DualLearningPropensity(unconfounded=True, **SHORT).fit(log, clicks)
    np.testing.assert_array_equal(same.examination_["examination"], found)
