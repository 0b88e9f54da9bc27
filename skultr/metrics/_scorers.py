"""Scorers: objects ``scorer(estimator, X, y)`` that scikit-learn's searches call; and annotated
documents, as scorers, comparisons of rankers and tools of information retrieval take them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import MetadataRequest, get_routing_for_object

from .._base._shared_text import with_shared_text
from .._base._sklearn import validate_parameter_constraints, validate_params
from .._base._texts import id_text
from .._base._typing import ArrayLike, Column, Floats, Ints, Predictor, Table
from .._log._estimator import steps_of
from .._log._lost_roles import refuse_lost_queries
from .._log._reader import Rows, features_of, pairs_of_codes, read
from .._log._roles import (
    FIT_ROLES,
    OUTCOME,
    is_frame,
    is_role,
    read_column,
    role_columns,
    without_columns,
)
from .._log._segments import as_array, encode
from .._log._units import warn_of_units
from ..exceptions import AssumptionWarning, warn_user
from ._judged_documents import (
    JudgedDocuments,
    is_defined_as_often,
    refuse_annotation_as_judge,
    refuse_undefined,
    take_judge,
)
from ._ranking import RANKING_METRICS, as_numbers
from ._two_judges import mean_by_two_judges

#: What to do with clicks where annotation is expected.
BY_CLICKS = (
    "compare by clicks with skultr.evaluation.policy_difference, or with estimate(..., baseline=) "
    "of skultr.metrics.ClickLikelihoodScorer"
)
#: Parameters of metrics that a scorer passes itself.
_NOT_OPTIONS = ("y_true", "y_score", "qid", "k", "per_query")


#: Decorator that puts what the docstrings of several scorers share.
describes_a_scorer = with_shared_text(
    estimator="""\
estimator : estimator, array-like of shape (n_rows,) or str
    With a method ``predict(X)`` that returns one score per row; or the scores of the rows, or
    their column of X.""",
    sample_weight="""\
sample_weight : array-like of shape (n_rows,), default=None
    Multiplies ``impressions``.""",
    roles=(
        "qid, session, doc, position, bias, user, propensity, impressions, doc_scope : "
        "array-like of shape (n_rows,), default=None\n"
        "    Roles as keywords; they take precedence over columns."
    ),
    propensity="""\
