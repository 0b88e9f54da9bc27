"""Where the ratings of a table of judgments come from, by the columns beside them."""

from __future__ import annotations

from collections.abc import Iterable

#: The column by which judgments from clicks are told from those of people.
OF_CLICKS = "prior_share"
#: Columns that only tables made of clicks have, and what makes these tables.
_MAKERS = {OF_CLICKS: "click_judgments", "label": "relevance_labels"}


def refuse_labels_of_clicks(names: Iterable[str], what: str) -> None:
    """Raise an error if the columns ``names`` of judgments beside clicks are those of clicks."""
    for column in sorted(_MAKERS.keys() & {*names}):
        raise ValueError(
            f"{what} has the column {column!r}, as tables of {_MAKERS[column]} do: ratings from "
            "clicks agree with clicks by construction, and beside them they prove nothing. "
            "Expected ratings of people or of a language model; if these are, drop the column "
            f"{column!r}."
        )
