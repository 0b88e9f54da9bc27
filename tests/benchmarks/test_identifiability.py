"""The identifiability paper's script: its exhibits, its worlds, and one exhibit end to end."""

import numpy as np
import pandas as pd
import pytest

from benchmarks._study import Settings, main
from benchmarks.papers import _identifiability_claims as claims
from benchmarks.papers._identifiability_claims import FIGURE_3A, FIGURE_4A
from benchmarks.papers._identifiability_studies import LOG, OF_TABLE_2
from benchmarks.papers._identifiability_worlds import (
    MADE,
    SHORT_LISTS,
    contextual_log,
    log_of_components,
    read_documents,
)
from benchmarks.papers.identifiability import EXHIBITS, PAGE
from skultr.identifiability import IdentifiabilityGraph


def settings(**given):
    return Settings(quick=True, **given)


def test_every_table_and_figure_of_the_paper():
    figures = ["3a", "3b", "4a", "4b", "4c", "4d", "5", "6", "7a", "7b", "7c", "7d"]
    expected = {f"table {n}" for n in range(1, 7)} | {f"figure {n}" for n in figures}
    names = [exhibit.name for exhibit in PAGE.exhibits]
    assert {*names} == expected | {"propositions", "padding"}
    assert len(names) == len({*names})


def test_published_figures():
    published = {exhibit.name: exhibit.published for exhibit in EXHIBITS}
    assert published["table 1"][4, "DLA + merging"][0] == 0.738
    assert published["table 4"]["Istella-S", "components"] == (47_976,)
    # The made sets stand for the real ones, in the same order.
    assert published["table 4"]["made, few copies", "edges"] == (5_972,)
    assert published["table 5"]["(v1, v2, position)"] == (20_704, 2_900)
    for exhibit in EXHIBITS:
        lengths = {len(figures) for figures in (exhibit.published or {}).values()}
        assert lengths <= {len(exhibit.metrics)}


def test_an_exhibit_from_end_to_end(tmp_path):
    options = ["--figure", "4b", "--runs", "3", "--jobs", "1", "--quick", "--out", str(tmp_path)]
    assert main(PAGE, options) == 0
    out = tmp_path / "identifiability"
    table = pd.read_csv(out / "figure_4b.csv").set_index("merged")["ours"]
    # Published .71, .75, .85, .975, on other pages.
    assert table.to_numpy() == pytest.approx([0.69, 0.73, 0.83, 0.97], abs=0.05)
    verdict = pd.read_csv(out / "verdicts.csv").set_index("exhibit").loc["figure 4b"]
    assert verdict["verdict"] == "in shape"
    assert (out / "figure_4b.png").exists()


# Worlds -----------------------------------------------------------------------------------
@pytest.mark.parametrize("K", [1, 2, 3, 4])
def test_made_logs_have_k_components(K):
    X, _, truth = log_of_components(K, 1_000, settings(), 0)
    assert IdentifiabilityGraph.from_log(X).n_components == K
    # As in the published sets, 250 documents link positions, and no page shows one twice.
    n_positions = X.groupby("doc")["position"].nunique()
    assert n_positions.value_counts().to_dict() == {1: 9_750, 2: 250}
    assert not X.duplicated(["qid", "doc"]).any()
    share = X.groupby("doc")["relevance"].first().value_counts(normalize=True)
    assert share[[0, 1, 2]].to_numpy() == pytest.approx([0.39, 0.34, 0.22], abs=0.02)
    # The published program divides by 2^5 - 1: grade 4 is at .1 + .9 * 15 / 31.
    highest = truth.relevance_probability[X.loc[X["relevance"] == 4, "doc"]]
    assert highest.to_numpy() == pytest.approx(0.1 + 0.9 * 15 / 31)


