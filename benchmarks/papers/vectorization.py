"""Scalar is not enough (Chen et al., KDD 2022): tables 1 to 3 and figures 1, 4 and 5, again.

    python -m benchmarks papers/vectorization --quick
    python -m benchmarks papers/vectorization --table 1 --letor FOLDER

Clicks come from the click rates of TianGong-ST (``matrix``: by grade and position) or from trust
bias (``trust``), on lists that a ranker trained on 1 % of the labels has ordered. All methods
learn from the same log, by the training of the paper (`_vectorization_training`), where nDCG@10
on validation queries picks the length of the vectors.
"""

import time
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr

from skultr import DLARanker, VectorizationRanker, aggregate_clicks
from skultr.metrics import ndcg_score
from skultr.model_selection import train_test_queries
from skultr.simulation import (
    TIANGONG_CLICK_MATRIX,
    ClickMatrixUser,
    TrustBiasUser,
    simulate_clicks,
)

from .._documents import name_of, split_documents
from .._study import Claim, Exhibit, Page, Settings, Study
from ._vectorization_training import METHODS, n_tried, train, train_on_labels

USERS = {"matrix": ClickMatrixUser, "trust": TrustBiasUser}
CUTS = ("nDCG@1", "nDCG@3", "nDCG@5", "nDCG@10")

#: skultr's own form of the paper's two stages, for figure 5 and table 3.
TWO_STAGES = {"student": None, "n_networks": 1, "bounded_base": False}
#: Lengths of the vectors of skultr's default form, which has a row of its own.
OUR_LENGTHS = (2, 1, 3, 4, 5)


# --------------------------------------------------------------------------------------
# Worlds: a log, and documents to judge by
# --------------------------------------------------------------------------------------
class World(NamedTuple):
    log: tuple
    train: pd.DataFrame
    validation: pd.DataFrame
    test: pd.DataFrame


def make_world(cell, settings, seed):
    """The aggregated log of a cell's user on a cell's documents, and held-out documents."""
    n_train, n_test = settings.size(quick=1_500, full=20_000), settings.size(quick=750, full=7_000)
    # Two sets of made documents stand for the paper's two: they differ in all but the generator.
    second = cell["documents"] == "made, second set"
    made = {"n_features": 60 if second else 30}
    train, held_out = split_documents(settings, n_train, n_test, seed=seed + 50 * second, **made)
    validation, test = train_test_queries(held_out, train_size=1 / 3, random_state=seed)
    log, clicks, _ = simulate_clicks(
        train,
        user=USERS[cell["user"]](),
        n_sessions=settings.n_sessions(quick=300_000, full=4_000_000),
        noise=0.0,
        features=False,
        random_state=seed,
    )
    return World(aggregate_clicks(log.assign(click=clicks), train), train, validation, test)


def documents_of(settings, user, both=True):
    """Cells: the made sets, or the reader's own; its name tells which figures stand beside."""
    if settings.letor is None:
        names = ["made", "made, second set"] if both else ["made"]
    else:
        names = [name_of(settings.letor)]
    return [{"documents": name, "user": user} for name in names]


def quality(ranker, documents):
    """nDCG of a ranker's scores at the paper's cut-offs."""
    scores = ranker.predict(documents)
    return {
        cut: ndcg_score(documents["relevance"], scores, qid=documents["qid"], k=int(cut[5:]))
        for cut in CUTS
    }


# --------------------------------------------------------------------------------------
# Studies
# --------------------------------------------------------------------------------------
def compare(cell, settings, seed):
    """Tables 1 and 2: every method on one log. Figure 4: vectors of each length ``d``."""
    world = make_world(cell, settings, seed)
    labels = train_on_labels(world.train, world.validation, settings, seed)
    yield {"method": "Labeled Data"} | quality(labels, world.test)
    for method in METHODS:
        yield from _rows_of(method, world, settings, seed)
    lengths = OUR_LENGTHS[: settings.size(quick=1, full=len(OUR_LENGTHS))]
    rankers = [VectorizationRanker(n_components=d, random_state=seed) for d in lengths]
    ours = [ranker.fit(*world.log) for ranker in rankers]
    best = ours[_best_of(ours, world)]
    yield {"method": "Vectorization, with student"} | quality(best, world.test)


