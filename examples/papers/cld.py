"""Tables and figures of the causal likelihood decomposition paper, again.

    python cld.py --list                  # what there is
    python cld.py --quick                 # all, small: minutes
    python cld.py --table 2               # one table, full size
    python cld.py --letor path/to/Fold1   # on your documents

Zhao, Xu, Zhang, Cai, Dong & Wen (2023). Unbiased top-k learning to rank with causal likelihood
decomposition. SIGIR-AP.

Only the top k of an old ranker were shown, and users looked at the first of them more. Table 2:
seven rankers. Figure 3: more or fewer shown (a), more or less position bias (b). Figure 4: more
sessions. Figure 5: click noise. Figure 6: wrong propensities. Table 3: CLD by a network, pairs by
a linear model. Figures 1 and 2 are drawings, and Table 1 is notation.

Every study has two worlds. In the paper's the old ranker went by the features, so that the
correlation gamma of the errors of relevance and of selection is 0; in the other it also went by a
signal that no feature shows. CLD and CLD-pair are the paper's equations 9 and 12 as printed;
"skultr" and "default" are the package's forms. The full sizes take about three days on two cores
(``--list`` says how long each), a tenth of that with ``--queries 2000``.
"""

import sys

import pandas as pd
from _cld_worlds import METRICS, WORLDS, Log, log_rows
from _redraw import Claim, Exhibit, Paper, Study, main

BASELINES = ("Naive", "IPS", "Heckman", "RankAgg")
PUBLISHED = (*BASELINES, "CLD", "CLD-pair")
FORMS = (
    "CLD, gamma 0",
    "CLD by rows, skultr",
    "CLD by pairs, skultr",
    "CLD, default",
    "CLD, default, gamma 0",
)
#: The model that the paper gives each method.
MODEL_OF = dict.fromkeys(("Naive", "IPS", "RankAgg", "CLD-pair", "Oracle"), "network")
MODEL_OF |= dict.fromkeys(("Heckman", "CLD"), "linear")


# --------------------------------------------------------------------------------------
# Studies
# --------------------------------------------------------------------------------------
def worlds(settings, **axis):
    """Cells: each world at each value of the axis, on made documents of both sets if full."""
    both = settings.letor is None and not settings.quick
    return _cells(("Yahoo", "WEB10K") if both else ("Yahoo",), **axis)


def tables(settings):
    """Cells of the tables: both sets also with --quick."""
    return _cells(("Yahoo", "WEB10K") if settings.letor is None else ("Yahoo",), eta=(0.1,))


def cut_offs(settings):
    return worlds(settings, k=settings.size(quick=(2, 5, 20), full=(2, 3, 5, 8, 10, 15, 20)))


def position_bias(settings):
    return worlds(settings, eta=settings.size(quick=(0.0, 1.0, 2.0), full=(0, 0.5, 1.0, 1.5, 2.0)))


def sessions(settings):
    """From 1/50 of the sessions to all of them."""
    most = settings.n_sessions(quick=20_000, full=1_000_000)
    shares = settings.size(quick=(0.02, 0.2, 1), full=(0.003, 0.01, 0.03, 0.1, 0.3, 1))
    return worlds(settings, sessions=[max(1, round(share * most)) for share in shares])


def noise(settings):
    levels = settings.size(quick=(0.0, 0.25, 0.5), full=(0.0, 0.1, 0.2, 0.3, 0.4, 0.5))
    return worlds(settings, noise=levels)


def wrong_propensities(settings):
    told = settings.size(quick=(0.0, 1.0, 2.0), full=(0.0, 0.5, 1.0, 1.5, 2.0))
    return _cells(("Yahoo",), k=(3, 5), told=told)


def _cells(sets, **axes):
    cells = [{"set": name, "world": world} for name in sets for world in WORLDS]
    for name, values in axes.items():
        cells = [{**cell, name: value} for cell in cells for value in values]
    return cells


def run_tables(cell, settings, seed):
    """Rows of Tables 2 and 3."""
    return log_rows(Log(**cell), settings, seed, methods=(*PUBLISHED, *FORMS))


def run_figure(cell, settings, seed):
    """Rows of Figures 3 to 5."""
    return log_rows(Log(**cell), settings, seed, methods=(*PUBLISHED, "CLD, default"))


def run_figure_6(cell, settings, seed):
    """Rows of Figure 6: the rankers that read propensities."""
    cell = dict(cell)
    told = cell.pop("told")
    methods = ("IPS", "RankAgg", "CLD", "CLD-pair", "CLD, default")
    return log_rows(Log(**cell), settings, seed, methods=methods, told=told)


