"""What pyproject.toml promises of other packages is what ``make test-minimum`` installs."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def bounds(requirements):
    """Lower bound by package; the extras of Dask have the release of Dask."""
    found = {}
    for requirement in map(Requirement, requirements):
        (clause,) = requirement.specifier
        assert clause.operator in (">=", "=="), f"{requirement} has no lower bound"
        names = {requirement.name} | ({"distributed"} & requirement.extras)
        found |= dict.fromkeys(names, clause.version)
    return found


def test_constraints_are_the_declared_lower_bounds():
    declared = bounds(PROJECT["dependencies"] + PROJECT["optional-dependencies"]["test"])
    del declared["torch"]  # the constraints of every installation name it
    lines = (ROOT / "constraints-minimum.txt").read_text().splitlines()
    constraints = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert constraints == declared


@pytest.mark.parametrize("extra", PROJECT["optional-dependencies"])
def test_a_package_has_one_lower_bound(extra):
    known = bounds(PROJECT["dependencies"])
    for requirements in PROJECT["optional-dependencies"].values():
        known |= bounds(requirements)
    own = bounds(PROJECT["optional-dependencies"][extra])
    assert own == {name: known[name] for name in own}
