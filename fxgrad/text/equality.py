"""Equality of programs: the same operations in the same order on the same types, whatever the names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fxgrad.extend import Atom, Literal, Program, Variable, require_program
from fxgrad.text.values import declared_fields


def equal(first: Program, second: Program) -> bool:
    """Return whether two programs are equal up to names of variables, signatures and source lines.

    Constants and literals are compared bit by bit, parameters with their types; nested programs as programs.

    >>> from fxgrad.text.text_parser import parse
    >>> one = parse("program f(x: f64[]) { y: f64[] = mul(x, 2.0) return y }")
    >>> equal(one, parse("program (a: f64[]) { b: f64[] = mul(a, 2.0) return b }"))
    True
    >>> equal(one, parse("program (a: f64[]) { b: f64[] = mul(a, 3.0) return b }"))
    False
    """
    compared: set[tuple[int, int]] = set()
    pending = [(require_program("equal", first), require_program("equal", second))]
    while pending:
        pair = pending.pop()
        key = id(pair[0]), id(pair[1])
        if key in compared or pair[0] is pair[1]:
            continue
        compared.add(key)
        if not _same_program(*pair, pending):
            return False
    return True


def same_value(value: Any, other: Any) -> bool:
    """Return whether two parameters are equal; programs among them are compared as programs."""
    pending: Pending = []
    return _same_value(value, other, pending) and all(equal(*pair) for pair in pending)


Pending = list[tuple[Program, Program]]
"""Pairs of nested programs that are still to be compared."""


def _same_program(first: Program, second: Program, pending: Pending) -> bool:
    if first.in_avals != second.in_avals or first.captured != second.captured or \
            len(first.equations) != len(second.equations) or len(first.outputs) != len(second.outputs) or \
            len(first.constants) != len(second.constants) or \
            not all(map(_same_array, first.constants, second.constants)):
        return False
    paired: dict[Variable, Variable] = dict(zip(first.inputs, second.inputs, strict=True))

    def same(one: Atom, other: Atom) -> bool:
        return one == other if isinstance(one, Literal) else paired.get(one) is other

    for one, other in zip(first.equations, second.equations, strict=True):
        if one.primitive is not other.primitive or len(one.inputs) != len(other.inputs) or \
                not all(map(same, one.inputs, other.inputs)) or one.params.keys() != other.params.keys() or \
                [var.aval for var in one.outputs] != [var.aval for var in other.outputs] or \
                not all(_same_value(value, other.params[key], pending) for key, value in one.params.items()):
            return False
        paired.update(zip(one.outputs, other.outputs, strict=True))
    return all(map(same, first.outputs, second.outputs))


def same_parameters(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether parameters have equal names and values, compared by type and bits."""
    if first.keys() != second.keys():
        return False
    pending: Pending = []
    return all(_same_value(value, second[name], pending) for name, value in first.items()) and \
        all(one is other for one, other in pending)


def _same_array(first: Any, second: Any) -> bool:
    if first is second:
        return True
    one, other = np.asarray(first), np.asarray(second)
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def _same_value(first: Any, second: Any, pending: Pending) -> bool:
    if first is second:
        return True
    if type(first) is not type(second):
        return False
    if isinstance(first, Program):
        pending.append((first, second))
        return True
    if isinstance(first, tuple | list):
        return len(first) == len(second) and all(
            _same_value(one, other, pending) for one, other in zip(first, second, strict=True))
    if isinstance(first, float | complex | np.generic | np.ndarray):
        return _same_array(first, second)
    fields, others = declared_fields(first), declared_fields(second)
    if fields is not None and others is not None:
        return all(_same_value(value, others[name], pending) for name, value in fields.items())
    return bool(first == second)
