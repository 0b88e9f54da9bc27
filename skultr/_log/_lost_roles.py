"""Roles that became features on the way to a ranker: where it happened, what to write instead.

Transformers and meta-estimators of scikit-learn take every column of a frame for a feature, and
most pass on an array. Ids, positions and human labels are then features, and all rows are one
query. The ranker cannot see that in what it gets. Two things show it: scikit-learn writes
``feature_names_in_`` on whatever read a frame, and what calls ``fit`` of the ranker stands above
it in the call stack (in a scorer: around it in the fitted model).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone, is_regressor
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from ._roles import column_names, is_frame, is_role

#: Roles that tell which rows are one list.
_OF_LISTS = ("qid", "session")
#: What the estimator is called in a frame of its fit: in its methods, in workers of scikit-learn.
_NAMED_IN_FRAMES = ("self", "ensemble")


# At fit ----------------------------------------------------------------------------------
def refuse_roles_as_features(ranker: Any, X: Any, given: Mapping[str, Any]) -> None:
    """Raise an error if roles became features of X before ``fit`` got it.

    X is an array or a frame in memory, ``given`` are the other arguments of ``fit``.
    """
    # What is left of the roles in X, and which lists it can still tell apart.
    is_named = is_frame(X)
    columns = column_names(X) if is_named else []
    roles = [*filter(is_role, columns)]
    renamed = [*filter(_is_renamed, columns)]
    lost = _roles_of_lists_lost(roles, given)
    around = _estimators_around(ranker)
    # A transformer that took roles for features and lost them, or passed them on renamed.
    takers = _takers_among(around)
    if takers and (renamed or _lose_roles(takers, lost, is_named)):
        raise ValueError(_message(ranker, takers, around))
    # A selection of features that fits a ranker on a part of the columns: roles compete for it.
    choosers = _choosers_among(around)
    if roles and choosers:
        raise ValueError(_message(ranker, choosers, around, roles))
    # A transformer outside of any pipeline: it stands nowhere around, only its names tell of it.
    if renamed and "qid" in lost:
        raise ValueError(_renamed_roles(ranker, renamed))


def _roles_of_lists_lost(roles, given):
    """Roles that tell lists apart and that the fit gets neither as a column nor as a keyword."""
    passed = [name for name in _OF_LISTS if given.get(name) is not None]
    return {*_OF_LISTS} - {*roles, *passed}


def _choosers_among(around):
    """Selections of features among the estimators around a learner."""
    return [model for model in around if hasattr(model, "get_support")]


def _renamed_roles(ranker, renamed):
    """The message about features that are roles with the prefix of a transformer."""
    return (
        f"X has no column 'qid', and its features {renamed[:3]} are roles that a transformer "
        f"renamed: {type(ranker).__name__} would take all rows for one query, and learn from "
        "ids, positions or labels. Transform the features alone, before or in a pipeline: "
        "OnFeatures(transformer), from skultr.preprocessing. If they are features, give them "
        "names without '__'."
    )


def _lose_roles(takers, lost, is_named):
    """Whether any taker had the roles that are lost, or passes roles on as features."""
    for taker in takers:
        if lost & {*_roles_taken(taker)} or _carries_roles(taker, is_named):
            return True
    return False


def explain_roles_as_features(ranker: Any, error: Exception) -> None:
    """Raise a fault of roles again with its cause, if a transformer changed the roles of X."""
    around = _estimators_around(ranker)
    takers = _takers_among(around)
    if takers:
        raise ValueError(f"{_message(ranker, takers, around)}\nIt stopped at: {error}") from error


def _estimators_around(ranker: Any) -> list[Any]:
    """Estimators of others that are calling ``fit`` of the ranker, the innermost first."""
    found = []
    seen = {id(ranker)}
    # The call stack, from here outwards.
    frame = sys._getframe(1)
    while frame is not None:
        for name in _NAMED_IN_FRAMES:
            model = frame.f_locals.get(name)
            # Ensembles of skultr pass roles on, and one estimator may have several frames.
            is_other = isinstance(model, BaseEstimator) and not _is_own(model)
            if is_other and id(model) not in seen:
                seen.add(id(model))
                found.append(model)
        frame = frame.f_back
    return found


# In a scorer -----------------------------------------------------------------------------
def refuse_lost_queries(model: Any, qid: NDArray[Any] | None) -> None:
    """Raise an error if a fitted model is scored on queries and knew none, or learned the label.

    Parameters are the model, with rankers at any depth, and query ids of the scored rows.
    """
    # On rows of one query, a ranker without queries does no harm.
    if qid is None or not len(qid) or not (qid != qid[:1]).any():
        return
    for learner, around in _learners(model):
        takers = _takers_among(around)
        # A learner of scikit-learn need not know queries, but must not have seen the label.
        if not hasattr(learner, "roles_"):
            _refuse_label(learner, takers, around)
            continue
        knows_lists = {*_OF_LISTS} & {*learner.roles_.values()}
        if knows_lists:
            continue
        if takers:
            raise ValueError(_message(learner, takers, around))
        raise ValueError(_without(learner, around))


def _refuse_label(learner: Any, takers: Sequence[Any], around: Sequence[Any]) -> None:
    """Raise an error if a learner that is no ranker has the role ``relevance`` as a feature."""
    # Either a step before the learner passed the label on, or it took it by name itself.
    found = [each for each in takers if "relevance" in _roles_taken(each)]
    found = [each for each in found if _carries_roles(each, is_named=False)]
    if "relevance" in _roles_taken(learner):
        found.append(learner)
    if found:
        raise ValueError(_message(learner, found, [learner, *around]))


def _without(ranker: Any, around: Sequence[Any]) -> str:
    """The message about a ranker that was fitted without queries."""
    line = _instead([ranker, *around])
    return (
        f"This {type(ranker).__name__} was fitted without queries (neither 'qid' nor 'session'): "
        "it took all rows for one list, and is now scored on several queries. Fit it to a frame "
        "with the column 'qid', or pass qid=; on such a frame, write\n\n"
        f"    {line}\n"
    )


def _learners(model: Any, around: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Each learner in a fitted model, and what stands around it, the innermost first."""
    found = []
    if not hasattr(model, "roles_"):
        for each in _fitted_inside(model):
            found += _learners(each, (model, *around))
    has_rankers = any(hasattr(learner, "roles_") for learner, _ in found)
    if has_rankers or isinstance(model, Pipeline | FrozenEstimator):
        yield from found
    else:  # a forest is the learner, not its trees
        yield model, around


