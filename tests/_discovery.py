"""What the package offers: estimators found, not listed, so that none can be forgotten."""

import importlib
import inspect
import pkgutil
from inspect import signature

from lightgbm import LGBMRegressor
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

import skultr
from skultr.propensity import PowerLawPropensity
from skultr.rankers import HeckmanRanker, IPSRanker, NaiveRanker
from skultr.simulation import User

#: Members that train in no batches, of which the checks of a ranker could not know.
RANK_MEMBERS = [
    ("ips", IPSRanker(estimator=Ridge(), propensity=PowerLawPropensity(eta=1.0))),
    ("heckman", HeckmanRanker(hidden_layer_sizes=())),
]

ENSEMBLE_MEMBERS = [
    ("naive", NaiveRanker(estimator=Ridge())),
    ("ips", IPSRanker(estimator=Ridge())),
]

#: Constructor arguments for estimators that need some, or that should train briefly.
_ARGUMENTS = {
    # One thread: LightGBM's own would fight with those of parallel tests over two cores.
    "EnsembleRanker": {"estimators": ENSEMBLE_MEMBERS, "propensity": PowerLawPropensity(eta=1.0)},
    "DistilledRanker": {"student": LGBMRegressor(n_estimators=50, n_jobs=1, verbosity=-1)},
    "RankAggRanker": {"estimators": RANK_MEMBERS},
    "OnFeatures": {"transformer": StandardScaler()},
}


def public_names():
    """Public functions, classes and constants, by "module.name" without "skultr."."""
    found = {}
    below = (info.name for info in pkgutil.walk_packages(skultr.__path__, "skultr."))
    for home in ("skultr", *below):
        if any(part.startswith("_") for part in home.split(".")):
            continue
        module = importlib.import_module(home)
        for name in getattr(module, "__all__", ()):
            item = getattr(module, name)
            if not (name.startswith("_") or inspect.ismodule(item)):
                found[f"{home}.{name}".removeprefix("skultr.")] = item
    return found


def _public_classes(base):
    classes = {item for item in public_names().values() if inspect.isclass(item)}
    return sorted((cls for cls in classes if issubclass(cls, base)), key=lambda cls: cls.__name__)


def public_estimators():
    """Instances of all public estimators, sorted by name."""
    found = [_instance(cls) for cls in _public_classes(BaseEstimator)]
    for estimator in found:
        if type(estimator).__name__ in ("RegressionEMRanker", "TwoTowerRanker"):
            # The calibration after a refit multiplies the rounding of float32 beyond the seventh
            # digit, which scikit-learn's checks compare. check_ranker sees the default.
            estimator.set_params(examination="network")
    return found


def _estimators_of(module):
    """Instances of the public estimators of a public module, sorted by name."""
    names = {*importlib.import_module(f"skultr.{module}").__all__}
    return [each for each in public_estimators() if type(each).__name__ in names]


def public_rankers():
    """Instances of all public rankers that are no click models."""
    classes = [type(each) for each in _estimators_of("rankers")]
    return [_instance(cls) for cls in classes]


def public_click_models():
    """Instances of all public click models."""
    return _estimators_of("click_models")


def public_propensities():
    """Instances of all public estimators of examination, for one user and for several."""
    common = [each for each in _estimators_of("propensity") if hasattr(each, "predict")]
    own = [clone(each) for each in common if "user" in each.get_params()]
    for each in own:
        settings = {"user": "user", "relevance": "embedding", "arm": "arm"}
        known = each.get_params()
        each.set_params(**{name: value for name, value in settings.items() if name in known})
    return [*common, *own]


def public_users():
    """Instances of all public users, with their defaults."""
    classes = _public_classes(User)
    return [cls() for cls in classes if not inspect.isabstract(cls)]


def public_metrics():
    """All public metrics of rankings: functions of relevance, scores and query ids."""
    return {
        name.removeprefix("metrics.").removesuffix("_score"): item
        for name, item in public_names().items()
        if inspect.isfunction(item) and {"y_score", "qid", "k"} <= {*signature(item).parameters}
    }


def _instance(cls):
    try:
        estimator = cls(**_ARGUMENTS.get(cls.__name__, {}))
    except TypeError as error:
        error.add_note(f"{cls.__name__} needs arguments: give it some in {__file__}, _ARGUMENTS.")
        raise
    if "max_epochs" in estimator.get_params():
        # What the checks ask holds after any epoch; the second one starts from a fitted network.
        estimator.set_params(max_epochs=2)
    if "n_estimators" in estimator.get_params():
        # It also holds after any number of trees.
        estimator.set_params(n_estimators=20)
    return estimator
