"""Loops over rows and columns of arrays that change them: `for row in m: row /= np.sum(row)`, `for c in m.T: c -= 1`.

The rows are views of the array in NumPy. Such a loop is written twice: as it is, and with `m[k]` in the place of `row`,
which is `m[k]` with the last `k` after the loop; a column is `m[:, k]`. At run time the second one runs if `m` is an
array with rows, and traced code may change it. In `for row in m[a:b]` the bounds must be known.

Elements of an array that its loop changes, `for i, v in enumerate(x): x[i] = 2 * v`, are read by number too, at the
beginning of each turn: a third form of the loop, for arrays with one axis.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine.control_flow.arrays import is_array
from fxgrad.engine.control_flow.names import (
    FUNCTIONS,
    changed_by_call,
    is_generated,
    nested_functions,
    rebound_names,
    stored_names,
    walk_scope,
)
from fxgrad.engine.tracing.tape import current
from fxgrad.engine.user_source import copy_tree


class RowsCall(ast.Tuple):
    """A call of `operator`, `has_rows`, `has_elements` or `row_numbers`, with the elements as arguments."""

    operator: str


def has_rows(*sources: tuple[Any, ...]) -> bool:
    """Return whether all are arrays with rows that are traced, or may change in traced code.

    Each is an array, whether its columns are meant, and the bounds and step of a slice of them, which must be known.
    """
    return all(is_array(array) and (np.ndim(array) == 2 if columns else np.ndim(array) > 1) and _can_count(
        array, columns, *bounds) for array, columns, *bounds in sources)


def has_elements(*sources: tuple[Any, ...]) -> bool:
    """Return whether the same holds for arrays with one axis, whose elements are meant."""
    return all(is_array(array) and np.ndim(array) == 1 and _can_count(array, *others) for array, *others in sources)


def _can_count(array: Any, columns: bool, *bounds: Any) -> bool:
    return current.get() is not None and bounds[2] != 0 and all(
        each is None or isinstance(each, int | np.integer) for each in bounds) and len(
        row_numbers(array, columns, *bounds)) > 0


def row_numbers(array: Any, columns: bool, *bounds: Any) -> range:
    """Return the numbers of the rows of `array[a:b:c]`, or of the columns `array.T[a:b:c]`."""
    return range(np.shape(array)[columns])[slice(*bounds)]


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


class _Source(NamedTuple):
    """Where a name of a loop gets its rows, or columns: from the whole array, or between the bounds of a slice."""

    array: ast.expr
    columns: bool
    bounds: ast.Slice | None


def _source_of(node: ast.expr, columns: bool) -> _Source | None:
    """Return what a loop over an expression gets rows from, or columns if it is a `.T` and may be; None for others."""
    bounds = None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        bounds, node = node.slice, node.value
        if not _has_simple_bounds(bounds):
            return None
    columns = columns and _is_transposed(node)
    array = node.value if columns and isinstance(node, ast.Attribute) else node
    return _Source(array, columns, bounds) if _is_place(array) else None


def _is_transposed(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "T"


def _items(target: ast.expr, source: ast.expr) -> list[tuple[str, ast.expr]]:
    """Return the names of a target, and what each goes over; `zip` and `enumerate` go over several."""
    if isinstance(target, ast.Name):
        return [(target.id, source)]
    if not (isinstance(target, ast.Tuple) and isinstance(source, ast.Call) and isinstance(source.func, ast.Name)):
        return []
    if source.func.id == "enumerate" and source.args and len(target.elts) == 2:
        return _items(target.elts[1], source.args[0])
    if source.func.id == "zip" and len(source.args) == len(target.elts):
        return [each for pair in zip(target.elts, source.args, strict=True) for each in _items(*pair)]
    return []


def _changed_rows(node: ast.For, columns: bool = True, used_outside: Collection[str] = ()) -> dict[str, _Source]:
    """Return the names of the rows of a loop that it may change, and those of other rows of the same arrays.

    If one is used outside of the loop, so that there must be a turn, all names must have rows, and are returned.
    """
    items = _items(node.target, node.iter)
    sources = {name: source for name, each in items if (source := _source_of(each, columns)) is not None}
    if not sources or node.orelse:
        return {}
    changed = stored_names(node.body) | {
        each.id for statement in walk_scope(node.body) if isinstance(statement, ast.Expr) and isinstance(
            call := statement.value, ast.Call) and changed_by_call(call) is None
        for each in [*call.args, *(keyword.value for keyword in call.keywords)] if isinstance(each, ast.Name)}
    inner = [each for loop in walk_scope(node.body) if isinstance(loop, ast.For)
             for each in _items(loop.target, loop.iter)]
    for name, each in [*inner] * len(inner):  # the rows of a row
        source = _source_of(each, columns=True)
        if name in changed and source is not None and isinstance(source.array, ast.Name):
            changed.add(source.array.id)
    arrays = {ast.dump(source.array) for name, source in sources.items() if name in changed or (
        isinstance(source.array, ast.Name) and source.array.id in changed)}
    rows = {name: source for name, source in sources.items() if ast.dump(source.array) in arrays}
    if rows.keys() & {*used_outside}:
        rows = sources if len(items) == len(sources) else {}
    roots = {each.id for source in rows.values() for each in ast.walk(source.array) if isinstance(each, ast.Name)}
    targets = {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
    inside = {each.id for function in nested_functions(node.body) for each in ast.walk(function)
              if isinstance(each, ast.Name)}
    if not rows or rebound_names(node.body) & (roots | rows.keys()) or targets & roots or inside & rows.keys():
        return {}
    return rows


def _has_simple_bounds(node: ast.Slice) -> bool:
    """Return whether the bounds of a slice are computed from names and numbers, the same each time."""
    return all(isinstance(
        each, ast.Constant | ast.Name | ast.Attribute | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop | ast.Load)
        for bound in (node.lower, node.upper, node.step) if bound is not None for each in ast.walk(bound))


def _is_place(node: ast.expr) -> bool:
    """Return whether an expression is a name, or an attribute or row of one: reading it again gives the same array."""
    while isinstance(node, ast.Attribute) or (isinstance(node, ast.Subscript) and any(
            isinstance(each, ast.Name) and is_generated(each.id) for each in ast.walk(node.slice))):
        node = node.value
    return isinstance(node, ast.Name)


class _Loops(ast.NodeTransformer):
    """Writes loops over rows twice; names of rows that are `used_outside` get the last one."""

    def __init__(self, used_outside: Collection[str]) -> None:
        self._used_outside, self._count = used_outside, 0

    def visit(self, node: ast.AST) -> Any:
        return node if isinstance(node, (*FUNCTIONS, ast.ClassDef)) else super().visit(node)

    def visit_For(self, node: ast.For) -> Any:
        found = self._written_twice(node, columns=True)
        if not any(map(_is_transposed, ast.walk(node.iter))) or found is node:
            return found
        found.orelse = [self._written_twice(node, columns=False)]  # `x.T` may be an attribute like others
        return found

    def _written_twice(self, node: ast.For, *, columns: bool) -> Any:
        rows = _changed_rows(node, columns, self._used_outside)
        if not rows:
            return self.generic_visit(node)
        self._count += 1
        numbers = {name: f"~row {self._count} {place}" for place, name in enumerate(rows)}
        target, source = self._numbered(copy_tree(node.target), node.iter, rows, numbers)
        body = [self.visit(_Rows(rows, numbers).visit(copy_tree(each))) for each in node.body]
        again = ast.copy_location(ast.For(target, source, body, []), node)
        after = [self._assignment(name, rows, numbers, node.target) for name in rows if name in self._used_outside]
        test = self._test("has_rows", rows, node.iter)
        plain: Any = self.generic_visit(copy_tree(node))
        stored = stored_names(node.body)
        elements = {name: source for name, source in rows.items() if not source.columns and isinstance(
            source.array, ast.Name) and source.array.id in stored}
        if elements:
            plain = self._over_elements(node, elements, plain)
        return ast.copy_location(ast.If(test, [again, *after], [plain]), node)

    def _over_elements(self, node: ast.For, elements: Mapping[str, _Source], plain: ast.stmt) -> ast.If:
        """Return a loop that reads elements of arrays at the beginning of a turn, or else the plain one."""
        numbers = {name: f"~row {self._count} of {place}" for place, name in enumerate(elements)}
        target, source = self._numbered(copy_tree(node.target), node.iter, elements, numbers)
        begin = [self._assignment(name, elements, numbers, node.target) for name in elements]
        loop = ast.copy_location(ast.For(target, source, [*begin, *map(self.visit, copy_tree(node.body))], []), node)
        return ast.copy_location(ast.If(self._test("has_elements", elements, node.iter), [loop], [plain]), node)

    @staticmethod
    def _assignment(name: str, rows: Mapping[str, _Source], numbers: Mapping[str, str], at: ast.AST) -> ast.stmt:
        """Return the statement that gives the name of a row its value."""
        value = _Rows(rows, numbers).visit(ast.copy_location(ast.Name(name, ast.Load()), at))
        return ast.copy_location(ast.Assign([ast.copy_location(ast.Name(name, ast.Store()), at)], value), at)

    @staticmethod
    def _test(operator: str, rows: Mapping[str, _Source], at: ast.AST) -> ast.expr:
        return _call(operator, [ast.copy_location(ast.Tuple(_arguments(each, at), ast.Load()), at)
                                for each in rows.values()], at)

    def _numbered(self, target: ast.expr, source: ast.expr, rows: Mapping[str, _Source],
                  numbers: Mapping[str, str]) -> tuple[ast.expr, ast.expr]:
        """Return a target and what it goes over, with the numbers of the rows in the place of the rows."""
        if isinstance(target, ast.Name) and target.id in rows:
            number = ast.copy_location(ast.Name(numbers[target.id], ast.Store()), target)
            return number, _call("row_numbers", _arguments(rows[target.id], source), source)
        if not _items(target, source) or isinstance(target, ast.Name):
            return target, copy_tree(source)
        assert isinstance(target, ast.Tuple)
        assert isinstance(source, ast.Call)
        first = int(len(source.args) < len(target.elts) or _is_enumerate(source))
        pairs = [self._numbered(*each, rows, numbers) for each in zip(target.elts[first:], source.args, strict=False)]
        made = copy_tree(source)
        made.args[:len(pairs)] = [each for _, each in pairs]
        target.elts[first:] = [each for each, _ in pairs]
        return target, made


def _is_enumerate(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id == "enumerate"


def _arguments(source: _Source, at: ast.AST) -> list[ast.expr]:
    """Return the arguments of `row_numbers` for the rows of a source."""
    bounds = [None] * 3 if source.bounds is None else [source.bounds.lower, source.bounds.upper, source.bounds.step]
    return [copy_tree(source.array), *(ast.copy_location(ast.Constant(each), at) if each is None or isinstance(
        each, bool) else copy_tree(each) for each in (source.columns, *bounds))]


def _call(operator: str, arguments: list[ast.expr], at: ast.AST) -> RowsCall:
    call = ast.copy_location(RowsCall(arguments, ast.Load()), at)
    call.operator = operator
    return call


class _Rows(ast.NodeTransformer):
    """Puts `m[k]`, or `m[:, k]`, in the place of the names of rows and columns."""

    def __init__(self, rows: Mapping[str, _Source], numbers: Mapping[str, str]) -> None:
        self._rows, self._numbers = rows, numbers

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._rows:
            return node
        index: ast.expr = ast.copy_location(ast.Name(self._numbers[node.id], ast.Load()), node)
        if self._rows[node.id].columns:
            everything = ast.copy_location(ast.Slice(), node)
            index = ast.copy_location(ast.Tuple([everything, index], ast.Load()), node)
        return ast.copy_location(ast.Subscript(copy_tree(self._rows[node.id].array), index, node.ctx), node)
