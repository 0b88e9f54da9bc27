"""The text of a LightGBM booster, checked before LightGBM parses it.

LightGBM trusts what it reads: an index beyond an array, a cycle of nodes or a number that is none
ends the process, as errors of its parallel loops do. So a text is refused unless it has the form
that LightGBM writes, line by line, and its trees hold together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import islice, pairwise
from math import isfinite
from typing import Any, TypeVar

from lightgbm import Booster

_Number = TypeVar("_Number", int, float)

#: LightGBM writes trees by recursion, some hundred bytes of the stack a level; half a megabyte is
#: the smallest stack of threads.
_MOST_DEPTH = 1_000
#: The largest whole number of 32 bits with a sign.
_INT = 2**31 - 1
_INTS = re.compile(r"(?:-?[0-9]{1,10}(?: -?[0-9]{1,10})*)?")
_FLOAT = r"-?(?:[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?|inf|nan)"
_FLOATS = re.compile(f"(?:{_FLOAT}(?: {_FLOAT})*)?")
#: Names that LightGBM gives to objectives of one score, and their options.
_OBJECTIVE = re.compile(
    r"(?:regression|regression_l1|huber|fair|poisson|quantile|mape|gamma|tweedie|binary|"
    r"cross_entropy|cross_entropy_lambda|lambdarank|rank_xendcg|custom)"
    rf"(?: sqrt| [a-z_]+:{_FLOAT})*"
)
_INFO = re.compile(rf"none|\[{_FLOAT}:{_FLOAT}\]|-?[0-9]+(?::-?[0-9]+)*")
#: Lines of the head, beside those that :func:`_check_head` reads.
_FLAGS = {"tree", "average_output", ""}
#: Names of the fields of the head.
_OF_HEAD = {
    "version",
    "num_class",
    "num_tree_per_iteration",
    "label_index",
    "objective",
    "max_feature_idx",
    "feature_names",
    "feature_infos",
    "monotone_constraints",
    "tree_sizes",
}
#: Arrays by node and by leaf; of some, infinity and NaN are numbers, too.
_BY_NODE = {
    "split_feature": "ints",
    "split_gain": "any",
    "threshold": "any",  # infinity, where missing values alone go to the other side
    "decision_type": "ints",
    "left_child": "ints",
    "right_child": "ints",
    "internal_value": "any",
    "internal_weight": "any",
    "internal_count": "ints",
}
_BY_LEAF = {"leaf_value": "floats", "leaf_weight": "any", "leaf_count": "ints"}
_OF_CATEGORIES = {"cat_boundaries", "cat_threshold"}
_OF_LINEAR = {"leaf_const", "num_features", "leaf_features", "leaf_coeff"}
_OF_TREE = {
    "num_leaves",
    "num_cat",
    "is_linear",
    "shrinkage",
    *_BY_NODE,
    *_BY_LEAF,
    *_OF_CATEGORIES,
    *_OF_LINEAR,
}
#: Settings of how LightGBM predicts (without its check of the number of features, say), of files
#: and of other machines.
_REFUSED = re.compile("pred|file|machine")
#: What separates settings in the text that LightGBM gets.
_SEPARATOR = re.compile(r"[\s=]")
#: Names of the number of threads.
_THREADS = {"num_threads", "num_thread", "nthread", "nthreads", "n_jobs"}
#: More threads than machines have.
_MOST_THREADS = 1_024


def read_booster(text: str, best_iteration: Any) -> Booster:
    """The booster of a text, whose trees were checked.

    Parameters
    ----------
    text : str
        What ``Booster.model_to_string`` wrote.
    best_iteration : int
        The number of trees that predict, if it is positive.

    Raises
    ------
    ValueError
        If the text is not as LightGBM writes it, in one sentence.
    """
    n_trees = check_booster(text)
    if type(best_iteration) is not int or not -1 <= best_iteration <= n_trees:
        _refuse("the best iteration", f"{best_iteration!r:.80}", f"from -1 to {n_trees}")
    booster = Booster(model_str=text)
    booster.best_iteration = best_iteration
    return booster


def check_booster(text: str) -> int:
    """Raise a ValueError unless a text is as LightGBM writes it; the number of trees."""
    # LightGBM reads C strings: a zero byte would end the text before what is checked here.
    found = re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    if found:
        _refuse("the text", f"the character {found.group()!r}", "none such")
    # Three parts: the head, the trees, and importances with parameters.
    head, start, rest = text.partition("\nTree=")
    trees, end, after = (start[1:] + rest).partition("end of trees\n")
    if not end or not trees.endswith("\n\n\n"):
        _refuse("the text", "no trees, or no end of them", "both")
    # The head first: it bounds the features that trees may name.
    n_features, sizes = _check_head(head.split("\n"))
    _check_after(after.split("\n"))
    # LightGBM goes from tree to tree by these sizes.
    start_of_tree = 0
    for number, size in enumerate(sizes):
        end_of_tree = start_of_tree + size
        tree = trees[start_of_tree:end_of_tree]
        # A wrong size would have it read the text from the middle of a tree.
        if not tree.startswith(f"Tree={number}\n") or not tree.endswith("\n\n\n"):
            _refuse("tree_sizes", f"{size} for tree {number}", "its number of bytes")
        try:
            _check_tree(tree.split("\n")[1:-3], n_features)
        except ValueError as error:
            raise ValueError(f"tree {number} of the booster: {error}") from None
        start_of_tree = end_of_tree
    if start_of_tree != len(trees):
        _refuse("tree_sizes", f"{start_of_tree} bytes", f"{len(trees)}")
    return len(sizes)


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise a ValueError if settings of a learner could end the process that predicts.

    LightGBM gets all settings in one text, ``name=value`` with blanks between, and trusts them.

    Parameters
    ----------
    settings : dict of str to object
        Parameters of a ranker, or of one of LightGBM's.
    """
    for name, value in settings.items():
        # A name with a blank or "=" in it would set another parameter, too.
        if re.fullmatch(r"\w+", name) is None or _REFUSED.search(name.lower()):
            _refuse("a learner", f"the setting {name!r:.80}", "settings of its training")
        # So would such a value.
        if any(map(_SEPARATOR.search, _texts_in(value))):
            _refuse(name, f"{value!r:.80}", "text without blanks and =")
        is_number_of_threads = name.lower() in _THREADS and value is not None
        if is_number_of_threads and not _is_few(value):
            _refuse(name, f"{value!r:.80}", f"at most {_MOST_THREADS:,}")


