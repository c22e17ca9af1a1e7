"""Planted causes of retraces and recompilations: the calls, and the cause that the report must name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax

CASES: dict[str, Planted] = {}


class Planted(NamedTuple):
    """Calls whose last one is retraced or recompiled: `kind` and `what` of the cause; None if nothing is new."""

    run: Callable[[], Any]
    kind: str | None
    what: str


def planted(kind: str | None, what: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Enters a case."""
    def enter(run: Callable[[], Any]) -> Callable[[], Any]:
        CASES[run.__name__.replace("_", " ")] = Planted(run, kind, what)
        return run
    return enter


def total(x: Any, y: Any = 1.0) -> Any:
    return np.sum(x * y)


def twice(function: Callable[..., Any], *calls: Any) -> None:
    for args in calls:
        function(*args) if isinstance(args, tuple) else function(args)


X = np.ones(32, "float32")


@planted("shape", "x.shape[0]: 32 -> 48")
def size_of_an_axis() -> None:
    twice(fxgrad.jit(total), X, np.ones(48, "float32"))


@planted("shape", "x.shape: (32,) -> (4, 8)")
def number_of_axes() -> None:
    twice(fxgrad.jit(total), X, X.reshape(4, 8))


@planted("dtype", "x.dtype: float32 -> float64")
def dtype() -> None:
    twice(fxgrad.jit(total), X, X.astype("float64"))


@planted("weak type", "y: a Python number (float64) -> f32[]")
def python_number_or_array() -> None:
    twice(fxgrad.jit(total), (X, 2.0), (X, np.array(2.0, "float32")))


@planted("static value", "n: 2 -> 3")
def static_value() -> None:
    twice(fxgrad.jit(lambda x, n: np.sum(x ** n), static_argnums=1), (X, 2), (X, 3))


@planted("static value", "axis: 0 -> None")
def static_keyword() -> None:
    compiled = fxgrad.jit(lambda x, *, axis: np.sum(x, axis=axis), static_argnames="axis")
    compiled(X, axis=0)
    compiled(X, axis=None)


@planted("structure", "params: params.b came")
def keys_of_a_dictionary() -> None:
    twice(fxgrad.jit(lambda params: sum(map(np.sum, params.values()))), {"w": X}, {"w": X, "b": X})


@planted("structure", "mask: mask came")
def none_or_array() -> None:
    twice(fxgrad.jit(lambda x, mask=None: x if mask is None else x * mask), (X, None), (X, X))


@planted("structure", "xs: xs[2] came")
def length_of_a_list() -> None:
    twice(fxgrad.jit(lambda xs: sum(map(np.sum, xs))), [X, X], [X, X, X])


@planted("new function", "jit of total was made anew, with the same code")
def jit_at_every_call() -> None:
    for _ in range(2):
        fxgrad.jit(total)(X)


@planted("new function", "was made anew, with the same code")
def lambda_at_every_call() -> None:
    for _ in range(2):
        fxgrad.jit(lambda x: np.sin(x) * 2.0)(X)


@planted("new partial", "jit of total was made anew, with the same code")
def partial_at_every_call() -> None:
    for _ in range(2):
        fxgrad.jit(functools.partial(total, y=2.0))(X)


@planted("partial", "y: 2.0 -> 3.0")
def argument_of_a_partial() -> None:
    for y in (2.0, 3.0):
        fxgrad.jit(functools.partial(total, y=y))(X)


@planted("closure", "scale: 2.0 -> 3.0")
def number_closed_over() -> None:
    for scale in (2.0, 3.0):
        def scaled(x: Any) -> Any:
            return x * scale  # noqa: B023  (that is the point)
        fxgrad.jit(scaled)(X)


@planted("closure", "table: f32[32] -> f32[1]")
def array_closed_over() -> None:
    for table in (X, X[:1]):
        def scaled(x: Any) -> Any:
            return x * table  # noqa: B023  (that is the point)
        fxgrad.jit(scaled)(X)


@planted("setting", "fxgrad's default dtype: float32 -> float64")
def default_dtype() -> None:
    compiled = fxgrad.jit(lambda x: x + fnp.ones(32))
    compiled(X)
    with fxgrad.default_dtype("float64"):
        compiled(X)


@planted("setting", "jax_default_matmul_precision: None -> float32")
def setting_of_jax() -> None:
    compiled = fxgrad.jit(lambda x: x @ x)
    compiled(X)
    with jax.default_matmul_precision("float32"):
        compiled(X)


@planted("setting", "jax_enable_x64: False -> True")
def mode_of_64_bits() -> None:
    compiled = fxgrad.jit(total)
    compiled(X)
    with jax.enable_x64(True):
        compiled(X)


@planted("sharding", "x: device 0 -> device 1")
def another_device() -> None:
    twice(fxgrad.jit(total), *(jax.device_put(X, device) for device in jax.devices()[:2]))


@planted("sharding", " on mesh data=2")
def sharding_on_a_mesh() -> None:
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:2])
    spec = jax.sharding.PartitionSpec
    twice(fxgrad.jit(total), *(jax.device_put(X, jax.sharding.NamedSharding(mesh, each))
                               for each in (spec(), spec("data"))))


@planted("forgotten", "what was known of it had been forgotten")
def caches_cleared() -> None:
    compiled = fxgrad.jit(total)
    compiled(X)
    compiled.clear_cache()
    compiled(X)


def choose(x: Any) -> Any:
    if x > 0:
        return x * x
    return np.sin(x)


@planted("control flow", "Python took another branch on a value")
def branch_under_grad() -> None:
    twice(fxgrad.grad(choose), 1.0, -1.0)


@planted("shape", "x.shape[0]: 32 -> 48")
def shape_under_grad() -> None:
    twice(fxgrad.grad(total), X, np.ones(48, "float32"))


@planted("shape", "x.shape[0]: 32 -> 48")
def shape_in_a_jitted_function_of_grad() -> None:
    inner = fxgrad.jit(total)
    twice(fxgrad.grad(lambda x: inner(x) * 2.0), X, np.ones(48, "float32"))


@planted("shape", "x.shape[0]: 32 -> 48")
def shape_under_jit_of_vmap_of_grad() -> None:
    twice(fxgrad.jit(fxgrad.vmap(fxgrad.grad(np.sin))), X, np.ones(48, "float32"))


steps = {"count": 1}


@planted("python", "the function recorded something else")
def global_of_the_module() -> None:
    slope = fxgrad.grad(lambda x: functools.reduce(lambda value, _: np.sin(value), range(steps["count"]), x))
    for count in (1, 2):
        steps["count"] = count
        slope(1.0)


@planted(None, "")
def order_of_keywords() -> None:
    compiled = fxgrad.jit(lambda *, x, y: x * y)
    compiled(x=X, y=X)
    compiled(y=X, x=X)


@planted(None, "")
def other_values() -> None:
    compiled = fxgrad.jit(total)
    twice(compiled, (X, 1.0), (X * 2, 5.0), (X, 7.0))
    twice(fxgrad.jit(lambda x: lax.cond(x[0] > 0, np.sin, np.cos, x)), X, -X)


@planted(None, "")
def other_values_under_grad() -> None:
    slope = fxgrad.grad(choose)
    twice(slope, 1.0, 2.0, 3.0)
