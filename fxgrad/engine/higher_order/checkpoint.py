"""Checkpoints: calls of which the backward pass keeps what a policy says, and computes the rest again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from fxgrad.engine.analyses.ties import places_to_tie
from fxgrad.engine.core.analysis import Analysis
from fxgrad.engine.core.facts import made_once, makers_of
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Program, Var
from fxgrad.engine.derivation.ordering import as_needed
from fxgrad.engine.executors import xla as xla_executor
from fxgrad.engine.executors.ties import tied
from fxgrad.engine.higher_order.call import call_primitive, emit_inline, run_with_numpy
from fxgrad.engine.higher_order.groups import are_moving, present
from fxgrad.engine.higher_order.partition import Partition, partition
from fxgrad.engine.higher_order.storing import HOST, STORES, packing, unpacking
from fxgrad.engine.higher_order.wiring import apart, dual_outputs, dual_program, selected_inputs, used_inputs
from fxgrad.engine.ops.arithmetic import name_p
from fxgrad.engine.ops.convolution import conv_general_dilated_p
from fxgrad.engine.ops.products import DotDimensions, dot_general_p
from fxgrad.engine.tracing.apply import apply_equations
from fxgrad.engine.tracing.tape import aval_of, bind
from fxgrad.engine.tracing.trace import WRITTEN, trace
from fxgrad.engine.transforms.forward import spread
from fxgrad.engine.transforms.linearize import linearized
from fxgrad.engine.user_lines import at_user_line
from fxgrad.errors import ArgumentError


class Policy(NamedTuple):
    """Which values a checkpoint keeps: called with the primitive that makes them, its types and its parameters.

    It is made by the functions of `fxgrad.checkpoint_policies`. The answer is a bool, or one of `storing.STORES`.
    """

    kind: str
    names: tuple[str, ...] = ()
    parts: tuple[Policy, ...] = ()

    def __call__(self, primitive: Primitive, *avals: Any, **params: Any) -> bool | str:
        """Whether to keep the outputs of an equation, or how they are stored."""
        return _KINDS[self.kind](self, primitive, *avals, **params)


batches: Analysis[Callable[..., bool] | None] = Analysis("batches", missing="conservative", default=None)
"""Of operations that are products of matrices or of their kind: whether one has batch axes, by its parameters."""


@batches.register(dot_general_p)
def _batches_of_dot(*, dimension_numbers: DotDimensions, **_: Any) -> bool:
    return any(dimension_numbers[1])


@batches.register(conv_general_dilated_p)
def _batches_of_convolution(**_: Any) -> bool:
    return False


def _is_product(policy: Policy, primitive: Primitive, *avals: Any, **params: Any) -> bool:
    return batches.of(primitive) is not None


def _has_no_batch_dimensions(policy: Policy, primitive: Primitive, *avals: Any, **params: Any) -> bool:
    has_batches = batches.of(primitive)
    return has_batches is not None and not has_batches(**params)


def _has_name(policy: Policy, primitive: Primitive, params: dict[str, Any]) -> bool:
    return primitive is name_p and params["name"] in policy.names


_KINDS: dict[str, Callable[..., bool | str]] = {
    "everything": lambda policy, primitive, *avals, **params: True,
    "nothing": lambda policy, primitive, *avals, **params: False,
    "dots": _is_product,
    "dots without batch dimensions": _has_no_batch_dimensions,
    "these names": lambda policy, primitive, *avals, **params: _has_name(policy, primitive, params),
    "other names": lambda policy, primitive, *avals, **params:
        primitive is name_p and not _has_name(policy, primitive, params),
    "all but these names": lambda policy, primitive, *avals, **params: not _has_name(policy, primitive, params),
    "either": lambda policy, primitive, *avals, **params:
        next((answer for part in policy.parts if (answer := part(primitive, *avals, **params))), False),
    "stored": lambda policy, primitive, *avals, **params:
        policy.parts[0](primitive, *avals, **params) and policy.names[0],
}


def keep_by_policy(policy: Callable[..., Any], known: Program, needed: Sequence[Var], free: set[Var],
                   ) -> dict[Var, Any]:
    """The values that `policy` keeps among those that the residuals are computed from, with its answers."""
    maker = makers_of(known)
    kept: dict[Var, Any] = {}
    waiting, seen = list(needed), set(needed)
    while waiting:
        var = waiting.pop()
        equation = maker[var]  # what is no equation's is free
        answer = _answer(policy(equation.primitive, *(atom.aval for atom in equation.inputs), **equation.params))
        if answer:
            kept[var] = answer
            continue
        more = [atom for atom in equation.inputs if type(atom) is Var and atom not in free and atom not in seen]
        waiting += more
        seen.update(more)
    return {var: kept[var] for var in maker if var in kept}


_ANSWERS_OF_JAX: dict[str, bool | str] = {"RecomputeType": False, "SaveableType": True, "Offloadable": HOST}


def _answer(answer: Any) -> bool | str:
    """What a policy answered, by jax's objects too; raises `ArgumentError` for anything else."""
    if answer is None or isinstance(answer, bool | np.bool_ | int):
        return bool(answer)
    found = answer if answer in STORES else _ANSWERS_OF_JAX.get(type(answer).__name__)
    if found is None:
        raise ArgumentError(at_user_line(
            f"checkpoint: the policy answered {answer!r}, where a bool is needed, one of Saveable, Recompute and "
            f"Offloadable(...) of fxgrad.ad_checkpoint, or how to store the value: {', '.join(map(repr, STORES))}"))
    return found


