"""Does the better of two rankings win? Logs, pairs of rankings, and judgments that compare them.

400 queries of 20 documents whose log odds of relevance are normal; the top 10 of production's
scores with a little noise are shown. ``production`` is weak, good or strong (noise of standard
deviation 2.5, 0.9, 0.4), or knows a ``hidden`` signal that is half of what relevance varies by.
``examined`` is the mean number of examinations of a document of a query. Users are
position-based (``pbm``), trust the top (``trust``) or stop when satisfied (``satisfied``).

Pairs of rankings differ by 0.5, 2 or 10 % of true nDCG@10 (linear gain, all documents):
``versions`` of one ranker, one with more noise, or a ``rival`` of production, independent of it,
that is better or worse. A judge decides by the verdict of ``compare_rankers`` (linear gain, rated
documents). ``right`` and ``wrong`` are shares of pairs, the rest is "cannot tell"; ``size`` is
the difference that is found over the true one, its mean over pairs of 2 and 10 %.

Judges: ``truth``, the true relevance of all documents, which may not tell either; ``judged``,
:func:`skultr.serving.click_judgments` with a ``UBMModel``, or where users trust the top with the
true coefficients; ``labels``, posterior means; ``COEC``, clicks over clicks expected at the
positions; ``rate``, clicks per impression; ``people``, 1,000 ratings with errors: all documents
of 50 queries; ``condensed``, the truth of the pairs alone that ``judged`` rates: what it decides
differently from ``truth`` comes from which pairs production had looked at.
"""

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import expit

from skultr.click_models import UBMModel
from skultr.evaluation import compare_rankers
from skultr.propensity import relevance_labels
from skultr.serving import click_judgments

SHOWN = 10
CURVE = np.arange(1, SHOWN + 1) ** -0.9
#: Chance that an examined irrelevant document is clicked, by users who trust the top.
TRUST = np.linspace(0.35, 0.02, SHOWN)
NOISE = {"weak": 2.5, "good": 0.9, "strong": 0.4}
JUDGES = ("judged", "labels", "COEC", "rate", "people", "truth", "condensed")
DIFFERENCES = (0.005, 0.02, 0.1)
WORLDS = {
    "production": (*NOISE, "hidden"),
    "user": ("pbm", "trust", "satisfied"),
    "examined": (1, 3, 10, 50),
}


def shop(rng, production, user, examined, shape=(400, 20)):
    """A log, the true log odds, production's scores, and what a ranker may know of relevance."""
    known = rng.normal(0, 1, shape)
    if production == "hidden":
        hidden = rng.normal(0, 1, shape)
        taste = np.sqrt(0.5) * (known + hidden)
        score = 0.5 * known + hidden
    else:
        taste = known
        score = taste + rng.normal(0, NOISE[production], shape)
    odds = taste - 1.6
    n_pages = max(1, round(examined * shape[1] / CURVE.sum()))
    query = np.repeat(np.arange(shape[0]), n_pages)
    noisy = score[query] + 0.35 * rng.gumbel(size=(len(query), shape[1]))
    order = np.argsort(-noisy, axis=1)[:, :SHOWN]
    relevance = expit(odds)[query[:, None], order]
    log = {
        "qid": np.repeat(query, SHOWN),
        "session": np.repeat(np.arange(len(query)), SHOWN),
        "doc": order.ravel(),
        "position": np.tile(np.arange(1, SHOWN + 1), len(query)),
        "click": _clicks(rng, user, relevance).astype(int).ravel(),
    }
    return pd.DataFrame(log), odds, score, known


def _clicks(rng, user, relevance):
    """Clicks of pages, shape (n_pages, SHOWN)."""
    if user == "pbm":
        return rng.random(relevance.shape) < CURVE * relevance
    if user == "trust":
        chance = CURVE * (0.95 * relevance + TRUST * (1 - relevance))
        return rng.random(relevance.shape) < chance
    # Users go on after a click with a chance of 0.3, else of 0.92.
    is_there = np.ones(len(relevance), dtype=bool)
    clicks = np.zeros(relevance.shape, dtype=bool)
    for place in range(SHOWN):
        is_liked = rng.random(len(relevance)) < relevance[:, place]
        clicks[:, place] = is_there & is_liked
        leaves = np.where(clicks[:, place], 0.7, 0.08)
        is_there &= rng.random(len(relevance)) > leaves
    return clicks


