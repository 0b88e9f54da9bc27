"""Sentences of the identifiability paper, as code on our rows."""

from .._exhibit import Claim

BASELINES = ("DLA", "Regression-EM", "Two-Tower")


def _mcc(means, K, method):
    return means.loc[(K, method), "MCC"]


# --------------------------------------------------------------------------------------
# Positions in K components
# --------------------------------------------------------------------------------------
def _connected_is_enough(means, rows):
    return all(_mcc(means, 1, name) > 0.99 for name in BASELINES)


def _repairs_surpass(means, rows):
    """K = 2: merging and intervention far above what is not repaired."""
    return all(
        _mcc(means, 2, name + repair) > _mcc(means, 2, name) + 0.05
        for name in BASELINES
        for repair in (" + merging", " + intervention")
    )


def _ranking_is_nearly_perfect(means, rows):
    """K = 2: nDCG@10 of all repaired."""
    return all(
        means.loc[(2, name + repair), "nDCG@10"] > 0.99
        for name in BASELINES
        for repair in (" + merging", " + intervention")
    )


def _intervention_is_exact(means, rows):
    """K = 2: intervention above merging, and at 1."""
    return all(
        _mcc(means, 2, f"{name} + intervention") > max(0.99, _mcc(means, 2, f"{name} + merging"))
        for name in BASELINES
    )


def _clicks_are_fitted(means, rows):
    """K = 2: the click error without a repair is as small as with an intervention."""
    error = means["click MSE"]
    return all(
        error[(2, name)] < 0.01 * error[(2, "No debias")]
        and error[(2, name)] < 2 * error[(2, f"{name} + intervention")]
        for name in BASELINES
    )


def _ends_differ(means, rows):
    found = [_mcc(means, 2, name) for name in BASELINES]
    return max(found) - min(found) > 0.02


def _repaired_ends_agree(means, rows):
    return all(
        abs(_mcc(means, 2, BASELINES[0] + repair) - _mcc(means, 2, name + repair)) < 0.005
        for name in BASELINES
        for repair in (" + merging", " + intervention")
    )


TABLE_1 = (
    Claim("a connected log is enough: K = 1 recovers relevance", _connected_is_enough),
    Claim("both repairs surpass the baselines", _repairs_surpass),
    Claim("both repairs rank nearly perfectly", _ranking_is_nearly_perfect),
    Claim("intervention is more accurate than merging", _intervention_is_exact),
    Claim("all fit the clicks perfectly, repaired or not", _clicks_are_fitted),
    Claim("unrepaired, the algorithms end in different places", _ends_differ),
    Claim("repaired, they end in the same place", _repaired_ends_agree),
)


def _only_one_component(means, rows):
    """At the most clicks: K = 1 at 1, the others far below."""
    most = rows["clicks"].max()
    others = [means.loc[(K, most), "MCC"] for K in (2, 3, 4)]
    return means.loc[(1, most), "MCC"] > 0.99 and max(others) < 0.9


def _clicks_do_not_help(means, rows):
    """K > 1: the last tenfold of clicks changes nothing; K = 1: more clicks are better."""
    counts = sorted(rows["clicks"].unique())
    if len(counts) < 2:
        return False
    change = [
        means.loc[(K, counts[-1]), "MCC"] - means.loc[(K, counts[-2]), "MCC"] for K in (2, 3, 4)
    ]
    better = means.loc[1, "MCC"].to_numpy()
    return max(change) < 0.05 and bool((better[1:] > better[:-1] - 0.001).all())


def _unstable(means, rows):
    """At the most clicks, runs differ at K > 1 and agree at K = 1."""
    spread = rows[rows["clicks"] == rows["clicks"].max()].groupby("K")["MCC"].std()
    return bool((spread.loc[[2, 3, 4]] > 10 * spread.loc[1]).all())


FIGURE_3A = (
    Claim("relevance is recovered only if the graph is connected", _only_one_component),
    Claim("no number of clicks replaces a connected graph", _clicks_do_not_help),
    Claim("disconnected, the result is unstable", _unstable),
)


def _both_decline(means, rows):
    """From K = 1 to 4; merging less than DLA."""
    fall = {name: _mcc(means, 1, name) - _mcc(means, 4, name) for name in ("DLA", "DLA + merging")}
    return fall["DLA"] > fall["DLA + merging"] > 0


def _slower(means, rows):
    return all(_mcc(means, K, "DLA + merging") > _mcc(means, K, "DLA") for K in (2, 3, 4))


