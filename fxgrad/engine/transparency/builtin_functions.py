"""Python's own functions, interpreted on what is known of their arguments."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fxgrad.engine.transparency.values import Data, Fresh, Item, Known, Lazy, Path, Refusal, Traced, holds_array

if TYPE_CHECKING:
    from fxgrad.engine.transparency.interpret import Interpreter

_Builtin = Callable[["Interpreter", Sequence[Item], ast.AST], Item]


def _len(interpreter: Interpreter, args: Sequence[Item], node: ast.AST) -> Item:
    item = args[0]
    if isinstance(item, Traced):
        return Known(len(item.value))
    if holds_array(item):
        shape = interpreter.attribute(item, "shape", node)
        return Known(interpreter.known(shape, node)[0])
    if isinstance(item, Path) and type(item.value) in (list, tuple, dict):
        return interpreter.reader.length(item)
    return Known(len(item.value if isinstance(item, Fresh) else interpreter.known(item, node)))


def _sum(interpreter: Interpreter, args: Sequence[Item], node: ast.AST) -> Item:
    total = args[1] if len(args) > 1 else Known(0)
    for item in interpreter.iterate(args[0], node):
        total = interpreter.operate(node, ast.Add, [total, item])
    return total


def _abs(interpreter: Interpreter, args: Sequence[Item], node: ast.AST) -> Item:
    if isinstance(args[0], Traced):
        return interpreter.recorder.call(abs, args, node)
    if isinstance(args[0], Data):
        return interpreter.recorder.compute(abs, "abs", args, {}, node)
    return interpreter.known_result(abs, [interpreter.known(args[0], node)], node)


def _of_known(function: Callable[..., Any]) -> _Builtin:
    def call(interpreter: Interpreter, args: Sequence[Item], node: ast.AST) -> Item:
        if len(args) == 1 and function in (min, max):
            return interpreter.known_result(function, [tuple(
                interpreter.known(each, node) for each in interpreter.iterate(args[0], node))], node)
        return interpreter.known_result(function, [interpreter.known(item, node) for item in args], node)
    return call


def _isinstance(interpreter: Interpreter, args: Sequence[Item], node: ast.AST) -> Item:
    item, kinds = args[0], interpreter.known(args[1], node)
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        if type(kind) is not type or kind.__module__ not in ("builtins", "numpy"):
            raise Refusal("isinstance is called with a class of its own", node)
    if isinstance(item, Traced | Known | Data | Fresh):
        return Known(isinstance(item.value, kinds))
    if isinstance(item, Path) and type(item.value) in (list, tuple, dict):
        return Known(isinstance(item.value, kinds))
    raise Refusal("isinstance is called with an object", node)


def _any(interpreter: Interpreter, args: Sequence[Item], node: ast.AST) -> Item:
    return Known(any(interpreter.truth_of(item, node) for item in interpreter.iterate(args[0], node)))


def _all(interpreter: Interpreter, args: Sequence[Item], node: ast.AST) -> Item:
    return Known(all(interpreter.truth_of(item, node) for item in interpreter.iterate(args[0], node)))


def _map(interpreter: Interpreter, args: Sequence[Item], node: ast.AST) -> Item:
    function, *rows = args[0], *[interpreter.iterate(item, node) for item in args[1:]]
    return Lazy(interpreter.call(function, row, {}, node) for row in zip(*rows))  # noqa: B905


def _zip(interpreter: Interpreter, args: Sequence[Item], node: ast.AST) -> Item:
    return Lazy(Fresh(row) for row in zip(*[interpreter.iterate(item, node) for item in args]))  # noqa: B905


def _enumerate(interpreter: Interpreter, args: Sequence[Item], node: ast.AST) -> Item:
    start = interpreter.known(args[1], node) if len(args) > 1 else 0
    items = enumerate(interpreter.iterate(args[0], node), start)
    return Lazy(Fresh((Known(place), item)) for place, item in items)


def _reversed(interpreter: Interpreter, args: Sequence[Item], node: ast.AST) -> Item:
    if isinstance(args[0], Traced | Data):
        raise Refusal("an array is reversed", node)
    return Lazy(reversed([*interpreter.iterate(args[0], node)]))


def _range(interpreter: Interpreter, args: Sequence[Item], node: ast.AST) -> Item:
    return interpreter.known_result(range, [interpreter.known(item, node) for item in args], node)


BUILTIN_FUNCTIONS: dict[Any, _Builtin] = {
    len: _len, sum: _sum, abs: _abs, min: _of_known(min), max: _of_known(max), round: _of_known(round),
    isinstance: _isinstance, any: _any, all: _all}
LAZY_TYPES: dict[Any, _Builtin] = {range: _range, zip: _zip, enumerate: _enumerate, reversed: _reversed, map: _map}
