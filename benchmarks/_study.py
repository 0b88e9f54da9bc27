"""What all pages share: the command line, runs that can be resumed, tables and figures.

A page is a list of exhibits (its tables and figures). An exhibit shows the rows of one study; a
study is a list of cells, each done ``runs`` times, and several exhibits may show one study. Every
finished run is a line of a file, so a study that was stopped goes on where it was.
"""

import argparse
import io
import json
import multiprocessing
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from multiprocessing.pool import ThreadPool
from pathlib import Path

# Runs are done side by side: each of them takes one core.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky import get_reusable_executor
from tqdm import tqdm

import skultr

from ._claims import LOOKS, PAPER, UNDECIDED
from ._documents import splits_of
from ._exhibit import Claim, Exhibit, Runs, command, decide_claims, report
from ._machine import describe_machine

__all__ = ["Claim", "Exhibit", "Page", "Settings", "Study", "cost", "grid", "main", "measured"]


#: What the pages of the docs show: ``--check`` compares with it.
RESULTS = Path(__file__).parents[1] / "docs" / "papers" / "results"
#: Of the numbers in committed rows; ``--check`` wants the same within ``NEAR`` (and that share).
DIGITS, NEAR = "%.8g", 0.01
#: Options whose values a command in ``verdicts.csv`` does not say.
PATHS = ("letor", "sets", "log")


@dataclass(frozen=True)
class Settings:
    """What the command line says; None: the study's own size.

    `size` is the way to say that size: ``settings.size(quick=2_000, full=1_000_000)``.
    """

    quick: bool = False
    tiny: bool = False
    runs: int | None = None
    sessions: int | None = None
    queries: int | None = None
    letor: str | tuple | None = None
    sets: str | None = None
    log: str | None = None

    def size(self, *, quick, full, tiny=None):
        """The one of the three that the user asked for; without ``tiny`` that is ``quick``."""
        if self.tiny:
            return quick if tiny is None else tiny
        return quick if self.quick else full

    def n_sessions(self, *, quick, full):
        """``--sessions`` where given, else one of the two."""
        return self.sessions or self.size(quick=quick, full=full)


@dataclass(frozen=True)
class Study:
    """Runs whose rows one or more exhibits show.

    ``cells(settings)`` gives the settings of the runs: dicts of numbers and text. ``run(cell,
    settings, seed)`` does one run and returns or yields its rows: dicts of text (what the row is)
    and numbers (the metrics); ``cell`` itself is added to each row. ``hours`` is how long the full
    size takes on two cores. ``alone``: each run has a new process, whose memory is its own, and no
    other beside it unless ``--jobs`` says so. ``again``: what is asked for is measured again, as
    rows of times do not stand for those of changed code.
    """

    name: str
    run: Callable
    cells: Callable = field(default=lambda settings: [{}])
    quick_runs: int = 3
    full_runs: int = 5
    hours: float = 0.0
    alone: bool = False
    again: bool = False

    def n_runs(self, settings):
        """``--runs`` where given, else the study's own number."""
        return settings.runs or settings.size(quick=self.quick_runs, full=self.full_runs)

    def jobs(self, settings, seeds=None):
        """One dict for each run: what the run is, and so also the key of its line."""
        # The sizes are part of the key: rows of one size never stand for those of another, nor
        # rows of one release for those of the next.
        asked = {name: value for name, value in vars(settings).items() if name != "runs"}
        return [
            {"cell": cell, "seed": seed, "settings": asked, "skultr": skultr.__version__}
            for seed in (range(self.n_runs(settings)) if seeds is None else seeds)
            for cell in self.cells(settings)
        ]


def grid(**axes):
    """Cells of a study: all combinations of the values of the axes."""
    cells = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    return lambda settings: cells


def measured(run, title, metrics, *, over, by=(), runs=5, alone=False, **exhibit):
    """The exhibit of a study of the same name: ``over`` axes, with further columns ``by``."""
    cells = grid(**over)
    study = Study(run.__name__, run, cells, min(runs, 3), full_runs=runs, alone=alone)
    return Exhibit(run.__name__, title, study, (*over, *by), metrics, **exhibit)


def cost(work):
    """What a call takes: seconds of the clock and of the processor, and memory in GiB."""
    wall, cpu = time.perf_counter(), time.process_time()
    bytes_ = grown(work)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    memory = None if bytes_ is None else bytes_ / 2**30
    return {"seconds": wall, "CPU seconds": cpu, "GiB": memory}