def _sustained(means, rows):
    return all(_mcc(means, K, "DLA + intervention") > 0.99 for K in (2, 3, 4))


def _worst_at_4(means, rows):
    """Merging joins positions that differ most at K = 4."""
    found = {K: _mcc(means, K, "DLA + merging") for K in (2, 3, 4)}
    return found[4] < min(found[2], found[3]) - 0.05


FIGURE_3B = (
    Claim("DLA and merging decline with K, merging less", _both_decline),
    Claim("merging is above DLA at each K", _slower),
    Claim("intervention recovers relevance at each K", _sustained),
    Claim("merging is worst at K = 4", _worst_at_4),
)


def _random_varies(means, rows):
    """Standard deviation over runs, mean over the numbers of clicks where swaps connect."""
    spread = _enough(rows).groupby(["swap", "clicks"])["MCC"].std().groupby("swap").mean()
    return spread["random cost"] > spread["least cost"]


def _any_swap_helps(means, rows):
    """At each number of clicks where swaps connect, and at the most: random above none."""
    most = rows["clicks"].max()
    return means.loc[("random cost", most), "MCC"] > means.loc[("none", most), "MCC"] + 0.05


def _random_needs_clicks(means, rows):
    """At the fewest clicks where swaps connect."""
    clicks = _enough(rows)["clicks"].min()
    return means.loc[("least cost", clicks), "MCC"] > means.loc[("random cost", clicks), "MCC"]


def _enough(rows):
    """Rows of the numbers of clicks where swaps connect; of the largest if all are smaller."""
    return rows[rows["clicks"] >= min(ENOUGH, rows["clicks"].max())]


#: Clicks of a page below which the estimates are noise, with or without a swap.
ENOUGH = 3_000

FIGURE_4A = (
    Claim("random swaps vary more than those of least cost", _random_varies),
    Claim("random swaps need more clicks", _random_needs_clicks),
    Claim("even random swaps are above no repair", _any_swap_helps),
)


def _closer_is_better(means, rows):
    found = means["MCC"].reindex(["1 & 5", "2 & 5", "3 & 5", "4 & 5"]).to_numpy()
    return bool((found[1:] > found[:-1]).all())


def _closest_is_chosen(means, rows):
    return bool((rows["chosen"] == "4 & 5").all())


FIGURE_4B = (
    Claim("the closer the merged positions, the better", _closer_is_better),
    Claim("the repair merges the closest", _closest_is_chosen),
)


def _error(rows):
    """Mean absolute error of examination relative to position 1: by K and curve."""
    truth = rows[rows["curve"] == "truth"]
    both = rows.merge(truth, on=["K", "seed", "position"], suffixes=("", " true"))
    both["error"] = (both["examination"] - both["examination true"]).abs()
    return both.groupby(["K", "curve"])["error"].mean()


def _merging_is_closer(means, rows):
    error = _error(rows)
    return all(error[K, "DLA + merging"] < error[K, "DLA"] for K in (2, 3, 4))


def _dla_is_volatile(means, rows):
    spread = rows.groupby(["K", "curve", "position"])["examination"].std().groupby(["K", "curve"])
    spread = spread.mean()
    return all(spread[K, "DLA"] > 10 * spread[K, "DLA + merging"] for K in (2, 3, 4))


def _merging_is_worst_at_4(means, rows):
    error = _error(rows)
    return error[4, "DLA + merging"] > max(error[K, "DLA + merging"] for K in (2, 3))


FIGURE_6 = (
    Claim("merging is closer to the true curve", _merging_is_closer),
    Claim("the curve of DLA alone is volatile", _dla_is_volatile),
    Claim("merging errs most at K = 4", _merging_is_worst_at_4),
)


def _as_many_components(means, rows):
    return all((part["components"] == K).all() for K, part in rows.groupby("K"))


FIGURE_5 = (Claim("the logs have 1, 2, 3 and 4 components", _as_many_components),)


# --------------------------------------------------------------------------------------
# How likely a log is connected
# --------------------------------------------------------------------------------------
def _measured(means):
    """Share of connected logs along the axis, in its order."""
    return means.xs("measured", level="chance by")["chance"].sort_index().to_numpy()


def _positions_alone(means, rows):
    return _measured(means)[0] == 1


def _never_at_last(means, rows):
    return _measured(means)[-1] < 0.05


def _falls(means, rows):
    return _positions_alone(means, rows) and _never_at_last(means, rows)


def _rises(means, rows):
    found = _measured(means)
    return found[0] < 0.05 and found[-1] == 1


