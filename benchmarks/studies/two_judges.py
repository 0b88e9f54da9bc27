"""Do intervals of few trusted and many cheap labels hold the truth, and how narrow are they?

``coverage`` draws the metrics of queries themselves, for 20, 50 or 200 queries with trusted labels
and 500 or 5,000 with cheap ones: paired differences of two rankers whose ``correlation`` between
the judges, over queries, is 0, .3, .7 or .95. In the world ``normal`` they are normal. In
``gains`` 60 % of the queries tie and the others gain by an exponential law (skewed), and the judge
sees each query's gain as it is, or that of another query. In ``rare`` 70 % tie, and the judge errs
in all queries alike. The judge is biased in all of them, and of another scale. ``trusted`` and
``both`` are shares of 95 % intervals that hold the truth, by the trusted labels alone and as
``compare_rankers(judge=)`` gives them; ``wrong`` is the share of verdicts where there is no
difference; ``width`` the mean width over that of the trusted labels alone; ``used`` the share of
samples where the judge counted; ``always`` is ``both`` if the judge counted however few queries
differ.

``documents`` draws queries of 20 documents with grades of people, and of a judge who likes what
one ranker likes and is strict or mild by query (errors are correlated); nDCG@10 by
``compare_rankers``. ``r`` is the correlation of the differences of queries.

``search`` is the same with two candidates and ``RankingScorer``: the standard deviation of the
error of the difference of their scores, over that of the trusted labels alone, for the weight of
``RankingScorer(judge=)``, and for a weight of each candidate's own, of 1, and the best one (of the
differences of all queries, which nobody knows). ``best r`` is the correlation of the differences.

Four minutes of one core with ``--quick``, where the documentation has its figures from
(coverage: ``--runs 2``).
"""

import numpy as np
import pandas as pd

from skultr.evaluation import compare_rankers
from skultr.metrics import RankingScorer, ndcg_score
from skultr.metrics._query_means import bootstrap, sign_flips
from skultr.metrics._two_judges import JudgedQueries, two_judges

from .._study import Exhibit, Page, Study, grid

LEVEL = 0.95
N_RESAMPLES = 499
FIRST_SEED = 10_000
SAMPLES = {"world": ("normal", "gains", "rare"), "trusted queries": (20, 50, 200)}
JUDGES = {"cheap queries": (500, 5_000), "correlation": (0.0, 0.3, 0.7, 0.95)}
FEW = {"trusted queries": (10, 20, 50), "noise": (0.0, 0.5, 1.2)}
N_QUERIES, N_DOCUMENTS = 500, 20


# Metrics of queries --------------------------------------------------------------------
def normal(rng, n, correlation):
    """Differences, the judge's, and the true mean."""
    truth = rng.normal(size=n)
    cheap = correlation * truth + np.sqrt(1 - correlation**2) * rng.normal(size=n)
    return truth, cheap, 0.0


def gains(rng, n, correlation):
    """Skewed differences; the judge sees them as they are, or those of another query."""
    truth, other = np.where(rng.random((2, n)) < 0.6, 0.0, rng.exponential(size=(2, n)) - 0.2)
    cheap = np.where(rng.random(n) < correlation, truth, other)
    return truth, cheap, 0.4 * 0.8


def rare(rng, n, correlation):
    """Few queries differ; the judge errs in all of them alike."""
    truth = np.where(rng.random(n) < 0.7, 0.0, rng.exponential(size=n) - 0.2)
    spread = np.sqrt(0.3 * 1.64 - 0.24**2)
    error = rng.exponential(size=n) - 1
    cheap = correlation * truth / spread + np.sqrt(1 - correlation**2) * error
    return truth, cheap, 0.3 * 0.8


WORLDS = {"normal": normal, "gains": gains, "rare": rare}


def coverage(cell, settings, seed):
    """Intervals of many samples."""
    n_samples = settings.size(quick=200, full=1_000, tiny=3)
    # The rules were chosen on samples below 10,000.
    first = FIRST_SEED + seed * n_samples
    rows = [_sample(cell, first + number) for number in range(n_samples)]
    table = pd.DataFrame(rows)
    means = table.mean()
    yield dict(means) | {"width": means["width"] / means["width of trusted"]}


