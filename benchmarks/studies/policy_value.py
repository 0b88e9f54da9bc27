r"""Does `policy_difference` predict which of two rankings gets more clicks, and by how much?

Ten worlds of 20 pairs of rankers (scores near production, mixed with it, noisy relevance, one
feature, trained models) on logs of production: five users, four ways to rank (Plackett-Luce at
two temperatures; one of five daily orders; always the same order), two sizes. Pages have 6 of 12
documents, or in every second world all 6 in another order. The truth is the exact expectation of
the user's clicks over 6,000 queries, of which the log has a sample. In percent:

- ``told``: pairs for which the method does not say "cannot tell".
- ``of 1 %``: pairs in which it commits (p < 0.05), of those whose true difference is 1 % of the
  logged clicks or more.
- ``sign``: pairs with the true sign, of those in which it commits. Users of a cascade click as
  often in any order of the same documents, so that every commitment is wrong.
- ``covers``: 95 % intervals that hold the true difference.
- ``rmse`` and ``width``: root mean squared error, and mean width of the intervals, of the clicks.

The first table is about the method "dr" and all pairs; the others have every third pair. "pbm"
is given the examination that an experiment finds: the clicks by position of random pages.
"direct" is the position-based click model, "model" that of the user (cascade, DBN). Last, in how
many cells "dr" has at most the mean squared error of "direct" and "item-position", of the pairs
that the log supports, whether or not it contradicts the method.

``cost`` compares time and memory on a million rows with the estimator written in pandas.
"""

from contextlib import contextmanager
from unittest import mock

import numpy as np
import pandas as pd
from lightgbm import LGBMRegressor
from sklearn.linear_model import Ridge

from skultr.click_models import CascadeModel, DBNModel, PBMModel
from skultr.datasets import make_ltr
from skultr.evaluation import _policy_estimate, _policy_methods, _policy_value, policy_difference
from skultr.simulation import (
    CarouselUser,
    CascadeUser,
    DBNUser,
    DeterministicPolicy,
    MixturePolicy,
    PlackettLucePolicy,
    PositionBasedUser,
    TrustBiasUser,
    relevance_probability,
    simulate_clicks,
)

from .. import _study
from .._study import Exhibit, Page, Study, measured

N_POSITIONS, N_DAYS, N_POPULATION = 6, 5, 6_000
EXAMINATION = np.array([0.9, 0.7, 0.55, 0.45, 0.38, 0.33])
#: Each user, and the click model that is right for it, besides the position-based one.
USERS = {
    "position-based": (PositionBasedUser(EXAMINATION), None),
    "trust": (TrustBiasUser(EXAMINATION), None),
    "cascade": (CascadeUser(), CascadeModel),
    "DBN": (DBNUser(), DBNModel),
    "carousel": (CarouselUser(n_columns=3), None),
}
POLICIES = {
    "Plackett-Luce 1.0": PlackettLucePolicy(1.0),
    "Plackett-Luce 0.3": PlackettLucePolicy(0.3),
    "daily orders": MixturePolicy(),
    "one order": DeterministicPolicy(),
}
_ROUNDING = 1e-12
STOCHASTIC = ("Plackett-Luce 1.0", "Plackett-Luce 0.3")
CELL = ["sessions", "policy", "documents", "user"]


