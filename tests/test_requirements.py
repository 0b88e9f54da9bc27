"""What pyproject.toml promises of other packages is what every other file asks for."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
TOML = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = TOML["project"]
EXTRAS = PROJECT["optional-dependencies"]
#: What users install; the other extras are for contributors.
OF_USERS = ("plot", "serving", "scale")
#: Packages that conda-forge calls otherwise, or that it offers without their graphical parts.
CONDA_NAMES = {
    "torch": "pytorch",
    "matplotlib": "matplotlib-base",
    "duckdb": "python-duckdb",
    "dask": "dask-core",
}


def bounds(requirements):
    """Lower bound by package; the extras of Dask have the release of Dask."""
    found = {}
    for requirement in map(Requirement, requirements):
        (clause,) = requirement.specifier
        assert clause.operator in (">=", "=="), f"{requirement} has no lower bound"
        names = {requirement.name} | ({"distributed"} & requirement.extras)
        found |= dict.fromkeys(names, clause.version)
    return found


def pinned(file):
    """Release by package, of a file of constraints."""
    lines = (ROOT / file).read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def states(text, name, bound):
    """Whether a text has a package followed by a release."""
    return re.search(rf"\b{name}\s{re.escape(bound)}(?!\.?\d)", text, re.IGNORECASE) is not None


DEPENDENCIES = bounds(PROJECT["dependencies"])


def test_constraints_are_the_declared_lower_bounds():
    declared = DEPENDENCIES | bounds(EXTRAS["test"])
    del declared["torch"]  # the constraints of every installation name it
    assert pinned("constraints-minimum.txt") == declared


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_package_has_one_lower_bound(extra):
    known = dict(DEPENDENCIES)
    for requirements in EXTRAS.values():
        known |= bounds(requirements)
    own = bounds(EXTRAS[extra])
    assert own == {name: known[name] for name in own}


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_adds_what_is_no_dependency(extra):
    assert not bounds(EXTRAS[extra]).keys() & DEPENDENCIES.keys()


def test_the_oldest_torch_is_named_alike():
    """It has an index of its own, so that no file of constraints can name it."""
    files = ("Makefile", "constraints-minimum.txt")
    files += tuple(f".github/workflows/{name}.yml" for name in ("release", "advisories"))
    for file in files:
        found = re.findall(r"torch==([\d.]+)", (ROOT / file).read_text())
        assert {*found} == {f"{DEPENDENCIES['torch']}.0"}, file
    (newest,) = pinned("constraints.txt").values()
    assert int(newest.split(".")[1]) >= int(DEPENDENCIES["torch"].split(".")[1])


@pytest.mark.parametrize("name", DEPENDENCIES)
def test_the_page_says_the_lower_bounds(name):
    text = (ROOT / "docs/install.rst").read_text()
    assert states(text, name, DEPENDENCIES[name])


def test_the_changelog_says_the_lower_bounds():
    text = (ROOT / "CHANGELOG.md").read_text().partition("### Versions")[2]
    whole = text.replace("PyTorch", "torch")
    for name, bound in DEPENDENCIES.items():
        assert states(whole, name, bound), name
    for extra in OF_USERS:
        (own,) = re.findall(rf"`{extra}` \(([^)]*)\)", text)
        assert own.count(",") + 1 == len(EXTRAS[extra])
        declared = bounds(EXTRAS[extra])
        declared.pop("distributed", None)  # the extra of Dask has its release
        assert all(states(own, *each) for each in declared.items()), own


# Conda and Docker ---------------------------------------------------------------------
RECIPE = yaml.safe_load((ROOT / "conda/recipe.yaml").read_text())


def in_conda(requirements):
    """Lines of a recipe for these requirements."""
    declared = bounds(requirements)
    return {f"{CONDA_NAMES.get(name, name)} >={bound}" for name, bound in declared.items()}


def test_conda_asks_for_the_same_packages():
    run = {*RECIPE["requirements"]["run"]} - {"python >=${{ python_min }}"}
    assert run == in_conda(PROJECT["dependencies"])
    optional = [each for extra in OF_USERS for each in EXTRAS[extra]]
    assert {*RECIPE["requirements"]["run_constraints"]} == in_conda(optional)
    (backend,) = map(Requirement, TOML["build-system"]["requires"])
    (host,) = (each for each in RECIPE["requirements"]["host"] if each.startswith(backend.name))
    assert Requirement(host.replace(" ", "")) == backend


def test_conda_builds_this_version_for_the_same_pythons():
    context = RECIPE["context"]
    assert context["version"] == PROJECT["version"]
    assert f">={context['python_min']}" == PROJECT["requires-python"]
    (command,) = RECIPE["build"]["python"]["entry_points"]
    assert command == f"skultr = {PROJECT['scripts']['skultr']}"
    assert RECIPE["about"]["summary"] == PROJECT["description"]
    assert RECIPE["about"]["license"] == PROJECT["license"]


def test_the_image_is_built_of_what_there_is():
    text = (ROOT / "Dockerfile").read_text()
    declared = {each.split()[-1] for each in PROJECT["classifiers"] if "Python :: 3." in each}
    assert {*re.findall(r"^FROM python:([\d.]+)", text, re.MULTILINE)} <= declared
    (extras,) = re.findall(r'pip install "/src\[(.*)\]"', text)
    assert {*extras.split(",")} <= {*EXTRAS}
    kept = re.findall(r"^!(.*)", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert {PROJECT["readme"], *PROJECT["license-files"], *re.findall(r"COPY (c\S+)", text)} <= {
        *kept
    }
    assert all((ROOT / name).exists() for name in kept)
