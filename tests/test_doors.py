"""One sentence and one severity for each fault of a log, whichever door it comes to."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge

from skultr import aggregate_clicks
from skultr.click_models import PBMModel
from skultr.exceptions import (
    ClickDataWarning,
    MissingRoleWarning,
    NotIdentifiableError,
    NotIdentifiableWarning,
)
from skultr.identifiability import IdentifiabilityGraph, IdentifiabilityRepair
from skultr.metrics import ClickLikelihoodScorer, CMIPScorer, IPSScorer, PerplexityScorer
from skultr.propensity import (
    DualLearningPropensity,
    InterventionHarvesting,
    RegressionEMPropensity,
)
from skultr.rankers import DLARanker, NaiveRanker, RegressionEMRanker

from ._worlds import shuffled_log

ROLES = ["qid", "session", "doc", "position", "impressions", "bias"]
#: Not about the log: how the small fits of this file go.
BESIDE_THE_POINT = (ConvergenceWarning,)


@pytest.fixture(scope="module")
def log():
    _, X, clicks = shuffled_log(40, 1500, n_features=20)
    return X.reset_index(drop=True), np.asarray(clicks, float)


@pytest.fixture(scope="module")
def fitted(log):
    return NaiveRanker(estimator=Ridge(solver="svd")).fit(*log), PBMModel().fit(*log)


def _aggregate(X, y, fitted):
    return aggregate_clicks(X[[name for name in X if name in ROLES]].assign(click=y))


def _cmip(X, y, fitted):
    grade = np.array([ord(str(doc)[-1]) % 3 for doc in X["doc"]], dtype=float)
    return CMIPScorer(estimator="knn", n_repeats=1)(fitted[0], X.assign(relevance=grade), y)


DOORS = {
    "ranker": lambda X, y, _: NaiveRanker(estimator=Ridge(solver="svd")).fit(X, y),
    "propensity": lambda X, y, _: InterventionHarvesting(n_bootstrap=0).fit(X, y),
    "graph": lambda X, y, _: IdentifiabilityGraph.from_log(X, click=y),
    "repair": lambda X, y, _: IdentifiabilityRepair().fit(X, y),
    "aggregate": _aggregate,
    "click model": lambda X, y, _: PBMModel().fit(X, y),
    "predict_click": lambda X, y, fitted: fitted[1].predict_click(X, y),
    "ClickLikelihoodScorer": lambda X, y, fitted: ClickLikelihoodScorer(propensity=np.ones(20))(
        fitted[0], X, y
    ),
    "IPSScorer": lambda X, y, fitted: IPSScorer(propensity=np.ones(20))(fitted[0], X, y),
    "PerplexityScorer": lambda X, y, fitted: PerplexityScorer()(fitted[1], X, y),
    "CMIPScorer": _cmip,
}
#: Doors that read what a fault is about.
EVERY = set(DOORS)
LEARN = EVERY - {"predict_click", "CMIPScorer"}
LISTS = {
    *("ranker", "propensity", "aggregate", "click model"),
    *("predict_click", "ClickLikelihoodScorer", "IPSScorer", "PerplexityScorer"),
}
CLICKED = LEARN
BIASED = EVERY - {"CMIPScorer", "ClickLikelihoodScorer", "IPSScorer"}
COUNTED = EVERY - {"predict_click"}
WHOLE = "position must be a whole number from 1"
FINITE = "impressions must be finite and at least 0"


def _cell(column, row, value):
    def fault(X, y):
        values = X[column].astype(float) if column in X else pd.Series(1.0, X.index)
        return X.assign(**{column: values.where(X.index != row, value)}), y

    return fault


def _blank(column):
    return lambda X, y: (
        X.assign(**{column: X[column].astype(object).where(X.index != 4, None)}),
        y,
    )


def _click(row, value):
    return lambda X, y: (X, np.where(np.arange(len(y)) == row, value, y))


def _click_on_unshown(X, y):
    clicked = int(np.flatnonzero(y)[0])
    return X.assign(position=X["position"].astype(float).where(X.index != clicked)), y


def _two_at_one_position(X, y):
    return X.assign(position=X["position"].where(X.index != 1, X["position"].iloc[0])), y


#: Fault: what it does to the log, severity, sentence, and the doors that read it.
FAULTS = {
    "position 0": (_cell("position", 5, 0.0), ValueError, WHOLE, EVERY),
    "position 1.5": (_cell("position", 5, 1.5), ValueError, WHOLE, EVERY),
    "position as text": (
        lambda X, y: (X.assign(position=X["position"].astype(str)), y),
        ValueError,
        "The role 'position' must hold numbers",
        EVERY,
    ),
    "no qid": (
        lambda X, y: (X.drop(columns="qid"), y),
        MissingRoleWarning,
        "X has no column 'qid' and no qid was passed: all rows are taken as one query",
        EVERY - {"aggregate", "ClickLikelihoodScorer", "IPSScorer", "CMIPScorer"},
    ),
    "two rows at one position": (
        _two_at_one_position,
        ValueError,
        "Two rows of one list are at position 1 .*expected at most one row per position",
        LISTS,
    ),
    "impressions -1": (_cell("impressions", 3, -1.0), ValueError, FINITE, COUNTED),
    "impressions NaN": (_cell("impressions", 3, np.nan), ValueError, FINITE, COUNTED),
    "impressions as text": (
        lambda X, y: (X.assign(impressions="1"), y),
        ValueError,
        "The role 'impressions' must hold numbers",
        COUNTED,
    ),
    "click NaN": (
        _click(3, np.nan),
        ValueError,
        "contains NaN or infinity: found nan in 1 row",
        CLICKED,
    ),
    "click as text": (
        lambda X, y: (X, np.array(y, dtype=int).astype(str)),
        ValueError,
        "must hold numbers",
        CLICKED,
    ),
    "click infinite": (_click(3, np.inf), ValueError, "infinity: found inf in 1 row", CLICKED),
    "impressions infinite": (_cell("impressions", 3, np.inf), ValueError, FINITE, COUNTED),
    "nothing shown": (
        lambda X, y: (X.assign(position=np.nan), 0 * y),
        ValueError,
        "No row was shown: every position is missing",
        COUNTED - {"CMIPScorer"},
    ),
    "click -1": (_click(3, -1.0), ValueError, "holds negative values: found -1 in 1 row", CLICKED),
    "click 2": (
        _click(3, 2.0),
        ClickDataWarning,
        r"has values above 1 \(up to 2\): it is read as graded relevance",
        CLICKED,
    ),
    "click on an unshown row": (
        _click_on_unshown,
        ClickDataWarning,
        "1 row has a click but no position or 0 impressions",
        CLICKED,
    ),
    "doc None": (_blank("doc"), ValueError, "The role 'doc' is missing in 1 row", EVERY),
    "qid None": (_blank("qid"), ValueError, "The role 'qid' is missing in 1 row", EVERY),
    "session None": (
        _blank("session"),
        ValueError,
        "The role 'session' is missing in 1 row",
        LISTS,
    ),
    "bias NaN": (
        lambda X, y: (X.assign(bias=X["position"].astype(float).where(X.index != 4)), y),
        ValueError,
        "bias is missing in 1 row",
        BIASED,
    ),
    "no clicks": (lambda X, y: (X, y * 0), ClickDataWarning, "The log has no click", CLICKED),
    "y None": (
        lambda X, y: (X, None),
        ValueError,
        "requires y to be passed, but the target y is None",
        CLICKED - {"graph", "repair", "aggregate"},
    ),
    "y too short": (
        lambda X, y: (X, y[:-1]),
        ValueError,
        "X has 15000 rows and y has 14999; expected one click per row",
        CLICKED - {"aggregate"},
    ),
    "no rows": (lambda X, y: (X.iloc[:0], y[:0]), ValueError, "X has no rows", EVERY),
}
#: After the warning, what these doors are asked for does not exist, and they say so.
GIVE_UP = {
    ("no clicks", "propensity"): "The log cannot separate examination from relevance",
}


def _answer(door, fault, log, fitted):
    """Messages by severity: warnings that were given, and the error that ended it."""
    X, y = fault(log[0].copy(), log[1].copy())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for category in BESIDE_THE_POINT:
            warnings.simplefilter("ignore", category)
        try:
            DOORS[door](X, y, fitted)
        except (ValueError, TypeError) as error:
            return caught, error
    return caught, None


@pytest.mark.parametrize("door", DOORS)
def test_a_log_without_faults_is_read_in_silence(door, log, fitted):
    caught, error = _answer(door, lambda X, y: (X, y), log, fitted)
    assert not caught
    assert error is None


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_has_one_sentence_and_one_severity(name, door, log, fitted):
    fault, severity, sentence, doors = FAULTS[name]
    caught, error = _answer(door, fault, log, fitted)
    if door not in doors:
        return
    if issubclass(severity, Warning):
        said = [str(w.message) for w in caught if issubclass(w.category, severity)]
        assert len([text for text in said if re.search(sentence, text)]) == 1, (caught, error)
        assert (error is None) == ((name, door) not in GIVE_UP), error
        if error is not None:
            assert re.search(GIVE_UP[name, door], str(error))
    else:
        assert isinstance(error, severity), (caught, error)
        assert re.search(sentence, str(error)), error


# --------------------------------------------------------------------------------------
# What a document is
# --------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def pages():
    """Page ids that recur under many queries; each query always has one order, the right one."""
    rng = np.random.default_rng(0)
    rows = []
    for query in range(200):
        relevance = np.sort(rng.uniform(0.05, 0.9, 5))[::-1]
        ids = rng.choice(60, 5, replace=False)
        rows += [(query, *row) for row in zip(ids, range(1, 6), relevance, strict=True)]
    X = pd.DataFrame(rows, columns=["qid", "doc", "position", "relevance"]).assign(
        impressions=2000
    )
    rate = X.pop("relevance") / X["position"]
    return X, rng.binomial(2000, rate) / 2000


@pytest.mark.parametrize(
    "estimator",
    [
        RegressionEMRanker(relevance="embedding", random_state=0),
        DLARanker(relevance="embedding", random_state=0),
        PBMModel(),
        IdentifiabilityRepair(),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_ids_that_recur_link_nothing(estimator, pages):
    with pytest.warns(NotIdentifiableWarning):
        estimator.fit(*pages)


@pytest.mark.parametrize(
    "estimator",
    [
        RegressionEMPropensity(relevance="embedding"),
        DualLearningPropensity(relevance="embedding"),
        InterventionHarvesting(n_bootstrap=0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_ids_that_recur_tell_nothing_of_examination(estimator, pages):
    with pytest.raises(NotIdentifiableError):
        estimator.fit(*pages)


def test_ids_that_recur_link_nothing_in_the_graph(pages):
    assert IdentifiabilityGraph.from_log(pages[0]).n_components == 5
    assert IdentifiabilityGraph.from_log(pages[0].assign(doc_scope="global")).is_connected
