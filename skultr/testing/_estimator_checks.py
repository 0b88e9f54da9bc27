"""The contracts of rankers, click models and propensities, which scikit-learn's checks do not
cover."""

from __future__ import annotations

import inspect
import itertools
import pickle
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.testing import assert_array_equal, assert_raises
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

from .._log._roles import feature_columns
from ..metrics import RankingScorer, ndcg_score, perplexity_score
from ..model_selection import QueryKFold
from ..preprocessing import OnFeatures
from ..rankers import IPSRanker
from ..simulation import UBMUser
from ._user_checks import (
    MAX_ERRORS,
    Check,
    Contract,
    assert_near,
    assert_probabilities,
    describes_a_check,
    run_all,
)

#: A short, seeded training in one batch.
_QUICK = {
    "learning_rate": 0.05,  # large enough for small differences to show
    "max_epochs": 10,
    "batch_size": 4096,
    "early_stopping": False,
    "random_state": 0,
}
#: Documents of a list of the logs of click models and propensities.
_WIDTH = 3
#: Draws of clicks, for rates with a standard error of at most 0.008.
_N_DRAWS = 4_000
#: Difference between P(click) before any click and its sum over all clicks above, at most. Exact
#: models have rounding errors; models that average over samples of the clicks above have 0.02.
_MARGINAL_ERROR = 0.04


