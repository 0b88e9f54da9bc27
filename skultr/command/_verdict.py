"""The command ``skultr ubi``: from the log of a search engine to judgments and a model."""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
import warnings
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
import pandas as pd

from .._base._texts import normal_text
from .._base._writing import folder_beside, is_one_of, refuse_to_replace
from ..click_models import PBMModel, UBMModel
from ..datasets import read_ubi
from ..exceptions import is_meant
from ..identifiability import IdentifiabilityGraph
from ..metrics import dcg_score
from ..model_selection import train_test_queries
from ..plotting import ExaminationDisplay
from ..propensity import RegressionEMPropensity, relevance_labels
from ..rankers import LambdaMARTRanker
from ..serving import click_judgments, export_judgments, export_model, save_model
from ._rating_differences import chance_of_differences
from ._report import document, sections
from ._seals import sum_of, sums_in, write_sealed
from ._thresholds import LEAST_QUERIES, MOST_CHANCE

#: Format of a model: its file, and how it gets into the engine.
_PLUGIN = "`POST _ltr/_featureset/YOUR_SET/_createmodel`"
_MODELS = {
    "xgboost+json": ("model.xgboost.json", _PLUGIN),
    "xgboost+json+raw": ("model.xgboost.json", _PLUGIN),
    "ranklib": (
        "model.ranklib.json",
        f"{_PLUGIN}; the set must have the features in the order of your file",
    ),
    "solr": ("model.solr.json", "`PUT /solr/YOUR_COLLECTION/schema/model-store`"),
    "lightgbm": (
        "model.lightgbm.json",
        "into `models/` of Vespa's application package; features are named as in Vespa, such as "
        "`bm25(title)`",
    ),
    "elastic": (
        "model.elastic.json",
        "`PUT _ml/trained_models/YOUR_ID`, once you have put the query of each feature into "
        "`feature_extractors`",
    ),
}
_JUDGMENTS = {
    "opensearch": (
        "judgments.json",
        "`PUT _plugins/_search_relevance/judgments`; ratings are not rounded to grades",
    ),
    "quepid": ("judgments.csv", "`query,docid,rating`, for Quepid and OpenSearch's dashboard"),
    "trec": ("judgments.qrels", "for trec_eval; its topics are the numbers of topics.csv"),
}
#: What a judgment is, and what it is not for.
_WHAT_THEY_ARE = (
    "They are to compare rankings by: clicks of a pair in the times that it was looked at, drawn "
    "a little towards the mean of its query, and not towards where your engine put it. A ranking "
    "is not to be trained by them: `relevance_labels` makes labels for that."
)
_HOW_FAR_THEY_GO = (
    "They decide only between rankings that differ enough: ratings are noisy, and show less than "
    "the true difference. Compare by nDCG with linear gain on the judged documents alone, with an "
    'interval (`skultr.evaluation.compare_rankers` with `gain="linear"`). Where it cannot tell, '
    "`skultr.evaluation.policy_difference` on this log, or an experiment, decides."
)
#: Names that a log uses for itself.
_TAKEN = {"session", "qid", "position", "user", "click", "relevance", "production", "bias"}
#: What the names of files begin with where examination is assumed, since CSV and qrels can say
#: it nowhere else.
_ASSUMED = "assumed-"
#: Names of the other files.
_REPORT = "report.html"
_LOG = "log.parquet"
_TOPICS = "topics.csv"
_SAVED = "model.zip"
#: Names of all files that a run may have written beside its report.
_UNMARKED = {_LOG, _TOPICS, _SAVED}
_UNMARKED |= {name for name, _ in _MODELS.values()}
_UNMARKED |= {name for name, _ in _JUDGMENTS.values()}
_WRITTEN = _UNMARKED | {f"{_ASSUMED}{name}" for name in _UNMARKED}


