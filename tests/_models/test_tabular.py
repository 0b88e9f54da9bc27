import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit

from skultr._log._cells import Cells
from skultr._models._tabular import _LOSSES, Problem, fit_factors, fit_tabular

MODELS = [("likelihood", "product"), ("squares", "product"), ("likelihood", "additive")]


def _world(n_docs=30, n_factors=4, n_shown=3, weight=200, link="product", seed=0, exact=False):
    """Rows (doc, factor, clicks, weight): each document under ``n_shown`` of the factors."""
    rng = np.random.default_rng(seed)
    doc = np.repeat(np.arange(n_docs), n_shown)
    factor = np.concatenate([rng.permutation(n_factors)[:n_shown] for _ in range(n_docs)])
    chance = _chance(link, rng.uniform(0.1, 0.9, n_docs), rng.uniform(0.2, 0.95, n_factors))
    chance = chance[doc, factor]
    weight = np.full(len(doc), float(weight))
    clicks = chance * weight if exact else rng.binomial(weight.astype(int), chance).astype(float)
    return doc, factor, clicks, weight


def _chance(link, relevance, examination):
    if link == "product":
        return relevance[:, None] * examination
    return expit(logit(relevance)[:, None] + logit(examination))


def _single_impressions(seed):
    """Raw sessions: every cell was shown once or twice, so that many are clicked always."""
    rng = np.random.default_rng(seed)
    return _world(int(rng.integers(2, 30)), 4, int(rng.integers(1, 4)), 1 + seed % 2, seed=seed)


def _em(doc, factor, clicks, weight, relevance, examination, n_rounds):
    """Regression-EM word for word: expected relevance and examination of every impression."""
    for _ in range(n_rounds):
        r, o = relevance[doc], examination[factor]
        relevant = clicks + (weight - clicks) * r * (1 - o) / (1 - o * r)
        examined = clicks + (weight - clicks) * o * (1 - r) / (1 - o * r)
        relevance = np.bincount(doc, relevant) / np.bincount(doc, weight)
        examination = np.bincount(factor, examined) / np.bincount(factor, weight)
    return relevance, examination


def _als(doc, factor, clicks, weight, relevance, examination, n_rounds):
    """Alternating least squares word for word, each part within [0, 1]."""
    for _ in range(n_rounds):
        r = relevance[doc]
        examination = np.bincount(factor, clicks * r) / np.bincount(factor, weight * r**2)
        o = np.minimum(examination, 1.0)[factor]
        relevance = np.bincount(doc, clicks * o) / np.bincount(doc, weight * o**2)
        relevance, examination = np.minimum(relevance, 1.0), np.minimum(examination, 1.0)
    return relevance, examination


ROUNDS = {"likelihood": _em, "squares": _als}


def _value(fit, doc, factor, clicks, weight):
    """The loss that the fit should have brought to its minimum."""
    p = fit.click_probability(doc, factor)
    if fit.loss == "squares":
        return 0.5 * (weight * (clicks / weight - p) ** 2).sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        hit = np.where(clicks > 0, clicks * np.log(p), 0.0)
        miss = np.where(clicks < weight, (weight - clicks) * np.log1p(-p), 0.0)
    return -(hit + miss).sum()


# Losses of a cell -----------------------------------------------------------------------
@pytest.mark.parametrize(("loss", "link"), MODELS)
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_gradient_of_a_cell_by_finite_differences(loss, link, share):
    logits = np.array([-9.0, -3.0, -1.0, -0.2, -1e-3])
    weight = np.array([1.0, 7.0, 100.0, 3.0, 2.0])
    clicks = share * weight
    step = 1e-5
    function = _LOSSES[link, loss][0]
    low, high = (function(logits + d, clicks, weight)[0] for d in (-step, step))
    np.testing.assert_allclose(
        function(logits, clicks, weight)[1], (high - low) / (2 * step), rtol=1e-3, atol=1e-6
    )


@pytest.mark.parametrize(("loss", "link"), MODELS)
def test_curvature_of_a_cell_by_finite_differences_where_it_explains_its_clicks(loss, link):
    logits = np.array([-9.0, -3.0, -1.0, -0.2])
    weight = np.array([1.0, 7.0, 100.0, 3.0])
    clicks = weight * (np.exp(logits) if link == "product" else expit(logits))
    step = 1e-5
    function = _LOSSES[link, loss][0]
    low, high = (function(logits + d, clicks, weight)[1] for d in (-step, step))
    curvature = function(logits, clicks, weight)[2]
    np.testing.assert_allclose(curvature, (high - low) / (2 * step), rtol=1e-3)


