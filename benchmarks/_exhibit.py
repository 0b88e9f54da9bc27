"""Tables and figures from the rows of studies, with the published figures and a verdict beside.

A verdict is computed: how many claims hold, are contradicted, or stay undecided (`_claims`), and a
word. *Reproduced*: every claim holds, and every published figure lies within the exhibit's
tolerance of ours, or within our interval if that is no wider than three of it. *In shape*: every
claim holds. *Contradicted*: some claim is, and the verdict names it and the reason, where one is
known. *Undecided at this size*: none is contradicted, and more runs may decide those that are
open. *Shown*: the paper claims nothing about it, or nothing that our machine can tell.
*Incomplete*: no seed has all of its runs, and the claims wait for them. Claims without a run that
can tell are counted as not judged. Claims in settings of ours are decided too, and are no part of
the verdict on the paper.
"""

from collections.abc import Callable
from dataclasses import dataclass

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy import stats

from ._claims import CONTRADICTED, HOLDS, PAPER, UNDECIDED, Claim, decide

__all__ = ["Claim", "Exhibit", "Runs", "command", "decide_claims", "report"]

OURS, PUBLISHED = "#1f77b4", "#d62728"
#: An axis with at most as many whole numbers shows all of them.
MOST_TICKS = 10


@dataclass(frozen=True)
class Exhibit:
    """A table or figure of a page.

    ``by`` are the columns that name a row (the rows stand in the order in which the study gives
    them), ``metrics`` the columns with numbers. ``published`` maps a row (text, or a tuple where
    ``by`` has several columns) to its published figures, in the order of the metrics (None: not
    published). ``keep(rows)`` selects or reshapes the study's rows. ``x`` draws lines over that
    column of ``by`` instead of dots, ``panel`` one panel for each of its values; ``draw(rows,
    table)`` draws something else and returns the figure. ``reference`` is the row that all others
    are tested against (paired t test over runs); ``marks(rows, table)`` makes another test and
    returns a mark for each line of the table. ``paired`` are the columns that tell, with the seed,
    which rows come from the same documents: their intervals leave out what these rows share, as
    methods are compared on the same documents. ``cells(cell)`` says whether the exhibit shows a
    cell of the study: others are not run for it. ``level`` is that of the intervals of the means;
    None: the standard deviation over runs stands in their place; claims are decided at
    that level, or at 95 %. ``note`` says what differs from
    the page.
    """

    name: str
    title: str
    study: object
    by: tuple
    metrics: tuple
    published: dict | None = None
    claims: tuple = ()
    keep: Callable | None = None
    x: str | None = None
    log_x: bool = False
    panel: str | None = None
    draw: Callable | None = None
    reference: object = None
    marks: Callable | None = None
    cells: Callable | None = None
    paired: tuple | None = None
    level: float | None = 0.95
    tolerance: float = 0.01
    note: str = ""

    @property
    def file(self):
        """``table 1`` -> ``table_1``."""
        return self.name.replace(" ", "_")


@dataclass(frozen=True)
class Runs:
    """The rows of an exhibit's study, what they took, and where they come from.

    ``seconds`` are those of one processor core: a line for each cell of the exhibit, a column for
    each seed, NaN where a run is missing. ``looks``: how often the claims may have been looked at
    before more was run.
    """

    rows: pd.DataFrame
    seconds: pd.DataFrame
    looks: int = 1
    command: str = ""
    machine: str = ""

    @property
    def whole(self):
        """Rows of the seeds that have all of their cells: claims do without the others."""
        has_all = self.seconds.notna().all()
        return self.rows[self.rows["seed"].isin(has_all.index[has_all])]


def report(page, found, out):
    """Write ``EXHIBIT.csv`` and ``EXHIBIT.png``, ``verdicts.csv`` and ``claims.csv``; print all.

    ``found`` pairs each exhibit with its `Runs`.
    """
    verdicts, claims = [], []
    for exhibit, runs in found:
        if runs.rows.empty:
            print(f"\n{exhibit.name}: no run ended, see the errors above")
            continue
        kept = _kept(exhibit, runs.rows)
        table = summarize(exhibit, kept)
        table.to_csv(out / f"{exhibit.file}.csv", index=False)
        figure = _draw(exhibit, kept, table)
        figure.savefig(out / f"{exhibit.file}.png", dpi=120, bbox_inches="tight")
        plt.close(figure)
        decided = decide_claims(exhibit, runs)
        verdicts.append(judge(exhibit, table, decided, runs))
        claims += [{"exhibit": exhibit.name, **claim} for claim in decided]
        _print(exhibit, table, verdicts[-1])
    names = [exhibit.name for exhibit in page.exhibits]
    judged = [verdict["exhibit"] for verdict in verdicts]
    _replace(out / "verdicts.csv", verdicts, judged, names)
    _replace(out / "claims.csv", claims, judged, names)
    print(f"\nTables, figures and verdicts: {out}")


