"""Every ranker with its defaults, where its assumptions hold and where they do not.

Documents (made; MQ2008; LightGBM's example; ClueWeb09 with 437 candidates per query; a LETOR file)
x users x production rankers x policies x sizes of log x seeds. All methods learn from the same
clicks; LightGBM and XGBoost from all sessions, one by one (their objectives know no impressions).
nDCG@10 on the labels of other queries. By hand, with the extra ``benchmark``:

    python -m benchmarks studies/robustness --out rows.jsonl --workers 4
    python -m benchmarks studies/robustness --out rows.jsonl --subset full --seeds 0 1 2
    python -m benchmarks studies/robustness --out rows.jsonl --summary [--rst]

Each fit appends a line to ``--out``; what is there already is not done again (but what failed is).
``regular`` has 40 cells and takes a quarter of an hour with four workers; ``full`` has all 1,152,
in an order of which any beginning is balanced (``--cells 100``). A log of 1,000,000 sessions takes
about 10 GB per worker. Sets of documents whose files are not in ``--data`` (or SKULTR_DATA) are
left out.

Production scores are standard deviations, and so are temperatures. Production of ``1 %`` of the
labels is linear, and the others are trees. That of ``all labels`` has learned the labels of the
very queries that it serves, so that position is nearly relevance in the log, and less so for
other queries; ``hidden signal`` adds to that of 10 % what no feature tells.

A cell is judged by its mean over seeds. Regret is to the best method of the cell, ``below`` counts
cells more than .005 below, ``harm`` those more than .03 below naive, and harm is *silent* if in
some seed no warning of skultr was raised. ``warned`` is the share of all cells with a warning: one
that comes everywhere warns of nothing. Seconds are of the processor.
"""

import argparse
import json
import multiprocessing
import os
import resource
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import lightgbm
import numpy as np
import pandas as pd
import xgboost

from skultr import exceptions, rankers

from ._robustness_worlds import FILES, Cell, World, cells, documents_of

ROUNDS = 100
RANKERS = {
    "naive": "NaiveRanker",
    "ensemble": "EnsembleRanker",
    "IPS": "IPSRanker",
    "user-aware": "UserAwareIPSRanker",
    "DLA": "DLARanker",
    "regression-EM": "RegressionEMRanker",
    "two towers": "TwoTowerRanker",
    "pair-debias": "PairDebiasRanker",
    "affine": "AffineRanker",
    "vectorization": "VectorizationRanker",
    "CLD": "CLDRanker",
    "LambdaMART": "LambdaMARTRanker",
}
PEERS = ("LightGBM", "LightGBM, position", "XGBoost, unbiased")
METHODS = ("production", "random", *RANKERS, *PEERS)
#: Rankers that learn from documents that were never shown.
READ_CANDIDATES = ("CLD",)
CELL = list(Cell._fields)
MARGIN, HARM = 0.005, 0.03


# --------------------------------------------------------------------------------------
# Methods: functions from a world and a seed to scores of the test documents
# --------------------------------------------------------------------------------------
def methods():
    """Name -> method; rankers that the package does not have are left out."""
    found = {"production": lambda world, seed: world.served, "random": _random}
    for name, ranker in RANKERS.items():
        if hasattr(rankers, ranker):
            found[name] = _fit_ranker(getattr(rankers, ranker), name in READ_CANDIDATES)
    return found | {
        "LightGBM": lambda world, seed: _fit_lightgbm(world, seed),
        "LightGBM, position": lambda world, seed: _fit_lightgbm(world, seed, debias=True),
        "XGBoost, unbiased": _fit_xgboost,
    }


def _random(world, seed):
    return np.random.default_rng(seed).random(len(world.test))


def _fit_ranker(ranker, candidates):
    def fit(world, seed):
        log, rate = world.lists_and_candidates() if candidates else world.lists
        return ranker(random_state=seed).fit(log, rate).predict(world.test)

    return fit


