"""What the columns of a log are read as, and all faults of a log at once."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from ..exceptions import ClickDataWarning, warn_user
from ._counted import is_in_engine
from ._faults import all_at_once, faults_in
from ._lookalikes import LOOKS_LIKE, unread
from ._on_disk import LogOnDisk, refuse_arguments
from ._reader import as_clicks, read
from ._roles import (
    FIT_ROLES,
    OUTCOME,
    column_names,
    feature_columns,
    is_frame,
    is_role,
    read_column,
    read_role,
    read_scope,
)


class ReadsLogs:
    """Mixin of estimators that read logs: ``roles_``, and all faults of a log in one error."""

    @property
    def _roles_read(self) -> tuple[str, ...]:
        """The roles that ``fit`` reads."""
        production = ("production",) * bool(getattr(self, "_reads_production", False))
        users = getattr(self, "_tells_users_apart", getattr(self, "_reads_users", True))
        return tuple(role for role in FIT_ROLES if role != "user" or users) + production

    def _read(self, X, y, sample_weight, roles, *, reset):
        """What is read of a log of any kind; ``reset`` if it is the first that is read."""
        if isinstance(X, LogOnDisk):
            refuse_arguments({"y": y, "sample_weight": sample_weight, **roles})
            return self._read_dataset(X, reset=reset)
        read = self._read_engine if is_in_engine(X) else self._read_rows
        return read(X, y, sample_weight, roles, reset=reset)

    def _read_engine(self, X, y, sample_weight, roles, *, reset):
        """A hook for estimators that read counts of an engine; to others it is an error."""
        is_frame(X)

    def _tell_roles(self, X: Any, y: Any = None, **given: Any) -> None:
        """Set ``roles_``, and warn of unread columns that were probably meant as features."""
        names = names_of(X)
        self.roles_ = roles_of(names, y, given, self._roles_read)
        documents = given.get("documents")
        if is_frame(documents) and getattr(self, "_needs_features", False):
            self.roles_ = {name: _NOT_READ.get(of, of) for name, of in self.roles_.items()}
            self.roles_ |= dict.fromkeys(feature_columns(documents), "feature")
        if "click" in self.roles_ and _names_outcome(y):
            self.roles_["click"] = "click"
        ignored = [name for name, role in self.roles_.items() if role == "ignored role"]
        if ignored and _is_in_memory(X):
            _warn_of_unread(X, y, ignored, given)

    def _tell_faults(self, error: ValueError, X: Any, y: Any = None, **given: Any) -> None:
        """Raise all faults of a log in memory if it has more than the one of the error."""
        if type(error) is not ValueError or not _is_in_memory(X) or not X.shape[0]:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader, documents = self._try(y), given.get("documents")
            if reader is not None and documents is not None:
                reader = partial(_of_documents, reader, documents)
            found = faults_of(X, y, given, self._roles_read, reader)
        if len(found) > 1 and str(error) in found:
            raise ValueError(all_at_once(found, mending_code(X, y, self._roles_read))) from error

    def _try(self, y: Any) -> Callable[[Any], Any] | None:
        """How the features of a frame are read, on a copy of the estimator."""
        if not hasattr(self, "_read_features"):
            return None
        other = copy.copy(self)
        other._click_column = y if isinstance(y, str) else None
        return lambda X: other._read_features(X, reset=True)

    def _get_fitted_attr_html(self, doc_link: str = "") -> Any:
        """scikit-learn's table of fitted attributes, with all roles."""
        table = super()._get_fitted_attr_html(doc_link)
        if "roles_" in table:
            told = ", ".join(f"{name}: {role}" for name, role in self.roles_.items())
            value = np.array([_Told(told)], dtype=object)
            table["roles_"] = {"type_name": "dict", "value": value}
        return table


