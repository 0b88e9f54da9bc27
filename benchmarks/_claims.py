"""Whether the sentences of a paper hold in our rows: three verdicts from paired intervals.

A claim is a list of gaps that are above 0 where it holds, such as the lead of a method over each
of its rivals. Each run (seed) gives every gap once, from the same documents and the same log, so
that what the methods of a run share is in none of them; the intervals are t intervals over runs.

*holds*: the interval of every gap lies above 0. All of them must, so that no correction is needed
(intersection-union test). *contradicted*: the interval of some gap lies below 0, at a level that
is corrected for the number of gaps (Bonferroni). *undecided*: neither, or fewer than three runs.
With the verdict comes the gap that decides it, and its interval at the level that decides.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

__all__ = ["CONTRADICTED", "HOLDS", "LOOKS", "PAPER", "UNDECIDED", "Claim", "decide"]

HOLDS, CONTRADICTED, UNDECIDED = "holds", "contradicted", "undecided"
#: Where a claim is asked as its paper asks it.
PAPER = "paper"
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
    all but one, and Tukey's pseudo-values stand for the runs. ``setting``: what is ours in the
    question, such as a world that the paper does not have; the verdict on the paper leaves these
    claims out.
    """

    says: str
    gaps: Callable
    why: str = ""
    exact: bool = False
    jackknife: bool = False
    setting: str = PAPER


def decide(claim, views, level=0.95, looks=1):
    """Verdict of a claim; the gap that decides it with its interval, runs and level.

    The gap that decides is the one furthest below 0 where the claim is contradicted, at the level
    corrected for the number of gaps; else the one whose interval begins lowest. ``views`` has the
    means and rows of each run; for a jackknife those of all runs, and of all but each.
    """
    table = _pseudo_values(claim, views) if claim.jackknife else _gaps_of(claim, views)
    level = 1 - (1 - level) / looks
    n = table.notna().sum()
    found = {"runs": int(n.min()) if len(n) else 0}
    if claim.exact:
        level = 1.0
        verdict = _exactly(table.min())
        bounds = pd.DataFrame({"gap": table.mean(), "low": table.min(), "high": table.max()})
    else:
        corrected = 1 - (1 - level) / max(1, len(n))
        strict = _bounds(table, n, corrected)
        bounds = _bounds(table, n, level)
        verdict = _verdict(bounds["low"], strict["high"], n)
        if verdict == CONTRADICTED:
            level = corrected
            bounds = strict[n >= FEWEST_RUNS]
    found |= {"verdict": verdict, "level": level}
    if not n.any():
        return found | dict.fromkeys(("gap", "low", "high"), np.nan)
    end = "high" if verdict == CONTRADICTED and not claim.exact else "low"
    decides = bounds[end].fillna(bounds["gap"]).argmin()
    return found | bounds.iloc[decides].to_dict()


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


def _bounds(table, n, level):
    """Mean and t interval of each gap over the runs, a gap per line."""
    mean = table.mean()
    half = stats.t.ppf((1 + level) / 2, np.maximum(n - 1, 1)) * table.std() / np.sqrt(n)
    return pd.DataFrame({"gap": mean, "low": mean - half, "high": mean + half})


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
