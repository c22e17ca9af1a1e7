"""The operation cache: an operation recorded earlier at the same place is found by its operands, in one lookup.

Every operation in user code takes this path, so the functions here are written out for one and for two operands and
make no calls. They construct the table's keys as `interning.PrefixNode` defines them; nothing outside of `tracing`
does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.core.arrays import ARRAYS, Integer
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.cache_keys import cache_key
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.tracing import interning
from fxgrad.engine.tracing.call_cache import MAX_CALLS, record_call, replay_calls
from fxgrad.engine.tracing.interning import PrefixNode
from fxgrad.engine.tracing.tape import Tape, current
from fxgrad.engine.tracing.tracer import Tracer

Unary = Callable[[Any], Any]
Binary = Callable[[Any, Any], Any]

_new = object.__new__
_current: Callable[[], Any] = current.get


def memoize_unary(primitive: Primitive, function: Unary, kinds: str) -> Unary:
    """Return `function`, which applies `primitive` to its operand, with a lookup of its earlier result on a tracer.

    Operands whose dtype is of one of the `kinds` must not be converted: the operation on a tracer is recorded here.
    """
    def recalled(x: Any) -> Any:
        if type(x) is Tracer:
            tape = x.tape
            if _current() is tape:
                variable = x.variable
                node = tape.node.children.get((primitive, variable))
                if node is not None:  # the step of `Tape.record`, without its calls
                    tape.node = node
                    tape.nodes.append(node)
                    output = node.outputs[0]
                elif type(tape) is Tape and variable.aval.dtype.kind in kinds:
                    output = tape.append(primitive, [variable], {}, None)[0]
                else:
                    return function(x)
                tracer = _new(Tracer)
                tracer.tape, tracer.variable = tape, output
                return tracer
        return function(x)
    return recalled


def memoize_binary(primitive: Primitive, function: Binary, kinds: str, others: Binary | None = None,
                   ) -> tuple[Binary, Binary]:
    """Return `function`, which applies `primitive` to its operands, and its reflection, with lookups of results.

    Operands of one dtype and weakness must not be converted if the dtype is of one of the `kinds`. If one operand is a
    tracer and the other an array or a number, its operations must follow from their types, except for the value of a
    number, which is at most converted and captured. The reflected function gets the right operand first, which is a
    tracer. `others` handles operands that are no traced arrays, arrays or numbers; by default `function` does.
    """
    with_others = replay_calls(function, captures=True) if others is None else others
    operation = _Operation(function, primitive, kinds)

    def recalled(x: Any, y: Any) -> Any:
        x_type, y_type = type(x), type(y)
        if x_type is Tracer:
            tape = x.tape
            if y_type is Tracer:
                if _current() is tape and y.tape is tape:
                    first, second = x.variable, y.variable
                    node = tape.node.children.get((primitive, first, second))
                    if node is not None:
                        tape.node = node
                        tape.nodes.append(node)
                        output = node.outputs[0]
                    elif type(tape) is Tape and _need_no_conversion(first.aval, second.aval, kinds):
                        output = tape.append(primitive, [first, second], {}, None)[0]
                    else:
                        return function(x, y)
                    tracer = _new(Tracer)
                    tracer.tape, tracer.variable = tape, output
                    return tracer
                return function(x, y)
            if y_type in _NUMBERS:
                return _apply_with_number(tape, (function, x.variable, y_type), operation, x, y, y)
            if y_type in ARRAYS and _current() is tape:
                return recalled(x, Tracer(tape, tape.atom(y)))
        elif y_type is Tracer and x_type in ARRAYS:
            tape = y.tape
            if _current() is tape:
                return recalled(Tracer(tape, tape.atom(x)), y)
        elif y_type is Tracer and x_type in _NUMBERS:
            return _apply_with_number(y.tape, (function, x_type, y.variable), operation, x, y, x)
        return with_others(x, y)

    def reflected(y: Any, x: Any) -> Any:
        x_type = type(x)
        if x_type in _NUMBERS:  # as above, since a left operand is mostly a number
            return _apply_with_number(y.tape, (function, x_type, y.variable), operation, x, y, x)
        return recalled(x, y)
    return recalled, reflected


class _Operation(NamedTuple):
    """A function of two operands, the primitive that it applies, and the kinds of dtypes that it does not convert."""

    function: Binary
    primitive: Primitive
    kinds: str


def _need_no_conversion(aval: Aval, other: Aval, kinds: str) -> bool:
    """Return whether operands of these types are of one dtype of these `kinds`, and equally weak."""
    return aval.dtype is other.dtype and aval.weak is other.weak and aval.dtype.kind in kinds


# --- numbers ----------------------------------------------------------------------------------------------------


_NUMBERS = frozenset({float, int, complex, Integer, np.float32, np.float64})
_TELLING_NOTHING = frozenset({0, 1})


def in_dtype_of(aval: Aval, number: Any, kinds: str) -> Any:
    """Return `number` in the dtype of an operand of type `aval` if its operations with numbers convert them to that.

    Returns None if a number of this class promotes the operand, or if the operand's dtype, which is to be of one of
    the `kinds`, cannot hold it.
    """
    dtype, kind = aval.dtype, type(number)
    # A bool gives way to a number, not the number to it.
    if aval.weak or dtype.kind not in kinds or dtype.kind == "b" or not (
            kind is int or ((kind is float or kind is np.float64) and (
                dtype.kind in "fc" or dtypes.is_inexact(dtype))) or (
            kind is np.float32 and dtype.kind in "fc" and dtype.itemsize > 4)):
        return None
    try:
        return dtype.type(number)
    except OverflowError:
        return None


def _apply_with_number(tape: Tape, key: Any, operation: _Operation, x: Any, y: Any, number: Any) -> Any:
    """Apply `operation` to a tracer of `tape` and `number`, with a lookup that is independent of the number.

    That is valid if it captures nothing but the number, in the dtype needed there. `key` holds all but the number.
    """
    if _current() is not tape:
        return operation.function(x, y)
    call = tape.node.calls.get(key)
    if call is None or (type(number) is int and not -2**63 <= number < 2**63):
        return _record_with_number(tape, key, operation, x, y, number)
    if type(call) is PrefixNode:
        return tape.step(call)
    nodes, last, before, value, output = call
    if number is not before:  # a number in the source code is the same object each time
        try:
            value = type(value)(number)
        except OverflowError:  # the earlier number fitted the dtype, and this one does not
            return operation.function(x, y)
    tape.captured.append(value)
    tape.nodes.extend(nodes)
    tape.node = last
    tracer = _new(Tracer)
    tracer.tape, tracer.variable = tape, output
    return tracer


def _record_with_number(tape: Tape, key: Any, operation: _Operation, x: Any, y: Any, number: Any) -> Any:
    """Apply as `_apply_with_number`, and record if no lookup succeeds.

    Where another function than the conversion to the tracer's dtype sees 0 or 1, they are cached by value, since a
    captured 0 or 1 may come from elsewhere than the number.
    """
    function, primitive, kinds = operation
    if type(number) is int and not -2**63 <= number < 2**63:
        return function(x, y)
    converted = None if tape.literals or type(tape) is not Tape else in_dtype_of(
        (y if number is x else x).variable.aval, number, kinds)
    if converted is not None:
        return _record_conversion(tape, key, primitive, x, y, number, converted)
    if not tape.interned:
        return function(x, y)
    by_value = tape.literals or number in _TELLING_NOTHING  # literals are part of the program
    if by_value:
        key = (*key, cache_key(number))
        call = tape.cache_get(key)
        if call is not None:
            return tape.step(call) if type(call) is PrefixNode else tape.replay(call)
    return record_call(tape, key, function, (x, y), {}, None if by_value else number)


def _record_conversion(tape: Tape, key: Any, primitive: Primitive, x: Any, y: Any, number: Any, converted: Any,
                       ) -> Tracer:
    """Record an operation on a tracer and `number`, which is `x` or `y`, captured as `converted`."""
    before, start = tape.node, len(tape.nodes)
    captured = tape.atom(converted)
    atoms = [captured, y.variable] if number is x else [x.variable, captured]
    output = tape.append(primitive, atoms, {}, None)[0]
    if tape.interned and len(before.calls) < MAX_CALLS:
        interning.cache_put(before, key, (tape.nodes[start:], tape.node, number, tape.captured[-1], output))
    return Tracer(tape, output)
