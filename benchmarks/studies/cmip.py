"""CMIP against known answers: error by dependence and size, time, and the test's level.

Documents have five grades of unequal size; within each, score and logged position are normal with
correlation rho, whose information is -log(1 - rho^2) / 2. Of 200 documents (and now and then of
500) the smallest grades have fewer than 20. For comparison, a published
implementation (LightGBM as it comes, one split for all repetitions, odds clipped at 1e-8) gave at
5,000 / 50,000 documents -.274 / -.026 for 0, and .172 / .459 for .511 (rho = .8).

The last table has clicks on shuffled lists in the place of grades. Scores are the log of the true
relevance and noise ("unbiased"; "relative" less the mean of the query), three tenths of the log
examination of the production position more ("copies .3"), or click rates of the production lists
("click rate"). Of unbiased scores at most .08 of the p-values may be at or below .05, of the last
two many should be. DBN users break the assumption that the click rate at random positions is a
function of relevance, and relative scores depend on the position relative to the query.

`annotations`: what if the annotation is noisy, or says of pairs only which document is better? Ten
documents per query, logged near the order of a noisy oracle. The scores know the true relevance
("unbiased"), know it badly ("unbiased, weak"), or divide it by the root of the logged rank
("biased"). CMIP of the first two is 0 with the true grades. ``ahead`` is by how much "biased" is
above the row's scores.
"""

import numpy as np

from skultr.datasets import make_ltr
from skultr.metrics import cmip_score
from skultr.simulation import (
    EYE_TRACKING,
    DBNUser,
    PositionBasedUser,
    ShufflePolicy,
    noisy_oracle_scores,
    relevance_probability,
    simulate_clicks,
)

from .._study import Page, cost, measured

SHARES = [0.5, 0.2, 0.15, 0.1, 0.05]
ESTIMATORS = ("knn", "classifier")


def normal_documents(n, rho, seed):
    rng = np.random.default_rng(seed)
    grade = rng.choice(len(SHARES), n, p=SHARES)
    x, noise = rng.normal(size=(2, n))
    return x + grade, rho * x + np.sqrt(1 - rho**2) * noise - 2 * grade, grade


def truth(rho):
    return -0.5 * np.log(1 - rho**2)


def _errors(documents, expected, seed, estimators=ESTIMATORS):
    """A row for each estimator: the error of one repetition."""
    for name in estimators:
        value = cmip_score(*documents, estimator=name, n_repeats=1, random_state=seed)
        yield {"estimator": name, "error": value - expected}


def answers(cell, settings, seed):
    documents = normal_documents(cell["documents"], cell["rho"], seed)
    return _errors(documents, truth(cell["rho"]), seed, (*ESTIMATORS, "published"))


def _of_correlations(*rhos):
    """Documents with one correlation per grade, grades of equal share."""

    def documents(n, seed):
        rng = np.random.default_rng(seed)
        grade = rng.integers(0, len(rhos), n)
        rho = np.array(rhos)[grade]
        x, noise = rng.normal(size=(2, n))
        return x, rho * x + np.sqrt(1 - rho**2) * noise, grade

    return documents, np.mean([truth(rho) for rho in rhos])


def _parabola(n, seed):
    rng = np.random.default_rng(seed)
    x, noise = rng.normal(size=(2, n))
    return x, x**2 + 0.5 * noise, rng.integers(0, 3, n)


WORLDS = {
    "independent": _of_correlations(0, 0, 0),
    "0, .3, .6, .9": _of_correlations(0, 0.3, 0.6, 0.9),
    "+.8, -.8": _of_correlations(0.8, -0.8),
    ".6 in five grades": _of_correlations(*[0.6] * 5),
    "five unequal grades, .3": (lambda n, seed: normal_documents(n, 0.3, seed), truth(0.3)),
    "five unequal grades, .9": (lambda n, seed: normal_documents(n, 0.9, seed), truth(0.9)),
    "parabola": (_parabola, 0.801),  # by neighbours, 200,000 documents
}


