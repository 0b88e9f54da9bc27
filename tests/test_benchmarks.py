"""Benchmarks are run by hand; that they still can be is held here."""

import importlib.util
from pathlib import Path

import pytest

#: Packages of the extra 'benchmark' that no other extra has.
PEERS = {"psutil", "xgboost"}
BENCHMARKS = sorted((Path(__file__).parent / "benchmarks").glob("bench_*.py"))


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_what_a_benchmark_imports_exists(path, monkeypatch):
    monkeypatch.syspath_prepend(path.parent)
    monkeypatch.setattr("sys.argv", [str(path)])
    spec = importlib.util.spec_from_file_location(path.stem, path)
    try:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    except ModuleNotFoundError as error:
        if error.name not in PEERS:
            raise
        pytest.skip(f"{error.name} is a peer that only the extra 'benchmark' installs")
