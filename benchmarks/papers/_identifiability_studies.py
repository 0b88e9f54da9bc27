"""Runs of the identifiability paper: what is fitted to which log, and what is measured."""

from functools import lru_cache, partial

import numpy as np
import pandas as pd
from lightgbm import LGBMRegressor
from scipy.sparse import coo_array, csr_array

from skultr import DLARanker
from skultr.identifiability import IdentifiabilityGraph, IdentifiabilityRepair
from skultr.metrics import click_mse, mean_correlation_coefficient, ndcg_score
from skultr.rankers import DistilledRanker, RegressionEMRanker, TwoTowerRanker

from .._documents import feature_columns, read_letor
from .._study import Study
from ._identifiability_worlds import (
    MADE,
    SHORT_LISTS,
    WHOLE_LISTS,
    contextual_log,
    document_sets,
    log_of_components,
    log_with_kinds,
    read_documents,
    same_features,
    shown_lists,
)

#: How often each page is served.
N_CLICKS = 1_000_000
METHODS = {"DLA": DLARanker, "Regression-EM": RegressionEMRanker, "Two-Tower": TwoTowerRanker}
CUTS = (1, 3, 5, 10)
COUNTS = (100, 1_000, 10_000, 100_000, 1_000_000)


# --------------------------------------------------------------------------------------
# Positions in K components
# --------------------------------------------------------------------------------------
def n_served(settings):
    """How often each page is served."""
    return settings.n_sessions(quick=N_CLICKS, full=N_CLICKS)


def finer_counts(settings):
    """Clicks of the curves of swaps."""
    whole = counts(settings)[1:] or counts(settings)
    return sorted({*whole, *(3 * n for n in whole[:-1])})


def counts(settings):
    """Clicks of a curve: powers of ten up to ``--sessions``."""
    return [n for n in COUNTS if n <= n_served(settings)] or [n_served(settings)]


def fit(method, log, clicks, seed):
    """An embedding by the objective that its paper publishes, from a random start."""
    # Not the seed of the log: the start must know nothing of the grades.
    ranker = METHODS[method](relevance="embedding", variant="published", random_state=1_000 + seed)
    return ranker.fit(log, clicks)


def correlation(ranker, truth):
    """MCC: correlation of estimated and true relevance over documents."""
    estimate = ranker.relevance_
    return mean_correlation_coefficient(truth.relevance_probability.loc[estimate.index], estimate)


def quality(ranker, log, pages, truth):
    """Metrics of Table 1; ``log`` is ``pages`` with the bias factors of the training."""
    score = ranker.predict(pages)
    ndcg = {
        f"nDCG@{k}": ndcg_score(pages["relevance"], score, qid=pages["qid"], k=k) for k in CUTS
    }
    error = click_mse(truth.click_probability, ranker.predict_click(log))
    return {"MCC": correlation(ranker, truth), **ndcg, "click MSE": error}


def merged(X, clicks):
    """The log with positions merged across the gaps between components."""
    repair = IdentifiabilityRepair().fit(X, clicks)
    return repair.transform(X), repair


def intervened(X, clicks, truth, n_impressions, cost, seed):
    """The log with the planned pages appended, and their click rates."""
    repair = IdentifiabilityRepair(strategy="intervene", cost=cost, random_state=seed)
    pages = repair.fit(X, clicks).intervened_lists_.rename(columns={"intervention": "session"})
    pages = pages.assign(session=pages["session"] + 1, impressions=n_impressions)
    relevance = truth.relevance_probability.loc[pages["doc"]].to_numpy()
    probability = relevance * truth.examination[pages["position"].to_numpy() - 1]
    new = np.random.default_rng([7, seed]).binomial(n_impressions, probability) / n_impressions
    return pd.concat([X, pages], ignore_index=True), np.concatenate([clicks, new])


