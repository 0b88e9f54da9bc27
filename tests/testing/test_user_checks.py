"""``check_user`` must fail users that break the contract, each by the check that names it."""

import numpy as np
import pytest

from skultr.simulation import (
    ClickMatrixUser,
    ContextualPositionBasedUser,
    DBNUser,
    PositionBasedUser,
    UserPopulation,
)
from skultr.testing import check_user


class Duck:
    examination_at = PositionBasedUser.examination_at
    click = PositionBasedUser.click


class WantsMore(PositionBasedUser):
    def click(self, relevance_probability, rng, device):
        return super().click(relevance_probability, rng)


class Forgets(ContextualPositionBasedUser):
    def click_probability(self, relevance_probability):
        return super().click_probability(relevance_probability)


class AboveOne(PositionBasedUser):
    def examination_at(self, n_positions):
        return 2 * super().examination_at(n_positions)


class ReadsHalf(ClickMatrixUser):
    def read_grades(self, grade):
        return super().read_grades(grade)[::2]


class LooksAtOthers(PositionBasedUser):
    def click_probability(self, relevance_probability):
        probability = super().click_probability(relevance_probability)
        return probability * np.linspace(0.5, 1, len(probability))[:, None]


class Overwrites(PositionBasedUser):
    def click_probability(self, relevance_probability):
        relevance_probability *= self.examination_at(relevance_probability.shape[1])
        return relevance_probability


class CountsFromTheEnd(PositionBasedUser):
    def click_probability(self, relevance_probability):
        examination = self.examination_at(relevance_probability.shape[1])
        return relevance_probability * examination[::-1]


class Unseeded(PositionBasedUser):
    def click(self, relevance_probability, rng):
        return super().click(relevance_probability, np.random.default_rng())


class ClicksAsNumbers(PositionBasedUser):
    def click(self, relevance_probability, rng):
        return super().click(relevance_probability, rng).astype(int)


class StatesTooLittle(PositionBasedUser):
    def click_probability(self, relevance_probability):
        return super().click_probability(relevance_probability) - 0.03

    def click(self, relevance_probability, rng):
        return PositionBasedUser().click(relevance_probability, rng)


class CountsContextsFromOne(ContextualPositionBasedUser):
    def draw_contexts(self, shown, rng):
        return super().draw_contexts(shown, rng) + 1


class AsksTwice(UserPopulation):
    def draw_query_weights(self, query_weights, rng):
        return 2 * super().draw_query_weights(query_weights, rng) / 3


class HalfATruth(DBNUser):
    def document_truth(self, relevance_probability):
        return {"attraction": relevance_probability[:3]}


class LosesItsCurve(PositionBasedUser):
    def __reduce__(self):
        return (LosesItsCurve, ())


@pytest.mark.parametrize(
    ("user", "check", "message"),
    [
        (Duck(), "signatures", "derive the class from User"),
        (WantsMore(), "signatures", "cannot be called as click"),
        (Forgets(n_contexts=5), "signatures", "cannot be called as click_probability"),
        (AboveOne(), "examination", "which is no probability"),
        (ReadsHalf(), "grades", r"read_grades returned the shape \(2,\) for 4"),
        (LooksAtOthers(), "click_probability", "depends on the other sessions"),
        (Overwrites(), "click_probability", "changed its argument"),
        (CountsFromTheEnd(), "shorter_pages", "empty places"),
        (Unseeded(), "clicks", "the same rng gave other clicks"),
        (ClicksAsNumbers(), "clicks", "expected bool"),
        (StatesTooLittle(), "click_rates", "but click_probability states"),
        (CountsContextsFromOne(n_contexts=5), "contexts", "rows of context_vectors, 0 to 4"),
        (AsksTwice(5), "several_users", "do not sum to 1"),
        (HalfATruth(), "truth", r"has the shape \(3,\) for 7 documents"),
        (Unseeded(), "simulation", "gave another log"),
        (LosesItsCurve(1.0), "pickle", "pickle changed the user"),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "click") else None,
)
def test_broken_users_fail(user, check, message):
    with pytest.raises(AssertionError, match=message):
        dict(check_user(user, generate_only=True))[f"check_{check}"]()


def test_pages_may_be_as_short_as_the_curve():
    check_user(PositionBasedUser([1.0, 0.5]), n_positions=2)
    with pytest.raises(ValueError, match="given for 2 positions"):
        check_user(PositionBasedUser([1.0, 0.5]))
