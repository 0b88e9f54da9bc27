"""Sentences of the CLD paper, as code on our rows."""

import pandas as pd

from .._exhibit import Claim
from ._cld_worlds import METRICS, WORLDS

BASELINES = ("Naive", "IPS", "Heckman", "RankAgg")
PUBLISHED = (*BASELINES, "CLD", "CLD-pair")
#: The model that the paper gives each method.
MODEL_OF = dict.fromkeys(("Naive", "IPS", "RankAgg", "CLD-pair", "Oracle"), "network")
MODEL_OF["CLD-pair, printed"] = "network"
MODEL_OF |= dict.fromkeys(("Heckman", "CLD"), "linear")
VARIANTS = {
    ("linear", "CLD"): "CLD",
    ("network", "CLD"): "CLD-N",
    ("network", "CLD-pair"): "CLD-pair",
    ("linear", "CLD-pair"): "CLD-pair-L",
}
NOTHING_HIDDEN = "the true gamma is 0 there: no selection bias to remove"
BOTH_CORRECTED = "RankAgg corrects selection too, and is a network where CLD is linear"
MOST_ARE_MIXED = (
    "most pairs of equation 12 have a document that was not shown, and draw its score and that of "
    "the other together"
)
NAIVE_IS_AHEAD = "Naive is ahead of IPS there, and CLD divides by propensities as IPS does"
THREE_CAUSES = "the sign of its term of selection, and its pairs: see the three forms of CLD-pair"
HALF_BLIND = "half of RankAgg is Heckman's method, which reads no propensities"
MORE_TO_LEARN = "on these documents more shown are more to learn from"


def as_published(rows, metrics=("nDCG@3",), *, by=()):
    """Means of the paper's rows, each method by its own model: methods as columns."""
    own = rows[rows["model"] == rows["method"].map(MODEL_OF)]
    means = own.groupby(["set", "world", *by, "method"])[list(metrics)].mean()
    return means.stack().unstack("method")


def leads(table, method, rivals):
    """What a method is ahead of each of its rivals: one column for each."""
    return table[list(rivals)].rsub(table[method], axis=0)


def ahead(method, world, rivals, metrics=("nDCG@3",)):
    """The lead over each rival on each set, on average over the curve and metrics."""

    def gaps(means, rows):
        rows = rows[rows["world"] == world]
        if method == "CLD" and "k" in rows:
            # The exception that the paper makes.
            rows = rows[(rows["set"] != "WEB10K") | (rows["k"] <= 10)]
        return leads(as_published(rows, metrics).groupby("set").mean(), method, rivals)

    return gaps


def claims_of_lead(metrics=("nDCG@3",), methods=("CLD", "CLD-pair")):
    """The forms of CLD are ahead of the baselines, in each world.

    Naive and IPS ignore selection, and Heckman's method and RankAgg correct it.
    """
    return tuple(
        Claim(
            f"{world}: {method} is ahead of {' and '.join(rivals)} on average",
            ahead(method, world, rivals, metrics),
            why=_why_not_ahead(method, world, rivals),
        )
        for world in WORLDS
        for method in methods
        for rivals in (BASELINES[:2], BASELINES[2:])
    )


def _why_not_ahead(method, world, rivals):
    if method == "CLD-pair, printed":
        return MOST_ARE_MIXED
    if world == "features":
        return NOTHING_HIDDEN
    if method == "CLD-pair":
        return THREE_CAUSES
    return BOTH_CORRECTED if "RankAgg" in rivals else NAIVE_IS_AHEAD


def claims_of_the_best():
    """With wrong propensities CLD is ahead of all others, in each world."""
    reasons = {"IPS": "", "RankAgg": HALF_BLIND, "CLD-pair": ""}
    return tuple(
        Claim(
            f"{world}: CLD is ahead of {rival} on average",
            ahead("CLD", world, (rival,)),
            why=why or (NOTHING_HIDDEN if world == "features" else ""),
        )
        for world in WORLDS
        for rival, why in reasons.items()
    )


def oracle_is_the_bound(means, rows):
    return leads(as_published(rows, METRICS), "Oracle", PUBLISHED)


def over(rows, x, method, *, rival=None):
    """nDCG@3 of a method, or its lead over a rival: sets and worlds as rows, ``x`` as columns."""
    table = as_published(rows, by=(x,))
    lead = table[method] - (0 if rival is None else table[rival])
    return lead.droplevel(-1).unstack(x)


def lead_shrinks(method):
    """How much larger the lead over IPS is at the smallest cut-off than at the largest."""

    def gaps(means, rows):
        lead = over(rows, "k", method, rival="IPS")
        return lead.iloc[:, 0] - lead.iloc[:, -1]

    return gaps


def drop(x, method, sign=1):
    """What a method loses from the first value of ``x`` to the last; what it gains: sign -1."""

    def gaps(means, rows):
        value = over(rows, x, method)
        return sign * (value.iloc[:, 0] - value.iloc[:, -1])

    return gaps


def heckman_falls_most(means, rows):
    names = ("Heckman", "IPS", "CLD", "CLD-pair")
    falls = pd.DataFrame({name: drop("eta", name)(means, rows) for name in names})
    return leads(falls, "Heckman", names[1:])