@pytest.mark.parametrize(("loss", "link"), MODELS)
def test_curvature_is_never_negative(loss, link):
    logits = np.repeat([-13.0, -2.0, -1e-6, 0.0], 3)
    weight = np.full(12, 5.0)
    curvature = _LOSSES[link, loss][0](logits, np.tile([0.0, 2.0, 5.0], 4), weight)[2]
    assert (curvature >= 0).all()


def test_cell_that_was_always_clicked_pulls_by_its_clicks_up_to_the_bound():
    """Its loss is linear in the logarithm: slope and curvature must not explode, or vanish."""
    weight = np.full(4, 5.0)
    logits = np.array([-1.0, -1e-6, -1e-13, 0.0])
    _, gradient, curvature = _LOSSES["product", "likelihood"][0](logits, weight, weight)
    np.testing.assert_allclose(gradient, -5.0)
    assert (curvature <= weight).all()


# The answer -----------------------------------------------------------------------------
@pytest.mark.parametrize("loss", ROUNDS)
@pytest.mark.parametrize("seed", range(5))
def test_answer_is_a_fixed_point_of_the_published_recipe(loss, seed):
    rows = _world(seed=seed)
    fit = fit_tabular(*rows, loss=loss)
    relevance, examination = ROUNDS[loss](*rows, fit.relevance, fit.examination, 1)
    np.testing.assert_allclose(relevance, fit.relevance, atol=1e-6)
    np.testing.assert_allclose(examination, fit.examination, atol=1e-6)


@pytest.mark.parametrize("loss", ROUNDS)
def test_answer_is_where_a_long_run_of_the_published_recipe_ends(loss):
    rows = _world()
    fit = fit_tabular(*rows, loss=loss)
    relevance, examination = ROUNDS[loss](*rows, np.full(30, 0.5), np.full(4, 0.5), 5_000)
    product = relevance[rows[0]] * examination[rows[1]]
    np.testing.assert_allclose(fit.click_probability(*rows[:2]), product, atol=1e-6)
    np.testing.assert_allclose(
        fit.examination / fit.examination[0], examination / examination[0], rtol=1e-5
    )


@pytest.mark.parametrize(("loss", "link"), MODELS)
def test_general_minimiser_finds_nothing_better(loss, link):
    doc, factor, clicks, weight = rows = _world(link=link, weight=30, seed=1)
    fit = fit_tabular(*rows, loss=loss, link=link)

    def objective(x):
        value, gradient, _ = _LOSSES[link, loss][0](x[doc] + x[30 + factor], clicks, weight)
        return value.sum(), np.concatenate(
            [np.bincount(doc, gradient), np.bincount(factor, gradient)]
        )

    bounds = [(-13.8, -1e-9 if link == "product" else 13.8)] * 34
    found = minimize(
        objective, np.full(34, -1.0), jac=True, bounds=bounds, method="L-BFGS-B",
        options={"maxiter": 20_000, "maxfun": 20_000, "ftol": 1e-15, "gtol": 1e-9},
    )  # fmt: skip
    assert _value(fit, *rows) == pytest.approx(found.fun, rel=1e-7)
    logits = np.concatenate([fit.doc_logits, fit.factor_logits])
    np.testing.assert_allclose(
        logits[doc] + logits[30 + factor], found.x[doc] + found.x[30 + factor], atol=1e-3
    )


@pytest.mark.parametrize("seed", range(20))
def test_start_does_not_matter_even_for_single_impressions(seed):
    """The likelihood is convex in the logarithms: no start may end above another."""
    rows = _single_impressions(seed)
    values = [
        _value(fit_tabular(*rows, n_factors=4, start=start), *rows)
        for start in (np.full(4, 0.01), np.full(4, 0.999), np.linspace(0.9, 0.1, 4))
    ]
    assert max(values) == pytest.approx(min(values), rel=1e-4, abs=1e-4)


