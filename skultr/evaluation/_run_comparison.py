"""Rankers compared on simulated logs of many worlds: one runner that resumes where it stopped."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.pipeline import Pipeline
from sklearn.utils.parallel import Parallel, delayed

from .._base._progress import progress, working
from .._base._sklearn import Interval, seeded_clone, validate_params
from .._base._typing import Bools, Estimator, Floats, Frame
from .._log._aggregate import aggregate_clicks
from .._log._roles import as_pandas, column_names, is_frame
from ..metrics._ranking import ndcg_score
from ..model_selection import train_test_queries
from ..simulation._generate import simulate_clicks
from ..simulation._policies import DeterministicPolicy, Policy, production_scores
from ..simulation._users import PositionBasedUser, User, checked_instance
from ._comparison_file import ComparisonFile
from ._comparison_table import CELL, PRODUCTION, ComparisonTable

#: Documents of all queries, or those of the log and those of the test.
Documents: TypeAlias = "Frame | tuple[Frame, Frame]"
#: Scores of the ranker that serves, or a function of training documents, candidates and seed.
Production: TypeAlias = "Callable[[pd.DataFrame, pd.DataFrame, int], ArrayLike] | ArrayLike | None"

#: Parameters of `simulate_clicks` that are the same in all logs and that the design leaves free.
_SIMULATED = ("noise", "max_grade", "gain", "query_weights", "candidates")
#: Columns of a log that are about its sessions, and that rankers read only where told to.
_NO_FEATURES = ("arm", "context")


@validate_params(
    {
        "rankers": [Mapping],
        "users": [Mapping, None],
        "production": [Mapping, None],
        "seeds": [Interval(Integral, 1, None, closed="left"), "array-like", range],
        "n_sessions": [Interval(Integral, 1, None, closed="left")],
        "n_positions": [Interval(Integral, 1, None, closed="left")],
        "test_size": [
            Interval(Real, 0, 1, closed="neither"),
            Interval(Integral, 1, None, closed="left"),
        ],
        "k": [Interval(Integral, 1, None, closed="left")],
        "aggregate": ["boolean"],
        "path": [str, os.PathLike, None],
        "n_jobs": [Integral, None],
    },
    prefer_skip_nested_validation=True,
)
def run_comparison(
    documents: Documents | Callable[[int], Documents],
    rankers: Mapping[str, Estimator],
    *,
    users: Mapping[str, User] | None = None,
    production: Mapping[str, Production] | None = None,
    seeds: int | Iterable[int] = 5,
    n_sessions: int = 20_000,
    n_positions: int = 10,
    policy: Policy | None = None,
    test_size: float = 0.3,
    k: int = 10,
    aggregate: bool = False,
    path: str | os.PathLike[str] | None = None,
    n_jobs: int | None = None,
    **simulate_params: Any,
) -> ComparisonTable:
    """Compare rankers on simulated logs, one per seed, user and production ranker.

    Each log is simulated on training queries. Every method is fitted to the same log, and ranks
    the same test queries, whose labels judge it by nDCG. So methods are compared in pairs: what
    differs between logs does not count.

    Parameters
    ----------
    documents : frame, pair of frames or callable
        One row per query-document pair, with the roles ``qid``, ``doc`` and ``relevance``, and
        the features. A pair ``(train, test)`` is a split that is given. A function of the seed
        returns either of both, such as ``lambda seed: make_ltr(400, random_state=seed)``; it is
        called for each log.
    rankers : dict of str to ranker
        Methods that are not fitted: rankers, pipelines, searches, anything that scikit-learn can
        clone, with ``fit(X, y)`` and ``predict(X)``. X of ``fit`` is the log, one row per
        impression, y its clicks. A ``random_state`` that is None becomes the seed of the log.
    users : dict of str to User, default=None
        By default one ``PositionBasedUser()``.
    production : dict of str to callable, array-like or None, default=None
        Rankers that serve. A function ``production(train, candidates, seed)`` returns the scores
        of the candidates, which are the training documents and, behind them, those of the test:
        it may learn from the labels of the first. An array has a score for each row of
        ``documents``. None is the column ``production`` of the documents, or without it
        ``production_scores(train, candidates=candidates, random_state=seed)``: the default.
    seeds : int or iterable of int, default=5
        Number of seeds (0, 1, ...), or the seeds. A seed draws the test queries, the production
        ranker and the log, and is the ``random_state`` of the rankers.
    n_sessions : int, default=20_000
        Sessions of each log.
    n_positions : int, default=10
        Documents that a session shows.
    policy : Policy, default=None
        Of all logs; by default ``DeterministicPolicy()``.
    test_size : float or int, default=0.3
        Share or number of the queries that are test queries. Not used where the split is given.
    k : int, default=10
        Ranks that count.
    aggregate : bool, default=False
        Whether rankers get the distinct lists with click rates and ``impressions``
        (:func:`~skultr.aggregate_clicks`), which takes a fraction of the memory. Rankers of skultr
        learn the same; click models that look at the other clicks of a page, and rankers of other
        libraries, which take each row for one impression, need the impressions.
    path : str or path-like, default=None
        File that gets each finished cell at once, as a line of JSON. A call with the same
        settings runs only what the file lacks: it goes on after a stop, and adds seeds, users,
        production rankers and methods. Cells that failed are tried again.
    n_jobs : int, default=None
        Logs that are worked on at a time, in processes of joblib.
    **simulate_params : dict
        ``noise``, ``max_grade``, ``gain``, ``query_weights`` (by query id) or ``candidates`` of
        :func:`~skultr.simulation.simulate_clicks`, the same in all logs.

    Returns
    -------
    comparison : ComparisonTable
        Its ``cells_`` has one row for each log and method, with ``"production"`` among the
        methods; ``table`` and ``plot`` show means and paired differences.

    Raises
    ------
    ValueError
        If a mapping is empty or has names that are no text, a ranker is called "production", a
        role is missing or invalid, scores do not fit the documents, or the file at ``path`` holds
        a comparison with other settings, or something else.
    TypeError
        If a user or the policy is of another class, or a parameter is unknown.

    Notes
    -----
    *Two numbers.* ``ndcg`` ranks all candidates of the test queries. ``ndcg_shown`` ranks anew
    the ``n_positions`` documents that production has at the top: the log says most of them, and
    what a method wins or loses there is what users of production would see first. A method may be
    ahead in one and behind in the other.

    *Failures.* An error in ``fit`` or ``predict`` is a row with the text of the error, and NaN.
    Other errors (of documents, users, production) end the run; what was finished is in the file.

    *The file* also keeps the settings: parameters of rankers, users and policies, a checksum of
    the documents, the code of functions with the values that they close over, and the release of
    skultr. If one differs, the call is an error that names it.

    *Columns.* The log has the column ``production``, which :class:`~skultr.EnsembleRanker`
    reads, but for rankers of skultr that correct clicks without it; and ``relevance``, which no
    ranker of skultr reads; yours must not, unless it is a skyline. ``context`` and ``arm`` are
    left out, unless a parameter ``bias`` of the ranker names them.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from skultr.datasets import make_ltr
    >>> from skultr.evaluation import run_comparison
    >>> from skultr.rankers import IPSRanker, NaiveRanker
    >>> from skultr.simulation import PositionBasedUser, TrustBiasUser
    >>> comparison = run_comparison(
    ...     make_ltr(60, n_features=5, random_state=0),
    ...     {"naive": NaiveRanker(estimator=Ridge()), "IPS": IPSRanker(estimator=Ridge())},
    ...     users={"position-based": PositionBasedUser(), "trust": TrustBiasUser()},
    ...     seeds=2,
    ...     n_sessions=500,
    ... )
    >>> comparison.cells_.shape
    (12, 10)
    >>> table = comparison.table(baseline="naive")
    >>> table[["method", "n_pairs"]]
           method  n_pairs
    0  production        4
    1       naive        4
    2         IPS        4
    """
    design = _Design(
        documents=documents if callable(documents) else _read_documents(documents),
        rankers=_named("rankers", rankers),
        users=_named("users", users or {"position-based": PositionBasedUser()}),
        production=_named("production", production or {"default": None}),
        seeds=_seeds(seeds),
        n_sessions=n_sessions,
        n_positions=n_positions,
        policy=checked_instance("policy", policy, Policy, DeterministicPolicy()),
        test_size=test_size,
        k=k,
        aggregate=aggregate,
        simulate_params=_simulated(simulate_params),
    )
    file = ComparisonFile(path)
    # Cells of an earlier call, and of this one as they come.
    done = file.open(design.settings())
    with working("run_comparison"):
        left = list(design.left(done))
        pool = Parallel(n_jobs=n_jobs, return_as="generator_unordered")
        found = pool(delayed(_run_log)(design, log, methods, file) for log, methods in left)
        for rows in progress(found, "log", len(left)):
            done |= {_key(row): row for row in rows}
    cells = pd.DataFrame([done[key] for log in design.logs() for key in design.keys_of(log)])
    return ComparisonTable(cells, k=k, n_positions=n_positions)


# What was asked for -------------------------------------------------------------------
class _LogName(NamedTuple):
    """What a log is called in the table."""

    seed: int
    user: str
    production: str


@dataclass(frozen=True)
class _Design:
    """The arguments of `run_comparison`, checked."""

    documents: Any
    rankers: Mapping[str, Any]
    users: Mapping[str, User]
    production: Mapping[str, Any]
    seeds: tuple[int, ...]
    n_sessions: int
    n_positions: int
    policy: Policy
    test_size: float
    k: int
    aggregate: bool
    simulate_params: Mapping[str, Any]

    def __post_init__(self) -> None:
        if PRODUCTION in self.rankers:
            raise ValueError(
                f"A ranker is called {PRODUCTION!r}, which is the name of the ranker that served "
                "the log; it is in the table without being asked for. Choose another name."
            )
        for name, user in self.users.items():
            checked_instance(f"users[{name!r}]", user, User, user)

    def settings(self) -> dict[str, Any]:
        """All that decides about the numbers of a cell, by name."""
        settings = dict(vars(self))
        del settings["seeds"]  # each is part of the key of its cells
        return settings | settings.pop("simulate_params")

    def logs(self) -> Iterator[_LogName]:
        """Names of all logs."""
        for seed in self.seeds:
            for user in self.users:
                for production in self.production:
                    yield _LogName(seed, user, production)

    def keys_of(self, log: _LogName) -> list[tuple[Any, ...]]:
        """Keys of the cells of a log."""
        return [(*log, method) for method in (PRODUCTION, *self.rankers)]

    def left(self, done: Mapping[tuple[Any, ...], Any]) -> Iterator[tuple[_LogName, list[str]]]:
        """Logs with methods that have no row, or one of a failure, and these methods."""
        for log in self.logs():
            open_ = [key for key in self.keys_of(log) if key not in done or done[key]["error"]]
            if open_:
                yield log, [method for *_, method in open_]

    def parts(self, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Documents of the log and of the test, indexed by their row in what was given."""
        given = self.documents
        if callable(given):
            given = _read_documents(given(seed))
        if isinstance(given, tuple):
            train, test = given
            return train, test.set_index(test.index + len(train))
        train, test = train_test_queries(given, test_size=self.test_size, random_state=seed)
        return train, test


