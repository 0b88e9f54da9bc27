"""Splitters that keep queries or page layouts whole, and a refit rule for off-policy selection.

The rows of a query share its documents. If some of them are in the training set and others in the
test set, a model is tested on documents that it was trained on. These splitters read the roles
from the frame itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count, takewhile
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.model_selection import BaseShuffleSplit, GroupKFold, GroupShuffleSplit
from sklearn.utils import check_random_state

from ._base._sklearn import Interval, StrOptions, safe_indexing, validate_parameter_constraints
from ._base._typing import Bools, Column, Floats, Ints, RandomState, Scope, Table
from ._log._dataset import ClickDataset
from ._log._faults import NO_ROW_SHOWN
from ._log._reader import Rows, pairs_of_codes, queries_of, read
from ._log._roles import count_rows, is_frame, refuse_dataset, role_columns
from ._log._segments import equal_keys, hash_columns
from .exceptions import ClickDataWarning, warn_user

__all__ = [
    "LayoutSplit",
    "OffPolicySelection",
    "QueryKFold",
    "QueryShuffleSplit",
    "train_test_queries",
]

#: Roles that say which layout a page has.
_LAYOUT_ROLES = ("qid", "session", "doc", "position", "impressions", "doc_scope")
_LAYOUT_CONSTRAINTS = {
    "n_splits": [Interval(Integral, 1, None, closed="left")],
    "test_size": [Interval(Real, 0, 1, closed="neither")],
    "held_out": [StrOptions({"random", "far"})],
}


class _Splitter:
    """What all splitters share: roles that a search passes on, and the number of splits."""

    # A search over arrays then passes on the roles that its ranker receives anyway.
    __metadata_request__split = {"groups": True, "qid": True}

    def get_n_splits(
        self,
        X: Table | None = None,
        y: Column | None = None,
        groups: Column | None = None,
        **roles: Column | None,
    ) -> int:
        """Return the number of splits; all arguments are ignored."""
        return self.n_splits


class QueryKFold(_Splitter, GroupKFold):
    """K folds of whole queries.

    Without shuffling, folds have about equal numbers of rows: queries are assigned from the
    longest to the shortest, each to the fold with the fewest rows. These folds do not depend on
    the order of the rows. With shuffling, folds have equal numbers of random queries instead.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds, at least 2.
    shuffle : bool, default=False
        Whether queries go to folds at random.
    random_state : int, RandomState instance or None, default=None
        Seed of the shuffle.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.model_selection import QueryKFold
    >>> X = pd.DataFrame({"qid": ["a", "b", "a", "c"], "bm25": [0.1, 0.2, 0.3, 0.4]})
    >>> for train, test in QueryKFold(n_splits=2).split(X):
    ...     print(train, test)
    [1 3] [0 2]
    [0 2] [1 3]
    """

    def split(
        self,
        X: Table | ClickDataset,
        y: Column | None = None,
        groups: Column | None = None,
        *,
        qid: Column | None = None,
    ) -> Iterator[tuple[Ints, Ints]]:
        """Row numbers of the training and test set of each fold; of a dataset, query numbers.

        Parameters
        ----------
        X : frame, array-like, sparse matrix of shape (n_rows, n_columns) or ClickDataset
            A frame with a column ``qid``, unless ``groups`` or ``qid`` is given.
        y : ignored
        groups, qid : array-like of shape (n_rows,), default=None
            Query ids; they take precedence over the column.

        Yields
        ------
        train, test : ndarray of int

        Raises
        ------
        ValueError
            If there are no query ids, or fewer queries than folds.
        """
        codes, sizes = queries_of(X, groups, qid)
        if len(sizes) < self.n_splits:
            raise ValueError(
                f"Cannot split {len(sizes)} queries into n_splits={self.n_splits} folds: queries "
                "are never split. Use fewer folds or more queries."
            )
        if self.shuffle:
            yield from super().split(codes, None, codes)
            return
        # Without chance folds are balanced by rows.
        fold_of = _balanced_folds(sizes, self.n_splits)[codes]
        for fold in range(self.n_splits):
            test = fold_of == fold
            yield np.flatnonzero(~test), np.flatnonzero(test)


class QueryShuffleSplit(_Splitter, GroupShuffleSplit):
    """Random splits by whole queries.

    Parameters
    ----------
    n_splits : int, default=5
        Number of splits.
    test_size, train_size : float or int, default=None
        Share or number of *queries* (not rows) in each set. By default the test set has 0.2 of
        them and the training set the rest.
    random_state : int, RandomState instance or None, default=None
        Seed of the draw.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.model_selection import QueryShuffleSplit
    >>> X = pd.DataFrame({"qid": ["a", "b", "a", "c"], "bm25": [0.1, 0.2, 0.3, 0.4]})
    >>> splitter = QueryShuffleSplit(n_splits=1, test_size=1, random_state=0)
    >>> for train, test in splitter.split(X):
    ...     print(train, test)
    [0 1 2] [3]
    """

    def split(
        self,
        X: Table | ClickDataset,
        y: Column | None = None,
        groups: Column | None = None,
        *,
        qid: Column | None = None,
    ) -> Iterator[tuple[Ints, Ints]]:
        """Row numbers of the training and test set of each split; of a dataset, query numbers.

        Parameters
        ----------
        X : frame, array-like, sparse matrix of shape (n_rows, n_columns) or ClickDataset
            A frame with a column ``qid``, unless ``groups`` or ``qid`` is given.
        y : ignored
        groups, qid : array-like of shape (n_rows,), default=None
            Query ids; they take precedence over the column.

        Yields
        ------
        train, test : ndarray of int

        Raises
        ------
        ValueError
            If there are no query ids, or if a set would have no query.
        """
        codes, sizes = queries_of(X, groups, qid)
        if len(sizes) < 2:
            raise ValueError(
                "Cannot split 1 query into a training and a test set: queries are never split. "
                "Expected at least 2; check the column 'qid'."
            )
        yield from super().split(codes, None, codes)


class LayoutSplit(_Splitter, BaseShuffleSplit):
    """Test a model on pages that are ordered differently from those that it learned from.

    A layout is the documents of a result page of one query, each at its position. All pages of a
    layout are in the training set, or all are in the test set. Of each query that was shown in
    several layouts, both sets have some.

    Parameters
    ----------
    n_splits : int, default=4
        Number of random splits; with ``held_out="far"`` there is one.
    test_size : float in (0, 1), default=0.5
        Share of the pages of a query that are held out. Layouts are held out whole, one after
        the other, until the share is reached: at least one, and not all. A page counts
        ``impressions`` times.
    held_out : {"random", "far"}, default="random"
        Which layouts are held out: random ones, or those farthest from the commonest layout of
        the query. The distance is the sum over documents of the positions by which they moved. A
        document that the commonest layout does not show counts as coming from below the last
        position of the log.
    random_state : int, RandomState instance or None, default=None
        Seed of the draw.

    Raises
    ------
    ValueError
        By the constructor: if a parameter has a wrong type or value.

    See Also
    --------
    skultr.metrics.MatchedPairsScorer : A score on held-out layouts, by clicks alone.

    Notes
    -----
    Queries with one layout are training data, as are lists of which no row was shown.

    The production ranker may have changed an order for a reason, such as a document that became
    more relevant. Held-out pages then differ from the others in more than their order.

    Documents that only held-out layouts show have no label; models with parameters per document
    give them the mean.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.model_selection import LayoutSplit
    >>> X = pd.DataFrame({
    ...     "session": [1, 1, 2, 2, 3, 3], "qid": 7, "doc": ["a", "b", "b", "a", "a", "b"],
    ...     "position": [1, 2, 1, 2, 1, 2],
    ... })
    >>> for train, test in LayoutSplit(held_out="far").split(X):
    ...     print(train, test)
    [0 1 4 5] [2 3]
    """

    __metadata_request__split = dict.fromkeys(_LAYOUT_ROLES, True)

    def __init__(
        self,
        n_splits: int = 4,
        *,
        test_size: float = 0.5,
        held_out: Literal["random", "far"] = "random",
        random_state: RandomState = None,
    ) -> None:
        if held_out == "far":
            # Without chance all splits are the same.
            n_splits = 1
        super().__init__(n_splits, test_size=test_size, random_state=random_state)
        self.held_out = held_out
        validate_parameter_constraints(_LAYOUT_CONSTRAINTS, vars(self), "LayoutSplit")

    def split(
        self,
        X: Table,
        y: Column | None = None,
        groups: Column | None = None,
        *,
        qid: Column | None = None,
        session: Column | None = None,
        doc: Column | None = None,
        position: Column | None = None,
        impressions: Column | None = None,
        doc_scope: Scope | None = None,
    ) -> Iterator[tuple[Ints, Ints]]:
        """Row numbers of the training and test set of each split.

        Parameters
        ----------
        X : frame, array-like or sparse matrix of shape (n_rows, n_columns)
            A log with the roles ``qid``, ``session`` and ``position``. Without ``doc``, rows of a
            query with equal features are one document.
        y, groups : ignored
        qid, session, doc, position, impressions, doc_scope : array-like of shape (n_rows,), \
                default=None
            Roles as keywords; they take precedence over columns.

        Yields
        ------
        train, test : ndarray of int

        Raises
        ------
        ValueError
            If a role is missing, or every query was shown in one layout.
        """
        roles = {name: value for name, value in locals().items() if name in _LAYOUT_ROLES}
        refuse_dataset(
            X,
            "LayoutSplit splits the pages of a query, and parts of a ClickDataset are whole "
            "queries. Pass its frame: X, clicks = dataset.to_frame().",
        )
        need = dict.fromkeys(("qid", "session", "position"), "to find the layouts of a query")
        rows = read(X, roles=roles, reads=_LAYOUT_ROLES, need=need, caller="LayoutSplit")
        if not rows.shown.any():
            NO_ROW_SHOWN.report()
        # Layouts of pages as codes, and a table with one row per layout.
        list_, layout, layouts = _layouts(rows)
        if not layouts["query"].duplicated().any():
            raise ValueError(
                f"Each of the {len(layouts)} queries was shown in one layout, always the same "
                "documents in the same order: none can be held out. Expected a query with at "
                "least two layouts. Split by query (QueryKFold), or log pages in several orders."
            )
        rng = check_random_state(self.random_state)
        for _ in range(self.n_splits):
            if self.held_out == "far":
                # The farthest from what is usually shown come first.
                order = -layouts["distance"]
            else:
                order = rng.random_sample(len(layouts))
            # By query, so that each query with several layouts is in both parts.
            held_out = _first_layouts(layouts, order, self.test_size)
            # Rows of lists with a layout that is held out; lists without a layout train.
            test = np.isin(rows.list_, list_[held_out[layout]])
            yield np.flatnonzero(~test), np.flatnonzero(test)


def train_test_queries(
    *arrays: Any,
    test_size: float | None = None,
    train_size: float | None = None,
    random_state: RandomState = None,
    qid: Column | None = None,
) -> list[Any]:
    """Split frames and arrays into a training and a test part, by whole queries.

    Works like :func:`sklearn.model_selection.train_test_split`, but the parts keep the order of
    the rows.

    Parameters
    ----------
    *arrays : frames, arrays, lists or sparse matrices of one length, or a ClickDataset
        Parts of pandas, Polars and PyArrow tables are tables of the same kind; those of a dataset
        are datasets of the same folder.
    test_size, train_size : float or int, default=None
        Share or number of *queries* in each part; by default 0.25 in the test part.
    random_state : int, RandomState instance or None, default=None
        Seed of the draw.
    qid : array-like of shape (n_rows,), default=None
        Query ids; by default the column ``qid`` of the first frame that has it.

    Returns
    -------
    parts : list of length 2 * len(arrays)
        Training part, then test part, of each array in turn.

    Raises
    ------
    ValueError
        If there are no arrays or no query ids, or if lengths differ.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.model_selection import train_test_queries
    >>> X = pd.DataFrame({"qid": ["a", "b", "a", "c"], "bm25": [0.1, 0.2, 0.3, 0.4]})
    >>> X_train, X_test, y_train, y_test = train_test_queries(X, [1, 0, 0, 1], random_state=0)
    >>> list(X_train["qid"]), y_test
    (['a', 'b', 'a'], [1])
    """
    if not arrays:
        raise ValueError("train_test_queries got nothing to split; expected at least one array.")
    if len(arrays) > 1:
        _check_together(arrays)
    if test_size is None and train_size is None:
        # The default of scikit-learn's train_test_split.
        test_size = 0.25
    # The first split of random ones.
    splitter = QueryShuffleSplit(
        n_splits=1, test_size=test_size, train_size=train_size, random_state=random_state
    )
    # Row numbers of whole queries, by which all arrays are cut.
    train, test = next(splitter.split(_with_queries(arrays), qid=qid))
    parts = []
    for array in arrays:
        parts += [safe_indexing(array, train), safe_indexing(array, test)]
    return parts


def _check_together(arrays):
    """Refuse arrays that cannot be split by the same rows."""
    for array in arrays:
        refuse_dataset(
            array,
            "train_test_queries got a ClickDataset and other arrays; a dataset holds its "
            "clicks and roles. Pass it alone.",
        )
    lengths = [count_rows(array) for array in arrays]
    if len(set(lengths)) > 1:
        raise ValueError(
            f"The arrays have {lengths} rows; expected the same number of rows in each of them."
        )


def _with_queries(arrays):
    """The first frame with a column 'qid', or else the first array."""
    if len(arrays) > 1:
        for array in arrays:
            if is_frame(array) and "qid" in role_columns(array):
                return array
    return arrays[0]


class OffPolicySelection:
    """Select, in a search, a model that also ranks well where rankings differ from the log.

    Pass it as ``refit`` to scikit-learn's searches. Each scorer of ``keep`` keeps its best
    candidates. Of those that every scorer keeps, the one with the best score ``by`` is selected.
    If there is none, the best of all candidates by ``by`` is selected, with a warning.

    Held-out clicks come from the logged ranking. A model that copies this ranking may be best by
    every usual metric and fail as soon as its own ranking is served. CMIP detects copies, but is
    also low for models that learned nothing, so quality comes first. By default the rule keeps the
    candidates within one standard error of the best nDCG on annotation, of these the ones within
    one standard error of the best perplexity, and selects the one with the least CMIP.

    It was measured on 36 logs, each with 18 networks of which a third and more learned nothing.
    "Close" means within 0.01 nDCG@5 of the best network:

    - with 75 of 150 queries annotated, the choice was close in 81 % of the logs and lost 0.024 at
      most; with 25 annotated queries in 56 %, and 0.10;
    - the best perplexity among the four of least CMIP was close in 22 %, and lost up to 0.28;
    - the least CMIP was close in 6 %, and lost up to 0.38;
    - the best nDCG alone did as well where only networks are compared (86 %, 0.023): CMIP helps
      between candidates of equal nDCG.

    Other rules, for other cases (see :ref:`choosing`):

    - *Rankers without* ``predict_click`` have no perplexity: use
      ``OffPolicySelection({"ndcg": "1se"})``, which was close in 72 % and lost 0.046 at most.
      With 25 annotated queries it lost up to 0.20, and ``refit="ndcg"`` is safer (0.06).
    - *Click models* that are to predict clicks: let perplexity come first, with
      ``OffPolicySelection({"perplexity": "1se"})``.
    - *The rule of the paper*, "top-4 CMIP, top-4 PPL: nDCG↑", is
      ``OffPolicySelection({"cmip": 4, "perplexity": 4}, by="ndcg")``.

    Parameters
    ----------
    keep : dict of str to int or "1se", default={"ndcg": "1se", "perplexity": "1se"}
        How many candidates each scorer of the search keeps. "1se" keeps all candidates that are
        behind the best one by at most one standard error of the mean difference over folds. The
        best one is the best of those that earlier scorers in the dict keep. An empty dict keeps
        all candidates.
    by : str, default="cmip"
        Scorer that decides among the candidates kept.

    Raises
    ------
    ValueError
        By the constructor: if a parameter has a wrong type or value. When called: if the search
        has no scorer of that name, or one of them is NaN for every candidate.

    Warns
    -----
    ClickDataWarning
        If

        - a scorer is NaN for some candidates,
        - no candidate is kept by all scorers, so that the choice was among all, or
        - the search has one fold and so no standard error: "1se" then keeps the best candidate
          alone.

    Notes
    -----
    Greater scores are better, as for all scorers of scikit-learn and of :mod:`skultr.metrics`. A
    candidate whose score is NaN, because a fold failed, is not kept by that scorer. Candidates
    that tie with the last one kept are kept as well, so that a scorer that is equal for all
    excludes none. Among candidates that tie by ``by`` the first is selected.

    Folds are paired: what makes a fold hard for all candidates does not count in "1se". With two
    folds it keeps every candidate that wins one of them; use at least three.

    A search with a callable ``refit`` has ``best_index_``, ``best_params_`` and
    ``best_estimator_``, but no ``best_score_``. Its method ``score`` does not work, a limitation
    of scikit-learn: call a scorer on the search instead, ``RankingScorer()(search, X)``.

    References
    ----------
    Deffayet, Hager, Renders and de Rijke (2023). An offline metric for the debiasedness of click
    models. SIGIR, section 6.3.

    Examples
    --------
    In a search, ``GridSearchCV(..., scoring={"cmip": CMIPScorer(), "ndcg": RankingScorer(),
    "perplexity": PerplexityScorer()}, refit=OffPolicySelection())``. On results of two scorers, of
    which the last candidate learned nothing:

    >>> from skultr.model_selection import OffPolicySelection
    >>> results = {
    ...     "params": [{"alpha": 1}, {"alpha": 2}, {"alpha": 3}],
    ...     "split0_test_ndcg": [0.70, 0.71, 0.40],
    ...     "split1_test_ndcg": [0.66, 0.62, 0.41],
    ...     "mean_test_ndcg": [0.68, 0.665, 0.405],
    ...     "mean_test_cmip": [-0.4, -0.1, -0.0],
    ... }
    >>> select = OffPolicySelection({"ndcg": "1se"})
    >>> select(results)
    1
    >>> select.explain(results)[["params", "kept_by_ndcg", "cmip", "chosen"]]
                    params  kept_by_ndcg  cmip  chosen
    candidate
    0         {'alpha': 1}          True  -0.4   False
    1         {'alpha': 2}          True  -0.1    True
    2         {'alpha': 3}         False  -0.0   False
    """

    def __init__(
        self, keep: dict[str, int | Literal["1se"]] | None = None, *, by: str = "cmip"
    ) -> None:
        if keep is None:
            keep = {"ndcg": "1se", "perplexity": "1se"}
        # Checked here, because a search would fail only after its last fit.
        # Of the right type first, then each number.
        named = isinstance(keep, dict) and all(isinstance(name, str) for name in (by, *keep))
        if not named:
            raise ValueError(
                "keep must be a dict from scorers to numbers of candidates or '1se', and by must "
                f"be the name of a scorer of the search, got keep={keep!r}, by={by!r}."
            )
        for name, number in keep.items():
            if number != "1se" and not _is_count(number):
                raise ValueError(
                    f"keep[{name!r}] must be a whole number of candidates from 1 or '1se', got "
                    f"{number!r}."
                )
        self.keep = keep
        self.by = by

    def __call__(self, cv_results: Mapping[str, Any]) -> int:
        """Index of the selected candidate.

        Parameters
        ----------
        cv_results : dict of str to array
            ``cv_results_`` of a search.

        Returns
        -------
        best_index : int
        """
        scores, _, kept, best = self._select(cv_results)
        # `by` may also keep: each name once.
        for name in dict.fromkeys((*self.keep, self.by)):
            failed = np.isnan(scores[name])
            n_failed = int(failed.sum())
            if n_failed:
                warn_user(
                    f"The score {name!r} is NaN for {n_failed} of {len(failed)} "
                    f"candidates, first for candidate {int(failed.argmax())}: it cannot keep or "
                    "select them. Run the search with error_score='raise' to see why.",
                    ClickDataWarning,
                )
        if np.isnan(scores[self.by][kept]).all():
            # A candidate that is kept may lack the score that decides.
            lacking = f" and has a score {self.by!r}" if kept.any() else ""
            warn_user(
                f"None of the {len(kept)} candidates is kept by all of {list(self.keep)}{lacking}"
                f": the best of all candidates by {self.by!r} is selected. To select by all "
                "scorers, let each keep more candidates.",
                ClickDataWarning,
            )
        return best

    def explain(self, cv_results: Mapping[str, Any]) -> pd.DataFrame:
        """Table of the candidates: which were kept at each step, and which was selected.

        Parameters
        ----------
        cv_results : dict of str to array
            ``cv_results_`` of a search.

        Returns
        -------
        table : DataFrame indexed by ``candidate``
            Columns are ``params``; for each scorer of ``keep`` its mean score, and whether it kept
            the candidate (``kept_by_...``); ``kept``, whether all of them kept it; the score
            ``by``; and ``chosen``. If no candidate is ``kept``, the choice was among all.
        """
        scores, steps, kept, best = self._select(cv_results)
        # One row per candidate, one pair of columns per step.
        table = {"params": list(cv_results["params"])}
        for name, mask in steps.items():
            table |= {name: scores[name], f"kept_by_{name}": mask}
        chosen = np.arange(len(kept)) == best
        table |= {"kept": kept, self.by: scores[self.by], "chosen": chosen}
        return pd.DataFrame(table, index=pd.RangeIndex(len(kept), name="candidate"))

    def __repr__(self) -> str:
        return f"OffPolicySelection({self.keep!r}, by={self.by!r})"

    def _select(self, cv_results):
        """Scores, masks of the candidates that each scorer and all keep, number of the best."""
        scores = {name: _mean_score(cv_results, name) for name in (self.by, *self.keep)}
        for name, score in scores.items():
            if np.isnan(score).all():
                raise ValueError(
                    f"The score {name!r} is NaN for all {len(score)} candidates: no candidate can "
                    "be selected by it. Expected a number for some. A scorer that reads "
                    "'relevance' fails in a fold without annotation: give each fold some, or run "
                    "the search with error_score='raise' to see why."
                )
        # Each scorer keeps some candidates; the best of those kept by all is selected.
        deciding = scores[self.by]
        # One mask per scorer, and what all of them keep so far.
        steps = {}
        kept = np.ones(len(deciding), dtype=bool)
        for name, number in self.keep.items():
            if number == "1se":
                # The best of those that are still kept is compared with the others.
                still_kept = np.where(kept, scores[name], -np.inf)
                steps[name] = _near_best(cv_results, still_kept, name)
            else:
                steps[name] = _best(scores[name], number)
            kept = kept & steps[name]
        has_score = ~np.isnan(deciding)
        eligible = kept & has_score
        # The paper's fallback if no candidate is kept by all.
        among = np.flatnonzero(eligible if eligible.any() else has_score)
        best = among[np.argmax(deciding[among])]
        return scores, steps, kept, int(best)


def _is_count(number):
    """True for a whole number from 1, but not for True."""
    return isinstance(number, Integral) and not isinstance(number, bool) and number >= 1


def _mean_score(cv_results, name):
    # Names of the columns of a search over several scorers.
    prefix = "mean_test_"
    if prefix + name not in cv_results:
        known = sorted(key.removeprefix(prefix) for key in cv_results if key.startswith(prefix))
        raise ValueError(
            f"The search has no scorer {name!r}; it has {known}. Add it to scoring={{...}}, or "
            "select by one of these."
        )
    return np.asarray(cv_results[prefix + name], dtype=float)


def _best(score, number):
    """Mask of the ``number`` largest scores and of all that tie with them; NaN is never kept."""
    # All that tie with the last one are kept.
    known = score[~np.isnan(score)]
    ranked = np.sort(known)[::-1]
    last = min(number, len(ranked)) - 1
    return score >= ranked[last]


def _near_best(cv_results, score, name):
    """Mask of candidates that the best one leads by at most a standard error: folds are paired."""
    best = np.where(np.isnan(score), -np.inf, score).argmax()
    names = (f"split{fold}_test_{name}" for fold in count())
    keys = takewhile(cv_results.__contains__, names)
    folds = np.array([cv_results[key] for key in keys], dtype=float)
    if len(folds) < 2:
        warn_user(
            f"The search has {len(folds)} folds of the score {name!r}: '1se' needs at least 2 to "
            "know a standard error, and keeps the best candidate alone. Use cv=QueryKFold(5).",
            ClickDataWarning,
        )
        return score == score[best]
    # By how much each candidate is behind the best one, fold by fold.
    behind = folds[:, [best]] - folds
    error = behind.std(axis=0, ddof=1) / np.sqrt(len(folds))
    # Scores that differ by rounding are equal.
    return behind.mean(axis=0) <= error + 1e-12


def _layouts(rows: Rows) -> tuple[Ints, Ints, pd.DataFrame]:
    """Pages with a shown row, as codes of lists; the layout of each page; and layouts: query,
    pages (times impressions), a page, and the distance from the commonest layout of the query."""
    shown = np.flatnonzero(rows.shown)
    list_, first, page = np.unique(rows.list_[shown], return_index=True, return_inverse=True)
    query = rows.query[shown]
    position = rows.position[shown]
    code = rows.documents().code[shown]
    doc, *_ = pairs_of_codes(query, code, int(code.max()) + 1)
    # Pages have one layout if the hashes of their documents at their positions have one sum.
    # Sums do not depend on the order of the rows, and overflow is wanted: modulo 2^64.
    key = np.zeros(len(list_), dtype=np.uint64)
    np.add.at(key, page, hash_columns([doc, position]))
    # The query belongs to the key: pages of two queries never have one layout.
    query_of_page = query[first]
    layout, example = equal_keys([key, query_of_page])
    table = pd.DataFrame({"query": query_of_page[example], "page": example})
    weight_of_page = rows.weight[shown][first]
    table["n_pages"] = np.bincount(layout, weight_of_page)
    # The commonest layout of each query, and where it shows its documents.
    by_size = table.sort_values("n_pages", kind="stable")
    usual = np.isin(page, by_size.groupby("query")["page"].last())
    below_the_last = position.max() + 1
    # Documents that the usual page does not show count as below its end.
    usual_place = np.full(doc.max() + 1, below_the_last)
    usual_place[doc[usual]] = position[usual]
    # Distance: the sum of how far each document moved.
    moved = np.abs(position.astype(int) - usual_place[doc])
    distance = np.bincount(page, moved)
    # It is not the farthest, even if another one is its beginning.
    distance[page[usual]] = -1
    return list_, layout, table.assign(distance=distance[example])


def _first_layouts(layouts: pd.DataFrame, order: Floats, share: float) -> Bools:
    """Mask of the first layouts of each query by ``order``, up to a share of its pages: at least
    one, but never the last."""
    ordered = layouts.assign(order=order).sort_values(["query", "order"])
    n_pages = ordered.groupby("query")["n_pages"]
    # A layout is within the share if most of its pages are.
    # Where the pages of the layout lie among those of its query, in the order of choice.
    middle = n_pages.cumsum() - ordered["n_pages"] / 2
    within = middle < share * n_pages.transform("sum")
    is_first = n_pages.cumcount() == 0
    is_last = n_pages.cumcount(ascending=False) == 0
    chosen = (within | is_first) & ~is_last
    return chosen.sort_index().to_numpy()


def _balanced_folds(sizes, n_splits):
    """Fold of each query, given the rows per query."""
    fold_of = np.empty(len(sizes), dtype=int)
    rows_in = np.zeros(n_splits)
    # From the longest query to the shortest, each to the fold with the fewest rows.
    for query in np.argsort(sizes, kind="stable")[::-1]:
        fold = np.argmin(rows_in)
        fold_of[query] = fold
        rows_in[fold] += sizes[query]
    return fold_of
