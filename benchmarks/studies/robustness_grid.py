"""Users x production rankers x sessions: where corrections beat clicks as they are.

The question is that of Niu, Zhang, Mao, Ai & Wen (2025): "Investigating the robustness of
counterfactual learning to rank models: a reproducibility study", SIGIR (arXiv 2404.03707). They
conclude that IPS-DCM, DLA-PBM and UPE are more robust than other models, and that models often
fail to outperform naive click baselines where production is strong and sessions are few. Their
figures are not repeated here: the documents differ, and so does each network.

Users are those of the authors' program, each with its steepest setting (η = 1):

- ``position-based``: position k is examined with probability 1 / k;
- ``dependent clicks``: down the page, and on after a click at k with probability .6 / k;
- ``comparing``: two neighbours at a time (Zhang et al. 2021), see `ComparingUser`.

Production is a random order, a linear ranker of 1 % of the labels, or LambdaMART on all labels.
The labels are those of queries that are not in the log. It shows ten of twenty documents, in one
order per query.

Methods have the defaults of skultr, and the same clicks:

- ``naive``: clicks as they are;
- ``IPS-PBM``: IPS by the curve of `PBMModel`, one Beta prior and EM without features;
- ``IPS-DCM``: each click is divided by the chance to go on after the last click above it, as in
  the authors' program; `DCMModel` finds these chances;
- ``DCM, averaged``, ours: the same model, with the mean of P(examined | clicks above) over the
  sessions of a query (`UserAwareIPSRanker`);
- ``DLA``, ``UPE`` (dual learning with the backdoor adjustment), ``REM`` (regression-EM) and
  ``PairDebias``;
- ``ensemble``, ours, the one that also reads the score of production;
- ``labels``: the naive network on relevance in place of clicks; ``production``: the ranker itself.

nDCG@10 is that on queries that neither the log nor production has seen. ``over naive`` is the
difference to naive of the same run, so that its interval is paired by seed; ``+`` and ``-`` mark
intervals above and below 0. The bars of the figure are these intervals. In ``methods``, ``above
naive`` and ``below naive`` are shares of the cells by these marks, of which chance alone gives
2.5 % each; ``few`` are the cells of strong production with the fewest sessions.
"""

import warnings
from dataclasses import dataclass
from functools import cached_property, partial

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.base import clone

from skultr import DLARanker, UserAwareIPSRanker, aggregate_clicks
from skultr.click_models import DCMModel, PBMModel
from skultr.metrics import ndcg_score
from skultr.model_selection import train_test_queries
from skultr.propensity import DualLearningPropensity
from skultr.rankers import (
    EnsembleRanker,
    IPSRanker,
    NaiveRanker,
    PairDebiasRanker,
    RegressionEMRanker,
)
from skultr.simulation import (
    DCMUser,
    PositionBasedUser,
    User,
    production_scores,
    relevance_probability,
    simulate_clicks,
)

from .._documents import feature_columns, split_documents
from .._exhibit import summarize
from .._study import Claim, Exhibit, Page, Study

#: Queries of the log.
N_LOGGED = 200
#: Queries to test on.
N_TEST = 300
N_POSITIONS = 10
POSITIONS = np.arange(1, N_POSITIONS + 1)
#: The best grade: those of all sets of documents are brought to this scale.
BEST_GRADE = 4


