"""Which names' objects a function may change, in place or by the calls that get them, and which it gives others.

The names are those of its syntax tree: of its own variables, and of the functions around it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fxgrad.engine.control_flow.mutators import FOLLOWED_FUNCTIONS, FOLLOWED_METHODS
from fxgrad.engine.control_flow.names import (
    FUNCTIONS,
    SCOPES,
    FunctionNode,
    Nodes,
    arrays_of,
    bound_names,
    dotted,
    free_names,
    is_generated,
    nested_functions,
    parameter_names,
    read_names,
    walk_scope,
)
from fxgrad.engine.control_flow.nodes import placed
from fxgrad.engine.user_source import walk_tree


def stored_names(nodes: Nodes) -> set[str]:
    """Return the names whose objects the nodes may change in place: `x[i] = v`, `x[i][j] += v`, `x += v`, `x.sort()`.

    Lists and others are among them, and the arrays whose rows names have (`rows.py`).
    """
    names: set[str] = set()
    for node in walk_scope(nodes):
        target: ast.AST | None = None
        if isinstance(node, ast.AugAssign):
            target = node.target
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            target = node
        elif isinstance(node, ast.Call):
            target = changed_by_call(node)
        while isinstance(target, ast.Subscript):
            target = target.value
        if isinstance(target, ast.Name):
            names.update((target.id, *arrays_of(target)))
    return names


def changed_by_call(node: ast.Call) -> ast.expr | None:
    """Return the array that a call may change: `x` of `x.sort()`, `np.add.at(x, ...)`, `np.copyto(x, ...)`, `out=x`.

    It is a name, an item or an attribute.
    """
    function = node.func
    out = next((each.value for each in node.keywords if each.arg == "out"), None)
    target: ast.expr | None = out
    if out is None and isinstance(function, ast.Attribute):
        if function.attr in FOLLOWED_METHODS and dotted(function)[:1] not in (["np"], ["numpy"]):
            target = function.value
        elif function.attr in FOLLOWED_FUNCTIONS and node.args:
            target = node.args[0]
    return target if isinstance(target, ast.Name | ast.Attribute | ast.Subscript) else None


def name_outputs(function: ast.AST) -> None:
    """Give the arrays that functions of NumPy's store results in their keyword: `np.add(x, y, z)` has `out=z`."""
    for node in walk_tree(function):
        if not isinstance(node, ast.Call) or len(module := dotted(node.func)) != 2 or module[0] not in ("np", "numpy"):
            continue
        if len(node.args) == _OPERANDS.get(module[1], -2) + 1 and not any(
                isinstance(each, ast.Starred) for each in node.args) and "out" not in [
                    each.arg for each in node.keywords]:
            output = node.args.pop()
            node.keywords.append(placed(ast.keyword("out", output), output))


_OPERANDS = {"clip": 3, "dot": 2, **{name: function.nin for name, function in vars(np).items()
                                    if isinstance(function, np.ufunc) and function.nout == 1}}
"""The number of operands of functions of NumPy's that take one more argument by position, `out`."""


def passed_names(nodes: Nodes) -> list[tuple[str, ast.expr, int | str]]:
    """Return the names that are arguments of calls, or whose items are: with the function, and position or keyword."""
    found: list[tuple[str, ast.expr, int | str]] = []
    for node in walk_scope(nodes):
        if isinstance(node, ast.Call) and dotted(node.func):
            starred = [number for number, each in enumerate(node.args) if isinstance(each, ast.Starred)]
            places: list[tuple[int | str, ast.expr]] = [*enumerate(node.args[:starred[0]] if starred else node.args)]
            places += [(each.arg, each.value) for each in node.keywords if each.arg is not None]
            for place, value in places:
                while isinstance(value, ast.Subscript):
                    value = value.value  # noqa: PLW2901
                if isinstance(value, ast.Name):
                    found += [(name, node.func, place) for name in (value.id, *arrays_of(value))]
    return found


