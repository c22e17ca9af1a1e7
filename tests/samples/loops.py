"""Samples of the operations that hold programs and choose or repeat: branches, loops, scans, solvers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.engine.core.avals import Aval
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Program
from fxgrad.engine.higher_order.branch import cond_p
from fxgrad.engine.higher_order.loop import for_p
from fxgrad.engine.higher_order.scan import scan_p
from fxgrad.engine.higher_order.solve import linear_solve_p, root_derivatives, root_p
from fxgrad.engine.higher_order.sweep import sweep_p
from fxgrad.engine.higher_order.while_loop import while_p
from fxgrad.engine.ops.arithmetic import div, mul, name_p, sub
from fxgrad.engine.ops.comparison import lt
from fxgrad.engine.ops.pointwise import add, scalar_like
from fxgrad.engine.ops.reductions import reduce_max
from fxgrad.engine.ops.trigonometric import cos, sin
from fxgrad.engine.tracing.trace import WITH_LITERALS, trace_at
from tests.samples import Draw, Sample, elementwise_samples
from tests.samples.control import SHAPES, without


def program(function: Callable[..., Sequence[Any]], *avals: Aval) -> Program:
    return trace_at(lambda *inputs: list(function(*inputs)), list(avals), mode=WITH_LITERALS)[0]


def aval(shape: Sequence[int], dtype: str) -> Aval:
    return Aval(tuple(shape), np.dtype(dtype))


INDEX = np.dtype("int32")


def branches() -> list[Sample]:
    samples = []
    for shape, dtype in SHAPES:
        one = aval(shape, dtype)
        programs = (program(lambda x, y: [mul(sin(x), y), add(x, y)], one, one),
                    program(lambda x, y: [mul(x, mul(x, y)), y], one, one),
                    program(lambda x, y: [cos(y), x], one, one))
        samples += [Sample(np.array(index, INDEX), Draw(shape, dtype), Draw(shape, dtype),
                           params={"branches": programs}, without=without(dtype), slow=index == 7)
                    for index in (1, 2, 7)]
    # A number, and what no branch uses.
    for dtype in ("int32", "float64"):
        avals = aval((2, 3), dtype), aval((), "int32"), aval((2,), dtype)
        programs = (program(lambda x, n, unused: [mul(x, x), n], *avals),
                    program(lambda x, n, unused: [mul(mul(x, x), x), mul(n, n)], *avals))
        samples.append(Sample(np.array(1, INDEX), Draw((2, 3), dtype), Draw((), "int32"), Draw((2,), dtype),
                              params={"branches": programs}, without=without(dtype)))
    return samples


def scans() -> list[Sample]:
    samples = []
    for shape, dtype in SHAPES:
        one = aval(shape, dtype)
        body = program(lambda w, h, x: [sin(add(mul(w, h), x)), mul(h, x)], one, one, one)
        for length, reverse, unroll in ((3, False, 1), (2, True, 2), (0, False, 1)):
            samples.append(Sample(
                Draw(shape, dtype), Draw(shape, dtype), Draw((length, *shape), dtype), without=without(dtype),
                slow=unroll == 2, params={"program": body, "length": length, "reverse": reverse, "unroll": unroll,
                                          "num_consts": 1, "num_carry": 1}))
    one = aval((2,), "float64")  # with a constant that the body does not use
    samples.append(Sample(*[Draw((2,), "float64") for _ in range(3)], Draw((3, 2), "float64"), without={}, params={
        "program": program(lambda unused, w, h, x: [mul(w, h), mul(h, x)], one, one, one, one), "length": 3,
        "reverse": False, "unroll": 1, "num_consts": 2, "num_carry": 1}))
    return samples


def fors() -> list[Sample]:
    samples = []
    for shape, dtype in SHAPES:
        one = aval(shape, dtype)
        body = program(lambda w, x, y: [mul(sin(x), w), add(x, y)], one, one, one)
        samples += [Sample(np.array(count, INDEX), *[Draw(shape, dtype) for _ in range(3)],
                           params={"program": body, "num_consts": 1}, without=without(dtype), slow=count == 0)
                    for count in (3, 0)]
    one = aval((2,), "float64")
    samples.append(Sample(np.array(2, INDEX), *[Draw((2,), "float64") for _ in range(3)], without={}, params={
        "program": program(lambda unused, w, x: [mul(sin(x), w)], one, one, one), "num_consts": 2}))
    return samples


def whiles() -> list[Sample]:
    samples = []
    for shape, dtype in SHAPES:
        one, counter = aval(shape, dtype), Aval((), INDEX)
        condition = program(lambda limit, number, x: [lt(number, limit)], counter, counter, one)
        body = program(lambda w, number, x: [add(number, scalar_like(1, number)), mul(sin(x), w)], one, counter, one)
        samples.append(Sample(
            np.array(3, INDEX), Draw(shape, dtype), np.array(0, INDEX), Draw(shape, dtype), without=without(dtype),
            params={"condition": condition, "body": body, "num_condition_consts": 1, "num_body_consts": 1}))
    one = aval((2,), "float64")
    # The number of steps depends on the values, so lanes of a batch take different numbers of them.
    samples.append(Sample(Draw((2,), "float64", 0.1, 1.0), without={}, params={
        "condition": program(lambda x: [lt(reduce_max(x, (0,)), scalar_like(5, x))], one),
        "body": program(lambda x: [add(mul(x, x), scalar_like(1, x))], one),
        "num_condition_consts": 0, "num_body_consts": 0}))
    counter = Aval((), INDEX)
    samples.append(Sample(
        np.array(3, INDEX), Draw((2,), "float64"), np.array(0, INDEX), Draw((2,), "float64"), without={}, params={
            "condition": program(lambda limit, number, x: [lt(number, limit)], counter, counter, one),
            "body": program(lambda unused, number, x: [add(number, scalar_like(1, number)), sin(x)], one, counter, one),
            "num_condition_consts": 1, "num_body_consts": 1}))
    return samples


def sweeps() -> list[Sample]:
    samples = []
    for shape, dtype in SHAPES:
        one = aval(shape, dtype)
        step = program(lambda w, x: [mul(sin(x), w)], one, one)
        back = program(lambda v, x, carry: [add(mul(cos(x), carry), v)], one, one, one)
        samples += [Sample(
            np.array(count, INDEX), *[Draw(shape, dtype) for _ in range(4)], without=without(dtype), slow=count == 0,
            params={"step": step, "back": back, "num_step_consts": 1, "num_back_consts": 1}) for count in (3, 0)]
    one = aval((2,), "float64")
    samples.append(Sample(np.array(2, INDEX), *[Draw((2,), "float64") for _ in range(4)], without={}, params={
        "step": program(lambda unused, x: [sin(x)], one, one), "num_step_consts": 1, "num_back_consts": 1,
        "back": program(lambda w, x, carry: [mul(mul(x, carry), w)], one, one, one)}))
    return samples


def solves() -> list[Sample]:
    """Division, as a linear system: diag(d) x = b."""
    samples = []
    for shape, dtype in SHAPES:
        one = aval(shape, dtype)
        times, over = program(lambda d, x: [mul(d, x)], one, one), program(lambda d, b: [div(b, d)], one, one)
        # The constants of the four programs stand for one d: they are the same number, and only the first moves.
        d = Draw(shape, dtype, 0.5, 2.0)(np.random.default_rng(0))
        reason = {"jvp": "the constants of the solver, which have no derivative, would move as well",
                  "second": "the constants of the solver, which have no derivative, would move as well"}
        samples.append(Sample(d, d, d, d, Draw(shape, dtype), without=without(dtype) | reason, params={
            "programs": (times, over, times, over), "counts": (1, 1, 1, 1)}))
    wider = program(lambda unused, d, x: [mul(d, x)], one, one, one)
    samples.append(Sample(d, d, d, d, d, Draw(shape, dtype), without=without(dtype) | reason, params={
        "programs": (wider, over, times, over), "counts": (2, 1, 1, 1)}))
    return samples


def roots() -> list[Sample]:
    """The root of x - a = 0, found in one step from any guess."""
    samples = []
    for shape, dtype in SHAPES:
        one = aval(shape, dtype)
        solver = program(lambda a, x: [add(x, sub(a, x))], one, one)
        function = program(lambda a, x: [sub(x, a)], one, one)
        matvec, vecmat = root_derivatives(function, 1)
        assert not [*matvec.captured, *vecmat.captured]
        tangent = program(lambda a, x, y: [y], one, one, one)
        reason = {"jvp": "the constants of the solver, which have no derivative, would move as well",
                  "second": "the constants of the solver, which have no derivative, would move as well"}
        samples.append(Sample(*[Draw(shape, dtype) for _ in range(3)], without=without(dtype) | reason, params={
            "programs": (solver, function, tangent, tangent), "counts": (1, 1, 0, 0)}))
    wider = program(lambda unused, a, x: [add(x, sub(a, x))], one, one, one)
    samples.append(Sample(*[Draw(shape, dtype) for _ in range(4)], without=without(dtype) | reason, params={
        "programs": (wider, function, tangent, tangent), "counts": (2, 1, 0, 0)}))
    return samples


SAMPLES: dict[Primitive, list[Sample]] = {
    cond_p: branches(), scan_p: scans(), for_p: fors(), while_p: whiles(), sweep_p: sweeps(), linear_solve_p: solves(),
    root_p: roots(),
    name_p: elementwise_samples(1, ("float64", "int32", "complex64"), params={"name": "y"}),
}
