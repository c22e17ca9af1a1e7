"""Parse arguments of the command line: types, numbers, and containers of them."""

from __future__ import annotations

import ast
import re
from typing import Any

import numpy as np

from fxgrad import dtypes, tree
from fxgrad.errors import ProgramSyntaxError
from fxgrad.text.text_reader import read_type

_TYPE = re.compile(r"""(?P<string>"[^"]*"|'[^']*')"""
                   r"|\b(?P<type>(?:bool|bf16|[iuf](?:8|16|32|64)|c(?:64|128))\b\s*(?:\[[^\[\]]*\])?)")
_MARK = "\0type "
GRAMMAR = ("Write types such as f32[100,20] or i32, numbers, and lists, tuples and dicts of them: "
           "--args 'f32[100,20], {\"W\": f32[20,3], \"b\": f32[3]}, 0.1'")


class CommandError(Exception):
    """A command that cannot be carried out; the message says what to write instead."""


def read_arguments(text: str) -> tuple[Any, ...]:
    """Return the arguments of a call: types as `ShapeDtypeStruct`s, literals as their values.

    Raises `CommandError` for anything else.

    >>> read_arguments('{"b": f64, "rate": 0.1}, [i32[3]]')
    ({'b': ShapeDtypeStruct(shape=(), dtype=float64), 'rate': 0.1}, [ShapeDtypeStruct(shape=(3,), dtype=int32)])
    """
    marked = _TYPE.sub(lambda match: match[0] if match["string"] else repr(_MARK + _strip_whole(match["type"])), text)
    try:
        read = ast.literal_eval(f"({marked},)") if text.strip() else ()
    except (SyntaxError, ValueError, TypeError) as error:
        raise CommandError(f"--args {text!r} cannot be read. {GRAMMAR}") from error
    return tuple([tree.map(_read_leaf, each) for each in read])


def _strip_whole(text: str) -> str:
    return text if "[" in text else f"{text}[]"


def _read_leaf(leaf: Any) -> Any:
    if not (isinstance(leaf, str) and leaf.startswith(_MARK)):
        return leaf
    try:
        return read_type(leaf.removeprefix(_MARK)).struct
    except ProgramSyntaxError as error:
        raise CommandError(f"--args: {leaf.removeprefix(_MARK)} is no type. {GRAMMAR}") from error


def with_random_values(args: tuple[Any, ...], seed: int) -> tuple[Any, ...]:
    """Return the arguments with random arrays for types: normal floats, small integers, and booleans.

    >>> with_random_values((1.5, *read_arguments("i32[3]")), 0)[1].dtype
    dtype('int32')
    """
    generator = np.random.default_rng(seed)

    def filled(leaf: Any) -> Any:
        if not isinstance(leaf, tree.ShapeDtypeStruct):
            return leaf
        if dtypes.is_inexact(leaf.dtype):
            return generator.normal(size=leaf.shape).astype(leaf.dtype)
        return generator.integers(0, 2, leaf.shape).astype(leaf.dtype)

    return tuple([tree.map(filled, each) for each in args])
