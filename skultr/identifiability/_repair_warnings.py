"""What a repair warns of: that there is nothing to repair, and what it leaves to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._log._faults import count_of
from ..exceptions import MissingRoleWarning, NotIdentifiableWarning, warn_user

if TYPE_CHECKING:
    from ._graph import IdentifiabilityGraph

__all__ = ["warn_about_nothing", "warn_if_merging_costs_more", "warn_until_served"]

#: Components per bias factor from which on rankers were no better with merged factors.
_MOST_COMPONENTS = 0.6


def warn_about_nothing(framed: bool) -> None:
    """Warn that X has no bias factors."""
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


def warn_if_merging_costs_more(graph: IdentifiabilityGraph, n_left: int) -> None:
    """Warn that merges leave too little, or err too much."""
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


def warn_until_served(graph: IdentifiabilityGraph, served: bool) -> None:
    """Warn that a plan repairs nothing before it was served."""
    what = "the lists of intervened_lists_" if served else "the swaps of interventions_"
    warn_user(
        f"The log is not identifiable: its {graph.n_factors} bias factors fall into "
        f"{graph.n_components} components, and strategy='intervene' merges nothing. Serve {what}, "
        "append their clicks to the log and fit again; until then a ranker that is trained on "
        "this log compares documents of different components by chance.",
        NotIdentifiableWarning,
    )
