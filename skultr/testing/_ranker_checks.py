"""The contract of a ranker as small functions, which scikit-learn's own checks do not cover."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

from .._log._roles import ROLES, feature_columns
from ..metrics import RankingScorer, ndcg_score
from ..model_selection import QueryKFold
from ..preprocessing import OnFeatures
from ._check_logs import Check, named, other_frames, quick, relabelled, run_all

_FEATURES = ["f0", "f1", "f2", "f3"]


def check_ranker(estimator: BaseEstimator, *, generate_only: bool = False) -> list[Check] | None:
    """Check that a ranker keeps the contract of a click log as one table.

    Parameters
    ----------
    estimator : object
        A ranker with ``fit(X, y)`` and ``predict(X)``. If it has the parameters
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
    - The order of rows and the values of ids have no effect.
    - Opposite clicks give another model.
    - Queries with a single document or without clicks give finite scores.
    - ``rank`` and ``score`` agree with ``predict``.
    - A document has one score, however many pages of the log that ``predict`` gets show it.
    - A keyword wins over the column of its name.
    - Role columns are no features, and ``fit`` does not read the annotation ``relevance``.
    - An aggregated log gives the model of the raw log; ``sample_weight`` multiplies impressions.
    - pandas, Polars and PyArrow frames and arrays with keywords give the same model (frames that
      are not installed are left out).
    - A ranker whose tags allow NaN learns from logs with missing values.
    - The same seed gives the same model; ``clone`` and ``pickle`` keep it.
    - It works in a ``Pipeline``, a ``GridSearchCV``, and on a frame at serving time.
    - The first ``partial_fit``, where there is one, is ``fit``; one that fails changes nothing.

    A ranker whose ``predict`` takes ``qid`` or ``doc`` gets them, as columns or by keyword; all
    others get the features only.

    Rows that were never shown must not change a model, unless its class has the attribute
    ``_learns_from_never_shown = True``. Then the number of times that the log repeats them must
    not change the model.

    Examples
    --------
    >>> from skultr.rankers import NaiveRanker
    >>> from skultr.testing import check_ranker
    >>> check_ranker(NaiveRanker(hidden_layer_sizes=()))
    """
    return run_all(named(RANKER_CHECKS, quick(estimator), make_log=ranker_log), generate_only)


def _documents(n_queries: int = 12, n_documents: int = 7, n_shown: int = 5) -> pd.DataFrame:
    """Documents in a fixed order per query; the last two of each query were never shown."""
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


def ranker_log() -> tuple[pd.DataFrame, NDArray[np.float64]]:
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
    # Every query has a click at the top, because a listwise loss ignores lists without clicks.
    clicks[log["position"].eq(1) & (log["session"] < 1_000)] = 1.0
    return log, clicks.to_numpy()


def _scores(
    estimator: BaseEstimator, log: Any, clicks: ArrayLike, **fit_params: Any
) -> NDArray[np.float64]:
    """Scores of the documents by a clone fitted to a log."""
    return _predict(clone(estimator).fit(log, clicks, **fit_params), _documents())


def _predict(fitted: BaseEstimator, documents: pd.DataFrame) -> NDArray[np.float64]:
    return fitted.predict(documents[[*_ids_read(fitted), *_FEATURES]])


def _ids_read(estimator: BaseEstimator) -> list[str]:
    """Ids that ``predict`` takes: a score may depend on the candidates, or on the document."""
    taken = inspect.signature(estimator.predict).parameters
    return [role for role in ("qid", "doc") if role in taken]


def _assert_same_model(
    actual: NDArray[np.float64], expected: NDArray[np.float64], message: str
) -> None:
    """Scores agree up to a constant, which no list determines, and up to rounding."""
    spread = max(np.ptp(expected), 1e-6)
    actual, expected = actual - actual.mean(), expected - expected.mean()
    np.testing.assert_allclose(actual / spread, expected / spread, atol=1e-3, err_msg=message)


def _check_row_order(estimator, log, clicks):
    order = np.random.default_rng(1).permutation(len(log))
    np.testing.assert_array_equal(
        _scores(estimator, log.iloc[order], clicks[order]),
        _scores(estimator, log, clicks),
        err_msg="shuffled rows gave another model",
    )


def _check_relabelled_ids(estimator, log, clicks):
    expected = _scores(estimator, log, clicks)
    log, documents = (
        frame.assign(**{role: relabelled(frame[role]) for role in ids})
        for frame, ids in ((log, ("qid", "session", "doc")), (_documents(), ("qid", "doc")))
    )
    found = _predict(clone(estimator).fit(log, clicks), documents)
    _assert_same_model(found, expected, "other ids gave another model")


def _check_single_document_queries(estimator, log, clicks):
    first = _documents().groupby("qid", as_index=False).head(1)
    alone = first.assign(qid=first["qid"] + 1_000, session=first["qid"] + 1_000_000)
    both = pd.concat([log, alone], ignore_index=True)
    scores = _scores(estimator, both, np.concatenate([clicks, np.ones(len(alone))]))
    assert np.isfinite(scores).all(), "queries of one document gave scores that are not finite"


def _check_clicks_matter(estimator, log, clicks):
    scores = _scores(estimator, log, clicks)
    assert np.ptp(scores) > 0, "all documents have the same score"
    flipped = np.where(log["position"].notna(), 1 - clicks, 0.0)
    other = _scores(estimator, log, flipped)
    assert not np.allclose(scores, other), "the opposite clicks gave the same model"


def _check_rank_and_score(estimator, log, clicks):
    """``rank`` and ``score`` agree with ``predict``."""
    fitted = clone(estimator).fit(log, clicks)
    documents = _documents()
    scores = fitted.predict(documents)
    expected = pd.Series(-scores).groupby(documents["qid"]).rank(method="first")
    np.testing.assert_array_equal(
        fitted.rank(documents), expected, err_msg="rank disagrees with predict"
    )
    relevance = documents["relevance"].to_numpy()
    mean = ndcg_score(relevance, scores, qid=documents["qid"], k=10)
    np.testing.assert_allclose(
        fitted.score(documents, relevance), mean, err_msg="score is not the nDCG@10 of predict"
    )


def _check_repeated_pages(estimator, log, clicks):
    """Scores of a log are those of its distinct documents, whatever the ids tell of them."""
    fitted = clone(estimator).fit(log, clicks)
    once = ~log["doc"].duplicated().to_numpy()
    ids = _ids_read(fitted)
    for columns in ([*log.columns], [*ids, *_FEATURES]):
        scores = fitted.predict(log[columns])
        expected = fitted.predict(log.loc[once, columns])[pd.factorize(log["doc"])[0]]
        np.testing.assert_allclose(
            scores,
            expected,
            rtol=1e-5,
            atol=1e-5 * np.ptp(expected),
            err_msg="rows that repeat a document change scores: count each document once",
        )


def _check_click_free_queries(estimator, log, clicks):
    clicks = np.where(log["qid"] < 12, 0.0, clicks)
    scores = _scores(estimator, log, clicks)
    assert np.isfinite(scores).all(), "queries without clicks gave scores that are not finite"


def _check_never_shown_rows(estimator, log, clicks):
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


def _check_roles_do_not_leak(estimator, log, clicks):
    fitted = clone(estimator).fit(log, clicks)
    assert fitted.n_features_in_ == len(_FEATURES), "role columns count as features"
    other = log.assign(relevance=log["relevance"].to_numpy()[::-1])
    np.testing.assert_array_equal(
        _scores(estimator, other, clicks),
        _scores(estimator, log, clicks),
        err_msg="fit read the annotation 'relevance'",
    )


def _check_impressions(estimator, log, clicks):
    """An aggregated log is the raw log, and weights multiply impressions."""
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


def _check_keywords_win(estimator, log, clicks):
    wrong = log.assign(impressions=1 + 10 * (log["qid"] % 2))
    _assert_same_model(
        _scores(estimator, wrong, clicks, impressions=np.ones(len(log))),
        _scores(estimator, log, clicks),
        "a keyword does not win over the column of its name",
    )


def _check_frames_and_arrays(estimator, log, clicks):
    expected = _scores(estimator, log, clicks)
    roles = {role: log[role].to_numpy() for role in ROLES[:-1] if role in log.columns}
    array = log[_FEATURES].to_numpy()
    np.testing.assert_array_equal(
        _scores_of_arrays(estimator, array, clicks, roles),
        expected,
        err_msg="an array with keywords gave another model than the frame",
    )
    for frame in other_frames(log):
        np.testing.assert_array_equal(
            _scores(estimator, frame, clicks), expected, err_msg=f"{type(frame)}: another model"
        )


def _scores_of_arrays(
    estimator: BaseEstimator,
    array: NDArray[np.float64],
    clicks: ArrayLike,
    roles: dict[str, NDArray[Any]],
) -> NDArray[np.float64]:
    fitted = clone(estimator).fit(array, clicks, **roles)
    documents = _documents()
    ids = {role: documents[role].to_numpy() for role in _ids_read(fitted)}
    return fitted.predict(documents[_FEATURES].to_numpy(), **ids)


def _check_missing_values(estimator, log, clicks):
    if not get_tags(estimator).input_tags.allow_nan:
        return
    log = log.assign(f1=log["f1"].where(log["f0"] > log["f0"].median()))
    fitted = clone(estimator).fit(log, clicks)
    scores = fitted.predict(log)
    assert np.isfinite(scores).all(), "a log with missing values gave scores that are not finite"
    order = np.random.default_rng(0).permutation(len(log))
    again = fitted.predict(log.iloc[order])
    np.testing.assert_allclose(
        again, scores[order], rtol=1e-4, atol=1e-6, err_msg="the order of rows changed scores"
    )


def _check_same_seed(estimator, log, clicks):
    np.testing.assert_array_equal(
        _scores(estimator, log, clicks),
        _scores(estimator, log, clicks),
        err_msg="two fits with the same random_state gave different scores",
    )


def _check_pickle(estimator, log, clicks):
    fitted = clone(estimator).fit(log, clicks)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(
        again.predict(log), fitted.predict(log), err_msg="pickle changed the scores"
    )
    refitted = clone(fitted).fit(log, clicks)
    np.testing.assert_array_equal(
        refitted.predict(log), fitted.predict(log), err_msg="a fitted clone has other scores"
    )


def _check_partial_fit(estimator, log, clicks):
    if not hasattr(estimator, "partial_fit"):
        return
    ranker = clone(estimator).partial_fit(log, clicks)
    scores = ranker.predict(log)
    np.testing.assert_allclose(
        scores,
        clone(estimator).fit(log, clicks).predict(log),
        rtol=1e-6,
        err_msg="the first partial_fit gave another model than fit",
    )
    try:
        ranker.partial_fit(log.assign(f0="text"), clicks)
    except ValueError:
        np.testing.assert_array_equal(
            ranker.predict(log), scores, err_msg="a partial_fit that failed changed the model"
        )
    else:
        raise AssertionError("partial_fit took text as a feature")
    ranker.partial_fit(log, clicks)
    assert np.isfinite(ranker.predict(log)).all(), "a second partial_fit gave scores not finite"


def _check_search(estimator, log, clicks):
    """Pipeline and GridSearchCV over queries, then serving."""
    pipeline = make_pipeline(OnFeatures(StandardScaler()), estimator)
    search = GridSearchCV(
        pipeline, {}, cv=QueryKFold(2), scoring=RankingScorer(k=3), error_score="raise"
    )
    search.fit(log, clicks)
    assert np.isfinite(search.best_score_), "GridSearchCV found no finite score"
    serving = log[["qid", *feature_columns(log)]]
    assert search.predict(serving).shape == (len(log),), "expected one score per row"


def _check_serving_frame(estimator, log, clicks):
    fitted = clone(estimator).fit(log, clicks)
    expected = fitted.predict(log)
    features = feature_columns(log)
    for frame in (
        log[["qid", *features]],
        log[["qid", *features]].assign(position=99, user="unknown"),
        log[["qid", *features]].astype({"f0": np.float32}),
    ):
        np.testing.assert_allclose(
            fitted.predict(frame),
            expected,
            rtol=1e-4,
            atol=1e-6,
            err_msg=(
                "a frame without roles, or with unknown users and positions, has other scores"
            ),
        )


RANKER_CHECKS = (
    _check_row_order,
    _check_relabelled_ids,
    _check_single_document_queries,
    _check_click_free_queries,
    _check_clicks_matter,
    _check_rank_and_score,
    _check_repeated_pages,
    _check_keywords_win,
    _check_never_shown_rows,
    _check_roles_do_not_leak,
    _check_impressions,
    _check_frames_and_arrays,
    _check_missing_values,
    _check_same_seed,
    _check_pickle,
    _check_partial_fit,
    _check_search,
    _check_serving_frame,
)
