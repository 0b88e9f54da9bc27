"""Where propensities come from: the role, a curve, an estimator; and what debiased clicks are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from .._base._sklearn import HasMethods, StrOptions, safe_indexing, seeded_clone
from .._base._typing import Floats, RandomState
from .._log._cells import Cells, read_cells
from .._log._dataset_frames import places_of, rows_of
from .._log._documents import FeatureTable
from .._log._faults import check, count_of
from .._log._reader import read as read_rows
from .._log._roles import as_pandas, column_names, count_rows, is_frame, numbers, read_role
from .._log._segments import encode, pair_codes
from ..exceptions import UnstableWeightsWarning, python_value, warn_user
from ._thresholds import (
    FEW_HEAVY_CLICKS,
    MOST_HEAVY_SHARE,
    SHARE_OF_HEAVY_CLICKS,
    SMALL_SAMPLE,
    SMALL_SHARE,
)

#: Valid values of a parameter ``propensity``, for scikit-learn's check.
PROPENSITY_CONSTRAINT = [
    StrOptions({"column"}),
    "array-like",
    HasMethods(["fit", "predict"]),
    Mapping,
    None,
]
#: Roles that ``predict`` of an estimator of examination takes as keywords.
_PREDICT_ROLES = ("position", "bias", "user")
#: What must not be 0 where users are averaged over.
MEAN_PROPENSITY = "The mean propensity over all impressions of a document in its query"


class RowsOfLog:
    """Rows that need propensities, as ``fit`` was given them.

    A keyword in ``roles`` wins over a column of X.
    """

    def __init__(self, X: Any, y: Any, sample_weight: Any, roles: dict[str, Any]) -> None:
        self.X = X
        self.y = y
        self.sample_weight = sample_weight
        self.roles = roles

    def place(self) -> None:
        """Take the order of the rows of a query as their positions, if these are missing."""
        X = self.X
        roles = self.roles
        if read_role(X, "position", roles["position"]) is None:
            rows = read_rows(X, roles=roles, reads=("qid", "session", "position", "bias"))
            # The reader has warned about this order; with positions it does not warn again.
            position = np.where(rows.position > 0, rows.position, np.nan)
            self.roles = {**roles, "qid": rows.query_ids[rows.query], "position": position}

    @property
    def cells(self) -> Cells:
        """Clicks and impressions by document and bias factor."""
        return read_cells(self.X, self.y, self.sample_weight, self.roles)[0]

    @property
    def column(self) -> Floats | None:
        """The role ``propensity``."""
        return read_role(self.X, "propensity", self.roles.get("propensity"))

    def by_position(self, curve: Any) -> Floats:
        """The values of a curve by position."""
        position = read_role(self.X, "position", self.roles.get("position"))
        if position is None:
            raise ValueError(
                "propensity is a curve by position, but X has no column 'position' and no "
                "position was passed. Add the role."
            )
        check({"position": position})
        place = np.where(position > 0, position, 0).astype(np.intp)
        curve = check_curve(curve, int(place.max(initial=0)))
        # Position 0: not shown.
        return np.append(1.0, curve)[place]

    def fit(self, estimator: Any) -> None:
        """Fit an estimator of examination to the rows, or those of users to the users' rows."""
        given = {role: value for role, value in self.roles.items() if value is not None}
        if isinstance(estimator, Mapping):
            for user, _, part in self._by_user(estimator):
                part.fit(estimator[user])
        # Estimators of skultr.propensity and skultr.click_models, frozen or not.
        elif hasattr(estimator, "columns_read") or is_click_model(estimator):
            estimator.fit(self.X, self.y, self.sample_weight, **given)
        else:
            # Any other estimator reads its roles as columns. A Pipeline has no argument
            # sample_weight, so that None must not be passed.
            weight = {} if self.sample_weight is None else {"sample_weight": self.sample_weight}
            estimator.fit(self._frame(given), self.y, **weight)

    def predict(self, estimator: Any) -> Floats:
        """Propensity of each row by a fitted estimator, or by that of its user."""
        found = self._examination(estimator)
        if isinstance(estimator, Mapping) or is_click_model(estimator):
            # Click models are relative to the first rank, which need not be the most examined one.
            return found / max(found.max(initial=0.0), 1.0)
        return found

    def _examination(self, estimator):
        given = {role: value for role, value in self.roles.items() if value is not None}
        if isinstance(estimator, Mapping):
            found = np.zeros(count_rows(self.X))
            for user, rows, part in self._by_user(estimator):
                found[rows] = part._examination(estimator[user])
            return found
        # A click model's examination depends on the clicks above.
        if is_click_model(estimator):
            return estimator._examination_given(self.X, self.y, given)
        if hasattr(estimator, "columns_read"):
            given_rows = {role: given[role] for role in _PREDICT_ROLES if role in given}
            return np.asarray(estimator.predict(self.X, **given_rows), dtype=float)
        return np.asarray(estimator.predict(self._frame(given)), dtype=float)

    def _by_user(self, estimators):
        """Each user, the places of the user's rows, and these as a log."""
        users = read_role(self.X, "user", self.roles.get("user"))
        if users is None:
            raise ValueError(
                "propensity is a mapping from users to estimators, but X has no column 'user' and "
                "no user was passed: expected the user of every row. Add the role, or pass one "
                "estimator for all."
            )
        code, ids = encode(users)
        unknown = [user for user in ids.tolist() if user not in estimators]
        if unknown:
            raise ValueError(
                f"propensity has no estimator for {len(unknown)} of {len(ids)} users, such as "
                f"{python_value(unknown[0])!r}; expected one for each. Add the missing ones, or "
                "group the users with UserClusters."
            )
        columns = {"y": self.y, "sample_weight": self.sample_weight, **self.roles}
        # These two are not values of rows.
        whole = {role: columns.pop(role, None) for role in ("documents", "doc_scope")}
        # Rows of each user, in the order of the log.
        ends = np.bincount(code).cumsum()[:-1]
        parts = np.split(np.argsort(code, kind="stable"), ends)
        given = {name: values for name, values in columns.items() if values is not None}
        for user, rows in zip(ids.tolist(), parts, strict=True):
            own = dict.fromkeys(columns)
            own |= {name: safe_indexing(values, rows) for name, values in given.items()}
            clicks = own.pop("y")
            sample_weight = own.pop("sample_weight")
            X = safe_indexing(self.X, rows)
            yield user, rows, RowsOfLog(X, clicks, sample_weight, own | whole)

    def _frame(self, given):
        """The rows as one frame, with keywords as columns, and features of ``documents``."""
        documents = given.pop("documents", None)
        X = self.X
        # Features by document are joined to the rows.
        if documents is not None:
            X = FeatureTable(documents).joined(X, given.get("qid"), given.get("doc"))
        # An array has no names; roles become columns beside these.
        if not is_frame(X):
            X = pd.DataFrame(X.toarray() if sparse.issparse(X) else X)
            X.columns = [f"x{place}" for place in range(X.shape[1])]
        if not given:
            return X
        given = {role: read_role(X, role, value) for role, value in given.items()}
        return as_pandas(X, column_names(X)).assign(**given)