def command(page, exhibit, options):
    """What to type to have this exhibit again."""
    kind, _, number = exhibit.name.partition(" ")
    what = f"--{kind} {number}" if number else f"--only {kind}"
    if any(" " in one.name for one in page.exhibits):  # "table 1": a paper
        return f'make papers PAPER={page.name} ARGS="{f"{what} {options}".strip()}"'
    return f"python -m benchmarks {page.name} {what} {options}".strip()


# --------------------------------------------------------------------------------------
# Numbers
# --------------------------------------------------------------------------------------
def summarize(exhibit, rows):
    """Our mean, its interval and the published figure for each row and metric of the exhibit."""
    by, metrics = list(exhibit.by), list(exhibit.metrics)
    long = rows.melt([*by, "seed"], metrics, "metric", "value").dropna(subset="value")
    long["metric"] = pd.Categorical(long["metric"], metrics)
    order = {key: i for i, key in enumerate(rows[by].drop_duplicates().itertuples(index=False))}
    long["own"] = long["value"] - _shared(exhibit, long)
    groups = long.groupby([*by, "metric"], observed=True)
    table = groups.agg(
        ours=("value", "mean"), sd=("own", "std"), runs=("value", "count")
    ).reset_index()
    table["interval"] = table.pop("sd")
    if exhibit.level is not None:
        half = stats.t.ppf((1 + exhibit.level) / 2, np.maximum(table["runs"] - 1, 1))
        table["interval"] *= half / np.sqrt(table["runs"])
    keys = list(table[by].itertuples(index=False))
    table["published"] = [
        _published(exhibit, key, metric) for key, metric in zip(keys, table["metric"], strict=True)
    ]
    if exhibit.reference in map(_short, keys):
        table["mark"] = _marks(exhibit, long, table)
    if exhibit.marks is not None:
        table["mark"] = exhibit.marks(rows, table)
    place = [(order[key], metrics.index(m)) for key, m in zip(keys, table["metric"], strict=True)]
    return table.iloc[sorted(range(len(place)), key=place.__getitem__)].reset_index(drop=True)


def _shared(exhibit, long):
    """What all rows of a run have in common: the mean of the middle half.

    One odd method does not move it. The median would not either, but it is the value of one of
    the methods, which would then seem to have no spread.
    """
    if exhibit.paired is None:
        return 0.0
    run = ["seed", "metric", *exhibit.paired]
    return long.groupby(run, observed=True)["value"].transform(stats.trim_mean, 0.25)


def _published(exhibit, key, metric):
    figures = (exhibit.published or {}).get(_short(key))
    value = None if figures is None else figures[exhibit.metrics.index(metric)]
    return np.nan if value is None else value


def _short(key):
    """The key as an exhibit writes it: text for one column, else a tuple."""
    key = tuple(key)
    return key[0] if len(key) == 1 else key


def _marks(exhibit, long, table):
    """``+`` or ``-`` where a row is significantly above or below the reference row (5 %)."""
    by = list(exhibit.by)
    values = long.pivot_table("value", [*by, "seed"], "metric", observed=True)
    reference = values.loc[exhibit.reference]
    marks = []
    for key, metric in zip(table[by].itertuples(index=False), table["metric"], strict=True):
        pair = pd.concat([values.loc[_short(key), metric], reference[metric]], axis=1).dropna()
        gap = pair.iloc[:, 0] - pair.iloc[:, 1]
        sure = len(gap) > 1 and gap.std() > 0 and stats.ttest_1samp(gap, 0).pvalue < 0.05
        marks.append(("+" if gap.mean() > 0 else "-") if sure else "")
    return marks


# --------------------------------------------------------------------------------------
# Verdicts
# --------------------------------------------------------------------------------------
def decide_claims(exhibit, runs):
    """Each claim of an exhibit with its setting, verdict, deciding gap and interval."""
    rows = runs.whole
    each, without = [], []
    if exhibit.claims and len(rows):
        kept = _kept(exhibit, rows)
        each = [_view(exhibit, part) for _, part in kept.groupby("seed")]
    if each and any(claim.jackknife for claim in exhibit.claims):
        seeds = rows["seed"].unique() if rows["seed"].nunique() > 1 else ()
        parts = [_kept(exhibit, rows[rows["seed"] != seed]) for seed in seeds]
        without = [_view(exhibit, part) for part in (kept, *parts)]
    level = 0.95 if exhibit.level is None else exhibit.level
    return [
        {
            "claim": claim.says,
            "setting": claim.setting,
            **decide(claim, without if claim.jackknife else each, level, runs.looks),
            "why": claim.why,
        }
        for claim in exhibit.claims
    ]


