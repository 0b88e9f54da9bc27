"""An offline metric for debiasedness (Deffayet et al., SIGIR 2023): all tables and figures, again.

    python -m benchmarks papers/cmip --quick
    python -m benchmarks papers/cmip --figure 2 --letor FOLDER

Seven click models learn from the clicks of four kinds of users on lists of a good ranker. Which
metrics (perplexity on the same ranker, nDCG, CMIP) tell how well the models predict clicks under
another ranker? The paper stops the training of PBM, UBM and DBN early. Here their prior, skultr's
default, keeps relevance with few clicks from extremes ("PBM, prior"); "PBM" alone is fitted to the
maximum of the likelihood. Figure 3 is ours: how many annotated documents CMIP needs. Full size:
5,888 queries, 5 million sessions, ten runs of eight logs.
"""

import itertools
import warnings
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator
from scipy import stats
from sklearn import config_context
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

from skultr.model_selection import OffPolicySelection

from .._study import Claim, Exhibit, Page, Study
from ._cmip_worlds import (
    MODELS,
    POLICIES,
    USERS,
    WITH_PRIOR,
    against_logger,
    by_number_of_documents,
    measure,
)

CONFIGURATION = ["user", "logging", "test"]
SUBSETS = {
    "ind PPL": ["ind PPL"],
    "nDCG": ["nDCG"],
    "CMIP": ["CMIP"],
    "ind PPL, nDCG": ["ind PPL", "nDCG"],
    "CMIP, ind PPL": ["CMIP", "ind PPL"],
    "CMIP, nDCG": ["CMIP", "nDCG"],
    "joint": ["ind PPL", "nDCG", "CMIP"],
}
#: What the others are tested against: the practice before the paper.
USUAL = "ind PPL, nDCG"
#: Of the paper's tests; Bonferroni within a configuration.
LEVEL = 0.0001 / len(SUBSETS)
REGRESSIONS = ("tree", "linear", "tree, unseen models")
WITH_CMIP = ("CMIP, ind PPL", "CMIP, nDCG", "joint")
RULES = {
    "PPL": OffPolicySelection({}, by="ind PPL"),
    "nDCG": OffPolicySelection({}, by="nDCG"),
    "top-4 nDCG: PPL": OffPolicySelection({"nDCG": 4}, by="ind PPL"),
    "top-4 PPL: nDCG": OffPolicySelection({"ind PPL": 4}, by="nDCG"),
    "CMIP": OffPolicySelection({}, by="CMIP"),
    "top-4 CMIP: PPL": OffPolicySelection({"CMIP": 4}, by="ind PPL"),
    "top-4 CMIP: nDCG": OffPolicySelection({"CMIP": 4}, by="nDCG"),
    "top-4 CMIP, top-4 nDCG: PPL": OffPolicySelection({"CMIP": 4, "nDCG": 4}, by="ind PPL"),
    "top-4 CMIP, top-4 PPL: nDCG": OffPolicySelection({"CMIP": 4, "ind PPL": 4}, by="nDCG"),
}
#: A rule, and the same with CMIP in front.
IN_FRONT = {
    "PPL": "top-4 CMIP: PPL",
    "nDCG": "top-4 CMIP: nDCG",
    "top-4 PPL: nDCG": "top-4 CMIP, top-4 PPL: nDCG",
    "top-4 nDCG: PPL": "top-4 CMIP, top-4 nDCG: PPL",
}


# --------------------------------------------------------------------------------------
# Views of the rows: the paper's models with its estimator, skultr's models with its own
# --------------------------------------------------------------------------------------
#: The models that stand for those of the paper: of PBM, UBM and DBN those with a prior.
STOPPED_EARLY = {f"{name}, prior": name for name in WITH_PRIOR}


def as_published(rows):
    """The paper's seven, and CMIP by its estimator."""
    kept = rows[~rows["model"].isin(WITH_PRIOR)]
    return kept.assign(model=kept["model"].replace(STOPPED_EARLY))


def as_skultr(rows):
    """The same models, and CMIP by skultr's estimator."""
    kept = as_published(rows)
    return kept.assign(CMIP=kept["CMIP, skultr"])


def as_fitted_to_the_end(rows):
    """PBM, UBM and DBN at the maximum of the likelihood, and CMIP by the paper's estimator."""
    return rows[rows["model"].isin(MODELS)]


