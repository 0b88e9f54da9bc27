"""Every display can be read by whoever did not draw it: a title, whole positions, no overprint."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot

from skultr.identifiability import IdentifiabilityGraph
from skultr.plotting import (
    DebiasednessDisplay,
    EmbeddingDisplay,
    ExaminationDisplay,
    IdentifiabilityDisplay,
)
from skultr.plotting._relevance import _apart
from skultr.plotting._thresholds import COPIES, HARDLY_COPIES


def curve(index):
    index = pd.Index(index, tupleize_cols=False)
    return pd.DataFrame({"examination": 1 / np.arange(1, len(index) + 1)}, index=index)


def users(n_users, n_positions=10):
    index = pd.MultiIndex.from_product(
        [range(n_users), range(1, n_positions + 1)], names=["user", "bias"]
    )
    eta = np.linspace(0.1, 2, n_users)
    examination = np.arange(1, n_positions + 1) ** -eta[:, None]
    return pd.DataFrame({"examination": examination.ravel()}, index=index)


def examination(table):
    return lambda ax=None: ExaminationDisplay.from_estimator(table, ax=ax)


def embedding(names, angles, n_axes=2):
    observation = np.stack([np.cos(angles), np.sin(angles)], axis=1)[:, :n_axes]
    index = pd.Index(names, tupleize_cols=False)
    display = EmbeddingDisplay(
        relevance_embedding=np.random.default_rng(0).normal(size=(60, n_axes)),
        observation_embedding=pd.DataFrame(observation, index=index),
        base_vectors=pd.DataFrame(observation[:1]),
        relevance=np.arange(60) % 5,
    )
    return display.plot


def debiasedness(cmip):
    rng = np.random.default_rng(0)
    documents = pd.DataFrame(
        {
            "score": rng.normal(size=90),
            "logged": rng.uniform(1, 18, 90),
            "grade": np.arange(90) % 3,
        }
    )
    return DebiasednessDisplay(documents, cmip=cmip).plot


def graph(factor, is_connected):
    factor = np.array(factor)
    shown = np.r_[factor, np.roll(factor, 1)] if is_connected else np.r_[factor, factor]
    doc = np.arange(len(factor))
    found = IdentifiabilityGraph(np.r_[doc, doc], shown)
    return lambda ax=None: IdentifiabilityDisplay.from_graph(found, ax=ax)


DEVICES = [(k, device) for k in range(1, 21) for device in ("phone", "tablet")]
NEARLY_ONE_WAY = 0.02 * np.arange(10)
DISPLAYS = {
    "ten positions": examination(curve(range(1, 11))),
    "20 positions": examination(curve(range(1, 21))),
    "50 positions": examination(curve(range(1, 51))),
    "devices": examination(curve(DEVICES)),
    "500 factors": examination(curve(range(500))),
    "18 users": examination(users(18)),
    "users of 20 positions": examination(users(30, 20)),
    "arrows side by side": embedding(range(1, 11), NEARLY_ONE_WAY),
    "arrows of devices": embedding(DEVICES[:10], NEARLY_ONE_WAY),
    "arrows around": embedding(range(1, 21), np.linspace(0, 6, 20)),
    "arrows on a line": embedding(range(1, 11), NEARLY_ONE_WAY, n_axes=1),
    "copies": debiasedness(0.31),
    "60 components": graph(range(60), is_connected=False),
    "60 in a circle": graph(range(60), is_connected=True),
    "100 components": graph(range(100), is_connected=False),
    "devices in a circle": graph([f"{k} · {device}" for k, device in DEVICES], is_connected=False),
}


def boxes(artists, display):
    """Boxes of what is drawn, less a rim of two pixels: letters do not fill theirs."""
    renderer = display.figure_.canvas.get_renderer()
    shown = [each for each in artists if each.get_visible() and each.get_text()]
    return {each.get_text(): each.get_window_extent(renderer).padded(-2) for each in shown}


@pytest.mark.parametrize("name", DISPLAYS)
def test_title_ticks_and_names_can_be_read(name):
    display = DISPLAYS[name]()
    display.figure_.canvas.draw()
    ax = display.ax_
    assert ax.get_title()

    # Ticks outside the limits are not drawn.
    low, high = ax.get_xlim()
    labels = {
        at: label for at, label in zip(ax.get_xticks(), ax.get_xticklabels(), strict=True)
        if low <= at <= high
    }  # fmt: skip
    if "position" in ax.get_xlabel():
        assert labels
        assert all(label.get_text() == f"{round(at)}" for at, label in labels.items())
        assert 0 not in labels

    # A turned name has a box far wider than its letters: names that are turned are not compared.
    upright = [text for text in [*labels.values(), *ax.texts] if text.get_rotation() % 180 == 0]
    for (one, box), (two, other) in combinations(boxes(upright, display).items(), 2):
        assert not box.overlaps(other), f"{one} lies on {two}"

    page = display.figure_.bbox.padded(1)
    written = [ax.title, ax.xaxis.label, ax.yaxis.label, *labels.values(), *ax.texts]
    for text, box in boxes(written, display).items():
        assert page.contains(*box.min), f"{text} leaves the figure"
        assert page.contains(*box.max), f"{text} leaves the figure"

    legend = ax.get_legend()
    if legend is not None:
        area = legend.get_window_extent().padded(-2)
        assert page.contains(*area.min)
        assert page.contains(*area.max)
        for text, box in boxes([*ax.texts, ax.title], display).items():
            assert not box.overlaps(area), f"the legend lies on {text}"
    (heading,) = boxes([ax.title], display).values()
    for text, box in boxes(ax.texts, display).items():
        assert not box.overlaps(heading), f"the title lies on {text}"


@pytest.mark.parametrize("name", DISPLAYS)
def test_title_ends_before_the_next_axes(name):
    figure, axes = pyplot.subplots(1, 2, figsize=(8, 3.5), layout="constrained")
    left, right = (DISPLAYS[name](ax=ax).ax_ for ax in axes)
    figure.canvas.draw()
    assert not left.title.get_window_extent().overlaps(right.title.get_window_extent())


def test_names_of_factors_are_far_enough_apart_to_be_told():
    display = DISPLAYS["devices"]()
    inches = display.figure_.get_figwidth() * display.ax_.get_position().width
    assert len(display.ax_.get_xticks()) == 40
    assert inches / 40 > 0.15
    # In axes of the user there is less room, and not every name is written.
    _, ax = pyplot.subplots(figsize=(4, 3))
    assert 10 < len(DISPLAYS["devices"](ax=ax).ax_.get_xticks()) < 25


@pytest.mark.parametrize(
    ("cmip", "verdict"),
    [
        (-0.001, "m hardly copies the old ranking"),
        (HARDLY_COPIES.value - 0.001, "m hardly copies the old ranking"),
        (HARDLY_COPIES.value, "m copies the old ranking in part"),
        (COPIES.value - 0.001, "m copies the old ranking in part"),
        (COPIES.value, "m copies the old ranking"),
    ],
)
def test_cmip_is_called_good_or_bad(cmip, verdict):
    ax = debiasedness(cmip)(name="m").ax_
    said, scale = ax.get_title().split("\n")
    assert said == verdict
    assert scale == f"CMIP = {abs(cmip):.2f} (0 is best, bad from 0.2)"


def test_good_and_bad_have_colours_of_their_own():
    colors = {debiasedness(cmip)().ax_.title.get_color() for cmip in (0.0, 0.15, 0.31)}
    assert len(colors) == 3


@pytest.mark.parametrize("start", [0.0, 3.0, -3.1])
def test_angles_are_moved_apart_and_keep_their_order(start):
    angles = start + np.array([0.0, 0.3, 0.01, 0.02])
    # As the arc tangent gives them, from -pi to pi.
    apart = _apart(np.angle(np.exp(1j * angles)), 0.1)
    turned = np.unwrap(apart[[0, 2, 3, 1]])
    assert (np.diff(turned) >= 0.1 - 1e-12).all()
    # Three are moved around their mean; one was far enough away.
    np.testing.assert_allclose(np.exp(1j * apart[2]), np.exp(1j * (start + 0.01)))
    np.testing.assert_allclose(np.exp(1j * apart[1]), np.exp(1j * (start + 0.3)))
