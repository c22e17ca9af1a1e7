"""Functions with a batch rule of their own: the primitive behind `custom_vmap`; derivatives look inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from fxgrad.analyses.cost import cost
from fxgrad.control.call import check_arguments
from fxgrad.core.avals import Aval
from fxgrad.core.primitive import Cost, Primitive, register
from fxgrad.core.program import Program
from fxgrad.core.regions import Region, whole
from fxgrad.core.sources import in_place
from fxgrad.executors import numpy as numpy_executor
from fxgrad.executors import xla as xla_executor
from fxgrad.ops.space import move_axis
from fxgrad.transforms.forward import forward
from fxgrad.transforms.transpose import backward


class BatchRule(Protocol):
    """What a `custom_vmap` equation knows of its batches."""

    name: str

    def batch(self, size: int, values: Sequence[Any], batched: Sequence[bool]) -> tuple[list[Any], list[bool]]:
        """The outputs for values whose batch axes, where there are any, come first; and which outputs have one."""
        ...


def _abstract(*avals: Aval, program: Program, rule: BatchRule) -> list[Aval]:
    check_arguments(rule.name, program.in_avals, avals)
    return program.out_avals


def _batch(size: int, values: list[Any], axes: list[int | None], *, program: Program, rule: BatchRule,
           ) -> tuple[list[Any], list[int | None]]:
    in_front = [value if axis is None else move_axis(value, axis, 0) for value, axis in zip(values, axes, strict=True)]
    outputs, batched = rule.batch(size, in_front, [axis is not None for axis in axes])
    return outputs, [0 if each else None for each in batched]


def _run(*values: Any, program: Program, rule: BatchRule) -> list[Any]:
    return numpy_executor.call(program, values)


def _emit(lax: Any, *values: Any, program: Program, rule: BatchRule) -> list[Any]:
    return xla_executor.emit(program, values)


def _jvp(primals: list[Any], tangents: list[Any], *, program: Program, rule: BatchRule) -> tuple[list[Any], list[Any]]:
    with in_place():
        return forward(program, primals, tangents)


def _transpose(cotangents: list[Any], inputs: list[Any], *, program: Program, rule: BatchRule) -> list[Any]:
    with in_place():
        return backward(program, inputs, cotangents)


def _cost(*avals: Aval, program: Program, rule: BatchRule) -> Cost:
    return cost(program)


def _regions(operands: Sequence[Any], *, program: Program, rule: BatchRule) -> tuple[Region, ...]:
    return (whole("call", program),)


custom_vmap_p = register(Primitive(name="custom_vmap", abstract=_abstract, numpy=_run, xla=_emit, jvp=_jvp,
                                   transpose=_transpose, batch=_batch, cost=_cost, regions=_regions))