def _kept(exhibit, rows):
    return rows if exhibit.keep is None else exhibit.keep(rows)


def _view(exhibit, rows):
    """What a claim reads: means of the metrics, and the rows."""
    groups = rows.groupby(list(exhibit.by), sort=False, observed=True)
    return groups[list(exhibit.metrics)].mean().dropna(how="all"), rows


def judge(exhibit, table, decided, runs):
    """Exhibit, title, counts of the paper's claims, verdict and its reason, runs and hours."""
    decided = [claim for claim in decided if claim["setting"] == PAPER]
    told = [claim for claim in decided if claim["runs"]]
    verdicts = [claim["verdict"] for claim in told]
    held, failed, open_ = (verdicts.count(kind) for kind in (HOLDS, CONTRADICTED, UNDECIDED))
    if runs.whole.empty:
        word = "incomplete"
    elif failed:
        word = "contradicted"
    elif open_ or len(told) < len(decided):
        word = "undecided at this size"
    elif _agrees(exhibit, table):
        word = "reproduced"
    else:
        word = "in shape" if held else "shown"
    n_missing = int(runs.seconds.isna().to_numpy().sum())
    missing = f"{n_missing} {'run is' if n_missing == 1 else 'runs are'} missing: "
    counts = f"{held} hold, {failed} contradicted, {open_} undecided of {len(decided)}"
    waiting = f", {len(decided) - len(told)} not judged" if len(told) < len(decided) else ""
    said = [
        f"{missing}failed, or left out by --cell" if n_missing else "",
        _reasons("Does not hold", told, CONTRADICTED),
        _reasons("Undecided", told, UNDECIDED),
        exhibit.note,
    ]
    return {
        "exhibit": exhibit.name,
        "title": exhibit.title,
        "claims": counts + waiting,
        "verdict": word,
        "why": ". ".join(filter(None, said)),
        "note": exhibit.note,
        "runs": runs.seconds.shape[1],
        "hours": round(runs.seconds.to_numpy()[runs.seconds.notna()].sum() / 3600, 3),
        "command": runs.command,
        "machine": runs.machine,
    }


def _reasons(intro, decided, verdict):
    """The claims of a verdict, and after those that have one reason in common the reason."""
    by_reason = {}
    for claim in decided:
        if claim["verdict"] == verdict:
            why = claim["why"] if verdict == CONTRADICTED else ""
            by_reason.setdefault(why, []).append(claim["claim"])
    listed = ". Nor: ".join(
        "; ".join(says) + (f" ({why})" if why else "") for why, says in by_reason.items()
    )
    return listed and f"{intro}: {listed}"


def _agrees(exhibit, table):
    """Whether there are published figures, and all of them lie near enough to ours."""
    both = table.dropna(subset="published")
    gap = (both["ours"] - both["published"]).abs()
    # An interval from two runs can hold any figure: it agrees with nothing. A paired interval
    # does not say where the mean lies.
    counts = (both["interval"] <= 3 * exhibit.tolerance) & (exhibit.paired is None)
    narrow = both["interval"].where(counts, 0)
    near = gap <= np.fmax(narrow, exhibit.tolerance)
    return bool(len(both)) and bool(near.all())


def _replace(path, lines, judged, order):
    """Lines of this call replace those of the same exhibits; the others stay."""
    new = pd.DataFrame(lines)
    if path.exists():
        old = pd.read_csv(path, keep_default_na=False)
        new = pd.concat([old[~old["exhibit"].isin(judged)], new])
    if len(new):
        place = new["exhibit"].map({name: i for i, name in enumerate(order)})
        new.iloc[place.argsort(kind="stable")].to_csv(path, index=False)


def _print(exhibit, table, verdict):
    print(f"\n{exhibit.name.capitalize()}. {exhibit.title}")
    wide = table.assign(text=[_text(row) for row in table.itertuples()])
    wide = wide.pivot_table(
        "text", list(exhibit.by), "metric", aggfunc="first", observed=True, sort=False
    )
    print(wide.to_string())
    print(f"{verdict['claims']}: {verdict['verdict']}. {verdict['why']}")


def _text(row):
    """``.712 ±.004 [.706]``: ours, its interval, the published figure."""
    text = f"{row.ours:.4g}" + getattr(row, "mark", "")
    text += f" ±{row.interval:.2g}" if np.isfinite(row.interval) else ""
    return text + (f" [{row.published:.4g}]" if np.isfinite(row.published) else "")


