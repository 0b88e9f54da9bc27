"""Documents that were never shown: who gains by the candidates, and in which world?

Documents of ``make_ltr`` (100 features) or of ``--letor``, grades 3 and 4 relevant; the top 5 of a
production ranker that knows 1 % of the labels; 10⁵ sessions of position-based users, 10 % click
noise. Judged on queries that nobody asked. At strength 0 the ranker went by the features alone
(the paper's world: true gamma 0), else also by a signal that no feature shows, of correlation 0.5
with relevance. Linear rankers are compared with linear ones and networks with networks, on the
same logs; the seeds are not those that the defaults were chosen on.
"""

import warnings

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from torch.nn.functional import logsigmoid

from skultr import CLDRanker, aggregate_clicks
from skultr.datasets import make_ltr
from skultr.metrics import average_precision_score, ndcg_score
from skultr.rankers import HeckmanRanker, IPSRanker, NaiveRanker, RankAggRanker
from skultr.rankers._cld_losses import PairLoss
from skultr.simulation import (
    PositionBasedUser,
    hidden_signal_scores,
    production_scores,
    simulate_clicks,
)

from .._documents import whole_letor
from .._study import Page, measured
from ..papers._cld_worlds import Log, log_rows
from ..papers._cld_worlds import rankers as paper_rankers

#: Seeds that the defaults were not chosen on.
FIRST_SEED = 10
LINEAR = {"hidden_layer_sizes": (), "random_state": 0}
NEURAL = {"random_state": 0}
#: The published models by rows, fitted by Newton's method and by least squares.
ROWS = {"loss": "pointwise", "hidden_layer_sizes": ()}
HECKMAN = {"hidden_layer_sizes": ()}


def world(seed, settings, strength=0.0, k=5, eta=1.0, noise=0.1, n_queries=None):
    """An aggregated log with its candidates, click rates, the test documents, the curve."""
    n_queries = n_queries or settings.queries or 1_000
    if settings.letor is None:
        documents, fraction = make_ltr(2 * n_queries, random_state=seed), 0.01
        asked = documents["qid"] < n_queries
    else:
        documents, fraction = whole_letor(settings.letor), 0.05
        documents["qid"] = pd.factorize(documents["qid"])[0]
        asked = np.random.default_rng(seed).permutation(documents["qid"].max() + 1) % 2 == 0
        asked = asked[documents["qid"]]
    training, test = (documents[rows].reset_index(drop=True) for rows in (asked, ~asked))
    scores = hidden_signal_scores(
        production_scores(training, fraction=fraction, random_state=seed),
        training["relevance"],
        strength=strength,
        random_state=seed,
    )
    X, clicks, truth = simulate_clicks(
        training,
        n_sessions=settings.sessions or 100 * n_queries,
        n_positions=k,
        scores=scores,
        user=PositionBasedUser(float(eta)),
        gain="binary",
        max_grade=documents["relevance"].max(),
        noise=noise,
        features=False,
        random_state=seed,
    )
    log, rate = aggregate_clicks(X.assign(click=clicks), training)
    hidden = training[~training["doc"].isin(log["doc"])].assign(session=-1, impressions=1)
    log = pd.concat([log, hidden], ignore_index=True)
    rate = np.concatenate([rate, np.zeros(len(hidden))])
    test["relevance"] = (test["relevance"] > documents["relevance"].max() / 2).astype(int)
    return log, rate, test, truth.examination


