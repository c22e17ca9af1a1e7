"""Calling compiled functions: what it takes to get from Python to XLA and back, and closures made anew."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import fxgrad
import fxgrad.numpy as fnp
from benchmarks.problems import PROBLEMS
from benchmarks.workload import AGAIN, Bar, Peer, Peers, Ratio, Workload

Call = Callable[[], Any]
SCOPE = "x64 scope"


def x64_scope() -> None:
    """Entering and leaving the scope in which jax keeps 64-bit dtypes."""
    with jax.enable_x64(True):
        pass


def dispatch(make: Callable[[Any, Any, bool], Call], small: bool) -> Peers:
    """A call of what `make` compiles with a given `jit` and namespace."""
    return {"fxgrad": Peer(make(fxgrad.jit, fnp, small)), "jax.jit": Peer(make(jax.jit, jnp, small)),
            AGAIN: Peer(make(jax.jit, jnp, small)), SCOPE: Peer(x64_scope, result=None)}


def of_arrays(count: int, dtype: str, namespace: Any, jit: Any, xp: Any, small: bool) -> Call:  # noqa: ARG001
    """A sum of so many small arrays, from jax or from NumPy."""
    arrays = [namespace.ones(8, dtype) for _ in range(count)]
    compiled = jit(lambda *xs: sum(xs[1:], xs[0] * 2.0))
    return lambda: compiled(*arrays)


def of_leaves(jit: Any, xp: Any, small: bool) -> Call:
    """A step of 100 parameters in nested dictionaries."""
    layers = {f"layer{number}": {"w": jnp.ones(8, "float32"), "b": jnp.ones(8, "float32")}
              for number in range(3 if small else 50)}
    compiled = jit(lambda p: {layer: {name: x - 0.1 * xp.sin(x) for name, x in both.items()}
                              for layer, both in p.items()})
    return lambda: compiled(layers)


def of_static(jit: Any, xp: Any, small: bool) -> Call:  # noqa: ARG001
    """An array, a static number and a static keyword."""
    x = jnp.ones(8, "float32")
    compiled = jit(lambda x, n, *, mode: xp.sin(x) * n if mode == "sine" else x, static_argnums=1,
                   static_argnames="mode")
    return lambda: compiled(x, 3, mode="sine")


def of_number(jit: Any, xp: Any, small: bool) -> Call:  # noqa: ARG001
    """An array and a Python float."""
    x = jnp.ones(8, "float32")
    compiled = jit(lambda x, rate: xp.sin(x) * rate)
    return lambda: compiled(x, 0.1)


def of_donated(jit: Any, xp: Any, small: bool) -> Call:  # noqa: ARG001
    """A state that is donated, and comes back."""
    state = [jnp.ones(8, "float32")]
    compiled = jit(lambda x: xp.cos(x), donate_argnums=0)

    def call() -> Any:
        state[0] = compiled(state[0])
        return state[0]
    return call


def of_devices(explicit: bool, jit: Any, xp: Any, small: bool) -> Call:  # noqa: ARG001
    """A step of a weight of which each device has a part, with donation.

    Each is waited for: steps that nobody waits for queue where devices are more than cores, and what is measured then
    is the queue.
    """
    kind = AxisType.Explicit if explicit else AxisType.Auto
    mesh = jax.make_mesh((jax.device_count(),), ("data",), (kind,))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    state, x = [jax.device_put(np.ones((64, 64), "float32"), rows)], jax.device_put(np.ones((64, 64), "float32"), rows)
    compiled = jit(lambda w, x: xp.cos(w) * x, donate_argnums=0)

    def call() -> Any:
        state[0] = compiled(state[0], x)
        return state[0].block_until_ready()
    return call


def of_closure(gradient: bool, transforms: Any, xp: Any, small: bool) -> Call:
    """A closure that is made, compiled and called anew each time."""
    problem = PROBLEMS["MLP"]
    parameters, x, y = problem.given("float32", small)
    parameters, loss = jax.tree.map(jnp.asarray, parameters), problem.loss(xp)
    numbers = jnp.ones(8, "float32")

    def call() -> Any:
        if gradient:
            return transforms.jit(transforms.grad(lambda p: loss(p, x, y)))(parameters)
        return transforms.jit(lambda v: xp.sum(xp.sin(v) * numbers))(numbers)
    return call


def closures(gradient: bool, small: bool) -> Peers:
    """Closures made anew, with both libraries."""
    return {"fxgrad": Peer(of_closure(gradient, fxgrad, fnp, small)),
            "jax.jit": Peer(of_closure(gradient, jax, jnp, small))}


def arrays(count: int, dtype: str, namespace: Any) -> Callable[[bool], Peers]:
    """The peers of a call with so many arrays."""
    return functools.partial(dispatch, functools.partial(of_arrays, count, dtype, namespace))


BARS: tuple[Bar, ...] = (Ratio("jax.jit", 1.05, allowance=SCOPE),)

WORKLOADS = [
    Workload("dispatch: 1 array", "Calling a compiled function of one jax array of 8 numbers",
             arrays(1, "float32", jnp), BARS, jitted=True),
    Workload("dispatch: 10 arrays", "Calling a compiled function of 10 jax arrays", arrays(10, "float32", jnp), BARS,
             jitted=True),
    Workload("dispatch: 100 arrays", "Calling a compiled function of 100 jax arrays", arrays(100, "float32", jnp), BARS,
             jitted=True),
    Workload("dispatch: pytree of 100 leaves", "Calling a compiled function of 100 arrays in nested dictionaries",
             functools.partial(dispatch, of_leaves), BARS, jitted=True),
    Workload("dispatch: 1 NumPy array", "Calling a compiled function of one NumPy array, float32",
             arrays(1, "float32", np), BARS, jitted=True),
    Workload("dispatch: 10 NumPy arrays", "Calling a compiled function of 10 NumPy arrays, float32",
             arrays(10, "float32", np), BARS, jitted=True),
    Workload("dispatch: 1 NumPy array, float64", "Calling a compiled function of one NumPy array, float64",
             arrays(1, "float64", np), BARS, wide=True, jitted=True),
    Workload("dispatch: a Python float", "Calling a compiled function of a jax array and a Python float",
             functools.partial(dispatch, of_number), BARS, jitted=True),
    Workload("dispatch: static arguments", "Calling a compiled function of a jax array and two static arguments",
             functools.partial(dispatch, of_static), BARS, jitted=True),
    Workload("dispatch: donation", "Calling a compiled function that takes its argument's memory",
             functools.partial(dispatch, of_donated), BARS, jitted=True),
    Workload("dispatch: 8 devices", "A compiled step of two arrays on 8 devices, with donation, called and waited for",
             functools.partial(dispatch, functools.partial(of_devices, False)), BARS, jitted=True, devices=8),
    Workload("dispatch: 8 devices, Explicit axes", "The same on jax's default mesh, where results are given back on it",
             functools.partial(dispatch, functools.partial(of_devices, True)), jitted=True, devices=8),
    Workload("closure: small", "jit of a closure made anew at every call, one line of three operations",
             functools.partial(closures, False), (Ratio("jax.jit", 1 / 100),), jitted=True),
    Workload("closure: gradient of MLP", "jit of the gradient of a closure made anew at every call",
             functools.partial(closures, True), (Ratio("jax.jit", 1 / 100),), jitted=True),
]
