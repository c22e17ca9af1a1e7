"""Making programs: recording them, transforming them to gradients, and lowering them for XLA."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

import fxgrad
from benchmarks.places import Aval, TracedCall, apply_program, grad_program, trace_flat
from benchmarks.problems import chain
from benchmarks.workload import Absolute, Peer, Peers, Ratio, Workload, forget_programs, nothing

OPERATIONS = 1000


def record(x: Any, loss: Callable[[Any], Any]) -> TracedCall:
    """What un-jitted `grad` does first: records the function on a tape that knows the values."""
    aval = Aval(x.shape, x.dtype)
    return trace_flat(loss, [aval], "grad", loss, values=[x])


def recording(again: bool, small: bool) -> Peers:
    """Recording a function, after the tables were emptied or with all that it does seen before."""
    problem = chain(10 if small else OPERATIONS)
    x, = problem.given("float32", small)
    loss, theirs = problem.loss(np), problem.loss(jnp)
    # jax remembers jaxprs by the identity of the function, so every call is given a function of its own.
    return {"fxgrad": Peer(lambda: record(x, loss), lambda traced: apply_program(traced.program, [*traced.captured, x]),
                           prepare=None if again else forget_programs),
            "jax": Peer(lambda: jax.make_jaxpr(lambda x: theirs(x))(x), lambda jaxpr: jaxpr_as_fun(jaxpr)(x),
                        prepare=None if again else nothing)}


def transforming(small: bool) -> Peers:
    """From a recorded program to the program of its gradient."""
    problem = chain(10 if small else OPERATIONS)
    x, = problem.given("float32", small)
    loss = problem.loss(np)
    recorded: list[TracedCall] = []
    jaxpr = jax.make_jaxpr(problem.loss(jnp))(x)

    def prepare() -> None:
        forget_programs()
        recorded[:] = [record(x, loss)]

    def transform() -> Any:
        traced = recorded[0]
        return grad_program(traced.program, traced.wrt(), with_outputs=False)

    def theirs() -> Any:
        return jax.make_jaxpr(jax.grad(lambda x: jaxpr_as_fun(jaxpr)(x)[0]))(x)

    return {"fxgrad": Peer(transform, lambda derived: derived([*recorded[0].captured, x]), prepare),
            "jax": Peer(theirs, lambda gradient: jaxpr_as_fun(gradient)(x), nothing)}


def lowering(gradient: bool, small: bool) -> Peers:
    """Tracing and lowering a function, or its gradient, for XLA; the function is made anew for each call."""
    problem = chain(10 if small else OPERATIONS)
    x, = problem.given("float32", small)

    def ours() -> Any:
        loss = problem.loss(np)
        return fxgrad.jit(fxgrad.grad(loss) if gradient else loss).lower(x)

    def theirs() -> Any:
        loss = problem.loss(jnp)
        return jax.jit(jax.grad(loss) if gradient else loss).lower(x)

    def value(lowered: Any) -> Any:
        return lowered.compile()(x)

    return {"fxgrad": Peer(ours, value, forget_programs), "jax.jit": Peer(theirs, value, nothing)}


def lowering_inner(depth: int, small: bool) -> Peers:
    """Tracing and lowering a function that calls a compiled one 100 times, or twice at each of some levels."""
    def of_library(jit: Any, xp: Any) -> Callable[[], Any]:
        def call() -> Any:
            function = jit(lambda x: xp.sin(x) * x)
            for count in [2] * (min(depth, 3) if small else depth) or [3 if small else 100]:
                function = jit(functools.partial(repeated, function, count))
            return function.lower(x)
        return call

    x = np.linspace(0.0, 1.0, 8, dtype="float32")
    # Not compiled to be compared: XLA unfolds the calls.
    return {"fxgrad": Peer(of_library(fxgrad.jit, np), None, forget_programs),
            "jax.jit": Peer(of_library(jax.jit, jnp), None, nothing)}


def repeated(function: Callable[[Any], Any], count: int, x: Any) -> Any:
    """`function` of its own result, so many times."""
    for _ in range(count):
        x = function(x)
    return x


WORKLOADS = [
    Workload("record: first time", f"Recording {OPERATIONS} operations with their source lines, for the first time",
             functools.partial(recording, False), (Absolute(5.0, OPERATIONS, "operation"),)),
    Workload("record: again", f"Recording {OPERATIONS} operations that were seen before",
             functools.partial(recording, True), (Absolute(1.0, OPERATIONS, "operation"),)),
    Workload("transform: gradient", f"The program of the gradient of a recorded program of {OPERATIONS} operations",
             transforming, (Absolute(15.0, OPERATIONS, "operation"),)),
    Workload("lower: function", f"Tracing and lowering {OPERATIONS} operations",
             functools.partial(lowering, False), (Ratio("jax.jit", 1.0),)),
    Workload("lower: gradient", f"Tracing and lowering the gradient of {OPERATIONS} operations",
             functools.partial(lowering, True), (Ratio("jax.jit", 0.6),)),
    Workload("lower: 100 inner jits", "Tracing and lowering a function that calls a compiled one 100 times",
             functools.partial(lowering_inner, 0), (Ratio("jax.jit", 1.0),)),
    Workload("lower: jits nested 12 deep", "Tracing and lowering compiled functions, each calling the next twice",
             functools.partial(lowering_inner, 12), (Ratio("jax.jit", 1.0),)),
]