def _rows_of(method, world, settings, seed):
    """The best of the settings of a method; of vectors, each length as well."""
    ranker, choices = METHODS[method]
    n_candidates = n_tried(method, settings)
    # Figure 4 also shows lengths that are not tried for the tables.
    every = choices if method == "Vectorization" else choices[:n_candidates]
    fitted = [
        train(ranker, world.log, world.validation, settings, seed, **choice) for choice in every
    ]
    best = _best_of(fitted[:n_candidates], world)
    chosen = ", ".join(f"{name}={value}" for name, value in every[best].items())
    yield {"method": method, "chosen": chosen} | quality(fitted[best], world.test)
    if method == "Vectorization":
        for choice, each in zip(every, fitted, strict=True):
            yield {"method": method, "d": choice["n_components"]} | quality(each, world.test)


def _best_of(fitted, world):
    """Number of the ranker with the highest nDCG@10 on the validation queries."""
    return int(np.argmax([quality(ranker, world.validation)["nDCG@10"] for ranker in fitted]))


def embeddings(cell, settings, seed):
    """Figure 5: the documents in the plane, and their order along each position's vector."""
    world = make_world(cell, settings, seed)
    ranker = VectorizationRanker(**TWO_STAGES, random_state=seed).fit(*world.log)
    base = quality(ranker, world.test)["nDCG@10"]
    points = ranker.relevance_embedding(world.test)
    for position, vector in ranker.observation_embedding_.iterrows():
        along = ndcg_score(
            world.test["relevance"], points @ vector.to_numpy(), qid=world.test["qid"], k=10
        )
        shared = {"position": position, "o1": vector.iloc[0], "o2": vector.iloc[1]}
        yield {"along": "observation embedding", "nDCG@10": along} | shared
        yield {"along": "base vector", "nDCG@10": base} | shared
    mean = ranker.base_vectors(world.test).to_numpy().mean(axis=0)
    yield {"along": "mean base vector", "position": 0, "o1": mean[0], "o2": mean[1]}
    # The plane is drawn from a sample: 60 documents of each grade.
    labels = world.test["relevance"].to_numpy()
    rng = np.random.default_rng(seed)
    for grade in np.unique(labels):
        rows = np.flatnonzero(labels == grade)
        for row in rng.choice(rows, min(len(rows), 60), replace=False):
            point = {"o1": points[row, 0], "o2": points[row, 1]}
            yield {"along": "document", "grade": int(grade)} | point


def inference(cell, settings, seed):
    """Table 3: processor seconds to score a batch of 256 lists, the best of several."""
    world = make_world(cell, settings, seed)
    queries = world.test["qid"].unique()[:256]
    batch = world.test[world.test["qid"].isin(queries)]
    short = {"early_stopping": False, "max_epochs": 2, "random_state": seed}
    rankers = {
        "Scalar-based Ranker": DLARanker(examination="network", **short),
        "Vectorization": VectorizationRanker(**TWO_STAGES, **short),
    }
    fitted = {name: ranker.fit(*world.log) for name, ranker in rankers.items()}
    best = dict.fromkeys(fitted, np.inf)
    for _ in range(settings.size(quick=20, full=3_000)):
        for name, ranker in fitted.items():
            # Time of the processor: what else runs on the machine is not in it.
            start = time.process_time()
            ranker.predict(batch)
            best[name] = min(best[name], time.process_time() - start)
    for name, seconds in best.items():
        ratio = seconds / best["Scalar-based Ranker"]
        yield {"method": name, "seconds per batch": seconds, "ratio": ratio}


def click_matrix(cell, settings, seed):
    """Figure 1: click rate by grade and position, and the rank of the matrix."""
    matrix = np.asarray(TIANGONG_CLICK_MATRIX)
    for i, value in enumerate(np.linalg.svd(matrix, compute_uv=False), start=1):
        yield {"number": i, "singular value": value}


# --------------------------------------------------------------------------------------
# Figures that are neither lines nor dots
# --------------------------------------------------------------------------------------
def draw_matrix(rows, table):
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
    matrix = np.asarray(TIANGONG_CLICK_MATRIX)
    image = left.imshow(matrix, cmap="Blues", aspect="auto")
    left.set(xlabel="position", ylabel="grade", title="Click rate")
    left.set_xticks(np.arange(matrix.shape[1]), np.arange(1, matrix.shape[1] + 1))
    figure.colorbar(image, ax=left)
    right.plot(table["number"], table["ours"], "o-", label="ours")
    right.plot(table["number"], table["published"], "D", mfc="none", mec="C3", label="published")
    right.set(yscale="log", xlabel="number", title="Singular values")
    right.legend(frameon=False)
    return figure