def rebound_names(nodes: Nodes) -> set[str]:
    """Return the names that the nodes give another object; an operator such as `+=` changes an array in place."""
    scope = walk_scope(nodes)
    augmented = {id(node.target) for node in scope if isinstance(node, ast.AugAssign)}
    named = [node for node in scope if isinstance(node, ast.Name)]
    names = {node.id for node in named if not isinstance(node.ctx, ast.Load) and id(node) not in augmented}
    others = bound_names(scope) - {node.id for node in named}
    for node in scope:
        if not isinstance(node, SCOPES):
            continue
        declared = {name for each in walk_tree(node) if isinstance(each, ast.Nonlocal) for name in each.names}
        names |= declared
    return names | others


class Changes(NamedTuple):
    """The names of scopes outside whose arrays a function changes, or passes to others, and those that it reads.

    `rebound` are those that it declares `nonlocal`.
    """

    stored: set[str]
    passed: list[tuple[str, ast.expr, int | str]]
    reads: set[str]
    rebound: set[str]


class NestedFunctions:
    """What functions change that are nested in a function, or defined around it: variables of `visible` names.

    `changes` are those of each, by its name. If the function `has_rows`, they are read through functions of their loop.
    """

    def __init__(self, changes: Mapping[str, Changes], visible: Collection[str] = (), *, has_rows: bool = False,
                 ) -> None:
        self.changes, self._visible, self._has_rows = changes, visible, has_rows

    def inside(self, own: Collection[str], around: Collection[str], nested: Iterable[FunctionNode], *,
               has_rows: bool) -> NestedFunctions:
        """Return those in a function with names of its `own` and others `around`, in which more are `nested`."""
        changes = {name: each for name, each in self.changes.items() if name not in own}
        changes |= {each.name: changes_by(each) for each in nested
                    if isinstance(each, ast.FunctionDef) and each.name in own}
        return NestedFunctions(changes, {*own, *around}, has_rows=has_rows)

    def _read_in(self, body: Nodes) -> set[str]:
        """Return the names of those that a block reads, and of those that these read."""
        if not self.changes:
            return set()
        found, waiting = set(), [*read_names(body) & self.changes.keys()]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self.changes[name].reads & self.changes.keys()
        return found

    def changes_read_in(self, body: Nodes) -> list[Changes]:
        """Return the changes of those that a block reads, by their names."""
        return [self.changes[name] for name in sorted(self._read_in(body))]

    def changed_by(self, body: Nodes) -> set[str]:
        """Return the names whose arrays they change that a block reads."""
        return set[str]().union(*(each.stored for each in self.changes_read_in(body))).intersection(self._visible)

    def rebound_by(self, body: Nodes) -> set[str]:
        """Return the names that they rebind that a block reads."""
        return set[str]().union(*(each.rebound for each in self.changes_read_in(body))).intersection(self._visible)

    def places_in(self, body: Nodes) -> set[str]:
        """Return the names that they rebind that a block reads, or whose arrays they change or pass.

        So are those whose arrays have rows that the block reads.
        """
        passed = {name for each in self.changes_read_in(body) for name, *_ in each.passed}
        if self._has_rows:
            passed.update(name for node in walk_scope(body) if isinstance(node, ast.Name) for name in arrays_of(node))
        return self.changed_by(body) | self.rebound_by(body) | passed.intersection(self._visible)


def with_methods(nodes: Iterable[ast.AST]) -> list[FunctionNode]:
    """Return functions, and the methods of classes."""
    found: list[FunctionNode] = []
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            found += with_methods(node.body)
        elif isinstance(node, ast.FunctionDef | ast.Lambda):
            found.append(node)
    return found


