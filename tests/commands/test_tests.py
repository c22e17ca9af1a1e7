"""The tests themselves: each of them can fail, and each file is collected beside all others."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from fxgrad.engine.ops.trigonometric import sin_p
from fxgrad.text import checking
from tests.support.ids import LONGEST, name_of
from tests.support.kinds import kinds

TESTS = Path(__file__).resolve().parent.parent
ASKING = ("assert", "check", "raises", "hold", "compare", "agree")
"""What the names of functions that fail begin with, where they are not of the same file."""


def can_fail(function: ast.FunctionDef, others: dict[str, ast.FunctionDef], seen: tuple[str, ...] = ()) -> bool:
    """Whether it asserts or raises something, by itself or by what it calls."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert | ast.Raise):
            return True
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
            if name.startswith(ASKING):
                return True
            if name in others and name not in seen and can_fail(others[name], others, (*seen, name)):
                return True
    return False


def idle(source: str) -> list[str]:
    functions = {node.name: node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}
    return [name for name, function in functions.items() if name.startswith("test_")
            and not can_fail(function, functions, (name,))]


@pytest.mark.slow
def test_every_test_can_fail() -> None:
    found = {str(path.relative_to(TESTS)): idle(path.read_text(encoding="utf-8")) for path in TESTS.rglob("test_*.py")}
    assert {path: names for path, names in found.items() if names} == {}


def test_files_that_are_in_no_package_have_names_of_their_own() -> None:
    alone = [path.name for path in TESTS.rglob("test_*.py") if not (path.parent / "__init__.py").exists()]
    assert sorted(alone) == sorted(set(alone))


def test_idle_tests_are_found() -> None:
    assert idle("def test_a():\n    f(1)\ndef f(x):\n    return x\n") == ["test_a"]
    assert idle("def test_a():\n    f(1)\ndef f(x):\n    assert x\n") == []


def test_programs_are_read_back_where_a_kind_of_operation_is_new() -> None:
    """Reading them wherever two operations meet that did not before takes a sixth of the time of all tests."""
    assert checking.text_features is kinds


def test_parameters_have_names_that_say_what_they_are() -> None:
    for value, name in ((lambda x: x + 1, "x + 1"), ((2, [np.float32, None]), "(2, [float32, None])"),
                        ((1,), "(1,)"), ({"axis": slice(1, None), "of": 1.5}, "{'axis': 1:, 'of': 1.5}"),
                        (np.zeros((2, 9)), "float64[2,9]"), (np.int8([1, 2]), "int8 [1, 2]"), (sin_p, "sin"),
                        (["word " * 30], f"['{' '.join(['word'] * 11)}...")):
        assert name_of(value) == name
        assert len(name) <= LONGEST
    for value in ("short", test_idle_tests_are_found, object(), [object()]):
        assert name_of(value) is None  # pytest names or numbers them
