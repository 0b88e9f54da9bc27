import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skultr._log._clicklog import make_click_log, sort_into_lists
from skultr._log._reader import read
from skultr._log._roles import (
    FIT_ROLES,
    ROLES,
    feature_columns,
    is_frame,
    read_features,
    read_role,
    role_columns,
)
from skultr.exceptions import ClickDataWarning, MissingRoleWarning

from .._worlds import FEATURES, random_lists, small_log


def make(log, clicks, **kwargs):
    return make_click_log(log, read_features(log).to_numpy(), clicks, **kwargs)


def tables(log):
    """(qid, session-free) content of a log: what must not depend on the container."""
    return {
        name: getattr(log, name)
        for name in ("doc", "query", "list_", "bias", "clicks", "weight", "offsets")
    }


def assert_same(a, b):
    for name, value in tables(a).items():
        np.testing.assert_array_equal(getattr(b, name), value, err_msg=name)
    np.testing.assert_array_equal(a.features, b.features)


# ------------------------------------------------------------------------------ columns
@pytest.mark.parametrize(
    "convert", [lambda f: f, pl.from_pandas, lambda f: pa.Table.from_pandas(f)]
)
def test_columns_of_any_frame(convert):
    log, clicks = small_log()
    frame = convert(log)
    assert is_frame(frame)
    assert feature_columns(frame) == FEATURES
    assert set(role_columns(frame)) == {"qid", "doc", "position", "relevance", "session"}
    assert read_role(frame, "user") is None
    assert_same(make(frame, clicks), make(log, clicks))


def test_keywords_win_over_columns():
    log, _ = small_log()
    got = read_role(log, "qid", np.arange(len(log)))
    np.testing.assert_array_equal(got, np.arange(len(log)))
    series = read_role(log.to_numpy(), "qid", pl.Series(log["qid"]))
    np.testing.assert_array_equal(series, log["qid"])


def test_keyword_of_wrong_length():
    log, _ = small_log()
    with pytest.raises(ValueError, match=r"'qid' has shape \(3,\); expected .* \(72,\)"):
        read_role(log, "qid", [1, 2, 3])


@pytest.mark.parametrize("value", ["first", "1", pd.Timestamp("2026-01-01")])
@pytest.mark.parametrize("role", ["position", "bias", "propensity", "impressions"])
def test_text_where_numbers_are_due(role, value):
    log, clicks = small_log()
    with pytest.raises(ValueError, match=f"{role!r} must hold numbers"):
        make(log.assign(**{role: value}), clicks)


@pytest.mark.parametrize("dtype", ["Int64", "int64[pyarrow]", "float32", object])
def test_numbers_of_any_type(dtype):
    log, clicks = small_log()
    assert_same(make(log.astype({"position": dtype}), clicks), make(log, clicks))


def test_ids_in_a_list_keep_their_types():
    log, clicks = small_log(n_queries=2, n_sessions=1)
    ids = [1] * 4 + ["1"] * 4
    assert make(log, clicks, roles={"qid": ids}).n_lists == 2
    tuples = [("a", 1)] * 4 + [("a", 2)] * 4
    assert make(log, clicks, roles={"qid": tuples}).n_lists == 2


def test_tables_that_are_no_frames_are_refused():
    log, _ = small_log()
    with pytest.raises(TypeError, match="RecordBatch, which has named columns"):
        is_frame(pa.RecordBatch.from_pandas(log))
    levels = log.set_axis(pd.MultiIndex.from_product([["a"], log.columns]), axis=1)
    with pytest.raises(ValueError, match="several levels"):
        is_frame(levels)


def test_bad_feature_cell_is_named():
    log, _ = small_log()
    for value, what in ((-np.inf, "infinity"), (1e300, "infinity or a value too large")):
        bad = log.copy()
        bad.loc[5, "f1"] = value
        with pytest.raises(ValueError, match=rf"{what}.*column 'f1', row 5"):
            read_features(bad)
    mixed = log.astype({"f1": object})
    mixed.loc[0, "f1"] = "phone"
    with pytest.raises(ValueError, match=r"'f1' \(Object, such as 'phone'\)"):
        read_features(mixed)


def test_warnings_point_at_the_caller():
    log, clicks = small_log()
    with pytest.warns(ClickDataWarning) as caught:
        make(log, 0 * clicks)
    assert caught[0].filename == __file__


