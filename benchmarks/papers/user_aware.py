"""Niu et al. (2025), Addressing personalized bias for unbiased learning to rank, redrawn.

Users who ask different queries also look at result pages differently. The paper divides the
clicks of a document by the mean examination of its query's users (``UserAwareIPSRanker``), and
compares that with one curve for all (IPS-PBM), with each user's own (straightforward), with
propensity ratios (PRS), and with none.

    python -m benchmarks papers/user_aware --quick                  # all, minutes
    python -m benchmarks papers/user_aware --table 1 --runs 10      # full sizes: hours
    python -m benchmarks papers/user_aware --letor yahoo_folder     # set1.train.txt, set1.test.txt
    python -m benchmarks papers/user_aware --table 1-baidu --letor baidu.parquet
    python -m benchmarks papers/user_aware --list

Rows named as in the paper are its literal estimators. *user-aware, offset* and *user-aware,
defaults* are what skultr adds: mean examination as an offset of the scores instead of a divisor,
and the form that held-out clicks choose. Left out: figures 1 and 2 (drawings) and 5b (a private
log); figure 5a stands on made users.
"""

import matplotlib.pyplot as plt
import numpy as np

from .._study import Claim, Exhibit, Page, Study
from ._user_aware_worlds import (
    CUTOFFS,
    NETWORKS,
    confusion,
    estimated,
    fitted,
    habits_found,
    known,
    labels_of,
    make_world,
    quality,
    relevance_error,
)

METRICS = tuple(f"{name}@{k}" for name in ("nDCG", "ERR") for k in CUTOFFS)
#: The estimators of Table 1 that learn from clicks, without the proposed one.
RIVALS = ("naive", "IPS-PBM", "PRS", "straightforward")
ALL = ("ideal", *RIVALS, "user-aware", "user-aware, offset", "user-aware, defaults")
USERS = (5, 10, 20)
MODELS = ("MLP", "linear")
#: Sizes of the logs of figure 4, relative to those of the tables.
FRACTIONS = {"quick": (0.04, 0.2, 1.0, 4.0), "full": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)}
#: Columns of the confusion matrices, and of the habits.
GRADES = tuple(f"as {grade}" for grade in range(5))
PLACES = tuple(f"p{place}" for place in range(1, 11))
#: 100,000 sessions of Yahoo's 19,944 training queries.
ENOUGH = 5.0


# --------------------------------------------------------------------------------------
# Runs
# --------------------------------------------------------------------------------------
def n_sessions(settings):
    """50 per training query, as in the paper."""
    return settings.n_sessions(quick=50_000, full=1_000_000)


def network(settings, model="MLP"):
    """Sizes of the hidden layers."""
    return () if model == "linear" else NETWORKS[settings.size(quick="quick", full="full")]


def run_estimators(cell, settings, seed):
    """Table 1 and figure 3: quality of each estimator, error and confusion of its labels."""
    world = make_world(settings, n_sessions(settings), seed)
    propensities = known(world)
    divisors = {
        "naive": np.ones(len(world.log)),
        **{name: propensities[name] for name in ("IPS-PBM", "straightforward", "user-aware")},
    }
    labels = {name: labels_of(world, name, each) for name, each in divisors.items()}
    rows = [{"method": "production", **quality(world, world.production)}]
    for name, ranker in fitted(world, propensities, network(settings), ALL):
        row = {"method": name, **quality(world, ranker.predict(world.test))}
        if name in labels:
            row["MSE"] = relevance_error(world, labels[name])
        rows.append(row)
    for name in ("IPS-PBM", "straightforward", "user-aware"):
        rows += [{"method": name, **row} for row in confusion(world, labels[name])]
    return rows


def run_sessions(cell, settings, seed):
    """Figure 4: nDCG@5 of each estimator on a log of one size."""
    world = make_world(settings, cell["sessions"], seed)
    per_query = round(cell["sessions"] / world.train["qid"].nunique(), 1)
    hidden = network(settings, cell["model"])
    methods = ("ideal", *RIVALS, "user-aware", "user-aware, defaults")
    return [
        {"method": name, "sessions per query": per_query, "nDCG@5": _ndcg5(world, ranker)}
        for name, ranker in fitted(world, known(world), hidden, methods)
    ]