# Worlds ---------------------------------------------------------------------------------------
class World:
    """Documents of a population of queries, production, and pairs of rankers to compare."""

    def __init__(self, seed, n_documents):
        self.rng = np.random.default_rng(seed)
        self.documents = make_ltr(
            N_POPULATION, n_documents=n_documents, n_features=10, random_state=seed
        )
        self.grade = self.documents["relevance"].to_numpy(dtype=float)
        self.relevance = relevance_probability(self.grade, noise=0.1)
        self.production = self.grade + self.noise(1.5)
        self.pairs = self.draw_pairs()

    def noise(self, scale):
        return self.rng.normal(0, scale, len(self.grade))

    def draw_pairs(self):
        """20 pairs of scores; most share errors with production, as new rankers do."""
        production, rng = self.production, self.rng
        pairs = [(production, production + self.noise(s)) for s in (0.1, 0.2, 0.4, 0.8)]
        pairs += [(self.mixed(), self.mixed()) for _ in range(6)]
        pairs += [(production, self.mixed()) for _ in range(3)]
        pairs += [(production, self.grade + self.noise(rng.uniform(0.5, 4))) for _ in range(3)]
        small, large, trees = self.trained(Ridge(), 10), self.trained(Ridge(), 300), self.trees()
        pairs += [(small, large), (large, trees), (production, trees)]
        return [*pairs, (production, self.feature())]

    def mixed(self):
        other = self.grade + self.noise(self.rng.uniform(0.3, 3))
        return 0.6 * self.production + 0.4 * other

    def feature(self):
        return self.features().iloc[:, self.rng.integers(10)].to_numpy(dtype=float)

    def trees(self):
        return self.trained(
            LGBMRegressor(n_estimators=50, num_leaves=15, n_jobs=1, verbose=-1), 300
        )

    def trained(self, model, n_queries):
        rows = np.flatnonzero(self.documents["qid"] < n_queries)
        ranks = self.features().rank(pct=True)
        return model.fit(ranks.iloc[rows], self.grade[rows]).predict(ranks)

    def features(self):
        return self.documents.filter(like="feature")

    def differences(self, user):
        """The truth of each pair: its difference in expected clicks per page, over all queries."""
        clicks = [[self.clicks(user, scores).sum() for scores in pair] for pair in self.pairs]
        return [a - b for a, b in clicks]

    def clicks(self, user, scores):
        """Expected clicks by position."""
        order = np.lexsort((-scores, self.documents["qid"])).reshape(N_POPULATION, -1)
        pages = self.relevance[order[:, :N_POSITIONS]]
        return user.click_probability(pages).mean(axis=0)

    def experiment(self, user):
        """Examination up to one factor, as random pages show it."""
        found = self.clicks(user, self.noise(1))
        return found / found.max()

    def log(self, user, policy, n_queries, n_sessions, seed):
        """Rows of documents, the log of a sample of the queries and its clicks."""
        scores = self.production
        if policy.several_rankers:
            rng = np.random.default_rng(seed)
            scores = scores[:, None] + rng.normal(0, 0.7, (len(scores), N_DAYS))
        asked = np.random.default_rng(seed).choice(N_POPULATION, n_queries, replace=False)
        rows = np.flatnonzero(self.documents["qid"].isin(asked))
        documents = self.documents.iloc[rows][["qid", "doc", "relevance"]]
        X, clicks, _ = simulate_clicks(
            documents,
            n_sessions=n_sessions,
            n_positions=N_POSITIONS,
            policy=policy,
            scores=scores[rows],
            user=user,
            features=False,
            random_state=seed,
        )
        return documents[["qid", "doc"]], X, clicks


# Estimates ------------------------------------------------------------------------------------
def methods(log, clicks, right, examination):
    """Arguments of each method; models are fitted once per log."""
    ready = {
        "dr": {"method": "dr"},
        "item-position": {"method": "item-position"},
        "pbm": {"method": "pbm", "propensity": examination},
        "direct": {"method": "direct", "model": PBMModel().fit(log, clicks)},
    }
    if right is not None:
        ready["model"] = {"method": "direct", "model": right().fit(log, clicks)}
    return ready


def judged(world, documents, X, clicks, right, examination, truths):
    """One row per pair and method: what it says, beside the truth."""
    ready = methods(X, clicks, right, examination)
    never = documents.assign(session=-1, position=np.nan)  # all that can be ranked
    log = pd.concat([X, never[X.columns]], ignore_index=True)
    y = np.concatenate([clicks, np.zeros(len(never), dtype=clicks.dtype)])
    place = log["doc"].to_numpy()  # documents are numbered by row
    rows = []
    shared_log = once(_policy_value, "LoggedPages")
    shared_table = once(_policy_estimate, "ClickTable")
    with shared_log, shared_table, set_aside(_policy_methods, "doubt_of_method") as doubts:
        for number, (a, b) in enumerate(world.pairs):
            scores = a[place], b[place]
            for name, options in ready.items():
                if name == "dr" or number % 3 == 0:
                    doubts.clear()
                    found = policy_difference(log, y, *scores, **options)
                    told = not any(doubts) and not np.isnan(found.value)
                    row = _beside(found, truths[number], told)
                    rows.append({"method": name, "pair": number} | row)
    return rows


def once(module, name):
    """Keep what this function makes of a log: for each pair it makes the same."""
    make, last = getattr(module, name), {}

    def kept(log, *others):
        if last.get("log") is not log:
            last.update(log=log, made=make(log, *others))
        return last["made"]

    return mock.patch.object(module, name, kept)


@contextmanager
def set_aside(module, name):
    """Collect what a test of an assumption says, and let the estimate pass."""
    test, said = getattr(module, name), []

    def passed(*about):
        said.append(test(*about))
        return ""

    with mock.patch.object(module, name, passed):
        yield said


def _beside(found, truth, told):
    low, high = found.interval
    return {
        "truth": truth / found.logged,
        "error": (found.value - truth) / found.logged,
        "se": found.standard_error / found.logged,
        "width": (high - low) / found.logged,
        "large": abs(truth) >= 0.01 * found.logged,
        "tells": told,
        "commits": told and found.p_value < 0.05,
        "right": found.value * truth > _ROUNDING,
        "covers": low <= truth <= high,
        "support": found.support,
        "verdict": found.verdict,
    }