# --------------------------------------------------------------------------------------
# Figures
# --------------------------------------------------------------------------------------
def _draw(exhibit, rows, table):
    if exhibit.draw is not None:
        return exhibit.draw(rows, table)
    panels = _panels(exhibit, table)
    # Several metrics of each panel stand side by side.
    several = exhibit.panel is not None and len(exhibit.metrics) > 1
    n_columns = min(len(panels), len(exhibit.metrics) if several else 4)
    n_rows = -(-len(panels) // n_columns)
    labels = list(dict.fromkeys(_labels(exhibit, table)))
    height = 3.2 if exhibit.x else 1.2 + 0.27 * len(labels)
    figure, axes = plt.subplots(
        n_rows,
        n_columns,
        figsize=(3.4 * n_columns + 1, height * n_rows),
        squeeze=False,
        sharey=not exhibit.x,
        layout="constrained",
    )
    # A line has one colour in all panels, some of which may lack it.
    names = dict.fromkeys(_names_of_lines(exhibit, table)) if exhibit.x else ()
    colors = {name: f"C{i % 10}" for i, name in enumerate(names)}
    for (title, part), axis in zip(panels, axes.flat, strict=False):
        if exhibit.x:
            _lines(exhibit, part, axis, colors)
        else:
            _dots(exhibit, part, axis, labels)
        axis.set_title(title, fontsize=10)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    known = {}
    for axis in axes.flat:
        handles, labels = axis.get_legend_handles_labels()
        known |= dict(zip(labels, handles, strict=True))
    if known:
        n_columns = min(4, len(known))
        figure.legend(known.values(), known, loc="outside lower center", ncols=n_columns)
    figure.suptitle(f"{exhibit.name.capitalize()}. {exhibit.title}", fontsize=11)
    return figure


def _panels(exhibit, table):
    """Title and part of the table for each panel: a metric, perhaps at a value of ``panel``."""
    if exhibit.panel is None:
        return [(name, part) for name, part in table.groupby("metric", observed=True)]
    groups = table.groupby([exhibit.panel, "metric"], observed=True, sort=False)
    several = len(exhibit.metrics) > 1
    titled = [(_named([exhibit.panel], [value]), name, part) for (value, name), part in groups]
    return [(f"{title}, {name}" if several else title, part) for title, name, part in titled]


def _named(names, key):
    """``K = 2, DLA``: numbers with their names, text as it is."""
    pairs = zip(names, key, strict=True)
    return ", ".join(v if isinstance(v, str) else f"{name} = {v:g}" for name, v in pairs)


def _labels(exhibit, table):
    names = [name for name in exhibit.by if name != exhibit.panel]
    return [_named(names, key) for key in table[names].itertuples(index=False)]


def _dots(exhibit, part, axis, labels):
    """Panels share the labels: a row may have no value of some metric."""
    top = len(labels) - 1
    place = np.array([top - labels.index(label) for label in _labels(exhibit, part)])
    axis.set_ylim(-0.6, top + 0.6)
    axis.errorbar(part["ours"], place, xerr=part["interval"], fmt="o", color=OURS, label="ours")
    if part["published"].notna().any():
        axis.plot(part["published"], place, "D", mfc="none", mec=PUBLISHED, label="published")
    axis.set_yticks(range(top, -1, -1), labels)
    if exhibit.log_x:
        axis.set_xscale("log")
    else:
        axis.locator_params(axis="x", nbins=4)
    axis.grid(axis="x", alpha=0.3)


def _names_of_lines(exhibit, table):
    """What the lines of a panel are, as the table has them; "ours" where each panel has one."""
    names = [name for name in exhibit.by if name not in (exhibit.x, exhibit.panel)]
    if not names:
        return pd.Series("ours", index=table.index)
    keys = table[names].itertuples(index=False)
    return pd.Series([_named(names, key) for key in keys], index=table.index)


def _lines(exhibit, part, axis, colors):
    for label, line in part.groupby(_names_of_lines(exhibit, part), sort=False):
        line = line.sort_values(exhibit.x)
        color = colors[label]
        low, high = line["ours"] - line["interval"], line["ours"] + line["interval"]
        axis.plot(line[exhibit.x], line["ours"], "o-", ms=4, color=color, label=label)
        axis.fill_between(line[exhibit.x], low, high, color=color, alpha=0.15, linewidth=0)
        if line["published"].notna().any():
            axis.plot(line[exhibit.x], line["published"], "D", mfc="none", mec=color)
    axis.set_xlabel(exhibit.x)
    if exhibit.panel is not None and len(exhibit.metrics) == 1:
        # The titles name the panels alone.
        axis.set_ylabel(exhibit.metrics[0])
    values = part[exhibit.x].unique()
    if exhibit.log_x:
        axis.set_xscale("log")
    elif len(values) <= MOST_TICKS and all(value == round(value) for value in values):
        axis.set_xticks(values)
    axis.grid(alpha=0.3)
