"""Hostile logs at every door: the numbers of the clean log, or an error in words of ours.

A column of another type that holds the same values changes nothing. What cannot be read is an
error whose last frame is skultr's, or scikit-learn's check: never one from inside pandas, Arrow,
Narwhals or NumPy.
"""

import datetime
import traceback
import uuid
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from skultr import ClickDataset, aggregate_clicks, describe_log
from skultr.click_models import PBMModel, UBMModel
from skultr.evaluation import compare_logs, interleaving_outcome, policy_value
from skultr.exceptions import is_meant
from skultr.identifiability import IdentifiabilityGraph, IdentifiabilityRepair
from skultr.metrics import CMIPScorer, IPSScorer, ndcg_score
from skultr.model_selection import QueryKFold
from skultr.preprocessing import OnFeatures
from skultr.propensity import RandomizedPropensity, debiased_table, relevance_labels
from skultr.rankers import LambdaMARTRanker, NaiveRanker

from ._worlds import EXAMINATION, FEATURES, random_lists

pytestmark = pytest.mark.filterwarnings("ignore")

ROLES = ["qid", "session", "doc", "position"]


def _clean():
    log, clicks = random_lists(n_sessions=60)
    log = log[[*ROLES, *FEATURES]].astype(dict.fromkeys(FEATURES, "float32"))
    return log.astype(dict.fromkeys(FEATURES, float)).assign(click=clicks)


CLEAN = _clean()
GRADES = CLEAN["doc"].to_numpy() % 3
CANDIDATES = CLEAN[["qid", *FEATURES]].drop_duplicates()
FITTED = NaiveRanker(estimator=Ridge()).fit(CLEAN, "click")
MODEL = PBMModel().fit(CLEAN, "click")


# Doors ------------------------------------------------------------------------------------
def _scores(ranker, log):
    """Scores of the candidates, whatever the log calls its features."""
    names = [*getattr(ranker, "feature_names_in_", FEATURES)]
    known = {*names} == {*FEATURES}
    return ranker.predict(
        CANDIDATES[FEATURES if known else FEATURES[: len(names)]].set_axis(
            FEATURES if known else names, axis=1
        )
    )


def _dataset(log, folder):
    dataset = ClickDataset.from_parquet(log, path=folder / "dataset")
    return _scores(NaiveRanker(estimator=Ridge()).fit(dataset), log)


def _aggregated(log):
    lists, rate = aggregate_clicks(log)
    impressions = np.asarray(lists["impressions"], dtype=float)
    return [len(rate), impressions @ rate, impressions.sum()]


def _of_teams(log):
    """The outcome of the log as an interleaving of two rankers, where it is a frame."""
    is_known = isinstance(log, pd.DataFrame | pl.DataFrame | pa.Table)
    team = ["ab"[row % 2] for row in range(len(log))] if is_known else None
    if isinstance(log, pd.DataFrame):
        log = log.assign(team=team)
    elif isinstance(log, pl.DataFrame):
        log = log.with_columns(team=pl.Series(team))
    elif isinstance(log, pa.Table):
        log = log.append_column("team", pa.array(team))
    pairs = interleaving_outcome(log, "click").pairs
    return pairs.select_dtypes("number").to_numpy()


def _report(log):
    report = describe_log(log)
    return [report.n_rows, report.n_queries, report.n_pages, *report.clicks["click rate"]]


