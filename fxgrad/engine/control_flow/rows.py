"""Loops over rows and columns of arrays that change them: `for row in m: row /= np.sum(row)`, `for c in m.T: c -= 1`.

The rows are views of the array in NumPy. If `m` is an array and a tape records, the name `row` has the number of the
row in such a loop (`Row`), and is read and changed as `m[k]`; a column is `m[:, k]`. After the loop `row` is `m[k]`
with the last `k`. In `for row in m[a:b]` the bounds must be known.

Elements of an array that its loop changes, `for i, v in enumerate(x): x[i] = 2 * v`, are read at the beginning of each
turn.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fxgrad.engine.control_flow.changes import changed_by_call, rebound_names, stored_names
from fxgrad.engine.control_flow.names import FUNCTIONS, free_names, nested_functions, walk_scope
from fxgrad.engine.control_flow.nodes import placed
from fxgrad.engine.user_source import walk_tree


class NumberedRows(ast.Tuple):
    """What a loop goes over for a name that may have the numbers of rows; the only element is the user's expression.

    If `reads_elements`, elements of an array with one axis are read at the beginning of each turn.
    """

    reads_elements: bool

    @property
    def array(self) -> ast.expr:
        """The array, without the bounds of a slice."""
        node = self.elts[0]
        return node.value if isinstance(node, ast.Subscript) and self.bounds else node

    @property
    def bounds(self) -> list[ast.expr | None]:
        """The bounds and the step of a slice, if there is one."""
        return _bounds(self.elts[0])


class LastRows(ast.Tuple):
    """The names of rows after a loop, which get the last row in the place of its number."""


def with_numbered_rows(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the body of a function in which the names of rows that loops change may have numbers of rows.

    `arrays` of such a name, in the loop, are the names whose arrays have the row.
    """
    loops = [node for node in walk_scope(body) if isinstance(node, ast.For)]
    if not any(_changed_rows(node, {}) for node in loops):
        return body
    others = set().union(*map(free_names, nested_functions(body)), *(
        node.names for node in walk_scope(body) if isinstance(node, ast.Global)))  # read where they have no numbers
    # A name that is read outside of the loops that bind it has the last row there.
    inside = Counter[str]()
    for node in _outermost(body):
        bound = {each.id for each in walk_tree(node.target) if isinstance(each, ast.Name)}
        inside.update({name: count for name, count in _uses([node]).items() if name in bound})
    uses = _uses(body)
    writer = _Loops(others, {name for name in uses if uses[name] != inside[name]})
    return [each for statement in body for each in writer.statements(statement)]


def _outermost(body: Sequence[ast.AST]) -> list[ast.For]:
    """Return the loops of a body for each name that they bind: those in a loop that binds the same are left out."""
    found: list[ast.For] = []
    waiting: list[tuple[ast.AST, frozenset[str]]] = [(node, frozenset()) for node in body]
    while waiting:
        node, around = waiting.pop()
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            continue
        if isinstance(node, ast.For):
            bound = frozenset(each.id for each in walk_tree(node.target) if isinstance(each, ast.Name))
            if not bound & around:
                found.append(node)
            around |= bound
        waiting += [(each, around) for each in ast.iter_child_nodes(node)]
    return found


def _uses(body: Sequence[ast.AST]) -> Counter[str]:
    return Counter(each.id for node in body for each in walk_tree(node) if isinstance(each, ast.Name))


def _bounds(node: ast.expr) -> list[ast.expr | None]:
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        return [node.slice.lower, node.slice.upper, node.slice.step]
    return []


def _array_of(node: ast.expr) -> ast.expr | None:
    """Return the array whose rows a loop over an expression goes over: all, or between the bounds of a slice.

    Of `m.T` it is `m`. None for expressions that need not give the same array when they are read again.
    """
    if any(each is not None and not _is_simple(each) for each in _bounds(node)):
        return None
    array: ast.expr = node.value if _bounds(node) else node  # type: ignore[attr-defined]
    array = array.value if is_transposed(array) else array  # type: ignore[attr-defined]
    inner = array
    while isinstance(inner, ast.Attribute) or (isinstance(inner, ast.Subscript) and isinstance(
            inner.slice, ast.Constant)):
        inner = inner.value
    return array if isinstance(inner, ast.Name) else None


def _is_simple(bound: ast.expr) -> bool:
    """Return whether a bound is computed from names and numbers, the same each time."""
    return all(isinstance(
        each, ast.Constant | ast.Name | ast.Attribute | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop | ast.Load)
        for each in walk_tree(bound))


def is_transposed(node: ast.expr) -> bool:
    """Return whether an expression is `x.T`."""
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