def _fit_lightgbm(world, seed, debias=False):
    features, clicks, length, position = world.sessions()
    data = lightgbm.Dataset(features, clicks, group=length, position=position if debias else None)
    settings = {
        "objective": "lambdarank",
        "label_gain": [0, 1],
        "lambdarank_position_bias_regularization": 0.0,
        "verbosity": -1,
        "num_threads": 1,
        "seed": seed,
    }
    booster = lightgbm.train(settings, data, ROUNDS)
    return booster.predict(world.test[world.features].to_numpy())


def _fit_xgboost(world, seed):
    features, clicks, length, _ = world.sessions()
    data = xgboost.QuantileDMatrix(features, clicks, group=length, nthread=1)
    settings = {
        "objective": "rank:ndcg",
        "lambdarank_unbiased": True,
        "lambdarank_pair_method": "topk",
        "lambdarank_num_pair_per_sample": 10,
        "nthread": 1,
        "seed": seed,
    }
    booster = xgboost.train(settings, data, ROUNDS)
    return booster.predict(xgboost.DMatrix(world.test[world.features].to_numpy()))


# --------------------------------------------------------------------------------------
# Runs
# --------------------------------------------------------------------------------------
def run(args):
    names = [name for name in args.methods or METHODS if name in methods()]
    chosen = cells(args.subset, letor=args.letor is not None)[: args.cells]
    chosen = [cell for cell in chosen if cell.sessions <= args.most_sessions]
    chosen = [cell for cell in chosen if cell.documents not in _absent(args, chosen)]
    done = _done(args.out)
    todo = []
    for seed in args.seeds or [0]:
        for cell in chosen:
            left = [name for name in names if (*cell, seed, name) not in done]
            if left:
                todo.append((cell, seed, left, args))
    print(f"{len(chosen)} cells, {sum(len(left) for _, _, left, _ in todo)} fits to do")
    start = time.perf_counter()
    # Each fit is forked from its worker, which therefore runs no threads and starts afresh.
    with ProcessPoolExecutor(args.workers, multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(_run_cell, *work) for work in todo]
        for number, future in enumerate(as_completed(futures), 1):
            minutes = (time.perf_counter() - start) / 60
            print(f"{minutes:5.1f} min {number:4d}/{len(todo)} {future.result()}", flush=True)


def _absent(args, chosen):
    names = dict.fromkeys(cell.documents for cell in chosen)
    absent = [name for name in names if not _is_there(name, args)]
    for name in absent:
        where = args.letor if name == "letor" else f"{FILES[name]}.parquet in {args.data}"
        print(f"{name} is left out: no file {where}; give --data or set SKULTR_DATA")
    return absent


def _is_there(name, args):
    if name == "made":
        return True
    return Path(args.letor or Path(args.data or "") / f"{FILES[name]}.parquet").exists()


def _done(path):
    if not path.exists():
        return set()
    rows = pd.read_json(path, lines=True)
    rows = rows[rows["ndcg"].notna()]
    return set(rows[[*CELL, "seed", "method"]].itertuples(index=False, name=None))


def _run_cell(cell, seed, names, args):
    _import_torch()
    start = time.perf_counter()
    every = methods()
    world = World(cell, seed, *documents_of(cell.documents, seed, args.data, args.letor))
    if set(names) & set(RANKERS):
        world.lists  # noqa: B018 - once, before the forks
    simulated = time.perf_counter() - start
    for name in names:
        row = _in_process(every[name], world, seed, args.most_seconds)
        line = json.dumps({**cell._asdict(), "seed": seed, "method": name, **row})
        with args.out.open("a") as file:  # one write of a line: workers do not mix them
            file.write(line + "\n")
    seconds = time.perf_counter() - start
    name = ", ".join(map(str, cell))
    return f"{name}, seed {seed}: {seconds:.0f} s, of which the log took {simulated:.1f} s"


def _import_torch():
    """What else every fit would import, which takes longer than small fits."""
    import torch
    import torch._dynamo  # by the first optimizer

    torch.set_num_threads(1)


