"""Loops over the rows of arrays that change them: `for row in m: row /= np.sum(row)`.

The rows are views of the array in NumPy. Such a loop is written twice: as it is, and with `m[k]` in the place of `row`,
which is `m[k]` with the last `k` after the loop. At run time the second one runs if `m` is an array with rows, and
traced code may change it. In `for row in m[a:b]` the bounds must be known.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from fxgrad.engine.control_flow.arrays import is_array
from fxgrad.engine.control_flow.names import (
    FUNCTIONS,
    changed_by_call,
    nested_functions,
    rebound_names,
    stored_names,
    walk_scope,
)
from fxgrad.engine.tracing.tape import current
from fxgrad.engine.user_source import copy_tree


class RowsCall(ast.Tuple):
    """A call of `operator`, `has_rows` or `row_numbers`, with the elements as arguments."""

    operator: str


def has_rows(*arrays: Any) -> bool:
    """Return whether arrays are traced, or may change in traced code, and have as many rows."""
    return current.get() is not None and all(is_array(each) and np.ndim(each) > 1 for each in arrays) and len(
        {*map(len, arrays)}) == 1 and len(arrays[0]) > 0


def row_numbers(*arrays: Any) -> range:
    """Return the numbers of the rows."""
    return range(len(arrays[0]))


def has_rows_of_slice(array: Any, *bounds: Any) -> bool:
    """Return whether the same holds for rows between known bounds of a slice."""
    return has_rows(array) and all(each is None or isinstance(each, int | np.integer) for each in bounds) and (
        bounds[2] != 0 and len(row_numbers_of_slice(array, *bounds)) > 0)


def row_numbers_of_slice(array: Any, *bounds: Any) -> range:
    """Return the numbers of the rows of `array[a:b:c]`."""
    return range(len(array))[slice(*bounds)]


def with_numbered_rows(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the body of a function with the loops over rows that change them written twice."""
    loops = [node for node in walk_scope(body) if isinstance(node, ast.For)]
    if not any(map(_changed_rows, loops)):
        return body
    # A name that is read outside of the loops that bind it has the last row there.
    inside = Counter[str]()
    for node in _outermost(body):
        bound = {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
        inside.update({name: count for name, count in _uses([node]).items() if name in bound})
    uses = _uses(body)
    writer = _Loops({name for name in uses if uses[name] != inside[name]})
    return [writer.visit(statement) for statement in body]


def _outermost(body: Sequence[ast.AST]) -> list[ast.For]:
    """Return the loops of a body for each name that they bind: those in a loop that binds the same are left out."""
    found: list[ast.For] = []
    waiting: list[tuple[ast.AST, frozenset[str]]] = [(node, frozenset()) for node in body]
    while waiting:
        node, around = waiting.pop()
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            continue
        if isinstance(node, ast.For):
            bound = frozenset(each.id for each in ast.walk(node.target) if isinstance(each, ast.Name))
            if not bound & around:
                found.append(node)
            around |= bound
        waiting += [(each, around) for each in ast.iter_child_nodes(node)]
    return found


def _uses(body: Sequence[ast.AST]) -> Counter[str]:
    return Counter(each.id for node in body for each in ast.walk(node) if isinstance(each, ast.Name))


def _changed_rows(node: ast.For) -> dict[str, ast.expr]:
    """Return the names of the rows of a loop and their arrays, if it may change one of the rows; else nothing."""
    target, source, rows = node.target, node.iter, dict[str, ast.expr]()
    if isinstance(target, ast.Name):
        rows[target.id] = source.value if isinstance(source, ast.Subscript) else source
    elif isinstance(source, ast.Call) and isinstance(source.func, ast.Name) and isinstance(target, ast.Tuple) and all(
            isinstance(each, ast.Name) for each in target.elts):
        names = [each.id for each in target.elts if isinstance(each, ast.Name)]
        if source.func.id == "enumerate" and len(source.args) == 1 and not source.keywords and len(names) == 2:
            rows[names[1]] = source.args[0]
        elif source.func.id == "zip" and len(source.args) == len(names):
            rows.update(zip(names, source.args, strict=True))
    sliced = isinstance(target, ast.Name) and isinstance(source, ast.Subscript)
    if node.orelse or not rows or not all(map(_is_place, rows.values())) or (
            sliced and not _has_simple_bounds(source.slice)):  # type: ignore[attr-defined]
        return {}
    changed = stored_names(node.body) | {
        each.id for statement in walk_scope(node.body) if isinstance(statement, ast.Expr) and isinstance(
            call := statement.value, ast.Call) and changed_by_call(call) is None
        for each in [*call.args, *(keyword.value for keyword in call.keywords)] if isinstance(each, ast.Name)}
    roots = {each.id for source in rows.values() for each in ast.walk(source) if isinstance(each, ast.Name)}
    inside = {each.id for function in nested_functions(node.body) for each in ast.walk(function)
              if isinstance(each, ast.Name)}
    if not changed & rows.keys() or rebound_names(node.body) & (roots | rows.keys()) or inside & rows.keys():
        return {}
    return rows


def _has_simple_bounds(node: ast.expr) -> bool:
    """Return whether an index is a slice whose bounds are computed from names and numbers, the same each time."""
    return isinstance(node, ast.Slice) and all(isinstance(
        each, ast.Constant | ast.Name | ast.Attribute | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop | ast.Load)
        for bound in (node.lower, node.upper, node.step) if bound is not None for each in ast.walk(bound))


def _is_place(node: ast.expr) -> bool:
    """Return whether an expression is a name or an attribute of one: reading it again gives the same array."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


class _Loops(ast.NodeTransformer):
    """Writes loops over rows twice; names of rows that are `used_outside` get the last one."""

    def __init__(self, used_outside: Collection[str]) -> None:
        self._used_outside, self._count = used_outside, 0

    def visit(self, node: ast.AST) -> Any:
        return node if isinstance(node, (*FUNCTIONS, ast.ClassDef)) else super().visit(node)

    def visit_For(self, node: ast.For) -> Any:
        rows = _changed_rows(node)
        if not rows:
            return self.generic_visit(node)
        self._count += 1
        number = f"~row {self._count}"
        numbered = [_Rows(rows, number).visit(copy_tree(each)) for each in node.body]
        if isinstance(node.target, ast.Tuple) and len(rows) == 1:  # of `enumerate`
            first = ast.Assign([copy.copy(node.target.elts[0])], _name(number, node.target))
            numbered.insert(0, ast.copy_location(first, node.target))
        target = ast.copy_location(ast.Name(number, ast.Store()), node.target)
        again = ast.copy_location(ast.For(target, self._call("row_numbers", rows, node.iter), numbered, []), node)
        last = [ast.copy_location(ast.Assign([ast.copy_location(ast.Name(name, ast.Store()), node.target)], _Rows(
            rows, number).visit(ast.copy_location(ast.Name(name, ast.Load()), node.target))), node)
            for name in rows if name in self._used_outside]
        test = self._call("has_rows", rows, node.iter)
        return ast.copy_location(ast.If(test, [again, *last], [node]), node)

    @staticmethod
    def _call(operator: str, rows: dict[str, ast.expr], source: ast.expr) -> RowsCall:
        arguments = [copy_tree(each) for each in rows.values()]
        if isinstance(source, ast.Subscript) and isinstance(source.slice, ast.Slice):
            operator += "_of_slice"
            arguments += [copy_tree(each) if each is not None else ast.copy_location(ast.Constant(None), source)
                          for each in (source.slice.lower, source.slice.upper, source.slice.step)]
        call = ast.copy_location(RowsCall(arguments, ast.Load()), source)
        call.operator = operator
        return call


class _Rows(ast.NodeTransformer):
    """Puts `m[k]` in the place of the names of rows."""

    def __init__(self, rows: dict[str, ast.expr], number: str) -> None:
        self._rows, self._number = rows, number

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._rows:
            return node
        row = ast.Subscript(copy_tree(self._rows[node.id]), _name(self._number, node), node.ctx)
        return ast.copy_location(row, node)


def _name(name: str, at: ast.AST) -> ast.Name:
    return ast.copy_location(ast.Name(name, ast.Load()), at)
