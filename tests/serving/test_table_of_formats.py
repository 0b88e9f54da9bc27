"""The page's table of formats × rankers says what export_model does."""

import csv
import re
from pathlib import Path

import pytest
from lightgbm import LGBMRegressor
from sklearn.linear_model import Ridge

from skultr._torch._net import NeuralEstimator
from skultr.datasets import make_ltr
from skultr.rankers import (
    EnsembleRanker,
    IPSRanker,
    LambdaMARTRanker,
    NaiveRanker,
    VectorizationRanker,
)
from skultr.serving import export_model
from skultr.simulation import EYE_TRACKING, PlackettLucePolicy, simulate_clicks

from .._discovery import public_rankers
from ._engines import QUIET

pytest.importorskip("onnx", reason="needs skultr[serving]")
pytestmark = QUIET

PAGE = Path(__file__).parents[2] / "docs" / "studies" / "engines.rst"
#: The formats that the page calls trees.
TREES = ["xgboost+json", "xgboost+json+raw", "ranklib", "elastic", "lightgbm"]
#: Rows that are no class with its defaults.
SETTINGS = {
    "LightGBM as estimator": IPSRanker(
        estimator=LGBMRegressor(n_estimators=5, n_jobs=1, verbosity=-1), propensity=EYE_TRACKING
    ),
    "linear model as estimator": NaiveRanker(estimator=Ridge()),
    "hidden_layer_sizes=(), scale_features=False": NaiveRanker(
        hidden_layer_sizes=(), scale_features=False
    ),
    'VectorizationRanker(student="only")': VectorizationRanker(student="only"),
    "EnsembleRanker of trees, without production": EnsembleRanker(
        [(f"{n} leaves", LambdaMARTRanker(n_estimators=5, num_leaves=n)) for n in (3, 7)]
    ),
}


def _table():
    """Rows of the page's table, by their first cell."""
    lines = iter(PAGE.read_text(encoding="utf-8").split(".. csv-table::")[1].splitlines())
    cells = [line.strip() for line in lines if line.startswith("   ")]
    (_, *columns), *rows = csv.reader(cells[2:], skipinitialspace=True)
    return {
        name: {
            form: cell == "yes"
            for column, cell in zip(columns, row, strict=True)
            for form in (TREES if column == "trees" else [column])
        }
        for name, *row in rows
    }


@pytest.fixture(scope="module")
def log():
    documents = make_ltr(n_queries=40, n_features=6, random_state=0)
    policy = PlackettLucePolicy()
    return simulate_clicks(
        documents, n_sessions=600, n_positions=5, policy=policy, candidates=True, random_state=0
    )[:2]


ROWS = _table()


RANKERS = {type(ranker).__name__: ranker for ranker in public_rankers()} | SETTINGS


def _row_of(name):
    """First cell of the row of a ranker; None if it needs none, because it is in no format."""
    if name == "DistilledRanker":
        return "DistilledRanker (student of LightGBM)"
    if name in ROWS:
        return name
    return "other networks" if isinstance(RANKERS[name], NeuralEstimator) else None


def test_every_row_is_a_ranker():
    assert {*map(_row_of, RANKERS)} - {None} == {*ROWS}


@pytest.mark.parametrize("name", RANKERS)
def test_the_table_is_what_export_model_does(name, log):
    ranker = RANKERS[name]
    if "max_epochs" in ranker.get_params():
        ranker.set_params(max_epochs=1)
    ranker.fit(*log)
    nowhere = dict.fromkeys(next(iter(ROWS.values())), False)
    expected = ROWS.get(_row_of(name), nowhere)
    found = {form: _is_written(ranker, form) for form in expected}
    assert found == expected, f"{PAGE}: the row of {name} in the table of formats"


def _is_written(ranker, form):
    try:
        return bool(export_model(ranker, form))
    except ValueError as error:
        if re.search(r"export|Export|format", str(error)):
            return False
        raise


def test_networks_are_named_under_the_table():
    networks = [name for name in RANKERS if _row_of(name) == "other networks"]
    text = PAGE.read_text(encoding="utf-8").split("*Networks* are")[1].split("The last two")[0]
    named = re.findall(r":class:`~skultr\.(?:\w+\.)?(\w+)`", text)
    assert sorted(named) == sorted(networks), f"{PAGE}: the networks named under the table"


def test_all_formats_are_in_the_table():
    constraint = export_model._skl_parameter_constraints["format"][0]
    assert all(set(row) == set(constraint.options) for row in ROWS.values())