def coverage(cell, settings, seed):
    """Error, standard error, and whether 1.96 of them hold the truth."""
    documents, expected = WORLDS[cell["world"]]
    for estimator in ESTIMATORS:
        found = cmip_score(
            *documents(cell["documents"], seed),
            estimator=estimator,
            n_repeats=3,
            n_permutations=1,
            random_state=seed,
            return_result=True,
        )
        error, reported = found.value - expected, found.standard_error
        held = float(abs(error) <= 1.96 * reported)
        yield {"estimator": estimator, "error": error, "standard error": reported, "holds": held}


#: Sizes of grades, most of fewer than 20 documents.
SMALL = {
    "5 grades of 15": [15] * 5,
    "5 grades of 5": [5] * 5,
    "40 grades of 5": [5] * 40,
    "100 grades of 2": [2] * 100,
    "5 grades of 6 to 100": [100, 50, 30, 14, 6],
}


def small(cell, settings, seed):
    """Model and logger both rank by grade."""
    rng, sizes, rho = np.random.default_rng(seed), SMALL[cell["grades"]], cell["rho"]
    grade = np.repeat(np.arange(len(sizes)), sizes)
    x, noise = rng.normal(size=(2, len(grade)))
    documents = x + grade, rho * x + np.sqrt(1 - rho**2) * noise - 2 * grade, grade
    return _errors(documents, truth(rho), seed, ["knn"])


def ties(cell, settings, seed):
    """Scores of two values, positions of five: the information of their table."""
    table = np.array([[0.18, 0.14, 0.10, 0.06, 0.02], [0.02, 0.06, 0.10, 0.14, 0.18]])
    independent = table.sum(axis=1, keepdims=True) * table.sum(axis=0)
    rng = np.random.default_rng(seed)
    place = rng.choice(10, cell["documents"], p=table.ravel())
    documents = place // 5, place % 5, rng.integers(0, 3, len(place))
    return _errors(documents, (table * np.log(table / independent)).sum(), seed)


def times(cell, settings, seed):
    """One call with its test, as it comes."""
    documents = normal_documents(cell["documents"], cell["rho"], seed)
    for name in ESTIMATORS:
        spent = cost(lambda name=name: cmip_score(*documents, estimator=name, random_state=0))
        yield {"estimator": name, **spent}


LEVELS = {"5 of 15": (5, 15), "5 of 5": (5, 5), "3 of 25": (3, 25), "3 of 200": (3, 200)}


def level(cell, settings, seed):
    """Whether the p-value is at most .05; grades differ in both scores."""
    n_grades, n_each = LEVELS[cell["grades"]]
    rng, rho = np.random.default_rng(seed), cell["rho"]
    grade = np.repeat(np.arange(n_grades), n_each)
    x, noise = rng.normal(size=(2, len(grade)))
    y = rho * x + np.sqrt(1 - rho**2) * noise
    found = cmip_score(
        grade + 0.5 * x,
        0.5 * y - grade,
        grade,
        estimator="knn",
        n_repeats=1,
        random_state=seed,
        return_result=True,
    )
    return [{"p <= .05": float(found.p_value <= 0.05), "p": found.p_value}]


#: Shares of grades, by their number.
GRADES = {2: [0.7, 0.3], 5: SHARES}


