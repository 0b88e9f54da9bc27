"""What every fit has in common: how it reads, what it says of the log, what an error leaves."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from inspect import signature
from typing import Any, Literal, Self, TypeVar, cast

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from scipy.sparse import issparse
from sklearn import get_config
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted, validate_data

from .._base._progress import working
from .._base._published import as_published
from .._base._sklearn import HasPage
from .._base._threads import few_threads
from ..exceptions import saying_once
from ._click_units import as_rates, impressions_of_counts, is_counted
from ._counted import is_in_engine, unit_of_several
from ._faults import DROP_CLICKS, DROP_ROWS, IDS, LOOKS_LIKE, all_at_once, tell
from ._lost_roles import explain_roles_as_features, refuse_roles_as_features
from ._reader import as_clicks, attempt, read
from ._roles import (
    FIT_ROLES,
    OUTCOME,
    LogOnDisk,
    column_names,
    feature_columns,
    feature_names,
    is_frame,
    is_role,
    kind_of,
    open_frame,
    places_of_fit,
    read_column,
    read_role,
    refuse_arguments,
)
from ._units import UNITS

Fit = TypeVar("Fit", bound=Callable[..., Any])

#: Prefixes of the attributes that scikit-learn itself sets on an estimator: requested metadata,
#: the output container, callbacks and their contexts.
_OF_SCIKIT_LEARN = ("_metadata_request", "_skl", "_callback_fit_ctx", "_parent_callback_ctx")


@dataclass(frozen=True, eq=False)
class FitTask:
    """A fit as scikit-learn's callbacks see it: its context and its data."""

    context: object
    X: object
    y: object


def afresh(fit: Fit) -> Fit:
    """Decorate a method ``fit``: it deletes all fitted attributes first, and also if it fails.

    Otherwise a refit with other parameters would keep attributes that it does not set, and an
    interrupted fit would leave half a model that still predicts. After an error, a callback's stop
    or Ctrl-C, the estimator is not fitted. What is small in a fit runs on one thread.
    """

    @wraps(fit)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        forget(self)
        try:
            return _told(fit, self, args, kwargs)
        except BaseException:
            forget(self)
            raise

    return cast(Fit, wrapper)


def unless_it_fails(partial_fit: Fit) -> Fit:
    """Decorate a method ``partial_fit``: after an error the estimator is what it was before.

    The method must not write into objects that the estimator holds; it sets others.
    """

    @wraps(partial_fit)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = dict(vars(self))
        try:
            return _told(partial_fit, self, args, kwargs)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return cast(Fit, wrapper)


#: Arguments of the fits of other libraries (LightGBM, XGBoost, Keras): the argument here, and
#: what to pass.
_HABITS = {
    **dict.fromkeys(
        ("group", "groups", "query", "queries"),
        (
            "qid",
            "queries are the column 'qid' of X or {0}=, one id per row; sizes of groups become "
            "ids by np.repeat(np.arange(len(sizes)), sizes)",
        ),
    ),
    **dict.fromkeys(
        ("eval_set", "eval_group", "eval_qid", "eval_X", "X_val", "validation_data"),
        (
            "validation",
            "networks stop by {0}=(X, y), a log whose roles, such as 'qid', are columns of its X",
        ),
    ),
    **dict.fromkeys(("weight", "weights"), ("sample_weight", "pass {0}=, one weight per row")),
}


def _told(fit, self, args, kwargs):
    """The result of a fit that says what the columns were read as, or all faults of the log."""
    given = _arguments(fit, self, args, kwargs)
    X = given["X"]
    with few_threads(), working(type(self).__name__), saying_once() as outermost:
        # Only the outermost fit speaks: members of an ensemble get what it has read.
        in_memory = not isinstance(X, LogOnDisk) and not is_in_engine(X)
        reads_log = outermost and in_memory and hasattr(self, "_tell_faults")
        if reads_log:
            # Before anything is learned from ids or labels.
            refuse_roles_as_features(self, X, given)
        try:
            # Parameters have the settings of the paper during the fit only.
            with as_published(self):
                result = fit(self, *args, **kwargs)
        except ValueError as error:
            if reads_log:
                explain_roles_as_features(self, error)
                # A cause outside the log comes first; then all that is wrong with the log.
                self._tell_faults(error, **given)
            raise
        if hasattr(self, "_tell_roles"):
            self._tell_roles(**given)
        return result


