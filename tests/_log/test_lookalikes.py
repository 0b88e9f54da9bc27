"""What the door says of columns that look like something else, and of all faults at once."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge

from skultr import IdentifiabilityRepair
from skultr._log._units import units_in
from skultr.click_models import PBMModel
from skultr.exceptions import ClickDataWarning
from skultr.propensity import InterventionHarvesting
from skultr.rankers import NaiveRanker

#: Roles that a log may lack, so that a feature may have their name.
FREE = ("user", "impressions", "production", "relevance", "propensity", "bias", "team")
FREE += ("doc_scope", "click")


def draw_log(rng):
    """A log of one row per shown document, and its clicks."""
    n_queries, n_docs, n_shown = rng.integers(30, 120), rng.integers(8, 25), rng.integers(4, 11)
    n_shown = min(n_shown, n_docs)
    n_pages = int(rng.integers(300, 1_500))
    features = {name: draw(rng, (n_queries, n_docs)) for name, draw in KINDS.items()}
    relevance = 1 / (1 + np.exp(2 - features["normal"] - 0.5 * features["flag"]))
    score = features["normal"] + rng.normal(size=(n_queries, n_docs))
    sharpness = rng.uniform(0.3, 3)
    query = rng.integers(n_queries, size=n_pages)
    noisy = sharpness * score[query] + rng.gumbel(size=(n_pages, n_docs))
    doc = np.argsort(-noisy, axis=1)[:, :n_shown].ravel()
    query, position = np.repeat(query, n_shown), np.tile(np.arange(n_shown) + 1, n_pages)
    examined = rng.random(len(doc)) < position ** -rng.uniform(0.3, 1.5)
    clicks = (examined & (rng.random(len(doc)) < relevance[query, doc])).astype(float)
    X = pd.DataFrame(
        {
            "session": np.repeat(np.arange(n_pages), n_shown),
            "qid": query,
            "doc": doc,
            "position": position,
            **{name: values[query, doc] for name, values in features.items()},
        }
    )
    if rng.random() < 0.3:
        X = X.drop(columns="doc")
    return X, clicks


KINDS = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "price": lambda rng, shape: np.exp(rng.normal(3, 1, shape)).round(2),
    "sold": lambda rng, shape: rng.poisson(np.exp(rng.normal(1, 1.5, shape))),
    "flag": lambda rng, shape: (rng.random(shape) < 0.4).astype(int),
    "rare": lambda rng, shape: (rng.random(shape) < 0.01).astype(int),
    "share": lambda rng, shape: rng.beta(2, 3, shape),
    "stars": lambda rng, shape: rng.normal(4, 0.5, shape).clip(1, 5).round(1),
}


def plant_outcome(X, clicks, rng):
    """The log with an outcome, and its name."""
    after = clicks * (rng.random(len(X)) < rng.choice([0.02, 0.05, 0.1, 0.3, 0.6]))
    if rng.random() < 0.3:  # some carts are filled elsewhere
        after = np.maximum(after, rng.random(len(X)) < 0.1 * after.mean())
    kind = str(rng.choice(["cart", "basket_value", "dwell", "gap"]))
    if kind == "basket_value":
        after = after * np.exp(rng.normal(3, 1, len(X))).round(2)
    if kind in ("dwell", "gap"):
        after = np.where(after > 0, rng.gamma(2, 30, len(X)), np.nan if kind == "gap" else 0.0)
    return X.assign(**{kind: after}), kind


def said_of(X, clicks):
    """All warnings and the error of a fit, as texts."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            NaiveRanker(estimator=HistGradientBoostingRegressor(max_iter=2)).fit(X, clicks)
        except ValueError as error:
            return [str(error), *(str(warning.message) for warning in caught)]
    return [str(warning.message) for warning in caught]


def outcomes_found(n_logs, seed=0):
    """Number of logs in which a planted outcome was named, and of clean logs with an alarm."""
    found = alarms = 0
    for i in range(n_logs):
        rng = np.random.default_rng([seed, i])
        X, clicks = draw_log(rng)
        alarms += any("outcome" in text for text in said_of(X, clicks))
        X, name = plant_outcome(X, clicks, rng)
        said = any(f"'{name}'" in text and "outcome" in text for text in said_of(X, clicks))
        found += said
    return found, alarms


