"""Logs of the identifiability paper: positions in components, and positions times contexts."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from skultr.simulation import (
    ContextualPositionBasedUser,
    PlackettLucePolicy,
    PositionBasedUser,
    make_disconnected_log,
    relevance_probability,
    simulate_clicks,
)

from .._documents import feature_columns, name_of, ranking_svm, split_documents

#: The published program divides 2^grade - 1 by 2^5 - 1, though grades end at 4 (the paper's text:
#: by 2^4 - 1). The published figures are those of the program, so the logs here are too.
MAX_GRADE = 5
#: Frequencies of the grades 0, ..., 4 in the published sets, and about the number of documents
#: that link positions there.
GRADE_WEIGHTS = (0.39, 0.34, 0.22, 0.04, 0.01, 0.0)
N_LINKS = 250

#: Made documents in place of the paper's sets: the share of documents that are copies of those of
#: other queries, which alone link bias factors if every query is served once.
MADE = {"made, many copies": 0.15, "made, few copies": 0.01}
#: Which published set each of them stands for.
STANDS_FOR = {"made, many copies": "Yahoo!", "made, few copies": "Istella-S"}
N_POSITIONS = 10
#: Documents of a query, from the fewest to the most.
WHOLE_LISTS = (10, 30)
#: With these 5 % of the places are empty, and one document in all of them lies under a sixth of
#: the factors (of Yahoo!'s graph in the paper, by its number of edges, under a fifth).
SHORT_LISTS = (5, 35)


# --------------------------------------------------------------------------------------
# Positions in K components
# --------------------------------------------------------------------------------------
def log_of_components(n_components, n_impressions, settings, seed):
    """Log with one row for each page and position, click rates and the truth.

    The pages are made, or the published ones where ``--sets`` names their folder.
    """
    if settings.sets is not None:
        return _published_log(Path(settings.sets), n_components, n_impressions, seed)
    X, _, truth = make_disconnected_log(
        n_components, n_impressions=n_impressions, max_grade=MAX_GRADE, random_state=seed
    )
    return _as_published(X, truth, n_impressions, seed)


def _as_published(X, truth, n_impressions, seed):
    """The same positions and components, with the grades and few links of the published sets."""
    seeds = np.random.RandomState(seed).randint(2**31 - 1, size=4)
    grades_rng, pages_rng, clicks_rng = np.random.default_rng(seeds).spawn(3)
    n_documents, n_pages = len(truth.relevance), X["qid"].nunique()
    weights = np.array(GRADE_WEIGHTS)
    grade = grades_rng.choice(len(weights), size=n_documents, p=weights / weights.sum())
    relevance = relevance_probability(grade, max_grade=MAX_GRADE)
    sizes = np.array([len(part) for part in truth.components])
    shares, needed = _share(n_documents, sizes), sizes - 1
    links = needed + _share(N_LINKS - needed.sum(), sizes)
    documents = np.split(pages_rng.permutation(n_documents), np.cumsum(shares)[:-1])
    pages = np.empty((n_pages, sizes.sum()), dtype=np.int64)
    for part, own, n_links in zip(truth.components, documents, links, strict=True):
        pages[:, np.array(part) - 1] = own[
            _linked_pages(len(own), n_links, n_pages, part, pages_rng)
        ]
    doc = pages.ravel()
    probability = (relevance[pages] * truth.examination).ravel()
    truth = SimpleNamespace(
        relevance_probability=pd.Series(relevance).rename_axis("doc"),
        examination=truth.examination,
        click_probability=probability,
    )
    clicks = clicks_rng.binomial(n_impressions, probability) / n_impressions
    return X.assign(doc=doc, relevance=grade[doc], session=0), clicks, truth


def _share(n_documents, sizes):
    """Numbers per component, in proportion to its positions (largest remainders)."""
    exact = n_documents * sizes / max(sizes.sum(), 1)
    shares = np.floor(exact).astype(np.int64)
    missing = n_documents - shares.sum()
    shares[np.argsort(shares - exact, kind="stable")[:missing]] += 1
    return shares


def _linked_pages(n_documents, n_links, n_queries, part, rng):
    """Codes of documents on pages of one component, (n_queries, len(part)): ``n_links`` documents
    are shown once at two positions, all others about equally often at one."""
    shown_at = _choose_positions(n_links, n_documents - n_links, len(part), rng)
    columns = [_column(shown, n_links, n_queries, rng) for shown in shown_at]
    return _without_meetings(np.column_stack(columns), rng)


def _choose_positions(n_links, n_others, width, rng):
    """Documents of each position, a list of arrays: about equally many at each."""
    shown_at: list[list[int]] = [[] for _ in range(width)]
    path = rng.permutation(width)
    for document in range(n_links + n_others):
        if document < min(n_links, width - 1):
            # The first links form a path through all positions, which connects them.
            places = path[document : document + 2]
        else:
            # Those with the fewest documents, ties at random.
            order = np.lexsort((rng.random(width), [*map(len, shown_at)]))
            places = order[: 2 if document < n_links else 1]
        for place in places:
            shown_at[place].append(document)
    return [np.array(documents) for documents in shown_at]


def _column(shown, n_links, n_queries, rng):
    """What is shown at one position, (n_queries,): the links once, the others in turn."""
    links, others = shown[shown < n_links], shown[shown >= n_links]
    rest = np.resize(rng.permutation(others), n_queries - len(links))
    return rng.permutation(np.concatenate([links, rest]))


def _without_meetings(pages, rng):
    """The same columns in another order, so that no page shows a document twice."""
    while True:
        order = np.sort(pages, axis=1)
        meeting = np.flatnonzero((order[:, 1:] == order[:, :-1]).any(axis=1))
        if not len(meeting):
            return pages
        for row in meeting:
            other = rng.integers(len(pages))
            column = rng.integers(pages.shape[1])
            pages[[row, other], column] = pages[[other, row], column]


def _published_log(folder, n_components, n_impressions, seed):
    part = folder / f"K={n_components}" / "train"
    if not part.is_dir():
        raise FileNotFoundError(
            f"there is no folder {part}. --sets expects the folder of the published sets, "
            "dataset_fully_simulation, which holds K=1, K=2, K=3 and K=4."
        )
    X = _pages(part)
    relevance = relevance_probability(X["relevance"], max_grade=MAX_GRADE)
    examination = PositionBasedUser().examination_at(N_POSITIONS)
    probability = relevance * examination[X["position"] - 1]
    clicks = np.random.default_rng(seed).binomial(n_impressions, probability) / n_impressions
    truth = SimpleNamespace(
        relevance_probability=pd.Series(relevance).groupby(X["doc"]).first(),
        examination=examination,
        click_probability=probability,
    )
    return X.assign(session=0, impressions=n_impressions), clicks, truth


def _pages(folder):
    """Rows of pages in the layout of the ULTRA toolbox: each line of ``train.init_list`` is a
    query and its documents by position, a negative number pads; each line of ``train.labels`` is
    the query and their grades."""
    rows = []
    with (folder / "train.init_list").open() as pages, (folder / "train.labels").open() as labels:
        for page, grades in zip(pages, labels, strict=True):
            (query, *docs), (same, *relevance) = map(int, page.split()), map(int, grades.split())
            if query != same or len(docs) != len(relevance):
                raise ValueError(f"{folder}: the page of query {query} has other grades.")
            listed = enumerate(zip(docs, relevance, strict=True), start=1)
            rows += [(query, doc, place, grade) for place, (doc, grade) in listed if doc >= 0]
    X = pd.DataFrame(rows, columns=["qid", "doc", "position", "relevance"])
    return X.assign(doc_scope="global")


# --------------------------------------------------------------------------------------
# Documents, and the lists of a production ranker
# --------------------------------------------------------------------------------------
def document_sets(settings):
    """Names of the sets of documents: the reader's own, or the made ones."""
    return list(MADE) if settings.letor is None else [name_of(settings.letor)]