def _named(what, given):
    """A mapping that has a text as the name of each value."""
    if not given or not all(isinstance(name, str) for name in given):
        raise ValueError(
            f"{what} has the names {list(given)}; expected at least one, each of them text."
        )
    return dict(given)


def _seeds(given):
    """Seeds that are whole numbers, each of them once."""
    values = list(range(given)) if isinstance(given, Integral) else list(given)
    whole = all(isinstance(value, Integral) and 0 <= value < 2**32 for value in values)
    if not values or not whole or len({*values}) < len(values):
        raise ValueError(
            f"seeds is {given!r}; expected a number of seeds, or different whole numbers from 0."
        )
    return tuple(map(int, values))


def _simulated(given):
    unknown = [name for name in given if name not in _SIMULATED]
    if unknown:
        raise TypeError(
            f"run_comparison got the parameters {unknown}; expected those of its signature, and "
            f"of simulate_clicks {', '.join(_SIMULATED)}."
        )
    return dict(given)


def _read_documents(given):
    """A frame of pandas, or a pair of them, of whatever frames were given."""
    if isinstance(given, tuple) and len(given) == 2 and all(map(is_frame, given)):
        return tuple(_as_pandas(part) for part in given)
    if not is_frame(given):
        raise ValueError(
            f"documents is {type(given).__name__}; expected a frame with the roles 'qid', 'doc' "
            "and 'relevance', a pair (train, test) of frames, or a function of the seed that "
            "returns one of both."
        )
    return _as_pandas(given)