def changes_by(node: FunctionNode) -> Changes:
    """Return what a function changes of the scopes around it, with the functions nested in it."""
    own = _own_names(node)
    inner = changes_in(node.body)
    nested = [changes_by(each) for each in with_methods(nested_functions(node.body))]
    stored = inner.stored.union(*(each.stored for each in nested)) - own
    passed = [each for one in (inner, *nested) for each in one.passed if each[0] not in own and (
        dotted(each[1])[0] not in own)]
    rebound = _nonlocal_names(node).union(*(each.rebound for each in nested)) - own
    return Changes(stored, passed, free_names(node), rebound)


def outer_places(node: FunctionNode) -> set[str]:
    """Return the names of scopes outside that a function may rebind, or whose arrays it or its callees may change."""
    names = stored_names(node.body) | {name for name, *_ in passed_names(node.body)} | _nonlocal_names(node)
    inner = [outer_places(each) for each in with_methods(nested_functions(node.body))]
    return names.union(*inner) - _own_names(node)


def _own_names(node: FunctionNode) -> set[str]:
    """Return the names of a function's own variables: what it binds, but for those of scopes outside."""
    return bound_names(node.body) - _nonlocal_names(node) | {*parameter_names(node.args)}


def _nonlocal_names(node: FunctionNode) -> set[str]:
    return {name for each in walk_scope(node.body) if isinstance(each, ast.Nonlocal) for name in each.names}


def changes_in(body: Nodes) -> Changes:
    """Return what statements change, without the functions nested in them."""
    scope = walk_scope(body)
    return Changes(stored_names(scope), passed_names(scope), set(), set())


def changed_names(changes: Changes) -> set[str]:
    """Return the names whose arrays may change."""
    return changes.stored | {name for name, *_ in changes.passed}


def changes_until_rebound(names: set[str], body: Sequence[ast.stmt], nested: Iterable[ast.AST]) -> dict[str, Changes]:
    """Return the parameters that change until a statement `a = ...` of the function gives them another object.

    With them are the changes until then; `given_back` of such a statement are their names.
    """
    found: dict[str, Changes] = {}
    for name in sorted(names.difference(*map(free_names, nested)) if names else ()):
        for number, statement in enumerate(body):
            if name not in rebound_names([statement]):
                continue
            if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None and (
                    name not in rebound_names(statement.value)):
                changes = changes_in([*body[:number], statement.value])
                if name in changed_names(changes):
                    found[name] = changes
                    statement.given_back = [*getattr(statement, "given_back", ()), name]  # type: ignore[union-attr]
            break
    return found


def second_names(body: Nodes) -> set[str]:
    """Return the names that can be unset where they are dead, and whose objects may have another name.

    Of `best = current` both, of `row = table[i]` and `for row in table` the first, which may be a view, and of
    `grid = Grid(cells)` and `state = {"cells": cells}` both.
    """
    found: set[str] = set()
    kept: set[str] = set()
    for node in walk_scope(body):
        if isinstance(node, ast.For):
            found |= bound_names(node.target)
        elif isinstance(node, ast.Assign):
            if not isinstance(node.value, ast.BinOp | ast.Constant | ast.Compare):
                found |= bound_names(node.targets)
            values = [node.value]
            while values:
                value = values.pop()
                if isinstance(value, ast.Name):
                    found.add(value.id)
                if isinstance(value, ast.Tuple | ast.List):
                    values += value.elts
                elif isinstance(value, ast.Dict):
                    values += value.values
                elif isinstance(value, ast.IfExp):
                    values += [value.body, value.orelse]
                elif isinstance(value, ast.Call):
                    values += [*value.args, *(each.value for each in value.keywords)]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del):
            kept.add(node.id)
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            kept |= free_names(node)
    return {name for name in found - kept if not is_generated(name)}


def may_change(statement: ast.AST) -> bool:
    """Return whether a statement assigns items or attributes, or calls a method."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call) and isinstance(statement.value.func, ast.Attribute)
    return isinstance(statement, ast.AugAssign) or (isinstance(statement, ast.Assign) and any(
        isinstance(target, ast.Subscript | ast.Attribute) for target in statement.targets))
