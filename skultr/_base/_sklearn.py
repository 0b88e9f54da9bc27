"""scikit-learn's private names, used here only, and seeded and silent clones."""
# ruff: noqa: F401 (names for the rest of the package)

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from sklearn.base import clone
from sklearn.utils import _safe_indexing as safe_indexing
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    Options,
    StrOptions,
    validate_parameter_constraints,
)
from sklearn.utils.metaestimators import _BaseComposition as BaseComposition
from sklearn.utils.validation import _check_sample_weight as check_sample_weight

from ._typing import RandomState

Function = TypeVar("Function", bound=Callable[..., Any])

if TYPE_CHECKING:

    def validate_params(
        constraints: dict[str, Any], *, prefer_skip_nested_validation: bool
    ) -> Callable[[Function], Function]:
        """The decorator as a type checker should see it: signatures stay what they are."""
        ...
else:
    from sklearn.utils._param_validation import validate_params


class HasPage:
    """Mixin of public estimators: the "?" of their diagram opens their page of the API."""

    _doc_link_module = "skultr"
    _doc_link_template = "https://skultr.readthedocs.io/en/latest/generated/{page}.html"

    def _doc_link_url_param_generator(self) -> dict[str, str]:
        """What scikit-learn puts into the template."""
        name = type(self).__name__
        package, folder, *_ = type(self).__module__.split(".")
        # A page is called as users import the class: from the package itself where it has it.
        is_offered = name in import_module(package).__all__
        home = package if is_offered else f"{package}.{folder}"
        return {"page": f"{home}.{name}"}


def silent_clone(estimator: Any) -> Any:
    """A clone without the callbacks of the estimator and of its parts.

    Clones share callbacks. Those of the user watch the fit whose result stays, not the fits that
    only judge it.
    """
    estimator = clone(estimator)
    for part in (estimator, *estimator.get_params().values()):
        # Classes may be parameters, too, and their attributes are not those of a clone.
        if not isinstance(part, type):
            getattr(part, "__dict__", {}).pop("_skl_callbacks", None)
    return estimator


def seeded_clone(estimator: Any, random_state: RandomState) -> Any:
    """A clone whose parameters ``random_state`` (also those of its parts) are set where None.

    Compositions with a ``random_state`` of their own draw the seeds of their members from it.
    """
    estimator = clone(estimator)
    params = estimator.get_params()
    parts = {"": estimator, **{f"{name}__": part for name, part in params.items()}}
    # Names of parameters begin with the part that they belong to.
    drawing = [prefix for prefix, part in parts.items() if _draws_seeds(part)]
    seeds = {}
    for name, value in params.items():
        is_seed = name.rpartition("__")[2] == "random_state"
        # A seed that the user has set stays, and so do those that a composition draws.
        if is_seed and value is None and not _is_inside(name, drawing):
            seeds[name] = random_state
    estimator.set_params(**seeds)  # FrozenEstimator.set_params returns None
    return estimator


def _draws_seeds(part: Any) -> bool:
    """Whether it draws the seeds of its members."""
    return isinstance(part, BaseComposition) and hasattr(part, "random_state")


def _is_inside(name: str, prefixes: list[str]) -> bool:
    """Whether a parameter is of a member of one of the parts with these prefixes."""
    for prefix in prefixes:
        if name.startswith(prefix) and "__" in name.removeprefix(prefix):
            return True
    return False
