"""The call cache: repeated calls of library functions and programs replay recorded steps, without running them again.

The operations that a library function records follow from the types of its traced arguments and the values of the
others. If it is called again after the same operations with the same arguments, its steps are known: one lookup
replaces all its checks and decisions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine.core.arrays import ARRAYS, Integer
from fxgrad.engine.core.avals import Literal
from fxgrad.engine.core.cache_keys import cache_key
from fxgrad.engine.core.program import Program, Variable
from fxgrad.engine.core.program_properties import memoize
from fxgrad.engine.core.regions import dependent_variables
from fxgrad.engine.core.sources import rerecord_source
from fxgrad.engine.core.walk import eval_program
from fxgrad.engine.tracing import interning
from fxgrad.engine.tracing.interning import PrefixNode
from fxgrad.engine.tracing.tape import Tape, aval_of, current
from fxgrad.engine.tracing.tracer import Tracer

MAX_CALLS = 16
"""Calls cached at one place: if an argument is another number each time, caching does not pay."""

BY_VALUE = frozenset({int, bool, str, type(None), type, type(Ellipsis), *map(type, map(np.dtype, "?bhilBHILefdFD"))})
"""Types of arguments that stand in keys as they are, with their type."""
_SIGNED = frozenset({float, complex, np.float32, np.float64, np.int32, np.int64, np.bool_})
"""Types of numbers whose equal values may differ in the sign of a zero."""
SEQUENCES = frozenset({tuple, list})


def replay_calls(function: Callable[..., Any], captures: bool = False,
                   views: Callable[[Any, tuple[Any, ...]], Any] | None = None) -> Callable[..., Any]:
    """Decorate a library function of arrays and static arguments: its calls on traced arrays are replayed.

    Its operations must follow from the types of its traced arguments, the values of the others and the settings of the
    tape. With `captures` it treats all arrays alike, and NumPy arrays among the arguments are captured before it runs.
    `views(result, args)` returns the result of a function that makes views of its argument in NumPy, marked as a view.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> calls = []
    >>> @replay_calls
    ... def double(x):
    ...     calls.append(x)
    ...     return fnp.add(x, x)
    >>> slope = fxgrad.grad(lambda x: double(x) * x)
    >>> float(slope(3.0)), float(slope(5.0)), len(calls)
    (12.0, 20.0, 1)
    """
    plain = function if views is None else lambda *args, **options: views(function(*args, **options), args)

    @functools.wraps(function)
    def wrapper(*args: Any, **options: Any) -> Any:
        tape = current.get()
        if tape is None or not tape.interned or not args:
            return plain(*args, **options)
        key: Any = None
        first, last = args[0], args[-1]
        if len(args) <= 2 and not options:  # faster than `_call_key`, for the same key
            if type(first) is Tracer:
                if first.tape is tape:
                    if type(last) is Tracer:
                        if last.tape is tape:
                            key = (function, first.variable, last.variable, len(args))
                    elif type(last) is slice:
                        start, stop, step = last.start, last.stop, last.step
                        if type(start) in _BOUNDS and type(stop) in _BOUNDS and type(step) in _BOUNDS:
                            key = (function, first.variable, slice, start, stop, step)
                    elif type(last) in BY_VALUE:
                        key = (function, first.variable, type(last), last)
                    elif captures and type(last) in ARRAYS:
                        key = (function, first.variable, tape.atom(last), 2)
            elif captures and type(first) in ARRAYS and type(last) is Tracer and last.tape is tape:
                key = (function, tape.atom(first), last.variable, 2)
        if key is None:
            key = _call_key(tape, function, args, options, captures)
            if key is None:
                return plain(*args, **options)
        call = tape.node.calls.get(key)
        if type(call) is PrefixNode:
            result = tape.step(call)
        else:
            result = tape.replay(call) if call is not None else record_call(tape, key, function, args, options)
        return result if views is None else views(result, args)
    return wrapper


def _call_key(tape: Tape, function: Any, args: tuple[Any, ...], options: dict[str, Any], captures: bool) -> Any:
    """Return a key that determines the steps of the call; None if there is none, or no argument is traced."""
    parts: list[Any] = [function]
    traced = False
    for arg in args:
        kind = type(arg)
        if kind is Tracer:
            if arg.tape is not tape:
                return None
            traced = True
            parts.append(arg.variable)
        elif kind in ARRAYS:
            if not captures or not (traced or _is_traced(tape, args)):
                return None
            parts.append(tape.atom(arg))
        elif kind in BY_VALUE:
            parts += (kind, arg)
        elif kind is slice and has_plain_bounds(arg):
            parts += (kind, arg.start, arg.stop, arg.step)
        else:
            part = _argument_key(tape, arg)
            if part is None:
                return None
            traced = traced or (kind in SEQUENCES and _holds_tracer(arg))
            parts.append(part)
    for name, option in options.items():
        part = _argument_key(tape, option)
        if part is None:
            return None
        parts += (name, part)
    return tuple(parts) if traced else None


def _is_traced(tape: Tape, args: tuple[Any, ...]) -> bool:
    return any(type(arg) is Tracer and arg.tape is tape for arg in args)


def _holds_tracer(sequence: Sequence[Any]) -> bool:
    return any(type(each) is Tracer or (type(each) in SEQUENCES and _holds_tracer(each)) for each in sequence)


_BOUNDS = frozenset({int, type(None)})


def has_plain_bounds(arg: slice) -> bool:
    """Return whether the bounds of a slice are Python's integers, or None."""
    return type(arg.start) in _BOUNDS and type(arg.stop) in _BOUNDS and type(arg.step) in _BOUNDS