TABLES = Study("tables", run_tables, tables, hours=3.5)
CUT_OFFS = Study("cut-offs", run_figure, cut_offs, hours=17.0)
POSITION_BIAS = Study("position bias", run_figure, position_bias, hours=12.0)
SESSIONS = Study("sessions", run_figure, sessions, hours=15.0)
NOISE = Study("noise", run_figure, noise, hours=15.0)
WRONG = Study("wrong propensities", run_figure_6, wrong_propensities, hours=9.0)


# --------------------------------------------------------------------------------------
# Claims
# --------------------------------------------------------------------------------------
NOTHING_HIDDEN = "the true gamma is 0 there: no selection bias to remove"
BOTH_CORRECTED = "RankAgg corrects selection too, and is a network where CLD is linear"
SHOWN_FIRST = (
    "most pairs of equation 12 have a document that was not shown, and it prefers the other: it "
    "learns the old ranking"
)


def as_published(rows, metrics=("nDCG@3",), *, by=()):
    """Means of the paper's rows, each method by its own model: methods as columns."""
    own = rows[rows["model"] == rows["method"].map(MODEL_OF)]
    means = own.groupby(["set", "world", *by, "method"])[list(metrics)].mean()
    return means.stack().unstack("method")


def ahead(method, world, rivals, metrics=("nDCG@3",), by=()):
    """Whether a method is above its rivals at every value of ``by``, set and metric."""

    def holds(means, rows):
        table = as_published(rows[rows["world"] == world], metrics, by=by)
        here = [name for name in rivals if name in table]
        return bool((table[method] > table[here].max(axis=1)).all())

    return holds


def claims_of_lead(metrics=("nDCG@3",), by=(), *, baselines=(BASELINES[:2], BASELINES[2:])):
    """CLD and CLD-pair are ahead of the baselines, in each world.

    Naive and IPS ignore selection, and Heckman's method and RankAgg correct it.
    """
    return tuple(
        Claim(
            f"{world}: {method} is ahead of {' and '.join(rivals)}",
            ahead(method, world, rivals, metrics, by),
            why=_why_not_ahead(method, world, rivals),
        )
        for world in WORLDS
        for method in ("CLD", "CLD-pair")
        for rivals in baselines
    )


def _why_not_ahead(method, world, rivals):
    if method == "CLD-pair":
        return SHOWN_FIRST
    if world == "features":
        return NOTHING_HIDDEN
    return BOTH_CORRECTED if "RankAgg" in rivals else ""


def oracle_is_the_bound(means, rows):
    table = as_published(rows, METRICS)
    return bool((table["Oracle"] >= table[list(PUBLISHED)].max(axis=1)).all())


def over(rows, x, method, *, rival=None):
    """nDCG@3 of a method, or its lead over a rival: sets and worlds as rows, ``x`` as columns."""
    table = as_published(rows, by=(x,))
    lead = table[method] - (0 if rival is None else table[rival])
    return lead.droplevel(-1).unstack(x)


def lead_shrinks(method):
    """Whether the lead over IPS is smaller at the largest cut-off than at the smallest."""

    def holds(means, rows):
        lead = over(rows, "k", method, rival="IPS")
        return bool((lead.iloc[:, -1] < lead.iloc[:, 0]).all())

    return holds


def naive_falls(means, rows):
    value = over(rows, "k", "Naive")
    return bool((value.iloc[:, -1] < value.iloc[:, 0]).all())


def drop(rows, x, method, *, to=-1):
    """What a method loses from the first value of ``x`` to another."""
    value = over(rows, x, method)
    return value.iloc[:, 0] - value.iloc[:, to]


def heckman_falls_most(means, rows):
    falls = {name: drop(rows, "eta", name) for name in ("Heckman", "IPS", "CLD", "CLD-pair")}
    return bool((pd.DataFrame(falls).idxmax(axis=1) == "Heckman").all())


def gains_by_sessions(method):
    """Whether a method is better with all sessions than with the fewest."""

    def holds(means, rows):
        return bool((drop(rows, "sessions", method) < 0).all())

    return holds


def cld_loses_least(means, rows):
    falls = pd.DataFrame({name: drop(rows, "noise", name) for name in PUBLISHED})
    return bool((falls.idxmin(axis=1) == "CLD").all())


def too_small_costs_more(method):
    """Whether a told exponent of 2 costs more than one of 0, where 1 is the truth."""

    def holds(means, rows):
        value = _by_told(rows)[method].unstack("told")
        return bool((value[2.0] < value[0.0]).all())

    return holds


def cld_bears_too_small(means, rows):
    steep = _by_told(rows).xs(2.0, level="told")
    return bool((steep.idxmax(axis=1) == "CLD").all())