def _as_pandas(documents):
    absent = {"qid", "doc", "relevance"} - {*column_names(documents)}
    if absent:
        raise ValueError(
            f"documents has no column {' and no column '.join(map(repr, sorted(absent)))}; "
            "expected the roles 'qid', 'doc' and 'relevance' beside the features, one row per "
            "query-document pair. Rename the columns that hold them."
        )
    return as_pandas(documents, column_names(documents))


# Running ------------------------------------------------------------------------------
def _key(row):
    return tuple(row[name] for name in CELL)


def _run_log(design, log, methods, file):
    """Rows of some methods on one log; each is in the file as soon as it is there."""
    world = _World(design, log)
    rows = []
    for method in progress(methods, "method", alike=False):
        row = {**log._asdict(), "method": method, **world.measure(method)}
        file.add(row)
        rows.append(row)
    return rows


class _World:
    """A log of training queries, and the candidates of test queries with their labels."""

    def __init__(self, design: _Design, log: _LogName) -> None:
        train, test = design.parts(log.seed)
        scores = _production(design.production[log.production], train, test, log)
        # Where several rankers share the traffic, a document counts by the mean of their scores.
        served = scores if scores.ndim == 1 else scores.mean(axis=1)
        n_train = len(train)
        self.design = design
        self.seed = log.seed
        train = train.assign(production=served[:n_train])
        X, clicks, _ = simulate_clicks(
            train,
            n_sessions=design.n_sessions,
            n_positions=design.n_positions,
            policy=design.policy,
            scores=scores[:n_train],
            user=design.users[log.user],
            features=not design.aggregate,
            random_state=log.seed,
            **design.simulate_params,
        )
        # Counts by document and position in place of pages.
        if design.aggregate:
            X, clicks = aggregate_clicks(X.assign(click=clicks), train)
        self.X = X
        self.clicks = clicks
        self.relevance = test["relevance"].to_numpy()
        self.candidates = test.drop(columns="relevance").assign(production=served[n_train:])
        self.shown = _first(self.candidates, design.n_positions)

    def measure(self, method: str) -> dict[str, Any]:
        """Quality of a method, seconds of its fit, and what was warned of or failed."""
        row = {"ndcg": np.nan, "ndcg_shown": np.nan, "fit_seconds": 0.0}
        error = ""
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            # One method that fails must not end the study of the others.
            try:
                row |= self._quality(method)
            except Exception as failure:
                # Messages may be pages long; their beginning says what failed.
                error = f"{type(failure).__name__}: {failure}"[:300]
        told = {(each.category.__name__, str(each.message)) for each in raised}
        types = ", ".join(sorted({category for category, _ in told}))
        return row | {"warnings": len(told), "warning_types": types, "error": error}

    def _quality(self, method):
        if method == PRODUCTION:
            scores = self.candidates["production"].to_numpy()
            seconds = 0.0
        else:
            ranker = seeded_clone(self.design.rankers[method], self.seed)
            log = self.X.drop(columns=_not_read(ranker, self.X))
            # The clock runs for the fit alone.
            start = time.perf_counter()
            ranker.fit(log, self.clicks)
            seconds = time.perf_counter() - start
            scores = np.asarray(ranker.predict(self.candidates))
        return {
            "ndcg": self._ndcg(scores, np.ones(len(scores), dtype=bool)),
            "ndcg_shown": self._ndcg(scores, self.shown),
            "fit_seconds": seconds,
        }

    def _ndcg(self, scores: Floats, among: Bools) -> float:
        query = self.candidates["qid"].to_numpy()[among]
        return float(ndcg_score(self.relevance[among], scores[among], qid=query, k=self.design.k))


