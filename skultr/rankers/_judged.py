"""Judgments of people or of a language model beside a click log: their rows, with features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._texts import id_text
from .._base._typing import Floats, Ints
from .._log._clicklog import ClickLog
from .._log._documents import FeatureTable
from .._log._faults import count_of
from .._log._judgment_tables import refuse_labels_of_clicks
from .._log._roles import column_names, is_frame, is_on_disk, read_role
from .._log._segments import encode, offsets_from_sorted, pair_codes
from ..exceptions import ClickDataWarning, python_value, warn_user
from ._thresholds import LEAST_QUERIES

if TYPE_CHECKING:
    from ._lambdamart import LambdaMARTRanker


@dataclass(frozen=True, eq=False)
class Judged:
    """Documents of queries with grades from 0 to 1, sorted by query."""

    #: The grades as a log: one list per query, whose "clicks" are the grades.
    log: ClickLog
    #: Code of each judged query in the log of clicks, -1 where it is not there.
    query_in_log: Ints  # (n_queries,)
    #: Score of the production ranker, NaN where it is not known.
    production: Floats  # (n_rows,)

    @property
    def n_queries(self) -> int:
        """Number of judged queries."""
        return len(self.query_in_log)

    @property
    def features(self) -> NDArray[Any]:
        """Features of each row, shape (n_rows, n_features)."""
        return self.log.features[self.log.version]


class Sources:
    """Where the features of judged documents come from, beside the table of judgments itself."""

    def __init__(
        self,
        X: Any,
        log: ClickLog,
        roles: Mapping[str, Any],
        documents: FeatureTable | None,
        read_features: Callable[[Any], NDArray[np.float32]],
    ) -> None:
        self.log = log
        self.read_features = read_features
        self._documents = documents
        self._X = None if is_on_disk(X) else X
        self._roles = roles

    def pairs(self) -> list[_Pairs]:
        """The pairs of query and document with features: of the log, and beside it."""
        found = [self._of_dataset() if self._X is None else self._of_rows()]
        if self._documents is not None:
            found.append(self._of_table(self._documents))
        return [pairs for pairs in found if pairs is not None]

    def _of_rows(self):
        """Those of the rows of X, shown or not; None if nothing names them."""
        X = self._X
        query = read_role(X, "qid", self._roles["qid"])
        doc = read_role(X, "doc", self._roles["doc"])
        if query is None or doc is None:
            return None
        production = read_role(X, "production", self._roles["production"])

        def features(rows):
            if self._documents is not None:
                return self._documents.features[
                    self._documents.rows_of(pd.DataFrame({"qid": query[rows], "doc": doc[rows]}))
                ]
            return self.read_features(_take(X, rows))

        return _Pairs(query, doc, production, features)

    def _of_dataset(self):
        """Those of the rows of a log on disk; None if nothing names the documents."""
        log = self.log
        if log.doc_ids is None:
            return None
        query = log.query_ids[log.query]
        doc = log.doc_ids.get_level_values(-1).to_numpy()[log.doc]
        return _Pairs(query, doc, log.production, lambda rows: log.features[log.version[rows]])

    def _of_table(self, table):
        """Those of the frame ``documents=``, of all queries where it has no query ids."""
        doc = table.ids.get_level_values(-1).to_numpy()
        query = None
        if table.ids.nlevels > 1:
            query = table.ids.get_level_values(0).to_numpy()
        return _Pairs(query, doc, table.production, lambda rows: table.features[rows])


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs of query and document, in rows that may repeat them."""

    query: NDArray[Any] | None  # (n_rows,), None: the pairs are of any query
    doc: NDArray[Any]  # (n_rows,)
    production: Floats | None
    features: Callable[[Ints], NDArray[np.float32]]  # of rows

    def places(self, query, doc):
        """First row of each of some pairs, -1 where there is none."""
        own = np.zeros(len(self.doc), dtype=int)
        wanted = np.zeros(len(doc), dtype=int)
        if self.query is not None:
            own, wanted = _common_codes(self.query, query, "qid")
        own_doc, wanted_doc = _common_codes(self.doc, doc, "doc")
        n_docs = int(own_doc.max(initial=0)) + 1
        # A log has many more rows than pairs that somebody judged.
        rows = np.flatnonzero(np.isin(own, wanted))
        codes = pair_codes(own[rows], own_doc[rows], n_docs)
        distinct, first = np.unique(codes, return_index=True)
        is_known = (wanted >= 0) & (wanted_doc >= 0)
        code = pair_codes(np.maximum(wanted, 0), np.maximum(wanted_doc, 0), n_docs)
        place = pd.Index(distinct).get_indexer(np.where(is_known, code, -1))
        # A pair without a match has the place -1, the last element, which is -1.
        return np.append(rows[first], -1)[place]