def _fitted_inside(model: Any) -> list[Any]:
    """The fitted estimators whose predictions a meta-estimator passes on or combines."""
    if isinstance(model, Pipeline):
        return [model.steps[-1][1]]
    if isinstance(model, FrozenEstimator):
        return [model.estimator]
    if not isinstance(model, BaseEstimator):
        return []
    # By the convention of names: attributes of a fit end with an underscore.
    fitted = [value for name, value in vars(model).items() if name.endswith("_")]
    # Members of an ensemble are in a list.
    for value in [*fitted]:
        if isinstance(value, list | tuple):
            fitted += value
    return [each for each in fitted if isinstance(each, BaseEstimator)]


# Who took roles for features -------------------------------------------------------------
def _takers_among(around: Sequence[Any]) -> list[Any]:
    """What took roles for features in any of the estimators around a learner."""
    return [taker for model in around for taker in _takers(model)]


def _takers(model: Any) -> list[Any]:
    """What took roles for features: transformers before the last step, or a meta-estimator."""
    if isinstance(model, Pipeline):
        return [step for step in _steps(model)[:-1] if _roles_taken(step)]
    is_fitted = "feature_names_in_" in vars(model)  # searches show that of their best pipeline
    return [model] if is_fitted and _roles_taken(model) else []