def _run_components(cell, settings, seed):
    n_impressions = n_served(settings)
    X, clicks, truth = log_of_components(cell["K"], n_impressions, settings, seed)
    logs = {"": (X, clicks)}
    if cell["K"] > 1:
        swapped = intervened(X, clicks, truth, n_impressions, "variance", seed)
        logs |= {" + intervention": swapped, " + merging": (merged(X, clicks)[0], clicks)}
    # With one bias factor, relevance is the click rate.
    one = X.assign(bias=1)
    rows = [{"method": "No debias", **quality(fit("DLA", one, clicks, seed), one, X, truth)}]
    for method in METHODS:
        for repair, (log, rate) in logs.items():
            ranker = fit(method, log, rate, seed)
            values = quality(ranker, log.iloc[: len(X)], X, truth)
            rows.append({"method": method + repair, **values})
    return rows


COMPONENTS = Study(
    "components",
    _run_components,
    lambda settings: [{"K": K} for K in (1, 2, 3, 4)],
    quick_runs=5,
    full_runs=10,
    hours=0.02,
)


def _run_curves(cell, settings, seed):
    X, clicks, truth = log_of_components(cell["K"], n_served(settings), settings, seed)
    curves = {"truth": pd.Series(truth.examination, index=range(1, len(truth.examination) + 1))}
    curves["DLA"] = fit("DLA", X, clicks, seed).examination_["examination"]
    log, repair = merged(X, clicks)
    codes = repair.factors_.set_index("position")["code"]
    found = fit("DLA", log, clicks, seed).examination_["examination"]
    curves["DLA + merging"] = found.loc[codes].set_axis(codes.index)
    return [
        {"curve": name, "position": position, "examination": value / curve.loc[1]}
        for name, curve in curves.items()
        for position, value in curve.items()
    ]


CURVES = Study(
    "curves",
    _run_curves,
    lambda settings: [{"K": K} for K in (2, 3, 4)],
    quick_runs=5,
    full_runs=10,
    hours=0.01,
)


def _run_clicks(cell, settings, seed):
    X, clicks, truth = log_of_components(cell["K"], cell["clicks"], settings, seed)
    ranker = fit("DLA", X, clicks, seed)
    ndcg = ndcg_score(X["relevance"], ranker.predict(X), qid=X["qid"], k=10)
    return [{"MCC": correlation(ranker, truth), "nDCG@10": ndcg}]


CLICKS = Study(
    "clicks",
    _run_clicks,
    lambda settings: [{"K": K, "clicks": n} for K in (1, 2, 3, 4) for n in counts(settings)],
    quick_runs=5,
    full_runs=10,
    hours=0.02,
)


def _run_swapped(cell, settings, seed):
    X, clicks, truth = log_of_components(2, cell["clicks"], settings, seed)
    rows = [{"swap": "none", "MCC": correlation(fit("DLA", X, clicks, seed), truth)}]
    for name, cost in (("least cost", "variance"), ("random cost", "random")):
        log = intervened(X, clicks, truth, cell["clicks"], cost, seed)
        rows.append({"swap": name, "MCC": correlation(fit("DLA", *log, seed), truth)})
    return rows


SWAPPED = Study(
    "swapped",
    _run_swapped,
    lambda settings: [{"clicks": n} for n in finer_counts(settings)],
    quick_runs=10,
    full_runs=20,
    hours=0.02,
)


def _run_merges(cell, settings, seed):
    X, clicks, truth = log_of_components(2, n_served(settings), settings, seed)
    chosen = merged(X, clicks)[1].merges_.loc[0, ["from", "into"]]
    chosen = " & ".join(str(position) for position in sorted(chosen))
    rows = []
    for position in (1, 2, 3, 4):
        log = X.assign(bias=X["position"].replace(5, position))
        mcc = correlation(fit("DLA", log, clicks, seed), truth)
        rows.append({"merged": f"{position} & 5", "MCC": mcc, "chosen": chosen})
    return rows


MERGES = Study("merges", _run_merges, quick_runs=5, full_runs=10, hours=0.01)


