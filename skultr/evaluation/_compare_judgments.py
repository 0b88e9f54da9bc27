"""Do clicks and judgments agree, on which queries not, and may one judge stand in for another?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control, norm
from scipy.stats import t as student
from sklearn.utils import check_random_state

from .._base._sklearn import Interval, validate_params
from .._base._texts import id_text
from .._base._typing import ArrayLike, Column, Estimator, Frame, RandomState
from .._log._dataset import ClickDataset
from .._log._judgment_tables import refuse_labels_of_clicks
from .._log._roles import column_names, is_frame, read_column
from ..exceptions import ClickDataWarning, python_value, warn_user
from ..metrics._query_means import bootstrap, ratio_interval, ratio_of_sums
from ..propensity._source import PROPENSITY_CONSTRAINT
from ._judged_pairs import (
    PairWeights,
    queries_by_clicks,
    queries_by_judge,
    read_clicks,
    read_judge,
)
from ._thresholds import FREQUENT, KEPT, LEAST_QUERIES

#: Name of the clicks of the log, beside those of the judgments.
CLICKS = "clicks"
#: Names that no judgments can have, because columns beside their ratings have them.
_TAKEN = {CLICKS, "qid", "doc", "impressions", "examinations"}
#: What names a document.
_KEYS = ["qid", "doc"]
#: The kind of all queries.
_ALL = "all"


@dataclass(frozen=True, eq=False, repr=False)
class JudgmentComparison:
    """Result of :func:`compare_judgments`: how far judgments agree with clicks and each other.

    Parameters
    ----------
    table : pandas.DataFrame of shape (n_rows, 14)
        One row per ``judge``, ``reference`` and ``kind`` of query ("all" first):

        - ``n_queries`` and ``n_docs`` that both have;
        - ``agreement`` from ``lower`` to ``upper``, the share of what the reference orders that
          the judge orders alike, 0.5 by chance; ``verdict``: "agree", "contradict" or "cannot
          tell";
        - where clicks are the reference, ``by_clicks``, the agreement of an order by the clicks of
          all other users; ``better``, which of the two orders documents better for another user:
          "judge", "clicks" or "cannot tell";
        - between two judges ``kappa``, weighted by squares, from ``kappa_lower`` to
          ``kappa_upper``.
    per_query : pandas.DataFrame
        One row per ``judge``, ``reference`` and ``qid``, those that contradict each other most
        surely first: ``kind``, ``n_docs``, ``agreement``, ``z`` (below 0: they contradict each
        other), ``p_value``, ``p_adjusted`` for all queries (false discovery rate), and
        ``verdict``.
    stand_ins : pandas.DataFrame
        With ``baseline``, one row per ``judge``, ``reference`` and ``kind``: ``kept``, from
        ``lower`` to ``upper``, is the judge's agreement above chance as a share of the
        baseline's, ``n_queries``, and ``verdict``: "may stand in", "may not" or "cannot tell".
        Without, no rows.
    baseline : str or None
        The judgments that others may stand in for.
    """

    table: pd.DataFrame
    per_query: pd.DataFrame
    stand_ins: pd.DataFrame
    baseline: str | None = None

    def summary(self) -> str:
        """Agreement, contradictions and verdicts in plain words."""
        lines = [_in_words(row) for row in self.table.itertuples()]
        by_pair = self.per_query.groupby(["judge", "reference"], sort=False)
        lines += [_contradictions(*names, queries) for names, queries in by_pair]
        lines += [_stand_in_words(row, self.baseline) for row in self.stand_ins.itertuples()]
        return ".\n".join(lines) + "."

    __repr__ = summary


@validate_params(
    {
        "judgments": "no_validation",
        "X": "no_validation",
        "y": ["array-like", str, None],
        "propensity": PROPENSITY_CONSTRAINT,
        "baseline": [str, None],
        "by": [str, Mapping, None],
        "confidence_level": [Interval(Real, 0, 1, closed="neither")],
        "n_resamples": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def compare_judgments(
    judgments: Mapping[str, Frame] | Frame,
    X: Frame | ClickDataset | None = None,
    y: Column | str | None = None,
    *,
    propensity: Literal["column"] | ArrayLike | Estimator | None = None,
    baseline: str | None = None,
    by: str | Mapping[Any, Any] | None = None,
    confidence_level: float = 0.95,
    n_resamples: int = 9999,
    random_state: RandomState = None,
) -> JudgmentComparison:
    r"""Tell whether judgments agree with clicks and with each other, and on which queries not.

    Judgments are those of people or of a language model. Documents are compared within each
    query. Clicks are corrected for examination, and for their noise.

    Parameters
    ----------
    judgments : dict of str to DataFrame, or DataFrame
        Tables with the columns ``qid``, ``doc`` and ``relevance``, one row per document of a
        query; or one table, which is called "judgments". Ratings are finite and at least 0; rows
        without one count as not judged. Ratings are compared by their order;
        ``kappa`` alone reads their distances.
    X : frame or ClickDataset, default=None
        The click log with the roles ``qid``, ``doc``, ``position`` and, if present, ``session``,
        ``user``, ``impressions``, ``propensity``. Features are not read. Its ids are matched with
        those of the judgments as text. None compares judgments with each other.
    y : array-like of shape (n_rows,) or str, default=None
        Clicks or click rates of the rows of X, or their column. A dataset has its own.
    propensity : "column", array-like of shape (n_positions,), estimator or None, default=None
        Where propensities come from, as in :func:`~skultr.propensity.relevance_labels`; None
        requires the role ``propensity``.
    baseline : str, default=None
        Judgments whose place others might take, as those of people. ``stand_ins`` says whether
        they may. This needs a third party: the clicks of X, or further judgments.
    by : str or mapping, default=None
        Kinds of queries: a column of X that is equal in all rows of a query, or the kind of each
        ``qid``. None divides the queries of X by impressions: the "frequent" ones are the fewest
        that have half of the impressions, the others are "rare".
    confidence_level : float, default=0.95
        Of each interval; a verdict on a query needs ``p_adjusted`` up to 1 minus this level.
    n_resamples : int, default=9999
        Number of resamples of an interval.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    comparison : JudgmentComparison
        With a ``table``, ``per_query``, ``stand_ins`` and ``summary()``.

    Raises
    ------
    ValueError
        If a table lacks a column, or gives one document two ratings. If a rating is no number, is
        infinite or below 0. If X is there without y or without propensities, or if a table beside
        it comes from clicks, by its column ``prior_share`` or ``label``. If y or ``propensity``
        are there without X. If judgments are called "clicks", or a kind "all". If there is
        nothing to compare: the message counts what is lacking first. If ``baseline`` is none of
        the judgments, or has no third party. If ``by`` is no column of X, differs within a query,
        or lacks a query.

    Warns
    -----
    ClickDataWarning
        If two of several sources share no such query; they are not compared.

    See Also
    --------
    skultr.serving.read_judgments : Judgments from files of OpenSearch, Quepid, TREC and RankLib.
    compare_rankers : Compares rankers by judgments.

    Notes
    -----
    *Agreement with clicks.* A document with c clicks in E examinations (the sum of its
    propensities) has the click rate c/E. Of the clicks on two documents that were examined alike,
    the judge prefers the share

    .. math:: \frac 1 2 + \frac{\sum w_{ij} s_{ij} (c_i / E_i - c_j / E_j)}
                                {2 \sum w_{ij} (c_i / E_i + c_j / E_j)},

    with s = 1 where i has the higher rating, -1 where j has it, and 0 where they are equal. Both
    sums are linear in the clicks, so that their noise does not bias them, and the unknown scale of
    propensities cancels. The weight w is the inverse variance of a difference of two rates: pairs
    that were hardly examined say little [1]_. Users differ, and click by chance: the share is far
    below 1 for perfect judgments. ``by_clicks`` is what the clicks of all other users attain on
    the same documents: each click is compared with all the others. ``better`` compares the two
    query by query. People and language models may be better for rare queries, whose clicks are
    few, and clicks for frequent ones.

    *Agreement of two judges.* Of the pairs that the reference orders, the judge orders this share
    alike; its ties count half. That is (1 + D) / 2 with Somers' D; queries count alike.

    *Intervals* are bootstrap-t intervals over queries of the ratio of sums. Below 10 queries of
    equal weight there is none. They do not have the error of examination.

    *Queries.* With clicks, z is the numerator over its standard error for Poisson clicks, which
    takes impressions to be independent: users who repeat their clicks make it too large. Between
    judges it is that of Kendall's test. ``p_adjusted`` bounds the expected share of wrong verdicts
    (Benjamini & Hochberg).

    *Stand-ins.* The question is that of the alternative annotator test [2]_: does the judge agree
    with a third party as well as the people whose place it takes? It may stand in if its agreement
    above chance is surely at least 0.8 of theirs, on documents that all have; it may not if it is
    surely less. The interval is Fieller's. Clicks as the third party answer for this log: labels
    that were learned from these clicks agree with them by construction.

    *How often it holds* (``benchmarks/studies/agreement.py``): of the intervals of 50 or 300
    queries with 20 or 500 pages each, 92 to 98 % held the truth (kappa of 50 queries: 91 %). A
    judge that kept exactly 0.8 got "may stand in" in 5 % of the logs. Of the verdicts
    "contradict" at most 1.7 % were wrong, and of 140,000 queries that were judged rightly none
    had one. Users who trust positions agree less with any judge.

    References
    ----------
    .. [1] DerSimonian & Laird (1986). Meta-analysis in clinical trials. Controlled Clinical
       Trials 7.
    .. [2] Calderon, Reichart & Dror (2025). The alternative annotator test for LLM-as-a-judge.
       ACL.

    Examples
    --------
    >>> from skultr.datasets import make_ltr
    >>> from skultr.evaluation import compare_judgments
    >>> from skultr.simulation import PlackettLucePolicy, PositionBasedUser, simulate_clicks
    >>> people = make_ltr(n_queries=100, n_documents=10, n_features=3, random_state=0)
    >>> examination = [1 / k for k in range(1, 11)]
    >>> log, clicks, _ = simulate_clicks(
    ...     people,
    ...     n_sessions=10_000,
    ...     policy=PlackettLucePolicy(),
    ...     user=PositionBasedUser(examination),
    ...     random_state=0,
    ... )
    >>> comparison = compare_judgments(
    ...     {"people": people}, log, clicks, propensity=examination, random_state=0
    ... )
    >>> comparison.table[["judge", "reference", "kind", "verdict"]].head(1)
        judge reference kind verdict
    0  people    clicks  all   agree
    """
    given = {"judgments": judgments} if is_frame(judgments) else judgments
    sources = _Sources(given, X, y, propensity)
    _check_baseline(sources, baseline)
    kinds = _kinds(by, X, sources)
    random = check_random_state(random_state)
    # Each pair of sources; then each judge beside the baseline.
    rows = []
    parts = []
    for judge, reference, queries in _shared_queries(sources, baseline):
        parts.append(_per_query(queries, judge, reference, kinds, 1 - confidence_level))
        for kind, part in _by_kind(queries, kinds):
            row = {"judge": judge, "reference": reference, "kind": kind}
            row |= _agreement(part, judge, confidence_level, n_resamples, random)
            if reference != CLICKS:
                row |= _kappa(sources, judge, reference, part["qid"], confidence_level)
            rows.append(row)
    table = pd.DataFrame(rows, columns=_COLUMNS)
    per_query = pd.concat(parts).sort_values("z", kind="stable", ignore_index=True)
    rows = []
    for judge, third in _third_parties(sources, baseline):
        queries = sources.queries(third, [judge, baseline])
        for kind, part in _by_kind(queries, kinds):
            row = {"judge": judge, "reference": third, "kind": kind}
            rows.append(row | _stand_in(part, judge, baseline, confidence_level))
    stand_ins = pd.DataFrame(rows, columns=_STAND_IN_COLUMNS)
    return JudgmentComparison(table, per_query, stand_ins, baseline)


#: Columns of the tables of a comparison; see JudgmentComparison.
_COLUMNS = [
    *("judge", "reference", "kind", "n_queries", "n_docs"),
    *("agreement", "lower", "upper", "verdict", "by_clicks", "better"),
    *("kappa", "kappa_lower", "kappa_upper"),
]
_STAND_IN_COLUMNS = [
    *("judge", "reference", "kind", "n_queries", "kept", "lower", "upper", "verdict"),
]


class _Sources:
    """Judgments by name, and clicks if there is a log."""

    def __init__(self, judgments, X, y, propensity):
        _check_names(judgments, X)
        if X is None:
            _refuse_clicks_without_log(y, propensity)
        else:
            _refuse_ratings_of_clicks(judgments)
        self.judges = {name: read_judge(frame, name) for name, frame in judgments.items()}
        self.clicks = None
        if X is not None:
            self.clicks = read_clicks(X, y, propensity)
            self._weights = PairWeights.of_clicks(self.clicks)

    def queries(self, reference, judges):
        """How the judges order the pairs of each query that the reference orders."""
        shared = self.shared([*judges, reference])
        if reference == CLICKS:
            found = queries_by_clicks(shared, judges, self._weights)
        else:
            found = queries_by_judge(shared, judges, reference)
        # Queries that the reference does not order say nothing.
        return found[found["size"] > 0]

    def table(self, name):
        """The documents of one source; the ratings of a judge under its name."""
        if name == CLICKS:
            return self.clicks
        return self.judges[name].rename(columns={"relevance": name})

    def shared(self, names):
        """Documents that all of these sources have."""
        shared = self.table(names[0])
        for name in names[1:]:
            shared = shared.merge(self.table(name), on=_KEYS)
        return shared


def _check_names(judgments, X):
    """Raise an error unless there are names, and something to compare."""
    if not isinstance(judgments, Mapping) or not judgments:
        raise ValueError(
            f"judgments is a {type(judgments).__name__} without a table; expected a frame with "
            "the columns qid, doc and relevance, or a dict of name to such frames."
        )
    names = [*judgments]
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"judgments have the names {names}; expected texts.")
    if taken := _TAKEN & judgments.keys():
        raise ValueError(
            f"judgments have the name {min(taken)!r}, which is taken; expected another."
        )
    if X is None and len(judgments) < 2:
        raise ValueError(
            f"There is nothing to compare {names[0]!r} with; expected a log and its clicks, or "
            "a second table of judgments."
        )


def _refuse_clicks_without_log(y, propensity):
    """Raise an error if there is something to say about clicks, and no log."""
    for name, value in (("y", y), ("propensity", propensity)):
        if value is not None:
            raise ValueError(
                f"{name} is there, and X is not: without a log, judgments are compared with each "
                f"other. Pass the log as X, or leave {name} out."
            )


def _refuse_ratings_of_clicks(judgments):
    """Raise an error if judgments were made of clicks, which they stand beside here."""
    for name, frame in judgments.items():
        if is_frame(frame):
            refuse_labels_of_clicks(column_names(frame), f"The table of judgments {name!r}")


def _check_baseline(sources, baseline):
    """Raise an error unless the baseline is one of the judgments and others can tell its worth."""
    if baseline is None:
        return
    if baseline not in sources.judges:
        raise ValueError(
            f"baseline={baseline!r} is none of the judgments; expected one of {[*sources.judges]}."
        )
    if not _third_parties(sources, baseline):
        raise ValueError(
            f"Nobody tells whether others may stand in for {baseline!r}: a judge and a third "
            "party are needed. Pass a log and its clicks, or the judgments of a second person; "
            "or leave baseline out."
        )


def _shared_queries(sources, baseline):
    """Each judge and reference, with the queries that both have."""
    found = []
    lacking = []
    for judge, reference in _pairs(sources, baseline):
        queries = sources.queries(reference, [judge])
        if len(queries):
            found.append((judge, reference, queries))
        else:
            lacking.append(_what_is_lacking(sources, judge, reference))
    if lacking:
        # What one source lacks keeps it from all others.
        reasons = "; ".join(dict.fromkeys(lacking))
        if not found:
            raise ValueError(f"There is nothing to compare: {reasons}.")
        warn_user(f"Not all sources are compared: {reasons}.", ClickDataWarning)
    return found


def _what_is_lacking(sources, judge, reference):
    """The first that a judge and a reference lack, of all that a comparison needs."""
    for name in (judge, reference):
        if sources.table(name).empty:
            return f"{name!r} rates no document; expected numbers in the column relevance"
    if reference == CLICKS and not sources.clicks["clicks"].any():
        return "the log has no click; expected clicks in y"
    both = f"{judge!r} and {reference!r}"
    shared = sources.shared([judge, reference])
    if shared.empty:
        examples = [tuple(sources.table(name)[_KEYS].iloc[0]) for name in (judge, reference)]
        return (
            f"{both} share no document of a query: they have {examples[0]} and {examples[1]}, for "
            "example. Compare the spelling of qid and doc in both (read_judgments(..., queries=) "
            "compares queries in lower case)"
        )
    n_docs = shared["qid"].value_counts()
    n_queries = np.count_nonzero(n_docs > 1)
    if n_queries == 0:
        return (
            f"{both} share one document in each of {len(n_docs)} queries, and documents are "
            "compared within queries. Judge more documents of these queries"
        )
    if reference == CLICKS:
        return f"no document that {both} share was clicked. Judge documents with clicks"
    return (
        f"{reference!r} rates all documents alike in each of the {n_queries} queries in which it "
        f"shares several with {judge!r}, and orders none. Judge more documents of these queries"
    )


def _pairs(sources, baseline):
    """Each judge with the clicks, then with each judge before it; the baseline is a reference."""
    names = [*sources.judges]
    with_clicks = [] if sources.clicks is None else [(name, CLICKS) for name in names]
    between = []
    for earlier, later in combinations(names, 2):
        between.append((earlier, later) if later == baseline else (later, earlier))
    return with_clicks + between


def _third_parties(sources, baseline):
    """Judges other than the baseline, each with who tells how well it does."""
    others = [name for name in sources.judges if name != baseline]
    if baseline is None:
        return []
    if sources.clicks is not None:
        return [(judge, CLICKS) for judge in others]
    return [(judge, third) for judge in others for third in others if third != judge]


# Kinds of queries ---------------------------------------------------------------------
def _kinds(by, X, sources):
    """The kind of each query, by its id as text; None if there are none."""
    if by is not None:
        return _given_kinds(by, X)
    if sources.clicks is None:
        return None
    impressions = sources.clicks.groupby("qid")["impressions"].sum()
    impressions = impressions.sort_values(ascending=False, kind="stable")
    # A query is frequent if those before it have not yet half of the impressions.
    before = impressions.cumsum() - impressions
    is_frequent = before < FREQUENT.value * impressions.sum()
    names = np.where(is_frequent, "frequent", "rare")
    return dict(zip(impressions.index, names, strict=True))


def _given_kinds(by, X):
    """The kinds of a mapping or a column."""
    if isinstance(by, Mapping):
        kinds = {id_text(qid, "qid"): kind for qid, kind in by.items()}
    else:
        kinds = _kinds_of_column(by, X)
    if _ALL in kinds.values():
        raise ValueError(
            f"by has the kind {_ALL!r}, which is that of all queries together; expected another "
            "name."
        )
    return kinds


def _kinds_of_column(by, X):
    """The value of a column in each query."""
    if not is_frame(X):
        raise ValueError(
            f"by={by!r} names a column of X, which is no frame here; expected a mapping from "
            "qid to kind."
        )
    columns = {"qid": read_column(X, "qid"), "kind": read_column(X, by)}
    table = pd.DataFrame(columns).drop_duplicates()
    several = table["qid"].duplicated()
    if several.any() or table["kind"].isna().any():
        wrong = table["qid"][several | table["kind"].isna()].iloc[0]
        raise ValueError(
            f"by={by!r} is missing or has several values in the query "
            f"{python_value(wrong)!r}; expected one "
            "value in all rows of a query."
        )
    texts = [id_text(qid, "qid") for qid in table["qid"]]
    return dict(zip(texts, table["kind"], strict=True))


def _kind_of(qid, kinds):
    """The kind of each query; an error where it has none."""
    if kinds is None:
        return pd.Series(_ALL, index=qid.index)
    unknown = [query for query in qid if query not in kinds]
    if unknown:
        raise ValueError(f"by has no kind for the query {unknown[0]!r}; expected one for each.")
    return qid.map(kinds)


def _by_kind(queries, kinds):
    """All queries, then those of each kind."""
    yield _ALL, queries
    if kinds is not None:
        yield from queries.groupby(_kind_of(queries["qid"], kinds), sort=True)


# Estimates ----------------------------------------------------------------------------
def _agreement(queries, judge, level, n_resamples, random):
    """Agreement of a judge with the reference over these queries, and the verdicts."""
    size = queries["size"].to_numpy()
    leads = [queries["lead", judge].to_numpy()]
    has_clicks = ("lead", CLICKS) in queries
    if has_clicks:
        # Which of the two orders these documents better for another user, query by query.
        others = queries["lead", CLICKS].to_numpy()
        leads.append(leads[0] - others)
    values, lower, upper = _ratios(np.array(leads), size, level, n_resamples, random)
    found = {
        "n_queries": len(queries),
        "n_docs": int(queries["n_docs"].sum()),
        "agreement": (1 + values[0]) / 2,
        "lower": (1 + max(lower[0], -1.0)) / 2,
        "upper": (1 + min(upper[0], 1.0)) / 2,
        "verdict": _by_sign(lower[0], upper[0], "agree", "contradict"),
    }
    if has_clicks:
        found["by_clicks"] = (1 + others.sum() / size.sum()) / 2
        found["better"] = _by_sign(lower[1], upper[1], "judge", CLICKS)
    return found


def _ratios(leads, size, level, n_resamples, random):
    """Ratios of sums over queries, with the ends of their intervals; NaN for few queries."""
    values = leads.sum(axis=1) / size.sum()
    n_equal = size.sum() ** 2 / (size**2).sum()
    if n_equal < LEAST_QUERIES.value:
        unknown = np.full(len(values), np.nan)
        return values, unknown, unknown
    # Linear approximations of the ratios, whose means are the ratios.
    linear = values + (leads.T - size[:, None] * values) / size.mean()
    lower, upper = bootstrap(linear, n_equal, level, n_resamples, random)
    # What is the same in all queries has no interval.
    is_same = np.isnan(lower)
    return values, np.where(is_same, values, lower), np.where(is_same, values, upper)


def _by_sign(lower, upper, above, below):
    """The verdict of an interval on the sign of a number."""
    if lower > 0:
        return above
    return below if upper < 0 else "cannot tell"


def _kappa(sources, judge, reference, qid, level):
    r"""Kappa weighted by squares, 1 - Σ (a - b)² / E[Σ (a - b')²], with b' of another document."""
    shared = sources.shared([judge, reference])
    shared = shared[shared["qid"].isin(qid)]
    a = shared[judge].to_numpy()
    b = shared[reference].to_numpy()
    shift = a.mean() - b.mean()
    from_mean = a - a.mean()
    others_from_mean = b - b.mean()
    # Each document's share of what independent ratings would differ by.
    expected = from_mean**2 + others_from_mean**2 + shift**2
    expected += 2 * shift * (from_mean - others_from_mean)
    found = {"kappa": np.nan, "kappa_lower": np.nan, "kappa_upper": np.nan}
    if expected.sum() <= 0:  # both give one rating to all
        return found
    query, ids = pd.factorize(shared["qid"])
    disagreement, error = ratio_of_sums((a - b) ** 2, expected, query)
    found["kappa"] = 1 - disagreement
    if len(ids) >= LEAST_QUERIES.value:
        half = student.isf((1 - level) / 2, len(ids) - 1) * error
        found["kappa_lower"] = 1 - disagreement - half
        found["kappa_upper"] = min(1 - disagreement + half, 1.0)
    return found


def _per_query(queries, judge, reference, kinds, level):
    """Each query with its evidence that judge and reference agree or contradict each other."""
    lead = queries["lead", judge]
    if reference == CLICKS:
        z = lead / queries["error", judge].where(queries["error", judge] > 0, np.inf)
    else:
        z = queries["z", judge]
    p_value = 2 * norm.sf(z.abs())
    p_adjusted = false_discovery_control(p_value, method="bh")
    is_sure = p_adjusted <= level
    table = pd.DataFrame({"judge": judge, "reference": reference, "qid": queries["qid"]})
    table["kind"] = _kind_of(queries["qid"], kinds)
    table["n_docs"] = queries["n_docs"]
    table["agreement"] = (1 + lead / queries["size"]) / 2
    table["z"] = z
    table["p_value"] = p_value
    table["p_adjusted"] = p_adjusted
    table["verdict"] = np.select([~is_sure, z > 0], ["cannot tell", "agree"], "contradict")
    return table


def _stand_in(queries, judge, baseline, level):
    """What a judge keeps of the baseline's agreement with a third party, and the verdict."""
    found = {"n_queries": len(queries), "verdict": "cannot tell"}
    if not len(queries):
        return found
    lead = queries["lead", judge].to_numpy()
    full = queries["lead", baseline].to_numpy()
    # Without agreement of the baseline there is nothing to keep.
    if full.sum() <= 0:
        return found
    quantile = student.isf((1 - level) / 2, max(len(queries) - 1, 1))
    # A baseline that hardly agrees itself leaves the ratio open.
    lower, upper = ratio_interval(lead, full, quantile, np.inf)
    found |= {"kept": lead.sum() / full.sum(), "lower": lower, "upper": upper}
    if lower >= KEPT.value:
        found["verdict"] = "may stand in"
    elif upper < KEPT.value:
        found["verdict"] = "may not"
    return found


# In words -----------------------------------------------------------------------------
def _in_words(row):
    """One row of the table."""
    found = f"{row.judge} and {row.reference}, {row.kind} ({row.n_queries} queries): "
    found += f"{row.agreement:.3f}"
    if np.isfinite(row.lower):
        found += f" [{row.lower:.3f}, {row.upper:.3f}]"
    if np.isfinite(row.by_clicks):
        found += f", clicks of other users {row.by_clicks:.3f} (better: {row.better})"
    if np.isfinite(row.kappa):
        found += f", kappa {row.kappa:.2f}"
    return f"{found}; {row.verdict}"


def _contradictions(judge, reference, queries):
    """How many queries contradict, and the surest ones."""
    wrong = queries[queries["verdict"] == "contradict"]
    found = f"{judge} and {reference} contradict each other in {len(wrong)} of {len(queries)}"
    shown = ", ".join(repr(qid) for qid in wrong["qid"].head(3))
    return f"{found} queries{': ' + shown if shown else ''}{', ...' if len(wrong) > 3 else ''}"


def _stand_in_words(row, baseline):
    """One verdict on a judge in place of the baseline."""
    found = f"{row.judge} in place of {baseline}, by {row.reference}, {row.kind}: "
    if np.isfinite(row.kept):
        found += f"keeps {row.kept:.2f} [{row.lower:.2f}, {row.upper:.2f}]; "
    return found + row.verdict