def too_small_costs_more_at_5(means, rows):
    """On the mean of the methods, in each world."""
    value = _by_told(rows).mean(axis=1).unstack("told")
    steep = (value[1.0] - value[2.0]).unstack("k")
    return bool((steep[5] > steep[3]).all())


def _by_told(rows):
    table = as_published(rows, by=("k", "told")).droplevel(-1)
    return table[["IPS", "RankAgg", "CLD", "CLD-pair"]]


def network_is_worst(means, rows):
    table = _variants(rows)
    return bool((table.idxmin(axis=1) == "CLD-N").all())


def network_of_pairs_is_ahead(means, rows):
    """CLD-pair over CLD-pair-L: ahead on WEB10K, level (.01) elsewhere."""
    gap = _variants(rows).eval("`CLD-pair` - `CLD-pair-L`")
    large = gap.index.get_level_values("set") == "WEB10K"
    return bool((gap[large] > 0).all() and (gap[~large].abs() <= 0.01).all())


def _variants(rows):
    """nDCG@3 of the four published variants in the paper's world."""
    rows = rows[(rows["world"] == "features") & rows["variant"].isin(VARIANTS.values())]
    return rows.pivot_table("nDCG@3", ["set", "world"], "variant")


# --------------------------------------------------------------------------------------
# Exhibits
# --------------------------------------------------------------------------------------
VARIANTS = {
    ("linear", "CLD"): "CLD",
    ("network", "CLD"): "CLD-N",
    ("network", "CLD-pair"): "CLD-pair",
    ("linear", "CLD-pair"): "CLD-pair-L",
}
NOTE = (
    "gamma is 0.2 in all rows (the paper tuned it from .05 to .30); networks stop early instead "
    "of after 12 epochs"
)

TABLE_2 = {
    ("Yahoo", "Naive"): (0.606, 0.593, 0.592),
    ("Yahoo", "IPS"): (0.650, 0.619, 0.609),
    ("Yahoo", "Heckman"): (0.608, 0.590, 0.587),
    ("Yahoo", "RankAgg"): (0.649, 0.623, 0.608),
    ("Yahoo", "CLD"): (0.661, 0.631, 0.616),
    ("Yahoo", "CLD-pair"): (0.662, 0.630, 0.615),
    ("Yahoo", "Oracle"): (0.666, 0.636, 0.622),
    ("WEB10K", "Naive"): (0.383, 0.350, 0.294),
    ("WEB10K", "IPS"): (0.413, 0.368, 0.282),
    ("WEB10K", "Heckman"): (0.350, 0.331, 0.287),
    ("WEB10K", "RankAgg"): (0.413, 0.375, 0.299),
    ("WEB10K", "CLD"): (0.434, 0.391, 0.312),
    ("WEB10K", "CLD-pair"): (0.439, 0.397, 0.312),
    ("WEB10K", "Oracle"): (0.455, 0.416, 0.332),
}
TABLE_3 = {
    ("Yahoo", "CLD"): (0.661, 0.631, 0.616),
    ("Yahoo", "CLD-N"): (0.652, 0.619, 0.610),
    ("Yahoo", "CLD-pair"): (0.662, 0.630, 0.615),
    ("Yahoo", "CLD-pair-L"): (0.660, 0.634, 0.618),
    ("Yahoo", "Oracle"): (0.666, 0.636, 0.622),
    ("WEB10K", "CLD"): (0.434, 0.391, 0.312),
    ("WEB10K", "CLD-N"): (0.340, 0.321, 0.284),
    ("WEB10K", "CLD-pair"): (0.439, 0.397, 0.312),
    ("WEB10K", "CLD-pair-L"): (0.431, 0.389, 0.309),
    ("WEB10K", "Oracle"): (0.455, 0.416, 0.332),
}


def rows_of_table_2(rows):
    """The paper's seven methods and skultr's default, by a linear model and by a network."""
    rows = rows[rows["method"].isin((*PUBLISHED, "CLD, default", "Oracle"))]
    return rows.assign(log=rows["set"] + ", " + rows["world"])


def rows_of_table_3(rows):
    """All forms of CLD, under the paper's names where it has one."""
    names = {**VARIANTS, ("network", "Oracle"): "Oracle", ("linear", "Oracle"): "Oracle, linear"}
    names |= {
        (model, form): f"{form}, {model}" for model in ("linear", "network") for form in FORMS
    }
    variant = pd.Series(zip(rows["model"], rows["method"], strict=True), rows.index).map(names)
    rows = rows.assign(variant=variant, log=rows["set"] + ", " + rows["world"])
    order = {name: i for i, name in enumerate(names.values())}
    return rows.dropna(subset="variant").sort_values(
        "variant", key=lambda column: column.map(order), kind="stable"
    )


