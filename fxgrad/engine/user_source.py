"""User source: the running statement and expression, read from their source for messages."""

from __future__ import annotations

import ast
import dis
import linecache
import threading
from itertools import islice
from types import FrameType
from typing import Any, NamedTuple, TypeVar

from fxgrad.engine import user_lines
from fxgrad.engine.caches import cached


def source_lines(filename: str, module_globals: dict[str, Any] | None = None) -> list[str]:
    """Return the lines of a file of Python, with their ends; none if they are not known.

    Those of `<string>` are not: all code of `exec` has this name, and that of `python -c`, which linecache has.
    """
    return [] if filename == "<string>" else linecache.getlines(filename, module_globals)


def source_line(filename: str, number: int) -> str:
    """Return one line of a file, counted from 1; "" if it is not known."""
    lines = source_lines(filename)
    return lines[number - 1] if 0 < number <= len(lines) else ""


class RunningCode(NamedTuple):
    """The innermost running statement and expression; None where there is no source."""

    statement: ast.stmt | None = None
    expression: ast.expr | None = None


def running_code(frame: FrameType | None = None) -> RunningCode:
    """Return the running code in `frame`, by default the user's innermost frame."""
    frame = frame or user_lines.user_frame()
    if frame is None:
        return RunningCode()
    span = _span(frame)
    lines = source_lines(frame.f_code.co_filename, frame.f_globals)
    tree = parse_source("".join(lines))
    if span is None or tree is None:
        return RunningCode()
    begin, end = span
    statement: ast.stmt | None = None
    expression: ast.expr | None = None
    for node in walk_tree(tree):  # outer nodes come before inner ones
        if isinstance(node, ast.stmt | ast.expr) and (node.lineno, node.col_offset) <= begin and end <= (
                node.end_lineno or node.lineno, node.end_col_offset or node.col_offset):
            if isinstance(node, ast.stmt):
                statement = node
            else:
                expression = node
    return RunningCode(statement, expression)


def node_text(node: ast.AST) -> str:
    """Return the source of a node on one line."""
    return ast.unparse(node)


def is_discarded(frame: FrameType) -> bool:
    """Return whether the caller discards the result of the call that is running in `frame`."""
    following = (code for code in frame.f_code.co_code[frame.f_lasti + 2::2] if code != _CACHE)
    return next(following, None) == _POP_TOP


_CACHE, _POP_TOP = dis.opmap.get("CACHE", 0), dis.opmap["POP_TOP"]


def _span(frame: FrameType) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return the span of the running instruction: first and last place, each as line and column."""
    found = [*islice(frame.f_code.co_positions(), frame.f_lasti // 2, frame.f_lasti // 2 + 1)]
    if not found:
        return None
    line, end_line, column, end_column = found[0]
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return (line, column), (end_line, end_column)


_parsing = threading.Lock()


@cached("parsed source texts", 128)
def parse_source(source: str) -> ast.Module | None:
    """Parse source text, one at a time, since threads in `ast.parse` fail; None for invalid text.

    Callers share the tree: copy what is to be changed.
    """
    try:
        with _parsing:  # Python 3.11 counts the depth in a tree for all threads at once
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


Node = TypeVar("Node", bound=ast.AST)


def walk_tree(node: ast.AST) -> list[ast.AST]:
    """Return the nodes of a syntax tree as `ast.walk` yields them, in half of its time."""
    found = [node]
    for outer in found:
        for field in outer._fields:
            value = getattr(outer, field, None)
            if type(value) is list:
                found += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
    return found


def copy_tree(node: Node) -> Node:
    """Return a copy of a syntax tree, which shares nodes without fields, such as operators."""
    copied = type(node).__new__(type(node))
    fields = vars(copied)
    fields.update(vars(node))
    for name in node._fields:
        value = fields.get(name)
        if type(value) is list:
            fields[name] = [copy_tree(each) if isinstance(each, ast.AST) else each for each in value]
        elif isinstance(value, ast.AST) and value._fields:
            fields[name] = copy_tree(value)
    return copied


# --- replacements of in-place changes --------------------------------------------------------------------------------


_UPDATES: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.Pow: "power"}


class Assignment(NamedTuple):
    """An assignment to items in user code: `done` in full, and `instead`, which makes a new array."""

    done: str
    instead: str


def item_assignment(statement: ast.stmt | None, at: str = "{array}.at", view: bool = False) -> Assignment | None:
    """Return the running assignment `x[i] = ...` or `x[i] += ...`, and its replacement.

    `at` is how updates of the array are written. With `view`, the expression before the last brackets is known to be a
    view of the one before the preceding brackets. Returns None for other statements.
    """
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value, method = statement.targets[0], node_text(statement.value), "set"
    elif isinstance(statement, ast.AugAssign):
        target, value = statement.target, node_text(statement.value)
        method = _UPDATES.get(type(statement.op), "")
    else:
        return None
    if not isinstance(target, ast.Subscript):
        return None
    array: ast.expr = target.value
    index, flat = index_text(target), False
    if view and isinstance(array, ast.Subscript):
        if not isinstance(array.slice, ast.Constant | ast.Name):
            return None
        index, array = f"{node_text(array.slice)}, {index}", array.value
    elif view and isinstance(array, ast.Attribute) and array.attr == "flat":
        flat, array = True, array.value
    elif view:
        return None
    if not isinstance(array, ast.Name | ast.Attribute | ast.Subscript):
        return None
    name = node_text(array)
    if not method:
        assert isinstance(statement, ast.AugAssign)
        method, value = "set", node_text(ast.BinOp(target, statement.op, statement.value))
    place, after = (f"{name}.ravel().at", f".reshape({name}.shape)") if flat else (at.format(array=name), "")
    return Assignment(node_text(statement), f"{name} = {place}[{index}].{method}({value}){after}")


def index_text(item: ast.Subscript) -> str:
    """Return the text in the brackets of `x[...]`."""
    index = node_text(item.slice)
    return index[1:-1] if isinstance(item.slice, ast.Tuple) and index.startswith("(") else index


def augmented_assignment(statement: ast.stmt | None) -> Assignment | None:
    """Return the running assignment `x += ...` and its replacement; None for other statements."""
    if not isinstance(statement, ast.AugAssign):
        return None
    whole = node_text(ast.BinOp(statement.target, statement.op, statement.value))
    return Assignment(node_text(statement), f"{node_text(statement.target)} = {whole}")


class UserCall(NamedTuple):
    """A call in the user's source: its function, the receiver, and its arguments."""

    function: str
    receiver: str
    positional: list[str]
    keywords: dict[str, str]
    text: str

    def arguments(self, *without: str) -> str:
        """Return all arguments but those of some names."""
        named = [f"{name}={value}" for name, value in self.keywords.items() if name not in without]
        return ", ".join([*self.positional, *named])


def running_call() -> UserCall | None:
    """Return the running call in the user's frame; None if no call is running, or if it is ambiguous."""
    expression = running_code().expression
    if not isinstance(expression, ast.Call):
        return None
    function = expression.func
    receiver = node_text(function.value) if isinstance(function, ast.Attribute) else ""
    keywords = {keyword.arg or "**": node_text(keyword.value) for keyword in expression.keywords}
    return UserCall(node_text(function), receiver, [*map(node_text, expression.args)], keywords, node_text(expression))