def queries(cell, settings, seed):
    """Whether the p-value is at most .05 in 300 documents; queries differ in both scores."""
    rng, n_each, rho = np.random.default_rng(seed), cell["documents per query"], cell["rho"]
    query = np.repeat(np.arange(300 // n_each), n_each)
    effects = cell["effect"] * rng.normal(size=(2, query[-1] + 1))[:, query]
    grade = rng.choice(cell["grades"], len(query), p=GRADES[cell["grades"]])
    x, noise = rng.normal(size=(2, len(query)))
    y = rho * x + np.sqrt(1 - rho**2) * noise
    for name, qid in {"without": None, "with": query}.items():
        found = cmip_score(
            grade + 0.5 * x + effects[0],
            0.5 * y - grade + effects[1],
            grade,
            estimator="knn",
            n_repeats=1,
            n_permutations=99,
            random_state=seed,
            qid=qid,
            return_result=True,
        )
        yield {"qid": name, "p <= .05": float(found.p_value <= 0.05)}


USERS = {"PBM": PositionBasedUser(), "DBN": DBNUser()}


def _served(cell, seed):
    """One row per document: its query, grade, position by production, clicks and impressions in
    production's and in shuffled lists."""
    rng = np.random.default_rng(seed)
    documents = make_ltr(cell["queries"], n_documents=10, random_state=seed)
    documents = documents[["qid", "doc", "relevance"]]
    log = simulate_clicks(
        documents,
        n_sessions=2 * cell["queries"] * cell["impressions"],
        policy=ShufflePolicy(share=0.5),
        scores=documents["relevance"].to_numpy() + rng.normal(0, 0.8, len(documents)),
        user=USERS[cell["user"]],
        random_state=seed,
    )
    rows = log.X.assign(click=log.clicks, one=1, shuffled=log.X["arm"].notna())
    keys = ["qid", "doc", "relevance"]
    parts = [
        rows[rows["shuffled"] == shuffled]
        .groupby(keys)
        .agg(position=("position", "mean"), clicks=("click", "sum"), impressions=("one", "sum"))
        for shuffled in (False, True)
    ]
    return parts[0].join(parts[1], rsuffix=" shuffled", how="inner").reset_index(), rng


def clicks(cell, settings, seed):
    """Whether the p-value is at most .05, by clicks on shuffled lists and by grades."""
    table, rng = _served(cell, seed)
    qid, grade, position = (table[name].to_numpy() for name in ("qid", "relevance", "position"))
    utility = np.log(relevance_probability(grade)) + 0.3 * rng.normal(size=len(grade))
    mean = table.assign(utility=utility).groupby("qid")["utility"].transform("mean").to_numpy()
    copied = np.log(np.array(EYE_TRACKING))[position.astype(int) - 1]
    rates = table["clicks"] / table["impressions"]
    models = {
        "unbiased": utility,
        "relative": utility - mean,
        "copies .3": utility + 0.3 * copied,
        "click rate": rates + 1e-3 * rng.normal(size=len(rates)),
    }
    shown = table["impressions shuffled"].to_numpy()
    for name, score in models.items():
        row = {"model": name}
        try:
            found = cmip_score(
                score,
                position,
                table["clicks shuffled"].to_numpy() / shown,
                qid=qid,
                impressions=shown,
                return_result=True,
            )
            row |= {"refused": 0.0, "p <= .05": float(found.p_value <= 0.05), "CMIP": found.value}
        except ValueError:
            row |= {"refused": 1.0}
        found = cmip_score(
            score,
            position,
            grade,
            qid=qid,
            estimator="knn",
            n_repeats=1,
            n_permutations=99,
            random_state=seed,
            return_result=True,
        )
        yield row | {"by grades, p <= .05": float(found.p_value <= 0.05)}


# Annotations that are noisy, or of pairs ---------------------------------------------------
N_DOCUMENTS = 10
N_GRADES = 5
#: Log odds that the better of two documents, one grade apart, is preferred: 88 of 100 times.
SHARPNESS = 2.0
#: Pairs per query that somebody compares; there are 45.
FEW_PAIRS = 20


def confused(rate):
    """With this probability a label is the grade of a document drawn from all."""

    def labels(grade, rank, rng):
        return np.where(rng.random(grade.shape) < rate, rng.permuted(grade), grade)

    return labels


def one_off(rate):
    """With this probability a label is a grade too high or too low."""

    def labels(grade, rank, rng):
        step = rng.choice([-1, 1], grade.shape)
        wrong = np.clip(grade + step, 0, N_GRADES - 1)
        return np.where(rng.random(grade.shape) < rate, wrong, grade)

    return labels


def median_of_three(grade, rank, rng):
    """The middle one of three annotators, each of whom errs in three of ten documents."""
    return np.median([confused(0.3)(grade, rank, rng) for _ in range(3)], axis=0)


def where_two_agree(grade, rank, rng):
    """Two of these annotators; documents that they disagree on have no label."""
    first = confused(0.3)(grade, rank, rng)
    second = confused(0.3)(grade, rank, rng)
    return np.where(first == second, first, np.nan)


def trusting(grade, rank, rng):
    """Annotators who saw the page: half of the three documents on top get a grade more."""
    on_top = rank.argsort(axis=1).argsort(axis=1) < 3
    raised = on_top & (rng.random(grade.shape) < 0.5)
    return np.minimum(grade + raised, N_GRADES - 1)


def compared(grade, n_pairs, rng):
    """How often each document of a query was preferred to each other one."""
    n_queries, n_documents = grade.shape
    first, second = np.triu_indices(n_documents, 1)
    drawn = np.argsort(rng.random((n_queries, len(first))), axis=1)[:, :n_pairs]
    query = np.arange(n_queries)[:, None]
    first = first[drawn]
    second = second[drawn]
    gap = grade[query, first] - grade[query, second]
    prefers_first = rng.random(gap.shape) < 1 / (1 + np.exp(-SHARPNESS * gap))
    wins = np.zeros((n_queries, n_documents, n_documents))
    wins[query, first, second] = prefers_first
    wins[query, second, first] = ~prefers_first
    return wins


def win_rate(wins):
    """Share of its comparisons that a document wins, with half a win in one more."""
    won = wins.sum(axis=2)
    lost = wins.sum(axis=1)
    return (won + 0.5) / (won + lost + 1)


def bradley_terry(wins, n_rounds=100):
    """Strength of each document in its query, by the algorithm of minorise and maximise.

    Each document also wins and loses half a comparison with one of strength 1.
    """
    won = wins.sum(axis=2) + 0.5
    number = wins + wins.transpose(0, 2, 1)
    strength = np.ones(won.shape)
    for _ in range(n_rounds):
        both = strength[:, :, None] + strength[:, None, :]
        strength = won / ((number / both).sum(axis=2) + 1 / (strength + 1))
    return strength


def in_fifths(values):
    """Each fifth of the documents as a grade: few documents share a value otherwise."""
    ends = np.quantile(values, np.arange(1, N_GRADES) / N_GRADES)
    return np.searchsorted(ends, values, side="right").astype(float)


def by_pairs(score, n_pairs, *, binned=True):
    """Labels from comparisons of so many pairs of each query."""

    def labels(grade, rank, rng):
        values = score(compared(grade, n_pairs, rng))
        return in_fifths(values) if binned else values

    return labels


ALL_PAIRS = N_DOCUMENTS * (N_DOCUMENTS - 1) // 2
ANNOTATIONS = {
    "true grades": confused(0.0),
    "10 % confused": confused(0.1),
    "20 % confused": confused(0.2),
    "40 % confused": confused(0.4),
    "40 % one off": one_off(0.4),
    "three annotators, median": median_of_three,
    "two annotators who agree": where_two_agree,
    "annotators who trust the top": trusting,
    "all pairs, win rate": by_pairs(win_rate, ALL_PAIRS, binned=False),
    "all pairs, win rate in fifths": by_pairs(win_rate, ALL_PAIRS),
    "20 pairs, win rate in fifths": by_pairs(win_rate, FEW_PAIRS),
    "20 pairs, Bradley-Terry in fifths": by_pairs(bradley_terry, FEW_PAIRS),
    "no annotation": lambda grade, rank, rng: np.zeros(grade.shape),
}


def annotated_scores(n_queries, seed):
    """Grades, mean logged ranks and scores of three models, of shape (n_queries, 10)."""
    rng = np.random.default_rng(seed)
    documents = make_ltr(n_queries, n_documents=N_DOCUMENTS, random_state=seed)
    shape = (n_queries, N_DOCUMENTS)
    grade = documents["relevance"].to_numpy().reshape(shape)
    production = noisy_oracle_scores(documents, random_state=seed).reshape(shape)
    # Sessions by Plackett-Luce, as many as give a mean rank that hardly varies.
    drawn = production + rng.gumbel(size=(100, *shape))
    rank = np.mean((-drawn).argsort(axis=2).argsort(axis=2), axis=0) + 1
    relevance = relevance_probability(grade)
    error = rng.normal(size=shape)
    scores = {
        "biased": relevance / np.sqrt(rank) + 0.05 * error,
        "unbiased": relevance + 0.05 * error,
        "unbiased, weak": relevance + 0.5 * error,
    }
    return grade, rank, scores


def annotations(cell, settings, seed):
    """CMIP of each model, whether the p-value is at most .05, and how far "biased" is above."""
    n_queries = settings.size(quick=320, full=320, tiny=40)
    grade, rank, scores = annotated_scores(n_queries, seed)
    label = ANNOTATIONS[cell["annotation"]](grade, rank, np.random.default_rng(1_000 + seed))
    kept = ~np.isnan(label)
    query = np.broadcast_to(np.arange(n_queries)[:, None], kept.shape)
    found = {
        name: cmip_score(
            score[kept],
            rank[kept],
            label[kept],
            qid=query[kept],
            random_state=seed,
            return_result=True,
        )
        for name, score in scores.items()
    }
    for name, result in found.items():
        yield {
            "scores": name,
            "CMIP": result.value,
            "p <= .05": float(result.p_value <= 0.05),
            "ahead": found["biased"].value - result.value,
        }


LENGTHS = (200, 500, 2_000, 5_000, 20_000)
ERROR = {"metrics": ("error",), "level": None}
PAGE = Page(
    "studies/cmip",
    "CMIP against known answers",
    (
        measured(
            answers,
            "Error of single values",
            over={"documents": LENGTHS, "rho": (0.0, 0.3, 0.6, 0.8, 0.9)},
            by=("estimator",),
            runs=12,
            **ERROR,
        ),
        measured(
            coverage,
            "Error, standard error, and the share of intervals that hold the truth",
            ("error", "standard error", "holds"),
            over={"world": WORLDS, "documents": (500, 2_000)},
            by=("estimator",),
            runs=100,
            level=None,
        ),
        measured(
            small,
            "Error where grades have few documents",
            over={"grades": SMALL, "rho": (0.0, 0.6, 0.9)},
            runs=30,
            **ERROR,
        ),
        measured(
            ties,
            "Error of tied scores",
            over={"documents": (500, 5_000, 50_000)},
            by=("estimator",),
            runs=4,
            **ERROR,
        ),
        measured(
            times,
            "Cost of one call",
            ("seconds", "CPU seconds"),
            over={"documents": (5_000, 20_000, 50_000), "rho": (0.0, 0.9)},
            by=("estimator",),
            runs=1,
        ),
        measured(
            level,
            "Share of p-values at or below .05",
            ("p <= .05", "p"),
            over={"grades": LEVELS, "rho": (0.0, 0.1, 0.3, 0.8)},
            runs=400,
        ),
        measured(
            queries,
            "Share of p-values at or below .05 where queries differ",
            ("p <= .05",),
            over={
                "documents per query": (4, 10, 30),
                "grades": GRADES,
                "effect": (0.0, 1.0),
                "rho": (0.0, 0.25),
            },
            by=("qid",),
            runs=200,
        ),
        measured(
            clicks,
            "Share of p-values at or below .05 with clicks in the place of grades",
            ("p <= .05", "refused", "CMIP", "by grades, p <= .05"),
            over={
                "user": USERS,
                "queries": (100, 400),
                "impressions": (20, 50, 200),
            },
            by=("model",),
            runs=200,
        ),
        measured(
            annotations,
            "With noisy annotations, and with preferences between pairs",
            ("CMIP", "p <= .05", "ahead"),
            over={"annotation": ANNOTATIONS},
            by=("scores",),
            runs=6,
        ),
    ),
)