# --------------------------------------------------------------------------------------
# Users
# --------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class ComparingUser(User):
    """Compares two neighbours at a time, clicks one of them or goes on, until satisfied.

    The chances of a click on the upper one, a click on the lower one, and going down by a position
    are in proportion to exp(a), exp(b) and exp(``reluctance``). The appeal of a document is its
    grade plus ``trust`` / k, less ``seen`` once it was clicked. A click satisfies with probability
    ``satisfaction`` times relevance. The values are those of the authors' program.

    R. Zhang, X. Xie, J. Mao, Y. Liu, M. Zhang and S. Ma (2021). Constructing a comparison-based
    click model for web search. WWW.
    """

    trust: float = 4.0
    seen: float = 4.0
    reluctance: float = 6.6
    satisfaction: float = 0.6

    def examination_at(self, n_positions):
        """On a page without clicks the user compares all documents."""
        return np.ones(n_positions)

    def click_probability(self, relevance_probability):
        """There is no formula: clicks of a page are drawn."""
        raise NotImplementedError("The clicks of a comparing user are drawn, not computed.")

    def read_grades(self, grade):
        """The grades themselves are compared."""
        return grade

    def click(self, grade, rng):
        """Clicks of pages, from the grades that they show (-1 past the end)."""
        n_positions = grade.shape[1]
        satisfies = self.satisfaction * relevance_probability(np.maximum(grade, 0), noise=0.0)
        appeal = grade + self.trust / np.arange(1, n_positions + 1)
        appeal = np.where(grade < 0, -np.inf, appeal)
        clicks = np.zeros(grade.shape, dtype=bool)
        is_satisfied = np.zeros(len(grade), dtype=bool)
        for upper in range(n_positions - 1):
            # Pages whose user compares this pair, once more after each click.
            pages = np.flatnonzero(~is_satisfied)
            while len(pages):
                pair = slice(upper, upper + 2)
                weight = np.exp(appeal[pages, pair] - self.seen * clicks[pages, pair])
                share = weight / (weight.sum(axis=1, keepdims=True) + np.exp(self.reluctance))
                # 0: the upper one, 1: the lower one, 2: neither.
                choice = (rng.random((len(pages), 1)) > share.cumsum(axis=1)).sum(axis=1)
                pages = pages[choice < 2]
                position = upper + choice[choice < 2]
                clicks[pages, position] = True
                is_satisfied[pages] = rng.random(len(pages)) < satisfies[pages, position]
                pages = pages[~is_satisfied[pages]]
        return clicks


USERS = {
    "position-based": PositionBasedUser(1.0),
    "dependent clicks": DCMUser(0.6 / POSITIONS),
    "comparing": ComparingUser(),
}


# --------------------------------------------------------------------------------------
# Production
# --------------------------------------------------------------------------------------
def random_order(known, documents, seed):
    """Scores that say nothing."""
    return np.random.default_rng([7, seed]).random(len(documents))


def learned(known, documents, seed, *, fraction, estimator=None):
    """Scores of a ranker that has learned a share of the labels of ``known``."""
    return production_scores(
        known,
        fraction=fraction,
        estimator=estimator,
        candidates=documents,
        random_state=seed,
    )


STRONG = "all labels"
PRODUCTION = {
    "random order": random_order,
    "1 % of the labels": partial(learned, fraction=0.01),
    STRONG: partial(learned, fraction=1.0, estimator="lambdamart"),
}


# --------------------------------------------------------------------------------------
# Logs
# --------------------------------------------------------------------------------------
class World:
    """The log of a cell, and documents of other queries to test on."""

    def __init__(self, cell, settings, seed):
        # Production learns from as many queries as the log has.
        train, self.test = split_documents(settings, 2 * N_LOGGED, N_TEST, seed=seed)
        logged, known = train_test_queries(train, test_size=0.5, random_state=seed)
        both = pd.concat([logged, self.test])
        scores = PRODUCTION[cell["production"]](known, both, seed)
        self.served = scores[len(logged) :]
        # Ids are unique in the log alone, and the grades of all sets are on one scale.
        self.documents = logged.assign(
            doc=np.arange(len(logged)),
            relevance=_on_scale(logged["relevance"], train["relevance"].max()),
            production=scores[: len(logged)],
        )
        impressions, clicks, _ = simulate_clicks(
            self.documents,
            n_sessions=cell["sessions"],
            n_positions=N_POSITIONS,
            scores=self.documents["production"],
            user=USERS[cell["user"]],
            max_grade=BEST_GRADE,
            features=False,
            random_state=seed,
        )
        self.impressions = impressions.assign(click=clicks)

    @cached_property
    def lists(self):
        """Distinct lists and click rates, for rankers that know impressions."""
        return aggregate_clicks(self.impressions, self.documents)

    def sessions(self):
        """Every session with its clicks, for models of a click given those above it."""
        log = self.impressions.merge(self.documents, on=["qid", "doc"], how="left")
        return log.drop(columns="click"), log["click"].to_numpy()

    def ndcg(self, scores):
        """nDCG@10 on the labels of the test queries."""
        return ndcg_score(self.test["relevance"], scores, qid=self.test["qid"], k=10)