def _arguments(fit, self, args, kwargs):
    """The arguments of a fit by name; an error with the remedy if it has no such argument."""
    fit_signature = signature(fit)
    try:
        # As Python itself would bind them, so that positions and names mean the same.
        bound = fit_signature.bind(self, *args, **kwargs)
    except TypeError as error:
        known = [*fit_signature.parameters][1:]
        unknown = [name for name in kwargs if name not in known]
        if not unknown:
            raise TypeError(f"{type(self).__name__}.{fit.__name__}: {error}.") from error
        raise TypeError(_unknown_argument(fit, self, unknown[0], known)) from error
    (_, *named) = bound.arguments.items()  # without self
    return dict(named)


def _unknown_argument(fit, self, name, known):
    """The message about an argument that a fit does not take, with what to pass instead."""
    cls = type(self).__name__
    meant, remedy = _HABITS.get(name, (LOOKS_LIKE.get(name.lower()), "pass {0}="))
    # Not every setting of an estimator stops early.
    if not getattr(self, "_validates", False):
        known = [each for each in known if each != "validation"]
    if not getattr(self, "_takes_judgments", False):
        known = [each for each in known if each != "judgments"]
    if meant in known:
        remedy = remedy.format(meant)
    elif meant == "validation":
        remedy = "it takes no log for early stopping with these parameters: leave it out"
    else:
        remedy = f"its arguments are {', '.join(known)}; settings are parameters of {cls}(...)"
    return f"{cls}.{fit.__name__} takes no argument {name!r}: {remedy}."


def forget(estimator: Any, keep: Collection[str] = ()) -> None:
    """Delete every attribute that is neither a parameter, nor scikit-learn's own, nor to keep."""
    # All other attributes were set by a fit.
    keep = {*estimator.get_params(deep=False), *keep}
    for name in [*vars(estimator)]:
        if name not in keep and not name.startswith(_OF_SCIKIT_LEARN):
            delattr(estimator, name)


def steps_of(model: Any) -> list[Any]:
    """Steps of nested pipelines and searches, in order; the model itself is last."""
    if isinstance(model, Pipeline):
        steps = [step for _, step in model.steps if step is not None and step != "passthrough"]
        return [part for step in steps for part in steps_of(step)]
    if hasattr(model, "best_estimator_"):
        return steps_of(model.best_estimator_)
    if hasattr(model, "scoring") and hasattr(model, "estimator"):
        raise NotFittedError(f"{type(model).__name__} has no best_estimator_: fit it with refit.")
    return [model]


# What a log is read as --------------------------------------------------------------------
class ReadsLogs(HasPage):
    """Mixin of estimators that read logs: ``roles_``, and all faults of a log in one error."""

    @property
    def _roles_read(self) -> tuple[str, ...]:
        """The roles that ``fit`` reads."""
        # An estimator that does not say so reads users.
        reads_users = getattr(self, "_tells_users_apart", getattr(self, "_reads_users", True))
        roles = [role for role in FIT_ROLES if role != "user" or reads_users]
        if getattr(self, "_reads_production", False):
            roles.append("production")
        return tuple(roles)

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
        in_memory = _is_in_memory(X)
        # Roles first: what is said of values depends on what they were read as.
        names = column_names(X) if in_memory else names_of(X)
        roles = _roles_of(names, y, given, self._roles_read)
        documents = given.get("documents")
        if is_frame(documents) and getattr(self, "_needs_features", False):
            _take_features_of(documents, roles)
        # Examination is learned from the clicks beside an outcome, which are read for it.
        if "click" in roles and _names_outcome(y):
            roles["click"] = "click"
        self.roles_ = roles
        _add_unit(roles, X, y, given)
        if in_memory:  # elsewhere a look at the values takes a pass over the log
            _warn_of_unread(X, y, roles, given)

    def _tell_faults(self, error: ValueError, X: Any, y: Any = None, **given: Any) -> None:
        """Raise all faults of a log in memory if it has more than the one of the error."""
        if type(error) is not ValueError or not _is_in_memory(X) or not X.shape[0]:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            errors, mends = errors_of(X, y, given, self._roles_read)
            if hasattr(self, "_read_features"):
                # Features are read by a copy, because reading sets attributes.
                other = copy.copy(self)
                documents = given.get("documents")
                other._click_column = y if isinstance(y, str) else None
                log = X if documents is None else documents
                attempt(errors, lambda: other._read_features(log, reset=True))
        # An error that reading does not find stays as it is.
        found = list(dict.fromkeys(map(str, errors)))
        if len(found) > 1 and str(error) in found:
            raise ValueError(all_at_once(found, mending_code(X, y, mends))) from error

    def _get_fitted_attr_html(self, doc_link: str = "") -> Any:
        """scikit-learn's table of fitted attributes, with all roles."""
        table = super()._get_fitted_attr_html(doc_link)
        if "roles_" in table:
            told = ", ".join(f"{name}: {role}" for name, role in self.roles_.items())
            table["roles_"] = {"type_name": "dict", "value": np.array([_Told(told)], dtype=object)}
        return table


