"""The penalty on weights of rankers that learn from candidates: CLD and Heckman's method."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from skultr import CLDRanker
from skultr._torch._thresholds import CLICKS_PER_FEATURE
from skultr.rankers import HeckmanRanker
from tests._worlds import top_k_log

pytestmark = pytest.mark.filterwarnings("ignore:The log has .* clicks per query")
ONE_STEP = {"max_epochs": 1, "batch_size": 10_000, "learning_rate": 1e-9, "random_state": 0}
LOSSES = [CLDRanker(loss=name) for name in ("pointwise", "listwise", "pairwise")]
FORMS = [
    *LOSSES,
    CLDRanker(scale=1.0),
    CLDRanker(variant="published", hidden_layer_sizes=[64, 32]),
    HeckmanRanker(debias=True),
]


def fitted(ranker, n_queries=40, n_sessions=400, **settings):
    _, log, clicks, curve = top_k_log(n_queries=n_queries, n_sessions=n_sessions)
    return clone(ranker).set_params(propensity=curve, **ONE_STEP, **settings).fit(log, clicks)


@pytest.mark.parametrize("ranker", FORMS, ids=str)
def test_the_first_loss_has_it(ranker):
    found = fitted(ranker)
    without = fitted(ranker, weight_decay=0.0)
    more = found.history_["train_loss"][1] - without.history_["train_loss"][1]
    layers = [each for each in without.network_.parameters() if each.ndim > 1]
    squares = sum(float(each.detach().square().sum()) for each in layers)
    assert found.net_.penalty > 0
    assert more == pytest.approx(found.net_.penalty / 2 * squares, rel=1e-3)


@pytest.mark.parametrize(("share", "has_penalty"), [(0.95, True), (1.05, False)])
def test_it_ends_where_each_feature_has_a_hundred_clicks(share, has_penalty):
    # 500 documents shown, of 15 features.
    _, log, clicks, curve = top_k_log(n_queries=100, n_sessions=4_000)
    enough = CLICKS_PER_FEATURE.value * 15
    clicks = clicks * share * enough / clicks.sum()
    ranker = CLDRanker(propensity=curve, **ONE_STEP).fit(log, clicks)
    excess = 15 / (share * enough) - 0.01
    assert (excess > 0) == has_penalty
    # The loss is a mean over candidates. A page weighs less the more its query has (a root).
    shown = log.dropna(subset="position")
    pages = shown.groupby("qid")["session"].nunique()
    weight = (1 / np.sqrt(shown["qid"].map(pages))).sum()
    n_never = log.groupby("qid")["doc"].nunique() - shown.groupby("qid")["doc"].nunique()
    share_of_labels = weight / (weight + (n_never * np.sqrt(pages)).sum())
    expected = 3 * max(excess, 0.0) * share_of_labels
    assert ranker.net_.penalty == pytest.approx(expected, rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("ranker", [*LOSSES, HeckmanRanker(debias=True)], ids=str)
def test_more_clicks_on_few_documents_leave_it(ranker):
    """They tell chance in clicks, but not what features do not explain."""
    # 200 documents, 13 for each feature.
    _, log, clicks, curve = top_k_log(n_queries=40, n_sessions=4_000)
    assert clicks.sum() > CLICKS_PER_FEATURE.value * 15
    ranker = clone(ranker).set_params(propensity=curve, **ONE_STEP)
    once = ranker.fit(log, clicks).net_.penalty
    again = log.assign(session=log["session"] + log["session"].max() + 1)
    log = pd.concat([log, again], ignore_index=True)
    twice = ranker.fit(log, np.tile(clicks, 2)).net_.penalty
    assert twice == pytest.approx(once)
    assert once > 0


@pytest.mark.parametrize(
    "settings",
    [
        {"weight_decay": 0.1},
        {"module": lambda n_inputs: torch.nn.Linear(n_inputs, 1)},
        {"loss": "pairwise", "variant": "program"},
        {"loss": "pairwise", "variant": "published"},
    ],
    ids=["decay", "module", "program", "published"],
)
def test_trainings_that_have_none(settings):
    assert fitted(CLDRanker(**settings)).net_.penalty == 0


def test_the_penalty_of_a_mean_over_clicks_does_not_depend_on_lists_without_any():
    """The loss of Heckman's method is a mean over clicks, of lists that have some."""
    _, log, clicks, curve = top_k_log(n_queries=40, n_sessions=400)
    clicks = np.where(log["qid"] % 2, clicks, 0.0)
    ranker = HeckmanRanker(debias=True, propensity=curve, **ONE_STEP).fit(log, clicks)
    assert ranker.net_.penalty == pytest.approx(max(15 / clicks.sum() - 0.01, 15 / 200 - 0.04))
    # The loss of a list is that of its clicks over propensities; it has a mean of one click.
    lists = log.assign(click=clicks).dropna(subset="position").groupby("qid")
    weight = (1 / curve[log["position"].fillna(1).astype(int) - 1] * clicks) / np.sqrt(
        log["qid"].map(lists["session"].nunique())
    )
    by_query = weight.groupby(log["qid"]).sum()
    assert ranker.net_.criterion_.scale * by_query.sum() == pytest.approx((by_query > 0).sum())
