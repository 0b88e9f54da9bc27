"""A warning for rankers that compare rows of a page, where pages have one row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..exceptions import ClickDataWarning, warn_user

if TYPE_CHECKING:
    from .._log._clicklog import ClickLog


def warn_about_one_row_pages(log: ClickLog, subject: str, instead: str) -> None:
    """Warn if most clicks of some queries fell on pages of one row, where nothing is compared."""
    if log.comparable()[1] is None:
        return
    n_shown = np.bincount(log.list_, log.shown, minlength=log.n_lists)
    clicks = np.bincount(log.list_, log.clicks, minlength=log.n_lists)
    share = clicks[n_shown == 1].sum() / clicks.sum()
    warn_user(
        f"{share:.0%} of the clicks fell on pages of one row, from which {subject} learns "
        "nothing: it compares rows of the same page. Expected pages of several rows. If pages "
        "had more, give all rows of a page the same value in the column 'session'; otherwise use "
        f"{instead}.",
        ClickDataWarning,
    )
