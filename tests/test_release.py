"""Nothing is published that the gate and every supported Python have not passed."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.y*ml"))
JOBS = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
CI = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
TOML = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = TOML["project"]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_actions_are_pinned_by_commit(file):
    used = re.findall(r"\buses:\s*(.*)", file.read_text())
    foreign = [action for action in used if not action.startswith("./")]
    pinned = re.compile(r"[\w-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    assert foreign
    assert [action for action in foreign if not pinned.fullmatch(action)] == []


def test_publishing_needs_the_gate_and_the_installed_files():
    assert {"gate", "installed"} <= {*JOBS["publish"]["needs"]}
    gate = JOBS["gate"]["uses"]
    assert "workflow_call" in yaml.safe_load((ROOT / gate).read_text())[True]  # YAML's "on"
    assert JOBS["installed"]["needs"] == "build"
    assert "if" not in JOBS["publish"]  # always() would publish what failed


def test_only_commits_of_main_are_built():
    steps = JOBS["build"]["steps"]
    checkout, check = steps[:2]
    assert checkout["with"]["fetch-depth"] == 0  # else the branch is not there
    assert check["run"] == 'git merge-base --is-ancestor "$GITHUB_SHA" origin/main'


def test_what_builds_is_pinned():
    lines = (ROOT / "constraints-build.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    (backend,) = map(Requirement, TOML["build-system"]["requires"])
    assert backend.specifier.contains(pinned[backend.name])
    assert any(clause.operator == "<" for clause in backend.specifier)
    assert "build" in pinned
    used = (JOBS["build"]["env"]["PIP_CONSTRAINT"], (ROOT / "Makefile").read_text())
    assert all("constraints-build.txt" in each for each in used)


def test_dependabot_looks_at_all_that_is_pinned():
    found = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text())["updates"]
    by_kind = {each["package-ecosystem"]: each for each in found}
    assert {*by_kind} == {"github-actions", "docker", "pip"}
    # A lower bound that follows the newest release is none.
    assert by_kind["pip"]["exclude-paths"] == ["constraints-minimum.txt"]


def test_only_publishing_may_ask_for_a_token():
    asking = [name for name, job in JOBS.items() if "permissions" in job]
    assert asking == ["publish"]
    assert ROOT.joinpath(".github/workflows/release.yml").read_text().count("id-token") == 1


def test_every_declared_python_is_tried_before_publishing():
    prefix = "Programming Language :: Python :: 3."
    declared = [each.split()[-1] for each in PROJECT["classifiers"] if each.startswith(prefix)]
    assert JOBS["installed"]["strategy"]["matrix"]["python"] == declared
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"PYTHONS \?= (.*)", makefile)[1].replace("python", "").split() == declared
    matrix = CI["platforms"]["strategy"]["matrix"]
    assert matrix["python"] == declared
    assert {each.removesuffix("-latest") for each in matrix["os"]} == {
        "ubuntu",
        "macos",
        "windows",
    }


def test_extras_that_are_tried_exist():
    (tried,) = re.findall(r"EXTRAS:-(.*?)\}", (ROOT / ".ci/release").read_text())
    assert {*tried.split()} - {*PROJECT["optional-dependencies"]} == {"none"}
