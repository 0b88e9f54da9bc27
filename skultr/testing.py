"""Checks that every ranker should pass, ours and yours: the ones scikit-learn cannot know of."""

import inspect
import pickle
import warnings
from functools import partial

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ._log._roles import ROLES, feature_columns
from .exceptions import AssumptionWarning, MissingRoleWarning, NotIdentifiableWarning
from .metrics import RankingScorer, ndcg_score
from .model_selection import QueryKFold
from .preprocessing import OnFeatures

__all__ = ["check_ranker"]

_FEATURES = ["f0", "f1", "f2", "f3"]
_SERVED = ["qid", *_FEATURES]


def check_ranker(estimator, *, generate_only=False):
    """Check that a ranker keeps the contract of a click log as one table.

    Parameters
    ----------
    estimator : object
        A ranker with ``fit(X, y)`` and ``predict(X)``. Where it has the parameters
        ``learning_rate``, ``max_epochs``, ``batch_size``, ``early_stopping`` and
        ``random_state``, they are set to a short, seeded training in one batch.
    generate_only : bool, default=False
        Return the checks as (name, callable) pairs instead of running them, for use with
        ``pytest.mark.parametrize``.

    Returns
    -------
    checks : list of (str, callable)
        Only with ``generate_only=True``.

    Raises
    ------
    AssertionError
        By the first check that fails; its name is in the traceback.

    Notes
    -----
    The checks: rows and queries in any order; opposite clicks give another model; ``rank`` and
    ``score`` agree with ``predict``; keywords win over columns; relabelled and text ids;
    single-document and click-free queries; never-shown rows; role columns that do not leak;
    impressions against repeated rows; sample weights; pandas, Polars, PyArrow and arrays with
    keywords alike (engines that are not installed are left out); clone, pickle, same seed;
    Pipeline and GridSearchCV; a serving frame without roles, with longer lists. A ranker whose
    ``predict`` takes ``qid`` gets it, as a column or by keyword; to all others features must do.

    Rows that were never shown may not change a model, unless its class says that they are read,
    by the attribute ``_learns_from_never_shown = True``. Then it may not matter how often the log
    repeats them.

    Examples
    --------
    >>> from skultr.rankers import NaiveRanker
    >>> from skultr.testing import check_ranker
    >>> check_ranker(NaiveRanker(hidden_layer_sizes=()))
    """
    checks = [
        (check.__name__.lstrip("_"), partial(_run, check, _quick(estimator))) for check in _CHECKS
    ]
    if generate_only:
        return checks
    for _, check in checks:
        check()
    return None


def _run(check, estimator):
    with warnings.catch_warnings():
        # An estimator without parameters must assume a curve, the log of the checks shows every
        # document in one place, and scores are compared as those of one query.
        for category in (AssumptionWarning, MissingRoleWarning, NotIdentifiableWarning):
            warnings.simplefilter("ignore", category)
        check(estimator)


def _quick(estimator):
    settings = {
        "learning_rate": 0.05,  # far enough from the start for small differences to show
        "max_epochs": 10,
        "batch_size": 4096,
        "early_stopping": False,
        "random_state": 0,
    }
    known = estimator.get_params()
    return clone(estimator).set_params(
        **{name: value for name, value in settings.items() if name in known}
    )


def _documents(n_queries=12, n_documents=7, n_shown=5):
    """Documents of a fixed ranking by query; the last ones of each query were never shown."""
    rng = np.random.default_rng(0)
    n_rows = n_queries * n_documents
    documents = pd.DataFrame(rng.lognormal(sigma=2.0, size=(n_rows, len(_FEATURES))))
    documents.columns = _FEATURES
    place = np.tile(np.arange(1, n_documents + 1), n_queries)
    return documents.assign(
        qid=np.repeat(np.arange(n_queries) * 3, n_documents),
        doc=np.arange(n_rows),
        position=np.where(place <= n_shown, place, np.nan),
        relevance=rng.integers(0, 5, n_rows),
    )


def _small_log():
    """A log in which some queries were served once and others up to nine times."""
    documents = _documents()
    parts = [
        rows.assign(session=session * 1_000 + query)
        for query, rows in documents.groupby("qid")
        for session in range(1 + query * 5 % 9)
    ]
    log = pd.concat(parts, ignore_index=True)
    rng = np.random.default_rng(1)
    chance = (0.2 + 0.2 * log["relevance"]) / log["position"]
    clicks = (rng.random(len(log)) < chance.fillna(0.0)).astype(float)
    # Every query has at least one click at the top, or a listwise loss would see no list.
    clicks[log["position"].eq(1) & (log["session"] < 1_000)] = 1.0
    return log, clicks.to_numpy()


