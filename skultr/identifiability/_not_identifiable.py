"""The warning of models that learn examination from a log that does not determine it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..exceptions import NotIdentifiableWarning, warn_user
from ._examination_information import information_of_log
from ._verdict import ENOUGH

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog
    from .._typing import Ints


def warn_unless_identifiable(log: ClickLog, network: bool) -> None:
    """Warn if the documents of a log do not connect its bias factors."""
    labels, n_factors = log.cells.component_of_factors, len(log.bias_values)
    n_components = int(labels.max(initial=-1)) + 1
    if n_components == 1:
        return
    consequence = (
        "What connects them is only the network, which gives similar features similar relevance; "
        f"the log cannot confirm this. {_overlap_text(log, labels)}"
        if network
        else "The relevance of documents in different components cannot be compared: it depends "
        "only on where training starts, or on a prior."
    )
    warn_user(
        f"The log does not determine relevance: its {n_factors} bias factors fall into "
        f"{n_components} components, and no document was shown in two of them. {consequence} "
        "See IdentifiabilityGraph.from_log(X).summary() in skultr.identifiability; repair the log "
        "with IdentifiabilityRepair, or filter NotIdentifiableWarning if you accept this.",
        NotIdentifiableWarning,
    )


def _overlap_text(log: ClickLog, labels: Ints) -> str:
    information = information_of_log(log)
    groups = labels[information.factors]
    overlap = information.least(groups)
    if not information.compares(groups):
        return "Features cannot do so either: no result page compares all components."
    if overlap >= ENOUGH:
        return (
            f"Features overlap between the components ({overlap:.2f}; 1: they say nothing of the "
            "bias factor, 0: they give it away), so that the network can do so, if production "
            "knew no more than the features do."
        )
    return (
        f"Features do NOT overlap between the components ({overlap:.2f}; 1: they say nothing of "
        "the bias factor, 0: they give it away), so that the network cannot do so: what it calls "
        "examination may be relevance. See feature_overlap in skultr.identifiability."
    )