@describes_a_check
def check_ranker(estimator: BaseEstimator, *, generate_only: bool = False) -> list[Check] | None:
    """Check that a ranker keeps the contract of a click log as one table.

    Parameters
    ----------
    estimator : object
        A ranker with ``fit(X, y)`` and ``predict(X)``. If it has the parameters
        ``learning_rate``, ``max_epochs``, ``batch_size``, ``early_stopping`` and
        ``random_state``, they are set to a short, seeded training in one batch.
    {generate_only}

    Notes
    -----
    - The order of rows and the values of ids have no effect.
    - Opposite clicks give another model.
    - Queries with a single document or without clicks give finite scores.
    - ``rank`` and ``score`` agree with ``predict``.
    - A document has one score, however many pages of the log that ``predict`` gets show it.
    - A keyword wins over the column of its name.
    - Role columns are no features, and ``fit`` does not read the annotation ``relevance``.
    - An aggregated log gives the model of the raw log.
    - A common factor of all ``sample_weight`` changes nothing.
    - A feature that changes from page to page, and for which users click, is learned.
    - pandas, Polars and PyArrow frames and arrays with keywords give the same model (Polars,
      where it is installed).
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
    return run_all(RankerContract.checks(estimator), generate_only)


@describes_a_check
def check_click_model(
    estimator: BaseEstimator, *, generate_only: bool = False
) -> list[Check] | None:
    """Check that a click model keeps the contract of :mod:`skultr.click_models`.

    Parameters
    ----------
    estimator : estimator
        With ``fit``, ``predict`` (relevance), ``predict_click``, ``sample`` and ``score``. If it
        has the parameters ``learning_rate``, ``max_epochs``, ``batch_size``, ``early_stopping``
        and ``random_state``, they are set to a short, seeded training in one batch.
    {generate_only}

    Notes
    -----
    A click model is a ranker by relevance: the checks of :func:`check_ranker` come first, but for
    those of ``rank``, ``score``, aggregated logs and features of the row. Then:

    - ``predict_click`` returns one probability per row, 0 for rows that were not shown, whatever
      the order of rows and the other lists, and alike for pandas, Polars, PyArrow and arrays
      with keywords.
    - Given the clicks above, the probability of a row does not depend on the clicks below.
    - The first row has the same probability given the clicks above and before any click.
    - Before any click is known, P(click) is the sum over all clicks above, within 0.04.
    - ``sample`` draws 0 or 1, the same for the same seed, with the rates that
      ``predict_click(conditional=False)`` states, within 5 standard errors of 4,000 draws.
    - ``score`` is minus the perplexity of ``predict_click`` by position.
    - Sessions that are the same, clicks included, are one session with several ``impressions``.

    Examples
    --------
    >>> from skultr.click_models import DCTRModel
    >>> from skultr.testing import check_click_model
    >>> check_click_model(DCTRModel())
    """
    # What the class itself checks otherwise; and most click models know documents, not features.
    others = ("check_rank_and_score", "check_impressions", "check_features_of_the_row")
    shared = RankerContract.checks(estimator, but=others)
    return run_all([*shared, *ClickModelContract.checks(estimator)], generate_only)


@describes_a_check
def check_propensity(
    estimator: BaseEstimator, *, generate_only: bool = False
) -> list[Check] | None:
    """Check that a propensity estimator keeps the contract of :mod:`skultr.propensity`.

    Parameters
    ----------
    estimator : estimator
        With ``fit(X, y)`` and ``predict(X)``. If it has the parameters ``learning_rate``,
        ``max_epochs``, ``batch_size``, ``early_stopping`` and ``random_state``, they are set to
        a short, seeded training in one batch.
    {generate_only}

    Notes
    -----
    The log of the checks shows three documents per query, shuffled in every session, to two
    users. It has an experiment column ``arm``, which is 0 everywhere, and two features.

    - ``examination_`` is a frame with a column ``examination`` of positive numbers, indexed by
      bias factor (and user).
    - ``predict`` returns one number in (0, 1] per shown row, 0 for rows that were not shown, and
      does not depend on the other rows.
    - A position that the training log did not show is a ``ValueError``, unless it gets a number.
    - Rows that were not shown have no effect on ``fit``, and neither have the annotation
      ``relevance``, the order of rows and the values of ids.
    - An aggregated log gives the estimate of the raw log; a keyword ``impressions`` and
      ``sample_weight`` are the column ``impressions``.
    - pandas, Polars and PyArrow frames and arrays with keywords give the same estimate (Polars,
      where it is installed; arrays only if no column is read by its name).
    - The same seed gives the same estimate; ``clone`` and ``pickle`` keep it.
    - It serves as the ``propensity`` of an :class:`skultr.rankers.IPSRanker`.

    Examples
    --------
    >>> from skultr.propensity import InterventionHarvesting
    >>> from skultr.testing import check_propensity
    >>> check_propensity(InterventionHarvesting(n_bootstrap=0))
    """
    return run_all(PropensityContract.checks(estimator), generate_only)


class EstimatorContract(Contract):
    """Fits of one estimator to the log of ``make_log``, which has features and roles."""

    features: list[str]
    roles: list[str]

    def __init__(self, estimator: Any) -> None:
        # Of the settings those that the estimator has: learners without epochs have none.
        shared = _QUICK.keys() & estimator.get_params().keys()
        quick = {name: _QUICK[name] for name in shared}
        self.estimator = clone(estimator).set_params(**quick)
        self.log, self.clicks = self.make_log()

    def fit(self, log: Any, clicks: ArrayLike, **fit_params: Any) -> Any:
        """A clone fitted to a log."""
        return clone(self.estimator).fit(log, clicks, **fit_params)

    @cached_property
    def fitted(self) -> Any:
        """A clone fitted to the log as it is."""
        return self.fit(self.log, self.clicks)


class ContractOfFit(EstimatorContract):
    """What rankers and propensities share: a fit depends on nothing that it should not.

    Fits are told apart by what they predict for the frame ``reference``, of which ``predict``
    takes ``roles_read()``; ``assert_close`` compares two predictions up to rounding.
    """

    #: What ``fit`` gives, and what ``predict`` returns.
    fit_gives = "model"
    values = "scores"
    #: Whether another order or kind of frame gives the same bits.
    is_exact = True

    @property
    def columns_read(self) -> set[str]:
        """Columns beside roles that the estimator reads by name."""
        return getattr(self.estimator, "columns_read", set)()

    @cached_property
    def expected(self) -> NDArray[Any]:
        """What the fit to the log as it is predicts."""
        return self.fitted.predict(self.reference)

    def refit(self, log: Any, clicks: ArrayLike | None = None, **fit_params: Any) -> NDArray[Any]:
        """What a fit to another log predicts."""
        # Most checks change the table alone.
        clicks = self.clicks if clicks is None else clicks
        return self.fit(log, clicks, **fit_params).predict(self.reference)

    def assert_same(self, found: NDArray[Any], message: str, *, exact: bool = False) -> None:
        """Predictions as those of the fit to the log as it is."""
        compare = assert_array_equal if exact else self.assert_close
        compare(found, self.expected, message)

    def check_pickle(self) -> None:
        fitted = self.fitted
        expected = fitted.predict(self.log)
        pickled = pickle.loads(pickle.dumps(fitted)).predict(self.log)
        assert_array_equal(pickled, expected, f"pickle changed the {self.values}")
        # A clone that keeps something fitted begins elsewhere, and ends elsewhere.
        cloned = clone(fitted).fit(self.log, self.clicks).predict(self.log)
        assert_array_equal(cloned, expected, f"a fitted clone has other {self.values}")

    def check_frames_and_arrays(self) -> None:
        # In one order: roles, columns that are read by name, features.
        others = sorted(self.columns_read - {*self.features})
        self.log = self.log[[*self.roles, *others, *self.features]]
        logs = _other_frames(self.log)
        references = _other_frames(self.reference)
        for log, reference in zip(logs, references, strict=True):
            found = self.fit(log, self.clicks).predict(reference)
            told = f"{type(log)}: another {self.fit_gives} than pandas"
            self.assert_same(found, told, exact=self.is_exact)
        if others:  # are read by name, which arrays do not have
            return
        array, roles = _arrays(self.log, self.features, self.roles)
        reference, given = _arrays(self.reference, self.features, self.roles_read())
        found = self.fit(array, self.clicks, **roles).predict(reference, **given)
        told = f"an array with keywords gave another {self.fit_gives} than the frame"
        self.assert_same(found, told, exact=self.is_exact)

    def assert_aggregated(self, table: pd.DataFrame, rate: NDArray[np.float64]) -> None:
        """Fits to an aggregated log, whose impressions are a column or a keyword."""
        found = self.refit(table, rate)
        self.assert_same(
            found,
            f"an aggregated log gave another {self.fit_gives} than the raw log: read nothing but "
            "sums of clicks and of weight, because equal lists are one list when _fit is called",
        )
        # The same numbers by keyword, without the column.
        counts = table["impressions"].to_numpy()
        found = self.refit(table.drop(columns="impressions"), rate, impressions=counts)
        self.assert_same(found, "the keyword 'impressions' is not the column 'impressions'")

    def check_row_order(self) -> None:
        order = np.random.default_rng(1).permutation(len(self.log))
        found = self.refit(self.log.iloc[order], self.clicks[order])
        told = f"shuffled rows gave another {self.fit_gives}"
        self.assert_same(found, told, exact=self.is_exact)

    def check_relabelled_ids(self) -> None:
        # Text in place of numbers, and sorted in another order: ids are names and no quantities.
        fitted = self.fit(_relabelled(self.log), self.clicks)
        found = fitted.predict(_relabelled(self.reference))
        self.assert_same(found, f"other ids gave another {self.fit_gives}")

    def check_annotation_is_not_read(self) -> None:
        # The same labels on other rows: whoever reads them learns something else.
        reversed_ = self.log["relevance"].to_numpy()[::-1]
        found = self.refit(self.log.assign(relevance=reversed_))
        self.assert_same(found, "fit read the annotation 'relevance'", exact=True)

    def check_factor_of_weights(self) -> None:
        # A factor must cancel, also in the strength of regularization and the size of steps.
        found = self.refit(self.log, sample_weight=np.full(len(self.log), 1e-3))
        told = f"a common factor of all sample weights gave another {self.fit_gives}"
        self.assert_same(found, told)

    def check_keywords_win(self) -> None:
        # A column that would matter, and a keyword that says what the log says without it.
        column = np.where(np.arange(len(self.log)) % 2, 11, 1)
        keyword = np.ones(len(self.log))
        found = self.refit(self.log.assign(impressions=column), impressions=keyword)
        self.assert_same(found, "a keyword does not win over the column of its name")

    def check_same_seed(self) -> None:
        found = self.refit(self.log)
        told = f"two fits with the same random_state gave different {self.values}"
        self.assert_same(found, told, exact=True)


class RankerContract(ContractOfFit):
    """The contract of a click log as one table."""

    features = ["f0", "f1", "f2", "f3"]
    roles = ["qid", "session", "doc", "position"]
    n_queries = 12
    #: Positions of the documents of a query; NaN: never shown.
    positions = (1, 2, 3, 4, 5, np.nan, np.nan)

    @cached_property
    def documents(self) -> pd.DataFrame:
        """Seven documents per query; the last two of each query were never shown."""
        rng = np.random.default_rng(0)
        n_rows = self.n_queries * len(self.positions)
        # Heavy tails, as counts and prices have them.
        features = rng.lognormal(sigma=2.0, size=(n_rows, len(self.features)))
        documents = pd.DataFrame(features, columns=self.features)
        # Ids with gaps: no check may pass because ids are row numbers.
        return documents.assign(
            qid=np.repeat(np.arange(self.n_queries) * 3, len(self.positions)),
            doc=np.arange(n_rows),
            position=np.tile(self.positions, self.n_queries),
            relevance=rng.integers(0, 5, n_rows),
        )

    def make_log(self) -> tuple[pd.DataFrame, NDArray[np.float64]]:
        """A log in which some queries were served once and others up to seven times."""
        parts = []
        for query, rows in self.documents.groupby("qid"):
            # 1, 4 or 7, by turns: ids of queries are multiples of 3.
            n_sessions = 1 + query * 5 % 9
            parts += [rows.assign(session=i * 1_000 + query) for i in range(n_sessions)]
        log = pd.concat(parts, ignore_index=True)
        # P(click) = relevance / position; what was never shown has no position, and no click.
        chance = ((0.2 + 0.2 * log["relevance"]) / log["position"]).fillna(0.0)
        clicks = (np.random.default_rng(1).random(len(log)) < chance).astype(float)
        # Every query has a click at the top: a listwise loss ignores lists without clicks.
        is_first_session = log["session"] < 1_000
        clicks[log["position"].eq(1) & is_first_session] = 1.0
        return log, clicks.to_numpy()

    def roles_read(self) -> list[str]:
        """A score may depend on the candidates, or on the document."""
        taken = inspect.signature(self.estimator.predict).parameters
        return [role for role in ("qid", "doc") if role in taken]

    @cached_property
    def reference(self) -> pd.DataFrame:
        """The documents, with what ``predict`` takes."""
        return self.documents[[*self.roles_read(), *self.features]]

    def assert_close(self, found: NDArray[Any], expected: NDArray[Any], message: str) -> None:
        """Equal up to a constant, which no list determines, and up to rounding."""
        spread = max(np.ptp(expected), 1e-6)  # constant scores have none
        # Less the mean, as listwise losses do not see a constant; and in units of the spread.
        found = found - found.mean()
        expected = expected - expected.mean()
        assert_near(found / spread, expected / spread, message, atol=1e-3)

    def assert_finite(self, scores: NDArray[Any], what: str) -> None:
        """All scores are numbers."""
        assert np.isfinite(scores).all(), f"{what} gave scores that are not finite"

    def check_single_document_queries(self) -> None:
        # A listwise loss of a single document is 0 whatever its score; some divide by the rest.
        first = self.documents.groupby("qid", as_index=False).head(1)
        alone = first.assign(qid=first["qid"] + 1_000, session=first["qid"] + 1_000_000)
        # Each such query has a click on its one document.
        both = pd.concat([self.log, alone], ignore_index=True)
        clicks = np.concatenate([self.clicks, np.ones(len(alone))])
        scores = self.refit(both, clicks)
        self.assert_finite(scores, "queries of one document")

    def check_click_free_queries(self) -> None:
        some = self.log["qid"] < self.n_queries  # a third, because ids are multiples of 3
        scores = self.refit(self.log, np.where(some, 0.0, self.clicks))
        self.assert_finite(scores, "queries without clicks")

    def check_clicks_matter(self) -> None:
        # Clicks where there were none, and none where there were some.
        assert np.ptp(self.expected) > 0, "all documents have the same score"
        shown = self.log["position"].notna()
        other = self.refit(self.log, np.where(shown, 1 - self.clicks, 0.0))
        assert not np.allclose(self.expected, other), "the opposite clicks gave the same model"

    def check_rank_and_score(self) -> None:
        documents = self.documents
        fitted = self.fitted
        scores = fitted.predict(documents)
        # Rank 1 is the highest score; of equal scores the first row comes first.
        expected = pd.Series(-scores).groupby(documents["qid"]).rank(method="first")
        assert_array_equal(fitted.rank(documents), expected, "rank disagrees with predict")
        relevance = documents["relevance"].to_numpy()
        mean = ndcg_score(relevance, scores, qid=documents["qid"], k=10)
        found = fitted.score(documents, relevance)
        assert_near(found, mean, "score is not the nDCG@10 of predict")

    def check_repeated_pages(self) -> None:
        # A page by itself, and the frame of a log, which repeats documents from page to page.
        # The first row of each document, and from each row of the log the way back to it.
        once = ~self.log["doc"].duplicated().to_numpy()
        document, _ = pd.factorize(self.log["doc"])
        for columns in ([*self.log.columns], [*self.reference.columns]):
            alone = self.fitted.predict(self.log.loc[once, columns])
            expected = alone[document]
            assert_near(
                self.fitted.predict(self.log[columns]),
                expected,
                "rows that repeat a document change scores: count each document once",
                rtol=1e-5,
                atol=1e-5 * np.ptp(expected),
            )

    def check_never_shown_rows(self) -> None:
        self.assert_finite(self.expected, "never-shown rows")
        # Without them the model must be the same, unless it says that it learns from them.
        kept = self.log["position"].notna().to_numpy()
        told = "never-shown rows changed the model: they must not count as shown and unclicked"
        if getattr(self.estimator, "_learns_from_never_shown", False):
            # It needs each candidate once.
            kept = kept | ~self.log["doc"].duplicated().to_numpy()
            told = "it matters how often the log repeats a candidate that was never shown"
        self.assert_same(self.refit(self.log[kept], self.clicks[kept]), told)

    def check_impressions(self) -> None:
        rows = self.log.assign(click=self.clicks, impressions=1.0)
        # A document has one position here, so that one row per document is the whole log.
        counts = rows.groupby("doc", as_index=False)[["click", "impressions"]].sum()
        table = self.documents.merge(counts, on="doc")
        rate = (table.pop("click") / table["impressions"]).to_numpy()
        self.assert_aggregated(table, rate)
        # Every other query is served 50 times as often.
        times = np.where(table["qid"] % 2, 50, 1)
        busy = table.pop("impressions").to_numpy() * times
        found = self.refit(table, rate, impressions=busy)
        # A thousandth of the spread of scores is no difference.
        near = 1e-3 * np.ptp(self.expected)
        assert not np.allclose(found, self.expected, atol=near), "impressions do not matter"
        weighted = self.refit(table, rate, sample_weight=busy)
        plain = self.refit(table, rate)
        assert not np.allclose(weighted, plain, atol=near), "sample weights do not matter"

    def check_features_of_the_row(self) -> None:
        """Whether a document is in stock changes per page, and users click what is."""
        # Shown rows alone; stock is drawn for each, and decides about the click.
        log = self.log[self.log["position"].notna()].reset_index(drop=True)
        rng = np.random.default_rng(2)
        stock = rng.integers(0, 2, len(log)).astype(float)
        chance = (0.1 + 0.8 * stock) / log["position"]
        clicks = (rng.random(len(log)) < chance).astype(float).to_numpy()
        model = self.fit(log.assign(f0=stock), clicks)
        # Each document in stock, and not: in one request half of them are.
        in_stock = np.arange(len(self.reference)) % 2
        one = model.predict(self.reference.assign(f0=in_stock.astype(float)))
        other = model.predict(self.reference.assign(f0=1.0 - in_stock))
        # Score in stock less score out of stock, of the same document.
        gain = np.where(in_stock, one - other, other - one)
        assert np.mean(gain) > 0, (
            "a feature that changes from page to page was not learned: every page clicked what "
            "was in stock, and the model does not rank it higher"
        )

    def check_missing_values(self) -> None:
        if not get_tags(self.estimator).input_tags.allow_nan:
            return
        # Values of one feature are missing where another is low.
        first = self.log["f0"]
        with_gaps = self.log["f1"].where(first > first.median())
        log = self.log.assign(f1=with_gaps)
        # Missing depends on another feature, so that the mean of those left is not the mean of
        # all.
        fitted = self.fit(log, self.clicks)
        scores = fitted.predict(log)
        self.assert_finite(scores, "a log with missing values")
        order = np.random.default_rng(0).permutation(len(log))
        again = fitted.predict(log.iloc[order])
        assert_near(again, scores[order], "the order of rows changed scores", rtol=1e-4, atol=1e-6)

    def check_partial_fit(self) -> None:
        if not hasattr(self.estimator, "partial_fit"):
            return
        log = self.log
        clicks = self.clicks
        # Nothing was learned before: the first log is a whole fit.
        ranker = clone(self.estimator).partial_fit(log, clicks)
        scores = ranker.predict(log)
        expected = self.fitted.predict(log)
        assert_near(
            scores, expected, "the first partial_fit gave another model than fit", rtol=1e-6
        )
        # A fault in the middle of a sequence of logs must not cost what was learned before.
        with assert_raises(ValueError, msg="partial_fit took text as a feature"):
            ranker.partial_fit(log.assign(f0="text"), clicks)
        found = ranker.predict(log)
        assert_array_equal(found, scores, "a partial_fit that failed changed the model")
        again = ranker.partial_fit(log, clicks).predict(log)
        self.assert_finite(again, "a second partial_fit")

    def check_search(self) -> None:
        """Pipeline and GridSearchCV over queries, then serving."""
        pipeline = make_pipeline(OnFeatures(StandardScaler()), self.estimator)
        # An empty grid: one candidate, which passes splits, scorer and refit all the same.
        search = GridSearchCV(
            pipeline, {}, cv=QueryKFold(2), scoring=RankingScorer(k=3), error_score="raise"
        )
        search.fit(self.log, self.clicks)
        assert np.isfinite(search.best_score_), "GridSearchCV found no finite score"
        served = self.log[["qid", *feature_columns(self.log)]]
        scores = search.predict(served)
        assert scores.shape == (len(self.log),), "expected one score per row"

    def check_serving_frame(self) -> None:
        n_features = self.fitted.n_features_in_
        assert n_features == len(self.features), "role columns count as features"
        expected = self.fitted.predict(self.log)
        frame = self.log[["qid", *feature_columns(self.log)]]
        # At serving time roles are absent, or were never seen, and numbers may be shorter.
        unknown = frame.assign(position=99, user="unknown")
        for other in (frame, unknown, frame.astype({"f0": np.float32})):
            assert_near(
                self.fitted.predict(other),
                expected,
                "a frame without roles, or with unknown users and positions, has other scores",
                rtol=1e-4,
                atol=1e-6,
            )


class ClickModelContract(EstimatorContract):
    """What click models keep beside the contract of rankers."""

    features = ["f0", "f1"]
    roles = ["qid", "session", "doc", "position"]

    def make_log(self) -> tuple[pd.DataFrame, NDArray[np.int64]]:
        """Sessions from the top of each list; a click makes the next one less likely."""
        # Some 100 sessions per query: each of its orders comes up several times.
        log, rng = _shuffled_sessions(n_sessions=800, n_queries=8, least=0.2)
        log = log.sort_values(["session", "position"], ignore_index=True)
        relevance = log["f0"].to_numpy().reshape(-1, _WIDTH)
        # By rank and last click above: half as much examined right below a click.
        user = UBMUser([[0.6, 0.0, 0.0], [0.7, 0.35, 0.0], [0.49, 0.49, 0.245]])
        clicks = user.click(relevance, rng)
        return log, clicks.ravel().astype(np.int64)

    @cached_property
    def given(self) -> NDArray[Any]:
        """P(click) of the rows of the log, given the clicks above."""
        return self.fitted.predict_click(self.log, self.clicks)

    @cached_property
    def stated(self) -> NDArray[Any]:
        """P(click) of the first list before any click, by position."""
        return self.fitted.predict_click(self.log.iloc[:_WIDTH], conditional=False)

    def first_list_repeated(self, times: int) -> pd.DataFrame:
        """The first list of the log, in so many sessions."""
        # Copies with sessions of their own, as lists are told apart by them.
        lists = pd.concat([self.log.iloc[:_WIDTH]] * times, ignore_index=True)
        return lists.assign(session=np.repeat(np.arange(times), _WIDTH))

    def all_patterns(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """All ways to click the first list, and P(click) of its rows given the clicks above."""
        # 2^n patterns, sorted from all 0 to all 1, the first row slowest.
        patterns = np.array(list(itertools.product([0, 1], repeat=_WIDTH)))
        lists = self.first_list_repeated(len(patterns))
        given = self.fitted.predict_click(lists, patterns.ravel())
        return patterns, given.reshape(patterns.shape)

    def check_predict_click(self) -> None:
        for conditional in (True, False):
            found = self.fitted.predict_click(self.log, self.clicks, conditional=conditional)
            name = f"predict_click(conditional={conditional})"
            assert_probabilities(found, (len(self.log),), name)
        # The last row of each list was not shown.
        hidden = self.log["position"] == _WIDTH
        log = self.log.assign(position=self.log["position"].mask(hidden))
        found = self.fitted.predict_click(log, np.where(hidden, 0, self.clicks))[hidden]
        assert (found == 0).all(), "predict_click of a row that was not shown must be 0"

    def check_predict_click_by_list(self) -> None:
        order = np.random.default_rng(1).permutation(len(self.log))
        # Lists are padded to rectangles: neither the padding nor the order may matter.
        few = np.flatnonzero(self.log["session"] < 20)
        for conditional in (True, False):
            predict = partial(self.fitted.predict_click, conditional=conditional)
            expected = predict(self.log, self.clicks)
            for rows, what in ((order, "the order of rows"), (few, "the other lists")):
                found = predict(self.log.iloc[rows], self.clicks[rows])
                assert_near(
                    found, expected[rows], f"predict_click of a list depends on {what}", atol=1e-5
                )

    def check_clicks_below(self) -> None:
        _, given = self.all_patterns()
        for k in range(_WIDTH):
            # Patterns are sorted: those with the same clicks above follow each other.
            same = given[:, k].reshape(2**k, -1)
            told = f"P(click at position {k + 1} | clicks above) depends on clicks below"
            assert_near(same, np.broadcast_to(same[:, :1], same.shape), told, atol=1e-6)

    def check_first_row(self) -> None:
        # Both probabilities are P(click at 1): there is nothing to be given.
        first = (self.log["position"] == 1).to_numpy()
        before = self.fitted.predict_click(self.log, conditional=False)
        assert_near(
            self.given[first],
            before[first],
            "no click is above the first row, but conditional=True and False differ there",
            atol=1e-5,
        )

    def check_sum_over_clicks_above(self) -> None:
        # P(pattern) is a product over its rows. P(click) at a row adds the patterns with a click.
        patterns, given = self.all_patterns()
        probability = np.where(patterns, given, 1 - given).prod(axis=1)
        expected = probability @ patterns
        assert_near(
            self.stated,
            expected,
            "P(click) before any click is not the sum over all ways to click above",
            atol=_MARGINAL_ERROR,
        )

    def check_sample(self) -> None:
        # One list many times: rates by position estimate P(click) before any click.
        many = self.first_list_repeated(_N_DRAWS)
        drawn = self.fitted.sample(many, random_state=0)
        again = self.fitted.sample(many, random_state=0)
        assert np.isin(drawn, (0, 1)).all(), "sample must draw 0 or 1"
        assert_array_equal(drawn, again, "the same seed drew other clicks")
        rate = drawn.reshape(_N_DRAWS, _WIDTH).mean(axis=0)
        stated = self.stated
        # Of a rate, p (1 - p) / n; what is stated may be off by its own sampling, too.
        standard_error = np.sqrt(stated * (1 - stated) / _N_DRAWS)
        wrong = np.abs(rate - stated) > MAX_ERRORS * standard_error + _MARGINAL_ERROR / 2
        assert not wrong.any(), (
            f"sample clicks position {np.argmax(wrong) + 1} at the rate {rate[wrong].tolist()}, "
            f"but predict_click states {stated[wrong].tolist()}"
        )

    def check_score(self) -> None:
        position = self.log["position"].to_numpy()
        # Minus, because searches take the largest score for the best.
        expected = -perplexity_score(self.clicks, self.given, position=position)
        found = self.fitted.score(self.log, self.clicks)
        assert_near(
            found,
            expected,
            "score is not minus the perplexity of predict_click by position",
            rtol=1e-6,
        )

    def check_impressions_of_sessions(self) -> None:
        sessions = self.log.assign(click=self.clicks).groupby("session")
        # A session as its documents and clicks from the top: equal ones are one with a count.
        keys = sessions[["doc", "click"]].agg(tuple)
        times = keys.groupby(["doc", "click"])["doc"].transform("size")
        # One session of each kind, and how often it occurs.
        first = keys[~keys.duplicated()].index
        kept = self.log["session"].isin(first).to_numpy()
        table = self.log[kept]
        clicks = self.clicks[kept]
        counts = times.loc[table["session"]].to_numpy(dtype=float)
        by_column = self.fit(table.assign(impressions=counts), clicks)
        by_keyword = self.fit(table, clicks, impressions=counts)
        for name, found in (("column", by_column), ("keyword", by_keyword)):
            given = found.predict_click(self.log, self.clicks)
            told = f"sessions with impressions ({name}) are not repeated sessions"
            assert_near(given, self.given, told, atol=2e-3)

    def check_frames_and_arrays_of_lists(self) -> None:
        # The model is fitted once; frames differ in how they are read.
        for frame in _other_frames(self.log):
            found = self.fitted.predict_click(frame, self.clicks)
            assert_near(
                found, self.given, f"{type(frame)}: predict_click differs from pandas", atol=1e-6
            )
        array, roles = _arrays(self.log, self.features, self.roles)
        fitted = self.fit(array, self.clicks, **roles)
        found = fitted.predict_click(array, self.clicks, **roles)
        assert_near(
            found,
            self.given,
            "an array with keywords gave other click probabilities than the frame",
            atol=1e-5,
        )


class PropensityContract(ContractOfFit):
    """The contract of an estimator of examination."""

    fit_gives = "estimate"
    values = "propensities"
    is_exact = False
    features = ["f0", "f1"]
    roles = ["qid", "session", "doc", "position", "user"]

    def make_log(self) -> tuple[pd.DataFrame, NDArray[np.float64]]:
        """Sessions of two users, with an experiment column and an annotation."""
        log, rng = _shuffled_sessions(n_sessions=1_500, n_queries=12, least=0.3)
        # One user per session; both look alike, so that they may share a curve or not.
        user = rng.integers(2, size=len(log) // _WIDTH)
        log = log.assign(user=np.repeat(user, _WIDTH), arm=0.0, relevance=log["doc"] % 5)
        examination = log["position"].map({1: 1.0, 2: 0.5, 3: 0.25})
        # P(click) = relevance times examination, the position-based model.
        chance = log["f0"] * examination
        return log, (rng.random(len(log)) < chance).to_numpy(dtype=float)

    @cached_property
    def reference(self) -> pd.DataFrame:
        """The rows of the log."""
        return self.log

    def roles_read(self) -> list[str]:
        """Examination depends on who looks where."""
        return ["position", "user"]

    def assert_close(self, found: NDArray[Any], expected: NDArray[Any], message: str) -> None:
        """Equal up to the order of summation, and of the steps of a solver."""
        assert_near(found, expected, message, rtol=1e-3)

    def check_examination(self) -> None:
        table = getattr(self.fitted, "examination_", None)
        good = isinstance(table, pd.DataFrame) and "examination" in table
        assert good, "examination_ must be a DataFrame with a column 'examination'"
        assert "bias" in table.index.names, (
            f"examination_ is indexed by {[*table.index.names]}, expected 'bias' among the names"
        )
        # NaN says that a factor is not linked to the others, which none is here.
        known = table["examination"].dropna()
        assert len(known) > 0, "examination_ knows no bias factor, although all are linked"
        assert (known > 0).all(), "examination_ holds a number that is not positive"

    def check_predict(self) -> None:
        found = self.expected
        shape = getattr(found, "shape", type(found))
        assert shape == (len(self.log),), f"predict returned {shape} for {len(self.log)} rows"
        good = (found > 0) & (found <= 1)
        assert good.all(), f"predict returned {found[~good][0]}; expected numbers in (0, 1]"
        # A propensity is that of its row, not one relative to the rows beside it.
        some = np.random.default_rng(2).choice(len(found), size=20, replace=False)
        alone = self.fitted.predict(self.log.iloc[some])
        assert_near(
            alone, found[some], "the propensity of a row depends on the other rows", rtol=1e-5
        )
        # Sessions that the fit never saw, and a label that no row had.
        other = self.log.assign(session=self.log["session"] + 7, relevance=9)
        assert_near(
            self.fitted.predict(other), found, "predict reads 'session' or 'relevance'", rtol=1e-5
        )

    def check_rows_that_were_not_shown(self) -> None:
        # One more candidate for the sessions of every other query.
        is_first_row = ~self.log["session"].duplicated()
        # If such a row counted as shown, examination of these queries would fall.
        hidden = self.log[is_first_row & (self.log["qid"] % 2 == 0)]
        hidden = hidden.assign(doc=hidden["qid"] + 1_000, position=np.nan, f0=0.5, f1=1.0)
        both = pd.concat([self.log, hidden], ignore_index=True)
        clicks = np.append(self.clicks, np.zeros(len(hidden)))
        fitted = self.fit(both, clicks)
        self.assert_same(fitted.predict(self.log), "rows that were not shown changed the estimate")
        propensity = fitted.predict(both)[len(self.log) :]
        assert (propensity == 0).all(), "the propensity of a row that was not shown must be 0"

    def check_unknown_position(self) -> None:
        # Either is an answer; a propensity of 0, or above 1, would be divided by in silence.
        try:
            found = self.fitted.predict(self.log[:3].assign(position=99.0))
        except ValueError:
            return
        good = (found > 0) & (found <= 1)
        assert good.all(), (
            "a position that the training log did not show must raise a ValueError or get a "
            f"propensity in (0, 1], not {found[~good][0]}"
        )

    def check_impressions(self) -> None:
        """One session per distinct list and user, with impressions and click rates."""
        # Sessions of equal lists have equal positions in the order of the documents.
        positions = self.log.groupby("session")["position"]
        # The hash names the order; sessions of one query, user and order are one list.
        order = positions.transform(lambda place: hash(tuple(place)))
        log = self.log.assign(order=order, click=self.clicks, impressions=1.0)
        log["session"] = log.groupby(["qid", "user", "order"]).ngroup()
        added = {"click": "mean", "impressions": "sum"}
        kept = dict.fromkeys(self.log.columns.drop(["session", "doc"]), "first")
        table = log.groupby(["session", "doc"], as_index=False).agg(kept | added)
        self.assert_aggregated(table, table.pop("click").to_numpy())

    def check_serves_a_ranker(self) -> None:
        # A column that nobody reads would be a feature.
        log = self.log.drop(columns=sorted({"arm"} - self.columns_read))
        ranker = IPSRanker(propensity=self.estimator, estimator=Ridge())
        scores = ranker.fit(log, self.clicks).predict(log)
        assert 0 < np.ptp(scores) < np.inf, (
            "an IPSRanker with these propensities scores all documents alike, or infinitely"
        )


def _shuffled_sessions(
    n_sessions: int, n_queries: int, least: float
) -> tuple[pd.DataFrame, np.random.Generator]:
    """Sessions that show the three documents of a query in random order; f0 is relevance."""
    rng = np.random.default_rng(0)
    # A query per session, and a random order of its documents: sorted random numbers.
    query = np.repeat(rng.integers(n_queries, size=n_sessions), _WIDTH)
    place = np.argsort(rng.random((n_sessions, _WIDTH)), axis=1).ravel()
    doc = query * _WIDTH + np.tile(np.arange(_WIDTH), n_sessions)
    # From a least number on, as documents without clicks tell nothing of examination.
    relevance = rng.uniform(least, 0.9, n_queries * _WIDTH)
    noise = rng.lognormal(sigma=2.0, size=len(relevance))
    log = pd.DataFrame(
        {
            # Ids with gaps: no check may pass because ids are row numbers.
            "qid": query * 3,
            "session": np.repeat(np.arange(n_sessions), _WIDTH),
            "doc": doc,
            "position": place + 1.0,
            "f0": relevance[doc],
            "f1": noise[doc],
        }
    )
    return log, rng


def _relabelled(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with ids of text, in an order unrelated to the old one."""

    def text(number):
        # Two primes: the remainders are distinct, and in another order.
        return f"{(number * 7919) % 100_003}-é"

    ids = [role for role in ("qid", "session", "doc") if role in frame]
    return frame.assign(**{role: frame[role].map(text) for role in ids})


def _arrays(
    frame: pd.DataFrame, features: list[str], roles: list[str]
) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
    """The features of a frame, and its roles as keywords."""
    keywords = {role: frame[role].to_numpy() for role in roles}
    return frame[features].to_numpy(), keywords


def _other_frames(frame: pd.DataFrame) -> list[Any]:
    """The frame in PyArrow, and in Polars if that is installed."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    try:
        import polars as pl
    except ImportError:
        return [table]
    return [table, pl.from_arrow(table)]