def read_documents(name, settings, n_train, n_test, seed, n_features=20, n_documents=WHOLE_LISTS):
    """Training and test documents; in the made sets, copies of documents link queries."""
    made = {"n_features": n_features, "n_documents": n_documents}
    train, test = split_documents(settings, n_train, n_test, seed=seed, **made)
    if settings.letor is not None:
        return train, test
    rng = np.random.default_rng([11, seed])
    copied = np.flatnonzero(rng.random(len(train)) < MADE[name])
    columns = ["relevance", *feature_columns(train)]
    # Coarse features, as counts are: with few of them, documents are equal by chance too.
    train, test = train.round(1), test.round(1)
    train[columns] = train[columns].to_numpy()[_sources(copied, len(train), rng)]
    return train, test


def _sources(copied, n_rows, rng):
    """Row -> the row that it shows."""
    source = np.arange(n_rows)
    source[copied] = rng.integers(n_rows, size=len(copied))
    return source


def shown_lists(documents, seed, fraction=0.01):
    """The ten documents of each query that the production ranker shows, by position."""
    score = pd.Series(ranking_svm(documents, fraction, seed), index=documents.index)
    position = score.groupby(documents["qid"]).rank(ascending=False, method="first")
    shown = documents.assign(position=position.astype(int))
    shown = shown[shown["position"] <= N_POSITIONS].sort_values(["qid", "position"])
    return shown.reset_index(drop=True)