def by_panel(rows):
    """A panel for each set, world and model (and cut-off in Figure 6)."""
    panel = rows["set"] + ", " + rows["world"] + ", " + rows["model"]
    return rows.assign(panel=panel)


def by_panel_and_cut_off(rows):
    rows = by_panel(rows)
    return rows.assign(panel=rows["panel"] + ", k = " + rows["k"].astype(str))


def figure(name, title, study, x, claims, keep=by_panel, **options):
    """An exhibit of nDCG@3 over ``x``."""
    return Exhibit(
        name,
        title,
        study,
        ("panel", "method", x),
        ("nDCG@3",),
        claims=claims,
        keep=keep,
        x=x,
        panel="panel",
        paired=("panel",),
        level=0.9,
        note=f"The paper has curves without figures; {NOTE}",
        **options,
    )


PAPER = Paper(
    "cld",
    "Unbiased top-k learning to rank with causal likelihood decomposition (SIGIR-AP 2023)",
    (
        Exhibit(
            "table 2",
            "Top 5 shown, eta 0.1",
            TABLES,
            ("log", "model", "method"),
            METRICS,
            paired=("log",),
            published={
                (f"{name}, features", MODEL_OF[method], method): values
                for (name, method), values in TABLE_2.items()
            },
            claims=(
                *claims_of_lead(METRICS),
                Claim("Oracle is the upper bound", oracle_is_the_bound),
            ),
            keep=rows_of_table_2,
            panel="log",
            level=0.9,
            note=NOTE,
        ),
        figure(
            "figure 3a",
            "More or fewer were shown",
            CUT_OFFS,
            "k",
            (
                *claims_of_lead(by=("k",)),
                Claim("the lead of CLD over IPS shrinks as more are shown", lead_shrinks("CLD")),
                Claim(
                    "the lead of CLD-pair over IPS shrinks as more are shown",
                    lead_shrinks("CLD-pair"),
                ),
                Claim("Naive falls as more are shown", naive_falls),
            ),
        ),
        figure(
            "figure 3b",
            "More or less position bias",
            POSITION_BIAS,
            "eta",
            (
                *claims_of_lead(by=("eta",)),
                Claim("Heckman falls most as position bias grows", heckman_falls_most),
            ),
        ),
        figure(
            "figure 4",
            "More or fewer sessions",
            SESSIONS,
            "sessions",
            (
                *claims_of_lead(by=("sessions",)),
                Claim("CLD improves with more sessions", gains_by_sessions("CLD")),
                Claim(
                    "CLD-pair improves with more sessions",
                    gains_by_sessions("CLD-pair"),
                    why=SHOWN_FIRST,
                ),
            ),
            log_x=True,
        ),
        figure(
            "figure 5",
            "More or less click noise",
            NOISE,
            "noise",
            (
                *claims_of_lead(by=("noise",)),
                Claim("CLD loses least by noise", cld_loses_least),
            ),
        ),
        figure(
            "figure 6",
            "Wrong propensities: told eta, where 1 is the truth",
            WRONG,
            "told",
            (
                *claims_of_lead(by=("k", "told"), baselines=(("IPS",), ("RankAgg",))),
                *(
                    Claim(
                        f"too small propensities cost {method} more than too large ones",
                        too_small_costs_more(method),
                        why=SHOWN_FIRST if method == "CLD-pair" else "",
                    )
                    for method in ("IPS", "RankAgg", "CLD", "CLD-pair")
                ),
                Claim("CLD is the best with too small propensities", cld_bears_too_small),
                Claim(
                    "too small propensities cost more at top 5 than at top 3",
                    too_small_costs_more_at_5,
                ),
            ),
            keep=by_panel_and_cut_off,
        ),
        Exhibit(
            "table 3",
            "Forms of CLD; top 5 shown, eta 0.1",
            TABLES,
            ("log", "variant"),
            METRICS,
            paired=("log",),
            published={
                (f"{name}, features", method): values for (name, method), values in TABLE_3.items()
            },
            claims=(
                Claim("CLD-N is the worst of the four", network_is_worst),
                Claim(
                    "CLD-pair is ahead of CLD-pair-L on WEB10K and level on Yahoo",
                    network_of_pairs_is_ahead,
                ),
            ),
            keep=rows_of_table_3,
            panel="log",
            level=0.9,
            note=NOTE,
        ),
    ),
)

if __name__ == "__main__":
    sys.exit(main(PAPER))
