"""The table of calls on values: a library function called again on arrays of the same types runs as one program.

Without a tape a library function's Python runs operation by operation. After a few calls on NumPy's arrays of the same
types it is recorded once, and from then on generated code computes the call: one lookup, and NumPy's kernels. A call on
an array of jax is recorded at once, and compiled by XLA, as jax's own functions are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from itertools import combinations
from math import isnan
from types import FunctionType
from typing import Any

import jax
import numpy as np

from fxgrad.engine import config, executors
from fxgrad.engine.caches import Cache
from fxgrad.engine.core import backends
from fxgrad.engine.core.arrays import ARRAYS, Array, as_numpy, freeze_result
from fxgrad.engine.core.avals import PYTHON_SCALARS
from fxgrad.engine.core.cache_keys import IdentityKey, cache_key
from fxgrad.engine.core.program import Program
from fxgrad.engine.core.program_properties import calls_user_code, has_effects, used_axes
from fxgrad.engine.core.regions import dependent_outputs
from fxgrad.engine.executors.explicit import is_explicit
from fxgrad.engine.executors.numpy import runner_of
from fxgrad.engine.executors.silence import silence_warnings
from fxgrad.engine.executors.xla import compile_program, is_jax, is_jax_tracer, type_key
from fxgrad.engine.higher_order.call import inline_calls, named_call_p
from fxgrad.engine.tracebacks import shorten_traceback
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.call_cache import BY_VALUE, SEQUENCES, has_plain_bounds
from fxgrad.engine.tracing.tape import aval_of, current
from fxgrad.engine.tracing.trace import WITH_LITERALS, record
from fxgrad.engine.tracing.tracer import Tracer

Function = Callable[..., Any]
Call = Callable[[Sequence[Any]], Any]

CALLS_BEFORE = 4
"""Calls of a key before it is recorded, which takes as long as up to 30 calls; at `FXGRAD_CHECK=4`, one call."""
_VARIANTS_AT_ONCE = 8
"""Calls of a function on arrays of jax of the same types that are compiled at once, each with its static arguments."""
_CALLS_AGAIN = 64
"""Calls before a key is recorded again, after the table was full: recording everything in turn would not pay."""
_LARGEST = 1 << 20
"""The maximal number of elements of an argument: for larger ones the kernels take all of the time."""
_MOST_CONSTANT_BYTES = 1 << 16
"""The maximal size of the constants that a recorded call keeps."""

_calls = Cache("calls of library functions on values", 1024)
"""Recorded calls, by function, types and static arguments; None for those that run as they are written."""
_counts = Cache("counts of calls on values", 4096)
"""The number of calls that are not recorded so far: numbers that are others each time leave the recorded ones alone."""

_NUMBERS = PYTHON_SCALARS | {np.dtype(code).type for code in "?bhilBHILefdFD"}
_MISSING = object()
_context = current.get
_counting: ContextVar[bool] = ContextVar("counting a call on values", default=False)
"""Whether a call is being counted: those within it will be part of its recording."""


def replay_on_values(function: Function, of_arrays: bool = False, converts_floats: bool = False) -> Function:
    """Decorate a library function of arrays and static arguments: its calls on arrays run as generated code.

    Its operations must follow from the types of its array arguments, the values of the others and the default dtype.
    A function that needs the values of arrays, or asks whether they are known, runs as without the decorator; so does
    a call with a tracer, a NumPy scalar or an object of another class among its arguments, or within a
    function that is traced. If it is `of_arrays`, one of the positional arguments of a replayed call is an array; this
    spares calls on numbers the lookup. If it `converts_floats`, all it does with a Python float is to convert it to the
    dtype of the operation; then calls with other floats are the same call.

    >>> import numpy as np, fxgrad.numpy as fnp
    >>> double = replay_on_values(lambda x: fnp.add(x, x))
    >>> [double(np.full(2, number)).tolist() for number in (0.5, 1.0, 1.5, 2.0, 2.5)]
    [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [4.0, 4.0], [5.0, 5.0]]
    """
    @functools.wraps(function)
    def wrapper(*args: Any, **options: Any) -> Any:
        try:
            if _context() is not None or backends.executor is not executors.BY_OPERANDS:
                return function(*args, **options)
            if of_arrays and _NUMBERS.issuperset(map(type, args)):
                return function(*args, **options)
            parts: list[Any] = [function, config.default_float()]
            arrays: list[Any] = []
            for arg in args:
                kind = type(arg)
                if kind is np.ndarray or kind is Array:
                    arrays.append(arg if kind is np.ndarray else arg.view(np.ndarray))
                    parts += (kind, arg.dtype, arg.shape, arg.strides)
                elif kind in BY_VALUE:
                    parts += (kind, arg)
                elif converts_floats and kind is float:
                    arrays.append(arg)
                    parts.append(kind)
                elif not _add_to_key(arg, kind, parts, arrays):
                    return function(*args, **options)
            for name, option in options.items():
                parts.append(name)
                if not _add_to_key(option, type(option), parts, arrays):
                    return function(*args, **options)
            key = tuple(parts)
            call = _calls.get(key, _MISSING)
            if call is None:
                return function(*args, **options)
            if call is _MISSING and _counting.get():
                return function(*args, **options)
            if call is _MISSING:
                return _count_call(key, function, args, options, arrays, converts_floats)
            try:
                result = call(arrays)
            except Exception:  # noqa: BLE001  (the function raises its own, with the user's line)
                result = _MISSING
            if result is _MISSING:  # outside of the handler, so that the error has no context
                return function(*args, **options)
            if config.check_level and type(call) is _CallOnJax:
                _check_on_jax(call, function, _record_on_jax(function, args, options, arrays, converts_floats))
            elif config.check_level:
                _check(function, result, function(*args, **options), arrays)
            return result
        except Exception as error:  # noqa: BLE001  (raised again)
            __tracebackhide__ = True
            raise shorten_traceback(error)  # noqa: B904
    return wrapper


def replay_public(names: dict[str, Any], package: str, modules: Sequence[str]) -> None:
    """Replace, among the names of a public module, the functions of `modules` by `replay_on_values` of them.

    `modules` of `package` with functions that have effects, or read files, are not to be named. A function with several
    names stays one; it is pickled by its name in the public module.
    """
    chosen = {f"{package}.{module}" for module in modules}
    replayed: dict[Any, Any] = {}
    for name, function in names.items():
        if type(function) is FunctionType and function.__module__ in chosen and not name.startswith("_"):
            if function not in replayed:
                replayed[function] = replay_on_values(function)
                if names.get(function.__name__) is function:
                    replayed[function].__module__ = names["__name__"]
            names[name] = replayed[function]


def _add_to_key(value: Any, kind: type, parts: list[Any], arrays: list[Any]) -> bool:
    """Append an argument to the key of a call, and its arrays to `arrays`; return whether that is possible.

    Numbers stand in the key with their type, since 1, 1.0 and True are equal.
    """
    if kind is np.ndarray or kind is np.void:
        arrays.append(value)
    elif kind is Array:
        arrays.append(value.view(np.ndarray))
    elif kind in BY_VALUE:
        parts += (kind, value)
        return True
    elif kind is float or kind is complex:
        parts.append(cache_key(value) if kind is complex or not value or isnan(value) else value)
        return True  # equal numbers may differ in the sign of a zero, and a NaN is unequal to itself
    elif kind in SEQUENCES:
        parts += (kind, len(value))
        for each in value:
            if type(each) is np.ndarray:
                arrays.append(each)
                parts += (np.ndarray, each.dtype, each.shape, each.strides)
            elif not _add_to_key(each, type(each), parts, arrays):
                return False
        return True
    elif kind is slice:
        parts += (kind, value.start, value.stop, value.step)
        return has_plain_bounds(value)
    elif isinstance(value, type):  # a dtype's class: metaclasses may define equality
        parts.append(IdentityKey(value))
        return True
    elif isinstance(value, jax.Array) and not is_jax_tracer(value) and not is_explicit(value):
        arrays.append(value)
        parts += type_key(value)
        return True
    else:
        return False
    parts += (kind, value.dtype, value.shape, value.strides)
    return True


# --- recording ----------------------------------------------------------------------------------------------------


def _count_call(key: Any, function: Function, args: tuple[Any, ...], options: dict[str, Any], arrays: list[Any],
                converts_floats: bool) -> Any:
    """Call the function; record the call if it has been made often enough."""
    if any(map(is_jax, arrays)):
        return _call_on_jax(key, function, args, options, arrays, converts_floats)
    token = _counting.set(True)
    try:
        result = function(*args, **options)
    finally:
        _counting.reset(token)
    _counts[key] = count = _counts.get(key, 0) + 1
    if count >= CALLS_BEFORE or config.check_level > 3:
        _calls[key] = _record(function, args, options, arrays, result, converts_floats)
        _counts[key] = CALLS_BEFORE - _CALLS_AGAIN
    return result


def _record(function: Function, args: tuple[Any, ...], options: dict[str, Any], arrays: list[Any], expected: Any,
            converts_floats: bool) -> Call | None:
    """Return the code of a call, if it computes on its arguments the very result that is `expected`, else None."""
    is_single = type(expected) in ARRAYS
    classes = {type(expected)} if is_single else {*map(type, expected)} if isinstance(expected, tuple | list) else set()
    if len(classes) != 1 or not classes <= ARRAYS or any(np.size(array) > _LARGEST for array in arrays):
        return None

    def outputs(*tracers: Any) -> list[Any]:
        rest = iter(tracers)
        traced, traced_options = _replace_inputs(args, options, lambda _: next(rest), converts_floats)
        result = function(*traced, **traced_options)
        return [result] if is_single else [*result]

    try:
        program, tape = record(outputs, [*map(aval_of, arrays)], mode=WITH_LITERALS, name=function.__name__)
        call = None if tape.asked_for_values else _generate(
            program, tape.captured, None if is_single else type(expected), classes.pop())
        if call is None:
            return None
        if not all(array.flags.writeable for array in arrays if type(array) is np.ndarray):
            copies: list[Any] = []  # since results may be as writable as the arguments

            def copied(value: Any) -> Any:
                copies.append(value.copy("K") if isinstance(value, np.ndarray) else value)
                return copies[-1]

            args, options = _replace_inputs(args, options, copied, converts_floats)
            expected, arrays = function(*args, **options), [*map(as_numpy, copies)]
        return call if _is_same(call(arrays), expected, arrays) else None
    except Exception:  # noqa: BLE001  (it needs values, or cannot be recorded: the function itself says so)
        return None


def _replace_inputs(args: tuple[Any, ...], options: dict[str, Any], replacement: Function, converts_floats: bool,
                    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with its arrays replaced, and floats if it converts them, in the key's order."""
    def replace(value: Any) -> Any:
        kind = type(value)
        if kind is np.ndarray or kind is np.void or kind is Array or is_jax(value):
            return replacement(value)
        return kind([replace(each) for each in value]) if kind in SEQUENCES else value

    replaced = tuple([replacement(arg) if converts_floats and type(arg) is float else replace(arg) for arg in args])
    return replaced, {name: replace(option) for name, option in options.items()}


