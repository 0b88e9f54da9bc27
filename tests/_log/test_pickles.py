"""What the mechanism promises that pickles leave out."""

import copy
import pickle

import pytest
from sklearn.base import BaseEstimator, clone

from skultr._log._estimator import NotPickled, SlimPickles, afresh, if_fitted


class _Parent(SlimPickles, BaseEstimator):
    ids_ = NotPickled("the ids of the log", when=len)

    def __init__(self, size=3):
        self.size = size

    @afresh
    def fit(self, X, y=None):
        self.ids_ = list(range(self.size))
        self.model_ = 7
        return self


class _Child(_Parent):
    rows_ = NotPickled("the rows of the log")

    def fit(self, X, y=None):
        super().fit(X)
        self.rows_ = X
        return self


def _loaded(estimator):
    return pickle.loads(pickle.dumps(estimator))


def test_only_pickles_leave_out():
    fitted = _Child().fit("rows")
    assert vars(fitted) == {"size": 3, "ids_": [0, 1, 2], "model_": 7, "rows_": "rows"}
    loaded = _loaded(fitted)
    assert loaded.model_ == 7
    assert not hasattr(loaded, "ids_")
    assert not hasattr(loaded, "rows_")
    for copied in (copy.copy(fitted), copy.deepcopy(fitted)):
        assert vars(copied) == vars(fitted)
    assert copy.copy(fitted).ids_ is fitted.ids_
    assert copy.deepcopy(fitted).ids_ is not fitted.ids_


def test_the_error_says_why_and_how_to_keep():
    with pytest.raises(AttributeError, match="'_Child' object has no attribute 'rows_'"):
        _ = _Child().rows_
    loaded = _loaded(_loaded(_Child().fit("rows")))  # also through two pickles
    message = r"loaded from a file.* without rows_ \(the rows of the log\).*model\.rows_"
    for read in (getattr, if_fitted):
        with pytest.raises(AttributeError, match=message):
            read(loaded, "rows_")
    loaded.rows_ = "again"
    assert loaded.rows_ == if_fitted(loaded, "rows_") == "again"
    assert not hasattr(_loaded(loaded), "rows_")


def test_what_is_none_or_harmless_stays():
    loaded = _loaded(_Child(size=0).fit(None))
    assert loaded.ids_ == []
    assert loaded.rows_ is None
    assert if_fitted(loaded, "other_") is None


def test_a_refit_after_unpickling_forgets_the_pickle():
    loaded = _loaded(_Child().fit("rows"))
    assert set(vars(loaded.fit("more"))) == {"size", "ids_", "model_", "rows_"}
    assert vars(clone(loaded)) == {"size": 3}


def test_a_holder_of_itself_is_copied_once():
    fitted = _Child().fit("rows")
    fitted.rows_ = fitted
    copied = copy.deepcopy(fitted)
    assert copied.rows_ is copied
