import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from numpy.testing import assert_allclose
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skultr.plotting import ExaminationDisplay
from skultr.rankers import DLARanker
from skultr.simulation import EYE_TRACKING

TRUTH = np.array(EYE_TRACKING)


def table(examination, error=None, index=None):
    index = pd.RangeIndex(1, len(examination) + 1) if index is None else index
    found = pd.DataFrame({"examination": np.asarray(examination, dtype=float)}, index=index)
    return found if error is None else found.assign(standard_error=error)


class Model:
    """What the display needs of a fitted ranker."""

    def __init__(self, examination=None):
        if examination is not None:
            self.examination_ = examination

    def fit(self, X, y=None):
        return self

    def __sklearn_tags__(self):
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))


def legend(display):
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


def bands(display):
    return [
        p for p in display.ax_.collections if hasattr(p, "get_paths") and p.get_alpha() == 0.18
    ]


def test_curves_are_relative_to_the_first_factor_in_common():
    display = ExaminationDisplay.from_estimators(
        {"DLA": table(3 * TRUTH), "IPS": table(TRUTH[1:], index=range(2, 11))}, truth=TRUTH / 2
    )
    assert_allclose(display.lines_["DLA"].get_ydata(), TRUTH / TRUTH[1])
    assert_allclose(display.lines_["DLA"].get_xdata(), np.arange(1, 11))
    assert_allclose(display.lines_["IPS"].get_ydata(), TRUTH[1:] / TRUTH[1])
    assert_allclose(display.truth_line_.get_ydata(), TRUTH / TRUTH[1])
    assert legend(display) == ["DLA", "IPS", "truth"]
    assert display.ax_.get_xlabel() == "position"
    assert display.ax_.get_ylabel() == "examination relative to position 2"
    assert display.ax_.get_ylim()[0] == 0


def test_interval_is_that_of_the_logarithm():
    error = np.linspace(0, 0.3, 10)
    display = ExaminationDisplay.from_estimator(
        table(TRUTH, error), name="DLA", confidence_level=0.9
    )
    (band,) = bands(display)
    low, high = np.full(10, np.inf), np.zeros(10)
    for x, y in band.get_paths()[0].vertices:
        low[round(x) - 1], high[round(x) - 1] = (
            min(low[round(x) - 1], y),
            max(high[round(x) - 1], y),
        )
    relative = TRUTH / TRUTH[0]
    assert_allclose(high, relative * np.exp(1.6448536 * error))
    assert_allclose(low, relative / np.exp(1.6448536 * error))
    assert not bands(ExaminationDisplay.from_estimator(table(TRUTH)))
    assert not bands(ExaminationDisplay.from_estimator(table(TRUTH, np.nan)))


def test_what_the_log_does_not_determine_is_hollow():
    error = np.where(np.arange(10) < 4, 0.1, np.inf)
    display = ExaminationDisplay.from_estimators(
        {"a": table(TRUTH, error), "b": table(TRUTH, error)}, truth=TRUTH
    )
    assert legend(display).count("not determined by the log") == 1
    hollow = [line for line in display.ax_.lines if line.get_markerfacecolor() == "white"]
    assert [line.get_xdata().tolist() for line in hollow] == [[5, 6, 7, 8, 9, 10]] * 2
    assert np.isfinite(display.ax_.get_ylim()).all()


def test_one_wild_interval_does_not_flatten_the_curve():
    display = ExaminationDisplay.from_estimator(table(TRUTH, np.r_[np.zeros(9), 1e6]))
    assert display.ax_.get_ylim()[1] < 3.5


@pytest.mark.parametrize("truth", [dict, pd.Series, list])
def test_kinds_of_truth(truth):
    by_position = dict(enumerate(TRUTH.tolist(), start=1))
    given = TRUTH.tolist() if truth is list else truth(by_position)
    display = ExaminationDisplay.from_estimator(table(TRUTH[:4]), truth=given)
    assert_allclose(display.truth_line_.get_ydata(), TRUTH / TRUTH[0])


def test_factors_of_any_kind():
    index = pd.Index([(k, d) for k in (1, 2) for d in ("phone", "tablet")], tupleize_cols=False)
    display = ExaminationDisplay.from_estimator(table([1, 0.9, 0.5, 0.4], index=index), name="DLA")
    labels = [text.get_text() for text in display.ax_.get_xticklabels()]
    assert labels == ["1 · phone", "1 · tablet", "2 · phone", "2 · tablet"]
    assert display.ax_.get_xlabel() == "bias factor"
    assert display.ax_.get_ylabel() == "examination relative to 1 · phone"
    truth = dict(zip(index, [1, 0.8, 0.5, 0.3], strict=True))
    for given in (truth, pd.Series(truth)):
        display = ExaminationDisplay.from_estimator(table([2, 1, 1, 1], index=index), truth=given)
        assert_allclose(display.truth_line_.get_ydata(), [1, 0.8, 0.5, 0.3])
    named = table([1.0, 0.5], index=["top", "side"])
    display = ExaminationDisplay.from_estimator(named, truth={"top": 1.0, "side": 0.6})
    assert_allclose(display.lines_["estimate"].get_ydata(), [1, 2])  # sorted: side, top


