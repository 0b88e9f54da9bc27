"""Models on disk: what comes back, what is not in the file, and files that are not as written."""

import copy
import gc
import io
import json
import os
import pickle
import subprocess
import sys
import time
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from lightgbm import LGBMRanker, LGBMRegressor
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    QuantileTransformer,
    StandardScaler,
)
from torch import nn

from skultr.click_models import PBMModel
from skultr.identifiability import IdentifiabilityRepair
from skultr.metrics import RankingScorer
from skultr.preprocessing import OnFeatures
from skultr.propensity import PowerLawPropensity, RegressionEMPropensity
from skultr.rankers import (
    AffineRanker,
    CLDRanker,
    DistilledRanker,
    DLARanker,
    EnsembleRanker,
    HeckmanRanker,
    IPSRanker,
    LambdaMARTRanker,
    NaiveRanker,
    PRSRanker,
    RegressionEMRanker,
    VectorizationRanker,
)
from skultr.serving import export_model, load_model, save_model
from skultr.serving._thresholds import JSON_VALUES, UNPACKED_BYTES, UNPACKED_PER_BYTE
from tests._discovery import public_rankers
from tests.serving._engines import READERS

pytest.importorskip("skops", reason="needs skultr[serving]")
safetensors = pytest.importorskip("safetensors.numpy", reason="needs skultr[serving]")

FEATURES = ["bm25", "price", "age"]
IDS = (b"aQuery", b"aDocument", b"aUser", b"aSession")

pytestmark = pytest.mark.filterwarnings("ignore")


def _log():
    """A log of 40 lists of five of eight documents, with a time stamp that has an offset."""
    rng = np.random.default_rng(0)
    rows = []
    for session in range(40):
        query = session % 8
        for position, doc in enumerate(rng.permutation(8)[:5], 1):
            first, second = np.sin([1.3 * doc + query, 2.1 * doc - query])
            rows.append(
                {
                    "qid": f"aQuery{query}",
                    "session": f"aSession{session}",
                    "doc": f"aDocument{query}x{doc}",
                    "user": f"aUser{session % 5}",
                    "position": position,
                    "production": rng.random(),
                    "bm25": first,
                    "price": 100 * second**2,
                    "age": 1.7e9 + 50 * doc + query,
                    "click": float(rng.random() < (1.2 + first) / 3 / position),
                }
            )
    return pd.DataFrame(rows)


LOG = _log()
CANDIDATES = LOG[["qid", "production", *FEATURES]]


def _lgbm(cls=LGBMRanker, **settings):
    return cls(n_estimators=4, min_child_samples=3, n_jobs=1, verbosity=-1, **settings)


SHORT = {"max_epochs": 2, "random_state": 0}
MORE = {
    "batch norm": DLARanker(normalization="batch", dropout=0.1, **SHORT),
    "layer norm": DLARanker(normalization="layer", scale_features=False, **SHORT),
    "linear": NaiveRanker(hidden_layer_sizes=(), **SHORT),
    "embedding of few": VectorizationRanker(student=None, n_networks=1, **SHORT),
    "product": VectorizationRanker(student="only", link="probability", n_components=3, **SHORT),
    "likelihood": AffineRanker(loss="likelihood", **SHORT),
    "newton": CLDRanker(loss="pointwise", hidden_layer_sizes=(), random_state=0),
    "pointwise": CLDRanker(loss="pointwise", **SHORT),
    "two steps": HeckmanRanker(hidden_layer_sizes=(), random_state=0),
    "ridge": IPSRanker(estimator=Ridge()),
    "forest": IPSRanker(estimator=RandomForestRegressor(3, random_state=0)),
    "histogram": NaiveRanker(estimator=HistGradientBoostingRegressor(max_iter=3)),
    "boosted": IPSRanker(estimator=_lgbm()),
    "pairs": PRSRanker(estimator=_lgbm()),
    "scaled": IPSRanker(estimator=make_pipeline(StandardScaler(), _lgbm())),
    "distilled": DistilledRanker(teacher=PBMModel(), student=Ridge()),
    "strict": IPSRanker(  # a row of zeros is an error
        estimator=make_pipeline(
            FunctionTransformer(np.sign), OneHotEncoder(sparse_output=False), Ridge()
        )
    ),
    "members": EnsembleRanker(
        [("dla", DLARanker(**SHORT)), ("trees", IPSRanker(estimator=_lgbm(LGBMRegressor)))]
    ),
    "pipeline": make_pipeline(
        IdentifiabilityRepair(), OnFeatures(StandardScaler()), DLARanker(**SHORT)
    ),
    "trees": make_pipeline(
        OnFeatures(make_pipeline(SimpleImputer(), QuantileTransformer(n_quantiles=9))),
        "passthrough",
        LambdaMARTRanker(n_estimators=5, min_child_samples=2),
    ),
}
ALL = {type(each).__name__: each for each in public_rankers()} | MORE


