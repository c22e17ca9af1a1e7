"""The operation cache: an operation recorded earlier at the same place is found by its operands, in one lookup.

Every operation in user code takes this path, so the functions here are written out for one and for two operands and
make no calls. They construct the table's keys as `interning.PrefixNode` defines them; nothing outside of `tracing`
does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.engine.core.arrays import ARRAYS, Integer
from fxgrad.engine.core.cache_keys import cache_key
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.tracing.call_cache import record_call, replay_calls
from fxgrad.engine.tracing.interning import PrefixNode
from fxgrad.engine.tracing.tape import Tape, current
from fxgrad.engine.tracing.tracer import Tracer

Unary = Callable[[Any], Any]
Binary = Callable[[Any, Any], Any]

_new = object.__new__
_current: Callable[[], Any] = current.get


def memoize_unary(primitive: Primitive, function: Unary) -> Unary:
    """Return `function`, which applies `primitive` to its operand, with a lookup of its earlier result on a tracer."""
    def recalled(x: Any) -> Any:
        if type(x) is Tracer:
            tape = x.tape
            if _current() is tape:
                node = tape.node.children.get((primitive, x.variable))
                if node is not None:  # the step of `Tape.record`, without its calls
                    tape.node = node
                    tape.nodes.append(node)
                    tracer = _new(Tracer)
                    tracer.tape, tracer.variable = tape, node.outputs[0]
                    return tracer
        return function(x)
    return recalled


def memoize_binary(primitive: Primitive, function: Binary, others: Binary | None = None) -> tuple[Binary, Binary]:
    """Return `function`, which applies `primitive` to its operands, and its reflection, with lookups of results.

    If one operand is a tracer and the other an array or a number, its operations must follow from their types, except
    for the value of a number, which is at most converted and captured. The reflected function gets the right operand
    first, which is a tracer. `others` handles operands that are no traced arrays, arrays or numbers; by default
    `function` does.
    """
    with_others = replay_calls(function, captures=True) if others is None else others

    def recalled(x: Any, y: Any) -> Any:
        x_type, y_type = type(x), type(y)
        if x_type is Tracer:
            tape = x.tape
            if y_type is Tracer:
                if _current() is tape and y.tape is tape:
                    node = tape.node.children.get((primitive, x.variable, y.variable))
                    if node is not None:
                        tape.node = node
                        tape.nodes.append(node)
                        tracer = _new(Tracer)
                        tracer.tape, tracer.variable = tape, node.outputs[0]
                        return tracer
                return function(x, y)
            if y_type in _NUMBERS:
                return _apply_with_number(tape, (function, x.variable, y_type), function, x, y, y)
            if y_type in ARRAYS and _current() is tape:
                variable = tape.atom(y)
                node = tape.node.children.get((primitive, x.variable, variable))
                if node is not None:
                    return tape.step(node)
                return function(x, Tracer(tape, variable))
        elif y_type is Tracer and x_type in ARRAYS:
            tape = y.tape
            if _current() is tape:
                variable = tape.atom(x)
                node = tape.node.children.get((primitive, variable, y.variable))
                if node is not None:
                    return tape.step(node)
                return function(Tracer(tape, variable), y)
        elif y_type is Tracer and x_type in _NUMBERS:
            return _apply_with_number(y.tape, (function, x_type, y.variable), function, x, y, x)
        return with_others(x, y)

    def reflected(y: Any, x: Any) -> Any:
        x_type = type(x)
        if x_type in _NUMBERS:  # as above, since a left operand is mostly a number
            return _apply_with_number(y.tape, (function, x_type, y.variable), function, x, y, x)
        return recalled(x, y)
    return recalled, reflected


# --- numbers ----------------------------------------------------------------------------------------------------


_NUMBERS = frozenset({float, int, complex, Integer, np.float32, np.float64})
_TELLING_NOTHING = frozenset({0, 1})


def _apply_with_number(tape: Tape, key: Any, function: Callable[..., Any], x: Any, y: Any, number: Any) -> Any:
    """Apply `function` to a tracer of `tape` and `number`, with a lookup that is independent of the number.

    That is valid if it captures nothing but the number, in the dtype needed there. `key` holds all but the number. 0
    and 1 are cached by value, since a captured 0 or 1 may come from elsewhere than the number.
    """
    if _current() is not tape:
        return function(x, y)
    call = tape.node.calls.get(key)
    if call is None or (type(number) is int and not -2**63 <= number < 2**63):
        return _record_with_number(tape, key, function, (x, y), number)
    if type(call) is PrefixNode:
        return tape.step(call)
    nodes, last, before, value, output = call
    if number is not before:  # a number in the source code is the same object each time
        try:
            value = type(value)(number)
        except OverflowError:  # the earlier number fitted the dtype, and this one does not
            return function(x, y)
    tape.captured.append(value)
    tape.nodes.extend(nodes)
    tape.node = last
    tracer = _new(Tracer)
    tracer.tape, tracer.variable = tape, output
    return tracer


def _record_with_number(tape: Tape, key: Any, function: Callable[..., Any], args: tuple[Any, Any], number: Any,
                        ) -> Any:
    """Apply as `_apply_with_number`, and record if no lookup succeeds."""
    if not tape.interned or (type(number) is int and not -2**63 <= number < 2**63):
        return function(*args)
    by_value = tape.literals or number in _TELLING_NOTHING  # literals are part of the program
    if by_value:
        key = (*key, cache_key(number))
        call = tape.cache_get(key)
        if call is not None:
            return tape.step(call) if type(call) is PrefixNode else tape.replay(call)
    return record_call(tape, key, function, args, {}, None if by_value else number)
