"""Checkpoints: calls of which the backward pass keeps what a policy says, and computes the rest again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fxgrad.analyses.ties import places_to_tie
from fxgrad.control.call import call_primitive, emit_inline, run_with_numpy
from fxgrad.control.groups import are_moving, present
from fxgrad.control.partition import partition
from fxgrad.control.wiring import apart, dual_outputs, dual_program
from fxgrad.core.analysis import Analysis
from fxgrad.core.primitive import Primitive
from fxgrad.core.program import Program, Var
from fxgrad.executors import xla as xla_executor
from fxgrad.executors.ties import tied
from fxgrad.ops.arithmetic import name_p
from fxgrad.ops.convolution import conv_general_dilated_p
from fxgrad.ops.products import DotDimensions, dot_general_p
from fxgrad.tracing.apply import apply_equations
from fxgrad.tracing.tape import bind
from fxgrad.transforms.forward import spread
from fxgrad.transforms.linearize import linearized


class Policy(NamedTuple):
    """Which values a checkpoint keeps: called with the primitive that makes them, its types and its parameters.

    It is made by the functions of `fxgrad.checkpoint_policies`.
    """

    kind: str
    names: tuple[str, ...] = ()
    parts: tuple[Policy, ...] = ()

    def __call__(self, primitive: Primitive, *avals: Any, **params: Any) -> bool:
        """Whether to keep the outputs of an equation."""
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


_KINDS: dict[str, Callable[..., bool]] = {
    "everything": lambda policy, primitive, *avals, **params: True,
    "nothing": lambda policy, primitive, *avals, **params: False,
    "dots": _is_product,
    "dots without batch dimensions": _has_no_batch_dimensions,
    "these names": lambda policy, primitive, *avals, **params: _has_name(policy, primitive, params),
    "other names": lambda policy, primitive, *avals, **params:
        primitive is name_p and not _has_name(policy, primitive, params),
    "all but these names": lambda policy, primitive, *avals, **params: not _has_name(policy, primitive, params),
    "either": lambda policy, primitive, *avals, **params:
        any(part(primitive, *avals, **params) for part in policy.parts),
}


def keep_by_policy(policy: Callable[..., Any], known: Program, needed: Sequence[Var], free: set[Var]) -> list[Var]:
    """The values that `policy` keeps among those that the residuals are computed from."""
    maker = {var: equation for equation in known.equations for var in equation.outputs}
    kept: dict[Var, None] = {}
    waiting, seen = list(needed), set(needed)
    while waiting:
        var = waiting.pop()
        equation = maker[var]  # what is no equation's is free
        if policy(equation.primitive, *(atom.aval for atom in equation.inputs), **equation.params):
            kept[var] = None
            continue
        more = [atom for atom in equation.inputs if type(atom) is Var and atom not in free and atom not in seen]
        waiting += more
        seen.update(more)
    return [var for var in maker if var in kept]


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

    def keep(part: Program, needed: Sequence[Var], free: set[Var]) -> list[Var]:
        return [] if policy is None else keep_by_policy(policy, part, needed, free)

    parts = partition(known.program, count, known.extra, (True,) * len(known.program.inputs), keep, reached)
    inputs = [*known.captured, *primals]
    results = bind(checkpoint_p, *inputs, program=parts.forward, name=name, **settings)
    outputs, saved = results[:count], results[count:]
    moved: list[Any] = []
    if any(reached):
        again = [*inputs, *saved, *present(tangents)]
        moved = bind(recompute_p, *again, program=parts.tangent, name=name) if prevent_cse else \
            apply_equations(parts.tangent, again)
    return outputs, spread(program.out_avals, reached, moved)


def _recompute_jvp(primals: list[Any], tangents: list[Any], *, program: Program, name: str,
                   ) -> tuple[list[Any], list[Any]]:
    return _jvp(primals, tangents, program=program, name=name)


def _emit_again(lax: Any, *values: Any, program: Program, name: str) -> list[Any]:
    return xla_executor.emit(program, tied(values, places_to_tie(program)))


checkpoint_p = call_primitive("checkpoint", _jvp, run_with_numpy, emit_inline)
"""A call of which reverse mode keeps its inputs and what the policy says, by default nothing."""
recompute_p = call_primitive("recompute", _recompute_jvp, run_with_numpy, _emit_again, "recomputed")
"""The second computation of a checkpointed call, in the backward pass. Tangents or cotangents come last."""