def _sample(cell, seed):
    n_trusted = cell["trusted queries"]
    n_queries = cell["cheap queries"]
    draws = np.random.default_rng(seed)
    truth, cheap, mean = WORLDS[cell["world"]](draws, n_queries, cell["correlation"])
    is_trusted = np.arange(n_queries) < n_trusted
    # Less the true mean, so that nothing is to be found.
    trusted = np.where(is_trusted, truth - mean, np.nan)[:, None]
    queries = JudgedQueries(trusted, 0.6 * cheap[:, None] + 0.1, is_trusted)
    rng = np.random.RandomState(seed)
    lower, upper = bootstrap(trusted[is_trusted], n_trusted, LEVEL, N_RESAMPLES, rng)
    found = two_judges(queries, LEVEL, N_RESAMPLES, rng)
    helps = found.helps(lower, upper)
    low = np.where(helps, found.lower, lower).item()
    high = np.where(helps, found.upper, upper).item()
    narrower = found.upper - found.lower < upper - lower
    always_low = np.where(narrower, found.lower, lower).item()
    always_high = np.where(narrower, found.upper, upper).item()
    flips = sign_flips(trusted[is_trusted], N_RESAMPLES, rng)
    p_value = np.where(helps, found.p_value, flips).item()
    return {
        "trusted": float(lower.item() <= 0 <= upper.item()),
        "wrong": float(p_value <= 1 - LEVEL and not low <= 0 <= high),
        "both": float(low <= 0 <= high),
        "always": float(always_low <= 0 <= always_high),
        "width": high - low,
        "width of trusted": (upper - lower).item(),
        "used": float(helps.item()),
    }


# Documents -----------------------------------------------------------------------------
def worlds_of_documents(rng, noise, n_queries=N_QUERIES):
    """Grades of people and of a judge, and two signals of the documents."""
    shape = (n_queries, N_DOCUMENTS)
    of_text = rng.normal(size=shape)
    of_links = rng.normal(size=shape)
    utility = of_text + 0.6 * of_links + rng.normal(0, 0.5, (n_queries, 1))
    people = np.clip(np.floor((utility - 0.2) / 0.7), 0, 4)
    # The judge likes links too much, and is strict in some queries.
    mood = rng.normal(0, 0.3, (n_queries, 1))
    seen = utility + 0.3 * of_links + noise * rng.normal(size=shape) + mood
    judge = np.clip(np.floor(seen / 0.8), 0, 4)
    return people, judge, of_text, of_links


def rankers(rng, of_text, of_links):
    """Two rankers that differ in what they know and how well."""
    shape = of_text.shape
    old = of_text + 0.3 * of_links + rng.normal(0, 0.5, shape)
    new = of_text + 0.6 * of_links + rng.normal(0, 0.8, shape)
    return {"old": old.ravel(), "new": new.ravel()}


def _frame(people, judge, n_trusted):
    qid = np.repeat(np.arange(len(people)), N_DOCUMENTS)
    relevance = np.where(qid < n_trusted, people.ravel(), np.nan)
    columns = {"qid": qid, "doc": np.arange(len(qid)), "relevance": relevance}
    return pd.DataFrame(columns | {"outcome_llm": judge.ravel()})


def _ndcg(labels, scores, qid):
    table = ndcg_score(labels.ravel(), scores, qid=qid, k=10, no_relevant=0, per_query=True)
    return table.iloc[:, 0].to_numpy()


def _true_difference(noise):
    """The mean over many queries; the same in all runs."""
    rng = np.random.default_rng(1_000_000)
    people, _, *signals = worlds_of_documents(rng, noise, 100_000)
    qid = np.repeat(np.arange(len(people)), N_DOCUMENTS)
    scores = rankers(rng, *signals)
    defined = people.any(axis=1)
    difference = _ndcg(people, scores["new"], qid) - _ndcg(people, scores["old"], qid)
    return difference[defined].mean()


