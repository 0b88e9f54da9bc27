"""Shared parameters stand one by one in the docstring of each neural estimator."""

import inspect
import re

import pytest

from skultr import DLARanker
from skultr._torch._net import NeuralEstimator
from skultr._torch._shared_parameters import SHARED_PARAMETERS, describe_shared_parameters
from skultr.rankers import NaiveRanker

from .._discovery import public_estimators

NEURAL = [each for each in public_estimators() if isinstance(each, NeuralEstimator)]


def test_nothing_shared_is_forgotten():
    assert set(SHARED_PARAMETERS) == set(inspect.signature(NeuralEstimator).parameters)


@pytest.mark.parametrize("estimator", NEURAL, ids=lambda each: type(each).__name__)
def test_each_parameter_has_an_entry_with_its_default(estimator):
    entries = dict(
        re.findall(r"^(\w+) : .*default=(.+)$", inspect.getdoc(type(estimator)), re.MULTILINE)
    )
    for name, parameter in inspect.signature(type(estimator)).parameters.items():
        if name in SHARED_PARAMETERS:
            assert entries.pop(name).strip('"') == str(parameter.default), name


@pytest.mark.parametrize("estimator", NEURAL, ids=lambda each: type(each).__name__)
def test_every_parameter_has_one_entry_and_nothing_else_has(estimator):
    parts = re.split(r"^(.+)\n-{3,}\n", inspect.getdoc(type(estimator)), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    text = sections.get("Parameters", "") + sections["Other Parameters"]
    heads = re.findall(r"^(\w.*)$", text, re.MULTILINE)
    names = [name for head in heads for name in head.split(" : ")[0].split(", ")]
    assert sorted(names) == sorted(inspect.signature(type(estimator)).parameters)
    assert all(" : " in head for head in heads)


def test_what_is_special_to_a_class_stands_with_the_first_of_its_group():
    class Special(NaiveRanker):
        """One line.

        Other Parameters
        ----------------
        n_iter_no_change, batch_size
            Twice as many
            as usual.
        device

        Attributes
        ----------
        net_ : skorch.NeuralNet
        """

        n_iter_no_change = 7

    lines = inspect.getdoc(Special).splitlines()
    start = lines.index("n_iter_no_change : int, default=7")
    assert lines[start + 2 : start + 5] == [
        "    Twice as many",
        "    as usual.",
        'batch_size : int or "auto", default="auto"',
    ]
    assert 'device : str or torch.device, default="cpu"' in lines
    assert lines[-3:] == ["Attributes", "----------", "net_ : skorch.NeuralNet"]


def test_parameters_of_a_class_of_the_user_stay():
    class Mine(NaiveRanker):
        """One line.

        Other Parameters
        ----------------
        mine, device
            Both.
        verbose

        Attributes
        ----------
        net_ : skorch.NeuralNet
        """

    assert "mine, device\n    Both.\nverbose : int, default=0\n" in inspect.getdoc(Mine)


def test_other_docstrings_stay():
    described = DLARanker.__doc__
    describe_shared_parameters(DLARanker)
    assert DLARanker.__doc__ == described

    class Bare(NaiveRanker):
        pass

    assert "__doc__" not in vars(Bare) or Bare.__doc__ is None


@pytest.mark.parametrize("estimator", NEURAL, ids=lambda each: type(each).__name__)
def test_every_shared_passage_is_filled_in(estimator):
    assert not re.search(r"^ *\{\w+\}$", inspect.getdoc(type(estimator)), re.MULTILINE)