propensity : "column", array-like of shape (n_positions,), estimator or None, default=None
    Source of the examination probabilities: the role ``propensity`` of each row (also if
    None); one number per position, from position 1; or an estimator, which is cloned and
    fitted on the clicks that are scored. ``FrozenEstimator(fitted)`` uses a fitted estimator
    as it is, which is faster in a search and the same for all folds.""",
)


class Scorer:
    """What all scorers share: checks, the roles that they request, docstrings and text."""

    #: Constraints of the parameters.
    _constraints: ClassVar[dict[str, Any]] = {}
    #: Requested from scikit-learn by default, so that users need no `set_score_request`.
    _roles: ClassVar[tuple[str, ...]] = (*FIT_ROLES, "sample_weight")

    def __post_init__(self) -> None:
        validate_parameter_constraints(self._constraints, vars(self), type(self).__name__)

    def get_metadata_routing(self) -> MetadataRequest:
        """Metadata request of the roles, for scikit-learn's routing.

        Returns
        -------
        request : MetadataRequest
        """
        request = MetadataRequest(owner=self)
        for name in self._roles:
            request.score.add_request(param=name, alias=True)
        return request

    def __repr__(self) -> str:
        given = dict(vars(self))
        # Most have one judge.
        if given.get("judge", "") is None:
            del given["judge"]
        # Options of a metric are shown as the parameters they were.
        given |= given.pop("options", {})
        # The metric is passed by position.
        texts = [f"{name}={value!r}".removeprefix("metric=") for name, value in given.items()]
        return f"{type(self).__name__}({', '.join(texts)})"


class RankingScorer(Scorer):
    """Score a ranking by human annotation, with nDCG or another ranking metric.

    The scorer compares ``estimator.predict(X)`` with the role ``relevance`` of X, query by query.
    Clicks (``y``) are not read. A document counts once, however often the log shows it; documents
    without annotation (``relevance`` missing) do not count.

    Roles are columns of X, or keyword metadata, which the scorer requests from scikit-learn by
    default (``enable_metadata_routing=True``). Without ``doc``, rows of a query with equal
    features are one document. Columns of text are ignored in this comparison. Numeric columns are
    not: if X has numeric bias factors, pass ``doc``.

    Parameters
    ----------
    metric : {"ndcg", "dcg", "err", "ap", "rr", "precision"}, default="ndcg"
        :func:`ndcg_score`, :func:`dcg_score`, :func:`err_score`,
        :func:`average_precision_score`, :func:`reciprocal_rank_score` or
        :func:`precision_score`.
    k : int, default=10
        Ranks that count; None for all.
    judge : str, default=None
        Column of X with the cheap labels of a second judge, of (nearly) all queries; ``relevance``
        then holds the trusted labels of some. The estimator must not learn from this column.
        Rankers of skultr never take a column ``outcome_...`` as a feature. For other estimators,
        drop the column and pass the labels as the metadata ``judge``.
    **options
        Further keywords of that function: ``gain``, ``ties``, ``no_relevant``, ``threshold``,
        ``max_grade``. Pass ``max_grade`` with "err" in a cross-validation, because by default
        each fold uses its own largest grade.

    Raises
    ------
    ValueError
        By the constructor: if there is no such metric, or it has no such option. When called: if
        X has no ``relevance`` or no ``qid``, if no row is annotated, or if rows of one document
        differ in relevance; if the judge's labels are negative, infinite or the clicks, are of
        no query with trusted labels, or leave the metric undefined everywhere; or if the estimator
        learned from their column.

    Notes
    -----
    *Two judges.* The score is the mean metric of trusted queries, less a weight times what the
    judge's metric of these queries is above that of all, as in
    :func:`~skultr.evaluation.compare_rankers`. Here the weight depends on the labels alone: it is
    how far the judge's metric of random rankings follows the trusted one within queries. A weight
    tuned for each candidate would add its error to the differences between candidates. With 10 or
    20 trusted queries of 500, differences of two candidates erred by .61 to .95 of what the
    trusted labels alone err, and with a weight of each candidate's own by .73 to 1.01
    (``benchmarks/studies/two_judges.py``).

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.dummy import DummyRegressor
    >>> from skultr.metrics import RankingScorer
    >>> X = pd.DataFrame({"qid": [1, 1], "bm25": [0.3, 0.1], "relevance": [0, 2]})
    >>> model = DummyRegressor().fit(X, [0, 1])
    >>> round(RankingScorer("ndcg", k=1)(model, X), 3)  # equal scores: the expected value
    0.5
    """

    _roles = ("qid", "relevance", "doc", "judge")

    def __init__(
        self,
        metric: Literal["ap", "dcg", "err", "ndcg", "precision", "rr"] = "ndcg",
        *,
        k: int | None = 10,
        judge: str | None = None,
        **options: Any,
    ) -> None:
        if metric not in RANKING_METRICS:
            raise ValueError(
                f"There is no metric {metric!r}; expected one of {sorted(RANKING_METRICS)}."
            )
        # Options are the keywords of the function of that name.
        allowed = inspect.signature(RANKING_METRICS[metric]).parameters
        for name in options:
            if name not in allowed or name in _NOT_OPTIONS:
                known = sorted(set(allowed) - set(_NOT_OPTIONS))
                raise ValueError(
                    f"The metric {metric!r} has no option {name!r}; expected some of {known}."
                )
        if np.ndim(k):
            raise ValueError(
                f"A scorer returns one number, got k={k!r}; expected an int or None. Use several "
                "scorers: scoring={'ndcg@5': RankingScorer(k=5), 'ndcg@10': RankingScorer()}."
            )
        if not isinstance(judge, str | None):
            raise TypeError(
                f"judge is of type {type(judge).__name__}; expected the name of a column of X. "
                "Labels that are no column are passed when the scorer is called."
            )
        self.metric = metric
        self.k = k
        self.judge = judge
        self.options = options

    @describes_a_scorer
    def __call__(
        self,
        estimator: Predictor | Column | str,
        X: Table,
        y: Column | None = None,
        *,
        qid: Column | None = None,
        relevance: Column | None = None,
        doc: Column | None = None,
        judge: Column | None = None,
    ) -> float:
        """Mean metric over the queries of X; greater is better.

        Parameters
        ----------
        {estimator}
        X : frame, array-like or sparse matrix of shape (n_rows, n_columns)
        y : ignored
            Clicks are not relevance.
        qid, relevance, doc : array-like of shape (n_rows,), default=None
            Roles as keywords; they take precedence over columns.
        judge : array-like of shape (n_rows,), default=None
            Labels of a second judge, in place of those of a column.

        Returns
        -------
        score : float
        """
        labels = None
        given = self.judge if judge is None else judge
        if given is not None:
            refuse_annotation_as_judge(given, relevance)
            _refuse_judge_as_feature(estimator, given)
            X, labels = take_judge(X, given)
        roles = {"qid": qid, "doc": doc, "relevance": relevance}
        documents = AnnotatedDocuments(X, roles, caller="RankingScorer")
        score = documents.scores(estimator, "the estimator")
        # Never an error: a search drops a candidate that orders nothing by its value.
        warn_of_units("scores", *documents.to_order(score), "The estimator")
        mean = RANKING_METRICS[self.metric](
            documents.relevance, score, qid=documents.qid, k=self.k, **self.options
        )
        # An undefined mean was warned of, and no judge helps it.
        if labels is None or np.isnan(mean):
            return mean
        roles["relevance"] = labels
        cheap = AnnotatedDocuments(X, roles, caller="RankingScorer", called="judge's label")
        are_given = not hasattr(estimator, "predict")
        judged_score = cheap.of_documents(documents.row_scores, "the estimator", are_given)
        value, _ = metric_by_query(self.metric, self.k, self.options)
        both = JudgedDocuments(documents, cheap)
        values = value(cheap, judged_score).to_frame()
        refuse_undefined(values)
        queries = both.judged(value(documents, score).to_frame(), values)
        if not is_defined_as_often(queries):
            return mean
        return mean_by_two_judges(queries, *both.random_rankings(value))


def _refuse_judge_as_feature(estimator, judge):
    """An error if the estimator was fitted with the judge's column among its features."""
    # The first step of a pipeline may choose columns.
    names = [] if isinstance(estimator, Pipeline) else getattr(estimator, "feature_names_in_", [])
    if isinstance(judge, str) and judge in [*names]:
        # Other estimators learn from outcomes too.
        is_outcome = judge.startswith(OUTCOME)
        name = f"'{OUTCOME}{judge}'"
        renamed = "" if is_outcome else f", or call it {name} if the estimator is of skultr"
        raise ValueError(
            f"The estimator learned from the column {judge!r}, which holds the judge's labels; "
            "expected it to know nothing of the judge. Drop the column before fit. In a search, "
            f"pass its values as the metadata 'judge'{renamed}."
        )