@pytest.fixture(scope="module")
def fitted():
    """Fitted models by name; fitted when first asked for."""
    known = {}

    def of(name):
        if name not in known:
            known[name] = clone(ALL[name]).fit(LOG, "click")
        return known[name]

    return of


def _saved(model, folder, name="model.zip"):
    save_model(model, folder / name)
    return load_model(folder / name)


def _parts(path):
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def _rewrite(path, change):
    """Write the file again, with the head (and the parts) as ``change`` leaves them."""
    parts = _parts(path)
    head = json.loads(parts.pop("model.json"))
    change(head, parts)
    with zipfile.ZipFile(path, "w") as file:
        for name, content in {"model.json": json.dumps(head), **parts}.items():
            file.writestr(name, content)


# What comes back --------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ALL)
def test_the_loaded_model_scores_to_the_last_bit(name, fitted, tmp_path):
    model = fitted(name)
    loaded = _saved(model, tmp_path)
    assert type(loaded) is type(model)
    for frame in (CANDIDATES, pl.from_pandas(CANDIDATES), CANDIDATES[:1]):
        np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
    if hasattr(model, "rank"):
        np.testing.assert_array_equal(loaded.rank(CANDIDATES), model.rank(CANDIDATES))
    grades = (LOG["bm25"] > 0).astype(int)
    assert loaded.score(CANDIDATES, grades) == model.score(CANDIDATES, grades)
    assert loaded.feature_names_in_.tolist() == model.feature_names_in_.tolist()
    assert loaded.n_features_in_ == model.n_features_in_
    assert repr(loaded.get_params()) == repr(model.get_params())
    assert "<div" in loaded._repr_html_()


@pytest.mark.parametrize("name", ALL)
def test_the_loaded_model_is_as_any_other(name, fitted, tmp_path):
    loaded = _saved(fitted(name), tmp_path)
    again = pickle.loads(pickle.dumps(loaded))
    np.testing.assert_array_equal(again.predict(CANDIDATES), loaded.predict(CANDIDATES))
    assert repr(clone(loaded)) == repr(clone(fitted(name)))
    save_model(loaded, tmp_path / "again.zip")
    assert _parts(tmp_path / "again.zip").keys() == _parts(tmp_path / "model.zip").keys()
    first, second = (_parts(tmp_path / each)["model.json"] for each in ("model.zip", "again.zip"))
    assert first == second


@pytest.mark.parametrize("name", ALL)
def test_the_file_holds_no_ids(name, fitted, tmp_path):
    save_model(fitted(name), tmp_path / "model.zip")
    assert any(IDS[0] in pickle.dumps(each) for each in (LOG,))  # the search finds them
    for part, content in _parts(tmp_path / "model.zip").items():
        assert not [each for each in IDS if each in content], part
        assert not part.endswith((".pkl", ".pickle"))


def test_arrays_without_names(tmp_path):
    rows = {role: LOG[role] for role in ("qid", "session", "doc", "position")}
    X = LOG[FEATURES].to_numpy()
    for ranker in (DLARanker(**SHORT), LambdaMARTRanker(n_estimators=3, min_child_samples=2)):
        ranker.fit(X, LOG["click"], **rows)
        loaded = _saved(ranker, tmp_path)
        for part in (X, X.astype(np.float32), np.asfortranarray(X), X[3:4]):
            np.testing.assert_array_equal(loaded.predict(part), ranker.predict(part))
        assert not hasattr(loaded, "feature_names_in_")


@pytest.mark.parametrize(
    "name", ["DLARanker", "TwoTowerRanker", "AffineRanker", "VectorizationRanker", "likelihood"]
)
def test_clicks_and_tables_by_bias_factor(name, fitted, tmp_path):
    ranker = fitted(name)
    loaded = _saved(ranker, tmp_path)
    shown = LOG[["position", *FEATURES]]
    np.testing.assert_array_equal(loaded.predict_click(shown), ranker.predict_click(shown))
    if hasattr(ranker, "examination_"):
        pd.testing.assert_frame_equal(loaded.examination_, ranker.examination_)


def test_probabilities_of_being_shown(fitted, tmp_path):
    for name in ("CLDRanker", "newton"):
        loaded = _saved(fitted(name), tmp_path)
        np.testing.assert_array_equal(
            loaded.predict_selection(CANDIDATES), fitted(name).predict_selection(CANDIDATES)
        )


def test_a_search_is_saved_as_its_best_estimator(tmp_path):
    search = GridSearchCV(
        NaiveRanker(estimator=Ridge()),
        {"estimator__alpha": [1.0, 50.0]},
        cv=2,
        scoring=RankingScorer(),
    )
    with pytest.raises(NotFittedError, match="best_estimator_"):
        save_model(search, tmp_path / "model.zip")
    search.fit(LOG.drop(columns="click"), LOG["click"])
    loaded = _saved(search, tmp_path)
    assert type(loaded) is NaiveRanker
    np.testing.assert_array_equal(loaded.predict(CANDIDATES), search.predict(CANDIDATES))


