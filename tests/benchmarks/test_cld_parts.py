"""The parts of equation 12 that ``studies/cld`` puts into skultr's form of CLD-pair."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks._study import Settings
from benchmarks.papers import _cld_worlds
from benchmarks.papers._cld_worlds import GRID, Log, documents, rankers, tuned
from benchmarks.studies.cld import PARTS, LossWithParts, causes
from skultr.rankers._cld_losses import PairLoss
from skultr.rankers._tobit import Candidates

LABEL, SHOWN = np.array([0.9, 0.2, 0.0, 0.0]), np.array([True, True, False, False])


def pairs(loss, kind):
    """Terms of two shown rows, of a shown one and another, or of two others."""
    places = torch.tensor({"shown": [0, 1], "mixed": [0, 2], "others": [2, 3]}[kind])
    relevance, selection = torch.tensor([[0.3, -0.5, 0.1, 0.4], [0.2, 0.1, -0.6, 0.0]])
    columns = relevance, selection, torch.tensor(LABEL), torch.tensor(SHOWN)
    one, other = ([column[place] for column in columns] for place in places)
    return [float(term) for term in loss.pair_terms(one, other)]


def rows():
    query, weight = np.zeros(4, dtype=int), np.ones(4)
    return Candidates(query, np.arange(4), SHOWN, LABEL, weight, None, query)


@pytest.mark.parametrize("kind", ["shown", "mixed"])
def test_all_parts_are_equation_12(kind):
    printed = PairLoss(1.0, rows(), 0.2, True, "published")
    three = LossWithParts(PARTS["all three"], 1.0, rows(), 0.2, True)
    assert pairs(three, kind) == pytest.approx(pairs(printed, kind))


@pytest.mark.parametrize(
    ("part", "changed"),
    [("winner's term", "shown"), ("unweighted pairs", "shown"), ("mixed pairs", "mixed")],
)
def test_a_part_changes_its_own_pairs(part, changed):
    skultrs = PairLoss(1.0, rows(), 0.2, True)
    for kind in ("shown", "mixed", "others"):
        found = pairs(LossWithParts(PARTS[part], 1.0, rows(), 0.2, True), kind)
        assert (found == pytest.approx(pairs(skultrs, kind))) is (kind != changed)


@pytest.fixture
def settings(monkeypatch):
    monkeypatch.setitem(_cld_worlds.TRAINING, "max_epochs", 1)
    monkeypatch.setattr(_cld_worlds, "N_TEST", {"quick": 50, "full": 50})
    return Settings(quick=True, queries=40)


def test_the_study_has_each_part_beside_the_forms(settings):
    found = list(causes({"world": "hidden signal"}, settings, 0))
    names = [row["ranker"] for row in found]
    assert {*PARTS, "IPS", "CLD-pair", "CLD-pair, printed"} < {*names}
    assert len(names) == len({*names})
    values = {row["ranker"]: row["nDCG@3"] for row in found}
    assert len({values[name] for name in PARTS}) > 1


def test_the_grid_is_searched_by_the_clicks_of_other_queries(settings):
    """Clicks that are a feature choose the learning rate that learns it."""
    settings = replace(settings, queries=300)
    train, _, _ = documents("Yahoo", "nearly linear", settings, 0)
    X, _, examination = _cld_worlds.make_log(Log(eta=0.1), settings, 0)
    assert X["session"].nunique() == 5 * 300 + 1  # and that of the candidates
    feature = train.set_index("doc")["feature_000"].rank(pct=True)
    clicks = np.where(X["position"].notna(), X["doc"].map(feature) > 0.7, 0.0)
    ranker, grid = rankers("linear", settings, examination)["IPS"]
    assert grid["learning_rate"] == GRID["learning_rate"][0]
    grid = {"learning_rate": (1e-9, 0.01), "weight_decay": (0.0,)}
    found = tuned(ranker.set_params(max_epochs=5), grid, X, clicks, train, examination, 0)
    assert (found.learning_rate, found.weight_decay) == (0.01, 0.0)