class RowsOfDataset:
    """The rows of a log on disk, all of which were shown, in the interface of RowsOfLog."""

    def __init__(self, dataset: Any, log: Any) -> None:
        self.dataset = dataset
        self.log = log

    def place(self) -> None:
        """A dataset has positions."""

    @property
    def cells(self) -> Cells:
        """Clicks and impressions by document and bias factor."""
        return self.log.cells

    @property
    def column(self) -> Floats | None:
        """The role ``propensity``."""
        return self.log.propensity

    def by_position(self, curve: Any) -> Floats:
        """The values of a curve by position."""
        curve = check_curve(curve, int(self.log.position.max(initial=0)))
        return self.log.by_chunk(lambda part: curve[part.position - 1])

    def fit(self, estimator: Any) -> None:
        """Fit an estimator of examination to the rows, or those of users to the users' rows."""
        columns = columns_of_source(estimator)
        read = sorted({*columns} & {*self.dataset.feature_names})
        if read:
            raise ValueError(
                f"The propensity estimator reads the columns {read}, which are features of the "
                "ranker in a ClickDataset. Fit the estimator first, and add its predictions as "
                "the column 'propensity' to the log. Then make the dataset from this log, without "
                f"{read}."
            )
        if hasattr(estimator, "columns_read") or is_click_model(estimator):
            estimator.fit(self.dataset, None)  # a frozen one requires y
        else:
            X, rate = self.dataset.to_frame()
            # Read for the ranker; those of users would warn of it.
            X = X.drop(columns="production", errors="ignore")
            RowsOfLog(X, rate, None, {}).fit(estimator)

    def predict(self, estimator: Any) -> Floats:
        """Propensity of each row by a fitted estimator."""
        is_own = hasattr(estimator, "columns_read")
        if is_own and not estimator._predicts_from_features:

            def predicted(part):
                places, number = places_of(part, self.dataset.roles)
                return np.asarray(estimator.predict(places), dtype=float)[number]

            return self.log.by_chunk(predicted)
        # The rows of the log, in its order, with click rates.
        X, rate = rows_of(self.log, self.dataset.roles, self.dataset.feature_names)
        found = RowsOfLog(X, rate, None, {}).predict(estimator)
        if is_own:
            return found
        # Reading checks what an estimator that is not ours predicts.
        return read_rows(X, roles={"propensity": found})["propensity"]


