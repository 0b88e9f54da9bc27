"""Each number of ``identifiability/_thresholds.py`` that decides something, on both sides."""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from skultr.exceptions import NotIdentifiableWarning
from skultr.identifiability import FeatureOverlap, IdentifiabilityGraph
from skultr.identifiability._bias_features import FactorVectors, _is_category
from skultr.identifiability._bridges import _spanning_tree
from skultr.identifiability._graph import _bridges, _is_small, summary_lines
from skultr.identifiability._plans import _refuse_if_endless
from skultr.identifiability._repair import warn_if_merging_costs_more
from skultr.identifiability._thresholds import (
    ENOUGH_OVERLAP,
    MOST_CATEGORIES,
    MOST_COMPONENTS,
    MOST_FACTORS,
    MOST_HOURS,
    MOST_PAIRS,
    MOST_WHOLE,
    NOTABLE,
    WEAK,
)


@pytest.mark.parametrize(("overlap", "determines"), [(0.149, False), (0.15, True)])
def test_features_determine_examination_from_an_overlap_on(overlap, determines):
    assert ENOUGH_OVERLAP.value == 0.15
    pairs = pd.DataFrame({"factor_a": [1], "factor_b": [2], "overlap": [overlap]})
    information = SimpleNamespace(compares=lambda: True)
    found = FeatureOverlap(pairs, overlap, 10, pd.Index([1, 2]), information)
    assert found.determines is determines
    assert found.summary().startswith("Features overlap") is determines


@pytest.mark.parametrize(("n_components", "expected"), [(6, False), (7, True)])
def test_merging_of_most_factors_is_warned_of(n_components, expected):
    assert MOST_COMPONENTS.value == 0.6
    graph = SimpleNamespace(n_components=n_components, n_factors=10)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        warn_if_merging_costs_more(graph, 2)
    assert [each.category for each in told] == [NotIdentifiableWarning] * expected


@pytest.mark.parametrize(("n_values", "expected"), [(256, False), (257, True)])
def test_merging_of_many_values_without_meaning_is_refused(n_values, expected):
    assert MOST_CATEGORIES.value == 256
    factors = pd.DataFrame({"layout": [f"layout {i}" for i in range(n_values)]})
    vectors = FactorVectors(factors, None, 10.0, merging=True)
    if expected:
        with pytest.raises(ValueError, match="expected at most 256 values"):
            vectors.known(None)
    else:
        assert vectors.known(None).shape == (256, 256)


@pytest.mark.parametrize(("n_values", "expected"), [(20, False), (21, True)])
def test_many_whole_numbers_are_ids(n_values, expected):
    assert MOST_WHOLE.value == 20
    assert _is_category("shelf", pd.Series(range(n_values))) is expected
    assert not _is_category("position", pd.Series(range(n_values)))
    assert not _is_category("shelf", pd.Series(range(n_values)) + 0.5)


@pytest.mark.parametrize(("n_factors", "expected"), [(2_400_000, False), (2_600_000, True)])
def test_merges_that_take_hours_are_refused(n_factors, expected):
    assert MOST_HOURS.value == 2
    if expected:
        with pytest.raises(ValueError, match="at most 2 hours"):
            _refuse_if_endless(n_factors, 1)
    else:
        _refuse_if_endless(n_factors, 1)


def test_weak_links_of_many_factors_are_refused(monkeypatch):
    assert MOST_FACTORS.value == 2_000
    few = MOST_FACTORS._replace(value=3)
    monkeypatch.setattr("skultr.identifiability._bridges.MOST_FACTORS", few)
    monkeypatch.setattr("skultr.identifiability._graph.MOST_FACTORS", few)
    doc = np.zeros(4, dtype=int)
    nodes = np.arange(4)
    assert len(_spanning_tree(nodes[:3], doc[:3], nodes[:3], np.ones(3))[0]) == 2
    with pytest.raises(ValueError, match=r"links 4 bias factors.* at most 3"):
        _spanning_tree(nodes, doc, nodes, np.ones(4))
    assert _is_small(SimpleNamespace(n_pairs=9, n_factors=3))
    assert not _is_small(SimpleNamespace(n_pairs=9, n_factors=4))


@pytest.mark.parametrize(("n_pairs", "expected"), [(1_000_000, False), (1_000_001, True)])
def test_summaries_of_large_graphs_leave_out_what_takes_long(n_pairs, expected):
    assert MOST_PAIRS.value == 1_000_000
    graph = SimpleNamespace(n_pairs=n_pairs, n_factors=2, bridges=pd.DataFrame)
    assert (_bridges(graph) != []) is expected
    assert _is_small(graph) is not expected


def _two_sides(error, share):
    """Positions 1 and 2, and 3 with its share of the impressions of 1 and 3, linked with an error.

    One document of c clicks at both of two factors has a resistance of about 2 / c.
    """
    rare = round(2 / error**2)
    n = 1e9
    impressions = np.array([1.0, 1.0, 0.0, share / (1 - share)]) * n
    doc = ["a", "a", "b", "b"]
    impressions[2] = 1e7
    clicks = [1e6, 1e6, rare, rare]
    return IdentifiabilityGraph(doc, [1, 2, 2, 3], impressions=impressions, clicks=clicks)


@pytest.mark.parametrize(("error", "expected"), [(0.19, False), (0.21, True)])
def test_a_link_is_weak_above_an_error(error, expected):
    assert WEAK.value == 0.2
    lines = summary_lines(_two_sides(error, 0.2))
    assert any("is known only to a factor" in line for line in lines) is expected


@pytest.mark.parametrize(("share", "expected"), [(0.09, False), (0.11, True)])
def test_a_log_is_barely_identifiable_if_weak_links_matter(share, expected):
    """Positions 1 and 2 have equal impressions, so that 3 has about half of the share in all."""
    assert NOTABLE.value == 0.05
    verdict, *_ = summary_lines(_two_sides(0.5, share))
    assert ("barely" in verdict) is expected