#: From a log to numbers.
DOORS = {
    "fit": lambda log, _: _scores(NaiveRanker(estimator=Ridge()).fit(log, "click"), log),
    "fit of trees": lambda log, _: _scores(
        LambdaMARTRanker(n_estimators=2, early_stopping=False).fit(log, "click"), log
    ),
    "fit of a click model": lambda log, _: PBMModel().fit(log, "click").examination_,
    "fit of a propensity": lambda log, _: RandomizedPropensity().fit(log, "click").examination_,
    "predict": lambda log, _: FITTED.predict(log),
    "rank": lambda log, _: FITTED.rank(log),
    "score": lambda log, _: FITTED.score(log, GRADES),
    "score of y": lambda log, _: FITTED.score(CLEAN, log["click"]),
    "predict_click": lambda log, _: MODEL.predict_click(log, "click").shape,
    "describe_log": lambda log, _: _report(log),
    "fit of UBM": lambda log, _: UBMModel(max_iter=5).fit(log, "click").examination_.shape,
    "relevance_labels": lambda log, _: relevance_labels(log, "click", propensity=EXAMINATION)[
        "label"
    ].sum(),
    "aggregate_clicks": lambda log, _: _aggregated(log),
    "debiased_table": lambda log, _: np.asarray(debiased_table(log, EXAMINATION)["label"]).sum(),
    "graph": lambda log, _: IdentifiabilityGraph.from_log(log).n_components,
    "repair": lambda log, _: len(IdentifiabilityRepair().fit_transform(log, "click")),
    "ClickDataset": _dataset,
    "CMIPScorer": lambda log, _: CMIPScorer(estimator="knn", n_repeats=1)(
        FITTED, log, "click", relevance=GRADES
    ),
    "IPSScorer": lambda log, _: IPSScorer(propensity=EXAMINATION)(FITTED, log, "click"),
    "compare_logs": lambda log, _: np.sort(compare_logs(log, log).table["new"]),
    "compare_logs with another": lambda log, _: compare_logs(CLEAN, log).table["old"][:3],
    "policy_value": lambda log, _: policy_value(log, "click", "f0")[0],
    "ndcg_score": lambda log, _: ndcg_score(log["click"], log["f0"], qid=log["qid"]),
    "interleaving_outcome": lambda log, _: _of_teams(log),
    "QueryKFold": lambda log, _: [len(test) for _, test in QueryKFold(3).split(log)],
    "OnFeatures": lambda log, _: np.asarray(OnFeatures(StandardScaler()).fit_transform(log)["f1"]),
}


# Logs -------------------------------------------------------------------------------------
def _with(change, *columns):
    """The clean log with other values in some columns."""
    return lambda: CLEAN.assign(**{name: change(CLEAN[name]) for name in columns})


def _objects(make):
    """From a column to one of Python objects."""
    return lambda column: pd.Series([make(value) for value in column.tolist()], dtype=object)


def _closed():
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    relation = connection.from_df(CLEAN)
    connection.close()
    return relation