def propensities(
    source: Any,
    rows: RowsOfLog | RowsOfDataset,
    *,
    default: Callable[[], Any] | None = None,
    random_state: RandomState = None,
) -> tuple[Floats, Any]:
    """Examination probability of each row, from the parameter ``propensity`` of an estimator."""
    column = rows.column
    if takes_column(source, column is not None):
        return column, None
    # Nothing was said: the caller's choice.
    if source is None and default is not None:
        source = default()
    if not (hasattr(source, "fit") or isinstance(source, Mapping)):
        return rows.by_position(source), None
    # An estimator is cloned and fitted to the same rows.
    estimator = _seeded(source, check_random_state(random_state))
    rows.fit(estimator)
    return rows.predict(estimator), estimator


def _seeded(source, random):
    """A clone of an estimator, or of that of each user, with its seed."""
    if isinstance(source, Mapping):
        return {user: _seeded(each, random) for user, each in source.items()}
    if not hasattr(source, "fit"):
        raise ValueError(
            f"propensity has {source!r} for a user; expected a click model, or another estimator "
            "of examination, for each user."
        )
    # Click models have `rank`, too, but predict examination here.
    if not is_click_model(source):
        refuse_wrong_source(source)
    return seeded_clone(source, random.randint(2**31 - 1))


def is_click_model(source: Any) -> bool:
    """True for models of clicks alone, which can sample them; rankers may predict them, too."""
    return isinstance(source, BaseEstimator) and hasattr(source, "sample")


def reads_pages(source: Any) -> bool:
    """True if examination by the source depends on which rows of a page were clicked."""
    return any(getattr(each, "_reads_clicks", False) for each in _sources(source))


def _sources(source):
    """The sources of all users, or the one."""
    return source.values() if isinstance(source, Mapping) else [source]


def has_users(propensity: Any) -> bool:
    """Whether a propensity estimator holds one curve for each user."""
    return (
        isinstance(propensity, Mapping)
        or getattr(propensity, "user", None) is not None  # a column of any name
        or getattr(propensity, "_reads_users", False)
    )


def columns_of_source(source):
    """Names of columns without a role that the source reads: a ranker's features exclude them."""
    columns = set()
    for each in _sources(source):
        # A class has the method too, but no columns yet.
        if hasattr(each, "columns_read") and not isinstance(each, type):
            columns |= each.columns_read()
    return columns


def columns_of_cells(source, names):
    """Columns that the source reads of a log in an engine with these columns."""
    if source is None or not (hasattr(source, "fit") or isinstance(source, Mapping)):
        return []
    reads = getattr(source, "columns_of_cells", lambda names: None)(names)
    if reads is None:
        raise TypeError(
            f"The propensity {source!r} reads more of a log than counts by document and bias "
            "factor, and X is a lazy frame. Reduce X first with skultr.aggregate_clicks(X, "
            "documents), or pass an estimator of skultr.propensity with relevance='embedding'."
        )
    return reads


def takes_column(source, has_column):
    """True if propensities are those of the role; an error if there are two sources or none."""
    if isinstance(source, str) and not has_column:
        raise ValueError(
            "propensity='column', but X has no column 'propensity' and no propensity was passed. "
            "Add the role, or give the propensities by position."
        )
    if has_column and not (source is None or isinstance(source, str)):
        raise ValueError(
            "The log has the role 'propensity' and the parameter propensity is "
            f"{type(source).__name__}; expected one of them. Drop the column, or set "
            "propensity='column'."
        )
    return has_column