def _on_scale(grade, best):
    return (grade * BEST_GRADE / best).round().astype(int)


# --------------------------------------------------------------------------------------
# Methods: functions from a world and a seed to scores of the test documents
# --------------------------------------------------------------------------------------
def _predicted(ranker, seed, X, y, test):
    """Scores of a clone that learns from features alone."""
    fitted = clone(ranker).set_params(random_state=seed)
    return fitted.fit(X.drop(columns=["relevance", "production"]), y).predict(test)


def _from_lists(ranker):
    return lambda world, seed: _predicted(ranker, seed, *world.lists, _features(world))


def _from_sessions(ranker):
    return lambda world, seed: _predicted(ranker, seed, *world.sessions(), _features(world))


def _features(world):
    return world.test[["qid", *feature_columns(world.test)]]


def _from_clicks_above(world, seed):
    """IPS by the chance to go on after the last click above, without a bound but ``LEAST``."""
    X, clicks = world.sessions()
    model = DCMModel().fit(X.drop(columns=["relevance", "production"]), clicks)
    going_on = np.maximum(model.continuation_, LEAST)
    X = X.assign(propensity=after_last_click(X, clicks, going_on))
    ranker = IPSRanker(propensity="column", correction="divide", clip=None)
    return _predicted(ranker, seed, X, clicks, _features(world))


def after_last_click(X, clicks, going_on):
    """Of each row, the chance to go on after the last click above it; 1 where there is none."""
    at_click = X["position"].map(going_on).where(clicks == 1)
    above = at_click.groupby(X["session"]).shift()
    return above.groupby(X["session"]).ffill().fillna(1.0)


def _from_labels(world, seed):
    """What the network of the naive ranker learns from relevance in place of clicks."""
    X, _ = world.lists
    relevance = relevance_probability(X["relevance"], max_grade=BEST_GRADE)
    return _predicted(NaiveRanker(), seed, X, relevance, _features(world))


def _with_production(world, seed):
    """The ensemble, which weighs production as one of its members."""
    X, rate = world.lists
    ranker = EnsembleRanker(random_state=seed).fit(X.drop(columns="relevance"), rate)
    return ranker.predict(_features(world).assign(production=world.served))


#: Of a propensity, in the authors' program.
LEAST = 0.01
NAIVE = "naive"
#: The three that the paper finds robust, and the others that correct.
ROBUST = ("IPS-DCM", "DLA", "UPE")
OTHERS = ("IPS-PBM", "REM", "PairDebias")
CORRECTED = (*ROBUST, *OTHERS)
OURS = "ensemble"
METHODS = {
    NAIVE: _from_lists(NaiveRanker()),
    "IPS-PBM": _from_lists(IPSRanker(propensity=PBMModel(prior="empirical"))),
    "IPS-DCM": _from_clicks_above,
    "DCM, averaged": _from_sessions(UserAwareIPSRanker(propensity=DCMModel())),
    "DLA": _from_lists(DLARanker()),
    "UPE": _from_lists(IPSRanker(propensity=DualLearningPropensity(unconfounded=True))),
    "REM": _from_lists(RegressionEMRanker()),
    "PairDebias": _from_lists(PairDebiasRanker()),
    OURS: _with_production,
    "labels": _from_labels,
    "production": lambda world, seed: world.served,
}


# --------------------------------------------------------------------------------------
# Runs
# --------------------------------------------------------------------------------------
CELL = ["production", "user", "sessions"]
SESSIONS = (400, 4_000, 40_000)
#: In the full grid alone.
MORE_SESSIONS = (1_200, 12_000, 120_000)


def cells(settings):
    """All users behind all production rankers, with few to many sessions."""
    sizes = settings.size(quick=SESSIONS, full=sorted(SESSIONS + MORE_SESSIONS), tiny=(100,))
    most = settings.sessions or max(sizes)
    return [
        {"production": production, "user": user, "sessions": n_sessions}
        for production in PRODUCTION
        for user in USERS
        for n_sessions in sizes
        if n_sessions <= most
    ]


