"""Any number of threads gives the same bits, and every number of threads is put back."""

import subprocess
import sys
import threading
from contextlib import contextmanager

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from threadpoolctl import threadpool_info, threadpool_limits
from torch import nn

from skultr._base._threads import ALL, few_threads, share_of_worker, threads_of
from skultr._torch._net import OPTIMIZERS
from skultr.click_models import NCMModel
from skultr.propensity import ContextualPropensity
from skultr.rankers import CLDRanker, DLARanker, NaiveRanker, VectorizationRanker

from ._discovery import public_click_models, public_propensities, public_rankers
from ._worlds import FEATURES, random_lists

pytestmark = pytest.mark.filterwarnings("ignore")


class TestInTheMiddle:
    def test_small_work_has_one_thread_and_large_work_all(self):
        with threads(4):
            with few_threads():
                assert numbers() == {1}
                with few_threads(1e12):
                    assert numbers() == {4}
                    with few_threads(1e3):
                        assert numbers() == {1}
                assert numbers() == {1}
            with few_threads(ALL):
                assert numbers() == {4}
            assert numbers() == {4}

    def test_of_torch_alone_blas_keeps_its_threads(self):
        with threads(4), few_threads(blas=False):
            assert torch.get_num_threads() == 1
            assert blas() == {4}

    def test_blas_has_one_thread_until_the_last_asks_no_more(self):
        inside, go_on = threading.Event(), threading.Event()

        def ask():
            with few_threads():
                inside.set()
                go_on.wait(10)

        other = threading.Thread(target=ask)
        with threads(4):
            with few_threads():
                other.start()
                inside.wait(10)
            # torch counts by thread, BLAS does not.
            assert torch.get_num_threads() == 4
            assert blas() == {1}
            go_on.set()
            other.join()
            assert numbers() == {4}

    def test_threads_that_begin_meanwhile_get_the_number_of_the_caller(self):
        found = []

        def ask():
            with few_threads(blas=False):
                found.append(torch.get_num_threads())
            found.append(torch.get_num_threads())

        with threads(4), few_threads():
            other = threading.Thread(target=ask)
            other.start()
            other.join()
        assert found == [1, 4]


class _Stop(nn.Module):
    """A network that tells how many threads there are, and fails as it is told."""

    seen, error = [], None

    def __init__(self, n_features):
        super().__init__()
        self.layer = nn.Linear(n_features, 1)

    def forward(self, features):
        self.seen.append(numbers())
        if self.error is not None:
            raise self.error
        return self.layer(features)


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_numbers_are_put_back_after_a_fit(error, monkeypatch):
    monkeypatch.setattr(_Stop, "error", error)
    monkeypatch.setattr(_Stop, "seen", [])
    log, clicks = _log()
    ranker = NaiveRanker(module=_Stop, max_epochs=1, random_state=0)
    with threads(4):
        if error is None:
            ranker.fit(log, clicks).predict(log)
        else:
            with pytest.raises(error):
                ranker.fit(log, clicks)
        assert numbers() == {4}
    assert _Stop.seen[0] == {1}


def test_large_networks_have_the_threads_of_the_caller(monkeypatch):
    seen = []
    monkeypatch.setattr(
        nn.ELU, "forward", lambda self, values: seen.append(torch.get_num_threads()) or values
    )
    log, clicks = _log()
    with threads(4):
        for sizes in [(64, 32), (4096, 4096)]:
            NaiveRanker(hidden_layer_sizes=sizes, max_epochs=1, random_state=0).fit(log, clicks)
    assert seen[0] == 1
    assert seen[-1] == 4


def test_a_batch_size_beyond_the_log_is_no_large_work(monkeypatch):
    seen = set()
    monkeypatch.setattr(
        nn.ELU, "forward", lambda self, values: seen.add(torch.get_num_threads()) or values
    )
    log, clicks = _log()
    with threads(4):
        NaiveRanker(max_epochs=1, batch_size=10**6, random_state=0).fit(log, clicks)
    assert seen == {1}


def test_a_batch_of_the_whole_log_may_be_large_work(monkeypatch):
    monkeypatch.setattr("skultr._base._threads._LEAST_WORK", 1e5)
    seen = set()
    monkeypatch.setattr(
        nn.ELU, "forward", lambda self, values: seen.add(torch.get_num_threads()) or values
    )
    log, clicks = _log()
    settings = {"max_epochs": 1, "early_stopping": False, "random_state": 0}
    with threads(4):
        NaiveRanker(**settings, net_params={"batch_size": -1}).fit(log, clicks)
    assert seen == {4}


# The same bits ----------------------------------------------------------------------------


def _that_predict():
    own = [*public_rankers(), *public_click_models(), *public_propensities()]
    return [
        pytest.param(each, id=f"{type(each).__name__}{'-user' * _is_personal(each)}")
        for each in own
    ]


def _is_personal(estimator):
    return estimator.get_params().get("user") == "user"


def _log():
    log, clicks = random_lists(n_sessions=60, n_shown=4)
    log["user"] = log["session"] % 4
    return log, clicks


