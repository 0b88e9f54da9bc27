import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skultr._models._tabular import TabularFit
from skultr.exceptions import ClickDataWarning, MissingRoleWarning, NotIdentifiableWarning
from skultr.identifiability import IdentifiabilityGraph, IdentifiabilityRepair
from skultr.model_selection import QueryKFold
from skultr.preprocessing import OnFeatures
from skultr.rankers import DLARanker

CONVERT = {
    "pandas": lambda frame: frame,
    "polars": lambda frame: pl.from_pandas(frame, nan_to_null=True),
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}
EXAMINATION = np.array([0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06])
INTERVENES = "ignore:The log is not identifiable"
#: The small logs below have few bias factors, and nearly as many components.
pytestmark = pytest.mark.filterwarnings("ignore:Merging leaves 3 examination parameters")


def to_pandas(frame):
    return frame if isinstance(frame, pd.DataFrame) else frame.to_pandas()


def world(parts=((1, 4), (5, 10)), n_queries=60, n_impressions=1000, seed=0):
    """Ten positions in parts between which no document moves; exact click rates."""
    rng = np.random.default_rng(seed)
    rows = []
    for query in range(n_queries):
        for first, last in parts:
            page = [f"{query % 20}-{first}-{i}" for i in range(last - first + 1)]
            rows += zip(
                [query] * len(page), rng.permutation(page), range(first, last + 1), strict=True
            )
    X = pd.DataFrame(rows, columns=["qid", "doc", "position"])
    docs = X["doc"].unique()
    relevance = pd.Series(rng.choice([0.1, 0.16, 0.28, 0.52, 1.0], len(docs)), docs)
    X["impressions"] = n_impressions
    X["doc_scope"] = "global"  # pages recur under several queries
    clicks = relevance[X["doc"]].to_numpy() * EXAMINATION[X["position"] - 1]
    return X, clicks, relevance


def fitted_relevance(log, rate):
    """Relevance that an embedding finds, by document in the order of `world`."""
    ranker = DLARanker(relevance="embedding", random_state=0).fit(log, rate)
    return ranker.relevance_[log["doc"].unique()]


def test_merged_factors_may_leave_no_probabilities_that_fit():
    """Proposition 3 of Chen et al. (2024) holds for numbers, but not for probabilities.

    Position 1 is merged with position 4: r_0 o = .5, r_1 o = .05 and r_1 o_3 = .5 give
    r_0 o_3 = 5. With r_0 o_3 at most 1, errors of at most e have (.5 - e)^2 <= .05 + e, so that e
    is at least 1 - sqrt(.8).
    """
    X = pd.DataFrame({"qid": [0, 1, 2, 3], "doc": [0, 0, 1, 1], "position": [1, 2, 3, 4]})
    X = X.assign(impressions=1_000_000, doc_scope="global")
    clicks = np.array([0.5, 0.05, 0.5, 0.05])
    near = {1: 0.0, 2: 10.0, 3: 20.0, 4: 0.1}
    repair = IdentifiabilityRepair(bias_features=near, position_weight=0.0).fit(X, clicks)
    merged = repair.transform(X)
    assert merged["bias"].tolist() == [0, 1, 2, 0]
    relevance = np.array([1.0, 0.1])[X["doc"]]
    examination = np.array([0.5, 0.05, 5.0])[merged["bias"]]
    assert relevance * examination == pytest.approx(clicks)
    errors = []
    for log in (X.assign(bias=X["position"]), merged):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotIdentifiableWarning)
            ranker = DLARanker(relevance="embedding", random_state=0).fit(log, clicks)
        errors.append(np.abs(ranker.predict_click(log) - clicks).max())
    assert errors[0] < 0.001
    assert errors[1] > 1 - np.sqrt(0.8)


# Merging ---------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", CONVERT)
def test_merges_across_the_gap(kind):
    X, clicks, _ = world()
    X.index = np.random.default_rng(0).permutation(len(X))
    out = IdentifiabilityRepair().fit(CONVERT[kind](X), clicks)
    assert not out.is_identifiable_
    assert out.graph_.n_components == 2
    assert set(out.merges_.loc[0, ["from", "into"]]) == {4, 5}
    assert out.merges_["cost"].tolist() == [1.0]
    assert out.total_cost_ == 1.0
    # The steepest step inside a component is that from position 6 to 7.
    steepest = np.log(0.20 / 0.11)
    assert out.merges_["estimated_error"].item() == pytest.approx(steepest, abs=0.01)
    assert out.error_bound_if_smooth_ == out.merges_["estimated_error"].item()
    assert len(out.interventions_) == 0
    assert out.intervened_lists_ is None

    repaired = out.transform(CONVERT[kind](X))
    assert type(repaired) is type(CONVERT[kind](X))
    expected = X.assign(bias=X["position"] - 1 - (X["position"] > 4))
    reset = to_pandas(repaired).reset_index(drop=True)
    pd.testing.assert_frame_equal(reset, expected.reset_index(drop=True), check_dtype=False)
    assert IdentifiabilityGraph.from_log(repaired).is_connected
    assert kind != "pandas" or repaired.index.equals(X.index)


