"""A search on a Dask cluster finds what a search in one process finds."""

import joblib
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from skultr import ClickDataset, DLARanker
from skultr.datasets import make_ltr
from skultr.metrics import ClickLikelihoodScorer, RankingScorer
from skultr.model_selection import QueryKFold
from skultr.simulation import PlackettLucePolicy, simulate_clicks

pytestmark = pytest.mark.filterwarnings("ignore")  # raised within Dask


CURVE = [1 / k for k in range(1, 11)]


def as_frame(log, clicks, folder):
    return (log, clicks), RankingScorer(k=5)


def as_dataset(log, clicks, folder):
    log = log.drop(columns="relevance").assign(click=clicks)
    dataset = ClickDataset.from_parquet(log, path=folder / "clicks")
    return (dataset,), ClickLikelihoodScorer(propensity=CURVE)


@pytest.mark.parametrize("data", [as_frame, as_dataset])
def test_joblib_on_dask_gives_the_results_of_one_process(client, data, tmp_path):
    documents = make_ltr(n_queries=60, n_documents=8, n_features=10, random_state=0)
    policy = PlackettLucePolicy(temperature=0.1)
    log, clicks, _ = simulate_clicks(documents, n_sessions=2_000, policy=policy, random_state=0)
    given, scorer = data(log, clicks, tmp_path)
    search = GridSearchCV(
        DLARanker(max_epochs=2, early_stopping=False, random_state=0),
        {"learning_rate": [0.001, 0.01, 0.1]},
        cv=QueryKFold(2),
        scoring=scorer,
    )
    serial = search.fit(*given).cv_results_["mean_test_score"]
    with joblib.parallel_config("dask", client=client):
        search.fit(*given)
    np.testing.assert_array_equal(search.cv_results_["mean_test_score"], serial)
    assert len(set(serial)) == 3  # candidates that differ
    on = client.run(lambda: "skultr.rankers._dual_learning" in __import__("sys").modules)
    assert all(on.values())  # both processes trained