def _argument_key(tape: Tape, arg: Any) -> Any:
    """Return an argument as a part of the key; numbers with their type, since 1, 1.0 and True are equal."""
    kind = type(arg)
    if kind in BY_VALUE:
        return kind, arg
    if kind in _SIGNED:
        return cache_key(arg)
    if kind is Tracer:
        return arg.variable if arg.tape is tape else None
    if kind in SEQUENCES:
        parts = [_argument_key(tape, each) for each in arg]
        return None if None in parts else (kind, *parts)
    if kind is slice:
        parts = [_argument_key(tape, each) for each in (arg.start, arg.stop, arg.step)]
        return None if None in parts else (kind, *parts)
    return None


def record_call(tape: Tape, key: Any, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any],
           number: Any = None) -> Any:
    """Call the function and cache its steps, if they determine the call completely.

    With `number`, cache them only if that number is all that was captured.
    """
    # If the key depends on captured arrays, they are captured already.
    if not ARRAYS.isdisjoint(map(type, args)):
        args = tuple([tape.capture(arg) if type(arg) in ARRAYS else arg for arg in args])
    node, start, start_captured, forced = tape.node, len(tape.nodes), len(tape.captured), tape.num_concretizations
    result = function(*args, **options)
    if tape.interned and len(tape.nodes) == start + 1 and len(tape.captured) == start_captured and (
            type(result) is Tracer and tape.nodes[start].outputs[0] is result.variable) and (
            tape.node is tape.nodes[start] and tape.num_concretizations == forced):
        if len(node.calls) < MAX_CALLS:  # the usual case: one operation
            interning.cache_put(node, key, tape.node)
        return result
    captured = tape.captured[start_captured:]
    if tape.interned and tape.num_concretizations == forced and len(node.calls) < MAX_CALLS and (
            tape.node is (tape.nodes[-1] if len(tape.nodes) > start else node)) and (not captured or (
            all(isinstance(value, np.generic | Integer) for value in captured)
            and (number is None or _is_number_cast(captured, number)))):
        outputs = _result_variables(tape, result)
        if outputs is not None:
            nodes = tape.nodes[start:]
            if number is None:
                interning.cache_put(node, key, (nodes, captured, outputs))
            elif captured:
                interning.cache_put(node, key, (nodes, nodes[-1], number, captured[0], outputs))
    if type(result) is Tracer:
        for arg in args:
            if result is arg:  # in NumPy it is a copy, or is marked as a view
                return result.__copy__()
    return result


def _is_number_cast(captured: Sequence[Any], number: Any) -> bool:
    """Return whether a captured value is `number` in another dtype."""
    value, = captured if len(captured) == 1 else (None,)
    if value is None or (type(number) is complex and value.dtype.kind != "c"):
        return False
    if type(value) is Integer:
        return bool(value == number)
    again = type(value)(number)
    return bool(again == value) if number and value.dtype.kind == "f" else bool(again.tobytes() == value.tobytes())


def _result_variables(tape: Tape, result: Any) -> Any:
    """Return the variable of a traced result, or a container of variables; None for other results."""
    if type(result) is Tracer:
        return result.variable if result.tape is tape else None
    if type(result) in SEQUENCES and all(type(each) is Tracer and each.tape is tape for each in result):
        return type(result)(each.variable for each in result)
    return None


# --- programs -----------------------------------------------------------------------------------------------------


def inline_program(tape: Tape, program: Program, inputs: Sequence[Any]) -> list[Any] | None:
    """Record all equations of `program` on `tape`, which is current; return the outputs, or None if impossible.

    It is impossible if `inputs` are of other types, or an equation does not concern the tape.
    """
    given = tuple([type(value) is Tracer and value.tape is tape for value in inputs])
    if not (tape.staging or _concerns(tape, program, given)) or [*map(aval_of, inputs)] != program.in_avals:
        return None
    atoms = [*map(tape.atom, inputs)]
    key = (program, *atoms)
    node = tape.node
    call = node.calls.get(key)
    if call is not None:
        nodes, _, outputs = call
        if nodes:
            tape.nodes += nodes
            tape.node = nodes[-1]
    else:
        start = len(tape.nodes)
        outputs = _record_all(tape, program, atoms)
        if tape.interned:  # unshared recordings are never looked up
            interning.cache_put(node, key, (tape.nodes[start:], [], outputs))
    return _tracers(tape, outputs)


def _tracers(tape: Tape, atoms: Sequence[Any]) -> list[Any]:
    return [atom if type(atom) is Literal else Tracer(tape, atom) for atom in atoms]


def _record_all(tape: Tape, program: Program, atoms: Sequence[Any]) -> list[Any]:
    """Record the equations of `program`, whose types are known already; return variables and literals."""
    return eval_program(program, atoms, lambda equation, operands: tape.append(
        equation.primitive, operands, equation.params, rerecord_source(equation), [var.aval
                                                                                   for var in equation.outputs]))


def _concerns(tape: Tape, program: Program, given: tuple[bool, ...]) -> bool:
    """Return whether all outputs of `program` depend on inputs marked in `given`, and no other input is unused.

    If the tape does not know values, all equations must depend on them: values of the others are not available later.
    """
    knows_values = tape.values is not None

    def find() -> bool:
        reached = dependent_variables(program, given)
        used = {atom for equation in program.equations for atom in equation.inputs}
        all_reached = not any(reached.isdisjoint(equation.inputs) for equation in program.equations)
        return (all_reached or knows_values) and reached.issuperset(
            atom for atom in program.outputs if type(atom) is Variable) and all(
            marked or var in used for var, marked in zip(program.inputs, given, strict=True))

    return memoize(program, ("concerns", knows_values, given), find)
