"""Functions of a vector of three that are written with control flow, for fxgrad and for jax alike."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp

import fxgrad
import fxgrad.numpy as fnp

FXGRAD = SimpleNamespace(np=fnp, lax=fxgrad.lax)
JAX = SimpleNamespace(np=jnp, lax=jax.lax)
Base = Callable[[Any, Any], Any]


def cond_with_closure(lib: Any, x: Any) -> Any:
    out = lib.lax.cond(x[0] > 0, lambda a: {"r": lib.np.sin(a) * x, "s": a.sum()},
                       lambda a: {"r": lib.np.exp(a) * 2.0, "s": (a * a).sum()}, x)
    return out["r"].sum() * out["s"]


def switch(lib: Any, x: Any) -> Any:
    return lib.lax.switch((x[0] > 0) * 2, [lambda a: a ** 2, lambda a: a ** 3, lambda a: lib.np.cos(a) * x[1]], x).sum()


def scan_of_containers(lib: Any, x: Any) -> Any:
    def step(carry: Any, y: Any) -> Any:
        h, n = carry
        h = lib.np.tanh(h * y + x)
        return (h, n + 1), {"a": h.sum(), "b": y}
    (h, n), ys = lib.lax.scan(step, (x * 2.0, 0), lib.np.stack([x, x + 1, x * x, x]), reverse=True)
    return h.sum() + ys["a"].sum() * n + ys["b"][0].sum()


def scan_with_constant_work(lib: Any, x: Any) -> Any:
    def step(h: Any, y: Any) -> Any:
        weights = lib.np.sin(lib.np.outer(x, x))  # the same at every step
        return lib.np.tanh(weights @ h) + y, None
    return lib.lax.scan(step, x, lib.np.stack([x, x * x]), unroll=2)[0].sum()


def while_by_value(lib: Any, x: Any) -> Any:
    return lib.lax.while_loop(
        lambda c: (c[0] < 3.5) & (c[2] < 50),
        lambda c: (c[0] + lib.np.abs(x).sum() * 0.3, lib.np.sin(c[1]) + x, c[2] + 1), (x[0] * 0.0, x, 0))[1].sum()


def while_without_steps(lib: Any, x: Any) -> Any:
    return lib.lax.while_loop(lambda c: c[0] > 1e9, lambda c: lib.np.sin(c), x * x).sum()


def for_with_known_bounds(lib: Any, x: Any) -> Any:
    return lib.lax.fori_loop(1, 5, lambda i, c: lib.np.sin(c) + x * i, x).sum()


def for_with_traced_bounds(lib: Any, x: Any) -> Any:
    steps = (lib.np.abs(x[0]) * 3 + 1.5).astype("int32")
    return lib.lax.fori_loop(0, steps, lambda i, c: lib.np.sin(c) + x * i, x).sum()


def mapped_in_batches(lib: Any, x: Any) -> Any:
    return (lib.lax.map(lambda a: {"k": lib.np.sin(a) * x.sum()}, x, batch_size=2)["k"] ** 2).sum()


def linear_recurrence(lib: Any, x: Any) -> Any:
    def join(p: Any, q: Any) -> Any:
        return p[0] * q[0], q[0] * p[1] + q[1]
    pairs = lib.np.concatenate([x, x]), lib.np.concatenate([x, x * x])
    return lib.lax.associative_scan(join, pairs, reverse=True)[1].sum()


def root(lib: Any, x: Any) -> Any:
    ones = x * 0 + 1.0
    return lib.lax.custom_root(
        lambda y: y ** 3 - x ** 2 - 1.0, ones,
        lambda f, guess: lib.lax.fori_loop(0, 30, lambda i, y: y - f(y) / (3 * y * y), guess),
        lambda g, y: y / g(ones)).sum()


def linear_system(lib: Any, x: Any) -> Any:
    matrix = lib.np.diag(x ** 2 + 1.0) + 0.1 * lib.np.outer(x, lib.np.array([1.0, 2.0, 3.0], "float64"))

    def iterate(matvec: Any, b: Any) -> Any:
        return lib.lax.fori_loop(0, 200, lambda i, y: y + 0.2 * (b - matvec(y)), b)
    return (lib.lax.custom_linear_solve(lambda v: matrix @ v, x, iterate, transpose_solve=iterate) ** 2).sum()


def nested(lib: Any, x: Any) -> Any:
    def step(c: Any, y: Any) -> Any:
        c = lib.lax.cond(y > 0, lambda c: lib.lax.fori_loop(0, 3, lambda i, c: lib.np.sin(c) * y + c, c),
                         lambda c: lib.lax.while_loop(lambda z: z[1] < 4, lambda z: (lib.np.cos(z[0]) * x, z[1] + 1),
                                                      (c, 0))[0], c)
        return c, c.sum()
    c, ys = lib.lax.scan(step, x, x)
    return (c * c).sum() + ys.sum()


BASES: dict[str, Base] = {function.__name__: function for function in (
    cond_with_closure, switch, scan_of_containers, scan_with_constant_work, while_by_value, while_without_steps,
    for_with_known_bounds, for_with_traced_bounds, mapped_in_batches, linear_recurrence, root, linear_system, nested)}