def _steps(model: Any) -> list[Any]:
    """The steps of nested pipelines, in order."""
    if isinstance(model, Pipeline):
        return [part for _, step in model.steps for part in _steps(step)]
    return [model]


def _roles_taken(step: Any) -> list[str]:
    """The roles among the features that a fitted step saw."""
    try:
        return [str(name) for name in step.feature_names_in_ if is_role(name)]
    except AttributeError:  # not fitted, fitted to an array, "passthrough" or None
        return []


def _carries_roles(step: Any, is_named: bool) -> bool:
    """Whether features that a step gives may be roles; ``is_named`` if they have their names."""
    # A union or ColumnTransformer gives what its parts give.
    parts = [part for _, part, _ in getattr(step, "transformers_", ())]
    parts += [part for _, part in getattr(step, "transformer_list", ())]
    inner = [each for part in parts for each in _steps(part)]
    if inner:
        return any(_carries_roles(each, is_named) for each in inner)
    taken = _roles_taken(step)
    if not taken:
        return False
    return _gives_roles(step, taken, is_named)


def _gives_roles(step, taken, is_named):
    """Whether what one step gives may be the roles that it has taken."""
    if hasattr(step, "transform") and not hasattr(step, "get_feature_names_out"):
        return False  # a function may choose the features itself
    is_known = type(step).__module__.startswith("sklearn.")
    try:
        names = [*step.get_feature_names_out()]
    except (AttributeError, ValueError):  # a meta-estimator that is being fitted
        return is_known and not is_named
    # New names: of scikit-learn any may be of roles, of others those that have a role in them.
    for name in {*names} - {*step.feature_names_in_}:
        if is_known or {*re.split(r"[\W_]+", str(name))} & {*taken}:
            return True
    return not is_named and any(map(is_role, names))


def _is_renamed(name: Any) -> bool:
    """True for a name such as ``standardscaler__qid``."""
    # The last part, because unions in unions add one prefix each.
    prefix, _, rest = str(name).rpartition("__")
    return bool(prefix) and is_role(rest) and not is_role(name)


def _is_own(model: Any) -> bool:
    """True for estimators of skultr, and rankers that users write."""
    return type(model).__module__.startswith("skultr.") or hasattr(model, "_tell_faults")


# What to write instead ----------------------------------------------------------------------
def _message(
    learner: Any, takers: Sequence[Any], around: Sequence[Any], roles: Sequence[str] = ()
) -> str:
    # Each name once, in the order of the takers.
    names = " and ".join(dict.fromkeys(type(each).__name__ for each in takers))
    if not roles:
        roles = [*dict.fromkeys(role for each in takers for role in _roles_taken(each))]
    columns = ", ".join(map(repr, roles))
    line = _instead(around)
    message = (
        f"Roles are lost in {names}, for which the columns {columns} are "
        f"features like any other: {type(learner).__name__} knows no queries then, or learns from "
        "ids, positions or labels. On the same log, write\n\n"
        f"    {line}\n\n"
        "with OnFeatures from skultr.preprocessing, and rankers from skultr.rankers."
    )
    if "OnFeatures" in line:
        message += " A search then calls a parameter of such a step onfeatures__transformer__NAME."
    return message


def _instead(around: Sequence[Any]) -> str:
    """The line of code that keeps roles, for the outermost model that can lose them."""
    # A search around them is left out: the line is that of what it tunes.
    shown = [each for each in around if isinstance(each, Pipeline) or _loses_roles(each)]
    return _in_one_line(_honest_steps((shown or around)[-1]))


def _loses_roles(model: Any) -> bool:
    return bool(_takers(model)) or hasattr(model, "get_support")