def _is_few(threads):
    return type(threads) in (int, float) and abs(threads) <= _MOST_THREADS


def _texts_in(value):
    """The texts of a value, and of its parts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts_in([*value, *value.values()])
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts_in(each)


def _refuse(what, found, expected):
    raise ValueError(f"{what} has {found}; expected {expected}")


def _fields(lines, known):
    """Lines as names and values; each name is known and there once."""
    fields = {}
    for line in lines:
        name, is_field, value = line.partition("=")
        # Of a name that is there twice LightGBM takes one, and the check here may take the other.
        if not is_field or name not in known or name in fields:
            _refuse("a line", f"{line!r:.40}", "each name of LightGBM's once")
        fields[name] = value
    return fields


def _field(fields, name):
    if name not in fields:
        _refuse(name, "no line", "one")
    return fields[name]


def _numbers(
    fields: dict[str, str],
    name: str,
    pattern: re.Pattern[str],
    make: Callable[[str], _Number],
    length: int | None,
) -> list[_Number]:
    value = _field(fields, name)
    # The pattern before the numbers: int() and float() also take "1_0", blanks and other digits.
    if pattern.fullmatch(value) is None:
        _refuse(name, f"{value!r:.40}", "numbers with a space between each two")
    found = [*map(make, value.split(" "))] if value else []
    if length is not None and len(found) != length:
        _refuse(name, f"{len(found)} numbers", f"{length}")
    return found


def _ints(fields, name, length=None, low=0, high=_INT):
    """The whole numbers of a line, within bounds."""
    found = _numbers(fields, name, _INTS, int, length)
    if found and not low <= min(found) <= max(found) <= high:
        _refuse(name, f"numbers from {min(found)} to {max(found)}", f"from {low} to {high}")
    return found


def _int(fields, name, low=0, high=_INT):
    return _ints(fields, name, 1, low, high)[0]


def _floats(fields, name, length=None, *, finite=True):
    """The numbers of a line."""
    found = _numbers(fields, name, _FLOATS, float, length)
    if finite and not all(map(isfinite, found)):
        _refuse(name, "infinity or no number", "finite numbers")
    return found


# The parts of a text --------------------------------------------------------------------
def _check_head(lines):
    """The number of features and the sizes of the trees."""
    fields = _fields([line for line in lines if line not in _FLAGS], _OF_HEAD)
    # The index counts from 0; one less than the bound, so that the number of features fits, too.
    n_features = _int(fields, "max_feature_idx", 0, _INT - 1) + 1
    # One score per row: rankers have no classes.
    for name in ("num_class", "num_tree_per_iteration"):
        _int(fields, name, 1, 1)
    _int(fields, "label_index", 0, n_features)
    _check_features(fields, n_features)
    if lines[0] != "tree" or _field(fields, "version") != "v4":
        _refuse("the text", f"another version than {lines[:2]}", "tree of version v4")
    if "objective" in fields and _OBJECTIVE.fullmatch(fields["objective"]) is None:
        _refuse("objective", f"{fields['objective']!r:.40}", "one of one score")
    return n_features, _ints(fields, "tree_sizes", low=1)


def _check_features(fields, n_features):
    """Raise a ValueError unless the head has a name and a range of each feature."""
    # None is empty: two blanks would shift the rest.
    for name in ("feature_names", "feature_infos"):
        values = _field(fields, name).split(" ")
        if len(values) != n_features or not all(values):
            _refuse(name, f"{len(values)} values", f"{n_features}")
    if not all(map(_INFO.fullmatch, fields["feature_infos"].split(" "))):
        _refuse("feature_infos", "a value that is no range", "ranges or categories")
    if "monotone_constraints" in fields:
        _ints(fields, "monotone_constraints", n_features, -1, 1)


def _check_after(lines):
    """Importances and parameters, of which LightGBM reads the latter."""
    inside = False
    for line in lines:
        if line in ("parameters:", "end of parameters"):
            # A block that begins inside a block, or ends outside of one.
            if inside is (line == "parameters:"):
                _refuse("the text", f"a line {line!r}", "parameters once")
            inside = not inside
        elif inside and line and re.fullmatch(r"\[\w+: .*\]", line) is None:
            _refuse("a parameter", f"the line {line!r:.40}", "[name: value]")


def _check_tree(lines, n_features):
    """Raise a ValueError unless the arrays of a tree fit each other."""
    fields = _fields(lines, _OF_TREE)
    n_leaves = _int(fields, "num_leaves", 1, 131_072)  # LightGBM's own bound
    # A binary tree.
    n_nodes = n_leaves - 1
    by_node = {name: _array(fields, name, kind, n_nodes) for name, kind in _BY_NODE.items()}
    _check_leaves(fields, n_leaves)
    _floats(fields, "shrinkage", 1)
    _check_at_most("split_feature", by_node, n_features - 1)
    # Bits of a decision: a category, missing values to the left, two for three kinds of missing.
    _check_at_most("decision_type", by_node, 0b1011)
    _check_children(by_node["left_child"], by_node["right_child"])
    # Bit 0 of the kind says that a split is by categories; its threshold is then a place among
    # them.
    kinds = zip(by_node["threshold"], by_node["decision_type"], strict=True)
    _check_categories(fields, [threshold for threshold, kind in kinds if kind & 1])
    if _int(fields, "is_linear", 0, 1):
        _check_linear(fields, n_leaves, n_features)
    elif _OF_LINEAR & {*fields}:
        _refuse("is_linear", "0 beside coefficients", "1")


def _check_leaves(fields, n_leaves):
    """Raise a ValueError unless each array of leaves has a number for each."""
    for name, kind in _BY_LEAF.items():
        # A tree that is one leaf may have no count and no weight.
        is_left_out = n_leaves == 1 and name != "leaf_value" and not _field(fields, name)
        _array(fields, name, kind, 0 if is_left_out else n_leaves)


def _check_at_most(name, by_node, most):
    """Refuse numbers of nodes above a bound; the lower one, 0, was checked as they were read."""
    found = max(by_node[name], default=0)
    if found > most:
        _refuse(name, f"{found}", f"at most {most}")


def _array(fields, name, kind, length):
    if kind == "ints":
        # A child below 0 is a leaf: -1 is leaf 0, -2 is leaf 1.
        low = -_INT if name.endswith("_child") else 0
        return _ints(fields, name, length, low)
    return _floats(fields, name, length, finite=kind == "floats")


def _check_children(left, right):
    """Every node and leaf but the first node is the child of one node, which stands before it."""
    n_nodes = len(left)
    if not n_nodes:
        return
    # Children are all leaves, from -n_nodes - 1 to -1, and all nodes but the root, which is 0.
    if sorted(left + right) != [*range(-n_nodes - 1, 0), *range(1, n_nodes)]:
        _refuse("left_child and right_child", "a node twice, or none", "each node and leaf once")
    depth = [1] * n_nodes
    for node, children in enumerate(zip(left, right, strict=True)):
        for child in children:
            # A node that stands before its parent may lie on a cycle, which predictions would
            # never leave.
            if 0 <= child <= node:
                _refuse("left_child and right_child", f"{child} below {node}", "no cycle")
            if child > 0:
                # The parent stands before, so that its own depth is known.
                depth[child] = depth[node] + 1
    if max(depth) > _MOST_DEPTH:
        _refuse("left_child and right_child", f"depth {max(depth)}", f"at most {_MOST_DEPTH}")


def _check_categories(fields, places):
    """Each split by categories has a place of its own, and the bits of its categories there."""
    n_splits = _int(fields, "num_cat")
    # A place is an index of cat_boundaries, which LightGBM does not check.
    if len(places) != n_splits or sorted(places) != [*range(n_splits)]:
        _refuse("num_cat", f"{n_splits}", "the splits by categories, one place each in threshold")
    if not n_splits:
        if _OF_CATEGORIES & {*fields}:
            _refuse("num_cat", "0 beside categories", "their splits")
        return
    bounds = _ints(fields, "cat_boundaries", n_splits + 1)
    # Words of the bits of split i are those from bounds[i] to bounds[i + 1].
    if bounds[0] or any(low >= high for low, high in pairwise(bounds)):
        _refuse("cat_boundaries", f"{bounds!r:.40}", "numbers that rise from 0")
    _ints(fields, "cat_threshold", bounds[-1], high=2**32 - 1)  # words of 32 bits, one a category


def _check_linear(fields, n_leaves, n_features):
    """The linear models of the leaves, as LightGBM writes them: two spaces end each leaf."""
    _floats(fields, "leaf_const", n_leaves)
    counts = _ints(fields, "num_features", n_leaves)
    for name in ("leaf_features", "leaf_coeff"):
        values = _field(fields, name).split()
        if len(values) != sum(counts) or fields[name] != _by_leaf(values, counts):
            _refuse(name, f"{len(values)} values", f"{sum(counts)}, by leaf")
        # With one space between each two, as the readers of numbers expect.
        fields = {**fields, name: " ".join(values)}
    _ints(fields, "leaf_features", high=n_features - 1)
    _floats(fields, "leaf_coeff")


def _by_leaf(values, counts):
    """The line of values of all leaves, of which each has as many as are counted."""
    rest = iter(values)
    leaves = ["".join(f"{value} " for value in islice(rest, count)) for count in counts]
    return "".join(f"{leaf} " for leaf in leaves)
