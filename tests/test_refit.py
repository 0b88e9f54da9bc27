"""A refit knows nothing of the fit before, and one that fails leaves nothing that predicts."""

from itertools import permutations

import networkx as nx
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from skultr.exceptions import NotIdentifiableError
from skultr.propensity import PowerLawPropensity, RegressionEMPropensity
from skultr.rankers import CLDRanker, DLARanker, IPSRanker, NaiveRanker, VectorizationRanker

from ._discovery import public_estimators
from ._worlds import FEATURES, random_lists

#: Switches that their constraints do not tell, and what they are switched between.
_SWITCHES = {
    "continuation": (None, 0.9),
    "estimator": (None, Ridge()),
    "gamma": (0.2, "estimate"),
    "n_bootstrap": (0, 2),
    "propensity": (None, PowerLawPropensity(), [1.0, 0.5, 0.25, 0.2]),
    "user": (None, "user"),
}
#: Parameters of every network.
_NETWORK = {*NaiveRanker().get_params()} & {*RegressionEMPropensity().get_params()}
_QUICK = {"max_epochs": 2, "n_estimators": 2, "max_iter": 20, "n_clusters": 2}
pytestmark = pytest.mark.filterwarnings("ignore")


def _log():
    """Random lists of three, the fourth document of each query as a candidate."""
    log, clicks = random_lists(n_sessions=60, n_shown=4)
    log["user"] = log["session"] % 4
    log["position"] = log["position"].where(log["position"] < 4)
    return log, np.where(log["position"].isna(), 0.0, clicks)


def _quick(estimator):
    quick = {name: value for name, value in _QUICK.items() if name in estimator.get_params()}
    seed = {"random_state": 0} if "random_state" in estimator.get_params() else {}
    return clone(estimator).set_params(**quick, **seed)


def _switches(estimator):
    """Parameters that choose what is fitted, with the values between which they do."""
    for name, constraints in getattr(type(estimator), "_parameter_constraints", {}).items():
        options = sorted(
            str(option)
            for constraint in constraints
            if isinstance(constraint, StrOptions)
            for option in constraint.options
        )
        if constraints == ["boolean"]:
            options = [False, True]
        # Those of every network are switched on one of them.
        if name in _NETWORK and not isinstance(estimator, NaiveRanker):
            continue
        values = _SWITCHES.get(name, options)
        if len(values) > 1:
            yield name, values


def _attributes(estimator, X, y):
    try:
        return set(vars(estimator.fit(X, y)))
    except (ValueError, NotIdentifiableError):  # no choice for this log or these parameters
        return None


def _each_after_each(places):
    """A tour on which each place comes once right after each other one."""
    steps = nx.DiGraph(permutations(places, 2))
    tour = [*nx.eulerian_circuit(steps)] if steps else []
    return [*(place for place, _ in tour), *(place for _, place in tour[-1:])]


CASES = [
    pytest.param(estimator, name, values, id=f"{type(estimator).__name__}-{name}")
    for estimator in public_estimators()
    for name, values in _switches(estimator)
]


@pytest.mark.parametrize(("estimator", "name", "values"), CASES)
def test_nothing_of_an_earlier_fit_is_left(estimator, name, values):
    X, y = _log()
    fresh = {
        place: _attributes(_quick(estimator).set_params(**{name: value}), X, y)
        for place, value in enumerate(values)
    }
    refit = _quick(estimator)
    for place in _each_after_each([place for place, of in fresh.items() if of]):
        refit.set_params(**{name: values[place]}).fit(X, y)
        assert sorted(vars(refit)) == sorted(fresh[place])


def test_switches_are_found():
    found = {case.id for case in CASES}
    assert {
        "RegressionEMRanker-relevance",
        "PBMModel-solver",
        "InterventionHarvesting-user",
        "IdentifiabilityRepair-strategy",
        "NaiveRanker-early_stopping",
    } <= found


class Silent:
    """A callback of scikit-learn that does nothing."""

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context, **kwargs):
        pass

    def on_fit_task_end(self, estimator, context, **kwargs):
        pass


class Fails(Silent):
    def on_fit_task_end(self, estimator, context, **kwargs):
        raise RuntimeError("a callback failed")


WITH_CALLBACKS = [e for e in public_estimators() if hasattr(e, "set_callbacks")]


def _data_for(estimator):
    X, y = _log()
    return (X[FEATURES], y) if type(estimator).__name__ == "OnFeatures" else (X, y)


@pytest.mark.parametrize("estimator", WITH_CALLBACKS, ids=lambda e: type(e).__name__)
def test_callback_that_raises_leaves_nothing(estimator):
    X, y = _data_for(estimator)
    estimator = _quick(estimator)
    check_is_fitted(estimator.fit(X, y))
    with pytest.raises(RuntimeError, match="a callback failed"):
        estimator.set_callbacks(Fails()).fit(X, y)
    with pytest.raises(NotFittedError):
        check_is_fitted(estimator)
    check_is_fitted(estimator.set_callbacks().fit(X, y))


class Interrupted(torch.nn.Linear):
    """Ctrl-C in the fourth batch."""

    calls = 0

    def forward(self, inputs):
        self.calls += 1
        if self.calls > 3:
            raise KeyboardInterrupt
        return super().forward(inputs)


@pytest.mark.parametrize(
    "estimator",
    [
        NaiveRanker(),
        IPSRanker(propensity=RegressionEMPropensity(relevance="embedding")),
        DLARanker(),
        CLDRanker(),
        VectorizationRanker(),
        RegressionEMPropensity(),
    ],
    ids=lambda e: type(e).__name__,
)
def test_interrupt_leaves_nothing_half_trained(estimator):
    X, y = _log()
    n_out = 2 if isinstance(estimator, VectorizationRanker) else 1
    estimator = _quick(estimator).set_params(max_epochs=5).fit(X, y)
    parameters = estimator.get_params()
    with pytest.raises(KeyboardInterrupt):
        estimator.set_params(module=Interrupted(3, n_out)).fit(X, y)
    with pytest.raises(NotFittedError):
        estimator.predict(X)
    assert not [name for name in vars(estimator) if name not in parameters]


def test_divergence_leaves_nothing():
    X, y = _log()
    ranker = _quick(NaiveRanker(scale_features=False, loss="mse")).fit(X, y)
    wild = X.assign(f0=X["f0"] * 1e30)
    with pytest.raises(ValueError, match="Training diverged"):
        ranker.set_params(net_params={"callbacks__clip": None}).fit(wild, y)
    with pytest.raises(NotFittedError):
        ranker.predict(X)


@pytest.mark.parametrize("estimator", public_estimators(), ids=lambda e: type(e).__name__)
def test_configuration_survives_a_refit(estimator):
    """What was set on the estimator, and is no result of a fit, stays."""
    X, y = _data_for(estimator)
    estimator = _quick(estimator)
    if hasattr(estimator, "set_callbacks"):
        estimator.set_callbacks(Silent())
    if hasattr(estimator, "set_output"):
        estimator.set_output(transform="pandas")
    before = {name for name in vars(estimator) if name.startswith("_")}
    estimator.fit(X, y).fit(X, y)
    assert before <= set(vars(estimator))
