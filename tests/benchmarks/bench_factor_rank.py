"""Level, power and time of factor_rank. Run by hand:

    python tests/benchmarks/bench_factor_rank.py level [--repeats 300]
    python tests/benchmarks/bench_factor_rank.py power [--repeats 100]
    python tests/benchmarks/bench_factor_rank.py time [--sessions 1000000]

``level``: how often more than one product is found where users examine by position only; the
level of the test is 0.05. ``power``: the same where they trust the top positions, and where they
click as the table of TianGong-ST says. ``time``: seconds for a log of ten positions, raw (a row an
impression) and reduced to its distinct (document, position) cells.
"""

import argparse
import time

import numpy as np
import pandas as pd

from skultr.identifiability import factor_rank
from skultr.simulation import EYE_TRACKING, TIANGONG_CLICK_MATRIX

EXAMINATION = np.array(EYE_TRACKING)
POSITION = np.arange(1, 11)
GAIN = (2.0 ** np.arange(5) - 1) / 15
SHARES = [0.5, 0.2, 0.15, 0.1, 0.05]


def click_rates(world):
    """Click rate by grade and position."""
    if world == "position":
        return np.outer(0.1 + 0.9 * GAIN, EXAMINATION)
    if world == "trust":
        right, wrong = 1 - (POSITION + 1) / 100, 0.65 / POSITION
        return EXAMINATION * (right * GAIN[:, None] + wrong * (1 - GAIN[:, None]))
    return np.array(TIANGONG_CLICK_MATRIX)


def draw(world, policy, n_sessions, n_queries=500, differ=0.0, skewed=False, seed=0):
    """Raw log: arrays query, doc, grade and click, each of shape (n_sessions, 10).

    With ``differ``, documents of a grade differ in relevance by up to that share. The policy
    "knowing" ranks by it too.
    """
    rng = np.random.default_rng(seed)
    grade = rng.choice(5, (n_queries, 15), p=SHARES)
    own = rng.uniform(1 - differ, 1 + differ, grade.shape)
    score = 0.5 * grade + rng.normal(size=grade.shape)
    asked = 1 / np.arange(1, n_queries + 1) if skewed else np.ones(n_queries)
    query = rng.choice(n_queries, n_sessions, p=asked / asked.sum())
    if policy == "knowing":
        score += 3 * (own - 1)
    if policy == "deterministic":
        order = np.argsort(-score, axis=1)[query]
    else:
        spread = 1e9 if policy == "uniform" else 0.5
        order = np.argsort(-(score[query] / spread + rng.gumbel(size=(n_sessions, 15))), axis=1)
    order = order[:, :10]
    shown = np.take_along_axis(grade[query], order, axis=1)
    rate = click_rates(world)[shown, POSITION - 1]
    rate = np.minimum(rate * np.take_along_axis(own[query], order, axis=1), 1)
    click = rng.random(order.shape) < rate
    return query[:, None] + np.zeros_like(order), 15 * query[:, None] + order, shown, click


def cells(query, doc, grade, click):
    """The log reduced to (document, position), and click rates."""
    key = (doc * 10 + POSITION - 1).ravel()
    found, first, cell = np.unique(key, return_index=True, return_inverse=True)
    n = np.bincount(cell)
    log = pd.DataFrame(
        {
            "qid": query.ravel()[first],
            "doc": doc.ravel()[first],
            "position": found % 10 + 1,
            "impressions": n,
            "relevance": grade.ravel()[first],
        }
    )
    return log, np.bincount(cell, click.ravel()) / n


def row(rows, world, policy, n_sessions, repeats, **world_params):
    """One line of a table."""
    ranks, conclusive, start = [], 0, time.perf_counter()
    for seed in range(repeats):
        log, rate = cells(*draw(world, policy, n_sessions, seed=seed, **world_params))
        result = factor_rank(log, rate, rows=rows, n_resamples=99, random_state=seed)
        ranks.append(result.rank)
        conclusive += result.is_conclusive
    counts = ", ".join(
        f"{rank}: {n}" for rank, n in zip(*np.unique(ranks, return_counts=True), strict=True)
    )
    extra = " ".join(f"{key}={value}" for key, value in world_params.items())
    print(
        f"{rows or 'groups':<10}{world:<9} {policy:<14}{n_sessions:>8,} {extra:<24} "
        f"{np.mean(np.array(ranks) > 1):6.3f} {conclusive / repeats:8.2f}  {{{counts}}}"
        f"  {(time.perf_counter() - start) / repeats:.2f} s",
        flush=True,
    )


HEADER = "rows      world    policy        sessions                          found   concl.  ranks"


def bench_level(repeats):
    """Worlds in which one product is enough."""
    print(HEADER)
    for policy in ("plackett-luce", "uniform"):
        for n_sessions in (1_000, 5_000, 20_000):
            row(None, "position", policy, n_sessions, repeats)
    row(None, "position", "knowing", 20_000, repeats, differ=0.45)
    row(None, "position", "plackett-luce", 20_000, repeats, skewed=True)
    for policy in ("deterministic", "plackett-luce", "uniform"):
        for n_sessions in (300, 2_000, 20_000):
            row("relevance", "position", policy, n_sessions, repeats)
    row("relevance", "position", "deterministic", 20_000, repeats, n_queries=100, differ=0.45)


def bench_power(repeats):
    """Worlds in which it is not."""
    print(HEADER)
    for world in ("trust", "TianGong"):
        for n_sessions in (1_000, 2_000, 5_000, 10_000, 20_000, 100_000):
            row(None, world, "plackett-luce", n_sessions, repeats if n_sessions < 1e5 else 20)
        for n_sessions in (100, 300, 1_000, 3_000, 100_000):
            row("relevance", world, "deterministic", n_sessions, repeats)


def bench_time(n_sessions):
    """Seconds of one call with the default 200 resamples."""
    raw = draw("trust", "plackett-luce", n_sessions, n_queries=10_000)
    query, doc, grade, click = (values.ravel() for values in raw)
    position = np.tile(POSITION, n_sessions)
    columns = {"qid": query, "doc": doc, "position": position, "relevance": grade}
    raw_log = pd.DataFrame(columns), click
    for name, (log, y) in {"raw": raw_log, "cells": cells(*raw)}.items():
        for rows in (None, "relevance"):
            start = time.perf_counter()
            result = factor_rank(log, y, rows=rows, random_state=0)
            seconds = time.perf_counter() - start
            print(f"{name:<6} {len(log):>11,} rows  {rows or 'groups':<10} {seconds:6.1f} s ")
            print(f"       {result}")


def main():
    """Choose the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("level", "power", "time"))
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--sessions", type=int, default=1_000_000)
    args = parser.parse_args()
    if args.what == "time":
        bench_time(args.sessions)
    else:
        {"level": bench_level, "power": bench_power}[args.what](args.repeats)


if __name__ == "__main__":
    main()
