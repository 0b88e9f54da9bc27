import time
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose
from pandas.testing import assert_frame_equal

from skultr import DLARanker
from skultr.exceptions import NotIdentifiableWarning
from skultr.identifiability import IdentifiabilityGraph, feature_overlap


def pages(n_queries=300, n_positions=4, noise=None, seed=0):
    """One order for each query; three features, and the position plus noise unless None."""
    rng = np.random.default_rng(seed)
    n_rows = n_queries * n_positions
    log = pd.DataFrame(rng.normal(size=(n_rows, 3)), columns=["a", "b", "c"])
    log["qid"] = np.repeat(np.arange(n_queries), n_positions)
    log["doc"] = np.arange(n_rows)
    log["position"] = np.tile(np.arange(1, n_positions + 1), n_queries)
    if noise is not None:
        log["leak"] = log["position"] + noise * rng.normal(size=n_rows)
    return log


# The number -----------------------------------------------------------------------------
def test_features_without_relation_to_the_position_overlap_in_full():
    result = feature_overlap(pages())
    assert result.overlap > 0.95
    assert result.determines
    assert len(result.pairs) == 4 * 3 / 2
    assert result.pairs["overlap"].between(result.overlap, 1).all()
    assert feature_overlap(pages().assign(a=1.0, b=2.0, c=0.0)).overlap == pytest.approx(1)


@pytest.mark.parametrize("how", ["number", "indicators", "blocks and indicators"])
def test_features_that_are_the_position_leave_nothing(how):
    log = pages()
    if how == "number":
        log["leak"] = log["position"].astype(float)
        log = log[log["position"] < 3]  # of two positions, a number says all
    else:
        for position in range(1, 5):
            here = log["position"] == position
            log[f"is {position}"] = here.astype(float)
            if "blocks" in how:
                log[[f"{name}{position}" for name in "abc"]] = np.where(
                    here.to_numpy()[:, None], log[["a", "b", "c"]], 0.0
                )
    result = feature_overlap(log)
    assert result.overlap < 0.02
    assert not result.determines


@pytest.mark.parametrize("noise", [0.3, 1.0, 3.0])
def test_two_positions_by_arithmetic(noise):
    # The difference of the leak is 1 + N(0, 2 noise²), and that of the factor is always 1: linear
    # regression without intercept leaves 2 noise² / (1 + 2 noise²).
    log = pages(n_queries=1_000, n_positions=2, noise=noise)
    expected = 2 * noise**2 / (1 + 2 * noise**2)
    assert_allclose(feature_overlap(log).overlap, expected, atol=0.06)


@pytest.mark.parametrize("swapped", [0, 0.1, 0.25])
def test_documents_that_moved_leave_their_share(swapped):
    # A feature is the usual position. On a share of the pages the two documents are swapped: the
    # prediction is right in all but those, and leaves 1 - (1 - 2 swapped)².
    log = pages(n_positions=2).assign(usual=lambda log: log["position"].astype(float))
    moved = log.assign(position=3 - log["position"], session=1, impressions=100 * swapped)
    log = pd.concat([log.assign(session=0, impressions=100 * (1 - swapped)), moved])
    assert_allclose(feature_overlap(log).overlap, 1 - (1 - 2 * swapped) ** 2, atol=0.03)


def test_more_noise_more_overlap():
    found = [feature_overlap(pages(noise=noise)).overlap for noise in (0.1, 0.5, 1, 3, 10)]
    assert (np.diff(found) > 0).all()


def test_a_pair_is_compared_through_others():
    # Neighbours overlap, the ends do not: their ratio is known, but from fewer clicks.
    pairs = feature_overlap(pages(n_positions=8, noise=1)).pairs.set_index(
        ["factor_a", "factor_b"]
    )
    assert pairs.at[(4, 5), "overlap"] > 0.7
    assert 0.1 < pairs.at[(1, 8), "overlap"] < 0.5


# What does not matter -------------------------------------------------------------------
def test_kind_of_frame_order_of_rows_and_names_do_not_matter():
    log = pages(noise=1)
    expected = feature_overlap(log)
    for other in (
        pl.from_pandas(log),
        pa.Table.from_pandas(log, preserve_index=False),
        log.sample(frac=1, random_state=0),
        log.assign(qid=log["qid"].map("q{:04d}".format)),
        log.assign(click=(log["position"] == 1) * 1.0),  # clicks are no feature
        log.assign(relevance=log["position"]),  # nor is any role
    ):
        assert_allclose(feature_overlap(other).overlap, expected.overlap, rtol=1e-6)
    assert_frame_equal(feature_overlap(pl.from_pandas(log)).pairs, expected.pairs)


def test_impressions_are_repeated_pages():
    log = pages(noise=1)
    twice = pd.concat([log.assign(session=0), log.assign(session=1)])
    found = feature_overlap(log.assign(impressions=2)).overlap
    assert_allclose(found, feature_overlap(twice).overlap, rtol=1e-6)


def test_rows_that_were_not_shown_are_left_out():
    log = pages(noise=1)
    never = log.assign(doc=-1 - log["doc"], position=np.nan, leak=100.0)
    both = pd.concat([log, never], ignore_index=True)
    assert feature_overlap(both).overlap == feature_overlap(log).overlap


# Bias factors ---------------------------------------------------------------------------
def test_columns_of_the_bias_factor_are_no_features():
    log = pages(n_positions=2)
    log["layout"] = np.where(log["position"] == 1, "wide", "narrow")
    result = feature_overlap(log, bias=["position", "layout"])
    assert result.overlap > 0.9
    assert result.pairs.iloc[0, :2].tolist() == [(1, "wide"), (2, "narrow")]
    assert feature_overlap(log.drop(columns="layout"), bias="position").pairs.shape == (1, 3)


