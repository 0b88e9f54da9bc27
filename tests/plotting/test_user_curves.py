import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from skultr.plotting import ExaminationDisplay
from skultr.propensity import PowerLawPropensity, RegressionEMPropensity, UserClusters

POSITIONS = np.arange(1, 6)


def table(etas, *, users=None, error=None, name="user"):
    """Power laws, a curve a user."""
    users = range(len(etas)) if users is None else users
    index = pd.MultiIndex.from_product([users, POSITIONS], names=[name, "bias"])
    curves = POSITIONS ** -np.asarray(etas, dtype=float)[:, None]
    found = pd.DataFrame({"examination": curves.ravel()}, index=index)
    return found if error is None else found.assign(standard_error=error)


def names(display):
    """Texts of the legend."""
    legend = display.ax_.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def luminance(line):
    from matplotlib.colors import to_rgb

    return np.mean(to_rgb(line.get_color()))


def test_a_line_a_user_coloured_by_how_far_down_they_look():
    display = ExaminationDisplay.from_estimator(table([0.5, 2.0, 1.0], users=["x", "y", "z"]))
    assert set(display.lines_) == {"x", "y", "z"}
    assert_allclose(display.lines_["y"].get_ydata(), POSITIONS**-2.0)
    assert_allclose(display.lines_["y"].get_xdata(), POSITIONS)
    light = {user: luminance(line) for user, line in display.lines_.items()}
    assert light["y"] < light["z"] < light["x"]
    assert display.truth_line_ is None
    assert display.ax_.get_ylabel() == "examination relative to position 1"
    assert names(display) == ["y", "z", "x"]  # by how far down they look


def test_intervals():
    display = ExaminationDisplay.from_estimator(table([1.0, 2.0], error=0.2), confidence_level=0.9)
    bands = [c for c in display.ax_.collections if c.get_alpha() == 0.18]
    assert len(bands) == 2
    highest = max(y for band in bands for _, y in band.get_paths()[0].vertices)
    assert_allclose(highest, np.exp(1.6448536 * 0.2))
    for unknown in (np.nan, np.inf):
        display = ExaminationDisplay.from_estimator(table([1.0], error=unknown))
        assert not display.ax_.collections
        assert np.isfinite(display.ax_.get_ylim()).all()


@pytest.mark.parametrize("kind", ["array", "frame", "series", "dict"])
def test_truth_is_scaled_by_one_number(kind):
    etas = np.array([1.0, 2.0])
    true = 0.5 * POSITIONS ** -etas[:, None]
    frame = pd.DataFrame(true, columns=POSITIONS)
    given = {"array": true, "frame": frame, "series": frame.stack(), "dict": dict(frame.stack())}
    display = ExaminationDisplay.from_estimator(table(etas), truth=given[kind])
    for path, eta in zip(display.truth_line_.get_segments(), etas, strict=True):
        assert_allclose(path[:, 1], POSITIONS**-eta)
    assert names(display) == ["1", "0", "truth"]


def test_scale_of_the_truth_is_that_of_the_mean_user_by_clicks():
    estimate = table([1.0, 1.0])
    estimate.loc[[0]] *= 2
    estimate["clicks"] = np.repeat([300.0, 100.0], 5)
    display = ExaminationDisplay.from_estimator(estimate, truth=np.tile(1 / POSITIONS, (2, 1)))
    for path in display.truth_line_.get_segments():
        assert_allclose(path[0, 1], 2**0.75)


def test_many_users_have_a_scale_and_no_names():
    etas = np.random.default_rng(0).uniform(0, 2, 100)
    display = ExaminationDisplay.from_estimator(table(etas, error=0.1))
    assert len(display.lines_) == 100
    assert not names(display)
    assert not display.ax_.collections
    (scale,) = set(display.figure_.axes) - {display.ax_}
    assert scale.get_ylabel() == "mean position that a user examines"
    truth = POSITIONS ** -etas[:, None]
    display = ExaminationDisplay.from_estimator(table(etas), truth=truth)
    assert len(display.truth_line_.get_segments()) == 100


def test_what_the_log_does_not_determine_is_left_out():
    estimate = table([1.0, 2.0, 1.0])
    estimate.loc[1] = np.nan
    estimate.loc[(2, 5), "examination"] = np.nan
    display = ExaminationDisplay.from_estimator(estimate, truth=np.ones((3, 5)))
    assert set(display.lines_) == {0, 2}
    assert np.isnan(display.lines_[2].get_ydata()[4])
    with pytest.raises(ValueError, match="determines the examination of no user"):
        ExaminationDisplay.from_estimator(estimate * np.nan)


def simulated(etas):
    """Clicks without noise, every document at every position, for every user."""
    X = pd.MultiIndex.from_product(
        [range(len(etas)), range(3), POSITIONS], names=["user", "doc", "position"]
    ).to_frame(index=False)
    X = X.assign(qid=1, session=X["user"] * 3 + (X["doc"] + X["position"]) % 3, impressions=1000)
    X = X[X["position"] <= 3]
    relevance = np.array([0.9, 0.5, 0.3])[X["doc"]]
    return X, relevance * X["position"] ** -np.asarray(etas)[X["user"]]


def test_estimators_and_clusters():
    X, rate = simulated([2.0, 0.5, 2.0, 0.5])
    propensity = RegressionEMPropensity(user="user", relevance="embedding")
    display = ExaminationDisplay.from_estimator(propensity.fit(X, rate))
    assert_allclose(display.lines_[0].get_ydata(), [1, 1 / 4, 1 / 9], atol=0.02)
    clusters = UserClusters(2, propensity=propensity, random_state=0).fit(X, rate)
    display = ExaminationDisplay.from_estimator(clusters)
    assert set(display.lines_) == {0, 1}
    assert_allclose(display.lines_[1].get_ydata(), [1, 2**-0.5, 3**-0.5], atol=0.02)
    assert display.ax_.get_legend().get_title().get_text() == "cluster"
    known = PowerLawPropensity(eta={0: 2.0, 1: 0.5, 2: 2.0, 3: 0.5}).fit(X, rate)
    display = ExaminationDisplay.from_estimator(known)
    assert_allclose(display.lines_[3].get_ydata(), [1, 2**-0.5, 3**-0.5])
    ExaminationDisplay.from_estimators(
        {"EM": propensity.average_examination_, "one": known.examination_.loc[0]}
    )


def test_bad_input():
    curves = table([1.0, 2.0])
    with pytest.raises(ValueError, match="'own' has one curve per user; expected it alone"):
        ExaminationDisplay.from_estimators({"own": curves, "shrunk": curves})
    for truth in (1 / POSITIONS, np.ones((1, 5))):
        with pytest.raises(ValueError, match=r"shape .* curves of the users 0, 1; expected an"):
            ExaminationDisplay.from_estimator(curves, truth=truth)
    with pytest.raises(ValueError, match="curves of the users a, b"):
        ExaminationDisplay.from_estimator(
            table([1.0, 2.0], users=["a", "b"]), truth=np.ones((2, 5))
        )
    with pytest.raises(ValueError, match="no user and bias factor in common"):
        ExaminationDisplay.from_estimator(curves, truth={("a", 1): 1.0, ("a", 2): 0.5})