def test_a_ranker_trained_on_another_device_is_loaded_to_the_cpu(tmp_path):
    for device in ("cuda", torch.device("cuda", 1)):
        ranker = DLARanker(**SHORT).fit(LOG, "click")
        expected = ranker.predict(CANDIDATES)
        loaded = _saved(ranker.set_params(device=device), tmp_path)
        assert loaded.device == "cpu"
        np.testing.assert_array_equal(loaded.predict(CANDIDATES), expected)


@pytest.mark.parametrize("name", ALL)
def test_exports_are_those_of_the_model(name, fitted, tmp_path):
    loaded, n_exported = _saved(fitted(name), tmp_path), 0
    for form in (*READERS, "linear", "onnx"):
        try:
            expected = export_model(fitted(name), form)
        except (TypeError, ValueError) as error:
            with pytest.raises(type(error)):
                export_model(loaded, form)
        else:
            assert export_model(loaded, form) == expected
            n_exported += 1
    assert n_exported or name not in ("LambdaMARTRanker", "boosted", "trees")


def test_functions_of_numpy(tmp_path):
    scale = FunctionTransformer(np.log1p, np.expm1)
    pipeline = make_pipeline(OnFeatures(scale), NaiveRanker(estimator=Ridge()))
    log = LOG.assign(bm25=LOG["bm25"] + 1)
    loaded = _saved(pipeline.fit(log, "click"), tmp_path)
    np.testing.assert_array_equal(loaded.predict(log[FEATURES]), pipeline.predict(log[FEATURES]))


def test_unicode_quotes_and_commas_in_names(tmp_path):
    names = {"bm25": 'Titel "ä, ö"', "price": "цена", "age": "年\\'"}
    ranker = DLARanker(**SHORT).fit(LOG.rename(columns=names), "click")
    loaded = _saved(ranker, tmp_path, 'Modell "ä".model')
    np.testing.assert_array_equal(
        loaded.predict(CANDIDATES.rename(columns=names)), ranker.predict(LOG.rename(columns=names))
    )


def test_partial_fit_says_what_is_missing(tmp_path):
    ranker = IPSRanker(**SHORT).partial_fit(LOG, "click")
    loaded = _saved(ranker, tmp_path)
    expected = loaded.predict(CANDIDATES)
    with pytest.raises(ValueError, match="loaded by load_model"):
        loaded.partial_fit(LOG, "click")
    np.testing.assert_array_equal(loaded.predict(CANDIDATES), expected)
    clone(loaded).partial_fit(LOG, "click")
    ranker.partial_fit(LOG, "click")


def test_equal_models_are_equal_files_and_replace_each_other(fitted, tmp_path):
    save_model(fitted("ridge"), tmp_path / "model.zip")
    save_model(fitted("DLARanker"), tmp_path / "model.zip")
    save_model(fitted("DLARanker"), tmp_path / "other.zip")
    first, second = ((tmp_path / each).read_bytes() for each in ("model.zip", "other.zip"))
    assert first == second
    assert len([*tmp_path.iterdir()]) == 2


def test_the_global_random_stream_stays_as_it_is(fitted, tmp_path):
    save_model(fitted("DLARanker"), tmp_path / "model.zip")
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    load_model(tmp_path / "model.zip")
    assert torch.equal(torch.rand(2), expected)


