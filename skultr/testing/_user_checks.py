"""What a contract is: a class of checks, each run on an instance of its own; that of a user."""

from __future__ import annotations

import inspect
import pickle
import warnings
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from .._base._shared_text import with_shared_text
from ..exceptions import (
    AssumptionWarning,
    ClickDataWarning,
    MissingRoleWarning,
    NotIdentifiableWarning,
)
from ..simulation import PlackettLucePolicy, User, simulate_clicks

Check = tuple[str, Callable[[], None]]

#: Pages that are shown.
_N_PAGES = 6
#: How often each is shown, for click rates with a standard error of at most .005.
_N_REPEATS = 10_000
#: Standard errors between a click rate and its probability, at most.
MAX_ERRORS = 5
#: Positional arguments of the methods of a user.
_SIGNATURES = {
    "examination_at": ("n_positions",),
    "examination_table": ("n_positions",),
    "truth_at": ("n_positions",),
    "document_truth": ("relevance_probability",),
    "read_grades": ("grade",),
    "draw_contexts": ("shown", "rng"),
    "draw_query_weights": ("query_weights", "rng"),
    "click_probability": ("relevance_probability",),
    "click": ("relevance_probability", "rng"),
}


#: The logs of the checks are small, and some are aggregated; estimators may warn about that.
_ALLOWED = (AssumptionWarning, ClickDataWarning, MissingRoleWarning, NotIdentifiableWarning)


describes_a_check = with_shared_text(
    generate_only="""\
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
    By the first check that fails; its name is in the traceback."""
)


@describes_a_check
def check_user(
    user: User, *, n_positions: int = 5, generate_only: bool = False
) -> list[Check] | None:
    """Check that a user keeps the contract of :class:`skultr.simulation.User`.

    Parameters
    ----------
    user : User
    n_positions : int, default=5
        Length of the longest pages. Pass less for a user whose curve is known for fewer
        positions.
    {generate_only}

    Notes
    -----
    - The user derives from ``User``, and its methods can be called as documented there.
    - ``examination_at`` and ``examination_table`` return probabilities of the documented shapes.
    - ``click_probability`` returns probabilities. Those of a session depend on no other session,
      and not on the empty places behind the end of a shorter page.
    - ``click`` returns booleans, the same for the same ``rng``, and its click rates agree with
      ``click_probability``: within 5 standard errors over 10,000 sessions of each of 6 pages. A
      probability that is wrong by 0.03 is found; a correct user fails with probability 2e-5.
    - Neither changes the arrays that it gets.
    - Contexts, query weights, grades and entries of the truth have the documented shapes.
    - :func:`skultr.simulation.simulate_clicks` gives the same log for the same ``random_state``,
      and no click on a candidate that was not shown.
    - ``pickle`` keeps the user.

    Examples
    --------
    >>> from skultr.simulation import DBNUser
    >>> from skultr.testing import check_user
    >>> check_user(DBNUser(continuation=0.8))
    """
    return run_all(UserContract.checks(user, n_positions), generate_only)


class Contract:
    """Its methods ``check_...`` fail with an AssertionError."""

    @classmethod
    def checks(cls, *subject: Any, but: tuple[str, ...] = ()) -> list[Check]:
        """The checks of one subject as (name, callable) pairs, those of base classes first."""
        # From the root of the classes on: what is shared comes first, and its failures explain
        # others.
        names = []
        for base in reversed(cls.__mro__):
            names += [name for name in vars(base) if name.startswith("check_")]
        # A check that a subclass writes anew stands where it was.
        wanted = [name for name in dict.fromkeys(names) if name not in but]
        return [(name, partial(cls._run, name, *subject)) for name in wanted]

    @classmethod
    def _run(cls, name, *subject):
        with warnings.catch_warnings():
            # All other warnings stay errors where the caller's filters say so.
            for category in _ALLOWED:
                warnings.simplefilter("ignore", category)
            # An instance of its own, so that no check sees what another one changed or cached.
            contract = cls(*subject)
            getattr(contract, name)()


def run_all(checks: list[Check], generate_only: bool) -> list[Check] | None:
    """Run the checks, or return them."""
    if generate_only:
        return checks
    for _, check in checks:
        check()
    return None


def assert_near(
    found: NDArray[Any], expected: NDArray[Any], message: str, **tolerance: Any
) -> None:
    """Equal up to a tolerance as of ``numpy.testing.assert_allclose``."""
    assert_allclose(found, expected, err_msg=message, **tolerance)


def assert_probabilities(values: Any, shape: tuple[int, ...], name: str) -> None:
    """An array of numbers from 0 to 1."""
    assert isinstance(values, np.ndarray), f"{name} returned {type(values).__name__}, not an array"
    assert values.shape == shape, f"{name} returned the shape {values.shape}, expected {shape}"
    assert values.dtype.kind == "f", f"{name} returned {values.dtype}, expected floats"
    # NaN is neither, and is found here, too.
    good = (values >= 0) & (values <= 1)
    assert good.all(), f"{name} returned {values[~good].flat[0]}, which is no probability"


