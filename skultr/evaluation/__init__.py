"""What a ranking would be worth, told from the clicks on another one."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._policy_value import PolicyEstimate as PolicyEstimate
    from ._policy_value import policy_difference as policy_difference
    from ._policy_value import policy_value as policy_value
else:
    from .._lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "_policy_value": (
                "PolicyEstimate",
                "policy_difference",
                "policy_value",
            ),
        },
    )
