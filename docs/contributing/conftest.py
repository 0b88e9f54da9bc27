"""Classes that a page defines can be pickled, as those of a module can."""

import sys
from types import ModuleType

import pytest


@pytest.fixture(autouse=True)
def page_is_a_module(request, monkeypatch):
    page = request.node.dtest.globs

    class Page(ModuleType):
        def __getattr__(self, name):
            try:
                return page[name]
            except KeyError:
                raise AttributeError(name) from None

    page["__name__"] = "page"
    monkeypatch.setitem(sys.modules, "page", Page("page"))