def documents(cell, settings, seed):
    """Comparisons of two rankers by compare_rankers."""
    n_samples = settings.size(quick=100, full=300, tiny=2)
    noise = cell["noise"]
    truth = _true_difference(noise)
    rows = []
    for number in range(n_samples):
        rng = np.random.default_rng(FIRST_SEED + seed * n_samples + number)
        people, judge, *signals = worlds_of_documents(rng, noise)
        scores = rankers(rng, *signals)
        X = _frame(people, judge, cell["trusted queries"])
        given = {"random_state": 0, "n_resamples": N_RESAMPLES}
        alone = compare_rankers(scores, X.drop(columns="outcome_llm"), **given).table.iloc[0]
        both = compare_rankers(scores, X, judge="outcome_llm", **given).table.iloc[0]
        of_people, of_judge = (
            _ndcg(labels, scores["new"], X["qid"]) - _ndcg(labels, scores["old"], X["qid"])
            for labels in (people, judge)
        )
        rows.append(
            {
                "trusted": float(alone["lower"] <= truth <= alone["upper"]),
                "both": float(both["lower"] <= truth <= both["upper"]),
                "width": both["upper"] - both["lower"],
                "width of trusted": alone["upper"] - alone["lower"],
                "used": float(both["judge_weight"] > 0),
                "r": np.corrcoef(of_people, of_judge)[0, 1],
            }
        )
    means = pd.DataFrame(rows).mean()
    yield dict(means) | {"width": means["width"] / means["width of trusted"]}


# Searches ------------------------------------------------------------------------------
def search(cell, settings, seed):
    """Errors of the difference of two candidates' scores, by weight."""
    n_samples = settings.size(quick=100, full=400, tiny=3)
    rows = [_errors(cell, FIRST_SEED + seed * n_samples + number) for number in range(n_samples)]
    table = pd.DataFrame(rows)
    spread = table.drop(columns="best r").std()
    yield dict(spread / spread["trusted"]) | {"best r": table["best r"].mean()}


def _errors(cell, seed):
    rng = np.random.default_rng(seed)
    people, judge, *signals = worlds_of_documents(rng, cell["noise"])
    scores = rankers(rng, *signals)
    n_trusted = cell["trusted queries"]
    X = _frame(people, judge, n_trusted)
    everyone = X.assign(relevance=people.ravel())
    options = {"no_relevant": 0}
    found = {
        "trusted": RankingScorer(**options),
        "RankingScorer": RankingScorer(judge="outcome_llm", **options),
    }
    full = RankingScorer(**options)
    true = full(scores["new"], everyone) - full(scores["old"], everyone)
    errors = {
        name: scorer(scores["new"], X) - scorer(scores["old"], X) - true
        for name, scorer in found.items()
    }
    values = {
        name: [_ndcg(labels, scores[name], X["qid"]) for labels in (people, judge)]
        for name in scores
    }
    gap = {name: cheap[:n_trusted].mean() - cheap.mean() for name, (_, cheap) in values.items()}
    own = {
        name: _slope(trusted[:n_trusted], cheap[:n_trusted]) * gap[name]
        for name, (trusted, cheap) in values.items()
    }
    difference = [new - old for new, old in zip(values["new"], values["old"], strict=True)]
    between = gap["new"] - gap["old"]
    errors["own"] = errors["trusted"] - (own["new"] - own["old"])
    errors["one"] = errors["trusted"] - between
    errors["best"] = errors["trusted"] - _slope(*difference) * between
    errors["best r"] = np.corrcoef(*difference)[0, 1]
    return errors


def _slope(trusted, cheap):
    deviation = cheap - cheap.mean()
    square = deviation @ deviation
    return max(deviation @ trusted / square, 0.0) if square > 0 else 0.0


COVERAGE = Study("two_judges", coverage, grid(**SAMPLES, **JUDGES), 1, full_runs=1, hours=0.3)
DOCUMENTS = Study("documents", documents, grid(**FEW), 1, full_runs=1, hours=0.3)
SEARCH = Study("search", search, grid(**FEW), 1, full_runs=1, hours=0.2)
PAGE = Page(
    "studies/two_judges",
    "Few trusted and many cheap labels",
    (
        Exhibit(
            "coverage",
            "Share of intervals of 95 % that hold the truth, and their width",
            COVERAGE,
            (*SAMPLES, *JUDGES),
            ("trusted", "both", "always", "wrong", "width", "used"),
        ),
        Exhibit(
            "documents",
            "The same by compare_rankers, with grades of documents",
            DOCUMENTS,
            (*FEW,),
            ("trusted", "both", "width", "used", "r"),
        ),
        Exhibit(
            "search",
            "Error of the difference of two candidates, over that of the trusted labels alone",
            SEARCH,
            (*FEW,),
            ("RankingScorer", "own", "one", "best", "best r"),
        ),
    ),
)
