"""What every test shares."""

import sys

import numpy as np
import pytest

#: Code for the type checker of ``make lint``, never run.
collect_ignore = ["typing"]


def pytest_addoption(parser):
    parser.addoption(
        "--seed-shift",
        type=int,
        default=0,
        help="add this to every seed: do statistical tests hold in other draws?",
    )


def pytest_configure(config):
    shift = config.getoption("--seed-shift")
    if shift:
        _shift_seeds(shift)


def _shift_seeds(shift):
    """Let NumPy's generators take another seed than the one that a test writes."""
    new_generator = np.random.default_rng
    State = np.random.RandomState

    def default_rng(seed=None):
        return new_generator(seed + shift if isinstance(seed, int) else seed)

    class AnyState(type):
        """Generators that were made before are states as well: NumPy's global one."""

        def __instancecheck__(cls, instance):
            return isinstance(instance, State)

    class RandomState(State, metaclass=AnyState):
        def __init__(self, seed=None):
            super().__init__(seed + shift if isinstance(seed, int) else seed)

    np.random.default_rng = default_rng
    np.random.RandomState = RandomState


def pytest_collection_modifyitems(config, items):
    if config.getoption("--seed-shift"):
        skip = pytest.mark.skip(reason="holds for the seed that it writes")
        for item in items:
            if item.get_closest_marker("pinned"):
                item.add_marker(skip)


@pytest.fixture(autouse=True)
def _same_numbers_in_every_run():
    """What a test leaves to the global generators is the same in every run and order."""
    np.random.seed(0)  # noqa: NPY002 - the global generator is the point
    if "torch" in sys.modules:  # a test of what needs no torch must not wait for it
        sys.modules["torch"].manual_seed(0)


@pytest.fixture
def callbacks():
    """scikit-learn's callbacks, which its release 1.8 does not have."""
    return pytest.importorskip("sklearn.callback", reason="needs scikit-learn 1.9")
