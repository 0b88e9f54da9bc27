"""Texts of the role ``team``: what an interleaved document owes to each ranking.

A ranking that placed it ("new"), its rank in each ("old#3 new#1"), or the probability that each
placed it ("old=0.2 new=0.8").
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from .._base._typing import Column, Floats, Ints

_PART = re.compile(r"([^#= ]+)(?:([#=])(\d*\.?\d+(?:e-\d+)?))?")


class Teams(NamedTuple):
    """What :func:`read_teams` returns."""

    names: list[str]  # of the rankings
    values: Floats  # of shape (n_rows, n_rankings): ranks, or shares that sum to 1
    are_ranks: bool


def team_texts(values: Floats, names: list[str], sign: str) -> tuple[list[str], Ints]:
    """Distinct texts of ranks (sign "#") or shares ("=") of the rankings, and that of each row."""
    which, values = np.zeros(len(values), dtype=int), np.round(values, 4)
    for column in values.T:
        code, distinct = pd.factorize(column)
        which = pd.factorize(which * len(distinct) + code)[0]
    rows = values[np.unique(which, return_index=True)[1]].tolist()
    parts = [zip(names, row, strict=True) for row in rows]
    return [" ".join(f"{n}{sign}{v:g}" for n, v in of if 0 < v < np.inf) for of in parts], which


def read_teams(team: Column) -> Teams:
    """Rankings, and their ranks or shares in each row."""
    code, texts = pd.factorize(team)
    found = [[_PART.fullmatch(part) for part in f"{text}".split(" ")] for text in texts]
    parts = [[part.groups() for part in of if part] for of in found]
    kinds = {kind for of in parts for _, kind, _ in of}
    names = sorted({name for of in parts for name, *_ in of})
    are_ranks = kinds == {"#"}
    table = np.full((len(texts), len(names)), np.inf if are_ranks else 0.0)
    for row, of in zip(table, parts, strict=True):
        row[[names.index(name) for name, *_ in of]] = [float(value or 1) for *_, value in of]
    total = table.sum(axis=1, keepdims=True)
    fit = len(names) == 2 if are_ranks else len(names) > 1 and (np.abs(total - 1) < 0.01).all()
    if not fit or len(kinds) != 1 or not all(map(all, found)):
        raise ValueError(
            f"team holds {list(texts[:3])}, ...; expected texts of one Interleaver, which name "
            "two or more rankings."
        )
    return Teams(names, (table if are_ranks else table / total)[code], are_ranks)  # as rounded