def cells_of_sessions(settings):
    """Sizes of the log, for both models."""
    fractions = FRACTIONS[settings.size(quick="quick", full="full")]
    sizes = [max(1, round(part * n_sessions(settings))) for part in fractions]
    return [{"model": model, "sessions": size} for model in MODELS for size in sizes]


def run_users(cell, settings, seed):
    """Table 2: nDCG@5 of each estimator with so many kinds of users."""
    world = make_world(settings, n_sessions(settings), seed, cell["users"])
    methods = ("ideal", *RIVALS, "user-aware", "user-aware, offset")
    production = {"method": "production", "nDCG@5": quality(world, world.production)["nDCG@5"]}
    return [production] + [
        {"method": name, "nDCG@5": _ndcg5(world, ranker)}
        for name, ranker in fitted(world, known(world), network(settings), methods)
    ]


def run_estimated(cell, settings, seed):
    """Table 3: nDCG@5 with examination estimated from the log, for both models."""
    world = make_world(settings, n_sessions(settings), seed)
    propensities = estimated(world, n_interventions=n_sessions(settings))
    methods = ("ideal", *RIVALS[:3], "CPBM", "straightforward", "user-aware", "user-aware, offset")
    return [
        {"method": name, "model": model, "nDCG@5": _ndcg5(world, ranker)}
        for model in MODELS
        for name, ranker in fitted(world, propensities, network(settings, model), methods)
    ]


def run_habits(cell, settings, seed):
    """Figure 5a: examination of the clusters of users that regression-EM and k-means find."""
    n_users = settings.size(quick=300, full=5_000)
    return habits_found(settings, settings.n_sessions(quick=18_000, full=300_000), n_users, seed)


def _ndcg5(world, ranker):
    return quality(world, ranker.predict(world.test))["nDCG@5"]


ESTIMATORS = Study("estimators", run_estimators, hours=0.8)
SESSIONS = Study("sessions", run_sessions, cells_of_sessions, hours=5)
CLUSTERS = Study("users", run_users, lambda settings: [{"users": n} for n in USERS], hours=1.2)
ESTIMATED = Study("estimated examination", run_estimated, hours=1.2)
HABITS = Study("habits", run_habits, hours=0.02)


# --------------------------------------------------------------------------------------
# What the paper printed, and what it says
# --------------------------------------------------------------------------------------
TABLE_1_YAHOO = {
    "production": (0.5681, 0.6064, 0.6426, 0.7031, 0.2770, 0.3771, 0.4031, 0.4199, None),
    "ideal": (0.6804, 0.6905, 0.7125, 0.7606, 0.3448, 0.4246, 0.4466, 0.4619, None),
    "naive": (0.6335, 0.6468, 0.6714, 0.7261, 0.3161, 0.4012, 0.4237, 0.4400, 0.1153),
    "IPS-PBM": (0.6385, 0.6511, 0.6774, 0.7332, 0.3215, 0.4026, 0.4254, 0.4420, 0.2212),
    "PRS": (0.6261, 0.6400, 0.6665, 0.7219, 0.3042, 0.3920, 0.4156, 0.4321, None),
    "straightforward": (0.6560, 0.6647, 0.6903, 0.7429, 0.3318, 0.4115, 0.4344, 0.4504, 0.2226),
    "user-aware": (0.6718, 0.6810, 0.7056, 0.7543, 0.3420, 0.4217, 0.4440, 0.4594, 0.0593),
}
TABLE_1_BAIDU = {
    "production": (0.4540, 0.4750, 0.4894, 0.5222, 0.1782, 0.2756, 0.3060, 0.3286, None),
    "ideal": (0.5138, 0.5300, 0.5437, 0.5758, 0.1887, 0.2882, 0.3187, 0.3408, None),
    "naive": (0.4798, 0.5064, 0.5215, 0.5541, 0.1760, 0.2763, 0.3067, 0.3291, 0.1129),
    "IPS-PBM": (0.4970, 0.5170, 0.5323, 0.5640, 0.1827, 0.2817, 0.3124, 0.3345, 0.1716),
    "PRS": (0.4792, 0.5040, 0.5158, 0.5472, 0.1795, 0.2770, 0.3065, 0.3286, None),
    "straightforward": (0.5127, 0.5288, 0.5405, 0.5715, 0.1883, 0.2874, 0.3173, 0.3396, 0.1014),
    "user-aware": (0.5183, 0.5318, 0.5464, 0.5744, 0.1910, 0.2892, 0.3200, 0.3418, 0.0289),
}
TABLE_2_YAHOO = {
    "production": (0.6426, 0.6426, 0.6426),
    "ideal": (0.7125, 0.7125, 0.7125),
    "naive": (0.6758, 0.6714, 0.6520),
    "IPS-PBM": (0.6835, 0.6774, 0.6833),
    "PRS": (0.6721, 0.6665, 0.6594),
    "straightforward": (0.6929, 0.6903, 0.6925),
    "user-aware": (0.6980, 0.7056, 0.7042),
}
TABLE_3_YAHOO = {
    "ideal": (0.7125, 0.7034),
    "naive": (0.6714, 0.6693),
    "IPS-PBM": (0.6585, 0.6415),
    "PRS": (0.6659, 0.6588),
    "CPBM": (0.6812, 0.6736),
    "straightforward": (0.6903, 0.6899),
    "user-aware": (0.6998, 0.6927),
}