def _fit(estimator, log, clicks):
    estimator = clone(estimator)
    quick = {"max_epochs": 2, "n_estimators": 5, "n_bootstrap": 2, "random_state": 0}
    known = estimator.get_params()
    estimator.set_params(**{name: value for name, value in quick.items() if name in known})
    if known.get("arm") is not None:
        log = log.assign(arm=log["session"] % 2)
    return np.asarray(estimator.fit(log, clicks).predict(log))


@pytest.mark.parametrize("estimator", _that_predict())
def test_the_number_of_threads_changes_no_bit(estimator):
    log, clicks = _log()
    found = []
    for number in (1, 2, 4):
        with threads(number):
            found.append(_fit(estimator, log, clicks))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


NEURAL = [
    NaiveRanker(dropout=0.2, normalization="batch"),
    NaiveRanker(module=lambda n: nn.Sequential(nn.Linear(n, 4), nn.Dropout(), nn.Linear(4, 1))),
    NaiveRanker(optimizer=torch.optim.SGD, net_params={"batch_size": 16}),
    DLARanker(),
    CLDRanker(loss="pairwise"),
    VectorizationRanker(n_components=2),
    NCMModel(),
    NCMModel(relevance="network"),
    ContextualPropensity(context=FEATURES[0]),
]


@pytest.mark.parametrize("estimator", NEURAL, ids=lambda each: type(each).__name__)
def test_fits_side_by_side_give_the_bits_of_one_alone(estimator):
    log, clicks = _log()
    alone = _fit(estimator, log, clicks)
    state = torch.get_rng_state()
    side_by_side = joblib.Parallel(n_jobs=3, backend="threading")(
        joblib.delayed(_fit)(estimator, log, clicks) for _ in range(3)
    )
    for scores in side_by_side:
        np.testing.assert_array_equal(alone, scores)
    assert torch.equal(torch.get_rng_state(), state)


def test_fits_in_threads_do_not_wait_for_each_other(monkeypatch):
    # Each waits in its first forward pass for the other to be there, too.
    both = threading.Barrier(2, timeout=30)
    met = threading.local()

    def forward(self, values):
        if not hasattr(met, "other"):
            met.other = both.wait()
        return values

    monkeypatch.setattr(nn.ELU, "forward", forward)
    log, clicks = _log()
    joblib.Parallel(n_jobs=2, backend="threading")(
        joblib.delayed(_fit)(NaiveRanker(), log, clicks) for _ in range(2)
    )


def test_the_first_fit_imports_no_compiler():
    code = (
        "import sys, numpy as np, torch\n"
        "from skultr.rankers import NaiveRanker\n"
        "X, y = np.random.default_rng(0).normal(size=(40, 2)), np.tile([0.0, 1.0], 20)\n"
        "for optimizer in ('adam', 'adamw', 'adagrad'):\n"
        "    ranker = NaiveRanker(optimizer=optimizer, max_epochs=1, early_stopping=False)\n"
        "    ranker.fit(X, y, qid=np.repeat(range(10), 4)).predict(X)\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_step_as_those_of_torch_do(name):
    theirs = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "adagrad": torch.optim.Adagrad}
    ends = []
    for kind in (OPTIMIZERS[name], theirs[name]):
        weight = nn.Parameter(torch.tensor([1.0, -2.0]))
        optimizer = kind([{"params": [weight], "weight_decay": 0.1}], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (weight**2).sum().backward()
            optimizer.step()
        ends.append(weight.detach())
    assert torch.equal(*ends)


# Workers ------------------------------------------------------------------------------------
def test_a_fit_in_a_worker_has_one_thread_and_learners_their_share():
    def threads_of_a_fit():  # local, so that a worker need not import this module
        seen = []

        class Layer(nn.ELU):
            def forward(self, values):
                seen.append(torch.get_num_threads())
                return values

        log, clicks = random_lists(n_sessions=60, n_shown=4)
        NaiveRanker(
            module=lambda n: nn.Sequential(nn.Linear(n, 4), Layer(), nn.Linear(4, 1)), max_epochs=1
        ).fit(log, clicks)
        return max(seen), threads_of(-1), share_of_worker()

    with joblib.parallel_config("loky", inner_max_num_threads=2):
        (found,) = joblib.Parallel(n_jobs=2)([joblib.delayed(threads_of_a_fit)()])
    assert found[0] == 1
    assert found[1] <= found[2] == 2


def test_lightgbm_has_its_share_and_its_own_parameter_afterwards(monkeypatch):
    lightgbm = pytest.importorskip("lightgbm")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    seen = []

    class Trees(lightgbm.LGBMRegressor):
        def fit(self, X, y, sample_weight=None):
            seen.append(self.n_jobs)
            return super().fit(X, y, sample_weight)

    log, clicks = _log()
    ranker = NaiveRanker(estimator=Trees(n_estimators=2, verbosity=-1)).fit(log, clicks)
    assert seen == [1]
    assert ranker.estimator_.n_jobs is None


# Helpers --------------------------------------------------------------------------------------
@contextmanager
def threads(number):
    """BLAS and torch with so many threads, as a user sets them."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        with threadpool_limits(number, "blas"):
            yield
    finally:
        torch.set_num_threads(before)


def blas():
    """Numbers of threads of all BLAS."""
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def numbers():
    """Numbers of threads of BLAS and torch; {1} if all have one."""
    return blas() | {torch.get_num_threads()}
