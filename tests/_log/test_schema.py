"""Plans of columns: kept by schema, and never stale."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skultr._log._roles import feature_plan, read_features
from skultr.datasets import make_ltr
from skultr.preprocessing import OnFeatures
from skultr.rankers import NaiveRanker
from skultr.simulation import simulate_clicks

KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame}


@pytest.fixture(params=KINDS)
def make(request):
    return KINDS[request.param]


def _frame(make, **changes):
    columns = {"a": [1.5, 2.5], "qid": [1, 1], "b": [3, 4], "c": [0.5, 0.25]}
    return make(columns | changes)


def test_features_of_one_schema_after_another(make):
    for _ in range(2):
        features = read_features(_frame(make))
        assert features.columns.tolist() == ["a", "b", "c"]
        np.testing.assert_array_equal(features, [[1.5, 3, 0.5], [2.5, 4, 0.25]])
        other = read_features(_frame(make)[["c", "qid", "b", "a"]])
        assert other.columns.tolist() == ["c", "b", "a"]
        np.testing.assert_array_equal(other, [[0.5, 3, 1.5], [0.25, 4, 2.5]])


def test_the_same_names_with_another_type(make):
    assert read_features(_frame(make)).shape == (2, 3)
    with pytest.raises(ValueError, match=r"hold no numbers: 'b' \(String, such as 'x'\)"):
        read_features(_frame(make, b=["x", "y"]))
    assert read_features(_frame(make, b=[True, False]))["b"].tolist() == [1, 0]
    assert read_features(_frame(make)).shape == (2, 3)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, 1e300])
def test_values_are_checked_whenever_a_schema_is_known(make, bad):
    read_features(_frame(make))
    with pytest.raises(ValueError, match="in the feature column 'c', row 1"):
        read_features(_frame(make, c=[0.5, bad]))


def test_a_missing_integer_of_polars_is_missing():
    read_features(_frame(pl.DataFrame))
    np.testing.assert_array_equal(
        read_features(_frame(pl.DataFrame, b=[None, 4]))["b"], [np.nan, 4]
    )


def test_columns_that_have_no_plan():
    assert feature_plan(pd.DataFrame(np.eye(2)), ()) is None  # names are numbers
    twice = pd.DataFrame(np.eye(2), columns=["a", "a"])
    assert feature_plan(twice, ()) is None
    with pytest.raises(ValueError, match="several columns with the same name"):
        read_features(twice)
    assert not feature_plan(_frame(pd.DataFrame, a=pd.array([1, None], "Int64")), ()).is_plain


@pytest.fixture(scope="module")
def log():
    documents = make_ltr(n_queries=20, n_features=4, random_state=0)
    frame, clicks, _ = simulate_clicks(documents, n_sessions=100, random_state=0)
    return frame, clicks


def test_columns_are_taken_by_name_at_every_request_and_after_a_refit(log):
    frame, clicks = log
    roles = [name for name in frame if not name.startswith("feature")]
    features = frame.drop(columns=roles)
    ranker = NaiveRanker(max_epochs=1, random_state=0).fit(frame, clicks)
    scores = ranker.predict(features)
    turned = features.iloc[:, ::-1]
    for _ in range(2):
        np.testing.assert_array_equal(ranker.predict(features), scores)
        np.testing.assert_array_equal(ranker.predict(turned), scores)
        with pytest.raises(ValueError, match="seen at fit time, yet now missing"):
            ranker.predict(features.iloc[:, 1:])
    ranker.fit(pd.concat([frame[roles], turned], axis=1), clicks)
    np.testing.assert_array_equal(ranker.predict(features), ranker.predict(turned))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        ranker.predict(turned.to_numpy())
    with pytest.raises(ValueError, match="0 sample"):
        ranker.predict(turned.iloc[:0])


def test_an_array_is_checked_at_every_request(log):
    frame, clicks = log
    values = frame.filter(like="feature").to_numpy(np.float32, copy=True)
    ranker = NaiveRanker(max_epochs=1, random_state=0)
    roles = {name: frame[name] for name in ("qid", "session", "position")}
    ranker.fit(values, clicks, **roles)
    scores = ranker.predict(values)
    for same in (values.astype(float), np.asfortranarray(values), values.tolist()):
        np.testing.assert_array_equal(ranker.predict(same), scores)
    with pytest.raises(ValueError, match="expecting 4 features"):
        ranker.predict(values[:, :3])
    with pytest.raises(ValueError, match="0 sample"):
        ranker.predict(values[:0])
    values[3, 2] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        ranker.predict(values)


def test_every_kind_of_frame_gets_the_same_scores(log):
    frame, clicks = log
    pipeline = make_pipeline(OnFeatures(StandardScaler()), NaiveRanker(max_epochs=1))
    pipeline.set_params(naiveranker__random_state=0).fit(frame, clicks)
    scores = pipeline.predict(frame)
    columns = {name: frame[name].to_numpy() for name in frame}
    np.testing.assert_array_equal(pipeline.predict(pl.DataFrame(columns)), scores)
    only = frame.filter(like="feature")
    np.testing.assert_array_equal(pipeline.predict(only), scores)
    shuffled = only.sample(frac=1, random_state=0)
    transformed = pipeline[0].transform(shuffled)
    assert transformed.index.equals(shuffled.index)
    np.testing.assert_array_equal(pipeline[1].predict(transformed), scores[shuffled.index])