def fits(cell, settings, seed):
    """One row for each method."""
    world = World(cell, settings, seed)
    value = {}
    for name, method in METHODS.items():
        with warnings.catch_warnings():
            # Of few clicks, and of curves that no document that moved determines.
            warnings.simplefilter("ignore")
            value[name] = world.ndcg(method(world, seed))
        yield {
            "method": name,
            "nDCG@10": value[name],
            "over naive": value[name] - value[NAIVE],
        }


# --------------------------------------------------------------------------------------
# Claims: gaps of one seed, above 0 where the sentence holds
# --------------------------------------------------------------------------------------
#: A lead of less is none.
MARGIN = 0.005


def _over_others(method, means, rows):
    """Lead over each of the others that correct, in the mean over all cells."""
    mean = means["nDCG@10"].groupby("method").mean()
    return mean[method] - mean[[*OTHERS]]


def _over_others_of_each_user(method, means, rows):
    """The same for each kind of user."""
    mean = means["nDCG@10"].groupby(["method", "user"]).mean().unstack("user")
    return mean.loc[[*OTHERS]].rsub(mean.loc[method], axis="columns")


def _few(means):
    """Rows of strong production with the fewest sessions."""
    sessions = means.index.get_level_values("sessions")
    production = means.index.get_level_values("production")
    return means[(production == STRONG) & (sessions == sessions.min())]


def _no_better_than_naive(method, means, rows):
    """Margin less the lead over naive behind strong production with few sessions."""
    lead = _few(means)["over naive"].groupby("method").mean()
    return MARGIN - lead[method]


def _lead_is_smaller(method, means, rows):
    """Lead with many sessions behind weak production, less that with few behind strong."""
    sessions = means.index.get_level_values("sessions")
    production = means.index.get_level_values("production")
    easy = means[(production == "1 % of the labels") & (sessions == sessions.max())]
    leads = [part["over naive"].groupby("method").mean()[method] for part in (easy, _few(means))]
    return leads[0] - leads[1]


def _at_least_both(means, rows):
    """Margin plus the lead of the ensemble over naive and production, strong and few."""
    mean = _few(means)["nDCG@10"].groupby("method").mean()
    return mean[OURS] - mean[[NAIVE, "production"]] + MARGIN


#: What is said of a method, of which methods, and its gaps.
SENTENCES = (
    (f"is above {', '.join(OTHERS)} in the mean over all cells", ROBUST, _over_others),
    (f"is above {', '.join(OTHERS)} for each kind of user", ROBUST, _over_others_of_each_user),
    (
        "is no better than naive behind strong production with few sessions",
        CORRECTED,
        _no_better_than_naive,
    ),
    (
        "leads by less there than behind weak production with many sessions",
        CORRECTED,
        _lead_is_smaller,
    ),
)
CLAIMS = (
    *(
        Claim(f"{name} {says}", partial(gaps, name))
        for says, names, gaps in SENTENCES
        for name in names
    ),
    Claim(
        "The ensemble is at least at naive and production there, less .005",
        _at_least_both,
        setting="a method of ours",
    ),
)


# --------------------------------------------------------------------------------------
# Tables and the figure
# --------------------------------------------------------------------------------------
def mark(rows, table):
    """``+`` and ``-`` where the interval of the lead over naive is above or below 0."""
    is_lead = table["metric"] == "over naive"
    low = table["ours"] - table["interval"]
    high = table["ours"] + table["interval"]
    return np.select([is_lead & (low > 0), is_lead & (high < 0)], ["+", "-"], "")


