"""Tables and figures of the causal likelihood decomposition paper, again.

    python -m benchmarks papers/cld --list                  # what there is
    python -m benchmarks papers/cld --quick                 # all, small: minutes
    python -m benchmarks papers/cld --table 2               # one table, full size
    python -m benchmarks papers/cld --letor path/to/Fold1   # on your documents

Zhao, Xu, Zhang, Cai, Dong & Wen (2023). Unbiased top-k learning to rank with causal likelihood
decomposition. SIGIR-AP.

Only the top k of production were shown, and users looked at the first of them more. Table 2:
seven rankers. Figure 3: more or fewer shown (a), more or less position bias (b). Figure 4: more
sessions. Figure 5: click noise. Figure 6: wrong propensities. Table 3: CLD by a network, pairs by
a linear model. Figures 1 and 2 are drawings, and Table 1 is notation.

The world is the paper's. A linear model of the truth is about as good as a network, and production
went by the features, so that the correlation gamma of the errors of relevance and of selection is
0. ``worlds`` has two others: documents that are not linear, and production that also went by a
signal that no feature shows. CLD is the paper's equation 9. CLD-pair is what the authors' program
does, and "CLD-pair, printed" is equation 12; "default" is the package's form. The full sizes take
about five days on two cores (``--list`` gives the hours of each, extrapolated from ``--quick``), a
tenth of that with ``--queries 2000``.
"""

import pandas as pd

from .._study import Exhibit, Page, Study
from . import _cld_claims as claims
from ._cld_claims import MODEL_OF, PUBLISHED, VARIANTS
from ._cld_worlds import METRICS, Log, log_rows

#: Of the tables, by model: the paper's, and forms that its claims do without.
OF_TABLES = {
    "linear": ("Heckman", "CLD", "CLD-pair", "CLD, gamma 0"),
    "network": (*PUBLISHED, "CLD-pair, printed", "CLD, gamma 0", "CLD, default"),
}
#: Of the figures: linear models are those that the paper has alone.
OF_FIGURES = {"linear": ("Heckman", "CLD"), "network": (*PUBLISHED, "CLD, default")}
#: Those that read propensities.
OF_FIGURE_6 = {
    "linear": ("CLD",),
    "network": ("IPS", "RankAgg", "CLD", "CLD-pair", "CLD, default"),
}


# --------------------------------------------------------------------------------------
# Studies
# --------------------------------------------------------------------------------------
def curve(settings, **axis):
    """Cells: each value of the axis, on made documents of both sets if full."""
    both = settings.letor is None and not settings.quick
    return _cells(("Yahoo", "WEB10K") if both else ("Yahoo",), **axis)


def tables(settings):
    """Cells of the tables: both sets also with --quick."""
    return _cells(("Yahoo", "WEB10K") if settings.letor is None else ("Yahoo",), eta=(0.1,))


def cut_offs(settings):
    return curve(settings, k=settings.size(quick=(2, 5, 20), full=(2, 3, 5, 8, 10, 15, 20)))


def position_bias(settings):
    return curve(settings, eta=settings.size(quick=(0.0, 1.0, 2.0), full=(0, 0.5, 1.0, 1.5, 2.0)))


def sessions(settings):
    """From 1/50 of the sessions to all of them."""
    most = settings.n_sessions(quick=20_000, full=1_000_000)
    shares = settings.size(quick=(0.02, 0.2, 1), full=(0.003, 0.01, 0.03, 0.1, 0.3, 1))
    return curve(settings, sessions=[max(1, round(share * most)) for share in shares])


def noise(settings):
    levels = settings.size(quick=(0.0, 0.25, 0.5), full=(0.0, 0.1, 0.2, 0.3, 0.4, 0.5))
    return curve(settings, noise=levels)


def wrong_propensities(settings):
    told = settings.size(quick=(0.0, 1.0, 2.0), full=(0.0, 0.5, 1.0, 1.5, 2.0))
    return _cells(("Yahoo",), k=(3, 5), told=told)


def other_worlds(settings):
    return curve(settings, world=("non-linear", "hidden signal"))


def _cells(sets, **axes):
    cells = [{"set": name} for name in sets]
    for name, values in axes.items():
        cells = [{**cell, name: value} for cell in cells for value in values]
    return cells


def run_tables(cell, settings, seed):
    """Rows of Tables 2 and 3."""
    return log_rows(Log(**cell), settings, seed, methods=OF_TABLES)


def run_figure(cell, settings, seed):
    """Rows of Figures 3 to 5."""
    return log_rows(Log(**cell), settings, seed, methods=OF_FIGURES)


def run_worlds(cell, settings, seed):
    """Rows of the networks in another world."""
    methods = {"network": OF_FIGURES["network"]}
    return log_rows(Log(**cell), settings, seed, methods=methods)


