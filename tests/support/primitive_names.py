"""Find code that depends on the name of a primitive: comparisons, lookups, and `registry` indexed by a name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
SAME_TEXT = ("removeprefix", "removesuffix", "partition", "rpartition", "split", "strip", "lower", "upper", "replace")
"""Methods that make a part of a text of a text."""


def questions(path: Path) -> list[str]:
    """Lines of a file, as `line expression`, that compare the name of a primitive with something, or look it up.

    Locals are followed: those that hold a primitive (by annotation, or assigned from one), and those that hold its name
    or a part of it. Lookups in `registry` are only reported in functions, since tables enter facts by literal names.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[tuple[int, str]] = set()
    for scope in (tree, *(node for node in ast.walk(tree) if isinstance(node, Function))):
        found.update(_of_scope(scope))
    return [f"{line} {text}" for line, text in sorted(found)]


def _of_scope(scope: ast.Module | Function) -> Iterator[tuple[int, str]]:
    locals_ = _Locals(scope)
    for node in _own(scope):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            asks = any(map(locals_.is_name, [*sides, *(each for side in sides if isinstance(side, ast.Tuple)
                                                       for each in side.elts)]))
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            asks = locals_.is_name(node.slice) or (
                not isinstance(scope, ast.Module) and ast.unparse(node.value) in ("registry", "primitives")
                and not isinstance(node.slice, ast.Constant))  # a record whose name is a word of Python's
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            asks = (node.func.attr in ("get", "startswith", "endswith") and locals_.is_name(node.args[0])) or (
                node.func.attr in ("startswith", "endswith") and locals_.is_name(node.func.value))
        elif isinstance(node, ast.Match):
            asks, node = locals_.is_name(node.subject), node.subject  # noqa: PLW2901
        else:
            continue
        if asks:
            yield node.lineno, ast.unparse(node)


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, comprehensions included, without those of inner functions."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, Function):
            yield from _own(node)


class _Locals:
    """The locals of a function that hold primitives, and those that hold their names."""

    def __init__(self, scope: ast.AST) -> None:
        self._primitives: set[str] = set()
        self._names: set[str] = set()
        arguments = scope.args if isinstance(scope, Function) else None
        for argument in () if arguments is None else (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            annotation = "" if argument.annotation is None else ast.unparse(argument.annotation)
            if re.fullmatch(r"Primitive( \| None)?", annotation):
                self._primitives.add(argument.arg)
        before = None
        while before != (before := (len(self._primitives), len(self._names))):
            for target, value in _assignments(scope):
                if self._is_primitive(value):
                    self._primitives.add(target)
                if self.is_name(value):
                    self._names.add(target)

    def _is_primitive(self, node: ast.AST) -> bool:
        text = ast.unparse(node)
        return text in self._primitives or re.fullmatch(r"(.*\.)?(\w*_)?primitive|\w+_p", text) is not None

    def is_name(self, node: ast.AST) -> bool:
        """Return whether an expression is the name of a primitive, or a part of it."""
        if isinstance(node, ast.NamedExpr):
            return self.is_name(node.value)
        if isinstance(node, ast.Name):
            return node.id in self._names
        if isinstance(node, ast.Attribute):
            return node.attr == "name" and self._is_primitive(node.value)
        if isinstance(node, ast.Subscript):
            return self.is_name(node.value)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "str" and node.args:
            return self._is_primitive(node.args[0])
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and \
            node.func.attr in SAME_TEXT and self.is_name(node.func.value)


def _assignments(scope: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the local variables of a function, each with its assigned value, in tuples too."""
    for node in _own(scope):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _pairs(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            yield from _pairs(node.target, node.value)


def _pairs(target: ast.AST, value: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, each in zip(target.elts, value.elts, strict=True):
            yield from _pairs(one, each)
