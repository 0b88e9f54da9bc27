import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from torch import nn

from skultr.datasets import make_ltr
from skultr.exceptions import (
    ClickDataWarning,
    MissingRoleWarning,
    NotIdentifiableError,
    NotIdentifiableWarning,
)
from skultr.propensity import ContextualPropensity
from skultr.rankers import IPSRanker
from skultr.simulation import ContextualPositionBasedUser, UniformPolicy, simulate_clicks

CONTEXT = ["v0", "v1"]
FAST = {"hidden_layer_sizes": (16,), "learning_rate": 0.01, "random_state": 0}


def contextual_log(n_sessions=20_000, assign="impression", seed=0):
    documents = make_ltr(40, n_documents=6, n_features=3, random_state=seed)
    user = ContextualPositionBasedUser(
        n_contexts=100, n_features=2, scale=1.5, assign=assign, random_state=seed
    )
    X, clicks, truth = simulate_clicks(
        documents,
        scores=documents["relevance"],
        user=user,
        policy=UniformPolicy(),
        n_positions=4,
        n_sessions=n_sessions,
        random_state=seed,
    )
    vectors = truth.context_vectors[X["context"]]
    return X.assign(v0=vectors[:, 0], v1=vectors[:, 1]), clicks.astype(float), truth


def relative(table):
    return table / table[:, :1]


def ratios(table):
    table = np.log(table)
    return table - table.mean()


@pytest.fixture(scope="module")
def world():
    return contextual_log()


@pytest.fixture(scope="module")
def log(world):
    return world[0].drop(columns="context"), world[1]


@pytest.fixture(scope="module")
def fitted(log):
    return ContextualPropensity(context=CONTEXT, **FAST).fit(*log)


def test_beats_the_best_single_curve(world, fitted):
    truth = world[2]
    curves = fitted.examination_at(truth.context_vectors).to_numpy()
    expected = relative(truth.examination_table)
    single = relative(truth.examination_table.mean(axis=0, keepdims=True))
    # Contexts differ by chance: in some worlds a single curve is nearly right.
    assert np.abs(curves - expected).mean() < np.abs(single - expected).mean() / 1.5
    assert np.abs(curves - expected).mean() < 0.05


def test_predict_is_the_truth_up_to_one_factor(world, fitted, log):
    X, _, truth = world
    expected = truth.examination_table[X["context"], X["position"] - 1]
    found = fitted.predict(log[0])
    assert found.max() == 1.0
    assert np.abs(ratios(found) - ratios(expected)).mean() < 0.2
    # How much is examined at all in a context is part of it.
    first = (X["position"] == 1).to_numpy()
    assert np.corrcoef(np.log(found[first]), np.log(expected[first]))[0, 1] > 0.9


def test_contexts_that_no_document_compares_have_one_level():
    X, clicks, truth = contextual_log(assign="document")
    fitted = ContextualPropensity(context=CONTEXT, **FAST).fit(X.drop(columns="context"), clicks)
    first = X["position"] == 1
    assert len(set(fitted.predict(X.drop(columns="context"))[first])) == 1
    used = X["context"].unique()
    curves = fitted.examination_at(truth.context_vectors[used]).to_numpy()
    assert np.abs(curves - relative(truth.examination_table[used])).mean() < 0.1


