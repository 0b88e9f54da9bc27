"""Every work that users wait for, beside the plainest code that does it: ``make benchmarks``.

    python -m benchmarks speed [--only serving training/epoch-dla] [--quick] [--out FOLDER]

A work is what is done, its peers, and the largest ratio that is allowed (`_work.py`). Ours and
the peers take turns on the same data in one process. Each work has a process of its own, so that
one that fails stops no other. Rows of works that were not run stay in the file, unless they come
from another machine or other versions (`_report.py`).
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from .._study import make_folder
from . import _report, _work
from ._work import OURS, SIZES

ROOT = Path(__file__).parents[2]
#: Works in CPU time compare code, not the number of threads that each library takes.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
ONE_THREAD = dict.fromkeys(THREADS, "1")
LIMIT = 600


def main(argv=None):
    """Do what the command line asks."""
    args = _arguments(argv)
    if args.child:
        return _child(*args.child)
    works = [] if args.draw else _chosen(args.only)
    if args.list:
        for work in works:
            print(f"{work.name:<32} {work.title}; peers: {', '.join(work.goals)}")
        return 0
    size = SIZES["tiny" if args.tiny else "quick" if args.quick else "full"]
    out, all_works = make_folder(args.out), _work.works()
    start, failed = time.perf_counter(), []
    _report.write([], out, all_works)
    for number, work in enumerate(works, 1):
        began = time.perf_counter()
        rows, said = _run(work, size)
        failed += [] if rows else [work.name]
        _report.write(rows, out, all_works)
        took = time.perf_counter() - began
        print(f"[{number}/{len(works)}] {work.name} ({took:.0f} s): {said}", flush=True)
    _report.draw(out)
    print(f"{len(works)} works in {(time.perf_counter() - start) / 60:.1f} minutes: {out}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def _arguments(argv):
    parser = argparse.ArgumentParser(prog="make benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="topics or works")
    parser.add_argument("--list", action="store_true", help="say what there is, and end")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, no memory: 3 minutes")
    parser.add_argument("--tiny", action="store_true", help="does it run? The ratios say nothing")
    parser.add_argument("--draw", action="store_true", help="write goals, notes and figure again")
    parser.add_argument("--out", type=Path, default=Path("benchmark_results"), help="a folder")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def _chosen(names):
    """Works of these topics or names; all where none is given."""
    works = _work.works()
    known = {work.name for work in works} | {work.topic for work in works}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"--only: there is no {', no '.join(unknown)}; --list says what there is")
    return [work for work in works if not names or {work.name, work.topic} & set(names)]


def _run(work, size):
    """Rows of one work, and a line that says what was found."""
    try:
        if work.unit == "memory":
            ratios, grown = _memory_ratios(work, size), {}
        else:
            ratios = _ask(work, "time", size)["ratios"]
            grown = _grown(work, size) if work.memory and size.name == "full" else {}
    except subprocess.SubprocessError as error:
        return [], f"FAILED: {_last_line(error)}"
    rows = [_report.row(work, peer, ratios[peer], grown, size) for peer in work.goals]
    return rows, "; ".join(_report.sentence(row) for row in rows)


def _memory_ratios(work, size):
    runs = [_grown(work, size) for _ in range(size.processes)]
    return {peer: [run[OURS] / run[peer] for run in runs] for peer in work.goals}


def _grown(work, size):
    """Bytes that each contender adds to a process of its own."""
    return {name: _ask(work, name, size) for name in (OURS, *work.goals)}


def _ask(work, what, size):
    """What a process of its own measures: ``time``, or the memory of that contender."""
    command = [sys.executable, "-m", "benchmarks", "speed", "--child", work.name, what, size.name]
    settings = {name: os.environ[name] for name in os.environ if name not in THREADS}
    if work.unit != "wall time":
        settings |= ONE_THREAD
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=LIMIT)
    except BaseException:  # also where the user stops: no worker of a search goes on alone
        os.killpg(process.pid, signal.SIGKILL)
        raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, out, err)
    return json.loads(out.splitlines()[-1])


def _child(name, what, size):
    """Print what `_ask` reads."""
    work, size = _work.find(name), SIZES[size]
    print(
        json.dumps(_work.ratios(work, size) if what == "time" else _work.growth(work, size, what))
    )
    return 0


def _last_line(error):
    lines = (getattr(error, "stderr", None) or "").strip().splitlines()
    if isinstance(error, subprocess.TimeoutExpired):
        return f"not done after {LIMIT} seconds"
    return lines[-1] if lines else str(error)
