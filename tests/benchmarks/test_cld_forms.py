"""The study of CLDRanker's forms: its logs, its default, and what a form is behind."""

from dataclasses import replace

import pandas as pd
import pytest

from benchmarks._study import Settings
from benchmarks.papers import _cld_worlds
from benchmarks.studies import cld_forms
from benchmarks.studies.cld_forms import (
    CHOOSE,
    DEFAULT,
    FORMS,
    JUDGE,
    LOGS,
    behind,
    behind_elsewhere,
    logs_of,
)
from skultr import CLDRanker


@pytest.fixture
def settings(monkeypatch):
    monkeypatch.setattr(_cld_worlds, "N_TEST", {"quick": 20, "full": 20})
    return Settings(tiny=True)


def test_the_default_is_the_form_that_the_study_calls_so():
    ranker = CLDRanker()
    assert {name: getattr(ranker, name) for name in FORMS[DEFAULT]} == FORMS[DEFAULT]
    assert (ranker.variant, ranker.scale) == ("default", "estimate")


def test_the_form_is_judged_on_logs_that_it_was_not_chosen_on():
    assert len(JUDGE) >= 12
    shops = [repr(shop) for shop in LOGS.values()]
    assert len(shops) == len({*shops}) == len(CHOOSE) + len(JUDGE)


@pytest.mark.filterwarnings("ignore:The log has .* clicks per query")
def test_each_form_is_fitted_once(settings):
    found = list(cld_forms.choose({"log": "nearly linear, hidden"}, settings, 0))
    names = [row["form"] for row in found]
    assert len(names) == len({*names})
    assert {*FORMS, "IPS", "naive", "lists, twice the steps"} < {*names}
    assert all(0 <= row[f"nDCG@{k}"] <= 1 for row in found for k in (3, 10))


def test_real_documents_need_their_files(settings, monkeypatch):
    monkeypatch.setattr(cld_forms, "DATA", "no folder")
    cells = logs_of(LOGS, 3)
    full = [cell["log"] for cell in cells(replace(settings, tiny=False))]
    assert full
    assert all(LOGS[name].documents in ("non-linear", "nearly linear") for name in full)
    assert len(cells(replace(settings, quick=True, tiny=False))) == 3


def test_a_form_is_behind_the_best_of_its_log():
    """By the means over seeds: .6 of "lists" in one log, .7 of "rows" in the other."""
    values = {
        ("one", 0): {"lists": 0.5, "rows": 0.6},
        ("one", 1): {"lists": 0.7, "rows": 0.5},
        ("other", 0): {"lists": 0.5, "rows": 0.7},
    }
    table = pd.DataFrame(
        {"log": log, "seed": seed, "form": form, "nDCG@10": value}
        for (log, seed), of_forms in values.items()
        for form, value in {**dict.fromkeys(FORMS, 0.1), **of_forms, "naive": 0.9}.items()
    )
    found = behind(table).set_index(["log", "form", "seed"]).sort_index()
    assert found["best"].groupby("log").unique().str[0].to_dict() == {
        "one": "lists",
        "other": "rows",
    }
    gap = found["behind"].to_dict()
    assert gap["one", "rows", 0] == pytest.approx(0.1)
    assert gap["one", "rows", 1] == pytest.approx(-0.2)
    assert gap["other", "lists", 0] == pytest.approx(-0.2)
    assert gap["one", "lists", 0] == gap["one", "lists", 1] == 0


def test_the_best_form_of_a_run_is_found_on_the_other_runs():
    """ "lists" is the best by all three, and "rows" by the last two."""
    values = [
        {"lists": 0.9, "rows": 0.1},
        {"lists": 0.5, "rows": 0.6},
        {"lists": 0.5, "rows": 0.6},
    ]
    table = pd.DataFrame(
        {"log": "one", "seed": seed, "form": form, "nDCG@10": value}
        for seed, of_forms in enumerate(values)
        for form, value in {**dict.fromkeys(FORMS, 0.0), **of_forms}.items()
    )
    found = behind_elsewhere(table).set_index(["form", "seed"])
    assert found.loc["rows", "best"].tolist() == ["rows", "lists", "lists"]
    gap = found["behind"]
    assert gap["rows"].tolist() == pytest.approx([0.0, 0.1, 0.1])
    assert gap["lists"].tolist() == pytest.approx([0.8, 0.0, 0.0])