def test_fold_merges_users_unless_told_otherwise():
    log, clicks = small_log()
    made = make(log.assign(user=log["session"]), clicks)
    assert made.fold().n_lists == 6
    assert made.fold(users=True).n_lists == 18


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_tempered_traffic(exponent):
    log, clicks = small_log()
    log["impressions"] = 1 + 100 * (log["qid"] == 0)
    made = make(log, clicks)
    tempered = made.tempered(exponent)
    np.testing.assert_allclose(tempered.click_rate, made.click_rate)
    np.testing.assert_allclose(tempered.weight.sum(), made.weight.sum())
    traffic = np.bincount(made.query, made.weight), np.bincount(made.query, tempered.weight)
    ratio = np.log(traffic[1][0] / traffic[1][1]) / np.log(traffic[0][0] / traffic[0][1])
    assert ratio == pytest.approx(exponent, abs=1e-9)
    factor = made.traffic_factors(exponent)[made.query]
    np.testing.assert_allclose(factor, tempered.weight / made.weight)


# ------------------------------------------------------------------------------ defaults
def test_without_qid_all_rows_are_one_query():
    log, clicks = small_log(n_queries=1, n_sessions=1)
    with pytest.warns(MissingRoleWarning, match="no column 'qid'"):
        made = make(log.drop(columns=["qid", "session"]), clicks)
    assert made.n_lists == 1


def test_without_position_the_order_of_rows_counts():
    log, clicks = small_log()
    with pytest.warns(MissingRoleWarning, match="no column 'position'"):
        made = make(log.drop(columns="position"), clicks)
    assert_same(made, make(log, clicks))


def test_without_doc_equal_features_are_one_document():
    log, clicks = small_log()
    made = make(log.drop(columns="doc"), clicks)
    assert len(made.features) == 24
    by_row = made.features[made.version]
    reference = make(log, clicks)
    np.testing.assert_array_equal(by_row, reference.features[reference.version])


def test_scores_of_the_old_ranker_are_read_on_request_only():
    log, clicks = small_log()
    log = log.assign(production=np.arange(len(log), dtype=float))
    assert make(log, clicks).production is None
    rows = read(log, clicks, reads=(*FIT_ROLES, "production"))
    made = sort_into_lists(rows, read_features(log).to_numpy().astype(np.float32))
    first = made.fold()
    assert sorted(made.production) == log["production"].tolist()
    assert len(first.production) == first.n_rows
    log.loc[2, "production"] = np.nan
    assert make(log, clicks).production is None
    with pytest.raises(ValueError, match=r"production must be a finite score.*row 2"):
        read(log, clicks, reads=(*FIT_ROLES, "production"))


@pytest.mark.parametrize("order", ["sorted", "shuffled", "repeated", "seldom"])
def test_features_that_may_be_moved_are_those_of_a_copy(order):
    log, clicks = small_log(n_sessions={"repeated": 2, "seldom": 3}.get(order, 1))
    if order == "shuffled":
        shuffled = np.random.default_rng(0).permutation(len(log))
        log, clicks = log.iloc[shuffled].reset_index(drop=True), clicks[shuffled]
    rows = read(log, clicks)
    features = read_features(log).to_numpy().copy()
    own = features.copy()
    made, moved = sort_into_lists(rows, features), sort_into_lists(rows, own, reuse=True)
    np.testing.assert_array_equal(features, read_features(log))
    np.testing.assert_array_equal(moved.features, made.features)
    assert moved.features.flags.c_contiguous
    assert np.may_share_memory(moved.features, own) == (order != "seldom")


def test_negative_zero_is_zero():
    frame = pd.DataFrame({"qid": 1, "position": [1, 2], "f": [0.0, -0.0]})
    assert len(make(frame, [0, 1]).features) == 1


def test_bias_defaults_to_position():
    log, clicks = small_log()
    made = make(log, clicks)
    np.testing.assert_array_equal(made.bias_values[made.bias], made.position)
    made = make(log.assign(bias=log["position"] * 10 + 7), clicks)
    assert made.bias_values.tolist() == [17, 27, 37, 47]


@pytest.mark.parametrize("factor", [1e-3, 0.37, 1.0, 1e3])
def test_sample_weights_multiply_impressions_relative_to_their_mean(factor):
    log, clicks = small_log()
    impressions = 1 + np.arange(len(log)) % 3
    weight = 1.0 + np.arange(len(log)) % 2
    log = log.assign(impressions=impressions)
    made = make(log, clicks, sample_weight=factor * weight)
    mean = (impressions * weight).sum() / impressions.sum()
    np.testing.assert_allclose(made.weight.sum(), impressions.sum(), rtol=1e-6)
    np.testing.assert_allclose(made.weight.max(), (impressions * weight).max() / mean, rtol=1e-6)
    np.testing.assert_array_equal(made.weight, make(log, clicks, sample_weight=weight).weight)


def test_a_sample_weight_of_zero_drops_a_row_and_no_weight_of_others():
    log, clicks = small_log()
    made = make(log, clicks, sample_weight=(np.arange(len(log)) % 4 > 0).astype(float))
    assert made.n_rows == np.count_nonzero(np.arange(len(log)) % 4)
    assert (made.weight == 1).all()