def test_trees_are_loaded_without_torch(fitted, tmp_path):
    save_model(fitted("LambdaMARTRanker"), tmp_path / "model.zip")
    code = (
        "import sys; from skultr.serving import load_model; "
        f"load_model({str(tmp_path / 'model.zip')!r}); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_what_is_left_out_says_so(tmp_path):
    propensity = RegressionEMPropensity(relevance="embedding")
    ranker = IPSRanker(propensity=propensity, max_epochs=2, random_state=0).fit(LOG, "click")
    loaded = _saved(ranker, tmp_path)
    for name in ("labels_", "propensity_"):
        assert hasattr(ranker, name)
        with pytest.raises(AttributeError, match=rf"without {name} \("):
            getattr(loaded, name)
    loaded.fit(LOG, "click")
    assert loaded.labels_.equals(ranker.labels_)
    assert "_left_out" not in vars(loaded)


def _steps(model):
    """A ranker, or what a pipeline holds."""
    steps = getattr(model, "steps", [("model", model)])
    return [step for _, step in steps if hasattr(step, "fit")]  # none that is left out


@pytest.mark.parametrize("name", ALL)
def test_every_other_attribute_comes_back(name, fitted, tmp_path):
    model = fitted(name)
    loaded, same = _saved(model, tmp_path), pickle.loads(pickle.dumps(model))
    for found, expected in zip(_steps(loaded), _steps(same), strict=True):
        public = {each for each in vars(expected) if each.endswith("_")}
        assert public - {"propensity_"} == {each for each in vars(found) if each.endswith("_")}


def test_arrays_by_row_of_the_log_are_no_parameters_of_the_file(tmp_path):
    ranker = IPSRanker(propensity=np.full(len(LOG), 0.5), estimator=Ridge()).fit(LOG, "click")
    with pytest.warns(UserWarning, match="IPSRanker.propensity"):
        save_model(ranker, tmp_path / "model.zip")
    assert load_model(tmp_path / "model.zip").propensity is None


# Repairs ----------------------------------------------------------------------------------------
DISCONNECTED = pd.DataFrame(
    {
        "qid": 7,
        "session": ["aSessionU"] * 4 + ["aSessionV"] * 4,
        "doc": [f"aDocument{each}" for each in "abcdbadc"],
        "position": [1, 2, 3, 4, 1, 2, 3, 4],
        "bm25": [0.1, 0.2, 0.3, 0.4, 0.2, 0.1, 0.4, 0.3],
        "click": [1, 0, 1, 0, 1, 0, 0, 1],
    }
)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"bias": "device"},
        {"bias": ["position", "device"]},
        {"bias": "position", "bias_features": {1: 0.0, 2: 1.0, 3: 5.0, 4: 6.0}},
        {"strategy": "intervene"},
    ],
    ids=str,
)
def test_a_repair_transforms_logs_after_it_was_loaded(settings, tmp_path):
    pipeline = make_pipeline(IdentifiabilityRepair(**settings), NaiveRanker(estimator=Ridge()))
    log = DISCONNECTED
    if "device" in str(settings):
        log = log.assign(device=["phone, ä"] * 4 + ["desk"] * 4)
    pipeline.fit(log, "click")
    loaded = _saved(pipeline, tmp_path)
    before, after = pipeline[0], loaded[0]
    for frame in (log, log.assign(position=[1, 2, 3, 9] * 2), log[["qid", "bm25"]]):
        pd.testing.assert_frame_equal(after.transform(frame), before.transform(frame))
    pd.testing.assert_frame_equal(after.merges_, before.merges_)
    assert not hasattr(after, "graph_")
    content = b"".join(_parts(tmp_path / "model.zip").values())
    assert not [each for each in IDS if each in content]


def test_a_repair_with_a_function_is_refused(tmp_path):
    repair = IdentifiabilityRepair(bias_features=lambda factors: factors["position"] * 2.0)
    pipeline = make_pipeline(repair, NaiveRanker(estimator=Ridge())).fit(DISCONNECTED, "click")
    with pytest.raises(TypeError, match="bias_features of this IdentifiabilityRepair is code"):
        save_model(pipeline, tmp_path / "model.zip")


def test_estimates_of_documents_are_no_parameters_of_the_file(tmp_path):
    relevance = {(7, f"aDocument{each}"): 0.5 for each in "abcd"}
    repair = IdentifiabilityRepair(strategy="intervene", relevance=relevance)
    pipeline = make_pipeline(repair, NaiveRanker(estimator=Ridge())).fit(DISCONNECTED, "click")
    with pytest.warns(UserWarning, match="IdentifiabilityRepair.relevance"):
        save_model(pipeline, tmp_path / "model.zip")
    assert IDS[1] not in b"".join(_parts(tmp_path / "model.zip").values())


def test_bias_factors_that_are_ids_are_refused(tmp_path):
    repair = IdentifiabilityRepair(bias=["position", "user"])
    pipeline = make_pipeline(repair, NaiveRanker(estimator=Ridge())).fit(LOG, "click")
    with pytest.raises(ValueError, match=r"made of the ids in \['user'\]"):
        save_model(pipeline, tmp_path / "model.zip")
    assert not [*tmp_path.iterdir()]
    candidates = pipeline[0].transform(CANDIDATES)
    loaded = _saved(pipeline[-1], tmp_path)
    np.testing.assert_array_equal(loaded.predict(candidates), pipeline.predict(CANDIDATES))


# What is refused --------------------------------------------------------------------------------
class _Mine(NaiveRanker):
    """A user's own class."""


