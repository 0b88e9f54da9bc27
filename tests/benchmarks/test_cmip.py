"""The script of the CMIP paper: its exhibits, published figures, views, and one small run."""

import numpy as np
import pandas as pd
import pytest

from benchmarks._study import Settings, main
from benchmarks.papers._cmip_worlds import shorten
from benchmarks.papers.cmip import (
    MODELS,
    PAGE,
    SUBSETS,
    adjusted_r2,
    by_halves,
    predictability,
    regrets,
    welch_marks,
)
from benchmarks.studies import cmip as annotations


def exhibits():
    return {exhibit.name: exhibit for exhibit in PAGE.exhibits}


def answers(name, means, rows=None):
    """Whether each claim of an exhibit holds in one run."""
    return [np.all(np.ravel(claim.gaps(means, rows)) > 0) for claim in exhibits()[name].claims]


def published_means(name):
    exhibit = exhibits()[name]
    table = pd.DataFrame(exhibit.published, index=list(exhibit.metrics)).T
    return table.rename_axis(list(exhibit.by))


def test_the_tables_and_figures_of_the_paper():
    assert list(exhibits()) == ["figure 1", "figure 2", "table 1", "table 2", "figure 3"]


def test_published_figures_are_those_of_the_paper():
    table_1, table_2 = published_means("table 1"), published_means("table 2")
    assert table_1.loc[("Carousel", "LambdaMART", "Uniform", "tree"), "CMIP, nDCG"] == 0.759
    assert table_1.loc[("PBM", "LambdaMART", "NoisyOracle", "tree"), "joint"] == 0.944
    assert len(table_1) == 16 + 1
    rows = table_1.drop("average", level="user")
    assert rows.mean().tolist() == pytest.approx(table_1.loc["average"].iloc[0], abs=0.001)
    assert table_2.loc[("as published", "top-4 CMIP: nDCG"), "regret"] == 0.9493


def test_claims_hold_in_the_published_tables():
    means = published_means("table 1")
    # The paper has no table of linear regression, but says that it is the same.
    means = pd.concat([means, means.rename(index={"tree": "linear"}, level="regression")])
    assert all(answers("table 1", means))
    assert all(answers("table 2", published_means("table 2")))


def test_claims_of_the_tables_can_fail():
    means = published_means("table 1")
    means = pd.concat([means, means.rename(index={"tree": "linear"}, level="regression")])
    means[["CMIP", "joint"]] = 0.1
    assert not any(answers("table 1", means))
    # Regret by the opposite order.
    assert not any(answers("table 2", 6 - published_means("table 2")))


def test_claims_of_the_figures_can_fail():
    columns = ["ind PPL", "nDCG", "CMIP", "ood PPL"]
    of_paper = {
        "DCTR": (1.22, 0.95, 0.9, 1.32),
        "RDCTR": (1.22, 0.80, 0.4, 1.26),
        "PBM": (1.21, 0.96, 0.0, 1.20),
        "UBM": (1.21, 0.96, 0.1, 1.21),
        "DBN": (1.22, 0.93, 0.1, 1.24),
        "NCM": (1.22, 0.85, 0.1, 1.22),
        "CACM": (1.22, 0.90, 0.1, 1.23),
    }
    means = pd.DataFrame(of_paper, index=columns).T
    # With a prior as at the maximum of the likelihood.
    priors = means.loc[["PBM", "UBM", "DBN"]].rename(index="{}, prior".format)
    means = pd.concat([means, priors])
    assert all(answers("figure 2", means))
    turned = means.assign(nDCG=1 - means["nDCG"], CMIP=-means["CMIP"])
    turned["ood PPL"] = 1.3 - 0.001 * np.arange(len(means))
    assert not any(answers("figure 2", turned))
    means = pd.DataFrame({"DCTR": (0.9, 0.9, 0.9), "PBM": (0.8, 0.0, 0.1)}).T
    means.columns = ["nDCG", "CMIP", "CMIP, skultr"]
    assert all(answers("figure 1", means))
    swapped = means.rename(index={"DCTR": "PBM", "PBM": "DCTR"})
    assert not any(answers("figure 1", swapped))


def test_an_estimator_that_tells_bias_apart_is_five_deviations_away():
    value = {"unbiased": [0.0, 0.1, -0.1], "biased": [1.0, 1.1, 0.9]}  # of deviation .1 each
    rows = pd.DataFrame(value).melt(var_name="scores", value_name="CMIP").assign(documents=6_400)
    few = rows.assign(documents=1_600, CMIP=0.0)  # do not count
    rows = pd.concat([rows, few])
    # 1 is 7.1 times the deviation of a difference, and half of it 3.5 times.
    rows["CMIP, skultr"] = rows["CMIP"]
    assert answers("figure 3", None, rows) == [True, True]
    rows["CMIP"] -= 0.5 * (rows["scores"] == "biased")
    assert answers("figure 3", None, rows) == [False, True]