def _jvp(primals: list[Any], tangents: list[Any], *, program: Program, name: str,
         policy: Callable[..., Any] | None = None, prevent_cse: bool = True) -> tuple[list[Any], list[Any]]:
    """Two calls: what is known with what is kept of it, and one that computes the rest again, with the tangents."""
    count, wrt = len(program.outputs), are_moving(tangents)
    settings: dict[str, Any] = {} if policy is None else {"policy": policy}
    settings |= {} if prevent_cse else {"prevent_cse": False}
    if not apart(primals, tangents):
        both = dual_program(program, wrt)
        results = bind(checkpoint_p, *both.captured, *primals, *present(tangents), program=both.program, name=name,
                       **settings)
        return dual_outputs(program.out_avals, both.extra, results)
    known = linearized(program, wrt)
    reached = known.extra.reached
    answers: dict[Var, Any] = {}

    def keep(part: Program, needed: Sequence[Var], free: set[Var]) -> list[Var]:
        if policy is not None:
            answers.update(keep_by_policy(policy, part, needed, free))
        return [*answers]

    parts = partition(known.program, count, known.extra, (True,) * len(known.program.inputs), keep, reached)
    inputs = [*known.captured, *primals]
    ahead, tangent = _stored(parts, count, [answers.get(var) for var in parts.saved])
    results = bind(checkpoint_p, *inputs, program=ahead, name=name, **settings)
    outputs, saved = results[:count], results[count:]
    if not any(reached):
        return outputs, spread(program.out_avals, reached, [])
    again = [*inputs, *saved, *present(tangents)]
    if prevent_cse:
        residuals = used_inputs(tangent)[:len(inputs) + len(saved)]
        order = (*compress(range(len(residuals)), residuals), *range(len(residuals), len(again)))
        moved = bind(recompute_p, *(again[index] for index in order), program=selected_inputs(tangent, order),
                     name=name)
    else:
        moved = apply_equations(tangent, again)
    return outputs, spread(program.out_avals, reached, moved)


def _stored(parts: Partition, count: int, answers: Sequence[Any]) -> tuple[Program, Program]:
    """Both programs of a partition with `count` outputs, so that what one saves for the other is stored as answered."""
    stores = [answer if type(answer) is str else "" for answer in answers]
    if not any(stores):
        return parts.forward, parts.tangent
    ahead = packing(parts.forward, stores)
    return ahead, unpacking(parts.tangent, len(parts.forward.inputs), stores, ahead.out_avals[count:])


def computed_again(function: Callable[..., Sequence[Any]], values: Sequence[Any], name: str) -> list[Any]:
    """The outputs of `function` for `values`, one checkpoint that keeps nothing but what comes in.

    `name` is shown, as that of the block.
    """
    program, captured = trace(function, [*map(aval_of, values)], mode=WRITTEN, name=name)
    return bind(checkpoint_p, *captured, *values, program=program, name=name)


def _recompute_jvp(primals: list[Any], tangents: list[Any], *, program: Program, name: str,
                   ) -> tuple[list[Any], list[Any]]:
    return _jvp(primals, tangents, program=program, name=name)


def _late_as_needed(program: Program, linear: Sequence[bool]) -> Program:
    late = sum(linear)
    return made_once(program, ("as needed", late), lambda: as_needed(program, late))


def _emit_again(lax: Any, *values: Any, program: Program, name: str) -> list[Any]:
    return xla_executor.emit(program, tied(values, places_to_tie(program)))


checkpoint_p = call_primitive("checkpoint", _jvp, run_with_numpy, emit_inline)
"""A call of which reverse mode keeps its inputs and what the policy says, by default nothing."""
recompute_p = call_primitive("recompute", _recompute_jvp, run_with_numpy, _emit_again, "recomputed",
                             of_linear=_late_as_needed)
"""The second computation of a checkpointed call, in the backward pass. Tangents or cotangents come last."""
