"""What the door says of columns that look like something else, and of all faults at once."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import Ridge

from skultr import IdentifiabilityRepair
from skultr.click_models import PBMModel
from skultr.exceptions import ClickDataWarning
from skultr.propensity import InterventionHarvesting
from skultr.rankers import NaiveRanker

from ..benchmarks.bench_door import draw_log, outcomes_found, silent_losses


@pytest.fixture(scope="module")
def log():
    X, clicks = draw_log(np.random.default_rng(3))
    return X, clicks


#: Features that pass for binary grades.
FLAGS = ("flag", "rare")


def ranker():
    return NaiveRanker(estimator=Ridge(solver="svd"))


def test_outcomes_are_named_and_clean_logs_are_quiet():
    found, alarms = outcomes_found(6)
    assert found == 6
    assert alarms == 0


def test_features_named_as_roles_do_not_vanish_silently():
    silent = silent_losses(18)
    assert not [pair for pair in silent if pair[0] != "relevance" or pair[1] not in FLAGS]


def test_roles_tell_what_each_column_was_read_as(log):
    X, clicks = log
    X = X.assign(relevance=1, outcome_cart=0.0, taken=clicks)
    fitted = ranker().fit(X, "taken")
    assert fitted.roles_["qid"] == "qid"
    assert fitted.roles_["price"] == "feature"
    assert fitted.roles_["relevance"] == fitted.roles_["outcome_cart"] == "ignored role"
    assert fitted.roles_["taken"] == "y"
    assert "outcome_cart" not in fitted.feature_names_in_
    assert "qid: qid, " in fitted._repr_html_()


@pytest.mark.parametrize(
    "estimator",
    [PBMModel(), InterventionHarvesting(n_bootstrap=0), IdentifiabilityRepair(bias="position")],
)
def test_every_reader_of_logs_has_roles(estimator, log):
    assert estimator.fit(*log).roles_["qid"] == "qid"


def test_grades_are_no_feature_but_scores_are_named(log):
    X, clicks = log
    ranker().fit(X.assign(relevance=X["qid"] % 5), clicks)
    with pytest.warns(ClickDataWarning, match="'relevance' is a role, which is not read here"):
        ranker().fit(X.rename(columns={"price": "relevance"}), clicks)


JUDGES = {
    "grades": lambda grades: grades[0],
    "normalised": lambda grades: grades[0] / 4,
    "gains": lambda grades: (2.0 ** grades[0] - 1) / 15,
    "three judges": lambda grades: grades[:3].mean(axis=0).round(2),
    "five judges, normalised": lambda grades: grades.mean(axis=0) / 4,
    "some rows": lambda grades: np.where(np.arange(grades.shape[1]) % 7, np.nan, grades[0] / 4),
}


@pytest.mark.parametrize("form", JUDGES)
def test_annotation_is_no_feature(form, log):
    X, clicks = log
    grades = np.random.default_rng(0).integers(5, size=(5, len(X)))
    ranker().fit(X.assign(relevance=JUDGES[form](grades)), clicks)


def test_fractions_are_features_unless_clicks_follow_them(log):
    X, clicks = log
    attraction = 1 / (1 + np.exp(2 - X["normal"] - 0.5 * X["flag"]))
    ranker().fit(X.assign(relevance=attraction), clicks)
    with pytest.warns(ClickDataWarning, match="'relevance' is a role, which is not read here"):
        ranker().fit(X.rename(columns={"share": "relevance"}), clicks)


def test_on_shuffled_pages_any_score_may_have_served(log):
    X, clicks = log
    order = np.lexsort((np.random.default_rng(0).random(len(X)), X["session"]))
    shuffled = X.assign(position=X["position"].to_numpy()[order], production=X["share"])
    ranker().fit(shuffled, clicks)


def test_the_score_that_ordered_the_pages_is_no_feature(log):
    X, clicks = log
    score = -X["position"] + np.random.default_rng(0).normal(size=len(X))
    ranker().fit(X.assign(production=score), clicks)
    with pytest.warns(ClickDataWarning, match="'production' is a role, which is not read here"):
        ranker().fit(X.rename(columns={"share": "production"}), clicks)


def test_clicked_rows_alone_are_an_error(log):
    X, clicks = log
    with pytest.raises(ValueError, match=r"Every shown row is clicked .* Add all rows"):
        ranker().fit(X[clicks > 0], clicks[clicks > 0])


def test_torn_pages_are_a_warning(log):
    X, clicks = log
    kept = np.random.default_rng(0).random(len(X)) < 0.7
    with pytest.warns(ClickDataWarning, match="have gaps: .* QueryKFold"):
        ranker().fit(X[kept], clicks[kept])
    top = X["position"] <= 1 + X["session"] % 4  # pages of several lengths
    ranker().fit(X[top], clicks[top])
    hidden = X.assign(position=X["position"].where(kept))  # candidates that were not shown
    with pytest.warns(ClickDataWarning):
        ranker().fit(hidden, clicks)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_all_faults_are_told_at_once_with_code_that_mends(kind, log):
    X, clicks = log
    bad = X.assign(position=X["position"] - 1, user=X["share"], brand="acme", color="red")
    bad = bad if kind == "pandas" else pl.from_pandas(bad)
    with pytest.raises(ValueError, match="The log has 3 faults:") as caught:
        ranker().fit(bad, clicks)
    message = str(caught.value)
    for part in ("The role 'user' holds", "position must be", "'brand'", "'color'"):
        assert part in message
    code = message[message.index("log = ") :]
    space = {"log": bad, "pl": pl}
    exec("\n".join(line.strip() for line in code.splitlines()), space)
    mended = space["log"]
    assert pd.Series(mended["position"].to_numpy()).min() == 1
    with pytest.raises(ValueError, match=r"^The role 'user' holds"):  # one fault, as it always was
        ranker().fit(mended, clicks)
