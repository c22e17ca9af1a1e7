"""Which names and results may be None, as the code of a function says, and where a test has shown that they are not."""

from __future__ import annotations

import ast

from fxgrad.engine.control_flow.names import RESULT, FunctionNode, Nodes, walk_scope


def optional_names(function: FunctionNode) -> set[str]:
    """Return the names that a function may give None: by `x = None`, or as the default of a parameter.

    Those that get the value of such a name are among them, and those that it asks about: `x is None`.
    """
    nodes = walk_scope(function.body)
    found = {name.arg for name, default in zip(
        [*function.args.posonlyargs, *function.args.args][::-1], function.args.defaults[::-1], strict=False)
        if _may_be_none(default, set())} | {compared_with_none(node) for node in nodes if isinstance(node, ast.Compare)}
    pairs = [pair for node in nodes if isinstance(node, ast.Assign | ast.AnnAssign) and node.value
             for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
             for pair in assigned_values(target, node.value)]
    while more := {name for name, value in pairs if name not in found and _may_be_none(value, found)}:
        found |= more
    return found


def assigned_values(target: ast.expr, value: ast.expr) -> list[tuple[str, ast.expr]]:
    """Return the names of a target, and the expressions that they get, if these are written out."""
    if isinstance(target, ast.Name):
        return [(target.id, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return [each for pair in zip(target.elts, value.elts, strict=True) for each in assigned_values(*pair)]
    return []


def is_none(value: ast.expr) -> bool:
    """Return whether an expression is None."""
    return isinstance(value, ast.Constant) and value.value is None


def _may_be_none(value: ast.expr, names: set[str]) -> bool:
    if isinstance(value, ast.IfExp | ast.Tuple):
        parts = [value.body, value.orelse] if isinstance(value, ast.IfExp) else value.elts
        return any(_may_be_none(each, names) for each in parts)
    return is_none(value) or (isinstance(value, ast.Name) and value.id in names)


def returns_none(body: Nodes) -> bool:
    """Return whether a function without jumps gives None on a path, as the code says."""
    results = [node for node in walk_scope(body) if isinstance(node, ast.Return) or (
        isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == RESULT)]
    return any(node.value is not None and _may_be_none(node.value, set()) for node in results)


def compared_with_none(node: ast.AST) -> str:
    """Return the name of `x is None`, `x is not None` or the same with `==`; "" for another expression."""
    is_asked = isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(
        node.ops[0], ast.Is | ast.IsNot | ast.Eq | ast.NotEq) and isinstance(node.left, ast.Name) and is_none(
        node.comparators[0])
    return node.left.id if is_asked else ""  # type: ignore[attr-defined]


def names_set_if(test: ast.expr, when: bool) -> set[str]:
    """Return the names that are not None if a test, or the one that a flag has the truth of, gives `when`."""
    decided: ast.expr | None = getattr(test, "truth_of", None)
    if decided is not None:
        return names_set_if(decided, when)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return names_set_if(test.operand, not when)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) is when:
        return set().union(*(names_set_if(each, when) for each in test.values))
    if isinstance(test, ast.Name):
        return {test.id} if when else set()
    name = compared_with_none(test)
    return {name} if name and isinstance(test.ops[0], ast.IsNot | ast.NotEq) is when else set()  # type: ignore[attr-defined]
