"""What every ranker says of arguments that it does not take, and ranks within pipelines."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skultr import IdentifiabilityRepair
from skultr.exceptions import ClickDataWarning
from skultr.preprocessing import OnFeatures
from skultr.rankers import LambdaMARTRanker, NaiveRanker
from tests._worlds import random_lists

RANKER = NaiveRanker(estimator=Ridge())


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("group", r"'qid' of X or qid=, one id per row; sizes .* np\.repeat"),
        ("groups", "qid="),
        ("query_id", r"pass qid=\."),
        ("rank", r"pass position=\."),
        ("eval_set", "no log for early stopping with these parameters: leave it out"),
        ("eval_group", "no log for early stopping with these parameters: leave it out"),
        ("weight", "sample_weight="),
        ("max_epochs", r"its arguments are X, y, .*parameters of .*Ranker\(\.\.\.\)"),
    ],
)
@pytest.mark.parametrize("ranker", [RANKER, LambdaMARTRanker()], ids=["linear", "trees"])
def test_arguments_of_other_libraries_are_told_their_names(ranker, name, remedy):
    log, clicks = random_lists(n_sessions=20, n_queries=2)
    with pytest.raises(TypeError, match=f"Ranker.fit takes no argument '{name}': .*{remedy}"):
        ranker.fit(log, clicks, **{name: [1]})
    with pytest.raises(TypeError, match=f"fit takes no argument '{name}'"):
        IdentifiabilityRepair(bias=["position"]).fit(log, clicks, **{name: [1]})


def test_only_networks_that_take_a_log_for_validation_are_told_of_it():
    log, clicks = random_lists(n_sessions=20, n_queries=2)
    with pytest.raises(TypeError, match=r"networks stop by validation=\(X, y\)"):
        NaiveRanker().fit(log, clicks, eval_set=[(log, clicks)])
    NaiveRanker(max_epochs=1).fit(log, clicks, validation=(log, clicks))
    with pytest.raises(TypeError, match="leave it out"):
        LambdaMARTRanker().fit(log, clicks, eval_set=[(log, clicks)])


def test_calls_with_too_few_or_too_many_arguments():
    with pytest.raises(TypeError, match="fit: missing a required argument: 'X'"):
        RANKER.fit()
    with pytest.raises(TypeError, match="too many positional"):
        RANKER.fit([[0.0]], [1], None, [1])


@pytest.mark.parametrize("module", ["pandas", "polars"])
def test_ranks_in_a_pipeline(module):
    """As the docstring says; transformers keep the queries."""
    log, clicks = random_lists(n_sessions=50, n_queries=4)
    log = log if module == "pandas" else pytest.importorskip("polars").from_pandas(log)
    pipeline = make_pipeline(OnFeatures(StandardScaler()), RANKER).fit(log, clicks)
    ranks = pipeline[-1].rank(pipeline[:-1].transform(log))
    for qid in np.unique(log["qid"]):
        rows = np.asarray(log["qid"]) == qid
        assert sorted(ranks[rows]) == list(range(1, rows.sum() + 1))
        best = pipeline.predict(log)[rows][ranks[rows] == 1]
        assert best == pytest.approx(pipeline.predict(log)[rows].max())


def test_clicks_in_another_order_than_the_rows_are_a_warning():
    log, clicks = random_lists(n_sessions=50, n_queries=4)
    clicks, mixed = pd.Series(clicks), log.sample(frac=1, random_state=0)
    with pytest.warns(ClickDataWarning, match=r"in another order.* pass y.loc\[X.index\]"):
        RANKER.fit(mixed, clicks)
    expected = RANKER.fit(log, clicks).predict(log)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ClickDataWarning)
        RANKER.fit(mixed, clicks.to_numpy())
        RANKER.fit(mixed, clicks.set_axis(range(1000, 1000 + len(clicks))))
        RANKER.fit(mixed[:90], clicks[:90].set_axis(mixed.index[:90]))
        found = RANKER.fit(mixed, clicks.loc[mixed.index]).predict(log)
        # Labels that repeat say nothing of the order.
        parts = pd.concat([log, log.assign(session=log["session"] + 50)])
        RANKER.fit(parts, pd.concat([clicks, clicks], ignore_index=True))
        RANKER.fit(log.set_axis([0] * len(log)), clicks)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("request_", [{"f0": [0.0]}, [{"f0": 0.0}], None, "candidates.parquet"])
def test_requests_that_are_no_frame_say_how_to_make_one(request_):
    log, clicks = random_lists(n_sessions=50, n_queries=4)
    ranker = NaiveRanker(estimator=Ridge()).fit(log, clicks)
    with pytest.raises(TypeError, match=r"expected a frame or an array.*pandas\."):
        ranker.predict(request_)


def test_a_pipeline_that_drops_names_says_what_keeps_them():
    log, clicks = random_lists(n_sessions=50, n_queries=4)
    pipeline = make_pipeline(StandardScaler(), RANKER)
    with pytest.raises(ValueError, match=r"OnFeatures\(StandardScaler\(\)\)"):
        pipeline.fit(log.assign(click=clicks), "click")
