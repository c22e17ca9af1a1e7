"""Loops in chunks: a scan of checkpointed scans keeps the carries between chunks, and the steps of one chunk.

With T steps, chunks of about the root of T cost the least (Griewank, "Achieving logarithmic growth of temporal and
spatial complexity in reverse automatic differentiation", 1992, with one level).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fxgrad.engine.core.interpreter import interpret
from fxgrad.engine.core.program import Equation, Program
from fxgrad.engine.derivation.derive import derive
from fxgrad.engine.higher_order.checkpoint import rematerialize
from fxgrad.engine.higher_order.groups import Marks
from fxgrad.engine.higher_order.scan import Loop, bind_scan, scan_p
from fxgrad.engine.ops.joining import concatenate
from fxgrad.engine.ops.shaping import slice_in_dim
from fxgrad.engine.ops.structural import reshape
from fxgrad.engine.rematerialization.residual_costs import ResidualCost
from fxgrad.engine.tracing.tape import bind
from fxgrad.engine.tracing.trace import WITH_LITERALS, trace_at


def chunk_scans(program: Program, found: Sequence[ResidualCost], wrt: Marks) -> tuple[Program, float]:
    """Return the program with scans that keep something at every step in chunks, and the work that this repeats.

    Return `program` itself where there are none. `found` are the residual costs of its equations.
    """
    chunks = {number: size for number, (equation, cost) in enumerate(zip(program.equations, found, strict=True))
              if equation.primitive is scan_p and cost.own and (size := _chunk_size(equation, cost.own))}
    if not chunks:
        return program, 0.0

    sizes = {id(program.equations[number]): size for number, size in chunks.items()}

    def step(equation: Equation, inputs: list[Any]) -> list[Any]:
        size = sizes.get(id(equation))
        return bind(equation.primitive, *inputs, **equation.params) if size is None else _record_chunked(
            equation, inputs, size)

    def build(*values: Any) -> tuple[list[Any], None]:
        return interpret(program, values, step), None

    return derive(program, ("in chunks", wrt), build, program.in_avals).program, sum(
        found[number].work or 0.0 for number in chunks)


def _program_and_loop(equation: Equation) -> tuple[Program, Loop]:
    params = dict(equation.params)
    return params.pop("program"), Loop(**params)


def _chunk_size(equation: Equation, own: int) -> int:
    """Return the steps of a chunk for which carries between chunks and residuals of one chunk are least together.

    Prefer a divisor of the number of steps if it is nearly as good: otherwise inputs are cut in two, and their parts
    copied. Return 0 for loops that are too short to gain by it.
    """
    program, loop = _program_and_loop(equation)
    carried = sum(aval.nbytes for aval in loop.makes(program).split(program.out_avals).carry)
    steps = loop.length
    if steps < 4 or not carried:
        return 0

    def size(chunk: int) -> float:
        return steps / chunk * carried + chunk * own / steps

    best = min(max(round(math.sqrt(steps * carried / (own / steps))), 1), steps // 2)
    even = min((chunk for chunk in range(1, steps // 2 + 1) if steps % chunk == 0), key=size)
    return even if size(even) < 2 * size(best) else best


def _record_chunked(equation: Equation, inputs: Sequence[Any], size: int) -> list[Any]:
    program, loop = _program_and_loop(equation)
    consts, carry, xs = loop.takes(program).split(inputs)
    count, rest = divmod(loop.length, size)
    whole = count * size
    start = rest if loop.reverse else 0
    chunks = [reshape(slice_in_dim(x, start, start + whole, 0), (count, size, *x.shape[1:])) for x in xs]
    turns, turns_of_chunk = loop.split_turns(start, size)
    outer = _outer_program(program, loop._replace(length=size, turns=turns_of_chunk), [*consts, *carry, *chunks])
    results = bind_scan(outer, consts, carry, chunks, count, loop.reverse, turns=turns)
    carried, stacks = results[:loop.num_carry], results[loop.num_carry:]
    stacks = [reshape(stack, (whole, *stack.shape[2:])) for stack in stacks]
    if not rest:
        return [*carried, *stacks]
    first = 0 if loop.reverse else whole
    results = bind_scan(program, consts, carried, [slice_in_dim(x, first, first + rest, 0) for x in xs], rest,
                        loop.reverse, loop.unroll, loop.split_turns(first)[0])
    carried, others = results[:loop.num_carry], results[loop.num_carry:]
    return [*carried, *(concatenate([other, stack] if loop.reverse else [stack, other], 0)
                        for stack, other in zip(stacks, others, strict=True))]


def _outer_program(program: Program, loop: Loop, values: Sequence[Any]) -> Program:
    """Return the program of the outer loop: one checkpointed chunk."""
    avals = [value.aval for value in values]
    fixed = loop.num_consts + loop.num_carry
    avals = [*avals[:fixed], *(aval.without_axis(0) for aval in avals[fixed:])]

    def chunk(*given: Any) -> list[Any]:
        return loop.again(program, *loop.takes(program).split(given))

    return trace_at(lambda *given: rematerialize(chunk, given, "chunk"), avals, mode=WITH_LITERALS,
                    name="a loop in chunks")[0]
