"""Tables of judgments that come from clicks are told by their columns."""

import pandas as pd
import pytest

from skultr._log._judgment_tables import refuse_labels_of_clicks
from skultr.propensity import relevance_labels
from skultr.serving import click_judgments

LOG = pd.DataFrame({"qid": 1, "doc": ["a", "b"], "position": [1, 2], "impressions": 100})


@pytest.mark.parametrize("make", [click_judgments, relevance_labels])
def test_what_is_made_of_clicks_is_refused_by_its_maker(make):
    table = make(LOG, [0.3, 0.2], propensity=[1.0, 0.5])
    with pytest.raises(ValueError, match=rf"^judgments has the column .* {make.__name__} do"):
        refuse_labels_of_clicks(table.columns, "judgments")


def test_ratings_of_people_pass_with_whatever_stands_beside_them():
    refuse_labels_of_clicks(["qid", "doc", "relevance", "clicks", "labels"], "judgments")
