"""Computing programs: with NumPy for NumPy and Python inputs, with XLA where a jax array is among them.

Importing this package installs the executor by which `tracing` computes primitives and programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.core.arrays import Array, made, returned, scalar
from fxgrad.core.installed import install_executor
from fxgrad.core.primitive import Primitive
from fxgrad.core.program import Program
from fxgrad.executors import numpy as numpy_executor
from fxgrad.executors import xla as xla_executor
from fxgrad.executors.xla import is_jax
from fxgrad.tracing import tape
from fxgrad.tracing.apply import apply_equations
from fxgrad.tracing.tracer import Tracer, leaked

_FREQUENT = frozenset({np.ndarray, float, np.float64})


def evaluate(primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Computes one primitive on concrete values; raises `LeakedTracerError` if one of them is a tracer.

    Of NumPy's arrays the results are `Array`s; of numbers alone, NumPy's scalars and arrays.
    """
    of_arrays, of_jax = not args, False
    for arg in args:
        kind = type(arg)
        if kind is np.ndarray or kind is Array:
            of_arrays = True
        elif kind is Tracer:
            raise leaked(arg)
        elif kind not in _FREQUENT:
            of_jax = of_jax or is_jax(arg)
            of_arrays = of_arrays or isinstance(arg, np.ndarray)
    if of_jax:
        return xla_executor.evaluate(primitive, args, params)
    if not of_arrays:
        return [*map(scalar, numpy_executor.evaluate(primitive, args, params))]
    args = [*map(returned, args)]
    return [made(output, args) for output in numpy_executor.evaluate(primitive, args, params)]


def execute(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """Computes a program on concrete values; where an `Array` is among them, so are the results."""
    for value in inputs:
        if type(value) not in _FREQUENT:  # these need no further test
            if is_jax(value):
                return xla_executor.execute(program, inputs)
            if type(value) is Tracer:
                raise leaked(value)
            if type(value) is Array:
                return [*map(made, execute(program, [*map(returned, inputs)]))]
    return numpy_executor.execute(program, inputs)


def compute(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """As `apply_program`, for a program of which all values are wanted; the results may be views of each other.

    On jax arrays the operations run one by one: a branch that is taken once is not worth a compilation.
    """
    if tape.current.get() is None and not any(is_jax(value) for value in inputs):
        with np.errstate(all="ignore"):
            return numpy_executor.call(program, inputs)
    return apply_equations(program, inputs)


class _ByOperands:
    """The executor that is installed: NumPy computes, and XLA where a jax array is among the operands."""

    evaluate, execute, compute = staticmethod(evaluate), staticmethod(execute), staticmethod(compute)


install_executor(_ByOperands())