def rankers(curve):
    """Rankers by class and name."""
    ips = {"propensity": curve}
    literal = {**ips, "correction": "divide", "clip": None}

    def members(**settings):
        return [("ips", IPSRanker(**literal, **settings)), ("heckman", HeckmanRanker(**settings))]

    squash = FunctionTransformer(lambda X: np.sign(X) * np.log1p(np.abs(X)))
    ridge = make_pipeline(squash, StandardScaler(), Ridge(alpha=10.0))
    pairs = {**ips, "loss": "pairwise"}
    yield "linear", "naive", NaiveRanker(**LINEAR)
    yield "linear", "IPS", IPSRanker(**literal, **LINEAR)
    yield "linear", "IPS, least squares", IPSRanker(**ips, estimator=ridge)
    yield "linear", "IPS, pairs", IPSRanker(**pairs, **LINEAR)
    yield "linear", "Heckman", HeckmanRanker(**HECKMAN)
    yield "linear", "Heckman, debiased", HeckmanRanker(debias=True, **ips, **HECKMAN)
    yield "linear", "RankAgg", RankAggRanker(members(**LINEAR))
    yield "linear", "CLD by rows", CLDRanker(**ips, **ROWS)
    yield "linear", "CLD-pair", CLDRanker(**pairs, **LINEAR)
    yield "linear", "CLD by rows, gamma 0", CLDRanker(**ips, gamma=0.0, **ROWS)
    yield "linear", "CLD-pair, equation 12", CLDRanker(**pairs, variant="published", **LINEAR)
    yield "linear", "CLD, equation 9", CLDRanker(**ips, variant="published", **ROWS)
    yield "linear", "CLD, gamma estimated", CLDRanker(**ips, gamma="estimate", **ROWS)
    yield "network", "naive", NaiveRanker(**NEURAL)
    yield "network", "IPS", IPSRanker(**literal, **NEURAL)
    yield "network", "IPS, least squares", IPSRanker(**ips, loss="mse", **NEURAL)
    yield "network", "IPS, pairs", IPSRanker(**pairs, **NEURAL)
    yield "network", "RankAgg", RankAggRanker(members(**NEURAL))
    yield "network", "Heckman", HeckmanRanker(**NEURAL)
    yield "network", "Heckman, debiased", HeckmanRanker(debias=True, **ips, **NEURAL)
    yield "network", "CLD", CLDRanker(**ips, **NEURAL)
    yield "network", "CLD, gamma 0", CLDRanker(**ips, gamma=0.0, **NEURAL)
    yield "network", "CLD by lists", CLDRanker(**ips, loss="listwise", **NEURAL)
    yield "network", "CLD-pair", CLDRanker(**pairs, **NEURAL)
    yield "network", "CLD-pair, gamma 0", CLDRanker(**pairs, gamma=0.0, **NEURAL)


def worlds(cell, settings, seed, told=None):
    """One row for each ranker; ``told`` is the curve that rankers are given."""
    log, rate, test, curve = world(FIRST_SEED + seed, settings, **cell)
    relevant, qid = test["relevance"], test["qid"]
    for kind, name, ranker in rankers(curve if told is None else told):
        scores = ranker.fit(log, rate).predict(test)
        yield {
            "class": kind,
            "ranker": name,
            **{f"nDCG@{k}": ndcg_score(relevant, scores, qid=qid, k=k) for k in (1, 3)},
            "MAP": average_precision_score(relevant, scores, qid=qid),
        }


def cutoffs(cell, settings, seed):
    return worlds(cell, settings, seed)


def noise(cell, settings, seed):
    return worlds(cell, settings, seed)


def misspecified(cell, settings, seed):
    """Rankers are told another exponent than 1, the true one."""
    told = np.arange(1, 6) ** -cell["told eta"]
    return worlds({"strength": cell["strength"]}, settings, seed, told)


#: Skultr's form of CLD-pair, with these parts of equation 12 in place of its own.
PARTS = {
    "winner's term": ("winner",),
    "unweighted pairs": ("unweighted",),
    "mixed pairs": ("mixed",),
    "all three": ("winner", "unweighted", "mixed"),
}
FORMS = ("Naive", "IPS", "CLD-pair", "CLD-pair, printed", "CLD by pairs, skultr")


def causes(cell, settings, seed):
    """Forms of CLD-pair, and skultr's with parts of equation 12, on the logs of Table 2.

    These logs, networks and trainings are those of ``papers/cld``.
    """
    log = Log(**cell, eta=0.1)
    methods = {"network": (*FORMS, *PARTS)}
    for row in log_rows(log, settings, seed, methods=methods, make=_forms_with_parts):
        yield {"ranker": row.pop("method"), **row}


def _forms_with_parts(model, settings, examination):
    found = paper_rankers(model, settings, examination)
    skultrs, grid = found["CLD by pairs, skultr"]
    for name, parts in PARTS.items():
        one = type("Parts", (WithParts,), {"parts": parts})
        found[name] = one(**skultrs.get_params(deep=False)), grid
    return found


class WithParts(CLDRanker):
    """CLD by pairs with parts of equation 12."""

    parts = ()

    def _criterion(self, rows, unit, scale):
        return LossWithParts(self.parts, unit, rows, self.gamma_, self._selects)


class LossWithParts(PairLoss):
    """The default's loss of pairs, but for some parts."""

    def __init__(self, parts, *settings):
        super().__init__(*settings)
        self.parts = parts

    def pair_terms(self, one, other):
        """Terms of pairs of rows, as those of the package."""
        found = list(super().pair_terms(one, other))
        relevance, selection, label, shown = one
        other_relevance, other_selection, other_label, other_shown = other
        both = shown & other_shown
        side = torch.where(both, label - other_label, 0.0).sign()
        difference = relevance - other_relevance
        if "unweighted" in self.parts:
            found[0] = side.abs() * logsigmoid(side * difference)
        if "winner" in self.parts:
            up = logsigmoid(selection + side * difference)
            up = up + logsigmoid(other_selection + side * difference)
            found[1] = torch.where(both, up, found[1])
        if "mixed" in self.parts:
            sign = torch.where(shown, 1.0, -1.0)  # both orders, so that it does not matter
            index = torch.where(shown, selection, other_selection)
            either = logsigmoid(index + sign * difference) + logsigmoid(index - sign * difference)
            mixed = shown ^ other_shown
            found[1] = torch.where(mixed, either, found[1])
            found[2:] = [torch.where(mixed, 2 * each, each) for each in found[2:]]
        return found