#: The same values in other types: the same numbers, wherever the door reads such a type.
SAME = {
    "all of Arrow": lambda: CLEAN.convert_dtypes(dtype_backend="pyarrow"),
    "all nullable": lambda: CLEAN.convert_dtypes(),
    "positions of Arrow": _with(lambda each: each.astype("int64[pyarrow]"), "position"),
    "decimals of Arrow": _with(
        lambda each: each.astype(pd.ArrowDtype(pa.decimal128(20, 0))), "position"
    ),
    "ids of Arrow, as floats": _with(lambda each: each.astype("double[pyarrow]"), "qid", "doc"),
    "clicks of Arrow": _with(lambda each: each.astype("bool[pyarrow]"), "click"),
    "positions as objects": _with(_objects(int), "position"),
    "positions as decimals": _with(_objects(Decimal), "position"),
    "positions of half precision": _with(lambda each: each.astype("float16"), "position"),
    "ids of half precision": _with(lambda each: each.astype("float16"), "qid", "session", "doc"),
    "ids of single precision": _with(lambda each: each.astype("float32"), "qid", "doc"),
    "clicks of half precision": _with(lambda each: each.astype("float16"), "click"),
    "ids as UUIDs": _with(_objects(lambda each: uuid.UUID(int=each)), "session", "doc"),
    "ids as tuples": _with(_objects(lambda each: (each, "x")), "qid"),
    "ids as decimals": _with(_objects(Decimal), "qid", "doc"),
    "ids beyond 64 bits": _with(_objects(lambda each: 10**30 + each), "session"),
    "ids as dates": _with(
        _objects(lambda each: datetime.date(2024, 1, 1) + datetime.timedelta(each)), "session"
    ),
    "ids as bytes": _with(_objects(lambda each: str(each).encode()), "session"),
    "features as fractions": _with(_objects(Fraction), "f0"),
    "features as decimals": _with(_objects(Decimal), "f0", "f1"),
    "features of extended precision": _with(lambda each: each.astype(np.longdouble), *FEATURES),
    "columns in another order": lambda: CLEAN[["f2", "click", "f0", "doc", "position", "f1"]].join(
        CLEAN[["session", "qid"]]
    ),
    "another index": lambda: CLEAN.set_axis(["row"] * len(CLEAN)),
    "an index of levels": lambda: CLEAN.set_index(
        pd.MultiIndex.from_product([["a"], range(len(CLEAN))])
    ),
    "Polars": lambda: pl.from_pandas(CLEAN),
    "PyArrow": lambda: pa.Table.from_pandas(CLEAN, preserve_index=False),
}
#: Types that a door refuses in words: Arrow has none such, and scores are numbers of NumPy.
REFUSED = {
    ("ClickDataset", "ids as tuples"),
    ("ClickDataset", "ids beyond 64 bits"),
    ("ClickDataset", "features as fractions"),
    ("ClickDataset", "features of extended precision"),
    ("policy_value", "features as fractions"),
    ("policy_value", "features as decimals"),
}
#: What is no log, or may be none.
OTHER = {
    "no frame: None": lambda: None,
    "no frame: a dict": lambda: CLEAN.to_dict("list"),
    "no frame: records": lambda: CLEAN.to_dict("records"),
    "no frame: a path": lambda: "log.parquet",
    "no frame: an array": lambda: CLEAN.to_numpy(),
    "no frame: objects": lambda: CLEAN.to_numpy(dtype=object),
    "no frame: records of NumPy": lambda: CLEAN.to_records(index=False),
    "no frame: sparse": lambda: sparse.csc_matrix(CLEAN[FEATURES]),
    "no frame: one column": lambda: CLEAN["f0"],
    "a lazy frame": lambda: pl.from_pandas(CLEAN).lazy(),
    "an engine that is closed": _closed,
    "a column twice: qid": lambda: CLEAN.join(CLEAN["qid"], rsuffix="_").rename(
        columns={"qid_": "qid"}
    ),
    "a column twice: f0": lambda: CLEAN.rename(columns={"f1": "f0"}),
    "columns of levels": lambda: pd.concat({"log": CLEAN}, axis=1),
    "a column without a name": lambda: CLEAN.rename(columns={"f0": None}),
    "a column named by a tuple": lambda: CLEAN.set_axis(
        pd.Index([("x", 1), *CLEAN.columns[1:]], tupleize_cols=False), axis=1
    ),
    "columns named by numbers": lambda: CLEAN.set_axis(range(CLEAN.shape[1]), axis=1),
    "lists as ids": _with(_objects(lambda each: [each]), "qid"),
    "dicts as ids": _with(_objects(lambda each: {"id": each}), "doc"),
    "tuples of lists as ids": _with(_objects(lambda each: ([each],)), "session"),
    "complex ids": _with(lambda each: each.astype(complex), "qid"),
    "complex features": _with(lambda each: each.astype(complex) + 1j, "f0", "f1"),
    "complex features without imaginary part": _with(lambda each: each.astype("complex64"), "f1"),
    "complex features among objects": _with(_objects(lambda each: each + 1j), "f2"),
    "complex positions": _with(lambda each: each.astype(complex), "position"),
    "features beyond float64": _with(_objects(lambda each: 10**400 + int(each)), "f0"),
    "clicks beyond float64": _with(_objects(lambda each: int(each) * 10**400), "click"),
    "positions beyond 64 bits": _with(_objects(lambda each: 10**30), "position"),
    "positions beyond float64": _with(_objects(lambda each: 10**400), "position"),
    "positions of a billion": _with(lambda each: each.replace(2, 10**9), "position"),
    "positions of 1e15": _with(lambda each: each * 10**14, "position"),
    "infinite positions": _with(lambda each: each.replace(2, np.inf), "position"),
    "positions as text": _with(lambda each: each.astype(str), "position"),
    "positions as times": _with(lambda each: pd.to_datetime(each), "position"),
    "positions as durations": _with(lambda each: pd.to_timedelta(each), "position"),
    "positions as lists": _with(_objects(lambda each: [each]), "position"),
    "clicks as words": _with(lambda each: each.map({0: "no", 1: "yes"}), "click"),
    "clicks as dicts": _with(_objects(lambda each: {"click": each}), "click"),
    "clicks as lists": _with(_objects(lambda each: [each]), "click"),
    "clicks as durations": _with(lambda each: pd.to_timedelta(each), "click"),
    "clicks that lack": _with(_objects(lambda each: None), "click"),
    "infinite clicks": _with(lambda each: each.replace(1, np.inf), "click"),
    "features as words": _with(lambda each: np.where(each > 0, "red", "blue"), "f0"),
    "features as dicts, some": _with(
        lambda each: [{"x": 1} if i % 2 else v for i, v in enumerate(each)], "f0"
    ),
    "features as intervals": _with(lambda each: pd.cut(each, 3), "f0"),
    "features as durations": _with(lambda each: pd.to_timedelta(each), "f0"),
    "structs of Polars": lambda: pl.from_pandas(CLEAN).with_columns(f0=pl.struct("f0", "f1")),
    "features of 1e30": _with(lambda each: each * 1e30, *FEATURES),
    "features of 1e300": _with(lambda each: each * 1e300, "f0"),
    "features of 1e-300": _with(lambda each: each * 1e-300, "f0"),
    "production of 1e308": lambda: CLEAN.assign(production=1e308 * CLEAN["f0"].clip(-1, 1)),
    "impressions of 1e300": lambda: CLEAN.assign(impressions=1e300),
    "click rates of 1e-300": _with(lambda each: each * 1e-300, "click"),
    "users as lists": lambda: CLEAN.assign(user=[[1]] * len(CLEAN)),
    "all roles in the index": lambda: CLEAN.set_index(ROLES),
    "a role in the index": lambda: CLEAN.set_index("qid"),
}