def no_propensities():
    """Raise the error of a log without propensities, given or estimated."""
    raise ValueError(
        "No propensities given: X has no column 'propensity'. Add it, or pass propensity= with "
        "one number per position or an estimator of skultr.propensity."
    )


def refuse_wrong_source(source):
    """Raise if a source with ``fit`` is a class, or an estimator of relevance."""
    if isinstance(source, type):
        raise ValueError(
            f"propensity is the class {source.__name__}; expected an estimator. Call it: "
            f"{source.__name__}()."
        )
    if hasattr(source, "rank"):
        raise ValueError(
            f"propensity is a {type(source).__name__}, which predicts relevance; expected an "
            "estimator that predicts examination, such as those of skultr.propensity "
            "(RegressionEMPropensity, DualLearningPropensity, ...)."
        )


def check_curve(curve, deepest):
    """A curve by position as an array; an error if it does not cover the log or is none."""
    curve = numbers("propensity", np.atleast_1d(curve))
    if curve.ndim != 1 or len(curve) < deepest:
        raise ValueError(
            f"propensity has shape {curve.shape}; expected one examination probability per "
            f"position. The log has positions up to {deepest}: give at least so many."
        )
    # NaN is neither, and is refused as well.
    bad = np.flatnonzero(~((curve > 0) & (curve <= 1)))
    if len(bad):
        raise ValueError(
            f"propensity must lie in (0, 1] at every position, got {curve[bad[0]]:g} at position "
            f"{bad[0] + 1}."
        )
    return curve


# Debiased clicks: inverse propensities, their effect on the variance, labels ----------
class DebiasedClicks(NamedTuple):
    """Debiased number of clicks per row, and how evenly clicks contribute to an estimate."""

    clicks: np.ndarray  # (n_rows,)
    effective_sample_size: float
    largest_weight: float
    clipped_share: float


class DocumentLabels(NamedTuple):
    """One label per document of a query, or per version of it in a group of rows."""

    query: np.ndarray  # (n_labels,), or the group
    doc: np.ndarray  # (n_labels,)
    label: np.ndarray  # (n_labels,)
    weight: np.ndarray  # (n_labels,)


def average_propensities(log):
    """The log with the propensity of each row replaced by P(examined | query, version).

    That is the mean propensity of the version over its impressions in all sessions of the query,
    of all users and at all positions. Single propensities may be 0, as for a user who never looks
    that far. If features do not change, versions are documents. If they change, the mean of the
    document would mistake the position for the worth of its features at the moment.
    """

    def averages(part):
        _, place = distinct_pairs(part.query, part.version)
        examinations = np.bincount(place, part.propensity * part.weight)
        mean = examinations / np.bincount(place, part.weight)
        return np.clip(mean, 0.0, 1.0)[place]  # rounding may lift a mean above 1

    averaged = log.by_chunk(averages, whole_queries=True)
    log = replace(log, propensity=averaged, all_lists_differ=False)
    require_positive(log, MEAN_PROPENSITY)
    return log


def shares_of_pages(log):
    """Share of the pages of its query that show the version of each row, shape (n_rows,).

    The log has all rows of its queries.
    """
    # Impressions of a page: the mean over its rows.
    pages = log.by_list(log.weight) / log.lengths
    n_pages = np.bincount(log.query_of_list, pages, len(log.query_ids))
    _, place = distinct_pairs(log.query, log.version)
    n_shown = np.bincount(place, log.weight)[place]
    # A document that a page shows twice has no more than all pages.
    return np.minimum(n_shown / n_pages[log.query], 1.0)


def require_positive(log, what="propensity"):
    """Raise if a propensity is 0, which no click can be divided by."""
    zero = np.flatnonzero(log.propensity <= 0)
    if len(zero):
        first = zero[0]
        query = python_value(log.query_ids[log.query[first]])
        where = f"first at position {log.position[first]} of query {query!r}"
        raise zero_propensity(what, count_of(len(zero), "shown row"), where)


def zero_propensity(what, rows, where):
    """The error of a propensity of 0."""
    message = (
        f"{what} is 0 in {rows}, {where}; expected a number in (0, 1]. A row that nobody could "
        "examine should have no position."
    )
    if what == "propensity":
        message += (
            " If only some users never examine it, average over users: UserAwareIPSRanker, "
            "LambdaMARTRanker(debiasing='user-aware'), or relevance_labels and debiased_table "
            "with user_aware=True."
        )
    return ValueError(message)