def both_corrected_is_ahead(world):
    """The lead of RankAgg over IPS and Heckman's method with all sessions."""

    def gaps(means, rows):
        rows = rows[(rows["world"] == world) & (rows["sessions"] == rows["sessions"].max())]
        return leads(as_published(rows), "RankAgg", ["IPS", "Heckman"])

    return gaps


def loses_less_by_noise(rivals):
    """What each rival loses more than CLD, on average over sets and worlds."""

    def gaps(means, rows):
        losses = {name: drop("noise", name)(means, rows).mean() for name in ("CLD", *rivals)}
        return pd.Series(losses).drop("CLD") - losses["CLD"]

    return gaps


def too_small_costs_more(method):
    """What a told exponent of 2 costs more than one of 0, where 1 is the truth."""

    def gaps(means, rows):
        value = _by_told(rows)[method].unstack("told")
        return value[0.0] - value[2.0]

    return gaps


def cld_bears_too_small(means, rows):
    steep = _by_told(rows).xs(2.0, level="told")
    return leads(steep, "CLD", steep.columns.drop("CLD"))


def too_small_costs_more_at_5(means, rows):
    """On the mean of the methods, in each world."""
    value = _by_told(rows, "k").mean(axis=1).unstack("told")
    steep = (value[1.0] - value[2.0]).unstack("k")
    return steep[5] - steep[3]


def _by_told(rows, *by):
    """nDCG@3 of the methods for each set, world and exponent told, over both cut-offs."""
    table = as_published(rows, by=(*by, "told")).droplevel(-1)
    return table[["IPS", "RankAgg", "CLD", "CLD-pair"]]


def network_is_worst(means, rows):
    table = _variants(rows)
    return -leads(table, "CLD-N", table.columns.drop("CLD-N"))


def network_of_pairs_is_ahead(means, rows):
    """CLD-pair over CLD-pair-L: ahead on WEB10K, elsewhere level (within .01)."""
    table = _variants(rows)
    gap = table["CLD-pair"] - table["CLD-pair-L"]
    ahead, level = gap[gap.index == "WEB10K"], gap[gap.index != "WEB10K"]
    bounds = {"ahead": ahead, "below": 0.01 + level, "above": 0.01 - level}
    return pd.concat(bounds)


def _variants(rows):
    """nDCG@3 of the four published variants on each set, in the paper's world."""
    rows = rows[(rows["world"] == "features") & rows["variant"].isin(VARIANTS.values())]
    return rows.pivot_table("nDCG@3", "set", "variant")


TABLE_2 = (
    *claims_of_lead(METRICS, ("CLD", "CLD-pair", "CLD-pair, printed")),
    Claim("Oracle is the upper bound", oracle_is_the_bound),
)

FIGURE_3A = (
    *claims_of_lead(),
    Claim("the lead of CLD over IPS shrinks as more are shown", lead_shrinks("CLD")),
    Claim(
        "the lead of CLD-pair over IPS shrinks as more are shown",
        lead_shrinks("CLD-pair"),
    ),
    Claim("Naive falls as more are shown", drop("k", "Naive"), why=MORE_TO_LEARN),
)

FIGURE_3B = (
    *claims_of_lead(),
    Claim("Heckman falls most as position bias grows", heckman_falls_most),
    Claim("RankAgg, which holds Heckman, falls too", drop("eta", "RankAgg")),
)

FIGURE_4 = (
    *claims_of_lead(),
    Claim("CLD improves with more sessions", drop("sessions", "CLD", -1)),
    Claim(
        "CLD-pair improves with more sessions",
        drop("sessions", "CLD-pair", -1),
    ),
    *(
        Claim(
            f"{world}: with all sessions IPS and Heckman are behind RankAgg",
            both_corrected_is_ahead(world),
            why=NOTHING_HIDDEN if world == "features" else "",
        )
        for world in WORLDS
    ),
)

FIGURE_5 = (
    *claims_of_lead(),
    Claim("CLD loses less by noise than the baselines", loses_less_by_noise(BASELINES)),
    Claim(
        "CLD loses less by noise than CLD-pair",
        loses_less_by_noise(("CLD-pair",)),
    ),
)

FIGURE_6 = (
    *claims_of_the_best(),
    *(
        Claim(
            f"too small propensities cost {method} more than too large ones",
            too_small_costs_more(method),
            why=HALF_BLIND if method == "RankAgg" else "",
        )
        for method in ("IPS", "RankAgg", "CLD", "CLD-pair")
    ),
    Claim(
        "CLD is the best with too small propensities",
        cld_bears_too_small,
        why=HALF_BLIND,
    ),
    Claim(
        "too small propensities cost more at top 5 than at top 3",
        too_small_costs_more_at_5,
    ),
)

TABLE_3 = (
    Claim(
        "CLD-N is the worst of the four",
        network_is_worst,
        why="on lists as short as Yahoo's, CLD-pair is behind all forms by rows",
    ),
    Claim(
        "CLD-pair is ahead of CLD-pair-L on WEB10K and level on Yahoo",
        network_of_pairs_is_ahead,
    ),
)
