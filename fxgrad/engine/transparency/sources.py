"""The syntax tree of a function, if compiling its source gives the code that runs."""

from __future__ import annotations

import ast
import linecache
import os
import re
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType
from typing import NamedTuple

from fxgrad.engine.caches import Cache, cached
from fxgrad.engine.user_source import parse_source, walk_tree

FunctionNode = ast.FunctionDef | ast.Lambda

_nodes = Cache("syntax trees of functions", 1024)
"""The syntax tree of a code object, or the reason why there is none; see `code_key`.

A code object is immutable, and the tree is entered only if compiling it gave an equal one, positions included.
"""


def code_key(code: CodeType) -> tuple[str, CodeType]:
    """Return the key of code in tables: code of two files is equal if it is the same text at the same lines."""
    return code.co_filename, code


def syntax_tree(function: FunctionType) -> FunctionNode | str:
    """Return the syntax tree of `function`, or the reason why its source cannot be trusted."""
    code = function.__code__
    found: FunctionNode | str | None = _nodes.get(code_key(code))
    if found is None:
        found = _nodes.add(code_key(code), _find(code, function.__globals__))
    return found


def _find(code: CodeType, module_globals: dict[str, object]) -> FunctionNode | str:
    if os.path.exists(code.co_filename):
        linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, module_globals)
    text = "".join(lines)
    used = {name for each in nested_codes(code) for name in (
        *each.co_names, *each.co_varnames, *each.co_cellvars, *each.co_freevars)}
    imports = "\n".join(each for each, words in _imports_of(text) if not words.isdisjoint(used))
    found = _find_in(code, _statement_around(lines, code.co_firstlineno), imports)
    return found if not isinstance(found, str) else _find_in(code, text)  # where a statement ends was a guess


def _find_in(code: CodeType, text: str, imports: str = "") -> FunctionNode | str:
    """Return the syntax tree of a code object in a text of its file, or why there is none."""
    tree = parse_source(text) if text else None
    if tree is None:
        return f"its source is not found in {code.co_filename}"
    places = [number for number, each in enumerate(tree.body)
              if _first_line(each) <= code.co_firstlineno <= (each.end_lineno or 0)]
    functions = _functions_of(text, imports, code.co_filename, code.co_flags & FUTURE, tuple(places))
    if isinstance(functions, str):
        return functions
    first = code.co_firstlineno, code.co_name
    if not any(_are_equal(each, code) for each in functions.codes.get(first, ())):
        return f"its source in {code.co_filename} is not what runs: the file was changed, or the code was rewritten"
    nodes = functions.trees.get(first, [])
    if len(nodes) > 1:  # lambdas on one line: the positions in the code of each lie within its body
        nodes = [node for node in nodes if isinstance(node, ast.Lambda) and _spans(code, node.body)]
    return nodes[0] if len(nodes) == 1 else "its source is not told from that of another function on the same line"


class _Functions(NamedTuple):
    """The functions in a source text, as code objects and as syntax trees: by first line and name."""

    codes: dict[tuple[int, str], list[CodeType]]
    trees: dict[tuple[int, str], list[FunctionNode]]


def _statement_around(lines: Sequence[str], line: int) -> str:
    """Return the statement of a module around a line, as indentation tells, after an empty line for each before it."""
    start = min(line, len(lines))
    while start > 1 and lines[start - 1][0] in _WITHIN:
        start -= 1
    end, is_decorator = start, bool(lines) and lines[start - 1][0] == "@"
    while end < len(lines) and (is_decorator or lines[end][0] in _WITHIN):
        is_decorator &= lines[end][0] in _WITHIN or lines[end][0] == "@"
        end += 1
    return "\n" * (start - 1) + "".join(lines[start - 1:end])


_WITHIN = frozenset(" \t\n\r\f#)]}")
"""The first characters of lines that begin no statement of a module."""


@cached("imports of source texts", 64)
def _imports_of(text: str) -> list[tuple[str, set[str]]]:
    """Return the imports of a module that no other statements surround, each with the words in it."""
    return [(each, {*_WORD.findall(each)}) for each in _IMPORT.findall(text)]


_IMPORT, _WORD = re.compile(r"^(?:import |from \S+ import (?:\([^)]*\))?).*", re.MULTILINE), re.compile(r"\w+")


@cached("functions of source texts", 1024)
def _functions_of(text: str, imports: str, filename: str, flags: int, places: tuple[int, ...]) -> _Functions | str:
    """Return the functions in some statements of a text, by their numbers, or why they are not known.

    They are compiled after the imports, of the text too, whose names are called in another way, with the flags of
    `__future__` imports.
    """
    tree, before = parse_source(text), parse_source(imports)
    if tree is None or before is None:
        return f"its source is not found in {filename}"
    chosen = [tree.body[place] for place in places]
    imports_in_text = [each for each in _imports_in(tree.body) if each not in chosen]
    statements = ast.Module([*before.body, *imports_in_text, *chosen], [])
    try:
        compiled = compile(statements, filename, "exec", flags=flags, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return f"its source in {filename} does not compile"
    functions = _Functions({}, {})
    for code in nested_codes(compiled):
        functions.codes.setdefault((code.co_firstlineno, code.co_name), []).append(code)
    for node in (each for statement in chosen for each in walk_tree(statement)):
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            name = node.name if isinstance(node, ast.FunctionDef) else "<lambda>"
            functions.trees.setdefault((_first_line(node), name), []).append(node)
    return functions


def _imports_in(body: Sequence[ast.AST]) -> Iterator[ast.stmt]:
    """Yield the import statements of a module's own scope."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If | ast.For | ast.While | ast.With | ast.Try | ast.TryStar | ast.ExceptHandler
                        | ast.Match | ast.match_case):
            yield from _imports_in([*ast.iter_child_nodes(node)])


def _spans(code: CodeType, body: ast.expr) -> bool:
    """Return whether the instructions of a lambda begin where `body` begins, and end where it ends."""
    places = [(line, column, end_line, end_column) for line, end_line, column, end_column in code.co_positions()
              if line and end_line and column is not None and end_column]
    return bool(places) and (min(place[:2] for place in places), max(place[2:] for place in places)) == (
        (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset))


FUTURE = 0x1FF0000
"""The flags of `from __future__` imports among those of a code object."""


def _first_line(node: ast.stmt | ast.Lambda) -> int:
    decorators = getattr(node, "decorator_list", [])
    return decorators[0].lineno if decorators else node.lineno


def nested_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and those of the functions defined in it, at any depth."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested_codes(constant)


def _are_equal(one: CodeType, other: CodeType) -> bool:
    """Return whether two code objects are equal; equality of code covers bytecode, constants, names and positions."""
    return one == other and [*one.co_positions()] == [*other.co_positions()]