def of_figure_2(rows):
    of = {**CELLS[0], "test": "Uniform"}
    return rows[(rows[list(of)] == pd.Series(of)).all(axis=1)]


# Table 1 --------------------------------------------------------------------------------
def predictability(rows):
    """Adjusted R² of each subset: one row for each repetition of the cross-validation."""
    rows = as_published(rows)
    n = int(rows["repetitions"].iloc[0])
    found = []
    for regression in REGRESSIONS:
        of_all = []
        for configuration, of in rows.groupby(CONFIGURATION, sort=False):
            named = dict(zip(CONFIGURATION, configuration, strict=True))
            of_all.append(repeat(of, regression, n).assign(regression=regression, **named))
        average = sum(table[["seed", *SUBSETS]] for table in of_all) / len(of_all)
        named = {"user": "average", "logging": "", "test": "", "regression": regression}
        found += [*of_all, average.assign(**named)]
    return pd.concat(found, ignore_index=True)


def repeat(rows, regression, n_repetitions):
    """Adjusted R² of the ood perplexity: in the rows (linear), or repeatedly in the other half."""
    y = rows["ood PPL"].to_numpy()
    X = {name: rows[columns].to_numpy() for name, columns in SUBSETS.items()}
    if regression == "linear":
        fitted = {name: LinearRegression().fit(of, y).predict(of) for name, of in X.items()}
        scores = {name: adjusted_r2(y, fitted[name], of.shape[1]) for name, of in X.items()}
        return pd.DataFrame([{"seed": 0, **scores}])
    # With rows halved at random, as in the paper, runs of one model are in both halves: a tree
    # recognises the model by its metrics, and has to predict nothing new.
    unit = pd.factorize(rows["model"])[0] if "unseen" in regression else np.arange(len(y))
    rng, table = np.random.default_rng(0), []
    with config_context(assume_finite=True, skip_parameter_validation=True):
        for repetition in range(n_repetitions):
            second = rng.permutation(unit.max() + 1)[unit] % 2 == 1
            scores = {
                name: adjusted_r2(y, by_halves(of, y, second), of.shape[1])
                for name, of in X.items()
            }
            table.append({"seed": repetition, **scores})
    return pd.DataFrame(table)


def by_halves(X, y, second):
    """Predictions of each half by a tree that learned from the other."""
    predicted = np.empty(len(y))
    for test in (second, ~second):
        tree = DecisionTreeRegressor(random_state=0).fit(X[~test], y[~test])
        predicted[test] = tree.predict(X[test])
    return predicted


