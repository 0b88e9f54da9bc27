"""Whether clicks of a log separate what users like from where they look, in plain words."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

from .._log._segments import encode, pair_codes
from ..identifiability import IdentifiabilityGraph
from ..propensity import InterventionHarvesting
from ._log_columns import NEEDED, LogTable
from ._thresholds import BUSY_USER, FEW_CLICKS_IN_LOG, PAGE_JUMP, REPEATED_PAGES

#: Users that a sentence names.
_NAMED = 3
#: Users that the code lists, at most.
_LISTED = 100
#: By level: the exit status of the command, and the verdict in one sentence.
LEVELS = {
    "yes": (0, "A model can be trained on these clicks."),
    "barely": (1, "A model can be trained on these clicks, with care."),
    "open": (1, "Some columns are not known yet."),
    "no": (3, "These clicks do not show what users like."),
    "faulty": (3, "This log must be mended before anything is trained on it."),
}
_SWAP = (
    "Swap neighbours on some requests: exchange two results that stand next to each other, on a "
    "few pages in a hundred, drawn at random. Run this again on the new log."
)
_COMPARE = (
    "Before the test, ask whether the model gets more clicks than the order of today: train it on "
    "a part of the queries (`skultr.model_selection.train_test_queries`), and compare the two on "
    "the others (`skultr.evaluation.policy_difference`)."
)
_MEANINGS = {
    "yes": (
        "Documents were shown at several places, so clicks tell how far users look, and so what "
        "they like."
    ),
    "barely": (
        "Some places share few documents or few clicks with the others: how far users look is "
        "known only roughly there."
    ),
    "still": (
        "Each document was always shown at one place, so clicks cannot separate place from "
        "quality."
    ),
    "apart": (
        "The places fall into groups ({groups}) that share no document: clicks compare documents "
        "within a group, and none across."
    ),
}
_STEPS = {
    "yes": [
        "Train by the code below, and test the model on a part of the traffic.",
        _COMPARE,
    ],
    "barely": [
        "Train by the code below, and read the intervals before you trust a place.",
        _COMPARE,
        "Collect more pages, or swap neighbours on some requests.",
    ],
    "no": ["Do not train on these clicks as they are: a model would repeat the order.", _SWAP],
    "faulty": ["Mend what is listed under faults, and run this again."],
    "open": ["Name the columns that are listed under faults: `--rename COLUMN=ROLE`."],
}


@dataclass(frozen=True, eq=False)
class LogVerdict:
    """The verdict on a log: its level, in words, and what it rests on."""

    level: str
    meaning: str
    steps: list[str]
    #: The summary of the graph, for those who know the terms.
    details: str = ""
    #: By position: ``examination`` and its interval ``low`` and ``high``.
    examination: pd.DataFrame = field(default_factory=pd.DataFrame)
    suspicions: list[str] = field(default_factory=list)
    #: Users who may be bots: those that the code leaves out, if the user says so.
    busy_users: list[Any] = field(default_factory=list)

    @property
    def headline(self) -> str:
        """The verdict in one sentence."""
        return LEVELS[self.level][1]


def judge(table: LogTable, log: Any, errors: list[Any]) -> LogVerdict:
    """The verdict on a log under its roles; ``errors`` are those that a fit would raise."""
    if table.missing:
        missing = ", ".join(NEEDED[role] for role in table.missing)
        return LogVerdict("open", f"Not known: {missing}.", _STEPS["open"])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = IdentifiabilityGraph.from_log(log, click="click")
            details = graph.summary()
    except (TypeError, ValueError) as error:
        return LogVerdict("faulty", str(error), _STEPS["faulty"], f"Unknown: {error}")
    busy_users, suspicions = _busy_users(table)
    suspicions += [*_repeated_pages(table), *_paid_slots(table)]
    suspicions += _page_borders(table, log)
    if not graph.is_connected:
        meaning = _MEANINGS["apart"].format(groups=_groups(graph))
        if graph.n_components == graph.n_factors:
            meaning = _MEANINGS["still"]
        no_curve = pd.DataFrame()
        return LogVerdict("no", meaning, _STEPS["no"], details, no_curve, suspicions, busy_users)
    level, meaning = _level_and_meaning(graph, details, table.by_position(log))
    steps = _STEPS[level]
    if errors:
        # What fit refuses comes first, also where the graph is fine.
        level = "faulty"
        steps = _STEPS["faulty"]
        meaning = str(errors[0])
    meaning = f"{meaning} {_moved(table)}".strip()
    return LogVerdict(level, meaning, steps, details, _examination(log), suspicions, busy_users)


def _level_and_meaning(graph, details, clicks):
    """How sure the verdict on a connected log is, and why."""
    n_clicks = None if clicks.empty else clicks["clicks"].sum()
    if n_clicks is not None and n_clicks < FEW_CLICKS_IN_LOG.value:
        few = f"There are few clicks ({n_clicks:,}): much of what is learned is chance."
        return "barely", few
    if graph.n_factors == 1:
        return "yes", "All documents were shown at one place, so click rates compare them fairly."
    level = "barely" if "barely" in details.splitlines()[0] else "yes"
    return level, _MEANINGS[level]


def _groups(graph):
    """The first groups of places, as text."""
    examples = graph.components["examples"].head(3)
    listed = "; ".join(map(str, examples))
    return f"{listed}; ..." if graph.n_components > len(examples) else listed


def _moved(table):
    """How many of the documents that were shown twice changed their place."""
    shown = ~np.isnan(table.position)
    doc = encode(table.doc[shown])[0]
    place = encode(table.position[shown])[0]
    cells = np.unique(pair_codes(doc, place, int(place.max()) + 1))
    n_places = np.bincount(cells // (int(place.max()) + 1))
    n_shown = np.bincount(doc)
    again = n_shown > 1
    if not again.any():
        return ""
    share = (n_places[again] > 1).mean()
    return f"Of the documents shown more than once, {share:.0%} changed their place."


def _examination(log):
    """How often each place is looked at relative to the first, with its 95 % interval."""
    frame = nw.from_native(log, eager_only=True)
    read = ("qid", "session", "doc", "position", "click", "impressions")
    rows = frame.select([name for name in read if name in frame.columns]).to_native()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            curve = InterventionHarvesting(random_state=0).fit(rows, "click").examination_
    except ValueError:
        # The verdict says enough: the graph is connected, and some step lacks clicks.
        return pd.DataFrame()
    # Errors are those of the logarithm.
    factor = np.exp(1.96 * curve["standard_error"])
    found = pd.DataFrame({"examination": curve["examination"]})
    found["low"] = curve["examination"] / factor
    found["high"] = curve["examination"] * factor
    found.index = found.index.astype(int).rename("position")
    return found


# What may be wrong though no check refuses it ---------------------------------------------
def _busy_users(table):
    """Users with far more pages than others, those of most first, and what is to be said."""
    if "user" not in table.roles.values():
        return [], []
    name = next(name for name, role in table.roles.items() if role == "user")
    user = table.codes(name)
    n_pages = np.bincount(user[table.page_starts])
    busy = np.flatnonzero(n_pages > BUSY_USER.value * np.median(n_pages))
    if not len(busy):
        return [], []
    busy = busy[np.argsort(-n_pages[busy], kind="stable")]
    rows = [int(np.argmax(user == each)) for each in busy[:_LISTED]]
    users = table.frame[name][rows].to_list()
    said = (
        f"{len(busy):,} of {len(n_pages):,} users ({name!r}) have more than "
        f"{BUSY_USER.value:g} times the pages of the median user, in all "
        f"{n_pages[busy].sum() / n_pages.sum():.1%} of the pages, such as "
        f"{', '.join(map(str, users[:_NAMED]))}. They may be bots: leave them out if they are, by "
        "the line of the code that begins with `# log`."
    )
    return users, [said]


def _repeated_pages(table):
    """What is to be said of pages that a user saw twice in a row."""
    if "user" not in table.roles.values() or "session" not in table.roles.values():
        return
    name = next(name for name, role in table.roles.items() if role == "user")
    place = np.nan_to_num(table.position).astype(np.int64)
    cell = pair_codes(table.doc, place, int(place.max()) + 1)
    # The sum of mixed numbers stands for the list of a page, in whatever order.
    mixed = (cell.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    sums = np.zeros(len(table.page_starts), dtype=np.uint64)
    np.add.at(sums, table.page, mixed)
    pages = pd.DataFrame({"user": table.codes(name)[table.page_starts], "list": sums})
    share = pages.duplicated().mean()
    if share > REPEATED_PAGES.value:
        yield (
            f"{share:.1%} of the pages repeat a page of the same user, with the same documents at "
            "the same places: reloads, or the button back. Count each once."
        )


def _paid_slots(table):
    """What is to be said of columns that are 1 at the top of pages alone, or named as slots."""
    for name in table.features:
        if table.stands_at_the_top(name):
            yield (
                f"{name!r} is 1 at the top of pages alone: probably paid or pinned slots, which "
                "users treat in another way. Leave these rows out, or give them a bias factor: "
                f"`IdentifiabilityRepair(bias={['position', name]})`."
            )
        elif table.is_named_paid(name):
            yield (
                f"{name!r} is named as paid slots, and is 1 between results too. If they are "
                "slots, which users treat in another way, it is no feature: give them a bias "
                f"factor, `IdentifiabilityRepair(bias={['position', name]})`, or leave these rows "
                "out."
            )


def _page_borders(table, log):
    """What is to be said of positions with clearly more clicks than the one above."""
    clicks = table.by_position(log)
    if len(clicks) < 2:
        return
    rate = clicks["click rate"].to_numpy()
    error = np.sqrt(rate * (1 - rate).clip(0) / clicks["impressions"].to_numpy())
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = rate[1:] / rate[:-1]
        sure = (rate[1:] - rate[:-1]) / np.hypot(error[1:], error[:-1])
    jumps = clicks.index[1:][(ratio > PAGE_JUMP.value) & (sure > 3)]
    for position in jumps[:2]:
        if position >= 5:
            yield (
                f"Clicks rise at position {position}: a new page, or screen, probably begins "
                "there. That is fine. Do not smooth the curve across it."
            )
        else:
            yield (
                f"Position {position} has more clicks than the one above: what stands above may "
                "be paid or pinned slots, which users skip. Leave these rows out, or give them a "
                "bias factor of their own."
            )