def draw_plane(rows, table):
    """Points: documents by grade. Lines: the vectors of positions, and the base vectors' mean."""
    figure, axis = plt.subplots(figsize=(6.5, 5), layout="constrained")
    rows = rows[rows["seed"] == rows["seed"].min()]
    points = rows[rows["along"] == "document"]
    dots = axis.scatter(points["o1"], points["o2"], c=points["grade"], s=10, cmap="viridis")
    figure.colorbar(dots, label="grade", ticks=sorted(points["grade"].unique()))
    size = np.hypot(points["o1"], points["o2"]).quantile(0.95)
    for row in rows[rows["along"] == "observation embedding"].itertuples():
        end = np.array([row.o1, row.o2]) * size / np.hypot(row.o1, row.o2)
        axis.plot([0, end[0]], [0, end[1]], ":", color="C1")
        axis.annotate(f"{row.position:.0f}", end, fontsize=8)
    base = rows[rows["along"] == "mean base vector"].iloc[0]
    end = np.array([base["o1"], base["o2"]]) * size / np.hypot(base["o1"], base["o2"])
    axis.plot([0, end[0]], [0, end[1]], "-", color="black", label="base vectors, mean")
    axis.set(xlabel="first component", ylabel="second component", aspect="equal")
    axis.legend(frameon=False)
    return figure


# --------------------------------------------------------------------------------------
# Published figures, as the paper's text has them
# --------------------------------------------------------------------------------------
YAHOO = {
    "Labeled Data": (0.680, 0.689, 0.711, 0.758),
    "Click Data": (0.615, 0.635, 0.662, 0.718),
    "DLA": (0.625, 0.643, 0.671, 0.725),
    "PairDebias": (0.612, 0.633, 0.661, 0.717),
    "RegressionEM": (0.618, 0.628, 0.654, 0.709),
    "Affine": (0.654, 0.659, 0.682, 0.733),
    "Vectorization": (0.668, 0.674, 0.697, 0.747),
}
ISTELLA = {
    "Labeled Data": (0.655, 0.632, 0.660, 0.723),
    "Click Data": (0.596, 0.576, 0.607, 0.676),
    "DLA": (0.599, 0.580, 0.610, 0.679),
    "PairDebias": (0.595, 0.576, 0.607, 0.676),
    "RegressionEM": (0.574, 0.544, 0.565, 0.622),
    "Affine": (0.637, 0.605, 0.628, 0.686),
    "Vectorization": (0.643, 0.613, 0.635, 0.694),
}
YAHOO_TRUST = {
    "Labeled Data": (0.680, 0.711, 0.758),
    "Click Data": (0.615, 0.664, 0.719),
    "DLA": (0.663, 0.702, 0.751),
    "PairDebias": (0.624, 0.668, 0.723),
    "RegressionEM": (0.646, 0.686, 0.737),
    "Affine": (0.678, 0.707, 0.755),
    "Vectorization": (0.679, 0.707, 0.755),
}
#: The first made set stands beside Yahoo!, the second beside Istella-S.
STANDS_FOR = {"made": YAHOO, "Yahoo!": YAHOO, "made, second set": ISTELLA, "Istella-S": ISTELLA}
SINGULAR = (1.399, 0.151, 0.069, 0.057, 0.033)


# --------------------------------------------------------------------------------------
# Claims
# --------------------------------------------------------------------------------------
def leads(first, others, metrics=("nDCG@10",)):
    """Leads of a method over each of the others, in each metric on every set of documents."""

    def gaps(means, rows):
        table = means[list(metrics)].unstack("method").stack(0, future_stack=True)
        return table[others].rsub(table[first], axis=0)

    return gaps


def level(first, second, within):
    """Gaps of two methods that are level on every set of documents."""

    def gaps(means, rows):
        lead = leads(first, [second])(means, rows)[second]
        return pd.concat({"behind": within + lead, "ahead": within - lead})

    return gaps


def spreads(means, rows):
    """Affine over vectorization, then scalar methods over affine: ratios as logarithms.

    Of what a method adds to the mean of all in its run: documents are others in each run.
    """
    own = rows["nDCG@10"] - rows.groupby(["seed", "documents"])["nDCG@10"].transform("mean")
    spread = np.log(own.groupby([rows["documents"], rows["method"]]).std()).unstack("method")
    pairs = [("Affine", "Vectorization"), ("DLA", "Affine"), ("RegressionEM", "Affine")]
    return pd.concat({pair: spread[pair[0]] - spread[pair[1]] for pair in pairs})


