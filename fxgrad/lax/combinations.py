"""Functions of scalars that reductions and scatters are given: traced once, and applied to all elements at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from fxgrad.engine import tree
from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Program
from fxgrad.engine.frontend.operands import as_array_operand
from fxgrad.engine.higher_order.call import named_call_p
from fxgrad.engine.ops.structural import reshape
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.tracing.trace import UNSHARED, trace_at
from fxgrad.engine.transforms.batch import batched_program
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError


def combining_program(name: str, computation: Callable[..., Any], avals: Sequence[Aval], structure: Any,
                      operands: int = 2) -> tuple[Program, list[Any]]:
    """Return the program of a function of scalars, or of `operands` trees of scalars like `structure`; and captures.

    `avals` give the dtypes. Raises `ArgumentError` unless it returns such a tree of the same dtypes.
    """
    scalars = [Aval((), aval.dtype) for aval in avals]
    count = len(scalars)

    def flat(*values: Any) -> list[Any]:
        trees = [tree.unflatten(structure, values[begin:begin + count])
                 for begin in range(0, count * operands, count)]
        leaves, found = tree.flatten(computation(*trees))
        if found != structure:
            raise ArgumentError(at_user_line(f"{name}: the computation returned {found}; a tree like its "
                                             f"arguments, {structure}, is needed"))
        return list(map(as_array_operand, leaves))

    program, captured = trace_at(flat, scalars * operands, mode=UNSHARED)
    if [(aval.shape, aval.dtype) for aval in program.out_avals] != [(aval.shape, aval.dtype) for aval in scalars]:
        given = " and ".join([str(scalars)] * operands)
        raise ArgumentError(at_user_line(f"{name}: the computation of {given} returned {program.out_avals}; the types "
                                         "of its arguments are needed"))
    return program, captured


def only_primitive(program: Program) -> Primitive | None:
    """Return the primitive that the program applies to its two inputs, if it does nothing else."""
    if len(program.equations) != 1 or len(program.inputs) != 2:
        return None
    equation, = program.equations
    is_all = set(equation.inputs) == set(program.inputs) and list(program.outputs) == list(equation.outputs)
    return equation.primitive if is_all else None


def apply_to_elements(program: Program, captured: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
    """Apply a program of scalars to each element of arrays of one shape."""
    shape = aval_of(arrays[0]).shape
    size = prod(shape)
    batched = batched_program(program, size, (*(None for _ in captured), *(0 for _ in arrays)))
    results = bind(named_call_p, *batched.captured, *captured, *(reshape(array, (size,)) for array in arrays),
                   program=batched.program, name="computation")
    return [reshape(result, shape) for result in results]