def test_factors_that_begin_at_the_bound_leave_it():
    """Three documents clicked first only, one second only, one in both places: o is 0.4."""
    doc, factor = np.repeat(np.arange(5), 2), np.tile([0, 1], 5)
    clicks = np.array([1, 0, 1, 0, 1, 0, 0, 1, 1, 1], dtype=float)
    rows = doc, factor, clicks, np.ones(10)
    for start in ([0.9, 0.3], [0.999, 0.999]):
        fit = fit_tabular(*rows, start=np.array(start))
        np.testing.assert_allclose(fit.examination, [1.0, 0.4], rtol=1e-3)


def test_documents_leave_the_bound_where_slopes_are_infinite():
    """A step to probability 1 is one too far for documents with 1 to 999 clicks of 1,000."""
    clicks = np.array([1.0, 10.0, 500.0, 900.0, 999.0])
    doc = np.arange(5)
    weight = np.full(5, 1_000.0)
    # One by one: a document that stands still must not wait for others that move.
    for rows in [slice(None), *([each] for each in doc)]:
        n_docs = len(doc[rows])
        codes = np.arange(n_docs), np.zeros(n_docs, dtype=int)
        cells = Cells.from_rows(*codes, clicks[rows], weight[rows])
        problem = Problem(cells, "product", "likelihood")
        for start in (0.0, -1e-12, -1.0, -13.0):
            best = problem.best_documents(np.zeros(1), np.full(n_docs, start))
            np.testing.assert_allclose(np.exp(best), clicks[rows] / 1_000, rtol=1e-9)


@pytest.mark.parametrize("loss", ["likelihood", "squares"])
@pytest.mark.parametrize("seed", range(5))
def test_rounding_does_not_decide_a_scale_that_is_free(loss, seed):
    """Two parts that no document connects: the order of rows changes no digit that counts."""
    rng = np.random.default_rng(seed)
    doc, factor = np.divmod(np.arange(80), 4)
    rows = (doc % 2 == 0) == (factor < 2)
    doc, factor = doc[rows], factor[rows]
    chance = rng.uniform(0.2, 0.9, 20)[doc] * np.array([1.0, 0.5, 0.9, 0.4])[factor]
    weight = np.full(len(doc), 100.0)
    clicks = rng.binomial(100, chance).astype(float)
    expected = fit_tabular(doc, factor, clicks, weight, loss=loss)
    # Other codes of documents, and therefore other sums.
    doc = rng.permutation(20)[doc]
    found = fit_tabular(doc, factor, clicks, weight, loss=loss)
    np.testing.assert_allclose(found.factor_logits, expected.factor_logits, atol=1e-8)


@pytest.mark.parametrize(("loss", "link"), MODELS)
@pytest.mark.parametrize("n_between", [1_000.0, 10.0])
def test_one_document_between_two_groups_is_enough(loss, link, n_between):
    """Few impressions between groups of a million each; the recipes crawl, this does not."""
    relevance, examination = np.array([0.6, 0.3, 0.8, 0.4, 0.5]), np.array([0.9, 0.6, 0.3, 0.1])
    doc = np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    factor = np.array([0, 1, 0, 1, 2, 3, 2, 3, 1, 2])
    weight = np.where(doc == 4, n_between, 1e6)
    rows = doc, factor, _chance(link, relevance, examination)[doc, factor] * weight, weight
    fit = fit_tabular(*rows, loss=loss, link=link)
    truth = examination if link == "product" else examination / (1 - examination)
    np.testing.assert_allclose(fit.examination / fit.examination[0], truth / truth[0], rtol=1e-4)
    if link == "product":
        slow = ROUNDS[loss](*rows, np.full(5, 0.5), np.full(4, 0.5), 1_000)[1]
        assert np.abs(slow / slow[0] - truth / truth[0]).max() > 0.05  # the point of Newton


@pytest.mark.parametrize(("loss", "link"), MODELS)
def test_exact_clicks_give_the_truth(loss, link):
    doc, factor, clicks, weight = _world(link=link, exact=True, seed=2)
    fit = fit_tabular(doc, factor, clicks, weight, loss=loss, link=link)
    np.testing.assert_allclose(fit.click_probability(doc, factor) * weight, clicks, rtol=1e-4)
    assert fit.converged