def per_method(rows):
    """Means of each method over the cells, and shares of cells with a lead that is decided."""
    leads = summarize(CELLS, rows)
    leads = leads[leads["metric"] == "over naive"]
    is_strong = leads["production"] == STRONG
    leads = leads.assign(is_few=is_strong & (leads["sessions"] == leads["sessions"].min()))
    found = {}
    for name, lead in leads.groupby("method", sort=False):
        if name == NAIVE:
            continue
        few = lead[lead["is_few"]]
        found[name] = {
            "nDCG@10": rows.loc[rows["method"] == name, "nDCG@10"].mean(),
            "over naive": lead["ours"].mean(),
            "worst": lead["ours"].min(),
            "above naive": (lead["mark"] == "+").mean(),
            "below naive": (lead["mark"] == "-").mean(),
            "few, over naive": few["ours"].mean(),
            "few, above naive": (few["mark"] == "+").mean(),
            "few, below naive": (few["mark"] == "-").mean(),
        }
    return pd.DataFrame(found).T.rename_axis("method").reset_index().assign(seed=0)


#: Colour, width and style of the lines.
LINES = {
    NAIVE: ("black", 2.0, "-"),
    "IPS-DCM": ("C0", 1.6, "-"),
    "DLA": ("C1", 1.6, "-"),
    "UPE": ("C2", 1.6, "-"),
    "IPS-PBM": ("C0", 1.2, ":"),
    "REM": ("C4", 1.2, ":"),
    "PairDebias": ("C5", 1.2, ":"),
    "DCM, averaged": ("C6", 1.2, "--"),
    OURS: ("C3", 2.0, "-"),
    "labels": ("0.55", 1.2, "--"),
    "production": ("0.55", 1.2, "-."),
}
#: Methods stand side by side where they share a number of sessions: the step of the factor.
STEP = 1.07


def draw_grid(rows, table):
    """Users in lines, production in columns: nDCG@10 by sessions, with intervals of the lead."""
    users = list(dict.fromkeys(table["user"]))
    productions = list(dict.fromkeys(table["production"]))
    figure, axes = plt.subplots(
        len(users),
        len(productions),
        figsize=(3.6 * len(productions), 2.7 * len(users) + 0.8),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for user, line in zip(users, axes, strict=True):
        for production, axis in zip(productions, line, strict=True):
            is_here = (table["user"] == user) & (table["production"] == production)
            _draw_panel(axis, table[is_here])
    for user, axis in zip(users, axes[:, 0], strict=True):
        axis.set_ylabel(f"users: {user}\nnDCG@10, other queries")
    for production, axis in zip(productions, axes[0], strict=True):
        axis.set_title(f"production: {production}", fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("sessions")
    # A random order is far below all that is learned.
    is_learned = (table["metric"] == "nDCG@10") & (table["method"] != "production")
    learned_values = table.loc[is_learned, "ours"]
    axes[0, 0].set_ylim(learned_values.min() - 0.03, learned_values.max() + 0.04)
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=6)
    return figure


def _draw_panel(axis, part):
    values = part.pivot_table("ours", ["method", "sessions"], "metric", observed=True)
    half = part.pivot_table("interval", ["method", "sessions"], "metric", observed=True)
    for place, (name, (color, width, style)) in enumerate(LINES.items()):
        ndcg = values.loc[name, "nDCG@10"]
        sessions = ndcg.index * STEP ** (place - len(LINES) / 2)
        axis.plot(sessions, ndcg, style, color=color, lw=width, label=name)
        if name in (*ROBUST, OURS):
            lead = half.loc[name, "over naive"]
            axis.errorbar(sessions, ndcg, yerr=lead, fmt="o", ms=3, lw=1, color=color)
    axis.set_xscale("log")
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)


STUDY = Study("fits", fits, cells, quick_runs=3, full_runs=4, hours=0.4)
CELLS = Exhibit(
    "cells",
    "nDCG@10, and its difference to naive, in every cell",
    STUDY,
    (*CELL, "method"),
    ("nDCG@10", "over naive"),
    claims=CLAIMS,
    marks=mark,
    draw=draw_grid,
)
MEASURES = ("nDCG@10", "over naive", "worst", "above naive", "below naive")
PAGE = Page(
    "studies/robustness_grid",
    "Users, production rankers and sessions of arXiv 2404.03707",
    (
        CELLS,
        Exhibit(
            "methods",
            "Over all cells, and over those of strong production with few sessions",
            STUDY,
            ("method",),
            (*MEASURES, *(f"few, {name}" for name in MEASURES if "naive" in name)),
            keep=per_method,
        ),
    ),
)
