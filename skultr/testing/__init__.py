"""Checks that a ranker, click model, propensity estimator or user keeps the contracts here."""

from ._estimator_checks import check_click_model, check_propensity, check_ranker
from ._user_checks import check_user

__all__ = ["check_click_model", "check_propensity", "check_ranker", "check_user"]