#: True coefficients of relevance, in units of its error, and of selection.
BETA, OMEGA, UNIT = np.array([1, -0.5, 0.3, 0]), np.array([0.8, 0.2, -0.4, 0.5]), 0.08


#: Thresholds for each document and random positions, and worlds in which one thing is otherwise.
KINDS = (
    *("plain", "served order", "rare clicks", "by rank"),
    *("heavy tails", "skew errors", "uneven traffic"),
)


def selection_world(impressions, rho, seed, kind="plain", n_queries=500, n_documents=20):
    """A log that follows the model, selection by a threshold per document, at random positions."""
    rng = np.random.default_rng(seed)
    n = n_queries * n_documents
    X = rng.normal(size=(n, 4))
    error = rng.normal(size=n)
    other = rho * error + np.sqrt(1 - rho**2) * rng.normal(size=n)
    if kind == "heavy tails":
        error /= np.sqrt(rng.chisquare(5, n) / 3)
    if kind == "skew errors":
        error = (np.exp(0.5 * error) - np.exp(0.125)) / np.sqrt(np.exp(0.5) - np.exp(0.25))
    level, unit = (0.15, 0.03) if kind == "rare clicks" else (0.5, UNIT)
    relevance = np.clip(level + unit * (X @ BETA + error), 0, 1)
    log = pd.DataFrame(X, columns=list("abcd"))
    log["qid"], log["doc"] = np.repeat(np.arange(n_queries), n_documents), np.arange(n)
    log["impressions"] = impressions
    if kind == "uneven traffic":
        log["impressions"] = np.repeat(rng.geometric(1 / impressions, n_queries), n_documents)
    latent = X @ OMEGA - 0.8 + other
    shown = latent > 0
    if kind == "by rank":
        shown = pd.Series(latent).groupby(log["qid"]).rank(ascending=False).to_numpy() <= 6
    order = -latent if kind == "served order" else rng.random(n)
    log["position"] = pd.Series(np.where(shown, order, np.nan)).groupby(log["qid"]).rank()
    chance = relevance / log["position"].fillna(1)
    rate = rng.binomial(log["impressions"], chance) / log["impressions"]
    return log, np.where(shown, rate, 0.0)


def estimates(cell, settings, seed):
    """Mean squared errors of the coefficients with gamma 0, estimated, and likeliest."""
    kind, unit = cell["world"], 0.03 if cell["world"] == "rare clicks" else UNIT
    log, rate = selection_world(cell["impressions"], cell["rho"], FIRST_SEED + seed, kind)
    known = {"propensity": 1 / np.arange(1, int(log["position"].max()) + 1), **ROWS}
    known.update(scale_features=False, alpha=0.0)
    estimate = CLDRanker(**known, gamma="estimate").fit(log, rate)
    likeliest = estimate.gamma_profile_["log_likelihood"].idxmax()
    found = {"estimate": estimate}
    for name, gamma in {"gamma 0": 0.0, "likeliest": likeliest}.items():
        found[name] = CLDRanker(**known, gamma=gamma).fit(log, rate)
    for name, ranker in found.items():
        yield {"method": name, "squared": np.mean((ranker.coef_ / unit - BETA) ** 2)}


def click_noise(cell, settings, seed):
    """Mean squared errors of the coefficients, and whether the interval of gamma covers.

    "one tau" is the likelihood with one scale for all rows, that of what least squares leaves.
    """
    rho = cell["rho"]
    log, rate = selection_world(cell["impressions"], rho, FIRST_SEED + seed)
    known = {"propensity": 1 / np.arange(1, int(log["position"].max()) + 1), **ROWS}
    known.update(scale_features=False, alpha=0.0)

    def squared(**settings):
        ranker = CLDRanker(**known, **settings).fit(log, rate)
        return ranker, np.mean((ranker.coef_ / UNIT - BETA) ** 2)

    label = (rate * log["position"])[log["position"].notna()]
    design = np.column_stack([log.loc[label.index, list("abcd")], np.ones(len(label))])
    left = np.linalg.lstsq(design, label, rcond=None)[1][0]
    for name, gamma in {"gamma 0": 0.0, "gamma .2 (default)": 0.2, "gamma = rho": rho}.items():
        scale = np.sqrt(left / len(label))
        yield {"method": f"{name}, one tau", "squared": squared(gamma=gamma, scale=scale)[1]}
        yield {"method": name, "squared": squared(gamma=gamma)[1]}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ranker, value = squared(gamma="estimate")
    low, high = ranker.gamma_interval_
    warned = any("does not determine" in str(each.message) for each in caught)
    told = {"covers": low <= rho <= high, "warned": warned}
    told["covers or warned"] = told["covers"] or warned
    yield {"method": "estimate", "squared": value, **{k: float(v) for k, v in told.items()}}