def pairs(cell, settings, seed):
    """All rows of a world and user: policies x sizes x pairs x methods."""
    n_documents = (12, 6)[seed % 2]
    world, (user, right) = World(seed, n_documents), USERS[cell["user"]]
    known = right, world.experiment(user), world.differences(user)
    for policy, ranks in POLICIES.items():
        size = settings.queries or 500, max(SESSIONS)
        documents, X, clicks = world.log(user, ranks, *size, seed)
        for n_sessions in SESSIONS:
            of = (X["session"] < n_sessions).to_numpy()
            asked = documents[documents["qid"].isin(X.loc[of, "qid"])]
            for row in judged(world, asked, X[of], clicks[of], *known):
                yield {"sessions": n_sessions, "policy": policy, "documents": n_documents, **row}


# Tables ---------------------------------------------------------------------------------------
def _table(by, keep=lambda rows: rows):
    """The figures of each group, in percent."""

    def figures(rows):
        found = []
        for key, of in keep(rows).groupby(by, sort=False):
            commits, tells = of[of["commits"]], of[of["tells"]]
            shares = {
                "told": of["tells"].mean(),
                "of 1 %": of.loc[of["large"], "commits"].mean(),
                "sign": commits["right"].mean(),
                "covers": tells["covers"].mean(),
                "rmse": np.sqrt((tells["error"] ** 2).mean()),
                "width": tells["width"].mean(),
                "commits": len(commits) / 100,
            }
            found.append(dict(zip(by, key, strict=True)) | {k: 100 * v for k, v in shares.items()})
        return pd.DataFrame(found).assign(seed=0)

    return figures


def _third(rows):
    return rows[rows["pair"] % 3 == 0]


def _stochastic(rows):
    largest = rows["sessions"] == rows["sessions"].max()
    return _third(rows[rows["policy"].isin(STOCHASTIC) & largest])


def least_squares(rows):
    """Mean squared errors of the same pairs by cell, and whether that of "dr" is the least."""
    wide = _third(rows).pivot_table(
        index=[*CELL, "seed", "pair"], columns="method", values="error", sort=False
    )
    squares = wide.reindex(columns=["dr", "direct", "item-position"]).dropna() ** 2
    cells = squares.groupby(CELL, sort=False).agg(["mean", "size"])
    cells = cells[cells[("dr", "size")] >= 10].xs("mean", axis=1, level=1)
    least = cells["dr"] <= cells[["direct", "item-position"]].min(axis=1)
    return (100 * np.sqrt(cells)).assign(least=least.astype(float), seed=0).reset_index()


# Cost -----------------------------------------------------------------------------------------
def in_pandas(X, clicks, a, b):
    """The plainest item-position estimator of the difference."""
    cells = ["qid", "doc", "position"]
    log = X.assign(click=clicks, a=a, b=b)
    rate = log.dropna().groupby(cells, as_index=False)["click"].mean()
    documents = log.drop_duplicates(["qid", "doc"])
    value = []
    for name in "ab":
        pages = documents.sort_values(["qid", name], ascending=[True, False])
        pages = pages.assign(position=pages.groupby("qid").cumcount() + 1)[cells]
        shown = pages[pages["position"] <= N_POSITIONS].merge(rate, on=cells, how="left")
        value.append(shown.groupby("qid")["click"].sum())
    weight = X.drop_duplicates("session").groupby("qid").size()
    return float(np.average(value[0] - value[1], weights=weight))


ESTIMATES = {"pandas": in_pandas, "policy_difference": policy_difference}


def cost(cell, settings, seed):
    """Time and memory of a million rows."""
    world, (user, _) = World(0, 12), USERS["position-based"]
    n_sessions = 1_000_000 // N_POSITIONS
    _, X, clicks = world.log(user, POLICIES["Plackett-Luce 1.0"], 1_000, n_sessions, 0)
    a, b = (of[X["doc"]] for of in world.pairs[5])
    return [_study.cost(lambda: ESTIMATES[cell["estimate"]](X, clicks, a, b))]


SESSIONS = (2_000, 50_000)
STUDY = Study("pairs", pairs, _study.grid(user=USERS), quick_runs=2, full_runs=10)
USERS_BY = ["documents", "user", "method"]
FIGURES = ("told", "of 1 %", "sign", "covers", "rmse", "width", "commits")


def _exhibit(name, title, by, keep):
    return Exhibit(name, title, STUDY, tuple(by), FIGURES, keep=_table(by, keep))


PAGE = Page(
    "studies/policy_value",
    "Which of two rankings gets more clicks?",
    (
        _exhibit("dr", "The method dr", CELL, lambda rows: rows[rows["method"] == "dr"]),
        _exhibit("methods", "All methods", ["sessions", "policy", "method"], _third),
        _exhibit(
            "stochastic",
            "Plackett-Luce, largest logs",
            ["documents", "user", "method"],
            _stochastic,
        ),
        Exhibit(
            "least",
            "Root mean squared errors of the same pairs",
            STUDY,
            tuple(CELL),
            ("dr", "direct", "item-position", "least"),
            keep=least_squares,
        ),
        measured(
            cost,
            "Cost of a million rows",
            ("seconds", "CPU seconds", "GiB"),
            over={"estimate": ESTIMATES},
            runs=1,
            alone=True,
        ),
    ),
)
