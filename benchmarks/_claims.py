"""Whether the sentences of a paper hold in our rows: three verdicts from paired intervals.

A claim is a list of gaps that are above 0 where it holds, such as the lead of a method over each
of its rivals. Each run (seed) gives every gap once, from the same documents and the same log, so
that what the methods of a run share is in none of them; the intervals are t intervals over runs.

*holds*: the interval of every gap lies above 0. All of them must, so that no correction is needed
(intersection-union test). *contradicted*: the interval of some gap lies below 0, at a level that
is corrected for the number of gaps (Bonferroni). *undecided*: neither, or fewer than three runs.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

__all__ = ["CONTRADICTED", "HOLDS", "LOOKS", "UNDECIDED", "Claim", "decide"]

HOLDS, CONTRADICTED, UNDECIDED = "holds", "contradicted", "undecided"
#: Fewer runs decide nothing.
FEWEST_RUNS = 3
#: With ``--until-decided`` claims are looked at after n, 2 n, 4 n and 8 n runs, and each look has
#: a quarter of the errors that the level allows (Bonferroni).
LOOKS = 4


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and the gaps that decide it.

    ``gaps(means, rows)`` gets one run: the mean of each metric (a frame with the metrics as
    columns and the ``by`` columns of the exhibit as index), and all rows of the run. It returns a
    number, Series, frame or array: all above 0 where the sentence holds, NaN where the run cannot
    tell. "Level within .005" is two gaps, ``.005 - gap`` and ``.005 + gap``. The same gaps must
    come from each run: they are matched by the labels of a Series or frame, else by their order.
    ``why`` says why it fails here, if that is known. ``exact``: a count or a theorem, decided by
    one run without an interval: each gap of each run must be above 0. ``jackknife``: one run
    cannot tell, as the sentence is about several (spread over runs): ``gaps`` gets all runs, and
    all but one, and Tukey's pseudo-values stand for the runs.
    """

    says: str
    gaps: Callable
    why: str = ""
    exact: bool = False
    jackknife: bool = False


def decide(claim, views, level=0.95, looks=1):
    """Verdict of a claim; its smallest gap with the interval, runs and level.

    ``views`` gives what the claim's gaps are computed from: see `per_run` and `leave_one_out`.
    """
    table = _pseudo_values(claim, views) if claim.jackknife else _gaps_of(claim, views)
    level = 1 - (1 - level) / looks
    n = table.notna().sum()
    mean, error = table.mean(), table.std() / np.sqrt(n)
    low, high = _interval(mean, error, n, level)
    if claim.exact:
        low, high, level = table.min(), table.max(), 1.0
        verdict = _exactly(low)
    else:
        _, corrected = _interval(mean, error, n, 1 - (1 - level) / max(1, len(n)))
        verdict = _verdict(low, corrected, n)
    found = {"verdict": verdict, "runs": int(n.min()) if len(n) else 0, "level": level}
    if not n.any():
        return found | dict.fromkeys(("gap", "low", "high"), np.nan)
    at = low.fillna(mean).argmin()
    return found | {"gap": mean.iloc[at], "low": low.iloc[at], "high": high.iloc[at]}


def _exactly(least):
    if least.isna().any() or least.empty:
        return UNDECIDED
    return HOLDS if (least > 0).all() else CONTRADICTED


def _verdict(low, corrected, n):
    """Of gaps with their lower bounds and corrected upper bounds; too few runs have none."""
    enough = n >= FEWEST_RUNS
    if (corrected[enough] < 0).any():
        return CONTRADICTED
    return HOLDS if len(n) and enough.all() and (low > 0).all() else UNDECIDED


def _interval(mean, error, n, level):
    half = stats.t.ppf((1 + level) / 2, np.maximum(n - 1, 1)) * error
    return mean - half, mean + half


def _gaps_of(claim, views):
    """One line for each view (run), one column for each gap."""
    # The logarithm of a spread of 0 is no number, and decides nothing.
    with np.errstate(divide="ignore", invalid="ignore"):
        found = [_flat(claim.gaps(means, rows)) for means, rows in views]
    return pd.concat(found, axis=1).T if found else pd.DataFrame()


def _pseudo_values(claim, views):
    """The first view has all runs, each other leaves one out."""
    table = _gaps_of(claim, views)
    if table.empty:
        return table
    n = len(table) - 1
    return n * table.iloc[0] - (n - 1) * table.iloc[1:]


def _flat(gaps):
    """Any kind of gaps as a Series of floats."""
    if isinstance(gaps, pd.DataFrame):
        gaps = gaps.stack(future_stack=True)
    if not isinstance(gaps, pd.Series):
        gaps = pd.Series(np.ravel(np.asarray(gaps, dtype=float)))
    return gaps.astype(float)
