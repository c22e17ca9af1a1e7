"""What entries agree on by speaking over their axis, out of operations that hold programs: it has no batch axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax

X = np.array([0.5, -1.0, 2.0, 3.0])


def total(x: Any) -> Any:
    return lax.psum(x * x, "i")


@fxgrad.custom_jvp
def with_tangent(x: Any) -> Any:
    return total(x)


@with_tangent.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return total(*primals), lax.psum(2 * primals[0] * tangents[0], "i")


@fxgrad.custom_vjp
def with_cotangent(x: Any) -> Any:
    return total(x)


with_cotangent.defvjp(lambda x: (total(x), x), lambda x, cotangent: (2 * x * lax.psum(cotangent, "i"),))

HOLDING: dict[str, Callable[[Any], Any]] = {
    "jit": fxgrad.jit(total),
    "checkpoint": fxgrad.checkpoint(total),
    "named call": fxgrad.named_call(total, name="total"),
    "custom_jvp": with_tangent,
    "custom_vjp": with_cotangent,
    "cond": lambda x: lax.cond(lax.psum(x, "i") > 0, total, lambda x: 2 * total(x), x),
    "switch": lambda x: lax.switch(1, [lambda x: 0.0, total], x),
    "scan": lambda x: lax.scan(lambda c, y: (c + total(x) * y, None), 0.0, np.array([0.25, 0.75]))[0],
    "fori_loop": lambda x: lax.fori_loop(0, 2, lambda _, c: c + 0.5 * total(x), 0.0),
    "map": lambda x: lax.map(lambda y: y * total(x), np.array([0.25, 0.75])).sum(),
    "custom_root": lambda x: lax.custom_root(lambda v: v - total(x), 0.0, lambda f, guess: guess - f(guess),
                                             lambda g, y: y / g(1.0)),
    "linear solve": lambda x: lax.custom_linear_solve(lambda v: 2 * v, 2 * total(x), lambda _, b: b / 2,
                                                      symmetric=True),
    "jit in checkpoint in scan": lambda x: lax.scan(
        lambda c, _: (fxgrad.checkpoint(fxgrad.jit(total))(x) + 0 * c, None), 0.0, length=1)[0],
}


@pytest.mark.parametrize("how", HOLDING)
def test_one_value_for_all_entries_and_its_gradient(how: str) -> None:
    once = fxgrad.vmap(HOLDING[how], axis_name="i", out_axes=None)
    for function in (once, fxgrad.jit(once)) if how == "custom_vjp" else (once,):
        value, gradient = fxgrad.value_and_grad(function)(X)
        np.testing.assert_allclose(value, (X * X).sum(), rtol=1e-14)
        np.testing.assert_allclose(gradient, 2 * X, rtol=1e-14)


def test_other_entries_of_an_operation_with_a_rule_differ() -> None:
    """A rule may say of an output that depends on nothing that it does: only speaking over the axis makes it one."""
    @fxgrad.custom_jvp
    def pretends(x: Any) -> Any:
        return fnp.zeros(())

    pretends.defjvp(lambda primals, tangents: (pretends(*primals), tangents[0]))
    np.testing.assert_array_equal(fxgrad.grad(lambda x: fxgrad.vmap(pretends)(x).sum())(X), np.ones(4))

    @fxgrad.custom_jvp
    def both(x: Any) -> Any:
        return x - lax.pmean(x, "i"), lax.pmean(x, "i")

    both.defjvps(lambda tangent, out, x: (tangent - lax.pmean(tangent, "i"), lax.pmean(tangent, "i")))
    apart, mean = fxgrad.vmap(both, axis_name="i", out_axes=(0, None))(X)
    np.testing.assert_allclose(apart + mean, X, rtol=1e-12)
    np.testing.assert_allclose(fxgrad.jacobian(lambda x: fxgrad.vmap(both, axis_name="i", out_axes=(0, None))(x)[1])(X),
                               np.full(4, 0.25), rtol=1e-12)