def test_zero_impressions_are_not_shown():
    log, clicks = small_log()
    impressions = np.where(log["position"] == 4, 0, 1)
    clicks = clicks * impressions
    made = make(log.assign(impressions=impressions), clicks)
    gone = make(log.assign(position=log["position"].where(log["position"] < 4)), clicks)
    np.testing.assert_array_equal(made.doc, gone.doc)
    np.testing.assert_array_equal(made.clicks, gone.clicks)


# ------------------------------------------------------------------------------ bad input
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"position": 0},
            r"from 1.*found 0 in 72 rows, first in row 0.*counts from 0, add 1",
        ),
        ({"position": 1.5}, r"whole number from 1.*found 1.5 in 72 rows, first in row 0"),
        (
            {"propensity": -0.5},
            r"propensity must lie in \[0, 1\].*found -0.5 in 72 rows, first",
        ),
        ({"propensity": 1.5}, r"propensity must lie in \[0, 1\].*found 1.5 in 72 rows"),
        ({"propensity": np.nan}, r"propensity must lie in .*found nan in 72 rows"),
        (
            {"impressions": -1},
            r"impressions must be finite and at least 0, .*: found -1 in 72 rows",
        ),
        ({"impressions": np.nan}, r"impressions must be finite.*: found nan in 72 rows"),
        ({"impressions": 0}, "No row was shown"),
        ({"bias": np.nan}, r"bias is missing in 72 rows, first in row 0.*row that was shown"),
        ({"bias": 1.5}, r"bias must hold whole numbers.*found 1.5 in 72 rows, first in row 0"),
        ({"bias": np.inf}, r"bias must hold whole numbers.*found inf in 72 rows"),
        ({"position": 1}, r"Two rows of one list are at position 1 \(query 0, row 1\)"),
    ],
)
def test_bad_roles(change, message):
    log, clicks = small_log()
    with pytest.raises(ValueError, match=message):
        make(log.assign(**change), clicks)


def test_two_lists_without_session_name_the_remedy():
    log, clicks = small_log()
    with pytest.raises(ValueError, match="column 'session'"):
        make(log.drop(columns="session"), clicks)


def test_grades_are_scaled_with_a_warning():
    log, _ = small_log()
    with pytest.warns(ClickDataWarning, match="up to 4.*graded relevance.*numbers of clicks"):
        made = make(log, np.full(len(log), 4.0))
    assert (made.click_rate == 1).all()


# ------------------------------------------------------------------------------ laws
@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_row_order_does_not_matter(seed):
    log, clicks = random_lists(n_sessions=20, seed=seed)
    order = np.random.default_rng(seed).permutation(len(log))
    assert_same(make(log.iloc[order], clicks[order]), make(log, clicks))
    shuffled = make(log.iloc[order], clicks[order]).fold()
    assert_same(shuffled, make(log, clicks).fold())


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_fold_is_a_dictionary_of_lists(seed):
    log, clicks = random_lists(seed=seed)
    expected = {}
    for _, rows in log.assign(click=clicks).groupby("session"):
        rows = rows.sort_values("position")
        key = (rows["qid"].iloc[0], *rows["doc"])
        count, clicked = expected.get(key, (0, np.zeros(len(rows))))
        expected[key] = (count + 1, clicked + rows["click"].to_numpy())
    folded = make(log, clicks).fold()
    assert folded.n_lists == len(expected)
    for start, stop in zip(folded.offsets[:-1], folded.offsets[1:], strict=True):
        rows = slice(start, stop)
        count, clicked = expected[(folded.query[start], *folded.doc[rows])]
        np.testing.assert_array_equal(folded.weight[rows], count)
        np.testing.assert_array_equal(folded.clicks[rows], clicked)


def test_fold_is_idempotent_and_keeps_propensities_apart():
    log, clicks = small_log()
    once = make(log, clicks).fold()
    assert once.n_lists == 6
    assert_same(once.fold(), once)
    varied = log.assign(propensity=np.where(log["session"] < 6, 0.5, 0.25))
    assert make(varied, clicks).fold().n_lists == 12


@pytest.mark.parametrize("max_rows", [1, 7, 1000])
def test_chunks_are_the_log(max_rows):
    log, clicks = random_lists(n_sessions=20)
    made = make(log.assign(propensity=0.5), clicks)
    chunks = list(made.chunks(max_rows))
    for name in ("doc", "query", "position", "bias", "clicks", "weight", "propensity"):
        whole = np.concatenate([getattr(part, name) for part in chunks])
        np.testing.assert_array_equal(whole, getattr(made, name))
    lengths = np.concatenate([np.diff(part.offsets) for part in chunks])
    np.testing.assert_array_equal(lengths, np.diff(made.offsets))
    assert all(part.n_rows <= max_rows or part.n_lists == 1 for part in chunks)
    queries = [part.query_of_list for part in made.chunks(max_rows, whole_queries=True)]
    np.testing.assert_array_equal(np.concatenate(queries), made.query_of_list)
    assert sum(len(np.unique(each)) for each in queries) == len(np.unique(made.query_of_list))
    doubled = made.by_chunk(lambda part: 2 * part.clicks, max_rows=max_rows)
    np.testing.assert_array_equal(doubled, 2 * made.clicks)


