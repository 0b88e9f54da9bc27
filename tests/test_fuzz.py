"""Files with faults at random: each is read as before, or is one sentence of the right class.

Saved models, datasets and logs of UBI: never an error of a library, never a crash, never more
memory than a bound. Boosters and trees are changed only where the sum of their part finds it:
LightGBM and scikit-learn do not check them.
"""

import gzip
import io
import json
import re
import shutil
import zipfile

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skultr import ClickDataset
from skultr.datasets import read_ubi
from skultr.preprocessing import OnFeatures
from skultr.rankers import DLARanker, LambdaMARTRanker, NaiveRanker
from skultr.serving import load_model, save_model
from tests.datasets._ubi_logs import clean_log, lines_of
from tests.serving.test_saved import CANDIDATES, FEATURES, LOG, few_bytes

pytestmark = pytest.mark.filterwarnings("ignore")

#: Values that a field of JSON may hold instead of its own.
ODD = (None, True, 0, -1, 2.5, 10**30, float("nan"), "", "x", "\ud800", [], [[]], {}, {"a": 1})
#: The megabytes by which the peak of memory may grow.
MOST_MEGABYTES = 512
N_DAMAGED, N_CHANGED = 150, 300


# Faults of bytes, and of JSON -------------------------------------------------------------
def flipped(content, rng):
    place, bit = rng.integers(len(content)), 1 << int(rng.integers(8))
    return content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :]


def cut(content, rng):
    return content[: rng.integers(len(content))]


def lost(content, rng):
    start, end = sorted(rng.integers(len(content), size=2))
    return content[:start] + content[min(end, start + 40) :]


def zeroed(content, rng):
    start = int(rng.integers(len(content)))
    n = min(int(rng.integers(1, 600)), len(content) - start)
    return content[:start] + bytes(n) + content[start + n :]


def doubled(content, rng):
    start, end = sorted(rng.integers(len(content), size=2))
    return content[:end] + content[start:]


def random_bytes(content, rng):
    start, n = int(rng.integers(len(content))), int(rng.integers(1, 9))
    return content[:start] + rng.bytes(n) + content[start + n :]


FAULTS = (flipped, cut, lost, zeroed, doubled, random_bytes)


def damaged(content, rng):
    """The bytes with one or two faults, and the names of these."""
    faults = rng.choice(FAULTS, rng.integers(1, 3))
    for fault in faults:
        content = fault(content, rng) if content else content
    return content, [fault.__name__ for fault in faults]


def _places(value):
    """Each list or dict inside a value of JSON, with its keys."""
    inner = value.values() if isinstance(value, dict) else value
    return [value] * len(value) + [
        place for each in inner if isinstance(each, dict | list) for place in _places(each)
    ]


def changed(text, rng):
    """JSON with one value that is another, lost, or there twice."""
    value = json.loads(text)
    places = _places(value)
    place, other = (places[rng.integers(len(places))] for _ in range(2))
    keys = [*place] if isinstance(place, dict) else range(len(place))
    key = keys[rng.integers(len(keys))]
    how = rng.integers(4)
    if how == 0:
        del place[key]
    elif how == 1:
        place[key] = json.loads(json.dumps(other))
    elif how == 2 and isinstance(place, dict):
        place[f"{key}x"] = place.pop(key)
    else:
        place[key] = ODD[rng.integers(len(ODD))]
    return json.dumps(value).encode()


# Laws -------------------------------------------------------------------------------------
def outcome(read, case, words):
    """What is read, or None if it is an error in one line with these words."""
    try:
        return read()
    except Exception as error:
        if type(error) is not ValueError or not re.search(words, str(error)) or "\n" in str(error):
            raise AssertionError(case) from error
        return None


