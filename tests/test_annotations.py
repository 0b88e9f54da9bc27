"""The public face is annotated: every public function, constructor, method and property."""

import inspect

import pytest

import skultr


def _home(function):
    """Folder of the package that defines a function; None for one of another package."""
    name = (getattr(function, "__module__", None) or "").split(".")
    return name[1] if name[0] == "skultr" else None


def _methods(cls):
    """Public methods, constructors and properties, inherited ones from skultr too."""
    for name, member in inspect.getmembers_static(cls):
        if name.startswith("_") and name not in ("__init__", "__call__"):
            continue
        member = member.fget if isinstance(member, property) else member
        member = inspect.unwrap(getattr(member, "__func__", member))
        if inspect.isfunction(member):
            yield name, member


def _public_functions():
    """(name, function) of all that users call."""
    for module in skultr.__all__:
        public = getattr(skultr, module)
        if not inspect.ismodule(public):
            public, names = skultr, [module]
        else:
            names = public.__all__
        for name in names:
            item = getattr(public, name)
            if inspect.isclass(item):
                yield from ((f"{name}.{method}", f) for method, f in _methods(item))
            elif inspect.isfunction(item):
                yield name, inspect.unwrap(item)


FOUND = {f"{f.__module__}:{f.__qualname__}": f for _, f in _public_functions() if _home(f)}


def missing_annotations(function):
    """What lacks an annotation, in one string."""
    signature = inspect.signature(function)
    names = [
        name
        for name, parameter in signature.parameters.items()
        if parameter.annotation is parameter.empty and name not in ("self", "cls")
    ]
    return names + ["return"] * (signature.return_annotation is signature.empty)


def test_there_is_something_to_test():
    homes = {_home(function) for function in FOUND.values()}
    assert {"metrics", "plotting", "rankers", "simulation"} <= homes
    assert len(FOUND) > 150
    assert "skultr.metrics._scorers:RankingScorer.__call__" in FOUND
    assert "skultr.rankers._ranker:BaseRanker.fit" in FOUND  # inherited, and decorated


@pytest.mark.parametrize("name", sorted(FOUND))
def test_public_function_is_annotated(name):
    missing = missing_annotations(FOUND[name])
    assert not missing, f"{name}: annotate {missing}; skultr/_base/_typing.py has names of types"
