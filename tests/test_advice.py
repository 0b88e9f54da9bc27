"""Advice is followed to its end: what a message says to do works on the log that raised it.

Each case is what a message says, a log that raises it, and what it says to do, done: that must end
in a fit (or in what the caller wanted), without the message, and without another error. Each row
of the tables of faults and of units needs a case, and so does each message that prints code or a
parameter in the folders that read logs, fit rankers, and judge or serve them. A new message needs
one more line here, or one in ``NOT_FOLLOWED``, with the reason.
"""

import ast
import re
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import skultr
from skultr._log import _faults
from skultr._log._faults import FAULTS, Fault
from skultr._log._units import UNITS

from . import (  # add their cases
    _advice_of_judgments,  # noqa: F401
    _advice_of_models,  # noqa: F401
    _advice_of_values,  # noqa: F401
)
from ._advice_cases import CASES, CLICKS, USERS, fit

PACKAGE = Path(skultr.__file__).parent


def said(action):
    """What an action says: the warnings, and the error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        error = None
        try:
            action()
        except (ValueError, TypeError, AttributeError) as found:
            error = found
    return [
        *(str(each.message) for each in caught),
        *([] if error is None else [str(error)]),
    ], error


def is_in(says, text):
    text = " ".join(str(text).split())
    return all(part in text for part in says)


def identified(part):
    return " ".join(part.says)[:60]


@pytest.mark.parametrize("case", CASES, ids=identified)
def test_advice_ends_in_a_fit(case):
    texts, _ = said(case.wrong)
    parts = tuple(part.replace("{column} ", "") for part in case.says)
    assert any(is_in(parts, text) for text in texts), texts
    for number, action in enumerate(case.do):
        texts, error = said(action)
        assert error is None, (number, texts)
        assert not any(is_in(parts, text) for text in texts), (number, texts)
    assert case.do


# No message without a case ------------------------------------------------------------------
#: Messages of the code whose advice is not followed here, with the reason.
NOT_FOLLOWED = {
    # Files are in folders of their own: tests/test_click_dataset.py, tests/_log.
    "exists already. Open it with ClickDataset(path)": "test_click_dataset",
    "was written anew since it was opened": "test_click_dataset",
    "There is no ClickDataset in": "test_click_dataset",
    "and name the column of clicks with click=": "test_click_dataset",
    "such as those of dataset.to_frame()": "test_click_dataset",
    # Written by whoever derives a class, or brings a network.
    "has no _score(features). Write it": "testing.check_ranker",
    "Check the last layer of the module": "the module is the user's",
    # What no log of a test can be: other hardware, and chance.
    "but torch finds no CUDA device": "there is none here",
    "Training diverged": "depends on the machine",
    # More data, or a judgment of the user's, is what they ask for.
    "which has no examination for them": "asks for a log with all bias factors",
    "set scale to the standard deviation of the labels": "tests/rankers/test_cld_noise",
    "after queries were held out: nothing can be learned": "test_units",
    "The clicks contradict the propensities": "tests/rankers/test_contradiction",
    "other differences are noise": "says what was done",
    "The scale is that of the common curve": "says what was done",
    "clicks carry the information of": "tests/propensity/test_weights",
}
#: What reads logs, fits rankers, and judges and serves them.
FOLDERS = (
    "_log",
    "_torch",
    "identifiability",
    "propensity",
    "metrics",
    "model_selection.py",
    "preprocessing.py",
    "rankers",
    "click_models",
    "evaluation",
    "serving",
)
#: Code, or a parameter.
_CODE = re.compile(r"\b\w+=|\(\)|reset_index|rename\(|\w\(\w*\)")


def _text(node):
    """The text of a literal; fields of an f-string are ``{}``."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(
            _text(part) if isinstance(part, ast.Constant) else "{}" for part in node.values
        )
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    return f"{_text(node.body)} {_text(node.orelse)}" if isinstance(node, ast.IfExp) else "{}"


def _messages():
    """What the code raises or warns of and that prints code, by file and line."""
    for folder in FOLDERS:
        path = PACKAGE / folder
        for file in [path] if path.is_file() else sorted(path.glob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                raised = node.exc if isinstance(node, ast.Raise) else node
                if not (isinstance(raised, ast.Call) and raised.args):
                    continue
                if raised is node and getattr(node.func, "id", "") != "warn_user":
                    continue
                text = " ".join(_text(raised.args[0]).split())
                if _CODE.search(text):
                    yield f"{file.name}:{node.lineno}", text


def test_each_row_of_the_table_of_faults_has_a_case():
    alone = [each for each in vars(_faults).values() if isinstance(each, Fault)]
    for fault in [*FAULTS, *alone]:
        column = fault.reads[0] if fault.reads else ""
        text = fault.sentence.replace("'{column}'", f"'{column}'")
        assert any(is_in(case.says, text) for case in CASES), text


def test_each_row_of_the_table_of_units_has_a_case():
    for unit in UNITS:
        text = unit.sentence.replace("{role!r}", f"'{unit.role}'").replace("{name!r}", "'seen'")
        assert any(is_in(case.says, text) for case in CASES), text


def test_each_message_that_prints_code_has_a_case():
    lacking = [
        f"{place}: {text}"
        for place, text in _messages()
        if not any(is_in(case.says, text) for case in CASES)
        and not any(words in text for words in NOT_FOLLOWED)
    ]
    assert not lacking, "\n".join(lacking)


def test_what_is_not_followed_is_still_said():
    texts = [text for _, text in _messages()]
    for words in NOT_FOLLOWED:
        assert any(words in text for text in texts), words


# Code that mends --------------------------------------------------------------------------
def _lacks(column, frame):
    """The log with another fault beside, so that the message shows the code that mends both."""
    log = USERS.assign(position=USERS["position"] - 1)
    log[column] = log[column].astype(float).where(log.index > 3)
    return frame(log)


def _nan(log):
    """A frame of Polars that has NaN, as one from NumPy."""
    return pl.from_pandas(log, nan_to_null=False)


@pytest.mark.parametrize("as_column", [True, False], ids=["y is a column", "y is an array"])
@pytest.mark.parametrize(
    "frame", [pd.DataFrame, pl.from_pandas, _nan], ids=["pandas", "Polars", "Polars with NaN"]
)
@pytest.mark.parametrize("column", ["qid", "session", "doc", "user"])
def test_code_that_mends_ends_in_a_fit(column, frame, as_column):
    log = _lacks(column, frame)
    y = "click" if as_column else CLICKS
    if not as_column:
        log = log.drop(columns="click") if frame is pd.DataFrame else log.drop("click")
    with pytest.raises(ValueError, match=r"This mends what code can mend") as caught:
        fit(log, y)
    code = textwrap.dedent(str(caught.value).split("can mend:\n\n")[1])
    given = {"log": log, "y": y, "np": np, "pd": pd, "pl": pl}
    exec(code, given)
    fit(given["log"], given["y"])