def _changed_rows(node: ast.For, arrays_of_rows: Mapping[str, Collection[str]]) -> dict[str, ast.expr]:
    """Return the names of the rows of a loop that it may change, and those of other rows of the same arrays.

    With each is the array. `arrays_of_rows` are the names whose arrays have the rows of the loops around.
    """
    sources = {name: array for name, each in _items(node.target, node.iter) if (array := _array_of(each)) is not None}
    if not sources:
        return {}
    changed = stored_names(node.body) | {
        each.id for statement in walk_scope(node.body) if isinstance(statement, ast.Expr) and isinstance(
            call := statement.value, ast.Call) and changed_by_call(call) is None
        for each in [*call.args, *(keyword.value for keyword in call.keywords)] if isinstance(each, ast.Name)}
    changed.update(array for name in [*changed] for array in arrays_of_rows.get(name, ()))
    inner = {name: array.id for loop in walk_scope(node.body) if isinstance(loop, ast.For)
             for name, each in _items(loop.target, loop.iter) if isinstance(array := _array_of(each), ast.Name)}
    waiting = [*changed]
    while waiting:  # the rows of a row
        around = inner.get(waiting.pop())
        if around is not None and around not in changed:
            changed.add(around)
            waiting.append(around)
    arrays = {ast.dump(array) for name, array in sources.items() if name in changed or (
        isinstance(array, ast.Name) and array.id in changed)}
    rows = {name: array for name, array in sources.items() if ast.dump(array) in arrays}
    roots = {name for array in rows.values() for name in _names(array)}
    if not rows or rebound_names([*node.body, *node.orelse]) & (roots | rows.keys()) or (
            _names(node.target) & roots) or not rows.keys().isdisjoint(_uses(node.orelse)):
        return {}
    return rows


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in walk_tree(node) if isinstance(each, ast.Name)}


class _Loops(ast.NodeTransformer):
    """Marks the rows of loops; names of rows that are `used_outside` get the last one after the loop.

    `others` are names that stand for no rows.
    """

    def __init__(self, others: Collection[str], used_outside: Collection[str]) -> None:
        self._others, self._used_outside = others, used_outside
        self._arrays: dict[str, tuple[str, ...]] = {}  # the names whose arrays have the rows of the loops around

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, FUNCTIONS):  # the defaults are read here
            arguments = node.args
            arguments.defaults = [self.visit(each) for each in arguments.defaults]
            arguments.kw_defaults = [each and self.visit(each) for each in arguments.kw_defaults]
        return node if isinstance(node, (*FUNCTIONS, ast.ClassDef)) else super().visit(node)

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id in self._arrays:
            node.arrays = self._arrays[node.id]  # type: ignore[attr-defined]
        return node

    def visit_For(self, node: ast.For) -> Any:
        rows = {name: array for name, array in _changed_rows(node, self._arrays).items() if name not in self._others}
        if not rows:
            return self.generic_visit(node)
        node.iter = self._numbered(node.target, self.visit(node.iter), rows, stored_names(node.body))
        around = self._arrays
        self._arrays = around | {name: tuple(dict.fromkeys(
            each for root in sorted(_names(array)) for each in (root, *around.get(root, ()))))
            for name, array in rows.items()}
        node.body = [each for statement in node.body for each in self.statements(statement)]
        last: list[ast.expr] = [self.visit_Name(placed(ast.Name(name, context), node.target))
                                for name in rows if name in self._used_outside
                                for context in (ast.Load(), ast.Store())]
        self._arrays = around
        node.orelse = [each for statement in node.orelse for each in self.statements(statement)]
        after = placed(LastRows(last, ast.Load()), node.target)
        return [node, placed(ast.Expr(after), node.target)] if last else node

    def statements(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return a statement, and what stands after it."""
        found = self.visit(statement)
        return found if isinstance(found, list) else [found]

    def _numbered(self, target: ast.expr, source: ast.expr, rows: Collection[str], stored: Collection[str],
                  ) -> ast.expr:
        """Return what a target goes over, with `NumberedRows` for the names of rows."""
        if isinstance(target, ast.Name) and target.id in rows:
            found = placed(NumberedRows([source], ast.Load()), source)
            found.reads_elements = isinstance(found.array, ast.Name) and found.array.id in stored
            return found
        if _items(target, source) and isinstance(target, ast.Tuple) and isinstance(source, ast.Call):
            assert isinstance(source.func, ast.Name)
            targets = target.elts[source.func.id == "enumerate":]
            source.args[:len(targets)] = [self._numbered(*each, rows, stored) for each in zip(
                targets, source.args, strict=False)]
        return source
