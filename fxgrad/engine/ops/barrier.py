"""The optimization barrier: its outputs are its inputs, and no compiler moves work across it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxgrad.engine.core.primitive import Cost, Primitive, register
from fxgrad.engine.core.symbolic import Zero
from fxgrad.engine.ops.families import is_linear
from fxgrad.engine.ops.structural import instantiate_zeros
from fxgrad.engine.tracing.tape import bind


def _jvp(primals: list[Any], tangents: list[Any]) -> tuple[list[Any], list[Any]]:
    """Tangents pass a barrier of their own: a joint one would save the primals for the backward pass."""
    moving = [tangent for tangent in tangents if type(tangent) is not Zero]
    passed = iter(barrier(moving))
    return barrier(primals), [tangent if type(tangent) is Zero else next(passed) for tangent in tangents]


def _transpose(cotangents: list[Any], inputs: list[Any]) -> list[Any]:
    linear = [is_linear(value) for value in inputs]
    passed = iter(barrier([instantiate_zeros(cotangent) for cotangent, marked in zip(cotangents, linear, strict=True)
                           if marked]))
    return [next(passed) if marked else None for marked in linear]


optimization_barrier_p = register(Primitive(
    name="optimization_barrier", abstract=lambda *avals: list(avals), numpy=lambda *arrays: list(arrays),
    xla=lambda lax, *values: list(lax.optimization_barrier(values)) if values else [],
    jvp=_jvp, transpose=_transpose,
    batch=lambda size, values, axes: (barrier(values), list(axes)),
    cost=lambda *avals: Cost(0, 2 * sum(aval.nbytes for aval in avals))))


def barrier(values: Sequence[Any]) -> list[Any]:
    """Return the values themselves; XLA computes all of them before anything that uses one of them."""
    return bind(optimization_barrier_p, *values) if values else []
