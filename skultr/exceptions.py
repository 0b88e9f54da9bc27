"""Warnings and errors with names, so that a user can silence or catch exactly one of them."""

__all__ = ["AssumptionWarning", "ClickDataWarning", "MissingRoleWarning"]


class MissingRoleWarning(UserWarning):
    """A role column (such as ``qid`` or ``position``) is absent and a default stands in for it."""


class ClickDataWarning(UserWarning):
    """The clicks are usable but probably not what was meant (grades, no clicks at all, ...)."""


class AssumptionWarning(UserWarning):
    """A model had to assume what the log or the user did not say (such as the propensities)."""
