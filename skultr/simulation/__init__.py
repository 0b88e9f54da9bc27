"""Click logs with known truth: policies that rank, users who click.

:func:`simulate_clicks` shows documents (of :mod:`skultr.datasets`) to users and returns the log,
the clicks, and the truth that they were drawn from. Estimators and this folder never import each
other.
"""

from .._models._browsing import EYE_TRACKING, TIANGONG_CLICK_MATRIX
from ._beyond_scalar import ClickMatrixUser, TrustBiasUser
from ._clicks_on_lists import clicks_on_lists
from ._disconnected import make_disconnected_log
from ._experiments import MixturePolicy, ShufflePolicy, SwapPolicy
from ._generate import SimulatedLog, simulate_clicks
from ._layouts import CarouselUser, MixtureDBNUser
from ._policies import (
    DeterministicPolicy,
    PlackettLucePolicy,
    UniformPolicy,
    hidden_signal_scores,
    noisy_oracle_scores,
    production_scores,
)
from ._population import UserPopulation
from ._protocols import Policy, User
from ._sequential import CascadeUser, CCMUser, DBNUser, DCMUser, UBMUser
from ._shift import ShiftedLogs, simulate_shift
from ._users import (
    ContextualPositionBasedUser,
    PositionBasedUser,
    relevance_probability,
)

__all__ = [
    "EYE_TRACKING",
    "TIANGONG_CLICK_MATRIX",
    "CCMUser",
    "CarouselUser",
    "CascadeUser",
    "ClickMatrixUser",
    "ContextualPositionBasedUser",
    "DBNUser",
    "DCMUser",
    "DeterministicPolicy",
    "MixtureDBNUser",
    "MixturePolicy",
    "PlackettLucePolicy",
    "Policy",
    "PositionBasedUser",
    "ShiftedLogs",
    "ShufflePolicy",
    "SimulatedLog",
    "SwapPolicy",
    "TrustBiasUser",
    "UBMUser",
    "UniformPolicy",
    "User",
    "UserPopulation",
    "clicks_on_lists",
    "hidden_signal_scores",
    "make_disconnected_log",
    "noisy_oracle_scores",
    "production_scores",
    "relevance_probability",
    "simulate_clicks",
    "simulate_shift",
]