def is_of_scikit_learn(error):
    """Whether scikit-learn raised it, in one of its checks."""
    frame, _ = list(traceback.walk_tb(error.__traceback__))[-1]
    return str(frame.f_globals.get("__package__")).split(".")[0] == "sklearn"


def is_told(error):
    """Whether an error is a sentence of skultr's or scikit-learn's; others nobody meant."""
    told = isinstance(error, ValueError | TypeError | OSError) and str(error).strip()
    return told and (is_meant(error) or is_of_scikit_learn(error))


def is_of_this_file(error):
    """Whether the door here could not even be reached, such as a frame without ``[]``."""
    files = {frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)}
    return not any("skultr/" in name and "tests" not in name for name in files)


def outcome(door, log, folder):
    """The numbers of a door, or None if it refuses the log in words."""
    try:
        return np.ravel(np.asarray(DOORS[door](log, folder), dtype=float))
    except Exception as error:
        if is_of_this_file(error):
            return None
        if not is_told(error):
            raise AssertionError(door) from error
        return None


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The numbers of the clean log by door."""
    return {door: outcome(door, CLEAN, tmp_path_factory.mktemp("clean")) for door in DOORS}


@pytest.mark.parametrize("name", SAME)
def test_other_types_give_the_same_numbers(name, expected, tmp_path):
    for door in DOORS:
        (folder := tmp_path / door).mkdir()
        found = outcome(door, SAME[name](), folder)
        if (door, name) in REFUSED:
            assert found is None, door
        else:
            assert found is not None, door
            np.testing.assert_allclose(found, expected[door], rtol=1e-4, atol=1e-6, err_msg=door)


@pytest.mark.parametrize("name", OTHER)
def test_what_is_no_log_is_an_error_in_our_words(name, tmp_path):
    for door in DOORS:
        (folder := tmp_path / door).mkdir()
        outcome(door, OTHER[name](), folder)