def test_few_clicks_a_document_do_not_bias_it():
    """Each document has few impressions, more of them at the second position."""
    rng = np.random.default_rng(0)
    n_documents = 12_000
    X = pd.DataFrame(
        {
            "qid": np.repeat(np.arange(n_documents) // 5, 2),
            "session": np.arange(2 * n_documents),
            "doc": np.repeat(np.arange(n_documents), 2),
            "position": np.tile([1, 2], n_documents),
            "impressions": np.tile([1, 3], n_documents),
            "where": 1.0,
        }
    )
    relevance = np.repeat(rng.uniform(0.05, 0.5, n_documents), 2)
    clicks = rng.binomial(X["impressions"], relevance * np.array([1, 0.5])[X["position"] - 1])
    fitted = ContextualPropensity(context="where", **FAST).fit(X, clicks / X["impressions"])
    # The standard error of 0.5 from 8,000 clicks is 0.012.
    assert fitted.examination_.loc[2, "examination"] == pytest.approx(0.5, abs=0.036)


def test_contexts_that_nothing_compares_do_not_scale_the_others():
    X, clicks, _ = contextual_log(n_sessions=2000)
    X = X.drop(columns="context")
    # Nobody clicked this document, under a context far from all others.
    far = X.assign(doc=10**6, session=X["session"] + 10**6, v0=1e3)[X["position"] == 1][:20]
    both = pd.concat([X, far], ignore_index=True)
    estimator = ContextualPropensity(context=CONTEXT, max_epochs=2, **FAST)
    alone = clone(estimator).fit(X, clicks).predict(X)
    beside = clone(estimator).fit(both, np.append(clicks, np.zeros(20))).predict(X)
    inside = (alone < 1) & (beside < 1)
    assert np.ptp(np.log(alone[inside] / beside[inside])) < 1e-6


def test_table(fitted, log):
    X, clicks = log
    table = fitted.examination_
    columns = ["examination", "standard_error", "lower", "upper", "impressions", "clicks"]
    assert table.columns.tolist() == [*columns, "component"]
    assert table.index.tolist() == [1, 2, 3, 4]
    assert table["standard_error"].isna().all()
    assert table["clicks"].sum() == clicks.sum()
    at_mean = fitted.examination_at(X[CONTEXT].mean().to_frame().T)
    np.testing.assert_allclose(table["examination"], at_mean.iloc[0], rtol=1e-4)
    assert table.loc[1, "examination"] == 1.0


def test_bootstrap_only_adds_errors(log):
    X, clicks = log
    few = {**FAST, "max_epochs": 5, "early_stopping": False, "context": CONTEXT}
    alone = ContextualPropensity(**few).fit(X, clicks)
    drawn = ContextualPropensity(n_bootstrap=3, **few).fit(X, clicks)
    table = drawn.examination_
    np.testing.assert_array_equal(table["examination"], alone.examination_["examination"])
    np.testing.assert_array_equal(drawn.predict(X), alone.predict(X))
    assert table.loc[1, "standard_error"] == 0
    assert table["standard_error"].iloc[1:].between(1e-4, 0.2).all()
    assert (table["lower"] <= table["examination"]).all()
    assert drawn.n_iter_ == 5


def test_frames_and_arrays_agree(log):
    X, clicks = log
    roles = ["qid", "session", "doc", "position"]
    few = {**FAST, "max_epochs": 3}
    X = X[[*roles, *CONTEXT]]
    expected = ContextualPropensity(context=CONTEXT, **few).fit(X, clicks)
    polars = pytest.importorskip("polars").from_pandas(X)
    other = ContextualPropensity(context=CONTEXT, **few).fit(polars, clicks)
    pd.testing.assert_frame_equal(other.examination_, expected.examination_)
    np.testing.assert_array_equal(other.predict(polars), expected.predict(X))
    keywords = {role: X[role] for role in roles}
    values = X[CONTEXT].to_numpy()
    padded = np.column_stack([values[:, 1], np.ones(len(X)), values[:, 0]])
    for array, context in (
        (values, None),
        (padded, [2, 0]),
        (sparse.csr_array(padded), [2, 0]),
    ):
        other = ContextualPropensity(context=context, **few).fit(array, clicks, **keywords)
        pd.testing.assert_frame_equal(other.examination_, expected.examination_)
        found = other.predict(array, position=X["position"])
        np.testing.assert_array_equal(found, expected.predict(X))


def test_by_default_the_features_are_the_context(log):
    X, clicks = log
    X = X[["qid", "session", "doc", "position", *CONTEXT]]
    few = {**FAST, "max_epochs": 3}
    table = ContextualPropensity(**few).fit(X, clicks).examination_
    named = ContextualPropensity(context=CONTEXT, **few).fit(X, clicks).examination_
    pd.testing.assert_frame_equal(table, named)


def test_context_is_no_feature_of_a_ranker(log):
    X, clicks = log
    propensity = ContextualPropensity(context=CONTEXT, max_epochs=2, random_state=0)
    assert propensity.columns_read() == set(CONTEXT)
    ranker = IPSRanker(propensity=propensity, max_epochs=2, random_state=0).fit(X, clicks)
    assert ranker.n_features_in_ == 3
    serving = X.drop(columns=[*CONTEXT, "position", "relevance", "session", "doc"])
    assert ranker.predict(serving).shape == (len(X),)


def test_callbacks_see_the_epochs(log, callbacks, capsys):
    pytest.importorskip("rich")
    propensity = ContextualPropensity(context=CONTEXT, **{**FAST, "max_epochs": 2})
    propensity.set_params(n_bootstrap=2).set_callbacks(callbacks.ProgressBar()).fit(*log)
    assert "ContextualPropensity" in capsys.readouterr().out


# What the log does not say ----------------------------------------------------------------
def test_without_swaps():
    X, clicks, _ = contextual_log(n_sessions=500)
    X["doc"] = X["doc"].astype(str) + "at" + X["position"].astype(str)
    with pytest.raises(NotIdentifiableError, match="shown under two of the 4 bias factors"):
        ContextualPropensity(context=CONTEXT, **FAST).fit(X, clicks)


def test_positions_that_nothing_compares():
    X, clicks, _ = contextual_log(n_sessions=3_000)
    X.loc[X["position"] == 4, "doc"] += 10_000
    propensity = ContextualPropensity(context=CONTEXT, **{**FAST, "max_epochs": 2})
    with pytest.warns(NotIdentifiableWarning, match="1 of 4 bias factors.*: 4"):
        propensity.fit(X, clicks)
    assert propensity.examination_["examination"].isna().tolist() == [False] * 3 + [True]
    assert propensity.examination_at([[0.0, 0.0]]).isna().iloc[0].tolist() == [False] * 3 + [True]
    above = X[X["position"] < 4]
    assert np.isfinite(propensity.predict(above)).all()
    with pytest.raises(ValueError, match=r"The examination of .* is unknown"):
        propensity.predict(X)
    # One click of one document compares the position with another.
    of_query = X["qid"] == X["qid"].iloc[0]
    pair = [X.index[of_query & (X["position"] == position)][0] for position in (3, 4)]
    X.loc[pair, "doc"], clicks[pair] = 99_999, [0.0, 1.0]
    assert np.isfinite(propensity.fit(X, clicks).predict(X)).all()


def test_a_position_without_clicks_has_half_a_click():
    X, clicks, _ = contextual_log(n_sessions=6_000)
    clicks[X["position"] == 4] = 0
    propensity = ContextualPropensity(context="where", **FAST)
    with pytest.warns(ClickDataWarning, match="no click under 1 of 4 bias factors: 4"):
        propensity.fit(X.assign(where=1.0), clicks)
    # All positions have the same impressions.
    expected = 0.5 / clicks[X["position"] == 1].sum()
    assert propensity.examination_.loc[4, "examination"] == pytest.approx(expected, rel=0.25)


def test_one_position():
    X, clicks, _ = contextual_log(n_sessions=200)
    X, clicks = X[X["position"] == 1], clicks[X["position"] == 1]
    propensity = ContextualPropensity(context=CONTEXT).fit(X, clicks)
    assert set(propensity.predict(X)) == {1.0}
    assert propensity.network_ is None


def test_without_positions(log):
    X = log[0].drop(columns="position").head(500)
    with pytest.warns(MissingRoleWarning, match="no column 'position' .* examined alike"):
        propensity = ContextualPropensity(context=CONTEXT).fit(X, log[1][:500])
    assert set(propensity.predict(X)) == {1.0}


# Bad input --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("context", "message"),
    [
        ("nowhere", r"context names \['nowhere'\], and X has the columns"),
        (["v0", "user"], r"context names \['user'\]"),
        (["v0", "position"], r"context names \['position'\]"),
    ],
)
def test_context_columns_that_are_none(log, context, message):
    with pytest.raises(ValueError, match=message):
        ContextualPropensity(context=context).fit(*log)