def _production(given, train, test, log):
    """Scores of the ranker that serves, for the training documents and those of the test."""
    both = pd.concat([train, test])
    if callable(given):
        scores = given(train.reset_index(drop=True), both.reset_index(drop=True), log.seed)
    elif given is not None:
        scores = np.asarray(given)
        if len(scores) == len(both):
            scores = scores[both.index]
    elif PRODUCTION in both:
        scores = both[PRODUCTION]
    else:
        scores = production_scores(train, candidates=both, random_state=log.seed)
    scores = np.asarray(scores, dtype=float)
    n_wrong = (~np.isfinite(scores)).sum()
    if len(scores) != len(both) or n_wrong:
        raise ValueError(
            f"production[{log.production!r}] has the shape {scores.shape} with {n_wrong} missing "
            f"or infinite values; expected one finite score for each of the {len(both)} rows of "
            "documents, or a function (train, candidates, seed) that returns one for each "
            "candidate."
        )
    return scores


def _first(candidates, n_positions):
    """Whether production has a candidate among its first so many of the query."""
    ordered = candidates.reset_index(drop=True)
    ordered = ordered.sort_values(PRODUCTION, ascending=False, kind="stable")
    # Place of each candidate in the order of production.
    place = ordered.groupby("qid", sort=False).cumcount()
    return (place.sort_index() < n_positions).to_numpy()


def _not_read(ranker, log):
    """Columns of the sessions that a ranker would not read.

    Those that no parameter ``bias`` of it or its parts names, and the score of production for
    rankers of skultr that correct without it: they would warn of it on each log.
    """
    # The ranker itself, behind preprocessing.
    last = ranker[-1] if isinstance(ranker, Pipeline) else ranker
    named = set()
    for name, value in ranker.get_params().items():
        if name.rpartition("__")[2] != "bias":
            continue
        # Of other libraries, it may be True.
        if isinstance(value, str):
            named.add(value)
        elif isinstance(value, list | tuple):
            # Several columns make up the bias factor.
            named.update(value)
    unread = [name for name in _NO_FEATURES if name in log and name not in named]
    if getattr(last, "_corrects", False):
        unread.append(PRODUCTION)
    return unread