def test_codes_of_factors_are_told():
    X, _, _ = world()
    repair = IdentifiabilityRepair().fit(X)
    assert repair.factors_["position"].tolist() == list(range(1, 11))
    assert repair.factors_["code"].tolist() == [0, 1, 2, 3, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("strategy", ["merge", "intervene"])
def test_connected_log_stays_as_it_is(strategy):
    X, clicks, _ = world(parts=((1, 10),))
    repair = IdentifiabilityRepair(strategy=strategy).fit(X, clicks)
    assert repair.is_identifiable_
    assert repair.transform(X)["bias"].tolist() == (X["position"] - 1).tolist()
    assert len(repair.merges_) == len(repair.interventions_) == 0
    assert repair.total_cost_ == repair.error_bound_if_smooth_ == 0.0
    assert repair.intervened_lists_ is None


def test_merged_log_recovers_relevance_better_than_other_pairs():
    X, clicks, relevance = world(n_queries=400, n_impressions=100_000)
    gaps = {}
    for pair in ((4, 5), (1, 5), (1, 10)):
        log = X.assign(bias=X["position"].replace(pair[1], pair[0]))
        gaps[pair] = 1 - np.corrcoef(fitted_relevance(log, clicks), relevance)[0, 1]
    assert min(gaps, key=gaps.get) == (4, 5)
    chosen = IdentifiabilityRepair().fit(X, clicks).merges_
    assert {*chosen["from"], *chosen["into"]} == {4, 5}


def test_tree_of_merges_and_its_diameter():
    X, clicks, _ = world(parts=((1, 2), (3, 5), (6, 6), (7, 10)))
    repair = IdentifiabilityRepair().fit(X)
    assert repair.merges_["cost"].tolist() == [1.0] * 3
    assert repair.total_cost_ == 3.0
    assert np.isnan(repair.merges_["estimated_error"]).all()  # nothing is known without clicks
    assert np.isnan(repair.error_bound_if_smooth_)
    # The merges form a path, and the steepest step inside a component is that from 3 to 4.
    repair.fit(X, clicks)
    assert repair.error_bound_if_smooth_ == pytest.approx(3 * np.log(0.48 / 0.34), rel=0.05)


# Propositions 2 and 4: |r'_x / r_x - r'_x' / r_x'| <= the sum of |o_t - o_t'| / o'_t -----------
SPLITS = {
    2: ((1, 4), (5, 10)),
    3: ((1, 4), (5, 7), (8, 10)),
    4: ((1, 3), (4, 6), (7, 8), (9, 10)),
}


def shifts(parts, examination):
    """r' / r by component: merging the ends of each gap, o'_t = o'_t', rescales what is below."""
    steps = [examination[first - 1] / examination[first - 2] for first, _ in parts[1:]]
    return np.cumprod([1.0, *steps])


def known(examination):
    return dict(enumerate(examination, start=1))


@pytest.mark.parametrize("parts", SPLITS.values())
def test_merging_shifts_components_as_proposition_2_says(parts):
    X, clicks, relevance = world(parts, n_queries=200)
    repair = IdentifiabilityRepair(examination=known(EXAMINATION)).fit(X, clicks)
    ratio = fitted_relevance(repair.transform(X), clicks) / relevance
    first = ratio.index.str.split("-").str[1].astype(int)
    ratio = ratio.groupby(repair.graph_.labels[first - 1])
    assert ratio.std().max() < 1e-3  # one shift for all documents of a component
    found = (ratio.mean() / ratio.mean()[0]).to_numpy()
    order = repair.graph_.labels[[first - 1 for first, _ in parts]]
    expected = shifts(parts, EXAMINATION)
    np.testing.assert_allclose(found[order], expected / expected[order == 0], rtol=0.005)
    # All steps go down, so that the sum along the path is the difference of its ends.
    assert repair.error_bound_ == pytest.approx(np.ptp(found), rel=0.005)
    gaps = [EXAMINATION[[first - 2, first - 1]] for first, _ in parts[1:]]
    np.testing.assert_allclose(
        repair.merges_["estimated_error"].sort_values(), np.sort([np.log(a / b) for a, b in gaps])
    )


@pytest.mark.filterwarnings("ignore:The log is not identifiable")
@pytest.mark.parametrize("strategy", ["merge", "intervene"])
@pytest.mark.parametrize("make", [list, np.asarray])
def test_examination_by_position_is_that_of_the_rankers(make, strategy):
    X, clicks, _ = world(((1, 2), (3, 4), (5, 6)))
    found, expected = (
        IdentifiabilityRepair(strategy=strategy, examination=given).fit(X, clicks)
        for given in (make(EXAMINATION), known(EXAMINATION))
    )
    name = "merges_" if strategy == "merge" else "interventions_"
    pd.testing.assert_frame_equal(getattr(found, name), getattr(expected, name))


def test_examination_by_position_needs_factors_that_are_positions():
    X, clicks, _ = world(((1, 2), (3, 4), (5, 6)))
    X = X.assign(device=np.where(X["position"] % 2, "phone", "desk"))
    repair = IdentifiabilityRepair(bias=["position", "device"], examination=EXAMINATION)
    with pytest.raises(
        ValueError, match=r"values of \['position', 'device'\]; expected a mapping"
    ):
        repair.fit(X, clicks)
    with pytest.raises(ValueError, match="examination lacks 1 of 6 keys of the log, first 6"):
        IdentifiabilityRepair(examination=EXAMINATION[:5]).fit(X, clicks)


def test_the_bound_is_the_sum_along_the_path():
    """Examination that falls and rises again: the ends agree, the bound does not cancel."""
    o = np.array([0.5, 0.5, 0.25, 0.25, 0.5, 0.5])
    X, _, _ = world(((1, 2), (3, 4), (5, 6)))
    repair = IdentifiabilityRepair(examination=known(o)).fit(X)  # no clicks are needed
    # Relative to the first component, the second is rated half and the third as it is.
    assert repair.error_bound_ == pytest.approx(0.5 + 0.5)
    assert repair.error_bound_if_smooth_ == pytest.approx(2 * np.log(2))
    assert IdentifiabilityRepair(examination=known(np.full(6, 0.3))).fit(X).error_bound_ == 0
    with pytest.raises(ValueError, match="examination lacks 1 of 6 keys of the log, first 6"):
        IdentifiabilityRepair(examination=known(o[:5])).fit(X)


def test_the_guessed_bound_holds_where_examination_is_smooth():
    """Power laws fall ever more slowly, so that no gap is steeper than the step above it."""
    held = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        parts = SPLITS[rng.integers(2, 5)]
        examination = np.arange(1, 11) ** -rng.uniform(0.2, 1.5)
        X, _, relevance = world(parts, n_queries=40, n_impressions=300, seed=seed)
        chance = relevance[X["doc"]].to_numpy() * examination[X["position"] - 1]
        repair = IdentifiabilityRepair().fit(X, rng.binomial(300, chance) / 300)
        shift = shifts(parts, examination)
        shift /= shift[repair.graph_.labels[[first - 1 for first, _ in parts]] == 0]
        held.append(np.ptp(shift) <= repair.error_bound_)
    assert np.mean(held) >= 0.95


def test_the_guessed_bound_fails_where_the_gap_is_the_steepest_step():
    o = np.array([1.0, 0.9, 0.3, 0.25])
    X, _, relevance = world(((1, 2), (3, 4)))
    clicks = relevance[X["doc"]].to_numpy() * o[X["position"] - 1]
    bounds = [
        IdentifiabilityRepair(examination=given).fit(X, clicks).error_bound_
        for given in (None, known(o))
    ]
    assert bounds[0] < 0.3 < bounds[1] == pytest.approx(1 - 0.3 / 0.9)


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_errors_do_not_depend_on_units(scale):
    X, clicks, _ = world(parts=((1, 3), (4, 6), (7, 8), (9, 10)))
    repair = IdentifiabilityRepair(
        bias_features=lambda factors: scale * factors.to_numpy(float), position_weight=0.0
    ).fit(X, clicks)
    # Positions 5 and 6: the steepest step inside a component, not that of the log.
    steepest = np.log(0.28 / 0.20)
    np.testing.assert_allclose(repair.merges_["estimated_error"], steepest, rtol=0.05)
    assert repair.error_bound_if_smooth_ == pytest.approx(3 * steepest, rel=0.05)


def test_noise_is_not_taken_for_a_slope(monkeypatch):
    """Examination that is equal everywhere: few clicks make it look rough."""
    X, _, relevance = world(n_queries=200)
    chance = 0.5 * relevance[X["doc"]].to_numpy()

    def guesses():
        return [
            IdentifiabilityRepair()
            .fit(X.assign(impressions=20), np.random.default_rng(seed).binomial(20, chance) / 20)
            .merges_["estimated_error"]
            .item()
            for seed in range(5)
        ]

    found = guesses()
    monkeypatch.setattr(TabularFit, "own_error", lambda fit: np.zeros(fit.cells.n_factors))
    with_noise = guesses()
    # A slope of q standard errors becomes one of sqrt(q² - 1). Of the 90 % quantile of ten, q is
    # 1.6, which takes off a fifth; a tenth is left off if q is 2.3, which two of ten slopes
    # exceed in one draw of 50, and hardly in the mean of five.
    assert np.mean(found) < 0.9 * np.mean(with_noise)


@pytest.mark.parametrize(("n_alone", "warns"), [(2, False), (4, True)])
def test_warning_where_merging_costs_more_than_it_connects(n_alone, warns):
    pairs = [(k, k + 1) for k in range(1, 10 - n_alone, 2)]
    parts = (*pairs, *((k, k) for k in range(11 - n_alone, 11)))
    ratio = len(parts) / 10
    assert (ratio > 0.6) == warns
    X, clicks, _ = world(parts=parts)
    if warns:
        with pytest.warns(NotIdentifiableWarning, match=f"{ratio:.2f} components per factor"):
            IdentifiabilityRepair().fit(X, clicks)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            IdentifiabilityRepair().fit(X, clicks)


def test_every_document_its_own_component():
    X = pd.DataFrame({"qid": 1, "doc": list("abcd"), "position": [1, 2, 3, 4]})
    with pytest.warns(NotIdentifiableWarning, match="1 examination parameter for 4 bias factors"):
        repair = IdentifiabilityRepair().fit(X, [1, 0, 0, 1])
    assert repair.transform(X)["bias"].tolist() == [0] * 4
    assert len(repair.merges_) == 3
    assert np.isnan(repair.merges_["estimated_error"]).all()


def test_one_factor_and_one_row():
    X = pd.DataFrame({"qid": [1], "doc": ["a"], "position": [1]})
    for strategy in ("merge", "intervene"):
        repair = IdentifiabilityRepair(strategy=strategy).fit(X, [1])
        assert repair.is_identifiable_
        assert repair.transform(X)["bias"].tolist() == [0]


# Bias columns ----------------------------------------------------------------------------
@pytest.fixture
def devices():
    """Position and device; desktop and phone are never linked, and neither are 1, 2 and 3."""
    X = pd.DataFrame(
        {
            "qid": [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3],
            "doc": ["a", "b", "c", "b", "a", "c", "d", "e", "f", "e", "d", "f"],
            "position": [1, 2, 3] * 4,
            "device": ["phone"] * 6 + ["desktop"] * 6,
            "doc_scope": "global",
            "age": 0.5,
        }
    )
    return X, np.tile([0.8, 0.4, 0.2], 4)


@pytest.mark.parametrize("kind", CONVERT)
def test_several_columns(devices, kind):
    X, clicks = devices
    X = CONVERT[kind](X)
    repair = IdentifiabilityRepair(["position", "device"]).fit(X, clicks)
    assert repair.graph_.n_components == 4
    assert np.sort(repair.merges_["cost"]).tolist() == pytest.approx([1, 1, 10])
    pairs = {
        frozenset(pair)
        for pair in zip(repair.merges_["from"], repair.merges_["into"], strict=True)
    }
    assert frozenset([(3, "phone"), (3, "desktop")]) in pairs
    out = to_pandas(repair.transform(X))
    assert list(out.columns) == ["qid", "doc", "position", "doc_scope", "age", "bias"]
    assert IdentifiabilityGraph.from_log(out).is_connected
    assert repair.feature_names_in_.tolist() == repair.get_feature_names_out().tolist() == ["age"]


def test_weight_of_position(devices):
    X, _ = devices
    light = IdentifiabilityRepair(["position", "device"], position_weight=0.25).fit(X)
    assert np.sort(light.merges_["cost"]).tolist() == pytest.approx([0.25, 0.25, 1.0])


def test_default_features_of_other_types():
    X = pd.DataFrame(
        {
            "qid": 1,
            "doc": list("abcdef"),
            "user": [100, 100, 5, 5, 900, 900],
            "dark": [True, False] * 3,
            "size": [1.0, 1.5, 2.0, 3.0, 1.0, 7.0],
        }
    )
    with pytest.warns(NotIdentifiableWarning):
        repair = IdentifiabilityRepair(["user", "dark", "size"]).fit(X)
    # Users are ids, and equally far apart; 'size' is a number.
    distance = np.array([np.hypot(1, 0.5), 1.0, np.sqrt(1 + 1), np.hypot(1, 1), np.hypot(1, 4)])
    assert repair.merges_["cost"].max() == pytest.approx(distance[-1])
    assert repair.merges_["cost"].min() == pytest.approx(1.0)
    assert "user" in repair.transform(X)  # a role stays


def test_too_many_categories_ask_for_features():
    X = pd.DataFrame({"qid": 1, "doc": range(300), "vertical": [f"v{i}" for i in range(300)]})
    with pytest.raises(ValueError, match=r"'vertical' \(300 different values\).*bias_features="):
        IdentifiabilityRepair("vertical").fit(X)
    mapping = {f"v{i}": [i] for i in range(300)}
    with pytest.warns(NotIdentifiableWarning):
        repair = IdentifiabilityRepair("vertical", bias_features=mapping).fit(X)
    assert repair.total_cost_ == 299


def contexts(n_contexts, connected=False):
    """Each list in a context of its own kind; contexts are ids that happen to be whole numbers."""
    context = np.repeat(np.arange(n_contexts), 4)
    position = np.tile([1, 2, 1, 2], n_contexts)
    doc = np.tile([0, 1, 1, 0], n_contexts) + (0 if connected else 2 * context)
    return pd.DataFrame(
        {
            "qid": 0,
            "session": np.arange(4 * n_contexts) // 2,
            "doc": doc,
            "position": position,
            "context": context,
        }
    )


def test_whole_numbers_are_ids_where_there_are_many():
    X = contexts(30)
    with pytest.warns(ClickDataWarning, match=r"'context' \(30 .*bias_features=\['context'\]"):
        repair = IdentifiabilityRepair(["position", "context"]).fit(X)
    assert repair.merges_["cost"].tolist() == [1.0] * 29
    text = X.assign(context="c" + X["context"].astype(str))
    assert IdentifiabilityRepair(["position", "context"]).fit(text).total_cost_ == 29
    with pytest.warns(ClickDataWarning, match="are read as ids"):
        IdentifiabilityRepair(["position", "context"]).fit(X.assign(context=X["context"] * 1.0))
    # Of half numbers, and of few numbers, differences count.
    half = X.assign(context=X["context"] / 2)
    repair = IdentifiabilityRepair(["position", "context"]).fit(half)
    assert repair.merges_["cost"].tolist() == [0.5] * 29
    few = IdentifiabilityRepair(["position", "context"])
    few.fit(contexts(20).assign(context=lambda X: 3 * X["context"]))
    assert few.merges_["cost"].tolist() == [3.0] * 19


def test_whole_numbers_count_if_the_user_says_so():
    X = contexts(400).assign(context=lambda X: 2 * X["context"])
    with pytest.raises(ValueError, match=r"'context' \(400 .*read as ids.*bias_features="):
        IdentifiabilityRepair(["position", "context"]).fit(X)
    repair = IdentifiabilityRepair(["position", "context"], bias_features=["context"]).fit(X)
    assert repair.merges_["cost"].tolist() == [2.0] * 399


def test_many_positions_are_no_ids():
    X = contexts(40).assign(position=lambda X: 2 * X["context"] + X["position"])
    assert IdentifiabilityRepair().fit(X).merges_["cost"].tolist() == [1.0] * 39


@pytest.mark.filterwarnings(INTERVENES)
def test_ids_do_not_matter_where_nothing_is_merged():
    X = contexts(400, connected=True)
    repair = IdentifiabilityRepair(["position", "context"]).fit(X)
    assert repair.is_identifiable_
    other = X.tail(2).assign(context=1_000)
    with pytest.warns(ClickDataWarning, match="treated as the nearest"):
        found = repair.transform(other)["bias"]
    positions = repair.factors_.set_index("code")["position"]
    assert positions[found].tolist() == other["position"].tolist()
    alone = IdentifiabilityRepair("context").fit(X)
    with pytest.warns(ClickDataWarning, match="most frequent factor"):
        alone.transform(other)
    clicks = np.tile([1, 0], len(X) // 2)
    plan = IdentifiabilityRepair(["position", "context"], strategy="intervene")
    assert len(plan.fit(contexts(400), clicks).interventions_) == 399


def test_bias_features_as_mapping_callable_and_columns(devices):
    X, clicks = devices
    size = {"phone": 2.0, "desktop": 5.0}
    mapping = {(p, d): size[d] for p in (1, 2, 3) for d in size}
    plans = [
        IdentifiabilityRepair(["position", "device"], bias_features=given).fit(X, clicks)
        for given in (mapping, lambda factors: factors["device"].map(size))
    ]
    columns = IdentifiabilityRepair(["position", "device"], bias_features=["size"])
    plans.append(columns.fit(X.assign(size=X["device"].map(size)), clicks))
    for plan in plans:
        pd.testing.assert_frame_equal(plan.merges_, plans[0].merges_)
        assert np.sort(plan.merges_["cost"]).tolist() == pytest.approx([3, 3, 10])
    assert list(columns.feature_names_in_) == ["age", "size"]


@pytest.mark.parametrize(
    ("bias_features", "message"),
    [
        ({(1, "phone"): [1.0]}, r"5 of 6 bias factors are missing.*\(1, 'desktop'\)"),
        (
            {(p, d): [1.0] * p for p in (1, 2, 3) for d in ("phone", "desktop")},
            "different lengths",
        ),
        (lambda factors: np.ones((2, 3)), r"shape \(2, 3\) for 6 bias factors"),
        (lambda factors: np.full(len(factors), np.nan), "not finite"),
        (lambda factors: np.full(len(factors), 1e200), "not finite"),
        (["weight"], r"lacks the bias features \['weight'\]"),
        (["doc"], "does not hold numbers"),
        ("noise", r"'noise' has different values in rows of the bias factor"),
        ("hole", "missing or not finite"),
    ],
)
def test_bad_bias_features(devices, bias_features, message):
    X = devices[0].assign(noise=np.arange(12.0), hole=np.nan)
    with pytest.raises(ValueError, match=message):
        IdentifiabilityRepair(["position", "device"], bias_features=bias_features).fit(X)


@pytest.mark.parametrize(
    ("bias", "message"),
    [
        (["position", "tablet"], r"lacks the columns \['tablet'\]"),
        ([], "expected the name of a column"),
        (["position", "position"], "different names"),
        ("doc", "cannot be its own bias factor"),
    ],
)
def test_bad_bias_columns(devices, bias, message):
    with pytest.raises(ValueError, match=message):
        IdentifiabilityRepair(bias).fit(devices[0])


def test_missing_values(devices):
    X, _ = devices
    broken = X.copy()
    broken.loc[3, "device"] = None
    with pytest.raises(ValueError, match="'device' is missing in 1 row, such as in"):
        IdentifiabilityRepair(["position", "device"]).fit(broken)
    repair = IdentifiabilityRepair(["position", "device"]).fit(X)
    with pytest.raises(ValueError, match="'device' is missing in 1 shown row, first in row 3"):
        repair.transform(broken)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        IdentifiabilityRepair().fit(X, [0, 0, np.nan] * 4)


# Transforming other frames ---------------------------------------------------------------
@pytest.mark.parametrize("kind", CONVERT)
def test_serving_frames_pass_through(devices, kind):
    X, clicks = devices
    repair = IdentifiabilityRepair(["position", "device"]).fit(CONVERT[kind](X), clicks)
    serving = CONVERT[kind](X[["qid", "age"]])
    assert repair.transform(serving) is serving
    one_row = CONVERT[kind](X[["age"]].iloc[:1])
    assert repair.transform(one_row) is one_row
    # A context that is known at serving time is no feature either.
    partly = to_pandas(repair.transform(CONVERT[kind](X[["age", "device"]])))
    assert list(partly.columns) == ["age"]
    with pytest.raises(ValueError, match="feature names"):
        repair.transform(CONVERT[kind](X[["qid"]].assign(weight=1.0)))


@pytest.mark.parametrize("kind", CONVERT)
def test_never_shown_rows_have_no_bias(kind):
    X, clicks, _ = world()
    X["position"] = X["position"].astype(float)
    X.loc[[3, 7], "position"] = np.nan
    clicks[[3, 5, 7]] = 0.0
    X.loc[5, "impressions"] = 0
    X = CONVERT[kind](X)
    out = to_pandas(IdentifiabilityRepair().fit(X, clicks).transform(X))
    assert np.flatnonzero(out["bias"].isna()).tolist() == [3, 5, 7]
    assert out["bias"].max() == 8


@pytest.mark.parametrize("kind", CONVERT)
def test_unseen_factors_take_the_nearest(devices, kind):
    X, clicks = devices
    repair = IdentifiabilityRepair(["position", "device"]).fit(CONVERT[kind](X), clicks)
    known = to_pandas(repair.transform(CONVERT[kind](X)))["bias"]
    other = X.copy()
    other["position"] = other["position"].astype(float)
    other.loc[0, "position"] = np.nan
    other.loc[2, "position"] = 8
    other.loc[6, "device"] = "watch"
    with pytest.warns(
        ClickDataWarning, match=r"2 bias factors, in 2 rows, .*\(8, 'phone'\) as \(3, 'phone'\)"
    ):
        out = to_pandas(repair.transform(CONVERT[kind](other)))["bias"]
    assert out[2] == known[2]
    assert out[6] in (known[0], known[6])  # position 1, whatever the device
    assert np.isnan(out[0])
    rest = out.drop([0, 2, 6])
    assert (rest == known[rest.index]).all()


def test_unseen_factors_without_features_take_the_most_frequent(devices):
    X, clicks = devices
    mapping = {(p, d): p for p in (1, 2, 3) for d in ("phone", "desktop")}
    X["impressions"] = np.where(np.arange(12) == 4, 100, 1)
    repair = IdentifiabilityRepair(["position", "device"], bias_features=mapping).fit(X, clicks)
    other = X.replace({"device": {"desktop": "watch"}})
    with pytest.warns(ClickDataWarning, match="most frequent factor"):
        out = repair.transform(other)["bias"]
    assert (out[6:] == out[4]).all()


def test_factors_of_one_type_are_found_in_another():
    X, _, _ = world()
    codes = IdentifiabilityRepair().fit(X).transform(X.astype({"position": float}))["bias"]
    assert codes.tolist() == IdentifiabilityRepair().fit_transform(X)["bias"].tolist()
    shelf = np.where(X["position"] % 4 > 1, "b", "a")
    text = X.assign(shelf=pd.Categorical(shelf))
    fitted = IdentifiabilityRepair("shelf").fit(text)
    pd.testing.assert_frame_equal(fitted.transform(X.assign(shelf=shelf)), fitted.transform(text))


@pytest.mark.parametrize("kind", CONVERT)
@pytest.mark.parametrize(
    "values",
    [
        [False, True, None],
        ["a", "b", None],
        [1, 2, None],
        [1.5, 2.5, None],
        pd.to_datetime(["2026-01-01", "2026-01-02", None]),
        pd.Categorical(["x", "y", None]),
    ],
    ids=["bool", "text", "int", "float", "date", "categorical"],
)
def test_types_of_bias_columns(kind, values):
    rows = [0, 1, 0, 2, 1]
    X = pd.DataFrame(
        {"doc": [0, 0, 1, 2, 3], "position": [1, 1, 2, None, 2], "kind": pd.Series(values)[rows]}
    ).assign(qid=1)
    X = CONVERT[kind](X.reset_index(drop=True))
    repair = IdentifiabilityRepair("kind").fit(X)
    assert repair.is_identifiable_
    bias = to_pandas(repair.transform(X))["bias"]
    np.testing.assert_array_equal(bias.to_numpy(dtype=float), [0, 1, 0, np.nan, 1])


def test_documents_without_ids_are_equal_features():
    X, clicks, _ = world()
    number = X["doc"].factorize()[0]
    plain = X.drop(columns="doc").assign(f0=number % 7, f1=number // 7)
    for strategy in ("merge", "intervene"):
        with_ids, without = (
            IdentifiabilityRepair(strategy=strategy, cost="random", random_state=0)
            for _ in range(2)
        )
        if strategy == "intervene":
            with pytest.warns(NotIdentifiableWarning):
                without.fit(plain, clicks)
            rows = without.interventions_["row"]
            assert (plain["position"][rows] > 0).all()
            assert len(without.intervened_lists_) == 10
        else:
            pd.testing.assert_frame_equal(
                with_ids.fit(X, clicks).merges_, without.fit(plain, clicks).merges_
            )


def test_arrays_have_no_roles():
    X = np.random.default_rng(0).normal(size=(8, 3))
    with pytest.warns(MissingRoleWarning, match="X is an array.*repairs nothing"):
        repair = IdentifiabilityRepair().fit(X)
    assert repair.is_identifiable_ is None
    assert repair.graph_ is None
    np.testing.assert_array_equal(repair.transform(X), X)
    with pytest.warns(MissingRoleWarning):
        out = IdentifiabilityRepair().fit_transform(sparse.csr_array(X))
    np.testing.assert_array_equal(out.toarray(), X)
    with pytest.warns(MissingRoleWarning, match="neither a column 'bias' nor 'position'"):
        IdentifiabilityRepair().fit(pd.DataFrame({"f0": [1.0, 2.0]}))


def test_lazy_frames_and_unfitted():
    lazy = pl.LazyFrame({"qid": [1], "doc": [1], "position": [1]})
    with pytest.raises(TypeError, match="lazy frame"):
        IdentifiabilityRepair().fit(lazy).transform(lazy)
    with pytest.raises(NotFittedError):
        IdentifiabilityRepair().transform(pd.DataFrame({"position": [1]}))


@pytest.mark.parametrize("kind", CONVERT)
def test_set_output(devices, kind):
    X, _ = devices
    repair = IdentifiabilityRepair(["position", "device"]).fit(CONVERT[kind](X))
    repair.set_output(transform="polars")
    assert isinstance(repair.transform(CONVERT[kind](X)), pl.DataFrame)
    repair.set_output(transform="pandas")
    out = repair.transform(CONVERT[kind](X))
    assert isinstance(out, pd.DataFrame)
    assert list(out.columns) == ["qid", "doc", "position", "doc_scope", "age", "bias"]


def test_row_order_and_repeats_do_not_matter():
    X, clicks, _ = world()
    order = np.random.default_rng(1).permutation(len(X))
    plain = IdentifiabilityRepair().fit(X, clicks)
    shuffled = IdentifiabilityRepair().fit(X.iloc[order], clicks[order])
    pd.testing.assert_frame_equal(plain.merges_, shuffled.merges_)
    weighted = IdentifiabilityRepair().fit(X, clicks, sample_weight=np.full(len(X), 2.0))
    np.testing.assert_allclose(weighted.merges_["cost"], plain.merges_["cost"])
    dropped = np.where(X["qid"] < 30, 1.0, 0.0)  # a row without weight was never shown
    some = IdentifiabilityRepair().fit(X, clicks, sample_weight=dropped)
    assert some.graph_.n_pairs < plain.graph_.n_pairs


# Interventions ---------------------------------------------------------------------------
@pytest.mark.filterwarnings(INTERVENES)
@pytest.mark.parametrize("kind", CONVERT)
def test_interventions_connect_the_log(kind):
    X, clicks, relevance = world(parts=((1, 3), (4, 6), (7, 8), (9, 10)))
    frame = CONVERT[kind](X)
    repair = IdentifiabilityRepair(strategy="intervene").fit(frame, clicks)
    assert len(repair.interventions_) == 3
    assert repair.error_bound_if_smooth_ == 0.0
    assert to_pandas(repair.transform(frame))["bias"].tolist() == (X["position"] - 1).tolist()
    lists = repair.intervened_lists_
    assert list(lists.columns) == ["intervention", "qid", "doc", "position", "doc_scope"]
    assert lists.index.tolist() == list(range(30))
    for number, swap in repair.interventions_.iterrows():
        page = lists[lists["intervention"] == number]
        assert page["position"].tolist() == list(range(1, 11))
        assert page["doc"].is_unique
        assert page.loc[page["doc"] == swap["doc"], "position"].item() == swap["to"]
        # One list of the log, but for two documents.
        logged = X[X["qid"] == page["qid"].iloc[0]]
        old = dict(zip(logged["doc"], logged["position"], strict=True))
        assert old[swap["doc"]] == swap["from"]
        moved = [
            doc
            for doc, place in zip(page["doc"], page["position"], strict=True)
            if old[doc] != place
        ]
        assert len(moved) == 2
    served = lists.assign(impressions=1)
    assert IdentifiabilityGraph.from_log(pd.concat([X, served])).is_connected
    # The documents that tell most are relevant, and move between well examined positions.
    assert (relevance[repair.interventions_["doc"]] >= 0.52).all()


@pytest.mark.filterwarnings(INTERVENES)
def test_clicks_on_served_lists_recover_relevance():
    X, clicks, relevance = world(parts=((1, 3), (4, 6), (7, 8), (9, 10)))
    lists = IdentifiabilityRepair(strategy="intervene").fit(X, clicks).intervened_lists_
    log = pd.concat([X, lists], ignore_index=True)
    rate = relevance[log["doc"]].to_numpy() * EXAMINATION[log["position"] - 1]
    # Whole lists and served ones: each a page of its own.
    pages = log["intervention"].fillna(1_000).astype(int)
    log = log.drop(columns="intervention").assign(impressions=10_000, session=pages)
    assert np.corrcoef(fitted_relevance(log, rate), relevance)[0, 1] > 1 - 1e-6


def test_rows_that_are_no_lists_have_none_to_serve():
    X, clicks, _ = world()
    twice, clicks = pd.concat([X, X], ignore_index=True), np.tile(clicks, 2)
    repair = IdentifiabilityRepair(strategy="intervene")
    with (
        pytest.warns(NotIdentifiableWarning, match="Serve the swaps"),
        pytest.warns(ClickDataWarning, match="two rows at one position"),
    ):
        repair.fit(twice, clicks)
    assert len(repair.interventions_) == 1
    assert repair.intervened_lists_ is None
    with pytest.warns(NotIdentifiableWarning, match="Serve the lists"):
        repair.fit(twice.assign(session=np.repeat([0, 1], len(X))), clicks)


@pytest.mark.filterwarnings(INTERVENES)
def test_given_estimates_decide():
    X, _, relevance = world()
    examination = dict(enumerate(EXAMINATION, start=1))
    for given in (relevance, relevance.to_dict()):
        repair = IdentifiabilityRepair(
            strategy="intervene", relevance=given, examination=examination
        ).fit(X)
        swap = repair.interventions_.iloc[0]
        # By hand: a document of relevance 1 at its best position, to the best on the other side.
        best = {}
        for doc, position in zip(X["doc"], X["position"], strict=True):
            to = 5 if position < 5 else 1
            cost = (1 / examination[position] + 1 / examination[to]) / relevance[doc] - 2
            best[cost] = (doc, position, to)
        assert swap["cost"] == pytest.approx(min(best))
        assert repair.total_cost_ == pytest.approx(min(best))
        assert relevance[swap["doc"]] == 1.0


@pytest.mark.filterwarnings(INTERVENES)
def test_random_interventions():
    X, clicks, _ = world(parts=((1, 3), (4, 6), (7, 8), (9, 10)))
    tables = [
        IdentifiabilityRepair(strategy="intervene", cost="random", random_state=seed)
        .fit(X, y)
        .interventions_
        for seed, y in ((0, None), (0, clicks), (1, None))
    ]
    pd.testing.assert_frame_equal(tables[0].drop(columns="cost"), tables[1].drop(columns="cost"))
    assert not tables[0].equals(tables[2])
    assert np.isnan(tables[0]["cost"]).all()
    best = IdentifiabilityRepair(strategy="intervene").fit(X, clicks)
    assert tables[1]["cost"].sum() > best.total_cost_


def test_interventions_warn_and_need_estimates():
    X, clicks, relevance = world()
    with pytest.raises(ValueError, match=r"y is None: pass y, or both relevance="):
        IdentifiabilityRepair(strategy="intervene").fit(X)
    with pytest.raises(ValueError, match="y is None"):
        IdentifiabilityRepair(strategy="intervene", relevance=relevance).fit(X)
    with pytest.warns(NotIdentifiableWarning, match="2 components.*Serve the lists"):
        IdentifiabilityRepair(strategy="intervene").fit(X, clicks)
    with pytest.warns(NotIdentifiableWarning, match="Serve the swaps of interventions_"):
        repair = IdentifiabilityRepair(strategy="intervene").fit(X.drop(columns="qid"), clicks)
    assert repair.intervened_lists_ is None


@pytest.mark.parametrize(
    ("estimates", "message"),
    [
        ({"relevance": {"0-1-0": 1.0}}, "relevance lacks 199 of 200 keys"),
        ({"examination": {1: 1.0}}, "examination lacks 9 of 10 keys of the log, first 2"),
        ({"examination": dict.fromkeys(range(1, 11), -1)}, r"examination is -1 for 1"),
        ({"examination": dict.fromkeys(range(1, 11), 5)}, r"examination is 5 for 1; expected a p"),
        ({"examination": dict.fromkeys(range(1, 11), "a")}, r"examination is 'a' for 1; expec"),
        ({"examination": dict.fromkeys(range(1, 11))}, r"examination is None for 1; expected"),
    ],
)
def test_bad_estimates(estimates, message):
    X, clicks, _ = world()
    for strategy in ("intervene", "merge")[: 1 + ("examination" in estimates)]:
        with pytest.raises(ValueError, match=message):
            IdentifiabilityRepair(strategy=strategy, **estimates).fit(X, clicks)


@pytest.mark.filterwarnings(INTERVENES)
def test_a_lucky_click_is_no_relevance():
    X, clicks, _ = world()
    lucky = pd.DataFrame(
        {"qid": 0, "session": "x", "doc": "lucky", "position": [1], "impressions": 1}
    )
    log = pd.concat([X.assign(session="s"), lucky], ignore_index=True).assign(doc_scope="global")
    repair = IdentifiabilityRepair(strategy="intervene").fit(log, np.append(clicks, 1.0))
    assert repair.interventions_["doc"].item() != "lucky"


@pytest.mark.filterwarnings(INTERVENES)
def test_swaps_prefer_lists_that_are_long_enough():
    X, clicks, _ = world()
    # The best documents stand in lists of four only.
    short = pd.DataFrame(
        {"qid": 99, "doc": ["p", "q", "r", "s"], "position": [1, 2, 3, 4], "impressions": 1000}
    )
    again = short.assign(qid=98, position=[2, 1, 3, 4])
    log = pd.concat([X, short, again], ignore_index=True).assign(doc_scope="global")
    clicks = np.concatenate([clicks * 0.5, np.tile([0.9] * 4, 2)])
    repair = IdentifiabilityRepair(strategy="intervene").fit(log, clicks)
    assert repair.interventions_["doc"].item() not in list("pqrs")
    assert len(repair.intervened_lists_) == 10


@pytest.mark.filterwarnings(INTERVENES)
def test_swaps_that_no_list_can_carry_out_are_named():
    X = pd.DataFrame(
        {"qid": [0, 1], "doc": ["a", "b"], "position": [1, 7], "impressions": [100, 100]}
    ).drop(index=[1])
    X = pd.concat(
        [X, pd.DataFrame({"qid": [1], "doc": ["b"], "position": [7], "impressions": [100]})]
    )
    with pytest.warns(ClickDataWarning, match=r"1 of 1 intervention cannot .*'b' from 7 to 1"):
        repair = IdentifiabilityRepair(
            strategy="intervene",
            relevance={(0, "a"): 1.0, (1, "b"): 0.1},
            examination={1: 1.0, 7: 0.5},
        ).fit(X)
    assert repair.intervened_lists_.empty
    assert list(repair.intervened_lists_.columns) == ["intervention", "qid", "doc", "position"]


@pytest.mark.filterwarnings(INTERVENES)
def test_contexts_of_pages_and_of_documents(devices):
    X, clicks = devices
    repair = IdentifiabilityRepair(["position", "device"], strategy="intervene").fit(X, clicks)
    lists = repair.intervened_lists_
    assert list(lists.columns) == ["intervention", "qid", "doc", "position", "device", "doc_scope"]
    for number, swap in repair.interventions_.iterrows():
        page = lists[lists["intervention"] == number]
        assert page["device"].nunique() == 1
        row = page[page["doc"] == swap["doc"]].iloc[0]
        assert (row["position"], row["device"]) == swap["to"]
    log = pd.concat([X, lists], ignore_index=True)
    assert IdentifiabilityGraph.from_log(log, bias=["position", "device"]).is_connected

    # A snippet is a matter of the document: only the two that are swapped change theirs.
    snippets = X.rename(columns={"device": "snippet"})
    snippets["snippet"] = ["long", "short", "long"] * 4
    repair = IdentifiabilityRepair("snippet", strategy="intervene").fit(snippets, clicks)
    if not repair.is_identifiable_:
        assert repair.intervened_lists_["snippet"].nunique() == 2


# In searches -----------------------------------------------------------------------------
class ClickRate(BaseEstimator):
    """Predicts the click rate of a row's bias factor: what the repair writes matters."""

    def fit(self, X, y):
        self.rates_ = pd.Series(y).groupby(X["bias"].to_numpy()).mean()
        return self

    def predict(self, X):
        return X["bias"].map(self.rates_).fillna(0.0).to_numpy()

    def score(self, X, y):
        return -float(np.mean((self.predict(X) - y) ** 2))


@pytest.mark.filterwarnings(INTERVENES)
def test_pipeline_and_grid_search():
    X, clicks, _ = world()
    X["f0"] = X["doc"].factorize()[0].astype(float)
    X["shelf"] = np.where(X["position"] > 5, "low", "high")
    pipeline = make_pipeline(
        IdentifiabilityRepair(["position", "shelf"]), OnFeatures(StandardScaler()), ClickRate()
    )
    grid = {
        "identifiabilityrepair__strategy": ["merge", "intervene"],
        "identifiabilityrepair__position_weight": [0.5, 10.0],
    }
    search = GridSearchCV(pipeline, grid, cv=QueryKFold(3), error_score="raise").fit(X, clicks)
    score = search.cv_results_["mean_test_score"]
    assert np.isfinite(score).all()
    assert len(set(score)) > 1  # what is searched reaches the last step
    assert len(search.predict(X)) == len(X)
