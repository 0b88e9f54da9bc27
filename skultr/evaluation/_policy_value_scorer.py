"""Clicks that a ranker would get, as a score: model selection by what an A/B test measures."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.metadata_routing import MetadataRequest

from .._sklearn import validate_params
from .._typing import Column, Predictor, Table
from ..exceptions import ClickDataWarning, warn_user
from ..metrics._scorers import request_roles
from ._logged_pages import ROLES
from ._policy_value import _CONSTRAINTS, policy_value


class PolicyValueScorer:
    """Scorer: expected clicks per page if the estimator ranked the documents of each query.

    Its parameters are those of :func:`policy_value`, by which it judges ``estimator.predict(X)``.
    A search scores by the clicks of a fold, to which ``model`` and ``propensity`` are fitted if
    they are not. If these cannot tell, the score is NaN, ranked last, with a ClickDataWarning.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.evaluation import PolicyValueScorer
    >>> from skultr.simulation import UniformPolicy, simulate_clicks
    >>> class ByGrade:
    ...     def predict(self, X):
    ...         return X["relevance"]
    >>> X, clicks, truth = simulate_clicks(make_ltr(100, n_documents=5, random_state=0),
    ...     n_positions=5, n_sessions=20_000, policy=UniformPolicy(), random_state=0)
    >>> bool(PolicyValueScorer()(ByGrade(), X, clicks) > clicks.sum() / 20_000)
    True
    """

    @validate_params(_CONSTRAINTS, prefer_skip_nested_validation=True)
    def __init__(
        self,
        method: str = "dr",
        *,
        model: Any = None,
        propensity: Any = None,
        gain: str = "clicks",
        k: int | None = None,
    ) -> None:
        self.method, self.gain, self.k = method, gain, k
        self.model, self.propensity = model, propensity

    def __call__(
        self, estimator: Predictor, X: Table, y: Column | str | None = None, **roles: Column | None
    ) -> float:
        """Value by the clicks ``y`` of X; ``roles`` are those of the log, and sample_weight."""
        found = policy_value(X, y, estimator, **vars(self), **roles)
        if np.isnan(found.value):
            warn_user(f"The score is NaN: {found.verdict}", ClickDataWarning)
        return found.value

    def get_metadata_routing(self) -> MetadataRequest:
        """Metadata request of the roles, for scikit-learn's routing."""
        return request_roles(self, (*ROLES, "sample_weight"))

    def __repr__(self) -> str:
        return f"PolicyValueScorer({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"
