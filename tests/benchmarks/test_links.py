"""Classes that implement a paper lead to the page that redraws it."""

import importlib.util
from pathlib import Path

import pytest

import skultr.metrics
import skultr.model_selection
import skultr.rankers

DOCS = Path(__file__).parents[2] / "docs"

CLASSES = [
    (skultr.IdentifiabilityRepair, "identifiability"),
    (skultr.rankers.DistilledRanker, "identifiability"),
    (skultr.rankers.UserAwareIPSRanker, "user_aware"),
    (skultr.rankers.VectorizationRanker, "vectorization"),
    (skultr.rankers.CLDRanker, "cld"),
    (skultr.metrics.CMIPScorer, "cmip"),
    (skultr.metrics.cmip_score, "cmip"),
    (skultr.model_selection.OffPolicySelection, "cmip"),
]


def _extension():
    spec = importlib.util.spec_from_file_location("paper_links", DOCS / "_ext/paper_links.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("thing", "page"), CLASSES)
def test_a_docstring_that_cites_a_paper_gets_a_link(thing, page):
    lines = thing.__doc__.splitlines()
    _extension().add_links(None, "class", thing.__name__, thing, None, lines)
    assert f"   :doc:`The paper, redrawn </papers/{page}>`" in lines


def test_other_docstrings_stay_as_they_are():
    lines = ["A ranker.", "", "Nothing is cited."]
    _extension().add_links(None, "class", "Ranker", None, None, lines)
    assert lines == ["A ranker.", "", "Nothing is cited."]


def test_every_page_exists():
    assert all((DOCS / "papers" / f"{page}.rst").is_file() for page in _extension().PAGES.values())