def _run_bounds(cell, settings, seed):
    """How far apart merging moves the components, and the bound by true examination."""
    X, clicks, truth = log_of_components(cell["K"], n_served(settings), settings, seed)
    known = dict(enumerate(truth.examination, start=1))
    place = X.groupby("doc")["position"].first()
    rows = []
    for merged in ("the repair", *(("1 & 5", "2 & 5", "3 & 5", "4 & 5") * (cell["K"] == 2))):
        # Position 5 is put beside the one that it is to be merged with.
        beside = None if merged == "the repair" else {**{k: k for k in known}, 5: int(merged[0])}
        repair = IdentifiabilityRepair(
            bias_features=beside, position_weight=0.0, examination=known
        ).fit(X, clicks)
        found = fit("DLA", repair.transform(X), clicks, seed).relevance_
        shift = found / truth.relevance_probability.loc[found.index]
        shift = shift.groupby(repair.graph_.labels[place[found.index] - 1]).mean()
        error = np.ptp(shift) / shift[0]
        rows.append({"merged": merged, "error": error, "bound": repair.error_bound_})
    return rows


BOUNDS = Study(
    "bounds",
    _run_bounds,
    lambda settings: [{"K": K} for K in (2, 3, 4)],
    quick_runs=5,
    full_runs=10,
    hours=0.02,
)


def _run_links(cell, settings, seed):
    X, _, _ = log_of_components(cell["K"], 1, settings, seed)
    graph = IdentifiabilityGraph.from_log(X)
    links = X[["doc", "position"]].drop_duplicates()
    links = links.merge(links, on="doc").query("position_x < position_y")
    links = links.groupby(["position_x", "position_y"]).size()
    return [
        {"components": graph.n_components, "edge": f"{a}-{b}", "documents": n}
        for (a, b), n in links.items()
    ]


LINKS = Study(
    "links",
    _run_links,
    lambda settings: [{"K": K} for K in (1, 2, 3, 4)],
    quick_runs=1,
    full_runs=1,
)


# --------------------------------------------------------------------------------------
# How likely a log is connected
# --------------------------------------------------------------------------------------
@lru_cache(maxsize=2)
def _shown(name, settings):
    """The lists of all training queries: frame, and the number of each row's document."""
    n_queries = settings.size(quick=2_000, full=20_000)
    documents, _ = read_documents(name, settings, n_queries, 10, seed=0)
    shown = shown_lists(documents, seed=0)
    return shown, same_features(shown)


def _chance(doc, factor):
    """Whether the graph is connected, and the chance by the formula of Example 2."""
    graph = IdentifiabilityGraph(doc, factor)
    return {"measured": float(graph.is_connected), "formula": graph.connection_probability()}


def _rows(x, values, found):
    return [
        {x: value, "chance by": name, "chance": chance}
        for value, row in zip(values, found, strict=True)
        for name, chance in row.items()
    ]


def _run_by_contexts(cell, settings, seed):
    shown, doc = _shown(cell["documents"], settings)
    rng = np.random.default_rng(seed)
    found = []
    for n_contexts in N_CONTEXTS:
        context = rng.integers(n_contexts, size=len(doc))
        found.append(_chance(doc, np.column_stack([shown["position"], context])))
    return _rows("contexts", N_CONTEXTS, found)


N_CONTEXTS = (1, 2, 5, 10, 15, 20, 30, 50, 70, 100, 200, 500, 1_000)


def _of_documents(settings):
    return [{"documents": name} for name in document_sets(settings)]


def _each_method(methods, settings):
    """A cell for each set of documents and method."""
    return [
        {"documents": name, "method": method}
        for name in document_sets(settings)
        for method in methods
    ]


BY_CONTEXTS = Study("by contexts", _run_by_contexts, _of_documents, 20, 20, hours=0.05)


def _run_by_size(cell, settings, seed):
    shown, doc = _shown(cell["documents"], settings)
    rng = np.random.default_rng(seed)
    queries = rng.permutation(shown["qid"].unique())
    found = []
    for ratio in RATIOS:
        kept = queries[: max(1, round(ratio * len(queries)))]
        rows = shown["qid"].isin(kept).to_numpy()
        found.append(_chance(doc[rows], shown.loc[rows, "position"]))
    return _rows("sampling ratio", RATIOS, found)


RATIOS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)

BY_SIZE = Study("by size", _run_by_size, _of_documents, 20, 20, hours=0.05)