def leads(one, others, columns=("nDCG@5",)):
    """Leads of one method over each of the others in each of the columns."""

    def gaps(means, rows):
        table = means[list(columns)]
        return table.loc[one] - table.loc[list(others)]

    return gaps


def errs_least(means, rows):
    """User-aware has the smallest MSE."""
    return means["MSE"].dropna().drop("user-aware") - means.loc["user-aware", "MSE"]


def _where_enough(means):
    """nDCG@5 by log and method, of the logs with at least 5 sessions per query."""
    wide = means["nDCG@5"].unstack("method")
    return wide[wide.index.get_level_values("sessions per query") >= ENOUGH]


def leads_from_enough(means, rows):
    """User-aware over the user-oblivious estimators on each of these logs."""
    wide = _where_enough(means)
    return wide[list(RIVALS[:3])].rsub(wide["user-aware"], axis=0)


def converges_faster(means, rows):
    """User-aware over straightforward on average over these logs, by model."""
    mean = _where_enough(means).groupby(level="model").mean()
    return mean["user-aware"] - mean["straightforward"]


def comes_nearer(means, rows):
    """How much nearer to the ideal the largest log brings both unbiased estimators, by model."""
    wide = means["nDCG@5"].unstack("method").sort_index()
    behind = wide[["straightforward", "user-aware"]].rsub(wide["ideal"], axis=0)
    behind = behind.groupby(level="model")
    return behind.first() - behind.last()


def is_more_often_right(means, rows):
    """Share of the documents of each of the grades 1 to 3 that get their own grade."""
    grades = sorted(set(means.index.get_level_values("true grade")))[1:-1]
    return [
        means.loc[("user-aware", grade), f"as {grade}"]
        - means.loc[("IPS-PBM", grade), f"as {grade}"]
        for grade in grades
    ]


def some_cluster(gap):
    """Of the cluster that is most like that, by its examination relative to position 1."""

    def gaps(means, rows):
        curves = means[list(PLACES)].div(means["p1"], axis=0)
        return max(map(gap, curves.to_numpy()))

    return gaps


# --------------------------------------------------------------------------------------
# Exhibits
# --------------------------------------------------------------------------------------
def of_methods(rows):
    """The rows that measure methods."""
    return rows[rows["nDCG@5"].notna()]


def of_grades(rows):
    """The rows of confusion matrices; sets with fewer grades have fewer columns."""
    rows = rows[rows["true grade"].notna()]
    rows = rows.assign(**{"true grade": rows["true grade"].astype(int)})
    return rows.reindex(columns=[*rows, *(name for name in GRADES if name not in rows)])


def side_by_side(column, label, values):
    """nDCG@5 with one column for each value of ``column``, as the paper prints it."""

    def keep(rows):
        wide = rows.pivot_table("nDCG@5", ["method", "seed"], column, sort=False)
        wide = wide.reindex(columns=list(values)).rename(columns=label)
        return wide.rename_axis(columns=None).reset_index()

    return keep