def measured(n_runs):
    """Rows of seven models in one configuration: CMIP alone tells the ood perplexity."""
    rng = np.random.default_rng(0)
    for seed in range(n_runs):
        for i, model in enumerate(MODELS):
            known = {"ind PPL": 1.2 + 0.01 * rng.random(), "nDCG": rng.random()}
            known |= {"CMIP": 0.1 * i, "CMIP, skultr": 0.1 * i, "ood PPL": 1.2 + 0.01 * i}
            yield {"seed": seed, "model": model, "repetitions": 20} | known


def configuration(n_runs):
    of = {"user": "PBM", "logging": "NoisyOracle", "test": "Uniform"}
    return pd.DataFrame([row | of for row in measured(n_runs)])


def test_r_squared_finds_the_metric_that_tells():
    table = predictability(configuration(10)).set_index(["user", "regression"])
    # 20 repetitions, and one fit of a line to all rows; each also as the average.
    assert table.groupby(level=1).size().to_dict() == dict(
        zip(["linear", "tree", "tree, unseen models"], [2, 40, 40], strict=True)
    )
    means = table.groupby(level=[0, 1])[list(SUBSETS)].mean()
    # A line through seven points on a line: 1. Adjusted for the number of metrics: still 1.
    assert means.loc[("PBM", "linear"), ["CMIP", "joint"]].tolist() == pytest.approx([1, 1])
    assert means.loc[("PBM", "tree"), "CMIP"] > 0.9
    assert means.loc[("PBM", "tree"), "ind PPL, nDCG"] < 0.3
    # A tree repeats what it has seen: of unseen models it knows less than of seen ones.
    assert means.loc[("PBM", "tree, unseen models"), "CMIP"] < 0.9
    pd.testing.assert_frame_equal(means.loc["average"], means.loc["PBM"])


def test_adjusted_r_squared_is_arithmetic():
    # Without a metric, a tree predicts the mean of the other half: 2 for those around 0, 0 for
    # those around 2.
    y, second = np.array([-1.0, 1.0, 1.0, 3.0]), np.array([False, False, True, True])
    predicted = by_halves(np.zeros((4, 1)), y, second)
    assert predicted.tolist() == [2, 2, 0, 0]
    # Residuals -3, -1, 1, 3: 20 of 8 are not explained; times 3 / 2 for one metric.
    assert adjusted_r2(y, predicted, 1) == 1 - 20 / 8 * 3 / 2


def test_marks_are_against_the_usual_metrics():
    rng = np.random.default_rng(0)
    level = dict.fromkeys(SUBSETS, 0.5) | {"nDCG": 0.3, "joint": 0.9}
    rows = pd.DataFrame({name: value + 0.01 * rng.random(50) for name, value in level.items()})
    rows = rows.assign(user="PBM", logging="NoisyOracle", test="Uniform", regression="tree")
    table = pd.DataFrame({"metric": list(SUBSETS)}).assign(**rows.iloc[0, -4:])
    assert welch_marks(rows, table) == ["", "-", "", "", "", "", "+"]


def test_regret_is_arithmetic():
    rows = configuration(2)
    priors = rows[rows["model"].isin(["PBM", "UBM", "DBN"])]
    priors = priors.assign(model=priors["model"] + ", prior")
    rows = pd.concat([rows, priors]).assign(nDCG=lambda rows: rows["ood PPL"])
    table = regrets(rows)
    assert table.groupby(["models", "rule"])["seed"].nunique().eq(2).all()
    table = table.groupby(["models", "rule"])["regret"].mean()
    for side in ("as published", "to the end", "skultr"):
        # CMIP is lowest for the best candidate there is, nDCG highest for the worst. The distance
        # of best and worst of 7, 6 and 5 of seven models, on average over all sets:
        # .01 times 6, 8 * 5 / 7 and 8 * 4 / 6.
        apart = 10 * (6 + 7 * (8 * 5 / 7) + 21 * (8 * 4 / 6)) / 29
        assert table[side, "CMIP"] == pytest.approx(0)
        assert table[side, "nDCG"] == pytest.approx(apart)
        assert table[side, "a model at random"] == pytest.approx(apart / 2)