def _generate(program: Program, captured: Sequence[Any], container: Any, of: type) -> Call | None:
    """Return generated code for a recorded call; its results are of a class of arrays, in a `container` if not None.

    Returns None if the program has effects, or keeps too much memory.
    """
    program = inline_calls(program, (named_call_p,))
    if _does_more(program):
        return None
    runner = runner_of(program)
    constants = [value for value in (*captured, *runner.__globals__.values()) if isinstance(value, np.ndarray)]
    if sum(constant.nbytes for constant in constants) > _MOST_CONSTANT_BYTES:
        return None
    compute = silence_warnings(functools.partial(runner, *captured) if captured else runner)
    if len(program.inputs) == len(captured):  # all arguments are static
        known, constants = compute(), []

        def compute(*_: Any) -> list[Any]:
            return [*map(np.array, known)]

    elif container is None and of is Array and program.outputs[0].aval.shape and not runner.__globals__["borrowed"]:
        def call(arrays: Sequence[Any]) -> Any:
            """Return an array that the code has allocated, as `freeze_result` does."""
            result = compute(*arrays)[0]
            result.setflags(write=False)
            return result.view(Array)
        return call

    def copy_constant(value: Any, arrays: Sequence[Any]) -> Any:
        if type(value) is np.ndarray and any(np.may_share_memory(value, constant) for constant in constants):
            value = value.copy()  # later calls need the constant unchanged
        return freeze_result(value, arrays) if of is Array else value

    finish = freeze_result if of is Array and not constants else copy_constant
    if container is None:
        return lambda arrays: finish(compute(*arrays)[0], arrays)
    build = getattr(container, "_make", container)  # of a named tuple
    return lambda arrays: build([finish(value, arrays) for value in compute(*arrays)])