def by_length(means):
    """nDCG@10 of vectorization by the length of its vectors."""
    return means["nDCG@10"].xs("Vectorization", level="method").groupby("d").mean()


def rises(means, rows):
    found = by_length(means)
    return found[[4, 5]].mean() - found[[1, 2]].mean()


def two_is_best(means, rows):
    """Two over one, and over more, which may be ahead by .005."""
    lead = by_length(means)[2] - by_length(means).drop(2)
    return lead.where(lead.index < 2, lead + 0.005)


def more_do_no_harm(means, rows):
    found = by_length(means)
    return 0.01 + found[[3, 4, 5]] - found[2]


def two_like_affine(means, rows):
    affine = means["nDCG@10"].xs("Affine", level="method").groupby("d").mean()
    lead = by_length(means)[2] - affine[2]
    return [0.01 + lead, 0.01 - lead]


def near_grades_are_near(means, rows):
    """Rank correlation of distances in the plane with distances of grades, above .1."""
    points = rows[rows["along"] == "document"]
    places = pdist(points[["o1", "o2"]].to_numpy())
    grades = pdist(points[["grade"]].to_numpy())
    return spearmanr(places, grades).statistic - 0.1


def base_is_level(means, rows):
    """The base vector against each position: nobody knows which one is best."""
    found = means["nDCG@10"].loc["matrix"].unstack("along")
    return found["base vector"] - found["observation embedding"] + 0.01


def positions_differ(means, rows):
    return np.ptp(means["nDCG@10"].loc["matrix"].unstack("along")["observation embedding"]) - 0.02


# --------------------------------------------------------------------------------------
# The paper
# --------------------------------------------------------------------------------------
SCALAR = ["DLA", "PairDebias", "RegressionEM"]
BASELINES = ["Click Data", *SCALAR, "Affine"]
BOTH = ("Vectorization", "Affine")
REAL = Study("real clicks", compare, lambda s: documents_of(s, "matrix"), 3, 8, hours=60)
TRUST = Study("trust bias", compare, lambda s: documents_of(s, "trust", False), 3, 8, hours=30)
PLANE = Study(
    "plane",
    embeddings,
    lambda s: [c for user in USERS for c in documents_of(s, user, both=False)],
    1,
    1,
    hours=0.2,
)
SPEED = Study(
    "speed", inference, lambda s: documents_of(s, "trust", False), 1, 1, hours=0.5, again=True
)
MATRIX = Study("matrix", click_matrix, quick_runs=1, full_runs=1)


def for_tables(rows):
    """Each method by the setting that validation chose."""
    return rows[rows["d"].isna()]


def length_exhibit(name, study, number, claims):
    """A panel of figure 4: the clicks of a study, on the documents of that number."""

    def keep(rows):
        names = list(rows["documents"].unique())
        rows = rows[rows["documents"] == names[min(number, len(names) - 1)]]
        vectors = rows.dropna(subset="d")
        affine = rows[rows["method"] == "Affine"]
        lines = [affine.assign(d=d) for d in vectors["d"].unique()]
        both = pd.concat([vectors, *lines]).astype({"d": int})
        return both.sort_values("d", kind="stable")

    (user,) = {cell["user"] for cell in study.cells(Settings())}
    title = f"The length of the vectors, {user} clicks, document set {number + 1}"
    by, metrics = ("d", "method"), ("nDCG@10",)
    return Exhibit(name, title, study, by, metrics, keep=keep, x="d", paired=(), claims=claims)


def plane_exhibit(name, user):
    def keep(rows):
        return rows[rows["user"] == user]

    title = f"Embeddings of documents, positions and base vectors, {user} clicks"
    by, metrics = ("along", "position"), ("nDCG@10",)
    claims = (Claim("documents of near grades lie nearer to each other", near_grades_are_near),)
    return Exhibit(name, title, PLANE, by, metrics, keep=keep, draw=draw_plane, claims=claims)


def two_are_level(why):
    """The claim about two components, and what was tried where it fails."""
    says = "two components are level with affine correction (within .01)"
    return Claim(says, two_like_affine, why=why)