@pytest.mark.parametrize(("loss", "link"), MODELS)
def test_order_and_repetition_of_rows_and_scale_of_weights_do_not_matter(loss, link):
    rows = _world(link=link)
    expected = fit_tabular(*rows, loss=loss, link=link)
    chosen = np.random.default_rng(0).permutation(np.tile(np.arange(len(rows[0])), 2))
    doc, factor, clicks, weight = (part[chosen] for part in rows)
    fit = fit_tabular(doc, factor, 50 * clicks, 50 * weight, loss=loss, link=link)
    np.testing.assert_allclose(fit.doc_logits, expected.doc_logits, atol=2e-4)
    np.testing.assert_allclose(fit.factor_logits, expected.factor_logits, atol=2e-4)
    np.testing.assert_allclose(
        fit.standard_error(0)[1:] * 10, expected.standard_error(0)[1:], rtol=1e-3
    )


def test_factors_of_the_greatest_likelihood_given_documents():
    doc, factor, clicks, weight = _world(link="product", weight=20)
    best = fit_tabular(doc, factor, clicks, weight)
    given = fit_factors(best.doc_logits, doc, factor, clicks, weight, n_factors=4)
    np.testing.assert_allclose(given, best.factor_logits, atol=1e-4)
    best = fit_tabular(doc, factor, clicks, weight, link="additive")
    given = fit_factors(best.doc_logits, doc, factor, clicks, weight, link="additive", n_factors=4)
    np.testing.assert_allclose(given, best.factor_logits, atol=1e-4)


# Standard errors ------------------------------------------------------------------------
@pytest.mark.parametrize(("loss", "link"), MODELS)
def test_standard_error_is_the_spread_over_repetitions(loss, link):
    doc, factor, clicks, weight = _world(12, 4, 3, 400, link, exact=True, seed=3)
    weight = weight * np.linspace(0.5, 2, len(weight)).round(2)  # uneven: the sandwich matters
    chance, rng = clicks / 400, np.random.default_rng(0)
    found, claimed = [], []
    for _ in range(60):
        fit = fit_tabular(
            doc, factor, rng.binomial(weight.astype(int), chance).astype(float),
            weight.astype(int).astype(float), loss=loss, link=link,
        )  # fmt: skip
        found.append(fit.factor_logits - fit.factor_logits[0])
        claimed.append(fit.standard_error(0))
    assert np.mean(claimed, axis=0)[0] == 0
    # 60 repetitions know a standard deviation to 9 %.
    np.testing.assert_allclose(np.mean(claimed, axis=0)[1:], np.std(found, axis=0)[1:], rtol=0.3)


def test_standard_error_of_two_factors_by_hand():
    """One document, a and b clicks of n each: the variance of log(b / a) of binomials."""
    n, a, b = 1000.0, 400.0, 100.0
    fit = fit_tabular(np.zeros(2, int), np.arange(2), np.array([a, b]), np.full(2, n))
    assert fit.standard_error(0)[1] == pytest.approx(np.sqrt(1 / a - 1 / n + 1 / b - 1 / n))


def test_standard_error_is_infinite_across_components():
    doc, factor, clicks, weight = _world(20, 3, 2)
    both = (
        np.concatenate([doc, doc + 20]),
        np.concatenate([factor, factor + 3]),
        np.tile(clicks, 2),
        np.tile(weight, 2),
    )
    error = fit_tabular(*both).standard_error(1)
    assert error[1] == 0
    assert np.isfinite(error[:3]).all()
    assert np.isinf(error[3:]).all()


def test_standard_error_is_left_out_for_many_factors():
    doc, factor = np.repeat(np.arange(800), 2), np.arange(1600)
    fit = fit_tabular(doc, factor, np.ones(1600), np.full(1600, 2.0))
    assert np.isnan(fit.standard_error(0)[1:]).all()


# Logs that hold little --------------------------------------------------------------------
@pytest.mark.parametrize(("loss", "link"), MODELS)
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_no_click_and_nothing_but_clicks(loss, link, share):
    doc, factor, _, weight = _world(5, 3, 2)
    fit = fit_tabular(doc, factor, share * weight, weight, loss=loss, link=link)
    np.testing.assert_allclose(fit.click_probability(doc, factor), share, atol=1e-5)
    assert np.isfinite(fit.factor_logits).all()
    # Not known at all, or not computed; or 0 where least squares take every click as certain.
    error = fit.standard_error(0)[1:]
    assert (~np.isfinite(error) | ((error < 1e-3) & (share == 1.0))).all()


