"""Each number of the folder that decides something, on both sides."""

import io
import zipfile
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from skultr._log._offsets import FeatureOffsets
from skultr.serving import click_judgments
from skultr.serving._judgments import _scale
from skultr.serving._precision import _lost
from skultr.serving._saved import Decoder, _Parts, _values
from skultr.serving._trees import Tree

ON_BOTH_SIDES = pytest.mark.parametrize("is_beyond", [False, True])


def test_the_best_documents_are_those_of_one_query_in_twenty():
    judged = pd.DataFrame({"qid": np.arange(21), "relevance": np.arange(21.0)})
    grade_of = _scale(None, judged, True, False)
    assert grade_of(19.0) == 3
    assert grade_of(18.9) < 3


@pytest.mark.parametrize(("n_shown", "is_rated"), [(1, False), (2, True)])
def test_a_pair_is_rated_from_one_examination_on(n_shown, is_rated):
    X = pd.DataFrame(
        {"qid": 1, "doc": ["a", "b"], "position": [1, 2], "impressions": [9, n_shown]}
    )
    judged = click_judgments(X, [0.5, 0.0], propensity=[1.0, 0.5])
    assert judged["relevance"].notna().tolist() == [True, is_rated]


@pytest.mark.parametrize(("n_shown", "share"), [(1, 0.5), (3, 0.25)])
def test_the_mean_of_the_query_stands_for_one_examination(n_shown, share):
    X = pd.DataFrame({"qid": 1, "doc": ["a"], "position": [1], "impressions": [n_shown]})
    assert click_judgments(X, [0.5], propensity=[1.0])["prior_share"].item() == share


@ON_BOTH_SIDES
def test_256_values_of_a_feature_are_enough(is_beyond):
    distinct = np.array([[300, 255 if is_beyond else 256]])
    offsets = FeatureOffsets(np.array([0]), np.array([1.0]), distinct)
    served = SimpleNamespace(offsets=offsets, transformers=())
    assert len([*_lost(served, object())]) == is_beyond


@ON_BOTH_SIDES
def test_two_of_twenty_thresholds_may_become_one(is_beyond):
    threshold = np.arange(20.0) + 1
    n_merged = 3 if is_beyond else 2
    threshold[:n_merged] = threshold[10 : 10 + n_merged] + 1e-9
    empty = np.zeros(20)
    tree = Tree(np.zeros(20, dtype=int), threshold, *[empty] * 6)
    served = SimpleNamespace(offsets=FeatureOffsets((), (), ()), transformers=())
    assert len([*_lost(served, [tree])]) == is_beyond


def _archive(n_bytes, unpacked):
    part = SimpleNamespace(filename="part", file_size=unpacked, compress_type=zipfile.ZIP_DEFLATED)
    file = SimpleNamespace(infolist=lambda: [part])
    return _Parts(file, n_bytes, zipfile.ZIP_DEFLATED)


@pytest.mark.parametrize("n_bytes", [0, 1_000])
def test_parts_unpack_to_64_mib_and_twenty_times_the_file_at_most(n_bytes):
    most = 64 * 1024**2 + 20 * n_bytes
    assert _archive(n_bytes, most).sizes == {"part": most}
    with pytest.raises(ValueError, match=f"{most + 1:,} bytes in all parts"):
        _archive(n_bytes, most + 1)


def test_a_model_has_at_most_a_million_values():
    most = 1024**2
    assert len(_values(b"[" + b"0," * (most - 1) + b"0]")) == most
    with pytest.raises(ValueError, match="values of JSON"):
        _values(b"[" + b"0," * most + b"0]")


@ON_BOTH_SIDES
def test_parts_of_scikit_learn_have_one_more_value_per_eight_bytes(is_beyond):
    pytest.importorskip("skops")
    n_values = 1024**2 + (2 if is_beyond else 1)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("schema.json", b"[" + b"0," * (n_values - 1) + b"0]")
    content = file.getvalue()
    decoder = Decoder.__new__(Decoder)
    decoder._parts = SimpleNamespace(pop=lambda name: content, n_bytes=8)
    with pytest.raises(Exception) as caught:
        decoder._skops("part.skops")
    assert ("values of JSON" in str(caught.value)) == is_beyond