def test_many_factors_are_sorted():
    examination = np.random.default_rng(0).uniform(0.1, 1, 500)
    falling = np.sort(examination)[::-1] / examination.max()
    display = ExaminationDisplay.from_estimator(table(examination), name="DLA")
    assert_allclose(display.lines_["DLA"].get_ydata(), falling)
    assert display.truth_line_ is None
    display = ExaminationDisplay.from_estimator(table(1 + examination), truth=examination)
    assert_allclose(display.truth_line_.get_ydata(), falling)


def test_models_are_found_where_they_are():
    model = Model(table(TRUTH))
    search = type("Search", (), {"best_estimator_": make_pipeline(StandardScaler(), model)})()
    for estimator in (model, make_pipeline(StandardScaler(), model), search):
        display = ExaminationDisplay.from_estimator(estimator)
        assert list(display.lines_) == ["Model"]
    again = display.plot()
    assert again is display
    assert again.figure_ is again.ax_.figure


class Repair(Model):
    """What the display needs of a fitted IdentifiabilityRepair."""

    def __init__(self, factors):
        self.factors_ = factors

    def transform(self, X):
        return X


def test_codes_of_a_repair_are_drawn_as_what_they_stand_for():
    model = Model(table([0.9, 0.3], 0.1, index=[0, 1]))
    factors = pd.DataFrame({"position": [1, 2, 3], "code": [0, 1, 1]})
    display = ExaminationDisplay.from_estimator(
        make_pipeline(Repair(factors), StandardScaler(), model), truth=[1, 0.5, 0.25]
    )
    assert_allclose(display.lines_["Model"].get_xdata(), [1, 2, 3])
    assert_allclose(display.lines_["Model"].get_ydata(), [1, 1 / 3, 1 / 3])
    devices = pd.DataFrame({"position": [1, 1, 2], "device": ["a", "b", "a"], "code": [0, 1, 5]})
    display = ExaminationDisplay.from_estimator(make_pipeline(Repair(devices), model))
    labels = [text.get_text() for text in display.ax_.get_xticklabels()]
    assert labels == ["1 · a", "1 · b"]  # the model never saw code 5
    with pytest.raises(ValueError, match="'Model' has a bias factor 0"):
        ExaminationDisplay.from_estimator(model, truth=[1, 0.5])


def test_a_ranker():
    from skultr import DLARanker
    from skultr.datasets import make_ltr
    from skultr.simulation import UniformPolicy, simulate_clicks

    documents = make_ltr(20, 5, n_features=4, random_state=0)
    X, clicks, truth = simulate_clicks(
        documents, n_sessions=300, n_positions=4, policy=UniformPolicy(), random_state=0
    )
    ranker = DLARanker(max_epochs=2, random_state=0).fit(X, clicks)
    _, ax = pyplot.subplots()
    display = ExaminationDisplay.from_estimator(ranker, truth=truth.examination, ax=ax)
    assert display.ax_ is ax
    assert legend(display) == ["DLARanker", "truth"]


def test_bad_input():
    with pytest.raises(NotFittedError):
        ExaminationDisplay.from_estimator(Model())
    with pytest.raises(TypeError, match="DataFrame has no table of examination"):
        ExaminationDisplay.from_estimator(pd.DataFrame({"propensity": [1.0]}))
    with pytest.raises(TypeError, match="StandardScaler has no table of examination"):
        ExaminationDisplay.from_estimator(StandardScaler().fit([[1.0], [2.0]]))
    for estimators in ({}, [Model(table(TRUTH))], Model(table(TRUTH))):
        with pytest.raises(ValueError, match="must map names to fitted models"):
            ExaminationDisplay.from_estimators(estimators)
    with pytest.raises(ValueError, match="No bias factor has an examination above 0"):
        ExaminationDisplay.from_estimator(table(TRUTH, index=range(20, 30)), truth=TRUTH)
    with pytest.raises(ValueError, match=r"truth has the shape \(2, 10\)"):
        ExaminationDisplay.from_estimator(table(TRUTH), truth=[TRUTH, TRUTH])
    for confidence_level in (0, 1, 95, "95 %"):
        with pytest.raises(ValueError, match="confidence_level must be"):
            ExaminationDisplay.from_estimator(table(TRUTH), confidence_level=confidence_level)


def test_comparison_draws_both_curves():
    curves = pd.DataFrame(
        {"table": [1.0, 0.5], "standard_error": [0.0, 0.1], "network": [1.0, 0.3]},
        index=pd.Index([1, 2], name="bias"),
    )
    ranker = DLARanker()
    ranker.examination_comparison_ = curves
    display = ExaminationDisplay.from_comparison(ranker, truth=[1.0, 0.5])
    assert list(display.lines_) == ["table", "network"]
    np.testing.assert_allclose(display.lines_["network"].get_ydata(), [1.0, 0.3])
    with pytest.raises(TypeError, match="DLARanker has no examination_comparison_"):
        ExaminationDisplay.from_comparison(DLARanker())
