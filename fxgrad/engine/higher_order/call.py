"""Calls of programs: `named_call` (one readable line) and `jit_call` (a compiled unit).

They share their rules, with each other and with `higher_order.checkpoint`; they differ in their executor and in the
residuals that differentiation saves.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from fxgrad.engine import config
from fxgrad.engine.analyses.cost import total_cost
from fxgrad.engine.caches import Cache
from fxgrad.engine.core.avals import Aval, keys_to_jax, to_numpy
from fxgrad.engine.core.cache_keys import cache_key
from fxgrad.engine.core.interpreter import interpret
from fxgrad.engine.core.primitive import Cost, Primitive, register
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.core.program_properties import needs_x64
from fxgrad.engine.core.regions import region_roles, whole_region
from fxgrad.engine.core.sources import in_place
from fxgrad.engine.derivation.derive import Derived, derive
from fxgrad.engine.executors import numpy as numpy_executor
from fxgrad.engine.executors import xla as xla_executor
from fxgrad.engine.higher_order.groups import (
    cotangents_of,
    linear_mask,
    nonzero_mask,
    nonzero_tangents,
    select_unmarked,
)
from fxgrad.engine.higher_order.wiring import dual_outputs, dual_program, needs_tangent_tape, select_outputs
from fxgrad.engine.tracing.provenance import note_library
from fxgrad.engine.tracing.tape import aval_of, bind, innermost_for
from fxgrad.engine.tracing.trace import WITH_LITERALS, trace_at
from fxgrad.engine.transforms.batch import batched_program
from fxgrad.engine.transforms.forward import fill_zeros, push_forward
from fxgrad.engine.transforms.linearize import linearize_program
from fxgrad.engine.transforms.transpose import transpose_program
from fxgrad.errors import ProgramError

Jvp = Callable[..., "tuple[list[Any], list[Any]]"]


def check_arguments(name: str, expected: Sequence[Aval], given: Sequence[Aval]) -> None:
    """Raise `ProgramError` unless the types are equal up to weakness."""
    if [(aval.shape, aval.dtype) for aval in given] != [(aval.shape, aval.dtype) for aval in expected]:
        raise ProgramError(f"{name}: the program called takes {list(expected)}, got {list(given)}")


def keep_program(program: Program, linear: Sequence[bool]) -> Program:
    """Return the program unchanged: the default treatment of a transposed program."""
    return program


def call_primitive(name: str, jvp: Jvp, numpy: Callable[..., list[Any]], xla: Callable[..., list[Any]],
                   role: str = "call",
                   of_linear: Callable[[Program, Sequence[bool]], Program] = keep_program) -> Primitive:
    """Return the record of a call primitive; its parameters are the program, a name, and others that never change.

    `of_linear` converts a transposed program, given a mask of its linear inputs.
    """
    def abstract(*avals: Aval, program: Program, name: str, **_: Any) -> list[Aval]:
        check_arguments(name, program.in_avals, avals)
        return program.out_avals

    def transpose(cotangents: list[Any], inputs: list[Any], *, program: Program, **params: Any) -> list[Any]:
        linear = linear_mask(inputs)
        asked = select_outputs(program, nonzero_mask(cotangents))  # unused outputs need not be linear
        arriving = nonzero_tangents(cotangents)
        back = transpose_program(asked, linear)
        marks = [False] * (len(back.program.inputs) - len(arriving)) + [True] * len(arriving)
        back = back._replace(program=of_linear(back.program, marks))
        return cotangents_of(inputs, linear, _call(back, [*select_unmarked(inputs, linear), *arriving], params))

    def batch(size: int, values: list[Any], axes: list[int | None], *, program: Program, **params: Any,
              ) -> tuple[list[Any], list[int | None]]:
        derived = batched_program(program, size, tuple(axes), (None,) * len(program.outputs))
        return _call(derived, values, params), [0 if batched else None for batched in derived.extra]

    def _call(derived: Derived, inputs: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        return bind(primitive, *derived.captured, *inputs, program=derived.program, **params)

    def count(*avals: Aval, program: Program, **_: Any) -> Cost:
        return total_cost(program)

    primitive = register(Primitive(name=name, abstract=abstract, numpy=numpy, xla=xla, jvp=jvp,
                                   transpose=transpose, batch=batch, cost=count,
                                   regions=lambda operands, *, program, **params: (whole_region(role, program),)))
    region_roles.enter((role,), primitive)
    return primitive


def run_with_numpy(*values: Any, program: Program, **_: Any) -> list[Any]:
    """The NumPy rule of a call."""
    return numpy_executor.call(program, values)


def emit_inline(lax: Any, *values: Any, program: Program, **_: Any) -> list[Any]:
    """Emit the equations of a called program in place of the call."""
    return xla_executor.emit(program, values)


def _emit_unit(lax: Any, *values: Any, program: Program, name: str) -> list[Any]:
    """Emit a compiled call as one function for all its callers, as jax does."""
    return xla_executor.emit_unit(program, values, name)


def _inline_jvp(primals: list[Any], tangents: list[Any], *, program: Program, name: str,
                ) -> tuple[list[Any], list[Any]]:
    with in_place(name):
        return push_forward(program, primals, tangents)


def _emit_named(lax: Any, *values: Any, program: Program, name: str) -> list[Any]:
    return xla_executor.emit_named(program, values, name)


named_call_p = call_primitive("named_call", _inline_jvp, run_with_numpy, _emit_named, "inline")
"""A library function shown as one line; differentiation inlines it."""


def _split_jvp(primals: list[Any], tangents: list[Any], *, program: Program, name: str,
               ) -> tuple[list[Any], list[Any]]:
    """Bind two compiled calls, one for known values and one for the tangents, with residuals between them.

    Binds one call if nobody needs them apart: residuals of nested calls would double at each level.
    """
    wrt = nonzero_mask(tangents)
    if not needs_tangent_tape(primals, tangents):
        both = dual_program(program, wrt)
        results = bind(jit_call_p, *both.captured, *primals, *nonzero_tangents(tangents), program=both.program,
                       name=name)
        return dual_outputs(program.out_avals, both.extra, results)
    first = linearize_program(program, wrt)
    given = dict(zip(first.program.inputs, (*first.captured, *primals), strict=True))
    count = len(program.outputs)
    saved = first.program.outputs[count:]  # those that are operands go from here to the second call
    known = bind(jit_call_p, *given.values(), program=select_outputs(
        first.program, [*[True] * count, *(atom not in given for atom in saved)]), name=name)
    outputs, computed = known[:count], iter(known[count:])
    residuals = [given[atom] if atom in given else next(computed) for atom in saved]  # type: ignore[index]
    reached = first.extra.nonzero_outputs
    out_tangents = bind(jit_call_p, *residuals, *nonzero_tangents(tangents), program=first.extra.linear,
                        name=name) if any(reached) else []
    return outputs, fill_zeros(program.out_avals, reached, out_tangents)


def _run_unit(*values: Any, program: Program, name: str) -> list[Any]:
    with xla_executor.x64(needs_x64(program)):
        outputs = xla_executor.run_compiled(program, [*map(keys_to_jax, values)])
        return [*map(to_numpy, outputs)]


jit_call_p = call_primitive("jit_call", _split_jvp, _run_unit, _emit_unit)
"""A function jitted inside another transformation: XLA computes it as a unit, also from NumPy."""


def library_function(function: Callable[..., Any], name: str | None = None) -> Callable[..., Any]:
    """Decorate a library function of one array and static (hashable) arguments: programs show it as one call.

    Its operations may depend on the array's type and the other arguments only, since its program is memoized. `name` is
    displayed; by default that of the function.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> from fxgrad.engine.higher_order.call import library_function
    >>> @library_function
    ... def energy(x):
    ...     return fnp.sum(x * x)
    >>> program = fxgrad.make_program(energy)(fnp.arange(3.0))
    >>> [equation.params["name"] for equation in program.equations]
    ['energy']
    """
    shown = name or function.__name__

    @functools.wraps(function)
    def wrapper(x: Any, *args: Any, **static: Any) -> Any:
        if innermost_for((x,)) is None:
            return function(x, *args, **static)
        aval = aval_of(x)
        key = (function, shown, aval, cache_key(args), *map(cache_key, static.items()), config.default_float())
        program = _library_programs.get(key) or _library_programs.add(
            key, _library_program(function, shown, (aval,), args, static))
        return bind(named_call_p, x, program=program, name=shown)[0]
    return wrapper


def library_function_of_arrays(function: Callable[..., Any], name: str | None = None) -> Callable[..., Any]:
    """Decorate a library function of several arrays, as `library_function`: keyword arguments are static.

    The function returns an array or a tuple of arrays. A function of `*arrays`, some of which may be omitted, has the
    keyword `given`, with the names of those that are passed.

    >>> import fxgrad
    >>> from fxgrad.engine.higher_order.call import library_function_of_arrays
    >>> @library_function_of_arrays
    ... def scaled(x, y, *, by):
    ...     return x * y * by
    >>> program = fxgrad.make_program(lambda x, y: scaled(x, y, by=2.0))(1.0, 2.0)
    >>> [equation.params["name"] for equation in program.equations]
    ['scaled']
    """
    shown = name or function.__name__

    @functools.wraps(function)
    def wrapper(*arrays: Any, **static: Any) -> Any:
        if innermost_for(arrays) is None:
            return function(*arrays, **static)
        avals = tuple(map(aval_of, arrays))
        key = (function, shown, avals, *map(cache_key, static.items()), config.default_float())
        program = _library_programs.get(key) or _library_programs.add(
            key, _library_program(function, shown, avals, (), static))
        outputs = bind(named_call_p, *arrays, program=program, name=shown)
        return tuple(outputs) if len(outputs) > 1 else outputs[0]
    return wrapper


_library_programs = Cache("programs of library functions", 4096)


def _library_program(function: Callable[..., Any], name: str, avals: tuple[Aval, ...], args: tuple[Any, ...],
                     static: dict[str, Any]) -> Program:
    def outputs(*tracers: Any) -> list[Any]:
        result = function(*tracers, *args, **static)
        return list(result) if isinstance(result, tuple) else [result]

    program, captured = trace_at(outputs, list(avals), mode=WITH_LITERALS, name=name)
    if captured:
        raise ValueError(f"the library function {name} closes over an array; make it an argument, or leave out named")
    positional = [each.name for each in inspect.signature(function).parameters.values()
                  if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    note_library(program, name, (*positional, *static.get("given", ()))[:len(avals)])
    return program


def inline_calls(program: Program, calls: Sequence[Primitive]) -> Program:
    """Return the program with the calls of these primitives inlined, at every depth.

    Returns `program` itself if there are none, or if a user rule could add such calls now.
    """
    if not any(equation.primitive in calls for equation in program.equations):
        return program

    def build(*values: Any) -> tuple[list[Any], None]:
        return _eval_inlined(program, values, calls), None

    made = derive(program, ("opened", *calls), build, program.in_avals)
    return program if made.captured else made.program


def _eval_inlined(program: Program, values: Sequence[Any], calls: Sequence[Primitive]) -> list[Any]:
    def step(equation: Equation, inputs: list[Any]) -> list[Any]:
        if equation.primitive in calls:
            with in_place(equation.params["name"]):
                return _eval_inlined(equation.params["program"], inputs, calls)
        return bind(equation.primitive, *inputs, **equation.params)

    return interpret(program, values, step)
