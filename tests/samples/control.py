"""Samples of `fxgrad.engine.higher_order`: calls of a program, and of functions with rules of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Program
from fxgrad.engine.higher_order.call import jit_call_p, named_call_p
from fxgrad.engine.higher_order.checkpoint import checkpoint_p, recompute_p
from fxgrad.engine.higher_order.custom import custom_jvp_p, custom_vjp_p, custom_vjp_tangent_p
from fxgrad.engine.higher_order.mapped_rule import custom_vmap_p
from fxgrad.engine.higher_order.safe_call import safe_call_p
from fxgrad.engine.ops.arithmetic import mul
from fxgrad.engine.ops.pointwise import add
from fxgrad.engine.ops.structural import instantiate_zeros
from fxgrad.engine.ops.trigonometric import cos, sin
from fxgrad.engine.rematerialization.operation import within_budget_p
from fxgrad.engine.tracing.trace import UNSHARED, trace_at
from tests.samples import Draw, Sample

SHAPES: list[tuple[tuple[int, ...], str]] = [
    ((), "float64"), ((0,), "float64"), ((1,), "float64"), ((2, 3), "float64"), ((2, 3), "float32")]

def body(x: Any, y: Any) -> list[Any]:
    """A function with two outputs, so that rules see a zero among the cotangents."""
    return [mul(sin(x), y), add(x, y)]

def program_of(shape: Sequence[int], dtype: str, function: Any = body) -> Program:
    aval = Aval(tuple(shape), np.dtype(dtype))
    return trace_at(lambda *inputs: function(*inputs), [aval, aval], mode=UNSHARED)[0]

class Rule:
    """The true derivative of `body`, as a rule of either kind."""

    name = "body"

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        (x, y), (dx, dy) = primals, map(instantiate_zeros, tangents)
        return body(x, y), [add(mul(mul(cos(x), dx), y), mul(sin(x), dy)), add(dx, dy)]

    def forward(self, primals: Sequence[Any], moving: Sequence[bool]) -> tuple[list[Any], list[Any], Any]:
        del moving
        return body(*primals), list(primals), "structure"

    def backward(self, structure: Any, residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        (x, y), (first, second) = residuals, map(instantiate_zeros, cotangents)
        return [add(mul(mul(cos(x), first), y), second), add(mul(sin(x), first), second)]

    def batch(self, size: int, values: Sequence[Any], batched: Sequence[bool]) -> tuple[list[Any], list[bool]]:
        del size, batched
        return body(*values), [True, True]  # what has a batch axis has it in front, and so broadcasts

    def __repr__(self) -> str:
        return "<body>"


RULE = Rule()
NARROW = dict.fromkeys(("jvp", "second", "transpose"),
                       "the program inside is of float32, and differences are taken in float64")

def without(dtype: str, printable: bool = True) -> dict[str, str]:
    return (NARROW if dtype == "float32" else {}) | ({} if printable else UNPRINTABLE)

UNPRINTABLE = {"text": "a rule is user code, which parse refuses to make"}

def calls(name: str, **more: Any) -> list[Sample]:
    return [Sample(Draw(shape, dtype), Draw(shape, dtype), without=without(dtype),
                   params={"program": program_of(shape, dtype), "name": name, **more})
            for shape, dtype in SHAPES]

def ruled() -> list[Sample]:
    return [Sample(Draw(shape, dtype), Draw(shape, dtype), without=without(dtype, printable=False),
                   params={"program": program_of(shape, dtype), "rule": RULE}) for shape, dtype in SHAPES]

def tangents() -> list[Sample]:
    samples = []
    for shape, dtype in SHAPES:
        aval = Aval(shape, np.dtype(dtype))
        params = {"rule": RULE, "structure": "structure", "moving": (True, True), "in_avals": (aval, aval),
                  "out_avals": (aval, aval)}
        samples.append(Sample(*[Draw(shape, dtype) for _ in range(4)], params=params,
                              without=without(dtype, printable=False)))
    return samples

SAMPLES: dict[Primitive, list[Sample]] = {
    named_call_p: calls("body"), jit_call_p: calls("body"), checkpoint_p: calls("body"), safe_call_p: calls("body"),
    recompute_p: calls("body"), within_budget_p: calls("body", budget=2**30),
    custom_jvp_p: ruled(), custom_vjp_p: ruled(), custom_vjp_tangent_p: tangents(), custom_vmap_p: ruled(),
}