def _honest_steps(model: Any) -> list[tuple[str | None, str]]:
    """Name (None by default) and code of each step of the pipeline to write for a model."""
    inner = getattr(model, "estimator", None)
    if isinstance(model, Pipeline):
        # Transformers see features alone, and the last step is written anew.
        before = [(_own_name(*step), _on_features(step[1])) for step in model.steps[:-1]]
        name, last = model.steps[-1]
        *more, (_, code) = _honest_steps(last)
        # The last step became several: none of them is the one that the user named.
        return [*before, *more, (None if more else _own_name(name, last), code)]
    if isinstance(model, FrozenEstimator):
        return _honest_steps(inner)
    if hasattr(model, "get_support"):  # a selection of features, for a ranker of its own kind
        return [(None, _on_features(model)), *_honest_steps(inner)]
    if _is_own(_steps(inner)[-1]) and hasattr(model, "n_estimators"):
        # A bag of rankers is an aggregation of rankers with several seeds.
        first = _in_one_line(_honest_steps(_with_seed(inner, 0)))
        second = _in_one_line(_honest_steps(_with_seed(inner, 1)))
        return [(None, f"RankAggRanker([('first', {first}), ('second', {second})])")]
    if is_regressor(model):
        return [(None, f"NaiveRanker(estimator={_code(model)})")]
    return [(None, _code(model))]


def _in_one_line(steps: Sequence[tuple[str | None, str]]) -> str:
    """Code of a pipeline of steps, or of one step."""
    if len(steps) == 1:
        return steps[0][1]
    # Names only where the user gave them.
    if all(name is None for name, _ in steps):
        return f"make_pipeline({', '.join(code for _, code in steps)})"
    named = [f"({name or f'step{place}'!r}, {code})" for place, (name, code) in enumerate(steps)]
    return f"Pipeline([{', '.join(named)}])"


def _own_name(name: str, step: Any) -> str | None:
    """The name of a step, None if it is the one that ``make_pipeline`` gives."""
    return None if re.fullmatch(rf"{type(step).__name__.lower()}(-\d+)?", name) else name


def _on_features(step: Any) -> str:
    """Code of a step that leaves roles alone."""
    if step is None or isinstance(step, str) or _is_own(step):
        return _code(step)
    if isinstance(step, Pipeline):
        return _in_one_line([(_own_name(*each), _on_features(each[1])) for each in step.steps])
    if isinstance(step, FrozenEstimator):
        return _on_features(step.estimator)
    return f"OnFeatures({_code(_of_features(step))})"


def _of_features(step: Any) -> Any:
    """A ColumnTransformer without the roles that it names; any other step as it is."""
    if not hasattr(step, "transformers_"):
        return step
    seen = step.feature_names_in_
    kept = []
    # As they were given, and with the columns that the fit found.
    pairs = zip(step.transformers, step.transformers_, strict=False)
    for (name, transformer, _), (_, _, columns) in pairs:
        is_text = isinstance(columns, str) or all(isinstance(each, str) for each in columns)
        # Columns may be numbers, a slice or a mask; here all of them have names.
        names = np.atleast_1d(columns if is_text else seen[columns]).tolist()
        features = [each for each in names if not is_role(each)]
        if features:
            kept.append((name, transformer, features))
    return clone(step).set_params(transformers=kept)


def _with_seed(model: Any, seed: int) -> Any:
    """A clone whose ``random_state`` is another one, where it has one."""
    names = [name for name in model.get_params() if name.rpartition("__")[2] == "random_state"]
    return clone(model).set_params(**dict.fromkeys(names, seed))


def _code(model: Any) -> str:
    """The code that makes an estimator, in one line and whole."""
    if not isinstance(model, BaseEstimator):
        return repr(model)
    # scikit-learn would cut a long one, and break it into lines.
    code = " ".join(model.__repr__(N_CHAR_MAX=sys.maxsize).split())
    # Functions by their names, which their repr hides among addresses.
    code = re.sub(r"<(?:built-in )?function (?:\w+\.)*(\w+)(?: at \w+)?>", r"\1", code)
    return re.sub(r"<ufunc '(\w+)'>", r"np.\1", code)
