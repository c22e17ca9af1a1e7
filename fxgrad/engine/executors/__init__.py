"""Execution of programs: by NumPy for NumPy and Python inputs, by XLA if a jax array is among them.

Importing this package registers the executor of `tracing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine.core.arrays import (
    OWN,
    WEAK_CLASSES,
    Array,
    WeakArray,
    as_numpy,
    as_scalar,
    as_strong_scalar,
    freeze_result,
    make_weak,
)
from fxgrad.engine.core.avals import PYTHON_SCALARS, Literal
from fxgrad.engine.core.backends import register_executor
from fxgrad.engine.core.primitive import Primitive, infer_types
from fxgrad.engine.core.program import Program
from fxgrad.engine.executors import numpy as numpy_executor
from fxgrad.engine.executors import xla as xla_executor
from fxgrad.engine.executors.numpy import as_arrays
from fxgrad.engine.executors.xla import is_jax
from fxgrad.engine.ops.below_byte import SCALARS, WIDER
from fxgrad.engine.tracing import tape
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.tracer import Tracer, aval_of, leak_error

FREQUENT = frozenset({np.ndarray, float, np.float64})
"""Classes of inputs on which NumPy computes, and gives NumPy's results."""
_SCALARS = frozenset({np.float64, np.complex128, np.bool_})
"""Classes of results that need no conversion: NumPy's own scalars of these dtypes are weak already, or never are."""
_WEAK = (PYTHON_SCALARS - {bool}) | WEAK_CLASSES


def evaluate(primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Compute one primitive on concrete values; raise `LeakedTracerError` if one of them is a tracer.

    Results on NumPy arrays are `Array`s; results on numbers alone are NumPy's scalars and arrays, the weak ones
    `Integer`s and `WeakArray`s, and the strong ones of float64 and complex128 `Array`s: scalars of these are weak.
    """
    is_made_weak = "weak" in params and params["weak"]
    of_arrays, of_jax, has_weak = not args, False, is_made_weak
    below_byte = False  # whether an operand has a dtype that NumPy cannot compute with
    has_strong = False  # whether an operand is a strong literal, which NumPy's scalars do not show
    is_settled = False  # whether an operand is a strong float array: then a single output is strong, too
    for arg in args:
        kind = type(arg)
        if kind is np.ndarray or kind is Array:
            of_arrays = True
            of_kind = arg.dtype.kind
            if of_kind in "fc":
                is_settled = True
            elif of_kind == "V":
                below_byte = below_byte or arg.dtype in WIDER
        elif kind is Tracer:
            raise leak_error(arg)
        elif kind in _WEAK:
            has_weak = True
            of_arrays = of_arrays or kind is WeakArray
        elif kind is Literal:
            if arg.aval.weak:
                has_weak = True
            else:
                has_strong = True
        elif kind not in FREQUENT:
            of_jax = of_jax or is_jax(arg)
            below_byte = below_byte or kind in SCALARS
            of_arrays = of_arrays or isinstance(arg, np.ndarray)
    if of_jax:
        return xla_executor.evaluate(primitive, args, params)
    values = [*map(as_numpy, args)] if of_arrays else args
    outputs = numpy_executor.evaluate(primitive, values, params, below_byte)
    if has_weak and (not is_settled or is_made_weak or len(outputs) > 1) and (
            of_arrays or has_strong or any(type(output) not in _SCALARS for output in outputs)):
        avals = infer_types(primitive, [*map(aval_of, args)], params)
        return [make_weak(freeze_result(output, values)) if aval.weak else freeze_result(output, values) if of_arrays
                else as_strong_scalar(output)
                for output, aval in zip(outputs, avals, strict=True)]
    if of_arrays:
        return [freeze_result(output, values) for output in outputs]
    is_made_strong = "weak" in params and not is_made_weak
    return [*map(as_scalar if has_weak and not is_made_strong else as_strong_scalar, outputs)]


def execute(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """Compute a program on concrete values; if an `Array` is among them, the results are `Array`s."""
    for value in inputs:
        if type(value) not in FREQUENT:  # these need no further test
            if is_jax(value):
                return xla_executor.execute(program, inputs)
            if type(value) is Tracer:
                raise leak_error(value)
            if type(value) in OWN:
                return as_arrays(program, execute(program, [*map(as_numpy, inputs)]))
    return numpy_executor.execute(program, inputs)


def compute(program: Program, inputs: Sequence[Any]) -> list[Any]:
    """Compute a program for all its values; the results may be views of each other.

    On jax arrays the operations run one by one: a branch that is taken once is not worth a compilation.
    """
    if tape.current.get() is None and not any(is_jax(value) for value in inputs):
        with np.errstate(all="ignore"):
            return numpy_executor.call(program, inputs)
    return apply_equations(program, inputs)


class _ByOperands:
    """The registered executor: NumPy computes, or XLA if a jax array is among the operands."""

    evaluate, execute, compute = staticmethod(evaluate), staticmethod(execute), staticmethod(compute)


BY_OPERANDS = _ByOperands()
"""The registered executor; another may replace it for a block."""
register_executor(BY_OPERANDS)