def _does_more(program: Program) -> bool:
    """Return whether a call may do other things than compute on its arguments, or other ones each time."""
    return has_effects(program) or calls_user_code(program) or bool(used_axes(program))


# --- arrays of jax ------------------------------------------------------------------------------------------------


class _CallOnJax:
    """A recorded call on arrays of jax: called, it runs compiled; it returns an array, or a `container` of arrays."""

    __slots__ = ("_run", "captured", "container", "program")

    def __init__(self, program: Program, captured: Sequence[Any], container: Any) -> None:
        self.program, self.captured, self.container = program, captured, container
        self._run = compile_program(program, on_meshes=False)
        """jax compiles it at the first call."""
        if captured:
            self._run = functools.partial(self._run, *captured)

    def __call__(self, arrays: Sequence[Any]) -> Any:
        outputs = self._run(*arrays)
        return outputs[0] if self.container is None else self.container(outputs)

    def compute(self, arrays: Sequence[Any]) -> Any:
        """Return the result, computed operation by operation."""
        outputs = apply_equations(self.program, [*self.captured, *arrays])
        return outputs[0] if self.container is None else self.container(outputs)


def _call_on_jax(key: Any, function: Function, args: tuple[Any, ...], options: dict[str, Any], arrays: list[Any],
                 converts_floats: bool) -> Any:
    """Return the result of a call that is not in the table; enter it, unless it is one of many with other numbers.

    Numbers that are others each time would each cost a compilation: such calls run operation by operation.
    """
    call = _record_on_jax(function, args, options, arrays, converts_floats)
    if call is None:
        _calls[key] = None
        return function(*args, **options)
    types = (function, *map(aval_of, arrays))
    _counts[types] = variants = _counts.get(types, 0) + 1
    _counts[key] = times = _counts.get(key, 0) + 1
    is_compiled = variants <= _VARIANTS_AT_ONCE or times >= CALLS_BEFORE
    if is_compiled:
        _calls[key] = call
    try:
        return call(arrays) if is_compiled else call.compute(arrays)
    except Exception:  # noqa: BLE001  (the function raises its own, with the user's line)
        return function(*args, **options)