def test_select_queries_keeps_whole_lists():
    log, clicks = small_log()
    made = make(log, clicks)
    part = made.select_queries(np.arange(6) % 2 == 0)
    assert np.unique(part.query).tolist() == [0, 2, 4]
    assert part.n_lists == made.n_lists / 2
    assert part.clicks.sum() == made.clicks[made.query % 2 == 0].sum()


def test_documented_roles_are_the_roles():
    assert ROLES[-3:] == ("click", "production", "relevance")
    assert len(set(ROLES)) == 13


def changing_log():
    """A log whose feature f1 changes between sessions for half of the documents."""
    log, clicks = small_log()
    log = log.assign(f1=log["f1"] + np.where(log["doc"] % 2, log["session"] // 6, 0))
    return log, clicks


def test_versions_are_the_feature_vectors_of_a_document():
    log, clicks = changing_log()
    made, same = make(log, clicks), make(*small_log())
    assert made.n_docs == same.n_docs < made.n_versions
    pd.testing.assert_index_equal(made.doc_ids, same.doc_ids)
    np.testing.assert_array_equal(made.doc, same.doc)
    np.testing.assert_array_equal(made.doc_of_version[made.version], made.doc)
    assert (np.diff(made.doc_of_version) >= 0).all()
    rows = np.column_stack([made.doc_of_version, made.features])
    assert len(np.unique(rows, axis=0)) == made.n_versions
    for name in ("doc", "factor", "clicks", "weight"):
        np.testing.assert_array_equal(getattr(made.cells, name), getattr(same.cells, name))


def test_versions_do_not_depend_on_the_order_of_rows():
    log, clicks = changing_log()
    made = make(log, clicks)
    order = np.random.default_rng(0).permutation(len(log))
    other = make(log.iloc[order], clicks[order])
    np.testing.assert_array_equal(made.features, other.features)
    np.testing.assert_array_equal(made.version, other.version)


def test_means_by_document_weigh_versions_by_impressions():
    log, clicks = changing_log()
    made = make(log, clicks)
    found = made.by_document(made.features.astype(float))
    table = pd.DataFrame(made.features[made.version])
    expected = (table.mul(made.weight, axis=0)).groupby(made.doc).sum()
    expected = expected.div(np.bincount(made.doc, made.weight), axis=0)
    np.testing.assert_allclose(found, expected.to_numpy(), rtol=1e-6)


def test_a_log_with_features_of_documents_has_one_version_of_each():
    log, clicks = changing_log()
    made = make(log, clicks)
    bare = made.with_features(np.zeros((made.n_docs, 0), dtype=np.float32))
    assert bare.n_versions == bare.n_docs == made.n_docs


# --------------------------------------------------------------------------- candidates
def test_candidates_are_a_table_of_their_own():
    """Distinct pairs of a query and a version, in as many rows as name them."""
    log = pd.DataFrame(
        {
            "qid": [0, 0, 0, 0, 1, 1, 2],
            "session": [0, 0, 1, 1, 2, 2, 3],
            "doc": ["a", "b", "a", "b", "c", "d", "e"],
            "position": [1, np.nan, 1, np.nan, 1, np.nan, np.nan],
            "x": [0.0, 1.0, 0.0, 1.0, 2.0, 3.0, 4.0],
        }
    )
    rows, features = read(log, [1, 0, 0, 0, 0, 0, 0]), log[["x"]].to_numpy(np.float32)
    without = sort_into_lists(rows, features)
    assert [doc for _, doc in without.doc_ids] == ["a", "c"]
    assert without.features[:, 0].tolist() == [0, 2]
    rows = read(log, [1, 0, 0, 0, 0, 0, 0])
    made = sort_into_lists(rows, features, candidates=True)
    assert made.n_rows == without.n_rows == 3
    assert made.candidates.query.tolist() == [0, 1, 2]
    assert made.features[made.candidates.version, 0].tolist() == [1, 3, 4]
    part = made.part_of(np.array([1, 2]))
    assert part.query_ids.tolist() == [1, 2]
    assert part.candidates.query.tolist() == [0, 1]
    assert part.features[part.candidates.version, 0].tolist() == [3, 4]
    assert_same(made.without_candidates(), without)