def run_figure_6(cell, settings, seed):
    """Rows of Figure 6: the rankers that read propensities."""
    cell = dict(cell)
    told = cell.pop("told")
    return log_rows(Log(**cell), settings, seed, methods=OF_FIGURE_6, told=told)


TABLES = Study("tables", run_tables, tables, hours=5.0)
CUT_OFFS = Study("cut-offs", run_figure, cut_offs, hours=27.0)
POSITION_BIAS = Study("position bias", run_figure, position_bias, hours=19.0)
SESSIONS = Study("sessions", run_figure, sessions, hours=30.0)
NOISE = Study("noise", run_figure, noise, hours=23.0)
WRONG = Study("wrong propensities", run_figure_6, wrong_propensities, hours=13.0)
OTHER_WORLDS = Study("other worlds", run_worlds, other_worlds, hours=8.0)


# --------------------------------------------------------------------------------------
# Exhibits
# --------------------------------------------------------------------------------------
NOTE = (
    "the published rows train 12 epochs; learning rate, L2 and gamma (0.05 to 0.3) are chosen by "
    "the clicks of held-out queries, with --quick from two of each"
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
    """The paper's seven methods, CLD-pair as printed and skultr's default, by both models."""
    shown = (*PUBLISHED, "CLD-pair, printed", "CLD, default", "Oracle")
    return rows[rows["method"].isin(shown)]


def rows_of_table_3(rows):
    """All forms of CLD, under the paper's names where it has one."""
    names = {**VARIANTS, ("network", "Oracle"): "Oracle", ("linear", "Oracle"): "Oracle, linear"}
    names |= {
        (model, form): f"{form}, {model}"
        for model, forms in OF_TABLES.items()
        for form in forms
        if form not in PUBLISHED
    }
    variant = pd.Series(zip(rows["model"], rows["method"], strict=True), rows.index).map(names)
    rows = rows.assign(variant=variant)
    order = {name: i for i, name in enumerate(names.values())}
    return rows.dropna(subset="variant").sort_values(
        "variant", key=lambda column: column.map(order), kind="stable"
    )


def by_panel(rows):
    """A panel for each set and model (and cut-off in Figure 6)."""
    panel = rows["set"] + ", " + rows["model"]
    return rows.assign(panel=panel)


def by_panel_and_cut_off(rows):
    rows = by_panel(rows)
    return rows.assign(panel=rows["panel"] + ", k = " + rows["k"].astype(str))


def figure(name, title, study, x, of, keep=by_panel, **options):
    """An exhibit of nDCG@3 over ``x``."""
    return Exhibit(
        name,
        title,
        study,
        ("panel", "method", x),
        ("nDCG@3",),
        claims=of,
        keep=keep,
        x=x,
        panel="panel",
        paired=("panel",),
        level=0.9,
        note=f"The paper has curves without figures; {NOTE}",
        **options,
    )


PAGE = Page(
    "cld",
    "Unbiased top-k learning to rank with causal likelihood decomposition (SIGIR-AP 2023)",
    (
        Exhibit(
            "table 2",
            "Top 5 shown, eta 0.1",
            TABLES,
            ("set", "model", "method"),
            METRICS,
            paired=("set",),
            published={
                (name, MODEL_OF[method], method): values
                for (name, method), values in TABLE_2.items()
            },
            claims=claims.TABLE_2,
            keep=rows_of_table_2,
            panel="set",
            level=0.9,
            note=NOTE,
        ),
        figure(
            "figure 3a",
            "More or fewer were shown",
            CUT_OFFS,
            "k",
            claims.FIGURE_3A,
        ),
        figure(
            "figure 3b",
            "More or less position bias",
            POSITION_BIAS,
            "eta",
            claims.FIGURE_3B,
        ),
        figure(
            "figure 4",
            "More or fewer sessions",
            SESSIONS,
            "sessions",
            claims.FIGURE_4,
            log_x=True,
        ),
        figure(
            "figure 5",
            "More or less click noise",
            NOISE,
            "noise",
            claims.FIGURE_5,
        ),
        figure(
            "figure 6",
            "Wrong propensities: told eta, where 1 is the truth",
            WRONG,
            "told",
            claims.FIGURE_6,
            keep=by_panel_and_cut_off,
        ),
        Exhibit(
            "table 3",
            "Forms of CLD; top 5 shown, eta 0.1",
            TABLES,
            ("set", "variant"),
            METRICS,
            paired=("set",),
            published=TABLE_3,
            claims=claims.TABLE_3,
            keep=rows_of_table_3,
            panel="set",
            level=0.9,
            note=NOTE,
        ),
        Exhibit(
            "worlds",
            "Other worlds, by networks; top 5 shown, eta 1",
            OTHER_WORLDS,
            ("set", "world", "method"),
            METRICS,
            paired=("set", "world"),
            claims=claims.OTHER_WORLDS,
            panel="world",
            level=0.9,
            note=NOTE,
        ),
    ),
)
