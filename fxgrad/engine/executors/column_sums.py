"""Sums over the first axes of arrays, as products that XLA's CPU backend computes row by row.

XLA adds the rows of an array one column at a time if a row has more than 64 KiB: each step reads another line of
memory, and what computes the array, fused into the sum, is computed number by number. A product with a vector of ones
reads row by row. Measured on jaxlib 0.10 with one thread: 512 rows of 40,000 float32 take 56 ms and 2.9 ms; 32 rows
of 40,000 values of tanh 10.7 ms and 0.7 ms. Smaller rows gain little, and stay as they are. jaxlib 0.12 adds faster:
the same 512 rows take it 9 ms and 6 ms, a gradient by 40,000 columns of 32 rows 2.4 ms and 1.0 ms.

`A.T @ v` is such a sum: XLA fuses the transposition into the product and adds column by column. `A` contracted along
its first axis is read row by row. In float32, on jaxlib 0.10, 256 x 256 takes 168 us and 65 us, 1000 x 1000 0.91 ms
and 0.25 ms, 3000 x 3000 27 ms and 2.7 ms; on jaxlib 0.12 the last takes 50 ms and 2.9 ms. 24 unrolled steps of gradient
descent on 64 x 16 compile in a third of the time.
"""

from __future__ import annotations

import math

import numpy as np

from fxgrad.engine import dtypes
from fxgrad.engine.analyses.fusing import CONVOLUTION, DOT, KERNEL, LOOP, UPDATE, fusion_kind
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.program import Atom, Equation, Program, Variable
from fxgrad.engine.core.program_properties import definitions, memoize
from fxgrad.engine.core.regions import rewrite_programs
from fxgrad.engine.core.sizes import has_symbolic_dim
from fxgrad.engine.derivation.simplify import remove_dead_code
from fxgrad.engine.executors.platforms import default_device
from fxgrad.engine.ops.products import dot_general_p, untransposed
from fxgrad.engine.ops.structural import broadcast_to_p, reduce_sum_p, transpose_p

LARGEST_ROW = 65536
"""Bytes up to which XLA adds row by row itself."""
LARGEST_MADE = 2 ** 26
"""Bytes up to which an array is stored for a product that would have been computed within the sum."""
_STORED = frozenset((DOT, CONVOLUTION, KERNEL, LOOP, UPDATE))
"""Kinds of operations whose results are stored in any case."""
_DTYPES = frozenset((np.dtype(np.float32), np.dtype(np.float64)))


def with_row_products(program: Program) -> Program:
    """Return an equal program with products for such sums, in nested programs too; `program` itself if it has none.

    Elsewhere than on CPUs sums stay: their backends add rows well.
    """
    if default_device().platform != "cpu":
        return program
    return memoize(program, ("row products",), lambda: _rewritten(program))


def _rewritten(program: Program) -> Program:
    equations: list[Equation] = []
    for equation in program.equations:
        if equation.primitive is reduce_sum_p and _is_slow(program, equation):
            equations += _product(equation)
        elif equation.primitive is dot_general_p:
            equations.append(_untransposed(program, equation))
        else:
            equations.append(rewrite_programs(equation, lambda region: with_row_products(region.program)))
    return program if equations == program.equations else remove_dead_code(program.replace(equations=equations))


def _untransposed(program: Program, equation: Equation) -> Equation:
    """Return the product of a transposed array and a vector as one of the array, if that is stored; or `equation`.

    A vector may also be a matrix of one column or row.
    """
    x, y = (atom.aval for atom in equation.inputs)
    numbers = equation.params["dimension_numbers"]
    if has_symbolic_dim(*x.shape, *y.shape) or not (x.dtype in _DTYPES or dtypes.is_integer(x.dtype)):
        return equation  # of half precision, XLA would store the array in float32 before the product
    if min(x.size, y.size) != math.prod(x.shape[axis] for axis in numbers[0][0]):
        return equation

    def transposition(operand: Atom) -> tuple[Atom, tuple[int, ...]] | None:
        made = definitions(program).get(operand) if isinstance(operand, Variable) else None
        if made is None or made.primitive is not transpose_p or not _is_stored(program, made.inputs[0]):
            return None
        return made.inputs[0], made.params["permutation"]
    found = untransposed(equation.inputs, numbers, transposition)
    if found is None:
        return equation
    return Equation(dot_general_p, found[0], {**equation.params, "dimension_numbers": found[1]}, equation.outputs,
                    equation.source)


def _is_slow(program: Program, equation: Equation) -> bool:
    operand, axes = equation.inputs[0], equation.params["axes"]
    aval, count = operand.aval, len(axes)
    if aval.dtype not in _DTYPES or aval.vma or axes != tuple(range(count)) or has_symbolic_dim(*aval.shape):
        return False
    row = math.prod(aval.shape[count:]) * aval.dtype.itemsize
    return row > LARGEST_ROW and math.prod(aval.shape[:count]) > 1 and (
        aval.nbytes <= LARGEST_MADE or _is_stored(program, operand))


def _is_stored(program: Program, operand: Atom) -> bool:
    """Return whether XLA stores a value, whoever reads it: that of an input or of an operation that is not fused."""
    if not isinstance(operand, Variable):
        return False
    made = definitions(program).get(operand)
    return made is None or fusion_kind(made) in _STORED


def _product(equation: Equation) -> list[Equation]:
    """Return the product with ones, from the line of the sum, which binds the same variable."""
    aval, axes = equation.inputs[0].aval, equation.params["axes"]
    ones = Variable(Aval(aval.shape[:len(axes)], aval.dtype))
    filled = Equation(broadcast_to_p, [Literal(1, Aval((), aval.dtype))], {"shape": ones.aval.shape}, [ones],
                      equation.source)
    return [filled, Equation(dot_general_p, [ones, equation.inputs[0]], {
        "dimension_numbers": ((axes, axes), ((), ())), "precision": "highest", "preferred_element_type": None,
    }, equation.outputs, equation.source)]