def read_judgments_of(judgments: Any, sources: Sources, features: list[Any] | None) -> Judged:
    """The judged documents that have features; an error if they are too few or contradictory.

    ``features`` are the names of the features of the log, None if they have none.
    """
    table = _checked(judgments)
    log = sources.log
    table = table.assign(qid=_as_in_log(table["qid"], log.query_ids, "qid"))
    if "doc" in table and log.doc_ids is not None:
        known = log.doc_ids.get_level_values(-1)
        table = table.assign(doc=_as_in_log(table["doc"], known, "doc"))
    own = features is not None and {*features} <= {*column_names(judgments)}
    if own:
        chosen = nw.from_native(judgments, eager_only=True)[list(features)].to_native()
        values = sources.read_features(_take(chosen, table.index.to_numpy()))
        production = _production_of(judgments, table)
        if "doc" in table:
            production = _known_production(production, table, sources)
    else:
        values, production, is_found = _looked_up(table, sources, judgments)
        table = table[is_found]
    return _judged(table, values, production, log)


def judged_ranker(seed: int) -> LambdaMARTRanker:
    """The member that learns from judgments alone, which are few: small trees of random rows.

    With 15 and with 50 judged queries these settings were .01 of nDCG@10 above those for clicks,
    and .007 above all rows for each tree; LightGBM's lambdarank and regression on grades were
    below both.
    """
    # LightGBM is imported where it is used.
    from ._lambdamart import LambdaMARTRanker

    settings = {
        # In units of documents of the best grade.
        "lambda_l2": 5.0,
        # Each tree learns from so many of the documents.
        "bagging_fraction": 0.7,
        "bagging_freq": 1,
    }
    return LambdaMARTRanker(
        debiasing="none",
        n_estimators=150,
        num_leaves=4,
        # Ten judged queries of five documents can be split, too.
        min_child_samples=10,
        # Of fifty queries, five would decide when to stop.
        early_stopping=False,
        lgbm_params=settings,
        random_state=seed,
    )


def _checked(judgments):
    """The judged rows with ``qid``, ``doc`` (if it is there) and ``relevance``, by their row."""
    if not is_frame(judgments):
        raise TypeError(
            f"judgments is a {type(judgments).__name__}; expected a frame with the columns 'qid', "
            "'doc' and 'relevance', such as read_judgments of skultr.serving returns."
        )
    names = column_names(judgments)
    missing = [name for name in ("qid", "relevance") if name not in names]
    if missing:
        raise ValueError(
            f"judgments has no column {' and no '.join(map(repr, missing))}: its columns are "
            f"{names[:10]}. Expected 'qid', 'doc' and 'relevance'; rename them."
        )
    refuse_labels_of_clicks(names, "judgments")
    columns = {"qid": read_role(judgments, "qid"), "relevance": read_role(judgments, "relevance")}
    if "doc" in names:
        columns["doc"] = read_role(judgments, "doc")
    for role in ("qid", "doc"):
        # Ids that are not numbers alone are text, so that 7 and "7" are one.
        if role in columns and not _are_numbers(columns[role]):
            columns[role] = _texts(columns[role], f"The column {role!r} of judgments")
    table = pd.DataFrame(columns)
    # Without a grade a pair was not judged.
    table = table[table["relevance"].notna()]
    grade = table["relevance"].to_numpy()
    wrong = table[~(np.isfinite(grade) & (grade >= 0))]
    if len(wrong):
        raise ValueError(
            f"relevance is {wrong['relevance'].iloc[0]} in {count_of(len(wrong), 'row')} of "
            "judgments; expected finite grades of at least 0, and a missing value where nobody "
            "judged."
        )
    if table.empty:
        raise ValueError("judgments has no row with a relevance; expected graded documents.")
    return _without_repetitions(table)


