"""scikit-learn's callbacks see the fit that the user asked for, and none that only judges it."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from skultr.rankers import (
    AffineRanker,
    DLARanker,
    EnsembleRanker,
    LambdaMARTRanker,
    NaiveRanker,
    PairDebiasRanker,
    TwoTowerRanker,
)

from .._worlds import small_log

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("callbacks")]

QUICK = {"max_epochs": 2, "early_stopping": False, "random_state": 0}


class Recorder:
    """The names of the tasks that ended."""

    def __init__(self):
        self.ended = []

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context, **kwargs):
        pass

    def on_fit_task_end(self, estimator, context, **kwargs):
        self.ended.append(context.task_name)

    def teardown(self, estimator, context):
        pass


@pytest.mark.parametrize(
    "member",
    [
        NaiveRanker(**QUICK),
        LambdaMARTRanker(n_estimators=2, early_stopping=False, random_state=0),
        DLARanker(**QUICK),
    ],
    ids=lambda member: type(member).__name__,
)
def test_callbacks_of_a_member_see_the_fit_that_stays_and_no_cross_fit(member):
    recorder = Recorder()
    member = member.set_callbacks(recorder)
    log, clicks = small_log(n_queries=20)  # enough to fit each half to judge the other
    ensemble = EnsembleRanker(
        [("it", member), ("other", NaiveRanker(max_epochs=1))], cv=2, random_state=0
    )
    ensemble.fit(log, clicks)
    unit = "round" if isinstance(member, LambdaMARTRanker) else "epoch"
    assert recorder.ended == [unit, unit, "fit"]


@pytest.mark.parametrize(
    ("ranker", "target"),
    [
        (AffineRanker(**QUICK), "clicks"),
        (DLARanker(**QUICK), "clicks"),  # orders that nobody varies: it learns the curve first
        (DLARanker(examination="network", **QUICK), "carts"),
        (TwoTowerRanker(examination="network", **QUICK), "carts"),
        (PairDebiasRanker(**QUICK), "carts"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_callbacks_see_the_training_that_stays(ranker, target):
    log, clicks = small_log(n_queries=20)
    y = clicks
    if target == "carts":
        log["click"] = clicks
        y = clicks * np.random.default_rng(0).integers(2, size=len(clicks))
    recorder = Recorder()
    ranker.set_callbacks(recorder).fit(log, y)
    assert recorder.ended == ["epoch"] * ranker.n_iter_ + ["fit"]


def test_fits_without_callbacks_of_scikit_learn():
    """As with its release 1.8: here the module is taken away after scikit-learn is imported."""
    code = """
    import sys, warnings

    import sklearn.model_selection, sklearn.pipeline

    sys.modules["sklearn.callback"] = None
    from skultr.datasets import make_ltr
    from skultr.rankers import LambdaMARTRanker, NaiveRanker

    documents = make_ltr(20, 5, n_features=2, random_state=0)
    for ranker in (NaiveRanker(max_epochs=1), LambdaMARTRanker(n_estimators=2)):
        assert not hasattr(ranker, "set_callbacks")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ranker.fit(documents, documents["relevance"] > 0)
        assert len(set(ranker.predict(documents))) > 1
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
