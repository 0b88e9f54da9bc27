"""Rankings and judgments as evaluation tools of information retrieval take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._base._sklearn import validate_params
from .._base._typing import Column, Predictor, Table
from ._scorers import AnnotatedDocuments


@validate_params(
    {
        "X": "no_validation",
        "scores": "no_validation",
        "qid": "no_validation",
        "doc": "no_validation",
        "relevance": "no_validation",
    },
    prefer_skip_nested_validation=True,
)
def to_ir_measures(
    X: Table,
    scores: Column | Predictor,
    *,
    qid: Column | None = None,
    doc: Column | None = None,
    relevance: Column | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Judgments and a ranking as the frames that ir_measures and ranx take.

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
    given = {"qid": qid, "doc": doc, "relevance": relevance}
    documents = AnnotatedDocuments(X, given, caller="to_ir_measures")
    score = documents.scores(scores, "the ranking")
    grade = documents.relevance
    if (grade % 1 != 0).any():
        raise ValueError(
            f"relevance is {grade[grade % 1 != 0][0]:g} in row "
            f"{documents.rows[(grade % 1 != 0).argmax()]}; judgments hold whole grades. Round "
            "them, or map them to grades."
        )
    ids = pd.DataFrame({"query_id": _texts(documents.qid, "qid"), "doc_id": _docs(documents)})
    twice = ids.duplicated()
    if twice.any():
        raise ValueError(
            f"Two documents are {tuple(ids[twice].iloc[0])} as text; expected different ids."
        )
    return ids.assign(relevance=grade.astype(np.int64)), ids.assign(score=score)


@validate_params(
    {
        "X": "no_validation",
        "scores": "no_validation",
        "name": [str],
        "qid": "no_validation",
        "doc": "no_validation",
        "relevance": "no_validation",
    },
    prefer_skip_nested_validation=True,
)
def to_trec(
    X: Table,
    scores: Column | Predictor,
    *,
    name: str = "skultr",
    qid: Column | None = None,
    doc: Column | None = None,
    relevance: Column | None = None,
) -> tuple[str, str]:
    """Judgments and a ranking as the text of files of TREC.

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
    skultr.serving.export_judgments : Judgments from labels of clicks.

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
    order = ranked.assign(place=ranked.groupby("query_id", sort=False).ngroup())
    order = order.sort_values(["place", "score"], ascending=[True, False], kind="stable")
    rank = order.groupby("place").cumcount() + 1
    qrels = "".join(
        f"{query} 0 {doc} {grade}\n" for query, doc, grade in judged.itertuples(index=False)
    )
    lines = zip(order["query_id"], order["doc_id"], rank, order["score"].tolist(), strict=True)
    return qrels, "".join(f"{q} Q0 {doc} {r} {score!r} {name}\n" for q, doc, r, score in lines)


def id_text(id_: Any, of: str) -> str:
    """An id as text; frames with gaps turn whole numbers into floats."""
    if pd.isna(id_) or not str(id_).strip():
        raise ValueError(f"{of} holds {id_!r}; expected an id. Drop these rows.")
    return f"{id_:.0f}" if isinstance(id_, float) and id_ % 1 == 0 else str(id_)


def refuse_white_space(ids: list[str]) -> None:
    """The fields of TREC's lines are separated by white space."""
    split = [id_ for id_ in ids if id_.split() != [id_]]
    if split:
        raise ValueError(
            f"Files of TREC cannot hold {split[0]!r}: expected ids without white space. Number "
            "the queries, rename the documents."
        )


def _texts(ids: NDArray[Any], of: str) -> list[str]:
    return [id_text(id_, of) for id_ in ids.tolist()]


def _docs(documents):
    if documents.doc is None:
        return [str(row) for row in documents.rows]
    return _texts(documents.doc, "doc")