def judgments_of(rng, log, user, odds):
    """Ratings by each judge."""
    if user == "trust":
        alpha = CURVE * (0.95 - TRUST)
        judged = click_judgments(log, "click", propensity=alpha, trust=CURVE * TRUST)
        labels = relevance_labels(log, "click", propensity=CURVE, interval=True)
    else:
        judged = click_judgments(log, "click", propensity=UBMModel())
        labels = relevance_labels(log, "click", propensity=UBMModel(), interval=True)
    rate = log.groupby("position")["click"].mean()
    pairs = log.assign(expected=log["position"].map(rate)).groupby(["qid", "doc"])
    counts = pairs.agg(clicks=("click", "sum"), expected=("expected", "sum"), n=("click", "size"))
    counts = counts.reset_index()
    qid, doc = (each.ravel() for each in np.indices(odds.shape))
    truth = pd.DataFrame({"qid": qid, "doc": doc, "relevance": expit(odds).ravel()})
    asked = truth[truth["qid"].isin(rng.choice(len(odds), 50, replace=False))]
    # Grades 0 to 4 of the square root, off by half a grade; people who rate give whole grades.
    felt = 4 * np.sqrt(asked["relevance"]) + rng.normal(0, 0.5, len(asked))
    judged = judged.dropna()
    return {
        "judged": judged,
        "labels": labels.rename(columns={"label": "relevance"}),
        "COEC": counts.assign(relevance=counts["clicks"] / counts["expected"].clip(lower=1e-9)),
        "rate": counts.assign(relevance=counts["clicks"] / counts["n"]),
        "people": asked.assign(relevance=felt.round().clip(0, 4) ** 2),
        "truth": truth,
        "condensed": truth.merge(judged[["qid", "doc"]]),
    }


def quality(relevance, score):
    """Mean nDCG@10 of all documents, with linear gain."""
    discount = 1 / np.log2(np.arange(2, SHOWN + 2))
    order = np.argsort(-score, axis=1)[:, :SHOWN]
    found = np.take_along_axis(relevance, order, 1) @ discount
    best = -np.sort(-relevance, axis=1)[:, :SHOWN] @ discount
    return np.mean(found / best)


def pairs_of_rankings(rng, odds, score, known):
    """The better and the worse ranking, by the kind of pair and their difference."""
    relevance = expit(odds)
    base = known + 0.8 * rng.normal(size=known.shape)
    noise = rng.normal(size=known.shape)

    def version(size):
        return base + size * noise

    def rival(size):
        return odds + size * noise

    found = {}
    for differ in DIFFERENCES:
        cases = {
            "versions": (version, base, -differ),
            "rival better": (rival, score, differ),
            "rival worse": (rival, score, -differ),
        }
        for pair, (other_of, ours, change) in cases.items():
            wanted = (1 + change) * quality(relevance, ours)

            def missed(size, other_of=other_of, wanted=wanted):
                return quality(relevance, other_of(size)) - wanted

            # Nothing is 10 % better than strong production.
            if missed(0.0) < 0 or missed(50.0) > 0:
                continue
            other = other_of(brentq(missed, 0.0, 50.0, xtol=1e-4))
            found[pair, differ] = (other, ours) if change > 0 else (ours, other)
    return found


def verdicts(cell, seed):
    """What each judge says of each pair of rankings of one log."""
    rng = np.random.default_rng(seed)
    log, odds, score, known = shop(rng, cell["production"], cell["user"], cell["examined"])
    judges = judgments_of(rng, log, cell["user"], odds)
    rankings = pairs_of_rankings(rng, odds, score, known)
    for (pair, differ), (better, worse) in rankings.items():
        found = compared(judges, better, worse, expit(odds))
        yield {"pair": pair, "differ": differ, **found}


def compared(judges, better, worse, relevance):
    """Verdict of each judge, and the size of the difference that it finds."""
    true = quality(relevance, better) - quality(relevance, worse)
    found = {}
    for judge, ratings in judges.items():
        places = ratings["qid"].to_numpy(), ratings["doc"].to_numpy()
        X = ratings[["qid", "doc", "relevance"]]
        X = X.assign(better=better[places], worse=worse[places])
        names = {"better": "better", "worse": "worse"}
        comparison = compare_rankers(
            names, X, baseline="worse", gain="linear", n_resamples=999, random_state=0
        )
        row = comparison.table.iloc[0]
        found[f"right {judge}"] = float(row["verdict"] == "better")
        found[f"wrong {judge}"] = float(row["verdict"] == "worse")
        found[f"size {judge}"] = row["difference"] / true
    return found
