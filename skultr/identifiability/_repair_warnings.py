"""Warnings of repairs that repair nothing, or cost more than they give."""

from __future__ import annotations

from typing import Any

from .._log._faults import count_of
from ..exceptions import MissingRoleWarning, NotIdentifiableWarning, warn_user

#: Components per bias factor from which on rankers were no better with merged factors.
_MOST_COMPONENTS = 0.6


def warn_about_nothing(framed: bool) -> None:
    """Warn that a log has no bias factors to repair."""
    what = (
        "X has neither a column 'bias' nor 'position'"
        if framed
        else "X is an array, whose columns have no roles"
    )
    warn_user(
        f"{what}: IdentifiabilityRepair repairs nothing and returns X unchanged. Pass a frame "
        "with the columns 'doc' and 'position', or name the bias columns in bias=.",
        MissingRoleWarning,
    )


def warn_if_merging_costs_more(graph: Any, n_left: int) -> None:
    """Warn that merging joins more than it connects."""
    ratio = graph.n_components / graph.n_factors
    if n_left > 1 and ratio <= _MOST_COMPONENTS:
        return
    if n_left == 1:
        what = "a ranker that is trained on this is the naive ranker"
    else:
        what = (
            f"{ratio:.2f} components per factor, and above about {_MOST_COMPONENTS} the errors of "
            "so many merges tend to outweigh what they connect"
        )
    warn_user(
        f"Merging leaves {count_of(n_left, 'examination parameter')} for {graph.n_factors} bias "
        f"factors, because all of their {graph.n_components} components had to be joined: {what}. "
        "Use fewer bias columns or coarser values, collect logs that show documents under several "
        "factors, or serve the swaps of strategy='intervene'.",
        NotIdentifiableWarning,
    )