def test_what_no_page_compares_has_no_overlap():
    log = pages(n_positions=2)
    log["device"] = np.where(log["qid"] % 2, "phone", "desktop")
    result = feature_overlap(log, bias=["position", "device"])
    assert result.overlap == 0
    pairs = result.pairs
    one_device = [a[1] == b[1] for a, b in zip(pairs["factor_a"], pairs["factor_b"], strict=True)]
    assert ((pairs["overlap"] > 0) == one_device).all()
    assert "no result page compares all 4 bias factors" in result.summary()


def test_one_factor_and_one_query():
    one = feature_overlap(pages()[lambda log: log["position"] == 1])
    assert (one.overlap, one.determines, len(one.pairs)) == (1, True, 0)
    assert "one bias factor" in one.summary()
    assert 0 <= feature_overlap(pages(n_queries=1)).overlap <= 1


def test_at_most_a_hundred_factors_are_compared():
    log = pages(n_queries=20, n_positions=120).assign(
        impressions=lambda log: 121 - log["position"]
    )
    assert feature_overlap(log).pairs["factor_b"].max() == 100


def test_large_logs_are_sampled():
    log = pages(n_queries=100_000, noise=1)
    start = time.process_time()
    result = feature_overlap(log)
    assert time.process_time() - start < 10
    assert result.n_rows == 5_000
    assert_allclose(
        result.overlap, feature_overlap(pages(n_queries=1_200, noise=1)).overlap, atol=0.05
    )


def test_more_features_than_are_read_still_show_the_one_that_tells():
    log = pages(n_queries=300, n_positions=2, noise=0.05)
    noise = np.random.default_rng(1).normal(size=(len(log), 400))
    log = pd.concat([log, pd.DataFrame(noise).add_prefix("noise_")], axis=1)
    assert feature_overlap(log).overlap < 0.5


# Faults ---------------------------------------------------------------------------------
def test_faults_are_named():
    log = pages()
    with pytest.raises(ValueError, match="0 feature columns"):
        feature_overlap(log.drop(columns=["a", "b", "c"]))
    with pytest.raises(ValueError, match=r"infinity.* in the feature column 'b'"):
        feature_overlap(log.assign(b=np.inf))
    with pytest.raises(TypeError, match="ndarray; expected the log as a frame"):
        feature_overlap(log.to_numpy())
    with pytest.raises(TypeError, match="lazy frame"):
        feature_overlap(pl.from_pandas(log).lazy())
    with pytest.raises(ValueError, match="neither a column 'position' nor 'bias'"):
        feature_overlap(log.drop(columns="position"))
    device = np.where(np.arange(len(log)) == 4, None, "phone")
    with pytest.raises(ValueError, match="missing in 1 shown row, first in row 4"):
        feature_overlap(log.assign(device=device), bias=["position", "device"])
    with pytest.raises(ValueError, match="No row was shown"):
        feature_overlap(log.assign(position=np.nan))


# Where it is said -----------------------------------------------------------------------
def test_summaries_say_whether_features_can_do_it():
    shared, leaking = pages(), pages(noise=0.05)
    graph = IdentifiabilityGraph.from_log(shared)
    assert "a network may do so" in graph.summary(feature_overlap(shared))
    assert "a network cannot do so either" in graph.summary(feature_overlap(leaking))
    assert "feature_overlap" not in graph.summary()
    assert feature_overlap(shared).summary().startswith("Features overlap")
    assert feature_overlap(leaking).summary().startswith("Features do NOT overlap")
    moved = pd.concat([shared.assign(session=0), shared.assign(session=1)], ignore_index=True)
    moved.loc[moved["session"] == 1, "position"] = 5 - moved["position"]
    connected = IdentifiabilityGraph.from_log(moved[moved["position"].isin([1, 4])])
    assert "feature" not in connected.summary(feature_overlap(shared[shared["position"] != 2]))
    with pytest.raises(ValueError, match="is of another log: it has the bias factor 5"):
        graph.summary(feature_overlap(pages(n_positions=5)))


def test_components_are_compared_as_wholes():
    # The leak tells 1 and 2 apart from 3 and 4; inside the pairs documents moved.
    log = pages().assign(half=lambda log: (log["position"] > 2).astype(float))
    other = log.assign(position=log["position"].map({1: 2, 2: 1, 3: 4, 4: 3}), session=1)
    log = pd.concat([log.assign(session=0), other], ignore_index=True)
    graph, overlap = IdentifiabilityGraph.from_log(log), feature_overlap(log)
    assert graph.n_components == 2
    assert overlap.between(graph._factor_names(), graph.labels) < 0.02
    pairs = overlap.pairs.set_index(["factor_a", "factor_b"])["overlap"]
    assert pairs[1, 2] > 0.9
    assert pairs[1, 3] < 0.1


@pytest.mark.filterwarnings("ignore:The log has .* clicks per query")
@pytest.mark.parametrize(
    ("noise", "words"), [(None, "Features overlap"), (1, "Features overlap"), (0.05, "do NOT")]
)
def test_rankers_name_it_in_their_warning(noise, words):
    log = pages(noise=noise)
    words = rf"{words} .*\({feature_overlap(log).overlap:.2f}; 1: they do not depend"
    clicks = (np.random.default_rng(0).random(len(log)) < 1 / log["position"]).astype(float)
    with pytest.warns(NotIdentifiableWarning, match=words):
        DLARanker(max_epochs=1, random_state=0).fit(log, clicks)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        DLARanker(relevance="embedding").fit(log, clicks)
    assert not any("eatures overlap" in str(warning.message) for warning in caught)