def silent_losses(n_logs, seed=1):
    """Pairs of role and kind of feature for which nothing was said."""
    silent = []
    for i in range(n_logs):
        rng = np.random.default_rng([seed, i])
        X, clicks = draw_log(rng)
        role, kind = FREE[i % len(FREE)], str(rng.choice(list(KINDS)))
        said = said_of(X.rename(columns={kind: role}), clicks)
        if not any(role in text for text in said):
            silent.append((role, kind))
    return silent


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


def test_a_notebook_shows_the_roles(log):
    pytest.importorskip("sklearn.callback", reason="1.9 of scikit-learn shows fitted attributes")
    assert "qid: qid, " in ranker().fit(*log)._repr_html_()


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
    with pytest.warns(ClickDataWarning, match=r"lack 2\d\.\d% of the positions .* QueryKFold"):
        ranker().fit(X[kept], clicks[kept])
    top = X["position"] <= 1 + X["session"] % 4  # pages of several lengths
    ranker().fit(X[top], clicks[top])
    hidden = X.assign(position=X["position"].where(kept))  # candidates that were not shown
    with pytest.warns(ClickDataWarning):
        ranker().fit(hidden, clicks)


def test_pages_below_paid_slots_are_not_torn(log):
    """Results begin at place 3 where slots stood above, and at 11 on the second page."""
    X, clicks = log
    moved = X.assign(position=X["position"] + np.where(X["session"] % 3 == 0, 0, 2))
    ranker().fit(moved, clicks)
    ranker().fit(X.assign(position=X["position"] + 10), clicks)


def test_the_share_of_lost_positions_is_of_lists_of_several_rows(log):
    X, clicks = log
    kept = np.random.default_rng(0).random(len(X)) < 0.7
    alone = X.iloc[: len(X) // 2].assign(position=1)
    alone["session"] = np.arange(len(alone)) + X["session"].max() + 1
    more = pd.concat([X[kept], alone])
    with pytest.warns(ClickDataWarning, match=r"lack 2\d\.\d% of the positions"):
        ranker().fit(more, np.append(clicks[kept], clicks[: len(alone)]))


@pytest.mark.parametrize("n_features", [2, 3, 10])
@pytest.mark.parametrize("share", [0.05, 0.6, 0.95, 1])
def test_failed_joins_of_any_share_are_said(share, n_features):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(4000, n_features))
    features[rng.random(features.shape) < 0.05] = np.nan
    features[: int(share * 4000)] = np.nan
    ((_, message),) = units_in("features", features.T)
    assert f"all {n_features} features are missing" in message


@pytest.mark.parametrize("chance", [0.3, 0.6, 0.9])
def test_blanks_of_columns_that_know_nothing_of_each_other_are_no_failed_join(chance):
    features = np.random.default_rng(0).normal(size=(4000, 2))
    features[np.random.default_rng(1).random(features.shape) < chance] = np.nan
    assert not [*units_in("features", features.T)]


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


@pytest.mark.parametrize(("value", "what"), [(np.nan, "missing"), (0.0, "0")])
@pytest.mark.parametrize("module", ["pandas", "polars"])
def test_rows_without_features_are_a_warning_with_their_share(value, what, module):
    """Zeros only where columns are many; and not what is blank by chance."""
    rng = np.random.default_rng(0)
    log = pd.DataFrame(rng.normal(size=(2000, 10)), columns=[*"abcdefghij"])
    log = pd.DataFrame({"qid": np.arange(2000) // 20, "position": np.arange(2000) % 20 + 1}).join(
        log.mask(rng.random((2000, 10)) < 0.3, value)
    )
    clicks = rng.random(2000) < 0.3
    features = [*"abcdefghij"]
    trees = NaiveRanker(estimator=HistGradientBoostingRegressor(max_iter=2))

    def fit(log):
        trees.fit(log if module == "pandas" else pl.from_pandas(log), clicks.astype(float))

    fit(log)
    fit(log[["qid", "position", "a"]])  # a column alone may be missing
    fit(log[["qid", "position", "a", "b"]])  # in 9 % of the rows both are, by chance
    lost = rng.random(2000) < 0.05
    blank = log.assign(**{name: log[name].mask(lost, value) for name in features})
    with pytest.warns(ClickDataWarning, match=rf"rows \([456]\.\d%\) all 10 features are {what}"):
        fit(blank)
    few = blank.assign(a=blank["a"].where(lost, 1.0), b=blank["b"].where(lost, 1.0))
    if what == "missing":
        with pytest.warns(ClickDataWarning, match="all 2 features are missing"):
            fit(few[["qid", "position", "a", "b"]])
    else:
        fit(few[["qid", "position", "a", "b"]])