#: Networks whose scores ``ensembles`` averages; the first two repeat one ranker.
ENSEMBLES = [
    ("IPS", "IPS, seed 1", "IPS, seed 2"),
    ("CLD by lists", "CLD by lists, seed 1", "CLD by lists, seed 2"),
    ("IPS", "CLD-pair", "Heckman, debiased"),
    ("IPS", "CLD-pair", "CLD by lists"),
    ("CLD by lists", "CLD-pair", "Heckman, debiased"),
]


def ensembles(cell, settings, seed):
    """nDCG@3 of networks, and of the mean of the standardised scores of three."""
    log, rate, test, curve = world(
        FIRST_SEED + seed, settings, cell["strength"], n_queries=cell["queries"]
    )
    scores = {}
    for name, ranker in _members(curve).items():
        values = pd.Series(ranker.fit(log, rate).predict(test)).groupby(test["qid"])
        gap = values.obj - values.transform("mean")
        scores[name] = gap / values.transform("std").clip(lower=1e-12)
    for names in [*((name,) for name in scores), *ENSEMBLES]:
        mean = np.mean([scores[name] for name in names], axis=0)
        value = ndcg_score(test["relevance"], mean, qid=test["qid"], k=3)
        yield {"ranker": " + ".join(names), "nDCG@3": value}


def _members(curve):
    ips, found = {"propensity": curve}, {}
    for seed in range(3):
        suffix = f", seed {seed}" if seed else ""
        literal = {"correction": "divide", "clip": None, "random_state": seed}
        found[f"IPS{suffix}"] = IPSRanker(**ips, **literal)
        lists = CLDRanker(**ips, loss="listwise", random_state=seed)
        found[f"CLD by lists{suffix}"] = lists
    found["CLD-pair"] = CLDRanker(**ips, loss="pairwise", **NEURAL)
    found["Heckman, debiased"] = HeckmanRanker(debias=True, **ips, **NEURAL)
    return found


STRENGTHS = (0.0, 1.0)
RANKED = {"by": ("class", "ranker"), "metrics": ("nDCG@1", "nDCG@3", "MAP")}
PAGE = Page(
    "studies/cld",
    "Documents that were never shown",
    (
        measured(
            worlds,
            "With and without a hidden signal, by position bias",
            over={"strength": (0.0, 0.5, 1.0, 2.0), "eta": (1.0, 0.1)},
            **RANKED,
        ),
        measured(
            causes,
            "Forms of CLD-pair, and what equation 12 costs part by part",
            over={"world": ("non-linear", "hidden signal")},
            by=("ranker",),
            metrics=("nDCG@1", "nDCG@3", "MAP"),
            runs=6,
            paired=("world",),
        ),
        measured(
            cutoffs,
            "By how many were shown",
            over={"strength": STRENGTHS, "k": (2, 3, 5, 10, 15, 20)},
            **RANKED,
        ),
        measured(
            noise,
            "By click noise",
            over={"strength": STRENGTHS, "noise": (0, 0.1, 0.3, 0.5)},
            **RANKED,
        ),
        measured(
            misspecified,
            "With wrong propensities",
            over={"strength": STRENGTHS, "told eta": (0.0, 0.5, 1.0, 1.5, 2.0)},
            **RANKED,
        ),
        measured(
            click_noise,
            "Mean squared errors of coefficients",
            ("squared", "covers", "warned", "covers or warned"),
            over={"impressions": (20, 200, 100_000), "rho": (0.0, 0.5)},
            by=("method",),
            runs=40,
        ),
        measured(
            estimates,
            "Estimates of gamma in several worlds",
            ("squared",),
            over={"world": KINDS, "impressions": (20, 200), "rho": (0.0, 0.5)},
            by=("method",),
            runs=6,
        ),
        measured(
            ensembles,
            "Means of several networks",
            ("nDCG@3",),
            over={"strength": STRENGTHS, "queries": (400, 1_000)},
            by=("ranker",),
            runs=7,
        ),
    ),
)