def draw_confusion(rows, table):
    """One matrix for each method; each row sums to 1."""
    methods = table["method"].unique()
    figure, axes = plt.subplots(1, len(methods), figsize=(3.6 * len(methods), 3.9), squeeze=False)
    for method, axis in zip(methods, axes.flat, strict=True):
        part = table[table["method"] == method]
        matrix = part.pivot_table("ours", "true grade", "metric", observed=True)
        axis.imshow(matrix, cmap="Blues", vmin=0, vmax=1)
        for (i, j), share in np.ndenumerate(matrix.to_numpy()):
            color = "white" if share > 0.5 else "black"
            axis.text(j, i, f"{share:.2f}", ha="center", va="center", color=color, fontsize=8)
        axis.set_xticks(range(matrix.shape[1]), [name[3:] for name in matrix.columns])
        axis.set_yticks(range(len(matrix)), matrix.index)
        axis.set(title=method, xlabel="estimated grade", ylabel="true grade")
    figure.suptitle("Figure 3. Estimated relevance of training documents", fontsize=11)
    figure.tight_layout()
    return figure


def draw_sessions(rows, table):
    """One panel for each model.

    PRS is so far below that its curve would flatten the others. Intervals are in the table.
    """
    models = table["model"].unique()
    figure, axes = plt.subplots(1, len(models), figsize=(9, 4.4), layout="constrained")
    for model, axis in zip(models, np.atleast_1d(axes), strict=True):
        part = table[(table["model"] == model) & (table["method"] != "PRS")]
        for i, (method, line) in enumerate(part.groupby("method", sort=False)):
            dashed = "--" if method == "ideal" else "-"
            x = line["sessions per query"]
            axis.plot(x, line["ours"], f"o{dashed}", ms=4, color=f"C{i}", label=method)
        room = 0.1 * np.ptp(part["ours"]) + 0.005
        axis.set(title=model, xlabel="sessions per query", xscale="log", ylabel="nDCG@5")
        axis.set_ylim(part["ours"].min() - room, part["ours"].max() + room)
        axis.grid(alpha=0.3)
    handles, labels = np.atleast_1d(axes)[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    figure.suptitle("Figure 4. nDCG@5 by sessions per query (PRS is below the axes)", fontsize=11)
    return figure


def draw_habits(rows, table):
    """Examination of each cluster by position, in the first run: the mean would mix clusters."""
    matrix = rows[rows["seed"] == rows["seed"].min()].set_index("cluster")[list(PLACES)]
    figure, axis = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    image = axis.imshow(matrix, cmap="Blues", vmin=0)
    for (i, j), value in np.ndenumerate(matrix.to_numpy()):
        color = "white" if value > 0.6 * matrix.to_numpy().max() else "black"
        axis.text(j, i, f"{value:.2f}", ha="center", va="center", color=color, fontsize=8)
    axis.set_xticks(range(matrix.shape[1]), matrix.columns)
    axis.set_yticks(range(len(matrix)), matrix.index)
    figure.colorbar(image, label="examination, relative to its mean at position 1")
    figure.suptitle("Figure 5a. Clusters of users, by mean examined position", fontsize=11)
    return figure


TABLE_1 = Exhibit(
    "table 1",
    "Quality and relevance error of each estimator, beside the figures of Yahoo! LETOR",
    ESTIMATORS,
    ("method",),
    (*METRICS, "MSE"),
    published=TABLE_1_YAHOO,
    claims=(
        Claim(
            "user-aware is ahead of naive, IPS-PBM, PRS and straightforward in every metric",
            leads("user-aware", RIVALS, METRICS),
        ),
        Claim("user-aware has the smallest error of estimated relevance", errs_least),
        Claim("straightforward is ahead of PRS in nDCG@5", leads("straightforward", ["PRS"])),
        Claim(
            "straightforward is ahead of IPS-PBM in nDCG@5",
            leads("straightforward", ["IPS-PBM"]),
            why="the few clicks of hasty users far down the page weigh too much in logs of this "
            "size; figure 4 shows with how many sessions it passes IPS-PBM",
        ),
        # Of Yahoo! only: with Baidu's documents the user-aware ranker is ahead of the ideal one.
        Claim(
            "the ideal ranker is ahead of all others in nDCG@5",
            leads("ideal", ["user-aware", *RIVALS]),
        ),
    ),
    keep=of_methods,
    reference="user-aware",
    paired=(),
    tolerance=0.01,
)
#: The same rows, so that table 1 alone has the claims.
TABLE_1_OF_BAIDU = Exhibit(
    "table 1-baidu",
    "Quality and relevance error of each estimator, beside the figures of Baidu-ULTR",
    ESTIMATORS,
    ("method",),
    (*METRICS, "MSE"),
    published=TABLE_1_BAIDU,
    keep=of_methods,
    reference="user-aware",
    paired=(),
    tolerance=0.01,
)
FIGURE_3 = Exhibit(
    "figure 3",
    "Confusion matrices of estimated relevance",
    ESTIMATORS,
    ("method", "true grade"),
    GRADES,
    claims=(
        Claim(
            "user-aware gives more documents of the middle grades their own grade than IPS-PBM",
            is_more_often_right,
        ),
    ),
    keep=of_grades,
    draw=draw_confusion,
)
FIGURE_4 = Exhibit(
    "figure 4",
    "nDCG@5 by sessions per query (50 in the tables), MLP and linear",
    SESSIONS,
    ("model", "method", "sessions per query"),
    ("nDCG@5",),
    paired=("model",),
    claims=(
        Claim(
            "from 5 sessions per query on, user-aware is ahead of IPS-PBM, PRS and naive",
            leads_from_enough,
        ),
        Claim("straightforward and user-aware come nearer to the ideal", comes_nearer),
        Claim(
            "user-aware converges faster: from 5 sessions per query on it is ahead of "
            "straightforward on average over the sizes",
            converges_faster,
        ),
    ),
    draw=draw_sessions,
)
NAMES_OF_USERS = {n: f"{n} users" for n in USERS}
TABLE_2 = Exhibit(
    "table 2",
    "nDCG@5 with 5, 10 and 20 kinds of users",
    CLUSTERS,
    ("method",),
    tuple(NAMES_OF_USERS.values()),
    published=TABLE_2_YAHOO,
    claims=(
        Claim(
            "user-aware is the best estimator with 5, 10 and 20 kinds of users",
            leads("user-aware", RIVALS, NAMES_OF_USERS.values()),
        ),
    ),
    keep=side_by_side("users", NAMES_OF_USERS, USERS),
    reference="user-aware",
    paired=(),
    tolerance=0.01,
)
TABLE_3 = Exhibit(
    "table 3",
    "nDCG@5 with examination estimated from the log, MLP and linear",
    ESTIMATED,
    ("method",),
    MODELS,
    published=TABLE_3_YAHOO,
    claims=(
        Claim(
            "user-aware is the best estimator without known examination, with both models",
            leads("user-aware", [*RIVALS, "CPBM"], MODELS),
        ),
    ),
    keep=side_by_side("model", {}, MODELS),
    reference="user-aware",
    paired=(),
    tolerance=0.01,
)
FIGURE_5A = Exhibit(
    "figure 5a",
    "Clusters of users by how they look at pages",
    HABITS,
    ("cluster",),
    (*PLACES, "same habit"),
    claims=(
        Claim(
            "some users mainly look at the first result (at position 2 below .5 of that, at 10 "
            "below .1)",
            some_cluster(lambda curve: min(0.5 - curve[1], 0.1 - curve[9])),
        ),
        Claim(
            "some look at the lower results as often (at position 10 above .75)",
            some_cluster(lambda curve: curve[9] - 0.75),
        ),
        Claim(
            "some prefer the middle of the page (a position from 2 to 4 above 1.2)",
            some_cluster(lambda curve: curve[1:4].max() - 1.2),
        ),
    ),
    draw=draw_habits,
    note="the paper's log is private: ten made habits, which the clusters have to find",
)

PAGE = Page(
    "user-aware",
    "Addressing personalized bias for unbiased learning to rank (Niu et al. 2025)",
    (TABLE_1, TABLE_1_OF_BAIDU, FIGURE_3, FIGURE_4, TABLE_2, TABLE_3, FIGURE_5A),
)