class _Told:
    """Text that scikit-learn's table shows whole, as the only element of an array."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _of_documents(reader, documents, _):
    return reader(documents)


def _is_in_memory(X):
    """True for a frame in memory."""
    return not isinstance(X, LogOnDisk) and not is_in_engine(X) and is_frame(X)


def names_of(X: Any) -> list[Any]:
    """Names of the columns of a log of any kind; none of an array."""
    if isinstance(X, LogOnDisk):
        return [*X.roles, *X.feature_names]
    if is_in_engine(X):
        return nw.from_native(X).collect_schema().names()
    return column_names(X) if is_frame(X) else []


def roles_of(
    names: Iterable[Any], y: Any, given: Mapping[str, Any], reads: Iterable[str]
) -> dict[Any, str]:
    """What each column is read as: a role, "feature", "ignored role", or "y"."""
    clicks = {y} if isinstance(y, str) else {*y} if isinstance(y, Mapping) else set()
    keywords = {name for name, value in given.items() if is_role(name) and value is not None}
    found = {}
    for name in names:
        if name in clicks:
            found[name] = "y"
        elif not is_role(name):
            found[name] = "feature"
        else:
            found[name] = name if name in reads and name not in keywords else "ignored role"
    return found | {name: name for name in keywords}


def _warn_of_unread(X, y, ignored, given):
    """Warn of role columns that are not read and whose values look like those of a feature."""
    rows = None
    for name in ignored:
        if given.get(name) is not None or name not in ("production", "relevance", "click"):
            continue
        if name == "click" and (y is None or isinstance(y, Mapping) or _names_role(y)):
            continue
        with warnings.catch_warnings():  # said before
            warnings.simplefilter("ignore")
            values = read_role(X, name)
            rows = rows or read(X, roles=given_roles(given), reads=_PLACES)
            if name == "click":
                rows.click = _clicks(X, y)
        if unread(name, values, rows):
            warn_user(
                f"The column {name!r} is a role, which is not read here, and no feature, although "
                f"its values look like one. If it is a feature, rename it: "
                f"rename(columns={{{name!r}: '{name}_feature'}}); otherwise drop it.",
                ClickDataWarning,
            )


#: What a column without a role is beside a frame of features.
_NOT_READ = {"feature": "not read"}


def _names_role(y):
    return isinstance(y, str) and is_role(y)


def _names_outcome(y):
    """Whether ``y`` names or weighs other outcomes than the click, which is read beside them."""
    names = y if isinstance(y, Mapping) else [y] if isinstance(y, str) else []
    return any(str(name).startswith(OUTCOME) for name in names)


_PLACES = ("qid", "session", "position", "bias", "impressions")


def given_roles(given: Mapping[str, Any]) -> dict[str, Any]:
    """Those keywords of a fit that are roles."""
    return {name: value for name, value in given.items() if is_role(name)}


# Faults ---------------------------------------------------------------------------------
def faults_of(
    X: Any,
    y: Any = None,
    given: Mapping[str, Any] | None = None,
    reads: Iterable[str] = FIT_ROLES,
    read_features: Callable[[Any], Any] | None = None,
) -> list[str]:
    """The sentences of all faults of a frame that are errors, each by itself."""
    given, columns, faults = given or {}, {}, []

    def attempt(step, *arguments):
        try:
            return step(*arguments)
        except (TypeError, ValueError) as error:
            faults.append(str(error))
            return None

    for role in (role for role in reads if role != "doc_scope"):
        columns[role] = attempt(read_role, X, role, given.get(role))
    if y is not None and not isinstance(y, Mapping):
        columns["click"] = attempt(_clicks, X, y)
    columns = {name: values for name, values in columns.items() if values is not None}
    faults += _faults_of_columns(columns)
    if read_features is not None:
        attempt(read_features, X)
    readable = [role for role in reads if role in columns]
    if attempt(read_scope, X, given.get("doc_scope")) is not None:
        readable.append("doc_scope")
    keep = {role: given.get(role) for role in readable}
    attempt(_read_all, X, columns.get("click"), keep, readable)
    return list(dict.fromkeys(faults))


def _clicks(X, y):
    return as_clicks(X, read_column(X, y) if isinstance(y, str) else y)


def _read_all(X, clicks, given, reads):
    read(X, clicks, None, given, reads=reads)


def _faults_of_columns(columns):
    if "position" in columns:
        shown = ~np.isnan(columns["position"])
        columns = {**columns, "shown": shown, "served": shown}
    found = faults_in(columns, called={"click": "y"})
    return [message for severity, message in found if not issubclass(severity, Warning)]


# Code that mends --------------------------------------------------------------------------
def mending_code(X: Any, y: Any = None, reads: Iterable[str] = FIT_ROLES) -> str:
    """Lines of code, for pandas or Polars, that mend what code can mend."""
    frame = nw.from_native(X, eager_only=True)
    lines = Lines(frame.implementation.is_polars())
    names, click = frame.columns, y if isinstance(y, str) else None
    rename = {
        name: role
        for name in names
        if (role := LOOKS_LIKE.get(str(name).lower()))
        and role != "y"
        and role not in names
        and name != click
    }
    text = [
        name
        for place, name in enumerate(names)
        if not is_role(name) and name not in (click, *rename) and _is_text(frame[:, place])
    ]
    ids = [
        role
        for role in ("qid", "session", "doc", "user")
        if role in reads and role in names and frame[role].is_null().any()
    ]
    if rename:
        lines.rename(rename)
    if text:
        lines.drop(text, "or make_pipeline(OnFeatures(TableVectorizer()), ranker), from skrub")
    if ids:
        lines.drop_nulls(ids)
    if (
        "position" in names
        and frame["position"].dtype.is_numeric()
        and frame["position"].min() == 0
    ):
        lines.add_one("position")
    return "\n".join(lines)


def _is_text(column):
    return not (column.dtype.is_numeric() or column.dtype in (nw.Boolean, nw.Object, nw.Unknown))


class Lines(list):
    """Lines of code on a frame that is called ``log``."""

    def __init__(self, is_polars: bool) -> None:
        super().__init__()
        self.is_polars = is_polars

    def rename(self, names: Mapping[Any, str]) -> None:
        """Add a line that renames columns."""
        self.append(f"log = log.rename({'' if self.is_polars else 'columns='}{dict(names)!r})")

    def drop(self, names: Iterable[Any], instead: str = "") -> None:
        """Add a line that drops columns, and says what to do instead."""
        comment = f"  # {instead}" if instead else ""
        keyword = "" if self.is_polars else "columns="
        self.append(f"log = log.drop({keyword}{list(names)!r}){comment}")

    def drop_nulls(self, names: Iterable[Any]) -> None:
        """Add a line that drops the rows in which ids are missing."""
        method = "drop_nulls(" if self.is_polars else "dropna(subset="
        self.append(f"log = log.{method}{list(names)!r})")

    def add_one(self, name: str) -> None:
        """Add a line that counts positions from 1."""
        if self.is_polars:
            self.append(f'log = log.with_columns(pl.col("{name}") + 1)')
        else:
            self.append(f'log["{name}"] += 1')
