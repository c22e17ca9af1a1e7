"""Derivatives of `fxgrad.nan_safe` by ordinary products first: what is looked at, what is computed again, and when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.engine.core.program import Program
from fxgrad.engine.executors.numpy import finite_outputs, run_reference
from fxgrad.engine.executors.speculative import (
    MATRICES,
    _cuts,
    has_products,
    nan_check_outputs,
    propagates_nans,
    relax_products,
    speculation_of,
)
from fxgrad.engine.higher_order.call import inline_calls
from fxgrad.engine.higher_order.safe_call import safe_call_p
from tests.support.masked_models import Model, any_model, spoilt
from tests.support.tiers import examples

random = np.random.default_rng(0)
PARAMS = {"W1": random.normal(size=(5, 7)), "b1": np.zeros(7), "W2": random.normal(size=(7, 3)), "b2": np.zeros(3)}
X = random.normal(size=(6, 5))
MASK = np.array([1.0, 1, 0, 1, 0, 1])
BAD = X.copy()
BAD[2], BAD[4, 1] = np.nan, np.inf
"""X with what is no number in rows that the mask takes away."""
Values = dict[str, Any]


def loss(params: Values, x: Any, mask: Any = MASK) -> Any:
    hidden = fnp.tanh(x @ params["W1"] + params["b1"])
    return fnp.sum(fnp.where(mask[:, None] > 0, fnp.exp(hidden @ params["W2"] + params["b2"]), 0.0) ** 2)


def slopes(params: Values) -> Values:
    """The right ones, of rows without a NaN."""
    found: Values = fxgrad.grad(loss)(params, np.where(MASK[:, None] > 0, X, 0.0))
    return found


safely = fxgrad.grad(fxgrad.nan_safe(loss))


def equal(found: Values, expected: Values, tolerance: float = 1e-9) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(np.asarray(found[name]), value, rtol=tolerance, atol=tolerance)


def program_of(function: Callable[..., Any], *args: Any) -> Program:
    made: Program = fxgrad.make_program(function)(*args)
    return made


# --- what is looked at ----------------------------------------------------------------------------------------------


def test_a_gradient_is_three_programs_one_of_which_is_for_nans() -> None:
    program = program_of(lambda params, x: {name: params[name] - 0.1 * slope for name, slope in safely(
        params, x).items()}, PARAMS, X)
    attempt = speculation_of(program)
    assert attempt is not None
    assert has_products(attempt.again)
    assert not has_products(attempt.first, MATRICES)
    assert not has_products(attempt.rest)
    assert {equation.primitive.name for equation in attempt.rest.equations} == {"mul", "sub"}
    assert [aval.shape for aval in attempt.again.out_avals] == [(5, 7), (7, 3)]  # and not the biases
    assert attempt.looked == ((0, ((0,), (1,))), (1, ((0,), (1,))))  # a row and a column
    assert speculation_of(program) is attempt


def test_one_loop_of_a_compiled_gradient() -> None:
    text = fxgrad.stablehlo(safely)(PARAMS, X)
    assert text.count("stablehlo.while") == 1
    assert "stablehlo.case" not in text
    assert "stablehlo.while" not in fxgrad.stablehlo(fxgrad.grad(loss))(PARAMS, X)


def test_what_hides_a_nan_is_looked_at_itself() -> None:
    def both(w: Any) -> Any:
        def inner(w: Any, b: Any) -> Any:
            hidden = BAD @ w + b
            return fnp.sum(fnp.where(MASK[:, None] > 0, fnp.sqrt(hidden * hidden + 1.0), 0.0))
        return fxgrad.grad(fxgrad.nan_safe(inner), argnums=(0, 1))(w, np.zeros(7))

    program = program_of(both, PARAMS["W1"])
    assert nan_check_outputs(program, MATRICES) == (0,)
    part = program_of(lambda w: (both(w)[0][:1], both(w)[1]), PARAMS["W1"])  # rows that are cut off may be the NaN
    assert nan_check_outputs(part, MATRICES)[0] == 0
    ordinary = program_of(fxgrad.grad(loss), PARAMS, X)
    assert nan_check_outputs(ordinary) == ()
    assert speculation_of(ordinary) is None


def test_a_row_and_a_column_tell_of_a_product() -> None:
    """Of what is moved after it, too; of other shapes all is looked at."""
    x, y = np.ones((5, 3)), np.ones((3, 7))
    for function, cuts in ((lambda x, y: x @ y, ((0,), (1,))), (lambda x, y: (x @ y).T, ((1,), (0,))),
                           (lambda x, y: (x @ y).reshape(1, 5, 1, 7), ((1,), (3,))),
                           (lambda x, y: (x @ y)[:, None], ((0,), (2,))),
                           (lambda x, y: -2.0 * (x @ y).T.reshape(7, 5, 1), ((1,), (0,))),
                           (lambda x, y: (x @ y).reshape(7, 5), ((),)), (lambda x, y: x + 1.0, ((),))):
        program = fxgrad.make_program(function, as_recorded=True)(x, y)
        assert _cuts(program, program.outputs[0]) == cuts


def test_arrays_are_finite() -> None:
    def says(*arrays: Any) -> bool:
        avals = [program_of(lambda x: x, array).in_avals[0] for array in arrays]
        return finite_outputs(avals, range(len(arrays)))(arrays)

    fine = np.linspace(-1.0, 1.0, 6)
    for place in range(3):
        for value in (np.nan, np.inf, -np.inf):
            arrays = [fine.reshape(2, 3).copy(), fine.copy(), fine.reshape(3, 2).T.copy()]
            assert says(*arrays)
            arrays[place].flat[2] = value
            assert not says(*arrays)
            wide = [array.astype(complex) for array in arrays]
            assert not says(*wide)
            with np.errstate(invalid="ignore"):
                assert not says(*(1j * array for array in wide))
    large = np.full(3, 1e200)
    assert says(large, large)
    assert says(large, -large, np.float32(3e38) * np.ones(2, np.float32))
    assert not says(np.array([0.0, np.nan]), np.zeros(2))
    assert not says(np.float64(np.nan), fine)
    assert not says(np.complex128(complex(1.0, np.inf)))
    assert says(np.zeros(0), np.zeros((0, 3)), np.float64(2.0))
    assert says(np.asarray(jnp.ones(3, "bfloat16")), fine)
    assert not says(np.asarray(jnp.full(3, jnp.nan, "bfloat16")), fine)


# --- what is computed -----------------------------------------------------------------------------------------------

ZEROS = {name: np.zeros_like(value) for name, value in PARAMS.items()}
State = tuple[Values, Values, Values]


def adam(state: State, gradient: Callable[[Values], Values]) -> State:
    params, first, second = state
    found = gradient(params)
    first = {name: 0.9 * first[name] + 0.1 * found[name] for name in params}
    second = {name: 0.99 * second[name] + 0.01 * found[name] ** 2 for name in params}
    return {name: params[name] - 0.1 * first[name] / (fnp.sqrt(second[name]) + 1e-8) for name in params}, first, second


def clipped(found: Values) -> Values:
    norm = fnp.sqrt(sum(fnp.sum(found[name] ** 2) for name in sorted(found)))
    return {name: value * fnp.where(norm > 1, 1 / norm, 1.0) for name, value in found.items()}


def in_thousands(found: Values) -> Values:
    return {name: (value * 1000).astype(int) for name, value in found.items()}


def stepped(found: Values) -> Values:
    return {name: value - 0.1 * found[name] for name, value in PARAMS.items()}


def nearer(found: Values) -> Values:
    return {name: fnp.tanh(value) for name, value in found.items()}


def printing(params: Values, x: Any) -> Any:
    fxgrad.debug.callback(lambda value: None, x[0, 0])
    return loss(params, x)


def adams(gradient: Callable[[Values], Values], steps: int) -> Values:
    state: State = PARAMS, ZEROS, ZEROS
    for _ in range(steps):
        state = adam(state, gradient)
    return state[0]


def after(change: Callable[[Values], Values]) -> tuple[Callable[[Values, Any], Values], Callable[[], Values]]:
    return lambda params, x: change(safely(params, x)), lambda: change(slopes(PARAMS))


CASES: dict[str, tuple[Callable[[Values, Any], Values], Callable[[], Values]]] = {
    "nothing": after(lambda found: found),
    "steps": after(stepped),
    "comparisons": after(clipped),
    "whole numbers": after(in_thousands),
    "Adam": (lambda params, x: adam((params, ZEROS, ZEROS), lambda params: safely(params, x))[0],
             lambda: adams(slopes, 1)),
    "Adam by scan": (lambda params, x: fxgrad.lax.scan(lambda state, _: (adam(
        state, lambda params: safely(params, x)), None), (params, ZEROS, ZEROS), None, length=3)[0][0],
        lambda: adams(slopes, 3)),
    "effects": (fxgrad.grad(fxgrad.nan_safe(printing)), lambda: slopes(PARAMS)),
    "vmap": (lambda params, x: {name: value[1] for name, value in fxgrad.vmap(safely, (None, 0))(
        params, fnp.stack([X, x])).items()}, lambda: slopes(PARAMS)),
    "jit": (fxgrad.grad(fxgrad.nan_safe(fxgrad.jit(loss))), lambda: slopes(PARAMS)),
    "checkpoint": (fxgrad.grad(fxgrad.nan_safe(fxgrad.checkpoint(loss))), lambda: slopes(PARAMS)),
    "forward": (fxgrad.jacfwd(fxgrad.nan_safe(loss)), lambda: slopes(PARAMS)),
    "inside": (fxgrad.nan_safe(fxgrad.grad(loss)), lambda: slopes(PARAMS)),
    "twice": (lambda params, x: safely(nearer(safely(params, x)), x), lambda: slopes(nearer(slopes(PARAMS)))),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_compiled_with_and_without_nans(name: str) -> None:
    function, expected = CASES[name]
    jitted = fxgrad.jit(function)
    for x in (BAD, X, BAD):
        equal(jitted(PARAMS, x), expected(), 1e-7)


@pytest.mark.slow
def test_second_derivatives_exports_and_jax() -> None:
    hessian = fxgrad.hessian(fxgrad.nan_safe(loss))
    expected = fxgrad.hessian(loss)(PARAMS, np.where(MASK[:, None] > 0, X, 0.0))
    found = fxgrad.jit(hessian)(PARAMS, BAD)
    for name in PARAMS:
        equal(found[name], expected[name], 1e-8)
    shapes = {name: fxgrad.symbolic_spec(*value.shape, dtype="float64") for name, value in PARAMS.items()}
    sizes = fxgrad.symbolic_spec("n", 5, dtype="float64"), fxgrad.symbolic_spec("n", dtype="float64")
    exported = fxgrad.export(fxgrad.grad(fxgrad.nan_safe(loss)))(shapes, *sizes)
    equal(exported.call(PARAMS, BAD, MASK), slopes(PARAMS))
    with jax.enable_x64(True):
        equal(jax.jit(fxgrad.to_jax(safely))(PARAMS, BAD), slopes(PARAMS))


@pytest.mark.slow
def test_halves_and_complex_numbers() -> None:
    halves = {name: jnp.asarray(value, "bfloat16") for name, value in PARAMS.items()}
    for value in fxgrad.jit(safely)(halves, jnp.asarray(BAD, "bfloat16")).values():
        assert np.isfinite(np.asarray(value, np.float32)).all()

    def energy(w: Any, x: Any) -> Any:
        return fnp.sum(fnp.abs(fnp.where(MASK[:, None] > 0, (x + 0j) @ w, 0.0)) ** 2)
    w = PARAMS["W1"] + 1j
    found = fxgrad.jit(fxgrad.grad(fxgrad.nan_safe(energy)))(w, BAD)
    np.testing.assert_allclose(found, fxgrad.grad(energy)(w, np.where(MASK[:, None] > 0, X, 0.0)), rtol=1e-12)


# --- any model ------------------------------------------------------------------------------------------------------


def in_steps(gradient: Callable[..., Any]) -> Callable[..., Any]:
    return lambda params, x: [each - 0.1 * slope for each, slope in zip(params, gradient(params, x), strict=True)]


def in_parts(gradient: Callable[..., Any]) -> Callable[..., Any]:
    return lambda params, x: [fnp.where(slope > 0, slope, 0.0)[:1] for slope in gradient(params, x)]


def derivatives(model: Model) -> list[Callable[[list[Any], Any], Any]]:
    safe = fxgrad.nan_safe(model.loss)
    gradient = fxgrad.grad(safe)
    return [gradient, fxgrad.grad(safe, argnums=(0, 1)), in_steps(gradient), in_parts(gradient),
            lambda params, x: fxgrad.jvp(lambda x: gradient(params, x), (x,), (fnp.cos(x),))]


def are_same(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    return all(np.allclose(each, other, rtol=1e-9, atol=1e-12, equal_nan=True)
               for each, other in zip(found, expected, strict=True))


def assert_same_where_looked_at(program: Program, inputs: list[Any]) -> None:
    """What is finite where it is looked at is what strong products give, and the three parts are the whole."""
    with np.errstate(all="ignore"):
        whole = run_reference(program, inputs)
        if propagates_nans(program):
            ordinary = run_reference(relax_products(program), inputs)
            if all(np.isfinite(ordinary[place]).all() for place in nan_check_outputs(program)):
                assert are_same(ordinary, whole)
        attempt = speculation_of(program)
        if attempt is None:
            return
        first, again = run_reference(attempt.first, inputs), run_reference(attempt.again, inputs)
        assert are_same(run_reference(attempt.rest, [*inputs, *again, *first[len(again):]]), whole)
        parts = [np.asarray(first[place])[tuple(slice(1) if axis in cut else slice(None)
                                                for axis in range(np.ndim(first[place])))]
                 for place, cuts in attempt.looked for cut in cuts]
        if all(np.isfinite(part).all() for part in parts):
            assert are_same(first[:len(again)], again)


@given(st.integers(0, 2**32 - 1))
@examples(40)
def test_of_any_model(seed: int) -> None:
    generator = np.random.default_rng(seed)
    model = any_model(generator)
    functions = derivatives(model)
    program = fxgrad.make_program(functions[generator.integers(len(functions))])(model.params, model.data)
    bad = spoilt(generator, model.data)
    for params, data in ((model.params, bad), ([*map(partial(spoilt, generator), model.params)], bad)):
        inputs = [*program.constants, *params, data]
        assert_same_where_looked_at(program, inputs)
        assert_same_where_looked_at(inline_calls(program, (safe_call_p,)), inputs)