class UserContract(Contract):
    """The contract of :class:`skultr.simulation.User`."""

    def __init__(self, user: User, n_positions: int) -> None:
        self.user = user
        self.n_positions = n_positions
        #: Places of the last two pages, which are shorter.
        self.n_short = (n_positions + 1) // 2
        # All pages are full but the last two, which end half way.
        self.shown = np.ones((_N_PAGES, n_positions), dtype=bool)
        self.shown[-2:, self.n_short :] = False

    @cached_property
    def pages(self) -> tuple[NDArray[Any], ...]:
        """Arguments of ``click``: pages, the user of each and the context of each place."""
        user = self.user
        rng = np.random.default_rng(0)
        # Grades are drawn for all places, and -1 marks the empty ones.
        grade = np.where(self.shown, rng.integers(2, size=self.shown.shape), -1)
        given = [self._judged(grade)]
        if user.user_weights is not None:
            given.append(rng.integers(len(user.user_weights), size=len(grade)))
        if user.context_vectors is not None:
            given.append(rng.integers(len(user.context_vectors), size=grade.shape))
        return tuple(given)

    def _judged(self, grade):
        """What the user judges pages of these grades by; an empty place is 0, or negative."""
        read = self.user.read_grades(grade[self.shown].astype(float))
        empty = -1
        if read is None:
            # The user reads no grades: probabilities of relevance, higher for better grades.
            # Never 0, so that each place can be clicked, and a user who mixes up places is found.
            spread = np.random.default_rng(3).uniform(0.2, 1.0, grade.shape)
            relevance = (0.1 + 0.9 * grade) * spread
            read = relevance[self.shown]
            empty = -1.0 if self.user.marks_empty else 0.0
        # Of the type of the mark: an integer where the user reads grades, else a float.
        judged = np.full(grade.shape, empty)
        judged[self.shown] = read
        return judged

    @cached_property
    def stated(self) -> NDArray[Any]:
        """P(click) of the pages."""
        return self.user.click_probability(*self.pages)

    def check_signatures(self) -> None:
        user = self.user
        assert isinstance(user, User), (
            f"{type(user).__name__} is no skultr.simulation.User: derive the class from User"
        )
        about = []
        if user.user_weights is not None:
            about.append("user")
        if user.context_vectors is not None:
            about.append("context")
        for name, arguments in _SIGNATURES.items():
            given = [*arguments]
            if name in ("click_probability", "click"):
                given += about
            signature = inspect.signature(getattr(user, name))
            try:
                # Nothing is called: a method that fails for another reason is another check's
                # business.
                signature.bind(*given)
            except TypeError as error:
                raise AssertionError(
                    f"{name}{signature} cannot be called as {name}({', '.join(given)}): {error}"
                ) from None

    def check_examination(self) -> None:
        # The curve by position, P(examined) of a page without clicks.
        curve = self.user.examination_at(self.n_positions)
        assert_probabilities(curve, (self.n_positions,), "examination_at")

    def check_grades(self) -> None:
        # Both grades twice: a reader that drops repeated grades gives another shape.
        read = self.user.read_grades(np.array([0.0, 1.0, 1.0, 0.0]))
        if read is not None:
            shape = np.shape(read)
            assert shape == (4,), f"read_grades returned the shape {shape} for 4 documents"
            assert (np.asarray(read) >= 0).all(), (
                "read_grades returned -1, the mark of an empty place"
            )

    def check_click_probability(self) -> None:
        # Empty places are no documents: nothing is said of P(click) there.
        kept = self.pages[0].copy()
        probability = np.where(self.shown, self.stated, 0.0)
        assert_array_equal(self.pages[0], kept, "click_probability changed its argument")
        assert_probabilities(probability, self.shown.shape, "click_probability")
        # A session is a row: the others may stand anywhere.
        order = np.random.default_rng(2).permutation(_N_PAGES)
        shuffled = [values[order] for values in self.pages]
        assert_near(
            self.user.click_probability(*shuffled),
            self.stated[order],
            "click_probability of a session depends on the other sessions",
        )

    def check_shorter_pages(self) -> None:
        # The shorter pages, with empty places and without; users have one value per page.
        last = [values[-2:] for values in self.pages]
        short = [values[:, : self.n_short] if values.ndim == 2 else values for values in last]
        assert_near(
            self.user.click_probability(*last)[:, : self.n_short],
            self.user.click_probability(*short),
            (
                "empty places behind the end of a page change P(click) above them; set "
                "marks_empty = True on the class and pass over places below 0"
            ),
        )

    def _click(self, pages, *about):
        return self.user.click(pages, np.random.default_rng(0), *about)

    def check_clicks(self) -> None:
        pages = self.pages[0]
        kept = pages.copy()
        # _click seeds its own generator, so that a second call must give the same.
        clicks = self._click(*self.pages)
        assert_array_equal(pages, kept, "click changed its argument")
        shape = clicks.shape
        assert shape == pages.shape, f"click returned the shape {shape}, expected {pages.shape}"
        assert clicks.dtype == bool, f"click returned {clicks.dtype}, expected bool"
        assert_array_equal(clicks, self._click(*self.pages), "the same rng gave other clicks")

    def check_click_rates(self) -> None:
        # Each page in many sessions, one behind the other: the mean over them estimates P(click).
        many = [np.repeat(values, _N_REPEATS, axis=0) for values in self.pages]
        clicks = self._click(*many)
        rate = clicks.reshape(_N_PAGES, _N_REPEATS, -1).mean(axis=1)
        # p (1 - p) of a Bernoulli draw; below 0 where p is no probability, which another check
        # tells.
        variance = np.maximum(self.stated * (1 - self.stated), 0.0)
        error = np.sqrt(variance / _N_REPEATS)
        # A probability of 0 or 1 has no error but rounding.
        too_far = np.abs(rate - self.stated) > MAX_ERRORS * error + 1e-12
        wrong = too_far & self.shown
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0])
            raise AssertionError(
                f"position {at[1] + 1} of a page was clicked in {rate[at]:.4f} of "
                f"{_N_REPEATS} sessions, but click_probability states {self.stated[at]:.4f} "
                f"(standard error {error[at]:.4f})"
            )

    def check_contexts(self) -> None:
        vectors = self.user.context_vectors
        if vectors is None:
            return
        assert vectors.ndim == 2, f"context_vectors has the shape {vectors.shape}, expected 2 axes"
        # One curve for each context, and a context for each place.
        table = self.user.examination_table(self.n_positions)
        assert_probabilities(table, (len(vectors), self.n_positions), "examination_table")
        # 20 pages without a document that is there twice.
        shown = np.arange(20 * self.n_positions).reshape(20, -1)
        drawn = self.user.draw_contexts(shown, np.random.default_rng(0))
        assert drawn.shape == shown.shape, (
            f"draw_contexts returned the shape {drawn.shape}, expected {shown.shape}"
        )
        inside = (drawn >= 0) & (drawn < len(vectors))
        good = drawn.dtype.kind in "iu" and inside.all()
        assert good, f"draw_contexts must return rows of context_vectors, 0 to {len(vectors) - 1}"

    def check_several_users(self) -> None:
        if self.user.user_weights is None:
            return
        weights = np.asarray(self.user.user_weights)
        assert_probabilities(weights, (len(weights),), "user_weights")
        assert_near(weights.sum(), 1, "user_weights do not sum to 1")
        # One curve for each user, and the share of each user in every query.
        table = self.user.examination_table(self.n_positions)
        assert_probabilities(table, (len(weights), self.n_positions), "examination_table")
        # Eight queries that are asked alike.
        drawn = self.user.draw_query_weights(np.full(8, 1 / 8), np.random.default_rng(0))
        assert_probabilities(drawn, (len(weights), 8), "draw_query_weights")
        assert_near(drawn.sum(axis=1), 1, "rows of draw_query_weights do not sum to 1")

    def check_truth(self) -> None:
        # Seven documents: the number differs from that of positions, so that no mix-up passes.
        doc_truth = self.user.document_truth(np.linspace(0.1, 1.0, 7))
        position_truth = self.user.truth_at(self.n_positions)
        for name, found in (("truth_at", position_truth), ("document_truth", doc_truth)):
            good = hasattr(found, "keys") and all(isinstance(key, str) for key in found)
            assert good, f"{name} must return a mapping of names to values, got {found!r}"
        for key, values in doc_truth.items():
            shape = np.shape(values)
            assert shape == (7,), f"document_truth[{key!r}] has the shape {shape} for 7 documents"

    def check_simulation(self) -> None:
        rng = np.random.default_rng(1)
        # Queries of 3 to 8 candidates: some fill no page, and some have more than a page shows.
        qid = np.repeat(np.arange(10), rng.integers(3, 9, size=10))
        relevance = rng.integers(2, size=len(qid))
        documents = pd.DataFrame({"qid": qid, "doc": np.arange(len(qid)), "relevance": relevance})
        simulate = partial(
            simulate_clicks,
            documents,
            n_sessions=300,
            n_positions=self.n_positions,
            scores=relevance,
            policy=PlackettLucePolicy(1.0),
            user=self.user,
            max_grade=1,
            candidates=True,
            random_state=0,
        )
        X, clicks, truth = simulate()
        again, clicks_again, _ = simulate()
        same = X.equals(again) and np.array_equal(clicks, clicks_again)
        assert same, "simulate_clicks with the same random_state gave another log"
        # Candidates that were not shown have no position, and cannot be clicked.
        hidden = X["position"].isna().to_numpy()
        assert not clicks[hidden].any(), "a candidate that was not shown was clicked"
        # What every truth holds, whatever the user adds to it.
        shapes = {"examination": (self.n_positions,), "relevance_probability": (len(documents),)}
        for key, shape in shapes.items():
            assert_probabilities(truth[key], shape, f"truth.{key}")

    def check_pickle(self) -> None:
        # Simulations in other processes get their users this way.
        pickled = pickle.loads(pickle.dumps(self.user))
        found = pickled.click_probability(*self.pages)
        assert_array_equal(found, self.stated, "pickle changed the user")
