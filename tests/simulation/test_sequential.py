"""Users who read down or across, against the events that their docstrings tell, one by one."""

from itertools import product

import numpy as np
import pytest

from skultr.datasets import make_ltr
from skultr.simulation import (
    CarouselUser,
    CascadeUser,
    DBNUser,
    DCMUser,
    MixtureDBNUser,
    PositionBasedUser,
    UBMUser,
    UniformPolicy,
    simulate_clicks,
)

RELEVANCE = np.array([0.7, 0.3, 1.0, 0.45])
UBM_TABLE = np.array(
    [[0.9, 0, 0, 0], [0.5, 0.8, 0, 0], [0.3, 0.4, 0.7, 0], [0.2, 0.25, 0.35, 0.6]]
)


# --------------------------------------------------------------------------------------
# P(clicks) of whole lists, told as stories; nothing here reads skultr._models._browsing
# --------------------------------------------------------------------------------------
def chain_story(relevance, on_after):
    """P of each click pattern; ``on_after(k, r, clicked)`` is P(goes on)."""
    patterns = {}

    def read(k, clicks, p):
        if k == len(relevance):
            patterns[clicks] = patterns.get(clicks, 0) + p
            return
        for clicked in (0, 1):
            here = p * (relevance[k] if clicked else 1 - relevance[k])
            on = on_after(k, relevance[k], clicked)
            read(k + 1, (*clicks, clicked), here * on)
            rest = (*clicks, clicked) + (0,) * (len(relevance) - k - 1)
            patterns[rest] = patterns.get(rest, 0) + here * (1 - on)

    read(0, (), 1.0)
    return patterns


def dbn(relevance, gamma=0.8, satisfaction=0.5):
    def on_after(k, r, clicked):
        return gamma * (1 - satisfaction * r) if clicked else gamma

    return chain_story(relevance, on_after)


def ubm(relevance, table):
    patterns = {}
    for clicks in product((0, 1), repeat=len(relevance)):
        p, last = 1.0, 0
        for k, clicked in enumerate(clicks):
            click = relevance[k] * table[k][last]
            p *= click if clicked else 1 - click
            last = k + 1 if clicked else last
        patterns[clicks] = p
    return patterns


def mixture(relevance, share=0.7):
    up = {clicks[::-1]: p for clicks, p in dbn(relevance[::-1]).items()}
    return {clicks: share * p + (1 - share) * up[clicks] for clicks, p in dbn(relevance).items()}


def carousel(relevance, n_columns=2, eta=0.5):
    rows = [relevance[i : i + n_columns] for i in range(0, len(relevance), n_columns)]
    weight = np.array([np.mean(row) * (i + 1) ** -eta for i, row in enumerate(rows)])
    patterns = {}
    for i, chosen in enumerate(weight / weight.sum()):
        before = (0,) * (i * n_columns)
        for clicks, p in dbn(rows[i]).items():
            after = (0,) * (len(relevance) - len(before) - len(clicks))
            whole = before + clicks + after
            patterns[whole] = patterns.get(whole, 0) + chosen * p
    return patterns


LAMBDA = [0.6, 0.2, 0.9, 0.5]
STORIES = {
    "dbn": (DBNUser(0.8), dbn(RELEVANCE)),
    "simplified-dbn": (DBNUser(1.0, 0.9), dbn(RELEVANCE, 1.0, 0.9)),
    "cascade": (CascadeUser(), chain_story(RELEVANCE, lambda k, r, c: 1 - c)),
    "dcm": (DCMUser(LAMBDA), chain_story(RELEVANCE, lambda k, r, c: LAMBDA[k] if c else 1)),
    "ubm": (UBMUser(UBM_TABLE), ubm(RELEVANCE, UBM_TABLE)),
    "mixture": (MixtureDBNUser(0.8), mixture(RELEVANCE)),
    "carousel": (CarouselUser(0.8, n_columns=2, eta=0.5), carousel(RELEVANCE)),
    "ragged-carousel": (CarouselUser(0.8, n_columns=3, eta=0.5), carousel(RELEVANCE, 3)),
}


