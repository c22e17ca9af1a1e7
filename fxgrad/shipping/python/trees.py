"""Look up functions and classes in their files: their trees, and their outer names."""

from __future__ import annotations

import ast
import dis
import inspect
import types
from collections.abc import Iterator
from typing import Any

from fxgrad.extend import parse_source, source_lines


class SourceRefusal(Exception):  # noqa: N818  (it never reaches a user: it becomes an error that names the operation)
    """Reason why an object has no source of its own, as the rest of a sentence."""


def parse_expression(expression: str) -> ast.expr:
    """Return the tree of an expression."""
    return ast.parse(expression, mode="eval").body


def tree_text(node: Any) -> str:
    """Return the text of a tree."""
    return ast.unparse(ast.fix_missing_locations(node))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def outer_names(code: types.CodeType) -> Iterator[str]:
    """Yield the names of modules and builtins that a function, or one inside of it, refers to."""
    for each in _codes(code):
        yield from (step.argval for step in dis.get_instructions(each) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"))


def inner_names(code: types.CodeType) -> Iterator[str]:
    """Yield the names of variables of a function, or of one inside of it."""
    for each in _codes(code):
        yield from (*each.co_varnames, *each.co_cellvars)


# --- finding sources ----------------------------------------------------------------------------------------


def _file(filename: str) -> ast.Module | None:
    return parse_source("".join(source_lines(filename)))


def _tree(filename: str, use: str) -> ast.Module:
    module = _file(filename)
    if module is None:
        raise SourceRefusal(f"{use}, whose source cannot be read")
    return module


def assigned_value(values: dict[str, Any], name: str) -> ast.expr | None:
    """Return the expression that a module of kernels assigns to a name at its top level; None if there is none."""
    if not str(values.get("__name__")).startswith("fxgrad.engine.ops."):
        return None
    module = _file(str(values["__file__"]))
    found = [node.value for node in module.body if isinstance(node, ast.Assign)
             and [ast.unparse(target) for target in node.targets] == [name]] if module is not None else []
    return found[0] if len(found) == 1 else None


def function_node(function: types.FunctionType) -> Any:
    """Return the tree of a function in its file."""
    code = function.__code__
    use = f"calls {function.__qualname__}"
    place = min(((line, column) for line, _, column, _ in code.co_positions()
                 if line is not None and column is not None and (line, column) > (code.co_firstlineno, 0)),
                default=(code.co_firstlineno, 0))
    fitting = [node for node in _nodes_at(_tree(code.co_filename, use), code.co_firstlineno)
               if isinstance(node, ast.FunctionDef | ast.Lambda) and _first_line(node) == code.co_firstlineno
               and (isinstance(node, ast.Lambda) == (code.co_name == "<lambda>"))
               and (isinstance(node, ast.Lambda) or node.name == code.co_name)
               and _start(node) <= place <= (node.end_lineno, node.end_col_offset)]
    if not fitting:
        raise SourceRefusal(f"{use}, whose source cannot be read")
    return fitting[-1]  # inner ones come after outer ones


def _nodes_at(module: ast.Module, line: int) -> Iterator[Any]:
    """Yield the nodes of a file that take in a line, outer ones first: most files hold many functions."""
    pending: list[Any] = [module]
    for node in pending:
        yield node
        pending.extend(child for child in ast.iter_child_nodes(node)
                       if not isinstance(child, ast.stmt | ast.expr)
                       or _first_line(child) <= line <= (child.end_lineno or line))


def _first_line(node: Any) -> int:
    return min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])


def _start(node: Any) -> tuple[int, int]:
    return (node.body.lineno, node.body.col_offset) if isinstance(node, ast.Lambda) else (_first_line(node), 0)


def class_node(kind: type) -> Any:
    """Return the tree of a class in its file."""
    filename = inspect.getsourcefile(kind)
    use = f"needs the class {kind.__qualname__}"
    found = [node for node in ast.walk(_tree(str(filename), use))
             if isinstance(node, ast.ClassDef) and node.name == kind.__name__]
    if len(found) != 1:
        raise SourceRefusal(f"{use}, whose source cannot be read")
    return found[0]