#: Without ids, documents with equal features are taken for one.
_NAME_DOCUMENTS = " Name different documents in a column 'doc'."


class AnnotatedDocuments:
    """The annotated documents of X, each once, and how estimators score them."""

    def __init__(
        self,
        X: Table,
        given: Mapping[str, Column | None],
        *,
        caller: str,
        sample_weight: Column | None = None,
        called: str = "relevance",
    ) -> None:
        purposes = {
            "qid": "to say which query a row belongs to",
            "relevance": "as the human annotation to compare with",
            "position": "to say where the logging policy put a document",
        }
        need = {role: purpose for role, purpose in purposes.items() if role in given}
        rows = read(X, None, sample_weight, given, reads=tuple(given), need=need, caller=caller)
        self._X = X
        #: All rows of X.
        self.read = rows
        relevance = rows["relevance"]
        doc = rows["doc"]
        self._annotated = np.flatnonzero(~np.isnan(relevance))
        if not len(self._annotated):
            raise ValueError(
                f"None of the {rows.n_rows} rows is annotated: 'relevance' is missing throughout. "
                "Expected some. If you merged judgments, no judged query may be in X: compare the "
                "spelling of 'qid' and 'doc' in both (read_judgments(..., queries=) compares "
                "queries in lower case). Else split so that each fold has annotated queries, or "
                "score by clicks."
            )
        # Rows without annotation may show the same documents.
        judged_queries = rows.query[self._annotated]
        self._seen = np.flatnonzero(np.isin(rows.query, judged_queries))
        features = _dense_features(X) if doc is None else None
        code = rows.documents(features, self._seen).code
        # A document of two queries has two codes.
        self._code, _, _ = pairs_of_codes(rows.query[self._seen], code, int(code.max()) + 1)
        place_in_seen = np.searchsorted(self._seen, self._annotated)
        self._document = self._code[place_in_seen]
        first = self._first(
            relevance,
            f"with the {called}",
            f"annotation per document, and clicks are none: {BY_CLICKS}",
        )
        self.rows = self._annotated[first]
        self._own = self._document[first]
        self.relevance = relevance[self.rows]
        self.qid = rows["qid"][self.rows]
        self.doc = None if doc is None else doc[self.rows]

    def mean(self, values: Floats, weight: Floats) -> Floats:
        """Weighted mean over all rows of each document; NaN if all its weights are 0."""
        total = self.total(weight)
        sums = self.total(values * weight)
        return np.divide(sums, total, out=np.full(len(total), np.nan), where=total > 0)

    def total(self, values: Floats) -> Floats:
        """Sum over all rows of each document."""
        total = np.bincount(self._code, values[self._seen])
        return total[self._own]

    def of_rows(self, function: Callable[..., Floats], *columns: Floats) -> Floats:
        """What a function of columns and codes of rows finds, last axis by document."""
        seen = [column[self._seen] for column in columns]
        return function(*seen, self._code)[..., self._own]

    def code_of(self, rows: Ints) -> Ints:
        """Code of the document of each row; -1 in queries without annotation."""
        place = np.searchsorted(self._seen, rows)
        place = np.minimum(place, len(self._seen) - 1)
        return np.where(self._seen[place] == rows, self._code[place], -1)

    def scores(self, ranker: Predictor | Column | str, name: str) -> Floats:
        """One score per document, by a fitted ranker or from scores of the rows of X."""
        self._warn_of_taught(ranker, name)
        self.row_scores = scores_of_rows(ranker, self._X, self.read, name)
        return self.of_documents(self.row_scores, name, not hasattr(ranker, "predict"))

    def _warn_of_taught(self, ranker, name):
        """Warn of annotated queries whose judgments trained the ranker."""
        if not hasattr(ranker, "predict"):
            return
        taught = getattr(steps_of(ranker)[-1], "judged_queries_", None)
        if taught is None:
            return
        # Files hold ids as text.
        taught_texts = {id_text(qid, "qid") for qid in taught}
        annotated = {id_text(qid, "qid") for qid in np.unique(self.qid)}
        n_both = len(annotated & taught_texts)
        if n_both:
            warn_user(
                f"{name} learned from judgments of {n_both} of the {len(annotated)} annotated "
                "queries, so that its metric is too high. Leave these queries out of judgments=, "
                "or out of the annotation.",
                AssumptionWarning,
            )

    def of_documents(self, scores: Floats, name: str, are_given: bool) -> Floats:
        """One score per document, from those of the rows, which are equal if they are given."""
        missing = np.isnan(scores[self.rows])
        if missing.any():
            raise ValueError(
                f"The scores of {name} are NaN for {int(missing.sum())} of {len(missing)} "
                f"documents, first in row {self.rows[missing.argmax()]}; expected a score for "
                "each annotated document."
            )
        if are_given:
            self._first(
                scores,
                f"and {name} gives them the scores",
                "score per document: pass the mean score of its rows",
            )
        return scores[self.rows]

    def to_order(self, scores: Floats) -> tuple[Floats, NDArray[Any]]:
        """Scores and queries of the documents of those queries whose relevance varies."""
        query, _ = encode(self.qid)
        # Relevance varies in a query if one document differs from any other, here the last.
        any_relevance = np.zeros(query.max() + 1)
        any_relevance[query] = self.relevance
        differs = self.relevance != any_relevance[query]
        varies = np.zeros(len(any_relevance), dtype=bool)
        varies[query[differs]] = True
        kept = varies[query]
        return scores[kept], query[kept]

    def _first(self, values, told, one):
        """First annotated row of each document, increasing; its rows must have ``one`` value."""
        values = values[self._annotated]
        rows = self._annotated
        # The value of a document is that of its first row; the others must have the same.
        _, first, code = np.unique(self._document, return_index=True, return_inverse=True)
        conflict = np.flatnonzero(values != values[first][code])
        if len(conflict):
            row = conflict[0]
            other = first[code[row]]
            remedy = "" if self.read["doc"] is not None else _NAME_DOCUMENTS
            raise ValueError(
                f"Rows {rows[other]} and {rows[row]} show one document of one query {told} "
                f"{values[other]:g} and {values[row]:g}; expected one {one}.{remedy}"
            )
        return np.sort(first)