def debias_clicks(log, *, clip=None, divisor=None, normalize=False, relevance=None):
    """Debiased number of clicks per row: clicks over propensities of ``clip`` at least.

    ``divisor``, (n_rows,), is another number to divide by. With modelled ``relevance`` of
    the rows, (n_rows,), the clicks are doubly robust: what a divisor has more than the propensity
    is filled in by the model. With ``normalize``, the mean weight of a click is 1.
    """
    if divisor is None:
        divisor = bounded_propensity(log, clip)
    divided = log.clicks * (1 / divisor)
    n_clicks = log.clicks.sum()
    if n_clicks == 0:
        return DebiasedClicks(divided, 0.0, np.nan, 0.0)
    labels = divided
    if relevance is not None:
        robust = doubly_robust_labels(log, relevance, log.propensity * relevance, 1 / divisor)
        # The model cancels where no divisor is above the propensity, but for the last digits,
        # which may also be below 0.
        labels = np.where(divisor > log.propensity, np.maximum(robust, 0.0), divided)
    if normalize:
        labels = labels * (n_clicks / divided.sum())
    return DebiasedClicks(labels, *_evenness(log, divided, divisor))


def bounded_propensity(log, clip):
    """Propensity of each row, ``clip`` at least."""
    return np.maximum(log.propensity, clip or 0.0)


def _evenness(log, divided, divisor):
    """Effective sample size, largest weight and bounded share of the clicks of a log."""
    # Rows without a click have no weight.
    clicked = log.clicks > 0
    clicks = log.clicks[clicked]
    weight = 1 / divisor[clicked]
    n_clicks = clicks.sum()
    total = divided.sum()
    is_bounded = divisor[clicked] > log.propensity[clicked]
    return (
        float(total**2 / (divided[clicked] @ weight)),
        float(weight.max() * n_clicks / total),
        float(clicks[is_bounded].sum() / n_clicks),
    )


def doubly_robust_labels(log, relevance, rate, weight):
    r"""Modelled relevance of the rows, corrected by how clicks differ from modelled clicks.

    :math:`n \hat r + w (c - n \hat c)` for n impressions, with a weight w and a modelled click
    rate per impression, :math:`\hat c`, both of shape (n_rows,). If the modelled rate is right,
    so is the mean label where the relevance is right, for any weight, and where
    :math:`w \hat c = \hat r`, for any relevance. A label may be negative if
    :math:`w \hat c > \hat r`.
    """
    # Clicks beyond what the model expects.
    surplus = log.clicks - log.weight * rate
    return log.weight * relevance + weight * surplus


def document_labels(log, divisors=None):
    """Labels of the documents that were shown: (debiased) clicks per impression.

    A label weighs its impressions, times the harmonic mean of the ``divisors`` of a part of the
    log, if these are given.
    """
    parts = log.chunks(whole_queries=True)
    found = (_labels_of(part, part.query, part.doc, divisors) for part in parts)
    return DocumentLabels(*_joined(found))


def _labels_of(log, group, code, divisors):
    """Labels of a code of the rows, such as that of the document, within each group of rows."""
    (group, code), place = distinct_pairs(group, code)
    # One place per pair of group and code.
    impressions = np.bincount(place, log.weight)
    label = np.bincount(place, log.clicks) / impressions
    if divisors is None:
        return group, code, label, impressions
    harmonic = np.bincount(place, log.weight / divisors(log))
    return group, code, label, impressions**2 / harmonic


def examples_of(log, divisors=None, *, groups=None):
    """Training rows of labels: the version of each, and the labels, one per version and group.

    A version has the label of its own impressions, because what changes between impressions may
    be what users click for. Labels are not drawn towards that of the document: what a feature
    does within a document would shrink, and what it does between documents would not.

    ``groups`` are codes of the rows, in which no group is part of two queries; by default they are
    those of the queries.
    """
    groups = log.query if groups is None else groups
    # Part by part, because features of a large log are on disk.
    found = []
    first = 0
    for part in log.chunks(whole_queries=True):
        rows = slice(first, first + part.n_rows)
        found.append(_labels_of(part, groups[rows], part.version, divisors))
        first += part.n_rows
    group, version, label, weight = _joined(found)
    return version, DocumentLabels(group, log.doc_of_version[version], label, weight)


class KindOfClicks(NamedTuple):
    """Clicks of which a share of a loss takes one view, such as clicks over propensities."""

    share: float
    clicks: np.ndarray  # (n_rows,)
    divisors: Callable[[Any], np.ndarray] | None  # of a part of the log; None: none