def _run_by_features(cell, settings, seed):
    shown, doc = _shown(cell["documents"], settings)
    n_all = len(feature_columns(shown)) - 1
    numbers = [n for n in N_FEATURES if n < n_all] + [n_all]
    n_contexts = CONTEXTS_OF_FEATURES.get(cell["documents"], 50)
    context = np.random.default_rng(seed).integers(n_contexts, size=len(doc))
    factor = np.column_stack([shown["position"], context])
    found = [_chance(same_features(shown, n), factor) for n in numbers]
    return _rows("features", numbers, found)


N_FEATURES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 15, 20, 50, 100, 200)
#: The paper's numbers of contexts: enough that the whole log is not connected.
CONTEXTS_OF_FEATURES = {"Yahoo!": 500, "Istella-S": 50} | dict(zip(MADE, (500, 50), strict=True))

BY_FEATURES = Study("by features", _run_by_features, _of_documents, 20, 20, hours=0.05)


# --------------------------------------------------------------------------------------
# Positions times contexts
# --------------------------------------------------------------------------------------
BIAS = ["position", "context"]


def n_contexts(settings):
    """Context types: 5,000 for 20,000 queries."""
    return settings.size(quick=250, full=5_000)


@lru_cache(maxsize=2)
def _contextual(name, settings, seed, n_documents=WHOLE_LISTS, padding=False):
    n_queries = settings.size(quick=1_000, full=20_000)
    n_test = settings.size(quick=300, full=7_000)
    train, test = read_documents(name, settings, n_queries, n_test, seed, n_documents=n_documents)
    types = n_contexts(settings)
    return *contextual_log(train, types, n_served(settings), seed, padding=padding), test


def _run_contextual(cell, settings, seed):
    world = _contextual(cell["documents"], settings, seed)
    return [_contextual_row(cell["method"], world, seed)]


def _contextual_row(name, world, seed):
    """Quality of a method on the documents that were shown, and on test documents."""
    log, clicks, truth, test = world
    method, start = CONTEXTUAL_METHODS[name]
    plain = log.drop(columns="context")
    if method == "merging":
        repair = IdentifiabilityRepair(BIAS, bias_features=truth.vectors)
        train = repair.fit(log, clicks).transform(log)
    elif method == "all":
        train = plain.assign(bias=log.groupby(BIAS).ngroup())
    else:
        train = plain.assign(bias=0 if method == "none" else log["position"])
    teacher = DLARanker(relevance="embedding", variant="published", examination_start=start)
    ranker = DistilledRanker(teacher, student(), random_state=1_000 + seed).fit(train, clicks)
    # The student's teacher knows documents by number, in the order of their ids.
    codes = np.unique(log["doc"], return_inverse=True)[1]
    rows = log[feature_columns_of(log)].to_numpy()
    learned = ranker.teacher_.predict(rows, doc=codes)
    expected = ranker.teacher_.predict_click(rows, doc=codes, bias=train["bias"])
    score = ranker.predict(test[feature_columns_of(test)])
    listed = truth.listed
    return {
        "MCC": mean_correlation_coefficient(truth.relevance[listed], learned[listed]),
        **_ndcg("train", log[listed], learned[listed]),
        "click MSE": click_mse(truth.click_probability[listed], expected[listed]),
        **_ndcg("test", test, score),
        "factors": train["bias"].nunique(),
    }


def student():
    """The paper's LightGBM, the default of `DistilledRanker`, in one thread."""
    return LGBMRegressor(
        n_estimators=500, learning_rate=0.1, num_leaves=255, n_jobs=1, verbosity=-1
    )


def feature_columns_of(log):
    """Names of the columns that are features of documents."""
    roles = {"position", "context", "impressions", "doc_scope"}
    return [name for name in feature_columns(log) if name not in roles]


def _ndcg(part, documents, score):
    grades, qid = documents["relevance"], documents["qid"]
    return {f"{part} nDCG@{k}": ndcg_score(grades, score, qid=qid, k=k) for k in (5, 10)}