@pytest.mark.parametrize(("loss", "link"), MODELS)
def test_one_factor_gives_click_rates(loss, link):
    doc = np.arange(5)
    clicks, weight = np.array([0.0, 1.0, 5.0, 9.0, 10.0]), np.full(5, 10.0)
    fit = fit_tabular(doc, np.zeros(5, int), clicks, weight, loss=loss, link=link)
    p = fit.click_probability(doc, np.zeros(5, int))
    np.testing.assert_allclose(p, clicks / weight, atol=1e-5)
    assert fit.standard_error(0).tolist() == [0.0]


@pytest.mark.parametrize(("loss", "link"), MODELS)
def test_one_document_gives_ratios_of_click_rates(loss, link):
    clicks, weight = np.array([80.0, 40.0, 1.0]), np.full(3, 100.0)
    fit = fit_tabular(np.zeros(3, int), np.arange(3), clicks, weight, loss=loss, link=link)
    rate = clicks / weight if link == "product" else clicks / (weight - clicks)
    np.testing.assert_allclose(fit.examination / fit.examination[0], rate / rate[0], rtol=1e-5)


@pytest.mark.parametrize(("loss", "link"), MODELS)
def test_factor_and_document_that_were_never_clicked(loss, link):
    doc, factor, clicks, weight = _world(30, 4, 3, link=link)
    clicks[(factor == 2) | (doc == 7)] = 0
    fit = fit_tabular(doc, factor, clicks, weight, loss=loss, link=link)
    p = fit.click_probability(doc, factor)
    assert p[(factor == 2) | (doc == 7)].max() < 1e-4
    assert np.isfinite(fit.doc_logits).all()
    other = (factor != 2) & (doc != 7)
    rest = fit_tabular(
        doc[other], factor[other], clicks[other], weight[other], loss=loss, link=link
    )
    np.testing.assert_allclose(
        p[other], rest.click_probability(doc[other], factor[other]), rtol=1e-3
    )


def test_document_and_factor_without_an_impression():
    doc, factor, clicks, weight = _world(10, 3, 2)
    doc, factor = np.append(doc, 11), np.append(factor, 3)
    fit = fit_tabular(doc, factor, np.append(clicks, 0), np.append(weight, 0))
    assert np.flatnonzero(np.isnan(fit.relevance)).tolist() == [10, 11]
    assert np.isfinite(fit.examination).all()
    assert np.isinf(fit.standard_error(0)[3])


@pytest.mark.parametrize(("loss", "link"), MODELS)
def test_probabilities_stay_probabilities(loss, link):
    """A document that was clicked more under the worse factor: no product of two fits it."""
    doc, factor = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    rows = doc, factor, np.array([90.0, 10.0, 50.0, 100.0]), np.full(4, 100.0)
    fit = fit_tabular(*rows, loss=loss, link=link)
    for part in (fit.relevance, fit.click_probability(doc, factor)):
        assert ((part >= 0) & (part <= 1)).all()
    if link == "product":
        assert (fit.examination <= 1).all()


def test_many_factors_are_solved_without_a_dense_matrix(monkeypatch):
    rows = _world(300, 40, 5)
    dense = fit_tabular(*rows)
    monkeypatch.setattr("skultr._models._solve.MAX_DENSE", 10)
    iterative = fit_tabular(*rows)
    np.testing.assert_allclose(iterative.factor_logits, dense.factor_logits, atol=1e-3)


@pytest.mark.parametrize("n_impressions", [2, 5, 20, 100])
def test_few_impressions_a_document_do_not_bias_the_poisson_likelihood(n_impressions):
    """The other losses press documents against 1 here, and examination with them."""
    truth, hits = np.log(1 / np.arange(1, 6)), []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        doc = np.repeat(np.arange(6_000 // n_impressions), n_impressions)
        factor, relevance = rng.integers(5, size=len(doc)), rng.beta(1, 3, size=doc[-1] + 1)
        clicks = (rng.random(len(doc)) < relevance[doc] * np.exp(truth)[factor]).astype(float)
        fit = fit_tabular(doc, factor, clicks, np.ones(len(doc)), loss="poisson")
        apart = fit.factor_logits - fit.factor_logits[0] - truth
        hits.append(np.abs(apart[1:]) < 1.96 * fit.standard_error(0)[1:])
    assert np.mean(hits) > 0.88  # of 80 intervals, which hold 95 % each