def examples_of_kinds(log, kinds, groups, exponent):
    """Training rows of several kinds of clicks, as :func:`examples_of` gives those of one.

    Labels of different kinds are not compared: each kind has groups of its own, ``n_groups``
    further on. A weight is the share of its kind of that of the label, with the traffic of
    queries tempered by the exponent. Returns the version of each row, the labels, and
    ``n_groups``.
    """
    n_groups = int(groups.max(initial=-1)) + 1
    versions = []
    parts = []
    for place, kind in enumerate(kinds):
        # Traffic is tempered within a kind, before its share.
        given = replace(log, clicks=kind.clicks).tempered(exponent)
        version, labels = examples_of(given, kind.divisors, groups=groups)
        group = labels.query + place * n_groups
        versions.append(version)
        parts.append(labels._replace(query=group, weight=kind.share * labels.weight))
    return np.concatenate(versions), DocumentLabels(*_joined(parts)), n_groups


def _joined(parts):
    """Columns of several parts, one after the other."""
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def label_table(log, clicks):
    """One row per document of a query: ids, clicks, impressions and label."""
    labels = document_labels(replace(log, clicks=clicks))
    raw = document_labels(log)
    doc = labels.doc
    if log.doc_ids is not None:
        doc = log.doc_ids.get_level_values("doc").to_numpy()[doc]
    return pd.DataFrame(
        {
            "qid": log.query_ids[labels.query],
            "doc": doc,
            "clicks": raw.label * raw.weight,
            "impressions": labels.weight,
            "label": labels.label,
        }
    )


def distinct_pairs(group, code):
    """Distinct pairs of a group and a code of the rows, and the place of each row among them."""
    n_codes = int(code.max(initial=0)) + 1
    key, place = np.unique(pair_codes(group, code, n_codes), return_inverse=True)
    return np.divmod(key, n_codes), place


def warn_about_weights(log, divisor, *, queries=True):
    """Warn if noise decides what is learned from clicks over a divisor, of shape (n_rows,)."""
    # A row without a click has no weight.
    clicked = log.clicks > 0
    clicks = log.clicks[clicked]
    weight = 1 / divisor[clicked]
    if not len(clicks) or _warn_about_few_clicks(clicks, weight) or not queries:
        return
    _warn_about_small_sample(clicks, weight, np.count_nonzero(log.by_query(log.clicks)))


def _warn_about_small_sample(clicks, weight, n_queries):
    """Warn if weighted clicks tell little; ``n_queries`` have a click."""
    n_clicks = clicks.sum()
    # The effective sample size of weighted clicks (Kish).
    sample = (clicks @ weight) ** 2 / (clicks @ weight**2)
    least = min(SMALL_SHARE.value * n_clicks, SMALL_SAMPLE.value * n_queries)
    if sample < least:
        warn_user(
            f"After weighting, {n_clicks:,.0f} clicks carry the information of {sample:,.0f}, "
            f"{sample / n_queries:.1f} per query with clicks. Below {SMALL_SAMPLE.value:.0f} the "
            "result may be worse than without a correction. Collect more clicks; set clip=0.3; or "
            "use IPSRanker(correction='offset').",
            UnstableWeightsWarning,
        )


def _warn_about_few_clicks(clicks, weight):
    """Warn if a handful of clicks carry half of the weight; True if there was a warning."""
    # The heaviest clicks first, until they carry half.
    order = np.argsort(-weight, kind="stable")
    carried = np.cumsum(clicks[order] * weight[order])
    half = int(np.searchsorted(carried, 0.5 * carried[-1]))
    few = np.cumsum(clicks[order])[half]
    n_clicks = clicks.sum()
    at_least = max(FEW_HEAVY_CLICKS.value, SHARE_OF_HEAVY_CLICKS.value * n_clicks)
    # In a log of few clicks, the heaviest ten are no small part of it.
    if few > at_least or few > MOST_HEAVY_SHARE.value * n_clicks:
        return False
    warn_user(
        f"The estimate depends on few clicks: the heaviest {few:.0f} of {n_clicks:.0f} carry half "
        f"of the weight (smallest propensity: {1 / weight[order[0]]:.2g}). Set clip=0.3, or check "
        "the propensities of rarely examined positions.",
        UnstableWeightsWarning,
    )
    return True