def _without_repetitions(table):
    """Each pair once; an error where it has two grades."""
    if "doc" not in table:
        return table
    table = table.drop_duplicates()
    repeated = table[table.duplicated(["qid", "doc"])]
    if len(repeated):
        pair = tuple(python_value(value) for value in repeated[["qid", "doc"]].iloc[0])
        raise ValueError(
            f"judgments has {count_of(len(repeated), 'pair')} of qid and doc with several grades, "
            f"such as {pair!r}; expected one. Choose a judge, or take means: "
            "judgments.groupby(['qid', 'doc'], as_index=False)['relevance'].mean()."
        )
    return table


def _looked_up(table, sources, judgments):
    """Features and production of the rows whose pair is in the log, and which rows these are."""
    pairs = sources.pairs()
    if "doc" not in table or not pairs:
        raise ValueError(
            "Nothing links the judgments to features: "
            + ("judgments" if "doc" not in table else "the log")
            + " names no documents by 'qid' and 'doc', and judgments does not have all features "
            "of the log as columns. Add one of both."
        )
    query = table["qid"].to_numpy()
    doc = table["doc"].to_numpy()
    values = None
    production = _production_of(judgments, table)
    is_found = np.zeros(len(table), dtype=bool)
    for source in pairs:
        place = source.places(query, doc)
        new = np.flatnonzero((place >= 0) & ~is_found)
        if not len(new):
            continue
        found = source.features(place[new])
        if values is None:
            values = np.empty((len(table), found.shape[1]), dtype=np.float32)
        values[new] = found
        if source.production is not None:
            known = source.production[place[new]]
            production[new] = np.where(np.isnan(production[new]), known, production[new])
        is_found[new] = True
    if values is None:
        _report_none_found(table, pairs[0])
    lost = len(table) - int(is_found.sum())
    if lost:
        warn_user(
            f"{lost} of {count_of(len(table), 'judged pair')} are neither in the log nor in "
            "documents=, and judgments has no features for them: they are left out. Pass the "
            "features of all documents as documents=, or as columns of judgments.",
            ClickDataWarning,
        )
    return values[is_found], production[is_found], is_found


def _report_none_found(table, pairs):
    """Raise the error that no judged pair has features, with ids of both sides."""
    judged = tuple(python_value(value) for value in table[["qid", "doc"]].iloc[0])
    query = None if pairs.query is None else python_value(pairs.query[0])
    known = (query, python_value(pairs.doc[0]))
    raise ValueError(
        f"None of {count_of(len(table), 'judged pair')} of qid and doc is in the log, such as "
        f"{judged!r}; the log has pairs such as {known!r}, and judgments does not have its "
        "features as columns. Give both the same ids (queries= of read_judgments translates the "
        "texts of queries), or add the features to judgments."
    )


def _known_production(production, table, sources):
    """Scores of production, those of the log where the table of judgments has none."""
    query = table["qid"].to_numpy()
    doc = table["doc"].to_numpy()
    for source in sources.pairs():
        if source.production is not None:
            place = source.places(query, doc)
            known = np.where(place >= 0, source.production[place], np.nan)
            production = np.where(np.isnan(production), known, production)
    return production