@pytest.fixture(params=STORIES, scope="module")
def story(request):
    return STORIES[request.param]


def test_click_probability_matches_enumeration(story):
    user, patterns = story
    expected = sum(p * np.array(clicks) for clicks, p in patterns.items())
    np.testing.assert_allclose(user.click_probability(RELEVANCE[None])[0], expected, atol=1e-12)


def test_clicks_have_the_frequencies_of_the_enumeration(story):
    user, patterns = story
    n = 100_000
    clicks = user.click(np.tile(RELEVANCE, (n, 1)), np.random.default_rng(0))
    code = clicks @ (8, 4, 2, 1)
    expected = np.zeros(16)
    for pattern, p in patterns.items():
        expected[np.dot(pattern, (8, 4, 2, 1))] = p
    rate = np.bincount(code, minlength=16) / n
    assert not rate[expected == 0].any()
    error = (rate - expected) / np.sqrt(expected * (1 - expected) / n + 1e-300)
    assert np.abs(error).max() < 4


# --------------------------------------------------------------------------------------
# Short lists, and lists of nothing
# --------------------------------------------------------------------------------------
def test_nothing_is_clicked_at_empty_places():
    sequential = (DBNUser, CascadeUser, DCMUser, UBMUser, CarouselUser, MixtureDBNUser)
    for user in (kind() for kind in sequential):
        empty = [-1.0 if user.marks_empty else 0.0] * 6
        assert not user.click_probability(np.append(RELEVANCE, empty)[None])[0, 4:].any()


def test_who_reads_up_begins_with_the_last_document_shown():
    user = MixtureDBNUser(0.5, 0.0, top_down=0.0)
    p = user.click_probability(np.array([[1.0, 1.0, -1.0], [1.0, 1.0, 0.0]]))
    np.testing.assert_allclose(p, [[0.5, 1, 0], [0.25, 0.5, 0]])
    clicks = user.click(np.tile([1.0, 1.0, -1.0], (5_000, 1)), np.random.default_rng(0))
    assert clicks[:, 1].all()
    assert abs(clicks[:, 0].mean() - 0.5) < 0.03
    assert not clicks[:, 2].any()


def test_simulated_lists_of_different_length_tell_who_reads_up():
    documents = make_ltr(30, (2, 6), 3, random_state=0)
    user = MixtureDBNUser(0.5, 0.0, top_down=0.0)
    X, clicks, _ = simulate_clicks(
        documents.assign(relevance=4), n_sessions=3_000, policy=UniformPolicy(), user=user,
        scores=documents["relevance"], features=False, random_state=0,
    )  # fmt: skip
    last = X["position"] == X.groupby("session")["position"].transform("max")
    assert clicks[last].all()
    assert clicks[~last].mean() < 0.6


def test_empty_places_are_no_part_of_a_row_of_a_carousel():
    user = CarouselUser(n_columns=2, eta=0.0)
    page = np.array([[0.5, 0.5, 0.5, -1.0], [0.5, 0.5, 0.5, 0.0]])
    np.testing.assert_allclose(user.choice_probability(page), [[0.5, 0.5], [2 / 3, 1 / 3]])


def test_nothing_relevant_is_never_clicked():
    nothing = np.zeros((200, 4))
    for user, _ in STORIES.values():
        assert not user.click_probability(nothing).any()
        assert not user.click(nothing, np.random.default_rng(0)).any()


# --------------------------------------------------------------------------------------
# Special cases
# --------------------------------------------------------------------------------------
def test_users_without_memory_are_position_based():
    curve = [0.9, 0.5, 0.3, 0.2]
    p = UBMUser(curve).click_probability(RELEVANCE[None])
    np.testing.assert_allclose(p, [RELEVANCE * curve], atol=1e-15)
    np.testing.assert_array_equal(
        UBMUser(curve).examination_at(4), PositionBasedUser(curve).examination_at(4)
    )
    eta = UBMUser(2.0).examination_after(4)
    np.testing.assert_allclose(eta[:, 0], PositionBasedUser(2.0).examination_at(4))
    assert eta[3, 1] == pytest.approx(1 / 9)


