"""Solvers stop at a tolerance; a loop of so many steps at most says where it did not get there.

A loop ``for _ in range(CONSTANT)`` ends a search too early, or too late, without a word. It has
either a ``return`` or a ``break`` where the result is exact enough, and then an ``else`` that
says that it was not reached.
"""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "skultr"
#: Loops that need no tolerance, by file and function, and why.
ALLOWED = {
    ("_models/_tabular.py", "_best_by_newton"): "the loss of the factors judges what it found",
    ("_models/_tabular.py", "_step"): "a step of a damped method, which is judged afterwards",
    ("propensity/_swap_plans.py", "cheapest_shares"): "the best of all rounds, each valid",
    ("metrics/_judged_documents.py", "random_rankings"): "a sample, and no search",
    ("propensity/_comparisons.py", "_factor_scale"): "a solution need not exist",
    ("propensity/_relevance_labels.py", "_with_intervals"): "more rounds lead away: see there",
    ("serving/_trees.py", "_largest_left"): "halvings of a range of 64 bits: exact",
}


def _is_constant(node):
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int)
    return isinstance(node, ast.Name) and node.id.isupper()


def _steps(node):
    """Number of steps of a loop over a constant range, as a node; None of another one."""
    calls = isinstance(node, ast.For) and isinstance(node.iter, ast.Call)
    if not calls or getattr(node.iter.func, "id", None) != "range":
        return None
    is_counted = getattr(node.target, "id", None) == "_" and len(node.iter.args) == 1
    return node.iter.args[0] if is_counted and _is_constant(node.iter.args[0]) else None


def _says_where_it_stopped(loop):
    return bool(loop.orelse) or any(isinstance(node, ast.Return) for node in ast.walk(loop))


def silent_loops(source):
    """Functions of loops with a fixed number of steps that never say that they stopped early."""
    found = set()
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            loops = [node for node in ast.walk(function) if _steps(node) is not None]
            found |= {function.name for loop in loops if not _says_where_it_stopped(loop)}
    return found


@pytest.mark.parametrize(
    ("source", "is_silent"),
    [
        ("for _ in range(5):\n  x = g(x)", True),
        ("for _ in range(_MOST):\n  x = g(x)\n  if x < 1:\n    break", True),
        ("for _ in range(_MOST):\n  x = g(x)\n  if x < 1:\n    break\nelse:\n  warn()", False),
        ("for _ in range(_MOST):\n  x = g(x)\n  if x < 1:\n    return x", False),
        ("for _ in range(n):\n  x = g(x)", False),
        ("for k in range(5):\n  x[k] = g(x)", False),
    ],
)
def test_silent_loops_are_found(source, is_silent):
    lines = "\n".join(f"  {line}" for line in source.splitlines())
    assert silent_loops(f"def f(x, n):\n{lines}") == ({"f"} if is_silent else set())


def test_every_loop_ends_at_a_tolerance():
    found = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in PACKAGE.rglob("*.py")
        for name in silent_loops(path.read_text())
    }
    assert found == set(ALLOWED), "a loop with a fixed number of steps: see the head of this file"