def _in_process(method, world, seed, most_seconds):
    """The row of a fit in a process of its own, for its peak memory and its failures."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_fit_and_send, args=(method, world, seed, sender))
    process.start()
    sender.close()
    try:
        row = receiver.recv() if receiver.poll(most_seconds) else None
    except EOFError:
        row = {"ndcg": None, "error": "the process ended"}
    if row is None:
        process.kill()
        row = {"ndcg": None, "error": f"more than {most_seconds} s"}
    process.join()
    return row


def _fit_and_send(method, world, seed, sender):
    # Of the processor: with one thread these are the seconds of an idle machine.
    before, start = _peak(), time.process_time()
    row = {"ndcg": None}
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        try:
            row["ndcg"] = round(world.ndcg(method(world, seed)), 5)
        except Exception as error:  # a study goes on where a ranker fails, and says so
            row["error"] = f"{type(error).__name__}: {error}"[:300]
    row["seconds"] = round(time.process_time() - start, 2)
    row["mib"] = round(_peak() - before)
    row["warnings"] = sorted({warning.category.__name__ for warning in raised})
    sender.send(row)


def _peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


# --------------------------------------------------------------------------------------
# Summary
# --------------------------------------------------------------------------------------
def summary(args):
    rows = pd.read_json(args.out, lines=True)
    rows = rows[rows["sessions"].le(args.most_sessions)]
    rows = rows[rows["seed"].isin(args.seeds or rows["seed"])]
    rows = rows[rows["method"].isin(args.methods or METHODS)]
    rows = rows.drop_duplicates([*CELL, "seed", "method"], keep="last")
    fitted = rows[rows["ndcg"].notna()]
    raised = [set(names) & set(exceptions.__all__) for names in fitted["warnings"]]
    fitted = fitted.assign(silent=[not names for names in raised])
    by_cell = compare(fitted, CELL)
    table = per_method(by_cell)
    if args.rst:
        print(as_rst(table.drop(columns=["seconds", "MiB"])))
        return
    print(f"{fitted.groupby(CELL).ngroups} cells, {fitted['seed'].nunique()} seeds\n")
    print(table.round(3).to_string())
    if fitted["seed"].nunique() > 1:
        print("\nThe same with each seed for itself")
        print(per_method(compare(fitted, [*CELL, "seed"])).round(3).to_string())
    for factor in CELL:
        print(f"\nMean nDCG@10 minus naive | worst, by {factor}")
        print(by_level(by_cell, factor).to_string())
    print(f"\nWorst cells to naive\n{worst_cells(by_cell).to_string(index=False)}")
    for line in of_ensemble(by_cell):
        print(line)
    failed = rows[rows["ndcg"].isna()]
    for _, row in failed.iterrows():
        print(f"Failed: {row['method']}, {tuple(row[CELL])}, seed {row['seed']}: {row['error']}")


def compare(rows, keys):
    """One row per cell and method, with margins to the best, to naive and to production."""
    table = rows.groupby([*keys, "method"], sort=False).agg(
        ndcg=("ndcg", "mean"), silent=("silent", "any"), seconds=("seconds", "mean"),
        mib=("mib", "mean"),
    )  # fmt: skip
    wide = table["ndcg"].unstack("method")
    of_cell = table.index.droplevel("method")
    for name in ("naive", "production"):
        reference = wide.get(name, pd.Series(np.nan, wide.index))
        table[f"over {name}"] = table["ndcg"] - reference.loc[of_cell].to_numpy()
    table["regret"] = wide.max(axis=1).loc[of_cell].to_numpy() - table["ndcg"]
    return table


def per_method(table):
    """The measures of each method over its cells."""
    found = {}
    for name, of in table.groupby(level="method", sort=False):
        harmed = of["over naive"] < -HARM
        found[name] = {
            "cells": len(of),
            "nDCG@10": of["ndcg"].mean(),
            "regret": of["regret"].mean(),
            "worst to naive": of["over naive"].min(),
            "worst to production": of["over production"].min(),
            "below naive": (of["over naive"] < -MARGIN).mean(),
            "below production": (of["over production"] < -MARGIN).mean(),
            "harm": harmed.mean(),
            "silent harm": (harmed & of["silent"]).mean(),
            "warned": 1 - of["silent"].mean(),
            "seconds": of["seconds"].mean(),
            "MiB": of["mib"].mean(),
        }
    return pd.DataFrame(found).T.astype({"cells": int}).sort_values("nDCG@10", ascending=False)


def by_level(table, factor):
    """Mean and worst margin over naive for each level of a factor."""
    over = table.groupby(["method", factor], sort=False)["over naive"].agg(["mean", "min"])
    text = over["mean"].map("{:+.3f}".format) + " | " + over["min"].map("{:+.3f}".format)
    return text.unstack(factor).sort_index(axis=1)


def worst_cells(table):
    """The cell of each method that is furthest below naive."""
    found = table["over naive"].dropna().groupby(level="method", sort=False).idxmin()
    return table.loc[found, ["ndcg", "over naive"]].round(3).reset_index()


def of_ensemble(table):
    """What the ensemble must show, one line for each demand."""
    wide = table["ndcg"].unstack("method")
    if "ensemble" not in wide:
        return
    margin = wide["ensemble"] - wide[["naive", "production"]].max(axis=1)
    margin = margin.dropna()
    worst = ", ".join(map(str, margin.idxmin()))
    yield (
        f"\nEnsemble at or above max(naive, production) - {MARGIN}: "
        f"{(margin >= -MARGIN).mean():.1%} of {len(margin)} cells; "
        f"worst {margin.min():+.3f} ({worst})"
    )
    singles = [name for name in RANKERS if name in wide and name != "ensemble"]
    for names in (singles, ["LightGBM, position"]):
        names = [name for name in names if name in wide]
        # Of the same cells: a method that failed somewhere must not gain by that.
        same = wide[["ensemble", *names]].dropna()
        if names and len(same):
            means = same.mean()
            best = means[names].idxmax()
            gain = means["ensemble"] - means[best]
            yield f"Mean of the {len(same)} cells that all have, minus that of {best}: {gain:+.4f}"


def as_rst(table):
    """The summary as a list-table for the guide; shares in per cent."""
    shares = ["below naive", "below production", "harm", "silent harm", "warned"]
    lines = [".. list-table::", "   :header-rows: 1", ""]
    lines += [f"   {'*' if i == 0 else ' '} - {name}" for i, name in enumerate(["", *table])]
    for method, values in table.iterrows():
        lines.append(f"   * - {method}")
        for name, value in values.items():
            text = f"{value:.0%}" if name in shares else f"{value:.3f}"
            lines.append(f"     - {int(value) if name == 'cells' else text}")
    return "\n".join(lines)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="rows, one JSON object per line")
    parser.add_argument("--subset", choices=["regular", "full"], default="regular")
    parser.add_argument("--cells", type=int, help="only so many, the first ones")
    parser.add_argument("--seeds", type=int, nargs="+", help="by default 0; of a summary, all")
    parser.add_argument(
        "--methods", nargs="+", choices=METHODS, metavar="METHOD", help=f"of {', '.join(METHODS)}"
    )
    parser.add_argument("--most-sessions", type=int, default=1_000_000)
    parser.add_argument("--most-seconds", type=int, default=3600, help="of a fit")
    parser.add_argument("--workers", type=int, default=1, help="processes with one thread each")
    parser.add_argument("--data", default=os.environ.get("SKULTR_DATA"))
    parser.add_argument("--letor", help="a LETOR file: its documents in place of all others")
    parser.add_argument("--summary", action="store_true", help="of the rows in --out")
    parser.add_argument("--rst", action="store_true", help="the summary as a list-table")
    args = parser.parse_args(argv)
    if args.summary or args.rst:
        summary(args)
    else:
        run(args)
