"""What inverse propensities do to few clicks, and the clicks that labels count."""

import warnings

import pandas as pd
import pytest

from skultr.exceptions import UnstableWeightsWarning
from skultr.propensity import relevance_labels


@pytest.mark.parametrize(("n_rare", "warned"), [(4, True), (6, False)])
def test_a_handful_is_at_most_a_twentieth_of_the_clicks(n_rare, warned):
    """100 clicks, of which a few carry nearly all of the weight."""
    X = pd.DataFrame(
        {"qid": 1, "doc": ["a", "b"], "position": [1, 2], "impressions": [100 - n_rare, n_rare]}
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        relevance_labels(X, X["impressions"], propensity=[1.0, 0.001])
    assert any(each.category is UnstableWeightsWarning for each in caught) == warned


def test_labels_count_clicks_as_they_were():
    X = pd.DataFrame({"qid": 1, "doc": ["a", "b"], "position": [1, 2], "impressions": [100, 50]})
    labels = relevance_labels(X, [0.3, 0.2], propensity=[1.0, 0.5])
    assert labels["clicks"].tolist() == [30.0, 10.0]
    assert labels["impressions"].tolist() == [100.0, 50.0]
    assert labels["label"].tolist() == [0.3, 0.4]
