"""What every test shares."""

import numpy as np
import pytest
import torch

#: Code for the type checker of ``make lint``, never run.
collect_ignore = ["typing"]


@pytest.fixture(autouse=True)
def _same_numbers_in_every_run():
    """What a test leaves to the global generators is the same in every run and order."""
    np.random.seed(0)  # noqa: NPY002 - the global generator is the point
    torch.manual_seed(0)