class _Told(str):
    """Text that scikit-learn's table shows whole, as the only element of an array."""

    __slots__ = ()
    __repr__ = str.__str__


def _is_in_memory(X):
    """True for a frame in memory."""
    return not isinstance(X, LogOnDisk) and not is_in_engine(X) and is_frame(X)


def names_of(X: Any) -> list[Any]:
    """Names of the columns of a log of any kind; none of an array."""
    if isinstance(X, LogOnDisk):
        return [*X.roles, *X.feature_names]
    if is_in_engine(X):
        return open_frame(X).collect_schema().names()
    return column_names(X) if is_frame(X) else []


def _roles_of(names, y, given, reads):
    """What each column is read as: a role, "feature", "ignored role", or "y"."""
    keywords = [name for name in _given_roles(given) if given[name] is not None]
    found = {}
    for name in names:
        if _is_named_by(y, name):
            found[name] = "y"
        elif not is_role(name):
            found[name] = "feature"
        # A keyword stands in for the column of the same name.
        elif name in reads and name not in keywords:
            found[name] = name
        else:
            found[name] = "ignored role"
    return found | {name: name for name in keywords}


def _take_features_of(documents, roles):
    """Say that features were read of the documents, and that those of the log were not."""
    for name, role in roles.items():
        if role == "feature":
            roles[name] = "not read"
    roles |= dict.fromkeys(feature_columns(documents), "feature")


def _add_unit(roles, X, y, given):
    """Say of the clicks what they count, where a row stands for several impressions."""
    clicks = "click" if roles.get("click") == "click" else y
    unit = None if clicks is None else _unit_of_several(X, clicks, given)
    if unit is not None:
        name = clicks if isinstance(clicks, str) else "y"
        roles[name] = f"{roles.get(name, 'y')} ({unit} of several impressions)"


def _is_named_by(y, name):
    """Whether y is the name of a column, or weighs it."""
    if isinstance(y, Mapping):
        return name in y
    return isinstance(y, str) and y == name


def _given_roles(given):
    """Those keywords of a fit that are roles."""
    return {name: value for name, value in given.items() if is_role(name)}


def _names_outcome(y):
    """Whether ``y`` names or weighs other outcomes than the click, which is read beside them."""
    if isinstance(y, str):
        return y.startswith(OUTCOME)
    return isinstance(y, Mapping) and any(str(name).startswith(OUTCOME) for name in y)


def _unit_of_several(X, y, given):
    """What y holds where a row stands for several impressions, as ``roles_`` says it, or None; its
    values were checked before."""
    if isinstance(X, LogOnDisk) or isinstance(y, Mapping):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if is_in_engine(X):
            return unit_of_several(X, y)
        # In memory the same question, of arrays.
        impressions = read_role(X, "impressions", given.get("impressions"))
        if not is_counted(impressions):
            return None
        clicks, called = _named_clicks(X, y)
        if impressions_of_counts(X, clicks, given, called) is not None:
            return "clicks"
        return "click rates" if clicks.max(initial=0.0) <= 1 else None  # or grades


def _clicks(X, y, given):
    """Clicks per impression, or grades, of a frame in memory."""
    clicks, called = _named_clicks(X, y)
    return as_rates(X, clicks, given, called)


def _named_clicks(X, y):
    """The values of y, or of the column that it names, and what messages call them."""
    if isinstance(y, str):
        return as_clicks(X, read_column(X, y)), repr(y)
    return as_clicks(X, y), None


#: Roles that tell where a row was shown.
_PLACES = ("qid", "session", "doc", "position", "bias", "impressions", "doc_scope")