def grown(work):
    """Bytes by which the peak of this process grows in a call; None where Linux does not say."""
    status = Path("/proc/self/status")
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins again from here
        before = _kib(status.read_text(), "VmRSS")
    except OSError:
        work()
        return None
    work()
    return 1024 * (_kib(status.read_text(), "VmHWM") - before)


def _kib(status, what):
    (line,) = (line for line in status.splitlines() if line.startswith(what + ":"))
    return int(line.split()[1])


@dataclass(frozen=True)
class Page:
    """A paper or a topic: its name (``make papers PAPER=``), its title and its exhibits."""

    name: str
    title: str
    exhibits: tuple

    def chosen(self, names, tables=(), figures=()):
        """Exhibits of these names and numbers; all of them if none is given."""
        asked = [*names, *(f"table {n}" for n in tables), *(f"figure {n}" for n in figures)]
        if not asked:
            return self.exhibits
        asked = list(dict.fromkeys(asked))
        known = {exhibit.name: exhibit for exhibit in self.exhibits}
        unknown = [name for name in asked if name not in known]
        if unknown:
            raise SystemExit(f"there is no {', no '.join(unknown)}; there are {', '.join(known)}")
        return [known[name] for name in asked]


def main(page, argv=None):
    """Do what the command line asks: run the studies, write and print tables, draw figures."""
    args = _arguments(page, argv)
    exhibits = page.chosen(args.only, args.table, args.figure)
    if args.list:
        return _list(page)
    settings = _settings(args)
    if args.check:
        every = not (args.only or args.table or args.figure)
        return _check(page, exhibits, settings, args.jobs, quickest=every)
    if args.judge:
        out = args.out / page.name
        found = [(exhibit, committed(out, exhibit, settings)) for exhibit in exhibits]
        found = [(exhibit, runs) for exhibit, runs in found if runs]
        if found:
            report(page, found, out)
        return 0 if found else 1
    out = make_folder(args.out / page.name / "rows").parent
    work = Work(page, settings, out, args)
    exhibits = work.with_runs(exhibits)
    try:
        work.run(exhibits)
        if args.until_decided:
            work.run_on(exhibits)
    except KeyboardInterrupt:
        print("\nStopped. The same command goes on where it was.", file=sys.stderr)
        return 130
    report(page, [(exhibit, work.runs_of(exhibit)) for exhibit in exhibits], out)
    return 1 if work.failed else 0


# --------------------------------------------------------------------------------------
# The command line
# --------------------------------------------------------------------------------------
def _parser(title=None):
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these exhibits")
    parser.add_argument("--table", nargs="+", default=[], metavar="N", help="these tables")
    parser.add_argument("--figure", nargs="+", default=[], metavar="N", help="these figures")
    parser.add_argument("--cell", nargs="+", metavar="TEXT", help="run cells that say this alone")
    parser.add_argument("--list", action="store_true", help="say what there is, and end")
    parser.add_argument("--quick", action="store_true", help="small sizes: minutes, not hours")
    parser.add_argument("--tiny", action="store_true", help="does it run? Numbers say nothing")
    parser.add_argument("--runs", type=_positive, help="runs of each cell, with seeds 0, 1, ...")
    parser.add_argument("--sessions", type=_positive, help="sessions of each log")
    parser.add_argument("--queries", type=_positive, help="training queries, at most")
    parser.add_argument(
        "--letor",
        nargs="+",
        metavar="PATH",
        help="a folder of LETOR documents, a file (svmlight, Parquet), or files read as one set",
    )
    parser.add_argument("--sets", help="a folder of the identifiability paper's published sets")
    parser.add_argument("--log", help="a click log of your own (Parquet, CSV)")
    parser.add_argument(
        "--until-decided", action="store_true", help="more seeds for exhibits with open claims"
    )
    parser.add_argument("--hours", type=float, default=1.0, help="of that, at most (1)")
    parser.add_argument(
        "--judge", action="store_true", help="run nothing: judge the rows in --out"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="does seed 0 give the rows of docs/papers/results? The sizes are those of these",
    )
    parser.add_argument("--out", type=Path, default=Path("paper_results"), help="a folder")
    parser.add_argument(
        "--jobs", type=_positive, help="runs side by side (2; 1 where time or memory is measured)"
    )
    return parser