def _formula_agrees(means, rows):
    """Wherever the formula says below 5 %, the logs are not connected."""
    wide = means["chance"].unstack("chance by")
    unlikely = wide[wide["formula"] < 0.05]
    return bool((unlikely["measured"] <= 0.05).all())


NO_COPIES = "lists served once are linked by documents with equal features, which are rare here"
BY_CONTEXTS = (
    Claim("with positions alone the log is connected", _positions_alone, NO_COPIES),
    Claim("with many contexts it is never connected", _never_at_last),
    Claim("where Example 2 says disconnected, it is", _formula_agrees),
)
BY_SIZE = (Claim("the whole log is connected, a small part of it is not", _rises, NO_COPIES),)
BY_FEATURES = (
    Claim("with one feature the log is connected, with all it is not", _falls, NO_COPIES),
)


# --------------------------------------------------------------------------------------
# Positions times contexts
# --------------------------------------------------------------------------------------
def _merging_leads(metric):
    """Merging above no debias and DLA from 1, on each set."""

    def holds(means, rows):
        return all(
            part.xs("DLA + merging", level="method")[metric].iloc[0]
            > max(part.xs(name, level="method")[metric].iloc[0] for name in ("No debias", "DLA"))
            for _, part in means.groupby(level="documents")
        )

    return holds


def _error_is_below(first, share, second):
    """Click error of the first method below a share of that of the second, on each set."""

    def holds(means, rows):
        error = means["click MSE"].unstack("method")
        return bool((error[first] < share * error[second]).all())

    return holds


FEW_COPIES = (
    "where nearly every factor is a component of its own, merging leaves little more than no "
    "debiasing, or does worse"
)
WITHIN_LISTS = "started at 1, unrepaired factors rank about as well within a list"
TABLE_2 = (
    Claim("merging surpasses the baselines in MCC", _merging_leads("MCC"), FEW_COPIES),
    Claim(
        "merging surpasses the baselines in nDCG@10 of the training lists",
        _merging_leads("train nDCG@10"),
        WITHIN_LISTS,
    ),
    Claim(
        "merging surpasses the baselines in nDCG@10 of the test queries",
        _merging_leads("test nDCG@10"),
        WITHIN_LISTS,
    ),
    Claim("DLA fits the clicks", _error_is_below("DLA", 0.1, "No debias")),
    Claim(
        "merged, it still does",
        _error_is_below("DLA + merging", 2, "DLA"),
        "relevance and examination are at most 1, which the proof of Proposition 3 leaves out: "
        "a good part of the merged factors ends at that bound",
    ),
)


def _gap(means, first, second):
    """MCC of the first less that of the second, for each set."""
    found = means["MCC"].unstack("method")
    return found[first] - found[second]


def _random_starts_are_worse(means, rows):
    return bool((_gap(means, "DLA, start at 1", "DLA, random start") > 0.02).all())


def _merged_starts_agree(means, rows):
    before = _gap(means, "DLA, start at 1", "DLA, random start").abs()
    after = _gap(means, "DLA, start at 1 + merging", "DLA, random start + merging").abs()
    return bool((after < 0.1 * before).all())


TABLE_6 = (
    Claim("unrepaired, a random start is worse than a start at 1", _random_starts_are_worse),
    Claim("merged, the start does not matter", _merged_starts_agree),
)


# --------------------------------------------------------------------------------------
# Sizes of graphs
# --------------------------------------------------------------------------------------
def _contexts_disconnect(means, rows):
    """Positions alone are connected; with contexts a good part of the factors is not."""
    number = means["number"].unstack("size")
    alone = (number["components of positions alone"] == 1).all()
    return bool(alone and (number["components"] > 0.25 * number["nodes"]).all())


TABLE_4 = (
    Claim(
        "positions alone are connected, and contexts tear the graph to pieces",
        _contexts_disconnect,
        NO_COPIES,
    ),
)


def _position_alone_is_one(means, rows):
    return means.loc["position only", "components"] == 1


def _kinds_disconnect(means, rows):
    number = means["components"]
    return bool((number.drop("position only") > 1).all())


def _more_factors_more_components(means, rows):
    number = means["components"]
    all_of_them = number["(v1, v2, position)"]
    return all_of_them > max(number["(v1, position)"], number["(v2, position)"])


TABLE_5 = (
    Claim("positions alone are connected", _position_alone_is_one),
    Claim("with a kind of result the graph is disconnected", _kinds_disconnect),
    Claim("more bias factors, more components", _more_factors_more_components),
)