def _scores(estimator, log, clicks, **fit_params):
    """Scores of the documents by a clone fitted to a log."""
    fitted = clone(estimator).fit(log, clicks, **fit_params)
    return fitted.predict(_documents()[_SERVED if _takes_queries(fitted) else _FEATURES])


def _assert_same_model(actual, expected, message):
    """Equal but for a constant, which no list can show, and for the order of summation."""
    spread = max(np.ptp(expected), 1e-6)
    actual, expected = actual - actual.mean(), expected - expected.mean()
    np.testing.assert_allclose(actual / spread, expected / spread, atol=1e-3, err_msg=message)


def _check_row_order(estimator):
    log, clicks = _small_log()
    order = np.random.default_rng(1).permutation(len(log))
    np.testing.assert_array_equal(
        _scores(estimator, log.iloc[order], clicks[order]),
        _scores(estimator, log, clicks),
        err_msg="shuffled rows gave another model",
    )


def _check_relabelled_ids(estimator):
    log, clicks = _small_log()
    expected = _scores(estimator, log, clicks)
    mixed = log.assign(**{role: _relabel(log[role]) for role in ("qid", "session", "doc")})
    _assert_same_model(_scores(estimator, mixed, clicks), expected, "other ids gave another model")


def _relabel(ids):
    """Text ids in an order unrelated to the old one."""
    return ids.map(lambda value: f"{(value * 7919) % 100_003}-é")


def _check_single_document_queries(estimator):
    log, clicks = _small_log()
    first = _documents().groupby("qid", as_index=False).head(1)
    alone = first.assign(qid=first["qid"] + 1_000, session=first["qid"] + 1_000_000)
    both = pd.concat([log, alone], ignore_index=True)
    scores = _scores(estimator, both, np.concatenate([clicks, np.ones(len(alone))]))
    assert np.isfinite(scores).all(), "queries of one document gave scores that are not finite"


def _check_clicks_matter(estimator):
    log, clicks = _small_log()
    scores = _scores(estimator, log, clicks)
    assert np.ptp(scores) > 0, "all documents have the same score"
    flipped = np.where(log["position"].notna(), 1 - clicks, 0.0)
    other = _scores(estimator, log, flipped)
    assert not np.allclose(scores, other), "the opposite clicks gave the same model"


def _check_rank_and_score(estimator):
    """``rank`` and ``score`` agree with ``predict``."""
    log, clicks = _small_log()
    fitted = clone(estimator).fit(log, clicks)
    documents = _documents()
    scores = fitted.predict(documents)
    expected = pd.Series(-scores).groupby(documents["qid"]).rank(method="first")
    np.testing.assert_array_equal(fitted.rank(documents), expected)
    relevance = documents["relevance"].to_numpy()
    mean = ndcg_score(relevance, scores, qid=documents["qid"], k=10)
    np.testing.assert_allclose(fitted.score(documents, relevance), mean)


def _check_click_free_queries(estimator):
    log, clicks = _small_log()
    clicks = np.where(log["qid"] < 12, 0.0, clicks)
    scores = _scores(estimator, log, clicks)
    assert np.isfinite(scores).all(), "queries without clicks gave scores that are not finite"


def _check_never_shown_rows(estimator):
    log, clicks = _small_log()
    scores = _scores(estimator, log, clicks)
    assert np.isfinite(scores).all(), "never-shown rows gave scores that are not finite"
    shown = log["position"].notna().to_numpy()
    if getattr(estimator, "_learns_from_never_shown", False):
        once = shown | ~log["doc"].duplicated().to_numpy()
        _assert_same_model(
            scores,
            _scores(estimator, log[once], clicks[once]),
            "it matters how often the log repeats a candidate that was never shown",
        )
        return
    _assert_same_model(
        scores,
        _scores(estimator, log[shown], clicks[shown]),
        "never-shown rows changed the model: they must not count as shown and unclicked",
    )


def _check_roles_do_not_leak(estimator):
    log, clicks = _small_log()
    fitted = clone(estimator).fit(log, clicks)
    assert fitted.n_features_in_ == len(_FEATURES), "role columns count as features"
    other = log.assign(relevance=log["relevance"].to_numpy()[::-1])
    np.testing.assert_array_equal(
        _scores(estimator, other, clicks),
        _scores(estimator, log, clicks),
        err_msg="fit read the annotation 'relevance'",
    )