#: Which bias factors the model has, and the examination that it starts from.
CONTEXTUAL_METHODS = {
    "No debias": ("none", "ones"),
    "DLA": ("all", "ones"),
    "DLA + merging": ("merging", "ones"),
    "DLA, positions only": ("positions", "ones"),
    "DLA, random start": ("all", "random"),
    "DLA, random start + merging": ("merging", "random"),
}

CONTEXTS = Study(
    "contexts",
    _run_contextual,
    partial(_each_method, CONTEXTUAL_METHODS),
    quick_runs=4,
    full_runs=10,
    hours=4.0,
)


def _run_padded(cell, settings, seed):
    world = _contextual(cell["documents"], settings, seed, SHORT_LISTS, padding=True)
    graph = IdentifiabilityGraph.from_log(world[0], bias=BIAS)
    sizes = {"nodes": graph.n_factors, "components": graph.n_components}
    return [_contextual_row(cell["method"], world, seed) | sizes]


#: The methods of table 2 whose gaps decide.
OF_TABLE_2 = ("No debias", "DLA", "DLA + merging")

PADDED = Study(
    "padded",
    _run_padded,
    partial(_each_method, OF_TABLE_2),
    quick_runs=3,
    full_runs=5,
    hours=1.0,
)


# --------------------------------------------------------------------------------------
# Sizes
# --------------------------------------------------------------------------------------
def _run_sizes(cell, settings, seed):
    if settings.letor is None:
        n_queries = settings.size(quick=1_000, full=20_000)
        parts = read_documents(cell["documents"], settings, n_queries, 300, seed)
    else:
        parts = read_letor(settings.letor).values()
    sizes = {
        "queries": sum(part["qid"].nunique() for part in parts),
        "documents": sum(map(len, parts)),
        "features": max(len(feature_columns(part)) for part in parts),
        "relevance levels": len(set().union(*(part["relevance"].unique() for part in parts))),
    }
    return [{"size": name, "number": number} for name, number in sizes.items()]


SIZES = Study("sizes", _run_sizes, _of_documents, 1, 1, hours=0.01)


def _run_graph(cell, settings, seed):
    log, clicks, _, _ = _contextual(cell["documents"], settings, seed)
    graph = IdentifiabilityGraph.from_log(log, bias=BIAS, click=clicks)
    largest = np.sort(graph.components["n_factors"])[::-1]
    sizes = {
        "nodes": graph.n_factors,
        "edges": _n_edges(graph.pairs),
        "components": graph.n_components,
    }
    sizes |= {f"nodes in the top {i + 1}": n for i, n in enumerate(largest[:3])}
    alone = IdentifiabilityGraph.from_log(log, bias="position").n_components
    sizes["components of positions alone"] = alone
    return [{"size": name, "number": number} for name, number in sizes.items()]


def _n_edges(pairs, n_block=1_000):
    """Number of pairs of factors that share a document."""
    ones = np.ones(len(pairs.doc), dtype=np.float32)
    by_factor = csr_array(coo_array((ones, (pairs.factor, pairs.doc))))
    by_doc = csr_array(by_factor.T)
    starts = range(0, pairs.n_factors, n_block)
    n_entries = sum((by_factor[first : first + n_block] @ by_doc).nnz for first in starts)
    return (n_entries - pairs.n_factors) // 2


GRAPH = Study("graph", _run_graph, _of_documents, 1, 1, hours=0.02)


# --------------------------------------------------------------------------------------
# A log with kinds of results
# --------------------------------------------------------------------------------------
def _run_log(cell, settings, seed):
    n_sessions = settings.n_sessions(quick=20_000, full=300_000)
    log, (first, second) = log_with_kinds(settings, n_sessions, seed)
    cases = {
        "(v1, v2, position)": [first, second, "position"],
        "(v1, position)": [first, "position"],
        "(v2, position)": [second, "position"],
        "position only": ["position"],
    }
    rows = []
    for name, bias in cases.items():
        graph = IdentifiabilityGraph.from_log(log, bias=bias)
        sizes = {"factors": graph.n_factors, "components": graph.n_components}
        rows.append({"bias factor": name, **sizes})
    return rows


LOG = Study("log", _run_log, quick_runs=1, full_runs=1, hours=0.02)