def test_context_numbers_that_are_none(log):
    X = log[0][CONTEXT].to_numpy()
    roles = {role: log[0][role] for role in ("qid", "session", "doc", "position")}
    with pytest.raises(ValueError, match=r"context names \[2\].*array of 2 columns"):
        ContextualPropensity(context=[0, 2]).fit(X, log[1], **roles)


def test_context_values_that_are_none(log):
    X, clicks = log
    infinite = X.assign(v0=X["v0"].where(np.arange(len(X)) != 7, np.inf))
    with pytest.raises(ValueError, match=r"infinity .* in the feature column 'v0', row 7"):
        ContextualPropensity(context=CONTEXT).fit(infinite, clicks)
    missing = X.assign(v0=X["v0"].where(np.arange(len(X)) % 7 > 0))
    curves = ContextualPropensity(context=CONTEXT, max_epochs=1).fit(missing, clicks)
    assert np.isfinite(curves.predict(missing)).all()
    with pytest.raises(ValueError, match=r"'v0' \(String, such as 'phone'\)"):
        ContextualPropensity(context=CONTEXT).fit(X.assign(v0="phone"), clicks)


def test_contexts_of_another_width(fitted):
    with pytest.raises(ValueError, match=r"shape \(1, 3\); expected .* 2 values each"):
        fitted.examination_at([[0.0, 1.0, 2.0]])


def test_a_module_with_too_few_outputs(log):
    propensity = ContextualPropensity(context=CONTEXT, module=nn.Linear(2, 3), random_state=0)
    with pytest.raises(ValueError, match="expected one output per bias factor"):
        propensity.fit(*log)