def test_lists_are_shortened_by_grade():
    grades = np.tile(np.repeat([0, 1, 2], [12, 6, 2]), 4)
    long = pd.DataFrame({"qid": np.repeat(range(4), 20), "doc": range(80), "relevance": grades})
    short = pd.DataFrame({"qid": 9, "doc": range(80, 89), "relevance": 0})
    found = shorten(pd.concat([long, short]), 10)
    counts = found.groupby(["qid", "relevance"]).size().unstack()
    # Half of each grade.
    assert counts.to_numpy().tolist() == [[6, 3, 1]] * 4
    with pytest.raises(ValueError, match="no query has 21 documents"):
        shorten(long, 21)


def test_one_figure_end_to_end(tmp_path):
    options = ["--quick", "--figure", "2", "--queries", "25", "--sessions", "500"]
    assert main(PAGE, [*options, "--runs", "1", "--jobs", "1", "--out", str(tmp_path)]) == 0
    table = pd.read_csv(tmp_path / "cmip" / "figure_2.csv")
    # Only the cell of figure 2 was run.
    assert len((tmp_path / "cmip" / "configurations.jsonl").read_text().splitlines()) == 1
    assert set(MODELS) < set(table["model"])
    assert table.loc[table["metric"] == "ood PPL", "ours"].gt(1).all()
    assert (tmp_path / "cmip" / "figure_2.png").stat().st_size > 1_000


def test_labels_from_comparisons_follow_who_wins():
    # One query of three documents: 0 beat both others, 1 beat 2.
    wins = np.zeros((1, 3, 3))
    wins[0, [0, 0, 1], [1, 2, 2]] = 1
    np.testing.assert_allclose(annotations.win_rate(wins), [[2.5 / 3, 1.5 / 3, 0.5 / 3]])
    strength = annotations.bradley_terry(wins)
    # At the maximum of the likelihood, documents win as often as they are expected to.
    both = strength[:, :, None] + strength[:, None, :]
    number = wins + wins.transpose(0, 2, 1)
    expected = (number * strength[:, :, None] / both).sum(axis=2) + strength / (strength + 1)
    np.testing.assert_allclose(expected, wins.sum(axis=2) + 0.5, atol=1e-3)
    assert strength[0, 0] > strength[0, 1] > strength[0, 2]


def test_preferences_follow_the_grades():
    grade = np.tile([0, 0, 1, 1, 2, 2, 3, 3, 4, 4], (500, 1))
    wins = annotations.compared(grade, annotations.FEW_PAIRS, np.random.default_rng(0))
    assert (wins + wins.transpose(0, 2, 1)).sum() == 2 * 500 * annotations.FEW_PAIRS
    won = wins.sum(axis=0)
    share = won[2, 0] / (won[2, 0] + won[0, 2])
    # One grade apart. A pair is drawn in 20 of 45 queries, some 220 of 500, so that the standard
    # error of a share of .88 is .022; four of them.
    assert share == pytest.approx(1 / (1 + np.exp(-annotations.SHARPNESS)), abs=0.09)


@pytest.mark.parametrize("name", annotations.ANNOTATIONS)
def test_annotators_err_as_often_as_they_are_said_to(name):
    rng = np.random.default_rng(0)
    grade = rng.integers(0, annotations.N_GRADES, size=(300, annotations.N_DOCUMENTS))
    rank = rng.permuted(np.tile(np.arange(1, 11), (300, 1)), axis=1)
    label = annotations.ANNOTATIONS[name](grade, rank, rng)
    assert label.shape == grade.shape
    kept = ~np.isnan(label)
    wrong = np.mean(label[kept] != grade[kept])
    # A grade drawn from five is the right one in a fifth of the cases. Of 3,000 labels the
    # standard error of a share is at most .0092; four of them.
    share = {"true grades": 0.0, "10 % confused": 0.08, "40 % confused": 0.32}
    if name in share:
        assert wrong == pytest.approx(share[name], abs=0.037)
    # Each of two is right in .76 of the cases, and both say the same wrong grade in .0144 of all,
    # which is .024 of those that they agree on. Of 1,770 labels four standard errors are .015.
    if name == "two annotators who agree":
        assert wrong == pytest.approx(0.024, abs=0.015)
    assert kept.all() == (name != "two annotators who agree")


@pytest.mark.filterwarnings("ignore::skultr.exceptions.ClickDataWarning")  # small grades
def test_a_run_with_annotations():
    rows = list(annotations.annotations({"annotation": "true grades"}, Settings(tiny=True), 0))
    table = pd.DataFrame(rows).set_index("scores")
    assert table.index.tolist() == ["biased", "unbiased", "unbiased, weak"]
    assert table.loc["biased", "ahead"] == 0
    np.testing.assert_allclose(table["ahead"], table.loc["biased", "CMIP"] - table["CMIP"])
