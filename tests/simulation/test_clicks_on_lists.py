import numpy as np
import pandas as pd
import polars as pl
import pytest

from skultr.datasets import make_ltr
from skultr.evaluation import Interleaver
from skultr.simulation import (
    CarouselUser,
    ClickMatrixUser,
    ContextualPositionBasedUser,
    DBNUser,
    PositionBasedUser,
    TrustBiasUser,
    UserPopulation,
    clicks_on_lists,
    simulate_clicks,
)

#: Two queries with one session each of the same id; relevance is P(found relevant).
LISTS = pd.DataFrame(
    {
        "qid": ["a", "a", "b", "a", "b"],
        "session": 7,
        "position": [2, 1, 1, 3, 2],
        "relevance": [0.0, 1, 1, 1, 0],
    }
)
AS_IT_IS = {"noise": 0, "max_grade": 1, "gain": "linear"}


@pytest.mark.parametrize("frame", [lambda X: X, pl.from_pandas])
def test_each_row_has_its_own_click(frame):
    user = PositionBasedUser([1.0, 1.0, 0.0])
    assert clicks_on_lists(frame(LISTS), user, **AS_IT_IS).tolist() == [0, 1, 1, 0, 0]


def test_rows_that_were_not_shown_are_not_clicked():
    X = LISTS.assign(position=[2.0, 1, 1, np.nan, np.nan], relevance=[1.0, 1, 1, 1, np.nan])
    found = clicks_on_lists(X, PositionBasedUser(0.0), **AS_IT_IS)
    assert found.tolist() == [1, 1, 1, 0, 0]


@pytest.mark.parametrize(
    "user",
    [PositionBasedUser(), TrustBiasUser(), DBNUser(), CarouselUser(), ClickMatrixUser()],
    ids=lambda user: type(user).__name__,
)
def test_clicks_are_those_of_a_simulation(user):
    documents = make_ltr(30, n_documents=6, n_features=2, random_state=0)
    X, clicks, _ = simulate_clicks(documents, n_sessions=20_000, user=user, random_state=0)
    again = clicks_on_lists(X.sample(frac=1, random_state=0), user, random_state=1)
    again = pd.Series(again, X.sample(frac=1, random_state=0).index).sort_index()
    for by in (X["position"], X["relevance"]):
        rates, others = (of.groupby(by.to_numpy()).mean() for of in (pd.Series(clicks), again))
        errors = np.sqrt(0.5 / np.bincount(by.astype(int))[rates.index.astype(int)])
        assert ((rates - others).abs() < 4 * errors).all()


def test_seeds():
    X = Interleaver(random_state=0).interleave(
        pd.DataFrame({"qid": 1, "doc": range(5), "s": range(5), "t": [1, 0, 2, 4, 3]}),
        ["s", "t"],
        500,
    )
    X["relevance"] = X["doc"]
    one, two, three = (clicks_on_lists(X, random_state=seed) for seed in (0, 0, 1))
    assert one.dtype == np.int8
    assert (one == two).all()
    assert (one != three).any()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda X: X.drop(columns="relevance"), "no column 'relevance'"),
        (lambda X: X.drop(columns="session"), "no column 'session'"),
        (lambda X: X.assign(position=[2, 1, 1, 4, 2]), "a list with a gap"),
        (lambda X: X.assign(position=[2, 1, 1, 1, 2]), "position 1"),
        (lambda X: X.assign(position=[2, 1, 10**12, 3, 2]), "a list with a gap"),
        (lambda X: X.assign(impressions=2), "several impressions"),
        (lambda X: X.assign(relevance=[0, 1, 2, 3, 9]), "A grade is 9"),
        (lambda X: X.assign(relevance=np.nan), "A grade is nan"),
        (lambda X: X[:0], "0 rows|no rows"),
    ],
)
def test_bad_lists(change, match):
    with pytest.raises(ValueError, match=match):
        clicks_on_lists(change(LISTS))


def test_bad_users():
    with pytest.raises(TypeError, match="expected an instance"):
        clicks_on_lists(LISTS, PositionBasedUser)
    for user in (ContextualPositionBasedUser(), UserPopulation(5)):
        with pytest.raises(ValueError, match="expected one user without contexts"):
            clicks_on_lists(LISTS, user)