FIVE_OF_FEW_STEPS = (
    "too few steps, in part: tried with 3,600 of them in place of 1,200, five components are .010 "
    "behind on average of three runs, in place of .025"
)
STILL_AHEAD = (
    "not the number of steps: tried with 3,600 of them in place of 1,200, five components are "
    "still ahead, by .012 on average of three runs"
)
FIGURE_4 = {
    "real": (
        Claim("longer vectors rank better (4 and 5 than 1 and 2)", rises),
        two_are_level(
            "too few steps: tried with 3,600 of them in place of 1,200, two components are .009 "
            "behind on average of four logs, in place of .032"
        ),
    ),
    "trust": (
        Claim(
            "two components are best (one is behind, more not ahead by .005)",
            two_is_best,
            why=STILL_AHEAD,
        ),
        Claim("more than two do no harm (within .01)", more_do_no_harm),
        two_are_level(
            "too few steps, in part: tried with 3,600 of them in place of 1,200, two "
            "components are .022 behind on average of three runs, in place of .043"
        ),
    ),
}
PAGE = Page(
    "vectorization",
    "Scalar is Not Enough: Vectorization-based Unbiased Learning to Rank (KDD 2022)",
    (
        Exhibit(
            "table 1",
            "Ranking quality, clicks by the table of TianGong-ST",
            REAL,
            ("documents", "method"),
            CUTS,
            keep=for_tables,
            paired=("documents",),
            published={
                (documents, method): figures
                for documents, published in STANDS_FOR.items()
                for method, figures in published.items()
            },
            claims=(
                Claim(
                    "vectorization is ahead of all others in all measures",
                    leads("Vectorization", BASELINES, CUTS),
                ),
                Claim(
                    "affine correction is ahead of the scalar methods in nDCG@10",
                    leads("Affine", SCALAR),
                ),
                Claim(
                    "vectorization varies less over runs than affine correction, and that less "
                    "than DLA and regression-EM",
                    spreads,
                    jackknife=True,
                ),
            ),
        ),
        Exhibit(
            "table 2",
            "Ranking quality, trust bias",
            TRUST,
            ("documents", "method"),
            ("nDCG@1", "nDCG@5", "nDCG@10"),
            keep=for_tables,
            paired=("documents",),
            published={
                (documents, method): figures
                for documents in ("made", "Yahoo!")
                for method, figures in YAHOO_TRUST.items()
            },
            claims=(
                Claim(
                    "vectorization is level with affine correction (within .005)",
                    level("Vectorization", "Affine", within=0.005),
                    why=FIVE_OF_FEW_STEPS,
                ),
                Claim(
                    "both are ahead of all scalar methods in nDCG@10",
                    lambda means, rows: pd.concat(
                        {name: leads(name, SCALAR)(means, rows) for name in BOTH}
                    ),
                ),
            ),
        ),
        Exhibit(
            "table 3",
            "Seconds to rank a batch of 256 queries",
            SPEED,
            ("method",),
            ("seconds per batch", "ratio"),
            published={"Scalar-based Ranker": (0.112, 1.0), "Vectorization": (0.136, 1.214)},
            note="The seconds are of one processor core, and say nothing about the paper's, which "
            "are of a graphics card (Tesla K80).",
        ),
        Exhibit(
            "figure 1",
            "Click rates of TianGong-ST by grade and position, and their rank",
            MATRIX,
            ("number",),
            ("singular value",),
            published={i: (value,) for i, value in enumerate(SINGULAR, start=1)},
            claims=(
                Claim(
                    "the matrix has full rank: one number per position is not enough",
                    lambda means, rows: means["singular value"] - 0.01,
                    exact=True,
                ),
            ),
            draw=draw_matrix,
            note="The matrix is the published one, not counted again from the log.",
        ),
        length_exhibit("figure 4a", REAL, 0, FIGURE_4["real"]),
        length_exhibit("figure 4b", REAL, 1, FIGURE_4["real"]),
        length_exhibit("figure 4c", TRUST, 0, FIGURE_4["trust"]),
        plane_exhibit("figure 5a", "matrix"),
        plane_exhibit("figure 5b", "trust"),
        Exhibit(
            "figure 5c",
            "Ranked along each position's vector, and along the base vectors",
            PLANE,
            ("user", "position", "along"),
            ("nDCG@10",),
            keep=lambda rows: rows.dropna(subset="nDCG@10"),
            x="position",
            panel="user",
            claims=(
                Claim("quality differs much between positions", positions_differ),
                Claim("the base vectors are within .01 of the best position", base_is_level),
            ),
            note="The claims are about the clicks of figure 5a; the other panel is ours.",
        ),
    ),
)