PAGES = np.array([[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [9, 10, 11, 12, 13, 14, 15, 16, 17, 0]])


def write_set(folder, doc=PAGES, grades=None):
    part = folder / "K=2" / "train"
    part.mkdir(parents=True)
    grades = doc % 5 if grades is None else grades
    for name, rows in (("train.init_list", doc), ("train.labels", grades)):
        lines = (f"{i} " + " ".join(map(str, row)) for i, row in enumerate(rows))
        (part / name).write_text("\n".join(lines) + "\n")
    return str(folder)


def test_a_published_set_is_read(tmp_path):
    X, clicks, truth = log_of_components(2, 100, settings(sets=write_set(tmp_path)), 0)
    assert X["doc"].tolist() == PAGES.ravel().tolist()
    assert X["position"].tolist() == [*range(1, 11)] * 2
    # Document 9 has grade 4 and is shown at position 1, which is seen with probability .68.
    assert truth.click_probability[10] == pytest.approx(0.68 * (0.1 + 0.9 * 15 / 31))
    assert clicks.shape == (20,)
    assert ((clicks >= 0) & (clicks <= 1)).all()


def test_a_folder_that_is_no_published_set_is_refused(tmp_path):
    folder = write_set(tmp_path)
    with pytest.raises(FileNotFoundError, match="--sets expects the folder"):
        log_of_components(3, 100, settings(sets=folder), 0)


def test_copies_alone_link_contexts():
    share = []
    for name in MADE:
        train, _ = read_documents(name, settings(), 400, 10, 0)
        log, _, truth = contextual_log(train, 100, 1_000, 0)
        graph = IdentifiabilityGraph.from_log(log, bias=["position", "context"])
        share.append(graph.n_components / graph.n_factors)
        assert log.groupby("qid")["position"].max().eq(10).all()
        assert len(truth.vectors) == 10 * 100
    many, few = share
    assert many < 0.8 < 0.95 < few


def test_padding_is_one_document_that_joins_factors():
    train, _ = read_documents("made, few copies", settings(), 400, 10, 0, n_documents=SHORT_LISTS)
    largest = []
    for padding in (False, True):
        log, _, truth = contextual_log(train, 100, 1_000, 0, padding=padding)
        graph = IdentifiabilityGraph.from_log(log, bias=["position", "context"])
        largest.append(graph.components["n_factors"].max() / graph.n_factors)
    assert log.groupby("qid").size().eq(10).all()
    padded = log[~truth.listed]
    assert padded["doc"].nunique() == 1
    assert padded["doc"].iloc[0] not in log["doc"][truth.listed].to_numpy()
    # A page of n documents lacks the last 10 - n.
    lengths = train.groupby("qid").size()
    assert len(padded) == (10 - lengths).clip(lower=0).sum() > 0
    assert (padded["position"] > lengths[padded["qid"]].to_numpy()).all()
    # The largest component has all factors under which padding stands.
    without, joined = largest
    n_padded = padded.groupby(["position", "context"]).ngroups
    assert joined >= n_padded / graph.n_factors > without


def test_a_log_of_ones_own(tmp_path):
    rows = [(s, 1, d, p) for s in range(2) for p, d in enumerate("ab" if s else "ba", start=1)]
    log = pd.DataFrame(rows, columns=["session", "qid", "doc", "position"]).assign(click=0)
    log["vertical_1"] = log["doc"]
    log["vertical_2"] = log["session"]
    log.to_csv(tmp_path / "log.csv", index=False)
    found = LOG.run({}, settings(log=str(tmp_path / "log.csv")), 0)
    components = {row["bias factor"]: row["components"] for row in found}
    # a and b are both shown at 1 and 2; a kind of its own keeps a document alone.
    assert components == {
        "(v1, v2, position)": 2,
        "(v1, position)": 2,
        "(v2, position)": 2,
        "position only": 1,
    }
    log.drop(columns="position").to_csv(tmp_path / "bad.csv", index=False)
    with pytest.raises(ValueError, match="has no column position"):
        LOG.run({}, settings(log=str(tmp_path / "bad.csv")), 0)


# Claims -----------------------------------------------------------------------------------
def held(claims, means, rows):
    """Which claims have gaps above 0 in one run."""
    return [bool((np.ravel(claim.gaps(means, rows)) > 0).all()) for claim in claims]


def test_repairs_are_compared_with_the_same_method():
    names = [(K, name) for K in (1, 2) for name in claims.BASELINES]
    names += [(2, name + repair) for name in claims.BASELINES for repair in claims.REPAIRS]
    means = pd.DataFrame({"MCC": 0.95, "nDCG@10": 1.0, "click MSE": 1e-8}, names)
    means.index = pd.MultiIndex.from_tuples(names, names=["K", "method"])
    means.loc[(2, "No debias"), :] = (0.5, 0.8, 1e-5)
    means.loc[1, "MCC"] = 1.0
    for number, name in enumerate(claims.BASELINES):
        means.loc[(2, name), "MCC"] = 0.5 + 0.1 * number
        means.loc[(2, f"{name} + intervention"), "MCC"] = 0.999
    assert held(claims.TABLE_1, means, None) == [True] * 7
    means.loc[(2, "DLA + merging")] = (0.54, 0.98, 1e-6)
    means.loc[(2, "Two-Tower"), "MCC"] = 0.61
    means.loc[(1, "DLA"), "MCC"] = 0.98
    assert held(claims.TABLE_1, means, None) == [False, False, False, True, False, True, False]


def test_the_claims_of_merging_can_fail():
    def which(values):
        rows = pd.DataFrame({"merged": ["1 & 5", "2 & 5", "3 & 5", "4 & 5"], "MCC": values})
        return held(claims.FIGURE_4B, rows.set_index("merged"), rows.assign(chosen="4 & 5"))

    assert which([0.7, 0.75, 0.85, 0.97]) == [True, True]
    assert which([0.7, 0.75, 0.97, 0.85]) == [False, True]


def test_the_claims_of_the_bound_can_fail():
    pairs = [(2, name) for name in (*claims.CLOSER, "the repair")]
    index = pd.MultiIndex.from_tuples([*pairs, (3, "the repair")], names=["K", "merged"])
    means = pd.DataFrame({"bound": [1.4, 1.2, 0.7, 0.2, 0.2, 0.3]}, index)
    means["error"] = means["bound"]
    assert held(claims.PROPOSITIONS, means, None) == [True, True, True]
    means.loc[(2, "3 & 5"), "error"] = 0.1
    means.loc[(3, "the repair"), "error"] = 0.31
    assert held(claims.PROPOSITIONS, means, None) == [False, False, False]


def test_the_claims_of_contexts_can_fail():
    def which(merged, random):
        method = ["No debias", "DLA, start at 1", "DLA, random start"]
        method += ["DLA, start at 1 + merging", "DLA, random start + merging"]
        mcc = [0.6, 0.7, random, merged, 0.8]
        rows = pd.DataFrame({"documents": "made", "method": method, "MCC": mcc})
        return held(claims.TABLE_6, rows.set_index(["documents", "method"]), rows)

    assert which(0.8, 0.5) == [True, True]
    assert which(0.9, 0.5) == [True, False]
    assert which(0.8, 0.71) == [False, False]


def test_the_claims_of_merging_in_contexts_can_fail():
    index = pd.MultiIndex.from_product([["made"], OF_TABLE_2], names=["documents", "method"])
    means = pd.DataFrame({"click MSE": [1.0, 0.01, 0.5]}, index)
    for metric in ("MCC", "train nDCG@10", "test nDCG@10"):
        means[metric] = [0.6, 0.7, 0.8]
    means.loc[("made", "DLA"), "test nDCG@10"] = 0.81
    for asked in (claims.TABLE_2, claims.PADDING):
        assert held(asked, means, None) == [True, True, False, True, False]
    assert {claim.setting for claim in claims.PADDING} == {"as the authors' program"}


def test_the_claims_of_chances_can_fail():
    def which(measured, formula=(1.0, 1.0, 0.0)):
        rows = pd.DataFrame({"documents": "made", "contexts": [1, 10, 100]})
        parts = [rows.assign(**{"chance by": "measured", "chance": measured})]
        parts.append(rows.assign(**{"chance by": "formula", "chance": formula}))
        rows = pd.concat(parts)
        means = rows.set_index(["documents", "chance by", "contexts"])
        return held(claims.BY_CONTEXTS, means, rows)

    assert which((1.0, 1.0, 0.0)) == [True, True, True]
    assert which((1.0, 0.0, 1.0)) == [True, False, False]
    assert which((0.0, 1.0, 0.0)) == [False, True, True]


def test_few_clicks_confirm_nothing():
    """One number of clicks says nothing about more; swaps are judged at the largest."""
    rows = pd.DataFrame({"K": [1, 2, 3, 4], "clicks": 100, "seed": 0, "MCC": [1, 0.5, 0.5, 0.5]})
    means = rows.set_index(["K", "clicks"])[["MCC"]]
    assert held(FIGURE_3A[:2], means, rows) == [True, False]
    swaps = ["none", "least cost", "random cost"]
    rows = pd.DataFrame({"swap": swaps, "clicks": 100, "seed": 0, "MCC": [0.5, 0.9, 0.6]})
    means = rows.set_index(["swap", "clicks"])[["MCC"]]
    assert held(FIGURE_4A[1:], means, rows) == [True, True]


def test_spread_is_over_runs():
    """K = 1 within .001 of its mean, others within .1: a hundred times the spread, or five."""
    seeds = pd.DataFrame({"seed": [0, 1, 2], "step": [-1.0, 0.0, 1.0], "clicks": 100})

    def which(width):
        parts = [
            seeds.assign(K=K, MCC=0.5 + seeds["step"] * (width if K > 1 else 0.001))
            for K in (1, 2, 3, 4)
        ]
        return held(FIGURE_3A[2:], None, pd.concat(parts))

    assert which(0.1) == [True]
    assert which(0.005) == [False]
