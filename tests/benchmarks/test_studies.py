"""Every page can be imported, is a list of exhibits, and is named where its numbers are quoted."""

from importlib import import_module

import pytest

from benchmarks.__main__ import pages

#: Packages of the extra 'benchmark' that no other extra has.
PEERS = {"psutil", "xgboost"}


@pytest.mark.parametrize("page", pages())
def test_what_a_page_imports_exists(page):
    try:
        import_module(f"benchmarks.{page.replace('/', '.')}")
    except ModuleNotFoundError as error:
        if error.name not in PEERS:
            raise
        pytest.skip(f"{error.name} is a peer that only the extra 'benchmark' installs")
