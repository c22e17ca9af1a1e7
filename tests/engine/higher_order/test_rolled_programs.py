"""Rolled programs compute the same: five models, forward and backward, as loops and as calls, by NumPy, XLA and jax."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.repeated_models import models

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import tree_util

DEPTH = 6
MODELS = models(DEPTH)


def number_of_equations(program: Any) -> int:
    return len(program.equations) + sum(
        number_of_equations(inner) for inner in {id(inner): inner for equation in program.equations
                                                 for inner in equation.programs}.values())


@functools.cache
def expected(name: str) -> tuple[Any, Any]:
    """The value and the gradient in the first argument, by jax."""
    model = MODELS[name]
    value, slope = jax.jit(jax.value_and_grad(functools.partial(model.function, jnp)))(*model.arguments(DEPTH))
    return np.asarray(value), tree_util.tree_map(np.asarray, slope)


def assert_close(found: Any, wanted: Any) -> None:
    for one, other in zip(tree_util.tree_leaves(found), tree_util.tree_leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=2e-4, atol=2e-4 * max(1e-3, np.abs(other).max()))


@pytest.mark.slow
@pytest.mark.parametrize("by", ["scan", "call", None])
@pytest.mark.parametrize("name", [*MODELS])
def test_values_and_gradients_are_those_of_jax_rolled_before_and_after_differentiation(name: str, by: Any) -> None:
    model = MODELS[name]
    function, args = functools.partial(model.function, fnp), model.arguments(DEPTH)
    value, slope = expected(name)
    assert_close(fxgrad.roll(function, by=by)(*args), value)
    assert_close(fxgrad.roll(fxgrad.value_and_grad(function), by=by)(*args), (value, slope))
    assert_close(fxgrad.value_and_grad(fxgrad.roll(function, by=by))(*args), (value, slope))
    assert_close(fxgrad.jit(fxgrad.roll(fxgrad.value_and_grad(function), by=by))(*args), (value, slope))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MODELS])
def test_a_rolled_gradient_grows_with_the_depth_by_reads_of_separate_arrays_alone(name: str) -> None:
    sizes = {}
    for depth in (6, 24):
        model = models(depth)[name]
        plain = fxgrad.grad(functools.partial(model.function, fnp))
        sizes[depth] = [number_of_equations(fxgrad.make_program(function)(*model.arguments(depth)))
                        for function in (plain, fxgrad.roll(plain, by="scan"), fxgrad.roll(plain, by="call"))]
    unrolled, looped, called = (large - small for small, large in zip(sizes[6], sizes[24], strict=True))
    separate = {"residual MLP": 6, "transformer": 10}.get(name, 0)  # two reads for each array of a layer
    assert looped <= 18 * separate + (2 if name == "Adam" else 0), (sizes, looped)
    assert called <= unrolled / 3


def test_scans_read_stacked_parameters_where_they_lie() -> None:
    model = MODELS["stacked MLP"]
    args = model.arguments(DEPTH)
    program = fxgrad.make_program(fxgrad.roll(functools.partial(model.function, fnp)))(*args)
    assert [str(each.primitive) for each in program.equations] == ["scan", "mul", "reduce_sum"]
    loop = program.equations[0]
    assert set(program.inputs) >= {atom for atom in loop.inputs if hasattr(atom, "aval")}
    backward = fxgrad.make_program(fxgrad.roll(fxgrad.grad(functools.partial(model.function, fnp))))(*args)
    loops = [each for each in backward.equations if str(each.primitive) == "scan"]
    assert [(each.params["length"], each.params["reverse"]) for each in loops] == [
        (DEPTH - 1, False), (DEPTH - 1, True)]
    assert not any(str(each.primitive) in ("pad", "stack", "rev") for each in backward.equations)


def test_parameters_that_lie_apart_stay_where_they_are() -> None:
    model = MODELS["residual MLP"]
    program = fxgrad.make_program(fxgrad.roll(functools.partial(model.function, fnp)))(*model.arguments(DEPTH))
    calls = [each for each in program.equations if each.programs]
    assert [str(each.primitive) for each in calls] == ["jit_call"] * DEPTH
    assert len({id(each.params["program"]) for each in calls}) == 1
    assert {each.params["name"] for each in calls} == {"_normalised_block"}


@pytest.mark.slow
@pytest.mark.parametrize("by", ["scan", "call"])
def test_rolled_functions_compose(by: str) -> None:
    model = MODELS["stacked MLP"]
    stack, x = model.arguments(DEPTH)
    plain = functools.partial(model.function, fnp)
    rolled = fxgrad.roll(plain, by=by)
    xs = np.stack([x, 2 * x, x - 1])
    assert_close(fxgrad.vmap(rolled, in_axes=(None, 0))(stack, xs), np.asarray(
        fxgrad.vmap(plain, in_axes=(None, 0))(stack, xs)))
    assert_close(fxgrad.roll(fxgrad.vmap(plain, in_axes=(None, 0)), by=by)(stack, xs), np.asarray(
        fxgrad.vmap(plain, in_axes=(None, 0))(stack, xs)))
    assert_close(fxgrad.jvp(rolled, (stack, x), (stack, x)), tree_util.tree_map(
        np.asarray, fxgrad.jvp(plain, (stack, x), (stack, x))))

    def slope_squared(function: Any) -> Any:
        return lambda x: fnp.sum(fxgrad.grad(function, argnums=1)(stack, x) ** 2)

    assert_close(fxgrad.grad(slope_squared(rolled))(x), np.asarray(fxgrad.grad(slope_squared(plain))(x)))
    in_loop = fxgrad.lax.scan(lambda carry, x: (carry + rolled(stack, x), carry), np.float32(0), xs)[0]
    assert_close(in_loop, np.asarray(sum(plain(stack, x) for x in xs)))
    chosen = fxgrad.lax.cond(True, lambda x: rolled(stack, x), lambda x: fnp.sum(x), x)
    assert_close(chosen, np.asarray(plain(stack, x)))
    assert_close(fxgrad.checkpoint(rolled)(stack, x), np.asarray(plain(stack, x)))