def _arguments(page, argv):
    parser = _parser(page.title)
    args = parser.parse_args(argv)
    for option in PATHS:
        paths = getattr(args, option) or []
        for path in [paths] if isinstance(paths, str) else paths:
            if not Path(path).exists():
                parser.error(f"--{option}: there is no file or folder {path}")
    folders = [path for path in args.letor or () if Path(path).is_dir()]
    if folders and len(args.letor) > 1:
        parser.error(f"--letor: {folders[0]} is a folder; give one folder, or files alone")
    if folders:
        try:
            splits_of(folders[0])
        except ValueError as error:
            parser.error(f"--letor: {error}")
    if args.letor:
        args.letor = args.letor[0] if len(args.letor) == 1 else tuple(args.letor)
    return args


def make_folder(path):
    """The folder, made if it was not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SystemExit(f"--out: {error}; give a folder that can be written to") from None
    return path


def _settings(args):
    return Settings(**{name: getattr(args, name) for name in Settings.__dataclass_fields__})


def _options(settings):
    """The options that gave these rows, as text for the table of verdicts."""
    parts = []
    for name, value in vars(settings).items():
        if value:
            text = "PATH" if name in PATHS else str(value)
            parts.append(f"--{name}" if value is True else f"--{name} {text}")
    return " ".join(parts)


def _said(command, asked):
    """The settings of a command in ``verdicts.csv``, with the paths that are asked for."""
    options = command[command.find("--") :].rstrip('"').split()
    said = _settings(_parser().parse_known_args(options)[0])
    return replace(said, **{name: getattr(asked, name) for name in PATHS})


def _positive(text):
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, found {text}")
    return number


def _list(page):
    print(page.title)
    for exhibit in page.exhibits:
        print(f"  {exhibit.name:<10} {exhibit.title} ({_duration(exhibit.study.hours)})")
    print("Times are those of the full size on two cores. --quick takes minutes.")
    claims = RESULTS / page.name / "claims.csv"
    if claims.exists():
        table = pd.read_csv(claims)
        table = table[table["setting"] == PAPER]
        counts = table["verdict"].mask(table["runs"] == 0, "not judged").value_counts()
        words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        print(f"In docs/papers/results: {len(table)} claims ({words}).")
    return 0


def _duration(hours):
    return f"{hours:.1f} h" if hours >= 1 else f"{max(1, round(60 * hours))} min"


# --------------------------------------------------------------------------------------
# Runs
# --------------------------------------------------------------------------------------
class Work:
    """What was asked for, and the rows of it that there are; more are run into the same files."""

    def __init__(self, page, settings, out, args):
        self.page, self.settings, self.out, self.args = page, settings, out, args
        self.failed = 0
        self._seeds = {}  # exhibit -> how many were looked at last, where more than asked for
        self._done = {}  # study -> key of a run -> its rows

    def with_runs(self, exhibits):
        """The exhibits that show a cell of ``--cell``."""
        kept = [e for e in exhibits if any(_says(job, self.args.cell) for job in self._jobs(e))]
        if not kept:
            asked = " or ".join(self.args.cell)
            raise SystemExit(f"--cell: no cell says {asked}; --list says what there is")
        return kept

    def run(self, exhibits, seeds=None):
        """Run what has no rows yet; ``seeds`` None: the number that was asked for."""
        jobs, studies = {}, {}
        for exhibit in exhibits:
            studies[exhibit.study.name] = exhibit.study
            of_study = jobs.setdefault(exhibit.study.name, {})
            of_study |= {_key(job): job for job in self._jobs(exhibit, seeds)}
        if seeds is None:
            _say_how_long(studies, jobs, self.settings)
        for name, study in studies.items():
            path = self.out / f"{name.replace(' ', '_')}.jsonl"
            if name not in self._done:
                self._done[name] = _finished(path)
            left = [job for job in jobs[name].values() if _says(job, self.args.cell)]
            self.failed += _run_all(study, left, self._done[name], path, self.args.jobs)
            table = self._table(study)
            table.to_csv(_csv(self.out, study), index=False, float_format=DIGITS)

    def run_on(self, exhibits):
        """More seeds for exhibits with open claims: 2, 4 and 8 times the asked, or hours' end.

        Claims are looked at after these alone, however often the command goes on: seeds of a
        number that the hours cut off are kept, and wait.
        """
        end = time.monotonic() + 3600 * self.args.hours
        for times in 2 ** np.arange(1, LOOKS):
            exhibits = [exhibit for exhibit in exhibits if self._is_open(exhibit)]
            for exhibit in exhibits:
                n = times * exhibit.study.n_runs(self.settings)
                # Whole seeds: claims compare all cells of a run.
                step = self.args.jobs or 2
                for start in range(n // 2, n, step):
                    if time.monotonic() > end:
                        return
                    self.run([exhibit], range(start, min(start + step, n)))
                self._seeds[exhibit.name] = n

    def runs_of(self, exhibit):
        """The rows of an exhibit, as its file has them."""
        n = self._seeds.get(exhibit.name, exhibit.study.n_runs(self.settings))
        options = _options(self.settings) + " --until-decided" * self.args.until_decided
        typed = command(self.page, exhibit, options.strip())
        return _runs(self.out, exhibit, self.settings, n, typed, describe_machine())

    def _jobs(self, exhibit, seeds=None):
        every = exhibit.study.jobs(self.settings, seeds)
        return [job for job in every if _shows(exhibit, job["cell"])]

    def _is_open(self, exhibit):
        """Whether more runs may decide a claim: those seen were able to tell."""
        decided = decide_claims(exhibit, self.runs_of(exhibit))
        return any(
            claim["verdict"] == UNDECIDED and claim["runs"] and claim["setting"] == PAPER
            for claim in decided
        )

    def _table(self, study):
        """All rows of a study at this size, the seeds one after the other."""
        done = self._done[study.name]
        last = max((json.loads(key)["seed"] for key in done), default=-1)
        keys = map(_key, study.jobs(self.settings, range(last + 1)))
        rows = [row for key in keys for row in done.get(key, ())]
        return pd.DataFrame(rows) if rows else pd.DataFrame(columns=["seed", "seconds"])


def committed(folder, exhibit, asked=None):
    """The rows that the verdict in a folder came from; a sentence and None if there are none."""
    found = _verdict(folder, exhibit)
    if found is None:
        print(f"{exhibit.name}: not judged, as {folder} has no rows of a verdict of it")
        return None
    settings = _said(found["command"], asked or Settings())
    n, typed, machine = found[["runs", "command", "machine"]]
    return _runs(folder, exhibit, settings, int(n), typed, machine)


def _verdict(folder, exhibit):
    """The line of an exhibit in ``verdicts.csv``; None if it or its rows are not there."""
    if not ((folder / "verdicts.csv").exists() and _csv(folder, exhibit.study).exists()):
        return None
    lines = pd.read_csv(folder / "verdicts.csv", keep_default_na=False).set_index("exhibit")
    # Without hours it is of older runs than the rows.
    known = exhibit.name in lines.index and lines.loc[exhibit.name, "hours"] != ""
    return lines.loc[exhibit.name] if known else None


def _runs(folder, exhibit, settings, n, typed, machine):
    """What the rows in a folder say of the first ``n`` seeds."""
    rows = _read_rows(_csv(folder, exhibit.study))
    cells = [cell for cell in exhibit.study.cells(settings) if _shows(exhibit, cell)]
    looks = LOOKS if "--until-decided" in typed else 1
    return Runs(rows[rows["seed"] < n], _seconds(rows, cells, n), looks, typed, machine)


def _seconds(rows, cells, n):
    """What each cell (lines) took with each seed (columns); NaN where there are no rows."""
    found = []
    for cell in cells:
        same = rows.reindex(columns=["seed", "seconds", *cell])
        for name, value in cell.items():
            same = same[same[name] == value]
        found.append(same.groupby("seed")["seconds"].first())
    return pd.DataFrame(found, range(len(cells)), range(n))


def _shows(exhibit, cell):
    return exhibit.cells is None or exhibit.cells(cell)


def _csv(folder, study):
    return folder / "rows" / f"{study.name.replace(' ', '_')}.csv"


def _check(page, exhibits, settings, n_jobs, *, quickest):
    """How many studies (the quickest, or all of the exhibits) do not give seed 0 again."""
    known = {}
    for exhibit in exhibits:
        study = exhibit.study
        found = _verdict(RESULTS / page.name, exhibit)
        if found is not None and not (study.alone or study.again):
            rows = _read_rows(_csv(RESULTS / page.name, study))
            jobs = study.jobs(_said(found["command"], settings), [0])
            known[study.name] = (study, jobs, rows[rows["seed"] == 0])
    if not known:
        print(f"{page.name}: no rows in {RESULTS / page.name}, expected those of an earlier run")
        return 1
    if quickest:
        # What takes less than a second shows little.
        seconds = {
            name: _seconds(rows, [job["cell"] for job in jobs], 1)[0].sum()
            for name, (_, jobs, rows) in known.items()
        }
        name = min(known, key=lambda name: seconds[name] if seconds[name] >= 1 else np.inf)
        known = {name: known[name]}
    wrong = 0
    for name, (study, jobs, rows) in known.items():
        done = {}
        _run_all(study, jobs, done, Path(os.devnull), n_jobs)
        fresh = pd.DataFrame([row for job in jobs for row in done.get(_key(job), ())])
        what = _difference(fresh, rows)
        wrong += bool(what)
        print(f"{page.name}, {name}, seed 0: {what or 'as in docs/papers/results'}")
    return wrong


def _difference(fresh, known):
    """What differs of rows that should be the same."""
    text = fresh.to_csv(index=False, float_format=DIGITS)
    try:
        pd.testing.assert_frame_equal(
            _read_rows(io.StringIO(text)).drop(columns="seconds"),
            known.drop(columns="seconds").reset_index(drop=True),
            check_dtype=False,
            check_like=True,
            rtol=NEAR,
            atol=NEAR,
        )
    except (AssertionError, ValueError) as error:  # no rows at all: ValueError
        return str(error)
    return ""


def _read_rows(path):
    return pd.read_csv(path, keep_default_na=False, na_values=[""], low_memory=False)


def _say_how_long(studies, jobs, settings):
    if not (settings.quick or settings.tiny):
        hours = sum(
            study.hours * len(jobs[name]) / len(study.jobs(settings))
            for name, study in studies.items()
        )
        print(f"Full sizes: about {_duration(hours)} on two cores. --quick takes minutes.")


def _says(job, asked):
    """Whether ``--cell`` asks for this run."""
    return asked is None or bool({str(value) for value in job["cell"].values()} & {*asked})


def _run_all(study, jobs, done, path, n_jobs):
    """Run the jobs without rows in ``done``, into it and the file; how many failed."""
    left = [job for job in jobs if study.again or _key(job) not in done]
    for job in left:
        done.pop(_key(job), None)
    work = (_alone if study.alone else _side_by_side)(study.run, left, n_jobs)
    failed = 0
    with path.open("a", encoding="utf-8") as file:
        for job, rows, error in tqdm(work, study.name, total=len(left), disable=not left):
            if error:
                failed += 1
                print(
                    f"\n{study.name}, {job['cell']}, seed {job['seed']}:\n{error}", file=sys.stderr
                )
                continue
            done[_key(job)] = rows
            file.write(json.dumps({"job": job, "rows": rows}) + "\n")
            file.flush()
    return failed


def _side_by_side(run, jobs, n_jobs):
    """What `_run` finds, in processes that do one run after the other."""
    # Two threads of a worker that wait for each other on a busy machine cost ten times the time.
    with parallel_config("loky", inner_max_num_threads=1):
        pool = Parallel(min(n_jobs or 2, max(1, len(jobs))), return_as="generator_unordered")
    return pool(delayed(_run)(run, job) for job in jobs)


def _alone(run, jobs, n_jobs):
    """The same, with a new process for each run; one that dies ends no other."""
    with ThreadPool(n_jobs or 1) as pool:
        yield from pool.imap_unordered(partial(_fresh, run), jobs)


def _fresh(run, job):
    """What `_run` finds in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    receiver, sender = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_send, args=(sender, run, job))
    process.start()
    sender.close()
    try:
        found = receiver.recv()
    except EOFError:
        found = None
    process.join()
    return found or (job, [], f"its process ended with exit code {process.exitcode}")


def _send(sender, run, job):
    sender.send(_run(run, job))
    # Workers that a run started would keep its process for another five minutes.
    get_reusable_executor().shutdown(kill_workers=True)


def _run(run, job):
    """One run: the job, its rows, and the traceback if it failed."""
    warnings.simplefilter("ignore")
    settings = Settings(**job["settings"])
    start = time.process_time()
    try:
        rows = list(run(job["cell"], settings, job["seed"]))
    except Exception:
        return job, [], traceback.format_exc()
    seconds = time.process_time() - start
    extra = {**job["cell"], "seed": job["seed"], "seconds": round(seconds, 2)}
    return job, [{**extra, **_plain(row)} for row in rows], ""


def _plain(row):
    """A row that JSON can hold: NumPy's numbers as Python's."""
    return {name: value.item() if hasattr(value, "item") else value for name, value in row.items()}


def _finished(path):
    """Key of a run -> its rows. A last line that was cut off is ended, and its run done again."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if text and not text.endswith("\n"):
        with path.open("a", encoding="utf-8") as file:
            file.write("\n")
    done = {}
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        done[_key(entry["job"])] = entry["rows"]
    return done


def _key(job):
    return json.dumps(job, sort_keys=True)