# For tools of information retrieval ---------------------------------------------------
def to_ir_measures(
    X: Table,
    scores: Column | Predictor,
    *,
    qid: Column | None = None,
    doc: Column | None = None,
    relevance: Column | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Convert judgments and a ranking to the frames that ir_measures and ranx read.

    Parameters
    ----------
    X : frame, array-like or sparse matrix of shape (n_rows, n_columns)
        Documents with the roles ``qid`` and ``relevance``, and ``doc``. As for
        :class:`RankingScorer`, rows without annotation do not count, and a document counts once.
        Without ``doc``, rows of a query with equal features are one document, which is named by
        the number of its first row.
    scores : array-like of shape (n_rows,) or fitted estimator
        Scores of the rows, higher is better; or what predicts them from X.
    qid, doc, relevance : array-like of shape (n_rows,), default=None
        Roles as keywords; they take precedence over columns.

    Returns
    -------
    qrels : pandas.DataFrame
        ``query_id`` and ``doc_id`` (text), ``relevance`` (int).
    run : pandas.DataFrame
        ``query_id``, ``doc_id`` and ``score`` of the same documents.

    Raises
    ------
    ValueError
        If a role is missing, no row is annotated, a grade is no whole number, two documents of a
        query have one id as text, a score is NaN, or rows of one document differ.

    See Also
    --------
    to_trec : The same as the text of files.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.metrics import to_ir_measures
    >>> X = pd.DataFrame({"qid": [7, 7], "doc": ["a", "b"], "relevance": [0, 2]})
    >>> qrels, run = to_ir_measures(X, [0.3, 0.1])
    >>> qrels
      query_id doc_id  relevance
    0        7      a          0
    1        7      b          2
    >>> run
      query_id doc_id  score
    0        7      a    0.3
    1        7      b    0.1

    ``ir_measures.calc_aggregate([ir_measures.nDCG @ 10], qrels, run)`` evaluates them, and
    ``ranx.Run.from_df(run, q_id_col="query_id", doc_id_col="doc_id", score_col="score")`` reads
    them.
    """
    documents = AnnotatedDocuments(
        X, {"qid": qid, "doc": doc, "relevance": relevance}, caller="to_ir_measures"
    )
    score = documents.scores(scores, "the ranking")
    grade = documents.relevance
    broken = grade % 1 != 0
    if broken.any():
        first = broken.argmax()
        raise ValueError(
            f"relevance is {grade[first]:g} in row {documents.rows[first]}; judgments hold whole "
            "grades. Round them, or map them to grades."
        )
    # Without ids, documents are named by the number of their row.
    docs = documents.rows if documents.doc is None else documents.doc
    ids = pd.DataFrame({"query_id": _texts(documents.qid, "qid")})
    ids["doc_id"] = _texts(docs, "doc")
    # Ids that differ as numbers or as text with a number may be equal as text.
    twice = ids.duplicated()
    if twice.any():
        raise ValueError(
            f"Two documents are {tuple(ids[twice].iloc[0])} as text; expected different ids."
        )
    judged = ids.assign(relevance=grade.astype(np.int64))
    ranked = ids.assign(score=score)
    return judged, ranked


@validate_params({"name": [str]}, prefer_skip_nested_validation=True)
def to_trec(
    X: Table,
    scores: Column | Predictor,
    *,
    name: str = "skultr",
    qid: Column | None = None,
    doc: Column | None = None,
    relevance: Column | None = None,
) -> tuple[str, str]:
    """Convert judgments and a ranking to the text formats of TREC (qrels and run).

    Parameters
    ----------
    X : frame, array-like or sparse matrix of shape (n_rows, n_columns)
    scores : array-like of shape (n_rows,) or fitted estimator
    name : str, default="skultr"
        Name of the run, the last field of its lines.
    qid, doc, relevance : array-like of shape (n_rows,), default=None
        See :func:`to_ir_measures`.

    Returns
    -------
    qrels : str
        Lines ``qid 0 doc relevance``.
    run : str
        Lines ``qid Q0 doc rank score name``, best first. Equal scores are in the order of the
        rows; trec_eval does not read the rank, reads scores in single precision, and puts those
        that are then equal in falling order of ``doc``.

    Raises
    ------
    ValueError
        As :func:`to_ir_measures`, or if an id or the name holds white space.

    See Also
    --------
    skultr.serving.export_judgments : Judgments from clicks.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.metrics import to_trec
    >>> X = pd.DataFrame({"qid": [7, 7], "doc": ["a", "b"], "relevance": [0, 2]})
    >>> qrels, run = to_trec(X, [0.1, 0.3])
    >>> print(run, end="")
    7 Q0 b 1 0.3 skultr
    7 Q0 a 2 0.1 skultr
    """
    judged, ranked = to_ir_measures(X, scores, qid=qid, doc=doc, relevance=relevance)
    refuse_white_space([name, *judged["query_id"].unique(), *judged["doc_id"]])
    qrels = "".join(
        f"{query} 0 {doc} {grade}\n" for query, doc, grade in judged.itertuples(index=False)
    )
    # Queries stay in the order of the rows; documents stand best first.
    place = ranked.groupby("query_id", sort=False).ngroup()
    order = ranked.assign(place=place)
    order = order.sort_values(["place", "score"], ascending=[True, False], kind="stable")
    order["rank"] = order.groupby("place").cumcount() + 1
    columns = [order[column].tolist() for column in ("query_id", "doc_id", "rank", "score")]
    lines = [
        f"{query} Q0 {doc} {rank} {score!r} {name}\n"
        for query, doc, rank, score in zip(*columns, strict=True)
    ]
    return qrels, "".join(lines)


def refuse_white_space(ids: list[str]) -> None:
    """The fields of TREC's lines are separated by white space."""
    split = [id_ for id_ in ids if id_.split() != [id_]]
    if split:
        raise ValueError(
            f"Files of TREC cannot hold {split[0]!r}: expected ids without white space. Number "
            "the queries, rename the documents."
        )


def _texts(ids: NDArray[Any], column: str) -> list[str]:
    return [id_text(id_, column) for id_ in ids.tolist()]


# Metrics by query, and what models predict ---------------------------------------------
def metric_by_query(
    metric: str | Callable[[Floats, Floats], float], k: int | None, options: Mapping[str, Any]
) -> tuple[Callable[[AnnotatedDocuments, Floats], pd.Series], str]:
    """A metric (a name, or a function of relevance and scores of one query) as a function of
    documents and scores to its values by query, and its name."""
    if isinstance(metric, str):
        RankingScorer(metric, k=k, **options)  # checks the options

        def named(documents: AnnotatedDocuments, scores: Floats) -> pd.Series:
            table = RANKING_METRICS[metric](
                documents.relevance, scores, qid=documents.qid, k=k, per_query=True, **options
            )
            # The second column counts documents.
            return table.iloc[:, 0]

        name = metric if k is None else f"{metric}@{k}"
        return named, name
    if options:
        raise ValueError(
            f"A metric that is a function takes no options, got {[*options]}; bind them with "
            "functools.partial."
        )

    def called(documents: AnnotatedDocuments, scores: Floats) -> pd.Series:
        codes, ids = encode(documents.qid)
        order = np.argsort(codes, kind="stable")
        # Rows of one query after another.
        ends = np.cumsum(np.bincount(codes))
        values = []
        for rows in np.split(order, ends[:-1]):
            value = metric(documents.relevance[rows], scores[rows])
            values.append(float(value))
        queries = pd.Index(ids, name="qid", tupleize_cols=False)
        return pd.Series(values, index=queries)

    return called, getattr(metric, "__name__", type(metric).__name__)


def model_and_input(estimator: Any, X: Any) -> tuple[Any, Any]:
    """The model inside searches and pipelines, and X as the steps before it transform it."""
    # A search predicts by its best estimator.
    inner = getattr(estimator, "best_estimator_", None)
    if isinstance(estimator, FrozenEstimator):
        inner = estimator.estimator
    elif isinstance(estimator, Pipeline):  # which exposes methods of scikit-learn only
        if len(estimator) > 1:
            X = estimator[:-1].transform(X)
        inner = estimator[-1]
    return (estimator, X) if inner is None else model_and_input(inner, X)


def predict_within(
    estimator: Predictor | Column | str, X: Table, qid: Column | None, doc: Column | None = None
) -> NDArray[Any]:
    """Scores of X by an estimator that may request query and document ids, or as given."""
    if isinstance(estimator, str):
        return read_column(X, estimator)
    if not hasattr(estimator, "predict"):
        return as_array(estimator)
    refuse_lost_queries(estimator, qid)
    # Ids that are columns of X are there already.
    columns = role_columns(X) if is_frame(X) else ()
    ids = {"qid": qid, "doc": doc}
    for name in [*ids]:
        if ids[name] is None or name in columns:
            del ids[name]
    if ids:
        # Only estimators that request ids take them.
        taken = get_routing_for_object(estimator).consumes("predict", ids)
        ids = {name: ids[name] for name in taken}
    return as_array(estimator.predict(X, **ids))


def scores_of_rows(ranker: Predictor | Column | str, X: Table, rows: Rows, name: str) -> Floats:
    """Scores of the rows of X by a fitted ranker, or as given: an array, or their column of X."""
    given = predict_within(ranker, X, rows["qid"], rows["doc"])
    if given.shape != (rows.n_rows,):
        raise ValueError(
            f"The scores of {name} have the shape {given.shape}; expected one for each row of X, "
            f"({rows.n_rows},), or a fitted ranker. Got a {type(ranker).__name__}."
        )
    return as_numbers(given, f"The scores of {name}")


def one_per_row(values: ArrayLike, n_rows: int, method: str) -> NDArray[Any]:
    """What a method returned as an array, after checking that it is one value per row."""
    values = np.asarray(values)
    if values.shape != (n_rows,):
        raise ValueError(
            f"{method} returned the shape {values.shape} for {n_rows} rows; expected "
            f"({n_rows},), one value per row."
        )
    return values


def _dense_features(X):
    """The features but columns of text, such as devices, which belong to pages."""
    if is_frame(X):
        # Devices and the like belong to pages, and would split documents.
        frame = nw.from_native(X, eager_only=True)
        text = {
            name
            for name, dtype in frame.schema.items()
            if isinstance(dtype, nw.String) and not is_role(name)
        }
        X = without_columns(frame, text).to_native()
    return features_of(X)
