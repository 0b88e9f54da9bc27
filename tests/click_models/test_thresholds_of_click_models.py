"""Both sides of each number that decides something about a user's log."""

import numpy as np
import pandas as pd
import pytest

from skultr._log._clicklog import make_click_log
from skultr.click_models import PBMModel, UBMModel
from skultr.click_models._model import click_patterns
from skultr.click_models._thresholds import (
    GROUP_IMPRESSIONS,
    MOST_RANKS,
    MOST_RATES,
    PRIOR_WEIGHT,
    UNKNOWN_SLOPE,
)
from skultr.exceptions import ClickDataWarning, NotIdentifiableWarning


def _shown(impressions, rates, n_docs=20):
    """A counted log that shows each of many documents at each position."""
    position = np.tile(np.arange(1, len(rates) + 1), n_docs)
    doc = np.repeat(np.arange(n_docs), len(rates))
    shown = np.tile(impressions, n_docs) / n_docs
    table = pd.DataFrame({"qid": 0, "doc": doc, "position": position, "impressions": shown})
    return table.assign(session=np.arange(len(doc))), np.tile(rates, n_docs)


@pytest.mark.parametrize("beyond", [0, 1])
def test_ubm_takes_lists_of_so_many_ranks(beyond):
    deepest = MOST_RANKS.value + beyond
    log = pd.DataFrame({"qid": 0, "session": [0, 0], "doc": [0, 1], "position": [1, deepest]})
    model = UBMModel(prior=(1, 1))
    if beyond:
        with pytest.raises(ValueError, match="takes lists of up to 2000"):
            model.fit(log, [1, 0])
        return
    with pytest.warns(NotIdentifiableWarning):
        model.fit(log, [1, 0])


@pytest.mark.parametrize("beyond", [0, 1])
def test_so_many_rates_of_a_list_are_kept(beyond):
    n_rates = MOST_RATES.value + beyond
    rates = np.arange(1, n_rates + 1) / 100
    position = np.arange(1, n_rates + 1)
    frame = pd.DataFrame({"qid": 0, "doc": position - 1, "position": position})
    log = make_click_log(frame, np.zeros((n_rates, 0), np.float32), rates)
    with pytest.warns(ClickDataWarning, match="more than 16 rates"):
        patterns = click_patterns(log)
    kept = np.bincount(patterns.doc, patterns.clicks)
    assert np.allclose(kept, rates) == (not beyond)


@pytest.mark.parametrize("missing", [0, 1])
def test_neighbours_of_few_impressions_share_their_examination(missing):
    second = GROUP_IMPRESSIONS.value - missing
    log, rates = _shown([1_000, second, 300], [0.5, 0.3, 0.1])
    examination = PBMModel().fit(log, rates).examination_["examination"]
    assert (examination[2] == examination[3]) == bool(missing)


@pytest.mark.parametrize("factor", [0.5, 2])
def test_a_rank_decides_for_itself_from_so_many_impressions(factor):
    second = factor * PRIOR_WEIGHT.value
    log, rates = _shown([10_000, second, 10_000], [0.98, 0.1, 0.8])
    model = PBMModel(prior="empirical", tol=1e-10).fit(log, rates)
    own, third = np.array([0.1, 0.8]) / 0.98
    group = (second * own + 10_000 * third) / (second + 10_000)
    found = model.examination_["examination"][2]
    assert (abs(found - own) < abs(found - group)) == (factor > 1)


def test_examination_without_documents_that_moved_is_half_way_to_one_over_position():
    log = pd.DataFrame(
        {"qid": 0, "session": np.repeat(range(50), 4), "position": [1, 2, 3, 4] * 50}
    )
    log["doc"] = log["position"]
    with pytest.warns(NotIdentifiableWarning):
        model = PBMModel().fit(log, np.arange(200) % 3 == 0)
    expected = np.arange(1.0, 5.0) ** -UNKNOWN_SLOPE.value
    assert np.allclose(model.examination_["examination"], expected)
    assert 0 < UNKNOWN_SLOPE.value < 1