def add_arguments(ubi: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    ubi.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="queries and events: one file with both, or several (each record says which it is)",
    )
    ubi.add_argument("--queries", metavar="F", help="queries alone (with --events)")
    ubi.add_argument("--events", metavar="F", help="events alone (with --queries)")
    ubi.add_argument("--out", required=True, metavar="FOLDER", help="where the files are written")
    ubi.add_argument(
        "--features",
        metavar="F",
        help="Parquet or CSV, one row for each query and document: the columns query (as typed or "
        "normalized), doc (the object_id of the log) and one of numbers per feature, named as in "
        "the engine. Rows that were not shown are ignored. Makes a model",
    )
    ubi.add_argument(
        "--format",
        choices=_MODELS,
        default="xgboost+json",
        help="of the model; by default xgboost+json",
    )
    ubi.add_argument(
        "--clicks", nargs="+", metavar="ACTION", help="values of action_name that are clicks"
    )
    ubi.add_argument(
        "--impressions",
        nargs="+",
        metavar="ACTION",
        help="values of action_name that are impressions; or where these are read from: auto "
        "(default), events or hits",
    )
    ubi.add_argument("--application", metavar="NAME", help="reads this application alone")
    ubi.add_argument("--ordinal-base", type=int, choices=(0, 1), help="ordinal of the first hit")
    ubi.add_argument("--page-size", type=_positive, metavar="N", help="hits that a page shows")
    ubi.add_argument(
        "--keep",
        nargs="+",
        action="extend",
        default=[],
        metavar="COLUMN",
        help="attributes of events or searches, such as device price: columns of the log that is "
        "written",
    )
    ubi.add_argument(
        "--grades", nargs="+", type=float, metavar="G", help="of the judgments, such as 0 1 2 3"
    )