def _warn_of_unread(X, y, roles, given):
    """Warn of role columns that are not read and whose values look like those of a feature."""
    # An outcome is no click: what is compared with clicks is not asked then.
    is_outcome = isinstance(y, Mapping) or (isinstance(y, str) and is_role(y))

    # Read once, and only if some unread column is there.
    @cache
    def rows():
        clicks = None if y is None or is_outcome else _clicks(X, y, given)
        return read(X, clicks, roles=_given_roles(given), reads=_PLACES, errors=[])

    for unit in UNITS:
        name = unit.role
        is_unread = roles.get(name) == "ignored role" and given.get(name) is None
        if unit.reads != "unread" or not is_unread:
            continue
        with warnings.catch_warnings():  # said before
            warnings.simplefilter("ignore")
            values = read_role(X, name)
            # A column without a value says nothing.
            found = [] if np.isnan(values).all() else [*unit.messages(values, rows)]
        for message in found:
            tell(unit.severity, message)


# Faults, and code that mends ---------------------------------------------------------------
def errors_of(
    X: Any, y: Any, given: Mapping[str, Any], reads: Iterable[str]
) -> tuple[list[Exception], list[tuple[str, str]]]:
    """All errors of a frame, and the lines of code that mend some of them."""
    errors = []
    clicks = None
    if y is not None and not isinstance(y, Mapping):
        # A fault of y hides none of X.
        clicks = attempt(errors, _clicks, X, y, given)
    rows = read(X, clicks, None, given, reads=reads, errors=errors)
    if not errors:
        return [], []
    return errors, [fault.mend for fault, _ in rows.faults() if fault.mend]


#: Lines of code on a frame that is called ``log``, for pandas and for Polars.
RENAME = ("log = log.rename(columns={0!r})", "log = log.rename({0!r})")
DROP = ("log = log.drop(columns={0!r})", "log = log.drop({0!r})")


def mending_code(X: Any, y: Any, mends: Iterable[tuple[str, str]]) -> str:
    """Lines of code, for pandas or Polars, that mend what code can mend."""
    frame = nw.from_native(X, eager_only=True)
    kind = int(frame.implementation.is_polars())  # the place of its line in each pair
    click = y if isinstance(y, str) else None
    names = [name for name in frame.columns if name != click]
    # Columns first: what they become decides which rows are at fault.
    renamed = _roles_to_rename(names, frame.columns)
    text = _features_without_numbers(frame, feature_names(names, renamed))
    lines = []
    if renamed:
        lines.append(RENAME[kind].format(renamed))
    if text:
        instead = "or make_pipeline(OnFeatures(TableVectorizer()), ranker), from skrub"
        lines.append(f"{DROP[kind].format(text)}  # {instead}")
    # Then rows, in the order of their faults.
    for mend in mends:
        if y is not None and click is None:
            lines += _drop_clicks(mend, kind)
        lines.append(mend[kind])
    return "\n".join(lines)


def _drop_clicks(mend, kind):
    """The line that drops clicks, which are no column, with the rows that ``mend`` drops."""
    dropped = [role for role in IDS if DROP_ROWS[0].format(role) == mend[0]]
    return [DROP_CLICKS[kind].format(role) for role in dropped]


def _roles_to_rename(names, columns):
    """Columns that are called almost like a role that the frame lacks, and these roles."""
    found = {}
    for name in names:
        role = LOOKS_LIKE.get(str(name).lower(), "y")
        if role != "y" and role not in columns:
            found[name] = role
    return found


def _features_without_numbers(frame, names):
    """Those of the named columns that hold neither numbers nor lists of them."""
    found = []
    for name in names:
        # By number, because names of pandas columns need not be strings.
        column = frame[:, frame.columns.index(name)]
        if kind_of(column) not in ("number", "list"):
            found.append(name)
    return found


# Frames that transformers return --------------------------------------------------------
def output_kind(transformer: Any) -> str:
    """What ``set_output`` has asked a transformer for, or all of them: by default "default"."""
    config = getattr(transformer, "_sklearn_output_config", {})
    return config.get("transform", get_config()["transform_output"])


