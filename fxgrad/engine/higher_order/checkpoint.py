"""Checkpoints: calls whose backward pass saves the values that a policy selects, and recomputes the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

from fxgrad.engine.analyses.remat_barriers import inputs_to_tie
from fxgrad.engine.core.program import Program, Variable
from fxgrad.engine.core.program_properties import memoize
from fxgrad.engine.derivation.ordering import as_needed
from fxgrad.engine.executors import xla as xla_executor
from fxgrad.engine.executors.remat_barriers import remat_barrier
from fxgrad.engine.higher_order.call import call_primitive, emit_inline, run_with_numpy
from fxgrad.engine.higher_order.groups import nonzero_mask, nonzero_tangents
from fxgrad.engine.higher_order.partition import Partition, partition
from fxgrad.engine.higher_order.saving import keep_by_policy
from fxgrad.engine.higher_order.storing import pack_outputs, unpack_inputs
from fxgrad.engine.higher_order.wiring import (
    dual_outputs,
    dual_program,
    needs_tangent_tape,
    select_inputs,
    used_inputs,
)
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.tracing.trace import WITH_LITERALS, trace_at
from fxgrad.engine.transforms.forward import fill_zeros
from fxgrad.engine.transforms.linearize import linearize_program


def _jvp(primals: list[Any], tangents: list[Any], *, program: Program, name: str,
         policy: Callable[..., Any] | None = None, prevent_cse: bool = True) -> tuple[list[Any], list[Any]]:
    """Bind two calls: one computes and saves known values, the other recomputes the rest, with the tangents."""
    count, wrt = len(program.outputs), nonzero_mask(tangents)
    settings: dict[str, Any] = {} if policy is None else {"policy": policy}
    settings |= {} if prevent_cse else {"prevent_cse": False}
    if not needs_tangent_tape(primals, tangents):
        both = dual_program(program, wrt)
        results = bind(checkpoint_p, *both.captured, *primals, *nonzero_tangents(tangents), program=both.program,
                       name=name, **settings)
        return dual_outputs(program.out_avals, both.extra, results)
    known = linearize_program(program, wrt)
    reached = known.extra.nonzero_outputs
    answers: dict[Variable, Any] = {}

    def keep(part: Program, needed: Sequence[Variable], free: set[Variable]) -> list[Variable]:
        if policy is not None:
            answers.update(keep_by_policy(policy, part, needed, free))
        return [*answers]

    parts = partition(known.program, count, known.extra, (True,) * len(known.program.inputs), keep, reached)
    inputs = [*known.captured, *primals]
    ahead, tangent = _store_saved(parts, count, [answers.get(var) for var in parts.saved])
    results = bind(checkpoint_p, *inputs, program=ahead, name=name, **settings)
    outputs, saved = results[:count], results[count:]
    if not any(reached):
        return outputs, fill_zeros(program.out_avals, reached, [])
    again = [*inputs, *saved, *nonzero_tangents(tangents)]
    if prevent_cse:
        residuals = used_inputs(tangent)[:len(inputs) + len(saved)]
        order = (*compress(range(len(residuals)), residuals), *range(len(residuals), len(again)))
        moved = bind(recompute_p, *(again[index] for index in order), program=select_inputs(tangent, order),
                     name=name)
    else:
        moved = apply_equations(tangent, again)
    return outputs, fill_zeros(program.out_avals, reached, moved)


def _store_saved(parts: Partition, count: int, answers: Sequence[Any]) -> tuple[Program, Program]:
    """Return both programs of a partition with `count` outputs, storing saved values as the policy answered."""
    stores = [answer if type(answer) is str else "" for answer in answers]
    if not any(stores):
        return parts.forward, parts.tangent
    ahead = pack_outputs(parts.forward, stores)
    return ahead, unpack_inputs(parts.tangent, len(parts.forward.inputs), stores, ahead.out_avals[count:])


def rematerialize(function: Callable[..., Sequence[Any]], values: Sequence[Any], name: str) -> list[Any]:
    """Call `function` under a checkpoint that saves only `values`, its inputs; `name` is that of the block."""
    program, captured = trace_at(function, [*map(aval_of, values)], mode=WITH_LITERALS, name=name)
    return bind(checkpoint_p, *captured, *values, program=program, name=name)


def _late_as_needed(program: Program, linear: Sequence[bool]) -> Program:
    late = sum(linear)
    return memoize(program, ("as needed", late), lambda: as_needed(program, late))


def _emit_again(lax: Any, *values: Any, program: Program, name: str) -> list[Any]:
    return xla_executor.emit(program, remat_barrier(values, inputs_to_tie(program)))


checkpoint_p = call_primitive("checkpoint", _jvp, run_with_numpy, emit_inline)
"""A call for which reverse mode saves the inputs, and the values that the policy selects, by default none."""
recompute_p = call_primitive("recompute", _jvp, run_with_numpy, _emit_again, "recomputed", of_linear=_late_as_needed)
"""The recomputation of a checkpointed call in the backward pass. Tangents or cotangents are the last operands."""
