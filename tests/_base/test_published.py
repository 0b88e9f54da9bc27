"""``variant="published"``: a paper's settings stand in for defaults while an estimator learns."""

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, GroupKFold

from skultr._base._published import as_published, published_settings
from skultr.datasets import make_ltr
from skultr.rankers import CLDRanker, DLARanker, IPSRanker, VectorizationRanker
from skultr.simulation import PlackettLucePolicy, simulate_clicks

from .._discovery import public_estimators

PUBLISHED = [each for each in public_estimators() if getattr(each, "_published", {})]


@pytest.mark.parametrize("estimator", PUBLISHED, ids=lambda each: type(each).__name__)
def test_settings_stand_in_for_defaults_and_are_undone(estimator):
    # One with all defaults: what a user sets is not replaced.
    estimator = type(estimator)(variant="published")
    before = dict(vars(estimator))
    settings = estimator._published
    with as_published(estimator):
        assert all(getattr(estimator, name) == value for name, value in settings.items())
    assert vars(estimator) == before


def test_settings_are_undone_after_an_error():
    ranker = DLARanker(variant="published")
    before = dict(vars(ranker))
    with pytest.raises(ValueError, match="clicks"):
        ranker.fit([[1.0], [2.0]], [-1, 0], qid=[1, 1], position=[1, 2])
    assert vars(ranker) == before


def test_another_value_of_the_user_wins():
    ranker = IPSRanker(variant="published", clip=0.2, max_epochs=3)
    assert "clip" not in published_settings(ranker)
    assert published_settings(ranker)["correction"] == "divide"
    assert published_settings(IPSRanker()) == {}


class LastWeights(DLARanker):
    """Dual learning without the mean of the weights after each step."""

    _averages_weights = False


def test_published_dual_learning_is_one_training_of_both_parts(small_fit, small_log):
    short = {"hidden_layer_sizes": (8,), "max_epochs": 2}
    published = small_fit(DLARanker(variant="published", **short))
    spelled_out = LastWeights(
        **short,
        examination="network",
        normalization="layer",
        optimizer="adagrad",
        learning_rate=0.05,
        batch_size=256,
        weight_decay=0.0,
        early_stopping=True,
        traffic_exponent=1.0,
    )
    X = small_log[0]
    np.testing.assert_array_equal(published.predict(X), small_fit(spelled_out).predict(X))
    assert not hasattr(published, "examination_comparison_")
    assert published.optimizer == "adamw"


def test_predictions_have_the_settings_of_the_fit():
    ranker = VectorizationRanker(variant="published")
    assert ranker._setting("bounded_base") is False
    assert ranker._setting("student") is None
    assert VectorizationRanker()._setting("bounded_base") is True


def test_the_form_of_the_decomposition_depends_on_its_loss():
    assert published_settings(CLDRanker(variant="published")) == {"hidden_layer_sizes": ()}
    pairs = published_settings(CLDRanker(variant="published", loss="pairwise"))
    assert pairs["max_epochs"] == 12
    # AdamW would shrink the weights beside the loss.
    assert (pairs["optimizer"], pairs["weight_decay"]) == ("adam", 0.001)


def test_a_search_over_variants(small_log):
    log, clicks = small_log
    ranker = IPSRanker(propensity=1 / np.arange(1, 11), max_epochs=1, hidden_layer_sizes=())
    search = GridSearchCV(
        ranker, {"variant": ["default", "published"]}, cv=GroupKFold(2), scoring=lambda *_: 1.0
    )
    search.fit(log, clicks, groups=log["qid"])
    assert search.best_estimator_.get_params()["variant"] in {"default", "published"}


@pytest.fixture
def small_log():
    documents = make_ltr(n_queries=30, n_features=5, random_state=0)
    return simulate_clicks(documents, n_sessions=600, policy=PlackettLucePolicy(), random_state=0)[
        :2
    ]


@pytest.fixture
def small_fit(small_log):
    return lambda ranker: ranker.set_params(random_state=0).fit(*small_log)
