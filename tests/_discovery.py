"""What the package offers: estimators found, not listed, so that none can be forgotten."""

import importlib
import inspect
import pkgutil

from lightgbm import LGBMRegressor
from sklearn.base import BaseEstimator
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

import skultr
from skultr.rankers import HeckmanRanker, IPSRanker

#: Members that train in no batches, of which the checks of a ranker could not know.
RANK_MEMBERS = [("ips", IPSRanker(estimator=Ridge())), ("heckman", HeckmanRanker())]

#: Constructor arguments for estimators that need some, or that should train briefly.
_ARGUMENTS = {
    # One thread: LightGBM's own would fight with those of parallel tests over two cores.
    "DistilledRanker": {"student": LGBMRegressor(n_estimators=50, n_jobs=1, verbosity=-1)},
    "RankAggRanker": {"estimators": RANK_MEMBERS},
    "OnFeatures": {"transformer": StandardScaler()},
}


def public_estimators():
    """Instances of all public estimators, sorted by name."""
    found = {}
    for info in pkgutil.walk_packages(skultr.__path__, "skultr."):
        if any(part.startswith("_") for part in info.name.split(".")):
            continue
        module = importlib.import_module(info.name)
        for name in getattr(module, "__all__", ()):
            item = getattr(module, name)
            if inspect.isclass(item) and issubclass(item, BaseEstimator):
                found[name] = item
    return [_instance(found[name]) for name in sorted(found)]


def public_rankers():
    """Instances of all public rankers that are no click models."""
    from skultr.click_models._model import BaseClickModel
    from skultr.rankers._ranker import BaseRanker

    return [
        estimator
        for estimator in public_estimators()
        if isinstance(estimator, BaseRanker) and not isinstance(estimator, BaseClickModel)
    ]


def public_click_models():
    """Instances of all public click models."""
    from skultr.click_models._model import BaseClickModel

    return [model for model in public_estimators() if isinstance(model, BaseClickModel)]


def _instance(cls):
    estimator = cls(**_ARGUMENTS.get(cls.__name__, {}))
    if "max_epochs" in estimator.get_params():
        estimator.set_params(max_epochs=5)
    return estimator