def _positive(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
    return int(text)


# The steps ----------------------------------------------------------------------------
def run(options: argparse.Namespace) -> None:
    """Read the log and write the files."""
    started = time.perf_counter()

    def say(text):
        print(f"{time.perf_counter() - started:6.1f} s  {text}", flush=True)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # What may be wrong comes first: a log takes long to read.
        out = _checked(options)
        features = None if options.features is None else _features(options.features)
        whole, report = _read(options)
        # What is kept is for the user; judgments and model do not read it.
        log = whole.drop(columns=options.keep)
        say(f"read {len(log):,} impressions, {log['click'].sum():,} clicks")
        for loss in _losses(report):
            say(loss)
        X = None if features is None else _with_features(features, log, report)
        # Does the log determine relevance? If not, examination is assumed.
        graph = IdentifiabilityGraph.from_log(log, click="click")
        summary = graph.summary()
        say(summary.splitlines()[0])
        curve = _curve(log, graph.is_connected)
        propensity = (curve["examination"] / curve["examination"].max()).to_numpy()
        # Judgments, and a model that corrects by the same curve.
        source = UBMModel() if graph.is_connected else propensity
        judged = click_judgments(log, "click", propensity=source)
        mark = "" if graph.is_connected else _ASSUMED
        trained = _train(X, features, len(log), propensity, options.format, mark)
        for line in trained.say:
            say(line)
        # Only now: what cannot be used leaves an earlier run as it was.
        out.mkdir(parents=True, exist_ok=True)
        with folder_beside(out / _REPORT) as new:
            files = [_write_log(whole, options.keep, new)]
            grades, remarks = _judge(judged, report, options, mark, new, files)
            for remark in remarks[:2]:
                say(remark)
            _write_model(trained, options.format, mark, new, files)
            found = Findings(
                source=_source(options),
                level=_level(summary, graph, grades, judged),
                read=_what_was_read(log, report, options.application),
                graph=summary,
                examination=curve,
                grades=grades,
                remarks=remarks,
                model=trained.remarks,
                better=trained.better,
                files=files,
                warnings=_texts(caught),
            )
            _replace(out, new, page(found), [name for name, _ in files], _inputs(options))
    _tell_end(say, out, files, found)


def _tell_end(say, out, files, found):
    """Name the files and what to do next, and warn unless the log supports judgments."""
    written = [_REPORT, *(name for name, _ in files)]
    for name in written:
        say(f"wrote {out / name}")
    for step in found.steps:
        say(f"next: {step}")
    # A job whose output goes to a file shows it all the same.
    if found.level != "yes":
        print(f"warning: {found.headline} See {out / _REPORT}", file=sys.stderr)


def _losses(report):
    """A line for each kind of record of which some were lost."""
    lost = report.losses[report.losses["lost"] > 0]
    return [
        f"lost {loss.lost:,} of {loss.n:,} of kind {loss.kind} {loss.action}".rstrip()
        for loss in lost.itertuples()
    ]


def _texts(caught):
    """Messages of warnings in one line each, each once."""
    return list(dict.fromkeys(" ".join(str(each.message).split()) for each in caught))


# The folder ---------------------------------------------------------------------------
def _checked(options):
    """The folder to write to, which need not be there yet, and has nothing in the way."""
    out = Path(options.out)
    # The folder itself, or the nearest one above it that is there. A broken link is in the way.
    there = next(path for path in (out, *out.parents) if os.path.lexists(path))
    if not there.is_dir():
        raise ValueError(f"--out is {out}, which is a file; expected a folder.")
    if not os.access(there, os.W_OK):
        raise ValueError(f"--out is {out}, which cannot be written to.")
    if there == out:
        _refuse(out, _names(options), _inputs(options))
    return out


def _inputs(options):
    return *options.files, options.queries, options.events, options.features


def _source(options):
    """What was read, as the user named it."""
    return " and ".join(options.files or [options.queries, options.events])


def _names(options):
    """Names of all files that a run may write."""
    # Whether examination will be assumed is not known yet: both names of each file.
    names = {_LOG, _TOPICS, *(name for name, _ in _JUDGMENTS.values())}
    if options.features is not None:
        names |= {_SAVED, _MODELS[options.format][0]}
    return [_REPORT, *(f"{mark}{name}" for mark in ("", _ASSUMED) for name in sorted(names))]


def _refuse(out, names, inputs):
    """Raise an error if a run would lose what it reads, or files that none of ours wrote."""
    # Files of an earlier run may be replaced: the report states their sums.
    sums = _earlier(out)
    errors = {}

    def is_own(path):
        is_report = path.name == _REPORT and bool(sums)
        return is_report or sum_of(path) in sums.get(path.name, ())

    for name in names:
        try:
            refuse_to_replace(
                out / name,
                is_own,
                "a file of an earlier run",
                inputs,
                remedy="Name another folder by --out, or move it away",
            )
        except (FileExistsError, IsADirectoryError) as error:
            errors[name] = str(error)
    if errors:
        first, *others = errors
        also = f" Also in the way: {', '.join(others)}." if others else ""
        raise FileExistsError(errors[first] + also)


def _earlier(out):
    """The sums that the report of an earlier run states; empty if there is none."""
    # A link may point to a page that is not of this folder.
    report = out / _REPORT
    is_report = report.is_file() and not report.is_symlink()
    return (sums_in(report) if is_report else None) or {}


def _replace(out, new, text, names, inputs):
    """Put the files of a run in the place of those of an earlier one."""
    earlier = _earlier(out)
    # Of each file the sums of both runs, and the report first: if the process is killed in
    # between, each file is the old or the new one, and the next run knows both as its own.
    sums = {name: list(earlier.get(name, ())) for name in _WRITTEN}
    for name in names:
        sums[name].append(sum_of(new / name))
    write_sealed(new / _REPORT, text, {name: each for name, each in sums.items() if each})
    _refuse(out, [_REPORT, *names], inputs)
    for name in (_REPORT, *names):
        (new / name).replace(out / name)
    # What an earlier run wrote and this one does not would seem to be of this one.
    for name in _WRITTEN - {*names}:
        if _is_left(out / name, earlier.get(name, ()), inputs):
            (out / name).unlink()


def _is_left(path, sums, inputs):
    """Whether a file is as an earlier run wrote it, and none that this run reads."""
    is_own_file = path.is_file() and not path.is_symlink() and not is_one_of(path, inputs)
    return is_own_file and sum_of(path) in sums


def _read(options):
    # Files of both, or each half by its name: nothing in between.
    halves = [name for name in (options.queries, options.events) if name is not None]
    if len(halves) != (0 if options.files else 2):
        raise ValueError("Give FILE, or both --queries and --events.")
    _check_grades(options.grades)
    given = {
        "clicks": options.clicks,
        "impressions": _one_or_several(options.impressions),
        "ordinal_base": options.ordinal_base,
        "page_size": options.page_size,
        "attributes": options.keep,
    }
    # What was not given is read from the log.
    given = {name: value for name, value in given.items() if value is not None}
    log, report = read_ubi(options.files or options.queries, options.events, **given)
    if options.application is not None:
        log = _of_application(log, report, options.application)
    if not log["click"].any():
        raise ValueError(f"None of the {len(log):,} impressions read has a click. {_why(report)}")
    return log, report


def _check_grades(grades):
    if grades is None:
        return
    if len(grades) < 2 or not np.isfinite(grades).all() or (np.diff(grades) <= 0).any():
        raise ValueError(f"--grades is {grades}; expected two or more numbers that rise.")


def _one_or_several(names):
    """A single name as text, since it may be a source: auto, events or hits."""
    return names[0] if names is not None and len(names) == 1 else names


def _why(report):
    """Why nothing was clicked, and what to do."""
    lost = report.losses[(report.losses["kind"] == "click") & (report.losses["lost"] > 0)]
    if len(lost):
        return f"Clicks that could not be used: {'; '.join(lost['reasons'])}. Correct the events."
    found = report.counts.loc[report.counts["record"] == "event", "action"].unique()
    if len(found) == 0:
        return "There are no events: give the file of ubi_events, too."
    names = ", ".join(filter(None, found)) or "events without an action_name"
    return f"If your clicks have another action_name, give it by --clicks. Found {names}."


def _of_application(log, report, name):
    """The rows of one application."""
    # Queries without an application are of the one without a name.
    names = report.queries["application"].fillna("")
    if name not in set(names):
        raise ValueError(
            f"There is no application {name!r}; expected one of {sorted(set(names))}."
        )
    queries = report.queries.loc[names == name, "qid"]
    return log[log["qid"].isin(queries)].reset_index(drop=True)


def _level(summary, graph, grades, judged):
    # The worst that holds: a curve that is assumed, one grade for all, grades by chance, or a
    # curve hardly known.
    if not graph.is_connected:
        return "no"
    if len(grades) < 2:
        return "level"
    if chance_of_differences(judged) > MOST_CHANCE.value:
        return "chance"
    return "barely" if "barely" in summary.splitlines()[0] else "yes"


def _what_was_read(log, report, application):
    # The summary is of the whole file, also where one application of it is used.
    lines = report.summary().split("\n")
    if application is not None:
        lines.append(
            f"Of these, {application} alone: {len(log):,} shown documents, "
            f"{log['click'].sum():,} of them clicked."
        )
    elif report.queries["application"].nunique() > 1:
        lines.append(
            "Users may look at the pages of each application in another way: `--application NAME` "
            "reads one."
        )
    return lines


def _curve(log, is_connected):
    """Examination by position from 1, with standard errors; assumed where clicks do not tell."""
    position = pd.RangeIndex(1, int(log["position"].max()) + 1, name="position")
    if not is_connected:
        assumed = position.to_numpy() ** -0.5
        return pd.DataFrame({"examination": assumed}, position)
    # Where clicks are few it is steadier than the estimator that has standard errors.
    table = PBMModel().fit(log, "click").examination_["examination"]
    # Positions that the log lacks lie on lines between the logarithms of their neighbours.
    values = np.exp(np.interp(position, table.index, np.log(table)))
    estimator = RegressionEMPropensity(relevance="embedding").fit(log, "click")
    errors = estimator.examination_["standard_error"].reindex(position)
    return pd.DataFrame({"examination": values / values[0], "standard_error": errors})


def _write_log(log, keep, out):
    # Unlike in CSV, types stay as they are.
    log.to_parquet(out / _LOG, index=False)
    what = 'one row per document shown, for `fit(log, "click")`'
    if keep:
        what += f"; {', '.join(f'`{column}`' for column in keep)} as --keep says"
    return _LOG, what


# Judgments ----------------------------------------------------------------------------
def _judge(judged, report, options, mark, out, files):
    """Write the judgments; number of pairs by grade, and what is missing and why."""
    left_out = {}
    grades = pd.Series(dtype=int)
    how = {
        "grades": options.grades,
        "name": "skultr, examination assumed" if mark else "skultr",
    }
    # Queries of the judgments, numbered as topics.
    topics = report.queries[report.queries["qid"].isin(judged["qid"])]
    topics = topics.assign(topic=np.arange(1, len(topics) + 1))
    numbers = dict(zip(topics["qid"], topics["topic"], strict=True))
    for form, (name, note) in _JUDGMENTS.items():
        name = f"{mark}{name}"
        # The format of TREC has no place for the text of a query.
        queries = numbers if form == "trec" else topics
        try:
            text = export_judgments(judged, form, queries=queries, **how)
        except ValueError as error:
            # A format that cannot hold these judgments is left out, and the report says why.
            if not is_meant(error):
                raise
            left_out.setdefault(str(error), []).append(name)
            continue
        (out / name).write_text(text, encoding="utf-8")
        files.append((name, note))
        if form == "quepid":
            ratings = pd.read_csv(io.StringIO(text), usecols=["rating"])["rating"]
            grades = ratings.value_counts().sort_index()
        if form == "trec":
            topics[["topic", "user_query"]].to_csv(out / f"{mark}{_TOPICS}", index=False)
            files.append((f"{mark}{_TOPICS}", "the query of each topic"))
    return grades, _remarks_on(grades, judged, left_out, options, mark)


def _remarks_on(grades, judged, left_out, options, mark):
    """What was judged, what a judgment is, and which files were left out."""
    # Without grades of the user, the lowest is 0.
    lowest = min(options.grades or [0])
    n_judged = grades.sum()
    n_above = grades[grades.index > lowest].sum()
    by = ", by an assumed curve" if mark else ""
    n_unrated = judged["relevance"].isna().sum()
    chance = chance_of_differences(judged)
    remarks = [
        f"{n_judged:,} of {len(judged):,} pairs of query and document are judged, "
        f"{n_above:,} above the lowest grade{by}.",
        f"{n_unrated:,} are unrated, not irrelevant: they were looked at less than once. Of a "
        f"rating {judged['prior_share'].mean():.0%} is prior on average.",
        f"If the documents of a query were equally good, ratings would differ as much as these in "
        f"{chance:.1%} of logs; the command takes more than {MOST_CHANCE.value:.0%} for chance.",
        _WHAT_THEY_ARE,
        _HOW_FAR_THEY_GO,
    ]
    if mark:
        remarks.append("All of this holds only if the assumed curve does.")
    remarks += [f"Left out: {', '.join(names)}. {why}" for why, names in left_out.items()]
    return remarks


# Model --------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Trained:
    """A model, what to say of it, and whether held-out clicks prefer it to the order served."""

    say: list[str]  # in the terminal
    remarks: list[str]  # in the report
    better: bool | None = None
    ranker: LambdaMARTRanker | None = None
    upload: str = ""


def _features(name):
    """The table of features: ``query`` as words, ``doc`` as text, numbers."""
    path = Path(name)
    table = _table(path).reset_index(drop=True)
    features = [column for column in table if column not in ("query", "doc")]
    _check_features(table, features, path)
    table[features] = table[features].astype(np.float64)
    table["query"] = table["query"].astype(str).map(normal_text)
    table["doc"] = table["doc"].astype(str)
    # Queries that differ as typed may be the same words.
    twice = table.duplicated(["query", "doc"])
    if twice.any():
        row = table.loc[twice.idxmax()]
        raise ValueError(
            f"{path} has two rows of query {row['query']!r} and doc {row['doc']!r}; expected one."
        )
    return table


def _check_features(table, features, path):
    """Raise an error unless there are ids, and features of numbers under names that are free."""
    if not {"query", "doc"} <= set(table) or not features:
        raise ValueError(
            f"{path} has the columns {list(table)}; expected query, doc and one per feature."
        )
    _refuse_taken(features, path)
    if table.empty or table[["query", "doc"]].isna().any(axis=None):
        raise ValueError(f"{path} has no rows, or rows without query or doc; expected both.")
    bad = [column for column in features if not _holds_numbers(table[column])]
    if bad:
        raise ValueError(
            f"Features of {path} hold no numbers, infinity, or numbers above float32: "
            f"{', '.join(map(repr, bad))}. Encode them as your engine does, or leave them out."
        )


def _refuse_taken(features, path):
    """Raise an error for a feature that the log would take for a role."""
    taken = [column for column in features if column in _TAKEN]
    if taken:
        raise ValueError(f"{path} has a column {taken[0]!r}, which is no name of a feature here.")


def _holds_numbers(column):
    """Whether a column holds numbers that fit into float32, and not missing values alone."""
    return (
        column.dtype.kind in "biuf"
        and column.notna().any()
        and column.abs().max() <= np.finfo(np.float32).max
    )


def _table(path):
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            return pd.read_parquet(path)
        # Ids such as 007 and words such as NA stay what they are.
        ids = {"query": str, "doc": str}
        return pd.read_csv(path, dtype=ids, keep_default_na=False, na_values=[""])
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as Parquet or CSV: {error}") from error


def _train(X, features, n_shown, propensity, form, mark):
    """Train, and compare with the order served."""
    if features is None:
        return _Trained(
            ["no model: give --features"],
            [
                "No model was trained: a click log has no features of documents, and engines rank "
                "by features. Log them in your engine, and give them by `--features FILE`: "
                "Parquet or CSV with the columns query, doc and one per feature."
            ],
        )
    trained_on = _trained_on(X, features, n_shown, mark)
    ranker = LambdaMARTRanker(propensity=propensity, random_state=0)
    compared, better = _compare(ranker, X, propensity)
    # The model to upload learns from all queries, also those that were held out.
    ranker.fit(X, "click")
    if mark:
        compared += " This holds only if the assumed curve does."
    upload = export_model(ranker, form, name=_title(mark))
    return _Trained([trained_on, compared], [trained_on, compared], better, ranker, upload)


def _write_model(trained, form, mark, out, files):
    if trained.ranker is None:
        return
    name, how = _MODELS[form]
    name = f"{mark}{name}"
    saved = f"{mark}{_SAVED}"
    (out / name).write_text(trained.upload, encoding="utf-8")
    files.append((name, f"the model `{_title(mark)}` for the engine: {how}"))
    # Without the library that saves it, the file for the engine is there all the same.
    try:
        with warnings.catch_warnings():
            # The propensity, which only a further fit would need: the note below says so.
            warnings.filterwarnings("ignore", "Not saved: LambdaMARTRanker.propensity")
            save_model(trained.ranker, out / saved)
    except ImportError as error:
        trained.remarks.append(f"{saved} was left out: {error}")
    else:
        note = "the same for `skultr.serving.load_model`: to predict, not to fit again"
        files.append((saved, note))


def _title(mark):
    return "skultr-assumed" if mark else "skultr"


def _trained_on(X, features, n_shown, mark):
    by = "an assumed curve" if mark else "position"
    # What was lost is said beside what was used.
    values = features.drop(columns=["query", "doc"])
    text = f"Boosted trees on {values.shape[1]} features, from clicks corrected for {by}."
    if len(X) < n_shown:
        text += (
            f" {n_shown - len(X):,} of {n_shown:,} impressions have no features, and were left "
            "out of training."
        )
    missing = values.isna().sum()
    if missing.any():
        text += (
            f" {missing.sum():,} missing values of {(missing > 0).sum()} features count as 0, as "
            "they do in the engine."
        )
    return text


def _with_features(features, log, report):
    """The rows of the log whose document has features; missing ones are 0, as in engines."""
    # Queries are joined by their words: the ids of the log are in no table of features.
    words = report.queries.set_index("qid")["user_query"].astype(str).map(normal_text)
    rows = log.assign(query=log["qid"].astype(object).map(words), doc=log["doc"].astype(str))
    X = rows.merge(features.fillna(0), on=["query", "doc"])
    if X.empty:
        query, doc = rows.loc[0, ["query", "doc"]]
        raise ValueError(
            "No query and doc of --features is in the log. The log has, for example, query "
            f"{query!r} with doc {doc!r}."
        )
    if (X[features.columns.drop(["query", "doc"])].nunique() < 2).all():
        raise ValueError("Of --features, no feature differs between the documents shown.")
    return X.drop(columns="query")


def _compare(ranker, X, propensity):
    """Held-out clicks on the model and on the order served, in words, and which is better."""
    n_queries = X["qid"].nunique()
    if n_queries < LEAST_QUERIES.value:
        return (
            f"There are too few queries ({n_queries}) to hold some out: nothing says whether the "
            "model is better than the order served."
        ), None
    # The model of the other queries, the order served, and labels of held-out clicks.
    train, test = train_test_queries(X, test_size=0.25, random_state=0)
    ids = ["qid", "doc"]
    documents = test.drop_duplicates(ids)
    predicted = documents[ids].assign(model=ranker.fit(train, "click").predict(documents))
    # A document that was rarely shown stood low.
    height = test[ids].assign(served=X["position"].max() + 1 - test["position"])
    served = height.groupby(ids, observed=True)["served"].sum().reset_index()
    labels = relevance_labels(test, "click", propensity=propensity)
    labels = labels.merge(predicted).merge(served)
    dcg_of_model = _dcg(labels, "model")
    dcg_of_served = _dcg(labels, "served")
    # By query, of the mean of all: a query without clicks divides by no 0.
    gain = (dcg_of_model - dcg_of_served) / dcg_of_served.mean()
    error = 1.96 * gain.std() / np.sqrt(len(gain))
    text = (
        f"DCG@10 of the model on {len(gain)} held-out queries, by clicks corrected for position: "
        f"{100 * gain.mean():+.1f} % (± {100 * error:.1f}) against the order served."
    )
    return text, bool(gain.mean() > error)


def _dcg(labels, by):
    """DCG@10 of each query."""
    found = dcg_score(
        labels["label"], labels[by], qid=labels["qid"], k=10, gain="linear", per_query=True
    )
    return found["dcg@10"]


# The report -----------------------------------------------------------------------------
#: By level: whether the log supports judgments, and what that means.
_VERDICTS = {
    "yes": (
        "This log supports judgments.",
        "The clicks determine how far users look, and so what they like.",
    ),
    "barely": (
        "This log supports judgments only roughly.",
        "At some positions the clicks determine only roughly how far users look. Ratings of "
        "documents that were only shown there may be far off.",
    ),
    "level": (
        "This log does not separate good documents from bad ones.",
        "All judgments have one grade: the clicks are too few, or the documents equally good.",
    ),
    "chance": (
        "This log cannot tell good documents from bad ones.",
        "Ratings of the documents of a query differ hardly more than they would by chance: the "
        "clicks are too few, or the documents equally good. The grades are mostly noise.",
    ),
    "no": (
        "This log does not support judgments.",
        "Too few documents were shown at several positions, so that the clicks cannot separate "
        "what users like from where they look. Judgments and model use an assumed curve, as the "
        "names of their files say. They show the formats, not the truth.",
    ),
}
_VARY = (
    "Vary the order for a little traffic: exchange the first document with one below it, drawn "
    'at random, on a few pages in a hundred. `IdentifiabilityRepair(strategy="intervene")` lists '
    "which exchanges are enough. Then run this again on the new log."
)
_UPLOAD = (
    "Upload `judgments.json` and compare search configurations that differ much by it. Small "
    "differences need `policy_difference` or an experiment."
)
_STEPS = {
    "yes": [_UPLOAD],
    "barely": [
        "Use the judgments to compare configurations that differ much, not to tune a few "
        "documents.",
        "Collect more pages. " + _VARY,
    ],
    "level": [
        "Do not upload the judgments: they compare nothing.",
        "Collect more pages, or give `--grades 0 1`. Then run this again.",
    ],
    "chance": [
        "Do not upload the judgments: most of what they compare is chance.",
        "Collect more pages. Then run this again on the whole log.",
    ],
    "no": ["Do not tune your search by these files.", _VARY],
}
_OF_MODEL = {
    True: "Held-out clicks prefer the model to the order served: upload it, and test it on a part "
    "of the traffic before all of it.",
    False: "Held-out clicks do not clearly prefer the model to the order served: keep the order "
    "served, and add features or clicks. `EnsembleRanker` weighs both.",
}


@dataclass(frozen=True, eq=False)
class Findings:
    """What the command found, in the order of the page."""

    source: str  # what was read, as the user named it
    level: str  # a key of _VERDICTS
    read: list[str]  # and left out; a line with blanks in front belongs to the one before it
    graph: str  # the summary of the identifiability graph
    examination: pd.DataFrame  # by position: examination and, if estimated, standard_error
    grades: pd.Series  # number of judgments by grade
    remarks: list[str]  # what was not judged, and why
    model: list[str]  # what the model is, or why there is none
    better: bool | None  # whether held-out clicks prefer the model; None if unknown
    files: list[tuple[str, str]]  # name of each file and what it is for
    warnings: list[str]  # of the steps

    @property
    def headline(self) -> str:
        """The verdict in one sentence."""
        return _VERDICTS[self.level][0]

    @property
    def steps(self) -> list[str]:
        """What to do next."""
        steps = list(_STEPS[self.level])
        # Of a model by an assumed curve nothing is advised.
        if self.level != "no" and self.better is not None:
            steps.append(_OF_MODEL[self.better])
        return steps


def page(found: Findings) -> str:
    """The report as the text of an HTML file."""
    headline, meaning = map(escape, _VERDICTS[found.level])
    is_assumed = found.level == "no"
    if is_assumed:
        curve_name = "assumed"
        how_far = (
            "Assumed, not estimated: how often each position is looked at falls as 1 / √position. "
            "The clicks of this log do not determine it."
        )
    else:
        curve_name = "estimate, 95 % interval"
        how_far = (
            "How often each position is looked at, relative to the first, and how sure that is, "
            "estimated from documents that moved."
        )
    graph = (
        "<p>Documents shown at several positions separate attention from relevance.</p>"
        f"<pre>{escape(found.graph)}</pre>"
    )
    figure = _figure(found.examination, curve_name)
    parts = {
        "What to do next": _list(found.steps, "ol"),
        "What was read": _outline(found.read),
        "Does the log determine relevance?": graph,
        "How far users look": f"<p>{how_far}</p>{figure}",
        "Judgments": _grades(found.grades) + _list(found.remarks),
        "Model": _list(found.model),
        "Files": _files(found.files),
        "Warnings": _list(found.warnings),
    }
    verdict = (
        f'<section class="verdict"><p class="soft">{escape(found.source)}</p>'
        f"<h1>{headline}</h1><p>{meaning}</p></section>\n"
    )
    return document(found.source, verdict + sections(parts), found.level)


def _list(items: list[str], tag: str = "ul") -> str:
    """Items as a list; text between backticks is code."""
    body = "".join(f"<li>{_marked(item)}</li>" for item in items)
    return f"<{tag}>{body}</{tag}>" if items else ""


def _outline(lines: list[str]) -> str:
    """Paragraphs, each with the list of the indented lines after it."""
    # Each title, and the items below it.
    parts: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith(" ") and parts:
            parts[-1][1].append(line.strip())
        else:
            parts.append((line, []))
    return "".join(f"<p>{_marked(title)}</p>{_list(items)}" for title, items in parts)


def _marked(text: str) -> str:
    # Every second part stood between backticks.
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def _grades(grades: pd.Series) -> str:
    # Nothing was judged, or no file could hold it: the remarks say why.
    if grades.empty:
        return ""
    body = ""
    for grade, count in grades.items():
        # The longest bar is that of the most frequent grade.
        width = f"{100 * count / grades.max():.1f}%"
        bar = f'<span class="bar" style="width:{width}"></span>'
        body += (
            f'<tr><td class="number">{grade}</td><td class="number">{count:,}</td>'
            f'<td style="width:70%">{bar}</td></tr>'
        )
    return (
        '<div class="wide"><table><tr><th class="number">grade</th><th class="number">pairs</th>'
        f"<th></th></tr>{body}</table></div>"
    )


def _files(files: list[tuple[str, str]]) -> str:
    body = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{_marked(what)}</td></tr>"
        for name, what in files
    )
    return f'<div class="wide"><table>{body}</table></div>'


def _figure(curve: pd.DataFrame, name: str) -> str:
    """Examination by position as an SVG; as a table, if matplotlib is not installed."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        return curve.to_html(border=0)
    about = {"Title": "Examination by position", "Date": None, "Creator": None}
    # Names of parts that are the same in every run, and text that can be selected.
    with rc_context({"svg.hashsalt": "skultr", "svg.fonttype": "none", "text.usetex": False}):
        ax = Figure(figsize=(6.4, 3.2), layout="constrained").subplots()
        file = io.StringIO()
        display = ExaminationDisplay.from_estimator(curve, name=name, ax=ax)
        display.figure_.savefig(file, format="svg", metadata=about)
    # HTML takes the element alone, without the declaration of XML in front.
    svg = file.getvalue().partition("<!DOCTYPE")[2].partition(">")[2]
    return svg.replace("<svg ", f'<svg role="img" aria-label="{about["Title"]}" ', 1)