def _production_of(judgments, table):
    """Score of the production ranker in the table of judgments, NaN where it is not known."""
    production = read_role(judgments, "production")
    if production is None:
        return np.full(len(table), np.nan)
    return production[table.index.to_numpy()]


def _judged(table, features, production, log):
    """The rows as a log of grades, with the queries that can teach."""
    query, ids = encode(table["qid"].to_numpy(), "The column 'qid' of judgments")
    grade = table["relevance"].to_numpy()
    # A query all of whose documents are as good teaches nothing.
    most = np.zeros(len(ids))
    np.maximum.at(most, query, grade)
    least = np.full(len(ids), np.inf)
    np.minimum.at(least, query, grade)
    teaches = most > least
    if teaches.sum() < LEAST_QUERIES.value:
        raise ValueError(
            f"Queries of judgments with features and with documents of different relevance: "
            f"{teaches.sum()}; expected at least {LEAST_QUERIES.value:g}, because fewer neither "
            "train a member of the ensemble nor tell its weight. Judge more queries, or leave "
            "out judgments=."
        )
    # Sorted, so that the order of the rows of the table changes nothing.
    by = [query] if "doc" not in table else [encode(table["doc"].to_numpy())[0], query]
    order = np.lexsort(by)
    order = order[teaches[query[order]]]
    query, kept = encode(query[order])
    grade = grade[order] / grade.max()
    features = np.ascontiguousarray(features[order])
    judged = _log_of_grades(features, query, grade, ids[kept])
    own, wanted = _common_codes(log.query_ids, ids[kept], "qid")
    in_log = pd.Index(own).get_indexer(wanted)
    return Judged(judged, in_log, production[order])


def _log_of_grades(features, query, grade, query_ids):
    """Rows sorted by query as a log of one list per query, without bias."""
    n_rows = len(query)
    rows = np.arange(n_rows, dtype=np.int32)
    nothing = np.zeros(n_rows, dtype=np.int32)
    offsets = offsets_from_sorted(query)
    lengths = np.diff(offsets)
    return ClickLog(
        features=features,
        version=rows,
        doc_of_version=rows,
        query_of_list=np.arange(len(lengths), dtype=np.int32),
        user=nothing,
        position=rows - np.repeat(offsets[:-1], lengths) + 1,
        bias=nothing,
        clicks=grade,
        weight=np.ones(n_rows),
        propensity=None,
        offsets=offsets,
        query_ids=query_ids,
        bias_values=np.zeros(1),
        user_ids=np.zeros(1),
        doc_ids=None,
    )


def _common_codes(known, ids, role):
    """Codes of ids of the log, and of those of judgments; -1 where the log does not have them."""
    own, distinct = encode(known, f"The role {role!r}")
    # Files hold ids as text, where a log may have numbers. Both are compared as text then: a
    # number of text may be "007", and floats have not all whole numbers.
    if not (_are_numbers(distinct) and _are_numbers(ids)):
        distinct = _texts(distinct, role)
        ids = _texts(ids, role)
    return own, pd.Index(distinct, tupleize_cols=False).get_indexer(ids)


def _as_in_log(ids, known, role):
    """Judged ids, those of the log as the log has them: their order is then the same."""
    if _are_numbers(known) == _are_numbers(ids):
        return ids
    distinct = pd.unique(known)
    in_log = dict(zip(_texts(distinct, role), distinct, strict=True))
    found = [in_log.get(text, text) for text in _texts(ids, role)]
    return pd.Series(found, index=ids.index, dtype=object).infer_objects()


def _are_numbers(ids):
    return pd.api.types.is_numeric_dtype(np.asarray(ids).dtype)


def _texts(ids, role):
    return [id_text(id_, role) for id_ in ids]


def _take(X, rows):
    """Some rows of a frame, an array or a sparse matrix."""
    if is_frame(X):
        return nw.from_native(X, eager_only=True)[rows, :].to_native()
    return X[rows]
