"""Click logs with known truth: policies that rank, users who click.

:func:`simulate_clicks` shows documents (of :mod:`skultr.datasets`) to users and returns the log,
the clicks, and the truth behind them. Nothing here knows an estimator, and no estimator knows
this folder.
"""

from .._models._browsing import EYE_TRACKING, TIANGONG_CLICK_MATRIX
from ._beyond_scalar import ClickMatrixUser, TrustBiasUser
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
    "PositionBasedUser",
    "ShiftedLogs",
    "ShufflePolicy",
    "SimulatedLog",
    "SwapPolicy",
    "TrustBiasUser",
    "UBMUser",
    "UniformPolicy",
    "UserPopulation",
    "hidden_signal_scores",
    "make_disconnected_log",
    "noisy_oracle_scores",
    "production_scores",
    "relevance_probability",
    "simulate_clicks",
    "simulate_shift",
]