def _check_impressions(estimator):
    """An aggregated log is the raw log, and weights multiply impressions."""
    log, clicks = _small_log()
    raw = _scores(estimator, log, clicks)
    counts = log.assign(click=clicks, impressions=1.0).groupby("doc", as_index=False)
    counts = counts[["click", "impressions"]].sum()
    table = _documents().merge(counts, on="doc")
    rate = (table.pop("click") / table["impressions"]).to_numpy()
    _assert_same_model(_scores(estimator, table, rate), raw, "impressions are not repeated rows")
    counts = table.pop("impressions").to_numpy()
    _assert_same_model(
        _scores(estimator, table, rate, sample_weight=counts),
        raw,
        "sample_weight does not multiply impressions",
    )
    _assert_same_model(
        _scores(estimator, table, rate, impressions=counts),
        raw,
        "the keyword 'impressions' is not the column",
    )
    busy = counts * np.where(table["qid"] % 2, 50, 1)
    other = _scores(estimator, table, rate, impressions=busy)
    assert not np.allclose(other, raw, atol=1e-3 * np.ptp(raw)), "impressions do not matter"


def _check_keywords_win(estimator):
    log, clicks = _small_log()
    wrong = log.assign(impressions=1 + 10 * (log["qid"] % 2))
    _assert_same_model(
        _scores(estimator, wrong, clicks, impressions=np.ones(len(log))),
        _scores(estimator, log, clicks),
        "a keyword does not win over the column of its name",
    )


def _check_frames_and_arrays(estimator):
    log, clicks = _small_log()
    expected = _scores(estimator, log, clicks)
    roles = {role: log[role].to_numpy() for role in ROLES[:-1] if role in log.columns}
    array = log[_FEATURES].to_numpy()
    np.testing.assert_array_equal(_scores_of_arrays(estimator, array, clicks, roles), expected)
    for frame in _other_frames(log):
        np.testing.assert_array_equal(
            _scores(estimator, frame, clicks), expected, err_msg=f"{type(frame)}: another model"
        )


def _scores_of_arrays(estimator, array, clicks, roles):
    fitted = clone(estimator).fit(array, clicks, **roles)
    documents = _documents()
    # A ranker that looks at a query's candidates together must be told which they are.
    queries = {"qid": documents["qid"]} if _takes_queries(fitted) else {}
    return fitted.predict(documents[_FEATURES].to_numpy(), **queries)


def _takes_queries(estimator):
    return "qid" in inspect.signature(estimator.predict).parameters


def _other_frames(log):
    try:
        import polars as pl
        import pyarrow as pa
    except ImportError:
        return []
    table = pa.Table.from_pandas(log, preserve_index=False)
    return [pl.from_arrow(table), table]


def _check_same_seed(estimator):
    log, clicks = _small_log()
    np.testing.assert_array_equal(_scores(estimator, log, clicks), _scores(estimator, log, clicks))


def _check_pickle(estimator):
    log, clicks = _small_log()
    fitted = clone(estimator).fit(log, clicks)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(log), fitted.predict(log))
    refitted = clone(fitted).fit(log, clicks)
    np.testing.assert_array_equal(refitted.predict(log), fitted.predict(log))


def _check_search(estimator):
    """Pipeline and GridSearchCV over queries, then serving."""
    log, clicks = _small_log()
    pipeline = make_pipeline(OnFeatures(StandardScaler()), estimator)
    search = GridSearchCV(
        pipeline, {}, cv=QueryKFold(2), scoring=RankingScorer(k=3), error_score="raise"
    )
    search.fit(log, clicks)
    assert np.isfinite(search.best_score_)
    serving = log[["qid", *feature_columns(log)]]
    assert search.predict(serving).shape == (len(log),)


def _check_serving_frame(estimator):
    log, clicks = _small_log()
    fitted = clone(estimator).fit(log, clicks)
    expected = fitted.predict(log)
    features = feature_columns(log)
    for frame in (
        log[["qid", *features]],
        log[["qid", *features]].assign(position=99, user="unknown"),
        log[["qid", *features]].astype({"f0": np.float32}),
    ):
        np.testing.assert_allclose(fitted.predict(frame), expected, rtol=1e-4, atol=1e-6)


_CHECKS = (
    _check_row_order,
    _check_relabelled_ids,
    _check_single_document_queries,
    _check_click_free_queries,
    _check_clicks_matter,
    _check_rank_and_score,
    _check_keywords_win,
    _check_never_shown_rows,
    _check_roles_do_not_leak,
    _check_impressions,
    _check_frames_and_arrays,
    _check_same_seed,
    _check_pickle,
    _check_search,
    _check_serving_frame,
)