def with_padding(shown):
    """Every list as ten rows: each that is missing shows one document, all zeros, of grade 0."""
    places = [shown["qid"].unique(), range(1, N_POSITIONS + 1)]
    every = pd.MultiIndex.from_product(places, names=["qid", "position"])
    return shown.set_index(["qid", "position"]).reindex(every, fill_value=0).reset_index()


def same_features(documents, n_features=None):
    """The same number for documents with equal (first ``n_features``) features."""
    names = [name for name in feature_columns(documents) if name != "position"][:n_features]
    return pd.util.hash_pandas_object(documents[names], index=False).factorize()[0]


# --------------------------------------------------------------------------------------
# Positions times contexts
# --------------------------------------------------------------------------------------
def contextual_log(documents, n_contexts, n_impressions, seed, *, padding=False):
    """Every list served once, each document in a context of its own.

    Returns the log (a row for each list and position), its click rates, and the truth by row:
    relevance, click probability, whether the row is a document of the list, and the vector of
    each (position, context). With ``padding`` the other rows of short lists are a document too.
    """
    rng = np.random.default_rng([13, seed])
    user = ContextualPositionBasedUser(n_contexts=n_contexts, random_state=seed)
    shown = shown_lists(documents, seed).assign(listed=1)
    if padding:
        shown = with_padding(shown)
    listed = shown.pop("listed").eq(1).to_numpy()
    context = rng.integers(n_contexts, size=len(shown))
    position = shown["position"].to_numpy()
    relevance = relevance_probability(
        shown["relevance"], max_grade=max(4, documents["relevance"].max())
    )
    probability = relevance * user.examination_table(N_POSITIONS)[context, position - 1]
    log = shown.assign(
        # A document is what its features say, as in the paper.
        doc=same_features(shown),
        doc_scope="global",
        context=context,
        impressions=n_impressions,
    )
    clicks = rng.binomial(n_impressions, probability) / n_impressions
    vectors = {
        (place, kind): vector
        for place in range(1, N_POSITIONS + 1)
        for kind, vector in enumerate(user.context_vectors)
    }
    truth = SimpleNamespace(
        relevance=relevance, click_probability=probability, listed=listed, vectors=vectors
    )
    return log, clicks, truth


# --------------------------------------------------------------------------------------
# A log with kinds of results
# --------------------------------------------------------------------------------------
LOG_COLUMNS = ["session", "qid", "doc", "position"]


def log_with_kinds(settings, n_sessions, seed):
    """A click log and the names of its columns, besides the position, that may bias clicks.

    Made: each result is of one of many kinds and of one of a few, as on pages of a search engine
    that shows pictures, maps or answers among the results.
    """
    if settings.log is not None:
        return _read_log(Path(settings.log))
    rng = np.random.default_rng([14, seed])
    documents, _ = split_documents(settings, max(50, n_sessions // 50), 10, seed=seed)
    log, _, _ = simulate_clicks(
        documents,
        n_sessions=n_sessions,
        policy=PlackettLucePolicy(temperature=0.1),
        features=False,
        random_state=seed,
    )
    kinds = rng.geometric(0.02, size=len(documents)), rng.geometric(0.4, size=len(documents))
    by_doc = pd.DataFrame({"qid": documents["qid"], "doc": documents["doc"]})
    by_doc = by_doc.assign(vertical_1=kinds[0], vertical_2=kinds[1])
    return log[LOG_COLUMNS].merge(by_doc), ["vertical_1", "vertical_2"]


def _read_log(path):
    read = pd.read_csv if path.suffix == ".csv" else pd.read_parquet
    log = read(path)
    missing = [name for name in LOG_COLUMNS if name not in log]
    if missing:
        raise ValueError(
            f"{path} has no column {', '.join(missing)}; expected {', '.join(LOG_COLUMNS)}, "
            "click, and two columns whose names begin with 'vertical': the kinds of results."
        )
    kinds = [name for name in log if name.startswith("vertical")][:2]
    if len(kinds) == 2:
        return log[[*LOG_COLUMNS, *kinds]], kinds
    # No kinds of results: what else may bias a click is the result above, and the clicks above.
    log = log.sort_values(["session", "qid", "position"], ignore_index=True)
    pages = log.groupby(["session", "qid"])
    above = log.assign(
        vertical_1=pages["doc"].shift(fill_value=-1),
        vertical_2=pages["click"].cumsum() - log["click"],
    )
    return above[[*LOG_COLUMNS, "vertical_1", "vertical_2"]], ["vertical_1", "vertical_2"]
