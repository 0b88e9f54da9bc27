"""The pages for contributors lead through the gate: their examples pass what a public class must.

The pages are doctests too, which run the contracts of ``skultr.testing``.
"""

import ast
import doctest
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import Ridge
from sklearn.utils.estimator_checks import check_estimator

from skultr.rankers._ranker import BaseRanker

from .test_annotations import missing_annotations
from .test_common import expected_failures

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "contributing").glob("add_*.rst"))
#: What a page writes down: its definitions, without what it does with them.
DEFINITIONS = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef)


def _module_of(page):
    """A module with the definitions of a page."""
    module = ModuleType(page.stem)
    sys.modules[page.stem] = module  # where data classes and pickles look for their module
    for example in doctest.DocTestParser().get_examples(page.read_text(encoding="utf-8")):
        if isinstance(ast.parse(example.source).body[0], DEFINITIONS):
            exec(example.source, vars(module))
    return module


@pytest.fixture(scope="module")
def modules():
    found = {page.stem: _module_of(page) for page in PAGES}
    yield found
    for name in found:
        del sys.modules[name]


def _own(module, kind):
    """Public things that a page defines."""
    return [
        item
        for name, item in vars(module).items()
        if kind(item) and item.__module__ == module.__name__ and not name.startswith("_")
    ]


@pytest.mark.filterwarnings("ignore")  # the checks know no roles
@pytest.mark.parametrize("name", ["add_click_model", "add_ranker"])
def test_examples_pass_the_checks_of_scikit_learn(name, modules):
    (example,) = _own(modules[name], inspect.isclass)
    assert issubclass(example, BaseEstimator)
    check_estimator(example(), expected_failed_checks=expected_failures(example()))


class ReadsPositions(BaseRanker):
    """What it learns depends on the place of each row in its list."""

    def _fit(self, log, task):
        target = log.click_rate * log.position
        self.ridge_ = Ridge().fit(log.features[log.version], target, sample_weight=log.weight)

    def _score(self, features):
        return self.ridge_.predict(features.astype(float))


@pytest.mark.filterwarnings("ignore")
def test_a_ranker_that_reads_positions_passes_them_too():
    """A copy of a row moves the rows below it, and no table of the tests need name the ranker."""
    check_estimator(ReadsPositions(), expected_failed_checks=expected_failures(ReadsPositions()))


@pytest.mark.parametrize("name", ["add_metric", "add_user"])
def test_examples_are_annotated(name, modules):
    public = _own(modules[name], inspect.isfunction)
    for cls in _own(modules[name], inspect.isclass):
        written = {name: each for name, each in vars(cls).items() if inspect.isfunction(each)}
        public += [each for name, each in written.items() if not name.startswith("_")]
    assert public
    for function in public:
        assert not missing_annotations(inspect.unwrap(function)), function.__qualname__


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_send_to_files_that_exist(page):
    """Other than the files that the reader is to write, which have one name each."""
    text = page.read_text(encoding="utf-8")
    paths = {*re.findall(r"\b(?:skultr|tests|docs)/[\w/]*\w\.(?:py|rst)|\b\w+\.md\b", text)}
    absent = {re.sub(r".*/(test)?_", "", path) for path in paths if not (ROOT / path).is_file()}
    assert len(paths) > 3
    assert len(absent) <= 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_name_what_exists(page, modules):
    """Names in the package, in its tests or in the page: ``_weighted_clicks``, ``test_value``."""
    known = {*vars(modules[page.stem])}
    for folder in ("skultr", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            known |= {*re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    named = re.findall(r"``(\w+)(?:\(.*?\)| = \w+)?``", page.read_text(encoding="utf-8"))
    assert len(named) >= 5
    assert not {*named} - known
