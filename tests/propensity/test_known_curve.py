"""Examination from comparisons within documents, and from a network where there are none."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

from skultr._log._clicklog import make_click_log
from skultr._log._roles import read_features
from skultr._models._table_curve import table_curve, table_of_cells
from skultr.exceptions import (
    AssumptionWarning,
    ClickDataWarning,
    NotIdentifiableError,
    NotIdentifiableWarning,
)
from skultr.propensity._known_curve import _combined, is_known, learned_curve
from skultr.rankers import DLARanker, RegressionEMRanker, TwoTowerRanker

from .._worlds import random_cells, random_lists, small_log

CURVE = np.array([1.0, 0.5, 0.25])
RANKERS = pytest.mark.parametrize(
    "ranker",
    [
        DLARanker(random_state=0, max_epochs=3),
        RegressionEMRanker(random_state=0, max_epochs=3),
        TwoTowerRanker(random_state=0, max_epochs=3),
    ],
    ids=["DLA", "EM", "TwoTower"],
)


def _log(n_impressions=100):
    """Documents at random positions, clicked as often as examination and relevance say."""
    frame, _ = random_lists(n_sessions=100, n_queries=20)
    relevance = np.random.default_rng(0).uniform(0.2, 0.8, frame["doc"].max() + 1)
    rate = relevance[frame["doc"]] * CURVE[frame["position"] - 1]
    return frame.assign(impressions=n_impressions), rate


def _read(frame, rate):
    return make_click_log(frame, read_features(frame).to_numpy(), rate).fold()


def _final(log, network, is_converged=True):
    if network is None:
        return learned_curve(log, lambda: None)
    return _combined(log, table_curve(log), network, is_converged)


def test_table_outweighs_a_network_that_disagrees_and_says_so():
    log = _read(*_log())
    with pytest.warns(AssumptionWarning, match="used signals that the features lack"):
        curve = _final(log, 2 * np.log(CURVE))
    np.testing.assert_allclose(curve.table["examination"], CURVE, rtol=0.02)
    np.testing.assert_allclose(curve.comparison["table"], CURVE, rtol=1e-3)
    np.testing.assert_allclose(curve.comparison["network"], CURVE**2)
    assert curve.log_examination.max() == 0


@pytest.mark.parametrize(
    ("network", "is_converged"),
    [(np.log(CURVE), True), (1.05 * np.log(CURVE), True), (2 * np.log(CURVE), False)],
    ids=["equal", "hardly different", "still learning"],
)
def test_no_warning_without_evidence_that_matters(network, is_converged):
    curve = _final(_read(*_log()), network, is_converged=is_converged)
    np.testing.assert_allclose(curve.table["examination"], CURVE, rtol=0.02)


def test_errors_are_no_smaller_than_those_of_counting_clicks():
    frame, rate = _log(n_impressions=1)
    curve = _final(_read(frame, rate * (frame["position"] < 3)), np.log(CURVE)).table
    variance = 1 / curve["clicks"].clip(lower=0.5)
    assert (curve["standard_error"][1:] >= np.sqrt(variance + variance.iloc[0])[1:]).all()
    assert curve["standard_error"].iloc[0] == 0


def test_network_decides_where_no_document_moved():
    log = _read(*small_log())
    network = -0.3 * np.arange(len(log.bias_values))
    curve = _final(log, network)
    np.testing.assert_allclose(curve.table["examination"], np.exp(network))
    assert np.isinf(curve.table["standard_error"].iloc[1:]).all()


def test_standard_errors_fall_with_the_square_root_of_the_impressions():
    few, many = (
        _final(_read(*_log(n)), None).table["standard_error"].iloc[1:] for n in (100, 400)
    )
    np.testing.assert_allclose(few / many, 2.0, rtol=1e-3)


@RANKERS
def test_table_alone_needs_documents_that_moved(ranker):
    frame, rate = _log()
    found = clone(ranker).set_params(examination="table").fit(frame, rate).examination_
    np.testing.assert_allclose(found["examination"], CURVE, rtol=1e-3)
    log, clicks = small_log()
    with (
        pytest.warns(NotIdentifiableWarning),
        pytest.raises(NotIdentifiableError, match="examination='table', but no clicked document"),
    ):
        clone(ranker).set_params(examination="table").fit(log, clicks)


@RANKERS
def test_clicks_are_predicted_on_their_scale(ranker):
    frame, rate = _log()
    ranker = clone(ranker).set_params(max_epochs=30).fit(frame, rate)
    np.testing.assert_allclose(ranker.examination_["examination"], CURVE, rtol=0.05)
    predicted = ranker.predict_click(frame)
    for position in (1, 2, 3):
        at = (frame["position"] == position).to_numpy()
        assert predicted[at].mean() == pytest.approx(rate[at].mean(), rel=0.02)
    if not isinstance(ranker, DLARanker):
        assert ((ranker.predict(frame) > 0) & (ranker.predict(frame) < 1)).all()


@RANKERS
def test_no_network_learns_examination_where_documents_moved_enough(ranker):
    frame, rate = _log(100)
    enough = clone(ranker).fit(frame, rate)
    first = (frame["session"] < 20).to_numpy()
    with pytest.warns(ClickDataWarning, match="clicks per query with clicks"):
        few = clone(ranker).fit(frame[first].assign(impressions=1), rate[first])
    assert not hasattr(enough, "examination_comparison_")
    np.testing.assert_allclose(enough.examination_["examination"], CURVE, rtol=1e-3)
    assert few.examination_comparison_.columns.tolist()[2:] == ["network", "combined"]


def test_network_alone_learns_the_examination_of_another_outcome():
    """Where no document moved, and where a table would be precise."""
    ranker = DLARanker(examination="network", random_state=0, max_epochs=2)
    fixed, clicks = small_log(n_queries=20)
    moved, rate = _log()
    for frame, click in ((fixed, clicks), (moved, rate)):
        bought = frame.assign(click=click, outcome_purchase=click / 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = clone(ranker).fit(bought, "outcome_purchase")
        assert "network" in fitted.examination_comparison_


def test_network_alone_compares_nothing():
    frame, rate = _log()
    ranker = DLARanker(examination="network", random_state=0, max_epochs=2).fit(frame, rate)
    assert not hasattr(ranker, "examination_comparison_")
    assert "standard_error" not in ranker.examination_


@pytest.mark.parametrize(
    ("n_rows", "n_factors", "fall", "expected"),
    [
        (20_000, 4, 0.0, True),
        (200, 4, 0.0, False),
        (20_000, 8, 3.0, True),  # few clicks at the last factors, whose errors matter little
        (20_000, 1, 0.0, True),  # nothing to compare
    ],
)
def test_a_curve_is_known_where_the_clicks_are(n_rows, n_factors, fall, expected):
    assert is_known(table_of_cells(random_cells(n_rows, 20, n_factors, fall))) is expected


def test_a_curve_is_not_known_where_nothing_connects():
    cells = random_cells(20_000, 20, 4)
    own = table_of_cells(replace(cells, doc=cells.factor.copy()))
    assert not is_known(own)


@pytest.mark.parametrize("changes", [False, True])
def test_documents_that_changed_while_they_moved_do_not_count(changes):
    """What changed may be why a document moved, and why it was clicked."""
    log, clicks = random_lists()
    if changes:
        log = log.assign(price=log["position"].to_numpy(dtype=float))
    log = log.assign(day=1.0)
    features = log.drop(columns=["qid", "session", "doc", "position"], errors="ignore")
    trained = []
    roles = {name: log[name].to_numpy() for name in ("qid", "session", "doc", "position")}
    values = features.to_numpy(dtype=np.float32)
    made = make_click_log(values, values, clicks, None, roles)
    learned_curve(made, lambda: trained.append(1) or np.zeros(len(made.bias_values)))
    assert bool(trained) == changes