def _square(X):
    return X**2


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        (
            DLARanker(module=lambda n: nn.Linear(n, 1), **SHORT),
            TypeError,
            "module of this DLARanker is code of your own",
        ),
        (_Mine(estimator=Ridge()), TypeError, "_Mine cannot be saved"),
        (DLARanker(relevance="embedding"), ValueError, "DistilledRanker"),
        (RegressionEMRanker(relevance="embedding"), ValueError, "table of ids"),
        (PBMModel(), TypeError, "DistilledRanker with it as teacher"),
        (
            EnsembleRanker([("a", DLARanker(relevance="embedding")), ("b", PRSRanker(**SHORT))]),
            ValueError,
            "table of ids",
        ),
        (
            make_pipeline(
                OnFeatures(FunctionTransformer(_square)), NaiveRanker(estimator=Ridge())
            ),
            TypeError,
            "_square",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_code_and_tables_of_ids_are_refused(model, error, words, tmp_path):
    try:
        model = model.fit(LOG, "click")
    except ValueError:
        pytest.skip("this ranker is no member")
    with pytest.raises(error, match=words):
        save_model(model, tmp_path / "model.zip")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("model", [Ridge(), "model", None, DLARanker, {"a": 1}], ids=repr)
def test_what_is_no_ranker_is_refused(model, tmp_path):
    with pytest.raises(TypeError, match=r"expected a fitted ranker"):
        save_model(model, tmp_path / "model.zip")


def test_what_is_not_fitted_is_refused(tmp_path):
    fitted = NaiveRanker(estimator=Ridge()).fit(LOG, "click")
    for model in (DLARanker(), make_pipeline(OnFeatures(StandardScaler()), fitted)):
        with pytest.raises(NotFittedError):
            save_model(model, tmp_path / "model.zip")


@pytest.mark.parametrize("path", [3, None, b"model.zip", ["model.zip"]])
def test_wrong_types_of_paths(path, fitted):
    with pytest.raises(ValueError, match="'path' parameter"):
        save_model(fitted("ridge"), path)
    with pytest.raises(ValueError, match="'path' parameter"):
        load_model(path)


def test_parameters_that_are_code_have_defaults_after_loading(tmp_path):
    propensity = FrozenEstimator(PowerLawPropensity(eta=1.0).fit(LOG, LOG["click"]))
    ranker = IPSRanker(
        propensity=propensity,
        clip=np.float64(0.2),
        correction=np.str_("divide"),
        random_state=np.random.RandomState(0),
        optimizer=torch.optim.SGD,
        max_epochs=2,
    )
    ranker.fit(LOG, "click").set_params(net_params={"callbacks": [len]})
    with pytest.warns(UserWarning, match="Not saved") as caught:
        save_model(ranker, tmp_path / "model.zip")
    for name in ("net_params", "optimizer", "random_state", "propensity"):
        assert f"IPSRanker.{name}" in str(caught[0].message)
    loaded = load_model(tmp_path / "model.zip")
    np.testing.assert_array_equal(loaded.predict(CANDIDATES), ranker.predict(CANDIDATES))
    assert (
        loaded.get_params() == IPSRanker(clip=0.2, correction="divide", max_epochs=2).get_params()
    )
    assert type(loaded.clip) is np.float64


def test_a_model_that_cannot_be_written_leaves_nothing(fitted, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    for path, error in ((folder, IsADirectoryError), (tmp_path / "no" / "m.zip", OSError)):
        with pytest.raises(error):
            save_model(fitted("ridge"), path)
    assert [*tmp_path.rglob("*")] == [folder]


OTHERS = {
    "text": lambda path: path.write_text("mine"),
    "an empty file": lambda path: path.touch(),
    "an archive": lambda path: _archive(path, "notes.txt", b"mine"),
    "an archive with a model of others": lambda path: _archive(path, "model.json", b"{}"),
    "a link to a model": lambda path: path.symlink_to(path.parent / "a_model.zip"),
    "a link to nowhere": lambda path: path.symlink_to(path.parent / "nowhere"),
    "a pipe": os.mkfifo,
}


def _archive(path, name, content):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(name, content)


@pytest.mark.parametrize("kind", OTHERS)
def test_files_of_others_are_not_replaced(kind, fitted, tmp_path):
    save_model(fitted("ridge"), tmp_path / "a_model.zip")
    path = tmp_path / "model.zip"
    OTHERS[kind](path)
    before = _state(path)
    with pytest.raises(FileExistsError, match=r"model\.zip is there already.* move this one away"):
        save_model(fitted("ridge"), path)
    assert _state(path) == before


def _state(path):
    """What is in the folder of a path, and what a path is, but for when it was read."""
    found = path.lstat()
    return sorted(path.parent.iterdir()), found.st_ino, found.st_size, found.st_mtime_ns


def test_models_that_are_saved_at_once_do_not_mix(fitted, tmp_path):
    path = tmp_path / "model.zip"
    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(save_model, fitted(each), path) for each in ("ridge", "forest") * 6]
        for each in done:
            each.result()
    assert [*tmp_path.iterdir()] == [path]
    assert type(load_model(path)) in (NaiveRanker, IPSRanker)


# Files that are not as written ------------------------------------------------------------------
@pytest.fixture
def saved(fitted, tmp_path):
    path = tmp_path / "model.zip"
    save_model(fitted("DLARanker"), path)
    return path


def test_no_file_or_another_one(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "model.zip")
    (tmp_path / "model.zip").write_bytes(pickle.dumps(Ridge()))
    with pytest.raises(ValueError, match="save_model of this version did not write it"):
        load_model(tmp_path / "model.zip")
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as file:
        file.writestr("../../model.json", "{}")
    with pytest.raises(ValueError, match=r"or it was damaged or changed \(KeyError"):
        load_model(tmp_path / "model.zip")


def test_damaged_files(saved):
    content = saved.read_bytes()
    for end in (0, 10, len(content) // 2, len(content) - 1):
        saved.write_bytes(content[:end])
        with pytest.raises(ValueError, match="BadZipFile"):
            load_model(saved)
    for place in range(60, len(content) - 300, len(content) // 40):
        changed = bytearray(content)
        changed[place] ^= 0xFF
        saved.write_bytes(changed)
        with pytest.raises(ValueError, match="damaged or changed"):
            load_model(saved)


def test_versions(saved):
    def older(head, parts):
        head["versions"]["skultr"] = "0.0.1"

    _rewrite(saved, older)
    with pytest.warns(UserWarning, match=r"written by skultr 0\.0\.1 \(here \d"):
        load_model(saved)

    def newer(head, parts):
        head["layout"] = 2
        head["model"] = {"something new": 3}

    _rewrite(saved, newer)
    with pytest.raises(ValueError, match=r"wrote layout 2, and skultr .* reads 1"):
        load_model(saved)


@pytest.mark.filterwarnings("error")
def test_versions_of_other_packages(saved):
    def minor(head, parts):
        major = torch.__version__.partition(".")[0]
        head["versions"] |= {"torch": f"{major}.999"}
        del head["versions"]["lightgbm"]

    _rewrite(saved, minor)
    load_model(saved)

    def major(head, parts):
        head["versions"] |= {"torch": "1.13.1", "numpy": "9.0"}

    _rewrite(saved, major)
    with pytest.warns(UserWarning, match=r"by numpy 9\.0 \(here \d.*\), torch 1\.13\.1 \(here \d"):
        load_model(saved)


def _of_class(name):
    def change(head, parts):
        head["model"]["object"][0] = name

    return change


def _put(key, value):
    def change(head, parts):
        head["model"]["object"][1][key] = value

    return change


def _drop(head, parts):
    del parts["weights.safetensors"]


def _is(model):
    def change(head, parts):
        head["model"] = model

    return change


def _weights(change):
    def of_all(head, parts):
        arrays = safetensors.load(parts["weights.safetensors"])
        arrays = {name: change(values) for name, values in arrays.items()}
        parts["weights.safetensors"] = safetensors.save(arrays)

    return of_all


def _as_halves(values):
    return values.astype(np.float16) if values.dtype == np.float32 else values


def _not_finite(values):
    return values * np.float32(np.inf) if values.dtype == np.float32 else values


def _narrower(values):
    return values[:, :-1].copy() if values.ndim == 2 else values


def _named_often(head, parts):
    arrays = {**safetensors.load(parts["weights.safetensors"]), "large": np.zeros(1 << 20)}
    parts["weights.safetensors"] = safetensors.save(arrays)
    _put("x", [{"array": "large"}] * 1_000)(head, parts)


def _wide_table(head, parts):
    _named_often(head, parts)
    columns = [{"tuple": [str(number), 0.5]} for number in range(1_000)]
    _put("x", {"frame": [columns, "i", {"array": "large"}]})(head, parts)


def _nameless(head, parts):
    state = head["model"]["object"][1]
    del state["feature_names_in_"]
    state["n_features_in_"] = 10**9


HOSTILE = {
    "system": _of_class("os.system"),
    "subprocess": _of_class("subprocess.Popen"),
    "function of torch": _of_class("torch.load"),
    "module of torch": _of_class("torch.nn.modules.linear.Bilinear"),
    "private class": _of_class("skultr.rankers._ips._WeightedRanker"),
    "function of skultr": _of_class("skultr.propensity.import_module"),
    "no class": _of_class("skultr.rankers.NoRanker"),
    "path": _of_class("../../evil"),
    "number": _of_class(3),
    "unknown kind": _put("network_", {"pickle": "gASV"}),
    "method": _put("network_", {"__init__": []}),
    "no kind": _put("network_", {}),
    "two kinds": _put("network_", {"tuple": [], "dict": []}),
    "no part": _put("booster_", {"booster": ["x.txt", 0]}),
    "no weights": _drop,
    "dict": _is({"dict": [{"tuple": ["a", 1]}]}),
    "a number": _is(5),
    "a tuple of an array": _put("x", {"tuple": {"array": "0"}}),
    "objects of an array": _put("x", {"objects": {"array": "0"}}),
    "a part of a ranker": _is({"object": ["ScaleFeatures", {}]}),
    "a learner": _is({"object": ["LGBMRanker", {"_Booster": "x"}]}),
    "not fitted": _is({"object": ["DLARanker", {}]}),
    "predict": _put("predict", "x"),
    "one feature less": _put("n_features_in_", 2),
    "no features": _put("n_features_in_", 0),
    "features without end": _nameless,
    "narrow weights": _weights(_narrower),
    "float16": _weights(_as_halves),
    "infinite": _weights(_not_finite),
    "an array named often": _named_often,
    "a table of one row": _wide_table,
    "a million values": _put("x", [0] * (1 << 20)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_changed_files_are_errors(name, saved):
    _rewrite(saved, HOSTILE[name])
    with pytest.raises(ValueError, match="was damaged or changed") as caught, few_bytes(128):
        load_model(saved)
    assert "\n" not in str(caught.value)


@contextmanager
def few_bytes(most_mb):
    """No more memory than so many megabytes is taken."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most_mb << 20
    finally:
        tracemalloc.stop()


def test_parts_of_scikit_learn_compute_nothing(tmp_path, monkeypatch):
    """Sizes that a file states, such as a degree, would be those of what is computed."""
    steps = make_pipeline(OnFeatures(StandardScaler()), NaiveRanker(max_epochs=1))
    log = pd.DataFrame({"qid": 1, "doc": [1, 2], "position": [1, 2], "f": [0.0, 1.0]})
    save_model(steps.fit(log, [0, 1]), tmp_path / "model.zip")
    monkeypatch.setattr(StandardScaler, "transform", None)
    assert isinstance(load_model(tmp_path / "model.zip"), Pipeline)


def test_only_files_are_read(saved):
    os.mkfifo(saved.with_name("fifo"))
    saved.with_name("zero").symlink_to("/dev/zero")
    for path in (saved.with_name("fifo"), saved.with_name("zero"), saved.parent):
        with pytest.raises(ValueError, match="no regular file"):
            load_model(path)
    saved.with_name("link").symlink_to(saved)
    load_model(saved.with_name("link"))


def _append(path, name, content, kind=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "a", kind) as file:
        file.writestr(name, content)


def test_what_the_model_does_not_name_is_not_read(saved, monkeypatch):
    _append(saved, "../../more", b"x")
    load_model(saved)
    opened = []
    monkeypatch.setattr(
        zipfile.ZipFile,
        "open",
        lambda self, name, open=zipfile.ZipFile.open: opened.append(name) or open(self, name),
    )
    load_model(saved)
    assert opened == ["model.json", "weights.safetensors"]


def test_files_that_unpack_to_far_more_are_not_read(saved):
    zeros = bytes(1 << 28)
    _append(saved, "more", zeros)
    with pytest.raises(ValueError, match=r"26\d,\d+,\d+ bytes in all parts"), few_bytes(4):
        load_model(saved)


def test_a_part_that_is_longer_than_it_states_is_an_error(saved):
    parts = _parts(saved) | {"weights.safetensors": bytes(1 << 28)}
    with zipfile.ZipFile(saved, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(name, content)
    content = saved.read_bytes().replace((1 << 28).to_bytes(4, "little"), b"\x50\0\0\0")
    saved.write_bytes(content)
    with pytest.raises(ValueError, match="Bad CRC-32"), few_bytes(4):
        load_model(saved)


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_parts_are_compressed_as_they_were_saved(kind, saved):
    _append(saved, "more", b"x" * 100, kind)
    with pytest.raises(ValueError, match="compressed in another way"):
        load_model(saved)


def test_names_of_parts_are_different(saved):
    _append(saved, "model.json", _parts(saved)["model.json"])
    with pytest.raises(ValueError, match="several parts have one name"):
        load_model(saved)


def _skops(change):
    """Change a part of scikit-learn: its nodes, and its files."""

    def of_file(head, parts):
        name = next(name for name in parts if parts[name].count(b'"coef_"'))
        with zipfile.ZipFile(io.BytesIO(parts[name])) as file:
            inner = {each: file.read(each) for each in file.namelist()}
        nodes = json.loads(inner["schema.json"])
        kind = change(nodes["content"]["content"], inner) or zipfile.ZIP_STORED
        with zipfile.ZipFile(content := io.BytesIO(), "w", kind) as file:
            for each, value in (inner | {"schema.json": json.dumps(nodes)}).items():
                file.writestr(each, value)
        parts[name] = content.getvalue()

    return of_file


def _arrays_named_often(nodes, inner):
    inner["large.npy"] = inner[nodes["coef_"]["file"]] + bytes(1 << 20)
    nodes["x"] = [{**nodes["coef_"], "file": "large.npy", "__id__": -k} for k in range(1_000)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_arrays_named_often, "bytes in arrays"),
        (lambda nodes, inner: zipfile.ZIP_DEFLATED, "compressed in another way"),
        (lambda nodes, inner: nodes.update(x=[[]] * (1 << 20)), "values of JSON"),
    ],
)
def test_parts_of_scikit_learn_have_bounds(change, words, fitted, saved):
    save_model(fitted("ridge"), saved)
    _rewrite(saved, _skops(lambda nodes, inner: None))
    load_model(saved)
    _rewrite(saved, _skops(change))
    with pytest.raises(ValueError, match=words), few_bytes(64):
        load_model(saved)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_jobs", 10**6),
        ("n_jobs", "many"),
        ("lgbm_params", {"nthread": 10**6}),
        ("lgbm_params", {"predict_disable_shape_check": True}),
        ("lgbm_params", {"forcedsplits_filename": "/dev/zero"}),
        ("lgbm_params", {"boosting": "gbdt num_threads=1000000"}),
    ],
)
def test_settings_that_could_end_the_process_are_refused(
    name, value, fitted, tmp_path, monkeypatch
):
    monkeypatch.setattr("skultr.serving._saved._scores_zeros", lambda model: False)  # it predicts
    ranker = copy.deepcopy(fitted("LambdaMARTRanker"))
    vars(ranker)[name] = value
    with pytest.raises(ValueError, match=r"has (the setting )?.*; expected "):
        save_model(ranker, tmp_path / "model.zip")  # reads what it wrote
    assert not [*tmp_path.iterdir()]


def test_what_cannot_be_loaded_is_not_saved(tmp_path):
    ranker = DLARanker(**SHORT).fit(LOG, "click")
    with torch.no_grad():
        next(ranker.network_.parameters()).fill_(torch.nan)
    with pytest.raises(ValueError, match="weights are float16 or not finite"):
        save_model(ranker, tmp_path / "model.zip")
    assert not [*tmp_path.iterdir()]


def test_parts_of_scikit_learn_are_checked_again(fitted, saved):
    from skops import io

    save_model(fitted("ridge"), saved)

    def change(head, parts):
        part = next(name for name in parts if name.endswith(".skops"))
        parts[part] = io.dumps(FunctionTransformer(_square))

    _rewrite(saved, change)
    with pytest.raises(ValueError, match=r"changed \(UntrustedTypesFoundException"):
        load_model(saved)


def test_missing_packages_are_named(fitted, saved, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(ImportError, match=r'safetensors.*pip install "skultr\[serving\]"'):
        load_model(saved)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(ImportError, match=r'skops.*pip install "skultr\[serving\]"'):
        save_model(fitted("ridge"), saved)


def test_a_model_that_is_replaced_while_it_is_read(fitted, saved, monkeypatch):
    """What was opened is read, whatever the path names afterwards."""
    other = saved.with_name("other.zip")
    save_model(fitted("ridge"), other)
    expected = load_model(saved).predict(LOG)

    class Replaced(zipfile.ZipFile):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            if other.exists():
                other.replace(saved)

    monkeypatch.setattr("skultr.serving._saved.zipfile.ZipFile", Replaced)
    n_bytes = UNPACKED_BYTES._replace(value=saved.stat().st_size)
    monkeypatch.setattr("skultr.serving._saved.UNPACKED_BYTES", n_bytes)
    per_byte = UNPACKED_PER_BYTE._replace(value=1)
    monkeypatch.setattr("skultr.serving._saved.UNPACKED_PER_BYTE", per_byte)
    np.testing.assert_array_equal(load_model(saved).predict(LOG), expected)
    assert load_model(saved).estimator is not None


def test_readers_find_the_old_or_the_new_model(fitted, tmp_path):
    path = tmp_path / "model.zip"
    models = [fitted(name) for name in ("ridge", "forest")]
    allowed = {model.predict(LOG).tobytes() for model in models}
    save_model(models[0], path)
    with ThreadPoolExecutor(2) as pool:
        writes = [pool.submit(save_model, models[k % 2], path) for k in range(10)]
        while not all(each.done() for each in writes):
            assert load_model(path).predict(LOG).tobytes() in allowed


class Yields:
    """Garbage: each collection, in the middle of whatever runs, gives way to another thread."""

    n_left = 0

    def __init__(self):
        self.cycle = self

    def __del__(self):
        time.sleep(1e-5)
        Yields.n_left -= 1
        if Yields.n_left > 0:
            Yields()


def test_threads_may_load_at_once(fitted, tmp_path):
    """On Python 3.11, two parsers at once raise a SystemError: see ``_ONE_PARSER``."""
    save_model(fitted("forest"), path := tmp_path / "model.zip")
    Yields.n_left = 2_000

    def load():
        Yields()
        for _ in range(10):
            load_model(path)

    thresholds = gc.get_threshold()
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(4) as pool:
            for each in [pool.submit(load) for _ in range(4)]:
                each.result()
    finally:
        gc.set_threshold(*thresholds)
        Yields.n_left = 0


def test_forests_have_values_in_proportion_to_their_files(tmp_path, monkeypatch):
    """See test_parts_of_scikit_learn_have_bounds for a file that states more than it holds."""
    values = JSON_VALUES._replace(value=24_000)
    monkeypatch.setattr("skultr.serving._saved.JSON_VALUES", values)
    forest = RandomForestRegressor(100, random_state=0)
    ranker = IPSRanker(estimator=forest).fit(LOG, "click")
    save_model(ranker, tmp_path / "model.zip")
    loaded = load_model(tmp_path / "model.zip")
    np.testing.assert_array_equal(loaded.predict(LOG), ranker.predict(LOG))
    stumps = clone(ranker).set_params(estimator__max_leaf_nodes=2).fit(LOG, "click")
    with pytest.raises(ValueError, match=r"values of JSON \(a tree of scikit-learn takes"):
        save_model(stumps, tmp_path / "model.zip")
