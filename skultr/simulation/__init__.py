"""Click logs with known truth: policies that rank, users who click.

:func:`simulate_clicks` shows documents (of :mod:`skultr.datasets`) to users and returns the log,
the clicks, and the truth that they were drawn from. No estimator is imported here.
"""

from .._models._browsing import EYE_TRACKING, TIANGONG_CLICK_MATRIX
from ._disconnected import make_disconnected_log
from ._generate import ShiftedLogs, SimulatedLog, clicks_on_lists, simulate_clicks, simulate_shift
from ._matrix_user import ClickMatrixUser
from ._page_users import (
    CarouselUser,
    CascadeUser,
    DBNUser,
    DCMUser,
    MixtureDBNUser,
    TrustBiasUser,
    UBMUser,
)
from ._policies import (
    DeterministicPolicy,
    MixturePolicy,
    PlackettLucePolicy,
    Policy,
    ShufflePolicy,
    SwapPolicy,
    UniformPolicy,
    hidden_signal_scores,
    noisy_oracle_scores,
    production_scores,
)
from ._users import (
    ContextualPositionBasedUser,
    PositionBasedUser,
    User,
    UserPopulation,
    relevance_probability,
)

__all__ = [
    "EYE_TRACKING",
    "TIANGONG_CLICK_MATRIX",
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