# Models -----------------------------------------------------------------------------------
DAMAGED = "save_model of this version did not write it"
SHORT = {"max_epochs": 1, "random_state": 0}
MODELS = {
    "network": DLARanker(normalization="batch", **SHORT),
    "trees": LambdaMARTRanker(n_estimators=3, min_child_samples=2, random_state=0),
    "parts": make_pipeline(OnFeatures(StandardScaler()), NaiveRanker(estimator=Ridge())),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Bytes and predictions of saved models, by name."""
    path, found = tmp_path_factory.mktemp("models") / "model.zip", {}
    for name, model in MODELS.items():
        save_model(model.fit(LOG, "click"), path)
        found[name] = path.read_bytes(), model.predict(CANDIDATES)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_damaged_models(name, models, tmp_path):
    content, scores = models[name]
    path, n_read = tmp_path / "model.zip", 0
    with few_bytes(MOST_MEGABYTES):
        for seed in range(N_DAMAGED):
            bad, faults = damaged(content, np.random.default_rng(seed))
            path.write_bytes(bad)
            case = f"seed {seed}: {faults}"
            model = outcome(lambda: load_model(path), case, DAMAGED)
            if model is not None:
                n_read += 1
                np.testing.assert_array_equal(model.predict(CANDIDATES), scores, case)
    assert n_read < N_DAMAGED / 2


@pytest.mark.parametrize("name", ["network", "parts"])
def test_changed_models(name, models, tmp_path):
    """Parts are changed, with a new sum: a ranker that scores documents, or a sentence."""
    with zipfile.ZipFile(io.BytesIO(models[name][0])) as file:
        parts = {each: file.read(each) for each in file.namelist()}
    path, n_read = tmp_path / "model.zip", 0
    with few_bytes(MOST_MEGABYTES):
        for seed in range(N_CHANGED):
            rng = np.random.default_rng(seed)
            part = ["model.json", *parts][rng.integers(len(parts) + 1)]
            path.write_bytes(_archive({**parts, part: _changed_part(part, parts[part], rng)}))
            case = f"seed {seed}: {part}"
            model = outcome(lambda: load_model(path), case, DAMAGED)
            if model is not None:
                n_read += 1
                if name == "parts":  # scikit-learn checks their sizes when they compute
                    continue
                features = CANDIDATES[FEATURES]
                if getattr(model, "feature_names_in_", None) is not None:
                    features.columns = model.feature_names_in_
                assert model.predict(features).shape == (len(CANDIDATES),), case
    assert 0 < n_read < N_CHANGED


def _changed_part(name, content, rng):
    if name.endswith(".json"):
        return changed(content, rng)
    if not name.endswith(".skops"):
        return damaged(content, rng)[0]
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        inner = {each: file.read(each) for each in file.namelist()}
    part = [*inner][rng.integers(len(inner))]
    bad = changed(inner[part], rng) if part == "schema.json" else damaged(inner[part], rng)[0]
    return _archive({**inner, part: bad})


def _archive(parts):
    with zipfile.ZipFile(content := io.BytesIO(), "w") as file:
        for name, part in parts.items():
            file.writestr(name, part)
    return content.getvalue()


# Datasets ---------------------------------------------------------------------------------
def test_damaged_datasets(tmp_path):
    made = ClickDataset.from_parquet(LOG.assign(bias=LOG["position"] % 2), path=tmp_path / "made")
    files = {path.name: path.read_bytes() for path in sorted(made.path.iterdir())}
    expected, n_read, bad = made.to_frame(), 0, tmp_path / "bad"
    with few_bytes(MOST_MEGABYTES):
        for seed in range(N_DAMAGED):
            rng = np.random.default_rng(seed)
            shutil.copytree(made.path, bad)
            name, other = (list(files)[rng.integers(len(files))] for _ in range(2))
            how = rng.integers(8)
            if how == 0:
                (bad / name).unlink()
            elif how == 1:
                (bad / name).write_bytes(files[other])
            elif how == 2 and name == "meta.json":
                (bad / name).write_bytes(changed(files[name], rng))
            else:
                (bad / name).write_bytes(damaged(files[name], rng)[0])
            found = outcome(
                lambda: ClickDataset(bad).to_frame(),
                f"seed {seed}: {name}",
                "is damaged or was copied in part",
            )
            if found is not None:
                n_read += 1
                pd.testing.assert_frame_equal(found[0], expected[0])
                np.testing.assert_array_equal(found[1], expected[1])
            shutil.rmtree(bad)
    assert n_read < N_DAMAGED / 4  # a file in place of itself


# Logs of UBI ------------------------------------------------------------------------------
def _as_parquet(records, path):
    rows = [{key: _cell(value) for key, value in record.items()} for _, record in records]
    pd.DataFrame(rows).to_parquet(path)


def _cell(value):
    return json.dumps(value) if isinstance(value, dict | list) else value


def _as_gzip(records, path):
    path.write_bytes(gzip.compress("\n".join(lines_of(records)).encode(), mtime=0))


def _as_zip(records, path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("log.ndjson", "\n".join(lines_of(records)))


UBI = {".parquet": _as_parquet, ".ndjson.gz": _as_gzip, ".zip": _as_zip}


@pytest.mark.parametrize("ending", UBI)
def test_damaged_logs_of_ubi(ending, tmp_path):
    path, n_read = tmp_path / f"log{ending}", 0
    UBI[ending](clean_log(n_pages=20), path)
    content, expected = path.read_bytes(), read_ubi(path)[0]
    with few_bytes(MOST_MEGABYTES):
        for seed in range(N_DAMAGED):
            bad, faults = damaged(content, np.random.default_rng(seed))
            path.write_bytes(bad)
            case = f"seed {seed}: {faults}"
            log = outcome(lambda: read_ubi(path)[0], case, "Expected|expected|Write it again")
            n_read += log is not None
            # Parquet has no sums: other letters of a text are another log.
            assert log is None or ending == ".parquet" or log.equals(expected), case
    assert n_read < N_DAMAGED / 2
