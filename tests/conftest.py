"""What every test shares."""

import sys

import numpy as np
import pytest

#: Code for the type checker of ``make lint``, never run.
collect_ignore = ["typing"]


@pytest.fixture(autouse=True)
def _same_numbers_in_every_run():
    """What a test leaves to the global generators is the same in every run and order."""
    np.random.seed(0)  # noqa: NPY002 - the global generator is the point
    if "torch" in sys.modules:  # a test of what needs no torch must not wait for it
        sys.modules["torch"].manual_seed(0)