def test_family_of_the_cascade():
    cascade = CascadeUser().click_probability(RELEVANCE[None])
    np.testing.assert_allclose(DCMUser(0.0).click_probability(RELEVANCE[None]), cascade)
    best = np.ones((1, 4))
    np.testing.assert_allclose(
        DBNUser(1.0, 1.0).click_probability(best), CascadeUser().click_probability(best)
    )


def test_whole_page_in_one_row_is_a_dbn():
    p = CarouselUser(0.8, n_columns=4).click_probability(RELEVANCE[None])
    np.testing.assert_allclose(p, DBNUser(0.8).click_probability(RELEVANCE[None]))
    p = MixtureDBNUser(0.8, top_down=1.0).click_probability(RELEVANCE[None])
    np.testing.assert_allclose(p, DBNUser(0.8).click_probability(RELEVANCE[None]))


# --------------------------------------------------------------------------------------
# In a simulation
# --------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def documents():
    return make_ltr(20, 6, 3, random_state=0)


def test_truth_holds_what_the_user_goes_by(documents):
    def truth_of(user):
        return simulate_clicks(documents, n_sessions=5, n_positions=4, user=user).truth

    truth = truth_of(DBNUser(0.8, 0.25))
    assert truth.continuation == 0.8
    np.testing.assert_array_equal(truth.attraction, truth.relevance_probability)
    np.testing.assert_allclose(truth.satisfaction, truth.relevance_probability / 4)
    np.testing.assert_allclose(truth.examination, 0.8 ** np.arange(4))
    assert truth_of(MixtureDBNUser(top_down=0.6)).top_down == 0.6
    np.testing.assert_allclose(truth_of(CarouselUser(n_columns=2)).row_examination, [1, 0.5])
    np.testing.assert_array_equal(truth_of(DCMUser(LAMBDA)).continuation, LAMBDA)
    np.testing.assert_array_equal(truth_of(UBMUser(UBM_TABLE)).examination_after, UBM_TABLE)
    assert truth_of(CascadeUser()).examination.tolist() == [1, 1, 1, 1]


def test_examination_of_lists_without_clicks():
    np.testing.assert_allclose(
        MixtureDBNUser(0.5, top_down=0.5).examination_at(3), [0.625, 0.5, 0.625]
    )
    np.testing.assert_allclose(
        CarouselUser(0.5, n_columns=2).examination_at(3), [2 / 3, 1 / 3, 1 / 3]
    )


# --------------------------------------------------------------------------------------
# Errors
# --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DBNUser(1.5), r"'continuation' .* of DBNUser .*\[0.0, 1.0\]. Got 1.5"),
        (lambda: DBNUser(continuation=True), "Got True"),
        (lambda: DBNUser(satisfaction=-0.1), "'satisfaction' parameter"),
        (lambda: DBNUser("much"), "'continuation' parameter.*'much'"),
        (lambda: MixtureDBNUser(top_down=2), "'top_down' parameter"),
        (lambda: DCMUser([0.5, np.nan]), "continuation must be one probability"),
        (lambda: DCMUser("often"), "'often'"),
        (lambda: CarouselUser(n_columns=0), r"'n_columns' .*int in the range \[1, .* Got 0"),
        (lambda: CarouselUser(eta=-1.0), r"'eta' .* range \[0.0, inf\). Got -1.0"),
        (lambda: CarouselUser(eta="steep"), "'eta' parameter"),
        (lambda: UBMUser(-1.0), "exponent of a power law"),
        (lambda: UBMUser([[0.5, 0.5]]), "square table"),
        (lambda: UBMUser([[1.5, 0], [0.5, 0.5]]), "probabilities"),
        (lambda: UBMUser("far"), "'far'"),
    ],
)
def test_bad_parameters(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_lists_deeper_than_what_is_known(documents):
    for user, name in ((DCMUser([0.5, 0.5]), "continuation"), (UBMUser(np.eye(2)), "examination")):
        with pytest.raises(ValueError, match=f"{name} is given for 2 positions.*n_positions=3"):
            simulate_clicks(documents, n_sessions=5, n_positions=3, user=user)