def _record_on_jax(function: Function, args: tuple[Any, ...], options: dict[str, Any], arrays: Sequence[Any],
                   converts_floats: bool) -> _CallOnJax | None:
    """Return a call as a program; None if it is none, or if one of its results depends on no array of jax."""
    containers: list[Any] = []

    def outputs(*tracers: Any) -> list[Any]:
        rest = iter(tracers)
        traced, traced_options = _replace_inputs(args, options, lambda _: next(rest), converts_floats)
        result = function(*traced, **traced_options)
        containers.append(None if type(result) is Tracer else getattr(result, "_make", type(result)))
        return [result] if type(result) is Tracer else [*result]

    try:
        program, tape = record(outputs, [*map(aval_of, arrays)], mode=WITH_LITERALS, name=function.__name__)
    except Exception:  # noqa: BLE001  (it needs values, or cannot be recorded: the function itself says so)
        return None
    # That values are unknown is so of arrays of jax (`is_concrete`), and of those alone.
    if tape.needed_values or (tape.asked_for_values and not all(map(is_jax, arrays))):
        return None
    program = inline_calls(program, (named_call_p,))
    of_jax = dependent_outputs(program, [*map(is_jax, (*tape.captured, *arrays))])
    if not program.equations or _does_more(program) or not all(of_jax):
        return None
    return _CallOnJax(program, tape.captured, containers[-1])


# --- checks -------------------------------------------------------------------------------------------------------


def _is_same(result: Any, expected: Any, arrays: Sequence[Any]) -> bool:
    """Return whether two results are indistinguishable: class, type, bits, layout, flags, and whose memory it is."""
    if type(result) is not type(expected):
        return False
    if type(expected) not in ARRAYS:
        return len(result) == len(expected) and all(
            _is_same(one, other, arrays) for one, other in zip(result, expected, strict=True)) and all(
            np.may_share_memory(result[one], result[other]) == np.may_share_memory(expected[one], expected[other])
            for one, other in combinations(range(len(result)), 2))
    return (result.dtype, result.shape, result.strides, result.flags.num, result.tobytes()) == (
        expected.dtype, expected.shape, expected.strides, expected.flags.num, expected.tobytes()) and all(
            np.may_share_memory(result, array) == np.may_share_memory(expected, array)
            for array in arrays if type(array) is np.ndarray)


def _check(function: Function, result: Any, expected: Any, arrays: Sequence[Any]) -> None:
    if not _is_same(result, expected, arrays):
        raise AssertionError(f"{function.__name__}: generated code for a call on values returned {result!r}, where the "
                             f"function returns {expected!r}; this is a bug in fxgrad")


def _check_on_jax(call: _CallOnJax, function: Function, again: _CallOnJax | None) -> None:
    """Compare the operations that ran, and their types, with those that the function records now."""
    ran, recorded = ([(equation.primitive, *(var.aval for var in equation.outputs))
                      for equation in (found.program.equations if found else ())] for found in (call, again))
    if ran != recorded:
        raise AssertionError(f"{function.__name__}: a call on arrays of jax runs the program of another call:\n"
                             f"{call.program}\nwhere the function does\n{again and again.program}\nThis is a bug in "
                             "fxgrad")