def adjusted_r2(y, predicted, n_metrics):
    unexplained = ((y - predicted) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    return 1 - unexplained * (len(y) - 1) / (len(y) - n_metrics - 1)


def welch_marks(rows, table):
    """The paper's marks: Welch tests over repetitions against the usual metrics, at .0001."""
    by = ["user", "logging", "test", "regression"]
    groups = dict(iter(rows.groupby(by)))
    marks = []
    for key, metric in zip(table[by].itertuples(index=False), table["metric"], strict=True):
        ours, usual = groups[tuple(key)][metric], groups[tuple(key)][USUAL]
        several = len(ours) > 1 and metric != USUAL
        sure = several and stats.ttest_ind(ours, usual, equal_var=False).pvalue < LEVEL
        marks.append(("+" if ours.mean() > usual.mean() else "-") if sure else "")
    return marks


def draw_heat(rows, table):
    """R² of each configuration and subset, as published and by each regression."""
    metrics, by = list(SUBSETS), ["user", "logging", "test"]
    wide = table.pivot_table(
        ["ours", "published"], [*by, "regression"], "metric", observed=True, sort=False
    )
    panels = {"published (tree)": wide["published"].xs("tree", level="regression")}
    for regression in REGRESSIONS:
        panels[f"ours ({regression})"] = wide["ours"].xs(regression, level="regression")
    figure, axes = plt.subplots(
        1, len(panels), figsize=(4.2 * len(panels), 6.4), sharey=True, layout="constrained"
    )
    keys = list(dict.fromkeys(table[by].itertuples(index=False, name=None)))
    for axis, (title, part) in zip(axes, panels.items(), strict=True):
        values = part.loc[keys, metrics].to_numpy()
        axis.imshow(values, cmap="RdYlGn", vmin=-0.2, vmax=1, aspect="auto")
        for (i, j), value in np.ndenumerate(values):
            axis.text(j, i, f"{value:.2f}".replace("0.", "."), ha="center", va="center", size=7)
        axis.set_xticks(range(len(metrics)), metrics, rotation=60, ha="right", fontsize=8)
        axis.set_title(title, fontsize=10)
        axis.axhline(len(values) - 1.5, color="black", linewidth=1)
    labels = [", ".join(name for name in key if name) for key in keys]
    axes[0].set_yticks(range(len(labels)), labels, fontsize=8)
    figure.suptitle("Table 1. Adjusted R² of the perplexity out of distribution", fontsize=11)
    return figure


# Table 2 --------------------------------------------------------------------------------
SIDES = {"as published": as_published, "to the end": as_fitted_to_the_end, "skultr": as_skultr}


def regrets(rows):
    """Regret of each rule in each run, the mean over the logs and tests, times 1,000."""
    found = []
    for side, view in SIDES.items():
        of_side = view(rows)
        for key, of in of_side.groupby([*CONFIGURATION, "seed"], sort=False):
            for rule, value in regret_of(of).items():
                row = {"models": side, "rule": rule, "seed": key[-1], "regret": 1000 * value}
                found.append(row)
    table = pd.DataFrame(found)
    return table.groupby(["models", "rule", "seed"], sort=False)["regret"].mean().reset_index()


def regret_of(rows):
    """Regret of each rule on one log, the mean over all sets of at least five candidates."""
    ood, lost = rows["ood PPL"].to_numpy(), []
    score = {"ind PPL": -rows["ind PPL"], "nDCG": rows["nDCG"], "CMIP": -rows["CMIP"]}
    score = {f"mean_test_{name}": values.to_numpy() for name, values in score.items()}
    for n in range(min(5, len(ood)), len(ood) + 1):
        for candidates in map(list, itertools.combinations(range(len(ood)), n)):
            found = {name: values[candidates] for name, values in score.items()}
            found["params"] = candidates
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the fallback, as in the paper
                chosen = {name: ood[candidates][rule(found)] for name, rule in RULES.items()}
            chosen["a model at random"] = ood[candidates].mean()
            best = ood[candidates].min()
            lost.append({name: value - best for name, value in chosen.items()})
    return pd.DataFrame(lost).mean()


# Figures --------------------------------------------------------------------------------
def draw_models(rows, table):
    """Figure 2: one panel for each metric; hollow: what the paper does not have."""
    names = list(table["model"].unique())
    place = dict(zip(names, range(len(names), 0, -1), strict=True))
    groups = table.groupby("metric", observed=True, sort=False)
    figure, axes = plt.subplots(
        1, len(groups), figsize=(12.5, 3.4), sharey=True, layout="constrained"
    )
    for axis, (metric, part) in zip(axes, groups, strict=True):
        for row in part.itertuples():
            color = "C0" if row.model in MODELS and metric != "CMIP, skultr" else "white"
            at = place[row.model]
            axis.errorbar(row.ours, at, xerr=row.interval, fmt="o", color="C0", mfc=color)
        axis.set_title(metric, fontsize=10)
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(list(place.values()), names)
    figure.suptitle("Figure 2. PBM user, NoisyOracle; out of distribution: random order")
    return figure


def draw_sizes(rows, table):
    """Figure 3: one panel for each estimator."""
    groups = table.groupby("metric", observed=True, sort=False)
    figure, axes = plt.subplots(
        1, len(groups), figsize=(8, 3.4), sharey=True, layout="constrained"
    )
    for axis, (metric, part) in zip(axes, groups, strict=True):
        by_scores = part.groupby("scores", sort=False)
        for color, (name, of) in zip(("C0", "C3"), by_scores, strict=True):
            axis.errorbar(of["documents"], of["ours"], of["interval"], fmt="o-", color=color)
            last = of.iloc[-1]
            axis.annotate(
                name,
                (last["documents"], last["ours"]),
                xytext=(0, 8 if name == "biased" else -8),
                textcoords="offset points",
                ha="right",
                va="bottom" if name == "biased" else "top",
                color=color,
            )
        axis.axhline(0, color="0.6", linewidth=0.8)
        axis.margins(0.1, 0.15)
        axis.set(xscale="log", xlabel="annotated documents", title=metric)
        sizes = sorted(part["documents"].unique())
        axis.set_xticks(sizes, [f"{n:,d}" for n in sizes], minor=False)
        axis.minorticks_off()
    figure.suptitle("Figure 3. CMIP of scores with and without bias; 0 is the truth without")
    return figure


def draw_points(rows, table):
    """Figure 1: each document's score against the logger's rank, and the mean of each grade."""
    names = list(table["model"].unique())
    values = table.pivot_table("ours", "model", "metric", observed=True)
    figure, axes = plt.subplots(1, len(names), figsize=(4.3 * len(names), 4), layout="constrained")
    for axis, name in zip(axes, names, strict=True):
        points = rows[(rows["model"] == name) & rows["grade"].notna()]
        for grade, of in points.groupby("grade"):
            color = plt.get_cmap("viridis")(grade / 4.5)
            axis.plot(of["rank"], of["score"], ".", ms=3, alpha=0.5, color=color)
            mean = of.groupby(of["rank"].round())["score"].agg(["mean", "size"])
            mean = mean[mean["size"] >= 5]["mean"]
            axis.plot(mean.index, mean, "-", color=color, label=f"grade {grade:.0f}")
        metrics = "; ".join(f"{m}: {values.loc[name, m]:.3f}" for m in values)
        axis.set_title(f"{name}\n{metrics}", fontsize=9)
        axis.set(xlabel="expected rank under the logging policy", ylabel="relevance by the model")
    axes[-1].legend(frameon=False, fontsize=8)
    figure.suptitle("Figure 1. What a model thinks of a document, by where the logger put it")
    return figure


# --------------------------------------------------------------------------------------
# Published figures, as the paper's text has them
# --------------------------------------------------------------------------------------
TABLE_1 = """
.276 .256 .439 .395 .938 .972 .963
.277 .346 .725 .304 .966 .969 .970
.369 .907 .904 .861 .883 .962 .944
.347 .965 .931 .889 .974 .977 .975
.235 .978 .517 .693 .787 .977 .897
.254 .984 .545 .688 .821 .983 .963
.941 .997 .997 .974 .970 .997 .983
.958 .999 .999 .983 .982 .999 .982
.805 .149 .843 .869 .910 .906 .914
.618 .266 .859 .767 .884 .909 .880
.985 .167 .625 .988 .990 .862 .985
.951 .167 .735 .987 .984 .902 .987
.974 .811 .993 .970 .977 .978 .973
.954 .941 .994 .947 .968 .995 .942
.993 .129 .688 .990 .991 .773 .994
.993 .113 .722 .996 .994 .759 .998
.683 .574 .782 .831 .939 .933 .959
"""
CELLS = [{"user": user, "logging": policy} for user in USERS for policy in POLICIES]
CONFIGURATIONS = [
    (cell["user"], cell["logging"], test)
    for cell in CELLS
    for test in (next(name for name in POLICIES if name != cell["logging"]), "Uniform")
]
PREDICTED = {
    (*configuration, "tree"): tuple(map(float, line.split()))
    for configuration, line in zip(
        [*CONFIGURATIONS, ("average", "", "")], TABLE_1.strip().splitlines(), strict=True
    )
}
REGRET = (2.5499, 5.2406, 1.6423, 2.5199, 2.5268, 2.5505, 0.9493, 1.6404, 0.9176)


# --------------------------------------------------------------------------------------
# Claims
# --------------------------------------------------------------------------------------
def of_models(means):
    """The rows of the paper's seven."""
    return means.drop(list(WITH_PRIOR)).rename(STOPPED_EARLY)


def of_models_to_the_end(means):
    """The same, of PBM, UBM and DBN those at the maximum of the likelihood."""
    return means.loc[list(MODELS)]


def only_perplexity_out_of_distribution_tells(means, rows):
    spread = of_models(means).max() - of_models(means).min()
    return spread["ood PPL"] - 2 * spread["ind PPL"]


def leads(values, name):
    """How far a model or rule is above each of the others."""
    return values[name] - values.drop(name)


def is_among(n, values, name):
    """How far a model is above the best that is not among the first ``n``, were it one of them."""
    return values[name] - values.drop(name).nlargest(n).iloc[-1]


def dctr_ranks_well_and_predicts_badly(means, rows):
    means = of_models(means)
    return [is_among(4, means["nDCG"], "DCTR"), is_among(2, means["ood PPL"], "DCTR")]


def cmip_is_highest_for_dctr(means, rows):
    return leads(of_models(means)["CMIP"], "DCTR")


def ncm_ranks_badly_and_predicts_well(means, rows):
    means = of_models(means)
    less = (means.loc["DCTR"] - means.loc["NCM"])[["CMIP", "ood PPL"]]
    return [is_among(3, -means["nDCG"], "NCM"), *less]


def true_model_predicts_best(means, rows):
    return leads(-of_models(means)["ood PPL"], "PBM")


def true_model_predicts_best_to_the_end(means, rows):
    return leads(-of_models_to_the_end(means)["ood PPL"], "PBM")


def averages(means, regression="tree"):
    return means.loc[("average", "", "", regression)]


def cmip_is_best_alone(means, rows):
    found = averages(means)
    return found["CMIP"] - found[["ind PPL", "nDCG"]]


def all_with_cmip_above(means, rows):
    return averages(means)[list(WITH_CMIP)] - 0.9


def cmip_adds(regression):
    def gaps(means, rows):
        found = averages(means, regression)
        return found["joint"] - found[USUAL]

    return gaps


def joint_is_never_worse(means, rows):
    """The R² with all three metrics less that of the usual two, and .02, in each configuration."""
    of_trees = means.xs("tree", level="regression").drop("average", level="user")
    return of_trees["joint"] - of_trees[USUAL] + 0.02


def regret(means):
    return means.loc["as published", "regret"]


def papers_rule_is_best(means, rows):
    return leads(-regret(means)[list(RULES)], "top-4 CMIP, top-4 PPL: nDCG")


def ndcg_loses_most(means, rows):
    return leads(regret(means)[list(RULES)], "nDCG")


def cmip_in_front_does_no_harm(means, rows):
    """What is left of a tenth of a thousandth of perplexity that CMIP in front may cost a rule."""
    lost = regret(means)
    return [0.1 + lost[rule] - lost[with_cmip] for rule, with_cmip in IN_FRONT.items()]


def cmip_in_front_of_ndcg(means, rows):
    lost = regret(means)
    return 0.5 * lost["nDCG"] - lost["top-4 CMIP: nDCG"]


def tells_bias(metric):
    """How far biased scores are above unbiased ones, less five standard deviations of a run."""

    def gap(means, rows):
        of_6400 = rows[rows["documents"] == 6_400].groupby("scores")[metric]
        mean = of_6400.mean()
        spread = np.sqrt(of_6400.var().sum())
        return mean["biased"] - mean["unbiased"] - 5 * spread

    return gap


def dctr_copies(means, rows):
    means = means["CMIP, skultr"]
    return [means["DCTR"] - 0.3, 0.25 * means["DCTR"] - means["PBM"]]


# --------------------------------------------------------------------------------------
# The paper
# --------------------------------------------------------------------------------------
LOGGER = Study("logger", against_logger, quick_runs=2, full_runs=10, hours=0.5)
STUDY = Study("configurations", measure, lambda settings: CELLS, 2, 10, hours=35)
SIZES = Study(
    "documents",
    by_number_of_documents,
    lambda settings: [
        {"documents": n}
        for n in settings.size(quick=(1_600, 6_400), full=(1_600, 6_400, 25_600, 58_880))
    ],
    quick_runs=6,
    full_runs=10,
    hours=1,
)
#: R² is that of all runs together.
of_all_runs = partial(Claim, jackknife=True)
SMALL = "With few documents the paper's estimator of CMIP is far below 0 (it trains on a quarter)"
MOSTLY_NDCG = (
    "with some thousand documents the paper's estimator of CMIP is far below 0 and varies over "
    "runs; nDCG alone tells the seven models apart best"
)

PAGE = Page(
    "cmip",
    "An Offline Metric for the Debiasedness of Click Models (SIGIR 2023)",
    (
        Exhibit(
            "figure 1",
            "DCTR and PBM against the logging policy, by true relevance",
            LOGGER,
            ("model",),
            ("nDCG", "CMIP", "CMIP, skultr"),
            claims=(
                Claim(
                    "DCTR has the higher nDCG",
                    lambda means, rows: means.loc["DCTR", "nDCG"] - means.loc["PBM", "nDCG"],
                    why="with some hundred sessions per query PBM, fitted to the end, is ahead",
                ),
                Claim(
                    "DCTR has the higher CMIP",
                    lambda means, rows: means.loc["DCTR", "CMIP"] - means.loc["PBM", "CMIP"],
                ),
                Claim("DCTR copies the logging policy, PBM does not", dctr_copies),
            ),
            draw=draw_points,
            note=f"The paper's text has no figures for it. {SMALL}.",
        ),
        Exhibit(
            "figure 2",
            "Click models in and out of distribution: PBM user, NoisyOracle, tested under Uniform",
            STUDY,
            ("model",),
            ("ind PPL", "nDCG", "CMIP", "CMIP, skultr", "ood PPL"),
            keep=of_figure_2,
            draw=draw_models,
            cells=lambda cell: cell == CELLS[0],
            claims=(
                Claim(
                    "models differ at least twice as much out of distribution as in it",
                    only_perplexity_out_of_distribution_tells,
                ),
                Claim(
                    "DCTR is among the best four by nDCG and among the worst two out of "
                    "distribution",
                    dctr_ranks_well_and_predicts_badly,
                ),
                Claim("CMIP is highest for DCTR", cmip_is_highest_for_dctr),
                Claim(
                    "NCM has a low nDCG, and yet a lower CMIP and perplexity than DCTR",
                    ncm_ranks_badly_and_predicts_well,
                ),
                Claim("PBM, the true model, predicts best", true_model_predicts_best),
                Claim(
                    "PBM, the true model, predicts best",
                    true_model_predicts_best_to_the_end,
                    why="at the maximum of the likelihood a document with few clicks has an "
                    "extreme relevance",
                    setting="fitted to the end",
                ),
            ),
            note=f"{SMALL}: its order counts, not its level.",
        ),
        Exhibit(
            "table 1",
            "Adjusted R² of predicting the perplexity out of distribution",
            STUDY,
            (*CONFIGURATION, "regression"),
            tuple(SUBSETS),
            published=PREDICTED,
            keep=predictability,
            marks=welch_marks,
            draw=draw_heat,
            claims=(
                of_all_runs(
                    "CMIP is the best single metric, on average", cmip_is_best_alone, MOSTLY_NDCG
                ),
                of_all_runs(
                    "all combinations with CMIP have an average above .9",
                    all_with_cmip_above,
                    MOSTLY_NDCG,
                ),
                of_all_runs(
                    "CMIP adds to perplexity and nDCG, on average", cmip_adds("tree"), MOSTLY_NDCG
                ),
                of_all_runs(
                    "all three metrics are nowhere worse than the usual two (by .02)",
                    joint_is_never_worse,
                    MOSTLY_NDCG,
                ),
                of_all_runs("the same holds for linear regression", cmip_adds("linear")),
            ),
            note="Marks and intervals of the table are over repetitions of the cross-validation, "
            "as in the paper; the claims are decided over runs (jackknife).",
        ),
        Exhibit(
            "table 2",
            "Regret of rules to select a model, in thousandths of perplexity",
            STUDY,
            ("models", "rule"),
            ("regret",),
            published={
                ("as published", rule): (value,) for rule, value in zip(RULES, REGRET, strict=True)
            },
            keep=regrets,
            panel="models",
            claims=(
                Claim(
                    "top-4 CMIP, top-4 PPL: nDCG has the least regret",
                    papers_rule_is_best,
                    why="top-4 CMIP, top-4 nDCG: PPL has less",
                ),
                Claim("nDCG alone has the most regret", ndcg_loses_most),
                Claim("CMIP in front halves the regret of nDCG", cmip_in_front_of_ndcg),
                Claim("CMIP in front of a rule does no harm", cmip_in_front_does_no_harm),
            ),
            note="The mean over eight kinds of logs; intervals are over runs of all eight.",
        ),
        Exhibit(
            "figure 3",
            "CMIP of scores with and without bias, by the number of annotated documents",
            SIZES,
            ("documents", "scores"),
            ("CMIP", "CMIP, skultr"),
            claims=tuple(
                of_all_runs(
                    f"with 6,400 documents {name} tells bias by five standard deviations",
                    tells_bias(metric),
                    setting="number of documents",
                )
                for name, metric in (
                    ("the paper's estimator", "CMIP"),
                    ("skultr's estimator", "CMIP, skultr"),
                )
            ),
            draw=draw_sizes,
            note="The paper has no such figure; its sets have 58,880 documents or more. A biased "
            "score is the relevance over the square root of the logged rank.",
        ),
    ),
)
