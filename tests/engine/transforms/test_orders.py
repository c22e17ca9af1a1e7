"""Derivatives of high orders of one number: they are jax's, and their programs grow with a power of the order."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxgrad
from fxgrad.extend import inner_first

pytestmark = pytest.mark.slow

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "product": lambda xp, x: xp.sin(x) * xp.exp(x) * x, "tanh": lambda xp, x: xp.tanh(x),
    "composition": lambda xp, x: xp.sin(xp.exp(x)), "logarithm": lambda xp, x: xp.log(1.0 + x * x),
    "quotient": lambda xp, x: x / (1.0 + x * x), "powers": lambda xp, x: x ** 7 + 0.1 * x ** 2.5}


def nested(derive: Callable[[Any], Any], function: Any, order: int) -> Any:
    for _ in range(order):
        function = derive(function)
    return function


def by_tangents(ones: Callable[[Any], Any], function: Any) -> Any:
    return lambda x: fxgrad.jvp(function, (x,), (ones(x),))[1]


def equations(function: Any, x: Any) -> int:
    return sum(len(each.equations) for each in inner_first(fxgrad.make_program(function)(x)))


DERIVATIVES: dict[str, Callable[[Any], Any]] = {
    "grad": fxgrad.grad, "jvp with 1.0": functools.partial(by_tangents, lambda _: 1.0),
    "jvp with ones_like": functools.partial(by_tangents, np.ones_like)}


@pytest.mark.parametrize("how", DERIVATIVES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_row_a8_programs_grow_with_the_square_of_the_order(name: str, how: str) -> None:
    """That of tanh grows a little faster: an order adds products of all orders before. The tapes nested doubled it."""
    function = functools.partial(FUNCTIONS[name], np)
    counts = [equations(nested(DERIVATIVES[how], function, order), 0.7) for order in (4, 8)]
    assert counts[1] <= (5 if name == "tanh" else 4) * counts[0] + 4, counts


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_row_a8_tangents_of_ones_are_as_small_as_the_number(dtype: str) -> None:
    function, x = functools.partial(FUNCTIONS["composition"], np), np.asarray(0.7, dtype)[()]
    counts = {equations(nested(DERIVATIVES[how], function, 8), x) for how in ("jvp with 1.0", "jvp with ones_like")}
    assert len(counts) == 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_row_a8_values_are_jaxs(name: str) -> None:
    ours, theirs = (functools.partial(FUNCTIONS[name], xp) for xp in (np, jnp))
    for order in range(1, 6):
        with jax.enable_x64(True):
            expected = float(nested(jax.grad, theirs, order)(0.7))
        for how, derive in DERIVATIVES.items():
            derivative = nested(derive, ours, order)
            for run in derivative, fxgrad.jit(derivative), lambda x, d=derivative: fxgrad.vmap(d)(np.array([x]))[0]:
                np.testing.assert_allclose(run(0.7), expected, rtol=1e-11, atol=1e-11, err_msg=f"{how}, {order}")


def test_slopes_of_one_argument_among_several() -> None:
    def function(x: Any, y: Any) -> Any:
        return np.sin(x * y) + y ** 3
    mixed = fxgrad.grad(fxgrad.grad(function), argnums=1)
    x, y = 0.3, 1.1
    np.testing.assert_allclose(mixed(x, y), np.cos(x * y) - x * y * np.sin(x * y), rtol=1e-14)
    value, slope = fxgrad.value_and_grad(fxgrad.grad(function), argnums=1)(x, y)
    np.testing.assert_allclose([value, slope], [y * np.cos(x * y), mixed(x, y)], rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_slopes_keep_the_dtype(dtype: str) -> None:
    x = np.asarray(0.5, fxgrad.numpy.dtype(dtype))[()]
    second = fxgrad.grad(fxgrad.grad(lambda x: x ** 3))(x)
    assert second.dtype == x.dtype
    assert float(second) == 3.0


def test_a_rule_of_the_users_stays_in_reverse_mode() -> None:
    """Its backward pass need not have a transpose: here it takes a maximum of the cotangent."""
    @fxgrad.custom_vjp
    def clipped(x: Any) -> Any:
        return x * x
    clipped.defvjp(lambda x: (clipped(x), x), lambda x, cotangent: (np.maximum(cotangent, 0.5) * 2.0 * x,))
    np.testing.assert_allclose(fxgrad.grad(fxgrad.grad(clipped))(1.5), 2.0)


def test_wrappers_that_copy_attributes_are_other_functions() -> None:
    slope = fxgrad.grad(np.sin)

    @functools.wraps(slope)
    def doubled(x: Any) -> Any:
        return 2.0 * slope(x)
    np.testing.assert_allclose(fxgrad.grad(doubled)(0.3), -2.0 * np.sin(0.3), rtol=1e-15)