class FrameOutput:
    """``set_output`` of transformers that by default return the kind of frame they receive.

    scikit-learn's own ``set_output`` expects transformers that return arrays.
    """

    def set_output(
        self, *, transform: Literal["default", "pandas", "polars"] | None = None
    ) -> Self:
        """Set the kind of frame that ``transform`` returns.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"}, default=None
            ``"default"``: the kind of frame that ``transform`` receives, or an array for an array.
            None leaves the setting unchanged.

        Returns
        -------
        self : object
        """
        if transform not in ("default", "pandas", "polars", None):
            raise ValueError(
                f"transform must be 'default', 'pandas', 'polars' or None, got {transform!r}."
            )
        if transform is not None:
            self._sklearn_output_config = {"transform": transform}
        return self

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    def _checked(self, X, not_features=(), *, reset):
        """X (as an array if it is no frame), with the number and names of features of ``fit``."""
        if isinstance(X, LogOnDisk):
            # By the names of its features, without a row of it.
            self._checked(pd.DataFrame(columns=X.feature_names), not_features, reset=reset)
            return X
        if not is_frame(X):
            return validate_data(
                self, X, reset=reset, accept_sparse=True, ensure_all_finite="allow-nan"
            )
        names = feature_names(column_names(X), not_features)
        # Another order of the same columns is no error: they are read by name.
        if reset or places_of_fit(self, names) is None:
            validate_data(self, pd.DataFrame(columns=names), reset=reset, skip_check_array=True)
        return X

    def _transformed(self, X):
        """X transformed, by a method for datasets or one for rows; an error before ``fit``."""
        check_is_fitted(self)
        if isinstance(X, LogOnDisk):
            return self._transform_dataset(X)
        return self._output(self._transform_rows(X))

    def _output(self, X):
        """X as the kind of frame that was set; X itself by default."""
        kind = output_kind(self)
        if kind == "default":
            return X
        if not is_frame(X):
            X = X.toarray() if issparse(X) else X
            X = pd.DataFrame(X, columns=self.get_feature_names_out(), copy=False)
        frame = nw.from_native(X, eager_only=True)
        return frame.to_pandas() if kind == "pandas" else frame.to_polars()


class LearnsFromClicks(ReadsLogs):
    """Mixin of estimators that learn from clicks: rankers and propensities."""

    #: True if what is learned, or predicted, depends on the role ``user``.
    _reads_users = False
    #: Name of the column of X that holds the clicks, if ``y`` names one; it is not a feature.
    _click_column = None
    #: Why missing values of features are an error, if they are.
    _refuses_missing: str | None = None

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = not self._refuses_missing
        return tags


# What pickles leave out: parts of the training log, which no prediction reads -------
#: Attribute of an unpickled estimator: names of those that its pickle left out.
LEFT_OUT = "_left_out"


class NotPickled:
    """A fitted attribute that stays in memory, and that pickles of its estimator leave out.

    It stands in the class, under the name of the attribute. The value itself is an attribute of
    the estimator as any other; without one, an error says why there is none. None is kept.
    """

    def __init__(self, what: str, *, when: Callable[[Any], bool] | None = None) -> None:
        self.what = what
        self.when = when

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, estimator: Any, owner: type | None = None) -> Any:
        if estimator is None:
            return self
        cls = type(estimator).__name__
        name = self.name
        # Not fitted is another error than left out, and one that hasattr() understands.
        if name not in vars(estimator).get(LEFT_OUT, ()):
            raise AttributeError(f"{cls!r} object has no attribute {name!r}")
        raise AttributeError(
            f"This {cls} was loaded from a file, or came from a worker (n_jobs) or a cache "
            f"(Pipeline's memory), without {name} ({self.what}). Fit it here, with n_jobs=None "
            f"and no cache; or pickle both, as in joblib.dump((model, model.{name}), file), and "
            f"set model.{name} again once loaded."
        )

    def leaves_out(self, value: Any) -> bool:
        """Whether pickles leave this value out."""
        return value is not None and (self.when is None or self.when(value))


class SlimPickles:
    """Mixin of estimators whose pickles leave out the attributes that are :class:`NotPickled`.

    ``copy.copy`` and ``copy.deepcopy`` keep them, although both usually ask for the same state.
    """

    def __getstate__(self) -> dict[str, Any]:
        # A copy: the estimator itself keeps what its pickle leaves out.
        state = dict(super().__getstate__())
        left_out = {*state.pop(LEFT_OUT, ())}  # by an earlier pickle
        for name in [*state]:
            attribute = getattr(type(self), name, None)
            if isinstance(attribute, NotPickled) and attribute.leaves_out(state[name]):
                del state[name]
                left_out.add(name)
        if left_out:
            state[LEFT_OUT] = sorted(left_out)
        return state

    def __copy__(self) -> Self:
        copied = type(self).__new__(type(self))
        vars(copied).update(vars(self))
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copied = type(self).__new__(type(self))
        # Before the attributes are copied, which may refer to the estimator.
        memo[id(self)] = copied
        vars(copied).update(copy.deepcopy(vars(self), memo))
        return copied


def if_fitted(estimator: Any, name: str) -> Any:
    """The fitted attribute, None if there is none; an error if a pickle left it out."""
    if name in getattr(estimator, LEFT_OUT, ()):
        return getattr(estimator, name)
    return getattr(estimator, name, None)
